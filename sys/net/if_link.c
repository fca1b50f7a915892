/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Interfaces up and down, link state, promiscuous mode.
 *
 * A driver may report its link from an interrupt; the consequences (messages, event handlers)
 * are handled in a task.
 *
 * Locking.  if_addr_lock covers the counts of promiscuous and all-multicast users.  The
 * driver is called without it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/epoch.h>
#include <sys/eventhandler.h>
#include <sys/lock.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sockio.h>
#include <sys/sysctl.h>
#include <sys/syslog.h>
#include <sys/taskqueue.h>
#include <sys/time.h>
#include <net/if.h>
#include <net/if_var.h>
#include <net/if_private.h>

#include <net/if_subr_tree.h>

static int log_link_state_change = 1;

SYSCTL_DECL(_net_link);
SYSCTL_INT(_net_link, OID_AUTO, log_link_state_change, CTLFLAG_RWTUN,
    &log_link_state_change, 0, "Log changes of an interface's link state");

void
if_link_task(void *arg, int pending)
{
	struct ifnet *ifp = arg;
	int state = ifp->if_link_state;

	if ((ifp->if_flags & IFF_DYING) != 0)
		return;
	CURVNET_SET_QUIET(ifp->if_vnet);
	EVENTHANDLER_INVOKE(ifnet_link_event, ifp, state);
	CURVNET_RESTORE();
	if (pending > 1)
		if_printf(ifp, "%d link states coalesced\n", pending);
	if (log_link_state_change)
		if_printf(ifp, "link state changed to %s\n",
		    state == LINK_STATE_UP ? "UP" :
		    state == LINK_STATE_DOWN ? "DOWN" : "UNKNOWN");
}

void
if_link_state_change(if_t ifp, int state)
{
	if (ifp->if_link_state == state)
		return;
	ifp->if_link_state = state;
	/* Before if_attach() and after if_detach() there is no listener. */
	if (ifp->if_addr != NULL && (ifp->if_flags & IFF_DYING) == 0)
		taskqueue_enqueue(taskqueue_swi, &ifp->if_linktask);
}

void
if_up(if_t ifp)
{
	ifp->if_flags |= IFF_UP;
	getmicrotime(&ifp->if_lastchange);
	EVENTHANDLER_INVOKE(ifnet_event, ifp, IFNET_EVENT_UP);
}

void
if_down(if_t ifp)
{
	EVENTHANDLER_INVOKE(ifnet_event, ifp, IFNET_EVENT_DOWN);
	ifp->if_flags &= ~IFF_UP;
	getmicrotime(&ifp->if_lastchange);
	ifp->if_qflush(ifp);
}

/*
 * Count a user of a mode that is a flag of the interface, and notify the driver when the first
 * is added or the last removed, unless the user has set it as well.
 */
static int
if_setflag(struct ifnet *ifp, int flag, int user, int *count, bool on)
{
	struct ifreq ifr;
	bool changed;
	int error;

	IF_ADDR_WLOCK(ifp);
	if (!on && *count == 0) {
		IF_ADDR_WUNLOCK(ifp);
		return (EINVAL);
	}
	*count += on ? 1 : -1;
	changed = *count == (on ? 1 : 0) && (ifp->if_flags & user) == 0;
	if (changed)
		ifp->if_flags = on ? ifp->if_flags | flag : ifp->if_flags & ~flag;
	IF_ADDR_WUNLOCK(ifp);
	if (!changed || ifp->if_ioctl == NULL)
		return (0);

	bzero(&ifr, sizeof(ifr));
	ifr.ifr_flags = ifp->if_flags & 0xffff;
	ifr.ifr_flagshigh = ifp->if_flags >> 16;
	error = ifp->if_ioctl(ifp, SIOCSIFFLAGS, (caddr_t)&ifr);
	if (error != 0) {
		IF_ADDR_WLOCK(ifp);
		*count -= on ? 1 : -1;
		ifp->if_flags = on ? ifp->if_flags & ~flag : ifp->if_flags | flag;
		IF_ADDR_WUNLOCK(ifp);
	}
	return (error);
}

int
ifpromisc(if_t ifp, int on)
{
	int error, old = ifp->if_flags;

	error = if_setflag(ifp, IFF_PROMISC, IFF_PPROMISC, &ifp->if_pcount, on != 0);
	if (error == 0 && ((old ^ ifp->if_flags) & IFF_PROMISC) != 0)
		if_log(ifp, LOG_INFO, "promiscuous mode %s\n",
		    (ifp->if_flags & IFF_PROMISC) != 0 ? "enabled" : "disabled");
	return (error);
}

int
if_allmulti(if_t ifp, int on)
{
	return (if_setflag(ifp, IFF_ALLMULTI, IFF_PALLMULTI, &ifp->if_amcount, on != 0));
}

/* Promiscuous mode as set by the user, in addition to that of listeners. */
void
if_setppromisc(const if_t ifp, bool on)
{
	if (on)
		ifp->if_flags |= IFF_PPROMISC;
	else
		ifp->if_flags &= ~IFF_PPROMISC;
}

void
if_notifymtu(if_t ifp)
{
	getmicrotime(&ifp->if_lastchange);
}
