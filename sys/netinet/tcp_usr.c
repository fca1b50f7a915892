/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * What users of TCP call (tcp_conn_tree.h says how).  All of it may sleep, and none of it is for the
 * input path.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/tcp_conn_tree.h>

#define	TCP_CHUNK	(64 * 1024)	/* bytes copied at a time */

int
tcpc_connect(const struct in6_addr *dst, u_int scope, uint16_t port, sbintime_t timeout,
    struct tcp_conn **tp)
{
	sbintime_t deadline = sbinuptime() + timeout;
	struct tcp_conn *t;
	int error;

	t = tcpc_alloc();
	if (t == NULL)
		return (ENOBUFS);
	t->t_faddr = *dst;
	t->t_fport = port;
	t->t_ifindex = scope;
	inet_wait_source(dst, scope);
	INSTAT_INC(tcp.tcps_connattempt);
	mtx_lock(&t->t_mtx);
	error = tcpc_route(t);
	tcpc_start(t);
	if (error == 0)
		error = tcpc_insert(t);
	if (error == 0)
		(void)tcpc_output(t);
	while (error == 0 && t->t_state < TCPS_ESTABLISHED) {
		error = t->t_error;
		if (error == 0 && t->t_state == TCPS_CLOSED)
			error = ECONNABORTED;
		if (error == 0)
			error = inet_sleep(t, &t->t_mtx, "tcpcon", deadline);
	}
	if (error != 0)
		tcpc_drop(t, error);
	mtx_unlock(&t->t_mtx);
	if (error != 0) {
		tcpc_rele(t);
		return (error == EWOULDBLOCK ? ETIMEDOUT : error);
	}
	*tp = t;
	return (0);
}

int
tcpc_listen(const struct in6_addr *laddr, uint16_t port, u_int backlog, struct tcp_conn **tp)
{
	struct tcp_conn *t;
	int error;

	t = tcpc_alloc();
	if (t == NULL)
		return (ENOBUFS);
	mtx_lock(&t->t_mtx);
	if (laddr != NULL)
		t->t_laddr = *laddr;
	t->t_lport = port;
	t->t_backlog = backlog;
	t->t_state = TCPS_LISTEN;
	error = tcpc_insert(t);
	mtx_unlock(&t->t_mtx);
	if (error != 0) {
		tcpc_rele(t);
		return (error);
	}
	*tp = t;
	return (0);
}

int
tcpc_accept(struct tcp_conn *l, sbintime_t timeout, struct tcp_conn **tp)
{
	sbintime_t deadline = sbinuptime() + timeout;
	struct tcp_conn *t;
	int error = 0;

	mtx_lock(&l->t_mtx);
	while ((t = TAILQ_FIRST(&l->t_acceptq)) == NULL && error == 0)
		error = inet_sleep(l, &l->t_mtx, "tcpacc", deadline);
	if (t != NULL)
		TAILQ_REMOVE(&l->t_acceptq, t, t_acceptlink);
	mtx_unlock(&l->t_mtx);
	if (t == NULL)
		return (error);
	/* The queue's reference is the user's now. */
	mtx_lock(&t->t_mtx);
	tcpc_leave_parent(t);
	mtx_unlock(&t->t_mtx);
	*tp = t;
	return (0);
}

/* Room for so much data: in large clusters as long as there are, for each piece costs all the way. */
static struct mbuf *
tcpc_room(size_t len)
{
	struct mbuf *m, *first = NULL, **tail = &first;

	for (; len >= MJUM16BYTES; len -= MJUM16BYTES) {
		m = m_getjcl(M_NOWAIT, MT_DATA, 0, MJUM16BYTES);
		if (m == NULL)
			break;
		*tail = m;
		tail = &m->m_next;
	}
	if (len > 0)
		*tail = m_getm2(NULL, len, M_WAITOK, MT_DATA, 0);
	return (first);
}

/* A chain with a copy of the data; NULL without memory. */
static struct mbuf *
tcpc_copy_in(const uint8_t *data, size_t len)
{
	struct mbuf *m, *seg;
	size_t n;

	m = tcpc_room(len);
	for (seg = m; seg != NULL && len > 0; seg = seg->m_next) {
		n = MIN(len, (size_t)M_TRAILINGSPACE(seg));
		memcpy(mtod(seg, uint8_t *), data, n);
		seg->m_len = n;
		data += n;
		len -= n;
	}
	return (m);
}

/*
 * Wait for room, with the mutex held: once there is none, for so much of it that what then goes out is
 * several large segments, which the peer need not acknowledge one by one.
 */
static int
tcpc_wait_room(struct tcp_conn *t, sbintime_t timeout)
{
	sbintime_t deadline = sbinuptime() + timeout;
	u_int full = TCP_SNDBUF;
	int error = 0;

	for (;;) {
		if (t->t_state == TCPS_CLOSED || t->t_error != 0)
			return (t->t_error != 0 ? t->t_error : EPIPE);
		if (t->t_closing || (t->t_state != TCPS_ESTABLISHED &&
		    t->t_state != TCPS_CLOSE_WAIT))
			return (EPIPE);
		if (t->t_snd.b_len < full)
			return (0);
		full = TCP_SNDLOW + 1;
		error = inet_sleep(t, &t->t_mtx, "tcpsnd", deadline);
		if (error != 0)
			return (error);
	}
}

int
tcpc_send(struct tcp_conn *t, const void *data, size_t len, sbintime_t timeout)
{
	const uint8_t *p = data;
	struct mbuf *m;
	size_t n;
	int error = 0;

	for (; len > 0 && error == 0; p += n, len -= n) {
		n = MIN(len, TCP_CHUNK);
		m = tcpc_copy_in(p, n);
		if (m == NULL)
			return (ENOBUFS);
		mtx_lock(&t->t_mtx);
		error = tcpc_wait_room(t, timeout);
		if (error == 0) {
			tcpc_buf_append(&t->t_snd, m, n);
			(void)tcpc_output(t);
		} else
			m_freem(m);
		mtx_unlock(&t->t_mtx);
	}
	return (error);
}

/* Detach up to len bytes from the front of the reader's buffer; how many. */
static size_t
tcpc_detach(struct tcp_buf *b, size_t len, struct mbuf **mp, void *buf)
{
	struct mbuf *m, **tail = mp;
	size_t got = 0;

	*mp = NULL;
	while ((m = b->b_head) != NULL && got + m->m_len <= len) {
		b->b_head = m->m_next;
		m->m_next = NULL;
		*tail = m;
		tail = &m->m_next;
		got += m->m_len;
	}
	if (b->b_head == NULL)
		b->b_tail = NULL;
	b->b_len -= got;
	if (got == 0 && m != NULL) {
		/* The first piece is larger than the whole request. */
		if (buf != NULL)
			memcpy(buf, mtod(m, void *), len);
		tcpc_buf_drop(b, len);
		got = len;
	}
	return (got);
}

int
tcpc_recv(struct tcp_conn *t, void *buf, size_t *lenp, sbintime_t timeout)
{
	sbintime_t deadline = sbinuptime() + timeout;
	uint8_t *p = buf;
	struct mbuf *m = NULL;
	size_t got = 0;
	int error = 0;

	mtx_lock(&t->t_mtx);
	while (t->t_rcv.b_len == 0 && error == 0 && !t->t_rcvfin) {
		error = t->t_error;
		if (error == 0 && t->t_state == TCPS_CLOSED)
			break;
		if (error == 0)
			error = inet_sleep(t, &t->t_mtx, "tcprcv", deadline);
	}
	if (t->t_rcv.b_len > 0) {
		error = 0;
		got = tcpc_detach(&t->t_rcv, *lenp, &m, buf);
		(void)tcpc_output(t);
	}
	mtx_unlock(&t->t_mtx);
	for (; m != NULL; m = m_free(m)) {
		if (p != NULL) {
			memcpy(p, mtod(m, void *), m->m_len);
			p += m->m_len;
		}
	}
	*lenp = got;
	return (error);
}

/* Our side is done: FIN follows the data (RFC 9293, 3.10.4). */
static void
tcpc_begin_close(struct tcp_conn *t)
{
	if (t->t_closing)
		return;
	t->t_closing = true;
	if (t->t_state == TCPS_ESTABLISHED)
		t->t_state = TCPS_FIN_WAIT_1;
	else if (t->t_state == TCPS_CLOSE_WAIT)
		t->t_state = TCPS_LAST_ACK;
	else
		return;
	(void)tcpc_output(t);
}

void
tcpc_shutdown(struct tcp_conn *t)
{
	mtx_lock(&t->t_mtx);
	tcpc_begin_close(t);
	mtx_unlock(&t->t_mtx);
}

/* A listener ends with all connections that were not accepted. */
static void
tcpc_close_listener(struct tcp_conn *l)
{
	TAILQ_HEAD(, tcp_conn) queue = TAILQ_HEAD_INITIALIZER(queue);
	struct tcp_conn *t;

	tcpc_drop(l, 0);
	TAILQ_CONCAT(&queue, &l->t_acceptq, t_acceptlink);
	mtx_unlock(&l->t_mtx);
	while ((t = TAILQ_FIRST(&queue)) != NULL) {
		TAILQ_REMOVE(&queue, t, t_acceptlink);
		mtx_lock(&t->t_mtx);
		if (t->t_state != TCPS_CLOSED)
			tcpc_send_reset(t);
		tcpc_drop(t, ECONNABORTED);
		mtx_unlock(&t->t_mtx);
		tcpc_rele(t);
	}
	tcpc_rele(l);
}

void
tcpc_close(struct tcp_conn *t)
{
	mtx_lock(&t->t_mtx);
	if (t->t_state == TCPS_LISTEN) {
		tcpc_close_listener(t);
		return;
	}
	t->t_detached = true;
	if (t->t_state < TCPS_ESTABLISHED)
		tcpc_drop(t, 0);
	else if (t->t_rcv.b_len > 0) {
		/* Received data were not read: reset, not an orderly close (RFC 2525, 2.17). */
		tcpc_send_reset(t);
		tcpc_drop(t, 0);
	} else {
		tcpc_begin_close(t);
		if (t->t_state == TCPS_FIN_WAIT_2)
			tcpc_timer_set(t, TCPT_2MSL, TCP_FINWAIT2);
	}
	mtx_unlock(&t->t_mtx);
	tcpc_rele(t);
}
