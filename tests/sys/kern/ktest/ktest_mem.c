/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * malloc(9), contigmalloc(9), zone(9), kernel memory, counter(9): nothing overlaps, nothing is
 * lost, limits and alignments hold.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/counter.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_kern.h>
#include <vm/vm_page.h>
#include <vm/uma.h>

#include <machine/cpu.h>

#include "ktest.h"

#define	SLOTS	64

struct slot {
	void	*p;
	size_t	size;
	uint32_t seed;
};

/* Slots that all threads fill and empty, so that memory is freed where it was not allocated. */
struct pool {
	struct mtx	mtx;
	struct slot	slot[SLOTS];
	uma_zone_t	zone;
	size_t		size;
	volatile u_int	ctor, dtor, init, fini;
	volatile u_int	waiting;
	volatile bool	done;
};

static struct slot
pool_swap(struct pool *p, u_int i, struct slot new)
{
	struct slot old;

	mtx_lock(&p->mtx);
	old = p->slot[i];
	p->slot[i] = new;
	mtx_unlock(&p->mtx);
	return (old);
}

static size_t
malloc_some_size(uint32_t *seed)
{
	switch (ktest_random(seed) % 16) {
	case 0:
		return (1 + ktest_random(seed) % (300 * 1024));
	case 1:
	case 2:
		return (1 + ktest_random(seed) % 20000);
	default:
		return (1 + ktest_random(seed) % 2500);
	}
}

static void
malloc_worker(void *arg, int me)
{
	struct pool *p = arg;
	struct slot new, old;
	uint32_t seed = 900 + me;
	u_int i;

	for (i = 0; i < KT_ROUNDS(200u); i++) {
		new.size = malloc_some_size(&seed);
		new.seed = ktest_random(&seed);
		new.p = malloc(new.size, M_KTEST, i % 2 == 0 ? M_WAITOK : M_NOWAIT);
		if (new.p != NULL) {
			KT_TRUE(malloc_usable_size(new.p) >= new.size);
			ktest_fill(new.p, new.size, new.seed);
		}
		old = pool_swap(p, ktest_random(&seed) % SLOTS, new);
		if (old.p != NULL)
			KT_TRUE(ktest_filled(old.p, old.size, old.seed));
		free(old.p, M_KTEST);
	}
}

static void
malloc_contents(void)
{
	struct slot none = { NULL, 0, 0 }, old;
	struct pool *p;
	int i, before = 0, round;

	p = malloc(sizeof(*p), M_KTEST, M_WAITOK | M_ZERO);
	mtx_init(&p->mtx, "ktest pool", NULL, MTX_DEF);
	for (round = 0; round < 2; round++) {
		ktest_run(4, true, malloc_worker, p);
		for (i = 0; i < SLOTS; i++) {
			old = pool_swap(p, i, none);
			if (old.p != NULL)
				KT_TRUE(ktest_filled(old.p, old.size, old.seed));
			free(old.p, M_KTEST);
		}
		uma_reclaim(UMA_RECLAIM_DRAIN_CPU);
		/* What is not a cache of the first round's must be back after the second. */
		if (round == 1)
			KT_LESS(before - (int)vm_free_count(), 500);
		before = vm_free_count();
	}
	mtx_destroy(&p->mtx);
	free(p, M_KTEST);
}

static void
malloc_features(void)
{
	static const size_t sizes[] = { 1, 16, 100, 4096, 5000, 65536, 65537, 200000 };
	char *p, *q;
	size_t i, k, align;
	int before;

	for (i = 0; i < nitems(sizes); i++) {
		p = malloc(sizes[i], M_KTEST, M_WAITOK);
		memset(p, 0xff, sizes[i]);
		free(p, M_KTEST);
		p = malloc(sizes[i], M_KTEST, M_WAITOK | M_ZERO);
		for (k = 0; k < sizes[i] && p[k] == 0; k++)
			;
		KT_EQ(k, sizes[i]);
		KT_EQ((uintptr_t)p % 8, 0);
		ktest_fill(p, sizes[i], i);
		q = realloc(p, sizes[i] * 2, M_KTEST, M_WAITOK);
		KT_TRUE(ktest_filled(q, sizes[i], i));
		q = realloc(q, MAX(sizes[i] / 4, 1), M_KTEST, M_WAITOK);
		KT_TRUE(ktest_filled(q, MAX(sizes[i] / 4, 1), i));
		zfree(q, M_KTEST);
		/* The manual: of a page or more, aligned to a page. */
		if (sizes[i] >= PAGE_SIZE) {
			p = malloc(sizes[i], M_KTEST, M_WAITOK);
			KT_EQ((uintptr_t)p & PAGE_MASK, 0);
			free(p, M_KTEST);
		}
	}
	for (align = 8; align <= PAGE_SIZE; align *= 2) {
		p = malloc_aligned(24, align, M_KTEST, M_WAITOK);
		KT_EQ((uintptr_t)p % align, 0);
		free(p, M_KTEST);
	}
	/* Refusing what can't be had costs nothing. */
	before = vm_free_count();
	KT_TRUE(malloc(1ul << 40, M_KTEST, M_NOWAIT) == NULL);
	KT_LESS(before - (int)vm_free_count(), 50);
	p = realloc(NULL, 10, M_KTEST, M_WAITOK);
	KT_TRUE(p != NULL);
	free(p, M_KTEST);
	free(NULL, M_KTEST);
	p = strdup("abc", M_KTEST);
	KT_STREQ(p, "abc");
	free(p, M_KTEST);
}

static void
malloc_interrupt(void *arg)
{
	struct pool *p = arg;
	void *mem;

	mem = malloc(100, M_KTEST, M_NOWAIT | M_ZERO);
	p->ctor++;
	free(mem, M_KTEST);
}

/* From a software interrupt: without sleeping. */
static void
malloc_from_callout(void)
{
	struct pool p = { .size = 0 };
	struct callout c;
	int i;

	callout_init(&c, 1);
	for (i = 0; i < 20; i++) {
		callout_reset_sbt(&c, SBT_1US, 0, malloc_interrupt, &p, 0);
		KT_WAIT(p.ctor == i + 1);
		callout_drain(&c);
	}
}

static int
item_ctor(void *mem, int size, void *arg, int flags)
{
	struct pool *p = arg;

	atomic_add_int(&p->ctor, 1);
	/* What init wrote is still there. */
	KT_EQ(*(uint64_t *)mem, 0x1234567887654321);
	return (0);
}

static void
item_dtor(void *mem, int size, void *arg)
{
	struct pool *p = arg;

	atomic_add_int(&p->dtor, 1);
}

static struct pool *item_pool;

static int
item_init(void *mem, int size, int flags)
{
	*(uint64_t *)mem = 0x1234567887654321;
	atomic_add_int(&item_pool->init, 1);
	return (0);
}

static void
item_fini(void *mem, int size)
{
	KT_EQ(*(uint64_t *)mem, 0x1234567887654321);
	atomic_add_int(&item_pool->fini, 1);
}

static void
uma_worker(void *arg, int me)
{
	struct slot new, old;
	struct pool *p = arg;
	uint32_t seed = 17 + me;
	u_int i;

	for (i = 0; i < 2000u * ktest_rounds; i++) {
		new.p = uma_zalloc_arg(p->zone, p, i % 2 == 0 ? M_WAITOK : M_NOWAIT);
		new.seed = ktest_random(&seed);
		if (new.p != NULL)
			ktest_fill((char *)new.p + 8, p->size - 8, new.seed);
		old = pool_swap(p, ktest_random(&seed) % SLOTS, new);
		if (old.p != NULL) {
			KT_TRUE(ktest_filled((char *)old.p + 8, p->size - 8, old.seed));
			uma_zfree_arg(p->zone, old.p, p);
		}
	}
}

static void
uma_counts_for_size(size_t size)
{
	struct slot none = { NULL, 0, 0 }, old;
	struct pool *p;
	int i;

	p = malloc(sizeof(*p), M_KTEST, M_WAITOK | M_ZERO);
	item_pool = p;
	mtx_init(&p->mtx, "ktest pool", NULL, MTX_DEF);
	p->size = size;
	p->zone = uma_zcreate("ktest", size, item_ctor, item_dtor, item_init, item_fini,
	    UMA_ALIGN_CACHE, 0);
	ktest_run(4, true, uma_worker, p);
	for (i = 0; i < SLOTS; i++) {
		old = pool_swap(p, i, none);
		if (old.p == NULL)
			continue;
		KT_EQ((uintptr_t)old.p & UMA_ALIGN_CACHE, 0);
		KT_TRUE(ktest_filled((char *)old.p + 8, size - 8, old.seed));
		uma_zfree_arg(p->zone, old.p, p);
	}
	KT_EQ(uma_zone_get_cur(p->zone), 0);
	KT_EQ(p->ctor, p->dtor);
	KT_TRUE(p->ctor > 0);
	uma_zone_reclaim(p->zone, UMA_RECLAIM_DRAIN_CPU);
	uma_zdestroy(p->zone);
	KT_EQ(p->init, p->fini);
	KT_TRUE(p->init > 0);
	mtx_destroy(&p->mtx);
	free(p, M_KTEST);
}

static void
uma_counts(void)
{
	uma_counts_for_size(64);
	uma_counts_for_size(1000);
	uma_counts_for_size(9000);
}

static void
uma_waiter(void *arg, int me)
{
	struct pool *p = arg;
	void *mem;

	p->waiting = 1;
	mem = uma_zalloc(p->zone, M_WAITOK);
	KT_TRUE(mem != NULL);
	KT_TRUE(p->done);
	uma_zfree(p->zone, mem);
	p->waiting = 2;
}

/* A zone's limit: M_NOWAIT fails there, M_WAITOK waits for the next one that is freed. */
static void
uma_limit_holds(void)
{
	struct ktest_thread *kt;
	struct pool p = { .done = false };
	void *mem[64];
	int i, n, max;

	p.zone = uma_zcreate("ktest limit", 1024, NULL, NULL, NULL, NULL, UMA_ALIGN_PTR, 0);
	max = uma_zone_set_max(p.zone, 10);
	KT_TRUE(max >= 10 && max < 64);
	for (n = 0; n < 64; n++)
		if ((mem[n] = uma_zalloc(p.zone, M_NOWAIT)) == NULL)
			break;
	KT_EQ(n, max);
	KT_EQ(uma_zone_get_cur(p.zone), n);
	KT_TRUE(uma_zone_exhausted(p.zone));
	kt = ktest_spawn(uma_waiter, &p, 0, ktest_last_cpu(), 0);
	KT_WAIT(p.waiting == 1);
	pause("ktest", hz / 20);
	KT_EQ(p.waiting, 1);
	p.done = true;
	uma_zfree(p.zone, mem[--n]);
	ktest_join(kt);
	KT_EQ(p.waiting, 2);
	for (i = 0; i < n; i++)
		uma_zfree(p.zone, mem[i]);
	KT_EQ(uma_zone_get_cur(p.zone), 0);
	uma_zdestroy(p.zone);
}

static bool
contig_ok(void *p, size_t size, vm_paddr_t high, u_long align, vm_paddr_t boundary)
{
	vm_paddr_t pa = vtophys(p);
	size_t off;

	for (off = 0; off < size; off += PAGE_SIZE)
		if (vtophys((char *)p + off) != pa + off)
			return (false);
	return (pa % align == 0 && pa + size - 1 <= high &&
	    (boundary == 0 || pa / boundary == (pa + size - 1) / boundary));
}

static void
contig_worker(void *arg, int me)
{
	uint32_t seed = 3 + me;
	vm_paddr_t boundary, high;
	size_t size;
	u_long align;
	void *p;
	u_int i;

	for (i = 0; i < 100u * ktest_rounds; i++) {
		size = 1 + ktest_random(&seed) % (64 * 1024);
		align = PAGE_SIZE << (ktest_random(&seed) % 5);
		boundary = i % 3 == 0 ? 0 : 128 * 1024;
		high = i % 2 == 0 ? 0x1fffffff : ~(vm_paddr_t)0;
		p = contigmalloc(size, M_KTEST, M_NOWAIT | M_ZERO, 0, high, align, boundary);
		if (p == NULL)
			continue;
		KT_TRUE(contig_ok(p, size, high, align, boundary));
		KT_EQ(*(char *)p | ((char *)p)[size - 1], 0);
		ktest_fill(p, size, i);
		kern_yield(PRI_UNCHANGED);
		KT_TRUE(ktest_filled(p, size, i));
		free(p, M_KTEST);
	}
}

static void
contigmalloc_holds_limits(void)
{
	int before;
	void *p;

	uma_reclaim(UMA_RECLAIM_DRAIN_CPU);
	p = contigmalloc(4 * PAGE_SIZE, M_KTEST, M_WAITOK, 0, 16 * 1024 * 1024 - 1, PAGE_SIZE, 0);
	if (KT_TRUE(p != NULL)) {
		KT_TRUE(contig_ok(p, 4 * PAGE_SIZE, 16 * 1024 * 1024 - 1, PAGE_SIZE, 0));
		contigfree(p, 4 * PAGE_SIZE, M_KTEST);
	}
	KT_TRUE(contigmalloc(1ul << 40, M_KTEST, M_NOWAIT, 0, ~0ul, PAGE_SIZE, 0) == NULL);
	before = vm_free_count();
	ktest_run(4, true, contig_worker, NULL);
	uma_reclaim(UMA_RECLAIM_DRAIN_CPU);
	KT_LESS(before - (int)vm_free_count(), 100);
}

/* The same virtual address, mapped again and again, shows the new page on every CPU. */
static void
kmem_worker(void *arg, int me)
{
	uint32_t seed = 41 + me;
	vm_page_t m;
	vm_offset_t va;
	char *p;
	size_t size;
	u_int i;

	for (i = 0; i < KT_ROUNDS(38u); i++) {
		size = (1 + ktest_random(&seed) % 20) * PAGE_SIZE;
		p = (char *)kmem_malloc(size, M_WAITOK | M_ZERO);
		KT_EQ(p[0] | p[size - 1], 0);
		ktest_fill(p, size, i + me);
		kern_yield(PRI_UNCHANGED);
		KT_TRUE(ktest_filled(p, size, i + me));
		kmem_free(p, size);
		m = vm_page_alloc_noobj(VM_ALLOC_WIRED | VM_ALLOC_ZERO | VM_ALLOC_WAITOK);
		va = kva_alloc(PAGE_SIZE);
		pmap_qenter(va, &m, 1);
		KT_EQ(*(uint32_t *)va, 0);
		*(uint32_t *)va = i;
		KT_EQ(*(uint32_t *)PHYS_TO_DMAP(VM_PAGE_TO_PHYS(m)), i);
		pmap_qremove(va, 1);
		kva_free(va, PAGE_SIZE);
		vm_page_unwire_noq(m);
		vm_page_free(m);
	}
}

static void
kmem_maps(void)
{
	int before;

	uma_reclaim(UMA_RECLAIM_DRAIN_CPU);
	before = vm_free_count();
	ktest_run(4, false, kmem_worker, NULL);
	uma_reclaim(UMA_RECLAIM_DRAIN_CPU);
	KT_LESS(before - (int)vm_free_count(), 200);
}

struct counted {
	counter_u64_t	c[2];
};

static void
counter_worker(void *arg, int me)
{
	struct counted *ct = arg;
	u_int i;

	for (i = 0; i < 20000u * ktest_rounds; i++) {
		counter_u64_add(ct->c[0], 3);
		counter_enter();
		counter_u64_add_protected(ct->c[1], 1);
		counter_exit();
	}
}

static void
counter_adds_up(void)
{
	struct counted ct;

	ct.c[0] = counter_u64_alloc(M_WAITOK);
	ct.c[1] = counter_u64_alloc(M_WAITOK);
	KT_EQ(counter_u64_fetch(ct.c[0]), 0);
	ktest_run(6, false, counter_worker, &ct);
	KT_EQ(counter_u64_fetch(ct.c[0]), 6 * 3 * 20000 * ktest_rounds);
	KT_EQ(counter_u64_fetch(ct.c[1]), 6 * 20000 * ktest_rounds);
	counter_u64_add(ct.c[0], -1);
	KT_EQ(counter_u64_fetch(ct.c[0]), 6 * 3 * 20000 * ktest_rounds - 1);
	counter_u64_zero(ct.c[0]);
	KT_EQ(counter_u64_fetch(ct.c[0]), 0);
	counter_u64_free(ct.c[0]);
	counter_u64_free(ct.c[1]);
}

const struct ktest_case ktest_mem_cases[] = {
	{ "malloc.contents", malloc_contents },
	{ "malloc.features", malloc_features },
	{ "malloc.from_callout", malloc_from_callout },
	{ "uma.counts", uma_counts },
	{ "uma.limit_holds", uma_limit_holds },
	{ "contigmalloc.holds_limits", contigmalloc_holds_limits },
	{ "kmem.maps", kmem_maps },
	{ "counter.adds_up", counter_adds_up },
	{ NULL, NULL }
};
