/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The ACPI tables that the kernel reads itself: there is no ACPI interpreter here.
 *
 * Not FreeBSD's: ACPICA reads the tables there.
 */

#ifndef _X86_ACPI_TABLES_TREE_H_
#define	_X86_ACPI_TABLES_TREE_H_

/* The header of every table but the RSDP (ACPI 6.5, 5.2.6). */
struct acpi_table {
	char		signature[4];
	uint32_t	length;
	uint8_t		revision;
	uint8_t		checksum;
	char		oem_id[6];
	char		oem_table_id[8];
	uint32_t	oem_revision;
	uint32_t	creator_id;
	uint32_t	creator_revision;
} __packed;

/* A register's address (ACPI 6.5, 5.2.3.2). */
struct acpi_gas {
	uint8_t		space;
#define	GAS_MEMORY	0
#define	GAS_IO		1
#define	GAS_PCI		2
	uint8_t		bit_width;
	uint8_t		bit_offset;
	uint8_t		access_size;
	uint64_t	address;
} __packed;

/*
 * Find the table with this signature ("APIC", "FACP", "MCFG" ...).  The result is mapped for good
 * and has a right checksum and length.  NULL: there is none.  Callable from hammer_time() on,
 * once the final page tables are in place.
 */
const struct acpi_table *acpi_find(const char *signature);

/* The table at a physical address, such as the FADT's DSDT; NULL when its checksum is wrong. */
const struct acpi_table *acpi_map_table(vm_paddr_t pa);

/* Fields of the FADT that have users; a zero address means that the machine has none. */
struct acpi_fadt {
	uint32_t	flags;
#define	FADT_TMR_VAL_EXT	(1u << 8)	/* the PM timer has 32 bits, not 24 */
#define	FADT_RESET_REG_SUP	(1u << 10)
#define	FADT_HW_REDUCED		(1u << 20)
	vm_paddr_t	dsdt;
	vm_paddr_t	facs;
	uint32_t	pm1a_evt;		/* I/O ports */
	uint32_t	pm1b_evt;
	uint32_t	pm1a_cnt;
	uint32_t	pm1b_cnt;
	uint32_t	pm_tmr;
	struct acpi_gas	reset_reg;
	uint8_t		reset_value;
	struct acpi_gas	sleep_control;
};

/* Fill f; false when there is no FADT. */
bool	acpi_fadt(struct acpi_fadt *f);

/* Reset the machine by the FADT's reset register; returns if it has none (acpi_sleep.c). */
void	acpi_reset(void);

/*
 * Suspend devices and processors, and enter S3 (acpi_sleep.c).  Returns 0 when the machine was woken
 * and its devices resumed; EOPNOTSUPP if it has no S3; what a device's suspend method returned, with
 * those that were suspended resumed; EIO if the machine does not sleep.  Sleeps.
 */
int	acpi_suspend(void);

#endif /* !_X86_ACPI_TABLES_TREE_H_ */
