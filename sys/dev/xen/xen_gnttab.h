/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Grant tables: which pages another domain may see.  The theory is in xen_gnttab.c.
 *
 * All of these may be called with locks held, in any context but interrupt filters, unless they are
 * said to sleep.
 */

#ifndef _DEV_XEN_XEN_GNTTAB_H_
#define	_DEV_XEN_XEN_GNTTAB_H_

#include <sys/types.h>

#include <dev/xen/xen_var.h>
#include <xen/grant_table.h>

/* No reference: never in use, as it is reserved. */
#define	XEN_GNTTAB_NONE	((grant_ref_t)0)

/*
 * Take n references off the free list; all or none.  They grant nothing yet.  The table grows by
 * itself.
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
void	xen_gnttab_grant(grant_ref_t ref, domid_t domid, vm_paddr_t pa, bool readonly);

/*
 * End grants, and give the references back; those that grant nothing, too.  What the peer still has
 * mapped is deferred: the reference is checked again each second, and not used for anything else
 * before it is free.
 *
 * Returns how many were deferred.  Their pages must not be used for anything else, ever: the peer can
 * read them (and, unless they were granted read-only, write to them).
 */
u_int	xen_gnttab_end(const grant_ref_t *refs, u_int n);

/*
 * Pages of our own that are granted, as rings are: zeroed, in one piece, and granted to domid for
 * writing.  May sleep.
 *
 * n     how many, XEN_GNTTAB_MAX_PAGES at most
 * refs  room for n
 *
 * Returns 0; ENOMEM; ENOSPC.
 */
#define	XEN_GNTTAB_MAX_PAGES	16
int	xen_gnttab_pages_alloc(domid_t domid, u_int n, void **va, grant_ref_t *refs);

/* End the grants and free the pages, now or when the peer has unmapped all.  May sleep. */
void	xen_gnttab_pages_free(void *va, u_int n, const grant_ref_t *refs);

/* One page. */
static inline int
xen_gnttab_page_alloc(domid_t domid, void **va, grant_ref_t *ref)
{

	return (xen_gnttab_pages_alloc(domid, 1, va, ref));
}

static inline void
xen_gnttab_page_free(void *va, grant_ref_t ref)
{

	xen_gnttab_pages_free(va, 1, &ref);
}

#endif /* !_DEV_XEN_XEN_GNTTAB_H_ */
