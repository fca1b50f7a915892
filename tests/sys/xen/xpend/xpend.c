/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The state that the module xen finds if it is loaded while an upcall is pending that was not
 * handled.
 *
 * Xen interrupts a vCPU only when it changes evtchn_upcall_pending from 0 to 1.  This module sets it
 * on each vCPU, and marks each word of event channels as having a pending one: from then on the vCPU
 * is not interrupted until the upcall has been handled.
 *
 * With xpend.deaf=N in the kernel environment, N not 0, it takes the FIFO event queues of vCPU N
 * instead: Xen does not give them to the module xen again.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/linker.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/pcpu.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/cpufunc.h>

#ifndef __XEN_INTERFACE_VERSION__
#define	__XEN_INTERFACE_VERSION__	0x00040d00
#endif
#include <xen/xen.h>
#include <xen/event_channel.h>

#include <x86/xen/xen_kernel_tree.h>

static int
take_queues(u_int vcpu)
{
	struct evtchn_init_control arg = { .vcpu = vcpu };
	void *page;

	page = contigmalloc(PAGE_SIZE, M_TEMP, M_WAITOK | M_ZERO, 0, ~(vm_paddr_t)0, PAGE_SIZE, 0);
	arg.control_gfn = atop(vtophys(page));
	return (xen_kernel_call(__HYPERVISOR_event_channel_op, EVTCHNOP_init_control, (u_long)&arg,
	    0) == 0 ? 0 : ENXIO);
}

static int
xpend_modevent(module_t mod __unused, int what, void *arg __unused)
{
	struct vcpu_info *info;
	char *variable;
	u_int cpu;
	int deaf = 0;

	if (what != MOD_LOAD)
		return (what == MOD_UNLOAD ? 0 : EOPNOTSUPP);
	TUNABLE_INT_FETCH("xpend.deaf", &deaf);
	if (deaf != 0)
		return (take_queues(deaf));
	variable = linker_file_lookup_symbol(linker_kernel_file, "pcpu_entry_vcpu_info", 0);
	if (variable == NULL)
		return (ENXIO);
	CPU_FOREACH(cpu) {
		info = *(struct vcpu_info **)(variable + dpcpu_off[cpu]);
		atomic_set_long((volatile u_long *)&info->evtchn_pending_sel, ~0UL);
		atomic_store_rel_8(&info->evtchn_upcall_pending, 1);
	}
	return (0);
}

static moduledata_t xpend_mod = { "xpend", xpend_modevent, NULL };
DECLARE_MODULE(xpend, xpend_mod, SI_SUB_DRIVERS, SI_ORDER_ANY);
MODULE_VERSION(xpend, 1);
