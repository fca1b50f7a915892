/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: the life of a paravirtual network card: allocated, attached, frozen,
 * detached.
 *
 *	pv_net_alloc      ALLOCATED   pairs of queues, no hardware yet
 *	pv_net_attach     INTERFACE   buffers and DMA, the interface, sysctls,
 *				      the tick
 *	  pv_dev_freeze               queues empty, device stopped; the queues
 *				      may be exchanged
 *	  pv_net_thaw                 the device as it was, running if the
 *				      interface is up
 *	pv_net_detach     ALLOCATED   in reverse, from any level
 *	pv_net_free
 *
 * Whether it is stopped, idle or used is pv_dev's (pv_dev.c); what that has
 * done is in pv_net_run.c.
 *
 * Locking.
 *   pv_dev's  configuration, and the device's life.  May be held while
 *             sleeping.
 *   prq_mtx   one for each receive queue, ptq_mtx one for each transmit queue:
 *             no order between them, none is taken while another is held.
 *   pv_net_entry_mtx  ioctls in flight (pv_net_if.c); nothing is called with it
 *                     held.
 * Order: pv_dev's before a queue's lock.  None is held while packets go up the
 * stack.
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

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

MODULE_VERSION(pv_net, 1);
MODULE_DEPEND(pv_net, pv, 1, 1, 1);

struct pv_dev *
pv_net_dev(struct pv_net *pn)
{
	return (&pn->pn_pvdev);
}

static bool
pv_net_params_ok(device_t dev, const struct pv_net_params *params)
{
	const char *why = NULL;

	if (params->pnp_npairs < 1)
		why = "no queue pairs";
	else if (params->pnp_tx_segs < 4)
		why = "too few segments for a packet";
	else if (params->pnp_mtu > params->pnp_max_mtu ||
	    params->pnp_max_mtu < ETHERMIN)
		why = "an invalid MTU";
	else if (params->pnp_seg_max < MCLBYTES)
		why = "segments smaller than a cluster";
	if (why != NULL)
		device_printf(dev, "cannot use a device with %s\n", why);
	return (why == NULL);
}

/* The queues may be other ones when it is thawed. */
static void
pv_net_frozen(void *arg)
{
	struct pv_net *pn = arg;

	callout_drain(&pn->pn_tick);
	(void)sysctl_ctx_free(&pn->pn_queue_sysctl);
}

static void
pv_net_thawed(void *arg)
{
	struct pv_net *pn = arg;

	pv_net_sysctl_queues(pn);
	pv_net_stage_start(pn);
	pv_net_run_start(pn);
	/* The machine may have been moved. */
	pn->pn_moved = true;
}

int
pv_net_alloc(device_t dev, const struct pv_net_ops *ops, void *softc,
    const struct pv_net_params *params, struct pv_net **pnp)
{
	struct pv_net *pn;
	int error;

	*pnp = NULL;
	if (!pv_net_params_ok(dev, params))
		return (ENXIO);
	pn = malloc(sizeof(*pn), M_PVNET, M_WAITOK | M_ZERO);
	pn->pn_dev = dev;
	pn->pn_ops = ops;
	pn->pn_softc = softc;
	pn->pn_params = *params;
	pn->pn_rx_budget =
	    params->pnp_tunables[PV_NET_RX_PROCESS_LIMIT].pt_value;
	pn->pn_tx_kick = params->pnp_tunables[PV_NET_TX_KICK].pt_value;
	pn->pn_level = PV_NET_ALLOCATED;
	memcpy(pn->pn_lladdr, params->pnp_lladdr, ETHER_ADDR_LEN);
	pn->pn_offloads_asked = params->pnp_offloads & PV_NET_RX_OFFLOADS;
	pv_net_rx_init(pn);
	sysctl_ctx_init(&pn->pn_sysctl);
	sysctl_ctx_init(&pn->pn_queue_sysctl);
	error = pv_net_run_init(pn);
	if (error != 0) {
		free(pn, M_PVNET);
		return (error);
	}
	pn->pn_dev_ops.pdo_frozen = pv_net_frozen;
	pn->pn_dev_ops.pdo_thawed = pv_net_thawed;
	error = pv_net_pairs_alloc(pn);
	if (error != 0) {
		pv_net_free(pn);
		return (error);
	}
	pv_net_filter_init(pn);
	*pnp = pn;
	return (0);
}

void
pv_net_queue(struct pv_net *pn, int pair, bool tx, struct pvq_spec *out)
{
	snprintf(out->pqs_name, sizeof(out->pqs_name),
	    "%s%d", tx ? "txq" : "rxq", pair);
	snprintf(out->pqs_descr, sizeof(out->pqs_descr),
	    "%s%d", tx ? "tx" : "rx", pair);
	out->pqs_cpu = pv_net_pair_cpu(pn, pair);
	if (tx) {
		out->pqs_pvq = &pn->pn_txqs[pair].ptq_pvq;
		out->pqs_intr = pv_net_tx_intr;
		out->pqs_arg = &pn->pn_txqs[pair];
		out->pqs_max_segs = pn->pn_params.pnp_tx_segs;
	} else {
		out->pqs_pvq = &pn->pn_rxqs[pair].prq_pvq;
		out->pqs_intr = pv_net_rx_intr;
		out->pqs_arg = &pn->pn_rxqs[pair];
		out->pqs_max_segs = pn->pn_rx_segs +
		    pn->pn_params.pnp_hdr_apart;
	}
}

/* The stack does not send what another back end can't take. */
static void
pv_net_fit_mtu(struct pv_net *pn)
{
	u_int mtu = if_getmtu(pn->pn_ifp), max = pn->pn_params.pnp_max_mtu;

	if (mtu <= max)
		return;
	device_printf(pn->pn_dev,
	    "the MTU of %u is more than the back end takes now: it is %u "
	    "from now on\n", mtu, max);
	if (pv_net_set_mtu(pn, max) == 0)
		if_notifymtu(pn->pn_ifp);
}

void
pv_net_renegotiate(struct pv_net *pn, const struct pv_net_params *params)
{
	pv_dev_lock(&pn->pn_pvdev);
	pn->pn_params.pnp_offloads = params->pnp_offloads;
	pn->pn_params.pnp_max_frame = params->pnp_max_frame;
	pn->pn_params.pnp_max_mtu = params->pnp_max_mtu;
	pn->pn_offloads_asked = params->pnp_offloads & PV_NET_RX_OFFLOADS;
	pv_net_change_pairs(pn, params->pnp_npairs);
	if (pn->pn_level == PV_NET_INTERFACE)
		pv_net_if_capabilities(pn);
	pv_dev_unlock(&pn->pn_pvdev);
	if (pn->pn_level != PV_NET_INTERFACE)
		return;
	if_vlancap(pn->pn_ifp);
	pv_net_fit_mtu(pn);
}

int
pv_net_set_pairs(struct pv_net *pn, int n)
{
	int before = pn->pn_params.pnp_npairs, error = 0;

	pn->pn_params.pnp_npairs = n;
	if (pn->pn_level == PV_NET_INTERFACE)
		error = pv_net_fill_pairs(pn);
	pn->pn_params.pnp_npairs = before;
	if (error != 0)
		return (error);
	pv_net_change_pairs(pn, n);
	if (pn->pn_level == PV_NET_INTERFACE) {
		(void)sysctl_ctx_free(&pn->pn_queue_sysctl);
		pv_net_sysctl_queues(pn);
	}
	return (0);
}

int
pv_net_attach(struct pv_net *pn)
{
	int error, i;

	pn->pn_level = PV_NET_QUEUES;
	error = pv_net_fill_pairs(pn);
	/*
	 * From its creation on the interface may be set up, but is not before
	 * pv_dev_start().
	 */
	if (error == 0)
		error = pv_net_if_create(pn);
	if (error != 0)
		return (error);
	for (i = 0; i < pn->pn_params.pnp_npairs; i++)
		pv_net_lro_init(&pn->pn_rxqs[i]);
	pv_net_stage_start(pn);
	pv_net_sysctl_attach(pn);
	pv_net_if_show(pn);
	pn->pn_level = PV_NET_INTERFACE;
	pv_net_run_start(pn);
	pv_dev_lock(&pn->pn_pvdev);
	if ((if_getflags(pn->pn_ifp) & IFF_UP) != 0)
		(void)pv_dev_up(&pn->pn_pvdev);
	pv_dev_unlock(&pn->pn_pvdev);
	pv_dev_start(&pn->pn_pvdev, false);
	pv_net_link_change(pn);
	return (0);
}

/*
 * The queues are quiesced and the device is halted first: if_detach(9) frees
 * the link's address, which the handlers of the queues compare destinations
 * with.
 */
static void
pv_net_detach_interface(struct pv_net *pn)
{
	int i;

	pv_dev_leave(&pn->pn_pvdev);
	pv_net_if_destroy(pn);
	/*
	 * A packet may have been queued after that, by a thread that saw the
	 * device live.
	 */
	for (i = 0; i < pn->pn_max_pairs; i++) {
		pv_net_tx_stop(&pn->pn_txqs[i]);
		pv_net_tx_flush(&pn->pn_txqs[i]);
	}
	/*
	 * With the tick stopped nothing is left that enqueues a task: no queue,
	 * no ioctl.
	 */
	callout_drain(&pn->pn_tick);
	taskqueue_drain(pn->pn_pvdev.pvd_tasks.pt_tq, &pn->pn_link_task);
	taskqueue_drain(pn->pn_pvdev.pvd_tasks.pt_tq, &pn->pn_filter_task);
	taskqueue_drain(pn->pn_pvdev.pvd_tasks.pt_tq, &pn->pn_offload_task);
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
		for (i = 0; i < pn->pn_max_pairs; i++) {
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
	KASSERT(pn->pn_level == PV_NET_ALLOCATED,
	    ("%s: level %d", __func__, pn->pn_level));
	pv_net_stage_free(pn);
	pv_net_pairs_free(pn);
	pv_dev_fini(&pn->pn_pvdev);
	free(pn, M_PVNET);
}

int
pv_net_thaw(struct pv_net *pn)
{
	int error = 0;

	pv_dev_lock(&pn->pn_pvdev);
	if (pv_dev_state(&pn->pn_pvdev) == PV_DEV_FROZEN)
		error = pv_net_fill_pairs(pn);
	pv_dev_unlock(&pn->pn_pvdev);
	if (error == 0)
		error = pv_dev_thaw(&pn->pn_pvdev);
	if (error == 0)
		pv_net_link_change(pn);
	return (error);
}
