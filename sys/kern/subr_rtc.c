/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Time-of-day clocks (sys/clock.h): drivers register them, inittodr() sets the time by the finest
 * one that answers.  It is called once when the kernel has started, if there is a clock, and
 * whenever the time may have been lost.
 *
 * Locking.  rtc_lock (sx): the list.
 *
 * Gaps.  Clocks are read only.  All are in UTC.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/clock.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/queue.h>
#include <sys/sx.h>
#include <sys/time.h>
#include <sys/timetc.h>

#include "clock_if.h"

struct rtc {
	LIST_ENTRY(rtc)	 rtc_link;
	device_t	 rtc_dev;
	long		 rtc_resolution;	/* microseconds */
};

static LIST_HEAD(rtc_head, rtc) rtc_list = LIST_HEAD_INITIALIZER(rtc_list);
static struct sx rtc_lock;
SX_SYSINIT(rtc, &rtc_lock, "rtc list");

/* The finest first. */
void
clock_register_flags(device_t dev, long resolution, int flags __unused)
{
	struct rtc *new, *next, *prev = NULL;

	new = malloc(sizeof(*new), M_DEVBUF, M_WAITOK | M_ZERO);
	new->rtc_dev = dev;
	new->rtc_resolution = resolution;
	sx_xlock(&rtc_lock);
	LIST_FOREACH(next, &rtc_list, rtc_link) {
		if (next->rtc_resolution > resolution)
			break;
		prev = next;
	}
	if (prev == NULL)
		LIST_INSERT_HEAD(&rtc_list, new, rtc_link);
	else
		LIST_INSERT_AFTER(prev, new, rtc_link);
	sx_xunlock(&rtc_lock);
	device_printf(dev, "registered as a time-of-day clock, resolution %ld.%06lds\n",
	    resolution / 1000000, resolution % 1000000);
}

void
clock_register(device_t dev, long resolution)
{
	clock_register_flags(dev, resolution, 0);
}

void
clock_unregister(device_t dev)
{
	struct rtc *rtc;

	sx_xlock(&rtc_lock);
	LIST_FOREACH(rtc, &rtc_list, rtc_link) {
		if (rtc->rtc_dev == dev)
			break;
	}
	if (rtc != NULL)
		LIST_REMOVE(rtc, rtc_link);
	sx_xunlock(&rtc_lock);
	free(rtc, M_DEVBUF);
}

void
inittodr(time_t base __unused)
{
	struct timespec ts;
	struct rtc *rtc;

	sx_slock(&rtc_lock);
	LIST_FOREACH(rtc, &rtc_list, rtc_link) {
		if (CLOCK_GETTIME(rtc->rtc_dev, &ts) == 0)
			break;
	}
	sx_sunlock(&rtc_lock);
	if (rtc == NULL)
		printf("Warning: no time-of-day clock, system time will not be set accurately\n");
	else
		tc_setclock(&ts);
}

static void
rtc_begin(void *dummy __unused)
{
	if (!LIST_EMPTY(&rtc_list))
		inittodr(0);
}
SYSINIT(rtc, SI_SUB_ROOT_CONF, SI_ORDER_ANY, rtc_begin, NULL);
