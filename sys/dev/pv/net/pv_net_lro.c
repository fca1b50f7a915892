/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: received packets to the stack, and the merging of TCP segments by tcp_lro(9).
 *
 * Segments for our own address that arrive as separate packets are merged, unless this kernel forwards
 * packets.  tcp_lro(9) holds them until the queue is empty or the budget used up.  A packet that does
 * not go through it must not overtake what it holds of the same flow: a GSO packet of the device, or a
 * segment without a verified checksum.  prq_held has a bit for each of 64 groups of flows, and such a
 * packet has everything flushed before it if its bit is set.  (tcp_lro(9) flushes itself what a packet
 * that it refuses would overtake.)
 *
 * Locking.  The thread that set prq_busy, without the lock, in the network epoch.
 */

#include "opt_inet.h"
#include "opt_inet6.h"

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <net/vnet.h>
#include <netinet/in.h>
#include <netinet/in_systm.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

#define	PV_NET_LRO_GROUPS	64	/* bits of prq_held */

/* The type of a packet, past a tag, and where its network header begins. */
static inline uint16_t
pv_net_lro_type(const struct mbuf *m, int *at)
{
	const struct ether_vlan_header *evl = mtod(m, const struct ether_vlan_header *);

	*at = ETHER_HDR_LEN;
	if (evl->evl_encap_proto != htons(ETHERTYPE_VLAN) || m->m_len < (int)sizeof(*evl))
		return (evl->evl_encap_proto);
	*at = sizeof(*evl);
	return (evl->evl_proto);
}

/*
 * The group of flows that a packet belongs to, as a bit; all bits if its ports can't be seen here, or
 * may not be there.
 */
static uint64_t
pv_net_lro_group(const struct mbuf *m)
{
	const uint8_t *data = mtod(m, const uint8_t *);
	uint16_t type;
	int at;

	type = pv_net_lro_type(m, &at);
	if (type == htons(ETHERTYPE_IP) && m->m_len > at)
		at += (data[at] & 0xf) << 2;
	else if (type == htons(ETHERTYPE_IPV6))
		at += sizeof(struct ip6_hdr);
	else
		return (UINT64_MAX);
	if (m->m_len < at + 4)
		return (UINT64_MAX);
	/* The low bytes of the two ports, of which one at least differs from flow to flow. */
	return (1ULL << ((data[at + 1] ^ data[at + 3]) % PV_NET_LRO_GROUPS));
}

#if defined(INET) || defined(INET6)
/*
 * Is it TCP, with data, and all its headers in one piece?  Extension headers are not looked past.
 * Acknowledgments are not merged: there are fewer of them than segments, and TCP has more use for them
 * one by one.
 */
static bool
pv_net_lro_has_data(const struct mbuf *m)
{
	const uint8_t *data = mtod(m, const uint8_t *);
	const struct ip6_hdr *ip6;
	const struct ip *ip;
	uint16_t type;
	int at, len;

	type = pv_net_lro_type(m, &at);
	if (type == htons(ETHERTYPE_IP) && m->m_len >= at + (int)sizeof(*ip)) {
		ip = (const struct ip *)(data + at);
		if (ip->ip_p != IPPROTO_TCP)
			return (false);
		len = ntohs(ip->ip_len) - (ip->ip_hl << 2);
		at += ip->ip_hl << 2;
	} else if (type == htons(ETHERTYPE_IPV6) && m->m_len >= at + (int)sizeof(*ip6)) {
		ip6 = (const struct ip6_hdr *)(data + at);
		if (ip6->ip6_nxt != IPPROTO_TCP)
			return (false);
		len = ntohs(ip6->ip6_plen);
		at += sizeof(*ip6);
	} else
		return (false);
	return (m->m_len >= at + (int)sizeof(struct tcphdr) &&
	    len > ((const struct tcphdr *)(data + at))->th_off << 2);
}
#endif

/* Can it be TCP?  tcp_lro(9) holds nothing else. */
static bool
pv_net_lro_may_be_tcp(const struct mbuf *m)
{
	u_int udp = CSUM_IP_UDP | CSUM_IP6_UDP;

	return ((m->m_pkthdr.csum_flags & udp) == 0);
}

#if defined(INET) || defined(INET6)
/*
 * May this be merged with others of its connection?  It has to be for our own address, not for a host
 * behind a bridge or a route.
 */
static bool
pv_net_lro_mergeable(const struct pv_net_rxq *rxq, const struct mbuf *m)
{
	const struct ether_header *eh = mtod(m, const struct ether_header *);
	u_int good = CSUM_DATA_VALID | CSUM_IP_TCP | CSUM_IP6_TCP;

	return ((m->m_pkthdr.csum_flags & good) != 0 && m->m_pkthdr.lro_nsegs == 0 &&
	    (rxq->prq_way & (PV_NET_WAY_FORWARD4 | PV_NET_WAY_FORWARD6)) == 0 &&
	    pv_net_lro_has_data(m) &&
	    pv_net_same_lladdr(eh->ether_dhost, if_getlladdr(rxq->prq_pn->pn_ifp)));
}

/* When there is an interface.  Without memory for it, packets are not merged. */
void
pv_net_lro_init(struct pv_net_rxq *rxq)
{
	struct pv_net *pn = rxq->prq_pn;

	rxq->prq_lro_ready = pn->pn_params.pnp_soft_lro &&
	    tcp_lro_init_args(&rxq->prq_lro, pn->pn_ifp, TCP_LRO_ENTRIES, 0) == 0;
}

void
pv_net_lro_free(struct pv_net_rxq *rxq)
{
	if (rxq->prq_lro_ready)
		tcp_lro_free(&rxq->prq_lro);
	rxq->prq_lro_ready = false;
}

/* Hand up what is held. */
void
pv_net_lro_flush(struct pv_net_rxq *rxq)
{
	if (rxq->prq_held == 0)
		return;
	rxq->prq_held = 0;
	CURVNET_SET(if_getvnet(rxq->prq_pn->pn_ifp));
	tcp_lro_flush_all(&rxq->prq_lro);
	CURVNET_RESTORE();
}

/* Give a packet to tcp_lro(9): false if it is not merged. */
static bool
pv_net_lro_merge(struct pv_net_rxq *rxq, struct mbuf *m)
{
	u_int flags = m->m_pkthdr.csum_flags, data = m->m_pkthdr.csum_data;
	uint64_t group;

	if (!pv_net_lro_mergeable(rxq, m))
		return (false);
	group = pv_net_lro_group(m);
	/* Partial is as good as verified for our own TCP, and the only mark known there. */
	m->m_pkthdr.csum_flags = CSUM_DATA_VALID | CSUM_PSEUDO_HDR;
	m->m_pkthdr.csum_data = 0xffff;
	if (tcp_lro_rx(&rxq->prq_lro, m, 0) == 0) {
		rxq->prq_held |= group;
		return (true);
	}
	m->m_pkthdr.csum_flags = flags;
	m->m_pkthdr.csum_data = data;
	return (false);
}
#else
void
pv_net_lro_init(struct pv_net_rxq *rxq __unused)
{
}

void
pv_net_lro_free(struct pv_net_rxq *rxq __unused)
{
}

void
pv_net_lro_flush(struct pv_net_rxq *rxq __unused)
{
}

static bool
pv_net_lro_merge(struct pv_net_rxq *rxq __unused, struct mbuf *m __unused)
{
	return (false);
}
#endif

/* Hand packets up the stack, or to tcp_lro(9). */
void
pv_net_lro_input(struct pv_net_rxq *rxq, struct mbuf *list)
{
	struct pv_net *pn = rxq->prq_pn;
	struct mbuf *m;

	/* A single packet has nothing to be merged with, and UDP is not merged. */
	if (!rxq->prq_lro_ready || (list->m_nextpkt == NULL && rxq->prq_held == 0) ||
	    (!rxq->prq_merges && rxq->prq_held == 0) ||
	    (if_getcapenable(pn->pn_ifp) & IFCAP_LRO) == 0) {
		/* It may just have been disabled. */
		pv_net_lro_flush(rxq);
		if_input(pn->pn_ifp, list);
		return;
	}
	while ((m = list) != NULL) {
		list = m->m_nextpkt;
		m->m_nextpkt = NULL;
		if (pv_net_lro_merge(rxq, m))
			continue;
		if (rxq->prq_held != 0 && pv_net_lro_may_be_tcp(m) &&
		    (rxq->prq_held & pv_net_lro_group(m)) != 0)
			pv_net_lro_flush(rxq);
		if_input(pn->pn_ifp, m);
	}
}
