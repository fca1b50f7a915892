/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: the receive filter: addresses, multicast groups, and VLAN tags.
 *
 * Joining and leaving of groups may come from where nothing may sleep: a task
 * sets the filter then.
 *
 * Addresses.  An interface of vlan(4), here or in a jail's network stack, may
 * have an address of its own: the device receives for it, too, without being
 * promiscuous.
 *
 * VLAN tags.  A device with such a filter accepts frames without a tag, and
 * those whose tag was set: the tags that vlan(4) uses (its events vlan_config
 * and vlan_unconfig), and tag 0, which is that of a priority only.  With
 * IFCAP_VLAN_HWFILTER disabled the device is promiscuous (VirtIO 1.3,
 * 5.1.6.5.1: it receives all packets then), and if it has no such mode all tags
 * are set.  If it refuses one, it is made promiscuous as well.
 *
 * Locking.  pv_dev's.
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
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_dl.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <net/if_vlan_var.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

struct pv_net_groups {
	uint8_t	(*pg_addrs)[ETHER_ADDR_LEN];
	u_int	  pg_room;
};

struct pv_net_hosts {
	const struct pv_net *pnh_pn;
	u_int	pnh_n;
	uint8_t	pnh_addrs[PV_NET_HOSTS][ETHER_ADDR_LEN];
};

static u_int
pv_net_copy_group(void *arg, struct sockaddr_dl *sdl, u_int count)
{
	struct pv_net_groups *groups = arg;

	/*
	 * A group that was added since they were counted: another SIOCADDMULTI
	 * will follow.
	 */
	if (count >= groups->pg_room || sdl->sdl_alen != ETHER_ADDR_LEN)
		return (0);
	memcpy(groups->pg_addrs[count], LLADDR(sdl), ETHER_ADDR_LEN);
	return (1);
}

/* The address of an interface is received for, unless it is there already. */
static void
pv_net_add_host(void *arg, if_t ifp)
{
	struct pv_net_hosts *hosts = arg;
	const uint8_t *lladdr = if_getlladdr(ifp);
	u_int i;

	if (ETHER_IS_ZERO(lladdr) ||
	    pv_net_same_lladdr(lladdr, if_getlladdr(hosts->pnh_pn->pn_ifp)))
		return;
	for (i = 0; i < hosts->pnh_n; i++) {
		if (pv_net_same_lladdr(lladdr, hosts->pnh_addrs[i]))
			return;
	}
	if (hosts->pnh_n < PV_NET_HOSTS)
		memcpy(hosts->pnh_addrs[hosts->pnh_n++], lladdr,
		    ETHER_ADDR_LEN);
}

/* The interfaces of vlan(4), within the network epoch. */
void
pv_net_foreach_vlan(const struct pv_net *pn, void (*func)(void *arg, if_t ifp),
    void *arg)
{
	struct epoch_tracker et;
	u_int tag;
	if_t ifp;

	NET_EPOCH_ENTER(et);
	for (tag = 0; tag < PV_NET_VLANS; tag++) {
		if (!isset(pn->pn_vlans, tag))
			continue;
		ifp = VLAN_DEVAT(pn->pn_ifp, tag);
		if (ifp != NULL)
			func(arg, ifp);
	}
	NET_EPOCH_EXIT(et);
}

static bool
pv_net_vlan_filters(const struct pv_net *pn)
{
	return ((if_getcapenable(pn->pn_ifp) & IFCAP_VLAN_HWFILTER) != 0);
}

/* Is promiscuous mode needed to receive the tags in use? */
static bool
pv_net_vlan_promisc(const struct pv_net *pn)
{
	return (pn->pn_params.pnp_vlan_filter &&
	    (pn->pn_vlan_failed || !pv_net_vlan_filters(pn)));
}

int
pv_net_set_filter(struct pv_net *pn)
{
	struct pv_net_groups groups;
	struct pv_net_filter filter;
	struct pv_net_hosts *hosts;
	int error, flags = if_getflags(pn->pn_ifp);

	pv_dev_assert(&pn->pn_pvdev);
	hosts = malloc(sizeof(*hosts), M_PVNET, M_WAITOK);
	hosts->pnh_pn = pn;
	hosts->pnh_n = 0;
	pv_net_foreach_vlan(pn, pv_net_add_host, hosts);
	groups.pg_room = if_llmaddr_count(pn->pn_ifp);
	groups.pg_addrs = malloc(MAX(groups.pg_room, 1) * ETHER_ADDR_LEN,
	    M_PVNET, M_WAITOK);
	memset(&filter, 0, sizeof(filter));
	filter.pf_ngroups = if_foreach_llmaddr(pn->pn_ifp, pv_net_copy_group,
	    &groups);
	filter.pf_groups = groups.pg_addrs;
	filter.pf_nhosts = hosts->pnh_n;
	filter.pf_hosts = hosts->pnh_addrs;
	filter.pf_promisc = (flags & IFF_PROMISC) != 0 ||
	    pv_net_vlan_promisc(pn);
	/*
	 * A device that did not accept our address must not filter by its own.
	 */
	filter.pf_allhosts = memcmp(if_getlladdr(pn->pn_ifp), pn->pn_lladdr,
	    ETHER_ADDR_LEN) != 0;
	filter.pf_allmulti = (flags & IFF_ALLMULTI) != 0;
	error = pn->pn_ops->pno_set_filter(pn->pn_softc, &filter);
	free(groups.pg_addrs, M_PVNET);
	free(hosts, M_PVNET);
	if (error != 0)
		pn->pn_filter_errors++;
	pn->pn_if_flags = flags;
	return (error);
}

static void
pv_net_filter_task(void *arg, int pending __unused)
{
	struct pv_net *pn = arg;

	pv_dev_lock(&pn->pn_pvdev);
	if (pv_dev_is_live(&pn->pn_pvdev))
		(void)pv_net_set_filter(pn);
	pv_dev_unlock(&pn->pn_pvdev);
}

void
pv_net_refilter(struct pv_net *pn)
{
	taskqueue_enqueue(pn->pn_pvdev.pvd_tasks.pt_tq, &pn->pn_filter_task);
}

static bool
pv_net_vlan_wanted(const struct pv_net *pn, u_int tag)
{
	return (tag == 0 || isset(pn->pn_vlans, tag) ||
	    (!pv_net_vlan_filters(pn) && !pn->pn_params.pnp_promisc));
}

void
pv_net_vlan_sync(void *arg)
{
	struct pv_net *pn = arg;
	u_int tag;
	bool want;

	pv_dev_assert(&pn->pn_pvdev);
	if (!pn->pn_params.pnp_vlan_filter ||
	    !pv_dev_is_started(&pn->pn_pvdev) || pn->pn_vlan_failed)
		return;
	for (tag = 0; tag < PV_NET_VLANS; tag++) {
		want = pv_net_vlan_wanted(pn, tag);
		if (want == (isset(pn->pn_vlans_set, tag) != 0))
			continue;
		if (pn->pn_ops->pno_set_vlan(pn->pn_softc, tag, want) != 0) {
			pn->pn_vlan_errors++;
			pn->pn_vlan_failed = true;
			(void)pv_net_set_filter(pn);
			return;
		}
		if (want)
			setbit(pn->pn_vlans_set, tag);
		else
			clrbit(pn->pn_vlans_set, tag);
	}
}

/*
 * The host may be another one, which has the features that were agreed on and
 * not always the filter: QEMU 7.2 loses the tags in a migration.
 */
void
pv_net_filter_again(struct pv_net *pn)
{
	pv_dev_assert(&pn->pn_pvdev);
	if (!pv_dev_is_live(&pn->pn_pvdev))
		return;
	memset(pn->pn_vlans_set, 0, sizeof(pn->pn_vlans_set));
	pv_net_vlan_sync(pn);
	(void)pv_net_set_filter(pn);
}

static void
pv_net_vlan_change(struct pv_net *pn, if_t ifp, uint16_t tag, bool on)
{
	if (ifp != pn->pn_ifp || tag >= PV_NET_VLANS)
		return;
	pv_dev_lock(&pn->pn_pvdev);
	if (on)
		setbit(pn->pn_vlans, tag);
	else
		clrbit(pn->pn_vlans, tag);
	pv_net_vlan_sync(pn);
	pv_dev_unlock(&pn->pn_pvdev);
	/* Of vlan(4), which holds its lock, nothing can be asked now. */
	pv_net_refilter(pn);
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

/* An interface has another address: it may be one of vlan(4). */
static void
pv_net_lladdr_changed(void *arg, if_t ifp)
{
	struct pv_net *pn = arg;

	if (ifp != pn->pn_ifp)
		pv_net_refilter(pn);
}

void
pv_net_filter_init(struct pv_net *pn)
{
	TASK_INIT(&pn->pn_filter_task, 0, pv_net_filter_task, pn);
}

void
pv_net_vlan_attach(struct pv_net *pn)
{
	pn->pn_vlan_tags[0] = EVENTHANDLER_REGISTER(vlan_config,
	    pv_net_vlan_config, pn, EVENTHANDLER_PRI_FIRST);
	pn->pn_vlan_tags[1] = EVENTHANDLER_REGISTER(vlan_unconfig,
	    pv_net_vlan_unconfig, pn, EVENTHANDLER_PRI_FIRST);
	pn->pn_vlan_tags[2] = EVENTHANDLER_REGISTER(iflladdr_event,
	    pv_net_lladdr_changed, pn, EVENTHANDLER_PRI_LAST);
}

void
pv_net_vlan_detach(struct pv_net *pn)
{
	EVENTHANDLER_DEREGISTER(vlan_config, pn->pn_vlan_tags[0]);
	EVENTHANDLER_DEREGISTER(vlan_unconfig, pn->pn_vlan_tags[1]);
	EVENTHANDLER_DEREGISTER(iflladdr_event, pn->pn_vlan_tags[2]);
}
