/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The end of grants, and pages of our own that are granted.
 *
 * A grant that is ended while the peer still has the page mapped is deferred:
 * the reference is checked each second, and becomes free when the page is
 * unmapped.  Until then neither the reference nor a page that we own
 * (xen_gnttab_pages_free()) is used for anything else.
 *
 * Locking.  xen_gnttab_mtx (mutex): all that follows.  An entry of the table
 * belongs to the holder of its reference.
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

#include <dev/xen/xen_gnttab_var.h>
#include <dev/xen/xen_var.h>

#define	GNTTAB_RETRY_SECS	1

static struct {
	grant_ref_t	 ge_refs;	/* deferred */
	SLIST_HEAD(, xen_gnttab_pages) ge_pages; /* likewise */
	struct timeout_task ge_retry;
	bool		 ge_retrying;
	bool		 ge_ready;
} ending = {
	.ge_refs = XEN_GNTTAB_LIST_END,
};

static void
gnttab_retry_later(void)
{

	mtx_assert(&xen_gnttab_mtx, MA_OWNED);
	if (ending.ge_retrying || xen_gnttab_counts.gc_deferred == 0)
		return;
	ending.ge_retrying = true;
	taskqueue_enqueue_timeout(taskqueue_thread, &ending.ge_retry,
	    GNTTAB_RETRY_SECS * hz);
}

/* n references are not in use any more, of which so many are still mapped. */
static void
gnttab_ended(u_int n, u_int mapped)
{

	mtx_assert(&xen_gnttab_mtx, MA_OWNED);
	xen_gnttab_counts.gc_used -= n;
	xen_gnttab_counts.gc_deferred += mapped;
	xen_gnttab_counts.gc_total_deferred += mapped;
	gnttab_retry_later();
}

u_int
xen_gnttab_end(const grant_ref_t *refs, u_int n)
{
	u_int deferred, i;

	deferred = 0;
	xen_gnttab_invalidate(refs, n);
	mtx_lock(&xen_gnttab_mtx);
	for (i = 0; i < n; i++) {
		if (xen_gnttab_end_one(refs[i]))
			xen_gnttab_free_one(refs[i]);
		else {
			xen_gnttab_push(&ending.ge_refs, refs[i]);
			deferred++;
		}
	}
	gnttab_ended(n, deferred);
	mtx_unlock(&xen_gnttab_mtx);
	return (deferred);
}

/* Look once more at the references that are deferred. */
static void
gnttab_retry_refs(void)
{
	grant_ref_t list = ending.ge_refs, ref;

	ending.ge_refs = XEN_GNTTAB_LIST_END;
	while ((ref = xen_gnttab_pop(&list)) != XEN_GNTTAB_LIST_END) {
		if (xen_gnttab_end_one(ref)) {
			xen_gnttab_counts.gc_deferred--;
			xen_gnttab_free_one(ref);
		} else
			xen_gnttab_push(&ending.ge_refs, ref);
	}
}

/* End what can be ended of some pages.  Returns true if that is all. */
static bool
gnttab_end_pages(struct xen_gnttab_pages *gp)
{
	u_int i, left;

	mtx_assert(&xen_gnttab_mtx, MA_OWNED);
	left = 0;
	for (i = 0; i < gp->gp_nrefs; i++) {
		if (xen_gnttab_end_one(gp->gp_refs[i]))
			xen_gnttab_free_one(gp->gp_refs[i]);
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

	mtx_lock(&xen_gnttab_mtx);
	gnttab_retry_refs();
	SLIST_FOREACH_SAFE(gp, &ending.ge_pages, gp_link, next) {
		before = gp->gp_nrefs;
		if (gnttab_end_pages(gp)) {
			SLIST_REMOVE(&ending.ge_pages, gp, xen_gnttab_pages,
			    gp_link);
			SLIST_INSERT_HEAD(&done, gp, gp_link);
		}
		xen_gnttab_counts.gc_deferred -= before - gp->gp_nrefs;
	}
	ending.ge_retrying = false;
	gnttab_retry_later();
	mtx_unlock(&xen_gnttab_mtx);
	while ((gp = SLIST_FIRST(&done)) != NULL) {
		SLIST_REMOVE_HEAD(&done, gp_link);
		gnttab_pages_destroy(gp);
	}
}

int
xen_gnttab_pages_alloc(domid_t domid, u_int n, int how,
    struct xen_gnttab_pages **gpp)
{
	struct xen_gnttab_pages *gp;
	u_int i;
	int error;

	KASSERT(n > 0 && n <= XEN_GNTTAB_MAX_PAGES,
	    ("%s: %u pages", __func__, n));
	gp = malloc(sizeof(*gp) + n * sizeof(gp->gp_refs[0]), M_XEN,
	    how | M_ZERO);
	if (gp == NULL)
		return (ENOMEM);
	gp->gp_va = contigmalloc(ptoa(n), M_XEN, how | M_ZERO, 0,
	    ~(vm_paddr_t)0, PAGE_SIZE, 0);
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
		xen_gnttab_grant(gp->gp_refs[i], domid,
		    vtophys((char *)gp->gp_va + ptoa(i)), false);
	*gpp = gp;
	return (0);
}

void
xen_gnttab_pages_free(struct xen_gnttab_pages *gp)
{
	bool ended;

	if (gp == NULL)
		return;
	xen_gnttab_invalidate(gp->gp_refs, gp->gp_npages);
	mtx_lock(&xen_gnttab_mtx);
	ended = gnttab_end_pages(gp);
	if (!ended)
		SLIST_INSERT_HEAD(&ending.ge_pages, gp, gp_link);
	gnttab_ended(gp->gp_npages, gp->gp_nrefs);
	mtx_unlock(&xen_gnttab_mtx);
	if (ended)
		gnttab_pages_destroy(gp);
}

int
xen_gnttab_end_init(device_t dev __unused)
{

	TIMEOUT_TASK_INIT(taskqueue_thread, &ending.ge_retry, 0,
	    gnttab_retry_task, NULL);
	ending.ge_ready = true;
	return (0);
}

void
xen_gnttab_end_fini(device_t dev __unused)
{

	if (!ending.ge_ready)
		return;
	KASSERT(xen_gnttab_counts.gc_used == 0 &&
	    xen_gnttab_counts.gc_deferred == 0,
	    ("%s: %u in use, %u deferred", __func__, xen_gnttab_counts.gc_used,
	    xen_gnttab_counts.gc_deferred));
	/*
	 * Cancelled first, as a queue keeps count of a callout that was only
	 * drained.
	 */
	while (taskqueue_cancel_timeout(taskqueue_thread, &ending.ge_retry,
	    NULL) != 0)
		taskqueue_drain_timeout(taskqueue_thread, &ending.ge_retry);
	ending.ge_ready = false;
}

struct sysctl_oid_list *
xen_gnttab_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{
	struct xen_gnttab_counts *gc = &xen_gnttab_counts;
	struct sysctl_oid *node;
	struct sysctl_oid_list *list;

	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(parent), OID_AUTO, "gnttab",
	    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "Grant table");
	list = SYSCTL_CHILDREN(node);
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "free", CTLFLAG_RD, &gc->gc_free,
	    0, "References that are free, without growing");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "in_use", CTLFLAG_RD, &gc->gc_used,
	    0, "References in use");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO,
	    "deferred", CTLFLAG_RD, &gc->gc_deferred, 0,
	    "References that were ended, and that another domain still has mapped");
	SYSCTL_ADD_U64(ctx, list, OID_AUTO,
	    "total_deferred", CTLFLAG_RD, &gc->gc_total_deferred, 0,
	    "References ended while still mapped, in all");
	return (list);
}
