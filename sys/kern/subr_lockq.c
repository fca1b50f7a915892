/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Threads that wait for a mutex or a reader/writer lock, and the priority they lend its owner.
 *
 * A thread blocks here only when the owner is not running at that moment (else it spins), so that
 * rarely more than a few wait: all of them are on one list, searched by the lock's address.
 * A release wakes all waiters of the lock, and they compete for it again.  That has a small cost
 * when several wait, and needs no hand-over that could be lost.
 *
 * While it waits, a thread lends its priority to the owner, and to the owner of a lock that that
 * one waits for, and so on.  A release ends the loan of priorities that no remaining waiter lends.
 *
 * Locking.  All of it under sched_lock.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>

#include <kern/sched_tree.h>

static TAILQ_HEAD(, thread) blocked_threads = TAILQ_HEAD_INITIALIZER(blocked_threads);

static struct thread *
lockq_owner(struct lock_object *lo)
{
	struct thread *owner;

	if (LOCK_CLASS(lo)->lc_owner == NULL || LOCK_CLASS(lo)->lc_owner(lo, &owner) == 0)
		return (NULL);
	return (owner);
}

/*
 * Blocks the current thread until lo is released.  sched_lock is held once, was held since the
 * caller marked the lock word as contested, and is released on return.
 */
void
lockq_wait(struct lock_object *lo, struct thread *owner)
{
	struct thread *td = curthread;
	u_char prio = td->td_priority;

	mtx_assert(&sched_lock, MA_OWNED | MA_NOTRECURSED);
	KASSERT(td != owner, ("lock %s: %s waits for itself", lo->lo_name, td->td_name));
	KASSERT(!TD_IS_IDLETHREAD(td) && td->td_intr_nesting_level == 0,
	    ("lock %s: blocking in interrupt context", lo->lo_name));
	td->td_wantedlock = lo;
	td->td_lockname = lo->lo_name;
	td->td_blktick = ticks;
	TAILQ_INSERT_TAIL(&blocked_threads, td, td_lockq);
	TD_SET_LOCK(td);
	while (owner != NULL && owner->td_priority > prio) {
		sched_lend_prio(owner, prio);
		if (!TD_ON_LOCK(owner))
			break;
		owner = lockq_owner(owner->td_wantedlock);
	}
	mi_switch(SW_VOL | SWT_TURNSTILE);
}

/* The current thread has released lo: wakes its waiters, and gives up the priority they lent. */
void
lockq_wakeup(struct lock_object *lo)
{
	struct thread *td, *next, *me = curthread;
	u_char prio = PRI_MAX;

	mtx_assert(&sched_lock, MA_OWNED);
	TAILQ_FOREACH_SAFE(td, &blocked_threads, td_lockq, next) {
		if (td->td_wantedlock == lo) {
			TAILQ_REMOVE(&blocked_threads, td, td_lockq);
			td->td_wantedlock = NULL;
			td->td_lockname = NULL;
			td->td_blktick = 0;
			TD_CLR_LOCK(td);
			sched_wakeup(td, SRQ_HOLDTD);
		} else if ((me->td_flags & TDF_BORROWING) != 0 && td->td_priority < prio &&
		    lockq_owner(td->td_wantedlock) == me)
			prio = td->td_priority;
	}
	if ((me->td_flags & TDF_BORROWING) != 0)
		sched_unlend_prio(me, prio);
}
