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
#include <xen/hvm/params.h>

#include "../host/host.h"
#include "xenstore_page.h"

#define	XS_PFN	0xfeffcUL
#define	XS_PORT	4

volatile int ticks;
int hz = 100;
sbintime_t tick_sbt = SBT_1S / 100;

struct xenstore_domain_interface xs_page;
driver_intr_t *xs_intr;

int xs_no_page, xs_no_port, xs_no_channel;

/* What the driver has of them. */
static bool xs_mapped;
static const char *xs_channel;

int
xen_get_param(uint32_t index, uint64_t *value)
{
	int missing = index == HVM_PARAM_STORE_PFN ? xs_no_page : xs_no_port;

	CHECK(index == HVM_PARAM_STORE_PFN || index == HVM_PARAM_STORE_EVTCHN, "parameter %u", index);
	*value = missing != 0 ? 0 : index == HVM_PARAM_STORE_PFN ? XS_PFN : XS_PORT;
	return (MAX(missing, 0));
}

void *
pmap_mapdev_attr(vm_paddr_t pa, vm_size_t size, int attr)
{

	CHECK(!xs_mapped && pa == ptoa(XS_PFN) && size == PAGE_SIZE && attr == VM_MEMATTR_WRITE_BACK,
	    "0x%lx, %lu bytes, mapped as %d", (u_long)pa, (u_long)size, attr);
	xs_mapped = true;
	return (&xs_page);
}

void
pmap_unmapdev(void *va, vm_size_t size)
{

	CHECK(xs_mapped && va == &xs_page && size == PAGE_SIZE, "not what was mapped");
	xs_mapped = false;
}

int
xen_evtchn_adopt(evtchn_port_t port, const struct xen_evtchn_params *params, struct xen_evtchn **ecp)
{

	CHECK(port == XS_PORT && xs_channel == NULL && strcmp(params->xep_name, "xenstore") == 0 &&
	    params->xep_cpu == -1 && params->xep_filter == NULL, "port %u", port);
	if (xs_no_channel != 0)
		return (xs_no_channel);
	xs_channel = params->xep_name;
	xs_intr = params->xep_handler;
	*ecp = (struct xen_evtchn *)&xs_intr;
	return (0);
}

void
xen_evtchn_free(struct xen_evtchn *ec)
{

	CHECK((ec == (struct xen_evtchn *)&xs_intr) == (xs_channel != NULL), "another channel");
	/* Its handler looks at the page. */
	CHECK(ec == NULL || xs_mapped, "unmapped before it is freed");
	xs_channel = NULL;
}

bool
xs_is_left(void)
{

	return (xs_mapped || xs_channel != NULL);
}
