/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The one network stack (vnet(9)).
 *
 * A kernel with VIMAGE has many, and a thread that calls into one selects it with CURVNET_SET().
 * Here there is only vnet0, whose variables are those of the linker set themselves, as its base is 0.
 * But curvnet is set only where FreeBSD sets it: while the stack starts, in system calls on sockets
 * (CONSOLE_NET_CMD), in sysctl handlers, in kldload and kldunload, while a device attaches, and by
 * the stack for what it is handed (ether_input ...) or does in its own threads and callouts.  Anywhere
 * else it is NULL, so that a driver that forgot it faults in V_x, or at a CURVNET_ASSERT_SET().
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/proc.h>

#include <net/vnet.h>

#ifdef VIMAGE
static struct vnet vnet_only = { .vnet_magic_n = VNET_MAGIC_N };
struct vnet *vnet0 = &vnet_only;

static void
vnet_start(void *arg __unused)
{
	curvnet = vnet0;
}
SYSINIT(vnet0, SI_SUB_VNET, SI_ORDER_FIRST, vnet_start, NULL);

static void
vnet_started(void *arg __unused)
{
	curvnet = NULL;
}
SYSINIT(vnet_done, SI_SUB_VNET_DONE, SI_ORDER_ANY, vnet_started, NULL);
#endif
