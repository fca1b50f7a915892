/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Bringing up the other processors.
 *
 * The MADT names them (cpu_mp_setmaxid()); processor 0 is the one that we started on, the others
 * are numbered in the order of the table.  cpu_mp_start() prepares what each needs: per-CPU data,
 * stacks.  They are started only when they can take part (release_aps(), SI_SUB_SMP), so that
 * none has to spin meanwhile: one after the other gets INIT and STARTUP (SDM 3A, 9.4.4), comes
 * through mpboot.S to init_secondary_entry(), and enters the scheduler.  Xen starts a processor
 * at the address that xen_start_cpu() gives, already in long mode.
 *
 *	first processor		the new one
 *	INIT, STARTUP
 *	wait for ap_ready	set itself up, ap_ready = 1
 *	... the next one	wait for smp_started
 *	smp_started = 1		enter the scheduler
 *
 * Suspend.  The other processors stop in cpususpend_handler(), and lose their registers when the
 * machine sleeps.  On waking they are started again in the same way, but go on where they stopped;
 * the first processor itself comes from the firmware through the same trampoline.
 * QEMU, where it has loaded the kernel, loads it again at each reset, and waking up is one: so the
 * kernel's data is kept aside, and put back before the kernel is entered.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/cons.h>
#include <sys/cpuset.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/timetc.h>
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
#include <machine/pcb.h>
#include <machine/smp.h>
#include <machine/specialreg.h>
#include <machine/vmparam.h>

#include <x86/apicreg.h>
#include <x86/apicvar.h>
#include <amd64/amd64/boot_tree.h>
#include <x86/x86/apic_tree.h>
#include <x86/xen/xen_kernel_tree.h>

void	init_secondary_entry(struct pcpu *pc);

int	mp_naps;

/* The place of the trampoline: memory below 1 MB without firmware tables. */
#define	TRAMPOLINE	0x8000
#define	AP_PATIENCE	10000000	/* microseconds until a processor counts as dead */
#define	AP_RETRY	200000		/* microseconds until it is started again */

/* mpboot.S */
extern char mptramp_end[], mptramp_stack[], mptramp_arg[], mptramp_restore[];

/* The linker: where the kernel's own data, initialised and not, begins and ends. */
extern char brwsection[], ksyms_start[];

static volatile int ap_entered;		/* it has come through the trampoline */
static volatile int ap_ready;
static char *ap_ist[MAXCPU];
static struct pcb *susppcbs;		/* an array, while the machine is suspended */

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
	if (!madt_foreach_cpu(add_cpu))
		(void)mptable_foreach_cpu(add_cpu);
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
 * First C function of a processor, with interrupts off, on its own stack.
 */
void
init_secondary_entry(struct pcpu *pc)
{
	load_cr3(KPML4phys);
	ap_entered = 1;
	if (susppcbs != NULL)
		cpu_reload_tables(pc);
	else
		cpu_load_tables(pc, ap_ist[pc->pc_cpuid]);
	initializecpu();
	pmap_init_pat();
	if (susppcbs != NULL)
		resumectx(&susppcbs[pc->pc_cpuid]);
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

static void
trampoline_free(vm_page_t m)
{
	int i;

	for (i = 0; i < 3; i++) {
		vm_page_unwire_noq(&m[i]);
		vm_page_free(&m[i]);
	}
}

static uint64_t *
trampoline_word(const char *word)
{
	return ((uint64_t *)(PHYS_TO_DMAP(TRAMPOLINE) + (word - mptramp_start)));
}

/* Make the trampoline one for this processor; stack is the end of its stack. */
static void
trampoline_set(u_int cpu, vm_paddr_t tables, char *stack)
{
	memcpy((char *)PHYS_TO_DMAP(TRAMPOLINE), mptramp_start, mptramp_end - mptramp_start);
	*trampoline_word((char *)&mptramp_pagetables) = tables;
	*trampoline_word(mptramp_stack) = (uint64_t)stack;
	*trampoline_word(mptramp_arg) = (uint64_t)&__pcpu[cpu];
}

/* Have it put the kernel's data back as it is now. */
static void
trampoline_keep_data(char *copy, size_t size)
{
	uint64_t *restore = trampoline_word(mptramp_restore);

	restore[0] = size;
	restore[1] = (uint64_t)brwsection;
	restore[2] = (uint64_t)copy;
	memcpy(copy, brwsection, size);
}

/* Start a processor in the trampoline (SDM volume 3, 9.4.4). */
static void
start_by_ipi(u_int cpu)
{
	u_int id = cpu_apic_ids[cpu];
	int i;

	lapic_ipi_raw(APIC_DEST_DESTFLD | APIC_TRIGMOD_EDGE | APIC_LEVEL_ASSERT |
	    APIC_DESTMODE_PHY | APIC_DELMODE_INIT, id);
	lapic_ipi_wait(100);
	/* A real processor needs 10 ms after INIT, an emulated one none. */
	DELAY(vm_guest == VM_GUEST_NO ? 10000 : 100);
	for (i = 0; i < 2 && !ap_entered; i++) {
		lapic_ipi_raw(APIC_DEST_DESTFLD | APIC_TRIGMOD_EDGE | APIC_LEVEL_ASSERT |
		    APIC_DESTMODE_PHY | APIC_DELMODE_STARTUP | TRAMPOLINE >> PAGE_SHIFT, id);
		lapic_ipi_wait(100);
		DELAY(200);
	}
}

/*
 * One that does not come is sent for again.  QEMU keeps a STARTUP that a processor has not had yet
 * across INIT, and then takes no other: where firmware sent it on a wake-up, and the processor's
 * turn on a busy host comes only now, it starts where firmware wanted it.
 */
static void
start_ap(u_int cpu, vm_paddr_t tables, char *stack)
{
	int i;

	stack += KSTACK_PAGES * PAGE_SIZE;
	ap_entered = ap_ready = 0;
	if (xen_guest())
		xen_start_cpu(cpu_apic_ids[cpu], stack, init_secondary_entry, &__pcpu[cpu]);
	else
		trampoline_set(cpu, tables, stack);
	for (i = 0; i < AP_PATIENCE / 10 && !ap_ready; i++) {
		if (i % (AP_RETRY / 10) == 0 && !ap_entered && !xen_guest())
			start_by_ipi(cpu);
		DELAY(10);
	}
	if (!ap_ready)
		panic("cpu%u (APIC ID %u) does not start", cpu, cpu_apic_ids[cpu]);
}

static void
release_aps(void *dummy __unused)
{
	vm_paddr_t tables = 0;
	vm_page_t m = NULL;
	u_int cpu;

	if (mp_ncpus == 1)
		return;
	if (!xen_guest()) {
		if (!trampoline_ok())
			panic("no memory at %#x to start processors with", TRAMPOLINE);
		m = trampoline_tables();
		tables = VM_PAGE_TO_PHYS(m);
	}
	for (cpu = 1; cpu <= mp_maxid; cpu++)
		start_ap(cpu, tables, kmem_malloc(KSTACK_PAGES * PAGE_SIZE, M_WAITOK | M_ZERO));
	smp_cpus = mp_ncpus;
	atomic_store_rel_int(&smp_started, 1);
	if (m != NULL)
		trampoline_free(m);
}
SYSINIT(start_aps, SI_SUB_SMP, SI_ORDER_FIRST, release_aps, NULL);

/* What had been sent to this processor, and not arrived, was lost with the local APIC's state. */
static void
resend_ipis(void)
{
	if (PCPU_GET(ipi_bitmap) != 0)
		lapic_ipi_vectored(IPI_BITMAP_VECTOR, APIC_IPI_DEST_SELF);
}

/* IPI_SUSPEND, with interrupts off: stop here, and go on after the machine's sleep. */
void
cpususpend_handler(void)
{
	u_int cpu = PCPU_GET(cpuid);

	suspendclock();
	if (savectx(&susppcbs[cpu]) == 0) {
		CPU_SET_ATOMIC(cpu, &suspended_cpus);
		/* Until the sleep takes the registers away, or it does not come. */
		while (!CPU_ISSET(cpu, &started_cpus)) {
			invlop_handler();
			cpu_spinwait();
		}
		CPU_CLR_ATOMIC(cpu, &started_cpus);
	} else {
		lapic_setup(0);
		ap_ready = 1;
		resend_ipis();
	}
	resumeclock();
	CPU_CLR_ATOMIC(cpu, &suspended_cpus);
}

/* Stop all the others; interrupts are off. */
static void
suspend_others(void)
{
	cpuset_t others = all_cpus;

	CPU_CLR(0, &others);
	if (CPU_EMPTY(&others))
		return;
	ipi_selected(others, IPI_SUSPEND);
	while (CPU_CMP(&others, __DEVOLATILE(cpuset_t *, &suspended_cpus)) != 0) {
		invlop_handler();
		cpu_spinwait();
	}
}

static void
resume_others(bool slept, vm_paddr_t tables, char *stack)
{
	u_int cpu;

	for (cpu = 1; cpu <= mp_maxid; cpu++) {
		if (slept)
			start_ap(cpu, tables, stack);
		else
			CPU_SET_ATOMIC(cpu, &started_cpus);
		/* They share the stack, and each leaves it by resumectx(). */
		while (CPU_ISSET(cpu, &suspended_cpus))
			cpu_spinwait();
	}
}

int
cpu_sleep(int (*sleep)(vm_paddr_t waking, void *arg), void *arg)
{
	size_t size = ksyms_start - brwsection;
	vm_page_t m;
	char *copy, *stack;
	int error;

	KASSERT(curcpu == 0, ("%s: on cpu %d", __func__, curcpu));
	if (!trampoline_ok())
		return (ENXIO);
	m = trampoline_tables();
	stack = kmem_malloc(KSTACK_PAGES * PAGE_SIZE, M_WAITOK | M_ZERO);
	copy = kmem_malloc(round_page(size), M_WAITOK);
	susppcbs = mallocarray(mp_ncpus, sizeof(*susppcbs), M_DEVBUF, M_WAITOK | M_ZERO);

	/* Not while a CPU waits for an answer of all. */
	while (mtx_trylock_spin(&smp_ipi_mtx) == 0)
		cpu_spinwait();
	suspend_others();
	suspendclock();
	/* The counter may wrap meanwhile: time goes on from here. */
	tc_ticktock(1);
	if (savectx(&susppcbs[0]) == 0) {
		trampoline_set(0, VM_PAGE_TO_PHYS(m), stack + KSTACK_PAGES * PAGE_SIZE);
		trampoline_keep_data(copy, size);
		wbinvd();
		error = sleep(TRAMPOLINE, arg);
	} else {
		lapic_setup(1);
		intr_resume(false);
		cnresume();
		resend_ipis();
		error = 0;
	}
	tc_ticktock(1);
	resume_others(error == 0, VM_PAGE_TO_PHYS(m), stack);
	resumeclock();
	mtx_unlock_spin(&smp_ipi_mtx);

	free(susppcbs, M_DEVBUF);
	susppcbs = NULL;
	kmem_free(copy, round_page(size));
	kmem_free(stack, KSTACK_PAGES * PAGE_SIZE);
	trampoline_free(m);
	return (error);
}

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
