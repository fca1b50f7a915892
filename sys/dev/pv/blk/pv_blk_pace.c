/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * When the device of a queue is notified: at once, or of several requests together (theory statement:
 * pv_blk.h).  Nothing here puts, collects or notifies; the queue's lock is held.
 *
 * Whether waiting pays is not computed but tried.  A window is PV_BLK_WINDOW completions, in one of two
 * modes: notifications wait, or they do not.  Now and then the other mode gets as much time as the
 * faster of the last two windows took, and is kept if more was completed in it.  While trials fail,
 * they become rare.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/proc.h>

#include <dev/pv/blk/pv_blk_var.h>

/* Requests of users, in flight or about to come again, from which on notifications may wait. */
#define	PV_BLK_DEEP		24
/* Completions of a window. */
#define	PV_BLK_WINDOW		256
/* So many more have to be completed in a trial's time: not what differs from window to window. */
#define	PV_BLK_GAIN		(PV_BLK_WINDOW / 16)
/* So many fewer may be if notifications wait: they cost the host's time, which nothing here sees. */
#define	PV_BLK_LOSS		(PV_BLK_WINDOW / 64)
/* Windows between trials at most. */
#define	PV_BLK_TRIALS_REST	85

void
pv_blk_pace_submitted(struct pv_blk_queue *bq, u_int n)
{
	struct pv_blk_pace *pp = &bq->bq_pace;

	PV_BLK_QUEUE_ASSERT(bq);
	pp->pp_unkicked += n;
	pp->pp_expected -= MIN(pp->pp_expected, n);
}

/* Ends a trial, or begins one if it is time for that. */
static void
pv_blk_pace_turn(struct pv_blk_pace *pp)
{
	if (pp->pp_trial) {
		pp->pp_trial = false;
		pp->pp_rest = 4 * pp->pp_rest + 1;
		if (pp->pp_done > PV_BLK_WINDOW + (pp->pp_waits ? -PV_BLK_LOSS : PV_BLK_GAIN))
			pp->pp_rest = 1;
		else
			pp->pp_waits = !pp->pp_waits;
		pp->pp_rest = MIN(pp->pp_rest, PV_BLK_TRIALS_REST);
		pp->pp_windows = pp->pp_rest;
	} else if (pp->pp_could_wait && pp->pp_windows-- == 0) {
		pp->pp_trial = true;
		pp->pp_waits = !pp->pp_waits;
	}
}

void
pv_blk_pace_completed(struct pv_blk_queue *bq, u_int n)
{
	struct pv_blk_pace *pp = &bq->bq_pace;
	uint64_t now, time;

	PV_BLK_QUEUE_ASSERT(bq);
	pp->pp_expected += n;
	pp->pp_done += n;
	if (!pp->pp_trial && pp->pp_done < PV_BLK_WINDOW)
		return;
	now = cpu_ticks();
	if (!pp->pp_trial) {
		/* One of two may have been long for another reason, such as that nobody had work. */
		time = (now - pp->pp_began) * PV_BLK_WINDOW / pp->pp_done;
		pp->pp_time = MIN(time, pp->pp_last);
		pp->pp_last = time;
	} else if (now - pp->pp_began < pp->pp_time && pp->pp_done < 2 * PV_BLK_WINDOW)
		return;
	pv_blk_pace_turn(pp);
	pp->pp_began = now;
	pp->pp_done = 0;
	pp->pp_could_wait = false;
	/* What has not come again by now may not come at all. */
	pp->pp_expected -= pp->pp_expected / 8;
}

bool
pv_blk_pace_due(struct pv_blk_queue *bq, u_int most, const struct thread *td)
{
	struct pv_blk_pace *pp = &bq->bq_pace;
	const bool other = td != NULL && td != pp->pp_td;
	u_int kicked;

	PV_BLK_QUEUE_ASSERT(bq);
	if (other)
		pp->pp_td = td;
	/* A device may have done what it was not notified of. */
	pp->pp_unkicked = MIN(pp->pp_unkicked, bq->bq_ninflight);
	if (pp->pp_unkicked == 0)
		return (false);
	kicked = bq->bq_ninflight - pp->pp_unkicked;
	if (pp->pp_unkicked < MIN(kicked, most) && !other && pp->pp_expected > 0 &&
	    bq->bq_ninflight + pp->pp_expected >= PV_BLK_DEEP) {
		pp->pp_could_wait = true;
		if (pp->pp_waits) {
			bq->bq_stats.bs_deferred_kicks++;
			return (false);
		}
	}
	pp->pp_unkicked = 0;
	return (true);
}
