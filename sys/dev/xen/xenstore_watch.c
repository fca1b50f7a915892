/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Watches of xenstore.
 *
 * A watch is identified by its token, a number that is never used twice: an
 * event of a watch that was removed finds none.
 *
 * Events are queued by the thread of the event channel, and passed to their
 * watches by another, which may sleep.  Any domain that may write to a watched
 * node can cause them faster than they are handled, so a path that is queued
 * already is not queued again, and of more than WATCH_MAX_PATHS only the
 * watch's own remains: "something changed".
 *
 * A watch that xenstore refuses (a quota) is reported, and set later: after 1,
 * 2, 4 ... WATCH_AGAIN_SECS. When it is set its first event comes, as always;
 * until then its owner hears of no change.
 *
 * Locking.  watch_mtx (mutex): watches, events.  It is not held while a watch
 * is called; watch_running is the one that is called, and
 * xenstore_watch_remove() waits for it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/sysctl.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/priority.h>
#include <sys/proc.h>
#include <sys/queue.h>
#include <sys/taskqueue.h>

#include <dev/pv/dev/pv_dev.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore_var.h>

#define	WATCH_MAX_PATHS	32
#define	WATCH_AGAIN_SECS 32
#define	WATCH_TOKENLEN	9	/* eight digits, hexadecimal */

/* Of xw_flags. */
#define	WATCH_REMOVED	0x40000	/* it is being removed */
#define	WATCH_REFUSED	0x20000	/* xenstore does not have it */
#define	WATCH_MANY	0x10000	/* too many paths: call it with its own */
#define	WATCH_COUNT	0x0ffff	/* paths that wait */

struct watch_event {
	STAILQ_ENTRY(watch_event) we_link;
	struct xenstore_watch *we_watch;
	char		 we_path[];
};

static struct mtx watch_mtx;
MTX_SYSINIT(xenstore_watch, &watch_mtx, "xenstore watch", MTX_DEF);

static LIST_HEAD(,
    xenstore_watch) watch_list = LIST_HEAD_INITIALIZER(watch_list);
static STAILQ_HEAD(,
    watch_event) watch_events = STAILQ_HEAD_INITIALIZER(watch_events);
static struct xenstore_watch *watch_running;
static struct thread *watch_thread;
static uint32_t watch_last_token;
static struct taskqueue *watch_queue;
static struct task watch_task;
static struct timeout_task watch_again_task;
static u_int watch_again_secs;	/* until the next attempt */
static device_t watch_dev;
static uint64_t watch_refusals;

static struct xenstore_watch *
watch_find(uint32_t token)
{
	struct xenstore_watch *w;

	LIST_FOREACH(w, &watch_list, xw_link) {
		if (w->xw_token == token)
			return (w);
	}
	return (NULL);
}

static bool
watch_is_queued(const struct xenstore_watch *w, const char *path)
{
	struct watch_event *we;

	STAILQ_FOREACH(we, &watch_events, we_link) {
		if (we->we_watch == w && strcmp(we->we_path, path) == 0)
			return (true);
	}
	return (false);
}

static void
watch_queue_event(struct xenstore_watch *w, const char *path)
{
	struct watch_event *we;
	size_t size = strlen(path) + 1;

	if (watch_is_queued(w, path))
		return;
	we = NULL;
	if ((w->xw_flags & WATCH_COUNT) < WATCH_MAX_PATHS)
		we = malloc(sizeof(*we) + size, M_XEN, M_NOWAIT);
	if (we == NULL) {
		w->xw_flags |= WATCH_MANY;
		return;
	}
	we->we_watch = w;
	memcpy(we->we_path, path, size);
	w->xw_flags++;
	STAILQ_INSERT_TAIL(&watch_events, we, we_link);
}

static void
watch_fired(const char *path, const char *token)
{
	struct xenstore_watch *w;
	char *end;
	u_long number;

	number = strtoul(token, &end, 16);
	if (*end != '\0' || number > UINT32_MAX)
		return;
	mtx_lock(&watch_mtx);
	w = watch_find(number);
	if (w != NULL) {
		watch_queue_event(w, path);
		taskqueue_enqueue(watch_queue, &watch_task);
	}
	mtx_unlock(&watch_mtx);
}

/*
 * Take the next event, or a watch that had too many.  The path is to be freed.
 */
static struct xenstore_watch *
watch_next(struct watch_event **wep)
{
	struct xenstore_watch *w;

	*wep = STAILQ_FIRST(&watch_events);
	if (*wep != NULL) {
		STAILQ_REMOVE_HEAD(&watch_events, we_link);
		w = (*wep)->we_watch;
		w->xw_flags--;
		return (w);
	}
	LIST_FOREACH(w, &watch_list, xw_link) {
		if ((w->xw_flags & WATCH_MANY) != 0) {
			w->xw_flags &= ~WATCH_MANY;
			return (w);
		}
	}
	return (NULL);
}

static void
watch_dispatch(void *arg __unused, int pending __unused)
{
	struct xenstore_watch *w;
	struct watch_event *we;

	mtx_lock(&watch_mtx);
	watch_thread = curthread;
	while ((w = watch_next(&we)) != NULL) {
		watch_running = w;
		mtx_unlock(&watch_mtx);
		w->xw_changed(w, we != NULL ? we->we_path : w->xw_path);
		free(we, M_XEN);
		mtx_lock(&watch_mtx);
		watch_running = NULL;
		wakeup(&watch_running);
	}
	watch_thread = NULL;
	mtx_unlock(&watch_mtx);
}

static void
watch_pieces(const char *path, uint32_t token, char *buf,
    struct xenstore_piece *pieces)
{

	snprintf(buf, WATCH_TOKENLEN, "%08x", token);
	pieces[0] = (struct xenstore_piece){ path, strlen(path) + 1 };
	pieces[1] = (struct xenstore_piece){ buf, strlen(buf) + 1 };
}

/* Forget a watch and its events, and wait for it. */
static void
watch_forget(struct xenstore_watch *w)
{
	struct watch_event *we, *next;

	mtx_lock(&watch_mtx);
	LIST_REMOVE(w, xw_link);
	STAILQ_FOREACH_SAFE(we, &watch_events, we_link, next) {
		if (we->we_watch == w) {
			STAILQ_REMOVE(&watch_events, we, watch_event, we_link);
			free(we, M_XEN);
		}
	}
	KASSERT(watch_running != w || watch_thread != curthread,
	    ("%s: %s removes itself", __func__, w->xw_path));
	while (watch_running == w)
		(void)msleep(&watch_running, &watch_mtx, 0, "xenwat", 0);
	mtx_unlock(&watch_mtx);
	xenstore_free(w->xw_path);
	w->xw_path = NULL;
	w->xw_token = 0;
}

/* Set it later.  One that was removed meanwhile is not. */
static void
watch_refuse(uint32_t token, int error)
{
	struct xenstore_watch *w;
	bool first = false;

	mtx_lock(&watch_mtx);
	watch_refusals++;
	w = watch_find(token);
	if (w != NULL && (w->xw_flags & WATCH_REFUSED) == 0) {
		w->xw_flags |= WATCH_REFUSED;
		first = watch_again_secs == 0;
		watch_again_secs = MAX(watch_again_secs, 1);
		taskqueue_enqueue_timeout(watch_queue, &watch_again_task,
		    watch_again_secs * hz);
	}
	mtx_unlock(&watch_mtx);
	if (first)
		device_printf(watch_dev,
		    "xenstore refuses a watch (error %d): it is set later\n",
		    error);
}

int
xenstore_watch_add(struct xenstore_watch *w, const char *dir, const char *name)
{
	struct xenstore_piece pieces[2];
	char token[WATCH_TOKENLEN];
	int error;

	w->xw_path = xenstore_join(dir, name);
	if (w->xw_path == NULL)
		return (ENAMETOOLONG);
	w->xw_flags = 0;
	/*
	 * Known before it is set: the first event may come before the answer.
	 */
	mtx_lock(&watch_mtx);
	if (++watch_last_token == 0)
		watch_last_token = 1;
	w->xw_token = watch_last_token;
	LIST_INSERT_HEAD(&watch_list, w, xw_link);
	mtx_unlock(&watch_mtx);
	watch_pieces(w->xw_path, w->xw_token, token, pieces);
	error = xenstore_talk(NULL, XS_WATCH, pieces, nitems(pieces), NULL,
	    NULL);
	/*
	 * E2BIG: the quota.  If there was no answer, all watches are set again
	 * after the next one.
	 */
	if (error == E2BIG || (pv_dev_may_pass(error) && error != ETIMEDOUT))
		watch_refuse(w->xw_token, error);
	else if (error != 0 && error != ETIMEDOUT) {
		watch_forget(w);
		return (error);
	}
	return (0);
}

void
xenstore_watch_remove(struct xenstore_watch *w)
{
	struct xenstore_piece pieces[2];
	char token[WATCH_TOKENLEN];

	if (w->xw_token == 0)
		return;
	mtx_lock(&watch_mtx);
	w->xw_flags |= WATCH_REMOVED;
	mtx_unlock(&watch_mtx);
	watch_pieces(w->xw_path, w->xw_token, token, pieces);
	/* If xenstore does not get this, its events find no watch any more. */
	(void)xenstore_talk(NULL, XS_UNWATCH, pieces, nitems(pieces), NULL,
	    NULL);
	watch_forget(w);
}

/*
 * The path of the watch with the lowest token above *token, which is set to it;
 * NULL: none.  One that is being removed would be set for good: xenstore may
 * have been told.
 */
static char *
watch_after(uint32_t *token)
{
	struct xenstore_watch *best = NULL, *w;
	char *path;

	path = malloc(XENSTORE_ABS_PATH_MAX, M_XEN, M_WAITOK);
	mtx_lock(&watch_mtx);
	LIST_FOREACH(w, &watch_list, xw_link) {
		if ((w->xw_flags & WATCH_REMOVED) == 0 &&
		    w->xw_token > *token &&
		    (best == NULL || w->xw_token < best->xw_token))
			best = w;
	}
	if (best != NULL) {
		*token = best->xw_token;
		strlcpy(path, best->xw_path, XENSTORE_ABS_PATH_MAX);
	}
	mtx_unlock(&watch_mtx);
	if (best == NULL) {
		xenstore_free(path);
		path = NULL;
	}
	return (path);
}

static void
watch_again(void)
{
	struct xenstore_piece pieces[2];
	char buf[WATCH_TOKENLEN];
	const char *reply;
	char *path;
	size_t len;
	uint32_t token;
	int error;

	error = 0;
	for (token = 0; error != ETIMEDOUT &&
	    (path = watch_after(&token)) != NULL; xenstore_free(path)) {
		watch_pieces(path, token, buf, pieces);
		/* EEXIST: it has this one. */
		error = xenstore_ring_talk(XS_WATCH, 0, pieces, nitems(pieces),
		    &reply, &len);
		if (error != 0 && error != EEXIST && error != ETIMEDOUT)
			watch_refuse(token, error);
	}
}

/*
 * The token of a refused watch above another one, and its path, to be freed; 0:
 * none.
 */
static uint32_t
watch_next_refused(uint32_t token, char **path)
{
	struct xenstore_watch *w;
	bool refused;

	while ((*path = watch_after(&token)) != NULL) {
		mtx_lock(&watch_mtx);
		w = watch_find(token);
		refused = w != NULL && (w->xw_flags &
		    (WATCH_REFUSED | WATCH_REMOVED)) == WATCH_REFUSED;
		mtx_unlock(&watch_mtx);
		if (refused)
			return (token);
		xenstore_free(*path);
	}
	return (0);
}

/* xenstore has this one now.  Returns false if it is not wanted any more. */
static bool
watch_accept(uint32_t token)
{
	struct xenstore_watch *w;
	bool wanted;

	mtx_lock(&watch_mtx);
	w = watch_find(token);
	wanted = w != NULL && (w->xw_flags & WATCH_REMOVED) == 0;
	if (wanted)
		w->xw_flags &= ~WATCH_REFUSED;
	mtx_unlock(&watch_mtx);
	return (wanted);
}

/*
 * Set one that was refused.  Returns 0, or an error: it, and those after it,
 * have to wait.
 */
static int
watch_set_one(const char *path, uint32_t token)
{
	struct xenstore_piece pieces[2];
	char buf[WATCH_TOKENLEN];
	int error;

	watch_pieces(path, token, buf, pieces);
	error = xenstore_talk(NULL, XS_WATCH, pieces, nitems(pieces), NULL,
	    NULL);
	if (error == EEXIST)
		error = 0;
	/* One whose removal came first takes up room for nothing. */
	if (error == 0 && !watch_accept(token))
		(void)xenstore_talk(NULL, XS_UNWATCH, pieces, nitems(pieces),
		    NULL, NULL);
	return (error);
}

static bool
watch_any_refused(void)
{
	struct xenstore_watch *w;

	mtx_assert(&watch_mtx, MA_OWNED);
	LIST_FOREACH(w, &watch_list, xw_link) {
		if ((w->xw_flags & WATCH_REFUSED) != 0)
			return (true);
	}
	return (false);
}

static void
watch_set_refused(void *arg __unused, int pending __unused)
{
	uint32_t token = 0;
	bool all;
	char *path;
	int error = 0;

	while (error == 0 && (token = watch_next_refused(token, &path)) != 0) {
		error = watch_set_one(path, token);
		xenstore_free(path);
	}
	mtx_lock(&watch_mtx);
	all = error == 0 && !watch_any_refused();
	if (error != 0)
		watch_refusals++;
	if (all)
		watch_again_secs = 0;
	else {
		watch_again_secs = MIN(2 * MAX(watch_again_secs, 1),
		    WATCH_AGAIN_SECS);
		taskqueue_enqueue_timeout(watch_queue, &watch_again_task,
		    watch_again_secs * hz);
	}
	mtx_unlock(&watch_mtx);
	if (all)
		device_printf(watch_dev, "xenstore has all watches again\n");
}

static const struct xenstore_watcher watch_watcher = {
	.xsw_event = watch_fired,
	.xsw_again = watch_again,
};

int
xenstore_watch_init(device_t dev)
{
	int error;

	watch_dev = dev;
	TASK_INIT(&watch_task, 0, watch_dispatch, NULL);
	watch_queue = taskqueue_create("xenwatch", M_WAITOK,
	    taskqueue_thread_enqueue, &watch_queue);
	TIMEOUT_TASK_INIT(watch_queue, &watch_again_task, 0, watch_set_refused,
	    NULL);
	error = taskqueue_start_threads(&watch_queue, 1, PWAIT, "xenwatch");
	if (error != 0) {
		taskqueue_free(watch_queue);
		watch_queue = NULL;
		return (error);
	}
	xenstore_set_watcher(&watch_watcher);
	return (0);
}

void
xenstore_watch_fini(device_t dev __unused)
{

	xenstore_set_watcher(NULL);
	KASSERT(LIST_EMPTY(&watch_list), ("%s: watches are left", __func__));
	if (watch_queue != NULL) {
		while (taskqueue_cancel_timeout(watch_queue, &watch_again_task,
		    NULL) != 0)
			taskqueue_drain_timeout(watch_queue, &watch_again_task);
		taskqueue_drain(watch_queue, &watch_task);
		taskqueue_free(watch_queue);
	}
	watch_queue = NULL;
}

void
xenstore_watch_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{

	SYSCTL_ADD_U64(ctx, SYSCTL_CHILDREN(parent), OID_AUTO,
	    "refused_watches", CTLFLAG_RD, &watch_refusals, 0,
	    "Times that xenstore refused a watch, which is set later");
}
