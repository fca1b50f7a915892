/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: pairs of queues: how many, which CPU, and what pv_dev(9) has done to
 * all of them, or to one: stopped, started and reset.
 *
 * There is one pair for each CPU, as far as the device has them; how many are
 * in use can change at any time.  Each has a CPU, on which its interrupts and
 * its tasks run.  Of what is sent, the flow decides (the mbuf's flow id), so
 * that its packets keep their order; what has none goes by the CPU that sends
 * it.  Pairs share no lock and no thread on the way of a packet.
 *
 * Another back end may have fewer pairs, and there may be too little for all of
 * them; the others then have no queues, and are not started.  A pair gets its
 * buffers when it has queues for the first time.
 *
 * Fewer pairs in use.  Senders stop choosing the others; what waits there moves
 * to one that stays, and what is in flight completes; then the device is
 * configured.  A sender that chose a queue just before finds that it is not in
 * use when it has the queue's lock, and moves its packet, too.  A device that
 * can reset a queue alone loses those of the others then, and their receive
 * buffers are freed.  If what a queue has in flight does not complete, there
 * are as many pairs as before, or that queue is reset, too (pnp_queue_reset).
 *
 * All queues.  DOWN, the device works and its queues are empty (or, if staged,
 * not looked at).  LIVE, buffers are posted, packets flow.  From LIVE to DOWN
 * the device is reset, because that is the only way to get buffers back, and
 * started again at once.  What a device that does not confirm the reset had is
 * leaked, for it may still write there.
 *
 * Sizes of rings.  They are changed one queue after the other, so that a card
 * with several goes on; where the device can't reset a queue alone, it is
 * reset.
 *
 * The tick, once a second, is the watchdog, which needs a queue's lock only;
 * what may sleep is done by tasks.
 *
 * One queue is stopped, and started again, while the others run, where the
 * device can do that (pno_stop_queue).
 *
 *	reset     it is broken or stuck: what it has is dropped (pv_dev.c)
 *	renewed   its ring gets another size: what was sent is waited for, what
 *		  waits stays
 *	parked    its pair is not in use any more: the device does without it,
 *		  and receive buffers are freed; until the pair is in use again,
 *		  or the device is reset, which begins with all queues
 *
 * The pair has nothing in flight to be sent meanwhile, or the device is reset
 * instead: a frame that QEMU drops in a reset makes it take the next one, and
 * if that has to wait for the network back end as well, QEMU aborts (its issue
 * 1451; seen with 7.2 and 10.0).  pnp_queue_reset says that the device is
 * another one.
 *
 * Locking.  That of pv_dev, but for the tick; pn_pairs is read without.
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
#include <sys/priority.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <machine/bus.h>
#ifdef RSS
#include <net/rss_config.h>
#endif

#include <dev/pv/pv_cpu.h>
#include <dev/pv/pv_log.h>
#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

/* How long what is in flight may take: tries, and how many in a second. */
#define	PV_NET_WAIT_TRIES	100
#define	PV_NET_WAIT_HZ		100

/* The CPU of a pair; -1: any. */
int
pv_net_pair_cpu(const struct pv_net *pn, int pair)
{
#ifdef RSS
	/* The CPU of the kernel's bucket. */
	if (pn->pn_params.pnp_npairs != 1)
		return (rss_getcpu(pair % rss_getnumbuckets()));
#endif
	return (pv_queue_cpu(pair, pn->pn_params.pnp_npairs));
}

static int
pv_net_pair_tq(struct pv_net *pn, int pair)
{
	int cpu = pv_net_pair_cpu(pn, pair);
	const char *name = device_get_nameunit(pn->pn_dev);
	struct taskqueue **tqp = &pn->pn_tqs[pair];
	cpuset_t cpus;

	*tqp = taskqueue_create("pv_net", M_WAITOK, taskqueue_thread_enqueue,
	    tqp);
	if (cpu < 0)
		return (taskqueue_start_threads(tqp, 1, PV_NET_TASK_PRI,
		    "%s packets", name));
	CPU_SETOF(cpu, &cpus);
	return (taskqueue_start_threads_cpuset(tqp, 1, PV_NET_TASK_PRI, &cpus,
	    "%s packets %d", name, pair));
}

int
pv_net_pairs_alloc(struct pv_net *pn)
{
	int error = 0, i, n = pn->pn_params.pnp_npairs;
	struct pv_net_rxq *rxq;
	struct pv_net_txq *txq;

	pn->pn_rxqs = malloc_aligned(n * sizeof(*rxq), CACHE_LINE_SIZE, M_PVNET,
	    M_WAITOK | M_ZERO);
	pn->pn_txqs = malloc_aligned(n * sizeof(*txq), CACHE_LINE_SIZE, M_PVNET,
	    M_WAITOK | M_ZERO);
	pn->pn_tqs = malloc(n * sizeof(pn->pn_tqs[0]), M_PVNET,
	    M_WAITOK | M_ZERO);
	pn->pn_pairs = pn->pn_chosen = n;
	for (i = 0; i < n && error == 0; i++) {
		rxq = &pn->pn_rxqs[i];
		rxq->prq_pn = pn;
		rxq->prq_id = i;
		rxq->prq_stopped = true;
		snprintf(rxq->prq_name, sizeof(rxq->prq_name), "rxq%d", i);
		mtx_init(&rxq->prq_mtx, rxq->prq_name, "pv_net receive queue",
		    MTX_DEF);
		txq = &pn->pn_txqs[i];
		txq->ptq_pn = pn;
		txq->ptq_id = i;
		txq->ptq_stopped = true;
		snprintf(txq->ptq_name, sizeof(txq->ptq_name), "txq%d", i);
		mtx_init(&txq->ptq_mtx, txq->ptq_name, "pv_net transmit queue",
		    MTX_DEF);
		error = pv_net_pair_tq(pn, i);
		rxq->prq_tq = txq->ptq_tq = pn->pn_tqs[i];
		pv_net_tx_init(txq);
		pn->pn_max_pairs = i + 1;
	}
	return (error);
}

void
pv_net_pairs_free(struct pv_net *pn)
{
	int i;

	for (i = 0; i < pn->pn_max_pairs; i++) {
		taskqueue_free(pn->pn_tqs[i]);
		mtx_destroy(&pn->pn_rxqs[i].prq_mtx);
		mtx_destroy(&pn->pn_txqs[i].ptq_mtx);
	}
	free(pn->pn_tqs, M_PVNET);
	free(pn->pn_rxqs, M_PVNET);
	free(pn->pn_txqs, M_PVNET);
}

static int
pv_net_fill_pair(struct pv_net *pn, int pair)
{
	struct pv_net_rxq *rxq = &pn->pn_rxqs[pair];
	struct pv_net_txq *txq = &pn->pn_txqs[pair];
	int error;

	/*
	 * A small ring without indirect tables takes fewer segments than the
	 * protocol would.
	 */
	pn->pn_params.pnp_tx_segs = MIN(pn->pn_params.pnp_tx_segs,
	    txq->ptq_pvq->q_max_segs);
	error = pv_net_rx_alloc(rxq);
	if (error == 0)
		error = pv_net_tx_alloc(txq);
	if (error == 0)
		error = pv_net_netmap_add_pair(pn, pair);
	if (error != 0)
		return (error);
	if (pn->pn_level == PV_NET_INTERFACE)
		pv_net_lro_init(rxq);
	return (0);
}

int
pv_net_fill_pairs(struct pv_net *pn)
{
	int error, i;

	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		if (pn->pn_txqs[i].ptq_ring != NULL)
			continue;
		error = pv_net_fill_pair(pn, i);
		if (error != 0) {
			pv_net_rx_free(&pn->pn_rxqs[i]);
			pv_net_tx_free(&pn->pn_txqs[i]);
			return (error);
		}
	}
	return (0);
}

/* Stop a transmit queue; what is in flight has some time to complete. */
static void
pv_net_tx_wait_idle(struct pv_net_txq *txq)
{
	int tries;

	pv_net_tx_stop(txq);
	for (tries = 0; !pv_net_tx_is_idle(txq) && tries < PV_NET_WAIT_TRIES;
	    tries++)
		pause("pvsize", howmany(hz, PV_NET_WAIT_HZ));
}

/*
 * Does the pair's transmit queue stop, too, while the receive queue is stopped?
 */
static bool
pv_net_rx_stops_tx(const struct pv_net *pn)
{
	return (!pn->pn_params.pnp_queue_reset &&
	    pn->pn_ops->pno_stop_queue != NULL);
}

/* What pv_dev(9) has done to one queue, here and below. */
static void
pv_net_quiesce_queue(struct pv_net *pn, u_int queue, int error)
{
	struct pv_net_txq *txq = &pn->pn_txqs[pv_net_pair(queue)];

	if (!pv_net_is_tx(queue)) {
		pv_net_rx_stop(&pn->pn_rxqs[pv_net_pair(queue)]);
		if (pv_net_rx_stops_tx(pn))
			pv_net_tx_wait_idle(txq);
	} else if (error == 0)
		pv_net_tx_wait_idle(txq);
	else
		pv_net_tx_stop(txq);
}

static int
pv_net_stop_queue(struct pv_net *pn, u_int queue)
{
	int pair = pv_net_pair(queue);

	pv_dev_assert(&pn->pn_pvdev);
	/* What netmap(4) has in flight is taken back with the whole device. */
	if (pn->pn_ops->pno_stop_queue == NULL || pn->pn_netmap)
		return (EOPNOTSUPP);
	if (!pn->pn_params.pnp_queue_reset &&
	    !pv_net_tx_is_idle(&pn->pn_txqs[pair]))
		return (EOPNOTSUPP);
	return (pn->pn_ops->pno_stop_queue(pn->pn_softc, pair,
	    pv_net_is_tx(queue)));
}

static void
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

static int
pv_net_restart_queue(struct pv_net *pn, u_int queue)
{
	return (pn->pn_ops->pno_restart_queue(pn->pn_softc, pv_net_pair(queue),
	    pv_net_is_tx(queue)));
}

static void
pv_net_resume_queue(struct pv_net *pn, u_int queue)
{
	struct pv_net_txq *txq = &pn->pn_txqs[pv_net_pair(queue)];

	if (!pv_net_is_tx(queue))
		pv_net_rx_start(&pn->pn_rxqs[pv_net_pair(queue)]);
	/* A sender may have left a packet. */
	if (pv_net_is_tx(queue) || pv_net_rx_stops_tx(pn))
		pv_net_tx_resume(txq);
}

/*
 * The pair is not in use any more: the device does without its queues, and
 * receive buffers are freed, if the device can reset a queue alone; else
 * nothing happens.  Nothing is in flight in the transmit queue.  Returns 0, or
 * an error if the device has to be reset.
 */
static int
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
	/*
	 * What senders have left here since then is moved; from now on they
	 * find the queue parked.
	 */
	(void)pv_net_tx_retired(txq);
	return (0);
}

/*
 * A parked pair is to be used again.  Returns 0, or an error if the device has
 * to be reset.
 */
static int
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

/* Wait until nothing is left in a transmit queue. */
static bool
pv_net_retire(struct pv_net_txq *txq)
{
	int tries;

	for (tries = 0; tries < PV_NET_WAIT_TRIES; tries++) {
		if (pv_net_tx_retired(txq))
			return (true);
		pause("pvpair", howmany(hz, PV_NET_WAIT_HZ));
	}
	return (pv_net_tx_retired(txq));
}

/* Have nothing left in the transmit queues from the n-th on. */
static int
pv_net_retire_pairs(struct pv_net *pn, u_int n)
{
	int error = 0, i;

	for (i = n; i < pn->pn_params.pnp_npairs && error == 0; i++) {
		if (pv_net_retire(&pn->pn_txqs[i]))
			continue;
		error = pv_dev_reset_queue(&pn->pn_pvdev,
		    pv_net_number(i, true), ETIMEDOUT);
		if (error == EOPNOTSUPP)
			pv_net_tx_resume(&pn->pn_txqs[i]);
		else if (error != 0)
			pv_dev_need_reset(&pn->pn_pvdev, PV_DEV_ALL, ETIMEDOUT);
	}
	return (error != 0 ? EBUSY : 0);
}

/* The device uses n pairs: it does without the others, or has them back. */
static int
pv_net_park_pairs(struct pv_net *pn, u_int n)
{
	int error = 0, i;

	for (i = n; i < pn->pn_params.pnp_npairs && error == 0; i++)
		error = pv_net_park_pair(pn, i);
	return (error);
}

static int
pv_net_unpark_pairs(struct pv_net *pn, u_int n)
{
	u_int i;
	int error = 0;

	for (i = 0; i < n && error == 0; i++)
		error = pv_net_unpark_pair(pn, i);
	return (error);
}

static int
pv_net_configure_pairs(struct pv_net *pn, u_int n)
{
	if (pn->pn_ops->pno_set_pairs == NULL)
		return (0);
	return (pn->pn_ops->pno_set_pairs(pn->pn_softc, n));
}

/*
 * Use n pairs of queues.  Returns 0; EBUSY if netmap(4) has queues, or if what
 * was sent by one of those that are to go does not complete; what pno_set_pairs
 * returns.  After an error there are as many as before.  If a queue alone can't
 * be stopped or started, the device is reset soon, and uses as many pairs then
 * as are set here.
 */
int
pv_net_use_pairs(struct pv_net *pn, u_int n)
{
	u_int before = pn->pn_pairs;
	int error = 0;

	pv_dev_assert(&pn->pn_pvdev);
	/* Programs have a ring of each pair mapped. */
	if (pn->pn_netmap)
		return (EBUSY);
	if (!pv_dev_is_live(&pn->pn_pvdev)) {
		pn->pn_pairs = n;
		return (0);
	}
	if (n < before) {
		atomic_store_rel_int(&pn->pn_pairs, n);
		error = pv_net_retire_pairs(pn, n);
	} else if (pv_net_unpark_pairs(pn, n) != 0)
		pv_dev_need_reset(&pn->pn_pvdev, PV_DEV_ALL, ETIMEDOUT);
	if (error == 0 && n != before)
		error = pv_net_configure_pairs(pn, n);
	atomic_store_rel_int(&pn->pn_pairs, error == 0 ? n : before);
	if (error == 0 && n < before && pv_net_park_pairs(pn, n) != 0)
		pv_dev_need_reset(&pn->pn_pvdev, PV_DEV_ALL, ETIMEDOUT);
	return (error);
}

/* The back end has n pairs now: as many of them are used as were chosen. */
void
pv_net_change_pairs(struct pv_net *pn, int n)
{
	int i;

	pv_dev_assert(&pn->pn_pvdev);
	KASSERT(n >= 1 && n <= pn->pn_max_pairs,
	    ("%s: %d pairs of %d", __func__, n, pn->pn_max_pairs));
	pn->pn_pairs = MIN(pn->pn_chosen, (u_int)n);
	pn->pn_params.pnp_npairs = n;
	for (i = n; i < pn->pn_max_pairs; i++)
		pv_net_tx_flush(&pn->pn_txqs[i]);
}

/*
 * Start all queues.  The device has been reset and uses one pair.  It uses more
 * of them only when all have buffers: one that steers by a hash may block
 * forever at a frame for a pair without any (QEMU's does).
 */
static void
pv_net_start_pairs(struct pv_net *pn)
{
	int error, i;

	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		pn->pn_txqs[i].ptq_parked = false;
		if (!pv_net_netmap_rx_start(&pn->pn_rxqs[i]))
			pv_net_rx_start(&pn->pn_rxqs[i]);
	}
	error = pv_net_configure_pairs(pn, pn->pn_pairs);
	if (error != 0) {
		device_printf(pn->pn_dev,
		    "the device does not use %u pairs of queues (error %d): "
		    "one is used\n", pn->pn_pairs, error);
		pn->pn_pairs = 1;
	}
	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		if (!pv_net_netmap_tx_start(&pn->pn_txqs[i]))
			pv_net_tx_resume(&pn->pn_txqs[i]);
	}
}

static void
pv_net_stop_pairs(struct pv_net *pn)
{
	bool netmap = false;
	int i;

	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		netmap |= pv_net_netmap_stop(&pn->pn_rxqs[i], &pn->pn_txqs[i]);
		pv_net_tx_stop(&pn->pn_txqs[i]);
		pv_net_rx_stop(&pn->pn_rxqs[i]);
	}
	/*
	 * An interrupt handler may be about to call netmap(4), which frees its
	 * rings next.
	 */
	if (netmap)
		NET_EPOCH_WAIT();
}

static void
pv_net_abandon(struct pvq *q)
{
	while (pvq_drain(q) != NULL)
		;
}

/*
 * Forget what a device that does not stop has, without freeing it: the queues
 * can be freed then.
 */
static void
pv_net_abandon_pairs(struct pv_net *pn)
{
	int i;

	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		pv_net_abandon(pn->pn_txqs[i].ptq_pvq);
		pv_net_abandon(pn->pn_rxqs[i].prq_pvq);
	}
}

void
pv_net_ask_offloads(void *arg)
{
	struct pv_net *pn = arg;
	u_int want = pv_net_rx_wanted(pn);

	pv_dev_assert(&pn->pn_pvdev);
	if (pn->pn_ops->pno_set_offloads == NULL ||
	    want == pn->pn_offloads_asked || !pv_dev_is_started(&pn->pn_pvdev))
		return;
	/*
	 * After a refusal it is not requested again: what comes is handled
	 * here.
	 */
	pn->pn_offloads_asked = want;
	if (pn->pn_ops->pno_set_offloads(pn->pn_softc, want) != 0)
		pn->pn_offload_errors++;
}

static void
pv_net_offload_task(void *arg, int pending __unused)
{
	struct pv_net *pn = arg;

	pv_dev_lock(&pn->pn_pvdev);
	pv_net_ask_offloads(pn);
	pv_dev_unlock(&pn->pn_pvdev);
}

static void
pv_net_quiesce(void *arg, u_int queue, int error)
{
	struct pv_net *pn = arg;

	if (queue != PV_DEV_ALL) {
		pv_net_quiesce_queue(pn, queue, error);
		return;
	}
	if_setdrvflagbits(pn->pn_ifp, 0, IFF_DRV_RUNNING);
	pv_net_stop_pairs(pn);
	if (pn->pn_staged)
		pv_net_qflush(pn->pn_ifp);
}

static int
pv_net_stop(void *arg, u_int queue)
{
	struct pv_net *pn = arg;

	if (queue != PV_DEV_ALL)
		return (pv_net_stop_queue(pn, queue));
	return (pn->pn_ops->pno_stop != NULL ?
	    pn->pn_ops->pno_stop(pn->pn_softc) : 0);
}

static void
pv_net_reclaim(void *arg, u_int queue, int error)
{
	struct pv_net *pn = arg;

	/* Another back end may have fewer pairs. */
	if (pv_net_pair(queue) < pn->pn_params.pnp_npairs)
		pv_net_reclaim_queue(pn, queue, error);
}

/* Rings of this kind are to have so many places from their next restart on. */
static int
pv_net_set_sizes(struct pv_net *pn, bool tx, u_int size)
{
	int error = 0, i;

	for (i = 0; i < pn->pn_params.pnp_npairs && error == 0; i++)
		error = pn->pn_ops->pno_set_size(pn->pn_softc, i, tx, size);
	return (error);
}

/* A device that does not take new sizes of its rings gets those of before. */
static int
pv_net_restart_device(struct pv_net *pn)
{
	int error;

	if (pn->pn_ops->pno_restart == NULL)
		return (0);
	error = pn->pn_ops->pno_restart(pn->pn_softc);
	if (error == 0 || pn->pn_resize == NULL)
		return (error);
	pn->pn_resize->pnr_error = error;
	(void)pv_net_set_sizes(pn, pn->pn_resize->pnr_tx,
	    pn->pn_resize->pnr_before);
	return (pn->pn_ops->pno_restart(pn->pn_softc));
}

static int
pv_net_restart(void *arg, u_int queue)
{
	struct pv_net *pn = arg;
	int error;

	if (queue != PV_DEV_ALL)
		return (pv_net_restart_queue(pn, queue));
	error = pv_net_restart_device(pn);
	if (error != 0)
		return (error);
	/* The device has lost its configuration. */
	memcpy(pn->pn_lladdr, pn->pn_params.pnp_lladdr, ETHER_ADDR_LEN);
	pn->pn_offloads_asked = pn->pn_params.pnp_offloads & PV_NET_RX_OFFLOADS;
	memset(pn->pn_vlans_set, 0, sizeof(pn->pn_vlans_set));
	pn->pn_vlan_failed = false;
	return (0);
}

static void
pv_net_resume(void *arg, u_int queue)
{
	struct pv_net *pn = arg;
	int i;

	if (queue != PV_DEV_ALL) {
		pv_net_resume_queue(pn, queue);
		return;
	}
	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		pv_dev_adopt(&pn->pn_pvdev, pv_net_number(i, false),
		    pn->pn_rxqs[i].prq_pvq);
		pv_dev_adopt(&pn->pn_pvdev, pv_net_number(i, true),
		    pn->pn_txqs[i].ptq_pvq);
	}
	pv_net_start_pairs(pn);
	if_setdrvflagbits(pn->pn_ifp, IFF_DRV_RUNNING, IFF_DRV_OACTIVE);
	if_link_state_change(pn->pn_ifp, pn->pn_ops->pno_link_up(pn->pn_softc) ?
	    LINK_STATE_UP : LINK_STATE_DOWN);
	if (pn->pn_moved)
		taskqueue_enqueue(pn->pn_pvdev.pvd_tasks.pt_tq,
		    &pn->pn_link_task);
}

static void
pv_net_lost(void *arg, bool leaked)
{
	if (leaked)
		pv_net_abandon_pairs(arg);
}

static void
pv_net_reconnect(void *arg)
{
	struct pv_net *pn = arg;

	pn->pn_ops->pno_reset(pn->pn_softc);
}

static bool
pv_net_has_more(void *arg)
{
	struct pv_net *pn = arg;

	/* Programs have a ring of each pair mapped. */
	return (!pn->pn_netmap && pn->pn_ops->pno_has_more(pn->pn_softc));
}

static void
pv_net_apply_lladdr(void *arg)
{
	struct pv_net *pn = arg;
	const uint8_t *lladdr = if_getlladdr(pn->pn_ifp);
	int error;

	if (pv_net_same_lladdr(lladdr, pn->pn_lladdr))
		return;
	error = pn->pn_ops->pno_set_lladdr(pn->pn_softc, lladdr);
	if (error == 0)
		memcpy(pn->pn_lladdr, lladdr, ETHER_ADDR_LEN);
	else
		device_printf(pn->pn_dev,
		    "the device did not take the address %6D (error %d): it "
		    "is made to receive everything instead\n", lladdr,
		    ":", error);
}

static void
pv_net_apply_filter(void *arg)
{
	(void)pv_net_set_filter(arg);
}

static void
pv_net_apply_coalescing(void *arg)
{
	struct pv_net *pn = arg;

	if (pn->pn_ops->pno_set_coalescing != NULL)
		pn->pn_ops->pno_set_coalescing(pn->pn_softc);
}

/*
 * The filter depends on whether the device has the address, and is set again if
 * it refuses a tag.
 */
static void (*const pv_net_settings[])(void *) = {
	pv_net_apply_lladdr,
	pv_net_apply_filter,
	pv_net_ask_offloads,
	pv_net_vlan_sync,
	pv_net_apply_coalescing,
	NULL
};

static const struct pv_dev_ops pv_net_dev_ops = {
	.pdo_quiesce = pv_net_quiesce,
	.pdo_stop = pv_net_stop,
	.pdo_reclaim = pv_net_reclaim,
	.pdo_restart = pv_net_restart,
	.pdo_resume = pv_net_resume,
	.pdo_lost = pv_net_lost,
	.pdo_settings = pv_net_settings,
	.pdo_counted = "pairs of queues",
};

/*
 * One queue after the other.  Returns an error if the device has to be reset.
 */
static int
pv_net_renew_queues(struct pv_net *pn, bool tx)
{
	int error = 0, i;

	for (i = 0; i < pn->pn_params.pnp_npairs && error == 0; i++) {
		/* One that is parked gets its size when it is used again. */
		if (!pn->pn_txqs[i].ptq_parked)
			error = pv_dev_reset_queue(&pn->pn_pvdev,
			    pv_net_number(i, tx), 0);
	}
	return (error);
}

int
pv_net_resize(struct pv_net *pn, bool tx, u_int size)
{
	struct pv_net_resize resize = { .pnr_tx = tx,
	    .pnr_before = pv_net_ring_size(pn, tx) };
	int error;

	pv_dev_assert(&pn->pn_pvdev);
	if (!pv_dev_is_started(&pn->pn_pvdev))
		return (ENXIO);
	/* Programs have rings of the same size mapped. */
	if (pn->pn_netmap)
		return (EBUSY);
	if (size == resize.pnr_before)
		return (0);
	error = pv_net_set_sizes(pn, tx, size);
	if (error != 0) {
		(void)pv_net_set_sizes(pn, tx, resize.pnr_before);
		return (error);
	}
	if (pv_dev_is_live(&pn->pn_pvdev) && pv_net_renew_queues(pn, tx) == 0)
		return (0);
	pn->pn_resize = &resize;
	error = pv_dev_restart(&pn->pn_pvdev);
	pn->pn_resize = NULL;
	return (error != 0 ? error : resize.pnr_error);
}

/*
 * Log once that lro_forward is set: it keeps a router of FreeBSD from
 * forwarding most of the data.
 */
static void
pv_net_say_forwards(struct pv_net *pn)
{
	bool big = pv_net_forwards_big(pn);

	if (big && !pn->pn_forwards_big)
		device_printf(pn->pn_dev,
		    "GSO packets are not split for forwarding "
		    "(hw.pv_net.lro_forward): FreeBSD does not forward them, and answers that they "
		    "need fragmentation\n");
	pn->pn_forwards_big = big;
}

static void
pv_net_tick(void *arg)
{
	struct pv_net *pn = arg;
	bool live = pv_dev_is_live(&pn->pn_pvdev);
	int i;

	for (i = 0; i < pn->pn_params.pnp_npairs && live; i++) {
		if (pn->pn_txqs[i].ptq_parked)
			continue;
		pv_net_rx_watch(&pn->pn_rxqs[i]);
		if (!pv_net_tx_watch(&pn->pn_txqs[i]))
			continue;
		if (PV_LOGS(++pn->pn_watchdogs))
			device_printf(pn->pn_dev,
			    "watchdog: nothing that was sent by queue %d "
			    "has completed for %d seconds\n", i,
			    PV_NET_WATCHDOG);
	}
	if (live)
		pv_net_say_forwards(pn);
	/* Forwarding was switched on or off. */
	if (live && pn->pn_ops->pno_set_offloads != NULL &&
	    pv_net_rx_wanted(pn) != pn->pn_offloads_asked)
		taskqueue_enqueue(pn->pn_pvdev.pvd_tasks.pt_tq,
		    &pn->pn_offload_task);
	/* The state that a flapping link has in the end. */
	if (atomic_swap_int(&pn->pn_link_changes, 0) > PV_NET_LINK_CHANGES)
		taskqueue_enqueue(pn->pn_pvdev.pvd_tasks.pt_tq,
		    &pn->pn_link_task);
	callout_reset(&pn->pn_tick, hz, pv_net_tick, pn);
}

int
pv_net_run_init(struct pv_net *pn)
{
	pn->pn_dev_ops = pv_net_dev_ops;
	if (pn->pn_ops->pno_reset != NULL)
		pn->pn_dev_ops.pdo_reconnect = pv_net_reconnect;
	if (pn->pn_ops->pno_has_more != NULL)
		pn->pn_dev_ops.pdo_has_more = pv_net_has_more;
	TASK_INIT(&pn->pn_offload_task, 0, pv_net_offload_task, pn);
	callout_init(&pn->pn_tick, 1);
	return (pv_dev_init(&pn->pn_pvdev, pn->pn_dev, &pn->pn_dev_ops, pn,
	    2 * pn->pn_params.pnp_npairs));
}

void
pv_net_run_start(struct pv_net *pn)
{
	callout_reset(&pn->pn_tick, hz, pv_net_tick, pn);
}
