/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The local APIC of each processor: set-up, interrupt vectors, inter-processor interrupts.
 *
 * The vectors are laid out as in x86/apicvar.h: device interrupts from APIC_IO_INTS up, given out
 * per processor, then the timer, the APIC's own interrupts, and IPIs, the same on every
 * processor.  Every vector enters at lapic_handle_intr(), but those of lapic_ipi_alloc(), which
 * bring their own entry.
 *
 * Locking.  icu_lock (spin) protects the vector tables and serialises writers of the I/O APICs.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/clock.h>
#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/frame.h>
#include <machine/intr_machdep.h>
#include <machine/md_var.h>
#include <machine/smp.h>
#include <machine/specialreg.h>

#include <x86/apicreg.h>
#include <x86/apicvar.h>
#include <x86/x86/apic_tree.h>
#include <x86/xen/xen_kernel_tree.h>

/* What a vector of a processor is used for, if not the number of an IRQ. */
#define	VECTOR_FREE	(-1)
#define	VECTOR_RESERVED	(-2)

vm_paddr_t lapic_paddr = DEFAULT_APIC_BASE;
int	x2apic_mode;
int	lapic_eoi_suppression;
u_int	max_apic_id = MAX_APIC_ID;

static volatile uint32_t *lapic_map;
static int vector_irq[MAXCPU][NIDT];

struct mtx icu_lock;
MTX_SYSINIT(icu, &icu_lock, "icu", MTX_SPIN | MTX_NOWITNESS);

/* Stubs of 16 bytes, one a vector: exception.S. */
extern char idt_stubs[];

/*
 * Registers: memory at 16-byte steps, or with x2APIC the MSRs from 0x800 on (SDM 3A, 11.12.1.2).
 */
uint32_t
lapic_read(u_int reg)
{
	if (x2apic_mode)
		return (rdmsr32(MSR_APIC_000 + reg));
	return (lapic_map[reg * LAPIC_MEM_MUL / 4]);
}

void
lapic_write(u_int reg, uint32_t value)
{
	if (x2apic_mode)
		wrmsr(MSR_APIC_000 + reg, value);
	else
		lapic_map[reg * LAPIC_MEM_MUL / 4] = value;
}

bool
lapic_is_x2apic(void)
{
	return (x2apic_mode != 0);
}

int
lapic_id(void)
{
	uint32_t id = lapic_read(LAPIC_ID);

	return (x2apic_mode ? id : id >> APIC_ID_SHIFT);
}

void
lapic_eoi(void)
{
	lapic_write(LAPIC_EOI, 0);
}

/* Is a vector requested but not yet served? */
int
lapic_intr_pending(u_int vector)
{
	return ((lapic_read(LAPIC_IRR0 + vector / 32) & (1u << vector % 32)) != 0);
}

/* Switch this processor to x2APIC if the machine has it: no register is then a trip to memory. */
static void
lapic_enable_x2apic(void)
{
	if (x2apic_mode)
		wrmsr(MSR_APICBASE, rdmsr(MSR_APICBASE) | APICBASE_X2APIC | APICBASE_ENABLED);
}

/* On the first processor, before lapic_setup(): addr is where the registers are. */
void
lapic_init(vm_paddr_t addr)
{
	int cpu, v;

	lapic_paddr = addr;
	lapic_map = pmap_mapdev(addr, PAGE_SIZE);
	if (cpu_feature2 & CPUID2_X2APIC)
		x2apic_mode = 1;
	for (cpu = 0; cpu < MAXCPU; cpu++) {
		for (v = 0; v < NIDT; v++)
			vector_irq[cpu][v] = VECTOR_FREE;
		vector_irq[cpu][IDT_SYSCALL] = VECTOR_RESERVED;
		vector_irq[cpu][IDT_DTRACE_RET] = VECTOR_RESERVED;
		vector_irq[cpu][IDT_EVTCHN] = VECTOR_RESERVED;
	}
}

/*
 * Make this processor's APIC ready: enabled, all local sources masked but NMI on LINT1 and errors.
 */
void
lapic_setup(int boot __unused)
{
	lapic_enable_x2apic();
	lapic_write(LAPIC_TPR, 0);
	lapic_write(LAPIC_LVT_TIMER, APIC_LVTT_M | APIC_TIMER_INT);
	lapic_timer_forget();
	lapic_write(LAPIC_LVT_LINT0, APIC_LVT_M | APIC_LVT_DM_EXTINT);
	lapic_write(LAPIC_LVT_LINT1, APIC_LVT_DM_NMI);
	lapic_write(LAPIC_SVR, APIC_SVR_ENABLE | APIC_SPURIOUS_INT);
	lapic_write(LAPIC_ESR, 0);
	lapic_write(LAPIC_LVT_ERROR, APIC_ERROR_INT);
	lapic_eoi();
}

void
lapic_disable(void)
{
	lapic_write(LAPIC_SVR, APIC_SPURIOUS_INT);
}

/* The processor with this APIC ID; they are known from the MADT (mp_machdep.c). */
u_int
apic_cpuid(u_int apic_id)
{
	u_int i;

	for (i = 0; i < MAXCPU; i++) {
		if (cpu_apic_ids[i] == (int)apic_id)
			return (i);
	}
	panic("no processor has APIC ID %u", apic_id);
}

/*
 * Allocate count vectors with consecutive numbers, the first a multiple of align (a power of two),
 * for irqs[] on a processor.  Returns the first, or 0 when there are none.
 */
u_int
apic_alloc_vectors(u_int apic_id, u_int *irqs, u_int count, u_int align)
{
	int *irq = vector_irq[apic_cpuid(apic_id)];
	u_int first, i;

	mtx_lock_spin(&icu_lock);
	for (first = roundup2(APIC_IO_INTS, align);
	    first + count <= APIC_IO_INTS + APIC_NUM_IOINTS; first += align) {
		for (i = 0; i < count && irq[first + i] == VECTOR_FREE; i++)
			;
		if (i < count)
			continue;
		for (i = 0; i < count; i++)
			irq[first + i] = irqs[i];
		mtx_unlock_spin(&icu_lock);
		return (first);
	}
	mtx_unlock_spin(&icu_lock);
	return (0);
}

u_int
apic_alloc_vector(u_int apic_id, u_int irq)
{
	return (apic_alloc_vectors(apic_id, &irq, 1, 1));
}

void
apic_free_vector(u_int apic_id, u_int vector, u_int irq)
{
	u_int cpu = apic_cpuid(apic_id);

	mtx_lock_spin(&icu_lock);
	KASSERT(vector_irq[cpu][vector] == (int)irq,
	    ("vector %u of cpu %u is IRQ %d, not %u", vector, cpu, vector_irq[cpu][vector], irq));
	vector_irq[cpu][vector] = VECTOR_FREE;
	mtx_unlock_spin(&icu_lock);
}

void
apic_retire_vector(struct apic_stale *s, u_int apic_id, u_int vector, u_int irq)
{
	if (s->vector != 0)
		apic_free_vector(s->apic_id, s->vector, irq);
	s->apic_id = apic_id;
	s->vector = vector;
}

/* Every vector has its entry in the descriptor table all the time. */
void
apic_enable_vector(u_int apic_id __unused, u_int vector __unused)
{
}

void
apic_disable_vector(u_int apic_id __unused, u_int vector __unused)
{
}

/*
 * Inter-processor interrupts.
 */

/* Wait until the last IPI has been sent; delay in microseconds, -1 for ever.  0: not in time. */
int
lapic_ipi_wait(int delay)
{
	if (x2apic_mode)
		return (1);
	while (lapic_read(LAPIC_ICR_LO) & APIC_DELSTAT_PEND) {
		if (delay == 0)
			return (0);
		if (delay > 0)
			delay--;
		DELAY(1);
	}
	return (1);
}

void
lapic_ipi_raw(register_t icrlo, u_int dest)
{
	register_t saved;

	if (x2apic_mode) {
		/* Unlike the memory-mapped register, the MSR does not order stores (11.12.3). */
		mfence();
		lfence();
		wrmsr(MSR_APIC_ICR, (uint64_t)dest << 32 | (uint32_t)icrlo);
		return;
	}
	saved = intr_disable();
	lapic_write(LAPIC_ICR_HI, dest << APIC_ID_SHIFT);
	lapic_write(LAPIC_ICR_LO, icrlo);
	intr_restore(saved);
}

static void
native_ipi_vectored(u_int vector, int dest)
{
	register_t icrlo = APIC_LEVEL_ASSERT | APIC_TRIGMOD_EDGE | APIC_DESTMODE_PHY;
	u_int destfield = 0;

	icrlo |= vector == IPI_STOP_HARD ? APIC_DELMODE_NMI : APIC_DELMODE_FIXED | vector;
	switch (dest) {
	case APIC_IPI_DEST_SELF:
		icrlo |= APIC_DEST_SELF;
		break;
	case APIC_IPI_DEST_ALL:
		icrlo |= APIC_DEST_ALLISELF;
		break;
	case APIC_IPI_DEST_OTHERS:
		icrlo |= APIC_DEST_ALLESELF;
		break;
	default:
		icrlo |= APIC_DEST_DESTFLD;
		destfield = dest;
		break;
	}
	if (!lapic_ipi_wait(1000000))
		panic("APIC: the previous IPI is stuck");
	lapic_ipi_raw(icrlo, destfield);
}
void (*ipi_vectored)(u_int, int) = native_ipi_vectored;

/*
 * Reserve a vector for a handler of its own on all processors.  ipifunc is its entry in the
 * descriptor table, which must build a trapframe, end the interrupt and leave through doreti.
 * -1: none free.
 */
int
lapic_ipi_alloc(inthand_t *ipifunc)
{
	int v;

	mtx_lock_spin(&icu_lock);
	for (v = IPI_DYN_FIRST; v <= IPI_DYN_LAST; v++) {
		if (vector_irq[0][v] == VECTOR_FREE)
			break;
	}
	if (v <= IPI_DYN_LAST) {
		vector_irq[0][v] = VECTOR_RESERVED;
		setidt(v, ipifunc, SDT_SYSIGT, SEL_KPL, 0);
	} else
		v = -1;
	mtx_unlock_spin(&icu_lock);
	return (v);
}

void
lapic_ipi_free(int vector)
{
	KASSERT(vector >= IPI_DYN_FIRST && vector <= IPI_DYN_LAST,
	    ("%s: %d is no IPI vector", __func__, vector));
	mtx_lock_spin(&icu_lock);
	setidt(vector, (alias_for_inthand_t *)(idt_stubs + vector * 16), SDT_SYSIGT, SEL_KPL, 0);
	vector_irq[0][vector] = VECTOR_FREE;
	mtx_unlock_spin(&icu_lock);
}

/*
 * Delivery.
 */
void
lapic_handle_error(void)
{
	uint32_t esr;

	lapic_write(LAPIC_ESR, 0);	/* a write makes the register show what happened */
	esr = lapic_read(LAPIC_ESR);
	printf("CPU%d: local APIC error 0x%x\n", PCPU_GET(cpuid), esr);
	lapic_eoi();
}

static void
lapic_handle_device(int vector, struct trapframe *frame)
{
	struct intsrc *isrc;
	int irq = vector_irq[PCPU_GET(cpuid)][vector];

	isrc = irq >= 0 ? intr_lookup_source(irq) : NULL;
	if (isrc == NULL) {
		/* A late message of an interrupt that was torn down meanwhile. */
		lapic_eoi();
		return;
	}
	intr_execute_handlers(isrc, frame);
}

/* An interrupt, vector 32 or more, with interrupts off. */
void
lapic_handle_intr(int vector, struct trapframe *frame)
{
	switch (vector) {
	case APIC_SPURIOUS_INT:
		return;			/* is not to be acknowledged (SDM 3A, 11.9) */
	case APIC_TIMER_INT:
		lapic_handle_timer(frame);
		return;
	case APIC_ERROR_INT:
		lapic_handle_error();
		return;
	case IDT_EVTCHN:
		xen_handle_upcall(frame);
		return;
	}
	if (vector >= APIC_IPI_INTS) {
		lapic_eoi();
		ipi_handle(vector, frame);
	} else
		lapic_handle_device(vector, frame);
}
