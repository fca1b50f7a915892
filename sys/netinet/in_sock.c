/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Datagram sockets for code in the kernel: UDP over both IP versions, and ICMP of either as raw
 * messages (what ping needs).
 *
 * A socket has a queue of datagrams, bounded in bytes; a reader sleeps on it.  A UDP socket gets
 * what is sent to its port, the more exactly bound one first; an ICMP socket gets a copy of every
 * message that the kernel doesn't answer.
 *
 * Locking: sock_mtx protects the list and all sockets; nothing is sent with it held.
 *
 * Gaps: one lock and a list are right for a handful of sockets.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <kern/console_tree.h>

#define	SOCK_RCVLIMIT	(256 * 1024)
#define	SOCK_EPHEMERAL	49152	/* RFC 6335, 6 */
#define	SOCK_SLICE	(SBT_1S / 10)	/* how soon ^C is noticed */

struct sock_dgram {
	STAILQ_ENTRY(sock_dgram) d_link;
	struct insock_from d_from;
	struct mbuf	*d_m;
};

struct insock {
	LIST_ENTRY(insock) s_link;
	uint8_t		s_proto;
	uint8_t		s_ttl;
	int		s_outflags;
	uint16_t	s_lport;	/* host order */
	struct in6_addr	s_laddr;	/* unspecified: any */
	u_int		s_ifindex;	/* 0: any */
	int		s_error;	/* reported by ICMP, for the next receive */
	size_t		s_bytes;
	STAILQ_HEAD(, sock_dgram) s_queue;
};

static struct mtx sock_mtx;
MTX_SYSINIT(inet_sock, &sock_mtx, "inet sockets", MTX_DEF);
static LIST_HEAD(, insock) sock_list = LIST_HEAD_INITIALIZER(sock_list);

/*
 * Sleep on chan, with mtx held, until a wakeup or a time.  0 after a wakeup or a slice of the
 * time: the caller looks again; EWOULDBLOCK when sbinuptime() has reached deadline; EINTR after
 * ^C.
 */
int
inet_sleep(const void *chan, struct mtx *mtx, const char *wmesg, sbintime_t deadline)
{
	sbintime_t now = sbinuptime();

	if (cmd_interrupted())
		return (EINTR);
	if (now >= deadline)
		return (EWOULDBLOCK);
	(void)msleep_sbt(chan, mtx, 0, wmesg, MIN(deadline - now, SOCK_SLICE), 0, 0);
	return (0);
}

/* A socket for IPPROTO_UDP, IPPROTO_ICMP or IPPROTO_ICMPV6.  May sleep. */
int
insock_open(uint8_t proto, struct insock **sp)
{
	struct insock *s;

	s = malloc(sizeof(*s), M_INET, M_WAITOK | M_ZERO);
	s->s_proto = proto;
	STAILQ_INIT(&s->s_queue);
	mtx_lock(&sock_mtx);
	LIST_INSERT_HEAD(&sock_list, s, s_link);
	mtx_unlock(&sock_mtx);
	*sp = s;
	return (0);
}

void
insock_close(struct insock *s)
{
	struct sock_dgram *d;

	mtx_lock(&sock_mtx);
	LIST_REMOVE(s, s_link);
	mtx_unlock(&sock_mtx);
	while ((d = STAILQ_FIRST(&s->s_queue)) != NULL) {
		STAILQ_REMOVE_HEAD(&s->s_queue, d_link);
		m_freem(d->d_m);
		free(d, M_INET);
	}
	free(s, M_INET);
}

static bool
sock_port_used(const struct insock *me, uint16_t port)
{
	struct insock *s;

	LIST_FOREACH(s, &sock_list, s_link) {
		if (s != me && s->s_proto == me->s_proto && s->s_lport == port &&
		    inet_same(&s->s_laddr, &me->s_laddr) && s->s_ifindex == me->s_ifindex)
			return (true);
	}
	return (false);
}

/*
 * Bind a socket to an address (NULL: any) and a port in host order (0: the kernel chooses one).
 * EADDRINUSE.
 */
int
insock_bind(struct insock *s, const struct in6_addr *laddr, uint16_t lport)
{
	u_int i;
	int error = 0;

	mtx_lock(&sock_mtx);
	s->s_laddr = laddr != NULL ? *laddr : in6addr_any;
	for (i = 0; i < 4096 && s->s_proto == IPPROTO_UDP && lport == 0; i++) {
		s->s_lport = SOCK_EPHEMERAL + arc4random() % (65536 - SOCK_EPHEMERAL);
		if (!sock_port_used(s, s->s_lport))
			lport = s->s_lport;
	}
	if (s->s_proto == IPPROTO_UDP && (lport == 0 || sock_port_used(s, lport)))
		error = EADDRINUSE;
	s->s_lport = error == 0 ? lport : 0;
	mtx_unlock(&sock_mtx);
	return (error);
}

/* Send and receive on this interface only, without a route; outflags are INETO_*. */
void
insock_setif(struct insock *s, if_t ifp, int outflags)
{
	s->s_ifindex = ifp != NULL ? if_getindex(ifp) : 0;
	s->s_outflags = outflags;
}

void
insock_setopt(struct insock *s, uint8_t ttl, bool df)
{
	s->s_ttl = ttl;
	s->s_outflags = (s->s_outflags & ~INETO_DF) | (df ? INETO_DF : 0);
}

/* An mbuf chain: room for the headers in front, a UDP header, a copy of the data.  May sleep. */
static struct mbuf *
sock_mbuf(const uint8_t *data, size_t len)
{
	size_t room = max_linkhdr + sizeof(struct ip6_hdr), n;
	struct mbuf *m, *seg;

	m = m_getm2(NULL, room + sizeof(struct udphdr) + len, M_WAITOK, MT_DATA, M_PKTHDR);
	if (m == NULL)
		return (NULL);
	m->m_data += room;
	m->m_len = sizeof(struct udphdr);
	m->m_pkthdr.len = sizeof(struct udphdr) + len;
	for (seg = m; seg != NULL && len > 0; seg = seg->m_next) {
		n = MIN(len, (size_t)M_TRAILINGSPACE(seg));
		memcpy(mtod(seg, uint8_t *) + seg->m_len, data, n);
		seg->m_len += n;
		data += n;
		len -= n;
	}
	return (m);
}

/*
 * Send one datagram to dst (and, for UDP, dport in host order).  May sleep.
 * EMSGSIZE, ENOBUFS, ENETDOWN, or as inet_output().
 */
int
insock_sendto(struct insock *s, const void *data, size_t len, const struct in6_addr *dst,
    uint16_t dport)
{
	struct inet_out o = {
		.o_src = s->s_laddr,
		.o_dst = *dst,
		.o_proto = s->s_proto,
		.o_ttl = s->s_ttl,
		.o_flags = s->s_outflags,
	};
	struct epoch_tracker et;
	struct udphdr *uh;
	struct mbuf *m;
	int error;

	if (len > IP_MAXPACKET - sizeof(struct ip) - sizeof(*uh))
		return (EMSGSIZE);
	m = sock_mbuf(data, len);
	if (m == NULL)
		return (ENOBUFS);
	if (s->s_proto == IPPROTO_UDP) {
		uh = mtod(m, struct udphdr *);
		uh->uh_sport = htons(s->s_lport);
		uh->uh_dport = htons(dport);
		uh->uh_ulen = htons(sizeof(*uh) + len);
		INSTAT_INC(udp.udps_opackets);
	} else {
		m_adj(m, sizeof(*uh));
		m = m_pullup(m, min(len, ICMP_MINLEN));
		if (m == NULL)
			return (ENOBUFS);
	}
	if (inet_is4(dst) && (s->s_outflags & INETO_UNSPEC) != 0)
		o.o_src = inet_map4((struct in_addr){ INADDR_ANY });
	NET_EPOCH_ENTER(et);
	if (s->s_ifindex != 0)
		o.o_ifp = ifnet_byindex(s->s_ifindex);
	if (s->s_ifindex != 0 && o.o_ifp == NULL) {
		m_freem(m);
		error = ENETDOWN;
	} else
		error = inet_output(m, &o);
	NET_EPOCH_EXIT(et);
	return (error);
}

/*
 * Wait up to timeout for a datagram; copy at most *lenp bytes of it to buf, and set *lenp to what
 * was copied.  Of ICMP messages the ICMP header comes first.  EWOULDBLOCK, EINTR (^C), or what an
 * ICMP error reported about an earlier send.
 */
int
insock_recv(struct insock *s, void *buf, size_t *lenp, struct insock_from *from,
    sbintime_t timeout)
{
	sbintime_t deadline = sbinuptime() + timeout;
	struct sock_dgram *d;
	int error = 0;

	mtx_lock(&sock_mtx);
	while ((d = STAILQ_FIRST(&s->s_queue)) == NULL && error == 0) {
		error = s->s_error;
		s->s_error = 0;
		if (error == 0)
			error = inet_sleep(s, &sock_mtx, "insock", deadline);
	}
	if (d != NULL) {
		error = 0;
		STAILQ_REMOVE_HEAD(&s->s_queue, d_link);
		s->s_bytes -= d->d_m->m_pkthdr.len;
	}
	mtx_unlock(&sock_mtx);
	if (d == NULL)
		return (error);
	*lenp = MIN(*lenp, (size_t)d->d_m->m_pkthdr.len);
	m_copydata(d->d_m, 0, *lenp, buf);
	if (from != NULL)
		*from = d->d_from;
	m_freem(d->d_m);
	free(d, M_INET);
	return (0);
}

/* How exactly a socket is bound to where the datagram came to; 0: not for it. */
static int
sock_match(const struct insock *s, const struct inet_pkt *p, uint16_t dport)
{
	int score = 1;

	if (s->s_proto != p->ip_proto || (s->s_proto == IPPROTO_UDP && s->s_lport != dport))
		return (0);
	if (s->s_ifindex != 0) {
		if (s->s_ifindex != (u_int)if_getindex(p->ip_ifp))
			return (0);
		score++;
	}
	if (!inet_unspecified(&s->s_laddr)) {
		if (!inet_same(&s->s_laddr, &p->ip_dst) && !p->ip_bmcast)
			return (0);
		score++;
	}
	return (score);
}

/* Queue m, trimmed to the payload at off; frees it if the socket is full. */
static void
sock_queue(struct insock *s, struct mbuf *m, const struct inet_pkt *p, uint16_t sport, int off)
{
	struct sock_dgram *d = NULL;

	mtx_assert(&sock_mtx, MA_OWNED);
	if (s->s_bytes + m->m_pkthdr.len <= SOCK_RCVLIMIT)
		d = malloc(sizeof(*d), M_INET, M_NOWAIT | M_ZERO);
	if (d == NULL) {
		INSTAT_INC(udp.udps_fullsock);
		m_freem(m);
		return;
	}
	m_adj(m, off);
	d->d_m = m;
	d->d_from.f_addr = p->ip_src;
	d->d_from.f_dst = p->ip_dst;
	d->d_from.f_ifindex = if_getindex(p->ip_ifp);
	d->d_from.f_port = sport;
	d->d_from.f_ttl = p->ip_ttl;
	s->s_bytes += m->m_pkthdr.len;
	STAILQ_INSERT_TAIL(&s->s_queue, d, d_link);
	wakeup(s);
}

/*
 * Give a datagram, whose payload is at off, to the socket of its port; an ICMP message to every
 * ICMP socket.  True if m was consumed, false if there is no such socket.
 */
bool
insock_input(struct mbuf *m, const struct inet_pkt *p, uint16_t sport, uint16_t dport, int off)
{
	struct insock *s, *best = NULL;
	struct mbuf *copy;
	int score, top = 0;

	mtx_lock(&sock_mtx);
	LIST_FOREACH(s, &sock_list, s_link) {
		score = sock_match(s, p, dport);
		if (score == 0)
			continue;
		if (p->ip_proto != IPPROTO_UDP && best != NULL &&
		    (copy = m_copypacket(m, M_NOWAIT)) != NULL)
			sock_queue(s, copy, p, sport, off);
		if (score > top && (p->ip_proto == IPPROTO_UDP || best == NULL)) {
			best = s;
			top = score;
		}
	}
	if (best != NULL)
		sock_queue(best, m, p, sport, off);
	mtx_unlock(&sock_mtx);
	return (best != NULL);
}

/* An ICMP error came about a datagram that this port sent. */
void
insock_ctlinput(const struct in6_addr *remote, uint16_t lport, uint16_t fport, int error)
{
	struct insock *s;

	mtx_lock(&sock_mtx);
	LIST_FOREACH(s, &sock_list, s_link) {
		if (s->s_proto == IPPROTO_UDP && s->s_lport == lport) {
			s->s_error = error;
			wakeup(s);
		}
	}
	mtx_unlock(&sock_mtx);
}
