/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Virtqueues as transports see them: the one place that chooses the kind of
 * ring.
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

bool
virtqueue_takes_tables(const struct pvq *q, u_int entries)
{

	return (VQC(q)->vqc_tables.vqt_pieces != NULL &&
	    entries <= q->q_max_segs);
}

/*
 * In a split ring each entry names the next one; in a packed one they follow
 * each other (2.8.7).
 */
void
virtqueue_form(const struct pvq *q, struct virtqueue_entry *table, u_int nread,
    u_int nwrite)
{
	const struct virtqueue *vqc = VQC(q);
	const u_int n = nread + nwrite;
	struct vring_packed_desc *pd;
	struct vring_desc *d;
	uint16_t flags;
	u_int i;

	CTASSERT(sizeof(*table) == sizeof(*d) && sizeof(*table) == sizeof(*pd));
	CTASSERT(offsetof(struct virtqueue_entry,
	    vqe_len) == offsetof(struct vring_desc, vd_len));
	CTASSERT(offsetof(struct virtqueue_entry, vqe_len) ==
	    offsetof(struct vring_packed_desc, vpd_len));
	for (i = 0; i < n; i++) {
		flags = i < nread ? 0 : VRING_DESC_F_WRITE;
		if (vqc->vqc_packed) {
			pd = (struct vring_packed_desc *)&table[i];
			pd->vpd_id = 0;
			pd->vpd_flags = vq_16(vqc, flags);
		} else {
			d = (struct vring_desc *)&table[i];
			d->vd_flags = vq_16(vqc,
			    i + 1 < n ? flags | VRING_DESC_F_NEXT : flags);
			d->vd_next = vq_16(vqc, i + 1 < n ? i + 1 : 0);
		}
	}
}

void
virtqueue_post_table(struct pvq *q, bus_addr_t table, u_int n, uint32_t wlen,
    void *cookie)
{

	VQC(q)->vqc_post_table(q, table, n, wlen, cookie);
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

	vqc->vqc_notify(vqc->vqc_notify_arg, vqc->vqc_index,
	    vqc->vqc_next(vqc));
}
