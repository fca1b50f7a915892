/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Grant tables: which pages another domain may see.  The theory is in xen_gnttab.c.
 *
 * All of these may be called with locks held, in any context but interrupt filters, but where it says
 * that they sleep.
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

/* Give references back that grant nothing. */
void	xen_gnttab_free(const grant_ref_t *refs, u_int n);

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
 * End grants, and give the references back.  What the other side still has mapped is deferred: the
 * reference is looked at again from time to time, and not used for anything else before it is free.
 *
 * Returns how many were deferred.  Their pages must not be used for anything else, ever: the other
 * side sees them (and, unless they were granted read-only, writes to them).
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

/* End the grants and free the pages, now or when the other side lets go of all.  May sleep. */
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

/*
 * A page that another domain granted, mapped or to be.
 */
struct xen_gnttab_map {
	domid_t		 xgm_domid;	/* whose page it is */
	grant_ref_t	 xgm_ref;	/* that domain's reference */
	bool		 xgm_readonly;
	vm_paddr_t	 xgm_pa;	/* where: an address without memory, of xen_space_alloc() */
	/* Set by xen_gnttab_map(): */
	int		 xgm_error;	/* 0: it is mapped */
	uint32_t	 xgm_handle;	/* what Xen calls the mapping */
};

/*
 * Map a batch of pages.  Those that can't be mapped have their xgm_error set, and the others are mapped
 * all the same: xen_gnttab_unmap() of the whole batch does for both.  May sleep, for a page that its
 * domain has paged out.
 *
 * xgm_error  ENOENT: no such domain, or it grants no such reference; EACCES: not to us, or not for
 *            writing; EINVAL: xgm_pa; ENOSPC: Xen has no room for it; EAGAIN: the page did not come
 *            back in time; EIO
 *
 * Returns how many could not be mapped.
 */
u_int	xen_gnttab_map(struct xen_gnttab_map *maps, u_int n);

/*
 * Unmap those of a batch that are mapped (xgm_error is 0); nobody may touch them any more.
 *
 * Returns how many stay mapped, against expectation; their xgm_error stays 0, that of the others
 * becomes ENXIO.
 */
u_int	xen_gnttab_unmap(struct xen_gnttab_map *maps, u_int n);

/*
 * Have Xen copy pieces of pages, each end one of our own (u.gmfn, DOMID_SELF) or of a grant (u.ref,
 * GNTCOPY_*_gref).  A piece does not cross a page.  May sleep, as above.
 *
 * ops[].status  GNTST_okay, or why not
 *
 * Returns how many were not copied.
 */
u_int	xen_gnttab_copy(struct gnttab_copy *ops, u_int n);

/* References in use, and deferred: for tests and sysctls. */
u_int	xen_gnttab_in_use(void);
u_int	xen_gnttab_deferred(void);

#endif /* !_DEV_XEN_XEN_GNTTAB_H_ */
