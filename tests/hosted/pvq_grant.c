/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What only grant rings have: references that may be held or run out, messages of which each is
 * answered, answers that say nothing, and pages of Xen's sizes.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/xen/grant_ring.h>
#include <dev/xen/xen_var.h>
#include <xen/io/ring.h>
#include <xen/io/blkif.h>
#include <xen/io/netif.h>

#include "model/grant_peer.h"
#include "model/grant_table.h"
#include "pvq_fixture.h"

static void
rings_are_as_large_as_xens(const struct impl *im __unused)
{
	u_int order;

	for (order = 0; order <= GRANT_RING_MAX_ORDER; order++) {
		CHECK(grant_ring_size(order, MAX(sizeof(struct blkif_request),
		    sizeof(struct blkif_response))) == __CONST_RING_SIZE(blkif, PAGE_SIZE << order),
		    "blkif, order %u", order);
		CHECK(grant_ring_size(order, MAX(sizeof(struct netif_tx_request),
		    sizeof(struct netif_tx_response))) ==
		    __CONST_RING_SIZE(netif_tx, PAGE_SIZE << order), "netif_tx, order %u", order);
		CHECK(grant_ring_size(order, MAX(sizeof(struct netif_rx_request),
		    sizeof(struct netif_rx_response))) ==
		    __CONST_RING_SIZE(netif_rx, PAGE_SIZE << order), "netif_rx, order %u", order);
	}
}

static void
absurd_params_are_refused(const struct impl *im __unused)
{
	const struct grant_ring_params good = {
		.grp_dev = kpi_device(), .grp_name = "bad", .grp_otherend = GRANT_DOMID,
		.grp_max_segs = 1, .grp_req_size = 16, .grp_rsp_size = 8, .grp_id_size = 2,
		.grp_req_id = 14, .grp_rsp_id = 6,
	};
	struct grant_ring_params bad[13];
	struct pvq *q;
	u_int i;

	for (i = 0; i < nitems(bad); i++)
		bad[i] = good;
	bad[0].grp_order = GRANT_RING_MAX_ORDER + 1;
	bad[1].grp_max_segs = 0;
	bad[2].grp_req_size = 0;
	bad[3].grp_rsp_size = 0;
	bad[4].grp_req_size = PAGE_SIZE / 2 + 8;
	bad[5].grp_rsp_size = PAGE_SIZE / 2 + 8;
	bad[6].grp_id_size = 3;
	bad[7].grp_id_size = 0;
	bad[8].grp_req_id = 15;
	bad[9].grp_rsp_id = 7;
	bad[10].grp_max_msgs = 33;
	bad[11].grp_null = true;
	bad[11].grp_null_off = 7;
	bad[12].grp_flags = GRANT_RING_F_INORDER;
	bad[12].grp_req_id = 15;
	for (i = 0; i < nitems(bad); i++)
		CHECK(grant_ring_create(&bad[i], &q) == EINVAL, "params %u", i);
	/* Ids may be of 4 bytes, too, though no protocol has such. */
	bad[0] = good;
	bad[0].grp_id_size = 4;
	bad[0].grp_req_id = 12;
	bad[0].grp_rsp_id = 4;
	CHECK(grant_ring_create(&bad[0], &q) == 0, "ids of 4 bytes");
	pvq_free(q);
	CHECK(kpi_mallocs == 0 && gnt_in_use() == 0, "leak");
	CHECK(grant_ring_create(&good, &q) == 0, "good ones");
	pvq_free(q);
	gnt_fail_after = 1;
	CHECK(grant_ring_create(&good, &q) == ENOSPC, "no references");
	CHECK(kpi_mallocs == 0 && gnt_in_use() == 0, "leak");
}

static void
held_pages_are_told(const struct impl *im)
{
	struct pvq_done done;
	struct fix_shared *fs;
	struct peer_chain pr;
	uint32_t ids[FIX_MAX_SEGS], refs[FIX_MAX_SEGS];
	struct fix f;
	int held, i, n, nids;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	fix_post(&f, 1, 1, 2);
	fix_fetch(&f, &pr, 1, 1, 2);
	nids = grant_peer_ids(f.pe, pr.pr_id, ids);
	n = grant_peer_hold(f.pe, pr.pr_id, refs);
	CHECK(n == 3, "%d references", n);
	/* The peer answers, and keeps what it has mapped. */
	for (i = 0; i < nids; i++)
		grant_peer_respond(f.pe, ids[i], 0);
	if (im_can(im, IM_MSGS))
		grant_peer_respond_null(f.pe);
	f.po->po_publish(f.pe);
	CHECK(pvq_get(f.q, &done, 1) == 1, "get");
	fs = f.shared[1];
	f.shared[1] = NULL;
	gnt_unmap(refs[1]);
	f.done++;
	held = im_unshare(im, f.pe, fs->segs, fs->nsegs);
	CHECK(held == 2 && gnt_deferred() == 2, "%d held, %u deferred", held, gnt_deferred());
	/* The queue works on, and what is held is not used again. */
	for (i = 0; i < 10000; i++)
		fix_turn(&f, 100 + i);
	gnt_unmap(refs[0]);
	gnt_unmap(refs[2]);
	CHECK(gnt_deferred() == 0, "%u deferred", gnt_deferred());
	host_free(fs);
	fix_close(&f);
}

/* A chain is not done, and its slots are not free, before the last of its answers. */
static void
each_message_is_answered(const struct impl *im)
{
	struct pvq_done done[2];
	struct peer_chain pr;
	uint32_t ids[FIX_MAX_SEGS];
	struct fix f;
	int i, n, room;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	room = pvq_room(f.q);
	fix_post(&f, 1, 0, 5);
	fix_fetch(&f, &pr, 1, 0, 5);
	n = grant_peer_ids(f.pe, pr.pr_id, ids);
	CHECK(n == 4, "%d ids", n);
	im->im_quiesce(f.pe);
	/* From the last to the first, what has no id in the middle. */
	for (i = n - 1; i >= 0; i--) {
		CHECK(fix_collect(&f, done, 2) == 0, "done with %d of %d missing", i + 1, n);
		CHECK(!pvq_intr_enable(f.q, 1), "what was collected does not wait");
		CHECK(pvq_room(f.q) == room - 5, "%d free", pvq_room(f.q));
		if (i == 1) {
			grant_peer_respond_null(f.pe);
			f.po->po_publish(f.pe);
			CHECK(pvq_intr_enable(f.q, 1), "a response waits");
			CHECK(fix_collect(&f, done, 2) == 0, "done by nothing");
		}
		grant_peer_respond(f.pe, ids[i], 40 + i);
		f.po->po_publish(f.pe);
	}
	CHECK(f.po->po_interrupts(f.pe), "no interrupt");
	fix_get(&f, 1, 40);
	CHECK(pvq_room(f.q) == room, "%d free", pvq_room(f.q));
	fix_close(&f);
}

/* A chain can be done before all of its slots were answered: those without an id still have to be. */
static void
slots_wait_for_their_answers(const struct impl *im)
{
	struct peer_chain pr;
	uint32_t ids[FIX_MAX_SEGS];
	struct pvq_done done;
	struct fix f;
	uintptr_t n;
	int room;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	room = pvq_room(f.q);
	/* Past the places where an index changes its sign, or begins again. */
	for (n = 1; n <= 100; n++) {
		fix_post(&f, n, 0, 2);
		fix_fetch(&f, &pr, n, 0, 2);
		CHECK(grant_peer_ids(f.pe, pr.pr_id, ids) == 1, "ids");
		im->im_quiesce(f.pe);
		grant_peer_respond(f.pe, ids[0], 5);
		f.po->po_publish(f.pe);
		fix_get(&f, n, 5);
		CHECK(pvq_room(f.q) == room - 1, "chain %lu: %d free", n, pvq_room(f.q));
		grant_peer_respond_null(f.pe);
		f.po->po_publish(f.pe);
		CHECK(fix_collect(&f, &done, 1) == 0, "something in nothing");
		CHECK(pvq_room(f.q) == room, "chain %lu: %d free", n, pvq_room(f.q));
	}
	fix_close(&f);
}

static void
message_answered_twice(const struct impl *im)
{
	struct pvq_done done[2];
	struct peer_chain pr;
	uint32_t ids[FIX_MAX_SEGS];
	struct fix f;

	/* The other one never is: counting alone would take that for the whole chain. */
	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	fix_post(&f, 1, 0, 3);
	fix_fetch(&f, &pr, 1, 0, 3);
	CHECK(grant_peer_ids(f.pe, pr.pr_id, ids) == 2, "ids");
	im->im_quiesce(f.pe);
	grant_peer_respond(f.pe, ids[1], 0);
	grant_peer_respond(f.pe, ids[1], 0);
	f.po->po_publish(f.pe);
	CHECK(fix_collect(&f, done, 2) == 0 && f.q->q_fault == PVQ_FAULT_ID, "fault %u",
	    f.q->q_fault);
	CHECK((uintptr_t)fix_drain(&f) == 1, "drain");
	fix_close(&f);
}

static void
answer_to_nothing(const struct impl *im)
{
	struct pvq_done done[4];
	struct peer_chain pr;
	struct fix f;
	int more;

	/* None outstanding; one, and two answers; after one that was taken back. */
	for (more = 0; more < 3; more++) {
		fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
		if (more == 2) {
			CHECK(fix_put(&f, 9, 0, 2) == 0, "no room");
			fix_abort(&f);
		}
		fix_post(&f, 1, 0, more == 1 ? 2 : 1);
		fix_post(&f, 2, 0, 1);
		fix_fetch(&f, &pr, 1, 0, more == 1 ? 2 : 1);
		fix_complete(&f, &pr, 3);
		if (more == 1)
			fix_get(&f, 1, 3);
		grant_peer_respond_null(f.pe);
		f.po->po_publish(f.pe);
		CHECK(fix_collect(&f, done, 4) == (more == 1 ? 0 : 1), "get");
		CHECK(f.q->q_fault == PVQ_FAULT_ID, "fault %u", f.q->q_fault);
		fix_close(&f);
	}
}

/* The slot of an answer is changed while it is read. */
static struct {
	uint8_t		*slot;
	uint16_t	 id;
	int		 at;
} change;

static void
change_now(void)
{

	if (change.at-- == 0)
		memcpy(change.slot, &change.id, sizeof(change.id));
}

static void
answer_is_read_once(const struct impl *im)
{
	struct peer_chain pr[2];
	struct pvq_done done;
	struct fix f;
	uint16_t id;
	int at, got, i;

	for (at = 0; at < 4000; at++) {
		fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
		for (i = 0; i < 2; i++) {
			fix_post(&f, i + 1, 0, 1);
			fix_fetch(&f, &pr[i], i + 1, 0, 1);
		}
		im->im_quiesce(f.pe);
		grant_peer_respond(f.pe, pr[0].pr_id, 11);
		f.po->po_publish(f.pe);
		/* Which of the two it is may be either; but for the driver and the owner alike. */
		change.slot = grant_peer_last_id(f.pe);
		change.id = pr[1].pr_id;
		change.at = at;
		kpi_access_hook = change_now;
		got = fix_collect(&f, &done, 1);
		kpi_access_hook = NULL;
		CHECK(got == 1, "fault %u", f.q->q_fault);
		memcpy(&id, grant_peer_id_of(f.pe, grant_ring_response(&done)), sizeof(id));
		CHECK(id == pr[(uintptr_t)done.pd_cookie - 1].pr_id, "access %d: chain %p, id %u",
		    at, done.pd_cookie, id);
		fix_close(&f);
		if (change.at >= 0)
			break;
	}
	CHECK(at > 20 && at < 4000, "%d accesses", at);
}

#define	LIVES	4		/* responses that wait when the domain is suspended */

static struct {
	uint8_t		*slots[LIVES];
	uint16_t	 ids[LIVES];
	int		 at;
	struct fix	*f;
} life;

/* A suspension: what the ring has from now on, its index too, was written in another life. */
static void
life_ends(void)
{
	int i;

	if (life.at-- != 0)
		return;
	xen_life++;
	for (i = 0; i < LIVES; i++)
		memcpy(life.slots[i], &life.ids[LIVES - 1 - i], sizeof(life.ids[0]));
	CHECK(life.f->po->po_violate(life.f->pe, VIOLATION_INDEX_AHEAD, NULL), "violation");
}

static void
former_lives_are_not_read(const struct impl *im)
{
	struct pvq_done done[LIVES];
	struct peer_chain pr;
	struct fix f;
	int at, got, i, partly = 0;

	for (at = 0; at < 20000; at++) {
		fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
		for (i = 0; i < LIVES; i++) {
			fix_post(&f, i + 1, 0, 1);
			fix_fetch(&f, &pr, i + 1, 0, 1);
			im->im_quiesce(f.pe);
			grant_peer_respond(f.pe, pr.pr_id, 11);
			life.ids[i] = pr.pr_id;
			life.slots[i] = grant_peer_last_id(f.pe);
		}
		f.po->po_publish(f.pe);
		life.at = at;
		life.f = &f;
		kpi_access_hook = life_ends;
		got = fix_collect(&f, done, LIVES);
		kpi_access_hook = NULL;
		CHECK(f.q->q_fault == PVQ_OK, "access %d: fault %u", at, f.q->q_fault);
		for (i = 0; i < got; i++)
			CHECK(done[i].pd_cookie == (void *)(uintptr_t)(i + 1),
			    "access %d: chain %p in place of %d", at, done[i].pd_cookie, i + 1);
		partly += got > 0 && got < LIVES;
		fix_close(&f);
		if (life.at >= 0)
			break;
	}
	CHECK(partly > 0 && at < 20000, "%d accesses", at);
}

/* A size for an id of its own: all of it counts. */
static void
no_byte_of_an_id_is_ignored(const struct impl *im)
{
	struct pvq_done done[2];
	struct peer_chain pr;
	struct fix f;
	int bit, bits = im_can(im, IM_MSGS) ? 16 : 64;

	for (bit = 4; bit < bits; bit++) {
		fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
		fix_post(&f, 1, 0, 1);
		fix_fetch(&f, &pr, 1, 0, 1);
		grant_peer_respond(f.pe, pr.pr_id | (1ULL << bit), 0);
		f.po->po_publish(f.pe);
		CHECK(fix_collect(&f, done, 2) == 0 && f.q->q_fault == PVQ_FAULT_ID,
		    "bit %d: fault %u", bit, f.q->q_fault);
		fix_close(&f);
	}
}

/* An answer of the next chain wakes, however many messages the others have. */
static void
next_one_is_the_next(const struct impl *im)
{
	struct pvq_done done[2];
	struct peer_chain pr[2];
	struct fix f;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	fix_post(&f, 1, 0, 1);
	fix_post(&f, 2, 0, 6);
	fix_fetch(&f, &pr[0], 1, 0, 1);
	fix_fetch(&f, &pr[1], 2, 0, 6);
	CHECK(!pvq_intr_enable(f.q, 1), "nothing waits");
	fix_complete(&f, &pr[0], 0);
	CHECK(f.po->po_interrupts(f.pe), "no interrupt");
	CHECK(pvq_intr_enable(f.q, 1), "one waits");
	CHECK(fix_collect(&f, done, 2) == 1, "get");
	CHECK(!pvq_intr_enable(f.q, 2), "nothing waits");
	fix_complete(&f, &pr[1], 0);
	CHECK(f.po->po_interrupts(f.pe), "no interrupt for the last");
	fix_close(&f);
}

/* The ring is as the toolstack found it: what is in it may be incomplete. */
static void
former_life_answers_nothing(const struct impl *im)
{
	struct pvq_done done[2];
	struct peer_chain pr;
	struct fix f;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	fix_post(&f, 1, 0, 1);
	fix_fetch(&f, &pr, 1, 0, 1);
	fix_complete(&f, &pr, 0);
	xen_life++;
	CHECK(!pvq_intr_enable(f.q, 1), "a response of the former life waits");
	CHECK(fix_collect(&f, done, 2) == 0 && !pvq_broken(f.q), "it was read, fault %u", f.q->q_fault);
	CHECK(fix_drain(&f) == (void *)1 && fix_drain(&f) == NULL, "the chain is lost");
	CHECK(pvq_reinit(f.q) == 0, "reinit");
	im->im_reset(f.pe);
	fix_turn(&f, 2);
	fix_close(&f);
}

const struct pvq_test grant_tests[] = {
	{ "rings_are_as_large_as_xens", "As the macros of xen/io/ring.h have it",
	    rings_are_as_large_as_xens },
	{ "absurd_params_are_refused", "Sizes that do not fit together", absurd_params_are_refused },
	{ "hostile_held_pages_are_told", "What is mapped after the answer is counted, not reused",
	    held_pages_are_told },
	{ "each_message_is_answered", "A chain is done with the last of them",
	    each_message_is_answered, IM_MSGS },
	{ "slots_wait_for_their_answers", "Also when their chain is done",
	    slots_wait_for_their_answers, IM_MSGS },
	{ "hostile_message_answered_twice", "The second time is not the other message's",
	    message_answered_twice, IM_MSGS },
	{ "hostile_answer_to_nothing", "More answers without an id than such requests",
	    answer_to_nothing, IM_MSGS },
	{ "hostile_answer_is_read_once", "It may change at any moment of pvq_get",
	    answer_is_read_once, IM_ANY_ORDER },
	{ "former_lives_are_not_read", "A suspension at any moment of pvq_get",
	    former_lives_are_not_read, IM_ANY_ORDER },
	{ "hostile_no_byte_of_an_id_is_ignored", "Each bit above the ring's size",
	    no_byte_of_an_id_is_ignored, IM_ANY_ORDER },
	{ "former_life_answers_nothing", "What was in the ring when the domain was suspended",
	    former_life_answers_nothing },
	{ "next_one_is_the_next", "However long the chains are", next_one_is_the_next },
	{ .name = NULL }
};
