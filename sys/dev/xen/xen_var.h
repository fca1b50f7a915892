/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen's public headers, as every file of the suite includes them, and what the parts of the module
 * xen share.
 *
 * Structures follow the generation of Xen 4.13; an older or newer Xen understands them.
 */

#ifndef _DEV_XEN_XEN_VAR_H_
#define	_DEV_XEN_XEN_VAR_H_

#include <sys/types.h>

#ifndef __XEN_INTERFACE_VERSION__
#define	__XEN_INTERFACE_VERSION__	0x00040d00
#endif
#include <xen/xen.h>

struct sysctl_ctx_list;
struct sysctl_oid;

/* The domain that everything was granted to, or bound with, is another one: none. */
#define	XEN_DOMID_NONE	DOMID_INVALID

#endif /* !_DEV_XEN_XEN_VAR_H_ */
