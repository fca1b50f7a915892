/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The sysctl tree of devices: dev.NAME.%parent,
 * dev.NAME.UNIT.{%desc,%driver,%location,%pnpinfo,%parent}.
 *
 * A device's tree exists from just before its attach to the end of its detach, and is removed
 * together with all that the driver added through device_get_sysctl_ctx(9).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/sbuf.h>
#include <sys/sysctl.h>
#include <machine/bus.h>

#include <kern/bus_tree.h>

SYSCTL_ROOT_NODE(OID_AUTO, dev, CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, "Devices");

enum device_sysctl {
	DEVICE_SYSCTL_DESC,
	DEVICE_SYSCTL_DRIVER,
	DEVICE_SYSCTL_LOCATION,
	DEVICE_SYSCTL_PNPINFO,
	DEVICE_SYSCTL_PARENT,
};

static const struct {
	const char	*name;
	const char	*descr;
} device_sysctls[] = {
	[DEVICE_SYSCTL_DESC] =		{ "%desc", "device description" },
	[DEVICE_SYSCTL_DRIVER] =	{ "%driver", "device driver name" },
	[DEVICE_SYSCTL_LOCATION] =	{ "%location", "device location relative to parent" },
	[DEVICE_SYSCTL_PNPINFO] =	{ "%pnpinfo", "device identification" },
	[DEVICE_SYSCTL_PARENT] =	{ "%parent", "parent device" },
};

static int
devclass_sysctl_handler(SYSCTL_HANDLER_ARGS)
{
	devclass_t dc = arg1;
	const char *value = dc->parent != NULL ? dc->parent->name : "";

	return (SYSCTL_OUT_STR(req, value));
}

void
devclass_sysctl_init(devclass_t dc)
{
	sysctl_ctx_init(&dc->sysctl_ctx);
	dc->sysctl_tree = SYSCTL_ADD_NODE(&dc->sysctl_ctx, SYSCTL_STATIC_CHILDREN(_dev), OID_AUTO,
	    dc->name, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "");
	SYSCTL_ADD_PROC(&dc->sysctl_ctx, SYSCTL_CHILDREN(dc->sysctl_tree), OID_AUTO, "%parent",
	    CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE, dc, 0, devclass_sysctl_handler, "A",
	    "parent class");
}

static void
device_sysctl_value(device_t dev, enum device_sysctl which, struct sbuf *sb)
{
	switch (which) {
	case DEVICE_SYSCTL_DESC:
		sbuf_cat(sb, dev->desc != NULL ? dev->desc : "");
		break;
	case DEVICE_SYSCTL_DRIVER:
		sbuf_cat(sb, dev->driver != NULL ? dev->driver->name : "");
		break;
	case DEVICE_SYSCTL_LOCATION:
		(void)bus_child_location(dev, sb);
		break;
	case DEVICE_SYSCTL_PNPINFO:
		(void)bus_child_pnpinfo(dev, sb);
		break;
	case DEVICE_SYSCTL_PARENT:
		sbuf_cat(sb, dev->parent != NULL && dev->parent->nameunit != NULL ?
		    dev->parent->nameunit : "");
		break;
	}
}

static int
device_sysctl_handler(SYSCTL_HANDLER_ARGS)
{
	device_t dev = arg1;
	struct sbuf *sb;
	int error;

	sb = sbuf_new(NULL, NULL, 128, SBUF_AUTOEXTEND);
	bus_topo_lock();
	device_sysctl_value(dev, arg2, sb);
	bus_topo_unlock();
	error = sbuf_finish(sb);
	if (error == 0)
		error = SYSCTL_OUT(req, sbuf_data(sb), sbuf_len(sb) + 1);
	sbuf_delete(sb);
	return (error);
}

void
device_sysctl_init(device_t dev)
{
	char unit[16];

	if (dev->sysctl_tree != NULL)
		return;
	sysctl_ctx_init(&dev->sysctl_ctx);
	snprintf(unit, sizeof(unit), "%d", dev->unit);
	dev->sysctl_tree = SYSCTL_ADD_NODE(&dev->sysctl_ctx,
	    SYSCTL_CHILDREN(dev->devclass->sysctl_tree), OID_AUTO, unit,
	    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, dev->desc != NULL ? dev->desc : "");
	for (u_int i = 0; i < nitems(device_sysctls); i++)
		SYSCTL_ADD_PROC(&dev->sysctl_ctx, SYSCTL_CHILDREN(dev->sysctl_tree), OID_AUTO,
		    device_sysctls[i].name, CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE, dev, i,
		    device_sysctl_handler, "A", device_sysctls[i].descr);
}

void
device_sysctl_fini(device_t dev)
{
	if (dev->sysctl_tree == NULL)
		return;
	sysctl_ctx_free(&dev->sysctl_ctx);
	dev->sysctl_tree = NULL;
}
