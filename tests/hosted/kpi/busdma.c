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
 *
 * With kpi_bounced, the device has memory of its own, as with bounce pages, and data crosses only when
 * a map is synced, in the direction that is said; of memory of bus_dmamem_alloc(9), which both use all
 * the time, what has changed.  The device's memory of what is loaded is freed when that is unloaded.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>
#include <sys/bus.h>
#include <sys/mbuf.h>
#include <sys/queue.h>

#include <vm/vm.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>
#include <machine/bus.h>
#ifdef __amd64__
#include <x86/busdma_impl.h>
#else
#include <machine/bus_dma_impl.h>
#endif

#include "../host/host.h"
#include "kpi.h"

/* More is not copied at each sync: it would take too long. */
#define	KPI_BOUNCED_MAX	(1 << 16)

struct kpi_piece {
	char		*kp_mem;
	size_t		 kp_len;
};

struct bus_dmamap {
	bus_dma_tag_t	 bm_tag;
	char		*bm_mem;	/* of bus_dmamem_alloc() */
	bool		 bm_loaded;
	/* With kpi_bounced. */
	char		*bm_dev;	/* what the device has */
	uint64_t	*bm_same;	/* of bm_mem: what both had at the last sync */
	LIST_ENTRY(bus_dmamap) bm_link;	/* of those that have it */
	struct kpi_piece *bm_pieces;	/* what is loaded otherwise, one after the other in bm_dev */
	int		 bm_npieces;
	bus_dmasync_op_t bm_before;	/* PREREAD, PREWRITE that have no POST yet */
};

struct kpi_tag {
	struct bus_dma_tag_common kt_common;
	int		 kt_maps;
};

bool kpi_scattered;
bool kpi_bounced;

static LIST_HEAD(, bus_dmamap) kpi_merged = LIST_HEAD_INITIALIZER(kpi_merged);

int kpi_load_error;
int kpi_tag_error;
void (*kpi_dma_crossed)(void);
int kpi_dma_tags;
int kpi_dma_maps;
int kpi_dma_unsynced;
size_t kpi_dma_bytes;

vm_paddr_t
pmap_kextract(vm_offset_t va)
{

	return (kpi_scattered ? va ^ PAGE_SIZE : va);
}

static int
kpi_mem_alloc(bus_dma_tag_t dmat, void **vaddr, int flags, bus_dmamap_t *mapp)
{
	struct kpi_tag *kt = (struct kpi_tag *)dmat;
	size_t size = kt->kt_common.maxsize;
	const bool bounced = kpi_bounced && size <= KPI_BOUNCED_MAX;
	bus_dmamap_t map;

	/* A device would see what was there before, and what both use all the time is coherent. */
	CHECK((flags & (BUS_DMA_ZERO | BUS_DMA_COHERENT)) == (BUS_DMA_ZERO | BUS_DMA_COHERENT),
	    "flags 0x%x", flags);
	*vaddr = NULL;
	*mapp = NULL;
	if (kpi_fail_now())
		return (ENOMEM);
	map = host_alloc(sizeof(*map), sizeof(void *));
	*map = (struct bus_dmamap){ .bm_tag = dmat };
	if (bounced)
		size = roundup2(size, sizeof(uint64_t));
	map->bm_mem = host_alloc(size, MAX(kt->kt_common.alignment, sizeof(uint64_t)));
	memset(map->bm_mem, 0, size);
	if (bounced) {
		map->bm_dev = host_alloc(size, MAX(kt->kt_common.alignment, sizeof(uint64_t)));
		map->bm_same = host_alloc(size, sizeof(uint64_t));
		memset(map->bm_dev, 0, size);
		memset(map->bm_same, 0, size);
		LIST_INSERT_HEAD(&kpi_merged, map, bm_link);
	}
	kt->kt_maps++;
	kpi_dma_maps++;
	kpi_dma_bytes += kt->kt_common.maxsize;
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
	kpi_dma_bytes -= kt->kt_common.maxsize;
	if (map->bm_same != NULL)
		LIST_REMOVE(map, bm_link);
	host_free(map->bm_mem);
	host_free(map->bm_dev);
	host_free(map->bm_same);
	host_free(map);
	kt->kt_maps--;
	kpi_dma_maps--;
}

static int
kpi_map_create(bus_dma_tag_t dmat, int flags, bus_dmamap_t *mapp)
{
	struct kpi_tag *kt = (struct kpi_tag *)dmat;
	bus_dmamap_t map;

	CHECK((flags & ~BUS_DMA_COHERENT) == 0, "flags 0x%x", flags);
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
	kpi_dma_unsynced += map->bm_pieces != NULL && map->bm_before != 0;
	if (map->bm_pieces != NULL) {
		host_free(map->bm_pieces);
		host_free(map->bm_dev);
		map->bm_pieces = NULL;
		map->bm_dev = NULL;
	}
}

/* Which bytes differ, as a mask. */
static uint64_t
kpi_changed(uint64_t a, uint64_t b)
{
	uint64_t mask = 0;
	u_int bit;

	for (bit = 0; bit < 64; bit += NBBY)
		if (((a ^ b) >> bit & 0xff) != 0)
			mask |= (uint64_t)0xff << bit;
	return (mask);
}

/* Bytes of a word that the other side may read at any time: an index is not half old, half new. */
static void
kpi_store(uint64_t *word, uint64_t value, uint64_t mask)
{
	u_int i;

	for (i = 0; i < sizeof(*word); i += 2, value >>= 16, mask >>= 16) {
		if ((mask & 0xffff) == 0xffff)
			atomic_store_16((uint16_t *)word + i / 2, (uint16_t)value);
		else if ((mask & 0xff) != 0)
			atomic_store_8((uint8_t *)word + i, (uint8_t)value);
		else if ((mask & 0xff00) != 0)
			atomic_store_8((uint8_t *)word + i + 1, (uint8_t)(value >> 8));
	}
}

/*
 * Of memory that both have: what the driver has changed goes to the device before it is to look, and
 * what the device has changed comes back after that.  The device, and the driver's other side, write at
 * the same time: each word is read once, and a sync waits for the one before.
 */
static void
kpi_merge(struct bus_dmamap *map, bus_dmasync_op_t op)
{
	static volatile u_int busy;
	size_t i, words = howmany(((struct kpi_tag *)map->bm_tag)->kt_common.maxsize, sizeof(uint64_t));
	uint64_t *mem = (uint64_t *)map->bm_mem, *dev = (uint64_t *)map->bm_dev, *same = map->bm_same;
	uint64_t changed, ours, theirs;

	while (atomic_cmpset_acq_int(&busy, 0, 1) == 0)
		host_yield();
	for (i = 0; i < words; i++) {
		ours = atomic_load_64(&mem[i]);
		theirs = atomic_load_64(&dev[i]);
		if (ours == same[i] && theirs == same[i])
			continue;
		changed = kpi_changed(ours, same[i]);
		if ((op & (BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE)) != 0) {
			kpi_store(&dev[i], ours, changed);
			same[i] = (same[i] & ~changed) | (ours & changed);
		} else {
			changed = kpi_changed(theirs, same[i]) & ~changed;
			kpi_store(&mem[i], theirs, changed);
			same[i] = (same[i] & ~changed) | (theirs & changed);
		}
	}
	atomic_store_rel_int(&busy, 0);
}

void
kpi_dma_arrives(void)
{
	struct bus_dmamap *map;

	LIST_FOREACH(map, &kpi_merged, bm_link)
		kpi_merge(map, BUS_DMASYNC_POSTREAD);
}

/* What is loaded crosses. */
static void
kpi_cross(struct bus_dmamap *map, bus_dmasync_op_t op)
{
	const struct kpi_piece *kp = map->bm_pieces;
	size_t at = 0;

	CHECK((op & BUS_DMASYNC_POSTREAD) == 0 || (map->bm_before & BUS_DMASYNC_PREREAD) != 0,
	    "POSTREAD without PREREAD");
	CHECK((op & BUS_DMASYNC_POSTWRITE) == 0 || (map->bm_before & BUS_DMASYNC_PREWRITE) != 0,
	    "POSTWRITE without PREWRITE");
	map->bm_before = op & (BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	for (; kp < map->bm_pieces + map->bm_npieces; at += kp->kp_len, kp++) {
		if ((op & BUS_DMASYNC_PREWRITE) != 0)
			memcpy(map->bm_dev + at, kp->kp_mem, kp->kp_len);
		if ((op & BUS_DMASYNC_POSTREAD) != 0)
			memcpy(kp->kp_mem, map->bm_dev + at, kp->kp_len);
	}
}

/* The segments of a map that was loaded are the device's memory. */
static void
kpi_bounce(struct bus_dmamap *map, bus_dma_segment_t *segs, int n)
{
	size_t size = 0, at = 0;
	int i;

	map->bm_loaded = true;
	map->bm_before = 0;
	if (!kpi_bounced || n == 0)
		return;
	map->bm_pieces = host_alloc(n * sizeof(*map->bm_pieces), sizeof(void *));
	map->bm_npieces = n;
	for (i = 0; i < n; i++)
		size += segs[i].ds_len;
	map->bm_dev = host_alloc(size, PAGE_SIZE);
	memset(map->bm_dev, 0x5a, size);
	for (i = 0; i < n; at += segs[i++].ds_len) {
		map->bm_pieces[i] = (struct kpi_piece){ (char *)(uintptr_t)segs[i].ds_addr,
		    segs[i].ds_len };
		segs[i].ds_addr = (bus_addr_t)(uintptr_t)map->bm_dev + at;
	}
}

static void
kpi_map_sync(bus_dma_tag_t dmat, bus_dmamap_t map, bus_dmasync_op_t op)
{

	CHECK(map->bm_tag == dmat, "synced by the wrong tag");
	CHECK(map->bm_loaded, "synced while not loaded");
	CHECK(op != 0, "synced in no direction");
	CHECK((op & (BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE)) == 0 ||
	    (op & (BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE)) == 0,
	    "PRE and POST in one sync");
	if (map->bm_pieces != NULL)
		kpi_cross(map, op);
	else if (map->bm_dev != NULL) {
		kpi_merge(map, op);
		if (kpi_dma_crossed != NULL &&
		    (op & (BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE)) != 0)
			kpi_dma_crossed();
	}
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
	CHECK((flags & ~(BUS_DMA_ALLOCNOW | BUS_DMA_COHERENT)) == 0, "flags 0x%x", flags);
	*dmat = NULL;
	if (kpi_tag_error != 0)
		return (kpi_tag_error);
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

void
kpi_dma_limits(bus_dma_tag_t dmat, struct kpi_dma_limits *out)
{
	const struct bus_dma_tag_common *kt = &((struct kpi_tag *)dmat)->kt_common;

	*out = (struct kpi_dma_limits){ .kdl_alignment = kt->alignment, .kdl_boundary = kt->boundary,
	    .kdl_size = kt->maxsize, .kdl_seg_size = kt->maxsegsz, .kdl_nsegs = kt->nsegments };
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
	CHECK(map->bm_mem == NULL || buf == map->bm_mem, "another memory");
	segs = host_alloc(nsegs * sizeof(*segs), sizeof(void *));
	for (at = 0; at < buflen; at += max) {
		segs[n].ds_addr = (bus_addr_t)(uintptr_t)(map->bm_dev != NULL ? map->bm_dev : buf) + at;
		segs[n++].ds_len = MIN(max, buflen - at);
	}
	if (kpi_load_error != 0)
		nsegs = 0;
	else if (map->bm_mem != NULL)
		map->bm_loaded = true;
	else
		kpi_bounce(map, segs, n);
	callback(callback_arg, segs, nsegs, kpi_load_error);
	host_free(segs);
	return (0);
}

/* Adds len bytes of memory to n segments: as many as the tag makes of it; -1: too many. */
static int
kpi_add_segs(const struct kpi_tag *kt, bus_dma_segment_t *segs, int n, void *mem, size_t len)
{
	size_t at, part;

	for (at = 0; at < len; at += part) {
		if (n == kt->kt_common.nsegments)
			return (-1);
		part = MIN(len - at, kt->kt_common.maxsegsz);
		segs[n].ds_addr = (bus_addr_t)(uintptr_t)mem + at;
		segs[n++].ds_len = part;
	}
	return (n);
}

/* Each mbuf is a segment, or several. */
int
bus_dmamap_load_mbuf_sg(bus_dma_tag_t dmat, bus_dmamap_t map, struct mbuf *m, bus_dma_segment_t *segs,
    int *nsegs, int flags)
{
	int n;

	CHECK(map->bm_tag == dmat && !map->bm_loaded && flags == BUS_DMA_NOWAIT,
	    "loaded twice, or it sleeps");
	if (kpi_fail_now())
		return (ENOMEM);
	CHECK(m->m_pkthdr.len <= (int)((struct kpi_tag *)dmat)->kt_common.maxsize, "%d bytes",
	    m->m_pkthdr.len);
	for (n = 0; m != NULL; m = m->m_next) {
		n = kpi_add_segs((struct kpi_tag *)dmat, segs, n, m->m_data, m->m_len);
		if (n < 0)
			return (EFBIG);
	}
	kpi_bounce(map, segs, n);
	*nsegs = n;
	return (0);
}

/* Each page is a segment, or several; of memory that is mapped, all of it. */
int
bus_dmamap_load_bio(bus_dma_tag_t dmat, bus_dmamap_t map, struct bio *bp,
    bus_dmamap_callback_t *callback, void *callback_arg, int flags)
{
	struct kpi_tag *kt = (struct kpi_tag *)dmat;
	size_t off, part, left = bp->bio_bcount;
	bus_dma_segment_t *segs;
	int error = 0, n = 0;

	CHECK(map->bm_tag == dmat && !map->bm_loaded && flags == BUS_DMA_NOWAIT,
	    "loaded twice, or it sleeps");
	/* After an error the caller unloads what of it may be loaded. */
	map->bm_loaded = true;
	if (kpi_fail_now())
		return (ENOMEM);
	segs = host_alloc(kt->kt_common.nsegments * sizeof(*segs), sizeof(void *));
	if ((bp->bio_flags & BIO_UNMAPPED) == 0)
		n = kpi_add_segs(kt, segs, 0, bp->bio_data, left);
	for (off = bp->bio_ma_offset; (bp->bio_flags & BIO_UNMAPPED) != 0 && n >= 0 && left > 0;
	    off += part, left -= part) {
		part = MIN(left, PAGE_SIZE - off % PAGE_SIZE);
		n = kpi_add_segs(kt, segs, n, (void *)(uintptr_t)(
		    VM_PAGE_TO_PHYS(bp->bio_ma[off / PAGE_SIZE]) + off % PAGE_SIZE), part);
	}
	if (n < 0)
		error = EFBIG;
	else
		kpi_bounce(map, segs, n);
	callback(callback_arg, segs, MAX(n, 0), error);
	host_free(segs);
	return (0);
}
