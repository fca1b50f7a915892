/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * FreeBSD's own Xen core: xenstore.  All of these sleep until there is an answer.
 */

#ifndef _XEN_XENSTORE_XENSTOREVAR_H
#define	_XEN_XENSTORE_XENSTOREVAR_H

#include <sys/param.h>
#include <sys/malloc.h>
#include <sys/queue.h>

#include <xen/xen-os.h>
#include <xen/io/xenbus.h>
#include <xen/io/xs_wire.h>

/* What is read. */
MALLOC_DECLARE(M_XENSTORE);

struct xs_watch;
typedef void (xs_watch_cb_t)(struct xs_watch *, const char **vec, unsigned int len);

/* A watch; the caller sets node, callback, callback_data and max_pending. */
struct xs_watch {
	LIST_ENTRY(xs_watch) list;
	char		*node;
	xs_watch_cb_t	*callback;	/* with the path and the token of an event (xs_wire.h) */
	uintptr_t	 callback_data;
	unsigned int	 max_pending;	/* events that may wait; more are dropped.  0: any number */
	unsigned int	 pending;
};

struct xs_transaction {
	uint32_t	 id;
};
#define	XST_NIL	((struct xs_transaction){ 0 })

/* *result is memory of M_XENSTORE, with a NUL behind it. */
int	xs_read(struct xs_transaction t, const char *dir, const char *node, unsigned int *len,
	    void **result);

/* No callback runs when the latter returns, unless it is called by one. */
int	xs_register_watch(struct xs_watch *watch);
void	xs_unregister_watch(struct xs_watch *watch);

#endif /* !_XEN_XENSTORE_XENSTOREVAR_H */
