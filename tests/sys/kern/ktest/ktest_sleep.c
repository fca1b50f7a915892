/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * sleep(9), pause(9), condvar(9): wake-ups reach whom they should, once, and none is lost.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/condvar.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/rwlock.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sx.h>

#include <machine/cpu.h>

#include "ktest.h"

#define	SLEEPERS	4

struct court {
	struct mtx	mtx;
	struct cv	cv;
	volatile u_int	turn;		/* of two players: whose turn it is */
	u_int		rounds;
	volatile int	asleep;		/* about to sleep, under mtx */
	volatile int	woken;
	volatile u_int	tokens;
	volatile bool	stop;
	char		chan;		/* a second channel */
};

static void
court_init(struct court *c, int opts)
{
	memset(c, 0, sizeof(*c));
	mtx_init(&c->mtx, opts == MTX_SPIN ? "ktest spin court" : "ktest court", NULL, opts);
	cv_init(&c->cv, "ktest cv");
}

static void
court_destroy(struct court *c)
{
	cv_destroy(&c->cv);
	mtx_destroy(&c->mtx);
}

static void
player_msleep(void *arg, int me)
{
	struct court *c = arg;
	u_int i;

	for (i = 0; i < c->rounds; i++) {
		mtx_lock(&c->mtx);
		while (c->turn != me)
			mtx_sleep(c, &c->mtx, 0, "ktping", 0);
		c->turn = !me;
		wakeup(c);
		mtx_unlock(&c->mtx);
	}
}

static void
player_wakeup_one(void *arg, int me)
{
	struct court *c = arg;
	u_int i;

	for (i = 0; i < c->rounds; i++) {
		mtx_lock(&c->mtx);
		while (c->turn != me)
			mtx_sleep(c, &c->mtx, PWAIT, "ktping", 0);
		c->turn = !me;
		mtx_unlock(&c->mtx);
		wakeup_one(c);
	}
}

static void
player_cv(void *arg, int me)
{
	struct court *c = arg;
	u_int i;

	for (i = 0; i < c->rounds; i++) {
		mtx_lock(&c->mtx);
		while (c->turn != me)
			cv_wait(&c->cv, &c->mtx);
		c->turn = !me;
		cv_signal(&c->cv);
		mtx_unlock(&c->mtx);
	}
}

static void
player_spin(void *arg, int me)
{
	struct court *c = arg;
	u_int i;

	for (i = 0; i < c->rounds; i++) {
		mtx_lock_spin(&c->mtx);
		while (c->turn != me)
			msleep_spin(c, &c->mtx, "ktping", 0);
		c->turn = !me;
		mtx_unlock_spin(&c->mtx);
		wakeup(c);
	}
}

/* Neither player has a time-out: one lost wake-up, and the case hangs. */
static void
ping_pong(ktest_func_t *player, u_int rounds, int opts)
{
	struct ktest_thread *kt[2];
	struct court c;

	court_init(&c, opts);
	c.rounds = KT_ROUNDS(rounds);
	kt[0] = ktest_spawn(player, &c, 0, 0, 0);
	kt[1] = ktest_spawn(player, &c, 1, ktest_last_cpu(), 0);
	ktest_join(kt[0]);
	ktest_join(kt[1]);
	KT_EQ(c.turn, 0);
	court_destroy(&c);
}

static void sleep_ping_pong(void) { ping_pong(player_msleep, 250, MTX_DEF); }
static void sleep_ping_pong_unlocked(void) { ping_pong(player_wakeup_one, 125, MTX_DEF); }
static void sleep_ping_pong_spin(void) { ping_pong(player_spin, 125, MTX_SPIN); }
static void cv_ping_pong(void) { ping_pong(player_cv, 250, MTX_DEF); }

static void
sleeper(void *arg, int me)
{
	struct court *c = arg;

	mtx_lock(&c->mtx);
	c->asleep++;
	KT_EQ(mtx_sleep(c, &c->mtx, 0, "ktone", 60 * hz), 0);
	c->asleep--;
	c->woken++;
	mtx_unlock(&c->mtx);
}

static void
cv_sleeper(void *arg, int me)
{
	struct court *c = arg;

	mtx_lock(&c->mtx);
	c->asleep++;
	KT_EQ(cv_timedwait(&c->cv, &c->mtx, 60 * hz), 0);
	c->asleep--;
	c->woken++;
	mtx_unlock(&c->mtx);
}

/* How many woke, after those that were woken had all the time they need. */
static int
court_woken(struct court *c, int expected)
{
	KT_WAIT(c->woken >= expected);
	pause("ktest", hz / 50);
	return (c->woken);
}

static void
sleep_wakeup_one_wakes_one(void)
{
	struct ktest_thread *kt[SLEEPERS];
	struct court c;
	char other;
	int i;

	court_init(&c, MTX_DEF);
	for (i = 0; i < SLEEPERS; i++)
		kt[i] = ktest_spawn(sleeper, &c, i, i % (mp_maxid + 1), 0);
	KT_WAIT(c.asleep == SLEEPERS);
	mtx_lock(&c.mtx);
	mtx_unlock(&c.mtx);
	wakeup(&other);
	KT_EQ(court_woken(&c, 0), 0);
	wakeup_one(&c);
	KT_EQ(court_woken(&c, 1), 1);
	wakeup_any(&c);
	KT_EQ(court_woken(&c, 2), 2);
	wakeup(&c);
	KT_EQ(court_woken(&c, SLEEPERS), SLEEPERS);
	wakeup(&c);
	wakeup_one(&c);
	for (i = 0; i < SLEEPERS; i++)
		ktest_join(kt[i]);
	court_destroy(&c);
}

static void
cv_signal_wakes_one(void)
{
	struct ktest_thread *kt[SLEEPERS];
	struct court c;
	int i;

	court_init(&c, MTX_DEF);
	for (i = 0; i < SLEEPERS; i++)
		kt[i] = ktest_spawn(cv_sleeper, &c, i, i % (mp_maxid + 1), 0);
	KT_WAIT(c.asleep == SLEEPERS);
	mtx_lock(&c.mtx);
	cv_signal(&c.cv);
	mtx_unlock(&c.mtx);
	KT_EQ(court_woken(&c, 1), 1);
	cv_signal(&c.cv);
	KT_EQ(court_woken(&c, 2), 2);
	cv_broadcast(&c.cv);
	KT_EQ(court_woken(&c, SLEEPERS), SLEEPERS);
	for (i = 0; i < SLEEPERS; i++)
		ktest_join(kt[i]);
	court_destroy(&c);
}

static void
waker(void *arg, int me)
{
	struct court *c = arg;

	KT_WAIT(c->asleep == 1);
	mtx_lock(&c->mtx);
	c->asleep = 0;
	wakeup(c);
	cv_signal(&c->cv);
	mtx_unlock(&c->mtx);
}

static void
sleep_time_out(void)
{
	static const sbintime_t asked[] = { SBT_1US, 300 * SBT_1US, SBT_1MS, 7 * SBT_1MS };
	struct ktest_thread *kt;
	struct court c;
	sbintime_t then;
	u_int i;

	court_init(&c, MTX_DEF);
	mtx_lock(&c.mtx);
	for (i = 0; i < nitems(asked); i++) {
		then = sbinuptime();
		KT_EQ(msleep_sbt(&c, &c.mtx, 0, "kttime", asked[i], 0, 0), EWOULDBLOCK);
		KT_TRUE(sbinuptime() - then >= asked[i]);
		KT_TRUE(mtx_owned(&c.mtx));
		then = sbinuptime();
		KT_EQ(cv_timedwait_sbt(&c.cv, &c.mtx, asked[i], 0, 0), EWOULDBLOCK);
		KT_TRUE(sbinuptime() - then >= asked[i]);
		KT_TRUE(mtx_owned(&c.mtx));
		then = sbinuptime() + asked[i];
		KT_EQ(msleep_sbt(&c, &c.mtx, 0, "kttime", then, 0, C_ABSOLUTE), EWOULDBLOCK);
		KT_TRUE(sbinuptime() >= then);
	}
	KT_EQ(mtx_sleep(&c, &c.mtx, 0, "kttime", 1), EWOULDBLOCK);
	mtx_unlock(&c.mtx);
	/* In time: no error. */
	kt = ktest_spawn(waker, &c, 0, ktest_last_cpu(), 0);
	mtx_lock(&c.mtx);
	c.asleep = 1;
	KT_EQ(mtx_sleep(&c, &c.mtx, 0, "kttime", 60 * hz), 0);
	mtx_unlock(&c.mtx);
	ktest_join(kt);
	kt = ktest_spawn(waker, &c, 0, ktest_last_cpu(), 0);
	mtx_lock(&c.mtx);
	c.asleep = 1;
	KT_EQ(cv_timedwait(&c.cv, &c.mtx, 60 * hz), 0);
	mtx_unlock(&c.mtx);
	ktest_join(kt);
	court_destroy(&c);
}

static void
sleep_pause(void)
{
	static const sbintime_t asked[] = { SBT_1US, 50 * SBT_1US, SBT_1MS, 20 * SBT_1MS };
	sbintime_t then;
	u_int i;

	for (i = 0; i < nitems(asked); i++) {
		then = sbinuptime();
		KT_EQ(pause_sbt("ktest", asked[i], 0, 0), EWOULDBLOCK);
		KT_TRUE(sbinuptime() - then >= asked[i]);
		then = sbinuptime();
		KT_EQ(pause_sbt("ktest", asked[i], asked[i], C_PREL(2)), EWOULDBLOCK);
		KT_TRUE(sbinuptime() - then >= asked[i]);
		then = sbinuptime();
		DELAY(asked[i] / SBT_1US);
		KT_TRUE(sbinuptime() - then >= asked[i] / SBT_1US * SBT_1US);
	}
	then = sbinuptime();
	pause("ktest", 5);
	/* Aligned to the clock's ticks, the first may be a part of one. */
	KT_TRUE(sbinuptime() - then >= 4 * tick_sbt);
	KT_TRUE(tick_sbt * hz <= SBT_1S && tick_sbt * hz > SBT_1S - hz);
}

/* Takes a token when there is one. */
static void
token_taker(void *arg, int me)
{
	struct court *c = arg;
	uint32_t seed = 77;
	int error;

	mtx_lock(&c->mtx);
	while (!c->stop) {
		if (c->tokens != 0) {
			c->tokens--;
			c->woken++;
			wakeup(&c->chan);
			continue;
		}
		/* The time-out often comes in the same moment as the wake-up. */
		error = msleep_sbt(c, &c->mtx, 0, "kttok",
		    SBT_1US * (1 + ktest_random(&seed) % 300), 0, 0);
		if (error != 0 && error != EWOULDBLOCK)
			KT_EQ(error, 0);
		/* Nothing but a token ends this, least of all the time-out before. */
		if (c->tokens == 0 && !c->stop) {
			c->asleep = 1;
			KT_EQ(mtx_sleep(c, &c->mtx, 0, "kttok2", 0), 0);
			KT_TRUE(c->tokens != 0 || c->stop);
			c->asleep = 0;
		}
	}
	mtx_unlock(&c->mtx);
}

static void
sleep_stale_time_out_does_not_wake(void)
{
	struct ktest_thread *kt;
	struct court c;
	uint32_t seed = 99;
	u_int i, rounds = 500 * ktest_rounds;

	court_init(&c, MTX_DEF);
	kt = ktest_spawn(token_taker, &c, 0, ktest_last_cpu(), 0);
	for (i = 0; i < rounds; i++) {
		DELAY(ktest_random(&seed) % 300);
		mtx_lock(&c.mtx);
		c.tokens++;
		wakeup(&c);
		while (c.tokens != 0)
			mtx_sleep(&c.chan, &c.mtx, 0, "ktgone", 0);
		mtx_unlock(&c.mtx);
	}
	mtx_lock(&c.mtx);
	c.stop = true;
	wakeup(&c);
	mtx_unlock(&c.mtx);
	ktest_join(kt);
	KT_EQ(c.woken, rounds);
	court_destroy(&c);
}

static void
sleep_drops_and_retakes_locks(void)
{
	struct rwlock rw;
	struct court c;
	struct sx sx;

	court_init(&c, MTX_DEF);
	sx_init(&sx, "ktest sx");
	rw_init(&rw, "ktest rw");
	mtx_lock(&c.mtx);
	KT_EQ(mtx_sleep(&c, &c.mtx, PDROP, "ktest", 1), EWOULDBLOCK);
	KT_TRUE(!mtx_owned(&c.mtx));
	sx_xlock(&sx);
	KT_EQ(sx_sleep(&c, &sx, 0, "ktest", 1), EWOULDBLOCK);
	KT_TRUE(sx_xlocked(&sx));
	cv_timedwait(&c.cv, &sx, 1);
	KT_TRUE(sx_xlocked(&sx));
	sx_downgrade(&sx);
	KT_EQ(sx_sleep(&c, &sx, 0, "ktest", 1), EWOULDBLOCK);
	sx_assert(&sx, SA_SLOCKED);
	KT_EQ(sx_try_upgrade(&sx), 1);
	KT_EQ(sx_sleep(&c, &sx, PDROP, "ktest", 1), EWOULDBLOCK);
	KT_TRUE(!sx_xlocked(&sx));
	rw_rlock(&rw);
	KT_EQ(rw_sleep(&c, &rw, 0, "ktest", 1), EWOULDBLOCK);
	KT_EQ(rw_try_upgrade(&rw), 1);
	KT_EQ(rw_sleep(&c, &rw, 0, "ktest", 1), EWOULDBLOCK);
	KT_TRUE(rw_wowned(&rw));
	rw_wunlock(&rw);
	rw_destroy(&rw);
	sx_destroy(&sx);
	court_destroy(&c);
}

static void
cv_unlocking_waiter(void *arg, int me)
{
	struct court *c = arg;

	mtx_lock(&c->mtx);
	c->asleep = 1;
	cv_wait_unlock(&c->cv, &c->mtx);
	KT_TRUE(!mtx_owned(&c->mtx));
	c->asleep = 0;
}

static void
cv_wait_unlock_leaves_unlocked(void)
{
	struct ktest_thread *kt;
	struct court c;

	court_init(&c, MTX_DEF);
	kt = ktest_spawn(cv_unlocking_waiter, &c, 0, KT_ANYCPU, 0);
	KT_WAIT(c.asleep == 1);
	mtx_lock(&c.mtx);
	cv_broadcast(&c.cv);
	/* The waiter must not need the lock to come back. */
	KT_WAIT(c.asleep == 0);
	mtx_unlock(&c.mtx);
	ktest_join(kt);
	court_destroy(&c);
}

static void
many_sleepers(void *arg, int me)
{
	struct court *c = arg;
	uint32_t seed = 1234 + me;
	u_int i;

	for (i = 0; i < 300u * ktest_rounds; i++) {
		mtx_lock(&c->mtx);
		switch (ktest_random(&seed) % 4) {
		case 0:
			msleep_sbt(&c->chan, &c->mtx, 0, "ktmany",
			    SBT_1US * (1 + ktest_random(&seed) % 2000), 0, 0);
			break;
		case 1:
			cv_timedwait_sbt(&c->cv, &c->mtx,
			    SBT_1US * (1 + ktest_random(&seed) % 2000), 0, 0);
			break;
		case 2:
			wakeup_one(&c->chan);
			cv_broadcast(&c->cv);
			break;
		default:
			wakeup(&c->chan);
			cv_signal(&c->cv);
			break;
		}
		mtx_unlock(&c->mtx);
	}
}

static void
sleep_many(void)
{
	struct court c;

	court_init(&c, MTX_DEF);
	ktest_run(8, true, many_sleepers, &c);
	court_destroy(&c);
}

const struct ktest_case ktest_sleep_cases[] = {
	{ "sleep.ping_pong", sleep_ping_pong },
	{ "sleep.ping_pong_unlocked", sleep_ping_pong_unlocked },
	{ "sleep.ping_pong_spin", sleep_ping_pong_spin },
	{ "sleep.wakeup_one_wakes_one", sleep_wakeup_one_wakes_one },
	{ "sleep.time_out", sleep_time_out },
	{ "sleep.pause", sleep_pause },
	{ "sleep.stale_time_out_does_not_wake", sleep_stale_time_out_does_not_wake },
	{ "sleep.drops_and_retakes_locks", sleep_drops_and_retakes_locks },
	{ "sleep.many", sleep_many },
	{ "cv.ping_pong", cv_ping_pong },
	{ "cv.signal_wakes_one", cv_signal_wakes_one },
	{ "cv.wait_unlock_leaves_unlocked", cv_wait_unlock_leaves_unlocked },
	{ NULL, NULL }
};
