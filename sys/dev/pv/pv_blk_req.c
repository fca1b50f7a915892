/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What pv_blk makes of a bio: requests, each a piece of it with its memory ready for the device
 * (theory statement, locking: pv_blk.h).
 *
 * The driver's fields of a bio are used so: bio_driver1 counts its requests that have not ended, and 1
 * while it is still being cut, which the last of them takes over; bio_driver2 is where cutting goes on
 * when it has to change the queue.  bio_resid is what has not been moved yet.  After a change of the
 * number of queues a bio's requests may be in several, so that these two are changed atomically.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

#include <dev/pv/pv_blk_var.h>

static volatile u_long *
pv_blk_bio_refs(struct bio *bp)
{
	return ((volatile u_long *)&bp->bio_driver1);
}

/* Is the only reference ours?  Then nobody else can take one. */
static bool
pv_blk_bio_alone(struct bio *bp)
{
	return (atomic_load_acq_long(pv_blk_bio_refs(bp)) == 1);
}

/* Gives a reference back; the last one ends the bio. */
static void
pv_blk_bio_release(struct pv_blk_queue *bq, struct bio *bp)
{
	/* What this request did to the bio comes before the last one's biodone(). */
	atomic_thread_fence_rel();
	if (!pv_blk_bio_alone(bp) && atomic_fetchadd_long(pv_blk_bio_refs(bp), -1) != 1)
		return;
	atomic_thread_fence_acq();
	if ((bp->bio_flags & BIO_ERROR) != 0)
		bp->bio_resid = bp->bio_bcount;
	TAILQ_INSERT_TAIL(&bq->bq_finished, bp, bio_queue);
	bq->bq_backlog++;
}

static void
pv_blk_bio_moved(struct bio *bp, size_t bytes)
{
	if (pv_blk_bio_alone(bp))
		bp->bio_resid -= bytes;
	else
		atomic_subtract_long((volatile u_long *)&bp->bio_resid, bytes);
}

void
pv_blk_bio_fail(struct bio *bp, int error)
{
	if ((bp->bio_flags & BIO_ERROR) == 0)
		bp->bio_error = error;
	bp->bio_flags |= BIO_ERROR;
}

/* An unmapped bio is mapped a page at a time. */
void
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
pv_blk_unload(struct pv_blk *blk, struct pv_blk_req *rq)
{
	if (rq->rq_loaded) {
		bus_dmamap_unload(pv_blk_dtag(blk, rq), rq->rq_map);
		rq->rq_loaded = false;
	}
	if (rq->rq_bounced) {
		rq->rq_bounced = false;
		atomic_store_rel_int(&blk->blk_bounce_busy, 0);
	}
}

static void
pv_blk_req_free(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	pv_blk_unload(bq->bq_blk, rq);
	rq->rq_bio = NULL;
	TAILQ_INSERT_HEAD(&bq->bq_free, rq, rq_link);
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

/*
 * The physical addresses of the length bytes of bp from off on: 0; or EFBIG, with rq_nsegs segments, as
 * many as there may be, of their beginning.
 */
static inline int
pv_blk_load_phys(struct pv_blk *blk, struct pv_blk_req *rq, const struct bio *bp, size_t off,
    size_t length)
{
	/* Copies: what is stored below might be any of these, as far as a compiler can tell. */
	const int max = blk->blk_params.bp_max_segs;
	const bus_size_t seg_max = blk->blk_params.bp_seg_size;
	bus_dma_segment_t *segs = rq->rq_segs + 1;
	size_t run;
	vm_page_t *ma;
	vm_paddr_t pa;
	int n = 0;

	if ((bp->bio_flags & BIO_UNMAPPED) == 0)
		n = pvq_phys_add(segs, 0, max, seg_max, bp->bio_data + off, length);
	else {
		off += bp->bio_ma_offset;
		ma = bp->bio_ma + off / PAGE_SIZE;
		for (off %= PAGE_SIZE; length > 0 && n >= 0; length -= run, off = 0) {
			pa = VM_PAGE_TO_PHYS(*ma++) + off;
			run = PAGE_SIZE - off;
			while (run < length && VM_PAGE_TO_PHYS(*ma) == pa + run) {
				run += PAGE_SIZE;
				ma++;
			}
			run = MIN(run, length);
			n = pvq_phys_add_run(segs, n, max, seg_max, pa, run);
		}
	}
	rq->rq_nsegs = n < 0 ? max : n;
	return (n < 0 ? EFBIG : 0);
}

/* How much of its piece its segments are, if that is whole sectors; else 0. */
static size_t
pv_blk_loaded_part(const struct pv_blk *blk, const struct pv_blk_req *rq)
{
	size_t part = 0;
	int i;

	for (i = 1; i <= rq->rq_nsegs; i++)
		part += rq->rq_segs[i].ds_len;
	return (part % blk->blk_params.bp_sectorsize == 0 ? part : 0);
}

/* By bus_dma(9): 0, EFBIG, or another error. */
static int
pv_blk_load_dma(struct pv_blk *blk, struct pv_blk_req *rq)
{
	int error;

	error = bus_dmamap_load_bio(pv_blk_dtag(blk, rq), rq->rq_map, &rq->rq_window,
	    pv_blk_load_cb, rq, BUS_DMA_NOWAIT);
	if (error == 0)
		error = rq->rq_error;
	rq->rq_loaded = error == 0;
	if (error != 0)
		bus_dmamap_unload(pv_blk_dtag(blk, rq), rq->rq_map);
	return (error);
}

/* One sector has more segments than a request may: it goes through the bounce buffer. */
static int
pv_blk_load_bounce(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	struct pv_blk *blk = bq->bq_blk;
	size_t off, n;

	if (atomic_cmpset_acq_int(&blk->blk_bounce_busy, 0, 1) == 0)
		return (ENOMEM);
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
	bq->bq_stats.bs_bounced++;
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

/* The same, of length bytes or less, one way after the other. */
static int
pv_blk_load_slow(struct pv_blk_queue *bq, struct pv_blk_req *rq, const struct bio *bp, size_t off,
    size_t length)
{
	struct pv_blk *blk = bq->bq_blk;
	int error;

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
		error = blk->blk_params.bp_phys ? pv_blk_load_phys(blk, rq, bp, off, length) :
		    pv_blk_load_dma(blk, rq);
		if (error != EFBIG)
			return (error);
		if (length == blk->blk_params.bp_sectorsize)
			return (pv_blk_load_bounce(bq, rq));
		length = pv_blk_shorter(blk, length);
	}
}

/*
 * Loads a piece of bp from off on, up to end and as long as one request can be.
 *
 * Returns 0; ENOMEM if memory (or the bounce buffer) is short now; or what bus_dmamap_load_bio() says.
 */
static int
pv_blk_load(struct pv_blk_queue *bq, struct pv_blk_req *rq, const struct bio *bp, size_t off,
    size_t end)
{
	struct pv_blk *blk = bq->bq_blk;
	size_t length;

	rq->rq_length = length = MIN(end - off, blk->blk_params.bp_max_size);
	if (blk->blk_params.bp_phys) {
		if (pv_blk_load_phys(blk, rq, bp, off, length) == 0)
			return (0);
		rq->rq_length = pv_blk_loaded_part(blk, rq);
		if (rq->rq_length != 0)
			return (0);
	}
	return (pv_blk_load_slow(bq, rq, bp, off, length));
}

struct bio *
pv_blk_begin(struct pv_blk_queue *bq)
{
	struct bio *bp;

	bp = TAILQ_FIRST(&bq->bq_bios);
	if (bp == NULL)
		return (NULL);
	TAILQ_REMOVE(&bq->bq_bios, bp, bio_queue);
	if (*pv_blk_bio_refs(bp) == 0)
		*pv_blk_bio_refs(bp) = 1;
	bq->bq_cur = bp;
	bq->bq_cur_off = (uintptr_t)bp->bio_driver2;
	return (bp);
}

void
pv_blk_cur_end(struct pv_blk_queue *bq)
{
	struct bio *bp = bq->bq_cur;

	bq->bq_cur = NULL;
	pv_blk_bio_release(bq, bp);
}

/* Fills rq with the next piece of bq_cur: 0, or why not. */
static int
pv_blk_cut(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	struct pv_blk *blk = bq->bq_blk;
	struct bio *bp = bq->bq_cur;
	int error = 0;

	rq->rq_offset = bp->bio_offset + bq->bq_cur_off;
	rq->rq_nsegs = 0;
	rq->rq_length = 0;
	rq->rq_rest = 0;
	rq->rq_unready = false;
	rq->rq_requeues = 0;
	switch (bp->bio_cmd) {
	case BIO_READ:
	case BIO_WRITE:
		rq->rq_cmd = bp->bio_cmd == BIO_READ ? PV_BLK_READ : PV_BLK_WRITE;
		error = pv_blk_load(bq, rq, bp, bq->bq_cur_off, bp->bio_bcount);
		break;
	case BIO_DELETE:
		rq->rq_cmd = PV_BLK_DELETE;
		/* The device may have been another when the bio came. */
		if (blk->blk_params.bp_delete_size == 0)
			return (EOPNOTSUPP);
		rq->rq_length = MIN((uint64_t)bp->bio_bcount - bq->bq_cur_off,
		    blk->blk_params.bp_delete_size);
		break;
	default:
		rq->rq_cmd = PV_BLK_FLUSH;
		break;
	}
	return (error);
}

/* What was requeued may be for a device that has less to offer than the one before it. */
static bool
pv_blk_still(const struct pv_blk_queue *bq, const struct pv_blk_req *rq, int *error)
{
	*error = rq->rq_cmd == PV_BLK_DELETE ? EOPNOTSUPP : 0;
	if (rq->rq_cmd == PV_BLK_FLUSH)
		return ((bq->bq_flags & PVB_WRITETHROUGH) == 0);
	return (rq->rq_cmd != PV_BLK_DELETE || bq->bq_blk->blk_params.bp_delete_size != 0);
}

/* What is ready may be longer than this device takes, or the rest of such a request. */
static int
pv_blk_fit(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	struct bio *bp = rq->rq_bio;
	size_t off = rq->rq_offset - bp->bio_offset, whole = rq->rq_length + rq->rq_rest;
	int error;

	if ((rq->rq_cmd != PV_BLK_READ && rq->rq_cmd != PV_BLK_WRITE) ||
	    (!rq->rq_unready && rq->rq_length <= bq->bq_blk->blk_params.bp_max_size))
		return (0);
	pv_blk_unload(bq->bq_blk, rq);
	rq->rq_nsegs = 0;
	error = pv_blk_load(bq, rq, bp, off, off + whole);
	rq->rq_unready = error != 0;
	if (error != 0)
		rq->rq_length = whole;
	rq->rq_rest = whole - rq->rq_length;
	return (error);
}

/* The piece of rq is done: if there is a rest, makes that ready and returns true. */
static bool
pv_blk_go_on(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	if (rq->rq_rest == 0)
		return (false);
	rq->rq_offset += rq->rq_length;
	rq->rq_length = rq->rq_rest;
	rq->rq_rest = 0;
	rq->rq_unready = true;
	rq->rq_reported = false;
	rq->rq_requeues = 0;
	bq->bq_stats.bs_splits++;
	TAILQ_INSERT_HEAD(&bq->bq_ready, rq, rq_link);
	return (true);
}

void
pv_blk_end(struct pv_blk_queue *bq, struct pv_blk_req *rq, int error)
{
	struct bio *bp = rq->rq_bio;

	PV_BLK_QUEUE_ASSERT(bq);
	if (bp == NULL) {
		rq->rq_error = error;
		rq->rq_done = true;
		return;
	}
	if (error != 0)
		pv_blk_bio_fail(bp, error);
	else {
		pv_blk_bio_moved(bp, rq->rq_length);
		if (pv_blk_go_on(bq, rq))
			return;
	}
	pv_blk_req_free(bq, rq);
	pv_blk_bio_release(bq, bp);
}

/* Memory is short: true if error says so, and that it will be tried again. */
static bool
pv_blk_short_of_memory(struct pv_blk_queue *bq, int error)
{
	if (error != ENOMEM && error != EINPROGRESS)
		return (false);
	bq->bq_stats.bs_nomem++;
	pv_blk_arm_tick(bq, false);
	return (true);
}

struct pv_blk_req *
pv_blk_next(struct pv_blk_queue *bq)
{
	struct pv_blk_req *rq;
	struct bio *bp;
	int error;

	while ((rq = TAILQ_FIRST(&bq->bq_ready)) != NULL) {
		TAILQ_REMOVE(&bq->bq_ready, rq, rq_link);
		if (pv_blk_still(bq, rq, &error)) {
			error = pv_blk_fit(bq, rq);
			if (error == 0)
				return (rq);
			if (pv_blk_short_of_memory(bq, error)) {
				TAILQ_INSERT_HEAD(&bq->bq_ready, rq, rq_link);
				return (NULL);
			}
		}
		pv_blk_end(bq, rq, error);
	}
	while ((bp = bq->bq_cur) != NULL || (bp = pv_blk_begin(bq)) != NULL) {
		if ((bp->bio_flags & BIO_ERROR) != 0 ||
		    (bp->bio_cmd == BIO_FLUSH ? (bq->bq_flags & PVB_WRITETHROUGH) != 0 :
		    bp->bio_bcount == 0)) {
			pv_blk_cur_end(bq);
			continue;
		}
		rq = TAILQ_FIRST(&bq->bq_free);
		if (rq == NULL)
			return (NULL);
		error = pv_blk_cut(bq, rq);
		if (pv_blk_short_of_memory(bq, error))
			return (NULL);
		if (error != 0) {
			bq->bq_stats.bs_dma_errors++;
			pv_blk_bio_fail(bp, error);
			pv_blk_cur_end(bq);
			continue;
		}
		TAILQ_REMOVE(&bq->bq_free, rq, rq_link);
		rq->rq_bio = bp;
		rq->rq_reported = false;
		if (bq->bq_cur_off != 0)
			bq->bq_stats.bs_splits++;
		bq->bq_cur_off += rq->rq_length;
		if (bq->bq_cur_off < (size_t)bp->bio_bcount)
			atomic_add_long(pv_blk_bio_refs(bp), 1);
		else
			bq->bq_cur = NULL;
		return (rq);
	}
	return (NULL);
}

