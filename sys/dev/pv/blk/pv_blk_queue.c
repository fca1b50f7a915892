/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The queues of pv_blk: requests are put, completions collected, notifications
 * and interrupts coalesced (theory statement, locking: pv_blk.h).
 *
 * A queue's lock is taken here and nowhere else.  An operation locks the queue,
 * does all that there is to do in it, and unlocks it.  The lock is dropped in
 * between for biodone(9).
 *
 * A barrier is rare, so that it bears its own cost: the queues only look at a
 * flag that they read anyway.  It closes the gate (PVB_GATED): from then on all
 * bios are queued in blk_waiting, in the order they come.  The pump takes from
 * there:
 *
 *	a barrier      when every queue is idle; it goes to the first one, and
 *		       the pump stops
 *	any other bio  unless a barrier has not been completed; they are dealt
 *		       to the queues in turn
 *
 * and opens the gate when nothing is waiting and the barrier is done.  It runs
 * after an operation of a queue that has nothing in flight while the gate is
 * closed.
 *
 * One thread pumps at a time.  It goes round until nothing has moved, with
 * blk_mtx held, so that another thread that has a reason while it runs the
 * queues leaves that to it.
 *
 * When the device is notified: at once, or of several requests together
 * (pv_blk_pace_due()).  Whether waiting pays is not computed but tried.  A
 * window is PV_BLK_WINDOW completions, in one of two modes: notifications wait,
 * or they do not.  Now and then the other mode gets as much time as the faster
 * of the last two windows took, and is kept if more was completed in it.  While
 * trials fail, they become rare.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/proc.h>

#include <geom/geom_disk.h>

#include <dev/pv/blk/pv_blk_var.h>

#define	PV_BLK_GET_MAX		32	/* completions collected at once */
#define	PV_BLK_ROUNDS		32	/* of collecting and starting, by one
					 * thread at a time */
/*
 * Until what no completion goes on with is tried again, and until a thread that
 * yielded goes on.
 */
#define	PV_BLK_RETRY		(SBT_1MS / 2)
#define	PV_BLK_YIELD		(50 * SBT_1US)
/* A request that sees more resets than this is what breaks the device. */
#define	PV_BLK_REQUEUES_MAX	3

/*
 * Requests of users, in flight or about to come again, from which on
 * notifications may wait.
 */
#define	PV_BLK_DEEP		24
/* Completions of a window. */
#define	PV_BLK_WINDOW		256
/*
 * So many more have to be completed in a trial's time: not what differs from
 * window to window.
 */
#define	PV_BLK_GAIN		(PV_BLK_WINDOW / 16)
/*
 * So many fewer may be if notifications wait: they cost the host's time, which
 * nothing here sees.
 */
#define	PV_BLK_LOSS		(PV_BLK_WINDOW / 64)
/* Windows between trials at most. */
#define	PV_BLK_TRIALS_REST	85

#define	PV_BLK_QUEUE_LOCK(bq)	mtx_lock(&(bq)->bq_mtx)
#define	PV_BLK_QUEUE_UNLOCK(bq)	mtx_unlock(&(bq)->bq_mtx)

struct pv_tunable pv_blk_tunables[] = {
	PV_TUNABLE("fast_path", 1, 0, 1, PVT_RW,
	    "Debugging: 0: no bio takes the fast path"),
};

static void
pv_blk_retry(struct pv_blk_queue *bq, sbintime_t after)
{
	if (!callout_pending(&bq->bq_retry))
		(void)callout_reset_sbt(&bq->bq_retry, after, 0,
		    bq->bq_retry_func, bq, 0);
}

/* Was anything committed of which the device has not been notified? */
static inline bool
pv_blk_pace_owes(const struct pv_blk_queue *bq)
{
	return (bq->bq_pace.pp_unkicked != 0);
}

/* n requests were committed, of which the device is to be notified. */
static inline void
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
		if (pp->pp_done > PV_BLK_WINDOW + (pp->pp_waits ? -PV_BLK_LOSS :
		    PV_BLK_GAIN))
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

/*
 * Is this the end of a window, of the completions that are made or of a trial's
 * time?
 */
static __noinline void
pv_blk_pace_window(struct pv_blk_pace *pp)
{
	uint64_t now = cpu_ticks(), time;

	if (!pp->pp_trial) {
		/*
		 * One of two may have been long for another reason, such as
		 * that nobody had work.
		 */
		time = (now - pp->pp_began) * PV_BLK_WINDOW / pp->pp_done;
		pp->pp_time = MIN(time, pp->pp_last);
		pp->pp_last = time;
	} else if (now - pp->pp_began < pp->pp_time &&
	    pp->pp_done < 2 * PV_BLK_WINDOW)
		return;
	pv_blk_pace_turn(pp);
	pp->pp_began = now;
	pp->pp_done = 0;
	pp->pp_could_wait = false;
	/* What has not come again by now may not come at all. */
	pp->pp_expected -= pp->pp_expected / 8;
}

/* n requests, 1 or more, were collected. */
static inline void
pv_blk_pace_completed(struct pv_blk_queue *bq, u_int n)
{
	struct pv_blk_pace *pp = &bq->bq_pace;

	PV_BLK_QUEUE_ASSERT(bq);
	pp->pp_expected += n;
	pp->pp_done += n;
	if (pp->pp_trial || pp->pp_done >= PV_BLK_WINDOW)
		pv_blk_pace_window(pp);
}

/*
 * Is the device to be notified now?  If so, the caller does.
 *
 * most  requests that may wait for that, and 1; 1: none
 * td    the thread that submits, or NULL
 */
static inline bool
pv_blk_pace_due(struct pv_blk_queue *bq, u_int most, const struct thread *td)
{
	struct pv_blk_pace *pp = &bq->bq_pace;
	const bool other = td != NULL && td != pp->pp_td;
	u_int kicked;

	PV_BLK_QUEUE_ASSERT(bq);
	if (other)
		pp->pp_td = td;
	/* With nothing else in flight no answer would go on with it. */
	if (bq->bq_ninflight == 1) {
		pp->pp_unkicked = 0;
		return (true);
	}
	/* A device may have done what it was not notified of. */
	pp->pp_unkicked = MIN(pp->pp_unkicked, bq->bq_ninflight);
	if (pp->pp_unkicked == 0)
		return (false);
	if ((bq->bq_flags & PVB_GATED) != 0)
		most = 1;
	kicked = bq->bq_ninflight - pp->pp_unkicked;
	if (pp->pp_unkicked < MIN(kicked, most) && !other &&
	    pp->pp_expected > 0 &&
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

static inline void
pv_blk_is_put(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	rq->rq_start = ticks;
	TAILQ_INSERT_TAIL(&bq->bq_inflight, rq, rq_link);
	bq->bq_ninflight++;
}

/* n requests were put and committed. */
static inline void
pv_blk_committed(struct pv_blk_queue *bq, u_int n)
{
	pv_blk_pace_submitted(bq, n);
	bq->bq_stats.bs_requests += n;
	bq->bq_stats.bs_max_in_flight = MAX(bq->bq_stats.bs_max_in_flight,
	    bq->bq_ninflight);
}

/*
 * Puts rq.  Returns 0; ENOSPC if there is no room now; EIO if the queue is
 * broken; EFBIG if the queue can never take it.
 */
static __always_inline int
pv_blk_put(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	struct pv_blk *blk = bq->bq_blk;
	struct pvq_chain pc;
	int error, slots;

	bzero(&pc, sizeof(pc));
	pc.pc_cookie = rq;
	rq->rq_fast = false;
	rq->rq_form = 0;
	blk->blk_ops->bo_encode(blk, rq, &pc);
	slots = pvq_prepare(bq->bq_pvq, &pc);
	if (slots == 0)
		return (EFBIG);
	error = pvq_reserve(bq->bq_pvq, slots);
	if (error != 0)
		return (error);
	if (rq->rq_loaded)
		bus_dmamap_sync(pv_blk_dtag(blk, rq), rq->rq_map,
		    rq->rq_cmd == PV_BLK_WRITE ? BUS_DMASYNC_PREWRITE :
		    BUS_DMASYNC_PREREAD);
	else if (rq->rq_bounced)
		pv_dma_sync(&blk->blk_bounce_dma,
		    BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	pv_dma_sync(&blk->blk_msg_dma,
	    BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	pvq_put(bq->bq_pvq, &pc, 1);
	if (__predict_false((bq->bq_flags & PVB_HISTOGRAM) != 0))
		pv_blk_hist_put(bq, rq);
	pv_blk_is_put(bq, rq);
	return (0);
}

static __noinline void
pv_blk_start_queue(struct pv_blk_queue *bq)
{
	struct pv_blk_req *rq;
	u_int staged = 0;
	int error;

	PV_BLK_QUEUE_ASSERT(bq);
	if (bq->bq_pvq == NULL ||
	    (bq->bq_flags & (PVB_STOPPED | PVB_FROZEN | PVB_DEAD)) != 0)
		return;
	/*
	 * Bios stay bios: they are for the device after its reset, which is
	 * looked for again.
	 */
	if (pvq_broken(bq->bq_pvq)) {
		if (bq->bq_ninflight == 0)
			pv_blk_retry(bq, PV_BLK_RETRY);
		return;
	}
	do {
		rq = pv_blk_req_next(bq);
		if (rq == NULL) {
			if (bq->bq_short)
				pv_blk_retry(bq, PV_BLK_RETRY);
			bq->bq_short = false;
			break;
		}
		error = pv_blk_put(bq, rq);
		if (error == EFBIG) {
			bq->bq_stats.bs_dma_errors++;
			pv_blk_log_error(bq, rq, EFBIG);
			pv_blk_req_end(bq, rq, EIO);
			continue;
		}
		if (error != 0) {
			TAILQ_INSERT_HEAD(&bq->bq_ready, rq, rq_link);
			/*
			 * With nothing in flight no completion will try again.
			 */
			if (bq->bq_ninflight == 0)
				pv_blk_retry(bq, PV_BLK_RETRY);
			break;
		}
		staged++;
	} while (pv_blk_has_work(bq));
	if (staged == 0)
		return;
	pvq_commit(bq->bq_pvq);
	pv_blk_committed(bq, staged);
}

/* Starts what can be started; the caller kicks. */
static inline void
pv_blk_start(struct pv_blk_queue *bq)
{
	if (pv_blk_has_work(bq))
		pv_blk_start_queue(bq);
}

/*
 * Notifies the device of what was committed, unless that waits for more: never
 * for more than `most'. td: of whom a bio came, or NULL.  Returns true if the
 * device was notified.
 */
static inline bool
pv_blk_kick(struct pv_blk_queue *bq, u_int most, const struct thread *td)
{
	PV_BLK_QUEUE_ASSERT(bq);
	if (!pv_blk_pace_owes(bq) || (bq->bq_flags & PVB_STOPPED) != 0)
		return (false);
	if (!pv_blk_pace_due(bq, most, td))
		return (false);
	(void)pvq_kick(bq->bq_pvq);
	return (true);
}

static __noinline void
pv_blk_deliver_queue(struct pv_blk_queue *bq)
{
	struct pv_blk_delivery here = { .pbd_td = curthread };
	struct pv_blk_bios batch;
	struct bio *bp, *next;

	PV_BLK_QUEUE_ASSERT(bq);
	SLIST_INSERT_HEAD(&bq->bq_deliveries, &here, pbd_link);
	do {
		TAILQ_INIT(&batch);
		TAILQ_CONCAT(&batch, &bq->bq_finished, bio_queue);
		PV_BLK_QUEUE_UNLOCK(bq);
		TAILQ_FOREACH_SAFE(bp, &batch, bio_queue, next)
			biodone(bp);
		PV_BLK_QUEUE_LOCK(bq);
		pv_blk_start(bq);
		(void)pv_blk_kick(bq, bq->bq_blk->blk_batch, NULL);
	} while (!TAILQ_EMPTY(&bq->bq_finished));
	SLIST_REMOVE(&bq->bq_deliveries, &here, pv_blk_delivery, pbd_link);
}

/*
 * Does this thread deliver bios of the queue, so that it is called by the user
 * of one?
 */
static bool
pv_blk_is_delivering(const struct pv_blk_queue *bq)
{
	const struct pv_blk_delivery *pd;

	PV_BLK_QUEUE_ASSERT(bq);
	SLIST_FOREACH(pd, &bq->bq_deliveries, pbd_link)
		if (pd->pbd_td == curthread)
			return (true);
	return (false);
}

/* Ends bios on bq_finished; drops and takes the lock. */
static inline void
pv_blk_deliver(struct pv_blk_queue *bq)
{
	if (!TAILQ_EMPTY(&bq->bq_finished))
		pv_blk_deliver_queue(bq);
}

/*
 * Makes the memory of a request that took the general way the driver's again.
 */
static __noinline void
pv_blk_sync_back(struct pv_blk *blk, const struct pv_blk_req *rq)
{
	if (rq->rq_loaded)
		bus_dmamap_sync(pv_blk_dtag(blk, rq), rq->rq_map,
		    rq->rq_cmd == PV_BLK_WRITE ? BUS_DMASYNC_POSTWRITE :
		    BUS_DMASYNC_POSTREAD);
	else if (rq->rq_bounced)
		pv_dma_sync(&blk->blk_bounce_dma,
		    BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
}

/*
 * Takes rq off the list of what is in flight and makes its memory the driver's
 * again.
 */
static __always_inline void
pv_blk_take_back(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	struct pv_blk *blk = bq->bq_blk;

	TAILQ_REMOVE(&bq->bq_inflight, rq, rq_link);
	bq->bq_ninflight--;
	pv_dma_sync(&blk->blk_msg_dma,
	    BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
	if (__predict_false(!rq->rq_fast))
		pv_blk_sync_back(blk, rq);
}

/*
 * The fast path of a bio that came: all conditions are here.  Returns false,
 * and nothing has happened, if it takes the general way; else the caller
 * notifies the device.
 */
static __always_inline bool
pv_blk_fast_put(struct pv_blk_queue *bq, struct bio *bp)
{
	struct pv_blk *blk = bq->bq_blk;
	struct pv_blk_req *rq = SLIST_FIRST(&bq->bq_free);

	if (!bq->bq_fast || !pv_blk_fast_path ||
	    (bq->bq_flags & PVB_GENERAL) != 0 || pv_blk_has_work(bq) ||
	    (bp->bio_cmd != BIO_READ && bp->bio_cmd != BIO_WRITE) ||
	    (size_t)bp->bio_bcount - 1 >= blk->blk_params.bp_max_size ||
	    rq == NULL || pvq_broken(bq->bq_pvq) || pvq_room(bq->bq_pvq) <= 0 ||
	    pv_blk_load_phys(blk, rq, bp, 0, bp->bio_bcount,
	    blk->blk_params.bp_fast_segs) != 0)
		return (false);
	SLIST_REMOVE_HEAD(&bq->bq_free, rq_next);
	rq->rq_bio = bp;
	rq->rq_cmd = bp->bio_cmd == BIO_READ ? PV_BLK_READ : PV_BLK_WRITE;
	rq->rq_offset = bp->bio_offset;
	rq->rq_length = bp->bio_bcount;
	rq->rq_fast = true;
	blk->blk_ops->bo_post(blk, rq, bq->bq_pvq);
	bq->bq_stats.bs_bios++;
	bq->bq_stats.bs_fast++;
	pv_blk_is_put(bq, rq);
	pv_blk_committed(bq, 1);
	return (true);
}

/* What took the fast path has ended without an error. */
static __always_inline void
pv_blk_fast_end(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	struct bio *bp = rq->rq_bio;

	rq->rq_bio = NULL;
	rq->rq_fast = false;
	SLIST_INSERT_HEAD(&bq->bq_free, rq, rq_next);
	bp->bio_resid = 0;
	TAILQ_INSERT_TAIL(&bq->bq_finished, bp, bio_queue);
}

/* The general way of what has completed, with the result bo_status returned. */
static __noinline void
pv_blk_complete_any(struct pv_blk_queue *bq, struct pv_blk_req *rq, int error,
    uintmax_t seen)
{
	struct pv_blk *blk = bq->bq_blk;

	if (error == -1) {
		bq->bq_stats.bs_protocol_errors++;
		pvq_break(bq->bq_pvq, PVQ_FAULT_OWNER, seen);
		error = EIO;
	} else if (error != 0 && rq->rq_cmd == PV_BLK_DELETE &&
	    rq->rq_nmore != 0) {
		pv_blk_req_singly(bq, rq);
		return;
	} else if (error == EOPNOTSUPP)
		bq->bq_stats.bs_unsupported++;
	else if (error != 0)
		bq->bq_stats.bs_io_errors++;
	if (error != 0)
		pv_blk_log_error(bq, rq, error);
	else if (rq->rq_copied && rq->rq_cmd == PV_BLK_READ)
		pv_blk_req_copy_back(blk, rq);
	pv_blk_req_end(bq, rq, error);
}

static __always_inline void
pv_blk_complete(struct pv_blk_queue *bq, const struct pvq_done *pd)
{
	struct pv_blk *blk = bq->bq_blk;
	struct pv_blk_req *rq = pd->pd_cookie;
	uintmax_t seen = 0;
	int error;

	if (__predict_false((bq->bq_flags & PVB_HISTOGRAM) != 0))
		pv_blk_hist_got(bq, rq);
	pv_blk_take_back(bq, rq);
	error = blk->blk_ops->bo_status(blk, rq, pd, &seen);
	if (__predict_true(error == 0 && rq->rq_fast))
		pv_blk_fast_end(bq, rq);
	else
		pv_blk_complete_any(bq, rq, error, seen);
}

/* Collects what the queue has, without delivering bios. */
static __always_inline void
pv_blk_collect(struct pv_blk_queue *bq)
{
	struct pvq_done done[PV_BLK_GET_MAX];
	int i, n;

	PV_BLK_QUEUE_ASSERT(bq);
	do {
		n = pvq_get(bq->bq_pvq, done, nitems(done));
		if (n == 0)
			break;
		pv_blk_pace_completed(bq, n);
		for (i = 0; i < n; i++)
			pv_blk_complete(bq, &done[i]);
	} while (n == nitems(done));
}

/*
 * Collects completions until none is left and an interrupt is armed; drops and
 * takes the lock.  A device that has the next ones ready each time must not
 * keep the thread, which other queues and devices, or the one that submits, may
 * need: it goes on a little later.
 *
 * Returns true if one bio is left to the caller (pv_blk_is_last()).
 */
static __always_inline bool
pv_blk_process(struct pv_blk_queue *bq)
{
	u_int rounds = 0;
	bool last;

	PV_BLK_QUEUE_ASSERT(bq);
	do {
		if (rounds++ == PV_BLK_ROUNDS) {
			bq->bq_stats.bs_yields++;
			pv_blk_retry(bq, PV_BLK_YIELD);
			return (false);
		}
		if (bq->bq_pvq == NULL || (bq->bq_flags & PVB_STOPPED) != 0)
			return (false);
		pvq_intr_taken(bq->bq_pvq);
		pv_blk_collect(bq);
		if (pvq_broken(bq->bq_pvq)) {
			pv_blk_deliver(bq);
			return (false);
		}
		last = pv_blk_is_last(bq);
		if (!last) {
			/*
			 * The device gets new work before completions are
			 * delivered.
			 */
			pv_blk_start(bq);
			(void)pv_blk_kick(bq, bq->bq_blk->blk_batch, NULL);
			pv_blk_deliver(bq);
			if ((bq->bq_flags & PVB_STOPPED) != 0)
				return (false);
		}
	} while (pvq_intr_enable(bq->bq_pvq, 1));
	return (last);
}

/* The same where it is not what most is done in. */
static __noinline bool
pv_blk_process_called(struct pv_blk_queue *bq)
{
	return (pv_blk_process(bq));
}

/*
 * Collects, starts and delivers until nothing is left and an interrupt is
 * armed.  Returns true if the queue is idle while something waits for that.
 */
static __always_inline bool
pv_blk_queue_run(struct pv_blk_queue *bq, bool intr)
{
	struct bio *bp = NULL;
	bool idle;

	PV_BLK_QUEUE_LOCK(bq);
	if (intr ? pv_blk_process(bq) : pv_blk_process_called(bq)) {
		bp = TAILQ_FIRST(&bq->bq_finished);
		TAILQ_INIT(&bq->bq_finished);
	} else {
		/*
		 * What ended without the device, in a queue that is stopped
		 * too.
		 */
		pv_blk_deliver(bq);
	}
	idle = pv_blk_is_awaited_idle(bq);
	PV_BLK_QUEUE_UNLOCK(bq);
	if (bp != NULL)
		biodone(bp);
	return (idle);
}

/*
 * The queue of this CPU, locked.  How many there are changes while they are all
 * locked, so that one which is in use now stays so.
 */
static struct pv_blk_queue *
pv_blk_select(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;

	for (;;) {
		bq = &blk->blk_queues[curcpu % blk->blk_nactive];
		PV_BLK_QUEUE_LOCK(bq);
		if (__predict_true(bq->bq_index < blk->blk_nactive))
			return (bq);
		PV_BLK_QUEUE_UNLOCK(bq);
	}
}

/* Queues bp; if nothing is before it, it is the one to cut at once. */
static inline void
pv_blk_enqueue(struct pv_blk_queue *bq, struct bio *bp)
{
	PV_BLK_QUEUE_ASSERT(bq);
	bq->bq_stats.bs_bios++;
	if (TAILQ_EMPTY(&bq->bq_bios) && bq->bq_cur == NULL) {
		bq->bq_cur = bp;
		bq->bq_cur_off = 0;
	} else
		TAILQ_INSERT_TAIL(&bq->bq_bios, bp, bio_queue);
}

static void
pv_blk_queue_append(struct pv_blk_queue *bq, struct bio *bp)
{
	PV_BLK_QUEUE_LOCK(bq);
	pv_blk_enqueue(bq, bp);
	PV_BLK_QUEUE_UNLOCK(bq);
}

static bool
pv_blk_queue_delivers(struct pv_blk_queue *bq)
{
	bool delivers;

	PV_BLK_QUEUE_LOCK(bq);
	delivers = !SLIST_EMPTY(&bq->bq_deliveries);
	PV_BLK_QUEUE_UNLOCK(bq);
	return (delivers);
}

static bool
pv_blk_queue_idle(struct pv_blk_queue *bq)
{
	bool idle;

	PV_BLK_QUEUE_LOCK(bq);
	idle = bq->bq_ninflight == 0 && !pv_blk_has_work(bq);
	PV_BLK_QUEUE_UNLOCK(bq);
	return (idle);
}

u_int
pv_blk_queue_in_flight(struct pv_blk_queue *bq, bool *broken)
{
	u_int n;

	PV_BLK_QUEUE_LOCK(bq);
	n = bq->bq_ninflight;
	if (bq->bq_pvq != NULL && pvq_broken(bq->bq_pvq))
		*broken = true;
	PV_BLK_QUEUE_UNLOCK(bq);
	return (n);
}

bool
pv_blk_is_late(struct pv_blk *blk)
{
	const u_int secs = blk->blk_timeout;
	struct pv_blk_queue *bq;
	struct pv_blk_req *rq;
	bool late = false;

	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		/* The first one was put first. */
		rq = TAILQ_FIRST(&bq->bq_inflight);
		if (secs != 0 && rq != NULL && pv_blk_req_age(rq) >= secs)
			late = true;
		PV_BLK_QUEUE_UNLOCK(bq);
	}
	return (late);
}

void
pv_blk_queue_put_polled(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	PV_BLK_QUEUE_LOCK(bq);
	TAILQ_INSERT_TAIL(&bq->bq_ready, rq, rq_link);
	pv_blk_start_queue(bq);
	(void)pv_blk_kick(bq, 1, NULL);
	PV_BLK_QUEUE_UNLOCK(bq);
}

bool
pv_blk_queue_check(struct pv_blk_queue *bq)
{
	bool stuck = false;

	PV_BLK_QUEUE_LOCK(bq);
	/*
	 * In case that the device answers none of those that this would wait
	 * for.
	 */
	(void)pv_blk_kick(bq, 1, NULL);
	if ((bq->bq_flags & (PVB_STOPPED | PVB_FROZEN)) == 0 && !bq->bq_stuck &&
	    pv_blk_log_late(bq)) {
		stuck = bq->bq_stuck = true;
		/* With the lock: it is not reset meanwhile. */
		pv_dev_need_reset(&bq->bq_blk->blk_pvdev, bq->bq_index,
		    ETIMEDOUT);
	}
	PV_BLK_QUEUE_UNLOCK(bq);
	return (stuck);
}

static void
pv_blk_queue_fail(struct pv_blk_queue *bq, int error)
{
	PV_BLK_QUEUE_LOCK(bq);
	pv_blk_req_fail(bq, error);
	PV_BLK_QUEUE_UNLOCK(bq);
}

void
pv_blk_queue_drain(struct pv_blk_queue *bq, int error)
{
	struct pv_blk_reqs back = TAILQ_HEAD_INITIALIZER(back);
	struct pv_blk_req *rq;
	bool blame = error == ETIMEDOUT, again = error == 0 || blame;

	PV_BLK_QUEUE_LOCK(bq);
	KASSERT((bq->bq_flags & PVB_STOPPED) != 0,
	    ("%s: the device is live", __func__));
	bq->bq_stuck = false;
	while (bq->bq_pvq != NULL && (rq = pvq_drain(bq->bq_pvq)) != NULL) {
		pv_blk_take_back(bq, rq);
		if (blame && rq->rq_requeues++ >= PV_BLK_REQUEUES_MAX) {
			pv_blk_log_error(bq, rq, EIO);
			pv_blk_req_end(bq, rq, EIO);
		} else if (!again)
			pv_blk_req_end(bq, rq, error);
		else {
			bq->bq_stats.bs_requeued++;
			TAILQ_INSERT_TAIL(&back, rq, rq_link);
		}
	}
	/*
	 * What is ready the device has not seen: it stays, after what was put
	 * before it.
	 */
	TAILQ_CONCAT(&back, &bq->bq_ready, rq_link);
	TAILQ_CONCAT(&bq->bq_ready, &back, rq_link);
	/*
	 * Its segments are others' now, and the memory that a peer sees goes
	 * with it.
	 */
	TAILQ_FOREACH(rq, &bq->bq_ready, rq_link)
		pv_blk_req_unready(bq, rq);
	PV_BLK_QUEUE_UNLOCK(bq);
}

/* With the queue's lock: what concerns this queue. */
static void
pv_blk_queue_set_flags(struct pv_blk_queue *bq)
{
	PV_BLK_QUEUE_ASSERT(bq);
	bq->bq_flags = bq->bq_blk->blk_flags |
	    (bq->bq_stopped ? PVB_STOPPED : 0);
}

void
pv_blk_queue_set_stopped(struct pv_blk_queue *bq, bool stopped)
{
	PV_BLK_ASSERT(bq->bq_blk);
	PV_BLK_QUEUE_LOCK(bq);
	bq->bq_stopped = stopped;
	pv_blk_queue_set_flags(bq);
	PV_BLK_QUEUE_UNLOCK(bq);
}

void
pv_blk_set_flags(struct pv_blk *blk, u_int set, u_int clear)
{
	struct pv_blk_queue *bq;

	PV_BLK_ASSERT(blk);
	blk->blk_flags = (blk->blk_flags | set) & ~clear;
	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		bq->bq_stopped = bq->bq_stopped && (clear & PVB_STOPPED) == 0;
		pv_blk_queue_set_flags(bq);
		PV_BLK_QUEUE_UNLOCK(bq);
	}
}

/* May it not be overtaken by others? */
static inline bool
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
			pv_blk_pass(blk, &blk->blk_queues[blk->blk_turn++ %
			    blk->blk_nactive]);
			moved = true;
			continue;
		}
		if ((blk->blk_flags & PVB_GATED) == 0) {
			pv_blk_set_flags(blk, PVB_GATED, 0);
			/*
			 * What the barrier waits for must not wait for a batch.
			 */
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

/*
 * Runs all queues.  Returns true if one is idle while something waits for that.
 */
static __noinline bool
pv_blk_run_queues(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;
	bool idle = false;

	PV_BLK_FOREACH(blk, bq)
		idle |= pv_blk_queue_run(bq, false);
	return (idle);
}

/* A queue is idle while something waits for that, or a bio was queued. */
static __noinline void
pv_blk_pump(struct pv_blk *blk)
{
	PV_BLK_LOCK(blk);
	wakeup(&blk->blk_queues);
	if (!blk->blk_pumping) {
		blk->blk_pumping = true;
		while (pv_blk_pump_once(blk)) {
			PV_BLK_UNLOCK(blk);
			(void)pv_blk_run_queues(blk);
			PV_BLK_LOCK(blk);
		}
		blk->blk_pumping = false;
		wakeup(&blk->blk_queues);
	}
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_intr(void *arg)
{
	struct pv_blk_queue *bq = arg;

	if (__predict_false(pv_blk_queue_run(bq, true)))
		pv_blk_pump(bq->bq_blk);
}

void
pv_blk_run(struct pv_blk *blk)
{
	if (pv_blk_run_queues(blk))
		pv_blk_pump(blk);
}

/*
 * pv_blk_pump() by a user's thread that blk_following counts; the disk may be
 * gone when it returns.
 */
static __noinline void
pv_blk_pump_counted(struct pv_blk *blk)
{
	pv_blk_pump(blk);
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
	pv_blk_pump_counted(blk);
}

void
pv_blk_submit(struct pv_blk *blk, struct bio *bp)
{
	const int cmd = bp->bio_cmd;	/* the bio may end within this */
	struct pv_blk_queue *bq;
	bool fast, idle;

	if (__predict_false(pv_blk_is_barrier(bp))) {
		pv_blk_wait(blk, bp);
		return;
	}
	bq = pv_blk_select(blk);
	if (__predict_false((bq->bq_flags & (PVB_DETACHING | PVB_DEAD |
	    PVB_GATED)) != 0)) {
		PV_BLK_QUEUE_UNLOCK(bq);
		pv_blk_wait(blk, bp);
		return;
	}
	fast = pv_blk_fast_put(bq, bp);
	if (!fast)
		pv_blk_enqueue(bq, bp);
	/*
	 * Within a delivery, what the users submit is started as one batch when
	 * it ends, and the device notified.
	 */
	if (!pv_blk_is_delivering(bq)) {
		if (!fast)
			pv_blk_start_queue(bq);
		/*
		 * If completions are there by now, as often while much is in
		 * flight, no interrupt is needed for them.  A flush is always
		 * waited for.
		 */
		if (pv_blk_kick(bq, cmd == BIO_FLUSH ? 1 : blk->blk_batch,
		    curthread) && bq->bq_ninflight > 1 &&
		    pvq_intr_enable(bq->bq_pvq, 1))
			(void)pv_blk_process_called(bq);
		pv_blk_deliver(bq);
	}
	idle = pv_blk_is_awaited_idle(bq);
	/* While the lock shows that this thread is here. */
	if (__predict_false(idle))
		atomic_add_int(&blk->blk_following, 1);
	PV_BLK_QUEUE_UNLOCK(bq);
	if (__predict_false(idle))
		pv_blk_pump_counted(blk);
}

/* Does the disk have this command?  0, EROFS or EOPNOTSUPP. */
static int
pv_blk_can(const struct pv_blk *blk, const struct bio *bp)
{
	const struct pv_blk_params *params = &blk->blk_params;
	bool can = false;

	switch (bp->bio_cmd) {
	case BIO_READ:
		return (0);
	case BIO_WRITE:
	case BIO_DELETE:
		if ((params->bp_flags & PV_BLK_READONLY) != 0)
			return (EROFS);
		can = bp->bio_cmd == BIO_WRITE || params->bp_delete_size != 0;
		break;
	case BIO_FLUSH:
		can = (params->bp_flags & PV_BLK_CACHED) != 0;
		break;
	default:
		break;
	}
	return (can ? 0 : EOPNOTSUPP);
}

void
pv_blk_strategy(struct bio *bp)
{
	struct pv_blk *blk = bp->bio_disk->d_drv1;
	int error;

	error = pv_blk_can(blk, bp);
	if (error != 0) {
		biofinish(bp, NULL, error);
		return;
	}
	pv_blk_bio_init(bp);
	pv_blk_submit(blk, bp);
}

void
pv_blk_submit_quiet(struct pv_blk *blk)
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
pv_blk_fail(struct pv_blk *blk, int error)
{
	struct pv_blk_queue *bq;

	PV_BLK_ASSERT(blk);
	blk->blk_barrier = NULL;
	while (!TAILQ_EMPTY(&blk->blk_waiting))
		pv_blk_pass(blk, &blk->blk_queues[0]);
	PV_BLK_FOREACH(blk, bq)
		pv_blk_queue_fail(bq, error);
}

/*
 * Bios that wait in a queue that is not used any more go to another.  One that
 * is partly cut comes first there, and goes on where it was.
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
 * Gives each of n queues the requests that belong to it.  As all of one home
 * are in one queue, loads of a tag never run at the same time.
 */
static void
pv_blk_deal(struct pv_blk *blk, u_int n)
{
	struct pv_blk_spares spare = SLIST_HEAD_INITIALIZER(spare);
	struct pv_blk_reqs ready = TAILQ_HEAD_INITIALIZER(ready);
	struct pv_blk_queue *bq;
	struct pv_blk_req *rq;

	PV_BLK_FOREACH(blk, bq) {
		SLIST_CONCAT(&spare, &bq->bq_free, pv_blk_req, rq_next);
		TAILQ_CONCAT(&ready, &bq->bq_ready, rq_link);
		/* The requests that they waited for may go to other queues. */
		pv_blk_req_unhold(bq);
		bq->bq_ndeletes = 0;
		if (bq->bq_index >= n)
			pv_blk_move_bios(bq,
			    &blk->blk_queues[bq->bq_index % n]);
	}
	while ((rq = SLIST_FIRST(&spare)) != NULL) {
		SLIST_REMOVE_HEAD(&spare, rq_next);
		SLIST_INSERT_HEAD(&blk->blk_queues[rq->rq_home % n].bq_free, rq,
		    rq_next);
	}
	while ((rq = TAILQ_FIRST(&ready)) != NULL) {
		TAILQ_REMOVE(&ready, rq, rq_link);
		bq = &blk->blk_queues[rq->rq_home % n];
		TAILQ_INSERT_TAIL(&bq->bq_ready, rq, rq_link);
		bq->bq_ndeletes += rq->rq_cmd == PV_BLK_DELETE;
	}
}

void
pv_blk_queues_use(struct pv_blk *blk, struct pvq *const *qs, u_int n)
{
	struct pv_blk_queue *bq;

	KASSERT(n <= blk->blk_params.bp_nqueues,
	    ("%s: %u queues", __func__, n));
	PV_BLK_LOCK(blk);
	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		KASSERT((bq->bq_flags & PVB_STOPPED) != 0 &&
		    bq->bq_ninflight == 0,
		    ("%s: queue %u is in use", __func__, bq->bq_index));
		bq->bq_pvq = bq->bq_index < n ? qs[bq->bq_index] : NULL;
		bq->bq_fast = bq->bq_pvq != NULL &&
		    blk->blk_params.bp_fast_segs != 0;
	}
	if (n != 0) {
		pv_blk_deal(blk, n);
		blk->blk_nactive = n;
	}
	PV_BLK_FOREACH(blk, bq)
		PV_BLK_QUEUE_UNLOCK(bq);
	PV_BLK_UNLOCK(blk);
}

static void
pv_blk_queue_init(struct pv_blk *blk, struct pv_blk_queue *bq,
    callout_func_t *retry)
{
	bq->bq_blk = blk;
	bq->bq_index = bq - blk->blk_queues;
	bq->bq_flags = blk->blk_flags;
	snprintf(bq->bq_name, sizeof(bq->bq_name),
	    "%s.%u", device_get_nameunit(blk->blk_dev), bq->bq_index);
	/* pv_blk_queues_use() locks all of them. */
	mtx_init(&bq->bq_mtx, bq->bq_name, "pv_blk queue", MTX_DEF | MTX_DUPOK);
	TAILQ_INIT(&bq->bq_bios);
	TAILQ_INIT(&bq->bq_finished);
	SLIST_INIT(&bq->bq_deliveries);
	TAILQ_INIT(&bq->bq_deletes);
	SLIST_INIT(&bq->bq_free);
	TAILQ_INIT(&bq->bq_ready);
	TAILQ_INIT(&bq->bq_inflight);
	callout_init(&bq->bq_retry, 1);
	bq->bq_retry_func = retry;
}

void
pv_blk_queues_init(struct pv_blk *blk, callout_func_t *retry)
{
	struct pv_blk_queue *bq;

	blk->blk_nactive = 1;
	PV_BLK_FOREACH(blk, bq)
		pv_blk_queue_init(blk, bq, retry);
}

void
pv_blk_queues_fini(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;

	PV_BLK_FOREACH(blk, bq) {
		KASSERT(bq->bq_ninflight == 0 && TAILQ_EMPTY(&bq->bq_ready),
		    ("%s: %u requests left", __func__, bq->bq_ninflight));
		mtx_destroy(&bq->bq_mtx);
	}
}
