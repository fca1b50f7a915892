/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * FreeBSD's own Xen core: the mask bits of event channels.
 */

#ifndef __XEN_EVTCHN_EVTCHNVAR_H__
#define	__XEN_EVTCHN_EVTCHNVAR_H__

#include <xen/hypervisor.h>

#include <machine/atomic.h>

static inline void
evtchn_mask_port(evtchn_port_t port)
{
	u_int bits = sizeof(HYPERVISOR_shared_info->evtchn_mask[0]) * NBBY;

	atomic_set_long(&HYPERVISOR_shared_info->evtchn_mask[port / bits], 1UL << port % bits);
}

static inline void
evtchn_unmask_port(evtchn_port_t port)
{
	evtchn_unmask_t arg = { .port = port };

	(void)HYPERVISOR_event_channel_op(EVTCHNOP_unmask, &arg);
}

#endif /* !__XEN_EVTCHN_EVTCHNVAR_H__ */
