/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Internet addresses as text (RFC 4291, 2.2; RFC 5952): the four functions that netinet/in.h
 * declares.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/socket.h>
#include <netinet/in.h>

char *
inet_ntoa_r(struct in_addr ina, char *buf)
{
	const uint8_t *b = (const uint8_t *)&ina;

	snprintf(buf, INET_ADDRSTRLEN, "%u.%u.%u.%u", b[0], b[1], b[2], b[3]);
	return (buf);
}

/* Find the longest run of two or more zero groups: the one that "::" stands for. */
static void
ntop6_longest_run(const uint16_t *g, int *startp, int *lenp)
{
	int i, start = -1;

	*startp = -1;
	*lenp = 1;
	for (i = 0; i <= 8; i++) {
		if (i < 8 && g[i] == 0) {
			if (start < 0)
				start = i;
		} else if (start >= 0) {
			if (i - start > *lenp) {
				*startp = start;
				*lenp = i - start;
			}
			start = -1;
		}
	}
}

static void
ntop6(const uint8_t *b, char *out, size_t size)
{
	uint16_t g[8];
	int i, run, runlen;
	size_t n = 0;

	for (i = 0; i < 8; i++)
		g[i] = b[2 * i] << 8 | b[2 * i + 1];
	ntop6_longest_run(g, &run, &runlen);
	for (i = 0; i < 8; i++) {
		if (i == run) {
			n += snprintf(out + n, size - n, "::");
			i += runlen - 1;
		} else
			n += snprintf(out + n, size - n, "%s%x",
			    i != 0 && out[n - 1] != ':' ? ":" : "", g[i]);
	}
}

char *
inet_ntop(int af, const void *src, char *dst, socklen_t size)
{
	char buf[INET6_ADDRSTRLEN];
	struct in_addr a;

	if (af == AF_INET) {
		memcpy(&a, src, sizeof(a));
		inet_ntoa_r(a, buf);
	} else if (af == AF_INET6)
		ntop6(src, buf, sizeof(buf));
	else
		return (NULL);
	return (strlcpy(dst, buf, size) < size ? dst : NULL);
}

/* Four decimal numbers below 256, dots between, nothing else. */
static int
pton4(const char *s, uint8_t *out)
{
	u_int v;
	int i, digits;

	for (i = 0; i < 4; i++) {
		for (v = 0, digits = 0; *s >= '0' && *s <= '9' && digits < 4; s++, digits++)
			v = v * 10 + (*s - '0');
		if (digits == 0 || digits > 3 || v > 255 || *s != (i < 3 ? '.' : '\0'))
			return (0);
		out[i] = v;
		s++;
	}
	return (1);
}

static int
hexdigit(char c)
{
	if (c >= '0' && c <= '9')
		return (c - '0');
	c |= 0x20;
	return (c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1);
}

/* One group of up to four hexadecimal digits; gives how many. */
static int
pton6_group(const char *s, u_int *vp)
{
	int n;

	*vp = 0;
	for (n = 0; n < 5 && hexdigit(s[n]) >= 0; n++)
		*vp = *vp << 4 | hexdigit(s[n]);
	return (n);
}

static int
pton6(const char *s, uint8_t *out)
{
	uint8_t b[16] = { 0 };
	int n = 0, gap = -1, len;
	u_int v;

	if (s[0] == ':' && *++s != ':')
		return (0);
	for (;;) {
		if (*s == ':') {
			if (gap >= 0)
				return (0);
			gap = n;
			s++;
		}
		if (*s == '\0')
			break;
		len = pton6_group(s, &v);
		if (s[len] == '.') {
			if (n > 12 || pton4(s, b + n) == 0)
				return (0);
			n += 4;
			break;
		}
		if (len < 1 || len > 4 || n > 14)
			return (0);
		b[n++] = v >> 8;
		b[n++] = v;
		s += len;
		if (*s == '\0')
			break;
		if (*s != ':' || s[1] == '\0')
			return (0);
		s++;
	}
	if (gap < 0 ? n != 16 : n > 14)
		return (0);
	if (gap >= 0) {
		memmove(b + gap + 16 - n, b + gap, n - gap);
		memset(b + gap, 0, 16 - n);
	}
	memcpy(out, b, sizeof(b));
	return (1);
}

int
inet_pton(int af, const char *src, void *dst)
{
	if (af == AF_INET)
		return (pton4(src, dst));
	return (af == AF_INET6 ? pton6(src, dst) : -1);
}

int
inet_aton(const char *cp, struct in_addr *addr)
{
	return (pton4(cp, (uint8_t *)addr));
}
