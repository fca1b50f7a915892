/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * iperf: how fast is TCP, or UDP, between this host and another, with iperf 2 at the other end.
 *
 *	iperf -s [-u] [-p port] [-n bytes]	take streams until ^C, or until so much has come
 *	iperf -c host [-p port] [-P streams] [-t seconds | -n bytes] [-l length]
 *	      [-u [-b bits]]
 *
 * Over TCP, here, a stream is a connection and a thread.  What the protocol asks for is little: a
 * sender may begin with a header that asks for more than a plain transfer, and one of zeros asks
 * for nothing.  iperf_udp.c has UDP.
 *
 * Exit status 1 if a stream could not be made, or broke, or (UDP) its end was not answered.
 *
 * Gaps: transfers both ways at once, reports while it runs.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/tcp_conn_tree.h>
#include <sys/kthread.h>
#include <sys/proc.h>
#include <cmd/resolver.h>
#include <kern/console_tree.h>

#include "iperf.h"

/* A line: who is a stream, more is what there is behind the rate. */
void
iperf_report(const char *who, uint64_t bytes, sbintime_t took, const char *more)
{
	uint64_t us = MAX(sbttous(took), 1), mbits = bytes * 8 * 100 / us;

	printf("[%3s] 0.0000-%ju.%04ju sec  %ju bytes  %ju.%02ju Mbits/sec%s\n", who,
	    (uintmax_t)us / 1000000, (uintmax_t)us / 100 % 10000, (uintmax_t)bytes,
	    (uintmax_t)mbits / 100, (uintmax_t)mbits % 100, more);
}

/* Is a stream that sends, since start, to send more? */
bool
iperf_more(const struct iperf_stream *s, sbintime_t start)
{
	const struct iperf *i = s->is_iperf;

	return (!i->i_stop && (i->i_bytes != 0 ? s->is_bytes < i->i_bytes :
	    sbinuptime() - start < (sbintime_t)i->i_seconds * SBT_1S));
}

/* A stream has ended. */
void
iperf_done(struct iperf_stream *s)
{
	struct iperf *i = s->is_iperf;
	char who[12];

	snprintf(who, sizeof(who), "%u", s->is_id);
	if (s->is_conn != NULL)
		iperf_report(who, s->is_bytes, s->is_took, "");
	if (s->is_error != 0)
		(void)cmd_err("iperf", s->is_error, "stream %u", s->is_id);
	if (s->is_conn != NULL)
		tcpc_close(s->is_conn);
	mtx_lock(&i->i_mtx);
	i->i_total += s->is_bytes;
	if (i->i_error == 0)
		i->i_error = s->is_error;
	i->i_running--;
	wakeup(i);
	mtx_unlock(&i->i_mtx);
	free(s, M_INET);
}

static void
iperf_receive(void *arg)
{
	struct iperf_stream *s = arg;
	sbintime_t start = sbinuptime();
	size_t len;

	do {
		len = s->is_iperf->i_length;
		s->is_error = tcpc_recv(s->is_conn, NULL, &len, IPERF_WAIT);
		if (s->is_error == 0)
			s->is_bytes += len;
	} while (s->is_error == 0 && len > 0 && !s->is_iperf->i_stop);
	s->is_took = sbinuptime() - start;
	iperf_done(s);
}

/* All is sent when the peer has closed, too. */
static void
iperf_send_end(struct iperf_stream *s)
{
	size_t len;

	tcpc_shutdown(s->is_conn);
	do {
		len = s->is_iperf->i_length;
		s->is_error = tcpc_recv(s->is_conn, NULL, &len, IPERF_WAIT);
	} while (s->is_error == 0 && len > 0);
}

static void
iperf_send(void *arg)
{
	struct iperf_stream *s = arg;
	struct iperf *i = s->is_iperf;
	sbintime_t start = sbinuptime();
	size_t len;
	char *buf;

	buf = malloc(i->i_length, M_INET, M_WAITOK | M_ZERO);
	while (s->is_error == 0 && iperf_more(s, start)) {
		len = i->i_bytes != 0 ? MIN(i->i_length, i->i_bytes - s->is_bytes) : i->i_length;
		s->is_error = tcpc_send(s->is_conn, buf, len, IPERF_WAIT);
		if (s->is_error == 0)
			s->is_bytes += len;
	}
	if (s->is_error == 0)
		iperf_send_end(s);
	s->is_took = sbinuptime() - start;
	free(buf, M_INET);
	iperf_done(s);
}

static void
iperf_thread(void *arg)
{
	struct iperf_stream *s = arg;

	CURVNET_SET(vnet0);
	s->is_func(s);
	CURVNET_RESTORE();
	kthread_exit();
}

/* Begin a stream, which takes over the connection (NULL: UDP). */
static int
iperf_begin(struct iperf *i, struct tcp_conn *t, void (*func)(void *))
{
	struct iperf_stream *s;
	int error;

	s = malloc(sizeof(*s), M_INET, M_WAITOK | M_ZERO);
	s->is_iperf = i;
	s->is_conn = t;
	s->is_func = func;
	mtx_lock(&i->i_mtx);
	s->is_id = ++i->i_begun;
	i->i_running++;
	mtx_unlock(&i->i_mtx);
	error = kthread_add(iperf_thread, s, NULL, NULL, 0, 0, "iperf %u", s->is_id);
	if (error != 0) {
		s->is_error = error;
		iperf_done(s);
	}
	return (error);
}

/* Wait for the streams; ^C ends them. */
static void
iperf_wait(struct iperf *i)
{
	mtx_lock(&i->i_mtx);
	while (i->i_running > 0) {
		if (cmd_interrupted())
			i->i_stop = true;
		(void)msleep_sbt(i, &i->i_mtx, 0, "iperf", IPERF_SLICE, 0, 0);
	}
	mtx_unlock(&i->i_mtx);
}

static bool
iperf_enough(struct iperf *i)
{
	bool enough;

	mtx_lock(&i->i_mtx);
	enough = i->i_bytes != 0 && i->i_running == 0 && i->i_total >= i->i_bytes;
	mtx_unlock(&i->i_mtx);
	return (enough);
}

static int
iperf_server(struct iperf *i)
{
	struct tcp_conn *l, *t;
	int error;

	error = tcpc_listen(NULL, i->i_port, 2 * IPERF_STREAMS, &l);
	if (error != 0)
		return (error);
	printf("Server listening on TCP port %ju\n", (uintmax_t)i->i_port);
	while (!iperf_enough(i)) {
		error = tcpc_accept(l, IPERF_SLICE, &t);
		if (error == EWOULDBLOCK)
			continue;
		if (error == 0)
			error = iperf_begin(i, t, iperf_receive);
		if (error != 0)
			break;
	}
	i->i_stop = true;
	tcpc_close(l);
	iperf_wait(i);
	return (error == EINTR || error == EWOULDBLOCK ? 0 : error);
}

static int
iperf_client(struct iperf *i, const char *host)
{
	sbintime_t start;
	struct tcp_conn *t = NULL;
	u_int scope;
	uint64_t n;
	int error;

	error = inet_resolve(host, AF_UNSPEC, &i->i_host, &scope);
	start = sbinuptime();
	for (n = 0; n < i->i_nstreams && error == 0; n++) {
		if (!i->i_udp)
			error = tcpc_connect(&i->i_host, scope, i->i_port, IPERF_WAIT, &t);
		if (error == 0)
			error = iperf_begin(i, t, i->i_udp ? iperf_udp_send : iperf_send);
	}
	if (error != 0)
		i->i_stop = true;
	iperf_wait(i);
	if (error == 0 && i->i_nstreams > 1)
		iperf_report("SUM", i->i_total, sbinuptime() - start, "");
	return (error);
}

/* The number of an option. */
static uint64_t *
iperf_number(struct iperf *i, int ch)
{
	switch (ch) {
	case 'b':
		return (&i->i_rate);
	case 'l':
		return (&i->i_length);
	case 'n':
		return (&i->i_bytes);
	case 'p':
		return (&i->i_port);
	case 'P':
		return (&i->i_nstreams);
	default:
		return (&i->i_seconds);
	}
}

static int
cmd_iperf(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct iperf i = { .i_port = IPERF_PORT, .i_nstreams = 1, .i_seconds = 10,
	    .i_rate = IPERF_UDPRATE };
	const char *host = NULL;
	bool server = false;
	int ch, error;

	while ((ch = cmd_getopt(&g, argc, argv, "b:c:l:n:p:P:st:u")) != -1) {
		if (ch == 'c')
			host = g.optarg;
		else if (ch == 's')
			server = true;
		else if (ch == 'u')
			i.i_udp = true;
		else if (ch == '?' || cmd_expand_number(g.optarg, iperf_number(&i, ch)) != 0)
			return (cmd_usage("iperf"));
	}
	if (i.i_length == 0)
		i.i_length = i.i_udp ? IPERF_UDPLENGTH : IPERF_LENGTH;
	if (server == (host != NULL) || g.optind != argc || i.i_port == 0 || i.i_port > 65535 ||
	    i.i_nstreams == 0 || i.i_nstreams > IPERF_STREAMS || i.i_length > IPERF_LENGTH ||
	    i.i_rate == 0 || (i.i_udp && i.i_length < IPERF_UDPLEAST))
		return (cmd_usage("iperf"));
	mtx_init(&i.i_mtx, "iperf", NULL, MTX_DEF);
	error = !server ? iperf_client(&i, host) : i.i_udp ? iperf_udp_server(&i) :
	    iperf_server(&i);
	mtx_destroy(&i.i_mtx);
	if (error != 0)
		return (cmd_err("iperf", error, "%s", server ? "server" : host));
	return (i.i_error != 0);
}
CONSOLE_NET_CMD(iperf, cmd_iperf, "measure TCP and UDP throughput",
    "iperf -s [-u] [-p port] [-n bytes] | "
    "iperf -c host [-p port] [-P streams] [-t seconds | -n bytes] [-l length] "
    "[-u [-b bits]]");
