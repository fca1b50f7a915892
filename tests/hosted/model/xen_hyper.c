/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A model of Xen, for grant tables (xen_hyper.h).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/rman.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <dev/xen/xen_hypercall.h>
#include <xen/memory.h>

#include "../host/host.h"
#include "../kpi/kpi.h"
#include "xen_hyper.h"

#define	XH_FRAMES	1100

u_int xh_versions, xh_version, xh_version_set, xh_max_frames;
int xh_no_version, xh_query_error, xh_query_status, xh_fail_map;
bool xh_no_space, xh_no_map;
int xh_spaces, xh_maps, xh_rid;
rman_res_t xh_start, xh_size;

/* Where each page is in the domain's memory; 0: nowhere. */
static xen_pfn_t xh_table[XH_FRAMES], xh_status_table[XH_FRAMES];
static char *xh_memory;
static u_int xh_status_at;	/* pages before it */
static char xh_resource;

void
xh_begin(void)
{

	memset(xh_table, 0, sizeof(xh_table));
	memset(xh_status_table, 0, sizeof(xh_status_table));
	if (xh_memory != NULL)
		memset(xh_memory, 0, xh_size);
}

static u_int
xh_count(const xen_pfn_t *table)
{
	u_int i, n = 0;

	for (i = 0; i < XH_FRAMES; i++)
		n += table[i] != 0;
	return (n);
}

u_int
xh_frames(void)
{

	return (xh_count(xh_table));
}

u_int
xh_status_frames(void)
{

	return (xh_count(xh_status_table));
}

static void *
xh_entry(const xen_pfn_t *table, grant_ref_t ref, size_t size)
{
	u_int per_page = PAGE_SIZE / size;

	if (ref / per_page >= XH_FRAMES || table[ref / per_page] == 0)
		return (NULL);
	return ((char *)ptoa(table[ref / per_page]) + ref % per_page * size);
}

grant_entry_v1_t *
xh_v1(grant_ref_t ref)
{

	return (xh_entry(xh_table, ref, sizeof(grant_entry_v1_t)));
}

grant_entry_v2_t *
xh_v2(grant_ref_t ref)
{

	return (xh_entry(xh_table, ref, sizeof(grant_entry_v2_t)));
}

grant_status_t *
xh_status(grant_ref_t ref)
{

	return (xh_entry(xh_status_table, ref, sizeof(grant_status_t)));
}

int
xen_grant_table_op(u_int cmd, void *args, u_int count)
{
	struct gnttab_set_version *set = args;
	struct gnttab_get_version *get = args;
	struct gnttab_query_size *query = args;

	CHECK(count == 1, "%u arguments", count);
	switch (cmd) {
	case GNTTABOP_set_version:
		xh_version_set++;
		if (xh_versions == 0 || (xh_versions & 1U << set->version) == 0)
			return (xh_versions == 0 ? ENOSYS : EINVAL);
		xh_version = set->version;
		return (0);
	case GNTTABOP_get_version:
		CHECK(get->dom == DOMID_SELF, "domain %u", get->dom);
		get->version = xh_version;
		return (xh_no_version);
	case GNTTABOP_query_size:
		CHECK(query->dom == DOMID_SELF, "domain %u", query->dom);
		query->status = xh_query_status;
		query->max_nr_frames = xh_max_frames;
		return (xh_query_error);
	default:
		CHECK(false, "operation %u", cmd);
		return (ENOSYS);
	}
}

static int
xh_add(const struct xen_add_to_physmap *map)
{
	bool status = (map->idx & XENMAPIDX_grant_table_status) != 0;
	xen_pfn_t *table = status ? xh_status_table : xh_table;
	u_long idx = map->idx & ~(u_long)XENMAPIDX_grant_table_status;

	CHECK(map->domid == DOMID_SELF, "domain %u", map->domid);
	CHECK(map->space == XENMAPSPACE_grant_table, "space %u", map->space);
	CHECK(!status || xh_version == 2, "the status of version %u", xh_version);
	CHECK(status || idx < xh_max_frames, "frame %lu of %u", idx, xh_max_frames);
	CHECK(ptoa(map->gpfn) >= xh_start && ptoa(map->gpfn) < xh_start + xh_size, "at %#lx",
	    (u_long)ptoa(map->gpfn));
	if (xh_fail_map > 0 && --xh_fail_map == 0)
		return (ENOMEM);
	CHECK(idx < XH_FRAMES && table[idx] == 0, "page %lu is somewhere", idx);
	/* The status array is behind the table. */
	CHECK(map->gpfn == atop(xh_start) + idx + (status ? xh_status_at : 0), "page %lu", idx);
	table[idx] = map->gpfn;
	return (0);
}

int
xen_memory_op(u_int cmd, void *arg)
{
	const struct xen_remove_from_physmap *map = arg;
	u_int i;

	if (cmd == XENMEM_add_to_physmap)
		return (xh_add(arg));
	CHECK(cmd == XENMEM_remove_from_physmap && map->domid == DOMID_SELF, "operation %u", cmd);
	for (i = 0; i < XH_FRAMES; i++) {
		if (xh_table[i] == map->gpfn) {
			xh_table[i] = 0;
			return (0);
		}
		if (xh_status_table[i] == map->gpfn) {
			xh_status_table[i] = 0;
			return (0);
		}
	}
	CHECK(false, "no page at %#lx", (u_long)map->gpfn);
	return (EINVAL);
}

struct resource *
bus_alloc_resource(device_t dev, int type, int *rid, rman_res_t start, rman_res_t end, rman_res_t count,
    u_int flags)
{

	CHECK(dev != NULL && type == SYS_RES_MEMORY && flags == 0, "type %d", type);
	CHECK(end == ~(rman_res_t)0, "end 0x%jx", (uintmax_t)end);
	CHECK(count % PAGE_SIZE == 0 && start >= (rman_res_t)1 << 32 && xh_spaces == 0, "%ju bytes",
	    (uintmax_t)count);
	if (xh_no_space)
		return (NULL);
	xh_memory = host_alloc(count, PAGE_SIZE);
	memset(xh_memory, 0, count);
	CHECK((uintptr_t)xh_memory >= start || start > (rman_res_t)1 << 32, "below");
	xh_rid = *rid;
	xh_start = (uintptr_t)xh_memory;
	xh_size = count;
	xh_status_at = xh_max_frames;
	xh_spaces++;
	return ((struct resource *)&xh_resource);
}

int
bus_release_resource_old(device_t dev __unused, int type, int rid, struct resource *r)
{

	CHECK(type == SYS_RES_MEMORY && rid == xh_rid, "type %d, rid %d", type, rid);
	CHECK(r == (struct resource *)&xh_resource && xh_spaces == 1 && xh_maps == 0, "another");
	CHECK(xh_frames() == 0 && xh_status_frames() == 0, "Xen has pages there");
	xh_spaces--;
	host_free(xh_memory);
	xh_memory = NULL;
	xh_size = 0;
	return (0);
}

rman_res_t
rman_get_start(const struct resource *r)
{

	CHECK(r == (const struct resource *)&xh_resource, "another");
	return (xh_start);
}

void *
pmap_mapdev_attr(vm_paddr_t pa, vm_size_t size, int attr)
{

	CHECK(pa == xh_start && size == xh_size && attr == VM_MEMATTR_WRITE_BACK, "attribute %d", attr);
	if (xh_no_map)
		return (NULL);
	xh_maps++;
	return (xh_memory);
}

void
pmap_unmapdev(void *va, vm_size_t size)
{

	CHECK(va == xh_memory && size == xh_size && xh_maps == 1, "another");
	xh_maps--;
}
