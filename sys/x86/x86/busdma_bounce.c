/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Bounce pages: memory that a device can reach in place of memory that it can't.
 *
 * Pages belong to zones, one for each upper limit of addresses.  A zone grows as maps are created
 * and announce what they may need; the pages stay when they are destroyed, for the next driver.
 *
 *	free  --bounce_reserve-->  reserved for a map  --bounce_add-->  in the map
 *	free  <--bounce_release--  (both)
 *
 * A load that may wait and finds too few free pages puts its map on the zone's waiting list.
 * When pages come back, the first maps in the list whose needs are met get theirs reserved, and
 * a software interrupt loads them again and calls their drivers back, under the lock of the
 * tag.  The list is first come, first served, so that a large load is not starved by small
 * ones.
 *
 * hw.busdma.force_bounce makes every load bounce, whatever the device can reach.  Then a page
 * is also filled with a pattern when it is put into a map, before the device writes to it, and
 * when it is given back: a driver that forgets PREWRITE sends the pattern, one that forgets
 * POSTREAD reads stale memory, and a device that writes late writes into nothing that is in
 * use.
 *
 * Locking.  bounce_mtx protects zones, free lists and waiting lists.  A map's own list belongs
 * to the driver, who serialises loads, syncs and unloads of one map.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/interrupt.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sysctl.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_page.h>

#include <machine/bus.h>

#include <x86/x86/busdma_tree.h>

#define	BOUNCE_POISON	0xb5

struct bounce_zone {
	STAILQ_ENTRY(bounce_zone)	bz_link;
	bus_addr_t			bz_lowaddr;
	struct bounce_list		bz_pages;	/* neither in a map nor lost */
	u_int				bz_total;
	u_int				bz_avail;	/* in bz_pages and not reserved */
	u_int				bz_quota;	/* announced by maps */
	STAILQ_HEAD(, bus_dmamap)	bz_waiting;
};

static MALLOC_DEFINE(M_BOUNCE, "bounce", "bus_dma bounce zones");

static struct mtx bounce_mtx;
MTX_SYSINIT(bounce, &bounce_mtx, "bounce pages", MTX_DEF);
static STAILQ_HEAD(, bounce_zone) bounce_zones = STAILQ_HEAD_INITIALIZER(bounce_zones);
static STAILQ_HEAD(, bus_dmamap) bounce_ready = STAILQ_HEAD_INITIALIZER(bounce_ready);
static void *bounce_ih;

SYSCTL_NODE(_hw, OID_AUTO, busdma, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "bus_dma");

int busdma_force_bounce;
SYSCTL_INT(_hw_busdma, OID_AUTO, force_bounce, CTLFLAG_RDTUN, &busdma_force_bounce, 0,
    "Bounce every load, to test that drivers synchronise their maps");
static u_int bounce_total_pages;
SYSCTL_UINT(_hw_busdma, OID_AUTO, total_bpages, CTLFLAG_RD, &bounce_total_pages, 0,
    "Bounce pages");
static u_int bounce_active_pages;
SYSCTL_UINT(_hw_busdma, OID_AUTO, active_bpages, CTLFLAG_RD, &bounce_active_pages, 0,
    "Bounce pages in maps");
static uint64_t bounce_total_bounced;
SYSCTL_U64(_hw_busdma, OID_AUTO, total_bounced, CTLFLAG_RD, &bounce_total_bounced, 0,
    "Times that a bounce page was put in place of memory");
static uint64_t bounce_total_deferred;
SYSCTL_U64(_hw_busdma, OID_AUTO, total_deferred, CTLFLAG_RD, &bounce_total_deferred, 0,
    "Loads that had to wait for bounce pages");
static uint64_t bounce_total_failed;
SYSCTL_U64(_hw_busdma, OID_AUTO, total_failed, CTLFLAG_RD, &bounce_total_failed, 0,
    "Loads that failed for want of bounce pages");

static u_int bounce_max_pages;
SYSCTL_UINT(_hw_busdma, OID_AUTO, max_bpages, CTLFLAG_RDTUN, &bounce_max_pages, 0,
    "Bounce pages that a zone may have (0: an eighth of memory, 8192 at most)");

static u_int
bounce_limit(void)
{
	if (bounce_max_pages != 0)
		return (bounce_max_pages);
	return (MIN(vm_cnt.v_page_count / 8, 8192));
}

static struct bounce_zone *
bounce_zone_find(bus_addr_t lowaddr)
{
	struct bounce_zone *bz;

	STAILQ_FOREACH(bz, &bounce_zones, bz_link)
		if (bz->bz_lowaddr == lowaddr)
			break;
	return (bz);
}

struct bounce_zone *
bounce_zone_get(bus_addr_t lowaddr)
{
	struct bounce_zone *bz, *found;

	bz = malloc(sizeof(*bz), M_BOUNCE, M_NOWAIT | M_ZERO);
	mtx_lock(&bounce_mtx);
	found = bounce_zone_find(lowaddr);
	if (found == NULL && bz != NULL) {
		bz->bz_lowaddr = lowaddr;
		STAILQ_INIT(&bz->bz_pages);
		STAILQ_INIT(&bz->bz_waiting);
		STAILQ_INSERT_TAIL(&bounce_zones, bz, bz_link);
		found = bz;
		bz = NULL;
	}
	mtx_unlock(&bounce_mtx);
	free(bz, M_BOUNCE);
	return (found);
}

static bool
bounce_page_new(struct bounce_zone *bz)
{
	struct bounce_page *bp;

	bp = malloc(sizeof(*bp), M_BOUNCE, M_NOWAIT | M_ZERO);
	if (bp == NULL)
		return (false);
	bp->bp_vaddr = kmem_alloc_contig(PAGE_SIZE, M_NOWAIT, 0, bz->bz_lowaddr, PAGE_SIZE, 0,
	    VM_MEMATTR_DEFAULT);
	if (bp->bp_vaddr == NULL) {
		free(bp, M_BOUNCE);
		return (false);
	}
	bp->bp_busaddr = pmap_kextract((vm_offset_t)bp->bp_vaddr);
	memset(bp->bp_vaddr, BOUNCE_POISON, PAGE_SIZE);
	mtx_lock(&bounce_mtx);
	STAILQ_INSERT_TAIL(&bz->bz_pages, bp, bp_link);
	bz->bz_total++;
	bz->bz_avail++;
	bounce_total_pages++;
	mtx_unlock(&bounce_mtx);
	return (true);
}

/*
 * Returns how many pages were announced, which is for bounce_zone_shrink().
 */
u_int
bounce_zone_grow(struct bounce_zone *bz, u_int npages)
{
	u_int missing;

	mtx_lock(&bounce_mtx);
	bz->bz_quota += npages;
	missing = MIN(bz->bz_quota, bounce_limit());
	missing = missing > bz->bz_total ? missing - bz->bz_total : 0;
	mtx_unlock(&bounce_mtx);
	while (missing-- > 0)
		if (!bounce_page_new(bz))
			break;
	return (npages);
}

void
bounce_zone_shrink(struct bounce_zone *bz, u_int npages)
{
	mtx_lock(&bounce_mtx);
	bz->bz_quota -= npages;
	mtx_unlock(&bounce_mtx);
}

/*
 * Move the maps that can have their pages now from waiting to ready.
 */
static void
bounce_wake(struct bounce_zone *bz)
{
	bus_dmamap_t map;
	bool woken = false;

	mtx_lock(&bounce_mtx);
	while ((map = STAILQ_FIRST(&bz->bz_waiting)) != NULL && bz->bz_avail >= map->wanted) {
		STAILQ_REMOVE_HEAD(&bz->bz_waiting, link);
		bz->bz_avail -= map->wanted;
		map->reserved = map->wanted;
		map->state = BOUNCE_READY;
		STAILQ_INSERT_TAIL(&bounce_ready, map, link);
		woken = true;
	}
	mtx_unlock(&bounce_mtx);
	if (woken)
		swi_sched(bounce_ih, 0);
}

static void
bounce_free_pages(struct bounce_zone *bz, bus_dmamap_t map)
{
	struct bounce_page *bp;

	if (busdma_force_bounce != 0)
		STAILQ_FOREACH(bp, &map->pages, bp_link)
			memset(bp->bp_vaddr, BOUNCE_POISON, PAGE_SIZE);
	mtx_lock(&bounce_mtx);
	bz->bz_avail += map->npages + map->reserved;
	bounce_active_pages -= map->npages;
	STAILQ_CONCAT(&bz->bz_pages, &map->pages);
	map->npages = 0;
	map->reserved = 0;
	mtx_unlock(&bounce_mtx);
}

void
bounce_release(bus_dma_tag_t dmat, bus_dmamap_t map)
{
	if (map->npages + map->reserved == 0)
		return;
	bounce_free_pages(dmat->zone, map);
	bounce_wake(dmat->zone);
}

int
bounce_reserve(bus_dma_tag_t dmat, bus_dmamap_t map, u_int npages, bool wait)
{
	struct bounce_zone *bz = dmat->zone;
	int error;

	error = 0;
	mtx_lock(&bounce_mtx);
	if (map->reserved >= npages) {
		/* They were set aside before a load that had been put off was done again. */
	} else if (bz->bz_avail >= npages - map->reserved &&
	    (STAILQ_EMPTY(&bz->bz_waiting) || map->npages + map->reserved != 0)) {
		bz->bz_avail -= npages - map->reserved;
		map->reserved = npages;
	} else if (wait && map->callback != NULL &&
	    map->npages + npages <= bz->bz_total) {
		map->wanted = map->npages + npages;
		error = EINPROGRESS;
	} else {
		bounce_total_failed++;
		error = ENOMEM;
	}
	mtx_unlock(&bounce_mtx);
	if (error != EINPROGRESS)
		return (error);

	/*
	 * What it has is part of what it waits for.  It goes back first: were it kept, two maps
	 * could wait for each other.
	 */
	bounce_free_pages(bz, map);
	mtx_lock(&bounce_mtx);
	bounce_total_deferred++;
	map->state = BOUNCE_WAITING;
	STAILQ_INSERT_TAIL(&bz->bz_waiting, map, link);
	mtx_unlock(&bounce_mtx);
	bounce_wake(bz);
	return (error);
}

bus_addr_t
bounce_add(bus_dma_tag_t dmat, bus_dmamap_t map, vm_paddr_t pa, bus_size_t len,
    bool keep_offset)
{
	struct bounce_page *bp;

	KASSERT(map->reserved > 0, ("map %p has no bounce page reserved", map));
	KASSERT((pa & PAGE_MASK) + len <= PAGE_SIZE, ("%#jx bytes at %#jx cross a page",
	    (uintmax_t)len, (uintmax_t)pa));
	mtx_lock(&bounce_mtx);
	bp = STAILQ_FIRST(&dmat->zone->bz_pages);
	STAILQ_REMOVE_HEAD(&dmat->zone->bz_pages, bp_link);
	bounce_active_pages++;
	bounce_total_bounced++;
	mtx_unlock(&bounce_mtx);
	map->reserved--;
	map->npages++;
	bp->bp_data = (char *)PHYS_TO_DMAP(pa);
	bp->bp_off = keep_offset ? pa & PAGE_MASK : 0;
	bp->bp_len = len;
	if (busdma_force_bounce != 0)
		memset(bp->bp_vaddr, BOUNCE_POISON, PAGE_SIZE);
	STAILQ_INSERT_TAIL(&map->pages, bp, bp_link);
	return (bp->bp_busaddr + bp->bp_off);
}

void
bounce_sync(bus_dmamap_t map, bus_dmasync_op_t op)
{
	struct bounce_page *bp;

	STAILQ_FOREACH(bp, &map->pages, bp_link) {
		if ((op & BUS_DMASYNC_PREWRITE) != 0)
			memcpy(bp->bp_vaddr + bp->bp_off, bp->bp_data, bp->bp_len);
		else if ((op & BUS_DMASYNC_PREREAD) != 0 && busdma_force_bounce != 0)
			memset(bp->bp_vaddr, BOUNCE_POISON, PAGE_SIZE);
		if ((op & BUS_DMASYNC_POSTREAD) != 0)
			memcpy(bp->bp_data, bp->bp_vaddr + bp->bp_off, bp->bp_len);
	}
}

void
bounce_cancel(bus_dma_tag_t dmat, bus_dmamap_t map)
{
	mtx_lock(&bounce_mtx);
	if (map->state == BOUNCE_WAITING)
		STAILQ_REMOVE(&dmat->zone->bz_waiting, map, bus_dmamap, link);
	else if (map->state == BOUNCE_READY)
		STAILQ_REMOVE(&bounce_ready, map, bus_dmamap, link);
	map->state = BOUNCE_IDLE;
	mtx_unlock(&bounce_mtx);
}

/*
 * Do the loads again whose pages have been reserved.
 */
static void
bounce_swi(void *dummy)
{
	struct bus_dma_tag_common *tag;
	bus_dmamap_t map;

	mtx_lock(&bounce_mtx);
	while ((map = STAILQ_FIRST(&bounce_ready)) != NULL) {
		STAILQ_REMOVE_HEAD(&bounce_ready, link);
		map->state = BOUNCE_IDLE;
		mtx_unlock(&bounce_mtx);
		tag = &map->dmat->common;
		tag->lockfunc(tag->lockfuncarg, BUS_DMA_LOCK);
		bus_dmamap_load_mem(map->dmat, map, &map->mem, map->callback,
		    map->callback_arg, BUS_DMA_WAITOK);
		tag->lockfunc(tag->lockfuncarg, BUS_DMA_UNLOCK);
		mtx_lock(&bounce_mtx);
	}
	mtx_unlock(&bounce_mtx);
}

static void
bounce_start(void *dummy)
{
	if (swi_add(NULL, "busdma", bounce_swi, NULL, SWI_BUSDMA, INTR_MPSAFE, &bounce_ih) != 0)
		panic("no software interrupt for bus_dma");
}
SYSINIT(bounce, SI_SUB_SOFTINTR, SI_ORDER_ANY, bounce_start, NULL);
