/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A disk whose device has to be reset, because it violated the protocol or requests it, is suspended,
 * or is detached (theory statement, locking: pv_blk.h).
 *
 * PVB_STOPPED comes before the device is stopped and goes after it is live again; in between nothing
 * touches the queues but the thread that does this.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>

#include <dev/pv/blk/pv_blk_peer.h>
#include <dev/pv/blk/pv_blk_var.h>

/* After this many resets, no two within the pause. */
#define	PV_BLK_RESETS_UNPACED	3
#define	PV_BLK_RESET_PAUSE	(SBT_1S / 10)

/* No reset starts now: one is under way, or what does the same, or nothing helps. */
#define	PV_BLK_BUSY							\
	(PVB_RESETTING | PVB_REPAIRING | PVB_STOPPED | PVB_FROZEN | PVB_DETACHING | PVB_DEAD)

/* No device is expected: what waits and what comes ends with ENXIO. */
static void
pv_blk_fail(struct pv_blk *blk)
{
	PV_BLK_ASSERT(blk);
	pv_blk_set_flags(blk, PVB_DEAD, 0);
	pv_blk_order_fail(blk, ENXIO);
}

/* The device could not be brought back. */
static void
pv_blk_die(struct pv_blk *blk, const char *what, int error)
{
	device_printf(blk->blk_dev, "%s failed, error %d: the disk is lost until the driver's "
	    "module is unloaded and loaded again (kldunload, kldload)\n", what, error);
	pv_blk_fail(blk);
}

/* Takes what is in flight out of all queues. */
static void
pv_blk_drain_all(struct pv_blk *blk, int error, bool blame)
{
	struct pv_blk_queue *bq;

	PV_BLK_ASSERT(blk);
	PV_BLK_FOREACH(blk, bq)
		pv_blk_queue_drain(bq, error, blame);
}

/* Has the task reset what flags say (PVB_RESETTING, PVB_REPAIRING). */
static void
pv_blk_schedule_reset(struct pv_blk *blk, u_int flags)
{
	uint64_t resets = blk->blk_stats.bs_resets + blk->blk_stats.bs_queue_resets;
	sbintime_t pause;

	PV_BLK_ASSERT(blk);
	pv_blk_set_flags(blk, flags, 0);
	/* A device that breaks its queues at once each time must not occupy the task's thread. */
	pause = blk->blk_reset_at + PV_BLK_RESET_PAUSE - getsbinuptime();
	if (resets < PV_BLK_RESETS_UNPACED || pause < 0)
		pause = 0;
	(void)taskqueue_enqueue_timeout_sbt(blk->blk_reset_tq, &blk->blk_reset_task, pause, 0, 0);
}

static void
pv_blk_reset_locked(struct pv_blk *blk, int error)
{
	PV_BLK_ASSERT(blk);
	if ((blk->blk_flags & PV_BLK_BUSY) != 0) {
		/*
		 * The thread that froze the queues is about to reset the device, or does so now.  If
		 * it does not, or it was too late for this request, one more reset follows.
		 */
		blk->blk_reset_again = true;
		/* Broken queues do not become idle: nothing need wait for that. */
		wakeup(&blk->blk_queues);
		return;
	}
	blk->blk_reset_again = false;
	if (blk->blk_ops->bo_peer != NULL) {
		pv_blk_set_flags(blk, PVB_FROZEN, 0);
		blk->blk_stats.bs_resets++;
		blk->blk_ops->bo_peer->bpo_reconnect(blk, error);
		return;
	}
	blk->blk_reset_error = error;
	pv_blk_schedule_reset(blk, PVB_RESETTING);
}

void
pv_blk_reset(struct pv_blk *blk, int error)
{
	PV_BLK_LOCK(blk);
	pv_blk_reset_locked(blk, error);
	PV_BLK_UNLOCK(blk);
}

/*
 * A queue is broken or stuck, and is reset alone if the device can do that.  If not, what is in flight
 * ends with error; 0: it is put again.
 */
static void
pv_blk_repair_locked(struct pv_blk *blk, int error)
{
	PV_BLK_ASSERT(blk);
	/* The task looks for more before it ends. */
	if ((blk->blk_flags & PVB_REPAIRING) != 0)
		return;
	if ((blk->blk_params.bp_flags & PV_BLK_QUEUE_RESET) == 0 ||
	    (blk->blk_flags & PV_BLK_BUSY) != 0) {
		pv_blk_reset_locked(blk, error);
		return;
	}
	pv_blk_schedule_reset(blk, PVB_REPAIRING);
}

/*
 * Resets a queue, which is stopped until that has succeeded, or until the device was reset.  What is in
 * flight ends with EIO if the queue is broken, and is put again if it is stuck.
 */
static int
pv_blk_reset_queue(struct pv_blk *blk, struct pv_blk_queue *bq, u_int needs)
{
	bool can = true;
	int error;

	PV_BLK_LOCK(blk);
	pv_blk_queue_hold(bq, true);
	PV_BLK_UNLOCK(blk);
	error = (needs & PVBQ_STUCK_AGAIN) != 0 ? ETIMEDOUT : 0;
	if (error == 0) {
		error = blk->blk_ops->bo_stop_queue(blk, bq->bq_index);
		can = error == 0;
	} else
		device_printf(blk->blk_dev, "the reset of queue %u (%s) was of no use: resetting "
		    "the device\n", bq->bq_index, bq->bq_pvq->q_name);
	if (error == 0) {
		pv_blk_queue_drain(bq, (needs & PVBQ_BROKEN) != 0 ? EIO : 0, true);
		error = blk->blk_ops->bo_restart_queue(blk, bq->bq_index);
	}
	PV_BLK_LOCK(blk);
	if (!can)
		blk->blk_params.bp_flags &= ~PV_BLK_QUEUE_RESET;
	if (error == 0) {
		blk->blk_stats.bs_queue_resets++;
		pv_blk_queue_hold(bq, false);
	} else if (error != EOPNOTSUPP)
		blk->blk_stats.bs_queue_reset_errors++;
	PV_BLK_UNLOCK(blk);
	return (error);
}

/* Resets all broken and stuck queues.  Returns an error if the device has to be reset for them. */
static int
pv_blk_reset_queues(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;
	u_int needs;
	int error;

	PV_BLK_FOREACH(blk, bq) {
		needs = pv_blk_queue_needs_reset(bq);
		if (needs == 0)
			continue;
		error = pv_blk_reset_queue(blk, bq, needs);
		if (error != 0)
			return (error);
	}
	return (0);
}

/* What all queues together need. */
static u_int
pv_blk_needs_reset(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;
	u_int needs = 0;

	PV_BLK_ASSERT(blk);
	PV_BLK_FOREACH(blk, bq)
		needs |= pv_blk_queue_needs_reset(bq);
	return (needs);
}

/*
 * blk_broken.  Where several threads find a queue broken, one may come when the reset for the others
 * has stopped the device, or is over: it must not be the reason for one more.
 */
static void
pv_blk_repair(struct pv_blk *blk)
{
	const u_int stopped = PVB_RESETTING | PVB_STOPPED;

	PV_BLK_LOCK(blk);
	if ((blk->blk_flags & stopped) != stopped && (pv_blk_needs_reset(blk) & PVBQ_BROKEN) != 0)
		pv_blk_repair_locked(blk, EIO);
	PV_BLK_UNLOCK(blk);
}

/* Returns true if that was all that there was to do. */
static bool
pv_blk_repaired(struct pv_blk *blk)
{
	u_int needs;
	int error;

	error = pv_blk_reset_queues(blk);
	PV_BLK_LOCK(blk);
	blk->blk_reset_at = getsbinuptime();
	needs = pv_blk_needs_reset(blk);
	if (error != 0) {
		blk->blk_reset_error = (needs & PVBQ_BROKEN) != 0 ? EIO : 0;
		/* Without a moment in which neither flag is set. */
		pv_blk_set_flags(blk, PVB_RESETTING, PVB_REPAIRING);
		PV_BLK_UNLOCK(blk);
		return (false);
	}
	pv_blk_set_flags(blk, 0, PVB_REPAIRING);
	if (blk->blk_reset_again)
		pv_blk_reset_locked(blk, 0);
	else if (needs != 0)
		pv_blk_repair_locked(blk, (needs & PVBQ_BROKEN) != 0 ? EIO : 0);
	wakeup(&blk->blk_flags);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
	return (true);
}

static void
pv_blk_reset_task(void *arg, int pending __unused)
{
	struct pv_blk *blk = arg;
	const char *what = "reset";
	int error;

	/* Only this task clears it, and no reset of the device starts while it is set. */
	if ((blk->blk_flags & PVB_REPAIRING) != 0 && pv_blk_repaired(blk))
		return;
	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, PVB_STOPPED, 0);
	blk->blk_stats.bs_resets++;
	blk->blk_reset_at = getsbinuptime();
	PV_BLK_UNLOCK(blk);
	error = blk->blk_ops->bo_stop(blk);
	PV_BLK_LOCK(blk);
	if (error != 0)
		blk->blk_flags |= PVB_LEAK;
	pv_blk_drain_all(blk, blk->blk_reset_error, true);
	/* This was the reset for all requests until now; one during the restart needs another. */
	blk->blk_reset_again = false;
	if (error == 0 && (blk->blk_flags & PVB_DETACHING) == 0) {
		PV_BLK_UNLOCK(blk);
		what = "restart";
		error = blk->blk_ops->bo_restart(blk);
		PV_BLK_LOCK(blk);
		if (error == 0)
			pv_blk_set_flags(blk, 0, PVB_STOPPED);
	}
	pv_blk_set_flags(blk, 0, PVB_RESETTING);
	if (error != 0)
		pv_blk_die(blk, what, error);
	else if (blk->blk_reset_again)
		pv_blk_reset_locked(blk, 0);
	wakeup(&blk->blk_flags);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
}

/* Waits up to so many seconds until nothing is in flight, while that can happen without a reset. */
static u_int
pv_blk_wait_idle(struct pv_blk *blk, u_int secs)
{
	struct pv_blk_queue *bq;
	const int start = ticks;
	bool hopeless;
	u_int n;
	int left;

	PV_BLK_ASSERT(blk);
	for (;;) {
		n = 0;
		hopeless = (blk->blk_flags & (PVB_STOPPED | PVB_DEAD)) != 0;
		PV_BLK_FOREACH(blk, bq)
			n += pv_blk_queue_in_flight(bq, &hopeless);
		left = (int)secs * hz - (ticks - start);
		if (n == 0 || hopeless || left <= 0)
			return (n);
		/* Each queue that is found idle ends the sleep. */
		msleep(&blk->blk_queues, &blk->blk_mtx, PRIBIO, "pvblki", MIN(left, hz));
	}
}

void
pv_blk_freeze(struct pv_blk *blk)
{
	PV_BLK_LOCK(blk);
	/* No further reset starts from here on. */
	pv_blk_set_flags(blk, PVB_FROZEN, 0);
	while ((blk->blk_flags & (PVB_RESETTING | PVB_REPAIRING)) != 0)
		msleep(&blk->blk_flags, &blk->blk_mtx, PRIBIO, "pvblkf", hz);
	PV_BLK_UNLOCK(blk);
	/* The device is notified of what was put, and completions don't wait for more. */
	pv_blk_run(blk);
}

int
pv_blk_settle(struct pv_blk *blk, u_int secs)
{
	u_int left;

	PV_BLK_LOCK(blk);
	left = pv_blk_wait_idle(blk, secs);
	PV_BLK_UNLOCK(blk);
	return (left == 0 ? 0 : EBUSY);
}

void
pv_blk_hold(struct pv_blk *blk)
{
	pv_blk_freeze(blk);
	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, PVB_STOPPED, 0);
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_requeue(struct pv_blk *blk, int error)
{
	PV_BLK_LOCK(blk);
	KASSERT((blk->blk_flags & PVB_FROZEN) != 0, ("%s: not frozen", __func__));
	pv_blk_set_flags(blk, PVB_STOPPED, 0);
	pv_blk_drain_all(blk, error, false);
	blk->blk_reset_again = false;
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
}

void
pv_blk_give_up(struct pv_blk *blk)
{
	PV_BLK_LOCK(blk);
	KASSERT((blk->blk_flags & PVB_FROZEN) != 0, ("%s: not frozen", __func__));
	pv_blk_fail(blk);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
}

void
pv_blk_thaw(struct pv_blk *blk)
{
	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, 0, PVB_DEAD | PVB_FROZEN | PVB_STOPPED);
	if (blk->blk_reset_again)
		pv_blk_reset_locked(blk, 0);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
}

int
pv_blk_suspend(struct pv_blk *blk, u_int secs)
{
	int error;

	pv_blk_freeze(blk);
	(void)pv_blk_settle(blk, secs);
	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, PVB_STOPPED, 0);
	PV_BLK_UNLOCK(blk);
	error = blk->blk_ops->bo_stop(blk);
	pv_blk_requeue(blk, 0);
	if (error == 0)
		return (0);
	/* A device whose suspend failed is not resumed: its I/O has to end now. */
	PV_BLK_LOCK(blk);
	blk->blk_flags |= PVB_LEAK;
	pv_blk_die(blk, "suspend", error);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
	return (error);
}

int
pv_blk_resume(struct pv_blk *blk)
{
	int error;

	error = blk->blk_ops->bo_restart(blk);
	if (error == 0) {
		pv_blk_thaw(blk);
		return (0);
	}
	PV_BLK_LOCK(blk);
	pv_blk_die(blk, "resume", error);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
	return (error);
}

/*
 * Late requests are only reported, unless timeout_reset is set: their memory is the device's until they
 * are completed or it is reset, and a host under load may be slow.
 */
static void
pv_blk_watchdog(void *arg)
{
	struct pv_blk *blk = arg;
	struct pv_blk_queue *bq;
	u_int todo = 0;

	PV_BLK_FOREACH(blk, bq)
		todo |= pv_blk_queue_check(bq);
	PV_BLK_LOCK(blk);
	if ((todo & PVBQ_STUCK) != 0)
		blk->blk_stats.bs_timeout_resets++;
	if (todo != 0)
		pv_blk_repair_locked(blk, (todo & PVBQ_BROKEN) != 0 ? EIO : 0);
	if ((blk->blk_flags & PVB_DETACHING) == 0)
		(void)callout_schedule_sbt(&blk->blk_watchdog, SBT_1S, 0, C_PREL(2));
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_watch(struct pv_blk *blk)
{
	(void)callout_reset_sbt(&blk->blk_watchdog, SBT_1S, 0, pv_blk_watchdog, blk, C_PREL(2));
}

void
pv_blk_shut(struct pv_blk *blk)
{
	u_int left;
	int error = 0;

	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, PVB_DETACHING, 0);
	while ((blk->blk_flags & (PVB_RESETTING | PVB_REPAIRING)) != 0)
		msleep(&blk->blk_flags, &blk->blk_mtx, PRIBIO, "pvblkr", hz);
	pv_blk_order_fail(blk, ENXIO);
	PV_BLK_UNLOCK(blk);
	/* Completions must not wait for a batch that will not come. */
	pv_blk_run(blk);
	PV_BLK_LOCK(blk);
	left = pv_blk_wait_idle(blk, PV_BLK_DRAIN_SECS);
	if (left != 0)
		device_printf(blk->blk_dev, "%u requests without an answer end with ENXIO\n", left);
	pv_blk_set_flags(blk, PVB_STOPPED, 0);
	PV_BLK_UNLOCK(blk);
	if (blk->blk_ops->bo_stop != NULL)
		error = blk->blk_ops->bo_stop(blk);
	PV_BLK_LOCK(blk);
	if (error != 0)
		blk->blk_flags |= PVB_LEAK;
	pv_blk_drain_all(blk, ENXIO, false);
	pv_blk_order_fail(blk, ENXIO);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
}

void
pv_blk_quiet(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;

	/* These may schedule the others. */
	pv_blk_order_quiet(blk);
	PV_BLK_FOREACH(blk, bq)
		callout_drain(&bq->bq_tick);
	callout_drain(&blk->blk_watchdog);
	/* Cancelled first, as a queue keeps count of a callout that was only drained. */
	while (taskqueue_cancel_timeout(blk->blk_reset_tq, &blk->blk_reset_task, NULL) != 0)
		taskqueue_drain_timeout(blk->blk_reset_tq, &blk->blk_reset_task);
}

void
pv_blk_recover_init(struct pv_blk *blk)
{
	blk->blk_broken = pv_blk_repair;
	callout_init(&blk->blk_watchdog, 1);
	/* A reset may sleep for seconds, which would delay others' tasks in taskqueue_thread. */
	blk->blk_reset_tq = taskqueue_create("pv_blk_reset", M_WAITOK, taskqueue_thread_enqueue,
	    &blk->blk_reset_tq);
	taskqueue_start_threads(&blk->blk_reset_tq, 1, PWAIT, "%s reset",
	    device_get_nameunit(blk->blk_dev));
	TIMEOUT_TASK_INIT(blk->blk_reset_tq, &blk->blk_reset_task, 0, pv_blk_reset_task, blk);
}

void
pv_blk_recover_fini(struct pv_blk *blk)
{
	taskqueue_free(blk->blk_reset_tq);
}
