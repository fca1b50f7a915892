/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenstore's page and event channel (xenstore_page.c).  A test that includes this has
 * xen_evtchn_notify(), wakeup() and _sleep().
 */

#ifndef _MODEL_XENSTORE_PAGE_H_
#define	_MODEL_XENSTORE_PAGE_H_

#include <sys/param.h>
#include <sys/bus.h>

#include <dev/xen/xen_evtchn.h>
#include <xen/io/xs_wire.h>

extern struct xenstore_domain_interface xs_page;

/* The handler of its channel. */
extern driver_intr_t *xs_intr;

/* Xen has no such parameter, by this error (-1: it is 0); and it makes no channel. */
extern int xs_no_page, xs_no_port, xs_no_channel;

/* Has the driver the page, or its channel? */
bool	xs_is_left(void);

#endif /* !_MODEL_XENSTORE_PAGE_H_ */
