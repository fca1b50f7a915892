/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_dev: one life for all personalities: whether a device may be used, and how
 * it is brought back.
 *
 *	        start         up          need_reset
 *	FROZEN -------> DOWN <----> LIVE ------------> RESETTING --+
 *	 |  ^            ^   down    ^                  |          |
 *	 |  | freeze     |           |                  |          |
 *	 |  +------------+-----------+------------------+          | stop,
 *	 |               |           |                             | reclaim,
 *	 | thaw          |           |                             | restart
 *	 +---------------+-----------+<----------------------------+
 *	 |
 *	 +--> LOST: it did not stop, can't start, or is not expected; thaw
 *	            brings it back, unless it did not stop
 *
 *	leave: GONE, from anywhere
 *
 * A start ends in LIVE if the device has users (pvd_up), in DOWN otherwise.
 * What happens to a device is an event, and what is done about it depends on
 * the state alone:
 *
 *	         FROZEN    DOWN          LIVE          RESETTING   LOST
 *	start    DOWN, up  -             -             -           -
 *	up       later     reset it if   -             later       ENXIO
 *	                   needed; LIVE
 *	down     later     -             restart:      later       later
 *	                                 DOWN
 *	need     kept      kept          the task      kept        kept
 *	task     -         -             reset a       start, if   -
 *	                                 queue, or     one failed
 *	                                 RESETTING
 *	restart  -         stop, start   stop, start   -           ENXIO
 *	freeze   -         stop: FROZEN  stop: FROZEN  stop:       stop: FROZEN,
 *	                                               FROZEN      unless leaked
 *	hold     -         quiesce:      quiesce:      quiesce:    -
 *	                   FROZEN        FROZEN        FROZEN
 *	reclaim  reclaim   -             -             -           reclaim
 *	thaw     start     -             -             -           start, unless
 *	                                                           leaked: ENXIO
 *	lose     LOST      -             -             -           -
 *	leave    GONE      stop: GONE    stop: GONE    stop: GONE  GONE
 *
 * In the last state, GONE, the events up, restart and thaw return ENXIO, and
 * all others do nothing.
 *
 * To stop is: quiesce, stop, reclaim each queue.  To start is: forget what was
 * needed, restart; and for LIVE all settings, whatever the start's reason, then
 * resume.
 *
 * A start that fails for something that may pass, such as a lack of memory, is
 * tried again, later and later: the device is RESETTING until then, and what is
 * needed or wanted of it is not lost.  Only what the device can't or will not
 * do makes it LOST.
 *
 * A device that was started with fewer queues than it could use, as there was
 * no memory for more, or no grants or interrupts (pv_dev_set_short()), is asked
 * now and then, while it is LIVE, whether there may be more, and is started
 * again then.  If that gave it nothing, the next attempt comes later.
 *
 * Needs.  Whoever finds a queue or the device broken or silent (a ring, a
 * watchdog, the device itself) says so here, in any context.  A need is cleared
 * by a start and by nothing else: one that comes while the device is down,
 * frozen, or being started is served before it is used next, or right after
 * that.  A queue that is stuck again before anything has completed in it is not
 * reset alone once more: the device is.  After a few resets there is a pause
 * between two, for a device that breaks its queues each time.
 *
 * Reconnection.  A device whose back end takes part in its reset is RESETTING
 * until its bus calls pv_dev_freeze(), and then pv_dev_thaw().  It is not
 * stopped by pv_dev_down(), as that would take a new connection as well: only
 * quiesced.  Where the back end has memory of ours until it has closed, the bus
 * calls pv_dev_quiesce() and, then, pv_dev_reclaim() instead of
 * pv_dev_freeze().
 *
 * Locking.
 *   pvd_sx   the life: held by each step from its beginning to its end, and by
 *            the task, so that a step waits for a reset under way.  Sleeps.
 *   pvd_mtx  needs, and changes of the state; a leaf but for the taskqueue's
 *            own.
 * Order: pvd_sx, a personality's locks, pvd_mtx.  pvd_state is written with
 * both, and read with either, or, as advice, with none: whoever acts on that
 * has the lock of a queue, which pdo_quiesce takes.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/sx.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>
#include <sys/time.h>

#include <dev/pv/pv_log.h>
#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/dev/pv_tasks.h>
#include <dev/pv/queue/pvq.h>

/* After this many resets, no two within the pause. */
#define	PV_DEV_UNPACED	3
#define	PV_DEV_PAUSE	(SBT_1S / 10)

/* Before a start is tried again: at first, and at most. */
#define	PV_DEV_AGAIN	(SBT_1S / 8)
#define	PV_DEV_AGAIN_MAX (32 * SBT_1S)

/*
 * Before a start for more queues, and how often it is doubled at most: to 17
 * minutes.
 */
#define	PV_DEV_MORE	SBT_1S
#define	PV_DEV_MORE_TRIES 10

static MALLOC_DEFINE(M_PVDEV, "pv_dev", "paravirtual devices");

void
pv_dev_lock(struct pv_dev *pvd)
{
	sx_xlock(&pvd->pvd_sx);
}

void
pv_dev_unlock(struct pv_dev *pvd)
{
	sx_xunlock(&pvd->pvd_sx);
}

void
pv_dev_assert(struct pv_dev *pvd)
{
	sx_assert(&pvd->pvd_sx, SA_XLOCKED);
}

int
pv_dev_lock_started(struct pv_dev *pvd)
{
	pv_dev_lock(pvd);
	if (pv_dev_is_started(pvd))
		return (0);
	pv_dev_unlock(pvd);
	return (ENXIO);
}

/* Have the task serve what is needed. */
static void
pv_dev_schedule(struct pv_dev *pvd)
{
	sbintime_t pause = pvd->pvd_reset_at + PV_DEV_PAUSE - getsbinuptime();

	mtx_assert(&pvd->pvd_mtx, MA_OWNED);
	if (pvd->pvd_resets + pvd->pvd_queue_resets < PV_DEV_UNPACED ||
	    pause < 0)
		pause = 0;
	(void)taskqueue_enqueue_timeout_sbt(pvd->pvd_tasks.pt_tq,
	    &pvd->pvd_task, pause, 0, 0);
}

bool
pv_dev_is_needed(const struct pv_dev *pvd)
{
	bool needed = pvd->pvd_error != 0;
	u_int i;

	for (i = 0; i < pvd->pvd_nqueues; i++)
		needed |= pvd->pvd_queues[i].pdq_error != 0;
	return (needed);
}

static void
pv_dev_set_state(struct pv_dev *pvd, enum pv_dev_state state)
{
	sx_assert(&pvd->pvd_sx, SA_XLOCKED);
	mtx_lock(&pvd->pvd_mtx);
	pvd->pvd_state = state;
	if (state != PV_DEV_RESETTING)
		pvd->pvd_tries = 0;
	if (state == PV_DEV_LIVE && pv_dev_is_needed(pvd))
		pv_dev_schedule(pvd);
	mtx_unlock(&pvd->pvd_mtx);
}

void
pv_dev_need_reset(struct pv_dev *pvd, u_int queue, int error)
{
	int *need = queue == PV_DEV_ALL ? &pvd->pvd_error :
	    &pvd->pvd_queues[queue].pdq_error;

	KASSERT(error == EIO || error == ETIMEDOUT,
	    ("%s: error %d", __func__, error));
	mtx_lock(&pvd->pvd_mtx);
	if (*need != EIO)
		*need = error;
	if (pvd->pvd_state == PV_DEV_LIVE)
		pv_dev_schedule(pvd);
	mtx_unlock(&pvd->pvd_mtx);
}

/* Why a queue, or PV_DEV_ALL, needs a reset; 0: it does not. */
static int
pv_dev_needs(struct pv_dev *pvd, u_int queue)
{
	int error;

	mtx_lock(&pvd->pvd_mtx);
	error = queue == PV_DEV_ALL ? pvd->pvd_error :
	    pvd->pvd_queues[queue].pdq_error;
	mtx_unlock(&pvd->pvd_mtx);
	return (error);
}

void
pv_dev_served(struct pv_dev *pvd, u_int queue)
{
	mtx_lock(&pvd->pvd_mtx);
	pvd->pvd_queues[queue].pdq_error = 0;
	mtx_unlock(&pvd->pvd_mtx);
}

static void
pv_dev_served_all(struct pv_dev *pvd)
{
	u_int i;

	mtx_lock(&pvd->pvd_mtx);
	for (i = 0; i < pvd->pvd_nqueues; i++)
		pvd->pvd_queues[i].pdq_error = 0;
	pvd->pvd_error = 0;
	mtx_unlock(&pvd->pvd_mtx);
}

/* An operation failed; leaked: it may still use its memory. */
static void
pv_dev_fail(struct pv_dev *pvd, const char *what, int error, bool leaked)
{
	device_printf(pvd->pvd_dev,
	    "the device did not %s (error %d): it is lost until the driver's "
	    "module is unloaded and loaded again (kldunload, kldload)\n", what,
	    error);
	pvd->pvd_leaked |= leaked;
	if (pvd->pvd_state != PV_DEV_GONE)
		pv_dev_set_state(pvd, PV_DEV_LOST);
	pvd->pvd_ops->pdo_lost(pvd->pvd_arg, leaked);
}

/*
 * What becomes of what a queue has, when the device is stopped because of
 * error.
 */
static int
pv_dev_reclaims(struct pv_dev *pvd, u_int queue, int error)
{
	int own = pv_dev_needs(pvd, queue);

	if (error == ENXIO || pvd->pvd_state == PV_DEV_LOST)
		return (ENXIO);
	/* Another queue is broken: this one has no part in that. */
	return (own != 0 ? own : pv_dev_needs(pvd, PV_DEV_ALL));
}

static void
pv_dev_take_back(struct pv_dev *pvd, int error)
{
	u_int i;

	for (i = 0; i < pvd->pvd_nqueues; i++)
		pvd->pvd_ops->pdo_reclaim(pvd->pvd_arg, i,
		    pv_dev_reclaims(pvd, i, error));
	pvd->pvd_stopped = true;
}

/* Stop the device, and take back what it has; the state says until when. */
static int
pv_dev_stop(struct pv_dev *pvd, enum pv_dev_state state, int error)
{
	int stopped;

	pv_dev_set_state(pvd, state);
	pvd->pvd_ops->pdo_quiesce(pvd->pvd_arg, PV_DEV_ALL, error);
	stopped = pvd->pvd_ops->pdo_stop(pvd->pvd_arg, PV_DEV_ALL);
	if (stopped != 0) {
		pv_dev_fail(pvd, "stop", stopped, true);
		return (stopped);
	}
	pv_dev_take_back(pvd, error);
	return (0);
}

void
pv_dev_apply_settings(struct pv_dev *pvd)
{
	void (*const *set)(void *);

	for (set = pvd->pvd_ops->pdo_settings; set != NULL && *set != NULL;
	    set++)
		(*set)(pvd->pvd_arg);
}

/* Has it less than it could use, of anything? */
static bool
pv_dev_lacks(const struct pv_dev *pvd)
{
	return (pv_dev_is_short(pvd, PV_DEV_QUEUES) ||
	    pv_dev_is_short(pvd, PV_DEV_REQUESTS));
}

/*
 * Look later whether there may be more queues for a device that has fewer than
 * it could use.
 */
static void
pv_dev_look_for_more(struct pv_dev *pvd, sbintime_t delay)
{
	if (pv_dev_lacks(pvd) && pvd->pvd_ops->pdo_has_more != NULL)
		(void)taskqueue_enqueue_timeout_sbt(pvd->pvd_tasks.pt_tq,
		    &pvd->pvd_more_task, delay, 0, 0);
}

/* The device works, and is used from now on if it has users. */
static void
pv_dev_go(struct pv_dev *pvd)
{

	pvd->pvd_stopped = false;
	if (!pvd->pvd_up) {
		pv_dev_set_state(pvd, PV_DEV_DOWN);
		return;
	}
	pv_dev_set_state(pvd, PV_DEV_LIVE);
	pv_dev_apply_settings(pvd);
	pvd->pvd_ops->pdo_resume(pvd->pvd_arg, PV_DEV_ALL);
	pv_dev_look_for_more(pvd, PV_DEV_MORE << pvd->pvd_more_tries);
}

/*
 * Do what failed once more, later and later.  Each time is counted, and the
 * first one is logged.
 */
static void
pv_dev_try_later(struct pv_dev *pvd, int error)
{
	sbintime_t delay = PV_DEV_AGAIN << MIN(pvd->pvd_tries, 16);

	if (pvd->pvd_tries++ == 0 && PV_LOGS(++pvd->pvd_late_starts))
		device_printf(pvd->pvd_dev,
		    "the device can't be started now (error %d): trying "
		    "again\n", error);
	pvd->pvd_start_retries++;
	pv_dev_set_state(pvd, PV_DEV_RESETTING);
	(void)taskqueue_enqueue_timeout_sbt(pvd->pvd_tasks.pt_tq,
	    &pvd->pvd_task, MIN(delay, PV_DEV_AGAIN_MAX), 0, 0);
}

/*
 * Start the device, which is stopped.  Returns 0 as well if that is tried
 * again.
 */
static int
pv_dev_begin(struct pv_dev *pvd)
{
	int error;

	if (pvd->pvd_leaving) {
		pv_dev_set_state(pvd, PV_DEV_FROZEN);
		return (0);
	}
	/*
	 * What was needed is served by this; what is needed from now on is not.
	 */
	pv_dev_served_all(pvd);
	error = pvd->pvd_ops->pdo_restart(pvd->pvd_arg, PV_DEV_ALL);
	if (pv_dev_may_pass(error)) {
		pv_dev_try_later(pvd, error);
		return (0);
	}
	if (error != 0) {
		pv_dev_fail(pvd, "start again", error, false);
		return (error);
	}
	if (pvd->pvd_tries != 0 && PV_LOGS(pvd->pvd_late_starts))
		device_printf(pvd->pvd_dev,
		    "the device is started after %u attempts\n",
		    pvd->pvd_tries + 1);
	pv_dev_go(pvd);
	return (0);
}

/* Stop the device and start it again, or connect it anew. */
static int
pv_dev_renew(struct pv_dev *pvd, int why)
{
	int error;

	if (pvd->pvd_ops->pdo_reconnect == NULL) {
		error = pv_dev_stop(pvd, PV_DEV_RESETTING, why);
		return (error != 0 ? error : pv_dev_begin(pvd));
	}
	pv_dev_set_state(pvd, PV_DEV_RESETTING);
	pvd->pvd_ops->pdo_quiesce(pvd->pvd_arg, PV_DEV_ALL, why);
	pvd->pvd_ops->pdo_reconnect(pvd->pvd_arg);
	return (0);
}

static int
pv_dev_reset(struct pv_dev *pvd)
{
	if (PV_LOGS(++pvd->pvd_resets))
		device_printf(pvd->pvd_dev, "resetting the device%s\n",
		    pvd->pvd_resets < PV_LOG_FIRST ? "" :
		    "; from now on resets are only counted");
	return (pv_dev_renew(pvd, EIO));
}

void
pv_dev_set_short(struct pv_dev *pvd, enum pv_dev_count count, u_int have,
    u_int could)
{
	const char *what = count == PV_DEV_REQUESTS ? "requests"
	    : pvd->pvd_ops->pdo_counted;
	const bool was_short = pv_dev_is_short(pvd, count);
	const u_int had = pvd->pvd_have[count];

	if (what == NULL)
		what = "queues";
	if (have < could && (!was_short || have != had))
		device_printf(pvd->pvd_dev,
		    "only %u of %u %s: no memory or other resources for "
		    "more now\n", have, could, what);
	else if (have == could && was_short && have > had)
		device_printf(pvd->pvd_dev, "all %u %s are used now\n", have,
		    what);
	pvd->pvd_have[count] = have;
	pvd->pvd_could[count] = could;
	if (!pv_dev_lacks(pvd))
		pvd->pvd_more_tries = 0;
}

static void
pv_dev_get_more(struct pv_dev *pvd)
{
	if (!pvd->pvd_ops->pdo_has_more(pvd->pvd_arg)) {
		pv_dev_look_for_more(pvd, PV_DEV_MORE);
		return;
	}
	pvd->pvd_more_tries = MIN(pvd->pvd_more_tries + 1, PV_DEV_MORE_TRIES);
	pvd->pvd_more_starts++;
	(void)pv_dev_renew(pvd, 0);
}

static void
pv_dev_more_task(void *arg, int pending __unused)
{
	struct pv_dev *pvd = arg;

	sx_xlock(&pvd->pvd_sx);
	/* In another state, this begins again with the next start. */
	if (pv_dev_is_live(pvd) && pv_dev_lacks(pvd))
		pv_dev_get_more(pvd);
	sx_xunlock(&pvd->pvd_sx);
}

/*
 * Was a queue that is stuck reset for that before, and has nothing completed
 * since then?
 */
static bool
pv_dev_is_hopeless(struct pv_dev *pvd, u_int queue)
{
	const struct pv_dev_queue *pdq = &pvd->pvd_queues[queue];

	if (!pdq->pdq_was_stuck ||
	    pdq->pdq_done != pdq->pdq_pvq->q_stats.qs_done)
		return (false);
	device_printf(pvd->pvd_dev,
	    "the reset of queue %u (%s) was of no use: resetting the device\n",
	    queue, pdq->pdq_pvq->q_name);
	return (true);
}

static int
pv_dev_reset_queue_steps(struct pv_dev *pvd, u_int queue, int error)
{
	const struct pv_dev_ops *ops = pvd->pvd_ops;
	int failed;

	if (error == ETIMEDOUT && pv_dev_is_hopeless(pvd, queue))
		return (ETIMEDOUT);
	ops->pdo_quiesce(pvd->pvd_arg, queue, error);
	failed = ops->pdo_stop(pvd->pvd_arg, queue);
	if (failed != 0)
		return (failed);
	ops->pdo_reclaim(pvd->pvd_arg, queue, error);
	pv_dev_served(pvd, queue);
	return (ops->pdo_restart(pvd->pvd_arg, queue));
}

int
pv_dev_reset_queue(struct pv_dev *pvd, u_int queue, int error)
{
	struct pv_dev_queue *pdq = &pvd->pvd_queues[queue];
	uint64_t done = pdq->pdq_pvq->q_stats.qs_done;
	int failed;

	sx_assert(&pvd->pvd_sx, SA_XLOCKED);
	failed = pv_dev_reset_queue_steps(pvd, queue, error);
	if (failed == 0) {
		pdq->pdq_was_stuck = error == ETIMEDOUT;
		pdq->pdq_done = done;
		pvd->pvd_queue_resets += error != 0;
		pvd->pvd_ops->pdo_resume(pvd->pvd_arg, queue);
	} else if (failed != EOPNOTSUPP && error != 0)
		pvd->pvd_queue_reset_errors++;
	return (failed);
}

/* Reset what needs it: queues alone, if that is possible. */
static void
pv_dev_serve(struct pv_dev *pvd)
{
	int error, failed = pv_dev_needs(pvd, PV_DEV_ALL);
	u_int i;

	for (i = 0; i < pvd->pvd_nqueues && failed == 0; i++) {
		error = pv_dev_needs(pvd, i);
		if (error != 0)
			failed = pv_dev_reset_queue(pvd, i, error);
	}
	if (failed != 0)
		(void)pv_dev_reset(pvd);
	mtx_lock(&pvd->pvd_mtx);
	pvd->pvd_reset_at = getsbinuptime();
	mtx_unlock(&pvd->pvd_mtx);
}

static void
pv_dev_task(void *arg, int pending __unused)
{
	struct pv_dev *pvd = arg;

	sx_xlock(&pvd->pvd_sx);
	if (pvd->pvd_state == PV_DEV_LIVE)
		pv_dev_serve(pvd);
	else if (pvd->pvd_tries != 0)
		(void)pv_dev_begin(pvd);
	sx_xunlock(&pvd->pvd_sx);
}

int
pv_dev_up(struct pv_dev *pvd)
{
	sx_assert(&pvd->pvd_sx, SA_XLOCKED);
	pvd->pvd_up = true;
	switch (pv_dev_state(pvd)) {
	case PV_DEV_DOWN:
		/*
		 * Of a queue that is broken, and of a reconnection, the task
		 * takes care.
		 */
		if (pvd->pvd_error != 0 && pvd->pvd_ops->pdo_reconnect == NULL)
			return (pv_dev_reset(pvd));
		pv_dev_go(pvd);
		return (0);
	case PV_DEV_LOST:
	case PV_DEV_GONE:
		return (ENXIO);
	default:
		return (0);
	}
}

void
pv_dev_start(struct pv_dev *pvd, bool up)
{
	pv_dev_lock(pvd);
	KASSERT(pvd->pvd_state == PV_DEV_FROZEN,
	    ("%s: state %u", __func__, pvd->pvd_state));
	pv_dev_set_state(pvd, PV_DEV_DOWN);
	if (up || pvd->pvd_up)
		(void)pv_dev_up(pvd);
	pv_dev_unlock(pvd);
}

int
pv_dev_restart(struct pv_dev *pvd)
{
	int error;

	sx_assert(&pvd->pvd_sx, SA_XLOCKED);
	if (!pv_dev_is_started(pvd))
		return (pv_dev_state(pvd) == PV_DEV_LOST ||
		    pv_dev_state(pvd) == PV_DEV_GONE ? ENXIO : 0);
	if (pvd->pvd_ops->pdo_reconnect == NULL) {
		error = pv_dev_stop(pvd, PV_DEV_RESETTING,
		    pvd->pvd_up ? 0 : ENXIO);
		return (error != 0 ? error : pv_dev_begin(pvd));
	}
	if (pv_dev_is_live(pvd)) {
		pv_dev_set_state(pvd, PV_DEV_DOWN);
		pvd->pvd_ops->pdo_quiesce(pvd->pvd_arg, PV_DEV_ALL, 0);
	}
	pv_dev_go(pvd);
	return (0);
}

void
pv_dev_down(struct pv_dev *pvd)
{
	pvd->pvd_up = false;
	if (pv_dev_is_live(pvd))
		(void)pv_dev_restart(pvd);
}

static int
pv_dev_freeze_locked(struct pv_dev *pvd)
{
	switch (pv_dev_state(pvd)) {
	case PV_DEV_RESETTING:
		if (pvd->pvd_stopped) {
			pv_dev_set_state(pvd, PV_DEV_FROZEN);
			return (0);
		}
		/* FALLTHROUGH */
	case PV_DEV_DOWN:
	case PV_DEV_LIVE:
		return (pv_dev_stop(pvd, PV_DEV_FROZEN, 0));
	case PV_DEV_LOST:
		return (pvd->pvd_leaked ? 0 :
		    pv_dev_stop(pvd, PV_DEV_FROZEN, 0));
	default:
		return (0);
	}
}

int
pv_dev_freeze(struct pv_dev *pvd)
{
	bool frozen;
	int error;

	pv_dev_lock(pvd);
	frozen = pv_dev_state(pvd) == PV_DEV_FROZEN;
	error = pv_dev_freeze_locked(pvd);
	if (!frozen && pv_dev_state(pvd) == PV_DEV_FROZEN &&
	    pvd->pvd_ops->pdo_frozen != NULL)
		pvd->pvd_ops->pdo_frozen(pvd->pvd_arg);
	pv_dev_unlock(pvd);
	return (error);
}

void
pv_dev_quiesce(struct pv_dev *pvd)
{
	pv_dev_lock(pvd);
	if (pv_dev_is_started(pvd) || pv_dev_state(pvd) == PV_DEV_RESETTING) {
		pv_dev_set_state(pvd, PV_DEV_FROZEN);
		pvd->pvd_ops->pdo_quiesce(pvd->pvd_arg, PV_DEV_ALL, 0);
	}
	pv_dev_unlock(pvd);
}

void
pv_dev_reclaim(struct pv_dev *pvd)
{
	pv_dev_lock(pvd);
	if (!pvd->pvd_stopped && (pv_dev_state(pvd) == PV_DEV_FROZEN ||
	    pv_dev_state(pvd) == PV_DEV_LOST))
		pv_dev_take_back(pvd, 0);
	pv_dev_unlock(pvd);
}

static int
pv_dev_thaw_locked(struct pv_dev *pvd)
{
	bool frozen = pv_dev_state(pvd) == PV_DEV_FROZEN;

	if (pv_dev_state(pvd) == PV_DEV_GONE || pvd->pvd_leaked)
		return (ENXIO);
	if (!frozen && pv_dev_state(pvd) != PV_DEV_LOST)
		return (0);
	if (frozen && pvd->pvd_ops->pdo_thawed != NULL)
		pvd->pvd_ops->pdo_thawed(pvd->pvd_arg);
	if (pvd->pvd_stopped)
		return (pv_dev_begin(pvd));
	pv_dev_go(pvd);
	return (0);
}

int
pv_dev_thaw(struct pv_dev *pvd)
{
	int error;

	pv_dev_lock(pvd);
	error = pv_dev_thaw_locked(pvd);
	pv_dev_unlock(pvd);
	return (error);
}

void
pv_dev_lose(struct pv_dev *pvd)
{
	pv_dev_lock(pvd);
	if (pv_dev_state(pvd) == PV_DEV_FROZEN) {
		pv_dev_set_state(pvd, PV_DEV_LOST);
		pvd->pvd_ops->pdo_lost(pvd->pvd_arg, false);
	}
	pv_dev_unlock(pvd);
}

/*
 * Any device is about to be detached: is it what this one is below, at whatever
 * depth?
 */
static void
pv_dev_detaching(void *arg, device_t dev, enum evhdev_detach when)
{
	struct pv_dev *pvd = arg;
	device_t above = device_get_parent(pvd->pvd_dev);

	while (above != NULL && above != dev)
		above = device_get_parent(above);
	if (above == NULL)
		return;
	if (when != EVHDEV_DETACH_BEGIN)
		pvd->pvd_going_at = 0;
	else if (pvd->pvd_going_at == 0)
		pvd->pvd_going_at = getsbinuptime();
}

sbintime_t
pv_dev_patience(const struct pv_dev *pvd, sbintime_t alone)
{
	if (pvd->pvd_going_at != 0)
		alone -= getsbinuptime() - pvd->pvd_going_at;
	return (MAX(alone, SBT_1S));
}

void
pv_dev_leave(struct pv_dev *pvd)
{
	/* No reset that is under way has to start it again. */
	pvd->pvd_leaving = true;
	pv_dev_lock(pvd);
	if (!pvd->pvd_stopped && !pvd->pvd_leaked)
		(void)pv_dev_stop(pvd, PV_DEV_GONE, ENXIO);
	else {
		pv_dev_set_state(pvd, PV_DEV_GONE);
		pvd->pvd_ops->pdo_lost(pvd->pvd_arg, false);
	}
	pv_dev_unlock(pvd);
	/*
	 * Cancelled first, as a queue keeps count of a callout that was only
	 * drained.
	 */
	while (taskqueue_cancel_timeout(pvd->pvd_tasks.pt_tq, &pvd->pvd_task,
	    NULL) != 0)
		taskqueue_drain_timeout(pvd->pvd_tasks.pt_tq, &pvd->pvd_task);
	while (taskqueue_cancel_timeout(pvd->pvd_tasks.pt_tq,
	    &pvd->pvd_more_task, NULL) != 0)
		taskqueue_drain_timeout(pvd->pvd_tasks.pt_tq,
		    &pvd->pvd_more_task);
}

void
pv_dev_adopt(struct pv_dev *pvd, u_int queue, struct pvq *q)
{
	struct pv_dev_queue *pdq = &pvd->pvd_queues[queue];

	if (pdq->pdq_pvq != q)
		pdq->pdq_was_stuck = false;
	pdq->pdq_pvq = q;
	if (q == NULL)
		return;
	q->q_pvdev = pvd;
	q->q_number = queue;
	if (pvq_broken(q))
		pv_dev_need_reset(pvd, queue, EIO);
}

void
pv_dev_sysctl(struct pv_dev *pvd, struct sysctl_ctx_list *ctx,
    struct sysctl_oid_list *parent)
{
	SYSCTL_ADD_U64(ctx, parent, OID_AUTO, "resets", CTLFLAG_RD,
	    &pvd->pvd_resets, 0, "Times the device was reset");
	SYSCTL_ADD_U64(ctx, parent, OID_AUTO, "queue_resets", CTLFLAG_RD,
	    &pvd->pvd_queue_resets, 0, "Times a queue was reset alone");
	SYSCTL_ADD_U64(ctx, parent, OID_AUTO,
	    "queue_reset_errors", CTLFLAG_RD, &pvd->pvd_queue_reset_errors, 0,
	    "Times this failed, and the device was reset");
	SYSCTL_ADD_U64(ctx, parent, OID_AUTO,
	    "start_retries", CTLFLAG_RD, &pvd->pvd_start_retries, 0,
	    "Times a start failed and was to be tried again");
	SYSCTL_ADD_U64(ctx, parent, OID_AUTO,
	    "more_starts", CTLFLAG_RD, &pvd->pvd_more_starts, 0,
	    "Times it was started again because there may be more queues for it");
}

int
pv_dev_init(struct pv_dev *pvd, device_t dev, const struct pv_dev_ops *ops,
    void *arg, u_int nqueues)
{
	int error;

	bzero(pvd, sizeof(*pvd));
	/*
	 * What it does may sleep for seconds, which would delay others' tasks
	 * in taskqueue_thread.
	 */
	error = pv_tasks_init(&pvd->pvd_tasks);
	if (error != 0)
		return (error);
	pvd->pvd_dev = dev;
	pvd->pvd_ops = ops;
	pvd->pvd_arg = arg;
	pvd->pvd_nqueues = nqueues;
	pvd->pvd_state = PV_DEV_FROZEN;
	pvd->pvd_queues = malloc(nqueues * sizeof(*pvd->pvd_queues), M_PVDEV,
	    M_WAITOK | M_ZERO);
	sx_init(&pvd->pvd_sx, "pv_dev life");
	mtx_init(&pvd->pvd_mtx, device_get_nameunit(dev),
	    "pv_dev needs", MTX_DEF);
	TIMEOUT_TASK_INIT(pvd->pvd_tasks.pt_tq, &pvd->pvd_task, 0, pv_dev_task,
	    pvd);
	TIMEOUT_TASK_INIT(pvd->pvd_tasks.pt_tq, &pvd->pvd_more_task, 0,
	    pv_dev_more_task, pvd);
	pvd->pvd_going_tag = EVENTHANDLER_REGISTER(device_detach,
	    pv_dev_detaching, pvd, EVENTHANDLER_PRI_ANY);
	return (0);
}

void
pv_dev_fini(struct pv_dev *pvd)
{
	EVENTHANDLER_DEREGISTER(device_detach, pvd->pvd_going_tag);
	pv_tasks_free(&pvd->pvd_tasks);
	mtx_destroy(&pvd->pvd_mtx);
	sx_destroy(&pvd->pvd_sx);
	free(pvd->pvd_queues, M_PVDEV);
}
