/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What a queue of pv_blk learns of its users and its device: how deep it is, how fast completions come,
 * who waits.  From this follows how much is coalesced (theory statement: pv_blk.h).  Nothing here puts,
 * collects or notifies; the queue's lock is held.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>
#include <sys/proc.h>

#include <dev/pv/blk/pv_blk_var.h>

/* The completions of a batch are to come within one part of so many of a second. */
#define	PV_BLK_BATCH_HZ		4096
/* A thread that submitted one of the last so many that are in flight does not wait for each. */
#define	PV_BLK_LOOK_BACK	4
/* One that so often submitted a single bio between two interrupts waits for each. */
#define	PV_BLK_SINGLES		4

/* The longest distance of completions that one may wait for, in units of cpu_ticks(). */
static uint64_t
pv_blk_pace_limit(void)
{
	return (ummax(1, cpu_tickrate() / PV_BLK_BATCH_HZ));
}

void
pv_blk_pace_init(struct pv_blk_queue *bq)
{
	bq->bq_gap = pv_blk_pace_limit();
}

u_int
pv_blk_batch(const struct pv_blk_queue *bq)
{
	u_int n;

	if (bq->bq_depth < PV_BLK_DEEP || (bq->bq_flags & PVB_GATED) != 0 || bq->bq_nawaited != 0)
		return (1);
	n = MIN(bq->bq_depth, bq->bq_blk->blk_batch);
	return (MAX(1, MIN(n, bq->bq_near)));
}

/*
 * How deep is the queue?  Not just as deep as what is in flight: a fast device has answered before a
 * user with many requests has submitted all of them again.  So what was given back and not yet followed
 * by another bio counts too.  The depth is the most of the last that many completions, and goes
 * down by a quarter with each such round that had less, as does what was given back: it may have
 * been the end.
 */
void
pv_blk_note_depth(struct pv_blk_queue *bq, u_int completed)
{
	PV_BLK_QUEUE_ASSERT(bq);
	bq->bq_peak = MAX(bq->bq_peak, bq->bq_ninflight + bq->bq_backlog);
	bq->bq_depth = MAX(bq->bq_depth, bq->bq_peak);
	bq->bq_round += completed;
	if (bq->bq_round < bq->bq_depth)
		return;
	bq->bq_depth = MAX(bq->bq_peak, bq->bq_depth - bq->bq_depth / 4);
	bq->bq_backlog = bq->bq_backlog * 3 / 4;
	bq->bq_peak = 0;
	bq->bq_round = 0;
}

/*
 * How many completions come within the time that one may wait for others?  Computed from the average
 * distance of the last ones, in which one pause counts for no more than that time, and for no more
 * than four times the average: the next ones come as closely as those before it.
 */
void
pv_blk_note_pace(struct pv_blk_queue *bq, u_int completed)
{
	uint64_t limit = pv_blk_pace_limit(), now = cpu_ticks(), gap;

	gap = MIN(MIN(limit, 4 * bq->bq_gap), (now - bq->bq_pace_at) / completed);
	bq->bq_pace_at = now;
	bq->bq_gap = MAX(1, (3 * bq->bq_gap + gap) / 4);
	bq->bq_near = limit / bq->bq_gap;
}

void
pv_blk_end_run(struct pv_blk_queue *bq)
{
	if (bq->bq_run > 1)
		bq->bq_singles = 0;
	else if (bq->bq_run == 1 && bq->bq_singles < PV_BLK_SINGLES)
		bq->bq_singles++;
	bq->bq_run = 0;
}

/* Did this thread submit one of the last requests in flight? */
static bool
pv_blk_has_more(const struct pv_blk_queue *bq)
{
	const struct pv_blk_req *rq = TAILQ_LAST(&bq->bq_inflight, pv_blk_reqs);
	u_int i;

	for (i = 0; rq != NULL && i < PV_BLK_LOOK_BACK; i++) {
		if (rq->rq_td == curthread)
			return (true);
		rq = TAILQ_PREV(rq, pv_blk_reqs, rq_link);
	}
	return (false);
}

/*
 * Is this thread going to wait for what it submits now?  One that comes between others is, if
 * nothing of it is in flight.  One that submits alone may be collecting a batch that a fast device
 * has answered as a whole; it is, if it never submits more than one between two interrupts.  A flush
 * is always waited for.
 */
bool
pv_blk_will_wait(struct pv_blk_queue *bq, const struct bio *bp)
{
	PV_BLK_QUEUE_ASSERT(bq);
	if (bq->bq_depth < PV_BLK_DEEP)
		return (false);
	if (bp->bio_cmd == BIO_FLUSH)
		return (true);
	if (bq->bq_submit_td != curthread) {
		bq->bq_submit_td = curthread;
		bq->bq_run = 1;
		bq->bq_singles = 0;
		return (!pv_blk_has_more(bq));
	}
	return (++bq->bq_run == 1 && bq->bq_singles == PV_BLK_SINGLES);
}
