/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * IPv4 packets for others (RFC 1812, 5): passed on if this host is a router.
 *
 * Only the header's time to live is changed.  Offload flags are kept: a packet that is still to be
 * segmented, or to get its transport checksum, leaves by its next interface in that state if the
 * interface supports that (net/if_offload.c).  Only the frames on the wire have to fit the MTU.
 *
 * Gaps: no redirects are sent, options are not looked at, no multicast routing.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/in_var.h>
#include <netinet6/ip6_var.h>
#include <machine/in_cksum.h>
#include <net/if_tree.h>
#include <sys/sysctl.h>

VNET_DEFINE(int, ipforwarding);
SYSCTL_NODE(_net, PF_INET, inet, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "Internet protocols");
SYSCTL_NODE(_net_inet, IPPROTO_IP, ip, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "IPv4");
SYSCTL_INT(_net_inet_ip, IPCTL_FORWARDING, forwarding, CTLFLAG_VNET | CTLFLAG_RWTUN,
    &VNET_NAME(ipforwarding), 0, "Pass packets on between interfaces");

/* Addresses that no router passes on (RFC 1812, 5.3.7; RFC 3927, 2.7). */
static bool
forward_refused(const struct mbuf *m, const struct ip *ip)
{
	uint32_t src = ntohl(ip->ip_src.s_addr), dst = ntohl(ip->ip_dst.s_addr);

	return ((m->m_flags & (M_BCAST | M_MCAST)) != 0 || IN_MULTICAST(dst) ||
	    IN_EXPERIMENTAL(dst) || IN_EXPERIMENTAL(src) || dst >> 24 == 127 ||
	    IN_LINKLOCAL(dst) || IN_LINKLOCAL(src) || IN_ZERONET(dst) || IN_ZERONET(src));
}

/* A header that may be written to; NULL without memory. */
static struct mbuf *
forward_own_header(struct mbuf *m)
{
	int hlen = mtod(m, struct ip *)->ip_hl << 2;

	return (M_WRITABLE(m) ? m : m_copyup(m, hlen, max_linkhdr));
}

/* One hop less, and the checksum updated for it (RFC 1624). */
static void
forward_age(struct ip *ip)
{
	ip->ip_ttl -= IPTTLDEC;
	ip->ip_sum = in_addword(ip->ip_sum, htons(IPTTLDEC << 8));
}

/*
 * A packet that is not for us, its header checked and contiguous, from m->m_pkthdr.rcvif.  In the
 * network epoch; m is consumed.
 */
void
inet_forward4(struct mbuf *m)
{
	struct ip *ip = mtod(m, struct ip *);
	struct in6_addr dst = inet_map4(ip->ip_dst);
	struct inet_nexthop nh;

	if (!V_ipforwarding || forward_refused(m, ip)) {
		INSTAT_INC(ip.ips_cantforward);
		m_freem(m);
		return;
	}
	if (ip->ip_ttl <= IPTTLDEC) {
		INSTAT_INC(ip.ips_cantforward);
		inet_icmp_error(m, ICMP_TIMXCEED, ICMP_TIMXCEED_INTRANS, 0);
		return;
	}
	if (inet_route_lookup(&dst, NULL, &nh) != 0) {
		INSTAT_INC(ip.ips_noroute);
		inet_icmp_error(m, ICMP_UNREACH, ICMP_UNREACH_HOST, 0);
		return;
	}
	if (if_gettype(nh.nh_ifp) == IFT_LOOP || inet_addr_isbroadcast(nh.nh_ifp, ip->ip_dst)) {
		INSTAT_INC(ip.ips_cantforward);
		m_freem(m);
		return;
	}
	nh.nh_mtu = if_getmtu(nh.nh_ifp);
	if ((ip->ip_off & htons(IP_DF)) != 0 && if_offload_wire_len(m, 0) > nh.nh_mtu) {
		INSTAT_INC(ip.ips_cantfrag);
		inet_icmp_error(m, ICMP_UNREACH, ICMP_UNREACH_NEEDFRAG, nh.nh_mtu);
		return;
	}
	m = forward_own_header(m);
	if (m == NULL) {
		INSTAT_INC(ip.ips_odropped);
		return;
	}
	forward_age(mtod(m, struct ip *));
	if (inet_send4(m, &nh) == 0)
		INSTAT_INC(ip.ips_forward);
	else
		INSTAT_INC(ip.ips_odropped);
}
