/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Memory layout of split (VirtIO 1.3, 2.7) and packed virtqueues (2.8).
 *
 * Every field of a split one is little-endian on a modern device and in the
 * guest's own order on a legacy one (2.7.3), which is why the types here have
 * neither.  Packed ones are little-endian.
 */

#ifndef _DEV_VIRTIO_VIRTIO_RING_H_
#define	_DEV_VIRTIO_VIRTIO_RING_H_

#include <sys/types.h>

/* One descriptor, in the table or in an indirect table (2.7.5). */
struct vring_desc {
	uint64_t	vd_addr;
	uint32_t	vd_len;
	uint16_t	vd_flags;
	uint16_t	vd_next;
};

#define	VRING_DESC_F_NEXT	0x0001	/* vd_next is valid */
#define	VRING_DESC_F_WRITE	0x0002	/* the device writes it;
					 * else the device reads it */
#define	VRING_DESC_F_INDIRECT	0x0004	/* the buffer is a table
					 * of descriptors (2.7.5.3) */

/*
 * The available ring: written by us (2.7.6).  After the last element:
 * used_event.
 */
struct vring_avail {
	uint16_t	va_flags;
	uint16_t	va_idx;
	uint16_t	va_ring[];
};

#define	VRING_AVAIL_F_NO_INTERRUPT	0x0001	/* a hint, if EVENT_IDX
						 * is not negotiated */

struct vring_used_elem {
	uint32_t	ve_id;		/* head of the chain */
	uint32_t	ve_len;		/* bytes written */
};

/*
 * The used ring: written by the device (2.7.8).  After the last element:
 * avail_event.
 */
struct vring_used {
	uint16_t	vu_flags;
	uint16_t	vu_idx;
	struct vring_used_elem vu_ring[];
};

#define	VRING_USED_F_NO_NOTIFY	0x0001	/* a hint, if EVENT_IDX
					 * is not negotiated */

/*
 * A descriptor of a packed ring, or of an indirect table of one (2.8.13).  Its
 * second half can be accessed as one: vpd_len in bits 0 to 31, vpd_id from
 * VRING_PACKED_ID_SHIFT, vpd_flags from VRING_PACKED_FLAGS_SHIFT.
 */
struct vring_packed_desc {
	uint64_t	vpd_addr;
	union {
		struct {
			uint32_t	vpd_len;
			uint16_t	vpd_id;
			uint16_t	vpd_flags;
		};
		uint64_t	vpd_word;
	};
};

#define	VRING_PACKED_ID_SHIFT		32
#define	VRING_PACKED_FLAGS_SHIFT	48

/* Beside VRING_DESC_F_*, as bits of vpd_flags (2.8.1). */
#define	VRING_PACKED_F_AVAIL	0x0080
#define	VRING_PACKED_F_USED	0x8000

/* Event suppression: one is the driver's and one the device's (2.8.14). */
struct vring_packed_event {
	union {
		struct {
			/* Offset in the ring, wrap counter. */
			uint16_t	vpe_off_wrap;
			uint16_t	vpe_flags;
		};
		uint32_t	vpe_word;
	};
};

#define	VRING_PACKED_EVENT_ENABLE	0	/* vpe_flags,
						 * of which two bits count */
#define	VRING_PACKED_EVENT_DISABLE	1
#define	VRING_PACKED_EVENT_DESC		2	/* at vpe_off_wrap,
						 * if EVENT_IDX is negotiated */
#define	VRING_PACKED_EVENT_MASK		3
#define	VRING_PACKED_WRAP_SHIFT		15	/* the wrap counter,
						 * in vpe_off_wrap */

/*
 * Alignment of each part (2.7); the legacy interface requires the used ring on
 * a page (2.7.2).
 */
#define	VRING_DESC_ALIGN	16
#define	VRING_AVAIL_ALIGN	2
#define	VRING_USED_ALIGN	4
#define	VRING_LEGACY_ALIGN	4096

#define	VRING_MAX_SIZE		32768	/* descriptors; a power of two (2.7) */

/* Bytes of the available ring, used_event included. */
static inline size_t
vring_avail_size(size_t num)
{

	return (sizeof(struct vring_avail) + (num + 1) * sizeof(uint16_t));
}

/* Bytes of the used ring, avail_event included. */
static inline size_t
vring_used_size(size_t num)
{

	return (sizeof(struct vring_used) +
	    num * sizeof(struct vring_used_elem) + sizeof(uint16_t));
}

/*
 * Where the used ring begins, if it follows the other two and is aligned to
 * `align`.
 */
static inline size_t
vring_used_offset(size_t num, size_t align)
{

	return (roundup2(num * sizeof(struct vring_desc) +
	    vring_avail_size(num), align));
}

/* Bytes of all three. */
static inline size_t
vring_size(size_t num, size_t align)
{

	return (vring_used_offset(num, align) + vring_used_size(num));
}

/*
 * Where the events of a packed ring begin, each in a cache line, and bytes of
 * it with them.
 */
static inline size_t
vring_packed_event_offset(size_t num)
{

	return (roundup2(num * sizeof(struct vring_packed_desc),
	    CACHE_LINE_SIZE));
}

static inline size_t
vring_packed_size(size_t num)
{

	return (vring_packed_event_offset(num) + 2 * CACHE_LINE_SIZE);
}

/* The second half of a packed descriptor, vpd_word, in the CPU's byte order. */
static inline uint64_t
vring_packed_word(uint32_t len, uint16_t id, uint16_t flags)
{

	return (len | (uint64_t)id << VRING_PACKED_ID_SHIFT |
	    (uint64_t)flags << VRING_PACKED_FLAGS_SHIFT);
}

/*
 * Event suppression (2.7.10): the peer requested a notification when index
 * `event` is passed; the index moved from old to new.  Indices wrap at 2^16, so
 * counts of steps are compared: the event was passed if it is no further back
 * from new's predecessor than the index moved.
 */
static inline bool
vring_passed(uint16_t event, uint16_t old, uint16_t new)
{
	uint16_t moved = new - old;
	uint16_t back = new - 1 - event;

	return (back < moved);
}

#endif /* !_DEV_VIRTIO_VIRTIO_RING_H_ */
