/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Bringing up the other processors.
 *
 * The MADT names them (cpu_mp_setmaxid()); processor 0 is the one that we started on, the others
 * are numbered in the order of the table.  cpu_mp_start() prepares what each needs: per-CPU data,
 * stacks.  They are started only when they can take part (release_aps(), SI_SUB_SMP), so that
 * none has to spin meanwhile: one after the other gets INIT and STARTUP (SDM 3A, 9.4.4), comes
 * through mpboot.S to init_secondary_entry(), and enters the scheduler.  Xen starts a processor
 * where it is told to (xen_start_cpu()), without the climb.
 *
 *	first processor		the new one
 *	INIT, STARTUP
 *	wait for ap_ready	set itself up, ap_ready = 1
 *	... the next one	wait for smp_started
 *	smp_started = 1		enter the scheduler
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/cpuset.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_extern.h>
#include <vm/vm_kern.h>
#include <vm/vm_page.h>
#include <vm/vm_dumpset.h>
#include <vm/pmap.h>

#include <machine/clock.h>
#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/smp.h>
#include <machine/specialreg.h>
#include <machine/vmparam.h>

#include <x86/apicreg.h>
#include <x86/apicvar.h>
#include <amd64/amd64/boot.h>
#include <x86/x86/apic_private.h>
#include <x86/xen/xen_kernel.h>

void	init_secondary_entry(struct pcpu *pc);

int	mp_naps;

/* Where the trampoline goes: memory below 1 MB that no firmware table lies in. */
#define	TRAMPOLINE	0x8000
#define	AP_PATIENCE	5000000		/* microseconds until a processor counts as dead */

/* mpboot.S */
extern char mptramp_end[], mptramp_stack[], mptramp_arg[];

static volatile int ap_ready;
static char *ap_ist[MAXCPU];

/* The local APIC ID of this processor, before its registers are mapped. */
static u_int
cpuid_apic_id(void)
{
	u_int regs[4];

	do_cpuid(1, regs);
	return (regs[1] >> 24);
}

static void
add_cpu(u_int apic_id)
{
	if ((int)apic_id == boot_cpu_id)
		return;
	if (mp_ncpus == MAXCPU) {
		printf("SMP: more than %d processors; the one with APIC ID %u stays off\n", MAXCPU,
		    apic_id);
		return;
	}
	if (!x2apic_mode && apic_id > xAPIC_MAX_APIC_ID)
		return;
	cpu_apic_ids[mp_ncpus++] = apic_id;
}

/* Count the processors; called before there is memory. */
void
cpu_mp_setmaxid(void)
{
	int i;

	for (i = 0; i < MAXCPU; i++)
		cpu_apic_ids[i] = -1;
	boot_cpu_id = cpuid_apic_id();
	cpu_apic_ids[0] = boot_cpu_id;
	PCPU_SET(apic_id, boot_cpu_id);
	mp_ncpus = 1;
	madt_foreach_cpu(add_cpu);
	mp_maxid = mp_ncpus - 1;
	CPU_SETOF(0, &all_cpus);
}

int
cpu_mp_probe(void)
{
	return (mp_ncpus > 1);
}


void
cpu_mp_start(void)
{
	struct pcpu *pc;
	u_int cpu;

	for (cpu = 1; cpu <= mp_maxid; cpu++) {
		pc = &__pcpu[cpu];
		pcpu_init(pc, cpu, sizeof(struct pcpu));
		pc->pc_apic_id = cpu_apic_ids[cpu];
		dpcpu_init(kmem_malloc(DPCPU_SIZE, M_WAITOK | M_ZERO), cpu);
		ap_ist[cpu] = kmem_malloc(IST_STACKS * IST_STACK_SIZE, M_WAITOK | M_ZERO);
		CPU_SET(cpu, &all_cpus);
	}
	mp_naps = mp_maxid;
	mp_ncores = mp_ncpus;
}

void
cpu_mp_announce(void)
{
	u_int i;

	for (i = 0; i <= mp_maxid; i++)
		printf(" cpu%u%s: APIC ID: %2d\n", i, i == 0 ? " (BSP)" : " (AP)", cpu_apic_ids[i]);
}

/*
 * First C function of another processor, with interrupts off, on its own stack.
 */
void
init_secondary_entry(struct pcpu *pc)
{
	load_cr3(KPML4phys);
	cpu_load_tables(pc, ap_ist[pc->pc_cpuid]);
	initializecpu();
	pmap_init_pat();
	PCPU_SET(curthread, PCPU_GET(idlethread));
	PCPU_SET(curpcb, curthread->td_pcb);
	lapic_setup(0);
	xen_kernel_cpu_init();
	schedinit_ap();
	PCPU_SET(switchtime, cpu_ticks());
	PCPU_SET(switchticks, ticks);
	atomic_store_rel_int(&ap_ready, 1);
	while (atomic_load_acq_int(&smp_started) == 0)
		cpu_spinwait();
	invltlb();
	cpu_initclocks_ap();
	sched_ap_entry();
}

/* Is the page for the trampoline memory? */
static bool
trampoline_ok(void)
{
	int i;

	for (i = 0; dump_avail[i + 1] != 0; i += 2) {
		if (dump_avail[i] <= TRAMPOLINE && dump_avail[i + 1] >= TRAMPOLINE + PAGE_SIZE)
			return (true);
	}
	return (false);
}

/*
 * Page tables for the climb to long mode: the kernel's, plus the first 2 MB at their physical
 * address. Only the processor that starts uses them, so the kernel itself never has anything
 * mapped at 0. The top level must be below 4 GB, as %cr3 has 32 bits at that time.
 */
static vm_page_t
trampoline_tables(void)
{
	vm_page_t m = vm_page_alloc_noobj_contig(VM_ALLOC_WIRED | VM_ALLOC_ZERO |
	    VM_ALLOC_WAITOK, 3, 0, 1UL << 32, PAGE_SIZE, 0, VM_MEMATTR_DEFAULT);
	vm_paddr_t pa = VM_PAGE_TO_PHYS(m);
	uint64_t *pml4 = (uint64_t *)PHYS_TO_DMAP(pa);
	uint64_t *pdpt = pml4 + NPML4EPG, *pd = pdpt + NPDPEPG;

	memcpy(pml4, (void *)PHYS_TO_DMAP(KPML4phys), PAGE_SIZE);
	pml4[0] = (pa + PAGE_SIZE) | X86_PG_V | X86_PG_RW;
	pdpt[0] = (pa + 2 * PAGE_SIZE) | X86_PG_V | X86_PG_RW;
	pd[0] = X86_PG_V | X86_PG_RW | X86_PG_PS;
	return (m);
}

/* Start a processor by the trampoline (SDM volume 3, 9.4.4). */
static void
start_by_ipi(u_int cpu, vm_paddr_t tables, char *stack)
{
	char *page = (char *)PHYS_TO_DMAP(TRAMPOLINE);
	u_int id = cpu_apic_ids[cpu];
	int i;

	memcpy(page, mptramp_start, mptramp_end - mptramp_start);
	*(uint64_t *)(page + ((char *)&mptramp_pagetables - mptramp_start)) = tables;
	*(uint64_t *)(page + (mptramp_stack - mptramp_start)) = (uint64_t)stack;
	*(uint64_t *)(page + (mptramp_arg - mptramp_start)) = (uint64_t)&__pcpu[cpu];

	lapic_ipi_raw(APIC_DEST_DESTFLD | APIC_TRIGMOD_EDGE | APIC_LEVEL_ASSERT |
	    APIC_DESTMODE_PHY | APIC_DELMODE_INIT, id);
	lapic_ipi_wait(100);
	/* A real processor needs 10 ms after INIT, an emulated one none. */
	DELAY(vm_guest == VM_GUEST_NO ? 10000 : 100);
	for (i = 0; i < 2 && !ap_ready; i++) {
		lapic_ipi_raw(APIC_DEST_DESTFLD | APIC_TRIGMOD_EDGE | APIC_LEVEL_ASSERT |
		    APIC_DESTMODE_PHY | APIC_DELMODE_STARTUP | TRAMPOLINE >> PAGE_SHIFT, id);
		lapic_ipi_wait(100);
		DELAY(200);
	}
}

static void
start_ap(u_int cpu, vm_paddr_t tables)
{
	char *stack = kmem_malloc(KSTACK_PAGES * PAGE_SIZE, M_WAITOK | M_ZERO);
	int i;

	stack += KSTACK_PAGES * PAGE_SIZE;
	ap_ready = 0;
	if (xen_guest())
		xen_start_cpu(cpu_apic_ids[cpu], stack, init_secondary_entry, &__pcpu[cpu]);
	else
		start_by_ipi(cpu, tables, stack);
	for (i = 0; i < AP_PATIENCE / 10 && !ap_ready; i++)
		DELAY(10);
	if (!ap_ready)
		panic("cpu%u (APIC ID %u) does not start", cpu, cpu_apic_ids[cpu]);
}

static void
release_aps(void *dummy __unused)
{
	vm_paddr_t tables = 0;
	vm_page_t m = NULL;
	u_int cpu;
	int i;

	if (mp_ncpus == 1)
		return;
	if (!xen_guest()) {
		if (!trampoline_ok())
			panic("no memory at %#x to start processors with", TRAMPOLINE);
		m = trampoline_tables();
		tables = VM_PAGE_TO_PHYS(m);
	}
	for (cpu = 1; cpu <= mp_maxid; cpu++)
		start_ap(cpu, tables);
	smp_cpus = mp_ncpus;
	atomic_store_rel_int(&smp_started, 1);
	for (i = 0; m != NULL && i < 3; i++) {
		vm_page_unwire_noq(&m[i]);
		vm_page_free(&m[i]);
	}
}
SYSINIT(start_aps, SI_SUB_SMP, SI_ORDER_FIRST, release_aps, NULL);

/*
 * The local APIC of the first processor; the messages' and pins' turn comes when memory is there.
 */
static void
apic_setup_local(void *dummy __unused)
{
	lapic_init(madt_lapic_address());
	lapic_setup(1);
}
SYSINIT(apic_setup_local, SI_SUB_CPU, SI_ORDER_SECOND, apic_setup_local, NULL);

static void
apic_setup_io(void *dummy __unused)
{
	madt_setup_io();
	msi_init();
}
SYSINIT(apic_setup_io, SI_SUB_INTR, SI_ORDER_THIRD, apic_setup_io, NULL);
