/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * iperf over UDP, as iperf 2 speaks it.
 *
 * A datagram begins with its number, from 1 on, and the time when it was sent.  The last has its
 * number negated and is repeated until the server has answered: a copy of it, with what the server
 * counted behind it.  All fields are in network byte order.
 *
 * A server needs no thread a stream: it identifies streams by address and port.  With -n it ends
 * when the streams that have ended were that long when they were sent, whatever was lost of them.
 */

#include <netinet/inet_stack_tree.h>
#include <sys/endian.h>
#include <sys/kthread.h>
#include <kern/console_tree.h>

#include "iperf.h"

#define	IPERF_REPORT	0x80000000	/* flags: a server's report follows */
#define	IPERF_FINS	10		/* last datagrams that are sent for an answer */
#define	IPERF_ANSWER	(SBT_1S / 4)

struct iperf_dgram {
	uint32_t	id_number;
	uint32_t	id_sec;
	uint32_t	id_usec;
	uint32_t	id_number2;	/* the upper half of the number */
	/* An answer has more. */
	uint32_t	id_flags;
	uint32_t	id_bytes[2];	/* upper half, lower half */
	uint32_t	id_took_sec;
	uint32_t	id_took_usec;
	uint32_t	id_lost;
	uint32_t	id_reordered;
	uint32_t	id_datagrams;
	uint32_t	id_jitter_sec;
	uint32_t	id_jitter_usec;
};
CTASSERT(sizeof(struct iperf_dgram) == IPERF_UDPLEAST);
#define	IPERF_DGRAM_MIN	offsetof(struct iperf_dgram, id_flags)

/* A stream that comes to the server. */
struct iperf_peer {
	struct in6_addr	ip_addr;
	uint16_t	ip_port;	/* 0: free */
	bool		ip_ended;
	u_int		ip_id;
	sbintime_t	ip_start;
	sbintime_t	ip_took;
	uint64_t	ip_bytes;
	uint64_t	ip_got;		/* datagrams */
	uint32_t	ip_highest;
	uint32_t	ip_reordered;
	int64_t		ip_transit;	/* of the one before, microseconds, by two clocks */
	int64_t		ip_jitter;	/* in 1/16 of microseconds (RFC 3550, A.8) */
};

static void
iperf_udp_report(u_int id, uint64_t bytes, sbintime_t took, int64_t jitter, uint32_t lost,
    uint32_t total)
{
	char who[12], more[64];

	snprintf(who, sizeof(who), "%u", id);
	snprintf(more, sizeof(more), "  %jd.%03jd ms %u/%u", (intmax_t)jitter / 1000,
	    (intmax_t)jitter % 1000, lost, total);
	iperf_report(who, bytes, took, more);
}

/* ---- The server ---------------------------------------------------------------------------- */

static struct iperf_peer *
iperf_udp_peer(struct iperf *i, struct iperf_peer *peers, const struct insock_from *from)
{
	struct iperf_peer *p;

	for (p = peers; p < peers + IPERF_STREAMS && p->ip_port != 0; p++) {
		if (p->ip_port == from->f_port && inet_same(&p->ip_addr, &from->f_addr))
			return (p);
	}
	if (p == peers + IPERF_STREAMS)
		return (NULL);
	*p = (struct iperf_peer){ .ip_addr = from->f_addr, .ip_port = from->f_port,
	    .ip_id = ++i->i_begun, .ip_start = sbinuptime() };
	return (p);
}

static uint32_t
iperf_udp_lost(const struct iperf_peer *p)
{
	return (p->ip_got < p->ip_highest ? p->ip_highest - p->ip_got : 0);
}

static void
iperf_udp_count(struct iperf_peer *p, const struct iperf_dgram *d, size_t len, uint32_t number)
{
	int64_t transit, delta;

	p->ip_got++;
	p->ip_bytes += len;
	p->ip_took = sbinuptime() - p->ip_start;
	if (number > p->ip_highest)
		p->ip_highest = number;
	else
		p->ip_reordered++;
	transit = sbttous(sbinuptime()) -
	    ((int64_t)be32toh(d->id_sec) * 1000000 + be32toh(d->id_usec));
	delta = p->ip_got > 1 ? transit - p->ip_transit : 0;
	p->ip_transit = transit;
	p->ip_jitter += (delta < 0 ? -delta : delta) - ((p->ip_jitter + 8) >> 4);
}

static void
iperf_udp_answer(struct insock *s, const struct iperf_peer *p, struct iperf_dgram *d)
{
	uint64_t us = sbttous(p->ip_took);

	d->id_flags = htobe32(IPERF_REPORT);
	d->id_bytes[0] = htobe32(p->ip_bytes >> 32);
	d->id_bytes[1] = htobe32(p->ip_bytes);
	d->id_took_sec = htobe32(us / 1000000);
	d->id_took_usec = htobe32(us % 1000000);
	d->id_lost = htobe32(iperf_udp_lost(p));
	d->id_reordered = htobe32(p->ip_reordered);
	d->id_datagrams = htobe32(p->ip_highest);
	d->id_jitter_sec = htobe32((p->ip_jitter >> 4) / 1000000);
	d->id_jitter_usec = htobe32((p->ip_jitter >> 4) % 1000000);
	(void)insock_sendto(s, d, sizeof(*d), &p->ip_addr, p->ip_port);
}

/* A datagram of len bytes, of which d has the beginning. */
static void
iperf_udp_input(struct iperf *i, struct insock *s, struct iperf_peer *peers,
    const struct insock_from *from, struct iperf_dgram *d, size_t len)
{
	int32_t number = be32toh(d->id_number);
	struct iperf_peer *p;

	if (len < IPERF_DGRAM_MIN || number == INT32_MIN ||
	    (p = iperf_udp_peer(i, peers, from)) == NULL)
		return;
	if (!p->ip_ended)
		iperf_udp_count(p, d, len, number < 0 ? -number : number);
	if (number >= 0)
		return;
	if (!p->ip_ended) {
		p->ip_ended = true;
		i->i_total += (uint64_t)p->ip_highest * len;
		iperf_udp_report(p->ip_id, p->ip_bytes, p->ip_took, p->ip_jitter >> 4,
		    iperf_udp_lost(p), p->ip_highest);
	}
	iperf_udp_answer(s, p, d);
}

int
iperf_udp_server(struct iperf *i)
{
	struct iperf_peer *peers;
	struct iperf_dgram *d;
	struct insock_from from;
	struct insock *s;
	size_t len;
	int error;

	error = insock_open(IPPROTO_UDP, &s);
	if (error != 0)
		return (error);
	peers = mallocarray(IPERF_STREAMS, sizeof(*peers), M_INET, M_WAITOK | M_ZERO);
	d = malloc(IP_MAXPACKET, M_INET, M_WAITOK | M_ZERO);
	error = insock_bind(s, NULL, i->i_port);
	if (error == 0)
		printf("Server listening on UDP port %ju\n", (uintmax_t)i->i_port);
	while (error == 0 && (i->i_bytes == 0 || i->i_total < i->i_bytes)) {
		len = IP_MAXPACKET;
		error = insock_recv(s, d, &len, &from, IPERF_SLICE);
		if (error == 0)
			iperf_udp_input(i, s, peers, &from, d, len);
		else if (error == EWOULDBLOCK || error == ECONNREFUSED)
			error = 0;
	}
	free(d, M_INET);
	free(peers, M_INET);
	insock_close(s);
	return (error == EINTR ? 0 : error);
}

/* ---- The client ---------------------------------------------------------------------------- */

/* Send the datagram of this number, for which buf has room. */
static int
iperf_udp_put(struct iperf *i, struct insock *s, void *buf, int32_t number)
{
	uint64_t us = sbttous(sbinuptime());
	struct iperf_dgram d = {
		.id_number = htobe32(number),
		.id_number2 = htobe32(number < 0 ? -1 : 0),
		.id_sec = htobe32(us / 1000000),
		.id_usec = htobe32(us % 1000000),
	};

	memcpy(buf, &d, IPERF_DGRAM_MIN);
	return (insock_sendto(s, buf, i->i_length, &i->i_host, i->i_port));
}

/* Send the last one until it is answered, and print the answer. */
static int
iperf_udp_end(struct iperf_stream *is, struct insock *s, struct iperf_dgram *d, int32_t last)
{
	struct iperf_dgram answer;
	size_t len;
	u_int n;
	int error = 0;

	for (n = 0; n < IPERF_FINS && !is->is_iperf->i_stop; n++) {
		error = iperf_udp_put(is->is_iperf, s, d, -last);
		len = sizeof(answer);
		if (error == 0)
			error = insock_recv(s, &answer, &len, NULL, IPERF_ANSWER);
		if (error == 0 && len == sizeof(answer) &&
		    (be32toh(answer.id_flags) & IPERF_REPORT) != 0) {
			iperf_udp_report(is->is_id,
			    (uint64_t)be32toh(answer.id_bytes[0]) << 32 |
			    be32toh(answer.id_bytes[1]),
			    ustosbt((uint64_t)be32toh(answer.id_took_sec) * 1000000 +
			    be32toh(answer.id_took_usec)),
			    (int64_t)be32toh(answer.id_jitter_sec) * 1000000 +
			    be32toh(answer.id_jitter_usec),
			    be32toh(answer.id_lost), be32toh(answer.id_datagrams));
			return (0);
		}
	}
	return (error != 0 ? error : ETIMEDOUT);
}

static int
iperf_udp_run(struct iperf_stream *is, struct insock *s, struct iperf_dgram *d)
{
	struct iperf *i = is->is_iperf;
	sbintime_t start = sbinuptime(), wait;
	uint64_t us;
	int32_t number;
	int error;

	for (number = 1; iperf_more(is, start) && number < INT32_MAX; number++) {
		us = is->is_bytes * 8 * 1000000 / i->i_rate;
		wait = start + (us / 1000000 * SBT_1S + ustosbt(us % 1000000)) - sbinuptime();
		if (wait > 0)
			pause_sbt("iperf", wait, 0, C_PREL(8));
		error = iperf_udp_put(i, s, d, number);
		/* A full queue loses it, as the network could; no route is an end. */
		if (error != 0 && error != ENOBUFS)
			return (error);
		is->is_bytes += i->i_length;
	}
	is->is_took = sbinuptime() - start;
	return (iperf_udp_end(is, s, d, number));
}

/* The thread of a stream. */
void
iperf_udp_send(void *arg)
{
	struct iperf_stream *is = arg;
	struct iperf_dgram *d;
	struct insock *s;

	is->is_error = insock_open(IPPROTO_UDP, &s);
	if (is->is_error == 0) {
		d = malloc(is->is_iperf->i_length, M_INET, M_WAITOK | M_ZERO);
		is->is_error = insock_bind(s, NULL, 0);
		if (is->is_error == 0)
			is->is_error = iperf_udp_run(is, s, d);
		free(d, M_INET);
		insock_close(s);
	}
	iperf_done(is);
}
