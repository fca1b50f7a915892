/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The life of a paravirtual device, for all personalities (theory statement:
 * pv_dev.c).
 *
 * A personality embeds a struct pv_dev, and gives it two kinds of operations:
 * its own, which concern queues and what is in them, and its protocol's, which
 * stop the device and start it again.  Its own functions for up, down, freeze,
 * thaw and detach call steps of pv_dev, which calls these operations in their
 * order.
 */

#ifndef _DEV_PV_DEV_PV_DEV_H_
#define	_DEV_PV_DEV_PV_DEV_H_

#include <sys/param.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/eventhandler.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>

#include <dev/pv/dev/pv_tasks.h>

struct pvq;
struct sysctl_ctx_list;
struct sysctl_oid_list;

enum pv_dev_state {
	PV_DEV_FROZEN,		/* stopped, or not started yet */
	PV_DEV_DOWN,		/* works, but has no users */
	PV_DEV_LIVE,		/* and its users use it */
	PV_DEV_RESETTING,	/* is stopped, and will be live or down next */
	PV_DEV_LOST,	/* did not stop, can't start, or is not expected */
	PV_DEV_GONE,		/* is detached */
};

#define	PV_DEV_ALL	(~0u)	/* instead of a queue: the device */

/*
 * What pv_dev calls, one at a time, with its lock held; all may sleep.  A queue
 * is given by its number, or is PV_DEV_ALL.  `error' says why, and what becomes
 * of what the device has:
 *
 *	0		nothing is wrong; it may be put again
 *	ETIMEDOUT	reset because of no answer, or on request; the same, but
 *			it may be the cause
 *	EIO		this queue, or one of this device, violated the protocol
 *	ENXIO		the device, or its users, go
 */
struct pv_dev_ops {
	/*
	 * The personality's.  Stop using a queue; with 0 and ENXIO what is in
	 * flight may complete first.
	 */
	void	(*pdo_quiesce)(void *arg, u_int queue, int error);
	/*
	 * Take back what the device, which is stopped, had in a queue;
	 * never PV_DEV_ALL.
	 */
	void	(*pdo_reclaim)(void *arg, u_int queue, int error);
	/* Use a queue again. */
	void	(*pdo_resume)(void *arg, u_int queue);
	/*
	 * Users get errors from now on.  With leaked, the device may still use
	 * what it has.
	 */
	void	(*pdo_lost)(void *arg, bool leaked);
	/*
	 * The device is FROZEN, and its queues may be other ones when it is
	 * thawed; or NULL.
	 */
	void	(*pdo_frozen)(void *arg);
	/*
	 * The FROZEN device is started next, or again, with its queues as they
	 * are now; or NULL.
	 */
	void	(*pdo_thawed)(void *arg);
	/*
	 * What is wanted of the device beside its queues, set after each start;
	 * ends with NULL.
	 */
	void	(*const *pdo_settings)(void *arg);
	/*
	 * The protocol's.  Stop the device or a queue: it releases all memory.
	 * Returns 0, or an error if it did not confirm; of a queue, EOPNOTSUPP
	 * if it can't be stopped alone.
	 */
	int	(*pdo_stop)(void *arg, u_int queue);
	/*
	 * Start it again, with an empty queue.  Of the device, an error that
	 * may pass (pv_dev_may_pass()) has it called again later.
	 */
	int	(*pdo_restart)(void *arg, u_int queue);
	/*
	 * Instead of a stop and a restart: arrange that pv_dev_freeze() and
	 * pv_dev_thaw() are called around a new connection, and return at once.
	 * Or NULL.
	 */
	void	(*pdo_reconnect)(void *arg);
	/*
	 * Of a device that has fewer queues than it could use
	 * (pv_dev_set_short()): may there be more if it is started again?
	 * Called once a second.  Or NULL.
	 */
	bool	(*pdo_has_more)(void *arg);
	/*
	 * What PV_DEV_QUEUES counts, for messages: "pairs of queues".
	 * NULL: queues.
	 */
	const char *pdo_counted;
};

/*
 * What a device may have less of than it could use, and more later:
 * pv_dev_set_short().
 */
enum pv_dev_count {
	PV_DEV_QUEUES,
	PV_DEV_REQUESTS,
	PV_DEV_COUNTS
};

struct pv_dev_queue {
	struct pvq	*pdq_pvq;
	int		 pdq_error;	/* why it needs a reset;
					 * 0: it needs none */
	bool		 pdq_was_stuck;	/* it was reset for that,
					 * when so many had completed: */
	uint64_t	 pdq_done;
};

struct pv_dev {
	device_t	 pvd_dev;
	const struct pv_dev_ops *pvd_ops;
	void		*pvd_arg;
	u_int		 pvd_nqueues;
	struct sx	 pvd_sx;
	struct mtx	 pvd_mtx;
	volatile u_int	 pvd_state;	/* enum pv_dev_state */
	bool		 pvd_up;	/* there are users:
					 * LIVE is where it goes to */
	bool		 pvd_stopped;	/* and has nothing of ours */
	bool		 pvd_leaked;	/* it did not stop, and may use its
					 * memory for ever */
	bool		 pvd_leaving;	/* it need not be started any more */
	/* As pv_dev_set_short() was told last. */
	u_int		 pvd_have[PV_DEV_COUNTS];
	u_int		 pvd_could[PV_DEV_COUNTS];
	sbintime_t	 pvd_going_at;	/* since when its bus is being detached;
					 * 0: it is not */
	eventhandler_tag pvd_going_tag;
	int		 pvd_error;	/* why the device needs a reset;
					 * 0: it needs none */
	struct pv_dev_queue *pvd_queues;
	struct pv_tasks	 pvd_tasks;
	struct timeout_task pvd_task;
	struct timeout_task pvd_more_task;
	sbintime_t	 pvd_reset_at;	/* when something was reset last */
	u_int		 pvd_tries;	/* to start it, that failed;
					 * it is RESETTING */
	u_int		 pvd_late_starts; /* starts that were tried again */
	u_int		 pvd_more_tries; /* to get more queues,
					  * since there were fewer */
	uint64_t	 pvd_resets;
	uint64_t	 pvd_queue_resets;
	uint64_t	 pvd_queue_reset_errors;
	uint64_t	 pvd_start_retries;
	uint64_t	 pvd_more_starts;
};

/*
 * Begin as FROZEN.  May sleep.
 *
 * dev      for messages
 * ops, arg what is called, and with what
 * nqueues  that can be reset alone, numbered from 0
 *
 * Returns 0, or ENOMEM if there is no thread: there is nothing to free then.
 */
int	pv_dev_init(struct pv_dev *pvd, device_t dev,
    const struct pv_dev_ops *ops, void *arg,
	    u_int nqueues);

/*
 * Free what pv_dev_init() made.  No step, no need of a reset, and no task comes
 * any more.
 */
void	pv_dev_fini(struct pv_dev *pvd);

/*
 * Publish resets, queue_resets, queue_reset_errors, start_retries and
 * more_starts below parent.
 */
void	pv_dev_sysctl(struct pv_dev *pvd, struct sysctl_ctx_list *ctx,
    struct sysctl_oid_list *parent);

/*
 * q is the queue of that number from now on: if it breaks, it is reset.  NULL:
 * there is none.
 */
void	pv_dev_adopt(struct pv_dev *pvd, u_int queue, struct pvq *q);

/*
 * The device, or one of its queues, can't be trusted any more.  It is reset
 * soon, or before it is used next.  Any context, with any lock held that is not
 * pv_dev's.
 *
 * queue  its number, which is reset alone if the device can do that; or
 *        PV_DEV_ALL
 * error  EIO or ETIMEDOUT, as for the operations
 */
void	pv_dev_need_reset(struct pv_dev *pvd, u_int queue, int error);

/* Does it, or any of its queues, need a reset?  Without a lock, as advice. */
bool	pv_dev_is_needed(const struct pv_dev *pvd);

/*
 * The lock of a device's life, which the steps and the operations have: nothing
 * is stopped or started while it is held.  May sleep.
 */
void	pv_dev_lock(struct pv_dev *pvd);
void	pv_dev_unlock(struct pv_dev *pvd);
void	pv_dev_assert(struct pv_dev *pvd);

/*
 * pv_dev_lock(), if the device takes commands.  Returns 0; ENXIO, without the
 * lock, if it is frozen, lost or detached.
 */
int	pv_dev_lock_started(struct pv_dev *pvd);

/*
 * Steps.  They return 0, also if a start has to be tried again; or what an
 * operation did, with a message: the device is lost then; or ENXIO if it was
 * lost before.  These with pv_dev_lock() held:
 *
 * up       it has users from now on; what can't be done now is done when it is
 *          started
 * down     it has none
 * restart  stop it and start it again, for a setting that requires it
 *
 * The others take the lock themselves, and may sleep:
 *
 * start    the device, which is FROZEN, was started by its protocol: DOWN; or
 *          LIVE, if it has users
 * freeze   stop it until it is thawed; its queues may be other ones then
 * hold     FROZEN, and not stopped by us: pv_dev_reclaim() follows, or a thaw
 *          goes on
 * reclaim  what was held is stopped: take back what it has
 * thaw     start it, unless it was held only
 * lose     FROZEN, and not expected any more; a thaw brings it back
 * leave    stop it for ever; no task of pv_dev's runs when it returns
 */
int	pv_dev_up(struct pv_dev *pvd);
void	pv_dev_down(struct pv_dev *pvd);
int	pv_dev_restart(struct pv_dev *pvd);
void	pv_dev_start(struct pv_dev *pvd, bool up);
int	pv_dev_freeze(struct pv_dev *pvd);
void	pv_dev_quiesce(struct pv_dev *pvd);
void	pv_dev_reclaim(struct pv_dev *pvd);
int	pv_dev_thaw(struct pv_dev *pvd);
void	pv_dev_lose(struct pv_dev *pvd);
void	pv_dev_leave(struct pv_dev *pvd);

/*
 * The device is being started with so many queues, or requests, of those that
 * it could use: with fewer, it is started again when pdo_has_more says that
 * there may be more.  Logged when they are fewer, by another number than
 * before, and when they are all again.  Called while it is not LIVE, or in
 * pdo_has_more, if there will never be more: have and could are the same then.
 */
void	pv_dev_set_short(struct pv_dev *pvd, enum pv_dev_count count,
    u_int have, u_int could);
/* Are they fewer? */
static inline bool
pv_dev_is_short(const struct pv_dev *pvd, enum pv_dev_count count)
{
	return (pvd->pvd_have[count] < pvd->pvd_could[count]);
}

/*
 * Reset one queue of a LIVE device now; pv_dev_lock() is held.  With an error
 * of 0 what is in flight has some time to complete, and it is not counted.
 * Returns 0, or an error if the device has to be reset instead: the queue is
 * quiesced then.
 */
int	pv_dev_reset_queue(struct pv_dev *pvd, u_int queue, int error);

/* A queue was reset otherwise: what it needed was served. */
void	pv_dev_served(struct pv_dev *pvd, u_int queue);

/*
 * The device was started otherwise, for a crash dump: pdo_settings.  No lock is
 * needed there.
 */
void	pv_dev_apply_settings(struct pv_dev *pvd);

/*
 * How long may this device's detachment wait for the device, if one alone may
 * wait for so long?  Those that go together with a bus or a bridge, such as the
 * functions of a slot, are detached one after the other, and share the time
 * from the beginning of that; each has a second.
 */
sbintime_t pv_dev_patience(const struct pv_dev *pvd, sbintime_t alone);

/* Is it an error that may pass, so that the same can be tried again? */
static inline bool
pv_dev_may_pass(int error)
{
	return (error == ENOMEM || error == ENOSPC || error == EAGAIN ||
	    error == EBUSY || error == ETIMEDOUT);
}

static inline enum pv_dev_state
pv_dev_state(const struct pv_dev *pvd)
{
	return (pvd->pvd_state);
}

static inline bool
pv_dev_is_live(const struct pv_dev *pvd)
{
	return (pv_dev_state(pvd) == PV_DEV_LIVE);
}

/* Does it take commands? */
static inline bool
pv_dev_is_started(const struct pv_dev *pvd)
{
	return (pv_dev_is_live(pvd) || pv_dev_state(pvd) == PV_DEV_DOWN);
}

#endif /* !_DEV_PV_DEV_PV_DEV_H_ */
