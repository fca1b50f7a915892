/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: the memory of a transmit queue: buffers, maps and headers.
 *
 * Locking.  None: allocation is attach's, freeing detach's.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/epoch.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <machine/bus.h>

#include <dev/pv/pvq.h>
#include <dev/pv/pv_net.h>
#include <dev/pv/pv_net_var.h>

#define	PV_NET_TX_RING_MIN	1024		/* packets that wait for the queue */

static void
pv_net_tx_hdr_loaded(void *arg, bus_dma_segment_t *segs, int nsegs __unused, int error)
{
	if (error == 0)
		*(bus_addr_t *)arg = segs[0].ds_addr;
}

/* Memory for the headers that can't stand before their frame, one piece for all buffers. */
static int
pv_net_tx_alloc_hdrs(struct pv_net_txq *txq, u_int size)
{
	struct pv_net *pn = txq->ptq_pn;
	bus_size_t stride, bytes;
	u_int i;
	int error;

	if (pn->pn_params.pnp_hdrlen == 0)
		return (0);
	stride = roundup2(pn->pn_params.pnp_hdrlen, 8);
	bytes = stride * size;
	error = bus_dma_tag_create(bus_get_dma_tag(pn->pn_dev), 8, 0, BUS_SPACE_MAXADDR,
	    BUS_SPACE_MAXADDR, NULL, NULL, bytes, 1, bytes, 0, NULL, NULL, &txq->ptq_hdr_tag);
	if (error == 0)
		error = bus_dmamem_alloc(txq->ptq_hdr_tag, &txq->ptq_hdrs,
		    BUS_DMA_WAITOK | BUS_DMA_ZERO, &txq->ptq_hdr_map);
	if (error != 0)
		return (error);
	error = bus_dmamap_load(txq->ptq_hdr_tag, txq->ptq_hdr_map, txq->ptq_hdrs, bytes,
	    pv_net_tx_hdr_loaded, &txq->ptq_hdrs_addr, BUS_DMA_NOWAIT);
	if (error != 0)
		return (error);
	for (i = 0; i < size; i++) {
		txq->ptq_bufs[i].ptb_hdr = (char *)txq->ptq_hdrs + i * stride;
		txq->ptq_bufs[i].ptb_hdr_addr = txq->ptq_hdrs_addr + i * stride;
	}
	return (0);
}

int
pv_net_tx_alloc(struct pv_net_txq *txq)
{
	const struct pv_net_params *params = &txq->ptq_pn->pn_params;
	u_int i, size = txq->ptq_pvq->q_size;
	int error;

	txq->ptq_ring = buf_ring_alloc(MAX(1 << flsl(size - 1), PV_NET_TX_RING_MIN), M_PVNET,
	    M_WAITOK, &txq->ptq_mtx);
	error = params->pnp_phys ? 0 : bus_dma_tag_create(bus_get_dma_tag(txq->ptq_pn->pn_dev), 1,
	    params->pnp_boundary, BUS_SPACE_MAXADDR, BUS_SPACE_MAXADDR, NULL, NULL,
	    PV_NET_MAX_FRAME + params->pnp_hdrlen, params->pnp_tx_segs, params->pnp_seg_max, 0,
	    NULL, NULL, &txq->ptq_tag);
	if (error != 0)
		return (error);
	txq->ptq_bufs = malloc(size * sizeof(txq->ptq_bufs[0]), M_PVNET, M_WAITOK | M_ZERO);
	txq->ptq_free = malloc(size * sizeof(txq->ptq_free[0]), M_PVNET, M_WAITOK | M_ZERO);
	/* One more than the tag may give, for the header. */
	txq->ptq_segs = malloc((size_t)size * (params->pnp_tx_segs + 1) *
	    sizeof(txq->ptq_segs[0]), M_PVNET, M_WAITOK | M_ZERO);
	for (i = 0; i < size; i++) {
		txq->ptq_bufs[i].ptb_segs = &txq->ptq_segs[i * (params->pnp_tx_segs + 1)];
		if (txq->ptq_tag != NULL)
			error = bus_dmamap_create(txq->ptq_tag, 0, &txq->ptq_bufs[i].ptb_map);
		if (error != 0)
			return (error);
		txq->ptq_free[i] = &txq->ptq_bufs[i];
		txq->ptq_nbufs = txq->ptq_nfree = i + 1;
	}
	return (pv_net_tx_alloc_hdrs(txq, size));
}

static void
pv_net_tx_free_hdrs(struct pv_net_txq *txq)
{
	if (txq->ptq_hdrs_addr != 0)
		bus_dmamap_unload(txq->ptq_hdr_tag, txq->ptq_hdr_map);
	if (txq->ptq_hdrs != NULL)
		bus_dmamem_free(txq->ptq_hdr_tag, txq->ptq_hdrs, txq->ptq_hdr_map);
	if (txq->ptq_hdr_tag != NULL)
		bus_dma_tag_destroy(txq->ptq_hdr_tag);
	txq->ptq_hdrs_addr = 0;
	txq->ptq_hdrs = NULL;
	txq->ptq_hdr_tag = NULL;
}

/* Undo pv_net_tx_alloc(), however far it came. */
void
pv_net_tx_free(struct pv_net_txq *txq)
{
	u_int i;

	/* Packets that a dead device still may read are not given back. */
	if (txq->ptq_nfree != txq->ptq_nbufs)
		return;
	pv_net_tx_free_hdrs(txq);
	for (i = 0; i < txq->ptq_nbufs && txq->ptq_tag != NULL; i++)
		bus_dmamap_destroy(txq->ptq_tag, txq->ptq_bufs[i].ptb_map);
	if (txq->ptq_tag != NULL)
		bus_dma_tag_destroy(txq->ptq_tag);
	if (txq->ptq_ring != NULL)
		drbr_free(txq->ptq_ring, M_PVNET);
	free(txq->ptq_segs, M_PVNET);
	free(txq->ptq_free, M_PVNET);
	free(txq->ptq_bufs, M_PVNET);
	txq->ptq_tag = NULL;
	txq->ptq_ring = NULL;
	txq->ptq_segs = NULL;
	txq->ptq_free = NULL;
	txq->ptq_bufs = NULL;
	txq->ptq_nbufs = txq->ptq_nfree = 0;
}
