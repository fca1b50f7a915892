/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A model of a driver's xenbus (front_end.h).
 */

#include "model/front_end.h"

#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/module.h>
#include <sys/mutex.h>

#include <dev/xen/xenbus.h>

#include "bus_if.h"
#include "host/host.h"
#include "kpi/kpi.h"

struct front_end front;

int
driver_module_handler(struct module *mod __unused, int what __unused, void *arg __unused)
{

	return (0);
}

void *
device_get_ivars(device_t dev)
{

	return (dev == front.dev ? &front.xb : &front.other);
}

void
device_set_desc(device_t dev, const char *desc)
{

	CHECK(dev == front.dev && desc[0] != '\0', "no description");
	strlcpy(front.desc, desc, sizeof(front.desc));
}

static int
read_ivar(device_t bus, device_t child, int which, uintptr_t *value)
{

	CHECK(bus == front.bus && child == front.dev, "another device");
	switch (which) {
	case XENBUS_IVAR_TYPE:
		*value = (uintptr_t)front.type;
		break;
	case XENBUS_IVAR_NODE:
		*value = (uintptr_t)front.node;
		break;
	case XENBUS_IVAR_OTHEREND_ID:
		*value = front.back;
		break;
	default:
		CHECK(false, "variable %d", which);
	}
	return (0);
}

static device_method_t bus_methods[] = {
	DEVMETHOD(bus_read_ivar, read_ivar),
	DEVMETHOD_END
};

static struct kobj_class bus_class = { .name = "xenbus", .methods = bus_methods };

void
xenbus_reset(device_t dev)
{

	CHECK(dev == front.dev, "another device");
	front.resets++;
}

void
front_begin(kobj_class_t driver, void *softc, const char *name, const char *type, const char *node,
    domid_t back, const char *back_path)
{

	memset(&front, 0, sizeof(front));
	front.type = type;
	front.node = node;
	front.back = back;
	front.bus = kpi_device_create(NULL, &bus_class, NULL, "xenbus0");
	front.dev = kpi_device_create(front.bus, driver, softc, name);
	front.xb.xb_dev = front.dev;
	front.xb.xb_node = __DECONST(char *, node);
	strlcpy(front.xb.xb_path, back_path, sizeof(front.xb.xb_path));
	mtx_init(&front.xb.xb_mtx, "front end", NULL, MTX_DEF);
	front.other.xb_dev = kpi_device();
}

void
front_end(void)
{

	xenbus_return_queues(&front.xb);
	xenbus_return_queues(&front.other);
	mtx_destroy(&front.xb.xb_mtx);
	kpi_device_destroy(front.dev);
	kpi_device_destroy(front.bus);
}
