/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * UMA's lower layer: kegs, which divide pages into items.
 *
 * A keg gets memory from its back end in slabs of one or more pages, each divided into items of
 * one size.  A slab's header holds one bit for each item that is free.  It lies behind the
 * items on the page if that costs no more than a tenth of them, else it comes from a zone of
 * headers.  Slabs of one page are used through the direct map; larger ones are mapped.
 *
 * Any item leads to its slab: by its address if the header is on the page, else by way of
 * plinks.uma of its vm_page.
 *
 * Per-CPU kegs (UMA_ZONE_PCPU) have slabs of one page for each CPU, and cut items from the
 * first; the copy of an item for CPU n lies n pages further on.
 *
 * With UZF_REDZONE the space from one item to the next has room for a red zone (uma_dbg.c).
 *
 * Locking.  uk_lock protects the lists, counts and free bits.  Back ends, init and fini run
 * without it.
 *
 * Gaps.  UMA_ZONE_NOTPAGE (memory without vm_page) and UMA_ZONE_CACHESPREAD.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/smp.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_page.h>
#include <vm/uma.h>
#include <vm/uma_dbg.h>
#include <vm/uma_tree.h>
#include <vm/vm_tree.h>

static uma_zone_t slab_zone;

/*
 * The back ends.  A slab of one page costs no address space.
 */
static void *
uma_page_alloc(uma_zone_t zone, vm_size_t size, int domain, uint8_t *pflag, int wait)
{
	vm_page_t m;

	*pflag = UMA_SLAB_KERNEL;
	if (size != PAGE_SIZE)
		return (kmem_malloc(size, wait));
	m = vm_page_alloc_noobj(malloc2vm_flags(wait) | VM_ALLOC_WIRED);
	return (m == NULL ? NULL : (void *)PHYS_TO_DMAP(VM_PAGE_TO_PHYS(m)));
}

static void *
uma_contig_alloc(uma_zone_t zone, vm_size_t size, int domain, uint8_t *pflag, int wait)
{
	*pflag = UMA_SLAB_KERNEL;
	return (kmem_alloc_contig(size, wait, 0, ~(vm_paddr_t)0, 1, 0, VM_MEMATTR_DEFAULT));
}

static void
uma_page_free(void *mem, vm_size_t size, uint8_t pflag)
{
	kmem_free(mem, size);
}

static int
zero_init(void *mem, int size, int flags)
{
	memset(mem, 0, size);
	return (0);
}

size_t
slab_header_size(uint32_t flags, int ipers)
{
	size_t size = sizeof(struct uma_slab);

#ifdef INVARIANTS
	if ((flags & UMA_ZONE_MALLOC) != 0)
		size += ipers * sizeof(uint32_t);
#endif
	return (roundup2(size, sizeof(void *)));
}

/*
 * How items and the header lie in a slab.
 */
static void
keg_layout(struct uma_keg *keg)
{
	int off, on;

	if ((keg->uk_flags & UMA_ZONE_PCPU) != 0) {
		keg->uk_ppera = mp_maxid + 1;
		keg->uk_ipers = PAGE_SIZE / keg->uk_rsize;
		keg->uk_flags |= UZF_OFFPAGE;
		return;
	}
	if (keg->uk_rsize > PAGE_SIZE) {
		keg->uk_ppera = howmany(keg->uk_rsize, PAGE_SIZE);
		keg->uk_ipers = 1;
		keg->uk_flags |= UZF_OFFPAGE;
		return;
	}
	keg->uk_ppera = 1;
	off = PAGE_SIZE / keg->uk_rsize;
	for (on = off; on * keg->uk_rsize + slab_header_size(keg->uk_flags, on) > PAGE_SIZE; on--)
		continue;
	if ((keg->uk_flags & UMA_ZONE_NOTOUCH) != 0 ||
	    (off <= UMA_OFFPAGE_MAX && on * 10 < off * 9 &&
	    (keg->uk_flags & UZF_INTERNAL) == 0)) {
		keg->uk_ipers = MIN(off, UMA_OFFPAGE_MAX);
		keg->uk_flags |= UZF_OFFPAGE;
		return;
	}
	keg->uk_ipers = on;
	keg->uk_pgoff = PAGE_SIZE - slab_header_size(keg->uk_flags, on);
}

void
keg_init(struct uma_keg *keg, const struct uma_keg_args *ka)
{
	KASSERT((ka->flags & (UMA_ZONE_NOTPAGE | UMA_ZONE_CACHESPREAD | UMA_ZONE_SMR)) == 0,
	    ("zone %s: flags %#x are not supported", ka->name, ka->flags));
	KASSERT(ka->size > 0 && powerof2(ka->align + 1), ("zone %s: size %zu, align %#x", ka->name,
	    ka->size, ka->align));
	memset(keg, 0, sizeof(*keg));
	mtx_init(&keg->uk_lock, ka->name, "UMA keg", MTX_DEF | MTX_DUPOK);
	keg->uk_name = ka->name;
	keg->uk_flags = ka->flags;
	keg->uk_size = ka->size;
	keg->uk_align = ka->align;
	keg->uk_rsize = roundup2(MAX(ka->size + ((ka->flags & UZF_REDZONE) != 0 ? UMA_REDZONE : 0),
	    UMA_SMALLEST_UNIT), ka->align + 1);
	keg->uk_init = ka->init;
	keg->uk_fini = ka->fini;
	if ((ka->flags & UMA_ZONE_ZINIT) != 0 && ka->init == NULL &&
	    (ka->flags & UMA_ZONE_PCPU) == 0)
		keg->uk_init = zero_init;
	keg_layout(keg);
	keg->uk_allocf = (ka->flags & UMA_ZONE_CONTIG) != 0 && keg->uk_ppera > 1 ?
	    uma_contig_alloc : uma_page_alloc;
	keg->uk_freef = uma_page_free;
	LIST_INIT(&keg->uk_partial);
	LIST_INIT(&keg->uk_empty);
	LIST_INIT(&keg->uk_full);
}

/*
 * Let go of a keg.  Slabs with items that were never freed stay where they are.
 */
void
keg_fini(struct uma_keg *keg)
{
	keg_drain(keg);
	if (keg->uk_pages != 0)
		printf("uma: zone %s destroyed with items allocated, %u pages are lost\n",
		    keg->uk_name, keg->uk_pages);
	mtx_destroy(&keg->uk_lock);
}

static void *
slab_item(const struct uma_keg *keg, const struct uma_slab *slab, int i)
{
	return (slab->us_data + i * keg->uk_rsize);
}

/*
 * Free a slab whose first ninit items have been through init.
 */
static void
slab_free(struct uma_keg *keg, struct uma_slab *slab, int ninit)
{
	uint8_t *data = slab->us_data, pflag = slab->us_pflag;
	int i;

	if (keg->uk_fini != NULL)
		for (i = 0; i < ninit; i++)
			keg->uk_fini(slab_item(keg, slab, i), keg->uk_size);
	if ((keg->uk_flags & UZF_OFFPAGE) != 0)
		uma_zfree(slab_zone, slab);
	keg->uk_freef(data, ptoa(keg->uk_ppera), pflag);
}

static struct uma_slab *
slab_alloc(struct uma_keg *keg, int flags)
{
	struct uma_slab *slab;
	uint8_t *data, pflag;
	vm_page_t m;
	int i;

	flags &= ~M_ZERO;
	if ((keg->uk_flags & UMA_ZONE_ZINIT) != 0 && keg->uk_init == NULL)
		flags |= M_ZERO;
	data = keg->uk_allocf(NULL, ptoa(keg->uk_ppera), UMA_ANYDOMAIN, &pflag, flags);
	if (data == NULL)
		return (NULL);
	if ((keg->uk_flags & UZF_OFFPAGE) != 0) {
		slab = uma_zalloc(slab_zone, flags & ~M_ZERO);
		if (slab == NULL) {
			keg->uk_freef(data, ptoa(keg->uk_ppera), pflag);
			return (NULL);
		}
	} else
		slab = (struct uma_slab *)(data + keg->uk_pgoff);
	memset(slab, 0, slab_header_size(keg->uk_flags, keg->uk_ipers));
	slab->us_data = data;
	slab->us_keg = keg;
	slab->us_pflag = pflag;
	for (i = 0; i < keg->uk_ipers; i++) {
		uma_dbg_init(keg, slab_item(keg, slab, i));
		if (keg->uk_init != NULL &&
		    keg->uk_init(slab_item(keg, slab, i), keg->uk_size, flags) != 0) {
			slab_free(keg, slab, i);
			return (NULL);
		}
		slab->us_free[i / 64] |= 1UL << (i % 64);
	}
	slab->us_nfree = keg->uk_ipers;
	for (i = 0; i < keg->uk_ppera; i++) {
		m = PHYS_TO_VM_PAGE(pmap_kextract((vm_offset_t)data + ptoa(i)));
		m->plinks.uma.slab = slab;
		m->plinks.uma.zone = keg;
	}
	return (slab);
}

/*
 * The slab that the item is in, and which one it is there.
 */
struct uma_slab *
keg_item_slab(struct uma_keg *keg, const void *item, int *indexp)
{
	struct uma_slab *slab;
	uintptr_t off;
	vm_page_t m;

	if ((keg->uk_flags & UZF_OFFPAGE) == 0)
		slab = (struct uma_slab *)(trunc_page((uintptr_t)item) + keg->uk_pgoff);
	else {
		m = PHYS_TO_VM_PAGE(pmap_kextract((vm_offset_t)item));
		slab = m == NULL ? NULL : m->plinks.uma.slab;
	}
	if (slab == NULL || slab->us_keg != keg)
		panic("uma: %p is not an item of zone %s", item, keg->uk_name);
	off = (uintptr_t)item - (uintptr_t)slab->us_data;
	*indexp = off / keg->uk_rsize;
	if (off % keg->uk_rsize != 0 || *indexp >= keg->uk_ipers)
		panic("uma: %p is not the beginning of an item of zone %s", item, keg->uk_name);
	return (slab);
}

/*
 * Move items from the keg's slabs to the store, as long as there are any.
 */
static int
keg_take(struct uma_keg *keg, void **store, int count, uint32_t reserve)
{
	struct uma_slab *slab;
	int bit, i, w;

	mtx_assert(&keg->uk_lock, MA_OWNED);
	for (i = 0; i < count && keg->uk_free > reserve; i++) {
		slab = LIST_FIRST(&keg->uk_partial);
		if (slab == NULL)
			slab = LIST_FIRST(&keg->uk_empty);
		for (w = 0; slab->us_free[w] == 0; w++)
			continue;
		bit = ffsl(slab->us_free[w]) - 1;
		slab->us_free[w] &= ~(1UL << bit);
		store[i] = slab_item(keg, slab, w * 64 + bit);
		keg->uk_free--;
		if (slab->us_nfree-- == keg->uk_ipers || slab->us_nfree == 0) {
			LIST_REMOVE(slab, us_link);
			LIST_INSERT_HEAD(slab->us_nfree == 0 ? &keg->uk_full : &keg->uk_partial,
			    slab, us_link);
		}
	}
	return (i);
}

/*
 * Add slabs; how many became it is returned.
 */
int
keg_grow(struct uma_keg *keg, int nslabs, int flags)
{
	struct uma_slab *slab;
	int i;

	for (i = 0; i < nslabs; i++) {
		slab = slab_alloc(keg, flags);
		if (slab == NULL)
			break;
		mtx_lock(&keg->uk_lock);
		LIST_INSERT_HEAD(&keg->uk_empty, slab, us_link);
		keg->uk_pages += keg->uk_ppera;
		keg->uk_free += keg->uk_ipers;
		mtx_unlock(&keg->uk_lock);
	}
	return (i);
}

/*
 * A zone's import function.  The caller sleeps for the first item only, if at all: the rest
 * fill a bucket, and do so only while memory is not short.
 */
int
keg_import(void *arg, void **store, int count, int domain, int flags)
{
	struct uma_keg *keg = arg;
	uint32_t reserve;
	int n;

	n = 0;
	for (;;) {
		mtx_lock(&keg->uk_lock);
		reserve = (flags & M_USE_RESERVE) != 0 ? 0 : keg->uk_reserve;
		n += keg_take(keg, store + n, count - n, reserve);
		mtx_unlock(&keg->uk_lock);
		if (n == count || (flags & M_NOVM) != 0)
			return (n);
		if (n > 0) {
			if (vm_page_free_count < vm_cnt.v_free_min)
				return (n);
			flags = (flags & ~M_WAITOK) | M_NOWAIT;
		}
		if (keg_grow(keg, 1, flags) == 0 && (n > 0 || (flags & M_WAITOK) == 0))
			return (n);
	}
}

void
keg_release(void *arg, void **store, int count)
{
	struct uma_keg *keg = arg;
	struct uma_slab *slab;
	int i, index;

	mtx_lock(&keg->uk_lock);
	for (i = 0; i < count; i++) {
		slab = keg_item_slab(keg, store[i], &index);
		KASSERT((slab->us_free[index / 64] & 1UL << (index % 64)) == 0,
		    ("item %p of zone %s is free already", store[i], keg->uk_name));
		slab->us_free[index / 64] |= 1UL << (index % 64);
		keg->uk_free++;
		if (slab->us_nfree++ == 0 || slab->us_nfree == keg->uk_ipers) {
			LIST_REMOVE(slab, us_link);
			LIST_INSERT_HEAD(slab->us_nfree == keg->uk_ipers ? &keg->uk_empty :
			    &keg->uk_partial, slab, us_link);
		}
	}
	mtx_unlock(&keg->uk_lock);
}

/*
 * Give back every slab of which no item is in use, but for those that hold the reserve.
 */
void
keg_drain(struct uma_keg *keg)
{
	struct uma_slablist drained = LIST_HEAD_INITIALIZER(drained);
	struct uma_slab *slab, *tmp;

	if ((keg->uk_flags & UMA_ZONE_NOFREE) != 0)
		return;
	mtx_lock(&keg->uk_lock);
	LIST_FOREACH_SAFE(slab, &keg->uk_empty, us_link, tmp) {
		if (keg->uk_free - keg->uk_ipers < keg->uk_reserve)
			break;
		LIST_REMOVE(slab, us_link);
		LIST_INSERT_HEAD(&drained, slab, us_link);
		keg->uk_pages -= keg->uk_ppera;
		keg->uk_free -= keg->uk_ipers;
	}
	mtx_unlock(&keg->uk_lock);
	LIST_FOREACH_SAFE(slab, &drained, us_link, tmp)
		slab_free(keg, slab, keg->uk_ipers);
}

/*
 * The zone of slab headers; its own are on their page.
 */
void
keg_startup(void)
{
	slab_zone = uma_zcreate("UMA Slabs", slab_header_size(UMA_ZONE_MALLOC, UMA_OFFPAGE_MAX),
	    NULL, NULL, NULL, NULL, UMA_ALIGN_PTR, UZF_INTERNAL | UMA_ZONE_VM | UMA_ZONE_NOBUCKET);
}
