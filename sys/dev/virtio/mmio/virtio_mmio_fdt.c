/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Virtio devices of a device tree (VirtIO 1.3, 4.2.1): nodes compatible with "virtio,mmio", with a reg
 * and an interrupts property.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/module.h>

#include <dev/ofw/ofw_bus.h>
#include <dev/ofw/ofw_bus_subr.h>

#include <dev/virtio/mmio/virtio_mmio.h>

static struct ofw_compat_data vtmmio_fdt_compat[] = {
	{ "virtio,mmio",	1 },
	{ NULL,			0 }
};

static int
vtmmio_fdt_probe(device_t dev)
{

	if (!ofw_bus_status_okay(dev) ||
	    ofw_bus_search_compatible(dev, vtmmio_fdt_compat)->ocd_data == 0)
		return (ENXIO);
	return (vtmmio_probe(dev));
}

static device_method_t vtmmio_fdt_methods[] = {
	DEVMETHOD(device_probe,		vtmmio_fdt_probe),

	DEVMETHOD_END
};

DEFINE_CLASS_1(vtmmio, vtmmio_fdt_driver, vtmmio_fdt_methods, sizeof(struct vtmmio_softc),
    vtmmio_driver);
DRIVER_MODULE(vtmmio, simplebus, vtmmio_fdt_driver, NULL, NULL);
DRIVER_MODULE(vtmmio, ofwbus, vtmmio_fdt_driver, NULL, NULL);
SIMPLEBUS_PNP_INFO(vtmmio_fdt_compat);
