/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * TCP's table of connections: birth, look-up, end; resets; what ICMP reports.  See tcp_conn_tree.h.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/tcp_conn_tree.h>
#include <sys/endian.h>

#define	TCP_HASH	256

static struct mtx tcp_mtx;
MTX_SYSINIT(inet_tcp, &tcp_mtx, "tcp table", MTX_DEF);
static LIST_HEAD(tcp_head, tcp_conn) tcp_table[TCP_HASH];
static STAILQ_HEAD(, tcp_conn) tcp_dead = STAILQ_HEAD_INITIALIZER(tcp_dead);
static u_int tcp_count;

static struct tcp_head *
tcpc_bucket(uint16_t lport)
{
	return (&tcp_table[(lport ^ lport >> 8) % TCP_HASH]);
}

/* A new connection with one reference, closed and in no list.  NULL if there are too many. */
struct tcp_conn *
tcpc_alloc(void)
{
	struct tcp_conn *t;

	if (atomic_fetchadd_int(&tcp_count, 1) >= TCP_MAXCONNS ||
	    (t = malloc(sizeof(*t), M_INET, M_NOWAIT | M_ZERO)) == NULL) {
		atomic_subtract_int(&tcp_count, 1);
		return (NULL);
	}
	mtx_init(&t->t_mtx, "tcp", NULL, MTX_DEF | MTX_DUPOK);
	callout_init_mtx(&t->t_callout, &t->t_mtx, 0);
	TAILQ_INIT(&t->t_acceptq);
	TAILQ_INIT(&t->t_oos);
	t->t_refs = 1;
	t->t_rto = TCP_RTO_INIT;
	t->t_maxseg = t->t_peermss = TCP_MSS;
	t->t_tsoffset = arc4random();
	t->rcv_scale = TCP_RCVSCALE;
	return (t);
}

void
tcpc_ref(struct tcp_conn *t)
{
	atomic_add_int(&t->t_refs, 1);
}

/* Give a reference back; the last one leaves the connection to tcpc_reap(). */
void
tcpc_rele(struct tcp_conn *t)
{
	if (atomic_fetchadd_int(&t->t_refs, -1) != 1)
		return;
	mtx_lock(&tcp_mtx);
	STAILQ_INSERT_TAIL(&tcp_dead, t, t_deadlink);
	mtx_unlock(&tcp_mtx);
}

/* Once a second, from a thread: free connections without a reference. */
void
tcpc_reap(void)
{
	STAILQ_HEAD(, tcp_conn) dead = STAILQ_HEAD_INITIALIZER(dead);
	struct tcp_conn *t;

	mtx_lock(&tcp_mtx);
	STAILQ_SWAP(&dead, &tcp_dead, tcp_conn);
	mtx_unlock(&tcp_mtx);
	while ((t = STAILQ_FIRST(&dead)) != NULL) {
		STAILQ_REMOVE_HEAD(&dead, t_deadlink);
		callout_drain(&t->t_callout);
		tcpc_buf_free(&t->t_snd);
		tcpc_buf_free(&t->t_rcv);
		tcpc_reass_flush(t);
		mtx_destroy(&t->t_mtx);
		free(t, M_INET);
		atomic_subtract_int(&tcp_count, 1);
	}
}

static bool
tcpc_same_peer(const struct tcp_conn *t, const struct in6_addr *faddr, uint16_t fport,
    const struct in6_addr *laddr)
{
	return (t->t_state != TCPS_LISTEN && t->t_fport == fport && inet_same(&t->t_faddr, faddr) &&
	    inet_same(&t->t_laddr, laddr));
}

/*
 * Find the connection of two ends, or else the listener of the local one, and take a reference.
 */
static struct tcp_conn *
tcpc_lookup(const struct in6_addr *laddr, uint16_t lport, const struct in6_addr *faddr,
    uint16_t fport)
{
	struct tcp_conn *t, *listener = NULL;

	mtx_lock(&tcp_mtx);
	LIST_FOREACH(t, tcpc_bucket(lport), t_link) {
		if (t->t_lport != lport)
			continue;
		if (tcpc_same_peer(t, faddr, fport, laddr)) {
			listener = t;
			break;
		}
		if (t->t_state == TCPS_LISTEN && (inet_same(&t->t_laddr, laddr) ||
		    (listener == NULL && inet_unspecified(&t->t_laddr))))
			listener = t;
	}
	if (listener != NULL)
		tcpc_ref(listener);
	mtx_unlock(&tcp_mtx);
	return (listener);
}

static bool
tcpc_port_used(const struct tcp_conn *me, uint16_t lport)
{
	struct tcp_conn *t;

	mtx_assert(&tcp_mtx, MA_OWNED);
	LIST_FOREACH(t, tcpc_bucket(lport), t_link) {
		if (t->t_lport != lport)
			continue;
		if (me->t_state == TCPS_LISTEN ? t->t_state == TCPS_LISTEN &&
		    inet_same(&t->t_laddr, &me->t_laddr) :
		    tcpc_same_peer(t, &me->t_faddr, me->t_fport, &me->t_laddr))
			return (true);
	}
	return (false);
}

/*
 * Put a connection into the table, which refers to it then; a local port of 0 is chosen at random
 * (RFC 6056).  EADDRINUSE.
 */
int
tcpc_insert(struct tcp_conn *t)
{
	uint16_t port = t->t_lport;
	u_int tries;
	int error = 0;

	mtx_lock(&tcp_mtx);
	for (tries = 0; t->t_lport == 0 && tries < 1024; tries++) {
		port = 49152 + arc4random() % (65536 - 49152);
		if (!tcpc_port_used(t, port))
			t->t_lport = port;
	}
	if (t->t_lport == 0 || tcpc_port_used(t, port))
		error = EADDRINUSE;
	else {
		LIST_INSERT_HEAD(tcpc_bucket(port), t, t_link);
		t->t_intable = true;
		tcpc_ref(t);
	}
	mtx_unlock(&tcp_mtx);
	return (error);
}

/* A child that ends before it is accepted frees its place in the listener's queue. */
void
tcpc_leave_parent(struct tcp_conn *t)
{
	struct tcp_conn *l = t->t_parent;

	if (l == NULL)
		return;
	t->t_parent = NULL;
	atomic_subtract_int(&l->t_queued, 1);
	tcpc_rele(l);
}

/*
 * End a connection, whose mutex is held, for a reason (0: in good order): no timer runs, it is
 * out of the table, and waiting threads are woken.
 */
void
tcpc_drop(struct tcp_conn *t, int error)
{
	bool was;

	mtx_assert(&t->t_mtx, MA_OWNED);
	if (t->t_state != TCPS_CLOSED)
		INSTAT_INC(tcp.tcps_closed);
	t->t_state = TCPS_CLOSED;
	if (t->t_error == 0)
		t->t_error = error;
	tcpc_timer_stop_all(t);
	tcpc_leave_parent(t);
	mtx_lock(&tcp_mtx);
	was = t->t_intable;
	if (was) {
		LIST_REMOVE(t, t_link);
		t->t_intable = false;
	}
	mtx_unlock(&tcp_mtx);
	wakeup(t);
	if (was)
		tcpc_rele(t);
}

/* Copy the n-th connection for a listing; false behind the last. */
bool
tcpc_nth(u_int n, struct tcp_conn *out)
{
	struct tcp_conn *t = NULL;
	u_int i;

	mtx_lock(&tcp_mtx);
	for (i = 0; i < TCP_HASH && t == NULL; i++) {
		LIST_FOREACH(t, &tcp_table[i], t_link) {
			if (n-- == 0)
				break;
		}
	}
	if (t != NULL)
		memcpy(out, t, sizeof(*out));
	mtx_unlock(&tcp_mtx);
	return (t != NULL);
}

/*
 * Look at the way to the peer: the local address, if there is none yet, the segment size and
 * whether the interface cuts large segments for us.
 */
int
tcpc_route(struct tcp_conn *t)
{
	struct inet_out o = { .o_src = t->t_laddr, .o_dst = t->t_faddr };
	struct epoch_tracker et;
	struct inet_nexthop nh;
	u_int hdr, mss;
	int error, assist;

	NET_EPOCH_ENTER(et);
	if (t->t_ifindex != 0)
		o.o_ifp = ifnet_byindex(t->t_ifindex);
	error = inet_output_way(&o, &nh);
	if (error == 0) {
		t->t_laddr = o.o_src;
		hdr = sizeof(struct tcphdr) +
		    (inet_is4(&t->t_faddr) ? sizeof(struct ip) : sizeof(struct ip6_hdr));
		mss = (nh.nh_ifp != NULL ? nh.nh_mtu : 16384) - hdr;
		t->t_ourmss = mss;
		t->t_maxseg = min(mss, t->t_peermss) - (t->t_ts ? TCPOLEN_TSTAMP_APPA : 0);
		t->t_tsomax = 0;
		assist = nh.nh_ifp != NULL ? if_gethwassist(nh.nh_ifp) : 0;
		if ((assist & (inet_is4(&t->t_faddr) ? CSUM_IP_TSO : CSUM_IP6_TSO)) != 0)
			t->t_tsomax = min(if_gethwtsomax(nh.nh_ifp), IP_MAXPACKET) - hdr -
			    TCP_MAXOLEN - ETHER_HDR_LEN - ETHER_VLAN_ENCAP_LEN;
	}
	NET_EPOCH_EXIT(et);
	return (error);
}

/* The options are known now: choose the segment size. */
void
tcpc_set_mss(struct tcp_conn *t)
{
	t->t_peermss = max(t->t_peermss, TCP_MINMSS);
	(void)tcpc_route(t);
}

static void
tcpc_send_bare(const struct inet_out *o, uint16_t sport, uint16_t dport, tcp_seq seq, tcp_seq ack,
    u_int flags)
{
	struct epoch_tracker et;
	struct tcphdr *th;
	struct mbuf *m;

	m = m_gethdr(M_NOWAIT, MT_DATA);
	if (m == NULL)
		return;
	m->m_data += max_linkhdr + sizeof(struct ip6_hdr);
	m->m_len = m->m_pkthdr.len = sizeof(*th);
	th = mtod(m, struct tcphdr *);
	memset(th, 0, sizeof(*th));
	th->th_sport = htons(sport);
	th->th_dport = htons(dport);
	th->th_seq = htonl(seq);
	th->th_ack = htonl(ack);
	th->th_off = sizeof(*th) >> 2;
	th->th_flags = flags;
	INSTAT_INC(tcp.tcps_sndtotal);
	INSTAT_INC(tcp.tcps_sndctrl);
	NET_EPOCH_ENTER(et);
	(void)inet_output(m, o);
	NET_EPOCH_EXIT(et);
}

/*
 * Answer a segment that belongs to no connection (RFC 9293, 3.5.2).
 */
void
tcpc_reset_reply(const struct inet_pkt *p, const struct tcp_segment *s, uint16_t sport,
    uint16_t dport)
{
	struct inet_out o = {
		.o_src = p->ip_dst,
		.o_dst = p->ip_src,
		.o_proto = IPPROTO_TCP,
	};
	u_int len = s->s_len + ((s->s_flags & TH_SYN) != 0) + ((s->s_flags & TH_FIN) != 0);

	if ((s->s_flags & TH_RST) != 0 || p->ip_bmcast || inet_multicast(&p->ip_src) ||
	    inet_unspecified(&p->ip_src) || !inet_icmp_ratelimit())
		return;
	if (IN6_IS_ADDR_LINKLOCAL(&p->ip_src))
		o.o_ifp = p->ip_ifp;
	if ((s->s_flags & TH_ACK) != 0)
		tcpc_send_bare(&o, dport, sport, s->s_ack, 0, TH_RST);
	else
		tcpc_send_bare(&o, dport, sport, 0, s->s_seq + len, TH_RST | TH_ACK);
}

/* Reset the peer's connection. */
void
tcpc_send_reset(struct tcp_conn *t)
{
	struct inet_out o = {
		.o_src = t->t_laddr,
		.o_dst = t->t_faddr,
		.o_proto = IPPROTO_TCP,
	};
	struct epoch_tracker et;

	NET_EPOCH_ENTER(et);
	if (t->t_ifindex != 0)
		o.o_ifp = ifnet_byindex(t->t_ifindex);
	tcpc_send_bare(&o, t->t_lport, t->t_fport, t->snd_nxt, t->rcv_nxt, TH_RST | TH_ACK);
	NET_EPOCH_EXIT(et);
}

static void
tcpc_parse_sack(struct tcp_segment *s, const uint8_t *p, u_int left)
{
	for (s->s_nsack = 0; left >= TCPOLEN_SACK && s->s_nsack < TCP_MAX_SACK;
	    p += TCPOLEN_SACK, left -= TCPOLEN_SACK) {
		s->s_sack[s->s_nsack].sk_start = be32dec(p);
		s->s_sack[s->s_nsack++].sk_end = be32dec(p + sizeof(tcp_seq));
	}
}

/* Parse the options; what is malformed ends them. */
static void
tcpc_parse_options(struct tcp_segment *s, const uint8_t *p, u_int left)
{
	u_int len;

	for (; left > 0 && p[0] != TCPOPT_EOL; p += len, left -= len) {
		len = 1;
		if (p[0] == TCPOPT_NOP)
			continue;
		if (left < 2 || (len = p[1]) < 2 || len > left)
			return;
		if (p[0] == TCPOPT_MAXSEG && len == TCPOLEN_MAXSEG)
			s->s_mss = p[2] << 8 | p[3];
		else if (p[0] == TCPOPT_WINDOW && len == TCPOLEN_WINDOW)
			s->s_wscale = MIN(p[2], TCP_MAX_WINSHIFT);
		else if (p[0] == TCPOPT_TIMESTAMP && len == TCPOLEN_TIMESTAMP) {
			s->s_ts = true;
			s->s_tsval = be32dec(p + 2);
			s->s_tsecr = be32dec(p + 6);
		} else if (p[0] == TCPOPT_SACK_PERMITTED && len == TCPOLEN_SACK_PERMITTED)
			s->s_sackok = true;
		else if (p[0] == TCPOPT_SACK)
			tcpc_parse_sack(s, p + TCPOLEN_SACKHDR, len - TCPOLEN_SACKHDR);
	}
}

/* Check and parse a segment; false if it was dropped.  The mbuf holds the data alone then. */
static bool
tcpc_parse(struct mbuf *m, const struct inet_pkt *p, struct tcphdr *th, struct tcp_segment *s)
{
	uint8_t opts[TCP_MAXOLEN];
	u_int hlen;

	INSTAT_INC(tcp.tcps_rcvtotal);
	memset(s, 0, sizeof(*s));
	s->s_wscale = -1;
	if (p->ip_len < (int)sizeof(*th)) {
		INSTAT_INC(tcp.tcps_rcvshort);
		return (false);
	}
	m_copydata(m, p->ip_off, sizeof(*th), (caddr_t)th);
	hlen = th->th_off << 2;
	if (hlen < sizeof(*th) || (int)hlen > p->ip_len) {
		INSTAT_INC(tcp.tcps_rcvbadoff);
		return (false);
	}
	if (!inet_pkt_cksum_ok(m, p)) {
		INSTAT_INC(tcp.tcps_rcvbadsum);
		return (false);
	}
	m_copydata(m, p->ip_off + sizeof(*th), hlen - sizeof(*th), opts);
	tcpc_parse_options(s, opts, hlen - sizeof(*th));
	s->s_seq = ntohl(th->th_seq);
	s->s_ack = ntohl(th->th_ack);
	s->s_wnd = ntohs(th->th_win);
	s->s_flags = th->th_flags;
	s->s_len = p->ip_len - hlen;
	s->s_m = m;
	m_adj(m, p->ip_off + hlen);
	return (true);
}

/*
 * What tcpc_lookup() finds, with its mutex held.  One that has ended meanwhile is out of the table: it
 * is looked for again, for a SYN may be for a listener now.
 */
static struct tcp_conn *
tcpc_lookup_locked(const struct inet_pkt *p, const struct tcphdr *th)
{
	struct tcp_conn *t;

	while ((t = tcpc_lookup(&p->ip_dst, ntohs(th->th_dport), &p->ip_src,
	    ntohs(th->th_sport))) != NULL) {
		mtx_lock(&t->t_mtx);
		if (t->t_state != TCPS_CLOSED)
			break;
		mtx_unlock(&t->t_mtx);
		tcpc_rele(t);
	}
	return (t);
}

void
tcp_inet_input(struct mbuf *m, const struct inet_pkt *p)
{
	struct tcp_conn *t;
	struct tcp_segment s;
	struct tcphdr th;

	if (p->ip_bmcast || !tcpc_parse(m, p, &th, &s)) {
		m_freem(m);
		return;
	}
	t = tcpc_lookup_locked(p, &th);
	if (t == NULL) {
		tcpc_reset_reply(p, &s, ntohs(th.th_sport), ntohs(th.th_dport));
		m_freem(m);
		return;
	}
	tcpc_segment_input(t, &s, p, ntohs(th.th_sport), ntohs(th.th_dport));
	mtx_unlock(&t->t_mtx);
	m_freem(s.s_m);
	tcpc_rele(t);
}

/*
 * ICMP reported on a segment that we sent.  The quoted sequence number has to be of data on the
 * way, so that a blind attacker has to guess it (RFC 5927, 4.1).  Only a connection that is not
 * yet established ends by it; on others it is a hint (RFC 1122, 4.2.3.9).
 */
void
tcp_inet_ctlinput(const struct in6_addr *local, const struct in6_addr *remote, uint16_t lport,
    uint16_t fport, uint32_t seq, int error, u_int mtu)
{
	struct tcp_conn *t;

	t = tcpc_lookup(local, lport, remote, fport);
	if (t == NULL)
		return;
	mtx_lock(&t->t_mtx);
	if (t->t_state != TCPS_LISTEN && t->t_state != TCPS_CLOSED &&
	    SEQ_GEQ(seq, t->snd_una) && SEQ_LT(seq, t->snd_max)) {
		if (error == EMSGSIZE) {
			inet_pmtu_update(remote, mtu);
			(void)tcpc_route(t);
			INSTAT_INC(tcp.tcps_mturesent);
			t->snd_nxt = t->snd_una;
			(void)tcpc_output(t);
		} else if (t->t_state < TCPS_ESTABLISHED)
			tcpc_drop(t, error);
	}
	mtx_unlock(&t->t_mtx);
	tcpc_rele(t);
}
