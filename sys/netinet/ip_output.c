/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * IPv4 output (RFC 791): the header, the checksums that the interface doesn't make, fragments.
 *
 * Gaps: no options are sent.
 */

#include <netinet/inet_stack.h>
#include <netinet/inet_stat.h>
#include <machine/in_cksum.h>

#define	IP_TTL_DEFAULT	64

static volatile u_int ip_nextid;

/*
 * One fragment: a header of its own and a reference to the payload's bytes off .. off+len.
 */
static struct mbuf *
ip_make_fragment(const struct mbuf *m, const struct ip *ip, int off, int len, bool last)
{
	struct mbuf *f, *data;
	struct ip *fip;

	f = m_gethdr(M_NOWAIT, MT_DATA);
	if (f == NULL)
		return (NULL);
	f->m_data += max_linkhdr;
	f->m_len = sizeof(*fip);
	f->m_flags |= m->m_flags & (M_BCAST | M_MCAST);
	fip = mtod(f, struct ip *);
	*fip = *ip;
	fip->ip_off = htons(ntohs(ip->ip_off) + (off >> 3));
	if (!last)
		fip->ip_off |= htons(IP_MF);
	fip->ip_len = htons(sizeof(*fip) + len);
	data = m_copym(__DECONST(struct mbuf *, m), sizeof(*ip) + off, len, M_NOWAIT);
	if (data == NULL) {
		m_freem(f);
		return (NULL);
	}
	f->m_next = data;
	f->m_pkthdr.len = sizeof(*fip) + len;
	return (f);
}

/* Cut a packet, whose transport checksum is finished, into pieces of at most mtu bytes. */
static int
ip_cut(struct mbuf *m, u_int mtu, struct mbufq *out)
{
	struct ip ip;
	struct mbuf *f;
	int off, len, payload, step;

	m_copydata(m, 0, sizeof(ip), (caddr_t)&ip);
	payload = m->m_pkthdr.len - sizeof(ip);
	step = (mtu - sizeof(ip)) & ~7;
	for (off = 0; off < payload; off += len) {
		len = min(step, payload - off);
		f = ip_make_fragment(m, &ip, off, len, off + len == payload);
		if (f == NULL || mbufq_enqueue(out, f) != 0) {
			m_freem(f);
			mbufq_drain(out);
			return (ENOBUFS);
		}
	}
	INSTAT_ADD(ip.ips_ofragments, mbufq_len(out));
	return (0);
}

/* The header's checksum: by the interface if it can. */
static int
ip_send(struct mbuf *m, const struct inet_nexthop *nh)
{
	struct ip *ip = mtod(m, struct ip *);

	ip->ip_sum = 0;
	if ((if_gethwassist(nh->nh_ifp) & CSUM_IP) != 0)
		m->m_pkthdr.csum_flags |= CSUM_IP;
	else
		ip->ip_sum = in_cksum_hdr(ip);
	return (inet_link_output(nh->nh_ifp, m, &nh->nh_addr));
}

static int
ip_send_fragmented(struct mbuf *m, const struct inet_nexthop *nh)
{
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
			error = ip_send(f, nh);
		else
			m_freem(f);
	}
	return (error);
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
	uint32_t missing;

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
	INSTAT_INC(ip.ips_localout);
	if (nh->nh_ifp == NULL) {
		inet_loop_output(NULL, m);
		return (0);
	}
	missing = m->m_pkthdr.csum_flags & (CSUM_DELAY_DATA | CSUM_IP_TSO) &
	    ~if_gethwassist(nh->nh_ifp);
	if (m->m_pkthdr.len <= (int)nh->nh_mtu ||
	    ((m->m_pkthdr.csum_flags & CSUM_IP_TSO) != 0 && (missing & CSUM_IP_TSO) == 0)) {
		if ((missing & CSUM_DELAY_DATA) != 0)
			in_delayed_cksum(m);
		return (ip_send(m, nh));
	}
	if ((o->o_flags & INETO_DF) != 0) {
		INSTAT_INC(ip.ips_cantfrag);
		m_freem(m);
		return (EMSGSIZE);
	}
	return (ip_send_fragmented(m, nh));
}
