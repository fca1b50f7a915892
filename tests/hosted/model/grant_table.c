/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A model of the grant table, for tests of grant rings.
 *
 * It is strict with both sides: a reference has to be taken, granted, mapped for what it was granted
 * for, let go, and ended, in this order.  Free references are used in turn, so that a stale one names
 * nothing for a while.
 *
 * Locking.  One spin lock, as sides of a queue run in threads.
 */

#include "../host/host.h"
#include "../kpi/kpi.h"
#include "grant_table.h"

#define	GNT_REFS	8192		/* a power of two */

enum gnt_state {
	GNT_FREE = 0,
	GNT_TAKEN,
	GNT_GRANTED,
	GNT_DEFERRED,		/* ended, but still mapped */
};

static struct gnt_entry {
	enum gnt_state	 state;
	domid_t		 domid;
	bool		 readonly;
	vm_paddr_t	 pa;
	int		 maps;
} gnt_table[GNT_REFS];

static grant_ref_t gnt_next = 8;
static u_int gnt_used, gnt_ndeferred;
static volatile u_int gnt_lock;

int gnt_fail_after;
u_int gnt_limit = GNT_REFS - 16;

static void
gnt_enter(void)
{

	while (atomic_cmpset_acq_int(&gnt_lock, 0, 1) == 0)
		host_yield();
}

static void
gnt_exit(void)
{

	atomic_store_rel_int(&gnt_lock, 0);
}

static struct gnt_entry *
gnt_entry(grant_ref_t ref)
{

	CHECK(ref != XEN_GNTTAB_NONE && ref < GNT_REFS, "reference %u", ref);
	return (&gnt_table[ref]);
}

/* This domain is never suspended. */
volatile u_int xen_life;

int
xen_gnttab_alloc(grant_ref_t *refs, u_int n)
{
	u_int i;

	if (gnt_fail_after > 0 && --gnt_fail_after == 0)
		return (ENOSPC);
	gnt_enter();
	CHECK(n > 0, "no references");
	if (gnt_used + n > gnt_limit) {
		gnt_exit();
		return (ENOSPC);
	}
	for (i = 0; i < n;) {
		if (gnt_next >= 8 && gnt_table[gnt_next].state == GNT_FREE) {
			gnt_table[gnt_next].state = GNT_TAKEN;
			refs[i++] = gnt_next;
		}
		gnt_next = (gnt_next + 1) % GNT_REFS;
	}
	gnt_used += n;
	gnt_exit();
	return (0);
}

static void
gnt_release(struct gnt_entry *ge)
{

	memset(ge, 0, sizeof(*ge));
	gnt_used--;
}

void
xen_gnttab_grant(grant_ref_t ref, domid_t domid, vm_paddr_t pa, bool readonly)
{
	struct gnt_entry *ge = gnt_entry(ref);

	gnt_enter();
	CHECK(ge->state == GNT_TAKEN, "reference %u: state %d", ref, ge->state);
	*ge = (struct gnt_entry){ .state = GNT_GRANTED, .domid = domid, .readonly = readonly,
	    .pa = pa };
	gnt_exit();
}

u_int
xen_gnttab_end(const grant_ref_t *refs, u_int n)
{
	struct gnt_entry *ge;
	u_int deferred, i;

	deferred = 0;
	gnt_enter();
	for (i = 0; i < n; i++) {
		ge = gnt_entry(refs[i]);
		CHECK(ge->state == GNT_GRANTED, "reference %u: state %d", refs[i], ge->state);
		if (ge->maps == 0) {
			gnt_release(ge);
			continue;
		}
		ge->state = GNT_DEFERRED;
		deferred++;
	}
	gnt_ndeferred += deferred;
	gnt_exit();
	return (deferred);
}

int
xen_gnttab_pages_alloc(domid_t domid, u_int n, int how __unused, struct xen_gnttab_pages **gpp)
{
	struct xen_gnttab_pages *gp;
	u_int i;

	CHECK(n <= XEN_GNTTAB_MAX_PAGES, "%u pages", n);
	if (kpi_fail_now())
		return (ENOMEM);
	gp = host_alloc(sizeof(*gp) + n * sizeof(gp->gp_refs[0]), sizeof(void *));
	if (xen_gnttab_alloc(gp->gp_refs, n) != 0) {
		host_free(gp);
		return (ENOSPC);
	}
	gp->gp_npages = gp->gp_nrefs = n;
	gp->gp_va = host_alloc(ptoa(n), PAGE_SIZE);
	memset(gp->gp_va, 0, ptoa(n));
	for (i = 0; i < n; i++)
		xen_gnttab_grant(gp->gp_refs[i], domid,
		    (vm_paddr_t)(uintptr_t)gp->gp_va + ptoa(i), false);
	*gpp = gp;
	kpi_mallocs++;
	return (0);
}

void
xen_gnttab_pages_free(struct xen_gnttab_pages *gp)
{

	if (gp == NULL)
		return;
	CHECK(xen_gnttab_end(gp->gp_refs, gp->gp_npages) == 0, "the peer still has pages mapped");
	kpi_mallocs--;
	host_free(gp->gp_va);
	host_free(gp);
}

u_int
xen_gnttab_room(u_int *all)
{

	*all = gnt_limit;
	return (gnt_used < gnt_limit ? gnt_limit - gnt_used : 0);
}

vm_paddr_t
gnt_map(grant_ref_t ref, domid_t domid, bool write)
{
	struct gnt_entry *ge = gnt_entry(ref);
	vm_paddr_t pa;

	gnt_enter();
	CHECK(ge->state == GNT_GRANTED && ge->domid == domid, "reference %u: state %d, domain %u",
	    ref, ge->state, ge->domid);
	CHECK(ge->readonly == !write, "reference %u: read-only %d, write %d", ref, ge->readonly,
	    write);
	ge->maps++;
	pa = ge->pa;
	gnt_exit();
	return (pa);
}

void
gnt_unmap(grant_ref_t ref)
{
	struct gnt_entry *ge = gnt_entry(ref);

	gnt_enter();
	CHECK(ge->maps > 0, "reference %u is not mapped", ref);
	if (--ge->maps == 0 && ge->state == GNT_DEFERRED) {
		gnt_ndeferred--;
		gnt_release(ge);
	}
	gnt_exit();
}

u_int
gnt_in_use(void)
{

	return (gnt_used);
}

u_int
gnt_deferred(void)
{

	return (gnt_ndeferred);
}
