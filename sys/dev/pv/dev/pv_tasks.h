/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Tasks of a device, by threads that all devices share (theory statement:
 * pv_tasks.c).
 */

#ifndef _DEV_PV_DEV_PV_TASKS_H_
#define	_DEV_PV_DEV_PV_TASKS_H_

#include <sys/param.h>
#include <sys/queue.h>
#include <sys/taskqueue.h>

/* As many threads, if there are as many queues. */
#define	PV_TASKS_THREADS 4

enum pv_tasks_state {
	PV_TASKS_IDLE,
	PV_TASKS_WAITING,	/* for a thread */
	PV_TASKS_RUNNING,	/* one has it */
	PV_TASKS_AGAIN,		/* and there is more */
	PV_TASKS_CLOSED,
};

struct pv_tasks {
	struct taskqueue *pt_tq;
	enum pv_tasks_state pt_state;
	STAILQ_ENTRY(pv_tasks) pt_link;
};

/*
 * A queue pt_tq for taskqueue(9), whose tasks run one after the other, and may
 * sleep.  May sleep.
 *
 * Returns 0, or an error of taskqueue_start_threads(9): there is nothing to
 * free then.
 */
int	pv_tasks_init(struct pv_tasks *pt);

/*
 * The queue's tasks were cancelled or drained, and none comes any more.  May
 * sleep.
 */
void	pv_tasks_free(struct pv_tasks *pt);

#endif /* !_DEV_PV_DEV_PV_TASKS_H_ */
