/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Conformance of a pvq(9): a long walk of random operations, against a simple model.
 *
 * The model is two lists of chain numbers: staged, and in flight; and for each chain in flight what
 * the peer has done with it.  The seeds are fixed, so a failure repeats itself.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include "pvq_fixture.h"

#define	WALK_SIZE	32
#define	WALK_SEGS	5
#define	WALK_STEPS	60000

struct walk_chain {
	uintptr_t	 number;
	int		 nread;
	int		 nwrite;
	struct peer_chain pr;		/* once it is fetched */
};

struct walk {
	struct fix	 f;
	uint32_t	 seed;
	uintptr_t	 next;		/* number of the next chain */
	struct walk_chain staged[WALK_SIZE], posted[WALK_SIZE], fetched[WALK_SIZE];
	struct walk_chain completed[WALK_SIZE];
	int		 nstaged, nposted, nfetched, ncompleted;
	uint32_t	 lens[WALK_SIZE];
	bool		 waiting;	/* intr_enable said false, and nothing was collected since */
	u_int		 after;
	bool		 one;		/* the next completion was asked for */
	uintptr_t	 all;		/* what was in flight then has lower numbers */
};

static int
walk_random(struct walk *w, int n)
{

	return (peer_random(&w->seed) % n);
}

static void
walk_put(struct walk *w)
{
	const bool post = w->nstaged == 0 && walk_random(w, 2) == 0;
	struct walk_chain *wc = &w->staged[w->nstaged];
	int error, room;

	if (w->nstaged == WALK_SIZE)
		return;
	wc->number = w->next;
	wc->nread = walk_random(w, 3);
	wc->nwrite = 1 + walk_random(w, 3);
	room = pvq_room(w->f.q);
	error = fix_put_one(&w->f, wc->number, wc->nread, wc->nwrite, post);
	CHECK(error == 0 || error == ENOSPC, "error %d", error);
	CHECK(error == 0 || room < wc->nread + wc->nwrite, "ENOSPC with %d free", room);
	if (error != 0)
		return;
	w->next++;
	if (post)
		w->posted[w->nposted++] = *wc;
	else
		w->nstaged++;
}

static void
walk_commit(struct walk *w)
{

	fix_commit(&w->f);
	memcpy(&w->posted[w->nposted], w->staged, w->nstaged * sizeof(w->staged[0]));
	w->nposted += w->nstaged;
	w->nstaged = 0;
}

static void
walk_abort(struct walk *w)
{

	fix_abort(&w->f);
	w->next -= w->nstaged;
	w->nstaged = 0;
}

static void
walk_fetch(struct walk *w)
{
	struct walk_chain *wc = &w->posted[0];
	struct peer_chain pr;

	if (w->nposted == 0) {
		CHECK(!w->f.po->po_fetch(w->f.pe, &pr), "a chain out of nowhere");
		return;
	}
	fix_fetch(&w->f, &wc->pr, wc->number, wc->nread, wc->nwrite);
	w->fetched[w->nfetched++] = *wc;
	w->nposted--;
	memmove(&w->posted[0], &w->posted[1], w->nposted * sizeof(w->posted[0]));
}

/* Has enough completed, since intr_enable said false, for an interrupt to be due? */
static bool
walk_due(const struct walk *w)
{
	int i;

	if (w->one || im_can(w->f.im, IM_EXACT))
		return (w->ncompleted >= (int)w->after);
	/* Where messages are counted only the next one and all are sure (pvq.h). */
	for (i = 0; i < w->nposted; i++) {
		if (w->posted[i].number < w->all)
			return (false);
	}
	for (i = 0; i < w->nfetched; i++) {
		if (w->fetched[i].number < w->all)
			return (false);
	}
	return (true);
}

static void
walk_complete(struct walk *w)
{
	struct walk_chain *wc;
	uint32_t len;
	int i;

	if (w->nfetched == 0)
		return;
	i = im_can(w->f.im, IM_ANY_ORDER) ? walk_random(w, w->nfetched) : 0;
	wc = &w->fetched[i];
	len = walk_random(w, wc->pr.pr_wlen + 1);
	fix_complete(&w->f, &wc->pr, len);
	w->lens[w->ncompleted] = len;
	w->completed[w->ncompleted++] = *wc;
	w->nfetched--;
	memmove(&w->fetched[i], &w->fetched[i + 1], (w->nfetched - i) * sizeof(w->fetched[0]));
	if (w->f.po->po_interrupts(w->f.pe))
		w->waiting = false;
	CHECK(!w->waiting || !walk_due(w), "no interrupt for %d completions", w->ncompleted);
}

static void
walk_get(struct walk *w)
{
	struct pvq_done done[WALK_SIZE];
	int got, i, max;

	max = 1 + walk_random(w, WALK_SIZE);
	got = fix_collect(&w->f, done, max);
	CHECK(got == MIN(max, w->ncompleted), "got %d of %d", got, w->ncompleted);
	for (i = 0; i < got; i++)
		CHECK((uintptr_t)done[i].pd_cookie == w->completed[i].number &&
		    w->f.im->im_reported(&done[i]) == w->lens[i], "%p, %u bytes",
		    done[i].pd_cookie, w->f.im->im_reported(&done[i]));
	w->ncompleted -= got;
	memmove(&w->completed[0], &w->completed[got], w->ncompleted * sizeof(w->completed[0]));
	memmove(&w->lens[0], &w->lens[got], w->ncompleted * sizeof(w->lens[0]));
	w->waiting = false;
}

static void
walk_enable(struct walk *w)
{
	u_int after, inflight, left;
	bool waits;

	inflight = w->nposted + w->nfetched + w->ncompleted;
	after = walk_random(w, 6);
	w->one = after <= 1;
	waits = pvq_intr_enable(w->f.q, after);
	if (after > inflight)
		after = inflight;
	if (after == 0 || !im_can(w->f.im, IM_EVENT))
		after = 1;
	/* A batch that is a small part of a packed ring does not go round its end. */
	left = w->f.q->q_size - w->f.q->q_completed % w->f.q->q_size;
	if (im_can(w->f.im, IM_PACKED) && after > left && after <= w->f.q->q_size / 4)
		after = left;
	w->after = after;
	w->all = w->next - w->nstaged;
	CHECK(waits || inflight == 0 || !walk_due(w), "%d wait, after %u", w->ncompleted, after);
	CHECK(!waits || w->ncompleted >= (int)after || !im_can(w->f.im, IM_EXACT),
	    "%d do not wait, after %u", w->ncompleted, after);
	w->waiting = !waits;
}

static void
walk_kick(struct walk *w)
{

	if (w->nstaged == 0)
		(void)pvq_kick(w->f.q);
	if (walk_random(w, 2) == 0)
		(void)w->f.po->po_listen(w->f.pe);
	else
		w->f.po->po_ignore(w->f.pe);
}

/* The peer fails: what is in flight comes back in order, and all begins anew. */
static void
walk_reset(struct walk *w)
{
	uintptr_t last, n;
	int count;

	walk_abort(w);
	last = 0;
	for (count = 0; (n = (uintptr_t)fix_drain(&w->f)) != 0; count++) {
		CHECK(n > last, "chain %lu after %lu", n, last);
		last = n;
	}
	CHECK(count == w->nposted + w->nfetched + w->ncompleted, "%d drained", count);
	CHECK(pvq_reinit(w->f.q) == 0, "reinit");
	w->f.im->im_reset(w->f.pe);
	w->nposted = w->nfetched = w->ncompleted = 0;
	w->waiting = false;
}

static void
walk_step(struct walk *w)
{
	int dice = walk_random(w, 1000);

	if (dice < 250)
		walk_put(w);
	else if (dice < 400)
		walk_commit(w);
	else if (dice < 430)
		walk_abort(w);
	else if (dice < 650)
		walk_fetch(w);
	else if (dice < 850)
		walk_complete(w);
	else if (dice < 930)
		walk_get(w);
	else if (dice < 960)
		walk_enable(w);
	else if (dice < 998)
		walk_kick(w);
	else
		walk_reset(w);
	CHECK(!pvq_broken(w->f.q), "fault %u", w->f.q->q_fault);
	CHECK(pvq_inflight(w->f.q) == w->nposted + w->nfetched + w->ncompleted, "%d in flight",
	    pvq_inflight(w->f.q));
}

static void
random_walk(const struct impl *im)
{
	struct walk *w = host_alloc(sizeof(*w), sizeof(void *));
	uint32_t seed;
	int i;

	for (seed = 1; seed <= 3; seed++) {
		memset(w, 0, sizeof(*w));
		w->seed = seed * 7919;
		w->next = 1;
		fix_open(&w->f, im, WALK_SIZE, WALK_SEGS);
		for (i = 0; i < WALK_STEPS; i++)
			walk_step(w);
		CHECK(w->next > 1000, "the walk went nowhere");
		fix_close(&w->f);
	}
	host_free(w);
}

const struct pvq_test pvq_random_tests[] = {
	{ "random_walk", "Operations at random agree with a simple model", random_walk },
	{ .name = NULL }
};
