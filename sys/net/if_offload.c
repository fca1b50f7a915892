/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Software offloads for what an interface can't do, before the packet is passed to it: partial
 * checksums are finished, and TCP GSO packets are segmented.
 *
 * A packet comes from this host's protocols or from another interface; the flags are the same
 * (mbuf(9)).  Flags that mark a received packet as verified have no meaning to a sending interface,
 * and are cleared.  Offloads that the interface supports are left to it, so that the packet passes
 * through unchanged, on which the speed of a bridge or router between two virtual networks depends.
 *
 * Segments share the payload with the packet that they are cut from; only headers are copied.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/endian.h>
#include <sys/mbuf.h>
#include <sys/socket.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_var.h>
#include <netinet/in.h>
#include <netinet/in_systm.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <netinet6/ip6_var.h>
#include <machine/in_cksum.h>

#include <netinet/inet_tree.h>
#include <net/if_tree.h>

#define	OFFLOAD_CSUM4	CSUM_DELAY_DATA
#define	OFFLOAD_CSUM6	CSUM_DELAY_DATA_IPV6
#define	OFFLOAD_WORK	(CSUM_IP | OFFLOAD_CSUM4 | OFFLOAD_CSUM6 | CSUM_TSO)

#define	OFFLOAD_UDP	(CSUM_IP_UDP | CSUM_IP6_UDP)

/* A packet that is being cut. */
struct offload_cut {
	struct mbuf	*c_m;
	u_int		 c_l3;		/* offsets of the headers and of the payload */
	u_int		 c_l4;
	u_int		 c_data;
	u_int		 c_done;	/* payload bytes cut off already */
	u_int		 c_len;		/* of this segment */
	uint16_t	 c_number;	/* of this segment */
	bool		 c_last;
};

/* The version of the IP header at l3. */
static u_int
offload_version(const struct mbuf *m, u_int l3)
{
	uint8_t first;

	m_copydata(m, l3, sizeof(first), (caddr_t)&first);
	return (first >> 4);
}

/*
 * The offset of the transport header of an IP packet, and its protocol.  0 if the packet ends
 * before it, or is a later fragment.
 */
u_int
if_offload_transport(const struct mbuf *m, u_int l3, uint8_t *proto)
{
	struct ip6_hdr ip6;
	struct ip6_ext ext;
	struct ip ip;
	u_int off, total = m->m_pkthdr.len;

	if (l3 + sizeof(ip) > total)
		return (0);
	if (offload_version(m, l3) == IPVERSION) {
		m_copydata(m, l3, sizeof(ip), (caddr_t)&ip);
		off = l3 + (ip.ip_hl << 2);
		*proto = ip.ip_p;
		return (ip.ip_hl < sizeof(ip) >> 2 || off >= total ||
		    (ip.ip_off & htons(IP_OFFMASK)) != 0 ? 0 : off);
	}
	if (l3 + sizeof(ip6) > total)
		return (0);
	m_copydata(m, l3, sizeof(ip6), (caddr_t)&ip6);
	*proto = ip6.ip6_nxt;
	off = l3 + sizeof(ip6);
	/* Each has eight bytes at least, so that the packet's length ends this. */
	while (off + sizeof(ext) <= total) {
		if (*proto != IPPROTO_HOPOPTS && *proto != IPPROTO_ROUTING &&
		    *proto != IPPROTO_DSTOPTS)
			return (off < total ? off : 0);
		m_copydata(m, off, sizeof(ext), (caddr_t)&ext);
		*proto = ext.ip6e_nxt;
		off += (ext.ip6e_len + 1) << 3;
	}
	return (0);
}

/* The bytes of headers, network and TCP's, that each segment of a big packet has; or 0. */
static u_int
offload_big_headers(const struct mbuf *m, u_int l3)
{
	struct tcphdr th;
	uint8_t proto;
	u_int l4, data;

	l4 = if_offload_transport(m, l3, &proto);
	if (l4 == 0 || proto != IPPROTO_TCP || l4 + sizeof(th) >= (u_int)m->m_pkthdr.len)
		return (0);
	m_copydata(m, l4, sizeof(th), (caddr_t)&th);
	data = l4 + (th.th_off << 2);
	if (th.th_off < sizeof(th) >> 2 || data >= (u_int)m->m_pkthdr.len)
		return (0);
	return (data - l3);
}

bool
if_offload_big(const struct mbuf *m)
{
	return ((m->m_pkthdr.csum_flags & CSUM_TSO) != 0);
}

/*
 * The longest part of a packet on the wire, its network header included, which has to fit the MTU.
 * Of a packet that will be segmented that is one segment.
 */
u_int
if_offload_wire_len(const struct mbuf *m, u_int l3)
{
	u_int len = m->m_pkthdr.len - l3, headers;

	if (!if_offload_big(m) || m->m_pkthdr.tso_segsz == 0)
		return (len);
	headers = offload_big_headers(m, l3);
	return (headers == 0 ? len : MIN(len, headers + m->m_pkthdr.tso_segsz));
}

/* Finish the sum of the packet's transport; the field has the pseudo header's. */
static void
offload_finish_cksum(struct mbuf *m, u_int l3)
{
	bool v4 = (m->m_pkthdr.csum_flags & OFFLOAD_CSUM4) != 0;
	bool udp = (m->m_pkthdr.csum_flags & OFFLOAD_UDP) != 0;
	uint16_t sum;
	uint8_t proto;
	u_int l4, field;

	l4 = if_offload_transport(m, l3, &proto);
	field = l4 + m->m_pkthdr.csum_data;
	m->m_pkthdr.csum_flags &= v4 ? ~OFFLOAD_CSUM4 : ~OFFLOAD_CSUM6;
	if (l4 == 0 || field + sizeof(sum) > (u_int)m->m_pkthdr.len)
		return;
	sum = in_cksum_skip(m, m->m_pkthdr.len, l4);
	/* RFC 768: a sum of zero is sent as all ones. */
	if (udp && sum == 0)
		sum = 0xffff;
	m_copyback(m, field, sizeof(sum), (c_caddr_t)&sum);
}

static void
offload_segment_ip4(const struct offload_cut *c, struct ip *ip)
{
	ip->ip_len = htons(c->c_data - c->c_l3 + c->c_len);
	ip->ip_id = htons(ntohs(ip->ip_id) + c->c_number);
	ip->ip_sum = 0;
	ip->ip_sum = ~inet_cksum_fold(inet_cksum_add(0, ip, ip->ip_hl << 2));
}

static void
offload_segment_tcp(const struct offload_cut *c, struct tcphdr *th, const struct in6_addr *src,
    const struct in6_addr *dst)
{
	th->th_seq = htonl(ntohl(th->th_seq) + c->c_done);
	if (!c->c_last)
		th->th_flags &= ~(TH_FIN | TH_PUSH);
	/* RFC 3168, 6.1.2: the window was reduced once. */
	if (c->c_number != 0)
		th->th_flags &= ~TH_CWR;
	th->th_sum = inet_pseudo(src, dst, c->c_data - c->c_l4 + c->c_len, IPPROTO_TCP);
}

/* One segment: headers of its own, and a reference to its part of the payload. */
static struct mbuf *
offload_segment(const struct offload_cut *c)
{
	struct in6_addr src, dst;
	struct ip6_hdr *ip6;
	struct mbuf *s;
	struct ip *ip;
	bool v4 = offload_version(c->c_m, c->c_l3) == IPVERSION;

	s = m_get2(max_linkhdr + c->c_data, M_NOWAIT, MT_DATA, M_PKTHDR);
	if (s == NULL)
		return (NULL);
	if (m_dup_pkthdr(s, c->c_m, M_NOWAIT) == 0) {
		m_freem(s);
		return (NULL);
	}
	s->m_data += max_linkhdr;
	s->m_len = c->c_data;
	s->m_pkthdr.len = c->c_data + c->c_len;
	s->m_pkthdr.csum_flags = v4 ? CSUM_IP_TCP : CSUM_IP6_TCP;
	s->m_pkthdr.csum_data = offsetof(struct tcphdr, th_sum);
	s->m_pkthdr.tso_segsz = 0;
	m_copydata(c->c_m, 0, c->c_data, mtod(s, caddr_t));
	s->m_next = m_copym(c->c_m, c->c_data + c->c_done, c->c_len, M_NOWAIT);
	if (s->m_next == NULL) {
		m_freem(s);
		return (NULL);
	}
	if (v4) {
		ip = (struct ip *)(mtod(s, caddr_t) + c->c_l3);
		offload_segment_ip4(c, ip);
		src = inet_map4(ip->ip_src);
		dst = inet_map4(ip->ip_dst);
	} else {
		ip6 = (struct ip6_hdr *)(mtod(s, caddr_t) + c->c_l3);
		ip6->ip6_plen = htons(s->m_pkthdr.len - c->c_l3 - sizeof(*ip6));
		src = ip6->ip6_src;
		dst = ip6->ip6_dst;
	}
	offload_segment_tcp(c, (struct tcphdr *)(mtod(s, caddr_t) + c->c_l4), &src, &dst);
	return (s);
}

/*
 * Segment a packet; NULL if it is invalid or there is no memory for all of it.  The packet is
 * consumed.
 */
static struct mbuf *
offload_cut(struct mbuf *m, u_int l3)
{
	struct offload_cut c = { .c_m = m, .c_l3 = l3 };
	struct mbuf *head = NULL, **tail = &head, *s = NULL;
	u_int headers, payload;
	uint8_t proto;

	headers = offload_big_headers(m, l3);
	if (headers != 0 && m->m_pkthdr.tso_segsz != 0) {
		c.c_l4 = if_offload_transport(m, l3, &proto);
		c.c_data = l3 + headers;
		payload = m->m_pkthdr.len - c.c_data;
		for (; c.c_done < payload; c.c_done += c.c_len, c.c_number++) {
			c.c_len = MIN(payload - c.c_done, m->m_pkthdr.tso_segsz);
			c.c_last = c.c_done + c.c_len == payload;
			s = offload_segment(&c);
			if (s == NULL)
				break;
			*tail = s;
			tail = &s->m_nextpkt;
		}
	}
	m_freem(m);
	if (s == NULL) {
		m_freemp(head);
		return (NULL);
	}
	return (head);
}

/* What the interface does for this packet; a tag in the frame hides the headers from most. */
static uint64_t
offload_assist(if_t ifp, const struct mbuf *m, u_int l3)
{
	uint64_t assist = (u_int)if_gethwassist(ifp);

	if (l3 > ETHER_HDR_LEN)
		return (0);
	if ((m->m_flags & M_VLANTAG) != 0) {
		if ((if_getcapenable(ifp) & IFCAP_VLAN_HWTAGGING) == 0)
			return (0);
		if ((if_getcapenable(ifp) & IFCAP_VLAN_HWCSUM) == 0)
			assist &= ~(OFFLOAD_CSUM4 | OFFLOAD_CSUM6);
		if ((if_getcapenable(ifp) & IFCAP_VLAN_HWTSO) == 0)
			assist &= ~CSUM_TSO;
	}
	if ((m->m_pkthdr.csum_flags & CSUM_TSO) != 0 && if_gethwtsomax(ifp) != 0 &&
	    m->m_pkthdr.len - l3 > if_gethwtsomax(ifp))
		assist &= ~CSUM_TSO;
	return (assist);
}

/* Do what is missing of a packet that is not to be cut, or not any more. */
static void
offload_do(struct mbuf *m, u_int l3, uint64_t missing)
{
	struct ip *ip;

	if ((missing & (OFFLOAD_CSUM4 | OFFLOAD_CSUM6)) != 0)
		offload_finish_cksum(m, l3);
	if ((missing & CSUM_IP) == 0)
		return;
	m->m_pkthdr.csum_flags &= ~CSUM_IP;
	ip = (struct ip *)(mtod(m, caddr_t) + l3);
	if (m->m_len >= (int)(l3 + sizeof(*ip)) && m->m_len >= (int)(l3 + (ip->ip_hl << 2))) {
		ip->ip_sum = 0;
		ip->ip_sum = ~inet_cksum_fold(inet_cksum_add(0, ip, ip->ip_hl << 2));
	}
}

static void
offload_finish(if_t ifp, struct mbuf *m, u_int l3)
{
	offload_do(m, l3, m->m_pkthdr.csum_flags & ~offload_assist(ifp, m, l3));
}

/*
 * The sum that a transport's field holds before the rest is added (RFC 793, 3.1; RFC 8200, 8.1).
 */
static uint16_t
offload_pseudo(const struct mbuf *m, u_int l3, u_int l4, uint8_t proto)
{
	struct in6_addr src, dst;
	struct ip6_hdr ip6;
	struct ip ip;

	if (offload_version(m, l3) == IPVERSION) {
		m_copydata(m, l3, sizeof(ip), (caddr_t)&ip);
		src = inet_map4(ip.ip_src);
		dst = inet_map4(ip.ip_dst);
	} else {
		m_copydata(m, l3, sizeof(ip6), (caddr_t)&ip6);
		src = ip6.ip6_src;
		dst = ip6.ip6_dst;
	}
	return (inet_pseudo(&src, &dst, m->m_pkthdr.len - l4, proto));
}

void
if_offload_finish_sums(struct mbuf *m, u_int l3)
{
	uint16_t pseudo;
	uint8_t proto;
	u_int l4, field;
	bool v4;

	l4 = if_offload_transport(m, l3, &proto);
	if (l4 != 0 && (proto == IPPROTO_TCP || proto == IPPROTO_UDP)) {
		/* From the start: a driver may have finished it, and have left the marks. */
		v4 = offload_version(m, l3) == IPVERSION;
		field = proto == IPPROTO_TCP ? offsetof(struct tcphdr, th_sum) :
		    offsetof(struct udphdr, uh_sum);
		pseudo = offload_pseudo(m, l3, l4, proto);
		if (l4 + field + sizeof(pseudo) <= (u_int)m->m_pkthdr.len)
			m_copyback(m, l4 + field, sizeof(pseudo), (c_caddr_t)&pseudo);
		m->m_pkthdr.csum_data = field;
		m->m_pkthdr.csum_flags |= proto == IPPROTO_TCP ?
		    (v4 ? CSUM_IP_TCP : CSUM_IP6_TCP) : (v4 ? CSUM_IP_UDP : CSUM_IP6_UDP);
	}
	offload_do(m, l3, m->m_pkthdr.csum_flags);
}

struct mbuf *
if_offload_segments(if_t ifp, struct mbuf *m, u_int l3)
{
	struct mbuf *s;

	m = offload_cut(m, l3);
	if (m == NULL)
		if_inc_counter(ifp, IFCOUNTER_OQDROPS, 1);
	for (s = m; s != NULL; s = s->m_nextpkt)
		offload_finish(ifp, s, l3);
	return (m);
}

int
if_offload_send(struct mbuf *m, int (*one)(const void *, struct mbuf *), const void *arg)
{
	struct mbuf *next;
	int error = 0;
	bool sent = false;

	if (m == NULL)
		return (ENOBUFS);
	for (; m != NULL; m = next) {
		next = m->m_nextpkt;
		m->m_nextpkt = NULL;
		if (error != 0) {
			m_freem(m);
			continue;
		}
		error = one(arg, m);
		sent |= error == 0;
	}
	return (sent ? 0 : error);
}

struct mbuf *
if_offload_finish(if_t ifp, struct mbuf *m, u_int l3)
{
	uint64_t missing;

	m->m_pkthdr.csum_flags &= OFFLOAD_WORK;
	if (m->m_pkthdr.csum_flags == 0)
		return (m);
	missing = m->m_pkthdr.csum_flags & ~offload_assist(ifp, m, l3);
	if (missing == 0)
		return (m);
	/* The header's sum can be finished before the packet is cut; who cuts it renews it. */
	if (if_offload_big(m) && missing != CSUM_IP)
		return (if_offload_segments(ifp, m, l3));
	offload_finish(ifp, m, l3);
	return (m);
}
