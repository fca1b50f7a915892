/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: tell the network that our addresses are here, since the other side says that they moved: a
 * host that a guest came to by migration, for one.
 *
 * Locking.  pn_sx, so that the interface stays.  The lists of addresses are the stack's, and what is
 * sent takes the locks of transmit queues, which come after it.
 */

#include "opt_inet.h"
#include "opt_inet6.h"

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <net/vnet.h>
#include <netinet/in.h>
#include <netinet/icmp6.h>
#include <netinet/if_ether.h>
#include <netinet/ip6.h>
#include <netinet6/in6_var.h>
#include <netinet6/ip6_var.h>
#include <netinet6/nd6.h>
#include <netinet6/scope6_var.h>
#include <machine/bus.h>

#include <dev/pv/pvq.h>
#include <dev/pv/pv_net.h>
#include <dev/pv/pv_net_var.h>

#ifdef INET
static u_int
pv_net_announce_inet(void *arg, struct ifaddr *ifa, u_int count __unused)
{
	struct pv_net *pn = arg;

	arp_ifinit(pn->pn_ifp, ifa);
	return (1);
}
#endif

#ifdef INET6
/*
 * RFC 4861, 7.2.6: an unsolicited advertisement goes to all nodes of the link; that of an anycast
 * address overrides nothing.  An address that is not known to be unique is not ours to advertise
 * (RFC 4862, 5.4).
 */
static u_int
pv_net_announce_inet6(void *arg, struct ifaddr *ifa, u_int count __unused)
{
	struct in6_addr all = in6addr_linklocal_allnodes;
	const struct in6_ifaddr *ia = ifatoia6(ifa);
	struct pv_net *pn = arg;
	u_long flags = 0;

	/* The kernel looks at the destination for the interface that a multicast packet leaves by. */
	if ((ia->ia6_flags & IN6_IFF_NOTREADY) != 0 || in6_setscope(&all, pn->pn_ifp, NULL) != 0)
		return (0);
	if ((ia->ia6_flags & IN6_IFF_ANYCAST) == 0)
		flags |= ND_NA_FLAG_OVERRIDE;
	if (V_ip6_forwarding != 0)
		flags |= ND_NA_FLAG_ROUTER;
	nd6_na_output(pn->pn_ifp, &all, &ia->ia_addr.sin6_addr, flags, 1, NULL);
	return (1);
}
#endif

/* With the interface that there is. */
static void
pv_net_announce_addresses(struct pv_net *pn)
{
	pn->pn_announcements++;
	if (!pn->pn_running)
		return;
	CURVNET_SET(if_getvnet(pn->pn_ifp));
#ifdef INET
	(void)if_foreach_addr_type(pn->pn_ifp, AF_INET, pv_net_announce_inet, pn);
#endif
#ifdef INET6
	(void)if_foreach_addr_type(pn->pn_ifp, AF_INET6, pv_net_announce_inet6, pn);
#endif
	CURVNET_RESTORE();
}

bool
pv_net_announce(struct pv_net *pn)
{
	bool able;

	sx_xlock(&pn->pn_sx);
	able = pn->pn_level == PV_NET_INTERFACE && !pn->pn_detaching && !pn->pn_frozen;
	if (able)
		pv_net_announce_addresses(pn);
	sx_xunlock(&pn->pn_sx);
	return (able);
}
