/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xen_core: the tunables, hw.xen.  They are those of the module xen that
 * concern front ends.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/sysctl.h>

#include <dev/pv/pv_tunable.h>
#include <dev/xen/xen_tunable.h>

struct pv_tunable xen_tunables[] = {
	[XEN_CONNECT_WAIT] = PV_TUNABLE("connect_wait", 10, 0, 86400, PVT_RW,
	    "Seconds to wait for back ends when a driver is loaded"),
	[XEN_RESUME_WAIT] = PV_TUNABLE("resume_wait", 60, 0, 86400, PVT_RW,
	    "Seconds after a suspension until a device without a back end has failed; 0: never"),
	[XEN_XENSTORE_TIMEOUT] = PV_TUNABLE("xenstore_timeout", 30, 0, 86400,
	    PVT_RW, "Seconds to wait for xenstore; 0: forever"),
};
PV_TUNABLES(xen_tunables, hw, "xen", xen_tunables, "Xen");
