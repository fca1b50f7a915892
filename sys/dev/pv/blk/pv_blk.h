/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_blk: the disk personality.
 *
 * Everything of a paravirtual disk that faces the operating system: disk(9),
 * the queue of bios, their splitting, ordering, statistics, polled dumps, and
 * what happens when the device has to be reset.  It has no wire format: a
 * protocol encodes its requests and reads their status through struct
 * pv_blk_ops, and owns negotiation, configuration and the device's life.
 *
 * How a protocol uses it, each step undone by the one opposite:
 *
 *	pv_blk_init()    memory, before the queue's interrupt   pv_blk_fini()
 *	                 can come
 *	(the device is live)
 *	pv_blk_attach()  the disk appears; requests may come    pv_blk_detach()
 *
 * The way of a bio.  The files are a stack: each calls those below it, and a
 * reset is needed of pv_dev, below all of them.  A bio enters each once on its
 * way down, and returns once:
 *
 *	disk(9)           d_strategy                         biodone(9)
 *	                  |                                       ^
 *	pv_blk_disk.c     |                                       |
 *	pv_blk_dump.c     |                                       |
 *	pv_blk_recover.c  |                                       |
 *	                  |                                       |
 *	pv_blk_queue.c    | pv_blk_strategy()      pv_blk_intr() -+
 *	                  |                            |          ^
 *	pv_blk_req.c      | pv_blk_req_next()   pv_blk_req_end() -+
 *	pv_blk_hist.c     |                            ^
 *	                  v                            |
 *	the ring          pvq_put(), pvq_kick()    pvq_get()
 *
 *	pv_blk_disk.c     the disk, its life, own bios
 *	pv_blk_dump.c     requests without interrupts
 *	pv_blk_recover.c  what pv_dev has done; late requests
 *	pv_blk_queue.c    put, kick, collect, arm; barriers
 *	pv_blk_req.c      a piece of a bio, its memory
 *	pv_blk_hist.c     histograms
 *
 * Most bios take a fast path (pv_blk_fast_put() and pv_blk_fast_end() in
 * pv_blk_queue.c): a read or a write that is one request, in a queue where
 * nothing waits, of a device that takes physical addresses.  Its segments go
 * into a table that the protocol keeps for the request (bo_post), and what it
 * ends with, unless that is an error, straight into the bio.  All else goes the
 * general way, and with hw.pv_blk.fast_path=0 everything does.
 *
 * A bio becomes one or more requests: pieces, in ascending order, each within
 * the limits of the transport.  A request is, in this order,
 *
 *	free       on bq_free
 *	ready      encoded for, but not yet in the queue: on bq_ready (no room
 *	           in the ring, or requeued)
 *	in flight  on bq_inflight, from pvq_put() to pvq_get() or pvq_drain(),
 *	           in the order it was put
 *
 * Queues.  A device has one or more, each with its own bios, requests, lock and
 * interrupt.  A bio goes to the queue of the CPU that it comes from, and stays
 * there.  A request belongs to the queue rq_home, or where there are fewer than
 * that many, to the one of that number modulo theirs.  Queues share nothing
 * while data flows: not a lock, not a counter, not a line of the cache that is
 * written.  The device serves them as it likes; of the guest's time none takes
 * more than PV_BLK_ROUNDS of collecting and starting before others get their
 * turn.
 *
 * Ordering.  Bios without BIO_ORDERED may be done in any order, also two from
 * one thread, which may have changed its CPU between them.  One with
 * BIO_ORDERED is a barrier for the whole disk: it starts when all that came
 * before it is done, and nothing that came after it starts before it is done.
 * From its arrival to its completion (PVB_GATED), bios of all queues are queued
 * in one FIFO, blk_waiting.
 *
 * Deleting.  A device frees only whole units, of bp_delete_align.  So bios are
 * not cut by GEOM, which knows nothing of units, but here, where one ends, and
 * all but the first and the last piece are whole ones.  Where a request can
 * delete several ranges, a queue has one such request at a time.  What comes
 * meanwhile, and the rest of a long one, is held back (bq_deletes), and goes
 * when that has ended, what there is together.  If the device fails one of
 * several ranges, each is tried alone, as the device does not report which it
 * was.
 *
 * Flushing.  A flush makes those writes durable that were completed before it
 * was submitted, in every queue: this is what a device promises for the command
 * (VirtIO 1.3, 5.2.6.2), and all that BIO_FLUSH asks for.  So a plain one goes
 * to the queue of its CPU, and neither waits for others nor holds them up;
 * g_io_flush() adds BIO_ORDERED, and its flush is a barrier too.
 *
 * Write-through.  Flushes of a device that writes through are not sent to it
 * (PVB_WRITETHROUGH).  What was written before a device was set to
 * write-through, or was in flight then, may be in its cache, so that
 * pv_blk_end_caching() sends one last flush, a barrier, and sets the flag when
 * that is done.
 *
 * Coalescing.  A notification costs an exit to the host, so where users have
 * many requests in flight several share one.  An interrupt is requested for the
 * next completion, always: what completes until the queue is looked at is
 * collected together by itself.  A notification waits only while
 *
 *	- the device works on more requests than wait: its answers go on with
 *	  these, without a timer
 *	- more is to be expected: what was completed was not all followed by
 *	  others
 *	- it is neither for a flush nor for the first bio of another thread,
 *	  which may wait for that
 *	- no barrier is waiting or in flight
 *	- users have PV_BLK_DEEP requests: with fewer, a device of some 100 us
 *	  would be idle for it
 *
 * Even so a device that is notified late is slower or faster, 0.4 to 2.1 times,
 * for no reason that the guest sees (tests/bench/BASELINE.md).  So it is tried
 * again and again whether more is completed if notifications wait
 * (pv_blk_queue.c).  What waits is notified of once a second in any case, for a
 * device that never answers some of its requests.
 *
 * Suspend, migration, and a device that requests a reset.  A protocol whose
 * queues outlive the stop calls pv_dev_freeze() and pv_dev_thaw() of blk_pvdev;
 * bo_stop and bo_restart are all that the device needs.  Otherwise it does
 * this, in this order, from one thread that may sleep:
 *
 *	pv_dev_quiesce()     nothing more is started; bios are queued;
 *			     completions are still taken
 *	pv_blk_wait_idle()   optional: give what is in flight time to be
 *			     completed
 *	(the device is stopped: it no longer uses the queues)
 *	pv_blk_requeue()     what was in flight is ready again, in the order it
 *			     was put, in each queue
 *	pv_blk_set_queues()  if the queues do not outlive the stop: none, and
 *			     later the new ones, of which there may be more or
 *			     fewer than before
 *	(the device is live again)
 *	pv_dev_thaw()        first what was requeued, in order, then the bios
 *			     that were queued
 *
 * What this takes where the peer is a program, which closes, restarts and may
 * offer less than before, is at the end of this file.
 *
 * A request that is put again may have been done already: each is a read, or
 * writes the same to the same place, and nothing that overlaps it and came
 * after a barrier was started.
 *
 * When a device, or one of its queues, is reset, and what of a reset that is
 * needed while it can't be done now: pv_dev.c.  What a broken queue had in
 * flight ends with EIO; all others put it again.
 *
 * Locking.  blk_mtx protects the disk: its flags, its barriers, its queues'
 * number, its size.  bq_mtx protects a queue and its requests; it is taken in
 * pv_blk_queue.c alone, and releasing it does nothing else.  With it, a queue
 * reads bq_flags, a copy of blk_flags that pv_blk_set_flags() writes with both
 * locks.  The order is blk_mtx, bq_mtx (of several queues, by their number).
 * None of these is held while calling biodone(9), disk(9) (but for
 * disk_resize()), or the protocol's bo_stop and bo_restart; bq_mtx is held in
 * bo_encode, bo_status, bpo_load and bpo_unload, which only compute and copy.
 * pv_dev's lock, which comes before them, is held from the beginning of a
 * suspension, a resume, a reset or a detachment to its end, also while bios are
 * ended by it.  Nothing on the way of a bio takes it.  PVB_STOPPED makes the
 * queues quiet for those that must not hold their locks.
 *
 * A user's last bio may end, and the disk be closed, before the user's thread
 * has left d_strategy.  It uses the disk after that only if it delivers bios or
 * if something follows from its operation of a queue; bq_deliveries lists the
 * ones, blk_following counts the others, and pv_blk_detach() waits.
 *
 * Gaps.  No zones (BIO_ZONE), no secure erase other than the protocol's choice
 * for BIO_DELETE.
 */

#ifndef _DEV_PV_PV_BLK_H_
#define	_DEV_PV_PV_BLK_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/queue.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <machine/bus.h>

#include <dev/pv/pv_dma.h>
#include <dev/pv/pv_tunable.h>
#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/queue/pvq.h>

struct disk;
struct pv_blk;
struct pv_blk_peer_ops;

TAILQ_HEAD(pv_blk_reqs, pv_blk_req);
SLIST_HEAD(pv_blk_spares, pv_blk_req);
TAILQ_HEAD(pv_blk_bios, bio);	/* by bio_queue */

enum pv_blk_cmd {
	PV_BLK_READ,
	PV_BLK_WRITE,
	PV_BLK_FLUSH,		/* no data */
	PV_BLK_DELETE,		/* no data; ranges: rq_offset,
				 * rq_length, and rq_nmore bios */
	PV_BLK_IDENT,		/* rq_length bytes of identification are read */
	PV_BLK_QUERY,		/* pv_blk_query(): no data;
				 * bo_status fills rq_bio->bio_data */
	PV_BLK_NCMDS
};

/*
 * One request.  Protocols read it in bo_encode and bo_status, and write rq_msg
 * and the first and the last element of rq_segs.
 */
struct pv_blk_req {
	TAILQ_ENTRY(pv_blk_req) rq_link;	/* while it is ready
						 * or in flight */
	SLIST_ENTRY(pv_blk_req) rq_next;	/* while it is free */
	struct bio	*rq_bio;	/* NULL: our own, polled */
	struct pv_blk_bios rq_more;	/* of a PV_BLK_DELETE: further bios,
					 * each a range as it is */
	u_int		rq_nmore;
	enum pv_blk_cmd	rq_cmd;
	off_t		rq_offset;	/* bytes on the disk */
	size_t		rq_length;	/* bytes */
	/*
	 * From its load until it is put: rq_segs[0] is the protocol's, then
	 * rq_nsegs of data, then another of the protocol's.
	 */
	bus_dma_segment_t *rq_segs;
	int		rq_nsegs;
	/* bp_msgsize bytes for headers and status, coherent. */
	void		*rq_msg;
	bus_addr_t	rq_msg_paddr;
	uint32_t	rq_form;	/* bo_post's own; 0: rq_msg
					 * was used for something else */
	/* Private to pv_blk. */
	bool		rq_fast;	/* all of a bio, put by the fast path
					 * and not looked at since */
	size_t		rq_rest;	/* bytes that follow these:
					 * pv_blk_set_max_size() */
	u_int		rq_home;	/* whose bq_dtag its map is of,
					 * if there is one */
	bus_dmamap_t	rq_map;
	bool		rq_loaded;
	bool		rq_copied;	/* its data is a copy: the bounce
					 * buffer, or bpo_load's */
	bool		rq_bounced;	/* the former */
	bool		rq_unready;	/* its memory is not ready
					 * for the device */
	bool		rq_reported;	/* its time-out was */
	bool		rq_done;	/* polled: rq_error is valid */
	int		rq_error;
	int		rq_start;	/* ticks */
	sbintime_t	rq_put_at;	/* for the histogram; 0: not known */
	int		rq_requeues;
	struct bio	rq_window;	/* this piece's part of the bio,
					 * to load or pv_blk_copy() */
};

/*
 * The protocol's half.  None may sleep unless it is noted.
 */
struct pv_blk_ops {
	/*
	 * Fill pc_segs, pc_nread, pc_nwrite (and the transport's pc_arg) for
	 * rq.  Its queue's lock is held, or the machine is dumping.
	 */
	void	(*bo_encode)(struct pv_blk *blk, struct pv_blk_req *rq,
	    struct pvq_chain *pc);
	/*
	 * The fast path of a read or a write of up to bp_fast_segs segments,
	 * for which there is room: as bo_encode, then syncs blk_msg_dma, puts
	 * and commits.  NULL: there is none.
	 */
	void	(*bo_post)(struct pv_blk *blk, struct pv_blk_req *rq,
	    struct pvq *q);
	/*
	 * The result of rq: 0, EIO, EOPNOTSUPP ...; -1 for a protocol
	 * violation, with *seen set to the invalid value: the queue is then
	 * marked broken.
	 */
	int	(*bo_status)(struct pv_blk *blk, const struct pv_blk_req *rq,
		    const struct pvq_done *pd, uintmax_t *seen);
	/*
	 * Resetting in place: stop the device, so that it no longer uses the
	 * queue, and bring it back to life when the queue was drained.  Both
	 * may sleep unless the machine is dumping.  An error of bo_stop means
	 * that the device may still use our memory.  NULL: there is bo_peer.
	 */
	int	(*bo_stop)(struct pv_blk *blk);
	int	(*bo_restart)(struct pv_blk *blk);
	/*
	 * The same for one queue while the others run.  An error of either
	 * means that the device has to be reset.  May sleep.  NULL: it can't.
	 */
	int	(*bo_stop_queue)(struct pv_blk *blk, u_int index);
	int	(*bo_restart_queue)(struct pv_blk *blk, u_int index);
	/*
	 * What is wanted of the device, applied after each start (pv_dev(9)),
	 * with the struct pv_blk; ends with NULL.  May sleep unless the machine
	 * is dumping.  NULL: nothing.
	 */
	void	(*const *bo_settings)(void *arg);
	/*
	 * The disk has fewer queues than it could have (pv_dev_set_short()):
	 * may there be enough for more now?  Called once a second.  May sleep.
	 * NULL: there are always all.
	 */
	bool	(*bo_has_more)(struct pv_blk *blk);
	/* Reconnecting and copying (struct pv_blk_peer_ops).  NULL: neither. */
	const struct pv_blk_peer_ops *bo_peer;
	/*
	 * The last user closed the disk: pv_blk_quiesce() returns 0.  May
	 * sleep.  NULL: not needed.
	 */
	void	(*bo_closed)(struct pv_blk *blk);
};

/*
 * What the protocol read from its device.  pv_blk_init() checks and keeps a
 * copy.
 */
struct pv_blk_params {
	const char	*bp_diskname;	/* "vtbd": the disk
					 * is this and the device's unit */
	const char	*bp_descr;	/* what diskinfo -v calls it */
	uint64_t	bp_mediasize;	/* bytes */
	u_int		bp_sectorsize;	/* bytes, a power of 2, 512 or more */
	u_int		bp_nqueues;	/* most that will ever be;
					 * up to PV_BLK_QUEUES_MAX */
	u_int		bp_nreqs;	/* requests of each in flight at most */
	u_int		bp_max_segs;	/* data segments in a request */
	u_int		bp_fast_segs;	/* of these at most by bo_post; 0: it
					 * can't be called */
	bus_size_t	bp_seg_size;	/* bytes in a segment at most */
	u_int		bp_idle_secs;	/* for what is in flight when
					 * the device is frozen */
	bool		bp_phys;	/* segments are pvq_phys_add()'s */
	bus_size_t	bp_max_size;	/* bytes in a request at most; 0: what
					 * the segments hold */
	uint64_t	bp_delete_size;	/* bytes in a PV_BLK_DELETE at most;
					 * 0: there is none */
	u_int		bp_delete_ranges; /* in one at most; 0 is 1 */
	uint64_t	bp_delete_align; /* bytes that are freed only as a
					  * whole; 0: a sector */
	uint64_t	bp_delete_first; /* bytes at which the first
					  * of these begins */
	u_int		bp_stripesize;	/* bytes; 0: unknown */
	u_int		bp_stripeoffset;
	u_int		bp_fwheads;	/* 0: unknown */
	u_int		bp_fwsectors;
	u_int		bp_batch;	/* what blk_batch begins as;
					 * 0: PV_BLK_BATCH */
	struct pv_tunable *bp_tunables;	/* the driver's,
					 * PV_BLK_TUNABLES first */
	size_t		bp_msgsize;	/* bytes of DMA memory
					 * a request for the protocol */
	size_t		bp_ident_size;	/* bytes of PV_BLK_IDENT;
					 * 0: there is none */
	u_int		bp_flags;
#define	PV_BLK_READONLY		0x0001
#define	PV_BLK_CACHED		0x0002	/* the device has a volatile cache, and
					 * a flush for it */
#define	PV_BLK_QUEUE_RESET	0x0004	/* there is bo_stop_queue,
					 * until it fails once */
};

/*
 * The tunables that a disk's driver begins its table with; each disk has its
 * own value as a sysctl.
 */
enum {
	PV_BLK_TIMEOUT,
	PV_BLK_TIMEOUT_RESET,
	PV_BLK_NTUNABLES
};
#define	PV_BLK_TUNABLES							\
	[PV_BLK_TIMEOUT] = PV_TUNABLE("timeout", 30, 0, 86400, PVT_DEVICE, \
	    "Seconds until a request without an answer is reported, 0: never"), \
	[PV_BLK_TIMEOUT_RESET] = PV_TUNABLE("timeout_reset", 0, 0, 86400, \
	    PVT_DEVICE,							\
	    "Seconds until the device is reset for a request without an answer, 0: never")

/*
 * A queue has its own, and so has the disk; their sums are under dev.NAME.N,
 * see pv_blk_disk.c.
 */
struct pv_blk_stats {
	uint64_t	bs_bios;
	uint64_t	bs_requests;
	uint64_t	bs_fast;
	uint64_t	bs_splits;
	uint64_t	bs_bounced;
	uint64_t	bs_merged_deletes;
	uint64_t	bs_deferred_kicks;
	uint64_t	bs_yields;
	uint64_t	bs_io_errors;
	uint64_t	bs_unsupported;
	uint64_t	bs_protocol_errors;
	uint64_t	bs_dma_errors;
	uint64_t	bs_nomem;
	uint64_t	bs_timeouts;
	uint64_t	bs_timeout_resets;
	uint64_t	bs_requeued;
	uint64_t	bs_resizes;
	uint64_t	bs_max_in_flight;
};

#define	PV_BLK_QUEUES_MAX	16
#define	PV_BLK_ANSWER_MAX	16	/* bytes of an answer to PV_BLK_QUERY */

/*
 * A thread that calls the users of a queue's bios.  What they submit to that
 * queue meanwhile is started when all have been called.  Started from within
 * the call, with a device that answers at once, it would end in another such
 * call, and so on until the stack is full.
 */
struct pv_blk_delivery {
	SLIST_ENTRY(pv_blk_delivery) pbd_link;
	struct thread	*pbd_td;
};

/* When a queue's device is notified: pv_blk_pace_due() and what it goes by. */
struct pv_blk_pace {
	u_int		pp_unkicked;	/* committed since
					 * the last notification */
	u_int		pp_expected;	/* completed,
					 * and not followed by another */
	const struct thread *pp_td;	/* that submitted last;
					 * never dereferenced */
	bool		pp_waits;	/* the mode: notifications wait */
	bool		pp_trial;	/* it is being tried */
	bool		pp_could_wait;	/* one did, or would have,
					 * in this window */
	u_int		pp_done;	/* completions in this window */
	uint64_t	pp_began;	/* cpu_ticks() */
	uint64_t	pp_last;	/* that PV_BLK_WINDOW completions took
					 * in the last one */
	uint64_t	pp_time;	/* and in the faster of the last two */
	u_int		pp_windows;	/* until the next trial */
	u_int		pp_rest;	/* windows between trials */
};

struct pv_blk_queue {
	struct pv_blk	*bq_blk;
	struct pvq	*bq_pvq;
	struct mtx	bq_mtx;
	char		bq_name[PVQ_NAMELEN];
	u_int		bq_index;
	u_int		bq_flags;	/* copy of blk_flags,
					 * and PVB_STOPPED if bq_stopped */
	bool		bq_stopped;	/* this queue alone is stopped */
	bool		bq_fast;	/* bo_post can be called */
	bool		bq_stuck;	/* a request takes longer
					 * than blk_timeout_reset */

	/* Bios. */
	struct pv_blk_bios bq_bios;	/* not yet begun,
					 * or not all of it: bio_driver2 */
	struct bio	*bq_cur;	/* being cut into pieces */
	size_t		bq_cur_off;	/* where its next piece begins */
	struct pv_blk_bios bq_finished;	/* to be delivered without the lock */
	struct pv_blk_bios bq_deletes;	/* wait for the end of one
					 * that is a request */
	u_int		bq_ndeletes;	/* requests that delete:
					 * ready or in flight */
	u_int		bq_singly;	/* so many deletes next
					 * are a request each */
	SLIST_HEAD(, pv_blk_delivery) bq_deliveries;

	/* Requests. */
	struct pv_blk_spares bq_free;
	struct pv_blk_reqs bq_ready;
	struct pv_blk_reqs bq_inflight;
	bus_dma_tag_t	bq_dtag;	/* data; loads of one tag must not run
					 * at the same time */
	u_int		bq_ninflight;
	bool		bq_short;	/* memory was short for a request */
	struct pv_blk_pace bq_pace;

	struct callout	bq_retry;	/* after a shortage of memory, or when
					 * the thread was yielded */
	callout_func_t	*bq_retry_func;
	struct pv_blk_stats bq_stats;
	struct pv_blk_hist *bq_hist;	/* an element of blk_hists, or NULL */
	u_int		bq_failed[PV_BLK_NCMDS]; /* requests that failed,
						  * for the log */
	/*
	 * Two queues share no line, wherever a line begins: a softc is not
	 * aligned to one.
	 */
	char		bq_pad[CACHE_LINE_SIZE];
};

struct pv_blk {
	device_t	blk_dev;
	const struct pv_blk_ops *blk_ops;
	struct pv_blk_params blk_params;
	struct disk	*blk_disk;
	struct mtx	blk_mtx;
	u_int		blk_flags;
#define	PVB_STOPPED	0x0001	/* the queues are not to be touched */
#define	PVB_FROZEN	0x0004	/* nothing is started */
#define	PVB_DETACHING	0x0008	/* new bios are refused */
#define	PVB_DEAD	0x0010	/* could not be brought back,
				 * or is not expected */
#define	PVB_GONE	0x0020	/* d_gone was called; blk_flags only */
#define	PVB_DUMPING	0x0040	/* polled for a dump, until reboot;
				 * blk_flags only */
#define	PVB_WRITETHROUGH 0x0080	/* flushes need not reach the device */
#define	PVB_LEAK	0x0100	/* the device may still use our memory;
				 * blk_flags only */
#define	PVB_GATED	0x0200	/* new bios are queued in blk_waiting */
#define	PVB_HISTOGRAM	0x0800	/* depth and latencies are counted */
/* No fast path. */
#define	PVB_GENERAL	(PVB_STOPPED | PVB_FROZEN | PVB_DEAD | PVB_HISTOGRAM)
	bool		blk_open;	/* the disk has users */
	bool		blk_through;	/* the device was set
					 * to write-through */
	bool		blk_emptying;	/* blk_last_flush is under way */
	bool		blk_empty_again; /* and has to be repeated */
	u_int		blk_batch;	/* most requests a notification;
					 * 1: none waits */
	int		blk_timeout;	/* seconds until a request
					 * is reported; 0: never */
	int		blk_timeout_reset; /* seconds until the device is reset
					    * for one; 0: never */

	/* Barriers. */
	struct pv_blk_bios blk_waiting;
	struct bio	*blk_barrier;	/* in the first queue, and not done */
	volatile u_int	blk_following;	/* threads of users in pv_blk_pump() */
	bool		blk_pumping;	/* one of the threads there pumps */
	u_int		blk_turn;	/* the queue for the next
					 * bio that waited */

	u_int		blk_nactive;	/* queues in use;
					 * also with every bq_mtx */
	struct pv_blk_req *blk_reqs;	/* of all queues, and one for polling */

	/* Bios of our own, see pv_blk_disk.c. */
	struct bio	blk_last_flush;
	struct bio	blk_query;
	char		blk_answer[PV_BLK_ANSWER_MAX];
	bool		blk_querying;	/* blk_query and blk_answer
					 * are the device's */
	bool		blk_query_late;	/* and no thread waits
					 * for it any more */

	/* DMA. */
	struct pv_dma	blk_msg_dma;
	struct pv_dma	blk_spare_dma;	/* will be blk_msg_dma,
					 * which has fewer */
	u_int		blk_nmsgs;	/* requests that blk_msg_dma
					 * has memory for */
	u_int		blk_nspare;
	u_int		blk_nmade;	/* requests that there are,
					 * in pv_blk_nth()'s order */
	bus_dma_segment_t *blk_segs;
	struct pv_dma	blk_bounce_dma;
	char		*blk_bounce;
	size_t		blk_bounce_size;
	size_t		blk_alloc_size;	/* bp_max_size as it was first */
	volatile u_int	blk_bounce_busy; /* 1: a request has it */

	struct callout	blk_watchdog;	/* time-outs */
	struct pv_dev	blk_pvdev;	/* its life */
	struct pv_dev_ops blk_dev_ops;
	bool		blk_requeued;	/* its protocol has stopped it, and
					 * starts it again */
	struct sysctl_ctx_list blk_sysctl;
	struct sysctl_ctx_list blk_queue_sysctl; /* of the pvqs */
	struct pv_blk_stats blk_stats;	/* what no queue counts */
	struct pv_blk_hist *blk_hists;	/* of each queue; NULL: not used yet */
	struct pv_blk_queue blk_queues[PV_BLK_QUEUES_MAX];
};

/*
 * Sets the size and the offset of stripes, at whose borders accesses are best
 * aligned, in params, unless they are set: for the protocol to call with what
 * its device tells, the best first.
 *
 * size   bytes; ignored unless it is a multiple of a sector, and more than one
 * first  bytes at which the first stripe begins
 */
void	pv_blk_set_stripe(struct pv_blk_params *params, uint64_t size,
    uint64_t first);

/*
 * How many queues should a disk use?  Not more than one a CPU.
 *
 * offered  by the device, 1 or more
 * wanted   by a tunable; 0: one a CPU
 */
u_int	pv_blk_nqueues(u_int offered, int wanted);

/*
 * Prepare blk.  The queues' handler pv_blk_intr() may be called from then on.
 * May sleep.
 *
 * dev     the device, for messages, its DMA tag, its sysctl tree
 * params  checked: EINVAL, with a message, if a sector can't be transferred
 *         within the limits
 *
 * Returns 0, EINVAL or ENOMEM; then pv_blk_fini() must not be called.
 */
int	pv_blk_init(struct pv_blk *blk, device_t dev,
    const struct pv_blk_ops *ops,
	    const struct pv_blk_params *params);

/*
 * Free what pv_blk_init() made.  pv_blk_intr() will not run again.  May sleep.
 */
void	pv_blk_fini(struct pv_blk *blk);

/*
 * Make the disk.  The device is live.  May sleep; polls for the identification.
 *
 * qs  n queues, up to bp_nqueues; pv_blk serialises all use of them from now on
 *
 * Returns 0; ETIMEDOUT, with a message, if the device does not answer: it was
 * stopped then.
 */
int	pv_blk_attach(struct pv_blk *blk, struct pvq *const *qs, u_int n);

/*
 * Take the disk away, also under load: what is queued ends with ENXIO, what is
 * in flight is given PV_BLK_IDLE_SECS to be completed, then the device is
 * stopped and the rest ends with ENXIO too.  Returns when no user is left.  May
 * sleep.
 */
void	pv_blk_detach(struct pv_blk *blk);

/* Is the disk open?  For device_quiesce(9): EBUSY, or 0. */
int	pv_blk_quiesce(struct pv_blk *blk);

/*
 * A queue's interrupt handler, in an ithread; arg is its element of blk_queues.
 */
void	pv_blk_intr(void *arg);

/*
 * The device's size changed.
 *
 * mediasize  bytes
 */
void	pv_blk_resize(struct pv_blk *blk, uint64_t mediasize);

/*
 * Does a write survive without a flush?  Flushes then succeed without going to
 * the device.  For one that writes through for as long as this disk used it,
 * has no flush at all, or is about to write back.
 */
void	pv_blk_set_writethrough(struct pv_blk *blk, bool on);

/*
 * The device has written back, and writes through from now on.  Flushes go to
 * it until what it may still have cached was flushed; if that fails, for as
 * long as the disk lives.
 */
void	pv_blk_end_caching(struct pv_blk *blk);

/*
 * Asks the device for what the protocol encodes as PV_BLK_QUERY, among the
 * requests of all others.
 *
 * buf   the answer, of size bytes, up to PV_BLK_ANSWER_MAX; as bo_status stored
 *       it
 * secs  the longest time to wait
 *
 * Returns 0; EBUSY if an earlier question was not answered yet; EWOULDBLOCK if
 * this one was not in time; or what the request ended with.  May sleep.
 */
int	pv_blk_query(struct pv_blk *blk, void *buf, size_t size, u_int secs);

/*
 * Wait for what is in flight to be completed; frozen before, or new requests
 * keep coming.
 *
 * secs  the longest time to wait
 *
 * Returns 0; EBUSY if some of it is still in flight.  May sleep.
 */
int	pv_blk_wait_idle(struct pv_blk *blk, u_int secs);

/*
 * The device, which is frozen, was stopped: take what was in flight out of the
 * queues.  May sleep.
 */
void	pv_blk_requeue(struct pv_blk *blk);

/*
 * Use other queues from now on, or none (n is 0): the next ones of a device
 * whose queues do not outlive a reset, or more of one that had fewer than it
 * could use.  Between pv_blk_requeue() and pv_dev_thaw(), in bo_restart unless
 * the machine is dumping, or before pv_blk_detach().  What waits in a queue
 * that is not used any more goes on in another.  May sleep.
 *
 * qs  n queues, up to bp_nqueues
 */
void	pv_blk_set_queues(struct pv_blk *blk, struct pvq *const *qs, u_int n);

/*
 * Reconnecting and copying, a capability for a transport whose peer is a domain
 * of its own.
 *
 * Such a peer takes part in a reset: it is requested to close, may take long,
 * restart, or never answer, and the one that connects next may offer less.  And
 * it must not see more memory than the data of its requests, so that these are
 * copied to and from pages that are shared with it.
 *
 *	a need of a reset (pv_dev.c) -->
 *	    bpo_reconnect()      requested
 *	    pv_dev_quiesce()     the protocol's thread, from here on
 *	    pv_blk_requeue()
 *	    pv_blk_set_queues()  none; the peer closes and connects
 *	the next peer's limits -->
 *	    pv_blk_set_delete(), pv_blk_set_max_size()
 *	    pv_blk_set_queues()  the new ones
 *	    pv_dev_thaw(), or pv_dev_lose()
 */

/*
 * bo_peer of struct pv_blk_ops, which has neither bo_stop nor bo_restart then.
 * None may sleep.
 */
struct pv_blk_peer_ops {
	/*
	 * Request a new connection, and return.  The queues are frozen.  The
	 * device is stopped by the protocol before pv_blk_detach().
	 */
	void	(*bpo_reconnect)(struct pv_blk *blk);
	/*
	 * Make rq_length bytes ready for the peer, for a write those of
	 * rq_window; and, after a read without an error, copy them to
	 * rq_window.  bp_phys is false, and rq_nsegs stays 0.
	 *
	 * Returns 0, with rq_length less if there is no room for all: whole
	 * sectors; or ENOMEM: none now.  There is always room for the polled
	 * request.
	 */
	int	(*bpo_load)(struct pv_blk *blk, struct pv_blk_req *rq);
	void	(*bpo_unload)(struct pv_blk *blk, struct pv_blk_req *rq);
	/* What was loaded is not needed any more, or is loaded again. */
	void	(*bpo_release)(struct pv_blk *blk, struct pv_blk_req *rq);
	/* Bytes of the polled request at most. */
	size_t	bpo_polled_size;
};

/*
 * Copies length bytes of a mapped or unmapped bio, from off on, to buf, or buf
 * to them.  For bpo_load and bpo_unload, with a request's rq_window.  Does not
 * sleep.
 */
void	pv_blk_copy(const struct bio *bp, size_t off, size_t length, char *buf,
    bool to_bio);

/*
 * pv_dev_quiesce(), and from now on completions are not collected either: what
 * a queue has then need not be true of the requests in flight.  What was
 * completed before has been copied when this returns.  pv_dev_thaw() goes on,
 * or pv_dev_quiesce() and what follows it.
 */
void	pv_blk_hold(struct pv_blk *blk);

/*
 * The next peer deletes more or less at once than the one before, or nothing
 * any more, or other units: bp_delete_* of params.  Frozen.
 */
void	pv_blk_set_delete(struct pv_blk *blk,
    const struct pv_blk_params *params);

/*
 * The next peer takes other requests.  What was requeued and is longer is sent
 * in pieces, one after the other.  Between pv_blk_requeue() and pv_dev_thaw().
 *
 * size  bytes of data in a request, at least a sector; more than bp_max_size
 *       was are not used
 */
void	pv_blk_set_max_size(struct pv_blk *blk, size_t size);

/*
 * Has a request in flight been without an answer for longer than the time-out?
 * Takes a queue's lock.
 */
bool	pv_blk_is_late(struct pv_blk *blk);

#endif /* !_DEV_PV_PV_BLK_H_ */
