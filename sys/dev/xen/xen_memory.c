/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Memory that is shared with Xen: pages of the domain's that Xen reads and
 * writes, and address space without memory for pages of Xen's own; and what all
 * parts of the module need to know about what was shared.
 *
 * Locking.  None: xen_pinned is only ever set, xen_life counts while one CPU
 * runs.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/rman.h>
#include <sys/sysctl.h>

#include <vm/vm.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

#include <machine/bus.h>
#include <machine/md_var.h>
#include <machine/resource.h>

#include <dev/xen/xen_var.h>

MALLOC_DEFINE(M_XEN, "xen", "Xen");

bool xen_pinned;
volatile u_int xen_life;

void *
xen_page_alloc(void)
{

	return (contigmalloc(PAGE_SIZE, M_XEN, M_WAITOK | M_ZERO, 0,
	    ~(vm_paddr_t)0, PAGE_SIZE, 0));
}

void
xen_page_free(void *page)
{

	contigfree(page, PAGE_SIZE, M_XEN);
}

/*
 * Above all memory and above 4 GB, and as near to it as there is room: when a
 * domain is saved or migrates, the toolstack goes through all frames up to the
 * highest that was ever used, and writes some bytes of each.
 */
int
xen_space_alloc(device_t dev, int rid, size_t size, struct xen_space *space)
{
	rman_res_t start;

	size = round_page(size);
	start = MAX((rman_res_t)1 << 32, ptoa((rman_res_t)Maxmem));
	space->xs_rid = rid;
	space->xs_res = bus_alloc_resource(dev, SYS_RES_MEMORY, &space->xs_rid,
	    start, ~(rman_res_t)0, size, 0);
	if (space->xs_res == NULL)
		return (ENOMEM);
	space->xs_paddr = rman_get_start(space->xs_res);
	space->xs_size = size;
	space->xs_vaddr = pmap_mapdev_attr(space->xs_paddr, size,
	    VM_MEMATTR_WRITE_BACK);
	if (space->xs_vaddr == NULL) {
		xen_space_free(dev, space);
		return (ENOMEM);
	}
	return (0);
}

void
xen_space_free(device_t dev, struct xen_space *space)
{

	if (space->xs_vaddr != NULL)
		pmap_unmapdev(space->xs_vaddr, space->xs_size);
	if (space->xs_res != NULL)
		(void)bus_release_resource(dev, SYS_RES_MEMORY, space->xs_rid,
		    space->xs_res);
	memset(space, 0, sizeof(*space));
}
