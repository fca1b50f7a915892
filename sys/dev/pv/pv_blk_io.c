/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The queues of pv_blk: what is put, what comes back, and when either side is told (theory statement,
 * locking: pv_blk.h).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/proc.h>

#include <geom/geom_disk.h>

#include <dev/pv/pv_blk_var.h>

#define	PV_BLK_GET_MAX	32	/* completions collected at once */

const char *const pv_blk_cmd_names[PV_BLK_NCMDS] = {
	[PV_BLK_READ] = "read",
	[PV_BLK_WRITE] = "write",
	[PV_BLK_FLUSH] = "flush",
	[PV_BLK_DELETE] = "delete",
	[PV_BLK_IDENT] = "ident",
};

void
pv_blk_arm_tick(struct pv_blk_queue *bq, bool soon)
{
	if (callout_pending(&bq->bq_tick) && (bq->bq_tick_soon || !soon))
		return;
	bq->bq_tick_soon = soon;
	(void)callout_reset_sbt(&bq->bq_tick, soon ? PV_BLK_TICK_SOON : PV_BLK_TICK, 0,
	    pv_blk_tick, bq, 0);
}

void
pv_blk_arm_watchdog(struct pv_blk *blk)
{
	(void)callout_reset_sbt(&blk->blk_watchdog, SBT_1S, 0, pv_blk_watchdog, blk, C_PREL(2));
}

bool
pv_blk_may_log(struct pv_blk *blk)
{
	bool may;

	mtx_lock(&blk->blk_log_mtx);
	if (ticks - blk->blk_log_start >= PV_BLK_LOG_SECS * hz) {
		blk->blk_log_start = ticks;
		blk->blk_log_count = 0;
	}
	may = blk->blk_log_count++ < PV_BLK_LOG_MAX;
	if (!may)
		blk->blk_stats.bs_unlogged++;
	mtx_unlock(&blk->blk_log_mtx);
	return (may);
}

/* What of the disk a queue was waited for, or asks for. */
static void
pv_blk_see_to(struct pv_blk *blk, u_int todo)
{
	PV_BLK_LOCK(blk);
	if ((todo & PVBQ_RESET) != 0)
		pv_blk_reset_locked(blk, EIO);
	wakeup(&blk->blk_queues);
	PV_BLK_UNLOCK(blk);
	pv_blk_pump(blk);
}

void
pv_blk_queue_unlock(struct pv_blk_queue *bq)
{
	u_int todo;

	if ((bq->bq_flags & (PVB_GATED | PVB_FROZEN | PVB_DETACHING)) != 0 &&
	    bq->bq_ninflight == 0)
		bq->bq_todo |= PVBQ_IDLE;
	todo = bq->bq_todo;
	bq->bq_todo = 0;
	mtx_unlock(&bq->bq_mtx);
	if (__predict_false(todo != 0))
		pv_blk_see_to(bq->bq_blk, todo);
}

static void
pv_blk_log_error(struct pv_blk *blk, const struct pv_blk_req *rq, int error)
{
	if (!pv_blk_may_log(blk))
		return;
	if (rq->rq_cmd == PV_BLK_FLUSH)
		device_printf(blk->blk_dev, "flush failed, error %d: writes since the last flush may "
		    "be lost\n", error);
	else
		device_printf(blk->blk_dev, "%s failed, error %d: sector %jd, %zu bytes\n",
		    pv_blk_cmd_names[rq->rq_cmd], error, (intmax_t)(rq->rq_offset / DEV_BSIZE),
		    rq->rq_length);
}

/*
 * Puts rq.  Returns 0; ENOSPC or ENOMEM if there is no room now; EIO if the queue is broken; EFBIG if
 * the queue can never take it.
 */
int
pv_blk_put(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	struct pv_blk *blk = bq->bq_blk;
	struct pvq_chain pc;
	int error, slots;

	bzero(&pc, sizeof(pc));
	pc.pc_cookie = rq;
	blk->blk_ops->bo_encode(blk, rq, &pc);
	slots = pvq_prepare(bq->bq_pvq, &pc);
	if (slots == 0)
		return (EFBIG);
	error = pvq_reserve(bq->bq_pvq, slots);
	if (error == 0)
		error = pvq_share(bq->bq_pvq, &pc);
	if (error != 0)
		return (error);
	if (rq->rq_loaded)
		bus_dmamap_sync(pv_blk_dtag(blk, rq), rq->rq_map, rq->rq_cmd == PV_BLK_WRITE ?
		    BUS_DMASYNC_PREWRITE : BUS_DMASYNC_PREREAD);
	else if (rq->rq_bounced)
		bus_dmamap_sync(blk->blk_btag, blk->blk_bmap,
		    BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	bus_dmamap_sync(blk->blk_mtag, blk->blk_mmap, BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	pvq_put(bq->bq_pvq, &pc, 1);
	rq->rq_start = ticks;
	rq->rq_td = curthread;
	rq->rq_awaited = bq->bq_awaited;
	bq->bq_nawaited += rq->rq_awaited;
	TAILQ_INSERT_TAIL(&bq->bq_inflight, rq, rq_link);
	bq->bq_ninflight++;
	return (0);
}

void
pv_blk_start_queue(struct pv_blk_queue *bq)
{
	struct pv_blk_req *rq;
	u_int staged = 0;
	int error;

	PV_BLK_QUEUE_ASSERT(bq);
	if (bq->bq_pvq == NULL ||
	    (bq->bq_flags & (PVB_STOPPED | PVB_RESETTING | PVB_FROZEN | PVB_DEAD)) != 0)
		return;
	while (pv_blk_has_work(bq) && (rq = pv_blk_next(bq)) != NULL) {
		error = pv_blk_put(bq, rq);
		if (error == EFBIG) {
			pv_blk_end(bq, rq, EIO);
			continue;
		}
		if (error != 0) {
			TAILQ_INSERT_HEAD(&bq->bq_ready, rq, rq_link);
			/* With nothing in flight no completion will try again. */
			if (bq->bq_ninflight == 0)
				pv_blk_arm_tick(bq, false);
			break;
		}
		staged++;
	}
	if (staged == 0)
		return;
	pvq_commit(bq->bq_pvq);
	bq->bq_unkicked += staged;
	bq->bq_stats.bs_requests += staged;
	bq->bq_stats.bs_max_in_flight = MAX(bq->bq_stats.bs_max_in_flight, bq->bq_ninflight);
}

/* How many requests share a notification, and how many completions an interrupt? */
static u_int
pv_blk_batch(const struct pv_blk_queue *bq)
{
	u_int n;

	if (bq->bq_depth < PV_BLK_DEEP || (bq->bq_flags & PVB_GATED) != 0 || bq->bq_nawaited != 0)
		return (1);
	n = MIN(bq->bq_depth / 2, bq->bq_blk->blk_batch);
	return (MAX(1, MIN(n, bq->bq_near)));
}

bool
pv_blk_kick_queue(struct pv_blk_queue *bq, bool now)
{
	bool idle;

	PV_BLK_QUEUE_ASSERT(bq);
	if ((bq->bq_flags & PVB_STOPPED) != 0)
		return (false);
	idle = bq->bq_unkicked == bq->bq_ninflight;
	/* A device that has nothing to do waits only if there are more to come, and not for long. */
	if (!now && bq->bq_unkicked < pv_blk_batch(bq) && (!idle || bq->bq_backlog > 0)) {
		bq->bq_stats.bs_deferred_kicks++;
		pv_blk_arm_tick(bq, idle);
		return (false);
	}
	bq->bq_unkicked = 0;
	(void)pvq_kick(bq->bq_pvq);
	return (true);
}

void
pv_blk_deliver_queue(struct pv_blk_queue *bq)
{
	struct pv_blk_bios batch;
	struct bio *bp, *next;
	bool plug;

	PV_BLK_QUEUE_ASSERT(bq);
	do {
		TAILQ_INIT(&batch);
		TAILQ_CONCAT(&batch, &bq->bq_finished, bio_queue);
		plug = bq->bq_deliver_td == NULL;
		if (plug)
			bq->bq_deliver_td = curthread;
		PV_BLK_QUEUE_UNLOCK(bq);
		TAILQ_FOREACH_SAFE(bp, &batch, bio_queue, next)
			biodone(bp);
		PV_BLK_QUEUE_LOCK(bq);
		if (plug)
			bq->bq_deliver_td = NULL;
		pv_blk_start(bq);
		(void)pv_blk_kick(bq, true);
	} while (!TAILQ_EMPTY(&bq->bq_finished));
}

/* Takes rq off the list of what is in flight and makes its memory ours again. */
static void
pv_blk_take_back(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	struct pv_blk *blk = bq->bq_blk;

	TAILQ_REMOVE(&bq->bq_inflight, rq, rq_link);
	bq->bq_ninflight--;
	bq->bq_nawaited -= rq->rq_awaited;
	bus_dmamap_sync(blk->blk_mtag, blk->blk_mmap, BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
	pvq_unshare(bq->bq_pvq, rq->rq_segs + 1, rq->rq_nsegs);
	if (rq->rq_loaded)
		bus_dmamap_sync(pv_blk_dtag(blk, rq), rq->rq_map, rq->rq_cmd == PV_BLK_WRITE ?
		    BUS_DMASYNC_POSTWRITE : BUS_DMASYNC_POSTREAD);
	else if (rq->rq_bounced)
		bus_dmamap_sync(blk->blk_btag, blk->blk_bmap,
		    BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
}

static void
pv_blk_complete(struct pv_blk_queue *bq, const struct pvq_done *pd)
{
	struct pv_blk *blk = bq->bq_blk;
	struct pv_blk_req *rq = pd->pd_cookie;
	uintmax_t seen = 0;
	int error;

	pv_blk_take_back(bq, rq);
	error = blk->blk_ops->bo_status(blk, rq, pd, &seen);
	if (error == -1) {
		bq->bq_stats.bs_protocol_errors++;
		pvq_break(bq->bq_pvq, PVQ_FAULT_OWNER, seen);
		error = EIO;
	} else if (error == EOPNOTSUPP)
		bq->bq_stats.bs_unsupported++;
	else if (error != 0)
		bq->bq_stats.bs_io_errors++;
	if (error != 0)
		pv_blk_log_error(blk, rq, error);
	else if ((rq->rq_bounced || rq->rq_stage != NULL) && rq->rq_cmd == PV_BLK_READ)
		pv_blk_bounce_copy(blk, rq, true);
	pv_blk_end(bq, rq, error);
}

/*
 * How deep is the queue?  What is in flight does not tell: a fast device has answered before a user
 * with many requests has submitted all of them again.  So what was given back and not yet followed
 * by another bio counts too.  The depth is the most of the last that many completions, and goes
 * down by a quarter with each such round that had less, as does what was given back: it may have
 * been the end.
 */
static void
pv_blk_note_depth(struct pv_blk_queue *bq, u_int completed)
{
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
 * How many completions come within the time that one may wait for others?  By the average distance of
 * the last ones, in which one pause counts for no more than that time.
 */
static void
pv_blk_note_pace(struct pv_blk_queue *bq, u_int completed)
{
	uint64_t limit = MAX(1, cpu_tickrate() / PV_BLK_BATCH_HZ), now = cpu_ticks();
	uint64_t gap = MIN(limit, (now - bq->bq_pace_at) / completed);

	bq->bq_pace_at = now;
	bq->bq_gap = MAX(1, (3 * bq->bq_gap + gap) / 4);
	bq->bq_near = limit / bq->bq_gap;
}

/* Takes what the queue has, without ending bios. */
static void
pv_blk_collect(struct pv_blk_queue *bq)
{
	struct pvq_done done[PV_BLK_GET_MAX];
	u_int all = 0;
	int i, n;

	PV_BLK_QUEUE_ASSERT(bq);
	do {
		n = pvq_get(bq->bq_pvq, done, nitems(done));
		if (n == 0)
			break;
		all += n;
		pv_blk_note_depth(bq, n);
		for (i = 0; i < n; i++)
			pv_blk_complete(bq, &done[i]);
	} while (n == nitems(done));
	if (all != 0 && bq->bq_depth >= PV_BLK_DEEP)
		pv_blk_note_pace(bq, all);
}

/*
 * Asks for the next interrupt: in a queue that has been deep lately, after a batch of completions.
 * Returns true if as many wait already.
 */
static bool
pv_blk_arm_intr(struct pv_blk_queue *bq)
{
	u_int after;

	/* Not after more than the device was told of. */
	after = MAX(1, MIN(pv_blk_batch(bq), bq->bq_ninflight - bq->bq_unkicked));
	if (after > 1)
		pv_blk_arm_tick(bq, false);
	return (pvq_intr_enable(bq->bq_pvq, after));
}

/* An interrupt: the thread that submits begins a new run. */
static void
pv_blk_end_run(struct pv_blk_queue *bq)
{
	if (bq->bq_run > 1)
		bq->bq_singles = 0;
	else if (bq->bq_run == 1 && bq->bq_singles < PV_BLK_SINGLES)
		bq->bq_singles++;
	bq->bq_run = 0;
}

void
pv_blk_process(struct pv_blk_queue *bq)
{
	PV_BLK_QUEUE_ASSERT(bq);
	do {
		if (bq->bq_pvq == NULL || (bq->bq_flags & PVB_STOPPED) != 0)
			return;
		pvq_intr_disable(bq->bq_pvq);
		pv_blk_end_run(bq);
		pv_blk_collect(bq);
		if (pvq_broken(bq->bq_pvq)) {
			bq->bq_todo |= PVBQ_RESET;
			pv_blk_deliver(bq);
			return;
		}
		/* New work for the device comes before the news for its users. */
		pv_blk_start(bq);
		(void)pv_blk_kick(bq, true);
		pv_blk_deliver(bq);
		if ((bq->bq_flags & PVB_STOPPED) != 0)
			return;
	} while (pv_blk_arm_intr(bq));
}

void
pv_blk_intr(void *arg)
{
	struct pv_blk_queue *bq = arg;

	PV_BLK_QUEUE_LOCK(bq);
	pv_blk_process(bq);
	PV_BLK_QUEUE_UNLOCK(bq);
}

void
pv_blk_run(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;

	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		pv_blk_process(bq);
		pv_blk_deliver(bq);
		PV_BLK_QUEUE_UNLOCK(bq);
	}
}

/* Bounds what batching may cost, and tries again what memory was short for. */
void
pv_blk_tick(void *arg)
{
	struct pv_blk_queue *bq = arg;

	PV_BLK_QUEUE_LOCK(bq);
	(void)pv_blk_kick(bq, true);
	pv_blk_process(bq);
	PV_BLK_QUEUE_UNLOCK(bq);
}

static void
pv_blk_report_late(struct pv_blk_queue *bq)
{
	struct pv_blk *blk = bq->bq_blk;
	struct pv_blk_req *rq;

	TAILQ_FOREACH(rq, &bq->bq_inflight, rq_link) {
		if (blk->blk_timeout == 0 || ticks - rq->rq_start < (int)blk->blk_timeout * hz)
			break;
		if (rq->rq_reported)
			continue;
		rq->rq_reported = true;
		bq->bq_stats.bs_timeouts++;
		if (pv_blk_may_log(blk))
			device_printf(blk->blk_dev, "%s of sector %jd, %zu bytes: no answer for %u "
			    "seconds, still waiting\n", pv_blk_cmd_names[rq->rq_cmd],
			    (intmax_t)(rq->rq_offset / DEV_BSIZE), rq->rq_length,
			    blk->blk_timeout);
	}
}

/*
 * Reports requests that the device sits on.  They are only reported: their memory is the device's until
 * it gives it back, and a host under load may take its time.
 */
void
pv_blk_watchdog(void *arg)
{
	struct pv_blk *blk = arg;
	struct pv_blk_queue *bq;

	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		/* The ring may have found a lie where nobody was there to be told. */
		if (bq->bq_pvq != NULL && (bq->bq_flags & PVB_STOPPED) == 0 &&
		    pvq_broken(bq->bq_pvq))
			bq->bq_todo |= PVBQ_RESET;
		pv_blk_report_late(bq);
		PV_BLK_QUEUE_UNLOCK(bq);
	}
	PV_BLK_LOCK(blk);
	if ((blk->blk_flags & PVB_DETACHING) == 0)
		pv_blk_arm_watchdog(blk);
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_fail_queued(struct pv_blk_queue *bq, int error)
{
	struct pv_blk_req *rq;
	struct bio *bp;

	PV_BLK_QUEUE_ASSERT(bq);
	while ((rq = TAILQ_FIRST(&bq->bq_ready)) != NULL) {
		TAILQ_REMOVE(&bq->bq_ready, rq, rq_link);
		pv_blk_end(bq, rq, error);
	}
	/* One that was moved here partly cut may have requests in flight, which end it. */
	while ((bp = bq->bq_cur) != NULL || (bp = pv_blk_begin(bq)) != NULL) {
		pv_blk_bio_fail(bp, error);
		pv_blk_cur_end(bq);
	}
}

void
pv_blk_drain(struct pv_blk_queue *bq, int error, bool blame)
{
	struct pv_blk_reqs back = TAILQ_HEAD_INITIALIZER(back);
	struct pv_blk_req *rq;

	PV_BLK_QUEUE_ASSERT(bq);
	KASSERT((bq->bq_flags & PVB_STOPPED) != 0, ("%s: the device is live", __func__));
	while (bq->bq_pvq != NULL && (rq = pvq_drain(bq->bq_pvq)) != NULL) {
		pv_blk_take_back(bq, rq);
		if (blame && error == 0 && rq->rq_requeues++ >= PV_BLK_REQUEUES_MAX)
			pv_blk_end(bq, rq, EIO);
		else
			TAILQ_INSERT_TAIL(&back, rq, rq_link);
	}
	/* Requests that were ready come after those that were put before them. */
	TAILQ_CONCAT(&back, &bq->bq_ready, rq_link);
	while ((rq = TAILQ_FIRST(&back)) != NULL) {
		TAILQ_REMOVE(&back, rq, rq_link);
		if (error == 0) {
			bq->bq_stats.bs_requeued++;
			TAILQ_INSERT_TAIL(&bq->bq_ready, rq, rq_link);
		} else
			pv_blk_end(bq, rq, error);
	}
	bq->bq_unkicked = 0;
}

static bool
pv_blk_can(const struct pv_blk *blk, const struct bio *bp)
{
	switch (bp->bio_cmd) {
	case BIO_READ:
		return (true);
	case BIO_WRITE:
		return ((blk->blk_params.bp_flags & PV_BLK_READONLY) == 0);
	case BIO_DELETE:
		return ((blk->blk_params.bp_flags & PV_BLK_READONLY) == 0 &&
		    blk->blk_params.bp_delete_size != 0);
	case BIO_FLUSH:
		return ((blk->blk_params.bp_flags & PV_BLK_CACHED) != 0);
	default:
		return (false);
	}
}

/*
 * The queue of this CPU, locked.  How many there are changes while they are all locked, so that one
 * which is in use now stays so.
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

void
pv_blk_enqueue(struct pv_blk_queue *bq, struct bio *bp)
{
	PV_BLK_QUEUE_ASSERT(bq);
	bq->bq_stats.bs_bios++;
	if (bq->bq_backlog > 0)
		bq->bq_backlog--;
	TAILQ_INSERT_TAIL(&bq->bq_bios, bp, bio_queue);
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
 * has answered as a whole; it is, if it never submits more than one between two interrupts.
 */
static bool
pv_blk_will_wait(struct pv_blk_queue *bq)
{
	if (bq->bq_depth < PV_BLK_DEEP)
		return (false);
	if (bq->bq_submit_td != curthread) {
		bq->bq_submit_td = curthread;
		bq->bq_run = 1;
		bq->bq_singles = 0;
		return (!pv_blk_has_more(bq));
	}
	return (++bq->bq_run == 1 && bq->bq_singles == PV_BLK_SINGLES);
}

void
pv_blk_strategy(struct bio *bp)
{
	struct pv_blk *blk = bp->bio_disk->d_drv1;
	struct pv_blk_queue *bq;
	bool waits;

	if (!pv_blk_can(blk, bp)) {
		biofinish(bp, NULL, EOPNOTSUPP);
		return;
	}
	bp->bio_driver1 = NULL;
	bp->bio_driver2 = NULL;
	bp->bio_resid = bp->bio_bcount;
	if (pv_blk_is_barrier(bp)) {
		pv_blk_line_up(blk, bp);
		return;
	}
	bq = pv_blk_select(blk);
	if ((bq->bq_flags & (PVB_DETACHING | PVB_DEAD | PVB_GATED)) != 0) {
		PV_BLK_QUEUE_UNLOCK(bq);
		pv_blk_line_up(blk, bp);
		return;
	}
	pv_blk_enqueue(bq, bp);
	/* Within a delivery, what the users submit is started as one batch when it ends. */
	if (bq->bq_deliver_td != curthread) {
		waits = pv_blk_will_wait(bq);
		bq->bq_awaited = waits;
		pv_blk_start(bq);
		bq->bq_awaited = false;
		/*
		 * The interrupt was asked for when there was less in flight, or nobody who waits.
		 * If it would come now, do its work here.
		 */
		if (pv_blk_kick(bq, waits) && bq->bq_depth >= PV_BLK_DEEP &&
		    pv_blk_arm_intr(bq))
			pv_blk_process(bq);
		pv_blk_deliver(bq);
	}
	PV_BLK_QUEUE_UNLOCK(bq);
}
