/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What pv_dev(9) calls for a disk, and late requests (theory statement,
 * locking: pv_blk.h).
 *
 * PVB_STOPPED comes before the device is stopped and goes after it is started;
 * in between nothing touches the queues but the thread that does this.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>

#include <dev/pv/blk/pv_blk_var.h>

/*
 * Waits up to so many seconds until nothing is in flight, while that can happen
 * without a reset.
 */
static u_int
pv_blk_wait_locked(struct pv_blk *blk, u_int secs)
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
		msleep(&blk->blk_queues, &blk->blk_mtx, PRIBIO,
		    "pvblki", MIN(left, hz));
	}
}

int
pv_blk_wait_idle(struct pv_blk *blk, u_int secs)
{
	u_int left;

	PV_BLK_LOCK(blk);
	left = pv_blk_wait_locked(blk, secs);
	PV_BLK_UNLOCK(blk);
	return (left == 0 ? 0 : EBUSY);
}

/* From here on nothing is started. */
static void
pv_blk_quiesce_disk(struct pv_blk *blk, int error)
{
	u_int left, secs = pv_dev_patience(&blk->blk_pvdev,
	    SBT_1S * PV_BLK_IDLE_SECS) / SBT_1S;

	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, PVB_FROZEN, 0);
	if (error == ENXIO)
		pv_blk_fail(blk, ENXIO);
	PV_BLK_UNLOCK(blk);
	if (error == EIO)
		return;
	/*
	 * The device is notified of what was put, and completions don't wait
	 * for more.
	 */
	pv_blk_run(blk);
	PV_BLK_LOCK(blk);
	left = pv_blk_wait_locked(blk,
	    error == 0 ? blk->blk_params.bp_idle_secs : secs);
	if (error == ENXIO && left != 0)
		device_printf(blk->blk_dev,
		    "%u requests without an answer end with ENXIO (waited "
		    "for %u s at most)\n", left, secs);
	PV_BLK_UNLOCK(blk);
}

static void
pv_blk_dev_quiesce(void *arg, u_int queue, int error)
{
	struct pv_blk *blk = arg;

	if (queue == PV_DEV_ALL) {
		pv_blk_quiesce_disk(blk, error);
		return;
	}
	PV_BLK_LOCK(blk);
	pv_blk_queue_set_stopped(&blk->blk_queues[queue], true);
	PV_BLK_UNLOCK(blk);
}

static void
pv_blk_set_stopped(struct pv_blk *blk)
{
	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, PVB_STOPPED, 0);
	PV_BLK_UNLOCK(blk);
}

static int
pv_blk_dev_stop(void *arg, u_int queue)
{
	struct pv_blk *blk = arg;
	int error;

	if (queue == PV_DEV_ALL) {
		pv_blk_set_stopped(blk);
		return (blk->blk_ops->bo_stop == NULL ? 0 :
		    blk->blk_ops->bo_stop(blk));
	}
	if ((blk->blk_params.bp_flags & PV_BLK_QUEUE_RESET) == 0)
		return (EOPNOTSUPP);
	error = blk->blk_ops->bo_stop_queue(blk, queue);
	if (error != 0)
		blk->blk_params.bp_flags &= ~PV_BLK_QUEUE_RESET;
	return (error);
}

static void
pv_blk_dev_reclaim(void *arg, u_int queue, int error)
{
	struct pv_blk *blk = arg;

	pv_blk_queue_drain(&blk->blk_queues[queue], error);
}

static int
pv_blk_dev_restart(void *arg, u_int queue)
{
	struct pv_blk *blk = arg;

	if (queue != PV_DEV_ALL)
		return (blk->blk_ops->bo_restart_queue(blk, queue));
	pv_blk_req_more(blk);
	/* Its protocol has started it. */
	if (blk->blk_requeued || blk->blk_ops->bo_restart == NULL)
		return (0);
	return (blk->blk_ops->bo_restart(blk));
}

static void
pv_blk_dev_resume(void *arg, u_int queue)
{
	struct pv_blk *blk = arg;

	PV_BLK_LOCK(blk);
	if (queue == PV_DEV_ALL) {
		blk->blk_requeued = false;
		pv_blk_set_flags(blk, 0, PVB_DEAD | PVB_FROZEN | PVB_STOPPED);
	} else
		pv_blk_queue_set_stopped(&blk->blk_queues[queue], false);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
}

/* What waits and what comes ends with ENXIO. */
static void
pv_blk_dev_lost(void *arg, bool leaked)
{
	struct pv_blk *blk = arg;
	struct pv_blk_queue *bq;

	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, PVB_DEAD | (leaked ? PVB_LEAK : 0), 0);
	PV_BLK_FOREACH(blk, bq)
		if (leaked)
			pv_blk_queue_drain(bq, ENXIO);
	pv_blk_fail(blk, ENXIO);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
}

static void
pv_blk_dev_reconnect(void *arg)
{
	struct pv_blk *blk = arg;

	blk->blk_ops->bo_peer->bpo_reconnect(blk);
}

static bool
pv_blk_has_more(void *arg)
{
	struct pv_blk *blk = arg;

	if (pv_blk_req_has_more(blk))
		return (true);
	return (pv_dev_is_short(&blk->blk_pvdev, PV_DEV_QUEUES) &&
	    blk->blk_ops->bo_has_more(blk));
}

static const struct pv_dev_ops pv_blk_dev_ops = {
	.pdo_quiesce = pv_blk_dev_quiesce,
	.pdo_stop = pv_blk_dev_stop,
	.pdo_reclaim = pv_blk_dev_reclaim,
	.pdo_restart = pv_blk_dev_restart,
	.pdo_resume = pv_blk_dev_resume,
	.pdo_lost = pv_blk_dev_lost,
	.pdo_has_more = pv_blk_has_more,
};

void
pv_blk_hold(struct pv_blk *blk)
{
	pv_dev_quiesce(&blk->blk_pvdev);
	pv_blk_set_stopped(blk);
}

void
pv_blk_requeue(struct pv_blk *blk)
{
	pv_blk_set_stopped(blk);
	blk->blk_requeued = true;
	pv_dev_reclaim(&blk->blk_pvdev);
	pv_blk_run(blk);
}

/*
 * Late requests are only reported, unless timeout_reset is set: their memory is
 * the device's until they are completed or it is reset, and a host under load
 * may be slow.
 */
static void
pv_blk_watchdog(void *arg)
{
	struct pv_blk *blk = arg;
	struct pv_blk_queue *bq;
	u_int stuck = 0;

	PV_BLK_FOREACH(blk, bq)
		stuck += pv_blk_queue_check(bq);
	PV_BLK_LOCK(blk);
	blk->blk_stats.bs_timeout_resets += stuck != 0;
	if ((blk->blk_flags & PVB_DETACHING) == 0)
		(void)callout_schedule_sbt(&blk->blk_watchdog, SBT_1S, 0,
		    C_PREL(2));
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_go_live(struct pv_blk *blk)
{
	pv_dev_start(&blk->blk_pvdev, true);
	PV_BLK_LOCK(blk);
	(void)callout_reset_sbt(&blk->blk_watchdog, SBT_1S, 0, pv_blk_watchdog,
	    blk, C_PREL(2));
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_shut(struct pv_blk *blk)
{
	/* At once, while a reset may be under way. */
	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, PVB_DETACHING, 0);
	PV_BLK_UNLOCK(blk);
	pv_dev_leave(&blk->blk_pvdev);
	PV_BLK_LOCK(blk);
	pv_blk_fail(blk, ENXIO);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
}

void
pv_blk_quiet(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;

	/* These may schedule the others. */
	pv_blk_submit_quiet(blk);
	PV_BLK_FOREACH(blk, bq)
		callout_drain(&bq->bq_retry);
	callout_drain(&blk->blk_watchdog);
}

int
pv_blk_recover_init(struct pv_blk *blk)
{
	callout_init(&blk->blk_watchdog, 1);
	blk->blk_dev_ops = pv_blk_dev_ops;
	blk->blk_dev_ops.pdo_settings = blk->blk_ops->bo_settings;
	if (blk->blk_ops->bo_peer != NULL)
		blk->blk_dev_ops.pdo_reconnect = pv_blk_dev_reconnect;
	return (pv_dev_init(&blk->blk_pvdev, blk->blk_dev, &blk->blk_dev_ops,
	    blk, blk->blk_params.bp_nqueues));
}
