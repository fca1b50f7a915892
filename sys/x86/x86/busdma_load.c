/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * bus_dma(9): from memory to segments.
 *
 * A load walks memory page by page.  A part that the device can't use, because of its address
 * or its alignment, is replaced by a bounce page (busdma_bounce.c); the parts are then strung
 * together to segments as long as they are adjacent and within the tag's limits.  A load counts
 * the pages it will need before it takes the first, so that it either has all of them or none.
 *
 * A tag whose device can reach all memory needs no maps, and its maps are NULL, as is the map
 * of bus_dmamem_alloc() memory, which is never bounced.  A load that fails leaves nothing in
 * the map.
 *
 * A load with a callback is given its array of segments by the tag, which keeps a spare one: two
 * loads at a time, with two maps, have two arrays.
 *
 * Locking.  A driver serialises the operations on one map.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/memdesc.h>
#include <sys/mutex.h>
#include <sys/proc.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_kern.h>
#include <vm/vm_page.h>

#include <machine/bus.h>
#include <machine/md_var.h>

#include <kern/bus_tree.h>
#include <x86/x86/busdma_tree.h>

#define	MAX_SEGMENTS	65536	/* of a tag that has maps */

static MALLOC_DEFINE(M_BUSDMA, "busdma", "bus_dma maps and segments");

static bool
must_bounce(bus_dma_tag_t dmat, bus_dmamap_t map, vm_paddr_t pa)
{
	if (map == NULL || !dmat->could_bounce)
		return (false);
	return (busdma_force_bounce != 0 ||
	    (pa > dmat->common.lowaddr && pa <= dmat->common.highaddr) ||
	    !vm_addr_align_ok(pa, dmat->common.alignment));
}

/* Whatever memory there is: that is what the direct map can hold. */
static bool
reaches_all(const struct bus_dma_tag_common *tag)
{
	return (tag->lowaddr >= kva_layout.dmap_high - kva_layout.dmap_low - 1);
}

static int
bounce_tag_create(bus_dma_tag_t parent, bus_size_t alignment, bus_addr_t boundary,
    bus_addr_t lowaddr, bus_addr_t highaddr, bus_size_t maxsize, int nsegments,
    bus_size_t maxsegsz, int flags, bus_dma_lock_t *lockfunc, void *lockfuncarg,
    bus_dma_tag_t *dmatp)
{
	bus_dma_tag_t dmat;
	void *tag;
	int error;

	error = common_bus_dma_tag_create((struct bus_dma_tag_common *)parent, alignment,
	    boundary, lowaddr, highaddr, maxsize, nsegments, maxsegsz, flags, lockfunc,
	    lockfuncarg, sizeof(struct bus_dma_tag), &tag);
	if (error != 0)
		return (error);
	dmat = tag;
	dmat->could_bounce = busdma_force_bounce != 0 || dmat->common.alignment > 1 ||
	    !reaches_all(&dmat->common);
	if (dmat->could_bounce) {
		dmat->zone = bounce_zone_get(dmat->common.lowaddr);
		if (dmat->zone == NULL) {
			free(dmat, M_DEVBUF);
			return (ENOMEM);
		}
		/*
		 * Pages stay with the zone; announced and taken back, these are there from now
		 * on.
		 */
		if ((flags & BUS_DMA_ALLOCNOW) != 0)
			bounce_zone_shrink(dmat->zone,
			    bounce_zone_grow(dmat->zone, MAX(atop(round_page(maxsize)), 1)));
	}
	*dmatp = dmat;
	return (0);
}

static int
bounce_tag_destroy(bus_dma_tag_t dmat)
{
	if (dmat->map_count != 0)
		return (EBUSY);
	free(dmat->segments, M_BUSDMA);
	free(dmat, M_DEVBUF);
	return (0);
}

static int
bounce_tag_set_domain(bus_dma_tag_t dmat)
{
	return (0);
}

static bool
bounce_id_mapped(bus_dma_tag_t dmat, vm_paddr_t pa, bus_size_t len)
{
	return (!dmat->could_bounce || (busdma_force_bounce == 0 &&
	    (pa + len <= dmat->common.lowaddr || pa > dmat->common.highaddr) &&
	    vm_addr_align_ok(pa, dmat->common.alignment)));
}

bus_dma_segment_t *
busdma_segs_take(bus_dma_tag_t dmat)
{
	bus_dma_segment_t *segs;

	segs = (void *)atomic_swap_ptr((volatile uintptr_t *)&dmat->segments, 0);
	if (segs == NULL && dmat->common.nsegments <= MAX_SEGMENTS)
		segs = mallocarray(dmat->common.nsegments, sizeof(*segs), M_BUSDMA, M_NOWAIT);
	return (segs);
}

void
busdma_segs_give(bus_dma_tag_t dmat, bus_dma_segment_t *segs)
{
	if (segs != NULL && !atomic_cmpset_rel_ptr((volatile uintptr_t *)&dmat->segments, 0,
	    (uintptr_t)segs))
		free(segs, M_BUSDMA);
}

/*
 * The tag's spare array, made with its first map or memory.  A tag without a limit
 * (BUS_SPACE_UNRESTRICTED) can only be a parent.
 */
static int
tag_segments(bus_dma_tag_t dmat)
{
	bus_dma_segment_t *segs = busdma_segs_take(dmat);

	busdma_segs_give(dmat, segs);
	return (segs == NULL ? ENOMEM : 0);
}

/*
 * Pages that one load of the tag's size may take: one more than its length has, for memory
 * that does not begin on a page.
 */
static u_int
map_quota(bus_dma_tag_t dmat)
{
	bus_size_t size = MIN(dmat->common.maxsize,
	    dmat->common.nsegments * MIN(dmat->common.maxsegsz, maxphys + PAGE_SIZE));

	return (MIN(howmany(size, PAGE_SIZE), howmany(maxphys, PAGE_SIZE)) + 1);
}

static int
bounce_map_create(bus_dma_tag_t dmat, int flags, bus_dmamap_t *mapp)
{
	bus_dmamap_t map;

	*mapp = NULL;
	if (tag_segments(dmat) != 0)
		return (ENOMEM);
	if (dmat->could_bounce) {
		map = malloc(sizeof(*map), M_BUSDMA, M_NOWAIT | M_ZERO);
		if (map == NULL)
			return (ENOMEM);
		STAILQ_INIT(&map->pages);
		map->dmat = dmat;
		map->quota = bounce_zone_grow(dmat->zone, map_quota(dmat));
		*mapp = map;
	}
	dmat->map_count++;
	return (0);
}

static int
bounce_map_destroy(bus_dma_tag_t dmat, bus_dmamap_t map)
{
	if (map != NULL) {
		if (map->npages != 0 || map->state != BOUNCE_IDLE)
			return (EBUSY);
		bounce_zone_shrink(dmat->zone, map->quota);
		free(map, M_BUSDMA);
	}
	KASSERT(dmat->map_count > 0, ("more maps destroyed than created"));
	dmat->map_count--;
	return (0);
}

/*
 * Whether the memory of the tag may consist of single pages anywhere.
 */
static bool
mem_scattered(bus_dma_tag_t dmat)
{
	const struct bus_dma_tag_common *tag = &dmat->common;

	return (tag->nsegments >= howmany(tag->maxsize, MIN(tag->maxsegsz, PAGE_SIZE)) &&
	    tag->alignment <= PAGE_SIZE &&
	    (tag->boundary == 0 || tag->boundary >= PAGE_SIZE));
}

static int
bounce_mem_alloc(bus_dma_tag_t dmat, void **vaddr, int flags, bus_dmamap_t *mapp)
{
	const struct bus_dma_tag_common *tag = &dmat->common;
	vm_memattr_t attr;
	int mflags;

	*mapp = NULL;
	if (tag_segments(dmat) != 0)
		return (ENOMEM);
	mflags = (flags & BUS_DMA_NOWAIT) != 0 ? M_NOWAIT : M_WAITOK;
	if ((flags & BUS_DMA_ZERO) != 0)
		mflags |= M_ZERO;
	attr = (flags & BUS_DMA_NOCACHE) != 0 ? VM_MEMATTR_UNCACHEABLE : VM_MEMATTR_DEFAULT;

	dmat->mem_malloced = tag->maxsize < PAGE_SIZE && tag->alignment <= PAGE_SIZE / 2 &&
	    (tag->boundary == 0 || tag->boundary >= malloc_size(tag->maxsize)) &&
	    reaches_all(tag) && attr == VM_MEMATTR_DEFAULT;
	if (dmat->mem_malloced)
		*vaddr = malloc_aligned(MAX(tag->maxsize, 1), tag->alignment, M_DEVBUF, mflags);
	else if (mem_scattered(dmat))
		*vaddr = kmem_alloc_attr(tag->maxsize, mflags, 0, tag->lowaddr, attr);
	else
		*vaddr = kmem_alloc_contig(tag->maxsize, mflags, 0, tag->lowaddr,
		    tag->alignment, tag->boundary, attr);
	return (*vaddr == NULL ? ENOMEM : 0);
}

static void
bounce_mem_free(bus_dma_tag_t dmat, void *vaddr, bus_dmamap_t map)
{
	KASSERT(map == NULL, ("memory of bus_dmamem_alloc() freed with map %p", map));
	if (dmat->mem_malloced)
		free(vaddr, M_DEVBUF);
	else
		kmem_free(vaddr, dmat->common.maxsize);
}

/*
 * Append [pa, pa + len) to the segments: to the last one as far as it is adjacent, else as new
 * ones. False if there are too many.
 */
static bool
add_segments(bus_dma_tag_t dmat, bus_addr_t pa, bus_size_t len, bus_dma_segment_t *segs,
    int *segp)
{
	const struct bus_dma_tag_common *tag = &dmat->common;
	bus_dma_segment_t *last;
	bus_size_t n;

	for (; len > 0; pa += n, len -= n) {
		n = MIN(len, tag->maxsegsz);
		if (!vm_addr_bound_ok(pa, n, tag->boundary))
			n = roundup2(pa + 1, tag->boundary) - pa;
		last = &segs[*segp];
		if (*segp >= 0 && last->ds_addr + last->ds_len == pa &&
		    last->ds_len + n <= tag->maxsegsz &&
		    vm_addr_bound_ok(last->ds_addr, last->ds_len + n, tag->boundary)) {
			last->ds_len += n;
			continue;
		}
		if ((u_int)(*segp + 1) >= tag->nsegments)
			return (false);
		++*segp;
		segs[*segp].ds_addr = pa;
		segs[*segp].ds_len = n;
	}
	return (true);
}

/*
 * Where the memory of a load lies: one of a virtual range, a physical range, an array of pages.
 */
struct load_memory {
	vm_offset_t	va;
	vm_paddr_t	pa;
	struct vm_page	**ma;
	bus_size_t	off;		/* in the first page of ma */
};

static vm_paddr_t
memory_at(const struct load_memory *lm, bus_size_t off)
{
	if (lm->ma != NULL) {
		off += lm->off;
		return (VM_PAGE_TO_PHYS(lm->ma[atop(off)]) + (off & PAGE_MASK));
	}
	if (lm->va != 0)
		return (pmap_kextract(lm->va + off));
	return (lm->pa + off);
}

/*
 * The next part of a load: to the end of its page.  A part that bounces takes one page, however many
 * segments add_segments() makes of it.
 */
static bus_size_t
part_len(vm_paddr_t pa, bus_size_t left)
{
	return (MIN(left, PAGE_SIZE - (pa & PAGE_MASK)));
}

static int
reserve_for_load(bus_dma_tag_t dmat, bus_dmamap_t map, const struct load_memory *lm,
    bus_size_t len, int flags)
{
	bus_size_t n, off;
	vm_paddr_t pa;
	u_int npages;

	npages = 0;
	for (off = 0; off < len; off += n) {
		pa = memory_at(lm, off);
		n = part_len(pa, len - off);
		if (must_bounce(dmat, map, pa))
			npages++;
	}
	if (npages == 0)
		return (0);
	/* The zone has pages for maxsize, so a lack of them would not say what is wrong. */
	if (len > dmat->common.maxsize)
		return (EFBIG);
	return (bounce_reserve(dmat, map, npages, (flags & BUS_DMA_NOWAIT) == 0));
}

/*
 * What most loads are: a piece of memory that is one physically, that every device reaches, and that
 * makes one segment or the end of one.  False if it is something else.
 */
static bool
load_piece(bus_dma_tag_t dmat, vm_paddr_t pa, bus_size_t len, bus_dma_segment_t *segs, int *segp)
{
	const struct bus_dma_tag_common *tag = &dmat->common;
	int n = *segp + 1;

	if (dmat->could_bounce || tag->boundary != 0)
		return (false);
	if (n > 0 && segs[n - 1].ds_addr + segs[n - 1].ds_len == pa) {
		if (segs[n - 1].ds_len + len > tag->maxsegsz)
			return (false);
		segs[n - 1].ds_len += len;
		return (true);
	}
	if (len > tag->maxsegsz || (u_int)n >= tag->nsegments)
		return (false);
	segs[n].ds_addr = pa;
	segs[n].ds_len = len;
	*segp = n;
	return (true);
}

/*
 * Load one run of memory behind what is in segs already.
 */
static int
load_run(bus_dma_tag_t dmat, bus_dmamap_t map, const struct load_memory *lm, bus_size_t len,
    int flags, bus_dma_segment_t *segs, int *segp)
{
	bus_size_t n, off;
	bus_addr_t addr;
	vm_paddr_t pa;
	int error;

	error = 0;
	if (map != NULL && dmat->could_bounce)
		error = reserve_for_load(dmat, map, lm, len, flags);
	for (off = 0; error == 0 && off < len; off += n) {
		pa = memory_at(lm, off);
		n = part_len(pa, len - off);
		addr = pa;
		if (must_bounce(dmat, map, pa))
			addr = bounce_add(dmat, map, pa, n,
			    (dmat->common.flags & BUS_DMA_KEEP_PG_OFFSET) != 0);
		if (!add_segments(dmat, addr, n, segs, segp))
			error = EFBIG;
	}
	if (error != 0 && error != EINPROGRESS && map != NULL)
		bounce_release(dmat, map);
	return (error);
}

static int
bounce_load_buffer(bus_dma_tag_t dmat, bus_dmamap_t map, void *buf, bus_size_t len,
    struct pmap *pmap, int flags, bus_dma_segment_t *segs, int *segp)
{
	vm_offset_t va = (vm_offset_t)buf;
	struct load_memory lm = { .va = va };
	vm_paddr_t pa = pmap_kextract(va);

	KASSERT(pmap == kernel_pmap, ("%s: user addresses", __func__));
	/* The direct map is of physical memory in its order, and mbufs lie in it. */
	if (segs != NULL && (VIRT_IN_DMAP(va) || len <= PAGE_SIZE - (pa & PAGE_MASK)) &&
	    load_piece(dmat, pa, len, segs, segp))
		return (0);
	return (load_run(dmat, map, &lm, len, flags, segs, segp));
}

static int
bounce_load_phys(bus_dma_tag_t dmat, bus_dmamap_t map, vm_paddr_t pa, bus_size_t len,
    int flags, bus_dma_segment_t *segs, int *segp)
{
	struct load_memory lm = { .pa = pa };

	return (load_run(dmat, map, &lm, len, flags, segs, segp));
}

static int
bounce_load_ma(bus_dma_tag_t dmat, bus_dmamap_t map, struct vm_page **ma, bus_size_t len,
    int ma_offs, int flags, bus_dma_segment_t *segs, int *segp)
{
	struct load_memory lm = { .ma = ma, .off = ma_offs };

	return (load_run(dmat, map, &lm, len, flags, segs, segp));
}

static void
bounce_map_waitok(bus_dma_tag_t dmat, bus_dmamap_t map, struct memdesc *mem,
    bus_dmamap_callback_t *callback, void *callback_arg)
{
	map->mem = *mem;
	map->callback = callback;
	map->callback_arg = callback_arg;
}

static bus_dma_segment_t *
bounce_map_complete(bus_dma_tag_t dmat, bus_dmamap_t map, bus_dma_segment_t *segs, int nsegs,
    int error)
{
	return (segs);
}

static void
bounce_map_unload(bus_dma_tag_t dmat, bus_dmamap_t map)
{
	bounce_cancel(dmat, map);
	bounce_release(dmat, map);
}

static void
bounce_map_sync(bus_dma_tag_t dmat, bus_dmamap_t map, bus_dmasync_op_t op)
{
	bounce_sync(map, op);
	/* Orders the copies, and the driver's own stores, before it notifies the device. */
	atomic_thread_fence_seq_cst();
}

struct bus_dma_impl bus_dma_bounce_impl = {
	.tag_create = bounce_tag_create,
	.tag_destroy = bounce_tag_destroy,
	.tag_set_domain = bounce_tag_set_domain,
	.id_mapped = bounce_id_mapped,
	.map_create = bounce_map_create,
	.map_destroy = bounce_map_destroy,
	.mem_alloc = bounce_mem_alloc,
	.mem_free = bounce_mem_free,
	.load_ma = bounce_load_ma,
	.load_phys = bounce_load_phys,
	.load_buffer = bounce_load_buffer,
	.map_waitok = bounce_map_waitok,
	.map_complete = bounce_map_complete,
	.map_unload = bounce_map_unload,
	.map_sync = bounce_map_sync,
};
