/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The back end's side of grants.  A page is mapped at guest-physical addresses that have no memory;
 * unmapping leaves them so.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include <dev/xen/xen_hypercall.h>

#include "xtest_map.h"

u_int
xtest_map(struct xtest_map *maps, u_int n)
{
	struct gnttab_map_grant_ref op;
	u_int bad = 0, i;
	int error;

	for (i = 0; i < n; i++) {
		memset(&op, 0, sizeof(op));
		op.host_addr = maps[i].pa;
		op.flags = GNTMAP_host_map | (maps[i].readonly ? GNTMAP_readonly : 0);
		op.ref = maps[i].ref;
		op.dom = maps[i].domid;
		error = xen_grant_table_op(GNTTABOP_map_grant_ref, &op, 1);
		maps[i].mapped = error == 0 && op.status == GNTST_okay;
		maps[i].handle = op.handle;
		bad += maps[i].mapped ? 0 : 1;
	}
	return (bad);
}

u_int
xtest_unmap(struct xtest_map *maps, u_int n)
{
	struct gnttab_unmap_grant_ref op;
	u_int i, left = 0;

	for (i = 0; i < n; i++) {
		if (!maps[i].mapped)
			continue;
		memset(&op, 0, sizeof(op));
		op.host_addr = maps[i].pa;
		op.handle = maps[i].handle;
		if (xen_grant_table_op(GNTTABOP_unmap_grant_ref, &op, 1) == 0 &&
		    op.status == GNTST_okay)
			maps[i].mapped = false;
		else
			left++;
	}
	return (left);
}

u_int
xtest_copy(struct gnttab_copy *ops, u_int n)
{
	u_int bad = 0, i;

	for (i = 0; i < n; i++)
		ops[i].status = GNTST_general_error;
	if (xen_grant_table_op(GNTTABOP_copy, ops, n) != 0)
		return (n);
	for (i = 0; i < n; i++)
		bad += ops[i].status != GNTST_okay ? 1 : 0;
	return (bad);
}
