/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The MADT: which processors and interrupt controllers there are (ACPI 6.5, 5.2.12).
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>

#include <machine/cpufunc.h>
#include <machine/intr_machdep.h>

#include <x86/apicreg.h>
#include <x86/apicvar.h>
#include <x86/x86/acpi_tables_tree.h>
#include <x86/x86/apic_tree.h>

#define	MADT_LAPIC_ADDRESS	36
#define	MADT_ENTRIES		44

#define	MADT_LAPIC		0
#define	MADT_IOAPIC		1
#define	MADT_OVERRIDE		2
#define	MADT_LAPIC_OVERRIDE	5
#define	MADT_X2APIC		9

#define	LAPIC_ENABLED		0x1

#define	MPS_POLARITY(flags)	((flags) & 3)
#define	MPS_TRIGGER(flags)	(((flags) >> 2) & 3)
#define	MPS_POLARITY_HIGH	1
#define	MPS_POLARITY_LOW	3
#define	MPS_TRIGGER_EDGE	1
#define	MPS_TRIGGER_LEVEL	3

struct madt_entry {
	uint8_t		type;
	uint8_t		length;
	union {
		struct {
			uint8_t		uid;
			uint8_t		id;
			uint32_t	flags;
		} __packed lapic;
		struct {
			uint8_t		id;
			uint8_t		reserved;
			uint32_t	address;
			uint32_t	intbase;
		} __packed ioapic;
		struct {
			uint8_t		bus;
			uint8_t		irq;
			uint32_t	gsi;
			uint16_t	flags;
		} __packed override;
		struct {
			uint16_t	reserved;
			uint64_t	address;
		} __packed lapic_override;
		struct {
			uint16_t	reserved;
			uint32_t	id;
			uint32_t	flags;
			uint32_t	uid;
		} __packed x2apic;
	} u;
} __packed;

#define	MAX_IOAPICS	8
static struct {
	ioapic_drv_t	io;
	u_int		id;
	u_int		base, count;
} ioapics[MAX_IOAPICS];
static u_int nioapics;

/* Call fn for each entry of the table; false when there is no table. */
static bool
madt_foreach(void (*fn)(const struct madt_entry *e, void *arg), void *arg)
{
	const struct acpi_table *t = acpi_find("APIC");
	const struct madt_entry *e;
	uint32_t at;

	if (t == NULL)
		return (false);
	for (at = MADT_ENTRIES; at + 2 <= t->length; at += e->length) {
		e = (const struct madt_entry *)((const char *)t + at);
		if (e->length < 2 || at + e->length > t->length)
			break;
		fn(e, arg);
	}
	return (true);
}

static void
cpu_entry(const struct madt_entry *e, void *arg)
{
	void (**fn)(u_int) = arg;

	if (e->type == MADT_LAPIC && (e->u.lapic.flags & LAPIC_ENABLED))
		(*fn)(e->u.lapic.id);
	else if (e->type == MADT_X2APIC && (e->u.x2apic.flags & LAPIC_ENABLED))
		(*fn)(e->u.x2apic.id);
}

bool
madt_foreach_cpu(void (*fn)(u_int apic_id))
{
	return (madt_foreach(cpu_entry, &fn));
}

static void
lapic_entry(const struct madt_entry *e, void *arg)
{
	if (e->type == MADT_LAPIC_OVERRIDE)
		*(vm_paddr_t *)arg = e->u.lapic_override.address;
}

vm_paddr_t
madt_lapic_address(void)
{
	const struct acpi_table *t = acpi_find("APIC");
	vm_paddr_t address = DEFAULT_APIC_BASE;
	uint32_t value;

	if (t != NULL && t->length >= MADT_ENTRIES) {
		memcpy(&value, (const char *)t + MADT_LAPIC_ADDRESS, sizeof(value));
		address = value;
		madt_foreach(lapic_entry, &address);
	}
	return (address);
}

static void
ioapic_add(vm_paddr_t address, u_int id, u_int base)
{
	u_int pins;

	if (nioapics == MAX_IOAPICS)
		return;
	ioapics[nioapics].io = ioapic_create(address, id, base);
	ioapics[nioapics].id = id;
	ioapics[nioapics].base = base;
	for (pins = 0; ioapic_get_vector(ioapics[nioapics].io, pins) != -1; pins++)
		;
	ioapics[nioapics].count = pins;
	nioapics++;
}

static void
ioapic_entry(const struct madt_entry *e, void *arg __unused)
{
	if (e->type == MADT_IOAPIC)
		ioapic_add(e->u.ioapic.address, e->u.ioapic.id, e->u.ioapic.intbase);
}

/* An MP table numbers the pins of the second I/O APIC from where those of the first end. */
static void
ioapic_mptable(vm_paddr_t address, u_int id)
{
	ioapic_add(address, id, nioapics == 0 ? 0 :
	    ioapics[nioapics - 1].base + ioapics[nioapics - 1].count);
}

/* ISA irq is connected to a pin of I/O APIC i, with these signals. */
static void
ioapic_connect(u_int i, u_int pin, u_int irq, u_int flags)
{
	ioapic_drv_t io = ioapics[i].io;

	if (irq != ioapics[i].base + pin) {
		ioapic_remap_vector(io, pin, irq);
		/* The pin that had this number stands for it no more. */
		if (ioapic_get_vector(ioapics[0].io, irq) == (int)irq)
			ioapic_disable_pin(ioapics[0].io, irq);
	}
	if (MPS_TRIGGER(flags) == MPS_TRIGGER_EDGE)
		ioapic_set_triggermode(io, pin, INTR_TRIGGER_EDGE);
	else if (MPS_TRIGGER(flags) == MPS_TRIGGER_LEVEL)
		ioapic_set_triggermode(io, pin, INTR_TRIGGER_LEVEL);
	if (MPS_POLARITY(flags) == MPS_POLARITY_HIGH)
		ioapic_set_polarity(io, pin, INTR_POLARITY_HIGH);
	else if (MPS_POLARITY(flags) == MPS_POLARITY_LOW)
		ioapic_set_polarity(io, pin, INTR_POLARITY_LOW);
}

/* An interrupt source override: ISA irq is connected to a global interrupt. */
static void
override_entry(const struct madt_entry *e, void *arg __unused)
{
	u_int gsi = e->u.override.gsi, i;

	if (e->type != MADT_OVERRIDE)
		return;
	for (i = 0; i < nioapics; i++) {
		if (gsi - ioapics[i].base < ioapics[i].count) {
			ioapic_connect(i, gsi - ioapics[i].base, e->u.override.irq,
			    e->u.override.flags);
			return;
		}
	}
	printf("MADT: no I/O APIC for global interrupt %u\n", gsi);
}

static void
isa_mptable(u_int irq, u_int id, u_int pin, u_int flags)
{
	u_int i;

	for (i = 0; i < nioapics; i++) {
		if (ioapics[i].id == id && pin < ioapics[i].count) {
			ioapic_connect(i, pin, irq, flags);
			return;
		}
	}
	printf("MP table: no pin %u of I/O APIC %u for IRQ %u\n", pin, id, irq);
}

/* The old interrupt controllers may be there: keep them quiet. */
void
atpic_reset(void)
{
	outb(0x21, 0xff);
	outb(0xa1, 0xff);
}

/* Find the I/O APICs and register their pins. */
void
madt_setup_io(void)
{
	u_int i;

	atpic_reset();
	if (madt_foreach(ioapic_entry, NULL))
		(void)madt_foreach(override_entry, NULL);
	else if (mptable_foreach_ioapic(ioapic_mptable))
		(void)mptable_foreach_isa(isa_mptable);
	/* A machine without I/O APICs still has no message number 0: msi.c takes that for none. */
	num_io_irqs = MAX(num_io_irqs, 1);
	first_msi_irq = num_io_irqs;
	intr_init_sources();
	for (i = 0; i < nioapics; i++)
		ioapic_register(ioapics[i].io);
}
