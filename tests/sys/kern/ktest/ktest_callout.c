/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * callout(9): when, where and under which lock functions are called; stopping and draining.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/callout.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/rwlock.h>
#include <sys/smp.h>

#include <machine/cpu.h>

#include "ktest.h"

#define	MANY	200		/* callouts of each CPU */

struct alarm {
	struct callout	c;
	struct mtx	mtx;
	struct rwlock	rw;
	sbintime_t	due;
	volatile u_int	calls;
	volatile int	running;
	volatile int	cpu;		/* where it was called */
	volatile int	order;		/* as which of all */
	volatile bool	hold;		/* the function stays until this is cleared */
	volatile bool	forbidden;	/* it must not be called now */
	volatile bool	again;		/* it schedules itself */
};

static volatile u_int alarm_order;

static void
alarm_ring(void *arg)
{
	struct alarm *a = arg;

	KT_TRUE(!a->forbidden);
	KT_TRUE(sbinuptime() >= a->due);
	a->running = 1;
	a->cpu = curcpu;
	a->order = atomic_fetchadd_int(&alarm_order, 1);
	KT_SPIN(!a->hold);
	a->running = 0;
	a->calls++;
}

static void
alarm_set(struct alarm *a, sbintime_t in, int cpu, int flags)
{
	a->due = sbinuptime() + in;
	callout_reset_sbt_on(&a->c, in, 0, alarm_ring, a, cpu, flags);
}

/* Calls eight with the timer of their CPU held up until stall after the first one's time. */
static void
callout_in_order(sbintime_t stall)
{
	static const int ms[] = { 60, 10, 400, 110, 0, 160, 270, 35 };
	struct alarm *a;
	sbintime_t first;
	u_int i, j;

	a = malloc(sizeof(*a) * nitems(ms), M_KTEST, M_WAITOK | M_ZERO);
	for (i = 0; i < nitems(ms); i++)
		callout_init(&a[i].c, 1);
	/* All of them have to be set before the first is due, however slow the host. */
	do {
		for (i = 0; i < nitems(ms); i++) {
			callout_drain(&a[i].c);
			a[i].calls = 0;
		}
		alarm_order = 0;
		first = sbinuptime() + 20 * SBT_1MS;
		for (i = 0; i < nitems(ms); i++) {
			a[i].due = first + ms[i] * SBT_1MS;
			callout_reset_sbt_on(&a[i].c, a[i].due, 0, alarm_ring, &a[i], 0,
			    C_ABSOLUTE);
		}
	} while (sbinuptime() >= first);
	if (stall != 0) {
		spinlock_enter();
		while (sbinuptime() < first + stall)
			cpu_spinwait();
		spinlock_exit();
	}
	KT_WAIT(alarm_order == nitems(ms));
	for (i = 0; i < nitems(ms); i++) {
		/* The last one may not have returned yet. */
		KT_WAIT(callout_drain(&a[i].c) == -1);
		KT_EQ(a[i].calls, 1);
		KT_EQ(a[i].cpu, 0);
		for (j = 0; j < nitems(ms); j++)
			KT_EQ(a[i].order < a[j].order, ms[i] < ms[j]);
	}
	free(a, M_KTEST);
}

/* Those that are due first are called first, and none before its time. */
static void
callout_order(void)
{
	callout_in_order(0);
}

/* So are those that one interrupt finds due: a host can keep a guest still for long. */
static void
callout_order_after_a_pause(void)
{
	sbintime_t stall;

	ktest_stay(0);
	for (stall = 30 * SBT_1MS; stall <= 480 * SBT_1MS; stall += 150 * SBT_1MS)
		callout_in_order(stall);
	ktest_stay(KT_ANYCPU);
}

static void
callout_return_values(void)
{
	struct alarm a = { .calls = 0 };

	callout_init(&a.c, 1);
	KT_TRUE(!callout_pending(&a.c) && !callout_active(&a.c));
	KT_EQ(callout_stop(&a.c), -1);
	KT_EQ(callout_reset(&a.c, 60 * hz, alarm_ring, &a), 0);
	KT_TRUE(callout_pending(&a.c) && callout_active(&a.c));
	KT_EQ(callout_reset(&a.c, 50 * hz, alarm_ring, &a), 1);
	KT_EQ(callout_schedule(&a.c, 40 * hz), 1);
	KT_EQ(callout_stop(&a.c), 1);
	KT_TRUE(!callout_pending(&a.c) && !callout_active(&a.c));
	KT_EQ(callout_stop(&a.c), -1);
	KT_EQ(callout_drain(&a.c), -1);
	/* After it was called: active until it is deactivated, not pending. */
	alarm_set(&a, SBT_1MS, -1, 0);
	KT_WAIT(a.calls == 1);
	KT_WAIT(a.running == 0);
	KT_TRUE(!callout_pending(&a.c) && callout_active(&a.c));
	callout_deactivate(&a.c);
	KT_TRUE(!callout_active(&a.c));
	KT_WAIT(callout_drain(&a.c) == -1);
	/* While it is being called, on another CPU, it can't be stopped. */
	if (mp_ncpus == 1)
		return;
	ktest_stay(0);
	a.hold = true;
	alarm_set(&a, SBT_1MS, ktest_last_cpu(), 0);
	KT_WAIT(a.running == 1);
	KT_EQ(callout_stop(&a.c), 0);
	/* It can be scheduled again, and that can be stopped; it still runs. */
	KT_EQ(callout_reset(&a.c, 60 * hz, alarm_ring, &a), 0);
	KT_TRUE(callout_pending(&a.c));
	KT_EQ(callout_stop(&a.c), 0);
	KT_TRUE(!callout_pending(&a.c));
	a.hold = false;
	callout_drain(&a.c);
	KT_EQ(a.calls, 2);
	KT_EQ(callout_stop(&a.c), -1);
	ktest_stay(KT_ANYCPU);
}

static void
release_later(void *arg, int me)
{
	struct alarm *a = arg;

	pause("ktest", hz / 20);
	a->hold = false;
}

static void
callout_drain_waits(void)
{
	struct alarm a = { .calls = 0 };
	struct ktest_thread *kt;
	int flags;

	/* A function that is being called keeps its CPU. */
	if (mp_ncpus == 1)
		return;
	ktest_stay(0);
	callout_init(&a.c, 1);
	for (flags = 0; flags <= C_DIRECT_EXEC; flags++) {
		a.calls = 0;
		a.hold = true;
		alarm_set(&a, SBT_1MS, ktest_last_cpu(), flags);
		KT_WAIT(a.running == 1);
		kt = ktest_spawn(release_later, &a, 0, 0, 0);
		callout_drain(&a.c);
		KT_EQ(a.calls, 1);
		KT_EQ(a.running, 0);
		ktest_join(kt);
	}
	ktest_stay(KT_ANYCPU);
}

static void
alarm_repeat(void *arg)
{
	struct alarm *a = arg;

	a->calls++;
	callout_schedule_sbt(&a->c, 200 * SBT_1US, 0, 0);
}

static void
callout_drain_ends_periodic(void)
{
	struct alarm a = { .calls = 0 };
	u_int calls;
	int i;

	callout_init(&a.c, 1);
	for (i = 0; i < 50; i++) {
		calls = a.calls;
		callout_reset_sbt_on(&a.c, 0, 0, alarm_repeat, &a, i % (mp_maxid + 1), 0);
		KT_WAIT(a.calls > calls + 3);
		callout_drain(&a.c);
		calls = a.calls;
		KT_TRUE(!callout_pending(&a.c));
		if (i % 10 == 0)
			pause("ktest", 2);
		KT_EQ(a.calls, calls);
	}
}

static void
alarm_locked(void *arg)
{
	struct alarm *a = arg;

	mtx_assert(&a->mtx, MA_OWNED);
	KT_TRUE(!a->forbidden);
	a->calls++;
	if (a->again)
		callout_schedule_sbt(&a->c, 100 * SBT_1US, 0, 0);
}

/* Who holds the lock and stops it can be sure that it is not called afterwards. */
static void
callout_stop_under_its_lock(void)
{
	struct alarm a = { .calls = 0 };
	uint32_t seed = 4711;
	u_int calls;
	int i, stopped = 0;

	mtx_init(&a.mtx, "ktest alarm", NULL, MTX_DEF);
	callout_init_mtx(&a.c, &a.mtx, 0);
	for (i = 0; i < 500 * ktest_rounds; i++) {
		mtx_lock(&a.mtx);
		a.forbidden = false;
		a.again = i % 3 == 0;
		calls = a.calls;
		callout_reset_sbt_on(&a.c, SBT_1US * (ktest_random(&seed) % 200), 0, alarm_locked,
		    &a, i % (mp_maxid + 1), 0);
		if (i % 2 == 0)
			mtx_unlock(&a.mtx);
		/* In every other round it is due, and waits for the lock, when it is stopped. */
		DELAY(ktest_random(&seed) % 300);
		if (i % 2 == 0)
			mtx_lock(&a.mtx);
		/* 0 may still speak of the call before, which is about to return. */
		switch (callout_stop(&a.c)) {
		case 1:
			stopped++;
			break;
		case -1:
			KT_TRUE(a.calls > calls);
			break;
		}
		a.forbidden = true;
		KT_TRUE(!callout_pending(&a.c));
		mtx_unlock(&a.mtx);
	}
	KT_TRUE(stopped >= 1);
	callout_drain(&a.c);
	mtx_destroy(&a.mtx);
}

static void
alarm_returns_unlocked(void *arg)
{
	struct alarm *a = arg;

	mtx_assert(&a->mtx, MA_OWNED);
	mtx_unlock(&a->mtx);
	a->calls++;
}

static void
alarm_shared(void *arg)
{
	struct alarm *a = arg;

	rw_assert(&a->rw, RA_RLOCKED);
	KT_TRUE(!rw_wowned(&a->rw));
	a->calls++;
}

static void
callout_lock_flags(void)
{
	struct alarm a = { .calls = 0 };

	mtx_init(&a.mtx, "ktest alarm", NULL, MTX_DEF);
	rw_init(&a.rw, "ktest alarm rw");
	callout_init_mtx(&a.c, &a.mtx, CALLOUT_RETURNUNLOCKED);
	callout_reset(&a.c, 1, alarm_returns_unlocked, &a);
	KT_WAIT(a.calls == 1);
	callout_drain(&a.c);
	KT_EQ(mtx_trylock(&a.mtx), 1);
	mtx_unlock(&a.mtx);
	callout_init_rw(&a.c, &a.rw, CALLOUT_SHAREDLOCK);
	/* As a reader it need not wait for another. */
	rw_rlock(&a.rw);
	callout_reset_on(&a.c, 1, alarm_shared, &a, ktest_last_cpu());
	KT_SPIN(a.calls == 2);
	rw_runlock(&a.rw);
	callout_drain(&a.c);
	KT_EQ(rw_try_wlock(&a.rw), 1);
	rw_wunlock(&a.rw);
	rw_destroy(&a.rw);
	mtx_destroy(&a.mtx);
}

static void
alarm_direct(void *arg)
{
	struct alarm *a = arg;

	KT_TRUE(curthread->td_intr_nesting_level > 0);
	a->cpu = curcpu;
	a->calls++;
}

static void
callout_direct_exec(void)
{
	struct alarm a = { .calls = 0 };
	int i;

	callout_init(&a.c, 1);
	for (i = 0; i < 50; i++) {
		a.calls = 0;
		callout_reset_sbt_on(&a.c, 100 * SBT_1US, 0, alarm_direct, &a,
		    i % (mp_maxid + 1), C_DIRECT_EXEC);
		KT_WAIT(a.calls == 1);
		KT_EQ(a.cpu, i % (mp_maxid + 1));
		callout_drain(&a.c);
	}
}

static void
callout_many_on_all_cpus(void)
{
	struct alarm *a;
	uint32_t seed = 5;
	int i, n = MANY * mp_ncpus;

	a = malloc(sizeof(*a) * n, M_KTEST, M_WAITOK | M_ZERO);
	alarm_order = 0;
	for (i = 0; i < n; i++) {
		callout_init(&a[i].c, 1);
		alarm_set(&a[i], SBT_1US * (ktest_random(&seed) % 200000), i % mp_ncpus,
		    i % 5 == 0 ? C_DIRECT_EXEC : 0);
	}
	KT_WAIT(alarm_order == n);
	for (i = 0; i < n; i++) {
		callout_drain(&a[i].c);
		KT_EQ(a[i].calls, 1);
		KT_EQ(a[i].cpu, i % mp_ncpus);
	}
	free(a, M_KTEST);
}

static void
callout_moves_to_another_cpu(void)
{
	struct alarm a = { .calls = 0 };
	int i;

	callout_init(&a.c, 1);
	for (i = 0; i < 20; i++) {
		a.calls = 0;
		alarm_set(&a, 50 * SBT_1S, i % mp_ncpus, 0);
		alarm_set(&a, SBT_1MS, (i + 1) % mp_ncpus, 0);
		KT_WAIT(a.calls == 1);
		KT_EQ(a.cpu, (i + 1) % mp_ncpus);
		/* Without a CPU it stays where it was. */
		a.calls = 0;
		alarm_set(&a, SBT_1MS, -1, 0);
		KT_WAIT(a.calls == 1);
		KT_EQ(a.cpu, (i + 1) % mp_ncpus);
		callout_drain(&a.c);
	}
}

/* A later time that replaces an earlier one holds, and the other way round. */
static void
callout_reset_changes_time(void)
{
	struct alarm a = { .calls = 0 };
	sbintime_t due;

	callout_init(&a.c, 1);
	/* Once more where the host is so slow that the earlier time has passed. */
	do {
		callout_drain(&a.c);
		a.calls = 0;
		a.due = 0;
		callout_reset_sbt_on(&a.c, SBT_1MS, 0, alarm_ring, &a, 0, 0);
		due = sbinuptime() + 100 * SBT_1MS;
	} while (callout_reset_sbt_on(&a.c, due, 0, alarm_ring, &a, 0, C_ABSOLUTE) != 1);
	a.due = due;
	KT_WAIT(a.calls == 1);
	callout_drain(&a.c);
	alarm_set(&a, 3600 * SBT_1S, 0, 0);
	alarm_set(&a, SBT_1MS, 0, 0);
	KT_WAIT(a.calls == 2);
	a.due = sbinuptime() + 3 * SBT_1MS;
	callout_reset_sbt_on(&a.c, a.due, 0, alarm_ring, &a, 0, C_ABSOLUTE);
	KT_WAIT(a.calls == 3);
	/* A time that has passed: at once. */
	a.due = 0;
	callout_reset_sbt_on(&a.c, SBT_1S, 0, alarm_ring, &a, 0, C_ABSOLUTE);
	KT_WAIT(a.calls == 4);
	callout_drain(&a.c);
}

#define	STRESSED	8

static void
callout_stresser(void *arg, int me)
{
	struct alarm *all = arg, *a;
	uint32_t seed = 100 + me;
	u_int i;

	for (i = 0; i < 1500u * ktest_rounds; i++) {
		a = &all[ktest_random(&seed) % STRESSED];
		switch (ktest_random(&seed) % 8) {
		case 0:
			callout_stop(&a->c);
			break;
		case 1:
			callout_drain(&a->c);
			break;
		default:
			/* due is shared, and so says nothing here. */
			callout_reset_sbt_on(&a->c, SBT_1US * (ktest_random(&seed) % 1000), 0,
			    alarm_ring, a, (int)(ktest_random(&seed) % (mp_maxid + 2)) - 1,
			    ktest_random(&seed) % 4 == 0 ? C_DIRECT_EXEC : 0);
			break;
		}
		if (i % 16 == 0)
			DELAY(ktest_random(&seed) % 500);
	}
}

static void
callout_stress(void)
{
	struct alarm *a;
	int i;

	a = malloc(sizeof(*a) * STRESSED, M_KTEST, M_WAITOK | M_ZERO);
	for (i = 0; i < STRESSED; i++)
		callout_init(&a[i].c, 1);
	ktest_run(4, false, callout_stresser, a);
	for (i = 0; i < STRESSED; i++) {
		/* Each still works. */
		callout_drain(&a[i].c);
		a[i].calls = 0;
		alarm_set(&a[i], SBT_1MS, -1, 0);
		KT_WAIT(a[i].calls == 1);
		callout_drain(&a[i].c);
		a[i].forbidden = true;
	}
	pause("ktest", hz / 50);
	for (i = 0; i < STRESSED; i++)
		KT_EQ(a[i].running, 0);
	free(a, M_KTEST);
}

const struct ktest_case ktest_callout_cases[] = {
	{ "callout.order", callout_order },
	{ "callout.order_after_a_pause", callout_order_after_a_pause },
	{ "callout.return_values", callout_return_values },
	{ "callout.reset_changes_time", callout_reset_changes_time },
	{ "callout.drain_waits", callout_drain_waits },
	{ "callout.drain_ends_periodic", callout_drain_ends_periodic },
	{ "callout.stop_under_its_lock", callout_stop_under_its_lock },
	{ "callout.lock_flags", callout_lock_flags },
	{ "callout.direct_exec", callout_direct_exec },
	{ "callout.many_on_all_cpus", callout_many_on_all_cpus },
	{ "callout.moves_to_another_cpu", callout_moves_to_another_cpu },
	{ "callout.stress", callout_stress },
	{ NULL, NULL }
};
