/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Sleep queues: where a thread waits for an address.
 *
 * sleepqueue(9) for sleep(9) and condvar(9).  Sleepers are in a hash table by their channel, in
 * order of arrival; td_wchan is NULL as soon as the thread was removed.  A thread that was removed
 * between queueing itself and switching away (its interlock was released in between) does not
 * switch.
 *
 * Time-outs.  td_sleeptimo is the time of the time-out, 0 when none is set, -1 when it ran out.
 * The callout runs in the timer interrupt; one that comes too late finds td_sleeptimo cleared or
 * in the future and does nothing.
 *
 * Locking.  sched_lock guards the table, and is what sleepq_lock() takes for every channel.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/callout.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/sleepqueue.h>
#include <sys/time.h>

#include <kern/sched_tree.h>

#define	SLEEPQ_BUCKETS	128

TAILQ_HEAD(sleepq_bucket, thread);
static struct sleepq_bucket sleepq_table[SLEEPQ_BUCKETS];

static struct sleepq_bucket *
sleepq_bucket(const void *wchan)
{
	uintptr_t a = (uintptr_t)wchan;

	return (&sleepq_table[((a >> 4) ^ (a >> 11)) % SLEEPQ_BUCKETS]);
}

void
init_sleepqueues(void)
{
	int i;

	for (i = 0; i < SLEEPQ_BUCKETS; i++)
		TAILQ_INIT(&sleepq_table[i]);
}

void
sleepq_lock(const void *wchan __unused)
{
	mtx_lock_spin(&sched_lock);
}

void
sleepq_release(const void *wchan __unused)
{
	mtx_unlock_spin(&sched_lock);
}

/* Queues the current thread; it keeps running until one of the sleepq_*wait() functions. */
void
sleepq_add(const void *wchan, struct lock_object *lock __unused, const char *wmesg, int flags,
    int queue)
{
	struct thread *td = curthread;

	mtx_assert(&sched_lock, MA_OWNED);
	MPASS(wchan != NULL);
	KASSERT(td->td_wchan == NULL, ("%s sleeps on %s already", td->td_name, td->td_wmesg));
	KASSERT(THREAD_CAN_SLEEP(), ("%s sleeps on %s where sleeping is prohibited",
	    td->td_name, wmesg));
	KASSERT(!TD_IS_IDLETHREAD(td), ("the idle thread sleeps on %s", wmesg));
	td->td_wchan = wchan;
	td->td_wmesg = wmesg;
	td->td_sqqueue = queue;
	td->td_sleeptimo = 0;
	if ((flags & SLEEPQ_INTERRUPTIBLE) != 0)
		td->td_flags |= TDF_SINTR;
	TAILQ_INSERT_TAIL(sleepq_bucket(wchan), td, td_slpq);
}

static void
sleepq_unlink(struct thread *td)
{
	TAILQ_REMOVE(sleepq_bucket(td->td_wchan), td, td_slpq);
	td->td_wchan = NULL;
	td->td_wmesg = NULL;
	td->td_flags &= ~TDF_SINTR;
}

/* Takes td off its queue and, if it went to sleep in the mean time, makes it ready. */
static void
sleepq_resume(struct thread *td, int pri)
{
	sleepq_unlink(td);
	if (!TD_IS_SLEEPING(td))
		return;
	TD_CLR_SLEEPING(td);
	if (pri != 0 && td->td_priority > pri && td->td_pri_class == PRI_TIMESHARE)
		td->td_priority = pri;
	sched_wakeup(td, SRQ_HOLDTD);
}

static void
sleepq_timeout(void *arg)
{
	struct thread *td = arg;

	thread_lock(td);
	if (td->td_wchan != NULL && td->td_sleeptimo > 0 && td->td_sleeptimo <= sbinuptime()) {
		td->td_sleeptimo = -1;
		sleepq_resume(td, 0);
	}
	thread_unlock(td);
}

/* Called after sleepq_add(); sbt, pr and flags as for callout_reset_sbt(9). */
void
sleepq_set_timeout_sbt(const void *wchan, sbintime_t sbt, sbintime_t pr, int flags)
{
	struct thread *td = curthread;

	mtx_assert(&sched_lock, MA_OWNED);
	MPASS(td->td_wchan == wchan);
	if (cold && td == &thread0)
		panic("%s: sleeps for a time before there are clocks", __func__);
	callout_when(sbt, pr, flags, &td->td_sleeptimo, &pr);
	callout_reset_sbt_on(&td->td_slpcallout, td->td_sleeptimo, pr, sleepq_timeout, td,
	    PCPU_GET(cpuid), C_PRECALC | C_DIRECT_EXEC);
}

/* Releases the queue's lock. */
void
sleepq_wait(const void *wchan, int pri)
{
	struct thread *td = curthread;

	mtx_assert(&sched_lock, MA_OWNED);
	if (td->td_wchan == NULL) {
		sleepq_release(wchan);
		return;
	}
	MPASS(td->td_wchan == wchan);
	sched_sleep(td, pri);
	TD_SET_SLEEPING(td);
	mi_switch(SW_VOL | SWT_SLEEPQ);
}

int
sleepq_wait_sig(const void *wchan, int pri)
{
	sleepq_wait(wchan, pri);
	return (0);
}

int
sleepq_timedwait(const void *wchan, int pri)
{
	struct thread *td = curthread;
	bool ran_out;

	sleepq_wait(wchan, pri);
	ran_out = td->td_sleeptimo == -1;
	td->td_sleeptimo = 0;
	if (ran_out)
		return (EWOULDBLOCK);
	callout_stop(&td->td_slpcallout);
	return (0);
}

int
sleepq_timedwait_sig(const void *wchan, int pri)
{
	return (sleepq_timedwait(wchan, pri));
}

/* Wakes the best sleeper on the channel, the longest waiting among equals. */
void
sleepq_signal(const void *wchan, int flags __unused, int pri, int queue)
{
	struct thread *td, *best = NULL;

	mtx_assert(&sched_lock, MA_OWNED);
	TAILQ_FOREACH(td, sleepq_bucket(wchan), td_slpq)
		if (td->td_wchan == wchan && td->td_sqqueue == queue &&
		    (best == NULL || td->td_priority < best->td_priority))
			best = td;
	if (best != NULL)
		sleepq_resume(best, pri);
}

void
sleepq_broadcast(const void *wchan, int flags __unused, int pri, int queue)
{
	struct thread *td, *next;

	mtx_assert(&sched_lock, MA_OWNED);
	TAILQ_FOREACH_SAFE(td, sleepq_bucket(wchan), td_slpq, next)
		if (td->td_wchan == wchan && td->td_sqqueue == queue)
			sleepq_resume(td, pri);
}

u_int
sleepq_sleepcnt(const void *wchan, int queue)
{
	struct thread *td;
	u_int n = 0;

	mtx_assert(&sched_lock, MA_OWNED);
	TAILQ_FOREACH(td, sleepq_bucket(wchan), td_slpq)
		if (td->td_wchan == wchan && td->td_sqqueue == queue)
			n++;
	return (n);
}

/* Takes td off wchan, whether it sleeps already or not. */
void
sleepq_remove(struct thread *td, const void *wchan)
{
	sleepq_lock(wchan);
	if (td->td_wchan == wchan)
		sleepq_resume(td, 0);
	sleepq_release(wchan);
}

/*
 * wakeup(9), wakeup_one(9), wakeup_any(9).
 *
 * An empty chain is the common case, and is found without the lock.  A sleeper queued itself
 * before it released its interlock, so that a thread that changed the condition under the interlock
 * finds it; the fence covers conditions that are changed by an atomic operation instead.
 */
void
wakeup(const void *chan)
{
	atomic_thread_fence_seq_cst();
	if (TAILQ_EMPTY(sleepq_bucket(chan)))
		return;
	sleepq_lock(chan);
	sleepq_broadcast(chan, SLEEPQ_SLEEP, 0, 0);
	sleepq_release(chan);
}

void
wakeup_one(const void *chan)
{
	atomic_thread_fence_seq_cst();
	if (TAILQ_EMPTY(sleepq_bucket(chan)))
		return;
	sleepq_lock(chan);
	sleepq_signal(chan, SLEEPQ_SLEEP, 0, 0);
	sleepq_release(chan);
}

void
wakeup_any(const void *chan)
{
	wakeup_one(chan);
}
