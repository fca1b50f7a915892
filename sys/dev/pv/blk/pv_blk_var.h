/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of pv_blk offer to those above them, lowest first: a file uses
 * nothing of one that comes after it (theory statement, locking: pv_blk.h).
 */

#ifndef _DEV_PV_PV_BLK_VAR_H_
#define	_DEV_PV_PV_BLK_VAR_H_

#include <sys/kernel.h>
#include <sys/malloc.h>

#include <vm/vm.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

#include <dev/pv/blk/pv_blk.h>

#define	PV_BLK_BATCH		32
#define	PV_BLK_BATCH_MAX	64
#define	PV_BLK_IDLE_SECS	10

/*
 * Locking the disk, see pv_blk.h.  A queue's lock is taken in pv_blk_queue.c
 * alone.
 */
#define	PV_BLK_LOCK(blk)	mtx_lock(&(blk)->blk_mtx)
#define	PV_BLK_UNLOCK(blk)	mtx_unlock(&(blk)->blk_mtx)
#define	PV_BLK_ASSERT(blk)	mtx_assert(&(blk)->blk_mtx, MA_OWNED)
#define	PV_BLK_QUEUE_ASSERT(bq)	mtx_assert(&(bq)->bq_mtx, MA_OWNED)

extern struct pv_tunable pv_blk_tunables[1];
#define	pv_blk_fast_path	pv_blk_tunables[0].pt_value

/* All queues, also those that are not in use: they are idle. */
#define	PV_BLK_FOREACH(blk, bq)						\
	for ((bq) = (blk)->blk_queues;					\
	    (bq) < (blk)->blk_queues + (blk)->blk_params.bp_nqueues; (bq)++)

/* Requests of all queues; there is one more, for polling. */
static inline u_int
pv_blk_nreqs(const struct pv_blk *blk)
{
	return (blk->blk_params.bp_nqueues * blk->blk_params.bp_nreqs);
}

/*
 * A new bio: nothing of it was cut or moved, and one reference is that of
 * cutting it (pv_blk_req.c).
 */
static inline void
pv_blk_bio_init(struct bio *bp)
{
	bp->bio_driver1 = (void *)1;
	bp->bio_driver2 = NULL;
	bp->bio_resid = bp->bio_bcount;
}

/* How many seconds ago a request was put. */
static inline u_int
pv_blk_req_age(const struct pv_blk_req *rq)
{
	return ((u_int)(ticks - rq->rq_start) / hz);
}

/* Is anything there that has not been put? */
static inline bool
pv_blk_has_work(const struct pv_blk_queue *bq)
{
	return (!TAILQ_EMPTY(&bq->bq_bios) || bq->bq_cur != NULL ||
	    !TAILQ_EMPTY(&bq->bq_ready));
}

/*
 * Is one bio all that has finished, and nothing else in the queue?  It is left
 * to the caller, which delivers it when the interrupt is armed and the lock
 * released for good: what its user submits then is no batch, and nothing that
 * was in flight can complete meanwhile.
 */
static inline bool
pv_blk_is_last(const struct pv_blk_queue *bq)
{
	const struct bio *bp = TAILQ_FIRST(&bq->bq_finished);

	return (bq->bq_ninflight == 0 && bp != NULL &&
	    TAILQ_NEXT(bp, bio_queue) == NULL && !pv_blk_has_work(bq));
}

/* The tag of a request's data. */
static inline bus_dma_tag_t
pv_blk_dtag(struct pv_blk *blk, const struct pv_blk_req *rq)
{
	return (blk->blk_queues[rq->rq_home].bq_dtag);
}

/*
 * pv_blk_req.c: requests from bios.  The queue's lock is held where there is a
 * queue.
 */

MALLOC_DECLARE(M_PVBLK);
/* As pv_blk_load_pages(), of more than a page: of runs of neighbours. */
int	pv_blk_load_runs(bus_dma_segment_t *segs, int max, bus_size_t seg_max,
    vm_page_t *ma,
	    size_t off, size_t length);

/*
 * As pvq_phys_add() into no segments, of length bytes that begin off bytes into
 * the first of the pages ma: a buffer has one run of neighbours, and a file
 * often one for each page.
 */
static __always_inline __unused int
pv_blk_load_pages(bus_dma_segment_t *segs, int max, bus_size_t seg_max,
    vm_page_t *ma, size_t off, size_t length)
{
	if (off + length > PAGE_SIZE || length > seg_max || max == 0)
		return (pv_blk_load_runs(segs, max, seg_max, ma, off, length));
	segs[0].ds_addr = VM_PAGE_TO_PHYS(*ma) + off;
	segs[0].ds_len = length;
	return (1);
}

/*
 * The physical addresses of the length bytes of bp from off on: 0; or EFBIG,
 * with rq_nsegs segments, as many as there may be, of their beginning.
 */
static __always_inline __unused int
pv_blk_load_phys(const struct pv_blk *blk, struct pv_blk_req *rq,
    const struct bio *bp, size_t off, size_t length, const int max)
{
	/*
	 * Copies: what is stored below might be any of these, as far as a
	 * compiler can tell.
	 */
	const bus_size_t seg_max = blk->blk_params.bp_seg_size;
	bus_dma_segment_t *segs = rq->rq_segs + 1;
	int n;

	if ((bp->bio_flags & BIO_UNMAPPED) == 0)
		n = pvq_phys_add(segs, 0, max, seg_max, bp->bio_data + off,
		    length);
	else {
		off += bp->bio_ma_offset;
		n = pv_blk_load_pages(segs, max, seg_max,
		    bp->bio_ma + off / PAGE_SIZE, off % PAGE_SIZE, length);
	}
	rq->rq_nsegs = n < 0 ? max : n;
	return (n < 0 ? EFBIG : 0);
}

/*
 * rq ended with error; the queue's lock is held.  The first ones of each
 * command are logged.
 */
void	pv_blk_log_error(struct pv_blk_queue *bq, const struct pv_blk_req *rq,
    int error);
/*
 * Reports requests that take long, each once; the queue's lock is held.
 * Returns true if one takes so long that a reset has to follow.
 */
bool	pv_blk_log_late(struct pv_blk_queue *bq);
/* bio_cmd of pv_blk_query()'s bio; disk(9) does not send it. */
#define	PV_BLK_BIO_QUERY	BIO_CMD0
/*
 * Allocates what requests need, and frees it, from any stage of the former.
 * May sleep.
 */
int	pv_blk_req_init(struct pv_blk *blk);
void	pv_blk_req_fini(struct pv_blk *blk);
/* May there be memory for requests that were not made?  May sleep. */
bool	pv_blk_req_has_more(struct pv_blk *blk);
/* Makes them, as far as there is: the device is stopped.  May sleep. */
void	pv_blk_req_more(struct pv_blk *blk);
/*
 * The next request to put: a ready one, else a new piece.  NULL: there is none
 * now; with bq_short set, memory is short, and the caller has to try again
 * later.
 */
struct pv_blk_req *pv_blk_req_next(struct pv_blk_queue *bq);
/*
 * Ends a request that is on no list; its bio goes to bq_finished with its last
 * piece.
 */
void	pv_blk_req_end(struct pv_blk_queue *bq, struct pv_blk_req *rq,
    int error);
/*
 * A ready request is loaded again before it is put: it has no segments any
 * more.
 */
void	pv_blk_req_unready(struct pv_blk_queue *bq, struct pv_blk_req *rq);
/* Deletes that were held back go next. */
void	pv_blk_req_unhold(struct pv_blk_queue *bq);
/*
 * The device failed rq, which deletes several ranges: they are tried again,
 * each as a request.
 */
void	pv_blk_req_singly(struct pv_blk_queue *bq, struct pv_blk_req *rq);
/*
 * Ends with error what has not been put: ready requests, the bio being cut,
 * bios.
 */
void	pv_blk_req_fail(struct pv_blk_queue *bq, int error);
/* A read through a copy was completed: moves its data to the bio. */
void	pv_blk_req_copy_back(struct pv_blk *blk, struct pv_blk_req *rq);
/* The request that is on no list, for length bytes of the bounce buffer. */
struct pv_blk_req *pv_blk_req_polled(struct pv_blk *blk, enum pv_blk_cmd cmd,
    off_t offset,
	    size_t length);

/* pv_blk_hist.c: histograms. */

/*
 * With PVB_HISTOGRAM: rq is about to be put, or was got back; the queue's lock
 * is held.
 */
void	pv_blk_hist_put(struct pv_blk_queue *bq, struct pv_blk_req *rq);
void	pv_blk_hist_got(struct pv_blk_queue *bq, struct pv_blk_req *rq);
/* Before PVB_HISTOGRAM is set: memory, and nothing counted.  May sleep. */
void	pv_blk_hist_begin(struct pv_blk *blk);
void	pv_blk_hist_fini(struct pv_blk *blk);
/* What was counted, below a queue's node. */
void	pv_blk_hist_sysctl(struct pv_blk_queue *bq, struct sysctl_ctx_list *ctx,
	    struct sysctl_oid_list *parent);

/* pv_blk_queue.c: queues.  All take a queue's lock themselves. */

/* Is the queue, which is locked, idle while something waits for that? */
static inline bool
pv_blk_is_awaited_idle(const struct pv_blk_queue *bq)
{
	return (__predict_false((bq->bq_flags & (PVB_GATED | PVB_FROZEN |
	    PVB_DETACHING)) != 0) && bq->bq_ninflight == 0);
}

/* retry is called from a callout with the queue: as pv_blk_intr(). */
void	pv_blk_queues_init(struct pv_blk *blk, callout_func_t *retry);
void	pv_blk_queues_fini(struct pv_blk *blk);
/*
 * Stops this queue alone, until pv_blk_set_flags() clears PVB_STOPPED, or this
 * does.
 */
void	pv_blk_queue_set_stopped(struct pv_blk_queue *bq, bool stopped);
/* Changes blk_flags and the queues' copies; blk_mtx is held. */
void	pv_blk_set_flags(struct pv_blk *blk, u_int set, u_int clear);
/* pv_blk_set_queues() without its sysctls. */
void	pv_blk_queues_use(struct pv_blk *blk, struct pvq *const *qs, u_int n);
/*
 * Each second: notifies the device of what waits for that, and reports late
 * requests.  Returns true, until the next reset once, if one takes longer than
 * blk_timeout_reset: the queue will be reset.
 */
bool	pv_blk_queue_check(struct pv_blk_queue *bq);
/*
 * Requests in flight; *broken is set if the queue is, and left alone otherwise.
 */
u_int	pv_blk_queue_in_flight(struct pv_blk_queue *bq, bool *broken);
/* Starts the polled request, or has it started when the device was reset. */
void	pv_blk_queue_put_polled(struct pv_blk_queue *bq, struct pv_blk_req *rq);
/*
 * Takes what is in flight out of a queue whose device was stopped: it is put
 * again with an error of 0 or, unless it was there too often, ETIMEDOUT, and
 * ends with any other.
 */
void	pv_blk_queue_drain(struct pv_blk_queue *bq, int error);
/*
 * A bio goes to the queue of this CPU, and what can be started is.  A barrier,
 * and what comes while there is one, waits for all queues.
 */
void	pv_blk_submit(struct pv_blk *blk, struct bio *bp);
/*
 * d_strategy: pv_blk_submit() of a bio that the disk has a command for; others
 * fail.
 */
void	pv_blk_strategy(struct bio *bp);
/*
 * Waits for threads in pv_blk_submit(), when all bios have ended and none
 * comes.  Sleeps.
 */
void	pv_blk_submit_quiet(struct pv_blk *blk);
/* pv_blk_intr() for all queues. */
void	pv_blk_run(struct pv_blk *blk);
/*
 * Ends with error all that is not in flight, in the queues as well; blk_mtx is
 * held.
 */
void	pv_blk_fail(struct pv_blk *blk, int error);

/* pv_blk_recover.c */

/* Returns 0, or ENOMEM, with nothing to free. */
int	pv_blk_recover_init(struct pv_blk *blk);
/*
 * The disk is used.  From here on a queue that is broken is reset, and late
 * requests are reported.  May sleep.
 */
void	pv_blk_go_live(struct pv_blk *blk);
/*
 * After this nothing is queued, nothing is in flight, and nothing is accepted.
 * May sleep.
 */
void	pv_blk_shut(struct pv_blk *blk);
/*
 * No user's thread, callout or task is in the disk's code after this.  May
 * sleep.
 */
void	pv_blk_quiet(struct pv_blk *blk);

/* pv_blk_dump.c */

/*
 * Reads the identification into ident, printable and terminated.  Returns 0 or
 * an error; the disk works without it.
 */
int	pv_blk_ident(struct pv_blk *blk, char *ident, size_t size);
/* d_dump of disk(9). */
int	pv_blk_dump(void *priv, void *virtual, off_t offset, size_t length);

#endif /* !_DEV_PV_PV_BLK_VAR_H_ */
