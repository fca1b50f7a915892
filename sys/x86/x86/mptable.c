/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The MP table (Intel's MultiProcessor Specification 1.4, chapter 4): processors and I/O APICs of a
 * machine without ACPI, such as QEMU's microvm with acpi=off or Firecracker's.
 *
 * A pointer of 16 bytes lies in the last kilobyte of low memory, in the extended BIOS data area, or in
 * the BIOS's read-only memory; it leads to a header and a list of entries.
 *
 * Gaps: default configurations (without a table), local interrupts, and PCI's interrupts, which pci(4)
 * takes from the devices here.
 */
#include <sys/param.h>
#include <sys/systm.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/vmparam.h>

#include <x86/x86/apic_tree.h>

struct mp_pointer {
	char		signature[4];	/* "_MP_" */
	uint32_t	table;
	uint8_t		length;		/* of this, in 16 bytes */
	uint8_t		revision;
	uint8_t		checksum;
	uint8_t		features[5];
} __packed;

struct mp_table {
	char		signature[4];	/* "PCMP" */
	uint16_t	length;
	uint8_t		revision;
	uint8_t		checksum;
	char		oem[20];
	uint32_t	oem_table;
	uint16_t	oem_size;
	uint16_t	entries;
	uint32_t	lapic;
	uint32_t	extended;
} __packed;

enum mp_type {
	MP_CPU, MP_BUS, MP_IOAPIC, MP_INTERRUPT, MP_LOCAL, MP_NTYPES
};

static const uint8_t mp_sizes[MP_NTYPES] = { 20, 8, 8, 8, 8 };

struct mp_entry {
	uint8_t		type;
	union {
		struct {
			uint8_t		id, version, flags;
		} __packed cpu;
		struct {
			uint8_t		id;
			char		name[6];
		} __packed bus;
		struct {
			uint8_t		id, version, flags;
			uint32_t	address;
		} __packed ioapic;
		struct {
			uint8_t		kind;
			uint16_t	flags;
			uint8_t		bus, irq, ioapic, pin;
		} __packed intr;
	} u;
} __packed;

#define	MP_ENABLED	0x01	/* of a processor, of an I/O APIC */
#define	MP_INTR_INT	0	/* kind: by the vector of the I/O APIC's pin */

static bool
mp_sum_ok(const void *p, size_t len)
{
	const uint8_t *b = p;
	uint8_t sum = 0;

	while (len-- > 0)
		sum += *b++;
	return (sum == 0);
}

static const struct mp_table *
mp_search(vm_paddr_t from, vm_paddr_t to)
{
	const struct mp_pointer *mp;
	const struct mp_table *t;
	vm_paddr_t pa;

	for (pa = from; pa < to; pa += sizeof(*mp)) {
		mp = (const struct mp_pointer *)PHYS_TO_DMAP(pa);
		if (memcmp(mp->signature, "_MP_", 4) != 0 || !mp_sum_ok(mp, sizeof(*mp)) ||
		    mp->table == 0)
			continue;
		t = (const struct mp_table *)PHYS_TO_DMAP((vm_paddr_t)mp->table);
		if (memcmp(t->signature, "PCMP", 4) == 0 && t->length >= sizeof(*t) &&
		    mp_sum_ok(t, t->length))
			return (t);
	}
	return (NULL);
}

static const struct mp_table *
mp_find(void)
{
	static const struct mp_table *found;
	uint16_t ebda;

	if (found != NULL)
		return (found);
	memcpy(&ebda, (const void *)PHYS_TO_DMAP(0x40e), sizeof(ebda));
	if (ebda != 0)
		found = mp_search((vm_paddr_t)ebda << 4, ((vm_paddr_t)ebda << 4) + 1024);
	if (found == NULL)
		found = mp_search(639 * 1024, 640 * 1024);
	if (found == NULL)
		found = mp_search(0xf0000, 0x100000);
	return (found);
}

/* The entry after e, or the first one (NULL); NULL behind the last. */
static const struct mp_entry *
mp_next(const struct mp_table *t, const struct mp_entry *e)
{
	const char *at = e == NULL ? (const char *)(t + 1) : (const char *)e + mp_sizes[e->type];
	size_t left = (const char *)t + t->length - at;

	e = (const struct mp_entry *)at;
	if (left == 0 || e->type >= MP_NTYPES || left < mp_sizes[e->type])
		return (NULL);
	return (e);
}

bool
mptable_foreach_cpu(void (*fn)(u_int))
{
	const struct mp_table *t = mp_find();
	const struct mp_entry *e = NULL;

	while (t != NULL && (e = mp_next(t, e)) != NULL)
		if (e->type == MP_CPU && (e->u.cpu.flags & MP_ENABLED) != 0)
			fn(e->u.cpu.id);
	return (t != NULL);
}

bool
mptable_foreach_ioapic(void (*fn)(vm_paddr_t, u_int))
{
	const struct mp_table *t = mp_find();
	const struct mp_entry *e = NULL;

	while (t != NULL && (e = mp_next(t, e)) != NULL)
		if (e->type == MP_IOAPIC && (e->u.ioapic.flags & MP_ENABLED) != 0)
			fn(e->u.ioapic.address, e->u.ioapic.id);
	return (t != NULL);
}

static bool
mp_is_isa(const struct mp_table *t, u_int bus)
{
	const struct mp_entry *e = NULL;

	while ((e = mp_next(t, e)) != NULL)
		if (e->type == MP_BUS && e->u.bus.id == bus)
			return (memcmp(e->u.bus.name, "ISA   ", 6) == 0);
	return (false);
}

bool
mptable_foreach_isa(void (*fn)(u_int, u_int, u_int, u_int))
{
	const struct mp_table *t = mp_find();
	const struct mp_entry *e = NULL;

	while (t != NULL && (e = mp_next(t, e)) != NULL)
		if (e->type == MP_INTERRUPT && e->u.intr.kind == MP_INTR_INT &&
		    mp_is_isa(t, e->u.intr.bus))
			fn(e->u.intr.irq, e->u.intr.ioapic, e->u.intr.pin, e->u.intr.flags);
	return (t != NULL);
}
