/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Grant tables: which pages another domain may see.  The theory is in
 * xen_gnttab.c.
 *
 * All of these may be called with locks held, in any context but interrupt
 * filters, unless they are said to sleep.
 */

#ifndef _DEV_XEN_XEN_GNTTAB_H_
#define	_DEV_XEN_XEN_GNTTAB_H_

#include <sys/types.h>
#include <sys/queue.h>

#include <dev/xen/xen_var.h>
#include <xen/grant_table.h>

/* No reference: never in use, as it is reserved. */
#define	XEN_GNTTAB_NONE	((grant_ref_t)0)

/*
 * Take n references off the free list; all or none.  They grant nothing yet.
 * The table grows by itself.
 *
 * Returns 0, or ENOSPC.
 */
int	xen_gnttab_alloc(grant_ref_t *refs, u_int n);

/*
 * Grant a page.
 *
 * ref       of xen_gnttab_alloc()
 * domid     to whom
 * pa        a physical address in the page
 * readonly  may it only be read?
 */
void	xen_gnttab_grant(grant_ref_t ref, domid_t domid, vm_paddr_t pa,
    bool readonly);

/*
 * End grants, and give the references back; those that grant nothing, too.
 * What the peer still has mapped is deferred: the reference is checked again
 * each second, and not used for anything else before it is free.
 *
 * Returns how many were deferred.  Their pages must not be used for anything
 * else, ever: the peer can read them (and, unless they were granted read-only,
 * write to them).
 */
u_int	xen_gnttab_end(const grant_ref_t *refs, u_int n);

/* How many references can be taken, and how many there can be at most. */
u_int	xen_gnttab_room(u_int *all);

/*
 * Is there room for n references that make something faster, and that it works
 * without?  The last ones are left to what does not work without.
 */
static inline bool
xen_gnttab_is_ample(u_int n)
{
	u_int all, room = xen_gnttab_room(&all);

	return (room >= n && room - n >= all / 8);
}

/* Pages of our own that are granted, as rings are: zeroed, in one piece. */
struct xen_gnttab_pages {
	SLIST_ENTRY(xen_gnttab_pages) gp_link;
	void		*gp_va;
	u_int		 gp_npages;
	u_int		 gp_nrefs;	/* that are not ended */
	grant_ref_t	 gp_refs[];
};

/*
 * Grant n pages to domid for writing, XEN_GNTTAB_MAX_PAGES at most.
 *
 * how  M_WAITOK: may sleep; M_NOWAIT
 *
 * Returns 0; ENOMEM; ENOSPC: no references.
 */
#define	XEN_GNTTAB_MAX_PAGES	16
int	xen_gnttab_pages_alloc(domid_t domid, u_int n, int how,
    struct xen_gnttab_pages **gpp);

/*
 * End the grants and free the pages, now or when the peer has unmapped all.
 * Does not allocate, as it may be called while memory is short and a disk is
 * frozen.  NULL is ignored.  May sleep.
 */
void	xen_gnttab_pages_free(struct xen_gnttab_pages *gp);

#endif /* !_DEV_XEN_XEN_GNTTAB_H_ */
