/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Inter-processor interrupts: sending them, and what each does on arrival.
 *
 * The interrupts that only want a processor's attention (IPI_AST, IPI_PREEMPT, IPI_HARDCLOCK) share
 * one vector: a bit each in pc_ipi_bitmap says what for, and the interrupt is sent only by the one
 * who sets the first bit.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/cpuset.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/frame.h>
#include <machine/md_var.h>
#include <machine/pcb.h>
#include <machine/smp.h>

#include <x86/apicvar.h>
#include <x86/x86/apic_tree.h>

int	cpu_apic_ids[MAXCPU];
int	boot_cpu_id = -1;

/* Processors that are to stop when their NMI arrives. */
static volatile cpuset_t ipi_stop_nmi_pending;

static void
ipi_send_cpu(int cpu, u_int ipi)
{
	u_int bit, old;

	if (IPI_IS_BITMAPED(ipi)) {
		bit = 1 << ipi;
		do {
			old = cpuid_to_pcpu[cpu]->pc_ipi_bitmap;
		} while (!atomic_cmpset_int(&cpuid_to_pcpu[cpu]->pc_ipi_bitmap, old, old | bit));
		if (old != 0)
			return;
		ipi = IPI_BITMAP_VECTOR;
	}
	lapic_ipi_vectored(ipi, cpu_apic_ids[cpu]);
}

void
ipi_cpu(int cpu, u_int ipi)
{
	if (ipi == IPI_STOP_HARD)
		CPU_SET_ATOMIC(cpu, &ipi_stop_nmi_pending);
	ipi_send_cpu(cpu, ipi);
}

void
ipi_selected(cpuset_t cpus, u_int ipi)
{
	int cpu;

	if (ipi == IPI_STOP_HARD)
		CPU_OR_ATOMIC(&ipi_stop_nmi_pending, &cpus);
	CPU_FOREACH(cpu) {
		if (CPU_ISSET(cpu, &cpus))
			ipi_send_cpu(cpu, ipi);
	}
}

void
ipi_all_but_self(u_int ipi)
{
	cpuset_t others = all_cpus;

	CPU_CLR(PCPU_GET(cpuid), &others);
	if (IPI_IS_BITMAPED(ipi)) {
		ipi_selected(others, ipi);
		return;
	}
	if (ipi == IPI_STOP_HARD)
		CPU_OR_ATOMIC(&ipi_stop_nmi_pending, &others);
	lapic_ipi_vectored(ipi, APIC_IPI_DEST_OTHERS);
}

/* An NMI has come: 0 if it was to stop this processor, and it has been started again. */
int
ipi_nmi_handler(void)
{
	u_int cpu = PCPU_GET(cpuid);

	if (!CPU_ISSET(cpu, &ipi_stop_nmi_pending))
		return (1);
	CPU_CLR_ATOMIC(cpu, &ipi_stop_nmi_pending);
	cpustop_handler();
	return (0);
}

/* Stay here until somebody starts this processor again. */
void
cpustop_handler(void)
{
	u_int cpu = PCPU_GET(cpuid);

	if (stoppcbs != NULL)
		savectx(&stoppcbs[cpu]);
	CPU_SET_ATOMIC(cpu, &stopped_cpus);
	while (!CPU_ISSET(cpu, &started_cpus)) {
		/* A panic ends in a halt: don't keep the host busy. */
		if (SCHEDULER_STOPPED())
			halt();
		cpu_spinwait();
	}
	CPU_CLR_ATOMIC(cpu, &started_cpus);
	CPU_CLR_ATOMIC(cpu, &stopped_cpus);
}

static void
ipi_bitmap(struct trapframe *frame)
{
	struct thread *td = curthread;
	struct trapframe *oldframe;
	u_int bits = atomic_readandclear_int(PCPU_PTR(ipi_bitmap));

	critical_enter();
	td->td_intr_nesting_level++;
	oldframe = td->td_intr_frame;
	td->td_intr_frame = frame;
	/* IPI_AST is there to end a hlt only. */
	if (bits & (1 << IPI_PREEMPT))
		sched_preempt(td);
	if (bits & (1 << IPI_HARDCLOCK))
		hardclockintr();
	td->td_intr_frame = oldframe;
	td->td_intr_nesting_level--;
	critical_exit();
}

void
ipi_handle(u_int vector, struct trapframe *frame)
{
	switch (vector) {
	case IPI_RENDEZVOUS:
		smp_rendezvous_action();
		break;
	case IPI_INVLOP:
		invlop_handler();
		break;
	case IPI_BITMAP_VECTOR:
		ipi_bitmap(frame);
		break;
	case IPI_STOP:
		cpustop_handler();
		break;
	case IPI_SUSPEND:
		cpususpend_handler();
		break;
	default:
		printf("CPU%d: unexpected IPI %#x\n", PCPU_GET(cpuid), vector);
		break;
	}
}
