/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The page of xenstore's ring and its event channel, as the driver gets them from Xen; and time, which
 * passes when a test says so.  What the other end does with them, and when, is the test's.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/time.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <dev/xen/xen_hypercall.h>

#include "xenstore_page.h"

volatile int ticks;
int hz = 100;
sbintime_t tick_sbt = SBT_1S / 100;

struct xenstore_domain_interface xs_page;
driver_intr_t *xs_intr;

int
xen_get_param(uint32_t index __unused, uint64_t *value)
{

	*value = 1;
	return (0);
}

void *
pmap_mapdev_attr(vm_paddr_t pa __unused, vm_size_t size __unused, int attr __unused)
{

	return (&xs_page);
}

void
pmap_unmapdev(void *va __unused, vm_size_t size __unused)
{
}

int
xen_evtchn_adopt(evtchn_port_t port __unused, const struct xen_evtchn_params *params,
    struct xen_evtchn **ecp)
{

	xs_intr = params->xep_handler;
	*ecp = (struct xen_evtchn *)&xs_intr;
	return (0);
}

void
xen_evtchn_free(struct xen_evtchn *ec __unused)
{
}
