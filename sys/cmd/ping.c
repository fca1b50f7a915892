/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * ping and ping6: echo requests of both IP versions, with FreeBSD's options, output and exit status
 * (0: at least one answer, 2: none).
 *
 * Every byte of the payload follows a pattern and is compared when it comes back, so that a driver
 * that damages data is found out.  Times are in microseconds throughout: there is no floating point
 * here.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/ip_icmp.h>
#include <netinet/icmp6.h>
#include <machine/in_cksum.h>
#include <cmd/resolver.h>
#include <kern/console_tree.h>

#define	PING_HDR	8
#define	PING_TIMELEN	8
#define	PING_MAXSIZE	65507
#define	PING_WAIT	(10 * SBT_1S)	/* for the last answer, when there was none before */
#define	PING_FLOOD	(SBT_1S / 100)
#define	PING_SEQS	65536

struct ping {
	const char	*p_name;	/* as typed */
	struct in6_addr	p_dst;
	struct in6_addr	p_src;
	bool		p_havesrc;
	u_int		p_scope;
	bool		p_v6;
	bool		p_quiet;
	bool		p_flood;
	bool		p_df;
	bool		p_once;
	uint8_t		p_ttl;
	u_long		p_count;	/* 0: until ^C */
	size_t		p_size;
	sbintime_t	p_interval;
	sbintime_t	p_waittime;	/* 0: the default */
	sbintime_t	p_end;		/* 0: no time-out of the whole */
	struct insock	*p_sock;
	uint16_t	p_id;
	uint8_t		*p_buf;		/* a message */
	uint8_t		*p_seen;	/* a bit for each sequence number */
	u_long		p_sent;
	u_long		p_received;
	u_long		p_dups;
	uint64_t	p_min, p_max, p_sum, p_sumsq;
};

static void
ping_fill(struct ping *p, u_long seq)
{
	struct icmp *icmp = (struct icmp *)p->p_buf;
	sbintime_t now = sbinuptime();
	uint64_t sum;
	size_t i;

	memset(p->p_buf, 0, PING_HDR);
	icmp->icmp_type = p->p_v6 ? ICMP6_ECHO_REQUEST : ICMP_ECHO;
	icmp->icmp_id = p->p_id;
	icmp->icmp_seq = htons(seq);
	for (i = 0; i < p->p_size; i++)
		p->p_buf[PING_HDR + i] = i;
	if (p->p_size >= PING_TIMELEN)
		memcpy(p->p_buf + PING_HDR, &now, sizeof(now));
	if (!p->p_v6) {
		sum = inet_cksum_add(0, p->p_buf, PING_HDR + p->p_size);
		icmp->icmp_cksum = ~inet_cksum_fold(sum);
	}
	p->p_seen[seq % PING_SEQS / 8] &= ~(1 << (seq & 7));
}

static void
ping_send(struct ping *p)
{
	int error;

	ping_fill(p, p->p_sent);
	error = insock_sendto(p->p_sock, p->p_buf, PING_HDR + p->p_size, &p->p_dst, 0);
	p->p_sent++;
	if (error != 0 && !p->p_quiet)
		(void)cmd_err("ping", error, "sendto");
	else if (error == 0 && p->p_flood && !p->p_quiet)
		printf(".");
}

/* Compare what came back with what was sent. */
static void
ping_check_data(const struct ping *p, const uint8_t *data, size_t len)
{
	size_t i;

	if (len != p->p_size) {
		printf("wrong total length %zu instead of %zu\n", len + PING_HDR,
		    p->p_size + PING_HDR);
		return;
	}
	for (i = len >= PING_TIMELEN ? PING_TIMELEN : 0; i < len; i++) {
		if (data[i] != (uint8_t)i) {
			printf("wrong data byte #%zu should be 0x%x but was 0x%x\n", i, (uint8_t)i,
			    data[i]);
			return;
		}
	}
}

static void
ping_account(struct ping *p, uint64_t us)
{
	p->p_min = p->p_received == 1 ? us : MIN(p->p_min, us);
	p->p_max = MAX(p->p_max, us);
	p->p_sum += us;
	p->p_sumsq += us * us;
}

static void
ping_answer(struct ping *p, const uint8_t *buf, size_t len, const struct insock_from *from)
{
	const struct icmp *icmp = (const struct icmp *)buf;
	u_int seq = ntohs(icmp->icmp_seq);
	struct epoch_tracker et;
	char addr[INET_ADDRSTRLEN_MAX];
	sbintime_t sent;
	uint64_t us = 0;
	bool dup = (p->p_seen[seq / 8] & 1 << (seq & 7)) != 0, timed;

	timed = p->p_size >= PING_TIMELEN && len >= PING_HDR + PING_TIMELEN;
	if (timed) {
		memcpy(&sent, buf + PING_HDR, sizeof(sent));
		us = sbttous(qmax(sbinuptime() - sent, 0));
	}
	p->p_seen[seq / 8] |= 1 << (seq & 7);
	if (dup)
		p->p_dups++;
	else {
		p->p_received++;
		ping_account(p, us);
	}
	if (p->p_flood && !p->p_quiet)
		printf("\b \b");
	if (p->p_flood || p->p_quiet) {
		ping_check_data(p, buf + PING_HDR, len - PING_HDR);
		return;
	}
	NET_EPOCH_ENTER(et);
	inet_addr_print(addr, sizeof(addr), &from->f_addr,
	    p->p_v6 ? ifnet_byindex(from->f_ifindex) : NULL);
	NET_EPOCH_EXIT(et);
	printf("%zu bytes from %s%c icmp_seq=%u %s=%u", len, addr, p->p_v6 ? ',' : ':', seq,
	    p->p_v6 ? "hlim" : "ttl", from->f_ttl);
	if (timed)
		printf(" time=%ju.%03ju ms", (uintmax_t)us / 1000, (uintmax_t)us % 1000);
	printf("%s\n", dup ? " (DUP!)" : "");
	ping_check_data(p, buf + PING_HDR, len - PING_HDR);
}

/* An ICMP error about one of our requests. */
static void
ping_error(struct ping *p, const uint8_t *buf, size_t len, const struct insock_from *from)
{
	static const char *const v4[] = { [ICMP_UNREACH] = "Destination Unreachable",
	    [ICMP_TIMXCEED] = "Time to live exceeded", [ICMP_PARAMPROB] = "Parameter problem" };
	static const char *const v6[] = { NULL, "Destination Unreachable", "Packet too big",
	    "Time to live exceeded", "Parameter problem" };
	const char *what = NULL;
	char addr[INET_ADDRSTRLEN_MAX];
	size_t hlen;
	uint16_t id;

	if (p->p_v6)
		what = buf[0] < nitems(v6) ? v6[buf[0]] : NULL;
	else
		what = buf[0] < nitems(v4) ? v4[buf[0]] : NULL;
	hlen = p->p_v6 ? sizeof(struct ip6_hdr) : (len > PING_HDR ? (buf[PING_HDR] & 15) << 2 : 0);
	if (what == NULL || len < PING_HDR + hlen + PING_HDR)
		return;
	memcpy(&id, buf + PING_HDR + hlen + offsetof(struct icmp, icmp_id), sizeof(id));
	if (id != p->p_id || p->p_quiet)
		return;
	printf("%zu bytes from %s: %s (code %u)\n", len,
	    inet_addr_print(addr, sizeof(addr), &from->f_addr, NULL), what, buf[1]);
}

/* Wait until `until' for a message, and deal with it.  EWOULDBLOCK, EINTR. */
static int
ping_receive(struct ping *p, uint8_t *buf, sbintime_t until)
{
	struct insock_from from;
	size_t len = PING_HDR + PING_MAXSIZE;
	const struct icmp *icmp = (const struct icmp *)buf;
	int error;

	error = insock_recv(p->p_sock, buf, &len, &from, qmax(until - sbinuptime(), 0));
	if (error != 0 || len < PING_HDR)
		return (error);
	if (icmp->icmp_type != (p->p_v6 ? ICMP6_ECHO_REPLY : ICMP_ECHOREPLY))
		ping_error(p, buf, len, &from);
	else if (icmp->icmp_id == p->p_id)
		ping_answer(p, buf, len, &from);
	return (0);
}

/* How long to wait for answers once everything is sent. */
static sbintime_t
ping_last_wait(const struct ping *p)
{
	if (p->p_waittime != 0)
		return (p->p_waittime);
	if (p->p_received == 0)
		return (PING_WAIT);
	return (MAX(2 * ustosbt(p->p_max), SBT_1S));
}

static void
ping_loop(struct ping *p, uint8_t *buf)
{
	sbintime_t next = sbinuptime(), until, last = 0;
	int error;

	for (;;) {
		if ((p->p_count == 0 || p->p_sent < p->p_count) && sbinuptime() >= next) {
			ping_send(p);
			last = sbinuptime();
			next = MAX(next + p->p_interval, last - p->p_interval);
		}
		until = p->p_count != 0 && p->p_sent == p->p_count ?
		    last + ping_last_wait(p) : next;
		if (p->p_end != 0)
			until = MIN(until, p->p_end);
		error = ping_receive(p, buf, until);
		if (error == EINTR || (p->p_end != 0 && sbinuptime() >= p->p_end) ||
		    (p->p_once && p->p_received > 0))
			break;
		if (p->p_count != 0 && p->p_sent == p->p_count &&
		    (p->p_received == p->p_count || sbinuptime() >= last + ping_last_wait(p)))
			break;
		/* A flood sends the next as soon as an answer is there. */
		if (p->p_flood && error == 0)
			next = sbinuptime();
	}
}

static uint64_t
ping_isqrt(uint64_t v)
{
	uint64_t r = 0, bit;

	for (bit = 1ULL << 31; bit != 0; bit >>= 1) {
		if ((r | bit) * (r | bit) <= v)
			r |= bit;
	}
	return (r);
}

static void
ping_summary(const struct ping *p)
{
	uint64_t avg, dev, loss;

	loss = p->p_sent != 0 ? (p->p_sent - MIN(p->p_received, p->p_sent)) * 1000 / p->p_sent : 0;
	printf("\n--- %s ping statistics ---\n", p->p_name);
	printf("%lu packets transmitted, %lu packets received, ", p->p_sent, p->p_received);
	if (p->p_dups != 0)
		printf("+%lu duplicates, ", p->p_dups);
	printf("%ju.%ju%% packet loss\n", (uintmax_t)loss / 10, (uintmax_t)loss % 10);
	if (p->p_received == 0 || p->p_size < PING_TIMELEN)
		return;
	avg = p->p_sum / p->p_received;
	dev = p->p_sumsq / p->p_received;
	dev = ping_isqrt(dev > avg * avg ? dev - avg * avg : 0);
	printf("round-trip min/avg/max/%s = %ju.%03ju/%ju.%03ju/%ju.%03ju/%ju.%03ju ms\n",
	    p->p_v6 ? "std-dev" : "stddev",
	    (uintmax_t)p->p_min / 1000, (uintmax_t)p->p_min % 1000,
	    (uintmax_t)avg / 1000, (uintmax_t)avg % 1000,
	    (uintmax_t)p->p_max / 1000, (uintmax_t)p->p_max % 1000,
	    (uintmax_t)dev / 1000, (uintmax_t)dev % 1000);
}

static void
ping_headline(const struct ping *p)
{
	struct epoch_tracker et;
	struct inet_nexthop nh;
	struct inet_out o = { .o_src = p->p_src, .o_dst = p->p_dst };
	char dst[INET_ADDRSTRLEN_MAX], src[INET_ADDRSTRLEN_MAX];
	if_t scope;

	NET_EPOCH_ENTER(et);
	scope = p->p_scope != 0 ? ifnet_byindex(p->p_scope) : NULL;
	o.o_ifp = scope;
	inet_addr_print(dst, sizeof(dst), &p->p_dst, scope);
	if (p->p_v6 && inet_output_way(&o, &nh) == 0)
		inet_addr_print(src, sizeof(src), &o.o_src, scope);
	else
		strlcpy(src, "::", sizeof(src));
	NET_EPOCH_EXIT(et);
	if (p->p_v6)
		printf("PING(%zu=40+8+%zu bytes) %s --> %s\n", p->p_size + 48, p->p_size, src, dst);
	else
		printf("PING %s (%s): %zu data bytes\n", p->p_name, dst, p->p_size);
}

static int
ping_run(struct ping *p)
{
	struct epoch_tracker et;
	uint8_t *buf;
	int error;

	error = insock_open(p->p_v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP, &p->p_sock);
	if (error != 0)
		return (cmd_err("ping", error, "socket"));
	NET_EPOCH_ENTER(et);
	if (p->p_scope != 0)
		insock_setif(p->p_sock, ifnet_byindex(p->p_scope), 0);
	NET_EPOCH_EXIT(et);
	(void)insock_bind(p->p_sock, p->p_havesrc ? &p->p_src : NULL, 0);
	insock_setopt(p->p_sock, p->p_ttl, p->p_df);
	p->p_id = arc4random();
	p->p_buf = malloc(PING_HDR + PING_MAXSIZE, M_INET, M_WAITOK);
	p->p_seen = malloc(PING_SEQS / 8, M_INET, M_WAITOK | M_ZERO);
	buf = malloc(PING_HDR + PING_MAXSIZE, M_INET, M_WAITOK);
	inet_wait_source(&p->p_dst, p->p_scope);
	ping_headline(p);
	ping_loop(p, buf);
	insock_close(p->p_sock);
	free(buf, M_INET);
	free(p->p_seen, M_INET);
	free(p->p_buf, M_INET);
	ping_summary(p);
	return (p->p_received != 0 ? 0 : 2);
}

/* A number of seconds, perhaps with a fraction, or of milliseconds.  EINVAL. */
static int
ping_time(const char *arg, sbintime_t unit, sbintime_t *out)
{
	sbintime_t place = unit;
	char *end;

	*out = unit * strtoul(arg, &end, 10);
	if (*end == '.') {
		for (end++; *end >= '0' && *end <= '9'; end++) {
			place /= 10;
			*out += place * (*end - '0');
		}
	}
	return (*end == '\0' && *arg != '\0' ? 0 : EINVAL);
}

static int
ping_number(const char *arg, u_long max, u_long *out)
{
	char *end;

	*out = strtoul(arg, &end, 10);
	return (*arg == '\0' || *end != '\0' || *out > max ? EINVAL : 0);
}

/* One option; EINVAL for an argument that makes no sense. */
static int
ping_option(struct ping *p, int ch, const char *arg, int *family)
{
	u_long v;
	u_int scope;
	int error = 0;

	switch (ch) {
	case '4':
	case '6':
		*family = ch == '4' ? AF_INET : AF_INET6;
		break;
	case 'c':
		error = ping_number(arg, ULONG_MAX, &p->p_count);
		break;
	case 'D':
		p->p_df = true;
		break;
	case 'f':
		p->p_flood = true;
		p->p_interval = PING_FLOOD;
		break;
	case 'i':
		error = ping_time(arg, SBT_1S, &p->p_interval);
		break;
	case 'm':
		error = ping_number(arg, 255, &v);
		p->p_ttl = v;
		break;
	case 'n':
		break;
	case 'o':
		p->p_once = true;
		break;
	case 'q':
		p->p_quiet = true;
		break;
	case 's':
		error = ping_number(arg, PING_MAXSIZE, &v);
		p->p_size = v;
		break;
	case 'S':
		p->p_havesrc = true;
		error = inet_addr_parse(arg, &p->p_src, &scope);
		break;
	case 't':
		error = ping_time(arg, SBT_1S, &p->p_end);
		p->p_end += sbinuptime();
		break;
	case 'W':
		error = ping_time(arg, SBT_1MS, &p->p_waittime);
		break;
	}
	return (error);
}

static int
cmd_ping(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct ping p = { .p_interval = SBT_1S, .p_size = SIZE_MAX };
	int ch, error, family = strcmp(argv[0], "ping6") == 0 ? AF_INET6 : AF_UNSPEC;

	while ((ch = cmd_getopt(&g, argc, argv, "46c:Dfi:m:noqs:S:t:W:")) != -1) {
		if (ch == '?')
			return (cmd_usage(argv[0]));
		if (ping_option(&p, ch, g.optarg, &family) != 0)
			return (cmd_err("ping", 0, "invalid value: `%s'", g.optarg));
	}
	if (argc - g.optind != 1)
		return (cmd_usage(argv[0]));
	p.p_name = argv[g.optind];
	error = inet_resolve(p.p_name, family, &p.p_dst, &p.p_scope);
	if (error != 0)
		return (cmd_err("ping", error, "cannot resolve %s", p.p_name));
	p.p_v6 = !inet_is4(&p.p_dst);
	if (p.p_size == SIZE_MAX)
		p.p_size = p.p_v6 ? 8 : 56;
	return (ping_run(&p));
}
CONSOLE_NET_CMD(ping, cmd_ping, "send ICMP echo requests",
    "ping [-46Dfnoq] [-c count] [-i wait] [-m ttl] [-S source] "
    "[-s size] [-t timeout] [-W waittime] host");
CONSOLE_NET_CMD(ping6, cmd_ping, "send ICMPv6 echo requests",
    "ping6 [-fnoq] [-c count] [-i wait] [-m hoplimit] [-S source] "
    "[-s size] [-t timeout] [-W waittime] host");
