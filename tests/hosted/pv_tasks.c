/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Queues of tasks that share threads.  A thread is a queue of taskqueue(9) with one; it runs when the
 * test says so, and not while it is in a task: a task that does not return lets the others run.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/errno.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/taskqueue.h>

#include <dev/pv/dev/pv_tasks.h>

#include "host/host.h"
#include "kpi/kpi.h"

#define	MAX_TASKS	4
#define	DEVICES		(2 * PV_TASKS_THREADS)
CTASSERT(PV_TASKS_THREADS > 1);

struct taskqueue {
	taskqueue_enqueue_fn enqueue;
	void		*context;
	int		 threads;
	bool		 used, busy;
	struct task	*tasks[MAX_TASKS];
};

static struct taskqueue queues[DEVICES + PV_TASKS_THREADS];
/* A thread has seen that a device's queue is empty, and is about to leave it. */
static void (*leaving)(struct taskqueue *tq);
static struct host_bell leaves, sleeps, wakes;
static const void *woken;

struct taskqueue *
taskqueue_create(const char *name __unused, int mflags, taskqueue_enqueue_fn enqueue, void *context)
{
	struct taskqueue *tq = queues;

	CHECK(mflags == M_WAITOK && kpi_mutexes == 0, "with a lock");
	while (tq->used)
		tq++;
	CHECK(tq < queues + nitems(queues), "too many queues");
	*tq = (struct taskqueue){ .enqueue = enqueue, .context = context, .used = true };
	return (tq);
}

int
taskqueue_start_threads(struct taskqueue **tqp, int count, int pri __unused,
    const char *name __unused, ...)
{
	CHECK((*tqp)->enqueue == taskqueue_thread_enqueue && (*tqp)->context == tqp, "not a thread's");
	if (kpi_no_threads)
		return (ENOMEM);
	(*tqp)->threads += count;
	return (0);
}

void
taskqueue_thread_enqueue(void *context __unused)
{
}

int
taskqueue_enqueue(struct taskqueue *tq, struct task *task)
{
	int i;

	CHECK(tq->used, "a queue that was freed");
	for (i = 0; i < MAX_TASKS && tq->tasks[i] != NULL; i++) {
		if (tq->tasks[i] == task)
			return (0);
	}
	CHECK(i < MAX_TASKS, "too many tasks");
	tq->tasks[i] = task;
	tq->enqueue(tq->context);
	return (0);
}

void
taskqueue_run(struct taskqueue *tq)
{
	struct task *task;

	CHECK(tq->used && !tq->busy && kpi_mutexes == 0, "two threads have it, or a lock is held");
	tq->busy = true;
	while ((task = tq->tasks[0]) != NULL) {
		memmove(tq->tasks, tq->tasks + 1, sizeof(tq->tasks) - sizeof(tq->tasks[0]));
		tq->tasks[MAX_TASKS - 1] = NULL;
		task->ta_func(task->ta_context, 1);
	}
	if (tq->threads == 0 && leaving != NULL)
		leaving(tq);
	tq->busy = false;
}

static u_int
threads(void)
{
	u_int i, n = 0;

	for (i = 0; i < nitems(queues); i++)
		n += queues[i].used ? queues[i].threads : 0;
	return (n);
}

/* All threads that are in no task run, until each has nothing to do. */
static void
run_threads(void)
{
	u_int i;

	for (i = 0; i < nitems(queues); i++) {
		if (!queues[i].used || queues[i].threads == 0 || queues[i].busy ||
		    queues[i].tasks[0] == NULL)
			continue;
		taskqueue_run(&queues[i]);
		i = -1;
	}
}

void
taskqueue_drain(struct taskqueue *tq, struct task *task __unused)
{
	run_threads();
	CHECK(tq->tasks[0] == NULL && !tq->busy && kpi_mutexes == 0, "it waits for ever");
}

void
taskqueue_free(struct taskqueue *tq)
{
	CHECK(tq->used && tq->tasks[0] == NULL && !tq->busy, "it is in use");
	tq->used = false;
}

int
_sleep(const void *chan, struct lock_object *lock, int pri __unused, const char *wmesg, sbintime_t sbt,
    sbintime_t pr __unused, int flags __unused)
{
	struct mtx *mtx = __containerof(lock, struct mtx, lock_object);

	CHECK(sbt == 0, "%s", wmesg);
	woken = NULL;
	mtx_unlock(mtx);
	host_bell_ring(&sleeps);
	CHECK(host_bell_wait(&wakes) && woken == chan, "%s: nobody woke it", wmesg);
	mtx_lock(mtx);
	return (0);
}

void
wakeup(const void *chan)
{
	woken = chan;
	host_bell_ring(&wakes);
}

struct device {
	struct pv_tasks	 d_tasks;
	struct task	 d_task, d_other;
	u_int		 d_runs, d_others;
	bool		 d_sick, d_running;
};

static struct device devices[DEVICES];
/* What happens while a sick device's task does not return. */
static void (*meanwhile)(struct device *d);

static void
device_task(void *arg, int pending __unused)
{
	struct device *d = arg;

	CHECK(!d->d_running, "two tasks of a device at a time");
	d->d_running = true;
	d->d_runs++;
	if (d->d_sick)
		meanwhile(d);
	d->d_running = false;
}

static void
device_other(void *arg, int pending __unused)
{
	struct device *d = arg;

	CHECK(!d->d_running, "two tasks of a device at a time");
	d->d_others++;
}

static void
attach(u_int n)
{
	struct device *d;
	int error;

	memset(devices, 0, sizeof(devices));
	for (d = devices; d < devices + n; d++) {
		/* In memory that was another's. */
		memset(&d->d_tasks, 0xa5, sizeof(d->d_tasks));
		error = pv_tasks_init(&d->d_tasks);
		CHECK(error == 0, "error %d", error);
		TASK_INIT(&d->d_task, 0, device_task, d);
		TASK_INIT(&d->d_other, 0, device_other, d);
	}
}

static void
detach(u_int n)
{
	u_int i;

	for (i = 0; i < n; i++)
		pv_tasks_free(&devices[i].d_tasks);
	CHECK(threads() == 0, "%u threads are left", threads());
	for (i = 0; i < nitems(queues); i++)
		CHECK(!queues[i].used, "a queue is left");
}

static void
wanted(struct device *d)
{
	(void)taskqueue_enqueue(d->d_tasks.pt_tq, &d->d_task);
}

static void
threads_are_shared(const void *arg __unused)
{
	u_int i, n;

	for (n = 1; n <= DEVICES; n++) {
		attach(n);
		CHECK(threads() == MIN(n, PV_TASKS_THREADS), "%u threads of %u queues", threads(), n);
		for (i = 0; i < n; i++)
			wanted(&devices[i]);
		run_threads();
		for (i = 0; i < n; i++)
			CHECK(devices[i].d_runs == 1, "%u: %u", i, devices[i].d_runs);
		detach(n);
	}
}

static void
others_run(struct device *d __unused)
{
	u_int i;

	for (i = 0; i < DEVICES; i++) {
		if (devices[i].d_runs == 0)
			wanted(&devices[i]);
	}
	run_threads();
	for (i = 0; i < DEVICES; i++)
		CHECK(devices[i].d_sick || devices[i].d_runs == 1, "%u waits", i);
}

/* As many as there are threads but one. */
static void
sick_devices_do_not_hold_up_others(const void *arg __unused)
{
	u_int i, n;

	meanwhile = others_run;
	for (n = 1; n < PV_TASKS_THREADS; n++) {
		attach(DEVICES);
		for (i = 0; i < n; i++)
			devices[i].d_sick = true;
		wanted(&devices[0]);
		run_threads();
		CHECK(devices[n - 1].d_runs == 1, "%u are not sick", n);
		detach(DEVICES);
	}
}

static void
more_is_wanted(struct device *d)
{
	d->d_sick = false;
	wanted(d);
	(void)taskqueue_enqueue(d->d_tasks.pt_tq, &d->d_other);
	run_threads();
	CHECK(d->d_runs == 1 && d->d_others == 0, "at the same time");
}

static void
tasks_of_a_device_run_one_by_one(const void *arg __unused)
{
	meanwhile = more_is_wanted;
	attach(DEVICES);
	devices[0].d_sick = true;
	wanted(&devices[0]);
	run_threads();
	CHECK(devices[0].d_runs == 2 && devices[0].d_others == 1, "%u, %u", devices[0].d_runs,
	    devices[0].d_others);
	detach(DEVICES);
}

static void
one_more(struct taskqueue *tq __unused)
{
	leaving = NULL;
	wanted(&devices[0]);
}

/* It comes when the thread has looked for the last time. */
static void
no_task_is_left(const void *arg __unused)
{
	attach(1);
	leaving = one_more;
	wanted(&devices[0]);
	run_threads();
	CHECK(devices[0].d_runs == 2, "%u", devices[0].d_runs);
	detach(1);
}

static void
leave_late(struct taskqueue *tq __unused)
{
	leaving = NULL;
	host_bell_ring(&leaves);
	CHECK(host_bell_wait(&sleeps), "the queue is freed under the thread");
}

static void
thread_runs(void *arg __unused)
{
	run_threads();
}

static void
device_leaves(void *arg __unused)
{
	CHECK(host_bell_wait(&leaves), "no task");
	pv_tasks_free(&devices[1].d_tasks);
}

static void
free_waits_for_the_thread(const void *arg __unused)
{
	static void (*const bodies[])(void *) = { thread_runs, device_leaves };

	attach(2);
	leaving = leave_late;
	wanted(&devices[1]);
	host_run(bodies, nitems(bodies), NULL);
	CHECK(devices[1].d_runs == 1, "%u", devices[1].d_runs);
	detach(1);
}

static void
all_are_sick(struct device *d)
{
	u_int i;

	if (d + 1 < devices + PV_TASKS_THREADS) {
		wanted(d + 1);
		run_threads();
		return;
	}
	/* No thread is left: these wait, one of them to be detached. */
	for (i = PV_TASKS_THREADS; i < DEVICES; i++)
		wanted(&devices[i]);
	run_threads();
	for (i = PV_TASKS_THREADS; i < DEVICES; i++)
		CHECK(devices[i].d_runs == 0, "%u: a thread too many", i);
	devices[DEVICES - 1].d_tasks.pt_tq->tasks[0] = NULL;
	pv_tasks_free(&devices[DEVICES - 1].d_tasks);
}

static void
first_free_thread_runs_what_waits(const void *arg __unused)
{
	u_int i;

	meanwhile = all_are_sick;
	attach(DEVICES);
	for (i = 0; i < PV_TASKS_THREADS; i++)
		devices[i].d_sick = true;
	wanted(&devices[0]);
	run_threads();
	for (i = 0; i < DEVICES - 1; i++)
		CHECK(devices[i].d_runs == 1, "%u: %u", i, devices[i].d_runs);
	CHECK(devices[DEVICES - 1].d_runs == 0, "it is detached");
	detach(DEVICES - 1);
}

static void
no_thread(const void *arg __unused)
{
	u_int n;
	int error;

	for (n = 0; n <= PV_TASKS_THREADS; n++) {
		attach(n);
		kpi_no_threads = true;
		error = pv_tasks_init(&devices[n].d_tasks);
		kpi_no_threads = false;
		/* There are as many as there will ever be. */
		CHECK(error == (n < PV_TASKS_THREADS ? ENOMEM : 0), "%u: error %d", n, error);
		detach(n + (error == 0));
	}
}

static const struct hosted_test tests[] = {
	{ "threads_are_shared", "One for each queue, up to four; none is left",
	    threads_are_shared, NULL },
	{ "sick_devices_do_not_hold_up_others", "While a task of some does not return, the others' run",
	    sick_devices_do_not_hold_up_others, NULL },
	{ "tasks_of_a_device_run_one_by_one", "Also if more come while one runs",
	    tasks_of_a_device_run_one_by_one, NULL },
	{ "no_task_is_left", "That comes when the thread has looked for the last time",
	    no_task_is_left, NULL },
	{ "free_waits_for_the_thread", "Which has done all tasks, and has the queue yet",
	    free_waits_for_the_thread, NULL },
	{ "first_free_thread_runs_what_waits", "Unless it is detached before",
	    first_free_thread_runs_what_waits, NULL },
	{ "no_thread", "No queue, and no leak", no_thread, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{
	return (tests);
}
