/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * TCP segments out: what may be sent now (RFC 9293, 3.8; silly window avoidance of RFC 1122,
 * 4.2.3.4), and how a segment is made.  See tcp_conn_tree.h.
 *
 * What is left of a write, less than a segment, waits for more as long as data is on its way (Nagle;
 * RFC 1122, 4.2.3.4).  Where the interface cuts segments itself (TSO), a segment is as long as it
 * takes, a multiple of the segment size.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/tcp_conn_tree.h>

/* What to send next. */
struct tcp_plan {
	u_int		p_off;		/* in t_snd */
	u_int		p_len;
	u_int		p_flags;
};

static u_int
tcpc_put_options(const struct tcp_conn *t, uint8_t *p, const struct tcp_plan *plan)
{
	uint8_t *start = p;
	bool syn = (plan->p_flags & TH_SYN) != 0, offer = t->t_state == TCPS_SYN_SENT;
	uint32_t v;

	if (syn) {
		*p++ = TCPOPT_MAXSEG;
		*p++ = TCPOLEN_MAXSEG;
		*p++ = t->t_ourmss >> 8;
		*p++ = t->t_ourmss;
		if (offer || t->t_wscale) {
			*p++ = TCPOPT_NOP;
			*p++ = TCPOPT_WINDOW;
			*p++ = TCPOLEN_WINDOW;
			*p++ = t->rcv_scale;
		}
		if (offer || t->t_sack) {
			*p++ = TCPOPT_NOP;
			*p++ = TCPOPT_NOP;
			*p++ = TCPOPT_SACK_PERMITTED;
			*p++ = TCPOLEN_SACK_PERMITTED;
		}
	}
	if (t->t_ts || (syn && offer)) {
		*p++ = TCPOPT_NOP;
		*p++ = TCPOPT_NOP;
		*p++ = TCPOPT_TIMESTAMP;
		*p++ = TCPOLEN_TIMESTAMP;
		v = htonl(tcpc_ts_now(t));
		memcpy(p, &v, sizeof(v));
		v = htonl(t->ts_recent);
		memcpy(p + 4, &v, sizeof(v));
		p += 8;
	}
	if (!syn && t->t_sack && plan->p_len == 0 && !TAILQ_EMPTY(&t->t_oos))
		p += tcpc_sack_options(t, p, TCP_MAXOLEN - (p - start));
	return (p - start);
}

/* The window to advertise: never less than was advertised, and 0 rather than a silly little one. */
static uint32_t
tcpc_tell_window(const struct tcp_conn *t)
{
	uint32_t space = tcpc_rcvspace(t);
	uint32_t told = SEQ_GT(t->rcv_adv, t->rcv_nxt) ? t->rcv_adv - t->rcv_nxt : 0;

	if (space < TCP_RCVBUF / 4 && space < t->t_maxseg)
		space = 0;
	return (MIN(MAX(space, told), (uint32_t)TCP_MAXWIN << t->rcv_scale));
}

/* References to the data of a segment; remembers where it ended, for the next one. */
static struct mbuf *
tcpc_copy_data(struct tcp_conn *t, u_int off, u_int len)
{
	struct mbuf *m = t->t_sndm;
	u_int start = t->t_sndmoff;

	if (m == NULL || start > off) {
		m = t->t_snd.b_head;
		start = 0;
	}
	while (off - start >= (u_int)m->m_len) {
		start += m->m_len;
		m = m->m_next;
	}
	t->t_sndm = m;
	t->t_sndmoff = start;
	return (m_copym(m, off - start, len, M_NOWAIT));
}

/* The header's mbuf, the data behind it; NULL without memory. */
static struct mbuf *
tcpc_build(struct tcp_conn *t, tcp_seq seq, const struct tcp_plan *p)
{
	struct tcphdr *th;
	struct mbuf *m;
	uint32_t wnd = tcpc_tell_window(t);
	u_int optlen;

	m = m_gethdr(M_NOWAIT, MT_DATA);
	if (m == NULL)
		return (NULL);
	m->m_data += max_linkhdr + sizeof(struct ip6_hdr);
	th = mtod(m, struct tcphdr *);
	memset(th, 0, sizeof(*th));
	optlen = tcpc_put_options(t, (uint8_t *)(th + 1), p);
	th->th_sport = htons(t->t_lport);
	th->th_dport = htons(t->t_fport);
	th->th_seq = htonl(seq);
	th->th_ack = (p->p_flags & TH_ACK) != 0 ? htonl(t->rcv_nxt) : 0;
	th->th_off = (sizeof(*th) + optlen) >> 2;
	th->th_flags = p->p_flags;
	th->th_win = htons((p->p_flags & TH_SYN) != 0 ? MIN(wnd, TCP_MAXWIN) : wnd >> t->rcv_scale);
	m->m_len = sizeof(*th) + optlen;
	m->m_pkthdr.len = m->m_len + p->p_len;
	if (p->p_len > 0) {
		m->m_next = tcpc_copy_data(t, p->p_off, p->p_len);
		if (m->m_next == NULL) {
			m_freem(m);
			return (NULL);
		}
	}
	if (p->p_len > t->t_maxseg) {
		m->m_pkthdr.csum_flags |= inet_is4(&t->t_faddr) ? CSUM_IP_TSO : CSUM_IP6_TSO;
		m->m_pkthdr.tso_segsz = t->t_maxseg;
	}
	return (m);
}

/* What an ACK that goes out settles. */
static void
tcpc_acked(struct tcp_conn *t)
{
	uint32_t wnd = tcpc_tell_window(t) >> t->rcv_scale << t->rcv_scale;

	if (SEQ_GT(t->rcv_nxt + wnd, t->rcv_adv))
		t->rcv_adv = t->rcv_nxt + wnd;
	t->last_ack_sent = t->rcv_nxt;
	t->t_acknow = t->t_delack = false;
	tcpc_timer_clear(t, TCPT_DELACK);
}

static int
tcpc_send_segment(struct tcp_conn *t, tcp_seq seq, const struct tcp_plan *p)
{
	struct inet_out o = {
		.o_src = t->t_laddr,
		.o_dst = t->t_faddr,
		.o_proto = IPPROTO_TCP,
		.o_flags = INETO_DF,
	};
	struct epoch_tracker et;
	struct mbuf *m;
	int error;

	m = tcpc_build(t, seq, p);
	if (m == NULL)
		return (ENOBUFS);
	INSTAT_INC(tcp.tcps_sndtotal);
	if (p->p_len > 0) {
		INSTAT_INC(tcp.tcps_sndpack);
		INSTAT_ADD(tcp.tcps_sndbyte, p->p_len);
		if (SEQ_LT(seq, t->snd_max)) {
			INSTAT_INC(tcp.tcps_sndrexmitpack);
			INSTAT_ADD(tcp.tcps_sndrexmitbyte, p->p_len);
		}
	} else if ((p->p_flags & (TH_SYN | TH_FIN)) != 0)
		INSTAT_INC(tcp.tcps_sndctrl);
	else
		INSTAT_INC(tcp.tcps_sndacks);
	NET_EPOCH_ENTER(et);
	if (t->t_ifindex != 0)
		o.o_ifp = ifnet_byindex(t->t_ifindex);
	error = inet_output(m, &o);
	NET_EPOCH_EXIT(et);
	if (error == 0 && (p->p_flags & TH_ACK) != 0)
		tcpc_acked(t);
	return (error);
}

/* Flags that the state itself asks for. */
static u_int
tcpc_state_flags(const struct tcp_conn *t)
{
	if (t->t_state == TCPS_SYN_SENT)
		return (TH_SYN);
	if (t->t_state == TCPS_SYN_RECEIVED)
		return (t->snd_nxt == t->iss ? TH_SYN | TH_ACK : TH_ACK);
	return (TH_ACK);
}

/* The most data of one segment, or of one that the interface cuts. */
static u_int
tcpc_most(const struct tcp_conn *t)
{
	return (t->t_tsomax < t->t_maxseg ? t->t_maxseg :
	    t->t_tsomax - t->t_tsomax % t->t_maxseg);
}

/* How much of the `len' bytes from `off' on may go into one segment now. */
static u_int
tcpc_plan_data(const struct tcp_conn *t, u_int off, u_int len)
{
	u_int flight;

	if (off >= t->t_snd.b_len || off >= t->snd_wnd)
		return (0);
	flight = t->t_recovery && t->t_sack ? tcpc_sack_pipe(t) :
	    off - tcpc_sack_below(t, t->snd_una + off);
	if (t->snd_cwnd <= flight)
		return (0);
	len = MIN(len, MIN(t->t_snd.b_len, t->snd_wnd) - off);
	len = MIN(MIN(len, t->snd_cwnd - flight), tcpc_most(t));
	/* The last segment of a large one is short only if the data ends there. */
	if (len > t->t_maxseg && off + len < t->t_snd.b_len)
		len -= len % t->t_maxseg;
	return (len);
}

/* Would the reader's progress be news to the peer? */
static bool
tcpc_window_news(const struct tcp_conn *t)
{
	uint32_t wnd = tcpc_tell_window(t);
	uint32_t told = SEQ_GT(t->rcv_adv, t->rcv_nxt) ? t->rcv_adv - t->rcv_nxt : 0;

	if (t->t_rcvfin || t->t_state < TCPS_ESTABLISHED)
		return (false);
	return (wnd - told >= MAX(2 * t->t_maxseg, TCP_RCVBUF / 8) ||
	    (told < 2 * t->t_maxseg && wnd - told >= 2 * t->t_maxseg));
}

/* Decide on the next segment; false if there is nothing to send now. */
static bool
tcpc_plan(struct tcp_conn *t, struct tcp_plan *p)
{
	bool synstate = t->t_state < TCPS_ESTABLISHED, all, finstate, last;
	u_int most = 0;

	if (!synstate)
		t->snd_nxt = tcpc_sack_skip(t, t->snd_nxt, &most);
	p->p_off = synstate ? 0 : t->snd_nxt - t->snd_una;
	p->p_flags = tcpc_state_flags(t);
	p->p_len = synstate ? 0 : tcpc_plan_data(t, p->p_off, most);
	if (synstate)
		return ((p->p_flags & TH_SYN) != 0 ? t->snd_nxt == t->iss : t->t_acknow);
	all = p->p_off + p->p_len == t->t_snd.b_len;
	finstate = t->t_state == TCPS_FIN_WAIT_1 || t->t_state == TCPS_CLOSING ||
	    t->t_state == TCPS_LAST_ACK;
	if (all && finstate)
		p->p_flags |= TH_FIN;
	if (p->p_len > 0 && all)
		p->p_flags |= TH_PUSH;
	last = all && (t->snd_una == t->snd_max || (p->p_flags & TH_FIN) != 0);
	if (p->p_len >= t->t_maxseg || (p->p_len > 0 && (last || p->p_len >= t->max_sndwnd / 2 ||
	    SEQ_LT(t->snd_nxt, t->snd_max))))
		return (true);
	if (!all || p->p_len > 0) {
		/* Too little, or data that the window has no room for: without it. */
		p->p_len = 0;
		p->p_flags &= ~(TH_FIN | TH_PUSH);
	}
	return (t->t_acknow || (p->p_flags & TH_FIN) != 0 || tcpc_window_news(t));
}

/* A segment is on its way: count it. */
static void
tcpc_advance(struct tcp_conn *t, const struct tcp_plan *p)
{
	u_int n = p->p_len + ((p->p_flags & TH_SYN) != 0) + ((p->p_flags & TH_FIN) != 0);

	if (n == 0)
		return;
	if ((p->p_flags & TH_FIN) != 0)
		t->t_sentfin = true;
	if (!t->t_ts && t->t_rttstart == 0 && t->snd_nxt == t->snd_max) {
		t->t_rttstart = sbinuptime();
		t->t_rttseq = t->snd_nxt;
		INSTAT_INC(tcp.tcps_segstimed);
	}
	t->snd_nxt += n;
	t->snd_max = SEQ_MAX(t->snd_max, t->snd_nxt);
	if (t->t_timer[TCPT_RETRANSMIT] == 0) {
		tcpc_timer_clear(t, TCPT_PERSIST);
		tcpc_timer_set(t, TCPT_RETRANSMIT, t->t_rto);
	}
}

/*
 * Data waits, nothing is on the way, and the window is shut, or all but shut: it has to be probed
 * (RFC 9293, 3.8.6.1), or used as it is.
 */
static void
tcpc_check_persist(struct tcp_conn *t)
{
	if (t->t_state >= TCPS_ESTABLISHED && t->t_snd.b_len > 0 &&
	    t->t_timer[TCPT_RETRANSMIT] == 0 && t->t_timer[TCPT_PERSIST] == 0) {
		t->t_rexmt = 0;
		tcpc_timer_set(t, TCPT_PERSIST, t->t_rto);
	}
}

/*
 * Send again what is lost (tcp_sack.c), as far as there is room on the way; with force at least one
 * segment.
 */
void
tcpc_sack_resend(struct tcp_conn *t, bool force)
{
	struct tcp_plan p;
	u_int len, room;
	uint32_t pipe;
	tcp_seq seq;

	while (tcpc_sack_hole(t, &seq, &len)) {
		pipe = tcpc_sack_pipe(t);
		room = t->snd_cwnd > pipe ? t->snd_cwnd - pipe : 0;
		if (room < t->t_maxseg && !force)
			break;
		force = false;
		p = (struct tcp_plan){ .p_off = seq - t->snd_una, .p_flags = TH_ACK };
		p.p_len = MIN(MIN(len, MAX(room, t->t_maxseg)), tcpc_most(t));
		p.p_len = MIN(p.p_len, t->t_snd.b_len - p.p_off);
		if (t->t_sentfin && p.p_off + p.p_len == t->t_snd.b_len)
			p.p_flags |= TH_FIN;
		if (tcpc_send_segment(t, seq, &p) != 0)
			break;
		INSTAT_INC(tcp.tcps_sack_rexmits);
		INSTAT_ADD(tcp.tcps_sack_rexmit_bytes, p.p_len);
		t->t_highrxt = seq + p.p_len + ((p.p_flags & TH_FIN) != 0);
		if (p.p_len == 0)
			break;
	}
}

/* An ACK alone: only those have room to say what has arrived out of order. */
static void
tcpc_ack_gap(struct tcp_conn *t)
{
	struct tcp_plan p = { .p_flags = TH_ACK };

	if (t->t_sack && t->t_acknow && !TAILQ_EMPTY(&t->t_oos))
		(void)tcpc_send_segment(t, t->snd_max, &p);
}

/*
 * Send what can be sent.  ENOBUFS leaves the rest for the next ACK or the timer.
 */
int
tcpc_output(struct tcp_conn *t)
{
	struct tcp_plan p;
	tcp_seq seq;
	int error = 0, tries = 0;

	mtx_assert(&t->t_mtx, MA_OWNED);
	if (t->t_state == TCPS_CLOSED || t->t_state == TCPS_LISTEN)
		return (0);
	if (t->t_state >= TCPS_ESTABLISHED)
		tcpc_ack_gap(t);
	if (t->t_recovery && t->t_sack)
		tcpc_sack_resend(t, false);
	while (tcpc_plan(t, &p)) {
		seq = p.p_len > 0 || (p.p_flags & (TH_SYN | TH_FIN)) != 0 ? t->snd_nxt : t->snd_max;
		error = tcpc_send_segment(t, seq, &p);
		if (error == EMSGSIZE && tries++ == 0) {
			/* The way has changed: its MTU, or what the interface can do. */
			(void)tcpc_route(t);
			continue;
		}
		/* Nothing of it was sent (if_offload_send()). */
		if (error == ENOBUFS) {
			if ((t->snd_una != t->snd_max || (p.p_flags & (TH_SYN | TH_FIN)) != 0) &&
			    t->t_timer[TCPT_RETRANSMIT] == 0)
				tcpc_timer_set(t, TCPT_RETRANSMIT, t->t_rto);
			break;
		}
		/*
		 * Any other error is a lost segment: the timer decides how long to believe in the
		 * way.
		 */
		tcpc_advance(t, &p);
		if (error != 0 || (p.p_len == 0 && (p.p_flags & (TH_SYN | TH_FIN)) == 0))
			break;
	}
	tcpc_check_persist(t);
	return (error);
}

/* Send the first unacknowledged segment again, whatever the windows say. */
void
tcpc_resend_first(struct tcp_conn *t)
{
	struct tcp_plan p = { .p_flags = TH_ACK };

	p.p_len = MIN(t->t_snd.b_len, t->t_maxseg);
	if (t->t_sentfin && p.p_len == t->t_snd.b_len)
		p.p_flags |= TH_FIN;
	(void)tcpc_send_segment(t, t->snd_una, &p);
}

/*
 * Data has waited long enough for a window that is open, but by less than a segment and than half of
 * what it once was: send what it takes (RFC 1122, 4.2.3.4).
 */
void
tcpc_send_little(struct tcp_conn *t)
{
	struct tcp_plan p = { .p_flags = TH_ACK };

	p.p_len = MIN(MIN(t->t_snd.b_len, t->snd_wnd), t->t_maxseg);
	if (p.p_len > 0 && tcpc_send_segment(t, t->snd_una, &p) != ENOBUFS) {
		t->snd_nxt = t->snd_una;
		tcpc_advance(t, &p);
	}
	tcpc_check_persist(t);
}

/* Send one byte into a window that is shut, to hear whether it is still. */
void
tcpc_probe(struct tcp_conn *t)
{
	struct tcp_plan p = { .p_flags = TH_ACK, .p_len = 1 };

	if (t->t_snd.b_len == 0)
		return;
	INSTAT_INC(tcp.tcps_sndprobe);
	(void)tcpc_send_segment(t, t->snd_una, &p);
	t->snd_max = SEQ_MAX(t->snd_max, t->snd_una + 1);
}
