/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The two interfaces between Xen and a domain about which events are pending:
 * FIFO and 2-level.
 */

#ifndef _DEV_XEN_XEN_EVTCHN_VAR_H_
#define	_DEV_XEN_XEN_EVTCHN_VAR_H_

#include <dev/xen/xen_evtchn.h>

/*
 * What a scan does with the ports that are pending: handed down by
 * xen_evtchn.c.
 */
struct xen_evtchn_sink {
	/* Is the port's event to be delivered on this CPU? */
	bool		(*es_here)(evtchn_port_t port, u_int cpu);
	/*
	 * Call the handler of the port's channel, or wake its thread; the
	 * pending state is cleared.
	 */
	void		(*es_deliver)(evtchn_port_t port,
	    struct trapframe *frame);
};

struct xen_evtchn_abi {
	const char	*ea_name;
	evtchn_port_t	 ea_nports;
	/*
	 * Begin to use it, on all CPUs.  0, or an error: it can't be had.
	 * May sleep.
	 */
	int		(*ea_init)(void);
	/*
	 * Begin again after a suspension, with all ports masked.  Interrupts
	 * are off.
	 */
	int		(*ea_resume)(void);
	/*
	 * Ensure that a port has its place in memory, before it is bound here.
	 * May sleep.
	 */
	int		(*ea_reach)(evtchn_port_t port);
	void		(*ea_mask)(evtchn_port_t port);
	/* An event that came while masked is sent again. */
	void		(*ea_unmask)(evtchn_port_t port);
	/*
	 * In the upcall of a CPU: clear each pending port,
	 * and deliver its event.
	 */
	void		(*ea_scan)(u_int cpu, struct trapframe *frame,
			    const struct xen_evtchn_sink *sink);
};

extern const struct xen_evtchn_abi xen_evtchn_2l, xen_evtchn_fifo;

#endif /* !_DEV_XEN_XEN_EVTCHN_VAR_H_ */
