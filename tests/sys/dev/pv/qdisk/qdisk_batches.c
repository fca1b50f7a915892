/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Notifications of deep queues of pv_blk, seen from the device (see qdisk.c).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/kthread.h>
#include <sys/proc.h>

#include "qdisk.h"

/* A disk with a queue: bios 0 to QD_DEEP - 1 are in flight, and the next notifications may wait. */
#define	QD_DEEP		31
#define	QD_WINDOW	256	/* completions of a window (pv_blk_queue.c) */

static struct pv_blk_queue *
qd_begin_deep(struct qd_softc *sc)
{
	struct pv_blk_queue *bq = &sc->qd_blk.blk_queues[0];
	u_int i;

	qd_begin(sc, 1, QD_SLOTS, 8);
	for (i = 0; i < QD_DEEP; i++)
		W(sc, i, 0);
	bq->bq_pace.pp_waits = true;
	return (bq);
}

/* The oldest n requests end, by one interrupt. */
static void
qd_answer_some(struct qd_softc *sc, u_int n)
{
	for (; n > 0; n--)
		qd_answer_silently(sc, 0);
	pv_blk_intr(&sc->qd_blk.blk_queues[0]);
}

/* Bios from to to - 1 are submitted, and the device is notified so often. */
static void
qd_submits(struct qd_softc *sc, u_int from, u_int to, u_int notified)
{
	const u_int kicks = sc->qd_queues[0].qq_kicks;
	u_int i;

	for (i = from; i < to; i++)
		W(sc, i, 0);
	QD_EQ(sc, sc->qd_queues[0].qq_kicks, kicks + notified);
}

static void
qd_end_deep(struct qd_softc *sc)
{
	qd_answer_all(sc);
	qd_end(sc);
}

/*
 * What was given back together is notified of together, at once when all of it has come again; an
 * interrupt in between changes nothing.
 */
static void
qd_notification_waits_for_those_given_back(struct qd_softc *sc)
{
	struct qd_queue *qq = &sc->qd_queues[0];
	struct pv_blk_queue *bq = qd_begin_deep(sc);
	u_int kicks;

	qd_answer_some(sc, 5);
	qd_submits(sc, 0, 3, 0);
	kicks = qq->qq_kicks;
	pv_blk_intr(bq);
	QD_EQ(sc, qq->qq_kicks, kicks);
	qd_submits(sc, 3, 4, 0);
	qd_submits(sc, 4, 5, 1);
	QD_EQ(sc, bq->bq_stats.bs_deferred_kicks, 5);
	/* Nor does an interrupt wait: for the next completion, always. */
	QD_EQ(sc, qq->qq_after, 1);
	qd_end_deep(sc);
}

/* No more requests wait than the device has to work on, and none while it has nothing. */
static void
qd_no_more_wait_than_are_worked_on(struct qd_softc *sc)
{
	struct qd_queue *qq = &sc->qd_queues[0];
	struct pv_blk_queue *bq = qd_begin_deep(sc);
	u_int kicks;

	qd_answer_some(sc, 20);
	qd_submits(sc, 0, 10, 0);
	qd_submits(sc, 10, 11, 1);
	qd_submits(sc, 11, 14, 0);
	kicks = qq->qq_kicks;
	/* Of 22 it still has 3, for which 3 may not wait. */
	qd_answer_some(sc, 18);
	QD_EQ(sc, qq->qq_kicks, kicks);
	qd_answer_some(sc, 1);
	QD_EQ(sc, qq->qq_kicks, kicks + 1);
	qd_answer_all_at_once(sc, 0);
	QD_EQ(sc, bq->bq_ninflight, 0);
	qd_submits(sc, 0, 1, 1);
	qd_end_deep(sc);
}

/* Nor more than blk_batch of them, and none where that is 1. */
static void
qd_no_more_wait_than_batch_is(struct qd_softc *sc)
{
	(void)qd_begin_deep(sc);
	sc->qd_blk.blk_batch = 4;
	qd_answer_some(sc, 12);
	qd_submits(sc, 0, 3, 0);
	qd_submits(sc, 3, 4, 1);
	sc->qd_blk.blk_batch = 1;
	qd_submits(sc, 4, 8, 4);
	qd_end_deep(sc);
}

struct qd_other {
	struct qd_softc	*qo_sc;
	volatile u_int	qo_done;
};

/* A thread that submits bio 40 and would wait for it. */
static void
qd_other_thread(void *arg)
{
	struct qd_other *qo = arg;

	W(qo->qo_sc, 40, 0);
	atomic_store_rel_int(&qo->qo_done, 1);
	kthread_exit();
}

/* In a deep queue a thread that comes between, and waits for what it submits, waits for no batch. */
static void
qd_awaited_request_is_not_delayed(struct qd_softc *sc)
{
	struct qd_queue *qq = &sc->qd_queues[0];
	struct qd_other other = { .qo_sc = sc };
	u_int kicks;

	(void)qd_begin_deep(sc);
	qd_answer_some(sc, 12);
	qd_submits(sc, 0, 4, 0);
	kicks = qq->qq_kicks;
	QD_EQ(sc, kthread_add(qd_other_thread, &other, NULL, NULL, 0, 0, "qdisk"), 0);
	while (atomic_load_acq_int(&other.qo_done) == 0)
		pause("qdisk", 1);
	QD_EQ(sc, qq->qq_kicks, kicks + 1);
	/* Nor does a flush, of whichever thread. */
	qd_submits(sc, 5, 6, 1);
	qd_submits(sc, 6, 7, 0);
	kicks = qq->qq_kicks;
	PLAIN_FLUSH(sc, 41, 0);
	QD_EQ(sc, qq->qq_kicks, kicks + 1);
	qd_end_deep(sc);
}

/* With up to 16 in flight nothing waits. */
static void
qd_shallow_queue_waits_for_nothing(struct qd_softc *sc)
{
	struct pv_blk_queue *bq = &sc->qd_blk.blk_queues[0];
	struct qd_queue *qq = &sc->qd_queues[0];
	u_int at, depth, i, round;

	for (depth = 1; depth <= 16; depth++) {
		qd_begin(sc, 1, QD_SLOTS, 8);
		bq->bq_pace.pp_waits = true;
		qd_submits(sc, 0, depth, depth);
		for (round = 1, at = 0; round <= depth; round++) {
			qd_answer_some(sc, round);
			for (i = 0; i < round; i++, at = (at + 1) % depth)
				qd_submits(sc, at, at + 1, 1);
			QD_EQ(sc, qq->qq_after, 1);
		}
		QD_EQ(sc, bq->bq_stats.bs_deferred_kicks, 0);
		qd_end_deep(sc);
	}
}

/* A device may never answer those that a notification waits for. */
static void
qd_each_second_what_waits_is_notified_of(struct qd_softc *sc)
{
	struct qd_queue *qq = &sc->qd_queues[0];
	struct callout *c = &sc->qd_blk.blk_watchdog;
	u_int kicks;

	(void)qd_begin_deep(sc);
	qd_answer_some(sc, 5);
	qd_submits(sc, 0, 3, 0);
	kicks = qq->qq_kicks;
	c->c_func(c->c_arg);
	QD_EQ(sc, qq->qq_kicks, kicks + 1);
	qd_end_deep(sc);
}

/* All that is in flight ends and comes again, up to most times, until a trial has begun or ended. */
static u_int
qd_rounds(struct qd_softc *sc, bool trial, u_int most)
{
	const struct pv_blk_pace *pp = &sc->qd_blk.blk_queues[0].bq_pace;
	u_int i, n;

	for (n = 0; n < most && pp->pp_trial != trial; n++) {
		qd_answer_all_at_once(sc, 0);
		for (i = 0; i < QD_DEEP; i++)
			W(sc, i, 0);
	}
	QD_EQ(sc, pp->pp_trial, trial);
	return (n);
}

/* Waiting is tried, and goes on if more was completed in the time. */
static void
qd_trial_that_completes_more_is_kept(struct qd_softc *sc)
{
	struct pv_blk_queue *bq = qd_begin_deep(sc);
	struct pv_blk_pace *pp = &bq->bq_pace;

	pp->pp_waits = false;
	qd_answer_some(sc, 5);
	qd_submits(sc, 0, 5, 5);
	QD_EQ(sc, bq->bq_stats.bs_deferred_kicks, 0);
	(void)qd_rounds(sc, true, 20);
	QD_TRUE(sc, bq->bq_stats.bs_deferred_kicks > 0);
	/* However fast this machine is. */
	pp->pp_time = UINT64_MAX;
	(void)qd_rounds(sc, false, 20);
	QD_TRUE(sc, pp->pp_waits);
	qd_end_deep(sc);
}

/* A trial in which less was completed is not kept, and the more there were, the rarer they are. */
static void
qd_trial_that_completes_less_ends(struct qd_softc *sc)
{
	struct pv_blk_pace *pp = &qd_begin_deep(sc)->bq_pace;
	u_int last = 0, n, trial;

	pp->pp_waits = false;
	for (trial = 0; trial < 4; trial++) {
		n = qd_rounds(sc, true, 1000);
		QD_TRUE(sc, n > last);
		last = n;
		QD_TRUE(sc, pp->pp_waits);
		pp->pp_time = 0;
		(void)qd_rounds(sc, false, 1);
		QD_TRUE(sc, !pp->pp_waits);
	}
	qd_end_deep(sc);
}

/* With as many completed either way notifications wait: that costs the host less. */
static void
qd_trial_that_completes_as_much_is_kept_if_it_waits(struct qd_softc *sc)
{
	struct pv_blk_pace *pp = &qd_begin_deep(sc)->bq_pace;
	u_int waits;

	for (waits = 0; waits < 2; waits++) {
		pp->pp_trial = true;
		pp->pp_waits = waits;
		pp->pp_done = QD_WINDOW - QD_DEEP;
		pp->pp_time = 0;
		(void)qd_rounds(sc, false, 1);
		QD_TRUE(sc, pp->pp_waits);
	}
	qd_end_deep(sc);
}

/* A trial is measured by the faster of two windows: one may be slow because nobody had work. */
static void
qd_slow_window_is_no_measure(struct qd_softc *sc)
{
	struct pv_blk_pace *pp = &qd_begin_deep(sc)->bq_pace;

	pp->pp_last = 1;
	(void)qd_rounds(sc, true, 20);
	QD_EQ(sc, pp->pp_time, 1);
	qd_end_deep(sc);
}

const struct qd_case qd_batch_cases[] = {
	{ "notification_waits_for_those_given_back", qd_notification_waits_for_those_given_back },
	{ "no_more_wait_than_are_worked_on", qd_no_more_wait_than_are_worked_on },
	{ "no_more_wait_than_batch_is", qd_no_more_wait_than_batch_is },
	{ "awaited_request_is_not_delayed", qd_awaited_request_is_not_delayed },
	{ "shallow_queue_waits_for_nothing", qd_shallow_queue_waits_for_nothing },
	{ "each_second_what_waits_is_notified_of", qd_each_second_what_waits_is_notified_of },
	{ "trial_that_completes_more_is_kept", qd_trial_that_completes_more_is_kept },
	{ "trial_that_completes_less_ends", qd_trial_that_completes_less_ends },
	{ "trial_that_completes_as_much_is_kept_if_it_waits",
	    qd_trial_that_completes_as_much_is_kept_if_it_waits },
	{ "slow_window_is_no_measure", qd_slow_window_is_no_measure },
	{ NULL, NULL }
};
