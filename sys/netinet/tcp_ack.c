/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * TCP acknowledgements in: what has arrived, how long it took (RFC 6298), and how much may be on
 * the way (RFC 5681; to repair losses RFC 6675, or NewReno of RFC 6582 with a peer without SACK).
 * See tcp_conn_tree.h.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/tcp_conn_tree.h>

#define	TCP_DUPTHRESH	3

/* Our clock for timestamps: milliseconds from a random start. */
uint32_t
tcpc_ts_now(const struct tcp_conn *t)
{
	return ((uint32_t)sbttoms(sbinuptime()) + t->t_tsoffset);
}

void
tcpc_cwnd_init(struct tcp_conn *t)
{
	t->snd_cwnd = TCP_INITWND * t->t_maxseg;
	t->t_cwndacked = 0;
}

/* RFC 6298, 2. */
void
tcpc_rtt_sample(struct tcp_conn *t, sbintime_t rtt)
{
	sbintime_t err;

	if (rtt < 0 || rtt > TCP_RTO_MAX)
		return;
	rtt = MAX(rtt, SBT_1US);
	INSTAT_INC(tcp.tcps_rttupdated);
	if (t->t_srtt == 0) {
		t->t_srtt = rtt;
		t->t_rttvar = rtt / 2;
	} else {
		err = rtt > t->t_srtt ? rtt - t->t_srtt : t->t_srtt - rtt;
		t->t_rttvar += (err - t->t_rttvar) / 4;
		t->t_srtt += (rtt - t->t_srtt) / 8;
	}
	t->t_rto = MIN(MAX(t->t_srtt + MAX(4 * t->t_rttvar, SBT_1MS), TCP_RTO_MIN), TCP_RTO_MAX);
}

static uint32_t
tcpc_flight(const struct tcp_conn *t)
{
	return (t->snd_max - t->snd_una);
}

static uint32_t
tcpc_half_flight(const struct tcp_conn *t)
{
	return (MAX(tcpc_flight(t) / 2, 2 * t->t_maxseg));
}

/* The retransmission timer ran out: start again from one segment (RFC 5681, 3.1). */
void
tcpc_rto_backoff(struct tcp_conn *t)
{
	if (t->t_rexmt == 1)
		t->snd_ssthresh = tcpc_half_flight(t);
	t->snd_cwnd = t->t_maxseg;
	t->t_cwndacked = 0;
	t->t_dupacks = 0;
	t->t_recovery = false;
	t->snd_recover = t->snd_max;
	t->snd_nxt = t->snd_una;
	tcpc_sack_forget(t);
	t->t_rttstart = 0;
}

/* RFC 5681, 3.1, counting bytes (RFC 3465). */
static void
tcpc_cwnd_grow(struct tcp_conn *t, uint32_t acked)
{
	if (t->snd_cwnd < t->snd_ssthresh)
		/* RFC 3465, 2.2; what was sent as one big segment may be acknowledged as one. */
		t->snd_cwnd += MIN(acked, MAX(2 * t->t_maxseg, t->t_tsomax));
	else {
		t->t_cwndacked += acked;
		if (t->t_cwndacked >= t->snd_cwnd) {
			t->t_cwndacked -= t->snd_cwnd;
			t->snd_cwnd += t->t_maxseg;
		}
	}
	t->snd_cwnd = MIN(t->snd_cwnd, 65535U << TCP_MAX_WINSHIFT);
}

/* RFC 6582, 3.2. */
static void
tcpc_dupack(struct tcp_conn *t)
{
	INSTAT_INC(tcp.tcps_rcvdupack);
	t->t_dupacks++;
	if (t->t_recovery) {
		if (!t->t_sack)
			t->snd_cwnd += t->t_maxseg;
		return;
	}
	if ((t->t_dupacks < TCP_DUPTHRESH && !tcpc_sack_loss(t)) ||
	    !SEQ_GT(t->snd_una, t->snd_recover))
		return;
	t->t_recovery = true;
	t->snd_recover = t->snd_nxt = t->snd_max;
	t->snd_ssthresh = tcpc_half_flight(t);
	t->t_rttstart = 0;
	if (t->t_sack) {
		INSTAT_INC(tcp.tcps_sack_recovery_episode);
		t->t_highrxt = t->snd_una;
		t->snd_cwnd = t->snd_ssthresh;
		tcpc_sack_resend(t, true);
		return;
	}
	tcpc_resend_first(t);
	t->snd_cwnd = t->snd_ssthresh + TCP_DUPTHRESH * t->t_maxseg;
}

/* New data is acknowledged while a loss is being repaired. */
static void
tcpc_recovery_ack(struct tcp_conn *t, tcp_seq ack, uint32_t acked)
{
	if (SEQ_GEQ(ack, t->snd_recover)) {
		t->t_recovery = false;
		t->snd_cwnd = MIN(t->snd_ssthresh,
		    MAX(t->snd_max - ack, t->t_maxseg) + t->t_maxseg);
		t->t_cwndacked = 0;
		return;
	}
	/* A partial one: the next segment was lost as well; with SACK the holes say so. */
	if (t->t_sack)
		return;
	tcpc_resend_first(t);
	if (t->snd_cwnd > t->t_maxseg)
		t->snd_cwnd -= MIN(acked, t->snd_cwnd - t->t_maxseg);
	if (acked >= t->t_maxseg)
		t->snd_cwnd += t->t_maxseg;
}

static void
tcpc_rtt_from_ack(struct tcp_conn *t, const struct tcp_segment *s)
{
	if (t->t_ts && s->s_ts && s->s_tsecr != 0)
		tcpc_rtt_sample(t, (sbintime_t)(int32_t)(tcpc_ts_now(t) - s->s_tsecr) * SBT_1MS);
	else if (t->t_rttstart != 0 && SEQ_GT(s->s_ack, t->t_rttseq)) {
		tcpc_rtt_sample(t, sbinuptime() - t->t_rttstart);
		t->t_rttstart = 0;
	}
}

static void
tcpc_new_ack(struct tcp_conn *t, const struct tcp_segment *s)
{
	uint32_t acked = s->s_ack - t->snd_una, data;

	INSTAT_INC(tcp.tcps_rcvackpack);
	INSTAT_ADD(tcp.tcps_rcvackbyte, acked);
	tcpc_rtt_from_ack(t, s);
	data = MIN(acked, t->t_snd.b_len);
	if (data > 0) {
		/* The remembered place stays right if what it points at stays. */
		if (t->t_sndmoff >= data)
			t->t_sndmoff -= data;
		else
			t->t_sndm = NULL;
		tcpc_buf_drop(&t->t_snd, data);
		if (t->t_snd.b_len <= TCP_SNDLOW)
			wakeup(t);
	}
	t->snd_una = s->s_ack;
	if (SEQ_LT(t->snd_nxt, t->snd_una))
		t->snd_nxt = t->snd_una;
	(void)tcpc_sack_input(t, s);
	if (t->t_recovery)
		tcpc_recovery_ack(t, s->s_ack, acked);
	else
		tcpc_cwnd_grow(t, acked);
	t->t_dupacks = 0;
	t->t_rexmt = 0;
	if (t->snd_una == t->snd_max)
		tcpc_timer_clear(t, TCPT_RETRANSMIT);
	else
		tcpc_timer_set(t, TCPT_RETRANSMIT, t->t_rto);
}

static void
tcpc_window_update(struct tcp_conn *t, const struct tcp_segment *s, uint32_t wnd)
{
	if (!SEQ_LT(t->snd_wl1, s->s_seq) && !(t->snd_wl1 == s->s_seq &&
	    (SEQ_LT(t->snd_wl2, s->s_ack) || (t->snd_wl2 == s->s_ack && wnd > t->snd_wnd))))
		return;
	t->snd_wnd = wnd;
	t->snd_wl1 = s->s_seq;
	t->snd_wl2 = s->s_ack;
	t->max_sndwnd = MAX(t->max_sndwnd, wnd);
	if (wnd > 0 && t->t_timer[TCPT_PERSIST] != 0) {
		tcpc_timer_clear(t, TCPT_PERSIST);
		t->t_rexmt = 0;
		t->snd_nxt = SEQ_MAX(t->snd_nxt, t->snd_una);
	}
}

/*
 * The acknowledgement of a segment.  False if the segment must not be used any further.
 */
bool
tcpc_ack_input(struct tcp_conn *t, struct tcp_segment *s)
{
	uint32_t wnd = s->s_wnd << t->snd_scale;
	bool news;

	if (SEQ_GT(s->s_ack, t->snd_max)) {
		INSTAT_INC(tcp.tcps_rcvacktoomuch);
		t->t_acknow = true;
		(void)tcpc_output(t);
		return (false);
	}
	if (SEQ_GT(s->s_ack, t->snd_una))
		tcpc_new_ack(t, s);
	else if (s->s_ack == t->snd_una && t->snd_una != t->snd_max) {
		news = tcpc_sack_input(t, s);
		if (news || (!t->t_sack && s->s_len == 0 && wnd == t->snd_wnd &&
		    (s->s_flags & TH_FIN) == 0))
			tcpc_dupack(t);
	}
	tcpc_window_update(t, s, wnd);
	return (true);
}
