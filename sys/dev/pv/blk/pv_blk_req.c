/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What pv_blk makes of a bio: requests, each a piece of it with its memory
 * ready for the device; and what is printed of them, ten times a queue (theory
 * statement, locking: pv_blk.h).
 *
 * All memory of requests is allocated when a disk comes: none is between a bio
 * and the ring.  A request that there is no memory for is not made; what there
 * is later is used when the disk is started again (pv_blk_req_has_more()).  One
 * of each queue, and that for polling, there have to be.  Segments are needed
 * from a request's load until it is put, so that all requests of a home share
 * one list: one for which there was no room is the next to be put, and what is
 * put again is loaded again.
 *
 * Data is made ready in one of three ways: its physical addresses where the
 * device takes them as they are (bp_phys), bus_dma(9), or a copy that the
 * protocol shows to its peer (bpo_load).  A sector that has more segments than
 * a request may goes through the bounce buffer, of which the disk has one.
 *
 * The driver's fields of a bio are used so: bio_driver1 counts its requests
 * that have not ended, and 1 until all of it was cut, which the last piece
 * takes over; bio_driver2 is where cutting goes on when it has to change the
 * queue.  bio_resid is what has not been moved yet.  After a change of the
 * number of queues a bio's requests may be in several, so that these two are
 * changed atomically.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/malloc.h>

#include <vm/vm.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

#include <dev/pv/blk/pv_blk_var.h>
#include <dev/pv/pv_log.h>

MALLOC_DEFINE(M_PVBLK, "pv_blk", "paravirtual disks");

#define	PV_BLK_BOUNCE_MAX	(64 * 1024)

static const char *const pv_blk_cmd_names[PV_BLK_NCMDS] = {
	[PV_BLK_READ] = "read",
	[PV_BLK_WRITE] = "write",
	[PV_BLK_FLUSH] = "flush",
	[PV_BLK_DELETE] = "delete",
	[PV_BLK_IDENT] = "ident",
	[PV_BLK_QUERY] = "query",
};

void
pv_blk_log_error(struct pv_blk_queue *bq, const struct pv_blk_req *rq,
    int error)
{
	device_t dev = bq->bq_blk->blk_dev;

	PV_BLK_QUEUE_ASSERT(bq);
	if (!PV_LOGS(++bq->bq_failed[rq->rq_cmd]))
		return;
	if (rq->rq_cmd == PV_BLK_FLUSH)
		device_printf(dev,
		    "flush failed, error %d: writes since the last flush may "
		    "be lost\n", error);
	else
		device_printf(dev,
		    "%s failed, error %d: sector %jd, %zu bytes\n",
		    pv_blk_cmd_names[rq->rq_cmd], error,
		    (intmax_t)(rq->rq_offset / DEV_BSIZE), rq->rq_length);
}

/* rq is in flight for age seconds; next says what follows. */
static void
pv_blk_log_age(struct pv_blk_queue *bq, const struct pv_blk_req *rq, u_int age,
    const char *next)
{

	device_printf(bq->bq_blk->blk_dev,
	    "%s of sector %jd, %zu bytes, in %s: no answer for %u "
	    "seconds, %s\n", pv_blk_cmd_names[rq->rq_cmd],
	    (intmax_t)(rq->rq_offset / DEV_BSIZE), rq->rq_length,
	    bq->bq_pvq->q_name, age, next);
}

bool
pv_blk_log_late(struct pv_blk_queue *bq)
{
	struct pv_blk *blk = bq->bq_blk;
	u_int age, late = blk->blk_timeout, stuck = blk->blk_timeout_reset;
	struct pv_blk_req *rq;

	PV_BLK_QUEUE_ASSERT(bq);
	TAILQ_FOREACH(rq, &bq->bq_inflight, rq_link) {
		age = pv_blk_req_age(rq);
		if (stuck != 0 && age >= stuck) {
			/*
			 * It is counted when all queues have been seen, by the
			 * same thread.
			 */
			if (PV_LOGS(blk->blk_stats.bs_timeout_resets + 1))
				pv_blk_log_age(bq, rq, age,
				    (blk->blk_params.bp_flags &
				    PV_BLK_QUEUE_RESET) != 0 ?
				    "resetting the queue"
				    : "resetting the device");
			return (true);
		}
		/* The others were put later. */
		if (late == 0 || age < late)
			break;
		if (rq->rq_reported)
			continue;
		rq->rq_reported = true;
		rq->rq_fast = false;
		if (PV_LOGS(++bq->bq_stats.bs_timeouts))
			pv_blk_log_age(bq, rq, age, "still waiting");
	}
	return (false);
}

static volatile u_long *
pv_blk_bio_refs(struct bio *bp)
{
	return ((volatile u_long *)&bp->bio_driver1);
}

/* Is the only reference ours?  Then no other can be taken. */
static bool
pv_blk_bio_alone(struct bio *bp)
{
	return (atomic_load_acq_long(pv_blk_bio_refs(bp)) == 1);
}

/* Gives a reference back; the last one ends the bio. */
static void
pv_blk_bio_release(struct pv_blk_queue *bq, struct bio *bp)
{
	/*
	 * What this request did to the bio comes before the last one's
	 * biodone().
	 */
	atomic_thread_fence_rel();
	if (!pv_blk_bio_alone(bp) &&
	    atomic_fetchadd_long(pv_blk_bio_refs(bp), -1) != 1)
		return;
	atomic_thread_fence_acq();
	if ((bp->bio_flags & BIO_ERROR) != 0)
		bp->bio_resid = bp->bio_bcount;
	TAILQ_INSERT_TAIL(&bq->bq_finished, bp, bio_queue);
}

static void
pv_blk_bio_moved(struct bio *bp, size_t bytes)
{
	if (pv_blk_bio_alone(bp))
		bp->bio_resid -= bytes;
	else
		atomic_subtract_long((volatile u_long *)&bp->bio_resid, bytes);
}

static void
pv_blk_bio_fail(struct bio *bp, int error)
{
	if ((bp->bio_flags & BIO_ERROR) == 0)
		bp->bio_error = error;
	bp->bio_flags |= BIO_ERROR;
}

void
pv_blk_copy(const struct bio *bp, size_t from, size_t length, char *buf,
    bool to_bio)
{
	size_t done, n, off;
	char *p;

	for (done = 0; done < length; done += n) {
		if ((bp->bio_flags & BIO_UNMAPPED) == 0) {
			n = length;
			p = bp->bio_data + from;
		} else {
			/* A page at a time. */
			off = bp->bio_ma_offset + from + done;
			n = MIN(length - done, PAGE_SIZE - off % PAGE_SIZE);
			p = (char *)pmap_quick_enter_page(bp->bio_ma[off /
			    PAGE_SIZE]) + off % PAGE_SIZE;
		}
		if (to_bio)
			memcpy(p, buf + done, n);
		else
			memcpy(buf + done, p, n);
		if ((bp->bio_flags & BIO_UNMAPPED) != 0)
			pmap_quick_remove_page(trunc_page((vm_offset_t)p));
	}
}

void
pv_blk_req_copy_back(struct pv_blk *blk, struct pv_blk_req *rq)
{
	if (rq->rq_bounced)
		pv_blk_copy(&rq->rq_window, 0, rq->rq_length, blk->blk_bounce,
		    true);
	else
		blk->blk_ops->bo_peer->bpo_unload(blk, rq);
}

static void
pv_blk_unload(struct pv_blk *blk, struct pv_blk_req *rq)
{
	if (rq->rq_loaded) {
		bus_dmamap_unload(pv_blk_dtag(blk, rq), rq->rq_map);
		rq->rq_loaded = false;
	}
	if (rq->rq_copied) {
		if (rq->rq_bounced)
			atomic_store_rel_int(&blk->blk_bounce_busy, 0);
		else
			blk->blk_ops->bo_peer->bpo_release(blk, rq);
		rq->rq_copied = rq->rq_bounced = false;
	}
}

void
pv_blk_req_unready(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	PV_BLK_QUEUE_ASSERT(bq);
	if (rq->rq_bio == NULL)
		return;
	pv_blk_unload(bq->bq_blk, rq);
	rq->rq_unready = true;
}

static void
pv_blk_req_free(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	pv_blk_unload(bq->bq_blk, rq);
	rq->rq_bio = NULL;
	rq->rq_rest = 0;
	rq->rq_unready = rq->rq_reported = rq->rq_fast = false;
	rq->rq_requeues = 0;
	SLIST_INSERT_HEAD(&bq->bq_free, rq, rq_next);
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
pv_blk_window(struct pv_blk_req *rq, const struct bio *bp, size_t off,
    size_t length)
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

int
pv_blk_load_runs(bus_dma_segment_t *segs, int max, bus_size_t seg_max,
    vm_page_t *ma, size_t off, size_t length)
{
	vm_paddr_t pa, next = VM_PAGE_TO_PHYS(*ma) + off;
	size_t run = PAGE_SIZE - off;
	int n = 0;

	for (; length > 0; length -= run, run = PAGE_SIZE) {
		pa = next;
		while (run < length &&
		    (next = VM_PAGE_TO_PHYS(*++ma)) == pa + run)
			run += PAGE_SIZE;
		run = MIN(run, length);
		if (__predict_true(run <= seg_max && n < max)) {
			segs[n].ds_addr = pa;
			segs[n++].ds_len = run;
		} else if ((n = pvq_phys_add_run(segs, n, max, seg_max, pa,
		    run)) < 0)
			break;
	}
	return (n);
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

	error = bus_dmamap_load_bio(pv_blk_dtag(blk, rq), rq->rq_map,
	    &rq->rq_window, pv_blk_load_cb, rq, BUS_DMA_NOWAIT);
	if (error == 0)
		error = rq->rq_error;
	rq->rq_loaded = error == 0;
	if (error != 0)
		bus_dmamap_unload(pv_blk_dtag(blk, rq), rq->rq_map);
	return (error);
}

/* Makes the first length bytes of the bounce buffer rq's segments. */
static void
pv_blk_bounce_segs(struct pv_blk *blk, struct pv_blk_req *rq, size_t length)
{
	size_t off, n;

	rq->rq_nsegs = 0;
	for (off = 0; off < length; off += n) {
		n = MIN(length - off, blk->blk_params.bp_seg_size);
		rq->rq_segs[1 + rq->rq_nsegs].ds_addr =
		    blk->blk_bounce_dma.pdm_addr + off;
		rq->rq_segs[1 + rq->rq_nsegs].ds_len = n;
		rq->rq_nsegs++;
	}
}

/*
 * One sector has more segments than a request may: it goes through the bounce
 * buffer.
 */
static int
pv_blk_load_bounce(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	struct pv_blk *blk = bq->bq_blk;

	if (atomic_cmpset_acq_int(&blk->blk_bounce_busy, 0, 1) == 0)
		return (ENOMEM);
	rq->rq_copied = rq->rq_bounced = true;
	pv_blk_bounce_segs(blk, rq, rq->rq_length);
	if (rq->rq_cmd == PV_BLK_WRITE)
		pv_blk_copy(&rq->rq_window, 0, rq->rq_length, blk->blk_bounce,
		    false);
	bq->bq_stats.bs_bounced++;
	return (0);
}

/*
 * How many segments of data should a request have?  More only if it is a
 * sector.
 */
static u_int
pv_blk_fair_segs(const struct pv_blk_queue *bq)
{
	const u_int segs = pvq_fair_segs(bq->bq_pvq);

	/* The protocol has one before them and one behind. */
	return (MIN(bq->bq_blk->blk_params.bp_max_segs, MAX(segs, 3) - 2));
}

/*
 * The next length to try after one that had too many segments: first what
 * always fits when each page is a segment, then by halves, as segments may be
 * smaller than pages.
 */
static size_t
pv_blk_shorter(const struct pv_blk *blk, size_t length, u_int segs)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	size_t fits;

	fits = (size_t)(segs - 1) * MIN(bp->bp_seg_size, PAGE_SIZE);
	if (fits >= length)
		fits = length / 2;
	return (MAX(rounddown2(fits, bp->bp_sectorsize), bp->bp_sectorsize));
}

/*
 * Loads length bytes of bp or less, trying one way after the other; returns as
 * pv_blk_load().
 */
static __noinline int
pv_blk_load_slow(struct pv_blk_queue *bq, struct pv_blk_req *rq,
    const struct bio *bp, size_t off, size_t length)
{
	struct pv_blk *blk = bq->bq_blk;
	u_int fair;
	int error;

	rq->rq_nsegs = 0;
	if (blk->blk_ops->bo_peer != NULL) {
		pv_blk_window(rq, bp, off, length);
		error = blk->blk_ops->bo_peer->bpo_load(blk, rq);
		rq->rq_copied = error == 0;
		return (error);
	}
	fair = pv_blk_fair_segs(bq);
	for (;;) {
		pv_blk_window(rq, bp, off, length);
		rq->rq_length = length;
		error = blk->blk_params.bp_phys ? pv_blk_load_phys(blk, rq, bp,
		    off, length, blk->blk_params.bp_max_segs) :
		    pv_blk_load_dma(blk, rq);
		if (error == 0 && (u_int)rq->rq_nsegs > fair &&
		    length > blk->blk_params.bp_sectorsize) {
			pv_blk_unload(blk, rq);
			error = EFBIG;
		}
		if (error != EFBIG)
			return (error);
		if (length == blk->blk_params.bp_sectorsize)
			return (pv_blk_load_bounce(bq, rq));
		length = pv_blk_shorter(blk, length, fair);
	}
}

/*
 * Loads a piece of bp from off on, up to end and as long as one request can be.
 *
 * Returns 0; ENOMEM if memory (or the bounce buffer) is short now; or an error
 * of bus_dma(9).
 */
static __always_inline int
pv_blk_load(struct pv_blk_queue *bq, struct pv_blk_req *rq,
    const struct bio *bp, size_t off, size_t end)
{
	struct pv_blk *blk = bq->bq_blk;
	size_t length;

	rq->rq_length = length = MIN(end - off, blk->blk_params.bp_max_size);
	if (blk->blk_params.bp_phys) {
		if (pv_blk_load_phys(blk, rq, bp, off, length,
		    pv_blk_fair_segs(bq)) == 0)
			return (0);
		rq->rq_length = pv_blk_loaded_part(blk, rq);
		if (rq->rq_length != 0)
			return (0);
	}
	return (pv_blk_load_slow(bq, rq, bp, off, length));
}

/*
 * Begins the next bio of the queue, or goes on with one that was begun in
 * another: bq_cur, or NULL.
 */
static struct bio *
pv_blk_begin(struct pv_blk_queue *bq)
{
	struct bio *bp;

	bp = TAILQ_FIRST(&bq->bq_bios);
	if (bp == NULL)
		return (NULL);
	TAILQ_REMOVE(&bq->bq_bios, bp, bio_queue);
	bq->bq_cur = bp;
	bq->bq_cur_off = (uintptr_t)bp->bio_driver2;
	return (bp);
}

/* Cuts no more from bq_cur. */
static void
pv_blk_cur_end(struct pv_blk_queue *bq)
{
	struct bio *bp = bq->bq_cur;

	bq->bq_cur = NULL;
	pv_blk_bio_release(bq, bp);
}

void
pv_blk_req_unhold(struct pv_blk_queue *bq)
{
	TAILQ_CONCAT(&bq->bq_deletes, &bq->bq_bios, bio_queue);
	TAILQ_SWAP(&bq->bq_deletes, &bq->bq_bios, bio, bio_queue);
}

/*
 * Has rq, which deletes the end of one bio, delete those that follow it as
 * well, as far as it can.
 */
static void
pv_blk_gather(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	const struct pv_blk_params *params = &bq->bq_blk->blk_params;
	/*
	 * The limit is of a range (VirtIO 1.3, 5.2.4), and we keep to it for
	 * all of them together.
	 */
	uint64_t room = params->bp_delete_size - rq->rq_length;
	struct bio *bp;

	while (rq->rq_nmore + 1 < params->bp_delete_ranges &&
	    (bp = TAILQ_FIRST(&bq->bq_bios)) != NULL &&
	    bp->bio_cmd == BIO_DELETE && pv_blk_bio_alone(bp) &&
	    bp->bio_driver2 == NULL && bp->bio_bcount > 0 &&
	    (uint64_t)bp->bio_bcount <= room) {
		TAILQ_REMOVE(&bq->bq_bios, bp, bio_queue);
		TAILQ_INSERT_TAIL(&rq->rq_more, bp, bio_queue);
		rq->rq_nmore++;
		room -= bp->bio_bcount;
	}
	bq->bq_stats.bs_merged_deletes += rq->rq_nmore;
}

/*
 * How much of `left' bytes from offset on does one request delete?  All, or up
 * to where a unit ends.
 */
static uint64_t
pv_blk_delete_piece(const struct pv_blk_params *params, uint64_t offset,
    uint64_t left)
{
	const uint64_t size = params->bp_delete_size;
	uint64_t over;

	if (left <= size)
		return (left);
	over = (offset + size + params->bp_delete_align -
	    params->bp_delete_first) % params->bp_delete_align;
	/* A unit may be more than a request deletes. */
	return (over < size ? size - over : size);
}

/*
 * Has rq delete the next piece of bq_cur: 0; EBUSY if that has to be held back;
 * EOPNOTSUPP.
 */
static int
pv_blk_cut_delete(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	const struct pv_blk_params *params = &bq->bq_blk->blk_params;
	uint64_t left = (uint64_t)bq->bq_cur->bio_bcount - bq->bq_cur_off;

	/* The device may have been another when the bio came. */
	if (params->bp_delete_size == 0)
		return (EOPNOTSUPP);
	if (params->bp_delete_ranges > 1 && bq->bq_ndeletes > 0)
		return (EBUSY);
	rq->rq_cmd = PV_BLK_DELETE;
	rq->rq_nsegs = 0;
	rq->rq_length = pv_blk_delete_piece(params, rq->rq_offset, left);
	TAILQ_INIT(&rq->rq_more);
	rq->rq_nmore = 0;
	bq->bq_ndeletes++;
	if (bq->bq_singly > 0)
		bq->bq_singly--;
	else if (rq->rq_length == left)
		pv_blk_gather(bq, rq);
	return (0);
}

/* A request that deletes has ended: so have the further bios of it. */
static void
pv_blk_end_delete(struct pv_blk_queue *bq, struct pv_blk_req *rq, int error)
{
	struct bio *bp;

	bq->bq_ndeletes--;
	pv_blk_req_unhold(bq);
	while ((bp = TAILQ_FIRST(&rq->rq_more)) != NULL) {
		TAILQ_REMOVE(&rq->rq_more, bp, bio_queue);
		if (error != 0)
			pv_blk_bio_fail(bp, error);
		else
			pv_blk_bio_moved(bp, bp->bio_bcount);
		pv_blk_bio_release(bq, bp);
	}
	rq->rq_nmore = 0;
}

void
pv_blk_req_singly(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	struct bio *bp;

	PV_BLK_QUEUE_ASSERT(bq);
	KASSERT(rq->rq_cmd == PV_BLK_DELETE,
	    ("%s: command %d", __func__, rq->rq_cmd));
	bq->bq_ndeletes--;
	bq->bq_singly = rq->rq_nmore + 1;
	pv_blk_req_unhold(bq);
	while ((bp = TAILQ_LAST(&rq->rq_more, pv_blk_bios)) != NULL) {
		TAILQ_REMOVE(&rq->rq_more, bp, bio_queue);
		TAILQ_INSERT_HEAD(&bq->bq_bios, bp, bio_queue);
	}
	rq->rq_nmore = 0;
	bp = rq->rq_bio;
	bp->bio_driver2 = (void *)(uintptr_t)(rq->rq_offset - bp->bio_offset);
	TAILQ_INSERT_HEAD(&bq->bq_bios, bp, bio_queue);
	pv_blk_req_free(bq, rq);
}

/* Fills rq with the next piece of bq_cur: 0, or why not. */
static int
pv_blk_cut(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	struct bio *bp = bq->bq_cur;
	int error = 0;

	rq->rq_offset = bp->bio_offset + bq->bq_cur_off;
	switch (bp->bio_cmd) {
	case BIO_READ:
	case BIO_WRITE:
		rq->rq_cmd = bp->bio_cmd == BIO_READ ? PV_BLK_READ :
		    PV_BLK_WRITE;
		error = pv_blk_load(bq, rq, bp, bq->bq_cur_off, bp->bio_bcount);
		break;
	case BIO_DELETE:
		error = pv_blk_cut_delete(bq, rq);
		break;
	case PV_BLK_BIO_QUERY:
		rq->rq_cmd = PV_BLK_QUERY;
		rq->rq_nsegs = 0;
		rq->rq_length = bp->bio_bcount;
		break;
	default:
		rq->rq_cmd = PV_BLK_FLUSH;
		rq->rq_nsegs = 0;
		rq->rq_length = 0;
		break;
	}
	return (error);
}

/*
 * A requeued request may be for a device that offers less than the one before
 * it.
 */
static bool
pv_blk_still(const struct pv_blk_queue *bq, const struct pv_blk_req *rq,
    int *error)
{
	*error = rq->rq_cmd == PV_BLK_DELETE ? EOPNOTSUPP : 0;
	if (rq->rq_cmd == PV_BLK_FLUSH)
		return ((bq->bq_flags & PVB_WRITETHROUGH) == 0);
	return (rq->rq_cmd != PV_BLK_DELETE ||
	    bq->bq_blk->blk_params.bp_delete_size != 0);
}

/*
 * Loads the data of a request again that another device had: this one may take
 * less of it, so that there is a rest.
 */
static int
pv_blk_fit(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	size_t off, whole = rq->rq_length + rq->rq_rest;
	int error;

	/* A polled request, which has no bio, stays ready. */
	if (!rq->rq_unready ||
	    (rq->rq_cmd != PV_BLK_READ && rq->rq_cmd != PV_BLK_WRITE))
		return (0);
	off = rq->rq_offset - rq->rq_bio->bio_offset;
	pv_blk_unload(bq->bq_blk, rq);
	error = pv_blk_load(bq, rq, rq->rq_bio, off, off + whole);
	rq->rq_unready = error != 0;
	if (error != 0)
		rq->rq_length = whole;
	rq->rq_rest = whole - rq->rq_length;
	return (error);
}

/*
 * The piece of rq is done: if there is a rest, makes that ready and returns
 * true.
 */
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
pv_blk_req_end(struct pv_blk_queue *bq, struct pv_blk_req *rq, int error)
{
	struct bio *bp = rq->rq_bio;

	PV_BLK_QUEUE_ASSERT(bq);
	if (bp == NULL) {
		rq->rq_error = error;
		rq->rq_done = true;
		return;
	}
	if (__predict_false(rq->rq_cmd == PV_BLK_DELETE))
		pv_blk_end_delete(bq, rq, error);
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

/* Is memory short now? */
static bool
pv_blk_short_of_memory(struct pv_blk_queue *bq, int error)
{
	if (error != ENOMEM && error != EINPROGRESS)
		return (false);
	bq->bq_stats.bs_nomem++;
	bq->bq_short = true;
	return (true);
}

/* As pv_blk_req_next(), of the ready requests. */
static __noinline struct pv_blk_req *
pv_blk_next_ready(struct pv_blk_queue *bq)
{
	struct pv_blk_req *rq;
	int error;

	while ((rq = TAILQ_FIRST(&bq->bq_ready)) != NULL) {
		TAILQ_REMOVE(&bq->bq_ready, rq, rq_link);
		if (pv_blk_still(bq, rq, &error)) {
			error = pv_blk_fit(bq, rq);
			if (error == 0)
				break;
			if (pv_blk_short_of_memory(bq, error)) {
				TAILQ_INSERT_HEAD(&bq->bq_ready, rq, rq_link);
				return (NULL);
			}
		}
		pv_blk_req_end(bq, rq, error);
	}
	return (rq);
}

/*
 * Is nothing to be done for bp?  It failed, or is empty, or a flush of what is
 * not cached.
 */
static inline bool
pv_blk_needs_nothing(const struct pv_blk_queue *bq, const struct bio *bp)
{
	return ((bp->bio_flags & BIO_ERROR) != 0 ||
	    (bp->bio_cmd == BIO_FLUSH ? (bq->bq_flags & PVB_WRITETHROUGH) != 0 :
	    bp->bio_bcount == 0));
}

struct pv_blk_req *
pv_blk_req_next(struct pv_blk_queue *bq)
{
	struct pv_blk_req *rq;
	struct bio *bp;
	int error;

	if (__predict_false(!TAILQ_EMPTY(&bq->bq_ready))) {
		rq = pv_blk_next_ready(bq);
		if (rq != NULL || bq->bq_short)
			return (rq);
	}
	while ((bp = bq->bq_cur) != NULL || (bp = pv_blk_begin(bq)) != NULL) {
		if (pv_blk_needs_nothing(bq, bp)) {
			pv_blk_cur_end(bq);
			continue;
		}
		rq = SLIST_FIRST(&bq->bq_free);
		if (rq == NULL)
			return (NULL);
		error = pv_blk_cut(bq, rq);
		if (error == 0)
			break;
		if (error == EBUSY) {
			bp->bio_driver2 = (void *)bq->bq_cur_off;
			TAILQ_INSERT_TAIL(&bq->bq_deletes, bp, bio_queue);
			bq->bq_cur = NULL;
			continue;
		}
		if (pv_blk_short_of_memory(bq, error))
			return (NULL);
		bq->bq_stats.bs_dma_errors++;
		pv_blk_bio_fail(bp, error);
		pv_blk_cur_end(bq);
	}
	if (bp == NULL)
		return (NULL);
	SLIST_REMOVE_HEAD(&bq->bq_free, rq_next);
	rq->rq_bio = bp;
	if (bq->bq_cur_off != 0)
		bq->bq_stats.bs_splits++;
	bq->bq_cur_off += rq->rq_length;
	if (bq->bq_cur_off < (size_t)bp->bio_bcount)
		atomic_add_long(pv_blk_bio_refs(bp), 1);
	else
		bq->bq_cur = NULL;
	return (rq);
}

void
pv_blk_req_fail(struct pv_blk_queue *bq, int error)
{
	struct pv_blk_req *rq;
	struct bio *bp;

	PV_BLK_QUEUE_ASSERT(bq);
	while ((rq = TAILQ_FIRST(&bq->bq_ready)) != NULL) {
		TAILQ_REMOVE(&bq->bq_ready, rq, rq_link);
		pv_blk_req_end(bq, rq, error);
	}
	pv_blk_req_unhold(bq);
	/*
	 * One that was moved here partly cut may have requests in flight, which
	 * end it.
	 */
	while ((bp = bq->bq_cur) != NULL || (bp = pv_blk_begin(bq)) != NULL) {
		pv_blk_bio_fail(bp, error);
		pv_blk_cur_end(bq);
	}
}

struct pv_blk_req *
pv_blk_req_polled(struct pv_blk *blk, enum pv_blk_cmd cmd, off_t offset,
    size_t length)
{
	struct pv_blk_req *rq = &blk->blk_reqs[pv_blk_nreqs(blk)];
	struct bio *w = &rq->rq_window;

	rq->rq_bio = NULL;
	rq->rq_cmd = cmd;
	rq->rq_offset = offset;
	rq->rq_length = length;
	rq->rq_done = false;
	rq->rq_error = 0;
	rq->rq_nsegs = 0;
	w->bio_flags = 0;
	w->bio_bcount = length;
	w->bio_data = blk->blk_bounce;
	rq->rq_copied = length != 0 && blk->blk_ops->bo_peer != NULL;
	if (rq->rq_copied)
		(void)blk->blk_ops->bo_peer->bpo_load(blk, rq);
	else
		pv_blk_bounce_segs(blk, rq, length);
	return (rq);
}

/* Is data loaded by bus_dma(9)? */
static bool
pv_blk_maps(const struct pv_blk *blk)
{
	return (!blk->blk_params.bp_phys && blk->blk_ops->bo_peer == NULL);
}

static int
pv_blk_alloc_tags(struct pv_blk *blk)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	struct pv_blk_queue *bq;
	int error = 0;

	PV_BLK_FOREACH(blk, bq) {
		if (error == 0 && pv_blk_maps(blk))
			error =
			    bus_dma_tag_create(bus_get_dma_tag(blk->blk_dev),
			    1, 0, BUS_SPACE_MAXADDR, BUS_SPACE_MAXADDR,
			    NULL, NULL, bp->bp_max_size, (int)bp->bp_max_segs,
			    bp->bp_seg_size, BUS_DMA_ALLOCNOW, NULL, NULL,
			    &bq->bq_dtag);
	}
	return (error);
}

/*
 * Memory for the messages of all requests, or half as many ..., but more than
 * least; of how many?
 */
static u_int
pv_blk_alloc_msgs(struct pv_blk *blk, struct pv_dma *dma, u_int least)
{
	return (pv_dma_alloc_some(dma, bus_get_dma_tag(blk->blk_dev),
	    blk->blk_params.bp_msgsize, pv_blk_nreqs(blk) + 1, least + 1,
	    PAGE_SIZE));
}

/* The bounce buffer: of a page, or a sector, at least. */
static int
pv_blk_alloc_bounce(struct pv_blk *blk)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	size_t least = MAX(PAGE_SIZE, bp->bp_sectorsize), size;
	int error;

	size = MIN(bp->bp_max_size, MAX(PV_BLK_BOUNCE_MAX, bp->bp_sectorsize));
	if (blk->blk_ops->bo_peer != NULL)
		size = MIN(size, blk->blk_ops->bo_peer->bpo_polled_size);
	while ((error = pv_dma_alloc(&blk->blk_bounce_dma,
	    bus_get_dma_tag(blk->blk_dev), size, PAGE_SIZE)) == ENOMEM &&
	    size > least)
		size = MAX(rounddown2(size / 2, bp->bp_sectorsize), least);
	blk->blk_bounce_size = size;
	blk->blk_bounce = blk->blk_bounce_dma.pdm_mem;
	return (error);
}

/* Elements of rq_segs.  A peer's request has no data there. */
static u_int
pv_blk_nsegs(const struct pv_blk *blk)
{
	return ((blk->blk_ops->bo_peer == NULL ? blk->blk_params.bp_max_segs :
	    0) + 2);
}

/*
 * The nth request that is made: the one for polling, then one of each queue,
 * and so on.
 */
static struct pv_blk_req *
pv_blk_nth(struct pv_blk *blk, u_int n)
{
	const u_int nqueues = blk->blk_params.bp_nqueues;

	return (&blk->blk_reqs[n == 0 ? pv_blk_nreqs(blk) :
	    (n - 1) % nqueues * blk->blk_params.bp_nreqs + (n - 1) / nqueues]);
}

static void
pv_blk_set_msg(struct pv_blk *blk, u_int n)
{
	const size_t off = n * blk->blk_params.bp_msgsize;
	struct pv_blk_req *rq = pv_blk_nth(blk, n);

	rq->rq_msg = (char *)blk->blk_msg_dma.pdm_mem + off;
	rq->rq_msg_paddr = blk->blk_msg_dma.pdm_addr + off;
	rq->rq_form = 0;
}

/*
 * Makes requests as long as there are messages and maps for them; the queues
 * are not in use.
 */
static void
pv_blk_make(struct pv_blk *blk)
{
	struct pv_blk_req *rq;
	u_int n;

	for (n = blk->blk_nmade; n < blk->blk_nmsgs; n++) {
		rq = pv_blk_nth(blk, n);
		rq->rq_home = n == 0 ? 0 : (n - 1) % blk->blk_params.bp_nqueues;
		if (pv_blk_maps(blk) && bus_dmamap_create(pv_blk_dtag(blk, rq),
		    0, &rq->rq_map) != 0)
			break;
		rq->rq_segs = blk->blk_segs + (n == 0 ?
		    blk->blk_params.bp_nqueues :
		    rq->rq_home) * pv_blk_nsegs(blk);
		pv_blk_set_msg(blk, n);
		if (n != 0)
			SLIST_INSERT_HEAD(&blk->blk_queues[rq->rq_home %
			    blk->blk_nactive].bq_free, rq, rq_next);
	}
	blk->blk_nmade = n;
	/* One is for polling. */
	pv_dev_set_short(&blk->blk_pvdev, PV_DEV_REQUESTS, n == 0 ? 0 : n - 1,
	    pv_blk_nreqs(blk));
}

int
pv_blk_req_init(struct pv_blk *blk)
{
	const u_int n = pv_blk_nreqs(blk) + 1;
	int error;

	error = pv_blk_alloc_tags(blk);
	if (error == 0)
		error = pv_blk_alloc_bounce(blk);
	if (error != 0)
		return (error);
	blk->blk_reqs = mallocarray(n, sizeof(*blk->blk_reqs), M_PVBLK,
	    M_WAITOK | M_ZERO);
	blk->blk_segs = mallocarray(blk->blk_params.bp_nqueues + 1,
	    pv_blk_nsegs(blk) * sizeof(*blk->blk_segs), M_PVBLK,
	    M_WAITOK | M_ZERO);
	blk->blk_nmsgs = pv_blk_alloc_msgs(blk, &blk->blk_msg_dma,
	    blk->blk_params.bp_nqueues);
	pv_blk_make(blk);
	return (blk->blk_nmade <= blk->blk_params.bp_nqueues ? ENOMEM : 0);
}

bool
pv_blk_req_has_more(struct pv_blk *blk)
{
	struct pv_blk_req *rq = pv_blk_nth(blk, blk->blk_nmade);
	bus_dmamap_t map;

	if (!pv_dev_is_short(&blk->blk_pvdev, PV_DEV_REQUESTS))
		return (false);
	if (blk->blk_nmade == blk->blk_nmsgs) {
		if (blk->blk_nspare == 0)
			blk->blk_nspare = pv_blk_alloc_msgs(blk,
			    &blk->blk_spare_dma, blk->blk_nmsgs);
		return (blk->blk_nspare != 0);
	}
	/* There were no maps. */
	if (bus_dmamap_create(pv_blk_dtag(blk, rq), 0, &map) != 0)
		return (false);
	bus_dmamap_destroy(pv_blk_dtag(blk, rq), map);
	return (true);
}

void
pv_blk_req_more(struct pv_blk *blk)
{
	struct pv_dma old = blk->blk_msg_dma;
	u_int i;

	if (!pv_dev_is_short(&blk->blk_pvdev, PV_DEV_REQUESTS))
		return;
	if (blk->blk_nspare != 0) {
		blk->blk_msg_dma = blk->blk_spare_dma;
		bzero(&blk->blk_spare_dma, sizeof(blk->blk_spare_dma));
		blk->blk_nmsgs = blk->blk_nspare;
		blk->blk_nspare = 0;
		for (i = 0; i < blk->blk_nmade; i++)
			pv_blk_set_msg(blk, i);
		/* Not before: a dump may begin at any moment. */
		pv_dma_free(&old);
	}
	pv_blk_make(blk);
}

void
pv_blk_req_fini(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;
	u_int i;

	for (i = 0; blk->blk_reqs != NULL && i <= pv_blk_nreqs(blk); i++) {
		/* rq_segs is set after the map was made, which may be NULL. */
		if (blk->blk_reqs[i].rq_segs != NULL && pv_blk_maps(blk))
			bus_dmamap_destroy(pv_blk_dtag(blk, &blk->blk_reqs[i]),
			    blk->blk_reqs[i].rq_map);
	}
	free(blk->blk_segs, M_PVBLK);
	free(blk->blk_reqs, M_PVBLK);
	if ((blk->blk_flags & PVB_LEAK) != 0)
		device_printf(blk->blk_dev,
		    "the device did not release its memory: leaking it\n");
	else {
		pv_dma_free(&blk->blk_bounce_dma);
		pv_dma_free(&blk->blk_msg_dma);
	}
	pv_dma_free(&blk->blk_spare_dma);
	PV_BLK_FOREACH(blk, bq) {
		if (bq->bq_dtag != NULL)
			bus_dma_tag_destroy(bq->bq_dtag);
	}
}
