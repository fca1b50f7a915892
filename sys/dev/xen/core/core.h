/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of the module xen_core share, beside the headers of dev/xen.
 * None of these names types of FreeBSD's Xen headers, whose xenbusvar.h has the
 * names of our xenbus.h.
 *
 * Lowest first:
 *
 *	core_tunable.c	hw.xen
 *	core_evtchn.c	xen_evtchn.h over xen_intr.h
 *	core_gnttab.c	xen_gnttab.c's part over gnttab.h
 *	core_store.c	xenstore_ring.c's part over xenstorevar.h
 *	core_front.c	takes front ends from the kernel's drivers, and gives
 *			them back
 *	core.c		xen0: the theory is there
 */

#ifndef _DEV_XEN_CORE_CORE_H_
#define	_DEV_XEN_CORE_CORE_H_

#include <sys/param.h>
#include <sys/bus.h>

/*
 * The kernel is about to suspend the domain, or some device has just refused
 * it: xen_core_suspended() returns whether the domain goes on as a new one.
 */
void	xen_core_suspend(void);
bool	xen_core_suspended(void);

/*
 * Run fn in the thread that talks to xenstore.  Returns 0 when it has returned;
 * ETIMEDOUT: it returns later.
 *
 * fn   frees arg
 */
int	xen_core_store_call(void (*fn)(void *arg), void *arg);

/*
 * Requests don't wait for answers while this is set: someone waits for those
 * who make them.
 */
void	xen_core_store_hurry(bool hurry);

/*
 * Have the kernel's core forget all of ours; no request is made, and no watch
 * fires, until the store is open again.  Returns EBUSY if the core still has
 * something of ours some seconds later, as xenstore does not answer: nothing
 * has changed then.  The caller keeps others from making requests
 * (xenstore_suspend()).  May sleep.
 */
int	xen_core_store_close(void);
void	xen_core_store_open(void);

/*
 * Close the store, and end its threads.  Returns EBUSY as above: the module
 * stays.  May sleep.
 */
int	xen_core_store_fini(void);

/* No grant is deferred: the module may go. */
bool	xen_core_gnttab_is_idle(void);

/* Channels, below the root device's numbers. */
void	xen_evtchn_sysctl(struct sysctl_ctx_list *ctx,
    struct sysctl_oid *parent);

/* Of a front end, for those that are taken. */
enum xen_core_child {
	XEN_CORE_NONE,		/* no driver of ours, and none
				 * is being attached or detached */
	XEN_CORE_BUSY,		/* something of that is under way */
	XEN_CORE_ATTACHED,
};

/*
 * Who has the devices of the front ends that are taken.  All are called with
 * the topology lock, and may sleep.
 *
 * xcf_changed  there is one more
 * xcf_drop     delete the device of node; there is none when this returns
 * xcf_state    of the device of node
 */
struct xen_core_fronts {
	void	(*xcf_changed)(void);
	void	(*xcf_drop)(const char *node);
	enum xen_core_child (*xcf_state)(const char *node);
};
int	xen_core_front_init(const struct xen_core_fronts *fronts);
void	xen_core_front_fini(void);

/*
 * Give those back to the kernel whose driver of the suite has gone.  Returns
 * EBUSY if one is still ours, as xenstore did not answer.  May sleep; the
 * topology lock is held.  If the module stays, xen_core_front_go_on() gives
 * back what could not be.
 */
int	xen_core_front_return(void);
void	xen_core_front_go_on(void);

/*
 * Front ends that have not connected by now don't keep the kernel from booting
 * any more.
 */
void	xen_core_front_release(void);

/*
 * The core writes no state for us from the one to the other, and after it none
 * of the domain before.  The former waits for the one that is being written, as
 * the core does; both may sleep.  xen_life is counted before the latter.
 */
void	xen_core_front_suspend(void);
void	xen_core_front_resume(void);

/*
 * A line for each front end of the kernel's bus, below the root device's
 * numbers.
 */
void	xen_core_front_sysctl(struct sysctl_ctx_list *ctx,
    struct sysctl_oid *parent);

#endif /* !_DEV_XEN_CORE_CORE_H_ */
