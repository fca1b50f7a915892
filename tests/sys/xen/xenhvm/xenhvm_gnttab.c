/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenhvm: a grant table of version 1, all of which is mapped at once.
 *
 * Locking.  hg_mtx: the free list.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/mutex.h>

#include <machine/atomic.h>

#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>
#include <xen/memory.h>

#include <xen/gnttab.h>

#include "xenhvm.h"

#define	HG_PAGES	32
#define	HG_REFS		(HG_PAGES * PAGE_SIZE / sizeof(grant_entry_v1_t))
#define	HG_FIRST	8	/* those before are the toolstack's */
#define	HG_RID		1	/* the first is the shared info page's */

static struct mtx hg_mtx;
MTX_SYSINIT(xenhvm_gnttab, &hg_mtx, "xenhvm gnttab", MTX_DEF);

static struct xen_space hg_space;
static volatile grant_entry_v1_t *hg_table;
static grant_ref_t hg_link[HG_REFS];
static grant_ref_t hg_free = GNTTAB_LIST_END;
static u_int hg_nfree;

int
HYPERVISOR_grant_table_op(unsigned int cmd, void *args, unsigned int count)
{

	return (-xen_grant_table_op(cmd, args, count));
}

int
gnttab_claim_grant_reference(grant_ref_t *head)
{
	grant_ref_t ref = *head;

	if (ref != GNTTAB_LIST_END)
		*head = hg_link[ref];
	return (ref);
}

void
gnttab_release_grant_reference(grant_ref_t *head, grant_ref_t ref)
{

	hg_link[ref] = *head;
	*head = ref;
}

int
gnttab_alloc_grant_references(uint16_t count, grant_ref_t *head)
{

	*head = GNTTAB_LIST_END;
	mtx_lock(&hg_mtx);
	if (hg_nfree < count || hvm_fails(HVM_FAIL_GRANT)) {
		mtx_unlock(&hg_mtx);
		return (ENOSPC);
	}
	for (hg_nfree -= count; count > 0; count--)
		gnttab_release_grant_reference(head, gnttab_claim_grant_reference(&hg_free));
	mtx_unlock(&hg_mtx);
	return (0);
}

void
gnttab_free_grant_references(grant_ref_t head)
{
	grant_ref_t ref;

	mtx_lock(&hg_mtx);
	while ((ref = gnttab_claim_grant_reference(&head)) != GNTTAB_LIST_END) {
		gnttab_release_grant_reference(&hg_free, ref);
		hg_nfree++;
	}
	mtx_unlock(&hg_mtx);
}

void
gnttab_grant_foreign_access_ref(grant_ref_t ref, domid_t domid, unsigned long frame, int flags)
{

	hg_table[ref].frame = frame;
	hg_table[ref].domid = domid;
	atomic_thread_fence_rel();
	hg_table[ref].flags = GTF_permit_access | (flags != 0 ? GTF_readonly : 0);
}

int
gnttab_query_foreign_access(grant_ref_t ref)
{

	return (hg_table[ref].flags & (GTF_reading | GTF_writing));
}

int
gnttab_end_foreign_access_ref(grant_ref_t ref)
{
	volatile uint16_t *entry = &hg_table[ref].flags;
	uint16_t flags;

	do {
		flags = *entry;
		if ((flags & (GTF_reading | GTF_writing)) != 0) {
			printf("%s: WARNING: g.e. still in use!\n", __func__);
			return (0);
		}
	} while (atomic_cmpset_short(entry, flags, 0) == 0);
	return (1);
}

int
hvm_gnttab_map(void)
{
	struct gnttab_set_version version = { .version = 1 };
	struct xen_add_to_physmap map = {
		.domid = DOMID_SELF,
		.space = XENMAPSPACE_grant_table,
	};
	u_int i;
	int error = 0;

	(void)xen_grant_table_op(GNTTABOP_set_version, &version, 1);
	for (i = HG_PAGES; error == 0 && i-- > 0;) {
		map.idx = i;
		map.gpfn = atop(hg_space.xs_paddr) + i;
		error = xen_memory_op(XENMEM_add_to_physmap, &map);
	}
	return (error);
}

int
hvm_gnttab_init(device_t dev)
{
	u_int i;
	int error;

	error = xen_space_alloc(dev, HG_RID, ptoa(HG_PAGES), &hg_space);
	if (error == 0)
		error = hvm_gnttab_map();
	if (error != 0)
		return (error);
	hg_table = (volatile grant_entry_v1_t *)hg_space.xs_vaddr;
	for (i = HG_FIRST; i < HG_REFS; i++, hg_nfree++)
		gnttab_release_grant_reference(&hg_free, i);
	return (0);
}
