/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Physical memory: segments of vm_page structures, and a buddy allocator over them.
 *
 * A segment is one range of usable memory.  The array of its vm_page structures lies at its own
 * beginning, seen through the direct map, so that it takes nothing else to add a range of the boot
 * memory map.
 *
 * A free block of order n is 2^n pages, aligned to its size.  It sits on the list of its order;
 * its first page carries the order, all other pages (of free and of allocated blocks) carry
 * VM_NFREEORDER, so a page that carries an order is the head of a free block.  Freeing a block
 * looks at its buddy, the block whose address differs in the one bit of its size, and merges
 * with it for as long as that is free too.
 *
 * There is one set of lists for each zone of addresses, so that memory below 16 MB and below 4
 * GB, which devices with short addresses need, is used last.  No block crosses a zone: the
 * largest is 16 MB.
 *
 * Locking.  vm_page_free_mtx protects the lists and the order and list linkage of free pages.
 * The segment table does not change after the boot.
 *
 * Gaps.  One memory domain, one pool.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_page.h>
#include <vm/vm_phys.h>
#include <vm/vm_tree.h>

#include <machine/atomic.h>

#define	VM_DMA32_BOUNDARY	((vm_paddr_t)1 << 32)
#define	VM_MAXORDER		(VM_NFREEORDER - 1)
#define	ORDER_PAGES(order)	(1UL << (order))
#define	ORDER_BYTES(order)	((vm_paddr_t)PAGE_SIZE << (order))

struct mtx_padalign vm_page_free_mtx;
struct vm_phys_seg vm_phys_segs[VM_PHYSSEG_MAX];
int vm_phys_nsegs;
int vm_ndomains = 1;

static struct vm_freelist vm_phys_free[VM_NFREELIST][VM_NFREEORDER];

static int
vm_phys_freelist(vm_paddr_t pa)
{
	if (pa < VM_LOWMEM_BOUNDARY)
		return (VM_FREELIST_LOWMEM);
	if (pa < VM_DMA32_BOUNDARY)
		return (VM_FREELIST_DMA32);
	return (VM_FREELIST_DEFAULT);
}

static void
freelist_add(vm_page_t m, int order)
{
	struct vm_freelist *fl = &vm_phys_free[vm_phys_freelist(m->phys_addr)][order];

	m->order = order;
	TAILQ_INSERT_HEAD(&fl->pl, m, plinks.q);
	fl->lcnt++;
}

static void
freelist_remove(vm_page_t m)
{
	struct vm_freelist *fl = &vm_phys_free[vm_phys_freelist(m->phys_addr)][m->order];

	TAILQ_REMOVE(&fl->pl, m, plinks.q);
	fl->lcnt--;
	m->order = VM_NFREEORDER;
}

void
vm_phys_init(void)
{
	int list, order;

	mtx_init(&vm_page_free_mtx, "vm page free queue", NULL, MTX_DEF);
	for (list = 0; list < VM_NFREELIST; list++)
		for (order = 0; order < VM_NFREEORDER; order++)
			TAILQ_INIT(&vm_phys_free[list][order].pl);
}

vm_page_t
vm_phys_seg_paddr_to_vm_page(struct vm_phys_seg *seg, vm_paddr_t pa)
{
	return (&seg->first_page[atop(pa - seg->start)]);
}

vm_page_t
vm_phys_paddr_to_vm_page(vm_paddr_t pa)
{
	struct vm_phys_seg *seg = vm_phys_paddr_to_seg(pa);

	return (seg == NULL ? NULL : vm_phys_seg_paddr_to_vm_page(seg, pa));
}

/*
 * The buddy of the block at m, if it is free as a whole and in the same segment.
 */
static vm_page_t
vm_phys_free_buddy(const struct vm_phys_seg *seg, vm_page_t m, int order)
{
	vm_paddr_t pa = m->phys_addr ^ ORDER_BYTES(order);
	vm_page_t buddy;

	if (pa < seg->start || pa + ORDER_BYTES(order) > seg->end)
		return (NULL);
	buddy = &seg->first_page[atop(pa - seg->start)];
	return (buddy->order == order ? buddy : NULL);
}

/*
 * Free one block of 2^order pages, aligned to its size.
 */
void
vm_phys_free_pages(vm_page_t m, int pool, int order)
{
	struct vm_phys_seg *seg;
	vm_page_t buddy;

	mtx_assert(&vm_page_free_mtx, MA_OWNED);
	KASSERT(m->order == VM_NFREEORDER, ("page %p is on a free list already", m));
	seg = vm_phys_paddr_to_seg(m->phys_addr);
	while (order < VM_MAXORDER && (buddy = vm_phys_free_buddy(seg, m, order)) != NULL) {
		freelist_remove(buddy);
		if (buddy < m)
			m = buddy;
		order++;
	}
	freelist_add(m, order);
}

/*
 * Free any run of pages, as the largest aligned blocks that it consists of.
 */
void
vm_phys_free_contig(vm_page_t m, int pool, u_long npages)
{
	int order;

	while (npages > 0) {
		order = 0;
		while (order < VM_MAXORDER && ORDER_PAGES(order + 1) <= npages &&
		    (m->phys_addr & (ORDER_BYTES(order + 1) - 1)) == 0)
			order++;
		vm_phys_free_pages(m, pool, order);
		m += ORDER_PAGES(order);
		npages -= ORDER_PAGES(order);
	}
}

/*
 * Take one block of 2^order pages: the smallest that is large enough, its unused upper halves
 * given back.
 */
vm_page_t
vm_phys_alloc_pages(int domain, int pool, int order)
{
	vm_page_t m;
	int list, o;

	mtx_assert(&vm_page_free_mtx, MA_OWNED);
	for (list = 0; list < VM_NFREELIST; list++) {
		for (o = order; o < VM_NFREEORDER; o++) {
			m = TAILQ_FIRST(&vm_phys_free[list][o].pl);
			if (m == NULL)
				continue;
			freelist_remove(m);
			while (o > order) {
				o--;
				freelist_add(m + ORDER_PAGES(o), o);
			}
			return (m);
		}
	}
	return (NULL);
}

/*
 * How far free memory reaches from the free block m, looking over further free blocks of the
 * largest order only; more than that would walk the lists for runs that are rarely there.
 */
static vm_paddr_t
vm_phys_run_end(const struct vm_phys_seg *seg, vm_page_t m, vm_paddr_t wanted)
{
	vm_paddr_t end = m->phys_addr + ORDER_BYTES(m->order);

	if (m->order != VM_MAXORDER)
		return (end);
	while (end < wanted && end < seg->end &&
	    seg->first_page[atop(end - seg->start)].order == VM_MAXORDER)
		end += ORDER_BYTES(VM_MAXORDER);
	return (end);
}

/*
 * The first address in the run that begins with free block m where the wanted allocation fits,
 * or 0.
 */
static vm_paddr_t
vm_phys_fit(const struct vm_phys_seg *seg, vm_page_t m, vm_paddr_t size, vm_paddr_t low,
    vm_paddr_t high, u_long alignment, vm_paddr_t boundary)
{
	vm_paddr_t pa;

	pa = roundup2(MAX(m->phys_addr, low), alignment);
	if (!vm_addr_bound_ok(pa, size, boundary))
		pa = roundup2(roundup2(pa, boundary), alignment);
	if (pa >= m->phys_addr + ORDER_BYTES(m->order) || pa + size > high ||
	    !vm_addr_bound_ok(pa, size, boundary) ||
	    pa + size > vm_phys_run_end(seg, m, pa + size))
		return (0);
	return (pa);
}

/*
 * Take npages from pa on out of the free blocks that cover them, the first of which is m.
 */
static vm_page_t
vm_phys_take(const struct vm_phys_seg *seg, vm_page_t m, vm_paddr_t pa, u_long npages)
{
	vm_page_t first, end, run_end;

	first = &seg->first_page[atop(pa - seg->start)];
	end = first + npages;
	run_end = m;
	while (run_end < end) {
		u_long n = ORDER_PAGES(run_end->order);

		freelist_remove(run_end);
		run_end += n;
	}
	vm_phys_free_contig(m, VM_FREEPOOL_DEFAULT, first - m);
	vm_phys_free_contig(end, VM_FREEPOOL_DEFAULT, run_end - end);
	return (first);
}

/*
 * Take npages of physically contiguous memory within [low, high), the first at a multiple of
 * alignment, the whole without crossing a multiple of boundary (0: any).  NULL if there is none.
 */
vm_page_t
vm_phys_alloc_contig(int domain, u_long npages, vm_paddr_t low, vm_paddr_t high,
    u_long alignment, vm_paddr_t boundary)
{
	vm_paddr_t pa;
	vm_page_t m;
	struct vm_phys_seg *seg;
	int list, minorder, order;

	mtx_assert(&vm_page_free_mtx, MA_OWNED);
	KASSERT(npages > 0, ("%s: no pages", __func__));
	if (boundary != 0 && boundary < ptoa(npages))
		return (NULL);
	alignment = MAX(alignment, PAGE_SIZE);
	minorder = MIN(npages == 1 ? 0 : flsl(npages - 1), VM_MAXORDER);
	for (list = 0; list < VM_NFREELIST; list++) {
		for (order = minorder; order < VM_NFREEORDER; order++) {
			TAILQ_FOREACH(m, &vm_phys_free[list][order].pl, plinks.q) {
				seg = vm_phys_paddr_to_seg(m->phys_addr);
				pa = vm_phys_fit(seg, m, ptoa(npages), low, high, alignment,
				    boundary);
				if (pa != 0)
					return (vm_phys_take(seg, m, pa, npages));
			}
		}
	}
	return (NULL);
}

bool
vm_phys_seg_add(vm_paddr_t start, vm_paddr_t end, vm_page_t array)
{
	struct vm_phys_seg *seg = &vm_phys_segs[vm_phys_nsegs];
	vm_paddr_t pa;

	if (vm_phys_nsegs == VM_PHYSSEG_MAX)
		return (false);
	KASSERT(vm_phys_nsegs == 0 || seg[-1].end <= start, ("memory ranges out of order"));
	for (pa = start; pa < end; pa += PAGE_SIZE)
		vm_page_init_page(&array[atop(pa - start)], pa, vm_phys_nsegs,
		    VM_FREEPOOL_DEFAULT);
	seg->start = start;
	seg->end = end;
	seg->first_page = array;
	atomic_store_rel_int(&vm_phys_nsegs, vm_phys_nsegs + 1);
	return (true);
}

u_long
vm_phys_populate(vm_paddr_t start, vm_paddr_t end)
{
	vm_page_t array;
	u_long meta, npages;

	start = round_page(start);
	end = trunc_page(end);
	if (start >= end)
		return (0);
	npages = atop(end - start);
	meta = atop(round_page(npages * sizeof(struct vm_page)));
	if (meta >= npages)
		return (0);
	array = (vm_page_t)PHYS_TO_DMAP(start);
	start += ptoa(meta);
	npages -= meta;
	if (!vm_phys_seg_add(start, end, array))
		return (0);
	mtx_lock(&vm_page_free_mtx);
	vm_phys_free_contig(array, VM_FREEPOOL_DEFAULT, npages);
	vm_page_free_count += npages;
	mtx_unlock(&vm_page_free_mtx);
	return (npages);
}
