/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * taskqueue(9): what is called how often in which order, cancelling, draining, freeing.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/callout.h>
#include <sys/epoch.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/taskqueue.h>

#include <machine/cpu.h>

#include "ktest.h"

struct job {
	struct task	task;
	struct taskqueue *tq;
	volatile u_int	calls;
	volatile u_int	pending;	/* the sum of their pending counts */
	volatile int	order;
	volatile bool	running;
	volatile bool	hold;
	volatile u_int	again;		/* how often it still queues itself */
	struct thread	*td;
};

static volatile u_int job_order;

static void
job_run(void *arg, int pending)
{
	struct job *j = arg;

	j->td = curthread;
	j->running = true;
	KT_WAIT(!j->hold);
	j->order = atomic_fetchadd_int(&job_order, 1);
	j->pending += pending;
	j->calls++;
	if (j->again != 0) {
		j->again--;
		taskqueue_enqueue(j->tq, &j->task);
	}
	j->running = false;
}

static void
job_init(struct job *j, struct taskqueue *tq, int pri)
{
	memset(j, 0, sizeof(*j));
	j->tq = tq;
	TASK_INIT(&j->task, pri, job_run, j);
}

/* The queue's context is the pointer to it, as taskqueue_thread_enqueue() requires it. */
static struct taskqueue *
queue_make(struct taskqueue **tqp, int threads)
{
	*tqp = taskqueue_create("ktest", M_WAITOK, taskqueue_thread_enqueue, tqp);
	KT_EQ(taskqueue_start_threads(tqp, threads, PWAIT, "ktest queue"), 0);
	return (*tqp);
}

static void
taskqueue_coalesces(void)
{
	struct taskqueue *tq;
	struct job j;
	int i;

	queue_make(&tq, 1);
	job_init(&j, tq, 0);
	taskqueue_block(tq);
	for (i = 0; i < 5; i++)
		KT_EQ(taskqueue_enqueue(tq, &j.task), 0);
	KT_EQ(taskqueue_enqueue_flags(tq, &j.task, TASKQUEUE_FAIL_IF_PENDING), EEXIST);
	pause("ktest", hz / 50);
	KT_EQ(j.calls, 0);
	KT_EQ(taskqueue_poll_is_busy(tq, &j.task), 1);
	taskqueue_unblock(tq);
	taskqueue_drain(tq, &j.task);
	KT_EQ(j.calls, 1);
	KT_EQ(j.pending, 5);
	KT_EQ(taskqueue_poll_is_busy(tq, &j.task), 0);
	KT_EQ(taskqueue_member(tq, j.td), 1);
	KT_EQ(taskqueue_member(tq, curthread), 0);
	/* Queued while it runs: it runs again. */
	j.hold = true;
	taskqueue_enqueue(tq, &j.task);
	KT_WAIT(j.running);
	KT_EQ(taskqueue_enqueue_flags(tq, &j.task, TASKQUEUE_FAIL_IF_PENDING), 0);
	j.hold = false;
	taskqueue_drain(tq, &j.task);
	KT_EQ(j.calls, 3);
	taskqueue_free(tq);
}

static void
taskqueue_priorities(void)
{
	static const int pri[] = { 3, 0, 7, 3, 255, 0, 7 };
	struct job j[nitems(pri)];
	struct taskqueue *tq;
	u_int i, k;

	queue_make(&tq, 1);
	taskqueue_block(tq);
	for (i = 0; i < nitems(pri); i++) {
		job_init(&j[i], tq, pri[i]);
		taskqueue_enqueue(tq, &j[i].task);
	}
	taskqueue_unblock(tq);
	taskqueue_drain_all(tq);
	for (i = 0; i < nitems(pri); i++) {
		KT_EQ(j[i].calls, 1);
		for (k = i + 1; k < nitems(pri); k++)
			KT_EQ(j[i].order < j[k].order, pri[i] >= pri[k]);
	}
	taskqueue_free(tq);
}

static void
taskqueue_cancel_counts(void)
{
	struct taskqueue *tq;
	struct job j, other;
	u_int pending;

	queue_make(&tq, 1);
	job_init(&j, tq, 0);
	job_init(&other, tq, 0);
	taskqueue_block(tq);
	taskqueue_enqueue(tq, &other.task);
	taskqueue_enqueue(tq, &j.task);
	taskqueue_enqueue(tq, &j.task);
	KT_EQ(taskqueue_cancel(tq, &j.task, &pending), 0);
	KT_EQ(pending, 2);
	KT_EQ(taskqueue_cancel(tq, &j.task, &pending), 0);
	KT_EQ(pending, 0);
	taskqueue_unblock(tq);
	taskqueue_drain_all(tq);
	KT_EQ(other.calls, 1);
	KT_EQ(j.calls, 0);
	j.hold = true;
	taskqueue_enqueue(tq, &j.task);
	KT_WAIT(j.running);
	taskqueue_enqueue(tq, &j.task);
	KT_EQ(taskqueue_cancel(tq, &j.task, &pending), EBUSY);
	KT_EQ(pending, 1);
	KT_EQ(taskqueue_cancel(tq, &j.task, NULL), EBUSY);
	j.hold = false;
	taskqueue_drain(tq, &j.task);
	KT_EQ(j.calls, 1);
	KT_EQ(taskqueue_cancel(tq, &j.task, NULL), 0);
	taskqueue_free(tq);
}

static void
job_releaser(void *arg, int me)
{
	struct job *j = arg;

	pause("ktest", hz / 20);
	j->hold = false;
}

static void
taskqueue_drain_waits(void)
{
	struct ktest_thread *kt;
	struct taskqueue *tq;
	struct job j, k;
	int how;

	queue_make(&tq, 2);
	job_init(&j, tq, 0);
	job_init(&k, tq, 0);
	for (how = 0; how < 3; how++) {
		j.calls = 0;
		j.hold = true;
		taskqueue_enqueue(tq, &j.task);
		KT_WAIT(j.running);
		kt = ktest_spawn(job_releaser, &j, 0, KT_ANYCPU, 0);
		if (how == 0)
			taskqueue_drain(tq, &j.task);
		else if (how == 1)
			taskqueue_drain_all(tq);
		else {
			k.again = 5;
			taskqueue_enqueue(tq, &k.task);
			taskqueue_quiesce(tq);
			KT_EQ(k.calls, 6);
		}
		KT_EQ(j.calls, 1);
		KT_TRUE(!j.running);
		ktest_join(kt);
	}
	taskqueue_free(tq);
}

static void
taskqueue_threads_run_in_parallel(void)
{
	struct taskqueue *tq;
	struct job j[4];
	int i;

	queue_make(&tq, 4);
	for (i = 0; i < 4; i++) {
		job_init(&j[i], tq, 0);
		j[i].hold = true;
		taskqueue_enqueue(tq, &j[i].task);
	}
	KT_WAIT(j[0].running && j[1].running && j[2].running && j[3].running);
	for (i = 3; i >= 0; i--) {
		j[i].hold = false;
		taskqueue_drain(tq, &j[i].task);
		KT_EQ(j[i].calls, 1);
	}
	taskqueue_free(tq);
}

static void
taskqueue_time_outs(void)
{
	struct timeout_task tt;
	struct taskqueue *tq;
	struct job j;
	u_int pending;

	queue_make(&tq, 1);
	job_init(&j, tq, 0);
	TIMEOUT_TASK_INIT(tq, &tt, 0, job_run, &j);
	KT_EQ(taskqueue_enqueue_timeout(tq, &tt, 1), 0);
	KT_WAIT(j.calls == 1);
	taskqueue_drain_timeout(tq, &tt);
	KT_EQ(taskqueue_enqueue_timeout(tq, &tt, 60 * hz), 0);
	KT_EQ(taskqueue_enqueue_timeout(tq, &tt, 60 * hz), 1);
	KT_EQ(taskqueue_cancel_timeout(tq, &tt, &pending), 0);
	KT_EQ(pending, 1);
	KT_EQ(taskqueue_cancel_timeout(tq, &tt, &pending), 0);
	KT_EQ(pending, 0);
	KT_EQ(j.calls, 1);
	/* 0: at once. */
	KT_EQ(taskqueue_enqueue_timeout(tq, &tt, 0), 0);
	KT_WAIT(j.calls == 2);
	/* Drained: what has not been queued yet does not come. */
	taskqueue_enqueue_timeout(tq, &tt, 60 * hz);
	taskqueue_drain_timeout(tq, &tt);
	KT_EQ(j.calls, 2);
	taskqueue_enqueue_timeout_sbt(tq, &tt, SBT_1MS, 0, 0);
	KT_WAIT(j.calls == 3);
	j.hold = true;
	taskqueue_enqueue_timeout_sbt(tq, &tt, SBT_1MS, 0, 0);
	KT_WAIT(j.running);
	KT_EQ(taskqueue_cancel_timeout(tq, &tt, NULL), EBUSY);
	j.hold = false;
	taskqueue_drain_timeout(tq, &tt);
	KT_EQ(j.calls, 4);
	/* Negative: only if it is not armed already; it may be pending. */
	j.hold = true;
	taskqueue_enqueue_timeout(tq, &tt, 0);
	KT_WAIT(j.running);
	taskqueue_enqueue_timeout(tq, &tt, 0);
	KT_EQ(taskqueue_enqueue_timeout_sbt(tq, &tt, -60 * SBT_1S, 0, 0), 1);
	KT_EQ(taskqueue_enqueue_timeout_sbt(tq, &tt, -SBT_1MS, 0, 0), 2);
	j.hold = false;
	KT_WAIT(j.calls == 6);
	KT_EQ(taskqueue_cancel_timeout(tq, &tt, &pending), 0);
	KT_EQ(pending, 1);
	taskqueue_free(tq);
}

/* taskqueue_free(9) runs what is still queued before it returns. */
static void
taskqueue_free_with_queued_tasks(void)
{
	struct taskqueue *tq;
	struct job j[3];
	int i;

	queue_make(&tq, 1);
	for (i = 0; i < 3; i++)
		job_init(&j[i], tq, 0);
	j[0].hold = true;
	for (i = 0; i < 3; i++)
		taskqueue_enqueue(tq, &j[i].task);
	KT_WAIT(j[0].running);
	j[0].hold = false;
	taskqueue_free(tq);
	for (i = 0; i < 3; i++)
		KT_EQ(j[i].calls, 1);
}

static volatile u_int callbacks[2];

static void
queue_callback(void *arg)
{
	atomic_add_int(&callbacks[(uintptr_t)arg], 1);
}

static void
taskqueue_callbacks(void)
{
	struct taskqueue *tq;
	struct job j;

	callbacks[0] = callbacks[1] = 0;
	tq = taskqueue_create("ktest", M_WAITOK, taskqueue_thread_enqueue, &tq);
	taskqueue_set_callback(tq, TASKQUEUE_CALLBACK_TYPE_INIT, queue_callback, (void *)0);
	taskqueue_set_callback(tq, TASKQUEUE_CALLBACK_TYPE_SHUTDOWN, queue_callback, (void *)1);
	taskqueue_start_threads(&tq, 3, PWAIT, "ktest queue");
	job_init(&j, tq, 0);
	taskqueue_enqueue(tq, &j.task);
	taskqueue_drain(tq, &j.task);
	KT_WAIT(callbacks[0] == 3);
	KT_EQ(callbacks[1], 0);
	taskqueue_free(tq);
	KT_EQ(callbacks[1], 3);
}

static void
fast_alarm(void *arg)
{
	struct job *j = arg;

	taskqueue_enqueue(j->tq, &j->task);
}

/* A fast queue is filled from interrupt filters. */
static void
taskqueue_fast_from_interrupt(void)
{
	struct taskqueue *tq;
	struct callout c;
	struct job j;
	int i;

	tq = taskqueue_create_fast("ktest fast", M_WAITOK, taskqueue_thread_enqueue, &tq);
	taskqueue_start_threads(&tq, 1, PI_NET, "ktest fast");
	job_init(&j, tq, 0);
	callout_init(&c, 1);
	for (i = 0; i < 100; i++) {
		callout_reset_sbt(&c, 100 * SBT_1US, 0, fast_alarm, &j, C_DIRECT_EXEC);
		KT_WAIT(j.pending == i + 1);
		callout_drain(&c);
	}
	taskqueue_drain(tq, &j.task);
	taskqueue_free(tq);
}

static void
net_task(void *arg, int pending)
{
	struct job *j = arg;

	KT_TRUE(in_epoch(net_epoch_preempt));
	j->calls++;
}

static void
plain_task(void *arg, int pending)
{
	struct job *j = arg;

	KT_TRUE(!in_epoch(net_epoch_preempt));
	j->calls++;
}

static void
taskqueue_network_tasks_are_in_the_epoch(void)
{
	struct taskqueue *tq;
	struct job j[6];
	int i;

	queue_make(&tq, 1);
	taskqueue_block(tq);
	for (i = 0; i < 6; i++) {
		job_init(&j[i], tq, 0);
		if (i % 4 < 2)
			NET_TASK_INIT(&j[i].task, 0, net_task, &j[i]);
		else
			TASK_INIT(&j[i].task, 0, plain_task, &j[i]);
		taskqueue_enqueue(tq, &j[i].task);
	}
	taskqueue_unblock(tq);
	taskqueue_drain_all(tq);
	for (i = 0; i < 6; i++)
		KT_EQ(j[i].calls, 1);
	NET_EPOCH_WAIT();
	taskqueue_free(tq);
}

/* One that is queued while the thread leaves the epoch of the one before. */
static void
taskqueue_network_tasks_follow_each_other(void)
{
	struct taskqueue *tq;
	struct job j;
	volatile u_int k;
	u_int i;

	tq = taskqueue_create("ktest", M_WAITOK, taskqueue_thread_enqueue, &tq);
	KT_EQ(taskqueue_start_threads(&tq, 1, PI_SOFT, "ktest tasks"), 0);
	job_init(&j, tq, 0);
	NET_TASK_INIT(&j.task, 0, net_task, &j);
	for (i = 0; i < 5000u * ktest_rounds && j.calls == i; i++) {
		taskqueue_enqueue(tq, &j.task);
		KT_SPIN(j.calls == i + 1);
		for (k = 0; k < i % 500; k++)
			cpu_spinwait();
	}
	taskqueue_free(tq);
}

static void
taskqueue_global_queues(void)
{
	struct taskqueue *tq[] = { taskqueue_thread, taskqueue_swi, taskqueue_fast };
	struct job j;
	u_int i;

	for (i = 0; i < nitems(tq); i++) {
		job_init(&j, tq[i], 0);
		j.again = 2;
		taskqueue_enqueue(tq[i], &j.task);
		KT_WAIT(j.calls == 3);
		taskqueue_drain(tq[i], &j.task);
	}
}

#define	PRODUCED	2000

static void
job_producer(void *arg, int me)
{
	struct job *j = arg;
	u_int i;

	for (i = 0; i < PRODUCED; i++) {
		taskqueue_enqueue(j[0].tq, &j[i % 3].task);
		if (i % 256 == me)
			taskqueue_drain(j[0].tq, &j[me % 3].task);
	}
}

static void
job_count(void *arg, int pending)
{
	struct job *j = arg;

	/* Not atomic: a task runs in one thread at a time unless it is queued while it runs. */
	atomic_add_int(&j->pending, pending);
	atomic_add_int(&j->calls, 1);
}

static void
taskqueue_no_enqueue_is_lost(void)
{
	struct taskqueue *tq;
	struct job j[3];
	u_int total = 0;
	int i;

	queue_make(&tq, 2);
	for (i = 0; i < 3; i++) {
		job_init(&j[i], tq, i);
		TASK_INIT(&j[i].task, i, job_count, &j[i]);
	}
	ktest_run(4, true, job_producer, j);
	taskqueue_drain_all(tq);
	for (i = 0; i < 3; i++)
		total += j[i].pending;
	KT_EQ(total, 4 * PRODUCED);
	taskqueue_free(tq);
}

const struct ktest_case ktest_taskqueue_cases[] = {
	{ "taskqueue.coalesces", taskqueue_coalesces },
	{ "taskqueue.priorities", taskqueue_priorities },
	{ "taskqueue.cancel_counts", taskqueue_cancel_counts },
	{ "taskqueue.drain_waits", taskqueue_drain_waits },
	{ "taskqueue.threads_run_in_parallel", taskqueue_threads_run_in_parallel },
	{ "taskqueue.time_outs", taskqueue_time_outs },
	{ "taskqueue.free_with_queued_tasks", taskqueue_free_with_queued_tasks },
	{ "taskqueue.callbacks", taskqueue_callbacks },
	{ "taskqueue.fast_from_interrupt", taskqueue_fast_from_interrupt },
	{ "taskqueue.network_tasks_are_in_the_epoch", taskqueue_network_tasks_are_in_the_epoch },
	{ "taskqueue.network_tasks_follow_each_other", taskqueue_network_tasks_follow_each_other },
	{ "taskqueue.global_queues", taskqueue_global_queues },
	{ "taskqueue.no_enqueue_is_lost", taskqueue_no_enqueue_is_lost },
	{ NULL, NULL }
};
