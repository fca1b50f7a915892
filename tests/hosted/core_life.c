/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The module xen_core on a model of FreeBSD's Xen core (model/xenhvm_core.c): its life, event channels,
 * grants; and, in core_requests.c, xenstore.
 *
 * Newbus and taskqueue(9) are the tree kernel's.  Front ends are of other tests: here is written down
 * what they and xenbus0 are called for.  After each case the module goes, and has to leave nothing.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/sysctl.h>

#include <machine/bus.h>

#include <xen/xen-os.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xen_gnttab_var.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenbus_var.h>
#include <dev/xen/xenstore.h>
#include <dev/xen/core/core.h>

#include <kern/bus_tree.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "kpi/sched.h"
#include "kpi/threads.h"
#include "model/xenhvm_core.h"
#include "core_life.h"

#define	CALLED(text) do {						\
	CHECK(strcmp(calls, (text)) == 0, "called: %s", calls);		\
	calls[0] = '\0';						\
} while (0)

bool xen_suspend_cancelled;
device_t core_dev;

/* Calls of core_front.c and xenbus.c, in their order. */
static char calls[256];
static int init_error, return_error, bus_error, detach_error;
static const struct xen_core_fronts *fronts;
static device_t front;			/* what xenbus0 has */
static int sysctls;			/* of tunables */

static void
called(const char *what)
{

	strlcat(calls, what, sizeof(calls));
	strlcat(calls, " ", sizeof(calls));
}

/* core_front.c */

int
xen_core_front_init(const struct xen_core_fronts *xcf)
{

	called("init");
	fronts = xcf;
	return (init_error);
}

void
xen_core_front_fini(void)
{

	called("fini");
}

int
xen_core_front_return(void)
{

	called("return");
	return (return_error);
}

void
xen_core_front_go_on(void)
{

	called("go-on");
}

void
xen_core_front_release(void)
{

	called("release");
}

void
xen_core_front_suspend(void)
{

	called("fronts-suspend");
}

void
xen_core_front_resume(void)
{

	called("fronts-resume");
}

void
xen_core_front_sysctl(struct sysctl_ctx_list *ctx __unused, struct sysctl_oid *parent __unused)
{
}

/* xenbus.c */

void
xenbus_try_all(device_t bus __unused)
{

	called("try");
}

void
xenbus_suspend(device_t bus __unused)
{

	/* Requests that nobody can wait for any more are given up at once. */
	called("suspend");
	if (hc_silent)
		CHECK(xenstore_write(NULL, "a", "b", "c") == ETIMEDOUT, "answered");
}

void
xenbus_resume(device_t bus __unused, bool cancelled)
{
	char *value;

	called(cancelled ? "go-on-as-before" : "resume");
	if (!hc_silent) {
		CHECK(xenstore_read(NULL, "domid", NULL, &value, NULL) == 0, "no answer");
		xenstore_free(value);
	}
}

void
xenbus_report_missing(device_t bus __unused)
{

	called("missing");
}

void
xenbus_rescan(device_t bus __unused)
{

	called("rescan");
}

void
xenbus_drop(device_t bus __unused, const char *node)
{

	called("drop");
	called(node);
}

device_t
xenbus_device_of(device_t bus __unused, const char *node)
{

	return (strcmp(node, "device/vbd/1") == 0 ? front : NULL);
}

static int
bus_probe(device_t dev __unused)
{

	return (0);
}

static int
bus_attach(device_t dev __unused)
{

	called("attach");
	return (bus_error);
}

static int
bus_detach(device_t dev __unused)
{

	called("detach");
	return (detach_error);
}

static device_method_t bus_methods[] = {
	DEVMETHOD(device_probe, bus_probe),
	DEVMETHOD(device_attach, bus_attach),
	DEVMETHOD(device_detach, bus_detach),
	DEVMETHOD_END
};
static driver_t bus_driver = { "xenbus", bus_methods, 0 };
DRIVER_MODULE(xenbus, xen, bus_driver, NULL, NULL);

/* A device on it, which is busy for as long as the test likes. */
static int front_error;

static int
front_attach(device_t dev)
{

	if (front_error == 0)
		CHECK(fronts->xcf_state("device/vbd/1") == XEN_CORE_BUSY, "state");
	CHECK(dev == front, "another");
	return (front_error);
}

static device_method_t front_methods[] = {
	DEVMETHOD(device_probe, bus_probe),
	DEVMETHOD(device_attach, front_attach),
	DEVMETHOD(device_detach, bus_probe),
	DEVMETHOD_END
};
static driver_t front_driver = { "xbd", front_methods, 0 };
DRIVER_MODULE(xbd, xenbus, front_driver, NULL, NULL);

static device_t
xen0(void)
{

	return (devclass_get_device(devclass_find("xen"), 0));
}

static bool
is_attached(void)
{

	return (xen0() != NULL && device_is_attached(xen0()));
}

/* The kernel, and then the module. */
static void
load(void)
{

	kpi_quiet = true;
	kpi_sysinits();
	sysctls = kpi_sysctls;
	CHECK(kpi_module_event("rootbus", MOD_LOAD) == 0, "rootbus");
	CHECK(kpi_module_event("root/xenstore", MOD_LOAD) == 0, "xenstore");
	root_bus_configure();
	CHECK(kpi_module_event("xen/xenbus", MOD_LOAD) == 0, "xenbus");
	CHECK(kpi_module_event("xenbus/xbd", MOD_LOAD) == 0, "xbd");
	bus_topo_lock();
	CHECK(kpi_module_event("xenstore/xen", MOD_LOAD) == 0, "xen");
	bus_topo_unlock();
	kpi_settle();
	core_dev = xen0();
}

void
core_begin(void)
{

	hc_set("domid", "7");
	load();
	CHECK(is_attached(), "%s", kpi_line);
	CALLED("init attach try rescan release ");
	ASKED("Rdomid ");
}

static int
quiesce(void)
{
	int error;

	bus_topo_lock();
	error = kpi_module_event("xenstore/xen", MOD_QUIESCE);
	bus_topo_unlock();
	return (error);
}

static int
unload(void)
{
	int error;

	bus_topo_lock();
	error = kpi_module_event("xenstore/xen", MOD_UNLOAD);
	bus_topo_unlock();
	return (error);
}

static void
threads_of(const void *arg)
{
	int error;

	kpi_type = M_XEN;
	hc_begin();
	((void (*)(void))(uintptr_t)arg)();
	hc_silent = false;
	hc_failure = 0;
	kpi_sleep(hz);
	error = unload();
	/* ENOENT: the case has done it itself. */
	CHECK(error == 0 || error == ENOENT, "the module does not go: error %d: %s", error, kpi_line);
	CHECK(kpi_mallocs_of_type == 0, "%d pieces of memory are left", kpi_mallocs_of_type);
	CHECK(kpi_sysctls == sysctls, "%d sysctls are left", kpi_sysctls - sysctls);
	CHECK(kpi_kthreads_left() == 1, "%d threads are there, and not only the kernel's",
	    kpi_kthreads_left());
	CHECK(kpi_callouts == 0, "%d callouts are left", kpi_callouts);
	CHECK(hc_watches == 0 && hc_transactions == 0, "%u watches, %d transactions", hc_watches,
	    hc_transactions);
	CHECK(hc_channels == 0, "%d channels are left", hc_channels);
	CHECK(hc_refs_left == HC_REFS - 8, "%u references are left", hc_refs_left);
	CHECK(kpi_mutexes == 0, "a mutex is held");
}

void
core_run(const void *arg)
{

	kpi_threads(threads_of, arg);
}

/* The module. */

static void
module_comes_and_goes(void)
{

	core_begin();
	CHECK(strcmp(device_get_desc(core_dev), "Front ends on the kernel's Xen core") == 0, "%s",
	    device_get_desc(core_dev));
	CHECK(quiesce() == 0, "it stays");
	CALLED("return ");
	CHECK(unload() == 0, "it stays");
	CALLED("return detach fini ");
	/* And again, as if nothing had been. */
	CHECK(kpi_mallocs_of_type == 0 && hc_refs_left == HC_REFS - 8, "not all was given back");
	bus_topo_lock();
	CHECK(kpi_module_event("xenstore/xen", MOD_LOAD) == 0, "not loaded");
	bus_topo_unlock();
	CHECK(is_attached(), "not attached");
	CALLED("init attach try rescan release ");
}


/* Each thing that attach needs. */
static void
module_that_can_not_begin(void)
{
	static const struct {
		int		 thread, init;
		const char	*domid, *calls;
		int		 error;		/* that is said of xenstore; 0: nothing is */
	} table[] = {
		{ 1, 0, "7", "fini ", ENOMEM }, { 2, 0, "7", "fini ", ENOMEM },
		{ 3, 0, "7", "fini ", 0 },
		{ 0, EIO, "7", "init fini ", 0 }, { 0, 0, NULL, "fini ", ENOENT },
		{ 0, 0, "", "fini ", EIO }, { 0, 0, "7x", "fini ", EIO },
		{ 0, 0, "65536", "fini ", EIO },
	};
	char line[64];
	u_int i;
	int before;

	hc_set("domid", "65535");
	load();
	CHECK(is_attached(), "%s", kpi_line);
	calls[0] = '\0';
	CHECK(unload() == 0, "it stays");
	CALLED("return detach fini ");
	before = kpi_mallocs;
	for (i = 0; i < nitems(table); i++) {
		kpi_thread_fails = table[i].thread;
		init_error = table[i].init;
		hc_set("domid", table[i].domid);
		kpi_line_before[0] = '\0';
		bus_topo_lock();
		CHECK(kpi_module_event("xenstore/xen", MOD_LOAD) == 0, "xen");
		bus_topo_unlock();
		CHECK(!is_attached(), "%u: attached", i);
		CALLED(table[i].calls);
		snprintf(line, sizeof(line), "xen0: xenstore does not answer (error %d)\n",
		    table[i].error);
		CHECK((strcmp(kpi_line_before, line) == 0) == (table[i].error != 0), "%u: %s", i,
		    kpi_line_before);
		kpi_settle();
		CHECK(kpi_kthreads_left() == 1, "%u: %d threads", i, kpi_kthreads_left());
		CHECK(unload() == 0, "it stays");
		CALLED("");
		CHECK(kpi_mallocs_of_type == 0 && kpi_sysctls == sysctls && kpi_mallocs <= before,
		    "%u: not all was given back", i);
	}
	kpi_thread_fails = init_error = 0;
}

/* Of which there are front ends later; without it the module has none. */
static void
bus_that_does_not_attach(void)
{

	hc_set("domid", "7");
	bus_error = ENXIO;
	load();
	CHECK(is_attached(), "not attached");
	CALLED("init attach release ");
	fronts->xcf_changed();
	fronts->xcf_drop("device/vbd/1");
	CHECK(fronts->xcf_state("device/vbd/1") == XEN_CORE_NONE, "a device of no bus");
	CHECK(DEVICE_SUSPEND(core_dev) == 0, "suspend");
	CALLED("fronts-suspend ");
	CHECK(DEVICE_RESUME(core_dev) == 0, "resume");
	CALLED("fronts-resume ");
	kpi_sleep(11 * hz);
	CALLED("");
	return_error = EBUSY;
	CHECK(quiesce() == EBUSY, "it goes");
	CALLED("return go-on ");
	return_error = bus_error = 0;
}

static void
front_ends_are_of_the_bus(void)
{
	device_t bus, others;

	core_begin();
	bus = device_find_child(core_dev, "xenbus", 0);
	fronts->xcf_changed();
	CALLED("rescan ");
	fronts->xcf_drop("device/vif/0");
	CALLED("drop device/vif/0 ");
	CHECK(fronts->xcf_state("device/vbd/1") == XEN_CORE_NONE, "there is none");
	front = device_add_child(bus, "xbd", 0);
	CHECK(fronts->xcf_state("device/vbd/1") == XEN_CORE_NONE, "it is not alive");
	CHECK(fronts->xcf_state("device/vbd/2") == XEN_CORE_NONE, "another");
	bus_topo_lock();
	CHECK(device_probe_and_attach(front) == 0, "not attached");
	CHECK(fronts->xcf_state("device/vbd/1") == XEN_CORE_ATTACHED, "it is attached");
	CHECK(device_detach(front) == 0, "not detached");
	CHECK(fronts->xcf_state("device/vbd/1") == XEN_CORE_NONE, "it is detached");
	others = front;
	front = NULL;
	CHECK(device_delete_child(bus, others) == 0, "not deleted");
	bus_topo_unlock();
}

/* What may fail comes first, and then all goes on. */
static void
module_that_stays(void)
{
	grant_ref_t ref;

	core_begin();
	CHECK(xen_gnttab_alloc(&ref, 1) == 0, "no reference");
	CHECK(quiesce() == EBUSY, "it goes");
	SAID("xen0: pages are granted to other domains: the module stays\n");
	CALLED("");
	hc_refs[ref].hr_mapped = true;
	CHECK(xen_gnttab_end(&ref, 1) == 1, "not deferred");
	CHECK(unload() == EBUSY && is_attached(), "it goes");
	CALLED("");
	hc_refs[ref].hr_mapped = false;
	kpi_sleep(2 * hz);
	return_error = EBUSY;
	CHECK(quiesce() == EBUSY, "it goes");
	SAID("xen0: xenstore does not answer: the module stays\n");
	CALLED("return go-on rescan ");
	return_error = 0;
	/* A request that has no answer. */
	hc_silent = true;
	CHECK(xenstore_read(NULL, "domid", NULL, &(char *){ NULL }, NULL) == ETIMEDOUT, "answered");
	CHECK(quiesce() == EBUSY, "it goes");
	SAID("xen0: xenstore does not answer: the module stays\n");
	CALLED("return go-on rescan ");
	hc_silent = false;
	kpi_sleep(2);
	/* The bus stays. */
	detach_error = EBUSY;
	CHECK(unload() == EBUSY && is_attached(), "it goes");
	CALLED("return detach rescan ");
	fronts->xcf_changed();
	CALLED("rescan ");
	CHECK(xenstore_write(NULL, "a", "b", "c") == 0, "closed");
	detach_error = 0;
}

/* One that could not be attached has left a request that has no answer. */
static void
request_outlives_an_attach_that_failed(void)
{

	hc_silent = true;
	load();
	CHECK(!is_attached(), "attached");
	CALLED("fini ");
	CHECK(quiesce() == EBUSY, "it goes");
	hc_silent = false;
	kpi_sleep(2);
	CHECK(quiesce() == 0, "it stays");
	CHECK(unload() == 0, "it stays");
	bus_topo_lock();
	CHECK(kpi_module_event("xenstore/xen", MOD_LOAD) == 0, "xen");
	bus_topo_unlock();
}

static void
domain_is_suspended(void)
{
	u_int life = xen_life;

	core_begin();
	xen_suspend_cancelled = false;
	CHECK(DEVICE_SUSPEND(core_dev) == 0, "suspend");
	CHECK(xen_suspend_cancelled, "a device that refuses resumes the others");
	CALLED("suspend fronts-suspend ");
	/* The kernel's, when Xen has made a new domain of it. */
	xen_suspend_cancelled = false;
	hc_set("domid", "9");
	CHECK(DEVICE_RESUME(core_dev) == 0, "resume");
	SAID("xen0: the domain has been suspended, and goes on\n");
	CALLED("fronts-resume resume ");
	CHECK(xen_life == life + 1, "life %u", xen_life);
	ASKED("Rdomid Rdomid ");
	CHECK(kpi_sysctl_value("suspend.count") == 1 && kpi_sysctl_value("suspend.cancelled") == 0,
	    "counted");
	kpi_sleep(10 * hz - 1);
	CALLED("");
	kpi_sleep(2);
	CALLED("missing ");
	/* One that is cancelled changes nothing. */
	CHECK(DEVICE_SUSPEND(core_dev) == 0, "suspend");
	CALLED("suspend fronts-suspend ");
	CHECK(DEVICE_RESUME(core_dev) == 0, "resume");
	SAID("xen0: the suspension was cancelled\n");
	CALLED("fronts-resume go-on-as-before ");
	CHECK(xen_life == life + 1, "life %u", xen_life);
	ASKED("Rdomid ");
	CHECK(kpi_sysctl_value("suspend.count") == 2 && kpi_sysctl_value("suspend.cancelled") == 1,
	    "counted");
	kpi_sleep(11 * hz);
	CALLED("");
}

/* Nobody waits for answers then, and the time afterwards is as always. */
static void
suspension_does_not_wait_for_xenstore(void)
{
	int began = ticks;

	core_begin();
	hc_silent = true;
	CHECK(DEVICE_SUSPEND(core_dev) == 0, "suspend");
	CHECK(ticks == began, "%d ticks", ticks - began);
	xen_suspend_cancelled = false;
	CHECK(DEVICE_RESUME(core_dev) == 0, "resume");
	CHECK(ticks - began == hz, "%d ticks", ticks - began);
	SAID("xen0: xenstore does not answer after the suspension (error 60): "
	    "devices stay without back ends\n");
	CALLED("suspend fronts-suspend fronts-resume resume ");
	/* The module goes before the report is due. */
}

/* Event channels. */

static u_int handled, filtered;
static int filter_says = FILTER_SCHEDULE_THREAD;

static int
filter(void *arg)
{

	CHECK(arg == &handled, "another argument");
	filtered++;
	return (filter_says);
}

static void
handler(void *arg)
{

	CHECK(arg == &handled, "another argument");
	handled++;
}

static struct xen_evtchn *
channel(const char *name, driver_filter_t *f, driver_intr_t *h, bool brake)
{
	struct xen_evtchn_params params = { .xep_name = name, .xep_type = INTR_TYPE_NET, .xep_cpu = -1,
	    .xep_filter = f, .xep_handler = h, .xep_arg = &handled, .xep_brake = brake };
	struct xen_evtchn *ec = NULL;

	CHECK(xen_evtchn_alloc(3, &params, &ec) == 0, "no channel");
	CHECK(hc_last->ch_remote == 3 && hc_last->ch_type == (INTR_TYPE_NET | INTR_MPSAFE), "type");
	CHECK(xen_evtchn_port(ec) == hc_last->ch_port, "port");
	return (ec);
}

/* In vmstat -i the device stands before the name. */
static void
channels_have_names(void)
{
	static const struct {
		const char	*name, *dev, *rest;
	} table[] = {
		{ "xbd0:q1", "xbd0", "q1" }, { "xbd0", "xbd0", "xbd0" }, { "xbd1:q", "xen0", "xbd1:q" },
		{ "xyz0:q1", "xen0", "xyz0:q1" }, { ":q", "xen0", ":q" },
		{ "a23456789012345:q", "xen0", "a23456789012345:q" }, { "abcdefghijklmnop0:q", "xen0",
		"abcdefghijklmnop0:q" },
	};
	struct xen_evtchn_params params = { .xep_name = "xbd0:q", .xep_handler = handler };
	struct xen_evtchn *ec;
	device_t dev;
	u_int i;

	core_begin();
	dev = device_add_child(device_find_child(core_dev, "xenbus", 0), "xbd", 0);
	for (i = 0; i < nitems(table); i++) {
		ec = channel(table[i].name, NULL, handler, false);
		CHECK(strcmp(device_get_nameunit(hc_last->ch_dev), table[i].dev) == 0, "%s: %s",
		    table[i].name, device_get_nameunit(hc_last->ch_dev));
		CHECK(strcmp(hc_last->ch_name, table[i].rest) == 0, "%s: %s", table[i].name,
		    hc_last->ch_name);
		CHECK(kpi_sysctl_value("evtchn.in_use") == 1, "in use");
		CHECK(hc_last->ch_filter == NULL, "a filter for nothing");
		xen_evtchn_notify(ec);
		CHECK(hc_last->ch_signals == 1, "not sent");
		xen_evtchn_free(ec);
		CHECK(kpi_sysctl_value("evtchn.in_use") == 0, "in use");
	}
	hc_bind_error = ENOSPC;
	CHECK(xen_evtchn_alloc(3, &params, &ec) == ENOSPC, "a channel");
	hc_bind_error = 0;
	CHECK(kpi_sysctl_value("evtchn.in_use") == 0 && hc_channels == 0, "in use");
	xen_evtchn_free(NULL);
	bus_topo_lock();
	CHECK(device_delete_child(device_find_child(core_dev, "xenbus", 0), dev) == 0, "not deleted");
	bus_topo_unlock();
}

static void
filter_may_be_all(void)
{
	struct xen_evtchn *ec;

	core_begin();
	ec = channel("x:f", filter, handler, false);
	CHECK(hc_event(hc_last) && filtered == 1 && handled == 1, "%u, %u", filtered, handled);
	filter_says = FILTER_HANDLED;
	CHECK(!hc_event(hc_last) && filtered == 2 && handled == 1, "%u, %u", filtered, handled);
	xen_evtchn_free(ec);
	ec = channel("x:f", filter, NULL, false);
	CHECK(hc_last->ch_handler == NULL, "a thread for nothing");
	xen_evtchn_free(ec);
	filter_says = FILTER_SCHEDULE_THREAD;
}

/* 32 events without work may follow each other at once; further ones wait a tick each. */
static void
storm_is_braked(void)
{
	struct xen_evtchn *ec;
	u_int i;

	core_begin();
	ec = channel("x:b", NULL, handler, true);
	for (i = 0; i < 33; i++)
		CHECK(hc_event(hc_last), "event %u was not handled", i);
	CHECK(kpi_callouts == 0 && kpi_sysctl_value("evtchn.braked") == 0, "braked");
	CHECK(hc_event(hc_last) && handled == 34, "%u", handled);
	CHECK(kpi_callouts == 1 && kpi_sysctl_value("evtchn.braked") == 1, "not braked");
	CHECK(!hc_event(hc_last) && hc_unmasked == 0, "not masked");
	kpi_sleep(1);
	CHECK(hc_unmasked == 1 && kpi_callouts == 0, "masked");
	/* Without storms it is not masked; one with work is unmasked at once. */
	xen_evtchn_worked(ec);
	CHECK(hc_event(hc_last), "masked");
	CHECK(hc_unmasked == 2 && kpi_callouts == 0, "not unmasked at once");
	CHECK(hc_event(hc_last) && hc_unmasked == 2, "masked");
	/* So few in a time are none. */
	for (i = 0; i < 40; i++) {
		CHECK(hc_event(hc_last), "event %u was not handled", i);
		kpi_sleep(11);
	}
	CHECK(hc_unmasked == 2 && kpi_sysctl_value("evtchn.braked") == 1, "braked");
	for (i = 0; i < 32; i++)
		CHECK(hc_event(hc_last), "event %u was not handled", i);
	kpi_sleep(10);
	CHECK(hc_event(hc_last) && hc_event(hc_last), "masked");
	CHECK(kpi_sysctl_value("evtchn.braked") == 2, "%u ticks later it is one still", hz / 10);
	/* It is closed before it is unmasked. */
	CHECK(kpi_callouts == 1, "not to be unmasked");
	xen_evtchn_free(ec);
	kpi_sleep(2);
	CHECK(hc_unmasked == 2, "another's port was unmasked");
	/* A storm that begins before we know the port. */
	hc_early = 40;
	ec = channel("x:b", NULL, handler, true);
	hc_early = 0;
	CHECK(hc_event(hc_last) && !hc_event(hc_last), "not braked");
	kpi_sleep(2);
	hc_unmasked--;
	xen_evtchn_free(ec);
	/* One without a brake, and one that the core has forgotten. */
	ec = channel("x:n", filter, handler, false);
	for (i = 0; i < 80; i++)
		CHECK(hc_event(hc_last), "event %u was not handled", i);
	xen_evtchn_free(ec);
	ec = channel("x:b", NULL, handler, true);
	for (i = 0; i < 34; i++)
		CHECK(hc_event(hc_last), "event %u was not handled", i);
	hc_last->ch_port = 0;
	kpi_sleep(2);
	CHECK(hc_unmasked == 2, "no port was unmasked");
	xen_evtchn_free(ec);
}

/* Grants. */

/* A number of them. */
#define	grants(which)	kpi_sysctl_value("gnttab." which)

static void
references_are_a_stock(void)
{
	static grant_ref_t refs[HC_REFS];
	u_int all, i, room;

	core_begin();
	CHECK(xen_gnttab_room(&room) == 2 * 512 - 8 && room == 2 * 512 - 8, "room for %u", room);
	CHECK(xen_gnttab_alloc(refs, 3) == 0, "none");
	CHECK(hc_refs_asked == 1 && hc_refs_left == HC_REFS - 8 - 128, "%u left", hc_refs_left);
	CHECK(grants("free") == 125 && grants("in_use") == 3, "stock");
	CHECK(xen_gnttab_alloc(refs + 3, 125) == 0 && hc_refs_asked == 1, "asked for more");
	CHECK(xen_gnttab_alloc(refs + 128, 1) == 0 && hc_refs_asked == 2, "not asked for");
	for (i = 0; i < 129; i++)
		xen_gnttab_grant(refs[i], 5, ptoa(i) + 12, i % 2 != 0);
	CHECK(hc_refs[refs[77]].hr_granted && hc_refs[refs[77]].hr_frame == 77 &&
	    hc_refs[refs[77]].hr_domid == 5 && hc_refs[refs[77]].hr_readonly, "another grant");
	CHECK(!hc_refs[refs[78]].hr_readonly, "only to be read");
	CHECK(xen_gnttab_room(&all) == 2 * 512 - 8 - 129, "room");
	/* More than a chunk at once, and what is left of all. */
	CHECK(xen_gnttab_alloc(refs + 129, 127 + 300) == 0 && hc_refs_left == HC_REFS - 8 - 556, "%u",
	    hc_refs_left);
	CHECK(xen_gnttab_alloc(refs + 556, 460) == 0 && hc_refs_left == 0, "%u", hc_refs_left);
	CHECK(xen_gnttab_room(&all) == 0, "room");
	i = hc_refs_asked;
	CHECK(xen_gnttab_alloc(refs + 1016, 1) == ENOSPC && hc_refs_asked == i + 2, "%u",
	    hc_refs_asked - i);
	CHECK(grants("in_use") == 1016, "counted");
	CHECK(xen_gnttab_end(refs, 1016) == 0, "deferred");
	CHECK(grants("free") == 1016 && grants("in_use") == 0, "stock");
	CHECK(grants("total_deferred") == 0, "deferred");
}

/* The last ones are asked for one by one. */
static void
last_references_are_less_than_a_chunk(void)
{
	grant_ref_t refs[10];

	core_begin();
	hc_refs_left = 5;
	CHECK(xen_gnttab_alloc(refs, 6) == ENOSPC && grants("free") == 0, "six");
	CHECK(xen_gnttab_alloc(refs, 3) == 0 && hc_refs_left == 2, "%u", hc_refs_left);
	CHECK(xen_gnttab_alloc(refs + 3, 2) == 0 && hc_refs_left == 0, "%u", hc_refs_left);
	CHECK(xen_gnttab_end(refs, 5) == 0, "deferred");
	CHECK(xen_gnttab_alloc(refs, 5) == 0 && xen_gnttab_end(refs, 5) == 0, "from the stock");
	hc_refs_left += HC_REFS - 8 - 5;
}

/* Xen's table, or what a Xen without the call has. */
static void
size_of_the_table(void)
{
	static const struct {
		int	error, status;
		u_int	frames, room;
	} table[] = {
		{ 0, GNTST_okay, 64, 64 * 512 - 8 }, { -ENOSYS, GNTST_okay, 64, 4 * 512 - 8 },
		{ 0, GNTST_general_error, 64, 4 * 512 - 8 }, { 0, GNTST_okay, 0, 4 * 512 - 8 },
		{ 0, GNTST_okay, 1, 512 - 8 },
	};
	char line[64];
	u_int all, i;

	core_begin();
	bootverbose = 1;
	for (i = 0; i < nitems(table); i++) {
		hc_query_error = table[i].error;
		hc_query_status = table[i].status;
		hc_query_frames = table[i].frames;
		CHECK(xen_gnttab_init(core_dev) == 0, "not begun");
		CHECK(xen_gnttab_room(&all) == table[i].room, "%u", all);
		snprintf(line, sizeof(line), "xen0: %u grant references at most\n", table[i].room);
		SAID(line);
	}
	bootverbose = 0;
}

/* What is mapped is looked at each second, and used for nothing else. */
static void
grant_that_is_mapped_is_deferred(void)
{
	grant_ref_t refs[4];
	u_int all;

	core_begin();
	CHECK(xen_gnttab_alloc(refs, 4) == 0, "none");
	xen_gnttab_grant(refs[0], 1, 0, false);
	xen_gnttab_grant(refs[2], 1, 0, false);
	hc_refs[refs[0]].hr_mapped = hc_refs[refs[2]].hr_mapped = true;
	CHECK(xen_gnttab_end(refs, 3) == 2, "not deferred");
	CHECK(grants("deferred") == 2 && grants("in_use") == 1 &&
	    grants("free") == 125, "counts");
	CHECK(xen_gnttab_room(&all) == all - 3, "deferred ones are no room");
	kpi_sleep(hz);
	CHECK(grants("deferred") == 2, "ended");
	hc_refs[refs[2]].hr_mapped = false;
	kpi_sleep(hz - 1);
	CHECK(grants("deferred") == 2, "too early");
	kpi_sleep(2);
	CHECK(grants("deferred") == 1 && hc_refs[refs[0]].hr_granted &&
	    !hc_refs[refs[2]].hr_granted, "not ended");
	hc_refs[refs[0]].hr_mapped = false;
	kpi_sleep(hz + 1);
	CHECK(grants("deferred") == 0 && grants("free") == 127, "counts");
	CHECK(grants("total_deferred") == 2, "counts");
	CHECK(kpi_callouts == 0, "it is looked for more");
	CHECK(xen_gnttab_end(refs + 3, 1) == 0, "deferred");
}

static void
pages_that_are_granted(void)
{
	struct xen_gnttab_pages *gp, *more;
	grant_ref_t refs[126];
	u_int i;

	core_begin();
	CHECK(xen_gnttab_pages_alloc(6, 3, M_WAITOK, &gp) == 0, "none");
	CHECK(gp->gp_npages == 3 && gp->gp_nrefs == 3, "%u pages, %u references", gp->gp_npages,
	    gp->gp_nrefs);
	for (i = 0; i < 3 * PAGE_SIZE; i++)
		CHECK(((char *)gp->gp_va)[i] == 0, "byte %u", i);
	for (i = 0; i < 3; i++)
		CHECK(hc_refs[gp->gp_refs[i]].hr_frame == atop((uintptr_t)gp->gp_va) + i &&
		    hc_refs[gp->gp_refs[i]].hr_domid == 6 && !hc_refs[gp->gp_refs[i]].hr_readonly,
		    "page %u", i);
	CHECK(xen_gnttab_pages_alloc(6, XEN_GNTTAB_MAX_PAGES, M_WAITOK, &more) == 0, "none");
	hc_refs[gp->gp_refs[1]].hr_mapped = true;
	hc_refs[more->gp_refs[0]].hr_mapped = hc_refs[more->gp_refs[15]].hr_mapped = true;
	xen_gnttab_pages_free(more);
	xen_gnttab_pages_free(gp);
	CHECK(grants("deferred") == 3 && grants("in_use") == 0 &&
	    grants("total_deferred") == 3, "counts");
	CHECK(gp->gp_nrefs == 1 && more->gp_nrefs == 2, "%u, %u", gp->gp_nrefs, more->gp_nrefs);
	hc_refs[more->gp_refs[0]].hr_mapped = false;
	kpi_sleep(hz + 1);
	CHECK(grants("deferred") == 2 && more->gp_nrefs == 1, "counts");
	/* The one that is left, of those that there were. */
	hc_refs[more->gp_refs[0]].hr_mapped = hc_refs[gp->gp_refs[0]].hr_mapped = false;
	i = kpi_mallocs;
	kpi_sleep(hz + 1);
	CHECK(grants("deferred") == 0 && kpi_mallocs == (int)i - 4, "not freed");
	CHECK(grants("free") == 128, "%ju", (uintmax_t)grants("free"));
	xen_gnttab_pages_free(NULL);
	/* Each thing that it needs. */
	for (i = 1; i <= 2; i++) {
		kpi_fail_after = i;
		CHECK(xen_gnttab_pages_alloc(6, 3, M_NOWAIT, &gp) == ENOMEM, "%u: there are", i);
	}
	CHECK(xen_gnttab_alloc(refs, nitems(refs)) == 0, "none");
	i = kpi_mallocs;
	hc_refs_left -= HC_REFS - 8 - 128;
	CHECK(xen_gnttab_pages_alloc(6, 3, M_NOWAIT, &gp) == ENOSPC, "more than there are");
	hc_refs_left += HC_REFS - 8 - 128;
	CHECK(kpi_mallocs == (int)i, "%d pieces of memory are left", kpi_mallocs - (int)i);
	CHECK(grants("in_use") == 126 && xen_gnttab_end(refs, nitems(refs)) == 0, "counts");
	CHECK(grants("in_use") == 0 && grants("free") == 128, "counts");
}

#define	TEST(name, descr)	CORE_TEST(name, descr)
#define	MAX_TESTS	80

static const struct hosted_test life_tests[] = {
	TEST(module_comes_and_goes, "And leaves nothing"),
	TEST(module_that_can_not_begin, "Leaves nothing either"),
	TEST(bus_that_does_not_attach, "Has no front ends"),
	TEST(front_ends_are_of_the_bus, "And their states"),
	TEST(module_that_stays, "While others have something of it"),
	TEST(request_outlives_an_attach_that_failed, "And the module does"),
	TEST(domain_is_suspended, "Or is not"),
	TEST(suspension_does_not_wait_for_xenstore, "Which does not answer"),
	TEST(channels_have_names, "With that of the device"),
	TEST(filter_may_be_all, "Of a channel's handler"),
	TEST(storm_is_braked, "After 32 events without work"),
	TEST(references_are_a_stock, "Of chunks"),
	TEST(last_references_are_less_than_a_chunk, "And are given out"),
	TEST(size_of_the_table, "As Xen says"),
	TEST(grant_that_is_mapped_is_deferred, "Until it is not"),
	TEST(pages_that_are_granted, "And freed when nobody has them"),
};

const struct hosted_test *
hosted_tests(void)
{
	static struct hosted_test tests[MAX_TESTS + 1];
	u_int i, n = 0;

	for (i = 0; i < nitems(life_tests); i++)
		tests[n++] = life_tests[i];
	for (i = 0; i < core_nrequest_tests; i++)
		tests[n++] = core_request_tests[i];
	return (tests);
}
