/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A model of Xen behind xen_hypercall.h, as far as grant tables and the domain's address space go, and
 * of the address space that nexus(4) gives.  Physical addresses are virtual ones.
 */

#ifndef _XEN_HYPER_H_
#define	_XEN_HYPER_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/xen/xen_var.h>
#include <xen/grant_table.h>

/* Versions of grant tables that Xen accepts (bits 1, 2; 0: it does not know the call), and the one. */
extern u_int xh_versions, xh_version;
/* What get_version fails with; and how often a version was set. */
extern int xh_no_version;
extern u_int xh_version_set;
/* The size of the table, and what a query fails with. */
extern u_int xh_max_frames;
extern int xh_query_error, xh_query_status;
/* The nth page from now on can't be mapped; 0: all can. */
extern int xh_fail_map;

/* Address space: there is none, or it can't be mapped; pieces that are taken, and the last one's. */
extern bool xh_no_space, xh_no_map;
extern int xh_spaces, xh_maps;
extern rman_res_t xh_start, xh_size;
extern int xh_rid;

/* Begin, or the domain is a new one: no page is mapped, and all are empty. */
void	xh_begin(void);

/* Pages of the table and of the status array that are mapped. */
u_int	xh_frames(void);
u_int	xh_status_frames(void);

/* Xen's view of an entry: of the page that it has put there.  NULL: there is no such page. */
grant_entry_v1_t *xh_v1(grant_ref_t ref);
grant_entry_v2_t *xh_v2(grant_ref_t ref);
grant_status_t *xh_status(grant_ref_t ref);

#endif /* !_XEN_HYPER_H_ */
