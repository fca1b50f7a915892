/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Locks that are held where none may be, and that are taken in the wrong order.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/callout.h>
#include <sys/kernel.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/rwlock.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>

#include "badmod.h"

static struct mtx bad_a, bad_b, bad_c, bad_spin_a, bad_spin_b;
MTX_SYSINIT(badmod_a, &bad_a, "bad A", MTX_DEF);
MTX_SYSINIT(badmod_b, &bad_b, "bad B", MTX_DEF);
MTX_SYSINIT(badmod_c, &bad_c, "bad C", MTX_DEF);
MTX_SYSINIT(badmod_spin_a, &bad_spin_a, "bad spin A", MTX_SPIN);
MTX_SYSINIT(badmod_spin_b, &bad_spin_b, "bad spin B", MTX_SPIN);
static struct sx bad_x, bad_y;
SX_SYSINIT(badmod_x, &bad_x, "bad X");
SX_SYSINIT(badmod_y, &bad_y, "bad Y");

static void
bad_held_pause(void)
{
	mtx_lock(&bad_a);
	pause("bad", 1);
	mtx_unlock(&bad_a);
}

static void
bad_held_msleep(void)
{
	mtx_lock(&bad_a);
	mtx_lock(&bad_b);
	msleep(&bad_b, &bad_b, 0, "bad", 1);
	mtx_unlock(&bad_b);
	mtx_unlock(&bad_a);
}

static void
bad_held_waitok(void)
{
	mtx_lock(&bad_a);
	free(malloc(100, M_BADMOD, M_WAITOK), M_BADMOD);
	mtx_unlock(&bad_a);
}

static void
bad_held_sx(void)
{
	mtx_lock(&bad_a);
	sx_xlock(&bad_x);
	sx_xunlock(&bad_x);
	mtx_unlock(&bad_a);
}

static void
bad_nothing(void *arg)
{
}

static void
bad_nothing_task(void *arg, int pending)
{
}

static void
bad_callout_drain(void)
{
	struct callout c;

	callout_init_mtx(&c, &bad_a, 0);
	mtx_lock(&bad_a);
	callout_reset(&c, hz, bad_nothing, NULL);
	callout_drain(&c);
	mtx_unlock(&bad_a);
}

static void
bad_callout_stop(void)
{
	struct callout c;

	callout_init_mtx(&c, &bad_a, 0);
	callout_stop(&c);
}

static void
bad_taskqueue_drain(void)
{
	struct task task;

	TASK_INIT(&task, 0, bad_nothing_task, NULL);
	mtx_lock(&bad_a);
	taskqueue_drain(taskqueue_thread, &task);
	mtx_unlock(&bad_a);
}

/* The callout is not counted off, and the queue's end waits for it. */
static void
bad_drain_timeout(void)
{
	struct taskqueue *tq = taskqueue_create("badmod", M_WAITOK, NULL, NULL);
	struct timeout_task task;

	TIMEOUT_TASK_INIT(tq, &task, 0, bad_nothing_task, NULL);
	taskqueue_enqueue_timeout(tq, &task, 100 * hz);
	taskqueue_drain_timeout(tq, &task);
	taskqueue_free(tq);
}

static void
bad_keep(void)
{
	mtx_lock(&bad_a);
}

static void
bad_task_returns(void)
{
	bad_in_task(bad_keep);
}

static void
bad_ithread_returns(void)
{
	bad_in_ithread(bad_keep);
}

static void
bad_callout_returns(void)
{
	bad_in_callout(bad_keep);
}

static void
bad_keep_sx(void)
{
	sx_slock(&bad_x);
}

static void
bad_thread_ends(void)
{
	bad_in_thread(bad_keep_sx);
	pause("bad", hz);
}

static void
bad_reversal(void)
{
	mtx_lock(&bad_a);
	mtx_lock(&bad_b);
	mtx_unlock(&bad_b);
	mtx_unlock(&bad_a);
	mtx_lock(&bad_b);
	mtx_lock(&bad_a);
	mtx_unlock(&bad_a);
	mtx_unlock(&bad_b);
}

static void
bad_reversal_of_three(void)
{
	mtx_lock(&bad_a);
	mtx_lock(&bad_b);
	mtx_unlock(&bad_a);
	mtx_lock(&bad_c);
	mtx_unlock(&bad_b);
	mtx_lock(&bad_a);
	mtx_unlock(&bad_a);
	mtx_unlock(&bad_c);
}

static void
bad_reversal_sx(void)
{
	sx_slock(&bad_x);
	sx_xlock(&bad_y);
	sx_xunlock(&bad_y);
	sx_sunlock(&bad_x);
	sx_xlock(&bad_y);
	sx_slock(&bad_x);
	sx_sunlock(&bad_x);
	sx_xunlock(&bad_y);
}

static void
bad_reversal_spin(void)
{
	mtx_lock_spin(&bad_spin_a);
	mtx_lock_spin(&bad_spin_b);
	mtx_unlock_spin(&bad_spin_b);
	mtx_unlock_spin(&bad_spin_a);
	mtx_lock_spin(&bad_spin_b);
	mtx_lock_spin(&bad_spin_a);
	mtx_unlock_spin(&bad_spin_a);
	mtx_unlock_spin(&bad_spin_b);
}

static void
bad_duplicate(void)
{
	static struct mtx one, two;

	mtx_init(&one, "one", "bad type", MTX_DEF);
	mtx_init(&two, "two", "bad type", MTX_DEF);
	mtx_lock(&one);
	mtx_lock(&two);
	mtx_unlock(&two);
	mtx_unlock(&one);
}

static void
bad_init_twice(void)
{
	mtx_init(&bad_a, "bad A, again", NULL, MTX_DEF);
}

static void
bad_init_twice_sx(void)
{
	sx_init(&bad_x, "bad X, again");
}

/* The name of a type that is another class's. */
static void
bad_other_class(void)
{
	static struct sx sx;

	sx_init(&sx, "bad A");
}

static void
bad_init_twice_rw(void)
{
	static struct rwlock rw;

	rw_init(&rw, "bad rw");
	rw_init(&rw, "bad rw");
}

static void
bad_unlock_shared(void)
{
	sx_xlock(&bad_x);
	sx_sunlock(&bad_x);
}

static void
bad_share_excl(void)
{
	sx_slock(&bad_x);
	sx_xlock(&bad_x);
}

static void
bad_not_owned(void)
{
	mtx_unlock(&bad_a);
}

/* A read and a write with the lock released between them, by two threads. */
static u_int bad_count;
static volatile u_int bad_started, bad_racers;
static bool bad_go;
static struct rwlock bad_race_rw;
RW_SYSINIT(bad_race_rw, &bad_race_rw, "bad race rw");

static void
bad_mutex_round(void)
{
	u_int n;

	mtx_lock(&bad_a);
	n = bad_count;
	mtx_unlock(&bad_a);
	mtx_lock(&bad_a);
	bad_count = n + 1;
	mtx_unlock(&bad_a);
}

static void
bad_sx_round(void)
{
	u_int n;

	sx_slock(&bad_x);
	n = bad_count;
	sx_sunlock(&bad_x);
	sx_xlock(&bad_x);
	bad_count = n + 1;
	sx_xunlock(&bad_x);
}

static void
bad_rw_round(void)
{
	u_int n;

	rw_rlock(&bad_race_rw);
	n = bad_count;
	rw_runlock(&bad_race_rw);
	rw_wlock(&bad_race_rw);
	bad_count = n + 1;
	rw_wunlock(&bad_race_rw);
}

static void
bad_racer(void *arg)
{
	void (*race)(void) = arg;
	u_int i;

	/* Both begin at once. */
	mtx_lock(&bad_a);
	bad_started++;
	while (!bad_go)
		msleep(&bad_go, &bad_a, 0, "bad", 0);
	mtx_unlock(&bad_a);
	for (i = 0; i < 1000; i++)
		race();
	atomic_add_int(&bad_racers, 1);
}

/* Noticed by chance, or with debug.preempt_seed. */
static void
bad_races(void (*race)(void))
{
	bad_go = false;
	bad_count = 0;
	bad_started = bad_racers = 0;
	(void)kthread_add(bad_racer, race, NULL, NULL, 0, 0, "racer 1");
	(void)kthread_add(bad_racer, race, NULL, NULL, 0, 0, "racer 2");
	while (bad_started < 2)
		pause("bad", 1);
	mtx_lock(&bad_a);
	bad_go = true;
	wakeup(&bad_go);
	mtx_unlock(&bad_a);
	while (bad_racers < 2)
		pause("bad", 1);
	if (bad_count != 2000)
		panic("bad race: %u of 2000 counted", bad_count);
}

static void
bad_race(void)
{
	bad_races(bad_mutex_round);
}

static void
bad_race_sx(void)
{
	bad_races(bad_sx_round);
}

static void
bad_race_of_rw(void)
{
	bad_races(bad_rw_round);
}

const struct bad_case bad_lock_cases[] = {
	{ "held_pause", bad_held_pause },
	{ "held_msleep", bad_held_msleep },
	{ "held_waitok", bad_held_waitok },
	{ "held_sx", bad_held_sx },
	{ "callout_drain", bad_callout_drain },
	{ "callout_stop", bad_callout_stop },
	{ "taskqueue_drain", bad_taskqueue_drain },
	{ "drain_timeout", bad_drain_timeout },
	{ "task_returns", bad_task_returns },
	{ "ithread_returns", bad_ithread_returns },
	{ "callout_returns", bad_callout_returns },
	{ "thread_ends", bad_thread_ends },
	{ "reversal", bad_reversal },
	{ "reversal_of_three", bad_reversal_of_three },
	{ "reversal_sx", bad_reversal_sx },
	{ "reversal_spin", bad_reversal_spin },
	{ "duplicate", bad_duplicate },
	{ "init_twice", bad_init_twice },
	{ "init_twice_sx", bad_init_twice_sx },
	{ "init_twice_rw", bad_init_twice_rw },
	{ "other_class", bad_other_class },
	{ "unlock_shared", bad_unlock_shared },
	{ "share_excl", bad_share_excl },
	{ "not_owned", bad_not_owned },
	{ "race", bad_race },
	{ "race_sx", bad_race_sx },
	{ "race_rw", bad_race_of_rw },
	{ NULL, NULL }
};
