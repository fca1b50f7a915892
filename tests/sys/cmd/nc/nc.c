/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * nc: send and receive over TCP or UDP from the console, for tests.
 *
 *	nc host port text ...	send the words and a newline, print what comes back
 *	nc -i file host port	send a file
 *	nc -l port		wait for a connection (with -u for datagrams), print what comes
 *	nc -l -k port		be an echo server: send everything back, until ^C
 *	nc -d bytes host port	send that many bytes of a pattern (0, 1, ... 255, 0, ...)
 *	nc -l -d 0 port		receive, check that pattern, print how many bytes and how fast
 *	nc -l -k -d 0 port	the same with one connection after the other, until ^C
 *
 * Exit status 1 for an error, or for a pattern that was damaged.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/tcp_conn_tree.h>
#include <fs/memfs_tree.h>
#include <cmd/resolver.h>
#include <kern/console_tree.h>

#define	NC_BUF		(64 * 1024)
#define	NC_FOREVER	(3600 * SBT_1S)

struct nc {
	bool		n_listen;
	bool		n_udp;
	bool		n_echo;
	bool		n_pattern;
	const char	*n_file;
	uint64_t	n_bytes;
	sbintime_t	n_wait;		/* for an answer */
	uint8_t		*n_buf;
};

static void
nc_print(const uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		printf("%c", p[i]);
}

/* Compare with the pattern, which `done' bytes have passed of. */
static bool
nc_check(const uint8_t *p, size_t len, uint64_t done)
{
	size_t i;

	for (i = 0; i < len; i++) {
		if (p[i] != (uint8_t)(done + i)) {
			printf("nc: byte %ju is 0x%02x, should be 0x%02x\n",
			    (uintmax_t)(done + i), p[i], (uint8_t)(done + i));
			return (false);
		}
	}
	return (true);
}

static void
nc_rate(uint64_t bytes, sbintime_t took)
{
	uint64_t us = MAX(sbttous(took), 1);

	printf("%ju bytes transferred in %ju.%03ju secs (%ju bytes/sec)\n", (uintmax_t)bytes,
	    (uintmax_t)us / 1000000, (uintmax_t)us / 1000 % 1000,
	    (uintmax_t)(bytes * 1000000 / us));
}

/* Read a connection to its end. */
static int
nc_read(struct nc *n, struct tcp_conn *t)
{
	sbintime_t start = sbinuptime();
	uint64_t done = 0;
	size_t len;
	int error;

	for (;;) {
		len = NC_BUF;
		error = tcpc_recv(t, n->n_buf, &len, n->n_wait);
		if (error != 0 || len == 0)
			break;
		if (n->n_pattern && !nc_check(n->n_buf, len, done))
			return (EBADMSG);
		if (n->n_echo && !n->n_pattern)
			error = tcpc_send(t, n->n_buf, len, n->n_wait);
		else if (!n->n_pattern)
			nc_print(n->n_buf, len);
		done += len;
		if (error != 0)
			break;
	}
	if (n->n_pattern)
		nc_rate(done, sbinuptime() - start);
	return (error == EWOULDBLOCK && !n->n_pattern ? 0 : error);
}

static int
nc_send_pattern(struct nc *n, struct tcp_conn *t)
{
	sbintime_t start = sbinuptime();
	uint64_t done;
	size_t len, i;
	int error = 0;

	for (i = 0; i < NC_BUF; i++)
		n->n_buf[i] = i;
	for (done = 0; done < n->n_bytes && error == 0; done += len) {
		len = MIN(n->n_bytes - done, NC_BUF);
		error = tcpc_send(t, n->n_buf, len, n->n_wait);
	}
	tcpc_shutdown(t);
	/* The peer's FIN says that all has arrived. */
	len = 1;
	if (error == 0)
		error = tcpc_recv(t, n->n_buf, &len, n->n_wait);
	nc_rate(done, sbinuptime() - start);
	return (error);
}

static int
nc_server(struct nc *n, uint16_t port)
{
	struct tcp_conn *l, *t;
	int error;

	error = tcpc_listen(NULL, port, 16, &l);
	if (error != 0)
		return (error);
	do {
		error = tcpc_accept(l, NC_FOREVER, &t);
		if (error != 0)
			break;
		error = nc_read(n, t);
		tcpc_close(t);
	} while (n->n_echo && error != EINTR);
	tcpc_close(l);
	return (n->n_echo && error == EINTR ? 0 : error);
}

static int
nc_udp_server(struct nc *n, uint16_t port)
{
	struct insock_from from;
	struct insock *s;
	size_t len;
	int error;

	error = insock_open(IPPROTO_UDP, &s);
	if (error != 0)
		return (error);
	error = insock_bind(s, NULL, port);
	while (error == 0) {
		len = NC_BUF;
		error = insock_recv(s, n->n_buf, &len, &from, n->n_wait);
		if (error != 0)
			break;
		if (n->n_echo)
			(void)insock_sendto(s, n->n_buf, len, &from.f_addr, from.f_port);
		else
			nc_print(n->n_buf, len);
	}
	insock_close(s);
	return (error == EINTR || error == EWOULDBLOCK ? 0 : error);
}

/* The words of the command line and a newline; its length. */
static size_t
nc_words(struct nc *n, int argc, char **argv)
{
	size_t len = 0;
	int i;

	for (i = 0; i < argc && len < NC_BUF; i++)
		len += snprintf(n->n_buf + len, NC_BUF - len, "%s%s", argv[i],
		    i < argc - 1 ? " " : "\n");
	return (MIN(len, NC_BUF));
}

static int
nc_send_file(struct nc *n, struct tcp_conn *t)
{
	struct memfs_file *f;
	int error;

	error = memfs_open(n->n_file, &f);
	if (error != 0)
		return (error);
	error = tcpc_send(t, memfs_data(f), memfs_size(f), n->n_wait);
	memfs_close(f);
	return (error);
}

static int
nc_client(struct nc *n, const struct in6_addr *a, u_int scope, uint16_t port, int argc, char **argv)
{
	struct tcp_conn *t;
	int error;

	error = tcpc_connect(a, scope, port, n->n_wait, &t);
	if (error != 0)
		return (error);
	if (n->n_pattern)
		error = nc_send_pattern(n, t);
	else {
		error = n->n_file != NULL ? nc_send_file(n, t) :
		    tcpc_send(t, n->n_buf, nc_words(n, argc, argv), n->n_wait);
		tcpc_shutdown(t);
		if (error == 0)
			error = nc_read(n, t);
	}
	tcpc_close(t);
	return (error);
}

static int
nc_udp_client(struct nc *n, const struct in6_addr *a, uint16_t port, int argc, char **argv)
{
	struct insock *s;
	size_t len;
	int error;

	error = insock_open(IPPROTO_UDP, &s);
	if (error != 0)
		return (error);
	error = insock_bind(s, NULL, 0);
	if (error == 0)
		error = insock_sendto(s, n->n_buf, nc_words(n, argc, argv), a, port);
	len = NC_BUF;
	if (error == 0)
		error = insock_recv(s, n->n_buf, &len, NULL, n->n_wait);
	if (error == 0)
		nc_print(n->n_buf, len);
	insock_close(s);
	return (error == EWOULDBLOCK ? 0 : error);
}

static int
nc_run(struct nc *n, int argc, char **argv)
{
	struct in6_addr a;
	u_int scope;
	u_long port;
	char *end;
	int error;

	port = strtoul(argv[n->n_listen ? 0 : 1], &end, 10);
	if (*end != '\0' || port == 0 || port > 65535)
		return (EINVAL);
	if (n->n_listen)
		return (n->n_udp ? nc_udp_server(n, port) : nc_server(n, port));
	error = inet_resolve(argv[0], AF_UNSPEC, &a, &scope);
	if (error != 0)
		return (error);
	return (n->n_udp ? nc_udp_client(n, &a, port, argc - 2, argv + 2) :
	    nc_client(n, &a, scope, port, argc - 2, argv + 2));
}

static int
cmd_nc(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct nc n = { .n_wait = 60 * SBT_1S };
	int ch, error;

	while ((ch = cmd_getopt(&g, argc, argv, "d:i:kluw:")) != -1) {
		switch (ch) {
		case 'd':
			n.n_pattern = true;
			if (cmd_expand_number(g.optarg, &n.n_bytes) != 0)
				return (cmd_usage("nc"));
			break;
		case 'i':
			n.n_file = g.optarg;
			break;
		case 'k':
			n.n_echo = true;
			break;
		case 'l':
			n.n_listen = true;
			break;
		case 'u':
			n.n_udp = true;
			break;
		case 'w':
			n.n_wait = strtoul(g.optarg, NULL, 10) * SBT_1S;
			break;
		default:
			return (cmd_usage("nc"));
		}
	}
	if (argc - g.optind < (n.n_listen ? 1 : 2))
		return (cmd_usage("nc"));
	n.n_buf = malloc(NC_BUF, M_INET, M_WAITOK);
	error = nc_run(&n, argc - g.optind, argv + g.optind);
	free(n.n_buf, M_INET);
	return (error != 0 ? cmd_err("nc", error, "%s", argv[g.optind]) : 0);
}
CONSOLE_NET_CMD(nc, cmd_nc, "send and receive by TCP or UDP",
    "nc [-u] [-w seconds] [-d bytes | -i file] host port [text ...] | "
    "nc -l [-ku] [-w seconds] [-d 0] port");
