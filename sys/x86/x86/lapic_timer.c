/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The local APIC's timer, as the event timer of each processor (eventtimers(9)).
 *
 * One-shot: with the TSC-deadline mode where the processor has it, else by the count-down register,
 * whose frequency is measured against the TSC once.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>
#include <sys/timeet.h>

#include <machine/clock.h>
#include <machine/cpufunc.h>
#include <machine/frame.h>
#include <machine/intr_machdep.h>
#include <machine/md_var.h>
#include <machine/specialreg.h>

#include <x86/apicreg.h>
#include <x86/apicvar.h>
#include <x86/x86/apic_tree.h>

#define	CALIBRATE_USEC	1000

static struct eventtimer lapic_et;
static uint64_t count_freq;
static bool tsc_deadline;
static u_long *timer_count[MAXCPU];
static bool timer_set[MAXCPU];		/* its registers are set for lapic_et_start() */

/* A processor's local APIC has been reset. */
void
lapic_timer_forget(void)
{
	timer_set[PCPU_GET(cpuid)] = false;
}

/* Measure the count-down register, with the divider that is used later. */
void
lapic_calibrate_timer(void)
{
	uint64_t tsc0, tsc1;
	uint32_t c0, c1;

	lapic_write(LAPIC_DCR_TIMER, APIC_TDCR_2);
	lapic_write(LAPIC_ICR_TIMER, APIC_TIMER_MAX_COUNT);
	c0 = lapic_read(LAPIC_CCR_TIMER);
	tsc0 = rdtsc();
	DELAY(CALIBRATE_USEC);
	c1 = lapic_read(LAPIC_CCR_TIMER);
	tsc1 = rdtsc();
	lapic_write(LAPIC_ICR_TIMER, 0);
	count_freq = (uint64_t)(c0 - c1) * tsc_freq / (tsc1 - tsc0);
}

/* Interrupt this processor once, after first; called with interrupts off. */
static int
lapic_et_start(struct eventtimer *et __unused, sbintime_t first, sbintime_t period __unused)
{
	bool *set = &timer_set[PCPU_GET(cpuid)];
	uint64_t count;

	if (tsc_deadline) {
		if (!*set)
			lapic_write(LAPIC_LVT_TIMER, APIC_LVTT_TM_TSCDLT | APIC_TIMER_INT);
		*set = true;
		mfence();	/* the mode must be set before the deadline (SDM 3A, 11.5.4.1) */
		count = ((first >> 32) * tsc_freq) + (((first & 0xffffffff) * tsc_freq) >> 32);
		wrmsr(MSR_TSC_DEADLINE, rdtsc() + count);
		return (0);
	}
	count = ((first >> 32) * count_freq) + (((first & 0xffffffff) * count_freq) >> 32);
	count = MAX(MIN(count, APIC_TIMER_MAX_COUNT), 1);
	if (!*set) {
		lapic_write(LAPIC_LVT_TIMER, APIC_LVTT_TM_ONE_SHOT | APIC_TIMER_INT);
		lapic_write(LAPIC_DCR_TIMER, APIC_TDCR_2);
		*set = true;
	}
	lapic_write(LAPIC_ICR_TIMER, count);
	return (0);
}

static int
lapic_et_stop(struct eventtimer *et __unused)
{
	lapic_write(LAPIC_LVT_TIMER, APIC_LVTT_M | APIC_TIMER_INT);
	lapic_timer_forget();
	if (tsc_deadline)
		wrmsr(MSR_TSC_DEADLINE, 0);
	else
		lapic_write(LAPIC_ICR_TIMER, 0);
	return (0);
}

void
lapic_handle_timer(struct trapframe *frame)
{
	struct thread *td = curthread;
	struct trapframe *oldframe;

	lapic_eoi();
	if (timer_count[PCPU_GET(cpuid)] != NULL)
		(*timer_count[PCPU_GET(cpuid)])++;
	critical_enter();
	if (lapic_et.et_active) {
		td->td_intr_nesting_level++;
		oldframe = td->td_intr_frame;
		td->td_intr_frame = frame;
		lapic_et.et_event_cb(&lapic_et, lapic_et.et_arg);
		td->td_intr_frame = oldframe;
		td->td_intr_nesting_level--;
	}
	critical_exit();
}

static void
lapic_et_init(void *dummy __unused)
{
	char name[16];
	u_int i;

	tsc_deadline = (cpu_feature2 & CPUID2_TSCDLT) != 0;
	if (!tsc_deadline)
		lapic_calibrate_timer();
	if (!tsc_deadline && count_freq == 0) {
		printf("the local APIC's timer does not count\n");
		return;
	}
	CPU_FOREACH(i) {
		snprintf(name, sizeof(name), "cpu%u:timer", i);
		intrcnt_add(name, &timer_count[i]);
	}
	lapic_et.et_name = "LAPIC";
	lapic_et.et_flags = ET_FLAGS_ONESHOT | ET_FLAGS_PERCPU;
	lapic_et.et_quality = 600;
	lapic_et.et_frequency = tsc_deadline ? tsc_freq : count_freq;
	lapic_et.et_min_period = SBT_1US;
	lapic_et.et_max_period = tsc_deadline ? SBT_1S * 60 :
	    (sbintime_t)((uint64_t)APIC_TIMER_MAX_COUNT / count_freq) * SBT_1S;
	lapic_et.et_start = lapic_et_start;
	lapic_et.et_stop = lapic_et_stop;
	et_register(&lapic_et);
}
SYSINIT(lapic_et, SI_SUB_INTR, SI_ORDER_ANY, lapic_et_init, NULL);

/* Start the clocks on the first processor; the others follow by cpu_initclocks_ap(). */
void
cpu_initclocks(void)
{
	cpu_initclocks_bsp();
}
