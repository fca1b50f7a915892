/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Time: timecounters and the functions that read them (microtime(9), binuptime(9) ...).
 *
 * A timecounter is a counter of known frequency that wraps.  The time is that of the last wind-up
 * plus the counter's advance since.  A wind-up, at least once before the counter wraps, writes the
 * other one of two sets ("hands") and then makes it the current one; a reader uses the current
 * one and checks its generation before and after, 0 meaning that it is being written.
 *
 * Uptime starts at 0.  The time of day is uptime plus boottime, which stays 0 until tc_setclock()
 * is called with the time of a clock (subr_rtc.c): this kernel reads no battery clock.
 *
 * Locking.  tc_lock serialises wind-ups; readers take nothing.
 *
 * Gaps.  No NTP, no leap seconds, no PPS.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sbuf.h>
#include <sys/sysctl.h>
#include <sys/time.h>
#include <sys/timetc.h>

#include <kern/clock_tree.h>

struct timehands {
	volatile u_int		th_generation;
	struct timecounter	*th_counter;
	uint64_t		th_scale;	/* 2^-64 seconds a count */
	u_int			th_count;	/* the counter at th_offset */
	struct bintime		th_offset;	/* uptime */
};

static u_int
dummy_get_timecount(struct timecounter *tc __unused)
{
	static volatile u_int now;

	return (atomic_fetchadd_int(&now, 1));
}

/* Used until there is a real one: it advances each time it is read. */
static struct timecounter dummy_timecounter = {
	.tc_get_timecount = dummy_get_timecount,
	.tc_counter_mask = ~0u,
	.tc_frequency = 1000000,
	.tc_name = "dummy",
	.tc_quality = -1000000,
};

static struct timehands hands[2] = {
	{
		.th_generation = 1,
		.th_counter = &dummy_timecounter,
		.th_scale = (uint64_t)-1 / 1000000,
	},
	{
		.th_generation = 1,
	},
};
static struct timehands *volatile timehands = &hands[0];
struct timecounter *timecounter = &dummy_timecounter;
static struct timecounter *timecounters = &dummy_timecounter;

static struct mtx tc_lock = {
	.lock_object = {
		.lo_name = "timecounter",
		.lo_flags = LO_INITIALIZED | (0 << LO_CLASSSHIFT),
	},
	.mtx_lock = MTX_UNOWNED,
};

static struct bintime boottimebin;
volatile time_t time_second;
volatile time_t time_uptime;
volatile int rtc_generation = 1;
int tc_min_ticktock_freq = 1;
struct bintime tc_tick_bt;
sbintime_t tc_tick_sbt;
int tc_precexp = 4;		/* By default a callout may be 1/16 late. */
int tc_timepercentage = TC_DEFAULTPERC;
struct bintime bt_timethreshold;
struct bintime bt_tickthreshold;
sbintime_t sbt_timethreshold;
sbintime_t sbt_tickthreshold;

SYSCTL_NODE(_kern, OID_AUTO, timecounter, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "");

static u_int
tc_delta(const struct timehands *th)
{
	struct timecounter *tc = th->th_counter;

	return ((tc->tc_get_timecount(tc) - th->th_count) & tc->tc_counter_mask);
}

/* Adds delta counts to bt; the product is seconds in its upper half. */
static void
tc_advance(struct bintime *bt, uint64_t scale, u_int delta)
{
	unsigned __int128 x = (unsigned __int128)scale * delta;

	bintime_addx(bt, (uint64_t)x);
	bt->sec += (uint64_t)(x >> 64);
}

void
binuptime(struct bintime *bt)
{
	struct timehands *th;
	u_int gen;

	do {
		th = timehands;
		gen = atomic_load_acq_int(&th->th_generation);
		*bt = th->th_offset;
		tc_advance(bt, th->th_scale, tc_delta(th));
		atomic_thread_fence_acq();
	} while (gen == 0 || gen != th->th_generation);
}

void
getbinuptime(struct bintime *bt)
{
	struct timehands *th;
	u_int gen;

	do {
		th = timehands;
		gen = atomic_load_acq_int(&th->th_generation);
		*bt = th->th_offset;
		atomic_thread_fence_acq();
	} while (gen == 0 || gen != th->th_generation);
}

void
getboottimebin(struct bintime *bt)
{
	mtx_lock_spin(&tc_lock);
	*bt = boottimebin;
	mtx_unlock_spin(&tc_lock);
}

void
getboottime(struct timeval *tv)
{
	struct bintime bt;

	getboottimebin(&bt);
	bintime2timeval(&bt, tv);
}

void
bintime(struct bintime *bt)
{
	struct bintime boot;

	binuptime(bt);
	getboottimebin(&boot);
	bintime_add(bt, &boot);
}

void
getbintime(struct bintime *bt)
{
	struct bintime boot;

	getbinuptime(bt);
	getboottimebin(&boot);
	bintime_add(bt, &boot);
}

/* The same times in the other forms. */
#define	TC_FORMS(prefix, bin)						\
void									\
prefix##nano##bin(struct timespec *ts)					\
{									\
	struct bintime bt;						\
									\
	prefix##bin##_bt(&bt);						\
	bintime2timespec(&bt, ts);					\
}									\
									\
void									\
prefix##micro##bin(struct timeval *tv)					\
{									\
	struct bintime bt;						\
									\
	prefix##bin##_bt(&bt);						\
	bintime2timeval(&bt, tv);					\
}

#define	uptime_bt	binuptime
#define	time_bt		bintime
#define	getuptime_bt	getbinuptime
#define	gettime_bt	getbintime

TC_FORMS(, uptime)
TC_FORMS(, time)
TC_FORMS(get, uptime)
TC_FORMS(get, time)

/* Moves the hands to now; tc_lock is held. */
static void
tc_windup(void)
{
	struct timehands *old = timehands;
	struct timehands *th = old == &hands[0] ? &hands[1] : &hands[0];
	u_int delta, gen = th->th_generation;

	th->th_generation = 0;
	atomic_thread_fence_rel();
	th->th_counter = old->th_counter;
	th->th_scale = old->th_scale;
	th->th_offset = old->th_offset;
	delta = tc_delta(old);
	th->th_count = (old->th_count + delta) & old->th_counter->tc_counter_mask;
	tc_advance(&th->th_offset, old->th_scale, delta);
	if (th->th_counter != timecounter) {
		th->th_counter = timecounter;
		th->th_count = timecounter->tc_get_timecount(timecounter);
		th->th_scale = (uint64_t)-1 / timecounter->tc_frequency;
	}
	if (++gen == 0)
		gen = 1;
	atomic_store_rel_int(&th->th_generation, gen);
	timehands = th;
	time_uptime = th->th_offset.sec;
	time_second = th->th_offset.sec + boottimebin.sec +
	    (th->th_offset.frac + boottimebin.frac < th->th_offset.frac ? 1 : 0);
}

/* cnt ticks have passed. */
void
tc_ticktock(long cnt __unused)
{
	if (mtx_trylock_spin(&tc_lock)) {
		tc_windup();
		mtx_unlock_spin(&tc_lock);
	}
}

/* Half of the time after which the counter wraps. */
sbintime_t
tc_max_idle(void)
{
	struct timecounter *tc = timecounter;

	return ((((sbintime_t)tc->tc_counter_mask << 16) / tc->tc_frequency) << 15);
}

/* Sets the time of day. */
void
tc_setclock(struct timespec *ts)
{
	struct bintime bt, up;

	timespec2bintime(ts, &bt);
	binuptime(&up);
	bintime_sub(&bt, &up);
	mtx_lock_spin(&tc_lock);
	boottimebin = bt;
	tc_windup();
	mtx_unlock_spin(&tc_lock);
	rtc_generation += 2;
}

/* A new timecounter; the best one of those known is used. */
void
tc_init(struct timecounter *tc)
{
	if (bootverbose || tc->tc_quality >= 0)
		printf("Timecounter \"%s\" frequency %ju Hz quality %d\n", tc->tc_name,
		    (uintmax_t)tc->tc_frequency, tc->tc_quality);
	mtx_lock_spin(&tc_lock);
	tc->tc_next = timecounters;
	timecounters = tc;
	if (tc->tc_quality >= 0 && (tc->tc_quality > timecounter->tc_quality ||
	    (tc->tc_quality == timecounter->tc_quality &&
	    tc->tc_frequency > timecounter->tc_frequency))) {
		timecounter = tc;
		tc_windup();
	}
	mtx_unlock_spin(&tc_lock);
}

u_int64_t
tc_getfrequency(void)
{
	return (timehands->th_counter->tc_frequency);
}

static int
sysctl_tc_hardware(SYSCTL_HANDLER_ARGS)
{
	struct timecounter *tc;
	char name[32];
	int error;

	strlcpy(name, timecounter->tc_name, sizeof(name));
	error = sysctl_handle_string(oidp, name, sizeof(name), req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	for (tc = timecounters; tc != NULL; tc = tc->tc_next)
		if (strcmp(tc->tc_name, name) == 0)
			break;
	if (tc == NULL)
		return (EINVAL);
	mtx_lock_spin(&tc_lock);
	timecounter = tc;
	tc_windup();
	mtx_unlock_spin(&tc_lock);
	return (0);
}
SYSCTL_PROC(_kern_timecounter, OID_AUTO, hardware, CTLTYPE_STRING | CTLFLAG_RW | CTLFLAG_MPSAFE,
    NULL, 0, sysctl_tc_hardware, "A", "Timecounter hardware selected");

static int
sysctl_tc_choice(SYSCTL_HANDLER_ARGS)
{
	struct timecounter *tc;
	struct sbuf sb;
	int error;

	sbuf_new_for_sysctl(&sb, NULL, 0, req);
	for (tc = timecounters; tc != NULL; tc = tc->tc_next)
		sbuf_printf(&sb, "%s%s(%d)", tc != timecounters ? " " : "", tc->tc_name,
		    tc->tc_quality);
	error = sbuf_finish(&sb);
	sbuf_delete(&sb);
	return (error);
}
SYSCTL_PROC(_kern_timecounter, OID_AUTO, choice, CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE,
    NULL, 0, sysctl_tc_choice, "A", "Timecounter hardware detected");

/*
 * The counter by which the time that threads run is measured.  Until a better one is set it is the
 * uptime itself.
 */
static uint64_t
tc_cpu_ticks(void)
{
	return (sbinuptime());
}

cpu_tick_f *cpu_ticks = tc_cpu_ticks;
static uint64_t cpu_tick_frequency = SBT_1S;

void
set_cputicker(cpu_tick_f *func, uint64_t freq, bool isvariable __unused)
{
	if (func == NULL) {
		cpu_ticks = tc_cpu_ticks;
		cpu_tick_frequency = SBT_1S;
		return;
	}
	cpu_tick_frequency = freq;
	cpu_ticks = func;
}

uint64_t
cpu_tickrate(void)
{
	return (cpu_tick_frequency);
}

uint64_t
cputick2usec(uint64_t tick)
{
	uint64_t rate = cpu_tick_frequency;

	return (tick / rate * 1000000 + tick % rate * 1000000 / rate);
}

static void
tc_thresholds(void *arg __unused)
{
	tc_tick_sbt = tick_sbt;
	tc_tick_bt = tick_bt;
	sbt_timethreshold = sbt_tickthreshold = tick_sbt;
	bt_timethreshold = bt_tickthreshold = tick_bt;
}
SYSINIT(tc_thresholds, SI_SUB_TUNABLES, SI_ORDER_ANY, tc_thresholds, NULL);
