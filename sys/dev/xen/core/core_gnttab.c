/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Grants over FreeBSD's own Xen core.
 *
 * The core gives out references of its table under its lock, and links those that one owner has into a
 * list of that owner's.  So there is a stock of references here, which grows by GNTTAB_CHUNK of them,
 * and shrinks when the module goes: granting and ending never take the core's lock.
 *
 * The core leaks a reference that is ended while the peer has the page mapped.  Here it is looked at
 * again each second, as with our own table (xen_gnttab.c), and neither it nor a page that we own is
 * used for anything else before.
 *
 * After a suspension the table is a new and empty one; the core maps it, and references stay with
 * whom they are.
 *
 * The table's entries have version 1: pages above 16 TB can't be granted.
 *
 * Locking.  cg_mtx (mutex): all lists and counts.  An entry belongs to the holder of its reference.
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

#include <xen/xen-os.h>
#include <xen/hypervisor.h>
#include <xen/gnttab.h>

#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/core/core.h>

#define	GNTTAB_CHUNK		128
#define	GNTTAB_RESERVED		8	/* the toolstack's */
#define	GNTTAB_RETRY_SECS	1
#define	GNTTAB_PER_PAGE		(PAGE_SIZE / sizeof(grant_entry_v1_t))

static struct {
	struct mtx	 cg_mtx;
	grant_ref_t	 cg_free;	/* the core's list of our stock */
	grant_ref_t	 cg_deferred;	/* and of what was ended, and is still mapped */
	SLIST_HEAD(, xen_gnttab_pages) cg_pages; /* likewise */
	struct timeout_task cg_retry;
	bool		 cg_retrying;
	u_int		 cg_max;	/* references of the table */
	u_int		 cg_nfree;
	u_int		 cg_nused;
	u_int		 cg_ndeferred;
	uint64_t	 cg_total_deferred;
} core_gnttab = {
	.cg_free = GNTTAB_LIST_END,
	.cg_deferred = GNTTAB_LIST_END,
};

MTX_SYSINIT(xen_core_gnttab, &core_gnttab.cg_mtx, "xen core gnttab", MTX_DEF);

static void
gnttab_free_one(grant_ref_t ref)
{

	mtx_assert(&core_gnttab.cg_mtx, MA_OWNED);
	gnttab_release_grant_reference(&core_gnttab.cg_free, ref);
	core_gnttab.cg_nfree++;
}

/* Have n references in stock. */
static int
gnttab_stock(u_int n)
{
	grant_ref_t more, ref;
	u_int want;

	mtx_assert(&core_gnttab.cg_mtx, MA_OWNED);
	if (core_gnttab.cg_nfree >= n)
		return (0);
	want = MAX(n - core_gnttab.cg_nfree, GNTTAB_CHUNK);
	if (gnttab_alloc_grant_references(want, &more) != 0) {
		want = n - core_gnttab.cg_nfree;
		if (gnttab_alloc_grant_references(want, &more) != 0)
			return (ENOSPC);
	}
	for (; want > 0; want--) {
		ref = gnttab_claim_grant_reference(&more);
		gnttab_free_one(ref);
	}
	return (0);
}

int
xen_gnttab_alloc(grant_ref_t *refs, u_int n)
{
	u_int i;
	int error;

	mtx_lock(&core_gnttab.cg_mtx);
	error = gnttab_stock(n);
	for (i = 0; error == 0 && i < n; i++)
		refs[i] = gnttab_claim_grant_reference(&core_gnttab.cg_free);
	if (error == 0) {
		core_gnttab.cg_nfree -= n;
		core_gnttab.cg_nused += n;
	}
	mtx_unlock(&core_gnttab.cg_mtx);
	return (error);
}

void
xen_gnttab_grant(grant_ref_t ref, domid_t domid, vm_paddr_t pa, bool readonly)
{

	gnttab_grant_foreign_access_ref(ref, domid, atop(pa), readonly ? 1 : 0);
}

/* The core complains of one that is mapped, so it is not asked to end that. */
static bool
gnttab_end_one(grant_ref_t ref)
{

	return (gnttab_query_foreign_access(ref) == 0 && gnttab_end_foreign_access_ref(ref) != 0);
}

static void
gnttab_retry_later(void)
{

	mtx_assert(&core_gnttab.cg_mtx, MA_OWNED);
	if (core_gnttab.cg_retrying || core_gnttab.cg_ndeferred == 0)
		return;
	core_gnttab.cg_retrying = true;
	taskqueue_enqueue_timeout(taskqueue_thread, &core_gnttab.cg_retry, GNTTAB_RETRY_SECS * hz);
}

u_int
xen_gnttab_end(const grant_ref_t *refs, u_int n)
{
	u_int deferred, i;

	deferred = 0;
	mtx_lock(&core_gnttab.cg_mtx);
	for (i = 0; i < n; i++) {
		if (gnttab_end_one(refs[i])) {
			gnttab_free_one(refs[i]);
			continue;
		}
		gnttab_release_grant_reference(&core_gnttab.cg_deferred, refs[i]);
		deferred++;
	}
	core_gnttab.cg_nused -= n;
	core_gnttab.cg_ndeferred += deferred;
	core_gnttab.cg_total_deferred += deferred;
	gnttab_retry_later();
	mtx_unlock(&core_gnttab.cg_mtx);
	return (deferred);
}

u_int
xen_gnttab_room(u_int *all)
{
	u_int room, taken;

	mtx_lock(&core_gnttab.cg_mtx);
	*all = core_gnttab.cg_max;
	taken = core_gnttab.cg_nused + core_gnttab.cg_ndeferred;
	room = *all > taken ? *all - taken : 0;
	mtx_unlock(&core_gnttab.cg_mtx);
	return (room);
}

/* End what can be ended of some pages.  Returns true if that is all. */
static bool
gnttab_end_pages(struct xen_gnttab_pages *gp)
{
	u_int i, left;

	mtx_assert(&core_gnttab.cg_mtx, MA_OWNED);
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

/* Look once more at the references that are deferred. */
static void
gnttab_retry_refs(void)
{
	grant_ref_t list = core_gnttab.cg_deferred, ref;

	core_gnttab.cg_deferred = GNTTAB_LIST_END;
	while ((ref = gnttab_claim_grant_reference(&list)) != GNTTAB_LIST_END) {
		if (gnttab_end_one(ref)) {
			core_gnttab.cg_ndeferred--;
			gnttab_free_one(ref);
		} else
			gnttab_release_grant_reference(&core_gnttab.cg_deferred, ref);
	}
}

static void
gnttab_retry_task(void *arg __unused, int pending __unused)
{
	SLIST_HEAD(, xen_gnttab_pages) done = SLIST_HEAD_INITIALIZER(done);
	struct xen_gnttab_pages *gp, *next;
	u_int before;

	mtx_lock(&core_gnttab.cg_mtx);
	gnttab_retry_refs();
	SLIST_FOREACH_SAFE(gp, &core_gnttab.cg_pages, gp_link, next) {
		before = gp->gp_nrefs;
		if (gnttab_end_pages(gp)) {
			SLIST_REMOVE(&core_gnttab.cg_pages, gp, xen_gnttab_pages, gp_link);
			SLIST_INSERT_HEAD(&done, gp, gp_link);
		}
		core_gnttab.cg_ndeferred -= before - gp->gp_nrefs;
	}
	core_gnttab.cg_retrying = false;
	gnttab_retry_later();
	mtx_unlock(&core_gnttab.cg_mtx);
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
	mtx_lock(&core_gnttab.cg_mtx);
	core_gnttab.cg_nused -= gp->gp_npages;
	ended = gnttab_end_pages(gp);
	if (!ended) {
		SLIST_INSERT_HEAD(&core_gnttab.cg_pages, gp, gp_link);
		core_gnttab.cg_ndeferred += gp->gp_nrefs;
		core_gnttab.cg_total_deferred += gp->gp_nrefs;
		gnttab_retry_later();
	}
	mtx_unlock(&core_gnttab.cg_mtx);
	if (ended)
		gnttab_pages_destroy(gp);
}

bool
xen_core_gnttab_is_idle(void)
{
	bool idle;

	mtx_lock(&core_gnttab.cg_mtx);
	idle = core_gnttab.cg_nused == 0 && core_gnttab.cg_ndeferred == 0;
	mtx_unlock(&core_gnttab.cg_mtx);
	return (idle);
}

int
xen_gnttab_init(device_t dev)
{
	struct gnttab_query_size query = { .dom = DOMID_SELF };
	u_int pages = 4;	/* what a Xen without the call has */

	if (HYPERVISOR_grant_table_op(GNTTABOP_query_size, &query, 1) == 0 &&
	    query.status == GNTST_okay && query.max_nr_frames != 0)
		pages = query.max_nr_frames;
	core_gnttab.cg_max = pages * GNTTAB_PER_PAGE - GNTTAB_RESERVED;
	TIMEOUT_TASK_INIT(taskqueue_thread, &core_gnttab.cg_retry, 0, gnttab_retry_task, NULL);
	if (bootverbose)
		device_printf(dev, "%u grant references at most\n", core_gnttab.cg_max);
	return (0);
}

void
xen_gnttab_fini(device_t dev __unused)
{

	if (core_gnttab.cg_max == 0)
		return;
	while (taskqueue_cancel_timeout(taskqueue_thread, &core_gnttab.cg_retry, NULL) != 0)
		taskqueue_drain_timeout(taskqueue_thread, &core_gnttab.cg_retry);
	gnttab_free_grant_references(core_gnttab.cg_free);
	core_gnttab.cg_free = GNTTAB_LIST_END;
	core_gnttab.cg_nfree = core_gnttab.cg_max = 0;
}

void
xen_gnttab_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{
	struct sysctl_oid *node;
	struct sysctl_oid_list *list;

	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(parent), OID_AUTO, "gnttab",
	    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "Grant table");
	list = SYSCTL_CHILDREN(node);
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "free", CTLFLAG_RD, &core_gnttab.cg_nfree, 0,
	    "References in stock");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "in_use", CTLFLAG_RD, &core_gnttab.cg_nused, 0,
	    "References in use");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "deferred", CTLFLAG_RD, &core_gnttab.cg_ndeferred, 0,
	    "References that were ended, and that another domain still has mapped");
	SYSCTL_ADD_U64(ctx, list, OID_AUTO, "total_deferred", CTLFLAG_RD,
	    &core_gnttab.cg_total_deferred, 0, "References ended while still mapped, in all");
}
