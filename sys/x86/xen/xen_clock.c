/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Xen's clock: nanoseconds since the host was booted, as dev/xen/xen_clock_read.h has them.
 *
 * Two processors' readings can differ by a little where their counters do.  A timecounter must not
 * go back, so xen_clock_ns() never returns less than it has returned to anybody.
 *
 * A domain that was saved goes on with another system time, of another host perhaps.  Its own time
 * goes on from where it stopped (clock_offset).
 *
 * The time of day is set once, so that a kernel without the xen module has it; after a suspension it is
 * the module's to set.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>
#include <sys/time.h>
#include <sys/timetc.h>

#include <dev/xen/xen_clock_read.h>
#include <x86/xen/xen_kernel_tree.h>

static volatile u_long clock_last;
static u_long clock_offset;	/* written while one processor runs */

/* Before it has a vcpu_info of its own, a processor is the first, in the shared info page. */
static volatile struct vcpu_time_info *
time_info(void)
{
	struct vcpu_info *vi = dpcpu_off[0] != 0 ? DPCPU_GET(vcpu_info) : NULL;

	if (vi == NULL)
		vi = &HYPERVISOR_shared_info->vcpu_info[0];
	return (&vi->time);
}

uint64_t
xen_system_ns(void)
{
	uint64_t ns;

	critical_enter();
	ns = xen_clock_read_system(time_info());
	critical_exit();
	return (ns);
}

uint64_t
xen_clock_ns(void)
{
	u_long last, ns;

	ns = xen_system_ns() + clock_offset;
	last = clock_last;
	do {
		if (ns <= last)
			return (last);
	} while (!atomic_fcmpset_long(&clock_last, &last, ns));
	return (ns);
}

void
xen_clock_resume(void)
{
	clock_offset = clock_last - xen_system_ns();
}

static void
set_time_of_day(void)
{
	uint64_t ns = xen_clock_read_begin(HYPERVISOR_shared_info) + xen_system_ns();
	struct timespec ts = { .tv_sec = ns / XEN_CLOCK_SECOND, .tv_nsec = ns % XEN_CLOCK_SECOND };

	tc_setclock(&ts);
}

static u_int
xen_get_timecount(struct timecounter *tc __unused)
{
	return (xen_clock_ns());
}

/* Preferred to a time-stamp counter that Xen does not vouch for. */
static struct timecounter xen_timecounter = {
	.tc_get_timecount = xen_get_timecount,
	.tc_counter_mask = ~0u,
	.tc_frequency = XEN_CLOCK_SECOND,
	.tc_name = "XENTIMER",
	.tc_quality = 950,
};

static void
xen_clock_register(void *dummy __unused)
{
	if (xen_guest())
		tc_init(&xen_timecounter);
}
SYSINIT(xen_clock, SI_SUB_CPU, SI_ORDER_FOURTH, xen_clock_register, NULL);

static void
xen_clock_begin(void *dummy __unused)
{
	if (!xen_guest())
		return;
	set_time_of_day();
}
SYSINIT(xen_clock_day, SI_SUB_CLOCKS, SI_ORDER_ANY, xen_clock_begin, NULL);
