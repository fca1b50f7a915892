/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A device's side of a packed virtqueue, for tests.
 *
 * Written against VirtIO 1.3, 2.8, with offsets of its own instead of the driver's header: a mistake
 * there does not repeat itself here.  Places are counted from the beginning and never wrap; a place's
 * offset in the ring, and the wrap counter of the turn that it is in, follow from its number.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/virtqueue.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "model/peer.h"
#include "model/ring_memory.h"

#define	DESC_AVAIL	0x0080
#define	DESC_USED	0x8000
#define	EVENT_ENABLE	0
#define	EVENT_DISABLE	1
#define	EVENT_DESC	2

struct packed_peer {
	struct peer	 pp_peer;	/* first */
	const struct impl *pp_impl;
	uint8_t		*pp_ring;
	uint8_t		*pp_driver;	/* event suppression */
	uint8_t		*pp_device;
	uint16_t	 pp_num;
	uint64_t	 pp_avail;	/* next place to look for an available descriptor */
	uint64_t	 pp_used;	/* next place to write a used one */
	uint64_t	 pp_published;	/* places before this one are published */
	uint64_t	 pp_signalled;	/* those at the last po_interrupts */
	uint16_t	 pp_first;	/* flags of the first that is not published */
	uint16_t	*pp_slots;	/* places of the chain with this id, in flight */
	/* IN_ORDER. */
	uint64_t	 pp_batch;	/* where the open batch begins */
	bool		 pp_open;	/* its last chain was used completely */
	uint64_t	*pp_rooms;	/* bytes that may be written, by id */
};

#define	PP(pe)	((struct packed_peer *)(pe))

static uint8_t *
place(struct packed_peer *pp, uint64_t n)
{

	return (pp->pp_ring + n % pp->pp_num * DESC_BYTES);
}

/* The wrap counter of the turn that a place is in: it begins as 1 (2.8.1). */
static bool
wraps(struct packed_peer *pp, uint64_t n)
{

	return (n / pp->pp_num % 2 == 0);
}

static uint16_t
off_wrap(struct packed_peer *pp, uint64_t n)
{

	return (n % pp->pp_num | (wraps(pp, n) ? 0x8000 : 0));
}

static bool
available(struct packed_peer *pp, uint64_t n)
{
	uint16_t flags = get16(place(pp, n) + 14);

	return ((flags & DESC_AVAIL) == (wraps(pp, n) ? DESC_AVAIL : 0) &&
	    (flags & DESC_USED) == (wraps(pp, n) ? 0 : DESC_USED));
}

static void
add_segment(struct packed_peer *pp, struct peer_chain *pc, const uint8_t *d, uint16_t flags)
{
	int total = pc->pr_nread + pc->pr_nwrite;

	CHECK(total < PEER_MAX_SEGS && total < pp->pp_num, "%d segments", total);
	pc->pr_segs[total].addr = peek64(d);
	pc->pr_segs[total].len = peek32(d + 8);
	if ((flags & DESC_WRITE) != 0) {
		pc->pr_nwrite++;
		pc->pr_wlen += peek32(d + 8);
	} else {
		CHECK(pc->pr_nwrite == 0, "read after write (2.8.17)");
		pc->pr_nread++;
	}
}

/* The table that an indirect descriptor points to (2.8.7, 2.8.19). */
static void
walk_table(struct packed_peer *pp, const uint8_t *d, struct peer_chain *pc)
{
	const uint8_t *table = (const uint8_t *)(uintptr_t)peek64(d);
	uint32_t i, bytes = peek32(d + 8);

	CHECK(im_can(pp->pp_impl, IM_INDIRECT), "not negotiated");
	CHECK(bytes % DESC_BYTES == 0 && bytes != 0, "length %u", bytes);
	for (i = 0; i < bytes; i += DESC_BYTES) {
		CHECK((peek16(table + i + 14) & ~DESC_WRITE) == 0, "flags 0x%x in a table",
		    peek16(table + i + 14));
		add_segment(pp, pc, table + i, peek16(table + i + 14));
	}
}

static bool
packed_fetch(struct peer *pe, struct peer_chain *pc)
{
	struct packed_peer *pp = PP(pe);
	const uint8_t *d;
	uint64_t begin = pp->pp_avail;
	uint16_t flags;

	if (!available(pp, begin))
		return (false);
	atomic_thread_fence_acq();
	pc->pr_nread = pc->pr_nwrite = 0;
	pc->pr_wlen = 0;
	do {
		CHECK(available(pp, pp->pp_avail), "part of a chain is not available (2.8.6)");
		d = place(pp, pp->pp_avail++);
		flags = peek16(d + 14);
		if ((flags & DESC_INDIRECT) != 0) {
			CHECK((flags & (DESC_NEXT | DESC_WRITE)) == 0, "flags 0x%x", flags);
			CHECK(pp->pp_avail == begin + 1, "indirect in a chain (2.8.19)");
			walk_table(pp, d, pc);
		} else
			add_segment(pp, pc, d, flags);
	} while ((flags & DESC_NEXT) != 0);
	pc->pr_id = peek16(d + 12);
	CHECK(pc->pr_id < pp->pp_num && pp->pp_slots[pc->pr_id] == 0, "id %u is in flight",
	    pc->pr_id);
	pp->pp_slots[pc->pr_id] = pp->pp_avail - begin;
	pp->pp_rooms[pc->pr_id] = pc->pr_wlen;
	CHECK(pp->pp_avail <= pp->pp_published + pp->pp_num, "more than the ring holds");
	return (true);
}

/* A used descriptor, which is seen when the first that is not published is (2.8.2). */
static void
put_used(struct packed_peer *pp, uint16_t id, uint32_t len, bool wrap, uint16_t slots)
{
	uint8_t *d;
	uint16_t flags = (wrap ? DESC_AVAIL | DESC_USED : 0) | (len > 0 ? DESC_WRITE : 0);

	/*
	 * In order, the descriptor of a batch is where its first chain's would be, and names the last
	 * (2.8.8).  A chain can be skipped that was used completely.
	 */
	if (!im_can(pp->pp_impl, IM_IN_ORDER) || !pp->pp_open)
		pp->pp_batch = pp->pp_used;
	d = place(pp, pp->pp_batch);
	put32(d + 8, len);
	put16(d + 12, id);
	if (pp->pp_batch == pp->pp_published)
		pp->pp_first = flags;
	else
		put16(d + 14, flags);
	pp->pp_used += slots;
}

static void
packed_complete(struct peer *pe, uint32_t id, uint32_t len)
{
	struct packed_peer *pp = PP(pe);
	uint16_t slots = id < pp->pp_num ? MAX(pp->pp_slots[id], 1) : 1;

	put_used(pp, id, len, wraps(pp, pp->pp_open ? pp->pp_batch : pp->pp_used), slots);
	pp->pp_open = im_can(pp->pp_impl, IM_IN_ORDER) && id < pp->pp_num &&
	    len == pp->pp_rooms[id];
	if (id < pp->pp_num)
		pp->pp_slots[id] = 0;
}

static void
packed_publish(struct peer *pe)
{
	struct packed_peer *pp = PP(pe);

	if (pp->pp_used == pp->pp_published)
		return;
	atomic_thread_fence_rel();
	put16(place(pp, pp->pp_published) + 14, pp->pp_first);
	pp->pp_published = pp->pp_used;
	pp->pp_open = false;
}

static bool
packed_interrupts(struct peer *pe)
{
	struct packed_peer *pp = PP(pe);
	uint64_t old;
	uint16_t event, flags;

	atomic_thread_fence_seq_cst();
	old = pp->pp_signalled;
	pp->pp_signalled = pp->pp_published;
	flags = get16(pp->pp_driver + 2);
	CHECK(flags <= EVENT_DESC, "event flags 0x%x", flags);
	if (old == pp->pp_published || flags == EVENT_DISABLE)
		return (false);
	if (flags == EVENT_ENABLE)
		return (true);
	CHECK(im_can(pp->pp_impl, IM_EVENT), "an event at a descriptor, without EVENT_IDX");
	event = get16(pp->pp_driver);
	CHECK((event & 0x7fff) < pp->pp_num, "event at %u", event & 0x7fff);
	for (; old != pp->pp_published; old++) {
		if (off_wrap(pp, old) == event)
			return (true);
	}
	return (false);
}

static bool
packed_listen(struct peer *pe)
{
	struct packed_peer *pp = PP(pe);

	put16(pp->pp_device, off_wrap(pp, pp->pp_avail));
	atomic_thread_fence_rel();
	put16(pp->pp_device + 2, im_can(pp->pp_impl, IM_EVENT) ? EVENT_DESC : EVENT_ENABLE);
	atomic_thread_fence_seq_cst();
	return (available(pp, pp->pp_avail));
}

static void
packed_ignore(struct peer *pe)
{

	put16(PP(pe)->pp_device + 2, EVENT_DISABLE);
}

static bool
packed_violate(struct peer *pe, enum peer_violation violation, const struct peer_chain *pc)
{
	struct packed_peer *pp = PP(pe);
	uint64_t at = pp->pp_used;

	switch (violation) {
	case VIOLATION_ID_RANGE:
		packed_complete(pe, pp->pp_num, 0);
		break;
	case VIOLATION_ID_HUGE:
		packed_complete(pe, UINT16_MAX, 0);
		break;
	case VIOLATION_ID_IDLE:
		packed_complete(pe, (pc->pr_id + pp->pp_num / 2) % pp->pp_num, 0);
		break;
	case VIOLATION_ID_TWICE:
		packed_complete(pe, pc->pr_id, 0);
		packed_complete(pe, pc->pr_id, 0);
		break;
	case VIOLATION_PLACE:
		pp->pp_used++;
		pp->pp_published++;
		packed_complete(pe, pc->pr_id, 0);
		break;
	case VIOLATION_LEN:
		packed_complete(pe, pc->pr_id, pc->pr_wlen + 1);
		break;
	case VIOLATION_LEN_HUGE:
		packed_complete(pe, pc->pr_id, UINT32_MAX);
		break;
	case VIOLATION_TURN:
		put_used(pp, pc->pr_id, 0, !wraps(pp, at), 1);
		break;
	case VIOLATION_TURN_HALF:
		put_used(pp, pc->pr_id, 0, !wraps(pp, at), 1);
		pp->pp_first ^= DESC_USED;
		break;
	default:
		return (false);
	}
	packed_publish(pe);
	return (true);
}

static void
packed_where(struct peer *pe, char *buf, size_t size)
{
	struct packed_peer *pp = PP(pe);

	snprintf(buf, size, "the driver asks for 0x%x, flags %u; the device for 0x%x, flags %u; "
	    "it has taken 0x%x, and used 0x%x, where the flags are 0x%x",
	    get16(pp->pp_driver), get16(pp->pp_driver + 2), get16(pp->pp_device),
	    get16(pp->pp_device + 2), off_wrap(pp, pp->pp_avail),
	    off_wrap(pp, pp->pp_used), get16(place(pp, pp->pp_used) + 14));
}

/*
 * The device may write anywhere it can reach.  The driver reads the flags of one place, and only of
 * that one: the next to be used, if that is not published.
 */
static void
packed_scribble(struct peer *pe, uint32_t seed)
{
	struct packed_peer *pp = PP(pe);
	uint64_t n;
	uint8_t *d;
	int i;

	for (n = pp->pp_published; n < pp->pp_published + pp->pp_num; n++) {
		/* What is not fetched is the peer's own to read. */
		if (n >= pp->pp_avail)
			break;
		d = place(pp, n);
		for (i = 0; i < (n == pp->pp_published ? 14 : DESC_BYTES); i++)
			d[i] = peer_random(&seed);
	}
	put32(pp->pp_driver, peer_random(&seed));
}

static const struct peer_ops packed_peer_ops = {
	.po_fetch = packed_fetch,
	.po_complete = packed_complete,
	.po_publish = packed_publish,
	.po_interrupts = packed_interrupts,
	.po_listen = packed_listen,
	.po_ignore = packed_ignore,
	.po_violate = packed_violate,
	.po_where = packed_where,
	.po_scribble = packed_scribble,
};

static void
packed_notify(void *arg, uint16_t index, uint16_t next)
{
	struct packed_peer *pp = arg;
	uint64_t n = pp->pp_avail;

	if (pp->pp_peer.pe_kick != NULL) {
		pp->pp_peer.pe_kick(&pp->pp_peer);
		return;
	}
	CHECK(index == 3, "queue %u", index);
	while (n < pp->pp_avail + pp->pp_num && available(pp, n))
		n++;
	CHECK(next == off_wrap(pp, n), "next 0x%x, not 0x%x (2.9)", next, off_wrap(pp, n));
	pp->pp_peer.pe_kicks++;
}

static void
packed_find(struct packed_peer *pp)
{
	struct virtqueue_addrs addrs;

	virtqueue_addrs(pp->pp_peer.pe_pvq, &addrs);
	CHECK(addrs.vqa_desc % 16 == 0 && addrs.vqa_driver % 4 == 0 && addrs.vqa_device % 4 == 0,
	    "alignment (2.8.10.1)");
	pp->pp_ring = (uint8_t *)(uintptr_t)addrs.vqa_desc;
	pp->pp_driver = (uint8_t *)(uintptr_t)addrs.vqa_driver;
	pp->pp_device = (uint8_t *)(uintptr_t)addrs.vqa_device;
	pp->pp_peer.pe_mem = addrs.vqa_desc;
	pp->pp_peer.pe_size = MAX(addrs.vqa_driver, addrs.vqa_device) + 4 - addrs.vqa_desc;
}

static int
packed_create(const struct impl *im, uint16_t size, uint16_t max_segs, struct peer **pep)
{
	struct packed_peer *pp = host_alloc(sizeof(*pp), sizeof(void *));
	struct virtqueue_params params = {
		.vqp_dev = kpi_device(),
		.vqp_name = "model",
		.vqp_dmat = kpi_dma_tag,
		.vqp_features = VIRTIO_F_RING_PACKED | VIRTIO_F_VERSION_1 |
		    (im_can(im, IM_INDIRECT) ? VIRTIO_F_INDIRECT_DESC : 0) |
		    (im_can(im, IM_EVENT) ? VIRTIO_F_EVENT_IDX : 0) |
		    (im_can(im, IM_IN_ORDER) ? VIRTIO_F_IN_ORDER : 0),
		.vqp_flags = im_can(im, IM_STRICT) ? VIRTQUEUE_STRICT_LENGTHS : 0,
		.vqp_index = 3,
		.vqp_size = size,
		.vqp_max_segs = max_segs,
		.vqp_table_segs = im_can(im, IM_SHORT) ? IM_SHORT_SEGS : 0,
		.vqp_align = VRING_USED_ALIGN,
		.vqp_notify = packed_notify,
		.vqp_notify_arg = pp,
	};
	int error;

	memset(pp, 0, sizeof(*pp));
	pp->pp_peer.pe_ops = &packed_peer_ops;
	pp->pp_impl = im;
	pp->pp_num = size;
	error = virtqueue_create(&params, &pp->pp_peer.pe_pvq);
	if (error != 0) {
		host_free(pp);
		return (error);
	}
	pp->pp_slots = host_alloc(size * sizeof(*pp->pp_slots), sizeof(void *));
	memset(pp->pp_slots, 0, size * sizeof(*pp->pp_slots));
	pp->pp_rooms = host_alloc(size * sizeof(*pp->pp_rooms), sizeof(void *));
	packed_find(pp);
	*pep = &pp->pp_peer;
	return (0);
}

/* The device was reset: it begins at offset 0, with a wrap counter of 1. */
static void
packed_reset(struct peer *pe)
{
	struct packed_peer *pp = PP(pe);

	pp->pp_avail = pp->pp_used = pp->pp_published = pp->pp_signalled = 0;
	pp->pp_open = false;
	memset(pp->pp_slots, 0, pp->pp_num * sizeof(*pp->pp_slots));
}

static void
packed_destroy(struct peer *pe)
{

	pvq_free(pe->pe_pvq);
	host_free(PP(pe)->pp_slots);
	host_free(PP(pe)->pp_rooms);
	host_free(pe);
}

static uint32_t
packed_reported(const struct pvq_done *done)
{

	return (virtqueue_done_len(done));
}

/* A device that was reset touches nothing: all that it wrote arrives. */
static void
packed_quiesce(struct peer *pe __unused)
{

	kpi_dma_arrives();
}

static const uint16_t packed_sizes[] = { 1, 2, 3, 12, 1000, 4096, 32767, 32768, 0 };
static const uint16_t packed_no_sizes[] = { 32769, 65535, 0 };

#define	PACKED(name, flags) {						\
	.im_name = (name),						\
	.im_flags = (flags) | IM_PACKED | IM_MODERN | IM_LENGTHS | IM_SEG_SLOTS | \
	    (((flags) & IM_IN_ORDER) != 0 ? 0 : IM_ANY_ORDER),		\
	.im_sizes = packed_sizes,					\
	.im_no_sizes = packed_no_sizes,					\
	.im_create = packed_create,					\
	.im_reported = packed_reported,					\
	.im_quiesce = packed_quiesce,					\
	.im_reset = packed_reset,					\
	.im_destroy = packed_destroy,					\
}

/* An event is at a place, so that it comes at an exact number of chains if each takes one place. */
const struct impl packed_impls[] = {
	PACKED("packed", IM_EXACT),
	PACKED("packed_strict", IM_EXACT | IM_STRICT),
	PACKED("packed_indirect", IM_EXACT | IM_INDIRECT),
	PACKED("packed_event", IM_EVENT),
	PACKED("packed_indirect_event", IM_EXACT | IM_STRICT | IM_INDIRECT | IM_EVENT),
	PACKED("packed_in_order", IM_EXACT | IM_IN_ORDER),
	PACKED("packed_in_order_event", IM_IN_ORDER | IM_EVENT),
	PACKED("packed_in_order_strict_indirect_event", IM_EXACT | IM_IN_ORDER | IM_STRICT |
	    IM_INDIRECT | IM_EVENT),
	PACKED("packed_short_tables_event", IM_INDIRECT | IM_EVENT | IM_SHORT),
	PACKED("packed_in_order_short_tables_event", IM_IN_ORDER | IM_INDIRECT | IM_EVENT | IM_SHORT),
	{ .im_name = NULL }
};
