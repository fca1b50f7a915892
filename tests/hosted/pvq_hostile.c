/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Conformance of a pvq(9): a peer that breaks the rules.
 *
 * Each violation must leave the queue broken with the right fault, give out nothing that is not so, and
 * leave everything in flight to pvq_drain(); ASan watches that no step outside of memory is taken.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include <dev/virtio/virtqueue.h>

#include "pvq_fixture.h"

/* What a ring needs to be capable of a violation, and what makes it impossible (IM_*). */
static const struct {
	uint32_t	needs;
	uint32_t	lacks;
} violation_rings[NVIOLATIONS] = {
	/* Where a chain has one descriptor, there is none that is not the first. */
	[VIOLATION_ID_NOT_HEAD] = { IM_LENGTHS, IM_INDIRECT | IM_PACKED },
	[VIOLATION_LEN] = { IM_LENGTHS, 0 },
	[VIOLATION_LEN_HUGE] = { IM_LENGTHS, 0 },
	[VIOLATION_INDEX_AHEAD] = { 0, IM_PACKED },
	[VIOLATION_INDEX_FAR] = { 0, IM_PACKED },
	[VIOLATION_INDEX_BACK] = { 0, IM_PACKED },
	[VIOLATION_TURN] = { IM_PACKED, 0 },
	[VIOLATION_TURN_HALF] = { IM_PACKED, 0 },
	[VIOLATION_PLACE] = { IM_PACKED, 0 },
};

/* A broken queue does nothing, and one way leads out. */
static void
check_broken(struct fix *f, u_int fault, int left)
{
	struct pvq_done done[4];
	u_int kicks = f->pe->pe_kicks;
	int i;

	CHECK(pvq_broken(f->q) && f->q->q_fault == fault, "fault %u, not %u", f->q->q_fault, fault);
	CHECK(fix_collect(f, done, 4) == 0, "get from a broken queue");
	CHECK(pvq_reserve(f->q, 1) == EIO, "reserve in a broken queue");
	CHECK(!pvq_kick(f->q) && f->pe->pe_kicks == kicks, "kick of a broken queue");
	CHECK(!pvq_intr_enable(f->q, 1), "broken queue claims work");
	CHECK(f->q->q_stats.qs_faults == 1, "%ju faults", (uintmax_t)f->q->q_stats.qs_faults);
	for (i = 0; i < left; i++)
		CHECK(fix_drain(f) != NULL, "%d of %d drained", i, left);
	CHECK(fix_drain(f) == NULL, "more than %d drained", left);
	CHECK(pvq_reinit(f->q) == 0 && !pvq_broken(f->q), "reinit");
	f->im->im_reset(f->pe);
	fix_turn(f, 77);
}

/* After so many chains, three are in flight, the second of which the violation is about. */
static void
violation_after(const struct impl *im, enum peer_violation violation, u_int fault, int turns)
{
	struct peer_chain pr[3];
	struct pvq_done done[8];
	struct fix f;
	int got, i;
	bool can;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (i = 0; i < turns; i++)
		fix_turn(&f, 40 + i);
	for (i = 0; i < 3; i++) {
		fix_post(&f, i + 1, 0, 2);
		fix_fetch(&f, &pr[i], i + 1, 0, 2);
	}
	can = im_can(im, violation_rings[violation].needs) &&
	    (im->im_flags & violation_rings[violation].lacks) == 0;
	CHECK(f.po->po_violate(f.pe, violation, &pr[1]) == can, "violation %d", violation);
	if (!can) {
		fix_close(&f);
		return;
	}
	got = fix_collect(&f, done, 8);
	for (i = 0; i < got; i++)
		CHECK((uintptr_t)done[i].pd_cookie == 2 &&
		    (!im_can(im, IM_LENGTHS) || im->im_reported(&done[i]) <= fix_room(2, 2)),
		    "cookie %p", done[i].pd_cookie);
	/* Only a chain that was completed twice may come out, once. */
	CHECK(got == (violation == VIOLATION_ID_TWICE ? 1 : 0), "%d chains out of a violation", got);
	check_broken(&f, fault, 3 - got);
	fix_close(&f);
}

/* In the ring's first turn, and in its second. */
static void
violation_case(const struct impl *im, enum peer_violation violation, u_int fault)
{

	violation_after(im, violation, fault, 5);
	violation_after(im, violation, fault, FIX_SIZE + 5);
}

static void
id_out_of_range(const struct impl *im)
{

	violation_case(im, VIOLATION_ID_RANGE, PVQ_FAULT_ID);
	violation_case(im, VIOLATION_ID_HUGE, PVQ_FAULT_ID);
}

static void
id_not_in_flight(const struct impl *im)
{

	violation_case(im, VIOLATION_ID_IDLE, PVQ_FAULT_ID);
	violation_case(im, VIOLATION_ID_NOT_HEAD, PVQ_FAULT_ID);
}

static void
id_completed_twice(const struct impl *im)
{

	violation_case(im, VIOLATION_ID_TWICE, PVQ_FAULT_ID);
}

static void
index_ahead(const struct impl *im)
{

	violation_case(im, VIOLATION_INDEX_AHEAD, PVQ_FAULT_INDEX);
	violation_case(im, VIOLATION_INDEX_FAR, PVQ_FAULT_INDEX);
	violation_case(im, VIOLATION_INDEX_BACK, PVQ_FAULT_INDEX);
}

static void
flags_of_another_turn(const struct impl *im)
{

	violation_case(im, VIOLATION_TURN, VIRTQUEUE_FAULT_FLAGS);
	violation_case(im, VIOLATION_TURN_HALF, VIRTQUEUE_FAULT_FLAGS);
}

static void
length_too_long(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;

	if (im_can(im, IM_MODERN | IM_STRICT)) {
		violation_case(im, VIOLATION_LEN, VIRTQUEUE_FAULT_LEN);
		violation_case(im, VIOLATION_LEN_HUGE, VIRTQUEUE_FAULT_LEN);
		return;
	}
	/* Legacy devices are known for it (2.7.8.1), and others have done it: cut, and counted. */
	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	fix_post(&f, 1, 0, 2);
	fix_fetch(&f, &pr, 1, 0, 2);
	CHECK(f.po->po_violate(f.pe, VIOLATION_LEN_HUGE, &pr), "violation");
	fix_get(&f, 1, fix_room(1, 2));
	CHECK(!pvq_broken(f.q) && virtqueue_invalid_lengths(f.q) == 1, "%ju counted",
	    (uintmax_t)virtqueue_invalid_lengths(f.q));
	fix_close(&f);
}

/* A byte that may be written is enough for a length to be checked. */
static void
length_of_two_for_one_byte(const struct impl *im)
{
	static uint8_t byte;
	bus_dma_segment_t seg = { .ds_addr = (uintptr_t)&byte, .ds_len = 1 };
	struct pvq_chain pc = { .pc_segs = &seg, .pc_nwrite = 1, .pc_cookie = &byte };
	struct peer_chain pr;
	struct pvq_done done;
	struct fix f;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	f.uncounted = true;
	CHECK(pvq_submit(f.q, &pc) == 0 && f.po->po_fetch(f.pe, &pr) && pr.pr_wlen == 1, "not put");
	CHECK(f.po->po_violate(f.pe, VIOLATION_LEN, &pr), "violation");
	CHECK(pvq_get(f.q, &done, 1) == 0 && f.q->q_fault == VIRTQUEUE_FAULT_LEN, "fault %u",
	    f.q->q_fault);
	im->im_quiesce(f.pe);
	CHECK(pvq_drain(f.q) == &byte, "not taken back");
	fix_close(&f);
}

static void
length_of_nothing_writable(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;
	int n;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (n = 1; n <= 3; n++) {
		fix_post(&f, n, n, 0);
		fix_fetch(&f, &pr, n, n, 0);
		fix_complete(&f, &pr, 1);
		fix_get(&f, n, 0);
		CHECK(!pvq_broken(f.q) && virtqueue_invalid_lengths(f.q) == (u_int)n, "%ju counted",
		    (uintmax_t)virtqueue_invalid_lengths(f.q));
	}
	fix_close(&f);
}

static void
good_ones_before_a_violation_come_out(const struct impl *im)
{
	struct peer_chain pr[4];
	struct pvq_done done[8];
	struct fix f;
	int i;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (i = 0; i < 4; i++) {
		fix_post(&f, i + 1, 0, 2);
		fix_fetch(&f, &pr[i], i + 1, 0, 2);
	}
	f.po->po_complete(f.pe, pr[2].pr_id, 1);
	f.po->po_complete(f.pe, pr[0].pr_id, 2);
	CHECK(f.po->po_violate(f.pe, VIOLATION_ID_HUGE, &pr[1]), "violation");
	CHECK(fix_collect(&f, done, 8) == 2, "the good ones");
	CHECK((uintptr_t)done[0].pd_cookie == 3 && (uintptr_t)done[1].pd_cookie == 1, "cookies");
	check_broken(&f, PVQ_FAULT_ID, 2);
	fix_close(&f);
}

static void
staged_chain_cannot_be_completed(const struct impl *im)
{
	struct peer_chain pr, next;
	struct pvq_done done[4];
	struct fix f;
	uint32_t id;

	/* Find the id that the next chain will get, by posting it once. */
	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	fix_post(&f, 1, 0, 1);
	fix_fetch(&f, &pr, 1, 0, 1);
	fix_post(&f, 2, 0, 1);
	fix_fetch(&f, &next, 2, 0, 1);
	id = next.pr_id;
	while (fix_drain(&f) != NULL)
		continue;
	CHECK(pvq_reinit(f.q) == 0, "reinit");
	im->im_reset(f.pe);

	fix_post(&f, 1, 0, 1);
	fix_fetch(&f, &pr, 1, 0, 1);
	CHECK(fix_put(&f, 2, 0, 1) == 0, "no room");
	f.po->po_complete(f.pe, id, 0);
	f.po->po_publish(f.pe);
	CHECK(fix_collect(&f, done, 4) == 0, "a chain that was not committed");
	CHECK(f.q->q_fault == PVQ_FAULT_ID, "fault %u", f.q->q_fault);
	fix_close(&f);
}

static void
overwriting_is_harmless(const struct impl *im)
{
	struct peer_chain pr[6];
	struct fix f;
	uint32_t seed;
	int i, n;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (seed = 1; seed < 300; seed++) {
		for (i = 0; i < 4; i++) {
			fix_post(&f, i + 1, 1, 2);
			fix_fetch(&f, &pr[i], i + 1, 1, 2);
		}
		f.po->po_scribble(f.pe, seed);
		for (i = 0; i < 4; i++) {
			n = im_can(im, IM_ANY_ORDER) ? 3 - i : i;
			fix_complete(&f, &pr[n], n);
			f.po->po_scribble(f.pe, seed * 17 + n);
			fix_get(&f, n + 1, n);
		}
		CHECK(pvq_room(f.q) == FIX_SIZE, "%d free", pvq_room(f.q));
	}
	fix_close(&f);
}

static void
owner_may_break_it(const struct impl *im)
{
	struct fix f;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	fix_post(&f, 1, 1, 1);
	pvq_break(f.q, PVQ_FAULT_OWNER, 5);
	pvq_break(f.q, PVQ_FAULT_ID, 6);
	check_broken(&f, PVQ_FAULT_OWNER, 1);
	fix_close(&f);
}

/* What the device completes in a queue that is broken meanwhile stays the owner's to take back. */
static void
broken_queue_gives_nothing(const struct impl *im)
{
	struct peer_chain pr[2];
	struct fix f;
	int i;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (i = 0; i < 2; i++) {
		fix_post(&f, i + 1, 0, 1);
		fix_fetch(&f, &pr[i], i + 1, 0, 1);
	}
	for (i = 0; i < 2; i++)
		f.po->po_complete(f.pe, pr[i].pr_id, pr[i].pr_wlen);
	f.po->po_publish(f.pe);
	pvq_break(f.q, PVQ_FAULT_OWNER, 0);
	check_broken(&f, PVQ_FAULT_OWNER, 2);
	fix_close(&f);
}

static void
log_is_not_flooded(const struct impl *im)
{
	struct fix f;
	int i;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	kpi_lines = 0;
	for (i = 0; i < 1000; i++) {
		pvq_break(f.q, PVQ_FAULT_ID, i);
		CHECK(pvq_reinit(f.q) == 0, "reinit");
	}
	CHECK(kpi_lines == 10, "%d lines", kpi_lines);
	CHECK(f.q->q_stats.qs_faults == 1000, "%ju", (uintmax_t)f.q->q_stats.qs_faults);
	fix_close(&f);
}

/* In any place of the ring: nothing comes out, nothing is broken, and whoever looks sees why. */
static void
place_skipped(const struct impl *im)
{
	struct peer_chain pr[3];
	struct pvq_done done[4];
	struct fix f;
	int i, turns;

	for (turns = 0; turns < 2 * FIX_SIZE; turns++) {
		fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
		for (i = 0; i < turns; i++)
			fix_turn(&f, 40 + i);
		for (i = 0; i < 3; i++) {
			fix_post(&f, i + 1, 0, 1);
			fix_fetch(&f, &pr[i], i + 1, 0, 1);
		}
		CHECK(pvq_peek(f.q) == PVQ_QUIET, "turn %d: nothing was written", turns);
		CHECK(f.po->po_violate(f.pe, VIOLATION_PLACE, &pr[0]), "violation");
		CHECK(fix_collect(&f, done, 4) == 0 && !pvq_broken(f.q), "out of the wrong place");
		CHECK(pvq_peek(f.q) == PVQ_SKIPPED, "turn %d: not seen", turns);
		pvq_break(f.q, PVQ_FAULT_SKIP, 0);
		check_broken(&f, PVQ_FAULT_SKIP, 3);
		fix_close(&f);
	}
}

/* A device with another wrap counter may not interrupt, by which get would see it. */
static void
turn_without_an_interrupt(const struct impl *im)
{
	struct peer_chain pr[3];
	struct fix f;
	int i;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (i = 0; i < 3; i++) {
		fix_post(&f, i + 1, 0, 1);
		fix_fetch(&f, &pr[i], i + 1, 0, 1);
	}
	CHECK(pvq_peek(f.q) == PVQ_QUIET && !pvq_broken(f.q), "nothing was written");
	CHECK(f.po->po_violate(f.pe, VIOLATION_TURN, &pr[0]), "violation");
	CHECK(pvq_peek(f.q) == PVQ_QUIET, "something waits");
	check_broken(&f, VIRTQUEUE_FAULT_FLAGS, 3);
	fix_close(&f);
}

const struct pvq_test pvq_hostile_tests[] = {
	{ "hostile_id_out_of_range", "An id that no chain can have", id_out_of_range,
	    IM_ANY_ORDER },
	{ "hostile_id_not_in_flight", "An id that is idle, or not a chain's first",
	    id_not_in_flight, IM_ANY_ORDER },
	{ "hostile_id_completed_twice", "The second time breaks the queue", id_completed_twice,
	    IM_ANY_ORDER },
	{ "hostile_index_ahead", "More completions than there are chains", index_ahead,
	    .lacks = IM_PACKED },
	{ "hostile_flags_of_another_turn", "The wrap counter flipped early, or not at all",
	    flags_of_another_turn, IM_PACKED },
	{ "hostile_turn_without_an_interrupt", "Is seen by a watchdog", turn_without_an_interrupt,
	    IM_PACKED },
	{ "hostile_place_skipped", "Nothing completes any more, which a watchdog sees",
	    place_skipped, IM_PACKED },
	{ "hostile_length_too_long", "Breaks a modern queue; is cut in a legacy one",
	    length_too_long, IM_LENGTHS },
	{ "hostile_length_of_two_for_one_byte", "Breaks a modern queue",
	    length_of_two_for_one_byte, IM_LENGTHS | IM_MODERN | IM_STRICT },
	{ "hostile_length_of_nothing_writable", "Bytes written where none could be: counted",
	    length_of_nothing_writable, IM_LENGTHS },
	{ "hostile_good_ones_before_a_violation_come_out", "And nothing after it",
	    good_ones_before_a_violation_come_out, IM_ANY_ORDER },
	{ "hostile_staged_chain_cannot_be_completed", "It is not the device's yet",
	    staged_chain_cannot_be_completed, IM_ANY_ORDER },
	{ "hostile_overwriting_is_harmless", "What only the driver writes is overwritten at any time",
	    overwriting_is_harmless },
	{ "owner_may_break_it", "And the first fault stays", owner_may_break_it },
	{ "broken_queue_gives_nothing", "Of what was completed", broken_queue_gives_nothing },
	{ "log_is_not_flooded", "However often it breaks", log_is_not_flooded },
	{ .name = NULL }
};
