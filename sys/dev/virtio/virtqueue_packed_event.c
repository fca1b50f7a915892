/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Events of packed virtqueues (VirtIO 1.3, 2.8.10, 2.8.14): when we notify the
 * device, and when it is to interrupt.  Each side names a place of the ring,
 * with a wrap counter, that the other one is to have passed.  The ring itself,
 * and its barriers, are in virtqueue_packed.c.
 */

#include <dev/virtio/virtqueue_packed_var.h>

/*
 * Does the device request a notification of the places committed since the last
 * kick (2.8.14)?  They are those just behind vp_next; how far back is the one
 * that the device named?
 *
 * A place that was passed earlier is answered too, once.  QEMU's network card
 * (7.2) names a place, goes on taking descriptors from there, and stops where
 * there are no more without naming another.  That is harmless in a split ring,
 * where it names one with each descriptor that it takes.
 *
 * The wrap counter tells two turns apart, so that a place that was passed more
 * than a turn ago looks like one that is still to come.  One that is too far
 * ahead for the room that is left can't be: what is queued until then would
 * wait for the device, and the device for a notification.
 *
 * word  the device's event suppression
 */
static bool
vp_device_asks(struct vqpacked *vp, uint32_t word)
{
	uint32_t back, off, turns = 2 * vp->vp_size;
	uint16_t flags;

	flags = word >> 16 & VRING_PACKED_EVENT_MASK;
	if (flags == VRING_PACKED_EVENT_DISABLE)
		return (false);
	/*
	 * A turn or more without a notification: the place alone is ambiguous.
	 */
	if (flags != VRING_PACKED_EVENT_DESC ||
	    vp->vp_base - vp->vp_notified >= vp->vp_size)
		return (true);
	off = word & ((1 << VRING_PACKED_WRAP_SHIFT) - 1);
	back = vp_number(vp, &vp->vp_next) - 1 - off;
	/* The wrap counter is 1 in turns in which AVAIL is set. */
	if ((word >> VRING_PACKED_WRAP_SHIFT &
	    1) != (vp->vp_next.vpp_avail == VRING_PACKED_F_AVAIL))
		back += vp->vp_size;
	if ((int32_t)back < 0)
		back += turns;
	if (back >= vp->vp_size) {
		if (turns - back <= (uint32_t)pvq_room(&vp->vp_c.vqc_pvq))
			return (false);
	} else if (back >= vp->vp_base - vp->vp_kicked &&
	    word == vp->vp_answered)
		return (false);
	return (true);
}

uint16_t
vqpacked_next(const struct virtqueue *vqc)
{
	const struct vqpacked *vp = __containerof(vqc, const struct vqpacked,
	    vp_c);

	/*
	 * The wrap counter is 1 in turns in which AVAIL is set, and USED is
	 * not.
	 */
	return (vp_number(vp, &vp->vp_next) |
	    (~vp->vp_next.vpp_avail & VP_WRAP));
}

/*
 * All that is committed has been considered: so much is what a device that has
 * taken it asks for.
 */
static inline void
vp_note_kick(struct vqpacked *vp)
{

	vp->vp_kicked = vp->vp_base;
	vp->vp_expected = vqpacked_next(&vp->vp_c) |
	    VRING_PACKED_EVENT_DESC << 16;
}

/* Notify the device, which has this event suppression. */
static inline void
vp_notify(struct vqpacked *vp, uint32_t word)
{
	struct virtqueue *vqc = &vp->vp_c;

	vp_note_kick(vp);
	vp->vp_notified = vp->vp_base;
	vp->vp_answered = word;
	vqc->vqc_pvq.q_stats.qs_kicks++;
	vqc->vqc_notify(vqc->vqc_notify_arg, vqc->vqc_index,
	    (uint16_t)vp->vp_expected);
}

/* Kick a device that has an event suppression which was not expected. */
static __noinline bool
vp_kick_if_asked(struct vqpacked *vp, uint32_t word)
{

	if (!vp_device_asks(vp, word)) {
		vp_note_kick(vp);
		vp->vp_c.vqc_pvq.q_stats.qs_nokicks++;
		return (false);
	}
	vp_notify(vp, word);
	return (true);
}

bool
vqpacked_kick(struct pvq *q)
{
	struct vqpacked *vp = VP(q);
	uint32_t word;

	KASSERT(vp->vp_staged == 0,
	    ("%s: %u chains not committed", __func__, vp->vp_staged));
	if (vp->vp_base == vp->vp_kicked || pvq_broken(q))
		return (false);
	atomic_thread_fence_seq_cst();
	pv_dma_sync(&vp->vp_c.vqc_ring, BUS_DMASYNC_POSTREAD);
	word = le32toh(atomic_load_32(&vp->vp_device_event->vpe_word));
	/* Most ask for the first descriptor behind those of the last kick. */
	if (__predict_false(word != vp->vp_expected))
		return (vp_kick_if_asked(vp, word));
	vp_notify(vp, word);
	return (true);
}

/*
 * How many places does a used descriptor with this id stand for, if *seq chains
 * have completed before? 0: the id is invalid, as pvq_get() will find.
 */
static uint32_t
vp_used_places(const struct vqpacked *vp, uint16_t id, uint32_t *seq)
{
	uint32_t batch, places = 0;

	if (id >= vp->vp_size || vp->vp_shadow[id].vps_slots == 0)
		return (0);
	if (!vp->vp_c.vqc_in_order)
		return (virtqueue_slots(vp->vp_shadow[id].vps_slots));
	batch = vp->vp_shadow[id].vps_seq - *seq + 1;
	if (batch > vp->vp_size)
		return (0);
	for (; batch > 0; batch--)
		places += virtqueue_slots(
		    vp->vp_free[(*seq)++ & vp->vp_mask]->vps_slots);
	return (places);
}

/* Has the device used more than so many places from vp_used on? */
static __noinline bool
vp_waiting(const struct vqpacked *vp, uint32_t ahead)
{
	uint32_t at = vp->vp_used, seq = vp->vp_c.vqc_pvq.q_completed, slots,
	    used;
	uint64_t word;
	uint16_t turn = vp->vp_turn;

	/* In the middle of a batch nothing more is written. */
	if (vp->vp_batch != 0)
		return (true);
	for (used = 0; used <= ahead; used += slots) {
		word = vp_read(vp, at);
		if (!vp_is_used(word, turn))
			return (false);
		slots = vp_used_places(vp, word >> VRING_PACKED_ID_SHIFT, &seq);
		if (slots == 0)
			return (true);
		vp_step(vp, &at, &turn, slots);
	}
	return (true);
}

/*
 * An event is at a place, and not at a number of chains.  The next completion
 * and the last one are known; in between, chains that take several places make
 * it a guess.
 *
 * Where several batches fit into the ring, none goes round its end.  QEMU (7.2)
 * forgets there which event it has signalled and interrupts in any case, in the
 * middle of the batch.
 */
static inline uint32_t
vp_event_ahead(struct vqpacked *vp, unsigned int after)
{
	struct pvq *q = &vp->vp_c.vqc_pvq;
	uint32_t ahead, inflight, left = vp->vp_size - vp->vp_used, places;

	/* In this order, for it is the order in which commit writes them. */
	places = atomic_load_acq_32(&vp->vp_base) - (q->q_given - vp->vp_size);
	inflight = q->q_committed - q->q_completed;
	if (after > inflight)
		after = inflight;
	if (after <= 1)
		return (0);
	ahead = MAX((uint64_t)after * places / inflight, 1) - 1;
	return (ahead >= left && ahead < vp->vp_size / 4 ? left - 1 : ahead);
}

/* An interrupt when more than one chain has completed. */
static __noinline bool
vp_intr_enable_after(struct vqpacked *vp, unsigned int after)
{
	uint32_t ahead = vp_event_ahead(vp, after), at = vp->vp_used;
	uint16_t turn = vp->vp_turn;

	vp_step(vp, &at, &turn, ahead);
	vp_set_event(vp, vp_event_at(at, turn));
	atomic_thread_fence_seq_cst();
	return (vp_any_waiting(vp) && vp_waiting(vp, ahead));
}

bool
vqpacked_intr_enable(struct pvq *q, unsigned int after)
{
	struct vqpacked *vp = VP(q);

	if (pvq_broken(q))
		return (false);
	if (!vp->vp_c.vqc_event)
		vp_set_event(vp, VRING_PACKED_EVENT_ENABLE << 16);
	else if (after > 1)
		return (vp_intr_enable_after(vp, after));
	else
		vp_set_event(vp, vp_event_at(vp->vp_used, vp->vp_turn));
	atomic_thread_fence_seq_cst();
	return (vp_any_waiting(vp));
}

void
vqpacked_intr_disable(struct pvq *q)
{

	vp_set_event(VP(q), VRING_PACKED_EVENT_DISABLE << 16);
}

/*
 * If the descriptor at vp_used is of a chain in flight, then AVAIL is as we set
 * it, and stays so when the device uses it; anything else is a device with a
 * wrong wrap counter, whose later completions would not be seen.
 */
void
vp_check_turn(struct vqpacked *vp, uint32_t completed)
{
	uint16_t flags;

	if ((int32_t)(atomic_load_acq_32(&vp->vp_shown) - completed) <= 0)
		return;
	flags = vp_read(vp, vp->vp_used) >> VRING_PACKED_FLAGS_SHIFT;
	if (((flags ^ vp->vp_turn) & VRING_PACKED_F_AVAIL) != 0)
		pvq_break(&vp->vp_c.vqc_pvq, VIRTQUEUE_FAULT_FLAGS, flags);
}

/*
 * A used descriptor beyond the next place means that this one was skipped: a
 * device writes used descriptors one behind the other (2.8.12).  It may do so
 * in any order for a moment, so that this is to be found twice.  All places
 * that are looked at have chains of ours, which are not used.
 */
enum pvq_peek
vqpacked_peek(struct pvq *q)
{
	struct vqpacked *vp = VP(q);
	uint32_t at = vp->vp_used, i,
	    places = vp->vp_base - (q->q_given - vp->vp_size);
	uint16_t turn = vp->vp_turn;

	if (vp->vp_batch != 0)
		return (PVQ_WAITS);
	for (i = 0; i < places; i++) {
		if (vp_is_used(vp_read(vp, at), turn))
			return (i == 0 ? PVQ_WAITS : PVQ_SKIPPED);
		vp_step(vp, &at, &turn, 1);
	}
	/*
	 * Its interrupts may be as wrong as its wrap counter: get did not look
	 * since.
	 */
	vp_check_turn(vp, q->q_completed);
	return (PVQ_QUIET);
}
