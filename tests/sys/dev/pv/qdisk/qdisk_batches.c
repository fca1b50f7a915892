/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Notifications, interrupts and ticks of deep queues of pv_blk, seen from the device (see qdisk.c).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/kthread.h>
#include <sys/proc.h>

#include "qdisk.h"

/* A tick comes when a case has it come, not when time has passed. */
static callout_func_t *qd_tick;

static void
qd_no_tick(void *arg __unused)
{
}

/*
 * All in flight end, and bios 0 to n - 1 are submitted once more.  Completions come as closely as on
 * the fastest machine, so that the size of a batch is limited by the depth of the queue alone.
 */
static void
qd_begin_a_batch(struct qd_softc *sc, u_int n)
{
	struct pv_blk_queue *bq = &sc->qd_blk.blk_queues[0];
	u_int i;

	mtx_lock(&bq->bq_mtx);
	bq->bq_gap = 1;
	mtx_unlock(&bq->bq_mtx);
	qd_answer_all_at_once(sc, 0);
	for (i = 0; i < n; i++)
		W(sc, i, 0);
}

/* A disk with a queue: bios 0 to QD_DEEP - 1 are in flight, of a thread known to submit many. */
#define	QD_DEEP		31

static struct pv_blk_queue *
qd_begin_deep(struct qd_softc *sc)
{
	struct pv_blk_queue *bq = &sc->qd_blk.blk_queues[0];
	u_int i;

	qd_begin(sc, 1, QD_SLOTS, 8);
	qd_tick = bq->bq_tick_func;
	bq->bq_tick_func = qd_no_tick;
	for (i = 0; i < QD_DEEP; i++)
		W(sc, i, 0);
	qd_begin_a_batch(sc, QD_DEEP);
	return (bq);
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

/*
 * In a deep queue a thread that submits many shares notifications and interrupts; one that comes
 * between, and waits for what it submits, does not wait for a batch.
 */
static void
qd_awaited_request_is_not_delayed(struct qd_softc *sc)
{
	struct qd_queue *qq = &sc->qd_queues[0];
	struct qd_other other = { .qo_sc = sc };

	(void)qd_begin_deep(sc);
	qd_begin_a_batch(sc, 8);
	QD_EQ(sc, kthread_add(qd_other_thread, &other, NULL, NULL, 0, 0, "qdisk"), 0);
	while (atomic_load_acq_int(&other.qo_done) == 0)
		pause("qdisk", 1);
	QD_EQ(sc, qq->qq_after, 1);
	QD_EQ(sc, sc->qd_blk.blk_queues[0].bq_unkicked, 0);
	qd_answer_all(sc);
	qd_end(sc);
}

/*
 * An interrupt in the middle of a batch does not notify the device of the part that is there, and what
 * the device has done unasked it is not notified of.
 */
static void
qd_batch_is_filled_by_those_given_back(struct qd_softc *sc)
{
	struct qd_queue *qq = &sc->qd_queues[0];
	struct pv_blk_queue *bq = qd_begin_deep(sc);
	u_int i, kicks;

	qd_begin_a_batch(sc, 5);
	kicks = qq->qq_kicks;
	pv_blk_intr(bq);
	QD_EQ(sc, qq->qq_kicks, kicks);
	QD_EQ(sc, bq->bq_unkicked, 5);
	/* Nor is there an interrupt for it. */
	QD_EQ(sc, qq->qq_after, 1);
	for (i = 5; i < QD_DEEP; i++)
		W(sc, i, 0);
	QD_EQ(sc, qq->qq_kicks, kicks + 1);
	QD_EQ(sc, bq->bq_unkicked, 0);
	qd_begin_a_batch(sc, 5);
	qd_answer_all_at_once(sc, 0);
	QD_EQ(sc, bq->bq_unkicked, 0);
	QD_EQ(sc, qq->qq_after, 1);
	qd_end(sc);
}

/*
 * A tick leaves what the device is answering alone if completions were collected since the one before,
 * and collects what has no interrupt if none were.
 */
static void
qd_tick_keeps_a_batch_together(struct qd_softc *sc)
{
	struct qd_queue *qq = &sc->qd_queues[0];
	struct pv_blk_queue *bq = qd_begin_deep(sc);
	u_int ends, n;

	qd_begin_a_batch(sc, QD_DEEP);
	ends = sc->qd_nends;
	for (n = 0; n < 4; n++)
		qd_answer_silently(sc, 0);
	qd_tick(bq);
	QD_EQ(sc, qq->qq_ndone, n);
	qd_tick(bq);
	QD_EQ(sc, qq->qq_ndone, 0);
	QD_EQ(sc, sc->qd_nends, ends + n);
	qd_answer_all(sc);
	qd_end(sc);
}

/* Completions that come all the time do not keep a tick from notifying of what is left of a batch. */
static void
qd_tick_ends_a_batch(struct qd_softc *sc)
{
	struct qd_queue *qq = &sc->qd_queues[0];
	struct pv_blk_queue *bq = qd_begin_deep(sc);
	u_int kicks;

	qd_begin_a_batch(sc, 5);
	QD_EQ(sc, bq->bq_unkicked, 5);
	kicks = qq->qq_kicks;
	qd_tick(bq);
	qd_answer(sc, 0);
	qd_tick(bq);
	QD_EQ(sc, bq->bq_unkicked, 0);
	QD_EQ(sc, qq->qq_kicks, kicks + 1);
	qd_answer_all(sc);
	qd_end(sc);
}

/*
 * The device has other requests to do: what was given back is notified of together, and at once when
 * all of it has come again, and the next interrupt is requested after half.
 */
static void
qd_batch_waits_for_no_more_than_comes(struct qd_softc *sc)
{
	struct qd_queue *qq = &sc->qd_queues[0];
	struct pv_blk_queue *bq = qd_begin_deep(sc);
	u_int i, kicks;

	qd_begin_a_batch(sc, QD_DEEP);
	QD_EQ(sc, qq->qq_after, QD_DEEP / 2);
	kicks = qq->qq_kicks;
	for (i = 0; i < 5; i++)
		qd_answer_silently(sc, 0);
	pv_blk_intr(bq);
	for (i = 0; i < 4; i++)
		W(sc, i, 0);
	QD_EQ(sc, qq->qq_kicks, kicks);
	W(sc, 4, 0);
	QD_EQ(sc, qq->qq_kicks, kicks + 1);
	QD_EQ(sc, bq->bq_unkicked, 0);
	qd_answer_all(sc);
	qd_end(sc);
}

/* With up to 16 in flight nothing waits, however closely completions come. */
static void
qd_shallow_queue_waits_for_nothing(struct qd_softc *sc)
{
	struct pv_blk_queue *bq = &sc->qd_blk.blk_queues[0];
	struct qd_queue *qq = &sc->qd_queues[0];
	u_int depth, i, kicks, round;

	for (depth = 1; depth <= 16; depth++) {
		qd_begin(sc, 1, QD_SLOTS, 8);
		qd_tick = bq->bq_tick_func;
		bq->bq_tick_func = qd_no_tick;
		for (i = 0; i < depth; i++)
			W(sc, i, 0);
		for (round = 0; round < 4; round++) {
			qd_begin_a_batch(sc, 0);
			for (i = 0; i < depth; i++) {
				kicks = qq->qq_kicks;
				W(sc, i, 0);
				QD_EQ(sc, qq->qq_kicks, kicks + 1);
			}
			pv_blk_intr(bq);
			QD_EQ(sc, qq->qq_after, 1);
		}
		QD_EQ(sc, bq->bq_stats.bs_deferred_kicks, 0);
		qd_answer_all(sc);
		qd_end(sc);
	}
}

const struct qd_case qd_batch_cases[] = {
	{ "batch_waits_for_no_more_than_comes", qd_batch_waits_for_no_more_than_comes },
	{ "shallow_queue_waits_for_nothing", qd_shallow_queue_waits_for_nothing },
	{ "awaited_request_is_not_delayed", qd_awaited_request_is_not_delayed },
	{ "batch_is_filled_by_those_given_back", qd_batch_is_filled_by_those_given_back },
	{ "tick_keeps_a_batch_together", qd_tick_keeps_a_batch_together },
	{ "tick_ends_a_batch", qd_tick_ends_a_batch },
	{ NULL, NULL }
};
