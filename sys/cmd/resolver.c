/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Names to addresses: a stub resolver (RFC 1035, RFC 3596) that asks the servers of the DHCP lease.
 *
 * Gaps: no cache, no search list, no TCP for truncated answers.
 */

#include <netinet/inet_stack_tree.h>
#include <cmd/resolver.h>

#define	DNS_PORT	53
#define	DNS_MSGMAX	512	/* RFC 1035, 2.3.4 */
#define	DNS_HDRLEN	12
#define	DNS_TYPE_A	1
#define	DNS_TYPE_AAAA	28
#define	DNS_CLASS_IN	1
#define	DNS_TRIES	2
#define	DNS_WAIT	(2 * SBT_1S)
#define	DNS_MAXRECORDS	64

static u_int
dns_get16(const uint8_t *p)
{
	return (p[0] << 8 | p[1]);
}

/* Build a question; its length, or 0 if the name can't be one. */
static size_t
dns_query(uint8_t *msg, uint16_t id, const char *name, uint16_t type)
{
	/* Recursion desired, one question. */
	static const uint8_t flags[10] = { 1, 0, 0, 1 };
	uint8_t *p = msg + DNS_HDRLEN;
	const char *dot;
	size_t n;

	msg[0] = id >> 8;
	msg[1] = id;
	memcpy(msg + 2, flags, sizeof(flags));
	if (strlen(name) > 253)
		return (0);
	while (*name != '\0') {
		dot = strchr(name, '.');
		n = dot != NULL ? (size_t)(dot - name) : strlen(name);
		if (n == 0 || n > 63)
			return (0);
		*p++ = n;
		memcpy(p, name, n);
		p += n;
		name += n + (dot != NULL);
	}
	*p++ = 0;
	*p++ = type >> 8;
	*p++ = type;
	*p++ = 0;
	*p++ = DNS_CLASS_IN;
	return (p - msg);
}

/* Step over a name, compressed (RFC 1035, 4.1.4) or not; 0 if it leaves the message. */
static size_t
dns_skip_name(const uint8_t *msg, size_t len, size_t off)
{
	while (off < len) {
		if (msg[off] == 0)
			return (off + 1);
		if ((msg[off] & 0xc0) != 0)
			return (off + 2 <= len ? off + 2 : 0);
		off += msg[off] + 1;
	}
	return (0);
}

/*
 * Find the first address of the type in an answer.  0; EAGAIN if it is not the answer to our
 * question; ENOENT if there is none.
 */
static int
dns_answer(const uint8_t *msg, size_t len, uint16_t id, uint16_t type, struct in6_addr *a)
{
	struct in_addr v4;
	size_t off, rdlen;
	u_int questions, answers;

	if (len < DNS_HDRLEN || dns_get16(msg) != id || (msg[2] & 0x80) == 0)
		return (EAGAIN);
	questions = dns_get16(msg + 4);
	answers = MIN(dns_get16(msg + 6), DNS_MAXRECORDS);
	for (off = DNS_HDRLEN; questions > 0; questions--) {
		off = dns_skip_name(msg, len, off);
		if (off == 0 || (off += 4) > len)
			return (ENOENT);
	}
	for (; answers > 0; answers--, off += rdlen) {
		off = dns_skip_name(msg, len, off);
		if (off == 0 || off + 10 > len)
			return (ENOENT);
		rdlen = dns_get16(msg + off + 8);
		off += 10;
		if (off + rdlen > len)
			return (ENOENT);
		if (dns_get16(msg + off - 10) != type || dns_get16(msg + off - 8) != DNS_CLASS_IN)
			continue;
		if (type == DNS_TYPE_A && rdlen == sizeof(v4)) {
			memcpy(&v4, msg + off, sizeof(v4));
			*a = inet_map4(v4);
			return (0);
		}
		if (type == DNS_TYPE_AAAA && rdlen == sizeof(*a)) {
			memcpy(a, msg + off, sizeof(*a));
			return (0);
		}
	}
	return (ENOENT);
}

/* Ask one server.  EWOULDBLOCK, EINTR, ENOENT. */
static int
dns_ask(const struct in6_addr *server, const char *name, uint16_t type, struct in6_addr *a)
{
	sbintime_t deadline = sbinuptime() + DNS_WAIT;
	uint16_t id = arc4random();
	struct insock_from from;
	struct insock *s;
	uint8_t *msg;
	size_t len;
	int error;

	error = insock_open(IPPROTO_UDP, &s);
	if (error != 0)
		return (error);
	msg = malloc(DNS_MSGMAX, M_INET, M_WAITOK);
	len = dns_query(msg, id, name, type);
	error = len == 0 ? ENOENT : insock_bind(s, NULL, 0);
	if (error == 0)
		error = insock_sendto(s, msg, len, server, DNS_PORT);
	while (error == 0) {
		len = DNS_MSGMAX;
		error = insock_recv(s, msg, &len, &from, qmax(deadline - sbinuptime(), 0));
		if (error == 0 && inet_same(&from.f_addr, server) && from.f_port == DNS_PORT) {
			error = dns_answer(msg, len, id, type, a);
			if (error == 0)
				break;
			if (error == EAGAIN)
				error = 0;
		}
	}
	free(msg, M_INET);
	insock_close(s);
	return (error);
}

static int
dns_lookup(const char *name, uint16_t type, struct in6_addr *a)
{
	int error = ENOENT, i, try;

	for (try = 0; try < DNS_TRIES; try++) {
		for (i = 0; i < INET_NDNS; i++) {
			if (inet_unspecified(&inet_dns[i]))
				continue;
			error = dns_ask(&inet_dns[i], name, type, a);
			if (error == 0 || error == EINTR || error == ENOENT)
				return (error);
		}
	}
	return (error == EWOULDBLOCK ? ETIMEDOUT : error);
}

int
inet_resolve(const char *name, int family, struct in6_addr *a, u_int *scope)
{
	int error = ENOENT;

	*scope = 0;
	if (strcmp(name, "localhost") == 0)
		name = family == AF_INET6 ? "::1" : "127.0.0.1";
	if (inet_addr_parse(name, a, scope) == 0)
		return (family == AF_UNSPEC || (family == AF_INET) == inet_is4(a) ? 0 :
		    EAFNOSUPPORT);
	if (family != AF_INET6)
		error = dns_lookup(name, DNS_TYPE_A, a);
	if (error == ENOENT && family != AF_INET)
		error = dns_lookup(name, DNS_TYPE_AAAA, a);
	return (error);
}
