/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The platform device of an HVM domain, which is a whole PC: the toolstack
 * gives it each disk and card twice, as a back end and emulated by a device
 * model.  A kernel with front ends has the emulated ones removed before it
 * finds them: that is what the device is for.
 *
 * Unplugging (Xen's docs/misc/hvm-emulated-unplug).  Done by I/O ports at a
 * fixed place, so that it can be done before there is a PCI bus.
 *
 *	port	read			written
 *	0x10	magic number, 16 bits	what to unplug, 16 bits;
 *					build number, 32 bits
 *	0x12	version, 8 bits		product number, 16 bits
 *
 * From version 1 on the device model requires the numbers of the driver, and
 * may refuse drivers that it knows to be broken: then the magic number reads
 * differently.
 *
 * When.  Before devices are probed, which is possible only if the loader
 * brought this module along with the kernel.  Later a disk may be in use: then
 * nothing is unplugged, and each device is there twice, with a message.  What
 * the tunables hw.xen.disable_pv_disks and hw.xen.disable_pv_nics leave
 * emulated has no front ends, so that there is one driver for it.
 *
 * A domain that was restored has another device model, with all emulated
 * devices again.
 *
 * The PCI function only identifies the device.  Its interrupt and its memory,
 * which older guests used for upcalls and for the grant table, are not needed:
 * see xen_upcall.c, xen_space_alloc().
 *
 * Locking.  None: written before there are other threads.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/module.h>
#include <sys/rman.h>
#include <sys/sysctl.h>

#include <machine/bus.h>
#include <machine/cpufunc.h>

#include <dev/pci/pcivar.h>

#include <dev/xen/xen_front.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xen_var.h>

#define	PLATFORM_PORT		0x10	/* magic number; unplug; build number */
#define	PLATFORM_PORT_VERSION	0x12	/* version; product number */

#define	PLATFORM_MAGIC		0x49d2
#define	PLATFORM_PRODUCT	0xffff	/* one without a number of its own */
#define	PLATFORM_BUILD		1

/* What to unplug. */
#define	PLATFORM_DISKS		0x1	/* not CD-ROM drives */
#define	PLATFORM_NICS		0x2
#define	PLATFORM_NVME		0x8

#define	PLATFORM_PCI_VENDOR	0x5853
#define	PLATFORM_PCI_DEVICE	0x0001

static bool platform_there;	/* this is an HVM domain
				 * with a platform device */
static bool platform_late;	/* too late for unplugging */
static uint16_t platform_unplugged;

/* Does the device model agree that we unplug something? */
static bool
platform_agrees(void)
{

	if (inb(PLATFORM_PORT_VERSION) >= 1) {
		outw(PLATFORM_PORT_VERSION, PLATFORM_PRODUCT);
		outl(PLATFORM_PORT, PLATFORM_BUILD);
	}
	return (inw(PLATFORM_PORT) == PLATFORM_MAGIC);
}

static void
platform_unplug(uint16_t what)
{

	if (what == 0)
		return;
	if (!platform_agrees()) {
		printf(
		    "xen: the device model refuses to unplug emulated devices\n");
		return;
	}
	outw(PLATFORM_PORT, what);
	platform_unplugged = what;
}

static void
platform_begin(void *arg __unused)
{
	uint16_t what = 0;

	/* On a machine without Xen other things are at these ports. */
	if (xen_cpuid_base() == 0 || xen_is_taken() ||
	    inw(PLATFORM_PORT) != PLATFORM_MAGIC)
		return;
	platform_there = true;
	platform_late = !cold;
	if (xen_tunable(XEN_DISABLE_PV_DISKS) == 0)
		what |= PLATFORM_DISKS | PLATFORM_NVME;
	if (xen_tunable(XEN_DISABLE_PV_NICS) == 0)
		what |= PLATFORM_NICS;
	if (!platform_late)
		platform_unplug(what);
	else if (what != 0)
		printf(
		    "xen: too late to unplug emulated devices: they stay, beside the front ends "
		    "(xen_load=\"YES\" in loader.conf)\n");
}
SYSINIT(xen_platform, SI_SUB_DRIVERS, SI_ORDER_FIRST, platform_begin, NULL);

void
xen_platform_resume(void)
{

	platform_unplug(platform_unplugged);
}

/* Not those whose emulated devices the device model keeps. */
bool
xen_front_is_ours(const char *type, const char *node __unused)
{

	if (!platform_there)
		return (true);
	return ((xen_tunable(XEN_DISABLE_PV_DISKS) == 0 ||
	    strcmp(type, "vbd") != 0) &&
	    (xen_tunable(XEN_DISABLE_PV_NICS) == 0 ||
	    strcmp(type, "vif") != 0));
}

/* No other keeps a copy. */
void
xen_front_told(const char *node __unused, enum xenbus_state state __unused)
{

}

/* The next one. */
int
xen_front_unit(const char *node __unused)
{

	return (-1);
}

static int
platform_probe(device_t dev)
{

	if (pci_get_vendor(dev) != PLATFORM_PCI_VENDOR ||
	    pci_get_device(dev) != PLATFORM_PCI_DEVICE)
		return (ENXIO);
	device_set_desc(dev, "Xen platform device");
	return (BUS_PROBE_DEFAULT);
}

static int
platform_sysctl_unplugged(SYSCTL_HANDLER_ARGS)
{
	char text[32];

	snprintf(text, sizeof(text),
	    "%s%s%s", (platform_unplugged & PLATFORM_DISKS) != 0 ? "disks" : "",
	    (platform_unplugged & PLATFORM_DISKS) != 0 &&
	    (platform_unplugged & PLATFORM_NICS) != 0 ? " " : "",
	    (platform_unplugged & PLATFORM_NICS) != 0 ? "nics" : "");
	return (SYSCTL_OUT(req, text, strlen(text) + 1));
}

static int
platform_attach(device_t dev)
{

	SYSCTL_ADD_PROC(device_get_sysctl_ctx(dev),
	    SYSCTL_CHILDREN(device_get_sysctl_tree(dev)), OID_AUTO,
	    "unplugged", CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE,
	    NULL, 0, platform_sysctl_unplugged, "A",
	    "Emulated devices that were unplugged");
	return (0);
}

static int
platform_detach(device_t dev __unused)
{

	return (0);
}

static device_method_t platform_methods[] = {
	DEVMETHOD(device_probe, platform_probe),
	DEVMETHOD(device_attach, platform_attach),
	DEVMETHOD(device_detach, platform_detach),
	DEVMETHOD_END
};

static driver_t platform_driver = {
	"xen_platform",
	platform_methods,
	1
};

static const struct platform_pnp {
	uint16_t	vendor;
	uint16_t	device;
} platform_pnp[] = {
	{ PLATFORM_PCI_VENDOR, PLATFORM_PCI_DEVICE },
};

DRIVER_MODULE(xen_platform, pci, platform_driver, NULL, NULL);
MODULE_PNP_INFO("U16:vendor;U16:device;", pci, xen_platform, platform_pnp,
    nitems(platform_pnp));
