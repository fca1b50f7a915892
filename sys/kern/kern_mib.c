/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The sysctls of the machine as a whole: hw.ncpu, hw.physmem and others of sysctl(3).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <machine/md_var.h>
#include <vm/vm.h>
#include <vm/vm_extern.h>
#include <vm/vm_param.h>

/* A number of pages, in bytes. */
static int
sysctl_pages(SYSCTL_HANDLER_ARGS)
{
	u_long bytes = ptoa(*(long *)arg1);

	return (sysctl_handle_long(oidp, &bytes, 0, req));
}
SYSCTL_PROC(_hw, HW_PHYSMEM, physmem, CTLTYPE_ULONG | CTLFLAG_RD | CTLFLAG_MPSAFE, &physmem, 0,
    sysctl_pages, "LU", "Amount of physical memory (in bytes)");
SYSCTL_PROC(_hw, HW_REALMEM, realmem, CTLTYPE_ULONG | CTLFLAG_RD | CTLFLAG_MPSAFE, &realmem, 0,
    sysctl_pages, "LU", "Amount of memory (in bytes) reported by the firmware");
SYSCTL_INT(_hw, HW_NCPU, ncpu, CTLFLAG_RD, &mp_ncpus, 0, "Number of active CPUs");
SYSCTL_INT(_hw, HW_PAGESIZE, pagesize, CTLFLAG_RD, SYSCTL_NULL_INT_PTR, PAGE_SIZE,
    "System memory page size");
SYSCTL_STRING(_hw, HW_MACHINE, machine, CTLFLAG_RD, MACHINE, 0, "Machine class");
SYSCTL_STRING(_hw, HW_MACHINE_ARCH, machine_arch, CTLFLAG_RD, MACHINE_ARCH, 0,
    "System architecture");
