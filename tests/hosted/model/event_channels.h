/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A model of event channels: xen_evtchn.h as a front end's driver sees it, and below the other end of
 * each channel, which is a test.
 */

#ifndef _EVENT_CHANNELS_H_
#define	_EVENT_CHANNELS_H_

#include <sys/param.h>
#include <sys/systm.h>

#include <dev/xen/xen_evtchn.h>

#define	CHANNELS	64

struct xen_evtchn {
	evtchn_port_t	 ec_port;
	domid_t		 ec_remote;
	char		 ec_name[32];
	struct xen_evtchn_params ec_params;
	u_int		 ec_notified;	/* how often the other end was */
	u_int		 ec_worked;
};

/* So many can be open at the same time; for one more there is this error. */
extern u_int channels_most;
extern int channels_error;

/* The nth from now has that error, if it is not 0. */
extern int channels_fail_after;

/* Is called when the other end is notified, unless it is NULL. */
extern void (*channels_notified)(struct xen_evtchn *ec);

/* Calls of xen_evtchn_alloc(). */
extern u_int channels_asked;

/* There is an event before each channel's xen_evtchn_alloc() returns. */
extern bool channels_eager;

/* As many as one likes (CHANNELS), which are quiet. */
void	channels_begin(void);

/* How many there are, whether a port is of one, and that one, which has to be open to that domain. */
u_int	channels_open(void);
bool	channels_has(evtchn_port_t port);
struct xen_evtchn *channels_bound(evtchn_port_t port, domid_t remote);

/* The other end sends an event. */
void	channels_event(struct xen_evtchn *ec);

#endif /* !_EVENT_CHANNELS_H_ */
