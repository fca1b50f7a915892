/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What xenbus.c (the bus), xenbus_state.c (the states), xenbus_otherend.c (what
 * both ends tell each other) and xenbus_read.c (what drivers read and write)
 * know of a front end.
 */

#ifndef _DEV_XEN_XENBUS_VAR_H_
#define	_DEV_XEN_XENBUS_VAR_H_

#include <sys/param.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/queue.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>

#include <dev/xen/xenbus.h>

#define	XENBUS_PATHLEN	256	/* of a back end's directory */
#define	XENBUS_NAMELEN	64	/* of a node whose change
				 * is passed to a driver */
#define	XENBUS_CHANGES	16	/* of them that may wait */

/* The phases of a front end: see xenbus_state.c. */
enum xenbus_phase {
	XB_IDLE,		/* no driver */
	XB_WAIT,		/* for the back end to be in InitWait */
	XB_PUBLISHED,	/* for it to be Connected */
	XB_LIVE,
	XB_CLOSING,		/* for it to disconnect */
	XB_CLOSED,		/* for it to begin again */
	XB_NPHASES
};

/* Requests to a front end, in xb_wants, for its task. */
#define	XENBUS_WANT_RESET	0x01
#define	XENBUS_WANT_RECHECK	0x02
#define	XENBUS_WANT_CHANGES	0x04	/* more changes than there
					 * was room for */

/* How often something was done lately; see xenbus_allow(). */
struct xenbus_limit {
	int	xlm_since;	/* ticks */
	u_int	xlm_used;
};

/*
 * A front end: the ivars of its device.
 *
 * Locking.  xenbus_held (sx) is shared by threads that take a step, and taken
 * before xb_sx; having it exclusively holds them all.  xb_sx: the phase, held
 * while a method runs.  xb_mtx: as noted below; taken after xb_sx.
 */
struct xenbus_child {
	TAILQ_ENTRY(xenbus_child) xb_link;	/* xenbus.c */
	u_int		 xb_seen;		/* xenbus.c: xbs_drivers when it
						 * was last probed */
	u_int		 xb_pruned;		/* xbs_scans when it was last
						 * to be deleted */
	bool		 xb_stays;	/* it could not be deleted then */
	bool		 xb_deleting;		/* newbus is about to free it */
	device_t	 xb_dev;
	device_t	 xb_bus;
	char		*xb_type;	/* "vif" */
	char		*xb_node;	/* "device/vif/0" */
	struct taskqueue *xb_queue;
	struct timeout_task xb_task;
	struct timeout_task *xb_scan_task;	/* the bus's:
						 * this one is to be deleted */
	struct timeout_task xb_lose_task;	/* no back end
						 * for hw.xen.resume_wait */

	struct sx	 xb_sx;
	enum xenbus_phase xb_phase;
	enum xenbus_state xb_state;	/* what we last wrote,
					 * or are to write */
	enum xenbus_state xb_written;	/* what we last wrote;
					 * Unknown: not certain */
	bool		 xb_replaced;	/* another has: this one goes */
	enum xenbus_state xb_other;	/* what we last read of the back end */
	domid_t		 xb_otherend;
	char		 xb_path[XENBUS_PATHLEN];
	struct xenstore_watch xb_watch;
	bool		 xb_setup;	/* release() is due */
	bool		 xb_failed;	/* wait for a back end
					 * that begins again */
	bool		 xb_away;	/* after a failure: it has left the
					 * states where one begins */
	bool		 xb_missing;	/* a suspension took
					 * the back end away */
	bool		 xb_ended;	/* the toolstack has detached it, and
					 * left it there */
	bool		 xb_lost;	/* and it has not come
					 * for too long, or won't */
	u_int		 xb_tries;	/* passing errors of the set-up since it
					 * was last live */
	int		 xb_again;	/* ticks, of the next
					 * attempt after one */
	bool		 xb_refused;	/* stop() returned EBUSY, */
	int		 xb_refused_at;	/* at so many ticks */
	u_int		 xb_begins;	/* atomic: a driver has attached, the
					 * first step is to come */
	bool		 xb_untold;	/* xb_state may not have
					 * reached xenstore */
	bool		 xb_unread;	/* xenstore did not answer
					 * for a value */
	bool		 xb_vanished;	/* the back end's state was missing when
					 * last looked at, */
	int		 xb_vanished_at;	/* for the first time
						 * at so many ticks */
	struct xenbus_limit xb_told;	/* changes */
	int		 xb_began;	/* ticks, of the last time in XB_WAIT */
	int		 xb_deadline;	/* ticks, in XB_CLOSING */
	uint64_t	 xb_connects;
	u_int		 xb_more_queues;	/* xenbus_queues() */

	struct mtx	 xb_mtx;
	u_int		 xb_wants;
	struct xenbus_limit xb_says;
	u_int		 xb_unsaid;	/* messages since the last one */
	u_int		 xb_nchanges;
	char		 xb_changes[XENBUS_CHANGES][XENBUS_NAMELEN];
};

static inline struct xenbus_child *
xenbus_child_of(device_t dev)
{

	return (device_get_ivars(dev));
}

/* The task of a front end. */
void	xenbus_child_task(void *arg, int pending);

/*
 * No back end for a long time after a suspension, or no more after the
 * toolstack has detached it.
 */
void	xenbus_lose_task(void *arg, int pending);

/*
 * Have it run soon, for a XENBUS_WANT_* or just so.  Any context but interrupt
 * filters.
 */
void	xenbus_kick(struct xenbus_child *xb, u_int wants);

/*
 * The requests of a step are left to one in a second; the latter, because
 * xenstore did not answer.
 */
void	xenbus_defer(struct xenbus_child *xb, u_int wants);
void	xenbus_put_off(struct xenbus_child *xb, u_int wants);

/*
 * Write our state for the back end.  If xenstore does not answer, each step
 * tries again.
 */
int	xenbus_tell(struct xenbus_child *xb, enum xenbus_state state);

/* The back end's state.  Returns 0, or an error if it is not known. */
int	xenbus_read_otherend_state(struct xenbus_child *xb,
    enum xenbus_state *other);

/*
 * Is the device to stay?  The toolstack clears `online' to end it.  Returns 0,
 * or an error: unknown.  The other one takes unknown for set.
 */
int	xenbus_ask_online(struct xenbus_child *xb, bool *online);
bool	xenbus_is_online(struct xenbus_child *xb);

/*
 * Find the back end, and watch it.  Without an answer of xenstore, the known
 * one is kept.
 */
int	xenbus_meet(struct xenbus_child *xb);

/* A driver has attached: the first step follows soon.  Does not sleep. */
void	xenbus_begin(struct xenbus_child *xb);

/*
 * May something be done once more?  At most burst times at once, and once in so
 * many seconds.  Locked by the limit's owner.
 */
bool	xenbus_allow(struct xenbus_limit *limit, u_int burst, u_int secs);

/*
 * device_printf() of a line, limited in rate: for what a back end can cause at
 * any rate.
 */
void	xenbus_say(struct xenbus_child *xb, const char *fmt,
    ...) __printflike(2, 3);

/*
 * Read a number of at most max that may be missing, or invalid; see
 * xenbus_read.c.
 */
int	xenbus_peek(const char *dir, const char *name, uint64_t max,
    uint64_t *value);

/* What xenbus_queues() gave is for others. */
void	xenbus_return_queues(struct xenbus_child *xb);

/*
 * Find the back end's domain (xb_otherend), and its directory as path, size
 * bytes at most.
 */
int	xenbus_find_otherend(struct xenbus_child *xb, char *path, size_t size);

/* No driver, or no device, any more. */
void	xenbus_forget(struct xenbus_child *xb);

/*
 * Give a driver to each front end of the bus that has none.  May sleep; the
 * topology lock is held.
 */
void	xenbus_try_all(device_t bus);

/*
 * Hold all front ends where they are, in no method and between two steps; those
 * that are live get DEVICE_SUSPEND.  Go on: with new back ends, or with
 * DEVICE_RESUME if the suspension was cancelled.  May sleep.
 */
void	xenbus_suspend(device_t bus);
void	xenbus_resume(device_t bus, bool cancelled);

/*
 * Give back ends some time to connect: a user who loads a driver expects its
 * devices.  Sleeps.
 */
void	xenbus_wait_connect(device_t bus);

/* Report the devices that had a back end, and have none now.  May sleep. */
void	xenbus_report_missing(device_t bus);

/*
 * More front ends may be ours (xen_front.h), or fewer: make the devices agree
 * with that soon.
 */
void	xenbus_rescan(device_t bus);

/*
 * Delete the device of a front end that is ours no more.  May sleep; the
 * topology lock is held.
 */
void	xenbus_drop(device_t bus, const char *node);

/* The device of a front end, or NULL.  The topology lock is held. */
device_t xenbus_device_of(device_t bus, const char *node);
void	xenbus_hold(void);
void	xenbus_go_on(void);

/* A held front end has lost its back end by a suspension. */
void	xenbus_begin_again(struct xenbus_child *xb);

/*
 * Keep others from holding front ends.  Waits until none does, and may sleep.
 */
void	xenbus_share_held(void);
void	xenbus_unshare_held(void);
void	xenbus_assert_held(void);

extern const char *const xenbus_phase_names[XB_NPHASES];
extern uint64_t xenbus_invalid, xenbus_unsaid, xenbus_putoffs, xenbus_delayed,
    xenbus_retries;

#endif /* !_DEV_XEN_XENBUS_VAR_H_ */
