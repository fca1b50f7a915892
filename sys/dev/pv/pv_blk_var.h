/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of pv_blk share (theory statement and locking: pv_blk.h).
 */

#ifndef _DEV_PV_PV_BLK_VAR_H_
#define	_DEV_PV_PV_BLK_VAR_H_

#include <dev/pv/pv_blk.h>

/* From this many requests on, a queue is deep: notifications and interrupts are shared. */
#define	PV_BLK_DEEP		8
#define	PV_BLK_BATCH		16
#define	PV_BLK_BATCH_MAX	64
#define	PV_BLK_TICK		SBT_1MS
#define	PV_BLK_TICK_SOON	(50 * SBT_1US)
/* The completions of a batch are to come within one part of so many of a second. */
#define	PV_BLK_BATCH_HZ		4096
/* A thread that submitted one of the last so many that are in flight does not wait for each. */
#define	PV_BLK_LOOK_BACK	4
/* One that so often submitted a single bio between two interrupts waits for each. */
#define	PV_BLK_SINGLES		4
#define	PV_BLK_TIMEOUT		30	/* seconds */
#define	PV_BLK_DRAIN_SECS	10
/* A request that sees more resets than this is what breaks the device. */
#define	PV_BLK_REQUEUES_MAX	3
/* Messages in each so many seconds; the rest is counted. */
#define	PV_BLK_LOG_MAX		10
#define	PV_BLK_LOG_SECS		10
/* After this many resets, no two within the pause. */
#define	PV_BLK_RESETS_UNPACED	3
#define	PV_BLK_RESET_PAUSE	(SBT_1S / 10)
#define	PV_BLK_BOUNCE_MAX	(64 * 1024)

/* Locking the disk, see pv_blk.h. */
#define	PV_BLK_LOCK(blk)	mtx_lock(&(blk)->blk_mtx)
#define	PV_BLK_UNLOCK(blk)	mtx_unlock(&(blk)->blk_mtx)
#define	PV_BLK_ASSERT(blk)	mtx_assert(&(blk)->blk_mtx, MA_OWNED)

/* Locking a queue.  Who holds blk_mtx unlocks bq_mtx by itself and calls pv_blk_run() later. */
#define	PV_BLK_QUEUE_LOCK(bq)	mtx_lock(&(bq)->bq_mtx)
#define	PV_BLK_QUEUE_UNLOCK(bq)	pv_blk_queue_unlock(bq)
#define	PV_BLK_QUEUE_ASSERT(bq)	mtx_assert(&(bq)->bq_mtx, MA_OWNED)

/* All queues, also those that are not in use: they are idle. */
#define	PV_BLK_FOREACH(blk, bq)						\
	for ((bq) = (blk)->blk_queues;					\
	    (bq) < (blk)->blk_queues + (blk)->blk_params.bp_nqueues; (bq)++)

/* The tag of a request's data. */
static inline bus_dma_tag_t
pv_blk_dtag(struct pv_blk *blk, const struct pv_blk_req *rq)
{
	return (blk->blk_queues[rq->rq_home].bq_dtag);
}

/* pv_blk.c */

/* Changes blk_flags and the queues' copies; blk_mtx is held. */
void	pv_blk_set_flags(struct pv_blk *blk, u_int set, u_int clear);
/* Waits, while there is hope, up to so many seconds, until nothing is in flight; blk_mtx is held. */
u_int	pv_blk_wait_idle(struct pv_blk *blk, u_int secs);

/* pv_blk_req.c; bq_mtx is held in all of them. */

/* The next request to put: a ready one, else a new piece.  NULL: nothing can be done now. */
struct pv_blk_req *pv_blk_next(struct pv_blk_queue *bq);
/* Ends a request that is on no list; its bio goes to bq_finished with its last piece. */
void	pv_blk_end(struct pv_blk_queue *bq, struct pv_blk_req *rq, int error);
/* Copies between the bounce buffer, or the request's own, and its piece of the bio. */
void	pv_blk_bounce_copy(struct pv_blk *blk, struct pv_blk_req *rq, bool to_bio);
void	pv_blk_bio_fail(struct bio *bp, int error);
/* Begins the next bio of the queue, or goes on with one that was begun in another: bq_cur, or NULL. */
struct bio *pv_blk_begin(struct pv_blk_queue *bq);
/* Cuts no more from bq_cur. */
void	pv_blk_cur_end(struct pv_blk_queue *bq);

/* pv_blk_order.c */
/* A barrier, or what came after one. */
void	pv_blk_line_up(struct pv_blk *blk, struct bio *bp);
/* Gives the queues what may go now.  No lock is held. */
void	pv_blk_pump(struct pv_blk *blk);
/* Ends with error all that is not in flight, in the queues as well; blk_mtx is held. */
void	pv_blk_fail_waiting(struct pv_blk *blk, int error);

/* pv_blk_io.c */
extern const char *const pv_blk_cmd_names[PV_BLK_NCMDS];
void	pv_blk_strategy(struct bio *bp);
void	pv_blk_queue_unlock(struct pv_blk_queue *bq);
/* May a message go to the log now?  A bad disk must not fill it. */
bool	pv_blk_may_log(struct pv_blk *blk);
/* Adds a bio to those that wait. */
void	pv_blk_enqueue(struct pv_blk_queue *bq, struct bio *bp);
/* An earlier tick replaces a later one; a later one is left out. */
void	pv_blk_arm_tick(struct pv_blk_queue *bq, bool soon);
void	pv_blk_start_queue(struct pv_blk_queue *bq);
bool	pv_blk_kick_queue(struct pv_blk_queue *bq, bool now);
void	pv_blk_deliver_queue(struct pv_blk_queue *bq);
/* Collects completions until none is left and an interrupt is armed; drops and takes the lock. */
void	pv_blk_process(struct pv_blk_queue *bq);
/* pv_blk_process() and pv_blk_deliver() for all queues.  No lock is held. */
void	pv_blk_run(struct pv_blk *blk);
/* Ends with error what is not in flight: ready requests, the bio being cut, the queue. */
void	pv_blk_fail_queued(struct pv_blk_queue *bq, int error);
/*
 * Takes what is in flight out of a queue whose device was stopped; 0 requeues it.  With blame, what
 * was there too often ends with EIO.
 */
void	pv_blk_drain(struct pv_blk_queue *bq, int error, bool blame);
/* Puts rq into the queue, without commit. */
int	pv_blk_put(struct pv_blk_queue *bq, struct pv_blk_req *rq);
void	pv_blk_arm_watchdog(struct pv_blk *blk);
void	pv_blk_tick(void *arg);
void	pv_blk_watchdog(void *arg);

/* May it not be overtaken by others? */
static inline bool
pv_blk_is_barrier(const struct bio *bp)
{
	return (bp->bio_cmd == BIO_FLUSH || (bp->bio_flags & BIO_ORDERED) != 0);
}

/* Is anything there that has not been put? */
static inline bool
pv_blk_has_work(const struct pv_blk_queue *bq)
{
	return (!TAILQ_EMPTY(&bq->bq_bios) || bq->bq_cur != NULL || !TAILQ_EMPTY(&bq->bq_ready));
}

/* Starts what can be started; the caller kicks. */
static inline void
pv_blk_start(struct pv_blk_queue *bq)
{
	if (pv_blk_has_work(bq))
		pv_blk_start_queue(bq);
}

/* Tells the device of what was committed, now or when the batch is full.  Returns true if it did. */
static inline bool
pv_blk_kick(struct pv_blk_queue *bq, bool now)
{
	return (bq->bq_unkicked != 0 && pv_blk_kick_queue(bq, now));
}

/* Ends bios on bq_finished; drops and takes the lock. */
static inline void
pv_blk_deliver(struct pv_blk_queue *bq)
{
	if (!TAILQ_EMPTY(&bq->bq_finished))
		pv_blk_deliver_queue(bq);
}

/* pv_blk_reset.c */
void	pv_blk_reset_task(void *arg, int pending);
void	pv_blk_reset_locked(struct pv_blk *blk, int error);

/* pv_blk_dump.c */
int	pv_blk_ident(struct pv_blk *blk, char *ident, size_t size);
int	pv_blk_dump(void *priv, void *virtual, off_t offset, size_t length);

/* pv_blk_sysctl.c */
void	pv_blk_sysctl_attach(struct pv_blk *blk);
void	pv_blk_sysctl_queues(struct pv_blk *blk);

#endif /* !_DEV_PV_PV_BLK_VAR_H_ */
