/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenbus: the bus that front ends sit on; its theory is in xenbus.h, the states
 * are in xenbus_state.c.
 *
 * The toolstack puts a front end into our directory as device/TYPE/NUMBER, and
 * takes it out.  A watch on "device" fires for both, and for changes that do
 * not concern the bus, such as what front ends write themselves; after one that
 * may have changed the list of devices, it is read again by a thread of its
 * own: newbus calls may wait for a driver's detach, which may wait for the
 * thread of the front ends.
 *
 * Each front end gets a device without a name, which probe gives one.  They
 * come in the order of their numbers, so that xvda (51712) is before xvdb
 * (51728).
 *
 * Locking.  The bus topology lock: newbus's list of children, and whatever adds
 * to it or deletes from it.  A thread that sleeps drops it, so a list of
 * children that was taken before a sleep is good for nothing after it: whatever
 * may sleep for a front end looks for the next one from the head of
 * xbs_children.  That list has all that may still be given a driver or be
 * suspended; it is changed with the topology lock and, shared, xenbus_held, so
 * that a thread that holds all front ends may walk it.
 *
 * A detach sleeps, too, while newbus still takes the device for an attached
 * one, which a second thread may detach (the toolstack's removal, devctl(8),
 * kldunload(8)).  So a front end is busy while it is being detached, and the
 * second thread gets EBUSY.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <sys/libkern.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/priority.h>
#include <sys/queue.h>
#include <sys/sbuf.h>
#include <sys/sx.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <machine/atomic.h>

#include <dev/pv/pv_compat.h>
#include <dev/xen/xen_front.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xenbus.h>
#include <dev/xen/xenbus_var.h>

#define	XENBUS_DIR		"device"
#define	XENBUS_MAX_DEVICES	256
#define	XENBUS_TYPELEN		32
#define	XENBUS_LINELEN		192	/* of the sysctl `devices' */

static MALLOC_DEFINE(M_XENBUS, "xenbus", "xenbus front ends");

struct xenbus_softc {
	device_t	 xbs_dev;
	struct taskqueue *xbs_queue;	/* front ends' steps */
	struct taskqueue *xbs_scan_queue;
	struct timeout_task xbs_scan_task;
	bool		 xbs_unlisted;	/* the last list could not be read */
	struct xenstore_watch xbs_watch;
	TAILQ_HEAD(, xenbus_child) xbs_children;
	u_int		 xbs_drivers;	/* added so far: see xb_seen */
	u_int		 xbs_scans;	/* see xb_pruned */
	u_int		 xbs_deleting;	/* front ends that have
					 * not been freed yet */
	eventhandler_tag xbs_detach_tag;
	bool		 xbs_leaving;	/* a thread detaches it */
};

/* Which front end has this node? */
static struct xenbus_child *
xenbus_find(struct xenbus_softc *sc, const char *node)
{
	struct xenbus_child *xb;

	TAILQ_FOREACH(xb, &sc->xbs_children, xb_link) {
		if (!xb->xb_deleting && strcmp(xb->xb_node, node) == 0)
			break;
	}
	return (xb);
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
static struct xenbus_child *
xenbus_add(struct xenbus_softc *sc, const char *type, const char *node)
{
	struct xenbus_child *xb;

	xb = malloc(sizeof(*xb), M_XENBUS, M_WAITOK | M_ZERO);
	xb->xb_bus = sc->xbs_dev;
	xb->xb_queue = sc->xbs_queue;
	xb->xb_scan_task = &sc->xbs_scan_task;
	xb->xb_type = strdup(type, M_XENBUS);
	xb->xb_node = strdup(node, M_XENBUS);
	sx_init(&xb->xb_sx, "xenbus driver");
	mtx_init(&xb->xb_mtx, "xenbus front end", NULL, MTX_DEF);
	TIMEOUT_TASK_INIT(sc->xbs_queue, &xb->xb_task, 0, xenbus_child_task,
	    xb);
	TIMEOUT_TASK_INIT(sc->xbs_queue, &xb->xb_lose_task, 0, xenbus_lose_task,
	    xb);
	xb->xb_dev = device_add_child(sc->xbs_dev, NULL, DEVICE_UNIT_ANY);
	if (xb->xb_dev == NULL) {
		device_printf(sc->xbs_dev, "no room for %s\n", node);
		xenbus_child_free(xb);
		return (NULL);
	}
	device_set_ivars(xb->xb_dev, xb);
	xenbus_share_held();
	TAILQ_INSERT_TAIL(&sc->xbs_children, xb, xb_link);
	xenbus_unshare_held();
	return (xb);
}

/*
 * Give a driver to a front end that has none, and begin.  One that is alive and
 * not attached is being attached by another thread, which sleeps.
 */
static void
xenbus_try(struct xenbus_child *xb)
{

	if (!device_is_alive(xb->xb_dev) &&
	    device_probe_and_attach(xb->xb_dev) == 0)
		xenbus_begin(xb);
}

static int
xenbus_compare(const void *a, const void *b)
{
	const char *left = *(const char *const *)a,
	    *right = *(const char *const *)b;
	u_long l = strtoul(left, NULL, 10), r = strtoul(right, NULL, 10);

	if (l != r)
		return (l < r ? -1 : 1);
	return (strcmp(left, right));
}

/* The devices that the toolstack lists. */
struct xenbus_list {
	u_int	 xl_count;
	struct {
		char	xl_type[XENBUS_TYPELEN];
		char	xl_node[XENBUS_NAMELEN];
	}	 xl_nodes[XENBUS_MAX_DEVICES];
};

static int
xenbus_list_type(struct xenbus_softc *sc, struct xenbus_list *list,
    const char *type)
{
	char **units;
	u_int i, n;
	int error;
	bool exists;

	error = xenstore_list(NULL, XENBUS_DIR, type, &units, &n);
	if (error != 0)
		return (xenstore_is_missing(error) ? 0 : error);
	qsort(units, n, sizeof(*units), xenbus_compare);
	for (i = 0; i < n && error == 0; i++) {
		if (list->xl_count == XENBUS_MAX_DEVICES) {
			device_printf(sc->xbs_dev,
			    "more than %u devices; the rest is left out\n",
			    XENBUS_MAX_DEVICES);
			break;
		}
		if (snprintf(list->xl_nodes[list->xl_count].xl_node,
		    XENBUS_NAMELEN, XENBUS_DIR "/%s/%s", type,
		    units[i]) >= XENBUS_NAMELEN || !xen_front_is_ours(type,
		    list->xl_nodes[list->xl_count].xl_node))
			continue;
		/* Without a back end it is not one, or not yet. */
		error = xenstore_exists(NULL,
		    list->xl_nodes[list->xl_count].xl_node, "backend", &exists);
		if (error != 0 || !exists)
			continue;
		strlcpy(list->xl_nodes[list->xl_count].xl_type, type,
		    XENBUS_TYPELEN);
		list->xl_count++;
	}
	xenstore_free(units);
	return (error);
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
		return (xenstore_is_missing(error) ? 0 : error);
	for (i = 0; i < n && error == 0; i++) {
		if (strlen(types[i]) < XENBUS_TYPELEN)
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

/*
 * One that is not listed, or in whose place another is, and that this scan has
 * not tried to delete.
 */
static struct xenbus_child *
xenbus_unlisted(struct xenbus_softc *sc, const struct xenbus_list *list)
{
	struct xenbus_child *xb;

	TAILQ_FOREACH(xb, &sc->xbs_children, xb_link) {
		if (!xb->xb_deleting && xb->xb_pruned != sc->xbs_scans &&
		    (xb->xb_replaced || !xenbus_is_listed(list, xb->xb_node)))
			break;
	}
	return (xb);
}

/*
 * Delete the devices that are not listed any more.  One that another thread
 * attaches or detaches is tried again in a second: what that thread does may
 * leave the device without a driver.
 */
static void
xenbus_prune(struct xenbus_softc *sc, const struct xenbus_list *list)
{
	struct xenbus_child *xb;
	bool refused = false;
	int error;

	bus_topo_assert();
	sc->xbs_scans++;
	while ((xb = xenbus_unlisted(sc, list)) != NULL) {
		xb->xb_pruned = sc->xbs_scans;
		error = device_delete_child(sc->xbs_dev, xb->xb_dev);
		if (error == 0)
			continue;
		if (!xb->xb_stays)
			device_printf(sc->xbs_dev,
			    "%s was removed, but can't be detached yet (error "
			    "%d)\n", xb->xb_node, error);
		xb->xb_stays = refused = true;
	}
	if (refused)
		taskqueue_enqueue_timeout(sc->xbs_scan_queue,
		    &sc->xbs_scan_task, hz);
}

/*
 * Make the children agree with the toolstack's list.  If it can't be read, they
 * stay as they are, and it is read again.
 */
static void
xenbus_scan(void *arg, int pending __unused)
{
	struct xenbus_softc *sc = arg;
	struct xenbus_child *xb;
	struct xenbus_list *list;
	u_int i;
	int error;

	list = malloc(sizeof(*list), M_XENBUS, M_WAITOK | M_ZERO);
	error = xenbus_list_all(sc, list);
	if (error != 0) {
		if (!sc->xbs_unlisted)
			device_printf(sc->xbs_dev,
			    "devices can't be listed (error %d)\n", error);
		sc->xbs_unlisted = true;
		taskqueue_enqueue_timeout(sc->xbs_scan_queue,
		    &sc->xbs_scan_task, hz);
		free(list, M_XENBUS);
		return;
	}
	sc->xbs_unlisted = false;
	bus_topo_lock();
	xenbus_prune(sc, list);
	for (i = 0; i < list->xl_count; i++) {
		xb = xenbus_find(sc, list->xl_nodes[i].xl_node);
		if (xb != NULL) {
			/* It may have got another back end. */
			xenbus_kick(xb, 0);
			continue;
		}
		xb = xenbus_add(sc, list->xl_nodes[i].xl_type,
		    list->xl_nodes[i].xl_node);
		if (xb != NULL)
			xenbus_try(xb);
	}
	bus_topo_unlock();
	free(list, M_XENBUS);
}

/*
 * device, device/TYPE or device/TYPE/NUMBER came or went, or got another back
 * end?  What is deeper is the front ends' own.
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
		taskqueue_enqueue_timeout(sc->xbs_scan_queue,
		    &sc->xbs_scan_task, 0);
}

/* Is it still to be seen whether this one connects? */
static bool
xenbus_is_connecting(struct xenbus_child *xb)
{

	return (atomic_load_acq_int(&xb->xb_begins) != 0 ||
	    xb->xb_phase == XB_WAIT || xb->xb_phase == XB_PUBLISHED);
}

void
xenbus_wait_connect(device_t dev)
{
	struct xenbus_softc *sc = device_get_softc(dev);
	sbintime_t deadline = sbinuptime() +
	    xen_tunable(XEN_CONNECT_WAIT) * SBT_1S;
	struct xenbus_child *xb;
	bool connecting;

	do {
		connecting = false;
		bus_topo_lock();
		TAILQ_FOREACH(xb, &sc->xbs_children, xb_link)
			connecting = connecting || xenbus_is_connecting(xb);
		bus_topo_unlock();
		if (connecting)
			pause("xbconn", MAX(hz / 50, 1));
	} while (connecting && sbinuptime() < deadline);
}

void
xenbus_report_missing(device_t dev)
{
	struct xenbus_softc *sc = device_get_softc(dev);
	struct xenbus_child *xb;

	bus_topo_lock();
	TAILQ_FOREACH(xb, &sc->xbs_children, xb_link) {
		if (xb->xb_connects != 0 && xb->xb_phase != XB_LIVE &&
		    xb->xb_phase != XB_IDLE)
			device_printf(xb->xb_dev,
			    "no back end after the suspension (%s, it is "
			    "%s); waiting for one\n",
			    xenbus_phase_names[xb->xb_phase],
			    xenbus_state_name(xb->xb_other));
	}
	bus_topo_unlock();
}

/*
 * Call something for each of the front ends, which are held.  A thread that
 * deletes one may have the topology lock, and waits for xenbus_held.
 */
static void
xenbus_each_held(device_t bus, void (*fn)(struct xenbus_child *))
{
	struct xenbus_softc *sc = device_get_softc(bus);
	struct xenbus_child *xb;

	xenbus_assert_held();
	TAILQ_FOREACH(xb, &sc->xbs_children, xb_link)
		fn(xb);
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

	xenbus_each_held(bus, cancelled ? xenbus_resume_child :
	    xenbus_begin_again);
	xenbus_go_on();
}

void
xenbus_rescan(device_t bus)
{
	struct xenbus_softc *sc = device_get_softc(bus);

	taskqueue_enqueue_timeout(sc->xbs_scan_queue, &sc->xbs_scan_task, 0);
}

/* One that another thread detaches or deletes is waited for. */
void
xenbus_drop(device_t bus, const char *node)
{
	struct xenbus_softc *sc = device_get_softc(bus);
	struct xenbus_child *xb;

	bus_topo_assert();
	for (;;) {
		TAILQ_FOREACH(xb, &sc->xbs_children, xb_link) {
			if (strcmp(xb->xb_node, node) == 0)
				break;
		}
		if (xb == NULL && sc->xbs_deleting == 0)
			return;
		if (xb == NULL || xb->xb_deleting ||
		    device_delete_child(bus, xb->xb_dev) != 0)
			pause("xbdrop", MAX(hz / 50, 1));
	}
}

device_t
xenbus_device_of(device_t bus, const char *node)
{
	struct xenbus_child *xb;

	bus_topo_assert();
	xb = xenbus_find(device_get_softc(bus), node);
	return (xb != NULL ? xb->xb_dev : NULL);
}

/* Drivers may have come. */
void
xenbus_try_all(device_t dev)
{
	struct xenbus_softc *sc = device_get_softc(dev);
	struct xenbus_child *xb;

	/*
	 * An attach may sleep, and front ends be deleted meanwhile: each time
	 * from the first one.
	 */
	sc->xbs_drivers++;
	do {
		TAILQ_FOREACH(xb, &sc->xbs_children, xb_link) {
			if (!xb->xb_deleting && xb->xb_seen != sc->xbs_drivers)
				break;
		}
		if (xb != NULL) {
			xb->xb_seen = sc->xbs_drivers;
			xenbus_try(xb);
		}
	} while (xb != NULL);
}

static void
xenbus_driver_added(device_t dev, driver_t *driver __unused)
{

	xenbus_try_all(dev);
	xenbus_wait_connect(dev);
}

static int
xenbus_read_ivar(device_t dev __unused, device_t child, int which,
    uintptr_t *result)
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

/* Any device is about to be detached, or has been. */
static void
xenbus_device_detach(void *arg, device_t child, enum evhdev_detach when)
{
	struct xenbus_softc *sc = arg;

	if (device_get_parent(child) != sc->xbs_dev)
		return;
	if (when == EVHDEV_DETACH_BEGIN)
		device_busy(child);
	else
		device_unbusy(child);
}

static void
xenbus_child_detached(device_t dev __unused, device_t child)
{

	KASSERT(xenbus_child_of(child)->xb_phase == XB_IDLE,
	    ("%s: the driver of %s did not call xenbus_leave()", __func__,
	    xenbus_get_node(child)));
}

static void
xenbus_child_deleted(device_t dev, device_t child)
{
	struct xenbus_softc *sc = device_get_softc(dev);
	struct xenbus_child *xb = xenbus_child_of(child);

	xb->xb_deleting = true;
	sc->xbs_deleting++;
	xenbus_share_held();
	TAILQ_REMOVE(&sc->xbs_children, xb, xb_link);
	xenbus_unshare_held();
	xenbus_forget(xb);
	device_set_ivars(child, NULL);
	xenbus_child_free(xb);
	sc->xbs_deleting--;
}

static void
xenbus_hint_unit(device_t dev __unused, device_t child, const char *name,
    int *unitp)
{
	int unit = xen_front_unit(xenbus_get_node(child));

	if (unit >= 0 && devclass_get_device(devclass_find(name), unit) == NULL)
		*unitp = unit;
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

/*
 * Front ends without a driver are many, and none is a surprise: device/suspend,
 * vkbd ...
 */
static void
xenbus_probe_nomatch(device_t dev, device_t child)
{

	if (bootverbose)
		device_printf(dev, "no driver for %s\n",
		    xenbus_get_node(child));
}

static int
xenbus_sysctl_devices(SYSCTL_HANDLER_ARGS)
{
	struct xenbus_softc *sc = arg1;
	enum xenbus_phase phase;
	struct xenbus_child *xb;
	struct sbuf *sb;
	int error;

	/*
	 * A buffer that does not grow: nothing below sleeps, which would drop
	 * the lock.
	 */
	sb = sbuf_new(NULL, NULL, XENBUS_MAX_DEVICES * XENBUS_LINELEN,
	    SBUF_FIXEDLEN);
	bus_topo_lock();
	TAILQ_FOREACH(xb, &sc->xbs_children, xb_link) {
		phase = xb->xb_phase;
		/* Pairs with the release in xenbus_step_published(). */
		atomic_thread_fence_acq();
		sbuf_printf(sb, "\n%s %s %s state %s other %s connects %ju%s",
		    device_is_attached(xb->xb_dev) ?
		    device_get_nameunit(xb->xb_dev) : "-", xb->xb_node,
		    xenbus_phase_names[phase], xenbus_state_name(xb->xb_state),
		    xenbus_state_name(xb->xb_other), (uintmax_t)xb->xb_connects,
		    xb->xb_lost ? " failed" : "");
	}
	bus_topo_unlock();
	error = sbuf_finish(sb);
	if (error == 0)
		error = SYSCTL_OUT(req, sbuf_data(sb), sbuf_len(sb) + 1);
	sbuf_delete(sb);
	return (error);
}

static void
xenbus_add_sysctls(struct xenbus_softc *sc)
{
	static const struct {
		const char	*name;
		uint64_t	*value;
		const char	*descr;
	} counters[] = {
		{ "invalid", &xenbus_invalid,
		    "Values in xenstore that were refused" },
		{ "unsaid", &xenbus_unsaid,
		    "Messages that were suppressed by a rate limit" },
		{ "delayed", &xenbus_delayed,
		    "Rate-limited changes by back ends, handled later" },
		{ "retries", &xenbus_retries,
		    "Set-ups that failed for a reason that may pass" },
		{ "unanswered", &xenbus_putoffs,
		    "Steps that xenstore did not answer" },
	};
	struct sysctl_ctx_list *ctx = device_get_sysctl_ctx(sc->xbs_dev);
	struct sysctl_oid_list *list =
	    SYSCTL_CHILDREN(device_get_sysctl_tree(sc->xbs_dev));
	u_int i;

	SYSCTL_ADD_PROC(ctx, list, OID_AUTO, "devices", CTLTYPE_STRING |
	    CTLFLAG_RD | CTLFLAG_MPSAFE, sc, 0, xenbus_sysctl_devices, "A",
	    "Each front end, and how far it has come");
	for (i = 0; i < nitems(counters); i++)
		SYSCTL_ADD_U64(ctx, list, OID_AUTO, counters[i].name,
		    CTLFLAG_RD, counters[i].value, 0, counters[i].descr);
}

static int
xenbus_probe(device_t dev)
{

	device_set_desc(dev, "Xen front ends");
	return (BUS_PROBE_NOWILDCARD);
}

static int
xenbus_watch_devices(struct xenbus_softc *sc)
{
	int error;

	sc->xbs_watch.xw_changed = xenbus_devices_watch;
	sc->xbs_watch.xw_arg = sc;
	error = xenstore_watch_add(&sc->xbs_watch, XENBUS_DIR, NULL);
	if (error != 0)
		device_printf(sc->xbs_dev,
		    "devices can't be watched (error %d)\n", error);
	return (error);
}

/* No scan runs when this returns, and none will. */
static void
xenbus_stop_scans(struct xenbus_softc *sc)
{

	xenstore_watch_remove(&sc->xbs_watch);
	/*
	 * A scan that can't list the devices, or delete one, schedules another.
	 */
	while (taskqueue_cancel_timeout(sc->xbs_scan_queue, &sc->xbs_scan_task,
	    NULL) != 0)
		taskqueue_drain_timeout(sc->xbs_scan_queue, &sc->xbs_scan_task);
}

/* Delete all front ends, and wait for those that other threads delete. */
static int
xenbus_delete_all(struct xenbus_softc *sc)
{
	struct xenbus_child *xb;
	int error = 0;

	do {
		TAILQ_FOREACH(xb, &sc->xbs_children, xb_link) {
			if (!xb->xb_deleting)
				break;
		}
		if (xb != NULL)
			error = device_delete_child(sc->xbs_dev, xb->xb_dev);
		else if (sc->xbs_deleting != 0)
			pause("xbdele", MAX(hz / 50, 1));
	} while (error == 0 && (xb != NULL || sc->xbs_deleting != 0));
	if (error != 0)
		device_printf(sc->xbs_dev,
		    "%s can't be detached (error %d): the module stays\n",
		    xb->xb_node, error);
	return (error);
}

static int
xenbus_detach(device_t dev)
{
	struct xenbus_softc *sc = device_get_softc(dev);
	int error;

	/* Another thread is here, and sleeps. */
	if (sc->xbs_leaving)
		return (EBUSY);
	sc->xbs_leaving = true;
	xenbus_stop_scans(sc);
	error = xenbus_delete_all(sc);
	if (error != 0) {
		sc->xbs_leaving = false;
		/* It stays; what changed meanwhile is still to be seen. */
		(void)xenbus_watch_devices(sc);
		taskqueue_enqueue_timeout(sc->xbs_scan_queue,
		    &sc->xbs_scan_task, 0);
		return (error);
	}
	EVENTHANDLER_DEREGISTER(device_detach, sc->xbs_detach_tag);
	taskqueue_free(sc->xbs_scan_queue);
	taskqueue_free(sc->xbs_queue);
	return (0);
}

static int
xenbus_attach(device_t dev)
{
	struct xenbus_softc *sc = device_get_softc(dev);
	int error;

	sc->xbs_dev = dev;
	TAILQ_INIT(&sc->xbs_children);
	sc->xbs_queue = taskqueue_create("xenbus", M_WAITOK,
	    taskqueue_thread_enqueue, &sc->xbs_queue);
	error = taskqueue_start_threads(&sc->xbs_queue, 1, PWAIT, "xenbus");
	sc->xbs_scan_queue = taskqueue_create("xenbus scan", M_WAITOK,
	    taskqueue_thread_enqueue, &sc->xbs_scan_queue);
	TIMEOUT_TASK_INIT(sc->xbs_scan_queue, &sc->xbs_scan_task, 0,
	    xenbus_scan, sc);
	if (error == 0)
		error = taskqueue_start_threads(&sc->xbs_scan_queue, 1, PWAIT,
		    "xenbus scan");
	xenbus_add_sysctls(sc);
	sc->xbs_detach_tag = EVENTHANDLER_REGISTER(device_detach,
	    xenbus_device_detach, sc, EVENTHANDLER_PRI_ANY);
	if (error == 0)
		error = xenbus_watch_devices(sc);
	if (error != 0) {
		(void)xenbus_detach(dev);
		return (error);
	}
	xenbus_scan(sc, 0);
	xenbus_wait_connect(dev);
	return (0);
}

/*
 * A guest can't suspend itself and keep its back ends: the toolstack does, by
 * control/shutdown.
 */
static int
xenbus_refuse_sleep(device_t dev)
{

	device_printf(dev,
	    "a domain is suspended by its toolstack only (xl save)\n");
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
	DEVMETHOD(bus_hint_device_unit, xenbus_hint_unit),
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
