/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Event channels: the interrupts between domains.  The theory is in
 * xen_evtchn.c.
 */

#ifndef _DEV_XEN_XEN_EVTCHN_H_
#define	_DEV_XEN_XEN_EVTCHN_H_

#include <sys/param.h>
#include <sys/bus.h>

#include <dev/xen/xen_var.h>
#include <xen/event_channel.h>

struct xen_evtchn;

/*
 * How a channel's events are handled.
 */
struct xen_evtchn_params {
	const char	*xep_name;	/* of the thread,
					 * and in vmstat -i: "xn0:rx0" */
	int		 xep_type;	/* INTR_TYPE_NET ...;
					 * INTR_MPSAFE is implied */
	int		 xep_cpu;	/* where the thread goes, and events if
					 * Xen can; -1: anywhere */
	/*
	 * In an interrupt thread, with the channel masked until it returns; or,
	 * with xep_filter, in the interrupt itself (driver_filter_t;
	 * FILTER_SCHEDULE_THREAD wakes the thread).  Either may be NULL.
	 */
	driver_filter_t	*xep_filter;
	driver_intr_t	*xep_handler;
	void		*xep_arg;
	/*
	 * xen_evtchn_worked() is called when an event had work to do: events
	 * without work are delayed if there are many.
	 */
	bool		 xep_brake;
};

/*
 * Make a channel that a domain may bind to: xen_evtchn_port() is for it to
 * know.  May sleep, as all that make a channel.
 *
 * remote  the domain
 * ecp     set to the channel.  Events may come before this returns.
 *
 * Returns 0; ENOSPC, ENOMEM, or Xen's error.
 */
int	xen_evtchn_alloc(domid_t remote, const struct xen_evtchn_params *params,
	    struct xen_evtchn **ecp);

/*
 * Bind a virtual interrupt (VIRQ_*).
 *
 * virq  one per CPU goes to xep_cpu, and stays there; a global one begins there
 */
int	xen_evtchn_bind_virq(u_int virq, const struct xen_evtchn_params *params,
	    struct xen_evtchn **ecp);

/*
 * Use a port that is bound already (xenstore's).  It is not closed by
 * xen_evtchn_free().
 *
 * Returns EBUSY if it is in use here, too.
 */
int	xen_evtchn_adopt(evtchn_port_t port,
    const struct xen_evtchn_params *params,
	    struct xen_evtchn **ecp);

/*
 * Close a channel.  No handler runs or will run when this returns, so no lock
 * that one takes may be held.  May sleep.  NULL is fine.
 *
 * When the domain was resumed, its channels are closed already, but for a CPU's
 * VIRQ, which goes on; they are freed all the same, and until then no events
 * are sent.
 */
void	xen_evtchn_free(struct xen_evtchn *ec);

/* Our number of a channel. */
evtchn_port_t xen_evtchn_port(const struct xen_evtchn *ec);

/* Send an event to the other end of the channel.  Any context. */
void	xen_evtchn_notify(struct xen_evtchn *ec);

/*
 * There was work that an event of the channel may have announced.  Any context.
 */
void	xen_evtchn_worked(struct xen_evtchn *ec);

#endif /* !_DEV_XEN_XEN_EVTCHN_H_ */
