/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The scheduler: strict priorities, preemptive, round robin among equals.
 *
 * Queues.  One run queue for all CPUs, and one for each CPU that holds the threads that may run
 * nowhere else (bound, pinned, or with an affinity).  A CPU takes the best of the common queue and
 * its own, of equals the one that has waited longer; with neither, its idle thread, which is never
 * queued.
 *
 * Which CPU runs a thread that became ready: the one that made it ready, if the thread is better
 * than the one running there; else an idle CPU, which is sent an IPI; else a CPU that runs a worse
 * thread.  idle_cpus holds the CPUs whose idle thread runs and that were not sent an IPI yet.  It
 * changes under sched_lock only, and an idle CPU checks the queues and its bit in idle_cpus, with
 * interrupts off, before it halts (sched_may_halt()): an idle CPU that is not in the set needs no
 * IPI, as it does not halt before it has checked again.
 *
 * Time slice.  sched_clock() counts ticks.  At the end of its slice a thread is queued behind its
 * equals, and one of the time-sharing class that used up a whole slice without sleeping is lowered
 * to PUSER until it sleeps, so that a busy command can not starve the kernel's service threads.
 *
 * Locking.  sched_lock is the lock of every thread (td_lock never changes) and is held across a
 * switch: the next thread releases it.  It may recurse, but not when switching.
 *
 * Gaps.  One lock and one common queue are right for a handful of CPUs, not for dozens.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/runq.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sysctl.h>

#include <machine/smp.h>

#include <kern/sched_tree.h>

/* Ready from the first instruction on: printf(9) and mutexes are used before any SYSINIT. */
struct mtx sched_lock = {
	.lock_object = {
		.lo_name = "sched lock",
		.lo_flags = LO_INITIALIZED | LO_RECURSABLE | (0 << LO_CLASSSHIFT),
	},
	.mtx_lock = MTX_UNOWNED,
};

static struct runq runq_common;
static struct runq runq_cpu[MAXCPU];
static volatile int nready_common;
static volatile int nready_cpu[MAXCPU];
static u_int sched_turn;		/* threads that were put behind their equals */
static cpuset_t idle_cpus;
static int sched_slice = 10;

SYSCTL_INT(_kern_sched, OID_AUTO, slice, CTLFLAG_RWTUN, &sched_slice, 0,
    "Ticks a thread runs before its equals have their turn");

bool
sched_runnable(void)
{
	return (nready_common != 0 || nready_cpu[PCPU_GET(cpuid)] != 0);
}

int
sched_load(void)
{
	int cpu, n = nready_common;

	CPU_FOREACH(cpu) {
		struct thread *td = cpuid_to_pcpu[cpu]->pc_curthread;

		n += nready_cpu[cpu];
		if (td != NULL && !TD_IS_IDLETHREAD(td))
			n++;
	}
	return (n);
}

int
sched_rr_interval(void)
{
	return (sched_slice);
}

int
sched_sizeof_thread(void)
{
	return (sizeof(struct thread) + sizeof(struct td_sched));
}

int
sched_sizeof_proc(void)
{
	return (sizeof(struct proc));
}

char *
sched_tdname(struct thread *td)
{
	return (td->td_name);
}

static void
sched_init_thread(struct thread *td)
{
	struct td_sched *ts = td_get_sched(td);

	memset(ts, 0, sizeof(*ts));
	ts->ts_cpu = NOCPU;
	ts->ts_slice = sched_slice;
}

/* Called once, before the first thread is created. */
void
schedinit(void)
{
	int i;

	runq_init(&runq_common);
	for (i = 0; i < MAXCPU; i++)
		runq_init(&runq_cpu[i]);
	sched_init_thread(&thread0);
	thread0.td_lock = &sched_lock;
}

void
schedinit_ap(void)
{
	PCPU_SET(sched, &runq_cpu[PCPU_GET(cpuid)]);
}

/*
 * The one CPU that td has to run on, or NOCPU when any will do.
 */
static int
sched_home(struct thread *td)
{
	struct td_sched *ts = td_get_sched(td);
	cpuset_t idle;

	if (td->td_pinned > 0)
		return (td->td_lastcpu);
	if (ts->ts_cpu != NOCPU)
		return (ts->ts_cpu);
	if (__predict_true((ts->ts_flags & TSF_AFFINITY) == 0))
		return (NOCPU);
	CPU_AND(&idle, &ts->ts_mask, &idle_cpus);
	if (CPU_ISSET(td->td_lastcpu, &idle))
		return (td->td_lastcpu);
	if (!CPU_EMPTY(&idle))
		return (CPU_FFS(&idle) - 1);
	if (CPU_ISSET(td->td_lastcpu, &ts->ts_mask))
		return (td->td_lastcpu);
	return (CPU_FFS(&ts->ts_mask) - 1);
}

static bool
sched_preempts(const struct thread *td, const struct thread *cur)
{
	if (td->td_priority >= cur->td_priority || cold)
		return (false);
	return (td->td_priority <= PRI_MAX_KERN || cur->td_priority >= PRI_MIN_IDLE);
}

static void
sched_kick(int cpu)
{
	if (CPU_ISSET(cpu, &idle_cpus)) {
		CPU_CLR(cpu, &idle_cpus);
		ipi_cpu(cpu, IPI_AST);
	} else
		ipi_cpu(cpu, IPI_PREEMPT);
}

/* The other CPU that runs the worst thread that td may preempt, or NOCPU. */
static int
sched_worst_cpu(struct thread *td)
{
	struct thread *cur;
	int cpu, pri = -1, worst = NOCPU;

	CPU_FOREACH(cpu) {
		if (cpu == (int)PCPU_GET(cpuid))
			continue;
		cur = cpuid_to_pcpu[cpu]->pc_curthread;
		if (cur == NULL || cur->td_priority <= pri || !sched_preempts(td, cur))
			continue;
		/* Already notified: its switch will find td. */
		if (TD_IS_IDLETHREAD(cur))
			return (NOCPU);
		pri = cur->td_priority;
		worst = cpu;
	}
	return (worst);
}

/* td was queued for cpu: makes sure that a CPU that should run it checks the queues. */
static void
sched_notify(struct thread *td, int cpu)
{
	struct thread *cur;
	int me = PCPU_GET(cpuid);

	if (cpu == NOCPU || cpu == me) {
		if (sched_preempts(td, curthread)) {
			curthread->td_owepreempt = 1;
			return;
		}
		if (cpu == me || !smp_started)
			return;
		if (!CPU_EMPTY(&idle_cpus))
			cpu = CPU_FFS(&idle_cpus) - 1;
		else
			cpu = sched_worst_cpu(td);
		if (cpu != NOCPU)
			sched_kick(cpu);
		return;
	}
	if (CPU_ISSET(cpu, &idle_cpus)) {
		sched_kick(cpu);
		return;
	}
	cur = smp_started ? cpuid_to_pcpu[cpu]->pc_curthread : NULL;
	if (cur != NULL && !TD_IS_IDLETHREAD(cur) && sched_preempts(td, cur))
		sched_kick(cpu);
}

static int
sched_enqueue(struct thread *td, int flags)
{
	struct td_sched *ts = td_get_sched(td);
	int cpu = sched_home(td);

	if ((flags & SRQ_PREEMPTED) == 0)
		ts->ts_turn = ++sched_turn;
	if (cpu == NOCPU) {
		ts->ts_runq = &runq_common;
		nready_common++;
	} else {
		ts->ts_runq = &runq_cpu[cpu];
		nready_cpu[cpu]++;
	}
	runq_add(ts->ts_runq, td, flags);
	return (cpu);
}

static void
sched_dequeue(struct thread *td)
{
	struct td_sched *ts = td_get_sched(td);

	runq_remove(ts->ts_runq, td);
	if (ts->ts_runq == &runq_common)
		nready_common--;
	else
		nready_cpu[ts->ts_runq - runq_cpu]--;
	ts->ts_runq = NULL;
}

/*
 * Puts td on a run queue.  td's lock is held, and released unless SRQ_HOLDTD is set.
 */
void
sched_add(struct thread *td, int flags)
{
	int cpu;

	THREAD_LOCK_ASSERT(td, MA_OWNED);
	KASSERT(td->td_inhibitors == 0, ("%s: %s is inhibited", __func__, td->td_name));
	KASSERT(TD_CAN_RUN(td) || TD_IS_RUNNING(td), ("%s: %s is in state %d", __func__,
	    td->td_name, td->td_state));
	TD_SET_RUNQ(td);
	cpu = sched_enqueue(td, flags);
	if ((flags & SRQ_OURSELF) == 0 || cpu != NOCPU)
		sched_notify(td, cpu);
	if ((flags & SRQ_HOLDTD) == 0)
		thread_unlock(td);
}

void
sched_rem(struct thread *td)
{
	THREAD_LOCK_ASSERT(td, MA_OWNED);
	sched_dequeue(td);
	TD_SET_CAN_RUN(td);
}

/* Whether td goes before other: it is better, or its equal and has waited longer. */
static bool
sched_before(struct thread *td, struct thread *other)
{
	if (td->td_priority != other->td_priority)
		return (td->td_priority < other->td_priority);
	return ((int)(td_get_sched(td)->ts_turn - td_get_sched(other)->ts_turn) < 0);
}

struct thread *
sched_choose(void)
{
	int cpu = PCPU_GET(cpuid);
	struct thread *any = NULL, *own = NULL;

	if (nready_common != 0)
		any = runq_choose(&runq_common);
	if (nready_cpu[cpu] != 0)
		own = runq_choose(&runq_cpu[cpu]);
	if (any == NULL || (own != NULL && sched_before(own, any)))
		any = own;
	if (any == NULL)
		return (PCPU_GET(idlethread));
	sched_dequeue(any);
	return (any);
}

/* Makes td the thread that this CPU runs next, sched_lock's owner included. */
static void
sched_elect(struct thread *td)
{
	int cpu = PCPU_GET(cpuid);

	if (TD_IS_IDLETHREAD(td))
		CPU_SET(cpu, &idle_cpus);
	td->td_oncpu = cpu;
	td->td_lastcpu = cpu;
	sched_lock.mtx_lock = (uintptr_t)td;
}

/*
 * Gives the CPU to the best thread, which may be td again.  Returns, with sched_lock released,
 * when td's turn has come.
 */
void
sched_switch(struct thread *td, int flags)
{
	struct thread *newtd;
	int srq;

	td->td_lastcpu = td->td_oncpu;
	td->td_owepreempt = 0;
	if (TD_IS_IDLETHREAD(td)) {
		CPU_CLR(td->td_oncpu, &idle_cpus);
		TD_SET_CAN_RUN(td);
	} else if (TD_IS_RUNNING(td)) {
		srq = SRQ_OURSELF | SRQ_HOLDTD;
		if ((flags & SW_PREEMPT) != 0 && (td->td_flags & TDF_SLICEEND) == 0)
			srq |= SRQ_PREEMPTED;
		sched_add(td, srq);
		td->td_owepreempt = 0;
	}
	td->td_flags &= ~TDF_SLICEEND;
	newtd = choosethread();
	if (newtd != td) {
		td->td_oncpu = NOCPU;
		sched_elect(newtd);
		cpu_switch(td, newtd, &sched_lock);
	} else
		sched_elect(td);
	if (__predict_false(PCPU_GET(deadthread) != NULL))
		thread_stash(PCPU_GET(deadthread));
	mtx_unlock_spin(&sched_lock);
}

/* Switches away from td permanently; the next thread disposes of it (PCPU deadthread). */
void
sched_throw(struct thread *td)
{
	struct thread *newtd;

	mtx_assert(&sched_lock, MA_OWNED | MA_NOTRECURSED);
	td->td_lastcpu = td->td_oncpu;
	td->td_oncpu = NOCPU;
	newtd = choosethread();
	sched_elect(newtd);
	cpu_throw(td, newtd);
	__unreachable();
}

/*
 * Entry of an application processor into the scheduler.  It has run as the idle thread so far, and
 * abandons that context: the idle thread starts anew, with one spin lock held, when it is chosen.
 */
void
sched_ap_entry(void)
{
	struct thread *newtd;

	mtx_lock_spin(&sched_lock);
	spinlock_exit();
	PCPU_SET(switchtime, cpu_ticks());
	PCPU_SET(switchticks, ticks);
	newtd = choosethread();
	sched_elect(newtd);
	cpu_throw(NULL, newtd);
}

/* The start of a new thread; sched_elect() has made it the owner of sched_lock already. */
void
sched_fork_exit(struct thread *td)
{
	KASSERT(td->td_oncpu == (int)PCPU_GET(cpuid), ("%s: %s is not here", __func__,
	    td->td_name));
	mtx_assert(&sched_lock, MA_OWNED | MA_NOTRECURSED);
}

/* child inherits td's priority and class, but no binding and no loan. */
void
sched_fork_thread(struct thread *td, struct thread *child)
{
	sched_init_thread(child);
	child->td_lock = &sched_lock;
	child->td_lastcpu = PCPU_GET(cpuid);
	child->td_oncpu = NOCPU;
	child->td_pri_class = td->td_pri_class;
	child->td_base_pri = td->td_base_pri;
	child->td_priority = td->td_base_pri;
	child->td_user_pri = child->td_base_user_pri = PUSER;
}

static void
sched_set_priority(struct thread *td, u_char prio)
{
	int cpu;

	if (td->td_priority == prio)
		return;
	if (TD_ON_RUNQ(td)) {
		sched_dequeue(td);
		td->td_priority = prio;
		cpu = sched_enqueue(td, SRQ_BORROWING);
		sched_notify(td, cpu);
	} else {
		td->td_priority = prio;
		if (td == curthread && sched_runnable())
			td->td_owepreempt = 1;
	}
}

void
sched_prio(struct thread *td, u_char prio)
{
	THREAD_LOCK_ASSERT(td, MA_OWNED);
	td->td_base_pri = prio;
	if ((td->td_flags & TDF_BORROWING) != 0 && td->td_priority < prio)
		return;
	sched_set_priority(td, prio);
}

void
sched_ithread_prio(struct thread *td, u_char prio)
{
	td->td_base_ithread_pri = prio;
	sched_prio(td, prio);
}

void
sched_class(struct thread *td, int class)
{
	THREAD_LOCK_ASSERT(td, MA_OWNED);
	td->td_pri_class = class;
}

void
sched_lend_prio(struct thread *td, u_char prio)
{
	THREAD_LOCK_ASSERT(td, MA_OWNED);
	td->td_flags |= TDF_BORROWING;
	sched_set_priority(td, prio);
}

/* prio: the best that is still lent to td, PRI_MAX when nothing is. */
void
sched_unlend_prio(struct thread *td, u_char prio)
{
	THREAD_LOCK_ASSERT(td, MA_OWNED);
	if (prio < td->td_base_pri) {
		sched_lend_prio(td, prio);
		return;
	}
	td->td_flags &= ~TDF_BORROWING;
	sched_set_priority(td, td->td_base_pri);
}

/* td, of the time-sharing class, is going to sleep with the priority prio (0: unchanged). */
void
sched_sleep(struct thread *td, int prio)
{
	THREAD_LOCK_ASSERT(td, MA_OWNED);
	td->td_slptick = ticks;
	if (td->td_pri_class != PRI_TIMESHARE || (td->td_flags & TDF_BORROWING) != 0)
		return;
	td->td_priority = prio != 0 ? MIN(prio, td->td_base_pri) : td->td_base_pri;
}

/* td, which can run again, gets a whole slice; its lock is released unless asked to hold it. */
void
sched_wakeup(struct thread *td, int srqflags)
{
	td->td_slptick = 0;
	td_get_sched(td)->ts_slice = sched_slice;
	sched_add(td, SRQ_BORING | srqflags);
}

/* cnt ticks of td have passed; called by hardclock() in the interrupt. */
void
sched_clock(struct thread *td, int cnt)
{
	struct td_sched *ts = td_get_sched(td);

	if (TD_IS_IDLETHREAD(td))
		return;
	ts->ts_slice -= cnt;
	if (ts->ts_slice > 0 && nready_common == 0)
		return;
	thread_lock(td);
	/* A preempted thread waits for its CPU; by now it is worth waking another one for it. */
	if (nready_common != 0 && !CPU_EMPTY(&idle_cpus))
		sched_kick(CPU_FFS(&idle_cpus) - 1);
	if (ts->ts_slice > 0) {
		thread_unlock(td);
		return;
	}
	ts->ts_slice = sched_slice;
	if (td->td_pri_class == PRI_TIMESHARE && td->td_priority < PUSER &&
	    (td->td_flags & TDF_BORROWING) == 0)
		td->td_priority = PUSER;
	if (sched_runnable()) {
		td->td_flags |= TDF_SLICEEND;
		td->td_owepreempt = 1;
	}
	thread_unlock(td);
}

/* IPI_PREEMPT: a better thread may wait for this CPU. */
void
sched_preempt(struct thread *td)
{
	critical_enter();
	if (sched_runnable())
		td->td_owepreempt = 1;
	critical_exit();
}

void
sched_relinquish(struct thread *td)
{
	thread_lock(td);
	td->td_flags |= TDF_SLICEEND;
	mi_switch(SW_VOL | SWT_RELINQUISH);
}

void
sched_bind(struct thread *td, int cpu)
{
	THREAD_LOCK_ASSERT(td, MA_OWNED | MA_NOTRECURSED);
	KASSERT(td == curthread, ("%s: not for another thread", __func__));
	td_get_sched(td)->ts_cpu = cpu;
	if ((int)PCPU_GET(cpuid) == cpu)
		return;
	mi_switch(SW_VOL | SWT_BIND);
	thread_lock(td);
}

void
sched_unbind(struct thread *td)
{
	THREAD_LOCK_ASSERT(td, MA_OWNED);
	td_get_sched(td)->ts_cpu = NOCPU;
}

int
sched_is_bound(struct thread *td)
{
	return (td_get_sched(td)->ts_cpu != NOCPU);
}

/* td's set of CPUs changed: moves it if it is in the wrong place. */
void
sched_affinity(struct thread *td)
{
	struct td_sched *ts = td_get_sched(td);
	int cpu;

	THREAD_LOCK_ASSERT(td, MA_OWNED);
	if (TD_ON_RUNQ(td)) {
		sched_dequeue(td);
		cpu = sched_enqueue(td, SRQ_BORING);
		sched_notify(td, cpu);
	} else if (TD_IS_RUNNING(td) && td->td_pinned == 0 &&
	    (ts->ts_flags & TSF_AFFINITY) != 0 && !CPU_ISSET(td->td_oncpu, &ts->ts_mask)) {
		td->td_owepreempt = 1;
		if (td != curthread)
			ipi_cpu(td->td_oncpu, IPI_PREEMPT);
	}
}

/* Waits, with sched_lock held once, for sched_iwakeup(); returns with it released. */
void
sched_iwait(struct thread *td)
{
	TD_SET_IWAIT(td);
	mi_switch(SW_VOL | SWT_IWAIT);
}

/* Wakes td if it waits in sched_iwait(). */
bool
sched_iwakeup(struct thread *td)
{
	bool waits;

	thread_lock(td);
	waits = TD_AWAITING_INTR(td);
	if (waits) {
		TD_CLR_IWAIT(td);
		sched_wakeup(td, SRQ_INTR);
	} else
		thread_unlock(td);
	return (waits);
}

/*
 * Not while an IPI may have been sent without effect: another CPU can have taken the thread that
 * it was for, and no second one is sent to a CPU that left idle_cpus.
 */
bool
sched_may_halt(void)
{
	return (!sched_runnable() && curthread->td_owepreempt == 0 &&
	    CPU_ISSET(PCPU_GET(cpuid), &idle_cpus));
}

/* The idle thread of each CPU. */
void
sched_idletd(void *arg __unused)
{
	struct thread *td = curthread;
	int cpu = PCPU_GET(cpuid);

	for (;;) {
		if (sched_runnable()) {
			thread_lock(td);
			mi_switch(SW_VOL | SWT_IDLE);
		} else if (!CPU_ISSET(cpu, &idle_cpus)) {
			thread_lock(td);
			CPU_SET(cpu, &idle_cpus);
			thread_unlock(td);
		} else
			cpu_idle(0);
	}
}
