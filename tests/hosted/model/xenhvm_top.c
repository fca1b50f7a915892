/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The device below root that FreeBSD's core has its buses on: xenstore0.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/module.h>

static void
top_identify(driver_t *driver, device_t parent)
{

	if (device_find_child(parent, driver->name, 0) == NULL)
		(void)BUS_ADD_CHILD(parent, 0, driver->name, 0);
}

static int
top_probe(device_t dev __unused)
{

	return (0);
}

static int
top_attach(device_t dev)
{

	bus_identify_children(dev);
	bus_attach_children(dev);
	return (0);
}

static device_method_t top_methods[] = {
	DEVMETHOD(device_identify, top_identify),
	DEVMETHOD(device_probe, top_probe),
	DEVMETHOD(device_attach, top_attach),
	DEVMETHOD(bus_add_child, bus_generic_add_child),
	DEVMETHOD(bus_driver_added, bus_generic_driver_added),
	DEVMETHOD_END
};

static driver_t top_driver = { "xenstore", top_methods, 0 };
DRIVER_MODULE(xenstore, root, top_driver, NULL, NULL);
