/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Idling, halting, resetting and turning off.
 *
 * Power-off writes SLP_TYP of \_S5 with SLP_EN to the PM1 control register (ACPI 6.5, 4.8.3.2.1),
 * or to the sleep control register of a hardware-reduced machine (4.8.3.7).  The two numbers of
 * \_S5 are taken from the byte code of the DSDT, which gives them as a constant package; there is
 * no interpreter.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/reboot.h>
#include <sys/sched.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/clock.h>
#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/segments.h>
#include <machine/vmparam.h>

#include <kern/panic_exit.h>
#include <x86/x86/acpi_tables.h>
#include <x86/x86/apic_private.h>
#include <x86/xen/xen_kernel.h>
#include <xen/sched.h>

/* QEMU: -device isa-debug-exit,iobase=0x501,iosize=4; a write of v ends it with status 2v + 1. */
#define	DEBUG_EXIT_PORT		0x501
#define	DEBUG_EXIT_PANIC	0x3e

#define	PM1_SLP_TYP_SHIFT	10
#define	PM1_SLP_TYP_MASK	(7 << PM1_SLP_TYP_SHIFT)
#define	PM1_SLP_EN		(1 << 13)
#define	SLEEP_CTL_TYP_SHIFT	2
#define	SLEEP_CTL_EN		(1 << 5)

/* AML (ACPI 6.5, 20.2). */
#define	AML_NAME_OP	0x08
#define	AML_PACKAGE_OP	0x12
#define	AML_ZERO_OP	0x00
#define	AML_ONE_OP	0x01
#define	AML_BYTE_PREFIX	0x0a
#define	AML_WORD_PREFIX	0x0b
#define	AML_DWORD_PREFIX 0x0c

#define	RESET_CTL_PORT	0xcf9		/* chipset reset control */
#define	KBC_COMMAND_PORT 0x64
#define	KBC_PULSE_RESET	0xfe

static struct acpi_fadt fadt;
static bool have_fadt;
static uint8_t s5_typ_a, s5_typ_b;
static bool have_s5;

void (*cpu_idle_hook)(sbintime_t);
struct cpu_ops cpu_ops = { .cpu_init = NULL, .cpu_resume = NULL };

/*
 * Nothing is to do on this processor: sleep until there is.  busy: for one interrupt only, and
 * don't bother with the clock, as it won't be long.
 *
 * Interrupts that bring no work, such as the clock's, don't end the sleep, since
 * cpu_activeclock() would make the clock tick again.  An IPI does: the scheduler has taken this
 * processor for awake when it sent one, even if another one got the work since.
 *
 * The check for work is made with interrupts off, and sti takes effect only after the hlt behind
 * it has begun (SDM 2B, STI): an interrupt that makes a thread runnable after the check ends the
 * hlt.
 */
void
cpu_idle(int busy)
{
	struct thread *td = curthread;
	int *state = &PCPU_PTR(monitorbuf)->idle_state;

	if (!busy) {
		critical_enter();
		cpu_idleclock();
	}
	atomic_store_int(state, IDLE_SLEEPING);
	for (;;) {
		disable_intr();
		if (sched_runnable() || td->td_owepreempt ||
		    atomic_load_int(state) != IDLE_SLEEPING)
			break;
		__asm __volatile("sti; hlt" ::: "memory");
		if (busy)
			break;
	}
	enable_intr();
	atomic_store_int(state, IDLE_RUNNING);
	if (!busy) {
		cpu_activeclock();
		critical_exit();
	}
}

/* A halted processor can be woken by an interrupt only: the caller must send one. */
int
cpu_idle_wakeup(int cpu __unused)
{
	return (0);
}

void
cpu_halt(void)
{
	disable_intr();
	for (;;)
		halt();
}

void
cpu_lock_delay(void)
{
	DELAY(1);
}

void
cpu_panic_exit(void)
{
	if (xen_guest())
		xen_shutdown(SHUTDOWN_crash);
	outl(DEBUG_EXIT_PORT, DEBUG_EXIT_PANIC);
	cpu_halt();
	__unreachable();
}

static void
gas_write(const struct acpi_gas *reg, uint8_t value)
{
	if (reg->address == 0)
		return;
	switch (reg->space) {
	case GAS_IO:
		outb(reg->address, value);
		break;
	case GAS_MEMORY:
		/* Such registers are below 4 GB, where the direct map has everything. */
		if (PHYS_IN_DMAP(reg->address))
			*(volatile uint8_t *)PHYS_TO_DMAP(reg->address) = value;
		break;
	}
}

/* Each way in turn: a machine ignores those that it has not. */
void
cpu_reset(void)
{
	struct region_descriptor null_idt = { .rd_limit = 0, .rd_base = 0 };

	disable_intr();
	if (xen_guest())
		xen_shutdown(SHUTDOWN_reboot);
	if (have_fadt && (fadt.flags & FADT_RESET_REG_SUP)) {
		gas_write(&fadt.reset_reg, fadt.reset_value);
		DELAY(50000);
	}
	outb(RESET_CTL_PORT, 0x02);
	outb(RESET_CTL_PORT, 0x06);
	DELAY(50000);
	outb(KBC_COMMAND_PORT, KBC_PULSE_RESET);
	DELAY(50000);
	/* An exception that can't be delivered, three times over, resets the processor. */
	lidt(&null_idt);
	breakpoint();
	cpu_halt();
}

/* Decode a constant integer; returns the byte behind it, or NULL if it is none. */
static const uint8_t *
aml_integer(const uint8_t *p, const uint8_t *end, uint8_t *value)
{
	static const uint8_t width[] = { 1, 2, 4 };
	u_int n;

	if (p >= end)
		return (NULL);
	switch (*p) {
	case AML_ZERO_OP:
	case AML_ONE_OP:
		*value = *p;
		return (p + 1);
	case AML_BYTE_PREFIX:
	case AML_WORD_PREFIX:
	case AML_DWORD_PREFIX:
		n = width[*p - AML_BYTE_PREFIX];
		if (p + n >= end)
			return (NULL);
		*value = p[1];
		return (p + 1 + n);
	default:
		return (NULL);
	}
}

/*
 * Find Name(_S5, Package() { SLP_TYPa, SLP_TYPb, ... }) in the DSDT.
 */
static bool
find_s5(const struct acpi_table *dsdt)
{
	const uint8_t *p = (const uint8_t *)(dsdt + 1), *q;
	const uint8_t *end = (const uint8_t *)dsdt + dsdt->length;

	for (; p + 8 <= end; p++) {
		if (memcmp(p, "_S5_", 4) != 0 ||
		    !(p[-1] == AML_NAME_OP || (p[-1] == '\\' && p[-2] == AML_NAME_OP)) ||
		    p[4] != AML_PACKAGE_OP)
			continue;
		q = p + 5;
		q += (*q >> 6) + 1;		/* PkgLength says in its top bits how long it is */
		q++;				/* NumElements */
		q = aml_integer(q, end, &s5_typ_a);
		if (q != NULL)
			q = aml_integer(q, end, &s5_typ_b);
		return (q != NULL);
	}
	return (false);
}

static void
pm1_sleep(uint32_t port, uint8_t typ)
{
	uint16_t value;

	if (port == 0)
		return;
	value = inw(port) & ~PM1_SLP_TYP_MASK;
	outw(port, value | typ << PM1_SLP_TYP_SHIFT | PM1_SLP_EN);
}

static void
acpi_poweroff(void *junk __unused, int howto)
{
	if ((howto & RB_POWEROFF) == 0 || !have_s5)
		return;
	disable_intr();
	if (fadt.flags & FADT_HW_REDUCED)
		gas_write(&fadt.sleep_control, s5_typ_a << SLEEP_CTL_TYP_SHIFT | SLEEP_CTL_EN);
	else {
		pm1_sleep(fadt.pm1a_cnt, s5_typ_a);
		pm1_sleep(fadt.pm1b_cnt, s5_typ_b);
	}
	DELAY(1000000);
	printf("ACPI power-off failed\n");
}

static void
power_init(void *dummy __unused)
{
	const struct acpi_table *dsdt;

	have_fadt = acpi_fadt(&fadt);
	if (!have_fadt)
		return;
	dsdt = acpi_map_table(fadt.dsdt);
	have_s5 = dsdt != NULL && find_s5(dsdt);
	EVENTHANDLER_REGISTER(shutdown_final, acpi_poweroff, NULL, SHUTDOWN_PRI_LAST);
}
SYSINIT(power, SI_SUB_CONFIGURE, SI_ORDER_FIRST, power_init, NULL);
