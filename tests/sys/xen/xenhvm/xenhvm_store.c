/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenhvm: xenstore.  Requests have no time-out; callbacks of watches run in a thread, one at a time.
 * With hw.xenhvm.hold=1, requests of the core's users wait before they are made, and with 2 states that
 * the core is to write for them; its other requests are made.  With bits of hw.xenhvm.fail it is in
 * trouble: see the sysctl.
 *
 * Locking.  hs_request (sx): one request at a time.  hs_calling (sx): while a callback runs.
 * hs_watching (sx): while a watch is set, or removed.  hs_mtx: watches and events.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/priority.h>
#include <sys/proc.h>
#include <sys/queue.h>
#include <sys/sx.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore_var.h>

#include <xen/xenstore/xenstorevar.h>
#include <xen/xenstore/xenstore_internal.h>
#include <xen/xenbus/xenbusvar.h>

#include "xenhvm.h"

MALLOC_DEFINE(M_XENSTORE, "xenstore", "xenhvm xenstore");

struct hs_event {
	STAILQ_ENTRY(hs_event) he_link;
	struct xs_watch	*he_watch;
	char		*he_path;
	char		*he_token;
};

static struct sx hs_request, hs_calling;
SX_SYSINIT(xenhvm_request, &hs_request, "xenhvm request");
SX_SYSINIT(xenhvm_calling, &hs_calling, "xenhvm calling");
static struct sx hs_watching;
SX_SYSINIT(xenhvm_watching, &hs_watching, "xenhvm watching");
static struct mtx hs_mtx;
MTX_SYSINIT(xenhvm_store, &hs_mtx, "xenhvm store", MTX_DEF);

static LIST_HEAD(, xs_watch) hs_watches = LIST_HEAD_INITIALIZER(hs_watches);
static STAILQ_HEAD(, hs_event) hs_events = STAILQ_HEAD_INITIALIZER(hs_events);
static struct taskqueue *hs_queue;
static struct task hs_task;
static struct thread *hs_thread;
static device_t hs_dev;

SYSCTL_NODE(_hw, OID_AUTO, xenhvm, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "xenhvm");
static u_int hs_hold;
SYSCTL_UINT(_hw_xenhvm, OID_AUTO, hold, CTLFLAG_RW, &hs_hold, 0, "What is to wait: 1, 2");
static u_int hs_fail;
SYSCTL_UINT(_hw_xenhvm, OID_AUTO, fail, CTLFLAG_RW, &hs_fail, 0,
    "What fails: 1 requests, 2 their type, 4 watches, 8 event channels, 16 grants");

bool
hvm_fails(u_int what)
{

	return ((*(volatile u_int *)&hs_fail & what) != 0);
}

void
hvm_store_hold(u_int what)
{

	while (*(volatile u_int *)&hs_hold == what)
		pause("hshold", 1);
}

static struct xs_watch *
hs_find(u_long token)
{
	struct xs_watch *w;

	LIST_FOREACH(w, &hs_watches, list) {
		if ((u_long)w == token)
			break;
	}
	return (w);
}

/* In the thread of xenstore's event channel. */
static void
hs_fired(const char *path, const char *token)
{
	struct hs_event *he;
	struct xs_watch *w;

	mtx_lock(&hs_mtx);
	w = hs_find(strtoul(token, NULL, 16));
	if (w != NULL && (w->max_pending == 0 || w->pending < w->max_pending)) {
		he = malloc(sizeof(*he), M_XENSTORE, M_NOWAIT | M_ZERO);
		he->he_watch = w;
		he->he_path = strdup_flags(path, M_XENSTORE, M_NOWAIT);
		he->he_token = strdup_flags(token, M_XENSTORE, M_NOWAIT);
		w->pending++;
		STAILQ_INSERT_TAIL(&hs_events, he, he_link);
		taskqueue_enqueue(hs_queue, &hs_task);
	}
	mtx_unlock(&hs_mtx);
}

static void
hs_free(struct hs_event *he)
{

	free(he->he_path, M_XENSTORE);
	free(he->he_token, M_XENSTORE);
	free(he, M_XENSTORE);
}

static void
hs_call(void *arg __unused, int pending __unused)
{
	const char *vec[2];
	struct hs_event *he;

	do {
		sx_xlock(&hs_calling);
		hs_thread = curthread;
		mtx_lock(&hs_mtx);
		he = STAILQ_FIRST(&hs_events);
		if (he != NULL) {
			STAILQ_REMOVE_HEAD(&hs_events, he_link);
			he->he_watch->pending--;
		}
		mtx_unlock(&hs_mtx);
		if (he != NULL) {
			vec[XS_WATCH_PATH] = he->he_path;
			vec[XS_WATCH_TOKEN] = he->he_token;
			he->he_watch->callback(he->he_watch, vec, nitems(vec));
			hs_free(he);
		}
		hs_thread = NULL;
		sx_xunlock(&hs_calling);
	} while (he != NULL);
}

static const char *
hs_error_name(int error)
{
	u_int i;

	for (i = 0; i < nitems(xsd_errors); i++) {
		if (xsd_errors[i].errnum == error)
			return (xsd_errors[i].errstring);
	}
	return ("EINVAL");
}

int
xs_dev_request_and_reply(struct xsd_sockmsg *msg, void **result)
{
	struct xenstore_piece piece = { msg + 1, msg->len };
	const char *reply;
	size_t len;
	int error;

	hvm_store_hold(1);
	if (hvm_fails(HVM_FAIL_REQUEST))
		return (EIO);
	sx_xlock(&hs_request);
	error = xenstore_ring_talk(msg->type, msg->tx_id, &piece, 1, &reply, &len);
	if (error != 0) {
		msg->type = XS_ERROR;
		reply = hs_error_name(error);
		len = strlen(reply) + 1;
	}
	*result = malloc(len + 1, M_XENSTORE, M_WAITOK | M_ZERO);
	memcpy(*result, reply, len);
	msg->len = len;
	if (hvm_fails(HVM_FAIL_TYPE))
		msg->type = XS_DEBUG;
	sx_xunlock(&hs_request);
	return (0);
}

/* A request whose payload is up to two strings; the second without its NUL, if it is a value. */
static int
hs_talk(uint32_t type, const char *first, const char *second, bool value, char **reply, u_int *len)
{
	struct xenstore_piece pieces[2] = {
		{ first, strlen(first) + 1 },
		{ second, second != NULL ? strlen(second) + (value ? 0 : 1) : 0 },
	};
	const char *text;
	size_t n;
	int error;

	sx_xlock(&hs_request);
	error = xenstore_ring_talk(type, 0, pieces, second != NULL ? 2 : 1, &text, &n);
	if (error == 0 && reply != NULL) {
		*reply = malloc(n + 1, M_XENSTORE, M_WAITOK | M_ZERO);
		memcpy(*reply, text, n);
	}
	if (error == 0 && len != NULL)
		*len = n;
	sx_xunlock(&hs_request);
	return (error);
}

int
xs_read(struct xs_transaction t __unused, const char *dir, const char *node, unsigned int *len,
    void **result)
{
	char path[256];

	snprintf(path, sizeof(path), "%s%s%s", dir, node[0] != '\0' ? "/" : "", node);
	return (hs_talk(XS_READ, path, NULL, false, (char **)result, len));
}

int
hvm_store_write(const char *dir, const char *name, const char *value)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return (hs_talk(XS_WRITE, path, value, true, NULL, NULL));
}

int
hvm_store_list(const char *path, char ***names, u_int *n)
{
	char **array, *p, *text;
	u_int count, i, len;
	int error;

	error = hs_talk(XS_DIRECTORY, path, NULL, false, &text, &len);
	if (error != 0)
		return (error);
	for (count = i = 0; i < len; i++)
		count += text[i] == '\0' ? 1 : 0;
	array = malloc(count * sizeof(*array) + len + 1, M_XENSTORE, M_WAITOK);
	p = (char *)(array + count);
	memcpy(p, text, len);
	for (i = 0; i < count; i++, p += strlen(p) + 1)
		array[i] = p;
	free(text, M_XENSTORE);
	*names = array;
	*n = count;
	return (0);
}

int
xs_register_watch(struct xs_watch *watch)
{
	char token[2 * sizeof(watch) + 1];
	int error;

	if (hvm_fails(HVM_FAIL_WATCH))
		return (EIO);
	watch->pending = 0;
	snprintf(token, sizeof(token), "%lX", (u_long)watch);
	sx_xlock(&hs_watching);
	mtx_lock(&hs_mtx);
	KASSERT(hs_find((u_long)watch) == NULL, ("%s: twice", __func__));
	LIST_INSERT_HEAD(&hs_watches, watch, list);
	mtx_unlock(&hs_mtx);
	error = hs_talk(XS_WATCH, watch->node, token, false, NULL, NULL);
	if (error == EEXIST)
		error = 0;
	if (error != 0) {
		mtx_lock(&hs_mtx);
		LIST_REMOVE(watch, list);
		mtx_unlock(&hs_mtx);
	}
	sx_xunlock(&hs_watching);
	return (error);
}

void
xs_unregister_watch(struct xs_watch *watch)
{
	char token[2 * sizeof(watch) + 1];
	struct hs_event *he, *next;

	snprintf(token, sizeof(token), "%lX", (u_long)watch);
	sx_xlock(&hs_watching);
	mtx_lock(&hs_mtx);
	if (hs_find((u_long)watch) == NULL) {
		mtx_unlock(&hs_mtx);
		sx_xunlock(&hs_watching);
		return;
	}
	LIST_REMOVE(watch, list);
	mtx_unlock(&hs_mtx);
	(void)hs_talk(XS_UNWATCH, watch->node, token, false, NULL, NULL);
	sx_xunlock(&hs_watching);
	mtx_lock(&hs_mtx);
	STAILQ_FOREACH_SAFE(he, &hs_events, he_link, next) {
		if (he->he_watch == watch) {
			STAILQ_REMOVE(&hs_events, he, hs_event, he_link);
			hs_free(he);
		}
	}
	mtx_unlock(&hs_mtx);
	if (hs_thread != curthread) {
		sx_xlock(&hs_calling);
		sx_xunlock(&hs_calling);
	}
}

XenbusState
xenbus_read_driver_state(const char *path)
{
	XenbusState state = XenbusStateClosed;
	void *text;

	if (xs_read(XST_NIL, path, "state", NULL, &text) == 0) {
		state = (XenbusState)strtoul(text, NULL, 10);
		free(text, M_XENSTORE);
	}
	return (state);
}

void
hvm_store_suspend(void)
{

	sx_xlock(&hs_request);
}

void
hvm_store_resume(bool cancelled)
{
	char token[2 * sizeof(struct xs_watch *) + 1];
	struct xs_watch *w;

	if (!cancelled) {
		xenstore_ring_fini();
		if (xenstore_ring_init(hs_dev, hs_fired) != 0)
			panic("xenhvm: no xenstore after the suspension");
	}
	sx_xunlock(&hs_request);
	if (cancelled)
		return;
	sx_xlock(&hs_watching);
	LIST_FOREACH(w, &hs_watches, list) {
		snprintf(token, sizeof(token), "%lX", (u_long)w);
		(void)hs_talk(XS_WATCH, w->node, token, false, NULL, NULL);
	}
	sx_xunlock(&hs_watching);
}

int
hvm_store_init(device_t dev)
{

	hs_dev = dev;
	TASK_INIT(&hs_task, 0, hs_call, NULL);
	hs_queue = taskqueue_create("xenhvm watch", M_WAITOK, taskqueue_thread_enqueue, &hs_queue);
	(void)taskqueue_start_threads(&hs_queue, 1, PWAIT, "xenhvm watch");
	return (xenstore_ring_init(dev, hs_fired));
}
