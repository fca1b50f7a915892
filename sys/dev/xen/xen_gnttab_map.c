/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Pages that other domains grant to this one: mapping them, and having Xen copy them
 * (grant_table.h).  The other direction is xen_gnttab.c.
 *
 * A hypercall takes any number of operations and gives each a status; some go wrong by themselves,
 * and the rest is done.  One status is no end: GNTST_eagain, where the page's owner has it paged out
 * and Xen has asked for it.  Those are asked for again, each alone, a bounded number of times.
 *
 * A page is mapped into guest-physical addresses that have no memory.  Unmapping leaves them so.
 *
 * Locking.  None: operations are their caller's, and Xen's own locks do for the table.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>

#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>

#define	GNTTAB_BATCH	32	/* operations in a hypercall: as many as the stack has room for */
#define	GNTTAB_TRIES	50	/* for a page that was paged out */

static const struct {
	int16_t	status;
	int	error;
} gnttab_errors[] = {
	{ GNTST_okay, 0 },
	{ GNTST_bad_domain, ENOENT },
	{ GNTST_bad_gntref, ENOENT },
	{ GNTST_permission_denied, EACCES },
	{ GNTST_bad_virt_addr, EINVAL },
	{ GNTST_bad_dev_addr, EINVAL },
	{ GNTST_address_too_big, EINVAL },
	{ GNTST_no_device_space, ENOSPC },
	{ GNTST_no_space, ENOSPC },
	{ GNTST_eagain, EAGAIN },
};

static int
gnttab_errno(int16_t status)
{
	u_int i;

	for (i = 0; i < nitems(gnttab_errors); i++) {
		if (gnttab_errors[i].status == status)
			return (gnttab_errors[i].error);
	}
	return (EIO);
}

/* Ask again for one operation, whose status says that its page is on its way. */
static void
gnttab_again(u_int cmd, void *op, volatile int16_t *status)
{
	u_int tries;

	for (tries = 0; *status == GNTST_eagain && tries < GNTTAB_TRIES; tries++) {
		pause("xengnt", MAX(hz / 50, 1));
		if (xen_grant_table_op(cmd, op, 1) != 0)
			*status = GNTST_general_error;
	}
}

static u_int
gnttab_map_batch(struct xen_gnttab_map *maps, u_int n)
{
	struct gnttab_map_grant_ref ops[GNTTAB_BATCH];
	u_int bad, i;
	int error;

	for (i = 0; i < n; i++) {
		memset(&ops[i], 0, sizeof(ops[i]));
		ops[i].host_addr = maps[i].xgm_pa;
		ops[i].flags = GNTMAP_host_map | (maps[i].xgm_readonly ? GNTMAP_readonly : 0);
		ops[i].ref = maps[i].xgm_ref;
		ops[i].dom = maps[i].xgm_domid;
		ops[i].status = GNTST_general_error;
	}
	error = xen_grant_table_op(GNTTABOP_map_grant_ref, ops, n);
	bad = 0;
	for (i = 0; i < n; i++) {
		if (error == 0)
			gnttab_again(GNTTABOP_map_grant_ref, &ops[i], &ops[i].status);
		maps[i].xgm_handle = ops[i].handle;
		maps[i].xgm_error = gnttab_errno(ops[i].status);
		bad += maps[i].xgm_error != 0 ? 1 : 0;
	}
	return (bad);
}

u_int
xen_gnttab_map(struct xen_gnttab_map *maps, u_int n)
{
	u_int bad, i;

	bad = 0;
	for (i = 0; i < n; i += GNTTAB_BATCH)
		bad += gnttab_map_batch(maps + i, MIN(n - i, GNTTAB_BATCH));
	return (bad);
}

static u_int
gnttab_unmap_batch(struct xen_gnttab_map *maps, u_int n)
{
	struct gnttab_unmap_grant_ref ops[GNTTAB_BATCH];
	struct xen_gnttab_map *mapped[GNTTAB_BATCH];
	u_int i, left, nops;
	int error;

	nops = 0;
	for (i = 0; i < n; i++) {
		if (maps[i].xgm_error != 0)
			continue;
		memset(&ops[nops], 0, sizeof(ops[nops]));
		ops[nops].host_addr = maps[i].xgm_pa;
		ops[nops].handle = maps[i].xgm_handle;
		ops[nops].status = GNTST_general_error;
		mapped[nops++] = &maps[i];
	}
	if (nops == 0)
		return (0);
	error = xen_grant_table_op(GNTTABOP_unmap_grant_ref, ops, nops);
	left = 0;
	for (i = 0; i < nops; i++) {
		if (error == 0 && ops[i].status == GNTST_okay)
			mapped[i]->xgm_error = ENXIO;
		else
			left++;
	}
	return (left);
}

u_int
xen_gnttab_unmap(struct xen_gnttab_map *maps, u_int n)
{
	u_int i, left;

	left = 0;
	for (i = 0; i < n; i += GNTTAB_BATCH)
		left += gnttab_unmap_batch(maps + i, MIN(n - i, GNTTAB_BATCH));
	return (left);
}

u_int
xen_gnttab_copy(struct gnttab_copy *ops, u_int n)
{
	u_int bad, i;
	int error;

	for (i = 0; i < n; i++)
		ops[i].status = GNTST_general_error;
	error = xen_grant_table_op(GNTTABOP_copy, ops, n);
	bad = 0;
	for (i = 0; i < n; i++) {
		if (error == 0)
			gnttab_again(GNTTABOP_copy, &ops[i], &ops[i].status);
		bad += ops[i].status != GNTST_okay ? 1 : 0;
	}
	return (bad);
}
