/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * sleep(9), pause(9), yielding, and the switch of threads (mi_switch()).
 *
 * Gaps.  There are no signals: PCATCH is accepted and never ends a sleep.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/sleepqueue.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <sys/time.h>
#include <sys/vmmeter.h>

#include <kern/sched_tree.h>

/* What pause(9) sleeps on: an address for each CPU, which is never woken. */
static char pause_wchan[MAXCPU];

int hogticks;

/*
 * Puts the current thread to sleep on ident until wakeup(9) or until the time has passed.  lock,
 * if not NULL, is held by the caller and released during the sleep; see sleep(9).
 */
int
_sleep(const void *ident, struct lock_object *lock, int priority, const char *wmesg,
    sbintime_t sbt, sbintime_t pr, int flags)
{
	struct lock_class *class = NULL;
	uintptr_t lock_state = 0;
	int error = 0, pri = priority & PRIMASK;
	WITNESS_SAVE_DECL(lock_witness);

	KASSERT(sbt != 0 || mtx_owned(&Giant) || lock != NULL || (priority & PNOLOCK) != 0,
	    ("sleeping on %s without a lock", wmesg));
	MPASS(ident != NULL);
	KASSERT(curthread->td_critnest == 0 || SCHEDULER_STOPPED(),
	    ("sleeping on \"%s\" with spinlock or critical section held", wmesg));
	WITNESS_WARN(WARN_GIANTOK | WARN_SLEEPOK, lock, "Sleeping on \"%s\"", wmesg);
	if (lock == &Giant.lock_object)
		lock = NULL;
	if (lock != NULL)
		class = LOCK_CLASS(lock);
	if (SCHEDULER_STOPPED() || KERNEL_PANICKED()) {
		if (lock != NULL && (priority & PDROP) != 0)
			class->lc_unlock(lock);
		return (0);
	}
	sleepq_lock(ident);
	sleepq_add(ident, lock, wmesg, SLEEPQ_SLEEP, 0);
	if (sbt != 0)
		sleepq_set_timeout_sbt(ident, sbt, pr, flags);
	DROP_GIANT();
	if (lock != NULL) {
		WITNESS_SAVE(lock, lock_witness);
		lock_state = class->lc_unlock(lock);
	}
	if (sbt != 0)
		error = sleepq_timedwait(ident, pri);
	else
		sleepq_wait(ident, pri);
	PICKUP_GIANT();
	if (lock != NULL && (priority & PDROP) == 0) {
		class->lc_lock(lock, lock_state);
		WITNESS_RESTORE(lock, lock_witness);
	}
	return (error);
}

int
msleep_spin_sbt(const void *ident, struct mtx *mtx, const char *wmesg, sbintime_t sbt,
    sbintime_t pr, int flags)
{
	int error = 0;

	MPASS(ident != NULL && mtx != NULL);
	mtx_assert(mtx, MA_OWNED | MA_NOTRECURSED);
	WITNESS_WARN(WARN_GIANTOK | WARN_SLEEPOK, &mtx->lock_object, "Sleeping on \"%s\"", wmesg);
	if (SCHEDULER_STOPPED() || KERNEL_PANICKED())
		return (0);
	sleepq_lock(ident);
	sleepq_add(ident, &mtx->lock_object, wmesg, SLEEPQ_SLEEP, 0);
	if (sbt != 0)
		sleepq_set_timeout_sbt(ident, sbt, pr, flags);
	mtx_unlock_spin(mtx);
	if (sbt != 0)
		error = sleepq_timedwait(ident, 0);
	else
		sleepq_wait(ident, 0);
	mtx_lock_spin(mtx);
	return (error);
}

/* Sleeps for a time that can't be shortened; busy-waits before the clock runs. */
int
pause_sbt(const char *wmesg, sbintime_t sbt, sbintime_t pr, int flags)
{
	KASSERT(sbt >= 0, ("pause for a negative time"));
	if (sbt == 0)
		sbt = tick_sbt;
	if ((cold && curthread == &thread0) || KERNEL_PANICKED() || SCHEDULER_STOPPED() ||
	    TD_IS_IDLETHREAD(curthread)) {
		for (; sbt >= SBT_1S; sbt -= SBT_1S)
			DELAY(1000000);
		if (sbt > 0)
			DELAY(howmany(sbt, SBT_1US));
		return (EWOULDBLOCK);
	}
	return (_sleep(&pause_wchan[curcpu], NULL, 0, wmesg, sbt, pr, flags));
}

/* td's lock is held, and released unless srqflags says otherwise. */
void
setrunnable(struct thread *td, int srqflags)
{
	THREAD_LOCK_ASSERT(td, MA_OWNED);
	if (TD_CAN_RUN(td))
		sched_wakeup(td, srqflags);
	else if ((srqflags & SRQ_HOLDTD) == 0)
		thread_unlock(td);
}

/*
 * Gives up the CPU.  sched_lock is held once; it is released when the thread runs again.
 */
void
mi_switch(int flags)
{
	struct thread *td = curthread;
	uint64_t now;

	mtx_assert(&sched_lock, MA_OWNED | MA_NOTRECURSED);
	KASSERT(td->td_critnest == 1 || KERNEL_PANICKED(),
	    ("%s: %s switches in a critical section (%u)", __func__, td->td_name,
	    td->td_critnest));
	if ((flags & SW_VOL) != 0) {
		td->td_ru.ru_nvcsw++;
		td->td_swvoltick = ticks;
	} else {
		td->td_ru.ru_nivcsw++;
		td->td_swinvoltick = ticks;
	}
	now = cpu_ticks();
	td->td_runtime += now - PCPU_GET(switchtime);
	PCPU_SET(switchtime, now);
	PCPU_SET(switchticks, ticks);
	VM_CNT_INC(v_swtch);
	sched_switch(td, flags);
}

bool
should_yield(void)
{
	return ((u_int)ticks - (u_int)curthread->td_swvoltick >= (u_int)hogticks);
}

void
kern_yield(int prio)
{
	struct thread *td = curthread;

	DROP_GIANT();
	thread_lock(td);
	if (prio == PRI_USER)
		prio = td->td_user_pri;
	if (prio >= 0 && prio > td->td_priority && (td->td_flags & TDF_BORROWING) == 0)
		td->td_priority = prio;
	td->td_flags |= TDF_SLICEEND;
	mi_switch(SW_VOL | SWT_RELINQUISH);
	PICKUP_GIANT();
}

void
maybe_yield(void)
{
	if (should_yield())
		kern_yield(PRI_USER);
}
