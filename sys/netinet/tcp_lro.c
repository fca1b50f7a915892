/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Large receive offload in software, by the interface that drivers know (netinet/tcp_lro.h): segments
 * of a connection that follow each other are made one packet before the protocols see them.
 *
 * A driver gives each packet to tcp_lro_rx(), one thread at a time for a struct lro_ctrl.  0: it was
 * kept, and comes up by if_input() later, at the latest with tcp_lro_flush_all().  Anything else: the
 * packet is still the driver's, to be handed up now; what was kept of its connection went up before it.
 *
 * What is merged: TCP over IPv4 without options or over IPv6 without extension headers, with data, with
 * no flags but ACK and PSH, no options but timestamps, and a checksum that is known to be good.  All
 * segments of one packet have the same addresses, ports, type of service and hop limit; only their
 * sequence numbers go on.  The packet gets the last one's acknowledgement, window and timestamps, and
 * the checksum that is right for all of it if theirs were (a partial one is not, and stays of no use):
 * what a segment's data adds to it follows from its headers.
 *
 * Gaps: entries are looked for one by one, there being few; no queueing of packets to sort them by flow
 * (tcp_lro_queue_mbuf), no compressed ACKs, no VLAN tags in the frame.
 *
 * Locking.  None: the caller is one thread.
 */

#include <netinet/inet_stack_tree.h>
#include <net/ethernet.h>
#include <net/if_var.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/tcp_lro.h>
#include <netinet/tcp_seq.h>
#include <machine/in_cksum.h>

static MALLOC_DEFINE(M_LRO, "lro", "large receive offload");

/* A segment that might be merged. */
struct lro_seg {
	struct lro_parser ls_parser;
	struct tcphdr	*ls_th;
	uint32_t	*ls_ts;		/* value and echo; NULL: has none */
	uint32_t	 ls_seq;
	u_int		 ls_len;	/* of its data */
	u_int		 ls_end;	/* of the packet, from the frame's first byte */
	uint32_t	 ls_sort;	/* type of service, hop limit: equal in all of a packet */
};

/* There are no tunnels: what describes one in an entry is free. */
#define	le_sort	inner.data.vxlan_vni	/* ls_sort of the segments */
#define	le_sum	inner.data.vlan_id	/* of their data, not complemented */

/* The headers of IP: false if it is none that we merge. */
static bool
lro_parse_ip(struct mbuf *m, struct lro_seg *s)
{
	union lro_address *a = &s->ls_parser.data;
	struct ether_header *eh = mtod(m, struct ether_header *);
	struct ip6_hdr *ip6 = (struct ip6_hdr *)(eh + 1);
	struct ip *ip = (struct ip *)(eh + 1);

	s->ls_parser.ip4 = ip;
	if (eh->ether_type == htons(ETHERTYPE_IP)) {
		if (ip->ip_v != IPVERSION || ip->ip_hl != sizeof(*ip) >> 2 ||
		    ip->ip_p != IPPROTO_TCP || (ip->ip_off & htons(IP_MF | IP_OFFMASK)) != 0 ||
		    in_cksum_hdr(ip) != 0)
			return (false);
		a->lro_type = LRO_TYPE_IPV4_TCP;
		a->s_addr.v4 = ip->ip_src;
		a->d_addr.v4 = ip->ip_dst;
		s->ls_end = ETHER_HDR_LEN + ntohs(ip->ip_len);
		s->ls_sort = ip->ip_tos << 8 | ip->ip_ttl;
		s->ls_th = (struct tcphdr *)(ip + 1);
		return (true);
	}
	if (eh->ether_type != htons(ETHERTYPE_IPV6) ||
	    m->m_len < (int)(ETHER_HDR_LEN + sizeof(*ip6) + sizeof(struct tcphdr)) ||
	    (ip6->ip6_vfc & IPV6_VERSION_MASK) != IPV6_VERSION || ip6->ip6_nxt != IPPROTO_TCP)
		return (false);
	a->lro_type = LRO_TYPE_IPV6_TCP;
	a->s_addr.v6 = ip6->ip6_src;
	a->d_addr.v6 = ip6->ip6_dst;
	s->ls_end = ETHER_HDR_LEN + sizeof(*ip6) + ntohs(ip6->ip6_plen);
	s->ls_sort = ntohl(ip6->ip6_flow) ^ ip6->ip6_hlim;
	s->ls_th = (struct tcphdr *)(ip6 + 1);
	return (true);
}

/* Is it of a connection at all?  Whether it is mergeable is lro_mergeable()'s question. */
static bool
lro_parse(struct mbuf *m, struct lro_seg *s)
{
	u_int headers;

	bzero(s, sizeof(*s));
	if ((m->m_flags & M_VLANTAG) != 0 ||
	    m->m_len < (int)(ETHER_HDR_LEN + sizeof(struct ip) + sizeof(struct tcphdr)) ||
	    !lro_parse_ip(m, s))
		return (false);
	headers = (char *)s->ls_th - mtod(m, char *) + (s->ls_th->th_off << 2);
	if (s->ls_th->th_off < sizeof(struct tcphdr) >> 2 || headers > (u_int)m->m_len ||
	    headers > s->ls_end || s->ls_end > (u_int)m->m_pkthdr.len)
		return (false);
	s->ls_parser.tcp = s->ls_th;
	s->ls_parser.total_hdr_len = headers;
	s->ls_parser.data.s_port = s->ls_th->th_sport;
	s->ls_parser.data.d_port = s->ls_th->th_dport;
	s->ls_seq = ntohl(s->ls_th->th_seq);
	s->ls_len = s->ls_end - headers;
	return (true);
}

static bool
lro_mergeable(const struct mbuf *m, struct lro_seg *s)
{
	u_int good = CSUM_DATA_VALID | CSUM_PSEUDO_HDR, flags = tcp_get_flags(s->ls_th);
	uint32_t *opts = (uint32_t *)(s->ls_th + 1);
	u_int optlen = (s->ls_th->th_off << 2) - sizeof(*s->ls_th);

	if ((m->m_pkthdr.csum_flags & good) != good || m->m_pkthdr.csum_data != 0xffff ||
	    (flags & ~TH_PUSH) != TH_ACK || s->ls_len == 0)
		return (false);
	if (optlen == 0)
		return (true);
	if (optlen != TCPOLEN_TSTAMP_APPA || opts[0] != TCP_LRO_TS_OPTION)
		return (false);
	s->ls_ts = opts + 1;
	return (true);
}

/*
 * What the headers add to the checksum (RFC 9293, 3.1), with what its field has: len is that of the
 * TCP header and all data.
 */
static uint16_t
lro_header_sum(const struct lro_parser *p, u_int len)
{
	uint16_t pseudo;

	if (p->data.lro_type == LRO_TYPE_IPV4_TCP)
		pseudo = in_pseudo(p->ip4->ip_src.s_addr, p->ip4->ip_dst.s_addr,
		    htons(len + IPPROTO_TCP));
	else
		pseudo = in6_cksum_pseudo(p->ip6, len, IPPROTO_TCP, 0);
	return (inet_cksum_fold(inet_cksum_add(pseudo, p->tcp, p->tcp->th_off << 2)));
}

/* Write what the segments have come to into the first one's headers, and hand it up. */
static void
lro_flush(struct lro_ctrl *lc, struct lro_entry *le)
{
	struct mbuf *m = le->m_head;
	struct tcphdr *th = le->outer.tcp;
	uint32_t *ts = (uint32_t *)(th + 1) + 1;

	if (le->uncompressed > 1) {
		if (le->outer.data.lro_type == LRO_TYPE_IPV4_TCP) {
			le->outer.ip4->ip_len = htons(m->m_pkthdr.len - ETHER_HDR_LEN);
			le->outer.ip4->ip_sum = 0;
			le->outer.ip4->ip_sum = in_cksum_hdr(le->outer.ip4);
		} else
			le->outer.ip6->ip6_plen = htons(m->m_pkthdr.len - ETHER_HDR_LEN -
			    sizeof(struct ip6_hdr));
		th->th_ack = le->ack_seq;
		th->th_win = le->window;
		if (le->timestamp) {
			ts[0] = le->tsval;
			ts[1] = le->tsecr;
		}
		tcp_set_flags(th, tcp_get_flags(th) | le->flags);
		th->th_sum = 0;
		th->th_sum = ~in_addword(lro_header_sum(&le->outer, m->m_pkthdr.len -
		    le->outer.total_hdr_len + (th->th_off << 2)), le->le_sum) & 0xffff;
		m->m_pkthdr.lro_nsegs = le->uncompressed;
	}
	LIST_REMOVE(le, next);
	LIST_INSERT_HEAD(&lc->lro_free, le, next);
	le->m_head = NULL;
	lc->lro_flushed++;
	if_input(lc->ifp, m);
}

/* Take over what the last segment says. */
static void
lro_note(struct lro_entry *le, const struct lro_seg *s)
{
	uint16_t sum;

	/* All of a segment adds up to ones. */
	sum = ~lro_header_sum(&s->ls_parser, (s->ls_th->th_off << 2) + s->ls_len) & 0xffff;
	if (((s->ls_seq - ntohl(le->outer.tcp->th_seq)) & 1) != 0)
		sum = __bswap16(sum);
	le->le_sum = in_addword(le->le_sum, sum);
	le->next_seq = s->ls_seq + s->ls_len;
	le->ack_seq = s->ls_th->th_ack;
	le->window = s->ls_th->th_win;
	le->flags |= tcp_get_flags(s->ls_th) & TH_PUSH;
	le->timestamp = s->ls_ts != NULL;
	if (s->ls_ts != NULL) {
		le->tsval = s->ls_ts[0];
		le->tsecr = s->ls_ts[1];
	}
	le->uncompressed++;
}

/* Does it go on where the last one ended, in the same manner, and is there room? */
static bool
lro_follows(const struct lro_ctrl *lc, const struct lro_entry *le, const struct lro_seg *s)
{
	return (s->ls_seq == le->next_seq && le->le_sort == s->ls_sort &&
	    (s->ls_ts != NULL) == le->timestamp &&
	    (s->ls_ts == NULL || TSTMP_GEQ(ntohl(s->ls_ts[0]), ntohl(le->tsval))) &&
	    SEQ_GEQ(ntohl(s->ls_th->th_ack), ntohl(le->ack_seq)) &&
	    le->m_head->m_pkthdr.len + s->ls_len <= lc->lro_length_lim);
}

static void
lro_append(struct lro_entry *le, struct mbuf *m, const struct lro_seg *s)
{
	struct mbuf *head = le->m_head;

	m_adj(m, s->ls_parser.total_hdr_len);
	head->m_pkthdr.len += m->m_pkthdr.len;
	m_demote_pkthdr(m);
	le->m_tail->m_next = m;
	le->m_tail = m_last(m);
}

static void
lro_begin(struct lro_ctrl *lc, struct mbuf *m, const struct lro_seg *s)
{
	struct lro_entry *le = LIST_FIRST(&lc->lro_free);

	/* All are in use: the oldest, which is the last, makes room. */
	if (le == NULL) {
		LIST_FOREACH(le, &lc->lro_active, next) {
			if (LIST_NEXT(le, next) == NULL)
				break;
		}
		lro_flush(lc, le);
	}
	LIST_REMOVE(le, next);
	LIST_INSERT_HEAD(&lc->lro_active, le, next);
	le->m_head = m;
	le->m_tail = m_last(m);
	le->outer = s->ls_parser;
	le->le_sort = s->ls_sort;
	le->le_sum = 0;
	le->uncompressed = 0;
	le->flags = 0;
	lro_note(le, s);
}

static int
lro_rx(struct lro_ctrl *lc, struct mbuf *m)
{
	struct lro_entry *le;
	struct lro_seg s;

	if (lc->lro_cnt == 0 || !lro_parse(m, &s))
		return (TCP_LRO_NOT_SUPPORTED);
	LIST_FOREACH(le, &lc->lro_active, next) {
		if (lro_address_compare(&le->outer.data, &s.ls_parser.data))
			break;
	}
	if (!lro_mergeable(m, &s)) {
		if (le != NULL)
			lro_flush(lc, le);
		return (TCP_LRO_CANNOT);
	}
	/* What Ethernet padded. */
	if (m->m_pkthdr.len > (int)s.ls_end)
		m_adj(m, (int)s.ls_end - m->m_pkthdr.len);
	lc->lro_queued++;
	if (le != NULL && lro_follows(lc, le, &s)) {
		lro_append(le, m, &s);
		lro_note(le, &s);
		return (0);
	}
	if (le != NULL)
		lro_flush(lc, le);
	lro_begin(lc, m, &s);
	return (0);
}

/*
 * 0: the packet was taken.  TCP_LRO_NOT_SUPPORTED: it is not of TCP; TCP_LRO_CANNOT: it can't be
 * merged.  `csum' is for drivers that computed a checksum: ours have it verified.  The caller need
 * not have set curvnet.
 */
int
tcp_lro_rx(struct lro_ctrl *lc, struct mbuf *m, uint32_t csum __unused)
{
	int error;

	CURVNET_SET(if_getvnet(lc->ifp));
	error = lro_rx(lc, m);
	CURVNET_RESTORE();
	return (error);
}

void
tcp_lro_flush_all(struct lro_ctrl *lc)
{
	struct lro_entry *le;

	while ((le = LIST_FIRST(&lc->lro_active)) != NULL)
		lro_flush(lc, le);
}

/* `entries' connections at a time.  0, or ENOMEM. */
int
tcp_lro_init_args(struct lro_ctrl *lc, if_t ifp, unsigned entries, unsigned mbufs __unused)
{
	struct lro_entry *les;
	unsigned i;

	bzero(lc, sizeof(*lc));
	les = malloc(MAX(entries, 1) * sizeof(*les), M_LRO, M_NOWAIT | M_ZERO);
	if (les == NULL)
		return (ENOMEM);
	lc->ifp = ifp;
	lc->lro_cnt = entries;
	lc->lro_length_lim = TCP_LRO_LENGTH_MAX;
	lc->lro_mbuf_data = (void *)les;
	LIST_INIT(&lc->lro_active);
	LIST_INIT(&lc->lro_free);
	for (i = 0; i < entries; i++)
		LIST_INSERT_HEAD(&lc->lro_free, &les[i], next);
	return (0);
}

int
tcp_lro_init(struct lro_ctrl *lc)
{
	return (tcp_lro_init_args(lc, NULL, TCP_LRO_ENTRIES, 0));
}

/* What is still kept is lost. */
void
tcp_lro_free(struct lro_ctrl *lc)
{
	struct lro_entry *le;

	LIST_FOREACH(le, &lc->lro_active, next)
		m_freem(le->m_head);
	free(lc->lro_mbuf_data, M_LRO);
	bzero(lc, sizeof(*lc));
}
