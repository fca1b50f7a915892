/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * IPv6 output (RFC 8200): the header, a router alert for MLD, fragments where only the source may
 * make them.
 *
 * Gaps: no flow labels, no other extension headers.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <net/if_tree.h>

static volatile u_int ip6_nextid;

/* One fragment: headers of its own and a reference to the payload's bytes off .. off+len. */
static struct mbuf *
ip6_make_fragment(const struct mbuf *m, const struct ip6_hdr *ip6, uint32_t id, int off, int len,
    bool last)
{
	struct ip6_hdr *fip6;
	struct ip6_frag *frag;
	struct mbuf *f, *data;

	f = m_gethdr(M_NOWAIT, MT_DATA);
	if (f == NULL)
		return (NULL);
	f->m_data += max_linkhdr;
	f->m_len = sizeof(*fip6) + sizeof(*frag);
	f->m_flags |= m->m_flags & M_MCAST;
	fip6 = mtod(f, struct ip6_hdr *);
	*fip6 = *ip6;
	fip6->ip6_nxt = IPPROTO_FRAGMENT;
	fip6->ip6_plen = htons(sizeof(*frag) + len);
	frag = (struct ip6_frag *)(fip6 + 1);
	frag->ip6f_nxt = ip6->ip6_nxt;
	frag->ip6f_reserved = 0;
	frag->ip6f_offlg = htons(off) | (last ? 0 : IP6F_MORE_FRAG);
	frag->ip6f_ident = id;
	data = m_copym(__DECONST(struct mbuf *, m), sizeof(*ip6) + off, len, M_NOWAIT);
	if (data == NULL) {
		m_freem(f);
		return (NULL);
	}
	f->m_next = data;
	f->m_pkthdr.len = f->m_len + len;
	return (f);
}

static int
ip6_send_fragmented(struct mbuf *m, const struct inet_nexthop *nh)
{
	int off, len, error = 0, payload = m->m_pkthdr.len - sizeof(struct ip6_hdr), step;
	uint32_t id = htonl(atomic_fetchadd_int(&ip6_nextid, 1));
	struct ip6_hdr ip6;
	struct mbuf *f;

	if ((m->m_pkthdr.csum_flags & CSUM_DELAY_DATA_IPV6) != 0)
		in6_delayed_cksum(m, payload, sizeof(ip6));
	m_copydata(m, 0, sizeof(ip6), (caddr_t)&ip6);
	step = (max(nh->nh_mtu, IPV6_MMTU) - sizeof(ip6) - sizeof(struct ip6_frag)) & ~7;
	INSTAT_INC(ip6.ip6s_fragmented);
	for (off = 0; off < payload && error == 0; off += len) {
		len = min(step, payload - off);
		f = ip6_make_fragment(m, &ip6, id, off, len, off + len == payload);
		if (f == NULL)
			error = ENOBUFS;
		else {
			INSTAT_INC(ip6.ip6s_ofragments);
			error = inet_link_output(nh, f);
		}
	}
	m_freem(m);
	return (error);
}

/* The hop-by-hop header with a router alert that MLD needs (RFC 3810, 5). */
static struct mbuf *
ip6_add_alert(struct mbuf *m)
{
	static const uint8_t hbh[8] = {
		IPPROTO_ICMPV6, 0, IP6OPT_ROUTER_ALERT, 2, 0, IP6OPT_RTALERT_MLD, IP6OPT_PADN, 0
	};

	M_PREPEND(m, sizeof(hbh), M_NOWAIT);
	if (m != NULL)
		memcpy(mtod(m, uint8_t *), hbh, sizeof(hbh));
	return (m);
}

static struct mbuf *
ip6_fill(struct mbuf *m, const struct inet_out *o)
{
	bool alert = (o->o_flags & INETO_ALERT) != 0;
	struct ip6_hdr *ip6;

	if (alert && (m = ip6_add_alert(m)) == NULL)
		return (NULL);
	M_PREPEND(m, sizeof(*ip6), M_NOWAIT);
	if (m == NULL)
		return (NULL);
	ip6 = mtod(m, struct ip6_hdr *);
	ip6->ip6_flow = htonl((uint32_t)o->o_tos << IPV6_FLOWLABEL_LEN);
	ip6->ip6_vfc |= IPV6_VERSION;
	ip6->ip6_plen = htons(m->m_pkthdr.len - sizeof(*ip6));
	ip6->ip6_nxt = alert ? IPPROTO_HOPOPTS : o->o_proto;
	ip6->ip6_hlim = o->o_ttl != 0 ? o->o_ttl : nd6_hoplimit(o->o_ifp);
	ip6->ip6_src = o->o_src;
	ip6->ip6_dst = o->o_dst;
	return (m);
}

/*
 * Send a packet that fits: as it is if the interface does what is left to do for it.  ENOBUFS, or
 * what the interface said.
 */
int
inet_send6(struct mbuf *m, const struct inet_nexthop *nh)
{
	return (if_offload_send(if_offload_finish(nh->nh_ifp, m, 0), inet_link_output, nh));
}

/*
 * inet_output() for IPv6: way and source are chosen.
 */
int
inet_output6(struct mbuf *m, const struct inet_out *o, const struct inet_nexthop *nh)
{
	m = ip6_fill(m, o);
	if (m == NULL) {
		INSTAT_INC(ip6.ip6s_odropped);
		return (ENOBUFS);
	}
	if (m->m_pkthdr.len > IPV6_MAXPACKET) {
		INSTAT_INC(ip6.ip6s_odropped);
		m_freem(m);
		return (EMSGSIZE);
	}
	INSTAT_INC(ip6.ip6s_localout);
	if (nh->nh_ifp == NULL) {
		inet_loop_output(NULL, m);
		return (0);
	}
	if (if_offload_wire_len(m, 0) <= max(nh->nh_mtu, IPV6_MMTU))
		return (inet_send6(m, nh));
	/* Who sends several in one chooses their size. */
	if ((o->o_flags & INETO_DF) != 0 || if_offload_big(m)) {
		INSTAT_INC(ip6.ip6s_cantfrag);
		m_freem(m);
		return (EMSGSIZE);
	}
	return (ip6_send_fragmented(m, nh));
}
