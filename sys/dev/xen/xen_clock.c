/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen's clock: its system time, and the time of day.
 *
 * The system time is nanoseconds since the host was booted; the time of day is that of its beginning,
 * plus the system time.  How both are read is in xen_clock_read.h.
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

#include <dev/xen/xen_clock_read.h>
#include <dev/xen/xen_var.h>

#define	CLOCK_RESOLUTION	1		/* microsecond */

uint64_t
xen_clock_system(void)
{
	uint64_t ns;

	critical_enter();
	ns = xen_clock_read_system(&xen_cpus[curcpu].xc_info->time);
	critical_exit();
	return (ns);
}

int
xen_clock_gettime(device_t dev __unused, struct timespec *ts)
{
	uint64_t ns = xen_clock_read_begin(xen_shared) + xen_clock_system();

	ts->tv_sec = ns / XEN_CLOCK_SECOND;
	ts->tv_nsec = ns % XEN_CLOCK_SECOND;
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
