/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Front ends on FreeBSD's own Xen core: which of them are ours.
 *
 * The kernel's bus, xenbusb_front0, has a device for each front end of the
 * toolstack's list.  One that is to be ours gets the driver "xenfront", which
 * does nothing but to keep the kernel's drivers from it; its other self, which
 * a driver of the suite has, is on our own bus (xenbus.c).
 *
 *	xenbusb_front0				xenbus0
 *	  xenfront0	device/vbd/51712	  xbd0
 *	  xenfront1	device/vif/0		  xn0
 *	  xbd1		device/vbd/51728		(left to the kernel)
 *
 * The kernel's drivers return BUS_PROBE_SPECIFIC, at which newbus asks no
 * other.  So "xenfront" is asked first: the kernel's drivers are registered in
 * SI_ORDER_MIDDLE, and a module that loader(8) loaded, which registers in
 * SI_ORDER_FIRST, comes before them.  No device has to be moved while the
 * kernel boots.  A module that is loaded later comes after them: a device keeps
 * the driver that it has, until devctl(8) moves it, and one that arrives later
 * is moved as soon as the kernel's driver has attached, which is before it can
 * have connected.
 *
 * A front end is left to the kernel if no driver of the suite for its type is
 * loaded, or hw.pv.disable has "all", its driver ("xbd") or its name ("xbd0").
 * It returns to the kernel when its driver of the suite is unloaded, or this
 * module.
 *
 * The kernel's core keeps a copy of the state that a front end last wrote, and
 * does not mount root before each was Connected or Closed: xen_front_told() has
 * it know.
 *
 * Two threads and one device.  Newbus lets a second thread detach a device
 * while the first sleeps in its detach, and the core, which is the second if
 * the toolstack removes what devctl(8) is moving, frees the device whatever
 * that returns.  So whoever detaches one is in a list (struct front_turn) from
 * newbus's EVHDEV_DETACH_BEGIN on.  The core waits there until it is the last.
 * The others stop waiting for anything that needs taskqueue_thread, which is
 * the core's.  The kernel's drivers are attached in that thread, too, where no
 * deletion comes between.
 *
 * Locking.  front_mtx (mutex): the list, turns.  The topology lock: which
 * drivers devices have.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
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

#include <xen/xen-os.h>
#include <xen/xenstore/xenstorevar.h>
#include <xen/xenbus/xenbusvar.h>

#include <dev/pv/pv_tunable.h>
#include <dev/xen/xen_front.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore.h>
#include <dev/xen/core/core.h>

#define	FRONT_BUS	"xenbusb_front"
#define	FRONT_TRIES	50	/* tenths of a second for a driver
				 * of ours to be gone */
#define	FRONT_CLOSE_TRIES 20	/* for a back end to disconnect */
#define	FRONT_PATHLEN	128	/* of a back end;
				 * "/local/domain/0/backend/vbd/3/51712" */
#define	FRONT_LOOK_TRIES 200	/* hundredths of a second
				 * for an event of xenstore */

MALLOC_DECLARE(M_XEN);

struct front {
	LIST_ENTRY(front) f_link;
	device_t	 f_dev;
	char		*f_node;	/* "device/vbd/51712"; a copy, as the
					 * core frees its own */
	bool		 f_leaving;
	bool		 f_left;	/* front_leave() was called,
					 * and need not be */
	bool		 f_told;	/* the core knows
					 * that it was Connected or Closed */
	enum xenbus_state f_state;	/* that was last told */
};

static const struct front_type {
	const char	*ft_type;
	const char	*ft_driver;
	const char	*ft_module;
} front_types[] = {
	{ "vbd", "xbd", "xenbus/xbd" },
	{ "vif", "xn", "xenbus/xn" },
};

static struct mtx front_mtx;
MTX_SYSINIT(xen_core_front, &front_mtx, "xen core front", MTX_DEF);

static LIST_HEAD(, front) front_list = LIST_HEAD_INITIALIZER(front_list);
static const struct xen_core_fronts *front_users;
static eventhandler_tag front_attach_tag, front_detach_tag;
static struct taskqueue *front_queue;	/* not the one that the core's
					 * task is in */
static struct timeout_task front_reconcile_task;
static u_int front_tries;
static bool front_ready;	/* the task may be scheduled */
static bool front_kept;		/* xenstore did not answer: it left one to us */
static struct task front_offer_task;	/* in the core's thread */

static driver_t front_driver;

static const struct front_type *
front_type_of(device_t dev)
{
	const char *type = xenbus_get_type(dev);
	u_int i;

	for (i = 0; type != NULL && i < nitems(front_types); i++) {
		if (strcmp(type, front_types[i].ft_type) == 0)
			return (&front_types[i]);
	}
	return (NULL);
}

/* Is there a driver of the suite? */
static bool
front_is_loaded(const struct front_type *ft)
{
	bool loaded;

	MOD_SLOCK;
	loaded = module_lookupbyname(ft->ft_module) != NULL;
	MOD_SUNLOCK;
	return (loaded);
}

static u_long
front_number(const char *node)
{
	const char *p = strrchr(node, '/');

	return (p != NULL ? strtoul(p + 1, NULL, 10) : 0);
}

/*
 * Of a disk: its number among xvda, xvdb ... (xen-vbd-interface(7)); others
 * have none.
 */
int
xen_front_unit(const char *node)
{
	u_long n = front_number(node);

	if (strncmp(node, "device/vbd/", 11) != 0)
		return (-1);
	if ((n & (1 << 28)) != 0)
		return ((n & ((1 << 28) - 1)) >> 8);
	return (n >> 8 == 202 ? (int)(n & 0xff) >> 4 : -1);
}

/* What hw.pv.disable calls it. */
static void
front_name(device_t dev, const struct front_type *ft, char *name, size_t size)
{
	const char *node = xenbus_get_node(dev);
	int unit = xen_front_unit(node);

	snprintf(name, size, "%s%lu", ft->ft_driver, unit >= 0 ? (u_long)unit :
	    front_number(node));
}

/*
 * Was this driver named to devctl(8), or chosen here?  That is more than a
 * tunable says.
 */
static bool
front_is_explicit(device_t dev)
{

	return (device_is_devclass_fixed(dev) && device_get_name(dev) != NULL &&
	    strcmp(device_get_name(dev), front_driver.name) == 0);
}

static bool
front_is_ours(device_t dev)
{

	return (device_get_driver(dev) == &front_driver);
}

/*
 * In a domain whose hypervisor can emulate devices: those which it is to
 * emulate, and CD-ROMs, which it always does.
 */
static bool
front_is_emulated(device_t dev, const struct front_type *ft)
{
	void *type;
	bool cdrom;

	if (!xen_hvm_domain())
		return (false);
	if (strcmp(ft->ft_type, "vif") == 0)
		return (xen_pv_nics_disabled());
	if (xen_pv_disks_disabled())
		return (true);
	if (xs_read(XST_NIL, xenbus_get_node(dev), "device-type", NULL,
	    &type) != 0)
		return (true);
	cdrom = strcmp(type, "cdrom") == 0;
	free(type, M_XENSTORE);
	return (cdrom);
}

/* Why is a front end not to be ours?  NULL: it is to be. */
static const char *
front_unwanted(device_t dev)
{
	const struct front_type *ft = front_type_of(dev);
	char name[16];

	if (ft == NULL)
		return ("no driver for this type");
	if (!front_is_loaded(ft))
		return ("its driver is not loaded");
	if (front_is_explicit(dev))
		return (NULL);
	front_name(dev, ft, name, sizeof(name));
	if (pv_is_listed("hw.pv.disable", "all") ||
	    pv_is_listed("hw.pv.disable", ft->ft_driver) ||
	    pv_is_listed("hw.pv.disable", name))
		return ("hw.pv.disable has it");
	if (front_is_emulated(dev, ft))
		return ("the device is emulated");
	return (NULL);
}

static struct front *
front_find(const char *node)
{
	struct front *f;

	mtx_assert(&front_mtx, MA_OWNED);
	LIST_FOREACH(f, &front_list, f_link) {
		if (strcmp(f->f_node, node) == 0)
			break;
	}
	return (f);
}

bool
xen_front_is_ours(const char *type __unused, const char *node)
{
	struct front *f;
	bool ours;

	mtx_lock(&front_mtx);
	f = front_find(node);
	ours = f != NULL && !f->f_leaving;
	mtx_unlock(&front_mtx);
	return (ours);
}

/*
 * The core writes states for devices, in the thread that talks to xenstore, for
 * which nobody waits longer than hw.xen.xenstore_timeout.  It frees a device
 * when its driver is detached: what has not been begun by then is not written,
 * and what has is waited for.
 *
 * So it is when the domain is suspended.  What has not been begun by then waits
 * until it goes on, and is not written in a new domain, where each front end
 * begins anew.
 */
struct front_write {
	LIST_ENTRY(front_write) fw_link;
	device_t	fw_dev;		/* NULL: its driver is being detached */
	u_int		fw_life;	/* xen_life */
	enum xenbus_state fw_states[2];	/* one after the other; the core writes
					 * no state twice */
};

static LIST_HEAD(,
    front_write) front_writes = LIST_HEAD_INITIALIZER(front_writes);
static device_t front_writing;	/* the device of the one that is being made */
static bool front_held;		/* the domain is being suspended */

static struct front_write *
front_write_new(void)
{

	return (malloc(sizeof(struct front_write), M_XEN, M_WAITOK));
}

static void
front_write_add(struct front_write *fw, device_t dev, enum xenbus_state first,
    enum xenbus_state second)
{

	mtx_assert(&front_mtx, MA_OWNED);
	fw->fw_dev = dev;
	fw->fw_life = atomic_load_int(&xen_life);
	fw->fw_states[0] = first;
	fw->fw_states[1] = second;
	LIST_INSERT_HEAD(&front_writes, fw, fw_link);
}

/* In the thread that talks to xenstore. */
static void
front_write(void *arg)
{
	struct front_write *fw = arg;
	device_t dev;
	u_int i;

	mtx_lock(&front_mtx);
	while (front_held)
		msleep(&front_held, &front_mtx, 0, "xfheld", 0);
	LIST_REMOVE(fw, fw_link);
	dev = front_writing = fw->fw_life == atomic_load_int(&xen_life) ?
	    fw->fw_dev : NULL;
	mtx_unlock(&front_mtx);
	for (i = 0; dev != NULL && i < nitems(fw->fw_states); i++)
		(void)BUS_WRITE_IVAR(device_get_parent(dev), dev,
		    XENBUS_IVAR_STATE, fw->fw_states[i]);
	mtx_lock(&front_mtx);
	front_writing = NULL;
	wakeup(&front_writing);
	mtx_unlock(&front_mtx);
	free(fw, M_XEN);
}

/* A device loses its driver, and may be freed then. */
static void
front_write_none(device_t dev)
{
	struct front_write *fw;

	mtx_lock(&front_mtx);
	LIST_FOREACH(fw, &front_writes, fw_link) {
		if (fw->fw_dev == dev)
			fw->fw_dev = NULL;
	}
	while (front_writing == dev)
		msleep(&front_writing, &front_mtx, 0, "xftold", 0);
	mtx_unlock(&front_mtx);
}

void
xen_core_front_suspend(void)
{

	mtx_lock(&front_mtx);
	front_held = true;
	while (front_writing != NULL)
		msleep(&front_writing, &front_mtx, 0, "xfsusp", 0);
	mtx_unlock(&front_mtx);
}

void
xen_core_front_resume(void)
{

	mtx_lock(&front_mtx);
	front_held = false;
	wakeup(&front_held);
	mtx_unlock(&front_mtx);
}

static bool
front_is_settled(enum xenbus_state state)
{

	return (state == XenbusStateConnected || state == XenbusStateClosed);
}

void
xen_front_told(const char *node, enum xenbus_state state)
{
	struct front_write *fw = front_write_new();
	struct front *f;

	mtx_lock(&front_mtx);
	f = front_find(node);
	if (f != NULL) {
		f->f_state = state;
		f->f_told = f->f_told || front_is_settled(state);
		front_write_add(fw, f->f_dev, state, state);
	}
	mtx_unlock(&front_mtx);
	if (f != NULL)
		(void)xen_core_store_call(front_write, fw);
	else
		free(fw, M_XEN);
}

/* For one that has not settled, and that is taken for it from now on. */
static bool
front_write_unsettled(struct front_write *fw)
{
	struct front *f;

	mtx_lock(&front_mtx);
	LIST_FOREACH(f, &front_list, f_link) {
		if (!f->f_told)
			break;
	}
	if (f != NULL) {
		f->f_told = true;
		device_printf(f->f_dev,
		    "%s has not connected: nothing waits for it any more\n",
		    f->f_node);
		front_write_add(fw, f->f_dev, XenbusStateClosed, f->f_state);
	}
	mtx_unlock(&front_mtx);
	return (f != NULL);
}

void
xen_core_front_release(void)
{
	struct front_write *fw;

	fw = front_write_new();
	while (front_write_unsettled(fw)) {
		(void)xen_core_store_call(front_write, fw);
		fw = front_write_new();
	}
	free(fw, M_XEN);
}

static int
front_probe(device_t dev)
{

	if (front_unwanted(dev) != NULL)
		return (ENXIO);
	device_set_descf(dev, "Xen front end (%s)", xenbus_get_type(dev));
	device_quiet(dev);
	return (BUS_PROBE_SPECIFIC);
}

static int
front_attach(device_t dev)
{
	struct front *f = device_get_softc(dev);

	f->f_dev = dev;
	f->f_node = strdup(xenbus_get_node(dev), M_XEN);
	f->f_state = XenbusStateInitialising;
	f->f_leaving = f->f_left = f->f_told = false;
	mtx_lock(&front_mtx);
	LIST_INSERT_HEAD(&front_list, f, f_link);
	mtx_unlock(&front_mtx);
	if (front_users != NULL)
		front_users->xcf_changed();
	return (0);
}

/*
 * A thread that detaches a device of the bus; the core's waits for the others.
 */
struct front_turn {
	TAILQ_ENTRY(front_turn) fn_link;
	device_t	fn_dev;
	struct thread	*fn_thread;
	bool		fn_core;
};

static TAILQ_HEAD(,
    front_turn) front_turns = TAILQ_HEAD_INITIALIZER(front_turns);

static bool
front_in_core(void)
{

	return (taskqueue_member(taskqueue_thread, curthread) != 0);
}

/* Does the core wait for those who detach this device, to delete it? */
static bool
front_is_removed_locked(device_t dev)
{
	struct front_turn *fn;

	mtx_assert(&front_mtx, MA_OWNED);
	TAILQ_FOREACH(fn, &front_turns, fn_link) {
		if (fn->fn_dev == dev && fn->fn_core)
			return (true);
	}
	return (false);
}

static bool
front_is_removed(device_t dev)
{
	bool removed;

	mtx_lock(&front_mtx);
	removed = front_is_removed_locked(dev);
	mtx_unlock(&front_mtx);
	return (removed);
}

/* Is there one to wait for: before it, or, for the core's, any? */
static bool
front_turn_waits(const struct front_turn *mine)
{
	struct front_turn *fn;

	TAILQ_FOREACH(fn, &front_turns, fn_link) {
		if (fn == mine && !mine->fn_core)
			break;
		if (fn != mine && fn->fn_dev == mine->fn_dev && !fn->fn_core)
			return (true);
	}
	return (false);
}

/*
 * A thread is about to detach a device of the bus.  When this returns for the
 * core's, no other is, or will be; and the device has a driver, which the one
 * before may have taken away.
 */
static void
front_turn_begin(device_t dev)
{
	struct front_turn *fn;

	fn = malloc(sizeof(*fn), M_XEN, M_WAITOK | M_ZERO);
	fn->fn_dev = dev;
	fn->fn_thread = curthread;
	fn->fn_core = front_in_core();
	mtx_lock(&front_mtx);
	TAILQ_INSERT_TAIL(&front_turns, fn, fn_link);
	wakeup(&front_turns);
	while (front_turn_waits(fn))
		msleep(&front_turns, &front_mtx, 0, "xfturn", 0);
	mtx_unlock(&front_mtx);
	if (!fn->fn_core)
		return;
	while (device_get_state(dev) == DS_ATTACHING)
		pause("xfturn", MAX(hz / 100, 1));
	if (device_get_state(dev) == DS_NOTPRESENT) {
		(void)device_set_devclass(dev, NULL);
		if (device_set_devclass_fixed(dev, front_driver.name) == 0)
			(void)device_probe_and_attach(dev);
	}
	device_busy(dev);
}

static void
front_turn_end(device_t dev)
{
	struct front_turn *fn;

	mtx_lock(&front_mtx);
	TAILQ_FOREACH(fn, &front_turns, fn_link) {
		if (fn->fn_dev == dev && fn->fn_thread == curthread)
			break;
	}
	if (fn != NULL)
		TAILQ_REMOVE(&front_turns, fn, fn_link);
	wakeup(&front_turns);
	mtx_unlock(&front_mtx);
	if (fn != NULL && fn->fn_core)
		device_unbusy(dev);
	free(fn, M_XEN);
}

static void
front_mark_seen(struct xenstore_watch *w, const char *path __unused)
{
	volatile u_int *seen = w->xw_arg;

	atomic_store_rel_int(seen, 1);
}

static void
front_run(void *arg, int pending __unused)
{

	atomic_store_rel_int((volatile u_int *)arg, 1);
}

/*
 * Wait for a flag, or until the core waits for us, or FRONT_LOOK_TRIES if they
 * are counted.
 */
static void
front_wait_flag(device_t dev, volatile u_int *flag, bool counted)
{
	u_int i;

	for (i = 0; (!counted || i < FRONT_LOOK_TRIES) &&
	    atomic_load_acq_int(flag) == 0 && !front_is_removed(dev); i++)
		pause("xflook", MAX(hz / 100, 1));
}

/*
 * Whatever changes below a node has the core look for new devices, soon and in
 * a task: one that it finds without a driver it gives to the kernel's, though
 * another thread may be about to, which sleeps.  So the core is waited for
 * before a device loses its driver: until the event of a watch that is set now
 * has come, which is behind those of what was written, and the task that they
 * led to has run.  A device that the toolstack has removed is deleted by that
 * task, which can't wait for itself.
 */
static void
front_let_core_look(device_t dev, const char *node)
{
	struct xenstore_watch mark = { .xw_changed = front_mark_seen };
	volatile u_int ran = 0, seen = 0;
	struct task last;
	bool exists;

	if (front_in_core() || front_is_removed(dev) ||
	    xenstore_exists(NULL, node, "state", &exists) != 0 || !exists)
		return;
	mark.xw_arg = __DEVOLATILE(u_int *, &seen);
	if (xenstore_watch_add(&mark, "domid", NULL) != 0)
		return;
	front_wait_flag(dev, &seen, true);
	xenstore_watch_remove(&mark);
	TASK_INIT(&last, 0, front_run, __DEVOLATILE(u_int *, &ran));
	taskqueue_enqueue(taskqueue_thread, &last);
	front_wait_flag(dev, &ran, false);
	if (taskqueue_cancel(taskqueue_thread, &last, NULL) != 0)
		taskqueue_drain(taskqueue_thread, &last);
}

/*
 * Remove what front ends write for their back ends, so that it is not taken for
 * the next driver's: with feature-persistent, for one, Linux's keeps pages
 * mapped.
 */
static void
front_unpublish(const char *node)
{
	static const char *const published[] = {
		"event-channel", "feature-", "multi-queue-num-queues",
		    "num-ring-pages", "queue-",
		"request-", "ring-page-order", "ring-ref", "rx-ring-ref",
		    "tx-ring-ref",
	};
	char **names;
	u_int i, j, n;

	if (xenstore_list(NULL, node, NULL, &names, &n) != 0)
		return;
	for (i = 0; i < n; i++) {
		for (j = 0; j < nitems(published); j++) {
			if (strncmp(names[i], published[j],
			    strlen(published[j])) == 0)
				(void)xenstore_remove(NULL, node, names[i]);
		}
	}
	xenstore_free(names);
}

/* A state, in xenstore.  Where there is none, nobody is to be waited for. */
static int
front_read_state(const char *node, enum xenbus_state *state)
{
	char *value;
	int error;

	*state = XenbusStateClosed;
	error = xenstore_read(NULL, node, "state", &value, NULL);
	if (error != 0)
		return (xenstore_is_missing(error) ? 0 : error);
	*state = (enum xenbus_state)strtoul(value, NULL, 10);
	xenstore_free(value);
	return (0);
}

/*
 * Wait until a back end has disconnected: by its state at otherend in xenstore
 * or, if that is NULL, by what the core has seen of it.  Returns 0, or the
 * error of xenstore.
 */
static int
front_await_close(device_t dev, const char *otherend)
{
	enum xenbus_state state;
	u_int i;
	int error = 0;

	for (i = 0; i < FRONT_CLOSE_TRIES && !front_is_removed(dev); i++) {
		if (otherend == NULL)
			state = xenbus_get_otherend_state(dev);
		else if ((error = front_read_state(otherend, &state)) != 0)
			break;
		if (state != XenbusStateConnected &&
		    state != XenbusStateClosing)
			break;
		pause("xfclos", MAX(hz / 10, 1));
	}
	return (error);
}

/*
 * A driver of the kernel's begins where ours has ended: the last state is
 * Closed, in xenstore and in the core's copy, and the back end has
 * disconnected.  It is not so if xenstore did not answer when our driver was
 * detached.  Returns 0, or an error: then the device is not to be the kernel's
 * yet.
 */
static int
front_close_ours(device_t dev, const char *node)
{
	struct front_write *fw = front_write_new();
	char otherend[FRONT_PATHLEN];
	enum xenbus_state state;
	struct front *f;
	bool closed;
	int error;

	error = front_read_state(node, &state);
	mtx_lock(&front_mtx);
	f = front_find(node);
	/* The core may have deleted the device meanwhile. */
	closed = error != 0 || f == NULL || f->f_dev != dev ||
	    (state == XenbusStateClosed &&
	    xenbus_get_state(dev) == XenbusStateClosed);
	if (!closed) {
		strlcpy(otherend, xenbus_get_otherend_path(dev),
		    sizeof(otherend));
		front_write_add(fw, dev, XenbusStateClosing, XenbusStateClosed);
	}
	mtx_unlock(&front_mtx);
	if (closed) {
		free(fw, M_XEN);
		return (error);
	}
	error = xen_core_store_call(front_write, fw);
	return (error != 0 ? error : front_await_close(dev, otherend));
}

/*
 * What sleeps before a device can be the kernel's again.  Its driver of ours is
 * gone.  Returns 0; ENXIO if the core has deleted it meanwhile, as while
 * device_detach(9) sleeps nothing keeps the core from that; or another error,
 * and the device is not to be the kernel's yet.
 */
static int
front_leave(device_t dev)
{
	struct front *f = device_get_softc(dev);
	char *node = strdup(f->f_node, M_XEN);
	int error;

	mtx_lock(&front_mtx);
	f->f_leaving = true;
	mtx_unlock(&front_mtx);
	front_users->xcf_drop(node);
	front_unpublish(node);
	error = front_close_ours(dev, node);
	if (error == 0)
		front_let_core_look(dev, node);
	front_write_none(dev);
	mtx_lock(&front_mtx);
	f = front_find(node);
	if (f == NULL || f->f_dev != dev)
		error = ENXIO;
	else if (error == 0)
		f->f_left = true;
	else
		f->f_leaving = false;
	mtx_unlock(&front_mtx);
	free(node, M_XEN);
	return (error);
}

/*
 * The device of a node on our bus is to go, for a thread that may cease to wait
 * for that.
 */
struct front_drop {
	struct task	 fd_task;
	char		*fd_node;
	bool		 fd_done;
	bool		 fd_alone;	/* nobody waits */
};

static void
front_drop_free(struct front_drop *fd)
{

	free(fd->fd_node, M_XEN);
	free(fd, M_XEN);
}

static void
front_drop_task(void *arg, int pending __unused)
{
	struct front_drop *fd = arg;
	bool alone;

	bus_topo_lock();
	front_users->xcf_drop(fd->fd_node);
	bus_topo_unlock();
	front_unpublish(fd->fd_node);
	mtx_lock(&front_mtx);
	fd->fd_done = true;
	alone = fd->fd_alone;
	wakeup(&front_turns);
	mtx_unlock(&front_mtx);
	if (alone)
		front_drop_free(fd);
}

/* Returns false if the core has come to delete the device of this driver. */
static bool
front_drop(device_t dev, const char *node)
{
	struct front_drop *fd;
	bool done;

	fd = malloc(sizeof(*fd), M_XEN, M_WAITOK | M_ZERO);
	fd->fd_node = strdup(node, M_XEN);
	TASK_INIT(&fd->fd_task, 0, front_drop_task, fd);
	taskqueue_enqueue(front_queue, &fd->fd_task);
	mtx_lock(&front_mtx);
	while (!fd->fd_done && !front_is_removed_locked(dev))
		msleep(&front_turns, &front_mtx, 0, "xfdrop", 0);
	done = fd->fd_done;
	fd->fd_alone = true;
	mtx_unlock(&front_mtx);
	if (done)
		front_drop_free(fd);
	return (done);
}

/*
 * The core takes no refusal: it frees what the device is known by.  If the
 * toolstack has removed it, this is in taskqueue_thread, which GEOM needs to
 * close a disk (destroy_dev_sched_cb(9)): there nothing waits for our driver to
 * be detached, which xenbus.c does when it scans.
 */
static int
front_detach(device_t dev)
{
	struct front *f = device_get_softc(dev);
	bool removed = front_in_core();
	int error = 0;

	mtx_lock(&front_mtx);
	f->f_leaving = true;
	mtx_unlock(&front_mtx);
	if (front_users != NULL && !removed && !f->f_left &&
	    front_drop(dev, f->f_node)) {
		error = front_close_ours(dev, f->f_node);
		front_let_core_look(dev, f->f_node);
	}
	front_write_none(dev);
	mtx_lock(&front_mtx);
	/* It is the core's to detach. */
	if (!removed && front_is_removed_locked(dev)) {
		mtx_unlock(&front_mtx);
		return (ENXIO);
	}
	if (error != 0) {
		f->f_leaving = false;
		mtx_unlock(&front_mtx);
		front_users->xcf_changed();
		return (error);
	}
	LIST_REMOVE(f, f_link);
	mtx_unlock(&front_mtx);
	front_write_none(dev);
	free(f->f_node, M_XEN);
	if (front_users != NULL && removed)
		front_users->xcf_changed();
	return (0);
}

/*
 * A driver of the kernel's expects the state that a new front end has; it may
 * have begun.
 */
static void
front_begin_again(device_t dev)
{
	struct front_write *fw;

	if (xenbus_get_state(dev) != XenbusStateClosed)
		return;
	fw = front_write_new();
	mtx_lock(&front_mtx);
	front_write_add(fw, dev, XenbusStateInitialising,
	    XenbusStateInitialising);
	mtx_unlock(&front_mtx);
	(void)xen_core_store_call(front_write, fw);
}

/*
 * Offer a device without a driver to all, in the thread in which the core does,
 * and deletes.
 */
static void
front_offer_one(device_t dev, void *arg __unused)
{

	if (device_get_state(dev) != DS_NOTPRESENT)
		return;
	(void)device_set_devclass(dev, NULL);
	if (device_probe_and_attach(dev) == 0 && !front_is_ours(dev))
		front_begin_again(dev);
}

/*
 * The kernel's drivers end their grants when they are detached, while the back
 * end has the pages mapped, and that for disks leaves its disk behind, without
 * itself.  So they are told before that the back end is closing, and it is
 * waited for.  The users of a disk that is open, which has to be unmounted
 * before, get errors.
 */
static void
front_close_stock(device_t dev)
{

	XENBUS_OTHEREND_CHANGED(dev, XenbusStateClosing);
	(void)front_await_close(dev, NULL);
	front_let_core_look(dev, xenbus_get_node(dev));
}

/* Take one that the kernel's driver got first. */
static void
front_take(device_t dev)
{

	if (!device_is_attached(dev) || front_is_ours(dev) ||
	    front_unwanted(dev) != NULL || device_detach(dev) != 0)
		return;
	if (device_set_devclass_fixed(dev, front_driver.name) != 0 ||
	    device_probe_and_attach(dev) != 0)
		taskqueue_enqueue(taskqueue_thread, &front_offer_task);
}

static bool
front_is_child(device_t bus, device_t dev)
{
	device_t *children;
	int i, n;
	bool found = false;

	if (device_get_children(bus, &children, &n) != 0)
		return (false);
	for (i = 0; i < n; i++)
		found = found || children[i] == dev;
	free(children, M_TEMP);
	return (found);
}

/*
 * Call fn, which may sleep, for each front end.  The core deletes others
 * meanwhile.
 */
static void
front_each(void (*fn)(device_t dev, void *arg), void *arg)
{
	device_t *buses, *children;
	int i, j, nbuses, nchildren;
	devclass_t dc;

	bus_topo_assert();
	dc = devclass_find(FRONT_BUS);
	if (dc == NULL || devclass_get_devices(dc, &buses, &nbuses) != 0)
		return;
	for (i = 0; i < nbuses; i++) {
		if (device_get_children(buses[i], &children, &nchildren) != 0)
			continue;
		for (j = 0; j < nchildren; j++) {
			if (front_is_child(buses[i], children[j]))
				fn(children[j], arg);
		}
		free(children, M_TEMP);
	}
	free(buses, M_TEMP);
}

static void
front_offer(void *arg __unused, int pending __unused)
{

	bus_topo_lock();
	front_each(front_offer_one, NULL);
	bus_topo_unlock();
}

#define	FRONT_ARRIVED	"xenfront_arrived"	/* a property: to be taken */

static void
front_reconcile_one(device_t dev, void *arg)
{
	int *again = arg;
	struct front *f;
	void *arrived;
	int error;

	if (device_get_prop(dev, FRONT_ARRIVED, &arrived) == 0) {
		(void)device_clear_prop(dev, FRONT_ARRIVED);
		if (!device_is_devclass_fixed(dev))
			front_take(dev);
		else if (device_is_attached(dev) && !front_is_ours(dev))
			front_begin_again(dev);
		return;
	}
	if (!device_is_attached(dev) || !front_is_ours(dev))
		return;
	f = device_get_softc(dev);
	if (front_users == NULL ||
	    front_users->xcf_state(f->f_node) == XEN_CORE_ATTACHED)
		return;
	/*
	 * Its driver is being unloaded, perhaps, or it was detached by
	 * devctl(8).
	 */
	if (front_is_loaded(front_type_of(dev)) ||
	    front_users->xcf_state(f->f_node) == XEN_CORE_BUSY) {
		*again = MAX(*again, MAX(hz / 10, 1));
		return;
	}
	error = front_leave(dev);
	if (error == 0 && device_detach(dev) == 0)
		taskqueue_enqueue(taskqueue_thread, &front_offer_task);
	else if (error != 0 && error != ENXIO) {
		/* Until xenstore answers. */
		front_kept = true;
		front_tries = FRONT_TRIES;
		*again = hz;
	}
}

/*
 * Take what has arrived, and give back what has no driver of the suite any
 * more.
 */
static void
front_reconcile(void *arg __unused, int pending __unused)
{
	int again = 0;

	bus_topo_lock();
	front_kept = false;
	front_each(front_reconcile_one, &again);
	if (again != 0 && front_tries > 0) {
		front_tries--;
		(void)taskqueue_enqueue_timeout(front_queue,
		    &front_reconcile_task, again);
	}
	bus_topo_unlock();
}

static void
front_schedule(void)
{

	bus_topo_assert();
	if (!front_ready)
		return;
	front_tries = FRONT_TRIES;
	(void)taskqueue_enqueue_timeout(front_queue, &front_reconcile_task, 0);
}

int
xen_core_front_return(void)
{

	if (!front_ready)
		return (0);
	front_schedule();
	taskqueue_drain_timeout(front_queue, &front_reconcile_task);
	taskqueue_drain(taskqueue_thread, &front_offer_task);
	return (front_kept ? EBUSY : 0);
}

/* What could not be given back is, when that is possible. */
void
xen_core_front_go_on(void)
{

	front_schedule();
}

static bool
front_is_on_bus(device_t dev)
{
	device_t parent = device_get_parent(dev);

	return (parent != NULL && device_get_name(parent) != NULL &&
	    strcmp(device_get_name(parent), FRONT_BUS) == 0);
}

/* A driver has attached, in whatever thread: what follows is the task's. */
static void
front_attached(void *arg __unused, device_t dev)
{

	if (!front_is_on_bus(dev) || front_is_ours(dev) ||
	    front_type_of(dev) == NULL)
		return;
	/*
	 * One that devctl(8) gave to the kernel's driver is told to begin, and
	 * not taken.
	 */
	if (device_is_devclass_fixed(dev) || front_unwanted(dev) == NULL) {
		(void)device_set_prop(dev, FRONT_ARRIVED, dev, NULL, NULL);
		front_schedule();
	}
}

static void
front_detach_begins(device_t dev)
{

	front_turn_begin(dev);
	if (front_is_ours(dev) || front_type_of(dev) == NULL)
		return;
	if (!front_is_removed(dev))
		front_close_stock(dev);
	front_write_none(dev);
}

static void
front_detaching(void *arg __unused, device_t dev, enum evhdev_detach when)
{
	device_t parent = device_get_parent(dev);

	if (front_is_on_bus(dev)) {
		if (when == EVHDEV_DETACH_BEGIN)
			front_detach_begins(dev);
		else
			front_turn_end(dev);
	} else if (when == EVHDEV_DETACH_COMPLETE && parent != NULL &&
	    device_get_name(parent) != NULL &&
	    strcmp(device_get_name(parent), "xenbus") == 0)
		front_schedule();
}

int
xen_core_front_init(const struct xen_core_fronts *fronts)
{
	int error;

	front_queue = taskqueue_create("xen fronts", M_WAITOK,
	    taskqueue_thread_enqueue, &front_queue);
	TIMEOUT_TASK_INIT(front_queue, &front_reconcile_task, 0,
	    front_reconcile, NULL);
	error = taskqueue_start_threads(&front_queue, 2, PWAIT, "xen fronts");
	if (error != 0) {
		taskqueue_free(front_queue);
		return (error);
	}
	front_users = fronts;
	front_attach_tag = EVENTHANDLER_REGISTER(device_attach, front_attached,
	    NULL, EVENTHANDLER_PRI_ANY);
	front_detach_tag = EVENTHANDLER_REGISTER(device_detach, front_detaching,
	    NULL, EVENTHANDLER_PRI_ANY);
	front_ready = true;
	return (0);
}

void
xen_core_front_fini(void)
{

	if (!front_ready)
		return;
	front_ready = false;
	EVENTHANDLER_DEREGISTER(device_attach, front_attach_tag);
	EVENTHANDLER_DEREGISTER(device_detach, front_detach_tag);
	front_tries = 0;
	while (taskqueue_cancel_timeout(front_queue, &front_reconcile_task,
	    NULL) != 0)
		taskqueue_drain_timeout(front_queue, &front_reconcile_task);
	taskqueue_free(front_queue);
	device_clear_prop_alldev(FRONT_ARRIVED);
	front_users = NULL;
}

static void
front_report(device_t dev, void *arg)
{
	struct sbuf *sb = arg;
	const char *why;

	sbuf_printf(sb, "\n%s: ", xenbus_get_node(dev));
	if (!device_is_attached(dev))
		sbuf_printf(sb, "no driver");
	else
		sbuf_printf(sb, "%s", device_get_nameunit(dev));
	if (front_is_ours(dev))
		return;
	why = front_unwanted(dev);
	sbuf_printf(sb,
	    ": %s", why != NULL ? why : "stays until devctl(8) moves it");
}

static int
front_sysctl(SYSCTL_HANDLER_ARGS)
{
	struct sbuf *sb;
	int error;

	sb = sbuf_new_auto();
	bus_topo_lock();
	front_each(front_report, sb);
	bus_topo_unlock();
	error = sbuf_finish(sb);
	if (error == 0)
		error = SYSCTL_OUT(req, sbuf_data(sb), sbuf_len(sb) + 1);
	sbuf_delete(sb);
	return (error);
}

void
xen_core_front_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{

	SYSCTL_ADD_PROC(ctx, SYSCTL_CHILDREN(parent), OID_AUTO, "fronts",
	    CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, 0, front_sysctl,
	    "A",
	    "Each front end of the kernel's bus, its driver, and why it is not one of the suite");
}

static device_method_t front_methods[] = {
	DEVMETHOD(device_probe, front_probe),
	DEVMETHOD(device_attach, front_attach),
	DEVMETHOD(device_detach, front_detach),
	DEVMETHOD_END
};

static driver_t front_driver = {
	"xenfront",
	front_methods,
	sizeof(struct front)
};

/* After the driver is gone, what it had is the kernel's again. */
static int
front_modevent(module_t mod __unused, int what, void *arg __unused)
{

	if (what == MOD_LOAD)
		TASK_INIT(&front_offer_task, 0, front_offer, NULL);
	else if (what == MOD_UNLOAD) {
		taskqueue_enqueue(taskqueue_thread, &front_offer_task);
		taskqueue_drain(taskqueue_thread, &front_offer_task);
	}
	return (what == MOD_LOAD || what == MOD_UNLOAD || what == MOD_QUIESCE ||
	    what == MOD_SHUTDOWN ? 0 : EOPNOTSUPP);
}

DRIVER_MODULE_ORDERED(xenfront, xenbusb_front, front_driver, front_modevent,
    NULL, SI_ORDER_FIRST);
