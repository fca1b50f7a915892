/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Grants over FreeBSD's own Xen core.
 *
 * The core gives out references of its table under its lock, and links those
 * that one owner has into a list of that owner's.  So there is a stock of
 * references here, which grows by GNTTAB_CHUNK of them, and shrinks when the
 * module goes: granting and ending never take the core's lock.
 *
 * The core leaks a reference that is ended while the peer has the page mapped,
 * so it is not asked to end that; xen_gnttab_end.c asks again each second.
 *
 * After a suspension the table is a new and empty one; the core maps it, and
 * references stay with whom they are.
 *
 * The table's entries have version 1: pages above 16 TB can't be granted.
 *
 * Locking.  xen_gnttab_mtx (mutex): all lists and counts.  An entry belongs to
 * the holder of its reference.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/sysctl.h>

#include <xen/xen-os.h>
#include <xen/hypervisor.h>
#include <xen/gnttab.h>

#include <dev/xen/xen_gnttab_var.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/core/core.h>

#define	GNTTAB_CHUNK		128
#define	GNTTAB_RESERVED		8	/* the toolstack's */
#define	GNTTAB_PER_PAGE		(PAGE_SIZE / sizeof(grant_entry_v1_t))

CTASSERT(GNTTAB_LIST_END == XEN_GNTTAB_LIST_END);

static struct {
	grant_ref_t	 cg_free;	/* the core's list of our stock */
	u_int		 cg_max;	/* references of the table */
} core_gnttab = {
	.cg_free = GNTTAB_LIST_END,
};

struct mtx xen_gnttab_mtx;
struct xen_gnttab_counts xen_gnttab_counts;
MTX_SYSINIT(xen_core_gnttab, &xen_gnttab_mtx, "xen core gnttab", MTX_DEF);

void
xen_gnttab_push(grant_ref_t *list, grant_ref_t ref)
{

	gnttab_release_grant_reference(list, ref);
}

grant_ref_t
xen_gnttab_pop(grant_ref_t *list)
{

	return (gnttab_claim_grant_reference(list));
}

void
xen_gnttab_free_one(grant_ref_t ref)
{

	mtx_assert(&xen_gnttab_mtx, MA_OWNED);
	xen_gnttab_push(&core_gnttab.cg_free, ref);
	xen_gnttab_counts.gc_free++;
}

/* Have n references in stock. */
static int
gnttab_stock(u_int n)
{
	grant_ref_t more, ref;
	u_int want;

	mtx_assert(&xen_gnttab_mtx, MA_OWNED);
	if (xen_gnttab_counts.gc_free >= n)
		return (0);
	want = MAX(n - xen_gnttab_counts.gc_free, GNTTAB_CHUNK);
	if (gnttab_alloc_grant_references(want, &more) != 0) {
		want = n - xen_gnttab_counts.gc_free;
		if (gnttab_alloc_grant_references(want, &more) != 0)
			return (ENOSPC);
	}
	while ((ref = xen_gnttab_pop(&more)) != XEN_GNTTAB_LIST_END)
		xen_gnttab_free_one(ref);
	return (0);
}

int
xen_gnttab_alloc(grant_ref_t *refs, u_int n)
{
	u_int i;
	int error;

	mtx_lock(&xen_gnttab_mtx);
	error = gnttab_stock(n);
	for (i = 0; error == 0 && i < n; i++)
		refs[i] = xen_gnttab_pop(&core_gnttab.cg_free);
	if (error == 0) {
		xen_gnttab_counts.gc_free -= n;
		xen_gnttab_counts.gc_used += n;
	}
	mtx_unlock(&xen_gnttab_mtx);
	return (error);
}

void
xen_gnttab_grant(grant_ref_t ref, domid_t domid, vm_paddr_t pa, bool readonly)
{

	gnttab_grant_foreign_access_ref(ref, domid, atop(pa), readonly ? 1 : 0);
}

/* Entries of version 1 need no barrier. */
void
xen_gnttab_invalidate(const grant_ref_t *refs __unused, u_int n __unused)
{
}

bool
xen_gnttab_end_one(grant_ref_t ref)
{

	return (gnttab_query_foreign_access(ref) == 0 &&
	    gnttab_end_foreign_access_ref(ref) != 0);
}

u_int
xen_gnttab_room(u_int *all)
{
	u_int room, taken;

	mtx_lock(&xen_gnttab_mtx);
	*all = core_gnttab.cg_max;
	taken = xen_gnttab_counts.gc_used + xen_gnttab_counts.gc_deferred;
	room = *all > taken ? *all - taken : 0;
	mtx_unlock(&xen_gnttab_mtx);
	return (room);
}

bool
xen_core_gnttab_is_idle(void)
{
	bool idle;

	mtx_lock(&xen_gnttab_mtx);
	idle = xen_gnttab_counts.gc_used == 0 &&
	    xen_gnttab_counts.gc_deferred == 0;
	mtx_unlock(&xen_gnttab_mtx);
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
	if (bootverbose)
		device_printf(dev, "%u grant references at most\n",
		    core_gnttab.cg_max);
	return (0);
}

void
xen_gnttab_fini(device_t dev __unused)
{

	if (core_gnttab.cg_max == 0)
		return;
	gnttab_free_grant_references(core_gnttab.cg_free);
	core_gnttab.cg_free = GNTTAB_LIST_END;
	core_gnttab.cg_max = xen_gnttab_counts.gc_free = 0;
}
