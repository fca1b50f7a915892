/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen's clock: its system time, and the time of day.
 *
 * The system time is nanoseconds since the host was booted; the time of day is
 * that of its beginning, plus the system time.  How both are read is in
 * xen_clock_read.h.
 *
 * The root device is a time-of-day clock by it, clock_register(9): the kernel
 * reads it when it mounts its root file system, rather than a battery clock,
 * which counts seconds.  It is read again after a suspension, as the time that
 * passed meanwhile is in no counter of the domain's.  Xen's time of day has the
 * offset from UTC that the domain's configuration gives to the emulated battery
 * clock, so the kernel's adjustment (adjkerntz(8)) is right for both.
 *
 * What counts uptime is the kernel's own timecounter, which goes on from where
 * it stopped: Xen saves and restores the time-stamp counter and the emulated
 * timers.
 *
 * A domain is not told when it was paused (xl pause), or waited long for a
 * processor, and a timecounter that wraps meanwhile loses what it did not
 * count.  So each second it is compared with the system time, which goes on:
 * where they differ by more than CLOCK_TOLERANCE since the last time, the time
 * of day is read again.  Uptime stays behind.
 *
 * Locking.  None: Xen writes, we read; clock_seen is the task's, and of the
 * suspension while all else stands still.
 *
 * Gaps.  A domain can't set Xen's time of day: it stays as the host has it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/clock.h>
#include <sys/kernel.h>
#include <sys/proc.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>
#include <sys/time.h>

#include <dev/xen/xen_clock_read.h>
#include <dev/xen/xen_var.h>

#define	CLOCK_RESOLUTION	1		/* microsecond */
#define	CLOCK_PERIOD		SBT_1S
#define	CLOCK_TOLERANCE		(SBT_1S / 2)
#define	CLOCK_APART		(SBT_1MS * 10)	/* readings that belong
						 * together, at most */
#define	CLOCK_READINGS		10

static struct timeout_task clock_task;
static struct taskqueue *clock_queue;
static device_t clock_dev;
static sbintime_t clock_seen;	/* system time less uptime, at the last look */
static volatile u_int clock_again; /* atomic: what was seen
				    * is of another domain */
static uint64_t clock_steps;

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

/* The system time less the uptime; false: they can't be read at one time. */
static bool
clock_compare(sbintime_t *ahead)
{
	sbintime_t after, before;
	u_int i;

	for (i = 0; i < CLOCK_READINGS; i++) {
		before = sbinuptime();
		*ahead = nstosbt(xen_clock_system()) - before;
		after = sbinuptime();
		if (after - before < CLOCK_APART)
			return (true);
	}
	return (false);
}

static void
clock_look(void *arg __unused, int pending __unused)
{
	sbintime_t ahead, lost;
	bool again = atomic_readandclear_int(&clock_again) != 0;

	if (clock_compare(&ahead)) {
		lost = ahead - clock_seen;
		clock_seen = ahead;
		if (!again &&
		    (lost > CLOCK_TOLERANCE || lost < -CLOCK_TOLERANCE)) {
			clock_steps++;
			inittodr(time_second);
			device_printf(clock_dev,
			    "the clock was %s by %jd ms, and was set\n",
			    lost > 0 ? "behind" : "ahead",
			    (intmax_t)sbttoms(lost > 0 ? lost : -lost));
		}
	} else if (again)
		atomic_store_int(&clock_again, 1);
	taskqueue_enqueue_timeout_sbt(clock_queue, &clock_task, CLOCK_PERIOD,
	    CLOCK_PERIOD / 8, 0);
}

int
xen_clock_init(device_t dev)
{

	clock_dev = dev;
	clock_register(dev, CLOCK_RESOLUTION);
	clock_again = 1;
	/* inittodr() may sleep. */
	clock_queue = taskqueue_thread;
	TIMEOUT_TASK_INIT(clock_queue, &clock_task, 0, clock_look, NULL);
	taskqueue_enqueue_timeout(clock_queue, &clock_task, 0);
	return (0);
}

void
xen_clock_fini(device_t dev)
{

	if (clock_queue == NULL)
		return;
	while (taskqueue_cancel_timeout(clock_queue, &clock_task, NULL) != 0)
		taskqueue_drain_timeout(clock_queue, &clock_task);
	clock_queue = NULL;
	clock_unregister(dev);
}

void
xen_clock_resume(bool cancelled)
{

	/* The same domain may have stood still, as after a pause. */
	if (cancelled) {
		taskqueue_enqueue_timeout(clock_queue, &clock_task, 0);
		return;
	}
	atomic_store_int(&clock_again, 1);
	inittodr(time_second);
}

void
xen_clock_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{
	struct sysctl_oid *node;

	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(parent), OID_AUTO, "clock",
	    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "Time of day");
	SYSCTL_ADD_U64(ctx, SYSCTL_CHILDREN(node), OID_AUTO,
	    "steps", CTLFLAG_RD, &clock_steps, 0,
	    "Times that the clock was set after a pause");
}
