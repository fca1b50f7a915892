/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The memory that Xen shares with the domain and with each CPU, and what Xen
 * calls a CPU.
 *
 * The shared info page (xen.h) is Xen's, and appears at the guest-physical
 * address that the domain asks for.  It can be at one address only, so that a
 * second request takes it away from the first.  A kernel with Xen support of
 * its own has it mapped already, under the name HYPERVISOR_shared_info: that
 * mapping is used then.  Likewise the struct vcpu_info of a CPU is registered
 * with Xen, which can be done once: a kernel that did has the per-CPU variable
 * vcpu_info, which points to it.  Both are names of FreeBSD's kernel.  (The
 * page has room for those of the first 32 vCPUs.  It is not used: there is one
 * way for any number of them.)
 *
 * After a suspension all of it is requested again: first by xen_cpu_resume(),
 * then on each CPU by xen_cpu_resume_self().  A kernel that has it mapped
 * itself does so in cpu_ops.cpu_resume, which FreeBSD has for this: it is
 * called on the CPU of vCPU 0 first, and on the others after that.
 *
 * Locking.  None: everything is set up before the first upcall, and stays.
 *
 * Gaps.  CPUs that are added later get no event channels.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/linker.h>
#include <sys/malloc.h>
#include <sys/pcpu.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/pmap.h>
#include <vm/vm_param.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>

#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>
#include <xen/arch-x86/cpuid.h>
#include <xen/memory.h>
#include <xen/vcpu.h>

#define	XEN_SHARED_RID	0

struct xen_cpu xen_cpus[MAXCPU];
struct shared_info *xen_shared;

static struct xen_space xen_shared_space;
static struct vcpu_info *xen_infos;	/* by CPU, in a kernel that has none;
					 * never freed */

/* No two pages have a part of one (VCPUOP_register_vcpu_info). */
CTASSERT(PAGE_SIZE % sizeof(struct vcpu_info) == 0);

static void *
xen_kernel_symbol(const char *name)
{

	return (linker_file_lookup_symbol(linker_kernel_file, name, 0));
}

/* Have the shared info page appear in the space that we have for it. */
static int
xen_place_shared(void)
{
	struct xen_add_to_physmap map = {
		.domid = DOMID_SELF,
		.space = XENMAPSPACE_shared_info,
		.gpfn = atop(xen_shared_space.xs_paddr),
	};

	return (xen_memory_op(XENMEM_add_to_physmap, &map));
}

static int
xen_map_shared(device_t dev)
{
	struct shared_info **kernel;
	int error;

	kernel = xen_kernel_symbol("HYPERVISOR_shared_info");
	if (kernel != NULL && *kernel != NULL) {
		xen_shared = *kernel;
		return (0);
	}
	error = xen_space_alloc(dev, XEN_SHARED_RID, PAGE_SIZE,
	    &xen_shared_space);
	if (error != 0)
		return (error);
	error = xen_place_shared();
	if (error != 0)
		return (error);
	xen_shared = (struct shared_info *)xen_shared_space.xs_vaddr;
	return (0);
}

/* Where the kernel has a CPU's struct vcpu_info, or NULL. */
static struct vcpu_info *
xen_kernel_vcpu_info(u_int cpu)
{
	char *variable;

	variable = xen_kernel_symbol("pcpu_entry_vcpu_info");
	if (variable == NULL)
		return (NULL);
	return (*(struct vcpu_info **)(variable + dpcpu_off[cpu]));
}

/*
 * Register this CPU's struct vcpu_info of ours with Xen.  Called on the CPU
 * itself: Xen up to 4.17 refuses to move that of another vCPU which runs.
 */
static int
xen_place_info(void)
{
	struct vcpu_register_vcpu_info reg;
	vm_paddr_t pa = vtophys(&xen_infos[curcpu]);

	memset(&reg, 0, sizeof(reg));
	reg.mfn = atop(pa);
	reg.offset = pa & PAGE_MASK;
	return (xen_vcpu_op(VCPUOP_register_vcpu_info, xen_cpus[curcpu].xc_vcpu,
	    &reg));
}

/*
 * On each CPU: its number, and its memory unless it has some already.  By
 * convention the number is half the APIC's, where Xen does not report it.
 */
static void
xen_cpu_enter(void *arg)
{
	uint32_t base = *(uint32_t *)arg;
	struct xen_cpu *xc = &xen_cpus[curcpu];
	u_int regs[4];

	cpuid_count(base + 4, 0, regs);
	if ((regs[0] & XEN_HVM_CPUID_VCPU_ID_PRESENT) != 0)
		xc->xc_vcpu = regs[1];
	else
		xc->xc_vcpu = PCPU_GET(apic_id) / 2;
	if (xc->xc_info != NULL)
		return;
	xc->xc_error = xen_place_info();
	if (xc->xc_error == 0)
		xc->xc_info = &xen_infos[curcpu];
}

/* Find each CPU's struct vcpu_info, or have memory for it. */
static int
xen_cpu_prepare(void)
{
	bool ours = false;
	u_int cpu;

	CPU_FOREACH(cpu) {
		if (xen_cpus[cpu].xc_info == NULL)
			xen_cpus[cpu].xc_info = xen_kernel_vcpu_info(cpu);
		ours |= xen_cpus[cpu].xc_info == NULL;
	}
	if (!ours || xen_infos != NULL)
		return (0);
	xen_infos = contigmalloc((mp_maxid + 1) * sizeof(*xen_infos), M_XEN,
	    M_WAITOK | M_ZERO, 0, ~(vm_paddr_t)0, PAGE_SIZE, 0);
	if (xen_infos == NULL)
		return (ENOMEM);
	xen_pinned = true;
	return (0);
}

int
xen_cpu_init(device_t dev)
{
	uint32_t base = xen_cpuid_base();
	u_int cpu;
	int error;

	error = xen_map_shared(dev);
	if (error != 0) {
		device_printf(dev, "no shared info page (error %d)\n", error);
		return (error);
	}
	error = xen_cpu_prepare();
	if (error != 0)
		return (error);
	smp_rendezvous(NULL, xen_cpu_enter, NULL, &base);
	CPU_FOREACH(cpu) {
		if (xen_cpus[cpu].xc_info != NULL)
			continue;
		device_printf(dev, "vCPU %u can't be registered (error %d)\n",
		    xen_cpus[cpu].xc_vcpu, xen_cpus[cpu].xc_error);
		return (xen_cpus[cpu].xc_error);
	}
	return (0);
}

int
xen_cpu_resume(void)
{

	if (cpu_ops.cpu_resume != NULL)
		cpu_ops.cpu_resume();
	return (xen_shared_space.xs_res != NULL ? xen_place_shared() : 0);
}

int
xen_cpu_resume_self(bool first)
{
	struct xen_cpu *xc = &xen_cpus[curcpu];
	int error = 0;

	if (!first && cpu_ops.cpu_resume != NULL)
		cpu_ops.cpu_resume();
	if (xen_infos != NULL && xc->xc_info == &xen_infos[curcpu])
		error = xen_place_info();
	/* No channel is unmasked: what is pending belongs to none. */
	xc->xc_info->evtchn_pending_sel = 0;
	xc->xc_info->evtchn_upcall_pending = 0;
	return (error);
}

/*
 * What was registered for a vCPU stays registered, and so does its memory.  The
 * shared info page is taken out of the address space that is given back.
 */
void
xen_cpu_fini(device_t dev)
{
	struct xen_remove_from_physmap map = { .domid = DOMID_SELF };

	if (xen_shared_space.xs_res != NULL) {
		map.gpfn = atop(xen_shared_space.xs_paddr);
		(void)xen_memory_op(XENMEM_remove_from_physmap, &map);
		xen_space_free(dev, &xen_shared_space);
	}
	xen_shared = NULL;
}
