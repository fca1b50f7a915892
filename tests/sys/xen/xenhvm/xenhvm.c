/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenhvm: what stands in for FreeBSD's own Xen core in the tree kernel, so that xen_core can be tested
 * there: the functions and devices of the headers below sys/xen, over the lower half of our own
 * core, which is compiled into this module.
 *
 *	nexus0
 *	  xenpv0
 *	    xenstore0
 *	      xenbusb_front0	xenhvm_front.c
 *	        xbd0, xn0	xenhvm_stock.c
 *
 * Gaps.  Unloading.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/module.h>

#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xen_var.h>

#include "xenhvm.h"

/* FreeBSD's. */
extern struct shared_info *HYPERVISOR_shared_info;
extern bool xen_suspend_cancelled;
extern int xen_domain_type, xen_disable_pv_disks, xen_disable_pv_nics;

struct shared_info *HYPERVISOR_shared_info;
bool xen_suspend_cancelled;
int xen_domain_type = 1;	/* XEN_PV_DOMAIN, as a PVH domain is there */
int xen_disable_pv_disks, xen_disable_pv_nics;

/* Of our core: its table, without variables; xenstore is waited for for ever. */
struct pv_tunable xen_tunables[] = {
	[XEN_XENSTORE_TIMEOUT] = PV_TUNABLE("xenstore_timeout", 0, 0, 0, 0, ""),
	[XEN_TIMER] = PV_TUNABLE("timer", 0, 0, 0, 0, ""),
};

static int (*const hvm_parts[])(device_t) = {
	xen_hypercall_init, xen_cpu_init, xen_upcall_init, xen_evtchn_init, hvm_gnttab_init,
	hvm_store_init,
};

static void
hvm_identify(driver_t *driver, device_t parent)
{

	if (xen_cpuid_base() != 0 && device_find_child(parent, driver->name, 0) == NULL)
		(void)BUS_ADD_CHILD(parent, 0, driver->name, 0);
}

static int
hvm_probe(device_t dev)
{

	device_set_desc(dev, "what stands in for FreeBSD's own Xen core");
	return (BUS_PROBE_NOWILDCARD);
}

static int
hvm_attach(device_t dev)
{
	device_t child, store;
	u_int i;
	int error = 0;

	/* Upcalls are allocated for a child of this name. */
	child = device_add_child(dev, "xenbus", 0);
	store = device_add_child(dev, "xenstore", 0);
	for (i = 0; error == 0 && i < nitems(hvm_parts); i++)
		error = hvm_parts[i](dev);
	if (error != 0)
		return (error);
	(void)device_delete_child(dev, child);
	HYPERVISOR_shared_info = xen_shared;
	error = device_probe_and_attach(store);
	return (error != 0 ? error : hvm_suspend_init(dev));
}

static device_method_t hvm_methods[] = {
	DEVMETHOD(device_identify, hvm_identify),
	DEVMETHOD(device_probe, hvm_probe),
	DEVMETHOD(device_attach, hvm_attach),
	DEVMETHOD(device_suspend, bus_generic_suspend),
	DEVMETHOD(device_resume, bus_generic_resume),

	DEVMETHOD(bus_remap_intr, xen_upcall_remap),
	DEVMETHOD_END
};

static driver_t hvm_driver = {
	"xenpv",
	hvm_methods,
	0
};
DRIVER_MODULE(xenpv, nexus, hvm_driver, NULL, NULL);

static int
store_probe(device_t dev)
{

	device_set_desc(dev, "xenhvm xenstore");
	return (BUS_PROBE_NOWILDCARD);
}

static int
store_attach(device_t dev)
{

	bus_identify_children(dev);
	bus_attach_children(dev);
	return (0);
}

static device_method_t store_methods[] = {
	DEVMETHOD(device_probe, store_probe),
	DEVMETHOD(device_attach, store_attach),
	DEVMETHOD(device_suspend, bus_generic_suspend),
	DEVMETHOD(device_resume, bus_generic_resume),

	DEVMETHOD(bus_add_child, bus_generic_add_child),
	DEVMETHOD(bus_driver_added, bus_generic_driver_added),
	DEVMETHOD_END
};

static driver_t store_driver = {
	"xenstore",
	store_methods,
	0
};
/* What is below is there when this attaches. */
DRIVER_MODULE_ORDERED(xenstore, xenpv, store_driver, NULL, NULL, SI_ORDER_THIRD);
MODULE_DEPEND(xenhvm, pv, 1, 1, 1);
