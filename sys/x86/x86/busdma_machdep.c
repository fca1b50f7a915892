/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * bus_dma(9): tags, and the dispatch to the implementation that a tag belongs to.
 *
 * There is one implementation, bus_dma_bounce_impl; a tag inherits it, and the limits of its
 * address window, from its parent.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_extern.h>

#include <machine/bus.h>

/*
 * The lock function of drivers that name a mutex.
 */
void
busdma_lock_mutex(void *arg, bus_dma_lock_op_t op)
{
	struct mtx *mtx = arg;

	switch (op) {
	case BUS_DMA_LOCK:
		mtx_lock(mtx);
		break;
	case BUS_DMA_UNLOCK:
		mtx_unlock(mtx);
		break;
	default:
		panic("%s: operation %d", __func__, op);
	}
}

/*
 * The lock function of drivers that have none: their loads must not be put off.
 */
void
_busdma_dflt_lock(void *arg, bus_dma_lock_op_t op)
{
	panic("bus_dma: a load was put off whose tag has no lock function");
}

/*
 * Check the arguments, allocate a tag of sz bytes and fill in the common part.
 */
int
common_bus_dma_tag_create(struct bus_dma_tag_common *parent, bus_size_t alignment,
    bus_addr_t boundary, bus_addr_t lowaddr, bus_addr_t highaddr, bus_size_t maxsize,
    int nsegments, bus_size_t maxsegsz, int flags, bus_dma_lock_t *lockfunc,
    void *lockfuncarg, size_t sz, void **dmat)
{
	struct bus_dma_tag_common *tag;

	KASSERT(sz >= sizeof(*tag), ("%s: %zu bytes", __func__, sz));
	if (boundary != 0 && boundary < maxsegsz)
		maxsegsz = boundary;
	if (maxsegsz == 0 || alignment == 0 || !powerof2(alignment) || !powerof2(boundary) ||
	    nsegments == 0)
		return (EINVAL);
	tag = malloc(sz, M_DEVBUF, M_NOWAIT | M_ZERO);
	if (tag == NULL)
		return (ENOMEM);
	tag->impl = &bus_dma_bounce_impl;
	tag->alignment = alignment;
	tag->boundary = boundary;
	tag->lowaddr = trunc_page(lowaddr) + (PAGE_SIZE - 1);
	tag->highaddr = trunc_page(highaddr) + (PAGE_SIZE - 1);
	tag->maxsize = maxsize;
	tag->nsegments = nsegments;
	tag->maxsegsz = maxsegsz;
	tag->flags = flags;
	tag->lockfunc = lockfunc != NULL ? lockfunc : _busdma_dflt_lock;
	tag->lockfuncarg = lockfunc != NULL ? lockfuncarg : NULL;
	if (parent != NULL) {
		tag->impl = parent->impl;
		tag->lowaddr = MIN(tag->lowaddr, parent->lowaddr);
		tag->highaddr = MAX(tag->highaddr, parent->highaddr);
		if (tag->boundary == 0 ||
		    (parent->boundary != 0 && parent->boundary < tag->boundary))
			tag->boundary = parent->boundary;
		if (tag->boundary != 0 && tag->boundary < tag->maxsegsz)
			tag->maxsegsz = tag->boundary;
		tag->domain = parent->domain;
	}
	*dmat = tag;
	return (0);
}

int
bus_dma_tag_create(bus_dma_tag_t parent, bus_size_t alignment, bus_addr_t boundary,
    bus_addr_t lowaddr, bus_addr_t highaddr, bus_dma_filter_t *filtfunc, void *filtfuncarg,
    bus_size_t maxsize, int nsegments, bus_size_t maxsegsz, int flags,
    bus_dma_lock_t *lockfunc, void *lockfuncarg, bus_dma_tag_t *dmat)
{
	struct bus_dma_impl *impl;

	*dmat = NULL;
	if (filtfunc != NULL || filtfuncarg != NULL)
		return (EINVAL);
	impl = parent == NULL ? &bus_dma_bounce_impl :
	    ((struct bus_dma_tag_common *)parent)->impl;
	return (impl->tag_create(parent, alignment, boundary, lowaddr, highaddr, maxsize,
	    nsegments, maxsegsz, flags, lockfunc, lockfuncarg, dmat));
}

int
bus_dma_tag_set_domain(bus_dma_tag_t dmat, int domain)
{
	struct bus_dma_tag_common *tag = (struct bus_dma_tag_common *)dmat;

	if (domain == tag->domain)
		return (0);
	tag->domain = domain;
	return (tag->impl->tag_set_domain(dmat));
}

int
bus_dma_tag_destroy(bus_dma_tag_t dmat)
{
	return (dmat == NULL ? 0 : ((struct bus_dma_tag_common *)dmat)->impl->tag_destroy(dmat));
}
