/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: the interface as a port of netmap(4).
 *
 * A program opens all pairs of queues, or one.  The device is reset when rings come and go, because
 * that is the only way to get buffers back, and started again with the queues as they are then: each is
 * netmap's, or packets'.  An interface that is down stays so; its rings are idle until it is up.
 *
 * While a ring is netmap's, the device is requested not to offload what is received.
 *
 * While the device is suspended or goes, no ring can come, but rings go: netmap(4) frees them whatever
 * is returned to it, so that the queues have to be packets' when they are started again.
 *
 * Locking.  netmap(4)'s lock of all ports is held when pv_dev's is taken; it is never taken with
 * that held.
 */

#include <sys/param.h>
#include <sys/systm.h>
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
#include <dev/pv/net/pv_net_netmap.h>

#ifdef DEV_NETMAP

#include <net/netmap.h>
#include <sys/selinfo.h>
#include <dev/netmap/netmap_kern.h>

/* Rings come, or go: those that netmap(4) has marked. */
static int
pv_net_netmap_register(struct netmap_adapter *na, int on)
{
	struct pv_net *pn = if_getsoftc(na->ifp);
	bool live;
	int error = 0;

	pv_dev_lock(&pn->pn_pvdev);
	if (on && !pv_dev_is_started(&pn->pn_pvdev)) {
		pv_dev_unlock(&pn->pn_pvdev);
		return (ENXIO);
	}
	/* netmap(4) keeps the sizes that rings had when it was attached. */
	if (on && !pn->pn_netmap && !pv_net_netmap_fit(pn, na->num_rx_desc, na->num_tx_desc)) {
		pv_dev_unlock(&pn->pn_pvdev);
		return (EBUSY);
	}
	live = pv_dev_is_live(&pn->pn_pvdev);
	pv_dev_down(&pn->pn_pvdev);
	if (on)
		nm_set_native_flags(na);
	netmap_krings_mode_commit(na, on);
	if (!on)
		nm_clear_native_flags(na);
	pn->pn_netmap = nm_native_on(na);
	if (live)
		error = pv_dev_up(&pn->pn_pvdev);
	pv_dev_unlock(&pn->pn_pvdev);
	return (error);
}

static int
pv_net_netmap_config(struct netmap_adapter *na, struct nm_config_info *info)
{
	struct pv_net *pn = if_getsoftc(na->ifp);

	info->num_tx_rings = info->num_rx_rings = pn->pn_pairs;
	info->num_tx_descs = pv_net_netmap_slots(pn->pn_txqs[0].ptq_pvq);
	info->num_rx_descs = pv_net_netmap_slots(pn->pn_rxqs[0].prq_pvq);
	info->rx_buf_maxsize = PV_NET_MAX_FRAME;
	return (0);
}

void
pv_net_netmap_attach(struct pv_net *pn)
{
	struct netmap_adapter na;

	if (!pv_net_netmap_alloc_queues(pn))
		return;
	memset(&na, 0, sizeof(na));
	na.ifp = pn->pn_ifp;
	na.na_flags = NAF_BDG_MAYSLEEP;
	na.num_tx_rings = na.num_rx_rings = pn->pn_params.pnp_npairs;
	na.num_tx_desc = pv_net_netmap_slots(pn->pn_txqs[0].ptq_pvq);
	na.num_rx_desc = pv_net_netmap_slots(pn->pn_rxqs[0].prq_pvq);
	na.rx_buf_maxsize = PV_NET_MAX_FRAME;
	na.nm_register = pv_net_netmap_register;
	na.nm_txsync = pv_net_netmap_txsync;
	na.nm_rxsync = pv_net_netmap_rxsync;
	na.nm_config = pv_net_netmap_config;
	if (netmap_attach(&na) != 0)
		pv_net_netmap_free_queues(pn);
}

void
pv_net_netmap_detach(struct pv_net *pn)
{
	netmap_detach(pn->pn_ifp);
	pv_net_netmap_free_queues(pn);
}

#else /* !DEV_NETMAP */

/* A kernel without it. */
void
pv_net_netmap_attach(struct pv_net *pn __unused)
{
}

void
pv_net_netmap_detach(struct pv_net *pn __unused)
{
}

#endif /* !DEV_NETMAP */
