/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The interfaces' IP addresses, as FreeBSD's KPI shows them to a driver: struct ifaddr, made for the
 * time of a call, and the announcement of one.
 */

#include <netinet/inet_stack.h>
#include <netinet/inet_private.h>
#include <netinet/if_ether.h>
#include <netinet6/in6_var.h>
#include <net/if_tree.h>

/* Of netinet6/nd6.h, whose other names are not our own's. */
void	nd6_na_output(if_t ifp, const struct in6_addr *to, const struct in6_addr *target,
	    u_long flags, int tlladdr, struct sockaddr *sdl0);

u_int
inet_foreach_ifaddr(if_t ifp, int family, if_addr_cb_t cb, void *arg)
{
	struct sockaddr_in6 sin6;
	struct sockaddr_in sin;
	struct ifaddr ifa;
	struct inet_addr ia;
	u_int count = 0, n;

	for (n = 0; inet_addr_nth(ifp, n, &ia); n++) {
		if (inet_is4(&ia.ad_addr) != (family == AF_INET) ||
		    (ia.ad_flags & IN6_IFF_NOTREADY) != 0)
			continue;
		bzero(&ifa, sizeof(ifa));
		ifa.ifa_ifp = ifp;
		if (family == AF_INET) {
			sin = (struct sockaddr_in){ .sin_len = sizeof(sin), .sin_family = AF_INET,
			    .sin_addr = inet_unmap4(&ia.ad_addr) };
			ifa.ifa_addr = (struct sockaddr *)&sin;
		} else {
			sin6 = (struct sockaddr_in6){ .sin6_len = sizeof(sin6),
			    .sin6_family = AF_INET6, .sin6_addr = ia.ad_addr };
			ifa.ifa_addr = (struct sockaddr *)&sin6;
		}
		count += cb(arg, &ifa, count);
	}
	return (count);
}

void
arp_ifinit(if_t ifp, struct ifaddr *ifa)
{
	inet_arp_announce(ifp, ((struct sockaddr_in *)ifa->ifa_addr)->sin_addr);
}

/*
 * Gaps: always with our link-layer address (tlladdr), and from nobody else's (sdl0).
 */
void
nd6_na_output(if_t ifp, const struct in6_addr *to, const struct in6_addr *target, u_long flags,
    int tlladdr __unused, struct sockaddr *sdl0 __unused)
{
	nd6_advertise(ifp, target, IN6_IS_ADDR_UNSPECIFIED(to) ?
	    &(const struct in6_addr)IN6ADDR_LINKLOCAL_ALLNODES_INIT : to, flags);
}
