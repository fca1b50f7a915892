/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The kernel's page tables.
 *
 * There is one address space, shared by all processors, in 4-level tables:
 *
 *	kva_layout.dmap_low	the direct map: all RAM, at least the first 4 GB, in 2 MB pages
 *	kva_layout.km_low	general kernel memory (virtual_avail .. virtual_end), 4 KB pages
 *	KERNBASE + 2 MB		the kernel: text read-only, data not executable
 *	_end .. -1		address space for modules (ktext_avail .. ktext_end)
 *
 * Page-table pages are never freed, but for those of the direct map, whose large pages are split and
 * put together again as memory types and protections change.  Before the page allocator runs they
 * are taken off phys_avail[], later from it.  Global pages are not used: with one address space
 * nothing is gained by them, and a write of %cr3 then empties the TLB.
 *
 * Locking.  pmap_dmap_mtx for the direct map's entries, which are changed by change_range() only.
 * None for the others: a page-table page is put in place by compare-and-set and the loser of a race
 * gives its page back; the entries for an address belong to whoever allocated that address.
 *
 * Gaps: no user address spaces, no 5-level tables, no 1 GB pages.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/rwlock.h>
#include <sys/smp.h>
#include <sys/sysctl.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_extern.h>
#include <vm/vm_kern.h>
#include <vm/vm_page.h>
#include <vm/vm_phys.h>
#include <vm/vm_tree.h>
#include <vm/pmap.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/specialreg.h>
#include <machine/vmparam.h>

#include <amd64/amd64/boot_tree.h>

struct kva_layout_s kva_layout = {
	.kva_min = KV4ADDR(PML4PML4I, 0, 0, 0),
	.dmap_low = KV4ADDR(DMPML4I, 0, 0, 0),
	.dmap_high = KV4ADDR(DMPML4I + NDMPML4E, 0, 0, 0),
	.lm_low = KV4ADDR(LMSPML4I, 0, 0, 0),
	.lm_high = KV4ADDR(LMSPML4I, 0, 0, 0),
	.km_low = KV4ADDR(KPML4BASE, 0, 0, 0),
	.km_high = KV4ADDR(KPML4I, NPDPEPG - 1, NPDEPG - 1, NPTEPG - 1),
	.rec_pt = KV4ADDR(PML4PML4I, 0, 0, 0),
};

struct pmap kernel_pmap_store;
u_int64_t KPML4phys;
pt_entry_t pg_nx = X86_PG_NX;
vm_paddr_t dmaplimit;
vm_offset_t virtual_avail, virtual_end;
vm_offset_t ktext_avail, ktext_end;
vm_offset_t kernel_vm_end;
int pmap_pcid_enabled;
int invpcid_works;
int invlpgb_works;
int invlpgb_maxcnt;
int pmap_pcid_invlpg_workaround;
int pmap_pcid_invlpg_workaround_uena;

static bool pmap_initialized;

static struct mtx pmap_dmap_mtx;
MTX_SYSINIT(pmap_dmap, &pmap_dmap_mtx, "pmap dmap", MTX_DEF);

static SYSCTL_NODE(_vm, OID_AUTO, pmap, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "Page tables");
static SYSCTL_NODE(_vm_pmap, OID_AUTO, pde, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "2 MB pages");

static u_long pmap_demotions;
SYSCTL_ULONG(_vm_pmap_pde, OID_AUTO, demotions, CTLFLAG_RD, &pmap_demotions, 0,
    "2 MB pages that were split");

static u_long pmap_promotions;
SYSCTL_ULONG(_vm_pmap_pde, OID_AUTO, promotions, CTLFLAG_RD, &pmap_promotions, 0,
    "2 MB pages that were put together");

/*
 * What every valid entry that maps memory has; A and M are set so that no cycle is spent on them.
 */
#define	PTE_MAPPED	(X86_PG_V | X86_PG_A | X86_PG_M)
#define	PTE_TABLE	(X86_PG_V | X86_PG_RW | X86_PG_A)

/*
 * The order of memory types in the PAT register: entries 0 to 3 are as after reset, so that the
 * bits PWT and PCD alone mean what they always did (SDM 3A, 12.12.4).
 */
#define	PAT_LAYOUT							\
	(PAT_VALUE(0, PAT_WRITE_BACK) | PAT_VALUE(1, PAT_WRITE_THROUGH) |	\
	PAT_VALUE(2, PAT_UNCACHED) | PAT_VALUE(3, PAT_UNCACHEABLE) |	\
	PAT_VALUE(4, PAT_WRITE_BACK) | PAT_VALUE(5, PAT_WRITE_PROTECTED) | \
	PAT_VALUE(6, PAT_WRITE_COMBINING) | PAT_VALUE(7, PAT_UNCACHEABLE))

void
pmap_init_pat(void)
{
	wrmsr(MSR_PAT, PAT_LAYOUT);
}

bool
pmap_is_valid_memattr(pmap_t pmap __unused, vm_memattr_t mode)
{
	switch (mode) {
	case VM_MEMATTR_UNCACHEABLE:
	case VM_MEMATTR_WRITE_COMBINING:
	case VM_MEMATTR_WRITE_THROUGH:
	case VM_MEMATTR_WRITE_PROTECTED:
	case VM_MEMATTR_WRITE_BACK:
	case VM_MEMATTR_WEAK_UNCACHEABLE:
		return (true);
	default:
		return (false);
	}
}

/* The bits of an entry that select a memory type; is_pde: of a 2 MB page. */
int
pmap_cache_bits(pmap_t pmap __unused, int mode, bool is_pde)
{
	static const uint8_t index[] = {
		[PAT_WRITE_BACK] = 0, [PAT_WRITE_THROUGH] = 1, [PAT_UNCACHED] = 2,
		[PAT_UNCACHEABLE] = 3, [PAT_WRITE_PROTECTED] = 5, [PAT_WRITE_COMBINING] = 6,
	};
	int i, bits = 0;

	if (!pmap_is_valid_memattr(NULL, mode))
		panic("unknown memory type %d", mode);
	i = index[mode];
	if (i & 4)
		bits |= is_pde ? X86_PG_PDE_PAT : X86_PG_PTE_PAT;
	if (i & 2)
		bits |= X86_PG_NC_PCD;
	if (i & 1)
		bits |= X86_PG_NC_PWT;
	return (bits);
}

/* A zeroed page for a table; 0 when there is none. */
static vm_paddr_t
table_alloc(void)
{
	vm_page_t m;

	if (!pmap_initialized)
		return (bootinfo_steal(1));
	m = vm_page_alloc_noobj(VM_ALLOC_INTERRUPT | VM_ALLOC_WIRED | VM_ALLOC_ZERO |
	    VM_ALLOC_NOWAIT);
	return (m == NULL ? 0 : VM_PAGE_TO_PHYS(m));
}

static void
table_free(vm_paddr_t pa)
{
	vm_page_t m = PHYS_TO_VM_PAGE(pa);

	if (m != NULL) {
		vm_page_unwire_noq(m);
		vm_page_free(m);
	}
}

static pt_entry_t *
table_at(pt_entry_t entry)
{
	return ((pt_entry_t *)PHYS_TO_DMAP(entry & PG_FRAME));
}

/* The table below *entry, made if it is missing; NULL when memory is short. */
static pt_entry_t *
table_below(pt_entry_t *entry)
{
	vm_paddr_t pa;

	if ((*entry & X86_PG_V) == 0) {
		pa = table_alloc();
		if (pa == 0)
			return (NULL);
		if (!atomic_cmpset_rel_long(entry, 0, pa | PTE_TABLE))
			table_free(pa);
	}
	return (table_at(*entry));
}

/* The directory entry for va, its tables made as needed; NULL when memory is short. */
static pd_entry_t *
pde_alloc(vm_offset_t va)
{
	pt_entry_t *t;

	t = table_below(&((pt_entry_t *)PHYS_TO_DMAP(KPML4phys))[pmap_pml4e_index(va)]);
	if (t != NULL)
		t = table_below(&t[pmap_pdpe_index(va)]);
	return (t == NULL ? NULL : &t[pmap_pde_index(va)]);
}

/* The page-table entry for va, its tables made as needed. */
static pt_entry_t *
pte_alloc(vm_offset_t va)
{
	pd_entry_t *pde = pde_alloc(va);
	pt_entry_t *t = pde == NULL ? NULL : table_below(pde);

	if (t == NULL)
		panic("no memory for a page table for %#lx", va);
	return (&t[pmap_pte_index(va)]);
}

/* The directory entry for va, or NULL. */
static pd_entry_t *
pde_find(vm_offset_t va)
{
	pt_entry_t *t, e;

	e = ((pt_entry_t *)PHYS_TO_DMAP(KPML4phys))[pmap_pml4e_index(va)];
	if ((e & X86_PG_V) == 0)
		return (NULL);
	t = table_at(e);
	e = t[pmap_pdpe_index(va)];
	if ((e & X86_PG_V) == 0)
		return (NULL);
	t = table_at(e);
	return (&t[pmap_pde_index(va)]);
}

/* The entry that maps va in a 4 KB page table; NULL if there is no such table. */
pt_entry_t *
vtopte(vm_offset_t va)
{
	pd_entry_t *pde = pde_find(va);

	if (pde == NULL || (*pde & X86_PG_V) == 0 || (*pde & X86_PG_PS) != 0)
		return (NULL);
	return (&table_at(*pde)[pmap_pte_index(va)]);
}

/*
 * The physical address of a kernel address; 0 when it is not mapped.
 */
vm_paddr_t
pmap_kextract(vm_offset_t va)
{
	pd_entry_t *pde;
	pt_entry_t pte;

	if (VIRT_IN_DMAP(va))
		return (va - kva_layout.dmap_low);
	pde = pde_find(va);
	if (pde == NULL || (*pde & X86_PG_V) == 0)
		return (0);
	if (*pde & X86_PG_PS)
		return ((*pde & PG_PS_FRAME) | (va & PDRMASK));
	pte = table_at(*pde)[pmap_pte_index(va)];
	return ((pte & X86_PG_V) == 0 ? 0 : (pte & PG_FRAME) | (va & PAGE_MASK));
}

vm_paddr_t
pmap_extract(pmap_t pmap __unused, vm_offset_t va)
{
	return (pmap_kextract(va));
}

/*
 * Bootstrap.
 */

/* Map [start, limit) at the direct map, both multiples of 1 GB.  False when memory is short. */
static bool
dmap_fill(vm_paddr_t start, vm_paddr_t limit)
{
	pd_entry_t *pde;
	vm_paddr_t pa;

	for (pa = start; pa < limit; pa += NBPDR) {
		pde = pde_alloc(kva_layout.dmap_low + pa);
		if (pde == NULL)
			return (false);
		*pde = pa | PTE_MAPPED | X86_PG_RW | X86_PG_PS | pg_nx;
	}
	return (true);
}

/* Map the pages of the kernel from start up to end. */
static void
bootstrap_kernel(const char *start, const char *end, pt_entry_t prot)
{
	vm_offset_t va;

	for (va = trunc_page((vm_offset_t)start); va < (vm_offset_t)end; va += PAGE_SIZE)
		*pte_alloc(va) = (va - KERNBASE) | PTE_MAPPED | prot;
}

/*
 * Replace locore.S's tables by the final ones.  phys_avail[] must be filled: pages for tables are
 * taken off it, from below 4 GB, which locore.S has mapped at the direct map.
 */
void
pmap_bootstrap(vm_paddr_t *firstaddr __unused)
{
	vm_paddr_t limit;
	int i;

	limit = roundup2(MAX(ptoa((vm_paddr_t)Maxmem), 4UL << 30), NBPDP);
	if (limit > kva_layout.dmap_high - kva_layout.dmap_low)
		panic("memory ends at %#lx, beyond what the direct map holds", limit);
	KPML4phys = bootinfo_steal(1);
	(void)dmap_fill(0, limit);
	bootstrap_kernel((char *)KERNSTART, etext, 0);
	bootstrap_kernel((char *)round_page((vm_offset_t)etext), brwsection, pg_nx);
	bootstrap_kernel(brwsection, _end, X86_PG_RW | pg_nx);
	/* Top-level entries now, so that a copy of this page stays complete (start_all_aps()). */
	for (i = KPML4BASE; i <= KPML4I; i++)
		table_below(&((pt_entry_t *)PHYS_TO_DMAP(KPML4phys))[i]);
	pmap_init_pat();
	load_cr3(KPML4phys);
	dmaplimit = limit;

	kernel_pmap->pm_pmltop = (pml4_entry_t *)PHYS_TO_DMAP(KPML4phys);
	kernel_pmap->pm_cr3 = KPML4phys;
	kernel_pmap->pm_type = PT_X86;
	CPU_FILL(&kernel_pmap->pm_active);

	virtual_avail = kva_layout.km_low;
	virtual_end = KERNBASE;
	kernel_vm_end = virtual_avail;
	ktext_avail = round_2mpage((vm_offset_t)_end);
	ktext_end = trunc_2mpage(~0UL);
}

/* The page allocator works from here on; virtual_avail is final. */
void
pmap_init(void)
{
	pmap_initialized = true;
}

void
pmap_page_init(vm_page_t m)
{
	m->md.pat_mode = PAT_WRITE_BACK;
}

/*
 * Make page tables for kernel memory up to addr, so that mapping it later can't fail.
 * KERN_RESOURCE_SHORTAGE when memory is short.
 */
int
pmap_growkernel(vm_offset_t addr)
{
	pd_entry_t *pde;
	vm_offset_t va;

	addr = roundup2(addr, NBPDR);
	for (va = kernel_vm_end; va < addr; va += NBPDR) {
		pde = pde_alloc(va);
		if (pde == NULL || table_below(pde) == NULL)
			return (KERN_RESOURCE_SHORTAGE);
	}
	if (kernel_vm_end < addr)
		kernel_vm_end = addr;
	return (KERN_SUCCESS);
}

/*
 * Mappings.
 */

/* Map one page; nothing may be mapped there. */
void
pmap_kenter(vm_offset_t va, vm_paddr_t pa)
{
	pte_store(pte_alloc(va), pa | PTE_MAPPED | X86_PG_RW | pg_nx);
}

/* Unmap one page, on all processors. */
void
pmap_kremove(vm_offset_t va)
{
	pt_entry_t *pte = vtopte(va);

	if (pte != NULL && pte_load_clear(pte) != 0)
		pmap_invalidate_page(kernel_pmap, va);
}

/* Map count pages at va, replacing what is there. */
void
pmap_qenter(vm_offset_t va, vm_page_t *ma, int count)
{
	vm_offset_t v = va;
	pt_entry_t new;
	bool stale = false;
	int i;

	for (i = 0; i < count; i++, v += PAGE_SIZE) {
		new = VM_PAGE_TO_PHYS(ma[i]) | PTE_MAPPED | X86_PG_RW | pg_nx |
		    pmap_cache_bits(kernel_pmap, ma[i]->md.pat_mode, false);
		if (pte_load_store(pte_alloc(v), new) & X86_PG_V)
			stale = true;
	}
	if (stale)
		pmap_invalidate_range(kernel_pmap, va, v);
}

/* Unmap count pages at va, on all processors. */
void
pmap_qremove(vm_offset_t va, int count)
{
	vm_offset_t v = va;
	pt_entry_t *pte;
	bool stale = false;

	for (; count > 0; count--, v += PAGE_SIZE) {
		pte = vtopte(v);
		if (pte != NULL && pte_load_clear(pte) != 0)
			stale = true;
	}
	if (stale)
		pmap_invalidate_range(kernel_pmap, va, v);
}

/* Map [start, end) for early use: the direct map has it already. */
vm_offset_t
pmap_map(vm_offset_t *virt __unused, vm_paddr_t start, vm_paddr_t end __unused,
    int prot __unused)
{
	return (PHYS_TO_DMAP(start));
}

/*
 * Split the 2 MB page that pde maps.  The new table maps the same, so only the page size changes
 * under the processors' feet; they are made to flush the large translation.
 */
static bool
pde_demote(pd_entry_t *pde, vm_offset_t va)
{
	pd_entry_t old = *pde;
	pt_entry_t *t, template;
	vm_paddr_t pa = table_alloc();
	int i;

	if (pa == 0)
		return (false);
	template = old & ~(X86_PG_PS | X86_PG_PDE_PAT);
	if (old & X86_PG_PDE_PAT)
		template |= X86_PG_PTE_PAT;
	t = (pt_entry_t *)PHYS_TO_DMAP(pa);
	for (i = 0; i < NPTEPG; i++)
		t[i] = template + ptoa((pt_entry_t)i);
	if (!atomic_cmpset_rel_long(pde, old, pa | PTE_TABLE))
		table_free(pa);
	pmap_invalidate_range(kernel_pmap, va & ~PDRMASK, (va & ~PDRMASK) + NBPDR);
	return (true);
}

/*
 * Map 2 MB by one entry again, if the table below pde says nothing that such an entry can't.  Only
 * in the direct map: no other CPU reads its tables, so this one can be freed.
 */
static void
pde_promote(pd_entry_t *pde, vm_offset_t va)
{
	pt_entry_t *t = table_at(*pde);
	vm_paddr_t table = *pde & PG_FRAME;
	pd_entry_t new;
	int i;

	for (i = 1; i < NPTEPG; i++) {
		if (t[i] != t[0] + ptoa((pt_entry_t)i))
			return;
	}
	new = (t[0] & ~X86_PG_PTE_PAT) | X86_PG_PS;
	if (t[0] & X86_PG_PTE_PAT)
		new |= X86_PG_PDE_PAT;
	pde_store(pde, new);
	pmap_invalidate_range(kernel_pmap, va & ~PDRMASK, (va & ~PDRMASK) + NBPDR);
	table_free(table);
	pmap_promotions++;
}

/*
 * Clear and set bits in the entries of the pages of [va, end), which are in one 2 MB page or table.
 */
static int
change_pde_range(vm_offset_t va, vm_offset_t end, pt_entry_t clear, pt_entry_t set)
{
	pd_entry_t *pde = pde_find(va);
	pt_entry_t *pte, old;
	vm_offset_t v;

	if (pde == NULL || *pde == 0)
		return (EINVAL);
	if ((*pde & X86_PG_PS) != 0) {
		/* The bits for the memory type are elsewhere in the entry of a large page. */
		if (end - va == NBPDR && ((clear | set) & X86_PG_PTE_CACHE) == 0) {
			pde_store(pde, (*pde & ~clear) | set);
			return (0);
		}
		if (!pde_demote(pde, va))
			return (ENOMEM);
		pmap_demotions++;
	}
	pte = &table_at(*pde)[pmap_pte_index(va)];
	for (v = va; v < end; v += PAGE_SIZE, pte++) {
		do {
			old = *pte;
		} while (!atomic_cmpset_long(pte, old, (old & ~clear) | set));
	}
	if (VIRT_IN_DMAP(va))
		pde_promote(pde, va);
	return (0);
}

/*
 * Clear and set bits in the entries of all pages of [va, va + size), splitting large pages, and, in
 * the direct map, putting them together again.
 */
static int
change_range(vm_offset_t va, vm_size_t size, pt_entry_t clear, pt_entry_t set)
{
	vm_offset_t start = trunc_page(va), end = round_page(va + size), next;
	bool dmap = VIRT_IN_DMAP(va);
	int error = 0;

	if (dmap)
		mtx_lock(&pmap_dmap_mtx);
	for (va = start; error == 0 && va < end; va = next) {
		next = MIN((va & ~PDRMASK) + NBPDR, end);
		error = change_pde_range(va, next, clear, set);
	}
	if (dmap)
		mtx_unlock(&pmap_dmap_mtx);
	pmap_invalidate_range(kernel_pmap, start, end);
	return (error);
}

/*
 * Change the memory type of mapped kernel memory.  EINVAL: not mapped, or unknown type.  ENOMEM.
 */
int
pmap_change_attr(vm_offset_t va, vm_size_t size, int mode)
{
	int error;

	if (!pmap_is_valid_memattr(kernel_pmap, mode))
		return (EINVAL);
	error = change_range(va, size, X86_PG_PTE_CACHE, pmap_cache_bits(kernel_pmap, mode, false));
	if (error == 0 && mode != VM_MEMATTR_WRITE_BACK)
		pmap_invalidate_cache_range(va, va + size);
	return (error);
}

/*
 * Change the protection of mapped kernel memory; VM_PROT_NONE makes any access fault, and a later
 * call undoes it.  EINVAL: not mapped.  ENOMEM.
 */
int
pmap_change_prot(vm_offset_t va, vm_size_t size, vm_prot_t prot)
{
	pt_entry_t set = 0;

	if (prot != VM_PROT_NONE)
		set |= X86_PG_V;
	if (prot & VM_PROT_WRITE)
		set |= X86_PG_RW;
	if ((prot & VM_PROT_EXECUTE) == 0)
		set |= pg_nx;
	return (change_range(va, size, X86_PG_V | X86_PG_RW | pg_nx, set));
}

/* Set the memory type with which a page is mapped, in the direct map too. */
void
pmap_page_set_memattr(vm_page_t m, vm_memattr_t ma)
{
	if (m->md.pat_mode == ma)
		return;
	m->md.pat_mode = ma;
	if (pmap_change_attr(PHYS_TO_DMAP(VM_PAGE_TO_PHYS(m)), PAGE_SIZE, ma) != 0)
		panic("memory type of page %#lx", (u_long)VM_PAGE_TO_PHYS(m));
}

/*
 * Device memory.
 */
void *
pmap_mapdev_attr(vm_paddr_t pa, vm_size_t size, int mode)
{
	vm_offset_t va, v, offset = pa & PAGE_MASK;
	pt_entry_t bits;

	size = round_page(offset + size);
	pa = trunc_page(pa);
	if (pmap_initialized) {
		va = kva_alloc(size);
		if (va == 0)
			panic("no address space for %#lx bytes of device memory", size);
	} else {
		va = virtual_avail;
		virtual_avail += size;
	}
	bits = PTE_MAPPED | X86_PG_RW | pg_nx | pmap_cache_bits(kernel_pmap, mode, false);
	for (v = va; v < va + size; v += PAGE_SIZE, pa += PAGE_SIZE)
		pte_store(pte_alloc(v), pa | bits);
	return ((void *)(va + offset));
}

void *
pmap_mapdev(vm_paddr_t pa, vm_size_t size)
{
	return (pmap_mapdev_attr(pa, size, PAT_UNCACHEABLE));
}

void *
pmap_mapdev_pciecfg(vm_paddr_t pa, vm_size_t size)
{
	return (pmap_mapdev_attr(pa, size, PAT_UNCACHEABLE));
}

/* Firmware tables are in memory: the direct map has them if it reaches that far. */
void *
pmap_mapbios(vm_paddr_t pa, vm_size_t size)
{
	if (PHYS_IN_DMAP(pa + size - 1))
		return ((void *)PHYS_TO_DMAP(pa));
	return (pmap_mapdev_attr(pa, size, PAT_WRITE_BACK));
}

void
pmap_unmapdev(void *p, vm_size_t size)
{
	vm_offset_t va = (vm_offset_t)p, offset = va & PAGE_MASK;

	if (VIRT_IN_DMAP(va))
		return;
	va = trunc_page(va);
	size = round_page(offset + size);
	pmap_qremove(va, atop(size));
	if (pmap_initialized)
		kva_free(va, size);
}
