/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * TCP segments in: the state machine (RFC 9293, 3.10.7; RFC 5961 against blind attacks; RFC 7323
 * for timestamps).  See tcp_conn_tree.h.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/tcp_conn_tree.h>

#define	TCP_TS_OLD	(24 * 86400)	/* RFC 7323, 5.5 */

/* The receive window that there is room for; a window that was advertised is never reduced. */
static uint32_t
tcpc_window(const struct tcp_conn *t)
{
	uint32_t told = SEQ_GT(t->rcv_adv, t->rcv_nxt) ? t->rcv_adv - t->rcv_nxt : 0;

	return (MAX(tcpc_rcvspace(t), told));
}

/* Take over the options of a SYN (RFC 9293, 3.7.1; RFC 7323, 2.2, 3.2). */
static void
tcpc_syn_options(struct tcp_conn *t, const struct tcp_segment *s)
{
	if (s->s_mss != 0)
		t->t_peermss = s->s_mss;
	t->t_wscale = s->s_wscale >= 0;
	t->snd_scale = t->t_wscale ? s->s_wscale : 0;
	if (!t->t_wscale)
		t->rcv_scale = 0;
	t->t_ts = s->s_ts;
	t->t_sack = s->s_sackok;
	t->ts_recent = s->s_tsval;
	t->ts_age = time_uptime;
	t->irs = s->s_seq;
	t->rcv_nxt = t->rcv_adv = t->last_ack_sent = s->s_seq + 1;
	tcpc_set_mss(t);
}

static void
tcpc_new_send(struct tcp_conn *t)
{
	t->iss = arc4random();
	t->snd_una = t->snd_nxt = t->snd_max = t->snd_recover = t->t_highrxt = t->iss;
	t->snd_ssthresh = UINT32_MAX;
	tcpc_cwnd_init(t);
}

/* Begin a connection from our side; t is in no table yet. */
void
tcpc_start(struct tcp_conn *t)
{
	tcpc_new_send(t);
	t->t_state = TCPS_SYN_SENT;
}

/* A SYN for a listener: make a child and answer for it (RFC 9293, 3.10.7.2). */
static void
tcpc_listen_input(struct tcp_conn *l, struct tcp_segment *s, const struct inet_pkt *p,
    uint16_t sport, uint16_t dport)
{
	struct tcp_conn *t;

	if ((s->s_flags & TH_RST) != 0)
		return;
	if ((s->s_flags & TH_ACK) != 0) {
		tcpc_reset_reply(p, s, sport, dport);
		return;
	}
	if ((s->s_flags & (TH_SYN | TH_FIN)) != TH_SYN || inet_unspecified(&p->ip_src) ||
	    inet_multicast(&p->ip_src))
		return;
	if (l->t_queued >= l->t_backlog || (t = tcpc_alloc()) == NULL) {
		INSTAT_INC(tcp.tcps_listendrop);
		return;
	}
	t->t_laddr = p->ip_dst;
	t->t_faddr = p->ip_src;
	t->t_lport = dport;
	t->t_fport = sport;
	if (IN6_IS_ADDR_LINKLOCAL(&p->ip_src))
		t->t_ifindex = if_getindex(p->ip_ifp);
	mtx_lock(&t->t_mtx);
	tcpc_new_send(t);
	tcpc_syn_options(t, s);
	t->snd_wl1 = s->s_seq;
	t->snd_wnd = t->max_sndwnd = s->s_wnd;
	t->t_state = TCPS_SYN_RECEIVED;
	t->t_parent = l;
	tcpc_ref(l);
	atomic_add_int(&l->t_queued, 1);
	if (tcpc_insert(t) != 0)
		tcpc_drop(t, EADDRINUSE);
	else {
		t->t_acknow = true;
		(void)tcpc_output(t);
	}
	/* A child has no user yet: the listener's queue refers to it once it is established. */
	mtx_unlock(&t->t_mtx);
	tcpc_rele(t);
}

/* The three-way handshake is done. */
void
tcpc_established(struct tcp_conn *t)
{
	struct tcp_conn *l = t->t_parent;
	bool taken = false;

	INSTAT_INC(tcp.tcps_connects);
	t->t_state = TCPS_ESTABLISHED;
	t->t_rexmt = 0;
	tcpc_cwnd_init(t);
	wakeup(t);
	if (l == NULL)
		return;
	INSTAT_INC(tcp.tcps_accepts);
	mtx_lock(&l->t_mtx);
	if (l->t_state == TCPS_LISTEN) {
		tcpc_ref(t);
		TAILQ_INSERT_TAIL(&l->t_acceptq, t, t_acceptlink);
		taken = true;
		wakeup(l);
	}
	mtx_unlock(&l->t_mtx);
	if (!taken) {
		tcpc_send_reset(t);
		tcpc_drop(t, ECONNABORTED);
	}
}

/* RFC 9293, 3.10.7.3. */
static void
tcpc_synsent_input(struct tcp_conn *t, struct tcp_segment *s, const struct inet_pkt *p)
{
	bool ack = (s->s_flags & TH_ACK) != 0;

	if (ack && (SEQ_LEQ(s->s_ack, t->iss) || SEQ_GT(s->s_ack, t->snd_max))) {
		tcpc_reset_reply(p, s, t->t_fport, t->t_lport);
		return;
	}
	if ((s->s_flags & TH_RST) != 0) {
		if (ack)
			tcpc_drop(t, ECONNREFUSED);
		return;
	}
	if ((s->s_flags & TH_SYN) == 0)
		return;
	tcpc_syn_options(t, s);
	t->snd_wl1 = s->s_seq;
	t->snd_wnd = t->max_sndwnd = s->s_wnd;
	t->t_acknow = true;
	if (!ack) {
		/* Both sides open at the same time. */
		t->t_state = TCPS_SYN_RECEIVED;
		t->snd_nxt = t->iss;
		(void)tcpc_output(t);
		return;
	}
	t->snd_una = s->s_ack;
	if (SEQ_LT(t->snd_nxt, t->snd_una))
		t->snd_nxt = t->snd_una;
	t->snd_wl2 = s->s_ack;
	tcpc_timer_clear(t, TCPT_RETRANSMIT);
	if (s->s_ts && s->s_tsecr != 0 && t->t_rexmt == 0)
		tcpc_rtt_sample(t, (tcpc_ts_now(t) - s->s_tsecr) * SBT_1MS);
	tcpc_established(t);
	/* Data may have come with the SYN; it is not used, and comes again. */
	(void)tcpc_output(t);
}

/*
 * A rate-limited ACK with our state, to a peer that is out of step or an attacker (RFC 5961, 7).
 */
static void
tcpc_challenge(struct tcp_conn *t)
{
	if (inet_icmp_ratelimit()) {
		t->t_acknow = true;
		(void)tcpc_output(t);
	}
}

/* Is any part of the segment inside of the window (RFC 9293, 3.4)? */
static bool
tcpc_acceptable(const struct tcp_conn *t, const struct tcp_segment *s, uint32_t wnd)
{
	u_int len = s->s_len + ((s->s_flags & TH_SYN) != 0) + ((s->s_flags & TH_FIN) != 0);

	if (len == 0)
		return (wnd == 0 ? s->s_seq == t->rcv_nxt :
		    SEQ_GEQ(s->s_seq, t->rcv_nxt) && SEQ_LT(s->s_seq, t->rcv_nxt + wnd));
	return (SEQ_LT(s->s_seq, t->rcv_nxt + wnd) && SEQ_GT(s->s_seq + len, t->rcv_nxt));
}

/* Cut off the parts outside the window. */
static void
tcpc_trim(struct tcp_conn *t, struct tcp_segment *s, uint32_t wnd)
{
	u_int cut;

	if (SEQ_LT(s->s_seq, t->rcv_nxt)) {
		cut = t->rcv_nxt - s->s_seq;
		if ((s->s_flags & TH_SYN) != 0) {
			s->s_flags &= ~TH_SYN;
			s->s_seq++;
			cut--;
		}
		cut = MIN(cut, s->s_len);
		m_adj(s->s_m, cut);
		s->s_seq += cut;
		s->s_len -= cut;
		INSTAT_INC(tcp.tcps_rcvpartduppack);
		INSTAT_ADD(tcp.tcps_rcvpartdupbyte, cut);
	}
	if (SEQ_GT(s->s_seq + s->s_len, t->rcv_nxt + wnd)) {
		cut = s->s_seq + s->s_len - (t->rcv_nxt + wnd);
		m_adj(s->s_m, -(int)cut);
		s->s_len -= cut;
		s->s_flags &= ~TH_FIN;
		INSTAT_INC(tcp.tcps_rcvpackafterwin);
	}
}

/* PAWS (RFC 7323, 5.3): true if the segment is an old duplicate. */
static bool
tcpc_paws(struct tcp_conn *t, const struct tcp_segment *s)
{
	if (!t->t_ts || !s->s_ts || (s->s_flags & TH_RST) != 0 ||
	    !TSTMP_LT(s->s_tsval, t->ts_recent))
		return (false);
	if (time_uptime - t->ts_age > TCP_TS_OLD)
		return (false);
	INSTAT_INC(tcp.tcps_pawsdrop);
	return (true);
}

/*
 * Checks in the order of RFC 9293, 3.10.7.4: sequence, RST, SYN.  False if the segment is done
 * with.
 */
static bool
tcpc_check(struct tcp_conn *t, struct tcp_segment *s)
{
	uint32_t wnd = tcpc_window(t);

	if (tcpc_paws(t, s) || !tcpc_acceptable(t, s, wnd)) {
		INSTAT_INC(tcp.tcps_rcvduppack);
		/*
		 * A retransmitted FIN or data says that our ACK was lost; a RST is never answered.
		 */
		if ((s->s_flags & TH_RST) == 0) {
			if (t->t_state == TCPS_TIME_WAIT)
				tcpc_timer_set(t, TCPT_2MSL, TCP_MSL2);
			t->t_acknow = true;
			(void)tcpc_output(t);
		}
		return (false);
	}
	if ((s->s_flags & TH_RST) != 0) {
		if (s->s_seq == t->rcv_nxt)
			tcpc_drop(t, t->t_state == TCPS_SYN_RECEIVED ? ECONNREFUSED : ECONNRESET);
		else {
			INSTAT_INC(tcp.tcps_badrst);
			tcpc_challenge(t);
		}
		return (false);
	}
	tcpc_trim(t, s, wnd);
	if ((s->s_flags & TH_SYN) != 0) {
		tcpc_challenge(t);
		return (false);
	}
	if (t->t_ts && s->s_ts && SEQ_LEQ(s->s_seq, t->last_ack_sent)) {
		t->ts_recent = s->s_tsval;
		t->ts_age = time_uptime;
	}
	return ((s->s_flags & TH_ACK) != 0);
}

void
tcpc_enter_timewait(struct tcp_conn *t)
{
	t->t_state = TCPS_TIME_WAIT;
	tcpc_timer_clear(t, TCPT_RETRANSMIT);
	tcpc_timer_clear(t, TCPT_PERSIST);
	tcpc_timer_set(t, TCPT_2MSL, TCP_MSL2);
}

/* Our FIN is acknowledged. */
static void
tcpc_fin_acked(struct tcp_conn *t)
{
	switch (t->t_state) {
	case TCPS_FIN_WAIT_1:
		t->t_state = TCPS_FIN_WAIT_2;
		if (t->t_detached)
			tcpc_timer_set(t, TCPT_2MSL, TCP_FINWAIT2);
		break;
	case TCPS_CLOSING:
		tcpc_enter_timewait(t);
		break;
	case TCPS_LAST_ACK:
		tcpc_drop(t, 0);
		break;
	}
}

/* The peer's FIN has arrived in order. */
static void
tcpc_fin_input(struct tcp_conn *t)
{
	t->t_acknow = true;
	wakeup(t);
	switch (t->t_state) {
	case TCPS_ESTABLISHED:
		t->t_state = TCPS_CLOSE_WAIT;
		break;
	case TCPS_FIN_WAIT_1:
		t->t_state = TCPS_CLOSING;
		break;
	case TCPS_FIN_WAIT_2:
		tcpc_enter_timewait(t);
		break;
	}
}

/*
 * A segment for a connection in the table, whose mutex is held.  What is left of s->s_m the caller
 * frees.
 */
void
tcpc_segment_input(struct tcp_conn *t, struct tcp_segment *s, const struct inet_pkt *p,
    uint16_t sport, uint16_t dport)
{
	bool hadfin = t->t_rcvfin;

	mtx_assert(&t->t_mtx, MA_OWNED);
	switch (t->t_state) {
	case TCPS_LISTEN:
		tcpc_listen_input(t, s, p, sport, dport);
		return;
	case TCPS_SYN_SENT:
		tcpc_synsent_input(t, s, p);
		return;
	}
	if (!tcpc_check(t, s))
		return;
	if (t->t_state == TCPS_SYN_RECEIVED) {
		if (SEQ_LEQ(s->s_ack, t->snd_una) || SEQ_GT(s->s_ack, t->snd_max)) {
			tcpc_reset_reply(p, s, sport, dport);
			return;
		}
		tcpc_established(t);
		if (t->t_state == TCPS_CLOSED)
			return;
		t->snd_wl1 = s->s_seq - 1;
	}
	if (!tcpc_ack_input(t, s))
		return;
	if (t->t_sentfin && t->snd_una == t->snd_max)
		tcpc_fin_acked(t);
	if (t->t_state == TCPS_CLOSED)
		return;
	if (s->s_len > 0 && t->t_detached && t->t_state >= TCPS_FIN_WAIT_1) {
		/* The socket is closed: no one can read this (RFC 9293, 3.6.1). */
		tcpc_send_reset(t);
		tcpc_drop(t, ECONNRESET);
		return;
	}
	if (s->s_len > 0 || (s->s_flags & TH_FIN) != 0)
		tcpc_data_input(t, s);
	if (t->t_rcvfin && !hadfin)
		tcpc_fin_input(t);
	(void)tcpc_output(t);
}
