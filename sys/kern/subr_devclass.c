/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * devclass(9): unit numbers for devices of one name, and the drivers for their children.
 *
 * A class is made when its name first turns up and stays for ever: `dev.NAME` and unit numbers are
 * the same after a driver was unloaded and loaded again.
 *
 * Locking.  Everything here needs the topology lock (subr_bus.c).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <machine/bus.h>

#include <kern/bus_tree.h>
#include <kern/kobj_tree.h>

struct devclass_list devclasses = TAILQ_HEAD_INITIALIZER(devclasses);

/* A class may not become its own ancestor, or the search for drivers would not end. */
static void
devclass_inherit(devclass_t dc, devclass_t parent)
{
	devclass_t p;

	for (p = parent; p != NULL; p = p->parent)
		if (p == dc)
			return;
	dc->parent = parent;
}

devclass_t
devclass_find_internal(const char *name, const char *parentname, bool create)
{
	devclass_t dc;

	if (name == NULL)
		return (NULL);
	TAILQ_FOREACH(dc, &devclasses, link)
		if (strcmp(dc->name, name) == 0)
			break;
	if (dc == NULL && create) {
		dc = malloc(sizeof(*dc), M_BUS, M_WAITOK | M_ZERO);
		dc->name = strdup(name, M_BUS);
		TAILQ_INIT(&dc->drivers);
		TAILQ_INSERT_TAIL(&devclasses, dc, link);
		devclass_sysctl_init(dc);
		bus_data_generation_update();
	}
	if (dc != NULL && parentname != NULL && dc->parent == NULL)
		devclass_inherit(dc, devclass_find_internal(parentname, NULL, true));
	return (dc);
}

devclass_t
devclass_create(const char *classname)
{
	return (devclass_find_internal(classname, NULL, true));
}

devclass_t
devclass_find(const char *classname)
{
	return (devclass_find_internal(classname, NULL, false));
}

const char *
devclass_get_name(devclass_t dc)
{
	return (dc == NULL ? NULL : dc->name);
}

devclass_t
devclass_get_parent(devclass_t dc)
{
	return (dc->parent);
}

void
devclass_set_parent(devclass_t dc, devclass_t pdc)
{
	dc->parent = pdc;
}

device_t
devclass_get_device(devclass_t dc, int unit)
{
	if (dc == NULL || unit < 0 || unit >= dc->maxunit)
		return (NULL);
	return (dc->devices[unit]);
}

void *
devclass_get_softc(devclass_t dc, int unit)
{
	device_t dev = devclass_get_device(dc, unit);

	return (dev == NULL ? NULL : device_get_softc(dev));
}

int
devclass_get_maxunit(devclass_t dc)
{
	return (dc == NULL ? -1 : dc->maxunit);
}

int
devclass_get_count(devclass_t dc)
{
	int count = 0;

	for (int i = 0; i < dc->maxunit; i++)
		if (dc->devices[i] != NULL)
			count++;
	return (count);
}

int
devclass_get_devices(devclass_t dc, device_t **listp, int *countp)
{
	device_t *list;
	int n = 0;

	list = malloc(MAX(devclass_get_count(dc), 1) * sizeof(*list), M_TEMP, M_NOWAIT | M_ZERO);
	if (list == NULL)
		return (ENOMEM);
	for (int i = 0; i < dc->maxunit; i++)
		if (dc->devices[i] != NULL)
			list[n++] = dc->devices[i];
	*listp = list;
	*countp = n;
	return (0);
}

int
devclass_get_drivers(devclass_t dc, driver_t ***listp, int *countp)
{
	struct driverlink *dl;
	driver_t **list;
	int n = 0;

	TAILQ_FOREACH(dl, &dc->drivers, link)
		n++;
	list = malloc(MAX(n, 1) * sizeof(*list), M_TEMP, M_NOWAIT);
	if (list == NULL)
		return (ENOMEM);
	n = 0;
	TAILQ_FOREACH(dl, &dc->drivers, link)
		list[n++] = dl->driver;
	*listp = list;
	*countp = n;
	return (0);
}

int
devclass_find_free_unit(devclass_t dc, int unit)
{
	if (dc == NULL)
		return (unit);
	while (unit < dc->maxunit && dc->devices[unit] != NULL)
		unit++;
	return (unit);
}

/* Make room for `unit` in the table of devices. */
static void
devclass_grow(devclass_t dc, int unit)
{
	device_t *list;
	int maxunit = roundup(unit + 1, 8);

	list = malloc(maxunit * sizeof(*list), M_BUS, M_WAITOK | M_ZERO);
	if (dc->devices != NULL)
		memcpy(list, dc->devices, dc->maxunit * sizeof(*list));
	free(dc->devices, M_BUS);
	dc->devices = list;
	dc->maxunit = maxunit;
}

/* Choose the unit number of a new device: the one that the bus requests, else the lowest free. */
static int
devclass_choose_unit(devclass_t dc, device_t dev)
{
	int unit = dev->unit;

	if (unit == DEVICE_UNIT_ANY && dev->parent != NULL)
		BUS_HINT_DEVICE_UNIT(dev->parent, dev, dc->name, &unit);
	if (unit != DEVICE_UNIT_ANY && devclass_get_device(dc, unit) == NULL)
		return (unit);
	if (dev->unit != DEVICE_UNIT_ANY)
		return (DEVICE_UNIT_ANY);
	return (devclass_find_free_unit(dc, 0));
}

int
devclass_add_device(devclass_t dc, device_t dev)
{
	char name[64];
	int unit;

	unit = devclass_choose_unit(dc, dev);
	if (unit == DEVICE_UNIT_ANY) {
		printf("%s: %s%d already exists; skipping it\n", __func__, dc->name, dev->unit);
		return (EEXIST);
	}
	if (unit >= dc->maxunit)
		devclass_grow(dc, unit);
	snprintf(name, sizeof(name), "%s%d", dc->name, unit);
	dev->nameunit = strdup(name, M_BUS);
	dev->unit = unit;
	dev->devclass = dc;
	dc->devices[unit] = dev;
	return (0);
}

void
devclass_delete_device(devclass_t dc, device_t dev)
{
	if (dc == NULL || dev->devclass == NULL)
		return;
	KASSERT(dev->devclass == dc && dc->devices[dev->unit] == dev,
	    ("%s: %s is not of class %s", __func__, dev->nameunit, dc->name));
	dc->devices[dev->unit] = NULL;
	if ((dev->flags & DF_WILDCARD) != 0)
		dev->unit = DEVICE_UNIT_ANY;
	dev->devclass = NULL;
	free(dev->nameunit, M_BUS);
	dev->nameunit = NULL;
}

struct driverlink *
devclass_find_driverlink(devclass_t busclass, driver_t *driver)
{
	struct driverlink *dl;

	TAILQ_FOREACH(dl, &busclass->drivers, link)
		if (dl->driver == driver)
			return (dl);
	return (NULL);
}

/* Notify all buses of class `dc`, and of the classes that inherit from it, of a new driver. */
static void
devclass_driver_added(devclass_t dc, driver_t *driver)
{
	devclass_t child;

	for (int i = 0; i < dc->maxunit; i++)
		if (dc->devices[i] != NULL && device_is_attached(dc->devices[i]))
			BUS_DRIVER_ADDED(dc->devices[i], driver);
	TAILQ_FOREACH(child, &devclasses, link)
		if (child->parent == dc)
			devclass_driver_added(child, driver);
}

int
devclass_add_driver(devclass_t dc, driver_t *driver, int pass, devclass_t *dcp)
{
	const char *parentname = NULL;
	struct driverlink *dl;
	devclass_t own;

	bus_topo_assert();
	if (pass <= BUS_PASS_ROOT)
		return (EINVAL);
	dl = malloc(sizeof(*dl), M_BUS, M_WAITOK | M_ZERO);
	dl->driver = driver;
	dl->pass = pass;
	kobj_class_hold((kobj_class_t)driver);
	/* A driver that inherits from another also uses the drivers for the other's children. */
	if (driver->baseclasses != NULL)
		parentname = driver->baseclasses[0]->name;
	own = devclass_find_internal(driver->name, parentname, true);
	if (dcp != NULL)
		*dcp = own;
	TAILQ_INSERT_TAIL(&dc->drivers, dl, link);
	bus_data_generation_update();
	if (pass <= bus_current_pass)
		devclass_driver_added(dc, driver);
	return (0);
}

/* Is the device on a bus that looks for drivers in `busclass`? */
static bool
device_on_busclass(device_t dev, devclass_t busclass)
{
	devclass_t dc;

	if (dev->parent == NULL)
		return (false);
	for (dc = dev->parent->devclass; dc != NULL; dc = dc->parent)
		if (dc == busclass)
			return (true);
	return (false);
}

/*
 * Remove a driver from a bus.  Its devices there are detached; if one refuses the driver stays, and
 * those that had been detached by then are probed again, so that a refusal restores the previous
 * state.
 */
static int
devclass_driver_deleted(devclass_t busclass, driver_t *driver)
{
	devclass_t dc = devclass_find(driver->name);
	device_t dev;
	int error;

	if (dc == NULL)
		return (0);
	for (int i = 0; i < dc->maxunit; i++) {
		dev = dc->devices[i];
		if (dev == NULL || dev->driver != driver || !device_on_busclass(dev, busclass))
			continue;
		error = device_detach(dev);
		if (error != 0) {
			devclass_driver_added(busclass, driver);
			return (error);
		}
	}
	return (0);
}

int
devclass_delete_driver(devclass_t busclass, driver_t *driver)
{
	struct driverlink *dl;
	int error;

	bus_topo_assert();
	if (busclass == NULL)
		return (0);
	dl = devclass_find_driverlink(busclass, driver);
	if (dl == NULL) {
		printf("%s: driver %s is not registered with bus %s\n", __func__, driver->name,
		    busclass->name);
		return (ENOENT);
	}
	error = devclass_driver_deleted(busclass, driver);
	if (error != 0)
		return (error);
	TAILQ_REMOVE(&busclass->drivers, dl, link);
	free(dl, M_BUS);
	kobj_class_drop((kobj_class_t)driver);
	bus_data_generation_update();
	return (0);
}

struct sysctl_ctx_list *
devclass_get_sysctl_ctx(devclass_t dc)
{
	return (&dc->sysctl_ctx);
}

struct sysctl_oid *
devclass_get_sysctl_tree(devclass_t dc)
{
	return (dc->sysctl_tree);
}
