/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * newbus: the tree of buses and devices, and how drivers find theirs.
 *
 *	root0 -- nexus0 -+- legacy0 -- pcib0 -- pci0 -+- pcib1 -- pci1 -- vtpci0 -- vtnet0
 *	                 +- ...                       +- vtpci1 -- vtblk0
 *
 * A device is a kobj(9) object whose class is its driver; without a driver its class is `null`.
 * It sits below one parent, the bus, whose driver answers for its resources, interrupts and
 * attributes through the BUS_* methods.  A driver is registered for a class of buses
 * (DRIVER_MODULE(9)); registering one makes every attached bus of that class probe its idle
 * children again, so modules may be loaded in any order.
 *
 *	subr_devclass.c		names, unit numbers, registered drivers
 *	subr_device.c		the tree, and what is known about one device
 *	subr_bus_attach.c	probe, attach, detach
 *	subr_bus_resource.c	resources: calls of drivers, lists of buses
 *	subr_bus_generic.c	methods that most buses share
 *	subr_bus_rman.c		resource methods that most buses share
 *	subr_bus_props.c	properties hung on devices
 *	subr_bus_sysctl.c	dev.NAME.UNIT
 *	subr_bus.c		the root, passes, driver modules, the lock
 *
 * Passes.  At boot the tree is walked several times, each time with drivers of a higher pass
 * number: first buses, last everything else.  A driver loaded later is at once in the last pass.
 *
 * Locking.  The topology lock (bus_topo_lock()) is Giant, as in FreeBSD.  It is recursive, and a
 * thread that sleeps releases it for that time; so a probe or an attach may sleep, and a list that
 * is walked across one may change: those loops only continue through siblings, whose removal needs
 * their parent's driver.
 *
 * Gaps.  No devctl(4) events, no deferred attach, no wiring of units by location.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/limits.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <machine/bus.h>

#include <kern/bus_tree.h>
#include <kern/kobj_tree.h>

device_t root_bus;
devclass_t root_devclass;
int bus_current_pass = BUS_PASS_ROOT;

/* Counts changes of the tree, for readers that copy it out piece by piece. */
static int bus_data_generation = 1;

void
bus_topo_lock(void)
{
	mtx_lock(bus_topo_mtx());
}

void
bus_topo_unlock(void)
{
	mtx_unlock(bus_topo_mtx());
}

struct mtx *
bus_topo_mtx(void)
{
	return (&Giant);
}

void
bus_topo_assert(void)
{
	GIANT_REQUIRED;
}

int
bus_get_pass(void)
{
	return (bus_current_pass);
}

int
bus_data_generation_check(int generation)
{
	return (generation != bus_data_generation);
}

void
bus_data_generation_update(void)
{
	atomic_add_int(&bus_data_generation, 1);
}

/* The lowest pass above the present one that some driver was registered for. */
static int
bus_next_pass(void)
{
	struct driverlink *dl;
	devclass_t dc;
	int next = INT_MAX;

	TAILQ_FOREACH(dc, &devclasses, link)
		TAILQ_FOREACH(dl, &dc->drivers, link)
			if (dl->pass > bus_current_pass && dl->pass < next)
				next = dl->pass;
	return (next);
}

/*
 * Probe and attach all that can be.  Called once, when interrupts and timers are set up.
 */
void
root_bus_configure(void)
{
	bus_topo_lock();
	while (bus_current_pass < BUS_PASS_DEFAULT) {
		bus_current_pass = bus_next_pass();
		BUS_NEW_PASS(root_bus);
	}
	bus_topo_unlock();
}

static struct resource *
root_alloc_resource(device_t dev, device_t child, int type, int *rid, rman_res_t start,
    rman_res_t end, rman_res_t count, u_int flags)
{
	return (NULL);
}

static int
root_print_child(device_t dev, device_t child)
{
	int n;

	n = bus_print_child_header(dev, child);
	n += printf("\n");
	return (n);
}

/* Every device below the root is present unless its own bus reports otherwise. */
static int
root_child_present(device_t dev, device_t child)
{
	return (-1);
}

static kobj_method_t root_methods[] = {
	KOBJMETHOD(device_shutdown,	bus_generic_shutdown),
	KOBJMETHOD(device_suspend,	bus_generic_suspend),
	KOBJMETHOD(device_resume,	bus_generic_resume),

	KOBJMETHOD(bus_print_child,	root_print_child),
	KOBJMETHOD(bus_read_ivar,	bus_generic_read_ivar),
	KOBJMETHOD(bus_write_ivar,	bus_generic_write_ivar),
	KOBJMETHOD(bus_add_child,	bus_generic_add_child),
	KOBJMETHOD(bus_driver_added,	bus_generic_driver_added),
	KOBJMETHOD(bus_alloc_resource,	root_alloc_resource),
	KOBJMETHOD(bus_child_present,	root_child_present),

	KOBJMETHOD_END
};

static driver_t root_driver = {
	"root",
	root_methods,
	1,
};

static void
root_bus_create(void)
{
	bus_topo_lock();
	root_bus = device_create(NULL, "root", 0);
	device_set_desc(root_bus, "System root bus");
	kobj_delete((kobj_t)root_bus, NULL);
	kobj_init((kobj_t)root_bus, (kobj_class_t)&root_driver);
	root_bus->driver = &root_driver;
	root_bus->state = DS_ATTACHED;
	root_devclass = root_bus->devclass;
	bus_topo_unlock();
}

static int
root_bus_handler(module_t mod, int what, void *arg)
{
	switch (what) {
	case MOD_LOAD:
		root_bus_create();
		return (0);
	case MOD_SHUTDOWN:
		bus_topo_lock();
		(void)device_shutdown(root_bus);
		bus_topo_unlock();
		return (0);
	default:
		return (EOPNOTSUPP);
	}
}

static moduledata_t root_bus_mod = {
	"rootbus",
	root_bus_handler,
	NULL
};
DECLARE_MODULE(rootbus, root_bus_mod, SI_SUB_DRIVERS, SI_ORDER_FIRST);

/* Check for each device of the driver whether it could be detached. */
static int
driver_quiesce(devclass_t busclass, driver_t *driver)
{
	devclass_t dc = devclass_find(driver->name);
	device_t dev;
	int error;

	if (dc == NULL || devclass_find_driverlink(busclass, driver) == NULL)
		return (0);
	for (int i = 0; i < dc->maxunit; i++) {
		dev = dc->devices[i];
		if (dev == NULL || dev->driver != driver)
			continue;
		error = device_quiesce(dev);
		if (error != 0)
			return (error);
	}
	return (0);
}

static int
driver_load(module_t mod, struct driver_module_data *dmd, devclass_t busclass)
{
	int error = 0;

	if (dmd->dmd_chainevh != NULL)
		error = dmd->dmd_chainevh(mod, MOD_LOAD, dmd->dmd_chainarg);
	if (error == 0)
		error = devclass_add_driver(busclass, dmd->dmd_driver, dmd->dmd_pass,
		    dmd->dmd_devclass);
	return (error);
}

static int
driver_unload(module_t mod, struct driver_module_data *dmd, devclass_t busclass)
{
	int error;

	error = devclass_delete_driver(busclass, dmd->dmd_driver);
	if (error == 0 && dmd->dmd_chainevh != NULL)
		error = dmd->dmd_chainevh(mod, MOD_UNLOAD, dmd->dmd_chainarg);
	return (error);
}

int
driver_module_handler(module_t mod, int what, void *arg)
{
	struct driver_module_data *dmd = arg;
	devclass_t busclass;
	int error;

	bus_topo_lock();
	busclass = devclass_create(dmd->dmd_busname);
	switch (what) {
	case MOD_LOAD:
		error = driver_load(mod, dmd, busclass);
		break;
	case MOD_UNLOAD:
		error = driver_unload(mod, dmd, busclass);
		break;
	case MOD_QUIESCE:
		error = driver_quiesce(busclass, dmd->dmd_driver);
		if (error == 0 && dmd->dmd_chainevh != NULL)
			error = dmd->dmd_chainevh(mod, MOD_QUIESCE, dmd->dmd_chainarg);
		/* A handler that does not support the event does not object to it. */
		if (error == EOPNOTSUPP)
			error = 0;
		break;
	default:
		error = EOPNOTSUPP;
		break;
	}
	bus_topo_unlock();
	return (error);
}
