/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The way down: from a transport message to the link, for both IP versions.
 *
 * inet_output() finds the way and the source address, prepares the transport checksum and calls the
 * IP version's output, which puts its header in front and ends in inet_link_output().
 *
 * Checksums leave as FreeBSD's drivers expect them: the transport's field holds the pseudo header's
 * sum, csum_flags says which kind, csum_data where the field is.  What the interface has not in
 * if_hwassist is finished in software by the IP version's output, which alone knows the interface.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/if_ether.h>
#include <machine/in_cksum.h>
#include <kern/console_tree.h>
#include <net/if_tree.h>

static const uint8_t out_broadcast[ETHER_ADDR_LEN] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

/* Checksum of each transport: its flag for each IP version, and where its field is. */
static const struct out_cksum {
	uint8_t		c_proto;
	uint16_t	c_off;
	uint32_t	c_flag4;
	uint32_t	c_flag6;
} out_cksums[] = {
	{ IPPROTO_TCP, offsetof(struct tcphdr, th_sum), CSUM_TCP, CSUM_TCP_IPV6 },
	{ IPPROTO_UDP, offsetof(struct udphdr, uh_sum), CSUM_UDP, CSUM_UDP_IPV6 },
};

/* Addresses that mean something on one link only, and so need no route. */
static bool
out_linkscope(const struct in6_addr *a)
{
	return (inet_multicast(a) || IN6_IS_ADDR_LINKLOCAL(a) ||
	    (inet_is4(a) && a->s6_addr32[3] == INADDR_BROADCAST));
}

/*
 * Where to.  nh_ifp is NULL for ourselves.
 */
static int
out_route(const struct inet_out *o, struct inet_nexthop *nh)
{
	static const struct in6_addr any4 = { .s6_addr = { [10] = 0xff, [11] = 0xff } };
	int error;

	if (inet_addr_islocal(&o->o_dst)) {
		*nh = (struct inet_nexthop){ .nh_addr = o->o_dst, .nh_mtu = IP_MAXPACKET };
		return (0);
	}
	if (!out_linkscope(&o->o_dst))
		return (inet_route_lookup(&o->o_dst, o->o_ifp, nh));
	nh->nh_ifp = o->o_ifp;
	if (o->o_ifp == NULL) {
		error = inet_route_lookup(IN6_IS_ADDR_LINKLOCAL(&o->o_dst) ? &o->o_dst :
		    inet_is4(&o->o_dst) ? &any4 : &in6addr_any, NULL, nh);
		if (error != 0)
			return (ENETUNREACH);
	}
	nh->nh_addr = o->o_dst;
	nh->nh_flags = 0;
	nh->nh_mtu = if_getmtu(nh->nh_ifp);
	return (0);
}

static int
out_source(struct inet_out *o, const struct inet_nexthop *nh)
{
	if (!inet_unspecified(&o->o_src) || (o->o_flags & INETO_UNSPEC) != 0)
		return (0);
	if (nh->nh_ifp == NULL) {
		o->o_src = o->o_dst;
		return (0);
	}
	return (inet_addr_source(nh->nh_ifp, &o->o_dst, &o->o_src));
}

/* ICMPv6 has no offload: its checksum is finished here (RFC 4443, 2.3). */
static void
out_icmp6_cksum(struct mbuf *m, const struct inet_out *o)
{
	struct icmp6_hdr *icmp6 = mtod(m, struct icmp6_hdr *);
	uint16_t sum;

	icmp6->icmp6_cksum = 0;
	sum = ~in_cksum(m, m->m_pkthdr.len);
	sum = in_addword(sum, inet_pseudo(&o->o_src, &o->o_dst, m->m_pkthdr.len, o->o_proto));
	icmp6->icmp6_cksum = ~sum;
}

static void
out_cksum(struct mbuf *m, const struct inet_out *o)
{
	const struct out_cksum *c;
	uint16_t pseudo;

	if (o->o_proto == IPPROTO_ICMPV6) {
		out_icmp6_cksum(m, o);
		return;
	}
	for (c = out_cksums; c < out_cksums + nitems(out_cksums); c++) {
		if (c->c_proto != o->o_proto)
			continue;
		pseudo = inet_pseudo(&o->o_src, &o->o_dst, m->m_pkthdr.len, o->o_proto);
		memcpy(mtod(m, uint8_t *) + c->c_off, &pseudo, sizeof(pseudo));
		m->m_pkthdr.csum_flags |= inet_is4(&o->o_dst) ? c->c_flag4 : c->c_flag6;
		m->m_pkthdr.csum_data = c->c_off;
		return;
	}
}

/*
 * Send a transport message.  m starts with the transport header, which is contiguous, and is
 * consumed in any case.  Called in the network epoch; never sleeps. EHOSTUNREACH, ENETUNREACH,
 * EADDRNOTAVAIL, EMSGSIZE, ENOBUFS, or the interface's error.
 */
int
inet_output(struct mbuf *m, const struct inet_out *arg)
{
	struct inet_out o = *arg;
	struct inet_nexthop nh;
	int error;

	NET_EPOCH_ASSERT();
	error = out_route(&o, &nh);
	if (error == 0)
		error = out_source(&o, &nh);
	if (error != 0) {
		if (inet_is4(&o.o_dst))
			INSTAT_INC(ip.ips_noroute);
		else
			INSTAT_INC(ip6.ip6s_noroute);
		m_freem(m);
		return (error);
	}
	out_cksum(m, &o);
	return (inet_is4(&o.o_dst) ? inet_output4(m, &o, &nh) : inet_output6(m, &o, &nh));
}

/*
 * Find what inet_output() would choose, for callers that need it before they send: the source
 * address, the interface (NULL for ourselves) and the path's MTU.  In the network epoch.
 */
int
inet_output_way(struct inet_out *o, struct inet_nexthop *nh)
{
	int error;

	error = out_route(o, nh);
	return (error != 0 ? error : out_source(o, nh));
}

/*
 * Wait, a few seconds at most, for a source address for dst that is still being checked for
 * duplicates (RFC 4862, 5.4), so that a command may follow the one that brought the interface up.
 * scope is the interface index of a link-local dst, else 0.
 */
void
inet_wait_source(const struct in6_addr *dst, u_int scope)
{
	struct inet_out o = { .o_dst = *dst };
	struct epoch_tracker et;
	struct inet_nexthop nh;
	int error, i;

	for (i = 0; i < 40 && !inet_is4(dst) && !cmd_interrupted(); i++) {
		NET_EPOCH_ENTER(et);
		o.o_ifp = scope != 0 ? ifnet_byindex(scope) : NULL;
		error = inet_output_way(&o, &nh);
		NET_EPOCH_EXIT(et);
		if (error != EADDRNOTAVAIL)
			break;
		pause_sbt("inetdad", SBT_1S / 10, 0, 0);
	}
}

/*
 * Give an IP packet to the link: find the Ethernet address of the next hop (a struct inet_nexthop, as
 * if_offload_send() hands it on), or let the packet wait for it.  The mbuf is consumed.  ENETDOWN,
 * ENOBUFS, or the interface's error.
 */
int
inet_link_output(const void *nexthop, struct mbuf *m)
{
	const struct inet_nexthop *nh = nexthop;
	const struct in6_addr *addr = &nh->nh_addr;
	if_t ifp = nh->nh_ifp;
	bool v4 = inet_is4(addr);
	uint8_t dst[ETHER_ADDR_LEN];
	int error;

	if ((if_getflags(ifp) & IFF_UP) == 0) {
		m_freem(m);
		return (ENETDOWN);
	}
	if (if_gettype(ifp) == IFT_LOOP) {
		inet_loop_output(ifp, m);
		return (0);
	}
	if (v4 && inet_addr_isbroadcast(ifp, inet_unmap4(addr))) {
		memcpy(dst, out_broadcast, sizeof(dst));
		m->m_flags |= M_BCAST;
	} else if (inet_multicast(addr)) {
		if (v4)
			ETHER_MAP_IP_MULTICAST(&addr->s6_addr32[3], dst)
		else
			ETHER_MAP_IPV6_MULTICAST(addr, dst)
		m->m_flags |= M_MCAST;
	} else {
		error = inet_nbr_resolve(ifp, addr, m, dst);
		if (error != 0)
			return (error == EWOULDBLOCK ? 0 : error);
	}
	return (ether_output_resolved(ifp, m, dst, v4 ? ETHERTYPE_IP : ETHERTYPE_IPV6));
}
