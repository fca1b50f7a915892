/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Between the files that make up the network interface layer; only these include it.
 *
 * Not FreeBSD's: this is within if.c there.
 */

#ifndef _NET_IF_SUBR_TREE_H_
#define	_NET_IF_SUBR_TREE_H_

#include <sys/types.h>
#include <net/if.h>

struct ifaddr;

/* bpf.c: until bpfattach(9) the interface has no listeners. */
void	bpf_attach_none(struct ifnet *ifp);

/* if_addr.c */
struct ifaddr *if_link_addr_alloc(struct ifnet *ifp);
void	if_addrs_free(struct ifnet *ifp);
void	if_multi_task(void *ifp, int pending);

/* if_link.c */
void	if_link_task(void *ifp, int pending);

#endif /* !_NET_IF_SUBR_TREE_H_ */
