/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * bus_dma(9), and pmap_kextract(9), where a device's address is the virtual address.
 *
 * Every map is a piece of heap of its own, so that one used after it was destroyed is seen by ASan,
 * and every sync is checked to be of a loaded map.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/mbuf.h>

#include <vm/vm.h>
#include <vm/pmap.h>
#include <machine/bus.h>
#ifdef __amd64__
#include <x86/busdma_impl.h>
#else
#include <machine/bus_dma_impl.h>
#endif

#include "../host/host.h"
#include "kpi.h"

struct bus_dmamap {
	bus_dma_tag_t	 bm_tag;
	void		*bm_mem;	/* of bus_dmamem_alloc() */
	bool		 bm_loaded;
};

struct kpi_tag {
	struct bus_dma_tag_common kt_common;
	int		 kt_maps;
};

bool kpi_scattered;
int kpi_dma_tags;
int kpi_dma_maps;

vm_paddr_t
pmap_kextract(vm_offset_t va)
{

	return (kpi_scattered ? va ^ PAGE_SIZE : va);
}

static int
kpi_mem_alloc(bus_dma_tag_t dmat, void **vaddr, int flags, bus_dmamap_t *mapp)
{
	struct kpi_tag *kt = (struct kpi_tag *)dmat;
	bus_dmamap_t map;

	*vaddr = NULL;
	*mapp = NULL;
	if (kpi_fail_now())
		return (ENOMEM);
	map = host_alloc(sizeof(*map), sizeof(void *));
	map->bm_tag = dmat;
	map->bm_mem = host_alloc(kt->kt_common.maxsize, kt->kt_common.alignment);
	map->bm_loaded = false;
	memset(map->bm_mem, (flags & BUS_DMA_ZERO) != 0 ? 0 : 0xa5, kt->kt_common.maxsize);
	kt->kt_maps++;
	kpi_dma_maps++;
	*vaddr = map->bm_mem;
	*mapp = map;
	return (0);
}

static void
kpi_mem_free(bus_dma_tag_t dmat, void *vaddr, bus_dmamap_t map)
{
	struct kpi_tag *kt = (struct kpi_tag *)dmat;

	CHECK(map->bm_tag == dmat && map->bm_mem == vaddr, "freed by the wrong tag");
	CHECK(!map->bm_loaded, "freed while loaded");
	host_free(map->bm_mem);
	host_free(map);
	kt->kt_maps--;
	kpi_dma_maps--;
}

static int
kpi_map_create(bus_dma_tag_t dmat, int flags __unused, bus_dmamap_t *mapp)
{
	struct kpi_tag *kt = (struct kpi_tag *)dmat;
	bus_dmamap_t map;

	*mapp = NULL;
	if (kpi_fail_now())
		return (ENOMEM);
	map = host_alloc(sizeof(*map), sizeof(void *));
	*map = (struct bus_dmamap){ .bm_tag = dmat };
	kt->kt_maps++;
	kpi_dma_maps++;
	*mapp = map;
	return (0);
}

static int
kpi_map_destroy(bus_dma_tag_t dmat, bus_dmamap_t map)
{
	struct kpi_tag *kt = (struct kpi_tag *)dmat;

	CHECK(map->bm_tag == dmat && map->bm_mem == NULL, "destroyed by the wrong tag");
	CHECK(!map->bm_loaded, "destroyed while loaded");
	host_free(map);
	kt->kt_maps--;
	kpi_dma_maps--;
	return (0);
}

static void
kpi_map_unload(bus_dma_tag_t dmat, bus_dmamap_t map)
{

	CHECK(map->bm_tag == dmat, "unloaded by the wrong tag");
	CHECK(map->bm_loaded, "unloaded twice");
	map->bm_loaded = false;
}

static void
kpi_map_sync(bus_dma_tag_t dmat, bus_dmamap_t map, bus_dmasync_op_t op)
{

	CHECK(map->bm_tag == dmat, "synced by the wrong tag");
	CHECK(map->bm_loaded, "synced while not loaded");
	CHECK((op & (BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE)) == 0 ||
	    (op & (BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE)) == 0,
	    "PRE and POST in one sync");
}

static struct bus_dma_impl kpi_dma_impl = {
	.mem_alloc = kpi_mem_alloc,
	.mem_free = kpi_mem_free,
	.map_create = kpi_map_create,
	.map_destroy = kpi_map_destroy,
	.map_unload = kpi_map_unload,
	.map_sync = kpi_map_sync,
};

static struct kpi_tag kpi_root = {
	.kt_common = { .impl = &kpi_dma_impl, .alignment = 1, .maxsize = BUS_SPACE_MAXSIZE },
};

bus_dma_tag_t kpi_dma_tag = (bus_dma_tag_t)&kpi_root;

bus_dma_tag_t
bus_get_dma_tag(device_t dev __unused)
{

	return (kpi_dma_tag);
}

int
bus_dma_tag_create(bus_dma_tag_t parent, bus_size_t alignment, bus_addr_t boundary,
    bus_addr_t lowaddr, bus_addr_t highaddr, bus_dma_filter_t *filter, void *filterarg,
    bus_size_t maxsize, int nsegments, bus_size_t maxsegsz, int flags,
    bus_dma_lock_t *lockfunc, void *lockfuncarg, bus_dma_tag_t *dmat)
{
	struct kpi_tag *kt;

	CHECK(parent != NULL && powerof2(alignment) && alignment != 0, "alignment %lu",
	    (unsigned long)alignment);
	kt = host_alloc(sizeof(*kt), sizeof(void *));
	memset(kt, 0, sizeof(*kt));
	kt->kt_common.impl = &kpi_dma_impl;
	kt->kt_common.alignment = alignment;
	kt->kt_common.boundary = boundary;
	kt->kt_common.lowaddr = lowaddr;
	kt->kt_common.highaddr = highaddr;
	kt->kt_common.maxsize = maxsize;
	kt->kt_common.nsegments = nsegments;
	kt->kt_common.maxsegsz = maxsegsz;
	kpi_dma_tags++;
	*dmat = (bus_dma_tag_t)kt;
	return (0);
}

int
bus_dma_tag_destroy(bus_dma_tag_t dmat)
{
	struct kpi_tag *kt = (struct kpi_tag *)dmat;

	CHECK(kt->kt_maps == 0, "tag destroyed with %d maps", kt->kt_maps);
	host_free(kt);
	kpi_dma_tags--;
	return (0);
}

int
bus_dmamap_load(bus_dma_tag_t dmat, bus_dmamap_t map, void *buf, bus_size_t buflen,
    bus_dmamap_callback_t *callback, void *callback_arg, int flags)
{
	struct kpi_tag *kt = (struct kpi_tag *)dmat;
	size_t max = MIN(buflen, kt->kt_common.maxsegsz), at;
	int n = 0, nsegs = howmany(buflen, max);
	bus_dma_segment_t *segs;

	CHECK(map->bm_tag == dmat && !map->bm_loaded, "loaded twice");
	CHECK(buflen <= kt->kt_common.maxsize, "%lu bytes", (unsigned long)buflen);
	CHECK(nsegs <= kt->kt_common.nsegments, "%d segments", nsegs);
	segs = host_alloc(nsegs * sizeof(*segs), sizeof(void *));
	for (at = 0; at < buflen; at += max) {
		segs[n].ds_addr = (bus_addr_t)(uintptr_t)buf + at;
		segs[n++].ds_len = MIN(max, buflen - at);
	}
	map->bm_loaded = true;
	callback(callback_arg, segs, nsegs, 0);
	host_free(segs);
	return (0);
}

/* Each mbuf is a segment, or as many as the tag makes of it. */
int
bus_dmamap_load_mbuf_sg(bus_dma_tag_t dmat, bus_dmamap_t map, struct mbuf *m, bus_dma_segment_t *segs,
    int *nsegs, int flags __unused)
{
	struct kpi_tag *kt = (struct kpi_tag *)dmat;
	size_t at, part;
	int n = 0;

	CHECK(map->bm_tag == dmat && !map->bm_loaded, "loaded twice");
	if (kpi_fail_now())
		return (ENOMEM);
	for (; m != NULL; m = m->m_next) {
		for (at = 0; at < (size_t)m->m_len; at += part) {
			if (n == kt->kt_common.nsegments)
				return (EFBIG);
			part = MIN(m->m_len - at, kt->kt_common.maxsegsz);
			segs[n].ds_addr = (bus_addr_t)(uintptr_t)m->m_data + at;
			segs[n++].ds_len = part;
		}
	}
	map->bm_loaded = true;
	*nsegs = n;
	return (0);
}
