/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * UDP input (RFC 768, and for IPv6 RFC 8200, 8.1), and the way of ICMP's reports to the transports.
 * Output is in in_sock.c: nothing but the header is added there.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>

/* What is left of a datagram after its length field was believed; NULL if it was dropped. */
static struct mbuf *
udp_check(struct mbuf *m, struct inet_pkt *p, const struct udphdr *uh)
{
	int len = ntohs(uh->uh_ulen);

	if (len < (int)sizeof(*uh) || len > p->ip_len) {
		INSTAT_INC(udp.udps_badlen);
		m_freem(m);
		return (NULL);
	}
	if (uh->uh_sum == 0 && inet_is4(&p->ip_dst))
		INSTAT_INC(udp.udps_nosum);
	p->ip_len = len;
	/* Over IPv6 a checksum is a must. */
	if ((uh->uh_sum == 0 && !inet_is4(&p->ip_dst)) ||
	    (uh->uh_sum != 0 && !inet_pkt_cksum_ok(m, p))) {
		INSTAT_INC(udp.udps_badsum);
		m_freem(m);
		return (NULL);
	}
	if (p->ip_off + len < m->m_pkthdr.len)
		m_adj(m, p->ip_off + len - m->m_pkthdr.len);
	return (m);
}

void
udp_inet_input(struct mbuf *m, const struct inet_pkt *arg)
{
	struct inet_pkt p = *arg;
	struct udphdr uh;

	INSTAT_INC(udp.udps_ipackets);
	if (p.ip_len < (int)sizeof(uh)) {
		INSTAT_INC(udp.udps_hdrops);
		m_freem(m);
		return;
	}
	m_copydata(m, p.ip_off, sizeof(uh), (caddr_t)&uh);
	m = udp_check(m, &p, &uh);
	if (m == NULL || insock_input(m, &p, ntohs(uh.uh_sport), ntohs(uh.uh_dport),
	    p.ip_off + sizeof(uh)))
		return;
	INSTAT_INC(udp.udps_noport);
	if (p.ip_bmcast)
		INSTAT_INC(udp.udps_noportbcast);
	inet_unreach(m, &p);
}

/*
 * An ICMP error about a packet from local to remote came; quoted are the first 8 bytes of its
 * transport header, and mtu what would have fit, or 0.
 */
void
inet_ctlinput(const struct in6_addr *local, const struct in6_addr *remote, uint8_t proto,
    const void *quoted, int error, u_int mtu)
{
	struct tcphdr th;

	/* The ports are at the same place in UDP, the sequence number is TCP's alone. */
	memcpy(&th, quoted, 8);
	if (proto == IPPROTO_TCP) {
		tcp_inet_ctlinput(local, remote, ntohs(th.th_sport), ntohs(th.th_dport),
		    ntohl(th.th_seq), error, mtu);
		return;
	}
	if (error == EMSGSIZE)
		inet_pmtu_update(remote, mtu);
	if (proto == IPPROTO_UDP)
		insock_ctlinput(remote, ntohs(th.th_sport), ntohs(th.th_dport), error);
}
