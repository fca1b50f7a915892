/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * VLAN interfaces (IEEE 802.1Q): vlanN carries the frames of one VLAN of its parent, an Ethernet
 * interface.
 *
 *	in	ether_demux() of the parent -> vlan_input() -> ether_input() of the VLAN
 *	out	vlan_transmit() -> ether_output_frame() of the parent, with the tag in the packet
 *		header; there it goes into the frame if the parent's hardware doesn't put it
 *
 * Offloads are finished on the way out through the parent if its hardware can't do them for tagged
 * frames, so that a VLAN interface offers them all.
 *
 * Locking.  vlan_lock, which may be slept with, covers the configuration; what a packet needs is
 * read in the network epoch.
 *
 * Gaps.  No nested tags; the parent is set to all-multicast, so that the groups of the VLAN need
 * not be tracked; the parent's address is copied when it becomes the parent, and not later.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/ck.h>
#include <sys/epoch.h>
#include <sys/eventhandler.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/socket.h>
#include <sys/sockio.h>
#include <sys/sx.h>
#include <net/bpf.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_clone.h>
#include <net/if_dl.h>
#include <net/if_types.h>
#include <net/if_vlan_var.h>
#include <net/if_var.h>
#include <net/if_private.h>

#include <net/if_tree.h>

#define	VLAN_HASH	16

MALLOC_DEFINE(M_VLAN, "vlan", "VLAN interfaces");

struct vlan_softc {
	CK_LIST_ENTRY(vlan_softc) vs_link;	/* in the parent's trunk */
	struct ifnet	*vs_ifp;
	struct ifnet	*vs_parent;		/* referenced; NULL: none */
	uint16_t	 vs_vid;
	bool		 vs_promisc;		/* the parent is, for us */
};

struct ifvlantrunk {
	CK_LIST_HEAD(, vlan_softc) vt_vlans[VLAN_HASH];
};

static struct sx vlan_lock;
/* Setting the flags of the parent may come back to a VLAN interface that is the parent. */
SX_SYSINIT_FLAGS(vlan, &vlan_lock, "vlan", SX_RECURSE);

static const char vlan_name[] = "vlan";

static struct vlan_softc *
vlan_find(struct ifnet *parent, uint16_t vid)
{
	struct ifvlantrunk *vt = atomic_load_ptr(&parent->if_vlantrunk);
	struct vlan_softc *vs;

	if (vt == NULL)
		return (NULL);
	CK_LIST_FOREACH(vs, &vt->vt_vlans[vid % VLAN_HASH], vs_link) {
		if (vs->vs_vid == vid)
			break;
	}
	return (vs);
}

static struct ifnet *
vlan_devat(struct ifnet *parent, uint16_t vid)
{
	struct vlan_softc *vs;

	NET_EPOCH_ASSERT();
	vs = vlan_find(parent, vid);
	return (vs == NULL ? NULL : vs->vs_ifp);
}

struct ifnet *(*vlan_devat_p)(struct ifnet *, uint16_t) = vlan_devat;

/*
 * A frame with a tag in its packet header came in by `parent', and is consumed.  In the network
 * epoch.
 */
void
vlan_input(struct ifnet *parent, struct mbuf *m)
{
	struct vlan_softc *vs;
	struct ifnet *ifp;

	NET_EPOCH_ASSERT();
	vs = vlan_find(parent, EVL_VLANOFTAG(m->m_pkthdr.ether_vtag));
	if (vs == NULL || (vs->vs_ifp->if_drv_flags & IFF_DRV_RUNNING) == 0) {
		if_inc_counter(parent, IFCOUNTER_NOPROTO, 1);
		m_freem(m);
		return;
	}
	ifp = vs->vs_ifp;
	m->m_flags &= ~M_VLANTAG;
	m->m_pkthdr.rcvif = ifp;
	if_inc_counter(ifp, IFCOUNTER_IPACKETS, 1);
	ifp->if_input(ifp, m);
}

static int
vlan_transmit(struct ifnet *ifp, struct mbuf *m)
{
	struct vlan_softc *vs = ifp->if_softc;
	struct ifnet *parent = atomic_load_ptr(&vs->vs_parent);
	int error, len = m->m_pkthdr.len, mcast = (m->m_flags & (M_MCAST | M_BCAST)) != 0;

	NET_EPOCH_ASSERT();
	if (parent == NULL || (m->m_flags & M_VLANTAG) != 0) {
		if_inc_counter(ifp, IFCOUNTER_OERRORS, 1);
		m_freem(m);
		return (parent == NULL ? ENETDOWN : EOPNOTSUPP);
	}
	BPF_MTAP(ifp, m);
	m->m_flags |= M_VLANTAG;
	m->m_pkthdr.ether_vtag = vs->vs_vid;
	error = ether_output_frame(parent, m);
	if (error != 0) {
		if_inc_counter(ifp, IFCOUNTER_OERRORS, 1);
		return (error);
	}
	if_inc_counter(ifp, IFCOUNTER_OPACKETS, 1);
	if_inc_counter(ifp, IFCOUNTER_OBYTES, len);
	if_inc_counter(ifp, IFCOUNTER_OMCASTS, mcast);
	return (0);
}

static void
vlan_qflush(struct ifnet *ifp __unused)
{
}

/* The most that fits the parent, whose frames have to hold the tag, too. */
static int
vlan_max_mtu(const struct ifnet *parent)
{
	return (parent->if_mtu -
	    ((parent->if_capenable & IFCAP_VLAN_MTU) != 0 ? 0 : ETHER_VLAN_ENCAP_LEN));
}

/*
 * The offloads that are shown as enabled: those of the parent for tagged frames.  This is only
 * shown, as all others are done in software on the way to the parent.
 */
static void
vlan_capabilities(struct vlan_softc *vs)
{
	const struct ifnet *parent = vs->vs_parent;
	int mask = 0;

	sx_assert(&vlan_lock, SX_LOCKED);
	if ((parent->if_capenable & IFCAP_VLAN_HWTAGGING) != 0 &&
	    (parent->if_capenable & IFCAP_VLAN_HWCSUM) != 0)
		mask |= IFCAP_HWCSUM | IFCAP_HWCSUM_IPV6;
	if ((parent->if_capenable & IFCAP_VLAN_HWTSO) != 0)
		mask |= IFCAP_TSO;
	vs->vs_ifp->if_capabilities = parent->if_capabilities & mask;
	vs->vs_ifp->if_capenable = parent->if_capenable & mask;
}

/* The parent's capabilities changed. */
void
if_vlancap(if_t ifp)
{
	struct ifvlantrunk *vt;
	struct vlan_softc *vs;
	int i;

	sx_slock(&vlan_lock);
	vt = ifp->if_vlantrunk;
	for (i = 0; vt != NULL && i < VLAN_HASH; i++) {
		CK_LIST_FOREACH(vs, &vt->vt_vlans[i], vs_link)
			vlan_capabilities(vs);
	}
	sx_sunlock(&vlan_lock);
}

/* Detach from the parent. */
static void
vlan_unconfig_locked(struct vlan_softc *vs)
{
	struct ifnet *parent = vs->vs_parent;

	sx_assert(&vlan_lock, SX_XLOCKED);
	if (parent == NULL)
		return;
	CK_LIST_REMOVE(vs, vs_link);
	atomic_store_ptr(&vs->vs_parent, NULL);
	vs->vs_ifp->if_drv_flags &= ~IFF_DRV_RUNNING;
	if_link_state_change(vs->vs_ifp, LINK_STATE_DOWN);
	NET_EPOCH_WAIT();
	if ((parent->if_flags & IFF_DYING) == 0) {
		(void)if_allmulti(parent, 0);
		if (vs->vs_promisc)
			(void)ifpromisc(parent, 0);
	}
	vs->vs_promisc = false;
	EVENTHANDLER_INVOKE(vlan_unconfig, parent, vs->vs_vid);
	if_rele(parent);
}

/* Become VLAN `vid' of `parent', whose reference is taken over if that succeeds. */
static int
vlan_config_locked(struct vlan_softc *vs, struct ifnet *parent, uint16_t vid)
{
	struct ifvlantrunk *vt = parent->if_vlantrunk;
	struct ifnet *ifp = vs->vs_ifp;

	sx_assert(&vlan_lock, SX_XLOCKED);
	if (parent->if_type != IFT_ETHER || parent == ifp || vid == 0 || vid >= 4095)
		return (EINVAL);
	if (vs->vs_parent != NULL)
		return (EBUSY);
	if (vlan_find(parent, vid) != NULL)
		return (EEXIST);
	if (vt == NULL) {
		/* Stays as long as the parent: it is small, and packets look at it. */
		vt = malloc(sizeof(*vt), M_VLAN, M_WAITOK | M_ZERO);
		atomic_store_rel_ptr((volatile uintptr_t *)&parent->if_vlantrunk, (uintptr_t)vt);
	}
	vs->vs_vid = vid;
	if_setmtu(ifp, vlan_max_mtu(parent));
	if_setlladdr(ifp, IF_LLADDR(parent), ETHER_ADDR_LEN);
	atomic_store_ptr(&vs->vs_parent, parent);
	CK_LIST_INSERT_HEAD(&vt->vt_vlans[vid % VLAN_HASH], vs, vs_link);
	(void)if_allmulti(parent, 1);
	vlan_capabilities(vs);
	ifp->if_drv_flags |= IFF_DRV_RUNNING;
	EVENTHANDLER_INVOKE(vlan_config, parent, vid);
	if_link_state_change(ifp, parent->if_link_state);
	return (0);
}

static int
vlan_set(struct vlan_softc *vs, const struct vlanreq *vlr)
{
	struct ifnet *parent;
	int error;

	sx_xlock(&vlan_lock);
	if (vlr->vlr_parent[0] == '\0') {
		vlan_unconfig_locked(vs);
		sx_xunlock(&vlan_lock);
		return (0);
	}
	parent = ifunit_ref(vlr->vlr_parent);
	error = parent == NULL ? ENXIO : vlan_config_locked(vs, parent, vlr->vlr_tag);
	if (error != 0 && parent != NULL)
		if_rele(parent);
	sx_xunlock(&vlan_lock);
	return (error);
}

static void
vlan_get(struct vlan_softc *vs, struct vlanreq *vlr)
{
	memset(vlr, 0, sizeof(*vlr));
	sx_slock(&vlan_lock);
	if (vs->vs_parent != NULL) {
		strlcpy(vlr->vlr_parent, vs->vs_parent->if_xname, sizeof(vlr->vlr_parent));
		vlr->vlr_tag = vs->vs_vid;
		vlr->vlr_proto = ETHERTYPE_VLAN;
	}
	sx_sunlock(&vlan_lock);
}

/* Follow our own flags with the parent's. */
static int
vlan_set_flags(struct vlan_softc *vs)
{
	bool promisc = (vs->vs_ifp->if_flags & IFF_PROMISC) != 0;
	int error = 0;

	sx_xlock(&vlan_lock);
	if (vs->vs_parent != NULL && promisc != vs->vs_promisc) {
		error = ifpromisc(vs->vs_parent, promisc);
		if (error == 0)
			vs->vs_promisc = promisc;
	}
	sx_xunlock(&vlan_lock);
	return (error);
}

static int
vlan_set_mtu(struct vlan_softc *vs, int mtu)
{
	int error = 0;

	sx_xlock(&vlan_lock);
	if (vs->vs_parent == NULL || mtu > vlan_max_mtu(vs->vs_parent))
		error = EINVAL;
	else
		if_setmtu(vs->vs_ifp, mtu);
	sx_xunlock(&vlan_lock);
	return (error);
}

static int
vlan_ioctl(struct ifnet *ifp, u_long cmd, caddr_t data)
{
	struct vlan_softc *vs = ifp->if_softc;
	struct ifreq *ifr = (struct ifreq *)data;

	switch (cmd) {
	case SIOCSETVLAN:
		return (vlan_set(vs, ifr_data_get_ptr(ifr)));
	case SIOCGETVLAN:
		vlan_get(vs, ifr_data_get_ptr(ifr));
		return (0);
	case SIOCSIFFLAGS:
		return (vlan_set_flags(vs));
	case SIOCSIFMTU:
		return (vlan_set_mtu(vs, ifr->ifr_mtu));
	case SIOCADDMULTI:
	case SIOCDELMULTI:
		return (0);
	default:
		return (ether_ioctl(ifp, cmd, data));
	}
}

static int
vlan_create(struct if_clone *ifc __unused, char *name __unused, size_t len __unused,
    struct ifc_data *ifd, struct ifnet **ifpp)
{
	static const u_char none[ETHER_ADDR_LEN];
	struct vlan_softc *vs;
	struct ifnet *ifp;

	ifp = if_alloc(IFT_ETHER);
	if (ifp == NULL)
		return (ENOSPC);
	vs = malloc(sizeof(*vs), M_VLAN, M_WAITOK | M_ZERO);
	vs->vs_ifp = ifp;
	if_initname(ifp, vlan_name, ifd->unit);
	ifp->if_softc = vs;
	ifp->if_transmit = vlan_transmit;
	ifp->if_qflush = vlan_qflush;
	ifp->if_ioctl = vlan_ioctl;
	ifp->if_flags = IFF_BROADCAST | IFF_SIMPLEX | IFF_MULTICAST;
	ifp->if_hwassist = IF_OFFLOAD_ALL;
	ether_ifattach(ifp, none);
	*ifpp = ifp;
	return (0);
}

static int
vlan_destroy(struct if_clone *ifc __unused, struct ifnet *ifp, uint32_t flags __unused)
{
	struct vlan_softc *vs = ifp->if_softc;

	ether_ifdetach(ifp);
	sx_xlock(&vlan_lock);
	vlan_unconfig_locked(vs);
	sx_xunlock(&vlan_lock);
	if_free(ifp);
	free(vs, M_VLAN);
	return (0);
}

/* The parent is removed, or its link's state changes. */
static void
vlan_each(struct ifnet *parent, void (*func)(struct vlan_softc *))
{
	struct ifvlantrunk *vt;
	struct vlan_softc *vs, *next;
	u_int i;

	sx_xlock(&vlan_lock);
	vt = parent->if_vlantrunk;
	for (i = 0; vt != NULL && i < VLAN_HASH; i++) {
		CK_LIST_FOREACH_SAFE(vs, &vt->vt_vlans[i], vs_link, next)
			func(vs);
	}
	sx_xunlock(&vlan_lock);
}

static void
vlan_departure(void *arg __unused, struct ifnet *ifp)
{
	struct ifvlantrunk *vt;

	vlan_each(ifp, vlan_unconfig_locked);
	vt = ifp->if_vlantrunk;
	atomic_store_ptr(&ifp->if_vlantrunk, NULL);
	NET_EPOCH_WAIT();
	free(vt, M_VLAN);
}

static void
vlan_follow_link(struct vlan_softc *vs)
{
	if_link_state_change(vs->vs_ifp, vs->vs_parent->if_link_state);
}

static void
vlan_link(void *arg __unused, struct ifnet *ifp, int state __unused)
{
	if (ifp->if_vlantrunk != NULL)
		vlan_each(ifp, vlan_follow_link);
}

static void
vlan_follow_lladdr(struct vlan_softc *vs)
{
	(void)if_setlladdr(vs->vs_ifp, IF_LLADDR(vs->vs_parent), ETHER_ADDR_LEN);
}

/* The parent has another address, or has the same one announced: an address of one's own is lost. */
static void
vlan_lladdr(void *arg __unused, struct ifnet *ifp)
{
	if (ifp->if_vlantrunk != NULL)
		vlan_each(ifp, vlan_follow_lladdr);
}

static void
vlan_init(void *dummy __unused)
{
	struct if_clone_addreq req = { .create_f = vlan_create, .destroy_f = vlan_destroy };

	(void)ifc_attach_cloner(vlan_name, &req);
	EVENTHANDLER_REGISTER(ifnet_departure_event, vlan_departure, NULL, EVENTHANDLER_PRI_ANY);
	EVENTHANDLER_REGISTER(iflladdr_event, vlan_lladdr, NULL, EVENTHANDLER_PRI_ANY);
	EVENTHANDLER_REGISTER(ifnet_link_event, vlan_link, NULL, EVENTHANDLER_PRI_ANY);
}
SYSINIT(vlan, SI_SUB_PROTO_IF, SI_ORDER_THIRD, vlan_init, NULL);
