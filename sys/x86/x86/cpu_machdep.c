/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Idling, halting and resetting.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
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

#include <kern/panic_exit_tree.h>
#include <kern/sched_tree.h>
#include <x86/x86/acpi_tables_tree.h>
#include <x86/x86/apic_tree.h>
#include <x86/xen/xen_kernel_tree.h>
#include <xen/sched.h>

/* QEMU: -device isa-debug-exit,iobase=0x501,iosize=4; a write of v ends it with status 2v + 1. */
#define	DEBUG_EXIT_PORT		0x501
#define	DEBUG_EXIT_PANIC	0x3e

#define	RESET_CTL_PORT	0xcf9		/* chipset reset control */
#define	KBC_COMMAND_PORT 0x64
#define	KBC_PULSE_RESET	0xfe

void (*cpu_idle_hook)(sbintime_t);
struct cpu_ops cpu_ops = { .cpu_init = NULL, .cpu_resume = NULL };

/*
 * Nothing is to do on this processor: sleep until there is.  busy: for one interrupt only, and
 * don't bother with the clock, as it won't be long.
 *
 * Interrupts that bring no work, such as the clock's, don't end the sleep, since
 * cpu_activeclock() would make the clock tick again.  An IPI of the scheduler does, even if another
 * processor got the work since (sched_may_halt()).
 *
 * The check for work is made with interrupts off: one that makes a thread runnable after it ends
 * cpu_idle_wait().
 */
void
cpu_idle(int busy)
{
	if (!busy) {
		critical_enter();
		cpu_idleclock();
	}
	for (;;) {
		disable_intr();
		if (!sched_may_halt())
			break;
		cpu_idle_wait();
		if (busy)
			break;
	}
	enable_intr();
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

/* Each way in turn: a machine ignores those that it has not. */
void
cpu_reset(void)
{
	struct region_descriptor null_idt = { .rd_limit = 0, .rd_base = 0 };

	disable_intr();
	if (xen_guest())
		xen_shutdown(SHUTDOWN_reboot);
	acpi_reset();
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
