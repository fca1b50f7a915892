/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the tags and maps of bus_dma(9) (busdma_load.c) and its bounce pages (busdma_bounce.c)
 * share.
 *
 * Not FreeBSD's: <x86/busdma_impl.h> has a table of functions, for IOMMUs as well; here is one
 * implementation.
 */

#ifndef _BUSDMA_TREE_H_
#define	_BUSDMA_TREE_H_

#include <sys/queue.h>
#include <sys/memdesc.h>

struct bounce_zone;

/* One page of bounce memory. */
struct bounce_page {
	STAILQ_ENTRY(bounce_page) bp_link;	/* free list of the zone, or the map's */
	char		*bp_vaddr;		/* the page */
	bus_addr_t	bp_busaddr;
	char		*bp_data;		/* the memory it stands for, while it is in a map */
	uint32_t	bp_off;			/* of the copy, in the page */
	uint32_t	bp_len;
};
STAILQ_HEAD(bounce_list, bounce_page);

struct bus_dma_tag {
	struct bus_dma_tag_common common;
	int			map_count;
	bool			could_bounce;
	bool			mem_malloced;	/* bus_dmamem_alloc() used malloc(9) */
	bus_dma_segment_t	*volatile segments; /* spare array of loads with a callback, or NULL */
	struct bounce_zone	*zone;
};

struct bus_dmamap {
	struct bounce_list	pages;		/* in use, in the order of the memory */
	u_int			npages;		/* how many those are */
	u_int			reserved;	/* taken off the zone's count, not yet in pages */
	u_int			wanted;		/* pages that a load that was put off waits for */
	u_int			quota;		/* pages that the zone grew for this map */
	bus_dma_tag_t		dmat;
	struct memdesc		mem;		/* a load that may be put off */
	bus_dmamap_callback_t	*callback;	/* NULL: must not be */
	void			*callback_arg;
	enum {
		BOUNCE_IDLE,
		BOUNCE_WAITING,			/* on the zone's list, for wanted pages */
		BOUNCE_READY			/* has them reserved, is to be loaded again */
	} state;
	STAILQ_ENTRY(bus_dmamap) link;
};

/* hw.busdma.force_bounce */
extern int busdma_force_bounce;

/*
 * The zone for memory up to lowaddr, made if there is none; NULL without memory.  A user
 * announces by grow, and takes back by shrink, how many pages it may need at a time; the zone
 * has the pages for all announcements up to a limit.
 */
struct bounce_zone *bounce_zone_get(bus_addr_t lowaddr);
u_int	bounce_zone_grow(struct bounce_zone *bz, u_int npages);
void	bounce_zone_shrink(struct bounce_zone *bz, u_int npages);

/*
 * Reserve npages more for the map.  0, ENOMEM, or EINPROGRESS: the map was queued, and its
 * load will be done again when that many and those that it has already are free.
 */
int	bounce_reserve(bus_dma_tag_t dmat, bus_dmamap_t map, u_int npages, bool wait);

/*
 * Put a reserved page in place of len bytes at pa, which lie within one page; its bus address.
 */
bus_addr_t bounce_add(bus_dma_tag_t dmat, bus_dmamap_t map, vm_paddr_t pa, bus_size_t len,
	    bool keep_offset);

/* Give back all pages of the map, the reserved ones too. */
void	bounce_release(bus_dma_tag_t dmat, bus_dmamap_t map);

/* Copy between memory and bounce pages as op says. */
void	bounce_sync(bus_dmamap_t map, bus_dmasync_op_t op);

/* Forget a load that was put off. */
void	bounce_cancel(bus_dma_tag_t dmat, bus_dmamap_t map);

#endif /* !_BUSDMA_TREE_H_ */
