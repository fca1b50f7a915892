/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * condvar(9).
 *
 * cv_waiters counts the threads that may wait, under sched_lock.  A waiter that timed out is still
 * counted until the next broadcast finds an empty queue; the count only saves the search of an empty
 * queue.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/condvar.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sleepqueue.h>

void
cv_init(struct cv *cvp, const char *desc)
{
	cvp->cv_description = desc;
	cvp->cv_waiters = 0;
}

void
cv_destroy(struct cv *cvp)
{
#ifdef INVARIANTS
	sleepq_lock(cvp);
	KASSERT(sleepq_sleepcnt(cvp, 0) == 0, ("cv %s destroyed while waited for",
	    cvp->cv_description));
	sleepq_release(cvp);
#endif
}

/* Waits without a limit when sbt is 0; takes the lock again if relock is set. */
static int
cv_sleep(struct cv *cvp, struct lock_object *lock, sbintime_t sbt, sbintime_t pr, int flags,
    bool relock)
{
	struct lock_class *class = LOCK_CLASS(lock);
	uintptr_t lock_state = 0;
	bool giant = lock == &Giant.lock_object;
	int error = 0;
	WITNESS_SAVE_DECL(lock_witness);

	WITNESS_WARN(WARN_GIANTOK | WARN_SLEEPOK, lock, "Waiting on \"%s\"",
	    cvp->cv_description);
	KASSERT(curthread->td_critnest == 0, ("cv %s: waiting in a critical section",
	    cvp->cv_description));
	if (SCHEDULER_STOPPED() || KERNEL_PANICKED())
		return (0);
	sleepq_lock(cvp);
	cvp->cv_waiters++;
	sleepq_add(cvp, lock, cvp->cv_description, SLEEPQ_CONDVAR, 0);
	if (sbt != 0)
		sleepq_set_timeout_sbt(cvp, sbt, pr, flags);
	DROP_GIANT();
	if (!giant) {
		WITNESS_SAVE(lock, lock_witness);
		lock_state = class->lc_unlock(lock);
	}
	if (sbt != 0)
		error = sleepq_timedwait(cvp, 0);
	else
		sleepq_wait(cvp, 0);
	PICKUP_GIANT();
	if (relock && !giant) {
		class->lc_lock(lock, lock_state);
		WITNESS_RESTORE(lock, lock_witness);
	} else if (!relock && giant)
		mtx_unlock(&Giant);
	return (error);
}

void
_cv_wait(struct cv *cvp, struct lock_object *lock)
{
	cv_sleep(cvp, lock, 0, 0, 0, true);
}

void
_cv_wait_unlock(struct cv *cvp, struct lock_object *lock)
{
	cv_sleep(cvp, lock, 0, 0, 0, false);
}

int
_cv_wait_sig(struct cv *cvp, struct lock_object *lock)
{
	return (cv_sleep(cvp, lock, 0, 0, 0, true));
}

int
_cv_timedwait_sbt(struct cv *cvp, struct lock_object *lock, sbintime_t sbt, sbintime_t pr,
    int flags)
{
	return (cv_sleep(cvp, lock, sbt, pr, flags, true));
}

int
_cv_timedwait_sig_sbt(struct cv *cvp, struct lock_object *lock, sbintime_t sbt, sbintime_t pr,
    int flags)
{
	return (cv_sleep(cvp, lock, sbt, pr, flags, true));
}

void
cv_signal(struct cv *cvp)
{
	if (cvp->cv_waiters == 0)
		return;
	sleepq_lock(cvp);
	sleepq_signal(cvp, SLEEPQ_CONDVAR, 0, 0);
	cvp->cv_waiters = sleepq_sleepcnt(cvp, 0);
	sleepq_release(cvp);
}

void
cv_broadcastpri(struct cv *cvp, int pri)
{
	if (cvp->cv_waiters == 0)
		return;
	sleepq_lock(cvp);
	cvp->cv_waiters = 0;
	sleepq_broadcast(cvp, SLEEPQ_CONDVAR, pri, 0);
	sleepq_release(cvp);
}
