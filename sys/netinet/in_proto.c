/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The common parts of the internet protocols: their start, the timer that runs every second, the
 * arrival, departure and changes of interfaces, multicast membership in the interface's filter, and
 * packets to ourselves.
 *
 * The timer runs from a task, not a callout: what it does may call an interface's ioctl.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet6/in6_var.h>
#include <netinet6/ip6_var.h>
#include <net/if_dl.h>
#include <netinet/if_ether.h>
#include <net/if_private.h>
#include <net/if_tree.h>
#include <machine/in_cksum.h>
#include <sys/eventhandler.h>
#include <sys/taskqueue.h>

MALLOC_DEFINE(M_INET, "inet", "internet protocols");

struct inet_stats inet_stats;
struct in6_addr inet_dns[INET_NDNS];

static struct timeout_task proto_timer, proto_kicker;

static void
proto_loop_one(if_t ifp, struct mbuf *m)
{
	struct ip *ip = mtod(m, struct ip *);
	struct sockaddr sa = { .sa_len = sizeof(sa) };

	sa.sa_family = ip->ip_v == IPVERSION ? AF_INET : AF_INET6;
	if (sa.sa_family == AF_INET) {
		ip->ip_sum = 0;
		ip->ip_sum = in_cksum_hdr(ip);
	}
	(void)ifp->if_output(ifp, m, &sa, NULL);
}

/*
 * Send a packet to ourselves: it comes back as input of the loopback interface, from a task, so
 * that no lock of the sender is held.  The mbuf starts with its IP header and is consumed.
 */
void
inet_loop_output(if_t ifp, struct mbuf *m)
{
	if (ifp == NULL)
		ifp = V_loif;
	if (ifp == NULL || (if_getflags(ifp) & IFF_UP) == 0) {
		m_freem(m);
		return;
	}
	proto_loop_one(ifp, m);
}

static void
proto_group_sdl(struct sockaddr_dl *sdl, const struct in6_addr *group)
{
	uint8_t *mac;

	memset(sdl, 0, sizeof(*sdl));
	sdl->sdl_len = sizeof(*sdl);
	sdl->sdl_family = AF_LINK;
	sdl->sdl_type = IFT_ETHER;
	sdl->sdl_alen = ETHER_ADDR_LEN;
	mac = LLADDR(sdl);
	if (inet_is4(group))
		ETHER_MAP_IP_MULTICAST(&group->s6_addr32[3], mac)
	else
		ETHER_MAP_IPV6_MULTICAST(group, mac)
}

/*
 * Let the interface's filter pass a group.  The interface counts how often each was asked for.
 */
int
inet_link_join(if_t ifp, const struct in6_addr *group)
{
	struct sockaddr_dl sdl;
	struct ifmultiaddr *ifma;

	proto_group_sdl(&sdl, group);
	return (if_addmulti(ifp, (struct sockaddr *)&sdl, &ifma));
}

void
inet_link_leave(if_t ifp, const struct in6_addr *group)
{
	struct sockaddr_dl sdl;

	proto_group_sdl(&sdl, group);
	(void)if_delmulti(ifp, (struct sockaddr *)&sdl);
}

static void
proto_tick(void *arg __unused, int pending __unused)
{
	struct epoch_tracker et;

	CURVNET_SET(vnet0);
	NET_EPOCH_ENTER(et);
	inet_addr_timer();
	inet_route_timer();
	inet_nbr_timer();
	inet_reass_timer();
	nd6_router_timer();
	mld6_timer();
	NET_EPOCH_EXIT(et);
	tcpc_reap();
	CURVNET_RESTORE();
	taskqueue_enqueue_timeout(taskqueue_thread, &proto_timer, hz);
}

static void
proto_departure(void *arg __unused, if_t ifp)
{
	inet_reass_purge(ifp);
	nd6_purge(ifp);
	inet_addr_purge(ifp);
	inet_route_purge(ifp);
	/* Who found a route before may still make a neighbour's entry. */
	NET_EPOCH_WAIT();
	inet_nbr_purge(ifp);
	mld6_purge(ifp);
}

/* Announce ourselves on a link that has come up (again). */
static int
proto_ready(if_t ifp, void *arg __unused)
{
	if (if_gettype(ifp) != IFT_ETHER || (if_getflags(ifp) & IFF_UP) == 0)
		return (0);
	in6_if_up(ifp);
	inet_addr_announce(ifp);
	mld6_announce(ifp);
	/* Without a link-local address nobody has asked for IPv6. */
	if (V_ip6_auto_linklocal)
		nd6_router_solicit(ifp);
	return (0);
}

static void
proto_kick(void *arg __unused, int pending __unused)
{
	struct epoch_tracker et;

	CURVNET_SET(vnet0);
	NET_EPOCH_ENTER(et);
	(void)if_foreach(proto_ready, NULL);
	NET_EPOCH_EXIT(et);
	CURVNET_RESTORE();
}

/*
 * An interface is marked up before its driver starts it, so what is to be sent has to wait a
 * little.
 */
static void
proto_event(void *arg __unused, if_t ifp, int event)
{
	if (event == IFNET_EVENT_UP)
		taskqueue_enqueue_timeout(taskqueue_thread, &proto_kicker, hz / 20);
	else if (event == IFNET_EVENT_DOWN)
		inet_nbr_purge(ifp);
}

static void
proto_link(void *arg __unused, if_t ifp __unused, int state)
{
	if (state == LINK_STATE_UP)
		taskqueue_enqueue_timeout(taskqueue_thread, &proto_kicker, hz / 20);
}

/* FreeBSD's handlers announce the addresses from here; a driver has to know that they do. */
static void
proto_lladdr(void *arg __unused, if_t ifp __unused)
{
	CURVNET_ASSERT_SET();
}

/* The loopback interface has its addresses from the start, as FreeBSD's boot scripts give them. */
static void
proto_loopback(void *arg __unused)
{
	struct in6_addr a;

	CURVNET_SET(vnet0);
	if (V_loif != NULL) {
		a = inet_map4((struct in_addr){ .s_addr = htonl(INADDR_LOOPBACK) });
		(void)inet_addr_add(V_loif, &a, 8, 0, 0, 0);
		(void)inet_addr_add(V_loif, &in6addr_loopback, 128, IN6_IFF_NODAD, 0, 0);
		(void)inet_ifup(V_loif);
	}
	CURVNET_RESTORE();
}
SYSINIT(inet_loopback, SI_SUB_KTHREAD_IDLE, SI_ORDER_ANY, proto_loopback, NULL);

static void
proto_init(void *arg __unused)
{
	EVENTHANDLER_REGISTER(ifnet_departure_event, proto_departure, NULL, EVENTHANDLER_PRI_ANY);
	EVENTHANDLER_REGISTER(ifnet_event, proto_event, NULL, EVENTHANDLER_PRI_ANY);
	EVENTHANDLER_REGISTER(ifnet_link_event, proto_link, NULL, EVENTHANDLER_PRI_ANY);
	EVENTHANDLER_REGISTER(iflladdr_event, proto_lladdr, NULL, EVENTHANDLER_PRI_ANY);
	TIMEOUT_TASK_INIT(taskqueue_thread, &proto_timer, 0, proto_tick, NULL);
	TIMEOUT_TASK_INIT(taskqueue_thread, &proto_kicker, 0, proto_kick, NULL);
	taskqueue_enqueue_timeout(taskqueue_thread, &proto_timer, hz);
}
SYSINIT(inet_proto, SI_SUB_PROTO_DOMAIN, SI_ORDER_FIRST, proto_init, NULL);
