/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A front end of the type "xtest", which does nothing but print which of its methods is called, and
 * the values that it read.
 *
 *	debug.xtest.type	the type, "xtest"; with "vbd" its back end is a real one
 *	debug.xtest.drop	frees the page that is granted, even if it is mapped
 *	debug.xtest.busy	stop() returns EBUSY as long as it is not 0
 *	debug.xtest.reread	reads "number" that many times, and counts what it got
 *	debug.xtest.recheck	1: xenbus_recheck(), 2: xenbus_reset()
 *	debug.xtest.setup_ms	setup() of unit 0 takes so long
 *	debug.xtest.hold	detaching unit N takes as long as bit N is set
 *	debug.xtest.detaching	so many devices wait for that
 *
 * setup() reads "number" (1 to 4096), "option" (100 at most, 7 if it is missing), "text" (7 bytes) and
 * "feature-x", grants a page and allocates an event channel.  A number that is invalid is an error,
 * one that is missing is 1.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/module.h>
#include <sys/sysctl.h>
#include <sys/time.h>

#include <machine/atomic.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xenbus.h>

#include "xtest.h"

SYSCTL_DECL(_debug_xtest);

static int front_busy;
SYSCTL_INT(_debug_xtest, OID_AUTO, busy, CTLFLAG_RW, &front_busy, 0, "stop() says EBUSY");

static char front_type[16] = "xtest";
SYSCTL_STRING(_debug_xtest, OID_AUTO, type, CTLFLAG_RDTUN, front_type, sizeof(front_type),
    "Type of front ends");

#define	FRONT_STEP_MS	20

static int front_setup_ms;
SYSCTL_INT(_debug_xtest, OID_AUTO, setup_ms, CTLFLAG_RWTUN, &front_setup_ms, 0,
    "Milliseconds that setup() of unit 0 takes");

static u_int front_hold, front_detaching;
SYSCTL_UINT(_debug_xtest, OID_AUTO, hold, CTLFLAG_RW, &front_hold, 0, "Units whose detach is to wait");
SYSCTL_UINT(_debug_xtest, OID_AUTO, detaching, CTLFLAG_RD, &front_detaching, 0,
    "Devices that wait so");

static volatile int front_reads, front_changing;
SYSCTL_INT(_debug_xtest, OID_AUTO, reads, CTLFLAG_RW, __DEVOLATILE(int *, &front_reads), 0,
    "1: otherend_changed reads the number; 2: when this is another value");
SYSCTL_INT(_debug_xtest, OID_AUTO, changing, CTLFLAG_RD, __DEVOLATILE(int *, &front_changing), 0,
    "It waits for that");

static sbintime_t front_setup_first;
static int front_setups, front_setups_ms;
SYSCTL_INT(_debug_xtest, OID_AUTO, setups, CTLFLAG_RD, &front_setups, 0, "Calls of setup()");
SYSCTL_INT(_debug_xtest, OID_AUTO, setups_ms, CTLFLAG_RD, &front_setups_ms, 0,
    "From the first one to the last one");

static int front_setup_error;
SYSCTL_INT(_debug_xtest, OID_AUTO, setup_error, CTLFLAG_RW, &front_setup_error, 0,
    "What setup() returns");

struct front_softc {
	struct xen_gnttab_pages *page;
	struct xen_evtchn *channel;
};

static void
front_event(void *arg __unused)
{

}

static int
front_publish(device_t dev, struct xenstore_tx *tx, void *arg)
{
	struct front_softc *sc = arg;
	int error;

	error = xenbus_write_number(dev, tx, "ring-ref", sc->page->gp_refs[0]);
	if (error == 0)
		error = xenbus_write_number(dev, tx, "event-channel", xen_evtchn_port(sc->channel));
	if (error == 0)
		error = xenbus_write_string(dev, tx, "protocol", "x86_64-abi");
	return (error);
}

static void
front_free(device_t dev)
{
	struct front_softc *sc = device_get_softc(dev);

	xen_evtchn_free(sc->channel);
	xen_gnttab_pages_free(sc->page);
	sc->channel = NULL;
	sc->page = NULL;
}

static void
front_note_setup(void)
{
	sbintime_t now = sbinuptime();

	if (front_setups++ == 0)
		front_setup_first = now;
	front_setups_ms = (now - front_setup_first) / SBT_1MS;
}

static int
front_setup(device_t dev, enum xenbus_state *next __unused)
{
	struct front_softc *sc = device_get_softc(dev);
	struct xen_evtchn_params params = {
		.xep_name = "xtest",
		.xep_type = INTR_TYPE_MISC,
		.xep_cpu = -1,
		.xep_handler = front_event,
	};
	char text[8];
	uint64_t number = 1, option;
	int error, ms, text_error;

	front_note_setup();
	error = xenbus_read_number(dev, XENBUS_BACK, "number", 1, 4096, &number);
	option = xenbus_read_option(dev, XENBUS_BACK, "option", 100, 7);
	text_error = xenbus_read_string(dev, XENBUS_BACK, "text", text, sizeof(text));
	device_printf(dev, "setup: number %ju (%d) option %ju text %s (%d) feature %d\n",
	    (uintmax_t)number, error, (uintmax_t)option, text, text_error,
	    xenbus_feature(dev, "feature-x"));
	if (error != 0 && error != ENOENT)
		return (error);
	if (front_setup_error != 0)
		return (front_setup_error);
	/* As long as it is to take, or until it is to take no time any more. */
	for (ms = 0; ms < front_setup_ms && device_get_unit(dev) == 0; ms += FRONT_STEP_MS)
		pause("xtestf", howmany(FRONT_STEP_MS * hz, 1000));
	error = xen_gnttab_pages_alloc(xenbus_get_otherend_id(dev), 1, M_WAITOK, &sc->page);
	if (error == 0)
		error = xen_evtchn_alloc(xenbus_get_otherend_id(dev), &params, &sc->channel);
	if (error == 0)
		error = xenbus_publish(dev, front_publish, sc);
	if (error != 0)
		front_free(dev);
	return (error);
}

static int
front_live(device_t dev)
{
	uint64_t number;
	int error;

	error = xenbus_read_number(dev, XENBUS_BACK, "live-number", 0, 10, &number);
	device_printf(dev, "live (%d)\n", error);
	return (error == ENOENT ? 0 : error);
}

static int
front_stop(device_t dev, bool gone)
{

	device_printf(dev, "stop: gone %d\n", gone);
	return (front_busy != 0 ? EBUSY : 0);
}

static void
front_release(device_t dev)
{

	device_printf(dev, "release\n");
	front_free(dev);
}

static void
front_lost(device_t dev)
{

	device_printf(dev, "lost\n");
}

static void
front_changed(device_t dev, const char *node)
{
	uint64_t number = 0;
	int error;

	if (front_reads == 0) {
		device_printf(dev, "changed: \"%s\"\n", node);
		return;
	}
	/* A value that is read when dom0 wants it so. */
	front_changing = 1;
	while (front_reads == 2)
		pause("xtestc", 1);
	front_changing = 0;
	error = xenbus_read_number(dev, XENBUS_BACK, "number", 1, 4096, &number);
	device_printf(dev, "changed: \"%s\", number %ju (%d)\n", node, (uintmax_t)number, error);
}

static int
front_probe(device_t dev)
{

	if (strcmp(xenbus_get_type(dev), front_type) != 0)
		return (ENXIO);
	device_set_desc(dev, "Front end of a test");
	return (BUS_PROBE_DEFAULT);
}

static int
front_attach(device_t dev __unused)
{

	return (0);
}

static int
front_detach(device_t dev)
{

	atomic_add_int(&front_detaching, 1);
	while ((atomic_load_int(&front_hold) & 1 << device_get_unit(dev)) != 0)
		pause("xtestd", 1);
	atomic_add_int(&front_detaching, -1);
	xenbus_leave(dev);
	return (0);
}

static device_t
front_first(void)
{

	return (devclass_get_device(devclass_find("xtestfront"), 0));
}

/* A sysctl that is written: -1 if there is a front end to do it with, else what to return. */
static int
front_asked(SYSCTL_HANDLER_ARGS, int *value, device_t *dev)
{
	int error;

	*value = 0;
	*dev = front_first();
	error = sysctl_handle_int(oidp, value, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	return (*dev == NULL ? ENXIO : -1);
}

static int
front_sysctl_reread(SYSCTL_HANDLER_ARGS)
{
	u_int bad = 0, good = 0, i, strange = 0;
	uint64_t value;
	device_t dev;
	int error, n;

	error = front_asked(oidp, arg1, arg2, req, &n, &dev);
	if (error != -1)
		return (error);
	for (i = 0; i < (u_int)n; i++) {
		value = 0;
		if (xenbus_read_number(dev, XENBUS_BACK, "number", 1, 4096, &value) != 0)
			bad++;
		else if (value >= 1 && value <= 4096)
			good++;
		else
			strange++;
	}
	device_printf(dev, "read %d: good %u bad %u strange %u\n", n, good, bad, strange);
	return (0);
}
SYSCTL_PROC(_debug_xtest, OID_AUTO, reread, CTLTYPE_INT | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    front_sysctl_reread, "I", "Read the number that many times");

static int
front_sysctl_drop(SYSCTL_HANDLER_ARGS)
{
	struct front_softc *sc;
	device_t dev;
	int error, what;

	error = front_asked(oidp, arg1, arg2, req, &what, &dev);
	if (error != -1)
		return (error);
	sc = device_get_softc(dev);
	xen_gnttab_pages_free(sc->page);
	sc->page = NULL;
	return (0);
}
SYSCTL_PROC(_debug_xtest, OID_AUTO, drop, CTLTYPE_INT | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    front_sysctl_drop, "I", "Free the page that is granted");

static int
front_sysctl_recheck(SYSCTL_HANDLER_ARGS)
{
	device_t dev;
	int error, what;

	error = front_asked(oidp, arg1, arg2, req, &what, &dev);
	if (error != -1)
		return (error);
	switch (what) {
	case 1:
		xenbus_recheck(dev);
		return (0);
	case 2:
		xenbus_reset(dev);
		return (0);
	default:
		return (EINVAL);
	}
}
SYSCTL_PROC(_debug_xtest, OID_AUTO, recheck, CTLTYPE_INT | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    front_sysctl_recheck, "I", "1: recheck, 2: reset");

static device_method_t front_methods[] = {
	DEVMETHOD(device_probe, front_probe),
	DEVMETHOD(device_attach, front_attach),
	DEVMETHOD(device_detach, front_detach),

	DEVMETHOD(xenfront_setup, front_setup),
	DEVMETHOD(xenfront_live, front_live),
	DEVMETHOD(xenfront_stop, front_stop),
	DEVMETHOD(xenfront_release, front_release),
	DEVMETHOD(xenfront_lost, front_lost),
	DEVMETHOD(xenfront_otherend_changed, front_changed),
	DEVMETHOD_END
};

static driver_t front_driver = {
	"xtestfront",
	front_methods,
	sizeof(struct front_softc)
};

XENBUS_DRIVER_MODULE(xtestfront, front_driver, NULL, NULL);
