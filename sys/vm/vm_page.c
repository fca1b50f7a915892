/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Pages: allocation, wiring and release of struct vm_page.
 *
 * Nothing here belongs to a VM object: there is no user space and no page cache, so every page
 * is either free, or allocated and owned by its requester.  A request has a class that limits how
 * much it may take: VM_ALLOC_NORMAL does not use the reserve, VM_ALLOC_SYSTEM leaves a few pages
 * to VM_ALLOC_INTERRUPT, which may take the last one.  A request that may sleep (VM_ALLOC_WAITOK,
 * VM_ALLOC_WAITFAIL) waits in vm_wait() until memory has been freed.
 *
 * Locking.  vm_page_free_mtx for counts and free lists.  An allocated page's fields are its
 * owner's; ref_count is atomic.
 *
 * Gaps.  Only the _noobj allocators; no busy lock beyond the state of an unbusied page.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/limits.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_kern.h>
#include <vm/vm_extern.h>
#include <vm/vm_page.h>
#include <vm/vm_pageout.h>
#include <vm/vm_phys.h>
#include <vm/vm_dumpset.h>
#include <vm/vm_tree.h>

#include <machine/md_var.h>

vm_page_t vm_page_array;
long vm_page_array_size;
long first_page;
u_int vm_page_free_count;

vm_page_t
PHYS_TO_VM_PAGE(vm_paddr_t pa)
{
	return (vm_phys_paddr_to_vm_page(pa));
}

void
vm_page_init_page(vm_page_t m, vm_paddr_t pa, int segind, int pool)
{
	memset(m, 0, sizeof(*m));
	m->phys_addr = pa;
	m->a.queue = PQ_NONE;
	m->busy_lock = VPB_FREED;
	m->order = VM_NFREEORDER;
	m->pool = pool;
	m->segind = segind;
	pmap_page_init(m);
}

/*
 * The marks that the allocator and the page daemon steer by.  They are small: the machines that
 * this kernel runs on have memory in hundreds of megabytes and no pages to page out.
 */
static void
vm_page_set_marks(void)
{
	vm_cnt.v_interrupt_free_min = 2;
	vm_cnt.v_free_reserved = 32 + vm_cnt.v_page_count / 1024;
	vm_cnt.v_free_severe = vm_cnt.v_free_reserved;
	vm_cnt.v_free_min = vm_cnt.v_free_reserved + 128 + vm_cnt.v_page_count / 256;
	vm_cnt.v_free_target = 2 * vm_cnt.v_free_min;
	vm_cnt.v_pageout_free_min = vm_cnt.v_interrupt_free_min;
}

/*
 * Hand all of phys_avail to the allocator.
 */
vm_offset_t
vm_page_startup(vm_offset_t vaddr)
{
	u_long npages;
	int i;

	vm_cnt.v_page_size = PAGE_SIZE;
	vm_phys_init();
	npages = 0;
	for (i = 0; phys_avail[i + 1] != 0; i += 2)
		npages += vm_phys_populate(phys_avail[i], phys_avail[i + 1]);
	if (npages == 0)
		panic("no usable physical memory");
	vm_page_array = vm_phys_segs[0].first_page;
	vm_page_array_size = atop(vm_phys_segs[0].end - vm_phys_segs[0].start);
	first_page = atop(vm_phys_segs[0].start);
	vm_cnt.v_page_count = npages;
	vm_page_set_marks();
	return (vaddr);
}

static u_int
vm_page_reserve(int req)
{
	switch (req & VM_ALLOC_CLASS_MASK) {
	case VM_ALLOC_INTERRUPT:
		return (0);
	case VM_ALLOC_SYSTEM:
		return (vm_cnt.v_interrupt_free_min);
	default:
		return (vm_cnt.v_free_reserved);
	}
}

/*
 * Wake the page daemon when this allocation took free memory below the mark.  One wake-up a
 * crossing is enough: while memory stays below it, the daemon checks again periodically.
 */
static void
vm_page_taken(u_int before)
{
	if (__predict_false(before >= vm_cnt.v_free_min &&
	    vm_page_free_count < vm_cnt.v_free_min))
		vm_pageout_wakeup();
}

/*
 * Make npages pages, fresh from the free lists, the caller's.
 */
static void
vm_page_prep(vm_page_t m, u_long npages, int req, vm_memattr_t memattr)
{
	u_long i;

	for (i = 0; i < npages; i++, m++) {
		KASSERT(m->busy_lock == VPB_FREED, ("allocated page %p was on a free list", m));
		m->busy_lock = VPB_UNBUSIED;
		m->ref_count = (req & VM_ALLOC_WIRED) != 0 ? 1 : 0;
		m->object = NULL;
		m->pindex = 0xdeadc0dedeadc0de;
		m->oflags = VPO_UNMANAGED;
		m->flags = (req & VM_ALLOC_NODUMP) != 0 ? PG_NODUMP : 0;
		m->valid = VM_PAGE_BITS_ALL;
		m->dirty = 0;
		if (memattr != VM_MEMATTR_DEFAULT)
			pmap_page_set_memattr(m, memattr);
		if ((req & VM_ALLOC_ZERO) != 0)
			pmap_zero_page(m);
	}
	if ((req & VM_ALLOC_WIRED) != 0)
		vm_wire_add(npages);
}

/* What a page that belongs to no object may be asked for with; of a run of them, NORECLAIM too. */
#define	NOOBJ_FLAGS	(VM_ALLOC_CLASS_MASK | VM_ALLOC_WAITFAIL | VM_ALLOC_NOWAIT | \
			VM_ALLOC_WAITOK | VM_ALLOC_NOBUSY | VM_ALLOC_WIRED | VM_ALLOC_NODUMP | \
			VM_ALLOC_ZERO | VM_ALLOC_COUNT_MASK)

vm_page_t
vm_page_alloc_noobj(int req)
{
	vm_page_t m;
	u_int before;

	KASSERT((req & ~NOOBJ_FLAGS) == 0, ("%s: request %#x", __func__, req));
	for (;;) {
		m = NULL;
		mtx_lock(&vm_page_free_mtx);
		before = vm_page_free_count;
		if (before > vm_page_reserve(req))
			m = vm_phys_alloc_pages(0, VM_FREEPOOL_DIRECT, 0);
		if (m != NULL)
			vm_page_free_count--;
		mtx_unlock(&vm_page_free_mtx);
		if (m != NULL)
			break;
		if ((req & (VM_ALLOC_WAITOK | VM_ALLOC_WAITFAIL)) == 0) {
			vm_pageout_wakeup();
			return (NULL);
		}
		vm_wait(NULL);
		if ((req & VM_ALLOC_WAITFAIL) != 0)
			return (NULL);
	}
	vm_page_taken(before);
	vm_page_prep(m, 1, req, VM_MEMATTR_DEFAULT);
	return (m);
}

vm_page_t
vm_page_alloc_noobj_domain(int domain, int req)
{
	return (vm_page_alloc_noobj(req));
}

/*
 * A physically contiguous run.  One that may sleep waits for memory once only, as FreeBSD's
 * does: what is missing may be contiguity, and nothing here moves pages, so the caller must
 * decide to try again.
 */
vm_page_t
vm_page_alloc_noobj_contig(int req, u_long npages, vm_paddr_t low, vm_paddr_t high,
    u_long alignment, vm_paddr_t boundary, vm_memattr_t memattr)
{
	vm_page_t m;
	u_int before;
	bool waited;

	KASSERT((req & ~(NOOBJ_FLAGS | VM_ALLOC_NORECLAIM)) == 0 &&
	    (req & (VM_ALLOC_WAITOK | VM_ALLOC_NORECLAIM)) !=
	    (VM_ALLOC_WAITOK | VM_ALLOC_NORECLAIM), ("%s: request %#x", __func__, req));
	for (waited = false;; waited = true) {
		m = NULL;
		mtx_lock(&vm_page_free_mtx);
		before = vm_page_free_count;
		if (before >= vm_page_reserve(req) + npages)
			m = vm_phys_alloc_contig(0, npages, low, high, alignment, boundary);
		if (m != NULL)
			vm_page_free_count -= npages;
		mtx_unlock(&vm_page_free_mtx);
		if (m != NULL)
			break;
		vm_pageout_wakeup();
		if ((req & (VM_ALLOC_WAITOK | VM_ALLOC_WAITFAIL)) == 0 || waited)
			return (NULL);
		vm_wait(NULL);
		if ((req & VM_ALLOC_WAITFAIL) != 0)
			return (NULL);
	}
	vm_page_taken(before);
	vm_page_prep(m, npages, req, memattr);
	return (m);
}

vm_page_t
vm_page_alloc_noobj_contig_domain(int domain, int req, u_long npages, vm_paddr_t low,
    vm_paddr_t high, u_long alignment, vm_paddr_t boundary, vm_memattr_t memattr)
{
	return (vm_page_alloc_noobj_contig(req, npages, low, high, alignment, boundary, memattr));
}

void
vm_page_free(vm_page_t m)
{
	KASSERT(m->busy_lock != VPB_FREED, ("page %p freed twice", m));
	KASSERT(m->ref_count == 0, ("page %p freed with %u references", m, m->ref_count));
	KASSERT((m->flags & PG_FICTITIOUS) == 0, ("fictitious page %p freed", m));
	if (__predict_false(pmap_page_get_memattr(m) != VM_MEMATTR_DEFAULT))
		pmap_page_set_memattr(m, VM_MEMATTR_DEFAULT);
	m->busy_lock = VPB_FREED;
	m->valid = 0;
	m->plinks.uma.slab = NULL;
	m->plinks.uma.zone = NULL;

	mtx_lock(&vm_page_free_mtx);
	vm_phys_free_pages(m, VM_FREEPOOL_DIRECT, 0);
	vm_page_free_count++;
	if (__predict_false(vm_pages_needed))
		vm_pageout_pages_freed();
	mtx_unlock(&vm_page_free_mtx);
}

void
vm_page_free_zero(vm_page_t m)
{
	vm_page_free(m);
}

/*
 * Free a list of pages that was built by way of plinks.s; the number of pages is returned.
 */
int
vm_page_free_pages_toq(struct spglist *free, bool update_wire_count)
{
	vm_page_t m;
	int count = 0;

	while ((m = SLIST_FIRST(free)) != NULL) {
		SLIST_REMOVE_HEAD(free, plinks.s.ss);
		vm_page_free(m);
		count++;
	}
	if (update_wire_count)
		vm_wire_sub(count);
	return (count);
}

void
vm_page_wire(vm_page_t m)
{
	u_int old = atomic_fetchadd_int(&m->ref_count, 1);

	KASSERT(VPRC_WIRE_COUNT(old) != VPRC_WIRE_COUNT_MAX, ("wire count of page %p", m));
	if (VPRC_WIRE_COUNT(old) == 0)
		vm_wire_add(1);
}

/*
 * Drop one wiring; true if it was the last, and the caller should now free the page.
 */
bool
vm_page_unwire_noq(vm_page_t m)
{
	u_int old = vm_page_drop(m, 1);

	KASSERT(VPRC_WIRE_COUNT(old) != 0, ("page %p unwired but not wired", m));
	if (VPRC_WIRE_COUNT(old) > 1)
		return (false);
	vm_wire_sub(1);
	return (true);
}

void
vm_page_unwire(vm_page_t m, uint8_t queue)
{
	if (vm_page_unwire_noq(m))
		vm_page_free(m);
}

void
vm_page_unhold_pages(vm_page_t *ma, int count)
{
	for (; count != 0; count--)
		vm_page_unwire(*ma++, PQ_ACTIVE);
}

void
vm_page_dirty_KBI(vm_page_t m)
{
	m->dirty = VM_PAGE_BITS_ALL;
}

u_int
vm_free_count(void)
{
	return (vm_page_free_count);
}

static void
vm_mem_init(void *dummy)
{
	vm_page_startup(virtual_avail);
	pmap_init();
	uma_startup();
	kmem_arena_init();
}
SYSINIT(vm_mem, SI_SUB_VM, SI_ORDER_FIRST, vm_mem_init, NULL);
