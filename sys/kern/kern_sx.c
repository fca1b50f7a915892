/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * sx(9): many sharers or one exclusive owner, who may sleep.  The lock itself is in
 * subr_rwengine.c; here are its names.
 *
 * A thread waits without Giant, as for everything that may sleep: the owner of the lock could need
 * Giant.
 *
 * Gaps.  There are no signals in this kernel: the interruptible forms never fail.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sx.h>

#include <kern/sched_tree.h>

#if LOCK_DEBUG > 0
#define	SX_ARGS		, const char *file __unused, int line __unused
#else
#define	SX_ARGS
#endif

static void
assert_sx(const struct lock_object *lock, int what)
{
	rwe_assert(lock, &((const struct sx *)lock)->sx_lock, what, __FILE__, __LINE__);
}

static void
sx_wlock(struct sx *sx)
{
	if (rwe_try_wlock(&sx->lock_object, &sx->sx_lock, (uintptr_t)curthread))
		return;
	DROP_GIANT();
	rwe_wlock(&sx->lock_object, &sx->sx_lock, (uintptr_t)curthread);
	PICKUP_GIANT();
}

static void
sx_rlock(struct sx *sx)
{
	if (rwe_try_rlock(&sx->sx_lock))
		return;
	DROP_GIANT();
	rwe_rlock(&sx->lock_object, &sx->sx_lock);
	PICKUP_GIANT();
}

/* how, here and in unlock_sx(): whether the lock is, or was, shared. */
static void
lock_sx(struct lock_object *lock, uintptr_t how)
{
	if (how != 0)
		sx_slock((struct sx *)lock);
	else
		sx_xlock((struct sx *)lock);
}

static uintptr_t
unlock_sx(struct lock_object *lock)
{
	struct sx *sx = (struct sx *)lock;

	if (rwe_wowned(&sx->sx_lock)) {
		sx_xunlock(sx);
		return (0);
	}
	sx_sunlock(sx);
	return (1);
}

static int
trylock_sx(struct lock_object *lock, uintptr_t how)
{
	struct sx *sx = (struct sx *)lock;

	return (how != 0 ? sx_try_slock(sx) : sx_try_xlock(sx));
}

static int
owner_sx(const struct lock_object *lock, struct thread **owner)
{
	return (rwe_owner(&((const struct sx *)lock)->sx_lock, owner));
}

struct lock_class lock_class_sx = {
	.lc_name = "sx",
	.lc_flags = LC_SLEEPLOCK | LC_SLEEPABLE | LC_RECURSABLE | LC_UPGRADABLE,
	.lc_assert = assert_sx,
	.lc_lock = lock_sx,
	.lc_owner = owner_sx,
	.lc_unlock = unlock_sx,
	.lc_trylock = trylock_sx,
};

void
sx_init_flags(struct sx *sx, const char *description, int opts)
{
	int flags = LO_SLEEPABLE | LO_UPGRADABLE;

	if ((opts & SX_NOWITNESS) == 0)
		flags |= LO_WITNESS;
	if ((opts & SX_RECURSE) != 0)
		flags |= LO_RECURSABLE;
	if ((opts & SX_DUPOK) != 0)
		flags |= LO_DUPOK;
	if ((opts & SX_NEW) != 0)
		flags |= LO_NEW;
	lock_init(&sx->lock_object, &lock_class_sx, description, NULL, flags);
	sx->sx_lock = SX_LOCK_UNLOCKED;
}

void
sx_destroy(struct sx *sx)
{
	KASSERT(sx->sx_lock == SX_LOCK_UNLOCKED, ("sx %s destroyed while held",
	    sx->lock_object.lo_name));
	sx->sx_lock = SX_LOCK_DESTROYED;
	lock_destroy(&sx->lock_object);
}

void
sx_sysinit(const void *arg)
{
	const struct sx_args *args = arg;

	sx_init_flags(args->sa_sx, args->sa_desc, args->sa_flags | SX_NEW);
}

int
_sx_xlock(struct sx *sx, int opts __unused, const char *file __diagused, int line __diagused)
{
	LOCK_MAY_SLEEP(&sx->lock_object, file, line);
	WITNESS_CHECKORDER(&sx->lock_object, opts | LOP_NEWORDER | LOP_EXCLUSIVE, file, line, NULL);
	sx_wlock(sx);
	WITNESS_LOCK(&sx->lock_object, opts | LOP_EXCLUSIVE, file, line);
	TD_LOCKS_INC(curthread);
	return (0);
}

int
_sx_xlock_hard(struct sx *sx, uintptr_t x __unused, int opts __unused SX_ARGS)
{
	sx_wlock(sx);
	return (0);
}

int
sx_try_xlock_(struct sx *sx, const char *file __diagused, int line __diagused)
{
	if (!rwe_try_wlock(&sx->lock_object, &sx->sx_lock, (uintptr_t)curthread))
		return (0);
	WITNESS_LOCK(&sx->lock_object, LOP_EXCLUSIVE | LOP_TRYLOCK, file, line);
	TD_LOCKS_INC(curthread);
	return (1);
}

int
sx_try_xlock_int(struct sx *sx SX_ARGS)
{
	return (sx_try_xlock_(sx, LOCK_FILE, LOCK_LINE));
}

void
_sx_xunlock(struct sx *sx, const char *file __diagused, int line __diagused)
{
	WITNESS_UNLOCK(&sx->lock_object, LOP_EXCLUSIVE, file, line);
	TD_LOCKS_DEC(curthread);
	rwe_wunlock(&sx->lock_object, &sx->sx_lock, (uintptr_t)curthread);
}

void
_sx_xunlock_hard(struct sx *sx, uintptr_t x __unused SX_ARGS)
{
	rwe_wunlock(&sx->lock_object, &sx->sx_lock, (uintptr_t)curthread);
}

int
_sx_slock(struct sx *sx, int opts __unused, const char *file __diagused, int line __diagused)
{
	LOCK_MAY_SLEEP(&sx->lock_object, file, line);
	WITNESS_CHECKORDER(&sx->lock_object, opts | LOP_NEWORDER, file, line, NULL);
	sx_rlock(sx);
	WITNESS_LOCK(&sx->lock_object, opts, file, line);
	TD_LOCKS_INC(curthread);
	return (0);
}

int
_sx_slock_int(struct sx *sx, int opts SX_ARGS)
{
	return (_sx_slock(sx, opts, LOCK_FILE, LOCK_LINE));
}

int
sx_try_slock_(struct sx *sx, const char *file __diagused, int line __diagused)
{
	if (!rwe_try_rlock(&sx->sx_lock))
		return (0);
	WITNESS_LOCK(&sx->lock_object, LOP_TRYLOCK, file, line);
	TD_LOCKS_INC(curthread);
	return (1);
}

int
sx_try_slock_int(struct sx *sx SX_ARGS)
{
	return (sx_try_slock_(sx, LOCK_FILE, LOCK_LINE));
}

void
_sx_sunlock(struct sx *sx, const char *file __diagused, int line __diagused)
{
	WITNESS_UNLOCK(&sx->lock_object, 0, file, line);
	TD_LOCKS_DEC(curthread);
	rwe_runlock(&sx->lock_object, &sx->sx_lock);
}

void
_sx_sunlock_int(struct sx *sx SX_ARGS)
{
	_sx_sunlock(sx, LOCK_FILE, LOCK_LINE);
}

int
sx_try_upgrade_(struct sx *sx, const char *file __diagused, int line __diagused)
{
	if (!rwe_try_upgrade(&sx->lock_object, &sx->sx_lock))
		return (0);
	WITNESS_UPGRADE(&sx->lock_object, LOP_EXCLUSIVE | LOP_TRYLOCK, file, line);
	return (1);
}

int
sx_try_upgrade_int(struct sx *sx SX_ARGS)
{
	return (sx_try_upgrade_(sx, LOCK_FILE, LOCK_LINE));
}

void
sx_downgrade_(struct sx *sx, const char *file __diagused, int line __diagused)
{
	WITNESS_DOWNGRADE(&sx->lock_object, 0, file, line);
	rwe_downgrade(&sx->lock_object, &sx->sx_lock);
}

void
sx_downgrade_int(struct sx *sx SX_ARGS)
{
	sx_downgrade_(sx, LOCK_FILE, LOCK_LINE);
}

#if defined(INVARIANTS) || defined(INVARIANT_SUPPORT)
void
_sx_assert(const struct sx *sx, int what, const char *file, int line)
{
#ifdef WITNESS
	witness_assert(&sx->lock_object, what, file, line);
#endif
	rwe_assert(&sx->lock_object, &sx->sx_lock, what, file, line);
}
#endif
