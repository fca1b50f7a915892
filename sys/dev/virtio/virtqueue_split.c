/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Split virtqueues (VirtIO 1.3, 2.7), an implementation of pvq(9).
 *
 * A split virtqueue is three arrays in memory that both sides see: the
 * descriptor table, the available ring that we write, and the used ring that
 * the device writes.
 *
 *	   we write                    the device writes
 *	+-------------+  avail.idx  +-------------------+  used.idx
 *	| descriptors | ----------> | reads, works, ... | ---------> we complete
 *	| avail ring  |             | used ring         |
 *	+-------------+             +-------------------+
 *
 * Ownership.  A descriptor is ours while its number is in the ring of free
 * numbers, the device's from the store of avail.idx until its head appears in
 * the used ring, then ours again.  A chain of several segments takes one
 * descriptor, which points to a table of its own (2.7.5.3), if INDIRECT_DESC
 * was negotiated and the table has room for all; else one for each segment.
 *
 * In order.  With IN_ORDER a device uses chains in the order in which they were
 * made available, and one used element may stand for many (2.7.9): see
 * vq_next_used().  The driver has to take descriptors in ring order then
 * (2.7.5), which it does: numbers are returned in the order in which they were
 * taken, so that the array below never changes.
 *
 * Private state.  Whatever we need to know about a chain later is in memory
 * that the device can't reach: the cookie, the number of bytes that it may
 * write, and the numbers of the descriptors.  The descriptor table is only
 * written, never read: overwriting it affects only the device.  The table entry
 * is rewritten in full each time that it is used.
 *
 * Free numbers are kept in a circular array (vq_ids), and two free-running
 * counters: the put side takes at q_taken, the get side gives at q_given.
 * There are as many places as numbers, so the two never meet over the same
 * place, and no lock is needed between them.  What was taken and not yet given
 * back stays readable in the array: abort is one assignment, and commit finds
 * the heads there.
 *
 * Barriers.  They order our accesses to memory that another CPU (or a device
 * behind a coherent bus) uses at the same time.
 *
 *	commit       descriptors, avail ring    release   avail.idx
 *	             pairs with the device's acquire after it read avail.idx
 *	get          used.idx                   acquire   used ring, buffers
 *	             pairs with the device's release before it wrote used.idx
 *	kick         avail.idx                  full      avail_event or
 *	                                                  used.flags
 *	             pairs with the device's full barrier between its write of
 *	             avail_event and its re-check of avail.idx: one of the two
 *	             sees the other's write
 *	intr_enable  used_event or avail.flags  full      used.idx
 *	             the mirror image
 *
 * Trust.  used.idx, each used element, avail_event and used.flags are read once
 * into a local.  The index may not be ahead of what was committed, and an id
 * must be the head of a chain in flight.  A length is cut to what fits; one
 * that was too long breaks a queue with VIRTQUEUE_STRICT_LENGTHS.  avail_event
 * and used.flags can be anything: they only decide whether we notify.
 *
 * Locking.  None here: see pvq.h.  The put side and the get side may run at the
 * same time, always; vsh_state is what hands a chain from one to the other.
 */

#include <machine/atomic.h>

#include <dev/virtio/virtqueue_var.h>

enum vq_state {
	VQ_IDLE = 0,		/* not the head of a chain in flight */
	VQ_POSTED,		/* head of a committed chain:
				 * the device may return it */
};

/* What we know of descriptor number i, and of the chain that begins with it. */
struct vq_shadow {
	void		*vsh_cookie;
	struct vring_desc *vsh_table;	/* its indirect table, constant */
	bus_addr_t	 vsh_table_paddr;
	uint32_t	 vsh_wlen;	/* bytes that the device may write */
	uint32_t	 vsh_seq;	/* q_committed at the time of the put */
	uint16_t	 vsh_next;	/* the chain's next descriptor */
	uint16_t	 vsh_ndesc;	/* descriptors in the chain, or
					 * VIRTQUEUE_HAS_LONG() */
	volatile uint32_t vsh_state;	/* enum vq_state */
};

struct vqsplit {
	struct virtqueue vq_c;		/* first */
	/* Constant. */
	struct vring_desc *vq_desc;
	struct vring_avail *vq_avail;
	struct vring_used *vq_used;
	uint16_t	*vq_used_event;	/* behind the available ring;
					 * we write */
	uint16_t	*vq_avail_event; /* behind the used ring;
					  * the device writes */
	uint16_t	*vq_ids;	/* circular array of free numbers */
	struct vq_shadow *vq_shadow;
	uint16_t	 vq_mask;	/* q_size - 1 */
	/* Put side. */
	uint32_t	 vq_base	/* q_taken at the last commit */
	    __aligned(CACHE_LINE_SIZE);
	uint16_t	 vq_avail_idx;	/* avail.idx, counted
					 * on for what is staged */
	uint32_t	 vq_staged;	/* chains staged */
	uint32_t	 vq_staged_segs;
	uint32_t	 vq_staged_ind;
	uint32_t	 vq_unkicked;	/* chains committed
					 * since the last kick */
	/* Get side. */
	uint16_t	 vq_used_idx	/* next used element to look at */
	    __aligned(CACHE_LINE_SIZE);
	uint32_t	 vq_batch;	/* IN_ORDER: chains of a batch still to
					 * be handed out */
	uint32_t	 vq_batch_len;	/* used length of its last one */
};

#define	VQ(q)	__containerof((q), struct vqsplit, vq_c.vqc_pvq)

/*
 * Has the ring's memory to be synced?  Functions of the data path ask once, and
 * have one of their own that syncs: without a call on their way they need no
 * registers saved.
 */
static inline bool
vq_syncs(const struct vqsplit *vq)
{
	return (__predict_false(vq->vq_c.vqc_ring.pdm_map != NULL));
}

/*
 * The used index, read once; the elements before it may be read when this
 * returns.
 */
static inline uint16_t
vq_synced_used_idx(const struct vqsplit *vq)
{
	uint16_t idx;

	idx = vq_16(&vq->vq_c, atomic_load_16(&vq->vq_used->vu_idx));
	atomic_thread_fence_acq();
	return (idx);
}

static inline uint16_t
vq_read_used_idx(const struct vqsplit *vq)
{
	pv_dma_sync(&vq->vq_c.vqc_ring,
	    BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
	return (vq_synced_used_idx(vq));
}

static inline void
vq_fill(const struct vqsplit *vq, struct vring_desc *d, bus_addr_t addr,
    uint32_t len, uint16_t flags, uint16_t next)
{

	d->vd_addr = vq_64(&vq->vq_c, addr);
	d->vd_len = vq_32(&vq->vq_c, len);
	d->vd_flags = vq_16(&vq->vq_c, flags);
	d->vd_next = vq_16(&vq->vq_c, next);
}

/*
 * One descriptor for the chain, and the segments in its table (2.7.5.3.1).
 * Returns how many bytes the device may write.
 */
static inline uint64_t
vq_put_indirect(struct vqsplit *vq, const struct pvq_chain *pc,
    struct vring_desc *d, bus_addr_t table, const struct pv_dma *dma,
    uint16_t head, int n)
{
	const bus_dma_segment_t *seg = pc->pc_segs;
	const int nread = pc->pc_nread;
	uint64_t wlen = 0;
	int i = 0;

	/*
	 * Two loops without a branch in them: the cost of a segment is that of
	 * every chain.
	 */
	for (; i < nread; i++, seg++, d++)
		vq_fill(vq, d, seg->ds_addr, seg->ds_len, VRING_DESC_F_NEXT,
		    i + 1);
	for (; i < n; i++, seg++, d++) {
		wlen += seg->ds_len;
		vq_fill(vq, d, seg->ds_addr, seg->ds_len,
		    VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, i + 1);
	}
	d[-1].vd_flags = vq_16(&vq->vq_c, nread == n ? 0 : VRING_DESC_F_WRITE);
	pv_dma_sync(dma, BUS_DMASYNC_PREWRITE);
	vq_fill(vq, &vq->vq_desc[head], table,
	    n * sizeof(struct vring_desc), VRING_DESC_F_INDIRECT, 0);
	return (wlen);
}

/* The same in a long table, which the record has. */
static __noinline uint64_t
vq_put_long(struct vqsplit *vq, const struct pvq_chain *pc, uint16_t head,
    int n, u_int *record)
{
	const u_int i = virtqueue_take_long(&vq->vq_c);
	struct vring_desc *d;
	bus_addr_t table;

	*record = VIRTQUEUE_HAS_LONG(i);
	d = virtqueue_table(&vq->vq_c.vqc_long, i, &table);
	return (vq_put_indirect(vq, pc, d, table, &vq->vq_c.vqc_long.vqt_slab,
	    head, n));
}

/*
 * A descriptor for each segment, linked by vd_next there, and by vsh_next in
 * the shadow.
 */
static __noinline uint64_t
vq_put_direct(struct vqsplit *vq, const struct pvq_chain *pc, uint32_t pos,
    int n)
{
	uint64_t wlen = 0;
	uint16_t flags, id, next;
	int i;

	id = vq->vq_ids[pos & vq->vq_mask];
	for (i = 0; i < n; i++) {
		flags = next = 0;
		if (i >= pc->pc_nread) {
			flags = VRING_DESC_F_WRITE;
			wlen += pc->pc_segs[i].ds_len;
		}
		if (i < n - 1) {
			flags |= VRING_DESC_F_NEXT;
			next = vq->vq_ids[(pos + i + 1) & vq->vq_mask];
		}
		vq_fill(vq, &vq->vq_desc[id], pc->pc_segs[i].ds_addr,
		    pc->pc_segs[i].ds_len, flags, next);
		vq->vq_shadow[id].vsh_next = next;
		id = next;
	}
	return (wlen);
}

/* A chain's head for the device, which does not see it yet. */
static inline void
vq_offer(struct vqsplit *vq, uint16_t head)
{
	vq->vq_avail->va_ring[vq->vq_avail_idx++ & vq->vq_mask] =
	    vq_16(&vq->vq_c, head);
}

/* What the get side has to know of the chain number seq. */
static inline void
vq_record(struct vq_shadow *sh, void *cookie, uint32_t wlen, uint32_t seq,
    uint16_t ndesc)
{

	KASSERT(cookie != NULL, ("%s: no cookie", __func__));
	KASSERT(sh->vsh_state == VQ_IDLE,
	    ("%s: a descriptor in use", __func__));
	sh->vsh_cookie = cookie;
	sh->vsh_wlen = wlen;
	sh->vsh_seq = seq;
	sh->vsh_ndesc = ndesc;
}

/*
 * Put a chain, which is number seq.  The release hands its shadow to the get
 * side, if the state is VQ_POSTED: it looks there whenever the device names the
 * id.  Returns how many segments it has.
 */
static int
vq_put_one(struct vqsplit *vq, const struct pvq_chain *pc, uint32_t seq,
    enum vq_state state)
{
	struct pvq *q = &vq->vq_c.vqc_pvq;
	const bus_dma_segment_t *seg = pc->pc_segs;
	const int n = pc->pc_nread + pc->pc_nwrite;
	const uint32_t pos = q->q_taken;
	const uint16_t head = vq->vq_ids[pos & vq->vq_mask];
	struct vq_shadow *sh = &vq->vq_shadow[head];
	uint64_t wlen;
	u_int record = 1;

	KASSERT(n > 0 && n <= q->q_max_segs, ("%s: %d segments", __func__, n));
	KASSERT((int)(q->q_given - pos) >= virtqueue_prepare(q, pc),
	    ("%s: no room", __func__));
	if (n == 1) {
		wlen = pc->pc_nwrite != 0 ? seg->ds_len : 0;
		vq_fill(vq, &vq->vq_desc[head], seg->ds_addr, seg->ds_len,
		    pc->pc_nwrite != 0 ? VRING_DESC_F_WRITE : 0, 0);
	} else if (n <= q->q_flat_segs) {
		wlen = vq_put_indirect(vq, pc, sh->vsh_table,
		    sh->vsh_table_paddr, &vq->vq_c.vqc_tables.vqt_slab,
		    head, n);
		vq->vq_staged_ind++;
	} else if (pvq_long_room(q)) {
		wlen = vq_put_long(vq, pc, head, n, &record);
		vq->vq_staged_ind++;
	} else {
		wlen = vq_put_direct(vq, pc, pos, n);
		record = n;
	}
	/* A length is 32 bits; a longer chain is not allowed (2.7.5.2). */
	KASSERT(wlen <= UINT32_MAX,
	    ("%s: %ju bytes", __func__, (uintmax_t)wlen));
	vq_offer(vq, head);
	vq_record(sh, pc->pc_cookie, (uint32_t)wlen, seq, record);
	q->q_taken = pos + virtqueue_slots(record);
	atomic_store_rel_32(&sh->vsh_state, state);
	return (n);
}

/*
 * The first chains, as long as each is one segment, for the device and for the
 * get side at once.  Returns how many there were.
 */
static inline u_int
vq_post_plain(struct vqsplit *vq, const struct pvq_chain *pc, u_int n)
{
	/*
	 * Copies: what is stored below might be any of these, as far as a
	 * compiler can tell.
	 */
	struct vq_shadow *const shadow = vq->vq_shadow, *sh;
	struct vring_desc *const desc = vq->vq_desc;
	uint16_t *const avail = vq->vq_avail->va_ring;
	const uint16_t *const ids = vq->vq_ids;
	struct pvq *q = &vq->vq_c.vqc_pvq;
	const uint32_t mask = vq->vq_mask, pos = q->q_taken,
	    seq = q->q_committed;
	const uint32_t idx = vq->vq_avail_idx;
	const bus_dma_segment_t *seg;
	uint32_t head, writes;
	u_int i;

	for (i = 0; i < n && pc->pc_nread + pc->pc_nwrite == 1; i++, pc++) {
		KASSERT((int)(q->q_given - pos) > (int)i,
		    ("%s: no room", __func__));
		KASSERT(pc->pc_cookie != NULL, ("%s: no cookie", __func__));
		head = ids[(pos + i) & mask];
		sh = &shadow[head];
		KASSERT(sh->vsh_state == VQ_IDLE,
		    ("%s: descriptor %u in use", __func__, head));
		seg = pc->pc_segs;
		writes = pc->pc_nwrite;
		vq_fill(vq, &desc[head], seg->ds_addr, seg->ds_len,
		    writes * VRING_DESC_F_WRITE, 0);
		sh->vsh_cookie = pc->pc_cookie;
		sh->vsh_wlen = -writes & (uint32_t)seg->ds_len;
		sh->vsh_seq = seq + i;
		sh->vsh_ndesc = 1;
		avail[(idx + i) & mask] = vq_16(&vq->vq_c, head);
		atomic_store_rel_32(&sh->vsh_state, VQ_POSTED);
	}
	q->q_taken = pos + i;
	vq->vq_avail_idx = idx + i;
	return (i);
}

static void
vqsplit_put(struct pvq *q, const struct pvq_chain *pc, int n)
{

	struct vqsplit *vq = VQ(q);

	for (; n > 0; n--, pc++, vq->vq_staged++)
		vq->vq_staged_segs += vq_put_one(vq, pc,
		    q->q_committed + vq->vq_staged, VQ_IDLE);
}

static void
vqsplit_abort(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);

	q->q_taken = vq->vq_base;
	q->q_long_taken = vq->vq_c.vqc_long_base;
	vq->vq_avail_idx -= vq->vq_staged;
	vq->vq_staged = vq->vq_staged_segs = vq->vq_staged_ind = 0;
}

/*
 * Show n chains, of so many segments, of which ind go by a table, to the
 * device; they are the get side's.  Up to `taken' descriptors are taken now.
 * Without sync the ring's memory needs none.
 */
static __always_inline void
vq_show(struct vqsplit *vq, uint32_t taken, u_int n, u_int segs, u_int ind,
    const bool sync)
{
	struct pvq *q = &vq->vq_c.vqc_pvq;

	vq->vq_base = taken;
	q->q_committed += n;
	vq->vq_unkicked += n;
	q->q_stats.qs_chains += n;
	q->q_stats.qs_segs += segs;
	q->q_stats.qs_put_own += ind;

	if (sync)
		pv_dma_sync(&vq->vq_c.vqc_ring, BUS_DMASYNC_PREWRITE);
	atomic_thread_fence_rel();
	atomic_store_16(&vq->vq_avail->va_idx,
	    vq_16(&vq->vq_c, vq->vq_avail_idx));
	if (sync)
		pv_dma_sync(&vq->vq_c.vqc_ring, BUS_DMASYNC_PREWRITE);
}

static void
vqsplit_commit(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);
	struct vq_shadow *sh;
	uint32_t pos;

	if (vq->vq_staged == 0)
		return;
	/*
	 * vsh_ndesc is read first: once it is posted, the chain may complete.
	 */
	pos = vq->vq_base;
	do {
		sh = &vq->vq_shadow[vq->vq_ids[pos & vq->vq_mask]];
		pos += virtqueue_slots(sh->vsh_ndesc);
		atomic_store_rel_32(&sh->vsh_state, VQ_POSTED);
	} while (pos != q->q_taken);
	vq_show(vq, pos, vq->vq_staged, vq->vq_staged_segs, vq->vq_staged_ind,
	    true);
	vq->vq_c.vqc_long_base = q->q_long_taken;
	vq->vq_staged = vq->vq_staged_segs = vq->vq_staged_ind = 0;
}

/* One chain of one descriptor, with a table or without. */
static __always_inline void
vq_post_one(struct vqsplit *vq, const struct pvq_chain *pc, u_int n,
    const bool sync)
{
	struct pvq *q = &vq->vq_c.vqc_pvq;
	const uint32_t pos = q->q_taken;
	const uint16_t head = vq->vq_ids[pos & vq->vq_mask];
	struct vq_shadow *sh;
	uint32_t writes, wlen;

	KASSERT((int)(q->q_given - pos) > 0, ("%s: no room", __func__));
	/* One thing after the other, so that there are registers for each. */
	vq_offer(vq, head);
	sh = &vq->vq_shadow[head];
	if (n == 1) {
		writes = pc->pc_nwrite;
		wlen = pc->pc_segs->ds_len;
		vq_fill(vq, &vq->vq_desc[head], pc->pc_segs->ds_addr, wlen,
		    writes * VRING_DESC_F_WRITE, 0);
		wlen &= -writes;
	} else
		wlen = (uint32_t)vq_put_indirect(vq, pc, sh->vsh_table,
		    sh->vsh_table_paddr, &vq->vq_c.vqc_tables.vqt_slab,
		    head, n);
	vq_record(sh, pc->pc_cookie, wlen, q->q_committed, 1);
	q->q_taken = pos + 1;
	atomic_store_rel_32(&sh->vsh_state, VQ_POSTED);
	vq_show(vq, pos + 1, 1, n, n != 1, sync);
}

static __noinline void
vq_post_any(struct vqsplit *vq, const struct pvq_chain *pc, u_int n)
{
	struct pvq *q = &vq->vq_c.vqc_pvq;
	u_int done, segs = pc->pc_nread + pc->pc_nwrite;

	if (n == 1 && segs <= q->q_flat_segs) {
		vq_post_one(vq, pc, segs, true);
		return;
	}
	segs = done = vq_post_plain(vq, pc, n);
	for (; done < n; done++)
		segs += vq_put_one(vq, &pc[done], q->q_committed + done,
		    VQ_POSTED);
	vq_show(vq, q->q_taken, n, segs, vq->vq_staged_ind, true);
	vq->vq_c.vqc_long_base = q->q_long_taken;
	vq->vq_staged_ind = 0;
}

/*
 * Without a second pass: what can't be aborted may be the get side's before it
 * is the device's.  A device that names it early has it complete early.
 */
static void
vqsplit_post(struct pvq *q, const struct pvq_chain *pc, int n)
{
	struct vqsplit *vq = VQ(q);

	KASSERT(vq->vq_staged == 0,
	    ("%s: %u chains not committed", __func__, vq->vq_staged));
	if (n == 1 && pc->pc_nread + pc->pc_nwrite == 1 && !vq_syncs(vq))
		vq_post_one(vq, pc, 1, false);
	else
		vq_post_any(vq, pc, n);
}

static __always_inline void
vq_post_table(struct vqsplit *vq, bus_addr_t table, u_int n, uint32_t wlen,
    void *cookie, const bool sync)
{
	struct pvq *q = &vq->vq_c.vqc_pvq;
	const uint32_t pos = q->q_taken;
	const uint16_t head = vq->vq_ids[pos & vq->vq_mask];
	struct vq_shadow *sh = &vq->vq_shadow[head];

	KASSERT(vq->vq_staged == 0,
	    ("%s: %u chains not committed", __func__, vq->vq_staged));
	KASSERT((int)(q->q_given - pos) > 0, ("%s: no room", __func__));
	vq_fill(vq, &vq->vq_desc[head], table, n * sizeof(struct vring_desc),
	    VRING_DESC_F_INDIRECT, 0);
	vq_offer(vq, head);
	vq_record(sh, cookie, wlen, q->q_committed, 1);
	q->q_taken = pos + 1;
	atomic_store_rel_32(&sh->vsh_state, VQ_POSTED);
	vq_show(vq, pos + 1, 1, n, 1, sync);
}

static __noinline void
vq_post_table_synced(struct vqsplit *vq, bus_addr_t table, u_int n,
    uint32_t wlen, void *cookie)
{
	vq_post_table(vq, table, n, wlen, cookie, true);
}

/* As vqsplit_post(), of one chain in a table of its own. */
static void
vqsplit_post_table(struct pvq *q, bus_addr_t table, u_int n, uint32_t wlen,
    void *cookie)
{
	struct vqsplit *vq = VQ(q);

	if (vq_syncs(vq))
		vq_post_table_synced(vq, table, n, wlen, cookie);
	else
		vq_post_table(vq, table, n, wlen, cookie, false);
}

/*
 * Does the device request a notification of the chains since the last kick
 * (2.7.10, 2.7.13.4)?
 */
static bool
vq_device_asks(struct vqsplit *vq)
{
	uint16_t event, flags;

	if (!vq->vq_c.vqc_event) {
		flags = vq_16(&vq->vq_c,
		    atomic_load_16(&vq->vq_used->vu_flags));
		return ((flags & VRING_USED_F_NO_NOTIFY) == 0);
	}
	/* A turn or more without a kick: the index alone is ambiguous. */
	if (vq->vq_unkicked > UINT16_MAX)
		return (true);
	event = vq_16(&vq->vq_c, atomic_load_16(vq->vq_avail_event));
	return (vring_passed(event,
	    vq->vq_avail_idx - (uint16_t)vq->vq_unkicked, vq->vq_avail_idx));
}

static __always_inline bool
vq_kick(struct vqsplit *vq)
{
	struct pvq *q = &vq->vq_c.vqc_pvq;
	bool asks;

	asks = vq_device_asks(vq);
	vq->vq_unkicked = 0;
	if (!asks) {
		q->q_stats.qs_nokicks++;
		return (false);
	}
	q->q_stats.qs_kicks++;
	vq->vq_c.vqc_notify(vq->vq_c.vqc_notify_arg, vq->vq_c.vqc_index,
	    vq->vq_avail_idx);
	return (true);
}

static __noinline bool
vq_kick_synced(struct vqsplit *vq)
{
	pv_dma_sync(&vq->vq_c.vqc_ring, BUS_DMASYNC_POSTREAD);
	return (vq_kick(vq));
}

static bool
vqsplit_kick(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);

	KASSERT(vq->vq_staged == 0,
	    ("%s: %u chains not committed", __func__, vq->vq_staged));
	if (vq->vq_unkicked == 0 || pvq_broken(q))
		return (false);
	atomic_thread_fence_seq_cst();
	return (vq_syncs(vq) ? vq_kick_synced(vq) : vq_kick(vq));
}

/* Give a chain's descriptors back.  The caller publishes q_given. */
static uint32_t
vq_release(struct vqsplit *vq, uint16_t head, uint32_t given)
{
	struct vq_shadow *sh = &vq->vq_shadow[head];
	uint16_t id = head;
	u_int n = virtqueue_slots(sh->vsh_ndesc);

	virtqueue_give_long(&vq->vq_c, sh->vsh_ndesc);
	sh->vsh_state = VQ_IDLE;
	for (; n > 0; n--) {
		vq->vq_ids[given++ & vq->vq_mask] = id;
		id = vq->vq_shadow[id].vsh_next;
	}
	return (given);
}

/*
 * Check one used element.  Returns false, and the queue is broken, if it is
 * invalid.
 *
 * Not only legacy devices report lengths that mean nothing (2.7.8.1): Cloud
 * Hypervisor did until 2026, for control commands and for transmitted packets.
 * So a length is cut to what fits, unless the driver depends on it, which it
 * never does for a chain that the device can't write to.
 */
static bool
vq_check(struct vqsplit *vq, uint32_t id, uint32_t *len)
{
	struct vq_shadow *sh;

	if (id >= vq->vq_c.vqc_pvq.q_size) {
		pvq_break(&vq->vq_c.vqc_pvq, PVQ_FAULT_ID, id);
		return (false);
	}
	sh = &vq->vq_shadow[id];
	if (atomic_load_acq_32(&sh->vsh_state) != VQ_POSTED) {
		pvq_break(&vq->vq_c.vqc_pvq, PVQ_FAULT_ID, id);
		return (false);
	}
	if (*len > sh->vsh_wlen) {
		if (vq->vq_c.vqc_strict && sh->vsh_wlen > 0) {
			pvq_break(&vq->vq_c.vqc_pvq, VIRTQUEUE_FAULT_LEN, *len);
			return (false);
		}
		vq->vq_c.vqc_pvq.q_stats.qs_get_own++;
		*len = sh->vsh_wlen;
	}
	return (true);
}

/*
 * The next chain that was used, and how many bytes the device wrote to it.
 * Returns false, and the queue is broken, if the element is invalid.
 *
 * With IN_ORDER an element stands for all chains from the oldest in flight to
 * the one that it names.  Those before that one were used completely, and their
 * elements are skipped; the index has counted them.
 *
 * n      chains taken since q_completed was counted, whose elements are those
 *        from vq_used_idx on
 * ready  chains that are there by the index, these included
 */
static inline bool
vq_next_used(struct vqsplit *vq, int n, uint16_t ready, uint32_t given,
    uint32_t *id, uint32_t *len)
{
	const struct vring_used_elem *ve;

	if (__predict_true(vq->vq_batch == 0)) {
		ve = &vq->vq_used->vu_ring[(uint16_t)(vq->vq_used_idx + n) &
		    vq->vq_mask];
		*id = vq_32(&vq->vq_c, atomic_load_32(&ve->ve_id));
		*len = vq_32(&vq->vq_c, atomic_load_32(&ve->ve_len));
		if (!vq_check(vq, *id, len))
			return (false);
		if (!vq->vq_c.vqc_in_order)
			return (true);
		vq->vq_batch = vq->vq_shadow[*id].vsh_seq -
		    (vq->vq_c.vqc_pvq.q_completed + n) + 1;
		if (vq->vq_batch > (uint32_t)(ready - n)) {
			pvq_break(&vq->vq_c.vqc_pvq, VIRTQUEUE_FAULT_ORDER,
			    *id);
			return (false);
		}
		vq->vq_batch_len = *len;
	}
	/*
	 * The oldest in flight was taken q_size before the next place to give
	 * to.
	 */
	*id = vq->vq_ids[given & vq->vq_mask];
	*len = --vq->vq_batch == 0 ? vq->vq_batch_len :
	    vq->vq_shadow[*id].vsh_wlen;
	return (true);
}

/*
 * The first completions, as long as they are what most are: each with an
 * element of its own, a chain of one descriptor, and a length that fits.  Their
 * numbers are given back from q_given on.  Returns how many there were, up to
 * max, which is not 0; the next one is for vq_next_used() to check.
 */
static __always_inline u_int
vq_get_plain(struct vqsplit *vq, struct pvq_done *done, u_int max)
{
	/*
	 * Copies: what is stored below might be any of these, as far as a
	 * compiler can tell.
	 */
	const struct vring_used_elem *ring = vq->vq_used->vu_ring, *ve;
	struct vq_shadow *const shadow = vq->vq_shadow, *sh;
	const uint32_t mask = vq->vq_mask;
	uint16_t *const ids = vq->vq_ids;
	uint32_t at = vq->vq_used_idx, given = vq->vq_c.vqc_pvq.q_given, id,
	    len;
	u_int n = 0;

	do {
		ve = &ring[(at + n) & mask];
		id = vq_32(&vq->vq_c, atomic_load_32(&ve->ve_id));
		len = vq_32(&vq->vq_c, atomic_load_32(&ve->ve_len));
		if (__predict_false(id > mask))
			break;
		sh = &shadow[id];
		if (__predict_false(atomic_load_acq_32(&sh->vsh_state) !=
		    VQ_POSTED || len > sh->vsh_wlen || sh->vsh_ndesc != 1))
			break;
		sh->vsh_state = VQ_IDLE;
		done[n].pd_cookie = sh->vsh_cookie;
		done[n].pd_result = len;
		ids[(given + n) & mask] = id;
	} while (++n < max);
	return (n);
}

/* The same of one that is alone: false if it is for vq_next_used() to check. */
static __always_inline bool
vq_get_alone(struct vqsplit *vq, struct pvq_done *done)
{
	const uint32_t mask = vq->vq_mask;
	const struct vring_used_elem *ve =
	    &vq->vq_used->vu_ring[vq->vq_used_idx & mask];
	const uint32_t id = vq_32(&vq->vq_c, atomic_load_32(&ve->ve_id));
	const uint32_t len = vq_32(&vq->vq_c, atomic_load_32(&ve->ve_len));
	struct vq_shadow *sh;

	if (__predict_false(id > mask))
		return (false);
	sh = &vq->vq_shadow[id];
	if (__predict_false(atomic_load_acq_32(&sh->vsh_state) != VQ_POSTED ||
	    len > sh->vsh_wlen || sh->vsh_ndesc != 1))
		return (false);
	vq->vq_ids[vq->vq_c.vqc_pvq.q_given & mask] = id;
	done->pd_cookie = sh->vsh_cookie;
	done->pd_result = len;
	sh->vsh_state = VQ_IDLE;
	return (true);
}

/*
 * So many chains were taken from the used ring, whose numbers were given back
 * before `given`.
 */
static inline int
vq_got(struct vqsplit *vq, u_int n, uint32_t given)
{
	struct pvq *q = &vq->vq_c.vqc_pvq;

	vq->vq_used_idx += n;
	q->q_completed += n;
	q->q_stats.qs_done += n;
	/*
	 * Pairs with the acquire in pvq_room(): the numbers are in vq_ids
	 * before they count.
	 */
	atomic_store_rel_32(&q->q_given, given);
	return (n);
}

/*
 * Completions, whatever they are: after plain ones those of a batch, of chains
 * of several descriptors, and invalid ones, at which the queue breaks.  Other
 * arguments as in vq_next_used().
 */
static __noinline int
vq_get_any(struct vqsplit *vq, struct pvq_done *done, u_int max, uint16_t ready)
{
	uint32_t given, id, len;
	u_int n = 0;

	if (__predict_true(!vq->vq_c.vqc_in_order))
		n = vq_get_plain(vq, done, max);
	given = vq->vq_c.vqc_pvq.q_given + n;
	for (; n < max; n++) {
		if (!vq_next_used(vq, n, ready, given, &id, &len))
			break;
		done[n].pd_cookie = vq->vq_shadow[id].vsh_cookie;
		done[n].pd_result = len;
		given = vq_release(vq, id, given);
	}
	return (vq_got(vq, n, given));
}

/* More have completed than there are. */
static __noinline int
vq_get_invalid(struct vqsplit *vq, uint16_t idx)
{
	pvq_break(&vq->vq_c.vqc_pvq, PVQ_FAULT_INDEX, idx);
	return (0);
}

static __always_inline int
vq_get(struct vqsplit *vq, struct pvq_done *done, int max)
{
	struct pvq *q = &vq->vq_c.vqc_pvq;
	uint16_t idx, ready;

	idx = vq_synced_used_idx(vq);
	ready = idx - vq->vq_used_idx;
	if (ready == 0)
		return (0);
	if (__predict_false(ready > q->q_committed - q->q_completed))
		return (vq_get_invalid(vq, idx));
	/* One that comes alone is worth a way without a loop. */
	if (ready == 1 && !vq->vq_c.vqc_in_order && vq_get_alone(vq, done))
		return (vq_got(vq, 1, q->q_given + 1));
	return (vq_get_any(vq, done, MIN((u_int)max, ready), ready));
}

static __noinline int
vq_get_synced(struct vqsplit *vq, struct pvq_done *done, int max)
{
	pv_dma_sync(&vq->vq_c.vqc_ring,
	    BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
	return (vq_get(vq, done, max));
}

static int
vqsplit_get(struct pvq *q, struct pvq_done *done, int max)
{
	struct vqsplit *vq = VQ(q);

	if (pvq_broken(q))
		return (0);
	return (vq_syncs(vq) ? vq_get_synced(vq, done, max) :
	    vq_get(vq, done, max));
}

/* Have so many completed since the interrupt was requested? */
static __always_inline bool
vq_intr_enabled(struct vqsplit *vq, unsigned int after, const bool sync)
{
	if (sync)
		pv_dma_sync(&vq->vq_c.vqc_ring, BUS_DMASYNC_PREWRITE);
	atomic_thread_fence_seq_cst();
	return ((uint16_t)((sync ? vq_read_used_idx(vq) :
	    vq_synced_used_idx(vq)) - vq->vq_used_idx) >= after);
}

static __noinline bool
vq_intr_enabled_synced(struct vqsplit *vq, unsigned int after)
{
	return (vq_intr_enabled(vq, after, true));
}

static bool
vqsplit_intr_enable(struct pvq *q, unsigned int after)
{
	struct vqsplit *vq = VQ(q);
	unsigned int inflight;

	if (pvq_broken(q))
		return (false);
	if (vq->vq_c.vqc_event) {
		if (__predict_false(after != 1)) {
			inflight = q->q_committed - q->q_completed;
			after = MAX(1, MIN(after, inflight));
		}
		atomic_store_16(vq->vq_used_event,
		    vq_16(&vq->vq_c, vq->vq_used_idx + after - 1));
	} else {
		after = 1;
		atomic_store_16(&vq->vq_avail->va_flags, 0);
	}
	return (vq_syncs(vq) ? vq_intr_enabled_synced(vq, after) :
	    vq_intr_enabled(vq, after, false));
}

static void
vqsplit_intr_disable(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);

	/*
	 * With event indices there is no "off", only an index as far away as
	 * can be: half a turn ahead.  One just behind would be wrong: a device
	 * that published an element and has not yet looked at the event counts
	 * that index as passed.
	 */
	if (vq->vq_c.vqc_event)
		atomic_store_16(vq->vq_used_event,
		    vq_16(&vq->vq_c, vq->vq_used_idx + 0x8000));
	else
		atomic_store_16(&vq->vq_avail->va_flags,
		    vq_16(&vq->vq_c, VRING_AVAIL_F_NO_INTERRUPT));
	pv_dma_sync(&vq->vq_c.vqc_ring, BUS_DMASYNC_PREWRITE);
}

/*
 * What the device writes beyond its index means nothing yet, so that no place
 * can be seen to be skipped.
 */
static enum pvq_peek
vqsplit_peek(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);

	return (vq_read_used_idx(vq) != vq->vq_used_idx ? PVQ_WAITS :
	    PVQ_QUIET);
}

/*
 * The oldest chain in flight.  The search makes draining a ring quadratic,
 * which is a millisecond for 1,024 descriptors after a reset, and saves the
 * data path a list.
 */
static void *
vqsplit_drain(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);
	struct vq_shadow *sh;
	uint32_t age, oldest;
	int head, i;

	vqsplit_abort(q);
	head = -1;
	oldest = 0;
	for (i = 0; i < q->q_size; i++) {
		sh = &vq->vq_shadow[i];
		if (sh->vsh_state != VQ_POSTED)
			continue;
		age = q->q_committed - sh->vsh_seq;
		if (head < 0 || age > oldest) {
			head = i;
			oldest = age;
		}
	}
	if (head < 0)
		return (NULL);
	q->q_given = vq_release(vq, head, q->q_given);
	q->q_completed++;
	return (vq->vq_shadow[head].vsh_cookie);
}

/* Everything as it was when the queue was created, but for the statistics. */
static int
vqsplit_forget(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);
	int i;

	for (i = 0; i < q->q_size; i++) {
		vq->vq_ids[i] = i;
		vq->vq_shadow[i].vsh_state = VQ_IDLE;
	}
	q->q_taken = q->q_committed = q->q_completed = 0;
	q->q_given = q->q_size;
	vq->vq_base = 0;
	virtqueue_forget_long(&vq->vq_c);
	vq->vq_staged = vq->vq_staged_segs = vq->vq_staged_ind = 0;
	vq->vq_avail_idx = vq->vq_used_idx = 0;
	vq->vq_batch = 0;
	vq->vq_unkicked = 0;
	memset(vq->vq_desc, 0, vq->vq_c.vqc_ring_size);
	pv_dma_sync(&vq->vq_c.vqc_ring,
	    BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	q->q_fault = PVQ_OK;
	return (0);
}

static int
vqsplit_reinit(struct pvq *q)
{

	vqsplit_abort(q);
	return (q->q_committed != q->q_completed ? EBUSY : vqsplit_forget(q));
}

static void
vqsplit_free(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);

	KASSERT(q->q_committed == q->q_completed, ("%s: %u chains in flight",
	    q->q_name, q->q_committed - q->q_completed));
	virtqueue_fini(&vq->vq_c);
	free(vq->vq_shadow, M_VIRTQUEUE);
	free(vq->vq_ids, M_VIRTQUEUE);
	free(vq, M_VIRTQUEUE);
}

/* Where the next chain's head goes in the available ring (2.9). */
static uint16_t
vqsplit_next(const struct virtqueue *vqc)
{

	return (__containerof(vqc, const struct vqsplit, vq_c)->vq_avail_idx);
}

static const struct pvq_ops vqsplit_ops = {
	.qo_name = "split",
	.qo_faults = virtqueue_faults,
	.qo_counters = virtqueue_counters,
	.qo_prepare = virtqueue_prepare,
	.qo_put = vqsplit_put,
	.qo_abort = vqsplit_abort,
	.qo_commit = vqsplit_commit,
	.qo_post = vqsplit_post,
	.qo_kick = vqsplit_kick,
	.qo_get = vqsplit_get,
	.qo_intr_enable = vqsplit_intr_enable,
	.qo_intr_disable = vqsplit_intr_disable,
	.qo_peek = vqsplit_peek,
	.qo_drain = vqsplit_drain,
	.qo_forget = vqsplit_forget,
	.qo_reinit = vqsplit_reinit,
	.qo_free = vqsplit_free,
};

/* Where the three parts are, for us and for the device. */
static void
vqsplit_place(struct virtqueue *vqc)
{
	struct vqsplit *vq = __containerof(vqc, struct vqsplit, vq_c);
	struct virtqueue_addrs *addrs = &vq->vq_c.vqc_addrs;
	size_t num = vq->vq_c.vqc_pvq.q_size;
	char *mem = vq->vq_c.vqc_ring.pdm_mem;

	vq->vq_mask = num - 1;
	vq->vq_desc = (struct vring_desc *)mem;
	vq->vq_avail = (struct vring_avail *)(vq->vq_desc + num);
	vq->vq_used_event = &vq->vq_avail->va_ring[num];
	vq->vq_used = (struct vring_used *)(mem + vring_used_offset(num,
	    vqc->vqc_align));
	vq->vq_avail_event = (uint16_t *)&vq->vq_used->vu_ring[num];
	addrs->vqa_desc = vq->vq_c.vqc_ring.pdm_addr;
	addrs->vqa_driver = addrs->vqa_desc + ((char *)vq->vq_avail - mem);
	addrs->vqa_device = addrs->vqa_desc + ((char *)vq->vq_used - mem);
}

int
virtqueue_split_create(const struct virtqueue_params *params, struct pvq **qp)
{
	struct vqsplit *vq;
	int error, i;

	if (params->vqp_size == 0 || params->vqp_size > VRING_MAX_SIZE ||
	    !powerof2(params->vqp_size) || params->vqp_max_segs == 0)
		return (EINVAL);
	vq = malloc_aligned(sizeof(*vq), CACHE_LINE_SIZE, M_VIRTQUEUE,
	    M_WAITOK | M_ZERO);
	vq->vq_ids = malloc(params->vqp_size * sizeof(*vq->vq_ids), M_VIRTQUEUE,
	    M_WAITOK | M_ZERO);
	vq->vq_shadow = malloc(params->vqp_size * sizeof(*vq->vq_shadow),
	    M_VIRTQUEUE, M_WAITOK | M_ZERO);
	vq->vq_c.vqc_next = vqsplit_next;
	vq->vq_c.vqc_place = vqsplit_place;
	vq->vq_c.vqc_post_table = vqsplit_post_table;
	error = virtqueue_init(&vq->vq_c, params, &vqsplit_ops,
	    vring_size(params->vqp_size, params->vqp_align),
	    MAX(params->vqp_align, VRING_DESC_ALIGN));
	if (error != 0) {
		vqsplit_free(&vq->vq_c.vqc_pvq);
		return (error);
	}
	vqsplit_place(&vq->vq_c);
	for (i = 0; vq->vq_c.vqc_tables.vqt_pieces != NULL &&
	    i < params->vqp_size; i++)
		vq->vq_shadow[i].vsh_table =
		    virtqueue_table(&vq->vq_c.vqc_tables, i,
		    &vq->vq_shadow[i].vsh_table_paddr);
	(void)vqsplit_forget(&vq->vq_c.vqc_pvq);
	*qp = &vq->vq_c.vqc_pvq;
	return (0);
}
