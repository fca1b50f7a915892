/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenhvm: the bus of front ends.  As FreeBSD's, it adds a device for each new node whose state is
 * Initialising, deletes one whose state has gone, ignores what its detach returns, and keeps a copy of
 * the state.
 *
 * Locking.  The topology lock: the list of devices.  hf_sx: states.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>

#include <xen/xenstore/xenstorevar.h>
#include <xen/xenbus/xenbusvar.h>

#include "xenhvm.h"

/* FreeBSD's. */
extern bool xen_suspend_cancelled;

#define	HF_DIR		"device"
#define	HF_NODELEN	64

struct hf_ivars {
	device_t	 hv_dev;
	char		 hv_node[HF_NODELEN];
	char		*hv_type;
	enum xenbus_state hv_state;
	char		*hv_otherend;
	char		*hv_otherend_state;	/* the path that is watched */
	struct xs_watch	 hv_watch;
};

static struct sx hf_sx;
SX_SYSINIT(xenhvm_front, &hf_sx, "xenhvm front");

static device_t hf_bus;
static struct xs_watch hf_watch;
static struct task hf_task;

static void
hf_otherend_changed(struct xs_watch *w, const char **vec __unused, unsigned int n __unused)
{
	struct hf_ivars *hv = (struct hf_ivars *)w->callback_data;

	if (device_is_attached(hv->hv_dev))
		XENBUS_OTHEREND_CHANGED(hv->hv_dev, xenbus_read_driver_state(hv->hv_otherend));
}

static u_int hf_deleted;
SYSCTL_UINT(_hw_xenhvm, OID_AUTO, deleted, CTLFLAG_RD, &hf_deleted, 0, "Deletions of devices, begun");

static void
hf_delete(device_t bus, device_t child)
{
	struct hf_ivars *hv = device_get_ivars(child);

	hf_deleted++;
	xs_unregister_watch(&hv->hv_watch);
	(void)device_delete_child(bus, child);
	free(hv->hv_type, M_XENSTORE);
	free(hv->hv_otherend, M_XENSTORE);
	free(hv->hv_otherend_state, M_XENSTORE);
	free(hv, M_XENSTORE);
}

static bool
hf_is_known(device_t bus, const char *node)
{
	struct hf_ivars *hv;
	device_t *children;
	int i, n;
	bool known = false;

	if (device_get_children(bus, &children, &n) != 0)
		return (false);
	for (i = 0; i < n; i++) {
		hv = device_get_ivars(children[i]);
		known = known || strcmp(hv->hv_node, node) == 0;
	}
	free(children, M_TEMP);
	return (known);
}

static void
hf_add(device_t bus, const char *type, const char *unit)
{
	struct hf_ivars *hv;
	void *state;
	size_t size;

	hv = malloc(sizeof(*hv), M_XENSTORE, M_WAITOK | M_ZERO);
	snprintf(hv->hv_node, sizeof(hv->hv_node), HF_DIR "/%s/%s", type, unit);
	if (hf_is_known(bus, hv->hv_node) ||
	    xs_read(XST_NIL, hv->hv_node, "state", NULL, &state) != 0) {
		free(hv, M_XENSTORE);
		return;
	}
	hv->hv_state = (enum xenbus_state)strtoul(state, NULL, 10);
	free(state, M_XENSTORE);
	if (hv->hv_state != XenbusStateInitialising ||
	    xs_read(XST_NIL, hv->hv_node, "backend", NULL, (void **)&hv->hv_otherend) != 0) {
		free(hv, M_XENSTORE);
		return;
	}
	hv->hv_type = strdup(type, M_XENSTORE);
	size = strlen(hv->hv_otherend) + sizeof("/state");
	hv->hv_otherend_state = malloc(size, M_XENSTORE, M_WAITOK);
	snprintf(hv->hv_otherend_state, size, "%s/state", hv->hv_otherend);
	hv->hv_watch.node = hv->hv_otherend_state;
	hv->hv_watch.callback = hf_otherend_changed;
	hv->hv_watch.callback_data = (uintptr_t)hv;
	hv->hv_watch.max_pending = 1;
	hv->hv_dev = device_add_child(bus, NULL, DEVICE_UNIT_ANY);
	device_set_ivars(hv->hv_dev, hv);
	if (device_probe_and_attach(hv->hv_dev) == 0)
		(void)xs_register_watch(&hv->hv_watch);
	else
		hf_delete(bus, hv->hv_dev);
}

/* What the toolstack has removed, and what has no driver. */
static void
hf_verify(device_t bus)
{
	struct hf_ivars *hv;
	device_t *children;
	void *state;
	int i, n;

	if (device_get_children(bus, &children, &n) != 0)
		return;
	for (i = 0; i < n; i++) {
		hv = device_get_ivars(children[i]);
		if (device_get_state(children[i]) == DS_NOTPRESENT) {
			(void)device_probe_and_attach(children[i]);
			continue;
		}
		if (xs_read(XST_NIL, hv->hv_node, "state", NULL, &state) == 0)
			free(state, M_XENSTORE);
		else
			hf_delete(bus, children[i]);
	}
	free(children, M_TEMP);
}

static void
hf_scan(void *arg, int pending __unused)
{
	char **types, **units;
	char path[HF_NODELEN];
	device_t bus = arg;
	u_int i, j, ntypes, nunits;

	bus_topo_lock();
	hf_verify(bus);
	if (hvm_store_list(HF_DIR, &types, &ntypes) == 0) {
		for (i = 0; i < ntypes; i++) {
			snprintf(path, sizeof(path), HF_DIR "/%s", types[i]);
			if (hvm_store_list(path, &units, &nunits) != 0)
				continue;
			for (j = 0; j < nunits; j++)
				hf_add(bus, types[i], units[j]);
			free(units, M_XENSTORE);
		}
		free(types, M_XENSTORE);
	}
	bus_topo_unlock();
}

static void
hf_changed(struct xs_watch *w __unused, const char **vec __unused, unsigned int n __unused)
{

	taskqueue_enqueue(taskqueue_thread, &hf_task);
}

static int
hf_read_ivar(device_t dev __unused, device_t child, int which, uintptr_t *result)
{
	struct hf_ivars *hv = device_get_ivars(child);

	switch (which) {
	case XENBUS_IVAR_NODE:
		*result = (uintptr_t)hv->hv_node;
		return (0);
	case XENBUS_IVAR_TYPE:
		*result = (uintptr_t)hv->hv_type;
		return (0);
	case XENBUS_IVAR_STATE:
		*result = hv->hv_state;
		return (0);
	case XENBUS_IVAR_OTHEREND_PATH:
		*result = (uintptr_t)hv->hv_otherend;
		return (0);
	default:
		return (ENOENT);
	}
}

static int
hf_write_ivar(device_t dev __unused, device_t child, int which, uintptr_t value)
{
	struct hf_ivars *hv = device_get_ivars(child);
	char text[8];
	void *old;
	int error = 0;

	if (which != XENBUS_IVAR_STATE)
		return (EINVAL);
	hvm_store_hold(2);
	KASSERT(hv->hv_dev == child, ("%s: the device was freed", __func__));
	sx_xlock(&hf_sx);
	if (hv->hv_state != (enum xenbus_state)value) {
		error = xs_read(XST_NIL, hv->hv_node, "state", NULL, &old);
		if (error == 0) {
			free(old, M_XENSTORE);
			snprintf(text, sizeof(text), "%ju", (uintmax_t)value);
			error = hvm_store_write(hv->hv_node, "state", text);
		}
		if (error == 0)
			hv->hv_state = (enum xenbus_state)value;
	}
	sx_xunlock(&hf_sx);
	return (error == ENOENT ? 0 : error);
}

/* In a new domain: as FreeBSD's, but for the back ends, which are the same here by their paths. */
static int
hf_resume(device_t bus)
{
	device_t *children;
	int i, n;

	if (xen_suspend_cancelled)
		return (bus_generic_resume(bus));
	if (device_get_children(bus, &children, &n) != 0)
		return (0);
	for (i = 0; i < n; i++) {
		(void)BUS_WRITE_IVAR(bus, children[i], XENBUS_IVAR_STATE, XenbusStateInitialising);
		(void)BUS_RESUME_CHILD(bus, children[i]);
	}
	free(children, M_TEMP);
	return (0);
}

static void
hf_identify(driver_t *driver, device_t parent)
{

	if (device_find_child(parent, driver->name, 0) == NULL)
		(void)BUS_ADD_CHILD(parent, 0, driver->name, 0);
}

static int
hf_probe(device_t dev)
{

	device_set_desc(dev, "xenhvm front ends");
	return (0);
}

static int
hf_attach(device_t dev)
{

	hf_bus = dev;
	TASK_INIT(&hf_task, 0, hf_scan, dev);
	hf_scan(dev, 0);
	hf_watch.node = __DECONST(char *, HF_DIR);
	hf_watch.callback = hf_changed;
	return (xs_register_watch(&hf_watch));
}

static device_method_t hf_methods[] = {
	DEVMETHOD(device_identify, hf_identify),
	DEVMETHOD(device_probe, hf_probe),
	DEVMETHOD(device_attach, hf_attach),
	DEVMETHOD(device_suspend, bus_generic_suspend),
	DEVMETHOD(device_resume, hf_resume),

	DEVMETHOD(bus_read_ivar, hf_read_ivar),
	DEVMETHOD(bus_write_ivar, hf_write_ivar),
	DEVMETHOD_END
};

static driver_t hf_driver = {
	"xenbusb_front",
	hf_methods,
	0
};

DRIVER_MODULE_ORDERED(xenbusb_front, xenstore, hf_driver, NULL, NULL, SI_ORDER_SECOND);
