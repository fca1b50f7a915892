/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * legacy: the bus for what is found by looking, not by asking the firmware.
 *
 * On a PC without an ACPI interpreter the host bridge of PCI is such a thing.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <machine/bus.h>

#include <x86/legacyvar.h>

static MALLOC_DEFINE(M_LEGACYDEV, "legacydrv", "legacy system device");

/* What a child of legacy0 is, if it is a host bridge. */
struct legacy_device {
	uint32_t	lg_pcidomain;
	uint32_t	lg_pcibus;
	int		lg_pcislot;
	int		lg_pcifunc;
};

static void
legacy_identify(driver_t *driver, device_t parent)
{
	if (device_find_child(parent, "legacy", DEVICE_UNIT_ANY) == NULL)
		(void)BUS_ADD_CHILD(parent, 0, "legacy", 0);
}

static int
legacy_probe(device_t dev)
{
	device_set_desc(dev, "legacy system");
	device_quiet(dev);
	return (BUS_PROBE_SPECIFIC);
}

static int
legacy_attach(device_t dev)
{
	bus_identify_children(dev);
	bus_attach_children(dev);
	return (0);
}

static device_t
legacy_add_child(device_t bus, u_int order, const char *name, int unit)
{
	struct legacy_device *lg;
	device_t child;

	child = device_add_child_ordered(bus, order, name, unit);
	if (child == NULL)
		return (NULL);
	lg = malloc(sizeof(*lg), M_LEGACYDEV, M_WAITOK | M_ZERO);
	lg->lg_pcislot = -1;
	lg->lg_pcifunc = -1;
	device_set_ivars(child, lg);
	return (child);
}

static void
legacy_child_deleted(device_t bus, device_t child)
{
	free(device_get_ivars(child), M_LEGACYDEV);
}

static int
legacy_read_ivar(device_t bus, device_t child, int which, uintptr_t *result)
{
	struct legacy_device *lg = device_get_ivars(child);

	switch (which) {
	case LEGACY_IVAR_PCIDOMAIN:
		*result = lg->lg_pcidomain;
		return (0);
	case LEGACY_IVAR_PCIBUS:
		*result = lg->lg_pcibus;
		return (0);
	case LEGACY_IVAR_PCISLOT:
		*result = lg->lg_pcislot;
		return (0);
	case LEGACY_IVAR_PCIFUNC:
		*result = lg->lg_pcifunc;
		return (0);
	default:
		return (ENOENT);
	}
}

static int
legacy_write_ivar(device_t bus, device_t child, int which, uintptr_t value)
{
	struct legacy_device *lg = device_get_ivars(child);

	switch (which) {
	case LEGACY_IVAR_PCIBUS:
		lg->lg_pcibus = value;
		return (0);
	case LEGACY_IVAR_PCISLOT:
		lg->lg_pcislot = value;
		return (0);
	case LEGACY_IVAR_PCIFUNC:
		lg->lg_pcifunc = value;
		return (0);
	default:
		return (EINVAL);
	}
}

static device_method_t legacy_methods[] = {
	DEVMETHOD(device_identify,	legacy_identify),
	DEVMETHOD(device_probe,		legacy_probe),
	DEVMETHOD(device_attach,	legacy_attach),
	DEVMETHOD(device_detach,	bus_generic_detach),
	DEVMETHOD(device_shutdown,	bus_generic_shutdown),
	DEVMETHOD(device_suspend,	bus_generic_suspend),
	DEVMETHOD(device_resume,	bus_generic_resume),

	DEVMETHOD(bus_add_child,	legacy_add_child),
	DEVMETHOD(bus_child_deleted,	legacy_child_deleted),
	DEVMETHOD(bus_driver_added,	bus_generic_driver_added),
	DEVMETHOD(bus_read_ivar,	legacy_read_ivar),
	DEVMETHOD(bus_write_ivar,	legacy_write_ivar),
	DEVMETHOD(bus_alloc_resource,	bus_generic_alloc_resource),
	DEVMETHOD(bus_adjust_resource,	bus_generic_adjust_resource),
	DEVMETHOD(bus_release_resource,	bus_generic_release_resource),
	DEVMETHOD(bus_activate_resource, bus_generic_activate_resource),
	DEVMETHOD(bus_deactivate_resource, bus_generic_deactivate_resource),
	DEVMETHOD(bus_setup_intr,	bus_generic_setup_intr),
	DEVMETHOD(bus_teardown_intr,	bus_generic_teardown_intr),

	DEVMETHOD_END
};

static driver_t legacy_driver = {
	"legacy",
	legacy_methods,
	1,
};

EARLY_DRIVER_MODULE(legacy, nexus, legacy_driver, NULL, NULL, BUS_PASS_BUS);
