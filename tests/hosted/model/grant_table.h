/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A model of the grant table: xen_gnttab.h as the drivers see it, and below what a back end does with
 * what was granted.
 */

#ifndef _GRANT_TABLE_H_
#define	_GRANT_TABLE_H_

#include <sys/param.h>
#include <sys/systm.h>

#include <dev/xen/xen_gnttab.h>

/*
 * Map a page that was granted to domid; fails the test if it was not, or not for writing.
 *
 * Returns the address that was granted, its offset in the page included.
 */
vm_paddr_t gnt_map(grant_ref_t ref, domid_t domid, bool write);

/* Let go of it. */
void	gnt_unmap(grant_ref_t ref);

/* References in use (deferred ones, too), and deferred ones. */
u_int	gnt_in_use(void);
u_int	gnt_deferred(void);

/* How many references there are for the drivers. */
extern u_int gnt_limit;

/* The number of xen_gnttab_alloc() from now that fails; 0: none does. */
extern int gnt_fail_after;

#endif /* !_GRANT_TABLE_H_ */
