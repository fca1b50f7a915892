/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenstore as front ends see it (xenstore.h): a few nodes, which the test has as well.  None of its
 * functions is called with a mutex held.
 */

#ifndef _XENSTORE_NODES_H_
#define	_XENSTORE_NODES_H_

#include <sys/param.h>
#include <sys/systm.h>

#define	XSN_VALUE	64	/* bytes of a value */

/* The error of each request; 0: none. */
extern int xsn_no_answer;

/* The error of each that writes. */
extern int xsn_no_writing;

/* The nth that writes or removes in a transaction, from now on, fails with ENOSPC; 0: none does. */
extern int xsn_fail_after;

/* The nth request from now on has no answer (ETIMEDOUT); 0: all have. */
extern int xsn_unanswered;

/* Reading a node of this name has no answer; NULL: none. */
extern const char *xsn_unread;

/* Each transaction is made twice, as another's comes between. */
extern bool xsn_conflicts;

/* What was written in transactions, one value after the other, as far as there is room. */
extern char xsn_wrote[64];

/* Values that were read, and not freed. */
extern int xsn_out;

/* Called for each node that is set or written, and for what is removed, if it is not NULL. */
extern void (*xsn_changed)(const char *path);

/* Begin without a node. */
void	xsn_begin(void);

/* The value of a node, XSN_VALUE bytes, which `make' makes if there is none; NULL. */
char	*xsn_node(const char *dir, const char *name, bool make);

/* Is there a node, or one below it? */
bool	xsn_exists(const char *dir, const char *name);

/* The path of the ith node of all that there can be; NULL: there are no more, "": this is none. */
const char *xsn_nth(u_int i);

/* Set and remove one, with all below it, as another domain does. */
void	xsn_set(const char *dir, const char *name, const char *fmt, ...) __printflike(3, 4);
void	xsn_clear(const char *dir, const char *name);

#endif /* !_XENSTORE_NODES_H_ */
