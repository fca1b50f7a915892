/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * IPv4 output (RFC 791): the header, the checksums that the interface doesn't make, fragments.
 *
 * Gaps: no options are sent.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <machine/in_cksum.h>
#include <net/if_tree.h>

#define	IP_TTL_DEFAULT	64

static volatile u_int ip_nextid;

/* A header with its options. */
union ip_header {
	struct ip	h_ip;
	uint8_t		h_bytes[15 << 2];
};

/*
 * Make it the header of the fragments behind the first: of the options there stay those that say
 * that they are to be copied (RFC 791, 3.1).
 */
static void
ip_later_header(union ip_header *h)
{
	const uint8_t *p = h->h_bytes + sizeof(struct ip);
	const uint8_t *end = h->h_bytes + (h->h_ip.ip_hl << 2);
	u_int n = sizeof(struct ip), len;

	for (; p < end && p[0] != IPOPT_EOL; p += len) {
		len = 1;
		if (p[0] == IPOPT_NOP)
			continue;
		if (end - p < 2 || (len = p[1]) < 2 || len > end - p)
			break;
		if (IPOPT_COPIED(p[0])) {
			memmove(h->h_bytes + n, p, len);
			n += len;
		}
	}
	for (; (n & 3) != 0; n++)
		h->h_bytes[n] = IPOPT_EOL;
	h->h_ip.ip_hl = n >> 2;
}

/*
 * One fragment: a header of its own and a reference to the payload's bytes off .. off+len, which
 * begin at skip.
 */
static struct mbuf *
ip_make_fragment(struct mbuf *m, const union ip_header *h, int skip, int off, int len, bool last)
{
	int hlen = h->h_ip.ip_hl << 2;
	struct mbuf *f;
	struct ip *ip;

	f = m_gethdr(M_NOWAIT, MT_DATA);
	if (f == NULL)
		return (NULL);
	f->m_data += max_linkhdr;
	f->m_len = hlen;
	f->m_flags |= m->m_flags & (M_BCAST | M_MCAST);
	f->m_pkthdr.rcvif = m->m_pkthdr.rcvif;
	ip = mtod(f, struct ip *);
	memcpy(ip, h, hlen);
	ip->ip_off = htons(ntohs(ip->ip_off) + (off >> 3));
	if (!last)
		ip->ip_off |= htons(IP_MF);
	ip->ip_len = htons(hlen + len);
	ip->ip_sum = 0;
	ip->ip_sum = in_cksum(f, hlen);
	f->m_next = m_copym(m, skip + off, len, M_NOWAIT);
	if (f->m_next == NULL) {
		m_freem(f);
		return (NULL);
	}
	f->m_pkthdr.len = hlen + len;
	return (f);
}

/* Cut a packet, whose transport checksum is finished, into pieces of at most mtu bytes. */
static int
ip_cut(struct mbuf *m, u_int mtu, struct mbufq *out)
{
	union ip_header h;
	struct mbuf *f;
	int hlen = mtod(m, struct ip *)->ip_hl << 2, off, len, payload, step;

	memcpy(&h, mtod(m, struct ip *), hlen);
	payload = m->m_pkthdr.len - hlen;
	step = (mtu - hlen) & ~7;
	for (off = 0; off < payload; off += len) {
		len = min(step, payload - off);
		f = ip_make_fragment(m, &h, hlen, off, len, off + len == payload);
		if (f == NULL || mbufq_enqueue(out, f) != 0) {
			m_freem(f);
			mbufq_drain(out);
			return (ENOBUFS);
		}
		if (off == 0)
			ip_later_header(&h);
	}
	INSTAT_ADD(ip.ips_ofragments, mbufq_len(out));
	return (0);
}

static int
ip_send_fragmented(const void *arg, struct mbuf *m)
{
	const struct inet_nexthop *nh = arg;
	struct mbufq out;
	struct mbuf *f;
	int error;

	mbufq_init(&out, IP_MAXPACKET / 8);
	if (nh->nh_mtu < IF_MINMTU) {
		m_freem(m);
		return (EMSGSIZE);
	}
	if ((m->m_pkthdr.csum_flags & CSUM_DELAY_DATA) != 0)
		in_delayed_cksum(m);
	error = ip_cut(m, nh->nh_mtu, &out);
	m_freem(m);
	if (error == 0)
		INSTAT_INC(ip.ips_fragmented);
	while ((f = mbufq_dequeue(&out)) != NULL) {
		if (error == 0)
			error = inet_link_output(nh, f);
		else
			m_freem(f);
	}
	return (error);
}

/*
 * Send a packet that may be fragmented, or fits: as it is if the interface does what is left to do
 * for it.  Its header is contiguous and, but for a checksum that is marked CSUM_IP, complete.
 * ENOBUFS, or what the interface said.
 */
int
inet_send4(struct mbuf *m, const struct inet_nexthop *nh)
{
	if (if_offload_wire_len(m, 0) <= nh->nh_mtu)
		return (if_offload_send(if_offload_finish(nh->nh_ifp, m, 0), inet_link_output, nh));
	if (if_offload_big(m))
		m = if_offload_segments(nh->nh_ifp, m, 0);
	return (if_offload_send(m, ip_send_fragmented, nh));
}

static void
ip_fill(struct mbuf *m, const struct inet_out *o)
{
	struct ip *ip = mtod(m, struct ip *);

	memset(ip, 0, sizeof(*ip));
	ip->ip_v = IPVERSION;
	ip->ip_hl = sizeof(*ip) >> 2;
	ip->ip_tos = o->o_tos;
	ip->ip_len = htons(m->m_pkthdr.len);
	ip->ip_id = htons(atomic_fetchadd_int(&ip_nextid, 1));
	ip->ip_off = htons((o->o_flags & INETO_DF) != 0 ? IP_DF : 0);
	ip->ip_ttl = o->o_ttl != 0 ? o->o_ttl :
	    inet_multicast(&o->o_dst) ? IP_DEFAULT_MULTICAST_TTL : IP_TTL_DEFAULT;
	ip->ip_p = o->o_proto;
	ip->ip_src = inet_unmap4(&o->o_src);
	ip->ip_dst = inet_unmap4(&o->o_dst);
}

/*
 * inet_output() for IPv4: way and source are chosen.
 */
int
inet_output4(struct mbuf *m, const struct inet_out *o, const struct inet_nexthop *nh)
{
	struct ip *ip;

	M_PREPEND(m, sizeof(struct ip), M_NOWAIT);
	if (m == NULL) {
		INSTAT_INC(ip.ips_odropped);
		return (ENOBUFS);
	}
	if (m->m_pkthdr.len > IP_MAXPACKET) {
		INSTAT_INC(ip.ips_toolong);
		m_freem(m);
		return (EMSGSIZE);
	}
	ip_fill(m, o);
	ip = mtod(m, struct ip *);
	INSTAT_INC(ip.ips_localout);
	if (nh->nh_ifp == NULL) {
		inet_loop_output(NULL, m);
		return (0);
	}
	if ((o->o_flags & INETO_DF) != 0 && if_offload_wire_len(m, 0) > nh->nh_mtu) {
		INSTAT_INC(ip.ips_cantfrag);
		m_freem(m);
		return (EMSGSIZE);
	}
	/* The header's checksum: by the interface if it can. */
	if ((if_gethwassist(nh->nh_ifp) & CSUM_IP) != 0)
		m->m_pkthdr.csum_flags |= CSUM_IP;
	else
		ip->ip_sum = in_cksum_hdr(ip);
	return (inet_send4(m, nh));
}
