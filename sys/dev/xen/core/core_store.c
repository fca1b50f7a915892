/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenstore by FreeBSD's own Xen core: what xenstore_ring.c is to our own, so
 * that xenstore.c (requests) and xenstore_watch.c (watches) are the same for
 * both.
 *
 * The core waits for an answer for as long as it takes, and a thread that a
 * signal wakes up may leave half a request in the ring.  So a thread of ours
 * makes all requests, one after the other, and those who want an answer wait
 * for it as long as hw.xen.xenstore_timeout allows.  A request that was given
 * up is answered some time, and freed then; while it is not, further ones wait
 * a second each, so that a xenstore that has stopped does not keep a detach
 * waiting for ever, and they are dropped if nobody waits for them any more when
 * their turn comes: all but those that set a watch, as each is set again.
 * Nobody waits for answers while the domain is about to be suspended.
 *
 * Before the module can go the core has to have nothing of it: no request, and
 * no watch.  It is closed for that, which fails as long as xenstore does not
 * answer; then all goes on, and the watches are set again when it does.
 *
 * A watch is set with the core.  Its callback comes in the thread that also
 * shuts the domain down, so it does no more than to pass the path on.  The core
 * has at most STORE_PENDING events of a watch wait, and drops the others, since
 * a back end can cause any number: a callback that finds so many others reports
 * the watch's own path, which is "something changed".  A second thread removes
 * watches: the core waits there for callbacks, among which may be the one that
 * suspends the domain.
 *
 * Trust.  What an answer's header says of its type is compared with the
 * request's.  The length is the core's affair, and so are the indices of the
 * ring: it sets both to 0 if they are inconsistent.
 *
 * Locking.  st_mtx (mutex): the requests' states, watches, and all that
 * follows.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/priority.h>
#include <sys/queue.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <xen/xen-os.h>
#include <xen/xenstore/xenstorevar.h>
#include <xen/xenstore/xenstore_internal.h>

#include <dev/xen/xen_tunable.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore_var.h>
#include <dev/xen/core/core.h>

#define	STORE_PENDING	16	/* events of a watch that the core has wait */
#define	STORE_TOKENLEN	16
#define	STORE_CLOSE_TRIES 50	/* tenths of a second for the core to have
				 * nothing of ours */

/*
 * A request; it belongs to the thread that makes it from the time that nobody
 * waits for it any more.
 */
struct store_req {
	struct task	 sr_task;
	bool		 sr_done;
	bool		 sr_alone;	/* nobody waits */
	int		 sr_error;
	void		(*sr_fn)(void *arg);	/* in place of a message */
	void		*sr_arg;
	struct store_watch *sr_watch;	/* likewise */
	uint32_t	 sr_type;
	struct xsd_sockmsg *sr_msg;	/* the request;
					 * then the header of the answer */
	void		*sr_result;	/* M_XENSTORE */
};

struct store_watch {
	LIST_ENTRY(store_watch) sw_link;
	struct xs_watch	 sw_xs;
	struct task	 sw_task;	/* removes it */
	bool		 sw_setting;	/* a request to set it is made,
					 * or will be */
	bool		 sw_dead;
	char		 sw_token[STORE_TOKENLEN];
	char		 sw_path[];
};

static struct {
	struct mtx	 st_mtx;
	device_t	 st_dev;
	struct taskqueue *st_queue;	/* requests */
	struct taskqueue *st_unwatch;
	xenstore_event_t *st_event;
	LIST_HEAD(, store_watch) st_watches;
	u_int		 st_removing;	/* watches that the core
					 * may still have */
	u_int		 st_alone;	/* requests that nobody waits for */
	bool		 st_hurry;
	bool		 st_closed;
	bool		 st_failing;	/* so it was reported */
	void		*st_reply;	/* of the last request */
} store = {
	.st_watches = LIST_HEAD_INITIALIZER(store.st_watches),
};

MTX_SYSINIT(xen_core_store, &store.st_mtx, "xen core store", MTX_DEF);

static void
store_req_free(struct store_req *sr)
{

	free(sr->sr_msg, M_XEN);
	free(sr->sr_result, M_XENSTORE);
	free(sr, M_XEN);
}

/* A watch has left the list, and the core may have it. */
static void
store_unwatch_task(void *arg, int pending __unused)
{
	struct store_watch *sw = arg;

	xs_unregister_watch(&sw->sw_xs);
	free(sw, M_XEN);
	mtx_lock(&store.st_mtx);
	store.st_removing--;
	mtx_unlock(&store.st_mtx);
}

static void
store_unwatch(struct store_watch *sw)
{

	mtx_assert(&store.st_mtx, MA_OWNED);
	sw->sw_dead = true;
	LIST_REMOVE(sw, sw_link);
	store.st_removing++;
	/* Else when that is done. */
	if (!sw->sw_setting)
		taskqueue_enqueue(store.st_unwatch, &sw->sw_task);
}

/* Have the core set a watch. */
static int
store_set_watch(struct store_watch *sw)
{
	int error;

	error = xs_register_watch(&sw->sw_xs);
	mtx_lock(&store.st_mtx);
	sw->sw_setting = false;
	if (sw->sw_dead)
		taskqueue_enqueue(store.st_unwatch, &sw->sw_task);
	else if (error != 0)
		store_unwatch(sw);
	mtx_unlock(&store.st_mtx);
	return (error);
}

static void
store_make(struct store_req *sr)
{

	if (sr->sr_fn != NULL)
		sr->sr_fn(sr->sr_arg);
	else if (sr->sr_watch != NULL)
		sr->sr_error = store_set_watch(sr->sr_watch);
	else
		sr->sr_error = xs_dev_request_and_reply(sr->sr_msg,
		    &sr->sr_result);
}

/* The answer comes when nobody waits any more. */
static void
store_late(struct store_req *sr)
{

	mtx_assert(&store.st_mtx, MA_OWNED);
	store.st_alone--;
	if (sr->sr_msg != NULL && sr->sr_result != NULL)
		xenstore_late_answer(sr->sr_msg->type == sr->sr_type ?
		    sr->sr_type : XS_ERROR, sr->sr_result);
}

/*
 * Is it to be made, though nobody waits for it?  What was never begun needs not
 * be, but for watches.
 */
static bool
store_is_wanted(struct store_req *sr)
{

	return (!sr->sr_alone || sr->sr_fn != NULL || sr->sr_watch != NULL);
}

static void
store_task(void *arg, int pending __unused)
{
	struct store_req *sr = arg;
	bool wanted;

	mtx_lock(&store.st_mtx);
	wanted = store_is_wanted(sr);
	mtx_unlock(&store.st_mtx);
	if (wanted)
		store_make(sr);
	mtx_lock(&store.st_mtx);
	sr->sr_done = true;
	if (sr->sr_alone) {
		store_late(sr);
		mtx_unlock(&store.st_mtx);
		store_req_free(sr);
		return;
	}
	wakeup(sr);
	mtx_unlock(&store.st_mtx);
}

/* Make a request, and wait.  Returns ETIMEDOUT, and sr is gone; or 0. */
static int
store_wait(struct store_req *sr)
{
	int deadline, left, secs;

	TASK_INIT(&sr->sr_task, 0, store_task, sr);
	mtx_lock(&store.st_mtx);
	/* Read once: a new value is for the next request. */
	secs = xen_tunable(XEN_XENSTORE_TIMEOUT);
	if (store.st_alone != 0)
		secs = 1;
	deadline = ticks + secs * hz;
	xenstore_requests++;
	taskqueue_enqueue(store.st_queue, &sr->sr_task);
	while (!sr->sr_done) {
		left = store.st_hurry ? 0 : secs == 0 ? hz : deadline - ticks;
		if (left <= 0)
			break;
		(void)msleep(sr, &store.st_mtx, 0, "xsreq", MIN(left, hz));
	}
	if (!sr->sr_done) {
		sr->sr_alone = true;
		store.st_alone++;
		mtx_unlock(&store.st_mtx);
		xenstore_raise_doubt();
		return (ETIMEDOUT);
	}
	mtx_unlock(&store.st_mtx);
	return (0);
}

int
xen_core_store_call(void (*fn)(void *arg), void *arg)
{
	struct store_req *sr;
	int error;

	if (store.st_queue == NULL || store.st_closed) {
		fn(arg);
		return (0);
	}
	sr = malloc(sizeof(*sr), M_XEN, M_WAITOK | M_ZERO);
	sr->sr_fn = fn;
	sr->sr_arg = arg;
	error = store_wait(sr);
	if (error == 0)
		store_req_free(sr);
	return (error);
}

void
xen_core_store_hurry(bool hurry)
{

	mtx_lock(&store.st_mtx);
	store.st_hurry = hurry;
	mtx_unlock(&store.st_mtx);
}

/* An event, in the core's thread. */
static void
store_fired(struct xs_watch *xw, const char **vec, unsigned int n)
{
	struct store_watch *sw = (struct store_watch *)xw->callback_data;
	bool many, wanted;

	mtx_lock(&store.st_mtx);
	wanted = !sw->sw_dead;
	xenstore_events++;
	/*
	 * The core counts under a lock of its own; it drops none while this is
	 * less.
	 */
	many = xw->pending + 1 >= xw->max_pending;
	mtx_unlock(&store.st_mtx);
	if (wanted && n > XS_WATCH_PATH)
		store.st_event(many ? sw->sw_path : vec[XS_WATCH_PATH],
		    sw->sw_token);
}

static struct store_watch *
store_find_watch(const char *token)
{
	struct store_watch *sw;

	LIST_FOREACH(sw, &store.st_watches, sw_link) {
		if (strcmp(sw->sw_token, token) == 0)
			break;
	}
	return (sw);
}

/* XS_WATCH and XS_UNWATCH, of a path and a token. */
static int
store_watch(uint32_t type, const char *path, const char *token)
{
	struct store_watch *old, *sw;
	struct store_req *sr;
	size_t size = strlen(path) + 1;
	int error;

	sw = malloc(sizeof(*sw) + size, M_XEN, M_WAITOK | M_ZERO);
	memcpy(sw->sw_path, path, size);
	strlcpy(sw->sw_token, token, sizeof(sw->sw_token));
	sw->sw_xs.node = sw->sw_path;
	sw->sw_xs.callback = store_fired;
	sw->sw_xs.callback_data = (uintptr_t)sw;
	sw->sw_xs.max_pending = STORE_PENDING;
	sw->sw_setting = true;
	TASK_INIT(&sw->sw_task, 0, store_unwatch_task, sw);
	mtx_lock(&store.st_mtx);
	old = store_find_watch(token);
	if (type == XS_UNWATCH && old != NULL)
		store_unwatch(old);
	else if (type == XS_WATCH && old == NULL)
		LIST_INSERT_HEAD(&store.st_watches, sw, sw_link);
	mtx_unlock(&store.st_mtx);
	if (type == XS_UNWATCH || old != NULL) {
		free(sw, M_XEN);
		/* The core sets those that it has again by itself. */
		return (type == XS_UNWATCH ? 0 : EEXIST);
	}
	sr = malloc(sizeof(*sr), M_XEN, M_WAITOK | M_ZERO);
	sr->sr_watch = sw;
	error = store_wait(sr);
	if (error == 0) {
		error = sr->sr_error;
		store_req_free(sr);
		/*
		 * That is the core's; of xenstore's, xenstore_watch.c knows
		 * what may pass.
		 */
		if (error == EIO)
			error = EAGAIN;
	}
	return (error);
}

/*
 * xenstore failed, or answered another request, or the core found its ring
 * inconsistent: as without an answer, the result of this request is unknown.
 */
static int
store_failed(const struct store_req *sr)
{

	if (xenstore_fail() && !store.st_failing)
		device_printf(store.st_dev,
		    "xenstore failed a request of type %u (error %d, answer "
		    "%u): all are tried again\n", sr->sr_type, sr->sr_error,
		    sr->sr_msg->type);
	store.st_failing = true;
	return (ETIMEDOUT);
}

/* A request and its pieces, in one. */
static struct store_req *
store_message(uint32_t type, uint32_t tx, const struct xenstore_piece *pieces,
    u_int n, size_t len)
{
	struct store_req *sr;
	char *body;
	u_int i;

	sr = malloc(sizeof(*sr), M_XEN, M_WAITOK | M_ZERO);
	sr->sr_type = type;
	sr->sr_msg = malloc(sizeof(*sr->sr_msg) + len, M_XEN,
	    M_WAITOK | M_ZERO);
	sr->sr_msg->type = type;
	sr->sr_msg->tx_id = tx;
	sr->sr_msg->len = len;
	body = (char *)(sr->sr_msg + 1);
	for (i = 0; i < n; i++) {
		memcpy(body, pieces[i].xsp_data, pieces[i].xsp_len);
		body += pieces[i].xsp_len;
	}
	return (sr);
}

int
xenstore_ring_talk(uint32_t type, uint32_t tx,
    const struct xenstore_piece *pieces, u_int n, const char **reply,
    size_t *len)
{
	struct store_req *sr;
	size_t size = 0;
	u_int i;
	int error;

	for (i = 0; i < n; i++)
		size += pieces[i].xsp_len;
	if (size > XENSTORE_PAYLOAD_MAX)
		return (E2BIG);
	if (store.st_closed)
		return (ETIMEDOUT);
	*reply = "";
	*len = 0;
	if (type == XS_WATCH || type == XS_UNWATCH)
		return (store_watch(type, pieces[0].xsp_data,
		    pieces[1].xsp_data));
	sr = store_message(type, tx, pieces, n, size);
	error = store_wait(sr);
	if (error != 0)
		return (error);
	/*
	 * Requests are one at a time (xenstore.c), and an answer is good until
	 * the next one.
	 */
	free(store.st_reply, M_XENSTORE);
	store.st_reply = sr->sr_result;
	sr->sr_result = NULL;
	if (sr->sr_error == 0 && sr->sr_msg->type == XS_ERROR)
		error = xenstore_errno(store.st_reply);
	if (sr->sr_error != 0 || error == EIO ||
	    (error == 0 && sr->sr_msg->type != type))
		error = store_failed(sr);
	else {
		store.st_failing = false;
		if (error == 0) {
			*reply = store.st_reply;
			*len = sr->sr_msg->len;
		}
	}
	store_req_free(sr);
	return (error);
}

/*
 * Also in a new life of the domain, in which the core has set its ring up, and
 * the watches.
 */
int
xenstore_ring_init(device_t dev, xenstore_event_t *event)
{
	int error;

	store.st_dev = dev;
	store.st_event = event;
	xenstore_doubt_init();
	store.st_closed = false;
	if (store.st_queue != NULL)
		return (0);
	store.st_queue = taskqueue_create("xen store", M_WAITOK,
	    taskqueue_thread_enqueue, &store.st_queue);
	error = taskqueue_start_threads(&store.st_queue, 1, PWAIT, "xen store");
	store.st_unwatch = taskqueue_create("xen unwatch", M_WAITOK,
	    taskqueue_thread_enqueue, &store.st_unwatch);
	if (error == 0)
		error = taskqueue_start_threads(&store.st_unwatch, 1, PWAIT,
		    "xen unwatch");
	return (error);
}

void
xenstore_ring_fini(void)
{

}

/*
 * Does the core have nothing of ours, or nothing but watches?  It has some
 * seconds for that.
 */
static bool
store_is_idle(void)
{
	bool idle = false;
	int i;

	for (i = 0; !idle && i < STORE_CLOSE_TRIES; i++) {
		mtx_lock(&store.st_mtx);
		idle = store.st_alone == 0 && store.st_removing == 0;
		mtx_unlock(&store.st_mtx);
		if (!idle)
			pause("xsidle", MAX(hz / 10, 1));
	}
	return (idle);
}

int
xen_core_store_close(void)
{
	struct store_watch *sw;

	if (store.st_queue == NULL || store.st_closed)
		return (0);
	if (!store_is_idle())
		return (EBUSY);
	store.st_closed = true;
	mtx_lock(&store.st_mtx);
	while ((sw = LIST_FIRST(&store.st_watches)) != NULL)
		store_unwatch(sw);
	mtx_unlock(&store.st_mtx);
	if (store_is_idle())
		return (0);
	xen_core_store_open();
	return (EBUSY);
}

/* The first answer has the watches set again. */
void
xen_core_store_open(void)
{

	store.st_closed = false;
	xenstore_raise_doubt();
}

int
xen_core_store_fini(void)
{

	if (store.st_queue == NULL)
		return (0);
	if (xen_core_store_close() != 0)
		return (EBUSY);
	taskqueue_free(store.st_queue);
	taskqueue_free(store.st_unwatch);
	store.st_queue = store.st_unwatch = NULL;
	free(store.st_reply, M_XENSTORE);
	store.st_reply = NULL;
	return (0);
}
