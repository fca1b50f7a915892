/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The memory balloon on the wire (VirtIO 1.3, 5.5).
 */

#ifndef _DEV_VIRTIO_VIRTIO_BALLOON_H_
#define	_DEV_VIRTIO_VIRTIO_BALLOON_H_

#include <sys/types.h>

/* Feature bits (5.5.3), masks. */
#define	VIRTIO_BALLOON_F_MUST_TELL_HOST	(1ULL << 0)
#define	VIRTIO_BALLOON_F_STATS_VQ	(1ULL << 1)
#define	VIRTIO_BALLOON_F_DEFLATE_ON_OOM	(1ULL << 2)
#define	VIRTIO_BALLOON_F_FREE_PAGE_HINT	(1ULL << 3)
#define	VIRTIO_BALLOON_F_PAGE_POISON	(1ULL << 4)
#define	VIRTIO_BALLOON_F_REPORTING	(1ULL << 5)

/* A page of the balloon has 4 KB, whatever a page of the guest has (5.5.6). */
#define	VIRTIO_BALLOON_PFN_SHIFT	12

/* Configuration (5.5.4); little-endian on legacy devices too. */
struct virtio_balloon_config {
	uint32_t	num_pages;		/* that the device requests */
	uint32_t	actual;			/* that the driver has given */
	uint32_t	free_page_hint_cmd_id;	/* FREE_PAGE_HINT; read-only */
	uint32_t	poison_val;		/* PAGE_POISON */
} __packed;

/* Values of free_page_hint_cmd_id that are no command (5.5.6.6). */
#define	VIRTIO_BALLOON_CMD_ID_STOP	0
#define	VIRTIO_BALLOON_CMD_ID_DONE	1

/* A statistic of the guest (5.5.6.3, 5.5.6.4). */
struct virtio_balloon_stat {
	uint16_t	tag;
	uint64_t	val;
} __packed;

#define	VIRTIO_BALLOON_S_SWAP_IN	0	/* bytes */
#define	VIRTIO_BALLOON_S_SWAP_OUT	1	/* bytes */
#define	VIRTIO_BALLOON_S_MAJFLT		2
#define	VIRTIO_BALLOON_S_MINFLT		3
#define	VIRTIO_BALLOON_S_MEMFREE	4	/* bytes of no use to anyone */
#define	VIRTIO_BALLOON_S_MEMTOT		5	/* bytes */
#define	VIRTIO_BALLOON_S_AVAIL		6	/* bytes for new programs,
						 * without swapping */
#define	VIRTIO_BALLOON_S_CACHES		7	/* bytes */
#define	VIRTIO_BALLOON_S_HTLB_PGALLOC	8
#define	VIRTIO_BALLOON_S_HTLB_PGFAIL	9
/* Since VirtIO 1.4; a host that does not know them ignores them. */
#define	VIRTIO_BALLOON_S_OOM_KILL	10
#define	VIRTIO_BALLOON_S_ALLOC_STALL	11
#define	VIRTIO_BALLOON_S_ASYNC_SCAN	12	/* bytes that the page
						 * daemon looked at */
#define	VIRTIO_BALLOON_S_DIRECT_SCAN	13	/* the same of who allocates */
#define	VIRTIO_BALLOON_S_ASYNC_RECLAIM	14	/* bytes that the page
						 * daemon freed */
#define	VIRTIO_BALLOON_S_DIRECT_RECLAIM	15

#endif /* !_DEV_VIRTIO_VIRTIO_BALLOON_H_ */
