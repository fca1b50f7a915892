/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Listeners of packet capture (net/bpf.c), which are not devices here but functions.
 *
 * Not FreeBSD's: a listener is an open file of bpf(4) there.
 */

#ifndef _NET_BPF_TREE_H_
#define	_NET_BPF_TREE_H_

#include <sys/types.h>
#include <net/if.h>

struct bpf_d;
struct mbuf;

/*
 * A packet passed an interface.  In the network epoch, perhaps with a driver's lock; must not
 * sleep.  The packet is only to be read: it starts as the interface's link layer does.
 */
typedef void bpf_listen_f(void *arg, const struct mbuf *m);

/*
 * Have func called for each packet of an interface whose packets are of type dlt (DLT_*).
 * EPROTONOSUPPORT if they are not.  May sleep.
 */
int	bpf_listen(if_t ifp, u_int dlt, bpf_listen_f *func, void *arg, struct bpf_d **dp);

/* No more; when this returns func is not running.  May sleep. */
void	bpf_unlisten(struct bpf_d *d);

#endif /* !_NET_BPF_TREE_H_ */
