/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The end of each case of core_front_test: the module goes, and all that it had has to go with it,
 * whatever the case has done.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>

#include <machine/bus.h>

#include <dev/xen/xen_front.h>
#include <dev/xen/xenstore_var.h>
#include <dev/xen/core/core.h>

#include <kern/bus_tree.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "kpi/sched.h"
#include "kpi/threads.h"
#include "model/xenstore_nodes.h"
#include "core_front.h"

void
core_store_stays_open(void)
{
	int began = ticks;

	(void)xenstore_doubt();
	CHECK(xen_core_store_close() == EBUSY, "closed");
	CHECK(ticks - began == 5 * hz, "%d ticks", ticks - began);
	CHECK(!xenstore_doubt(), "it was closed, and is open again");
}

void
core_front_end(device_t bus)
{
	int error;

	CHECK(xsn_out == 0, "%d values were not freed", xsn_out);
	CHECK(bus == NULL || bus->busy == 0, "the bus can't be detached");
	CHECK(kpi_mutexes == 0, "a mutex is held");
	if (bus == NULL)
		return;
	xsn_no_answer = 0;
	kpi_sleep(5 * hz);
	bus_topo_lock();
	xen_core_front_fini();
	bus_topo_unlock();
	/* ENOENT: the case has done it itself. */
	error = kpi_module_event("xenbusb_front/xenfront", MOD_UNLOAD);
	CHECK(error == 0 || error == ENOENT, "the driver does not go: error %d", error);
	error = xen_core_store_fini();
	CHECK(error == 0, "xenstore has something of the module's: error %d", error);
	CHECK(kpi_mallocs_of_type == 0, "%d pieces of memory are left", kpi_mallocs_of_type);
	CHECK(kpi_kthreads_left() == 1, "%d threads are there, and not only the kernel's",
	    kpi_kthreads_left());
}
