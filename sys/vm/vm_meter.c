/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Statistics of virtual memory: vm_cnt and the sysctls under vm.stats that show it.
 *
 * The counters exist from the first instruction on: until counter(9) can allocate, all of them
 * are the dummy in struct pcpu, and what was counted there is lost but for the wired pages.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sysctl.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_page.h>
#include <vm/vm_tree.h>

/* Before SI_SUB_COUNTER every counter of the structure is EARLY_COUNTER. */
struct vmmeter vm_cnt = {
	.v_swtch = EARLY_COUNTER,
	.v_trap = EARLY_COUNTER,
	.v_syscall = EARLY_COUNTER,
	.v_intr = EARLY_COUNTER,
	.v_soft = EARLY_COUNTER,
	.v_vm_faults = EARLY_COUNTER,
	.v_io_faults = EARLY_COUNTER,
	.v_cow_faults = EARLY_COUNTER,
	.v_cow_optim = EARLY_COUNTER,
	.v_zfod = EARLY_COUNTER,
	.v_ozfod = EARLY_COUNTER,
	.v_swapin = EARLY_COUNTER,
	.v_swapout = EARLY_COUNTER,
	.v_swappgsin = EARLY_COUNTER,
	.v_swappgsout = EARLY_COUNTER,
	.v_vnodein = EARLY_COUNTER,
	.v_vnodeout = EARLY_COUNTER,
	.v_vnodepgsin = EARLY_COUNTER,
	.v_vnodepgsout = EARLY_COUNTER,
	.v_intrans = EARLY_COUNTER,
	.v_reactivated = EARLY_COUNTER,
	.v_pdwakeups = EARLY_COUNTER,
	.v_pdpages = EARLY_COUNTER,
	.v_pdshortfalls = EARLY_COUNTER,
	.v_dfree = EARLY_COUNTER,
	.v_pfree = EARLY_COUNTER,
	.v_tfree = EARLY_COUNTER,
	.v_forks = EARLY_COUNTER,
	.v_vforks = EARLY_COUNTER,
	.v_rforks = EARLY_COUNTER,
	.v_kthreads = EARLY_COUNTER,
	.v_forkpages = EARLY_COUNTER,
	.v_vforkpages = EARLY_COUNTER,
	.v_rforkpages = EARLY_COUNTER,
	.v_kthreadpages = EARLY_COUNTER,
	.v_wire_count = EARLY_COUNTER,
	.v_nofree_count = EARLY_COUNTER,
};

u_long vm_user_wire_count;
domainset_t all_domains;
domainset_t vm_min_domains;
domainset_t vm_severe_domains;

/* There is no page cache, so there are no pages that could be had back from it. */
u_int
vm_active_count(void)
{
	return (0);
}

u_int
vm_inactive_count(void)
{
	return (0);
}

u_int
vm_laundry_count(void)
{
	return (0);
}

static void
vmcounter_startup(void *dummy)
{
	counter_u64_t *cnt = (counter_u64_t *)&vm_cnt;

	COUNTER_ARRAY_ALLOC(cnt, VM_METER_NCOUNTERS, M_WAITOK);
	vm_wire_add(vm_cnt.v_page_count - vm_page_free_count);
}
SYSINIT(vmcounter, SI_SUB_COUNTER, SI_ORDER_ANY, vmcounter_startup, NULL);

SYSCTL_NODE(_vm, OID_AUTO, stats, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "VM meter stats");
SYSCTL_NODE(_vm_stats, OID_AUTO, sys, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "Events of the system");
SYSCTL_NODE(_vm_stats, OID_AUTO, vm, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "Pages");

#define	VM_STAT(parent, var, descr)						\
	SYSCTL_COUNTER_U64(parent, OID_AUTO, var, CTLFLAG_RD, &vm_cnt.var, descr)
#define	VM_MARK(var, descr)							\
	SYSCTL_UINT(_vm_stats_vm, OID_AUTO, var, CTLFLAG_RD, &vm_cnt.var, 0, descr)

VM_STAT(_vm_stats_sys, v_swtch, "Context switches");
VM_STAT(_vm_stats_sys, v_intr, "Device interrupts");
VM_STAT(_vm_stats_sys, v_soft, "Software interrupts");
VM_STAT(_vm_stats_vm, v_kthreads, "Kernel threads created");
VM_STAT(_vm_stats_vm, v_wire_count, "Wired pages");
VM_STAT(_vm_stats_vm, v_pdwakeups, "Wake-ups of the page daemon");
VM_MARK(v_page_size, "Page size in bytes");
VM_MARK(v_page_count, "Pages that the page allocator manages");
VM_MARK(v_free_reserved, "Free pages kept from ordinary allocations");
VM_MARK(v_free_min, "Free pages below which caches are given back");
VM_MARK(v_free_target, "Free pages that the page daemon aims for");
VM_MARK(v_interrupt_free_min, "Free pages kept for VM_ALLOC_INTERRUPT");
SYSCTL_UINT(_vm_stats_vm, OID_AUTO, v_free_count, CTLFLAG_RD, &vm_page_free_count, 0,
    "Free pages");
