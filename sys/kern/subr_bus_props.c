/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Named properties that one part of the kernel hangs on a device for another (device_set_prop).
 *
 * Locking.  The topology lock protects the list of each device.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/malloc.h>
#include <machine/bus.h>

#include <kern/bus_tree.h>

static struct device_prop *
device_find_prop(device_t dev, const char *name)
{
	struct device_prop *p;

	LIST_FOREACH(p, &dev->props, link)
		if (strcmp(p->name, name) == 0)
			return (p);
	return (NULL);
}

static void
device_free_prop(device_t dev, struct device_prop *p)
{
	LIST_REMOVE(p, link);
	if (p->dtr != NULL)
		p->dtr(dev, p->name, p->val, p->dtr_ctx);
	free(p, M_BUS);
}

int
device_set_prop(device_t dev, const char *name, void *val, device_prop_dtr_t dtr, void *dtr_ctx)
{
	struct device_prop *p;

	bus_topo_assert();
	if (device_find_prop(dev, name) != NULL)
		return (EEXIST);
	p = malloc(sizeof(*p), M_BUS, M_WAITOK);
	p->name = name;
	p->val = val;
	p->dtr = dtr;
	p->dtr_ctx = dtr_ctx;
	LIST_INSERT_HEAD(&dev->props, p, link);
	return (0);
}

int
device_get_prop(device_t dev, const char *name, void **valp)
{
	struct device_prop *p = device_find_prop(dev, name);

	bus_topo_assert();
	if (p == NULL)
		return (ENOENT);
	*valp = p->val;
	return (0);
}

int
device_clear_prop(device_t dev, const char *name)
{
	struct device_prop *p = device_find_prop(dev, name);

	bus_topo_assert();
	if (p == NULL)
		return (ENOENT);
	device_free_prop(dev, p);
	return (0);
}

void
device_clear_prop_alldev(const char *name)
{
	device_t dev;

	TAILQ_FOREACH(dev, &bus_data_devices, all)
		(void)device_clear_prop(dev, name);
}

void
device_destroy_props(device_t dev)
{
	struct device_prop *p;

	while ((p = LIST_FIRST(&dev->props)) != NULL)
		device_free_prop(dev, p);
}
