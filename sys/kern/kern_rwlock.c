/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * rwlock(9): many readers or one writer, who may block but not sleep.  The lock itself is in
 * subr_rwengine.c; here are its names.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/rwlock.h>

#include <kern/sched_tree.h>

#define	cookie2rw(c)	__containerof(__DEVOLATILE(uintptr_t *, (c)), struct rwlock, rw_lock)

#if LOCK_DEBUG > 0
#define	RW_ARGS		, const char *file __unused, int line __unused
#else
#define	RW_ARGS
#endif

static void
assert_rw(const struct lock_object *lock, int what)
{
	const struct rwlock *rw = (const struct rwlock *)lock;

	rwe_assert(lock, &rw->rw_lock, what, __FILE__, __LINE__);
}

/* how, here and in unlock_rw(): whether the lock is, or was, held for reading. */
static void
lock_rw(struct lock_object *lock, uintptr_t how)
{
	if (how != 0)
		rw_rlock((struct rwlock *)lock);
	else
		rw_wlock((struct rwlock *)lock);
}

static uintptr_t
unlock_rw(struct lock_object *lock)
{
	struct rwlock *rw = (struct rwlock *)lock;

	if (rwe_wowned(&rw->rw_lock)) {
		rw_wunlock(rw);
		return (0);
	}
	rw_runlock(rw);
	return (1);
}

static int
trylock_rw(struct lock_object *lock, uintptr_t how)
{
	struct rwlock *rw = (struct rwlock *)lock;

	return (how != 0 ? rw_try_rlock(rw) : rw_try_wlock(rw));
}

static int
owner_rw(const struct lock_object *lock, struct thread **owner)
{
	return (rwe_owner(&((const struct rwlock *)lock)->rw_lock, owner));
}

struct lock_class lock_class_rw = {
	.lc_name = "rw",
	.lc_flags = LC_SLEEPLOCK | LC_RECURSABLE | LC_UPGRADABLE,
	.lc_assert = assert_rw,
	.lc_lock = lock_rw,
	.lc_owner = owner_rw,
	.lc_unlock = unlock_rw,
	.lc_trylock = trylock_rw,
};

void
_rw_init_flags(volatile uintptr_t *c, const char *name, int opts)
{
	struct rwlock *rw = cookie2rw(c);
	int flags = LO_UPGRADABLE;

	if ((opts & RW_NOWITNESS) == 0)
		flags |= LO_WITNESS;
	if ((opts & RW_RECURSE) != 0)
		flags |= LO_RECURSABLE;
	if ((opts & RW_DUPOK) != 0)
		flags |= LO_DUPOK;
	if ((opts & RW_NEW) != 0)
		flags |= LO_NEW;
	lock_init(&rw->lock_object, &lock_class_rw, name, NULL, flags);
	rw->rw_lock = RW_UNLOCKED;
}

void
_rw_destroy(volatile uintptr_t *c)
{
	struct rwlock *rw = cookie2rw(c);

	KASSERT(rw->rw_lock == RW_UNLOCKED, ("rwlock %s destroyed while held",
	    rw->lock_object.lo_name));
	rw->rw_lock = RW_DESTROYED;
	lock_destroy(&rw->lock_object);
}

void
rw_sysinit(const void *arg)
{
	const struct rw_args *args = arg;

	rw_init_flags((struct rwlock *)args->ra_rw, args->ra_desc, args->ra_flags | RW_NEW);
}

int
_rw_wowned(const volatile uintptr_t *c)
{
	return (rwe_wowned(c));
}

void
_rw_wlock_cookie(volatile uintptr_t *c, const char *file __diagused, int line __diagused)
{
	struct rwlock *rw = cookie2rw(c);

	LOCK_MAY_BLOCK(&rw->lock_object, file, line);
	WITNESS_CHECKORDER(&rw->lock_object, LOP_NEWORDER | LOP_EXCLUSIVE, file, line, NULL);
	rwe_wlock(&rw->lock_object, c, (uintptr_t)curthread);
	WITNESS_LOCK(&rw->lock_object, LOP_EXCLUSIVE, file, line);
	TD_LOCKS_INC(curthread);
}

int
__rw_try_wlock(volatile uintptr_t *c, const char *file __diagused, int line __diagused)
{
	struct rwlock *rw = cookie2rw(c);

	if (!rwe_try_wlock(&rw->lock_object, c, (uintptr_t)curthread))
		return (0);
	WITNESS_LOCK(&rw->lock_object, LOP_EXCLUSIVE | LOP_TRYLOCK, file, line);
	TD_LOCKS_INC(curthread);
	return (1);
}

int
__rw_try_wlock_int(struct rwlock *rw RW_ARGS)
{
	return (__rw_try_wlock(&rw->rw_lock, LOCK_FILE, LOCK_LINE));
}

void
_rw_wunlock_cookie(volatile uintptr_t *c, const char *file __diagused, int line __diagused)
{
	struct rwlock *rw = cookie2rw(c);

	WITNESS_UNLOCK(&rw->lock_object, LOP_EXCLUSIVE, file, line);
	TD_LOCKS_DEC(curthread);
	rwe_wunlock(&rw->lock_object, c, (uintptr_t)curthread);
}

void
__rw_rlock(volatile uintptr_t *c, const char *file __diagused, int line __diagused)
{
	struct rwlock *rw = cookie2rw(c);

	LOCK_MAY_BLOCK(&rw->lock_object, file, line);
	WITNESS_CHECKORDER(&rw->lock_object, LOP_NEWORDER, file, line, NULL);
	rwe_rlock(&rw->lock_object, c);
	WITNESS_LOCK(&rw->lock_object, 0, file, line);
	TD_LOCKS_INC(curthread);
}

void
__rw_rlock_int(struct rwlock *rw RW_ARGS)
{
	__rw_rlock(&rw->rw_lock, LOCK_FILE, LOCK_LINE);
}

int
__rw_try_rlock(volatile uintptr_t *c, const char *file __diagused, int line __diagused)
{
	if (!rwe_try_rlock(c))
		return (0);
	WITNESS_LOCK(&cookie2rw(c)->lock_object, LOP_TRYLOCK, file, line);
	TD_LOCKS_INC(curthread);
	return (1);
}

int
__rw_try_rlock_int(struct rwlock *rw RW_ARGS)
{
	return (__rw_try_rlock(&rw->rw_lock, LOCK_FILE, LOCK_LINE));
}

void
_rw_runlock_cookie(volatile uintptr_t *c, const char *file __diagused, int line __diagused)
{
	WITNESS_UNLOCK(&cookie2rw(c)->lock_object, 0, file, line);
	TD_LOCKS_DEC(curthread);
	rwe_runlock(&cookie2rw(c)->lock_object, c);
}

void
_rw_runlock_cookie_int(struct rwlock *rw RW_ARGS)
{
	_rw_runlock_cookie(&rw->rw_lock, LOCK_FILE, LOCK_LINE);
}

void
__rw_wlock_hard(volatile uintptr_t *c, uintptr_t v __unused RW_ARGS)
{
	rwe_wlock(&cookie2rw(c)->lock_object, c, (uintptr_t)curthread);
}

void
__rw_wunlock_hard(volatile uintptr_t *c, uintptr_t v __unused RW_ARGS)
{
	rwe_wunlock(&cookie2rw(c)->lock_object, c, (uintptr_t)curthread);
}

int
__rw_try_upgrade(volatile uintptr_t *c, const char *file __diagused, int line __diagused)
{
	if (!rwe_try_upgrade(&cookie2rw(c)->lock_object, c))
		return (0);
	WITNESS_UPGRADE(&cookie2rw(c)->lock_object, LOP_EXCLUSIVE | LOP_TRYLOCK, file, line);
	return (1);
}

int
__rw_try_upgrade_int(struct rwlock *rw RW_ARGS)
{
	return (__rw_try_upgrade(&rw->rw_lock, LOCK_FILE, LOCK_LINE));
}

void
__rw_downgrade(volatile uintptr_t *c, const char *file __diagused, int line __diagused)
{
	WITNESS_DOWNGRADE(&cookie2rw(c)->lock_object, 0, file, line);
	rwe_downgrade(&cookie2rw(c)->lock_object, c);
}

void
__rw_downgrade_int(struct rwlock *rw RW_ARGS)
{
	__rw_downgrade(&rw->rw_lock, LOCK_FILE, LOCK_LINE);
}

#if defined(INVARIANTS) || defined(INVARIANT_SUPPORT)
void
__rw_assert(const volatile uintptr_t *c, int what, const char *file, int line)
{
	const struct rwlock *rw = cookie2rw(__DECONST(volatile uintptr_t *, c));

#ifdef WITNESS
	witness_assert(&rw->lock_object, what, file, line);
#endif
	rwe_assert(&rw->lock_object, c, what, file, line);
}
#endif
