/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The life of a bio apart from the disk it goes to: completion, waiting, and queues of bios
 * (biodone, biowait, biofinish, bioq_*; sys/bio.h), and the error line of a driver (disk_err).
 *
 * A bio without bio_done is waited for with biowait().  BIO_DONE is set and the sleeper woken under
 * one mutex for all bios: a waiting bio costs a sleep anyway.
 *
 * A bio_queue_head is the driver's, under the driver's lock.  A bio with BIO_ORDERED is a barrier in
 * it: bioq_disksort() never moves a bio across one.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/devicestat.h>
#include <sys/disk.h>
#include <sys/lock.h>
#include <sys/mutex.h>

#include <geom/geom_disk.h>

static struct mtx biowait_mtx;
MTX_SYSINIT(biowait, &biowait_mtx, "bio wait", MTX_DEF);

void
biodone(struct bio *bp)
{
	void (*done)(struct bio *) = bp->bio_done;

	if (done != NULL) {
		bp->bio_flags |= BIO_DONE;
		done(bp);
		return;
	}
	mtx_lock(&biowait_mtx);
	bp->bio_flags |= BIO_DONE;
	wakeup(bp);
	mtx_unlock(&biowait_mtx);
}

/* Sleeps until bp is done and returns its error. */
int
biowait(struct bio *bp, const char *wmesg)
{
	mtx_lock(&biowait_mtx);
	while ((bp->bio_flags & BIO_DONE) == 0)
		msleep(bp, &biowait_mtx, PRIBIO, wmesg, 0);
	mtx_unlock(&biowait_mtx);
	if ((bp->bio_flags & BIO_ERROR) == 0)
		return (0);
	return (bp->bio_error != 0 ? bp->bio_error : EIO);
}

/* Ends bp: with an error nothing was moved. */
void
biofinish(struct bio *bp, struct devstat *stat, int error)
{
	if (error != 0) {
		bp->bio_error = error;
		bp->bio_flags |= BIO_ERROR;
		bp->bio_resid = bp->bio_bcount;
	}
	if (stat != NULL)
		devstat_end_transaction_bio(stat, bp);
	biodone(bp);
}

void
bioq_init(struct bio_queue_head *head)
{
	TAILQ_INIT(&head->queue);
	head->last_offset = 0;
	head->insert_point = NULL;
	head->total = 0;
	head->batched = 0;
}

struct bio *
bioq_first(struct bio_queue_head *head)
{
	return (TAILQ_FIRST(&head->queue));
}

void
bioq_remove(struct bio_queue_head *head, struct bio *bp)
{
	if (head->insert_point == bp)
		head->insert_point = NULL;
	if (bp == TAILQ_FIRST(&head->queue))
		head->last_offset = bp->bio_offset + bp->bio_length;
	TAILQ_REMOVE(&head->queue, bp, bio_queue);
	bp->bio_flags &= ~BIO_ONQUEUE;
	head->total--;
}

struct bio *
bioq_takefirst(struct bio_queue_head *head)
{
	struct bio *bp;

	bp = TAILQ_FIRST(&head->queue);
	if (bp != NULL)
		bioq_remove(head, bp);
	return (bp);
}

/* Ends all that is queued with error. */
void
bioq_flush(struct bio_queue_head *head, struct devstat *stat, int error)
{
	struct bio *bp;

	while ((bp = bioq_takefirst(head)) != NULL)
		biofinish(bp, stat, error);
}

void
bioq_insert_head(struct bio_queue_head *head, struct bio *bp)
{
	TAILQ_INSERT_HEAD(&head->queue, bp, bio_queue);
	bp->bio_flags |= BIO_ONQUEUE;
	head->total++;
}

/* Nothing sorts before a bio that was inserted at the tail: it is a barrier too. */
void
bioq_insert_tail(struct bio_queue_head *head, struct bio *bp)
{
	TAILQ_INSERT_TAIL(&head->queue, bp, bio_queue);
	bp->bio_flags |= BIO_ONQUEUE;
	head->insert_point = bp;
	head->total++;
}

/*
 * Inserts bp behind the last barrier in the order of a sweep that starts where the head of the queue
 * left the disk: ascending offsets from last_offset up, then from the start of the disk.
 */
void
bioq_disksort(struct bio_queue_head *head, struct bio *bp)
{
	struct bio *cur, *prev;
	off_t key;

	if ((bp->bio_flags & BIO_ORDERED) != 0) {
		bioq_insert_tail(head, bp);
		return;
	}
	key = (uoff_t)bp->bio_offset - (uoff_t)head->last_offset;
	prev = head->insert_point;
	cur = prev != NULL ? TAILQ_NEXT(prev, bio_queue) : TAILQ_FIRST(&head->queue);
	while (cur != NULL &&
	    (uoff_t)key >= (uoff_t)cur->bio_offset - (uoff_t)head->last_offset) {
		prev = cur;
		cur = TAILQ_NEXT(cur, bio_queue);
	}
	if (prev == NULL)
		TAILQ_INSERT_HEAD(&head->queue, bp, bio_queue);
	else
		TAILQ_INSERT_AFTER(&head->queue, prev, bp, bio_queue);
	bp->bio_flags |= BIO_ONQUEUE;
	head->total++;
}

/* Prints "vtbd0: what: error reading fsbn 8-15 of 0-31"-like lines; nl ends the line. */
void
disk_err(struct bio *bp, const char *what, int blkdone, int nl)
{
	const char *verb;
	daddr_t first, last;

	switch (bp->bio_cmd) {
	case BIO_READ:
		verb = "reading";
		break;
	case BIO_WRITE:
		verb = "writing";
		break;
	case BIO_DELETE:
		verb = "deleting";
		break;
	default:
		verb = "processing";
		break;
	}
	if (bp->bio_disk != NULL)
		printf("%s%u: ", bp->bio_disk->d_name, bp->bio_disk->d_unit);
	first = bp->bio_pblkno;
	last = first + (bp->bio_bcount + DEV_BSIZE - 1) / DEV_BSIZE - 1;
	printf("%s %s blocks %jd-%jd", what, verb, (intmax_t)first, (intmax_t)last);
	if (blkdone >= 0)
		printf(" at block %jd", (intmax_t)(first + blkdone));
	if (nl)
		printf("\n");
}
