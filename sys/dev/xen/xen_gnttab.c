/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Grant tables: which pages another domain may see (grant_table.h).
 *
 * The table is an array of entries in pages of Xen's; an entry's index is the
 * reference that the other domain names.  We write which domain may access
 * which page, and how; Xen marks an entry that is mapped.
 *
 *	version 1	flags, domain and 32 bits of page number, 8 bytes.  Xen
 *			marks in the flags, so ending a grant is a
 *			compare-and-swap of the flags.
 *	version 2	16 bytes, for machines of more than 16 TB.  Xen marks in
 *			an array of its own, so ending a grant is a store, a
 *			barrier for a whole batch, and a look.
 *
 * Version 1 is taken unless there is more memory than it can name.
 *
 * A reference is
 *
 *	free		in the free list
 *	in use		given out by xen_gnttab_alloc(); it grants a page or not
 *			yet
 *	deferred	ended, while the peer still has the page mapped
 *			(xen_gnttab_end.c)
 *
 * Lists are linked through gt_link[], so that ending a grant never needs
 * memory.
 *
 * The table grows by a page when the free list is empty, up to what Xen allows;
 * it never shrinks.  The first eight references are the toolstack's.
 *
 * After a suspension the table is a new and empty one, and nothing is mapped.
 * References stay allocated, and grant nothing; what was deferred is free at
 * the next check.  The new table may be allowed fewer pages: the references
 * beyond them are dead, and are not given out again.
 *
 * Locking.  xen_gnttab_mtx (mutex): lists, growth and counts.  An entry belongs
 * to the holder of its reference.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/sysctl.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/atomic.h>
#include <machine/md_var.h>

#include <dev/xen/xen_gnttab_var.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xen_var.h>
#include <xen/memory.h>

#define	GNTTAB_RID		1	/* the first is the shared
					 * info page's */
#define	GNTTAB_V1_PER_PAGE	(PAGE_SIZE / sizeof(grant_entry_v1_t))
#define	GNTTAB_V2_PER_PAGE	(PAGE_SIZE / sizeof(grant_entry_v2_t))
#define	GNTTAB_STATUS_PER_PAGE	(PAGE_SIZE / sizeof(grant_status_t))
#define	GNTTAB_MAX_PAGES	1024	/* more than Xen ever allows */
#define	GNTTAB_MAPPED		(GTF_reading | GTF_writing)

static struct {
	bool		 gt_ready;
	u_int		 gt_version;
	u_int		 gt_per_page;
	u_int		 gt_npages;	/* that the table has */
	u_int		 gt_max_pages;
	u_int		 gt_nstatus;	/* pages of the status array */
	struct xen_space gt_space;	/* the table, then the status array */
	grant_entry_v1_t *gt_v1;
	grant_entry_v2_t *gt_v2;
	volatile grant_status_t *gt_status;
	uint32_t	*gt_link;	/* next in a list */
	grant_ref_t	 gt_free;	/* first in the free list */
} gnttab;

struct mtx xen_gnttab_mtx;
struct xen_gnttab_counts xen_gnttab_counts;
MTX_SYSINIT(xen_gnttab, &xen_gnttab_mtx, "xen gnttab", MTX_DEF);

void
xen_gnttab_push(grant_ref_t *list, grant_ref_t ref)
{

	gnttab.gt_link[ref] = *list;
	*list = ref;
}

grant_ref_t
xen_gnttab_pop(grant_ref_t *list)
{
	grant_ref_t ref = *list;

	if (ref != XEN_GNTTAB_LIST_END)
		*list = gnttab.gt_link[ref];
	return (ref);
}

static int
gnttab_map_page(u_int idx, vm_paddr_t pa)
{
	struct xen_add_to_physmap map = {
		.domid = DOMID_SELF,
		.space = XENMAPSPACE_grant_table,
		.idx = idx,
		.gpfn = atop(pa),
	};

	return (xen_memory_op(XENMEM_add_to_physmap, &map));
}

static u_int
gnttab_status_pages(u_int npages)
{

	return (howmany(npages * GNTTAB_V2_PER_PAGE, GNTTAB_STATUS_PER_PAGE));
}

/*
 * Have Xen put the next page of the table, with what it needs of the status
 * array, in its place.
 */
static int
gnttab_add_page(void)
{
	u_int n = gnttab.gt_npages;
	int error;

	error = gnttab_map_page(n, gnttab.gt_space.xs_paddr + ptoa(n));
	while (error == 0 && gnttab.gt_version == 2 &&
	    gnttab.gt_nstatus < gnttab_status_pages(n + 1)) {
		error = gnttab_map_page(gnttab.gt_nstatus |
		    XENMAPIDX_grant_table_status,
		    vtophys(gnttab.gt_status) + ptoa(gnttab.gt_nstatus));
		if (error == 0)
			gnttab.gt_nstatus++;
	}
	if (error == 0)
		gnttab.gt_npages++;
	return (error);
}

/*
 * Add a page to the table, and its references to the free list.  Xen makes the
 * page by our asking.
 */
static int
gnttab_grow(void)
{
	u_int i, n = gnttab.gt_npages;
	uint32_t ref;
	int error;

	if (n == gnttab.gt_max_pages)
		return (ENOSPC);
	/*
	 * With interrupts off: a suspension between a page and its count would
	 * not map it again.
	 */
	spinlock_enter();
	error = gnttab_add_page();
	spinlock_exit();
	if (error != 0)
		return (error);
	/* In ascending order: the lowest is the first to be given out. */
	for (i = gnttab.gt_per_page; i > 0; i--) {
		ref = n * gnttab.gt_per_page + i - 1;
		if (ref < GNTTAB_NR_RESERVED_ENTRIES)
			break;
		xen_gnttab_push(&gnttab.gt_free, ref);
		xen_gnttab_counts.gc_free++;
	}
	return (0);
}

int
xen_gnttab_alloc(grant_ref_t *refs, u_int n)
{
	u_int i;

	if (!gnttab.gt_ready)
		return (ENOSPC);
	mtx_lock(&xen_gnttab_mtx);
	while (xen_gnttab_counts.gc_free < n) {
		if (gnttab_grow() != 0) {
			mtx_unlock(&xen_gnttab_mtx);
			return (ENOSPC);
		}
	}
	for (i = 0; i < n; i++)
		refs[i] = xen_gnttab_pop(&gnttab.gt_free);
	xen_gnttab_counts.gc_free -= n;
	xen_gnttab_counts.gc_used += n;
	mtx_unlock(&xen_gnttab_mtx);
	return (0);
}

u_int
xen_gnttab_room(u_int *all)
{
	u_int room;

	mtx_lock(&xen_gnttab_mtx);
	*all = gnttab.gt_max_pages * gnttab.gt_per_page;
	room = xen_gnttab_counts.gc_free +
	    (gnttab.gt_max_pages - gnttab.gt_npages) * gnttab.gt_per_page;
	mtx_unlock(&xen_gnttab_mtx);
	return (room);
}

/* Was it in a page that the table does not have any more? */
static bool
gnttab_is_dead(grant_ref_t ref)
{

	return (ref >= gnttab.gt_npages * gnttab.gt_per_page);
}

void
xen_gnttab_free_one(grant_ref_t ref)
{

	mtx_assert(&xen_gnttab_mtx, MA_OWNED);
	if (gnttab_is_dead(ref))
		return;
	xen_gnttab_push(&gnttab.gt_free, ref);
	xen_gnttab_counts.gc_free++;
}

/* The flags come last: with them the entry is valid. */
void
xen_gnttab_grant(grant_ref_t ref, domid_t domid, vm_paddr_t pa, bool readonly)
{
	uint16_t flags = GTF_permit_access | (readonly ? GTF_readonly : 0);
	grant_entry_v1_t *v1;
	grant_entry_v2_t *v2;

	KASSERT(ref >= GNTTAB_NR_RESERVED_ENTRIES,
	    ("%s: reference %u", __func__, ref));
	if (gnttab_is_dead(ref))
		return;
	if (gnttab.gt_version == 1) {
		v1 = &gnttab.gt_v1[ref];
		v1->frame = (uint32_t)atop(pa);
		v1->domid = domid;
		atomic_store_rel_16(&v1->flags, flags);
	} else {
		v2 = &gnttab.gt_v2[ref];
		v2->full_page.frame = atop(pa);
		v2->hdr.domid = domid;
		atomic_store_rel_16(&v2->hdr.flags, flags);
	}
}

/* Version 1: invalidate an entry, unless it is mapped. */
static bool
gnttab_end_v1(grant_ref_t ref)
{
	volatile uint16_t *flags = &gnttab.gt_v1[ref].flags;
	uint16_t old;

	old = atomic_load_16(flags);
	do {
		if ((old & GNTTAB_MAPPED) != 0)
			return (false);
	} while (atomic_fcmpset_16(flags, &old, 0) == 0);
	return (true);
}

/* Version 2: the entry can't be mapped any more; is an earlier mapping left? */
static bool
gnttab_end_v2(grant_ref_t ref)
{

	if ((atomic_load_16(&gnttab.gt_status[ref]) & GNTTAB_MAPPED) != 0)
		return (false);
	/* What we do with the page comes after this look. */
	atomic_thread_fence_acq();
	return (true);
}

bool
xen_gnttab_end_one(grant_ref_t ref)
{

	if (gnttab_is_dead(ref))
		return (true);
	return (gnttab.gt_version == 1 ? gnttab_end_v1(ref) :
	    gnttab_end_v2(ref));
}

/* Version 2: invalidate a batch, with one barrier. */
void
xen_gnttab_invalidate(const grant_ref_t *refs, u_int n)
{
	u_int i;

	if (gnttab.gt_version == 1)
		return;
	for (i = 0; i < n; i++) {
		if (!gnttab_is_dead(refs[i]))
			atomic_store_16(&gnttab.gt_v2[refs[i]].hdr.flags, 0);
	}
	atomic_thread_fence_seq_cst();
}

/* Negotiate a version with Xen, which may be configured to accept one only. */
static void
gnttab_choose_version(void)
{
	struct gnttab_set_version arg;
	struct gnttab_get_version got = { .dom = DOMID_SELF };

	arg.version = xen_tunable(XEN_GNTTAB_VERSION);
	if (arg.version == 0)
		arg.version = (uint64_t)Maxmem > UINT32_MAX ? 2 : 1;
	gnttab.gt_version = 1;
	if (xen_grant_table_op(GNTTABOP_set_version, &arg, 1) == 0)
		gnttab.gt_version = arg.version;
	else if (xen_grant_table_op(GNTTABOP_get_version, &got, 1) == 0)
		gnttab.gt_version = got.version;
}

static int
gnttab_query_size(u_int *max)
{
	struct gnttab_query_size query = { .dom = DOMID_SELF };
	int error;

	error = xen_grant_table_op(GNTTABOP_query_size, &query, 1);
	if (error == 0 &&
	    (query.status != GNTST_okay || query.max_nr_frames == 0))
		error = ENXIO;
	*max = MIN(query.max_nr_frames, GNTTAB_MAX_PAGES);
	return (error);
}

int
xen_gnttab_resume(void)
{
	struct gnttab_set_version arg = { .version = gnttab.gt_version };
	u_int i, max;
	int error;

	/*
	 * Dead references stay dead, so that it does not grow again in the same
	 * place.
	 */
	if (gnttab_query_size(&max) == 0)
		gnttab.gt_max_pages = MIN(gnttab.gt_max_pages, max);
	if (gnttab.gt_npages > gnttab.gt_max_pages) {
		gnttab.gt_npages = gnttab.gt_max_pages;
		if (gnttab.gt_version == 2)
			gnttab.gt_nstatus =
			    gnttab_status_pages(gnttab.gt_npages);
	}

	error = xen_grant_table_op(GNTTABOP_set_version, &arg, 1);
	/* A Xen that does not know the call has version 1. */
	if (error != 0 && gnttab.gt_version == 1)
		error = 0;
	for (i = 0; i < gnttab.gt_npages && error == 0; i++)
		error = gnttab_map_page(i, gnttab.gt_space.xs_paddr + ptoa(i));
	for (i = 0; i < gnttab.gt_nstatus && error == 0; i++)
		error = gnttab_map_page(i | XENMAPIDX_grant_table_status,
		    vtophys(gnttab.gt_status) + ptoa(i));
	return (error);
}

void
xen_gnttab_prune(void)
{
	grant_ref_t list, ref;

	mtx_lock(&xen_gnttab_mtx);
	list = gnttab.gt_free;
	gnttab.gt_free = XEN_GNTTAB_LIST_END;
	xen_gnttab_counts.gc_free = 0;
	while ((ref = xen_gnttab_pop(&list)) != XEN_GNTTAB_LIST_END)
		xen_gnttab_free_one(ref);
	mtx_unlock(&xen_gnttab_mtx);
}

int
xen_gnttab_init(device_t dev)
{
	char *va;
	u_int max, status;
	int error;

	gnttab_choose_version();
	error = gnttab_query_size(&max);
	if (error != 0) {
		device_printf(dev, "no grant table (error %d)\n", error);
		return (error);
	}
	gnttab.gt_per_page = gnttab.gt_version == 1 ? GNTTAB_V1_PER_PAGE :
	    GNTTAB_V2_PER_PAGE;
	status = gnttab.gt_version == 1 ? 0 : gnttab_status_pages(max);
	error = xen_space_alloc(dev, GNTTAB_RID, ptoa(max + status),
	    &gnttab.gt_space);
	if (error != 0) {
		device_printf(dev,
		    "no address space for %u pages of grant table\n",
		    max + status);
		return (error);
	}
	va = gnttab.gt_space.xs_vaddr;
	gnttab.gt_v1 = (grant_entry_v1_t *)va;
	gnttab.gt_v2 = (grant_entry_v2_t *)va;
	gnttab.gt_status = (volatile grant_status_t *)(va + ptoa(max));
	gnttab.gt_max_pages = max;
	gnttab.gt_npages = gnttab.gt_nstatus = 0;
	gnttab.gt_free = XEN_GNTTAB_LIST_END;
	gnttab.gt_link = malloc((size_t)max * gnttab.gt_per_page *
	    sizeof(*gnttab.gt_link), M_XEN, M_WAITOK | M_ZERO);
	mtx_lock(&xen_gnttab_mtx);
	error = gnttab_grow();
	gnttab.gt_ready = error == 0;
	mtx_unlock(&xen_gnttab_mtx);
	if (error != 0)
		device_printf(dev,
		    "can't map a page of the grant table (error %d)\n", error);
	else if (bootverbose)
		device_printf(dev,
		    "grant table version %u, %u references at most\n",
		    gnttab.gt_version, max * gnttab.gt_per_page);
	return (error);
}

void
xen_gnttab_fini(device_t dev)
{
	struct xen_remove_from_physmap map = { .domid = DOMID_SELF };
	u_int i;

	if (gnttab.gt_space.xs_res == NULL)
		return;
	gnttab.gt_ready = false;
	for (i = 0; i < gnttab.gt_npages; i++) {
		map.gpfn = atop(gnttab.gt_space.xs_paddr) + i;
		(void)xen_memory_op(XENMEM_remove_from_physmap, &map);
	}
	for (i = 0; i < gnttab.gt_nstatus; i++) {
		map.gpfn = atop(vtophys(gnttab.gt_status)) + i;
		(void)xen_memory_op(XENMEM_remove_from_physmap, &map);
	}
	xen_space_free(dev, &gnttab.gt_space);
	free(gnttab.gt_link, M_XEN);
	gnttab.gt_link = NULL;
	xen_gnttab_counts.gc_free = 0;
}

void
xen_gnttab_table_sysctl(struct sysctl_ctx_list *ctx,
    struct sysctl_oid_list *list)
{

	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "version", CTLFLAG_RD,
	    &gnttab.gt_version, 0, "Version of its entries");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "pages", CTLFLAG_RD,
	    &gnttab.gt_npages, 0, "Pages of the table");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "max_pages", CTLFLAG_RD,
	    &gnttab.gt_max_pages, 0, "Pages that Xen allows at most");
}
