/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The ring of xbd and its messages (theory statement: blkfront.c;
 * xen/io/blkif.h).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/pv/pv_cpu.h>
#include <dev/xen/blkfront/blkfront_var.h>

_Static_assert(offsetof(struct blkif_request, id) == 8 &&
    offsetof(struct blkif_request_discard, id) == 8 &&
    offsetof(struct blkif_request_indirect, id) == 8,
    "every request has its id at the same place");

static void
xbd_intr(void *arg)
{
	struct xbd_ring *xr = arg;
	struct xbd_softc *sc = xr->xbr_sc;

	/* Events can come before there is a disk. */
	if (atomic_load_acq_int(&sc->xbd_ready) == 0)
		return;
	if (sc->xbd_queues[xr->xbr_index] != NULL)
		sc->xbd_queues[xr->xbr_index]->q_stats.qs_intrs++;
	pv_blk_intr(&sc->xbd_blk.blk_queues[xr->xbr_index]);
}

static int
xbd_channel_alloc(struct xbd_softc *sc, u_int i)
{
	struct xbd_ring *xr = &sc->xbd_rings[i];
	char intr[32];
	struct xen_evtchn_params channel = {
		.xep_name = intr,
		.xep_type = INTR_TYPE_BIO,
		.xep_cpu = pv_queue_cpu(i, sc->xbd_nqueues),
		.xep_handler = xbd_intr,
		.xep_arg = xr,
		.xep_brake = true,
	};

	xr->xbr_sc = sc;
	xr->xbr_index = i;
	snprintf(intr, sizeof(intr),
	    "%s:req%u", device_get_nameunit(sc->xbd_dev), i);
	return (xen_evtchn_alloc(xenbus_get_otherend_id(sc->xbd_dev), &channel,
	    &xr->xbr_channel));
}

static int
xbd_ring_create(struct xbd_softc *sc, u_int i)
{
	char name[PVQ_NAMELEN];
	struct grant_ring_params ring = {
		.grp_dev = sc->xbd_dev,
		.grp_name = name,
		.grp_otherend = xenbus_get_otherend_id(sc->xbd_dev),
		.grp_order = sc->xbd_order,
		.grp_max_segs = BLKIF_MAX_SEGMENTS_PER_REQUEST,
		.grp_req_size = sizeof(struct blkif_request),
		.grp_rsp_size = sizeof(struct blkif_response),
		.grp_id_size = sizeof(((struct blkif_request *)NULL)->id),
		.grp_req_id = offsetof(struct blkif_request, id),
		.grp_rsp_id = offsetof(struct blkif_response, id),
		.grp_notify = xen_evtchn_notify,
		.grp_worked = xen_evtchn_worked,
	};
	int error;

	snprintf(name, sizeof(name), "ring%u", i);
	error = xbd_channel_alloc(sc, i);
	if (error != 0) {
		xenbus_warn(sc->xbd_dev, error, "no event channel, error %d",
		    error);
		return (error);
	}
	ring.grp_notify_arg = sc->xbd_rings[i].xbr_channel;
	error = grant_ring_create(&ring, &sc->xbd_queues[i]);
	if (error != 0)
		xenbus_warn(sc->xbd_dev, error, "no ring of %u pages, error %d",
		    1 << sc->xbd_order, error);
	return (error);
}

static void
xbd_channel_free(struct xbd_softc *sc, u_int i)
{

	xen_evtchn_free(sc->xbd_rings[i].xbr_channel);
	sc->xbd_rings[i].xbr_channel = NULL;
}

int
xbd_rings_create(struct xbd_softc *sc)
{
	u_int i;
	int error = 0;

	for (i = 0; i < sc->xbd_nqueues && error == 0; i++) {
		/* The others are to make the disk faster. */
		if (i > 0 && !xen_gnttab_is_ample(1 << sc->xbd_order))
			error = ENOSPC;
		else
			error = xbd_ring_create(sc, i);
	}
	if ((error != ENOSPC && error != ENOMEM) || i < 2)
		return (error);
	/* One is enough, and more are tried later. */
	sc->xbd_nqueues = i - 1;
	xbd_channel_free(sc, i - 1);
	return (0);
}

/*
 * Is there enough for another queue?  Event channels are not counted: it is
 * tried.
 */
bool
xbd_has_more(struct pv_blk *blk)
{
	struct xbd_softc *sc = __containerof(blk, struct xbd_softc, xbd_blk);
	int error;

	if (!xen_gnttab_is_ample(1 << sc->xbd_order) || !xenbus_has_queues())
		return (false);
	error = xbd_channel_alloc(sc, sc->xbd_nqueues);
	xbd_channel_free(sc, sc->xbd_nqueues);
	return (error == 0);
}

void
xbd_channels_free(struct xbd_softc *sc)
{
	u_int i;

	for (i = 0; i < PV_BLK_QUEUES_MAX; i++)
		xbd_channel_free(sc, i);
}

void
xbd_rings_free(struct xbd_softc *sc)
{
	u_int i;

	for (i = 0; i < PV_BLK_QUEUES_MAX; i++) {
		pvq_free(sc->xbd_queues[i]);
		sc->xbd_queues[i] = NULL;
	}
}

/*
 * Fills seg with the pages that hold the first length bytes of st.  Returns how
 * many there are.
 */
static u_int
xbd_fill_segments(const struct xbd_softc *sc, const struct xbd_stage *st,
    struct blkif_request_segment *seg, size_t length)
{
	u_int i;

	for (i = 0; length != 0; i++) {
		seg[i].gref = xbd_stage_ref(sc, st, i);
		seg[i].first_sect = 0;
		seg[i].last_sect = MIN(length, PAGE_SIZE) / XBD_SECTOR_SIZE - 1;
		length -= MIN(length, PAGE_SIZE);
	}
	return (i);
}

static void
xbd_encode_rw(const struct xbd_softc *sc, const struct xbd_stage *st,
    const struct pv_blk_req *rq)
{
	struct blkif_request_indirect *ind = rq->rq_msg;
	struct blkif_request *req = rq->rq_msg;
	uint8_t op = rq->rq_cmd == PV_BLK_READ ? BLKIF_OP_READ : BLKIF_OP_WRITE;

	KASSERT(rq->rq_length <= sc->xbd_max_segs * PAGE_SIZE,
	    ("%s: %zu bytes", __func__, rq->rq_length));
	if (rq->rq_length <= BLKIF_MAX_SEGMENTS_PER_REQUEST * PAGE_SIZE) {
		req->operation = op;
		req->handle = sc->xbd_handle;
		req->sector_number = rq->rq_offset / XBD_SECTOR_SIZE;
		req->nr_segments = xbd_fill_segments(sc, st, req->seg,
		    rq->rq_length);
		return;
	}
	ind->operation = BLKIF_OP_INDIRECT;
	ind->indirect_op = op;
	ind->handle = sc->xbd_handle;
	ind->sector_number = rq->rq_offset / XBD_SECTOR_SIZE;
	ind->nr_segments = xbd_fill_segments(sc, st, st->xst_list->gp_va,
	    rq->rq_length);
	ind->indirect_grefs[0] = st->xst_list->gp_refs[0];
}

void
xbd_encode(struct pv_blk *blk, struct pv_blk_req *rq, struct pvq_chain *pc)
{
	struct xbd_softc *sc = __containerof(blk, struct xbd_softc, xbd_blk);
	struct xbd_stage *st = &sc->xbd_stages[rq - blk->blk_reqs];
	struct blkif_request_discard *discard = rq->rq_msg;
	struct blkif_request *req = rq->rq_msg;

	bzero(rq->rq_msg, sizeof(*req));
	switch (rq->rq_cmd) {
	case PV_BLK_FLUSH:
		req->operation = sc->xbd_flush_op;
		req->handle = sc->xbd_handle;
		break;
	case PV_BLK_DELETE:
		discard->operation = BLKIF_OP_DISCARD;
		discard->flag = sc->xbd_discard_flag;
		discard->handle = sc->xbd_handle;
		discard->sector_number = rq->rq_offset / XBD_SECTOR_SIZE;
		discard->nr_sectors = rq->rq_length / XBD_SECTOR_SIZE;
		break;
	default:
		xbd_encode_rw(sc, st, rq);
		break;
	}
	pc->pc_segs = rq->rq_segs;
	st->xst_msgs = (struct grant_msgs){ .gm_msgs = rq->rq_msg, .gm_n = 1 };
	pc->pc_arg = &st->xst_msgs;
}

/*
 * May a response to rq have op?  Back ends name an indirect request by the
 * operation in it, or not.
 */
static bool
xbd_answers(const struct xbd_softc *sc, const struct pv_blk_req *rq, uint8_t op)
{
	switch (rq->rq_cmd) {
	case PV_BLK_FLUSH:
		return (op == sc->xbd_flush_op);
	case PV_BLK_DELETE:
		return (op == BLKIF_OP_DISCARD);
	default:
		return (op == (rq->rq_cmd == PV_BLK_READ ? BLKIF_OP_READ :
		    BLKIF_OP_WRITE) || (op == BLKIF_OP_INDIRECT &&
		    rq->rq_length > BLKIF_MAX_SEGMENTS_PER_REQUEST *
		    PAGE_SIZE));
	}
}

int
xbd_status(struct pv_blk *blk, const struct pv_blk_req *rq,
    const struct pvq_done *pd, uintmax_t *seen)
{
	const struct xbd_softc *sc = __containerof(blk, struct xbd_softc,
	    xbd_blk);
	const struct blkif_response *rsp = grant_ring_response(pd);

	if (!xbd_answers(sc, rq, rsp->operation)) {
		*seen = rsp->operation;
		return (-1);
	}
	switch (rsp->status) {
	case BLKIF_RSP_OKAY:
		return (0);
	case BLKIF_RSP_ERROR:
		return (EIO);
	case BLKIF_RSP_EOPNOTSUPP:
		return (EOPNOTSUPP);
	default:
		*seen = (uint16_t)rsp->status;
		return (-1);
	}
}
