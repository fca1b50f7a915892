/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A view of all resources, for devinfo(8).
 *
 * Not FreeBSD's: devinfo(8) reads the sysctl hw.bus.rman there.
 */

#ifndef _KERN_RMAN_TREE_H_
#define	_KERN_RMAN_TREE_H_

#include <sys/rman.h>

struct rman_entry {
	const char	*re_descr;	/* the region's description */
	rman_res_t	 re_start;
	rman_res_t	 re_end;
	u_int		 re_flags;
	device_t	 re_device;
};

/*
 * A copy of every allocated resource, region by region, shared ones once for each holder.  Returns
 * the number of entries; the caller frees *list with free(9), type M_TEMP.  May sleep.
 */
int	rman_snapshot(struct rman_entry **list);

#endif /* !_KERN_RMAN_TREE_H_ */
