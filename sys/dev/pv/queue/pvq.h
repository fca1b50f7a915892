/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pvq(9): one queue to the peer: a device, or a back end.
 *
 * A paravirtual device and its driver share a ring.  A virtqueue (VirtIO 1.3,
 * 2.6 to 2.8) and a Xen shared ring with grant references (xen/io/ring.h,
 * xen/grant_table.h) differ in layout, but a driver does the same things with
 * either, and this is the interface to them.
 *
 *	operation    virtqueue, split or packed     grant ring
 *	----------   ----------------------------   ---------------------------
 *	pvq_prepare  descriptors: 1 if the chain    ring slots: the requests
 *	             goes into an indirect table,   that the protocol formats
 *	             else its segments              for this chain
 *	pvq_put      descriptor table, avail ring   the messages, copied to the
 *	             entry                          slots at req_prod_pvt, each
 *	                                            with its id filled in
 *	pvq_commit   avail.idx, or the head's       req_prod
 *	             AVAIL flag
 *	pvq_kick     avail_event / NO_NOTIFY,       req_event, event channel
 *	             doorbell
 *	pvq_get      used ring element: id and      response: id and status,
 *	             length                         copied out once
 *	pvq_intr_*   used_event / NO_INTERRUPT      rsp_event / event channel
 *	                                            mask
 *
 * A chain is what is put and what completes: an array of segments, those that
 * the peer reads before those that it writes, and a cookie that pvq_get
 * returns.  Between a protocol and the transport that it knows there may be
 * more, which passes through here and through a personality unseen: pc_arg, for
 * what travels in the ring itself beside segments, and pd_result, what the peer
 * returned for a chain: a length, or a response.
 *
 *	              put            commit               peer
 *	the caller's -----> staged ---------> in the ring ----> completed
 *	  ^  ^  ^              |                   |                |
 *	  |  |  +--- abort ----+                   |                |
 *	  |  +------ drain, after the peer --------+                |
 *	  |          was stopped                                    |
 *	  +--------- get -------------------------------------------+
 *
 * How memory becomes visible to the peer is not a matter of the queue:
 * guest-physical addresses, with bus_dma(9) or without (pvq_phys_add()), or
 * pages that are granted for as long as the queue exists.
 *
 * Putting has three steps so that a caller can back out at any of them.
 *
 *	pvq_reserve()    room for a number of slots, or ENOSPC: nothing has
 *			 happened yet
 *	pvq_put()        the chains are staged; the peer can't see them.
 *			 pvq_abort() takes back all that is staged.
 *	pvq_commit()     the peer sees them; they are returned by pvq_get() or
 *			 by pvq_drain() only
 *
 * pvq_post() is the last two in one, without a chance to back out in between.
 * pvq_submit() is all of them and the kick, for whoever has one chain at a
 * time.
 *
 * Why room is not found by the put itself.  What a batch takes is known chain
 * by chain, while it is being made: a packet that no longer fits has to be left
 * where it was before its memory is loaded, and what is made already is put by
 * one call.  Asking for room is no call and no step of the ring: both numbers
 * are in struct pvq, on the side of who asks.  A put that returned ENOSPC would
 * have the ring undo part of a batch, or take one chain at a time, with a
 * release and the peer's index for each.
 *
 * Trust.  An implementation reads each index, id and length that the peer wrote
 * once, checks it against what was put, and hands out only what passed.  What
 * does not pass marks the queue broken (pvq_break): from then on put, get, kick
 * and intr_enable do nothing and return EIO or 0, and pvq_drain() is the only
 * way to the cookies.  The owner then resets the device.
 *
 * Locking.  None here.  The owner serialises the putting side (reserve, put,
 * abort, commit, post, kick) and the getting side (get, intr_enable,
 * intr_disable).  The two sides may run at the same time: every implementation
 * keeps their state apart.  pvq_drain(), pvq_reinit() and pvq_free() need both
 * sides to be idle; for pvq_forget() they are stopped, wherever they were.
 *
 * Cost.  One indirect call a batch of chains, for put and for get alike; none
 * for a segment.
 */

#ifndef _DEV_PV_PVQ_H_
#define	_DEV_PV_PVQ_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/errno.h>
#include <vm/vm.h>
#include <vm/pmap.h>
#include <machine/atomic.h>
#include <machine/bus.h>

struct pv_dev;
struct pvq;
struct sysctl_ctx_list;
struct sysctl_oid_list;

#define	PVQ_NAMELEN	16

/*
 * A chain to put.  The array of segments is the caller's, and is read until
 * pvq_put() returns; after that the queue has its own record.
 */
struct pvq_chain {
	bus_dma_segment_t *pc_segs;	/* pc_nread, then pc_nwrite of them */
	uint16_t	 pc_nread;	/* segments that the peer reads */
	uint16_t	 pc_nwrite;	/* segments that the peer writes */
	void		*pc_arg;	/* the transport's own, made by the
					 * protocol; or NULL */
	void		*pc_cookie;	/* returned by pvq_get(); not NULL */
};

/*
 * A completed chain.  What the peer returned for it is the transport's: the
 * protocol reads it by the transport's function, until the next pvq_get().
 */
struct pvq_done {
	void		*pd_cookie;
	uintptr_t	 pd_result;
};

/*
 * Why a queue is broken.  The numbers from PVQ_FAULT_TRANSPORT on are the
 * transport's (qo_faults).
 */
enum pvq_fault {
	PVQ_OK = 0,
	PVQ_FAULT_INDEX,	/* producer index ran ahead of what was put */
	PVQ_FAULT_ID,		/* id out of range or not in flight */
	PVQ_FAULT_OWNER,	/* the protocol found an invalid
				 * value in the payload */
	PVQ_FAULT_SKIP,		/* a place of the ring was skipped, which the
				 * owner found (pvq_peek) */
	PVQ_FAULT_TRANSPORT
};

/* What a ring looks like in which nothing has completed for long. */
enum pvq_peek {
	PVQ_QUIET,	/* the peer has written nothing */
	PVQ_WAITS,	/* something has completed and waits for pvq_get() */
	PVQ_SKIPPED,	/* nothing can complete:
			 * the peer has written beyond the next place */
};

/*
 * Counters: the putting side's and the getting side's in cache lines of their
 * own, each with room for one that only the transport has (qo_counters).
 */
struct pvq_stats {
	uint64_t	qs_chains	/* chains committed */
	    __aligned(CACHE_LINE_SIZE);
	uint64_t	qs_segs;	/* segments in them */
	uint64_t	qs_put_own;	/* the transport's */
	uint64_t	qs_full;	/* pvq_reserve() returned ENOSPC */
	uint64_t	qs_kicks;	/* notifications sent */
	uint64_t	qs_nokicks;	/* notifications that the peer
					 * did not request */
	uint64_t	qs_done		/* chains completed */
	    __aligned(CACHE_LINE_SIZE);
	uint64_t	qs_intrs;	/* interrupts taken for this queue */
	uint64_t	qs_get_own;	/* the transport's */
	uint64_t	qs_faults;	/* times the queue was marked broken;
					 * either side's, and rare */
};

/* A counter as pvq_sysctl() publishes it. */
struct pvq_counter {
	size_t		 pk_offset;	/* in struct pvq_stats */
	const char	*pk_name;	/* NULL: the table's end */
	const char	*pk_descr;
};

#define	PVQ_COUNTER(member, name, descr)				\
	{ offsetof(struct pvq_stats, member), name, descr }

/*
 * What an implementation provides.  Only the implementations and the inlines
 * below use it.  The conformance suite, tests/hosted/pvq_tests.c, shows whether
 * it does what is promised here.
 */
struct pvq_ops {
	const char *qo_name;
	const char *const *qo_faults;	/* a phrase each, from
					 * PVQ_FAULT_TRANSPORT on; or NULL */
	const struct pvq_counter *qo_counters;	/* of qs_put_own and qs_get_own;
						 * or NULL */
	int	(*qo_prepare)(const struct pvq *, const struct pvq_chain *);
	void	(*qo_put)(struct pvq *, const struct pvq_chain *, int);
	void	(*qo_abort)(struct pvq *);
	void	(*qo_commit)(struct pvq *);
	/* NULL: qo_put and qo_commit. */
	void	(*qo_post)(struct pvq *, const struct pvq_chain *, int);
	bool	(*qo_kick)(struct pvq *);
	int	(*qo_get)(struct pvq *, struct pvq_done *, int);
	bool	(*qo_intr_enable)(struct pvq *, unsigned int);
	void	(*qo_intr_disable)(struct pvq *);
	enum pvq_peek (*qo_peek)(struct pvq *);	/* NULL: it can't tell */
	void	*(*qo_drain)(struct pvq *);
	int	(*qo_forget)(struct pvq *);
	int	(*qo_reinit)(struct pvq *);
	void	(*qo_free)(struct pvq *);
};

/* A queue as its owner describes it, to whoever makes it a ring. */
struct pvq_spec {
	char		 pqs_name[PVQ_NAMELEN];	/* "rxq0"; in messages */
	char		 pqs_descr[8];	/* "rx0": of its interrupt,
					 * for vmstat -i */
	u_int		 pqs_max_segs;	/* segments in the longest
					 * chain that is put */
	int		 pqs_cpu;	/* that its interrupt is bound to;
					 * -1: any */
	void		(*pqs_intr)(void *);	/* in an ithread; NULL: the
						 * queue is polled */
	void		*pqs_arg;
	struct pvq	**pqs_pvq;	/* where it is stored;
					 * NULL: it is left out */
};

/*
 * The part of a queue that every implementation has; it is the first member of
 * theirs, which is allocated aligned to a cache line.  Drivers read q_name and
 * q_stats; everything else is for the implementation.  Counters run freely; the
 * difference of a pair is what counts.
 */
struct pvq {
	const struct pvq_ops *q_ops;
	device_t	 q_dev;		/* for messages */
	uint16_t	 q_size;	/* slots in the ring */
	uint16_t	 q_max_segs;	/* segments that one chain may have */
	uint16_t	 q_flat_segs;	/* a chain of 1 to so many takes one
					 * slot; see pvq_prepare() */
	bool		 q_intr_once;	/* an interrupt is requested
					 * by an event index */
	volatile uint32_t q_fault;	/* enum pvq_fault, or the transport's;
					 * not 0: broken */
	char		 q_name[PVQ_NAMELEN];
	struct pv_dev	*q_pvdev;	/* that resets it; NULL: nobody does */
	u_int		 q_number;	/* of the queue there */
	/* Written by the putting side. */
	uint32_t	 q_taken	/* slots taken by chains */
	    __aligned(CACHE_LINE_SIZE);
	uint32_t	 q_long_taken;	/* tables for chains of more than
					 * q_flat_segs */
	volatile uint32_t q_committed;	/* chains committed */
	/* Written by the getting side. */
	volatile uint32_t q_given	/* slots given by the ring */
	    __aligned(CACHE_LINE_SIZE);
	volatile uint32_t q_completed;	/* chains completed */
	volatile uint32_t q_long_given;	/* of these tables */
	struct pvq_stats q_stats;
};

/*
 * Mark a queue broken: count, log once, let every operation fail from now on,
 * and have it reset.
 *
 * q      the queue; any lock may be held, any context
 * fault  why: of enum pvq_fault, or the transport's
 * value  what was seen, for the message
 */
void	pvq_break(struct pvq *q, u_int fault, uintmax_t value);

/*
 * Publish q's statistics as read-only sysctls (chains, segs, kicks ... each
 * with a description) below parent, the transport's own among them.
 *
 * ctx     owns the nodes; usually device_get_sysctl_ctx(9)
 * parent  the node to put them under, for example dev.vtnet.0.rxq0
 */
void	pvq_sysctl(struct pvq *q, struct sysctl_ctx_list *ctx,
    struct sysctl_oid_list *parent);

/* Is the queue broken?  What was in flight can be had by pvq_drain() only. */
static inline bool
pvq_broken(const struct pvq *q)
{

	return (__predict_false(q->q_fault != PVQ_OK));
}

/*
 * Is there a table for a chain of more than q_flat_segs, of which a queue may
 * have some?  Only the putting side may ask.  The acquire pairs with the get
 * side's release.
 */
static inline bool
pvq_long_room(const struct pvq *q)
{

	return (atomic_load_acq_32(&q->q_long_given) != q->q_long_taken);
}

/*
 * How many slots would this chain take, if it is the next to be put?  Of one of
 * no more than q_flat_segs it does not matter what is put before.
 *
 * Returns 1 to q_size, or 0 if the queue can never take it (more segments than
 * q_max_segs, or than the ring has slots): the caller has to split or to copy.
 */
static inline int
pvq_prepare(const struct pvq *q, const struct pvq_chain *pc)
{
	u_int n = pc->pc_nread + pc->pc_nwrite;

	/* Without a call where the number of segments is enough to know. */
	if (__predict_true(n - 1 < q->q_flat_segs))
		return (1);
	return (q->q_ops->qo_prepare(q, pc));
}

/*
 * How many slots are free?  Only the putting side may ask.
 *
 * The acquire pairs with the get side's release of q_given: a slot that is seen
 * free is free.
 */
static inline int
pvq_room(struct pvq *q)
{

	return ((int)(atomic_load_acq_32(&q->q_given) - q->q_taken));
}

/*
 * How many segments may a chain have and take a slot, or no more than half of
 * those that are free? For an owner that can make two of a long chain: one of
 * q_max_segs may take the whole ring, and the peer has nothing else to work on
 * then.  Only the putting side may ask.
 */
static inline u_int
pvq_fair_segs(struct pvq *q)
{
	const int half = pvq_room(q) / 2;

	if (q->q_flat_segs == q->q_max_segs || q->q_flat_segs == 1 ||
	    pvq_long_room(q))
		return (q->q_max_segs);
	return (MIN(q->q_max_segs, MAX(q->q_flat_segs, half)));
}

/*
 * Ensure that there is room for chains that will be put before the next commit.
 * The putting side is serialised, so what there is now can only grow.
 *
 * slots  pvq_prepare() of the chain, or its sum over several that have no more
 *        than q_flat_segs each; of a longer one among them, its segments
 *
 * Returns 0; ENOSPC if the ring has less room (get completions first); EIO if
 * the queue is broken.
 */
static inline int
pvq_reserve(struct pvq *q, int slots)
{

	if (pvq_broken(q))
		return (EIO);
	if (__predict_false(pvq_room(q) < slots)) {
		q->q_stats.qs_full++;
		return (ENOSPC);
	}
	return (0);
}

/*
 * Append memory to an array of segments as the guest's physical addresses,
 * without bus_dma(9): for a device whose accesses nothing translates or limits
 * (VirtIO 1.3, 6: one that does not offer VIRTIO_F_ACCESS_PLATFORM).  Adjacent
 * memory is one segment.
 *
 * segs      room for max segments, of which n are in use
 * seg_max   bytes in a segment at most
 * va, len   wired memory of the kernel; or pa, len: physical memory in one
 *           piece
 *
 * Returns how many are in use then, or -1 if there is no room for all: some may
 * have been appended.
 */
int	pvq_phys_add_pages(bus_dma_segment_t *segs, int n, int max,
    bus_size_t seg_max, vm_offset_t va,
	    size_t len);

static inline int
pvq_phys_add(bus_dma_segment_t *segs, int n, int max, bus_size_t seg_max,
    const void *va, size_t len)
{
	vm_offset_t at = (vm_offset_t)va;
	vm_paddr_t pa;

	/* Most memory is a page, or part of one. */
	if (__predict_true(len - 1 < PAGE_SIZE - (at & PAGE_MASK) &&
	    len <= seg_max && n < max)) {
		pa = vtophys(at);
		if (n == 0 || segs[n - 1].ds_addr + segs[n - 1].ds_len != pa) {
			segs[n].ds_addr = pa;
			segs[n].ds_len = len;
			return (n + 1);
		}
		if (segs[n - 1].ds_len + len <= seg_max) {
			segs[n - 1].ds_len += len;
			return (n);
		}
	}
	return (pvq_phys_add_pages(segs, n, max, seg_max, at, len));
}

static inline int
pvq_phys_add_run(bus_dma_segment_t *segs, int n, int max, bus_size_t seg_max,
    vm_paddr_t pa, size_t len)
{
	bus_dma_segment_t *last;
	size_t part;

	if (n > 0) {
		last = &segs[n - 1];
		if (last->ds_addr + last->ds_len == pa) {
			part = MIN(len, seg_max - last->ds_len);
			last->ds_len += part;
			pa += part;
			len -= part;
		}
	}
	for (; len > 0; pa += part, len -= part, n++) {
		if (n == max)
			return (-1);
		part = MIN(len, seg_max);
		segs[n].ds_addr = pa;
		segs[n].ds_len = part;
	}
	return (n);
}

/*
 * Stage n chains, for which room was reserved.  The peer does not see them
 * before pvq_commit().  Can't fail.
 */
static inline void
pvq_put(struct pvq *q, const struct pvq_chain *pc, int n)
{

	q->q_ops->qo_put(q, pc, n);
}

/*
 * Take back all that was put since the last commit; the slots are free again.
 */
static inline void
pvq_abort(struct pvq *q)
{

	q->q_ops->qo_abort(q);
}

/*
 * Show the staged chains to the peer.  Has release semantics: every store to
 * the memory of the chains before it is visible before the chains are.
 */
static inline void
pvq_commit(struct pvq *q)
{

	q->q_ops->qo_commit(q);
}

/*
 * pvq_put() and pvq_commit() in one pass over the chains, for whoever does not
 * take them back.  Nothing else is staged.
 */
static inline void
pvq_post(struct pvq *q, const struct pvq_chain *pc, int n)
{

	if (q->q_ops->qo_post != NULL)
		q->q_ops->qo_post(q, pc, n);
	else {
		pvq_put(q, pc, n);
		pvq_commit(q);
	}
}

/*
 * Notify the peer that there is work, if it asked for that since the last kick.
 * Call it once after a batch of commits: it may trap to the host.  It belongs
 * to the putting side, so the lock that serialises that side is held; no other
 * should be.
 *
 * Returns true if a notification was sent.
 */
static inline bool
pvq_kick(struct pvq *q)
{

	return (q->q_ops->qo_kick(q));
}

/*
 * For whoever has one chain at a time: reserve, put, commit and kick.
 *
 * Returns 0, or the error of pvq_reserve(), or EFBIG if the queue can never
 * take the chain.
 */
static inline int
pvq_submit(struct pvq *q, const struct pvq_chain *pc)
{
	int error, slots = pvq_prepare(q, pc);

	error = slots == 0 ? EFBIG : pvq_reserve(q, slots);
	if (error != 0)
		return (error);
	pvq_post(q, pc, 1);
	(void)pvq_kick(q);
	return (0);
}

/*
 * Collect completions.
 *
 * done  array of at least max elements, filled from the front
 * max   how many at the most, 1 or more
 *
 * Returns how many there were, each validated; 0 if none, or if the queue is
 * broken.
 */
static inline int
pvq_get(struct pvq *q, struct pvq_done *done, int max)
{

	return (q->q_ops->qo_get(q, done, max));
}

/*
 * Ask for an interrupt when `after` more chains have completed (1: at the next
 * one), or when all that is in flight now has, if that is less.  Without event
 * indices any number means the next one.  A ring that counts messages, of which
 * a chain may be several, comes as near as it can to what is between the next
 * one and all.  A new queue has its interrupt enabled, for the first
 * completion.
 *
 * Returns true if that many already wait, so that none is coming: call
 * pvq_get() again, or lose the wake-up.
 */
static inline bool
pvq_intr_enable(struct pvq *q, unsigned int after)
{

	return (q->q_ops->qo_intr_enable(q, after));
}

/* Ask for no interrupts.  A hint: one may still come. */
static inline void
pvq_intr_disable(struct pvq *q)
{

	q->q_ops->qo_intr_disable(q);
}

/*
 * The same when the interrupt came that was requested last: with event indices
 * no other comes before the next request, so that there is nothing to do.
 */
static inline void
pvq_intr_taken(struct pvq *q)
{

	if (!q->q_intr_once)
		pvq_intr_disable(q);
}

/*
 * For a watchdog: why has nothing completed?  A peer that is at work may look
 * as if it had skipped a place for a moment; one that looks so again after
 * seconds in which nothing has completed has done it, and its queue is to be
 * broken (PVQ_FAULT_SKIP).  Both sides are serialised; the queue is not broken,
 * but may be then, if what the peer wrote can't be.
 */
static inline enum pvq_peek
pvq_peek(struct pvq *q)
{

	return (q->q_ops->qo_peek == NULL ? PVQ_QUIET : q->q_ops->qo_peek(q));
}

/*
 * Give back what is in flight, one cookie a call, in the order it was put,
 * after the device was reset (or the back end is gone) and can't touch the
 * memory any more.
 *
 * Returns a cookie, or NULL when nothing is left.
 */
static inline void *
pvq_drain(struct pvq *q)
{

	return (q->q_ops->qo_drain(q));
}

/* How many chains are in flight? */
static inline int
pvq_inflight(const struct pvq *q)
{

	return ((int)(q->q_committed - q->q_completed));
}

/*
 * For a kernel dump: forget everything that is staged, in flight or completed.
 * The CPUs that used the queue were stopped at any instruction of the functions
 * above, so that nothing of its state is relied on, and a broken queue is whole
 * again.  The device was reset, or is a back end that can't be.
 *
 * Returns 0; then the queue is empty.  EBUSY: the back end, which was notified,
 * has still to answer what it was given; call this again.
 */
static inline int
pvq_forget(struct pvq *q)
{

	return (q->q_ops->qo_forget(q));
}

/*
 * Initialize a drained queue again, in the memory that it has, for a device
 * that was reset.
 *
 * Returns 0, or EBUSY if chains are still in flight.
 */
static inline int
pvq_reinit(struct pvq *q)
{

	return (q->q_ops->qo_reinit(q));
}

/* Free a drained queue.  NULL is fine. */
static inline void
pvq_free(struct pvq *q)
{

	if (q != NULL)
		q->q_ops->qo_free(q);
}

#endif /* !_DEV_PV_PVQ_H_ */
