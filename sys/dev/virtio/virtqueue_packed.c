/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Packed virtqueues (VirtIO 1.3, 2.8), an implementation of pvq(9).
 *
 * A packed virtqueue is one ring of descriptors, which both sides read and
 * write, and two words that suppress events.  We write a descriptor into the
 * next place of the ring to make it available; the device, when it has finished
 * with it, writes one into the next place of its own to mark it as used.  Both
 * go round the ring in order, the device behind us:
 *
 *	           vp_used                    vp_next
 *	             v                          v
 *	  +--------+--------+--------+--------+--------+--------+
 *	  | used   | avail. | avail. | avail. | used   | used   |  places of
 *	  +--------+--------+--------+--------+--------+--------+  the ring
 *	             ^ the device's next        ^ our next
 *
 * Chains and ids.  A chain of several segments takes one place, which points to
 * a table of its own (2.8.7), if INDIRECT_DESC was negotiated and the table has
 * room for all; else consecutive places, one for each segment.  The device
 * answers with a single descriptor in either case, and skips as many places as
 * the chain took (2.8.6).  Chains may complete out of order, and a used
 * descriptor may overwrite one of a chain that is still in flight, which the
 * device has read by then.  So a chain is identified by an id, not by its
 * place.
 *
 * Wrap counters.  Whether a descriptor is available or used is in two of its
 * flags, and what they mean changes with every turn, so that they are never
 * cleared (2.8.1).  Each side has a wrap counter that begins as 1 and changes
 * whenever that side passes the end of the ring.
 *
 *	AVAIL = ours, USED = not ours            available
 *	AVAIL = USED = the device's              used
 *
 * A place that we have returned to has AVAIL and USED of the turn before, which
 * is neither.
 *
 * In order.  With IN_ORDER a device uses chains in the order in which they were
 * made available, and one used descriptor may stand for many: see
 * vp_next_used().
 *
 * Events.  When either side is told is in virtqueue_packed_event.c.
 *
 * Private state.  The cookie of a chain, the bytes that the device may write
 * and the places that it took are in memory that the device can't reach.  Of
 * the ring we read the place at vp_used only.
 *
 * Free ids are kept in a circular array (vp_free).  The chain that is the nth
 * to be put takes the id at place n, and the nth to complete gives its own back
 * at place n + q_size.  As many chains are in flight as there are places in the
 * ring at most, and pvq_reserve() has counted those, so that the put side never
 * overtakes the get side there, and no lock is needed between them.
 *
 * Staging.  Put writes descriptors in full, flags included, but for the first
 * one of a batch: the device looks at its next place only, so all are made
 * available by one store, that of the second half of the first (2.8.21.1).
 * Abort has to take the others' flags back, or the device would run on into
 * them after a later commit.
 *
 * Barriers.  They order our accesses to memory that another CPU (or a device
 * behind a coherent bus) uses at the same time.
 *
 *	commit       descriptors, tables    release   flags of the first
 *	                                              descriptor
 *	             pairs with the device's acquire after it read those flags
 *	get          flags of a descriptor  acquire   its id and length, buffers
 *	             pairs with the device's release before it wrote the flags.
 *	             Id, length and flags are read by one load of 64 bits.
 *	kick         flags of the first     full      the device's event
 *	             descriptor                       suppression
 *	             pairs with the device's full barrier between its write of
 *	             the event suppression and its re-check of the descriptor:
 *	             one of the two sees the other's write
 *	intr_enable  our event suppression  full      flags of the descriptor
 *	                                              at vp_used
 *	             the mirror image
 *
 * Trust.  A used descriptor's id, length and flags are read once into a local,
 * and the device's event suppression is too.  An id must be that of a chain in
 * flight.  A descriptor may not be used when nothing is in flight, nor have the
 * wrong wrap counter while something is.  A length is cut to what fits; one
 * that was too long breaks a queue with VIRTQUEUE_STRICT_LENGTHS.  Event
 * suppression can be anything: it only decides whether we notify.
 *
 * The flag WRITE of a used descriptor is not looked at, though a length without
 * it means nothing by 2.8.4: QEMU, up to 9 at least, never sets it.
 *
 * Locking.  None here: see pvq.h.  The put side and the get side may run at the
 * same time, always.  The put side publishes vps_seq before vps_slots, and
 * q_committed after both; the get side accepts an id if vps_slots is not 0 and
 * vps_seq is committed.
 */

#include <dev/virtio/virtqueue_packed_var.h>

/*
 * Write the next descriptor; the first of a batch is not shown to the device
 * yet.
 */
static inline void
vp_fill(struct vqpacked *vp, bool first, bus_addr_t addr, uint32_t len,
    uint16_t id, uint16_t flags)
{
	struct vring_packed_desc *d = vp->vp_next.vpp_desc;

	d->vpd_addr = htole64(addr);
	*(first ? &vp->vp_first : &d->vpd_word) =
	    htole64(vring_packed_word(len, id, flags | vp->vp_next.vpp_avail));
	vp_advance(vp, &vp->vp_next);
}

/*
 * One descriptor for the chain, and the segments in its table (2.8.7), where
 * WRITE is the only flag.  Returns how many bytes the device may write.
 */
static inline uint64_t
vp_put_indirect(struct vqpacked *vp, const struct pvq_chain *pc,
    struct vring_packed_desc *d, bus_addr_t table, uint16_t id, int n)
{
	const bus_dma_segment_t *seg = pc->pc_segs;
	const int nread = pc->pc_nread;
	uint64_t wlen = 0;
	int i = 0;

	/*
	 * Two loops without a branch in them, as in vq_put_indirect() in
	 * virtqueue_split.c.
	 */
	for (; i < nread; i++, seg++, d++) {
		d->vpd_addr = htole64(seg->ds_addr);
		d->vpd_word = htole64(vring_packed_word(seg->ds_len, 0, 0));
	}
	for (; i < n; i++, seg++, d++) {
		wlen += seg->ds_len;
		d->vpd_addr = htole64(seg->ds_addr);
		d->vpd_word = htole64(vring_packed_word(seg->ds_len, 0,
		    VRING_DESC_F_WRITE));
	}
	vp_fill(vp, vp->vp_staged == 0, table,
	    n * sizeof(struct vring_packed_desc), id, VRING_DESC_F_INDIRECT);
	vp->vp_staged_ind++;
	return (wlen);
}

/* The same in a long table, which the record has. */
static __noinline uint64_t
vp_put_long(struct vqpacked *vp, const struct pvq_chain *pc, uint16_t id, int n,
    u_int *record)
{
	const u_int i = virtqueue_take_long(&vp->vp_c);
	struct vring_packed_desc *d;
	bus_addr_t table;
	uint64_t wlen;

	*record = VIRTQUEUE_HAS_LONG(i);
	d = virtqueue_table(&vp->vp_c.vqc_long, i, &table);
	wlen = vp_put_indirect(vp, pc, d, table, id, n);
	pv_dma_sync(&vp->vp_c.vqc_long.vqt_slab, BUS_DMASYNC_PREWRITE);
	return (wlen);
}

/* A descriptor for each segment, in consecutive places. */
static __noinline uint64_t
vp_put_direct(struct vqpacked *vp, const struct pvq_chain *pc, uint16_t id,
    int n)
{
	uint64_t wlen = 0;
	uint16_t flags;
	int i;

	for (i = 0; i < n; i++) {
		flags = i < n - 1 ? VRING_DESC_F_NEXT : 0;
		if (i >= pc->pc_nread) {
			flags |= VRING_DESC_F_WRITE;
			wlen += pc->pc_segs[i].ds_len;
		}
		vp_fill(vp, i == 0 && vp->vp_staged == 0,
		    pc->pc_segs[i].ds_addr, pc->pc_segs[i].ds_len, id, flags);
	}
	return (wlen);
}

/* What the get side has to know of the chain number seq, which is staged. */
static inline void
vp_record(struct vqpacked *vp, struct vp_shadow *sh, void *cookie,
    uint32_t wlen, uint32_t seq, u_int record)
{

	KASSERT(cookie != NULL, ("%s: no cookie", __func__));
	KASSERT(sh->vps_slots == 0, ("%s: id %u in use", __func__, sh->vps_id));
	sh->vps_cookie = cookie;
	sh->vps_wlen = wlen;
	sh->vps_seq = seq;
	atomic_store_rel_32(&sh->vps_slots, record);
	vp->vp_c.vqc_pvq.q_taken += virtqueue_slots(record);
}

/* Put a chain. */
static inline void
vp_put_one(struct vqpacked *vp, const struct pvq_chain *pc)
{
	struct pvq *q = &vp->vp_c.vqc_pvq;
	const bus_dma_segment_t *seg = pc->pc_segs;
	const int n = pc->pc_nread + pc->pc_nwrite;
	const uint32_t seq = q->q_committed + vp->vp_staged;
	struct vp_shadow *sh = vp->vp_free[seq & vp->vp_mask];
	const uint16_t id = sh->vps_id;
	uint64_t wlen;
	u_int record = 1;

	KASSERT(n > 0 && n <= q->q_max_segs, ("%s: %d segments", __func__, n));
	KASSERT((int)(q->q_given - q->q_taken) >= virtqueue_prepare(q, pc),
	    ("%s: no room", __func__));
	if (n == 1) {
		wlen = pc->pc_nwrite != 0 ? seg->ds_len : 0;
		/* One that the device reads, or one that it writes. */
		vp_fill(vp, vp->vp_staged == 0, seg->ds_addr, seg->ds_len, id,
		    pc->pc_nwrite * VRING_DESC_F_WRITE);
	} else if (n <= q->q_flat_segs)
		wlen = vp_put_indirect(vp, pc, sh->vps_table,
		    sh->vps_table_paddr, id, n);
	else if (pvq_long_room(q))
		wlen = vp_put_long(vp, pc, id, n, &record);
	else {
		wlen = vp_put_direct(vp, pc, id, n);
		record = n;
	}
	KASSERT(wlen <= UINT32_MAX,
	    ("%s: %ju bytes", __func__, (uintmax_t)wlen));
	vp_record(vp, sh, pc->pc_cookie, (uint32_t)wlen, seq, record);
	vp->vp_staged++;
	vp->vp_staged_segs += n;
}

static void
vqpacked_put(struct pvq *q, const struct pvq_chain *pc, int n)
{

	for (; n > 0; n--, pc++)
		vp_put_one(VP(q), pc);
}

/*
 * Take back what is staged: the flags of the descriptors that the device has
 * not reached, which become those of the turn before, and the ids.
 */
static void
vqpacked_abort(struct pvq *q)
{
	struct vqpacked *vp = VP(q);
	struct vp_place place = vp->vp_base_next;

	if (vp->vp_staged == 0)
		return;
	for (; q->q_taken != vp->vp_base; q->q_taken--) {
		place.vpp_desc->vpd_word = htole64(vring_packed_word(0, 0,
		    place.vpp_avail == VRING_PACKED_F_AVAIL ? 0 : VP_TURN));
		vp_advance(vp, &place);
	}
	for (; vp->vp_staged > 0; vp->vp_staged--)
		vp->vp_free[(q->q_committed + vp->vp_staged - 1) &
		    vp->vp_mask]->vps_slots = 0;
	q->q_long_taken = vp->vp_c.vqc_long_base;
	vp->vp_next = vp->vp_base_next;
	vp->vp_staged_segs = vp->vp_staged_ind = 0;
}

/*
 * Show n chains, of so many segments, of which ind go by a table, to the get
 * side and the device.
 */
static __always_inline void
vp_show(struct vqpacked *vp, u_int n, u_int segs, u_int ind)
{
	struct pvq *q = &vp->vp_c.vqc_pvq;
	const uint32_t committed = q->q_committed + n;

	vp->vp_base = q->q_taken;
	q->q_stats.qs_chains += n;
	q->q_stats.qs_segs += segs;
	q->q_stats.qs_put_own += ind;
	/*
	 * The chains are the get side's before they are the device's: a
	 * completion that it sees has to be of one that is committed.
	 */
	atomic_store_rel_32(&q->q_committed, committed);

	pv_dma_sync(&vp->vp_c.vqc_tables.vqt_slab, BUS_DMASYNC_PREWRITE);
	pv_dma_sync(&vp->vp_c.vqc_ring, BUS_DMASYNC_PREWRITE);
	atomic_thread_fence_rel();
	atomic_store_64(&vp->vp_base_next.vpp_desc->vpd_word, vp->vp_first);
	vp->vp_base_next = vp->vp_next;
	/* Pairs with the acquire in vp_check_turn(). */
	atomic_store_rel_32(&vp->vp_shown, committed);
	pv_dma_sync(&vp->vp_c.vqc_ring, BUS_DMASYNC_PREWRITE);
}

static void
vqpacked_commit(struct pvq *q)
{
	struct vqpacked *vp = VP(q);

	if (vp->vp_staged == 0)
		return;
	vp_show(vp, vp->vp_staged, vp->vp_staged_segs, vp->vp_staged_ind);
	vp->vp_c.vqc_long_base = q->q_long_taken;
	vp->vp_staged = vp->vp_staged_segs = vp->vp_staged_ind = 0;
}

/*
 * Without a staged state for one chain of one segment, which most are that come
 * alone.
 */
static void
vqpacked_post(struct pvq *q, const struct pvq_chain *pc, int n)
{
	struct vqpacked *vp = VP(q);
	struct vp_shadow *sh = vp->vp_free[q->q_committed & vp->vp_mask];
	const bus_dma_segment_t *seg = pc->pc_segs;
	const uint32_t writes = pc->pc_nwrite;

	KASSERT(vp->vp_staged == 0,
	    ("%s: %u chains not committed", __func__, vp->vp_staged));
	if (n != 1 || pc->pc_nread + writes != 1) {
		vqpacked_put(q, pc, n);
		vqpacked_commit(q);
		return;
	}
	vp_fill(vp, true, seg->ds_addr, seg->ds_len, sh->vps_id,
	    writes * VRING_DESC_F_WRITE);
	vp_record(vp, sh, pc->pc_cookie, -writes & (uint32_t)seg->ds_len,
	    q->q_committed, 1);
	vp_show(vp, 1, 1, 0);
}

/* As put and commit, of one chain in a table of its own. */
static void
vqpacked_post_table(struct pvq *q, bus_addr_t table, u_int n, uint32_t wlen,
    void *cookie)
{
	struct vqpacked *vp = VP(q);
	struct vp_shadow *sh = vp->vp_free[q->q_committed & vp->vp_mask];

	KASSERT(vp->vp_staged == 0,
	    ("%s: %u chains not committed", __func__, vp->vp_staged));
	KASSERT((int)(q->q_given - q->q_taken) > 0, ("%s: no room", __func__));
	vp_fill(vp, true, table, n * sizeof(struct vring_packed_desc),
	    sh->vps_id, VRING_DESC_F_INDIRECT);
	vp_record(vp, sh, cookie, wlen, q->q_committed, 1);
	vp_show(vp, 1, n, 1);
}

/*
 * Check a used descriptor.  Returns false, and the queue is broken, if it is
 * invalid.  For lengths, see vq_check() in virtqueue_split.c.
 */
static inline bool
vp_check(struct vqpacked *vp, uint16_t id, uint32_t *len, uint32_t completed)
{
	struct pvq *q = &vp->vp_c.vqc_pvq;
	struct vp_shadow *sh = &vp->vp_shadow[id];

	/* Pairs with the releases in vp_put_one() and vp_show(). */
	if (id >= vp->vp_size || atomic_load_acq_32(&sh->vps_slots) == 0 ||
	    (int32_t)(atomic_load_acq_32(&q->q_committed) - sh->vps_seq) <= 0) {
		pvq_break(q, q->q_committed == completed ? PVQ_FAULT_INDEX :
		    PVQ_FAULT_ID, id);
		return (false);
	}
	if (*len > sh->vps_wlen) {
		if (vp->vp_c.vqc_strict && sh->vps_wlen > 0) {
			pvq_break(q, VIRTQUEUE_FAULT_LEN, *len);
			return (false);
		}
		q->q_stats.qs_get_own++;
		*len = sh->vps_wlen;
	}
	return (true);
}

/*
 * Give a chain's places and its id back.  The caller publishes q_given, which
 * is returned.
 */
static inline uint32_t
vp_release(struct vqpacked *vp, struct vp_shadow *sh, uint32_t completed,
    uint32_t given)
{
	const u_int slots = virtqueue_slots(sh->vps_slots);

	virtqueue_give_long(&vp->vp_c, sh->vps_slots);
	sh->vps_slots = 0;
	vp->vp_free[(completed + vp->vp_size) & vp->vp_mask] = sh;
	vp_step(vp, &vp->vp_used, &vp->vp_turn, slots);
	return (given + slots);
}

/*
 * The next chain that was used, and how many bytes the device wrote to it; NULL
 * if there is none.
 *
 * With IN_ORDER a used descriptor stands for all chains from the oldest in
 * flight to the one that it names (2.8.8).  Those before that one were used
 * completely, and their places are skipped.  A device that is not in order
 * later names one of these, which is not in flight any more.
 */
static inline struct vp_shadow *
vp_next_used(struct vqpacked *vp, uint32_t completed, uint32_t *len)
{
	struct vp_shadow *sh;
	uint64_t word;
	uint16_t id;

	if (__predict_true(vp->vp_batch == 0)) {
		word = vp_read(vp, vp->vp_used);
		if (!vp_is_used(word, vp->vp_turn)) {
			vp_check_turn(vp, completed);
			return (NULL);
		}
		id = word >> VRING_PACKED_ID_SHIFT;
		*len = (uint32_t)word;
		if (!vp_check(vp, id, len, completed))
			return (NULL);
		sh = &vp->vp_shadow[id];
		if (!vp->vp_c.vqc_in_order)
			return (sh);
		vp->vp_batch = sh->vps_seq - completed + 1;
		vp->vp_batch_len = *len;
	}
	/*
	 * In order, the nth to complete is the chain that took the id at place
	 * n.
	 */
	sh = vp->vp_free[completed & vp->vp_mask];
	*len = --vp->vp_batch == 0 ? vp->vp_batch_len : sh->vps_wlen;
	return (sh);
}

/*
 * The first completions, as long as they are what most are: of chains of one
 * place, with a length that fits.  Returns how many there were, up to max,
 * which is not 0.  *inflight is set if the next place is as we wrote it; else,
 * with less than max, it is for vp_get_any() to look at.
 *
 * committed  q_committed; no more than max of these chains have not completed
 */
static __always_inline u_int
vp_get_plain(struct vqpacked *vp, struct pvq_done *done, u_int max,
    const uint32_t committed, const uint32_t completed, bool *inflight)
{
	const struct vring_packed_desc *d = &vp->vp_desc[vp->vp_used];
	/*
	 * Copies: what is stored below might be these, as far as a compiler can
	 * tell.
	 */
	struct vp_shadow *const shadow = vp->vp_shadow,
	    **const ids = vp->vp_free, *sh;
	uint64_t turn = vring_packed_word(0, 0, vp->vp_turn), word;
	const uint32_t first = completed + vp->vp_size, end = first + max;
	uint32_t id, place = first;

	pv_dma_sync(&vp->vp_c.vqc_ring,
	    BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
	do {
		word = vp_read_synced(d);
		/*
		 * The id, below the two flags that are 0 here if the place is
		 * used: one comparison.
		 */
		id = ((word ^ turn) & VP_ID_AND_TURN) >> VRING_PACKED_ID_SHIFT;
		if (id >= vp->vp_size) {
			*inflight = ((word ^ turn) >> VRING_PACKED_FLAGS_SHIFT &
			    VP_TURN) == VRING_PACKED_F_USED;
			break;
		}
		sh = &shadow[id];
		if (__predict_false(atomic_load_acq_32(&sh->vps_slots) != 1 ||
		    (uint32_t)word > sh->vps_wlen ||
		    (int32_t)(sh->vps_seq - committed) >= 0))
			break;
		sh->vps_slots = 0;
		done->pd_cookie = sh->vps_cookie;
		done->pd_result = (uint32_t)word;
		ids[place & vp->vp_mask] = sh;
		if (__predict_false(++d == vp->vp_end)) {
			d = vp->vp_desc;
			vp->vp_turn ^= VP_TURN;
			turn ^= vring_packed_word(0, 0, VP_TURN);
		}
		done++;
	} while (++place != end);
	vp->vp_used = d - vp->vp_desc;
	return (place - first);
}

/*
 * So many chains were taken from the ring, whose places were given back before
 * `given`.
 */
static inline int
vp_got(struct vqpacked *vp, u_int n, uint32_t given)
{
	struct pvq *q = &vp->vp_c.vqc_pvq;

	q->q_completed += n;
	q->q_stats.qs_done += n;
	/*
	 * Pairs with the acquire in pvq_room(): the ids are in vp_free before
	 * the places count.
	 */
	atomic_store_rel_32(&q->q_given, given);
	return (n);
}

/*
 * Completions, whatever they are: none, and after plain ones those of a batch,
 * of chains of several places, and invalid ones, at which the queue breaks.
 *
 * most  max or, if that is less, how many are in flight by `committed', which
 *       is q_committed
 */
static __noinline int
vp_get_any(struct vqpacked *vp, struct pvq_done *done, u_int max, u_int most,
    uint32_t committed)
{
	struct pvq *q = &vp->vp_c.vqc_pvq;
	uint32_t completed = q->q_completed, given, len;
	struct vp_shadow *sh;
	bool inflight = false;
	u_int n = 0;

	if (__predict_true(!vp->vp_c.vqc_in_order && most > 0)) {
		n = vp_get_plain(vp, done, most, committed, completed,
		    &inflight);
		if (__predict_true(n == most || inflight))
			return (vp_got(vp, n, q->q_given + n));
	}
	completed += n;
	given = q->q_given + n;
	/*
	 * Where all that was in flight has completed, the next place is not
	 * worth a look.
	 */
	for (; n < max && (n == 0 || q->q_committed != completed);
	    n++, completed++) {
		sh = vp_next_used(vp, completed, &len);
		if (sh == NULL)
			break;
		done[n].pd_cookie = sh->vps_cookie;
		done[n].pd_result = len;
		given = vp_release(vp, sh, completed, given);
	}
	return (vp_got(vp, n, given));
}

static int
vqpacked_get(struct pvq *q, struct pvq_done *done, int max)
{
	struct vqpacked *vp = VP(q);
	const uint32_t completed = q->q_completed;
	uint32_t committed;
	bool inflight;
	u_int most;

	if (pvq_broken(q))
		return (0);
	/* Pairs with the release in vp_show(). */
	committed = atomic_load_acq_32(&q->q_committed);
	most = MIN((u_int)max, committed - completed);
	/* With nothing in flight there should be nothing. */
	if (most == 0 && !vp_any_waiting(vp))
		return (0);
	/* One that is alone is worth a way without a loop. */
	if (most == 1 && !vp->vp_c.vqc_in_order &&
	    vp_get_plain(vp, done, 1, committed, completed, &inflight) == 1)
		return (vp_got(vp, 1, q->q_given + 1));
	return (vp_get_any(vp, done, max, most, committed));
}

/* The oldest chain in flight, by a search; see vqsplit_drain(). */
static void *
vqpacked_drain(struct pvq *q)
{
	struct vqpacked *vp = VP(q);
	struct vp_shadow *oldest = NULL, *sh;

	vqpacked_abort(q);
	for (sh = vp->vp_shadow; sh < vp->vp_shadow + q->q_size; sh++) {
		if (sh->vps_slots != 0 && (oldest == NULL || q->q_committed -
		    sh->vps_seq > q->q_committed - oldest->vps_seq))
			oldest = sh;
	}
	if (oldest == NULL)
		return (NULL);
	q->q_given = vp_release(vp, oldest, q->q_completed, q->q_given);
	q->q_completed++;
	return (oldest->vps_cookie);
}

/* Everything as it was when the queue was created, but for the statistics. */
static int
vqpacked_forget(struct pvq *q)
{
	struct vqpacked *vp = VP(q);
	uint32_t i;

	for (i = 0; i < vp->vp_size; i++) {
		vp->vp_free[i] = &vp->vp_shadow[i];
		vp->vp_shadow[i].vps_id = i;
		vp->vp_shadow[i].vps_slots = 0;
	}
	q->q_taken = q->q_committed = q->q_completed = 0;
	q->q_given = q->q_size;
	vp->vp_base = 0;
	virtqueue_forget_long(&vp->vp_c);
	vp->vp_staged = vp->vp_staged_segs = vp->vp_staged_ind = 0;
	vp->vp_next.vpp_desc = vp->vp_desc;
	vp->vp_next.vpp_avail = VRING_PACKED_F_AVAIL;
	vp->vp_base_next = vp->vp_next;
	vp->vp_kicked = vp->vp_notified = vp->vp_answered = vp->vp_shown = 0;
	vp->vp_expected = vp_event_at(0, VP_TURN);
	vp->vp_used = 0;
	vp->vp_turn = VP_TURN;
	vp->vp_batch = 0;
	memset(vp->vp_desc, 0, vp->vp_c.vqc_ring_size);
	if (vp->vp_c.vqc_event)
		vp_set_event(vp, vp_event_at(0, VP_TURN));
	pv_dma_sync(&vp->vp_c.vqc_ring,
	    BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	q->q_fault = PVQ_OK;
	return (0);
}

static int
vqpacked_reinit(struct pvq *q)
{

	vqpacked_abort(q);
	return (q->q_committed != q->q_completed ? EBUSY : vqpacked_forget(q));
}

static void
vqpacked_free(struct pvq *q)
{
	struct vqpacked *vp = VP(q);

	KASSERT(q->q_committed == q->q_completed, ("%s: %u chains in flight",
	    q->q_name, q->q_committed - q->q_completed));
	virtqueue_fini(&vp->vp_c);
	free(vp->vp_shadow, M_VIRTQUEUE);
	free(vp->vp_free, M_VIRTQUEUE);
	free(vp, M_VIRTQUEUE);
}

static const struct pvq_ops vqpacked_ops = {
	.qo_name = "packed",
	.qo_faults = virtqueue_faults,
	.qo_counters = virtqueue_counters,
	.qo_prepare = virtqueue_prepare,
	.qo_put = vqpacked_put,
	.qo_abort = vqpacked_abort,
	.qo_commit = vqpacked_commit,
	.qo_post = vqpacked_post,
	.qo_kick = vqpacked_kick,
	.qo_get = vqpacked_get,
	.qo_intr_enable = vqpacked_intr_enable,
	.qo_intr_disable = vqpacked_intr_disable,
	.qo_peek = vqpacked_peek,
	.qo_drain = vqpacked_drain,
	.qo_forget = vqpacked_forget,
	.qo_reinit = vqpacked_reinit,
	.qo_free = vqpacked_free,
};

/*
 * Each side's event suppression has a cache line of its own: they are written
 * at different times.
 */
static void
vqpacked_place(struct virtqueue *vqc)
{
	struct vqpacked *vp = __containerof(vqc, struct vqpacked, vp_c);
	struct virtqueue_addrs *addrs = &vqc->vqc_addrs;
	size_t size = vqc->vqc_pvq.q_size,
	    driver = vring_packed_event_offset(size);
	size_t device = driver + CACHE_LINE_SIZE;
	char *mem = vqc->vqc_ring.pdm_mem;

	vp->vp_size = size;
	vp->vp_mask = roundup_pow_of_two(size) - 1;
	vp->vp_desc = (struct vring_packed_desc *)mem;
	vp->vp_end = vp->vp_desc + size;
	vp->vp_driver_event = (struct vring_packed_event *)(mem + driver);
	vp->vp_device_event = (struct vring_packed_event *)(mem + device);
	addrs->vqa_desc = vp->vp_c.vqc_ring.pdm_addr;
	addrs->vqa_driver = addrs->vqa_desc + driver;
	addrs->vqa_device = addrs->vqa_desc + device;
}

int
virtqueue_packed_create(const struct virtqueue_params *params, struct pvq **qp)
{
	struct vqpacked *vp;
	int error, i;

	if (params->vqp_size == 0 || params->vqp_size > VRING_MAX_SIZE ||
	    params->vqp_max_segs == 0 ||
	    (params->vqp_features & VIRTIO_F_VERSION_1) == 0)
		return (EINVAL);
	vp = malloc_aligned(sizeof(*vp), CACHE_LINE_SIZE, M_VIRTQUEUE,
	    M_WAITOK | M_ZERO);
	vp->vp_free = malloc(roundup_pow_of_two(params->vqp_size) *
	    sizeof(*vp->vp_free), M_VIRTQUEUE, M_WAITOK | M_ZERO);
	vp->vp_shadow = malloc(params->vqp_size * sizeof(*vp->vp_shadow),
	    M_VIRTQUEUE, M_WAITOK | M_ZERO);
	vp->vp_c.vqc_next = vqpacked_next;
	vp->vp_c.vqc_place = vqpacked_place;
	vp->vp_c.vqc_post_table = vqpacked_post_table;
	error = virtqueue_init(&vp->vp_c, params, &vqpacked_ops,
	    vring_packed_size(params->vqp_size), VRING_DESC_ALIGN);
	if (error != 0) {
		vqpacked_free(&vp->vp_c.vqc_pvq);
		return (error);
	}
	vqpacked_place(&vp->vp_c);
	for (i = 0; vp->vp_c.vqc_tables.vqt_pieces != NULL &&
	    i < params->vqp_size; i++)
		vp->vp_shadow[i].vps_table =
		    virtqueue_table(&vp->vp_c.vqc_tables, i,
		    &vp->vp_shadow[i].vps_table_paddr);
	(void)vqpacked_forget(&vp->vp_c.vqc_pvq);
	*qp = &vp->vp_c.vqc_pvq;
	return (0);
}
