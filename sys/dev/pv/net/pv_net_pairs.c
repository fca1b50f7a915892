/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: pairs of queues: how many, and which CPU.
 *
 * There is one pair for each CPU, as far as the device has them; how many are in use can change at any
 * time.  Each has a CPU, on which its interrupts and its tasks run.  Of what is sent, the flow decides
 * (the mbuf's flow id), so that its packets keep their order; what has none goes by the CPU that sends
 * it.  Pairs share no lock and no thread on the way of a packet.
 *
 * Another back end may have fewer pairs, and there may be too little for all of them; the others then
 * have no queues, and are not started.  A pair gets its buffers when it has queues for the first time.
 *
 * Fewer pairs in use.  Senders stop choosing the others; what waits there moves to one that stays, and
 * what is in flight completes; then the device is configured.  A sender that chose a queue just before
 * finds that it is not in use when it has the queue's lock, and moves its packet, too.  A device that
 * can reset a queue alone loses those of the others then, and their receive buffers are freed.  If what
 * a queue has in flight does not complete, there are as many pairs as before, or that queue is reset,
 * too (pnp_queue_reset).
 *
 * Locking.  pv_dev's for changes; pn_pairs is read without.
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
#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

/* How long what is in flight may take: tries, and how many in a second. */
#define	PV_NET_RETIRE_TRIES	100
#define	PV_NET_RETIRE_HZ	100

/* The CPU of a pair; -1: any. */
int
pv_net_pair_cpu(const struct pv_net *pn, int pair)
{
#ifdef RSS
	/* That of the kernel's bucket. */
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

	*tqp = taskqueue_create("pv_net", M_WAITOK, taskqueue_thread_enqueue, tqp);
	if (cpu < 0)
		return (taskqueue_start_threads(tqp, 1, PV_NET_TASK_PRI, "%s packets", name));
	CPU_SETOF(cpu, &cpus);
	return (taskqueue_start_threads_cpuset(tqp, 1, PV_NET_TASK_PRI, &cpus, "%s packets %d",
	    name, pair));
}

int
pv_net_pairs_alloc(struct pv_net *pn)
{
	int error = 0, i, n = pn->pn_params.pnp_npairs;
	struct pv_net_rxq *rxq;
	struct pv_net_txq *txq;

	pn->pn_rxqs = malloc_aligned(n * sizeof(*rxq), CACHE_LINE_SIZE, M_PVNET, M_WAITOK | M_ZERO);
	pn->pn_txqs = malloc_aligned(n * sizeof(*txq), CACHE_LINE_SIZE, M_PVNET, M_WAITOK | M_ZERO);
	pn->pn_tqs = malloc(n * sizeof(pn->pn_tqs[0]), M_PVNET, M_WAITOK | M_ZERO);
	pn->pn_pairs = pn->pn_chosen = n;
	for (i = 0; i < n && error == 0; i++) {
		rxq = &pn->pn_rxqs[i];
		rxq->prq_pn = pn;
		rxq->prq_id = i;
		rxq->prq_stopped = true;
		snprintf(rxq->prq_name, sizeof(rxq->prq_name), "rxq%d", i);
		mtx_init(&rxq->prq_mtx, rxq->prq_name, "pv_net receive queue", MTX_DEF);
		txq = &pn->pn_txqs[i];
		txq->ptq_pn = pn;
		txq->ptq_id = i;
		txq->ptq_stopped = true;
		snprintf(txq->ptq_name, sizeof(txq->ptq_name), "txq%d", i);
		mtx_init(&txq->ptq_mtx, txq->ptq_name, "pv_net transmit queue", MTX_DEF);
		error = pv_net_pair_tq(pn, i);
		rxq->prq_tq = txq->ptq_tq = pn->pn_tqs[i];
		pv_net_tx_init(txq);
		pn->pn_made = i + 1;
	}
	return (error);
}

void
pv_net_pairs_free(struct pv_net *pn)
{
	int i;

	for (i = 0; i < pn->pn_made; i++) {
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

	/* A small ring without indirect tables takes fewer segments than the protocol would. */
	pn->pn_params.pnp_tx_segs = MIN(pn->pn_params.pnp_tx_segs, txq->ptq_pvq->q_max_segs);
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

/* Wait until nothing is left in a transmit queue. */
static bool
pv_net_retire(struct pv_net_txq *txq)
{
	int tries;

	for (tries = 0; tries < PV_NET_RETIRE_TRIES; tries++) {
		if (pv_net_tx_retired(txq))
			return (true);
		pause("pvpair", howmany(hz, PV_NET_RETIRE_HZ));
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
		error = pv_dev_reset_queue(&pn->pn_pvdev, pv_net_number(i, true), ETIMEDOUT);
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
 * Use n pairs of queues.  Returns 0; EBUSY if netmap(4) has queues, or if what was sent by one of
 * those that are to go does not complete; what pno_set_pairs returns.  After an error there are as many
 * as before.  If a queue alone can't be stopped or started, the device is reset soon, and uses as many
 * pairs then as are set here.
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
	KASSERT(n >= 1 && n <= pn->pn_made, ("%s: %d pairs of %d", __func__, n, pn->pn_made));
	pn->pn_pairs = MIN(pn->pn_chosen, (u_int)n);
	pn->pn_params.pnp_npairs = n;
	for (i = n; i < pn->pn_made; i++)
		pv_net_tx_flush(&pn->pn_txqs[i]);
}

/*
 * Start all queues.  The device has been reset and uses one pair.  It uses more of them only when all
 * have buffers: one that steers by a hash may block forever at a frame for a pair without any (QEMU's
 * does).
 */
void
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
		device_printf(pn->pn_dev, "the device does not use %u pairs of queues (error %d): "
		    "one is used\n", pn->pn_pairs, error);
		pn->pn_pairs = 1;
	}
	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		if (!pv_net_netmap_tx_start(&pn->pn_txqs[i]))
			pv_net_tx_resume(&pn->pn_txqs[i]);
	}
}

void
pv_net_stop_pairs(struct pv_net *pn)
{
	bool netmap = false;
	int i;

	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		netmap |= pv_net_netmap_stop(&pn->pn_rxqs[i], &pn->pn_txqs[i]);
		pv_net_tx_stop(&pn->pn_txqs[i]);
		pv_net_rx_stop(&pn->pn_rxqs[i]);
	}
	/* An interrupt handler may be about to call netmap(4), which frees its rings next. */
	if (netmap)
		NET_EPOCH_WAIT();
}

void
pv_net_drain_pairs(struct pv_net *pn)
{
	int i;

	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		pv_net_netmap_drain(&pn->pn_rxqs[i], &pn->pn_txqs[i]);
		pv_net_tx_drain(&pn->pn_txqs[i]);
		pv_net_rx_drain(&pn->pn_rxqs[i]);
	}
}

static void
pv_net_abandon(struct pvq *q)
{
	while (pvq_drain(q) != NULL)
		;
}

void
pv_net_abandon_pairs(struct pv_net *pn)
{
	int i;

	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		pv_net_abandon(pn->pn_txqs[i].ptq_pvq);
		pv_net_abandon(pn->pn_rxqs[i].prq_pvq);
	}
}
