/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: what pv_dev(9) calls: queues and settings of a card that is stopped, started and reset.
 *
 * DOWN, the device works and its queues are empty (or, if staged, not looked at).  LIVE, buffers are
 * posted, packets flow.  From LIVE to DOWN the device is reset, because that is the only way to get
 * buffers back, and started again at once.  What a device that does not confirm the reset had is
 * leaked, for it may still write there.
 *
 * Sizes of rings.  They are changed one queue after the other, so that a card with several goes on;
 * where the device can't reset a queue alone, it is reset.
 *
 * The tick, once a second, is the watchdog, which needs a queue's lock only; what may sleep is done by
 * tasks.
 *
 * Locking.  That of pv_dev, but for the tick.
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

#include <dev/pv/pv_log.h>
#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

void
pv_net_ask_offloads(void *arg)
{
	struct pv_net *pn = arg;
	u_int want = pv_net_rx_wanted(pn);

	pv_dev_assert(&pn->pn_pvdev);
	if (pn->pn_ops->pno_set_offloads == NULL || want == pn->pn_offloads_asked ||
	    !pv_dev_is_started(&pn->pn_pvdev))
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
	return (pn->pn_ops->pno_stop != NULL ? pn->pn_ops->pno_stop(pn->pn_softc) : 0);
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
	(void)pv_net_set_sizes(pn, pn->pn_resize->pnr_tx, pn->pn_resize->pnr_before);
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
		pv_dev_adopt(&pn->pn_pvdev, pv_net_number(i, false), pn->pn_rxqs[i].prq_pvq);
		pv_dev_adopt(&pn->pn_pvdev, pv_net_number(i, true), pn->pn_txqs[i].ptq_pvq);
	}
	pv_net_start_pairs(pn);
	if_setdrvflagbits(pn->pn_ifp, IFF_DRV_RUNNING, IFF_DRV_OACTIVE);
	if_link_state_change(pn->pn_ifp, pn->pn_ops->pno_link_up(pn->pn_softc) ?
	    LINK_STATE_UP : LINK_STATE_DOWN);
	if (pn->pn_moved)
		taskqueue_enqueue(pn->pn_pvdev.pvd_tq, &pn->pn_link_task);
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
		device_printf(pn->pn_dev, "the device did not take the address %6D (error %d): it "
		    "is made to receive everything instead\n", lladdr, ":", error);
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

/* The filter depends on whether the device has the address, and is set again if it refuses a tag. */
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
};

/* One queue after the other.  Returns an error if the device has to be reset. */
static int
pv_net_renew_queues(struct pv_net *pn, bool tx)
{
	int error = 0, i;

	for (i = 0; i < pn->pn_params.pnp_npairs && error == 0; i++) {
		/* One that is parked gets its size when it is used again. */
		if (!pn->pn_txqs[i].ptq_parked)
			error = pv_dev_reset_queue(&pn->pn_pvdev, pv_net_number(i, tx), 0);
	}
	return (error);
}

int
pv_net_resize(struct pv_net *pn, bool tx, u_int size)
{
	struct pv_net_resize resize = { .pnr_tx = tx, .pnr_before = pv_net_ring_size(pn, tx) };
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

/* It was asked for, and keeps a router of FreeBSD from forwarding most of the data. */
static void
pv_net_say_forwards(struct pv_net *pn)
{
	bool big = pv_net_forwards_big(pn);

	if (big && !pn->pn_forwards_big)
		device_printf(pn->pn_dev, "GSO packets are not split for forwarding "
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
			device_printf(pn->pn_dev, "watchdog: nothing that was sent by queue %d "
			    "has completed for %d seconds\n", i, PV_NET_WATCHDOG);
	}
	if (live)
		pv_net_say_forwards(pn);
	/* Forwarding was switched on or off. */
	if (live && pn->pn_ops->pno_set_offloads != NULL &&
	    pv_net_rx_wanted(pn) != pn->pn_offloads_asked)
		taskqueue_enqueue(pn->pn_pvdev.pvd_tq, &pn->pn_offload_task);
	/* The state that a flapping link has settled in. */
	if (atomic_swap_int(&pn->pn_link_changes, 0) > PV_NET_LINK_CHANGES)
		taskqueue_enqueue(pn->pn_pvdev.pvd_tq, &pn->pn_link_task);
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
