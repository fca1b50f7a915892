/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The next timer interrupt of each CPU: the clock's ticks and the callouts share one event timer.
 *
 * Each CPU's timer is set, once at a time, to the sooner of its next tick and its next callout.
 * An idle CPU has no ticks.  Becoming idle does not set the timer: if the CPU is still idle when
 * the tick comes, the timer is set to the next callout instead, and the missed ticks are made up
 * for when the CPU becomes busy.  So work that arrives more often than the ticks causes no timer
 * accesses for idling.
 *
 * Locking.  Only a CPU itself accesses its state, with interrupts off.  A CPU that gives another
 * one an earlier callout sends it an IPI (IPI_HARDCLOCK, hardclockintr()), which sets the timer
 * again.
 *
 * The timer is the best one available when the clocks start, or that of kern.eventtimer.timer;
 * later it can be changed by that sysctl.
 *
 * Gaps.  The timer must be per-CPU and one-shot, as the local APIC's is.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <sys/time.h>
#include <sys/timeet.h>

#include <machine/smp.h>

#include <kern/clock_tree.h>

struct clock_state {
	sbintime_t	cs_tick;	/* next tick */
	sbintime_t	cs_set;		/* what the timer is set to; SBT_MAX: not set */
	bool		cs_idle;
	bool		cs_running;
};
DPCPU_DEFINE_STATIC(struct clock_state, clock_state);

#define	CLOCK_ET_FLAGS	(ET_FLAGS_PERCPU | ET_FLAGS_ONESHOT)

static struct eventtimer *clock_et;

/*
 * Sets the timer to the next event, unless it is set to an earlier time.  It is never set to a
 * later one: cpu_new_callout() on another CPU relies on the value that it read from cs_set.
 */
static void
clock_set(struct clock_state *cs, sbintime_t now)
{
	sbintime_t next = callout_first(curcpu);

	if (!cs->cs_idle)
		next = MIN(next, cs->cs_tick);
	else if (curcpu == 0)
		next = qmin(next, now + tc_max_idle());
	if (next >= cs->cs_set)
		return;
	cs->cs_set = next;
	et_start(clock_et, MAX(next - now, 1), 0);
}

/* Runs everything that is due; interrupts are off. */
static void
clock_run(struct clock_state *cs)
{
	sbintime_t now = sbinuptime();
	int64_t cnt;

	if (now >= cs->cs_tick) {
		cnt = 1;
		cs->cs_tick += tick_sbt;
		if (__predict_false(now >= cs->cs_tick)) {
			cnt += (now - cs->cs_tick) / tick_sbt + 1;
			cs->cs_tick += (cnt - 1) * tick_sbt;
		}
		hardclock(cnt, 0);
	}
	if (now >= callout_first(curcpu))
		callout_process(now);
	clock_set(cs, now);
}

static void
clock_event(struct eventtimer *et __unused, void *arg __unused)
{
	struct clock_state *cs = DPCPU_PTR(clock_state);

	if (!cs->cs_running)
		return;
	spinlock_enter();
	cs->cs_set = SBT_MAX;
	/* Pairs with the fence in cpu_new_callout(): it sees SBT_MAX, or we its callout. */
	atomic_thread_fence_seq_cst();
	clock_run(cs);
	spinlock_exit();
}

/* IPI_HARDCLOCK. */
int
hardclockintr(void)
{
	struct clock_state *cs = DPCPU_PTR(clock_state);

	if (cs->cs_running) {
		spinlock_enter();
		clock_run(cs);
		spinlock_exit();
	}
	return (FILTER_HANDLED);
}

/*
 * This CPU becomes idle, or later becomes busy again.  Returns how long it may sleep at least; the
 * caller has interrupts off or is in a critical section.
 */
sbintime_t
cpu_idleclock(void)
{
	struct clock_state *cs = DPCPU_PTR(clock_state);

	cs->cs_idle = true;
	return (0);
}

void
cpu_activeclock(void)
{
	struct clock_state *cs = DPCPU_PTR(clock_state);

	if (!cs->cs_idle)
		return;
	cs->cs_idle = false;
	if (!cs->cs_running || cs->cs_set <= cs->cs_tick)
		return;
	spinlock_enter();
	clock_run(cs);
	spinlock_exit();
}

/* cpu's first callout is now due at bt, or at bt_opt at the latest; the callout lock is held. */
void
cpu_new_callout(int cpu, sbintime_t bt __unused, sbintime_t bt_opt)
{
	struct clock_state *cs = DPCPU_ID_PTR(cpu, clock_state);

	atomic_thread_fence_seq_cst();
	if (!cs->cs_running || bt_opt >= cs->cs_set)
		return;
	if (cpu == curcpu)
		clock_set(cs, sbinuptime());
	else
		ipi_cpu(cpu, IPI_HARDCLOCK);
}

static void
clock_start(void)
{
	struct clock_state *cs = DPCPU_PTR(clock_state);
	sbintime_t now;

	spinlock_enter();
	now = sbinuptime();
	hardclock_sync(curcpu);
	cs->cs_tick = now + tick_sbt;
	cs->cs_set = SBT_MAX;
	cs->cs_running = true;
	clock_set(cs, now);
	spinlock_exit();
}

void
cpu_initclocks_bsp(void)
{
	char name[32];

	if (TUNABLE_STR_FETCH("kern.eventtimer.timer", name, sizeof(name)))
		clock_et = et_find(name, CLOCK_ET_FLAGS, CLOCK_ET_FLAGS);
	if (clock_et == NULL)
		clock_et = et_find(NULL, CLOCK_ET_FLAGS, CLOCK_ET_FLAGS);
	if (clock_et == NULL)
		panic("no usable event timer: the CPU needs a local APIC timer");
	et_init(clock_et, clock_event, NULL, NULL);
	clock_start();
}

void
cpu_initclocks_ap(void)
{
	if (clock_et != NULL)
		clock_start();
}

void
cpu_et_frequency(struct eventtimer *et, uint64_t newfreq)
{
	et->et_frequency = newfreq;
}

/* The machine was suspended and resumed: the timer has lost its setting. */
void
suspendclock(void)
{
	struct clock_state *cs = DPCPU_PTR(clock_state);

	cs->cs_running = false;
	et_stop(clock_et);
}

void
resumeclock(void)
{
	clock_start();
}

/* The three steps of a change of timer, each run by all CPUs together with interrupts off. */
static void
clock_leave(void *arg __unused)
{
	suspendclock();
}

static void
clock_take(void *arg)
{
	clock_et = arg;
}

static void
clock_go_on(void *arg __unused)
{
	resumeclock();
}

static int
sysctl_clock_timer(SYSCTL_HANDLER_ARGS)
{
	struct eventtimer *et, *old = clock_et;
	char name[32];
	int error;

	strlcpy(name, old->et_name, sizeof(name));
	error = sysctl_handle_string(oidp, name, sizeof(name), req);
	if (error != 0 || req->newptr == NULL || strcasecmp(name, old->et_name) == 0)
		return (error);
	et = et_find(name, CLOCK_ET_FLAGS, CLOCK_ET_FLAGS);
	if (et == NULL)
		return (ENODEV);
	error = et_init(et, clock_event, NULL, NULL);
	if (error != 0)
		return (error);
	smp_rendezvous(clock_leave, clock_take, clock_go_on, et);
	et_free(old);
	return (0);
}
SYSCTL_PROC(_kern_eventtimer, OID_AUTO, timer, CTLTYPE_STRING | CTLFLAG_RW, NULL, 0,
    sysctl_clock_timer, "A", "Chosen event timer");
