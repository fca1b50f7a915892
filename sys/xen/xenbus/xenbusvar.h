/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * FreeBSD's own Xen core: devices of its bus of front ends.
 */

#ifndef _XEN_XENBUS_XENBUSVAR_H
#define	_XEN_XENBUS_XENBUSVAR_H

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <xen/xenstore/xenstorevar.h>

enum {
	XENBUS_IVAR_NODE,	/* const char *, "device/vbd/51712" */
	XENBUS_IVAR_TYPE,	/* const char *, "vbd" */
	XENBUS_IVAR_STATE,	/* enum xenbus_state; the only one that can be written */
	XENBUS_IVAR_OTHEREND_ID,
	XENBUS_IVAR_OTHEREND_PATH,
};

#define	XENBUS_ACCESSOR(var, ivar, type)	__BUS_ACCESSOR(xenbus, var, XENBUS, ivar, type)

XENBUS_ACCESSOR(node, NODE, const char *)
XENBUS_ACCESSOR(type, TYPE, const char *)
XENBUS_ACCESSOR(state, STATE, enum xenbus_state)
XENBUS_ACCESSOR(otherend_id, OTHEREND_ID, int)
XENBUS_ACCESSOR(otherend_path, OTHEREND_PATH, const char *)

/* The state in a directory; Closed if it can't be read. */
XenbusState xenbus_read_driver_state(const char *path);

static inline XenbusState
xenbus_get_otherend_state(device_t dev)
{

	return (xenbus_read_driver_state(xenbus_get_otherend_path(dev)));
}

#include "xenbus_if.h"

#endif /* !_XEN_XENBUS_XENBUSVAR_H */
