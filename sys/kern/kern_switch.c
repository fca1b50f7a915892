/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Run queues (sys/runq.h) and the slow half of critical_exit(9).
 *
 * A run queue is 256 FIFO lists, one a priority, and a bit map of the lists that hold a thread,
 * so that the best thread is found by at most four words and one bit scan.
 *
 * Locking.  The owner of a queue, the scheduler, serialises all of it with sched_lock.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/runq.h>
#include <sys/sched.h>
#include <sys/sysctl.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/psl.h>

#include <kern/sched_tree.h>

void
runq_init(struct runq *rq)
{
	int i;

	memset(&rq->rq_status, 0, sizeof(rq->rq_status));
	for (i = 0; i < RQ_NQS; i++)
		TAILQ_INIT(&rq->rq_queues[i]);
}

bool
runq_is_queue_empty(struct runq *rq, int idx)
{
	return (TAILQ_EMPTY(&rq->rq_queues[idx]));
}

void
runq_add_idx(struct runq *rq, struct thread *td, int idx, int flags)
{
	td->td_rqindex = idx;
	if ((flags & SRQ_PREEMPTED) != 0)
		TAILQ_INSERT_HEAD(&rq->rq_queues[idx], td, td_runq);
	else
		TAILQ_INSERT_TAIL(&rq->rq_queues[idx], td, td_runq);
	rq->rq_status.rq_sw[RQSW_IDX(idx)] |= RQSW_BIT(idx);
}

void
runq_add(struct runq *rq, struct thread *td, int flags)
{
	runq_add_idx(rq, td, RQ_PRI_TO_QUEUE_IDX(td->td_priority), flags);
}

/* Takes td off the queue; true when its list is empty now. */
bool
runq_remove(struct runq *rq, struct thread *td)
{
	int idx = td->td_rqindex;

	TAILQ_REMOVE(&rq->rq_queues[idx], td, td_runq);
	if (!TAILQ_EMPTY(&rq->rq_queues[idx]))
		return (false);
	rq->rq_status.rq_sw[RQSW_IDX(idx)] &= ~RQSW_BIT(idx);
	return (true);
}

bool
runq_not_empty(struct runq *rq)
{
	int i;

	for (i = 0; i < RQSW_NB; i++)
		if (rq->rq_status.rq_sw[i] != 0)
			return (true);
	return (false);
}

/* The thread that has waited longest at the best priority, still queued; or NULL. */
struct thread *
runq_choose(struct runq *rq)
{
	int i;

	for (i = 0; i < RQSW_NB; i++) {
		rqsw_t word = rq->rq_status.rq_sw[i];

		if (word != 0)
			return (TAILQ_FIRST(&rq->rq_queues[RQSW_FIRST_QUEUE_IDX(i, word)]));
	}
	return (NULL);
}

struct thread *
choosethread(void)
{
	struct thread *td = sched_choose();

	TD_SET_RUNNING(td);
	return (td);
}

/*
 * A better thread became ready while this one could not be preempted; now it can be.  The
 * nesting count passes through 1 so that the switch itself is not preempted.
 */
void
critical_exit_preempt(void)
{
	struct thread *td = curthread;
	int flags;

	if (td->td_critnest != 0 || SCHEDULER_STOPPED() || KERNEL_PANICKED())
		return;
	thread_lock(td);
	if (td->td_owepreempt == 0) {
		thread_unlock(td);
		return;
	}
	flags = SW_INVOL | SW_PREEMPT;
	flags |= TD_IS_IDLETHREAD(td) ? SWT_IDLE : SWT_OWEPREEMPT;
	mi_switch(flags);
}

#ifdef INVARIANTS
u_int preempt_seed;
SYSCTL_UINT(_debug, OID_AUTO, preempt_seed, CTLFLAG_RWTUN, &preempt_seed, 0,
    "Seed of yields and delays at random where locks are released (0: none)");

/* One in so many releases is a place to yield or to delay. */
#define	PREEMPT_ODDS	16
#define	PREEMPT_SPINS	512

static uint32_t
preempt_random(void)
{
	static volatile uint32_t turn;
	uint32_t x = atomic_fetchadd_int(&turn, 1) * 2654435761u + preempt_seed * 40503u;

	x ^= x >> 15;
	x *= 2246822519u;
	x ^= x >> 13;
	return (x);
}

/*
 * The current thread has released a lock or left a critical section, where it may be preempted at
 * any time: lets its equals run, or others on other CPUs get ahead, so that races show.
 */
void
preempt_at_random(void)
{
	struct thread *td = curthread;
	uint32_t r;

	if (td->td_critnest != 0 || td->td_intr_nesting_level != 0 || cold ||
	    TD_IS_IDLETHREAD(td) || SCHEDULER_STOPPED() || KERNEL_PANICKED() ||
	    (read_rflags() & PSL_I) == 0)
		return;
	r = preempt_random();
	if (r % PREEMPT_ODDS != 0)
		return;
	r /= PREEMPT_ODDS;
	if (r % 4 == 0) {
		for (r = r / 4 % PREEMPT_SPINS; r > 0; r--)
			cpu_spinwait();
		return;
	}
	thread_lock(td);
	td->td_flags |= TDF_SLICEEND;
	mi_switch(SW_INVOL | SWT_REMOTEPREEMPT);
}
#endif

/* For modules, which do not have the offsets of these fields of struct thread. */
void
critical_enter_KBI(void)
{
	critical_enter();
}

void
critical_exit_KBI(void)
{
	critical_exit();
	PREEMPT_AT_RANDOM();
}
