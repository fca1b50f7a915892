/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A model of event channels (event_channels.h).
 */

#include "model/event_channels.h"

#include "host/host.h"
#include "kpi/kpi.h"

static struct xen_evtchn *channels[CHANNELS];
/* Ports are used in turn, so that a stale one is nobody's. */
static evtchn_port_t channels_next = 1;

u_int channels_most, channels_asked;
int channels_error, channels_fail_after;
bool channels_eager;
void (*channels_notified)(struct xen_evtchn *ec);

void
channels_begin(void)
{

	CHECK(channels_open() == 0, "%u channels are left", channels_open());
	channels_most = CHANNELS;
	channels_error = ENOSPC;
	channels_asked = channels_fail_after = 0;
	channels_eager = false;
	channels_notified = NULL;
}

int
xen_evtchn_alloc(domid_t remote, const struct xen_evtchn_params *params, struct xen_evtchn **ecp)
{
	struct xen_evtchn *ec;
	evtchn_port_t port;

	CHECK(params->xep_name[0] != '\0' && params->xep_handler != NULL, "no name, or no handler");
	channels_asked++;
	if (channels_open() >= channels_most || (channels_fail_after > 0 && --channels_fail_after == 0))
		return (channels_error);
	do
		port = channels_next++;
	while (channels[port % CHANNELS] != NULL);
	ec = host_alloc(sizeof(*ec), sizeof(void *));
	memset(ec, 0, sizeof(*ec));
	ec->ec_port = port;
	ec->ec_remote = remote;
	ec->ec_params = *params;
	strlcpy(ec->ec_name, params->xep_name, sizeof(ec->ec_name));
	channels[port % CHANNELS] = ec;
	if (channels_eager)
		channels_event(ec);
	*ecp = ec;
	return (0);
}

void
xen_evtchn_free(struct xen_evtchn *ec)
{

	if (ec == NULL)
		return;
	CHECK(kpi_mutexes == 0, "a lock is held");
	CHECK(channels[ec->ec_port % CHANNELS] == ec, "not open");
	channels[ec->ec_port % CHANNELS] = NULL;
	host_free(ec);
}

evtchn_port_t
xen_evtchn_port(const struct xen_evtchn *ec)
{

	return (ec->ec_port);
}

void
xen_evtchn_notify(struct xen_evtchn *ec)
{

	ec->ec_notified++;
	if (channels_notified != NULL)
		channels_notified(ec);
}

void
xen_evtchn_worked(struct xen_evtchn *ec)
{

	ec->ec_worked++;
}

u_int
channels_open(void)
{
	u_int i, n = 0;

	for (i = 0; i < CHANNELS; i++)
		n += channels[i] != NULL;
	return (n);
}

bool
channels_has(evtchn_port_t port)
{

	return (channels[port % CHANNELS] != NULL && channels[port % CHANNELS]->ec_port == port);
}

struct xen_evtchn *
channels_bound(evtchn_port_t port, domid_t remote)
{
	struct xen_evtchn *ec = channels[port % CHANNELS];

	CHECK(channels_has(port) && ec->ec_remote == remote, "port %u", port);
	return (ec);
}

void
channels_event(struct xen_evtchn *ec)
{

	ec->ec_params.xep_handler(ec->ec_params.xep_arg);
}
