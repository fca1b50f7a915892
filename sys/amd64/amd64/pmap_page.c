/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Working on the contents of pages, all through the direct map.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/lock.h>
#include <sys/mutex.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_page.h>
#include <vm/pmap.h>

#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/vmparam.h>

static char *
page_ptr(vm_page_t m)
{
	return ((char *)PHYS_TO_DMAP(VM_PAGE_TO_PHYS(m)));
}

void
pmap_zero_page(vm_page_t m)
{
	pagezero(page_ptr(m));
}

void
pmap_zero_page_area(vm_page_t m, int off, int size)
{
	bzero(page_ptr(m) + off, size);
}

void
pmap_copy_page(vm_page_t src, vm_page_t dst)
{
	pagecopy(page_ptr(src), page_ptr(dst));
}

/* Copy xfersize bytes from a_offset in the pages of ma to b_offset in the pages of mb. */
void
pmap_copy_pages(vm_page_t ma[], vm_offset_t a_offset, vm_page_t mb[], vm_offset_t b_offset,
    int xfersize)
{
	vm_offset_t a_pg, b_pg;
	int cnt;

	while (xfersize > 0) {
		a_pg = a_offset & PAGE_MASK;
		b_pg = b_offset & PAGE_MASK;
		cnt = MIN(xfersize, PAGE_SIZE - (int)MAX(a_pg, b_pg));
		bcopy(page_ptr(ma[a_offset >> PAGE_SHIFT]) + a_pg,
		    page_ptr(mb[b_offset >> PAGE_SHIFT]) + b_pg, cnt);
		a_offset += cnt;
		b_offset += cnt;
		xfersize -= cnt;
	}
}

/* A page's address for a moment, without sleeping. */
vm_offset_t
pmap_quick_enter_page(vm_page_t m)
{
	return ((vm_offset_t)page_ptr(m));
}

void
pmap_quick_remove_page(vm_offset_t addr __unused)
{
}

/* Addresses for count pages; false: none of them needed a mapping of its own. */
bool
pmap_map_io_transient(vm_page_t page[], vm_offset_t vaddr[], int count, bool can_fault __unused)
{
	int i;

	for (i = 0; i < count; i++)
		vaddr[i] = (vm_offset_t)page_ptr(page[i]);
	return (false);
}

void
pmap_unmap_io_transient(vm_page_t page[] __unused, vm_offset_t vaddr[] __unused,
    int count __unused, bool can_fault __unused)
{
}

/*
 * Caches.  DMA is coherent on this machine; these write lines back for the sake of mappings of
 * another memory type.
 */
void
pmap_force_invalidate_cache_range(vm_offset_t sva, vm_offset_t eva)
{
	u_int line = cpu_clflush_line_size != 0 ? cpu_clflush_line_size : CACHE_LINE_SIZE;

	mfence();
	for (sva = rounddown2(sva, line); sva < eva; sva += line)
		clflush(sva);
	mfence();
}

void
pmap_invalidate_cache_range(vm_offset_t sva, vm_offset_t eva)
{
	pmap_force_invalidate_cache_range(sva, eva);
}

void
pmap_flush_cache_range(vm_offset_t sva, vm_offset_t eva)
{
	pmap_force_invalidate_cache_range(sva, eva);
}

void
pmap_invalidate_cache_pages(vm_page_t *pages, int count)
{
	vm_offset_t va;
	int i;

	for (i = 0; i < count; i++) {
		va = (vm_offset_t)page_ptr(pages[i]);
		pmap_force_invalidate_cache_range(va, va + PAGE_SIZE);
	}
}
