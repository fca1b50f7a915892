/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The reader/writer lock behind rwlock(9), sx(9) and rmlock(9).
 *
 * These three keep their state in one word of the same layout: bit 0 says that the rest counts
 * readers (a free lock has none), otherwise the rest is the writer's address; two bits are set if
 * readers or writers wait, one if the writer holds it more than once.  The recursion count is the
 * lock's lo_data.
 *
 * A reader gives way to waiting writers unless it holds a lock of this kind already, which would
 * otherwise dead-lock it against a writer that waits for it.  A release that finds a waiter clears
 * the waiting bits and wakes all of them.  As with mutexes, the waiting bits are set, and a lock
 * with a waiting bit freed, under sched_lock only.
 *
 * Gaps.  Waiters do not lend their priority to readers, which are not recorded.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/rwlock.h>
#include <sys/sx.h>

#include <machine/cpu.h>

#include <kern/sched_tree.h>

CTASSERT(RW_LOCK_READ == SX_LOCK_SHARED && RW_LOCK_READ_WAITERS == SX_LOCK_SHARED_WAITERS);
CTASSERT(RW_LOCK_WRITE_WAITERS == SX_LOCK_EXCLUSIVE_WAITERS);
CTASSERT(RW_LOCK_WRITER_RECURSED == SX_LOCK_RECURSED && RW_READERS_SHIFT == SX_SHARERS_SHIFT);

static struct thread *
rwe_writer(uintptr_t v)
{
	return ((v & RW_LOCK_READ) != 0 ? NULL : (struct thread *)RW_OWNER(v));
}

static bool
rwe_can_read(uintptr_t v)
{
	return ((v & RW_LOCK_READ) != 0 &&
	    ((v & RW_LOCK_WRITE_WAITERS) == 0 || curthread->td_rw_rlocks > 0));
}

/*
 * Waits until the lock, last read as v and not available, may have become free; bit is the waiting
 * bit for the caller's mode.
 */
static void
rwe_wait(struct lock_object *lo, volatile uintptr_t *word, uintptr_t bit)
{
	struct thread *owner;
	uintptr_t v;

	v = *word;
	owner = rwe_writer(v);
	if (owner != NULL && TD_IS_RUNNING(owner)) {
		KASSERT(owner != curthread, ("lock %s: recursion", lo->lo_name));
		cpu_spinwait();
		return;
	}
	mtx_lock_spin(&sched_lock);
	v = *word;
	owner = rwe_writer(v);
	if (bit == RW_LOCK_READ_WAITERS ? rwe_can_read(v) :
	    (v & ~(uintptr_t)RW_LOCK_WAITERS) == RW_UNLOCKED) {
		mtx_unlock_spin(&sched_lock);
		return;
	}
	if ((owner != NULL && TD_IS_RUNNING(owner)) ||
	    ((v & bit) == 0 && !atomic_cmpset_ptr(word, v, v | bit))) {
		mtx_unlock_spin(&sched_lock);
		return;
	}
	lockq_wait(lo, owner);
}

bool
rwe_try_rlock(volatile uintptr_t *word)
{
	uintptr_t v = *word;

	if (SCHEDULER_STOPPED())
		return (true);
	while (rwe_can_read(v)) {
		if (atomic_fcmpset_acq_ptr(word, &v, v + RW_ONE_READER)) {
			curthread->td_rw_rlocks++;
			return (true);
		}
	}
	return (false);
}

void
rwe_rlock(struct lock_object *lo, volatile uintptr_t *word)
{
	while (!rwe_try_rlock(word))
		rwe_wait(lo, word, RW_LOCK_READ_WAITERS);
}

/* Frees the lock, for which threads wait or may wait, and wakes all waiters. */
static void
rwe_free(struct lock_object *lo, volatile uintptr_t *word)
{
	mtx_lock_spin(&sched_lock);
	atomic_store_rel_ptr(word, RW_UNLOCKED);
	lockq_wakeup(lo);
	mtx_unlock_spin(&sched_lock);
}

static void
rwe_drop_read(struct lock_object *lo, volatile uintptr_t *word)
{
	uintptr_t v = *word;

	if (SCHEDULER_STOPPED())
		return;
	KASSERT((v & RW_LOCK_READ) != 0 && RW_READERS(v) > 0, ("lock %s is not read-locked",
	    lo->lo_name));
	curthread->td_rw_rlocks--;
	for (;;) {
		if (RW_READERS(v) > 1 || (v & RW_LOCK_WAITERS) == 0) {
			if (atomic_fcmpset_rel_ptr(word, &v, v - RW_ONE_READER))
				return;
			continue;
		}
		/*
		 * The last reader, and there are waiters.  Another reader may still take the lock
		 * before sched_lock is taken, hence the exchange under it.
		 */
		mtx_lock_spin(&sched_lock);
		v = *word;
		if (RW_READERS(v) == 1 && atomic_cmpset_rel_ptr(word, v, RW_UNLOCKED)) {
			lockq_wakeup(lo);
			mtx_unlock_spin(&sched_lock);
			return;
		}
		mtx_unlock_spin(&sched_lock);
	}
}

void
rwe_runlock(struct lock_object *lo, volatile uintptr_t *word)
{
	rwe_drop_read(lo, word);
	PREEMPT_AT_RANDOM();
}

bool
rwe_try_wlock(struct lock_object *lo, volatile uintptr_t *word, uintptr_t tid)
{
	uintptr_t v = RW_UNLOCKED;

	if (SCHEDULER_STOPPED())
		return (true);
	if (atomic_fcmpset_acq_ptr(word, &v, tid))
		return (true);
	if (rwe_writer(v) != (struct thread *)tid || (lo->lo_flags & LO_RECURSABLE) == 0)
		return (false);
	atomic_set_ptr(word, RW_LOCK_WRITER_RECURSED);
	lo->lo_data++;
	return (true);
}

void
rwe_wlock(struct lock_object *lo, volatile uintptr_t *word, uintptr_t tid)
{
	uintptr_t v;

	while (!rwe_try_wlock(lo, word, tid)) {
		v = *word;
		/* Free, but others wait as well: they stay marked. */
		if ((v & ~(uintptr_t)RW_LOCK_WAITERS) == RW_UNLOCKED) {
			if (atomic_cmpset_acq_ptr(word, v, tid | (v & RW_LOCK_WAITERS)))
				return;
			continue;
		}
		KASSERT(rwe_writer(v) != (struct thread *)tid,
		    ("lock %s: recursed on but not recursable", lo->lo_name));
		rwe_wait(lo, word, RW_LOCK_WRITE_WAITERS);
	}
}

static void
rwe_drop_write(struct lock_object *lo, volatile uintptr_t *word, uintptr_t tid)
{
	uintptr_t v = tid;

	if (SCHEDULER_STOPPED())
		return;
	if (__predict_true(atomic_fcmpset_rel_ptr(word, &v, RW_UNLOCKED)))
		return;
	KASSERT(rwe_writer(v) == (struct thread *)tid, ("lock %s is not write-locked by %p",
	    lo->lo_name, (void *)tid));
	if (lo->lo_data != 0) {
		if (--lo->lo_data == 0)
			atomic_clear_ptr(word, RW_LOCK_WRITER_RECURSED);
		return;
	}
	rwe_free(lo, word);
}

void
rwe_wunlock(struct lock_object *lo, volatile uintptr_t *word, uintptr_t tid)
{
	rwe_drop_write(lo, word, tid);
	PREEMPT_AT_RANDOM();
}

/* From the only reader to the writer; fails when there are other readers. */
bool
rwe_try_upgrade(struct lock_object *lo, volatile uintptr_t *word)
{
	uintptr_t v = *word, tid = (uintptr_t)curthread;

	if (SCHEDULER_STOPPED())
		return (true);
	KASSERT((v & RW_LOCK_READ) != 0, ("lock %s is not read-locked", lo->lo_name));
	while (RW_READERS(v) == 1) {
		if (atomic_fcmpset_acq_ptr(word, &v, tid | (v & RW_LOCK_WAITERS))) {
			curthread->td_rw_rlocks--;
			return (true);
		}
	}
	return (false);
}

void
rwe_downgrade(struct lock_object *lo, volatile uintptr_t *word)
{
	uintptr_t v = (uintptr_t)curthread;

	if (SCHEDULER_STOPPED())
		return;
	KASSERT(rwe_writer(*word) == curthread && lo->lo_data == 0,
	    ("lock %s is not write-locked once", lo->lo_name));
	curthread->td_rw_rlocks++;
	if (atomic_fcmpset_rel_ptr(word, &v, RW_READERS_LOCK(1)))
		return;
	mtx_lock_spin(&sched_lock);
	atomic_store_rel_ptr(word, RW_READERS_LOCK(1));
	lockq_wakeup(lo);
	mtx_unlock_spin(&sched_lock);
}

bool
rwe_wowned(const volatile uintptr_t *word)
{
	return (rwe_writer(*word) == curthread);
}

int
rwe_owner(const volatile uintptr_t *word, struct thread **owner)
{
	uintptr_t v = *word;

	*owner = rwe_writer(v);
	return (*owner != NULL || ((v & RW_LOCK_READ) != 0 && RW_READERS(v) != 0));
}

void
rwe_assert(const struct lock_object *lo, const volatile uintptr_t *word, int what,
    const char *file, int line)
{
	uintptr_t v = *word;
	bool mine = rwe_wowned(word);
	bool read = (v & RW_LOCK_READ) != 0 && RW_READERS(v) > 0;

	if (SCHEDULER_STOPPED() || KERNEL_PANICKED())
		return;
	if (what == LA_UNLOCKED) {
		if (mine)
			panic("lock %s locked at %s:%d", lo->lo_name, file, line);
		return;
	}
	if ((what & LA_XLOCKED) != 0 && !mine)
		panic("lock %s not exclusively locked at %s:%d", lo->lo_name, file, line);
	if ((what & LA_SLOCKED) != 0 && !read)
		panic("lock %s not share locked at %s:%d", lo->lo_name, file, line);
	if ((what & LA_LOCKED) != 0 && !read && !mine)
		panic("lock %s not locked at %s:%d", lo->lo_name, file, line);
	if ((what & LA_RECURSED) != 0 && lo->lo_data == 0)
		panic("lock %s not recursed at %s:%d", lo->lo_name, file, line);
	if ((what & LA_NOTRECURSED) != 0 && mine && lo->lo_data != 0)
		panic("lock %s recursed at %s:%d", lo->lo_name, file, line);
}
