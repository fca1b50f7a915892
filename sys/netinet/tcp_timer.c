/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * TCP's timers.  Each connection has one callout, set to the earliest of its timers; a timer that
 * is put off leaves it alone, and the callout that comes too early sets itself again.  See
 * tcp_conn_tree.h.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/tcp_conn_tree.h>

void
tcpc_timer_set(struct tcp_conn *t, enum tcp_timer which, sbintime_t delay)
{
	sbintime_t due = sbinuptime() + delay;

	mtx_assert(&t->t_mtx, MA_OWNED);
	t->t_timer[which] = due;
	if (t->t_armed == 0 || due < t->t_armed) {
		t->t_armed = due;
		callout_reset_sbt(&t->t_callout, delay, SBT_1MS, tcpc_timer_input, t, 0);
	}
}

void
tcpc_timer_clear(struct tcp_conn *t, enum tcp_timer which)
{
	t->t_timer[which] = 0;
}

void
tcpc_timer_stop_all(struct tcp_conn *t)
{
	memset(t->t_timer, 0, sizeof(t->t_timer));
	t->t_armed = 0;
	callout_stop(&t->t_callout);
}

static void
tcpc_retransmit(struct tcp_conn *t)
{
	u_int most = t->t_state < TCPS_ESTABLISHED ? TCP_MAXSYNREXMT : TCP_MAXREXMT;

	if (++t->t_rexmt > most) {
		INSTAT_INC(tcp.tcps_timeoutdrop);
		tcpc_drop(t, ETIMEDOUT);
		return;
	}
	INSTAT_INC(tcp.tcps_rexmttimeo);
	t->t_rto = MIN(t->t_rto * 2, TCP_RTO_MAX);
	/* The way, or what its interface can do, may be what has changed. */
	(void)tcpc_route(t);
	tcpc_rto_backoff(t);
	(void)tcpc_output(t);
	if (t->t_state != TCPS_CLOSED && t->snd_una != t->snd_max &&
	    t->t_timer[TCPT_RETRANSMIT] == 0 && t->t_timer[TCPT_PERSIST] == 0)
		tcpc_timer_set(t, TCPT_RETRANSMIT, t->t_rto);
}

static void
tcpc_persist(struct tcp_conn *t)
{
	if (t->snd_wnd > 0) {
		tcpc_send_little(t);
		return;
	}
	if (t->t_detached && t->t_rexmt > TCP_MAXREXMT) {
		INSTAT_INC(tcp.tcps_persistdrop);
		tcpc_send_reset(t);
		tcpc_drop(t, ETIMEDOUT);
		return;
	}
	INSTAT_INC(tcp.tcps_persisttimeo);
	tcpc_probe(t);
	t->t_rexmt++;
	tcpc_timer_set(t, TCPT_PERSIST, MIN(t->t_rto << MIN(t->t_rexmt, 8), TCP_RTO_MAX));
}

static void
tcpc_expire(struct tcp_conn *t, enum tcp_timer which)
{
	switch (which) {
	case TCPT_RETRANSMIT:
		tcpc_retransmit(t);
		break;
	case TCPT_PERSIST:
		tcpc_persist(t);
		break;
	case TCPT_DELACK:
		INSTAT_INC(tcp.tcps_delack);
		t->t_acknow = true;
		(void)tcpc_output(t);
		break;
	default:
		tcpc_drop(t, 0);
		break;
	}
}

/* The callout, with the connection's mutex held. */
void
tcpc_timer_input(void *arg)
{
	struct tcp_conn *t = arg;
	sbintime_t now = sbinuptime(), next = 0;
	enum tcp_timer i;

	t->t_armed = 0;
	for (i = 0; i < TCPT_NTIMERS; i++) {
		if (t->t_timer[i] != 0 && t->t_timer[i] <= now) {
			t->t_timer[i] = 0;
			CURVNET_SET(vnet0);
			tcpc_expire(t, i);
			CURVNET_RESTORE();
		}
	}
	for (i = 0; i < TCPT_NTIMERS; i++) {
		if (t->t_timer[i] != 0 && (next == 0 || t->t_timer[i] < next))
			next = t->t_timer[i];
	}
	if (next != 0 && (t->t_armed == 0 || next < t->t_armed)) {
		t->t_armed = next;
		callout_reset_sbt(&t->t_callout, MAX(next - now, 0), SBT_1MS, tcpc_timer_input, t,
		    0);
	}
}
