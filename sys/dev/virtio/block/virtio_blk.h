/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The block device on the wire (VirtIO 1.3, 5.2).
 */

#ifndef _DEV_VIRTIO_VIRTIO_BLK_H_
#define	_DEV_VIRTIO_VIRTIO_BLK_H_

#include <sys/types.h>

/*
 * Feature bits (5.2.3), masks; the first and SCSI of legacy devices only
 * (5.2.3.1).
 */
#define	VIRTIO_BLK_F_BARRIER		(1ULL << 0)
#define	VIRTIO_BLK_F_SIZE_MAX		(1ULL << 1)
#define	VIRTIO_BLK_F_SEG_MAX		(1ULL << 2)
#define	VIRTIO_BLK_F_GEOMETRY		(1ULL << 4)
#define	VIRTIO_BLK_F_RO			(1ULL << 5)
#define	VIRTIO_BLK_F_BLK_SIZE		(1ULL << 6)
#define	VIRTIO_BLK_F_SCSI		(1ULL << 7)
#define	VIRTIO_BLK_F_FLUSH		(1ULL << 9)
#define	VIRTIO_BLK_F_TOPOLOGY		(1ULL << 10)
#define	VIRTIO_BLK_F_CONFIG_WCE		(1ULL << 11)
#define	VIRTIO_BLK_F_MQ			(1ULL << 12)
#define	VIRTIO_BLK_F_DISCARD		(1ULL << 13)
#define	VIRTIO_BLK_F_WRITE_ZEROES	(1ULL << 14)
#define	VIRTIO_BLK_F_LIFETIME		(1ULL << 15)
#define	VIRTIO_BLK_F_SECURE_ERASE	(1ULL << 16)
#define	VIRTIO_BLK_F_ZONED		(1ULL << 17)

/*
 * The unit of capacity, of sector numbers and of discards, whatever the block
 * size (5.2.4).
 */
#define	VIRTIO_BLK_SECTOR_SIZE		512

/* Configuration (5.2.4). */
struct virtio_blk_config {
	uint64_t	capacity;		/* sectors */
	uint32_t	size_max;		/* bytes; SIZE_MAX */
	uint32_t	seg_max;		/* SEG_MAX */
	struct {
		uint16_t	cylinders;
		uint8_t		heads;
		uint8_t		sectors;
	} geometry;				/* GEOMETRY */
	uint32_t	blk_size;		/* bytes; BLK_SIZE */
	struct {
		uint8_t		physical_block_exp;
		uint8_t		alignment_offset; /* blocks */
		uint16_t	min_io_size;	/* blocks */
		uint32_t	opt_io_size;	/* blocks */
	} topology;				/* TOPOLOGY */
	uint8_t		writeback;		/* CONFIG_WCE */
	uint8_t		unused0;
	uint16_t	num_queues;		/* MQ */
	uint32_t	max_discard_sectors;	/* DISCARD */
	uint32_t	max_discard_seg;
	uint32_t	discard_sector_alignment;
	uint32_t	max_write_zeroes_sectors; /* WRITE_ZEROES */
	uint32_t	max_write_zeroes_seg;
	uint8_t		write_zeroes_may_unmap;
	uint8_t		unused1[3];
	uint32_t	max_secure_erase_sectors; /* SECURE_ERASE */
	uint32_t	max_secure_erase_seg;
	uint32_t	secure_erase_sector_alignment;
	struct {
		uint32_t	zone_sectors;
		uint32_t	max_open_zones;
		uint32_t	max_active_zones;
		uint32_t	max_append_sectors;
		uint32_t	write_granularity;	/* bytes */
		uint8_t		model;
		uint8_t		unused2[3];
	} zoned;				/* ZONED */
} __packed;

/* zoned.model. */
#define	VIRTIO_BLK_Z_NONE		0
#define	VIRTIO_BLK_Z_HM			1	/* host-managed */
#define	VIRTIO_BLK_Z_HA			2	/* host-aware */

/* The header of a request (5.2.6): type, reserved, first sector. */
struct virtio_blk_outhdr {
	uint32_t	type;
	uint32_t	reserved;
	uint64_t	sector;
} __packed;

#define	VIRTIO_BLK_T_IN			0
#define	VIRTIO_BLK_T_OUT		1
#define	VIRTIO_BLK_T_FLUSH		4
#define	VIRTIO_BLK_T_GET_ID		8
#define	VIRTIO_BLK_T_GET_LIFETIME	10
#define	VIRTIO_BLK_T_DISCARD		11
#define	VIRTIO_BLK_T_WRITE_ZEROES	13
#define	VIRTIO_BLK_T_SECURE_ERASE	14

/* The data of DISCARD, WRITE_ZEROES and SECURE_ERASE. */
struct virtio_blk_discard_write_zeroes {
	uint64_t	sector;
	uint32_t	num_sectors;
	uint32_t	flags;
} __packed;

#define	VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP	0x00000001

/* The answer to GET_LIFETIME. */
struct virtio_blk_lifetime {
	uint16_t	pre_eol_info;
	uint16_t	device_lifetime_est_typ_a;
	uint16_t	device_lifetime_est_typ_b;
} __packed;

#define	VIRTIO_BLK_PRE_EOL_INFO_URGENT	3	/* the last that is defined */
#define	VIRTIO_BLK_LIFETIME_EXCEEDED	11	/* also the last;
						 * in tenths up to this */

/*
 * GET_ID: a string of at most this many bytes, terminated only if it is
 * shorter.
 */
#define	VIRTIO_BLK_ID_BYTES		20

/* The status, the last byte of a request. */
#define	VIRTIO_BLK_S_OK			0
#define	VIRTIO_BLK_S_IOERR		1
#define	VIRTIO_BLK_S_UNSUPP		2

#endif /* !_DEV_VIRTIO_VIRTIO_BLK_H_ */
