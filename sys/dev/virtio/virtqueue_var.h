/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What split and packed virtqueues have in common; for virtqueue_*.c only.
 */

#ifndef _DEV_VIRTIO_VIRTQUEUE_VAR_H_
#define	_DEV_VIRTIO_VIRTQUEUE_VAR_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/malloc.h>

#include <machine/bus.h>

#include <dev/pv/pv_dma.h>
#include <dev/pv/queue/pvq.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/virtqueue.h>

MALLOC_DECLARE(M_VIRTQUEUE);

/*
 * A power of two of tables for long chains that a queue has at most, and bytes
 * in all, of tables that take whole pages.
 */
#define	VIRTQUEUE_LONG		16
#define	VIRTQUEUE_LONG_BYTES	(64 * 1024)

/*
 * Indirect tables of one size, in one slab; each of them is in one piece for
 * the device.
 */
struct virtqueue_tables {
	struct pv_dma	 vqt_slab;
	bus_addr_t	*vqt_pieces;	/* where each piece of the slab is;
					 * NULL: no tables */
	int		 vqt_shift;	/* log2 of the tables in a piece */
	size_t		 vqt_piece_size;
	size_t		 vqt_size;	/* bytes of a table */
};

/*
 * The first member of each kind of virtqueue.  Constant once the queue is
 * created, but for its size.
 */
struct virtqueue {
	struct pvq	 vqc_pvq;	/* first */
	uint16_t	 vqc_index;	/* the queue's number */
	bool		 vqc_modern;	/* little-endian */
	bool		 vqc_strict;	/* VIRTQUEUE_STRICT_LENGTHS,
					 * and not legacy */
	bool		 vqc_event;	/* VIRTIO_F_EVENT_IDX */
	bool		 vqc_in_order;	/* VIRTIO_F_IN_ORDER */
	bool		 vqc_packed;	/* VIRTIO_F_RING_PACKED */
	void		(*vqc_notify)(void *, uint16_t, uint16_t);
	void		*vqc_notify_arg;
	/*
	 * Where the driver's next descriptor goes,
	 * as a notification has it (4.1.5.2).
	 */
	uint16_t	(*vqc_next)(const struct virtqueue *);
	/* See virtqueue_post_table(). */
	void		(*vqc_post_table)(struct pvq *, bus_addr_t, u_int,
	    uint32_t, void *);
	/* Find the parts of a ring of q_size places. */
	void		(*vqc_place)(struct virtqueue *);
	uint16_t	 vqc_max_size;	/* places that there is memory for */
	size_t		 vqc_align;	/* of a split ring's used ring */
	struct virtqueue_addrs vqc_addrs;
	struct pv_dma	 vqc_ring;
	size_t		 vqc_ring_size;
	struct virtqueue_tables vqc_tables;	/* one for each descriptor */
	/*
	 * Tables for chains of more than q_flat_segs: numbers of free ones are
	 * taken by the put side, in a circle, and given by the get side.
	 */
	struct virtqueue_tables vqc_long;
	u_int		 vqc_nlong;
	uint32_t	 vqc_long_base;	/* q_long_taken at the last commit */
	uint16_t	 vqc_long_free[VIRTQUEUE_LONG];
};

/* A field of a ring. */
#define	vq_16(vqc, v)	virtio_16((vqc)->vqc_modern, (v))
#define	vq_32(vqc, v)	virtio_32((vqc)->vqc_modern, (v))
#define	vq_64(vqc, v)	virtio_64((vqc)->vqc_modern, (v))

/*
 * Fill in what params has, and allocate ring memory, zeroed, and an indirect
 * table for each descriptor, if indirect descriptors were negotiated.  May
 * sleep.
 *
 * size   bytes of the ring
 * align  of its first byte
 *
 * Returns 0 or ENOMEM; then virtqueue_fini() frees what there is.
 */
int	virtqueue_init(struct virtqueue *vqc,
    const struct virtqueue_params *params,
	    const struct pvq_ops *ops, size_t size, size_t align);

/* Free what virtqueue_init() allocated. */
void	virtqueue_fini(struct virtqueue *vqc);

/*
 * What each kind's struct pvq_ops has: phrases for enum virtqueue_fault,
 * counters, qo_prepare.
 */
extern const char *const virtqueue_faults[];
extern const struct pvq_counter virtqueue_counters[];

static inline int
virtqueue_prepare(const struct pvq *q, const struct pvq_chain *pc)
{
	int n = pc->pc_nread + pc->pc_nwrite;

	if (n == 0 || n > q->q_max_segs)
		return (0);
	return (n <= q->q_flat_segs || pvq_long_room(q) ? 1 : n);
}

/*
 * What is recorded of a chain are the descriptors that it takes, or that it has
 * this long table, and takes one.
 */
#define	VIRTQUEUE_HAS_LONG(i)	(VRING_MAX_SIZE + 1 + (i))

static inline u_int
virtqueue_slots(u_int recorded)
{

	return (__predict_true(recorded <= VRING_MAX_SIZE) ? recorded : 1);
}

/* The put side takes a long table, of which there is one: its number. */
static inline u_int
virtqueue_take_long(struct virtqueue *vqc)
{

	return (vqc->vqc_long_free[vqc->vqc_pvq.q_long_taken++ %
	    VIRTQUEUE_LONG]);
}

/* A chain with this record has ended: the get side gives its long table. */
static inline void
virtqueue_give_long(struct virtqueue *vqc, u_int recorded)
{
	const uint32_t given = vqc->vqc_pvq.q_long_given;

	if (__predict_true(recorded <= VRING_MAX_SIZE))
		return;
	vqc->vqc_long_free[given % VIRTQUEUE_LONG] =
	    recorded - VIRTQUEUE_HAS_LONG(0);
	atomic_store_rel_32(&vqc->vqc_pvq.q_long_given, given + 1);
}

/* No chain has a long table. */
void	virtqueue_forget_long(struct virtqueue *vqc);

/* Table i, and where it is for the device. */
void	*virtqueue_table(const struct virtqueue_tables *vqt, int i,
    bus_addr_t *paddr);

/* See virtqueue_create(). */
int	virtqueue_split_create(const struct virtqueue_params *params,
    struct pvq **qp);
int	virtqueue_packed_create(const struct virtqueue_params *params,
    struct pvq **qp);

#endif /* !_DEV_VIRTIO_VIRTQUEUE_VAR_H_ */
