/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Virtqueues, as transports create them.  Drivers see a struct pvq only.
 */

#ifndef _DEV_VIRTIO_VIRTQUEUE_H_
#define	_DEV_VIRTIO_VIRTQUEUE_H_

#include <dev/pv/queue/pvq.h>

/*
 * What a queue is made from.
 */
struct virtqueue_params {
	device_t	 vqp_dev;	/* for messages */
	const char	*vqp_name;	/* "rxq0" */
	bus_dma_tag_t	 vqp_dmat;	/* parent tag:
					 * what the device can address */
	uint64_t	 vqp_features;	/* agreed on: VIRTIO_F_* */
	uint16_t	 vqp_index;	/* number of the queue */
	uint16_t	 vqp_size;	/* descriptors */
	uint16_t	 vqp_max_segs;	/* segments in the longest chain */
	/*
	 * Segments in the longest chain that goes by an indirect table, of
	 * which there is one for each descriptor: longer ones share a few
	 * tables, and take a descriptor for each segment if all are in use.  0:
	 * vqp_max_segs.
	 */
	uint16_t	 vqp_table_segs;
	uint32_t	 vqp_flags;	/* VIRTQUEUE_* */
#define	VIRTQUEUE_STRICT_LENGTHS 0x0001	/* an invalid used length
					 * breaks the queue */
	size_t		 vqp_align;	/* of the used ring;
					 * VRING_USED_ALIGN or more */
	/*
	 * Notify the device that queue `index` has work; any context.  `next`
	 * is where the next descriptor will go (VirtIO 1.3, 2.9): an index of
	 * the available ring, or, packed, the offset in the ring and in bit 15
	 * the wrap counter.
	 */
	void		(*vqp_notify)(void *arg, uint16_t index, uint16_t next);
	void		*vqp_notify_arg;
};

/* Where a queue's three parts are for the device. */
struct virtqueue_addrs {
	bus_addr_t	vqa_desc;
	bus_addr_t	vqa_driver;	/* available ring,
					 * or driver event suppression */
	bus_addr_t	vqa_device;	/* used ring, or device
					 * event suppression */
};

/* Faults that only virtqueues have, in addition to those of enum pvq_fault. */
enum virtqueue_fault {
	VIRTQUEUE_FAULT_LEN = PVQ_FAULT_TRANSPORT, /* more bytes written than
						    * there was room for */
	VIRTQUEUE_FAULT_FLAGS,	/* wrong wrap counter (packed) */
	VIRTQUEUE_FAULT_ORDER,	/* completed out of order, with IN_ORDER */
};

/*
 * Create a virtqueue (VirtIO 1.3, 2.6): packed (2.8) if vqp_features has
 * VIRTIO_F_RING_PACKED, else split (2.7).  May sleep.
 *
 * params  read during the call only
 * qp      set to the queue
 *
 * Returns 0; EINVAL if the size is 0, over 32768 or (split) not a power of two,
 * or no segment is allowed; ENOMEM.
 */
int	virtqueue_create(const struct virtqueue_params *params,
    struct pvq **qp);

/*
 * Can a queue have a ring of so many places?  0; EINVAL: more than it was
 * created with, fewer than the longest chain takes, or (split) not a power of
 * two.
 */
int	virtqueue_check_size(const struct pvq *q, u_int size);

/*
 * Change the size of a drained queue's ring, which the device does not have,
 * and re-initialise it (pvq_reinit).  Its addresses are others afterwards.
 *
 * size  that virtqueue_check_size() allows
 *
 * Returns 0, or the error of pvq_reinit().
 */
int	virtqueue_resize(struct pvq *q, uint16_t size);

/*
 * An entry of a table of descriptors that a driver keeps for chains of one
 * form, which differ only in where their memory is.  A table is the driver's,
 * in DMA memory of its own (pv_dma_alloc), aligned as VRING_DESC_ALIGN has it.
 * Numbers are little-endian, but in the guest's order on a legacy device.
 */
struct virtqueue_entry {
	uint64_t	vqe_addr;
	uint32_t	vqe_len;
	uint32_t	vqe_form;	/* of virtqueue_form() */
};

/* Does the device take a table of so many entries (VIRTIO_F_INDIRECT_DESC)? */
bool	virtqueue_takes_tables(const struct pvq *q, u_int entries);

/*
 * Write the form of a table, whose first entries the device reads, and the
 * others it writes.
 */
void	virtqueue_form(const struct pvq *q, struct virtqueue_entry *table,
    u_int nread, u_int nwrite);

/*
 * As pvq_post(), of a chain in a table of the driver's own, for which there is
 * room: pvq_room() is 1 or more, and nothing is staged.
 *
 * table   where it is for the device; it stays as it is until the chain
 *         completes
 * n       its entries
 * wlen    bytes that the device may write
 * cookie  returned by pvq_get(); not NULL
 */
void	virtqueue_post_table(struct pvq *q, bus_addr_t table, u_int n,
    uint32_t wlen, void *cookie);

/*
 * Bytes that the device says it wrote into a completed chain: never more than
 * there was room for.
 */
static inline uint32_t
virtqueue_done_len(const struct pvq_done *done)
{

	return (done->pd_result);
}

/* Used lengths that were invalid, and were not used. */
static inline uint64_t
virtqueue_invalid_lengths(const struct pvq *q)
{

	return (q->q_stats.qs_get_own);
}

/*
 * Does an invalid used length break this queue?  Never one of a legacy device
 * (2.7.8.1).
 */
bool	virtqueue_strict_lengths(const struct pvq *q);

/*
 * The addresses to give to the device.  They stay the same until
 * virtqueue_resize() or pvq_free().
 */
void	virtqueue_addrs(const struct pvq *q, struct virtqueue_addrs *addrs);

/* Notify the device of a queue, whether it asked for that or not. */
void	virtqueue_notify(const struct pvq *q);

#endif /* !_DEV_VIRTIO_VIRTQUEUE_H_ */
