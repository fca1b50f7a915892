/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Finding ACPI tables (ACPI 6.5, 5.2): RSDP, then XSDT or RSDT, then the table by its signature.
 *
 * The tables are read through the direct map, which covers the first 4 GB and all RAM.
 */
#include <sys/param.h>
#include <sys/systm.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/vmparam.h>

#include <amd64/amd64/boot_tree.h>
#include <x86/x86/acpi_tables_tree.h>

struct rsdp {
	char		signature[8];		/* "RSD PTR " */
	uint8_t		checksum;
	char		oem_id[6];
	uint8_t		revision;
	uint32_t	rsdt;
	uint32_t	length;			/* from revision 2 on */
	uint64_t	xsdt;
	uint8_t		ext_checksum;
	uint8_t		reserved[3];
} __packed;

#define	RSDP_V1_SIZE	20
#define	TABLE_MAX	(16 * 1024 * 1024)	/* no sane table is larger */

/* Offsets in the FADT (ACPI 6.5, table 5.9). */
#define	FADT_FACS		36
#define	FADT_DSDT		40
#define	FADT_PM1A_EVT		56
#define	FADT_PM1B_EVT		60
#define	FADT_PM1A_CNT		64
#define	FADT_PM1B_CNT		68
#define	FADT_PM_TMR		76
#define	FADT_FLAGS		112
#define	FADT_RESET_REG		116
#define	FADT_RESET_VALUE	128
#define	FADT_X_FACS		132
#define	FADT_X_DSDT		140
#define	FADT_SLEEP_CONTROL	244

static bool
checksum_ok(const void *p, size_t len)
{
	const uint8_t *b = p;
	uint8_t sum = 0;

	while (len-- > 0)
		sum += *b++;
	return (sum == 0);
}

static const struct rsdp *
rsdp_at(vm_paddr_t pa)
{
	const struct rsdp *r;

	if (pa == 0 || !PHYS_IN_DMAP(pa + sizeof(*r)))
		return (NULL);
	r = (const struct rsdp *)PHYS_TO_DMAP(pa);
	if (memcmp(r->signature, "RSD PTR ", 8) != 0 || !checksum_ok(r, RSDP_V1_SIZE))
		return (NULL);
	return (r);
}

/*
 * The loader's word for it, else a search of the BIOS area on 16-byte boundaries (5.2.5.1).
 */
static const struct rsdp *
find_rsdp(void)
{
	static const struct rsdp *found;
	vm_paddr_t pa;

	if (found == NULL)
		found = rsdp_at(boot_rsdp);
	for (pa = 0xe0000; found == NULL && pa < 0x100000; pa += 16)
		found = rsdp_at(pa);
	return (found);
}

const struct acpi_table *
acpi_map_table(vm_paddr_t pa)
{
	const struct acpi_table *t;

	if (pa == 0 || !PHYS_IN_DMAP(pa + sizeof(*t)))
		return (NULL);
	t = (const struct acpi_table *)PHYS_TO_DMAP(pa);
	if (t->length < sizeof(*t) || t->length > TABLE_MAX || !PHYS_IN_DMAP(pa + t->length) ||
	    !checksum_ok(t, t->length))
		return (NULL);
	return (t);
}

const struct acpi_table *
acpi_find(const char *signature)
{
	const struct rsdp *r = find_rsdp();
	const struct acpi_table *root, *t;
	const char *entry;
	size_t width, n, i;
	uint64_t pa;

	if (r == NULL)
		return (NULL);
	width = r->revision >= 2 && r->xsdt != 0 ? 8 : 4;
	root = acpi_map_table(width == 8 ? r->xsdt : r->rsdt);
	if (root == NULL)
		return (NULL);
	n = (root->length - sizeof(*root)) / width;
	entry = (const char *)(root + 1);
	for (i = 0; i < n; i++) {
		pa = 0;
		memcpy(&pa, entry + i * width, width);
		t = acpi_map_table(pa);
		if (t != NULL && memcmp(t->signature, signature, 4) == 0)
			return (t);
	}
	return (NULL);
}

/* Copy a field of a table, which older revisions may not reach: then it stays zero. */
static void
field(const struct acpi_table *t, size_t offset, void *to, size_t len)
{
	memset(to, 0, len);
	if (offset + len <= t->length)
		memcpy(to, (const char *)t + offset, len);
}

bool
acpi_fadt(struct acpi_fadt *f)
{
	const struct acpi_table *t = acpi_find("FACP");
	uint64_t x_dsdt, x_facs;
	uint32_t dsdt, facs;

	if (t == NULL)
		return (false);
	field(t, FADT_FLAGS, &f->flags, sizeof(f->flags));
	field(t, FADT_PM1A_EVT, &f->pm1a_evt, sizeof(f->pm1a_evt));
	field(t, FADT_PM1B_EVT, &f->pm1b_evt, sizeof(f->pm1b_evt));
	field(t, FADT_PM1A_CNT, &f->pm1a_cnt, sizeof(f->pm1a_cnt));
	field(t, FADT_PM1B_CNT, &f->pm1b_cnt, sizeof(f->pm1b_cnt));
	field(t, FADT_PM_TMR, &f->pm_tmr, sizeof(f->pm_tmr));
	field(t, FADT_RESET_REG, &f->reset_reg, sizeof(f->reset_reg));
	field(t, FADT_RESET_VALUE, &f->reset_value, sizeof(f->reset_value));
	field(t, FADT_SLEEP_CONTROL, &f->sleep_control, sizeof(f->sleep_control));
	field(t, FADT_DSDT, &dsdt, sizeof(dsdt));
	field(t, FADT_X_DSDT, &x_dsdt, sizeof(x_dsdt));
	f->dsdt = x_dsdt != 0 ? x_dsdt : dsdt;
	field(t, FADT_FACS, &facs, sizeof(facs));
	field(t, FADT_X_FACS, &x_facs, sizeof(x_facs));
	f->facs = x_facs != 0 ? x_facs : facs;
	return (true);
}
