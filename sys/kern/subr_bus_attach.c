/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The life of a device: probe, attach, detach, suspend, resume, shutdown.
 *
 *	               probe                attach
 *	  NOTPRESENT ---------> ALIVE --> ATTACHING --> ATTACHED
 *	      ^                               |             |
 *	      +-------------------------------+-------------+
 *	                attach failed              detach
 *
 * Probing offers the device to each driver of its bus's class, then of the classes that one
 * inherits from, and takes the one with the best answer: 0 at once, else the highest negative
 * number (DEVICE_PROBE(9)).  The winner is probed a second time, for a later candidate may have
 * overwritten the data that its first probe left in the softc or the description.
 *
 * Locking.  The topology lock is held throughout.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <machine/bus.h>

#include <net/vnet.h>

#include <kern/bus_tree.h>

/* The best candidate so far. */
struct probe_best {
	struct driverlink *dl;
	int		result;
};

/* The result of the probe by `dl`'s driver: 0 or negative, or an error. */
static int
device_ask_driver(device_t child, struct driverlink *dl)
{
	bool named = child->devclass != NULL;
	int result;

	result = device_set_driver(child, dl->driver);
	if (result != 0)
		return (result);
	if (!named && device_set_devclass(child, dl->driver->name) != 0) {
		(void)device_set_driver(child, NULL);
		return (ENXIO);
	}
	if (resource_disabled(dl->driver->name, child->unit))
		result = ENXIO;
	else
		result = DEVICE_PROBE(child);
	if (!named)
		(void)device_set_devclass(child, NULL);
	device_verbose(child);
	(void)device_set_driver(child, NULL);
	/* A driver that returns NOWILDCARD or less takes only devices that were created for it. */
	if (result <= BUS_PROBE_NOWILDCARD && (child->flags & DF_FIXEDCLASS) == 0)
		result = ENXIO;
	return (result);
}

static void
device_find_best(device_t dev, device_t child, struct probe_best *best)
{
	struct driverlink *dl;
	devclass_t dc;
	int result;

	for (dc = dev->devclass; dc != NULL; dc = dc->parent) {
		TAILQ_FOREACH(dl, &dc->drivers, link) {
			if (dl->pass > bus_current_pass)
				continue;
			if (child->devclass != NULL &&
			    strcmp(child->devclass->name, dl->driver->name) != 0)
				continue;
			result = device_ask_driver(child, dl);
			if (result <= 0 && (best->dl == NULL || result > best->result)) {
				best->dl = dl;
				best->result = result;
			}
			if (result == 0)
				return;
		}
		/* A driver for the bus itself takes precedence over inherited ones. */
		if (best->dl != NULL)
			return;
	}
}

int
device_probe_child(device_t bus, device_t child)
{
	struct probe_best best = { NULL, 0 };
	int error;

	bus_topo_assert();
	if (child->state == DS_ALIVE)
		return (0);
	device_find_best(bus, child, &best);
	if (best.dl == NULL)
		return (ENXIO);
	if (child->devclass == NULL) {
		error = device_set_devclass(child, best.dl->driver->name);
		if (error != 0)
			return (error);
	}
	error = device_set_driver(child, best.dl->driver);
	if (error != 0)
		return (error);
	if (DEVICE_PROBE(child) > 0) {
		(void)device_set_driver(child, NULL);
		if ((child->flags & DF_FIXEDCLASS) == 0)
			(void)device_set_devclass(child, NULL);
		return (ENXIO);
	}
	child->state = DS_ALIVE;
	bus_data_generation_update();
	return (0);
}

int
device_probe(device_t dev)
{
	int error;

	bus_topo_assert();
	if (dev->state >= DS_ALIVE)
		return (-1);
	if ((dev->flags & DF_ENABLED) == 0) {
		if (bootverbose && device_get_name(dev) != NULL)
			device_printf(dev, "not probed (disabled)\n");
		return (-1);
	}
	error = device_probe_child(dev->parent, dev);
	if (error != 0 && bus_current_pass == BUS_PASS_DEFAULT &&
	    (dev->flags & DF_DONENOMATCH) == 0) {
		BUS_PROBE_NOMATCH(dev->parent, dev);
		dev->flags |= DF_DONENOMATCH;
	}
	return (error);
}

/* Undo the effects of a probe and of an attach that failed or was undone. */
static void
device_release_driver(device_t dev)
{
	if ((dev->flags & DF_FIXEDCLASS) == 0)
		devclass_delete_device(dev->devclass, dev);
	device_verbose(dev);
	dev->state = DS_NOTPRESENT;
	(void)device_set_driver(dev, NULL);
	device_sysctl_fini(dev);
}

static int
device_attach_vnet(device_t dev)
{
	int error;

	if (resource_disabled(dev->driver->name, dev->unit)) {
		device_disable(dev);
		if (bootverbose)
			device_printf(dev, "disabled via hints entry\n");
		return (ENXIO);
	}
	device_sysctl_init(dev);
	if (!device_is_quiet(dev))
		(void)BUS_PRINT_CHILD(dev->parent, dev);
	dev->state = DS_ATTACHING;
	error = DEVICE_ATTACH(dev);
	if (error != 0) {
		printf("device_attach: %s%d attach returned %d\n", dev->driver->name, dev->unit,
		    error);
		BUS_CHILD_DETACHED(dev->parent, dev);
		KASSERT(dev->busy == 0, ("%s: %s is busy after a failed attach", __func__,
		    dev->nameunit));
		device_release_driver(dev);
		return (error);
	}
	dev->flags |= DF_ATTACHED_ONCE;
	dev->flags &= ~DF_DONENOMATCH;
	dev->state = DS_ATTACHED;
	EVENTHANDLER_INVOKE(device_attach, dev);
	bus_data_generation_update();
	return (0);
}

int
device_attach(device_t dev)
{
	int error;

	bus_topo_assert();
	CURVNET_SET_QUIET(vnet0);
	error = device_attach_vnet(dev);
	CURVNET_RESTORE();
	return (error);
}

int
device_probe_and_attach(device_t dev)
{
	int error;

	bus_topo_assert();
	error = device_probe(dev);
	if (error == -1)
		return (0);
	if (error != 0)
		return (error);
	return (device_attach(dev));
}

int
device_detach(device_t dev)
{
	int error;

	bus_topo_assert();
	if (dev->busy > 0 || dev->state == DS_ATTACHING)
		return (EBUSY);
	if (dev->state != DS_ATTACHED)
		return (0);
	EVENTHANDLER_INVOKE(device_detach, dev, EVHDEV_DETACH_BEGIN);
	error = DEVICE_DETACH(dev);
	if (error != 0) {
		EVENTHANDLER_INVOKE(device_detach, dev, EVHDEV_DETACH_FAILED);
		return (error);
	}
	EVENTHANDLER_INVOKE(device_detach, dev, EVHDEV_DETACH_COMPLETE);
	if (!device_is_quiet(dev))
		device_printf(dev, "detached\n");
	if (dev->parent != NULL)
		BUS_CHILD_DETACHED(dev->parent, dev);
	device_release_driver(dev);
	bus_data_generation_update();
	return (0);
}

int
device_quiesce(device_t dev)
{
	if (dev->busy > 0)
		return (EBUSY);
	if (dev->state != DS_ATTACHED)
		return (0);
	return (DEVICE_QUIESCE(dev));
}

int
device_shutdown(device_t dev)
{
	if (dev->state < DS_ATTACHED)
		return (0);
	return (DEVICE_SHUTDOWN(dev));
}

/*
 * device_busy(9): while a device is busy, neither it nor any of its parents can be detached.
 */
void
device_busy(device_t dev)
{
	for (; dev != NULL; dev = dev->parent)
		if (atomic_fetchadd_int(&dev->busy, 1) != 0)
			break;
}

void
device_unbusy(device_t dev)
{
	for (; dev != NULL; dev = dev->parent) {
		KASSERT(dev->busy > 0, ("%s: %s is not busy", __func__, dev->nameunit));
		if (atomic_fetchadd_int(&dev->busy, -1) != 1)
			break;
	}
}
