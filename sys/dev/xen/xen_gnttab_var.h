/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of grant tables share, lowest first: the table, which is
 * xen_gnttab.c, or core/core_gnttab.c for that of FreeBSD's own Xen core; and
 * xen_gnttab_end.c, which ends grants.
 */

#ifndef _DEV_XEN_XEN_GNTTAB_VAR_H_
#define	_DEV_XEN_XEN_GNTTAB_VAR_H_

#include <sys/param.h>
#include <sys/lock.h>
#include <sys/mutex.h>

#include <dev/xen/xen_gnttab.h>

/* All that follows is protected by this mutex. */
extern struct mtx xen_gnttab_mtx;

/* Numbers of references. */
extern struct xen_gnttab_counts {
	u_int		 gc_free;	/* without growing */
	u_int		 gc_used;
	u_int		 gc_deferred;
	uint64_t	 gc_total_deferred;
} xen_gnttab_counts;

/* Before the first of a batch is ended; without the mutex. */
void	xen_gnttab_invalidate(const grant_ref_t *refs, u_int n);

/* Returns false if the peer has it mapped. */
bool	xen_gnttab_end_one(grant_ref_t ref);
void	xen_gnttab_free_one(grant_ref_t ref);

/* Lists of references; they need no memory. */
#define	XEN_GNTTAB_LIST_END	UINT32_MAX
void	xen_gnttab_push(grant_ref_t *list, grant_ref_t ref);
grant_ref_t xen_gnttab_pop(grant_ref_t *list);

#endif /* !_DEV_XEN_XEN_GNTTAB_VAR_H_ */
