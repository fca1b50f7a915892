/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenhvm: event channels.
 *
 * Gaps.  A port that a filter has masked is unmasked after the handler all the same.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>

#include <xen/xen_intr.h>
#include <xen/hypervisor.h>

#include "xenhvm.h"

int
HYPERVISOR_event_channel_op(int cmd, void *arg)
{

	return (-xen_event_channel_op(cmd, arg));
}

int
xen_intr_alloc_and_bind_local_port(device_t dev, u_int remote_domain, driver_filter_t filter,
    driver_intr_t handler, void *arg, enum intr_type irqflags, xen_intr_handle_t *handlep)
{
	struct xen_evtchn_params params = {
		.xep_name = device_get_nameunit(dev),
		.xep_type = irqflags & ~INTR_MPSAFE,
		.xep_cpu = -1,
		.xep_filter = filter,
		.xep_handler = handler,
		.xep_arg = arg,
	};
	struct xen_evtchn *ec;
	int error;

	if (hvm_fails(HVM_FAIL_EVTCHN))
		return (ENOSPC);
	error = xen_evtchn_alloc(remote_domain, &params, &ec);
	if (error == 0)
		*handlep = ec;
	return (error);
}

void
xen_intr_unbind(xen_intr_handle_t *handle)
{

	xen_evtchn_free(*handle);
	*handle = NULL;
}

int
xen_intr_describe(xen_intr_handle_t handle __unused, const char *fmt __unused, ...)
{

	return (0);
}

void
xen_intr_signal(xen_intr_handle_t handle)
{

	xen_evtchn_notify(handle);
}

evtchn_port_t
xen_intr_port(xen_intr_handle_t handle)
{

	return (xen_evtchn_port(handle));
}
