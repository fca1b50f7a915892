/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/* A back end's operations on granted pages: mapping them, and copying them by Xen. */

#ifndef _XTEST_MAP_H_
#define	_XTEST_MAP_H_

#include <xen/grant_table.h>

/* A page that a domain granted, mapped or to be. */
struct xtest_map {
	domid_t		 domid;		/* whose page it is */
	grant_ref_t	 ref;		/* that domain's reference */
	bool		 readonly;
	vm_paddr_t	 pa;		/* where: an address without memory, of xen_space_alloc() */
	/* Set by xtest_map(): */
	bool		 mapped;
	uint32_t	 handle;	/* Xen's name for the mapping */
};

/* Map each page of maps[n] that can be mapped.  Returns the number of those that can't. */
u_int	xtest_map(struct xtest_map *maps, u_int n);

/* Unmap those of maps[n] that are mapped.  Returns how many stay mapped. */
u_int	xtest_unmap(struct xtest_map *maps, u_int n);

/* Have Xen copy parts of pages, with results in ops[].status.  Returns how many were not copied. */
u_int	xtest_copy(struct gnttab_copy *ops, u_int n);

#endif /* !_XTEST_MAP_H_ */
