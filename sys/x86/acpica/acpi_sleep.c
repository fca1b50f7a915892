/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * ACPI's sleeping states: S5, turned off, and S3, suspended to memory (ACPI 6.5, 7.4.2 and 16.1).
 *
 * A state is entered by its number, SLP_TYP, with SLP_EN in the PM1 control register (4.8.3.2.1),
 * or in the sleep control register of a hardware-reduced machine (4.8.3.7), which has no S3 here.
 * The numbers are taken from the byte code of the DSDT, which gives them as constant packages
 * \_S3 and \_S5; there is no interpreter.
 *
 * Suspend.  Devices are suspended by newbus from the leaves on, then the processors; the firmware
 * finds where to go on in the FACS (5.2.10).  Who waits for an interrupt or a time finds it later:
 * the time that the machine slept does not count as uptime.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/proc.h>
#include <sys/reboot.h>
#include <sys/sched.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/clock.h>
#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/vmparam.h>

#include <kern/cons_input_tree.h>
#include <x86/x86/acpi_tables_tree.h>
#include <x86/x86/apic_tree.h>

#define	PM1_WAK_STS		(1 << 15)
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

/* Firmware ACPI Control Structure (ACPI 6.5, 5.2.10). */
struct acpi_facs {
	char		signature[4];		/* "FACS" */
	uint32_t	length;
	uint32_t	hardware_signature;
	uint32_t	waking;			/* entered in real mode */
	uint32_t	global_lock;
	uint32_t	flags;
	uint64_t	x_waking;		/* in protected mode, unless 0 */
} __packed;

struct sleep_state {
	bool	known;
	uint8_t	typ_a;
	uint8_t	typ_b;
};

static struct acpi_fadt fadt;
static bool have_fadt;
static struct sleep_state s3, s5;

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

void
acpi_reset(void)
{
	if (!have_fadt || (fadt.flags & FADT_RESET_REG_SUP) == 0)
		return;
	gas_write(&fadt.reset_reg, fadt.reset_value);
	DELAY(50000);
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
 * Find Name(NAME, Package() { SLP_TYPa, SLP_TYPb, ... }) in the DSDT.
 */
static void
find_state(const struct acpi_table *dsdt, const char *name, struct sleep_state *s)
{
	const uint8_t *p = (const uint8_t *)(dsdt + 1), *q;
	const uint8_t *end = (const uint8_t *)dsdt + dsdt->length;

	for (; p + 8 <= end; p++) {
		if (memcmp(p, name, 4) != 0 ||
		    !(p[-1] == AML_NAME_OP || (p[-1] == '\\' && p[-2] == AML_NAME_OP)) ||
		    p[4] != AML_PACKAGE_OP)
			continue;
		q = p + 5;
		q += (*q >> 6) + 1;		/* PkgLength says in its top bits how long it is */
		q++;				/* NumElements */
		q = aml_integer(q, end, &s->typ_a);
		if (q != NULL)
			q = aml_integer(q, end, &s->typ_b);
		s->known = q != NULL;
		return;
	}
}

static void
pm1_write(uint32_t port, uint8_t typ)
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
	if ((howto & RB_POWEROFF) == 0 || !s5.known)
		return;
	disable_intr();
	if (fadt.flags & FADT_HW_REDUCED)
		gas_write(&fadt.sleep_control, s5.typ_a << SLEEP_CTL_TYP_SHIFT | SLEEP_CTL_EN);
	else {
		pm1_write(fadt.pm1a_cnt, s5.typ_a);
		pm1_write(fadt.pm1b_cnt, s5.typ_b);
	}
	DELAY(1000000);
	printf("ACPI power-off failed\n");
}

static struct acpi_facs *
find_facs(void)
{
	struct acpi_facs *f;

	if (fadt.facs == 0 || !PHYS_IN_DMAP(fadt.facs + sizeof(*f)))
		return (NULL);
	f = (struct acpi_facs *)PHYS_TO_DMAP(fadt.facs);
	return (memcmp(f->signature, "FACS", 4) == 0 ? f : NULL);
}

/* For cpu_sleep(): the last that happens before the machine sleeps. */
static int
enter_s3(vm_paddr_t waking, void *arg)
{
	struct acpi_facs *facs = arg;

	facs->waking = waking;
	if (facs->length >= sizeof(*facs))
		facs->x_waking = 0;
	pm1_write(fadt.pm1a_cnt, s3.typ_a);
	pm1_write(fadt.pm1b_cnt, s3.typ_b);
	/* It may take the machine a while. */
	DELAY(1000000);
	return (EIO);
}

static void
ack_wake(uint32_t port)
{
	if (port != 0)
		outw(port, PM1_WAK_STS);
}

/* With the device tree locked. */
static int
acpi_suspend_devices(struct acpi_facs *facs)
{
	int error;

	error = DEVICE_SUSPEND(root_bus);
	if (error != 0) {
		printf("suspend: a device can't be suspended\n");
		return (error);
	}
	error = cpu_sleep(enter_s3, facs);
	/* The resume method of the host bridge restores the addresses of the chip set's registers. */
	(void)DEVICE_RESUME(root_bus);
	ack_wake(fadt.pm1a_evt);
	ack_wake(fadt.pm1b_evt);
	return (error);
}

int
acpi_suspend(void)
{
	struct acpi_facs *facs = have_fadt ? find_facs() : NULL;
	int error;

	if (facs == NULL || !s3.known || fadt.pm1a_cnt == 0)
		return (EOPNOTSUPP);
	thread_lock(curthread);
	sched_bind(curthread, 0);
	thread_unlock(curthread);
	bus_topo_lock();
	EVENTHANDLER_INVOKE(power_suspend);
	error = acpi_suspend_devices(facs);
	EVENTHANDLER_INVOKE(power_resume);
	bus_topo_unlock();
	/* What was typed meanwhile has had no interrupt. */
	cons_input_ready();
	thread_lock(curthread);
	sched_unbind(curthread);
	thread_unlock(curthread);
	return (error);
}

static void
power_init(void *dummy __unused)
{
	const struct acpi_table *dsdt;

	have_fadt = acpi_fadt(&fadt);
	if (!have_fadt)
		return;
	dsdt = acpi_map_table(fadt.dsdt);
	if (dsdt != NULL) {
		find_state(dsdt, "_S3_", &s3);
		find_state(dsdt, "_S5_", &s5);
	}
	EVENTHANDLER_REGISTER(shutdown_final, acpi_poweroff, NULL, SHUTDOWN_PRI_LAST);
}
SYSINIT(power, SI_SUB_CONFIGURE, SI_ORDER_FIRST, power_init, NULL);
