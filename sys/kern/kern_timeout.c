/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * callout(9): functions that are called later.
 *
 * Each CPU has a wheel of 256 buckets, about a millisecond each; a callout is in the bucket of its
 * time, however many turns ahead.  A bit map of the buckets in use finds the next one.  A CPU's
 * timer interrupt calls callout_process(), which takes due callouts off the wheel: those with
 * C_DIRECT_EXEC are called immediately, the others by the CPU's softclock thread.
 *
 * States.  Pending (CALLOUT_PENDING: on the wheel or, with CALLOUT_PROCESSED, on a list of those
 * that are due); running (cc_exec[].ce_curr is the callout), from when it is taken off that list
 * until its function has returned; both, when it was scheduled again while running.  A running
 * callout stays with its CPU.
 *
 * Stopping a running one.  With a lock (callout_init_mtx(9)) the function is entered with the lock
 * held, after a check of ce_cancel; a caller that holds the lock and finds the function not yet
 * entered stops it by setting ce_cancel.  Otherwise it can only be waited for (callout_drain(9)).
 *
 * Locking.  callout_lock guards all wheels and states.  ce_cancel is also protected by the
 * callout's own lock, if it has one.  No lock of ours is held while a function is called.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/callout.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/sleepqueue.h>
#include <sys/smp.h>
#include <sys/time.h>
#include <sys/unistd.h>

#include <machine/cpu.h>

#include <kern/clock_tree.h>
#include <kern/sched_tree.h>

#define	WHEEL_SHIFT	22		/* 2^22 / 2^32 s = 0.98 ms */
#define	WHEEL_SIZE	256
#define	WHEEL_WORDS	(WHEEL_SIZE / 64)
#define	WHEEL_SLOT(sbt)	((u_int)((sbt) >> WHEEL_SHIFT) % WHEEL_SIZE)

enum { EXEC_THREAD, EXEC_DIRECT, EXEC_COUNT };

struct callout_exec {
	struct callout	*ce_curr;	/* being run */
	bool		ce_cancel;	/* not to be entered, or entered already */
	bool		ce_waited;	/* a thread waits in callout_drain() */
};

struct callout_cpu {
	struct callout_list	cc_wheel[WHEEL_SIZE];
	uint64_t		cc_used[WHEEL_WORDS];
	sbintime_t		cc_first;	/* what the timer must not be later than */
	sbintime_t		cc_done;	/* everything up to then is off the wheel */
	struct callout_tailq	cc_due[EXEC_COUNT];
	struct callout_exec	cc_exec[EXEC_COUNT];
	struct thread		*cc_thread;
};

static struct callout_cpu callout_cpus[MAXCPU];

static struct mtx callout_lock = {
	.lock_object = {
		.lo_name = "callout",
		.lo_flags = LO_INITIALIZED | (0 << LO_CLASSSHIFT),
	},
	.mtx_lock = MTX_UNOWNED,
};

sbintime_t
callout_first(int cpu)
{
	return (callout_cpus[cpu].cc_first);
}

static void
callout_setup(void *arg __unused)
{
	struct callout_cpu *cc;

	for (cc = callout_cpus; cc < &callout_cpus[MAXCPU]; cc++) {
		cc->cc_first = SBT_MAX;
		TAILQ_INIT(&cc->cc_due[EXEC_THREAD]);
		TAILQ_INIT(&cc->cc_due[EXEC_DIRECT]);
	}
}
SYSINIT(callout, SI_SUB_TUNABLES, SI_ORDER_FIRST, callout_setup, NULL);

void
callout_init(struct callout *c, int mpsafe)
{
	memset(c, 0, sizeof(*c));
	if (mpsafe != 0)
		c->c_iflags = CALLOUT_RETURNUNLOCKED;
	else
		c->c_lock = &Giant.lock_object;
}

void
_callout_init_lock(struct callout *c, struct lock_object *lock, int flags)
{
	KASSERT((flags & ~(CALLOUT_RETURNUNLOCKED | CALLOUT_SHAREDLOCK | CALLOUT_TRYLOCK)) == 0,
	    ("%s: flags %#x", __func__, flags));
	KASSERT(lock != NULL, ("%s: no lock", __func__));
	memset(c, 0, sizeof(*c));
	c->c_lock = lock;
	c->c_iflags = flags;
}

/*
 * When a callout is due, and how late it may be, from the caller's arguments.
 */
void
callout_when(sbintime_t sbt, sbintime_t precision, int flags, sbintime_t *sbt_res,
    sbintime_t *precision_res)
{
	sbintime_t pr;

	if ((flags & (C_ABSOLUTE | C_PRECALC)) != 0) {
		*sbt_res = sbt;
		*precision_res = precision;
		return;
	}
	if ((flags & C_HARDCLOCK) != 0 && sbt < tick_sbt)
		sbt = tick_sbt;
	pr = C_PRELGET(flags) < 0 ? sbt >> tc_precexp : sbt >> C_PRELGET(flags);
	*precision_res = MAX(pr, precision);
	*sbt_res = sbinuptime();
	*sbt_res = *sbt_res > SBT_MAX - sbt ? SBT_MAX : *sbt_res + sbt;
}

/* The latest time at which c may be processed. */
static sbintime_t
callout_latest(const struct callout *c)
{
	return (c->c_time > SBT_MAX - c->c_precision ? SBT_MAX : c->c_time + c->c_precision);
}

static void
callout_insert(struct callout_cpu *cc, struct callout *c)
{
	u_int slot = WHEEL_SLOT(c->c_time);
	sbintime_t latest = callout_latest(c);

	LIST_INSERT_HEAD(&cc->cc_wheel[slot], c, c_links.le);
	cc->cc_used[slot / 64] |= 1ul << (slot % 64);
	c->c_iflags |= CALLOUT_PENDING;
	if (latest < cc->cc_first) {
		cc->cc_first = latest;
		cpu_new_callout(c->c_cpu, c->c_time, latest);
	}
}

static void
callout_unlink(struct callout_cpu *cc, struct callout *c)
{
	u_int slot;

	if ((c->c_iflags & CALLOUT_PROCESSED) != 0) {
		TAILQ_REMOVE(&cc->cc_due[(c->c_iflags & CALLOUT_DIRECT) != 0 ? EXEC_DIRECT :
		    EXEC_THREAD], c, c_links.tqe);
		c->c_iflags &= ~(CALLOUT_PENDING | CALLOUT_PROCESSED);
		return;
	}
	/* Its bucket is the one it was put into: that of its time, unless that had passed. */
	slot = WHEEL_SLOT(c->c_time);
	LIST_REMOVE(c, c_links.le);
	if (LIST_EMPTY(&cc->cc_wheel[slot]))
		cc->cc_used[slot / 64] &= ~(1ul << (slot % 64));
	c->c_iflags &= ~CALLOUT_PENDING;
}

/* The first bucket in use at or after slot, within the distance; WHEEL_SIZE if none. */
static u_int
callout_next_used(const struct callout_cpu *cc, u_int slot, u_int distance)
{
	uint64_t word;
	u_int step, d = 0;

	while (d < distance) {
		word = cc->cc_used[slot / 64] >> (slot % 64);
		if (word != 0) {
			d += ffsl(word) - 1;
			return (d < distance ? d : WHEEL_SIZE);
		}
		step = 64 - slot % 64;
		d += step;
		slot = (slot + step) % WHEEL_SIZE;
	}
	return (WHEEL_SIZE);
}

/* Puts c, which is due, on its list: in order of time, whatever bucket it was in. */
static void
callout_add_due(struct callout_cpu *cc, struct callout *c)
{
	bool direct = (c->c_iflags & CALLOUT_DIRECT) != 0;
	struct callout_tailq *due = &cc->cc_due[direct ? EXEC_DIRECT : EXEC_THREAD];
	struct callout *prev = TAILQ_LAST(due, callout_tailq);

	while (prev != NULL && prev->c_time > c->c_time)
		prev = TAILQ_PREV(prev, callout_tailq, c_links.tqe);
	if (prev != NULL)
		TAILQ_INSERT_AFTER(due, prev, c, c_links.tqe);
	else
		TAILQ_INSERT_HEAD(due, c, c_links.tqe);
	c->c_iflags |= CALLOUT_PENDING | CALLOUT_PROCESSED;
}

/* Moves callouts that are due to the lists. */
static void
callout_collect(struct callout_cpu *cc, sbintime_t now)
{
	struct callout *c, *next;
	int64_t first = cc->cc_done >> WHEEL_SHIFT, last = now >> WHEEL_SHIFT;
	u_int n, d, slot;

	n = MIN(last - first + 1, WHEEL_SIZE);
	slot = (u_int)first % WHEEL_SIZE;
	while ((d = callout_next_used(cc, slot, n)) < WHEEL_SIZE) {
		slot = (slot + d) % WHEEL_SIZE;
		LIST_FOREACH_SAFE(c, &cc->cc_wheel[slot], c_links.le, next) {
			if (c->c_time > now)
				continue;
			callout_unlink(cc, c);
			callout_add_due(cc, c);
		}
		if (n <= d + 1)
			break;
		n -= d + 1;
		slot = (slot + 1) % WHEEL_SIZE;
	}
	cc->cc_done = now;
}

/* The earliest time by which a callout on the wheel must be looked at. */
static sbintime_t
callout_earliest(const struct callout_cpu *cc)
{
	const struct callout *c;
	sbintime_t earliest = SBT_MAX;
	int64_t pos = cc->cc_done >> WHEEL_SHIFT;
	u_int d, n = WHEEL_SIZE;

	while ((d = callout_next_used(cc, (u_int)pos % WHEEL_SIZE, n)) < WHEEL_SIZE) {
		pos += d;
		/* Nothing in this bucket or a later one can be sooner. */
		if (earliest <= pos << WHEEL_SHIFT)
			break;
		LIST_FOREACH(c, &cc->cc_wheel[(u_int)pos % WHEEL_SIZE], c_links.le)
			earliest = MIN(earliest, callout_latest(c));
		if (n <= d + 1)
			break;
		n -= d + 1;
		pos++;
	}
	return (earliest);
}

/*
 * Calls c, the first of its list of due ones.  callout_lock is held, and not while it is called.
 * c may have been freed afterwards.
 */
static void
callout_run(struct callout_cpu *cc, struct callout *c, int how)
{
	struct callout_exec *ce = &cc->cc_exec[how];
	struct lock_object *lock = c->c_lock;
	struct lock_class *class = lock != NULL ? LOCK_CLASS(lock) : NULL;
	callout_func_t *func = c->c_func;
	void *arg = c->c_arg;
	short iflags = c->c_iflags;

	callout_unlink(cc, c);
	ce->ce_curr = c;
	ce->ce_cancel = false;
	mtx_unlock_spin(&callout_lock);
	if (lock == NULL) {
		ce->ce_cancel = true;
		NO_SLEEPING_BEGIN();
		func(arg);
		NO_SLEEPING_END();
	} else {
		class->lc_lock(lock, (iflags & CALLOUT_SHAREDLOCK) != 0);
		if (ce->ce_cancel)
			class->lc_unlock(lock);
		else {
			ce->ce_cancel = true;
			NO_SLEEPING_BEGIN();
			func(arg);
			NO_SLEEPING_END();
			if ((iflags & CALLOUT_RETURNUNLOCKED) == 0)
				class->lc_unlock(lock);
		}
	}
	/* One in the interrupt sees the locks of the thread that was interrupted. */
	if (how == EXEC_THREAD)
		WITNESS_WARN(WARN_PANIC, NULL, "callout %p (function %p) returns", c, func);
	mtx_lock_spin(&callout_lock);
	ce->ce_curr = NULL;
	if (ce->ce_waited) {
		ce->ce_waited = false;
		mtx_unlock_spin(&callout_lock);
		wakeup(ce);
		mtx_lock_spin(&callout_lock);
	}
}

/* The timer interrupt of this CPU, at a time when a callout may be due. */
void
callout_process(sbintime_t now)
{
	struct callout_cpu *cc = &callout_cpus[curcpu];
	struct callout *c;
	bool more;

	mtx_lock_spin(&callout_lock);
	callout_collect(cc, now);
	cc->cc_first = callout_earliest(cc);
	while ((c = TAILQ_FIRST(&cc->cc_due[EXEC_DIRECT])) != NULL)
		callout_run(cc, c, EXEC_DIRECT);
	more = !TAILQ_EMPTY(&cc->cc_due[EXEC_THREAD]);
	mtx_unlock_spin(&callout_lock);
	if (more && cc->cc_thread != NULL)
		sched_iwakeup(cc->cc_thread);
}

static void
softclock_thread(void *arg)
{
	struct callout_cpu *cc = arg;
	struct callout *c;

	for (;;) {
		mtx_lock_spin(&callout_lock);
		while ((c = TAILQ_FIRST(&cc->cc_due[EXEC_THREAD])) != NULL)
			callout_run(cc, c, EXEC_THREAD);
		mtx_unlock_spin(&callout_lock);
		/* callout_process() fills the list first and takes sched_lock then. */
		mtx_lock_spin(&sched_lock);
		if (TAILQ_EMPTY(&cc->cc_due[EXEC_THREAD]))
			sched_iwait(curthread);
		else
			mtx_unlock_spin(&sched_lock);
	}
}

static void
softclock_start(void *arg __unused)
{
	struct proc *p = NULL;
	struct thread *td;
	int cpu;

	CPU_FOREACH(cpu) {
		if (kproc_kthread_add(softclock_thread, &callout_cpus[cpu], &p, &td, RFSTOPPED, 0,
		    "clock", "clock (%d)", cpu) != 0)
			panic("no softclock thread for CPU %d", cpu);
		thread_lock(td);
		td->td_pflags |= TDP_ITHREAD;
		td_get_sched(td)->ts_cpu = cpu;
		sched_class(td, PRI_ITHD);
		sched_ithread_prio(td, PI_SOFTCLOCK);
		callout_cpus[cpu].cc_thread = td;
		sched_add(td, SRQ_INTR);
	}
}
SYSINIT(softclock, SI_SUB_SOFTINTR, SI_ORDER_FIRST, softclock_start, NULL);

/* How c is running on its CPU, or EXEC_COUNT if it is not. */
static int
callout_running(const struct callout_cpu *cc, const struct callout *c)
{
	int how;

	for (how = 0; how < EXEC_COUNT; how++)
		if (cc->cc_exec[how].ce_curr == c)
			break;
	return (how);
}

/* Whether the caller holds c's lock, and so can keep its function from being entered. */
static bool
callout_lock_owned(const struct callout *c)
{
	struct thread *owner;

	return (c->c_lock != NULL && LOCK_CLASS(c->c_lock)->lc_owner(c->c_lock, &owner) != 0 &&
	    owner == curthread);
}

/*
 * Schedules c.  Returns non-zero if that replaced an earlier schedule.  Nothing happens when
 * a thread waits for the end of c.
 */
int
callout_reset_sbt_on(struct callout *c, sbintime_t sbt, sbintime_t prec, callout_func_t *func,
    void *arg, int cpu, int flags)
{
	struct callout_cpu *cc;
	struct callout_exec *ce;
	sbintime_t to_sbt, precision;
	int how, replaced = 0;
	bool owned = callout_lock_owned(c);

	callout_when(sbt, prec, flags, &to_sbt, &precision);
	mtx_lock_spin(&callout_lock);
	cc = &callout_cpus[c->c_cpu];
	how = callout_running(cc, c);
	if (how != EXEC_COUNT) {
		ce = &cc->cc_exec[how];
		if (owned && !ce->ce_cancel)
			ce->ce_cancel = replaced = 1;
		if (ce->ce_waited) {
			mtx_unlock_spin(&callout_lock);
			return (replaced);
		}
	}
	if ((c->c_iflags & CALLOUT_PENDING) != 0) {
		callout_unlink(cc, c);
		replaced = 1;
	}
	if (cpu >= 0 && how == EXEC_COUNT && !CPU_ABSENT(cpu)) {
		c->c_cpu = cpu;
		cc = &callout_cpus[cpu];
	}
	c->c_func = func;
	c->c_arg = arg;
	c->c_flags |= CALLOUT_ACTIVE;
	if ((flags & C_DIRECT_EXEC) != 0 && (c->c_iflags & CALLOUT_TRYLOCK) == 0)
		c->c_iflags |= CALLOUT_DIRECT;
	else
		c->c_iflags &= ~CALLOUT_DIRECT;
	/* Time that has passed would hang in a bucket that has. */
	c->c_time = MAX(to_sbt, cc->cc_done);
	c->c_precision = precision;
	callout_insert(cc, c);
	mtx_unlock_spin(&callout_lock);
	return (replaced);
}

int
callout_schedule_on(struct callout *c, int to_ticks, int cpu)
{
	return (callout_reset_on(c, to_ticks, c->c_func, c->c_arg, cpu));
}

int
callout_schedule(struct callout *c, int to_ticks)
{
	return (callout_reset_on(c, to_ticks, c->c_func, c->c_arg, -1));
}

/* Waits until ce does not run c any more; callout_lock is held before and after. */
static void
callout_wait(struct callout_exec *ce, struct callout *c, int how)
{
	if (how == EXEC_DIRECT) {
		/* In another CPU's interrupt: the wait is short. */
		mtx_unlock_spin(&callout_lock);
		while (*(struct callout *volatile *)&ce->ce_curr == c)
			cpu_spinwait();
		mtx_lock_spin(&callout_lock);
		return;
	}
	mtx_unlock_spin(&callout_lock);
	sleepq_lock(ce);
	mtx_lock_spin(&callout_lock);
	if (ce->ce_curr != c) {
		mtx_unlock_spin(&sched_lock);
		return;
	}
	ce->ce_waited = true;
	/* Queued before callout_lock is released: wakeup() looks without sched_lock. */
	sleepq_add(ce, &callout_lock.lock_object, "codrain", SLEEPQ_SLEEP, 0);
	mtx_unlock_spin(&callout_lock);
	sleepq_wait(ce, 0);
	mtx_lock_spin(&callout_lock);
}

/*
 * callout_stop() and callout_drain(): 1 if c was stopped before it was entered, 0 if it was running
 * (and, with CS_DRAIN, has returned), -1 if there was nothing to stop.
 */
int
_callout_stop_safe(struct callout *c, int flags)
{
	struct callout_cpu *cc;
	struct callout_exec *ce;
	bool drain = (flags & CS_DRAIN) != 0;
	bool owned = !drain && callout_lock_owned(c);
	bool ran = false, removed = false;
	int how;

	if (drain) {
		WITNESS_WARN(WARN_GIANTOK | WARN_SLEEPOK, NULL, "calling callout_drain()");
	} else if (c->c_lock != NULL && c->c_lock != &Giant.lock_object)
		LOCK_CLASS(c->c_lock)->lc_assert(c->c_lock, LA_XLOCKED);
	mtx_lock_spin(&callout_lock);
	for (;;) {
		cc = &callout_cpus[c->c_cpu];
		how = callout_running(cc, c);
		if ((c->c_iflags & CALLOUT_PENDING) != 0) {
			callout_unlink(cc, c);
			removed = true;
		}
		c->c_flags &= ~CALLOUT_ACTIVE;
		if (how == EXEC_COUNT)
			break;
		ce = &cc->cc_exec[how];
		if (owned && !ce->ce_cancel) {
			ce->ce_cancel = true;
			removed = true;
			break;
		}
		ran = true;
		if (!drain)
			break;
		KASSERT(how == EXEC_DIRECT || cc->cc_thread != curthread,
		    ("callout %p drains itself", c));
		callout_wait(ce, c, how);
	}
	mtx_unlock_spin(&callout_lock);
	return (ran ? 0 : removed ? 1 : -1);
}
