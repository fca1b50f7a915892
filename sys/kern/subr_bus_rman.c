/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Resource methods for a bus that keeps a struct resource_list for each child (bus_generic_rl_*),
 * or that owns regions of its own (bus_generic_rman_*).
 *
 * The first kind gives the list in its BUS_GET_RESOURCE_LIST method, the second the region in
 * BUS_GET_RMAN.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/module.h>
#include <sys/rman.h>
#include <machine/bus.h>

#include <kern/bus_tree.h>

int
bus_generic_rl_set_resource(device_t dev, device_t child, int type, int rid, rman_res_t start,
    rman_res_t count)
{
	struct resource_list *rl = BUS_GET_RESOURCE_LIST(dev, child);

	if (rl == NULL)
		return (EINVAL);
	resource_list_add(rl, type, rid, start, start + count - 1, count);
	return (0);
}

int
bus_generic_rl_get_resource(device_t dev, device_t child, int type, int rid, rman_res_t *startp,
    rman_res_t *countp)
{
	struct resource_list *rl = BUS_GET_RESOURCE_LIST(dev, child);
	struct resource_list_entry *rle;

	if (rl == NULL)
		return (EINVAL);
	rle = resource_list_find(rl, type, rid);
	if (rle == NULL)
		return (ENOENT);
	if (startp != NULL)
		*startp = rle->start;
	if (countp != NULL)
		*countp = rle->count;
	return (0);
}

void
bus_generic_rl_delete_resource(device_t dev, device_t child, int type, int rid)
{
	struct resource_list *rl = BUS_GET_RESOURCE_LIST(dev, child);

	if (rl != NULL)
		resource_list_delete(rl, type, rid);
}

struct resource *
bus_generic_rl_alloc_resource(device_t dev, device_t child, int type, int *rid, rman_res_t start,
    rman_res_t end, rman_res_t count, u_int flags)
{
	struct resource_list *rl;

	if (device_get_parent(child) != dev)
		return (BUS_ALLOC_RESOURCE(device_get_parent(dev), child, type, rid, start, end,
		    count, flags));
	rl = BUS_GET_RESOURCE_LIST(dev, child);
	if (rl == NULL)
		return (NULL);
	return (resource_list_alloc(rl, dev, child, type, rid, start, end, count, flags));
}

int
bus_generic_rl_release_resource(device_t dev, device_t child, struct resource *r)
{
	struct resource_list *rl;

	if (device_get_parent(child) != dev)
		return (BUS_RELEASE_RESOURCE(device_get_parent(dev), child, r));
	rl = BUS_GET_RESOURCE_LIST(dev, child);
	if (rl == NULL)
		return (EINVAL);
	return (resource_list_release(rl, dev, child, r));
}

struct resource *
bus_generic_rman_alloc_resource(device_t dev, device_t child, int type, int *rid,
    rman_res_t start, rman_res_t end, rman_res_t count, u_int flags)
{
	struct rman *rm = BUS_GET_RMAN(dev, type, flags);
	struct resource *r;

	if (rm == NULL)
		return (NULL);
	r = rman_reserve_resource(rm, start, end, count, flags & ~RF_ACTIVE, child);
	if (r == NULL)
		return (NULL);
	rman_set_rid(r, *rid);
	rman_set_type(r, type);
	if ((flags & RF_ACTIVE) != 0 && bus_activate_resource(child, r) != 0) {
		rman_release_resource(r);
		return (NULL);
	}
	return (r);
}

/* Is the resource from the region that the bus has for such resources? */
static bool
bus_owns_resource(device_t dev, const struct resource *r)
{
	struct rman *rm = BUS_GET_RMAN(dev, rman_get_type(r), rman_get_flags(r));

	return (rm != NULL && rman_is_region_manager(r, rm));
}

int
bus_generic_rman_adjust_resource(device_t dev, device_t child, struct resource *r,
    rman_res_t start, rman_res_t end)
{
	if (!bus_owns_resource(dev, r))
		return (EINVAL);
	return (rman_adjust_resource(r, start, end));
}

int
bus_generic_rman_release_resource(device_t dev, device_t child, struct resource *r)
{
	int error;

	if (!bus_owns_resource(dev, r))
		return (EINVAL);
	if ((rman_get_flags(r) & RF_ACTIVE) != 0) {
		error = bus_deactivate_resource(child, r);
		if (error != 0)
			return (error);
	}
	return (rman_release_resource(r));
}

/* Does activating this resource mean to map it? */
static bool
resource_is_mapped(const struct resource *r)
{
	int type = rman_get_type(r);

	return ((type == SYS_RES_MEMORY || type == SYS_RES_IOPORT) &&
	    (rman_get_flags(r) & RF_UNMAPPED) == 0);
}

int
bus_generic_rman_activate_resource(device_t dev, device_t child, struct resource *r)
{
	struct resource_map map;
	int error;

	if (!bus_owns_resource(dev, r))
		return (EINVAL);
	error = rman_activate_resource(r);
	if (error != 0 || !resource_is_mapped(r))
		return (error);
	error = BUS_MAP_RESOURCE(dev, child, r, NULL, &map);
	if (error != 0) {
		rman_deactivate_resource(r);
		return (error);
	}
	rman_set_mapping(r, &map);
	return (0);
}

int
bus_generic_rman_deactivate_resource(device_t dev, device_t child, struct resource *r)
{
	struct resource_map map;
	int error;

	if (!bus_owns_resource(dev, r))
		return (EINVAL);
	error = rman_deactivate_resource(r);
	if (error != 0 || !resource_is_mapped(r))
		return (error);
	rman_get_mapping(r, &map);
	return (BUS_UNMAP_RESOURCE(dev, child, r, &map));
}
