/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_tasks: queues of tasks without threads of their own.
 *
 * A device has seldom anything to do beside its requests, but that may take
 * seconds: a reset, a change of its configuration.  So each has queues of
 * taskqueue(9), which are given to a few threads of all devices when something
 * is in them.  A queue is with one thread at a time: its tasks run one after
 * the other, as with a thread of its own, and a device that does not answer
 * holds up no more threads than it has queues.  Whichever thread has done takes
 * the queue that has waited for longest, so that others wait only while each
 * thread is held up.
 *
 *	IDLE -> WAITING -> RUNNING -> IDLE
 *	           ^          | a task is queued
 *	           |          v
 *	           +------- AGAIN
 *
 * There is a thread for each queue, up to PV_TASKS_THREADS.  They end with the
 * last queue.
 *
 * Locking.
 *   pv_tasks_sx   the number of threads and of queues; sleeps
 *   pv_tasks_mtx  states, the list of queues that wait, which threads are busy,
 *                 and how many there are
 * Order: pv_tasks_sx; a queue's own lock, pv_tasks_mtx, the lock of a thread's
 * queue.  A thread that is not busy has no queue to run: none waits then.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/priority.h>
#include <sys/queue.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>

#include <dev/pv/dev/pv_tasks.h>

struct pv_tasks_thread {
	struct taskqueue *ptt_tq;
	struct task	 ptt_task;
	bool		 ptt_busy;
};

static struct pv_tasks_thread pv_tasks_threads[PV_TASKS_THREADS];
static u_int pv_tasks_nthreads, pv_tasks_nqueues;
static STAILQ_HEAD(,
    pv_tasks) pv_tasks_waiting = STAILQ_HEAD_INITIALIZER(pv_tasks_waiting);
static struct mtx pv_tasks_mtx;
MTX_SYSINIT(pv_tasks, &pv_tasks_mtx, "pv tasks", MTX_DEF);
static struct sx pv_tasks_sx;
SX_SYSINIT(pv_tasks_sx, &pv_tasks_sx, "pv tasks threads");

static void
pv_tasks_wait(struct pv_tasks *pt)
{
	pt->pt_state = PV_TASKS_WAITING;
	STAILQ_INSERT_TAIL(&pv_tasks_waiting, pt, pt_link);
}

/* What a thread does: run queues, until none waits. */
static void
pv_tasks_work(void *arg, int pending __unused)
{
	struct pv_tasks_thread *ptt = arg;
	struct pv_tasks *pt;

	mtx_lock(&pv_tasks_mtx);
	while ((pt = STAILQ_FIRST(&pv_tasks_waiting)) != NULL) {
		STAILQ_REMOVE_HEAD(&pv_tasks_waiting, pt_link);
		pt->pt_state = PV_TASKS_RUNNING;
		mtx_unlock(&pv_tasks_mtx);
		taskqueue_run(pt->pt_tq);
		mtx_lock(&pv_tasks_mtx);
		if (pt->pt_state == PV_TASKS_AGAIN)
			pv_tasks_wait(pt);
		else {
			pt->pt_state = PV_TASKS_IDLE;
			wakeup(pt);
		}
	}
	ptt->ptt_busy = false;
	mtx_unlock(&pv_tasks_mtx);
}

/*
 * Have a thread run what waits; if all are busy, the first that is not any more
 * does.
 */
static void
pv_tasks_call(void)
{
	struct pv_tasks_thread *ptt;

	mtx_assert(&pv_tasks_mtx, MA_OWNED);
	for (ptt = pv_tasks_threads; ptt < pv_tasks_threads + pv_tasks_nthreads;
	    ptt++) {
		if (ptt->ptt_busy)
			continue;
		ptt->ptt_busy = true;
		(void)taskqueue_enqueue(ptt->ptt_tq, &ptt->ptt_task);
		return;
	}
}

/* There is a task in a queue. */
static void
pv_tasks_enqueue(void *context)
{
	struct pv_tasks *pt = context;

	mtx_lock(&pv_tasks_mtx);
	if (pt->pt_state == PV_TASKS_RUNNING)
		pt->pt_state = PV_TASKS_AGAIN;
	else if (pt->pt_state == PV_TASKS_IDLE) {
		pv_tasks_wait(pt);
		pv_tasks_call();
	}
	mtx_unlock(&pv_tasks_mtx);
}

static int
pv_tasks_add_thread(void)
{
	struct pv_tasks_thread *ptt = &pv_tasks_threads[pv_tasks_nthreads];
	int error;

	TASK_INIT(&ptt->ptt_task, 0, pv_tasks_work, ptt);
	ptt->ptt_busy = false;
	ptt->ptt_tq = taskqueue_create("pv_tasks", M_WAITOK,
	    taskqueue_thread_enqueue, &ptt->ptt_tq);
	error = taskqueue_start_threads(&ptt->ptt_tq, 1, PWAIT,
	    "pv tasks %u", pv_tasks_nthreads);
	if (error != 0) {
		taskqueue_free(ptt->ptt_tq);
		return (error);
	}
	mtx_lock(&pv_tasks_mtx);
	pv_tasks_nthreads++;
	mtx_unlock(&pv_tasks_mtx);
	return (0);
}

int
pv_tasks_init(struct pv_tasks *pt)
{
	int error = 0;

	sx_xlock(&pv_tasks_sx);
	if (pv_tasks_nthreads <= pv_tasks_nqueues &&
	    pv_tasks_nthreads < PV_TASKS_THREADS)
		error = pv_tasks_add_thread();
	if (error == 0)
		pv_tasks_nqueues++;
	sx_xunlock(&pv_tasks_sx);
	if (error != 0)
		return (error);
	pt->pt_state = PV_TASKS_IDLE;
	pt->pt_tq = taskqueue_create("pv_dev", M_WAITOK, pv_tasks_enqueue, pt);
	return (0);
}

/* No thread has it any more, nor gets it. */
static void
pv_tasks_close(struct pv_tasks *pt)
{
	mtx_lock(&pv_tasks_mtx);
	while (pt->pt_state == PV_TASKS_RUNNING ||
	    pt->pt_state == PV_TASKS_AGAIN)
		(void)msleep(pt, &pv_tasks_mtx, 0, "pvtasks", 0);
	if (pt->pt_state == PV_TASKS_WAITING)
		STAILQ_REMOVE(&pv_tasks_waiting, pt, pv_tasks, pt_link);
	pt->pt_state = PV_TASKS_CLOSED;
	mtx_unlock(&pv_tasks_mtx);
}

static void
pv_tasks_end_thread(struct pv_tasks_thread *ptt)
{
	taskqueue_drain(ptt->ptt_tq, &ptt->ptt_task);
	taskqueue_free(ptt->ptt_tq);
}

void
pv_tasks_free(struct pv_tasks *pt)
{
	pv_tasks_close(pt);
	taskqueue_free(pt->pt_tq);
	sx_xlock(&pv_tasks_sx);
	if (--pv_tasks_nqueues == 0) {
		while (pv_tasks_nthreads > 0)
			pv_tasks_end_thread(
			    &pv_tasks_threads[--pv_tasks_nthreads]);
	}
	sx_xunlock(&pv_tasks_sx);
}
