/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The neighbour cache: which Ethernet address belongs to an IP address on a link.
 *
 * One table and one set of states (RFC 4861, 7.3.2) for both IP versions; ARP (if_ether.c) and
 * neighbour discovery (nd6.c) send the requests and enter the answers.
 *
 *	           first packet          answer               time
 *	(none) -----------------> INCOMPLETE -----> REACHABLE ------> STALE
 *	                              | no answer        ^              | packet sent
 *	                              v           answer |              v
 *	                           (none) <---- PROBE <--+----------- DELAY
 *
 * Packets wait in the entry while it is INCOMPLETE; NBR_MAXHOLD of them, the oldest go first.
 * The table holds NBR_MAX entries; when it is full the one that would expire first makes room, so
 * that a scan of the subnet can't exhaust the memory.
 *
 * Locking: nbr_mtx protects the table.  Nothing is sent with it held.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <net/if_tree.h>

#define	NBR_HASH	64
#define	NBR_MAX		512
#define	NBR_MAXHOLD	16
#define	NBR_RETRANS	1	/* seconds between questions; RFC 4861, 10 */
#define	NBR_TRIES	3
#define	NBR_TRIES4	5
#define	NBR_DELAY_TIME	5
#define	NBR_REACH6	30
#define	NBR_REACH4	1200	/* net.link.ether.inet.max_age of old */
#define	NBR_GC		1200	/* a stale entry that is not used */
#define	NBR_BATCH	16	/* questions asked per round of the timer */

static struct mtx nbr_mtx;
MTX_SYSINIT(inet_nbr, &nbr_mtx, "inet neighbours", MTX_DEF);
static LIST_HEAD(nbr_head, inet_nbr) nbr_table[NBR_HASH];
static u_int nbr_count;

/* A question to be asked once the lock is released. */
struct nbr_question {
	if_t		q_ifp;
	struct in6_addr	q_addr;
	uint8_t		q_lladdr[ETHER_ADDR_LEN];
	bool		q_unicast;
};

static struct nbr_head *
nbr_bucket(const struct in6_addr *a)
{
	uint32_t h = a->s6_addr32[3] ^ a->s6_addr32[2] ^ a->s6_addr32[0];

	h ^= h >> 16;
	return (&nbr_table[(h ^ (h >> 8)) % NBR_HASH]);
}

static struct inet_nbr *
nbr_find(if_t ifp, const struct in6_addr *a)
{
	struct inet_nbr *n;

	mtx_assert(&nbr_mtx, MA_OWNED);
	LIST_FOREACH(n, nbr_bucket(a), n_link) {
		if (n->n_ifp == ifp && inet_same(&n->n_addr, a))
			return (n);
	}
	return (NULL);
}

static void
nbr_free(struct inet_nbr *n)
{
	mtx_assert(&nbr_mtx, MA_OWNED);
	LIST_REMOVE(n, n_link);
	nbr_count--;
	INSTAT_ADD(arp.dropped, mbufq_len(&n->n_hold));
	mbufq_drain(&n->n_hold);
	free(n, M_INET);
}

static bool
nbr_evict(void)
{
	struct inet_nbr *n, *victim = NULL;
	u_int i;

	for (i = 0; i < NBR_HASH; i++) {
		LIST_FOREACH(n, &nbr_table[i], n_link) {
			if (!n->n_permanent && (victim == NULL || n->n_expire < victim->n_expire))
				victim = n;
		}
	}
	if (victim != NULL)
		nbr_free(victim);
	return (victim != NULL);
}

static struct inet_nbr *
nbr_create(if_t ifp, const struct in6_addr *a)
{
	struct inet_nbr *n;

	mtx_assert(&nbr_mtx, MA_OWNED);
	if (nbr_count >= NBR_MAX && !nbr_evict())
		return (NULL);
	n = malloc(sizeof(*n), M_INET, M_NOWAIT | M_ZERO);
	if (n == NULL)
		return (NULL);
	n->n_ifp = ifp;
	n->n_addr = *a;
	n->n_state = NBR_INCOMPLETE;
	n->n_expire = time_uptime + NBR_RETRANS;
	mbufq_init(&n->n_hold, NBR_MAXHOLD);
	LIST_INSERT_HEAD(nbr_bucket(a), n, n_link);
	nbr_count++;
	return (n);
}

static void
nbr_reachable(struct inet_nbr *n)
{
	n->n_state = NBR_REACHABLE;
	n->n_asked = 0;
	n->n_expire = time_uptime + (inet_is4(&n->n_addr) ? NBR_REACH4 : NBR_REACH6);
}

static void
nbr_stale(struct inet_nbr *n)
{
	n->n_state = NBR_STALE;
	n->n_asked = 0;
	n->n_expire = time_uptime + NBR_GC;
}

static void
nbr_ask(const struct nbr_question *q)
{
	const uint8_t *to = q->q_unicast ? q->q_lladdr : NULL;
	struct in6_addr src;

	if (!inet_is4(&q->q_addr)) {
		nd6_solicit(q->q_ifp, &q->q_addr, NULL, to);
		return;
	}
	if (inet_addr_source(q->q_ifp, &q->q_addr, &src) == 0)
		inet_arp_request(q->q_ifp, inet_unmap4(&src), inet_unmap4(&q->q_addr), to);
}

/*
 * Give the Ethernet address of a neighbour: 0 and *lladdr; or EWOULDBLOCK, and m waits in the entry
 * and is sent when the answer comes; or ENOBUFS, and m is freed.
 */
int
inet_nbr_resolve(if_t ifp, const struct in6_addr *a, struct mbuf *m, uint8_t *lladdr)
{
	struct nbr_question q = { .q_ifp = ifp, .q_addr = *a };
	struct inet_nbr *n;
	bool ask = false;

	mtx_lock(&nbr_mtx);
	n = nbr_find(ifp, a);
	if (n != NULL && n->n_state != NBR_INCOMPLETE) {
		memcpy(lladdr, n->n_lladdr, ETHER_ADDR_LEN);
		if (n->n_state == NBR_STALE) {
			n->n_state = NBR_DELAY;
			n->n_expire = time_uptime + NBR_DELAY_TIME;
		}
		mtx_unlock(&nbr_mtx);
		return (0);
	}
	if (n == NULL) {
		n = nbr_create(ifp, a);
		if (n == NULL) {
			mtx_unlock(&nbr_mtx);
			m_freem(m);
			return (ENOBUFS);
		}
		n->n_asked = 1;
		ask = true;
	}
	if (mbufq_full(&n->n_hold)) {
		m_freem(mbufq_dequeue(&n->n_hold));
		INSTAT_INC(arp.dropped);
	}
	(void)mbufq_enqueue(&n->n_hold, m);
	mtx_unlock(&nbr_mtx);
	if (ask)
		nbr_ask(&q);
	return (EWOULDBLOCK);
}

static void
nbr_send_held(if_t ifp, bool v4, struct mbufq *held, const uint8_t *lladdr)
{
	struct mbuf *m;

	while ((m = mbufq_dequeue(held)) != NULL)
		(void)ether_output_resolved(ifp, m, lladdr, v4 ? ETHERTYPE_IP : ETHERTYPE_IPV6);
}

/* What an answer does to an entry that already has an address (RFC 4861, 7.2.5). */
static void
nbr_update(struct inet_nbr *n, const uint8_t *lladdr, int flags)
{
	bool differs = lladdr != NULL && memcmp(n->n_lladdr, lladdr, ETHER_ADDR_LEN) != 0;

	if (differs && (flags & NBR_OVERRIDE) == 0) {
		if (n->n_state == NBR_REACHABLE)
			nbr_stale(n);
		return;
	}
	if (differs) {
		memcpy(n->n_lladdr, lladdr, ETHER_ADDR_LEN);
		nbr_stale(n);
	}
	if ((flags & NBR_SOLICITED) != 0)
		nbr_reachable(n);
}

/*
 * Enter the address that a neighbour reported.  lladdr may be NULL if the message had none.
 */
void
inet_nbr_learn(if_t ifp, const struct in6_addr *a, const uint8_t *lladdr, int flags)
{
	struct inet_nbr *n;
	struct mbufq held;
	bool lost_router = false;

	mbufq_init(&held, NBR_MAXHOLD);
	mtx_lock(&nbr_mtx);
	n = nbr_find(ifp, a);
	if (n == NULL && lladdr != NULL && (flags & NBR_CREATE) != 0)
		n = nbr_create(ifp, a);
	if (n == NULL || n->n_permanent || (n->n_state == NBR_INCOMPLETE && lladdr == NULL)) {
		mtx_unlock(&nbr_mtx);
		return;
	}
	if (n->n_state == NBR_INCOMPLETE) {
		memcpy(n->n_lladdr, lladdr, ETHER_ADDR_LEN);
		if ((flags & NBR_SOLICITED) != 0)
			nbr_reachable(n);
		else
			nbr_stale(n);
		mbufq_concat(&held, &n->n_hold);
	} else
		nbr_update(n, lladdr, flags);
	if ((flags & NBR_ISROUTER) != 0) {
		lost_router = n->n_router && (flags & NBR_ROUTER) == 0;
		n->n_router = (flags & NBR_ROUTER) != 0;
	}
	mtx_unlock(&nbr_mtx);
	nbr_send_held(ifp, inet_is4(a), &held, lladdr);
	if (lost_router)
		(void)inet_route_delete(&in6addr_any, 0, a, ifp);
}

/* Make a permanent entry, as arp -s does. */
int
inet_nbr_set(if_t ifp, const struct in6_addr *a, const uint8_t *lladdr)
{
	struct inet_nbr *n;
	struct mbufq held;

	mbufq_init(&held, NBR_MAXHOLD);
	mtx_lock(&nbr_mtx);
	n = nbr_find(ifp, a);
	if (n == NULL)
		n = nbr_create(ifp, a);
	if (n != NULL) {
		memcpy(n->n_lladdr, lladdr, ETHER_ADDR_LEN);
		nbr_reachable(n);
		n->n_permanent = true;
		mbufq_concat(&held, &n->n_hold);
	}
	mtx_unlock(&nbr_mtx);
	if (n == NULL)
		return (ENOBUFS);
	nbr_send_held(ifp, inet_is4(a), &held, lladdr);
	return (0);
}

int
inet_nbr_delete(if_t ifp, const struct in6_addr *a)
{
	struct inet_nbr *n;

	mtx_lock(&nbr_mtx);
	n = nbr_find(ifp, a);
	if (n != NULL)
		nbr_free(n);
	mtx_unlock(&nbr_mtx);
	return (n != NULL ? 0 : ENOENT);
}

void
inet_nbr_purge(if_t ifp)
{
	struct inet_nbr *n, *next;
	u_int i;

	mtx_lock(&nbr_mtx);
	for (i = 0; i < NBR_HASH; i++) {
		LIST_FOREACH_SAFE(n, &nbr_table[i], n_link, next) {
			if (n->n_ifp == ifp)
				nbr_free(n);
		}
	}
	mtx_unlock(&nbr_mtx);
}

/* Copy the n-th entry for a listing; false behind the last. */
bool
inet_nbr_nth(u_int index, struct inet_nbr *out)
{
	struct inet_nbr *n = NULL;
	u_int i;

	mtx_lock(&nbr_mtx);
	for (i = 0; i < NBR_HASH && n == NULL; i++) {
		LIST_FOREACH(n, &nbr_table[i], n_link) {
			if (index-- == 0)
				break;
		}
	}
	if (n != NULL)
		*out = *n;
	mtx_unlock(&nbr_mtx);
	return (n != NULL);
}

/* One entry's time has come: move it on.  True if a question is to be asked. */
static bool
nbr_expire(struct inet_nbr *n, struct nbr_question *q)
{
	u_int tries = inet_is4(&n->n_addr) ? NBR_TRIES4 : NBR_TRIES;

	switch (n->n_state) {
	case NBR_REACHABLE:
		nbr_stale(n);
		return (false);
	case NBR_STALE:
		nbr_free(n);
		return (false);
	case NBR_DELAY:
		n->n_state = NBR_PROBE;
		break;
	case NBR_INCOMPLETE:
	case NBR_PROBE:
		if (n->n_asked >= tries) {
			INSTAT_INC(arp.timeouts);
			nbr_free(n);
			return (false);
		}
		break;
	}
	n->n_asked++;
	n->n_expire = time_uptime + NBR_RETRANS;
	q->q_ifp = n->n_ifp;
	q->q_addr = n->n_addr;
	q->q_unicast = n->n_state == NBR_PROBE;
	memcpy(q->q_lladdr, n->n_lladdr, sizeof(q->q_lladdr));
	return (true);
}

/*
 * Once a second, in the network epoch: move entries on.  Questions are collected and asked without
 * the lock; an entry that was asked about is not due again in this second, so the rounds end.
 */
void
inet_nbr_timer(void)
{
	struct nbr_question q[NBR_BATCH];
	struct inet_nbr *n, *next;
	u_int i, k;

	do {
		k = 0;
		mtx_lock(&nbr_mtx);
		for (i = 0; i < NBR_HASH; i++) {
			LIST_FOREACH_SAFE(n, &nbr_table[i], n_link, next) {
				if (k < NBR_BATCH && !n->n_permanent &&
				    n->n_expire <= time_uptime && nbr_expire(n, &q[k]))
					k++;
			}
		}
		mtx_unlock(&nbr_mtx);
		for (i = 0; i < k; i++)
			nbr_ask(&q[i]);
	} while (k == NBR_BATCH);
}
