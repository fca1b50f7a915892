/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The interface's own send queue, for drivers that have an if_start method and no queues of
 * their own.
 *
 * Locking.  ifq_mtx of the queue.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#include <net/if.h>
#include <net/if_var.h>
#include <net/if_private.h>

int ifqmaxlen = 128;

SYSCTL_DECL(_net_link);
SYSCTL_INT(_net_link, OID_AUTO, ifqmaxlen, CTLFLAG_RDTUN, &ifqmaxlen, 0,
    "Packets that an interface's send queue holds");

/* Referred to by the queue macros of net/ifq.h; only ALTQ would ever set it. */
struct mbuf *(*tbr_dequeue_ptr)(struct ifaltq *, int);

void
ifq_init(struct ifaltq *ifq, struct ifnet *ifp)
{
	mtx_init(&ifq->ifq_mtx, "ifqueue", NULL, MTX_DEF);
	ifq->ifq_maxlen = ifqmaxlen;
	ifq->altq_ifp = ifp;
}

void
ifq_delete(struct ifaltq *ifq)
{
	mtx_destroy(&ifq->ifq_mtx);
}

void
if_qflush(struct ifnet *ifp)
{
	IFQ_DRV_PURGE(&ifp->if_snd);
}

void
if_start(struct ifnet *ifp)
{
	ifp->if_start(ifp);
}

int
if_handoff(struct ifqueue *ifq, struct mbuf *m, struct ifnet *ifp, int adjust)
{
	bool active = false;

	IF_LOCK(ifq);
	if (_IF_QFULL(ifq)) {
		IF_UNLOCK(ifq);
		if (ifp != NULL)
			if_inc_counter(ifp, IFCOUNTER_OQDROPS, 1);
		m_freem(m);
		return (0);
	}
	if (ifp != NULL) {
		if_inc_counter(ifp, IFCOUNTER_OBYTES, m->m_pkthdr.len + adjust);
		if ((m->m_flags & (M_BCAST | M_MCAST)) != 0)
			if_inc_counter(ifp, IFCOUNTER_OMCASTS, 1);
		active = (ifp->if_drv_flags & IFF_DRV_OACTIVE) != 0;
	}
	_IF_ENQUEUE(ifq, m);
	IF_UNLOCK(ifq);
	if (ifp != NULL && !active)
		if_start(ifp);
	return (1);
}
