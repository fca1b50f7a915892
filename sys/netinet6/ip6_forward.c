/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * IPv6 packets for others (RFC 8200, 3; RFC 4443): passed on if this host is a router.  As with
 * IPv4 (ip_forward.c), offload marks stay what they are.
 *
 * Gaps: hop-by-hop options are not looked at, which a router may do (RFC 8200, 4); no redirects,
 * no multicast routing, no router advertisements.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/in_var.h>
#include <netinet6/in6_var.h>
#include <net/if_tree.h>
#include <sys/sysctl.h>

VNET_DEFINE(int, ip6_forwarding);
SYSCTL_NODE(_net, PF_INET6, inet6, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "Internet protocols, version 6");
SYSCTL_NODE(_net_inet6, IPPROTO_IPV6, ip6, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "IPv6");
SYSCTL_INT(_net_inet6_ip6, IPV6CTL_FORWARDING, forwarding, CTLFLAG_VNET | CTLFLAG_RWTUN,
    &VNET_NAME(ip6_forwarding), 0, "Pass packets on between interfaces");

/* Addresses that no router passes on (RFC 4291, 2.5). */
static bool
forward6_refused(const struct mbuf *m, const struct ip6_hdr *ip6)
{
	return ((m->m_flags & (M_BCAST | M_MCAST)) != 0 ||
	    IN6_IS_ADDR_UNSPECIFIED(&ip6->ip6_src) || IN6_IS_ADDR_LOOPBACK(&ip6->ip6_dst) ||
	    IN6_IS_ADDR_LINKLOCAL(&ip6->ip6_dst));
}

/*
 * A packet that is not for us, its fixed header checked and contiguous, from m->m_pkthdr.rcvif.  In
 * the network epoch; m is consumed.
 */
void
inet_forward6(struct mbuf *m)
{
	struct ip6_hdr *ip6 = mtod(m, struct ip6_hdr *);
	struct in6_addr dst = ip6->ip6_dst;
	struct inet_nexthop nh;
	int error;

	if (!V_ip6_forwarding || forward6_refused(m, ip6)) {
		INSTAT_INC(ip6.ip6s_cantforward);
		m_freem(m);
		return;
	}
	if (ip6->ip6_hlim <= IPV6_HLIMDEC) {
		INSTAT_INC(ip6.ip6s_cantforward);
		inet_icmp6_error(m, ICMP6_TIME_EXCEEDED, ICMP6_TIME_EXCEED_TRANSIT, 0);
		return;
	}
	error = inet_route_lookup(&dst, NULL, &nh);
	if (error != 0 || if_gettype(nh.nh_ifp) == IFT_LOOP) {
		INSTAT_INC(ip6.ip6s_noroute);
		inet_icmp6_error(m, ICMP6_DST_UNREACH, ICMP6_DST_UNREACH_NOROUTE, 0);
		return;
	}
	/* A link-local source has no meaning on another link (RFC 4007, 9). */
	if (IN6_IS_ADDR_LINKLOCAL(&ip6->ip6_src) && nh.nh_ifp != m->m_pkthdr.rcvif) {
		INSTAT_INC(ip6.ip6s_badscope);
		inet_icmp6_error(m, ICMP6_DST_UNREACH, ICMP6_DST_UNREACH_BEYONDSCOPE, 0);
		return;
	}
	nh.nh_mtu = max(if_getmtu(nh.nh_ifp), IPV6_MMTU);
	if (if_offload_wire_len(m, 0) > nh.nh_mtu) {
		INSTAT_INC(ip6.ip6s_cantfrag);
		inet_icmp6_error(m, ICMP6_PACKET_TOO_BIG, 0, nh.nh_mtu);
		return;
	}
	if (!M_WRITABLE(m) && (m = m_copyup(m, sizeof(*ip6), max_linkhdr)) == NULL) {
		INSTAT_INC(ip6.ip6s_odropped);
		return;
	}
	mtod(m, struct ip6_hdr *)->ip6_hlim -= IPV6_HLIMDEC;
	if (inet_send6(m, &nh) == 0)
		INSTAT_INC(ip6.ip6s_forward);
	else
		INSTAT_INC(ip6.ip6s_odropped);
}
