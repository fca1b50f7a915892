/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Reassembly of fragments, for both IP versions (RFC 791, 3.2; RFC 8200, 4.5).
 *
 * A queue per datagram keeps its fragments in order, each as the mbufs of its payload; the header
 * is that of the first fragment.  Fragments that overlap kill the datagram (RFC 5722); an exact
 * copy is ignored.
 *
 * Everything that an attacker can make us keep is bounded: queues, fragments in one, and the time.
 * When there are too many queues the oldest is freed.
 *
 * Locking: reass_mtx protects all queues; it is a leaf.
 *
 * Gaps: no ICMP time exceeded when a datagram is given up.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>

#define	REASS_QUEUES	64
#define	REASS_FRAGS	128	/* 64 KB in fragments of the least IPv4 MTU worth using, 576 */
#define	REASS_TTL4	30	/* seconds */
#define	REASS_TTL6	60	/* RFC 8200, 4.5 */

struct reass_frag {
	TAILQ_ENTRY(reass_frag) f_link;
	int		f_off;
	int		f_len;
	struct mbuf	*f_m;		/* payload only */
};

struct reass_queue {
	TAILQ_ENTRY(reass_queue) q_link;
	TAILQ_HEAD(reass_frags, reass_frag) q_frags;
	struct inet_fragkey q_key;
	struct mbuf	*q_hdr;		/* header of the first fragment, once it came */
	if_t		q_ifp;
	time_t		q_expire;
	int		q_nfrags;
	int		q_bytes;	/* of payload here */
	int		q_total;	/* of payload in all, -1 until the last fragment came */
};

static struct mtx reass_mtx;
MTX_SYSINIT(inet_reass, &reass_mtx, "inet reassembly", MTX_DEF);
static TAILQ_HEAD(, reass_queue) reass_queues = TAILQ_HEAD_INITIALIZER(reass_queues);
static int reass_count;

static bool
reass_is4(const struct reass_queue *q)
{
	return (inet_is4(&q->q_key.k_dst));
}

/* Give a queue up, with all that is in it. */
static void
reass_drop(struct reass_queue *q)
{
	struct reass_frag *f;

	mtx_assert(&reass_mtx, MA_OWNED);
	if (reass_is4(q))
		INSTAT_ADD(ip.ips_fragdropped, q->q_nfrags);
	else
		INSTAT_ADD(ip6.ip6s_fragdropped, q->q_nfrags);
	while ((f = TAILQ_FIRST(&q->q_frags)) != NULL) {
		TAILQ_REMOVE(&q->q_frags, f, f_link);
		m_freem(f->f_m);
		free(f, M_INET);
	}
	m_freem(q->q_hdr);
	TAILQ_REMOVE(&reass_queues, q, q_link);
	reass_count--;
	free(q, M_INET);
}

static struct reass_queue *
reass_find(const struct inet_fragkey *key, if_t ifp)
{
	struct reass_queue *q;

	mtx_assert(&reass_mtx, MA_OWNED);
	TAILQ_FOREACH(q, &reass_queues, q_link) {
		if (memcmp(&q->q_key, key, sizeof(*key)) == 0)
			return (q);
	}
	q = malloc(sizeof(*q), M_INET, M_NOWAIT | M_ZERO);
	if (q == NULL)
		return (NULL);
	if (reass_count >= REASS_QUEUES)
		reass_drop(TAILQ_FIRST(&reass_queues));
	q->q_key = *key;
	q->q_ifp = ifp;
	q->q_total = -1;
	q->q_expire = time_uptime + (inet_is4(&key->k_dst) ? REASS_TTL4 : REASS_TTL6);
	TAILQ_INIT(&q->q_frags);
	TAILQ_INSERT_TAIL(&reass_queues, q, q_link);
	reass_count++;
	return (q);
}

/*
 * Put a fragment in its place.  0; EEXIST for a copy of one that is here; EINVAL if it
 * contradicts the others, which kills the datagram.
 */
static int
reass_insert(struct reass_queue *q, struct reass_frag *new, bool more)
{
	struct reass_frag *f, *last;
	int end = new->f_off + new->f_len;

	TAILQ_FOREACH(f, &q->q_frags, f_link) {
		if (f->f_off == new->f_off && f->f_len == new->f_len)
			return (EEXIST);
		if (f->f_off + f->f_len > new->f_off)
			break;
	}
	last = TAILQ_LAST(&q->q_frags, reass_frags);
	if ((f != NULL && f->f_off < end) || q->q_nfrags >= REASS_FRAGS ||
	    (q->q_total >= 0 && (end > q->q_total || (!more && end != q->q_total))) ||
	    (!more && last != NULL && last->f_off + last->f_len > end))
		return (EINVAL);
	if (f != NULL)
		TAILQ_INSERT_BEFORE(f, new, f_link);
	else
		TAILQ_INSERT_TAIL(&q->q_frags, new, f_link);
	q->q_nfrags++;
	q->q_bytes += new->f_len;
	if (!more)
		q->q_total = end;
	return (0);
}

/* All fragments are here: join them behind the header and end the queue. */
static struct mbuf *
reass_join(struct reass_queue *q)
{
	struct reass_frag *f;
	struct mbuf *m = q->q_hdr;

	q->q_hdr = NULL;
	q->q_nfrags = 0;
	TAILQ_FOREACH(f, &q->q_frags, f_link) {
		m_cat(m, f->f_m);
		f->f_m = NULL;
	}
	m->m_pkthdr.len += q->q_total;
	m->m_pkthdr.csum_flags = 0;
	if (reass_is4(q))
		INSTAT_INC(ip.ips_reassembled);
	else
		INSTAT_INC(ip6.ip6s_reassembled);
	reass_drop(q);
	return (m);
}

static struct mbuf *
reass_add(struct reass_queue *q, struct mbuf *m, struct reass_frag *f, int hlen, bool more)
{
	struct mbuf *payload = NULL;
	int error;

	error = reass_insert(q, f, more);
	if (error == 0) {
		payload = m_split(m, hlen, M_NOWAIT);
		if (payload == NULL)
			error = ENOBUFS;
	}
	if (error == EEXIST) {
		m_freem(m);
		free(f, M_INET);
		return (NULL);
	}
	if (error != 0) {
		if (error == EINVAL)
			free(f, M_INET);
		m_freem(m);
		reass_drop(q);
		return (NULL);
	}
	m_demote(payload, 1, 0);
	f->f_m = payload;
	if (f->f_off == 0)
		q->q_hdr = m;
	else
		m_freem(m);
	if (q->q_hdr == NULL || q->q_bytes != q->q_total)
		return (NULL);
	return (reass_join(q));
}

/*
 * Take a fragment: m starts with its IP header of hlen bytes, the payload belongs at byte off of
 * the datagram, and more is set if it isn't the last.  Returns the whole datagram with the first
 * fragment's header, whose length fields the caller updates, or NULL; m is consumed either way.
 */
struct mbuf *
inet_reass(struct mbuf *m, const struct inet_fragkey *key, int hlen, int off, bool more)
{
	struct reass_queue *q;
	struct reass_frag *f;
	int len = m->m_pkthdr.len - hlen;

	/*
	 * All but the last are multiples of 8, and none may end beyond what a length field can
	 * say.
	 */
	if (len <= 0 || (more && (len & 7) != 0) || hlen + off + len > IP_MAXPACKET ||
	    (f = malloc(sizeof(*f), M_INET, M_NOWAIT | M_ZERO)) == NULL) {
		m_freem(m);
		return (NULL);
	}
	f->f_off = off;
	f->f_len = len;
	mtx_lock(&reass_mtx);
	q = reass_find(key, m->m_pkthdr.rcvif);
	if (q != NULL)
		m = reass_add(q, m, f, hlen, more);
	mtx_unlock(&reass_mtx);
	if (q == NULL) {
		m_freem(m);
		free(f, M_INET);
		return (NULL);
	}
	return (m);
}

/* Once a second. */
void
inet_reass_timer(void)
{
	struct reass_queue *q, *next;

	mtx_lock(&reass_mtx);
	TAILQ_FOREACH_SAFE(q, &reass_queues, q_link, next) {
		if (q->q_expire > time_uptime)
			continue;
		if (reass_is4(q))
			INSTAT_INC(ip.ips_fragtimeout);
		else
			INSTAT_INC(ip6.ip6s_fragtimeout);
		reass_drop(q);
	}
	mtx_unlock(&reass_mtx);
}

/* The interface goes away, and the fragments point at it. */
void
inet_reass_purge(if_t ifp)
{
	struct reass_queue *q, *next;

	mtx_lock(&reass_mtx);
	TAILQ_FOREACH_SAFE(q, &reass_queues, q_link, next) {
		if (q->q_ifp == ifp)
			reass_drop(q);
	}
	mtx_unlock(&reass_mtx);
}
