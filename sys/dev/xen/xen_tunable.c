/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen: the tunables, hw.xen.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/sysctl.h>

#include <dev/xen/xen_tunable.h>

struct pv_tunable xen_tunables[] = {
	[XEN_CONNECT_WAIT] = PV_TUNABLE("connect_wait", 10, 0, 86400, PVT_RW,
	    "Seconds to wait for back ends when a driver is loaded"),
	[XEN_DISABLE_PV_DISKS] = PV_TUNABLE("disable_pv_disks", 0, 0, 1, 0,
	    "In an HVM domain, use emulated disks, not front ends"),
	[XEN_DISABLE_PV_NICS] = PV_TUNABLE("disable_pv_nics", 0, 0, 1, 0,
	    "In an HVM domain, use emulated network cards, not front ends"),
	[XEN_EVTCHN_FIFO] = PV_TUNABLE("evtchn_fifo", 1, 0, 1, 0,
	    "Use the FIFO interface for event channels where Xen has it"),
	[XEN_GNTTAB_VERSION] = PV_TUNABLE("gnttab_version", 0, 0, 2, 0,
	    "Version of the grant table: 1, 2 or 0 (as the machine's memory requires)"),
	[XEN_RESUME_WAIT] = PV_TUNABLE("resume_wait", 60, 0, 86400, PVT_RW,
	    "Seconds after a suspension until a device without a back end has failed; 0: never"),
	[XEN_TIMER] = PV_TUNABLE("timer", 1, 0, 1, 0,
	    "Offer Xen's timer as an event timer"),
	[XEN_XENSTORE_TIMEOUT] = PV_TUNABLE("xenstore_timeout", 30, 0, 86400,
	    PVT_RW, "Seconds to wait for xenstore; 0: forever"),
};
PV_TUNABLES(xen_tunables, hw, "xen", xen_tunables, "Xen");
