/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A few nodes of xenstore, for tests of front ends.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include <machine/stdarg.h>

#include <dev/xen/xenstore.h>

#include "../host/host.h"
#include "../kpi/kpi.h"
#include "xenstore_nodes.h"

#define	XSN_NODES	128

int xsn_no_answer;
int xsn_no_writing;
int xsn_fail_after;
int xsn_unanswered;
const char *xsn_unread;
bool xsn_conflicts;
char xsn_wrote[64];
void (*xsn_changed)(const char *path);
int xsn_out;

static struct xsn_node {
	char	path[80], value[XSN_VALUE];
} xsn_nodes[XSN_NODES];

void
xsn_begin(void)
{

	memset(xsn_nodes, 0, sizeof(xsn_nodes));
	xsn_no_answer = xsn_no_writing = xsn_fail_after = xsn_unanswered = xsn_out = 0;
	xsn_unread = NULL;
	xsn_changed = NULL;
	xsn_conflicts = false;
	xsn_wrote[0] = '\0';
}

static void
xsn_path(char path[sizeof(xsn_nodes[0].path)], const char *dir, const char *name)
{

	CHECK(snprintf(path, sizeof(xsn_nodes[0].path), "%s/%s", dir, name) <
	    (int)sizeof(xsn_nodes[0].path), "%s/%s", dir, name);
}

char *
xsn_node(const char *dir, const char *name, bool make)
{
	char path[sizeof(xsn_nodes[0].path)];
	u_int i;

	xsn_path(path, dir, name);
	for (i = 0; i < nitems(xsn_nodes); i++)
		if (strcmp(xsn_nodes[i].path, path) == 0)
			return (xsn_nodes[i].value);
	for (i = 0; make && i < nitems(xsn_nodes); i++)
		if (xsn_nodes[i].path[0] == '\0') {
			strlcpy(xsn_nodes[i].path, path, sizeof(xsn_nodes[i].path));
			return (xsn_nodes[i].value);
		}
	CHECK(!make, "too many nodes");
	return (NULL);
}

/* The first node from the ith that is this one, or below it; XSN_NODES: none. */
static u_int
xsn_below(u_int i, const char *dir, const char *name)
{
	char path[sizeof(xsn_nodes[0].path)];
	size_t n;

	xsn_path(path, dir, name);
	n = strlen(path);
	while (i < XSN_NODES && (strncmp(xsn_nodes[i].path, path, n) != 0 ||
	    (xsn_nodes[i].path[n] != '\0' && xsn_nodes[i].path[n] != '/')))
		i++;
	return (i);
}

bool
xsn_exists(const char *dir, const char *name)
{

	return (xsn_below(0, dir, name) < XSN_NODES);
}

const char *
xsn_nth(u_int i)
{

	return (i < XSN_NODES ? xsn_nodes[i].path : NULL);
}

static void
xsn_say(const char *dir, const char *name)
{
	char path[sizeof(xsn_nodes[0].path)];

	xsn_path(path, dir, name);
	if (xsn_changed != NULL)
		xsn_changed(path);
}

void
xsn_set(const char *dir, const char *name, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(xsn_node(dir, name, true), XSN_VALUE, fmt, ap);
	va_end(ap);
	xsn_say(dir, name);
}

void
xsn_clear(const char *dir, const char *name)
{
	u_int i;

	for (i = xsn_below(0, dir, name); i < XSN_NODES; i = xsn_below(i, dir, name))
		memset(&xsn_nodes[i], 0, sizeof(xsn_nodes[i]));
	xsn_say(dir, name);
}

/* The error of any request. */
static int
xsn_asked(void)
{

	CHECK(kpi_mutexes == 0, "a mutex is held");
	if (xsn_unanswered > 0 && --xsn_unanswered == 0)
		return (ETIMEDOUT);
	return (xsn_no_answer);
}

/* The error of a request that writes. */
static int
xsn_writes(const struct xenstore_tx *tx)
{
	int error = xsn_asked();

	if (error != 0)
		return (error);
	if (tx != NULL && xsn_fail_after > 0 && --xsn_fail_after == 0)
		return (ENOSPC);
	return (xsn_no_writing);
}

int
xenstore_read(struct xenstore_tx *tx __unused, const char *dir, const char *name, char **value,
    size_t *len)
{
	const char *is = xsn_node(dir, name, false);
	int error = xsn_asked();

	if (error == 0 && xsn_unread != NULL && strcmp(name, xsn_unread) == 0)
		error = ETIMEDOUT;
	if (error != 0)
		return (error);
	if (is == NULL)
		return (ENOENT);
	/* It ends where its memory does. */
	*value = host_alloc(strlen(is) + 1, 1);
	memcpy(*value, is, strlen(is) + 1);
	xsn_out++;
	if (len != NULL)
		*len = strlen(is);
	return (0);
}

void
xenstore_free(void *memory)
{

	xsn_out -= memory != NULL;
	host_free(memory);
}

int
xenstore_printf(struct xenstore_tx *tx, const char *dir, const char *name, const char *fmt, ...)
{
	size_t at = strlen(xsn_wrote);
	va_list ap;
	char *value;
	int error;

	error = xsn_writes(tx);
	if (error != 0)
		return (error);
	value = xsn_node(dir, name, true);
	va_start(ap, fmt);
	(void)vsnprintf(value, XSN_VALUE, fmt, ap);
	va_end(ap);
	if (tx != NULL)
		snprintf(xsn_wrote + at, sizeof(xsn_wrote) - at, "%s", value);
	xsn_say(dir, name);
	return (0);
}

int
xenstore_write(struct xenstore_tx *tx, const char *dir, const char *name, const char *value)
{

	return (xenstore_printf(tx, dir, name, "%s", value));
}

int
xenstore_remove(struct xenstore_tx *tx, const char *dir, const char *name)
{
	int error = xsn_writes(tx);

	if (error == 0)
		xsn_clear(dir, name);
	return (error);
}

/* All of it, or nothing. */
int
xenstore_transaction(int (*fn)(struct xenstore_tx *tx, void *arg), void *arg)
{
	static struct xsn_node before[XSN_NODES];
	int error;

	memcpy(before, xsn_nodes, sizeof(before));
	error = fn((struct xenstore_tx *)xsn_nodes, arg);
	if (error != 0 || xsn_conflicts)
		memcpy(xsn_nodes, before, sizeof(before));
	if (error == 0 && xsn_conflicts)
		error = fn((struct xenstore_tx *)xsn_nodes, arg);
	return (error);
}
