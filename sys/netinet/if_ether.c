/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * ARP for IPv4 over Ethernet (RFC 826), with announcements and conflict notices (RFC 5227).
 *
 * Answers requests for our addresses, enters senders into the neighbour cache (in_llatbl.c), and
 * sends the cache's requests.
 *
 * Gaps: proxy ARP; defending an address more than by a log line.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <net/if_arp.h>
#include <netinet/if_ether.h>
#include <net/if_tree.h>

static const uint8_t arp_broadcast[ETHER_ADDR_LEN] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

static void
arp_send(if_t ifp, u_short op, struct in_addr spa, const uint8_t *tha, struct in_addr tpa,
    const uint8_t *dst)
{
	struct ether_arp *ea;
	struct mbuf *m;

	m = m_gethdr(M_NOWAIT, MT_DATA);
	if (m == NULL) {
		INSTAT_INC(arp.txerrors);
		return;
	}
	m->m_len = m->m_pkthdr.len = sizeof(*ea);
	M_ALIGN(m, sizeof(*ea));
	ea = mtod(m, struct ether_arp *);
	memset(ea, 0, sizeof(*ea));
	ea->arp_hrd = htons(ARPHRD_ETHER);
	ea->arp_pro = htons(ETHERTYPE_IP);
	ea->arp_hln = ETHER_ADDR_LEN;
	ea->arp_pln = sizeof(struct in_addr);
	ea->arp_op = htons(op);
	memcpy(ea->arp_sha, if_getlladdr(ifp), ETHER_ADDR_LEN);
	memcpy(ea->arp_spa, &spa, sizeof(spa));
	if (tha != NULL)
		memcpy(ea->arp_tha, tha, ETHER_ADDR_LEN);
	memcpy(ea->arp_tpa, &tpa, sizeof(tpa));
	if (memcmp(dst, arp_broadcast, ETHER_ADDR_LEN) == 0)
		m->m_flags |= M_BCAST;
	if (ether_output_resolved(ifp, m, dst, ETHERTYPE_ARP) != 0)
		INSTAT_INC(arp.txerrors);
}

/*
 * Ask who has target; by unicast to `to` when a known neighbour is only to be confirmed.
 */
void
inet_arp_request(if_t ifp, struct in_addr src, struct in_addr target, const uint8_t *to)
{
	INSTAT_INC(arp.txrequests);
	arp_send(ifp, ARPOP_REQUEST, src, NULL, target, to != NULL ? to : arp_broadcast);
}

/* Announce on the link that an address is ours (RFC 5227, 2.3). */
void
inet_arp_announce(if_t ifp, struct in_addr a)
{
	if (if_gettype(ifp) == IFT_ETHER && (if_getflags(ifp) & (IFF_UP | IFF_NOARP)) == IFF_UP)
		inet_arp_request(ifp, a, a, NULL);
}

/* Another host uses our address: log it, at most once a second. */
static void
arp_conflict(if_t ifp, struct in_addr spa, const uint8_t *sha)
{
	static time_t last;
	char buf[INET_ADDRSTRLEN];

	INSTAT_INC(arp.dupips);
	if (last == time_uptime)
		return;
	last = time_uptime;
	printf("arp: %6D is using my IP address %s on %s!\n", sha, ":", inet_ntoa_r(spa, buf),
	    if_name(ifp));
}

static void
arp_handle(if_t ifp, const struct ether_arp *ea)
{
	struct in_addr spa, tpa;
	struct in6_addr sender, target;
	struct inet_addr ia;
	bool forus;

	memcpy(&spa, ea->arp_spa, sizeof(spa));
	memcpy(&tpa, ea->arp_tpa, sizeof(tpa));
	sender = inet_map4(spa);
	target = inet_map4(tpa);
	if (memcmp(ea->arp_sha, if_getlladdr(ifp), ETHER_ADDR_LEN) == 0 ||
	    ETHER_IS_MULTICAST(ea->arp_sha))
		return;
	if (inet_addr_find(ifp, &sender, &ia)) {
		arp_conflict(ifp, spa, ea->arp_sha);
		return;
	}
	forus = inet_addr_find(ifp, &target, &ia);
	if (!inet_unspecified(&sender) && !inet_multicast(&sender) &&
	    !inet_addr_isbroadcast(ifp, spa))
		inet_nbr_learn(ifp, &sender, ea->arp_sha,
		    NBR_SOLICITED | NBR_OVERRIDE | (forus ? NBR_CREATE : 0));
	if (ntohs(ea->arp_op) != ARPOP_REQUEST) {
		INSTAT_INC(arp.rxreplies);
		return;
	}
	INSTAT_INC(arp.rxrequests);
	if (forus) {
		INSTAT_INC(arp.txreplies);
		arp_send(ifp, ARPOP_REPLY, tpa, ea->arp_sha, spa, ea->arp_sha);
	}
}

/*
 * An ARP packet, its Ethernet header stripped, from m->m_pkthdr.rcvif.  In the network epoch.
 */
void
arp_input(struct mbuf *m)
{
	struct ether_arp ea;
	if_t ifp = m->m_pkthdr.rcvif;

	INSTAT_INC(arp.received);
	if (m->m_pkthdr.len < (int)sizeof(ea) || if_gettype(ifp) != IFT_ETHER ||
	    (if_getflags(ifp) & IFF_NOARP) != 0) {
		m_freem(m);
		return;
	}
	m_copydata(m, 0, sizeof(ea), (caddr_t)&ea);
	m_freem(m);
	if (ntohs(ea.arp_hrd) == ARPHRD_ETHER && ntohs(ea.arp_pro) == ETHERTYPE_IP &&
	    ea.arp_hln == ETHER_ADDR_LEN && ea.arp_pln == sizeof(struct in_addr) &&
	    (ntohs(ea.arp_op) == ARPOP_REQUEST || ntohs(ea.arp_op) == ARPOP_REPLY))
		arp_handle(ifp, &ea);
}
