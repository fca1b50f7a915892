/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: staging, a capability for protocols that share memory by the page.
 *
 * Where the back end sees whole pages, an mbuf can't be shared: its page holds other mbufs, and bytes
 * of whatever had it before.  So each slot of a queue has a page of its own, shared as long as the
 * queue exists, and packets are copied to and from these pages, which the back end sees all the time.
 * That costs a copy, but no change of what is shared for each packet, and the back end sees at any time
 * only what it was sent, or wrote itself.  A page that it keeps, or writes to when it should not, is
 * harmless: a received frame is validated and used in the copy.
 *
 * A staged queue runs on while the interface is down: it has no memory that is needed elsewhere.
 */

#ifndef _DEV_PV_PV_NET_STAGE_H_
#define	_DEV_PV_PV_NET_STAGE_H_

#include <sys/types.h>
#include <machine/bus.h>

struct pv_net;

struct pv_net_page {
	void		*pp_mem;	/* PAGE_SIZE bytes */
	bus_addr_t	 pp_addr;	/* as segments have it */
	void		*pp_arg;	/* to receive into it: pc_arg of the chain that posts it */
};

/*
 * Have a queue's packets staged: the receiving one of a pair, or with tx the transmitting one.  For all
 * queues of a device, once they are allocated, and before each pv_net_attach() and pv_net_thaw().  The
 * device has pnp_hdrlen 0 and pnp_seg_max PAGE_SIZE.  May sleep.
 *
 * pages  as many as the queue has slots; the caller's, and in use until pv_net_detach() or
 *        pv_dev_freeze()
 */
void	pv_net_stage_queue(struct pv_net *pn, int pair, bool tx, const struct pv_net_page *pages);

#endif /* !_DEV_PV_PV_NET_STAGE_H_ */
