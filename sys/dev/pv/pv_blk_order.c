/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Bios that must not be overtaken, on a disk of several queues (theory statement, locking: pv_blk.h).
 *
 * A barrier is rare, so that it pays for itself: the queues only look at a flag that they read
 * anyway.  It closes the gate (PVB_GATED): from then on all bios line up in blk_waiting, in the
 * order they come.  The pump takes from this row:
 *
 *	a barrier      when every queue is idle; it goes to the first one, and the pump waits
 *	any other bio  unless a barrier is on its way; they are dealt to the queues in turn
 *
 * and opens the gate when the row is empty and the barrier is done.  A queue that has nothing in flight
 * while the gate is closed calls the pump when it is unlocked.
 *
 * One thread pumps at a time; who comes meanwhile has it go round once more.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>

#include <dev/pv/pv_blk_var.h>

/* Is nothing on its way in any queue? */
static bool
pv_blk_idle(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;
	bool idle = true;

	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		idle = idle && bq->bq_ninflight == 0 && TAILQ_EMPTY(&bq->bq_ready) &&
		    bq->bq_cur == NULL && TAILQ_EMPTY(&bq->bq_bios);
		mtx_unlock(&bq->bq_mtx);
	}
	return (idle);
}

/* Gives the first bio of the row to a queue. */
static void
pv_blk_pass(struct pv_blk *blk, struct pv_blk_queue *bq)
{
	struct bio *bp = TAILQ_FIRST(&blk->blk_waiting);

	TAILQ_REMOVE(&blk->blk_waiting, bp, bio_queue);
	PV_BLK_QUEUE_LOCK(bq);
	pv_blk_enqueue(bq, bp);
	mtx_unlock(&bq->bq_mtx);
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

void
pv_blk_pump(struct pv_blk *blk)
{
	bool moved;

	PV_BLK_LOCK(blk);
	blk->blk_pump_again = true;
	if (!blk->blk_pumping) {
		blk->blk_pumping = true;
		while (blk->blk_pump_again) {
			blk->blk_pump_again = false;
			moved = pv_blk_pump_once(blk);
			if (!moved)
				continue;
			PV_BLK_UNLOCK(blk);
			pv_blk_run(blk);
			PV_BLK_LOCK(blk);
		}
		blk->blk_pumping = false;
	}
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_line_up(struct pv_blk *blk, struct bio *bp)
{
	PV_BLK_LOCK(blk);
	if ((blk->blk_flags & (PVB_DETACHING | PVB_DEAD)) != 0) {
		PV_BLK_UNLOCK(blk);
		biofinish(bp, NULL, ENXIO);
		return;
	}
	TAILQ_INSERT_TAIL(&blk->blk_waiting, bp, bio_queue);
	PV_BLK_UNLOCK(blk);
	pv_blk_pump(blk);
}

void
pv_blk_fail_waiting(struct pv_blk *blk, int error)
{
	struct pv_blk_queue *bq;

	PV_BLK_ASSERT(blk);
	blk->blk_barrier = NULL;
	while (!TAILQ_EMPTY(&blk->blk_waiting))
		pv_blk_pass(blk, &blk->blk_queues[0]);
	if ((blk->blk_flags & PVB_GATED) != 0)
		pv_blk_set_flags(blk, 0, PVB_GATED);
	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		pv_blk_fail_queued(bq, error);
		mtx_unlock(&bq->bq_mtx);
	}
}
