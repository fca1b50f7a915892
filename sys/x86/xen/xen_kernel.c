/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The kernel as a guest of Xen: hypercalls, the pages shared with Xen, the end of the domain.
 *
 * In this order: xen_kernel_init() from hammer_time(), so that the console works as early as
 * elsewhere; xen_kernel_cpu_init() on each processor once its local APIC is ready, for Xen's
 * events.  Processors are started by Xen (xen_start_cpu()), right in long mode.  Local APIC, I/O
 * APIC and ACPI tables are emulated for PVH guests, and used as on any other machine: timers and
 * IPIs need nothing from here.
 *
 * With machdep.xen=0 in its environment the kernel does none of this, as FreeBSD's without "options
 * XENHVM" does not: an HVM guest is a PC to it, with a serial console, and all of Xen is the module's.
 *
 * Locking.  None: all is written while one processor runs, or by the processor that it is of.
 *
 * Gaps.  No event timer of Xen's: that is the module's.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/pcpu.h>
#include <sys/reboot.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/intr_machdep.h>
#include <machine/md_var.h>
#include <machine/specialreg.h>
#include <machine/vmparam.h>

#include <x86/xen/xen_kernel_tree.h>
#include <xen/arch-x86/cpuid.h>
#include <xen/hvm/hvm_op.h>
#include <xen/hvm/hvm_vcpu.h>
#include <xen/memory.h>
#include <xen/sched.h>
#include <xen/vcpu.h>

#define	HYPERCALL_ENTRY	32	/* bytes */

/* Leaves from the base; Xen's header numbers them from 1 in its comments. */
#define	LEAF_HYPERCALL	2
#define	LEAF_TIME	3
#define	LEAF_HVM	4

/* LEAF_TIME, EAX */
#define	TIME_TSC_EMULATED	0x1
#define	TIME_TSC_RELIABLE	0x2

extern char xen_hypercall_entries[];

DPCPU_DEFINE(struct vcpu_info *, vcpu_info);
struct shared_info *HYPERVISOR_shared_info;

/* Xen puts its page in the place of this one's memory. */
static char shared_page[PAGE_SIZE] __aligned(PAGE_SIZE);

/* No two pages have a part of one (VCPUOP_register_vcpu_info). */
static struct vcpu_info vcpu_infos[MAXCPU] __aligned(sizeof(struct vcpu_info));
CTASSERT(PAGE_SIZE % sizeof(struct vcpu_info) == 0);

bool
xen_guest(void)
{
	return (HYPERVISOR_shared_info != NULL);
}

/* Xen may change rcx and r8 to r11, and the registers of arguments. */
long
xen_kernel_call(u_int nr, u_long a1, u_long a2, u_long a3)
{
	char *entry = xen_hypercall_entries + nr * HYPERCALL_ENTRY;
	long result;

	__asm __volatile("call *%[entry]"
	    : "=a" (result), "+D" (a1), "+S" (a2), "+d" (a3)
	    : [entry] "a" (entry)
	    : "rcx", "r8", "r9", "r10", "r11", "cc", "memory");
	return (result);
}

uint64_t
xen_kernel_param(uint32_t index)
{
	struct xen_hvm_param param = { .domid = DOMID_SELF, .index = index };

	if (xen_kernel_call(__HYPERVISOR_hvm_op, HVMOP_get_param, (u_long)&param, 0) != 0)
		return (0);
	return (param.value);
}

/* Kernel data's physical address, before there are page tables to ask. */
static vm_paddr_t
kernel_paddr(const void *p)
{
	return ((uintptr_t)p - KERNBASE);
}

static bool
map_shared_info(void)
{
	struct xen_add_to_physmap map = {
		.domid = DOMID_SELF,
		.space = XENMAPSPACE_shared_info,
		.gpfn = atop(kernel_paddr(shared_page)),
	};

	return (xen_kernel_call(__HYPERVISOR_memory_op, XENMEM_add_to_physmap, (u_long)&map, 0) ==
	    0);
}

/* No channel has a handler yet: let none interrupt. */
static void
mask_events(void)
{
	memset(HYPERVISOR_shared_info->evtchn_mask, 0xff,
	    sizeof(HYPERVISOR_shared_info->evtchn_mask));
}

static void
fill_hypercall_page(void)
{
	u_int regs[4];

	do_cpuid(hv_base + LEAF_HYPERCALL, regs);
	wrmsr(regs[1], kernel_paddr(xen_hypercall_entries));
}

void
xen_kernel_init(void)
{
	int wanted = 1;

	TUNABLE_INT_FETCH("machdep.xen", &wanted);
	if (wanted == 0)
		return;
	if (vm_guest != VM_GUEST_XEN || hv_high < hv_base + LEAF_HYPERCALL)
		return;
	fill_hypercall_page();
	if (!map_shared_info())
		return;
	HYPERVISOR_shared_info = (struct shared_info *)shared_page;
	mask_events();
}


/* Xen's number of this processor; half of its APIC ID where Xen does not say it. */
static u_int
vcpu_id(void)
{
	u_int regs[4];

	if (hv_high >= hv_base + LEAF_HVM) {
		cpuid_count(hv_base + LEAF_HVM, 0, regs);
		if (regs[0] & XEN_HVM_CPUID_VCPU_ID_PRESENT)
			return (regs[1]);
	}
	return (PCPU_GET(apic_id) / 2);
}

static struct vcpu_info *
register_vcpu_info(void)
{
	struct vcpu_info *vi = &vcpu_infos[PCPU_GET(cpuid)];
	struct vcpu_register_vcpu_info where = {
		.mfn = atop(kernel_paddr(vi)),
		.offset = kernel_paddr(vi) & PAGE_MASK,
	};

	if (xen_kernel_call(__HYPERVISOR_vcpu_op, VCPUOP_register_vcpu_info, PCPU_GET(vcpu_id),
	    (u_long)&where) != 0)
		panic("Xen takes no vcpu_info for vCPU %u", PCPU_GET(vcpu_id));
	return (vi);
}

void
xen_kernel_upcall(void)
{
	struct xen_hvm_evtchn_upcall_vector arg = {
		.vcpu = PCPU_GET(vcpu_id),
		.vector = IDT_EVTCHN,
	};
	long error;

	error = xen_kernel_call(__HYPERVISOR_hvm_op, HVMOP_set_evtchn_upcall_vector, (u_long)&arg,
	    0);
	if (error != 0)
		panic("Xen takes no upcall vector for vCPU %u (error %ld); it has to be 4.6 or newer",
		    arg.vcpu, error);
	xen_kernel_listens = true;
}

/* cpu_ops.cpu_resume: the first processor is at it alone. */
static void
xen_kernel_resume(void)
{
	u_int cpu;

	if (PCPU_GET(cpuid) == 0) {
		xen_kernel_listens = false;
		fill_hypercall_page();
		if (!map_shared_info())
			panic("Xen: the shared info page is gone");
		mask_events();
		CPU_FOREACH(cpu)
			DPCPU_ID_SET(cpu, vcpu_info, NULL);
	}
	DPCPU_SET(vcpu_info, register_vcpu_info());
	if (PCPU_GET(cpuid) == 0) {
		xen_clock_resume();
		xen_console_resume();
	}
}

void
xen_kernel_cpu_init(void)
{
	if (!xen_guest())
		return;
	PCPU_SET(vcpu_id, vcpu_id());
	DPCPU_SET(vcpu_info, register_vcpu_info());
	xen_kernel_upcall();
}

bool
xen_tsc_reliable(void)
{
	u_int regs[4];

	if (hv_high < hv_base + LEAF_TIME)
		return (false);
	cpuid_count(hv_base + LEAF_TIME, 0, regs);
	return ((regs[0] & (TIME_TSC_EMULATED | TIME_TSC_RELIABLE)) != 0);
}

void
xen_start_cpu(u_int apic_id, char *stack, void *entry, void *arg)
{
	static struct vcpu_hvm_context context;
	u_int vcpu = apic_id / 2;
	long error;

	context = (struct vcpu_hvm_context){
		.mode = VCPU_HVM_MODE_64B,
		.cpu_regs.x86_64 = {
			/* As after a call, which the alignment of the stack tells from a jump. */
			.rsp = (uintptr_t)stack - sizeof(register_t),
			.rip = (uintptr_t)entry,
			.rdi = (uintptr_t)arg,
			.cr0 = CR0_PE | CR0_PG | CR0_WP,
			.cr3 = KPML4phys,
			.cr4 = CR4_PAE,
			.efer = EFER_LME | EFER_LMA | EFER_NXE,
		},
	};
	error = xen_kernel_call(__HYPERVISOR_vcpu_op, VCPUOP_initialise, vcpu, (u_long)&context);
	if (error == 0)
		error = xen_kernel_call(__HYPERVISOR_vcpu_op, VCPUOP_up, vcpu, 0);
	if (error != 0)
		panic("Xen does not start vCPU %u (error %ld)", vcpu, error);
}

/* SCHEDOP_poll of no channel is a sleep until a time. */
void
xen_sleep_ns(uint64_t ns)
{
	struct sched_poll poll = { .nr_ports = 0, .timeout = xen_system_ns() + ns };

	(void)xen_kernel_call(__HYPERVISOR_sched_op, SCHEDOP_poll, (u_long)&poll, 0);
}

void
xen_shutdown(u_int reason)
{
	struct sched_shutdown arg = { .reason = reason };

	xen_console_drain();
	(void)xen_kernel_call(__HYPERVISOR_sched_op, SCHEDOP_shutdown, (u_long)&arg, 0);
}

/* A halted domain would stay for ever, as it has no keyboard: it is powered off. */
static void
xen_poweroff(void *junk __unused, int howto)
{
	if (howto & RB_HALT)
		printf("The operating system has halted.\n");
	if (howto & (RB_POWEROFF | RB_HALT))
		xen_shutdown(SHUTDOWN_poweroff);
}

static void
xen_cpu0(void *dummy __unused)
{
	if (!xen_guest())
		return;
	xen_kernel_cpu_init();
	cpu_ops.cpu_resume = xen_kernel_resume;
	/* Before ACPI's, which Xen gives a PVH guest only to be complete. */
	EVENTHANDLER_REGISTER(shutdown_final, xen_poweroff, NULL, SHUTDOWN_PRI_LAST - 1);
}
SYSINIT(xen_cpu0, SI_SUB_CPU, SI_ORDER_THIRD, xen_cpu0, NULL);
