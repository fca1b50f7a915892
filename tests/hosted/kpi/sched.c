/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * callout(9) and sleep(9) of a driver whose threads are all the test's one.  Time passes when the test
 * says so.  A callout that has a lock runs with it, and is not drained by who holds that, which would
 * wait for ever; so would who sleeps.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/callout.h>
#include <sys/epoch.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/smp.h>

#include "../host/host.h"
#include "kpi.h"
#include "sched.h"

#define	KPI_MAX_CALLOUTS	32
#define	KPI_CALLOUT		77	/* the CPU of one that was initialised */

int hz = 100;
volatile int ticks;
sbintime_t tick_sbt = SBT_1S / 100;
u_int mp_maxid;
cpuset_t all_cpus = CPUSET_T_INITIALIZER(1);
epoch_t net_epoch_preempt;
int kpi_callouts;
bool kpi_late;
void (*kpi_epoch_waits)(void);

static struct callout *kpi_pending[KPI_MAX_CALLOUTS];

void
callout_init(struct callout *c, int mpsafe)
{

	CHECK(mpsafe != 0, "a callout with Giant");
	memset(c, 0, sizeof(*c));
	c->c_cpu = KPI_CALLOUT;
}

void
_callout_init_lock(struct callout *c, struct lock_object *lock, int flags)
{

	CHECK((flags & ~CALLOUT_RETURNUNLOCKED) == 0, "flags 0x%x", flags);
	memset(c, 0, sizeof(*c));
	c->c_cpu = KPI_CALLOUT;
	c->c_lock = lock;
	c->c_iflags = flags;
}

/* It runs no more; true if it would have. */
static bool
kpi_callout_forget(struct callout *c)
{
	int i;

	for (i = 0; i < kpi_callouts; i++) {
		if (kpi_pending[i] != c)
			continue;
		kpi_pending[i] = kpi_pending[--kpi_callouts];
		c->c_iflags &= ~CALLOUT_PENDING;
		return (true);
	}
	return (false);
}

int
callout_reset_sbt_on(struct callout *c, sbintime_t sbt, sbintime_t pr, callout_func_t *func,
    void *arg, int cpu __unused, int flags)
{
	bool pending = kpi_callout_forget(c);

	CHECK(c->c_cpu == KPI_CALLOUT, "not initialised");
	if (c->c_lock != NULL)
		mtx_assert(__containerof(c->c_lock, struct mtx, lock_object), MA_OWNED);
	CHECK(kpi_callouts < KPI_MAX_CALLOUTS && sbt > 0, "too many callouts, or none");
	CHECK(pr >= 0 && pr < sbt, "as late again");
	CHECK((flags & C_DIRECT_EXEC) == 0, "in an interrupt, which can't have a mutex");
	c->c_func = func;
	c->c_arg = arg;
	c->c_time = kpi_uptime + sbt + (kpi_late ? pr : 0);
	c->c_iflags |= CALLOUT_PENDING;
	kpi_pending[kpi_callouts++] = c;
	return (pending);
}

int
_callout_stop_safe(struct callout *c, int flags)
{

	CHECK(c->c_cpu == KPI_CALLOUT, "not initialised");
	if ((flags & CS_DRAIN) != 0 && c->c_lock != NULL)
		mtx_assert(__containerof(c->c_lock, struct mtx, lock_object), MA_NOTOWNED);
	return (kpi_callout_forget(c));
}

static void
kpi_callout_run(struct callout *c)
{
	struct mtx *mtx = c->c_lock == NULL ? NULL :
	    __containerof(c->c_lock, struct mtx, lock_object);
	bool unlocks;

	if (mtx != NULL)
		mtx_lock(mtx);
	unlocks = (c->c_iflags & CALLOUT_RETURNUNLOCKED) != 0;
	c->c_func(c->c_arg);
	if (mtx != NULL && !unlocks)
		mtx_unlock(mtx);
}

void
kpi_pass(sbintime_t time)
{
	sbintime_t until = kpi_uptime + time;
	struct callout *next;
	int i;

	for (;;) {
		next = NULL;
		for (i = 0; i < kpi_callouts; i++) {
			if (kpi_pending[i]->c_time <= until &&
			    (next == NULL || kpi_pending[i]->c_time < next->c_time))
				next = kpi_pending[i];
		}
		if (next == NULL)
			break;
		kpi_uptime = MAX(kpi_uptime, next->c_time);
		ticks = kpi_uptime / tick_sbt;
		(void)kpi_callout_forget(next);
		kpi_callout_run(next);
	}
	kpi_uptime = until;
	ticks = kpi_uptime / tick_sbt;
}

/* Whom wakeup() was called for last. */
static const void *kpi_woken;
u_int kpi_wakeups;

/* There is one thread, the test's: while it sleeps, time passes, and kpi_pause() is what others do. */
__attribute__((__weak__)) int
_sleep(const void *chan, struct lock_object *lock, int pri, const char *wmesg, sbintime_t sbt,
    sbintime_t pr __unused, int flags __unused)
{
	struct mtx *mtx = __containerof(lock, struct mtx, lock_object);

	CHECK((pri & PDROP) == 0 && (sbt > 0 || kpi_pause != NULL), "%s: nobody would wake it", wmesg);
	mtx_unlock(mtx);
	kpi_woken = NULL;
	if (kpi_pause != NULL)
		kpi_pause();
	if (kpi_woken != chan)
		kpi_pass(sbt);
	mtx_lock(mtx);
	CHECK(sbt > 0 || kpi_woken == chan, "%s: nobody woke it", wmesg);
	return (kpi_woken == chan ? 0 : EWOULDBLOCK);
}

__attribute__((__weak__)) void
wakeup(const void *chan)
{

	kpi_woken = chan;
	kpi_wakeups++;
}

void
kern_yield(int pri __unused)
{

	CHECK(kpi_mutexes == 0, "a lock is held");
}

void
epoch_wait_preempt(epoch_t epoch __unused)
{

	CHECK(kpi_mutexes == 0, "a lock is held");
	if (kpi_epoch_waits != NULL)
		kpi_epoch_waits();
}

void
critical_enter_KBI(void)
{
}

void
critical_exit_KBI(void)
{
}
