/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Memory that a driver and its device both use for as long as the device is
 * attached: rings, headers, messages, bounce buffers.
 *
 * Locking.  None here: the owner allocates and frees it once.
 */

#ifndef _DEV_PV_PV_DMA_H_
#define	_DEV_PV_PV_DMA_H_

#include <sys/param.h>
#include <sys/bus.h>

#include <machine/bus.h>

/* Zeroed before pv_dma_alloc(). */
struct pv_dma {
	bus_dma_tag_t	 pdm_tag;	/* NULL: not allocated */
	bus_dmamap_t	 pdm_map;
	void		*pdm_mem;	/* for the CPU */
	bus_addr_t	 pdm_addr;	/* for the device */
};

/*
 * Allocate coherent memory, zeroed, in one piece for the device.  May sleep.
 *
 * parent  tag: usually bus_get_dma_tag(9) of the device
 * size    bytes
 * align   of the first one, a power of two
 *
 * Returns 0, ENOMEM or the error of bus_dma(9); nothing is allocated then.
 */
int	pv_dma_alloc(struct pv_dma *pdm, bus_dma_tag_t parent, bus_size_t size,
	    bus_size_t align);

/*
 * The same for memory that need not be in one piece: n pieces of so many bytes,
 * which follow each other for the CPU.
 *
 * addrs  set to where each piece is for the device; n of them
 */
int	pv_dma_alloc_pieces(struct pv_dma *pdm, bus_dma_tag_t parent,
	    bus_size_t piece, int n, bus_size_t align, bus_addr_t *addrs);

/*
 * pv_dma_alloc() for n things of size bytes each or, if there is no memory, for
 * half as many, and so on, down to the least number that is of use.  Returns
 * for how many; 0: nothing is allocated.
 */
u_int	pv_dma_alloc_some(struct pv_dma *pdm, bus_dma_tag_t parent,
    bus_size_t size,
	    u_int n, u_int least, bus_size_t align);

/*
 * bus_dmamap_sync(9).  Where memory is not cache-coherent, BUS_DMA_COHERENT
 * made it uncached, and this is a barrier; with bounce pages it would be wrong
 * to copy all of it, and bus_dmamem_alloc(9) never returns memory that needs
 * it.
 */
static inline void
pv_dma_sync(const struct pv_dma *pdm, bus_dmasync_op_t op)
{

	if (pdm->pdm_map != NULL)
		bus_dmamap_sync(pdm->pdm_tag, pdm->pdm_map, op);
}

/* Free it, if it is allocated: the device uses it no more. */
void	pv_dma_free(struct pv_dma *pdm);

#endif /* !_DEV_PV_PV_DMA_H_ */
