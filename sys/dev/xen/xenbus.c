/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenbus: the bus that front ends sit on; its theory is in xenbus.h, the dance of states in
 * xenbus_state.c.
 *
 * The toolstack puts a front end into our directory as device/TYPE/NUMBER, and takes it out.  A
 * watch on "device" tells of both, and of much that is none of the bus's business, such as what
 * front ends write themselves; what may have changed the list of devices has the list read anew, by
 * a thread of its own: newbus calls may wait for a driver's detach, which may wait for the thread
 * of the front ends.
 *
 * Each front end gets a device without a name, which probe gives one.  They come in the order of their
 * numbers, so that xvda (51712) is before xvdb (51728).
 *
 * Locking.  The bus topology lock: the list of children, and whatever adds to it or deletes from it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/ctype.h>
#include <sys/libkern.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/priority.h>
#include <sys/sbuf.h>
#include <sys/sx.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <dev/xen/xenbus.h>
#include <dev/xen/xenbus_var.h>

#define	XENBUS_DIR		"device"
#define	XENBUS_MAX_DEVICES	256
#define	XENBUS_TYPELEN		32

static MALLOC_DEFINE(M_XENBUS, "xenbus", "xenbus front ends");

SYSCTL_DECL(_hw_xen);

static u_int xenbus_connect_wait = 10;
SYSCTL_UINT(_hw_xen, OID_AUTO, connect_wait, CTLFLAG_RWTUN, &xenbus_connect_wait, 0,
    "Seconds to wait for back ends when a driver is loaded");

struct xenbus_softc {
	device_t	 xbs_dev;
	struct taskqueue *xbs_queue;	/* front ends' steps */
	struct taskqueue *xbs_scan_queue;
	struct task	 xbs_scan_task;
	struct xenstore_watch xbs_watch;
};

/* Which child has this node? */
static device_t
xenbus_find(struct xenbus_softc *sc, const char *node)
{
	device_t *children, found;
	int i, n;

	if (device_get_children(sc->xbs_dev, &children, &n) != 0)
		return (NULL);
	found = NULL;
	for (i = 0; i < n && found == NULL; i++) {
		if (strcmp(xenbus_get_node(children[i]), node) == 0)
			found = children[i];
	}
	free(children, M_TEMP);
	return (found);
}

static void
xenbus_child_free(struct xenbus_child *xb)
{

	sx_destroy(&xb->xb_sx);
	mtx_destroy(&xb->xb_mtx);
	free(xb->xb_type, M_XENBUS);
	free(xb->xb_node, M_XENBUS);
	free(xb, M_XENBUS);
}

/* A device for a node.  NULL, logged, if there is no room for one. */
static device_t
xenbus_add(struct xenbus_softc *sc, const char *type, const char *node)
{
	struct xenbus_child *xb;

	xb = malloc(sizeof(*xb), M_XENBUS, M_WAITOK | M_ZERO);
	xb->xb_bus = sc->xbs_dev;
	xb->xb_queue = sc->xbs_queue;
	xb->xb_type = strdup(type, M_XENBUS);
	xb->xb_node = strdup(node, M_XENBUS);
	sx_init(&xb->xb_sx, "xenbus front end");
	mtx_init(&xb->xb_mtx, "xenbus front end", NULL, MTX_DEF);
	TIMEOUT_TASK_INIT(sc->xbs_queue, &xb->xb_task, 0, xenbus_child_task, xb);
	TIMEOUT_TASK_INIT(sc->xbs_queue, &xb->xb_lose_task, 0, xenbus_lose_task, xb);
	xb->xb_dev = device_add_child(sc->xbs_dev, NULL, DEVICE_UNIT_ANY);
	if (xb->xb_dev == NULL) {
		device_printf(sc->xbs_dev, "no room for %s\n", node);
		xenbus_child_free(xb);
		return (NULL);
	}
	device_set_ivars(xb->xb_dev, xb);
	return (xb->xb_dev);
}

/* The dance begins for whoever has got a driver. */
static void
xenbus_begin_attached(device_t *children, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		if (device_is_attached(children[i]))
			xenbus_begin(xenbus_child_of(children[i]));
	}
}

static int
xenbus_compare(const void *a, const void *b)
{
	const char *left = *(const char *const *)a, *right = *(const char *const *)b;
	u_long l, r;

	l = strtoul(left, NULL, 10);
	r = strtoul(right, NULL, 10);
	if (l != r)
		return (l < r ? -1 : 1);
	return (strcmp(left, right));
}

/* What the toolstack says there is. */
struct xenbus_list {
	u_int	 xl_count;
	struct {
		char	xl_type[XENBUS_TYPELEN];
		char	xl_node[XENBUS_NAMELEN];
	}	 xl_nodes[XENBUS_MAX_DEVICES];
};

static int
xenbus_list_type(struct xenbus_softc *sc, struct xenbus_list *list, const char *type)
{
	char **units;
	u_int i, n;
	int error;

	error = xenstore_list(NULL, XENBUS_DIR, type, &units, &n);
	if (error != 0)
		return (error == ENOENT ? 0 : error);
	qsort(units, n, sizeof(*units), xenbus_compare);
	for (i = 0; i < n; i++) {
		if (list->xl_count == XENBUS_MAX_DEVICES) {
			device_printf(sc->xbs_dev, "more than %u devices; the rest is left out\n",
			    XENBUS_MAX_DEVICES);
			break;
		}
		if (snprintf(list->xl_nodes[list->xl_count].xl_node, XENBUS_NAMELEN,
		    XENBUS_DIR "/%s/%s", type, units[i]) >= XENBUS_NAMELEN)
			continue;
		/* Without a back end it is not one, or not yet. */
		if (!xenstore_exists(NULL, list->xl_nodes[list->xl_count].xl_node, "backend"))
			continue;
		strlcpy(list->xl_nodes[list->xl_count].xl_type, type, XENBUS_TYPELEN);
		list->xl_count++;
	}
	xenstore_free(units);
	return (0);
}

static int
xenbus_list_all(struct xenbus_softc *sc, struct xenbus_list *list)
{
	char **types;
	u_int i, n;
	int error;

	list->xl_count = 0;
	error = xenstore_list(NULL, XENBUS_DIR, NULL, &types, &n);
	if (error != 0)
		return (error == ENOENT ? 0 : error);
	for (i = 0; i < n && error == 0; i++) {
		if (strlen(types[i]) < XENBUS_TYPELEN && !xen_platform_emulates(types[i]))
			error = xenbus_list_type(sc, list, types[i]);
	}
	xenstore_free(types);
	return (error);
}

static bool
xenbus_is_listed(const struct xenbus_list *list, const char *node)
{
	u_int i;

	for (i = 0; i < list->xl_count; i++) {
		if (strcmp(list->xl_nodes[i].xl_node, node) == 0)
			return (true);
	}
	return (false);
}

/* Delete the devices that are not listed any more. */
static void
xenbus_prune(struct xenbus_softc *sc, const struct xenbus_list *list)
{
	device_t *children;
	int i, n;

	bus_topo_assert();
	if (device_get_children(sc->xbs_dev, &children, &n) != 0)
		return;
	for (i = 0; i < n; i++) {
		if (xenbus_is_listed(list, xenbus_get_node(children[i])))
			continue;
		if (device_delete_child(sc->xbs_dev, children[i]) != 0)
			device_printf(sc->xbs_dev, "%s is gone, but its driver holds on to it\n",
			    device_get_nameunit(children[i]));
	}
	free(children, M_TEMP);
}

/*
 * Make the children what the toolstack says.  If it can't be asked, they stay as they are.
 */
static void
xenbus_scan(struct xenbus_softc *sc)
{
	struct xenbus_list *list;
	device_t child;
	u_int i;
	int error;

	list = malloc(sizeof(*list), M_XENBUS, M_WAITOK | M_ZERO);
	error = xenbus_list_all(sc, list);
	if (error != 0) {
		device_printf(sc->xbs_dev, "devices can't be listed (error %d)\n", error);
		free(list, M_XENBUS);
		return;
	}
	bus_topo_lock();
	xenbus_prune(sc, list);
	for (i = 0; i < list->xl_count; i++) {
		child = xenbus_find(sc, list->xl_nodes[i].xl_node);
		if (child != NULL) {
			/* It may have got another back end. */
			xenbus_kick(xenbus_child_of(child), 0);
			continue;
		}
		child = xenbus_add(sc, list->xl_nodes[i].xl_type, list->xl_nodes[i].xl_node);
		if (child != NULL && device_probe_and_attach(child) == 0)
			xenbus_begin(xenbus_child_of(child));
	}
	bus_topo_unlock();
	free(list, M_XENBUS);
}

static void
xenbus_scan_task(void *arg, int pending __unused)
{

	xenbus_scan(arg);
}

/*
 * device, device/TYPE or device/TYPE/NUMBER came or went, or got another back end?  What is deeper
 * is the front ends' own.
 */
static void
xenbus_devices_watch(struct xenstore_watch *w, const char *path)
{
	struct xenbus_softc *sc = w->xw_arg;
	const char *p;
	u_int depth;

	depth = 0;
	for (p = path; *p != '\0'; p++)
		depth += *p == '/' ? 1 : 0;
	p = strrchr(path, '/');
	if (depth <= 2 || (depth == 3 && strcmp(p, "/backend") == 0))
		taskqueue_enqueue(sc->xbs_scan_queue, &sc->xbs_scan_task);
}

/* Is it still to be seen whether this one connects? */
static bool
xenbus_is_settling(device_t dev)
{
	enum xenbus_phase phase = xenbus_child_of(dev)->xb_phase;

	return (phase == XB_WAIT || phase == XB_PUBLISHED);
}

/* Give back ends a while to connect: whoever loads a driver expects its devices. */
static void
xenbus_settle(device_t dev)
{
	sbintime_t deadline = sbinuptime() + MIN(xenbus_connect_wait, 86400) * SBT_1S;
	device_t *children;
	int i, n;
	bool settling;

	do {
		settling = false;
		if (device_get_children(dev, &children, &n) != 0)
			return;
		for (i = 0; i < n; i++)
			settling = settling || xenbus_is_settling(children[i]);
		free(children, M_TEMP);
		if (settling)
			pause("xbsetl", MAX(hz / 50, 1));
	} while (settling && sbinuptime() < deadline);
}

/* Which of the devices that had a back end have none?  Say so. */
static void
xenbus_report_missing(device_t dev)
{
	struct xenbus_child *xb;
	device_t *children;
	int i, n;

	if (device_get_children(dev, &children, &n) != 0)
		return;
	for (i = 0; i < n; i++) {
		xb = xenbus_child_of(children[i]);
		if (xb->xb_connects != 0 && xb->xb_phase != XB_LIVE && xb->xb_phase != XB_IDLE)
			device_printf(children[i], "no back end after the suspension (%s, it is "
			    "%s); waiting for one\n", xenbus_phase_names[xb->xb_phase],
			    xenbus_state_name(xb->xb_other));
	}
	free(children, M_TEMP);
}

/* Call something for each of the front ends, which are held. */
static void
xenbus_each_held(device_t bus, void (*fn)(struct xenbus_child *))
{
	device_t *children;
	int error, i, n;

	bus_topo_lock();
	error = device_get_children(bus, &children, &n);
	bus_topo_unlock();
	if (error != 0)
		return;
	/* Who would delete one of them holds that lock perhaps, and waits (xenbus_wait_held()). */
	for (i = 0; i < n; i++)
		fn(xenbus_child_of(children[i]));
	free(children, M_TEMP);
}

static void
xenbus_suspend_child(struct xenbus_child *xb)
{

	if (xb->xb_phase == XB_LIVE)
		(void)DEVICE_SUSPEND(xb->xb_dev);
}

static void
xenbus_resume_child(struct xenbus_child *xb)
{

	if (xb->xb_phase == XB_LIVE)
		(void)DEVICE_RESUME(xb->xb_dev);
}

void
xenbus_suspend(device_t bus)
{

	xenbus_hold();
	xenbus_each_held(bus, xenbus_suspend_child);
}

void
xenbus_resume(device_t bus, bool cancelled)
{

	xenbus_each_held(bus, cancelled ? xenbus_resume_child : xenbus_begin_again);
	xenbus_go_on();
	if (cancelled)
		return;
	xenbus_settle(bus);
	xenbus_report_missing(bus);
}

static void
xenbus_driver_added(device_t dev, driver_t *driver)
{
	device_t *children;
	int n;

	bus_generic_driver_added(dev, driver);
	if (device_get_children(dev, &children, &n) != 0)
		return;
	xenbus_begin_attached(children, n);
	free(children, M_TEMP);
	xenbus_settle(dev);
}

static int
xenbus_read_ivar(device_t dev __unused, device_t child, int which, uintptr_t *result)
{
	struct xenbus_child *xb = xenbus_child_of(child);

	switch (which) {
	case XENBUS_IVAR_TYPE:
		*result = (uintptr_t)xb->xb_type;
		return (0);
	case XENBUS_IVAR_NODE:
		*result = (uintptr_t)xb->xb_node;
		return (0);
	case XENBUS_IVAR_OTHEREND_ID:
		*result = xb->xb_otherend;
		return (0);
	case XENBUS_IVAR_OTHEREND_PATH:
		*result = (uintptr_t)xb->xb_path;
		return (0);
	case XENBUS_IVAR_STATE:
		*result = xb->xb_state;
		return (0);
	default:
		return (ENOENT);
	}
}

static void
xenbus_child_detached(device_t dev __unused, device_t child)
{

	KASSERT(xenbus_child_of(child)->xb_phase == XB_IDLE,
	    ("%s: the driver of %s did not call xenbus_leave()", __func__, xenbus_get_node(child)));
}

static void
xenbus_child_deleted(device_t dev __unused, device_t child)
{
	struct xenbus_child *xb = xenbus_child_of(child);

	xenbus_wait_held();
	xenbus_forget(xb);
	device_set_ivars(child, NULL);
	xenbus_child_free(xb);
}

static int
xenbus_child_location(device_t dev __unused, device_t child, struct sbuf *sb)
{

	sbuf_printf(sb, "node=%s", xenbus_get_node(child));
	return (0);
}

static int
xenbus_child_pnpinfo(device_t dev __unused, device_t child, struct sbuf *sb)
{

	sbuf_printf(sb, "type=%s", xenbus_get_type(child));
	return (0);
}

static int
xenbus_print_child(device_t dev, device_t child)
{
	int n;

	n = bus_print_child_header(dev, child);
	n += printf(" at %s", xenbus_get_node(child));
	n += bus_print_child_footer(dev, child);
	return (n);
}

/* Front ends without a driver are many, and none is a surprise: device/suspend, vkbd ... */
static void
xenbus_probe_nomatch(device_t dev, device_t child)
{

	if (bootverbose)
		device_printf(dev, "no driver for %s\n", xenbus_get_node(child));
}

static int
xenbus_sysctl_devices(SYSCTL_HANDLER_ARGS)
{
	struct xenbus_softc *sc = arg1;
	struct xenbus_child *xb;
	device_t *children;
	struct sbuf *sb;
	int error, i, n;

	sb = sbuf_new_auto();
	bus_topo_lock();
	if (device_get_children(sc->xbs_dev, &children, &n) == 0) {
		for (i = 0; i < n; i++) {
			xb = xenbus_child_of(children[i]);
			sbuf_printf(sb, "\n%s %s %s state %s other %s connects %ju%s",
			    device_is_attached(children[i]) ? device_get_nameunit(children[i]) : "-",
			    xb->xb_node, xenbus_phase_names[xb->xb_phase],
			    xenbus_state_name(xb->xb_state), xenbus_state_name(xb->xb_other),
			    (uintmax_t)xb->xb_connects, xb->xb_lost ? " failed" : "");
		}
		free(children, M_TEMP);
	}
	bus_topo_unlock();
	error = sbuf_finish(sb);
	if (error == 0)
		error = SYSCTL_OUT(req, sbuf_data(sb), sbuf_len(sb) + 1);
	sbuf_delete(sb);
	return (error);
}

static int
xenbus_probe(device_t dev)
{

	device_set_desc(dev, "Xen front ends");
	return (BUS_PROBE_NOWILDCARD);
}

static int
xenbus_detach(device_t dev)
{
	struct xenbus_softc *sc = device_get_softc(dev);
	int error;

	error = device_delete_children(dev);
	if (error != 0)
		return (error);
	xenstore_watch_remove(&sc->xbs_watch);
	if (sc->xbs_scan_queue != NULL) {
		taskqueue_drain(sc->xbs_scan_queue, &sc->xbs_scan_task);
		taskqueue_free(sc->xbs_scan_queue);
	}
	if (sc->xbs_queue != NULL)
		taskqueue_free(sc->xbs_queue);
	sc->xbs_scan_queue = sc->xbs_queue = NULL;
	return (0);
}

static int
xenbus_attach(device_t dev)
{
	struct xenbus_softc *sc = device_get_softc(dev);
	int error;

	sc->xbs_dev = dev;
	TASK_INIT(&sc->xbs_scan_task, 0, xenbus_scan_task, sc);
	sc->xbs_queue = taskqueue_create("xenbus", M_WAITOK, taskqueue_thread_enqueue,
	    &sc->xbs_queue);
	(void)taskqueue_start_threads(&sc->xbs_queue, 1, PWAIT, "xenbus");
	sc->xbs_scan_queue = taskqueue_create("xenbus scan", M_WAITOK, taskqueue_thread_enqueue,
	    &sc->xbs_scan_queue);
	(void)taskqueue_start_threads(&sc->xbs_scan_queue, 1, PWAIT, "xenbus scan");
	SYSCTL_ADD_PROC(device_get_sysctl_ctx(dev), SYSCTL_CHILDREN(device_get_sysctl_tree(dev)),
	    OID_AUTO, "devices", CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE, sc, 0,
	    xenbus_sysctl_devices, "A", "Each front end, and how far it has come");

	sc->xbs_watch.xw_changed = xenbus_devices_watch;
	sc->xbs_watch.xw_arg = sc;
	error = xenstore_watch_add(&sc->xbs_watch, XENBUS_DIR, NULL);
	if (error != 0) {
		device_printf(dev, "devices can't be watched (error %d)\n", error);
		(void)xenbus_detach(dev);
		return (error);
	}
	xenbus_scan(sc);
	xenbus_settle(dev);
	return (0);
}

/* A machine that sleeps by itself keeps no back ends.  The toolstack suspends by control/shutdown. */
static int
xenbus_refuse_sleep(device_t dev)
{

	device_printf(dev, "a domain is suspended by its toolstack only (xl save)\n");
	return (EOPNOTSUPP);
}

static device_method_t xenbus_methods[] = {
	DEVMETHOD(device_probe, xenbus_probe),
	DEVMETHOD(device_attach, xenbus_attach),
	DEVMETHOD(device_detach, xenbus_detach),
	DEVMETHOD(device_shutdown, bus_generic_shutdown),
	DEVMETHOD(device_suspend, xenbus_refuse_sleep),

	DEVMETHOD(bus_print_child, xenbus_print_child),
	DEVMETHOD(bus_probe_nomatch, xenbus_probe_nomatch),
	DEVMETHOD(bus_read_ivar, xenbus_read_ivar),
	DEVMETHOD(bus_driver_added, xenbus_driver_added),
	DEVMETHOD(bus_child_detached, xenbus_child_detached),
	DEVMETHOD(bus_child_deleted, xenbus_child_deleted),
	DEVMETHOD(bus_child_location, xenbus_child_location),
	DEVMETHOD(bus_child_pnpinfo, xenbus_child_pnpinfo),
	DEVMETHOD_END
};

static driver_t xenbus_driver = {
	"xenbus",
	xenbus_methods,
	sizeof(struct xenbus_softc)
};

DRIVER_MODULE(xenbus, xen, xenbus_driver, NULL, NULL);
