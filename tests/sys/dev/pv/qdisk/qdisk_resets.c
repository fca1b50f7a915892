/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Resets of pv_blk's device and of its queues, suspends, and their failures, seen from the device
 * (see qdisk.c).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>

#include "qdisk.h"

/* While frozen, a reset has to wait: the thread that froze the queues may be resetting the device. */
static void
qd_reset_waits_for_a_suspend(struct qd_softc *sc)
{
	qd_begin(sc, 2, 8, 8);
	W(sc, 0, 0);
	pv_dev_quiesce(&sc->qd_blk.blk_pvdev);
	qd_need_reset(sc);
	QD_EQ(sc, pv_dev_state(&sc->qd_blk.blk_pvdev), PV_DEV_FROZEN);
	QD_EQ(sc, sc->qd_stops, 0);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[0], 0);
	/* No other thread reset it. */
	(void)pv_dev_thaw(&sc->qd_blk.blk_pvdev);
	qd_wait_for_resets(sc, 1, 0);
	qd_end(sc);
}

/* A device that requests a reset while it is restarted gets one more. */
static void
qd_reset_while_restarting_follows(struct qd_softc *sc)
{
	qd_begin(sc, 2, 8, 8);
	W(sc, 0, 0);
	sc->qd_reset_restarts = 1;
	QD_EQ(sc, pv_dev_freeze(&sc->qd_blk.blk_pvdev), 0);
	QD_EQ(sc, pv_dev_thaw(&sc->qd_blk.blk_pvdev), 0);
	qd_wait_for_resets(sc, 2, 1);
	sc->qd_reset_restarts = 1;
	qd_need_reset(sc);
	qd_wait_for_resets(sc, 4, 1);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[0], 0);
	qd_end(sc);
}

/* A device whose suspend fails ends its disk's I/O. */
static void
qd_failed_suspend_ends_io(struct qd_softc *sc)
{
	qd_begin(sc, 2, 1, 8);
	W(sc, 0, 0);
	W(sc, 1, qd_cpu(1));
	W(sc, 2, 0);
	sc->qd_stop_error = ETIMEDOUT;
	QD_EQ(sc, pv_dev_freeze(&sc->qd_blk.blk_pvdev), ETIMEDOUT);
	qd_all_ended(sc, 3, ENXIO);
	W(sc, 3, 0);
	FLUSH(sc, 4, 0);
	qd_all_ended(sc, 5, ENXIO);
	/* No reset brings it back. */
	qd_need_reset(sc);
	QD_EQ(sc, sc->qd_stops, 1);
	qd_end(sc);
}

static void
qd_failed_resume_ends_io_until_one_succeeds(struct qd_softc *sc)
{
	qd_begin(sc, 2, 1, 8);
	W(sc, 0, 0);
	QD_EQ(sc, pv_dev_freeze(&sc->qd_blk.blk_pvdev), 0);
	W(sc, 1, qd_cpu(1));
	FLUSH(sc, 2, 0);
	QD_EQ(sc, sc->qd_nends, 0);
	sc->qd_restart_error = ENODEV;
	QD_EQ(sc, pv_dev_thaw(&sc->qd_blk.blk_pvdev), ENODEV);
	qd_all_ended(sc, 3, ENXIO);
	W(sc, 3, 0);
	QD_EQ(sc, sc->qd_ends[3], ENXIO);
	sc->qd_restart_error = 0;
	QD_EQ(sc, pv_dev_freeze(&sc->qd_blk.blk_pvdev), 0);
	QD_EQ(sc, pv_dev_thaw(&sc->qd_blk.blk_pvdev), 0);
	W(sc, 4, 0);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[4], 0);
	qd_end(sc);
}

/* A bio in each of two queues (with one CPU both are in the first), the first of which breaks. */
static void
qd_break_a_queue(struct qd_softc *sc)
{
	W(sc, 0, 0);
	W(sc, 1, qd_cpu(1));
	pvq_break(sc->qd_pvqs[0], PVQ_FAULT_ID, 0);
	pv_blk_intr(&sc->qd_blk.blk_queues[0]);
}

static void
qd_broken_queue_is_reset_alone(struct qd_softc *sc)
{
	u_int last = qd_cpu(1);

	qd_begin(sc, 2, 8, 8);
	qd_break_a_queue(sc);
	qd_wait_for_queue_resets(sc, 1, last);
	qd_wait_for_ends(sc, last == 0 ? 2 : 1);
	QD_EQ(sc, sc->qd_ends[0], EIO);
	QD_EQ(sc, sc->qd_ends[1], last == 0 ? EIO : -1);
	W(sc, 2, 0);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[1], last == 0 ? EIO : 0);
	QD_EQ(sc, sc->qd_ends[2], 0);
	QD_EQ(sc, sc->qd_blk.blk_pvdev.pvd_queue_resets, 1);
	QD_EQ(sc, sc->qd_stops, 0);
	qd_end(sc);
}

/* Two requests are in flight, and a third one waits for room: the device has not seen that. */
static void
qd_reset_keeps_what_waits_for_room(struct qd_softc *sc)
{
	u_int i;

	qd_begin(sc, 1, 8, 8);
	sc->qd_pvqs[0]->q_given -= QD_SLOTS - 2;
	for (i = 0; i < 3; i++)
		W(sc, i, 0);
	QD_EQ(sc, qd_held(sc), 2);
	pvq_break(sc->qd_pvqs[0], PVQ_FAULT_ID, 0);
	pv_blk_intr(&sc->qd_blk.blk_queues[0]);
	qd_wait_for_queue_resets(sc, 1, 1);
	qd_wait_for_ends(sc, 2);
	qd_all_ended(sc, 2, EIO);
	QD_EQ(sc, sc->qd_ends[2], -1);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[2], 0);
	/* Where all are put again, it is put for the first time. */
	for (i = 0; i < 3; i++)
		W(sc, i, 0);
	qd_need_reset(sc);
	qd_wait_for_resets(sc, 1, 2);
	qd_answer_all(sc);
	qd_all_ended(sc, 3, 0);
	QD_EQ(sc, sc->qd_blk.blk_queues[0].bq_stats.bs_requeued, 2);
	qd_end(sc);
}

/* Its requests in flight are put again; the device is reset if that did not help. */
static void
qd_stuck_queue_is_reset_alone_first(struct qd_softc *sc)
{
	u_int last = qd_cpu(1);

	qd_begin(sc, 2, 8, 8);
	sc->qd_one_timeout = true;
	sc->qd_blk.blk_timeout_reset = 1;
	W(sc, 0, 0);
	W(sc, 1, last);
	if (last == 0)
		qd_answer(sc, 0);
	else
		qd_answer(sc, last);
	qd_wait_for_queue_resets(sc, 1, 1);
	QD_EQ(sc, sc->qd_stops, 0);
	QD_EQ(sc, sc->qd_nends, 1);
	qd_answer_all(sc);
	qd_all_ended(sc, 2, 0);
	/* The queue's reset had helped, so that it is tried again; this time it has not. */
	W(sc, 2, 0);
	sc->qd_blk.blk_timeout_reset = 1;
	qd_wait_for_queue_resets(sc, 2, 1);
	QD_EQ(sc, sc->qd_stops, 0);
	sc->qd_blk.blk_timeout_reset = 1;
	qd_wait_for_resets(sc, 1, 1);
	QD_EQ(sc, sc->qd_queue_stops, 2);
	QD_EQ(sc, sc->qd_ends[2], -1);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[2], 0);
	QD_EQ(sc, sc->qd_blk.blk_pvdev.pvd_queue_resets, 2);
	QD_EQ(sc, sc->qd_blk.blk_pvdev.pvd_queue_reset_errors, 1);
	QD_EQ(sc, sc->qd_blk.blk_stats.bs_timeout_resets, 3);
	qd_end(sc);
}

/* The device is reset, and the queue's reset is not tried a second time. */
static void
qd_queue_that_does_not_stop(struct qd_softc *sc)
{
	static const int errors[] = { ETIMEDOUT, EIO };
	u_int i, last = qd_cpu(1);

	for (i = 0; i < nitems(errors); i++) {
		qd_begin(sc, 2, 8, 8);
		sc->qd_stop_queue_error = errors[i];
		qd_break_a_queue(sc);
		qd_wait_for_resets(sc, 1, last);
		qd_answer_all(sc);
		qd_wait_for_ends(sc, 2);
		QD_EQ(sc, sc->qd_ends[0], EIO);
		QD_EQ(sc, sc->qd_ends[1], last == 0 ? EIO : 0);
		QD_EQ(sc, sc->qd_queue_stops, 1);
		qd_break_a_queue(sc);
		qd_wait_for_resets(sc, 2, last);
		qd_answer_all(sc);
		qd_wait_for_ends(sc, 4);
		QD_EQ(sc, sc->qd_queue_stops, 1);
		QD_EQ(sc, sc->qd_blk.blk_pvdev.pvd_queue_resets, 0);
		QD_EQ(sc, sc->qd_blk.blk_pvdev.pvd_queue_reset_errors, 1);
		W(sc, 2, 0);
		qd_answer_all(sc);
		QD_EQ(sc, sc->qd_ends[2], 0);
		qd_end(sc);
	}
}

/* The other queue's requests, which had no violation, are put again after the device's reset. */
static void
qd_queue_that_does_not_restart(struct qd_softc *sc)
{
	u_int last = qd_cpu(1);

	qd_begin(sc, 2, 8, 8);
	sc->qd_restart_queue_error = ENXIO;
	qd_break_a_queue(sc);
	qd_wait_for_resets(sc, 1, last);
	qd_wait_for_ends(sc, last == 0 ? 2 : 1);
	QD_EQ(sc, sc->qd_ends[0], EIO);
	QD_EQ(sc, sc->qd_ends[1], last == 0 ? EIO : -1);
	qd_answer_all(sc);
	qd_wait_for_ends(sc, 2);
	sc->qd_restart_queue_error = 0;
	qd_break_a_queue(sc);
	qd_wait_for_queue_resets(sc, 2, last);
	qd_answer_all(sc);
	qd_wait_for_ends(sc, 4);
	QD_EQ(sc, sc->qd_stops, 1);
	qd_end(sc);
}

/*
 * Where no queue can be reset alone, those that are not broken keep their requests, however often
 * another one breaks: they are put again, in their order, and are not what breaks the device.
 */
static void
qd_broken_queue_ends_no_other_s_requests(struct qd_softc *sc)
{
	u_int last = qd_cpu(1), round;

	if (last == 0)
		return;
	qd_begin(sc, 2, 8, 8);
	sc->qd_blk.blk_params.bp_flags &= ~PV_BLK_QUEUE_RESET;
	W(sc, 1, last);
	W(sc, 2, last);
	for (round = 1; round <= 6; round++) {
		W(sc, 0, 0);
		sc->qd_nlog = 0;
		pvq_break(sc->qd_pvqs[0], PVQ_FAULT_ID, 0);
		pv_blk_intr(&sc->qd_blk.blk_queues[0]);
		qd_wait_for_resets(sc, round, 2);
		qd_wait_for_ends(sc, round);
		QD_EQ(sc, sc->qd_ends[0], EIO);
		qd_logged(sc, 0, last, PV_BLK_WRITE, 1);
		qd_logged(sc, 1, last, PV_BLK_WRITE, 2);
	}
	QD_EQ(sc, sc->qd_ends[1], -1);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[1], 0);
	QD_EQ(sc, sc->qd_ends[2], 0);
	qd_end(sc);
}

/* The same where the protocol stops the device, as a front end does that connects anew. */
static void
qd_requeue_ends_no_other_s_requests(struct qd_softc *sc)
{
	u_int last = qd_cpu(1);

	if (last == 0)
		return;
	qd_begin(sc, 2, 8, 8);
	W(sc, 0, 0);
	W(sc, 1, last);
	pv_dev_quiesce(&sc->qd_blk.blk_pvdev);
	pvq_break(sc->qd_pvqs[0], PVQ_FAULT_ID, 0);
	pv_blk_requeue(&sc->qd_blk);
	QD_EQ(sc, sc->qd_ends[0], EIO);
	QD_EQ(sc, sc->qd_ends[1], -1);
	qd_thaw(sc, 1);
	qd_wait_for_resets(sc, sc->qd_stops, 1);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[1], 0);
	qd_end(sc);
}

/* The disk is removed while a queue is being stopped, which succeeds or fails: each bio ends once. */
static void
qd_detach_while_a_queue_is_reset(struct qd_softc *sc)
{
	static const int errors[] = { 0, ETIMEDOUT };
	u_int i;

	for (i = 0; i < nitems(errors); i++) {
		qd_begin(sc, 2, 1, 8);
		sc->qd_await_detach = true;
		sc->qd_stop_queue_error = errors[i];
		qd_break_a_queue(sc);
		while (sc->qd_queue_stops == 0)
			pause("qdisk", 1);
		W(sc, 2, 0);
		W(sc, 3, qd_cpu(1));
		FLUSH(sc, 4, 0);
		qd_end(sc);
		QD_EQ(sc, sc->qd_nends, 5);
		QD_EQ(sc, sc->qd_ends[0], EIO);
		QD_EQ(sc, sc->qd_ends[2], ENXIO);
		QD_EQ(sc, sc->qd_ends[4], ENXIO);
		QD_EQ(sc, sc->qd_queue_stops, 1);
		QD_TRUE(sc, sc->qd_stops >= 1);
	}
}

const struct qd_case qd_reset_cases[] = {
	{ "reset_waits_for_a_suspend", qd_reset_waits_for_a_suspend },
	{ "reset_while_restarting_follows", qd_reset_while_restarting_follows },
	{ "failed_suspend_ends_io", qd_failed_suspend_ends_io },
	{ "failed_resume_ends_io_until_one_succeeds", qd_failed_resume_ends_io_until_one_succeeds },
	{ "broken_queue_is_reset_alone", qd_broken_queue_is_reset_alone },
	{ "reset_keeps_what_waits_for_room", qd_reset_keeps_what_waits_for_room },
	{ "stuck_queue_is_reset_alone_first", qd_stuck_queue_is_reset_alone_first },
	{ "queue_that_does_not_stop", qd_queue_that_does_not_stop },
	{ "queue_that_does_not_restart", qd_queue_that_does_not_restart },
	{ "broken_queue_ends_no_other_s_requests", qd_broken_queue_ends_no_other_s_requests },
	{ "requeue_ends_no_other_s_requests", qd_requeue_ends_no_other_s_requests },
	{ "detach_while_a_queue_is_reset", qd_detach_while_a_queue_is_reset },
	{ NULL, NULL }
};
