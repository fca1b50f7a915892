/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * device(9): the tree of devices, and the attributes of a device.
 *
 * Probing, attaching and detaching is in subr_bus_attach.c.
 *
 * Locking.  All changes of the tree need the topology lock (subr_bus.c).  A driver may read the
 * attributes of its own device at any time between probe and detach.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/sbuf.h>
#include <sys/stdarg.h>
#include <sys/syslog.h>
#include <machine/bus.h>

#include <kern/bus_tree.h>

MALLOC_DEFINE(M_BUS, "bus", "Bus data structures");

struct device_list bus_data_devices = TAILQ_HEAD_INITIALIZER(bus_data_devices);

/* The class of a device that has no driver: each method is its default, or ENXIO. */
static kobj_method_t null_methods[] = {
	KOBJMETHOD_END
};
static DEFINE_CLASS(null, null_methods, 0);

device_t
device_create(device_t parent, const char *name, int unit)
{
	devclass_t dc = NULL;
	device_t dev;

	if (name != NULL)
		dc = devclass_find_internal(name, NULL, true);
	dev = malloc(sizeof(*dev), M_BUS, M_WAITOK | M_ZERO);
	dev->parent = parent;
	TAILQ_INIT(&dev->children);
	LIST_INIT(&dev->props);
	kobj_init((kobj_t)dev, &null_class);
	dev->unit = unit;
	dev->flags = DF_ENABLED;
	if (unit == DEVICE_UNIT_ANY)
		dev->flags |= DF_WILDCARD;
	if (name != NULL) {
		dev->flags |= DF_FIXEDCLASS;
		if (devclass_add_device(dc, dev) != 0) {
			kobj_delete((kobj_t)dev, M_BUS);
			return (NULL);
		}
	}
	if (parent != NULL && device_has_quiet_children(parent))
		dev->flags |= DF_QUIET | DF_QUIET_CHILDREN;
	dev->state = DS_NOTPRESENT;
	TAILQ_INSERT_TAIL(&bus_data_devices, dev, all);
	bus_data_generation_update();
	return (dev);
}

device_t
device_add_child_ordered(device_t dev, u_int order, const char *name, int unit)
{
	device_t child, place;

	KASSERT(name != NULL || unit == DEVICE_UNIT_ANY,
	    ("%s: a child with a unit number needs a name", __func__));
	child = device_create(dev, name, unit);
	if (child == NULL)
		return (NULL);
	child->order = order;
	TAILQ_FOREACH(place, &dev->children, link)
		if (place->order > order)
			break;
	if (place != NULL)
		TAILQ_INSERT_BEFORE(place, child, link);
	else
		TAILQ_INSERT_TAIL(&dev->children, child, link);
	return (child);
}

device_t
device_add_child(device_t dev, const char *name, int unit)
{
	return (device_add_child_ordered(dev, 0, name, unit));
}

int
device_delete_child(device_t dev, device_t child)
{
	device_t grandchild;
	int error;

	bus_topo_assert();
	error = device_detach(child);
	if (error != 0)
		return (error);
	while ((grandchild = TAILQ_FIRST(&child->children)) != NULL) {
		error = device_delete_child(child, grandchild);
		if (error != 0)
			return (error);
	}
	device_destroy_props(child);
	devclass_delete_device(child->devclass, child);
	if (child->parent != NULL)
		BUS_CHILD_DELETED(dev, child);
	TAILQ_REMOVE(&dev->children, child, link);
	TAILQ_REMOVE(&bus_data_devices, child, all);
	device_clear_desc(child);
	kobj_delete((kobj_t)child, M_BUS);
	bus_data_generation_update();
	return (0);
}

int
device_delete_children(device_t dev)
{
	device_t child;
	int error = 0;

	while ((child = TAILQ_FIRST(&dev->children)) != NULL) {
		error = device_delete_child(dev, child);
		if (error != 0) {
			device_printf(child, "can't be deleted: error %d\n", error);
			break;
		}
	}
	return (error);
}

device_t
device_find_child(device_t dev, const char *classname, int unit)
{
	devclass_t dc = devclass_find(classname);
	device_t child;

	if (dc == NULL)
		return (NULL);
	TAILQ_FOREACH(child, &dev->children, link)
		if (child->devclass == dc && (unit == DEVICE_UNIT_ANY || child->unit == unit))
			return (child);
	return (NULL);
}

device_t
device_lookup_by_name(const char *name)
{
	device_t dev;

	TAILQ_FOREACH(dev, &bus_data_devices, all)
		if (dev->nameunit != NULL && strcmp(dev->nameunit, name) == 0)
			return (dev);
	return (NULL);
}

int
device_get_children(device_t dev, device_t **listp, int *countp)
{
	device_t child, *list;
	int n = 0;

	TAILQ_FOREACH(child, &dev->children, link)
		n++;
	*listp = NULL;
	*countp = 0;
	if (n == 0)
		return (0);
	list = malloc(n * sizeof(*list), M_TEMP, M_NOWAIT);
	if (list == NULL)
		return (ENOMEM);
	n = 0;
	TAILQ_FOREACH(child, &dev->children, link)
		list[n++] = child;
	*listp = list;
	*countp = n;
	return (0);
}

device_t
device_get_parent(device_t dev)
{
	return (dev->parent);
}

driver_t *
device_get_driver(device_t dev)
{
	return (dev->driver);
}

devclass_t
device_get_devclass(device_t dev)
{
	return (dev->devclass);
}

const char *
device_get_name(device_t dev)
{
	return (dev == NULL || dev->devclass == NULL ? NULL : dev->devclass->name);
}

const char *
device_get_nameunit(device_t dev)
{
	return (dev->nameunit);
}

int
device_get_unit(device_t dev)
{
	return (dev->unit);
}

const char *
device_get_desc(device_t dev)
{
	return (dev->desc);
}

uint32_t
device_get_flags(device_t dev)
{
	return (dev->devflags);
}

void
device_set_flags(device_t dev, uint32_t flags)
{
	dev->devflags = flags;
}

struct sysctl_ctx_list *
device_get_sysctl_ctx(device_t dev)
{
	return (&dev->sysctl_ctx);
}

struct sysctl_oid *
device_get_sysctl_tree(device_t dev)
{
	return (dev->sysctl_tree);
}

/* device_printf's and device_log's text: the name of the device, then the message. */
static void
device_format(device_t dev, char *buf, size_t size, const char *fmt, va_list ap)
{
	const char *name = device_get_name(dev);
	struct sbuf sb;

	/* Not from malloc(9): interrupt handlers print messages, too. */
	sbuf_new(&sb, buf, size, SBUF_FIXEDLEN);
	if (name == NULL)
		sbuf_cat(&sb, "unknown: ");
	else
		sbuf_printf(&sb, "%s%d: ", name, dev->unit);
	sbuf_vprintf(&sb, fmt, ap);
	/* A message that is too long is cut, not lost. */
	(void)sbuf_finish(&sb);
	sbuf_delete(&sb);
}

int
device_printf(device_t dev, const char *fmt, ...)
{
	char buf[256];
	va_list ap;
	int n;

	va_start(ap, fmt);
	device_format(dev, buf, sizeof(buf), fmt, ap);
	va_end(ap);
	n = printf("%s", buf);
	return (n);
}

int
device_log(device_t dev, int pri, const char *fmt, ...)
{
	char buf[256];
	va_list ap;
	int n;

	va_start(ap, fmt);
	device_format(dev, buf, sizeof(buf), fmt, ap);
	va_end(ap);
	n = strlen(buf);
	log(pri, "%s", buf);
	return (n);
}

int
device_print_prettyname(device_t dev)
{
	const char *name = device_get_name(dev);

	if (name == NULL)
		return (printf("unknown: "));
	return (printf("%s%d: ", name, dev->unit));
}

void
device_clear_desc(device_t dev)
{
	if ((dev->flags & DF_DESCMALLOCED) != 0)
		free(dev->desc, M_BUS);
	dev->flags &= ~DF_DESCMALLOCED;
	dev->desc = NULL;
}

void
device_set_desc(device_t dev, const char *desc)
{
	device_clear_desc(dev);
	dev->desc = __DECONST(char *, desc);
}

void
device_set_descf(device_t dev, const char *fmt, ...)
{
	char *desc;
	va_list ap;

	va_start(ap, fmt);
	(void)vasprintf(&desc, M_BUS, fmt, ap);
	va_end(ap);
	device_clear_desc(dev);
	dev->desc = desc;
	dev->flags |= DF_DESCMALLOCED;
}

void
device_set_desc_copy(device_t dev, const char *desc)
{
	device_set_descf(dev, "%s", desc);
}

void *
device_get_ivars(device_t dev)
{
	return (dev->ivars);
}

void
device_set_ivars(device_t dev, void *ivars)
{
	dev->ivars = ivars;
}

void *
device_get_softc(device_t dev)
{
	return (dev->softc);
}

void
device_set_softc(device_t dev, void *softc)
{
	if (dev->softc != NULL && (dev->flags & DF_EXTERNALSOFTC) == 0)
		free(dev->softc, M_BUS);
	dev->softc = softc;
	if (softc != NULL)
		dev->flags |= DF_EXTERNALSOFTC;
	else
		dev->flags &= ~DF_EXTERNALSOFTC;
}

void
device_claim_softc(device_t dev)
{
	if (dev->softc != NULL)
		dev->flags |= DF_EXTERNALSOFTC;
	else
		dev->flags &= ~DF_EXTERNALSOFTC;
}

void
device_free_softc(void *softc)
{
	free(softc, M_BUS);
}

device_state_t
device_get_state(device_t dev)
{
	return (dev->state);
}

void
device_enable(device_t dev)
{
	dev->flags |= DF_ENABLED;
}

void
device_disable(device_t dev)
{
	dev->flags &= ~DF_ENABLED;
}

void
device_quiet(device_t dev)
{
	dev->flags |= DF_QUIET;
}

void
device_quiet_children(device_t dev)
{
	dev->flags |= DF_QUIET_CHILDREN;
}

void
device_verbose(device_t dev)
{
	dev->flags &= ~(DF_QUIET | DF_QUIET_CHILDREN);
}

int
device_has_quiet_children(device_t dev)
{
	return ((dev->flags & DF_QUIET_CHILDREN) != 0);
}

int
device_is_quiet(device_t dev)
{
	return ((dev->flags & DF_QUIET) != 0);
}

int
device_is_enabled(device_t dev)
{
	return ((dev->flags & DF_ENABLED) != 0);
}

int
device_is_suspended(device_t dev)
{
	return ((dev->flags & DF_SUSPENDED) != 0);
}

int
device_is_alive(device_t dev)
{
	return (dev->state >= DS_ALIVE);
}

int
device_is_attached(device_t dev)
{
	return (dev->state >= DS_ATTACHED);
}

bool
device_is_devclass_fixed(device_t dev)
{
	return ((dev->flags & DF_FIXEDCLASS) != 0);
}

int
device_set_devclass(device_t dev, const char *classname)
{
	int error;

	if (classname == NULL) {
		devclass_delete_device(dev->devclass, dev);
		return (0);
	}
	if (dev->devclass != NULL) {
		printf("%s: %s already has a class\n", __func__, dev->nameunit);
		return (EINVAL);
	}
	error = devclass_add_device(devclass_create(classname), dev);
	bus_data_generation_update();
	return (error);
}

int
device_set_devclass_fixed(device_t dev, const char *classname)
{
	int error;

	error = device_set_devclass(dev, classname);
	if (error == 0)
		dev->flags |= DF_FIXEDCLASS;
	return (error);
}

/*
 * Set the driver of the device, with a new softc; NULL removes it.
 */
int
device_set_driver(device_t dev, driver_t *driver)
{
	if (dev->state >= DS_ATTACHED)
		return (EBUSY);
	if (dev->driver == driver)
		return (0);
	device_set_softc(dev, NULL);
	device_clear_desc(dev);
	kobj_delete((kobj_t)dev, NULL);
	dev->driver = driver;
	if (driver == NULL) {
		kobj_init((kobj_t)dev, &null_class);
	} else {
		kobj_init((kobj_t)dev, (kobj_class_t)driver);
		if (driver->size > 0)
			dev->softc = malloc(driver->size, M_BUS, M_WAITOK | M_ZERO);
	}
	bus_data_generation_update();
	return (0);
}

int
device_set_unit(device_t dev, int unit)
{
	devclass_t dc = dev->devclass;

	if (unit == dev->unit)
		return (0);
	if (devclass_get_device(dc, unit) != NULL)
		return (EBUSY);
	devclass_delete_device(dc, dev);
	dev->unit = unit;
	bus_data_generation_update();
	return (devclass_add_device(dc, dev));
}
