/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * What makes an interface an IPv6 interface: its link-local address (RFC 4862, 5.3) and the
 * groups that every node is in.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet6/in6_var.h>
#include <netinet6/ip6_var.h>
#include <sys/sysctl.h>

SYSCTL_DECL(_net_inet6_ip6);

VNET_DEFINE(int, ip6_auto_linklocal) = 1;
SYSCTL_INT(_net_inet6_ip6, IPV6CTL_AUTO_LINKLOCAL, auto_linklocal, CTLFLAG_VNET | CTLFLAG_RWTUN,
    &VNET_NAME(ip6_auto_linklocal), 0, "Interfaces get a link-local address when they come up");

/* The constants that netinet6/in6.h declares. */
const struct in6_addr in6addr_any = IN6ADDR_ANY_INIT;
const struct in6_addr in6addr_loopback = IN6ADDR_LOOPBACK_INIT;
const struct in6_addr in6addr_nodelocal_allnodes = IN6ADDR_NODELOCAL_ALLNODES_INIT;
const struct in6_addr in6addr_linklocal_allnodes = IN6ADDR_LINKLOCAL_ALLNODES_INIT;
const struct in6_addr in6addr_linklocal_allrouters = IN6ADDR_LINKLOCAL_ALLROUTERS_INIT;
const struct in6_addr in6addr_linklocal_allv2routers = IN6ADDR_LINKLOCAL_ALLV2ROUTERS_INIT;

/* Fill the lower half of an address with the interface's modified EUI-64 (RFC 4291, appendix A). */
void
in6_eui64(if_t ifp, struct in6_addr *a)
{
	const uint8_t *mac = if_getlladdr(ifp);

	a->s6_addr[8] = mac[0] ^ 2;
	a->s6_addr[9] = mac[1];
	a->s6_addr[10] = mac[2];
	a->s6_addr[11] = 0xff;
	a->s6_addr[12] = 0xfe;
	a->s6_addr[13] = mac[3];
	a->s6_addr[14] = mac[4];
	a->s6_addr[15] = mac[5];
}

/*
 * The interface is up: give it what it has not yet.  In the network epoch.
 */
void
in6_if_up(if_t ifp)
{
	static const struct in6_addr allnodes = IN6ADDR_LINKLOCAL_ALLNODES_INIT;
	struct in6_addr a = { .s6_addr = { 0xfe, 0x80 } };
	struct inet_addr ia;
	u_int n;

	if (!V_ip6_auto_linklocal)
		return;
	if (!mld6_member(ifp, &allnodes))
		(void)mld6_join(ifp, &allnodes);
	for (n = 0; inet_addr_nth(ifp, n, &ia); n++) {
		if (IN6_IS_ADDR_LINKLOCAL(&ia.ad_addr))
			return;
	}
	in6_eui64(ifp, &a);
	(void)inet_addr_add(ifp, &a, 64, 0, 0, 0);
}
