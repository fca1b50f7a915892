/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * All queues of a disk, and bios that must not be overtaken (theory statement, locking: pv_blk.h).
 *
 * A barrier is rare, so that it bears its own cost: the queues only look at a flag that they read
 * anyway.  It closes the gate (PVB_GATED): from then on all bios are queued in blk_waiting, in the
 * order they come.  The pump takes from there:
 *
 *	a barrier      when every queue is idle; it goes to the first one, and the pump stops
 *	any other bio  unless a barrier has not been completed; they are dealt to the queues in turn
 *
 * and opens the gate when nothing is waiting and the barrier is done.  An operation of a queue that has
 * nothing in flight while the gate is closed returns PVBQ_IDLE, and is followed by the pump.
 *
 * One thread pumps at a time.  It goes round until nothing has moved, with blk_mtx held, so that
 * another thread that has a reason while it runs the queues leaves that to it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>

#include <dev/pv/blk/pv_blk_var.h>

/* May it not be overtaken by others? */
static bool
pv_blk_is_barrier(const struct bio *bp)
{
	return ((bp->bio_flags & BIO_ORDERED) != 0);
}

/* Are all queues idle? */
static bool
pv_blk_idle(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;
	bool idle = true;

	PV_BLK_FOREACH(blk, bq)
		idle = idle && pv_blk_queue_idle(bq);
	return (idle);
}

/* Gives the first bio that waits to a queue. */
static void
pv_blk_pass(struct pv_blk *blk, struct pv_blk_queue *bq)
{
	struct bio *bp = TAILQ_FIRST(&blk->blk_waiting);

	TAILQ_REMOVE(&blk->blk_waiting, bp, bio_queue);
	pv_blk_queue_append(bq, bp);
}

/* Passes on what may go now.  Returns true if anything did. */
static bool
pv_blk_pump_once(struct pv_blk *blk)
{
	struct bio *bp;
	bool moved = false;

	PV_BLK_ASSERT(blk);
	if ((blk->blk_flags & PVB_GATED) != 0 && blk->blk_barrier != NULL) {
		if (!pv_blk_idle(blk))
			return (false);
		blk->blk_barrier = NULL;
	}
	while ((bp = TAILQ_FIRST(&blk->blk_waiting)) != NULL) {
		if (!pv_blk_is_barrier(bp)) {
			pv_blk_pass(blk, &blk->blk_queues[blk->blk_turn++ % blk->blk_nactive]);
			moved = true;
			continue;
		}
		if ((blk->blk_flags & PVB_GATED) == 0) {
			pv_blk_set_flags(blk, PVB_GATED, 0);
			/* What the barrier waits for must not wait for a batch. */
			if (!pv_blk_idle(blk))
				return (true);
		}
		if (!moved && pv_blk_idle(blk)) {
			blk->blk_barrier = bp;
			pv_blk_pass(blk, &blk->blk_queues[0]);
			moved = true;
		}
		return (moved);
	}
	if ((blk->blk_flags & PVB_GATED) != 0)
		pv_blk_set_flags(blk, 0, PVB_GATED);
	return (moved);
}

/* Runs all queues, without what follows from it. */
static u_int
pv_blk_run_queues(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;
	u_int todo = 0;

	PV_BLK_FOREACH(blk, bq)
		todo |= pv_blk_queue_run(bq);
	return (todo);
}

/* Does what an operation of a queue returned. */
static __noinline void
pv_blk_follow(struct pv_blk *blk, u_int todo)
{
	PV_BLK_LOCK(blk);
	wakeup(&blk->blk_queues);
	if (!blk->blk_pumping) {
		blk->blk_pumping = true;
		while (pv_blk_pump_once(blk)) {
			PV_BLK_UNLOCK(blk);
			todo |= pv_blk_run_queues(blk);
			PV_BLK_LOCK(blk);
		}
		blk->blk_pumping = false;
		wakeup(&blk->blk_queues);
	}
	PV_BLK_UNLOCK(blk);
	if ((todo & PVBQ_BROKEN) != 0)
		blk->blk_broken(blk);
}

void
pv_blk_intr(void *arg)
{
	struct pv_blk_queue *bq = arg;
	u_int todo;

	todo = pv_blk_queue_run(bq);
	if (__predict_false(todo != 0))
		pv_blk_follow(bq->bq_blk, todo);
}

void
pv_blk_run(struct pv_blk *blk)
{
	u_int todo;

	todo = pv_blk_run_queues(blk);
	if (todo != 0)
		pv_blk_follow(blk, todo);
}

/* The same for a user's thread that blk_following counts; the disk may be gone when it returns. */
static __noinline void
pv_blk_follow_counted(struct pv_blk *blk, u_int todo)
{
	pv_blk_follow(blk, todo);
	atomic_subtract_rel_int(&blk->blk_following, 1);
}

/* Queues a barrier, or a bio that no queue takes now. */
static __noinline void
pv_blk_wait(struct pv_blk *blk, struct bio *bp)
{
	PV_BLK_LOCK(blk);
	if ((blk->blk_flags & (PVB_DETACHING | PVB_DEAD)) != 0) {
		PV_BLK_UNLOCK(blk);
		biofinish(bp, NULL, ENXIO);
		return;
	}
	atomic_add_int(&blk->blk_following, 1);
	TAILQ_INSERT_TAIL(&blk->blk_waiting, bp, bio_queue);
	PV_BLK_UNLOCK(blk);
	pv_blk_follow_counted(blk, 0);
}

void
pv_blk_order_submit(struct pv_blk *blk, struct bio *bp)
{
	u_int todo = PVBQ_REFUSED;

	if (__predict_true(!pv_blk_is_barrier(bp)))
		todo = pv_blk_queue_submit(blk, bp);
	if (__predict_true(todo == 0))
		return;
	if (todo == PVBQ_REFUSED)
		pv_blk_wait(blk, bp);
	else
		pv_blk_follow_counted(blk, todo);
}

void
pv_blk_order_quiet(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;

	/* In the order of a thread's way, which has no way back. */
	PV_BLK_FOREACH(blk, bq)
		while (pv_blk_queue_delivers(bq))
			pause("pvblkd", 1);
	while (atomic_load_acq_int(&blk->blk_following) != 0)
		pause("pvblkd", 1);
}

void
pv_blk_order_fail(struct pv_blk *blk, int error)
{
	struct pv_blk_queue *bq;

	PV_BLK_ASSERT(blk);
	blk->blk_barrier = NULL;
	while (!TAILQ_EMPTY(&blk->blk_waiting))
		pv_blk_pass(blk, &blk->blk_queues[0]);
	if ((blk->blk_flags & PVB_GATED) != 0)
		pv_blk_set_flags(blk, 0, PVB_GATED);
	PV_BLK_FOREACH(blk, bq)
		pv_blk_queue_fail(bq, error);
}
