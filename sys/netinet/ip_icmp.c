/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * ICMP (RFC 792, RFC 1122, 3.2.2): answers echo requests, passes reports of routers and hosts about
 * packets to the transports, and sends errors of our own, at most ICMP_LIMIT a second.
 *
 * Gaps: redirects are ignored, timestamp requests are not answered.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <machine/in_cksum.h>

#define	ICMP_LIMIT	200	/* errors and unreachables a second, both IP versions together */
#define	ICMP_QUOTE	548	/* so that the error fits into 576 bytes; RFC 1812, 4.3.2.3 */

/* True if another ICMP error may be sent in this second. */
bool
inet_icmp_ratelimit(void)
{
	static volatile u_int sent;
	static volatile time_t second;

	if (second != time_uptime) {
		second = time_uptime;
		sent = 0;
	}
	return (atomic_fetchadd_int(&sent, 1) < ICMP_LIMIT);
}

static int
icmp_send(struct mbuf *m, int type, int code, uint32_t rest, struct in_addr src, struct in_addr dst)
{
	struct inet_out o = {
		.o_src = inet_map4(src),
		.o_dst = inet_map4(dst),
		.o_proto = IPPROTO_ICMP,
	};
	struct icmp *icmp;

	M_PREPEND(m, ICMP_MINLEN, M_NOWAIT);
	if (m == NULL)
		return (ENOBUFS);
	m->m_flags &= ~(M_BCAST | M_MCAST);
	m->m_pkthdr.csum_flags = 0;
	m->m_pkthdr.rcvif = NULL;
	icmp = mtod(m, struct icmp *);
	icmp->icmp_type = type;
	icmp->icmp_code = code;
	icmp->icmp_cksum = 0;
	icmp->icmp_void = rest;
	icmp->icmp_cksum = in_cksum(m, m->m_pkthdr.len);
	atomic_add_long(&inet_stats.icmp.icps_outhist[type], 1);
	return (inet_output(m, &o));
}

/* A packet that no ICMP error may be sent about (RFC 1122, 3.2.2). */
static bool
icmp_error_forbidden(struct mbuf *m, const struct ip *ip)
{
	uint8_t type;
	int hlen = ip->ip_hl << 2;

	if ((m->m_flags & (M_BCAST | M_MCAST)) != 0 || IN_MULTICAST(ntohl(ip->ip_dst.s_addr)) ||
	    ip->ip_dst.s_addr == INADDR_BROADCAST || ip->ip_src.s_addr == INADDR_ANY ||
	    (ip->ip_off & htons(IP_OFFMASK)) != 0)
		return (true);
	if (ip->ip_p != IPPROTO_ICMP)
		return (false);
	if (m->m_pkthdr.len <= hlen) {
		INSTAT_INC(icmp.icps_oldshort);
		return (true);
	}
	m_copydata(m, hlen, sizeof(type), (caddr_t)&type);
	if (type == ICMP_ECHO || type == ICMP_ECHOREPLY)
		return (false);
	INSTAT_INC(icmp.icps_oldicmp);
	return (true);
}

/*
 * Report an error about the packet m, which starts with its IP header and is consumed.  mtu
 * counts for "fragmentation needed".
 */
void
inet_icmp_error(struct mbuf *m, int type, int code, u_int mtu)
{
	struct ip ip;
	struct in6_addr local;
	uint32_t rest = mtu != 0 ? htonl(mtu & 0xffff) : 0;
	int quote;

	m_copydata(m, 0, sizeof(ip), (caddr_t)&ip);
	if (icmp_error_forbidden(m, &ip) || !inet_icmp_ratelimit()) {
		m_freem(m);
		return;
	}
	INSTAT_INC(icmp.icps_error);
	quote = min(m->m_pkthdr.len, ICMP_QUOTE);
	if (m->m_pkthdr.len > quote)
		m_adj(m, quote - m->m_pkthdr.len);
	local = inet_map4(ip.ip_dst);
	(void)icmp_send(m, type, code, rest,
	    inet_addr_islocal(&local) ? ip.ip_dst : (struct in_addr){ INADDR_ANY }, ip.ip_src);
}

static int
icmp_unreach_errno(int code)
{
	switch (code) {
	case ICMP_UNREACH_PROTOCOL:
	case ICMP_UNREACH_PORT:
		return (ECONNREFUSED);
	case ICMP_UNREACH_NEEDFRAG:
		return (EMSGSIZE);
	default:
		return (EHOSTUNREACH);
	}
}

/* A router that doesn't say the next MTU (RFC 1191, 5): the next lower usual one. */
static u_int
icmp_plateau(u_int len)
{
	static const u_int plateaus[] = { 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508 };
	u_int i;

	for (i = 0; i < nitems(plateaus); i++) {
		if (plateaus[i] < len)
			return (plateaus[i]);
	}
	return (IF_MINMTU);
}

/* An error about a packet that we sent: find out which, and notify its transport. */
static void
icmp_error_input(struct mbuf *m, const struct inet_pkt *p, const struct icmp *icmp)
{
	struct ip ip;
	struct in6_addr local, remote;
	uint8_t quoted[8];
	u_int mtu = 0;
	int error, hlen, off = p->ip_off + ICMP_MINLEN;

	if (p->ip_len < ICMP_ADVLENMIN) {
		INSTAT_INC(icmp.icps_tooshort);
		return;
	}
	m_copydata(m, off, sizeof(ip), (caddr_t)&ip);
	hlen = ip.ip_hl << 2;
	if (ip.ip_v != IPVERSION || hlen < (int)sizeof(ip) ||
	    p->ip_len < ICMP_MINLEN + hlen + (int)sizeof(quoted)) {
		INSTAT_INC(icmp.icps_badlen);
		return;
	}
	m_copydata(m, off + hlen, sizeof(quoted), quoted);
	local = inet_map4(ip.ip_src);
	remote = inet_map4(ip.ip_dst);
	if (!inet_addr_islocal(&local))
		return;
	error = icmp->icmp_type == ICMP_UNREACH ? icmp_unreach_errno(icmp->icmp_code) :
	    EHOSTUNREACH;
	if (error == EMSGSIZE) {
		mtu = ntohs(icmp->icmp_nextmtu);
		if (mtu == 0)
			mtu = icmp_plateau(ntohs(ip.ip_len));
	}
	inet_ctlinput(&local, &remote, ip.ip_p, quoted, error, mtu);
}

static void
icmp_echo(struct mbuf *m, const struct inet_pkt *p, const struct icmp *icmp)
{
	if (p->ip_bmcast) {
		INSTAT_INC(icmp.icps_bmcastecho);
		m_freem(m);
		return;
	}
	INSTAT_INC(icmp.icps_reflect);
	m_adj(m, p->ip_off + ICMP_MINLEN);
	(void)icmp_send(m, ICMP_ECHOREPLY, 0, icmp->icmp_void, inet_unmap4(&p->ip_dst),
	    inet_unmap4(&p->ip_src));
}

void
inet_icmp_input(struct mbuf *m, const struct inet_pkt *p)
{
	struct icmp icmp;

	if (p->ip_len < ICMP_MINLEN) {
		INSTAT_INC(icmp.icps_tooshort);
		m_freem(m);
		return;
	}
	if (in_cksum_skip(m, p->ip_off + p->ip_len, p->ip_off) != 0) {
		INSTAT_INC(icmp.icps_checksum);
		m_freem(m);
		return;
	}
	m_copydata(m, p->ip_off, ICMP_MINLEN, (caddr_t)&icmp);
	if (icmp.icmp_type <= ICMP_MAXTYPE)
		atomic_add_long(&inet_stats.icmp.icps_inhist[icmp.icmp_type], 1);
	if (icmp.icmp_type == ICMP_ECHO) {
		icmp_echo(m, p, &icmp);
		return;
	}
	if (icmp.icmp_type == ICMP_UNREACH || icmp.icmp_type == ICMP_TIMXCEED ||
	    icmp.icmp_type == ICMP_PARAMPROB)
		icmp_error_input(m, p, &icmp);
	if (!insock_input(m, p, 0, 0, p->ip_off))
		m_freem(m);
}
