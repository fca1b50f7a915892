/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * taskqueue(9): work that is done later, in another context.
 *
 * A queue is a list of tasks by priority, and threads (or a software interrupt) that take them off
 * and call them.  A task that is queued again before it began is only counted (ta_pending).  The
 * running tasks are on tq_active, so that they can be waited for: a thread that waits sleeps on the
 * task's address, and is counted in tq_waiters.
 *
 * Tasks of the network (TASK_NETWORK) are called in the network epoch, which is kept from one such
 * task to the next.
 *
 * Locking.  tq_mutex of a queue, a spin mutex for "fast" queues, which are enqueued to from
 * filters.  It is not held while a task runs.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/cpuset.h>
#include <sys/epoch.h>
#include <sys/interrupt.h>
#include <sys/kthread.h>
#include <sys/limits.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/taskqueue.h>
#include <sys/unistd.h>

#include <machine/stdarg.h>

static MALLOC_DEFINE(M_TASKQUEUE, "taskqueue", "Task Queues");

/* The task that a thread runs; on its stack. */
struct taskqueue_busy {
	struct task		*tb_running;
	u_int			tb_seq;		/* of the task among all of the queue */
	LIST_ENTRY(taskqueue_busy) tb_link;
};

struct taskqueue {
	STAILQ_HEAD(, task)	tq_queue;
	LIST_HEAD(, taskqueue_busy) tq_active;
	u_int			tq_seq;		/* tasks begun */
	int			tq_waiters;
	int			tq_callouts;	/* time-outs that will enqueue */
	int			tq_stranded;	/* of which these will not */
	int			tq_flags;
	bool			tq_spin;
	struct mtx		tq_mutex;
	taskqueue_enqueue_fn	tq_enqueue;
	void			*tq_context;
	struct thread		**tq_threads;
	int			tq_tcount;	/* threads that have not ended */
	int			tq_nthreads;
	taskqueue_callback_fn	tq_callbacks[TASKQUEUE_NUM_CALLBACKS];
	void			*tq_cb_contexts[TASKQUEUE_NUM_CALLBACKS];
	char			tq_name[TASKQUEUE_NAMELEN];
};

#define	TQ_ACTIVE	0x01
#define	TQ_BLOCKED	0x02
#define	TQ_PENDING	0x04		/* enqueued to while blocked */

/* struct timeout_task's f. */
#define	TT_ARMED	0x01
#define	TT_DRAINING	0x02
#define	TT_STRANDED	0x04		/* armed, but taskqueue_drain_timeout() stopped it */

static void
tq_lock(struct taskqueue *tq)
{
	if (tq->tq_spin)
		mtx_lock_spin(&tq->tq_mutex);
	else
		mtx_lock(&tq->tq_mutex);
}

static void
tq_unlock(struct taskqueue *tq)
{
	if (tq->tq_spin)
		mtx_unlock_spin(&tq->tq_mutex);
	else
		mtx_unlock(&tq->tq_mutex);
}

static void
tq_sleep(struct taskqueue *tq, void *chan, const char *wmesg)
{
	if (tq->tq_spin)
		msleep_spin(chan, &tq->tq_mutex, wmesg, 0);
	else
		msleep(chan, &tq->tq_mutex, 0, wmesg, 0);
}

static struct taskqueue *
tq_create(const char *name, int mflags, taskqueue_enqueue_fn enqueue, void *context, bool spin)
{
	struct taskqueue *tq;

	tq = malloc(sizeof(*tq), M_TASKQUEUE, mflags | M_ZERO);
	if (tq == NULL)
		return (NULL);
	strlcpy(tq->tq_name, name != NULL ? name : "taskqueue", sizeof(tq->tq_name));
	STAILQ_INIT(&tq->tq_queue);
	LIST_INIT(&tq->tq_active);
	tq->tq_enqueue = enqueue;
	tq->tq_context = context;
	tq->tq_spin = spin;
	tq->tq_flags = TQ_ACTIVE;
	mtx_init(&tq->tq_mutex, tq->tq_name, NULL, (spin ? MTX_SPIN : MTX_DEF) | MTX_NEW);
	return (tq);
}

struct taskqueue *
taskqueue_create(const char *name, int mflags, taskqueue_enqueue_fn enqueue, void *context)
{
	return (tq_create(name, mflags, enqueue, context, false));
}

struct taskqueue *
taskqueue_create_fast(const char *name, int mflags, taskqueue_enqueue_fn enqueue, void *context)
{
	return (tq_create(name, mflags, enqueue, context, true));
}

void
taskqueue_set_callback(struct taskqueue *tq, enum taskqueue_callback_type type,
    taskqueue_callback_fn callback, void *context)
{
	KASSERT(tq->tq_callbacks[type] == NULL, ("%s: callback set twice", tq->tq_name));
	tq->tq_callbacks[type] = callback;
	tq->tq_cb_contexts[type] = context;
}

/* Waits until nothing refers to the queue any more; its lock is held. */
static void
tq_terminate(struct taskqueue *tq)
{
	KASSERT(tq->tq_stranded == 0, ("taskqueue_free(%s) waits for ever: %d time-outs were drained "
	    "without taskqueue_cancel_timeout()", tq->tq_name, tq->tq_stranded));
	tq->tq_flags &= ~TQ_ACTIVE;
	while (tq->tq_tcount > 0 || tq->tq_callouts > 0) {
		wakeup(tq);
		tq_sleep(tq, &tq->tq_threads, "tq_destroy");
	}
}

void
taskqueue_free(struct taskqueue *tq)
{
	tq_lock(tq);
	tq_terminate(tq);
	KASSERT(LIST_EMPTY(&tq->tq_active), ("taskqueue %s is in use", tq->tq_name));
	tq_unlock(tq);
	mtx_destroy(&tq->tq_mutex);
	free(tq->tq_threads, M_TASKQUEUE);
	free(tq, M_TASKQUEUE);
}

/* Behind those of the same or a higher priority. */
static void
tq_insert(struct taskqueue *tq, struct task *task)
{
	struct task *prev = STAILQ_LAST(&tq->tq_queue, task, ta_link), *i;

	if (prev == NULL || prev->ta_priority >= task->ta_priority) {
		STAILQ_INSERT_TAIL(&tq->tq_queue, task, ta_link);
		return;
	}
	prev = NULL;
	STAILQ_FOREACH(i, &tq->tq_queue, ta_link) {
		if (i->ta_priority < task->ta_priority)
			break;
		prev = i;
	}
	if (prev == NULL)
		STAILQ_INSERT_HEAD(&tq->tq_queue, task, ta_link);
	else
		STAILQ_INSERT_AFTER(&tq->tq_queue, prev, task, ta_link);
}

/*
 * Queues task; the lock is held.  True when the queue has to be woken, which is better done without
 * the lock: the woken thread may preempt the caller, and would only wait for the lock.
 */
static bool
tq_enqueue(struct taskqueue *tq, struct task *task)
{
	if (task->ta_pending != 0) {
		if (task->ta_pending < USHRT_MAX)
			task->ta_pending++;
		return (false);
	}
	tq_insert(tq, task);
	task->ta_pending = 1;
	if ((tq->tq_flags & TQ_BLOCKED) != 0) {
		tq->tq_flags |= TQ_PENDING;
		return (false);
	}
	return (tq->tq_enqueue != NULL);
}

int
taskqueue_enqueue_flags(struct taskqueue *tq, struct task *task, int flags)
{
	bool tell;

	tq_lock(tq);
	if (task->ta_pending != 0 && (flags & TASKQUEUE_FAIL_IF_PENDING) != 0) {
		tq_unlock(tq);
		return (EEXIST);
	}
	tell = tq_enqueue(tq, task);
	tq_unlock(tq);
	if (tell)
		tq->tq_enqueue(tq->tq_context);
	return (0);
}

int
taskqueue_enqueue(struct taskqueue *tq, struct task *task)
{
	return (taskqueue_enqueue_flags(tq, task, 0));
}

void
_timeout_task_init(struct taskqueue *tq, struct timeout_task *tt, int priority, task_fn_t func,
    void *context)
{
	TASK_INIT(&tt->t, priority, func, context);
	callout_init_mtx(&tt->c, &tq->tq_mutex, CALLOUT_RETURNUNLOCKED);
	tt->q = tq;
	tt->f = 0;
}

/* The callout of tt has fired, or has been cancelled. */
static void
tq_disarm(struct taskqueue *tq, struct timeout_task *tt)
{
	if ((tt->f & TT_STRANDED) != 0)
		tq->tq_stranded--;
	tt->f &= ~(TT_ARMED | TT_STRANDED);
}

/* The callout of a timeout task; the queue's lock is held, and released. */
static void
tq_timeout(void *arg)
{
	struct timeout_task *tt = arg;
	struct taskqueue *tq = tt->q;
	bool tell;

	KASSERT((tt->f & TT_ARMED) != 0, ("%s: stray timeout task", tq->tq_name));
	tq_disarm(tq, tt);
	tell = tq_enqueue(tq, &tt->t);
	tq_unlock(tq);
	if (tell)
		tq->tq_enqueue(tq->tq_context);
	/* Until here taskqueue_free() has waited for us. */
	tq_lock(tq);
	tq->tq_callouts--;
	if ((tq->tq_flags & TQ_ACTIVE) == 0)
		wakeup(&tq->tq_threads);
	tq_unlock(tq);
}

/*
 * Queues the task after sbt.  Returns how often it was pending or armed before; -1 if it is being
 * drained.
 */
int
taskqueue_enqueue_timeout_sbt(struct taskqueue *tq, struct timeout_task *tt, sbintime_t sbt,
    sbintime_t pr, int flags)
{
	bool armed, tell = false;
	int before;

	tq_lock(tq);
	armed = (tt->f & TT_ARMED) != 0;
	KASSERT(tt->q == NULL || tt->q == tq, ("%s: timeout task of another queue", tq->tq_name));
	tt->q = tq;
	if ((tt->f & TT_DRAINING) != 0) {
		tq_unlock(tq);
		return (-1);
	}
	before = tt->t.ta_pending;
	if (sbt == 0)
		tell = tq_enqueue(tq, &tt->t);
	else {
		if (armed)
			before++;
		else {
			tq->tq_callouts++;
			tt->f |= TT_ARMED;
		}
		/* Negative: only if it is not armed already, with the absolute value. */
		if (sbt > 0 || (!armed && (sbt = -sbt) > 0)) {
			if ((tt->f & TT_STRANDED) != 0)
				tq->tq_stranded--;
			tt->f &= ~TT_STRANDED;
			callout_reset_sbt(&tt->c, sbt, pr, tq_timeout, tt, flags);
		}
	}
	tq_unlock(tq);
	if (tell)
		tq->tq_enqueue(tq->tq_context);
	return (before);
}

int
taskqueue_enqueue_timeout(struct taskqueue *tq, struct timeout_task *tt, int nticks)
{
	return (taskqueue_enqueue_timeout_sbt(tq, tt, nticks * tick_sbt, 0, C_HARDCLOCK));
}

void
taskqueue_block(struct taskqueue *tq)
{
	tq_lock(tq);
	tq->tq_flags |= TQ_BLOCKED;
	tq_unlock(tq);
}

void
taskqueue_unblock(struct taskqueue *tq)
{
	bool tell;

	tq_lock(tq);
	tell = (tq->tq_flags & TQ_PENDING) != 0 && tq->tq_enqueue != NULL;
	tq->tq_flags &= ~(TQ_BLOCKED | TQ_PENDING);
	tq_unlock(tq);
	if (tell)
		tq->tq_enqueue(tq->tq_context);
}

static void
tq_call(struct taskqueue *tq, struct task *task, int pending)
{
	task_fn_t *func = task->ta_func;

	/* The task may have been freed when it returns. */
	func(task->ta_context, pending);
	WITNESS_WARN(WARN_PANIC | WARN_GIANTOK, NULL, "task %p (function %p) of %s returns", task,
	    func, tq->tq_name);
}

/* Calls tasks until none is left; the lock is held, but not while one runs. */
static void
tq_run(struct taskqueue *tq)
{
	struct taskqueue_busy tb;
	struct epoch_tracker et;
	struct task *task;
	bool in_net = false;
	int pending;

	tb.tb_running = NULL;
	LIST_INSERT_HEAD(&tq->tq_active, &tb, tb_link);
	for (;;) {
		task = STAILQ_FIRST(&tq->tq_queue);
		if (task == NULL && !in_net)
			break;
		if (task != NULL) {
			STAILQ_REMOVE_HEAD(&tq->tq_queue, ta_link);
			pending = task->ta_pending;
			task->ta_pending = 0;
			tb.tb_running = task;
			tb.tb_seq = ++tq->tq_seq;
		}
		tq_unlock(tq);
		if (in_net != (task != NULL && TASK_IS_NET(task) != 0)) {
			if (in_net)
				NET_EPOCH_EXIT(et);
			else
				NET_EPOCH_ENTER(et);
			in_net = !in_net;
		}
		if (task != NULL)
			tq_call(tq, task, pending);
		tq_lock(tq);
		tb.tb_running = NULL;
		if (task != NULL && tq->tq_waiters != 0)
			wakeup(task);
		/* The lock was released to leave the epoch: a task may have been queued. */
	}
	LIST_REMOVE(&tb, tb_link);
}

void
taskqueue_run(struct taskqueue *tq)
{
	tq_lock(tq);
	tq_run(tq);
	tq_unlock(tq);
}

static bool
tq_running(struct taskqueue *tq, struct task *task)
{
	struct taskqueue_busy *tb;

	LIST_FOREACH(tb, &tq->tq_active, tb_link)
		if (tb->tb_running == task)
			return (true);
	return (false);
}

int
taskqueue_poll_is_busy(struct taskqueue *tq, struct task *task)
{
	int busy;

	tq_lock(tq);
	busy = task->ta_pending != 0 || tq_running(tq, task);
	tq_unlock(tq);
	return (busy);
}

/* Takes task off the queue; EBUSY when it runs.  The lock is held. */
static int
tq_cancel(struct taskqueue *tq, struct task *task, u_int *pendp)
{
	if (pendp != NULL)
		*pendp = task->ta_pending;
	if (task->ta_pending != 0)
		STAILQ_REMOVE(&tq->tq_queue, task, task, ta_link);
	task->ta_pending = 0;
	return (tq_running(tq, task) ? EBUSY : 0);
}

int
taskqueue_cancel(struct taskqueue *tq, struct task *task, u_int *pendp)
{
	int error;

	tq_lock(tq);
	error = tq_cancel(tq, task, pendp);
	tq_unlock(tq);
	return (error);
}

int
taskqueue_cancel_timeout(struct taskqueue *tq, struct timeout_task *tt, u_int *pendp)
{
	u_int armed, pending;
	int error;

	tq_lock(tq);
	armed = callout_stop(&tt->c) > 0;
	error = tq_cancel(tq, &tt->t, &pending);
	if ((tt->f & TT_ARMED) != 0) {
		tq_disarm(tq, tt);
		tq->tq_callouts--;
	}
	tq_unlock(tq);
	if (pendp != NULL)
		*pendp = pending + armed;
	return (error);
}

/* Sleeps until a task of the queue has returned; chan is that task. */
static void
tq_wait(struct taskqueue *tq, struct task *chan, const char *wmesg)
{
	tq->tq_waiters++;
	tq_sleep(tq, chan, wmesg);
	tq->tq_waiters--;
}

void
taskqueue_drain(struct taskqueue *tq, struct task *task)
{
	if (!tq->tq_spin)
		WITNESS_WARN(WARN_GIANTOK | WARN_SLEEPOK, NULL, "calling taskqueue_drain()");
	tq_lock(tq);
	while (task->ta_pending != 0 || tq_running(tq, task))
		tq_wait(tq, task, "tq_drain");
	tq_unlock(tq);
}

/* Waits for the tasks that have begun by now. */
static void
tq_drain_active(struct taskqueue *tq)
{
	struct taskqueue_busy *tb;
	u_int seq = tq->tq_seq;

again:
	LIST_FOREACH(tb, &tq->tq_active, tb_link) {
		if (tb->tb_running != NULL && (int)(tb->tb_seq - seq) <= 0) {
			tq_wait(tq, tb->tb_running, "tq_adrain");
			goto again;
		}
	}
}

static void
tq_barrier(void *context __unused, int pending __unused)
{
}

/* Waits for what is queued now: for a task that is queued behind all of it. */
static void
tq_drain_queue(struct taskqueue *tq)
{
	struct task barrier;

	if (STAILQ_EMPTY(&tq->tq_queue))
		return;
	TASK_INIT(&barrier, 0, tq_barrier, NULL);
	STAILQ_INSERT_TAIL(&tq->tq_queue, &barrier, ta_link);
	barrier.ta_pending = 1;
	while (barrier.ta_pending != 0 || tq_running(tq, &barrier))
		tq_wait(tq, &barrier, "tq_qdrain");
}

void
taskqueue_drain_all(struct taskqueue *tq)
{
	if (!tq->tq_spin)
		WITNESS_WARN(WARN_GIANTOK | WARN_SLEEPOK, NULL, "calling taskqueue_drain_all()");
	tq_lock(tq);
	tq_drain_queue(tq);
	tq_drain_active(tq);
	tq_unlock(tq);
}

void
taskqueue_quiesce(struct taskqueue *tq)
{
	struct taskqueue_busy *tb;
	bool busy;

	tq_lock(tq);
	do {
		tq_drain_queue(tq);
		tq_drain_active(tq);
		busy = !STAILQ_EMPTY(&tq->tq_queue);
		LIST_FOREACH(tb, &tq->tq_active, tb_link)
			busy = busy || tb->tb_running != NULL;
	} while (busy);
	tq_unlock(tq);
}

/* As in FreeBSD, a callout that is stopped here stays counted: taskqueue_free() waits for it. */
void
taskqueue_drain_timeout(struct taskqueue *tq, struct timeout_task *tt)
{
	tq_lock(tq);
	KASSERT((tt->f & TT_DRAINING) == 0, ("%s: drained twice", tq->tq_name));
	tt->f |= TT_DRAINING;
	/* The task will not be queued; its callout may be about to take the queue's lock. */
	tq_unlock(tq);
	callout_drain(&tt->c);
	tq_lock(tq);
	if ((tt->f & (TT_ARMED | TT_STRANDED)) == TT_ARMED) {
		tt->f |= TT_STRANDED;
		tq->tq_stranded++;
	}
	tq_unlock(tq);
	taskqueue_drain(tq, &tt->t);
	tq_lock(tq);
	tt->f &= ~TT_DRAINING;
	tq_unlock(tq);
}

int
taskqueue_member(struct taskqueue *tq, struct thread *td)
{
	int i;

	for (i = 0; i < tq->tq_nthreads; i++)
		if (tq->tq_threads[i] == td)
			return (1);
	return (0);
}

static void
tq_callback(struct taskqueue *tq, enum taskqueue_callback_type type)
{
	if (tq->tq_callbacks[type] != NULL)
		tq->tq_callbacks[type](tq->tq_cb_contexts[type]);
}

void
taskqueue_thread_loop(void *arg)
{
	struct taskqueue **tqp = arg, *tq = *tqp;

	tq_callback(tq, TASKQUEUE_CALLBACK_TYPE_INIT);
	tq_lock(tq);
	while ((tq->tq_flags & TQ_ACTIVE) != 0) {
		tq_run(tq);
		/* It may have been freed while the last task ran. */
		if ((tq->tq_flags & TQ_ACTIVE) == 0)
			break;
		tq_sleep(tq, tq, "-");
	}
	tq_run(tq);
	tq_unlock(tq);
	tq_callback(tq, TASKQUEUE_CALLBACK_TYPE_SHUTDOWN);
	tq_lock(tq);
	tq->tq_tcount--;
	wakeup(&tq->tq_threads);
	tq_unlock(tq);
	kthread_exit();
}

/* A queue's enqueue function: wakes one of its threads. */
void
taskqueue_thread_enqueue(void *context)
{
	struct taskqueue **tqp = context;

	wakeup_any(*tqp);
}

static int
tq_start_threads(struct taskqueue **tqp, int count, int pri, cpuset_t *mask, struct proc *p,
    const char *fmt, va_list ap)
{
	struct taskqueue *tq = *tqp;
	struct thread *td;
	char name[MAXCOMLEN + 1];
	int error, i;

	if (count <= 0)
		return (EINVAL);
	vsnprintf(name, sizeof(name), fmt, ap);
	tq->tq_threads = malloc(sizeof(*tq->tq_threads) * count, M_TASKQUEUE, M_WAITOK | M_ZERO);
	for (i = 0; i < count; i++) {
		if (count == 1)
			error = kthread_add(taskqueue_thread_loop, tqp, p, &td, RFSTOPPED, 0, "%s",
			    name);
		else
			error = kthread_add(taskqueue_thread_loop, tqp, p, &td, RFSTOPPED, 0,
			    "%s_%d", name, i);
		if (error != 0) {
			printf("%s: no memory for a thread of %s\n", __func__, name);
			break;
		}
		tq_lock(tq);
		tq->tq_threads[tq->tq_nthreads++] = td;
		tq->tq_tcount++;
		tq_unlock(tq);
	}
	if (tq->tq_nthreads == 0) {
		free(tq->tq_threads, M_TASKQUEUE);
		tq->tq_threads = NULL;
		return (ENOMEM);
	}
	for (i = 0; i < tq->tq_nthreads; i++) {
		td = tq->tq_threads[i];
		if (mask != NULL && cpuset_setthread(td->td_tid, mask) != 0)
			printf("%s: %s can not run on the CPUs that were asked for\n", __func__,
			    td->td_name);
		thread_lock(td);
		sched_prio(td, pri);
		sched_add(td, SRQ_BORING);
	}
	return (0);
}

int
taskqueue_start_threads(struct taskqueue **tqp, int count, int pri, const char *fmt, ...)
{
	va_list ap;
	int error;

	va_start(ap, fmt);
	error = tq_start_threads(tqp, count, pri, NULL, NULL, fmt, ap);
	va_end(ap);
	return (error);
}

int
taskqueue_start_threads_in_proc(struct taskqueue **tqp, int count, int pri, struct proc *p,
    const char *fmt, ...)
{
	va_list ap;
	int error;

	va_start(ap, fmt);
	error = tq_start_threads(tqp, count, pri, NULL, p, fmt, ap);
	va_end(ap);
	return (error);
}

int
taskqueue_start_threads_cpuset(struct taskqueue **tqp, int count, int pri, cpuset_t *mask,
    const char *fmt, ...)
{
	va_list ap;
	int error;

	va_start(ap, fmt);
	error = tq_start_threads(tqp, count, pri, mask, NULL, fmt, ap);
	va_end(ap);
	return (error);
}

/*
 * The queues that always exist.
 */
static void *taskqueue_ih;
static void *taskqueue_giant_ih;
static void *taskqueue_fast_ih;

static void
taskqueue_swi_enqueue(void *context)
{
	swi_sched(*(void **)context, 0);
}

static void
taskqueue_swi_run(void *arg)
{
	taskqueue_run(*(struct taskqueue **)arg);
}

TASKQUEUE_DEFINE(swi, taskqueue_swi_enqueue, &taskqueue_ih,
    swi_add(NULL, "task queue", taskqueue_swi_run, &taskqueue_swi, SWI_TQ,
    INTR_TYPE_MISC | INTR_MPSAFE, &taskqueue_ih));
TASKQUEUE_DEFINE(swi_giant, taskqueue_swi_enqueue, &taskqueue_giant_ih,
    swi_add(NULL, "Giant taskq", taskqueue_swi_run, &taskqueue_swi_giant, SWI_TQ_GIANT,
    INTR_TYPE_MISC, &taskqueue_giant_ih));
TASKQUEUE_FAST_DEFINE(fast, taskqueue_swi_enqueue, &taskqueue_fast_ih,
    swi_add(NULL, "fast taskq", taskqueue_swi_run, &taskqueue_fast, SWI_TQ_FAST,
    INTR_TYPE_MISC | INTR_MPSAFE, &taskqueue_fast_ih));
TASKQUEUE_DEFINE_THREAD(thread);
