/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * UMA's zones: creation, limits, destruction, reclaim and statistics.  uma_core.c has the theory.
 *
 * Start-up.  The zones that zones and kegs themselves come from are built explicitly on pages of
 * their own; from then on every zone is created in the same way.
 *
 * Locking.  See uma_core.c.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sx.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_page.h>
#include <vm/uma.h>
#include <vm/uma_dbg.h>
#include <vm/uma_tree.h>
#include <vm/vm_tree.h>

struct uma_zonelist uma_zones = TAILQ_HEAD_INITIALIZER(uma_zones);
struct sx uma_zones_lock;

static uma_zone_t zone_zone;
static uma_zone_t keg_zone;

static unsigned int uma_cache_align_mask = CACHE_LINE_SIZE - 1;

unsigned int
uma_get_cache_align_mask(void)
{
	return (uma_cache_align_mask);
}

void
uma_set_cache_align_mask(unsigned int mask)
{
	KASSERT(powerof2(mask + 1), ("cache alignment mask %#x", mask));
	uma_cache_align_mask = mask;
}

static size_t
zone_struct_size(void)
{
	return (sizeof(struct uma_zone) + (mp_maxid + 1) * sizeof(struct uma_cache));
}

/*
 * A zone whose import, init and so on are still to be filled in; on no list yet.
 */
static void
zone_init(struct uma_zone *zone, const char *name, size_t size, uma_ctor ctor, uma_dtor dtor,
    uint32_t flags)
{
	memset(zone, 0, zone_struct_size());
	mtx_init(&zone->uz_lock, name, "UMA zone", MTX_DEF | MTX_DUPOK);
	LIST_INIT(&zone->uz_full);
	zone->uz_name = name;
	zone->uz_size = size;
	zone->uz_ctor = ctor;
	zone->uz_dtor = dtor;
	zone->uz_flags = flags;
	zone->uz_cache_max = UINT64_MAX;
	zone->uz_bucket_size = bucket_size_for(size, flags);
	if (ctor != NULL || dtor != NULL || (flags & (UZF_TRASH | UZF_LIVEBITS)) != 0)
		zone->uz_flags |= UZF_CTORDTOR;
	uma_fault_mark(zone);
}

static void
zone_set_keg(struct uma_zone *zone, struct uma_keg *keg)
{
	zone->uz_keg = keg;
	zone->uz_import = keg_import;
	zone->uz_release = keg_release;
	zone->uz_arg = keg;
}

static void
zone_publish(struct uma_zone *zone)
{
	sx_xlock(&uma_zones_lock);
	TAILQ_INSERT_TAIL(&uma_zones, zone, uz_link);
	sx_xunlock(&uma_zones_lock);
}

/*
 * Free items may be filled with the pattern if no init or fini of the user keeps state in them.
 * Items have red zones unless the slab would need another page for one; malloc(9) has its own.
 */
static uint32_t
zone_debug_flags(size_t size, uma_init init, uma_fini fini, uint32_t flags)
{
#ifdef INVARIANTS
	uint32_t add = 0;

	if ((flags & UZF_INTERNAL) != 0)
		return (0);
	add = UZF_LIVEBITS;
	if (uma_trash && (flags & (UMA_ZONE_ZINIT | UMA_ZONE_NOTOUCH | UMA_ZONE_PCPU |
	    UMA_ZONE_NOFREE)) == 0 && (init == NULL || init == trash_init) &&
	    (fini == NULL || fini == trash_fini))
		add |= UZF_TRASH;
	if ((flags & (UMA_ZONE_MALLOC | UMA_ZONE_NOTOUCH | UMA_ZONE_PCPU)) == 0 &&
	    howmany(size + UMA_REDZONE, PAGE_SIZE) == howmany(size, PAGE_SIZE))
		add |= UZF_REDZONE;
	return (add);
#else
	return (0);
#endif
}

static void
zone_build(struct uma_zone *zone, struct uma_keg *keg, struct uma_keg_args *ka, uma_ctor ctor,
    uma_dtor dtor)
{
	ka->flags |= zone_debug_flags(ka->size, ka->init, ka->fini, ka->flags);
#ifdef INVARIANTS
	if ((ka->flags & UZF_TRASH) != 0)
		ka->init = trash_init;
	else if (ka->init == trash_init)
		ka->init = NULL;
	if (ka->fini == trash_fini)
		ka->fini = NULL;
#endif
	keg_init(keg, ka);
	zone_init(zone, ka->name, ka->size, ctor, dtor, ka->flags);
	zone_set_keg(zone, keg);
	zone_publish(zone);
}

uma_zone_t
uma_zcreate(const char *name, size_t size, uma_ctor ctor, uma_dtor dtor, uma_init uminit,
    uma_fini fini, int align, uint32_t flags)
{
	struct uma_keg_args ka = { name, size, uminit, fini, align, flags };
	struct uma_zone *zone;
	struct uma_keg *keg;

	keg = uma_zalloc(keg_zone, M_WAITOK);
	zone = uma_zalloc(zone_zone, M_WAITOK);
	zone_build(zone, keg, &ka, ctor, dtor);
	return (zone);
}

/*
 * A second zone on the keg of primary, with constructors of its own.
 */
uma_zone_t
uma_zsecond_create(const char *name, uma_ctor ctor, uma_dtor dtor, uma_init zinit,
    uma_fini zfini, uma_zone_t primary)
{
	struct uma_keg *keg = primary->uz_keg;
	struct uma_zone *zone;

	zone = uma_zalloc(zone_zone, M_WAITOK);
	zone_init(zone, name, keg->uk_size, ctor, dtor, UMA_ZONE_SECONDARY |
	    (primary->uz_flags & (UMA_ZONE_INHERIT | UZF_LIVEBITS | UZF_REDZONE)));
	zone_set_keg(zone, keg);
	zone->uz_init = zinit;
	zone->uz_fini = zfini;
	zone_publish(zone);
	return (zone);
}

/*
 * A zone without a keg: import and release bring its items and take them back.
 */
uma_zone_t
uma_zcache_create(const char *name, int size, uma_ctor ctor, uma_dtor dtor, uma_init zinit,
    uma_fini zfini, uma_import zimport, uma_release zrelease, void *arg, int flags)
{
	struct uma_zone *zone;

	zone = uma_zalloc(zone_zone, M_WAITOK);
	zone_init(zone, name, MAX(size, 0), ctor, dtor, flags | UZF_CACHE);
	zone->uz_init = zinit;
	zone->uz_fini = zfini;
	zone->uz_import = zimport;
	zone->uz_release = zrelease;
	zone->uz_arg = arg;
	zone_publish(zone);
	return (zone);
}

static uint64_t
zone_used(struct uma_zone *zone)
{
	uint64_t used;
	int cpu;

	used = atomic_load_64(&zone->uz_allocs) - atomic_load_64(&zone->uz_frees);
	for (cpu = 0; cpu <= mp_maxid; cpu++)
		used += zone->uz_cpu[cpu].uc_allocs - zone->uz_cpu[cpu].uc_frees;
	return (used);
}

/*
 * The zone is not in use any more.  Items that were not freed are reported, and leaked.
 */
void
uma_zdestroy(uma_zone_t zone)
{
	uint64_t used;
	int cpu;

	sx_xlock(&uma_zones_lock);
	TAILQ_REMOVE(&uma_zones, zone, uz_link);
	sx_xunlock(&uma_zones_lock);
	if (zone->uz_maxaction != NULL)
		taskqueue_drain(taskqueue_thread, &zone->uz_maxtask);

	used = zone_used(zone);
	for (cpu = 0; cpu <= mp_maxid; cpu++)
		zone_cache_drain_cpu(zone, cpu);
	zone_cache_reclaim(zone);
	if (used != 0)
		printf("uma: zone %s destroyed with %ju items still allocated\n", zone->uz_name,
		    (uintmax_t)used);
	if (zone->uz_keg != NULL && (zone->uz_flags & UMA_ZONE_SECONDARY) == 0) {
		keg_fini(zone->uz_keg);
		uma_zfree(keg_zone, zone->uz_keg);
	}
	mtx_destroy(&zone->uz_lock);
	uma_zfree(zone_zone, zone);
}

/*
 * Limits.
 */
int
uma_zone_set_max(uma_zone_t zone, int nitems)
{
	mtx_lock(&zone->uz_lock);
	zone->uz_max = nitems;
	if (zone->uz_bucket_size > nitems)
		zone->uz_bucket_size = 0;
	mtx_unlock(&zone->uz_lock);
	return (nitems);
}

int
uma_zone_get_max(uma_zone_t zone)
{
	return (zone->uz_max);
}

int
uma_zone_get_cur(uma_zone_t zone)
{
	return (zone_used(zone));
}

int
uma_zone_exhausted(uma_zone_t zone)
{
	return (zone->uz_max != 0 && atomic_load_64(&zone->uz_items) >= zone->uz_max);
}

size_t
uma_zone_memory(uma_zone_t zone)
{
	return (zone->uz_keg == NULL ? 0 : ptoa((size_t)zone->uz_keg->uk_pages));
}

void
uma_zone_set_maxcache(uma_zone_t zone, int nitems)
{
	mtx_lock(&zone->uz_lock);
	zone->uz_cache_max = nitems;
	mtx_unlock(&zone->uz_lock);
}

void
uma_zone_set_warning(uma_zone_t zone, const char *warning)
{
	zone->uz_warning = warning;
}

static void
zone_maxaction(void *arg, int pending)
{
	struct uma_zone *zone = arg;

	zone->uz_maxaction(zone, pending);
}

void
uma_zone_set_maxaction(uma_zone_t zone, uma_maxaction_t maxaction)
{
	TASK_INIT(&zone->uz_maxtask, 0, zone_maxaction, zone);
	zone->uz_maxaction = maxaction;
}

/*
 * What must be set before the first item is allocated.
 */
static struct uma_keg *
zone_cold_keg(struct uma_zone *zone)
{
	KASSERT(zone->uz_keg != NULL && zone->uz_keg->uk_pages == 0,
	    ("zone %s is in use already", zone->uz_name));
	return (zone->uz_keg);
}

void
uma_zone_set_init(uma_zone_t zone, uma_init uminit)
{
	zone_cold_keg(zone)->uk_init = uminit;
}

void
uma_zone_set_fini(uma_zone_t zone, uma_fini fini)
{
	zone_cold_keg(zone)->uk_fini = fini;
}

void
uma_zone_set_zinit(uma_zone_t zone, uma_init zinit)
{
	zone->uz_init = zinit;
}

void
uma_zone_set_zfini(uma_zone_t zone, uma_fini zfini)
{
	zone->uz_fini = zfini;
}

void
uma_zone_set_allocf(uma_zone_t zone, uma_alloc allocf)
{
	zone_cold_keg(zone)->uk_allocf = allocf;
}

void
uma_zone_set_freef(uma_zone_t zone, uma_free freef)
{
	zone_cold_keg(zone)->uk_freef = freef;
}

void
uma_prealloc(uma_zone_t zone, int itemcnt)
{
	struct uma_keg *keg = zone->uz_keg;

	keg_grow(keg, howmany(itemcnt, keg->uk_ipers), M_WAITOK);
}

void
uma_zone_reserve(uma_zone_t zone, int nitems)
{
	struct uma_keg *keg = zone->uz_keg;

	mtx_lock(&keg->uk_lock);
	keg->uk_reserve = nitems;
	mtx_unlock(&keg->uk_lock);
}

/*
 * Reclaim.
 */
static void
zone_reclaim_slabs(struct uma_zone *zone)
{
	if (zone->uz_keg != NULL && (zone->uz_flags & UMA_ZONE_SECONDARY) == 0)
		keg_drain(zone->uz_keg);
}

static bool
zone_reclaims(const struct uma_zone *zone)
{
	return ((zone->uz_flags & UMA_ZONE_UNMANAGED) == 0);
}

/*
 * Go to each CPU in turn and empty its caches of the one zone, or of all.
 */
static void
uma_drain_cpus(struct uma_zone *one)
{
	struct uma_zone *zone;
	int cpu;

	CPU_FOREACH(cpu) {
		if (smp_started) {
			thread_lock(curthread);
			sched_bind(curthread, cpu);
			thread_unlock(curthread);
		} else if (cpu != curcpu)
			continue;
		if (one != NULL) {
			zone_cache_drain_cpu(one, cpu);
			continue;
		}
		TAILQ_FOREACH(zone, &uma_zones, uz_link)
			if (zone_reclaims(zone))
				zone_cache_drain_cpu(zone, cpu);
	}
	if (smp_started) {
		thread_lock(curthread);
		sched_unbind(curthread);
		thread_unlock(curthread);
	}
}

void
uma_zone_reclaim(uma_zone_t zone, int req)
{
	if (req == UMA_RECLAIM_DRAIN_CPU)
		uma_drain_cpus(zone);
	zone_cache_reclaim(zone);
	zone_reclaim_slabs(zone);
}

/*
 * All zones.  Slabs go last: items of one zone, buckets and packets with their clusters, are
 * freed to others.
 */
void
uma_reclaim(int req)
{
	struct uma_zone *zone;

	sx_slock(&uma_zones_lock);
	if (req == UMA_RECLAIM_DRAIN_CPU)
		uma_drain_cpus(NULL);
	TAILQ_FOREACH_REVERSE(zone, &uma_zones, uma_zonelist, uz_link)
		if (zone_reclaims(zone))
			zone_cache_reclaim(zone);
	TAILQ_FOREACH_REVERSE(zone, &uma_zones, uma_zonelist, uz_link)
		if (zone_reclaims(zone))
			zone_reclaim_slabs(zone);
	sx_sunlock(&uma_zones_lock);
}

static int
sysctl_uma_reclaim(SYSCTL_HANDLER_ARGS)
{
	int error, kind = 0;

	error = sysctl_handle_int(oidp, &kind, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (kind < UMA_RECLAIM_DRAIN || kind > UMA_RECLAIM_TRIM)
		return (EINVAL);
	uma_reclaim(kind);
	return (0);
}
SYSCTL_PROC(_debug, OID_AUTO, uma_reclaim, CTLTYPE_INT | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    sysctl_uma_reclaim, "I", "Give back what zones keep: 1 buckets, 2 those of CPUs, too");

/*
 * Statistics.  What other CPUs hold is read while they go on, so a sum may be off by what
 * happens meanwhile; it is exact when nothing does.
 */
static void
zone_stat(struct uma_zone *zone, struct uma_zone_stat *zs)
{
	int cpu;

	memset(zs, 0, sizeof(*zs));
	zs->zs_name = zone->uz_name;
	zs->zs_size = zone->uz_size;
	zs->zs_limit = zone->uz_max;
	zs->zs_used = zone_used(zone);
	zs->zs_allocs = atomic_load_64(&zone->uz_allocs);
	zs->zs_fails = atomic_load_64(&zone->uz_fails);
	zs->zs_sleeps = zone->uz_sleeps;
	for (cpu = 0; cpu <= mp_maxid; cpu++)
		zs->zs_allocs += zone->uz_cpu[cpu].uc_allocs;
	/* All that was imported is either in use or in a bucket, of the list or of a CPU. */
	zs->zs_free = atomic_load_64(&zone->uz_items) - zs->zs_used;
	if ((int64_t)zs->zs_free < 0)
		zs->zs_free = 0;
	if (zone->uz_keg != NULL && (zone->uz_flags & UMA_ZONE_SECONDARY) == 0)
		zs->zs_free += zone->uz_keg->uk_free;
}

void
uma_stat_foreach(bool (*fn)(const struct uma_zone_stat *, void *), void *arg)
{
	struct uma_zone_stat zs;
	struct uma_zone *zone;

	sx_slock(&uma_zones_lock);
	TAILQ_FOREACH(zone, &uma_zones, uz_link) {
		zone_stat(zone, &zs);
		if (!fn(&zs, arg))
			break;
	}
	sx_sunlock(&uma_zones_lock);
}

/*
 * Memory for a structure that no zone can provide yet.
 */
static void *
boot_alloc(size_t size)
{
	vm_page_t m;

	KASSERT(size <= PAGE_SIZE, ("%s: %zu bytes", __func__, size));
	m = vm_page_alloc_noobj(VM_ALLOC_SYSTEM | VM_ALLOC_WIRED | VM_ALLOC_ZERO);
	if (m == NULL)
		panic("no memory for UMA");
	return ((void *)PHYS_TO_DMAP(VM_PAGE_TO_PHYS(m)));
}

static uma_zone_t
boot_zone(const char *name, size_t size)
{
	struct uma_keg_args ka = { name, size, NULL, NULL, UMA_ALIGN_CACHE,
	    UZF_INTERNAL | UMA_ZONE_VM };
	struct uma_zone *zone;
	struct uma_keg *keg;

	keg = boot_alloc(sizeof(*keg));
	zone = boot_alloc(zone_struct_size());
	zone_build(zone, keg, &ka, NULL, NULL);
	return (zone);
}

void
uma_startup(void)
{
	sx_init(&uma_zones_lock, "uma zones");
	keg_zone = boot_zone("UMA Kegs", sizeof(struct uma_keg));
	zone_zone = boot_zone("UMA Zones", zone_struct_size());
	keg_startup();
	bucket_startup();
}
