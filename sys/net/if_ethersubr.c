/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Ethernet: attachment of Ethernet interfaces, frames in, frames out.
 *
 *	driver -> if_input = ether_input: one frame or a list of them (m_nextpkt)
 *	            length, source, VLAN tag, multicast marks, counters, capture, bridge
 *	       -> ether_demux: is it for us? -> VLAN, ARP, IP or IPv6
 *
 *	protocol -> ether_output_resolved or ether_output (header) -> ether_output_frame
 *	         -> bridge, or ether_finish -> if_transmit of the driver
 *
 * Locking.  None.  Frames are handled in the network epoch, which is entered for drivers that
 * are not in it.
 *
 * Gaps.  A tag that only has a priority is taken as if it were not there.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/epoch.h>
#include <sys/eventhandler.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/sockio.h>
#include <net/bpf.h>
#include <net/dlt.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_dl.h>
#include <net/if_types.h>
#include <net/if_var.h>
#include <net/if_private.h>
#include <net/if_vlan_var.h>

#include <netinet/in.h>
#include <netinet/ip6.h>
#include <netinet/if_ether.h>
#include <netinet6/ip6_var.h>
#include <netinet/inet_tree.h>
#include <net/if_tree.h>

static const uint8_t ether_broadcast[ETHER_ADDR_LEN] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

static void
ether_drop(struct ifnet *ifp, struct mbuf *m, ift_counter counter)
{
	if_inc_counter(ifp, counter, 1);
	m_freem(m);
}

/*
 * Move the frame's VLAN tag to the packet header, where a driver with hardware for it would
 * have put it.
 */
static struct mbuf *
ether_untag(struct ifnet *ifp, struct mbuf *m)
{
	struct ether_vlan_header *evl;

	if (m->m_len < sizeof(*evl) && (m = m_pullup(m, sizeof(*evl))) == NULL) {
		if_inc_counter(ifp, IFCOUNTER_IERRORS, 1);
		return (NULL);
	}
	evl = mtod(m, struct ether_vlan_header *);
	m->m_pkthdr.ether_vtag = ntohs(evl->evl_tag);
	m->m_flags |= M_VLANTAG;
	bcopy(evl, (char *)evl + ETHER_VLAN_ENCAP_LEN, 2 * ETHER_ADDR_LEN);
	m_adj(m, ETHER_VLAN_ENCAP_LEN);
	return (m);
}

static void
ether_input_frame(struct ifnet *ifp, struct mbuf *m)
{
	struct ether_header *eh;

	if ((ifp->if_flags & IFF_UP) == 0) {
		m_freem(m);
		return;
	}
	if (m->m_pkthdr.len < ETHER_HDR_LEN) {
		ether_drop(ifp, m, IFCOUNTER_IERRORS);
		return;
	}
	if (m->m_len < ETHER_HDR_LEN && (m = m_pullup(m, ETHER_HDR_LEN)) == NULL) {
		if_inc_counter(ifp, IFCOUNTER_IERRORS, 1);
		return;
	}
	eh = mtod(m, struct ether_header *);
	if ((ifp->if_capenable & IFCAP_HWSTATS) == 0)
		if_inc_counter(ifp, IFCOUNTER_IBYTES, m->m_pkthdr.len);
	if (ETHER_IS_MULTICAST(eh->ether_dhost)) {
		m->m_flags |= ETHER_IS_BROADCAST(eh->ether_dhost) ? M_BCAST : M_MCAST;
		if_inc_counter(ifp, IFCOUNTER_IMCASTS, 1);
	}
	ETHER_BPF_MTAP(ifp, m);
	if ((ifp->if_flags & IFF_MONITOR) != 0) {
		m_freem(m);
		return;
	}
	if ((m->m_flags & M_VLANTAG) == 0 && ntohs(eh->ether_type) == ETHERTYPE_VLAN) {
		m = ether_untag(ifp, m);
		if (m == NULL)
			return;
		if (m->m_pkthdr.len < ETHER_HDR_LEN) {
			ether_drop(ifp, m, IFCOUNTER_IERRORS);
			return;
		}
	}
	if (ifp->if_bridge != NULL && (m = ifp->if_bridge_input(ifp, m)) == NULL)
		return;
	ether_demux(ifp, m);
}

static void
ether_input(if_t ifp, struct mbuf *m)
{
	struct epoch_tracker et;
	struct mbuf *next;
	bool enter = (ifp->if_flags & IFF_NEEDSEPOCH) != 0;

	KASSERT(enter || in_epoch(net_epoch_preempt), ("%s: %s called without net epoch", __func__,
	    ifp->if_xname));
	if (enter)
		NET_EPOCH_ENTER(et);
	CURVNET_SET_QUIET(ifp->if_vnet);
	for (; m != NULL; m = next) {
		next = m->m_nextpkt;
		m->m_nextpkt = NULL;
		KASSERT(m->m_pkthdr.rcvif == ifp, ("%s: %s: ifnet mismatch m %p rcvif %p", __func__,
		    ifp->if_xname, m, m->m_pkthdr.rcvif));
		MPASS((m->m_pkthdr.csum_flags & CSUM_SND_TAG) == 0);
		ether_input_frame(ifp, m);
	}
	CURVNET_RESTORE();
	if (enter)
		NET_EPOCH_EXIT(et);
}

/* Does the interface receive frames to this unicast address? */
static bool
ether_is_ours(struct ifnet *ifp, const uint8_t *dst)
{
	return (bcmp(dst, IF_LLADDR(ifp), ETHER_ADDR_LEN) == 0);
}

/* A tag with number 0 has a priority only. */
static bool
ether_is_for_vlan(const struct mbuf *m)
{
	return ((m->m_flags & M_VLANTAG) != 0 && EVL_VLANOFTAG(m->m_pkthdr.ether_vtag) != 0);
}

/* Hand a frame, which starts with its Ethernet header and has no VLAN tag in it, to its protocol. */
void
ether_demux(struct ifnet *ifp, struct mbuf *m)
{
	struct ether_header *eh = mtod(m, struct ether_header *);
	uint16_t type = ntohs(eh->ether_type);

	NET_EPOCH_ASSERT();
	if (ether_is_for_vlan(m)) {
		vlan_input(ifp, m);
		return;
	}
	if (!ETHER_IS_MULTICAST(eh->ether_dhost) && !ether_is_ours(ifp, eh->ether_dhost)) {
		/*
		 * Another host's frame, received in promiscuous mode, or from a device that doesn't
		 * filter.
		 */
		m_freem(m);
		return;
	}
	m->m_flags &= ~M_VLANTAG;
	m_clrprotoflags(m);
	m_adj(m, ETHER_HDR_LEN);
	switch (type) {
	case ETHERTYPE_IP:
		ip_input(m);
		break;
	case ETHERTYPE_ARP:
		if ((ifp->if_flags & IFF_NOARP) != 0)
			m_freem(m);
		else
			arp_input(m);
		break;
	case ETHERTYPE_IPV6:
		ip6_input(m);
		break;
	default:
		ether_drop(ifp, m, IFCOUNTER_NOPROTO);
		break;
	}
}

/* Put a VLAN tag into the frame. */
struct mbuf *
ether_vlanencap_proto(struct mbuf *m, uint16_t tag, uint16_t proto)
{
	struct ether_vlan_header *evl;

	M_PREPEND(m, ETHER_VLAN_ENCAP_LEN, M_NOWAIT);
	if (m == NULL)
		return (NULL);
	if (m->m_len < sizeof(*evl) && (m = m_pullup(m, sizeof(*evl))) == NULL)
		return (NULL);
	evl = mtod(m, struct ether_vlan_header *);
	bcopy((char *)evl + ETHER_VLAN_ENCAP_LEN, evl, 2 * ETHER_ADDR_LEN);
	evl->evl_encap_proto = htons(proto);
	evl->evl_tag = htons(tag);
	return (m);
}

/* Send a frame, whose tag of the packet header is put into it if the interface does not do so. */
static int
ether_transmit(const void *arg, struct mbuf *m)
{
	struct ifnet *ifp = *(struct ifnet *const *)arg;

	if ((m->m_flags & M_VLANTAG) != 0 && (ifp->if_capenable & IFCAP_VLAN_HWTAGGING) == 0) {
		m = ether_vlanencap_proto(m, m->m_pkthdr.ether_vtag, ETHERTYPE_VLAN);
		if (m == NULL)
			return (ENOBUFS);
		m->m_flags &= ~M_VLANTAG;
	}
	return (ifp->if_transmit(ifp, m));
}

int
ether_finish(struct ifnet *ifp, struct mbuf *m)
{
	NET_EPOCH_ASSERT();
	return (if_offload_send(if_offload_finish(ifp, m, ETHER_HDR_LEN), ether_transmit, &ifp));
}

int
ether_output_frame(struct ifnet *ifp, struct mbuf *m)
{
	if ((ifp->if_flags & IFF_UP) == 0 || (ifp->if_drv_flags & IFF_DRV_RUNNING) == 0) {
		m_freem(m);
		return (ENETDOWN);
	}
	if (ifp->if_bridge != NULL)
		return (ifp->if_bridge_output(ifp, m, NULL, NULL));
	return (ether_finish(ifp, m));
}

/* Put the Ethernet header before the packet; NULL when there is no memory. */
static struct mbuf *
ether_encap(struct ifnet *ifp, struct mbuf *m, const u_char *dst, const u_char *src,
    u_short ethertype)
{
	struct ether_header *eh;

	M_ASSERTPKTHDR(m);
	M_PREPEND(m, ETHER_HDR_LEN, M_NOWAIT);
	if (m == NULL) {
		if_inc_counter(ifp, IFCOUNTER_OQDROPS, 1);
		return (NULL);
	}
	m->m_flags &= ~(M_BCAST | M_MCAST);
	if (ETHER_IS_MULTICAST(dst))
		m->m_flags |= ETHER_IS_BROADCAST(dst) ? M_BCAST : M_MCAST;
	eh = mtod(m, struct ether_header *);
	bcopy(dst, eh->ether_dhost, ETHER_ADDR_LEN);
	bcopy(src, eh->ether_shost, ETHER_ADDR_LEN);
	eh->ether_type = htons(ethertype);
	return (m);
}

int
ether_output_resolved(if_t ifp, struct mbuf *m, const u_char *dst, u_short ethertype)
{
	NET_EPOCH_ASSERT();
	m = ether_encap(ifp, m, dst, IF_LLADDR(ifp), ethertype);
	return (m == NULL ? ENOBUFS : ether_output_frame(ifp, m));
}

/*
 * Output to a socket address.  The protocols of this kernel resolve addresses themselves and
 * use ether_output_resolved(); here come frames whose header the sender made (AF_UNSPEC, and
 * pseudo_AF_HDRCMPLT with a source address too).
 */
int
ether_output(struct ifnet *ifp, struct mbuf *m, const struct sockaddr *dst,
    struct route *ro __unused)
{
	const struct ether_header *eh = (const struct ether_header *)dst->sa_data;
	const u_char *src;

	switch (dst->sa_family) {
	case pseudo_AF_HDRCMPLT:
		src = eh->ether_shost;
		break;
	case AF_UNSPEC:
		src = IF_LLADDR(ifp);
		break;
	default:
		m_freem(m);
		return (EAFNOSUPPORT);
	}
	m = ether_encap(ifp, m, eh->ether_dhost, src, ntohs(eh->ether_type));
	return (m == NULL ? ENOBUFS : ether_output_frame(ifp, m));
}

/*
 * The Ethernet group of a protocol's group (RFC 1112, 6.4; RFC 2464, 7).
 */
static int
ether_resolvemulti(struct ifnet *ifp, struct sockaddr **llsa, struct sockaddr *sa)
{
	const struct sockaddr_in6 *sin6;
	const struct sockaddr_in *sin;
	struct sockaddr_dl *sdl;
	uint32_t addr;
	uint8_t *group;

	if (sa->sa_family == AF_LINK) {
		sdl = (struct sockaddr_dl *)sa;
		if (sdl->sdl_alen != ETHER_ADDR_LEN || !ETHER_IS_MULTICAST(LLADDR(sdl)))
			return (EADDRNOTAVAIL);
		*llsa = NULL;
		return (0);
	}
	sdl = link_init_sdl(ifp, *llsa, IFT_ETHER);
	sdl->sdl_alen = ETHER_ADDR_LEN;
	group = LLADDR(sdl);
	switch (sa->sa_family) {
	case AF_INET:
		sin = (const struct sockaddr_in *)sa;
		addr = ntohl(sin->sin_addr.s_addr);
		if (!IN_MULTICAST(addr))
			return (EADDRNOTAVAIL);
		group[0] = 0x01;
		group[1] = 0x00;
		group[2] = 0x5e;
		group[3] = (addr >> 16) & 0x7f;
		group[4] = addr >> 8;
		group[5] = addr;
		return (0);
	case AF_INET6:
		sin6 = (const struct sockaddr_in6 *)sa;
		if (!IN6_IS_ADDR_MULTICAST(&sin6->sin6_addr))
			return (EADDRNOTAVAIL);
		group[0] = group[1] = 0x33;
		bcopy(&sin6->sin6_addr.s6_addr[12], &group[2], 4);
		return (0);
	default:
		return (EAFNOSUPPORT);
	}
}

void
ether_ifattach(struct ifnet *ifp, const u_int8_t *lla)
{
	struct sockaddr_dl *sdl;
	int i;

	ifp->if_addrlen = ETHER_ADDR_LEN;
	ifp->if_hdrlen = ifp->if_type == IFT_L2VLAN ? ETHER_HDR_LEN + ETHER_VLAN_ENCAP_LEN :
	    ETHER_HDR_LEN;
	if (ifp->if_mtu == 0)
		ifp->if_mtu = ETHERMTU;
	if (ifp->if_baudrate == 0)
		ifp->if_baudrate = IF_Mbps(10);
	ifp->if_output = ether_output;
	ifp->if_input = ether_input;
	ifp->if_resolvemulti = ether_resolvemulti;
	ifp->if_broadcastaddr = ether_broadcast;
	if_attach(ifp);

	sdl = (struct sockaddr_dl *)ifp->if_addr->ifa_addr;
	sdl->sdl_type = IFT_ETHER;
	sdl->sdl_alen = ETHER_ADDR_LEN;
	bcopy(lla, LLADDR(sdl), ETHER_ADDR_LEN);
	bcopy(lla, ifp->if_hw_addr, ETHER_ADDR_LEN);
	bpfattach(ifp, DLT_EN10MB, ETHER_HDR_LEN);
	for (i = 0; i < ETHER_ADDR_LEN && lla[i] == 0; i++)
		;
	if (i != ETHER_ADDR_LEN)
		if_printf(ifp, "Ethernet address: %6D\n", lla, ":");
	EVENTHANDLER_INVOKE(ether_ifattach_event, ifp);
}

void
ether_ifdetach(struct ifnet *ifp)
{
	bpfdetach(ifp);
	if_detach(ifp);
}

/* The common code of Ethernet drivers' ioctl methods. */
int
ether_ioctl(struct ifnet *ifp, u_long cmd, caddr_t data)
{
	struct ifreq *ifr = (struct ifreq *)data;

	switch (cmd) {
	case SIOCGIFADDR:
		bcopy(IF_LLADDR(ifp), &ifr->ifr_addr.sa_data[0], ETHER_ADDR_LEN);
		return (0);
	case SIOCSIFMTU:
		if (ifr->ifr_mtu > ETHERMTU)
			return (EINVAL);
		ifp->if_mtu = ifr->ifr_mtu;
		return (0);
	default:
		return (EINVAL);
	}
}

char *
ether_sprintf(const u_int8_t *ap)
{
	static char text[3 * ETHER_ADDR_LEN];

	snprintf(text, sizeof(text), "%6D", ap, ":");
	return (text);
}

/*
 * CRC-32 of Ethernet (IEEE 802.3, 3.2.9), least significant bit first, not complemented at
 * the end.
 */
uint32_t
ether_crc32_le(const uint8_t *buf, size_t len)
{
	uint32_t crc = 0xffffffff;
	size_t i;
	int bit;

	for (i = 0; i < len; i++) {
		crc ^= buf[i];
		for (bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ ((crc & 1) != 0 ? ETHER_CRC_POLY_LE : 0);
	}
	return (crc);
}

/* The same with the register the other way round, as multicast hash filters use it. */
uint32_t
ether_crc32_be(const uint8_t *buf, size_t len)
{
	uint32_t crc = 0xffffffff;
	uint32_t carry;
	uint8_t data;
	size_t i;
	int bit;

	for (i = 0; i < len; i++) {
		data = buf[i];
		for (bit = 0; bit < 8; bit++, data >>= 1) {
			carry = (crc >> 31) ^ (data & 1);
			crc <<= 1;
			if (carry != 0)
				crc = (crc ^ ETHER_CRC_POLY_BE) | carry;
		}
	}
	return (crc);
}

/* A random locally administered address, for drivers whose device has none. */
void
ether_gen_addr(struct ifnet *ifp __unused, struct ether_addr *hwaddr)
{
	arc4rand(hwaddr->octet, sizeof(hwaddr->octet), 0);
	hwaddr->octet[0] = (hwaddr->octet[0] & ~0x01) | 0x02;
}
