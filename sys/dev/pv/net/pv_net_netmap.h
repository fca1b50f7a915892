/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Between pv_net_netmap.c, queues that netmap(4) has, and pv_net_netmap_if.c, the port: in a kernel
 * with DEV_NETMAP.
 */

#ifndef _DEV_PV_PV_NET_NETMAP_H_
#define	_DEV_PV_PV_NET_NETMAP_H_

struct netmap_kring;
struct pv_net;
struct pvq;

/* Slots of a queue's ring. */
u_int	pv_net_netmap_slots(const struct pvq *q);
/* Allocate what slots are sent and received with.  False if the device can't have a native port. */
bool	pv_net_netmap_alloc_queues(struct pv_net *pn);
void	pv_net_netmap_free_queues(struct pv_net *pn);
/*
 * Follow the sizes of the rings, while no program has any.  False: they are not those that are given.
 */
bool	pv_net_netmap_fit(struct pv_net *pn, u_int rx_slots, u_int tx_slots);
/* netmap(4)'s operations on a ring; ioctl(2) and poll(2) call them. */
int	pv_net_netmap_txsync(struct netmap_kring *kring, int flags);
int	pv_net_netmap_rxsync(struct netmap_kring *kring, int flags);

#endif /* !_DEV_PV_PV_NET_NETMAP_H_ */
