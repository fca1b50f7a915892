/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What split and packed virtqueues share: the names of their faults and
 * counters, and their memory, rings and indirect tables, which is allocated
 * when a queue is created, so that the data path never allocates.
 *
 * A ring is in one piece for the device.  Indirect tables are in one slab of
 * one tag; each of them must be in one piece, the slab need not: memory may be
 * too fragmented for that.  Where chains may be longer than these tables, there
 * are a few that take any.
 *
 * Locking.  None: nothing here is called while the queue is in use.
 */

#include <dev/virtio/virtqueue_var.h>

MALLOC_DEFINE(M_VIRTQUEUE, "virtqueue", "virtqueue state");

#define	VIRTQUEUE_PHRASE(fault)	[(fault) - PVQ_FAULT_TRANSPORT]

const char *const virtqueue_faults[] = {
	VIRTQUEUE_PHRASE(VIRTQUEUE_FAULT_LEN) =
	    "length exceeds what was posted",
	VIRTQUEUE_PHRASE(VIRTQUEUE_FAULT_FLAGS) = "wrong wrap counter",
	VIRTQUEUE_PHRASE(VIRTQUEUE_FAULT_ORDER) = "completed out of order",
};

const struct pvq_counter virtqueue_counters[] = {
	PVQ_COUNTER(qs_put_own, "indirect",
	    "Chains that went by an indirect table"),
	PVQ_COUNTER(qs_get_own, "lengths",
	    "Invalid used lengths, which were not used"),
	{ 0, NULL, NULL }
};

/*
 * Up to n tables of so many entries; an entry is a descriptor of either ring.
 * A piece is a page, with as many tables as fit into it, or the pages that one
 * table takes.
 */
static int
vq_alloc_tables(struct virtqueue_tables *vqt, bus_dma_tag_t parent, u_int n,
    u_int entries)
{
	const size_t bytes = entries * sizeof(struct vring_desc);
	int npieces, shift = 0;

	while ((bytes << (shift + 1)) <= PAGE_SIZE && (2u << shift) <= n)
		shift++;
	npieces = howmany(n, 1 << shift);
	vqt->vqt_size = bytes;
	vqt->vqt_shift = shift;
	vqt->vqt_piece_size = bytes << shift;
	if (npieces > 1)
		vqt->vqt_piece_size = roundup2(vqt->vqt_piece_size, PAGE_SIZE);
	vqt->vqt_pieces = malloc(npieces * sizeof(*vqt->vqt_pieces),
	    M_VIRTQUEUE, M_WAITOK | M_ZERO);
	return (pv_dma_alloc_pieces(&vqt->vqt_slab, parent, vqt->vqt_piece_size,
	    npieces, VRING_DESC_ALIGN, vqt->vqt_pieces));
}

static void
vq_free_tables(struct virtqueue_tables *vqt)
{

	pv_dma_free(&vqt->vqt_slab);
	free(vqt->vqt_pieces, M_VIRTQUEUE);
}

void *
virtqueue_table(const struct virtqueue_tables *vqt, int i, bus_addr_t *paddr)
{
	int piece = i >> vqt->vqt_shift;
	size_t off = (i - (piece << vqt->vqt_shift)) * vqt->vqt_size;

	*paddr = vqt->vqt_pieces[piece] + off;
	return ((char *)vqt->vqt_slab.pdm_mem + piece * vqt->vqt_piece_size +
	    off);
}

/*
 * For an eighth of the ring, as long chains are for peers that take their time
 * for each; without, they take a descriptor for each segment.
 */
static void
vq_alloc_long(struct virtqueue *vqc, bus_dma_tag_t parent)
{
	const struct pvq *q = &vqc->vqc_pvq;
	const size_t bytes = roundup2(q->q_max_segs * sizeof(struct vring_desc),
	    PAGE_SIZE);
	const u_int most = MIN(MIN(VIRTQUEUE_LONG, q->q_size / 8),
	    VIRTQUEUE_LONG_BYTES / bytes);

	if (most > 0 && vq_alloc_tables(&vqc->vqc_long, parent, most,
	    q->q_max_segs) == 0)
		vqc->vqc_nlong = most;
}

void
virtqueue_forget_long(struct virtqueue *vqc)
{
	u_int i;

	for (i = 0; i < vqc->vqc_nlong; i++)
		vqc->vqc_long_free[i] = i;
	vqc->vqc_pvq.q_long_taken = vqc->vqc_long_base = 0;
	vqc->vqc_pvq.q_long_given = vqc->vqc_nlong;
}

int
virtqueue_init(struct virtqueue *vqc, const struct virtqueue_params *params,
    const struct pvq_ops *ops, size_t size, size_t align)
{
	struct pvq *q = &vqc->vqc_pvq;
	bool indirect;
	int error;

	q->q_ops = ops;
	q->q_dev = params->vqp_dev;
	q->q_size = vqc->vqc_max_size = params->vqp_size;
	vqc->vqc_align = params->vqp_align;
	/*
	 * A chain may not be longer than the ring, even in an indirect table
	 * (2.7.5.3.1, 2.8.19).
	 */
	q->q_max_segs = MIN(params->vqp_max_segs, params->vqp_size);
	vqc->vqc_modern = (params->vqp_features & VIRTIO_F_VERSION_1) != 0;
	/* The lengths of a legacy device are unreliable (2.7.8.1). */
	vqc->vqc_strict = vqc->vqc_modern &&
	    (params->vqp_flags & VIRTQUEUE_STRICT_LENGTHS) != 0;
	vqc->vqc_event = (params->vqp_features & VIRTIO_F_EVENT_IDX) != 0;
	q->q_intr_once = vqc->vqc_event;
	indirect = (params->vqp_features & VIRTIO_F_INDIRECT_DESC) != 0 &&
	    q->q_max_segs > 1;
	q->q_flat_segs = !indirect ? 1 : params->vqp_table_segs == 0 ?
	    q->q_max_segs : MIN(params->vqp_table_segs, q->q_max_segs);
	vqc->vqc_packed = (params->vqp_features & VIRTIO_F_RING_PACKED) != 0;
	vqc->vqc_in_order = (params->vqp_features & VIRTIO_F_IN_ORDER) != 0;
	strlcpy(q->q_name, params->vqp_name, sizeof(q->q_name));
	vqc->vqc_index = params->vqp_index;
	vqc->vqc_notify = params->vqp_notify;
	vqc->vqc_notify_arg = params->vqp_notify_arg;
	vqc->vqc_ring_size = size;
	error = pv_dma_alloc(&vqc->vqc_ring, params->vqp_dmat, size, align);
	if (error == 0 && indirect)
		error = vq_alloc_tables(&vqc->vqc_tables, params->vqp_dmat,
		    q->q_size, q->q_flat_segs);
	if (error == 0 && indirect && q->q_flat_segs < q->q_max_segs)
		vq_alloc_long(vqc, params->vqp_dmat);
	return (error);
}

void
virtqueue_fini(struct virtqueue *vqc)
{

	vq_free_tables(&vqc->vqc_long);
	vq_free_tables(&vqc->vqc_tables);
	pv_dma_free(&vqc->vqc_ring);
}
