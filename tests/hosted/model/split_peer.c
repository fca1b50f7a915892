/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A device's side of a split virtqueue, for tests.
 *
 * Written against VirtIO 1.3, 2.7, with offsets of its own instead of the driver's header: a mistake
 * there does not repeat itself here.
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

struct split_peer {
	struct peer	 sp_peer;	/* first */
	const struct impl *sp_impl;
	uint8_t		*sp_desc;
	uint8_t		*sp_avail;
	uint8_t		*sp_used;
	uint16_t	 sp_num;
	uint16_t	 sp_max_segs;
	uint16_t	 sp_last_avail;
	uint16_t	 sp_used_idx;	/* what will be published */
	uint16_t	 sp_signalled;	/* used index at the last po_interrupts */
	/* IN_ORDER. */
	uint16_t	 sp_next_head;	/* the next chain's, in ring order */
	uint16_t	 sp_batch;	/* where the open batch begins */
	bool		 sp_open;	/* its last chain was used completely */
	uint64_t	*sp_rooms;	/* bytes that may be written, by head */
};

#define	SP(pe)	((struct split_peer *)(pe))

static uint8_t *
used_event(struct split_peer *sp)
{

	return (sp->sp_avail + 4 + 2 * sp->sp_num);
}

static uint8_t *
avail_event(struct split_peer *sp)
{

	return (sp->sp_used + 4 + 8 * sp->sp_num);
}

/* Walk a table of n descriptors from index i, and add what it says to the chain. */
static void
split_walk(struct split_peer *sp, const uint8_t *table, unsigned int n, unsigned int i,
    struct peer_chain *pc)
{
	const uint8_t *d;
	unsigned int count, total;
	uint16_t flags;

	for (count = 0;; i = peek16(d + 14)) {
		CHECK(i < n, "next %u of %u", i, n);
		CHECK(count++ < n, "a loop");
		d = table + i * DESC_BYTES;
		flags = peek16(d + 12);
		if ((flags & DESC_INDIRECT) != 0) {
			CHECK(im_can(sp->sp_impl, IM_INDIRECT), "not negotiated");
			CHECK(table == sp->sp_desc && count == 1, "nested (2.7.5.3.1)");
			CHECK(flags == DESC_INDIRECT, "flags 0x%x", flags);
			CHECK(peek32(d + 8) % DESC_BYTES == 0 && peek32(d + 8) != 0, "length %u",
			    peek32(d + 8));
			split_walk(sp, (const uint8_t *)(uintptr_t)peek64(d),
			    peek32(d + 8) / DESC_BYTES, 0, pc);
			return;
		}
		total = pc->pr_nread + pc->pr_nwrite;
		CHECK(total < PEER_MAX_SEGS && total < sp->sp_num, "%u segments", total);
		pc->pr_segs[total].addr = peek64(d);
		pc->pr_segs[total].len = peek32(d + 8);
		if ((flags & DESC_WRITE) != 0) {
			pc->pr_nwrite++;
			pc->pr_wlen += peek32(d + 8);
		} else {
			CHECK(pc->pr_nwrite == 0, "read after write (2.7.4.2)");
			pc->pr_nread++;
		}
		CHECK((flags & ~(DESC_NEXT | DESC_WRITE)) == 0, "flags 0x%x", flags);
		if ((flags & DESC_NEXT) == 0)
			break;
	}
	CHECK(table == sp->sp_desc || count == n, "%u of a table of %u", count, n);
}

static bool
split_fetch(struct peer *pe, struct peer_chain *pc)
{
	struct split_peer *sp = SP(pe);
	uint16_t idx = get16(sp->sp_avail + 2);

	CHECK((uint16_t)(idx - sp->sp_last_avail) <= sp->sp_num, "avail.idx %u after %u", idx,
	    sp->sp_last_avail);
	CHECK(!im_can(sp->sp_impl, IM_EVENT) || get16(sp->sp_avail) == 0,
	    "flags beside an event index (2.7.7.1)");
	if (idx == sp->sp_last_avail)
		return (false);
	atomic_thread_fence_acq();
	pc->pr_id = peek16(sp->sp_avail + 4 + 2 * (sp->sp_last_avail % sp->sp_num));
	pc->pr_nread = pc->pr_nwrite = 0;
	pc->pr_wlen = 0;
	sp->sp_last_avail++;
	split_walk(sp, sp->sp_desc, sp->sp_num, pc->pr_id, pc);
	sp->sp_rooms[pc->pr_id] = pc->pr_wlen;
	if (im_can(sp->sp_impl, IM_IN_ORDER)) {
		/* 2.7.5: in ring order, with no gap and over the end. */
		CHECK(pc->pr_id == sp->sp_next_head, "head %u, not %u", pc->pr_id,
		    sp->sp_next_head);
		sp->sp_next_head = (pc->pr_id + (im_can(sp->sp_impl, IM_INDIRECT) ? 1 :
		    pc->pr_nread + pc->pr_nwrite)) % sp->sp_num;
	}
	return (true);
}

static void
split_complete(struct peer *pe, uint32_t id, uint32_t len)
{
	struct split_peer *sp = SP(pe);
	uint8_t *elem;

	/*
	 * In order, the element of a batch is where its first chain's would be, and names the last
	 * (2.7.9).  A chain can be skipped that was used completely.  What is in between is noise.
	 */
	if (!im_can(sp->sp_impl, IM_IN_ORDER) || !sp->sp_open)
		sp->sp_batch = sp->sp_used_idx;
	elem = sp->sp_used + 4 + 8 * (sp->sp_used_idx % sp->sp_num);
	put32(elem, UINT32_MAX);
	elem = sp->sp_used + 4 + 8 * (sp->sp_batch % sp->sp_num);
	put32(elem, id);
	put32(elem + 4, len);
	sp->sp_used_idx++;
	sp->sp_open = id < sp->sp_num && len == sp->sp_rooms[id];
}

static void
split_publish(struct peer *pe)
{
	struct split_peer *sp = SP(pe);

	sp->sp_open = false;
	atomic_thread_fence_rel();
	put16(sp->sp_used + 2, sp->sp_used_idx);
}

static bool
split_interrupts(struct peer *pe)
{
	struct split_peer *sp = SP(pe);
	uint16_t event, new, old;

	atomic_thread_fence_seq_cst();
	old = sp->sp_signalled;
	new = get16(sp->sp_used + 2);
	sp->sp_signalled = new;
	if (old == new)
		return (false);
	if (!im_can(sp->sp_impl, IM_EVENT))
		return ((get16(sp->sp_avail) & 1) == 0);
	/* 2.7.7.1: the index of the event is among the elements added, old to new - 1. */
	event = get16(used_event(sp));
	for (; old != new; old++) {
		if (old == event)
			return (true);
	}
	return (false);
}

static bool
split_listen(struct peer *pe)
{
	struct split_peer *sp = SP(pe);

	if (im_can(sp->sp_impl, IM_EVENT))
		put16(avail_event(sp), sp->sp_last_avail);
	else
		put16(sp->sp_used, 0);
	atomic_thread_fence_seq_cst();
	return (get16(sp->sp_avail + 2) != sp->sp_last_avail);
}

static void
split_ignore(struct peer *pe)
{
	struct split_peer *sp = SP(pe);

	if (im_can(sp->sp_impl, IM_EVENT))
		put16(avail_event(sp), sp->sp_last_avail + 0x8000);
	else
		put16(sp->sp_used, 1);
}

static bool
split_violate(struct peer *pe, enum peer_violation violation, const struct peer_chain *pc)
{
	struct split_peer *sp = SP(pe);

	switch (violation) {
	case VIOLATION_ID_RANGE:
		split_complete(pe, sp->sp_num, 0);
		break;
	case VIOLATION_ID_HUGE:
		split_complete(pe, UINT32_MAX, 0);
		break;
	case VIOLATION_ID_IDLE:
		split_complete(pe, (pc->pr_id + sp->sp_num / 2) % sp->sp_num, 0);
		break;
	case VIOLATION_ID_TWICE:
		split_complete(pe, pc->pr_id, 0);
		split_complete(pe, pc->pr_id, 0);
		break;
	case VIOLATION_ID_NOT_HEAD:
		if ((get16(sp->sp_desc + DESC_BYTES * pc->pr_id + 12) & DESC_NEXT) == 0)
			return (false);
		split_complete(pe, get16(sp->sp_desc + DESC_BYTES * pc->pr_id + 14), 0);
		break;
	case VIOLATION_LEN:
		split_complete(pe, pc->pr_id, pc->pr_wlen + 1);
		break;
	case VIOLATION_LEN_HUGE:
		split_complete(pe, pc->pr_id, UINT32_MAX);
		break;
	case VIOLATION_INDEX_AHEAD:
		sp->sp_used_idx += pvq_inflight(pe->pe_pvq) + 1;
		break;
	case VIOLATION_INDEX_FAR:
		sp->sp_used_idx += 0x8000;
		break;
	case VIOLATION_INDEX_BACK:
		sp->sp_used_idx--;
		break;
	default:
		return (false);
	}
	split_publish(pe);
	return (true);
}

static void
split_where(struct peer *pe, char *buf, size_t size)
{
	struct split_peer *sp = SP(pe);

	snprintf(buf, size, "avail.idx %u, flags %u, used_event %u; "
	    "used.idx %u, flags %u, avail_event %u; the device has taken %u",
	    get16(sp->sp_avail + 2), get16(sp->sp_avail), get16(used_event(sp)),
	    get16(sp->sp_used + 2), get16(sp->sp_used), get16(avail_event(sp)), sp->sp_last_avail);
}

/* The device may write anywhere it can reach; the driver must not care for more than the used ring. */
static void
split_scribble(struct peer *pe, uint32_t seed)
{
	struct split_peer *sp = SP(pe);
	uint32_t i;

	for (i = 0; i < DESC_BYTES * sp->sp_num; i++)
		sp->sp_desc[i] = peer_random(&seed);
	for (i = 0; i < 2 * (uint32_t)sp->sp_num; i++)
		sp->sp_avail[4 + i] = peer_random(&seed);
}

static const struct peer_ops split_peer_ops = {
	.po_fetch = split_fetch,
	.po_complete = split_complete,
	.po_publish = split_publish,
	.po_interrupts = split_interrupts,
	.po_listen = split_listen,
	.po_ignore = split_ignore,
	.po_violate = split_violate,
	.po_where = split_where,
	.po_scribble = split_scribble,
};

static void
split_notify(void *arg, uint16_t index, uint16_t next)
{
	struct peer *pe = arg;

	if (pe->pe_kick != NULL) {
		pe->pe_kick(pe);
		return;
	}
	CHECK(index == 3, "queue %u", index);
	CHECK(next == get16(SP(pe)->sp_avail + 2), "next %u (2.9)", next);
	pe->pe_kicks++;
}

static void
split_find(struct split_peer *sp)
{
	struct virtqueue_addrs addrs;

	virtqueue_addrs(sp->sp_peer.pe_pvq, &addrs);
	CHECK(addrs.vqa_desc % 16 == 0 && addrs.vqa_driver % 2 == 0 && addrs.vqa_device % 4 == 0,
	    "alignment (2.7)");
	CHECK(im_can(sp->sp_impl, IM_MODERN) || addrs.vqa_device % 4096 == 0, "alignment (2.7.2)");
	sp->sp_desc = (uint8_t *)(uintptr_t)addrs.vqa_desc;
	sp->sp_avail = (uint8_t *)(uintptr_t)addrs.vqa_driver;
	sp->sp_used = (uint8_t *)(uintptr_t)addrs.vqa_device;
	sp->sp_peer.pe_mem = addrs.vqa_desc;
	sp->sp_peer.pe_size = addrs.vqa_device - addrs.vqa_desc + 6 + 8 * sp->sp_num;
}

static int
split_create(const struct impl *im, uint16_t size, uint16_t max_segs, struct peer **pep)
{
	struct split_peer *sp = host_alloc(sizeof(*sp), sizeof(void *));
	struct virtqueue_params params = {
		.vqp_dev = kpi_device(),
		.vqp_name = "model",
		.vqp_dmat = kpi_dma_tag,
		.vqp_features = (im_can(im, IM_INDIRECT) ? VIRTIO_F_INDIRECT_DESC : 0) |
		    (im_can(im, IM_EVENT) ? VIRTIO_F_EVENT_IDX : 0) |
		    (im_can(im, IM_IN_ORDER) ? VIRTIO_F_IN_ORDER : 0) |
		    (im_can(im, IM_MODERN) ? VIRTIO_F_VERSION_1 : 0),
		.vqp_flags = im_can(im, IM_STRICT) ? VIRTQUEUE_STRICT_LENGTHS : 0,
		.vqp_index = 3,
		.vqp_size = size,
		.vqp_max_segs = max_segs,
		.vqp_table_segs = im_can(im, IM_SHORT) ? IM_SHORT_SEGS : 0,
		.vqp_align = im_can(im, IM_MODERN) ? VRING_USED_ALIGN : VRING_LEGACY_ALIGN,
		.vqp_notify = split_notify,
		.vqp_notify_arg = sp,
	};
	int error;

	memset(sp, 0, sizeof(*sp));
	sp->sp_peer.pe_ops = &split_peer_ops;
	sp->sp_impl = im;
	sp->sp_num = size;
	sp->sp_max_segs = max_segs;
	error = virtqueue_create(&params, &sp->sp_peer.pe_pvq);
	if (error != 0) {
		host_free(sp);
		return (error);
	}
	sp->sp_rooms = host_alloc(size * sizeof(*sp->sp_rooms), sizeof(void *));
	split_find(sp);
	*pep = &sp->sp_peer;
	return (0);
}

/* The device was reset: it begins at index 0. */
static void
split_reset(struct peer *pe)
{
	struct split_peer *sp = SP(pe);

	sp->sp_last_avail = sp->sp_used_idx = sp->sp_signalled = 0;
	sp->sp_next_head = 0;
	sp->sp_open = false;
}

static void
split_destroy(struct peer *pe)
{

	pvq_free(pe->pe_pvq);
	host_free(SP(pe)->sp_rooms);
	host_free(pe);
}

static uint32_t
split_reported(const struct pvq_done *done)
{

	return (virtqueue_done_len(done));
}

/* A device that was reset touches nothing: all that it wrote arrives. */
static void
split_quiesce(struct peer *pe __unused)
{

	kpi_dma_arrives();
}

struct peer *
split_peer(const struct impl *im, struct pvq *q)
{
	struct split_peer *sp;

	sp = host_alloc(sizeof(*sp) + q->q_size * sizeof(*sp->sp_rooms), sizeof(void *));
	memset(sp, 0, sizeof(*sp));
	sp->sp_peer.pe_ops = &split_peer_ops;
	sp->sp_peer.pe_pvq = q;
	sp->sp_impl = im;
	sp->sp_num = q->q_size;
	sp->sp_max_segs = q->q_max_segs;
	sp->sp_rooms = (uint64_t *)(sp + 1);
	split_find(sp);
	return (&sp->sp_peer);
}

static const uint16_t split_sizes[] = { 1, 2, 4096, 32768, 0 };
static const uint16_t split_no_sizes[] = { 3, 12, 1000, 32769, 65535, 0 };

#define	SPLIT(name, flags) {						\
	.im_name = (name),						\
	.im_flags = (flags) | IM_LENGTHS | IM_EXACT | IM_SEG_SLOTS |	\
	    (((flags) & IM_IN_ORDER) != 0 ? 0 : IM_ANY_ORDER),		\
	.im_sizes = split_sizes,					\
	.im_no_sizes = split_no_sizes,					\
	.im_create = split_create,					\
	.im_reported = split_reported,					\
	.im_quiesce = split_quiesce,					\
	.im_reset = split_reset,					\
	.im_destroy = split_destroy,					\
}

const struct impl split_impls[] = {
	SPLIT("split", IM_MODERN),
	SPLIT("split_strict", IM_MODERN | IM_STRICT),
	SPLIT("split_indirect", IM_MODERN | IM_INDIRECT),
	SPLIT("split_event", IM_MODERN | IM_EVENT),
	SPLIT("split_indirect_event", IM_MODERN | IM_STRICT | IM_INDIRECT | IM_EVENT),
	SPLIT("split_in_order", IM_MODERN | IM_IN_ORDER),
	SPLIT("split_in_order_strict_indirect_event", IM_MODERN | IM_IN_ORDER | IM_STRICT |
	    IM_INDIRECT | IM_EVENT),
	SPLIT("split_legacy", IM_STRICT),
	SPLIT("split_legacy_indirect_event", IM_INDIRECT | IM_EVENT),
	SPLIT("split_short_tables_event", IM_MODERN | IM_INDIRECT | IM_EVENT | IM_SHORT),
	{ .im_name = NULL }
};
