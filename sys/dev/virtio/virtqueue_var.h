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
	struct pv_dma	 vqc_slab;	/* indirect tables */
	bus_addr_t	*vqc_pieces;	/* where each piece of the slab is;
					 * NULL: no tables */
	int		 vqc_npieces;
	int		 vqc_shift;	/* log2 of the tables in a piece */
	size_t		 vqc_piece_size;
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
	return (n <= q->q_flat_segs ? 1 : n);
}

/* Descriptor i's indirect table, and where it is for the device. */
void	*virtqueue_table(const struct virtqueue *vqc, int i, bus_addr_t *paddr);

/* See virtqueue_create(). */
int	virtqueue_split_create(const struct virtqueue_params *params,
    struct pvq **qp);
int	virtqueue_packed_create(const struct virtqueue_params *params,
    struct pvq **qp);

#endif /* !_DEV_VIRTIO_VIRTQUEUE_VAR_H_ */
