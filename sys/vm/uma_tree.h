/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The structures of UMA.  uma_core.c explains them; nothing outside of sys/vm/uma_*.c
 * and the statistics that vmstat prints depends on them.
 *
 * Not FreeBSD's: <vm/uma_int.h> has the structures of FreeBSD's UMA; this allocator is the tree
 * kernel's own.
 */

#ifndef _UMA_TREE_H_
#define	_UMA_TREE_H_

#include <sys/queue.h>
#include <sys/_task.h>

/* Flags of zones and kegs in the bits that uma.h leaves to us. */
#define	UZF_INTERNAL	0x00200000	/* UMA's own: no buckets, slab header on the page */
#define	UZF_CACHE	0x00400000	/* no keg: imports from elsewhere */
#define	UZF_OFFPAGE	0x00800000	/* slab header is not within the slab */
#define	UZF_TRASH	0x01000000	/* free items are filled and checked */
#define	UZF_FAULT	0x02000000	/* debug.uma.fail_zone names this zone */
#define	UZF_CTORDTOR	0x04000000	/* something runs at each allocation and free */
#define	UZF_LIVEBITS	0x08000000	/* slabs know which items are allocated */
#define	UZF_REDZONE	0x10000000	/* items have UMA_REDZONE bytes behind them */

#define	UMA_REDZONE	sizeof(uint64_t)

struct uma_bucket {
	LIST_ENTRY(uma_bucket)	ub_link;
	int16_t			ub_cnt;
	int16_t			ub_entries;
	void			*ub_item[];
};

LIST_HEAD(uma_bucketlist, uma_bucket);

/* One CPU's part of a zone.  Its CPU alone touches it, in a critical section. */
struct uma_cache {
	struct uma_bucket	*uc_alloc;	/* taken from */
	struct uma_bucket	*uc_free;	/* put into */
	uint64_t		uc_allocs;
	uint64_t		uc_frees;
} __aligned(CACHE_LINE_SIZE);

#define	UMA_SLAB_BITS	(PAGE_SIZE / UMA_SMALLEST_UNIT)
#define	UMA_SLAB_WORDS	(UMA_SLAB_BITS / 64)
#define	UMA_OFFPAGE_MAX	32		/* tags that a header which is elsewhere has room for */

struct uma_keg;

struct uma_slab {
	LIST_ENTRY(uma_slab)	us_link;	/* one of the keg's lists */
	uint8_t			*us_data;
	struct uma_keg		*us_keg;
	uint16_t		us_nfree;
	uint8_t			us_pflag;	/* allocf's, for freef */
	u_long			us_free[UMA_SLAB_WORDS];	/* a bit set: item is free */
#ifdef INVARIANTS
	u_long			us_live[UMA_SLAB_WORDS];	/* a bit set: a user has it */
	uint32_t		us_tag[];	/* malloc zones: who allocated the item */
#endif
};

LIST_HEAD(uma_slablist, uma_slab);

struct uma_keg {
	struct mtx		uk_lock;	/* lists and counts */
	const char		*uk_name;
	uint32_t		uk_flags;
	uint32_t		uk_size;	/* of an item, as asked for */
	uint32_t		uk_rsize;	/* from one item to the next */
	uint32_t		uk_align;	/* as a mask */
	uint16_t		uk_ppera;	/* pages of a slab */
	uint16_t		uk_ipers;	/* items of a slab */
	uint32_t		uk_pgoff;	/* of the slab header in the slab */
	uma_init		uk_init;
	uma_fini		uk_fini;
	uma_alloc		uk_allocf;
	uma_free		uk_freef;
	struct uma_slablist	uk_partial;
	struct uma_slablist	uk_empty;	/* all items free */
	struct uma_slablist	uk_full;	/* no item free */
	uint32_t		uk_pages;
	uint32_t		uk_free;	/* items */
	uint32_t		uk_reserve;	/* items kept for M_USE_RESERVE */
};

struct uma_zone {
	uint32_t		uz_flags;
	uint32_t		uz_size;
	uma_ctor		uz_ctor;
	uma_dtor		uz_dtor;
	uma_init		uz_init;	/* as an item comes from import */
	uma_fini		uz_fini;
	uma_import		uz_import;
	uma_release		uz_release;
	void			*uz_arg;
	struct uma_keg		*uz_keg;	/* NULL in a cache zone */
	int			uz_bucket_size;	/* items of a bucket; 0: no buckets */

	struct mtx		uz_lock;
	struct uma_bucketlist	uz_full;
	uint64_t		uz_cached;	/* items in uz_full */
	uint64_t		uz_cache_max;
	uint64_t		uz_max;		/* limit of uz_items, 0: none */
	uint64_t		uz_items;	/* imported, not released (atomic) */
	u_int			uz_sleepers;	/* for the limit (atomic) */

	uint64_t		uz_allocs;	/* past the caches; these are atomic */
	uint64_t		uz_frees;
	uint64_t		uz_fails;
	uint64_t		uz_sleeps;

	const char		*uz_name;
	const char		*uz_warning;
	struct timeval		uz_warned;
	uma_maxaction_t		uz_maxaction;
	struct task		uz_maxtask;
	TAILQ_ENTRY(uma_zone)	uz_link;
	struct uma_cache	uz_cpu[];
};

TAILQ_HEAD(uma_zonelist, uma_zone);

/* What vmstat -z shows of a zone. */
struct uma_zone_stat {
	const char	*zs_name;
	uint32_t	zs_size;
	uint64_t	zs_limit;
	uint64_t	zs_used;
	uint64_t	zs_free;
	uint64_t	zs_allocs;
	uint64_t	zs_fails;
	uint64_t	zs_sleeps;
};

/* uma_slab.c */
struct uma_keg_args {
	const char	*name;
	size_t		size;
	uma_init	init;
	uma_fini	fini;
	int		align;
	uint32_t	flags;
};
void	keg_init(struct uma_keg *keg, const struct uma_keg_args *ka);
void	keg_fini(struct uma_keg *keg);
int	keg_import(void *arg, void **store, int count, int domain, int flags);
void	keg_release(void *arg, void **store, int count);
void	keg_drain(struct uma_keg *keg);
int	keg_grow(struct uma_keg *keg, int nslabs, int flags);
struct uma_slab *keg_item_slab(struct uma_keg *keg, const void *item, int *indexp);
void	keg_startup(void);
size_t	slab_header_size(uint32_t flags, int ipers);

/* uma_core.c */
int	zone_import_items(struct uma_zone *zone, void **store, int n, int flags);
void	zone_release_items(struct uma_zone *zone, void **store, int n);
void	zone_cache_reclaim(struct uma_zone *zone);
void	zone_cache_drain_cpu(struct uma_zone *zone, int cpu);
void	bucket_startup(void);
int	bucket_size_for(size_t size, uint32_t flags);

/* uma_zone.c */
void	uma_stat_foreach(bool (*fn)(const struct uma_zone_stat *, void *), void *arg);

/* uma_dbg.c */
extern bool uma_trash;
bool	uma_fault_hit(struct uma_zone *zone);
void	uma_fault_mark(struct uma_zone *zone);
#ifdef INVARIANTS
void	uma_dbg_alloc(struct uma_zone *zone, void *item);
void	uma_dbg_free(struct uma_zone *zone, void *item);
void	uma_dbg_in_use(struct uma_zone *zone, void *item);
void	uma_dbg_init(const struct uma_keg *keg, void *item);
void	uma_dbg_keep(struct uma_zone *zone, void *item);
void	uma_dbg_reuse(struct uma_zone *zone, void *item);
#else
#define	uma_dbg_alloc(zone, item)	do { } while (0)
#define	uma_dbg_free(zone, item)	do { } while (0)
#define	uma_dbg_init(keg, item)		do { } while (0)
#define	uma_dbg_keep(zone, item)	do { } while (0)
#define	uma_dbg_reuse(zone, item)	do { } while (0)
#endif

extern struct uma_zonelist uma_zones;
extern struct sx uma_zones_lock;	/* the list of zones, held shared while one is worked on */

#endif /* _UMA_TREE_H_ */
