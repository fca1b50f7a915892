/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Virtio devices of a device tree (VirtIO 1.3, 4.2.1): nodes compatible with
 * "virtio,mmio", with a reg and an interrupts property.
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

static struct virtio_transport vtmmio_simplebus_transport;

static bool
vtmmio_fdt_match(device_t dev)
{

	return (ofw_bus_status_okay(dev) &&
	    ofw_bus_search_compatible(dev, vtmmio_fdt_compat)->ocd_data != 0);
}

static uint32_t
vtmmio_fdt_type(device_t dev)
{

	return (vtmmio_fdt_match(dev) ? vtmmio_type(dev) : 0);
}

static int
vtmmio_fdt_probe(device_t dev)
{

	return (vtmmio_fdt_match(dev) ?
	    vtmmio_probe(&vtmmio_simplebus_transport, dev) : ENXIO);
}

static device_method_t vtmmio_fdt_methods[] = {
	DEVMETHOD(device_probe,		vtmmio_fdt_probe),

	DEVMETHOD_END
};

DEFINE_CLASS_1(vtmmio, vtmmio_fdt_driver, vtmmio_fdt_methods,
    sizeof(struct vtmmio_softc), vtmmio_driver);
static struct virtio_transport vtmmio_simplebus_transport =
    VTMMIO_TRANSPORT("simplebus", vtmmio_fdt_driver, vtmmio_fdt_type, false);
static struct virtio_transport vtmmio_ofwbus_transport =
    VTMMIO_TRANSPORT("ofwbus", vtmmio_fdt_driver, vtmmio_fdt_type, false);

VIRTIO_TRANSPORT_MODULE(vtmmio, simplebus, vtmmio_simplebus_transport);
VIRTIO_TRANSPORT_MODULE(vtmmio, ofwbus, vtmmio_ofwbus_transport);
SIMPLEBUS_PNP_INFO(vtmmio_fdt_compat);
