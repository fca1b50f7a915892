/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Event channels of FreeBSD's own Xen core.
 *
 * The core has an interrupt source for each channel: it masks the port while
 * its thread runs, and unmasks it afterwards; it closes the port when the
 * channel is unbound, and forgets all ports when the domain goes on as a new
 * one.  A channel stays on the CPU that the core gives it, one after the other;
 * cpuset(1) moves it.
 *
 * A storm (Xen's advisory XSA-391; the theory is in xen_evtchn.c).  The core
 * leaves a port alone that the filter has masked.  So the filter of a channel
 * that has had EVTCHN_IDLE_MAX rounds without work masks it, and it is unmasked
 * by the handler if there was work, or else a tick later.
 *
 * Locking.  None: see the fields.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/malloc.h>
#include <sys/sysctl.h>

#include <machine/atomic.h>

#include <xen/xen-os.h>
#include <xen/hypervisor.h>
#include <xen/xen_intr.h>
#include <xen/evtchn/evtchnvar.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/core/core.h>

#define	EVTCHN_IDLE_MAX	32	/* rounds without work that may follow each
				 * other at once */

MALLOC_DEFINE(M_XEN, "xen", "Xen");

volatile u_int xen_life;

struct xen_evtchn {
	xen_intr_handle_t ec_handle;
	driver_filter_t	*ec_filter;
	driver_intr_t	*ec_handler;
	void		*ec_arg;
	bool		 ec_brake;	/* its handler reports
					 * when there was work */
	volatile u_int	 ec_dead;	/* is being closed:
					 * not to be unmasked */
	volatile u_int	 ec_worked;	/* there was, since the last round */
	volatile u_int	 ec_storms;	/* the filter masks the port */
	volatile u_int	 ec_masked;	/* it has done so;
					 * the handler's thread clears it */
	u_int		 ec_idle;	/* rounds without work, in a row;
					 * of the handler's thread */
	int		 ec_idle_ticks;	/* at the last of them */
	struct callout	 ec_later;	/* unmasks it */
};

static volatile u_int evtchn_in_use;
static uint64_t evtchn_braked;

/* A port that the core has forgotten is none. */
static bool
evtchn_port_of(const struct xen_evtchn *ec, evtchn_port_t *port)
{

	*port = ec->ec_handle != NULL ? xen_intr_port(ec->ec_handle) : 0;
	return (*port != 0 && *port < EVTCHN_2L_NR_CHANNELS);
}

static void
evtchn_unmask(void *arg)
{
	struct xen_evtchn *ec = arg;
	evtchn_port_t port;

	if (ec->ec_dead == 0 && evtchn_port_of(ec, &port))
		evtchn_unmask_port(port);
}

static int
evtchn_filter(void *arg)
{
	struct xen_evtchn *ec = arg;
	evtchn_port_t port;
	int result = FILTER_SCHEDULE_THREAD;

	if (ec->ec_filter != NULL)
		result = ec->ec_filter(ec->ec_arg);
	if (result == FILTER_SCHEDULE_THREAD && ec->ec_storms != 0 &&
	    evtchn_port_of(ec, &port)) {
		evtchn_mask_port(port);
		ec->ec_masked = 1;
	}
	return (result);
}

/* Has there been too much for nothing? */
static bool
evtchn_is_storming(struct xen_evtchn *ec)
{

	if (ec->ec_worked != 0 || ticks - ec->ec_idle_ticks > MAX(hz / 10, 2))
		ec->ec_idle = 0;
	ec->ec_worked = 0;
	ec->ec_idle_ticks = ticks;
	return (++ec->ec_idle > EVTCHN_IDLE_MAX);
}

static void
evtchn_handler(void *arg)
{
	struct xen_evtchn *ec = arg;

	ec->ec_handler(ec->ec_arg);
	if (!ec->ec_brake)
		return;
	ec->ec_storms = evtchn_is_storming(ec);
	if (ec->ec_masked == 0 || ec->ec_dead != 0)
		return;
	ec->ec_masked = 0;
	if (ec->ec_storms != 0) {
		atomic_add_64(&evtchn_braked, 1);
		callout_reset(&ec->ec_later, 1, evtchn_unmask, ec);
	} else
		evtchn_unmask(ec);
}

/*
 * The device whose name a channel's begins with ("xn0:rx0"), for vmstat -i; and
 * the rest of that.
 */
static device_t
evtchn_owner(const char *name, const char **rest)
{
	char class[16];
	devclass_t dc;
	device_t dev = NULL;
	size_t len;

	len = strcspn(name, "0123456789:");
	*rest = name;
	if (len > 0 && len < sizeof(class)) {
		strlcpy(class, name, len + 1);
		dc = devclass_find(class);
		if (dc != NULL)
			dev = devclass_get_device(dc,
			    (int)strtoul(name + len, NULL, 10));
		if (dev != NULL && strchr(name, ':') != NULL)
			*rest = strchr(name, ':') + 1;
	}
	return (dev != NULL ? dev :
	    devclass_get_device(devclass_find("xen"), 0));
}

int
xen_evtchn_alloc(domid_t remote, const struct xen_evtchn_params *params,
    struct xen_evtchn **ecp)
{
	struct xen_evtchn *ec;
	const char *name;
	device_t owner;
	int error;

	ec = malloc(sizeof(*ec), M_XEN, M_WAITOK | M_ZERO);
	ec->ec_filter = params->xep_filter;
	ec->ec_handler = params->xep_handler;
	ec->ec_arg = params->xep_arg;
	ec->ec_brake = params->xep_brake;
	callout_init(&ec->ec_later, 1);
	owner = evtchn_owner(params->xep_name, &name);
	error = xen_intr_alloc_and_bind_local_port(owner, remote,
	    ec->ec_brake || ec->ec_filter != NULL ? evtchn_filter : NULL,
	    ec->ec_handler != NULL ? evtchn_handler : NULL, ec,
	    (enum intr_type)(params->xep_type | INTR_MPSAFE), &ec->ec_handle);
	if (error != 0) {
		free(ec, M_XEN);
		return (error);
	}
	(void)xen_intr_describe(ec->ec_handle, "%s", name);
	atomic_add_int(&evtchn_in_use, 1);
	*ecp = ec;
	return (0);
}

void
xen_evtchn_free(struct xen_evtchn *ec)
{

	if (ec == NULL)
		return;
	/*
	 * In this order: the port's number may be another channel's when it is
	 * closed.
	 */
	atomic_store_rel_int(&ec->ec_dead, 1);
	callout_drain(&ec->ec_later);
	xen_intr_unbind(&ec->ec_handle);
	callout_drain(&ec->ec_later);
	atomic_subtract_int(&evtchn_in_use, 1);
	free(ec, M_XEN);
}

evtchn_port_t
xen_evtchn_port(const struct xen_evtchn *ec)
{

	return (xen_intr_port(ec->ec_handle));
}

void
xen_evtchn_notify(struct xen_evtchn *ec)
{

	xen_intr_signal(ec->ec_handle);
}

void
xen_evtchn_worked(struct xen_evtchn *ec)
{

	ec->ec_worked = 1;
}

void
xen_evtchn_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{
	struct sysctl_oid *node;

	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(parent), OID_AUTO, "evtchn",
	    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "Event channels");
	SYSCTL_ADD_UINT(ctx, SYSCTL_CHILDREN(node), OID_AUTO,
	    "in_use", CTLFLAG_RD, __DEVOLATILE(u_int *, &evtchn_in_use), 0,
	    "Channels in use");
	SYSCTL_ADD_U64(ctx, SYSCTL_CHILDREN(node), OID_AUTO,
	    "braked", CTLFLAG_RD, &evtchn_braked, 0,
	    "Events that were delayed, as too many before them had no work");
}

/*
 * The kernel sets its variable when Xen has suspended the domain.  A device
 * that refuses makes it resume the others with the value of an earlier
 * suspension, as if they had lost their back ends.
 */
void
xen_core_suspend(void)
{

	xen_suspend_cancelled = true;
}

bool
xen_core_suspended(void)
{

	return (!xen_suspend_cancelled);
}
