/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: the interface as FreeBSD sees it: ioctls, capabilities, media, link,
 * counters, and the announcement of its addresses.
 *
 * if_detach(9) does not wait for ioctls that are in flight.  They are counted
 * here (pn_ioctls, under pv_net_entry_mtx): detach refuses new ones, waits for
 * those, and takes the softc from the interface, which may outlive the device
 * as long as there is a reference to it.  Transmission and counters are called
 * in the network epoch, which detach waits for.
 *
 * Locking.  pv_dev's, of the configuration, is taken by each ioctl that changes
 * something.
 */

#include "opt_inet.h"
#include "opt_inet6.h"

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
#include <sys/sockio.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_types.h>
#include <net/if_var.h>
#include <net/vnet.h>
#include <netinet/in.h>
#include <netinet/icmp6.h>
#include <netinet/if_ether.h>
#include <netinet/ip6.h>
#include <netinet6/in6_var.h>
#include <netinet6/ip6_var.h>
#include <netinet6/nd6.h>
#include <netinet6/scope6_var.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

/*
 * Leaf lock, of all interfaces: the softc has to be looked at before it can be
 * locked.
 */
static struct mtx pv_net_entry_mtx;
MTX_SYSINIT(pv_net_entry, &pv_net_entry_mtx, "pv_net entry", MTX_DEF);

/* Enter an ioctl: the interface's softc, or NULL if it is being detached. */
static struct pv_net *
pv_net_enter(if_t ifp)
{
	struct pv_net *pn;

	mtx_lock(&pv_net_entry_mtx);
	pn = if_getsoftc(ifp);
	if (pn != NULL && pn->pn_closed)
		pn = NULL;
	if (pn != NULL)
		pn->pn_ioctls++;
	mtx_unlock(&pv_net_entry_mtx);
	return (pn);
}

static void
pv_net_leave(struct pv_net *pn)
{
	mtx_lock(&pv_net_entry_mtx);
	if (--pn->pn_ioctls == 0 && pn->pn_closed)
		wakeup(&pn->pn_ioctls);
	mtx_unlock(&pv_net_entry_mtx);
}

/* Let no ioctl in any more, and wait for those in flight. */
static void
pv_net_close(struct pv_net *pn)
{
	mtx_lock(&pv_net_entry_mtx);
	pn->pn_closed = true;
	while (pn->pn_ioctls > 0)
		msleep(&pn->pn_ioctls, &pv_net_entry_mtx, 0, "pvioct", 0);
	mtx_unlock(&pv_net_entry_mtx);
}

/*
 * An ioctl that comes later still, by a reference to the interface, finds
 * nothing.
 */
static void
pv_net_forget(struct pv_net *pn)
{
	mtx_lock(&pv_net_entry_mtx);
	if_setsoftc(pn->pn_ifp, NULL);
	mtx_unlock(&pv_net_entry_mtx);
}

static int
pv_net_media_change(if_t ifp __unused)
{
	/* There is one medium only. */
	return (0);
}

/* The subtype that ifmedia(4) has for a speed. */
static int
pv_net_media_of(uint32_t mbps)
{
	static const struct {
		uint32_t	mbps;
		int		subtype;
	} media[] = {
		{ 10, IFM_10_T }, { 100, IFM_100_TX }, { 1000, IFM_1000_T },
		{ 2500, IFM_2500_T }, { 5000, IFM_5000_T },
		    { 10000, IFM_10G_T },
		{ 25000, IFM_25G_T }, { 40000, IFM_40G_CR4 },
		    { 50000, IFM_50G_CR2 },
		{ 100000, IFM_100G_CR4 },
	};
	size_t i;

	for (i = 0; i < nitems(media); i++) {
		if (media[i].mbps == mbps)
			return (media[i].subtype);
	}
	return (IFM_UNKNOWN);
}

/* The link's speed, or 10 Gbit/s if it is not known: there is no wire. */
static uint32_t
pv_net_link_speed(struct pv_net *pn, bool *full)
{
	uint32_t mbps = 0;

	*full = true;
	if (pn->pn_ops->pno_link_speed != NULL)
		mbps = pn->pn_ops->pno_link_speed(pn->pn_softc, full);
	return (mbps != 0 ? mbps : 10000);
}

static void
pv_net_media_status(if_t ifp, struct ifmediareq *req)
{
	struct pv_net *pn = if_getsoftc(ifp);
	uint32_t mbps;
	bool full;

	req->ifm_status = IFM_AVALID;
	req->ifm_active = IFM_ETHER;
	if (if_getlinkstate(pn->pn_ifp) == LINK_STATE_UP) {
		req->ifm_status |= IFM_ACTIVE;
		mbps = pv_net_link_speed(pn, &full);
		req->ifm_active |= pv_net_media_of(mbps) |
		    (full ? IFM_FDX : IFM_HDX);
	} else
		req->ifm_active |= IFM_NONE;
}

void
pv_net_link_change(struct pv_net *pn)
{
	enum pv_dev_state state;
	bool full, up;

	/* Each change is a line in the log: the tick handles the rest. */
	if (atomic_fetchadd_int(&pn->pn_link_changes, 1) >= PV_NET_LINK_CHANGES)
		return;
	pv_dev_lock(&pn->pn_pvdev);
	state = pv_dev_state(&pn->pn_pvdev);
	if (pn->pn_level == PV_NET_INTERFACE && state != PV_DEV_GONE) {
		up = state != PV_DEV_FROZEN &&
		    pn->pn_ops->pno_link_up(pn->pn_softc);
		if (up)
			if_setbaudrate(pn->pn_ifp,
			    IF_Mbps(pv_net_link_speed(pn, &full)));
		if_link_state_change(pn->pn_ifp,
		    up ? LINK_STATE_UP : LINK_STATE_DOWN);
	}
	pv_dev_unlock(&pn->pn_pvdev);
}

/*
 * Announcing.  The device reports that our addresses have moved, for one after
 * a migration, or the machine was suspended.  pv_dev's lock is held, so that
 * the interface stays.  The lists of addresses are the stack's, and what is
 * sent takes the locks of transmit queues, which come after it.
 *
 * The event iflladdr_event would do that as well, but is for another address of
 * the interface: vlan(4) takes it for its interfaces, and one that has an
 * address of its own loses it.
 */
#ifdef INET
static u_int
pv_net_announce_inet(void *arg, struct ifaddr *ifa, u_int count __unused)
{
	arp_ifinit(arg, ifa);
	return (1);
}
#endif

#ifdef INET6
/*
 * RFC 4861, 7.2.6: an unsolicited advertisement goes to all nodes of the link;
 * that of an anycast address overrides nothing.  An address that is not known
 * to be unique is not ours to advertise (RFC 4862, 5.4).
 */
static u_int
pv_net_announce_inet6(void *arg, struct ifaddr *ifa, u_int count __unused)
{
	struct in6_addr all = in6addr_linklocal_allnodes;
	const struct in6_ifaddr *ia = ifatoia6(ifa);
	u_long flags = 0;
	if_t ifp = arg;

	/*
	 * The kernel looks at the destination for the interface that a
	 * multicast packet leaves by.
	 */
	if ((ia->ia6_flags & IN6_IFF_NOTREADY) != 0 ||
	    in6_setscope(&all, ifp, NULL) != 0)
		return (0);
	if ((ia->ia6_flags & IN6_IFF_ANYCAST) == 0)
		flags |= ND_NA_FLAG_OVERRIDE;
	if (V_ip6_forwarding != 0)
		flags |= ND_NA_FLAG_ROUTER;
	nd6_na_output(ifp, &all, &ia->ia_addr.sin6_addr, flags, 1, NULL);
	return (1);
}
#endif

static void
pv_net_announce_of(void *arg __unused, if_t ifp)
{
	CURVNET_SET_QUIET(if_getvnet(ifp));
#ifdef INET
	(void)if_foreach_addr_type(ifp, AF_INET, pv_net_announce_inet, ifp);
#endif
#ifdef INET6
	(void)if_foreach_addr_type(ifp, AF_INET6, pv_net_announce_inet6, ifp);
#endif
	CURVNET_RESTORE();
}

void
pv_net_announce_addresses(struct pv_net *pn)
{
	pv_dev_assert(&pn->pn_pvdev);
	if (!pv_dev_is_live(&pn->pn_pvdev))
		return;
	pv_net_announce_of(NULL, pn->pn_ifp);
	pv_net_foreach_vlan(pn, pv_net_announce_of, NULL);
}

static void
pv_net_link_task(void *arg, int pending __unused)
{
	struct pv_net *pn = arg;

	pv_net_link_change(pn);
	pv_dev_lock(&pn->pn_pvdev);
	if (pn->pn_moved && pv_dev_is_live(&pn->pn_pvdev)) {
		pn->pn_moved = false;
		pv_net_announce_addresses(pn);
	}
	pv_dev_unlock(&pn->pn_pvdev);
}

bool
pv_net_announce(struct pv_net *pn)
{
	bool able;

	pv_dev_lock(&pn->pn_pvdev);
	able = pn->pn_level == PV_NET_INTERFACE &&
	    pv_dev_is_started(&pn->pn_pvdev);
	if (able) {
		pn->pn_announcements++;
		pv_net_filter_again(pn);
		pv_net_announce_addresses(pn);
	}
	pv_dev_unlock(&pn->pn_pvdev);
	return (able);
}

static int
pv_net_set_flags(struct pv_net *pn)
{
	int error = 0, flags;

	pv_dev_lock(&pn->pn_pvdev);
	/*
	 * With the lock: of two that change them, the last to come here sees
	 * what both have set.
	 */
	flags = if_getflags(pn->pn_ifp);
	if ((flags & IFF_UP) == 0)
		pv_dev_down(&pn->pn_pvdev);
	else if (!pv_dev_is_live(&pn->pn_pvdev))
		error = pv_dev_up(&pn->pn_pvdev);
	else if (((flags ^ pn->pn_if_flags) &
	    (IFF_PROMISC | IFF_ALLMULTI)) != 0)
		error = pv_net_set_filter(pn);
	pv_dev_unlock(&pn->pn_pvdev);
	return (error);
}

int
pv_net_set_mtu(struct pv_net *pn, int mtu)
{
	u_int cluster;
	int error = 0;

	if (mtu < ETHERMIN || mtu > pn->pn_params.pnp_max_mtu)
		return (EINVAL);
	pv_dev_lock(&pn->pn_pvdev);
	if (pv_dev_state(&pn->pn_pvdev) == PV_DEV_GONE) {
		pv_dev_unlock(&pn->pn_pvdev);
		return (ENXIO);
	}
	cluster = pn->pn_rx_cluster;
	if_setmtu(pn->pn_ifp, mtu);
	pv_net_rx_layout(pn);
	/*
	 * Buffers of another size: those that are posted have to be exchanged.
	 */
	if (pv_dev_is_live(&pn->pn_pvdev) && pn->pn_rx_cluster != cluster)
		error = pv_dev_restart(&pn->pn_pvdev);
	pv_dev_unlock(&pn->pn_pvdev);
	pv_net_debugnet_mtu(pn);
	return (error);
}

static int
pv_net_set_caps(struct pv_net *pn, int wanted)
{
	int enable, mask;

	pv_dev_lock(&pn->pn_pvdev);
	if (pv_dev_state(&pn->pn_pvdev) == PV_DEV_GONE) {
		pv_dev_unlock(&pn->pn_pvdev);
		return (ENXIO);
	}
	enable = if_getcapenable(pn->pn_ifp);
	mask = (wanted ^ enable) & if_getcapabilities(pn->pn_ifp);
	enable ^= mask & (IFCAP_HWCSUM | IFCAP_HWCSUM_IPV6 | IFCAP_TSO |
	    IFCAP_LRO | IFCAP_VLAN_HWTAGGING | IFCAP_VLAN_HWCSUM |
	    IFCAP_VLAN_HWTSO | IFCAP_VLAN_HWFILTER | IFCAP_MEXTPG);
	/* Segmentation includes the checksum. */
	if ((enable & IFCAP_TXCSUM) == 0)
		enable &= ~IFCAP_TSO4;
	if ((enable & IFCAP_TXCSUM_IPV6) == 0)
		enable &= ~IFCAP_TSO6;
	if_setcapenable(pn->pn_ifp, enable);
	if_sethwassist(pn->pn_ifp, pv_net_hwassist(pn, enable));
	pv_net_ask_offloads(pn);
	/*
	 * Tags first: those in use have to be set when promiscuous mode ends.
	 */
	pv_net_vlan_sync(pn);
	if ((mask & IFCAP_VLAN_HWFILTER) != 0 && pv_dev_is_live(&pn->pn_pvdev))
		(void)pv_net_set_filter(pn);
	pv_dev_unlock(&pn->pn_pvdev);
	/* It takes vlan(4)'s lock, with which we may be called. */
	if_vlancap(pn->pn_ifp);
	return (0);
}

static int
pv_net_ioctl_entered(struct pv_net *pn, if_t ifp, u_long cmd, caddr_t data)
{
	struct ifreq *ifr = (struct ifreq *)data;

	switch (cmd) {
	case SIOCSIFFLAGS:
		return (pv_net_set_flags(pn));
	case SIOCSIFMTU:
		return (pv_net_set_mtu(pn, ifr->ifr_mtu));
	case SIOCSIFCAP:
		return (pv_net_set_caps(pn, ifr->ifr_reqcap));
	case SIOCADDMULTI:
	case SIOCDELMULTI:
		pv_net_refilter(pn);
		return (0);
	case SIOCSIFMEDIA:
	case SIOCGIFMEDIA:
	case SIOCGIFXMEDIA:
		return (ifmedia_ioctl(ifp, ifr, &pn->pn_media, cmd));
	default:
		return (ether_ioctl(ifp, cmd, data));
	}
}

static int
pv_net_ioctl(if_t ifp, u_long cmd, caddr_t data)
{
	struct pv_net *pn = pv_net_enter(ifp);
	int error;

	if (pn == NULL)
		return (ENXIO);
	error = pv_net_ioctl_entered(pn, ifp, cmd, data);
	pv_net_leave(pn);
	return (error);
}

static void
pv_net_if_init(void *arg)
{
	struct pv_net *pn = arg;

	pv_dev_lock(&pn->pn_pvdev);
	(void)pv_dev_up(&pn->pn_pvdev);
	pv_dev_unlock(&pn->pn_pvdev);
}

static uint64_t
pv_net_get_counter(if_t ifp, ift_counter counter)
{
	struct pv_net *pn = if_getsoftc(ifp);
	uint64_t value = if_get_counter_default(ifp, counter);
	const struct pv_net_rxstats *rx;
	const struct pv_net_txstats *tx;
	int i;

	for (i = 0; i < pn->pn_max_pairs; i++) {
		rx = &pn->pn_rxqs[i].prq_stats;
		tx = &pn->pn_txqs[i].ptq_stats;
		switch (counter) {
		case IFCOUNTER_IPACKETS:
			value += rx->packets;
			break;
		case IFCOUNTER_IBYTES:
			value += rx->bytes;
			break;
		case IFCOUNTER_IERRORS:
			value += rx->short_buf + rx->bad_header +
			    rx->bad_offload + rx->runts + rx->too_long;
			break;
		case IFCOUNTER_IQDROPS:
			value += rx->recycled;
			break;
		case IFCOUNTER_OPACKETS:
			value += tx->packets;
			break;
		case IFCOUNTER_OBYTES:
			value += tx->bytes;
			break;
		case IFCOUNTER_OMCASTS:
			value += tx->mcasts;
			break;
		case IFCOUNTER_OERRORS:
			value += tx->bad_offload + tx->too_long + tx->nomem;
			break;
		case IFCOUNTER_OQDROPS:
			value += tx->queue_drops;
			break;
		default:
			return (value);
		}
	}
	return (value);
}

/*
 * What was negotiated now is enabled, but for what an administrator disabled
 * before.
 */
void
pv_net_if_capabilities(struct pv_net *pn)
{
	static const struct {
		u_int	offload;
		int	cap;
	} caps[] = {
		{ PV_NET_TXCSUM, IFCAP_TXCSUM },
		{ PV_NET_TXCSUM6, IFCAP_TXCSUM_IPV6 },
		{ PV_NET_RXCSUM, IFCAP_RXCSUM | IFCAP_RXCSUM_IPV6 },
		{ PV_NET_TSO4, IFCAP_TSO4 },
		{ PV_NET_TSO6, IFCAP_TSO6 },
		{ PV_NET_LRO4, IFCAP_LRO },
		{ PV_NET_LRO6, IFCAP_LRO },
	};
	const struct pv_net_params *params = &pn->pn_params;
	/*
	 * Bytes that are received are counted by pv_net, not by the stack a
	 * second time.
	 */
	int cap = IFCAP_VLAN_MTU | IFCAP_HWSTATS, enable;
	u_int max_frame;
	size_t i;

	for (i = 0; i < nitems(caps); i++) {
		if ((params->pnp_offloads & caps[i].offload) != 0)
			cap |= caps[i].cap;
	}
	/*
	 * Tags are put into frames by pv_net: the device's offloads are the
	 * same with them.
	 */
	cap |= IFCAP_VLAN_HWTAGGING;
	if (params->pnp_soft_lro && (cap & IFCAP_RXCSUM) != 0)
		cap |= IFCAP_LRO;
	if (params->pnp_vlan_filter)
		cap |= IFCAP_VLAN_HWFILTER;
	/* What is copied has to have an address. */
	if (!pn->pn_staged)
		cap |= IFCAP_MEXTPG;
	if ((params->pnp_offloads & PV_NET_UNTAGGED) == 0 &&
	    (cap & IFCAP_TXCSUM) != 0)
		cap |= IFCAP_VLAN_HWCSUM;
	if ((params->pnp_offloads & PV_NET_UNTAGGED) == 0 &&
	    (cap & IFCAP_TSO) != 0)
		cap |= IFCAP_VLAN_HWTSO;
	if (params->pnp_max_mtu >= ETHERMTU_JUMBO)
		cap |= IFCAP_JUMBO_MTU;
	if (params->pnp_link_reports)
		cap |= IFCAP_LINKSTATE;
	enable = cap & (if_getcapenable(pn->pn_ifp) |
	    ~if_getcapabilities(pn->pn_ifp));
	if_setcapabilities(pn->pn_ifp, cap);
	if_setcapenable(pn->pn_ifp, enable);
	if_sethwassist(pn->pn_ifp, pv_net_hwassist(pn, enable));
	/*
	 * One segment is for the header, and one to spare: a piece that crosses
	 * a page boundary takes two, but those of TCP rarely do, and with more
	 * of them than fit the packet is made simpler.  What is copied may have
	 * any number.
	 */
	max_frame = params->pnp_max_frame != 0 ? params->pnp_max_frame :
	    PV_NET_MAX_FRAME;
	if_sethwtsomax(pn->pn_ifp,
	    max_frame - (ETHER_HDR_LEN + ETHER_VLAN_ENCAP_LEN));
	if_sethwtsomaxsegcount(pn->pn_ifp, pn->pn_staged ? PV_NET_STAGED_SEGS :
	    MAX((int)params->pnp_tx_segs - 2, 1));
	if_sethwtsomaxsegsize(pn->pn_ifp, PAGE_SIZE);
}

int
pv_net_if_create(struct pv_net *pn)
{
	if_t ifp;

	ifp = if_alloc(IFT_ETHER);
	if (ifp == NULL) {
		device_printf(pn->pn_dev,
		    "no index left for another network interface\n");
		return (ENOSPC);
	}
	pn->pn_ifp = ifp;
	TASK_INIT(&pn->pn_link_task, 0, pv_net_link_task, pn);
	if_initname(ifp, device_get_name(pn->pn_dev),
	    device_get_unit(pn->pn_dev));
	if_setsoftc(ifp, pn);
	if_setflags(ifp, IFF_BROADCAST | IFF_SIMPLEX | IFF_MULTICAST);
	if_setbaudrate(ifp, IF_Gbps(10));
	if_setinitfn(ifp, pv_net_if_init);
	if_setioctlfn(ifp, pv_net_ioctl);
	if_settransmitfn(ifp, pv_net_transmit);
	if_setqflushfn(ifp, pv_net_qflush);
	if_setstartfn(ifp, pv_net_start);
	if_setsendqready(ifp);
	if_setgetcounterfn(ifp, pv_net_get_counter);
	if_setmtu(ifp, pn->pn_params.pnp_mtu);
	pv_net_if_capabilities(pn);
	pv_net_rx_layout(pn);
	/*
	 * The stack's packets have room for the protocol's header then, and are
	 * a segment less.
	 */
	if (pn->pn_params.pnp_hdrlen != 0)
		max_linkhdr_grow(roundup2(pn->pn_params.pnp_hdrlen +
		    ETHER_HDR_LEN + ETHER_VLAN_ENCAP_LEN, sizeof(uint64_t)));
	ifmedia_init(&pn->pn_media, 0, pv_net_media_change,
	    pv_net_media_status);
	ifmedia_add(&pn->pn_media, IFM_ETHER | IFM_AUTO, 0, NULL);
	ifmedia_set(&pn->pn_media, IFM_ETHER | IFM_AUTO);
	return (0);
}

/* An interface has come to a vnet: it may be ours, which was in another one. */
static void
pv_net_arrived(void *arg, if_t ifp)
{
	struct pv_net *pn = arg;

	if (ifp == pn->pn_ifp)
		pv_net_stack_find(pn);
}

void
pv_net_if_show(struct pv_net *pn)
{
	if_t ifp = pn->pn_ifp;

	/*
	 * newbus sets the network stack; a driver that attaches in a thread of
	 * its own has none.
	 */
	CURVNET_SET_QUIET(vnet0);
	ether_ifattach(ifp, pn->pn_params.pnp_lladdr);
	CURVNET_RESTORE();
	/*
	 * ether_ifattach(9) knows nothing of the size of the tag that we can
	 * take.
	 */
	if_setmtu(ifp, pn->pn_params.pnp_mtu);
	if_setifheaderlen(ifp, sizeof(struct ether_vlan_header));
	pn->pn_stack_tag = EVENTHANDLER_REGISTER(ifnet_arrival_event,
	    pv_net_arrived, pn, EVENTHANDLER_PRI_FIRST);
	pv_net_stack_find(pn);
	pv_net_vlan_attach(pn);
	pv_net_debugnet_attach(pn);
	pv_net_netmap_attach(pn);
}

void
pv_net_if_destroy(struct pv_net *pn)
{
	pv_net_vlan_detach(pn);
	EVENTHANDLER_DEREGISTER(ifnet_arrival_event, pn->pn_stack_tag);
	pv_net_netmap_detach(pn);
	ether_ifdetach(pn->pn_ifp);
	pv_net_close(pn);
	/*
	 * A thread may have been about to transmit, or to read a counter, when
	 * if_detach(9) replaced our functions, and then uses the softc.
	 */
	NET_EPOCH_WAIT();
	pv_net_forget(pn);
	ifmedia_removeall(&pn->pn_media);
}
