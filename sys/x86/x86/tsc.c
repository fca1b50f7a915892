/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The time-stamp counter: its frequency, DELAY(9), the timecounter, cpu_ticks.
 *
 * The frequency comes from whoever knows it, in this order: the hypervisor's CPUID leaves, the
 * processor's CPUID leaf 0x15, else a measurement of 5 ms against the ACPI PM timer or the 8254.
 * The loops that measure mostly count in registers and seldom read a port: under QEMU's -icount
 * time advances with each instruction while every port access takes long, so that reading ports
 * only would take seconds.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <sys/time.h>
#include <sys/timetc.h>

#include <machine/clock.h>
#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/specialreg.h>

#include <x86/x86/acpi_tables_tree.h>
#include <x86/xen/xen_kernel_tree.h>

uint64_t tsc_freq;
int	smp_tsc = 1;

SYSCTL_U64(_machdep, OID_AUTO, tsc_freq, CTLFLAG_RD, &tsc_freq, 0, "Time Stamp Counter frequency");

#define	CPUID_TSC_LEAF		0x15
#define	CPUID_HV_TIMING		0x10	/* from the base: TSC frequency in kHz (VMware, KVM) */
#define	CPUID_XEN_TIME		3	/* from the base, subleaf 0: TSC frequency in kHz */

#define	PMTMR_FREQ		3579545
#define	PIT_FREQ		1193182
#define	PIT_CNT0		0x40
#define	PIT_CMD			0x43
#define	PIT_CMD_RATE		0x34	/* counter 0, both bytes, rate generator */
#define	PIT_CMD_LATCH		0x00
#define	CALIBRATE_HZ		200	/* measure for 1/200 s */
#define	PATIENCE		2000000	/* looks at a clock that doesn't move */

/* Without any clock: what QEMU's emulated TSC counts under -icount. */
#define	TSC_FREQ_GUESS		1000000000

/* The timecounter counts slower than this, so that its 32 bits last for seconds. */
#define	TC_FREQ_MAX		500000000
static u_int tc_shift;

/* A short while without leaving the processor. */
static void
spin_registers(void)
{
	u_int i;

	for (i = 0; i < 200; i++)
		__asm __volatile("" : "+r" (i));
}

static uint64_t
freq_from_cpuid(void)
{
	u_int regs[4];

	if (vm_guest == VM_GUEST_XEN && hv_high >= hv_base + CPUID_XEN_TIME) {
		cpuid_count(hv_base + CPUID_XEN_TIME, 0, regs);
		return ((uint64_t)regs[2] * 1000);
	}
	if (hv_base != 0 && hv_high >= hv_base + CPUID_HV_TIMING) {
		do_cpuid(hv_base + CPUID_HV_TIMING, regs);
		if (regs[0] != 0)
			return ((uint64_t)regs[0] * 1000);
	}
	if (cpu_high >= CPUID_TSC_LEAF) {
		do_cpuid(CPUID_TSC_LEAF, regs);
		if (regs[0] != 0 && regs[1] != 0 && regs[2] != 0)
			return ((uint64_t)regs[2] * regs[1] / regs[0]);
	}
	return (0);
}

/* A clock of known frequency that counts up modulo mask + 1. */
struct ref_clock {
	uint32_t	(*read)(uint32_t arg);
	uint32_t	arg;
	uint32_t	mask;
	uint32_t	freq;
};

static uint32_t
read_pmtmr(uint32_t port)
{
	return (inl(port));
}

static uint32_t
read_pit(uint32_t arg __unused)
{
	uint32_t count;

	outb(PIT_CMD, PIT_CMD_LATCH);
	count = inb(PIT_CNT0);
	count |= inb(PIT_CNT0) << 8;
	return (-count);
}

/* Read the clock and the TSC together; the TSC value is from the middle of the read. */
static uint32_t
read_pair(const struct ref_clock *c, uint64_t *tsc)
{
	uint64_t before = rdtsc();
	uint32_t value = c->read(c->arg);

	*tsc = before + (rdtsc() - before) / 2;
	return (value);
}

/* TSC ticks per second, measured; 0 when the clock does not run. */
static uint64_t
measure(const struct ref_clock *c)
{
	uint32_t start, now, elapsed = 0, tries = 0;
	uint64_t tsc0, tsc1;

	start = read_pair(c, &tsc0);
	do {
		spin_registers();
		now = read_pair(c, &tsc1);
		elapsed = (now - start) & c->mask;
		if (elapsed == 0 && ++tries > PATIENCE / 1000)
			return (0);
	} while (elapsed < c->freq / CALIBRATE_HZ);
	return ((tsc1 - tsc0) * c->freq / elapsed);
}

void
tsc_calibrate(void)
{
	struct ref_clock clock;
	struct acpi_fadt fadt;

	tsc_freq = freq_from_cpuid();
	if (tsc_freq == 0 && acpi_fadt(&fadt) && fadt.pm_tmr != 0) {
		clock = (struct ref_clock){ read_pmtmr, fadt.pm_tmr, 0xffffff, PMTMR_FREQ };
		tsc_freq = measure(&clock);
	}
	if (tsc_freq == 0) {
		outb(PIT_CMD, PIT_CMD_RATE);
		outb(PIT_CNT0, 0);
		outb(PIT_CNT0, 0);
		clock = (struct ref_clock){ read_pit, 0, 0xffff, PIT_FREQ };
		tsc_freq = measure(&clock);
	}
	if (tsc_freq == 0) {
		tsc_freq = TSC_FREQ_GUESS;
		printf("no clock to measure the TSC by; assuming %ju Hz\n", (uintmax_t)tsc_freq);
	}
}

static uint64_t
tsc_ticks(void)
{
	return (rdtsc());
}

void
tsc_init(void)
{
	tsc_calibrate();
	set_cputicker(tsc_ticks, tsc_freq, false);
}

void
DELAY(int usec)
{
	uint64_t end = rdtsc() + (uint64_t)usec * tsc_freq / 1000000;

	while ((int64_t)(rdtsc() - end) < 0)
		cpu_spinwait();
}

static u_int
tsc_get_timecount(struct timecounter *tc __unused)
{
	return (rdtsc_ordered() >> tc_shift);
}

static struct timecounter tsc_timecounter = {
	.tc_get_timecount = tsc_get_timecount,
	.tc_counter_mask = ~0u,
	.tc_name = "TSC",
	.tc_quality = 1000,
};

static void
tsc_register(void *dummy __unused)
{
	while (tsc_freq >> tc_shift > TC_FREQ_MAX)
		tc_shift++;
	/* Xen's own clock is better than a counter that Xen does not vouch for. */
	if (xen_guest() && !xen_tsc_reliable())
		tsc_timecounter.tc_quality = 900;
	tsc_timecounter.tc_frequency = tsc_freq >> tc_shift;
	tc_init(&tsc_timecounter);
}
SYSINIT(tsc, SI_SUB_CPU, SI_ORDER_SECOND, tsc_register, NULL);
