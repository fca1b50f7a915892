/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Memory that is added while the system runs: drivers announce it by the event pv_memory_add.
 *
 * Locking.  vm_hotadd_sx: one range at a time.
 *
 * Gaps.  Memory can't be removed again, except page by page by a balloon.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/sx.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_page.h>
#include <vm/vm_tree.h>

#include <dev/pv/pv_memory.h>

static struct sx vm_hotadd_sx;
SX_SYSINIT(vm_hotadd, &vm_hotadd_sx, "vm hotadd");

static void
vm_hotadd(void *arg __unused, struct pv_memory *pm)
{

	sx_xlock(&vm_hotadd_sx);
	pm->pm_error = vm_page_hotadd(pm->pm_start, pm->pm_end, &pm->pm_first);
	sx_xunlock(&vm_hotadd_sx);
}
EVENTHANDLER_DEFINE(pv_memory_add, vm_hotadd, NULL, EVENTHANDLER_PRI_ANY);
