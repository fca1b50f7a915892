/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The queue of pv_blk when its device has to be reset: because it broke the rules, because it asks for
 * it, or around a suspend (theory statement, locking: pv_blk.h).
 *
 * PVB_STOPPED comes before the device is stopped and goes after it is live again; in between nobody
 * touches the queues but the one who does this.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>

#include <dev/pv/pv_blk_var.h>

/* The device could not be brought back: what waits and what comes ends with ENXIO. */
static void
pv_blk_die(struct pv_blk *blk, const char *what, int error)
{
	PV_BLK_ASSERT(blk);
	device_printf(blk->blk_dev, "%s failed, error %d: the disk is lost until the driver's "
	    "module is unloaded and loaded again (kldunload, kldload)\n", what, error);
	pv_blk_set_flags(blk, PVB_DEAD, 0);
	pv_blk_fail_waiting(blk, ENXIO);
}

/* Takes what is in flight out of all queues. */
static void
pv_blk_drain_all(struct pv_blk *blk, int error, bool blame)
{
	struct pv_blk_queue *bq;

	PV_BLK_ASSERT(blk);
	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		pv_blk_drain(bq, error, blame);
		mtx_unlock(&bq->bq_mtx);
	}
}

void
pv_blk_reset_locked(struct pv_blk *blk, int error)
{
	sbintime_t pause;

	PV_BLK_ASSERT(blk);
	if ((blk->blk_flags & (PVB_RESETTING | PVB_STOPPED | PVB_FROZEN | PVB_DETACHING |
	    PVB_DEAD)) != 0) {
		/*
		 * Whoever froze the queues is about to reset the device, or does so now.  If that is
		 * not so, or it was too late for this request, it is done after it.
		 */
		blk->blk_reset_again = true;
		/* Whoever waits for the queues to empty need not: they won't. */
		wakeup(&blk->blk_queues);
		return;
	}
	blk->blk_reset_again = false;
	if (blk->blk_ops->bo_reset != NULL) {
		pv_blk_set_flags(blk, PVB_FROZEN, 0);
		blk->blk_stats.bs_resets++;
		blk->blk_ops->bo_reset(blk, error);
		return;
	}
	pv_blk_set_flags(blk, PVB_RESETTING, 0);
	blk->blk_reset_error = error;
	/* A device that breaks each new life at once must not keep the task's thread from others. */
	pause = blk->blk_reset_at + PV_BLK_RESET_PAUSE - getsbinuptime();
	if (blk->blk_stats.bs_resets < PV_BLK_RESETS_UNPACED || pause < 0)
		pause = 0;
	(void)taskqueue_enqueue_timeout_sbt(taskqueue_thread, &blk->blk_reset_task, pause, 0, 0);
}

void
pv_blk_reset_task(void *arg, int pending __unused)
{
	struct pv_blk *blk = arg;
	const char *what = "reset";
	int error;

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
	/* Whoever asked until now has got it; not so who asks while the device restarts. */
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

void
pv_blk_reset(struct pv_blk *blk, int error)
{
	PV_BLK_LOCK(blk);
	pv_blk_reset_locked(blk, error);
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_freeze(struct pv_blk *blk)
{
	PV_BLK_LOCK(blk);
	/* No further reset starts from here on. */
	pv_blk_set_flags(blk, PVB_FROZEN, 0);
	while ((blk->blk_flags & PVB_RESETTING) != 0)
		msleep(&blk->blk_flags, &blk->blk_mtx, PRIBIO, "pvblkf", hz);
	PV_BLK_UNLOCK(blk);
	/* What was put is told of, and completions don't wait for more. */
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

/*
 * Bios that wait in a queue that is not used any more go to another.  One that is partly cut comes
 * first there, and goes on where it was.
 */
static void
pv_blk_move_bios(struct pv_blk_queue *from, struct pv_blk_queue *to)
{
	struct bio *bp = from->bq_cur;

	if (bp != NULL) {
		bp->bio_driver2 = (void *)from->bq_cur_off;
		from->bq_cur = NULL;
		TAILQ_INSERT_HEAD(&to->bq_bios, bp, bio_queue);
	}
	TAILQ_CONCAT(&to->bq_bios, &from->bq_bios, bio_queue);
}

/*
 * Gives each of n queues the requests that belong to it.  As all of one home are in one queue, loads of
 * a tag never run at the same time.
 */
static void
pv_blk_deal(struct pv_blk *blk, u_int n)
{
	struct pv_blk_reqs spare = TAILQ_HEAD_INITIALIZER(spare);
	struct pv_blk_reqs ready = TAILQ_HEAD_INITIALIZER(ready);
	struct pv_blk_queue *bq;
	struct pv_blk_req *rq;

	PV_BLK_FOREACH(blk, bq) {
		TAILQ_CONCAT(&spare, &bq->bq_free, rq_link);
		TAILQ_CONCAT(&ready, &bq->bq_ready, rq_link);
		if (bq->bq_index >= n)
			pv_blk_move_bios(bq, &blk->blk_queues[bq->bq_index % n]);
	}
	while ((rq = TAILQ_FIRST(&spare)) != NULL) {
		TAILQ_REMOVE(&spare, rq, rq_link);
		TAILQ_INSERT_TAIL(&blk->blk_queues[rq->rq_home % n].bq_free, rq, rq_link);
	}
	while ((rq = TAILQ_FIRST(&ready)) != NULL) {
		TAILQ_REMOVE(&ready, rq, rq_link);
		TAILQ_INSERT_TAIL(&blk->blk_queues[rq->rq_home % n].bq_ready, rq, rq_link);
	}
}

void
pv_blk_set_queues(struct pv_blk *blk, struct pvq *const *qs, u_int n)
{
	struct pv_blk_queue *bq;

	KASSERT(n <= blk->blk_params.bp_nqueues, ("%s: %u queues", __func__, n));
	sysctl_ctx_free(&blk->blk_queue_sysctl);
	PV_BLK_LOCK(blk);
	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		KASSERT((bq->bq_flags & PVB_STOPPED) != 0 && bq->bq_ninflight == 0,
		    ("%s: queue %u is in use", __func__, bq->bq_index));
		bq->bq_pvq = bq->bq_index < n ? qs[bq->bq_index] : NULL;
	}
	if (n != 0) {
		pv_blk_deal(blk, n);
		blk->blk_nactive = n;
	}
	PV_BLK_FOREACH(blk, bq)
		mtx_unlock(&bq->bq_mtx);
	PV_BLK_UNLOCK(blk);
	pv_blk_sysctl_queues(blk);
}

void
pv_blk_set_max_size(struct pv_blk *blk, size_t size)
{
	struct pv_blk_params *bp = &blk->blk_params;

	PV_BLK_LOCK(blk);
	KASSERT((blk->blk_flags & PVB_STOPPED) != 0, ("%s: the device is live", __func__));
	KASSERT(size >= bp->bp_sectorsize, ("%s: %zu bytes", __func__, size));
	bp->bp_max_size = rounddown2(MIN(size, blk->blk_made_size), bp->bp_sectorsize);
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_set_lost(struct pv_blk *blk, bool lost)
{
	PV_BLK_LOCK(blk);
	KASSERT((blk->blk_flags & PVB_FROZEN) != 0, ("%s: not frozen", __func__));
	if (lost) {
		pv_blk_set_flags(blk, PVB_DEAD, 0);
		pv_blk_fail_waiting(blk, ENXIO);
	} else
		pv_blk_set_flags(blk, 0, PVB_DEAD);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
}

void
pv_blk_thaw(struct pv_blk *blk)
{
	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, 0, PVB_FROZEN | PVB_STOPPED);
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
	PV_BLK_LOCK(blk);
	if (error != 0)
		pv_blk_die(blk, "resume", error);
	else
		pv_blk_set_flags(blk, 0, PVB_DEAD);
	PV_BLK_UNLOCK(blk);
	if (error != 0)
		pv_blk_run(blk);
	else
		pv_blk_thaw(blk);
	return (error);
}
