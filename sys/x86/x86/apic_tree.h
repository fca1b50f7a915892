/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Between the files of the local APIC, the I/O APICs and the processors.
 *
 * Not FreeBSD's: <x86/apicvar.h> declares what is; how interrupts move and a machine sleeps is
 * different here.
 */

#ifndef _X86_APIC_TREE_H_
#define	_X86_APIC_TREE_H_

/* A register of this processor's local APIC, by its number in enum LAPIC_REGISTERS. */
uint32_t lapic_read(u_int reg);
void	lapic_write(u_int reg, uint32_t value);

/*
 * A vector that an interrupt was delivered to before it moved.  A message may still be on its way
 * there, and an edge that is dropped never comes again: so the vector stays until the next move.
 */
struct apic_stale {
	u_int	apic_id;
	u_int	vector;		/* 0: none */
};

/* Free what s holds, if anything, and keep the given vector of irq (0: none) in its place. */
void	apic_retire_vector(struct apic_stale *s, u_int apic_id, u_int vector, u_int irq);

/* This processor's local APIC has been reset: its timer has lost its mode (lapic_timer.c). */
void	lapic_timer_forget(void);

/* An IPI has arrived and was acknowledged (mp_machdep.c). */
void	ipi_handle(u_int vector, struct trapframe *frame);

/*
 * Make the machine lose all but its memory, and go on behind that (mp_machdep.c).  On processor 0;
 * all others stand still meanwhile, and no interrupt comes.
 *
 * sleep(waking, arg)  puts the machine to sleep; firmware is to enter at waking, in real mode.
 *                     If it returns, that failed: an errno value.
 *
 * Returns 0, or that error; ENXIO if there is no memory below 1 MB to wake up in.
 */
int	cpu_sleep(int (*sleep)(vm_paddr_t waking, void *arg), void *arg);

/* The interrupt controllers' part of the MADT (madt.c). */
vm_paddr_t madt_lapic_address(void);
void	madt_setup_io(void);

/* Call fn(apic_id) for each usable processor of the MADT; false when there is no MADT. */
bool	madt_foreach_cpu(void (*fn)(u_int apic_id));

/*
 * The MP table (mptable.c), which says less than a MADT, where there is none.  False: there is none
 * either.
 *
 * Processors that are usable; I/O APICs; and where an ISA interrupt is connected to, with the flags
 * that a MADT's override has (MPS INTI flags).
 */
bool	mptable_foreach_cpu(void (*fn)(u_int apic_id));
bool	mptable_foreach_ioapic(void (*fn)(vm_paddr_t address, u_int id));
bool	mptable_foreach_isa(void (*fn)(u_int irq, u_int ioapic_id, u_int pin, u_int flags));

/* Create the array of interrupt sources for IRQs below num_io_irqs + num_msi_irqs. */
void	intr_init_sources(void);

#endif /* !_X86_APIC_TREE_H_ */
