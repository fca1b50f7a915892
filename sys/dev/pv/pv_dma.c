/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Coherent memory, by bus_dma(9).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/errno.h>

#include <dev/pv/pv_dma.h>

/* The pieces that are looked for in the segments of a map. */
struct pv_dma_pieces {
	struct pv_dma	*pdm;
	bus_size_t	 size;
	int		 n;
	int		 found;
	bus_addr_t	*addrs;
};

static void
pv_dma_loaded(void *arg, bus_dma_segment_t *segs, int nsegs, int error)
{
	struct pv_dma_pieces *pieces = arg;
	bus_size_t begin = 0, want;
	int i;

	if (error != 0)
		return;
	pieces->pdm->pdm_addr = segs[0].ds_addr;
	for (i = 0; i < nsegs; i++) {
		while (pieces->found < pieces->n) {
			/* No piece may be in two segments. */
			want = pieces->found * pieces->size;
			if (want < begin ||
			    want + pieces->size > begin + segs[i].ds_len)
				break;
			pieces->addrs[pieces->found++] =
			    segs[i].ds_addr + (want - begin);
		}
		begin += segs[i].ds_len;
	}
}

int
pv_dma_alloc_pieces(struct pv_dma *pdm, bus_dma_tag_t parent, bus_size_t piece,
    int n, bus_size_t align, bus_addr_t *addrs)
{
	struct pv_dma_pieces pieces = {
		.pdm = pdm, .size = piece, .n = n, .addrs = addrs
	};
	int error;

	error = bus_dma_tag_create(parent, align, 0, BUS_SPACE_MAXADDR,
	    BUS_SPACE_MAXADDR, NULL, NULL, n * piece, n, piece, 0, NULL, NULL,
	    &pdm->pdm_tag);
	if (error != 0) {
		pdm->pdm_tag = NULL;
		return (error);
	}
	error = bus_dmamem_alloc(pdm->pdm_tag, &pdm->pdm_mem,
	    BUS_DMA_WAITOK | BUS_DMA_ZERO | BUS_DMA_COHERENT, &pdm->pdm_map);
	if (error != 0)
		pdm->pdm_mem = NULL;
	else
		error = bus_dmamap_load(pdm->pdm_tag, pdm->pdm_map,
		    pdm->pdm_mem, n * piece, pv_dma_loaded, &pieces,
		    BUS_DMA_NOWAIT);
	if (error == 0 && pieces.found < n)
		error = ENOMEM;
	if (error != 0)
		pv_dma_free(pdm);
	return (error);
}

int
pv_dma_alloc(struct pv_dma *pdm, bus_dma_tag_t parent, bus_size_t size,
    bus_size_t align)
{
	bus_addr_t addr;

	return (pv_dma_alloc_pieces(pdm, parent, size, 1, align, &addr));
}

u_int
pv_dma_alloc_some(struct pv_dma *pdm, bus_dma_tag_t parent, bus_size_t size,
    u_int n, u_int least, bus_size_t align)
{

	for (; pv_dma_alloc(pdm, parent, n * size, align) != 0;
	    n = MAX(n / 2, least))
		if (n <= least)
			return (0);
	return (n);
}

void
pv_dma_free(struct pv_dma *pdm)
{

	if (pdm->pdm_addr != 0)
		bus_dmamap_unload(pdm->pdm_tag, pdm->pdm_map);
	if (pdm->pdm_mem != NULL)
		bus_dmamem_free(pdm->pdm_tag, pdm->pdm_mem, pdm->pdm_map);
	if (pdm->pdm_tag != NULL)
		(void)bus_dma_tag_destroy(pdm->pdm_tag);
	memset(pdm, 0, sizeof(*pdm));
}
