/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenhvm: suspension by the toolstack, of a domain with one CPU.  As in FreeBSD's core, all of it is in
 * the thread that calls the callbacks of watches; devices are suspended, and resumed in the new domain,
 * where xenstore's ring and watches come first.
 *
 * Gaps.  More CPUs; the kernel's clock.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>

#include <machine/atomic.h>
#include <machine/cpufunc.h>

#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>

#include <xen/xenstore/xenstorevar.h>
#include <xen/xenbus/xenbusvar.h>

#include "xenhvm.h"

/* FreeBSD's. */
extern bool xen_suspend_cancelled;

static device_t sus_dev;
static struct xs_watch sus_watch;

/* With interrupts off: the hypercall returns in the new domain, which has nothing of the old one. */
static int
sus_now(void)
{
	bool cancelled;
	int error;

	error = xen_suspend(&cancelled);
	xen_suspend_cancelled = error != 0 || cancelled;
	if (xen_suspend_cancelled)
		return (error);
	atomic_add_int(&xen_life, 1);
	error = xen_cpu_resume();
	if (error == 0)
		error = xen_evtchn_resume();
	if (error == 0)
		error = hvm_gnttab_map();
	if (error == 0)
		error = xen_cpu_resume_self(true);
	if (error == 0)
		error = xen_upcall_resume();
	if (error == 0)
		xen_evtchn_resume_self();
	return (error);
}

static void
sus_suspend(void)
{
	register_t flags;
	int error;

	bus_topo_lock();
	error = DEVICE_SUSPEND(sus_dev);
	if (error == 0) {
		hvm_store_suspend();
		xen_evtchn_suspend();
		flags = intr_disable();
		error = sus_now();
		intr_restore(flags);
		if (error != 0)
			panic("xenhvm: the domain does not go on (error %d)", error);
		xen_evtchn_go_on();
		hvm_store_resume(xen_suspend_cancelled);
	} else
		device_printf(sus_dev, "a device refuses to be suspended (error %d)\n", error);
	(void)DEVICE_RESUME(sus_dev);
	bus_topo_unlock();
}

static void
sus_changed(struct xs_watch *w __unused, const char **vec __unused, unsigned int n __unused)
{
	void *word;
	bool wanted;

	if (xs_read(XST_NIL, "control", "shutdown", NULL, &word) != 0)
		return;
	wanted = strcmp(word, "suspend") == 0;
	free(word, M_XENSTORE);
	if (!wanted)
		return;
	(void)hvm_store_write("control", "shutdown", "");
	sus_suspend();
}

int
hvm_suspend_init(device_t dev)
{

	sus_dev = dev;
	sus_watch.node = __DECONST(char *, "control/shutdown");
	sus_watch.callback = sus_changed;
	return (xs_register_watch(&sus_watch));
}
