/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xen: the root of what Xen gives to a domain, a device on nexus that is there
 * when CPUID shows Xen.
 *
 *	nexus0
 *	  xen0			hypercalls, upcalls, event channels, grant
 *				table, xenstore, control
 *	    xenbus0		front ends
 *	      xn0, xbd0 ...
 *
 * The parts (xen_var.h) are begun one after the other, each needing those
 * before it.  xen_level is how far that came, and is lowered again in reverse
 * when one fails.
 *
 * Once event channels are set up the module stays: Xen has been given memory
 * that it does not release, and other domains may have more of it mapped.
 *
 * Attaching needs all CPUs to run.  A module that the loader brought comes
 * before them in a kernel that starts them after its devices (without "options
 * EARLY_AP_STARTUP"): then xen0 is added once they do.
 *
 * A FreeBSD kernel with "options XENHVM" has all of this built in, and then
 * this module does not attach.
 *
 * Gaps.  Detaching.  PV guests, in which nothing here would work.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/module.h>
#include <sys/smp.h>
#include <sys/sysctl.h>

#include <machine/bus.h>

#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenbus_var.h>

#include "clock_if.h"

static struct root_hold_token *xen_hold;	/* for clocks and CPUs; root
						 * waits for us */

struct xen_softc {
	u_int	xen_level;
	char	xen_version[16];
};

static const struct xen_part {
	int	(*xpt_init)(device_t);
	void	(*xpt_fini)(device_t);
} xen_parts[] = {
	{ xen_hypercall_init, xen_hypercall_fini },
	{ xen_cpu_init, xen_cpu_fini },
	{ xen_upcall_init, xen_upcall_fini },
	{ xen_evtchn_init, xen_evtchn_fini },
	{ xen_gnttab_init, xen_gnttab_fini },
	{ xen_gnttab_end_init, xen_gnttab_end_fini },
	{ xenstore_init, xenstore_fini },
	{ xenstore_watch_init, xenstore_watch_fini },
	{ xen_suspend_init, xen_suspend_fini },
	{ xen_control_init, xen_control_fini },
	{ xen_clock_init, xen_clock_fini },
	{ xen_timer_init, xen_timer_fini },
};

static void
xen_identify(driver_t *driver __unused, device_t parent)
{

	if (xen_cpuid_base() == 0 ||
	    device_find_child(parent, "xen", 0) != NULL)
		return;
	if (xen_is_taken()) {
		printf(
		    "xen: this kernel has its own Xen support (options XENHVM)\n");
		return;
	}
	if (!cold && (mp_ncpus == 1 || smp_started))
		(void)BUS_ADD_CHILD(parent, 0, "xen", 0);
	else if (xen_hold == NULL)
		xen_hold = root_mount_hold("xen");
}

static int
xen_probe(device_t dev)
{
	u_int major, minor;

	xen_version(&major, &minor);
	device_set_descf(dev, "Xen %u.%u", major, minor);
	return (BUS_PROBE_NOWILDCARD);
}

static void
xen_lower(device_t dev)
{
	struct xen_softc *sc = device_get_softc(dev);

	while (sc->xen_level > 0)
		xen_parts[--sc->xen_level].xpt_fini(dev);
	(void)device_delete_children(dev);
}

static void
xen_sysctl(device_t dev)
{
	struct xen_softc *sc = device_get_softc(dev);
	struct sysctl_ctx_list *ctx = device_get_sysctl_ctx(dev);
	struct sysctl_oid *tree = device_get_sysctl_tree(dev);
	u_int major, minor;

	xen_version(&major, &minor);
	snprintf(sc->xen_version, sizeof(sc->xen_version),
	    "%u.%u", major, minor);
	SYSCTL_ADD_STRING(ctx, SYSCTL_CHILDREN(tree), OID_AUTO,
	    "version", CTLFLAG_RD, sc->xen_version, 0, "Version of Xen");
	xen_hypercall_sysctl(ctx, tree);
	xen_evtchn_sysctl(ctx, tree);
	xen_clock_sysctl(ctx, tree);
	xen_gnttab_table_sysctl(ctx, xen_gnttab_sysctl(ctx, tree));
	xenstore_sysctl(ctx, tree);
	xenstore_watch_sysctl(ctx, tree);
	xen_suspend_sysctl(ctx, tree);
	xen_timer_sysctl(ctx, tree);
}

static int
xen_attach(device_t dev)
{
	struct xen_softc *sc = device_get_softc(dev);
	device_t bus;
	int error;

	/*
	 * Upcalls need a child to be allocated for; it attaches when there is a
	 * xenstore.
	 */
	bus = device_add_child(dev, "xenbus", 0);
	if (bus == NULL)
		return (ENOMEM);
	for (error = 0; error == 0 && sc->xen_level < nitems(xen_parts);
	    sc->xen_level++)
		error = xen_parts[sc->xen_level].xpt_init(dev);
	if (error != 0) {
		xen_lower(dev);
		return (error);
	}
	xen_sysctl(dev);
	/*
	 * While it attaches, which may take long, newbus does not call
	 * bus_driver_added for it.
	 */
	if (device_probe_and_attach(bus) == 0)
		xenbus_try_all(bus);
	xen_suspend_allow();
	return (0);
}

static int
xen_detach(device_t dev __unused)
{

	return (EBUSY);
}

static int
xen_modevent(module_t mod __unused, int what, void *arg __unused)
{

	switch (what) {
	case MOD_QUIESCE:
	case MOD_UNLOAD:
		return (xen_pinned ? EBUSY : 0);
	case MOD_LOAD:
	case MOD_SHUTDOWN:
		return (0);
	default:
		return (EOPNOTSUPP);
	}
}

static device_method_t xen_methods[] = {
	DEVMETHOD(device_identify, xen_identify),
	DEVMETHOD(device_probe, xen_probe),
	DEVMETHOD(device_attach, xen_attach),
	DEVMETHOD(device_detach, xen_detach),
	DEVMETHOD(device_shutdown, bus_generic_shutdown),
	DEVMETHOD(device_suspend, bus_generic_suspend),
	DEVMETHOD(device_resume, bus_generic_resume),

	DEVMETHOD(bus_remap_intr, xen_upcall_remap),
	DEVMETHOD(bus_driver_added, bus_generic_driver_added),

	DEVMETHOD(clock_gettime, xen_clock_gettime),
	DEVMETHOD(clock_settime, xen_clock_settime),
	DEVMETHOD_END
};

static driver_t xen_driver = {
	"xen",
	xen_methods,
	sizeof(struct xen_softc)
};

DRIVER_MODULE(xen, nexus, xen_driver, xen_modevent, NULL);

static void
xen_late(void *arg __unused)
{
	device_t dev, nexus;

	if (xen_hold == NULL)
		return;
	bus_topo_lock();
	nexus = devclass_get_device(devclass_find("nexus"), 0);
	dev = BUS_ADD_CHILD(nexus, 0, "xen", 0);
	if (dev != NULL)
		(void)device_probe_and_attach(dev);
	bus_topo_unlock();
	root_mount_rel(xen_hold);
}
/*
 * The CPUs start before devices are configured, or nearly last
 * (EARLY_AP_STARTUP).
 */
SYSINIT(xen_late, SI_SUB_LAST, SI_ORDER_ANY, xen_late, NULL);

MODULE_VERSION(xen, 1);
MODULE_DEPEND(xen, pv, 1, 1, 1);
