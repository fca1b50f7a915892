/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The addresses of the interfaces, of both IP versions.
 *
 * Adding an address adds the connected route of its prefix and announces it (gratuitous ARP, or
 * duplicate address detection, RFC 4862, 5.4: an IPv6 address on Ethernet is tentative until its
 * probes stay unanswered, and takes part in nothing meanwhile).  Lifetimes come from router
 * advertisements and run out in the timer.
 *
 * Locking: addr_mtx protects the list; it is a leaf.  Callers get copies.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet6/in6_var.h>
#include <net/if_tree.h>
#include <sys/sysctl.h>

SYSCTL_DECL(_net_inet6_ip6);

#define	ADDR_MAXPERIF	16	/* bounds what router advertisements can add */
#define	ADDR_DADTICKS	2	/* of the timer: at least one second after the probe */

VNET_DEFINE_STATIC(int, dad_count) = 1;
#define	V_dad_count	VNET(dad_count)
SYSCTL_INT(_net_inet6_ip6, OID_AUTO, dad_count, CTLFLAG_VNET | CTLFLAG_RW, &VNET_NAME(dad_count), 0,
    "A new address is probed for before it is used (more than once is once), or not (0)");

static struct mtx addr_mtx;
MTX_SYSINIT(inet_addr, &addr_mtx, "inet addresses", MTX_DEF);
static TAILQ_HEAD(, inet_addr) addr_list = TAILQ_HEAD_INITIALIZER(addr_list);

static struct inet_addr *
addr_lookup(if_t ifp, const struct in6_addr *a)
{
	struct inet_addr *ia;

	mtx_assert(&addr_mtx, MA_OWNED);
	TAILQ_FOREACH(ia, &addr_list, ad_link) {
		if ((ifp == NULL || ia->ad_ifp == ifp) && inet_same(&ia->ad_addr, a))
			return (ia);
	}
	return (NULL);
}

struct in_addr
inet_mask4(int plen)
{
	return ((struct in_addr){ .s_addr = plen == 0 ? 0 : htonl(0xffffffffU << (32 - plen)) });
}

static int
addr_mapped_plen(const struct inet_addr *ia)
{
	return (inet_is4(&ia->ad_addr) ? INET_V4PLEN(ia->ad_plen) : ia->ad_plen);
}

/* The solicited-node group of an address (RFC 4291, 2.7.1). */
static struct in6_addr
addr_solicited_group(const struct in6_addr *a)
{
	struct in6_addr g = { .s6_addr = { 0xff, 2, [11] = 1, [12] = 0xff } };

	memcpy(&g.s6_addr[13], &a->s6_addr[13], 3);
	return (g);
}

static void
addr_link_groups(const struct inet_addr *ia, bool join)
{
	struct in6_addr g;

	if (if_gettype(ia->ad_ifp) != IFT_ETHER)
		return;
	g = inet_is4(&ia->ad_addr) ?
	    inet_map4((struct in_addr){ .s_addr = htonl(INADDR_ALLHOSTS_GROUP) }) :
	    addr_solicited_group(&ia->ad_addr);
	if (inet_is4(&g) && join)
		(void)inet_link_join(ia->ad_ifp, &g);
	else if (inet_is4(&g))
		inet_link_leave(ia->ad_ifp, &g);
	else if (join)
		(void)mld6_join(ia->ad_ifp, &g);
	else
		mld6_leave(ia->ad_ifp, &g);
}

/* The link may carry packets now. */
static bool
addr_link_ready(if_t ifp)
{
	return ((if_getflags(ifp) & IFF_UP) != 0 &&
	    (if_getdrvflags(ifp) & IFF_DRV_RUNNING) != 0 &&
	    if_getlinkstate(ifp) != LINK_STATE_DOWN);
}

/*
 * Announce an address on the link, or probe whether another node has it (RFC 4862, 5.4.2).  Without
 * a link the probe stays due: ad_dad keeps its first value.
 */
static void
addr_start(const struct inet_addr *arg)
{
	struct epoch_tracker et;
	struct inet_addr *ia;
	bool probe = false;

	NET_EPOCH_ENTER(et);
	if (inet_is4(&arg->ad_addr))
		inet_arp_announce(arg->ad_ifp, inet_unmap4(&arg->ad_addr));
	else if (addr_link_ready(arg->ad_ifp)) {
		mtx_lock(&addr_mtx);
		ia = addr_lookup(arg->ad_ifp, &arg->ad_addr);
		if (ia != NULL && (ia->ad_flags & IN6_IFF_TENTATIVE) != 0) {
			ia->ad_dad = ADDR_DADTICKS;
			probe = true;
		}
		mtx_unlock(&addr_mtx);
		if (probe)
			nd6_solicit(arg->ad_ifp, &arg->ad_addr, &in6addr_any, NULL);
		else
			nd6_announce(arg->ad_ifp, &arg->ad_addr);
	}
	NET_EPOCH_EXIT(et);
}

/* Put a new address on the list, or renew an old one's lifetimes.  EEXIST for an old one. */
static int
addr_insert(struct inet_addr *new)
{
	struct inet_addr *ia, *q;
	int n = 0, error = 0;

	mtx_lock(&addr_mtx);
	ia = addr_lookup(new->ad_ifp, &new->ad_addr);
	TAILQ_FOREACH(q, &addr_list, ad_link)
		n += q->ad_ifp == new->ad_ifp;
	if (ia != NULL && ia->ad_plen == new->ad_plen) {
		ia->ad_preferred = new->ad_preferred;
		ia->ad_valid = new->ad_valid;
		ia->ad_flags &= ~IN6_IFF_DEPRECATED;
		error = EEXIST;
	} else if (ia != NULL)
		error = EADDRINUSE;
	else if (n >= ADDR_MAXPERIF && (new->ad_flags & IN6_IFF_AUTOCONF) != 0)
		error = ENOBUFS;
	else
		TAILQ_INSERT_TAIL(&addr_list, new, ad_link);
	mtx_unlock(&addr_mtx);
	return (error);
}

/*
 * Give an interface an address of prefix length plen (0-32, 0-128); preferred and valid are the
 * uptimes when it becomes deprecated and invalid, 0 for never.  0, EEXIST (lifetimes renewed),
 * EADDRINUSE (there with another prefix length), EINVAL, ENOBUFS.
 */
int
inet_addr_add(if_t ifp, const struct in6_addr *a, int plen, int flags, time_t preferred,
    time_t valid)
{
	struct inet_addr *ia, copy;
	int error;

	if (inet_unspecified(a) || inet_multicast(a) || plen < 0 ||
	    plen > (inet_is4(a) ? 32 : 128))
		return (EINVAL);
	ia = malloc(sizeof(*ia), M_INET, M_NOWAIT | M_ZERO);
	if (ia == NULL)
		return (ENOBUFS);
	ia->ad_ifp = ifp;
	ia->ad_addr = *a;
	ia->ad_plen = plen;
	ia->ad_flags = flags;
	ia->ad_preferred = preferred;
	ia->ad_valid = valid;
	if (!inet_is4(a) && if_gettype(ifp) == IFT_ETHER && (flags & IN6_IFF_NODAD) == 0 &&
	    V_dad_count > 0) {
		ia->ad_flags |= IN6_IFF_TENTATIVE;
		ia->ad_dad = ADDR_DADTICKS + 1;
	}
	copy = *ia;
	error = addr_insert(ia);
	if (error != 0) {
		free(ia, M_INET);
		return (error);
	}
	addr_link_groups(&copy, true);
	(void)inet_route_add(a, addr_mapped_plen(&copy), NULL, ifp, 0, 0);
	addr_start(&copy);
	return (0);
}

/* True if another address of the interface has the same prefix, so that its route must stay. */
static bool
addr_prefix_shared(const struct inet_addr *gone)
{
	struct inet_addr *ia;

	mtx_assert(&addr_mtx, MA_OWNED);
	TAILQ_FOREACH(ia, &addr_list, ad_link) {
		if (ia->ad_ifp == gone->ad_ifp && ia->ad_plen == gone->ad_plen &&
		    inet_prefix_match(&ia->ad_addr, &gone->ad_addr, addr_mapped_plen(gone)))
			return (true);
	}
	return (false);
}

static void
addr_finish(struct inet_addr *ia, bool shared)
{
	addr_link_groups(ia, false);
	if (!shared)
		(void)inet_route_delete(&ia->ad_addr, addr_mapped_plen(ia), NULL, ia->ad_ifp);
	free(ia, M_INET);
}

/* EADDRNOTAVAIL. */
int
inet_addr_delete(if_t ifp, const struct in6_addr *a)
{
	struct inet_addr *ia;
	bool shared = false;

	mtx_lock(&addr_mtx);
	ia = addr_lookup(ifp, a);
	if (ia != NULL) {
		TAILQ_REMOVE(&addr_list, ia, ad_link);
		shared = addr_prefix_shared(ia);
	}
	mtx_unlock(&addr_mtx);
	if (ia == NULL)
		return (EADDRNOTAVAIL);
	addr_finish(ia, shared);
	return (0);
}

/* Remove all addresses of an interface that is being removed. */
void
inet_addr_purge(if_t ifp)
{
	struct inet_addr ia;

	while (inet_addr_nth(ifp, 0, &ia))
		(void)inet_addr_delete(ifp, &ia.ad_addr);
}

/* Copy the n-th address of an interface; false behind the last. */
bool
inet_addr_nth(if_t ifp, u_int n, struct inet_addr *out)
{
	struct inet_addr *ia;

	mtx_lock(&addr_mtx);
	TAILQ_FOREACH(ia, &addr_list, ad_link) {
		if (ia->ad_ifp == ifp && n-- == 0)
			break;
	}
	if (ia != NULL)
		*out = *ia;
	mtx_unlock(&addr_mtx);
	return (ia != NULL);
}

bool
inet_addr_find(if_t ifp, const struct in6_addr *a, struct inet_addr *out)
{
	struct inet_addr *ia;

	mtx_lock(&addr_mtx);
	ia = addr_lookup(ifp, a);
	if (ia != NULL)
		*out = *ia;
	mtx_unlock(&addr_mtx);
	return (ia != NULL);
}

/* True if packets to this address are for us. */
bool
inet_addr_islocal(const struct in6_addr *a)
{
	struct inet_addr ia;

	return (inet_addr_find(NULL, a, &ia) && (ia.ad_flags & IN6_IFF_NOTREADY) == 0);
}

/* True for 255.255.255.255 and for the two broadcast addresses of each prefix of the interface. */
bool
inet_addr_isbroadcast(if_t ifp, struct in_addr a)
{
	struct inet_addr *ia;
	uint32_t mask;
	bool found = false;

	if (a.s_addr == INADDR_BROADCAST || a.s_addr == INADDR_ANY)
		return (true);
	if ((if_getflags(ifp) & IFF_BROADCAST) == 0)
		return (false);
	mtx_lock(&addr_mtx);
	TAILQ_FOREACH(ia, &addr_list, ad_link) {
		if (ia->ad_ifp != ifp || !inet_is4(&ia->ad_addr) || ia->ad_plen > 30)
			continue;
		mask = inet_mask4(ia->ad_plen).s_addr;
		if (((a.s_addr ^ inet_unmap4(&ia->ad_addr).s_addr) & mask) == 0 &&
		    ((a.s_addr & ~mask) == 0 || (a.s_addr | mask) == INADDR_BROADCAST)) {
			found = true;
			break;
		}
	}
	mtx_unlock(&addr_mtx);
	return (found);
}

/* The interface's usable link-local IPv6 address. */
bool
inet_addr_linklocal(if_t ifp, struct in6_addr *out)
{
	struct inet_addr *ia;

	mtx_lock(&addr_mtx);
	TAILQ_FOREACH(ia, &addr_list, ad_link) {
		if (ia->ad_ifp == ifp && IN6_IS_ADDR_LINKLOCAL(&ia->ad_addr) &&
		    (ia->ad_flags & IN6_IFF_NOTREADY) == 0)
			break;
	}
	if (ia != NULL)
		*out = ia->ad_addr;
	mtx_unlock(&addr_mtx);
	return (ia != NULL);
}

static bool
addr_is_linkscope(const struct in6_addr *a)
{
	return (IN6_IS_ADDR_LINKLOCAL(a) || IN6_IS_ADDR_MC_LINKLOCAL(a));
}

/*
 * How well an address suits as the source of a packet to dst: the rules of RFC 6724, 5 that matter
 * on one interface (scope, deprecated, longest prefix), as a number.
 */
static int
addr_score(const struct inet_addr *ia, const struct in6_addr *dst)
{
	int bits = 0;

	while (bits < 128 && inet_prefix_match(&ia->ad_addr, dst, bits + 1))
		bits++;
	if (!inet_is4(dst) && addr_is_linkscope(&ia->ad_addr) == addr_is_linkscope(dst))
		bits += 1000;
	if ((ia->ad_flags & IN6_IFF_DEPRECATED) == 0)
		bits += 300;
	return (bits);
}

/*
 * Choose the source address for dst on ifp.  EADDRNOTAVAIL.
 */
int
inet_addr_source(if_t ifp, const struct in6_addr *dst, struct in6_addr *src)
{
	struct inet_addr *ia;
	int best = -1, score;

	mtx_lock(&addr_mtx);
	TAILQ_FOREACH(ia, &addr_list, ad_link) {
		if ((ia->ad_flags & IN6_IFF_NOTREADY) != 0 ||
		    inet_is4(&ia->ad_addr) != inet_is4(dst))
			continue;
		if (inet_same(&ia->ad_addr, dst)) {
			*src = *dst;
			best = 0;
			break;
		}
		if (ia->ad_ifp != ifp)
			continue;
		score = addr_score(ia, dst);
		if (score > best) {
			best = score;
			*src = ia->ad_addr;
		}
	}
	mtx_unlock(&addr_mtx);
	return (best >= 0 ? 0 : EADDRNOTAVAIL);
}

/* Another node has the address that we are about to use (RFC 4862, 5.4.5). */
void
inet_addr_duplicate(if_t ifp, const struct in6_addr *a, const uint8_t *lladdr)
{
	char buf[INET_ADDRSTRLEN_MAX];
	struct inet_addr *ia;
	bool hit = false;

	mtx_lock(&addr_mtx);
	ia = addr_lookup(ifp, a);
	if (ia != NULL && (ia->ad_flags & IN6_IFF_TENTATIVE) != 0) {
		ia->ad_flags &= ~IN6_IFF_TENTATIVE;
		ia->ad_flags |= IN6_IFF_DUPLICATED;
		hit = true;
	}
	mtx_unlock(&addr_mtx);
	if (!hit)
		return;
	inet_addr_print(buf, sizeof(buf), a, NULL);
	if (lladdr != NULL)
		if_printf(ifp, "DAD detected duplicate IPv6 address %s, which %6D has: not used\n",
		    buf, lladdr, ":");
	else
		if_printf(ifp,
		    "DAD detected duplicate IPv6 address %s, which another node probes for "
		    "too: not used\n", buf);
}

enum addr_action { ADDR_NOTHING, ADDR_START, ADDR_EXPIRE };

/* Move one address on by a second, and say what is to be done about it. */
static enum addr_action
addr_tick(struct inet_addr *ia)
{
	if (ia->ad_valid != 0 && ia->ad_valid <= time_uptime)
		return (ADDR_EXPIRE);
	if (ia->ad_preferred != 0 && ia->ad_preferred <= time_uptime)
		ia->ad_flags |= IN6_IFF_DEPRECATED;
	if ((ia->ad_flags & IN6_IFF_TENTATIVE) == 0)
		return (ADDR_NOTHING);
	if (!addr_link_ready(ia->ad_ifp)) {
		ia->ad_dad = ADDR_DADTICKS + 1;
		return (ADDR_NOTHING);
	}
	if (ia->ad_dad > ADDR_DADTICKS)
		return (ADDR_START);
	if (--ia->ad_dad > 0)
		return (ADDR_NOTHING);
	ia->ad_flags &= ~IN6_IFF_TENTATIVE;
	return (ADDR_START);
}

/*
 * Once a second, in the network epoch.  The actions need the lock released, so they work on
 * copies of the addresses that were due.
 */
void
inet_addr_timer(void)
{
	struct inet_addr *ia, copy[ADDR_MAXPERIF];
	enum addr_action action[ADDR_MAXPERIF];
	int i, n = 0;

	mtx_lock(&addr_mtx);
	TAILQ_FOREACH(ia, &addr_list, ad_link) {
		if (n == ADDR_MAXPERIF)
			break;
		action[n] = addr_tick(ia);
		if (action[n] != ADDR_NOTHING)
			copy[n++] = *ia;
	}
	mtx_unlock(&addr_mtx);
	for (i = 0; i < n; i++) {
		if (action[i] == ADDR_EXPIRE)
			(void)inet_addr_delete(copy[i].ad_ifp, &copy[i].ad_addr);
		else
			addr_start(&copy[i]);
	}
}

/* The link has come up (again): announce all our addresses on it. */
void
inet_addr_announce(if_t ifp)
{
	struct inet_addr ia;
	u_int n;

	for (n = 0; inet_addr_nth(ifp, n, &ia); n++) {
		if ((ia.ad_flags & IN6_IFF_DUPLICATED) == 0)
			addr_start(&ia);
	}
}

/*
 * An address as text, IPv6 link-local ones with "%interface"; *scope gets the interface's index
 * or 0. EINVAL.
 */
int
inet_addr_parse(const char *text, struct in6_addr *a, u_int *scope)
{
	char buf[INET6_ADDRSTRLEN];
	const char *pct;
	struct in_addr v4;
	struct epoch_tracker et;
	if_t ifp;

	*scope = 0;
	if (inet_pton(AF_INET, text, &v4) == 1) {
		*a = inet_map4(v4);
		return (0);
	}
	pct = strchr(text, '%');
	if (pct != NULL && pct - text >= (int)sizeof(buf))
		return (EINVAL);
	strlcpy(buf, text, pct != NULL ? pct - text + 1 : sizeof(buf));
	if (inet_pton(AF_INET6, buf, a) != 1 || IN6_IS_ADDR_V4MAPPED(a))
		return (EINVAL);
	if (pct == NULL)
		return (0);
	NET_EPOCH_ENTER(et);
	ifp = ifunit(pct + 1);
	if (ifp != NULL)
		*scope = if_getindex(ifp);
	NET_EPOCH_EXIT(et);
	return (*scope != 0 ? 0 : EINVAL);
}

char *
inet_addr_print(char *buf, size_t len, const struct in6_addr *a, if_t scope)
{
	struct in_addr v4 = inet_unmap4(a);

	if (inet_is4(a))
		(void)inet_ntop(AF_INET, &v4, buf, len);
	else {
		(void)inet_ntop(AF_INET6, a, buf, len);
		if (scope != NULL && addr_is_linkscope(a)) {
			strlcat(buf, "%", len);
			strlcat(buf, if_name(scope), len);
		}
	}
	return (buf);
}

/* Set and clear interface flags the way ifconfig does.  May sleep. */
int
inet_ifflags(if_t ifp, int set, int clear)
{
	struct ifreq ifr = { 0 };
	int flags = (if_getflags(ifp) | set) & ~clear;

	strlcpy(ifr.ifr_name, if_name(ifp), sizeof(ifr.ifr_name));
	ifr.ifr_flags = flags & 0xffff;
	ifr.ifr_flagshigh = flags >> 16;
	return (if_ioctl_kernel(ifp, SIOCSIFFLAGS, (caddr_t)&ifr));
}

int
inet_ifup(if_t ifp)
{
	return ((if_getflags(ifp) & IFF_UP) != 0 ? 0 : inet_ifflags(ifp, IFF_UP, 0));
}

int
inet_ether_parse(const char *text, uint8_t *mac)
{
	char *end;
	u_long v;
	int i;

	for (i = 0; i < ETHER_ADDR_LEN; i++) {
		v = strtoul(text, &end, 16);
		if (end == text || end - text > 2 || *end != (i < ETHER_ADDR_LEN - 1 ? ':' : '\0'))
			return (EINVAL);
		mac[i] = v;
		text = end + 1;
	}
	return (0);
}
