/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Conformance of a pvq(9): creating, putting, completing, draining.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/sysctl.h>

#include "pvq_fixture.h"

static void
rejects_absurd_sizes(const struct impl *im)
{
	static const uint16_t sizes[] = { 0, 3, 12, 1000, 32769, 65535 };
	struct peer *pe;
	u_int i;
	int error;

	for (i = 0; i < nitems(sizes); i++) {
		error = im->im_create(im, sizes[i], 4, &pe);
		CHECK(error == EINVAL, "size %u: %d", sizes[i], error);
	}
	error = im->im_create(im, 16, 0, &pe);
	CHECK(error == EINVAL, "no segments: %d", error);
	CHECK(kpi_mallocs == 0 && kpi_dma_tags == 0, "leak");
}

static void
takes_extreme_sizes(const struct impl *im)
{
	static const uint16_t sizes[] = { 1, 2, 4096, 32768 };
	struct fix f;
	uintptr_t n;
	u_int i;

	for (i = 0; i < nitems(sizes); i++) {
		fix_open(&f, im, sizes[i], 2);
		for (n = 1; n < 10; n++)
			fix_turn(&f, n);
		fix_close(&f);
	}
}

static void
creation_survives_shortage(const struct impl *im)
{
	struct peer *pe;
	int error, n;

	error = ENOMEM;
	for (n = 1; error != 0; n++) {
		CHECK(n < 10000, "never works");
		kpi_fail_after = n;
		error = im->im_create(im, 64, 32, &pe);
		CHECK(error == 0 || error == ENOMEM, "error %d", error);
		if (error == 0)
			im->im_destroy(pe);
		CHECK(kpi_mallocs == 0 && kpi_dma_tags == 0 && kpi_dma_maps == 0,
		    "shortage at %d leaks", n);
	}
	kpi_fail_after = 0;
	CHECK(n > 2, "there was no shortage");
}

static void
chain_arrives_as_put(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;
	uintptr_t n;
	int nread, nwrite;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	n = 1;
	for (nread = 0; nread <= FIX_MAX_SEGS; nread++) {
		for (nwrite = 0; nread + nwrite <= FIX_MAX_SEGS; nwrite++) {
			if (nread + nwrite == 0)
				continue;
			fix_post(&f, n, nread, nwrite);
			fix_fetch(&f, &pr, n, nread, nwrite);
			fix_complete(&f, &pr, pr.pr_wlen);
			fix_get(&f, n, pr.pr_wlen);
			n++;
		}
	}
	fix_close(&f);
}

static void
prepare_counts_slots(const struct impl *im)
{
	bus_dma_segment_t segs[PEER_MAX_SEGS] = { { 0x1000, 1 } };
	struct pvq_chain pc = { .pc_segs = segs, .pc_cookie = segs };
	struct fix f;
	int slots;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	CHECK(pvq_prepare(f.q, &pc) == 0, "an empty chain");
	for (pc.pc_nread = 1; pc.pc_nread <= FIX_MAX_SEGS; pc.pc_nread++) {
		slots = pvq_prepare(f.q, &pc);
		CHECK(slots >= 1 && slots <= pc.pc_nread, "%u segments: %d", pc.pc_nread, slots);
	}
	CHECK(pvq_prepare(f.q, &pc) == 0, "one segment too many");
	pc.pc_nread = 3;
	pc.pc_nwrite = FIX_MAX_SEGS - 2;
	CHECK(pvq_prepare(f.q, &pc) == 0, "one segment too many, both ways");
	fix_close(&f);

	/* More segments than the ring has slots are never possible, whatever the driver said. */
	fix_open(&f, im, 4, 64);
	pc.pc_nread = 5;
	pc.pc_nwrite = 0;
	CHECK(pvq_prepare(f.q, &pc) == 0, "longer than the ring (2.7.5.3.1)");
	fix_close(&f);
}

static void
nothing_is_seen_before_commit(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	CHECK(fix_put(&f, 1, 1, 1) == 0, "no room");
	CHECK(fix_put(&f, 2, 2, 0) == 0, "no room");
	CHECK(!f.po->po_fetch(f.pe, &pr), "seen before commit");
	CHECK(pvq_inflight(f.q) == 0, "in flight before commit");
	pvq_commit(f.q);
	CHECK(pvq_inflight(f.q) == 2, "%d in flight", pvq_inflight(f.q));
	fix_fetch(&f, &pr, 1, 1, 1);
	fix_fetch(&f, &pr, 2, 2, 0);
	CHECK(!f.po->po_fetch(f.pe, &pr), "a third chain");
	fix_close(&f);
}

static void
abort_takes_back_what_is_staged(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;
	int round, room;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	fix_post(&f, 1, 1, 1);
	for (round = 0; round < 100; round++) {
		room = pvq_room(f.q);
		CHECK(fix_put(&f, 10 + round, 1, 2) == 0, "no room");
		CHECK(fix_put(&f, 11 + round, 0, 1) == 0, "no room");
		pvq_abort(f.q);
		CHECK(pvq_room(f.q) == room, "%d slots, were %d", pvq_room(f.q), room);
	}
	CHECK(pvq_inflight(f.q) == 1, "%d in flight", pvq_inflight(f.q));
	pvq_commit(f.q);
	fix_post(&f, 2, 1, 1);
	fix_fetch(&f, &pr, 1, 1, 1);
	fix_fetch(&f, &pr, 2, 1, 1);
	CHECK(!f.po->po_fetch(f.pe, &pr), "an aborted chain is seen");
	fix_close(&f);
}

static void
full_ring_says_enospc(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;
	uintptr_t n;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (n = 1; fix_put(&f, n, 0, 1) == 0; n++)
		CHECK(n <= FIX_SIZE, "the ring never fills");
	CHECK(n == FIX_SIZE + 1, "%lu chains", n - 1);
	CHECK(f.q->q_stats.qs_full == 1, "%ju", (uintmax_t)f.q->q_stats.qs_full);
	CHECK(pvq_reserve(f.q, 1) == ENOSPC && pvq_reserve(f.q, 0) == 0, "reserve");
	pvq_commit(f.q);
	CHECK(fix_put(&f, n, 0, 1) == ENOSPC, "room in a full ring");
	fix_fetch(&f, &pr, 1, 0, 1);
	fix_complete(&f, &pr, 0);
	CHECK(fix_put(&f, n, 0, 1) == ENOSPC, "room before get");
	fix_get(&f, 1, 0);
	fix_post(&f, n, 0, 1);
	fix_close(&f);
}

static void
completes_out_of_order(const struct impl *im)
{
	struct peer_chain pr[8];
	struct fix f;
	uint32_t len, seed = 7;
	int i, j, round;
	uintptr_t n;

	fix_open(&f, im, 64, FIX_MAX_SEGS);
	for (round = 0; round < 200; round++) {
		for (i = 0; i < 8; i++)
			fix_post(&f, round * 8 + i + 1, i % 3, 1 + i % 3);
		for (i = 0; i < 8; i++)
			fix_fetch(&f, &pr[i], round * 8 + i + 1, i % 3, 1 + i % 3);
		/* Each time another permutation: start anywhere, step by an odd number. */
		j = peer_random(&seed) % 8;
		for (i = 0; i < 8; i++, j = (j + 3) % 8) {
			n = round * 8 + j + 1;
			len = MIN((uint32_t)j, pr[j].pr_wlen);
			fix_complete(&f, &pr[j], len);
			fix_get(&f, n, len);
		}
	}
	fix_close(&f);
}

static void
get_takes_no_more_than_asked(const struct impl *im)
{
	struct pvq_done done[FIX_SIZE];
	struct peer_chain pr;
	struct fix f;
	uintptr_t n;
	int i;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	CHECK(pvq_get(f.q, done, FIX_SIZE) == 0, "something in a new queue");
	for (n = 1; n <= 10; n++) {
		fix_post(&f, n, 0, 1);
		fix_fetch(&f, &pr, n, 0, 1);
		f.po->po_complete(f.pe, pr.pr_id, 1);
	}
	CHECK(pvq_get(f.q, done, FIX_SIZE) == 0, "seen before it is published");
	f.po->po_publish(f.pe);
	CHECK(pvq_get(f.q, done, 3) == 3, "first three");
	CHECK(pvq_get(f.q, done + 3, 5) == 5, "next five");
	CHECK(pvq_get(f.q, done + 8, FIX_SIZE - 8) == 2, "last two");
	for (i = 0; i < 10; i++)
		CHECK((uintptr_t)done[i].pd_cookie == (uintptr_t)i + 1, "%d: %p", i,
		    done[i].pd_cookie);
	fix_close(&f);
}

static void
drain_gives_back_in_order(const struct impl *im)
{
	struct peer_chain pr[12];
	struct fix f;
	uintptr_t n;

	fix_open(&f, im, 64, FIX_MAX_SEGS);
	for (n = 1; n <= 40; n++)
		fix_turn(&f, n);
	for (n = 0; n < 12; n++) {
		fix_post(&f, 100 + n, 1, 1);
		fix_fetch(&f, &pr[n], 100 + n, 1, 1);
	}
	fix_complete(&f, &pr[5], 0);
	fix_complete(&f, &pr[0], 0);
	fix_get(&f, 105, 0);
	fix_get(&f, 100, 0);
	CHECK(fix_put(&f, 999, 1, 1) == 0, "no room");
	pvq_abort(f.q);
	CHECK(pvq_reinit(f.q) == EBUSY, "reinit while in flight");
	for (n = 101; n < 112; n++) {
		if (n == 105)
			continue;
		CHECK((uintptr_t)pvq_drain(f.q) == n, "not %lu", n);
	}
	CHECK(pvq_drain(f.q) == NULL, "one too many");
	CHECK(pvq_inflight(f.q) == 0, "%d in flight", pvq_inflight(f.q));
	fix_close(&f);
}

static void
reinit_makes_a_new_queue(const struct impl *im)
{
	struct fix f;
	uintptr_t n;
	int round;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (round = 0; round < 5; round++) {
		for (n = 1; n < 100; n++)
			fix_turn(&f, n);
		fix_post(&f, 200, 2, 2);
		pvq_break(f.q, PVQ_FAULT_OWNER, 0);
		CHECK((uintptr_t)pvq_drain(f.q) == 200, "drain");
		CHECK(pvq_reinit(f.q) == 0, "reinit");
		CHECK(!pvq_broken(f.q), "still broken");
		im->im_reset(f.pe);
	}
	CHECK(f.q->q_stats.qs_faults == 5 && f.q->q_stats.qs_chains == 5 * 100,
	    "statistics are not kept");
	fix_close(&f);
}

static void
index_wraps(const struct impl *im)
{
	struct fix f;
	uintptr_t n;

	fix_open(&f, im, 4, 2);
	for (n = 1; n < 3 * 65536; n++)
		fix_turn(&f, n);
	CHECK(f.q->q_stats.qs_done == n - 1, "%ju", (uintmax_t)f.q->q_stats.qs_done);
	fix_close(&f);
}

static void
statistics_are_right(const struct impl *im)
{
	struct pvq_stats *qs;
	struct fix f;
	int before;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	qs = &f.q->q_stats;
	fix_turn(&f, 1);
	fix_post(&f, 2, 2, 2);
	CHECK(fix_put(&f, 3, 1, 0) == 0, "no room");
	pvq_abort(f.q);
	CHECK(qs->qs_chains == 2 && qs->qs_segs == 5 && qs->qs_done == 1, "%ju, %ju, %ju",
	    (uintmax_t)qs->qs_chains, (uintmax_t)qs->qs_segs, (uintmax_t)qs->qs_done);
	CHECK(qs->qs_indirect == (im->im_indirect ? 1 : 0), "%ju", (uintmax_t)qs->qs_indirect);
	before = kpi_sysctls;
	pvq_sysctl(f.q, NULL, NULL);
	CHECK(kpi_sysctls == before + 11, "%d sysctls", kpi_sysctls - before);
	fix_close(&f);
}

/* The put side, the get side and the peer, each in a thread. */
#define	THREAD_CHAINS	100000

struct thread_state {
	struct fix	 f;
	volatile u_int	 fetched;
};

static void
thread_put(void *arg)
{
	struct thread_state *ts = arg;
	uintptr_t n;

	for (n = 1; n <= THREAD_CHAINS; n++) {
		while (fix_put(&ts->f, n, n % 3, 1 + n % 2) != 0)
			host_yield();
		pvq_commit(ts->f.q);
	}
}

static void
thread_get(void *arg)
{
	struct thread_state *ts = arg;
	struct pvq_done done[8];
	uintptr_t n;
	int got, i;

	for (n = 1; n <= THREAD_CHAINS;) {
		got = pvq_get(ts->f.q, done, 8);
		CHECK(!pvq_broken(ts->f.q), "fault %u", ts->f.q->q_fault);
		if (got == 0)
			host_yield();
		for (i = 0; i < got; i++, n++)
			CHECK((uintptr_t)done[i].pd_cookie == n, "cookie %p for %lu",
			    done[i].pd_cookie, n);
	}
}

static void
thread_peer(void *arg)
{
	struct thread_state *ts = arg;
	struct peer_chain pr;
	uintptr_t n;

	for (n = 1; n <= THREAD_CHAINS; n++) {
		while (!ts->f.po->po_fetch(ts->f.pe, &pr))
			host_yield();
		CHECK(pr.pr_nread == (int)(n % 3) && pr.pr_nwrite == (int)(1 + n % 2),
		    "chain %lu: %d + %d", n, pr.pr_nread, pr.pr_nwrite);
		fix_complete(&ts->f, &pr, MIN(n % 2, pr.pr_wlen));
	}
}

static void
sides_run_at_the_same_time(const struct impl *im)
{
	void (*const bodies[])(void *) = { thread_put, thread_get, thread_peer };
	struct thread_state ts;

	memset(&ts, 0, sizeof(ts));
	fix_open(&ts.f, im, 64, 4);
	host_run(bodies, 3, &ts);
	fix_close(&ts.f);
}

const struct pvq_test pvq_basic_tests[] = {
	{ "rejects_absurd_sizes", "0, too large, not a power of two", rejects_absurd_sizes },
	{ "takes_extreme_sizes", "From 1 slot to 32,768", takes_extreme_sizes },
	{ "creation_survives_shortage", "Any allocation may fail, and nothing leaks",
	    creation_survives_shortage },
	{ "chain_arrives_as_put", "Every mixture of segments reaches the other side",
	    chain_arrives_as_put },
	{ "prepare_counts_slots", "And says 0 for what can never be put", prepare_counts_slots },
	{ "nothing_is_seen_before_commit", "Staged chains are invisible",
	    nothing_is_seen_before_commit },
	{ "abort_takes_back_what_is_staged", "And nothing else", abort_takes_back_what_is_staged },
	{ "full_ring_says_enospc", "Until a completion was collected", full_ring_says_enospc },
	{ "completes_out_of_order", "Each cookie comes back with its own length",
	    completes_out_of_order },
	{ "get_takes_no_more_than_asked", "And nothing that was not published",
	    get_takes_no_more_than_asked },
	{ "drain_gives_back_in_order", "What is in flight, as it was put",
	    drain_gives_back_in_order },
	{ "reinit_makes_a_new_queue", "In the same memory", reinit_makes_a_new_queue },
	{ "index_wraps", "Three turns of the 16-bit index", index_wraps },
	{ "statistics_are_right", "And each has a sysctl", statistics_are_right },
	{ "sides_run_at_the_same_time", "Put, get and peer in a thread each",
	    sides_run_at_the_same_time },
	{ NULL, NULL, NULL }
};
