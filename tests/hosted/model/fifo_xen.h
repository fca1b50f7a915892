/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen's half of FIFO event channels, for a domain of one CPU that has events: xen_event_channel_op(9)
 * is Xen, and a thread may be another domain that sends.
 */

#ifndef _FIFO_XEN_H_
#define	_FIFO_XEN_H_

#include <sys/param.h>

#include <dev/xen/xen_evtchn.h>

/* Begin, with a CPU whose interrupt this function is.  Once. */
void	fifo_xen_open(void (*upcall)(void));

/*
 * The domain has a second CPU, which no event goes to, and whose vCPU has this number; Xen takes no
 * control block of it.
 */
void	fifo_xen_second_cpu(u_int vcpu, bool refused);

/* The other end of a channel sends an event. */
void	fifo_xen_send(evtchn_port_t port);

/* All is closed: check that nothing is left but the pages that are Xen's. */
void	fifo_xen_close(void);

/* The next port that Xen makes is that one; the domain has no page for its word; Xen takes none. */
void	fifo_xen_next(evtchn_port_t port);
extern bool fifo_xen_no_pages, fifo_xen_no_words;

#define	FIFO_XEN_REMOTE	1	/* the domain at the other end */

/* How many ports are open, how many were bound to a CPU, the last one's vCPU, and what was sent. */
extern int fifo_xen_ports, fifo_xen_bound, fifo_xen_sent;
extern u_int fifo_xen_vcpu;

/* Xen has a port unmasked, whether there is a channel or not. */
void	fifo_xen_unmask(evtchn_port_t port);

/*
 * A port that may have neither word nor channel is the first of a queue, and has an event; the queue
 * may be one that there can't be.
 */
void	fifo_xen_claim(u_int queue, evtchn_port_t port);

/* Does Xen call the CPU up?  It does as long as this is so. */
bool	fifo_xen_calls(void);

/* Where the two sides are. */
void	fifo_xen_where(char *buf, size_t size);

/* Something takes a while. */
void	fifo_xen_dawdle(uint32_t *seed);

#endif /* !_FIFO_XEN_H_ */
