/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * bus_dma(9), the machine-independent part: the kinds of memory that are loaded.
 *
 * Each kind of memory (buffer, mbuf chain, uio, bio, any memdesc(9)) is taken apart into
 * runs of virtual or physical addresses, which the tag's implementation turns into segments.
 *
 * A load with a callback that may wait (no BUS_DMA_NOWAIT) first stores a description of the whole
 * memory in the map: when bounce pages are short it returns EINPROGRESS, and the load is repeated
 * from the beginning when there are enough.
 *
 * Gaps.  No CAM control blocks, no crypto requests, no M_EXTPG mbufs, no user addresses.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/memdesc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/uio.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

#include <machine/bus.h>

#include <kern/bus_tree.h>

static int
load_vlist(bus_dma_tag_t dmat, bus_dmamap_t map, const bus_dma_segment_t *list, int n,
    int flags, bus_dma_segment_t *segs, int *nsegs)
{
	int error, i;

	error = 0;
	for (i = 0; i < n && error == 0; i++)
		error = _bus_dmamap_load_buffer(dmat, map, (void *)(uintptr_t)list[i].ds_addr,
		    list[i].ds_len, kernel_pmap, flags, segs, nsegs);
	return (error);
}

static int
load_plist(bus_dma_tag_t dmat, bus_dmamap_t map, const bus_dma_segment_t *list, int n,
    int flags, bus_dma_segment_t *segs, int *nsegs)
{
	int error, i;

	error = 0;
	for (i = 0; i < n && error == 0; i++)
		error = _bus_dmamap_load_phys(dmat, map, list[i].ds_addr, list[i].ds_len, flags,
		    segs, nsegs);
	return (error);
}

static int
load_mbufs(bus_dma_tag_t dmat, bus_dmamap_t map, struct mbuf *m0, int flags,
    bus_dma_segment_t *segs, int *nsegs)
{
	struct mbuf *m;
	int error;

	error = 0;
	for (m = m0; m != NULL && error == 0; m = m->m_next) {
		if (m->m_len == 0)
			continue;
		KASSERT((m->m_flags & M_EXTPG) == 0, ("%s: unmapped mbuf %p", __func__, m));
		error = _bus_dmamap_load_buffer(dmat, map, m->m_data, m->m_len, kernel_pmap,
		    flags | BUS_DMA_LOAD_MBUF, segs, nsegs);
	}
	return (error);
}

static int
load_uio(bus_dma_tag_t dmat, bus_dmamap_t map, const struct uio *uio, int flags,
    bus_dma_segment_t *segs, int *nsegs)
{
	bus_size_t len, resid;
	int error, i;

	KASSERT(uio->uio_segflg == UIO_SYSSPACE, ("%s: user addresses", __func__));
	error = 0;
	resid = uio->uio_resid;
	for (i = 0; i < uio->uio_iovcnt && resid != 0 && error == 0; i++) {
		len = MIN(resid, uio->uio_iov[i].iov_len);
		if (len == 0)
			continue;
		error = _bus_dmamap_load_buffer(dmat, map, uio->uio_iov[i].iov_base, len,
		    kernel_pmap, flags, segs, nsegs);
		resid -= len;
	}
	return (error);
}

static int
load_memdesc(bus_dma_tag_t dmat, bus_dmamap_t map, struct memdesc *mem, int flags,
    bus_dma_segment_t *segs, int *nsegs)
{
	switch (mem->md_type) {
	case MEMDESC_VADDR:
		return (_bus_dmamap_load_buffer(dmat, map, mem->u.md_vaddr, mem->md_len,
		    kernel_pmap, flags, segs, nsegs));
	case MEMDESC_PADDR:
		return (_bus_dmamap_load_phys(dmat, map, mem->u.md_paddr, mem->md_len, flags,
		    segs, nsegs));
	case MEMDESC_VLIST:
		return (load_vlist(dmat, map, mem->u.md_list, mem->md_nseg, flags, segs, nsegs));
	case MEMDESC_PLIST:
		return (load_plist(dmat, map, mem->u.md_list, mem->md_nseg, flags, segs, nsegs));
	case MEMDESC_UIO:
		return (load_uio(dmat, map, mem->u.md_uio, flags, segs, nsegs));
	case MEMDESC_MBUF:
		return (load_mbufs(dmat, map, mem->u.md_mbuf, flags, segs, nsegs));
	case MEMDESC_VMPAGES:
		return (_bus_dmamap_load_ma(dmat, map, mem->u.md_ma, mem->md_len,
		    mem->md_offset, flags, segs, nsegs));
	default:
		panic("%s: memory of type %u", __func__, mem->md_type);
	}
}

/*
 * Load any memory.  Unless the load was deferred (EINPROGRESS), the callback has run when this
 * returns, with the error if there was one.  ENOMEM is also returned, so that a caller that may
 * not wait can pass it on.
 */
int
bus_dmamap_load_mem(bus_dma_tag_t dmat, bus_dmamap_t map, struct memdesc *mem,
    bus_dmamap_callback_t *callback, void *callback_arg, int flags)
{
	bus_dma_segment_t *segs;
	int error, nsegs;

	if ((flags & BUS_DMA_NOWAIT) == 0)
		_bus_dmamap_waitok(dmat, map, mem, callback, callback_arg);
	nsegs = -1;
	segs = busdma_segs_take(dmat);
	error = segs == NULL ? ENOMEM : load_memdesc(dmat, map, mem, flags, segs, &nsegs);
	if (error != EINPROGRESS) {
		nsegs++;
		_bus_dmamap_complete(dmat, map, segs, nsegs, error);
		(*callback)(callback_arg, segs, error == 0 ? nsegs : 0, error);
	}
	busdma_segs_give(dmat, segs);
	return (error == ENOMEM || error == EINPROGRESS ? error : 0);
}

int
bus_dmamap_load(bus_dma_tag_t dmat, bus_dmamap_t map, void *buf, bus_size_t buflen,
    bus_dmamap_callback_t *callback, void *callback_arg, int flags)
{
	struct memdesc mem = memdesc_vaddr(buf, buflen);

	return (bus_dmamap_load_mem(dmat, map, &mem, callback, callback_arg, flags));
}

int
bus_dmamap_load_bio(bus_dma_tag_t dmat, bus_dmamap_t map, struct bio *bio,
    bus_dmamap_callback_t *callback, void *callback_arg, int flags)
{
	struct memdesc mem = memdesc_bio(bio);

	return (bus_dmamap_load_mem(dmat, map, &mem, callback, callback_arg, flags));
}

/*
 * Mbufs and uios are never deferred, and their callback gets the total size.
 */
static int
load_finish2(bus_dma_tag_t dmat, bus_dmamap_t map, bus_dma_segment_t *segs, int nsegs,
    bus_size_t size, int error, bus_dmamap_callback2_t *callback, void *callback_arg)
{
	nsegs++;
	_bus_dmamap_complete(dmat, map, segs, nsegs, error);
	if (error != 0)
		(*callback)(callback_arg, segs, 0, 0, error);
	else
		(*callback)(callback_arg, segs, nsegs, size, 0);
	busdma_segs_give(dmat, segs);
	return (error);
}

int
bus_dmamap_load_mbuf(bus_dma_tag_t dmat, bus_dmamap_t map, struct mbuf *m0,
    bus_dmamap_callback2_t *callback, void *callback_arg, int flags)
{
	bus_dma_segment_t *segs;
	int error, nsegs;

	M_ASSERTPKTHDR(m0);
	nsegs = -1;
	segs = busdma_segs_take(dmat);
	error = segs == NULL ? ENOMEM :
	    load_mbufs(dmat, map, m0, flags | BUS_DMA_NOWAIT, segs, &nsegs);
	return (load_finish2(dmat, map, segs, nsegs, m0->m_pkthdr.len, error, callback,
	    callback_arg));
}

int
bus_dmamap_load_uio(bus_dma_tag_t dmat, bus_dmamap_t map, struct uio *uio,
    bus_dmamap_callback2_t *callback, void *callback_arg, int flags)
{
	bus_dma_segment_t *segs;
	int error, nsegs;

	nsegs = -1;
	segs = busdma_segs_take(dmat);
	error = segs == NULL ? ENOMEM :
	    load_uio(dmat, map, uio, flags | BUS_DMA_NOWAIT, segs, &nsegs);
	return (load_finish2(dmat, map, segs, nsegs, uio->uio_resid, error, callback,
	    callback_arg));
}

/*
 * As bus_dmamap_load_mbuf(), with the segments in the caller's array: no callback.
 */
int
bus_dmamap_load_mbuf_sg(bus_dma_tag_t dmat, bus_dmamap_t map, struct mbuf *m0,
    bus_dma_segment_t *segs, int *nsegs, int flags)
{
	int error;

	*nsegs = -1;
	error = load_mbufs(dmat, map, m0, flags | BUS_DMA_NOWAIT, segs, nsegs);
	++*nsegs;
	_bus_dmamap_complete(dmat, map, segs, *nsegs, error);
	return (error);
}

/*
 * A default implementation of load_ma: page by page.
 */
int
bus_dmamap_load_ma_triv(bus_dma_tag_t dmat, bus_dmamap_t map, struct vm_page **ma,
    bus_size_t tlen, int ma_offs, int flags, bus_dma_segment_t *segs, int *segp)
{
	bus_size_t len;
	int error, i;

	error = 0;
	for (i = 0; tlen > 0 && error == 0; i++) {
		len = MIN(PAGE_SIZE - ma_offs, tlen);
		error = _bus_dmamap_load_phys(dmat, map, VM_PAGE_TO_PHYS(ma[i]) + ma_offs, len,
		    flags, segs, segp);
		ma_offs = 0;
		tlen -= len;
	}
	return (error);
}
