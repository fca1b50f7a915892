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
 * touches the queue but the one who does this.
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
	blk->blk_flags |= PVB_DEAD;
	pv_blk_fail_queued(blk, ENXIO);
}

void
pv_blk_reset_task(void *arg, int pending __unused)
{
	struct pv_blk *blk = arg;
	const char *what = "reset";
	int error;

	PV_BLK_LOCK(blk);
	blk->blk_flags |= PVB_STOPPED;
	blk->blk_stats.bs_resets++;
	blk->blk_reset_at = getsbinuptime();
	PV_BLK_UNLOCK(blk);
	error = blk->blk_ops->bo_stop(blk);
	PV_BLK_LOCK(blk);
	if (error != 0)
		blk->blk_flags |= PVB_LEAK;
	pv_blk_drain(blk, blk->blk_reset_error);
	if (error == 0 && (blk->blk_flags & PVB_DETACHING) == 0) {
		PV_BLK_UNLOCK(blk);
		what = "restart";
		error = blk->blk_ops->bo_restart(blk);
		PV_BLK_LOCK(blk);
		if (error == 0)
			blk->blk_flags &= ~PVB_STOPPED;
	}
	blk->blk_flags &= ~PVB_RESETTING;
	if (error != 0)
		pv_blk_die(blk, what, error);
	pv_blk_process(blk);
	pv_blk_deliver(blk);
	wakeup(&blk->blk_flags);
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_reset_locked(struct pv_blk *blk, int error)
{
	sbintime_t pause;

	PV_BLK_ASSERT(blk);
	if ((blk->blk_flags & (PVB_RESETTING | PVB_STOPPED | PVB_DETACHING | PVB_DEAD)) != 0) {
		/* Whoever waits for the queue to empty need not: it won't. */
		wakeup(&blk->blk_ninflight);
		return;
	}
	if (blk->blk_ops->bo_reset != NULL) {
		if ((blk->blk_flags & PVB_FROZEN) != 0)
			return;
		blk->blk_flags |= PVB_FROZEN;
		blk->blk_stats.bs_resets++;
		blk->blk_ops->bo_reset(blk, error);
		return;
	}
	blk->blk_flags |= PVB_RESETTING;
	blk->blk_reset_error = error;
	/* A device that breaks each new life at once must not keep the task's thread from others. */
	pause = blk->blk_reset_at + PV_BLK_RESET_PAUSE - getsbinuptime();
	if (blk->blk_stats.bs_resets < PV_BLK_RESETS_UNPACED || pause < 0)
		pause = 0;
	(void)taskqueue_enqueue_timeout_sbt(taskqueue_thread, &blk->blk_reset_task, pause, 0, 0);
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
	while ((blk->blk_flags & PVB_RESETTING) != 0)
		msleep(&blk->blk_flags, &blk->blk_mtx, PRIBIO, "pvblkf", hz);
	blk->blk_flags |= PVB_FROZEN;
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_requeue(struct pv_blk *blk, int error)
{
	PV_BLK_LOCK(blk);
	KASSERT((blk->blk_flags & PVB_FROZEN) != 0, ("%s: not frozen", __func__));
	blk->blk_flags |= PVB_STOPPED;
	pv_blk_drain(blk, error);
	pv_blk_deliver(blk);
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_set_queue(struct pv_blk *blk, struct pvq *q)
{
	sysctl_ctx_free(&blk->blk_queue_sysctl);
	PV_BLK_LOCK(blk);
	KASSERT((blk->blk_flags & PVB_STOPPED) != 0 && blk->blk_ninflight == 0,
	    ("%s: the queue is in use", __func__));
	blk->blk_pvq = q;
	PV_BLK_UNLOCK(blk);
	pv_blk_sysctl_queue(blk);
}

void
pv_blk_thaw(struct pv_blk *blk)
{
	PV_BLK_LOCK(blk);
	blk->blk_flags &= ~(PVB_FROZEN | PVB_STOPPED);
	pv_blk_process(blk);
	PV_BLK_UNLOCK(blk);
}
