/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the tree kernel's own protocols and commands use of the network interfaces, beyond what
 * FreeBSD's headers declare.
 *
 * Not FreeBSD's: programs use ioctl(2) and sysctl(3) there.
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

/*
 * Do in software what an interface doesn't do for a packet that is about to leave by it
 * (net/if_offload.c).
 *
 * ifp  the interface; its hwassist and its TSO limit count
 * m    the packet, with the marks of a sender or of a receiver; consumed
 * l3   bytes before its IP header: 0, or those of Ethernet and tags
 *
 * Returns the packet, or the segments that were made of it, linked by m_nextpkt; NULL if it was
 * lost, which the interface has counted.  Never sleeps.
 */
struct mbuf *if_offload_finish(if_t ifp, struct mbuf *m, u_int l3);

/* Is this a packet that is to be cut?  One that has no more than tso_segsz bytes is cut into one. */
bool	if_offload_big(const struct mbuf *m);

/* Cut such a packet, whatever its interface can; else as if_offload_finish(). */
struct mbuf *if_offload_segments(if_t ifp, struct mbuf *m, u_int l3);

/*
 * Send what the functions above returned by `one', packet by packet, up to the first that it can't
 * send; those behind that are freed.  `one' gets arg, consumes the packet and returns an error.
 *
 * Returns 0 if any was sent, else the error of the first; ENOBUFS for no packet at all.  A sender
 * that gets ENOBUFS may send the whole packet again.  If only segments after the first could not be
 * sent, then they are lost as on the way.
 */
int	if_offload_send(struct mbuf *m, int (*one)(const void *arg, struct mbuf *m), const void *arg);

/* What of a packet has to fit the MTU: its bytes from l3 on, or those of one segment of it. */
u_int	if_offload_wire_len(const struct mbuf *m, u_int l3);

/*
 * Finish the checksums of a packet, which is to be writable, as one packet: what it will look like
 * on the wire if the interface takes it so.
 */
void	if_offload_finish_sums(struct mbuf *m, u_int l3);

/* The offset of a packet's transport header, and its protocol; 0 if there is none. */
u_int	if_offload_transport(const struct mbuf *m, u_int l3, uint8_t *proto);

/* What if_offload_finish() can do: an interface that passes packets on to others offers it all. */
#define	IF_OFFLOAD_ALL							\
	(CSUM_IP | CSUM_DELAY_DATA | CSUM_DELAY_DATA_IPV6 | CSUM_TSO)

/*
 * Give a frame to the interface's driver: its offload marks, and a VLAN tag in its packet header,
 * may be more than the interface can do.  In the network epoch; m is consumed.  ENOBUFS, or what
 * the driver said.
 */
int	ether_finish(if_t ifp, struct mbuf *m);

/* A frame with a VLAN tag came in by parent (net/if_vlan.c). */
void	vlan_input(struct ifnet *parent, struct mbuf *m);

/* As if_foreach_addr_type(9) for AF_INET and AF_INET6: the ifaddr lives during the call only. */
u_int	inet_foreach_ifaddr(if_t ifp, int family,
	    u_int (*cb)(void *, struct ifaddr *, u_int), void *arg);

#endif /* !_NET_IF_TREE_H_ */
