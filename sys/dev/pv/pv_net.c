/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: the life of a paravirtual network card, as far as it is the same for all protocols.
 *
 *	          ifconfig up                   frame lost, lie, watchdog
 *	  idle ----------------> running ------------------------------> reset: idle, running
 *	   ^  <----------------   |  ^
 *	   |    ifconfig down     |  |
 *	   +----- freeze ---------+  +---- thaw (if it was up)
 *
 * Idle: the device is live, its queues are empty (or, if staged, nobody looks at them).  Running:
 * buffers are posted, packets flow. From running to idle the device is reset, because that is the
 * only way to get buffers back, and made live again at once. A device that does not confirm the
 * reset is dead: what it had is leaked, for it may still write there, and the interface stays down.
 *
 * A reset that somebody requests is done by a task, at most once a second (the tick), so that
 * a device that lies all the time costs no more than that.
 *
 * Locking.
 *   pn_sx     configuration: running, frozen, dead, the device's life.  May be held while
 *             sleeping.
 *   prq_mtx   one for each receive queue, ptq_mtx one for each transmit queue: no order
 *             between them, none is taken while another is held.
 *   pv_net_entry_mtx  ioctls in flight (pv_net_if.c); nothing is called with it held.
 * Order: pn_sx before a queue's lock.  None is held while packets go up the stack.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <net/vnet.h>
#include <machine/bus.h>

#include <dev/pv/pvq.h>
#include <dev/pv/pv_net.h>
#include <dev/pv/pv_net_var.h>

/* Resets and their reasons that go to the log; the counters go on. */
#define	PV_NET_RESETS_LOGGED	10

MODULE_VERSION(pv_net, 1);
MODULE_DEPEND(pv_net, pv, 1, 1, 1);

MALLOC_DEFINE(M_PVNET, "pv_net", "paravirtual network cards");

/*
 * Receive buffers for the current MTU.  When frames may span buffers they are of 2 KB, unless
 * a page saves merging; else one buffer holds the longest frame.  The padding aligns the
 * header behind Ethernet's to 4 bytes.
 */
void
pv_net_set_rx_layout(struct pv_net *pn)
{
	static const u_int clusters[] = { MCLBYTES, MJUMPAGESIZE, MJUM9BYTES, MJUM16BYTES };
	u_int frame, need, max, i;

	pn->pn_rx_pad = -(pn->pn_params.pnp_hdrlen + ETHER_HDR_LEN) & 3;
	frame = if_getmtu(pn->pn_ifp) + ETHER_HDR_LEN + ETHER_VLAN_ENCAP_LEN;
	need = pn->pn_rx_pad + pn->pn_params.pnp_hdrlen + frame;
	max = pn->pn_params.pnp_merge ? 2 : nitems(clusters);
	for (i = 0; i < max - 1 && clusters[i] < need; i++)
		;
	pn->pn_rx_cluster = clusters[i];
}

/*
 * Post buffers and let packets flow.  The device is live and idle.
 */
int
pv_net_init_locked(struct pv_net *pn)
{
	const uint8_t *lladdr = if_getlladdr(pn->pn_ifp);
	int error, i;

	sx_assert(&pn->pn_sx, SA_XLOCKED);
	if (pn->pn_dead)
		return (ENXIO);
	if (pn->pn_running)
		return (0);
	/* Before anything that may ask for another one. */
	atomic_store_rel_int(&pn->pn_want_reset, 0);
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
	for (i = 0; i < pn->pn_params.pnp_npairs; i++)
		pv_net_rx_start(&pn->pn_rxqs[i]);
	/*
	 * Once all of them have buffers: QEMU, while it steers by a hash, waits for ever with a frame
	 * for a pair that has none yet.
	 */
	pv_net_start_pairs(pn);
	for (i = 0; i < pn->pn_params.pnp_npairs; i++)
		pv_net_tx_start(&pn->pn_txqs[i]);
	pn->pn_running = true;
	if_setdrvflagbits(pn->pn_ifp, IFF_DRV_RUNNING, IFF_DRV_OACTIVE);
	if_link_state_change(pn->pn_ifp, pn->pn_ops->pno_link_up(pn->pn_softc) ?
	    LINK_STATE_UP : LINK_STATE_DOWN);
	return (0);
}

/* Keep everybody out of the queues. */
static void
pv_net_quiesce(struct pv_net *pn)
{
	int i;

	pn->pn_running = false;
	if_setdrvflagbits(pn->pn_ifp, 0, IFF_DRV_RUNNING);
	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		pv_net_tx_stop(&pn->pn_txqs[i]);
		pv_net_rx_stop(&pn->pn_rxqs[i]);
	}
}

/* Forget what is in flight, without giving its memory back: the queues can be freed then. */
static void
pv_net_abandon(struct pvq *q)
{
	while (pvq_drain(q) != NULL)
		;
}

/* Stop the device and take its memory back. */
static int
pv_net_halt(struct pv_net *pn)
{
	int error, i;

	error = pn->pn_ops->pno_stop(pn->pn_softc);
	if (error != 0) {
		pn->pn_dead = true;
		for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
			pv_net_abandon(pn->pn_txqs[i].ptq_pvq);
			pv_net_abandon(pn->pn_rxqs[i].prq_pvq);
		}
		device_printf(pn->pn_dev, "the device did not stop (error %d): its buffers are "
		    "given up, and the interface stays down until the driver's module is "
		    "unloaded and loaded again (kldunload, kldload)\n", error);
		return (error);
	}
	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		pv_net_tx_drain(&pn->pn_txqs[i]);
		pv_net_rx_drain(&pn->pn_rxqs[i]);
	}
	return (0);
}

static int
pv_net_revive(struct pv_net *pn)
{
	int error;

	error = pn->pn_ops->pno_restart(pn->pn_softc);
	if (error == 0) {
		/* The device forgot what it was told. */
		memcpy(pn->pn_lladdr, pn->pn_params.pnp_lladdr, ETHER_ADDR_LEN);
		pn->pn_offloads_asked = pn->pn_params.pnp_offloads & PV_NET_RX_OFFLOADS;
		memset(pn->pn_vlans_told, 0, sizeof(pn->pn_vlans_told));
		pn->pn_vlan_failed = false;
		return (0);
	}
	pn->pn_dead = true;
	device_printf(pn->pn_dev, "the device did not start again (error %d): the interface "
	    "stays down until the driver's module is unloaded and loaded again (kldunload, "
	    "kldload)\n", error);
	return (error);
}

/* From running to idle.  Staged queues just run on: they have no memory that anybody misses. */
void
pv_net_stop_locked(struct pv_net *pn)
{
	sx_assert(&pn->pn_sx, SA_XLOCKED);
	if (!pn->pn_running)
		return;
	pv_net_quiesce(pn);
	if (pn->pn_params.pnp_staged)
		pv_net_qflush(pn->pn_ifp);
	else if (pv_net_halt(pn) == 0)
		(void)pv_net_revive(pn);
}

static void
pv_net_reset_task(void *arg, int pending __unused)
{
	struct pv_net *pn = arg;

	sx_xlock(&pn->pn_sx);
	if (pn->pn_running && !pn->pn_frozen && !pn->pn_detaching) {
		if (++pn->pn_resets <= PV_NET_RESETS_LOGGED)
			device_printf(pn->pn_dev, "resetting the device%s\n",
			    pn->pn_resets < PV_NET_RESETS_LOGGED ? "" :
			    "; from now on resets are only counted");
		if (pn->pn_ops->pno_reset != NULL)
			pn->pn_ops->pno_reset(pn->pn_softc);
		else {
			pv_net_stop_locked(pn);
			(void)pv_net_init_locked(pn);
		}
	}
	sx_xunlock(&pn->pn_sx);
}

void
pv_net_lock(struct pv_net *pn)
{
	sx_xlock(&pn->pn_sx);
}

void
pv_net_unlock(struct pv_net *pn)
{
	sx_xunlock(&pn->pn_sx);
}

void
pv_net_request_reset(struct pv_net *pn)
{
	atomic_store_rel_int(&pn->pn_want_reset, 1);
}

static void
pv_net_tick(void *arg)
{
	struct pv_net *pn = arg;
	int i;

	for (i = 0; i < pn->pn_params.pnp_npairs && pn->pn_running; i++) {
		if (pvq_broken(pn->pn_rxqs[i].prq_pvq) || pvq_broken(pn->pn_txqs[i].ptq_pvq))
			pv_net_request_reset(pn);
		if (!pv_net_tx_stuck(&pn->pn_txqs[i]) || pn->pn_params.pnp_may_rest)
			continue;
		pn->pn_watchdogs++;
		if (pn->pn_resets < PV_NET_RESETS_LOGGED)
			device_printf(pn->pn_dev, "watchdog: nothing that was sent by queue %d "
			    "has completed for seconds\n", i);
		pv_net_request_reset(pn);
	}
	if (pn->pn_running && atomic_swap_int(&pn->pn_want_reset, 0) != 0)
		taskqueue_enqueue(pn->pn_config_tq, &pn->pn_reset_task);
	/* Forwarding was switched on or off. */
	if (pn->pn_running && pn->pn_ops->pno_set_offloads != NULL &&
	    pv_net_rx_wanted(pn) != pn->pn_offloads_asked)
		taskqueue_enqueue(pn->pn_config_tq, &pn->pn_offload_task);
	/* What a flapping link came to in the end. */
	if (atomic_swap_int(&pn->pn_link_changes, 0) > PV_NET_LINK_CHANGES)
		taskqueue_enqueue(pn->pn_config_tq, &pn->pn_link_task);
	callout_reset(&pn->pn_tick, hz, pv_net_tick, pn);
}

static void
pv_net_link_task(void *arg, int pending __unused)
{
	pv_net_link_change(arg);
}

static bool
pv_net_params_ok(device_t dev, const struct pv_net_params *params)
{
	const char *why = NULL;

	if (params->pnp_npairs < 1)
		why = "no queue pairs";
	else if (params->pnp_tx_segs < 4)
		why = "too few segments for a packet";
	else if (params->pnp_mtu > params->pnp_max_mtu || params->pnp_max_mtu < ETHERMIN)
		why = "an impossible MTU";
	else if (params->pnp_seg_max < MCLBYTES)
		why = "segments smaller than a cluster";
	else if (params->pnp_staged && (params->pnp_hdrlen != 0 || params->pnp_seg_max != PAGE_SIZE))
		why = "staging pages and headers";
	else if (params->pnp_rx_budget < 1 || params->pnp_tx_kick < 1)
		why = "a budget of nothing";
	if (why != NULL)
		device_printf(dev, "cannot use a device with %s\n", why);
	return (why == NULL);
}

struct pv_net *
pv_net_alloc(device_t dev, const struct pv_net_ops *ops, void *softc,
    const struct pv_net_params *params)
{
	struct pv_net *pn;

	if (!pv_net_params_ok(dev, params))
		return (NULL);
	pn = malloc(sizeof(*pn), M_PVNET, M_WAITOK | M_ZERO);
	pn->pn_dev = dev;
	pn->pn_ops = ops;
	pn->pn_softc = softc;
	pn->pn_params = *params;
	pn->pn_level = PV_NET_ALLOCATED;
	memcpy(pn->pn_lladdr, params->pnp_lladdr, ETHER_ADDR_LEN);
	pn->pn_offloads_asked = params->pnp_offloads & PV_NET_RX_OFFLOADS;
	sx_init(&pn->pn_sx, "pv_net configuration");
	sysctl_ctx_init(&pn->pn_sysctl);
	sysctl_ctx_init(&pn->pn_queue_sysctl);
	callout_init(&pn->pn_tick, 1);
	TASK_INIT(&pn->pn_reset_task, 0, pv_net_reset_task, pn);
	TASK_INIT(&pn->pn_link_task, 0, pv_net_link_task, pn);
	pv_net_pairs_alloc(pn);
	return (pn);
}

void
pv_net_queue(struct pv_net *pn, int pair, bool tx, struct pv_net_queue *out)
{
	out->pq_cpu = pv_net_pair_cpu(pn, pair);
	if (tx) {
		out->pq_pvq = &pn->pn_txqs[pair].ptq_pvq;
		out->pq_intr = pv_net_tx_intr;
		out->pq_arg = &pn->pn_txqs[pair];
		out->pq_max_segs = pn->pn_params.pnp_tx_segs;
	} else {
		out->pq_pvq = &pn->pn_rxqs[pair].prq_pvq;
		out->pq_intr = pv_net_rx_intr;
		out->pq_arg = &pn->pn_rxqs[pair];
		out->pq_max_segs = PV_NET_RX_SEGS + pn->pn_params.pnp_hdr_apart;
	}
}

void
pv_net_set_pages(struct pv_net *pn, int pair, bool tx, const struct pv_net_page *pages)
{
	if (tx)
		pn->pn_txqs[pair].ptq_pages = pages;
	else
		pn->pn_rxqs[pair].prq_pages = pages;
}

void
pv_net_renegotiate(struct pv_net *pn, const struct pv_net_params *params)
{
	sx_xlock(&pn->pn_sx);
	pn->pn_params.pnp_offloads = params->pnp_offloads;
	pn->pn_params.pnp_max_frame = params->pnp_max_frame;
	pn->pn_params.pnp_max_mtu = params->pnp_max_mtu;
	pn->pn_offloads_asked = params->pnp_offloads & PV_NET_RX_OFFLOADS;
	pv_net_change_pairs(pn, params->pnp_npairs);
	if (pn->pn_level == PV_NET_INTERFACE)
		pv_net_if_capabilities(pn);
	sx_xunlock(&pn->pn_sx);
	if (pn->pn_level == PV_NET_INTERFACE)
		if_vlancap(pn->pn_ifp);
}

int
pv_net_attach(struct pv_net *pn)
{
	int error = 0, i;

	pn->pn_level = PV_NET_QUEUES;
	/* A small ring without indirect tables takes fewer segments than the protocol would. */
	for (i = 0; i < pn->pn_params.pnp_npairs; i++)
		pn->pn_params.pnp_tx_segs = MIN(pn->pn_params.pnp_tx_segs,
		    pn->pn_txqs[i].ptq_pvq->q_max_segs);
	for (i = 0; i < pn->pn_params.pnp_npairs && error == 0; i++) {
		error = pv_net_rx_alloc(&pn->pn_rxqs[i]);
		if (error == 0)
			error = pv_net_tx_alloc(&pn->pn_txqs[i]);
	}
	if (error == 0)
		error = pv_net_stage_alloc(pn);
	if (error == 0)
		error = pv_net_if_create(pn);
	if (error != 0)
		return (error);
	for (i = 0; i < pn->pn_params.pnp_npairs; i++)
		pv_net_lro_init(&pn->pn_rxqs[i]);
	pv_net_stage_start(pn);
	pn->pn_level = PV_NET_INTERFACE;
	pv_net_sysctl_attach(pn);
	pv_net_link_change(pn);
	callout_reset(&pn->pn_tick, hz, pv_net_tick, pn);
	return (0);
}

/*
 * The queues are quiesced and the device is halted first: if_detach(9) frees the link's address,
 * which the handlers of the queues compare destinations with.  From pn_detaching on nothing starts
 * them again.
 */
static void
pv_net_detach_interface(struct pv_net *pn)
{
	int i;

	sx_xlock(&pn->pn_sx);
	pn->pn_detaching = true;
	if (pn->pn_running) {
		pv_net_quiesce(pn);
		(void)pv_net_halt(pn);
	}
	sx_xunlock(&pn->pn_sx);
	pv_net_if_destroy(pn);
	/* A packet may have come after that, by a thread that saw the queue run. */
	for (i = 0; i < pn->pn_made; i++) {
		pv_net_tx_stop(&pn->pn_txqs[i]);
		pv_net_tx_flush(&pn->pn_txqs[i]);
	}
	/* Now nothing is left that would enqueue a task: not the tick, not a queue, not an ioctl. */
	callout_drain(&pn->pn_tick);
	taskqueue_drain(pn->pn_config_tq, &pn->pn_reset_task);
	taskqueue_drain(pn->pn_config_tq, &pn->pn_link_task);
	taskqueue_drain(pn->pn_config_tq, &pn->pn_filter_task);
	taskqueue_drain(pn->pn_config_tq, &pn->pn_offload_task);
	(void)sysctl_ctx_free(&pn->pn_sysctl);
	(void)sysctl_ctx_free(&pn->pn_queue_sysctl);
	if_free(pn->pn_ifp);
	pn->pn_ifp = NULL;
	pn->pn_level = PV_NET_QUEUES;
}

void
pv_net_detach(struct pv_net *pn)
{
	int i;

	if (pn->pn_level == PV_NET_INTERFACE)
		pv_net_detach_interface(pn);
	if (pn->pn_level == PV_NET_QUEUES) {
		pv_net_stage_free(pn);
		for (i = 0; i < pn->pn_made; i++) {
			pv_net_rx_free(&pn->pn_rxqs[i]);
			pv_net_tx_free(&pn->pn_txqs[i]);
		}
		pn->pn_level = PV_NET_ALLOCATED;
	}
}

void
pv_net_free(struct pv_net *pn)
{
	if (pn == NULL)
		return;
	KASSERT(pn->pn_level == PV_NET_ALLOCATED, ("%s: level %d", __func__, pn->pn_level));
	pv_net_pairs_free(pn);
	sx_destroy(&pn->pn_sx);
	free(pn, M_PVNET);
}

int
pv_net_freeze(struct pv_net *pn)
{
	int error = 0;

	sx_xlock(&pn->pn_sx);
	if (!pn->pn_frozen && !pn->pn_dead) {
		pn->pn_frozen = true;
		pv_net_quiesce(pn);
		/* The queues may be other ones when we thaw. */
		callout_drain(&pn->pn_tick);
		error = pv_net_halt(pn);
		(void)sysctl_ctx_free(&pn->pn_queue_sysctl);
	}
	sx_xunlock(&pn->pn_sx);
	return (error);
}

int
pv_net_thaw(struct pv_net *pn)
{
	int error = 0;

	sx_xlock(&pn->pn_sx);
	if (pn->pn_frozen) {
		pn->pn_frozen = false;
		pv_net_sysctl_queues(pn);
		pv_net_stage_start(pn);
		callout_reset(&pn->pn_tick, hz, pv_net_tick, pn);
		error = pn->pn_dead ? ENXIO : pv_net_revive(pn);
		if (error == 0 && (if_getflags(pn->pn_ifp) & IFF_UP) != 0)
			error = pv_net_init_locked(pn);
	}
	sx_xunlock(&pn->pn_sx);
	if (error != 0)
		return (error);
	pv_net_link_change(pn);
	/* We may be elsewhere now: protocols tell the link where their addresses are. */
	if ((if_getflags(pn->pn_ifp) & IFF_UP) != 0) {
		CURVNET_SET(if_getvnet(pn->pn_ifp));
		EVENTHANDLER_INVOKE(iflladdr_event, pn->pn_ifp);
		CURVNET_RESTORE();
	}
	return (0);
}
