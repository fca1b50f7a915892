/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * eventtimers(9): hardware that interrupts at a given time.
 *
 * Locking.  et_eventtimers_mtx: the list, and which timers are in use.  The user of a timer
 * serialises starting and stopping it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sysctl.h>
#include <sys/timeet.h>

static SLIST_HEAD(, eventtimer) eventtimers = SLIST_HEAD_INITIALIZER(eventtimers);
struct mtx et_eventtimers_mtx;
MTX_SYSINIT(et_eventtimers, &et_eventtimers_mtx, "et_mtx", MTX_DEF);

SYSCTL_NODE(_kern, OID_AUTO, eventtimer, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "Event timers");

/* The list is in order of quality, the best first. */
int
et_register(struct eventtimer *et)
{
	struct eventtimer *e, *before = NULL;

	if (et->et_quality >= 0 || bootverbose)
		printf("Event timer \"%s\" %sfrequency %ju Hz quality %d\n", et->et_name,
		    et->et_frequency == 0 ? "unknown " : "", (uintmax_t)et->et_frequency,
		    et->et_quality);
	KASSERT(et->et_start != NULL, ("%s: %s can not be started", __func__, et->et_name));
	et->et_active = 0;
	ET_LOCK();
	SLIST_FOREACH(e, &eventtimers, et_all) {
		if (e->et_quality < et->et_quality)
			break;
		before = e;
	}
	if (before == NULL)
		SLIST_INSERT_HEAD(&eventtimers, et, et_all);
	else
		SLIST_INSERT_AFTER(before, et, et_all);
	ET_UNLOCK();
	return (0);
}

int
et_deregister(struct eventtimer *et)
{
	int error = 0;

	if (et->et_deregister_cb != NULL)
		error = et->et_deregister_cb(et, et->et_arg);
	if (error != 0)
		return (error);
	ET_LOCK();
	SLIST_REMOVE(&eventtimers, et, eventtimer, et_all);
	ET_UNLOCK();
	return (0);
}

void
et_change_frequency(struct eventtimer *et, uint64_t newfreq)
{
	et->et_frequency = newfreq;
}

/* The best timer that is not in use, of that name if it is given, with those of its flags. */
struct eventtimer *
et_find(const char *name, int check, int want)
{
	struct eventtimer *et;

	SLIST_FOREACH(et, &eventtimers, et_all)
		if (et->et_active == 0 && (name == NULL || strcasecmp(et->et_name, name) == 0) &&
		    (name != NULL || et->et_quality >= 0) && (et->et_flags & check) == want)
			return (et);
	return (NULL);
}

int
et_init(struct eventtimer *et, et_event_cb_t *event, et_deregister_cb_t *deregister, void *arg)
{
	if (event == NULL)
		return (EINVAL);
	if (et->et_active != 0)
		return (EBUSY);
	et->et_active = 1;
	et->et_event_cb = event;
	et->et_deregister_cb = deregister;
	et->et_arg = arg;
	return (0);
}

/* first 0: periodic from period on; period 0: once. */
int
et_start(struct eventtimer *et, sbintime_t first, sbintime_t period)
{
	if (period != 0)
		period = MIN(MAX(period, et->et_min_period), et->et_max_period);
	if (period == 0 || first != 0)
		first = MIN(MAX(first, et->et_min_period), et->et_max_period);
	return (et->et_start(et, first, period));
}

int
et_stop(struct eventtimer *et)
{
	return (et->et_stop != NULL ? et->et_stop(et) : 0);
}

int
et_ban(struct eventtimer *et)
{
	et->et_flags &= ~(ET_FLAGS_PERIODIC | ET_FLAGS_ONESHOT);
	return (0);
}

int
et_free(struct eventtimer *et)
{
	et->et_active = 0;
	return (0);
}
