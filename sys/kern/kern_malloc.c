/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * malloc(9).
 *
 * Up to 64 KB an allocation is an item of a UMA zone whose size is the next power of two; above
 * that it has whole pages.  free() gets only an address, and finds the kind of allocation in its
 * vm_page: plinks.uma.slab is either the slab, or, with its lowest bit set, the size of an
 * allocation of whole pages.
 *
 * Each malloc type counts allocations and bytes, by CPU, so that a module's leaks are detected when
 * its types are removed.  The size of the item is counted, not the size requested.
 *
 * With INVARIANTS each item records the type it was allocated with (as the low 32 bits of the
 * type's address: types are kernel data, all within 2 GB), and a free with another type panics.
 *
 * Locking.  malloc_mtx protects the list of types; statistics are per CPU, in a critical section.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>
#include <sys/sysctl.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_page.h>
#include <vm/uma.h>
#include <vm/uma_dbg.h>
#include <vm/uma_tree.h>

#include <kern/malloc_stat_tree.h>

/* Allocations of pages: a mark in plinks.uma.slab, and the size above it. */
#define	PAGES_MARK	1UL
#define	PAGES_COOKIE(size)	((void *)((size) | PAGES_MARK))
#define	IS_PAGES(cookie)	(((uintptr_t)(cookie) & PAGES_MARK) != 0)
#define	PAGES_SIZE(cookie)	((uintptr_t)(cookie) & ~PAGES_MARK)

#define	ZONE_SHIFT_MIN	4
#define	ZONE_SHIFT_MAX	16
#define	ZONE_MAX	(1UL << ZONE_SHIFT_MAX)

static const char *const malloc_zone_names[] = {
	"malloc-16", "malloc-32", "malloc-64", "malloc-128", "malloc-256", "malloc-512",
	"malloc-1024", "malloc-2048", "malloc-4096", "malloc-8192", "malloc-16384",
	"malloc-32768", "malloc-65536",
};
_Static_assert(nitems(malloc_zone_names) == ZONE_SHIFT_MAX - ZONE_SHIFT_MIN + 1,
    "a name for each zone");

static uma_zone_t malloc_zones[nitems(malloc_zone_names)];

struct mtx malloc_mtx;
static struct malloc_type *malloc_types;

MALLOC_DEFINE(M_CACHE, "cache", "dynamically allocated cache");
MALLOC_DEFINE(M_DEVBUF, "devbuf", "device driver memory");
MALLOC_DEFINE(M_TEMP, "temp", "temporary buffers");
MALLOC_DEFINE(M_IOV, "iov", "I/O vectors");

/*
 * Which zone serves the size: 0 for up to 16 bytes, and so on.
 */
static int
malloc_zone_index(size_t size)
{
	return (size <= 1UL << ZONE_SHIFT_MIN ? 0 : flsl(size - 1) - ZONE_SHIFT_MIN);
}

static size_t
malloc_zone_size(int index)
{
	return (1UL << (index + ZONE_SHIFT_MIN));
}

size_t
malloc_size(size_t size)
{
	return (size > ZONE_MAX ? round_page(size) : malloc_zone_size(malloc_zone_index(size)));
}

/*
 * Statistics.  mts_size has one bit for each zone.
 */
static void
malloc_stat_alloc(struct malloc_type *type, u_long size, uint64_t zonebit)
{
	struct malloc_type_stats *mts;

	KASSERT(type->ks_version == M_VERSION && type->ks_mti.mti_stats != NULL,
	    ("malloc type %p is used before it is initialised", type));
	critical_enter();
	mts = zpcpu_get(type->ks_mti.mti_stats);
	mts->mts_memalloced += size;
	mts->mts_numallocs++;
	mts->mts_size |= zonebit;
	critical_exit();
}

void
malloc_type_allocated(struct malloc_type *type, unsigned long size)
{
	malloc_stat_alloc(type, size, 0);
}

void
malloc_type_freed(struct malloc_type *type, unsigned long size)
{
	struct malloc_type_stats *mts;

	critical_enter();
	mts = zpcpu_get(type->ks_mti.mti_stats);
	mts->mts_memfreed += size;
	mts->mts_numfrees++;
	critical_exit();
}

void
malloc_type_sum(struct malloc_type *type, struct malloc_type_stats *sum)
{
	const struct malloc_type_stats *mts;
	int cpu;

	memset(sum, 0, sizeof(*sum));
	for (cpu = 0; cpu <= mp_maxid; cpu++) {
		mts = zpcpu_get_cpu(type->ks_mti.mti_stats, cpu);
		sum->mts_memalloced += mts->mts_memalloced;
		sum->mts_memfreed += mts->mts_memfreed;
		sum->mts_numallocs += mts->mts_numallocs;
		sum->mts_numfrees += mts->mts_numfrees;
		sum->mts_size |= mts->mts_size;
	}
}

/*
 * The type of an allocation, under INVARIANTS.
 */
static uint32_t *
malloc_tag(void *addr)
{
#ifdef INVARIANTS
	struct uma_slab *slab;
	int index;

	slab = PHYS_TO_VM_PAGE(pmap_kextract((vm_offset_t)addr))->plinks.uma.slab;
	slab = keg_item_slab(slab->us_keg, addr, &index);
	return (&slab->us_tag[index]);
#else
	return (NULL);
#endif
}

static void
malloc_tag_set(void *addr, struct malloc_type *type)
{
	uint32_t *tag = malloc_tag(addr);

	if (tag != NULL)
		*tag = (uint32_t)(uintptr_t)type;
}

static void
malloc_tag_check(void *addr, struct malloc_type *type)
{
	uint32_t *tag = malloc_tag(addr);

	if (tag != NULL && *tag != (uint32_t)(uintptr_t)type && *tag != 0)
		panic("malloc: %p is freed as %s but was allocated as type %#x", addr,
		    type->ks_shortdesc, *tag);
}

/*
 * Red zones, under INVARIANTS: the rest of an item behind the requested size, at least one word, is
 * filled with a pattern that free(9) checks.  The last word combines the pattern and the size.
 */
#ifdef INVARIANTS
#define	REDZONE_SIZE	sizeof(uint64_t)
#define	REDZONE_BYTE	0x5a
#define	REDZONE_MAGIC	(0x5a5a5a5aul << 32)

static uint64_t *
redzone_word(void *addr, size_t zone_size)
{
	return ((uint64_t *)((char *)addr + zone_size) - 1);
}

static void
redzone_set(void *addr, size_t size, size_t zone_size)
{
	memset((char *)addr + size, REDZONE_BYTE, zone_size - size);
	*redzone_word(addr, zone_size) = REDZONE_MAGIC | size;
}

/* The size that was requested. */
static size_t
redzone_check(const void *addr, size_t zone_size, const char *type)
{
	uint64_t word = *redzone_word(__DECONST(void *, addr), zone_size);
	const u_char *p, *end = (const u_char *)addr + zone_size - REDZONE_SIZE;
	size_t size = word & 0xffffffff;

	if ((word & ~0xfffffffful) != REDZONE_MAGIC || size + REDZONE_SIZE > zone_size)
		panic("redzone: %p (%s) was written to behind its end: %#lx at %p", addr, type,
		    word, end);
	for (p = (const u_char *)addr + size; p < end; p++)
		if (*p != REDZONE_BYTE)
			panic("redzone: %p (%s, %zu bytes) was written to behind its end: %#x "
			    "at offset %zu", addr, type, size, *p, p - (const u_char *)addr);
	return (size);
}
#else
#define	REDZONE_SIZE	0
#endif

static void
malloc_pages_mark(void *addr, size_t size, struct malloc_type *type)
{
	vm_page_t m = PHYS_TO_VM_PAGE(pmap_kextract((vm_offset_t)addr));

	m->plinks.uma.slab = PAGES_COOKIE(size);
	m->plinks.uma.zone = type;
	malloc_type_allocated(type, size);
}

static void *
malloc_pages(size_t size, struct malloc_type *type, int flags)
{
	void *addr;

	size = round_page(size);
	addr = kmem_malloc(size, flags);
	if (addr != NULL)
		malloc_pages_mark(addr, size, type);
	return (addr);
}

static void
malloc_flags_check(struct malloc_type *type, int flags)
{
	KASSERT((flags & (M_WAITOK | M_NOWAIT)) == M_WAITOK ||
	    (flags & (M_WAITOK | M_NOWAIT)) == M_NOWAIT,
	    ("malloc: flags %#x for %s: one of M_WAITOK and M_NOWAIT", flags, type->ks_shortdesc));
	KASSERT((flags & M_WAITOK) == 0 || cold ||
	    (curthread->td_critnest == 0 && THREAD_CAN_SLEEP()),
	    ("malloc: M_WAITOK for %s where sleep is not allowed", type->ks_shortdesc));
	if ((flags & M_WAITOK) != 0)
		WITNESS_WARN(WARN_GIANTOK | WARN_SLEEPOK, NULL, "malloc(M_WAITOK) for %s",
		    type->ks_shortdesc);
	KASSERT(curthread->td_critnest == 0 || cold || SCHEDULER_STOPPED(),
	    ("malloc: called with spinlock or critical section held (%s)", type->ks_shortdesc));
}

void *
(malloc)(size_t size, struct malloc_type *type, int flags)
{
	void *addr;
	int index;

	malloc_flags_check(type, flags);
	if (size + REDZONE_SIZE > ZONE_MAX)
		return (malloc_pages(size, type, flags));
	index = malloc_zone_index(size + REDZONE_SIZE);
	addr = uma_zalloc_arg(malloc_zones[index], type, flags);
	if (addr != NULL) {
#ifdef INVARIANTS
		redzone_set(addr, size, malloc_zone_size(index));
#endif
		malloc_tag_set(addr, type);
		malloc_stat_alloc(type, malloc_zone_size(index), 1UL << index);
	}
	return (addr);
}

void *
malloc_domainset(size_t size, struct malloc_type *type, struct domainset *ds, int flags)
{
	return (malloc(size, type, flags));
}

void *
mallocarray(size_t nmemb, size_t size, struct malloc_type *type, int flags)
{
	if (WOULD_OVERFLOW(nmemb, size))
		panic("mallocarray: %zu * %zu overflows", nmemb, size);
	return (malloc(nmemb * size, type, flags));
}

void *
mallocarray_domainset(size_t nmemb, size_t size, struct malloc_type *type,
    struct domainset *ds, int flags)
{
	return (mallocarray(nmemb, size, type, flags));
}

/*
 * An alignment of up to a page only needs a large enough size: items of a power of two are aligned
 * to it.
 */
void *
malloc_aligned(size_t size, size_t align, struct malloc_type *type, int flags)
{
	KASSERT(powerof2(align) && align != 0 && align <= PAGE_SIZE,
	    ("malloc_aligned: alignment %#zx", align));
	return (malloc(MAX(size, align), type, flags));
}

void *
malloc_domainset_aligned(size_t size, size_t align, struct malloc_type *type,
    struct domainset *ds, int flags)
{
	return (malloc_aligned(size, align, type, flags));
}

/*
 * The contents of the vm_page of malloc'ed memory.
 */
static void *
malloc_cookie(const void *addr, struct malloc_type *type)
{
	vm_page_t m;

	m = PHYS_TO_VM_PAGE(pmap_kextract((vm_offset_t)addr));
	if (m == NULL || m->plinks.uma.slab == NULL)
		panic("malloc: %p is not from malloc (%s)", addr,
		    type == NULL ? "no type" : type->ks_shortdesc);
	return (m->plinks.uma.slab);
}

static void
free_pages(void *addr, size_t size, struct malloc_type *type)
{
	vm_page_t m = PHYS_TO_VM_PAGE(pmap_kextract((vm_offset_t)addr));

	KASSERT(((uintptr_t)addr & PAGE_MASK) == 0, ("free: %p is not page aligned", addr));
	KASSERT(m->plinks.uma.zone == type, ("free: %p is of type %s, not %s", addr,
	    ((struct malloc_type *)m->plinks.uma.zone)->ks_shortdesc, type->ks_shortdesc));
	m->plinks.uma.slab = NULL;
	m->plinks.uma.zone = NULL;
	malloc_type_freed(type, size);
	kmem_free(addr, size);
}

static uma_zone_t
malloc_slab_zone(const struct uma_slab *slab, void *addr)
{
	size_t size = slab->us_keg->uk_size;

	if ((slab->us_keg->uk_flags & UMA_ZONE_MALLOC) == 0)
		panic("free: %p is an item of zone %s", addr, slab->us_keg->uk_name);
	return (malloc_zones[malloc_zone_index(size)]);
}

void
free(void *addr, struct malloc_type *type)
{
	uma_zone_t zone;
	void *cookie;

	if (addr == NULL)
		return;
	cookie = malloc_cookie(addr, type);
	if (IS_PAGES(cookie)) {
		free_pages(addr, PAGES_SIZE(cookie), type);
		return;
	}
	zone = malloc_slab_zone(cookie, addr);
	malloc_tag_check(addr, type);
#ifdef INVARIANTS
	uma_dbg_in_use(zone, addr);
	redzone_check(addr, zone->uz_size, type->ks_shortdesc);
#endif
	malloc_type_freed(type, zone->uz_size);
	uma_zfree_arg(zone, addr, type);
}

size_t
malloc_usable_size(const void *addr)
{
	void *cookie;

	if (addr == NULL)
		return (0);
	cookie = malloc_cookie(addr, NULL);
	if (IS_PAGES(cookie))
		return (PAGES_SIZE(cookie));
#ifdef INVARIANTS
	return (redzone_check(addr, ((struct uma_slab *)cookie)->us_keg->uk_size, "in use"));
#else
	return (((struct uma_slab *)cookie)->us_keg->uk_size);
#endif
}

void
zfree(void *addr, struct malloc_type *type)
{
	if (addr == NULL)
		return;
	explicit_bzero(addr, malloc_usable_size(addr));
	free(addr, type);
}

/*
 * Memory that is still large enough is kept, unless half of it would be unused.
 */
void *
realloc(void *addr, size_t size, struct malloc_type *type, int flags)
{
	void *copy;
	size_t usable;

	if (addr == NULL)
		return (malloc(size, type, flags));
	usable = malloc_usable_size(addr);
	if (size <= usable && (size > usable / 2 || usable == malloc_zone_size(0)))
		return (addr);
	copy = malloc(size, type, flags);
	if (copy == NULL)
		return (NULL);
	memcpy(copy, addr, MIN(size, usable));
	free(addr, type);
	return (copy);
}

void *
reallocf(void *addr, size_t size, struct malloc_type *type, int flags)
{
	void *mem = realloc(addr, size, type, flags);

	if (mem == NULL)
		free(addr, type);
	return (mem);
}

void *
contigmalloc(unsigned long size, struct malloc_type *type, int flags, vm_paddr_t low,
    vm_paddr_t high, unsigned long alignment, vm_paddr_t boundary)
{
	void *addr;

	malloc_flags_check(type, flags);
	size = round_page(size);
	addr = kmem_alloc_contig(size, flags, low, high, alignment, boundary,
	    VM_MEMATTR_DEFAULT);
	if (addr != NULL)
		malloc_pages_mark(addr, size, type);
	return (addr);
}

void *
contigmalloc_domainset(unsigned long size, struct malloc_type *type, struct domainset *ds,
    int flags, vm_paddr_t low, vm_paddr_t high, unsigned long alignment, vm_paddr_t boundary)
{
	return (contigmalloc(size, type, flags, low, high, alignment, boundary));
}

void
contigfree(void *addr, unsigned long size, struct malloc_type *type)
{
	KASSERT(malloc_usable_size(addr) == round_page(size),
	    ("contigfree: %p has %zu bytes, not %lu", addr, malloc_usable_size(addr), size));
	free(addr, type);
}

/*
 * Types are added and removed with the modules that define them.
 */
void
malloc_init(void *data)
{
	struct malloc_type *type = data;

	if (type->ks_version != M_VERSION)
		panic("malloc type %s: version %#lx", type->ks_shortdesc, type->ks_version);
	type->ks_mti.mti_stats = uma_zalloc_pcpu(pcpu_zone_64, M_WAITOK | M_ZERO);
	mtx_lock(&malloc_mtx);
	type->ks_next = malloc_types;
	malloc_types = type;
	mtx_unlock(&malloc_mtx);
}

void
malloc_uninit(void *data)
{
	struct malloc_type *type = data, **link;
	struct malloc_type_stats sum;

	mtx_lock(&malloc_mtx);
	for (link = &malloc_types; *link != NULL; link = &(*link)->ks_next) {
		if (*link == type) {
			*link = type->ks_next;
			break;
		}
	}
	mtx_unlock(&malloc_mtx);
	malloc_type_sum(type, &sum);
	if (sum.mts_memalloced != sum.mts_memfreed || sum.mts_numallocs != sum.mts_numfrees)
		printf("malloc: type %s destroyed with %ju allocations (%ju bytes) not freed\n",
		    type->ks_shortdesc, (uintmax_t)(sum.mts_numallocs - sum.mts_numfrees),
		    (uintmax_t)(sum.mts_memalloced - sum.mts_memfreed));
	uma_zfree_pcpu(pcpu_zone_64, type->ks_mti.mti_stats);
	type->ks_mti.mti_stats = NULL;
}

struct malloc_type *
malloc_desc2type(const char *desc)
{
	struct malloc_type *type;

	mtx_assert(&malloc_mtx, MA_OWNED);
	for (type = malloc_types; type != NULL; type = type->ks_next)
		if (strcmp(type->ks_shortdesc, desc) == 0)
			break;
	return (type);
}

/*
 * Call func for each type, without malloc_mtx: a list of them is made first.
 */
void
malloc_type_list(malloc_type_list_func_t *func, void *arg)
{
	struct malloc_type *type, **list;
	int count, i, room;

	mtx_lock(&malloc_mtx);
	room = 0;
	for (type = malloc_types; type != NULL; type = type->ks_next)
		room++;
	mtx_unlock(&malloc_mtx);
	list = mallocarray(room, sizeof(*list), M_TEMP, M_WAITOK);
	mtx_lock(&malloc_mtx);
	count = 0;
	for (type = malloc_types; type != NULL && count < room; type = type->ks_next)
		list[count++] = type;
	mtx_unlock(&malloc_mtx);
	for (i = 0; i < count; i++)
		func(list[i], arg);
	free(list, M_TEMP);
}

static uma_zone_t
malloc_zone_create(int index)
{
	uma_ctor ctor = NULL;
	uma_dtor dtor = NULL;
	uma_init init = NULL;
	uma_fini fini = NULL;

#ifdef INVARIANTS
	if (uma_trash) {
		ctor = mtrash_ctor;
		dtor = mtrash_dtor;
		init = mtrash_init;
		fini = mtrash_fini;
	}
#endif
	return (uma_zcreate(malloc_zone_names[index], malloc_zone_size(index), ctor, dtor, init,
	    fini, UMA_ALIGN_PTR, UMA_ZONE_MALLOC));
}

static void
mallocinit(void *dummy)
{
	int i;

	mtx_init(&malloc_mtx, "malloc types", NULL, MTX_DEF);
	for (i = 0; i < nitems(malloc_zones); i++)
		malloc_zones[i] = malloc_zone_create(i);
}
SYSINIT(kmem, SI_SUB_KMEM, SI_ORDER_SECOND, mallocinit, NULL);
