/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A back end's side of a grant ring, for tests.
 *
 * Written against xen/io/ring.h, with offsets of its own.  Its protocols are the tests', in three
 * shapes that are those of Xen's:
 *
 *	blk	a chain is one message of 112 bytes, answered by 16, with an id of 64 bits
 *	net	a chain is a message of 12 bytes for each segment, answered by 4, with an id of 16
 *		bits; the second message of a chain has no id, as an extra info has none
 *	rx	as net, but answers of 8 bytes come in the order of the messages, and say nothing of
 *		ids
 *
 * A slot is made larger than that where a test needs a ring with few of them.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/xen/grant_ring.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "model/grant_peer.h"
#include "model/grant_table.h"
#include "model/peer.h"

#define	RING_HEADER	64
#define	MAX_MSGS	32
#define	MAX_SEGS	6		/* what fits into blk's message */

#define	NULL_STATUS	0x7fff
#define	NO_ID		0xbeef		/* in place of an id, and left as it is */

/* The header of a ring, in words. */
enum { REQ_PROD, REQ_EVENT, RSP_PROD, RSP_EVENT };

struct blk_msg {
	uint8_t		 bm_nread;
	uint8_t		 bm_nwrite;
	uint8_t		 bm_pad[6];
	uint64_t	 bm_id;
	struct {
		uint32_t ref;
		uint32_t offset;
		uint32_t len;
	} bm_segs[MAX_SEGS];
	uint8_t		 bm_pad2[24];
};
_Static_assert(sizeof(struct blk_msg) == 112, "struct blkif_request");

/* Xen's begin with the id: anywhere else, an offset that is lost is seen. */
struct blk_rsp {
	uint32_t	 br_len;
	uint32_t	 br_pad;
	uint64_t	 br_id;
};

struct net_msg {
	uint32_t	 nm_ref;
	uint16_t	 nm_offset;
	uint16_t	 nm_flags;
#define	NM_MORE		0x1
#define	NM_WRITE	0x2
#define	NM_NOID		0x4
	uint16_t	 nm_id;
	uint16_t	 nm_len;
};
_Static_assert(sizeof(struct net_msg) == 12, "struct netif_tx_request");

struct net_rsp {
	uint16_t	 nr_len;
	uint16_t	 nr_id;
};

struct rx_rsp {
	uint32_t	 rr_garbage;
	uint32_t	 rr_len;
};

struct grant_shape {
	uint16_t	 gs_req_size;
	uint16_t	 gs_rsp_size;
	uint16_t	 gs_id_size;
	uint16_t	 gs_req_id;
	uint16_t	 gs_rsp_id;
	uint16_t	 gs_align;
	bool		 gs_messages;	/* one for each segment */
	bool		 gs_inorder;
	u_int		 gs_order;	/* pages, if the size allows */
	uint32_t	 gs_start;	/* where indices begin */
};

/* A chain that was fetched, found by its first id. */
struct grant_rec {
	bool		 gc_busy;
	int		 gc_nmsgs;
	uint32_t	 gc_ids[MAX_MSGS];	/* NO_ID: none */
	int		 gc_nsegs;
	grant_ref_t	 gc_refs[MAX_MSGS];
};

struct grant_peer {
	struct peer	 gp_peer;	/* first */
	const struct impl *gp_impl;
	const struct grant_shape *gp_shape;
	uint32_t	*gp_ring;
	size_t		 gp_slot;	/* bytes */
	uint32_t	 gp_num;
	uint32_t	 gp_req_cons;
	uint32_t	 gp_rsp_prod;	/* what will be published */
	uint32_t	 gp_signalled;	/* at the last po_interrupts */
	uint32_t	 gp_completed;	/* chains, as q_completed counts them */
	uint32_t	*gp_starts;	/* gp_rsp_prod at each of the last gp_num completions */
	struct grant_rec *gp_recs;
	grant_ref_t	 gp_refs[1 << GRANT_RING_MAX_ORDER];
	int		 gp_nrefs;
};

#define	GP(pe)	((struct grant_peer *)(pe))

static uint32_t
ring_load(const struct grant_peer *gp, int word)
{

	return (*(const volatile uint32_t *)&gp->gp_ring[word]);
}

static void
ring_store(struct grant_peer *gp, int word, uint32_t value)
{

	*(volatile uint32_t *)&gp->gp_ring[word] = value;
}

static uint8_t *
slot_of(const struct grant_peer *gp, uint32_t index)
{

	return ((uint8_t *)gp->gp_ring + RING_HEADER + index % gp->gp_num * gp->gp_slot);
}

/* Map a segment and add it to the chain. */
static void
peer_segment(struct grant_rec *gc, struct peer_chain *pc, grant_ref_t ref, uint32_t offset,
    uint32_t len, bool write)
{
	int total = pc->pr_nread + pc->pr_nwrite;
	vm_paddr_t pa;

	CHECK(total < MAX_MSGS, "%d segments", total);
	CHECK(len > 0 && offset + len <= PAGE_SIZE, "%u bytes at %u", len, offset);
	pa = gnt_map(ref, GRANT_DOMID, write);
	CHECK((pa & PAGE_MASK) == offset, "offset %u of 0x%lx", offset, pa);
	pc->pr_segs[total].addr = pa;
	pc->pr_segs[total].len = len;
	if (write) {
		pc->pr_nwrite++;
		pc->pr_wlen += len;
	} else {
		CHECK(pc->pr_nwrite == 0, "read after write");
		pc->pr_nread++;
	}
	gc->gc_refs[gc->gc_nsegs++] = ref;
}

static struct grant_rec *
peer_record(struct grant_peer *gp, uint32_t id)
{
	struct grant_rec *gc;

	CHECK(id < gp->gp_num, "id %u", id);
	gc = &gp->gp_recs[id];
	CHECK(!gc->gc_busy, "id %u twice", id);
	memset(gc, 0, sizeof(*gc));
	gc->gc_busy = true;
	return (gc);
}

static void
blk_fetch(struct grant_peer *gp, struct peer_chain *pc)
{
	struct grant_rec *gc;
	struct blk_msg msg;
	int i;

	memcpy(&msg, slot_of(gp, gp->gp_req_cons++), sizeof(msg));
	gc = peer_record(gp, msg.bm_id);
	pc->pr_id = gc->gc_ids[gc->gc_nmsgs++] = msg.bm_id;
	for (i = 0; i < msg.bm_nread + msg.bm_nwrite; i++)
		peer_segment(gc, pc, msg.bm_segs[i].ref, msg.bm_segs[i].offset,
		    msg.bm_segs[i].len, i >= msg.bm_nread);
}

static void
net_fetch(struct grant_peer *gp, struct peer_chain *pc, uint32_t prod)
{
	struct grant_rec *gc = NULL;
	struct net_msg msg;

	do {
		CHECK(gp->gp_req_cons != prod, "half a chain");
		memcpy(&msg, slot_of(gp, gp->gp_req_cons), sizeof(msg));
		CHECK((msg.nm_flags & NM_NOID) == 0 || msg.nm_id == NO_ID, "id 0x%x", msg.nm_id);
		CHECK(!gp->gp_shape->gs_inorder || (msg.nm_flags & NM_NOID) != 0 ||
		    msg.nm_id == gp->gp_req_cons % gp->gp_num, "id %u in slot %u", msg.nm_id,
		    gp->gp_req_cons);
		if (gc == NULL) {
			gc = peer_record(gp, msg.nm_id);
			pc->pr_id = msg.nm_id;
		}
		gc->gc_ids[gc->gc_nmsgs++] = msg.nm_id;
		peer_segment(gc, pc, msg.nm_ref, msg.nm_offset, msg.nm_len,
		    (msg.nm_flags & NM_WRITE) != 0);
		gp->gp_req_cons++;
	} while ((msg.nm_flags & NM_MORE) != 0);
}

static bool
grant_fetch(struct peer *pe, struct peer_chain *pc)
{
	struct grant_peer *gp = GP(pe);
	uint32_t prod = ring_load(gp, REQ_PROD);

	atomic_thread_fence_acq();
	CHECK(prod - gp->gp_rsp_prod <= gp->gp_num, "req_prod %u after %u", prod, gp->gp_rsp_prod);
	CHECK(prod - gp->gp_req_cons <= gp->gp_num, "req_prod %u after %u", prod, gp->gp_req_cons);
	if (prod == gp->gp_req_cons)
		return (false);
	pc->pr_nread = pc->pr_nwrite = 0;
	pc->pr_wlen = 0;
	if (gp->gp_shape->gs_messages)
		net_fetch(gp, pc, prod);
	else
		blk_fetch(gp, pc);
	return (true);
}

void
grant_peer_respond(struct peer *pe, uint64_t id, uint32_t len)
{
	struct grant_peer *gp = GP(pe);
	struct blk_rsp blk = { .br_id = id, .br_len = len };
	struct net_rsp net = { .nr_id = id, .nr_len = len };
	struct rx_rsp rx = { .rr_garbage = 0xdeadbeef, .rr_len = len };
	uint8_t *slot = slot_of(gp, gp->gp_rsp_prod++);

	if (!gp->gp_shape->gs_messages)
		memcpy(slot, &blk, sizeof(blk));
	else if (gp->gp_shape->gs_inorder)
		memcpy(slot, &rx, sizeof(rx));
	else
		memcpy(slot, &net, sizeof(net));
}

void
grant_peer_respond_null(struct peer *pe)
{

	grant_peer_respond(pe, NO_ID, NULL_STATUS);
}

static void
peer_unmap(struct grant_rec *gc)
{
	int i;

	for (i = 0; i < gc->gc_nsegs; i++)
		gnt_unmap(gc->gc_refs[i]);
	gc->gc_busy = false;
}

/* An id that no fetched chain has is answered all the same: some tests want that. */
static void
grant_complete(struct peer *pe, uint32_t id, uint32_t len)
{
	struct grant_peer *gp = GP(pe);
	struct grant_rec *gc = &gp->gp_recs[id % gp->gp_num];
	int i;

	gp->gp_starts[gp->gp_completed++ % gp->gp_num] = gp->gp_rsp_prod;
	if (!gc->gc_busy) {
		grant_peer_respond(pe, id, len);
		return;
	}
	CHECK(!gp->gp_shape->gs_inorder || gp->gp_rsp_prod % gp->gp_num == id, "out of order");
	peer_unmap(gc);
	for (i = 0; i < gc->gc_nmsgs; i++) {
		CHECK(gp->gp_req_cons != gp->gp_rsp_prod, "more responses than requests");
		if (gc->gc_ids[i] == NO_ID)
			grant_peer_respond_null(pe);
		else
			grant_peer_respond(pe, gc->gc_ids[i], len);
	}
}

static void
grant_publish(struct peer *pe)
{
	struct grant_peer *gp = GP(pe);

	atomic_thread_fence_rel();
	ring_store(gp, RSP_PROD, gp->gp_rsp_prod);
}

static bool
grant_interrupts(struct peer *pe)
{
	struct grant_peer *gp = GP(pe);
	uint32_t event, new, old;

	atomic_thread_fence_seq_cst();
	old = gp->gp_signalled;
	gp->gp_signalled = new = ring_load(gp, RSP_PROD);
	event = ring_load(gp, RSP_EVENT);
	for (; old != new; old++) {
		if (old + 1 == event)
			return (true);
	}
	return (false);
}

static bool
grant_listen(struct peer *pe)
{
	struct grant_peer *gp = GP(pe);

	ring_store(gp, REQ_EVENT, gp->gp_req_cons + 1);
	atomic_thread_fence_seq_cst();
	return (ring_load(gp, REQ_PROD) != gp->gp_req_cons);
}

static void
grant_ignore(struct peer *pe)
{
	struct grant_peer *gp = GP(pe);

	ring_store(gp, REQ_EVENT, gp->gp_req_cons + 0x80000000);
}

static bool
grant_violate(struct peer *pe, enum peer_violation violation, const struct peer_chain *pc)
{
	struct grant_peer *gp = GP(pe);

	switch (violation) {
	case VIOLATION_ID_RANGE:
		grant_peer_respond(pe, gp->gp_num, 0);
		break;
	case VIOLATION_ID_HUGE:
		grant_peer_respond(pe, UINT64_MAX, 0);
		break;
	case VIOLATION_ID_IDLE:
		grant_peer_respond(pe, (pc->pr_id + gp->gp_num / 2) % gp->gp_num, 0);
		break;
	case VIOLATION_ID_TWICE:
		grant_complete(pe, pc->pr_id, 0);
		grant_peer_respond(pe, pc->pr_id, 0);
		break;
	case VIOLATION_INDEX_AHEAD:
		gp->gp_rsp_prod = ring_load(gp, REQ_PROD) + 1;
		break;
	case VIOLATION_INDEX_FAR:
		gp->gp_rsp_prod += 0x80000000;
		break;
	case VIOLATION_INDEX_BACK:
		gp->gp_rsp_prod--;
		break;
	default:
		return (false);
	}
	grant_publish(pe);
	return (true);
}

static void
grant_where(struct peer *pe, char *buf, size_t size)
{
	struct grant_peer *gp = GP(pe);

	snprintf(buf, size, "req_prod %u, rsp_event %u; rsp_prod %u, req_event %u; "
	    "the back end has taken %u",
	    ring_load(gp, REQ_PROD), ring_load(gp, RSP_EVENT), ring_load(gp, RSP_PROD),
	    ring_load(gp, REQ_EVENT), gp->gp_req_cons);
}

/* All but the responses that the driver has not collected, and what would only be a wrong index. */
static void
grant_scribble(struct peer *pe, uint32_t seed)
{
	struct grant_peer *gp = GP(pe);
	uint32_t i, unread;
	uint8_t *slot;
	size_t j;

	unread = gp->gp_completed == pe->pe_pvq->q_completed ? gp->gp_rsp_prod :
	    gp->gp_starts[pe->pe_pvq->q_completed % gp->gp_num];
	for (i = gp->gp_rsp_prod; i != unread + gp->gp_num; i++) {
		slot = slot_of(gp, i);
		for (j = 0; j < gp->gp_slot; j++)
			slot[j] = peer_random(&seed);
	}
	for (i = RSP_EVENT + 1; i < RING_HEADER / sizeof(uint32_t); i++)
		ring_store(gp, i, peer_random(&seed));
}

static const struct peer_ops grant_peer_ops = {
	.po_fetch = grant_fetch,
	.po_complete = grant_complete,
	.po_publish = grant_publish,
	.po_interrupts = grant_interrupts,
	.po_listen = grant_listen,
	.po_ignore = grant_ignore,
	.po_violate = grant_violate,
	.po_where = grant_where,
	.po_scribble = grant_scribble,
};

/* What a driver does: formats the messages, from references. */
static void
grant_encode(const struct grant_peer *gp, struct pvq_chain *pc)
{
	const bus_dma_segment_t *ds = pc->pc_segs;
	const struct grant_msgs *gm = pc->pc_arg;
	struct blk_msg *blk = gm->gm_msgs;
	struct net_msg *net;
	int i, n = pc->pc_nread + pc->pc_nwrite;

	for (i = 0; i < n; i++, ds++) {
		if (!gp->gp_shape->gs_messages) {
			blk->bm_nread = pc->pc_nread;
			blk->bm_nwrite = pc->pc_nwrite;
			blk->bm_segs[i].ref = ds->ds_addr >> PAGE_SHIFT;
			blk->bm_segs[i].offset = ds->ds_addr & PAGE_MASK;
			blk->bm_segs[i].len = ds->ds_len;
			continue;
		}
		net = (struct net_msg *)((char *)gm->gm_msgs + i * sizeof(*net));
		*net = (struct net_msg){
			.nm_ref = ds->ds_addr >> PAGE_SHIFT,
			.nm_offset = ds->ds_addr & PAGE_MASK,
			.nm_flags = (i + 1 < n ? NM_MORE : 0) |
			    (i >= pc->pc_nread ? NM_WRITE : 0) |
			    ((gm->gm_noid & (1U << i)) != 0 ? NM_NOID : 0),
			.nm_id = NO_ID,
			.nm_len = ds->ds_len,
		};
	}
}

/* A reference for each segment's page, in the place of its number. */
static void
grant_share(struct peer *pe, struct pvq_chain *pc)
{
	bus_dma_segment_t *ds;
	grant_ref_t ref;
	int error, i;

	for (i = 0; i < pc->pc_nread + pc->pc_nwrite; i++) {
		ds = &pc->pc_segs[i];
		CHECK((ds->ds_addr & PAGE_MASK) + ds->ds_len <= PAGE_SIZE,
		    "segment %d crosses a page", i);
		error = xen_gnttab_alloc(&ref, 1);
		CHECK(error == 0, "no reference: error %d", error);
		xen_gnttab_grant(ref, GRANT_DOMID, ds->ds_addr, i < pc->pc_nread);
		ds->ds_addr = ((bus_addr_t)ref << PAGE_SHIFT) | (ds->ds_addr & PAGE_MASK);
	}
	grant_encode(GP(pe), pc);
}

static int
grant_unshare(struct peer *pe __unused, const bus_dma_segment_t *segs, int nsegs)
{
	grant_ref_t ref;
	int held = 0, i;

	for (i = 0; i < nsegs; i++) {
		ref = segs[i].ds_addr >> PAGE_SHIFT;
		held += xen_gnttab_end(&ref, 1);
	}
	return (held);
}

static void
grant_chain(struct peer *pe, struct pvq_chain *pc)
{
	struct grant_peer *gp = GP(pe);
	u_int n = gp->gp_shape->gs_messages ? pc->pc_nread + pc->pc_nwrite : 1;
	struct grant_msgs *gm;
	size_t size = n * gp->gp_shape->gs_req_size;

	/* Exactly what there is, that ASan sees a step beyond. */
	gm = host_alloc(sizeof(*gm) + size, sizeof(uint64_t));
	gm->gm_msgs = gm + 1;
	gm->gm_n = n;
	gm->gm_noid = gp->gp_shape->gs_messages && !gp->gp_shape->gs_inorder && n > 1 ? 2 : 0;
	memset(gm->gm_msgs, 0x5a, size);
	pc->pc_arg = gm;
}

static void
grant_notify(struct xen_evtchn *arg)
{
	struct peer *pe = (struct peer *)(void *)arg;

	if (pe->pe_kick != NULL)
		pe->pe_kick(pe);
	else
		pe->pe_kicks++;
}

/* The slot that makes a ring of 1 << order pages have num of them, or 0. */
static size_t
slot_for(const struct grant_shape *gs, u_int order, uint16_t num)
{
	size_t slot;

	if (num == 0)
		return (0);
	slot = rounddown2((ptoa(1 << order) - RING_HEADER) / num, gs->gs_align);
	if (slot < MAX(gs->gs_req_size, gs->gs_rsp_size) || slot > PAGE_SIZE / 2 ||
	    grant_ring_size(order, slot) != num)
		return (0);
	return (slot);
}

/* Pages and slots for a ring of size; if there are none, such as will be refused. */
static void
fit(const struct grant_shape *gs, uint16_t size, struct grant_ring_params *params)
{
	size_t slot = 0;
	int order;

	for (order = gs->gs_order; order <= GRANT_RING_MAX_ORDER && slot == 0; order++)
		slot = slot_for(gs, params->grp_order = order, size);
	for (order = gs->gs_order; order >= 0 && slot == 0; order--)
		slot = slot_for(gs, params->grp_order = order, size);
	/*
	 * The slot is as large as the larger of the two: the response, that requests need not be
	 * padded.  What is copied out of the ring then reaches to the slot's end.
	 */
	params->grp_req_size = gs->gs_req_size;
	params->grp_rsp_size = slot;
	if (slot == 0)
		params->grp_order = size == 0 ? 0 : GRANT_RING_MAX_ORDER + 1;
}

static void
grant_find(struct grant_peer *gp)
{
	vm_paddr_t first = 0, pa;
	int i;

	gp->gp_nrefs = grant_ring_refs(gp->gp_peer.pe_pvq, gp->gp_refs);
	for (i = 0; i < gp->gp_nrefs; i++) {
		pa = gnt_map(gp->gp_refs[i], GRANT_DOMID, true);
		if (i == 0)
			first = pa;
		CHECK(pa % PAGE_SIZE == 0 && pa == first + ptoa(i), "page %d at 0x%lx", i, pa);
	}
	gp->gp_ring = (uint32_t *)(uintptr_t)first;
	gp->gp_peer.pe_mem = first;
	gp->gp_peer.pe_size = ptoa(gp->gp_nrefs);
}

/* A new ring: all begins anew, wherever the tests want it to. */
static void
grant_reset(struct peer *pe)
{
	struct grant_peer *gp = GP(pe);

	memset(gp->gp_recs, 0, gp->gp_num * sizeof(gp->gp_recs[0]));
	CHECK(ring_load(gp, REQ_PROD) == 0 && ring_load(gp, RSP_PROD) == 0 &&
	    ring_load(gp, REQ_EVENT) == 1 && ring_load(gp, RSP_EVENT) == 1, "not a new ring");
	gp->gp_req_cons = gp->gp_rsp_prod = gp->gp_signalled = gp->gp_completed =
	    rounddown2(gp->gp_shape->gs_start, gp->gp_num);
	grant_ring_wind(pe->pe_pvq, gp->gp_req_cons);
}

static int
grant_create(const struct impl *im, uint16_t size, uint16_t max_segs, struct peer **pep)
{
	struct grant_peer *gp = host_alloc(sizeof(*gp), sizeof(void *));
	const struct grant_shape *gs = im->im_arg;
	struct grant_ring_params params = {
		.grp_dev = kpi_device(),
		.grp_name = "model",
		.grp_otherend = GRANT_DOMID,
		.grp_max_segs = max_segs,
		.grp_max_msgs = gs->gs_messages ? MIN(max_segs, MAX_MSGS) : 0,
		.grp_flags = gs->gs_inorder ? GRANT_RING_F_INORDER : 0,
		.grp_id_size = gs->gs_id_size,
		.grp_req_id = gs->gs_req_id,
		.grp_rsp_id = gs->gs_rsp_id,
		.grp_null = gs->gs_messages && !gs->gs_inorder,
		.grp_null_off = offsetof(struct net_rsp, nr_len),
		.grp_null_value = NULL_STATUS,
		.grp_notify = grant_notify,
		.grp_notify_arg = (struct xen_evtchn *)(void *)gp,
	};
	int error;

	memset(gp, 0, sizeof(*gp));
	gp->gp_peer.pe_ops = &grant_peer_ops;
	gp->gp_impl = im;
	gp->gp_shape = gs;
	gp->gp_num = size;
	fit(gs, size, &params);
	gp->gp_slot = params.grp_rsp_size;
	error = grant_ring_create(&params, &gp->gp_peer.pe_pvq);
	if (error != 0) {
		host_free(gp);
		CHECK(gnt_in_use() == 0, "%u references leak", gnt_in_use());
		return (error);
	}
	CHECK(gp->gp_peer.pe_pvq->q_size == size, "%u slots", gp->gp_peer.pe_pvq->q_size);
	gp->gp_recs = host_alloc(size * sizeof(gp->gp_recs[0]), sizeof(void *));
	gp->gp_starts = host_alloc(size * sizeof(gp->gp_starts[0]), sizeof(void *));
	grant_find(gp);
	grant_reset(&gp->gp_peer);
	*pep = &gp->gp_peer;
	return (0);
}

static void
grant_quiesce(struct peer *pe)
{
	struct grant_peer *gp = GP(pe);
	uint32_t i;

	for (i = 0; i < gp->gp_num; i++) {
		if (gp->gp_recs[i].gc_busy)
			peer_unmap(&gp->gp_recs[i]);
	}
}

static void
grant_destroy(struct peer *pe)
{
	struct grant_peer *gp = GP(pe);
	int i;

	for (i = 0; i < gp->gp_nrefs; i++)
		gnt_unmap(gp->gp_refs[i]);
	pvq_free(pe->pe_pvq);
	CHECK(gnt_in_use() == 0, "%u references leak", gnt_in_use());
	host_free(gp->gp_recs);
	host_free(gp->gp_starts);
	host_free(gp);
}

int
grant_peer_ids(struct peer *pe, uint32_t id, uint32_t *ids)
{
	const struct grant_rec *gc = &GP(pe)->gp_recs[id];
	int i, n;

	CHECK(gc->gc_busy, "id %u was not fetched", id);
	for (i = n = 0; i < gc->gc_nmsgs; i++) {
		if (gc->gc_ids[i] != NO_ID)
			ids[n++] = gc->gc_ids[i];
	}
	return (n);
}

uint8_t *
grant_peer_last_id(struct peer *pe)
{
	struct grant_peer *gp = GP(pe);

	return (slot_of(gp, gp->gp_rsp_prod - 1) + gp->gp_shape->gs_rsp_id);
}

const uint8_t *
grant_peer_id_of(struct peer *pe, const void *response)
{

	return ((const uint8_t *)response + GP(pe)->gp_shape->gs_rsp_id);
}

int
grant_peer_hold(struct peer *pe, uint32_t id, uint32_t *refs)
{
	struct grant_rec *gc = &GP(pe)->gp_recs[id];

	CHECK(gc->gc_busy, "id %u was not fetched", id);
	memcpy(refs, gc->gc_refs, gc->gc_nsegs * sizeof(refs[0]));
	gc->gc_busy = false;
	return (gc->gc_nsegs);
}

static uint32_t
blk_reported(const struct pvq_done *done)
{

	return (((const struct blk_rsp *)grant_ring_response(done))->br_len);
}

static uint32_t
net_reported(const struct pvq_done *done)
{

	return (((const struct net_rsp *)grant_ring_response(done))->nr_len);
}

static uint32_t
rx_reported(const struct pvq_done *done)
{

	return (((const struct rx_rsp *)grant_ring_response(done))->rr_len);
}

#define	BLK(order, start) (&(const struct grant_shape){			\
	.gs_req_size = sizeof(struct blk_msg),				\
	.gs_rsp_size = sizeof(struct blk_rsp),				\
	.gs_id_size = sizeof(uint64_t),					\
	.gs_req_id = offsetof(struct blk_msg, bm_id),			\
	.gs_rsp_id = offsetof(struct blk_rsp, br_id),			\
	.gs_align = sizeof(uint64_t),					\
	.gs_order = (order),						\
	.gs_start = (start),						\
})

#define	NET(inorder, rsp, order, start) (&(const struct grant_shape){	\
	.gs_req_size = sizeof(struct net_msg),				\
	.gs_rsp_size = sizeof(struct rsp),				\
	.gs_id_size = sizeof(uint16_t),					\
	.gs_req_id = offsetof(struct net_msg, nm_id),			\
	.gs_rsp_id = offsetof(struct net_rsp, nr_id),			\
	.gs_align = sizeof(uint32_t),					\
	.gs_messages = true,						\
	.gs_inorder = (inorder),					\
	.gs_order = (order),						\
	.gs_start = (start),						\
})

static const uint16_t blk_sizes[] = { 2, 32, 512, 0 };
static const uint16_t net_sizes[] = { 2, 256, 4096, 0 };
/* A slot has no more than half a page, and a ring no more than 16 pages. */
static const uint16_t grant_no_sizes[] = { 1, 8192, 32768, 65535, 0 };

#define	GRANT(name, shape, flags, sizes, reported) {		\
	.im_name = (name),						\
	.im_flags = IM_EVENT | (flags),					\
	.im_sizes = (sizes),						\
	.im_no_sizes = grant_no_sizes,					\
	.im_arg = (shape),						\
	.im_create = grant_create,					\
	.im_chain = grant_chain,					\
	.im_share = grant_share,					\
	.im_unshare = grant_unshare,					\
	.im_reported = (reported),					\
	.im_quiesce = grant_quiesce,					\
	.im_reset = grant_reset,					\
	.im_destroy = grant_destroy,					\
}

#define	BLK_FLAGS	(IM_ANY_ORDER | IM_EXACT)
#define	NET_FLAGS	(IM_ANY_ORDER | IM_SEG_SLOTS | IM_MSGS)

/* Where an index has its sign change, and where it begins again. */
#define	BEFORE_SIGN	0x7fffffc0U
#define	BEFORE_WRAP	0xffffffc0U

const struct impl grant_impls[] = {
	GRANT("grant_blk", BLK(0, 0), BLK_FLAGS, blk_sizes, blk_reported),
	GRANT("grant_blk_pages", BLK(3, BEFORE_WRAP), BLK_FLAGS, blk_sizes, blk_reported),
	GRANT("grant_net", NET(false, net_rsp, 0, 0), NET_FLAGS, net_sizes, net_reported),
	GRANT("grant_net_pages", NET(false, net_rsp, 2, BEFORE_WRAP), NET_FLAGS, net_sizes,
	    net_reported),
	GRANT("grant_rx", NET(true, rx_rsp, 0, 0), IM_SEG_SLOTS, net_sizes, rx_reported),
	GRANT("grant_rx_pages", NET(true, rx_rsp, 1, BEFORE_SIGN), IM_SEG_SLOTS, net_sizes,
	    rx_reported),
	{ .im_name = NULL }
};
