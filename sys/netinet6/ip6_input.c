/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * IPv6 input (RFC 8200): the header is checked, the chain of extension headers is followed with a
 * bound on its number and on its bytes, fragments are reassembled, and the transport gets a struct
 * inet_pkt.
 *
 * Gaps: no jumbograms, no IPsec.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet6/in6_var.h>

#define	IP6_MAXEXT	8		/* extension headers in one packet */
#define	IP6_MAXEXTBYTES	1024		/* and their bytes */
#define	IP6_MAXUNFRAG	120		/* bytes in front of a fragment header, itself included */

/* Where the walk along the extension headers is. */
struct ip6_walk {
	int		w_off;		/* of the header that w_nxt names */
	int		w_prev;		/* of the byte that named it */
	uint8_t		w_nxt;
	int		w_count;
};

/* Addresses that no packet of a link may have (RFC 4291, 2.5.2, 2.5.3, 2.7; RFC 4038, 4.2). */
static bool
ip6_bad_address(if_t ifp, const struct ip6_hdr *ip6)
{
	bool loop = if_gettype(ifp) == IFT_LOOP;

	return (IN6_IS_ADDR_MULTICAST(&ip6->ip6_src) || IN6_IS_ADDR_UNSPECIFIED(&ip6->ip6_dst) ||
	    IN6_IS_ADDR_V4MAPPED(&ip6->ip6_src) || IN6_IS_ADDR_V4MAPPED(&ip6->ip6_dst) ||
	    (!loop && (IN6_IS_ADDR_LOOPBACK(&ip6->ip6_src) ||
	    IN6_IS_ADDR_LOOPBACK(&ip6->ip6_dst))));
}

/* Check the fixed header and trim what the link padded; NULL if the packet was dropped. */
static struct mbuf *
ip6_check_header(struct mbuf *m)
{
	struct ip6_hdr *ip6;
	int len;

	if (m->m_pkthdr.len < (int)sizeof(*ip6)) {
		INSTAT_INC(ip6.ip6s_toosmall);
		m_freem(m);
		return (NULL);
	}
	if (m->m_len < (int)sizeof(*ip6) && (m = m_pullup(m, sizeof(*ip6))) == NULL)
		return (NULL);
	ip6 = mtod(m, struct ip6_hdr *);
	len = sizeof(*ip6) + ntohs(ip6->ip6_plen);
	if ((ip6->ip6_vfc & IPV6_VERSION_MASK) != IPV6_VERSION)
		INSTAT_INC(ip6.ip6s_badvers);
	else if (ip6_bad_address(m->m_pkthdr.rcvif, ip6))
		INSTAT_INC(ip6.ip6s_badscope);
	else if (len > m->m_pkthdr.len)
		INSTAT_INC(ip6.ip6s_tooshort);
	else {
		if (len < m->m_pkthdr.len)
			m_adj(m, len - m->m_pkthdr.len);
		return (m);
	}
	m_freem(m);
	return (NULL);
}

/* Is it for us? */
static bool
ip6_ours(if_t ifp, const struct in6_addr *dst)
{
	struct inet_addr ia;

	if (IN6_IS_ADDR_MULTICAST(dst))
		return (mld6_member(ifp, dst));
	/* A link-local address is ours only on its own link, or when we talk to ourselves. */
	if (IN6_IS_ADDR_LINKLOCAL(dst) && if_gettype(ifp) != IFT_LOOP)
		return (inet_addr_find(ifp, dst, &ia) && (ia.ad_flags & IN6_IFF_NOTREADY) == 0);
	return (inet_addr_islocal(dst));
}

/*
 * The options of a hop-by-hop or destination header between off and end (RFC 8200, 4.2).  True to
 * go on; false if the packet was consumed.
 */
static bool
ip6_options(struct mbuf *m, int off, int end)
{
	uint8_t opt[2];

	while (off < end) {
		m_copydata(m, off, 1, opt);
		if (opt[0] == IP6OPT_PAD1) {
			off++;
			continue;
		}
		if (off + 2 > end)
			break;
		m_copydata(m, off, 2, opt);
		if (off + 2 + opt[1] > end)
			break;
		if (opt[0] != IP6OPT_PADN && opt[0] != IP6OPT_ROUTER_ALERT &&
		    IP6OPT_TYPE(opt[0]) != IP6OPT_TYPE_SKIP) {
			INSTAT_INC(ip6.ip6s_badoptions);
			if (IP6OPT_TYPE(opt[0]) == IP6OPT_TYPE_DISCARD ||
			    (IP6OPT_TYPE(opt[0]) == IP6OPT_TYPE_ICMP &&
			    (m->m_flags & M_MCAST) != 0))
				m_freem(m);
			else
				inet_icmp6_error(m, ICMP6_PARAM_PROB, ICMP6_PARAMPROB_OPTION, off);
			return (false);
		}
		off += 2 + opt[1];
	}
	if (off == end)
		return (true);
	INSTAT_INC(ip6.ip6s_badoptions);
	m_freem(m);
	return (false);
}

/* A hop-by-hop, destination or routing header: step over it.  False if the packet was consumed. */
static bool
ip6_step(struct mbuf *m, struct ip6_walk *w)
{
	uint8_t ext[4];
	int len;

	if (w->w_off + 8 > m->m_pkthdr.len)
		goto short_packet;
	m_copydata(m, w->w_off, sizeof(ext), ext);
	len = (ext[1] + 1) << 3;
	if (w->w_off + len > m->m_pkthdr.len)
		goto short_packet;
	if (w->w_off + len > IP6_MAXEXTBYTES + (int)sizeof(struct ip6_hdr) ||
	    ++w->w_count > IP6_MAXEXT) {
		INSTAT_INC(ip6.ip6s_toomanyhdr);
		m_freem(m);
		return (false);
	}
	if (w->w_nxt == IPPROTO_ROUTING) {
		/* We are the last hop only if no segments are left (RFC 8200, 4.4). */
		if (ext[3] != 0) {
			inet_icmp6_error(m, ICMP6_PARAM_PROB, ICMP6_PARAMPROB_HEADER, w->w_off + 2);
			return (false);
		}
	} else if (!ip6_options(m, w->w_off + 2, w->w_off + len))
		return (false);
	w->w_prev = w->w_off;
	w->w_nxt = ext[0];
	w->w_off += len;
	return (true);
short_packet:
	INSTAT_INC(ip6.ip6s_tooshort);
	m_freem(m);
	return (false);
}

/*
 * A fragment header: take it out and put the fragment away, or give the whole packet, in which the
 * walk goes on.
 */
static struct mbuf *
ip6_fragment_header(struct mbuf *m, struct ip6_walk *w)
{
	struct inet_fragkey key = { 0 };
	struct ip6_hdr *ip6;
	struct ip6_frag frag;
	uint8_t *p;
	int hdrs = w->w_off + sizeof(frag);

	INSTAT_INC(ip6.ip6s_fragments);
	if (++w->w_count > IP6_MAXEXT || hdrs > IP6_MAXUNFRAG || hdrs > m->m_pkthdr.len) {
		INSTAT_INC(ip6.ip6s_fragdropped);
		m_freem(m);
		return (NULL);
	}
	if ((m->m_len < hdrs || !M_WRITABLE(m)) && (m = m_copyup(m, hdrs, 0)) == NULL)
		return (NULL);
	p = mtod(m, uint8_t *);
	memcpy(&frag, p + w->w_off, sizeof(frag));
	p[w->w_prev] = frag.ip6f_nxt;
	memmove(p + sizeof(frag), p, w->w_off);
	m_adj(m, sizeof(frag));
	w->w_nxt = frag.ip6f_nxt;
	ip6 = mtod(m, struct ip6_hdr *);
	if ((frag.ip6f_offlg & (IP6F_OFF_MASK | IP6F_MORE_FRAG)) == 0)
		INSTAT_INC(ip6.ip6s_atomicfrags);
	else {
		key.k_src = ip6->ip6_src;
		key.k_dst = ip6->ip6_dst;
		key.k_id = frag.ip6f_ident;
		/* The first fragment's headers will be walked as if they were this one's. */
		key.k_proto = w->w_off;
		m = inet_reass(m, &key, w->w_off, ntohs(frag.ip6f_offlg & IP6F_OFF_MASK),
		    (frag.ip6f_offlg & IP6F_MORE_FRAG) != 0);
		if (m == NULL)
			return (NULL);
	}
	/* The first fragment's header is in force, and what it says comes next. */
	ip6 = mtod(m, struct ip6_hdr *);
	w->w_nxt = mtod(m, uint8_t *)[w->w_prev];
	ip6->ip6_plen = htons(m->m_pkthdr.len - sizeof(*ip6));
	return (m);
}

/* Follow the chain to the transport header; NULL if the packet was consumed. */
static struct mbuf *
ip6_walk_headers(struct mbuf *m, struct ip6_walk *w)
{
	for (;;) {
		switch (w->w_nxt) {
		case IPPROTO_HOPOPTS:
			/* Only as the first (RFC 8200, 4.1). */
			if (w->w_off != sizeof(struct ip6_hdr)) {
				inet_icmp6_error(m, ICMP6_PARAM_PROB, ICMP6_PARAMPROB_NEXTHEADER,
				    w->w_prev);
				return (NULL);
			}
			/* FALLTHROUGH */
		case IPPROTO_DSTOPTS:
		case IPPROTO_ROUTING:
			if (!ip6_step(m, w))
				return (NULL);
			break;
		case IPPROTO_FRAGMENT:
			m = ip6_fragment_header(m, w);
			if (m == NULL)
				return (NULL);
			break;
		case IPPROTO_NONE:
			m_freem(m);
			return (NULL);
		default:
			return (m);
		}
	}
}

/*
 * An IPv6 packet, its link header stripped, from m->m_pkthdr.rcvif.  In the network epoch; m is
 * consumed.
 */
void
ip6_input(struct mbuf *m)
{
	if_t ifp = m->m_pkthdr.rcvif;
	struct ip6_walk w = { .w_off = sizeof(struct ip6_hdr) };
	struct inet_pkt p;
	struct ip6_hdr *ip6;

	M_ASSERTPKTHDR(m);
	INSTAT_INC(ip6.ip6s_total);
	m = ip6_check_header(m);
	if (m == NULL)
		return;
	ip6 = mtod(m, struct ip6_hdr *);
	INSTAT_INC(ip6.ip6s_nxthist[ip6->ip6_nxt]);
	if (!ip6_ours(ifp, &ip6->ip6_dst)) {
		if (IN6_IS_ADDR_MULTICAST(&ip6->ip6_dst)) {
			INSTAT_INC(ip6.ip6s_notmember);
			m_freem(m);
		} else
			inet_forward6(m);
		return;
	}
	w.w_nxt = ip6->ip6_nxt;
	w.w_prev = offsetof(struct ip6_hdr, ip6_nxt);
	m = ip6_walk_headers(m, &w);
	if (m == NULL)
		return;
	ip6 = mtod(m, struct ip6_hdr *);
	p.ip_src = ip6->ip6_src;
	p.ip_dst = ip6->ip6_dst;
	p.ip_ifp = ifp;
	p.ip_off = w.w_off;
	p.ip_len = m->m_pkthdr.len - w.w_off;
	p.ip_proto = w.w_nxt;
	p.ip_ttl = ip6->ip6_hlim;
	p.ip_tos = IPV6_TRAFFIC_CLASS(ip6);
	p.ip_bmcast = IN6_IS_ADDR_MULTICAST(&ip6->ip6_dst);
	INSTAT_INC(ip6.ip6s_delivered);
	inet_pkt_deliver(m, &p);
}
