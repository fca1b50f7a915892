/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The interfaces' IP addresses, as FreeBSD's KPI shows them to a driver: struct ifaddr, made for the
 * time of a call, and the announcement of one.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_tree.h>
#include <netinet/if_ether.h>
#include <netinet6/in6_var.h>
#include <net/if_tree.h>

/* Of netinet6/scope6_var.h and nd6.h, whose other names are not our own's. */
int	in6_setscope(struct in6_addr *a, if_t ifp, uint32_t *zone);
int	in6_clearscope(struct in6_addr *a);
void	nd6_na_output(if_t ifp, const struct in6_addr *to, const struct in6_addr *target,
	    u_long flags, int tlladdr, struct sockaddr *sdl0);

u_int
inet_foreach_ifaddr(if_t ifp, int family, if_addr_cb_t cb, void *arg)
{
	struct sockaddr_in sin;
	struct in6_ifaddr ia6;
	struct ifaddr ifa;
	struct inet_addr ia;
	u_int count = 0, n;

	for (n = 0; inet_addr_nth(ifp, n, &ia); n++) {
		if (inet_is4(&ia.ad_addr) != (family == AF_INET) ||
		    (ia.ad_flags & IN6_IFF_NOTREADY) != 0)
			continue;
		if (family == AF_INET) {
			bzero(&ifa, sizeof(ifa));
			ifa.ifa_ifp = ifp;
			sin = (struct sockaddr_in){ .sin_len = sizeof(sin), .sin_family = AF_INET,
			    .sin_addr = inet_unmap4(&ia.ad_addr) };
			ifa.ifa_addr = (struct sockaddr *)&sin;
			count += cb(arg, &ifa, count);
			continue;
		}
		bzero(&ia6, sizeof(ia6));
		ia6.ia_ifa.ifa_ifp = ifp;
		ia6.ia6_flags = ia.ad_flags;
		ia6.ia_addr = (struct sockaddr_in6){ .sin6_len = sizeof(ia6.ia_addr),
		    .sin6_family = AF_INET6, .sin6_addr = ia.ad_addr };
		(void)in6_setscope(&ia6.ia_addr.sin6_addr, ifp, NULL);
		ia6.ia_ifa.ifa_addr = (struct sockaddr *)&ia6.ia_addr;
		count += cb(arg, &ia6.ia_ifa, count);
	}
	return (count);
}

void
arp_ifinit(if_t ifp, struct ifaddr *ifa)
{
	inet_arp_announce(ifp, ((struct sockaddr_in *)ifa->ifa_addr)->sin_addr);
}

/* Addresses of a link's scope have the number of the interface in them, inside of FreeBSD's kernel. */
static bool
in6_is_scoped(const struct in6_addr *a)
{
	return (IN6_IS_ADDR_LINKLOCAL(a) || IN6_IS_ADDR_MC_LINKLOCAL(a));
}

int
in6_setscope(struct in6_addr *a, if_t ifp, uint32_t *zone)
{
	if (in6_is_scoped(a))
		a->s6_addr16[1] = htons(if_getindex(ifp));
	if (zone != NULL)
		*zone = in6_is_scoped(a) ? if_getindex(ifp) : 0;
	return (0);
}

int
in6_clearscope(struct in6_addr *a)
{
	bool scoped = in6_is_scoped(a) && a->s6_addr16[1] != 0;

	if (scoped)
		a->s6_addr16[1] = 0;
	return (scoped);
}

/*
 * The destination has its scope; FreeBSD's takes the unspecified address for all nodes, but then sends
 * by an interface that it did not set.
 *
 * Gaps: always with our link-layer address (tlladdr), never with another (sdl0).
 */
void
nd6_na_output(if_t ifp, const struct in6_addr *to, const struct in6_addr *target, u_long flags,
    int tlladdr __unused, struct sockaddr *sdl0 __unused)
{
	struct in6_addr dst = *to, about = *target;

	KASSERT(!IN6_IS_ADDR_UNSPECIFIED(to), ("%s: no destination", __func__));
	KASSERT(!in6_is_scoped(to) || to->s6_addr16[1] == htons(if_getindex(ifp)),
	    ("%s: a destination without its scope", __func__));
	(void)in6_clearscope(&dst);
	(void)in6_clearscope(&about);
	nd6_advertise(ifp, &about, &dst, flags);
}
