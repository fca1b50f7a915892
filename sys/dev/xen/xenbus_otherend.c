/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What a front end and its back end tell each other by xenstore: our state,
 * theirs, and what changes in their directory.  xenbus_state.c is what follows
 * from it.
 *
 * Locking: see struct xenbus_child.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/taskqueue.h>

#include <machine/atomic.h>

#include <dev/xen/xen_front.h>
#include <dev/xen/xenbus.h>
#include <dev/xen/xenbus_var.h>

#define	XENBUS_MAX_STATE	XenbusStateReconfigured
#define	XENBUS_INITIALISING	"1"

uint64_t xenbus_putoffs;

void
xenbus_kick(struct xenbus_child *xb, u_int wants)
{

	mtx_lock(&xb->xb_mtx);
	xb->xb_wants |= wants;
	mtx_unlock(&xb->xb_mtx);
	taskqueue_enqueue_timeout(xb->xb_queue, &xb->xb_task, 0);
}

/* Another step in a second. */
static void
xenbus_step_later(struct xenbus_child *xb)
{

	taskqueue_enqueue_timeout(xb->xb_queue, &xb->xb_task, hz);
}

/* The requests of this step are left to a later one. */
void
xenbus_defer(struct xenbus_child *xb, u_int wants)
{

	mtx_lock(&xb->xb_mtx);
	xb->xb_wants |= wants;
	mtx_unlock(&xb->xb_mtx);
	xenbus_step_later(xb);
}

/* So they are, because xenstore did not answer. */
void
xenbus_put_off(struct xenbus_child *xb, u_int wants)
{

	atomic_add_64(&xenbus_putoffs, 1);
	xenbus_defer(xb, wants);
}

/*
 * One that the toolstack has made since, for another device of this number, has
 * Initialising.
 */
static int
xenbus_tell_tx(struct xenstore_tx *tx, void *arg)
{
	struct xenbus_child *xb = arg;
	char *old;
	int error;

	error = xenstore_read(tx, xb->xb_node, "state", &old, NULL);
	if (error != 0)
		return (error);
	if (xb->xb_written > XenbusStateInitialising &&
	    strcmp(old, XENBUS_INITIALISING) == 0)
		error = ENODEV;
	xenstore_free(old);
	if (error == 0)
		error = xenstore_printf(tx, xb->xb_node, "state",
		    "%d", xb->xb_state);
	return (error);
}

/*
 * Our device is not there any more: its users don't wait, and the bus deletes
 * it.
 */
static void
xenbus_give_way(struct xenbus_child *xb)
{

	xenbus_say(xb,
	    "the toolstack has put another device in the place of this one");
	xb->xb_replaced = true;
	if (xb->xb_connects != 0 && !xb->xb_lost)
		XENFRONT_LOST(xb->xb_dev);
	xb->xb_lost = true;
	taskqueue_enqueue_timeout(xb->xb_scan_task->q, xb->xb_scan_task, 0);
}

/*
 * Write our state for the back end.  If xenstore does not answer, each step
 * tries again.
 */
int
xenbus_tell(struct xenbus_child *xb, enum xenbus_state state)
{
	bool untold = xb->xb_untold;
	int error;

	xb->xb_state = state;
	if (xb->xb_replaced)
		return (0);
	error = xenstore_transaction(xenbus_tell_tx, xb);
	if (error == ENODEV)
		xenbus_give_way(xb);
	xb->xb_untold = error != 0 && !xb->xb_replaced &&
	    !xenstore_is_missing(error);
	if (error == 0 || xb->xb_untold)
		xb->xb_written = error == 0 ? state : XenbusStateUnknown;
	if (xb->xb_untold) {
		if (!untold)
			xenbus_say(xb,
			    "state %s could not be written (error %d): trying again",
			    xenbus_state_name(state), error);
		xenbus_put_off(xb, 0);
	}
	if (error == 0)
		xen_front_told(xb->xb_node, state);
	return (xb->xb_untold ? error : 0);
}

/*
 * The back end's state.  Returns 0, or an error if it is not known.  Another
 * device's is none.
 */
int
xenbus_read_otherend_state(struct xenbus_child *xb, enum xenbus_state *other)
{
	uint64_t state = XenbusStateUnknown;
	int error;

	if (xb->xb_path[0] != '\0' && !xb->xb_replaced) {
		error = xenbus_peek(xb->xb_path, "state", XENBUS_MAX_STATE,
		    &state);
		if (error != 0)
			return (error);
	}
	*other = xb->xb_other = state;
	return (0);
}

/*
 * Is the device to stay?  The toolstack clears `online' to end it.  Returns 0,
 * or an error: unknown.
 */
int
xenbus_ask_online(struct xenbus_child *xb, bool *online)
{
	uint64_t value = 0;
	int error;

	error = xenbus_peek(xb->xb_path, "online", 1, &value);
	*online = value != 0;
	return (error);
}

/* Unknown counts as set. */
bool
xenbus_is_online(struct xenbus_child *xb)
{
	bool online;

	return (xenbus_ask_online(xb, &online) != 0 || online);
}

/*
 * Something in the back end's directory changed: remember what, and take a
 * step.
 */
static void
xenbus_otherend_watch(struct xenstore_watch *w, const char *path)
{
	struct xenbus_child *xb = w->xw_arg;
	size_t len = strlen(w->xw_path);
	const char *name;
	u_int i;

	name = strncmp(path, w->xw_path, len) == 0 &&
	    path[len] == '/' ? path + len + 1 : "";
	mtx_lock(&xb->xb_mtx);
	if (strlen(name) >= XENBUS_NAMELEN || name[0] == '\0')
		xb->xb_wants |= name[0] == '\0' ? XENBUS_WANT_CHANGES : 0;
	else if (strcmp(name, "state") != 0 && strcmp(name, "online") != 0) {
		for (i = 0; i < xb->xb_nchanges &&
		    strcmp(xb->xb_changes[i], name) != 0; i++)
			continue;
		if (i == XENBUS_CHANGES)
			xb->xb_wants |= XENBUS_WANT_CHANGES;
		else if (i == xb->xb_nchanges) {
			strlcpy(xb->xb_changes[i], name, XENBUS_NAMELEN);
			xb->xb_nchanges++;
		}
	}
	mtx_unlock(&xb->xb_mtx);
	xenbus_kick(xb, 0);
}

/*
 * Find the back end, and watch it.  Without an answer of xenstore, the known
 * one is kept.
 */
int
xenbus_meet(struct xenbus_child *xb)
{
	char path[XENBUS_PATHLEN];
	int error;

	xb->xb_unread = false;
	error = xenbus_find_otherend(xb, path, sizeof(path));
	if (error != 0 && xb->xb_unread) {
		xenbus_put_off(xb, 0);
		return (error);
	}
	if (error != 0)
		path[0] = '\0';
	if (xb->xb_watch.xw_token != 0 && strcmp(path, xb->xb_path) != 0)
		xenstore_watch_remove(&xb->xb_watch);
	strlcpy(xb->xb_path, path, sizeof(xb->xb_path));
	if (error != 0 || xb->xb_watch.xw_token != 0)
		return (error);
	xb->xb_watch.xw_changed = xenbus_otherend_watch;
	xb->xb_watch.xw_arg = xb;
	error = xenstore_watch_add(&xb->xb_watch, xb->xb_path, NULL);
	if (error != 0)
		xenbus_say(xb, "back end \"%s\" can't be watched (error %d)",
		    xb->xb_path, error);
	return (error);
}
