/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Arithmetic on time, and rate limits (ratecheck(9)).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/limits.h>
#include <sys/time.h>

static void
timevalfix(struct timeval *tv)
{
	if (tv->tv_usec < 0) {
		tv->tv_sec--;
		tv->tv_usec += 1000000;
	} else if (tv->tv_usec >= 1000000) {
		tv->tv_sec++;
		tv->tv_usec -= 1000000;
	}
}

void
timevaladd(struct timeval *t1, const struct timeval *t2)
{
	t1->tv_sec += t2->tv_sec;
	t1->tv_usec += t2->tv_usec;
	timevalfix(t1);
}

void
timevalsub(struct timeval *t1, const struct timeval *t2)
{
	t1->tv_sec -= t2->tv_sec;
	t1->tv_usec -= t2->tv_usec;
	timevalfix(t1);
}

/* Ticks that are not less than tv, one more for the tick that has begun. */
int
tvtohz(struct timeval *tv)
{
	int64_t n;

	if (tv->tv_sec < 0)
		return (1);
	if (tv->tv_sec > tick_seconds_max)
		return (INT_MAX);
	n = (int64_t)tv->tv_sec * hz + howmany((int64_t)tv->tv_usec, tick) + 1;
	return ((int)MIN(n, INT_MAX));
}

/* True, and *lasttime is now, when mininterval has passed since *lasttime. */
int
ratecheck(struct timeval *lasttime, const struct timeval *mininterval)
{
	struct timeval now, delta;

	getmicrouptime(&now);
	delta = now;
	timevalsub(&delta, lasttime);
	if (timevalcmp(&delta, mininterval, <) && timevalisset(lasttime))
		return (0);
	*lasttime = now;
	return (1);
}

/*
 * Counts events; true for the first maxeps of each second.  *lasttime keeps ticks in tv_sec.
 */
int
eventratecheck(struct timeval *lasttime, int *cureps, int maxeps)
{
	int now = ticks;

	if (lasttime->tv_sec == 0 || (u_int)now - (u_int)lasttime->tv_sec >= (u_int)hz) {
		lasttime->tv_sec = now != 0 ? now : 1;
		*cureps = 1;
		return (maxeps != 0);
	}
	(*cureps)++;
	return (maxeps < 0 || *cureps <= maxeps);
}
