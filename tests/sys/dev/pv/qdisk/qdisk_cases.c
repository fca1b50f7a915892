/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_blk's guarantees about queues, order and suspends (pv_blk.h), seen from the device (see qdisk.c).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/proc.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

#include "qdisk.h"

static void
qd_bio_goes_to_its_cpus_queue(struct qd_softc *sc)
{
	u_int i;

	qd_begin(sc, QD_QUEUES, 8, 8);
	for (i = 0; i < 8; i++)
		W(sc, i, qd_cpu(i));
	QD_EQ(sc, sc->qd_nlog, 8);
	for (i = 0; i < 8; i++)
		qd_logged(sc, i, qd_cpu(i) % QD_QUEUES, PV_BLK_WRITE, i);
	qd_answer_all(sc);
	qd_all_ended(sc, 8, 0);
	qd_end(sc);
}

static void
qd_ordered_flush_waits_for_every_queue(struct qd_softc *sc)
{
	u_int last = qd_cpu(1);

	qd_begin(sc, 2, 8, 8);
	W(sc, 0, 0);
	W(sc, 1, last);
	FLUSH(sc, 2, last);
	W(sc, 3, 0);
	W(sc, 4, last);
	QD_EQ(sc, sc->qd_nlog, 2);
	qd_answer(sc, 0);
	QD_EQ(sc, sc->qd_nlog, 2);
	qd_answer(sc, last);
	QD_EQ(sc, sc->qd_nlog, 3);
	qd_logged(sc, 2, 0, PV_BLK_FLUSH, 0);
	QD_EQ(sc, sc->qd_ends[2], -1);
	qd_answer(sc, 0);
	QD_EQ(sc, sc->qd_ends[2], 0);
	/* The gate is open again, for all queues. */
	QD_EQ(sc, sc->qd_nlog, 5);
	W(sc, 5, last);
	QD_EQ(sc, sc->qd_nlog, 6);
	qd_logged(sc, 5, last, PV_BLK_WRITE, 5);
	qd_answer_all(sc);
	qd_all_ended(sc, 6, 0);
	qd_end(sc);
}

/* It does not wait for requests in flight, nor do they wait for it. */
static void
qd_plain_flush_waits_for_nothing(struct qd_softc *sc)
{
	u_int last = qd_cpu(1);

	qd_begin(sc, 2, 8, 8);
	W(sc, 0, 0);
	PLAIN_FLUSH(sc, 1, last);
	W(sc, 2, 0);
	W(sc, 3, last);
	QD_EQ(sc, sc->qd_nlog, 4);
	qd_logged(sc, 1, last, PV_BLK_FLUSH, 0);
	qd_answer(sc, last);
	/* With one CPU the write comes first in the queue that they share. */
	if (last == 0)
		qd_answer(sc, 0);
	QD_EQ(sc, sc->qd_ends[1], 0);
	QD_EQ(sc, sc->qd_ends[2], -1);
	/* A barrier waits for a plain flush, too. */
	qd_submit(sc, 4, 0, BIO_WRITE, 4, 1, BIO_ORDERED);
	PLAIN_FLUSH(sc, 5, last);
	QD_EQ(sc, sc->qd_nlog, 4);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_nlog, 6);
	qd_logged(sc, 4, 0, PV_BLK_WRITE, 4);
	qd_all_ended(sc, 6, 0);
	qd_end(sc);
}

/* A device that writes through is flushed once, after what it may have cached, and then no more. */
static void
qd_caching_ends_with_a_flush(struct qd_softc *sc)
{
	qd_begin(sc, 2, 8, 8);
	W(sc, 0, 0);
	W(sc, 1, qd_cpu(1));
	pv_blk_end_caching(&sc->qd_blk);
	QD_EQ(sc, sc->qd_nlog, 2);
	PLAIN_FLUSH(sc, 2, 0);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_nlog, 3);
	qd_logged(sc, 2, 0, PV_BLK_FLUSH, 0);
	PLAIN_FLUSH(sc, 3, 0);
	FLUSH(sc, 4, 0);
	QD_EQ(sc, sc->qd_nlog, 3);
	qd_all_ended(sc, 5, 0);
	/* Twice while the flush is under way: what was cached in between needs one more. */
	pv_blk_set_writethrough(&sc->qd_blk, false);
	pv_blk_end_caching(&sc->qd_blk);
	pv_blk_set_writethrough(&sc->qd_blk, false);
	pv_blk_end_caching(&sc->qd_blk);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_nlog, 5);
	/* Set to write back while that flush is in flight, the device still gets flushes. */
	pv_blk_set_writethrough(&sc->qd_blk, false);
	pv_blk_end_caching(&sc->qd_blk);
	pv_blk_set_writethrough(&sc->qd_blk, false);
	qd_answer_all(sc);
	PLAIN_FLUSH(sc, 5, 0);
	QD_EQ(sc, sc->qd_nlog, 7);
	qd_answer_all(sc);
	qd_all_ended(sc, 6, 0);
	/* The last flush ends with the disk. */
	pv_dev_quiesce(&sc->qd_blk.blk_pvdev);
	pv_blk_end_caching(&sc->qd_blk);
	qd_end(sc);
	QD_EQ(sc, sc->qd_blk.blk_emptying, false);
}

static void
qd_barriers_keep_their_order(struct qd_softc *sc)
{
	static const enum pv_blk_cmd cmds[] = { PV_BLK_WRITE, PV_BLK_FLUSH, PV_BLK_WRITE,
	    PV_BLK_FLUSH, PV_BLK_FLUSH, PV_BLK_WRITE, PV_BLK_WRITE, PV_BLK_WRITE };
	u_int i;

	qd_begin(sc, QD_QUEUES, 8, 8);
	for (i = 0; i < nitems(cmds); i++) {
		if (cmds[i] == PV_BLK_FLUSH)
			FLUSH(sc, i, qd_cpu(i));
		else	/* The last but one is ordered, too. */
			qd_submit(sc, i, qd_cpu(i), BIO_WRITE, i, 1, i == 6 ? BIO_ORDERED : 0);
	}
	/* Each is a barrier or next to one, so they are put one by one. */
	for (i = 0; i < nitems(cmds); i++) {
		QD_EQ(sc, sc->qd_nlog, i + 1);
		QD_EQ(sc, sc->qd_log[i].qe_cmd, cmds[i]);
		if (cmds[i] == PV_BLK_WRITE)
			QD_EQ(sc, sc->qd_log[i].qe_sector, i);
		QD_EQ(sc, qd_held(sc), 1);
		qd_answer(sc, sc->qd_log[i].qe_queue);
	}
	qd_all_ended(sc, nitems(cmds), 0);
	qd_end(sc);
}

/* Longer than a request: it is done when all of its pieces are. */
static void
qd_ordered_write_is_one_barrier(struct qd_softc *sc)
{
	qd_begin(sc, 2, 8, 8);
	qd_submit(sc, 0, qd_cpu(1), BIO_WRITE, 0, 32, BIO_ORDERED);
	W(sc, 1, qd_cpu(1));
	QD_EQ(sc, sc->qd_nlog, 4);
	qd_answer(sc, 0);
	qd_answer(sc, 0);
	qd_answer(sc, 0);
	QD_EQ(sc, sc->qd_nlog, 4);
	qd_answer(sc, 0);
	QD_EQ(sc, sc->qd_nlog, 5);
	qd_answer_all(sc);
	qd_all_ended(sc, 2, 0);
	qd_end(sc);
}

static void
qd_requeued_in_order(struct qd_softc *sc)
{
	u_int i;

	qd_begin(sc, 1, 4, 8);
	for (i = 0; i < 6; i++)
		W(sc, i, 0);
	QD_EQ(sc, sc->qd_nlog, 4);
	qd_freeze_and_requeue(sc);
	W(sc, 6, 0);
	QD_EQ(sc, sc->qd_nlog, 4);
	qd_thaw(sc, 1);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_nlog, 4 + 7);
	for (i = 0; i < 7; i++)
		qd_logged(sc, 4 + i, 0, PV_BLK_WRITE, i);
	qd_all_ended(sc, 7, 0);
	qd_end(sc);
}

/* Four queues become two, and four again; nothing is lost or done twice, and a queue's order stays. */
static void
qd_queues_become_fewer_and_more(struct qd_softc *sc)
{
	u_int i, seen[QD_BIOS] = {};

	qd_begin(sc, QD_QUEUES, 2, 8);
	for (i = 0; i < 24; i++)
		W(sc, i, qd_cpu(i));
	qd_freeze_and_requeue(sc);
	sc->qd_nlog = 0;
	qd_thaw(sc, 2);
	qd_answer(sc, 0);
	qd_freeze_and_requeue(sc);
	qd_thaw(sc, QD_QUEUES);
	for (i = 24; i < 32; i++)
		W(sc, i, qd_cpu(i));
	qd_answer_all(sc);
	qd_all_ended(sc, 32, 0);
	for (i = 0; i < sc->qd_nlog; i++)
		seen[sc->qd_log[i].qe_sector]++;
	for (i = 0; i < 32; i++)
		QD_TRUE(sc, seen[i] >= 1 && seen[i] <= 2);
	qd_end(sc);
}

/* A bio of which a part was in a queue that is removed is completed in another, each piece once. */
static void
qd_half_cut_bio_changes_its_queue(struct qd_softc *sc)
{
	u_int i, last = qd_cpu(1), seen[16] = {};

	qd_begin(sc, 2, 2, 1);
	qd_submit(sc, 0, last, BIO_WRITE, 0, 16, 0);
	QD_EQ(sc, sc->qd_nlog, 2);
	qd_answer(sc, last);
	QD_EQ(sc, sc->qd_nlog, 3);
	qd_freeze_and_requeue(sc);
	qd_thaw(sc, 1);
	QD_EQ(sc, sc->qd_ends[0], -1);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[0], 0);
	QD_EQ(sc, sc->qd_bios[0].bio_resid, 0);
	QD_EQ(sc, sc->qd_nlog, 16 + 2);
	for (i = 0; i < sc->qd_nlog; i++)
		seen[sc->qd_log[i].qe_sector]++;
	for (i = 0; i < 16; i++)
		QD_EQ(sc, seen[i], i == 1 || i == 2 ? 2 : 1);
	qd_end(sc);
}

/* A bio that is queued behind a barrier when the disk is removed ends, and ends once. */
static void
qd_detach_ends_what_was_queued(struct qd_softc *sc)
{
	qd_begin(sc, 2, 8, 8);
	pv_dev_quiesce(&sc->qd_blk.blk_pvdev);
	FLUSH(sc, 0, 0);
	W(sc, 1, 0);
	W(sc, 2, qd_cpu(1));
	FLUSH(sc, 3, 0);
	QD_EQ(sc, sc->qd_nlog, 0);
	qd_end(sc);
	qd_all_ended(sc, 4, ENXIO);
	QD_EQ(sc, sc->qd_stops, 1);
}

static void
qd_settle_waits_for_what_is_in_flight(struct qd_softc *sc)
{
	qd_begin(sc, 2, 8, 8);
	W(sc, 0, 0);
	W(sc, 1, qd_cpu(1));
	pv_dev_quiesce(&sc->qd_blk.blk_pvdev);
	W(sc, 2, 0);
	QD_EQ(sc, pv_blk_wait_idle(&sc->qd_blk, 1), EBUSY);
	qd_answer_all(sc);
	QD_EQ(sc, pv_blk_wait_idle(&sc->qd_blk, 1), 0);
	QD_EQ(sc, sc->qd_ends[2], -1);
	(void)pv_dev_thaw(&sc->qd_blk.blk_pvdev);
	QD_EQ(sc, sc->qd_nlog, 3);
	qd_answer_all(sc);
	qd_all_ended(sc, 3, 0);
	qd_end(sc);
}

/* A request that is in flight at each reset ends with EIO after some; suspends do not count. */
static void
qd_resets_end_a_request_and_suspends_do_not(struct qd_softc *sc)
{
	u_int i, puts;

	qd_begin(sc, 2, 8, 8);
	W(sc, 0, 0);
	for (i = 0; i < 8; i++) {
		qd_freeze_and_requeue(sc);
		qd_thaw(sc, 2);
	}
	QD_EQ(sc, sc->qd_ends[0], -1);
	for (i = 0; i < 4; i++) {
		QD_EQ(sc, sc->qd_ends[0], -1);
		puts = sc->qd_nlog;
		qd_need_reset(sc);
		/* A reset has finished when the request was put again, or has ended. */
		while (sc->qd_stops < i + 1 || (sc->qd_nlog == puts && sc->qd_ends[0] == -1))
			pause("qdisk", 1);
	}
	QD_EQ(sc, sc->qd_ends[0], EIO);
	W(sc, 1, qd_cpu(1));
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[1], 0);
	qd_end(sc);
}

/* A device that is slow to stop does not delay the tasks of taskqueue_thread. */
static void
qd_reset_leaves_taskqueue_thread(struct qd_softc *sc)
{
	qd_begin(sc, 1, 8, 8);
	W(sc, 0, 0);
	sc->qd_stop_waits = true;
	qd_need_reset(sc);
	qd_wait_for_resets(sc, 1, 1);
	taskqueue_drain(taskqueue_thread, &sc->qd_task);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[0], 0);
	qd_end(sc);
}

/*
 * A bio of which a part is in flight waits in a queue for the rest: when the disk is lost, it ends with
 * its last request, and once.
 */
static void
qd_half_cut_bio_is_lost_with_its_disk(struct qd_softc *sc)
{
	u_int last = qd_cpu(1);

	/* Two queues are used only from two CPUs. */
	if (last == 0)
		return;
	qd_begin(sc, 2, 2, 1);
	qd_submit(sc, 0, 0, BIO_WRITE, 0, 16, 0);
	qd_submit(sc, 1, last, BIO_WRITE, 16, 16, 0);
	qd_freeze_and_requeue(sc);
	/* The first queue is in the middle of bio 0, so that bio 1 waits there. */
	qd_thaw(sc, 1);
	QD_EQ(sc, qd_held(sc), 4);
	pv_dev_quiesce(&sc->qd_blk.blk_pvdev);
	pv_dev_lose(&sc->qd_blk.blk_pvdev);
	QD_EQ(sc, sc->qd_ends[0], -1);
	QD_EQ(sc, sc->qd_ends[1], -1);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[0], ENXIO);
	QD_EQ(sc, sc->qd_ends[1], ENXIO);
	QD_EQ(sc, sc->qd_nends, 2);
	qd_end(sc);
}

/* Log entry i deletes so many ranges, from sector on. */
static void
qd_deleted(struct qd_softc *sc, u_int i, u_int sector, u_int ranges)
{
	qd_logged(sc, i, 0, PV_BLK_DELETE, sector);
	QD_EQ(sc, sc->qd_log[i].qe_ranges, ranges);
}

/* Deletes that come while one is under way share requests, as far as these go; others pass them. */
static void
qd_deletes_share_a_request(struct qd_softc *sc)
{
	u_int i;

	qd_begin(sc, 2, 8, 8);
	for (i = 0; i < 6; i++)
		DEL(sc, i, 1);
	W(sc, 6, 0);
	DEL(sc, 7, 5);
	DEL(sc, 8, 20);
	DEL(sc, 9, 1);
	QD_EQ(sc, sc->qd_nlog, 2);
	qd_deleted(sc, 0, 0, 1);
	qd_logged(sc, 1, 0, PV_BLK_WRITE, 6);
	/* A barrier waits for those that are held back. */
	FLUSH(sc, 10, 0);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_nlog, 2 + 2 + 3 + 1);
	qd_deleted(sc, 2, 1, 4);
	/* Eight sectors are the most, so that the third does not fit, which is three pieces. */
	qd_deleted(sc, 3, 5, 2);
	qd_deleted(sc, 4, 8, 1);
	qd_deleted(sc, 5, 16, 1);
	qd_deleted(sc, 6, 24, 2);
	QD_EQ(sc, sc->qd_log[7].qe_cmd, PV_BLK_FLUSH);
	qd_all_ended(sc, 11, 0);
	QD_EQ(sc, sc->qd_nends, 11);
	for (i = 0; i < 10; i++)
		QD_EQ(sc, sc->qd_bios[i].bio_resid, 0);
	qd_end(sc);
}

/* A request that the device fails is repeated as single deletes, which succeed. */
static void
qd_failed_deletes_are_tried_singly(struct qd_softc *sc)
{
	u_int i;

	qd_begin(sc, 1, 8, 8);
	sc->qd_one_range = true;
	DEL(sc, 0, 12);
	for (i = 1; i < 6; i++)
		DEL(sc, i, 1);
	qd_answer_all(sc);
	qd_all_ended(sc, 6, 0);
	QD_EQ(sc, sc->qd_nends, 6);
	QD_EQ(sc, sc->qd_blk.blk_queues[0].bq_stats.bs_io_errors, 0);
	/* The next ones share a request again. */
	sc->qd_one_range = false;
	sc->qd_nlog = 0;
	for (i = 6; i < 9; i++)
		DEL(sc, i, 1);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_nlog, 2);
	qd_deleted(sc, 1, 7, 2);
	qd_all_ended(sc, 9, 0);
	qd_end(sc);
}

/* Bios from i on, of all CPUs. */
static void
qd_delete_some(struct qd_softc *sc, u_int i)
{
	u_int end = i + 8;

	for (; i < end; i++)
		qd_submit(sc, i, qd_cpu(i), BIO_DELETE, i, 1, 0);
}

/* They end once when the device stops, when queues become fewer, and when the disk is removed. */
static void
qd_deletes_survive_a_suspend(struct qd_softc *sc)
{
	qd_begin(sc, 2, 8, 8);
	qd_delete_some(sc, 0);
	qd_freeze_and_requeue(sc);
	qd_thaw(sc, 1);
	qd_answer_all(sc);
	qd_all_ended(sc, 8, 0);
	qd_freeze_and_requeue(sc);
	qd_thaw(sc, 2);
	qd_delete_some(sc, 8);
	qd_answer(sc, 0);
	qd_freeze_and_requeue(sc);
	qd_thaw(sc, 1);
	qd_answer(sc, 0);
	qd_freeze_and_requeue(sc);
	qd_thaw(sc, 2);
	qd_answer_all(sc);
	qd_all_ended(sc, 16, 0);
	qd_delete_some(sc, 16);
	pv_dev_quiesce(&sc->qd_blk.blk_pvdev);
	pv_dev_lose(&sc->qd_blk.blk_pvdev);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_nends, 24);
	/* The device had the first bio of each queue. */
	QD_EQ(sc, sc->qd_ends[16], 0);
	QD_EQ(sc, sc->qd_ends[23], ENXIO);
	qd_end(sc);
	QD_EQ(sc, sc->qd_nends, 24);
}

/* A device that always has more completions occupies no thread for ever, and is still served. */
static void
qd_busy_queue_leaves_its_thread(struct qd_softc *sc)
{
	u_int i, ends;

	qd_begin(sc, 1, QD_SLOTS, 8);
	sc->qd_queues[0].qq_eager = true;
	sc->qd_resubmit = 20000;
	/* Not deep: no tick runs for what is coalesced. */
	for (i = 0; i < 3; i++)
		W(sc, i, 0);
	pv_blk_intr(&sc->qd_blk.blk_queues[0]);
	mtx_lock(&sc->qd_mtx);
	ends = sc->qd_nends;
	mtx_unlock(&sc->qd_mtx);
	QD_TRUE(sc, ends < sc->qd_resubmit);
	QD_TRUE(sc, sc->qd_blk.blk_queues[0].bq_stats.bs_yields > 0);
	for (i = 0; i < 20 * (u_int)hz && sc->qd_nends < sc->qd_resubmit + 2; i++)
		pause("qdisk", 1);
	QD_EQ(sc, sc->qd_nends, sc->qd_resubmit + 2);
	qd_end(sc);
}

/* One interrupt of two queues, one of which always has more: the other gets its turn. */
static void
qd_greedy_queue_does_not_starve_another(struct qd_softc *sc)
{
	struct qd_queue *other = &sc->qd_queues[1];
	u_int i, ends, last = qd_cpu(1);

	/* Two queues are used only from two CPUs. */
	if (last == 0)
		return;
	qd_begin(sc, 2, QD_SLOTS, 8);
	sc->qd_queues[0].qq_eager = true;
	sc->qd_resubmit = 20000;
	sc->qd_resubmitters = 4;
	W(sc, 4, last);
	other->qq_done[other->qq_ndone++] = other->qq_held[0];
	other->qq_nheld = 0;
	other->qq_eager = true;
	for (i = 0; i < 4; i++)
		W(sc, i, 0);
	pv_blk_intr(&sc->qd_blk.blk_queues[0]);
	pv_blk_intr(&sc->qd_blk.blk_queues[1]);
	mtx_lock(&sc->qd_mtx);
	ends = sc->qd_nends;
	mtx_unlock(&sc->qd_mtx);
	QD_EQ(sc, sc->qd_ends[4], 0);
	QD_TRUE(sc, ends < sc->qd_resubmit);
	/*
	 * The tick may run on either CPU, what is submitted again goes to the queue of that one, and an
	 * eager device makes no interrupts.
	 */
	for (i = 0; i < 20 * (u_int)hz && sc->qd_nends < sc->qd_resubmit + 3; i++) {
		pause("qdisk", 1);
		pv_blk_intr(&sc->qd_blk.blk_queues[0]);
		pv_blk_intr(&sc->qd_blk.blk_queues[1]);
	}
	QD_EQ(sc, sc->qd_nends, sc->qd_resubmit + 3);
	qd_end(sc);
}

static void
qd_too_long_for_its_queue(struct qd_softc *sc)
{
	qd_begin(sc, 1, 8, 8);
	sc->qd_no_fit = true;
	W(sc, 0, 0);
	QD_EQ(sc, sc->qd_ends[0], EIO);
	QD_EQ(sc, sc->qd_blk.blk_queues[0].bq_stats.bs_dma_errors, 1);
	sc->qd_no_fit = false;
	W(sc, 1, 0);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[1], 0);
	qd_end(sc);
}

static void
qd_flush_task(void *arg, int pending __unused)
{
	struct qd_softc *sc = arg;

	PLAIN_FLUSH(sc, 0, 0);
}

/* A thread that delivers the end of its own bio is still in d_strategy when the disk has no user. */
static void
qd_detach_waits_for_who_submits(struct qd_softc *sc)
{
	struct task task;

	qd_begin(sc, 1, 8, 8);
	pv_blk_set_writethrough(&sc->qd_blk, true);
	sc->qd_linger = true;
	TASK_INIT(&task, 0, qd_flush_task, sc);
	taskqueue_enqueue(taskqueue_thread, &task);
	while (atomic_load_acq_int(&sc->qd_lingering) == 0)
		pause("qdisk", 1);
	QD_EQ(sc, sc->qd_ends[0], 0);
	qd_end(sc);
	taskqueue_drain(taskqueue_thread, &task);
}

static void
qd_barrier_task(void *arg, int pending __unused)
{
	struct qd_softc *sc = arg;

	FLUSH(sc, 0, 0);
}

/* What others submit while a thread pumps, and delivers what it started, that thread starts too. */
static void
qd_pump_leaves_nothing_behind(struct qd_softc *sc)
{
	struct task task;

	qd_begin(sc, 1, 8, 8);
	sc->qd_queues[0].qq_eager = true;
	sc->qd_linger = true;
	TASK_INIT(&task, 0, qd_barrier_task, sc);
	taskqueue_enqueue(taskqueue_thread, &task);
	while (atomic_load_acq_int(&sc->qd_lingering) == 0)
		pause("qdisk", 1);
	W(sc, 1, 0);
	FLUSH(sc, 2, 0);
	W(sc, 3, 0);
	QD_EQ(sc, sc->qd_nends, 1);
	atomic_store_rel_int(&sc->qd_released, 1);
	taskqueue_drain(taskqueue_thread, &task);
	qd_all_ended(sc, 4, 0);
	qd_logged(sc, 1, 0, PV_BLK_WRITE, 1);
	qd_logged(sc, 3, 0, PV_BLK_WRITE, 3);
	qd_end(sc);
}

#define	QD_PAGES	8

/* The segments of what the device has are the data of bio 0, in order, and no more than need be. */
static void
qd_check_pages(struct qd_softc *sc)
{
	const struct qd_queue *qq = &sc->qd_queues[0];
	const struct bio *bp = &sc->qd_bios[0];
	const bus_dma_segment_t *seg;
	size_t at = bp->bio_ma_offset, off, part;
	u_int i;
	int n;

	for (i = 0; i < qq->qq_nheld; i++) {
		for (n = 0; n < qq->qq_held[i]->rq_nsegs; n++) {
			seg = &qq->qq_segs[i][n];
			QD_TRUE(sc, seg->ds_len > 0 && seg->ds_len <= sc->qd_phys_seg);
			if (n > 0 && seg[-1].ds_addr + seg[-1].ds_len == seg->ds_addr)
				QD_TRUE(sc, seg[-1].ds_len + seg->ds_len > sc->qd_phys_seg);
			for (off = 0; off < seg->ds_len; off += part, at += part) {
				QD_EQ(sc, seg->ds_addr + off,
				    VM_PAGE_TO_PHYS(bp->bio_ma[at / PAGE_SIZE]) + at % PAGE_SIZE);
				part = MIN(seg->ds_len - off, PAGE_SIZE - at % PAGE_SIZE);
			}
		}
	}
	QD_EQ(sc, at, bp->bio_ma_offset + bp->bio_bcount);
}

/* Pages in this order, a digit each, some of which are neighbours. */
static void
qd_pages(struct qd_softc *sc, char *memory, const char *order, int offset, u_int sectors)
{
	vm_page_t ma[QD_PAGES];
	struct bio *bp = &sc->qd_bios[0];
	int i;

	for (i = 0; i < QD_PAGES; i++)
		ma[i] = PHYS_TO_VM_PAGE(vtophys(memory + (order[i] - '0') * PAGE_SIZE));
	bzero(bp, sizeof(*bp));
	bp->bio_cmd = BIO_WRITE;
	bp->bio_flags = BIO_UNMAPPED;
	bp->bio_disk = sc->qd_blk.blk_disk;
	bp->bio_length = bp->bio_bcount = sectors * QD_SECTOR;
	bp->bio_ma = ma;
	bp->bio_ma_offset = offset;
	bp->bio_ma_n = howmany(offset + bp->bio_length, PAGE_SIZE);
	bp->bio_done = qd_done;
	bp->bio_caller1 = sc;
	bp->bio_disk->d_strategy(bp);
	qd_check_pages(sc);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[0], 0);
	QD_EQ(sc, bp->bio_resid, 0);
}

static void
qd_segments_are_the_pages(struct qd_softc *sc)
{
	static const char *const orders[] = { "01234567", "76543210", "01254367", "60123457" };
	static const size_t sizes[] = { 512, 1536, PAGE_SIZE, 5120, 16384, 65536 };
	static const int offsets[] = { 0, 100, 512, 3584 };
	char *memory;
	u_int i, j, k, sectors;

	memory = contigmalloc(QD_PAGES * PAGE_SIZE, M_TEMP, M_WAITOK, 0, ~(vm_paddr_t)0, PAGE_SIZE, 0);
	for (i = 0; i < nitems(sizes); i++) {
		sc->qd_phys_seg = sizes[i];
		qd_begin(sc, 1, QD_SLOTS, 64);
		for (j = 0; j < nitems(orders); j++)
			for (k = 0; k < nitems(offsets); k++)
				for (sectors = 1; sectors <= 56; sectors += 5)
					qd_pages(sc, memory, orders[j], offsets[k], sectors);
		qd_end(sc);
	}
	sc->qd_phys_seg = 0;
	contigfree(memory, QD_PAGES * PAGE_SIZE, M_TEMP);
}

const struct qd_case qd_cases[] = {
	{ "bio_goes_to_its_cpus_queue", qd_bio_goes_to_its_cpus_queue },
	{ "ordered_flush_waits_for_every_queue", qd_ordered_flush_waits_for_every_queue },
	{ "plain_flush_waits_for_nothing", qd_plain_flush_waits_for_nothing },
	{ "caching_ends_with_a_flush", qd_caching_ends_with_a_flush },
	{ "barriers_keep_their_order", qd_barriers_keep_their_order },
	{ "ordered_write_is_one_barrier", qd_ordered_write_is_one_barrier },
	{ "requeued_in_order", qd_requeued_in_order },
	{ "queues_become_fewer_and_more", qd_queues_become_fewer_and_more },
	{ "half_cut_bio_changes_its_queue", qd_half_cut_bio_changes_its_queue },
	{ "detach_ends_what_was_queued", qd_detach_ends_what_was_queued },
	{ "settle_waits_for_what_is_in_flight", qd_settle_waits_for_what_is_in_flight },
	{ "resets_end_a_request_and_suspends_do_not", qd_resets_end_a_request_and_suspends_do_not },
	{ "reset_leaves_taskqueue_thread", qd_reset_leaves_taskqueue_thread },
	{ "half_cut_bio_is_lost_with_its_disk", qd_half_cut_bio_is_lost_with_its_disk },
	{ "deletes_share_a_request", qd_deletes_share_a_request },
	{ "failed_deletes_are_tried_singly", qd_failed_deletes_are_tried_singly },
	{ "deletes_survive_a_suspend", qd_deletes_survive_a_suspend },
	{ "busy_queue_leaves_its_thread", qd_busy_queue_leaves_its_thread },
	{ "greedy_queue_does_not_starve_another", qd_greedy_queue_does_not_starve_another },
	{ "too_long_for_its_queue", qd_too_long_for_its_queue },
	{ "detach_waits_for_who_submits", qd_detach_waits_for_who_submits },
	{ "pump_leaves_nothing_behind", qd_pump_leaves_nothing_behind },
	{ "segments_are_the_pages", qd_segments_are_the_pages },
	{ NULL, NULL }
};
