/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The headers that nearly every file of the internet protocols needs, in the order they need.
 *
 * Not FreeBSD's: each file names its headers there.
 */

#ifndef _NETINET_INET_STACK_TREE_H_
#define	_NETINET_INET_STACK_TREE_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/sockio.h>
#include <sys/time.h>
#include <sys/epoch.h>

#include <net/if.h>
#include <net/if_var.h>
#include <net/if_types.h>
#include <net/ethernet.h>
#include <net/route.h>
#include <netinet/in.h>
#include <netinet/in_systm.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>

#include <netinet/inet_tree.h>

MALLOC_DECLARE(M_INET);

#endif /* !_NETINET_INET_STACK_TREE_H_ */
