/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: transmit queues.
 *
 *	if_transmit ---------------------+
 *	     |                           v
 *	     +--> buf_ring --> task --> batch of chains --> pvq ... device ... --> completions
 *
 * A thread that finds the queue's lock free puts its packet into the pvq itself.  One that finds it
 * taken leaves its packet in the buf_ring, for the task.  The task does what is left for later,
 * whatever it is: it empties the buf_ring, collects completions, and notifies the device.
 *
 * Notification.  The device is notified when the thread that queues packets is done with them:
 *
 *	sender                                   notified
 *	--------------------------------------   ------------------------------------------------
 *	any thread but those below               before if_transmit returns
 *	the task, and the transmit interrupt     when the buf_ring is empty, and for each batch
 *	receiving on the same pair of queues     when it ends its pass over the receive queue
 *	another interrupt thread                 by the task
 *
 * An interrupt thread, for example another card's that forwards what it receives, sends one packet
 * after another and does not say which is the last.  So the task's thread has the lowest priority
 * that interrupt threads may have: it does not run before they sleep, and nothing else keeps it
 * from running then.  A pass without end does not hold packets back without end: after pnp_tx_kick
 * of them, or PV_NET_KICK_BYTES, the sender notifies.
 *
 *	notified:   ptq_unkicked == 0
 *	held:       ptq_unkicked != 0 while nobody has the lock.  The task is queued (ptq_deferred), or
 *	            the pair's receive pass is not over (prq_busy).
 *
 * Completions are collected by the dozen: after a packet was sent with which a quarter of the buffers,
 * or of those that were free the last time, is in flight (ptq_look); and PV_NET_TX_TIMER later for as
 * long as anything is: by then a callout queues the task.  So an mbuf comes back soon, though the
 * device interrupts for a full queue only, and then when three quarters of what is in flight are done
 * (pv_net_tx_wait).
 *
 * Locking.  ptq_mtx covers everything of the queue, both directions of the pvq included.  The
 * buf_ring takes packets without it.  Nothing of the stack but m_freem() and bpf(4) is called with
 * it held.
 */

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

#include <dev/pv/pvq.h>
#include <dev/pv/pv_net.h>
#include <dev/pv/pv_net_var.h>

#define	PV_NET_KICK_BYTES	131072		/* so much is not held, in however few packets */
#define	PV_NET_TX_TIMER		(10 * SBT_1MS)	/* longest that a completion waits */

/* Seconds without a completion after which the device is reset. */
#define	PV_NET_WATCHDOG		5

/* Collect completions: how many. */
static u_int
pv_net_tx_reclaim(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;
	struct pvq_done *done = txq->ptq_done;
	struct pv_net_txbuf *buf;
	u_int total = 0;
	int i, n;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	do {
		n = pvq_get(txq->ptq_pvq, done, PV_NET_BATCH);
		if (pn->pn_ops->pno_sent != NULL && n > 0)
			pn->pn_ops->pno_sent(pn->pn_softc, txq->ptq_id, done, n);
		for (i = 0; i < n; i++) {
			buf = done[i].pd_cookie;
			pv_net_tx_sync(txq, buf, BUS_DMASYNC_POSTWRITE);
			pv_net_tx_unload(txq, buf);
			m_freem(buf->ptb_mbuf);
			buf->ptb_mbuf = NULL;
			txq->ptq_free[txq->ptq_nfree++] = buf;
		}
		total += n;
	} while (n == PV_NET_BATCH);
	return (total);
}

/* Show the batch to the device, without a notification yet. */
static inline void
pv_net_tx_commit(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;
	u_int i;

	if (txq->ptq_n == 0)
		return;
	pn->pn_ops->pno_encap(pn->pn_softc, txq->ptq_id, txq->ptq_txhdrs, txq->ptq_n);
	for (i = 0; i < txq->ptq_n; i++)
		pv_net_tx_sync(txq, txq->ptq_chains[i].pc_cookie, BUS_DMASYNC_PREWRITE);
	if (txq->ptq_hdr_map != NULL)
		bus_dmamap_sync(txq->ptq_hdr_tag, txq->ptq_hdr_map, BUS_DMASYNC_PREWRITE);
	pvq_put(txq->ptq_pvq, txq->ptq_chains, txq->ptq_n);
	pvq_commit(txq->ptq_pvq);
	txq->ptq_unkicked += txq->ptq_n;
	txq->ptq_n = 0;
	txq->ptq_slots = 0;
}

/* Notify the device of what it was shown since the last time. */
static void
pv_net_tx_kick(struct pv_net_txq *txq)
{
	if (txq->ptq_unkicked == 0)
		return;
	pvq_kick(txq->ptq_pvq);
	txq->ptq_unkicked = 0;
	txq->ptq_kicked_bytes = txq->ptq_stats.bytes;
}

/*
 * Leave the notification to the end of the pass that this thread makes, as it is or may be in one.
 * Returns false if it is not, or if enough is held already.
 */
static bool
pv_net_tx_hold(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;

	if (txq->ptq_unkicked == 0 || curthread->td_base_pri > PV_NET_TASK_PRI ||
	    txq->ptq_unkicked >= (u_int)pn->pn_params.pnp_tx_kick ||
	    txq->ptq_stats.bytes - txq->ptq_kicked_bytes >= PV_NET_KICK_BYTES)
		return (false);
	txq->ptq_stats.held_kicks++;
	if (pn->pn_rxqs[txq->ptq_id].prq_busy != curthread && !txq->ptq_deferred) {
		txq->ptq_deferred = true;
		taskqueue_enqueue(txq->ptq_tq, &txq->ptq_task);
	}
	return (true);
}

/*
 * The next packet to be sent: the first of the list, which it leaves, or what the buf_ring has, where
 * it stays until pv_net_tx_advance().  For the first queue, what ALTQ lets go is as on the list.
 */
static struct mbuf *
pv_net_tx_peek(struct pv_net_txq *txq, bool *listed)
{
	if_t ifp = txq->ptq_pn->pn_ifp;
	struct mbuf *m = txq->ptq_list;

	*listed = m != NULL;
	if (m == NULL) {
		m = drbr_peek(ifp, txq->ptq_ring);
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
		drbr_advance(txq->ptq_pn->pn_ifp, txq->ptq_ring);
}

/* It was not, and may be another mbuf now. */
static void
pv_net_tx_putback(struct pv_net_txq *txq, bool listed, struct mbuf *m)
{
	if (listed) {
		m->m_nextpkt = txq->ptq_list;
		txq->ptq_list = m;
	} else
		drbr_putback(txq->ptq_pn->pn_ifp, txq->ptq_ring, m);
}

/* One packet off the list or the buf_ring: false if there is none or no room for it. */
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
 * The queue is full and packets wait: ask for an interrupt when three quarters of what is in flight
 * are done.  Returns true if so many are done already.
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
		if (drbr_enqueue(pn->pn_ifp, to->ptq_ring, m) != 0)
			atomic_add_64(&txq->ptq_stats.queue_drops, 1);
		txq->ptq_stats.moved++;
	}
	taskqueue_enqueue(to->ptq_tq, &to->ptq_task);
}

/* Fill the pvq, from the list and the buf_ring, for as long as there is room. */
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
	} while (txq->ptq_full && pv_net_tx_wait(txq) && pv_net_tx_reclaim(txq) > 0);
}

/* Completions were collected.  If few came back, it is not at each packet that more are asked for. */
static void
pv_net_tx_look_later(struct pv_net_txq *txq)
{
	txq->ptq_look = MIN(txq->ptq_nbufs - txq->ptq_nbufs / 4,
	    txq->ptq_nfree - txq->ptq_nfree / 4);
	if (pvq_broken(txq->ptq_pvq))
		pv_net_request_reset(txq->ptq_pn);
}

/* Collect completions and send what waits; the last of it is left to be notified of. */
static void
pv_net_tx_run(struct pv_net_txq *txq)
{
	u_int done;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	if (txq->ptq_stopped)
		return;
	if (__predict_false((u_int)txq->ptq_id >= txq->ptq_pn->pn_pairs))
		pv_net_tx_move(txq);
	done = pv_net_tx_reclaim(txq);
	/* Else it is full as before, and the interrupt that says otherwise is still to come. */
	if (done > 0 || !txq->ptq_full || pvq_inflight(txq->ptq_pvq) == 0 ||
	    pvq_broken(txq->ptq_pvq))
		pv_net_tx_fill(txq);
	pv_net_tx_arm(txq);
	pv_net_tx_look_later(txq);
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

	mtx_lock(&txq->ptq_mtx);
	if (!txq->ptq_stopped) {
		pvq_intr_disable(txq->ptq_pvq);
		pv_net_tx_run(txq);
		pv_net_tx_kick(txq);
	}
	mtx_unlock(&txq->ptq_mtx);
}

/* The thread that receives on the same pair of queues has ended its pass. */
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

/* Nothing is left in a queue that is not in use any more; its packets move to another by and by. */
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

int
pv_net_command(struct pv_net *pn, int pair, void *msgs, u_int n, uint32_t noid)
{
	struct pv_net_txq *txq = &pn->pn_txqs[pair];
	struct pvq_chain chain = { .pc_msgs = msgs, .pc_nmsgs = n, .pc_noid = noid };
	struct pv_net_txbuf *buf;
	int error = ENOSPC;

	mtx_lock(&txq->ptq_mtx);
	(void)pv_net_tx_reclaim(txq);
	if (txq->ptq_nfree > 0 &&
	    pvq_reserve(txq->ptq_pvq, pvq_prepare(txq->ptq_pvq, &chain)) == 0) {
		buf = txq->ptq_free[--txq->ptq_nfree];
		buf->ptb_command = true;
		chain.pc_cookie = buf;
		pvq_put(txq->ptq_pvq, &chain, 1);
		pvq_commit(txq->ptq_pvq);
		txq->ptq_unkicked++;
		pv_net_tx_kick(txq);
		error = 0;
	}
	mtx_unlock(&txq->ptq_mtx);
	return (error);
}

bool
pv_net_is_command(const struct pvq_done *done)
{
	const struct pv_net_txbuf *buf = done->pd_cookie;

	return (buf->ptb_command);
}

static struct pv_net_txq *
pv_net_tx_select(struct pv_net *pn, const struct mbuf *m)
{
	u_int n = pn->pn_pairs;

	if (n == 1)
		return (&pn->pn_txqs[0]);
	if (M_HASHTYPE_GET(m) != M_HASHTYPE_NONE)
		return (&pn->pn_txqs[m->m_pkthdr.flowid % PV_NET_FLOWS % n]);
	return (&pn->pn_txqs[curcpu % n]);
}

static int
pv_net_tx_enqueue(struct pv_net_txq *txq, struct mbuf *m)
{
	int error;

	error = drbr_enqueue(txq->ptq_pn->pn_ifp, txq->ptq_ring, m);
	if (error != 0)
		atomic_add_64(&txq->ptq_stats.queue_drops, 1);
	return (error);
}

/*
 * Put a packet into the pvq at once: false if another waits, or the queue has no room for it or is not
 * in use; *mp may be another mbuf then.
 */
static bool
pv_net_tx_direct(struct pv_net_txq *txq, struct mbuf **mp)
{
	if (pv_net_tx_waiting(txq) || txq->ptq_stopped ||
	    (u_int)txq->ptq_id >= txq->ptq_pn->pn_pairs || !pv_net_tx_add(txq, mp))
		return (false);
	pv_net_tx_commit(txq);
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

	if (!pn->pn_running)
		return;
	if (mtx_trylock(&txq->ptq_mtx)) {
		pv_net_tx_run(txq);
		if (!pv_net_tx_hold(txq))
			pv_net_tx_kick(txq);
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

	if (!pn->pn_running) {
		m_freem(m);
		return (ENETDOWN);
	}
	if (__predict_false(if_altq_is_enabled(ifp)))
		return (pv_net_tx_shape(ifp, m));
	txq = pv_net_tx_select(pn, m);
	if (mtx_trylock(&txq->ptq_mtx)) {
		error = pv_net_tx_send(txq, m);
		if (!pv_net_tx_hold(txq))
			pv_net_tx_kick(txq);
		/* The device has something to do now; if a packet waits, that was pv_net_tx_run()'s. */
		if (txq->ptq_nfree <= txq->ptq_look && !txq->ptq_stopped && !pv_net_tx_waiting(txq)) {
			(void)pv_net_tx_reclaim(txq);
			pv_net_tx_look_later(txq);
		}
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
	while ((m = buf_ring_dequeue_sc(txq->ptq_ring)) != NULL)
		m_freem(m);
}

/* Drop the packets that are not in the queue yet. */
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

/*
 * Called once a second: true if packets are in flight and for too long none has come back.
 */
bool
pv_net_tx_stuck(struct pv_net_txq *txq)
{
	uint64_t done;
	bool stuck = false;

	mtx_lock(&txq->ptq_mtx);
	done = txq->ptq_pvq->q_stats.qs_done;
	if (txq->ptq_stopped || pvq_inflight(txq->ptq_pvq) == 0 || done != txq->ptq_wd_done)
		txq->ptq_wd_ticks = 0;
	else
		stuck = ++txq->ptq_wd_ticks >= PV_NET_WATCHDOG;
	txq->ptq_wd_done = done;
	mtx_unlock(&txq->ptq_mtx);
	return (stuck);
}

void
pv_net_tx_start(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	txq->ptq_stopped = false;
	txq->ptq_full = false;
	txq->ptq_unkicked = 0;
	txq->ptq_deferred = false;
	txq->ptq_wd_ticks = 0;
	pvq_intr_disable(txq->ptq_pvq);
	mtx_unlock(&txq->ptq_mtx);
}

/* No thread is at the queue, and none will be, when this returns. */
void
pv_net_tx_stop(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	/* What stays in flight while the interface is down (pnp_staged) has to be notified of. */
	if (!txq->ptq_stopped)
		pv_net_tx_kick(txq);
	txq->ptq_stopped = true;
	mtx_unlock(&txq->ptq_mtx);
	callout_drain(&txq->ptq_timer);
	pv_net_task_stop(txq->ptq_tq, &txq->ptq_task);
}

/* Free the packets of a stopped device, those that wait included. */
void
pv_net_tx_drain(struct pv_net_txq *txq)
{
	struct pv_net_txbuf *buf;

	mtx_lock(&txq->ptq_mtx);
	while ((buf = pvq_drain(txq->ptq_pvq)) != NULL) {
		pv_net_tx_unload(txq, buf);
		m_freem(buf->ptb_mbuf);
		buf->ptb_mbuf = NULL;
		txq->ptq_free[txq->ptq_nfree++] = buf;
	}
	KASSERT(txq->ptq_nfree == txq->ptq_nbufs, ("%s: %u of %u buffers came back", __func__,
	    txq->ptq_nfree, txq->ptq_nbufs));
	pv_net_tx_flush_ring(txq);
	mtx_unlock(&txq->ptq_mtx);
}

/* Before anything else is done with the queue. */
void
pv_net_tx_init(struct pv_net_txq *txq)
{
	NET_TASK_INIT(&txq->ptq_task, 0, pv_net_tx_task, txq);
	callout_init_mtx(&txq->ptq_timer, &txq->ptq_mtx, 0);
}
