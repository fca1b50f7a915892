/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Bridges: bridgeN joins Ethernet interfaces, its members, to one network (IEEE 802.1D).
 *
 *	ether_input() of a member -> bridge_input(): learn the sender's location, then
 *	    for us		-> ether_demux() of the bridge or of the member
 *	    known		-> bridge_send() to the one member
 *	    unknown, group	-> bridge_flood() to all but the one it came from; groups to us, too
 *
 *	ether_output_frame() of a member, and the bridge's if_transmit -> bridge_transmit()
 *
 * Offload flags pass through unchanged: ether_output_frame()'s ether_finish() does in software what
 * the sending member can't.  So members need no particular capabilities, and GSO packets are not
 * segmented.  Only the frames on the wire have to fit a member's MTU.
 *
 * Locking.  br_mtx covers changes of members and addresses, both of which packets look up in the
 * network epoch alone; bridge_lock, which may be slept with, makes changes of members one at a
 * time.
 *
 * Gaps.  No spanning tree: the user has to avoid loops.  No static addresses, no IGMP snooping.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/callout.h>
#include <sys/ck.h>
#include <sys/epoch.h>
#include <sys/eventhandler.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sockio.h>
#include <sys/sx.h>
#include <sys/time.h>
#include <net/bpf.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_bridgevar.h>
#include <net/if_clone.h>
#include <net/if_dl.h>
#include <net/if_types.h>
#include <net/if_vlan_var.h>
#include <net/if_var.h>
#include <net/if_private.h>

#include <net/if_tree.h>

#define	BRIDGE_HASH	256
#define	BRIDGE_MAXADDRS	2000
#define	BRIDGE_TIMEOUT	(20 * 60)	/* seconds an address is valid */
#define	BRIDGE_SWEEP	(5 * 60)	/* seconds between looks for old ones */

MALLOC_DEFINE(M_BRIDGE, "bridge", "bridges");

struct bridge_softc;

/* A member; its interface's if_bridge. */
struct bridge_member {
	CK_LIST_ENTRY(bridge_member) bm_link;
	struct bridge_softc *bm_bridge;
	struct ifnet	*bm_ifp;		/* referenced */
	u_int		 bm_naddrs;
};

/* Where an address is. */
struct bridge_addr {
	CK_LIST_ENTRY(bridge_addr) ba_link;
	struct bridge_member *ba_member;
	time_t		 ba_seen;		/* uptime */
	uint16_t	 ba_vid;
	uint8_t		 ba_addr[ETHER_ADDR_LEN];
	struct epoch_context ba_epoch_ctx;
};

struct bridge_softc {
	struct ifnet	*br_ifp;
	struct mtx	 br_mtx;
	struct callout	 br_callout;
	CK_LIST_HEAD(, bridge_member) br_members;
	CK_LIST_HEAD(bridge_addrs, bridge_addr) br_addrs[BRIDGE_HASH];
	u_int		 br_naddrs;
	uint32_t	 br_hashkey;
};

static struct sx bridge_lock;
SX_SYSINIT(bridge, &bridge_lock, "bridges");

static const char bridge_name[] = "bridge";

/* IEEE 802.1Q, 8.6.3: what is sent to this address, or the 15 behind it, stays on its own cable. */
static const uint8_t bridge_reserved[ETHER_ADDR_LEN] = { 0x01, 0x80, 0xc2, 0x00, 0x00, 0x00 };

static uint16_t
bridge_vid(const struct mbuf *m)
{
	return ((m->m_flags & M_VLANTAG) != 0 ? EVL_VLANOFTAG(m->m_pkthdr.ether_vtag) : 0);
}

/* The key is random, so that no host can choose addresses that share a chain. */
static struct bridge_addrs *
bridge_bucket(struct bridge_softc *br, const uint8_t *addr, uint16_t vid)
{
	uint64_t x = br->br_hashkey ^ vid;
	u_int i;

	for (i = 0; i < ETHER_ADDR_LEN; i++)
		x = (x ^ addr[i]) * 0x100000001b3;
	return (&br->br_addrs[(x ^ x >> 32) % BRIDGE_HASH]);
}

static struct bridge_addr *
bridge_lookup(struct bridge_softc *br, const uint8_t *addr, uint16_t vid)
{
	struct bridge_addr *ba;

	CK_LIST_FOREACH(ba, bridge_bucket(br, addr, vid), ba_link) {
		if (ba->ba_vid == vid && memcmp(ba->ba_addr, addr, ETHER_ADDR_LEN) == 0)
			break;
	}
	return (ba);
}

static void
bridge_addr_free(epoch_context_t ctx)
{
	free(__containerof(ctx, struct bridge_addr, ba_epoch_ctx), M_BRIDGE);
}

static void
bridge_forget(struct bridge_softc *br, struct bridge_addr *ba)
{
	mtx_assert(&br->br_mtx, MA_OWNED);
	CK_LIST_REMOVE(ba, ba_link);
	ba->ba_member->bm_naddrs--;
	br->br_naddrs--;
	NET_EPOCH_CALL(bridge_addr_free, &ba->ba_epoch_ctx);
}

/* Forget the addresses of a member, or (NULL) those that were not seen for long. */
static void
bridge_forget_some(struct bridge_softc *br, const struct bridge_member *bm)
{
	struct bridge_addr *ba, *next;
	u_int i;

	for (i = 0; i < BRIDGE_HASH; i++) {
		CK_LIST_FOREACH_SAFE(ba, &br->br_addrs[i], ba_link, next) {
			if (bm != NULL ? ba->ba_member == bm :
			    time_uptime - ba->ba_seen > BRIDGE_TIMEOUT)
				bridge_forget(br, ba);
		}
	}
}

static void
bridge_sweep(void *arg)
{
	struct bridge_softc *br = arg;

	bridge_forget_some(br, NULL);
	callout_reset(&br->br_callout, BRIDGE_SWEEP * hz, bridge_sweep, br);
}

/* The sender has moved, or is new. */
static void
bridge_learn_slow(struct bridge_softc *br, struct bridge_member *bm, const uint8_t *addr,
    uint16_t vid)
{
	struct bridge_addr *ba;

	mtx_lock(&br->br_mtx);
	ba = bridge_lookup(br, addr, vid);
	/* A member that was removed meanwhile must not be entered again by this. */
	if (atomic_load_ptr(&bm->bm_ifp->if_bridge) != bm) {
		mtx_unlock(&br->br_mtx);
		return;
	}
	if (ba == NULL && br->br_naddrs < BRIDGE_MAXADDRS &&
	    (ba = malloc(sizeof(*ba), M_BRIDGE, M_NOWAIT | M_ZERO)) != NULL) {
		memcpy(ba->ba_addr, addr, ETHER_ADDR_LEN);
		ba->ba_vid = vid;
		ba->ba_member = bm;
		ba->ba_seen = time_uptime;
		bm->bm_naddrs++;
		br->br_naddrs++;
		CK_LIST_INSERT_HEAD(bridge_bucket(br, addr, vid), ba, ba_link);
	} else if (ba != NULL) {
		ba->ba_member->bm_naddrs--;
		bm->bm_naddrs++;
		ba->ba_seen = time_uptime;
		atomic_store_ptr(&ba->ba_member, bm);
	}
	mtx_unlock(&br->br_mtx);
}

static void
bridge_learn(struct bridge_softc *br, struct bridge_member *bm, const uint8_t *addr, uint16_t vid)
{
	struct bridge_addr *ba;

	ba = bridge_lookup(br, addr, vid);
	if (ba == NULL || atomic_load_ptr(&ba->ba_member) != bm)
		bridge_learn_slow(br, bm, addr, vid);
	else if (ba->ba_seen != time_uptime)
		ba->ba_seen = time_uptime;
}

/* Send a frame by a member. */
static int
bridge_send(struct bridge_softc *br, struct bridge_member *bm, struct mbuf *m)
{
	struct ifnet *ifp = bm->bm_ifp;
	int error, len = m->m_pkthdr.len;

	if ((ifp->if_flags & IFF_UP) == 0 || (ifp->if_drv_flags & IFF_DRV_RUNNING) == 0) {
		m_freem(m);
		return (ENETDOWN);
	}
	if (if_offload_wire_len(m, ETHER_HDR_LEN) > (u_int)ifp->if_mtu) {
		if_inc_counter(br->br_ifp, IFCOUNTER_OERRORS, 1);
		m_freem(m);
		return (EMSGSIZE);
	}
	m_clrprotoflags(m);
	error = ether_finish(ifp, m);
	if_inc_counter(br->br_ifp, error == 0 ? IFCOUNTER_OPACKETS : IFCOUNTER_OQDROPS, 1);
	if (error == 0)
		if_inc_counter(br->br_ifp, IFCOUNTER_OBYTES, len);
	return (error);
}

/* Send a frame by all members but one. */
static void
bridge_flood(struct bridge_softc *br, const struct bridge_member *from, struct mbuf *m)
{
	struct bridge_member *bm, *to = NULL;
	struct mbuf *copy;

	CK_LIST_FOREACH(bm, &br->br_members, bm_link) {
		if (bm == from || (bm->bm_ifp->if_drv_flags & IFF_DRV_RUNNING) == 0)
			continue;
		/* A copy of its own for each: a checksum may be finished in it. */
		if (to != NULL && (copy = m_dup(m, M_NOWAIT)) != NULL)
			(void)bridge_send(br, to, copy);
		to = bm;
	}
	if (to != NULL)
		(void)bridge_send(br, to, m);
	else
		m_freem(m);
}

/* Send a frame from this host by the member that leads to its receiver. */
static int
bridge_transmit_to(struct bridge_softc *br, struct mbuf *m)
{
	const struct ether_header *eh = mtod(m, const struct ether_header *);
	struct bridge_addr *ba = NULL;

	if (!ETHER_IS_MULTICAST(eh->ether_dhost))
		ba = bridge_lookup(br, eh->ether_dhost, bridge_vid(m));
	if (ba != NULL)
		return (bridge_send(br, atomic_load_ptr(&ba->ba_member), m));
	bridge_flood(br, NULL, m);
	return (0);
}

static int
bridge_transmit(struct ifnet *ifp, struct mbuf *m)
{
	NET_EPOCH_ASSERT();
	BPF_MTAP(ifp, m);
	return (bridge_transmit_to(ifp->if_softc, m));
}

/* A member's if_bridge_output. */
static int
bridge_output(struct ifnet *ifp, struct mbuf *m, struct sockaddr *sa __unused,
    struct rtentry *rt __unused)
{
	struct bridge_member *bm = atomic_load_ptr(&ifp->if_bridge);

	if (bm == NULL)
		return (ether_finish(ifp, m));
	return (bridge_transmit_to(bm->bm_bridge, m));
}

/* A frame is for the bridge itself. */
static void
bridge_deliver(struct bridge_softc *br, struct mbuf *m)
{
	struct ifnet *ifp = br->br_ifp;

	m->m_pkthdr.rcvif = ifp;
	if_inc_counter(ifp, IFCOUNTER_IPACKETS, 1);
	if_inc_counter(ifp, IFCOUNTER_IBYTES, m->m_pkthdr.len);
	ETHER_BPF_MTAP(ifp, m);
	ether_demux(ifp, m);
}

/* Forward a multicast frame to all members.  Returns the frame for the member's own protocols. */
static struct mbuf *
bridge_input_group(struct bridge_softc *br, const struct bridge_member *bm, struct mbuf *m)
{
	const uint8_t *dst = mtod(m, const struct ether_header *)->ether_dhost;
	struct mbuf *copy;

	if (memcmp(dst, bridge_reserved, ETHER_ADDR_LEN - 1) == 0 && dst[5] < 0x10)
		return (m);
	copy = m_dup(m, M_NOWAIT);
	if (copy != NULL)
		bridge_flood(br, bm, copy);
	copy = m_dup(m, M_NOWAIT);
	if (copy != NULL)
		bridge_deliver(br, copy);
	return (m);
}

/*
 * A member's if_bridge_input: a frame came in by it.  Returns it if it is for the member's own
 * protocols; else it is consumed.
 */
static struct mbuf *
bridge_input(struct ifnet *ifp, struct mbuf *m)
{
	struct bridge_member *bm = atomic_load_ptr(&ifp->if_bridge), *to;
	const struct ether_header *eh = mtod(m, const struct ether_header *);
	struct bridge_softc *br;
	struct bridge_addr *ba;

	NET_EPOCH_ASSERT();
	if (bm == NULL)
		return (m);
	br = bm->bm_bridge;
	if ((br->br_ifp->if_drv_flags & IFF_DRV_RUNNING) == 0)
		return (m);
	if (ETHER_IS_MULTICAST(eh->ether_shost)) {
		if_inc_counter(br->br_ifp, IFCOUNTER_IERRORS, 1);
		m_freem(m);
		return (NULL);
	}
	bridge_learn(br, bm, eh->ether_shost, bridge_vid(m));
	if (ETHER_IS_MULTICAST(eh->ether_dhost))
		return (bridge_input_group(br, bm, m));
	if (memcmp(eh->ether_dhost, IF_LLADDR(br->br_ifp), ETHER_ADDR_LEN) == 0) {
		bridge_deliver(br, m);
		return (NULL);
	}
	CK_LIST_FOREACH(to, &br->br_members, bm_link) {
		if (memcmp(eh->ether_dhost, IF_LLADDR(to->bm_ifp), ETHER_ADDR_LEN) == 0) {
			m->m_pkthdr.rcvif = to->bm_ifp;
			ether_demux(to->bm_ifp, m);
			return (NULL);
		}
	}
	ba = bridge_lookup(br, eh->ether_dhost, bridge_vid(m));
	to = ba != NULL ? atomic_load_ptr(&ba->ba_member) : NULL;
	if (to == NULL)
		bridge_flood(br, bm, m);
	else if (to != bm)
		(void)bridge_send(br, to, m);
	else
		m_freem(m);
	return (NULL);
}

static void
bridge_qflush(struct ifnet *ifp __unused)
{
}

static struct bridge_member *
bridge_find(const struct bridge_softc *br, const char *name)
{
	struct bridge_member *bm;

	sx_assert(&bridge_lock, SX_LOCKED);
	CK_LIST_FOREACH(bm, &br->br_members, bm_link) {
		if (strcmp(bm->bm_ifp->if_xname, name) == 0)
			break;
	}
	return (bm);
}

/* Make an interface a member; its reference is taken over if that succeeds. */
static int
bridge_join(struct bridge_softc *br, struct ifnet *ifp)
{
	struct bridge_member *bm;
	int error;

	if (ifp->if_type != IFT_ETHER || ifp == br->br_ifp)
		return (EINVAL);
	if (ifp->if_bridge != NULL)
		return (EBUSY);
	error = ifpromisc(ifp, 1);
	if (error != 0)
		return (error);
	bm = malloc(sizeof(*bm), M_BRIDGE, M_WAITOK | M_ZERO);
	bm->bm_bridge = br;
	bm->bm_ifp = ifp;
	ifp->if_bridge_input = bridge_input;
	ifp->if_bridge_output = bridge_output;
	mtx_lock(&br->br_mtx);
	CK_LIST_INSERT_HEAD(&br->br_members, bm, bm_link);
	atomic_store_rel_ptr((volatile uintptr_t *)&ifp->if_bridge, (uintptr_t)bm);
	mtx_unlock(&br->br_mtx);
	return (0);
}

static void
bridge_leave(struct bridge_softc *br, struct bridge_member *bm)
{
	struct ifnet *ifp = bm->bm_ifp;

	mtx_lock(&br->br_mtx);
	atomic_store_ptr(&ifp->if_bridge, NULL);
	CK_LIST_REMOVE(bm, bm_link);
	bridge_forget_some(br, bm);
	mtx_unlock(&br->br_mtx);
	NET_EPOCH_WAIT();
	if ((ifp->if_flags & IFF_DYING) == 0)
		(void)ifpromisc(ifp, 0);
	if_rele(ifp);
	free(bm, M_BRIDGE);
}

static int
bridge_add(struct bridge_softc *br, const char *name)
{
	struct ifnet *ifp;
	int error;

	ifp = ifunit_ref(name);
	if (ifp == NULL)
		return (ENXIO);
	error = bridge_join(br, ifp);
	if (error != 0)
		if_rele(ifp);
	return (error);
}

static void
bridge_list(struct bridge_softc *br, struct ifbifconf *list)
{
	u_int room = list->ifbic_len / sizeof(struct ifbreq), n = 0;
	struct bridge_member *bm;

	CK_LIST_FOREACH(bm, &br->br_members, bm_link) {
		if (n == room)
			break;
		memset(&list->ifbic_req[n], 0, sizeof(struct ifbreq));
		strlcpy(list->ifbic_req[n].ifbr_ifsname, bm->bm_ifp->if_xname, IFNAMSIZ);
		list->ifbic_req[n].ifbr_addrcnt = bm->bm_naddrs;
		n++;
	}
	list->ifbic_len = n * sizeof(struct ifbreq);
}

static int
bridge_command(struct bridge_softc *br, const struct ifdrv *ifd)
{
	struct ifbreq *req = ifd->ifd_data;
	struct bridge_member *bm;
	int error = 0;

	if (ifd->ifd_cmd == BRDGGIFS ? ifd->ifd_len != sizeof(struct ifbifconf) :
	    ifd->ifd_len != sizeof(struct ifbreq))
		return (EINVAL);
	sx_xlock(&bridge_lock);
	switch (ifd->ifd_cmd) {
	case BRDGADD:
		error = bridge_add(br, req->ifbr_ifsname);
		break;
	case BRDGDEL:
		bm = bridge_find(br, req->ifbr_ifsname);
		if (bm != NULL)
			bridge_leave(br, bm);
		else
			error = ENOENT;
		break;
	case BRDGGIFS:
		bridge_list(br, ifd->ifd_data);
		break;
	default:
		error = EOPNOTSUPP;
		break;
	}
	sx_xunlock(&bridge_lock);
	return (error);
}

static int
bridge_ioctl(struct ifnet *ifp, u_long cmd, caddr_t data)
{
	struct bridge_softc *br = ifp->if_softc;

	switch (cmd) {
	case SIOCSDRVSPEC:
	case SIOCGDRVSPEC:
		return (bridge_command(br, (struct ifdrv *)data));
	case SIOCSIFFLAGS:
		if ((ifp->if_flags & IFF_UP) != 0)
			ifp->if_drv_flags |= IFF_DRV_RUNNING;
		else
			ifp->if_drv_flags &= ~IFF_DRV_RUNNING;
		return (0);
	case SIOCSIFMTU:
		if_setmtu(ifp, ((struct ifreq *)data)->ifr_mtu);
		return (0);
	case SIOCADDMULTI:
	case SIOCDELMULTI:
		/* The members are set to promiscuous mode. */
		return (0);
	default:
		return (ether_ioctl(ifp, cmd, data));
	}
}

static int
bridge_create(struct if_clone *ifc __unused, char *name __unused, size_t len __unused,
    struct ifc_data *ifd, struct ifnet **ifpp)
{
	struct ether_addr addr;
	struct bridge_softc *br;
	struct ifnet *ifp;

	ifp = if_alloc(IFT_ETHER);
	if (ifp == NULL)
		return (ENOSPC);
	br = malloc(sizeof(*br), M_BRIDGE, M_WAITOK | M_ZERO);
	br->br_ifp = ifp;
	br->br_hashkey = arc4random();
	mtx_init(&br->br_mtx, "bridge", NULL, MTX_DEF);
	callout_init_mtx(&br->br_callout, &br->br_mtx, 0);
	if_initname(ifp, bridge_name, ifd->unit);
	ifp->if_softc = br;
	ifp->if_transmit = bridge_transmit;
	ifp->if_qflush = bridge_qflush;
	ifp->if_ioctl = bridge_ioctl;
	ifp->if_flags = IFF_BROADCAST | IFF_SIMPLEX | IFF_MULTICAST;
	ifp->if_hwassist = IF_OFFLOAD_ALL;
	ether_gen_addr(ifp, &addr);
	ether_ifattach(ifp, addr.octet);
	if_link_state_change(ifp, LINK_STATE_UP);
	mtx_lock(&br->br_mtx);
	callout_reset(&br->br_callout, BRIDGE_SWEEP * hz, bridge_sweep, br);
	mtx_unlock(&br->br_mtx);
	*ifpp = ifp;
	return (0);
}

static int
bridge_destroy(struct if_clone *ifc __unused, struct ifnet *ifp, uint32_t flags __unused)
{
	struct bridge_softc *br = ifp->if_softc;
	struct bridge_member *bm;

	ether_ifdetach(ifp);
	sx_xlock(&bridge_lock);
	while ((bm = CK_LIST_FIRST(&br->br_members)) != NULL)
		bridge_leave(br, bm);
	sx_xunlock(&bridge_lock);
	callout_drain(&br->br_callout);
	NET_EPOCH_DRAIN_CALLBACKS();
	if_free(ifp);
	mtx_destroy(&br->br_mtx);
	free(br, M_BRIDGE);
	return (0);
}

/* A member's interface is removed. */
static void
bridge_departure(void *arg __unused, struct ifnet *ifp)
{
	struct bridge_member *bm;

	sx_xlock(&bridge_lock);
	bm = ifp->if_bridge;
	if (bm != NULL)
		bridge_leave(bm->bm_bridge, bm);
	sx_xunlock(&bridge_lock);
}

static void
bridge_init(void *dummy __unused)
{
	struct if_clone_addreq req = { .create_f = bridge_create, .destroy_f = bridge_destroy };

	(void)ifc_attach_cloner(bridge_name, &req);
	EVENTHANDLER_REGISTER(ifnet_departure_event, bridge_departure, NULL,
	    EVENTHANDLER_PRI_ANY);
}
SYSINIT(bridge, SI_SUB_PROTO_IF, SI_ORDER_THIRD, bridge_init, NULL);
