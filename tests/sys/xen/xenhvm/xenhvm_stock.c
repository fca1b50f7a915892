/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenhvm: what stands in for the kernel's own xbd and xn.  They attach before all others, connect to
 * nothing, and print what they are told.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/module.h>

#include <xen/xenbus/xenbusvar.h>

static int
stock_probe_type(device_t dev, const char *type)
{
	void *text;

	if (strcmp(xenbus_get_type(dev), type) != 0)
		return (ENXIO);
	/* FreeBSD's reads xenstore here. */
	if (xs_read(XST_NIL, xenbus_get_node(dev), "backend-id", NULL, &text) != 0)
		return (ENXIO);
	free(text, M_XENSTORE);
	device_set_desc(dev, "the kernel's own");
	return (BUS_PROBE_SPECIFIC);
}

static int
xbd_probe(device_t dev)
{

	return (stock_probe_type(dev, "vbd"));
}

static int
xn_probe(device_t dev)
{

	return (stock_probe_type(dev, "vif"));
}

static int
stock_attach(device_t dev)
{

	device_printf(dev, "the kernel's own driver has %s\n", xenbus_get_node(dev));
	return (0);
}

static int
stock_detach(device_t dev)
{

	device_printf(dev, "the kernel's own driver leaves %s\n", xenbus_get_node(dev));
	return (0);
}

static void
stock_changed(device_t dev, enum xenbus_state state)
{

	if (state == XenbusStateClosing)
		xenbus_set_state(dev, XenbusStateClosed);
}

static device_method_t xbd_methods[] = {
	DEVMETHOD(device_probe, xbd_probe),
	DEVMETHOD(device_attach, stock_attach),
	DEVMETHOD(device_detach, stock_detach),
	DEVMETHOD(xenbus_otherend_changed, stock_changed),
	DEVMETHOD_END
};

static driver_t xbd_driver = {
	"xbd",
	xbd_methods,
	0
};
DRIVER_MODULE_ORDERED(xbd, xenbusb_front, xbd_driver, NULL, NULL, SI_ORDER_FIRST);

static device_method_t xn_methods[] = {
	DEVMETHOD(device_probe, xn_probe),
	DEVMETHOD(device_attach, stock_attach),
	DEVMETHOD(device_detach, stock_detach),
	DEVMETHOD(xenbus_otherend_changed, stock_changed),
	DEVMETHOD_END
};

static driver_t xn_driver = {
	"xn",
	xn_methods,
	0
};
DRIVER_MODULE_ORDERED(xe, xenbusb_front, xn_driver, NULL, NULL, SI_ORDER_FIRST);
