/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Grant table: references are allocated once, a grant in use stays allocated, and nothing leaks.
 * This domain grants to itself, and maps what it granted.
 *
 * A page of its own that a domain maps at another address disappears from where it was: Xen has one
 * address for each page of a domain.  So such a page gets other memory in the old place at once, and
 * what was granted is seen through its mapping only.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/proc.h>
#include <sys/rman.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/bus.h>
#include <machine/md_var.h>
#include <machine/resource.h>

#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xenstore.h>
#include <xen/memory.h>

#include "xtest.h"
#include "xtest_map.h"

#define	SPACE_RID	100
#define	SPACE_NEAR	((vm_paddr_t)1 << 30)
#define	PAGES		40
#define	ROUNDS		300

/* The ID of this domain. */
static domid_t
self(void)
{
	domid_t id = DOMID_INVALID;
	char *value;

	if (KT_EQ(xenstore_read(NULL, "domid", NULL, &value, NULL), 0)) {
		id = strtoul(value, NULL, 10);
		xenstore_free(value);
	}
	return (id);
}

/* Map, and put other memory, zeroed, where the pages were.  Returns how many could not be mapped. */
static u_int
map_own(struct xtest_map *maps, u_int n, char *pages)
{
	struct xen_memory_reservation fresh;
	xen_pfn_t gfn;
	u_int bad, i;

	bad = xtest_map(maps, n);
	for (i = 0; i < n; i++) {
		if (!maps[i].mapped)
			continue;
		gfn = atop(vtophys(pages + ptoa(i)));
		memset(&fresh, 0, sizeof(fresh));
		set_xen_guest_handle(fresh.extent_start, &gfn);
		fresh.nr_extents = 1;
		fresh.domid = DOMID_SELF;
		KT_EQ(xen_memory_op(XENMEM_populate_physmap, &fresh), 0);
		memset(pages + ptoa(i), 0, PAGE_SIZE);
	}
	return (bad);
}

/* What a grant's page holds, by a copy of it. */
static bool
holds(grant_ref_t ref, uint32_t seed)
{
	struct gnttab_copy op = {
		.source = { .u.ref = ref, .domid = self() },
		.dest = { .domid = DOMID_SELF },
		.len = PAGE_SIZE,
		.flags = GNTCOPY_source_gref,
	};
	char *page = contigmalloc(PAGE_SIZE, M_KTEST, M_WAITOK, 0, ~(vm_paddr_t)0, PAGE_SIZE, 0);
	bool same;

	op.dest.u.gmfn = atop(vtophys(page));
	same = KT_EQ(xtest_copy(&op, 1), 0) && ktest_filled(page, PAGE_SIZE, seed);
	contigfree(page, PAGE_SIZE, M_KTEST);
	return (same);
}

/* Each reference of refs is none of those reserved, and there once. */
static void
all_different(const grant_ref_t *refs, u_int n)
{
	u_int i, max = 0;
	char *seen;

	for (i = 0; i < n; i++)
		max = MAX(max, refs[i]);
	seen = malloc(max + 1, M_KTEST, M_WAITOK | M_ZERO);
	for (i = 0; i < n; i++) {
		if (!KT_TRUE(refs[i] >= GNTTAB_NR_RESERVED_ENTRIES) || !KT_EQ(seen[refs[i]], 0))
			break;
		seen[refs[i]] = 1;
	}
	free(seen, M_KTEST);
}

static void
grows_to_its_end(void)
{
	grant_ref_t *refs;
	u_int in_use, max, n, pages, total;

	in_use = xtest_number("gnttab.in_use");
	pages = xtest_number("gnttab.pages");
	max = xtest_number("gnttab.max_pages");
	total = max * PAGE_SIZE / (xtest_number("gnttab.version") == 1 ?
	    sizeof(grant_entry_v1_t) : sizeof(grant_entry_v2_t)) - GNTTAB_NR_RESERVED_ENTRIES;
	refs = malloc(total * sizeof(*refs), M_KTEST, M_WAITOK);
	for (n = 0; n + 7 <= total && xen_gnttab_alloc(refs + n, 7) == 0; n += 7)
		continue;
	while (n < total && xen_gnttab_alloc(refs + n, 1) == 0)
		n++;
	KT_EQ(n + in_use, total);
	KT_LESS(pages, max);
	KT_EQ(xtest_number("gnttab.pages"), max);
	all_different(refs, n);
	/* All or nothing. */
	n--;
	KT_EQ(xen_gnttab_end(&refs[n], 1), 0);
	KT_EQ(xen_gnttab_alloc(refs + n, 2), ENOSPC);
	KT_EQ(xtest_number("gnttab.in_use"), in_use + n);
	KT_EQ(xtest_number("gnttab.free"), 1);
	KT_EQ(xen_gnttab_end(refs, n), 0);
	KT_EQ(xtest_number("gnttab.in_use"), in_use);
	KT_EQ(xtest_number("gnttab.free"), total - in_use);
	free(refs, M_KTEST);
}

/* Pages that are granted to this domain, and addresses to map them at. */
struct granted {
	char		*pages;
	grant_ref_t	 refs[PAGES];
	struct xtest_map maps[PAGES];
	struct xen_space space;
	u_int		 in_use;	/* references, before */
};

static bool
granted_open(struct granted *g, bool readonly)
{
	u_int i;

	memset(g, 0, sizeof(*g));
	g->in_use = xtest_number("gnttab.in_use");
	g->pages = contigmalloc(ptoa(PAGES), M_KTEST, M_WAITOK | M_ZERO, 0, ~(vm_paddr_t)0,
	    PAGE_SIZE, 0);
	if (!KT_EQ(xen_space_alloc(xtest_root(), SPACE_RID, ptoa(PAGES), &g->space), 0))
		return (false);
	if (!KT_EQ(xen_gnttab_alloc(g->refs, PAGES), 0))
		return (false);
	for (i = 0; i < PAGES; i++) {
		ktest_fill(g->pages + ptoa(i), PAGE_SIZE, i);
		xen_gnttab_grant(g->refs[i], self(), vtophys(g->pages + ptoa(i)), readonly);
		g->maps[i] = (struct xtest_map){
			.domid = self(),
			.ref = g->refs[i],
			.readonly = readonly,
			.pa = g->space.xs_paddr + ptoa(i),
		};
	}
	return (true);
}

static void
granted_close(struct granted *g)
{

	xen_space_free(xtest_root(), &g->space);
	contigfree(g->pages, ptoa(PAGES), M_KTEST);
	KT_EQ(xtest_number("gnttab.in_use"), g->in_use);
	KT_EQ(xtest_number("gnttab.deferred"), 0);
}

static void
maps_a_batch(void)
{
	struct granted *g = malloc(sizeof(*g), M_KTEST, M_WAITOK);
	u_int i;

	if (granted_open(g, false)) {
		/* One of them is not granted: the others are mapped. */
		g->maps[PAGES / 2].ref = 1;
		KT_EQ(map_own(g->maps, PAGES, g->pages), 1);
		for (i = 0; i < PAGES; i++) {
			if (i == PAGES / 2) {
				KT_TRUE(!g->maps[i].mapped);
				continue;
			}
			if (!KT_TRUE(g->maps[i].mapped))
				continue;
			KT_TRUE(ktest_filled(g->space.xs_vaddr + ptoa(i), PAGE_SIZE, i));
			ktest_fill(g->space.xs_vaddr + ptoa(i), PAGE_SIZE, i + 1000);
			KT_TRUE(holds(g->refs[i], i + 1000));
		}
		KT_EQ(xtest_unmap(g->maps, PAGES), 0);
		KT_EQ(xtest_unmap(g->maps, PAGES), 0);
		KT_EQ(xen_gnttab_end(g->refs, PAGES), 0);
		/* What was ended can't be mapped. */
		KT_EQ(xtest_map(g->maps, PAGES), PAGES);
		granted_close(g);
	}
	free(g, M_KTEST);
}

static void
readonly_is_not_for_writing(void)
{
	struct granted *g = malloc(sizeof(*g), M_KTEST, M_WAITOK);

	if (granted_open(g, true)) {
		g->maps[0].readonly = false;
		KT_EQ(map_own(g->maps, 2, g->pages), 1);
		KT_TRUE(!g->maps[0].mapped);
		KT_TRUE(ktest_filled(g->space.xs_vaddr + PAGE_SIZE, PAGE_SIZE, 1));
		KT_EQ(xtest_unmap(g->maps, 2), 0);
		KT_EQ(xen_gnttab_end(g->refs, PAGES), 0);
		granted_close(g);
	}
	free(g, M_KTEST);
}

static void
copies_a_batch(void)
{
	struct granted *g = malloc(sizeof(*g), M_KTEST, M_WAITOK);
	struct gnttab_copy *ops;
	char *to;
	u_int i;

	ops = malloc(PAGES * sizeof(*ops), M_KTEST, M_WAITOK | M_ZERO);
	to = contigmalloc(ptoa(PAGES), M_KTEST, M_WAITOK | M_ZERO, 0, ~(vm_paddr_t)0, PAGE_SIZE, 0);
	if (granted_open(g, true)) {
		for (i = 0; i < PAGES; i++) {
			ops[i].source.u.ref = i == 3 ? 1 : g->refs[i];
			ops[i].source.domid = self();
			ops[i].source.offset = 100;
			ops[i].dest.u.gmfn = atop(vtophys(to + ptoa(i)));
			ops[i].dest.domid = DOMID_SELF;
			ops[i].dest.offset = 200;
			ops[i].len = 1000;
			ops[i].flags = GNTCOPY_source_gref;
		}
		KT_EQ(xtest_copy(ops, PAGES), 1);
		for (i = 0; i < PAGES; i++) {
			KT_EQ(ops[i].status == GNTST_okay, i != 3);
			KT_EQ(memcmp(to + ptoa(i) + 200, g->pages + ptoa(i) + 100, 1000) == 0,
			    i != 3);
			KT_EQ(to[ptoa(i) + 199] | to[ptoa(i) + 1200], 0);
		}
		/* A piece that crosses a page; and writing to what is granted for reading. */
		ops[0].source.offset = PAGE_SIZE - 10;
		KT_EQ(xtest_copy(ops, 1), 1);
		ops[0].source.u.gmfn = atop(vtophys(to));
		ops[0].source.domid = DOMID_SELF;
		ops[0].source.offset = 0;
		ops[0].dest.u.ref = g->refs[0];
		ops[0].dest.domid = self();
		ops[0].flags = GNTCOPY_dest_gref;
		KT_EQ(xtest_copy(ops, 1), 1);
		KT_TRUE(ktest_filled(g->pages, PAGE_SIZE, 0));
		KT_EQ(xen_gnttab_end(g->refs, PAGES), 0);
		granted_close(g);
	}
	contigfree(to, ptoa(PAGES), M_KTEST);
	free(ops, M_KTEST);
	free(g, M_KTEST);
}

/* Is a reference among all that can be allocated now? */
static bool
is_given_out(grant_ref_t ref)
{
	grant_ref_t *refs;
	u_int i, n = xtest_number("gnttab.free");
	bool found = false;

	refs = malloc(n * sizeof(*refs), M_KTEST, M_WAITOK);
	if (KT_EQ(xen_gnttab_alloc(refs, n), 0)) {
		for (i = 0; i < n; i++)
			found = found || refs[i] == ref;
		KT_EQ(xen_gnttab_end(refs, n), 0);
	}
	free(refs, M_KTEST);
	return (found);
}

static void
held_is_deferred(void)
{
	struct granted *g = malloc(sizeof(*g), M_KTEST, M_WAITOK);
	u_int total = xtest_number("gnttab.total_deferred");

	if (granted_open(g, false)) {
		KT_EQ(map_own(&g->maps[5], 1, g->pages + ptoa(5)), 0);
		KT_EQ(xen_gnttab_end(g->refs, PAGES), 1);
		KT_EQ(xtest_number("gnttab.deferred"), 1);
		KT_EQ(xtest_number("gnttab.total_deferred"), total + 1);
		KT_EQ(xtest_number("gnttab.in_use"), g->in_use);
		KT_TRUE(!is_given_out(g->refs[5]));
		/* It is looked at, and still held. */
		pause("xthold", 5 * hz / 2);
		KT_EQ(xtest_number("gnttab.deferred"), 1);
		KT_TRUE(!is_given_out(g->refs[5]));
		KT_TRUE(ktest_filled(g->space.xs_vaddr + ptoa(5), PAGE_SIZE, 5));
		KT_EQ(xtest_unmap(&g->maps[5], 1), 0);
		KT_WAIT(xtest_number("gnttab.deferred") == 0);
		KT_TRUE(is_given_out(g->refs[5]));
		granted_close(g);
	}
	free(g, M_KTEST);
}

/* A ring that its owner frees while the back end has it mapped is not reused. */
static void
held_pages_are_not_reused(void)
{
	struct xtest_map map = { .domid = self() };
	struct xen_space space;
	struct xen_gnttab_pages *gp;
	void *others[32], *va;
	u_int i, in_use = xtest_number("gnttab.in_use");

	if (!KT_EQ(xen_space_alloc(xtest_root(), SPACE_RID, PAGE_SIZE, &space), 0))
		return;
	if (!KT_EQ(xen_gnttab_pages_alloc(self(), 4, M_WAITOK, &gp), 0))
		return;
	va = gp->gp_va;
	ktest_fill((char *)va + PAGE_SIZE, PAGE_SIZE, 7);
	map.ref = gp->gp_refs[1];
	map.pa = space.xs_paddr;
	KT_EQ(map_own(&map, 1, (char *)va + PAGE_SIZE), 0);
	xen_gnttab_pages_free(gp);
	KT_EQ(xtest_number("gnttab.in_use"), in_use);
	KT_EQ(xtest_number("gnttab.deferred"), 1);
	for (i = 0; i < nitems(others); i++) {
		others[i] = contigmalloc(ptoa(4), M_KTEST, M_WAITOK, 0, ~(vm_paddr_t)0, PAGE_SIZE, 0);
		KT_TRUE(others[i] != va);
		memset(others[i], 0xee, ptoa(4));
	}
	KT_TRUE(ktest_filled(space.xs_vaddr, PAGE_SIZE, 7));
	for (i = 0; i < nitems(others); i++)
		contigfree(others[i], ptoa(4), M_KTEST);
	KT_EQ(xtest_unmap(&map, 1), 0);
	KT_WAIT(xtest_number("gnttab.deferred") == 0);
	xen_space_free(xtest_root(), &space);
}

static void
race(void *arg, int me)
{
	char *page = arg;
	grant_ref_t refs[5];
	u_int i;

	for (i = 0; i < (u_int)(ROUNDS * ktest_rounds); i++) {
		if (!KT_EQ(xen_gnttab_alloc(refs, nitems(refs)), 0))
			return;
		all_different(refs, nitems(refs));
		xen_gnttab_grant(refs[me], 0, vtophys(page), true);
		KT_EQ(xen_gnttab_end(refs, me), 0);
		KT_EQ(xen_gnttab_end(refs + me, nitems(refs) - me), 0);
	}
}

static void
none_leaks_in_a_race(void)
{
	u_int before = xtest_number("gnttab.in_use"), avail = xtest_number("gnttab.free");
	u_int deferred = xtest_number("gnttab.deferred");
	void *page = malloc(PAGE_SIZE, M_KTEST, M_WAITOK);

	ktest_run(4, true, race, page);
	KT_EQ(xtest_number("gnttab.in_use"), before);
	KT_TRUE(xtest_number("gnttab.free") >= avail);
	KT_EQ(xtest_number("gnttab.deferred"), deferred);
	free(page, M_KTEST);
}

/* The toolstack goes through all frames below it when the domain is saved. */
static void
space_is_near_memory(void)
{
	vm_paddr_t least = MAX((vm_paddr_t)1 << 32, ptoa((vm_paddr_t)Maxmem));
	struct xen_space space;

	if (!KT_EQ(xen_space_alloc(xtest_root(), SPACE_RID, ptoa(PAGES), &space), 0))
		return;
	KT_TRUE(space.xs_paddr >= least);
	KT_TRUE(space.xs_paddr < least + SPACE_NEAR);
	xen_space_free(xtest_root(), &space);
}

/* A register of a device that is placed later, as one of PCI's that has 64 bits, is never there. */
static void
space_is_no_device_s(void)
{
	struct xen_space space;
	struct resource *res;
	int rid = SPACE_RID + 1;

	if (!KT_EQ(xen_space_alloc(xtest_root(), SPACE_RID, ptoa(PAGES), &space), 0))
		return;
	res = bus_alloc_resource(xtest_root(), SYS_RES_MEMORY, &rid, space.xs_paddr,
	    space.xs_paddr + space.xs_size - 1, space.xs_size, 0);
	KT_TRUE(res == NULL);
	if (res != NULL)
		(void)bus_release_resource(xtest_root(), SYS_RES_MEMORY, rid, res);
	res = bus_alloc_resource(xtest_root(), SYS_RES_MEMORY, &rid, space.xs_paddr,
	    ~(rman_res_t)0, space.xs_size, 0);
	if (KT_TRUE(res != NULL)) {
		KT_TRUE(rman_get_start(res) >= space.xs_paddr + space.xs_size);
		(void)bus_release_resource(xtest_root(), SYS_RES_MEMORY, rid, res);
	}
	xen_space_free(xtest_root(), &space);
}

const struct ktest_case xtest_gnttab_cases[] = {
	{ "gnttab.space_is_near_memory", space_is_near_memory },
	{ "gnttab.space_is_no_device_s", space_is_no_device_s },
	{ "gnttab.maps_a_batch", maps_a_batch },
	{ "gnttab.readonly_is_not_for_writing", readonly_is_not_for_writing },
	{ "gnttab.copies_a_batch", copies_a_batch },
	{ "gnttab.held_is_deferred", held_is_deferred },
	{ "gnttab.held_pages_are_not_reused", held_pages_are_not_reused },
	{ "gnttab.none_leaks_in_a_race", none_leaks_in_a_race },
	{ "gnttab.grows_to_its_end", grows_to_its_end },
	{ NULL, NULL }
};
