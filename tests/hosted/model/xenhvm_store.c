/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What xenhvm_store.c is in a guest: xs_read(), watches, and writes of FreeBSD's core.  Both its
 * watches and ours (xenstore.h) get their events in one thread, in the order of the changes.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>

#include <dev/xen/xenstore.h>
#include <xen/xenstore/xenstorevar.h>
#include <xen/xenbus/xenbusvar.h>

#include "../host/host.h"
#include "../kpi/kpi.h"
#include "../kpi/threads.h"
#include "../../sys/xen/xenhvm/xenhvm.h"
#include "xenhvm_store.h"
#include "xenstore_nodes.h"

#define	XHS_WATCHES	16
#define	XHS_EVENTS	256

MALLOC_DEFINE(M_XENSTORE, "xenstore", "xenstore");

bool xhs_hold, xhs_silent;
int xhs_no_watch;
int xhs_watches;
char xhs_wrote[256];

static int xhs_held;

/* The core's or ours. */
static struct xhs_watch {
	struct xs_watch	*core;
	struct xenstore_watch *ours;
	char		 path[80];
} xhs_table[XHS_WATCHES];

static struct {
	struct xhs_watch *watch;	/* NULL: it is there no more */
	char		 path[80];
} xhs_events[XHS_EVENTS];
static u_int xhs_first, xhs_end;
static struct xhs_watch *xhs_fires;

/* hw.xenhvm is no part of a process. */
struct sysctl_oid sysctl___hw_xenhvm;

static void
xhs_event(struct xhs_watch *w, const char *path)
{

	CHECK(xhs_end - xhs_first < XHS_EVENTS, "too many events");
	xhs_events[xhs_end % XHS_EVENTS].watch = w;
	strlcpy(xhs_events[xhs_end++ % XHS_EVENTS].path, path, sizeof(xhs_events[0].path));
	wakeup(&xhs_end);
}

static void
xhs_changed(const char *path)
{
	struct xhs_watch *w;
	size_t n;

	for (w = xhs_table; w < xhs_table + XHS_WATCHES; w++) {
		n = strlen(w->path);
		if ((w->core != NULL || w->ours != NULL) && strncmp(path, w->path, n) == 0 &&
		    (path[n] == '\0' || path[n] == '/'))
			xhs_event(w, path);
	}
}

static void
xhs_fire(struct xhs_watch *w, const char *path)
{
	const char *vec[] = { path, "token" };

	xhs_fires = w;
	if (w->core != NULL)
		w->core->callback(w->core, vec, nitems(vec));
	else
		w->ours->xw_changed(w->ours, path);
	xhs_fires = NULL;
	wakeup(&xhs_fires);
}

static void
xhs_thread(void *arg __unused)
{
	u_int i;

	for (;;) {
		while (xhs_silent || xhs_first == xhs_end)
			(void)tsleep(&xhs_end, 0, "xenwatch", xhs_silent ? 1 : 0);
		i = xhs_first++ % XHS_EVENTS;
		if (xhs_events[i].watch != NULL)
			xhs_fire(xhs_events[i].watch, xhs_events[i].path);
	}
}

void
xhs_begin(void)
{

	xsn_begin();
	xsn_changed = xhs_changed;
	kpi_thread_start(xhs_thread, NULL);
}

bool
xhs_is_held(void)
{

	return (xhs_held > 0);
}

static void
xhs_watch(struct xs_watch *core, struct xenstore_watch *ours, const char *path)
{
	struct xhs_watch *w = xhs_table;

	while (w < xhs_table + XHS_WATCHES && (w->core != NULL || w->ours != NULL))
		w++;
	CHECK(w < xhs_table + XHS_WATCHES, "too many watches");
	w->core = core;
	w->ours = ours;
	strlcpy(w->path, path, sizeof(w->path));
	xhs_watches++;
	xhs_event(w, path);
}

static void
xhs_unwatch(const struct xs_watch *core, const struct xenstore_watch *ours)
{
	struct xhs_watch *w = xhs_table;
	u_int i;

	while (w < xhs_table + XHS_WATCHES && (w->core != core || w->ours != ours))
		w++;
	/* One that was never set. */
	if (w == xhs_table + XHS_WATCHES)
		return;
	for (i = xhs_first; i != xhs_end; i++)
		if (xhs_events[i % XHS_EVENTS].watch == w)
			xhs_events[i % XHS_EVENTS].watch = NULL;
	while (xhs_fires == w)
		(void)tsleep(&xhs_fires, 0, "xsunwatch", 0);
	memset(w, 0, sizeof(*w));
	xhs_watches--;
}

int
xs_register_watch(struct xs_watch *watch)
{

	xhs_watch(watch, NULL, watch->node);
	return (0);
}

void
xs_unregister_watch(struct xs_watch *watch)
{

	xhs_unwatch(watch, NULL);
}

int
xenstore_watch_add(struct xenstore_watch *w, const char *dir, const char *name)
{

	CHECK(kpi_mutexes == 0 && name == NULL, "%s", name);
	if (xhs_no_watch != 0)
		return (xhs_no_watch);
	xhs_watch(NULL, w, dir);
	return (0);
}

void
xenstore_watch_remove(struct xenstore_watch *w)
{

	xhs_unwatch(NULL, w);
}

int
xenstore_exists(struct xenstore_tx *tx, const char *dir, const char *name, bool *exists)
{
	char *value;
	int error;

	error = xenstore_read(tx, dir, name, &value, NULL);
	*exists = error == 0;
	if (error == 0)
		xenstore_free(value);
	return (xenstore_is_missing(error) ? 0 : error);
}

/* A child's name, of a path below dir; NULL: it is none, or was seen before. */
static const char *
xhs_child(const char *dir, u_int i, size_t *len)
{
	const char *path = xsn_nth(i), *other;
	size_t n = strlen(dir) + 1;
	u_int j;

	if (strncmp(path, dir, n - 1) != 0 || path[n - 1] != '/')
		return (NULL);
	*len = strcspn(path + n, "/");
	for (j = 0; j < i; j++) {
		other = xsn_nth(j);
		if (strncmp(other, path, n + *len) == 0 && (other[n + *len] == '\0' ||
		    other[n + *len] == '/'))
			return (NULL);
	}
	return (path + n);
}

/* The names in a directory: in one piece, that of host_alloc(). */
static int
xhs_list(const char *dir, char ***names, u_int *count)
{
	const char *name;
	char *p, **array;
	size_t len, size = 0;
	u_int i, n;

	for (i = n = 0; xsn_nth(i) != NULL; i++)
		if (xhs_child(dir, i, &len) != NULL) {
			size += len + 1;
			n++;
		}
	if (n == 0)
		return (ENOENT);
	array = host_alloc((n + 1) * sizeof(*array) + size, sizeof(void *));
	p = (char *)(array + n + 1);
	for (i = n = 0; xsn_nth(i) != NULL; i++) {
		name = xhs_child(dir, i, &len);
		if (name == NULL)
			continue;
		memcpy(p, name, len);
		p[len] = '\0';
		array[n++] = p;
		p += len + 1;
	}
	array[n] = NULL;
	*names = array;
	*count = n;
	return (0);
}

int
xenstore_list(struct xenstore_tx *tx __unused, const char *dir, const char *name, char ***names,
    u_int *count)
{
	int error;

	CHECK(kpi_mutexes == 0 && name == NULL, "%s", name);
	/* What may not be looked at. */
	*names = (char **)1;
	*count = 1;
	if (xsn_no_answer != 0)
		return (xsn_no_answer);
	error = xhs_list(dir, names, count);
	xsn_out += error == 0;
	return (error);
}

/* The core's, which is freed by free(9). */
int
hvm_store_list(const char *path, char ***names, u_int *n)
{
	int error = xhs_list(path, names, n);

	kpi_mallocs += error == 0;
	return (error);
}

int
xs_read(struct xs_transaction t __unused, const char *dir, const char *node, unsigned int *len,
    void **result)
{
	const char *value = xsn_node(dir, node, false);

	if (value == NULL)
		return (ENOENT);
	*result = strdup(value, M_XENSTORE);
	if (len != NULL)
		*len = strlen(value);
	return (0);
}

int
hvm_store_write(const char *dir, const char *name, const char *value)
{
	size_t at = strlen(xhs_wrote);

	snprintf(xhs_wrote + at, sizeof(xhs_wrote) - at, "%s=%s ", dir, value);
	xsn_set(dir, name, "%s", value);
	return (0);
}

void
hvm_store_hold(u_int what __unused)
{

	xhs_held++;
	while (xhs_hold)
		(void)pause("xshold", 1);
	xhs_held--;
}

enum xenbus_state
xenbus_read_driver_state(const char *path)
{
	const char *value = xsn_node(path, "state", false);

	return (value != NULL ? (enum xenbus_state)strtoul(value, NULL, 10) : XenbusStateClosed);
}
