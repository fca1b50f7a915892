/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * FreeBSD's own Xen core: hypercalls.  FreeBSD has them inline, over its hypercall page.
 */

#ifndef __XEN_HYPERVISOR_H__
#define	__XEN_HYPERVISOR_H__

#include <sys/types.h>

#include <xen/xen-os.h>
#include <xen/grant_table.h>

/* Both return 0, or the negative of Xen's error. */
int	HYPERVISOR_event_channel_op(int cmd, void *arg);
int	HYPERVISOR_grant_table_op(unsigned int cmd, void *args, unsigned int count);

#endif /* !__XEN_HYPERVISOR_H__ */
