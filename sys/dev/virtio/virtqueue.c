/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Virtqueues as transports see them: the one place that chooses the kind of ring.
 *
 * Locking.  See pvq.h.
 */

#include <dev/virtio/virtqueue_var.h>

#define	VQC(q)	__containerof((q), const struct virtqueue, vqc_pvq)

int
virtqueue_create(const struct virtqueue_params *params, struct pvq **qp)
{

	if ((params->vqp_features & VIRTIO_F_RING_PACKED) != 0)
		return (virtqueue_packed_create(params, qp));
	return (virtqueue_split_create(params, qp));
}

int
virtqueue_check_size(const struct pvq *q, u_int size)
{
	const struct virtqueue *vqc = VQC(q);

	if (size < q->q_max_segs || size > vqc->vqc_max_size ||
	    (!powerof2(size) && !vqc->vqc_packed))
		return (EINVAL);
	return (0);
}

int
virtqueue_resize(struct pvq *q, uint16_t size)
{
	struct virtqueue *vqc = __containerof(q, struct virtqueue, vqc_pvq);
	int error;

	/* It is empty, or it fails. */
	error = pvq_reinit(q);
	if (error != 0)
		return (error);
	q->q_size = size;
	vqc->vqc_place(vqc);
	return (pvq_reinit(q));
}

bool
virtqueue_strict_lengths(const struct pvq *q)
{

	return (VQC(q)->vqc_strict);
}

void
virtqueue_addrs(const struct pvq *q, struct virtqueue_addrs *addrs)
{

	*addrs = VQC(q)->vqc_addrs;
}

void
virtqueue_notify(const struct pvq *q)
{
	const struct virtqueue *vqc = VQC(q);

	vqc->vqc_notify(vqc->vqc_notify_arg, vqc->vqc_index, vqc->vqc_next(vqc));
}
