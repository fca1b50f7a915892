/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xn(4): packets in the rings (xen/io/netif.h).
 *
 *	sending                            receiving
 *	request, size of all of it         response, size of this buffer
 *	extra info, if it is segmented     extra info, if it is segmented
 *	request ... for each further page  response ... for each further buffer
 *
 * A message states whether another one follows (more_data, extra_info).  The
 * transport's checksum is either to be finished (csum_blank), at a place that
 * the headers show, or known to be good (data_validated).  Extra info follows
 * the first buffer of a frame, so that pv_net takes the metadata of a frame
 * from its last one; the buffer under extra info has no data.
 *
 * Extra info has no id: the ring identifies it by its place.  So received
 * messages are matched by place only, and the id in those that have one means
 * nothing.
 *
 * Trust.  A response is a copy that the back end does not see.  A status or an
 * offset outside of the page, extra info that was not negotiated, and frames of
 * too many buffers are counted, and the frame is dropped with all that belongs
 * to it; the ring goes on, as its place does not depend on what a message says.
 *
 * Locking.  Everything here is called with the lock of its queue held.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/xen/netfront/netfront_var.h>

CTASSERT(sizeof(struct netif_tx_request) >= sizeof(struct netif_extra_info));
CTASSERT(sizeof(struct netif_rx_response) == sizeof(struct netif_extra_info));

/* How the back end is to segment a packet. */
static void
xn_encap_gso(const struct pv_net_offload *o, struct netif_extra_info *extra)
{
	extra->type = XEN_NETIF_EXTRA_TYPE_GSO;
	extra->u.gso.size = o->po_gso_size;
	extra->u.gso.type = o->po_gso_type == PV_NET_GSO_TCP6 ?
	    XEN_NETIF_GSO_TYPE_TCPV6 : XEN_NETIF_GSO_TYPE_TCPV4;
}

/*
 * A request for each segment, and extra info for a packet that the back end is
 * to segment.
 */
void
xn_prepare(void *softc, int pair, u_int n, struct pv_net_txhdr *hdr)
{
	struct xn_softc *sc = softc;
	struct xn_packet *packet = &sc->xn_queues[pair].xq_packets[n];

	packet->xnp_msgs = (struct grant_msgs){
		.gm_msgs = packet->xnp_reqs,
		.gm_n = hdr->pth_chain->pc_nread +
		    (hdr->pth_offload.po_gso_type != PV_NET_GSO_NONE),
	};
	hdr->pth_chain->pc_arg = &packet->xnp_msgs;
}

static void
xn_encap_packet(const struct pv_net_offload *o, struct pvq_chain *pc)
{
	struct grant_msgs *gm = pc->pc_arg;
	struct netif_tx_request *reqs = gm->gm_msgs, *first = reqs, *req;
	u_int i, total = 0;

	req = first;
	for (i = 0; i < pc->pc_nread; i++) {
		*req = (struct netif_tx_request){
			.gref = pc->pc_segs[i].ds_addr >> PAGE_SHIFT,
			.offset = pc->pc_segs[i].ds_addr & PAGE_MASK,
			.flags = i + 1 < pc->pc_nread ? NETTXF_more_data : 0,
			.size = pc->pc_segs[i].ds_len,
		};
		total += req->size;
		req++;
		if (i == 0 && o->po_gso_type != PV_NET_GSO_NONE) {
			first->flags |= NETTXF_extra_info;
			gm->gm_noid = 1 << 1;
			memset(req, 0, sizeof(*req));
			xn_encap_gso(o, (struct netif_extra_info *)req);
			req++;
		}
	}
	if ((o->po_flags & PV_NET_NEEDS_CSUM) != 0)
		first->flags |= NETTXF_csum_blank | NETTXF_data_validated;
	KASSERT(req == reqs + gm->gm_n && total <= XEN_NETIF_MAX_TX_SIZE,
	    ("%s: %u messages for %u segments, %u bytes", __func__, gm->gm_n,
	    pc->pc_nread, total));
	first->size = total;
}

void
xn_encap(void *softc __unused, int pair __unused, struct pv_net_txhdr *hdrs,
    int n)
{
	int i;

	for (i = 0; i < n; i++)
		xn_encap_packet(&hdrs[i].pth_offload, hdrs[i].pth_chain);
}

/* Packets that the back end has completed: the ring has checked the ids. */
void
xn_sent(void *softc, int pair, const struct pvq_done *done, int n)
{
	struct xn_softc *sc = softc;
	struct xn_stats *stats = &sc->xn_queues[pair].xq_stats;
	const struct netif_tx_response *rsp;
	int i;

	for (i = 0; i < n; i++) {
		rsp = grant_ring_response(&done[i]);
		if (rsp->status != NETIF_RSP_OKAY &&
		    pv_net_is_command(&done[i])) {
			stats->groups_refused++;
			sc->xn_mcast_refused = true;
			pv_net_refilter(sc->xn_pn);
			continue;
		}
		switch (rsp->status) {
		case NETIF_RSP_OKAY:
		case NETIF_RSP_NULL:	/* of extra info that came last */
			break;
		case NETIF_RSP_DROPPED:
			stats->tx_dropped++;
			break;
		case NETIF_RSP_ERROR:
			stats->tx_error++;
			break;
		default:
			stats->tx_status++;
		}
	}
}

static bool
xn_decap_range_ok(struct xn_queue *xq, const struct netif_rx_response *rsp)
{
	if (rsp->status < 0) {
		xq->xq_stats.rx_status++;
		return (false);
	}
	/* 16 bits each: no overflow. */
	if ((u_int)rsp->offset + (u_int)rsp->status > PAGE_SIZE) {
		xq->xq_stats.rx_range++;
		return (false);
	}
	return (true);
}

/*
 * The first message of a frame states what follows, and the state of the
 * checksum.
 */
static bool
xn_decap_first(struct xn_queue *xq, const struct netif_rx_response *rsp)
{
	struct xn_frame *xf = &xq->xq_frame;

	memset(xf, 0, sizeof(*xf));
	if ((rsp->flags & NETRXF_csum_blank) != 0)
		xf->xf_offload.po_flags = PV_NET_NEEDS_CSUM | PV_NET_FIND_CSUM;
	else if ((rsp->flags & NETRXF_data_validated) != 0)
		xf->xf_offload.po_flags = PV_NET_DATA_VALID;
	xf->xf_more = (rsp->flags & NETRXF_more_data) != 0;
	if ((rsp->flags & NETRXF_extra_info) != 0)
		xf->xf_next = XN_FRAME_EXTRA;
	else
		xf->xf_next = xf->xf_more ? XN_FRAME_MORE : XN_FRAME_FIRST;
	/* The obsolete mark of a GSO packet, which was not negotiated. */
	if ((rsp->flags & NETRXF_gso_prefix) != 0) {
		xq->xq_stats.rx_prefix++;
		return (false);
	}
	return (true);
}

static void
xn_decap_data(struct xn_queue *xq, const void *msg, struct pv_net_rxhdr *out)
{
	struct xn_frame *xf = &xq->xq_frame;
	struct netif_rx_response rsp;
	bool ok = true;

	memcpy(&rsp, msg, sizeof(rsp));
	if (xf->xf_next == XN_FRAME_FIRST)
		ok = xn_decap_first(xq, &rsp);
	else
		xf->xf_next = (rsp.flags & NETRXF_more_data) != 0 ?
		    XN_FRAME_MORE : XN_FRAME_FIRST;
	out->prh_more = xf->xf_next != XN_FRAME_FIRST;
	/* Its first violation was reported; pv_net skips the rest. */
	if (xf->xf_bad)
		return;
	if (ok && ++xf->xf_bufs > XN_RX_BUFS) {
		xq->xq_stats.rx_bufs++;
		ok = false;
	}
	if (!ok || !xn_decap_range_ok(xq, &rsp)) {
		xf->xf_bad = true;
		out->prh_error = PV_NET_RX_BADHDR;
		return;
	}
	out->prh_skip = rsp.offset;
	out->prh_len = rsp.status;
	out->prh_offload = xf->xf_offload;
}

/* Take the metadata of extra info: false if it is invalid. */
static bool
xn_decap_gso(struct xn_frame *xf, u_int offloads,
    const struct netif_extra_info *extra)
{
	u_int lro = 0;

	if (extra->type != XEN_NETIF_EXTRA_TYPE_GSO || ++xf->xf_extras > 1)
		return (false);
	switch (extra->u.gso.type) {
	case XEN_NETIF_GSO_TYPE_TCPV4:
		xf->xf_offload.po_gso_type = PV_NET_GSO_TCP4;
		lro = PV_NET_LRO4;
		break;
	case XEN_NETIF_GSO_TYPE_TCPV6:
		xf->xf_offload.po_gso_type = PV_NET_GSO_TCP6;
		lro = PV_NET_LRO6;
		break;
	}
	xf->xf_offload.po_gso_size = extra->u.gso.size;
	return ((offloads & lro) != 0 && extra->u.gso.size != 0);
}

static void
xn_decap_extra(struct xn_queue *xq, const void *msg, struct pv_net_rxhdr *out)
{
	struct xn_frame *xf = &xq->xq_frame;
	struct netif_extra_info extra;

	memcpy(&extra, msg, sizeof(extra));
	if ((extra.flags & XEN_NETIF_EXTRA_FLAG_MORE) == 0)
		xf->xf_next = xf->xf_more ? XN_FRAME_MORE : XN_FRAME_FIRST;
	out->prh_more = xf->xf_next != XN_FRAME_FIRST;
	if (xf->xf_bad)
		return;
	if (!xn_decap_gso(xf, xq->xq_softc->xn_offloads, &extra)) {
		xq->xq_stats.rx_extra++;
		xf->xf_bad = true;
		out->prh_error = PV_NET_RX_BADHDR;
		return;
	}
	out->prh_offload = xf->xf_offload;
}

void
xn_decap(void *softc, int pair, const struct pvq_done *done,
    struct pv_net_rxhdr *hdrs, int n)
{
	struct xn_softc *sc = softc;
	struct xn_queue *xq = &sc->xn_queues[pair];
	int i;

	for (i = 0; i < n; i++) {
		if (xq->xq_frame.xf_next == XN_FRAME_EXTRA)
			xn_decap_extra(xq, grant_ring_response(&done[i]),
			    &hdrs[i]);
		else
			xn_decap_data(xq, grant_ring_response(&done[i]),
			    &hdrs[i]);
	}
}
