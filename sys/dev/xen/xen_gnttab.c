/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Grant tables: which pages another domain may see (grant_table.h).
 *
 * The table is an array of entries in pages of Xen's; an entry's index is the reference that the other
 * domain names.  We write which domain may access which page, and how; Xen marks an entry that is
 * mapped.
 *
 *	version 1	flags, domain and 32 bits of page number, 8 bytes.  Xen marks in the flags,
 *			so ending a grant is a compare-and-swap of the flags.
 *	version 2	16 bytes, for machines of more than 16 TB.  Xen marks in an array of its own, so
 *			ending a grant is a store, a barrier for a whole batch, and a look.
 *
 * Version 1 is taken unless there is more memory than it can name.
 *
 * A reference is
 *
 *	free		in the free list
 *	in use		given out by xen_gnttab_alloc(); it grants a page or not yet
 *	deferred	ended, while the peer still has the page mapped.  It is checked each
 *			second, and becomes free when it is unmapped.  Until then neither the
 *			reference nor a page that we own (xen_gnttab_pages_free()) is used for
 *			anything else.
 *
 * The lists are linked through gt_link[], so that ending a grant never needs memory.
 *
 * The table grows by a page when the free list is empty, up to what Xen allows; it never shrinks.  The
 * first eight references are the toolstack's.
 *
 * After a suspension the table is a new and empty one, and nothing is mapped.  References stay
 * allocated, and grant nothing; what was deferred is free at the next check.  The new table may be
 * allowed fewer pages: the references beyond them are dead, and are not given out again.
 *
 * Locking.  gt_mtx (mutex): lists, growth and counts.  An entry belongs to the holder of its
 * reference.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/queue.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/atomic.h>
#include <machine/md_var.h>

#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xen_var.h>
#include <xen/memory.h>

#define	GNTTAB_RID		1	/* the first is the shared info page's */
#define	GNTTAB_V1_PER_PAGE	(PAGE_SIZE / sizeof(grant_entry_v1_t))
#define	GNTTAB_V2_PER_PAGE	(PAGE_SIZE / sizeof(grant_entry_v2_t))
#define	GNTTAB_STATUS_PER_PAGE	(PAGE_SIZE / sizeof(grant_status_t))
#define	GNTTAB_MAX_PAGES	1024	/* more than Xen ever allows */
#define	GNTTAB_RETRY_SECS	1
#define	GNTTAB_END		UINT32_MAX	/* of a list */
#define	GNTTAB_MAPPED		(GTF_reading | GTF_writing)

static struct {
	struct mtx	 gt_mtx;
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
	uint32_t	 gt_free;	/* first in the free list */
	uint32_t	 gt_deferred;	/* first in the list of those deferred */
	SLIST_HEAD(, xen_gnttab_pages) gt_pages; /* ended, but still mapped */
	struct timeout_task gt_retry;
	bool		 gt_retrying;
	u_int		 gt_nfree;
	u_int		 gt_nused;
	u_int		 gt_ndeferred;
	uint64_t	 gt_total_deferred;
} gnttab;

MTX_SYSINIT(xen_gnttab, &gnttab.gt_mtx, "xen gnttab", MTX_DEF);

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

/* Have Xen put the next page of the table, with what it needs of the status array, in its place. */
static int
gnttab_add_page(void)
{
	u_int n = gnttab.gt_npages;
	int error;

	error = gnttab_map_page(n, gnttab.gt_space.xs_paddr + ptoa(n));
	while (error == 0 && gnttab.gt_version == 2 &&
	    gnttab.gt_nstatus < gnttab_status_pages(n + 1)) {
		error = gnttab_map_page(gnttab.gt_nstatus | XENMAPIDX_grant_table_status,
		    vtophys(gnttab.gt_status) + ptoa(gnttab.gt_nstatus));
		if (error == 0)
			gnttab.gt_nstatus++;
	}
	if (error == 0)
		gnttab.gt_npages++;
	return (error);
}

/* Add a page to the table, and its references to the free list.  Xen makes the page by our asking. */
static int
gnttab_grow(void)
{
	u_int i, n = gnttab.gt_npages;
	uint32_t ref;
	int error;

	if (n == gnttab.gt_max_pages)
		return (ENOSPC);
	/* With interrupts off: a suspension between a page and its count would not map it again. */
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
		gnttab.gt_link[ref] = gnttab.gt_free;
		gnttab.gt_free = ref;
		gnttab.gt_nfree++;
	}
	return (0);
}

int
xen_gnttab_alloc(grant_ref_t *refs, u_int n)
{
	u_int i;

	if (!gnttab.gt_ready)
		return (ENOSPC);
	mtx_lock(&gnttab.gt_mtx);
	while (gnttab.gt_nfree < n) {
		if (gnttab_grow() != 0) {
			mtx_unlock(&gnttab.gt_mtx);
			return (ENOSPC);
		}
	}
	for (i = 0; i < n; i++) {
		refs[i] = gnttab.gt_free;
		gnttab.gt_free = gnttab.gt_link[refs[i]];
	}
	gnttab.gt_nfree -= n;
	gnttab.gt_nused += n;
	mtx_unlock(&gnttab.gt_mtx);
	return (0);
}

u_int
xen_gnttab_room(u_int *all)
{
	u_int room;

	mtx_lock(&gnttab.gt_mtx);
	*all = gnttab.gt_max_pages * gnttab.gt_per_page;
	room = gnttab.gt_nfree +
	    (gnttab.gt_max_pages - gnttab.gt_npages) * gnttab.gt_per_page;
	mtx_unlock(&gnttab.gt_mtx);
	return (room);
}

/* Was it in a page that the table does not have any more? */
static bool
gnttab_is_dead(grant_ref_t ref)
{

	return (ref >= gnttab.gt_npages * gnttab.gt_per_page);
}

static void
gnttab_free_one(grant_ref_t ref)
{

	mtx_assert(&gnttab.gt_mtx, MA_OWNED);
	if (gnttab_is_dead(ref))
		return;
	gnttab.gt_link[ref] = gnttab.gt_free;
	gnttab.gt_free = ref;
	gnttab.gt_nfree++;
}

/* The flags come last: with them the entry is valid. */
void
xen_gnttab_grant(grant_ref_t ref, domid_t domid, vm_paddr_t pa, bool readonly)
{
	uint16_t flags = GTF_permit_access | (readonly ? GTF_readonly : 0);
	grant_entry_v1_t *v1;
	grant_entry_v2_t *v2;

	KASSERT(ref >= GNTTAB_NR_RESERVED_ENTRIES, ("%s: reference %u", __func__, ref));
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

static bool
gnttab_end_one(grant_ref_t ref)
{

	if (gnttab_is_dead(ref))
		return (true);
	return (gnttab.gt_version == 1 ? gnttab_end_v1(ref) : gnttab_end_v2(ref));
}

/* Version 2: invalidate a batch, with one barrier. */
static void
gnttab_invalidate(const grant_ref_t *refs, u_int n)
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

static void
gnttab_retry_later(void)
{

	mtx_assert(&gnttab.gt_mtx, MA_OWNED);
	if (gnttab.gt_retrying || gnttab.gt_ndeferred == 0)
		return;
	gnttab.gt_retrying = true;
	taskqueue_enqueue_timeout(taskqueue_thread, &gnttab.gt_retry, GNTTAB_RETRY_SECS * hz);
}

static void
gnttab_defer(grant_ref_t ref)
{

	mtx_assert(&gnttab.gt_mtx, MA_OWNED);
	gnttab.gt_link[ref] = gnttab.gt_deferred;
	gnttab.gt_deferred = ref;
	gnttab.gt_ndeferred++;
	gnttab.gt_total_deferred++;
	gnttab_retry_later();
}

u_int
xen_gnttab_end(const grant_ref_t *refs, u_int n)
{
	u_int deferred, i;

	deferred = 0;
	gnttab_invalidate(refs, n);
	mtx_lock(&gnttab.gt_mtx);
	for (i = 0; i < n; i++) {
		if (gnttab_end_one(refs[i]))
			gnttab_free_one(refs[i]);
		else {
			gnttab_defer(refs[i]);
			deferred++;
		}
	}
	gnttab.gt_nused -= n;
	mtx_unlock(&gnttab.gt_mtx);
	return (deferred);
}

/* Look once more at all that is deferred. */
static void
gnttab_retry_refs(void)
{
	uint32_t list, ref;

	list = gnttab.gt_deferred;
	gnttab.gt_deferred = GNTTAB_END;
	while (list != GNTTAB_END) {
		ref = list;
		list = gnttab.gt_link[ref];
		if (gnttab_end_one(ref)) {
			gnttab.gt_ndeferred--;
			gnttab_free_one(ref);
		} else {
			gnttab.gt_link[ref] = gnttab.gt_deferred;
			gnttab.gt_deferred = ref;
		}
	}
}

/* End what can be ended of some pages.  Returns true if that is all. */
static bool
gnttab_end_pages(struct xen_gnttab_pages *gp)
{
	u_int i, left;

	mtx_assert(&gnttab.gt_mtx, MA_OWNED);
	left = 0;
	for (i = 0; i < gp->gp_nrefs; i++) {
		if (gnttab_end_one(gp->gp_refs[i]))
			gnttab_free_one(gp->gp_refs[i]);
		else
			gp->gp_refs[left++] = gp->gp_refs[i];
	}
	gp->gp_nrefs = left;
	return (left == 0);
}

static void
gnttab_pages_destroy(struct xen_gnttab_pages *gp)
{

	contigfree(gp->gp_va, ptoa(gp->gp_npages), M_XEN);
	free(gp, M_XEN);
}

static void
gnttab_retry_task(void *arg __unused, int pending __unused)
{
	SLIST_HEAD(, xen_gnttab_pages) done = SLIST_HEAD_INITIALIZER(done);
	struct xen_gnttab_pages *gp, *next;
	u_int before;

	mtx_lock(&gnttab.gt_mtx);
	gnttab_retry_refs();
	SLIST_FOREACH_SAFE(gp, &gnttab.gt_pages, gp_link, next) {
		before = gp->gp_nrefs;
		if (gnttab_end_pages(gp)) {
			SLIST_REMOVE(&gnttab.gt_pages, gp, xen_gnttab_pages, gp_link);
			SLIST_INSERT_HEAD(&done, gp, gp_link);
		}
		gnttab.gt_ndeferred -= before - gp->gp_nrefs;
	}
	gnttab.gt_retrying = false;
	gnttab_retry_later();
	mtx_unlock(&gnttab.gt_mtx);
	while ((gp = SLIST_FIRST(&done)) != NULL) {
		SLIST_REMOVE_HEAD(&done, gp_link);
		gnttab_pages_destroy(gp);
	}
}

int
xen_gnttab_pages_alloc(domid_t domid, u_int n, int how, struct xen_gnttab_pages **gpp)
{
	struct xen_gnttab_pages *gp;
	u_int i;
	int error;

	KASSERT(n > 0 && n <= XEN_GNTTAB_MAX_PAGES, ("%s: %u pages", __func__, n));
	gp = malloc(sizeof(*gp) + n * sizeof(gp->gp_refs[0]), M_XEN, how | M_ZERO);
	if (gp == NULL)
		return (ENOMEM);
	gp->gp_va = contigmalloc(ptoa(n), M_XEN, how | M_ZERO, 0, ~(vm_paddr_t)0, PAGE_SIZE, 0);
	if (gp->gp_va == NULL) {
		free(gp, M_XEN);
		return (ENOMEM);
	}
	gp->gp_npages = gp->gp_nrefs = n;
	error = xen_gnttab_alloc(gp->gp_refs, n);
	if (error != 0) {
		gnttab_pages_destroy(gp);
		return (error);
	}
	for (i = 0; i < n; i++)
		xen_gnttab_grant(gp->gp_refs[i], domid, vtophys((char *)gp->gp_va + ptoa(i)),
		    false);
	*gpp = gp;
	return (0);
}

void
xen_gnttab_pages_free(struct xen_gnttab_pages *gp)
{
	bool ended;

	if (gp == NULL)
		return;
	gnttab_invalidate(gp->gp_refs, gp->gp_npages);
	mtx_lock(&gnttab.gt_mtx);
	gnttab.gt_nused -= gp->gp_npages;
	ended = gnttab_end_pages(gp);
	if (!ended) {
		SLIST_INSERT_HEAD(&gnttab.gt_pages, gp, gp_link);
		gnttab.gt_ndeferred += gp->gp_nrefs;
		gnttab.gt_total_deferred += gp->gp_nrefs;
		gnttab_retry_later();
	}
	mtx_unlock(&gnttab.gt_mtx);
	if (ended)
		gnttab_pages_destroy(gp);
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
	if (error == 0 && (query.status != GNTST_okay || query.max_nr_frames == 0))
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

	/* Dead references stay dead, so that it does not grow again in the same place. */
	if (gnttab_query_size(&max) == 0)
		gnttab.gt_max_pages = MIN(gnttab.gt_max_pages, max);
	if (gnttab.gt_npages > gnttab.gt_max_pages) {
		gnttab.gt_npages = gnttab.gt_max_pages;
		if (gnttab.gt_version == 2)
			gnttab.gt_nstatus = gnttab_status_pages(gnttab.gt_npages);
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
	uint32_t list, ref;

	mtx_lock(&gnttab.gt_mtx);
	list = gnttab.gt_free;
	gnttab.gt_free = GNTTAB_END;
	gnttab.gt_nfree = 0;
	while (list != GNTTAB_END) {
		ref = list;
		list = gnttab.gt_link[ref];
		gnttab_free_one(ref);
	}
	mtx_unlock(&gnttab.gt_mtx);
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
	gnttab.gt_per_page = gnttab.gt_version == 1 ? GNTTAB_V1_PER_PAGE : GNTTAB_V2_PER_PAGE;
	status = gnttab.gt_version == 1 ? 0 : gnttab_status_pages(max);
	error = xen_space_alloc(dev, GNTTAB_RID, ptoa(max + status), &gnttab.gt_space);
	if (error != 0) {
		device_printf(dev, "no address space for %u pages of grant table\n", max + status);
		return (error);
	}
	va = gnttab.gt_space.xs_vaddr;
	gnttab.gt_v1 = (grant_entry_v1_t *)va;
	gnttab.gt_v2 = (grant_entry_v2_t *)va;
	gnttab.gt_status = (volatile grant_status_t *)(va + ptoa(max));
	gnttab.gt_max_pages = max;
	gnttab.gt_npages = gnttab.gt_nstatus = 0;
	gnttab.gt_free = gnttab.gt_deferred = GNTTAB_END;
	gnttab.gt_link = malloc((size_t)max * gnttab.gt_per_page * sizeof(*gnttab.gt_link), M_XEN,
	    M_WAITOK | M_ZERO);
	TIMEOUT_TASK_INIT(taskqueue_thread, &gnttab.gt_retry, 0, gnttab_retry_task, NULL);
	mtx_lock(&gnttab.gt_mtx);
	error = gnttab_grow();
	gnttab.gt_ready = error == 0;
	mtx_unlock(&gnttab.gt_mtx);
	if (error != 0)
		device_printf(dev, "can't map a page of the grant table (error %d)\n", error);
	else if (bootverbose)
		device_printf(dev, "grant table version %u, %u references at most\n",
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
	KASSERT(gnttab.gt_nused == 0 && gnttab.gt_ndeferred == 0, ("%s: %u in use, %u deferred",
	    __func__, gnttab.gt_nused, gnttab.gt_ndeferred));
	gnttab.gt_ready = false;
	/* Cancelled first, as a queue keeps count of a callout that was only drained. */
	while (taskqueue_cancel_timeout(taskqueue_thread, &gnttab.gt_retry, NULL) != 0)
		taskqueue_drain_timeout(taskqueue_thread, &gnttab.gt_retry);
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
	gnttab.gt_nfree = 0;
}

void
xen_gnttab_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{
	struct sysctl_oid *node;
	struct sysctl_oid_list *list;

	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(parent), OID_AUTO, "gnttab",
	    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "Grant table");
	list = SYSCTL_CHILDREN(node);
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "version", CTLFLAG_RD, &gnttab.gt_version, 0,
	    "Version of its entries");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "pages", CTLFLAG_RD, &gnttab.gt_npages, 0,
	    "Pages of the table");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "max_pages", CTLFLAG_RD, &gnttab.gt_max_pages, 0,
	    "Pages that Xen allows at most");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "free", CTLFLAG_RD, &gnttab.gt_nfree, 0,
	    "References that are free, without growing");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "in_use", CTLFLAG_RD, &gnttab.gt_nused, 0,
	    "References in use");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "deferred", CTLFLAG_RD, &gnttab.gt_ndeferred, 0,
	    "References that were ended, and that another domain still has mapped");
	SYSCTL_ADD_U64(ctx, list, OID_AUTO, "total_deferred", CTLFLAG_RD,
	    &gnttab.gt_total_deferred, 0, "References ended while still mapped, in all");
}
