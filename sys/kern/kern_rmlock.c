/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * rmlock(9) and its sleepable variant rms: locks that are read far more often than written.
 *
 * Here an rmlock is an ordinary reader/writer lock (subr_rwengine.c), kept in the word of the sx
 * lock that is embedded in struct rmlock.  A reader may recurse, as the manual promises.
 *
 * Gaps.  A read costs an atomic operation, which the original saves by tracking readers per CPU;
 * the trackers that callers provide are not used.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/rmlock.h>
#include <sys/rwlock.h>

#include <kern/sched_tree.h>

#define	rm_word		rm_lock_sx.sx_lock

static void
assert_rm(const struct lock_object *lock, int what)
{
	rwe_assert(lock, &((const struct rmlock *)lock)->rm_word, what, __FILE__, __LINE__);
}

/* how, here and in unlock_rm(): the reader's tracker, which here only marks a reader. */
static void
lock_rm(struct lock_object *lock, uintptr_t how)
{
	struct rmlock *rm = (struct rmlock *)lock;

	if (how != 0)
		_rm_rlock(rm, (struct rm_priotracker *)how, 0);
	else
		_rm_wlock(rm);
}

static uintptr_t
unlock_rm(struct lock_object *lock)
{
	struct rmlock *rm = (struct rmlock *)lock;

	if (rm_wowned(rm)) {
		_rm_wunlock(rm);
		return (0);
	}
	_rm_runlock(rm, NULL);
	return (1);
}

static int
owner_rm(const struct lock_object *lock, struct thread **owner)
{
	return (rwe_owner(&((const struct rmlock *)lock)->rm_word, owner));
}

static int
trylock_rm(struct lock_object *lock, uintptr_t how)
{
	struct rmlock *rm = (struct rmlock *)lock;

	if (how != 0)
		return (_rm_rlock(rm, (struct rm_priotracker *)how, 1));
	if (!rwe_try_wlock(lock, &rm->rm_word, (uintptr_t)curthread))
		return (0);
	WITNESS_LOCK(lock, LOP_EXCLUSIVE | LOP_TRYLOCK, __FILE__, __LINE__);
	return (1);
}

struct lock_class lock_class_rm = {
	.lc_name = "rm",
	.lc_flags = LC_SLEEPLOCK | LC_RECURSABLE,
	.lc_assert = assert_rm,
	.lc_lock = lock_rm,
	.lc_owner = owner_rm,
	.lc_unlock = unlock_rm,
	.lc_trylock = trylock_rm,
};

struct lock_class lock_class_rm_sleepable = {
	.lc_name = "sleepable rm",
	.lc_flags = LC_SLEEPLOCK | LC_SLEEPABLE | LC_RECURSABLE,
	.lc_assert = assert_rm,
	.lc_lock = lock_rm,
	.lc_owner = owner_rm,
	.lc_unlock = unlock_rm,
	.lc_trylock = trylock_rm,
};

void
rm_init_flags(struct rmlock *rm, const char *name, int opts)
{
	int flags = (opts & RM_NEW) != 0 ? LO_NEW : 0;

	if ((opts & RM_NOWITNESS) == 0)
		flags |= LO_WITNESS;
	if ((opts & RM_RECURSE) != 0)
		flags |= LO_RECURSABLE;
	if ((opts & RM_SLEEPABLE) != 0)
		flags |= LO_SLEEPABLE;
	lock_init(&rm->lock_object, (opts & RM_SLEEPABLE) != 0 ? &lock_class_rm_sleepable :
	    &lock_class_rm, name, NULL, flags);
	rm->rm_word = RW_UNLOCKED;
}

void
rm_init(struct rmlock *rm, const char *name)
{
	rm_init_flags(rm, name, 0);
}

void
rm_destroy(struct rmlock *rm)
{
	KASSERT(rm->rm_word == RW_UNLOCKED, ("rmlock %s destroyed while held",
	    rm->lock_object.lo_name));
	rm->rm_word = RW_DESTROYED;
	lock_destroy(&rm->lock_object);
}

void
rm_sysinit(const void *arg)
{
	const struct rm_args *args = arg;

	rm_init_flags(args->ra_rm, args->ra_desc, args->ra_flags | RM_NEW);
}

int
rm_wowned(const struct rmlock *rm)
{
	return (rwe_wowned(&rm->rm_word));
}

void
_rm_wlock_debug(struct rmlock *rm, const char *file __diagused, int line __diagused)
{
	LOCK_MAY_BLOCK(&rm->lock_object, file, line);
	WITNESS_CHECKORDER(&rm->lock_object, LOP_NEWORDER | LOP_EXCLUSIVE, file, line, NULL);
	rwe_wlock(&rm->lock_object, &rm->rm_word, (uintptr_t)curthread);
	WITNESS_LOCK(&rm->lock_object, LOP_EXCLUSIVE, file, line);
	TD_LOCKS_INC(curthread);
}

void
_rm_wunlock_debug(struct rmlock *rm, const char *file __diagused, int line __diagused)
{
	WITNESS_UNLOCK(&rm->lock_object, LOP_EXCLUSIVE, file, line);
	TD_LOCKS_DEC(curthread);
	rwe_wunlock(&rm->lock_object, &rm->rm_word, (uintptr_t)curthread);
}

int
_rm_rlock_debug(struct rmlock *rm, struct rm_priotracker *tracker __unused, int trylock,
    const char *file __diagused, int line __diagused)
{
	if (trylock == 0) {
		LOCK_MAY_BLOCK(&rm->lock_object, file, line);
		WITNESS_CHECKORDER(&rm->lock_object, LOP_NEWORDER, file, line, NULL);
		rwe_rlock(&rm->lock_object, &rm->rm_word);
	} else if (!rwe_try_rlock(&rm->rm_word))
		return (0);
	WITNESS_LOCK(&rm->lock_object, trylock != 0 ? LOP_TRYLOCK : 0, file, line);
	TD_LOCKS_INC(curthread);
	return (1);
}

void
_rm_runlock_debug(struct rmlock *rm, struct rm_priotracker *tracker __unused,
    const char *file __diagused, int line __diagused)
{
	WITNESS_UNLOCK(&rm->lock_object, 0, file, line);
	TD_LOCKS_DEC(curthread);
	rwe_runlock(&rm->lock_object, &rm->rm_word);
}

void
_rm_wlock(struct rmlock *rm)
{
	_rm_wlock_debug(rm, LOCK_FILE, LOCK_LINE);
}

void
_rm_wunlock(struct rmlock *rm)
{
	_rm_wunlock_debug(rm, LOCK_FILE, LOCK_LINE);
}

int
_rm_rlock(struct rmlock *rm, struct rm_priotracker *tracker, int trylock)
{
	return (_rm_rlock_debug(rm, tracker, trylock, LOCK_FILE, LOCK_LINE));
}

void
_rm_runlock(struct rmlock *rm, struct rm_priotracker *tracker)
{
	_rm_runlock_debug(rm, tracker, LOCK_FILE, LOCK_LINE);
}

#if defined(INVARIANTS) || defined(INVARIANT_SUPPORT)
void
_rm_assert(const struct rmlock *rm, int what, const char *file, int line)
{
#ifdef WITNESS
	witness_assert(&rm->lock_object, what, file, line);
#endif
	rwe_assert(&rm->lock_object, &rm->rm_word, what, file, line);
}
#endif

void
rms_init(struct rmslock *rms, const char *name)
{
	memset(rms, 0, sizeof(*rms));
	mtx_init(&rms->mtx, name, NULL, MTX_DEF | MTX_NEW);
}

void
rms_destroy(struct rmslock *rms)
{
	KASSERT(rms->readers == 0 && rms->owner == NULL, ("rms lock destroyed while held"));
	mtx_destroy(&rms->mtx);
}

void
rms_rlock(struct rmslock *rms)
{
	mtx_lock(&rms->mtx);
	while (rms->writers != 0)
		msleep(&rms->readers, &rms->mtx, 0, "rmsr", 0);
	rms->readers++;
	rms->debug_readers++;
	mtx_unlock(&rms->mtx);
}

int
rms_try_rlock(struct rmslock *rms)
{
	int taken;

	mtx_lock(&rms->mtx);
	taken = rms->writers == 0;
	if (taken) {
		rms->readers++;
		rms->debug_readers++;
	}
	mtx_unlock(&rms->mtx);
	return (taken);
}

void
rms_runlock(struct rmslock *rms)
{
	mtx_lock(&rms->mtx);
	rms->debug_readers--;
	if (--rms->readers == 0 && rms->writers != 0)
		wakeup(&rms->writers);
	mtx_unlock(&rms->mtx);
}

void
rms_wlock(struct rmslock *rms)
{
	mtx_lock(&rms->mtx);
	rms->writers++;
	while (rms->readers != 0 || rms->owner != NULL)
		msleep(&rms->writers, &rms->mtx, 0, "rmsw", 0);
	rms->owner = curthread;
	mtx_unlock(&rms->mtx);
}

void
rms_wunlock(struct rmslock *rms)
{
	mtx_lock(&rms->mtx);
	rms->owner = NULL;
	if (--rms->writers != 0)
		wakeup(&rms->writers);
	else
		wakeup(&rms->readers);
	mtx_unlock(&rms->mtx);
}

void
rms_unlock(struct rmslock *rms)
{
	if (rms_wowned(rms))
		rms_wunlock(rms);
	else
		rms_runlock(rms);
}
