/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * I/O APICs: the interrupt pins of the machine (82093AA data sheet).
 *
 * A pin is an interrupt source whose IRQ is its global system interrupt, except that the MADT may
 * move an ISA IRQ to another pin.  Triggering and polarity are known from the MADT for ISA IRQs;
 * other pins are level, active low, as PCI is, until intr_config_intr() says better.
 *
 * Locking.  icu_lock (spin): the register window, and the fields of pins.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/cpu.h>
#include <machine/intr_machdep.h>

#include <x86/apicreg.h>
#include <x86/apicvar.h>
#include <x86/x86/apic_tree.h>

#define	IRQ_UNUSED	(-5)		/* a pin that another one stands for */
#define	ISA_IRQS	16

struct ioapic_pin {
	struct intsrc	io_intsrc;
	struct ioapic	*io_apic;
	u_int		io_intpin;
	int		io_irq;
	u_int		io_vector;	/* 0: none */
	u_int		io_dest;	/* APIC ID that io_vector belongs to */
	struct apic_stale io_stale;
	bool		io_edge;
	bool		io_high;
	bool		io_masked;
};

struct ioapic {
	struct pic	io_pic;		/* first: a pic is cast to its I/O APIC */
	volatile uint32_t *io_addr;
	int		io_intbase;
	u_int		io_numintr;
	struct ioapic_pin *io_pins;
};

static uint32_t
ioapic_read(struct ioapic *io, u_int reg)
{
	io->io_addr[0] = reg;
	return (io->io_addr[IOAPIC_WINDOW / 4]);
}

static void
ioapic_write(struct ioapic *io, u_int reg, uint32_t value)
{
	io->io_addr[0] = reg;
	io->io_addr[IOAPIC_WINDOW / 4] = value;
}

/*
 * Write a pin's redirection entry.  The low half goes last when it unmasks, so that the pin is
 * never open to an old destination.
 */
static void
ioapic_program(struct ioapic_pin *pin)
{
	struct ioapic *io = pin->io_apic;
	u_int lo_reg = IOAPIC_REDTBL + pin->io_intpin * 2;
	uint32_t lo;

	mtx_assert(&icu_lock, MA_OWNED);
	if (pin->io_vector == 0) {
		ioapic_write(io, lo_reg, IOART_INTMSET);
		return;
	}
	lo = IOART_DESTPHY | IOART_DELFIXED | pin->io_vector;
	lo |= pin->io_edge ? IOART_TRGREDG : IOART_TRGRLVL;
	lo |= pin->io_high ? IOART_INTAHI : IOART_INTALO;
	lo |= pin->io_masked ? IOART_INTMSET : IOART_INTMCLR;
	ioapic_write(io, lo_reg + 1, pin->io_dest << APIC_ID_SHIFT);
	ioapic_write(io, lo_reg, lo);
}

static void
ioapic_mask(struct ioapic_pin *pin, bool masked)
{
	mtx_lock_spin(&icu_lock);
	if (pin->io_masked != masked) {
		pin->io_masked = masked;
		ioapic_program(pin);
	}
	mtx_unlock_spin(&icu_lock);
}

static void
ioapic_enable_source(struct intsrc *isrc)
{
	ioapic_mask((struct ioapic_pin *)isrc, false);
}

/*
 * While its thread runs, a level pin is masked.  An edge pin must not be: an edge that comes
 * while it is masked is lost.
 */
static void
ioapic_disable_source(struct intsrc *isrc, int eoi)
{
	struct ioapic_pin *pin = (struct ioapic_pin *)isrc;

	if (!pin->io_edge || eoi == PIC_NO_EOI)
		ioapic_mask(pin, true);
	if (eoi == PIC_EOI)
		lapic_eoi();
}

static void
ioapic_eoi_source(struct intsrc *isrc __unused)
{
	lapic_eoi();
}

/* Deliver a pin to the processor with this APIC ID.  ENOSPC: that one has no vector left. */
static int
ioapic_assign_cpu(struct intsrc *isrc, u_int apic_id)
{
	struct ioapic_pin *pin = (struct ioapic_pin *)isrc;
	u_int vector, old_vector, old_dest;

	if (pin->io_vector != 0 && pin->io_dest == apic_id)
		return (0);
	vector = apic_alloc_vector(apic_id, pin->io_irq);
	if (vector == 0)
		return (ENOSPC);
	mtx_lock_spin(&icu_lock);
	old_vector = pin->io_vector;
	old_dest = pin->io_dest;
	pin->io_vector = vector;
	pin->io_dest = apic_id;
	ioapic_program(pin);
	mtx_unlock_spin(&icu_lock);
	apic_retire_vector(&pin->io_stale, old_dest, old_vector, pin->io_irq);
	return (0);
}

static void
ioapic_enable_intr(struct intsrc *isrc)
{
	struct ioapic_pin *pin = (struct ioapic_pin *)isrc;

	if (pin->io_vector == 0 && ioapic_assign_cpu(isrc, intr_next_cpu(isrc->is_domain)) != 0)
		panic("no interrupt vector for irq%d", pin->io_irq);
	isrc->is_cpu = apic_cpuid(pin->io_dest);
}

static void
ioapic_disable_intr(struct intsrc *isrc)
{
	struct ioapic_pin *pin = (struct ioapic_pin *)isrc;
	u_int vector = pin->io_vector;

	if (vector == 0)
		return;
	mtx_lock_spin(&icu_lock);
	pin->io_masked = true;
	pin->io_vector = 0;
	ioapic_program(pin);
	mtx_unlock_spin(&icu_lock);
	apic_free_vector(pin->io_dest, vector, pin->io_irq);
	apic_retire_vector(&pin->io_stale, 0, 0, pin->io_irq);
}

static int
ioapic_vector(struct intsrc *isrc)
{
	return (((struct ioapic_pin *)isrc)->io_irq);
}

static int
ioapic_source_pending(struct intsrc *isrc)
{
	struct ioapic_pin *pin = (struct ioapic_pin *)isrc;

	return (pin->io_vector != 0 && lapic_intr_pending(pin->io_vector));
}

static int
ioapic_config_intr(struct intsrc *isrc, enum intr_trigger trig, enum intr_polarity pol)
{
	struct ioapic_pin *pin = (struct ioapic_pin *)isrc;

	mtx_lock_spin(&icu_lock);
	if (trig != INTR_TRIGGER_CONFORM)
		pin->io_edge = trig == INTR_TRIGGER_EDGE;
	if (pol != INTR_POLARITY_CONFORM)
		pin->io_high = pol == INTR_POLARITY_HIGH;
	ioapic_program(pin);
	mtx_unlock_spin(&icu_lock);
	return (0);
}

static void
ioapic_reprogram_pin(struct intsrc *isrc)
{
	mtx_lock_spin(&icu_lock);
	ioapic_program((struct ioapic_pin *)isrc);
	mtx_unlock_spin(&icu_lock);
}

/* After a suspend the registers are as at power-on. */
static void
ioapic_resume(struct pic *pic, bool suspend_cancelled __unused)
{
	struct ioapic *io = (struct ioapic *)pic;
	u_int i;

	for (i = 0; i < io->io_numintr; i++)
		ioapic_reprogram_pin(&io->io_pins[i].io_intsrc);
}

static void
ioapic_register_sources(struct pic *pic)
{
	struct ioapic *io = (struct ioapic *)pic;
	u_int i;

	for (i = 0; i < io->io_numintr; i++) {
		if (io->io_pins[i].io_irq >= 0)
			intr_register_source(&io->io_pins[i].io_intsrc);
	}
}

static const struct pic ioapic_template = {
	.pic_register_sources = ioapic_register_sources,
	.pic_enable_source = ioapic_enable_source,
	.pic_disable_source = ioapic_disable_source,
	.pic_eoi_source = ioapic_eoi_source,
	.pic_enable_intr = ioapic_enable_intr,
	.pic_disable_intr = ioapic_disable_intr,
	.pic_vector = ioapic_vector,
	.pic_source_pending = ioapic_source_pending,
	.pic_resume = ioapic_resume,
	.pic_config_intr = ioapic_config_intr,
	.pic_assign_cpu = ioapic_assign_cpu,
	.pic_reprogram_pin = ioapic_reprogram_pin,
};

/*
 * Make the I/O APIC at addr known, whose first pin is global interrupt intbase; all pins masked.
 */
ioapic_drv_t
ioapic_create(vm_paddr_t addr, int32_t apic_id __unused, int intbase)
{
	struct ioapic *io;
	struct ioapic_pin *pin;
	u_int i;

	io = malloc(sizeof(*io), M_DEVBUF, M_WAITOK | M_ZERO);
	io->io_pic = ioapic_template;
	io->io_addr = pmap_mapdev(addr, IOAPIC_WND_SIZE);
	io->io_intbase = intbase;
	mtx_lock_spin(&icu_lock);
	io->io_numintr = ((ioapic_read(io, IOAPIC_VER) & IOART_VER_MAXREDIR) >> MAXREDIRSHIFT) + 1;
	mtx_unlock_spin(&icu_lock);
	io->io_pins = mallocarray(io->io_numintr, sizeof(*pin), M_DEVBUF, M_WAITOK | M_ZERO);
	for (i = 0; i < io->io_numintr; i++) {
		pin = &io->io_pins[i];
		pin->io_intsrc.is_pic = &io->io_pic;
		pin->io_apic = io;
		pin->io_intpin = i;
		pin->io_irq = intbase + i;
		pin->io_edge = pin->io_high = pin->io_irq < ISA_IRQS;
		pin->io_masked = true;
		ioapic_reprogram_pin(&pin->io_intsrc);
	}
	num_io_irqs = MAX(num_io_irqs, intbase + io->io_numintr);
	return (io);
}

/* The following change a pin before ioapic_register(). */
int
ioapic_get_vector(ioapic_drv_t io, u_int pin)
{
	if (pin >= io->io_numintr)
		return (-1);
	return (io->io_pins[pin].io_irq);
}

int
ioapic_disable_pin(ioapic_drv_t io, u_int pin)
{
	if (pin >= io->io_numintr)
		return (EINVAL);
	io->io_pins[pin].io_irq = IRQ_UNUSED;
	return (0);
}

int
ioapic_remap_vector(ioapic_drv_t io, u_int pin, int vector)
{
	if (pin >= io->io_numintr || vector < 0)
		return (EINVAL);
	io->io_pins[pin].io_irq = vector;
	return (0);
}

int
ioapic_set_polarity(ioapic_drv_t io, u_int pin, enum intr_polarity pol)
{
	if (pin >= io->io_numintr || pol == INTR_POLARITY_CONFORM)
		return (EINVAL);
	io->io_pins[pin].io_high = pol == INTR_POLARITY_HIGH;
	return (0);
}

int
ioapic_set_triggermode(ioapic_drv_t io, u_int pin, enum intr_trigger trigger)
{
	if (pin >= io->io_numintr || trigger == INTR_TRIGGER_CONFORM)
		return (EINVAL);
	io->io_pins[pin].io_edge = trigger == INTR_TRIGGER_EDGE;
	return (0);
}

void
ioapic_register(ioapic_drv_t io)
{
	intr_register_pic(&io->io_pic);
	if (bootverbose)
		printf("ioapic: irqs %d-%d\n", io->io_intbase, io->io_intbase + io->io_numintr - 1);
}
