/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The states of xenbus (xenbus.h): one state machine for all front ends.
 *
 *	          begin       InitWait            Connected
 *	IDLE ----------> WAIT ---------> PUBLISHED ---------> LIVE
 *	  ^               ^   setup()       |       live()     |
 *	  |               |                 | anything else, reset
 *	  | leave         |                 v        stop()    v
 *	  |               |              CLOSING <-------------+
 *	  |               |                 |  Closed, Unknown, or
 *	  |               |                 |  XENBUS_CLOSE_SECS
 *	  |               |                 v        release()
 *	  +---------------+------------- CLOSED
 *	                   back end begins again
 *
 * A front end's task takes a step whenever its back end's directory changed or
 * a request is pending (xb_wants); it reads the back end's state afresh each
 * time, so that states that it missed, or saw twice, are harmless.  A state
 * that is missing (no directory, no permission) or not a number is Unknown,
 * which is how a back end that was removed looks.
 *
 * xenstore may be slow, or unavailable for a while.  Without an answer nothing
 * is known of the back end, and the step is put off for a second; a state that
 * could not be written is written then.  Only the deadline in CLOSING does not
 * depend on an answer.  setup() and live() that could not read a value are
 * called again.
 *
 * Our own state is written only to a directory that is there: writing it would
 * otherwise make the directory of a device that the toolstack has just removed.
 *
 * The toolstack may remove a device and put another one in its place before we
 * notice, as when the domain was paused.  The new one's directory says
 * Initialising, which is not what we wrote: nothing of the first one's, least
 * of all its requests, is for the second, and the bus makes a device for that.
 *
 * When the rings are freed, the back end must have unmapped them, or its
 * mapping keeps the pages (xen_gnttab_pages_free()): so release() follows its
 * state Closed, or a deadline.
 *
 * A suspension ends with new back ends.  A front end that has none after
 * hw.xen.resume_wait seconds has failed (lost()): its users get errors.  It
 * keeps looking for one.
 *
 * A new back end in the place of one that disappeared is in InitWait while we
 * are still Connected to the old one.  Linux's then connects to the old rings,
 * at any time, and does not read our state again once Connected; so it has to
 * have seen us Closed before we begin again.  It answers that with Closed.
 *
 * An error of setup() or live() that may pass (no memory, no grants, a quota of
 * xenstore's) is no failure: everything is done again, later and later.
 *
 * A device that had users and has failed, or that the toolstack has detached
 * without removing it, is lost to them (lost()), as it is after a suspension:
 * nobody waits for what will not come.
 *
 * After a failure of setup() or live() the same would fail again: the back end
 * has to be seen in another state than those where one begins, at the failure
 * or later, before a new attempt.  A front end begins at most once a second;
 * changes are passed to the driver a few at once and then once a second,
 * however fast a back end makes them.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>

#include <machine/atomic.h>

#include <dev/pv/dev/pv_dev.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xenbus.h>
#include <dev/xen/xenbus_var.h>

#define	XENBUS_CLOSE_SECS	5
#define	XENBUS_NEW_SECS		2	/* for one that is in InitWait */
#define	XENBUS_GONE_SECS	2	/* for one whose state is missing */
#define	XENBUS_AGAIN_SECS	32	/* at most, before what
					 * failed is tried again */
#define	XENBUS_ENDED_SECS	5	/* for a toolstack that removes
					 * what it has detached */
#define	XENBUS_ASK_SECS		5	/* a driver again whether
					 * its device is in use */
#define	XENBUS_TELL_BURST	16	/* changes passed to a driver at once */
#define	XENBUS_TELL_SECS	1	/* and then one in so many seconds */

static struct sx xenbus_held;
SX_SYSINIT(xenbus_held, &xenbus_held, "xenbus held");

uint64_t xenbus_delayed, xenbus_retries;

void
xenbus_reset(device_t dev)
{

	xenbus_kick(xenbus_child_of(dev), XENBUS_WANT_RESET);
}

void
xenbus_change(device_t dev)
{

	xenbus_kick(xenbus_child_of(dev), XENBUS_WANT_CHANGES);
}

void
xenbus_recheck(device_t dev)
{

	xenbus_kick(xenbus_child_of(dev), XENBUS_WANT_RECHECK);
}

static void
xenbus_enter_wait(struct xenbus_child *xb)
{

	xb->xb_phase = XB_WAIT;
	xb->xb_began = ticks;
	xb->xb_failed = xb->xb_away = xb->xb_refused = xb->xb_ended = false;
	if (xenbus_tell(xb, XenbusStateInitialising) == 0)
		xenbus_kick(xb, 0);
}

/* Is it one of the states in which a back end begins? */
static bool
xenbus_is_beginning(enum xenbus_state other)
{

	return (other == XenbusStateInitialising ||
	    other == XenbusStateInitWait);
}

/* Report why, on the console and where the toolstack looks for it. */
static void
xenbus_report(struct xenbus_child *xb, int error, const char *why)
{
	char name[XENBUS_PATHLEN];

	xenbus_say(xb, "%s (error %d); closing", why, error);
	snprintf(name, sizeof(name), "%s/error", xb->xb_node);
	(void)xenstore_printf(NULL, "error", name, "%d %s", error, why);
	xb->xb_failed = true;
	xb->xb_away = !xenbus_is_beginning(xb->xb_other);
}

/*
 * Disconnect from the back end, in two steps: this is the first.
 *
 * Returns false if the driver refuses, as its device is in use.
 */
static bool
xenbus_close(struct xenbus_child *xb, bool gone)
{

	if (xb->xb_setup && XENFRONT_STOP(xb->xb_dev, gone) == EBUSY && !gone) {
		if (!xb->xb_refused)
			xenbus_say(xb,
			    "the back end requests to close, but the device is in use");
		xb->xb_refused = true;
		xb->xb_refused_at = ticks;
		return (false);
	}
	xb->xb_phase = XB_CLOSING;
	if (xenbus_tell(xb, XenbusStateClosing) == 0)
		(void)xenbus_tell(xb, XenbusStateClosed);
	else
		xb->xb_state = XenbusStateClosed;
	xb->xb_deadline = ticks + XENBUS_CLOSE_SECS * hz;
	return (true);
}

/* Users of a device that had a back end don't wait for another one any more. */
static void
xenbus_lose(struct xenbus_child *xb)
{

	if (xb->xb_lost || xb->xb_connects == 0)
		return;
	xb->xb_lost = true;
	XENFRONT_LOST(xb->xb_dev);
}

static void
xenbus_fail(struct xenbus_child *xb, int error, const char *why)
{

	xenbus_report(xb, error, why);
	(void)xenbus_close(xb, true);
	xenbus_lose(xb);
}

/*
 * Do what failed once more, later and later: after 1, 2, 4 ...
 * XENBUS_AGAIN_SECS.
 */
static void
xenbus_try_later(struct xenbus_child *xb, int error)
{

	if (xb->xb_tries == 0)
		xenbus_say(xb, "can't be set up now (error %d): trying again",
		    error);
	xb->xb_again = ticks + MIN(1 << MIN(xb->xb_tries, 16),
	    XENBUS_AGAIN_SECS) * hz;
	xb->xb_tries++;
	atomic_add_64(&xenbus_retries, 1);
}

/* How many ticks before the next attempt? */
static int
xenbus_delay(const struct xenbus_child *xb)
{

	return (xb->xb_tries == 0 ? 0 : MAX(xb->xb_again - ticks, 0));
}

/*
 * How long to wait for the back end to disconnect, in ticks; not positive: no
 * longer.
 */
static int
xenbus_patience(const struct xenbus_child *xb, enum xenbus_state other)
{
	int left = xb->xb_deadline - ticks;

	switch (other) {
	case XenbusStateClosed:
	case XenbusStateUnknown:
	case XenbusStateInitialising:
		return (0);
	case XenbusStateInitWait:
		return (xb->xb_setup ?
		    left - (XENBUS_CLOSE_SECS - XENBUS_NEW_SECS) * hz : 0);
	default:
		return (left);
	}
}

/*
 * Read what the back end offers, and publish.  Returns false if that is to be
 * done again, or failed.
 */
static bool
xenbus_set_up(struct xenbus_child *xb, enum xenbus_state *next)
{
	int error;

	xb->xb_unread = false;
	error = XENFRONT_SETUP(xb->xb_dev, next);
	if (error == 0 && xb->xb_unread) {
		/* Something that is optional, and may be there after all. */
		(void)XENFRONT_STOP(xb->xb_dev, true);
		XENFRONT_RELEASE(xb->xb_dev);
	}
	/* An error that comes of a missing answer is not final. */
	if (xb->xb_unread && !pv_dev_may_pass(error))
		error = ETIMEDOUT;
	if (error != 0)
		xenbus_return_queues(xb);
	if (pv_dev_may_pass(error)) {
		xenbus_try_later(xb, error);
		taskqueue_enqueue_timeout(xb->xb_queue, &xb->xb_task,
		    xenbus_delay(xb));
	} else if (error != 0)
		xenbus_fail(xb, error, "can't be set up");
	return (error == 0);
}

/*
 * Call live(): after an error that may pass, the rings are freed, and made
 * again.
 */
static bool
xenbus_go_live(struct xenbus_child *xb)
{
	int error;

	xb->xb_unread = false;
	error = XENFRONT_LIVE(xb->xb_dev);
	if (xb->xb_unread && !pv_dev_may_pass(error))
		error = ETIMEDOUT;
	if (pv_dev_may_pass(error)) {
		xenbus_try_later(xb, error);
		(void)xenbus_close(xb, true);
		return (false);
	}
	if (error != 0)
		xenbus_fail(xb, error,
		    "the device can't be attached with the values of its back end");
	return (error == 0);
}

static void
xenbus_step_wait(struct xenbus_child *xb, enum xenbus_state other)
{
	enum xenbus_state next = XenbusStateInitialised;

	switch (other) {
	case XenbusStateInitWait:
		if (xenbus_delay(xb) != 0) {
			taskqueue_enqueue_timeout(xb->xb_queue, &xb->xb_task,
			    xenbus_delay(xb));
			return;
		}
		if (!xenbus_set_up(xb, &next))
			return;
		xb->xb_setup = true;
		xb->xb_phase = XB_PUBLISHED;
		(void)xenbus_tell(xb, next);
		/*
		 * Events of the state may have come while setup() was running.
		 */
		xenbus_kick(xb, 0);
		return;
	case XenbusStateConnected:
	case XenbusStateInitialised:
	case XenbusStateReconfiguring:
	case XenbusStateReconfigured:
		/*
		 * It is connected to an earlier instance, and has to disconnect
		 * first.
		 */
		(void)xenbus_close(xb, true);
		return;
	case XenbusStateClosing:
	case XenbusStateClosed:
		if (!xenbus_is_online(xb))
			(void)xenbus_close(xb, true);
		return;
	default:
		return;
	}
}

static void
xenbus_step_published(struct xenbus_child *xb, enum xenbus_state other)
{

	switch (other) {
	case XenbusStateInitWait:
	case XenbusStateInitialised:
		return;
	case XenbusStateConnected:
		if (!xenbus_go_live(xb))
			return;
		if (xb->xb_tries != 0)
			xenbus_say(xb, "is set up after %u attempts",
			    xb->xb_tries + 1);
		xb->xb_missing = xb->xb_lost = false;
		xb->xb_tries = 0;
		xb->xb_connects++;
		/*
		 * Last: dev.xenbus.0.devices is read without xb_sx, and what is
		 * live has not failed.
		 */
		atomic_thread_fence_rel();
		xb->xb_phase = XB_LIVE;
		if (xb->xb_state != XenbusStateConnected)
			(void)xenbus_tell(xb, XenbusStateConnected);
		return;
	default:
		xenbus_say(xb, "the back end went to %s instead of Connected",
		    xenbus_state_name(other));
		(void)xenbus_close(xb, true);
		return;
	}
}

/*
 * The back end requests to close.  If the toolstack has not requested that of
 * it, it has failed, and does not read its rings any more.  Else the driver
 * says whether the device is in use; as users end, and back ends fail
 * meanwhile, it is asked again.
 */
static void
xenbus_step_live_closing(struct xenbus_child *xb, u_int wants)
{
	bool online;

	if (xenbus_ask_online(xb, &online) != 0) {
		xenbus_put_off(xb, wants & XENBUS_WANT_RECHECK);
		return;
	}
	if (online) {
		xenbus_say(xb, "the back end has failed: connecting anew");
		(void)xenbus_close(xb, true);
		return;
	}
	if (xb->xb_refused && (wants & XENBUS_WANT_RECHECK) == 0 &&
	    ticks - xb->xb_refused_at < XENBUS_ASK_SECS * hz)
		return;
	if (!xenbus_close(xb, false))
		taskqueue_enqueue_timeout(xb->xb_queue, &xb->xb_task,
		    XENBUS_ASK_SECS * hz);
}

static void
xenbus_step_live(struct xenbus_child *xb, enum xenbus_state other, u_int wants)
{

	switch (other) {
	case XenbusStateConnected:
	case XenbusStateReconfiguring:
	case XenbusStateReconfigured:
		xb->xb_refused = false;
		return;
	case XenbusStateClosing:
		xenbus_step_live_closing(xb, wants);
		return;
	default:
		xenbus_say(xb, "the back end has disconnected (%s)",
		    xenbus_state_name(other));
		(void)xenbus_close(xb, true);
		return;
	}
}

static void
xenbus_release_child(struct xenbus_child *xb)
{

	if (xb->xb_setup)
		XENFRONT_RELEASE(xb->xb_dev);
	xenbus_return_queues(xb);
	xb->xb_setup = false;
	xb->xb_phase = XB_CLOSED;
}

static void
xenbus_step_closing(struct xenbus_child *xb, enum xenbus_state other)
{
	int left = xenbus_patience(xb, other);

	if (left > 0) {
		taskqueue_enqueue_timeout(xb->xb_queue, &xb->xb_task, left);
		return;
	}
	if (other != XenbusStateClosed && other != XenbusStateUnknown &&
	    !xenbus_is_beginning(other))
		xenbus_say(xb, "the back end does not release the rings (%s)",
		    xenbus_state_name(xb->xb_other));
	xenbus_release_child(xb);
}

/*
 * The toolstack has detached the device.  It removes the directories next; if
 * they stay, it has given up, and nothing else is going to happen.
 */
static void
xenbus_may_have_ended(struct xenbus_child *xb)
{

	/* After a suspension, it has longer. */
	if (xb->xb_ended || xb->xb_lost || xb->xb_missing ||
	    xb->xb_connects == 0)
		return;
	xb->xb_ended = true;
	taskqueue_enqueue_timeout(xb->xb_queue, &xb->xb_lose_task,
	    XENBUS_ENDED_SECS * hz);
}

/* May we begin again? */
static void
xenbus_step_closed(struct xenbus_child *xb, enum xenbus_state other)
{
	int delay = xenbus_delay(xb), soon = xb->xb_began + hz - ticks;

	if (!xenbus_is_beginning(other))
		xb->xb_away = true;
	if (other == XenbusStateUnknown) {
		/* Another one, perhaps. */
		(void)xenbus_meet(xb);
		if (xenbus_read_otherend_state(xb, &other) != 0) {
			xenbus_put_off(xb, 0);
			return;
		}
	}
	if ((other == XenbusStateClosed || other == XenbusStateClosing) &&
	    !xenbus_is_online(xb)) {
		xenbus_may_have_ended(xb);
		return;
	}
	if (other == XenbusStateUnknown || other == XenbusStateClosing ||
	    other == XenbusStateConnected)
		return;
	if (xb->xb_failed && (!xb->xb_away || other == XenbusStateClosed))
		return;
	soon = MAX(soon, delay);
	if (soon > 0) {
		taskqueue_enqueue_timeout(xb->xb_queue, &xb->xb_task, soon);
		return;
	}
	if (xenbus_meet(xb) == 0)
		xenbus_enter_wait(xb);
}

/* Take the requests that are pending. */
static u_int
xenbus_take_wants(struct xenbus_child *xb)
{
	u_int wants;

	mtx_lock(&xb->xb_mtx);
	wants = xb->xb_wants;
	xb->xb_wants = 0;
	mtx_unlock(&xb->xb_mtx);
	return (wants);
}

/* Take the name of something that changed; false: there is none. */
static bool
xenbus_take_change(struct xenbus_child *xb, char *name, size_t size)
{
	bool any;

	mtx_lock(&xb->xb_mtx);
	any = xb->xb_nchanges != 0;
	if (any)
		strlcpy(name, xb->xb_changes[--xb->xb_nchanges], size);
	mtx_unlock(&xb->xb_mtx);
	return (any);
}

/* One that could not be read is passed again, without its name. */
static void
xenbus_tell_change(struct xenbus_child *xb, const char *name)
{

	xb->xb_unread = false;
	XENFRONT_OTHEREND_CHANGED(xb->xb_dev, name);
	if (xb->xb_unread)
		xenbus_put_off(xb, XENBUS_WANT_CHANGES);
}

/*
 * Pass to the driver what changed; before it is live, changes are dropped.
 * What comes too fast waits, and becomes one change of each name.
 */
static void
xenbus_tell_changes(struct xenbus_child *xb, u_int wants)
{
	char name[XENBUS_NAMELEN];
	bool live = xb->xb_phase == XB_LIVE;

	if ((wants & XENBUS_WANT_CHANGES) == 0 && xb->xb_nchanges == 0)
		return;
	if (live &&
	    !xenbus_allow(&xb->xb_told, XENBUS_TELL_BURST, XENBUS_TELL_SECS)) {
		atomic_add_64(&xenbus_delayed, 1);
		xenbus_defer(xb, wants & XENBUS_WANT_CHANGES);
		return;
	}
	if (live && (wants & XENBUS_WANT_CHANGES) != 0)
		xenbus_tell_change(xb, "");
	while (xenbus_take_change(xb, name, sizeof(name))) {
		if (live)
			xenbus_tell_change(xb, name);
	}
}

static void
xenbus_step_once(struct xenbus_child *xb, enum xenbus_state other, u_int wants)
{

	switch (xb->xb_phase) {
	case XB_WAIT:
		xenbus_step_wait(xb, other);
		return;
	case XB_PUBLISHED:
		xenbus_step_published(xb, other);
		return;
	case XB_LIVE:
		xenbus_step_live(xb, other, wants);
		return;
	case XB_CLOSING:
		xenbus_step_closing(xb, other);
		return;
	case XB_CLOSED:
		xenbus_step_closed(xb, other);
		return;
	default:
		return;
	}
}

/*
 * May a back end that has rings still be there, although its state is missing?
 * One look that found none is no reason to reset a device: the back end counts
 * as removed when its state has been missing for XENBUS_GONE_SECS.
 */
static bool
xenbus_may_be_there(struct xenbus_child *xb, enum xenbus_state other)
{

	if (other != XenbusStateUnknown ||
	    (xb->xb_phase != XB_PUBLISHED && xb->xb_phase != XB_LIVE)) {
		if (xb->xb_vanished && other != XenbusStateUnknown)
			xenbus_say(xb, "the back end's state is there again");
		xb->xb_vanished = false;
		return (false);
	}
	if (!xb->xb_vanished)
		xb->xb_vanished_at = ticks;
	xb->xb_vanished = ticks - xb->xb_vanished_at < XENBUS_GONE_SECS * hz;
	return (xb->xb_vanished);
}

static void
xenbus_step(struct xenbus_child *xb, u_int wants)
{
	enum xenbus_state other;
	enum xenbus_phase before;

	if (xb->xb_untold)
		(void)xenbus_tell(xb, xb->xb_state);
	if ((wants & XENBUS_WANT_RESET) != 0 && xb->xb_setup &&
	    xb->xb_phase != XB_CLOSING)
		(void)xenbus_close(xb, true);
	/* A step may be followed by another at once; there are few enough. */
	do {
		before = xb->xb_phase;
		if (xenbus_read_otherend_state(xb, &other) != 0) {
			if (before != XB_CLOSING) {
				xenbus_put_off(xb, wants & ~XENBUS_WANT_RESET);
				return;
			}
			/* It has until the deadline. */
			other = XenbusStateClosing;
		}
		if (xenbus_may_be_there(xb, other)) {
			xenbus_defer(xb, wants & ~XENBUS_WANT_RESET);
			return;
		}
		xenbus_step_once(xb, other, wants);
	} while (xb->xb_phase > before);
	xenbus_tell_changes(xb, wants);
}

/* Find the back end, and begin, if there is one. */
static void
xenbus_seek(struct xenbus_child *xb)
{

	if (xenbus_meet(xb) == 0)
		xenbus_enter_wait(xb);
	else
		xb->xb_phase = XB_CLOSED;
}

void
xenbus_child_task(void *arg, int pending __unused)
{
	struct xenbus_child *xb = arg;
	u_int wants;

	sx_slock(&xenbus_held);
	sx_xlock(&xb->xb_sx);
	wants = xenbus_take_wants(xb);
	if (xb->xb_phase != XB_IDLE)
		xenbus_step(xb, wants);
	else if (atomic_load_acq_int(&xb->xb_begins) != 0) {
		xenbus_seek(xb);
		atomic_store_rel_int(&xb->xb_begins, 0);
	}
	sx_xunlock(&xb->xb_sx);
	sx_sunlock(&xenbus_held);
}

void
xenbus_begin(struct xenbus_child *xb)
{

	atomic_store_rel_int(&xb->xb_begins, 1);
	xenbus_kick(xb, 0);
}

void
xenbus_hold(void)
{

	sx_xlock(&xenbus_held);
}

void
xenbus_go_on(void)
{

	sx_xunlock(&xenbus_held);
}

void
xenbus_share_held(void)
{

	sx_slock(&xenbus_held);
}

void
xenbus_unshare_held(void)
{

	sx_sunlock(&xenbus_held);
}

void
xenbus_assert_held(void)
{

	sx_assert(&xenbus_held, SA_XLOCKED);
}

void
xenbus_begin_again(struct xenbus_child *xb)
{

	sx_assert(&xenbus_held, SA_XLOCKED);
	sx_xlock(&xb->xb_sx);
	xb->xb_tries = 0;
	xb->xb_written = XenbusStateUnknown;
	if (xb->xb_phase != XB_IDLE) {
		if (xb->xb_setup && xb->xb_phase != XB_CLOSING)
			(void)XENFRONT_STOP(xb->xb_dev, true);
		xenbus_release_child(xb);
		xb->xb_missing = xb->xb_connects != 0;
		if (xb->xb_missing && xen_tunable(XEN_RESUME_WAIT) != 0)
			taskqueue_enqueue_timeout(xb->xb_queue,
			    &xb->xb_lose_task,
			    xen_tunable(XEN_RESUME_WAIT) * hz);
		xenbus_seek(xb);
	}
	sx_xunlock(&xb->xb_sx);
}

void
xenbus_lose_task(void *arg, int pending __unused)
{
	struct xenbus_child *xb = arg;

	sx_slock(&xenbus_held);
	sx_xlock(&xb->xb_sx);
	if (xb->xb_ended && !xb->xb_lost) {
		device_printf(xb->xb_dev,
		    "detached by the toolstack, which has left it there: failed, "
		    "until there is another back end\n");
		xenbus_lose(xb);
	} else if (xb->xb_missing && !xb->xb_lost) {
		device_printf(xb->xb_dev,
		    "no back end long after the suspension (%s, it is %s): "
		    "failed, until there is one\n",
		    xenbus_phase_names[xb->xb_phase],
		    xenbus_state_name(xb->xb_other));
		xenbus_lose(xb);
	}
	sx_xunlock(&xb->xb_sx);
	sx_sunlock(&xenbus_held);
}

void
xenbus_leave(device_t dev)
{
	struct xenbus_child *xb = xenbus_child_of(dev);
	enum xenbus_state other;
	bool gone;

	sx_slock(&xenbus_held);
	sx_xlock(&xb->xb_sx);
	atomic_store_rel_int(&xb->xb_begins, 0);
	(void)xenbus_take_wants(xb);
	if (xb->xb_phase == XB_WAIT || xb->xb_phase == XB_PUBLISHED ||
	    xb->xb_phase == XB_LIVE) {
		gone = xenbus_read_otherend_state(xb, &other) == 0 &&
		    other == XenbusStateUnknown;
		if (!xenbus_close(xb, gone))
			(void)xenbus_close(xb, true);
	}
	while (xb->xb_phase == XB_CLOSING) {
		if (xenbus_read_otherend_state(xb, &other) != 0)
			other = XenbusStateClosing;
		if (xenbus_patience(xb, other) <= 0)
			break;
		pause("xbleav", MAX(hz / 50, 1));
	}
	if (xb->xb_phase == XB_CLOSING)
		xenbus_release_child(xb);
	xb->xb_phase = XB_IDLE;
	xb->xb_missing = xb->xb_lost = xb->xb_untold = xb->xb_ended = false;
	xb->xb_tries = 0;
	sx_xunlock(&xb->xb_sx);
	sx_sunlock(&xenbus_held);
}

void
xenbus_forget(struct xenbus_child *xb)
{

	xenbus_return_queues(xb);
	xenstore_watch_remove(&xb->xb_watch);
	/* A step that runs now may schedule another: until nothing is left. */
	while (taskqueue_cancel_timeout(xb->xb_queue, &xb->xb_task, NULL) != 0)
		taskqueue_drain_timeout(xb->xb_queue, &xb->xb_task);
	while (taskqueue_cancel_timeout(xb->xb_queue, &xb->xb_lose_task,
	    NULL) != 0)
		taskqueue_drain_timeout(xb->xb_queue, &xb->xb_lose_task);
}
