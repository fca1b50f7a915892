/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * mutex(9), sx(9), and a clock that a test sets, for drivers whose callers are threads.  No lock but
 * Giant is recursive, each is initialised before it is used and once, unlocked by whoever locked it,
 * and destroyed while it is not locked.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/linker_set.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/sx.h>
#include <sys/time.h>

#include "../host/host.h"
#include "kpi.h"

/* A lock that is not locked; what was never initialised is more likely to be 0. */
#define	KPI_UNLOCKED	4
#define	KPI_ORDERS	64
#define	KPI_HELD	8

int kpi_mutexes;
int kpi_locks;
sbintime_t kpi_uptime;
void (*kpi_contended)(void);
const char *kpi_alone;

SET_DECLARE(sysinit_set, struct sysinit);

/* The locks of MTX_SYSINIT() and SX_SYSINIT(), before a test begins. */
__attribute__((__constructor__)) static void
kpi_locks_sysinit(void)
{
	struct sysinit **si;

	SET_FOREACH(si, sysinit_set) {
		if ((*si)->func == mtx_sysinit || (*si)->func == sx_sysinit)
			(*si)->func((*si)->udata);
	}
	kpi_locks = 0;
}

void
getbinuptime(struct bintime *bt)
{

	bt->sec = kpi_uptime >> 32;
	bt->frac = (uint64_t)kpi_uptime << 32;
}

void
binuptime(struct bintime *bt)
{

	getbinuptime(bt);
}

static void
kpi_lock(volatile uintptr_t *lock)
{
	uintptr_t self = (uintptr_t)host_self();

	CHECK(*lock != self, "locked twice");
	CHECK(*lock != 0, "not initialised");
	while (atomic_cmpset_acq_long((volatile u_long *)lock, KPI_UNLOCKED, self) == 0)
		(kpi_contended != NULL ? kpi_contended : host_yield)();
}

static void
kpi_unlock(volatile uintptr_t *lock)
{

	CHECK(*lock == (uintptr_t)host_self(), "not locked by this thread");
	atomic_store_rel_long((volatile u_long *)lock, KPI_UNLOCKED);
}

static void
kpi_lock_init(volatile uintptr_t *lock)
{

	CHECK(*lock != KPI_UNLOCKED, "initialised twice");
	*lock = KPI_UNLOCKED;
	atomic_add_int(&kpi_locks, 1);
}

static void
kpi_lock_destroy(volatile uintptr_t *lock)
{

	CHECK(*lock == KPI_UNLOCKED, "destroyed while locked, or not initialised");
	*lock = 0;
	atomic_subtract_int(&kpi_locks, 1);
}

static struct mtx *
kpi_mutex(volatile uintptr_t *c)
{

	return (__containerof(c, struct mtx, mtx_lock));
}

void
_mtx_init(volatile uintptr_t *c, const char *name, const char *type, int opts)
{

	CHECK(name[0] != '\0', "no name");
	CHECK((opts & ~(MTX_DUPOK | MTX_RECURSE | MTX_NEW | MTX_SPIN)) == MTX_DEF, "options 0x%x",
	    opts);
	kpi_lock_init(c);
	kpi_mutex(c)->lock_object.lo_name = type != NULL ? type : name;
	kpi_mutex(c)->lock_object.lo_flags = (opts & MTX_RECURSE) != 0 ? LO_RECURSABLE : 0;
	kpi_mutex(c)->mtx_recurse = 0;
}

void
mtx_sysinit(const void *arg)
{
	const struct mtx_args *ma = arg;

	mtx_init((struct mtx *)ma->ma_mtx, ma->ma_desc, NULL, ma->ma_opts);
}

void
_mtx_destroy(volatile uintptr_t *c)
{

	kpi_lock_destroy(c);
}

bool
kpi_mutex_is_mine(const struct mtx *m)
{

	return (m->mtx_lock == (uintptr_t)host_self());
}

/* The only mutex that is recursive, and that a thread may sleep with. */
static bool
kpi_is_giant(const struct mtx *m)
{

	return ((m->lock_object.lo_flags & LO_RECURSABLE) != 0);
}

/* How many of those that are locked alone this thread has. */
static _Thread_local int kpi_nalone;

static bool
kpi_is_alone(const struct mtx *m)
{

	return (kpi_alone != NULL &&
	    strncmp(m->lock_object.lo_name, kpi_alone, strlen(kpi_alone)) == 0);
}

void
__mtx_lock_flags(volatile uintptr_t *c, int opts __unused, const char *file __unused,
    int line __unused)
{
	struct mtx *m = kpi_mutex(c);

	CHECK(*c != 0, "not initialised");
	CHECK(!kpi_is_alone(m) || kpi_nalone++ == 0, "%s: another is held", m->lock_object.lo_name);
	if (kpi_is_giant(m) && kpi_mutex_is_mine(m))
		m->mtx_recurse++;
	else
		kpi_lock(c);
	if (!kpi_is_giant(m))
		atomic_add_int(&kpi_mutexes, 1);
}

int
_mtx_trylock_flags_(volatile uintptr_t *c, int opts __unused, const char *file __unused,
    int line __unused)
{

	CHECK(*c != 0, "not initialised");
	if (atomic_cmpset_acq_long((volatile u_long *)c, KPI_UNLOCKED, (uintptr_t)host_self()) == 0)
		return (0);
	kpi_nalone += kpi_is_alone(kpi_mutex(c));
	atomic_add_int(&kpi_mutexes, 1);
	return (1);
}

void
__mtx_unlock_flags(volatile uintptr_t *c, int opts __unused, const char *file __unused,
    int line __unused)
{
	struct mtx *m = kpi_mutex(c);

	kpi_nalone -= kpi_is_alone(m);
	if (!kpi_is_giant(m))
		atomic_subtract_int(&kpi_mutexes, 1);
	if (kpi_is_giant(m) && m->mtx_recurse > 0)
		m->mtx_recurse--;
	else
		kpi_unlock(c);
}

void
__mtx_assert(const volatile uintptr_t *c, int what, const char *file __unused, int line __unused)
{

	CHECK((*c == (uintptr_t)host_self()) == (what == MA_OWNED), "mutex, %d", what);
}

/* As witness(4) does: which sx was taken with which, and what this thread has. */
static struct {
	const struct sx	*first, *then;
} kpi_orders[KPI_ORDERS];
static u_int kpi_norders;
static _Thread_local const struct sx *kpi_held[KPI_HELD];
static _Thread_local u_int kpi_nheld;

static bool
kpi_is_order(const struct sx *first, const struct sx *then)
{
	u_int i;

	for (i = 0; i < kpi_norders; i++)
		if (kpi_orders[i].first == first && kpi_orders[i].then == then)
			return (true);
	return (false);
}

/* About to wait for one. */
static void
kpi_sx_order(const struct sx *sx)
{
	u_int i;

	for (i = 0; i < kpi_nheld; i++) {
		CHECK(!kpi_is_order(sx, kpi_held[i]), "two sx were taken in the other order before");
		if (kpi_is_order(kpi_held[i], sx) || kpi_norders == KPI_ORDERS)
			continue;
		kpi_orders[kpi_norders].first = kpi_held[i];
		kpi_orders[kpi_norders++].then = sx;
	}
}

static void
kpi_sx_forget(const struct sx *sx)
{
	u_int i;

	for (i = 0; i < kpi_norders; i++)
		if (kpi_orders[i].first == sx || kpi_orders[i].then == sx)
			kpi_orders[i--] = kpi_orders[--kpi_norders];
}

void
sx_init_flags(struct sx *sx, const char *description __unused, int opts __unused)
{

	kpi_lock_init(&sx->sx_lock);
}

void
sx_sysinit(const void *arg)
{
	const struct sx_args *sargs = arg;

	sx_init_flags(sargs->sa_sx, sargs->sa_desc, sargs->sa_flags);
}

void
sx_destroy(struct sx *sx)
{

	kpi_sx_forget(sx);
	kpi_lock_destroy(&sx->sx_lock);
}

int
_sx_xlock(struct sx *sx, int opts __unused, const char *file __unused, int line __unused)
{

	kpi_sx_order(sx);
	kpi_lock(&sx->sx_lock);
	CHECK(kpi_nheld < KPI_HELD, "too many");
	kpi_held[kpi_nheld++] = sx;
	return (0);
}

void
_sx_xunlock(struct sx *sx, const char *file __unused, int line __unused)
{

	u_int i;

	kpi_unlock(&sx->sx_lock);
	for (i = kpi_nheld; kpi_held[i - 1] != sx; i--)
		continue;
	kpi_held[i - 1] = kpi_held[--kpi_nheld];
}

/* These tests have one thread: what is shared is its own. */
int
_sx_slock(struct sx *sx, int opts, const char *file, int line)
{

	return (_sx_xlock(sx, opts, file, line));
}

void
_sx_sunlock(struct sx *sx, const char *file, int line)
{

	_sx_xunlock(sx, file, line);
}

void
_sx_assert(const struct sx *sx, int what, const char *file __unused, int line __unused)
{

	CHECK(what == SA_XLOCKED && sx->sx_lock == (uintptr_t)host_self(), "sx, %d", what);
}
