/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * mutex(9): mutual exclusion, sleeping and spinning.
 *
 * A sleep mutex is one word: 0, or the owner's address with MTX_CONTESTED when a thread waits in
 * subr_lockq.c and MTX_RECURSED when the owner holds it more than once.  It is taken and released
 * by one compare-and-set.  A thread that finds it taken spins while the owner runs on another CPU,
 * and blocks otherwise.  MTX_CONTESTED is set, and a contested lock released, under sched_lock
 * only, so that a waiter is on the list before the owner can look.
 *
 * A spin mutex is held with interrupts off (spinlock_enter()); its word is 0 or the owner.
 *
 * After a panic only one thread runs (SCHEDULER_STOPPED()), and locks are neither taken nor
 * checked.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>

#include <machine/cpu.h>

#include <kern/sched_tree.h>

#define	cookie2mtx(c)	__containerof(__DEVOLATILE(uintptr_t *, (c)), struct mtx, mtx_lock)

/* Usable before mutex_init(), like sched_lock. */
struct mtx Giant = {
	.lock_object = {
		.lo_name = "Giant",
		.lo_flags = LO_INITIALIZED | LO_RECURSABLE | LO_WITNESS | (1 << LO_CLASSSHIFT),
	},
	.mtx_lock = MTX_UNOWNED,
};
struct mtx blocked_lock = {
	.lock_object = {
		.lo_name = "blocked lock",
		.lo_flags = LO_INITIALIZED | (0 << LO_CLASSSHIFT),
	},
	.mtx_lock = 0xdeadc0de,
};

static void
assert_mtx(const struct lock_object *lock, int what)
{
#if defined(INVARIANTS) || defined(INVARIANT_SUPPORT)
	const struct mtx *m = (const struct mtx *)lock;

	__mtx_assert(&m->mtx_lock, what, __FILE__, __LINE__);
#endif
}

static int
owner_mtx(const struct lock_object *lock, struct thread **owner)
{
	const struct mtx *m = (const struct mtx *)lock;

	*owner = mtx_owner(m);
	return (*owner != NULL);
}

/*
 * The slow path of taking m, whose word was last read as v.
 */
static void
mtx_lock_hard(struct mtx *m, uintptr_t v)
{
	struct thread *owner, *td = curthread;
	uintptr_t tid = (uintptr_t)td;

	if (SCHEDULER_STOPPED())
		return;
	if ((struct thread *)(v & ~MTX_FLAGMASK) == td) {
		KASSERT((m->lock_object.lo_flags & LO_RECURSABLE) != 0,
		    ("mutex %s recursed on but not recursable", m->lock_object.lo_name));
		atomic_set_ptr(&m->mtx_lock, MTX_RECURSED);
		m->mtx_recurse++;
		return;
	}
	for (;;) {
		v = m->mtx_lock;
		if (v == MTX_UNOWNED) {
			if (_mtx_obtain_lock_fetch(m, &v, tid))
				return;
			continue;
		}
		KASSERT((v & MTX_DESTROYED) == 0, ("mutex %p is destroyed", m));
		owner = lv_mtx_owner(v);
		if (TD_IS_RUNNING(owner)) {
			cpu_spinwait();
			continue;
		}
		mtx_lock_spin(&sched_lock);
		v = m->mtx_lock;
		owner = lv_mtx_owner(v);
		if (v == MTX_UNOWNED || TD_IS_RUNNING(owner) ||
		    ((v & MTX_CONTESTED) == 0 &&
		    !atomic_cmpset_ptr(&m->mtx_lock, v, v | MTX_CONTESTED))) {
			mtx_unlock_spin(&sched_lock);
			continue;
		}
		lockq_wait(&m->lock_object, owner);
	}
}

/* Releases m, which is contested or recursed. */
static void
mtx_unlock_hard(struct mtx *m)
{
	if (SCHEDULER_STOPPED())
		return;
	if (m->mtx_recurse != 0) {
		if (--m->mtx_recurse == 0)
			atomic_clear_ptr(&m->mtx_lock, MTX_RECURSED);
		return;
	}
	mtx_lock_spin(&sched_lock);
	_mtx_release_lock_quick(m);
	lockq_wakeup(&m->lock_object);
	mtx_unlock_spin(&sched_lock);
}

static void
mtx_lock_spin_hard(struct mtx *m)
{
	uintptr_t v, tid = (uintptr_t)curthread;

	if (SCHEDULER_STOPPED())
		return;
	if (m->mtx_lock == tid) {
		KASSERT((m->lock_object.lo_flags & LO_RECURSABLE) != 0,
		    ("spin mutex %s recursed on but not recursable", m->lock_object.lo_name));
		m->mtx_recurse++;
		return;
	}
	do {
		while (m->mtx_lock != MTX_UNOWNED) {
			if (SCHEDULER_STOPPED())
				return;
			cpu_spinwait();
		}
		v = MTX_UNOWNED;
	} while (!_mtx_obtain_lock_fetch(m, &v, tid));
}

/*
 * The entry points of sys/mutex.h: with file and line for modules and INVARIANTS, without when
 * the fast path is inlined.
 */
#if LOCK_DEBUG > 0
void
__mtx_lock_sleep(volatile uintptr_t *c, uintptr_t v, int opts __unused,
    const char *file __unused, int line __unused)
#else
void
__mtx_lock_sleep(volatile uintptr_t *c, uintptr_t v)
#endif
{
	mtx_lock_hard(cookie2mtx(c), v);
}

#if LOCK_DEBUG > 0
void
__mtx_unlock_sleep(volatile uintptr_t *c, uintptr_t v __unused, int opts __unused,
    const char *file __unused, int line __unused)
#else
void
__mtx_unlock_sleep(volatile uintptr_t *c, uintptr_t v __unused)
#endif
{
	mtx_unlock_hard(cookie2mtx(c));
}

#if LOCK_DEBUG > 0
void
_mtx_lock_spin_cookie(volatile uintptr_t *c, uintptr_t v __unused, int opts __unused,
    const char *file __unused, int line __unused)
#else
void
_mtx_lock_spin_cookie(volatile uintptr_t *c, uintptr_t v __unused)
#endif
{
	mtx_lock_spin_hard(cookie2mtx(c));
}

void
__mtx_lock_flags(volatile uintptr_t *c, int opts __unused, const char *file __diagused,
    int line __diagused)
{
	struct mtx *m = cookie2mtx(c);
	uintptr_t v = MTX_UNOWNED;

	KASSERT(LOCK_CLASS(&m->lock_object) == &lock_class_mtx_sleep,
	    ("mtx_lock() of %s %s at %s:%d", LOCK_CLASS(&m->lock_object)->lc_name,
	    m->lock_object.lo_name, file, line));
	LOCK_MAY_BLOCK(&m->lock_object, file, line);
	WITNESS_CHECKORDER(&m->lock_object, opts | LOP_NEWORDER | LOP_EXCLUSIVE, file, line, NULL);
	if (__predict_false(!_mtx_obtain_lock_fetch(m, &v, (uintptr_t)curthread)))
		mtx_lock_hard(m, v);
	WITNESS_LOCK(&m->lock_object, opts | LOP_EXCLUSIVE, file, line);
	TD_LOCKS_INC(curthread);
}

void
__mtx_unlock_flags(volatile uintptr_t *c, int opts __unused, const char *file __diagused,
    int line __diagused)
{
	struct mtx *m = cookie2mtx(c);
	uintptr_t v = (uintptr_t)curthread;

	KASSERT(SCHEDULER_STOPPED() || mtx_owned(m), ("mutex %s not owned at %s:%d",
	    m->lock_object.lo_name, file, line));
	WITNESS_UNLOCK(&m->lock_object, opts | LOP_EXCLUSIVE, file, line);
	TD_LOCKS_DEC(curthread);
	if (__predict_false(!_mtx_release_lock_fetch(m, &v)))
		mtx_unlock_hard(m);
	PREEMPT_AT_RANDOM();
}

void
__mtx_lock_spin_flags(volatile uintptr_t *c, int opts __unused, const char *file __diagused,
    int line __diagused)
{
	struct mtx *m = cookie2mtx(c);
	uintptr_t v = MTX_UNOWNED;

	KASSERT(LOCK_CLASS(&m->lock_object) == &lock_class_mtx_spin,
	    ("mtx_lock_spin() of %s %s at %s:%d", LOCK_CLASS(&m->lock_object)->lc_name,
	    m->lock_object.lo_name, file, line));
	spinlock_enter();
	WITNESS_CHECKORDER(&m->lock_object, opts | LOP_NEWORDER | LOP_EXCLUSIVE, file, line, NULL);
	if (__predict_false(!_mtx_obtain_lock_fetch(m, &v, (uintptr_t)curthread)))
		mtx_lock_spin_hard(m);
	WITNESS_LOCK(&m->lock_object, opts | LOP_EXCLUSIVE, file, line);
}

int
__mtx_trylock_spin_flags(volatile uintptr_t *c, int opts __unused, const char *file __diagused,
    int line __diagused)
{
	struct mtx *m = cookie2mtx(c);

	if (SCHEDULER_STOPPED())
		return (1);
	spinlock_enter();
	if (_mtx_obtain_lock(m, (uintptr_t)curthread)) {
		WITNESS_LOCK(&m->lock_object, opts | LOP_EXCLUSIVE | LOP_TRYLOCK, file, line);
		return (1);
	}
	spinlock_exit();
	return (0);
}

void
__mtx_unlock_spin_flags(volatile uintptr_t *c, int opts __unused, const char *file __diagused,
    int line __diagused)
{
	struct mtx *m = cookie2mtx(c);

	KASSERT(SCHEDULER_STOPPED() || mtx_owned(m), ("spin mutex %s not owned at %s:%d",
	    m->lock_object.lo_name, file, line));
	WITNESS_UNLOCK(&m->lock_object, opts | LOP_EXCLUSIVE, file, line);
	if (mtx_recursed(m))
		m->mtx_recurse--;
	else
		_mtx_release_lock_quick(m);
	spinlock_exit();
	if (m != &sched_lock)
		PREEMPT_AT_RANDOM();
}

int
_mtx_trylock_flags_(volatile uintptr_t *c, int opts __unused, const char *file __diagused,
    int line __diagused)
{
	struct mtx *m = cookie2mtx(c);
	uintptr_t v = MTX_UNOWNED;

	if (SCHEDULER_STOPPED())
		return (1);
	if (!_mtx_obtain_lock_fetch(m, &v, (uintptr_t)curthread)) {
		if (lv_mtx_owner(v) != curthread ||
		    (m->lock_object.lo_flags & LO_RECURSABLE) == 0)
			return (0);
		atomic_set_ptr(&m->mtx_lock, MTX_RECURSED);
		m->mtx_recurse++;
	}
	WITNESS_LOCK(&m->lock_object, opts | LOP_EXCLUSIVE | LOP_TRYLOCK, file, line);
	TD_LOCKS_INC(curthread);
	return (1);
}

int
_mtx_trylock_flags_int(struct mtx *m, int opts LOCK_FILE_LINE_ARG_DEF)
{
	return (_mtx_trylock_flags_(&m->mtx_lock, opts, LOCK_FILE, LOCK_LINE));
}

/* td_lock never changes in this kernel, so that there is nothing to check again. */
void
thread_lock_flags_(struct thread *td, int opts, const char *file, int line)
{
	__mtx_lock_spin_flags(&td->td_lock->mtx_lock, opts, file, line);
}

#if LOCK_DEBUG > 0
void
_thread_lock(struct thread *td, int opts, const char *file, int line)
{
	__mtx_lock_spin_flags(&td->td_lock->mtx_lock, opts, file, line);
}
#else
void
_thread_lock(struct thread *td)
{
	mtx_lock_spin(td->td_lock);
}
#endif

/* Waits until m has been free, or changed hands, at least once. */
void
mtx_wait_unlocked(struct mtx *m)
{
	struct thread *owner = mtx_owner(m);

	KASSERT(owner != curthread, ("waiting on myself for lock %p", m));
	while (owner != NULL && mtx_owner(m) == owner) {
		if (TD_IS_RUNNING(owner))
			cpu_spinwait();
		else {
			mtx_lock(m);
			mtx_unlock(m);
			return;
		}
	}
}

void
mtx_spin_wait_unlocked(struct mtx *m)
{
	KASSERT(!mtx_owned(m), ("waiting on myself for lock %p", m));
	while (atomic_load_acq_ptr(&m->mtx_lock) != MTX_UNOWNED)
		cpu_spinwait();
}

#if defined(INVARIANTS) || defined(INVARIANT_SUPPORT)
void
__mtx_assert(const volatile uintptr_t *c, int what, const char *file, int line)
{
	const struct mtx *m = cookie2mtx(__DECONST(volatile uintptr_t *, c));
	const char *name = m->lock_object.lo_name;
	bool owned = mtx_owned(m);

	if (__predict_true(what == MA_OWNED && owned))
		return;
	if (SCHEDULER_STOPPED() || KERNEL_PANICKED())
		return;
	if ((what & MA_OWNED) != 0) {
		if (!owned)
			panic("mutex %s not owned at %s:%d", name, file, line);
		if ((what & MA_RECURSED) != 0 && !mtx_recursed(m))
			panic("mutex %s not recursed at %s:%d", name, file, line);
		if ((what & MA_NOTRECURSED) != 0 && mtx_recursed(m))
			panic("mutex %s recursed at %s:%d", name, file, line);
	} else if (owned)
		panic("mutex %s owned at %s:%d", name, file, line);
}
#endif

static void
lock_mtx(struct lock_object *lock, uintptr_t how __unused)
{
	mtx_lock((struct mtx *)lock);
}

static void
lock_spin(struct lock_object *lock, uintptr_t how __unused)
{
	mtx_lock_spin((struct mtx *)lock);
}

static uintptr_t
unlock_mtx(struct lock_object *lock)
{
	mtx_unlock((struct mtx *)lock);
	return (0);
}

static uintptr_t
unlock_spin(struct lock_object *lock)
{
	mtx_unlock_spin((struct mtx *)lock);
	return (0);
}

static int
trylock_mtx(struct lock_object *lock, uintptr_t how __unused)
{
	return (mtx_trylock((struct mtx *)lock));
}

static int
trylock_spin(struct lock_object *lock, uintptr_t how __unused)
{
	return (mtx_trylock_spin((struct mtx *)lock));
}

struct lock_class lock_class_mtx_sleep = {
	.lc_name = "sleep mutex",
	.lc_flags = LC_SLEEPLOCK | LC_RECURSABLE,
	.lc_assert = assert_mtx,
	.lc_lock = lock_mtx,
	.lc_owner = owner_mtx,
	.lc_unlock = unlock_mtx,
	.lc_trylock = trylock_mtx,
};

struct lock_class lock_class_mtx_spin = {
	.lc_name = "spin mutex",
	.lc_flags = LC_SPINLOCK | LC_RECURSABLE,
	.lc_assert = assert_mtx,
	.lc_lock = lock_spin,
	.lc_owner = owner_mtx,
	.lc_unlock = unlock_spin,
	.lc_trylock = trylock_spin,
};

void
_mtx_init(volatile uintptr_t *c, const char *name, const char *type, int opts)
{
	struct mtx *m = cookie2mtx(c);
	int flags = 0;

	if ((opts & MTX_QUIET) != 0)
		flags |= LO_QUIET;
	if ((opts & MTX_RECURSE) != 0)
		flags |= LO_RECURSABLE;
	if ((opts & MTX_DUPOK) != 0)
		flags |= LO_DUPOK;
	if ((opts & MTX_NEW) != 0)
		flags |= LO_NEW;
	if ((opts & MTX_NOWITNESS) == 0)
		flags |= LO_WITNESS;
	lock_init(&m->lock_object,
	    (opts & MTX_SPIN) != 0 ? &lock_class_mtx_spin : &lock_class_mtx_sleep, name, type,
	    flags);
	m->mtx_lock = MTX_UNOWNED;
}

void
_mtx_destroy(volatile uintptr_t *c)
{
	struct mtx *m = cookie2mtx(c);

	if (mtx_owned(m)) {
		WITNESS_UNLOCK(&m->lock_object, LOP_EXCLUSIVE, __FILE__, __LINE__);
		KASSERT(!mtx_recursed(m), ("mutex %s destroyed while recursed",
		    m->lock_object.lo_name));
		if (LOCK_CLASS(&m->lock_object) == &lock_class_mtx_spin)
			spinlock_exit();
		else
			TD_LOCKS_DEC(curthread);
	} else
		KASSERT(m->mtx_lock == MTX_UNOWNED, ("mutex %s destroyed while held by another",
		    m->lock_object.lo_name));
	m->mtx_lock = MTX_DESTROYED;
	lock_destroy(&m->lock_object);
}

void
mtx_sysinit(const void *arg)
{
	const struct mtx_args *ma = arg;

	mtx_init((struct mtx *)ma->ma_mtx, ma->ma_desc, NULL, ma->ma_opts | MTX_NEW);
}

/* Called by the machine's start-up code as soon as there is a current thread. */
void
mutex_init(void)
{
	if (mtx_initialized(&proc0.p_mtx))
		return;
#ifdef WITNESS
	witness_thread0();
#endif
	mtx_init(&proc0.p_mtx, "process lock", NULL, MTX_DEF | MTX_DUPOK);
	mtx_init(&proc0.p_slock, "process slock", NULL, MTX_SPIN);
	mtx_init(&proc0.p_statmtx, "pstatl", NULL, MTX_SPIN);
	mtx_init(&proc0.p_itimmtx, "pitiml", NULL, MTX_SPIN);
	mtx_init(&proc0.p_profmtx, "pprofl", NULL, MTX_SPIN);
}
