/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Bios of the driver's own, which go the way of all others (theory statement, locking: pv_blk.h).
 *
 * Both are part of struct pv_blk, so that they need no memory, and there is one of each at a time.
 * When the disk is detached they end with what is queued or in flight, before pv_blk_detach() returns.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>

#include <dev/pv/blk/pv_blk_var.h>

static void
pv_blk_own_submit(struct pv_blk *blk, struct bio *bp, int cmd, int flags, void *data, size_t size,
    void (*done)(struct bio *))
{
	bzero(bp, sizeof(*bp));
	bp->bio_cmd = cmd;
	bp->bio_flags = flags;
	bp->bio_data = data;
	bp->bio_length = bp->bio_bcount = size;
	bp->bio_done = done;
	bp->bio_caller1 = blk;
	pv_blk_bio_init(bp);
	pv_blk_submit(blk, bp);
}

/*
 * The last flush is done: what the device had cached is durable, unless it failed, or the device was
 * set to write back and through once more meanwhile.
 */
static void
pv_blk_emptied(struct bio *bp)
{
	struct pv_blk *blk = bp->bio_caller1;
	bool again;

	PV_BLK_LOCK(blk);
	again = blk->blk_through && blk->blk_empty_again;
	blk->blk_empty_again = false;
	blk->blk_emptying = again;
	if (blk->blk_through && !again && (bp->bio_flags & BIO_ERROR) == 0)
		pv_blk_set_flags(blk, PVB_WRITETHROUGH, 0);
	PV_BLK_UNLOCK(blk);
	if (again)
		pv_blk_own_submit(blk, bp, BIO_FLUSH, BIO_ORDERED, NULL, 0, pv_blk_emptied);
}

void
pv_blk_set_writethrough(struct pv_blk *blk, bool on)
{
	PV_BLK_LOCK(blk);
	blk->blk_through = on;
	blk->blk_empty_again = false;
	pv_blk_set_flags(blk, on ? PVB_WRITETHROUGH : 0, on ? 0 : PVB_WRITETHROUGH);
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_end_caching(struct pv_blk *blk)
{
	bool start;

	PV_BLK_LOCK(blk);
	if ((blk->blk_flags & PVB_WRITETHROUGH) != 0 || blk->blk_disk == NULL ||
	    (blk->blk_params.bp_flags & PV_BLK_CACHED) == 0) {
		PV_BLK_UNLOCK(blk);
		pv_blk_set_writethrough(blk, true);
		return;
	}
	blk->blk_through = true;
	start = !blk->blk_emptying;
	blk->blk_emptying = true;
	blk->blk_empty_again = !start;
	PV_BLK_UNLOCK(blk);
	/* A barrier: what was in flight when the device changed its mode may be in its cache too. */
	if (start)
		pv_blk_own_submit(blk, &blk->blk_last_flush, BIO_FLUSH, BIO_ORDERED, NULL, 0,
		    pv_blk_emptied);
}

static void
pv_blk_answered(struct bio *bp)
{
	struct pv_blk *blk = bp->bio_caller1;

	PV_BLK_LOCK(blk);
	blk->blk_querying = blk->blk_query_late = false;
	wakeup(&blk->blk_query);
	PV_BLK_UNLOCK(blk);
}

int
pv_blk_query(struct pv_blk *blk, void *buf, size_t size, u_int secs)
{
	struct bio *bp = &blk->blk_query;
	int error = 0;

	KASSERT(size != 0 && size <= sizeof(blk->blk_answer), ("%s: %zu bytes", __func__, size));
	PV_BLK_LOCK(blk);
	while (blk->blk_querying && !blk->blk_query_late && error == 0)
		error = msleep(bp, &blk->blk_mtx, PRIBIO, "pvblkq", secs * hz);
	if (blk->blk_querying) {
		PV_BLK_UNLOCK(blk);
		return (EBUSY);
	}
	blk->blk_querying = true;
	PV_BLK_UNLOCK(blk);
	pv_blk_own_submit(blk, bp, PV_BLK_BIO_QUERY, 0, blk->blk_answer, size, pv_blk_answered);
	PV_BLK_LOCK(blk);
	for (error = 0; blk->blk_querying && error == 0;)
		error = msleep(bp, &blk->blk_mtx, PRIBIO, "pvblkq", secs * hz);
	if (blk->blk_querying)
		blk->blk_query_late = true;
	else if ((bp->bio_flags & BIO_ERROR) != 0)
		error = bp->bio_error;
	else {
		memcpy(buf, blk->blk_answer, size);
		error = 0;
	}
	PV_BLK_UNLOCK(blk);
	return (error);
}
