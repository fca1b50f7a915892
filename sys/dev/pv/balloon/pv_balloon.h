/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The balloon: memory that the guest lends to its host.
 *
 * The host names a target, so many pages in the balloon, and a worker (one
 * thread a balloon) goes there step by step, a batch of pages each:
 *
 *	held < target	inflate: take pages from the page allocator, give them
 *			to the host
 *	held > target	deflate: take pages back from the host, free them
 *	held = target	report what is held, and rest
 *
 * A page's way.  A step of the worker moves a batch of pages along one of the
 * two lines:
 *
 *	+-----------+ vm_page_alloc_noobj +-------+ pbo_inflate: +------------+
 *	| page      |                     |       | done         | pb_pages:  |
 *	| allocator | ------------------> | batch | -----------> | wired, the |
 *	|           | <------------------ |       | <----------- | host's     |
 *	+-----------+ vm_page_free: also  +-------+ pbo_deflate: +------------+
 *	              what pbo_inflate              done, the newest
 *	              left                          first
 *
 * A target may change at any time, and is looked at before each step.  How
 * pages change hands is the protocol's (struct pv_balloon_ops).
 *
 * Whole blocks of 2 MB are taken where there are any: one such allocation is
 * cheaper than 512, the host can unmap a large page instead of splitting it,
 * and what the guest keeps is not riddled with holes.  Pages are returned in
 * the reverse order, so that the blocks form again.
 *
 * When memory is short.  Inflating never takes free memory below v_free_target
 * + vm.balloon.reserve: the page daemon would try to make up for it, and, where
 * nothing can be reclaimed, kill processes.  Nor does it wait for memory: with
 * nothing to take, the worker tries again later, after 1/10 of a second at
 * first, then after twice as long, up to vm.balloon.retry_max.  The same goes
 * for a host that refuses.
 *
 * If the guest is short of memory (event vm_lowmem), and the host allows it
 * (pbp_oom), the worker gives pages back to the guest until v_free_target and
 * some more are free, whatever the target; it polls free memory from then on,
 * as that event comes once in ten seconds only, gives back more each time that
 * this did not last, and does not inflate before memory was sufficient for
 * PRESSURE_SECONDS.
 *
 * Pages in the balloon are wired, left out of dumps, and, with vm.balloon.guard
 * (default in kernels with INVARIANTS), unmapped from the direct map as far as
 * the system can do that, so that a stray access faults instead of making the
 * host provide the page again.
 *
 * A protocol driver embeds a struct pv_balloon, sets the host's target, and
 * provides the functions that give pages to the host and take them back.  Its
 * life is pv_dev(9)'s: the worker runs while the device is live, and what was
 * found wrong by it is served by pv_dev's own thread, which waits for the
 * worker's run to end.
 *
 *	pv_balloon_init()	the worker is there; nothing happens yet
 *	pv_dev_start()		of pb_pvdev: the worker follows the target
 *	pv_dev_freeze()		until pv_dev_thaw(), the device is stopped
 *	pv_balloon_empty()	the worker has ended, all pages are taken back
 *				from the host
 *	pv_dev_leave()		the device is stopped for ever
 *	pv_balloon_fini()	all is freed
 *
 * Every function of a struct pv_balloon_ops is called by the worker, or by a
 * step while the worker is stopped: one at a time, in a thread that may sleep,
 * with no lock held but pv_dev's.
 */

#ifndef _DEV_PV_PV_BALLOON_H_
#define	_DEV_PV_PV_BALLOON_H_

#include <sys/param.h>
#include <sys/eventhandler.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/queue.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_page.h>

#include <dev/pv/dev/pv_dev.h>

struct pv_balloon;

struct pv_balloon_ops {
	/*
	 * Give pages to the host.
	 *
	 * pages  n of them, n at most pbp_batch
	 * done   set to how many, from the front, the host has now; the others
	 *        are used again at once, so the host can't take them any more
	 *
	 * Returns 0 if the host took all, else why it did not.  EINPROGRESS: a
	 * reset was requested of pv_dev, and the host may take any of them
	 * until it has been; they are kept until then, and done means nothing.
	 */
	int	(*pbo_inflate)(struct pv_balloon *pb, vm_page_t *pages, u_int n,
	    u_int *done);
	/*
	 * Take pages back; done are usable again, the others stay the host's.
	 */
	int	(*pbo_deflate)(struct pv_balloon *pb, vm_page_t *pages, u_int n,
	    u_int *done);
	/* The balloon has so many pages, for the host to know.  Or NULL. */
	void	(*pbo_report)(struct pv_balloon *pb, u_long pages);
	/*
	 * The protocol's own chores, before each step.  An error puts the
	 * worker off.  Or NULL.
	 */
	int	(*pbo_poll)(struct pv_balloon *pb);
	/*
	 * Nothing to do.  Returns the ticks after which to be called again, 0:
	 * never.  Or NULL.
	 */
	int	(*pbo_idle)(struct pv_balloon *pb);
	/*
	 * Stop the device, which has nothing of ours then, and take back what
	 * was in its queues.  Returns 0, or an error if it did not confirm
	 * that: what it has is its own for ever.  Or NULL.
	 */
	int	(*pbo_stop)(struct pv_balloon *pb);
	/*
	 * Start it again.  Returns 0, or an error as pv_dev(9)'s pdo_restart.
	 * Or NULL.
	 */
	int	(*pbo_restart)(struct pv_balloon *pb);
	/*
	 * It was started: what the host is to know, and what it says.  Or NULL.
	 */
	void	(*pbo_apply)(struct pv_balloon *pb);
};

struct pv_balloon_params {
	u_int		pbp_batch;	/* pages in one request to the host */
	u_int		pbp_nqueues;	/* queues, for pv_dev_adopt() */
	uint32_t	pbp_poison;	/* fill returned pages with it;
					 * 0: leave them */
	bool		pbp_scrub;	/* zero pages before
					 * they are given away */
	bool		pbp_blocks;	/* a block that was lent as a whole is
					 * returned in one batch */
#define	PV_BALLOON_BLOCK	(2 * 1024 * 1024 / PAGE_SIZE)
	bool		pbp_oom;	/* the host lets us take pages back when
					 * memory is short */
};

struct pv_balloon_stats {
	uint64_t	pbs_inflated;	/* pages given to the host */
	uint64_t	pbs_deflated;	/* pages taken back */
	uint64_t	pbs_batches;	/* requests to the host */
	uint64_t	pbs_targets;	/* changes of the target */
	uint64_t	pbs_short;	/* times that the guest
					 * had no page to give */
	uint64_t	pbs_refused;	/* pages that the host did not accept,
					 * or did not return */
	uint64_t	pbs_errors;	/* times that a protocol
					 * function failed */
	uint64_t	pbs_lowmem;	/* times that the guest
					 * was short of memory */
	uint64_t	pbs_oom;	/* pages taken back because of that */
};

struct pv_balloon {
	device_t	pb_dev;
	struct pv_dev	pb_pvdev;
	const struct pv_balloon_ops *pb_ops;
	struct pv_balloon_params pb_params;
	struct pv_balloon_stats pb_stats;
	struct mtx	pb_mtx;
	struct taskqueue *pb_tq;
	struct task	pb_work;
	struct timeout_task pb_retry;
	eventhandler_tag pb_lowmem_tag;
	struct sysctl_ctx_list pb_sysctl;
	/* Under pb_mtx. */
	u_long		pb_target;	/* pages that the host requests */
	bool		pb_running;	/* the device is live */
	bool		pb_pressure;	/* the guest is, or was a moment ago,
					 * short of memory */
	int		pb_pressure_end; /* ticks */
	u_long		pb_pressure_goal; /* pages that the balloon
					   * may have meanwhile */
	u_long		pb_pressure_step; /* pages to give back
					   * in excess of the need */
	/* The worker's. */
	TAILQ_HEAD(, vm_page) pb_pages;
	u_long		pb_npages;	/* on pb_pages; others may read it */
	u_long		pb_reported;	/* what was last reported to the host */
	int		pb_delay;	/* ticks until the next
					 * try after a failure */
	bool		pb_complained;	/* once a target */
	vm_page_t	*pb_batch;	/* pbp_batch of them */
	u_int		pb_kept;	/* so many of these until
					 * the device was stopped */
};

/*
 * Prepare pb.
 *
 * dev     names messages and sysctls
 * ops     of the protocol; has to stay
 * params  copied
 *
 * Returns 0, or the error of taskqueue_start_threads(9).  May sleep.
 */
int	pv_balloon_init(struct pv_balloon *pb, device_t dev,
    const struct pv_balloon_ops *ops,
	    const struct pv_balloon_params *params);

/*
 * Stop the worker, and take all pages back from the host, if the device can be
 * used.  Returns 0, or the protocol's error: pages are left then.  A thaw has
 * the worker go on.  May sleep.
 */
int	pv_balloon_empty(struct pv_balloon *pb);

/*
 * Free everything, after pv_dev_leave().
 *
 * reclaim  pages that are still in the balloon are memory again (the device was
 *          removed, and its host provides what is touched); else they are never
 *          used again
 */
void	pv_balloon_fini(struct pv_balloon *pb, bool reclaim);

/* The host requests so many pages.  Any context that may take a mutex. */
void	pv_balloon_set_target(struct pv_balloon *pb, u_long pages);

/*
 * Have the worker run soon: there is something for pbo_poll.  Any context that
 * may take a mutex.
 */
void	pv_balloon_wake(struct pv_balloon *pb);

/*
 * Take a block of 2 MB within [low, high) from the system, for the host to see
 * for a while; it is unmapped like pages in a balloon.  The pages follow the
 * one that is returned; its plinks are the caller's.  NULL: there is none, or
 * the guest needs it.
 */
vm_page_t pv_balloon_block(vm_paddr_t low, vm_paddr_t high);
void	pv_balloon_block_free(vm_page_t m);

/* Is the guest short of memory? */
bool	pv_balloon_is_short(void);

#endif /* !_DEV_PV_PV_BALLOON_H_ */
