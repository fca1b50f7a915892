/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The memory of requests, all of which is allocated when a disk comes: none between a bio and the ring
 * (theory statement, locking: pv_blk.h).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/malloc.h>

#include <dev/pv/blk/pv_blk_peer.h>
#include <dev/pv/blk/pv_blk_var.h>

MALLOC_DEFINE(M_PVBLK, "pv_blk", "paravirtual disks");

#define	PV_BLK_BOUNCE_MAX	(64 * 1024)

/* Is data loaded by bus_dma(9)? */
static bool
pv_blk_maps(const struct pv_blk *blk)
{
	return (!blk->blk_params.bp_phys && blk->blk_ops->bo_peer == NULL);
}

static int
pv_blk_alloc_tags(struct pv_blk *blk)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	struct pv_blk_queue *bq;
	int error = 0;

	PV_BLK_FOREACH(blk, bq) {
		if (error == 0 && pv_blk_maps(blk))
			error = bus_dma_tag_create(bus_get_dma_tag(blk->blk_dev), 1, 0,
			    BUS_SPACE_MAXADDR, BUS_SPACE_MAXADDR, NULL, NULL, bp->bp_max_size,
			    (int)bp->bp_max_segs, bp->bp_seg_size, BUS_DMA_ALLOCNOW, NULL, NULL,
			    &bq->bq_dtag);
	}
	return (error);
}

static int
pv_blk_alloc_dma(struct pv_blk *blk)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	bus_dma_tag_t dmat = bus_get_dma_tag(blk->blk_dev);
	int error;

	error = pv_blk_alloc_tags(blk);
	if (error == 0)
		error = pv_dma_alloc(&blk->blk_msg_dma, dmat,
		    (pv_blk_nreqs(blk) + 1) * bp->bp_msgsize, PAGE_SIZE);
	blk->blk_bounce_size = MIN(bp->bp_max_size,
	    MAX(PV_BLK_BOUNCE_MAX, bp->bp_sectorsize));
	if (blk->blk_ops->bo_peer != NULL)
		blk->blk_bounce_size = MIN(blk->blk_bounce_size,
		    blk->blk_ops->bo_peer->bpo_polled_size);
	if (error == 0)
		error = pv_dma_alloc(&blk->blk_bounce_dma, dmat, blk->blk_bounce_size, PAGE_SIZE);
	blk->blk_msgs = blk->blk_msg_dma.pdm_mem;
	blk->blk_bounce = blk->blk_bounce_dma.pdm_mem;
	return (error);
}

static int
pv_blk_alloc_reqs(struct pv_blk *blk)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	struct pv_blk_req *rq;
	u_int i, nreqs = pv_blk_nreqs(blk), nsegs;
	int error = 0;

	/* A peer's request has none. */
	nsegs = (blk->blk_ops->bo_peer == NULL ? bp->bp_max_segs : 0) + 2;
	blk->blk_reqs = mallocarray(nreqs + 1, sizeof(*rq), M_PVBLK, M_WAITOK | M_ZERO);
	blk->blk_segs = mallocarray(nreqs + 1, nsegs * sizeof(*blk->blk_segs), M_PVBLK,
	    M_WAITOK | M_ZERO);
	for (i = 0; i <= nreqs; i++) {
		rq = &blk->blk_reqs[i];
		rq->rq_home = i < nreqs ? i / bp->bp_nreqs : 0;
		if (pv_blk_maps(blk))
			error = bus_dmamap_create(pv_blk_dtag(blk, rq), 0, &rq->rq_map);
		if (error != 0) {
			rq->rq_map = NULL;
			rq->rq_segs = NULL;
			return (error);
		}
		rq->rq_segs = blk->blk_segs + i * nsegs;
		rq->rq_msg = blk->blk_msgs + i * bp->bp_msgsize;
		rq->rq_msg_paddr = blk->blk_msg_dma.pdm_addr + i * bp->bp_msgsize;
		/* pv_blk_set_queues() deals them. */
		if (i < nreqs)
			SLIST_INSERT_HEAD(&blk->blk_queues[0].bq_free, rq, rq_next);
	}
	return (0);
}

int
pv_blk_req_init(struct pv_blk *blk)
{
	int error;

	error = pv_blk_alloc_dma(blk);
	return (error != 0 ? error : pv_blk_alloc_reqs(blk));
}

void
pv_blk_req_fini(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;
	u_int i;

	for (i = 0; blk->blk_reqs != NULL && i <= pv_blk_nreqs(blk); i++) {
		/* rq_segs is set after the map was made, which may be NULL. */
		if (blk->blk_reqs[i].rq_segs != NULL && pv_blk_maps(blk))
			bus_dmamap_destroy(pv_blk_dtag(blk, &blk->blk_reqs[i]),
			    blk->blk_reqs[i].rq_map);
	}
	free(blk->blk_segs, M_PVBLK);
	free(blk->blk_reqs, M_PVBLK);
	if ((blk->blk_flags & PVB_LEAK) != 0)
		device_printf(blk->blk_dev, "the device did not release its memory: leaking it\n");
	else {
		pv_dma_free(&blk->blk_bounce_dma);
		pv_dma_free(&blk->blk_msg_dma);
	}
	PV_BLK_FOREACH(blk, bq) {
		if (bq->bq_dtag != NULL)
			bus_dma_tag_destroy(bq->bq_dtag);
	}
}
