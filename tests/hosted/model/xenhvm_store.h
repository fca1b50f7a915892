/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenstore of FreeBSD's own Xen core, over the nodes of xenstore_nodes.c: for xenhvm_front.c, which is
 * the core's bus (tests/sys/xen/xenhvm), and for the adapter.
 */

#ifndef _XENHVM_STORE_H_
#define	_XENHVM_STORE_H_

#include <sys/param.h>
#include <sys/systm.h>

/* While it is set, the core's writes of states have no answer; and no event comes. */
extern bool xhs_hold, xhs_silent;

/* The error of each new watch of ours; 0: none. */
extern int xhs_no_watch;

/* Watches that exist. */
extern int xhs_watches;

/* States that the core's bus writes, each behind the one before: "device/vif/0=6 ". */
extern char xhs_wrote[256];

/* Begin without a node, and with the thread that events come in. */
void	xhs_begin(void);

/* Is a write of the core's waiting for its answer? */
bool	xhs_is_held(void);

#endif /* !_XENHVM_STORE_H_ */
