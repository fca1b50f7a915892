/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_dev: every event in every state, and threads that cause them at the same time.
 *
 * The device is a model: two queues, each used or not, with something in flight or not, broken or not.
 * It checks that it is stopped, started and used in an order that a device could bear, and writes down
 * what was called:
 *
 *	q s c c r S R	quiesce, stop, reclaim of each queue, restart, settings, resume; of the device
 *	q0 s0 c0 r0 R0	of queue 0
 *	l L		lost; with what it has
 *	x		reconnect
 *	m		is there more?
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/queue/pvq.h>

#include "host/host.h"
#include "kpi/kpi.h"

#define	QUEUES	2

struct model {
	device_t	 m_dev;
	struct pv_dev	 m_pvd;
	struct pv_dev_ops m_ops;
	struct pvq	 m_pvqs[QUEUES];
	char		 m_log[256];
	u_int		 m_logged;
	bool		 m_started;
	bool		 m_used[QUEUES];
	bool		 m_running[QUEUES];	/* a queue that was stopped alone does not run */
	bool		 m_full[QUEUES];	/* the device has something */
	volatile u_int	 m_broken[QUEUES];	/* that is to be reset before it is used */
	volatile u_int	 m_dead;		/* the same, of the device */
	bool		 m_set;			/* settings were applied since the start */
	int		 m_reclaimed[QUEUES];	/* the error that was given last */
	int		 m_quiesced;		/* the same */
	int		 m_stop_error, m_restart_error, m_stop_queue_error, m_restart_queue_error;
	bool		 m_has_more, m_ends_short;	/* the answer; and of what a start gets */
	u_int		 m_in_restart;		/* queue + 1 that breaks while the device restarts */
};

static struct model model;

static void
said(struct model *m, char what, u_int queue)
{

	if (m->m_logged + 3 >= sizeof(m->m_log))
		return;
	m->m_log[m->m_logged++] = what;
	if (queue != PV_DEV_ALL)
		m->m_log[m->m_logged++] = '0' + queue;
	m->m_log[m->m_logged] = '\0';
}

static void
called(struct model *m, char what, u_int queue)
{

	/* The lock is held by each of them. */
	pv_dev_assert(&m->m_pvd);
	said(m, what, queue);
}

static void
model_quiesce(void *arg, u_int queue, int error)
{
	struct model *m = arg;
	u_int i;

	called(m, 'q', queue);
	m->m_quiesced = error;
	for (i = 0; i < QUEUES; i++) {
		if (queue == i || queue == PV_DEV_ALL)
			m->m_used[i] = false;
	}
}

static int
model_stop(void *arg, u_int queue)
{
	struct model *m = arg;
	u_int i;

	called(m, 's', queue);
	CHECK(m->m_started, "stopped twice");
	if (queue == PV_DEV_ALL) {
		for (i = 0; i < QUEUES; i++)
			CHECK(!m->m_used[i], "queue %u is in use", i);
		if (m->m_stop_error == 0)
			m->m_started = false;
		return (m->m_stop_error);
	}
	CHECK(!m->m_used[queue] && m->m_running[queue], "queue %u", queue);
	if (m->m_stop_queue_error == 0)
		m->m_running[queue] = false;
	return (m->m_stop_queue_error);
}

static void
model_reclaim(void *arg, u_int queue, int error)
{
	struct model *m = arg;

	called(m, 'c', queue);
	CHECK(queue < QUEUES && (!m->m_started || !m->m_running[queue]), "queue %u", queue);
	m->m_full[queue] = false;
	m->m_reclaimed[queue] = error;
}

static void
break_queue(struct model *m, u_int queue, int error)
{

	/* First, as it is reset in the next moment. */
	if (queue == PV_DEV_ALL)
		atomic_store_rel_int(&m->m_dead, 1);
	else
		atomic_store_rel_int(&m->m_broken[queue], 1);
	pv_dev_need_reset(&m->m_pvd, queue, error);
}

static int
model_restart(void *arg, u_int queue)
{
	struct model *m = arg;
	u_int i;

	called(m, 'r', queue);
	if (queue != PV_DEV_ALL) {
		CHECK(m->m_started && !m->m_running[queue] && !m->m_full[queue], "queue %u", queue);
		if (m->m_restart_queue_error == 0) {
			atomic_store_rel_int(&m->m_broken[queue], 0);
			m->m_running[queue] = true;
		}
		return (m->m_restart_queue_error);
	}
	CHECK(!m->m_started, "started twice");
	if (m->m_restart_error != 0)
		return (m->m_restart_error);
	pv_dev_set_short(&m->m_pvd, PV_DEV_QUEUES, m->m_ends_short ? 1 : QUEUES, QUEUES);
	m->m_started = true;
	m->m_set = false;
	atomic_store_rel_int(&m->m_dead, 0);
	for (i = 0; i < QUEUES; i++) {
		CHECK(!m->m_full[i], "queue %u was not reclaimed", i);
		atomic_store_rel_int(&m->m_broken[i], 0);
		m->m_running[i] = true;
	}
	if (m->m_in_restart != 0) {
		i = m->m_in_restart - 1;
		m->m_in_restart = 0;
		break_queue(m, i, EIO);
	}
	return (0);
}

static void
model_set(void *arg)
{
	struct model *m = arg;

	called(m, 'S', PV_DEV_ALL);
	m->m_set = true;
}

static void
model_resume(void *arg, u_int queue)
{
	struct model *m = arg;
	u_int i;

	called(m, 'R', queue);
	CHECK(m->m_started && m->m_set && pv_dev_is_live(&m->m_pvd), "not ready");
	for (i = 0; i < QUEUES; i++) {
		if (queue == i || queue == PV_DEV_ALL) {
			CHECK(m->m_running[i], "queue %u does not run", i);
			m->m_used[i] = m->m_full[i] = true;
		}
	}
}

static void
model_lost(void *arg, bool leaked)
{
	struct model *m = arg;
	u_int i;

	called(m, leaked ? 'L' : 'l', PV_DEV_ALL);
	/* Nothing that a device has that did not stop is touched again. */
	for (i = 0; i < QUEUES; i++) {
		CHECK(!m->m_used[i], "queue %u is in use", i);
		m->m_full[i] = false;
	}
}

static void
model_reconnect(void *arg)
{

	called(arg, 'x', PV_DEV_ALL);
}

static void
model_frozen(void *arg)
{

	called(arg, 'f', PV_DEV_ALL);
}

static void
model_thawed(void *arg)
{

	called(arg, 't', PV_DEV_ALL);
}

static bool
model_has_more(void *arg)
{
	struct model *m = arg;

	called(m, 'm', PV_DEV_ALL);
	return (m->m_has_more);
}

static void (*const model_settings[])(void *) = { model_set, NULL };

/* A device as its protocol has just started it. */
static struct model *
begin(bool reconnects)
{
	struct model *m = &model;
	u_int i;
	int error;

	memset(m, 0, sizeof(*m));
	kpi_uptime = 100 * SBT_1S;
	m->m_ops = (struct pv_dev_ops){
		.pdo_quiesce = model_quiesce, .pdo_stop = model_stop,
		.pdo_reclaim = model_reclaim, .pdo_restart = model_restart,
		.pdo_resume = model_resume, .pdo_lost = model_lost,
		.pdo_reconnect = reconnects ? model_reconnect : NULL,
		.pdo_settings = model_settings, .pdo_has_more = model_has_more,
	};
	m->m_dev = kpi_device_create(NULL, NULL, NULL, "model0");
	error = pv_dev_init(&m->m_pvd, m->m_dev, &m->m_ops, m, QUEUES);
	CHECK(error == 0, "error %d", error);
	m->m_started = m->m_set = true;
	for (i = 0; i < QUEUES; i++) {
		m->m_running[i] = true;
		pv_dev_adopt(&m->m_pvd, i, &m->m_pvqs[i]);
		CHECK(m->m_pvqs[i].q_pvdev == &m->m_pvd && m->m_pvqs[i].q_number == i, "%u", i);
	}
	return (m);
}

static void
end(struct model *m)
{

	if (pv_dev_state(&m->m_pvd) != PV_DEV_GONE)
		pv_dev_leave(&m->m_pvd);
	CHECK(kpi_run_tasks() == 0, "a task after the end");
	pv_dev_fini(&m->m_pvd);
	kpi_device_destroy(m->m_dev);
	CHECK(kpi_mutexes == 0, "%d mutexes are locked", kpi_mutexes);
}

enum event {
	START, UP, DOWN, RESTART, FREEZE, THAW, LOSE, LEAVE, BREAK, STUCK, DIE, TASK, NEVENTS
};

/* With the lock, as a personality has it. */
static int
happens(struct model *m, enum event event)
{
	struct pv_dev *pvd = &m->m_pvd;
	int error = 0;

	switch (event) {
	case LEAVE:
		pv_dev_leave(pvd);
		return (0);
	case BREAK:
		break_queue(m, 0, EIO);
		return (0);
	case STUCK:
		break_queue(m, 1, ETIMEDOUT);
		return (0);
	case DIE:
		break_queue(m, PV_DEV_ALL, ETIMEDOUT);
		return (0);
	case TASK:
		(void)kpi_run_tasks();
		return (0);
	case START:
		pv_dev_start(pvd, false);
		return (0);
	case FREEZE:
		return (pv_dev_freeze(pvd));
	case THAW:
		return (pv_dev_thaw(pvd));
	case LOSE:
		pv_dev_lose(pvd);
		return (0);
	default:
		break;
	}
	pv_dev_lock(pvd);
	switch (event) {
	case UP:
		error = pv_dev_up(pvd);
		break;
	case DOWN:
		pv_dev_down(pvd);
		break;
	case RESTART:
		error = pv_dev_restart(pvd);
		break;
	default:
		break;
	}
	pv_dev_unlock(pvd);
	return (error);
}

/* How a device gets into a state; the last is one that did not stop. */
enum { LEAKED = PV_DEV_GONE + 1, FROZEN_UP, NSTATES };

static struct model *
begin_in(u_int state)
{
	struct model *m = begin(false);

	happens(m, START);
	if (state == PV_DEV_LIVE || state == PV_DEV_LOST || state == LEAKED || state == FROZEN_UP)
		happens(m, UP);
	switch (state) {
	case PV_DEV_FROZEN:
	case FROZEN_UP:
		happens(m, FREEZE);
		break;
	case PV_DEV_LOST:
		happens(m, FREEZE);
		happens(m, LOSE);
		break;
	case LEAKED:
		m->m_stop_error = ETIMEDOUT;
		CHECK(happens(m, FREEZE) == ETIMEDOUT, "it stopped");
		m->m_stop_error = 0;
		break;
	case PV_DEV_GONE:
		happens(m, LEAVE);
		break;
	default:
		break;
	}
	m->m_logged = m->m_log[0] = 0;
	return (m);
}

#define	STOPS	"qsc0c1"

static const struct row {
	u_int		 state;
	enum event	 event;
	enum pv_dev_state after;
	int		 error;
	const char	*log;
	const char	*thawed;	/* the log of a thaw that comes next */
} rows[] = {
	{ PV_DEV_FROZEN, UP, PV_DEV_FROZEN, 0, "", "rSR" },
	{ PV_DEV_FROZEN, DOWN, PV_DEV_FROZEN, 0, "", "r" },
	{ PV_DEV_FROZEN, RESTART, PV_DEV_FROZEN, 0, "", "r" },
	{ PV_DEV_FROZEN, FREEZE, PV_DEV_FROZEN, 0, "", "r" },
	{ PV_DEV_FROZEN, THAW, PV_DEV_DOWN, 0, "r", "" },
	{ PV_DEV_FROZEN, LOSE, PV_DEV_LOST, 0, "l", "r" },
	{ PV_DEV_FROZEN, LEAVE, PV_DEV_GONE, 0, "l", "" },
	{ PV_DEV_FROZEN, BREAK, PV_DEV_FROZEN, 0, "", "r" },
	{ PV_DEV_FROZEN, DIE, PV_DEV_FROZEN, 0, "", "r" },
	{ FROZEN_UP, UP, PV_DEV_FROZEN, 0, "", "rSR" },
	{ FROZEN_UP, DOWN, PV_DEV_FROZEN, 0, "", "r" },
	{ FROZEN_UP, RESTART, PV_DEV_FROZEN, 0, "", "rSR" },
	{ FROZEN_UP, FREEZE, PV_DEV_FROZEN, 0, "", "rSR" },
	{ FROZEN_UP, THAW, PV_DEV_LIVE, 0, "rSR", "" },
	{ FROZEN_UP, LOSE, PV_DEV_LOST, 0, "l", "rSR" },
	{ FROZEN_UP, LEAVE, PV_DEV_GONE, 0, "l", "" },
	{ FROZEN_UP, STUCK, PV_DEV_FROZEN, 0, "", "rSR" },
	{ PV_DEV_DOWN, UP, PV_DEV_LIVE, 0, "SR", "" },
	{ PV_DEV_DOWN, DOWN, PV_DEV_DOWN, 0, "", "" },
	{ PV_DEV_DOWN, RESTART, PV_DEV_DOWN, 0, STOPS "r", "" },
	{ PV_DEV_DOWN, FREEZE, PV_DEV_FROZEN, 0, STOPS, "r" },
	{ PV_DEV_DOWN, THAW, PV_DEV_DOWN, 0, "", "" },
	{ PV_DEV_DOWN, LOSE, PV_DEV_DOWN, 0, "", "" },
	{ PV_DEV_DOWN, LEAVE, PV_DEV_GONE, 0, STOPS, "" },
	{ PV_DEV_DOWN, BREAK, PV_DEV_DOWN, 0, "", "" },
	{ PV_DEV_DOWN, DIE, PV_DEV_DOWN, 0, "", "" },
	{ PV_DEV_LIVE, UP, PV_DEV_LIVE, 0, "", "" },
	{ PV_DEV_LIVE, DOWN, PV_DEV_DOWN, 0, STOPS "r", "" },
	{ PV_DEV_LIVE, RESTART, PV_DEV_LIVE, 0, STOPS "rSR", "" },
	{ PV_DEV_LIVE, FREEZE, PV_DEV_FROZEN, 0, STOPS, "rSR" },
	{ PV_DEV_LIVE, THAW, PV_DEV_LIVE, 0, "", "" },
	{ PV_DEV_LIVE, LOSE, PV_DEV_LIVE, 0, "", "" },
	{ PV_DEV_LIVE, LEAVE, PV_DEV_GONE, 0, STOPS, "" },
	{ PV_DEV_LIVE, BREAK, PV_DEV_LIVE, 0, "q0s0c0r0R0", "" },
	{ PV_DEV_LIVE, STUCK, PV_DEV_LIVE, 0, "q1s1c1r1R1", "" },
	{ PV_DEV_LIVE, DIE, PV_DEV_LIVE, 0, STOPS "rSR", "" },
	{ PV_DEV_LOST, UP, PV_DEV_LOST, ENXIO, "", "rSR" },
	{ PV_DEV_LOST, DOWN, PV_DEV_LOST, 0, "", "r" },
	{ PV_DEV_LOST, RESTART, PV_DEV_LOST, ENXIO, "", "rSR" },
	{ PV_DEV_LOST, THAW, PV_DEV_LIVE, 0, "rSR", "" },
	{ PV_DEV_LOST, LOSE, PV_DEV_LOST, 0, "", "rSR" },
	{ PV_DEV_LOST, LEAVE, PV_DEV_GONE, 0, "l", "" },
	{ PV_DEV_LOST, BREAK, PV_DEV_LOST, 0, "", "rSR" },
	{ LEAKED, UP, PV_DEV_LOST, ENXIO, "", "" },
	{ LEAKED, DOWN, PV_DEV_LOST, 0, "", "" },
	{ LEAKED, RESTART, PV_DEV_LOST, ENXIO, "", "" },
	{ LEAKED, FREEZE, PV_DEV_LOST, 0, "", "" },
	{ LEAKED, THAW, PV_DEV_LOST, ENXIO, "", "" },
	{ LEAKED, LOSE, PV_DEV_LOST, 0, "", "" },
	{ LEAKED, LEAVE, PV_DEV_GONE, 0, "l", "" },
	{ LEAKED, DIE, PV_DEV_LOST, 0, "", "" },
	{ PV_DEV_GONE, UP, PV_DEV_GONE, ENXIO, "", "" },
	{ PV_DEV_GONE, DOWN, PV_DEV_GONE, 0, "", "" },
	{ PV_DEV_GONE, RESTART, PV_DEV_GONE, ENXIO, "", "" },
	{ PV_DEV_GONE, FREEZE, PV_DEV_GONE, 0, "", "" },
	{ PV_DEV_GONE, THAW, PV_DEV_GONE, ENXIO, "", "" },
	{ PV_DEV_GONE, LOSE, PV_DEV_GONE, 0, "", "" },
	{ PV_DEV_GONE, BREAK, PV_DEV_GONE, 0, "", "" },
};

static void
each_event_in_each_state(const void *arg __unused)
{
	const struct row *row;
	struct model *m;
	int error;

	for (row = rows; row < rows + nitems(rows); row++) {
		m = begin_in(row->state);
		error = happens(m, row->event);
		(void)kpi_run_tasks();
		CHECK(error == row->error && pv_dev_state(&m->m_pvd) == row->after &&
		    strcmp(m->m_log, row->log) == 0, "row %ld: error %d, state %u, %s", row - rows,
		    error, pv_dev_state(&m->m_pvd), m->m_log);
		m->m_logged = m->m_log[0] = 0;
		(void)happens(m, THAW);
		(void)kpi_run_tasks();
		CHECK(strcmp(m->m_log, row->thawed) == 0, "row %ld, then: state %u, %s", row - rows,
		    pv_dev_state(&m->m_pvd), m->m_log);
		end(m);
	}
}

/* Has nothing been lost?  All tasks have run. */
static void
check_settled(struct model *m)
{
	u_int i;

	(void)kpi_run_tasks();
	if (!pv_dev_is_live(&m->m_pvd))
		return;
	CHECK(m->m_dead == 0 && m->m_set, "the device was not reset");
	for (i = 0; i < QUEUES; i++)
		CHECK(m->m_used[i] && m->m_running[i] && m->m_broken[i] == 0,
		    "queue %u: in use %d, runs %d, broken %u", i, m->m_used[i], m->m_running[i],
		    m->m_broken[i]);
}

static void
needs_of_one_that_is_down(const void *arg __unused)
{
	static const struct {
		enum event	 event;
		const char	*log;
		u_int		 tasks;
	} needs[] = {
		/* A queue that is broken can't be used. */
		{ BREAK, "SRq0s0c0r0R0", 1 },
		{ STUCK, "SRq1s1c1r1R1", 1 },
		{ DIE, STOPS "rSR", 0 },
	};
	struct model *m;
	u_int i, n;

	for (i = 0; i < nitems(needs); i++) {
		m = begin_in(PV_DEV_DOWN);
		happens(m, needs[i].event);
		CHECK(kpi_run_tasks() == 0 && m->m_logged == 0, "%s", m->m_log);
		CHECK(happens(m, UP) == 0, "%s", m->m_log);
		n = kpi_run_tasks();
		CHECK(n == needs[i].tasks && strcmp(m->m_log, needs[i].log) == 0, "%u, %s", n,
		    m->m_log);
		CHECK(m->m_pvd.pvd_resets + m->m_pvd.pvd_queue_resets == 1, "not counted");
		check_settled(m);
		end(m);
	}
}

/* A need that comes while the device is started is not served by that. */
static void
needs_during_a_restart(const void *arg __unused)
{
	static const enum event starts[] = { DIE, RESTART, DOWN, FREEZE };
	struct model *m;
	u_int i;

	for (i = 0; i < nitems(starts); i++) {
		m = begin_in(PV_DEV_LIVE);
		m->m_in_restart = 1;
		(void)happens(m, starts[i]);
		(void)happens(m, TASK);
		(void)happens(m, THAW);
		(void)happens(m, UP);
		check_settled(m);
		CHECK(pv_dev_is_live(&m->m_pvd) && m->m_in_restart == 0, "%u: %s", i, m->m_log);
		end(m);
	}
}

static void
queues_that_are_not_reset_alone(const void *arg __unused)
{
	static const struct {
		int	stop, restart;
		u_int	counted;
		const char *log;
	} cases[] = {
		{ EOPNOTSUPP, 0, 0, "q0s0" STOPS "rSR" },
		{ ETIMEDOUT, 0, 1, "q0s0" STOPS "rSR" },
		{ 0, ENODEV, 1, "q0s0c0r0" STOPS "rSR" },
	};
	struct model *m;
	u_int i;

	for (i = 0; i < nitems(cases); i++) {
		m = begin_in(PV_DEV_LIVE);
		m->m_stop_queue_error = cases[i].stop;
		m->m_restart_queue_error = cases[i].restart;
		happens(m, BREAK);
		happens(m, TASK);
		CHECK(strcmp(m->m_log, cases[i].log) == 0, "%u: %s", i, m->m_log);
		/* The last one has nothing any more when the device is reset. */
		CHECK(m->m_reclaimed[0] == (cases[i].stop != 0 ? EIO : 0) &&
		    m->m_reclaimed[1] == 0, "%d, %d", m->m_reclaimed[0], m->m_reclaimed[1]);
		CHECK(m->m_pvd.pvd_queue_reset_errors == cases[i].counted &&
		    m->m_pvd.pvd_queue_resets == 0 && m->m_pvd.pvd_resets == 1, "%u", i);
		check_settled(m);
		end(m);
	}
}

static void
stuck_again(const void *arg __unused)
{
	struct model *m = begin_in(PV_DEV_LIVE);

	happens(m, STUCK);
	happens(m, TASK);
	CHECK(strcmp(m->m_log, "q1s1c1r1R1") == 0 && m->m_quiesced == ETIMEDOUT, "%s", m->m_log);
	/* Something has completed since then. */
	m->m_pvqs[1].q_stats.qs_done++;
	happens(m, STUCK);
	happens(m, TASK);
	CHECK(strcmp(m->m_log, "q1s1c1r1R1q1s1c1r1R1") == 0, "%s", m->m_log);
	CHECK(m->m_pvd.pvd_queue_resets == 2, "%ju", (uintmax_t)m->m_pvd.pvd_queue_resets);
	m->m_logged = 0;
	happens(m, STUCK);
	happens(m, TASK);
	CHECK(strcmp(m->m_log, STOPS "rSR") == 0, "%s", m->m_log);
	CHECK(m->m_reclaimed[1] == ETIMEDOUT && m->m_reclaimed[0] == 0, "%d, %d",
	    m->m_reclaimed[1], m->m_reclaimed[0]);
	CHECK(m->m_pvd.pvd_queue_reset_errors == 1, "not counted");
	check_settled(m);
	end(m);
}

/* A queue that broke ends with EIO, others are put again; on request, all may be the cause. */
static void
what_becomes_of_requests(const void *arg __unused)
{
	struct model *m = begin_in(PV_DEV_LIVE);

	happens(m, BREAK);
	happens(m, FREEZE);
	CHECK(m->m_reclaimed[0] == EIO && m->m_reclaimed[1] == 0, "%d, %d", m->m_reclaimed[0],
	    m->m_reclaimed[1]);
	happens(m, THAW);
	happens(m, STUCK);
	break_queue(m, 1, EIO);
	break_queue(m, 1, ETIMEDOUT);
	happens(m, DIE);
	happens(m, TASK);
	CHECK(m->m_reclaimed[0] == ETIMEDOUT && m->m_reclaimed[1] == EIO, "%d, %d",
	    m->m_reclaimed[0], m->m_reclaimed[1]);
	happens(m, FREEZE);
	CHECK(m->m_reclaimed[0] == 0 && m->m_reclaimed[1] == 0 && m->m_quiesced == 0, "not 0");
	happens(m, THAW);
	happens(m, BREAK);
	happens(m, LEAVE);
	CHECK(m->m_reclaimed[0] == ENXIO && m->m_reclaimed[1] == ENXIO && m->m_quiesced == ENXIO,
	    "not ENXIO");
	end(m);
	m = begin_in(PV_DEV_LIVE);
	happens(m, RESTART);
	CHECK(m->m_quiesced == 0, "%d", m->m_quiesced);
	/* Without users nothing is put again. */
	happens(m, DOWN);
	CHECK(m->m_reclaimed[0] == ENXIO && m->m_quiesced == ENXIO, "%d", m->m_quiesced);
	end(m);
}

/* Without a thread there is no device, and nothing is left. */
static void
no_thread(const void *arg __unused)
{
	static const struct pv_dev_ops ops;
	int error, mallocs = kpi_mallocs;
	device_t dev = kpi_device_create(NULL, NULL, NULL, "model0");

	kpi_no_threads = true;
	error = pv_dev_init(&model.m_pvd, dev, &ops, &model, QUEUES);
	kpi_no_threads = false;
	CHECK(error == ENOMEM, "error %d", error);
	kpi_device_destroy(dev);
	CHECK(kpi_mallocs == mallocs, "%d allocations are left", kpi_mallocs - mallocs);
}

/* The personality is told when queues may be exchanged, and when that is over. */
static void
told_of_frozen_and_thawed(const void *arg __unused)
{
	struct model *m = begin_in(PV_DEV_LIVE);

	m->m_ops.pdo_frozen = model_frozen;
	m->m_ops.pdo_thawed = model_thawed;
	happens(m, FREEZE);
	happens(m, FREEZE);
	CHECK(strcmp(m->m_log, STOPS "f") == 0, "%s", m->m_log);
	happens(m, THAW);
	happens(m, THAW);
	CHECK(strcmp(m->m_log, STOPS "ftrSR") == 0, "%s", m->m_log);
	/* While a start waits for its next attempt it is stopped. */
	m->m_restart_error = ENOMEM;
	happens(m, RESTART);
	m->m_restart_error = 0;
	m->m_logged = 0;
	happens(m, FREEZE);
	happens(m, THAW);
	CHECK(strcmp(m->m_log, "ftrSR") == 0 && pv_dev_is_live(&m->m_pvd), "%s", m->m_log);
	/* A device that does not stop is not frozen. */
	m->m_logged = 0;
	m->m_stop_error = ETIMEDOUT;
	happens(m, FREEZE);
	CHECK(strcmp(m->m_log, "qsL") == 0, "%s", m->m_log);
	end(m);
}

/* Users may come before the device is started, or with that. */
static void
started_with_users(const void *arg __unused)
{
	struct model *m = begin(false);

	happens(m, UP);
	CHECK(pv_dev_state(&m->m_pvd) == PV_DEV_FROZEN, "it is used");
	happens(m, START);
	check_settled(m);
	CHECK(strcmp(m->m_log, "SR") == 0, "%s", m->m_log);
	end(m);
	m = begin(false);
	pv_dev_start(&m->m_pvd, true);
	check_settled(m);
	CHECK(strcmp(m->m_log, "SR") == 0, "%s", m->m_log);
	end(m);
}

/* What a back end has until it has closed. */
static void
held_and_reclaimed(const void *arg __unused)
{
	struct model *m = begin_in(PV_DEV_LIVE);

	pv_dev_quiesce(&m->m_pvd);
	CHECK(strcmp(m->m_log, "q") == 0 && pv_dev_state(&m->m_pvd) == PV_DEV_FROZEN, "%s", m->m_log);
	/* It was not stopped after all. */
	CHECK(pv_dev_thaw(&m->m_pvd) == 0 && strcmp(m->m_log, "qSR") == 0, "%s", m->m_log);
	pv_dev_quiesce(&m->m_pvd);
	pv_dev_need_reset(&m->m_pvd, 1, EIO);
	m->m_started = false;
	pv_dev_reclaim(&m->m_pvd);
	pv_dev_reclaim(&m->m_pvd);
	CHECK(strcmp(m->m_log, "qSRqc0c1") == 0 && m->m_reclaimed[0] == 0 &&
	    m->m_reclaimed[1] == EIO, "%s", m->m_log);
	CHECK(pv_dev_thaw(&m->m_pvd) == 0 && strcmp(m->m_log, "qSRqc0c1rSR") == 0, "%s", m->m_log);
	CHECK(kpi_run_tasks() == 0, "it is reset once more");
	check_settled(m);
	/* It is not expected any more before it has closed, and is detached. */
	pv_dev_quiesce(&m->m_pvd);
	pv_dev_lose(&m->m_pvd);
	m->m_started = false;
	pv_dev_reclaim(&m->m_pvd);
	CHECK(m->m_reclaimed[0] == ENXIO && m->m_reclaimed[1] == ENXIO, "not ENXIO");
	m->m_logged = m->m_log[0] = 0;
	end(m);
	CHECK(strcmp(m->m_log, "l") == 0, "%s", m->m_log);
	/* Or is detached before it has closed. */
	m = begin_in(PV_DEV_LIVE);
	pv_dev_quiesce(&m->m_pvd);
	end(m);
	CHECK(strcmp(m->m_log, "q" STOPS) == 0, "%s", m->m_log);
}

/* A reset that is under way when the device is detached does not start it again. */
static void
detached_during_a_reset(const void *arg __unused)
{
	struct model *m = begin_in(PV_DEV_LIVE);

	m->m_pvd.pvd_leaving = true;
	happens(m, DIE);
	happens(m, TASK);
	CHECK(strcmp(m->m_log, STOPS) == 0, "%s", m->m_log);
	happens(m, LEAVE);
	CHECK(strcmp(m->m_log, STOPS "l") == 0, "%s", m->m_log);
	end(m);
}

/* A queue that takes the place of another was never reset; one that is broken already needs it. */
static void
queues_are_exchanged(const void *arg __unused)
{
	struct model *m = begin_in(PV_DEV_LIVE);
	struct pvq other;

	happens(m, STUCK);
	happens(m, TASK);
	memset(&other, 0, sizeof(other));
	other.q_fault = PVQ_FAULT_ID;
	happens(m, FREEZE);
	pv_dev_adopt(&m->m_pvd, 0, NULL);
	pv_dev_adopt(&m->m_pvd, 0, &m->m_pvqs[0]);
	pv_dev_adopt(&m->m_pvd, 1, &other);
	CHECK(m->m_pvd.pvd_queues[1].pdq_error == EIO, "it is not reset");
	happens(m, THAW);
	m->m_logged = 0;
	happens(m, STUCK);
	happens(m, TASK);
	CHECK(strcmp(m->m_log, "q1s1c1r1R1") == 0, "%s", m->m_log);
	end(m);
}

static void
one_queue_on_request(const void *arg __unused)
{
	struct model *m = begin_in(PV_DEV_LIVE);
	int error;

	pv_dev_lock(&m->m_pvd);
	error = pv_dev_reset_queue(&m->m_pvd, 1, 0);
	pv_dev_unlock(&m->m_pvd);
	CHECK(error == 0 && strcmp(m->m_log, "q1s1c1r1R1") == 0 && m->m_quiesced == 0, "%d, %s",
	    error, m->m_log);
	CHECK(m->m_pvd.pvd_queue_resets == 0, "it was counted");
	/* What was needed of it was served. */
	happens(m, BREAK);
	pv_dev_lock(&m->m_pvd);
	(void)pv_dev_reset_queue(&m->m_pvd, 0, EIO);
	pv_dev_unlock(&m->m_pvd);
	m->m_logged = m->m_log[0] = 0;
	happens(m, TASK);
	CHECK(m->m_logged == 0, "%s", m->m_log);
	end(m);
}

static void
lost_and_brought_back(const void *arg __unused)
{
	struct model *m = begin_in(PV_DEV_LIVE);

	m->m_restart_error = ENODEV;
	happens(m, DIE);
	happens(m, TASK);
	CHECK(strcmp(m->m_log, STOPS "rl") == 0 && pv_dev_state(&m->m_pvd) == PV_DEV_LOST, "%s",
	    m->m_log);
	CHECK(pv_dev_lock_started(&m->m_pvd) == ENXIO, "it takes commands");
	m->m_restart_error = 0;
	CHECK(happens(m, THAW) == 0 && pv_dev_is_live(&m->m_pvd), "not brought back");
	check_settled(m);
	/* It does not stop: whatever happens next, it is not used again. */
	m->m_stop_error = ETIMEDOUT;
	happens(m, DIE);
	happens(m, TASK);
	m->m_stop_error = 0;
	CHECK(happens(m, FREEZE) == 0 && happens(m, THAW) == ENXIO && happens(m, UP) == ENXIO &&
	    pv_dev_state(&m->m_pvd) == PV_DEV_LOST, "it is used again");
	end(m);
	/* A detachment does not end in LOST. */
	m = begin_in(PV_DEV_LIVE);
	m->m_stop_error = ETIMEDOUT;
	happens(m, LEAVE);
	CHECK(pv_dev_state(&m->m_pvd) == PV_DEV_GONE && strcmp(m->m_log, "qsL") == 0, "%s",
	    m->m_log);
	end(m);
}

/* A device that can't be started for lack of something, and waits for its next attempt. */
static struct model *
begin_late(int error)
{
	struct model *m = begin_in(PV_DEV_LIVE);

	m->m_restart_error = error;
	happens(m, DIE);
	happens(m, TASK);
	CHECK(strcmp(m->m_log, STOPS "r") == 0 && pv_dev_state(&m->m_pvd) == PV_DEV_RESETTING,
	    "error %d: state %u, %s", error, pv_dev_state(&m->m_pvd), m->m_log);
	CHECK(m->m_pvd.pvd_start_retries == 1, "not counted");
	m->m_logged = m->m_log[0] = 0;
	return (m);
}

/* Ten resets are said, and of ten starts that fail at first both ends. */
static void
messages_are_of_the_first_ten(const void *arg __unused)
{
	struct model *m = begin_in(PV_DEV_LIVE);
	int i, lines;

	for (i = 1; i <= 12; i++) {
		lines = kpi_lines;
		kpi_uptime += 3600 * SBT_1S;
		happens(m, DIE);
		happens(m, TASK);
		check_settled(m);
		CHECK(kpi_lines - lines == (i <= 10), "reset %d: %d lines", i, kpi_lines - lines);
		CHECK(i > 10 || strcmp(kpi_line, i < 10 ? "resetting the device\n" :
		    "resetting the device; from now on resets are only counted\n") == 0, "%d: %s", i,
		    kpi_line);
	}
	CHECK(m->m_pvd.pvd_resets == 12, "%ju resets", (uintmax_t)m->m_pvd.pvd_resets);
	for (i = 1; i <= 12; i++) {
		lines = kpi_lines;
		kpi_uptime += 3600 * SBT_1S;
		m->m_restart_error = EAGAIN;
		happens(m, DIE);
		happens(m, TASK);
		CHECK(kpi_lines - lines == (i <= 10) && (i > 10 || strstr(kpi_line,
		    "can't be started now (error ") != NULL), "start %d: %s", i, kpi_line);
		m->m_restart_error = 0;
		happens(m, TASK);
		check_settled(m);
		CHECK(kpi_lines - lines == (i <= 10 ? 2 : 0) && (i > 10 || strcmp(kpi_line,
		    "the device is started after 2 attempts\n") == 0), "start %d: %s", i, kpi_line);
	}
	end(m);
}

/* Each error that may pass, again and again: later and later, with a line at the first and the last. */
static void
a_start_is_tried_again(const void *arg __unused)
{
	static const int passes[] = { ENOMEM, ENOSPC, EAGAIN, EBUSY, ETIMEDOUT };
	struct model *m;
	u_int i, j;
	int lines;

	for (i = 0; i < nitems(passes); i++) {
		lines = kpi_lines;
		m = begin_late(passes[i]);
		/* Of the reset, and of this. */
		CHECK(kpi_lines == lines + 2, "%d lines", kpi_lines - lines);
		for (j = 1; j < 12; j++) {
			CHECK(kpi_delay == MIN(SBT_1S / 8 << (j - 1), 32 * SBT_1S), "%u: %jd", j,
			    (intmax_t)kpi_delay);
			CHECK(kpi_run_tasks() == 1, "it is not tried again");
		}
		CHECK(strcmp(m->m_log, "rrrrrrrrrrr") == 0 && kpi_lines == lines + 2, "%s",
		    m->m_log);
		m->m_restart_error = 0;
		m->m_logged = 0;
		happens(m, TASK);
		CHECK(strcmp(m->m_log, "rSR") == 0 && kpi_lines == lines + 3, "%s", m->m_log);
		CHECK(strstr(kpi_line, "started after 13 attempts") != NULL, "%s", kpi_line);
		check_settled(m);
		CHECK(kpi_run_tasks() == 0 && m->m_pvd.pvd_start_retries == 12, "once more");
		/* The next one begins with a short delay. */
		m->m_restart_error = passes[i];
		happens(m, DIE);
		happens(m, TASK);
		CHECK(kpi_delay == SBT_1S / 8, "%jd", (intmax_t)kpi_delay);
		m->m_restart_error = 0;
		end(m);
	}
}

/* Whatever happens before the next attempt. */
static void
events_before_the_next_attempt(const void *arg __unused)
{
	static const struct {
		enum event	 event;
		enum pv_dev_state now, then;
		const char	*log, *later;
	} cases[] = {
		{ UP, PV_DEV_RESETTING, PV_DEV_LIVE, "", "rSR" },
		{ DOWN, PV_DEV_RESETTING, PV_DEV_DOWN, "", "r" },
		{ RESTART, PV_DEV_RESETTING, PV_DEV_LIVE, "", "rSR" },
		{ FREEZE, PV_DEV_FROZEN, PV_DEV_FROZEN, "", "" },
		{ THAW, PV_DEV_RESETTING, PV_DEV_LIVE, "", "rSR" },
		{ LOSE, PV_DEV_RESETTING, PV_DEV_LIVE, "", "rSR" },
		{ LEAVE, PV_DEV_GONE, PV_DEV_GONE, "l", "" },
		/* The start serves it. */
		{ BREAK, PV_DEV_RESETTING, PV_DEV_LIVE, "", "rSR" },
		{ DIE, PV_DEV_RESETTING, PV_DEV_LIVE, "", "rSR" },
	};
	struct model *m;
	int error;
	u_int i;

	for (i = 0; i < nitems(cases); i++) {
		m = begin_late(ENOMEM);
		/* A detachment waits for the task, which does nothing then. */
		m->m_restart_error = 0;
		error = happens(m, cases[i].event);
		CHECK(error == 0 && pv_dev_state(&m->m_pvd) == cases[i].now &&
		    strcmp(m->m_log, cases[i].log) == 0, "%u: error %d, state %u, %s", i, error,
		    pv_dev_state(&m->m_pvd), m->m_log);
		m->m_logged = m->m_log[0] = 0;
		happens(m, TASK);
		CHECK(pv_dev_state(&m->m_pvd) == cases[i].then &&
		    strcmp(m->m_log, cases[i].later) == 0, "%u: state %u, %s", i,
		    pv_dev_state(&m->m_pvd), m->m_log);
		check_settled(m);
		if (cases[i].then == PV_DEV_FROZEN)
			CHECK(happens(m, THAW) == 0 && strcmp(m->m_log, "rSR") == 0, "%s", m->m_log);
		end(m);
	}
}

/* A thaw and a restart for a setting do not fail either; what can't pass ends the attempts. */
static void
what_else_starts_late(const void *arg __unused)
{
	static const struct {
		u_int		 state;
		enum event	 event;
		const char	*log;
	} cases[] = {
		{ PV_DEV_LIVE, RESTART, STOPS "rrSR" },
		{ PV_DEV_LIVE, DOWN, STOPS "rr" },
		{ PV_DEV_DOWN, RESTART, STOPS "rr" },
		{ FROZEN_UP, THAW, "rrSR" },
		{ PV_DEV_LOST, THAW, "rrSR" },
	};
	struct model *m;
	u_int i;

	for (i = 0; i < nitems(cases); i++) {
		m = begin_in(cases[i].state);
		m->m_restart_error = EAGAIN;
		CHECK(happens(m, cases[i].event) == 0, "%u: it failed", i);
		CHECK(pv_dev_state(&m->m_pvd) == PV_DEV_RESETTING, "%u: state %u", i,
		    pv_dev_state(&m->m_pvd));
		m->m_restart_error = 0;
		happens(m, TASK);
		CHECK(strcmp(m->m_log, cases[i].log) == 0, "%u: %s", i, m->m_log);
		check_settled(m);
		end(m);
	}
	m = begin_late(ENOMEM);
	m->m_restart_error = ENODEV;
	happens(m, TASK);
	CHECK(strcmp(m->m_log, "rl") == 0 && pv_dev_state(&m->m_pvd) == PV_DEV_LOST, "%s", m->m_log);
	CHECK(kpi_run_tasks() == 0, "it is tried again");
	end(m);
}

/* With fewer queues than it could use it is started again when there may be more, later and later. */
static void
more_queues_later(const void *arg __unused)
{
	struct model *m = begin(false);
	u_int i;

	pv_dev_set_short(&m->m_pvd, PV_DEV_QUEUES, 1, QUEUES);
	happens(m, START);
	CHECK(kpi_run_tasks() == 0, "nobody uses it");
	happens(m, UP);
	m->m_ends_short = true;
	m->m_logged = 0;
	CHECK(kpi_delay == SBT_1S, "%jd", (intmax_t)kpi_delay);
	for (i = 0; i < 3; i++) {
		CHECK(kpi_run_tasks() == 1 && kpi_delay == SBT_1S, "%jd", (intmax_t)kpi_delay);
	}
	CHECK(strcmp(m->m_log, "mmm") == 0, "%s", m->m_log);
	m->m_has_more = true;
	for (i = 1; i < 14; i++) {
		m->m_logged = 0;
		happens(m, TASK);
		CHECK(strcmp(m->m_log, "m" STOPS "rSR") == 0 && m->m_quiesced == 0 &&
		    m->m_reclaimed[0] == 0, "%s", m->m_log);
		CHECK(kpi_delay == SBT_1S << MIN(i, 10), "%u: %jd", i, (intmax_t)kpi_delay);
	}
	CHECK(m->m_pvd.pvd_more_starts == 13 && m->m_pvd.pvd_resets == 0, "not counted");
	/* Without users, or while it is frozen, nothing is done. */
	happens(m, DOWN);
	m->m_logged = m->m_log[0] = 0;
	happens(m, TASK);
	CHECK(m->m_logged == 0, "%s", m->m_log);
	happens(m, UP);
	happens(m, FREEZE);
	m->m_logged = m->m_log[0] = 0;
	happens(m, TASK);
	CHECK(m->m_logged == 0, "%s", m->m_log);
	/* When it has all, nothing is looked for, and the delay is short again. */
	m->m_ends_short = false;
	happens(m, THAW);
	CHECK(strcmp(m->m_log, "rSR") == 0 && kpi_run_tasks() == 0, "%s", m->m_log);
	m->m_ends_short = true;
	happens(m, RESTART);
	CHECK(kpi_delay == SBT_1S, "%jd", (intmax_t)kpi_delay);
	end(m);
}

/* It is said once that there are fewer, or fewer than before, and once that there are all. */
static void
fewer_queues_are_told_once(const void *arg __unused)
{
	static const struct {
		u_int		have, could;
		const char	*line;
	} steps[] = {
		{ 4, 4, NULL },
		{ 2, 4, "only 2 of 4 queues: " },
		{ 2, 4, NULL },
		{ 1, 4, "only 1 of 4 queues: " },
		{ 3, 4, "only 3 of 4 queues: " },
		{ 4, 4, "all 4 queues are used now" },
		{ 4, 4, NULL },
		{ 2, 4, "only 2 of 4 queues: " },
		/* There never will be more. */
		{ 2, 2, NULL },
	};
	struct model *m = begin(false);
	int lines;
	u_int i;

	for (i = 0; i < nitems(steps); i++) {
		lines = kpi_lines;
		pv_dev_set_short(&m->m_pvd, PV_DEV_QUEUES, steps[i].have, steps[i].could);
		CHECK(kpi_lines == lines + (steps[i].line != NULL) && (steps[i].line == NULL ||
		    strncmp(kpi_line, steps[i].line, strlen(steps[i].line)) == 0),
		    "step %u: %d lines, %s", i, kpi_lines - lines, kpi_line);
	}
	happens(m, START);
	happens(m, UP);
	CHECK(kpi_run_tasks() == 0, "more is looked for");
	end(m);
}

static void
more_queues_of_a_back_end(const void *arg __unused)
{
	struct model *m = begin(true);

	pv_dev_set_short(&m->m_pvd, PV_DEV_QUEUES, 1, QUEUES);
	happens(m, START);
	happens(m, UP);
	m->m_logged = 0;
	m->m_has_more = true;
	happens(m, TASK);
	CHECK(strcmp(m->m_log, "mqx") == 0 && pv_dev_state(&m->m_pvd) == PV_DEV_RESETTING &&
	    m->m_quiesced == 0, "%s", m->m_log);
	m->m_logged = 0;
	happens(m, FREEZE);
	happens(m, THAW);
	CHECK(strcmp(m->m_log, STOPS "rSR") == 0 && kpi_run_tasks() == 0, "%s", m->m_log);
	end(m);
}

static void
a_back_end_takes_part(const void *arg __unused)
{
	struct model *m = begin(true);

	happens(m, START);
	happens(m, UP);
	m->m_logged = 0;
	/* It is not stopped when it goes down. */
	happens(m, DOWN);
	happens(m, BREAK);
	happens(m, UP);
	CHECK(strcmp(m->m_log, "qSR") == 0, "%s", m->m_log);
	/* What broke while it was down is served. */
	happens(m, TASK);
	CHECK(strcmp(m->m_log, "qSRq0s0c0r0R0") == 0, "%s", m->m_log);
	m->m_logged = 0;
	happens(m, DIE);
	happens(m, TASK);
	CHECK(strcmp(m->m_log, "qx") == 0 && pv_dev_state(&m->m_pvd) == PV_DEV_RESETTING, "%s",
	    m->m_log);
	/* Until then nothing brings it back. */
	happens(m, BREAK);
	CHECK(happens(m, UP) == 0 && happens(m, THAW) == 0 && happens(m, RESTART) == 0 &&
	    happens(m, TASK) == 0 && strcmp(m->m_log, "qx") == 0, "%s", m->m_log);
	happens(m, LOSE);
	CHECK(pv_dev_state(&m->m_pvd) == PV_DEV_RESETTING, "lost");
	happens(m, FREEZE);
	CHECK(m->m_reclaimed[0] == EIO && m->m_reclaimed[1] == ETIMEDOUT, "%d, %d",
	    m->m_reclaimed[0], m->m_reclaimed[1]);
	happens(m, THAW);
	CHECK(strcmp(m->m_log, "qx" STOPS "rSR") == 0 && pv_dev_is_live(&m->m_pvd), "%s",
	    m->m_log);
	check_settled(m);
	m->m_logged = 0;
	happens(m, RESTART);
	CHECK(strcmp(m->m_log, "qSR") == 0, "%s", m->m_log);
	end(m);
}

/* A device that breaks its queues each time they are reset. */
static void
resets_are_paced(const void *arg __unused)
{
	struct model *m = begin_in(PV_DEV_LIVE);
	u_int i;

	for (i = 0; i < 20; i++) {
		kpi_delay = -1;
		happens(m, i % 2 == 0 ? DIE : BREAK);
		CHECK(i < 3 ? kpi_delay == 0 : kpi_delay > 0 && kpi_delay <= SBT_1S / 10,
		    "reset %u after %jd", i, (intmax_t)kpi_delay);
		happens(m, TASK);
	}
	CHECK(m->m_pvd.pvd_resets == 10 && m->m_pvd.pvd_queue_resets == 10, "resets");
	kpi_uptime += SBT_1S;
	happens(m, DIE);
	CHECK(kpi_delay == 0, "one after a second is delayed by %jd", (intmax_t)kpi_delay);
	end(m);
}

/* Threads: what happens, what breaks, and the tasks. */
static volatile u_int rounds, running;

static u_int
next(u_int *seed, u_int n)
{

	*seed = *seed * 1664525 + 1013904223;
	return ((*seed >> 16) % n);
}

static void
steps(void *arg)
{
	static const enum event events[] = { UP, UP, DOWN, RESTART, FREEZE, THAW, THAW };
	u_int i, seed = 1;

	for (i = 0; i < rounds; i++)
		(void)happens(arg, events[next(&seed, nitems(events))]);
	atomic_subtract_int(&running, 1);
}

static void
faults(void *arg)
{
	static const enum event events[] = { BREAK, STUCK, BREAK, STUCK, DIE };
	u_int i, seed = 2;

	for (i = 0; i < rounds; i++) {
		(void)happens(arg, events[next(&seed, nitems(events))]);
		if (next(&seed, 3) == 0)
			host_yield();
	}
	atomic_subtract_int(&running, 1);
}

static void
tasks(void *arg __unused)
{

	while (atomic_load_acq_int(&running) != 0) {
		(void)kpi_run_tasks();
		host_yield();
	}
}

static void
all_at_once(const void *arg __unused)
{
	static void (*const bodies[])(void *) = { steps, faults, faults, tasks };
	struct model *m;
	u_int i;

	for (i = 0; i < 20; i++) {
		m = begin_in(PV_DEV_LIVE);
		rounds = 500;
		running = nitems(bodies) - 1;
		host_run(bodies, nitems(bodies), m);
		(void)happens(m, THAW);
		(void)happens(m, UP);
		check_settled(m);
		CHECK(pv_dev_is_live(&m->m_pvd), "state %u", pv_dev_state(&m->m_pvd));
		end(m);
	}
}

static const struct hosted_test all[] = {
	{ "each_event_in_each_state", "", each_event_in_each_state, NULL },
	{ "needs_of_one_that_is_down", "It is reset before it is used", needs_of_one_that_is_down,
	    NULL },
	{ "needs_during_a_restart", "They are served after it", needs_during_a_restart, NULL },
	{ "queues_that_are_not_reset_alone", "The device is reset", queues_that_are_not_reset_alone,
	    NULL },
	{ "stuck_again", "A queue without progress is not reset alone twice", stuck_again, NULL },
	{ "what_becomes_of_requests", "The error of each queue", what_becomes_of_requests, NULL },
	{ "one_queue_on_request", "For a setting, and for its needs", one_queue_on_request, NULL },
	{ "lost_and_brought_back", "Unless it did not stop", lost_and_brought_back, NULL },
	{ "messages_are_of_the_first_ten", "Resets, and starts that are tried again",
	    messages_are_of_the_first_ten, NULL },
	{ "a_start_is_tried_again", "Later and later, after an error that may pass",
	    a_start_is_tried_again, NULL },
	{ "events_before_the_next_attempt", "None is lost", events_before_the_next_attempt, NULL },
	{ "what_else_starts_late", "Thaws and restarts; and what can't pass", what_else_starts_late,
	    NULL },
	{ "more_queues_later", "When there may be more, later and later", more_queues_later, NULL },
	{ "fewer_queues_are_told_once", "And all of them, when there are again",
	    fewer_queues_are_told_once, NULL },
	{ "more_queues_of_a_back_end", "By a new connection", more_queues_of_a_back_end, NULL },
	{ "a_back_end_takes_part", "A reset that ends with a thaw", a_back_end_takes_part, NULL },
	{ "held_and_reclaimed", "What a back end has", held_and_reclaimed, NULL },
	{ "no_thread", "No device, and no leak", no_thread, NULL },
	{ "started_with_users", "Users before the start, and with it", started_with_users, NULL },
	{ "told_of_frozen_and_thawed", "The personality is told when queues may be exchanged",
	    told_of_frozen_and_thawed, NULL },
	{ "detached_during_a_reset", "It is not started again", detached_during_a_reset, NULL },
	{ "queues_are_exchanged", "While the device is frozen", queues_are_exchanged, NULL },
	{ "resets_are_paced", "After the first ones", resets_are_paced, NULL },
	{ "all_at_once", "Steps, needs and the task in threads", all_at_once, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (all);
}
