/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the core below says to the bus of front ends: our own (xen_platform.c),
 * or the kernel's (core/core_front.c).
 */

#ifndef _DEV_XEN_XEN_FRONT_H_
#define	_DEV_XEN_XEN_FRONT_H_

#include <sys/types.h>

#include <xen/io/xenbus.h>

/*
 * Is a front end of the toolstack's list ours?
 *
 * type  "vbd"
 * node  "device/vbd/51712"
 */
bool	xen_front_is_ours(const char *type, const char *node);

/* A front end has written its state to xenstore.  May sleep. */
void	xen_front_told(const char *node, enum xenbus_state state);

/* The unit that its driver's device is to have, or -1. */
int	xen_front_unit(const char *node);

#endif /* !_DEV_XEN_XEN_FRONT_H_ */
