/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Conformance of a pvq(9): driver and peer in threads of their own, which sleep for kicks and
 * interrupts and for nothing else.
 *
 * A notification that should have come and did not leaves all threads asleep.  That is a state
 * which can be told from all others (host_bell_wait()), so that no time is measured: whatever the
 * machine does meanwhile, these tests do not fail without a reason.  Both sides dawdle for a random
 * moment before they look for the last time, so that these moments meet often: with a store-load
 * fence of the driver's missing, some of the first thousand do.
 *
 * The same tests run under ThreadSanitizer (pvq_race_test), where all that either side writes and the
 * other reads is plain memory: descriptors, messages, buffers, and the driver's own record of a chain.
 * What is not handed over by a release and an acquire is a reported race there, on any machine.
 *
 * In TWO, the driver is one thread; in THREE, its putting and its getting side have one each.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include "pvq_fixture.h"

#define	RACE_SIZE	16
#define	RACE_CHAINS	(4 * RACE_SIZE)	/* what is put again has completed before */
#if __has_feature(thread_sanitizer)
#define	RACE_ROUNDS	(host_soaking() ? 20000 : 500)	/* a race is seen when it is met */
#else
#define	RACE_ROUNDS	(host_soaking() ? 200000 : 10000)
#endif
#define	RACE_BATCH	4
#define	RACE_DAWDLE	32
#define	RACE_REPLIES	5	/* buffers for the peer in a long chain; it writes one */
CTASSERT(1 + RACE_REPLIES > IM_SHORT_SEGS);

/* A chain that is put again and again: a buffer that the peer reads, and one that it writes. */
struct race_chain {
	struct pvq_chain pc;
	bus_dma_segment_t segs[1 + RACE_REPLIES];
	uint64_t	*request;
	uint64_t	*reply;
};

struct race {
	struct peer	*pe;
	struct pvq	*q;
	const struct impl *im;
	uint8_t		*memory;
	uint64_t	 rounds;
	struct race_chain chains[RACE_CHAINS];
	struct host_bell driver;	/* an interrupt */
	struct host_bell device;	/* a kick */
	struct host_bell room;		/* chains have completed, for the putting side */
	uint64_t	 put __aligned(CACHE_LINE_SIZE);
	uint32_t	 put_seed;
	uint64_t	 got __aligned(CACHE_LINE_SIZE);
	uint32_t	 get_seed;
	uint64_t	 served __aligned(CACHE_LINE_SIZE);
	uint32_t	 peer_seed;
};

static uint64_t
race_answer(uint64_t request)
{

	return (request * 3 + 1);
}

static void
race_dawdle(uint32_t *seed)
{
	volatile u_int n;

	/* Mostly short: a store is on its way for some fifty nanoseconds. */
	n = RACE_DAWDLE << peer_random(seed) % 4;
	for (n = peer_random(seed) % n; n > 0; n--)
		continue;
}

/* All threads are asleep, this one among them, and something is left to do. */
static void
race_hung(struct race *r)
{
	const struct pvq *q = r->q;
	char where[200];
	bool kick, intr;

	r->pe->pe_ops->po_where(r->pe, where, sizeof(where));
	kick = r->pe->pe_ops->po_listen(r->pe);
	intr = pvq_intr_enable(r->q, 1);
	CHECK(false, "%s: %s.  All are asleep after %lu of %lu chains: %lu put, %lu served.  "
	    "The queue: %u taken, %u committed, %u given, %u completed; %s", r->im->im_name,
	    kick && intr ? "a kick and an interrupt are lost" : kick ? "a kick is lost" :
	    intr ? "an interrupt is lost" : "something is lost", r->got, r->rounds, r->put, r->served,
	    q->q_taken, q->q_committed, q->q_given, q->q_completed, where);
}

static void
race_sleep(struct race *r, struct host_bell *bell)
{

	if (!host_bell_wait(bell))
		race_hung(r);
}

static void
race_kicked(struct peer *pe)
{

	host_bell_ring(&((struct race *)pe->pe_kick_arg)->device);
}

/* Put some chains, as far as there is room.  Returns how many. */
static int
race_put(struct race *r)
{
	struct race_chain *rc;
	int i, n = 1 + peer_random(&r->put_seed) % RACE_BATCH;
	const bool post = peer_random(&r->put_seed) % 2 == 0;

	n = MIN((uint64_t)n, r->rounds - r->put);
	for (i = 0; i < n; i++, r->put++) {
		rc = &r->chains[r->put % RACE_CHAINS];
		if (pvq_reserve(r->q, pvq_prepare(r->q, &rc->pc)) != 0)
			break;
		*rc->request = r->put;
		if (post)
			pvq_post(r->q, &rc->pc, 1);
		else
			pvq_put(r->q, &rc->pc, 1);
	}
	if (i > 0) {
		race_dawdle(&r->put_seed);
		if (!post)
			pvq_commit(r->q);
		(void)pvq_kick(r->q);
	}
	return (i);
}

/* Get what has completed.  Returns how many. */
static int
race_get(struct race *r)
{
	struct pvq_done done[RACE_BATCH];
	struct race_chain *rc;
	int got, i;

	got = pvq_get(r->q, done, RACE_BATCH);
	CHECK(!pvq_broken(r->q), "fault %u", r->q->q_fault);
	for (i = 0; i < got; i++) {
		rc = done[i].pd_cookie;
		CHECK(*rc->reply == race_answer(*rc->request), "the reply to %lu is %lu", *rc->request,
		    *rc->reply);
	}
	r->got += got;
	return (got);
}

/* Sleep until something has completed, unless it has. */
static void
race_await(struct race *r)
{

	race_dawdle(&r->get_seed);
	if (pvq_intr_enable(r->q, 1 + peer_random(&r->get_seed) % 2))
		return;
	race_sleep(r, &r->driver);
	pvq_intr_disable(r->q);
}

/* The driver, as one thread; seldom more in flight than a batch, that both sides run out of work. */
static void
race_driver(void *arg)
{
	struct race *r = arg;
	int put;

	while (r->got < r->rounds) {
		put = r->put < r->rounds && r->put - r->got < RACE_BATCH ? race_put(r) : 0;
		if (race_get(r) == 0 && put == 0)
			race_await(r);
	}
}

/* Serve some chains, last first if the ring has any order.  Returns how many. */
static int
race_serve(struct race *r)
{
	const struct peer_ops *po = r->pe->pe_ops;
	struct peer_chain chains[RACE_BATCH], *pr;
	int i, n;

	for (n = 0; n < RACE_BATCH && po->po_fetch(r->pe, &chains[n]); n++)
		continue;
	for (i = 0; i < n; i++) {
		pr = &chains[im_can(r->im, IM_ANY_ORDER) ? n - 1 - i : i];
		CHECK(pr->pr_nread == 1 && (pr->pr_nwrite == 1 || pr->pr_nwrite == RACE_REPLIES),
		    "%d + %d", pr->pr_nread, pr->pr_nwrite);
		*(uint64_t *)(uintptr_t)pr->pr_segs[1].addr =
		    race_answer(*(const uint64_t *)(uintptr_t)pr->pr_segs[0].addr);
		po->po_complete(r->pe, pr->pr_id, sizeof(uint64_t));
		race_dawdle(&r->peer_seed);
		/* Each on its own, or together. */
		if (i == n - 1 || peer_random(&r->peer_seed) % 2 == 0) {
			po->po_publish(r->pe);
			if (po->po_interrupts(r->pe))
				host_bell_ring(&r->driver);
		}
	}
	r->served += n;
	return (n);
}

static void
race_peer(void *arg)
{
	struct race *r = arg;

	while (r->served < r->rounds) {
		if (race_serve(r) > 0)
			continue;
		race_dawdle(&r->peer_seed);
		if (r->pe->pe_ops->po_listen(r->pe))
			continue;
		race_sleep(r, &r->device);
		r->pe->pe_ops->po_ignore(r->pe);
	}
}

/* The buffers, each in a cache line of its own; shared once, for as long as the test runs. */
static void
race_share(struct race *r, struct race_chain *rc, uint8_t *memory)
{
	const bool long_one = im_can(r->im, IM_SHORT) && rc - r->chains & 1;
	int i;

	rc->request = (uint64_t *)memory;
	rc->reply = (uint64_t *)(memory + CACHE_LINE_SIZE);
	rc->pc = (struct pvq_chain){ .pc_segs = rc->segs, .pc_nread = 1,
	    .pc_nwrite = long_one ? RACE_REPLIES : 1, .pc_cookie = rc };
	rc->segs[0] = (bus_dma_segment_t){ (uintptr_t)rc->request, sizeof(*rc->request) };
	for (i = 0; i < rc->pc.pc_nwrite; i++)
		rc->segs[1 + i] = (bus_dma_segment_t){ (uintptr_t)(rc->reply + i), sizeof(*rc->reply) };
	if (r->im->im_chain != NULL)
		r->im->im_chain(r->pe, &rc->pc);
	im_share(r->im, r->pe, &rc->pc);
}

static struct race *
race_open(const struct impl *im)
{
	struct race *r = host_alloc(sizeof(*r), CACHE_LINE_SIZE);
	int error, i;

	memset(r, 0, sizeof(*r));
	r->im = im;
	r->rounds = RACE_ROUNDS;
	r->put_seed = 1;
	r->get_seed = 2;
	r->peer_seed = 3;
	error = im->im_create(im, RACE_SIZE, im_can(im, IM_SHORT) ? 1 + RACE_REPLIES : 2, &r->pe);
	CHECK(error == 0, "error %d", error);
	r->q = r->pe->pe_pvq;
	r->pe->pe_kick = race_kicked;
	r->pe->pe_kick_arg = r;
	r->memory = host_alloc(RACE_CHAINS * 2 * CACHE_LINE_SIZE, PAGE_SIZE);
	for (i = 0; i < RACE_CHAINS; i++)
		race_share(r, &r->chains[i], r->memory + i * 2 * CACHE_LINE_SIZE);
	return (r);
}

static void
race_close(struct race *r)
{
	struct race_chain *rc;

	CHECK(pvq_inflight(r->q) == 0 && pvq_room(r->q) == r->q->q_size, "%d in flight, %d free",
	    pvq_inflight(r->q), pvq_room(r->q));
	for (rc = r->chains; rc < r->chains + RACE_CHAINS; rc++) {
		CHECK(im_unshare(r->im, r->pe, rc->segs, rc->pc.pc_nread + rc->pc.pc_nwrite) == 0,
		    "held");
		host_free(rc->pc.pc_arg);
	}
	r->im->im_destroy(r->pe);
	host_free(r->memory);
	host_free(r);
}

static void
race_two(const struct impl *im)
{
	void (*const bodies[])(void *) = { race_driver, race_peer };
	struct race *r = race_open(im);

	host_run_apart(bodies, nitems(bodies), r);
	race_close(r);
}

#if __has_feature(thread_sanitizer)
static void
race_putter(void *arg)
{
	struct race *r = arg;

	while (r->put < r->rounds) {
		if (race_put(r) == 0)
			race_sleep(r, &r->room);
	}
}

static void
race_getter(void *arg)
{
	struct race *r = arg;

	while (r->got < r->rounds) {
		if (race_get(r) > 0)
			host_bell_ring(&r->room);
		else
			race_await(r);
	}
}

static void
race_three(const struct impl *im)
{
	void (*const bodies[])(void *) = { race_putter, race_getter, race_peer };
	struct race *r = race_open(im);

	host_run_apart(bodies, nitems(bodies), r);
	race_close(r);
}

static void
race_careless(void *arg)
{

	host_race_ignore(true);
	race_peer(arg);
	host_race_ignore(false);
}

static void
race_no_order(const struct impl *im)
{
	void (*const bodies[])(void *) = { race_putter, race_getter, race_careless };
	struct race *r = race_open(im);

	host_run_apart(bodies, nitems(bodies), r);
	race_close(r);
}
#endif

const struct pvq_test pvq_race_tests[] = {
	{ "asleep_until_told", "Driver and peer race each other to sleep, and none oversleeps",
	    race_two },
#if __has_feature(thread_sanitizer)
	{ "sides_asleep_until_told", "The same with a thread for each side of the driver", race_three },
	{ "sides_trust_no_order", "And with a peer that hands nothing over: the sides do so themselves",
	    race_no_order },
#endif
	{ .name = NULL }
};
