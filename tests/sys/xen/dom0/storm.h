/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Events of a back end in a process of dom0: one, or as many as possible (Xen's advisory XSA-391).
 */

#ifndef _DOM0_STORM_H_
#define	_DOM0_STORM_H_

#include <sys/ioctl.h>
#include <stdio.h>
#include <unistd.h>

#include <xen/xen.h>
#include <xen/sys/evtchn.h>

#define	CALM	"/run/calm"	/* a file that ends a storm */

static inline void
send_event(int evtchn, unsigned port)
{
	struct ioctl_evtchn_notify arg = { port };

	ioctl(evtchn, IOCTL_EVTCHN_NOTIFY, &arg);
}

/*
 * Events without work on two ports, which may be the same, until the file exists.  The sender sleeps
 * after each: otherwise, where Xen has only one CPU, the receiver would see many events as one.
 */
static inline void
storm_until_calm(int evtchn, unsigned port, unsigned other)
{
	unsigned long n = 0;

	do {
		send_event(evtchn, port);
		send_event(evtchn, other);
		n += 2;
		usleep(50);
	} while (n % 64 != 0 || access(CALM, F_OK) != 0);
	printf("sent %lu events\n", n);
}

#endif /* !_DOM0_STORM_H_ */
