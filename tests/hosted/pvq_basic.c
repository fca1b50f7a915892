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

#include <dev/virtio/virtio_ring.h>

#include "pvq_fixture.h"

static void
rejects_absurd_sizes(const struct impl *im)
{
	const uint16_t *size;
	struct peer *pe;
	int error;

	error = im->im_create(im, 0, 4, &pe);
	CHECK(error == EINVAL, "no slots: %d", error);
	for (size = im->im_no_sizes; *size != 0; size++) {
		error = im->im_create(im, *size, 4, &pe);
		CHECK(error == EINVAL, "size %u: %d", *size, error);
	}
	error = im->im_create(im, 16, 0, &pe);
	CHECK(error == EINVAL, "no segments: %d", error);
	CHECK(kpi_mallocs == 0 && kpi_dma_tags == 0, "leak");
}

static void
takes_extreme_sizes(const struct impl *im)
{
	const uint16_t *size;
	struct fix f;
	uintptr_t n;

	for (size = im->im_sizes; *size != 0; size++) {
		fix_open(&f, im, *size, 2);
		CHECK(f.q->q_size == *size, "%u slots, not %u", f.q->q_size, *size);
		CHECK(kpi_dma_tags <= 2, "%d tags for a ring", kpi_dma_tags);
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

/* How many slots does a chain take? */
static int
prepared(struct fix *f, int nread, int nwrite)
{
	bus_dma_segment_t segs[PEER_MAX_SEGS] = { { 0x1000, 1 } };
	struct pvq_chain pc = {
		.pc_segs = segs,
		.pc_nread = nread,
		.pc_nwrite = nwrite,
		.pc_cookie = segs,
	};
	int slots;

	if (f->im->im_chain != NULL && nread + nwrite > 0)
		f->im->im_chain(f->pe, &pc);
	slots = pvq_prepare(f->q, &pc);
	host_free(pc.pc_arg);
	return (slots);
}

static void
prepare_counts_slots(const struct impl *im)
{
	struct fix f;
	int nread, slots;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	CHECK(prepared(&f, 0, 0) == 0, "an empty chain");
	for (nread = 1; nread <= FIX_MAX_SEGS; nread++) {
		slots = prepared(&f, nread, 0);
		CHECK(slots >= 1 && slots <= nread, "%d segments: %d", nread, slots);
	}
	CHECK(prepared(&f, nread, 0) == 0, "one segment too many");
	CHECK(prepared(&f, 3, FIX_MAX_SEGS - 2) == 0, "one segment too many, both ways");
	fix_close(&f);

	/* With a slot each there can't be more than the ring has, whatever the driver said. */
	fix_open(&f, im, 4, 64);
	slots = prepared(&f, 5, 0);
	CHECK((slots == 0) == im_can(im, IM_SEG_SLOTS), "%d slots of 4 (2.7.5.3.1)", slots);
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
	fix_commit(&f);
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
		fix_abort(&f);
		CHECK(pvq_room(f.q) == room, "%d slots, were %d", pvq_room(f.q), room);
	}
	CHECK(pvq_inflight(f.q) == 1, "%d in flight", pvq_inflight(f.q));
	fix_commit(&f);
	fix_post(&f, 2, 1, 1);
	fix_fetch(&f, &pr, 1, 1, 1);
	fix_fetch(&f, &pr, 2, 1, 1);
	CHECK(!f.po->po_fetch(f.pe, &pr), "an aborted chain is seen");
	fix_close(&f);
}

static void
several_are_posted_at_once(const struct impl *im)
{
	struct peer_chain pr[FIX_POSTED];
	const uint64_t *chains;
	uint64_t before;
	struct fix f;
	uintptr_t n = 1;
	int i, round, room;

	fix_open(&f, im, 64, FIX_MAX_SEGS);
	chains = &f.q->q_stats.qs_chains;
	for (round = 0; round < 50; round++, n += FIX_POSTED) {
		room = pvq_room(f.q);
		before = *chains;
		fix_post_all(&f, n, FIX_POSTED);
		CHECK(pvq_inflight(f.q) == FIX_POSTED && *chains - before == FIX_POSTED,
		    "%d in flight, %ju chains", pvq_inflight(f.q), (uintmax_t)(*chains - before));
		/* What comes later takes back nothing of it. */
		CHECK(fix_put(&f, n + FIX_POSTED, 1, 1) == 0, "no room");
		fix_abort(&f);
		for (i = 0; i < FIX_POSTED; i++)
			fix_fetch(&f, &pr[i], n + i, i % 3, 1);
		for (i = 0; i < FIX_POSTED; i++) {
			fix_complete(&f, &pr[i], pr[i].pr_wlen);
			fix_get(&f, n + i, pr[i].pr_wlen);
		}
		CHECK(pvq_room(f.q) == room, "%d slots, were %d", pvq_room(f.q), room);
	}
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
	fix_commit(&f);
	CHECK(fix_put(&f, n, 0, 1) == ENOSPC, "room in a full ring");
	fix_fetch(&f, &pr, 1, 0, 1);
	fix_complete(&f, &pr, 0);
	CHECK(fix_put(&f, n, 0, 1) == ENOSPC, "room before get");
	fix_get(&f, 1, 0);
	fix_post(&f, n, 0, 1);
	fix_close(&f);
}

/* With chains of one shape, from one place on: no slot is wasted, none is given twice. */
static void
fill(const struct impl *im, int start, int nread, int nwrite)
{
	int error, i, left = FIX_SIZE, slots;
	uintptr_t first, n = 1;
	struct peer_chain pr;
	struct fix f;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (i = 0; i < start; i++)
		fix_turn(&f, n++);
	first = n;
	/* A long one takes more where all long tables are taken. */
	while (slots = prepared(&f, nread, nwrite), (error = fix_put(&f, n, nread, nwrite)) == 0) {
		left -= slots;
		CHECK(left >= 0, "%d segments at %d: more than the ring has", nread + nwrite, start);
		n++;
	}
	CHECK(error == ENOSPC && left < slots, "error %d, %d places are left for %d", error, left,
	    slots);
	/* What is too little for one of these takes smaller ones. */
	for (; left > 0; left--)
		CHECK(fix_put(&f, n++, 0, 1) == 0, "%d places are left, and none is", left);
	CHECK(fix_put(&f, n, 0, 1) == ENOSPC, "a place too many");
	fix_commit(&f);
	CHECK(fix_put(&f, n, 0, 1) == ENOSPC, "a place too many, committed");
	/* One that comes back makes room for another of its kind, and for no more. */
	fix_fetch(&f, &pr, first, nread, nwrite);
	fix_complete(&f, &pr, 0);
	fix_get(&f, first, 0);
	CHECK(fix_put(&f, n, nread, nwrite) == 0, "its own places are not free");
	CHECK(fix_put(&f, n + 1, 0, 1) == ENOSPC, "a place too many of one that came back");
	fix_abort(&f);
	CHECK(fix_put(&f, n, nread, nwrite) == 0, "its places are not free after an abort");
	CHECK(fix_put(&f, n + 1, 0, 1) == ENOSPC, "a place too many after an abort");
	fix_commit(&f);
	fix_close(&f);
}

static void
full_in_each_way(const struct impl *im)
{
	int nread, nwrite, start;

	for (start = 0; start < FIX_SIZE; start++) {
		for (nread = 0; nread <= 3; nread++) {
			for (nwrite = nread == 0; nwrite <= 3; nwrite++)
				fill(im, start, nread, nwrite);
		}
	}
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
	CHECK(fix_collect(&f, done, FIX_SIZE) == 0, "something in a new queue");
	for (n = 1; n <= 10; n++) {
		fix_post(&f, n, 0, 1);
		fix_fetch(&f, &pr, n, 0, 1);
		f.po->po_complete(f.pe, pr.pr_id, 1);
	}
	CHECK(fix_collect(&f, done, FIX_SIZE) == 0, "seen before it is published");
	f.po->po_publish(f.pe);
	CHECK(fix_collect(&f, done, 3) == 3, "first three");
	CHECK(fix_collect(&f, done + 3, 5) == 5, "next five");
	CHECK(fix_collect(&f, done + 8, FIX_SIZE - 8) == 2, "last two");
	for (i = 0; i < 10; i++)
		CHECK((uintptr_t)done[i].pd_cookie == (uintptr_t)i + 1, "%d: %p", i,
		    done[i].pd_cookie);
	fix_close(&f);
}

static void
drain_gives_back_in_order(const struct impl *im)
{
	int first = im_can(im, IM_ANY_ORDER) ? 5 : 0, second = im_can(im, IM_ANY_ORDER) ? 0 : 1;
	struct peer_chain pr[12];
	struct fix f;
	int n;

	fix_open(&f, im, 64, FIX_MAX_SEGS);
	for (n = 1; n <= 40; n++)
		fix_turn(&f, n);
	for (n = 0; n < 12; n++) {
		fix_post(&f, 100 + n, 1, 1);
		fix_fetch(&f, &pr[n], 100 + n, 1, 1);
	}
	fix_complete(&f, &pr[first], 0);
	fix_complete(&f, &pr[second], 0);
	fix_get(&f, 100 + first, 0);
	fix_get(&f, 100 + second, 0);
	CHECK(fix_put(&f, 999, 1, 1) == 0, "no room");
	fix_abort(&f);
	CHECK(pvq_reinit(f.q) == EBUSY, "reinit while in flight");
	for (n = 0; n < 12; n++) {
		if (n == first || n == second)
			continue;
		CHECK((uintptr_t)fix_drain(&f) == 100U + n, "not %d", n);
	}
	CHECK(fix_drain(&f) == NULL, "one too many");
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
		CHECK((uintptr_t)fix_drain(&f) == 200, "drain");
		CHECK(pvq_reinit(f.q) == 0, "reinit");
		CHECK(!pvq_broken(f.q), "still broken");
		im->im_reset(f.pe);
	}
	CHECK(f.q->q_stats.qs_faults == 5 && f.q->q_stats.qs_chains == 5 * 100,
	    "statistics are not kept");
	fix_close(&f);
}

/* What was put and not committed is given back by a drain, too. */
static void
drain_gives_back_what_was_put(const struct impl *im)
{
	bus_dma_segment_t seg = { 0x1000, 16 };
	struct pvq_chain pc = { .pc_segs = &seg, .pc_nwrite = 1, .pc_cookie = (void *)9 };
	struct fix f;
	int room;

	fix_open(&f, im, 8, 1);
	room = pvq_room(f.q);
	fix_post(&f, 5, 0, 1);
	if (im->im_chain != NULL)
		im->im_chain(f.pe, &pc);
	CHECK(pvq_reserve(f.q, pvq_prepare(f.q, &pc)) == 0, "no room");
	pvq_put(f.q, &pc, 1);
	if (im->im_chain != NULL)
		host_free(pc.pc_arg);
	CHECK((uintptr_t)fix_drain(&f) == 5 && fix_drain(&f) == NULL, "another chain");
	CHECK(pvq_reinit(f.q) == 0 && pvq_room(f.q) == room, "room for %d", pvq_room(f.q));
	im->im_reset(f.pe);
	fix_turn(&f, 6);
	fix_close(&f);
}

static void
index_wraps(const struct impl *im)
{
	uintptr_t end = (host_soaking() ? 3 : 1) * 65536 + 1000, n;
	struct fix f;

	fix_open(&f, im, 4, 2);
	for (n = 1; n < end; n++)
		fix_turn(&f, n);
	CHECK(f.q->q_stats.qs_done == n - 1, "%ju", (uintmax_t)f.q->q_stats.qs_done);
	fix_close(&f);
}

static void
statistics_are_right(const struct impl *im)
{
	struct pvq_stats *qs;
	struct fix f;
	uint64_t own;
	int before;
	u_int i;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	qs = &f.q->q_stats;
	fix_turn(&f, 1);
	fix_post(&f, 2, 2, 2);
	CHECK(fix_put(&f, 3, 1, 0) == 0, "no room");
	fix_abort(&f);
	CHECK(qs->qs_chains == 2 && qs->qs_segs == 5 && qs->qs_done == 1, "%ju, %ju, %ju",
	    (uintmax_t)qs->qs_chains, (uintmax_t)qs->qs_segs, (uintmax_t)qs->qs_done);
	CHECK(qs->qs_put_own == (im_can(im, IM_INDIRECT) ? 1 : 0), "%ju", (uintmax_t)qs->qs_put_own);
	/* Of one, two and three segments: two tables, each time. */
	own = qs->qs_put_own;
	for (i = 1; i <= 2; i++) {
		fix_post_all(&f, 10 * i, 3);
		CHECK(qs->qs_put_own == own + (im_can(im, IM_INDIRECT) ? 2 * i : 0), "%ju after %u",
		    (uintmax_t)qs->qs_put_own, i);
	}
	before = kpi_sysctls;
	pvq_sysctl(f.q, NULL, NULL);
	/* Indirect tables and used lengths are counted by virtqueues only. */
	CHECK(kpi_sysctls == before + (im_can(im, IM_LENGTHS) ? 11 : 9), "%d sysctls",
	    kpi_sysctls - before);
	fix_close(&f);
}

/*
 * The put side, the get side and the peer, each in a thread: they give the CPU to each other more often
 * than they do anything, which takes its time where all threads of a machine are busy, or emulated.
 */
#define	THREAD_CHAINS	(host_soaking() ? 100000u : 3000u)

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
		fix_commit(&ts->f);
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
		got = fix_collect(&ts->f, done, 8);
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

/* From `off' in a page pair on: the segments, as offset and length, or none if there is no room. */
static const struct phys_case {
	bool		scattered;
	size_t		off, len;
	int		max;
	bus_size_t	seg_max;
	int		n;
	struct {
		size_t	off, len;
	}		segs[4];
} phys_cases[] = {
	{ false, 100, 50, 4, 65536, 1, { { 100, 50 } } },
	{ false, 4000, 200, 1, 65536, 1, { { 4000, 200 } } },
	{ false, 0, 8192, 1, 8192, 1, { { 0, 8192 } } },
	{ false, 0, 8192, 2, 8191, 2, { { 0, 8191 }, { 8191, 1 } } },
	{ false, 0, 8192, 1, 8191, -1 },
	{ false, 10, 100, 4, 30, 4, { { 10, 30 }, { 40, 30 }, { 70, 30 }, { 100, 10 } } },
	{ true, 4000, 200, 2, 65536, 2, { { 8096, 96 }, { 0, 104 } } },
	{ true, 4000, 97, 2, 65536, 2, { { 8096, 96 }, { 0, 1 } } },
	{ true, 4000, 96, 1, 65536, 1, { { 8096, 96 } } },
	{ true, 4000, 200, 1, 65536, -1 },
	{ true, 1, 4095, 1, 65536, 1, { { 4097, 4095 } } },
	{ true, 0, 0, 0, 65536, 0 },
};

static void
physical_segments_are_as_few_as_can_be(const struct impl *im __unused)
{
	bus_dma_segment_t segs[4];
	const struct phys_case *pc;
	char *memory, *pages;
	int i, n;

	memory = host_alloc(4 * PAGE_SIZE, sizeof(void *));
	pages = (char *)roundup2((uintptr_t)memory, 2 * PAGE_SIZE);
	for (pc = phys_cases; pc < phys_cases + nitems(phys_cases); pc++) {
		kpi_scattered = pc->scattered;
		n = pvq_phys_add(segs, 0, pc->max, pc->seg_max, pages + pc->off, pc->len);
		CHECK(n == pc->n, "case %td: %d segments", pc - phys_cases, n);
		for (i = 0; i < n; i++)
			CHECK(segs[i].ds_addr == (uintptr_t)pages + pc->segs[i].off &&
			    segs[i].ds_len == pc->segs[i].len, "case %td: segment %d: %zd, %zu",
			    pc - phys_cases, i, segs[i].ds_addr - (uintptr_t)pages,
			    segs[i].ds_len);
	}
	/* What comes next is appended to the last one if it lies behind it. */
	kpi_scattered = false;
	n = pvq_phys_add(segs, 0, 4, 65536, pages, 10);
	n = pvq_phys_add(segs, n, 4, 65536, pages + 10, 20);
	n = pvq_phys_add(segs, n, 4, 65536, pages + 31, 1);
	CHECK(n == 2 && segs[0].ds_len == 30 && segs[1].ds_len == 1, "%d segments", n);
	/* Also over the end of a page, and as far as that one may be long. */
	n = pvq_phys_add(segs, 0, 4, 65536, pages, 100);
	n = pvq_phys_add(segs, n, 4, 65536, pages + 100, PAGE_SIZE);
	CHECK(n == 1 && segs[0].ds_len == PAGE_SIZE + 100, "%d segments", n);
	n = pvq_phys_add(segs, 0, 4, PAGE_SIZE, pages, 100);
	n = pvq_phys_add(segs, n, 4, PAGE_SIZE, pages + 100, PAGE_SIZE);
	CHECK(n == 2 && segs[0].ds_len == PAGE_SIZE && segs[1].ds_len == 100 &&
	    segs[1].ds_addr == (uintptr_t)pages + PAGE_SIZE, "%d segments", n);
	for (i = 99; i <= 101; i++) {
		memset(segs, 0, sizeof(segs));
		n = pvq_phys_add(segs, 0, 4, 150, pages, 50);
		n = pvq_phys_add(segs, n, 4, 150, pages + 50, i);
		CHECK(n == 1 + (i > 100) && segs[0].ds_len == MIN(50 + (u_int)i, 150),
		    "%d segments of %d", n, i);
	}
	host_free(memory);
}

/* Tables are as many to a page as there is room for. */
static void
tables_fill_their_pages(const struct impl *im)
{
	struct fix f;
	size_t size, without;

	/* Half a page of them, and two. */
	for (size = 32; size <= 128; size += 96) {
		fix_open(&f, im, size, 1);
		without = kpi_dma_bytes;
		fix_close(&f);
		fix_open(&f, im, size, 4);
		CHECK(kpi_dma_bytes - without == size * 4 * sizeof(struct vring_desc),
		    "%zu bytes for %zu tables", kpi_dma_bytes - without, size);
		fix_close(&f);
	}
	CHECK(kpi_dma_bytes == 0, "%zu bytes are left", kpi_dma_bytes);
}

/* A watchdog sees what waits, wherever in the ring it is, and nothing else. */
static void
look_sees_what_waits(const struct impl *im)
{
	struct peer_chain pr[3];
	struct fix f;
	int i, turn;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (turn = 0; turn < 3 * FIX_SIZE; turn++) {
		CHECK(pvq_peek(f.q) == PVQ_QUIET, "turn %d: nothing is in flight", turn);
		for (i = 0; i < 3; i++) {
			fix_post(&f, i + 1, 0, 1 + i % 2);
			fix_fetch(&f, &pr[i], i + 1, 0, 1 + i % 2);
		}
		for (i = 0; i < 3; i++) {
			CHECK(pvq_peek(f.q) == PVQ_QUIET, "turn %d: nothing has completed", turn);
			fix_complete(&f, &pr[i], 1);
			CHECK(pvq_peek(f.q) == PVQ_WAITS, "turn %d: not seen", turn);
			fix_get(&f, i + 1, 1);
		}
	}
	fix_close(&f);
}

/* Nothing is put of a chain for which there is no room. */
static void
submit_needs_room(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;
	uintptr_t n, i;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (n = 1; fix_put(&f, n, 0, 1) == 0; n++)
		continue;
	fix_commit(&f);
	CHECK(fix_submit_fails(&f, n, 0, 1) == ENOSPC, "a full ring takes it");
	for (i = 1; i < n; i++)
		fix_fetch(&f, &pr, i, 0, 1);
	CHECK(!f.po->po_fetch(f.pe, &pr) && !pvq_broken(f.q), "one more");
	fix_close(&f);
}

const struct pvq_test pvq_basic_tests[] = {
	{ "tables_fill_their_pages", "Indirect tables of four segments", tables_fill_their_pages,
	    IM_INDIRECT, IM_SHORT },
	{ "physical_segments", "Memory side by side is one segment, and none is too long",
	    physical_segments_are_as_few_as_can_be },
	{ "rejects_absurd_sizes", "0, and what its ring can't have", rejects_absurd_sizes },
	{ "takes_extreme_sizes", "The smallest and the largest", takes_extreme_sizes },
	{ "creation_survives_shortage", "Any allocation may fail, and nothing leaks",
	    creation_survives_shortage },
	{ "chain_arrives_as_put", "Every mixture of segments reaches the peer",
	    chain_arrives_as_put },
	{ "prepare_counts_slots", "And says 0 for what can never be put", prepare_counts_slots },
	{ "nothing_is_seen_before_commit", "Staged chains are invisible",
	    nothing_is_seen_before_commit },
	{ "abort_takes_back_what_is_staged", "And nothing else", abort_takes_back_what_is_staged },
	{ "several_are_posted_at_once", "In one pass, with nothing to take back",
	    several_are_posted_at_once },
	{ "submit_needs_room", "And says so", submit_needs_room },
	{ "full_ring_says_enospc", "Until a completion was collected", full_ring_says_enospc },
	{ "full_in_each_way", "With chains of each shape, from each place on", full_in_each_way },
	{ "completes_out_of_order", "Each cookie comes back with its own length",
	    completes_out_of_order, IM_ANY_ORDER },
	{ "get_takes_no_more_than_asked", "And nothing that was not published",
	    get_takes_no_more_than_asked },
	{ "drain_gives_back_in_order", "What is in flight, as it was put",
	    drain_gives_back_in_order },
	{ "reinit_makes_a_new_queue", "In the same memory", reinit_makes_a_new_queue },
	{ "drain_gives_back_what_was_put", "And not committed", drain_gives_back_what_was_put, 0,
	    IM_MSGS },
	{ "index_wraps", "Three turns of the 16-bit index", index_wraps, 0, 0, true },
	{ "look_sees_what_waits", "In any place of the ring", look_sees_what_waits, IM_LENGTHS },
	{ "statistics_are_right", "And each has a sysctl", statistics_are_right },
	{ "sides_run_at_the_same_time", "Put, get and peer in a thread each",
	    sides_run_at_the_same_time },
	{ .name = NULL }
};
