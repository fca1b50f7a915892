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
