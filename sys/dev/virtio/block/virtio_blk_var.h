/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of virtio_blk share (see virtio_blk.c).
 */

#ifndef _DEV_VIRTIO_VIRTIO_BLK_VAR_H_
#define	_DEV_VIRTIO_VIRTIO_BLK_VAR_H_

#include <sys/param.h>
#include <sys/endian.h>
#include <sys/lock.h>
#include <sys/sx.h>

#include <dev/pv/blk/pv_blk.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/virtqueue.h>
#include <dev/virtio/block/virtio_blk.h>

#define	VTBLK_FAST_SEGS		32	/* of data in a request
					 * that takes the fast path */

/* What a request needs besides its data; one for each in coherent memory. */
struct vtblk_msg {
	struct virtio_blk_outhdr hdr;
	struct virtio_blk_lifetime lifetime;
	uint8_t		status;
	/* Of a read or a write by the fast path: header, data, status. */
	struct virtqueue_entry table[1 + VTBLK_FAST_SEGS +
	    1] __aligned(VRING_DESC_ALIGN);
	/* Bp_delete_ranges. */
	struct virtio_blk_discard_write_zeroes ranges[] __aligned(16);
} __aligned(64);

struct vtblk_softc {
	device_t	vtb_dev;
	struct pv_blk	vtb_blk;
	struct pv_blk_params vtb_params;
	struct pvq	*vtb_queues[PV_BLK_QUEUES_MAX];
	u_int		vtb_nqueues;	/* of bp_nqueues, that are used */
	struct sysctl_ctx_list vtb_sysctl;
	struct sx	vtb_cache_lock;	/* see virtio_blk.c */
	uint64_t	vtb_features;
	uint64_t	vtb_min_io_size; /* bytes; 0: not known */
	uint64_t	vtb_opt_io_size;
	uint64_t	vtb_config_changes;
	uint64_t	vtb_bad_configs;
	uint64_t	vtb_refused_modes;
	uint64_t	vtb_short_lengths; /* of all queues */
	uint64_t	vtb_bad_lifetimes;
	uint32_t	vtb_delete_type;
	uint32_t	vtb_delete_flags;
	bool		vtb_modern;
	bool		vtb_strict;	/* an invalid used length
					 * is a protocol violation */
	bool		vtb_initialised; /* pv_blk_init() was done */
	bool		vtb_attached;
};

#define	VTBLK_CONFIG(sc, field, valuep)					\
	virtio_read_config((sc)->vtb_dev,				\
	    offsetof(struct virtio_blk_config, field),			\
	    (valuep), sizeof(*(valuep)))

#define	vtblk_16(sc, v)	virtio_16((sc)->vtb_modern, (v))
#define	vtblk_32(sc, v)	virtio_32((sc)->vtb_modern, (v))
#define	vtblk_64(sc, v)	virtio_64((sc)->vtb_modern, (v))

/*
 * virtio_blk_lifetime.c: adds dev.vtblk.N.lifetime to vtb_sysctl, if the device
 * has that.
 */
void	vtblk_sysctl_lifetime(struct vtblk_softc *sc);

/* virtio_blk_req.c: bo_encode, bo_post and bo_status of struct pv_blk_ops. */
void	vtblk_encode(struct pv_blk *blk, struct pv_blk_req *rq,
    struct pvq_chain *pc);
void	vtblk_post(struct pv_blk *blk, struct pv_blk_req *rq, struct pvq *q);
int	vtblk_status(struct pv_blk *blk, const struct pv_blk_req *rq,
    const struct pvq_done *pd,
	    uintmax_t *seen);

#endif /* !_DEV_VIRTIO_VIRTIO_BLK_VAR_H_ */
