/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * UMA: allocation of items of one size.
 *
 * A zone is the interface for users.  Behind it are three layers, each of which refills the one
 * above:
 *
 *	per-CPU cache	two buckets, one to take items from and one to put them into; no lock;
 *	full buckets	a list, under the zone's lock;
 *	import/release	a keg (uma_slab.c), which cuts pages into items, or functions of a
 *			cache zone.
 *
 * A bucket is an array of free items.  The usual allocation takes the top of the CPU's alloc
 * bucket, the usual free puts onto its free bucket; when one runs empty the two are swapped.
 * Only when that does not help is a full bucket fetched, or a new one filled by import.
 * Buckets come from zones themselves, which have none.  An item that was imported passes the
 * zone's init, and its fini before it is released; ctor and dtor run at each allocation and
 * free.
 *
 * A limit counts the items that were imported, those in buckets included.  As long as a thread
 * sleeps for it, freed items go past the caches, to where the sleeper can find them.
 *
 * With INVARIANTS a free item is filled with a pattern that is checked when it is allocated
 * again, and each slab knows which of its items are allocated, so that a second free is seen
 * (uma_dbg.c).
 *
 * Locking.  A CPU's cache is protected by a critical section on that CPU.  uz_lock protects the
 * full buckets and the sleep for the limit.  uma_zones_lock (sx) protects the list of zones.
 * No lock is held while a function that was passed in runs.
 *
 * Gaps.  No NUMA, no SMR, no reservation of address space.
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
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <sys/time.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/uma.h>
#include <vm/uma_dbg.h>
#include <vm/uma_tree.h>

#define	BUCKET_BYTES	65536	/* of items in a bucket, at most */

static const struct {
	int		entries;
	const char	*name;
} bucket_sizes[] = {
	{ 4, "4 Bucket" },
	{ 8, "8 Bucket" },
	{ 16, "16 Bucket" },
	{ 32, "32 Bucket" },
	{ 64, "64 Bucket" },
	{ 128, "128 Bucket" },
	{ 256, "256 Bucket" },
};

static uma_zone_t bucket_zones[nitems(bucket_sizes)];

void
bucket_startup(void)
{
	int i;

	for (i = 0; i < nitems(bucket_sizes); i++)
		bucket_zones[i] = uma_zcreate(bucket_sizes[i].name, sizeof(struct uma_bucket) +
		    bucket_sizes[i].entries * sizeof(void *), NULL, NULL, NULL, NULL,
		    UMA_ALIGN_PTR, UMA_ZONE_VM | UMA_ZONE_NOBUCKET);
}

/*
 * How many items a bucket of a zone holds: more of small ones.  0 where buckets would tie up
 * too much.
 */
int
bucket_size_for(size_t size, uint32_t flags)
{
	int i;

	if ((flags & (UMA_ZONE_NOBUCKET | UZF_INTERNAL)) != 0 || size > BUCKET_BYTES)
		return (0);
	if ((flags & UMA_ZONE_MAXBUCKET) != 0)
		return (bucket_sizes[nitems(bucket_sizes) - 1].entries);
	for (i = nitems(bucket_sizes) - 2; i > 0; i--)
		if (bucket_sizes[i].entries * size <= BUCKET_BYTES)
			break;
	return (bucket_sizes[i].entries);
}

static uma_zone_t
bucket_zone(int entries)
{
	int i;

	for (i = 0; bucket_sizes[i].entries != entries; i++)
		continue;
	return (bucket_zones[i]);
}

static struct uma_bucket *
bucket_alloc(struct uma_zone *zone, int flags)
{
	struct uma_bucket *b;

	flags = (flags & (M_USE_RESERVE | M_NOVM)) | M_NOWAIT;
	b = uma_zalloc(bucket_zone(zone->uz_bucket_size), flags);
	if (b != NULL) {
		b->ub_cnt = 0;
		b->ub_entries = zone->uz_bucket_size;
	}
	return (b);
}

static void
bucket_free(struct uma_bucket *b)
{
	KASSERT(b->ub_cnt == 0, ("bucket %p freed with %d items", b, b->ub_cnt));
	uma_zfree(bucket_zone(b->ub_entries), b);
}

/*
 * Warn of a limit that was hit, at most every five minutes, and start the action that may help.
 */
static void
zone_limit_hit(struct uma_zone *zone)
{
	static const struct timeval interval = { 300, 0 };

	if (zone->uz_warning != NULL && ratecheck(&zone->uz_warned, &interval))
		printf("[zone: %s] %s\n", zone->uz_name, zone->uz_warning);
	if (zone->uz_maxaction != NULL)
		taskqueue_enqueue(taskqueue_thread, &zone->uz_maxtask);
}

/*
 * Leave to import up to n items under the zone's limit; 0 if there is no room and the caller
 * does not sleep.
 */
static int
zone_limit_take(struct uma_zone *zone, int n, int flags)
{
	uint64_t items;

	if (zone->uz_max == 0) {
		atomic_add_64(&zone->uz_items, n);
		return (n);
	}
	mtx_lock(&zone->uz_lock);
	while ((items = atomic_load_64(&zone->uz_items)) >= zone->uz_max) {
		mtx_unlock(&zone->uz_lock);
		zone_limit_hit(zone);
		if ((flags & M_WAITOK) == 0)
			return (0);
		mtx_lock(&zone->uz_lock);
		atomic_add_int(&zone->uz_sleepers, 1);
		if (atomic_load_64(&zone->uz_items) >= zone->uz_max) {
			zone->uz_sleeps++;
			msleep(&zone->uz_max, &zone->uz_lock, PVM, "zonelimit", 0);
		}
		atomic_subtract_int(&zone->uz_sleepers, 1);
	}
	n = MIN(n, zone->uz_max - items);
	atomic_add_64(&zone->uz_items, n);
	mtx_unlock(&zone->uz_lock);
	return (n);
}

static void
zone_limit_give(struct uma_zone *zone, int n)
{
	if (n == 0)
		return;
	atomic_subtract_64(&zone->uz_items, n);
	if (__predict_false(atomic_load_int(&zone->uz_sleepers) != 0)) {
		mtx_lock(&zone->uz_lock);
		wakeup(&zone->uz_max);
		mtx_unlock(&zone->uz_lock);
	}
}

/*
 * A secondary zone's items keep their state while they are free, but its keg's items may have
 * to be full of the pattern: check it as they leave the keg, or fill them as they go back.
 */
static void
zone_secondary_trash(struct uma_zone *zone, void **store, int n, bool fill)
{
#ifdef INVARIANTS
	int i;

	if ((zone->uz_flags & UMA_ZONE_SECONDARY) == 0 ||
	    (zone->uz_keg->uk_flags & UZF_TRASH) == 0)
		return;
	for (i = 0; i < n; i++) {
		if (fill)
			trash_dtor(store[i], zone->uz_size, NULL);
		else
			(void)trash_ctor(store[i], zone->uz_size, NULL, 0);
	}
#endif
}

/*
 * Get up to n items that have passed the zone's init; how many is returned.
 */
int
zone_import_items(struct uma_zone *zone, void **store, int n, int flags)
{
	int got, i, limit;

	limit = zone_limit_take(zone, n, flags);
	if (limit == 0)
		return (0);
	got = zone->uz_import(zone->uz_arg, store, limit, UMA_ANYDOMAIN, flags & ~M_ZERO);
	zone_secondary_trash(zone, store, got, false);
	if (zone->uz_init != NULL) {
		for (i = 0; i < got; i++)
			if (zone->uz_init(store[i], zone->uz_size, flags) != 0)
				break;
		if (i < got) {
			zone_secondary_trash(zone, store + i, got - i, true);
			zone->uz_release(zone->uz_arg, store + i, got - i);
		}
		got = i;
	}
	zone_limit_give(zone, limit - got);
	return (got);
}

void
zone_release_items(struct uma_zone *zone, void **store, int n)
{
	int i;

	if (zone->uz_fini != NULL)
		for (i = 0; i < n; i++)
			zone->uz_fini(store[i], zone->uz_size);
	zone_secondary_trash(zone, store, n, true);
	zone->uz_release(zone->uz_arg, store, n);
	zone_limit_give(zone, n);
}

static void
bucket_drain(struct uma_zone *zone, struct uma_bucket *b)
{
	if (b->ub_cnt > 0)
		zone_release_items(zone, b->ub_item, b->ub_cnt);
	b->ub_cnt = 0;
	bucket_free(b);
}

/*
 * Put a bucket with items onto the zone's list, unless a thread waits for the items or the list
 * holds enough of them.
 */
static void
zone_put_full(struct uma_zone *zone, struct uma_bucket *b)
{
	mtx_lock(&zone->uz_lock);
	if (zone->uz_sleepers == 0 && zone->uz_cached + b->ub_cnt <= zone->uz_cache_max) {
		LIST_INSERT_HEAD(&zone->uz_full, b, ub_link);
		zone->uz_cached += b->ub_cnt;
		b = NULL;
	}
	mtx_unlock(&zone->uz_lock);
	if (b != NULL)
		bucket_drain(zone, b);
}

/*
 * A bucket with at least one item: from the list, else newly filled.
 */
static struct uma_bucket *
zone_get_full(struct uma_zone *zone, int flags)
{
	struct uma_bucket *b;

	mtx_lock(&zone->uz_lock);
	b = LIST_FIRST(&zone->uz_full);
	if (b != NULL) {
		LIST_REMOVE(b, ub_link);
		zone->uz_cached -= b->ub_cnt;
	}
	mtx_unlock(&zone->uz_lock);
	if (b != NULL)
		return (b);
	b = bucket_alloc(zone, flags);
	if (b == NULL)
		return (NULL);
	b->ub_cnt = zone_import_items(zone, b->ub_item, b->ub_entries, flags);
	if (b->ub_cnt == 0) {
		bucket_free(b);
		return (NULL);
	}
	return (b);
}

static void
bucket_putback(struct uma_zone *zone, struct uma_bucket *b)
{
	if (b == NULL)
		return;
	if (b->ub_cnt == 0)
		bucket_free(b);
	else
		zone_put_full(zone, b);
}

/*
 * Make b this CPU's alloc bucket, unless another thread did the same meanwhile.
 */
static void
cache_install(struct uma_zone *zone, struct uma_bucket *b)
{
	struct uma_cache *cache;
	struct uma_bucket *old;

	critical_enter();
	cache = &zone->uz_cpu[curcpu];
	cache->uc_allocs++;
	old = b;
	if (b->ub_cnt != 0 && (cache->uc_alloc == NULL || cache->uc_alloc->ub_cnt == 0)) {
		old = cache->uc_alloc;
		cache->uc_alloc = b;
	}
	critical_exit();
	bucket_putback(zone, old);
}

static void *
zone_alloc_slow(struct uma_zone *zone, int flags)
{
	struct uma_bucket *b;
	void *item;

	if (zone->uz_bucket_size != 0) {
		b = zone_get_full(zone, flags);
		if (b != NULL) {
			item = b->ub_item[--b->ub_cnt];
			cache_install(zone, b);
			return (item);
		}
	}
	if (zone_import_items(zone, &item, 1, flags) == 0)
		return (NULL);
	atomic_add_64(&zone->uz_allocs, 1);
	return (item);
}

/*
 * Free an item past the caches.
 */
static void
zone_free_direct(struct uma_zone *zone, void *item)
{
	atomic_add_64(&zone->uz_frees, 1);
	zone_release_items(zone, &item, 1);
}

/*
 * What is left to do with an item on its way to the user; NULL if it failed.
 */
static void *
item_ctor(struct uma_zone *zone, void *item, void *arg, int flags)
{
#ifdef INVARIANTS
	if ((zone->uz_flags & UZF_TRASH) != 0)
		trash_ctor(item, zone->uz_size, arg, flags);
#endif
	if (zone->uz_ctor != NULL && zone->uz_ctor(item, zone->uz_size, arg, flags) != 0) {
		zone_free_direct(zone, item);
		atomic_add_64(&zone->uz_fails, 1);
		return (NULL);
	}
	uma_dbg_alloc(zone, item);
	if ((flags & M_ZERO) != 0)
		memset(item, 0, zone->uz_size);
	return (item);
}

static void
item_dtor(struct uma_zone *zone, void *item, void *arg)
{
	uma_dbg_free(zone, item);
	if (zone->uz_dtor != NULL)
		zone->uz_dtor(item, zone->uz_size, arg);
#ifdef INVARIANTS
	if ((zone->uz_flags & UZF_TRASH) != 0)
		trash_dtor(item, zone->uz_size, arg);
#endif
}

static inline void *
cache_take(struct uma_cache *cache)
{
	struct uma_bucket *b = cache->uc_alloc;

	if (b == NULL || b->ub_cnt == 0) {
		if (cache->uc_free == NULL || cache->uc_free->ub_cnt == 0)
			return (NULL);
		cache->uc_alloc = cache->uc_free;
		cache->uc_free = b;
		b = cache->uc_alloc;
	}
	cache->uc_allocs++;
	return (b->ub_item[--b->ub_cnt]);
}

void *
uma_zalloc_arg(uma_zone_t zone, void *arg, int flags)
{
	void *item;

	KASSERT((flags & M_WAITOK) == 0 || cold || (curthread->td_critnest == 0 &&
	    THREAD_CAN_SLEEP()), ("M_WAITOK allocation from zone %s where sleep is not allowed",
	    zone->uz_name));
	KASSERT(curthread->td_critnest == 0 || cold || KERNEL_PANICKED(),
	    ("allocation from zone %s in a critical section or with a spin lock", zone->uz_name));
	if ((flags & M_WAITOK) != 0)
		WITNESS_WARN(WARN_GIANTOK | WARN_SLEEPOK, NULL, "uma_zalloc_arg: zone \"%s\"",
		    zone->uz_name);

	if (__predict_false((zone->uz_flags & UZF_FAULT) != 0) && (flags & M_WAITOK) == 0 &&
	    uma_fault_hit(zone)) {
		atomic_add_64(&zone->uz_fails, 1);
		return (NULL);
	}
	critical_enter();
	item = cache_take(&zone->uz_cpu[curcpu]);
	critical_exit();
	if (__predict_false(item == NULL)) {
		item = zone_alloc_slow(zone, flags);
		if (item == NULL) {
			atomic_add_64(&zone->uz_fails, 1);
			return (NULL);
		}
	}
	if ((zone->uz_flags & UZF_CTORDTOR) != 0)
		return (item_ctor(zone, item, arg, flags));
	if ((flags & M_ZERO) != 0)
		memset(item, 0, zone->uz_size);
	return (item);
}

void *
uma_zalloc_domain(uma_zone_t zone, void *arg, int domain, int flags)
{
	return (uma_zalloc_arg(zone, arg, flags));
}

static inline bool
cache_put(struct uma_cache *cache, void *item)
{
	struct uma_bucket *b = cache->uc_free;

	if (b == NULL || b->ub_cnt == b->ub_entries) {
		b = cache->uc_alloc;
		if (b == NULL || b->ub_cnt == b->ub_entries)
			return (false);
	}
	b->ub_item[b->ub_cnt++] = item;
	cache->uc_frees++;
	return (true);
}

/*
 * Both buckets of this CPU are full, or missing: put an empty one in place of the free bucket.
 */
static void
zone_free_slow(struct uma_zone *zone, void *item)
{
	struct uma_cache *cache;
	struct uma_bucket *b, *old;

	b = bucket_alloc(zone, M_NOWAIT);
	if (b == NULL) {
		zone_free_direct(zone, item);
		return;
	}
	critical_enter();
	cache = &zone->uz_cpu[curcpu];
	old = b;
	if (!cache_put(cache, item)) {
		old = cache->uc_free;
		cache->uc_free = b;
		(void)cache_put(cache, item);
	}
	critical_exit();
	bucket_putback(zone, old);
}

void
uma_zfree_arg(uma_zone_t zone, void *item, void *arg)
{
	bool done;

	if (item == NULL)
		return;
	KASSERT(curthread->td_critnest == 0 || cold || KERNEL_PANICKED(),
	    ("free to zone %s in a critical section or with a spin lock", zone->uz_name));
	if ((zone->uz_flags & UZF_CTORDTOR) != 0)
		item_dtor(zone, item, arg);
	if (zone->uz_bucket_size == 0 || __predict_false(zone->uz_sleepers != 0)) {
		zone_free_direct(zone, item);
		return;
	}
	critical_enter();
	done = cache_put(&zone->uz_cpu[curcpu], item);
	critical_exit();
	if (__predict_false(!done))
		zone_free_slow(zone, item);
}

/*
 * Per-CPU items.  Their address is handed out in the form that zpcpu_get() takes.
 */
void *
uma_zalloc_pcpu_arg(uma_zone_t zone, void *arg, int flags)
{
	char *item;
	int cpu;

	KASSERT((zone->uz_flags & UMA_ZONE_PCPU) != 0, ("zone %s is not per CPU", zone->uz_name));
	item = uma_zalloc_arg(zone, arg, flags & ~M_ZERO);
	if (item == NULL)
		return (NULL);
	if ((flags & M_ZERO) != 0)
		for (cpu = 0; cpu <= mp_maxid; cpu++)
			memset(item + cpu * UMA_PCPU_ALLOC_SIZE, 0, zone->uz_size);
	return (zpcpu_base_to_offset(item));
}

void
uma_zfree_pcpu_arg(uma_zone_t zone, void *item, void *arg)
{
	KASSERT((zone->uz_flags & UMA_ZONE_PCPU) != 0, ("zone %s is not per CPU", zone->uz_name));
	if (item != NULL)
		uma_zfree_arg(zone, zpcpu_offset_to_base(item), arg);
}

/*
 * Give back what one CPU caches.  The caller runs on that CPU, or the zone is not in use any more.
 */
void
zone_cache_drain_cpu(struct uma_zone *zone, int cpu)
{
	struct uma_cache *cache = &zone->uz_cpu[cpu];
	struct uma_bucket *b[2];
	int i;

	critical_enter();
	b[0] = cache->uc_alloc;
	b[1] = cache->uc_free;
	cache->uc_alloc = NULL;
	cache->uc_free = NULL;
	critical_exit();
	for (i = 0; i < 2; i++)
		if (b[i] != NULL)
			bucket_drain(zone, b[i]);
}

/*
 * Give back the zone's full buckets.
 */
void
zone_cache_reclaim(struct uma_zone *zone)
{
	struct uma_bucket *b;

	for (;;) {
		mtx_lock(&zone->uz_lock);
		b = LIST_FIRST(&zone->uz_full);
		if (b != NULL) {
			LIST_REMOVE(b, ub_link);
			zone->uz_cached -= b->ub_cnt;
		}
		mtx_unlock(&zone->uz_lock);
		if (b == NULL)
			return;
		bucket_drain(zone, b);
	}
}
