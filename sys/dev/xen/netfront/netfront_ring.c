/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xn(4): rings, event channels, and the pages that packets are copied to and
 * from.
 *
 * Each slot of a ring has a page, granted to the back end as long as the ring
 * exists, and packets are staged (pv_net_stage_queue()).  A page is zero when
 * it is granted, so that a back end sees only what it was sent, or wrote itself
 * (XSA-403).
 *
 * All of this is allocated for each back end.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/smp.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/xen/grant_ring.h>
#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xenbus.h>
#include <dev/xen/netfront/netfront_var.h>

static void
xn_pages_free(struct xn_ring *ring)
{
	u_int i;

	for (i = 0; i < ring->xr_npages; i++)
		xen_gnttab_pages_free(ring->xr_grants[i]);
	free(ring->xr_posts, M_XEN);
	free(ring->xr_pages, M_XEN);
	free(ring->xr_grants, M_XEN);
	ring->xr_grants = NULL;
	ring->xr_posts = NULL;
	ring->xr_pages = NULL;
	ring->xr_npages = 0;
}

/* A page for each slot, and for receiving the request that posts it. */
static int
xn_pages_alloc(struct xn_ring *ring, domid_t otherend)
{
	u_int i, size = (*ring->xr_spec.pqs_pvq)->q_size;
	struct pv_net_page *page;
	struct xn_post *post;
	grant_ref_t ref;
	int error;

	ring->xr_grants = malloc(size * sizeof(ring->xr_grants[0]), M_XEN,
	    M_WAITOK | M_ZERO);
	ring->xr_pages = malloc(size * sizeof(ring->xr_pages[0]), M_XEN,
	    M_WAITOK | M_ZERO);
	ring->xr_posts = malloc(size * sizeof(ring->xr_posts[0]), M_XEN,
	    M_WAITOK | M_ZERO);
	for (i = 0; i < size; i++) {
		page = &ring->xr_pages[i];
		error = xen_gnttab_pages_alloc(otherend, 1, M_WAITOK,
		    &ring->xr_grants[i]);
		if (error != 0)
			return (error);
		ring->xr_npages = i + 1;
		page->npg_mem = ring->xr_grants[i]->gp_va;
		ref = ring->xr_grants[i]->gp_refs[0];
		page->npg_addr = (bus_addr_t)ref << PAGE_SHIFT;
		post = &ring->xr_posts[i];
		post->xp_req.gref = ref;
		post->xp_msgs = (struct grant_msgs){ .gm_msgs = &post->xp_req,
		    .gm_n = 1 };
		page->npg_arg = &post->xp_msgs;
	}
	return (0);
}

static void
xn_ring_intr(void *arg)
{
	struct xn_ring *ring = arg;

	/* The channel is there before the ring is, and events may be, too. */
	if (*ring->xr_spec.pqs_pvq != NULL)
		(*ring->xr_spec.pqs_pvq)->q_stats.qs_intrs++;
	ring->xr_spec.pqs_intr(ring->xr_spec.pqs_arg);
}

/* One channel for both directions. */
static void
xn_intr(void *arg)
{
	struct xn_queue *xq = arg;

	xn_ring_intr(&xq->xq_tx);
	xn_ring_intr(&xq->xq_rx);
}

static int
xn_channel_alloc(struct xn_queue *xq, const char *name, void (*handler)(void *),
    void *arg, struct xen_evtchn **channel)
{
	device_t dev = xq->xq_softc->xn_dev;
	struct xen_evtchn_params params = {
		.xep_type = INTR_TYPE_NET,
		.xep_cpu = xq->xq_rx.xr_spec.pqs_cpu,
		.xep_handler = handler,
		.xep_arg = arg,
		.xep_brake = true,
	};
	char full[32];

	snprintf(full, sizeof(full), "%s:%s%d", device_get_nameunit(dev), name,
	    xq->xq_id);
	params.xep_name = full;
	return (xen_evtchn_alloc(xenbus_get_otherend_id(dev), &params,
	    channel));
}

static int
xn_channels_alloc(struct xn_queue *xq)
{
	struct xn_ring *tx = &xq->xq_tx, *rx = &xq->xq_rx;
	int error;

	if (!xq->xq_softc->xn_split)
		return (xn_channel_alloc(xq,
		    "q", xn_intr, xq, &tx->xr_channel));
	error = xn_channel_alloc(xq, "tx", xn_ring_intr, tx, &tx->xr_channel);
	if (error == 0)
		error = xn_channel_alloc(xq, "rx", xn_ring_intr, rx,
		    &rx->xr_channel);
	return (error);
}

static void
xn_channels_free(struct xn_queue *xq)
{
	xen_evtchn_free(xq->xq_tx.xr_channel);
	xen_evtchn_free(xq->xq_rx.xr_channel);
	xq->xq_tx.xr_channel = xq->xq_rx.xr_channel = NULL;
}

static int
xn_ring_create_tx(struct xn_queue *xq)
{
	device_t dev = xq->xq_softc->xn_dev;
	struct grant_ring_params params = {
		.grp_dev = dev,
		.grp_name = xq->xq_tx.xr_spec.pqs_name,
		.grp_otherend = xenbus_get_otherend_id(dev),
		.grp_max_segs = XN_TX_SEGS,
		.grp_max_msgs = XN_TX_SLOTS,
		.grp_req_size = sizeof(struct netif_tx_request),
		.grp_rsp_size = sizeof(struct netif_tx_response),
		.grp_id_size = sizeof(uint16_t),
		.grp_req_id = offsetof(struct netif_tx_request, id),
		.grp_rsp_id = offsetof(struct netif_tx_response, id),
		.grp_null = true,
		.grp_null_off = offsetof(struct netif_tx_response, status),
		.grp_null_value = NETIF_RSP_NULL,
		.grp_notify = xen_evtchn_notify,
		.grp_worked = xen_evtchn_worked,
		.grp_notify_arg = xq->xq_tx.xr_channel,
	};

	return (grant_ring_create(&params, xq->xq_tx.xr_spec.pqs_pvq));
}

static int
xn_ring_create_rx(struct xn_queue *xq)
{
	device_t dev = xq->xq_softc->xn_dev;
	struct grant_ring_params params = {
		.grp_dev = dev,
		.grp_name = xq->xq_rx.xr_spec.pqs_name,
		.grp_otherend = xenbus_get_otherend_id(dev),
		.grp_max_segs = 1,
		.grp_flags = GRANT_RING_F_INORDER,
		.grp_req_size = sizeof(struct netif_rx_request),
		.grp_rsp_size = sizeof(struct netif_rx_response),
		.grp_id_size = sizeof(uint16_t),
		.grp_req_id = offsetof(struct netif_rx_request, id),
		.grp_rsp_id = offsetof(struct netif_rx_response, id),
		.grp_notify = xen_evtchn_notify,
		.grp_worked = xen_evtchn_worked,
		.grp_notify_arg = xq->xq_softc->xn_split ?
		    xq->xq_rx.xr_channel : xq->xq_tx.xr_channel,
	};

	return (grant_ring_create(&params, xq->xq_rx.xr_spec.pqs_pvq));
}

/* One pair of queues. */
static int
xn_queue_create(struct xn_queue *xq)
{
	domid_t otherend = xenbus_get_otherend_id(xq->xq_softc->xn_dev);
	int error;

	memset(&xq->xq_frame, 0, sizeof(xq->xq_frame));
	xq->xq_packets = malloc(PV_NET_BATCH * sizeof(xq->xq_packets[0]), M_XEN,
	    M_WAITOK | M_ZERO);
	pv_net_queue(xq->xq_softc->xn_pn, xq->xq_id, true, &xq->xq_tx.xr_spec);
	pv_net_queue(xq->xq_softc->xn_pn, xq->xq_id, false, &xq->xq_rx.xr_spec);
	error = xn_channels_alloc(xq);
	if (error == 0)
		error = xn_ring_create_tx(xq);
	if (error == 0)
		error = xn_ring_create_rx(xq);
	if (error == 0)
		error = xn_pages_alloc(&xq->xq_tx, otherend);
	if (error == 0)
		error = xn_pages_alloc(&xq->xq_rx, otherend);
	if (error != 0)
		return (error);
	pv_net_stage_queue(xq->xq_softc->xn_pn, xq->xq_id, true,
	    xq->xq_tx.xr_pages);
	pv_net_stage_queue(xq->xq_softc->xn_pn, xq->xq_id, false,
	    xq->xq_rx.xr_pages);
	return (0);
}

/* Allocate all that is shared with the back end. */
int
xn_rings_create(struct xn_softc *sc)
{
	int error = 0, i;

	for (i = 0; i < sc->xn_npairs && error == 0; i++)
		error = xn_queue_create(&sc->xn_queues[i]);
	if (error != 0)
		xn_rings_free(sc);
	return (error);
}

static void
xn_ring_free(struct xn_ring *ring)
{
	if (ring->xr_spec.pqs_pvq != NULL) {
		pvq_free(*ring->xr_spec.pqs_pvq);
		*ring->xr_spec.pqs_pvq = NULL;
	}
	/*
	 * It is a member of pv_net, and the next set-up may have another
	 * pv_net.
	 */
	ring->xr_spec.pqs_pvq = NULL;
	xn_pages_free(ring);
}

/* And free it.  The queues are drained, or never were used. */
void
xn_rings_free(struct xn_softc *sc)
{
	struct xn_queue *xq;

	for (xq = sc->xn_queues; xq < sc->xn_queues + sc->xn_npairs; xq++) {
		/* First of all no handler runs any more. */
		xn_channels_free(xq);
		xn_ring_free(&xq->xq_tx);
		free(xq->xq_packets, M_XEN);
		xq->xq_packets = NULL;
		xn_ring_free(&xq->xq_rx);
	}
}

/*
 * Is there enough for another pair?  Event channels are not counted: it is
 * tried.
 */
bool
xn_has_more(void *softc)
{
	struct xn_softc *sc = softc;
	struct xn_queue *xq = &sc->xn_queues[sc->xn_npairs];
	int error;

	if (!xen_gnttab_is_ample(XN_PAIR_REFS) || !xenbus_has_queues())
		return (false);
	pv_net_queue(xq->xq_softc->xn_pn, xq->xq_id, true, &xq->xq_tx.xr_spec);
	pv_net_queue(xq->xq_softc->xn_pn, xq->xq_id, false, &xq->xq_rx.xr_spec);
	error = xn_channels_alloc(xq);
	xn_channels_free(xq);
	return (error == 0);
}
