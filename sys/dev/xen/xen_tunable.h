/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen: the tunables, hw.xen.
 */

#ifndef _DEV_XEN_XEN_TUNABLE_H_
#define	_DEV_XEN_XEN_TUNABLE_H_

#include <dev/pv/pv_tunable.h>

enum {
	/* Also of the module xen_core, whose table ends here. */
	XEN_CONNECT_WAIT,
	XEN_RESUME_WAIT,
	XEN_XENSTORE_TIMEOUT,

	XEN_DISABLE_PV_DISKS,
	XEN_DISABLE_PV_NICS,
	XEN_EVTCHN_FIFO,
	XEN_GNTTAB_VERSION,
	XEN_TIMER
};
extern struct pv_tunable xen_tunables[];

static inline int
xen_tunable(u_int which)
{
	return (xen_tunables[which].pt_value);
}

#endif /* !_DEV_XEN_XEN_TUNABLE_H_ */
