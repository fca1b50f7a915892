/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * TCP data in: to the reader's buffer in order, to a queue while something before it is missing.
 * See tcp_conn_tree.h.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/tcp_conn_tree.h>

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
 * Queue data not received yet before `next' (NULL: as the last).  No queue is too full for what
 * is in order, and what is behind it without a gap: it leaves again at once.
 */
static void
tcpc_oos_put(struct tcp_conn *t, struct tcp_oos *next, tcp_seq seq, u_int len, bool fin,
    struct mbuf *m, bool inorder)
{
	struct tcp_oos *new = NULL;

	if (inorder || t->t_ooscount < TCP_REASS_MAX)
		new = malloc(sizeof(*new), M_INET, M_NOWAIT | M_ZERO);
	if (new == NULL) {
		INSTAT_INC(tcp.tcps_rcvreassfull);
		m_freem(m);
		return;
	}
	new->o_seq = seq;
	new->o_len = len;
	new->o_fin = fin;
	new->o_m = m;
	if (next != NULL)
		TAILQ_INSERT_BEFORE(next, new, o_link);
	else
		TAILQ_INSERT_TAIL(&t->t_oos, new, o_link);
	t->t_oosbytes += len;
	t->t_ooscount++;
	INSTAT_INC(tcp.tcps_rcvoopack);
	INSTAT_ADD(tcp.tcps_rcvoobyte, len);
}

/*
 * Put data in its place in the queue.  What is there already keeps its bytes: a segment fills the
 * gaps.
 */
static void
tcpc_oos_insert(struct tcp_conn *t, struct tcp_segment *s, struct mbuf *m)
{
	u_int len = s->s_len, n;
	tcp_seq seq = s->s_seq;
	bool fin = (s->s_flags & TH_FIN) != 0, inorder = seq == t->rcv_nxt;
	struct tcp_oos *o;
	struct mbuf *rest;

	TAILQ_FOREACH(o, &t->t_oos, o_link) {
		if (SEQ_LT(seq, o->o_seq)) {
			n = o->o_seq - seq;
			if (n >= len)
				break;
			/* A piece before o, and more from o's first byte on. */
			rest = m_split(m, n, M_NOWAIT);
			if (rest == NULL) {
				m_adj(m, -(int)(len - n));
				fin = false;
				len = n;
				break;
			}
			tcpc_oos_put(t, o, seq, n, false, m, inorder);
			m = rest;
			seq += n;
			len -= n;
		}
		n = MIN(len, SEQ_LT(seq, o->o_seq + o->o_len) ? o->o_seq + o->o_len - seq : 0);
		m_adj(m, n);
		seq += n;
		len -= n;
		if (len == 0 && SEQ_LEQ(seq, o->o_seq + o->o_len)) {
			o->o_fin |= fin && seq == o->o_seq + o->o_len;
			INSTAT_INC(tcp.tcps_rcvduppack);
			m_freem(m);
			return;
		}
	}
	tcpc_oos_put(t, o, seq, len, fin, m, inorder);
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
