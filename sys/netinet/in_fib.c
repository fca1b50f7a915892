/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The routing table of both IP versions, and what is known of path MTUs.
 *
 * A list kept in order of falling prefix length, so that the first match is the longest; IPv4
 * prefixes are of the mapped form (its default route is ::ffff:0:0/96), and an IPv4 address never
 * falls through to an IPv6 route.  The table has a handful of entries: connected prefixes, a
 * default of each version, static routes.
 *
 * Path MTUs smaller than the link's, learned from ICMP (RFC 1191, RFC 8201), are kept beside it
 * in a small table of their own that forgets the oldest.
 *
 * Locking: fib_mtx protects both tables; it is a leaf.
 *
 * Gaps: a tree for large tables, and more than one next hop.
 */

#include <netinet/inet_stack_tree.h>

#define	FIB_MAXROUTES	1024
#define	FIB_MAXDYNAMIC	32	/* bounds what router advertisements can add */
#define	PMTU_ENTRIES	64
#define	PMTU_EXPIRE	600	/* seconds; RFC 1191, 6.3 */

struct pmtu {
	struct in6_addr	p_dst;
	u_int		p_mtu;		/* 0: free */
	time_t		p_expire;
};

static struct mtx fib_mtx;
MTX_SYSINIT(inet_fib, &fib_mtx, "inet fib", MTX_DEF);
static TAILQ_HEAD(, inet_route) fib_routes = TAILQ_HEAD_INITIALIZER(fib_routes);
static u_int fib_count;
static u_int fib_dynamic;	/* of these, RTF_DYNAMIC */
static struct pmtu fib_pmtu[PMTU_ENTRIES];
static u_int fib_pmtu_used;

/* True if the first plen bits of a and b agree. */
bool
inet_prefix_match(const struct in6_addr *a, const struct in6_addr *b, int plen)
{
	int bytes = plen / 8, bits = plen % 8;

	if (memcmp(a, b, bytes) != 0)
		return (false);
	return (bits == 0 ||
	    ((a->s6_addr[bytes] ^ b->s6_addr[bytes]) & (0xff00 >> bits) & 0xff) == 0);
}

static void
fib_mask(struct in6_addr *a, int plen)
{
	int i;

	for (i = 0; i < 16; i++, plen -= 8) {
		if (plen <= 0)
			a->s6_addr[i] = 0;
		else if (plen < 8)
			a->s6_addr[i] &= 0xff00 >> plen;
	}
}

static struct inet_route *
fib_match(const struct in6_addr *dst, if_t oif)
{
	struct inet_route *r;

	mtx_assert(&fib_mtx, MA_OWNED);
	TAILQ_FOREACH(r, &fib_routes, r_link) {
		if (oif != NULL && r->r_ifp != oif)
			continue;
		if (inet_is4(dst) != (inet_is4(&r->r_dst) && r->r_plen >= INET_V4PLEN(0)))
			continue;
		if (inet_prefix_match(dst, &r->r_dst, r->r_plen))
			return (r);
	}
	return (NULL);
}

static struct inet_route *
fib_exact(const struct in6_addr *dst, int plen, const struct in6_addr *gw, if_t ifp)
{
	struct inet_route *r;

	mtx_assert(&fib_mtx, MA_OWNED);
	TAILQ_FOREACH(r, &fib_routes, r_link) {
		if (r->r_plen == plen && inet_same(&r->r_dst, dst) &&
		    (ifp == NULL || r->r_ifp == ifp) &&
		    (gw == NULL || ((r->r_flags & RTF_GATEWAY) != 0 && inet_same(&r->r_gw, gw))))
			return (r);
	}
	return (NULL);
}

static void
fib_insert(struct inet_route *r)
{
	struct inet_route *q;

	mtx_assert(&fib_mtx, MA_OWNED);
	fib_count++;
	fib_dynamic += (r->r_flags & RTF_DYNAMIC) != 0;
	TAILQ_FOREACH(q, &fib_routes, r_link) {
		if (q->r_plen < r->r_plen) {
			TAILQ_INSERT_BEFORE(q, r, r_link);
			return;
		}
	}
	TAILQ_INSERT_TAIL(&fib_routes, r, r_link);
}

static void
fib_remove(struct inet_route *r)
{
	mtx_assert(&fib_mtx, MA_OWNED);
	TAILQ_REMOVE(&fib_routes, r, r_link);
	fib_count--;
	fib_dynamic -= (r->r_flags & RTF_DYNAMIC) != 0;
	free(r, M_INET);
}

/*
 * Add a route to dst/plen (plen of the mapped form) through gw, or on the link of ifp if gw is
 * NULL. With a gateway ifp may be NULL: it is then the one on whose link the gateway is.  A
 * connected route may exist once for each interface, any other once.  An equal route gets its
 * expiry renewed. EEXIST, ENETUNREACH (no link reaches the gateway), ENOBUFS.
 */
int
inet_route_add(const struct in6_addr *dst, int plen, const struct in6_addr *gw, if_t ifp,
    int flags, time_t expire)
{
	struct inet_route *r, *old, *via;
	int error = 0;

	r = malloc(sizeof(*r), M_INET, M_NOWAIT | M_ZERO);
	if (r == NULL)
		return (ENOBUFS);
	r->r_dst = *dst;
	fib_mask(&r->r_dst, plen);
	r->r_plen = plen;
	r->r_flags = flags | RTF_UP | (gw != NULL ? RTF_GATEWAY : 0);
	r->r_flags |= plen == 128 ? RTF_HOST : 0;
	r->r_expire = expire;
	if (gw != NULL)
		r->r_gw = *gw;
	mtx_lock(&fib_mtx);
	if (gw != NULL && ifp == NULL) {
		via = fib_match(gw, NULL);
		if (via == NULL || (via->r_flags & RTF_GATEWAY) != 0)
			error = ENETUNREACH;
		else
			ifp = via->r_ifp;
	}
	r->r_ifp = ifp;
	old = fib_exact(&r->r_dst, plen, NULL, gw == NULL ? ifp : NULL);
	if (error == 0 && ifp == NULL)
		error = ENETUNREACH;
	else if (error == 0 && old != NULL) {
		if (old->r_expire != 0 && (gw == NULL || inet_same(&old->r_gw, gw)))
			old->r_expire = expire;
		error = EEXIST;
	} else if (error == 0 && (fib_count >= FIB_MAXROUTES ||
	    ((flags & RTF_DYNAMIC) != 0 && fib_dynamic >= FIB_MAXDYNAMIC)))
		error = ENOBUFS;
	if (error == 0)
		fib_insert(r);
	mtx_unlock(&fib_mtx);
	if (error != 0)
		free(r, M_INET);
	return (error);
}

/* Remove a route; gw and ifp may be NULL for any.  ESRCH. */
int
inet_route_delete(const struct in6_addr *dst, int plen, const struct in6_addr *gw, if_t ifp)
{
	struct in6_addr key = *dst;
	struct inet_route *r;

	fib_mask(&key, plen);
	mtx_lock(&fib_mtx);
	r = fib_exact(&key, plen, gw, ifp);
	if (r != NULL)
		fib_remove(r);
	mtx_unlock(&fib_mtx);
	return (r != NULL ? 0 : ESRCH);
}

static u_int
fib_pmtu_find(const struct in6_addr *dst)
{
	u_int i;

	mtx_assert(&fib_mtx, MA_OWNED);
	for (i = 0; i < PMTU_ENTRIES && fib_pmtu_used != 0; i++) {
		if (fib_pmtu[i].p_mtu != 0 && inet_same(&fib_pmtu[i].p_dst, dst))
			return (fib_pmtu[i].p_mtu);
	}
	return (0);
}

/*
 * Find the way to dst, on oif only unless that is NULL.  Called in the network epoch, which keeps
 * nh->nh_ifp valid.  EHOSTUNREACH.
 */
int
inet_route_lookup(const struct in6_addr *dst, if_t oif, struct inet_nexthop *nh)
{
	struct inet_route *r;
	u_int pmtu;

	mtx_lock(&fib_mtx);
	r = fib_match(dst, oif);
	if (r == NULL) {
		mtx_unlock(&fib_mtx);
		return (EHOSTUNREACH);
	}
	r->r_use++;
	nh->nh_ifp = r->r_ifp;
	nh->nh_flags = r->r_flags;
	nh->nh_addr = (r->r_flags & RTF_GATEWAY) != 0 ? r->r_gw : *dst;
	pmtu = fib_pmtu_find(dst);
	mtx_unlock(&fib_mtx);
	nh->nh_mtu = if_getmtu(nh->nh_ifp);
	if (pmtu != 0 && pmtu < nh->nh_mtu)
		nh->nh_mtu = pmtu;
	return (0);
}

/* Copy the n-th route for a listing; false behind the last. */
bool
inet_route_nth(u_int n, struct inet_route *out)
{
	struct inet_route *r;

	mtx_lock(&fib_mtx);
	TAILQ_FOREACH(r, &fib_routes, r_link) {
		if (n-- == 0)
			break;
	}
	if (r != NULL)
		*out = *r;
	mtx_unlock(&fib_mtx);
	return (r != NULL);
}

/* Remove every route over an interface that is being removed. */
void
inet_route_purge(if_t ifp)
{
	struct inet_route *r, *next;

	mtx_lock(&fib_mtx);
	TAILQ_FOREACH_SAFE(r, &fib_routes, r_link, next) {
		if (r->r_ifp == ifp)
			fib_remove(r);
	}
	mtx_unlock(&fib_mtx);
}

/* Once a second: expire routes and path MTUs. */
void
inet_route_timer(void)
{
	struct inet_route *r, *next;
	u_int i;

	mtx_lock(&fib_mtx);
	TAILQ_FOREACH_SAFE(r, &fib_routes, r_link, next) {
		if (r->r_expire != 0 && r->r_expire <= time_uptime)
			fib_remove(r);
	}
	for (i = 0; i < PMTU_ENTRIES; i++) {
		if (fib_pmtu[i].p_mtu != 0 && fib_pmtu[i].p_expire <= time_uptime) {
			fib_pmtu[i].p_mtu = 0;
			fib_pmtu_used--;
		}
	}
	mtx_unlock(&fib_mtx);
}

/*
 * A router reported that only mtu bytes fit on the way to dst.  A larger one than is known changes
 * nothing; absurdly small ones are raised to the least that the IP version allows (RFC 1191, 3;
 * RFC 8201, 4).
 */
void
inet_pmtu_update(const struct in6_addr *dst, u_int mtu)
{
	struct pmtu *p, *slot = NULL;
	u_int i, least = inet_is4(dst) ? 552 : IPV6_MMTU;

	mtu = max(mtu, least);
	mtx_lock(&fib_mtx);
	for (i = 0; i < PMTU_ENTRIES; i++) {
		p = &fib_pmtu[i];
		if (p->p_mtu != 0 && inet_same(&p->p_dst, dst)) {
			slot = p;
			break;
		}
		if (slot == NULL || (slot->p_mtu != 0 &&
		    (p->p_mtu == 0 || p->p_expire < slot->p_expire)))
			slot = p;
	}
	if (slot->p_mtu == 0)
		fib_pmtu_used++;
	if (slot->p_mtu == 0 || !inet_same(&slot->p_dst, dst) || mtu < slot->p_mtu) {
		slot->p_dst = *dst;
		slot->p_mtu = mtu;
		slot->p_expire = time_uptime + PMTU_EXPIRE;
	}
	mtx_unlock(&fib_mtx);
}
