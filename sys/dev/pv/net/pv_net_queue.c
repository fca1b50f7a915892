/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: one queue is stopped, and started again, while the others run; where the device can do that
 * (pno_stop_queue).
 *
 *	reset     it is broken or stuck: what it has is dropped (pv_dev.c)
 *	renewed   its ring gets another size: what was sent is waited for, what waits stays
 *	parked    its pair is not in use any more: the device does without it, and receive buffers are
 *	          freed; until the pair is in use again, or the device is reset, which begins with all
 *	          queues
 *
 * The pair has nothing in flight to be sent meanwhile, or the device is reset instead: a frame that
 * QEMU drops in a reset makes it take the next one, and if that has to wait for the network back end as
 * well, QEMU aborts (its issue 1451; seen with 7.2 and 10.0).  pnp_queue_reset says that the device is
 * another one.
 *
 * A receive queue that rests is watched: completions may lie there for which no interrupt has come, or
 * for which none can, as the device has skipped a place of the ring.
 *
 * Locking.  That of pv_dev, but for pv_net_rx_watch(), which the tick calls.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <machine/bus.h>

#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

/* How long what was sent may take before a queue of its pair stops: tries, and how many a second. */
#define	PV_NET_SETTLE_TRIES	100
#define	PV_NET_SETTLE_HZ	100

/* Seconds: until an interrupt counts as lost, and until a place counts as skipped. */
#define	PV_NET_LOST_INTR	2
#define	PV_NET_SKIPPED		5

void
pv_net_rx_watch(struct pv_net_rxq *rxq)
{
	struct pvq *q = rxq->prq_pvq;
	enum pvq_look look = PVQ_QUIET;
	uint64_t done;

	mtx_lock(&rxq->prq_mtx);
	done = q->q_stats.qs_done;
	if (!rxq->prq_stopped && rxq->prq_busy == NULL && !pvq_broken(q) &&
	    done == rxq->prq_wd_done)
		look = pvq_look(q);
	rxq->prq_wd_done = done;
	rxq->prq_wd_ticks = look == PVQ_QUIET ? 0 : rxq->prq_wd_ticks + 1;
	if (look == PVQ_WAITS && rxq->prq_wd_ticks >= PV_NET_LOST_INTR) {
		rxq->prq_stats.lost_intrs++;
		rxq->prq_wd_ticks = 0;
		taskqueue_enqueue(rxq->prq_tq, &rxq->prq_task);
	} else if (look == PVQ_SKIPPED && rxq->prq_wd_ticks >= PV_NET_SKIPPED)
		pvq_break(q, PVQ_FAULT_SKIP, done);
	mtx_unlock(&rxq->prq_mtx);
}

/* Stop a transmit queue; what is in flight has some time to complete. */
static void
pv_net_settle(struct pv_net_txq *txq)
{
	int tries;

	pv_net_tx_stop(txq);
	for (tries = 0; !pv_net_tx_settled(txq) && tries < PV_NET_SETTLE_TRIES; tries++)
		pause("pvsize", howmany(hz, PV_NET_SETTLE_HZ));
}

/* Does the pair's transmit queue stop, too, while the receive queue is stopped? */
static bool
pv_net_rx_settles(const struct pv_net *pn)
{
	return (!pn->pn_params.pnp_queue_reset && pn->pn_ops->pno_stop_queue != NULL);
}

void
pv_net_quiesce_queue(struct pv_net *pn, u_int queue, int error)
{
	struct pv_net_txq *txq = &pn->pn_txqs[pv_net_pair(queue)];

	if (!pv_net_is_tx(queue)) {
		pv_net_rx_stop(&pn->pn_rxqs[pv_net_pair(queue)]);
		if (pv_net_rx_settles(pn))
			pv_net_settle(txq);
	} else if (error == 0)
		pv_net_settle(txq);
	else
		pv_net_tx_stop(txq);
}

int
pv_net_stop_queue(struct pv_net *pn, u_int queue)
{
	int pair = pv_net_pair(queue);

	pv_dev_assert(&pn->pn_pvdev);
	/* What netmap(4) has in flight is taken back with the whole device. */
	if (pn->pn_ops->pno_stop_queue == NULL || pn->pn_netmap)
		return (EOPNOTSUPP);
	if (!pn->pn_params.pnp_queue_reset && !pv_net_tx_settled(&pn->pn_txqs[pair]))
		return (EOPNOTSUPP);
	return (pn->pn_ops->pno_stop_queue(pn->pn_softc, pair, pv_net_is_tx(queue)));
}

void
pv_net_reclaim_queue(struct pv_net *pn, u_int queue, int error)
{
	struct pv_net_rxq *rxq = &pn->pn_rxqs[pv_net_pair(queue)];
	struct pv_net_txq *txq = &pn->pn_txqs[pv_net_pair(queue)];

	if (!pv_net_is_tx(queue)) {
		pv_net_netmap_drain(rxq, txq);
		pv_net_rx_drain(rxq);
	} else if (error == 0 && pv_dev_is_live(&pn->pn_pvdev))
		pv_net_tx_drain_sent(txq);
	else
		pv_net_tx_drain(txq);
}

int
pv_net_restart_queue(struct pv_net *pn, u_int queue)
{
	return (pn->pn_ops->pno_restart_queue(pn->pn_softc, pv_net_pair(queue),
	    pv_net_is_tx(queue)));
}

void
pv_net_resume_queue(struct pv_net *pn, u_int queue)
{
	struct pv_net_txq *txq = &pn->pn_txqs[pv_net_pair(queue)];

	if (!pv_net_is_tx(queue))
		pv_net_rx_start(&pn->pn_rxqs[pv_net_pair(queue)]);
	/* A sender may have left a packet. */
	if (pv_net_is_tx(queue) || pv_net_rx_settles(pn))
		pv_net_tx_resume(txq);
}

int
pv_net_park_pair(struct pv_net *pn, int pair)
{
	u_int rx = pv_net_number(pair, false), tx = pv_net_number(pair, true);
	struct pv_net_rxq *rxq = &pn->pn_rxqs[pair];
	struct pv_net_txq *txq = &pn->pn_txqs[pair];
	int error;

	if (txq->ptq_parked)
		return (0);
	pv_net_rx_stop(rxq);
	error = pv_net_stop_queue(pn, rx);
	if (error == EOPNOTSUPP) {
		pv_net_rx_start(rxq);
		return (0);
	}
	txq->ptq_parked = true;
	pv_net_tx_stop(txq);
	if (error == 0)
		error = pv_net_stop_queue(pn, tx);
	if (error != 0)
		return (error);
	pv_net_rx_drain(rxq);
	pv_net_tx_drain_sent(txq);
	pv_dev_served(&pn->pn_pvdev, rx);
	pv_dev_served(&pn->pn_pvdev, tx);
	/* What senders have left here since then is moved; from now on they find the queue parked. */
	(void)pv_net_tx_retired(txq);
	return (0);
}

int
pv_net_unpark_pair(struct pv_net *pn, int pair)
{
	int error;

	if (!pn->pn_txqs[pair].ptq_parked)
		return (0);
	error = pv_net_restart_queue(pn, pv_net_number(pair, false));
	if (error == 0)
		error = pv_net_restart_queue(pn, pv_net_number(pair, true));
	if (error == 0) {
		pn->pn_txqs[pair].ptq_parked = false;
		pv_net_rx_start(&pn->pn_rxqs[pair]);
		pv_net_tx_resume(&pn->pn_txqs[pair]);
	}
	return (error);
}
