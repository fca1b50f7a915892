/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * ICMPv6 (RFC 4443): answers echo requests, notifies the transports of errors, sends our own, and
 * passes messages to neighbour discovery and MLD.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>

static int
icmp6_send(struct mbuf *m, int type, int code, uint32_t rest, if_t ifp, const struct in6_addr *src,
    const struct in6_addr *dst)
{
	struct inet_out o = { .o_dst = *dst, .o_proto = IPPROTO_ICMPV6 };
	struct icmp6_hdr *icmp6;

	if (src != NULL)
		o.o_src = *src;
	if (IN6_IS_ADDR_LINKLOCAL(dst) || IN6_IS_ADDR_MULTICAST(dst))
		o.o_ifp = ifp;
	M_PREPEND(m, sizeof(*icmp6), M_NOWAIT);
	if (m == NULL)
		return (ENOBUFS);
	m->m_flags &= ~(M_BCAST | M_MCAST);
	m->m_pkthdr.csum_flags = 0;
	m->m_pkthdr.rcvif = NULL;
	icmp6 = mtod(m, struct icmp6_hdr *);
	icmp6->icmp6_type = type;
	icmp6->icmp6_code = code;
	icmp6->icmp6_data32[0] = rest;
	INSTAT_INC(icmp6.icp6s_outhist[type]);
	return (inet_output(m, &o));
}

/* RFC 4443, 2.4 (e): what no error may be sent about. */
static bool
icmp6_error_forbidden(struct mbuf *m, const struct ip6_hdr *ip6, int type, int code)
{
	uint8_t inner;

	if (IN6_IS_ADDR_UNSPECIFIED(&ip6->ip6_src) || IN6_IS_ADDR_MULTICAST(&ip6->ip6_src))
		return (true);
	if (IN6_IS_ADDR_MULTICAST(&ip6->ip6_dst) && type != ICMP6_PACKET_TOO_BIG &&
	    !(type == ICMP6_PARAM_PROB && code == ICMP6_PARAMPROB_OPTION))
		return (true);
	if (ip6->ip6_nxt != IPPROTO_ICMPV6)
		return (false);
	if (m->m_pkthdr.len <= (int)sizeof(*ip6))
		return (true);
	m_copydata(m, sizeof(*ip6), 1, &inner);
	return (inner < ICMP6_INFOMSG_MASK || inner == ND_REDIRECT);
}

/*
 * Report an error about the packet m, which starts with its IPv6 header and is consumed.  param
 * is the MTU or the pointer of the message, in host order.
 */
void
inet_icmp6_error(struct mbuf *m, int type, int code, uint32_t param)
{
	if_t ifp = m->m_pkthdr.rcvif;
	struct ip6_hdr ip6;
	int quote;

	m_copydata(m, 0, sizeof(ip6), (caddr_t)&ip6);
	if (icmp6_error_forbidden(m, &ip6, type, code) || !inet_icmp_ratelimit()) {
		INSTAT_INC(icmp6.icp6s_canterror);
		m_freem(m);
		return;
	}
	INSTAT_INC(icmp6.icp6s_error);
	/* As much of the packet as fits into the least MTU. */
	quote = min(m->m_pkthdr.len, IPV6_MMTU - sizeof(ip6) - sizeof(struct icmp6_hdr));
	if (m->m_pkthdr.len > quote)
		m_adj(m, quote - m->m_pkthdr.len);
	(void)icmp6_send(m, type, code, htonl(param), ifp,
	    inet_addr_islocal(&ip6.ip6_dst) ? &ip6.ip6_dst : NULL, &ip6.ip6_src);
}

static void
icmp6_echo(struct mbuf *m, const struct inet_pkt *p, const struct icmp6_hdr *icmp6)
{
	INSTAT_INC(icmp6.icp6s_reflect);
	m_adj(m, p->ip_off + sizeof(*icmp6));
	(void)icmp6_send(m, ICMP6_ECHO_REPLY, 0, icmp6->icmp6_data32[0], p->ip_ifp,
	    p->ip_bmcast ? NULL : &p->ip_dst, &p->ip_src);
}

static int
icmp6_errno(const struct icmp6_hdr *icmp6)
{
	if (icmp6->icmp6_type == ICMP6_PACKET_TOO_BIG)
		return (EMSGSIZE);
	if ((icmp6->icmp6_type == ICMP6_DST_UNREACH &&
	    icmp6->icmp6_code == ICMP6_DST_UNREACH_NOPORT) ||
	    (icmp6->icmp6_type == ICMP6_PARAM_PROB &&
	    icmp6->icmp6_code == ICMP6_PARAMPROB_NEXTHEADER))
		return (ECONNREFUSED);
	return (EHOSTUNREACH);
}

/*
 * An error about a packet that we sent.  Only the header that follows the quoted IPv6 header at
 * once, or a fragment header in between, is looked at: we send no other.
 */
static void
icmp6_error_input(struct mbuf *m, const struct inet_pkt *p, const struct icmp6_hdr *icmp6)
{
	struct ip6_hdr ip6;
	struct ip6_frag frag;
	uint8_t quoted[8], proto;
	int off = p->ip_off + sizeof(*icmp6), end = p->ip_off + p->ip_len;

	if (off + (int)sizeof(ip6) > end) {
		INSTAT_INC(icmp6.icp6s_tooshort);
		return;
	}
	m_copydata(m, off, sizeof(ip6), (caddr_t)&ip6);
	off += sizeof(ip6);
	proto = ip6.ip6_nxt;
	if (proto == IPPROTO_FRAGMENT && off + (int)sizeof(frag) <= end) {
		m_copydata(m, off, sizeof(frag), (caddr_t)&frag);
		off += sizeof(frag);
		proto = frag.ip6f_nxt;
	}
	if (off + (int)sizeof(quoted) > end || !inet_addr_islocal(&ip6.ip6_src) ||
	    IN6_IS_ADDR_V4MAPPED(&ip6.ip6_dst))
		return;
	m_copydata(m, off, sizeof(quoted), quoted);
	inet_ctlinput(&ip6.ip6_src, &ip6.ip6_dst, proto, quoted, icmp6_errno(icmp6),
	    icmp6->icmp6_type == ICMP6_PACKET_TOO_BIG ? ntohl(icmp6->icmp6_mtu) : 0);
}

void
inet_icmp6_input(struct mbuf *m, const struct inet_pkt *p)
{
	struct icmp6_hdr icmp6;

	if (p->ip_len < (int)sizeof(icmp6)) {
		INSTAT_INC(icmp6.icp6s_tooshort);
		m_freem(m);
		return;
	}
	if (!inet_pkt_cksum_ok(m, p)) {
		INSTAT_INC(icmp6.icp6s_checksum);
		m_freem(m);
		return;
	}
	m_copydata(m, p->ip_off, sizeof(icmp6), (caddr_t)&icmp6);
	INSTAT_INC(icmp6.icp6s_inhist[icmp6.icmp6_type]);
	switch (icmp6.icmp6_type) {
	case ICMP6_ECHO_REQUEST:
		icmp6_echo(m, p, &icmp6);
		return;
	case ICMP6_DST_UNREACH:
	case ICMP6_PACKET_TOO_BIG:
	case ICMP6_TIME_EXCEEDED:
	case ICMP6_PARAM_PROB:
		icmp6_error_input(m, p, &icmp6);
		break;
	case ND_ROUTER_SOLICIT:
	case ND_ROUTER_ADVERT:
	case ND_NEIGHBOR_SOLICIT:
	case ND_NEIGHBOR_ADVERT:
	case ND_REDIRECT:
		if (!nd6_input(m, p))
			INSTAT_INC(icmp6.icp6s_badlen);
		m_freem(m);
		return;
	case MLD_LISTENER_QUERY:
		mld6_input(m, p);
		m_freem(m);
		return;
	}
	if (!insock_input(m, p, 0, 0, p->ip_off))
		m_freem(m);
}
