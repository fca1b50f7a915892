/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Bios and requests of pv_blk (theory statement, locking: pv_blk.h).
 *
 * The driver's fields of a bio are used so: bio_driver1 counts its requests that have not ended, and 1
 * while it is still being cut.  bio_resid is what has not been moved yet.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/proc.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>

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

/* An earlier tick replaces a later one; a later one is left out. */
static void
pv_blk_arm_tick(struct pv_blk *blk, bool soon)
{
	if (callout_pending(&blk->blk_tick) && (blk->blk_tick_soon || !soon))
		return;
	blk->blk_tick_soon = soon;
	(void)callout_reset_sbt(&blk->blk_tick, soon ? PV_BLK_TICK_SOON : PV_BLK_TICK, 0,
	    pv_blk_tick, blk, 0);
}

void
pv_blk_arm_watchdog(struct pv_blk *blk)
{
	(void)callout_reset_sbt(&blk->blk_watchdog, SBT_1S, 0, pv_blk_watchdog, blk, C_PREL(2));
}

bool
pv_blk_may_log(struct pv_blk *blk)
{
	PV_BLK_ASSERT(blk);
	if (ticks - blk->blk_log_start >= PV_BLK_LOG_SECS * hz) {
		blk->blk_log_start = ticks;
		blk->blk_log_count = 0;
	}
	if (blk->blk_log_count++ < PV_BLK_LOG_MAX)
		return (true);
	blk->blk_stats.bs_unlogged++;
	return (false);
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

static uintptr_t
pv_blk_bio_refs(const struct bio *bp)
{
	return ((uintptr_t)bp->bio_driver1);
}

static void
pv_blk_bio_hold(struct bio *bp)
{
	bp->bio_driver1 = (void *)(pv_blk_bio_refs(bp) + 1);
}

/* Gives a reference back; the last one ends the bio. */
static void
pv_blk_bio_release(struct pv_blk *blk, struct bio *bp)
{
	bp->bio_driver1 = (void *)(pv_blk_bio_refs(bp) - 1);
	if (pv_blk_bio_refs(bp) != 0)
		return;
	if (blk->blk_barrier == bp)
		blk->blk_barrier = NULL;
	if ((bp->bio_flags & BIO_ERROR) != 0)
		bp->bio_resid = bp->bio_bcount;
	bioq_insert_tail(&blk->blk_finished, bp);
	blk->blk_backlog++;
}

static void
pv_blk_bio_fail(struct bio *bp, int error)
{
	if ((bp->bio_flags & BIO_ERROR) == 0)
		bp->bio_error = error;
	bp->bio_flags |= BIO_ERROR;
}

/*
 * Copies between the bounce buffer, or the request's own, and this piece of the bio.  An unmapped
 * bio is mapped a page at a time.
 */
static void
pv_blk_bounce_copy(struct pv_blk *blk, struct pv_blk_req *rq, bool to_bio)
{
	struct bio *bp = &rq->rq_window;
	char *buf = rq->rq_stage != NULL ? rq->rq_stage : blk->blk_bounce;
	size_t done, n, off;
	char *p;

	for (done = 0; done < rq->rq_length; done += n) {
		if ((bp->bio_flags & BIO_UNMAPPED) == 0) {
			n = rq->rq_length;
			p = bp->bio_data;
		} else {
			off = bp->bio_ma_offset + done;
			n = MIN(rq->rq_length - done, PAGE_SIZE - off % PAGE_SIZE);
			p = (char *)pmap_quick_enter_page(bp->bio_ma[off / PAGE_SIZE]) +
			    off % PAGE_SIZE;
		}
		if (to_bio)
			memcpy(p, buf + done, n);
		else
			memcpy(buf + done, p, n);
		if ((bp->bio_flags & BIO_UNMAPPED) != 0)
			pmap_quick_remove_page(trunc_page((vm_offset_t)p));
	}
}

static void
pv_blk_req_free(struct pv_blk *blk, struct pv_blk_req *rq)
{
	if (rq->rq_loaded) {
		bus_dmamap_unload(blk->blk_dtag, rq->rq_map);
		rq->rq_loaded = false;
	}
	if (rq->rq_bounced) {
		rq->rq_bounced = false;
		blk->blk_bounce_busy = false;
	}
	rq->rq_bio = NULL;
	TAILQ_INSERT_HEAD(&blk->blk_free, rq, rq_link);
}

static void
pv_blk_load_cb(void *arg, bus_dma_segment_t *segs, int nsegs, int error)
{
	struct pv_blk_req *rq = arg;

	rq->rq_error = error;
	if (error != 0)
		return;
	memcpy(rq->rq_segs + 1, segs, nsegs * sizeof(*segs));
	rq->rq_nsegs = nsegs;
}

/* Makes rq_window the length bytes of bp from off on. */
static void
pv_blk_window(struct pv_blk_req *rq, const struct bio *bp, size_t off, size_t length)
{
	struct bio *w = &rq->rq_window;
	size_t first;

	w->bio_cmd = bp->bio_cmd;
	w->bio_flags = bp->bio_flags & BIO_UNMAPPED;
	w->bio_length = w->bio_bcount = length;
	if ((bp->bio_flags & BIO_UNMAPPED) == 0) {
		w->bio_data = bp->bio_data + off;
		return;
	}
	first = bp->bio_ma_offset + off;
	w->bio_data = NULL;
	w->bio_ma = bp->bio_ma + first / PAGE_SIZE;
	w->bio_ma_offset = first % PAGE_SIZE;
	w->bio_ma_n = howmany(w->bio_ma_offset + length, PAGE_SIZE);
}

/* One sector has more segments than a request may: it goes through the bounce buffer. */
static int
pv_blk_load_bounce(struct pv_blk *blk, struct pv_blk_req *rq)
{
	size_t off, n;

	if (blk->blk_bounce_busy)
		return (ENOMEM);
	blk->blk_bounce_busy = true;
	rq->rq_bounced = true;
	rq->rq_nsegs = 0;
	for (off = 0; off < rq->rq_length; off += n) {
		n = MIN(rq->rq_length - off, blk->blk_params.bp_seg_size);
		rq->rq_segs[1 + rq->rq_nsegs].ds_addr = blk->blk_bounce_paddr + off;
		rq->rq_segs[1 + rq->rq_nsegs].ds_len = n;
		rq->rq_nsegs++;
	}
	if (rq->rq_cmd == PV_BLK_WRITE)
		pv_blk_bounce_copy(blk, rq, false);
	blk->blk_stats.bs_bounced++;
	return (0);
}

/*
 * The next length to try after one that had too many segments: first what always fits when each page
 * is a segment, then by halves, as segments may be smaller than pages.
 */
static size_t
pv_blk_shorter(const struct pv_blk *blk, size_t length)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	size_t fits;

	fits = (size_t)(bp->bp_max_segs - 1) * MIN(bp->bp_seg_size, PAGE_SIZE);
	if (fits >= length)
		fits = length / 2;
	return (MAX(rounddown2(fits, bp->bp_sectorsize), bp->bp_sectorsize));
}

/*
 * Loads a piece of bp from off on, as long as one request can be.
 *
 * Returns 0; ENOMEM if memory (or the bounce buffer) is short now; or what bus_dmamap_load_bio() says.
 */
static int
pv_blk_load(struct pv_blk *blk, struct pv_blk_req *rq, const struct bio *bp, size_t off)
{
	size_t length;
	int error;

	length = MIN((size_t)bp->bio_bcount - off, blk->blk_params.bp_max_size);
	if (rq->rq_stage != NULL) {
		pv_blk_window(rq, bp, off, length);
		rq->rq_length = length;
		if (rq->rq_cmd == PV_BLK_WRITE)
			pv_blk_bounce_copy(blk, rq, false);
		return (0);
	}
	for (;;) {
		pv_blk_window(rq, bp, off, length);
		rq->rq_length = length;
		error = bus_dmamap_load_bio(blk->blk_dtag, rq->rq_map, &rq->rq_window,
		    pv_blk_load_cb, rq, BUS_DMA_NOWAIT);
		if (error == 0)
			error = rq->rq_error;
		if (error == 0) {
			rq->rq_loaded = true;
			return (0);
		}
		bus_dmamap_unload(blk->blk_dtag, rq->rq_map);
		if (error != EFBIG)
			return (error);
		if (length == blk->blk_params.bp_sectorsize)
			return (pv_blk_load_bounce(blk, rq));
		length = pv_blk_shorter(blk, length);
	}
}

/* Begins the next bio of the queue, unless the order of things forbids. */
static struct bio *
pv_blk_begin(struct pv_blk *blk)
{
	struct bio *bp;
	bool idle;

	bp = bioq_first(&blk->blk_bioq);
	if (bp == NULL || blk->blk_barrier != NULL)
		return (NULL);
	idle = blk->blk_ninflight == 0 && TAILQ_EMPTY(&blk->blk_ready);
	if (!idle && (bp->bio_cmd == BIO_FLUSH || (bp->bio_flags & BIO_ORDERED) != 0))
		return (NULL);
	bioq_remove(&blk->blk_bioq, bp);
	if ((bp->bio_flags & BIO_ORDERED) != 0)
		blk->blk_barrier = bp;
	bp->bio_driver1 = NULL;
	bp->bio_resid = bp->bio_bcount;
	pv_blk_bio_hold(bp);
	blk->blk_cur = bp;
	blk->blk_cur_off = 0;
	return (bp);
}

static void
pv_blk_cur_end(struct pv_blk *blk)
{
	struct bio *bp = blk->blk_cur;

	blk->blk_cur = NULL;
	pv_blk_bio_release(blk, bp);
}

/* Fills rq with the next piece of blk_cur: 0, or why not. */
static int
pv_blk_cut(struct pv_blk *blk, struct pv_blk_req *rq)
{
	struct bio *bp = blk->blk_cur;
	int error = 0;

	rq->rq_offset = bp->bio_offset + blk->blk_cur_off;
	rq->rq_nsegs = 0;
	rq->rq_length = 0;
	rq->rq_requeues = 0;
	switch (bp->bio_cmd) {
	case BIO_READ:
	case BIO_WRITE:
		rq->rq_cmd = bp->bio_cmd == BIO_READ ? PV_BLK_READ : PV_BLK_WRITE;
		error = pv_blk_load(blk, rq, bp, blk->blk_cur_off);
		break;
	case BIO_DELETE:
		rq->rq_cmd = PV_BLK_DELETE;
		rq->rq_length = MIN((uint64_t)bp->bio_bcount - blk->blk_cur_off,
		    blk->blk_params.bp_delete_size);
		break;
	default:
		rq->rq_cmd = PV_BLK_FLUSH;
		break;
	}
	return (error);
}

/* The next request to put: a ready one, else a new piece.  NULL: nothing can be done now. */
static struct pv_blk_req *
pv_blk_next(struct pv_blk *blk)
{
	struct pv_blk_req *rq;
	struct bio *bp;
	int error;

	rq = TAILQ_FIRST(&blk->blk_ready);
	if (rq != NULL) {
		TAILQ_REMOVE(&blk->blk_ready, rq, rq_link);
		return (rq);
	}
	while ((bp = blk->blk_cur) != NULL || (bp = pv_blk_begin(blk)) != NULL) {
		if (bp->bio_cmd == BIO_FLUSH ? (blk->blk_flags & PVB_WRITETHROUGH) != 0 :
		    bp->bio_bcount == 0) {
			pv_blk_cur_end(blk);
			continue;
		}
		rq = TAILQ_FIRST(&blk->blk_free);
		if (rq == NULL)
			return (NULL);
		error = (bp->bio_flags & BIO_ERROR) != 0 ? bp->bio_error : pv_blk_cut(blk, rq);
		if (error == ENOMEM || error == EINPROGRESS) {
			blk->blk_stats.bs_nomem++;
			pv_blk_arm_tick(blk, false);
			return (NULL);
		}
		if (error != 0) {
			if ((bp->bio_flags & BIO_ERROR) == 0)
				blk->blk_stats.bs_dma_errors++;
			pv_blk_bio_fail(bp, error);
			pv_blk_cur_end(blk);
			continue;
		}
		TAILQ_REMOVE(&blk->blk_free, rq, rq_link);
		rq->rq_bio = bp;
		rq->rq_reported = false;
		pv_blk_bio_hold(bp);
		if (blk->blk_cur_off != 0)
			blk->blk_stats.bs_splits++;
		blk->blk_cur_off += rq->rq_length;
		if (blk->blk_cur_off >= (size_t)bp->bio_bcount)
			pv_blk_cur_end(blk);
		return (rq);
	}
	return (NULL);
}

/*
 * Puts rq.  Returns 0; ENOSPC or ENOMEM if there is no room now; EIO if the queue is broken; EFBIG if
 * the queue can never take it.
 */
int
pv_blk_put(struct pv_blk *blk, struct pv_blk_req *rq)
{
	struct pvq_chain pc;
	int error, slots;

	bzero(&pc, sizeof(pc));
	pc.pc_cookie = rq;
	blk->blk_ops->bo_encode(blk, rq, &pc);
	slots = pvq_prepare(blk->blk_pvq, &pc);
	if (slots == 0)
		return (EFBIG);
	error = pvq_reserve(blk->blk_pvq, slots);
	if (error == 0)
		error = pvq_share(blk->blk_pvq, &pc);
	if (error != 0)
		return (error);
	if (rq->rq_loaded)
		bus_dmamap_sync(blk->blk_dtag, rq->rq_map, rq->rq_cmd == PV_BLK_WRITE ?
		    BUS_DMASYNC_PREWRITE : BUS_DMASYNC_PREREAD);
	else if (rq->rq_bounced)
		bus_dmamap_sync(blk->blk_btag, blk->blk_bmap,
		    BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	bus_dmamap_sync(blk->blk_mtag, blk->blk_mmap, BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	pvq_put(blk->blk_pvq, &pc, 1);
	rq->rq_start = ticks;
	TAILQ_INSERT_TAIL(&blk->blk_inflight, rq, rq_link);
	blk->blk_ninflight++;
	return (0);
}

void
pv_blk_start(struct pv_blk *blk)
{
	struct pv_blk_req *rq;
	u_int staged = 0;
	int error;

	PV_BLK_ASSERT(blk);
	if ((blk->blk_flags & (PVB_STOPPED | PVB_RESETTING | PVB_FROZEN | PVB_DEAD)) != 0)
		return;
	while ((rq = pv_blk_next(blk)) != NULL) {
		error = pv_blk_put(blk, rq);
		if (error == EFBIG) {
			pv_blk_end(blk, rq, EIO);
			continue;
		}
		if (error != 0) {
			TAILQ_INSERT_HEAD(&blk->blk_ready, rq, rq_link);
			/* With nothing in flight no completion will try again. */
			if (blk->blk_ninflight == 0)
				pv_blk_arm_tick(blk, false);
			break;
		}
		staged++;
	}
	if (staged == 0)
		return;
	pvq_commit(blk->blk_pvq);
	blk->blk_unkicked += staged;
	blk->blk_stats.bs_requests += staged;
	blk->blk_stats.bs_max_in_flight = MAX(blk->blk_stats.bs_max_in_flight, blk->blk_ninflight);
}

/* How many requests share a notification in a deep queue, and how many completions an interrupt? */
static u_int
pv_blk_batch(const struct pv_blk *blk)
{
	return (MIN(blk->blk_depth / 2, blk->blk_batch));
}

bool
pv_blk_kick(struct pv_blk *blk, bool now)
{
	PV_BLK_ASSERT(blk);
	if (blk->blk_unkicked == 0 || (blk->blk_flags & PVB_STOPPED) != 0)
		return (false);
	if (!now && blk->blk_depth >= PV_BLK_DEEP && blk->blk_unkicked < pv_blk_batch(blk)) {
		blk->blk_stats.bs_deferred_kicks++;
		/* An idle device should not stay so for longer than it takes to submit a few more. */
		pv_blk_arm_tick(blk, blk->blk_unkicked == blk->blk_ninflight);
		return (false);
	}
	blk->blk_unkicked = 0;
	(void)pvq_kick(blk->blk_pvq);
	return (true);
}

void
pv_blk_deliver(struct pv_blk *blk)
{
	struct bio_queue_head batch;
	struct bio *bp;
	bool plug;

	PV_BLK_ASSERT(blk);
	while (bioq_first(&blk->blk_finished) != NULL) {
		bioq_init(&batch);
		while ((bp = bioq_takefirst(&blk->blk_finished)) != NULL)
			bioq_insert_tail(&batch, bp);
		plug = blk->blk_deliver_td == NULL;
		if (plug)
			blk->blk_deliver_td = curthread;
		PV_BLK_UNLOCK(blk);
		while ((bp = bioq_takefirst(&batch)) != NULL)
			biodone(bp);
		PV_BLK_LOCK(blk);
		if (plug)
			blk->blk_deliver_td = NULL;
		pv_blk_start(blk);
		(void)pv_blk_kick(blk, false);
	}
}

void
pv_blk_end(struct pv_blk *blk, struct pv_blk_req *rq, int error)
{
	struct bio *bp = rq->rq_bio;

	PV_BLK_ASSERT(blk);
	if (bp == NULL) {
		rq->rq_error = error;
		rq->rq_done = true;
		return;
	}
	if (error != 0)
		pv_blk_bio_fail(bp, error);
	else
		bp->bio_resid -= rq->rq_length;
	pv_blk_req_free(blk, rq);
	pv_blk_bio_release(blk, bp);
}

/* Takes rq off the list of what is in flight and makes its memory ours again. */
static void
pv_blk_take_back(struct pv_blk *blk, struct pv_blk_req *rq)
{
	TAILQ_REMOVE(&blk->blk_inflight, rq, rq_link);
	blk->blk_ninflight--;
	bus_dmamap_sync(blk->blk_mtag, blk->blk_mmap, BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
	pvq_unshare(blk->blk_pvq, rq->rq_segs + 1, rq->rq_nsegs);
	if (rq->rq_loaded)
		bus_dmamap_sync(blk->blk_dtag, rq->rq_map, rq->rq_cmd == PV_BLK_WRITE ?
		    BUS_DMASYNC_POSTWRITE : BUS_DMASYNC_POSTREAD);
	else if (rq->rq_bounced)
		bus_dmamap_sync(blk->blk_btag, blk->blk_bmap,
		    BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
}

static void
pv_blk_complete(struct pv_blk *blk, const struct pvq_done *pd)
{
	struct pv_blk_req *rq = pd->pd_cookie;
	uintmax_t seen = 0;
	int error;

	pv_blk_take_back(blk, rq);
	error = blk->blk_ops->bo_status(blk, rq, pd, &seen);
	if (error == -1) {
		blk->blk_stats.bs_protocol_errors++;
		pvq_break(blk->blk_pvq, PVQ_FAULT_OWNER, seen);
		error = EIO;
	} else if (error == EOPNOTSUPP)
		blk->blk_stats.bs_unsupported++;
	else if (error != 0)
		blk->blk_stats.bs_io_errors++;
	if (error != 0)
		pv_blk_log_error(blk, rq, error);
	else if ((rq->rq_bounced || rq->rq_stage != NULL) && rq->rq_cmd == PV_BLK_READ)
		pv_blk_bounce_copy(blk, rq, true);
	pv_blk_end(blk, rq, error);
}

/*
 * How deep is the queue?  What is in flight does not tell: a fast device has answered before a user
 * with many requests has submitted all of them again.  So what was given back and not yet followed
 * by another bio counts too.  The depth is the most of the last that many completions, and goes
 * down by a quarter with each such round that had less, as does what was given back: it may have
 * been the end.
 */
static void
pv_blk_note_depth(struct pv_blk *blk, u_int completed)
{
	blk->blk_peak = MAX(blk->blk_peak, blk->blk_ninflight + blk->blk_backlog);
	blk->blk_depth = MAX(blk->blk_depth, blk->blk_peak);
	blk->blk_round += completed;
	if (blk->blk_round < blk->blk_depth)
		return;
	blk->blk_depth = MAX(blk->blk_peak, blk->blk_depth - blk->blk_depth / 4);
	blk->blk_backlog = blk->blk_backlog * 3 / 4;
	blk->blk_peak = 0;
	blk->blk_round = 0;
}

/* Takes what the queue has, without ending bios. */
static void
pv_blk_collect(struct pv_blk *blk)
{
	struct pvq_done done[PV_BLK_GET_MAX];
	int i, n;

	PV_BLK_ASSERT(blk);
	while ((n = pvq_get(blk->blk_pvq, done, nitems(done))) > 0) {
		pv_blk_note_depth(blk, n);
		for (i = 0; i < n; i++)
			pv_blk_complete(blk, &done[i]);
	}
	if (blk->blk_ninflight == 0 && (blk->blk_flags & PVB_DETACHING) != 0)
		wakeup(&blk->blk_ninflight);
}

/*
 * Asks for the next interrupt: in a queue that has been deep lately, after a batch of completions.
 * Returns true if as many wait already.
 */
static bool
pv_blk_arm_intr(struct pv_blk *blk)
{
	u_int after = 1, told = blk->blk_ninflight - blk->blk_unkicked;

	if (blk->blk_depth >= PV_BLK_DEEP && told > 1) {
		/* Not after more than the device was told of. */
		after = MIN(pv_blk_batch(blk), told);
		pv_blk_arm_tick(blk, false);
	}
	return (pvq_intr_enable(blk->blk_pvq, after));
}

void
pv_blk_process(struct pv_blk *blk)
{
	PV_BLK_ASSERT(blk);
	do {
		if ((blk->blk_flags & PVB_STOPPED) != 0)
			return;
		pvq_intr_disable(blk->blk_pvq);
		pv_blk_collect(blk);
		if (pvq_broken(blk->blk_pvq)) {
			pv_blk_reset_locked(blk, EIO);
			pv_blk_deliver(blk);
			return;
		}
		/* New work for the device comes before the news for its users. */
		pv_blk_start(blk);
		(void)pv_blk_kick(blk, true);
		pv_blk_deliver(blk);
		if ((blk->blk_flags & PVB_STOPPED) != 0)
			return;
	} while (pv_blk_arm_intr(blk));
}

void
pv_blk_intr(void *arg)
{
	struct pv_blk *blk = arg;

	PV_BLK_LOCK(blk);
	if (blk->blk_pvq != NULL)
		pv_blk_process(blk);
	PV_BLK_UNLOCK(blk);
}

/* Bounds what batching may cost, and tries again what memory was short for. */
void
pv_blk_tick(void *arg)
{
	struct pv_blk *blk = arg;

	PV_BLK_ASSERT(blk);
	(void)pv_blk_kick(blk, true);
	pv_blk_process(blk);
}

/*
 * Reports requests that the device sits on.  They are only reported: their memory is the device's until
 * it gives it back, and a host under load may take its time.
 */
void
pv_blk_watchdog(void *arg)
{
	struct pv_blk *blk = arg;
	struct pv_blk_req *rq;

	PV_BLK_ASSERT(blk);
	/* The ring may have found a lie where nobody was there to be told. */
	if (blk->blk_pvq != NULL && pvq_broken(blk->blk_pvq))
		pv_blk_reset_locked(blk, EIO);
	TAILQ_FOREACH(rq, &blk->blk_inflight, rq_link) {
		if (blk->blk_timeout == 0 || ticks - rq->rq_start < (int)blk->blk_timeout * hz)
			break;
		if (rq->rq_reported)
			continue;
		rq->rq_reported = true;
		blk->blk_stats.bs_timeouts++;
		if (pv_blk_may_log(blk))
			device_printf(blk->blk_dev, "%s of sector %jd, %zu bytes: no answer for %u "
			    "seconds, still waiting\n", pv_blk_cmd_names[rq->rq_cmd],
			    (intmax_t)(rq->rq_offset / DEV_BSIZE), rq->rq_length,
			    blk->blk_timeout);
	}
	if ((blk->blk_flags & PVB_DETACHING) == 0)
		pv_blk_arm_watchdog(blk);
}

void
pv_blk_fail_queued(struct pv_blk *blk, int error)
{
	struct pv_blk_req *rq;
	struct bio *bp;

	PV_BLK_ASSERT(blk);
	while ((rq = TAILQ_FIRST(&blk->blk_ready)) != NULL) {
		TAILQ_REMOVE(&blk->blk_ready, rq, rq_link);
		pv_blk_end(blk, rq, error);
	}
	if (blk->blk_cur != NULL) {
		pv_blk_bio_fail(blk->blk_cur, error);
		pv_blk_cur_end(blk);
	}
	while ((bp = bioq_takefirst(&blk->blk_bioq)) != NULL) {
		pv_blk_bio_fail(bp, error);
		bp->bio_resid = bp->bio_bcount;
		bioq_insert_tail(&blk->blk_finished, bp);
	}
}

void
pv_blk_drain(struct pv_blk *blk, int error)
{
	struct pv_blk_reqs back = TAILQ_HEAD_INITIALIZER(back);
	struct pv_blk_req *rq;

	PV_BLK_ASSERT(blk);
	KASSERT((blk->blk_flags & PVB_STOPPED) != 0, ("%s: the device is live", __func__));
	while (blk->blk_pvq != NULL && (rq = pvq_drain(blk->blk_pvq)) != NULL) {
		pv_blk_take_back(blk, rq);
		TAILQ_INSERT_TAIL(&back, rq, rq_link);
	}
	/* Requests that were ready come after those that were put before them. */
	TAILQ_CONCAT(&back, &blk->blk_ready, rq_link);
	while ((rq = TAILQ_FIRST(&back)) != NULL) {
		TAILQ_REMOVE(&back, rq, rq_link);
		if (error == 0 && rq->rq_requeues++ < PV_BLK_REQUEUES_MAX) {
			blk->blk_stats.bs_requeued++;
			TAILQ_INSERT_TAIL(&blk->blk_ready, rq, rq_link);
		} else
			pv_blk_end(blk, rq, error != 0 ? error : EIO);
	}
	blk->blk_unkicked = 0;
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

void
pv_blk_strategy(struct bio *bp)
{
	struct pv_blk *blk = bp->bio_disk->d_drv1;

	if (!pv_blk_can(blk, bp)) {
		biofinish(bp, NULL, EOPNOTSUPP);
		return;
	}
	PV_BLK_LOCK(blk);
	if ((blk->blk_flags & (PVB_DETACHING | PVB_DEAD)) != 0) {
		PV_BLK_UNLOCK(blk);
		biofinish(bp, NULL, ENXIO);
		return;
	}
	blk->blk_stats.bs_bios++;
	if (blk->blk_backlog > 0)
		blk->blk_backlog--;
	bioq_insert_tail(&blk->blk_bioq, bp);
	/* Within a delivery, what the users submit is started as one batch when it ends. */
	if (blk->blk_deliver_td != curthread) {
		pv_blk_start(blk);
		/*
		 * The interrupt was asked for when there was less in flight.  If it would come now,
		 * do its work here.
		 */
		if (pv_blk_kick(blk, false) && blk->blk_depth >= PV_BLK_DEEP &&
		    pv_blk_arm_intr(blk))
			pv_blk_process(blk);
		pv_blk_deliver(blk);
	}
	PV_BLK_UNLOCK(blk);
}
