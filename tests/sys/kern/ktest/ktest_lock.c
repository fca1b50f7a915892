/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * mutex(9), sx(9), rwlock(9), rmlock(9).
 *
 * The three shared/exclusive locks go through the same cases, behind a table of their operations.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/rmlock.h>
#include <sys/rwlock.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sx.h>

#include <machine/cpu.h>

#include "ktest.h"

/* What a lock protects: two numbers that are the same whenever it is held. */
struct shared {
	union {
		struct mtx	mtx;
		struct sx	sx;
		struct rwlock	rw;
		struct rmlock	rm;
	};
	const struct rwops *ops;
	volatile u_int	a, b;
	volatile u_int	readers, step;
	volatile bool	stop;
	struct ktest_thread *middle;
};

struct rwops {
	void	(*init)(struct shared *s);
	void	(*destroy)(struct shared *s);
	void	(*rlock)(struct shared *s, struct rm_priotracker *t);
	void	(*runlock)(struct shared *s, struct rm_priotracker *t);
	void	(*wlock)(struct shared *s);
	void	(*wunlock)(struct shared *s);
};

static void sx_ops_init(struct shared *s) { sx_init(&s->sx, "ktest sx"); }
static void sx_ops_destroy(struct shared *s) { sx_destroy(&s->sx); }
static void sx_ops_rlock(struct shared *s, struct rm_priotracker *t) { sx_slock(&s->sx); }
static void sx_ops_runlock(struct shared *s, struct rm_priotracker *t) { sx_sunlock(&s->sx); }
static void sx_ops_wlock(struct shared *s) { sx_xlock(&s->sx); }
static void sx_ops_wunlock(struct shared *s) { sx_xunlock(&s->sx); }

static void rw_ops_init(struct shared *s) { rw_init(&s->rw, "ktest rw"); }
static void rw_ops_destroy(struct shared *s) { rw_destroy(&s->rw); }
static void rw_ops_rlock(struct shared *s, struct rm_priotracker *t) { rw_rlock(&s->rw); }
static void rw_ops_runlock(struct shared *s, struct rm_priotracker *t) { rw_runlock(&s->rw); }
static void rw_ops_wlock(struct shared *s) { rw_wlock(&s->rw); }
static void rw_ops_wunlock(struct shared *s) { rw_wunlock(&s->rw); }

static void rm_ops_init(struct shared *s) { rm_init(&s->rm, "ktest rm"); }
static void rm_ops_destroy(struct shared *s) { rm_destroy(&s->rm); }
static void rm_ops_rlock(struct shared *s, struct rm_priotracker *t) { rm_rlock(&s->rm, t); }
static void rm_ops_runlock(struct shared *s, struct rm_priotracker *t) { rm_runlock(&s->rm, t); }
static void rm_ops_wlock(struct shared *s) { rm_wlock(&s->rm); }
static void rm_ops_wunlock(struct shared *s) { rm_wunlock(&s->rm); }

static const struct rwops sx_ops = {
	sx_ops_init, sx_ops_destroy, sx_ops_rlock, sx_ops_runlock, sx_ops_wlock, sx_ops_wunlock
};
static const struct rwops rw_ops = {
	rw_ops_init, rw_ops_destroy, rw_ops_rlock, rw_ops_runlock, rw_ops_wlock, rw_ops_wunlock
};
static const struct rwops rm_ops = {
	rm_ops_init, rm_ops_destroy, rm_ops_rlock, rm_ops_runlock, rm_ops_wlock, rm_ops_wunlock
};

/* One change of what the lock protects, which takes long enough to be caught half done. */
static void
shared_change(struct shared *s, u_int i)
{
	KT_EQ(s->a, s->b);
	s->a++;
	if (i % 64 == 0)
		DELAY(20);
	s->b++;
}

static void
mtx_contender(void *arg, int me)
{
	struct shared *s = arg;
	u_int i;

	for (i = 0; i < 5000u * ktest_rounds; i++) {
		mtx_lock(&s->mtx);
		shared_change(s, i);
		mtx_unlock(&s->mtx);
		if (i % 512 == me)
			kern_yield(PRI_UNCHANGED);
	}
}

static void
mtx_contention(void)
{
	struct shared s = { .a = 0 };

	mtx_init(&s.mtx, "ktest mtx", NULL, MTX_DEF);
	ktest_run(4, false, mtx_contender, &s);
	KT_EQ(s.a, 4 * 5000 * ktest_rounds);
	KT_EQ(s.b, s.a);
	ktest_run(4, true, mtx_contender, &s);
	KT_EQ(s.b, 8 * 5000 * ktest_rounds);
	mtx_destroy(&s.mtx);
}

static void
spin_contender(void *arg, int me)
{
	struct shared *s = arg;
	u_int i;
	int cpu;

	for (i = 0; i < 5000u * ktest_rounds; i++) {
		mtx_lock_spin(&s->mtx);
		cpu = curcpu;
		shared_change(s, i);
		KT_EQ(curcpu, cpu);
		mtx_unlock_spin(&s->mtx);
	}
	s->readers++;
}

/* The same lock from a timer interrupt: must not dead-lock with who holds it on that CPU. */
static void
spin_interrupt(void *arg)
{
	struct shared *s = arg;

	mtx_lock_spin(&s->mtx);
	shared_change(s, 1);
	s->step++;
	mtx_unlock_spin(&s->mtx);
}

static void
mtx_spin(void)
{
	struct shared s = { .a = 0 };
	struct ktest_thread *kt[4];
	struct callout c;
	int i;

	mtx_init(&s.mtx, "ktest spin", NULL, MTX_SPIN);
	callout_init(&c, 1);
	for (i = 0; i < 4; i++)
		kt[i] = ktest_spawn(spin_contender, &s, i, i % (mp_maxid + 1), 0);
	for (i = 0; i < 50; i++) {
		callout_reset_sbt_on(&c, SBT_1MS, 0, spin_interrupt, &s, i % (mp_maxid + 1),
		    C_DIRECT_EXEC);
		KT_WAIT(s.step == i + 1);
		callout_drain(&c);
	}
	for (i = 0; i < 4; i++)
		ktest_join(kt[i]);
	KT_EQ(s.a, 4 * 5000 * ktest_rounds + 50);
	KT_EQ(s.b, s.a);
	KT_EQ(mtx_trylock_spin(&s.mtx), 1);
	KT_TRUE(mtx_owned(&s.mtx));
	mtx_unlock_spin(&s.mtx);
	mtx_destroy(&s.mtx);
}

/* Does another thread get the lock at once? */
static void
mtx_tryer(void *arg, int me)
{
	struct shared *s = arg;

	s->step = mtx_trylock(&s->mtx);
	if (s->step)
		mtx_unlock(&s->mtx);
}

static int
mtx_try_elsewhere(struct shared *s)
{
	ktest_join(ktest_spawn(mtx_tryer, s, 0, KT_ANYCPU, 0));
	return (s->step);
}

static void
mtx_recursion(void)
{
	struct shared s;

	memset(&s, 0, sizeof(s));
	KT_TRUE(!mtx_initialized(&s.mtx));
	/* Threads are started, which takes memory, while it is held. */
	mtx_init(&s.mtx, "ktest mtx", NULL, MTX_DEF | MTX_RECURSE | MTX_NOWITNESS);
	KT_TRUE(mtx_initialized(&s.mtx));
	KT_TRUE(!mtx_owned(&s.mtx));
	mtx_lock(&s.mtx);
	KT_TRUE(mtx_owned(&s.mtx) && !mtx_recursed(&s.mtx));
	mtx_lock(&s.mtx);
	KT_EQ(mtx_trylock(&s.mtx), 1);
	KT_TRUE(mtx_recursed(&s.mtx));
	mtx_unlock(&s.mtx);
	mtx_unlock(&s.mtx);
	KT_TRUE(mtx_owned(&s.mtx) && !mtx_recursed(&s.mtx));
	KT_EQ(mtx_try_elsewhere(&s), 0);
	mtx_unlock(&s.mtx);
	KT_TRUE(!mtx_owned(&s.mtx));
	KT_EQ(mtx_try_elsewhere(&s), 1);
	mtx_destroy(&s.mtx);
}

static void
mtx_trylock_fails_when_held(void)
{
	struct shared s = { .a = 0 };

	mtx_init(&s.mtx, "ktest mtx", NULL, MTX_DEF | MTX_NOWITNESS);
	KT_EQ(mtx_trylock(&s.mtx), 1);
	KT_EQ(mtx_try_elsewhere(&s), 0);
	KT_EQ(mtx_trylock(&s.mtx), 0);
	mtx_unlock(&s.mtx);
	KT_EQ(mtx_try_elsewhere(&s), 1);
	mtx_destroy(&s.mtx);
}

/*
 * Three threads on one CPU: the low one holds the lock that the high one needs, while the middle
 * one would keep the low one from ever running.
 */
static void
inversion_low(void *arg, int me)
{
	struct shared *s = arg;

	mtx_lock(&s->mtx);
	s->step = 1;
	/* Here the high one comes, starts the middle one, and blocks. */
	KT_SPIN(s->step == 2);
	mtx_unlock(&s->mtx);
}

static void
inversion_middle(void *arg, int me)
{
	struct shared *s = arg;

	KT_SPIN(s->stop);
}

static void
inversion_high(void *arg, int me)
{
	struct shared *s = arg;

	s->middle = ktest_spawn(inversion_middle, s, 2, 0, PI_SOFT + 4);
	s->step = 2;
	mtx_lock(&s->mtx);
	s->stop = true;
	mtx_unlock(&s->mtx);
}

static void
mtx_lends_priority(void)
{
	struct shared s = { .a = 0 };
	struct ktest_thread *low, *high;

	mtx_init(&s.mtx, "ktest mtx", NULL, MTX_DEF);
	low = ktest_spawn(inversion_low, &s, 0, 0, PRI_MIN_TIMESHARE + 20);
	KT_WAIT(s.step == 1);
	high = ktest_spawn(inversion_high, &s, 1, 0, PI_SOFT);
	KT_WAIT(s.stop);
	ktest_join(high);
	ktest_join(s.middle);
	ktest_join(low);
	mtx_destroy(&s.mtx);
}

static void
rw_contender(void *arg, int me)
{
	struct shared *s = arg;
	struct rm_priotracker t;
	u_int i;

	for (i = 0; i < 3000u * ktest_rounds; i++) {
		if ((i + me) % 4 == 0) {
			s->ops->wlock(s);
			KT_EQ(s->readers, 0);
			shared_change(s, i);
			s->ops->wunlock(s);
			continue;
		}
		s->ops->rlock(s, &t);
		atomic_add_int(&s->readers, 1);
		KT_EQ(s->a, s->b);
		if (i % 128 == 1)
			DELAY(20);
		KT_EQ(s->a, s->b);
		atomic_subtract_int(&s->readers, 1);
		s->ops->runlock(s, &t);
	}
}

static void
rw_exclusion(const struct rwops *ops)
{
	struct shared s = { .ops = ops };

	ops->init(&s);
	ktest_run(4, false, rw_contender, &s);
	KT_EQ(s.b, 3000 * ktest_rounds);
	ktest_run(4, true, rw_contender, &s);
	KT_EQ(s.b, 2 * 3000 * ktest_rounds);
	ops->destroy(&s);
}

static void
rw_meeting_reader(void *arg, int me)
{
	struct shared *s = arg;
	struct rm_priotracker t;

	s->ops->rlock(s, &t);
	atomic_add_int(&s->readers, 1);
	KT_SPIN(s->readers == 3);
	s->ops->runlock(s, &t);
}

/* All three readers have to be inside at the same time to get out. */
static void
rw_readers_meet(const struct rwops *ops)
{
	struct shared s = { .ops = ops };

	ops->init(&s);
	ktest_run(3, false, rw_meeting_reader, &s);
	ops->destroy(&s);
}

static void
rw_crowd(void *arg, int me)
{
	struct shared *s = arg;
	struct rm_priotracker t;

	while (!s->stop) {
		s->ops->rlock(s, &t);
		DELAY(200);
		s->ops->runlock(s, &t);
	}
}

static void
rw_lone_writer(void *arg, int me)
{
	struct shared *s = arg;
	int i;

	for (i = 0; i < 20; i++) {
		s->ops->wlock(s);
		s->a++;
		s->ops->wunlock(s);
	}
}

/* Readers that overlap all the time must not keep a writer out. */
static void
rw_writer_not_starved(const struct rwops *ops)
{
	struct shared s = { .ops = ops };
	struct ktest_thread *crowd[4], *writer;
	int i;

	ops->init(&s);
	for (i = 0; i < 4; i++)
		crowd[i] = ktest_spawn(rw_crowd, &s, i, KT_ANYCPU, 0);
	writer = ktest_spawn(rw_lone_writer, &s, 4, KT_ANYCPU, 0);
	KT_WAIT(s.a == 20);
	s.stop = true;
	for (i = 0; i < 4; i++)
		ktest_join(crowd[i]);
	ktest_join(writer);
	ops->destroy(&s);
}

static void sx_exclusion(void) { rw_exclusion(&sx_ops); }
static void rwlock_exclusion(void) { rw_exclusion(&rw_ops); }
static void rm_exclusion(void) { rw_exclusion(&rm_ops); }
static void sx_readers_meet(void) { rw_readers_meet(&sx_ops); }
static void rwlock_readers_meet(void) { rw_readers_meet(&rw_ops); }
static void rm_readers_meet(void) { rw_readers_meet(&rm_ops); }
static void sx_writer_not_starved(void) { rw_writer_not_starved(&sx_ops); }
static void rwlock_writer_not_starved(void) { rw_writer_not_starved(&rw_ops); }
static void rm_writer_not_starved(void) { rw_writer_not_starved(&rm_ops); }

/* A reader that holds the lock until it is released by the test. */
static void
rw_staying_reader(void *arg, int me)
{
	struct shared *s = arg;
	struct rm_priotracker t;

	s->ops->rlock(s, &t);
	atomic_add_int(&s->readers, 1);
	KT_WAIT(s->stop);
	s->ops->runlock(s, &t);
}

static void
rw_spinning_reader(void *arg, int me)
{
	struct shared *s = arg;
	struct rm_priotracker t;

	s->ops->rlock(s, &t);
	atomic_add_int(&s->readers, 1);
	KT_SPIN(s->stop);
	s->ops->runlock(s, &t);
}

static void
sx_upgrade_and_downgrade(void)
{
	struct shared s = { .ops = &sx_ops };
	struct ktest_thread *reader;

	sx_init_flags(&s.sx, "ktest sx", SX_RECURSE);
	sx_slock(&s.sx);
	KT_EQ(sx_try_upgrade(&s.sx), 1);
	KT_TRUE(sx_xlocked(&s.sx));
	reader = ktest_spawn(rw_staying_reader, &s, 0, KT_ANYCPU, 0);
	pause("ktest", hz / 50);
	KT_EQ(s.readers, 0);
	sx_downgrade(&s.sx);
	KT_TRUE(!sx_xlocked(&s.sx));
	KT_WAIT(s.readers == 1);
	KT_EQ(sx_try_upgrade(&s.sx), 0);
	KT_EQ(sx_try_xlock(&s.sx), 0);
	sx_sunlock(&s.sx);
	KT_EQ(sx_try_xlock(&s.sx), 0);
	KT_EQ(sx_try_slock(&s.sx), 1);
	sx_unlock(&s.sx);
	s.stop = true;
	ktest_join(reader);
	KT_EQ(sx_try_xlock(&s.sx), 1);
	sx_xlock(&s.sx);
	KT_TRUE(sx_xholder(&s.sx) == curthread);
	sx_xunlock(&s.sx);
	KT_TRUE(sx_xlocked(&s.sx));
	sx_unlock(&s.sx);
	KT_TRUE(!sx_xlocked(&s.sx));
	sx_destroy(&s.sx);
}

/* Keeps the lock until it has had Giant, which the thread that waits for the lock held. */
static void
sx_owner_needs_giant(void *arg, int me)
{
	struct shared *s = arg;
	struct rm_priotracker t;

	if (me == 0)
		s->ops->wlock(s);
	else
		s->ops->rlock(s, &t);
	s->stop = true;
	KT_WAIT(s->readers == 1);
	if (KT_WAIT(mtx_trylock(&Giant)))
		mtx_unlock(&Giant);
	if (me == 0)
		s->ops->wunlock(s);
	else
		s->ops->runlock(s, &t);
}

static void
sx_waits_without_giant(void)
{
	struct shared s = { .ops = &sx_ops };
	struct ktest_thread *owner;
	int me;

	sx_init(&s.sx, "ktest sx");
	for (me = 0; me < 2; me++) {
		s.stop = false;
		s.readers = 0;
		owner = ktest_spawn(sx_owner_needs_giant, &s, me, KT_ANYCPU, 0);
		KT_WAIT(s.stop);
		mtx_lock(&Giant);
		mtx_lock(&Giant);
		s.readers = 1;
		if (me == 0)
			sx_slock(&s.sx);
		else
			sx_xlock(&s.sx);
		KT_TRUE(mtx_owned(&Giant));
		mtx_unlock(&Giant);
		KT_TRUE(mtx_owned(&Giant));
		mtx_unlock(&Giant);
		KT_TRUE(!mtx_owned(&Giant));
		sx_unlock(&s.sx);
		ktest_join(owner);
	}
	sx_destroy(&s.sx);
}

static void
rwlock_upgrade_and_downgrade(void)
{
	struct shared s = { .ops = &rw_ops };
	struct ktest_thread *reader;

	rw_init_flags(&s.rw, "ktest rw", RW_RECURSE | RW_NOWITNESS);
	rw_rlock(&s.rw);
	KT_EQ(rw_try_upgrade(&s.rw), 1);
	KT_TRUE(rw_wowned(&s.rw));
	rw_downgrade(&s.rw);
	KT_TRUE(!rw_wowned(&s.rw));
	reader = ktest_spawn(rw_spinning_reader, &s, 0, KT_ANYCPU, 0);
	KT_SPIN(s.readers == 1);
	KT_EQ(rw_try_upgrade(&s.rw), 0);
	KT_EQ(rw_try_wlock(&s.rw), 0);
	KT_EQ(rw_try_rlock(&s.rw), 1);
	rw_runlock(&s.rw);
	rw_unlock(&s.rw);
	s.stop = true;
	ktest_join(reader);
	KT_EQ(rw_try_wlock(&s.rw), 1);
	rw_wlock(&s.rw);
	rw_wunlock(&s.rw);
	KT_TRUE(rw_wowned(&s.rw));
	rw_unlock(&s.rw);
	KT_TRUE(!rw_wowned(&s.rw));
	rw_destroy(&s.rw);
}

static void
rm_recursion_and_sleep(void)
{
	struct shared s = { .ops = &rm_ops };
	struct rm_priotracker t1, t2;

	rm_init_flags(&s.rm, "ktest rms", RM_SLEEPABLE);
	rm_rlock(&s.rm, &t1);
	rm_rlock(&s.rm, &t2);
	pause("ktest", 1);
	rm_runlock(&s.rm, &t2);
	rm_runlock(&s.rm, &t1);
	rm_wlock(&s.rm);
	KT_TRUE(rm_wowned(&s.rm));
	pause("ktest", 1);
	rm_wunlock(&s.rm);
	KT_TRUE(!rm_wowned(&s.rm));
	KT_EQ(rm_try_rlock(&s.rm, &t1), 1);
	rm_runlock(&s.rm, &t1);
	rm_destroy(&s.rm);
}

const struct ktest_case ktest_lock_cases[] = {
	{ "mtx.contention", mtx_contention },
	{ "mtx.recursion", mtx_recursion },
	{ "mtx.trylock_fails_when_held", mtx_trylock_fails_when_held },
	{ "mtx.spin", mtx_spin },
	{ "mtx.lends_priority", mtx_lends_priority },
	{ "sx.exclusion", sx_exclusion },
	{ "sx.readers_meet", sx_readers_meet },
	{ "sx.writer_not_starved", sx_writer_not_starved },
	{ "sx.upgrade_and_downgrade", sx_upgrade_and_downgrade },
	{ "sx.waits_without_giant", sx_waits_without_giant },
	{ "rw.exclusion", rwlock_exclusion },
	{ "rw.readers_meet", rwlock_readers_meet },
	{ "rw.writer_not_starved", rwlock_writer_not_starved },
	{ "rw.upgrade_and_downgrade", rwlock_upgrade_and_downgrade },
	{ "rm.exclusion", rm_exclusion },
	{ "rm.readers_meet", rm_readers_meet },
	{ "rm.writer_not_starved", rm_writer_not_starved },
	{ "rm.recursion_and_sleep", rm_recursion_and_sleep },
	{ NULL, NULL }
};
