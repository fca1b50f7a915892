/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The sysctls of a kernel's own network driver, as FreeBSD's GENERIC has them before a module of ours
 * comes: the node hw.vtnet, and an entry whose name ours has as well.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/module.h>
#include <sys/sysctl.h>

static SYSCTL_NODE(_hw, OID_AUTO, vtnet, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
    "The kernel's own driver");

static int twin_csum_disable = 0;
SYSCTL_INT(_hw_vtnet, OID_AUTO, csum_disable, CTLFLAG_RDTUN, &twin_csum_disable, 0,
    "The kernel's own");

static int
twin_modevent(module_t mod __unused, int what, void *arg __unused)
{
	return (what == MOD_LOAD || what == MOD_UNLOAD ? 0 : EOPNOTSUPP);
}

static moduledata_t twin_module = { "twin", twin_modevent, NULL };
DECLARE_MODULE(twin, twin_module, SI_SUB_DRIVERS, SI_ORDER_FIRST);
MODULE_VERSION(twin, 1);
