/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xen_core: our front ends on FreeBSD's own Xen core.
 *
 * A kernel with "options XENHVM", such as GENERIC, has the hypercall page, the
 * upcall, the grant table and xenstore's ring; there is one of each in a
 * domain.  This module is what the module xen is where the kernel has none of
 * that: it has the same functions for front ends (xen_evtchn.h, xen_gnttab.h,
 * xenstore.h, xenbus.h), over those of the kernel.  Front ends, their bus, its
 * states, requests and watches are the same files for both.
 *
 *	xenstore0 (the kernel's)
 *	  xenbusb_front0	core_front.c: which front ends are ours
 *	  xen0			this file
 *	    xenbus0
 *	      xn0, xbd0 ...
 *
 * xen0 is the last child of xenstore0, so that it is suspended first and
 * resumed last: all front ends are held from the one to the other
 * (xenbus_suspend()).  What the kernel does meanwhile to the devices of its own
 * bus is of no account then.  It writes the state Initialising for each, which
 * is what our states begin with, and looks its back end up, of which one that
 * fails ends its loop; ours look for their back ends themselves.
 *
 * The kernel's balloon, timer, clock, console and control/shutdown stay the
 * kernel's.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/module.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <machine/atomic.h>

#include <dev/xen/xen_tunable.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenbus_var.h>
#include <dev/xen/xenstore.h>
#include <dev/xen/core/core.h>

#define	XEN_ORDER	1000000	/* after all that the kernel
				 * adds to xenstore0 */

static device_t xen_bus;	/* xenbus0, while it is there */
static uint64_t xen_suspensions, xen_cancelled;
static struct timeout_task xen_missing_task;
static bool xen_missing_ready;

static void
xen_fronts_changed(void)
{

	if (xen_bus != NULL)
		xenbus_rescan(xen_bus);
}

static void
xen_fronts_drop(const char *node)
{

	if (xen_bus != NULL)
		xenbus_drop(xen_bus, node);
}

static enum xen_core_child
xen_fronts_state(const char *node)
{
	device_t dev = xen_bus != NULL ? xenbus_device_of(xen_bus, node) : NULL;

	if (dev != NULL && device_is_attached(dev))
		return (XEN_CORE_ATTACHED);
	return (dev != NULL && device_is_alive(dev) ? XEN_CORE_BUSY :
	    XEN_CORE_NONE);
}

static const struct xen_core_fronts xen_fronts = {
	.xcf_changed = xen_fronts_changed,
	.xcf_drop = xen_fronts_drop,
	.xcf_state = xen_fronts_state,
};

/* Some time after a suspension. */
static void
xen_report_missing(void *arg __unused, int pending __unused)
{

	if (xen_bus != NULL)
		xenbus_report_missing(xen_bus);
}

static void
xen_identify(driver_t *driver __unused, device_t parent)
{

	if (device_find_child(parent, "xen", 0) == NULL)
		(void)BUS_ADD_CHILD(parent, XEN_ORDER, "xen", 0);
}

static int
xen_probe(device_t dev)
{

	device_set_desc(dev, "Front ends on the kernel's Xen core");
	return (BUS_PROBE_NOWILDCARD);
}

static void
xen_sysctl(device_t dev)
{
	struct sysctl_ctx_list *ctx = device_get_sysctl_ctx(dev);
	struct sysctl_oid *node, *tree = device_get_sysctl_tree(dev);

	xen_core_front_sysctl(ctx, tree);
	xen_evtchn_sysctl(ctx, tree);
	(void)xen_gnttab_sysctl(ctx, tree);
	xenstore_sysctl(ctx, tree);
	xenstore_watch_sysctl(ctx, tree);
	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(tree), OID_AUTO, "suspend",
	    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "Suspensions by the toolstack");
	SYSCTL_ADD_U64(ctx, SYSCTL_CHILDREN(node), OID_AUTO,
	    "count", CTLFLAG_RD, &xen_suspensions, 0,
	    "Times that the domain was suspended to be saved");
	SYSCTL_ADD_U64(ctx, SYSCTL_CHILDREN(node), OID_AUTO,
	    "cancelled", CTLFLAG_RD, &xen_cancelled, 0,
	    "Suspensions after which the same domain continued");
}

/*
 * What may fail comes first, and changes nothing then: a module that has begun
 * to go can't stay.  So kldunload(8) asks the module's drivers before it takes
 * any of them away.
 */
static int
xen_quiesce(device_t dev)
{
	int error;

	if (!xen_core_gnttab_is_idle()) {
		device_printf(dev,
		    "pages are granted to other domains: the module stays\n");
		return (EBUSY);
	}
	error = xen_core_front_return();
	if (error == 0) {
		xenstore_suspend();
		error = xen_core_store_close();
		(void)xenstore_resume(true);
	}
	if (error != 0) {
		device_printf(dev,
		    "xenstore does not answer: the module stays\n");
		xen_core_front_go_on();
		if (xen_bus != NULL)
			xenbus_rescan(xen_bus);
	}
	return (error);
}

/*
 * What attach has begun; a store that does not answer is left to
 * xen_modevent().
 */
static void
xen_end(device_t dev)
{

	xen_core_front_fini();
	if (xen_missing_ready) {
		while (taskqueue_cancel_timeout(taskqueue_thread,
		    &xen_missing_task, NULL) != 0)
			taskqueue_drain_timeout(taskqueue_thread,
			    &xen_missing_task);
		xen_missing_ready = false;
	}
	xenstore_watch_fini(dev);
	xenstore_fini(dev);
	(void)xen_core_store_fini();
	xen_gnttab_end_fini(dev);
	xen_gnttab_fini(dev);
}

static int
xen_detach(device_t dev)
{
	device_t bus = xen_bus;
	int error;

	error = xen_quiesce(dev);
	if (error != 0)
		return (error);
	xen_bus = NULL;
	error = device_delete_children(dev);
	if (error != 0) {
		xen_core_store_open();
		xen_bus = bus;
		if (bus != NULL)
			xenbus_rescan(bus);
		return (error);
	}
	xen_end(dev);
	return (0);
}

static int
xen_attach(device_t dev)
{
	device_t bus;
	int error;

	bus = device_add_child(dev, "xenbus", 0);
	if (bus == NULL)
		return (ENOMEM);
	error = xen_gnttab_init(dev);
	if (error == 0)
		error = xen_gnttab_end_init(dev);
	if (error == 0)
		error = xenstore_init(dev);
	if (error == 0)
		error = xenstore_watch_init(dev);
	if (error == 0) {
		xen_sysctl(dev);
		TIMEOUT_TASK_INIT(taskqueue_thread, &xen_missing_task, 0,
		    xen_report_missing, NULL);
		xen_missing_ready = true;
		error = xen_core_front_init(&xen_fronts);
	}
	if (error != 0) {
		(void)device_delete_children(dev);
		xen_end(dev);
		return (error);
	}
	/*
	 * While it attaches, which may take long, newbus does not call
	 * bus_driver_added for it.
	 */
	if (device_probe_and_attach(bus) == 0) {
		xen_bus = bus;
		xenbus_try_all(bus);
		xenbus_rescan(bus);
	}
	xen_core_front_release();
	return (0);
}

static int
xen_suspend_device(device_t dev __unused)
{

	xen_core_suspend();
	xen_core_store_hurry(true);
	if (xen_bus != NULL)
		xenbus_suspend(xen_bus);
	xenstore_suspend();
	xen_core_front_suspend();
	return (0);
}

static int
xen_resume_device(device_t dev)
{
	bool cancelled = !xen_core_suspended();
	int error;

	xen_core_store_hurry(false);
	xen_suspensions++;
	if (cancelled)
		xen_cancelled++;
	else
		atomic_add_int(&xen_life, 1);
	xen_core_front_resume();
	error = xenstore_resume(cancelled);
	if (error != 0)
		device_printf(dev,
		    "xenstore does not answer after the suspension (error %d): "
		    "devices stay without back ends\n", error);
	if (xen_bus != NULL)
		xenbus_resume(xen_bus, cancelled);
	/*
	 * This thread passes the events on by which back ends are found: it
	 * does not wait for them.
	 */
	if (!cancelled)
		taskqueue_enqueue_timeout(taskqueue_thread, &xen_missing_task,
		    xen_tunable(XEN_CONNECT_WAIT) * hz);
	device_printf(dev, "%s\n", cancelled ? "the suspension was cancelled" :
	    "the domain has been suspended, and goes on");
	return (0);
}

static device_method_t xen_methods[] = {
	DEVMETHOD(device_identify, xen_identify),
	DEVMETHOD(device_probe, xen_probe),
	DEVMETHOD(device_attach, xen_attach),
	DEVMETHOD(device_quiesce, xen_quiesce),
	DEVMETHOD(device_detach, xen_detach),
	DEVMETHOD(device_shutdown, bus_generic_shutdown),
	DEVMETHOD(device_suspend, xen_suspend_device),
	DEVMETHOD(device_resume, xen_resume_device),

	DEVMETHOD(bus_driver_added, bus_generic_driver_added),
	DEVMETHOD_END
};

static driver_t xen_driver = {
	"xen",
	xen_methods,
	0
};

/*
 * After xen0's own: one that could not be attached, as xenstore does not
 * answer, has left a request.
 */
static int
xen_modevent(module_t mod __unused, int what, void *arg __unused)
{

	switch (what) {
	case MOD_LOAD:
	case MOD_SHUTDOWN:
		return (0);
	case MOD_QUIESCE:
		return (xen_core_store_close());
	case MOD_UNLOAD:
		return (xen_core_store_fini());
	default:
		return (EOPNOTSUPP);
	}
}

DRIVER_MODULE(xen, xenstore, xen_driver, xen_modevent, NULL);
MODULE_VERSION(xen, 1);
MODULE_DEPEND(xen, pv, 1, 1, 1);
