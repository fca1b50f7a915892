/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A packed virtqueue, as virtqueue_packed.c and virtqueue_packed_event.c have
 * it; see there.
 */

#ifndef _DEV_VIRTIO_VIRTQUEUE_PACKED_VAR_H_
#define	_DEV_VIRTIO_VIRTQUEUE_PACKED_VAR_H_

#include <machine/atomic.h>

#include <dev/virtio/virtqueue_var.h>

#define	VP_TURN		(VRING_PACKED_F_AVAIL | VRING_PACKED_F_USED)

/*
 * The wrap counter of an event or a notification is where USED is in a
 * descriptor's flags.
 */
#define	VP_WRAP		VRING_PACKED_F_USED
CTASSERT(VP_WRAP == 1 << VRING_PACKED_WRAP_SHIFT);

/* The id of a used descriptor, and these flags, in its second half. */
#define	VP_ID_AND_TURN	vring_packed_word(0, UINT16_MAX, VP_TURN)

/* What we know of a chain, by its id. */
struct vp_shadow {
	void		*vps_cookie;
	struct vring_packed_desc *vps_table;	/* its indirect table,
						 * constant */
	bus_addr_t	 vps_table_paddr;
	uint32_t	 vps_wlen;	/* bytes that the device may write */
	uint32_t	 vps_seq;	/* q_committed at the time of the put */
	volatile uint32_t vps_slots;	/* places that it takes,
					 * or VIRTQUEUE_HAS_LONG();
					 * 0: not in use */
	uint16_t	 vps_id;		/* constant */
};

/* A place of the ring. */
struct vp_place {
	struct vring_packed_desc *vpp_desc;
	uint16_t	 vpp_avail;	/* AVAIL and USED of an available
					 * descriptor there */
};

struct vqpacked {
	struct virtqueue vp_c;		/* first */
	/* Constant. */
	struct vring_packed_desc *vp_desc;
	struct vring_packed_desc *vp_end; /* behind the last one */
	struct vring_packed_event *vp_driver_event;	/* we write */
	struct vring_packed_event *vp_device_event;	/* the device writes */
	struct vp_shadow **vp_free;	/* circular array of free ids */
	struct vp_shadow *vp_shadow;
	uint32_t	 vp_mask;	/* of vp_free,
					 * whose size is a power of two */
	uint32_t	 vp_size;	/* places in the ring: any number */
	/* Put side. */
	struct vp_place	 vp_next	/* of the next descriptor */
	    __aligned(CACHE_LINE_SIZE);
	struct vp_place	 vp_base_next;	/* as of the last commit */
	volatile uint32_t vp_base;	/* q_taken then */
	uint32_t	 vp_staged;	/* chains staged */
	uint32_t	 vp_staged_segs;
	uint32_t	 vp_staged_ind;
	uint64_t	 vp_first;	/* second half of the first
					 * descriptor staged */
	uint32_t	 vp_kicked;	/* q_taken at the last kick */
	uint32_t	 vp_expected;	/* what a device that has taken all of
					 * that asks for */
	uint32_t	 vp_notified;	/* and at the last notification */
	uint32_t	 vp_answered;	/* event suppression that we
					 * last notified for */
	volatile uint32_t vp_shown;	/* q_committed, once
					 * the flags are stored */
	/* Get side. */
	uint32_t	 vp_used	/* next place to look at */
	    __aligned(CACHE_LINE_SIZE);
	uint16_t	 vp_turn;	/* AVAIL and USED of a used one there */
	uint32_t	 vp_batch;	/* IN_ORDER: chains of a batch still to
					 * be handed out */
	uint32_t	 vp_batch_len;	/* used length of its last one */
};

#define	VP(q)	__containerof((q), struct vqpacked, vp_c.vqc_pvq)

/*
 * The second half of a descriptor, read once; its buffers may be read
 * afterwards.  As of the caller's pv_dma_sync(), or a later moment.
 */
static inline uint64_t
vp_read_synced(const struct vring_packed_desc *d)
{
	uint64_t word;

	word = le64toh(atomic_load_64(&d->vpd_word));
	atomic_thread_fence_acq();
	return (word);
}

/* The same of the one at a place, as of now. */
static inline uint64_t
vp_read(const struct vqpacked *vp, uint32_t at)
{

	pv_dma_sync(&vp->vp_c.vqc_ring,
	    BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
	return (vp_read_synced(&vp->vp_desc[at]));
}

static inline bool
vp_is_used(uint64_t word, uint16_t turn)
{

	return (((word >> VRING_PACKED_FLAGS_SHIFT ^ turn) & VP_TURN) == 0);
}

/*
 * Has the device used anything from vp_used on, or is this the middle of a
 * batch?
 */
static inline bool
vp_any_waiting(const struct vqpacked *vp)
{

	return (vp->vp_batch != 0 ||
	    vp_is_used(vp_read(vp, vp->vp_used), vp->vp_turn));
}

/* Go to the next place. */
static inline void
vp_advance(const struct vqpacked *vp, struct vp_place *place)
{
	struct vring_packed_desc *d = place->vpp_desc + 1;

	if (__predict_false(d == vp->vp_end)) {
		d = vp->vp_desc;
		place->vpp_avail ^= VP_TURN;
	}
	place->vpp_desc = d;
}

/* The number of a place. */
static inline uint32_t
vp_number(const struct vqpacked *vp, const struct vp_place *place)
{

	return (place->vpp_desc - vp->vp_desc);
}

/* Step over so many places. */
static inline void
vp_step(const struct vqpacked *vp, uint32_t *at, uint16_t *turn, uint32_t slots)
{

	*at += slots;
	if (*at >= vp->vp_size) {
		*at -= vp->vp_size;
		*turn ^= VP_TURN;
	}
}

/*
 * Event suppression that asks for the event of a place, where a used descriptor
 * has turn.
 */
static inline uint32_t
vp_event_at(uint32_t at, uint16_t turn)
{

	return (at | (turn & VP_WRAP) | VRING_PACKED_EVENT_DESC << 16);
}

/*
 * Which events we request of the device: vp_event_at(), or flags for all or
 * none.
 */
static inline void
vp_set_event(struct vqpacked *vp, uint32_t event)
{

	atomic_store_32(&vp->vp_driver_event->vpe_word, htole32(event));
	pv_dma_sync(&vp->vp_c.vqc_ring, BUS_DMASYNC_PREWRITE);
}

/*
 * The descriptor at vp_used is not used: the queue breaks if the device has
 * another turn than we.
 *
 * completed  as q_completed, but up to date
 */
void	vp_check_turn(struct vqpacked *vp, uint32_t completed);

/* Of struct pvq_ops: events, in both directions. */
bool	vqpacked_kick(struct pvq *q);
bool	vqpacked_intr_enable(struct pvq *q, unsigned int after);
void	vqpacked_intr_disable(struct pvq *q);
enum pvq_peek vqpacked_peek(struct pvq *q);

/* The offset of the next descriptor and the wrap counter (2.9). */
uint16_t vqpacked_next(const struct virtqueue *vqc);

#endif /* !_DEV_VIRTIO_VIRTQUEUE_PACKED_VAR_H_ */
