/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: sending, notification of the device, and completion.
 *
 *	if_transmit --lock free, nothing waits--> chain --> ring ~~notification~~> device
 *	     |                                      ^                                |
 *	     | lock taken, or packets wait          | run                            v
 *	     +--> buf_ring, or list --------------->+----- collects <----- completed chains
 *	                                            |
 *	            +---------------+---------------+--------------+
 *	            |               |               |              |
 *	       if_transmit        task      transmit interrupt   start (ALTQ)
 *	                            ^
 *	                            +-- lock was taken, notification left over, timer
 *
 * All but the short way of a packet is done by one function, pv_net_tx_run(): it collects
 * completions, fills the ring with what waits, arms the timer, and checks whether the queue is broken.
 * Those in the picture call it, and notify afterwards:
 *
 *	runs the queue                  because                                notifies
 *	-----------------------------   ------------------------------------   -----------------------
 *	if_transmit                     packets wait, the packet was split,    see below
 *	                                or ptq_look says to collect
 *	start                           ALTQ releases packets                  see below
 *	task                            the lock was taken; the timer          at once; also for each
 *	                                expired; a notification was left       batch of PV_NET_BATCH
 *	transmit interrupt              the ring was full (pv_net_tx_wait)     the same
 *	pv_net_tx_retired()             the pair of queues is given up         the same
 *
 * Notification.  It may trap to the host, so it is sent when the thread that queues packets has
 * finished with them.  Of a sender this is known by its priority:
 *
 *	any thread but those below               before if_transmit returns
 *	receiving on the same pair of queues     at the end of its pass (pv_net_tx_pass_end)
 *	another interrupt thread                 by the task
 *
 * An interrupt thread, for example another card's that forwards what it receives, sends one packet
 * after another and does not mark the last one.  So the task's thread has the lowest priority that
 * interrupt threads may have: it does not run before they sleep, and nothing else keeps it from running
 * then.  A pass without end does not delay packets without end: after pn_tx_kick of them, or
 * PV_NET_KICK_BYTES, the sender notifies.
 *
 *	notified:   ptq_unkicked == 0
 *	left over:  ptq_unkicked != 0 while no thread has the lock.  The task is queued
 *	            (ptq_deferred), or the pair's receive pass has not finished (prq_busy).
 *
 * Completions are collected by the dozen, without interrupts: by the sender, when a quarter of the
 * buffers, or of those that were free the last time, is in flight (ptq_look).
 *
 * The timer.  What is in flight would be collected by the next sender, and there may be none.  So while
 * anything is in flight or waits, a callout is pending that queues the task after PV_NET_TX_TIMER.  It
 * bounds the time that an mbuf stays with the driver, and it tries again when memory is short.  No
 * packet waits for it otherwise.
 *
 * The interrupt is enabled only when the ring is full and packets wait, and comes when three quarters
 * of what is in flight have completed (pv_net_tx_wait).
 *
 *	room:       ptq_full is false
 *	full:       ptq_full is true from a packet that found no room until a completion is collected
 *
 * Locking.  ptq_mtx covers everything of the queue, both directions of the pvq included.  The buf_ring
 * takes packets without it.  Of the stack, only m_freem() and bpf(4) are called with it held.
 */

#include "opt_rss.h"

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/epoch.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <sys/time.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <net/if_private.h>	/* if_snd: nothing else puts into it */
#include <machine/bus.h>
#ifdef RSS
#include <net/rss_config.h>
#endif

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

#define	PV_NET_KICK_BYTES	131072		/* bytes after which a notification is not left over */
#define	PV_NET_TX_TIMER		(10 * SBT_1MS)	/* longest that a completion waits */

/*
 * Leave the notification to the end of the pass that this thread makes, or may be making.  False if it
 * makes none, or if enough is left over already.
 */
static bool
pv_net_tx_hold(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;

	if (txq->ptq_unkicked == 0 || curthread->td_base_pri > PV_NET_TASK_PRI ||
	    txq->ptq_unkicked >= (u_int)pn->pn_tx_kick ||
	    txq->ptq_stats.bytes - txq->ptq_kicked_bytes >= PV_NET_KICK_BYTES)
		return (false);
	txq->ptq_stats.held_kicks++;
	if (pn->pn_rxqs[txq->ptq_id].prq_busy != curthread && !txq->ptq_deferred) {
		txq->ptq_deferred = true;
		taskqueue_enqueue(txq->ptq_tq, &txq->ptq_task);
	}
	return (true);
}

/* The sender has finished with its packets, for now. */
static inline void
pv_net_tx_notify(struct pv_net_txq *txq)
{
	if (!pv_net_tx_hold(txq))
		pv_net_tx_kick(txq);
}

/*
 * The next packet to be sent: the first of the list, which it leaves, or what the buf_ring has, where
 * it stays until pv_net_tx_advance().  For the first queue, packets dequeued from ALTQ are as on the
 * list.  (Given an interface, as drbr_enqueue() always is, the drbr_ functions would use ALTQ's queue
 * in the place of the buf_ring, by each of our queues.)
 */
static struct mbuf *
pv_net_tx_peek(struct pv_net_txq *txq, bool *listed)
{
	if_t ifp = txq->ptq_pn->pn_ifp;
	struct mbuf *m = txq->ptq_list;

	*listed = m != NULL;
	if (m == NULL) {
		m = drbr_peek(NULL, txq->ptq_ring);
		if (m == NULL && txq->ptq_id == 0 && txq->ptq_pn->pn_shaped) {
			m = if_dequeue(ifp);
			*listed = true;
		}
		return (m);
	}
	txq->ptq_list = m->m_nextpkt;
	m->m_nextpkt = NULL;
	return (m);
}

/* It was taken. */
static void
pv_net_tx_advance(struct pv_net_txq *txq, bool listed)
{
	if (!listed)
		drbr_advance(NULL, txq->ptq_ring);
}

/* It was not, and may be another mbuf now. */
static void
pv_net_tx_putback(struct pv_net_txq *txq, bool listed, struct mbuf *m)
{
	if (listed) {
		m->m_nextpkt = txq->ptq_list;
		txq->ptq_list = m;
	} else
		drbr_putback(NULL, txq->ptq_ring, m);
}

/*
 * One packet off the list or the buf_ring, into the batch: false if there is none or no room for it.
 */
static bool
pv_net_tx_next(struct pv_net_txq *txq)
{
	struct mbuf *m;
	bool listed;

	m = pv_net_tx_peek(txq, &listed);
	if (m == NULL)
		return (false);
	if (!pv_net_tx_add(txq, &m)) {
		pv_net_tx_putback(txq, listed, m);
		txq->ptq_full = true;
		return (false);
	}
	pv_net_tx_advance(txq, listed);
	return (true);
}

/*
 * The ring is full and packets wait: request an interrupt when three quarters of what is in flight have
 * completed.  Returns true if so many have already.
 */
static bool
pv_net_tx_wait(struct pv_net_txq *txq)
{
	int inflight = pvq_inflight(txq->ptq_pvq);

	pv_net_tx_kick(txq);
	/* Without a completion to wait for it is memory that is short: the callout tries again. */
	if (inflight == 0)
		return (false);
	txq->ptq_stats.waits++;
	return (pvq_intr_enable(txq->ptq_pvq, MAX(inflight * 3 / 4, 1)));
}

/* Is there a packet that is not in the queue yet? */
static inline bool
pv_net_tx_waiting(const struct pv_net_txq *txq)
{
	return (txq->ptq_list != NULL || !buf_ring_empty(txq->ptq_ring));
}

static void
pv_net_tx_timer(void *arg)
{
	struct pv_net_txq *txq = arg;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	if (txq->ptq_stopped)
		return;
	txq->ptq_stats.timer_reclaims++;
	taskqueue_enqueue(txq->ptq_tq, &txq->ptq_task);
}

static void
pv_net_tx_arm(struct pv_net_txq *txq)
{
	if (!callout_pending(&txq->ptq_timer) &&
	    (pvq_inflight(txq->ptq_pvq) > 0 || pv_net_tx_waiting(txq)))
		callout_reset_sbt(&txq->ptq_timer, PV_NET_TX_TIMER, PV_NET_TX_TIMER / 4,
		    pv_net_tx_timer, txq, 0);
}

/* A packet has to wait: it is freed if the buf_ring is full. */
static int
pv_net_tx_enqueue(struct pv_net_txq *txq, struct mbuf *m)
{
	int error;

	error = buf_ring_enqueue(txq->ptq_ring, m);
	if (error != 0) {
		atomic_add_64(&txq->ptq_stats.queue_drops, 1);
		m_freem(m);
	}
	return (error);
}

/* Packets that wait for a queue which is not in use any more go to one that is. */
static void
pv_net_tx_move(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;
	struct pv_net_txq *to = &pn->pn_txqs[txq->ptq_id % pn->pn_pairs];
	struct mbuf *m;
	bool listed;

	while ((m = pv_net_tx_peek(txq, &listed)) != NULL) {
		pv_net_tx_advance(txq, listed);
		(void)pv_net_tx_enqueue(to, m);
		txq->ptq_stats.moved++;
	}
	taskqueue_enqueue(to->ptq_tq, &to->ptq_task);
}

/* Fill the ring, from the list and the buf_ring, for as long as there is room. */
static void
pv_net_tx_fill(struct pv_net_txq *txq)
{
	do {
		txq->ptq_full = false;
		while (pv_net_tx_next(txq)) {
			if (txq->ptq_n == PV_NET_BATCH) {
				pv_net_tx_commit(txq);
				pv_net_tx_kick(txq);
			}
		}
		pv_net_tx_commit(txq);
		if (!txq->ptq_full || !pv_net_tx_wait(txq))
			return;
		pv_net_tx_reclaim(txq);
	} while (!txq->ptq_full);
}

/* Collect completions and queue what waits.  The caller notifies. */
static void
pv_net_tx_run(struct pv_net_txq *txq)
{
	struct pvq *q = txq->ptq_pvq;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	if (txq->ptq_stopped && !txq->ptq_parked)
		return;
	if (__predict_false((u_int)txq->ptq_id >= txq->ptq_pn->pn_pairs))
		pv_net_tx_move(txq);
	if (txq->ptq_stopped)
		return;
	pv_net_tx_reclaim(txq);
	/* While it is full, an interrupt will come when it is not. */
	if (!txq->ptq_full || pvq_inflight(q) == 0 || pvq_broken(q))
		pv_net_tx_fill(txq);
	pv_net_tx_arm(txq);
	/* If few completed, not each packet looks for more. */
	txq->ptq_look = MIN(txq->ptq_nbufs - txq->ptq_nbufs / 4,
	    txq->ptq_nfree - txq->ptq_nfree / 4);
}

static void
pv_net_tx_task(void *arg, int pending __unused)
{
	struct pv_net_txq *txq = arg;

	mtx_lock(&txq->ptq_mtx);
	txq->ptq_deferred = false;
	pv_net_tx_run(txq);
	pv_net_tx_kick(txq);
	mtx_unlock(&txq->ptq_mtx);
}

void
pv_net_tx_intr(void *arg)
{
	struct pv_net_txq *txq = arg;
	bool stopped;

	mtx_lock(&txq->ptq_mtx);
	stopped = txq->ptq_stopped;
	if (!stopped) {
		pvq_intr_disable(txq->ptq_pvq);
		pv_net_tx_run(txq);
		pv_net_tx_kick(txq);
	}
	mtx_unlock(&txq->ptq_mtx);
	if (stopped)
		pv_net_netmap_tx_intr(txq);
}

void
pv_net_tx_pass_end(struct pv_net_txq *txq)
{
	/* What this thread queued it sees without the lock. */
	if (txq->ptq_unkicked == 0)
		return;
	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_kick(txq);
	mtx_unlock(&txq->ptq_mtx);
}

bool
pv_net_tx_retired(struct pv_net_txq *txq)
{
	bool retired;

	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_run(txq);
	pv_net_tx_kick(txq);
	retired = txq->ptq_stopped || pvq_inflight(txq->ptq_pvq) == 0;
	mtx_unlock(&txq->ptq_mtx);
	return (retired);
}

/*
 * The flow of a packet with a hash, by which its pair is found: with options RSS, the kernel's bucket.
 */
static inline u_int
pv_net_tx_flow(const struct mbuf *m)
{
#ifdef RSS
	uint32_t bucket;

	if (rss_hash2bucket(m->m_pkthdr.flowid, M_HASHTYPE_GET(m), &bucket) == 0)
		return (bucket);
#endif
	return (m->m_pkthdr.flowid % PV_NET_FLOWS);
}

static struct pv_net_txq *
pv_net_tx_select(struct pv_net *pn, const struct mbuf *m)
{
	u_int n = pn->pn_pairs;

	if (n == 1)
		return (&pn->pn_txqs[0]);
	if (M_HASHTYPE_GET(m) != M_HASHTYPE_NONE)
		return (&pn->pn_txqs[pv_net_tx_flow(m) % n]);
	return (&pn->pn_txqs[curcpu % n]);
}

/*
 * The short way: put a packet into the ring at once.  False if another waits, or the ring has no room
 * for it or is not in use; *mp may be another mbuf then.
 */
static bool
pv_net_tx_direct(struct pv_net_txq *txq, struct mbuf **mp)
{
	if (pv_net_tx_waiting(txq) || txq->ptq_stopped ||
	    (u_int)txq->ptq_id >= txq->ptq_pn->pn_pairs || !pv_net_tx_put(txq, mp))
		return (false);
	pv_net_tx_arm(txq);
	return (true);
}

/* Send a packet of the thread that has the lock. */
static int
pv_net_tx_send(struct pv_net_txq *txq, struct mbuf *m)
{
	int error = 0;

	if (__predict_true(pv_net_tx_direct(txq, &m))) {
		/* It may have been split, and its segments wait now. */
		if (__predict_true(txq->ptq_list == NULL))
			return (0);
	} else if (pv_net_tx_waiting(txq))
		error = pv_net_tx_enqueue(txq, m);
	else
		txq->ptq_list = m;
	pv_net_tx_run(txq);
	return (error);
}

void
pv_net_start(if_t ifp)
{
	struct pv_net *pn = if_getsoftc(ifp);
	struct pv_net_txq *txq = &pn->pn_txqs[0];

	if (!pv_dev_is_live(&pn->pn_pvdev))
		return;
	if (mtx_trylock(&txq->ptq_mtx)) {
		pv_net_tx_run(txq);
		pv_net_tx_notify(txq);
		mtx_unlock(&txq->ptq_mtx);
	} else
		taskqueue_enqueue(txq->ptq_tq, &txq->ptq_task);
}

/* ALTQ decides which packet is next, and when: altq(4).  It frees what it has no room for. */
static __noinline int
pv_net_tx_shape(if_t ifp, struct mbuf *m)
{
	struct pv_net *pn = if_getsoftc(ifp);
	int error;

	/* For good: if it has just been disabled, the packet waits in a queue without it. */
	pn->pn_shaped = true;
	IFQ_ENQUEUE(&ifp->if_snd, m, error);
	pv_net_start(ifp);
	return (error);
}

int
pv_net_transmit(if_t ifp, struct mbuf *m)
{
	struct pv_net *pn = if_getsoftc(ifp);
	struct pv_net_txq *txq;
	int error;

	if (!pv_dev_is_live(&pn->pn_pvdev)) {
		m_freem(m);
		return (ENETDOWN);
	}
	if (__predict_false(if_altq_is_enabled(ifp)))
		return (pv_net_tx_shape(ifp, m));
	txq = pv_net_tx_select(pn, m);
	if (mtx_trylock(&txq->ptq_mtx)) {
		error = pv_net_tx_send(txq, m);
		pv_net_tx_notify(txq);
		/* Last, as the device works meanwhile.  If a packet waits, the queue was run. */
		if (txq->ptq_nfree <= txq->ptq_look && !pv_net_tx_waiting(txq))
			pv_net_tx_run(txq);
		mtx_unlock(&txq->ptq_mtx);
	} else {
		error = pv_net_tx_enqueue(txq, m);
		taskqueue_enqueue(txq->ptq_tq, &txq->ptq_task);
	}
	return (error);
}

static void
pv_net_tx_flush_ring(struct pv_net_txq *txq)
{
	struct mbuf *m;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	while ((m = txq->ptq_list) != NULL) {
		txq->ptq_list = m->m_nextpkt;
		m_freem(m);
	}
	/* A pair that never had queues has no ring either. */
	while (txq->ptq_ring != NULL && (m = buf_ring_dequeue_sc(txq->ptq_ring)) != NULL)
		m_freem(m);
}

void
pv_net_tx_flush(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_flush_ring(txq);
	mtx_unlock(&txq->ptq_mtx);
}

void
pv_net_qflush(if_t ifp)
{
	struct pv_net *pn = if_getsoftc(ifp);
	int i;

	for (i = 0; i < pn->pn_made; i++)
		pv_net_tx_flush(&pn->pn_txqs[i]);
	if_qflush(ifp);
}

bool
pv_net_tx_watch(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;
	uint64_t done;
	bool stuck = false;

	if (pn->pn_params.pnp_may_rest)
		return (false);
	mtx_lock(&txq->ptq_mtx);
	done = txq->ptq_pvq->q_stats.qs_done;
	if ((txq->ptq_stopped && !pv_net_netmap_stands(txq)) ||
	    pvq_inflight(txq->ptq_pvq) == 0 || done != txq->ptq_wd_done)
		txq->ptq_wd_ticks = 0;
	else
		stuck = ++txq->ptq_wd_ticks >= PV_NET_WATCHDOG;
	txq->ptq_wd_done = done;
	/* With the lock: it is not reset meanwhile. */
	if (stuck)
		pv_dev_need_reset(&pn->pn_pvdev, pv_net_number(txq->ptq_id, true), ETIMEDOUT);
	mtx_unlock(&txq->ptq_mtx);
	return (stuck);
}

/* Is there a fast path for such a card? */
static bool
pv_net_tx_has_fast(const struct pv_net_txq *txq)
{
	const struct pv_net *pn = txq->ptq_pn;

	return (pn->pn_ops->pno_encap_plain != NULL && pn->pn_ops->pno_message == NULL &&
	    pn->pn_stage == NULL && txq->ptq_tag == NULL && pn->pn_params.pnp_hdrlen != 0 &&
	    !pn->pn_params.pnp_hdr_apart && pn->pn_params.pnp_max_frame == 0 &&
	    pn->pn_params.pnp_seg_max >= PAGE_SIZE);
}

void
pv_net_tx_start(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	txq->ptq_fast = pv_net_tx_has_fast(txq);
	txq->ptq_fast_segs = MIN(txq->ptq_pvq->q_flat_segs, txq->ptq_pn->pn_params.pnp_tx_segs);
	txq->ptq_stopped = false;
	txq->ptq_full = false;
	txq->ptq_unkicked = 0;
	txq->ptq_deferred = false;
	txq->ptq_wd_ticks = 0;
	pv_net_tx_fit(txq);
	pvq_intr_disable(txq->ptq_pvq);
	mtx_unlock(&txq->ptq_mtx);
}

void
pv_net_tx_resume(struct pv_net_txq *txq)
{
	pv_net_tx_start(txq);
	taskqueue_enqueue(txq->ptq_tq, &txq->ptq_task);
}

bool
pv_net_tx_settled(struct pv_net_txq *txq)
{
	bool settled;

	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_reclaim(txq);
	settled = pvq_inflight(txq->ptq_pvq) == 0;
	mtx_unlock(&txq->ptq_mtx);
	return (settled);
}

void
pv_net_tx_drain_sent(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_take_back(txq);
	mtx_unlock(&txq->ptq_mtx);
}

void
pv_net_tx_stop(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	/* What stays in flight while the interface is down (pv_net_stage.h) has to be notified of. */
	if (!txq->ptq_stopped)
		pv_net_tx_kick(txq);
	txq->ptq_stopped = true;
	mtx_unlock(&txq->ptq_mtx);
	callout_drain(&txq->ptq_timer);
	pv_net_task_stop(txq->ptq_tq, &txq->ptq_task);
}

void
pv_net_tx_drain(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_take_back(txq);
	pv_net_tx_flush_ring(txq);
	mtx_unlock(&txq->ptq_mtx);
}

void
pv_net_tx_init(struct pv_net_txq *txq)
{
	NET_TASK_INIT(&txq->ptq_task, 0, pv_net_tx_task, txq);
	callout_init_mtx(&txq->ptq_timer, &txq->ptq_mtx, 0);
}
