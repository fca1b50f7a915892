/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What a network driver must not do.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/epoch.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/socket.h>

#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_types.h>
#include <net/if_var.h>
#include <net/vnet.h>
#include <netinet/in.h>
#include <netinet/ip6.h>
#include <netinet/if_ether.h>
#include <netinet6/in6_var.h>
#include <netinet6/ip6_var.h>
#include <netinet6/nd6.h>

#include "badmod.h"

static const uint8_t bad_lladdr[ETHER_ADDR_LEN] = { 2, 0, 0, 0, 0, 1 };

static if_t
bad_interface(void)
{
	if_t ifp = if_alloc(IFT_ETHER);

	if_initname(ifp, "bad", 0);
	ether_ifattach(ifp, bad_lladdr);
	if_setflagbits(ifp, IFF_UP, 0);
	return (ifp);
}

static struct mbuf *
bad_frame(if_t ifp)
{
	struct mbuf *m = m_gethdr(M_WAITOK, MT_DATA);

	m->m_len = m->m_pkthdr.len = ETHER_MIN_LEN;
	memset(mtod(m, void *), 0xff, m->m_len);
	m->m_pkthdr.rcvif = ifp;
	return (m);
}

static void
bad_input_epoch(void)
{
	if_t ifp = bad_interface();

	if_input(ifp, bad_frame(ifp));
}

static void
bad_input_rcvif(void)
{
	if_t ifp = bad_interface();
	struct mbuf *m = bad_frame(NULL);
	struct epoch_tracker et;

	NET_EPOCH_ENTER(et);
	if_input(ifp, m);
	NET_EPOCH_EXIT(et);
}

static void
bad_lladdr_gone(void)
{
	if_t ifp = bad_interface();
	volatile char byte;

	ether_ifdetach(ifp);
	byte = if_getlladdr(ifp)[0];
	(void)byte;
}

static if_t bad_ifp;

/* A thread of the driver's own, in which curvnet is not set. */
static void
bad_lladdr_event(void)
{
	EVENTHANDLER_INVOKE(iflladdr_event, bad_ifp);
}

static void
bad_arp_announce(void)
{
	struct sockaddr_in sin = { .sin_len = sizeof(sin), .sin_family = AF_INET,
	    .sin_addr.s_addr = htonl(0x0a000001) };
	struct ifaddr ifa = { .ifa_ifp = bad_ifp, .ifa_addr = (struct sockaddr *)&sin };

	arp_ifinit(bad_ifp, &ifa);
}

static void
bad_vnet_variable(void)
{
	printf("%d\n", V_ip6_forwarding);
}

static void
bad_vnet_attach(void)
{
	ether_ifattach(bad_ifp, bad_lladdr);
}

static void
bad_in_driver_thread(bad_func_t *func)
{
	bad_ifp = bad_interface();
	bad_in_thread(func);
}

static void
bad_vnet_event(void)
{
	bad_in_driver_thread(bad_lladdr_event);
}

static void
bad_vnet_arp(void)
{
	bad_in_driver_thread(bad_arp_announce);
}

static void
bad_vnet_var(void)
{
	bad_in_driver_thread(bad_vnet_variable);
}

static void
bad_vnet_ifattach(void)
{
	bad_ifp = if_alloc(IFT_ETHER);
	if_initname(bad_ifp, "bad", 0);
	bad_in_thread(bad_vnet_attach);
}

static void
bad_na(const struct in6_addr *to)
{
	struct in6_addr about = IN6ADDR_LOOPBACK_INIT;

	nd6_na_output(bad_interface(), to, &about, 0, 1, NULL);
}

static void
bad_na_unspecified(void)
{
	struct in6_addr to = IN6ADDR_ANY_INIT;

	bad_na(&to);
}

static void
bad_na_scope(void)
{
	struct in6_addr to = IN6ADDR_LINKLOCAL_ALLNODES_INIT;

	bad_na(&to);
}

const struct bad_case bad_net_cases[] = {
	{ "input_epoch", bad_input_epoch },
	{ "input_rcvif", bad_input_rcvif },
	{ "lladdr_gone", bad_lladdr_gone },
	{ "vnet_event", bad_vnet_event },
	{ "vnet_arp", bad_vnet_arp },
	{ "vnet_var", bad_vnet_var },
	{ "vnet_ifattach", bad_vnet_ifattach },
	{ "na_unspecified", bad_na_unspecified },
	{ "na_scope", bad_na_scope },
	{ NULL, NULL }
};
