/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Requests of pv_blk without interrupts: the disk's identification while it
 * attaches, and kernel dumps (theory statement, locking: pv_blk.h).
 *
 * Both use the one request that is on no list, and the bounce buffer: a dump
 * must not depend on what the kernel was doing when it panicked.  A dump starts
 * by resetting the device, which makes the queues new and takes from them what
 * was in flight (or, where the peer has to take part in a reset, waits for that
 * to be completed); the disk stays in this state.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/ctype.h>

#include <geom/geom_disk.h>

#include <dev/pv/blk/pv_blk_var.h>

#define	PV_BLK_POLL_US		20
/*
 * Waiting for the serial number: briefly without sleeping, then for five
 * seconds at most.
 */
#define	PV_BLK_IDENT_POLLS	500
#define	PV_BLK_IDENT_SLEEPS	5000	/* of a millisecond */
#define	PV_BLK_DUMP_SECS	30

/* The polled request, ready to be put. */
static struct pv_blk_req *
pv_blk_dump_request(struct pv_blk *blk, enum pv_blk_cmd cmd, off_t offset,
    size_t length)
{
	struct pv_blk_req *rq;

	rq = pv_blk_req_polled(blk, cmd, offset, length);
	pv_dma_sync(&blk->blk_bounce_dma,
	    BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	return (rq);
}

/*
 * Makes a string of n bytes, or of those before a zero.  A byte that is not
 * printable becomes %XX, and so does a %, so that two disks that differ in any
 * byte have different strings.
 */
static void
pv_blk_ident_string(char *ident, size_t size, const u_char *raw, size_t n)
{
	size_t at = 0, i;

	ident[0] = '\0';
	for (i = 0; i < n && raw[i] != 0 && at + 4 <= size; i++)
		at += snprintf(ident + at, size - at,
		    isprint(raw[i]) && raw[i] != '%' ? "%c" : "%%%02X", raw[i]);
}

int
pv_blk_ident(struct pv_blk *blk, char *ident, size_t size)
{
	struct pv_blk_req *rq;
	size_t n;
	int error = 0, tries;

	n = blk->blk_params.bp_ident_size;
	if (n == 0)
		return (0);
	bzero(blk->blk_bounce, n);
	rq = pv_blk_dump_request(blk, PV_BLK_IDENT, 0,
	    blk->blk_params.bp_ident_size);
	pv_blk_queue_put_polled(&blk->blk_queues[0], rq);
	for (tries = 0; error == 0 && !rq->rq_done; tries++) {
		if (tries < PV_BLK_IDENT_POLLS)
			DELAY(PV_BLK_POLL_US);
		else if (tries < PV_BLK_IDENT_POLLS + PV_BLK_IDENT_SLEEPS)
			pause_sbt("pvbid", SBT_1MS, 0, 0);
		else
			error = ETIMEDOUT;
		pv_blk_run(blk);
	}
	if (error == 0)
		error = rq->rq_error;
	pv_dma_sync(&blk->blk_bounce_dma,
	    BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
	pv_blk_ident_string(ident, size, (u_char *)blk->blk_bounce,
	    error == 0 ? n : 0);
	return (error);
}

/* One request during a dump, with nothing else in the first queue. */
static int
pv_blk_dump_one(struct pv_blk *blk, enum pv_blk_cmd cmd, off_t offset,
    size_t length)
{
	struct pv_blk_queue *bq = &blk->blk_queues[0];
	struct pv_blk_req *rq;
	struct pvq_done done;
	struct pvq_chain pc;
	uintmax_t seen;
	int error, us;

	rq = pv_blk_dump_request(blk, cmd, offset, length);
	bzero(&pc, sizeof(pc));
	pc.pc_cookie = rq;
	blk->blk_ops->bo_encode(blk, rq, &pc);
	pv_dma_sync(&blk->blk_msg_dma,
	    BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	error = pvq_submit(bq->bq_pvq, &pc);
	if (error != 0)
		return (error);
	for (us = 0; pvq_get(bq->bq_pvq, &done, 1) == 0; us += PV_BLK_POLL_US) {
		if (pvq_broken(bq->bq_pvq))
			return (EIO);
		if (us >= PV_BLK_DUMP_SECS * 1000000)
			return (ETIMEDOUT);
		DELAY(PV_BLK_POLL_US);
	}
	pv_dma_sync(&blk->blk_msg_dma,
	    BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
	error = blk->blk_ops->bo_status(blk, rq, &done, &seen);
	return (error == -1 ? EIO : error);
}

/*
 * Takes a queue as it is: what is in flight ends, and is not delivered.  CPUs
 * were stopped wherever they were, so that its state is not relied on.
 */
static int
pv_blk_dump_take(struct pv_blk_queue *bq)
{
	int us;

	for (us = 0; pvq_forget(bq->bq_pvq) != 0; us += PV_BLK_POLL_US) {
		if (us >= PV_BLK_DUMP_SECS * 1000000)
			return (ETIMEDOUT);
		DELAY(PV_BLK_POLL_US);
	}
	pvq_intr_disable(bq->bq_pvq);
	return (0);
}

/* Makes the first queue ours alone. */
static int
pv_blk_dump_begin(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;
	int error;

	/* Frozen, a device that can't be reset here may have no peer. */
	if (blk->blk_ops->bo_peer != NULL &&
	    (blk->blk_flags & (PVB_FROZEN | PVB_STOPPED)) != 0)
		return (ENXIO);
	blk->blk_flags |= PVB_STOPPED | PVB_DUMPING;
	PV_BLK_FOREACH(blk, bq)
		bq->bq_flags = blk->blk_flags;
	if (blk->blk_ops->bo_peer != NULL)
		return (pv_blk_dump_take(&blk->blk_queues[0]));
	error = blk->blk_ops->bo_stop(blk);
	if (error != 0)
		return (error);
	PV_BLK_FOREACH(blk, bq) {
		if (bq->bq_pvq != NULL)
			(void)pvq_forget(bq->bq_pvq);
	}
	error = blk->blk_ops->bo_restart(blk);
	if (error != 0)
		return (error);
	pv_dev_apply_settings(&blk->blk_pvdev);
	pvq_intr_disable(blk->blk_queues[0].bq_pvq);
	return (0);
}

/*
 * d_dump of disk(9): no locks, no interrupts, no other thread.  A call without
 * data ends the dump, which is when it has to be durable.
 */
int
pv_blk_dump(void *priv, void *virtual, off_t offset, size_t length)
{
	struct disk *dp = priv;
	struct pv_blk *blk = dp->d_drv1;
	const char *p = virtual;
	size_t n;
	int error = 0;

	if ((blk->blk_flags & (PVB_DEAD | PVB_DETACHING)) != 0 ||
	    blk->blk_queues[0].bq_pvq == NULL)
		return (ENXIO);
	if ((blk->blk_flags & PVB_DUMPING) == 0)
		error = pv_blk_dump_begin(blk);
	for (; error == 0 && length > 0; length -= n) {
		n = MIN(length,
		    MIN(blk->blk_bounce_size, blk->blk_params.bp_max_size));
		memcpy(blk->blk_bounce, p, n);
		error = pv_blk_dump_one(blk, PV_BLK_WRITE, offset, n);
		p += n;
		offset += n;
	}
	if (error == 0 && virtual == NULL &&
	    (blk->blk_params.bp_flags & PV_BLK_CACHED) != 0 &&
	    (blk->blk_flags & PVB_WRITETHROUGH) == 0)
		error = pv_blk_dump_one(blk, PV_BLK_FLUSH, 0, 0);
	return (error);
}
