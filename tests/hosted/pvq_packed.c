/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What only a packed virtqueue has: places that are taken back, sizes that are no power of two, events
 * at a place, and a device that gets these wrong.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/virtqueue.h>

#include "pvq_fixture.h"

/*
 * The first descriptor of a batch is shown last.  What was staged behind it and taken back must not be
 * there when a shorter batch is shown.
 */
static void
aborted_chains_are_not_run_into(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;
	int round, staged;

	fix_open(&f, im, 7, 3);
	for (round = 0; round < 200; round++) {
		for (staged = 0; staged < 1 + round % 2; staged++)
			CHECK(fix_put(&f, 1000 + staged, 2, 1) == 0, "no room");
		fix_abort(&f);
		CHECK(!f.po->po_fetch(f.pe, &pr), "an aborted chain, round %d", round);
		fix_post(&f, round + 1, 0, 1);
		fix_fetch(&f, &pr, round + 1, 0, 1);
		CHECK(!f.po->po_fetch(f.pe, &pr), "an aborted chain behind it, round %d", round);
		fix_complete(&f, &pr, 1);
		fix_get(&f, round + 1, 1);
	}
	fix_close(&f);
}

/* Chains of every length over the end of a ring of every small size, answered out of order. */
static void
chains_go_over_the_end(const struct impl *im)
{
	struct peer_chain first, second;
	struct fix f;
	uintptr_t n;
	uint16_t size;
	int len, turn;

	for (size = 2; size <= 9; size++) {
		fix_open(&f, im, size, 4);
		n = 1;
		for (turn = 0; turn < 5 * size; turn++) {
			len = 1 + turn % MIN(size - 1, 4);
			fix_post(&f, n, len - 1, 1);
			fix_post(&f, n + 1, 0, 1);
			fix_fetch(&f, &first, n, len - 1, 1);
			fix_fetch(&f, &second, n + 1, 0, 1);
			fix_complete(&f, &second, 1);
			fix_get(&f, n + 1, 1);
			fix_complete(&f, &first, 1);
			fix_get(&f, n, 1);
			n += 2;
		}
		fix_close(&f);
	}
}

static void
used_when_nothing_is_in_flight(const struct impl *im)
{
	struct pvq_done done[4];
	struct peer_chain pr;
	struct fix f;
	int turns;

	for (turns = 0; turns <= FIX_SIZE + 1; turns++) {
		fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
		while (f.q->q_stats.qs_done < (uint64_t)turns)
			fix_turn(&f, 1);
		fix_post(&f, 1, 0, 1);
		fix_fetch(&f, &pr, 1, 0, 1);
		CHECK(f.po->po_violate(f.pe, VIOLATION_ID_TWICE, &pr), "violation");
		CHECK(fix_collect(&f, done, 4) == 1, "more than one");
		/* Whoever waits for more is sent to look, and finds it. */
		CHECK(pvq_intr_enable(f.q, 1), "nothing waits");
		CHECK(fix_collect(&f, done, 4) == 0, "one more");
		CHECK(f.q->q_fault == PVQ_FAULT_INDEX, "fault %u", f.q->q_fault);
		fix_close(&f);
	}
}

/*
 * The answer is in the middle of its chain, or where the next one's belongs, in any turn of the ring:
 * where it belongs, nothing is used, and no answer after that comes out either.
 */
static void
wrong_place_is_not_looked_at(const struct impl *im)
{
	struct pvq_done done[4];
	struct peer_chain pr[2];
	struct fix f;
	int segs, turns;

	for (turns = 0; turns <= 2 * FIX_SIZE; turns++) {
		segs = 1 + turns % 3;
		fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
		while (f.q->q_stats.qs_done < (uint64_t)turns)
			fix_turn(&f, 1);
		fix_post(&f, 1, 0, segs);
		fix_fetch(&f, &pr[0], 1, 0, segs);
		fix_post(&f, 2, 0, segs);
		fix_fetch(&f, &pr[1], 2, 0, segs);
		CHECK(f.po->po_violate(f.pe, VIOLATION_PLACE, &pr[0]), "violation");
		CHECK(fix_collect(&f, done, 4) == 0, "a chain out of another place");
		fix_complete(&f, &pr[1], 1);
		CHECK(fix_collect(&f, done, 4) == 0, "a chain behind it");
		CHECK(!pvq_intr_enable(f.q, 1), "something waits");
		CHECK(!pvq_broken(f.q), "fault %u", f.q->q_fault);
		CHECK((uintptr_t)fix_drain(&f) == 1, "the first is not there to be drained");
		CHECK((uintptr_t)fix_drain(&f) == 2, "the second is not there to be drained");
		fix_close(&f);
	}
}

/* Whatever the device's event suppression is, there is a notification or there is none. */
static void
any_event_is_survived(const struct impl *im)
{
	struct virtqueue_addrs addrs;
	struct peer_chain pr;
	struct fix f;
	uint32_t word;

	fix_open(&f, im, 3, 1);
	virtqueue_addrs(f.q, &addrs);
	for (word = 0; word < 65536; word += 7) {
		*(volatile uint32_t *)(uintptr_t)addrs.vqa_device = word * 65537;
		fix_post(&f, 1, 0, 1);
		(void)pvq_kick(f.q);
		fix_fetch(&f, &pr, 1, 0, 1);
		fix_complete(&f, &pr, 1);
		fix_get(&f, 1, 1);
	}
	fix_close(&f);
}

/*
 * QEMU's network card names a place, takes what is there and behind it, and names no other before it
 * stops.  It is notified of what comes next, and once; and again when the place is a turn behind, as it
 * looks then like one that is still to come.
 */
static void
passed_event_is_answered_once(const struct impl *im)
{
	struct peer_chain next, pr;
	struct fix f;
	uintptr_t i, n;

	for (n = 1; n < 2 * FIX_SIZE; n++) {
		fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
		f.po->po_ignore(f.pe);
		while (f.q->q_stats.qs_done < n)
			fix_turn(&f, 1);
		fix_post(&f, 1, 0, 1);
		CHECK(!pvq_kick(f.q), "kick of a device that asks for none");
		CHECK(f.po->po_listen(f.pe), "nothing there");
		fix_fetch(&f, &pr, 1, 0, 1);
		fix_post(&f, 2, 0, 1);
		CHECK(pvq_kick(f.q), "no kick, %lu chains before", n);
		fix_fetch(&f, &next, 2, 0, 1);
		fix_complete(&f, &pr, 1);
		fix_get(&f, 1, 1);
		fix_complete(&f, &next, 1);
		fix_get(&f, 2, 1);
		for (i = 1; i < FIX_SIZE; i++) {
			fix_post(&f, 2 + i, 0, 1);
			CHECK(pvq_kick(f.q) == (i == FIX_SIZE - 1), "%lu chains before, %lu behind",
			    n, i);
			fix_fetch(&f, &pr, 2 + i, 0, 1);
			fix_complete(&f, &pr, 1);
			fix_get(&f, 2 + i, 1);
		}
		fix_close(&f);
	}
}

/*
 * The same device, when many are taken beyond the place that it named, and many are put behind these in
 * one go: by then the place may be more than a turn behind.
 */
static void
event_passed_a_turn_ago(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;
	uintptr_t before, i, named, put;

	for (before = 0; before < 2 * FIX_SIZE; before++)
		for (named = 2; named <= FIX_SIZE; named++)
			for (put = 1; put <= FIX_SIZE; put++) {
				fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
				for (i = 0; i < before; i++)
					fix_turn(&f, 1);
				(void)f.po->po_listen(f.pe);
				for (i = 1; i <= named; i++)
					fix_post(&f, i, 0, 1);
				CHECK(pvq_kick(f.q), "no kick of a device at rest");
				f.po->po_ignore(f.pe);
				fix_fetch(&f, &pr, 1, 0, 1);
				fix_complete(&f, &pr, 1);
				CHECK(f.po->po_listen(f.pe), "nothing there");
				for (i = 2; i <= named; i++) {
					fix_fetch(&f, &pr, i, 0, 1);
					fix_complete(&f, &pr, 1);
				}
				for (i = 1; i <= named; i++)
					fix_get(&f, i, 1);
				for (i = 1; i <= put; i++)
					fix_post(&f, i, 0, 1);
				CHECK(pvq_kick(f.q), "no kick: %lu before, %lu beyond, %lu put",
				    before, named - 1, put);
				fix_close(&f);
			}
}

/* A device that names a place still to come is notified when that is taken, and not before. */
static void
event_ahead_is_waited_for(const struct impl *im)
{
	struct virtqueue_addrs addrs;
	struct fix f;
	uintptr_t before, i, named, wrap;

	for (before = 0; before < 2 * FIX_SIZE; before++)
		for (named = 0; named < FIX_SIZE; named++) {
			fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
			virtqueue_addrs(f.q, &addrs);
			for (i = 0; i < before; i++) {
				fix_turn(&f, 1);
				(void)pvq_kick(f.q);
			}
			i = before + named;
			wrap = i / FIX_SIZE % 2 == 0;
			*(volatile uint32_t *)(uintptr_t)addrs.vqa_device = i % FIX_SIZE |
			    wrap << VRING_PACKED_WRAP_SHIFT | VRING_PACKED_EVENT_DESC << 16;
			for (i = 0; i < FIX_SIZE; i++) {
				fix_post(&f, i + 1, 0, 1);
				CHECK(pvq_kick(f.q) == (i == named), "%lu before, %lu named, %lu put",
				    before, named, i + 1);
			}
			fix_close(&f);
		}
}

/* Where chains take several places, the next one and all are kept; see pvq_intr_enable(). */
static void
last_completion_interrupts(const struct impl *im)
{
	struct pvq_done done[4];
	struct peer_chain pr[4];
	struct fix f;
	int i, round;

	fix_open(&f, im, 13, 3);
	for (round = 0; round < 50; round++) {
		pvq_intr_disable(f.q);
		for (i = 0; i < 4; i++) {
			fix_post(&f, i + 1, i % 3, 1);
			fix_fetch(&f, &pr[i], i + 1, i % 3, 1);
		}
		CHECK(!pvq_intr_enable(f.q, 4), "nothing waits");
		for (i = 0; i < 4; i++) {
			fix_complete(&f, &pr[(i + round) % 4], 0);
			CHECK(f.po->po_interrupts(f.pe) == (i == 3), "round %d, completion %d",
			    round, i);
		}
		CHECK(pvq_intr_enable(f.q, 4), "four wait");
		CHECK(fix_collect(&f, done, 4) == 4, "get");
	}
	fix_close(&f);
}

/* An id that there is not is found by who asks for an interrupt as well: there is something to get. */
static void
invalid_id_waits(const struct impl *im)
{
	static const enum peer_violation violations[] = { VIOLATION_ID_RANGE, VIOLATION_ID_HUGE,
	    VIOLATION_ID_IDLE };
	struct pvq_done done[4];
	struct peer_chain pr[4];
	struct fix f;
	u_int i, v;

	for (v = 0; v < nitems(violations); v++) {
		fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
		for (i = 0; i < nitems(pr); i++) {
			fix_post(&f, i + 1, 0, 2);
			fix_fetch(&f, &pr[i], i + 1, 0, 2);
		}
		fix_complete(&f, &pr[0], 1);
		CHECK(!pvq_intr_enable(f.q, 3), "one of three waits");
		CHECK(f.po->po_violate(f.pe, violations[v], &pr[1]), "violation");
		CHECK(pvq_intr_enable(f.q, 3), "nothing waits");
		CHECK(fix_collect(&f, done, 4) <= 1 && f.q->q_fault == PVQ_FAULT_ID, "fault %u",
		    f.q->q_fault);
		fix_close(&f);
	}
}

const struct pvq_test packed_tests[] = {
	{ "aborted_chains_are_not_run_into", "What was staged behind the first is taken back",
	    aborted_chains_are_not_run_into },
	{ "chains_go_over_the_end", "In rings of any size", chains_go_over_the_end, IM_ANY_ORDER },
	{ "hostile_used_when_nothing_is_in_flight", "At any place of the ring",
	    used_when_nothing_is_in_flight },
	{ "hostile_wrong_place_is_not_looked_at", "An answer in another place",
	    wrong_place_is_not_looked_at },
	{ "hostile_any_event_is_survived", "Event suppression decides of notifications only",
	    any_event_is_survived },
	{ "passed_event_is_answered_once", "A device that goes on beyond what it named",
	    passed_event_is_answered_once, IM_EVENT },
	{ "hostile_invalid_id_waits", "For who asks for an interrupt", invalid_id_waits, IM_EVENT },
	{ "event_ahead_is_waited_for", "At any place of the ring", event_ahead_is_waited_for,
	    IM_EVENT },
	{ "event_passed_a_turn_ago", "And many put in one go", event_passed_a_turn_ago, IM_EVENT, 0,
	    true },
	{ "last_completion_interrupts", "In any order, and whatever places they take",
	    last_completion_interrupts, IM_ANY_ORDER | IM_EVENT },
	{ .name = NULL }
};
