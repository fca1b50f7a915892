/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Protocol statistics: FreeBSD's structures, one instance of each, counted with an atomic add
 * (they are incremented on any CPU and only read by netstat).
 *
 * Not FreeBSD's: the structures have per-CPU counters and belong to a VNET there.
 */

#ifndef _NETINET_INET_STAT_TREE_H_
#define	_NETINET_INET_STAT_TREE_H_

#include <sys/sysctl.h>

#include <netinet/in.h>
#include <netinet/in_systm.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/icmp_var.h>
#include <netinet/icmp6.h>
#include <netinet/ip_var.h>
#include <netinet6/ip6_var.h>
#include <netinet/udp.h>
#include <netinet/udp_var.h>
#include <netinet/tcp.h>
#include <netinet/tcp_var.h>
#include <net/if_arp.h>
#include <net/vnet.h>

struct inet_stats {
	struct arpstat	arp;
	struct ipstat	ip;
	struct ip6stat	ip6;
	struct icmpstat	icmp;
	struct icmp6stat icmp6;
	struct udpstat	udp;
	struct tcpstat	tcp;
};
extern struct inet_stats inet_stats;

/* FreeBSD's are per network stack (curvnet), so that counting without one faults. */
#define	INSTAT_ADD(field, n) do {						\
	CURVNET_ASSERT_SET();							\
	atomic_add_long((u_long *)&inet_stats.field, (n));			\
} while (0)
#define	INSTAT_INC(field)	INSTAT_ADD(field, 1)

#endif /* !_NETINET_INET_STAT_TREE_H_ */
