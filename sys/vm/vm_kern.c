/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Kernel memory: address space, alone or with pages behind it.
 *
 * kmem_malloc() memory is contiguous in its addresses only.  Its pages are mapped in descending
 * physical order wherever the page allocator returns neighbours, so that a driver which takes
 * two adjacent addresses for two adjacent bus addresses fails at once, not on a machine with
 * fragmented memory.
 *
 * Physically contiguous memory needs no address space of its own: it is used through the direct
 * map, unless a memory attribute other than the default asks for a mapping.
 *
 * Locking.  None of its own; the arena and the page allocator have theirs.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sysctl.h>
#include <sys/vmem.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_kern.h>
#include <vm/vm_page.h>
#include <vm/vm_tree.h>

#define	KMEM_BATCH	32

u_long vm_kmem_size;
SYSCTL_ULONG(_vm, OID_AUTO, kmem_size, CTLFLAG_RD, &vm_kmem_size, 0,
    "Size of kernel memory in bytes");

void
kmem_arena_init(void)
{
	vmem_startup();
	if (vmem_init(kernel_arena, "kernel arena", virtual_avail, virtual_end - virtual_avail,
	    PAGE_SIZE, 0, M_NOWAIT) == NULL)
		panic("no memory for the kernel arena");
	vm_kmem_size = MIN(ptoa((u_long)vm_cnt.v_page_count), virtual_end - virtual_avail);
}

/*
 * Address space at a multiple of align (0: a page); page tables for it exist when this returns.
 */
static vm_offset_t
kva_get(vm_size_t size, vm_size_t align, int flags)
{
	vmem_addr_t addr;

	flags = M_BESTFIT | (flags & M_USE_RESERVE) |
	    ((flags & M_WAITOK) != 0 ? M_WAITOK : M_NOWAIT);
	if (vmem_xalloc(kernel_arena, size, align, 0, 0, VMEM_ADDR_MIN, VMEM_ADDR_MAX, flags,
	    &addr) != 0)
		return (0);
	if (addr + size > kernel_vm_end && pmap_growkernel(addr + size) != KERN_SUCCESS) {
		vmem_xfree(kernel_arena, addr, size);
		return (0);
	}
	return (addr);
}

vm_offset_t
kva_alloc(vm_size_t size)
{
	return (kva_get(round_page(size), 0, M_NOWAIT));
}

vm_offset_t
kva_alloc_aligned(vm_size_t size, vm_size_t align)
{
	return (kva_get(round_page(size), align, M_NOWAIT));
}

void
kva_free(vm_offset_t addr, vm_size_t size)
{
	vmem_free(kernel_arena, addr, round_page(size));
}

static void
kmem_page_release(vm_page_t m)
{
	vm_page_unwire_noq(m);
	vm_page_free(m);
}

/*
 * Unmap the range and free the pages behind it.
 */
static void
kmem_pages_unback(vm_offset_t addr, vm_size_t size)
{
	vm_page_t ma[KMEM_BATCH];
	int i, n;

	while (size > 0) {
		n = MIN(atop(size), KMEM_BATCH);
		for (i = 0; i < n; i++)
			ma[i] = PHYS_TO_VM_PAGE(pmap_kextract(addr + ptoa(i)));
		pmap_qremove(addr, n);
		for (i = 0; i < n; i++)
			kmem_page_release(ma[i]);
		addr += ptoa(n);
		size -= ptoa(n);
	}
}

/*
 * Put pages behind the range, the first that the allocator returns behind the last address of a
 * batch.
 */
static int
kmem_pages_back(vm_offset_t addr, vm_size_t size, int flags)
{
	vm_page_t ma[KMEM_BATCH];
	vm_size_t done;
	int i, n, req;

	req = malloc2vm_flags(flags) | VM_ALLOC_WIRED;
	for (done = 0; done < size; done += ptoa(n)) {
		n = MIN(atop(size - done), KMEM_BATCH);
		for (i = n - 1; i >= 0; i--) {
			ma[i] = vm_page_alloc_noobj(req);
			if (ma[i] == NULL)
				break;
		}
		if (i >= 0) {
			while (++i < n)
				kmem_page_release(ma[i]);
			kmem_pages_unback(addr, done);
			return (ENOMEM);
		}
		pmap_qenter(addr + done, ma, n);
	}
	return (0);
}

/*
 * Address space for size bytes that are going to have pages.  More than there is memory is refused
 * at once: for an absurd size the page tables alone would take, and keep, all of it.
 */
static vm_offset_t
kmem_get(vm_size_t size, int flags)
{
	if (size > vm_kmem_size) {
		if ((flags & M_WAITOK) != 0)
			panic("kernel memory: %zu bytes asked for, there are %lu", size,
			    vm_kmem_size);
		return (0);
	}
	return (kva_get(size, 0, flags));
}

void *
kmem_malloc(vm_size_t size, int flags)
{
	vm_offset_t addr;

	size = round_page(size);
	addr = kmem_get(size, flags);
	if (addr == 0)
		return (NULL);
	if (kmem_pages_back(addr, size, flags) != 0) {
		kva_free(addr, size);
		return (NULL);
	}
	return ((void *)addr);
}

void *
kmem_malloc_domainset(struct domainset *ds, vm_size_t size, int flags)
{
	return (kmem_malloc(size, flags));
}

/*
 * Physically contiguous memory within [low, high).
 */
void *
kmem_alloc_contig(vm_size_t size, int flags, vm_paddr_t low, vm_paddr_t high,
    u_long alignment, vm_paddr_t boundary, vm_memattr_t memattr)
{
	vm_offset_t addr;
	vm_page_t m, ma[KMEM_BATCH];
	u_long i, j, npages;

	size = round_page(size);
	npages = atop(size);
	m = vm_page_alloc_noobj_contig(malloc2vm_flags(flags) | VM_ALLOC_WIRED, npages, low,
	    high, alignment, boundary, memattr);
	if (m == NULL)
		return (NULL);
	if (memattr == VM_MEMATTR_DEFAULT)
		return ((void *)PHYS_TO_DMAP(VM_PAGE_TO_PHYS(m)));
	addr = kva_get(size, 0, flags);
	if (addr == 0) {
		for (i = 0; i < npages; i++)
			kmem_page_release(&m[i]);
		return (NULL);
	}
	for (i = 0; i < npages; i += j) {
		for (j = 0; j < KMEM_BATCH && i + j < npages; j++)
			ma[j] = &m[i + j];
		pmap_qenter(addr + ptoa(i), ma, j);
	}
	return ((void *)addr);
}

void *
kmem_alloc_contig_domainset(struct domainset *ds, vm_size_t size, int flags,
    vm_paddr_t low, vm_paddr_t high, u_long alignment, vm_paddr_t boundary,
    vm_memattr_t memattr)
{
	return (kmem_alloc_contig(size, flags, low, high, alignment, boundary, memattr));
}

/*
 * Memory whose pages are each within [low, high), not contiguous.
 */
void *
kmem_alloc_attr(vm_size_t size, int flags, vm_paddr_t low, vm_paddr_t high,
    vm_memattr_t memattr)
{
	vm_offset_t addr, done;
	vm_page_t m;
	int req;

	size = round_page(size);
	addr = kmem_get(size, flags);
	if (addr == 0)
		return (NULL);
	req = malloc2vm_flags(flags) | VM_ALLOC_WIRED;
	for (done = 0; done < size; done += PAGE_SIZE) {
		m = vm_page_alloc_noobj_contig(req, 1, low, high, PAGE_SIZE, 0, memattr);
		if (m == NULL) {
			kmem_pages_unback(addr, done);
			kva_free(addr, size);
			return (NULL);
		}
		pmap_qenter(addr + done, &m, 1);
	}
	return ((void *)addr);
}

/*
 * Free what one of the functions above returned.
 */
void
kmem_free(void *mem, vm_size_t size)
{
	vm_offset_t addr = (vm_offset_t)mem;
	vm_page_t m;
	u_long i;

	KASSERT((addr & PAGE_MASK) == 0, ("%s: %p is not page aligned", __func__, mem));
	size = round_page(size);
	if (VIRT_IN_DMAP(addr)) {
		m = PHYS_TO_VM_PAGE(DMAP_TO_PHYS(addr));
		for (i = 0; i < atop(size); i++)
			kmem_page_release(&m[i]);
		return;
	}
	kmem_pages_unback(addr, size);
	kva_free(addr, size);
}
