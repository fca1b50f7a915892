/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: the device between idle and running: up, down, reset, and the watchdog.
 *
 *	          pv_net_up                    frame lost, protocol violation, watchdog
 *	  idle ----------------> running ------------------------------> reset: idle, running
 *	   ^  <----------------    |
 *	   |     pv_net_down       |
 *	   +---- pv_net_freeze ----+   (quiesce, halt; pv_net_thaw: revive, up)
 *
 * Idle: the device is live, its queues are empty (or, if staged, not looked at).  Running: buffers are
 * posted, packets flow.  From running to idle the device is reset, because that is the only way to get
 * buffers back, and made live again at once.  A device that does not confirm the reset is dead: what it
 * had is leaked, for it may still write there, and the interface stays down.
 *
 * A request is never cleared but by a restart: one that comes while the device is idle, or starts, is
 * served before it gets buffers, or by the next tick.
 *
 * Resets.  Whatever finds that the device can't be trusted any more sets pn_want_reset, in any context
 * (pv_net_need_reset).  The tick looks at it once a second and queues the task that resets the device:
 * one that violates the protocol all the time costs no more than that.  If it is a queue that is
 * broken, or one whose packets don't complete, and the device can reset it alone, the others run on; a
 * queue that is stuck again before anything has completed is not worth another try, and the device is
 * reset.
 *
 * Sizes of rings.  They are changed one queue after the other, so that a card with several goes on;
 * where the device can't reset a queue alone, it is reset.
 *
 * The tick may not sleep, and reads without pn_sx; what needs it is done by tasks of pn_config_tq.
 *
 * Locking.  pn_sx, but for the tick.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
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

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

/* Resets and their reasons that are logged; after that they are only counted. */
#define	PV_NET_RESETS_LOGGED	10

/* Request of the device those receive offloads that are of use now. */
void
pv_net_ask_offloads(struct pv_net *pn)
{
	u_int want = pv_net_rx_wanted(pn);

	sx_assert(&pn->pn_sx, SA_XLOCKED);
	if (pn->pn_ops->pno_set_offloads == NULL || want == pn->pn_offloads_asked || !pv_net_live(pn))
		return;
	/* After a refusal it is not requested again: what comes is handled here. */
	pn->pn_offloads_asked = want;
	if (pn->pn_ops->pno_set_offloads(pn->pn_softc, want) != 0)
		pn->pn_offload_errors++;
}

static void
pv_net_offload_task(void *arg, int pending __unused)
{
	struct pv_net *pn = arg;

	sx_xlock(&pn->pn_sx);
	pv_net_ask_offloads(pn);
	sx_xunlock(&pn->pn_sx);
}

void
pv_net_quiesce(struct pv_net *pn)
{
	pn->pn_running = false;
	if_setdrvflagbits(pn->pn_ifp, 0, IFF_DRV_RUNNING);
	pv_net_stop_pairs(pn);
}

int
pv_net_halt(struct pv_net *pn)
{
	int error;

	error = pn->pn_ops->pno_stop(pn->pn_softc);
	if (error != 0) {
		pn->pn_dead = true;
		pv_net_abandon_pairs(pn);
		device_printf(pn->pn_dev, "the device did not stop (error %d): its buffers are "
		    "leaked, and the interface stays down until the driver's module is "
		    "unloaded and loaded again (kldunload, kldload)\n", error);
		return (error);
	}
	pv_net_drain_pairs(pn);
	return (0);
}

static int
pv_net_restart(struct pv_net *pn)
{
	int error;

	/* What was requested is served by this; what is requested from now on is not. */
	(void)atomic_swap_int(&pn->pn_want_reset, 0);
	error = pn->pn_ops->pno_restart(pn->pn_softc);
	if (error != 0)
		return (error);
	/* The device has lost its configuration. */
	memcpy(pn->pn_lladdr, pn->pn_params.pnp_lladdr, ETHER_ADDR_LEN);
	pn->pn_offloads_asked = pn->pn_params.pnp_offloads & PV_NET_RX_OFFLOADS;
	memset(pn->pn_vlans_set, 0, sizeof(pn->pn_vlans_set));
	pn->pn_vlan_failed = false;
	return (0);
}

int
pv_net_revive(struct pv_net *pn)
{
	int error;

	error = pv_net_restart(pn);
	if (error == 0)
		return (0);
	pn->pn_dead = true;
	device_printf(pn->pn_dev, "the device did not start again (error %d): the interface "
	    "stays down until the driver's module is unloaded and loaded again (kldunload, "
	    "kldload)\n", error);
	return (error);
}

static void
pv_net_count_reset(struct pv_net *pn)
{
	if (++pn->pn_resets <= PV_NET_RESETS_LOGGED)
		device_printf(pn->pn_dev, "resetting the device%s\n",
		    pn->pn_resets < PV_NET_RESETS_LOGGED ? "" :
		    "; from now on resets are only counted");
}

/* Reset an idle device, if that was requested since it started.  Of pno_reset the tick takes care. */
static int
pv_net_reset_idle(struct pv_net *pn)
{
	int error;

	if ((atomic_load_acq_int(&pn->pn_want_reset) & PV_NET_RESET_DEVICE) == 0 ||
	    pn->pn_ops->pno_reset != NULL)
		return (0);
	pv_net_count_reset(pn);
	error = pv_net_halt(pn);
	return (error != 0 ? error : pv_net_revive(pn));
}

int
pv_net_up(struct pv_net *pn)
{
	const uint8_t *lladdr = if_getlladdr(pn->pn_ifp);
	int error;

	sx_assert(&pn->pn_sx, SA_XLOCKED);
	if (pn->pn_dead)
		return (ENXIO);
	if (pn->pn_running)
		return (0);
	/* What was found broken while it was idle gets no buffers. */
	error = pv_net_reset_idle(pn);
	if (error != 0)
		return (error);
	if (memcmp(lladdr, pn->pn_lladdr, ETHER_ADDR_LEN) != 0) {
		error = pn->pn_ops->pno_set_lladdr(pn->pn_softc, lladdr);
		if (error != 0)
			device_printf(pn->pn_dev, "the device did not take the address %6D "
			    "(error %d): it is made to receive everything instead\n", lladdr,
			    ":", error);
		else
			memcpy(pn->pn_lladdr, lladdr, ETHER_ADDR_LEN);
	}
	(void)pv_net_set_filter(pn);
	pv_net_ask_offloads(pn);
	pv_net_vlan_sync(pn);
	pv_net_start_pairs(pn);
	pn->pn_running = true;
	if_setdrvflagbits(pn->pn_ifp, IFF_DRV_RUNNING, IFF_DRV_OACTIVE);
	if_link_state_change(pn->pn_ifp, pn->pn_ops->pno_link_up(pn->pn_softc) ?
	    LINK_STATE_UP : LINK_STATE_DOWN);
	return (0);
}

void
pv_net_down(struct pv_net *pn)
{
	sx_assert(&pn->pn_sx, SA_XLOCKED);
	if (!pn->pn_running)
		return;
	pv_net_quiesce(pn);
	if (pn->pn_stage != NULL)
		pv_net_qflush(pn->pn_ifp);
	else if (pv_net_halt(pn) == 0)
		(void)pv_net_revive(pn);
}

/*
 * Reset each queue that is broken or stuck.  Returns an error if the device has to be reset; one that
 * is stopped then is started with the others.
 */
static int
pv_net_reset_queues(struct pv_net *pn)
{
	struct pv_net_rxq *rxq;
	struct pv_net_txq *txq;
	int error = 0, i;

	for (i = 0; i < pn->pn_params.pnp_npairs && error == 0; i++) {
		rxq = &pn->pn_rxqs[i];
		txq = &pn->pn_txqs[i];
		if (txq->ptq_parked)
			continue;
		if (pvq_broken(rxq->prq_pvq)) {
			error = pv_net_reset_rxq(rxq);
			pn->pn_queue_resets += error == 0;
		}
		if (error == 0 && (txq->ptq_stuck || pvq_broken(txq->ptq_pvq))) {
			error = pv_net_reset_txq(txq);
			pn->pn_queue_resets += error == 0;
		}
	}
	if (error != 0 && error != EOPNOTSUPP)
		pn->pn_queue_reset_errors++;
	return (error);
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

/* One queue after the other.  Returns an error if the device has to be reset. */
static int
pv_net_renew_queues(struct pv_net *pn, bool tx)
{
	int error = 0, i;

	for (i = 0; i < pn->pn_params.pnp_npairs && error == 0; i++) {
		/* One that is parked gets its size when it is used again. */
		if (pn->pn_txqs[i].ptq_parked)
			continue;
		error = tx ? pv_net_renew_txq(&pn->pn_txqs[i]) : pv_net_reset_rxq(&pn->pn_rxqs[i]);
	}
	return (error);
}

/*
 * Reset the device, so that its rings get their sizes; a device that does not take those gets the ones
 * of before.
 */
static int
pv_net_resize_device(struct pv_net *pn, bool tx, u_int before)
{
	bool running = pn->pn_running;
	int error;

	if (running)
		pv_net_quiesce(pn);
	error = pv_net_halt(pn);
	if (error != 0)
		return (error);
	error = pv_net_restart(pn);
	if (error != 0) {
		(void)pv_net_set_sizes(pn, tx, before);
		(void)pv_net_revive(pn);
	}
	if (running && !pn->pn_dead)
		(void)pv_net_up(pn);
	return (error);
}

int
pv_net_resize(struct pv_net *pn, bool tx, u_int size)
{
	u_int before = pv_net_ring_size(pn, tx);
	int error;

	sx_assert(&pn->pn_sx, SA_XLOCKED);
	if (!pv_net_live(pn))
		return (ENXIO);
	/* Programs have rings of the same size mapped. */
	if (pn->pn_netmap)
		return (EBUSY);
	if (size == before)
		return (0);
	error = pv_net_set_sizes(pn, tx, size);
	if (error != 0) {
		(void)pv_net_set_sizes(pn, tx, before);
		return (error);
	}
	if (pn->pn_running && pv_net_renew_queues(pn, tx) == 0)
		return (0);
	return (pv_net_resize_device(pn, tx, before));
}

static void
pv_net_reset_task(void *arg, int pending __unused)
{
	struct pv_net *pn = arg;
	u_int want = 0;

	sx_xlock(&pn->pn_sx);
	/* One that can't be served now is kept for pv_net_up(), or is served by thawing. */
	if (pn->pn_running && !pn->pn_frozen && !pn->pn_detaching)
		want = atomic_swap_int(&pn->pn_want_reset, 0);
	if (want == 0)
		;
	else if ((want & PV_NET_RESET_DEVICE) != 0 || pv_net_reset_queues(pn) != 0) {
		pv_net_count_reset(pn);
		if (pn->pn_ops->pno_reset != NULL)
			pn->pn_ops->pno_reset(pn->pn_softc);
		else {
			pv_net_down(pn);
			(void)pv_net_up(pn);
		}
	}
	sx_xunlock(&pn->pn_sx);
}

void
pv_net_request_reset(struct pv_net *pn)
{
	pv_net_need_reset(pn);
}

static void
pv_net_tick(void *arg)
{
	struct pv_net *pn = arg;
	int i;

	for (i = 0; i < pn->pn_params.pnp_npairs && pn->pn_running; i++) {
		if (pn->pn_txqs[i].ptq_parked)
			continue;
		pv_net_rx_watch(&pn->pn_rxqs[i]);
		if (pvq_broken(pn->pn_rxqs[i].prq_pvq) || pvq_broken(pn->pn_txqs[i].ptq_pvq))
			pv_net_need_queue_reset(pn);
		if (!pv_net_tx_stuck(&pn->pn_txqs[i]) || pn->pn_params.pnp_may_rest)
			continue;
		pn->pn_watchdogs++;
		if (pn->pn_resets < PV_NET_RESETS_LOGGED)
			device_printf(pn->pn_dev, "watchdog: nothing that was sent by queue %d "
			    "has completed for %d seconds\n", i, PV_NET_WATCHDOG);
		pv_net_need_queue_reset(pn);
	}
	if (pn->pn_running && atomic_load_acq_int(&pn->pn_want_reset) != 0)
		taskqueue_enqueue(pn->pn_config_tq, &pn->pn_reset_task);
	/* Forwarding was switched on or off. */
	if (pn->pn_running && pn->pn_ops->pno_set_offloads != NULL &&
	    pv_net_rx_wanted(pn) != pn->pn_offloads_asked)
		taskqueue_enqueue(pn->pn_config_tq, &pn->pn_offload_task);
	/* The state that a flapping link has settled in. */
	if (atomic_swap_int(&pn->pn_link_changes, 0) > PV_NET_LINK_CHANGES)
		taskqueue_enqueue(pn->pn_config_tq, &pn->pn_link_task);
	callout_reset(&pn->pn_tick, hz, pv_net_tick, pn);
}

void
pv_net_run_init(struct pv_net *pn)
{
	TASK_INIT(&pn->pn_offload_task, 0, pv_net_offload_task, pn);
	TASK_INIT(&pn->pn_reset_task, 0, pv_net_reset_task, pn);
	callout_init(&pn->pn_tick, 1);
}

void
pv_net_run_start(struct pv_net *pn)
{
	callout_reset(&pn->pn_tick, hz, pv_net_tick, pn);
}
