/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The virtio drivers of a kernel, as far as newbus sees them: a bus driver that
 * takes each virtio function of PCI, as FreeBSD's virtio_pci does, and drivers
 * for its children under FreeBSD's names.  None touches its device.  What is
 * not there, as in a kernel that was built without it, is a driver for
 * consoles.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/module.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pcivar.h>

static uintptr_t
stock_type(device_t dev)
{
	uint16_t device = pci_get_device(dev);

	if (pci_get_vendor(dev) != 0x1af4 || device < 0x1000 || device > 0x107f)
		return (0);
	return (device < 0x1040 ? pci_get_subdevice(dev) : device - 0x1040);
}

static int
stock_bus_probe(device_t dev)
{

	if (stock_type(dev) == 0)
		return (ENXIO);
	device_set_desc(dev, "a virtio device of the kernel's");
	return (BUS_PROBE_DEFAULT);
}

static int
stock_bus_attach(device_t dev)
{
	device_t child;

	child = device_add_child(dev, NULL, -1);
	if (child == NULL)
		return (ENXIO);
	device_set_ivars(child, (void *)stock_type(dev));
	(void)device_probe_and_attach(child);
	return (0);
}

static int
stock_bus_detach(device_t dev)
{

	return (device_delete_children(dev));
}

static device_method_t stock_bus_methods[] = {
	DEVMETHOD(device_probe,		stock_bus_probe),
	DEVMETHOD(device_attach,	stock_bus_attach),
	DEVMETHOD(device_detach,	stock_bus_detach),
	DEVMETHOD(bus_driver_added,	bus_generic_driver_added),

	DEVMETHOD_END
};

static driver_t stock_bus_driver = { "virtio_pci", stock_bus_methods, 1 };
DRIVER_MODULE(stock_virtio_pci, pci, stock_bus_driver, NULL, NULL);

static int
stock_attach(device_t dev __unused)
{

	return (0);
}

static int
stock_detach(device_t dev __unused)
{

	return (0);
}

#define	STOCK_DRIVER(name, type)					\
	static int							\
	name ## _probe(device_t dev)					\
	{								\
									\
		if ((uintptr_t)device_get_ivars(dev) != (type))		\
			return (ENXIO);					\
		device_set_desc(dev, "the kernel's " #name);		\
		return (BUS_PROBE_DEFAULT);				\
	}								\
	static device_method_t name ## _methods[] = {			\
		DEVMETHOD(device_probe, name ## _probe),		\
		DEVMETHOD(device_attach, stock_attach),			\
		DEVMETHOD(device_detach, stock_detach),			\
		DEVMETHOD_END						\
	};								\
	static driver_t name ## _driver = { #name, name ## _methods, 1 };	\
	DRIVER_MODULE(stock_ ## name, virtio_pci, name ## _driver, NULL, NULL)

STOCK_DRIVER(vtnet, 1);
STOCK_DRIVER(vtblk, 2);
STOCK_DRIVER(vtrnd, 4);
STOCK_DRIVER(vtballoon, 5);
STOCK_DRIVER(vtscsi, 8);
MODULE_VERSION(stock, 1);
