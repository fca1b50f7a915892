/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * FreeBSD's own Xen core: event channels as interrupts.
 */

#ifndef _XEN_INTR_H_
#define	_XEN_INTR_H_

#include <sys/param.h>
#include <sys/bus.h>

#include <xen/xen-os.h>

typedef void *xen_intr_handle_t;

/*
 * Make a channel that a domain may bind to, with a handler in an interrupt thread, whose name begins
 * with dev's.
 */
int	xen_intr_alloc_and_bind_local_port(device_t dev, u_int remote_domain, driver_filter_t filter,
	    driver_intr_t handler, void *arg, enum intr_type irqflags, xen_intr_handle_t *handlep);

/* Close it, and wait for its handler.  *handle is NULL then. */
void	xen_intr_unbind(xen_intr_handle_t *handle);

/* Name it for vmstat -i. */
int	xen_intr_describe(xen_intr_handle_t port_handle, const char *fmt, ...) __printflike(2, 3);

/* Send an event to the other end. */
void	xen_intr_signal(xen_intr_handle_t handle);

/* Our number of it. */
evtchn_port_t xen_intr_port(xen_intr_handle_t handle);

#endif /* !_XEN_INTR_H_ */
