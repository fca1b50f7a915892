/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * TCP data in: to the reader's buffer in order, to a queue while something before it is missing.
 * See tcp_conn.h.
 */

#include <netinet/inet_stack.h>
#include <netinet/inet_stat.h>
#include <netinet/tcp_conn.h>

/*
 * Append a chain of len bytes.  A little data is copied behind what is there, so that a peer who
 * sends byte by byte can't make each of them hold a cluster.
 */
void
tcpc_buf_append(struct tcp_buf *b, struct mbuf *m, u_int len)
{
	while (m != NULL && m->m_len == 0)
		m = m_free(m);
	if (m == NULL)
		return;
	b->b_len += len;
	if (b->b_tail != NULL && len <= MLEN && len <= (u_int)M_TRAILINGSPACE(b->b_tail)) {
		m_copydata(m, 0, len, mtod(b->b_tail, caddr_t) + b->b_tail->m_len);
		b->b_tail->m_len += len;
		m_freem(m);
		return;
	}
	m_demote(m, 1, 0);
	if (b->b_tail != NULL)
		b->b_tail->m_next = m;
	else
		b->b_head = m;
	b->b_tail = m_last(m);
}

/* Take len bytes, which are there, off the front. */
void
tcpc_buf_drop(struct tcp_buf *b, u_int len)
{
	struct mbuf *m;

	KASSERT(len <= b->b_len, ("tcp buffer: %u of %u", len, b->b_len));
	b->b_len -= len;
	while ((m = b->b_head) != NULL && len >= (u_int)m->m_len) {
		len -= m->m_len;
		b->b_head = m_free(m);
	}
	if (b->b_head == NULL)
		b->b_tail = NULL;
	else {
		b->b_head->m_data += len;
		b->b_head->m_len -= len;
	}
}

void
tcpc_buf_free(struct tcp_buf *b)
{
	m_freem(b->b_head);
	b->b_head = b->b_tail = NULL;
	b->b_len = 0;
}

/* Room in the reader's buffer. */
uint32_t
tcpc_rcvspace(const struct tcp_conn *t)
{
	return (t->t_rcv.b_len < TCP_RCVBUF ? TCP_RCVBUF - t->t_rcv.b_len : 0);
}

static void
tcpc_oos_free(struct tcp_conn *t, struct tcp_oos *o)
{
	TAILQ_REMOVE(&t->t_oos, o, o_link);
	t->t_oosbytes -= o->o_len;
	t->t_ooscount--;
	m_freem(o->o_m);
	free(o, M_INET);
}

void
tcpc_reass_flush(struct tcp_conn *t)
{
	struct tcp_oos *o;

	while ((o = TAILQ_FIRST(&t->t_oos)) != NULL)
		tcpc_oos_free(t, o);
}

/*
 * Put data in its place in the queue.  What is there already keeps its bytes: a segment loses what
 * its neighbours have, and what reaches beyond the next of them, which will come again.
 */
static void
tcpc_oos_insert(struct tcp_conn *t, struct tcp_segment *s, struct mbuf *m)
{
	struct tcp_oos *o, *new;
	int dup;

	new = t->t_ooscount < TCP_REASS_MAX ? malloc(sizeof(*new), M_INET, M_NOWAIT | M_ZERO) :
	    NULL;
	if (new == NULL) {
		INSTAT_INC(tcp.tcps_rcvreassfull);
		m_freem(m);
		return;
	}
	new->o_seq = s->s_seq;
	new->o_len = s->s_len;
	new->o_fin = (s->s_flags & TH_FIN) != 0;
	new->o_m = m;
	INSTAT_INC(tcp.tcps_rcvoopack);
	INSTAT_ADD(tcp.tcps_rcvoobyte, s->s_len);
	TAILQ_FOREACH(o, &t->t_oos, o_link) {
		if (SEQ_GT(o->o_seq, new->o_seq))
			break;
		/* A copy of what is here, or less. */
		if (SEQ_GEQ(o->o_seq + o->o_len, new->o_seq + new->o_len) &&
		    o->o_fin >= new->o_fin) {
			INSTAT_INC(tcp.tcps_rcvduppack);
			m_freem(m);
			free(new, M_INET);
			return;
		}
		dup = o->o_seq + o->o_len - new->o_seq;
		if (dup > 0) {
			dup = MIN((u_int)dup, new->o_len);
			m_adj(new->o_m, dup);
			new->o_seq += dup;
			new->o_len -= dup;
		}
	}
	if (o != NULL && SEQ_GT(new->o_seq + new->o_len, o->o_seq)) {
		dup = new->o_seq + new->o_len - o->o_seq;
		m_adj(new->o_m, -dup);
		new->o_len -= dup;
		new->o_fin = false;
	}
	if (o != NULL)
		TAILQ_INSERT_BEFORE(o, new, o_link);
	else
		TAILQ_INSERT_TAIL(&t->t_oos, new, o_link);
	t->t_oosbytes += new->o_len;
	t->t_ooscount++;
}

static void
tcpc_deliver(struct tcp_conn *t, struct mbuf *m, u_int len, bool fin)
{
	INSTAT_INC(tcp.tcps_rcvpack);
	INSTAT_ADD(tcp.tcps_rcvbyte, len);
	t->rcv_nxt += len;
	/*
	 * After the user has closed there is no reader; FIN_WAIT_2 still takes the peer's last
	 * words.
	 */
	if (t->t_detached)
		m_freem(m);
	else
		tcpc_buf_append(&t->t_rcv, m, len);
	if (fin && !t->t_rcvfin) {
		t->rcv_nxt++;
		t->t_rcvfin = true;
	}
}

/* Deliver what has become in order. */
static void
tcpc_oos_pull(struct tcp_conn *t)
{
	struct tcp_oos *o;
	struct mbuf *m;
	u_int dup;

	while ((o = TAILQ_FIRST(&t->t_oos)) != NULL && SEQ_LEQ(o->o_seq, t->rcv_nxt) &&
	    !t->t_rcvfin) {
		dup = t->rcv_nxt - o->o_seq;
		if (dup < o->o_len || (dup == o->o_len && o->o_fin)) {
			m = o->o_m;
			o->o_m = NULL;
			m_adj(m, dup);
			tcpc_deliver(t, m, o->o_len - dup, o->o_fin);
		}
		tcpc_oos_free(t, o);
	}
}

/*
 * The data and FIN of a segment, trimmed to the window; its mbuf is taken.
 */
void
tcpc_data_input(struct tcp_conn *t, struct tcp_segment *s)
{
	struct mbuf *m = s->s_m;
	bool inorder = s->s_seq == t->rcv_nxt && TAILQ_EMPTY(&t->t_oos);

	s->s_m = NULL;
	if (t->t_rcvfin) {
		INSTAT_INC(tcp.tcps_rcvafterclose);
		t->t_acknow = true;
		m_freem(m);
		return;
	}
	if (inorder) {
		/* An ACK at least for every second segment (RFC 9293, 3.8.6.3). */
		if (t->t_delack || s->s_len > t->t_maxseg)
			t->t_acknow = true;
		else {
			t->t_delack = true;
			tcpc_timer_set(t, TCPT_DELACK, TCPC_DELACK);
		}
		tcpc_deliver(t, m, s->s_len, (s->s_flags & TH_FIN) != 0);
	} else {
		t->t_acknow = true;
		t->t_ooslast = s->s_seq;
		tcpc_oos_insert(t, s, m);
		tcpc_oos_pull(t);
	}
	wakeup(t);
}
