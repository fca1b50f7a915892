/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xn(4): which multicast groups the back end forwards (xen/io/netif.h,
 * feature-multicast-control).
 *
 * The back end keeps a list of groups.  It is amended by commands in the
 * transmit ring (pv_net_command()), and it is used as long as
 * request-multicast-control is 1.  Then what is sent to another group is
 * dropped there, before it costs a slot and an event.
 *
 *	all-multicast, too many groups,    request-multicast-control = 0,
 *	or one was refused                 the list stays as it is
 *	else                               the list is made the same as ours;
 *	                                   then = 1
 *
 * That is done only with back ends that watch the key all the time
 * (feature-dynamic-multicast-control): with the others there would be no way
 * back to all-multicast.
 *
 * Unicast is not filtered here: the bridge does that.
 *
 * Trust.  A back end that forwards other groups is harmless, as the stack
 * filters, too.  One that refuses a group, or never answers, is switched to
 * all-multicast.  Whether the switch arrived is not known when xenstore does
 * not answer: then it is made again.
 *
 * Locking.  Everything here is called with pv_net's configuration lock held, or
 * before there is an interface.  xn_mcast_refused is set with a queue's lock
 * held, and never cleared while connected.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <net/ethernet.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/xen/xenbus.h>
#include <dev/xen/netfront/netfront_var.h>

#define	XN_FILTER_TRIES	20	/* for room in the ring,
				 * a 100th of a second each */

CTASSERT(sizeof(((struct netif_extra_info *)0)->u.mcast.addr) ==
    ETHER_ADDR_LEN);

/* A new back end: its list is empty, and not in use (xn_publish_features). */
void
xn_filter_setup(struct xn_softc *sc)
{
	sc->xn_mcast_control = xenbus_feature(sc->xn_dev,
	    "feature-multicast-control") &&
	    xenbus_feature(sc->xn_dev, "feature-dynamic-multicast-control");
	sc->xn_mcast_on = false;
	sc->xn_mcast_unknown = false;
	sc->xn_mcast_refused = false;
	sc->xn_ngroups = 0;
}

/* One change of the back end's list. */
static int
xn_filter_amend(struct xn_softc *sc, u_int type, const uint8_t *group)
{
	struct netif_tx_request msgs[2] = { { .flags = NETTXF_extra_info } };
	struct grant_msgs command = { .gm_msgs = msgs, .gm_n = nitems(msgs),
	    .gm_noid = 1 << 1 };
	struct netif_extra_info extra = { .type = type };
	int error = ENOSPC, i;

	memcpy(extra.u.mcast.addr, group, ETHER_ADDR_LEN);
	memcpy(&msgs[1], &extra, sizeof(extra));
	for (i = 0; i < XN_FILTER_TRIES && error == ENOSPC; i++) {
		if (i > 0)
			pause("xnmcst", MAX(hz / 100, 1));
		error = pv_net_command(sc->xn_pn, 0, &command);
	}
	return (error);
}

static bool
xn_filter_has(const uint8_t (*groups)[ETHER_ADDR_LEN], u_int n,
    const uint8_t *group)
{
	u_int i;

	for (i = 0; i < n; i++) {
		if (memcmp(groups[i], group, ETHER_ADDR_LEN) == 0)
			return (true);
	}
	return (false);
}

/* Make the back end's list ours.  An error leaves part of it done. */
static int
xn_filter_groups(struct xn_softc *sc, const struct pv_net_filter *filter)
{
	int error = 0;
	u_int i;

	for (i = 0; i < sc->xn_ngroups && error == 0;) {
		if (xn_filter_has(filter->pf_groups, filter->pf_ngroups,
		    sc->xn_groups[i])) {
			i++;
			continue;
		}
		error = xn_filter_amend(sc, XEN_NETIF_EXTRA_TYPE_MCAST_DEL,
		    sc->xn_groups[i]);
		if (error == 0) {
			sc->xn_ngroups--;
			memmove(sc->xn_groups[i], sc->xn_groups[sc->xn_ngroups],
			    ETHER_ADDR_LEN);
		}
	}
	for (i = 0; i < filter->pf_ngroups && error == 0; i++) {
		if (xn_filter_has(sc->xn_groups, sc->xn_ngroups,
		    filter->pf_groups[i]))
			continue;
		error = xn_filter_amend(sc, XEN_NETIF_EXTRA_TYPE_MCAST_ADD,
		    filter->pf_groups[i]);
		if (error == 0)
			memcpy(sc->xn_groups[sc->xn_ngroups++],
			    filter->pf_groups[i], ETHER_ADDR_LEN);
	}
	return (error);
}

/* Have the list used, or not. */
static int
xn_filter_switch(struct xn_softc *sc, bool on)
{
	int error;

	if (sc->xn_mcast_on == on && !sc->xn_mcast_unknown)
		return (0);
	error = xenbus_write_number(sc->xn_dev, NULL,
	    "request-multicast-control", on);
	sc->xn_mcast_unknown = error != 0;
	if (error == 0)
		sc->xn_mcast_on = on;
	else
		/*
		 * It may have been written or not, or be written yet: once more
		 * when xenstore answers.
		 */
		xenbus_change(sc->xn_dev);
	return (error);
}

int
xn_set_filter(void *softc, const struct pv_net_filter *filter)
{
	struct xn_softc *sc = softc;
	int error = 0, error2;
	bool all;

	if (!sc->xn_mcast_control)
		return (0);
	all = filter->pf_promisc || filter->pf_allmulti ||
	    filter->pf_ngroups > XN_MAX_GROUPS || sc->xn_mcast_refused;
	if (!all)
		error = xn_filter_groups(sc, filter);
	error2 = xn_filter_switch(sc, !all && error == 0);
	return (error != 0 ? error : error2);
}
