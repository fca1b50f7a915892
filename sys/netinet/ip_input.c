/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * IPv4 input (RFC 791, RFC 1122, 3.2): every field is checked before it is used, fragments are
 * reassembled, options are stepped over, and the transport gets a struct inet_pkt.
 *
 * Receive offloads: CSUM_IP_CHECKED says that the interface looked at the header's checksum and
 * CSUM_IP_VALID that it was right (mbuf(9)); the transports' flags pass through untouched.
 *
 * Gaps: of the groups only all hosts (224.0.0.1) is joined.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <machine/in_cksum.h>
#include <net/vnet.h>
#include <netinet/ip_var.h>
#include <netinet6/ip6_var.h>

/* Hand a datagram to its transport; m is consumed.  For both IP versions. */
void
inet_pkt_deliver(struct mbuf *m, const struct inet_pkt *p)
{
	bool v4 = inet_is4(&p->ip_dst);

	if (p->ip_proto == IPPROTO_UDP)
		udp_inet_input(m, p);
	else if (p->ip_proto == IPPROTO_TCP)
		tcp_inet_input(m, p);
	else if (p->ip_proto == IPPROTO_ICMP && v4)
		inet_icmp_input(m, p);
	else if (p->ip_proto == IPPROTO_ICMPV6 && !v4)
		inet_icmp6_input(m, p);
	else if (v4) {
		INSTAT_INC(ip.ips_noproto);
		inet_icmp_error(m, ICMP_UNREACH, ICMP_UNREACH_PROTOCOL, 0);
	} else
		inet_icmp6_error(m, ICMP6_PARAM_PROB, ICMP6_PARAMPROB_NEXTHEADER,
		    offsetof(struct ip6_hdr, ip6_nxt));
}

/* No one listens on this port; m is consumed. */
void
inet_unreach(struct mbuf *m, const struct inet_pkt *p)
{
	if (p->ip_bmcast)
		m_freem(m);
	else if (inet_is4(&p->ip_dst))
		inet_icmp_error(m, ICMP_UNREACH, ICMP_UNREACH_PORT, 0);
	else
		inet_icmp6_error(m, ICMP6_DST_UNREACH, ICMP6_DST_UNREACH_NOPORT, 0);
}

static bool
ip_header_cksum_ok(struct mbuf *m, int hlen)
{
	if ((m->m_pkthdr.csum_flags & CSUM_IP_CHECKED) != 0)
		return ((m->m_pkthdr.csum_flags & CSUM_IP_VALID) != 0);
	return (hlen == sizeof(struct ip) ? in_cksum_hdr(mtod(m, struct ip *)) == 0 :
	    in_cksum(m, hlen) == 0);
}

/*
 * Check the header and trim what the link padded.  Gives the mbuf with the whole header
 * contiguous, or NULL if the packet was dropped.
 */
static struct mbuf *
ip_check_header(struct mbuf *m, int *hlenp)
{
	struct ip *ip;
	int hlen, len;

	if (m->m_pkthdr.len < (int)sizeof(struct ip)) {
		INSTAT_INC(ip.ips_toosmall);
		goto drop;
	}
	if (m->m_len < (int)sizeof(struct ip) && (m = m_pullup(m, sizeof(struct ip))) == NULL)
		return (NULL);
	ip = mtod(m, struct ip *);
	hlen = ip->ip_hl << 2;
	if (ip->ip_v != IPVERSION) {
		INSTAT_INC(ip.ips_badvers);
		goto drop;
	}
	if (hlen < (int)sizeof(struct ip) || hlen > m->m_pkthdr.len) {
		INSTAT_INC(ip.ips_badhlen);
		goto drop;
	}
	if (m->m_len < hlen && (m = m_pullup(m, hlen)) == NULL)
		return (NULL);
	ip = mtod(m, struct ip *);
	len = ntohs(ip->ip_len);
	if (!ip_header_cksum_ok(m, hlen)) {
		INSTAT_INC(ip.ips_badsum);
		goto drop;
	}
	if (len < hlen) {
		INSTAT_INC(ip.ips_badlen);
		goto drop;
	}
	if (len > m->m_pkthdr.len) {
		INSTAT_INC(ip.ips_tooshort);
		goto drop;
	}
	if (len < m->m_pkthdr.len)
		m_adj(m, len - m->m_pkthdr.len);
	*hlenp = hlen;
	return (m);
drop:
	m_freem(m);
	return (NULL);
}

/* RFC 1122, 3.2.1.3: what no source is, and what neither end is of anything that comes over a link. */
static bool
ip_bad_address(if_t ifp, const struct ip *ip)
{
	uint32_t src = ntohl(ip->ip_src.s_addr), dst = ntohl(ip->ip_dst.s_addr);

	return (IN_MULTICAST(src) || src == INADDR_BROADCAST ||
	    ((src >> 24 == 127 || dst >> 24 == 127) && if_gettype(ifp) != IFT_LOOP));
}

/* Is it for us?  *bmcast is set if by a broadcast or multicast address. */
static bool
ip_ours(if_t ifp, struct in_addr dst, bool *bmcast)
{
	struct in6_addr mapped = inet_map4(dst);

	*bmcast = false;
	if (inet_addr_islocal(&mapped))
		return (true);
	*bmcast = true;
	if (IN_MULTICAST(ntohl(dst.s_addr)))
		return (dst.s_addr == htonl(INADDR_ALLHOSTS_GROUP));
	return (inet_addr_isbroadcast(ifp, dst));
}

static struct mbuf *
ip_reassemble(struct mbuf *m, int hlen)
{
	struct ip *ip = mtod(m, struct ip *);
	struct inet_fragkey key = {
		.k_src = inet_map4(ip->ip_src),
		.k_dst = inet_map4(ip->ip_dst),
		.k_id = ip->ip_id,
		.k_proto = ip->ip_p,
	};
	int off = ntohs(ip->ip_off);

	INSTAT_INC(ip.ips_fragments);
	m = inet_reass(m, &key, hlen, (off & IP_OFFMASK) << 3, (off & IP_MF) != 0);
	if (m == NULL)
		return (NULL);
	ip = mtod(m, struct ip *);
	ip->ip_len = htons(m->m_pkthdr.len);
	ip->ip_off = 0;
	return (m);
}

/*
 * An IPv4 packet, its link header stripped, from m->m_pkthdr.rcvif.  In the network epoch; m is
 * consumed.
 */
void
ip_input(struct mbuf *m)
{
	if_t ifp = m->m_pkthdr.rcvif;
	struct inet_pkt p;
	struct ip *ip;
	int hlen;

	M_ASSERTPKTHDR(m);
	INSTAT_INC(ip.ips_total);
	m = ip_check_header(m, &hlen);
	if (m == NULL)
		return;
	ip = mtod(m, struct ip *);
	if (ip_bad_address(ifp, ip)) {
		INSTAT_INC(ip.ips_badaddr);
		m_freem(m);
		return;
	}
	if (!ip_ours(ifp, ip->ip_dst, &p.ip_bmcast)) {
		inet_forward4(m);
		return;
	}
	if ((ip->ip_off & htons(IP_MF | IP_OFFMASK)) != 0) {
		m = ip_reassemble(m, hlen);
		if (m == NULL)
			return;
		ip = mtod(m, struct ip *);
		hlen = ip->ip_hl << 2;
	}
	p.ip_src = inet_map4(ip->ip_src);
	p.ip_dst = inet_map4(ip->ip_dst);
	p.ip_ifp = ifp;
	p.ip_off = hlen;
	p.ip_len = m->m_pkthdr.len - hlen;
	p.ip_proto = ip->ip_p;
	p.ip_ttl = ip->ip_ttl;
	p.ip_tos = ip->ip_tos;
	INSTAT_INC(ip.ips_delivered);
	inet_pkt_deliver(m, &p);
}
