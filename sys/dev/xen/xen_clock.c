/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen's clock: its system time, and the time of day.
 *
 * The system time is nanoseconds since the host was booted.  A vCPU has it in its struct
 * vcpu_time_info (xen.h): Xen writes the time of a moment, the time-stamp counter of that moment, and
 * how to scale what was counted since.  The time of day is that of the beginning of the system time,
 * in the shared info page, plus the system time.  Both are versioned: the version is odd while Xen
 * writes, and another one afterwards.
 *
 * The root device is a time-of-day clock by it, clock_register(9): the kernel reads it when it mounts
 * its root file system, rather than a battery clock, which counts seconds.  It is read again after a
 * suspension, as the time that passed meanwhile is in no counter of the domain's.  Xen's time of
 * day has the offset from UTC that the domain's configuration gives to the emulated battery clock, so
 * the kernel's adjustment (adjkerntz(8)) is right for both.
 *
 * What counts uptime is the kernel's own timecounter, which goes on from where it stopped: Xen saves
 * and restores the time-stamp counter and the emulated timers.
 *
 * Locking.  None: Xen writes, we read.
 *
 * Gaps.  A domain can't set Xen's time of day: it stays as the host has it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/clock.h>
#include <sys/proc.h>
#include <sys/time.h>

#include <machine/atomic.h>
#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/pvclock.h>

#include <dev/xen/xen_var.h>

#define	CLOCK_RESOLUTION	1		/* microsecond */
#define	CLOCK_NS		1000000000	/* a second */

/* One reading of it, and the version that it is of. */
static uint64_t
clock_read_system(volatile struct vcpu_time_info *ti, uint32_t *version)
{
	uint64_t ns;

	*version = ti->version;
	atomic_thread_fence_acq();
	ns = ti->system_time + pvclock_scale_delta(rdtsc_ordered() - ti->tsc_timestamp,
	    ti->tsc_to_system_mul, ti->tsc_shift);
	atomic_thread_fence_acq();
	return (ns);
}

uint64_t
xen_clock_system(void)
{
	volatile struct vcpu_time_info *ti;
	uint32_t version;
	uint64_t ns;

	critical_enter();
	ti = &xen_cpus[curcpu].xc_info->time;
	do {
		ns = clock_read_system(ti, &version);
	} while ((version & 1) != 0 || ti->version != version);
	critical_exit();
	return (ns);
}

/* The time of day when the system time began, in nanoseconds. */
static uint64_t
clock_read_begin(void)
{
	volatile struct shared_info *si = xen_shared;
	uint32_t version;
	uint64_t ns;

	do {
		version = si->wc_version;
		atomic_thread_fence_acq();
		ns = ((uint64_t)si->wc_sec_hi << 32 | si->wc_sec) * CLOCK_NS + si->wc_nsec;
		atomic_thread_fence_acq();
	} while ((version & 1) != 0 || si->wc_version != version);
	return (ns);
}

int
xen_clock_gettime(device_t dev __unused, struct timespec *ts)
{
	uint64_t ns = clock_read_begin() + xen_clock_system();

	ts->tv_sec = ns / CLOCK_NS;
	ts->tv_nsec = ns % CLOCK_NS;
	return (0);
}

int
xen_clock_settime(device_t dev __unused, struct timespec *ts __unused)
{

	return (0);
}

int
xen_clock_init(device_t dev)
{

	clock_register(dev, CLOCK_RESOLUTION);
	return (0);
}

void
xen_clock_fini(device_t dev)
{

	clock_unregister(dev);
}

void
xen_clock_resume(void)
{

	inittodr(time_second);
}
