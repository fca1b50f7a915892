/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Routers (RFC 4861, 6.3) and the addresses that they give (RFC 4862, 5.5): solicitations while
 * an interface has heard none, and what an advertisement brings: default route, hop limit,
 * prefixes, the router's Ethernet address, name servers (RFC 8106).
 *
 * Advertisements can come from anyone on the link.  What they can make us keep is bounded by in.c
 * and in_fib.c.
 *
 * Locking: rtr_mtx protects the list of interfaces.
 *
 * Gaps: the MTU option is not used; no preferences (RFC 4191).
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet6/in6_var.h>

#define	RTR_SOLICITS	3	/* RFC 4861, 10 */
#define	RTR_INTERVAL	4	/* seconds */
#define	RTR_MAXIFS	32
#define	RTR_FOREVER	0xffffffffU
#define	RTR_TWOHOURS	7200	/* RFC 4862, 5.5.3 (e) */

struct rtr_if {
	if_t		ri_ifp;		/* NULL: free */
	int		ri_left;	/* solicitations still to send */
	time_t		ri_next;
	uint8_t		ri_hops;	/* 0: not said */
};

static struct mtx rtr_mtx;
MTX_SYSINIT(inet_rtr, &rtr_mtx, "inet6 routers", MTX_DEF);
static struct rtr_if rtr_ifs[RTR_MAXIFS];

static struct rtr_if *
rtr_find(if_t ifp, bool make)
{
	struct rtr_if *r, *empty = NULL;

	mtx_assert(&rtr_mtx, MA_OWNED);
	for (r = rtr_ifs; r < rtr_ifs + RTR_MAXIFS; r++) {
		if (r->ri_ifp == ifp)
			return (r);
		if (r->ri_ifp == NULL && empty == NULL)
			empty = r;
	}
	if (!make || empty == NULL)
		return (NULL);
	memset(empty, 0, sizeof(*empty));
	empty->ri_ifp = ifp;
	return (empty);
}

/* The hop limit for packets over an interface. */
uint8_t
nd6_hoplimit(if_t ifp)
{
	const struct rtr_if *r;
	uint8_t hops = 0;

	if (ifp != NULL) {
		mtx_lock(&rtr_mtx);
		r = rtr_find(ifp, false);
		hops = r != NULL ? r->ri_hops : 0;
		mtx_unlock(&rtr_mtx);
	}
	return (hops != 0 ? hops : IPV6_DEFHLIM);
}

/* Start to ask for routers on an interface. */
void
nd6_router_solicit(if_t ifp)
{
	struct rtr_if *r;

	mtx_lock(&rtr_mtx);
	r = rtr_find(ifp, true);
	if (r != NULL) {
		r->ri_left = RTR_SOLICITS;
		r->ri_next = 0;
	}
	mtx_unlock(&rtr_mtx);
}

static void
rtr_send_solicit(if_t ifp)
{
	static const struct in6_addr routers = IN6ADDR_LINKLOCAL_ALLROUTERS_INIT;
	struct in6_addr src;
	struct mbuf *m;
	bool known = inet_addr_linklocal(ifp, &src);

	m = nd6_message(ifp, ND_ROUTER_SOLICIT, sizeof(struct nd_router_solicit),
	    known ? if_getlladdr(ifp) : NULL, ND_OPT_SOURCE_LINKADDR);
	if (m != NULL)
		(void)nd6_send(m, ifp, known ? &src : &in6addr_any, &routers);
}

/*
 * Once a second, in the network epoch.  A link-local address is waited for as long as one may be
 * tentative; the second try goes without.
 */
void
nd6_router_timer(void)
{
	struct in6_addr ll;
	struct rtr_if *r;
	if_t due[RTR_MAXIFS];
	u_int i, n = 0;

	mtx_lock(&rtr_mtx);
	for (r = rtr_ifs; r < rtr_ifs + RTR_MAXIFS; r++) {
		if (r->ri_ifp == NULL || r->ri_left == 0 || r->ri_next > time_uptime)
			continue;
		if (r->ri_left == RTR_SOLICITS && r->ri_next == 0 &&
		    !inet_addr_linklocal(r->ri_ifp, &ll)) {
			r->ri_next = time_uptime + 1;
			continue;
		}
		r->ri_left--;
		r->ri_next = time_uptime + RTR_INTERVAL;
		due[n++] = r->ri_ifp;
	}
	mtx_unlock(&rtr_mtx);
	for (i = 0; i < n; i++)
		rtr_send_solicit(due[i]);
}

void
nd6_purge(if_t ifp)
{
	struct rtr_if *r;

	mtx_lock(&rtr_mtx);
	r = rtr_find(ifp, false);
	if (r != NULL)
		r->ri_ifp = NULL;
	mtx_unlock(&rtr_mtx);
}

/* An uptime from a lifetime in seconds; 0 is for ever. */
static time_t
rtr_until(uint32_t seconds)
{
	return (seconds == RTR_FOREVER ? 0 : time_uptime + seconds);
}

/* A prefix that addresses are to be made from (RFC 4862, 5.5.3). */
static void
rtr_autoconf(if_t ifp, const struct nd_opt_prefix_info *pi)
{
	uint32_t valid = ntohl(pi->nd_opt_pi_valid_time);
	uint32_t preferred = ntohl(pi->nd_opt_pi_preferred_time);
	struct in6_addr a = pi->nd_opt_pi_prefix;
	struct inet_addr ia;
	time_t left;

	if (pi->nd_opt_pi_prefix_len != 64 || preferred > valid)
		return;
	in6_eui64(ifp, &a);
	if (inet_addr_find(ifp, &a, &ia)) {
		if ((ia.ad_flags & IN6_IFF_AUTOCONF) == 0)
			return;
		/* A forged advertisement can't end an address at once: 5.5.3 (e). */
		left = ia.ad_valid != 0 ? ia.ad_valid - time_uptime : RTR_FOREVER;
		if (valid <= RTR_TWOHOURS && (time_t)valid < left)
			valid = MIN(left, RTR_TWOHOURS);
	} else if (valid == 0)
		return;
	(void)inet_addr_add(ifp, &a, 64, IN6_IFF_AUTOCONF, rtr_until(preferred), rtr_until(valid));
}

static void
rtr_prefixes(if_t ifp, const uint8_t *opts, size_t len)
{
	const struct nd_opt_prefix_info *pi;
	const uint8_t *p = NULL;
	struct in6_addr prefix;
	uint32_t valid;

	while ((p = nd6_option(opts, len, ND_OPT_PREFIX_INFORMATION, p)) != NULL) {
		pi = (const void *)p;
		if (p[1] * 8 < (int)sizeof(*pi) || pi->nd_opt_pi_prefix_len > 128)
			continue;
		prefix = pi->nd_opt_pi_prefix;
		if (IN6_IS_ADDR_LINKLOCAL(&prefix) || IN6_IS_ADDR_MULTICAST(&prefix) ||
		    IN6_IS_ADDR_V4MAPPED(&prefix) || pi->nd_opt_pi_prefix_len < 3)
			continue;
		valid = ntohl(pi->nd_opt_pi_valid_time);
		if ((pi->nd_opt_pi_flags_reserved & ND_OPT_PI_FLAG_ONLINK) != 0 && valid != 0)
			(void)inet_route_add(&prefix, pi->nd_opt_pi_prefix_len, NULL, ifp,
			    RTF_DYNAMIC,
			    rtr_until(valid));
		if ((pi->nd_opt_pi_flags_reserved & ND_OPT_PI_FLAG_AUTO) != 0)
			rtr_autoconf(ifp, pi);
	}
}

/* Name servers, if DHCP has given none. */
static void
rtr_name_servers(const uint8_t *opts, size_t len)
{
	const uint8_t *p = nd6_option(opts, len, ND_OPT_RDNSS, NULL);
	u_int i, n;

	if (p == NULL || p[1] < 3 || !inet_unspecified(&inet_dns[0]))
		return;
	n = MIN((p[1] - 1) / 2, INET_NDNS);
	for (i = 0; i < n; i++)
		memcpy(&inet_dns[i], p + sizeof(struct nd_opt_rdnss) + i * sizeof(struct in6_addr),
		    sizeof(struct in6_addr));
}

static void
rtr_heard(if_t ifp, uint8_t hops)
{
	struct rtr_if *r;

	mtx_lock(&rtr_mtx);
	r = rtr_find(ifp, true);
	if (r != NULL) {
		r->ri_left = 0;
		if (hops != 0)
			r->ri_hops = hops;
	}
	mtx_unlock(&rtr_mtx);
}

/* RFC 4861, 6.1.2 and 6.3.4. */
bool
nd6_router_advert(const uint8_t *msg, size_t len, const struct inet_pkt *p)
{
	const struct nd_router_advert *ra = (const void *)msg;
	const uint8_t *opts = msg + sizeof(*ra), *ll;
	u_int lifetime;

	if (len < sizeof(*ra) || !IN6_IS_ADDR_LINKLOCAL(&p->ip_src))
		return (false);
	if (V_ip6_forwarding)
		return (true);
	len -= sizeof(*ra);
	rtr_heard(p->ip_ifp, ra->nd_ra_curhoplimit);
	ll = nd6_option(opts, len, ND_OPT_SOURCE_LINKADDR, NULL);
	if (ll != NULL && !ETHER_IS_MULTICAST(ll + 2))
		inet_nbr_learn(p->ip_ifp, &p->ip_src, ll + 2,
		    NBR_CREATE | NBR_OVERRIDE | NBR_ISROUTER | NBR_ROUTER);
	lifetime = ntohs(ra->nd_ra_router_lifetime);
	if (lifetime == 0)
		(void)inet_route_delete(&in6addr_any, 0, &p->ip_src, p->ip_ifp);
	else
		(void)inet_route_add(&in6addr_any, 0, &p->ip_src, p->ip_ifp, RTF_DYNAMIC,
		    time_uptime + lifetime);
	rtr_prefixes(p->ip_ifp, opts, len);
	rtr_name_servers(opts, len);
	return (true);
}
