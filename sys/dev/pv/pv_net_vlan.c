/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: the filter for VLAN tags.
 *
 * A device with such a filter lets in frames without a tag, and those whose tag it was told.  We tell
 * it those that vlan(4) says it uses (its events vlan_config and vlan_unconfig), and tag 0, which is
 * that of a priority only.  With IFCAP_VLAN_HWFILTER switched off it is promiscuous (VirtIO 1.3,
 * 5.1.6.5.1: it receives all packets then), and if it has no such mode it is told all tags there are.
 * If it does not take one, it is made promiscuous as well.
 *
 * Locking.  pn_sx.
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
#include <net/if_vlan_var.h>
#include <machine/bus.h>

#include <dev/pv/pvq.h>
#include <dev/pv/pv_net.h>
#include <dev/pv/pv_net_var.h>

static bool
pv_net_vlan_filters(const struct pv_net *pn)
{
	return ((if_getcapenable(pn->pn_ifp) & IFCAP_VLAN_HWFILTER) != 0);
}

static bool
pv_net_vlan_wanted(const struct pv_net *pn, u_int tag)
{
	return (tag == 0 || isset(pn->pn_vlans, tag) ||
	    (!pv_net_vlan_filters(pn) && !pn->pn_params.pnp_promisc));
}

/* Does it take promiscuous mode to receive the tags that are wanted? */
bool
pv_net_vlan_promisc(const struct pv_net *pn)
{
	return (pn->pn_params.pnp_vlan_filter &&
	    (pn->pn_vlan_failed || !pv_net_vlan_filters(pn)));
}

/* Tell the device what it does not know yet. */
void
pv_net_vlan_sync(struct pv_net *pn)
{
	u_int tag;
	bool want;

	sx_assert(&pn->pn_sx, SA_XLOCKED);
	if (!pn->pn_params.pnp_vlan_filter || pn->pn_frozen || pn->pn_dead || pn->pn_vlan_failed)
		return;
	for (tag = 0; tag < PV_NET_VLANS; tag++) {
		want = pv_net_vlan_wanted(pn, tag);
		if (want == (isset(pn->pn_vlans_told, tag) != 0))
			continue;
		if (pn->pn_ops->pno_set_vlan(pn->pn_softc, tag, want) != 0) {
			pn->pn_vlan_errors++;
			pn->pn_vlan_failed = true;
			(void)pv_net_set_filter(pn);
			return;
		}
		if (want)
			setbit(pn->pn_vlans_told, tag);
		else
			clrbit(pn->pn_vlans_told, tag);
	}
}

static void
pv_net_vlan_change(struct pv_net *pn, if_t ifp, uint16_t tag, bool on)
{
	if (ifp != pn->pn_ifp || tag >= PV_NET_VLANS)
		return;
	sx_xlock(&pn->pn_sx);
	if (on)
		setbit(pn->pn_vlans, tag);
	else
		clrbit(pn->pn_vlans, tag);
	if (!pn->pn_detaching)
		pv_net_vlan_sync(pn);
	sx_xunlock(&pn->pn_sx);
}

static void
pv_net_vlan_config(void *arg, if_t ifp, uint16_t tag)
{
	pv_net_vlan_change(arg, ifp, tag, true);
}

static void
pv_net_vlan_unconfig(void *arg, if_t ifp, uint16_t tag)
{
	pv_net_vlan_change(arg, ifp, tag, false);
}

void
pv_net_vlan_attach(struct pv_net *pn)
{
	if (!pn->pn_params.pnp_vlan_filter)
		return;
	pn->pn_vlan_tags[0] = EVENTHANDLER_REGISTER(vlan_config, pv_net_vlan_config, pn,
	    EVENTHANDLER_PRI_FIRST);
	pn->pn_vlan_tags[1] = EVENTHANDLER_REGISTER(vlan_unconfig, pv_net_vlan_unconfig, pn,
	    EVENTHANDLER_PRI_FIRST);
}

void
pv_net_vlan_detach(struct pv_net *pn)
{
	if (!pn->pn_params.pnp_vlan_filter)
		return;
	EVENTHANDLER_DEREGISTER(vlan_config, pn->pn_vlan_tags[0]);
	EVENTHANDLER_DEREGISTER(vlan_unconfig, pn->pn_vlan_tags[1]);
}
