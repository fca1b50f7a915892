/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Neighbour discovery (RFC 4861): solicitations and advertisements, and duplicate address detection
 * (RFC 4862, 5.4).  The states are in the neighbour cache (in_llatbl.c), routers in nd6_rtr.c.
 *
 * A message is copied to a buffer of its own before it is looked at; options that don't fit there
 * are not seen.  All must have come with hop limit 255, which proves that no router passed them
 * on.
 *
 * Gaps: redirects are ignored; no nonce option (RFC 7527).
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet6/in6_var.h>

#define	ND6_HOPS	255
#define	ND6_MSGMAX	512

static const struct in6_addr nd6_allnodes = IN6ADDR_LINKLOCAL_ALLNODES_INIT;

/*
 * Find the next option of a type, after a given one or from the start; NULL at the end, or where
 * the options become invalid.  An option that is returned is completely inside.
 */
const uint8_t *
nd6_option(const uint8_t *opts, size_t len, u_int type, const uint8_t *after)
{
	const uint8_t *p = after != NULL ? after + after[1] * 8 : opts, *end = opts + len;

	while (end - p >= 8 && p[1] != 0 && p[1] * 8 <= end - p) {
		if (p[0] == type)
			return (p);
		p += p[1] * 8;
	}
	return (NULL);
}

/* The Ethernet address in an option, or NULL. */
static const uint8_t *
nd6_lladdr(const uint8_t *opts, size_t len, u_int type)
{
	const uint8_t *p = nd6_option(opts, len, type, NULL);

	return (p != NULL && !ETHER_IS_MULTICAST(p + 2) ? p + 2 : NULL);
}

/*
 * Begin a message of len bytes, all zero but the type; with lladdr an option of that kind follows.
 */
struct mbuf *
nd6_message(if_t ifp, u_int type, size_t len, const uint8_t *lladdr, u_int opt)
{
	struct mbuf *m;
	uint8_t *p;

	m = m_gethdr(M_NOWAIT, MT_DATA);
	if (m == NULL)
		return (NULL);
	m->m_data += max_linkhdr + sizeof(struct ip6_hdr);
	m->m_len = m->m_pkthdr.len = len + (lladdr != NULL ? 8 : 0);
	p = mtod(m, uint8_t *);
	memset(p, 0, m->m_len);
	p[0] = type;
	if (lladdr != NULL) {
		p[len] = opt;
		p[len + 1] = 1;
		memcpy(p + len + 2, lladdr, ETHER_ADDR_LEN);
	}
	return (m);
}

/* Send a message; src NULL chooses one, and :: is meant as it is. */
int
nd6_send(struct mbuf *m, if_t ifp, const struct in6_addr *src, const struct in6_addr *dst)
{
	struct inet_out o = {
		.o_dst = *dst,
		.o_ifp = ifp,
		.o_proto = IPPROTO_ICMPV6,
		.o_ttl = ND6_HOPS,
	};

	if (src != NULL) {
		o.o_src = *src;
		o.o_flags = IN6_IS_ADDR_UNSPECIFIED(src) ? INETO_UNSPEC : 0;
	}
	INSTAT_INC(icmp6.icp6s_outhist[mtod(m, struct icmp6_hdr *)->icmp6_type]);
	return (inet_output(m, &o));
}

/*
 * Ask who has target: by multicast, or to `unicast' if its address is only to be confirmed.  src
 * NULL chooses one, and :: makes it a probe for duplicates.
 */
void
nd6_solicit(if_t ifp, const struct in6_addr *target, const struct in6_addr *src,
    const uint8_t *unicast)
{
	struct in6_addr dst = { .s6_addr = { 0xff, 2, [11] = 1, [12] = 0xff } }, chosen;
	struct nd_neighbor_solicit *ns;
	struct mbuf *m;
	bool probe = src != NULL && IN6_IS_ADDR_UNSPECIFIED(src);

	if (src == NULL) {
		if (inet_addr_source(ifp, target, &chosen) != 0)
			return;
		src = &chosen;
	}
	if (unicast != NULL)
		dst = *target;
	else
		memcpy(&dst.s6_addr[13], &target->s6_addr[13], 3);
	m = nd6_message(ifp, ND_NEIGHBOR_SOLICIT, sizeof(*ns), probe ? NULL : if_getlladdr(ifp),
	    ND_OPT_SOURCE_LINKADDR);
	if (m == NULL)
		return;
	ns = mtod(m, struct nd_neighbor_solicit *);
	ns->nd_ns_target = *target;
	(void)nd6_send(m, ifp, src, &dst);
}

void
nd6_advertise(if_t ifp, const struct in6_addr *a, const struct in6_addr *dst, uint32_t flags)
{
	struct nd_neighbor_advert *na;
	struct mbuf *m;

	m = nd6_message(ifp, ND_NEIGHBOR_ADVERT, sizeof(*na), if_getlladdr(ifp),
	    ND_OPT_TARGET_LINKADDR);
	if (m == NULL)
		return;
	na = mtod(m, struct nd_neighbor_advert *);
	na->nd_na_target = *a;
	na->nd_na_flags_reserved = flags | (V_ip6_forwarding ? ND_NA_FLAG_ROUTER : 0);
	(void)nd6_send(m, ifp, a, dst);
}

/* Announce our address to all nodes (RFC 4861, 7.2.6). */
void
nd6_announce(if_t ifp, const struct in6_addr *a)
{
	if (if_gettype(ifp) == IFT_ETHER)
		nd6_advertise(ifp, a, &nd6_allnodes, ND_NA_FLAG_OVERRIDE);
}

/* RFC 4861, 7.1.1 and 7.2.3. */
static bool
nd6_solicitation(const uint8_t *msg, size_t len, const struct inet_pkt *p)
{
	const struct nd_neighbor_solicit *ns = (const void *)msg;
	bool probe = IN6_IS_ADDR_UNSPECIFIED(&p->ip_src);
	struct in6_addr target;
	const uint8_t *lladdr;
	struct inet_addr ia;

	if (len < sizeof(*ns))
		return (false);
	target = ns->nd_ns_target;
	lladdr = nd6_lladdr(msg + sizeof(*ns), len - sizeof(*ns), ND_OPT_SOURCE_LINKADDR);
	if (IN6_IS_ADDR_MULTICAST(&target) || (probe && (lladdr != NULL || !p->ip_bmcast)))
		return (false);
	if (!inet_addr_find(p->ip_ifp, &target, &ia))
		return (true);
	if ((ia.ad_flags & IN6_IFF_NOTREADY) != 0) {
		/* Two nodes probe for the same address: neither may have it. */
		if (probe)
			inet_addr_duplicate(p->ip_ifp, &target, NULL);
		return (true);
	}
	if (probe) {
		nd6_advertise(p->ip_ifp, &target, &nd6_allnodes, ND_NA_FLAG_OVERRIDE);
		return (true);
	}
	if (lladdr != NULL)
		inet_nbr_learn(p->ip_ifp, &p->ip_src, lladdr, NBR_CREATE | NBR_OVERRIDE);
	nd6_advertise(p->ip_ifp, &target, &p->ip_src, ND_NA_FLAG_SOLICITED | ND_NA_FLAG_OVERRIDE);
	return (true);
}

/* RFC 4861, 7.1.2 and 7.2.5. */
static bool
nd6_advertisement(const uint8_t *msg, size_t len, const struct inet_pkt *p)
{
	const struct nd_neighbor_advert *na = (const void *)msg;
	struct in6_addr target;
	const uint8_t *lladdr;
	struct inet_addr ia;
	int flags = NBR_ISROUTER;

	if (len < sizeof(*na))
		return (false);
	target = na->nd_na_target;
	lladdr = nd6_lladdr(msg + sizeof(*na), len - sizeof(*na), ND_OPT_TARGET_LINKADDR);
	if (IN6_IS_ADDR_MULTICAST(&target) ||
	    (p->ip_bmcast && (na->nd_na_flags_reserved & ND_NA_FLAG_SOLICITED) != 0))
		return (false);
	if (inet_addr_find(p->ip_ifp, &target, &ia)) {
		inet_addr_duplicate(p->ip_ifp, &target, lladdr);
		return (true);
	}
	if ((na->nd_na_flags_reserved & ND_NA_FLAG_SOLICITED) != 0)
		flags |= NBR_SOLICITED;
	if ((na->nd_na_flags_reserved & ND_NA_FLAG_OVERRIDE) != 0)
		flags |= NBR_OVERRIDE;
	if ((na->nd_na_flags_reserved & ND_NA_FLAG_ROUTER) != 0)
		flags |= NBR_ROUTER;
	inet_nbr_learn(p->ip_ifp, &target, lladdr, flags);
	return (true);
}

/*
 * A neighbour discovery message.  False if it is not valid.  m is not consumed.
 */
bool
nd6_input(struct mbuf *m, const struct inet_pkt *p)
{
	uint8_t msg[ND6_MSGMAX] __aligned(8);
	size_t len = MIN(p->ip_len, (int)sizeof(msg));
	const struct icmp6_hdr *icmp6 = (const void *)msg;

	m_copydata(m, p->ip_off, len, msg);
	if (p->ip_ttl != ND6_HOPS || icmp6->icmp6_code != 0 || if_gettype(p->ip_ifp) != IFT_ETHER)
		return (false);
	switch (icmp6->icmp6_type) {
	case ND_NEIGHBOR_SOLICIT:
		return (nd6_solicitation(msg, len, p));
	case ND_NEIGHBOR_ADVERT:
		return (nd6_advertisement(msg, len, p));
	case ND_ROUTER_ADVERT:
		return (nd6_router_advert(msg, len, p));
	default:
		return (true);
	}
}
