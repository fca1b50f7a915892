/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the tree kernel's own protocols and commands use of the network interfaces, beyond what
 * FreeBSD's headers declare.
 */

#ifndef _NET_IF_TREE_H_
#define	_NET_IF_TREE_H_

#include <sys/types.h>
#include <net/if.h>

struct mbuf;

/*
 * Do an ioctl(2) of sys/sockio.h on an interface from inside of the kernel: what ifconfig(8)
 * does.
 *
 * ifp   the interface; the caller has a reference on it
 * cmd   SIOCGIFFLAGS, SIOCSIFMTU ...
 * data  struct ifreq or struct ifmediareq, all pointers in it being to kernel memory
 *
 * Returns 0 or an errno value of the interface or the driver.  May sleep.
 */
int	if_ioctl_kernel(if_t ifp, u_long cmd, caddr_t data);

/*
 * Send a packet of the protocol `ethertype' (host order) to the Ethernet address `dst'.  The
 * mbuf is consumed in any case.  Never sleeps.
 *
 * Returns 0; ENETDOWN if the interface is not up and running; ENOBUFS; what if_transmit said.
 */
int	ether_output_resolved(if_t ifp, struct mbuf *m, const u_char *dst, u_short ethertype);

#endif /* !_NET_IF_TREE_H_ */
