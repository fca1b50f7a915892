/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Threads that sleep until another one rings, and never more than that: host.h.
 *
 * When all threads of host_run() are asleep, or have ended, and no bell is rung, none will ever be.
 * That is found without a clock by the last one to fall asleep, as each counts itself under one
 * lock, and goes on counting as asleep until it has taken the lock again.
 *
 * Only system calls and the compiler's atomics: under ThreadSanitizer nothing here may order what
 * threads do, as their rings have to.
 */

#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bell.h"
#include "host.h"

/* A wake-up by the system takes longer than this. */
#define	BELL_SPINS	20000

/* The bell that each thread sleeps for; NULL: none. */
static struct host_bell *bell_asleep[BELL_THREADS];
static int bell_threads, bell_sleeping;
static unsigned int bell_lock;
static _Bool bell_hung;

static __thread int bell_self;

static void
bell_enter(void)
{

	while (__atomic_exchange_n(&bell_lock, 1, __ATOMIC_ACQUIRE) != 0)
		(void)sched_yield();
}

static void
bell_exit(void)
{

	__atomic_store_n(&bell_lock, 0, __ATOMIC_RELEASE);
}

static void
bell_wake(struct host_bell *bell)
{

	(void)syscall(SYS_futex, &bell->hb_rung, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void
bell_begin(int threads)
{

	bell_threads = threads;
	bell_sleeping = 0;
	bell_hung = 0;
}

void
bell_thread(int self)
{

	bell_self = self;
}

/* Is there nobody left who could ring?  Under the lock. */
static _Bool
bell_silent(void)
{
	int i;

	if (bell_sleeping != bell_threads)
		return (0);
	for (i = 0; i < bell_threads; i++) {
		if (bell_asleep[i] != NULL &&
		    __atomic_load_n(&bell_asleep[i]->hb_rung, __ATOMIC_SEQ_CST) != 0)
			return (0);
	}
	return (1);
}

/* A thread that has ended counts as one that sleeps for ever. */
void
bell_end(void)
{
	int i;

	bell_enter();
	bell_sleeping++;
	if (bell_silent()) {
		for (i = 0; i < bell_threads && bell_asleep[i] == NULL; i++)
			continue;
		if (i < bell_threads) {
			bell_hung = 1;
			__atomic_store_n(&bell_asleep[i]->hb_rung, 1, __ATOMIC_SEQ_CST);
			bell_wake(bell_asleep[i]);
		}
	}
	bell_exit();
}

void
host_bell_ring(struct host_bell *bell)
{

	if (__atomic_exchange_n(&bell->hb_rung, 1, __ATOMIC_SEQ_CST) == 0 &&
	    __atomic_load_n(&bell->hb_sleeps, __ATOMIC_SEQ_CST) != 0)
		bell_wake(bell);
}

_Bool
host_bell_wait(struct host_bell *bell)
{
	_Bool hung;
	int i;

	for (i = 0; i < BELL_SPINS; i++) {
		if (__atomic_load_n(&bell->hb_rung, __ATOMIC_RELAXED) != 0) {
			__atomic_store_n(&bell->hb_rung, 0, __ATOMIC_SEQ_CST);
			return (1);
		}
	}
	bell_enter();
	__atomic_store_n(&bell->hb_sleeps, 1, __ATOMIC_SEQ_CST);
	bell_asleep[bell_self] = bell;
	bell_sleeping++;
	hung = bell_silent();
	bell_exit();
	while (!hung && __atomic_load_n(&bell->hb_rung, __ATOMIC_SEQ_CST) == 0)
		(void)syscall(SYS_futex, &bell->hb_rung, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	bell_enter();
	hung |= bell_hung;
	bell_sleeping--;
	bell_asleep[bell_self] = NULL;
	__atomic_store_n(&bell->hb_sleeps, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&bell->hb_rung, 0, __ATOMIC_SEQ_CST);
	bell_exit();
	return (!hung);
}
