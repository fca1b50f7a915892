/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A balloon whose host is a test: it looks into the pages that it gets, and
 * refuses some.  The cases run when the module is loaded.
 *
 * Locking.  The balloon's worker calls the host; the cases wait for it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

#include <dev/pv/balloon/pv_balloon.h>

#include "ktest.h"

#define	AIR_PAGES	256
#define	AIR_BATCH	16
#define	AIR_ROUNDS	64

static struct {
	struct pv_balloon a_balloon;
	volatile u_int	 a_taken;
	volatile u_int	 a_offered;
	volatile u_int	 a_dirty;	/* pages with something in them */
	u_int		 a_refuse;	/* of each batch */
} air;

static bool
air_is_zero(vm_page_t m)
{
	const uint64_t *words;
	u_int i;
	bool zero = true;

	words = pmap_mapdev_attr(VM_PAGE_TO_PHYS(m), PAGE_SIZE,
	    VM_MEMATTR_WRITE_BACK);
	for (i = 0; i < PAGE_SIZE / sizeof(*words); i++)
		zero = zero && words[i] == 0;
	pmap_unmapdev(__DECONST(void *, words), PAGE_SIZE);
	return (zero);
}

static int
air_inflate(struct pv_balloon *pb __unused, vm_page_t *pages, u_int n,
    u_int *done)
{
	u_int i;

	for (i = 0; i < n; i++) {
		if (!air_is_zero(pages[i]))
			air.a_dirty++;
	}
	air.a_offered += n;
	*done = n - MIN(n, air.a_refuse);
	air.a_taken += *done;
	return (*done == n ? 0 : ENOSPC);
}

static int
air_deflate(struct pv_balloon *pb __unused, vm_page_t *pages __unused, u_int n,
    u_int *done)
{

	*done = n;
	air.a_taken -= n;
	return (0);
}

static const struct pv_balloon_ops air_ops = {
	.pbo_inflate = air_inflate,
	.pbo_deflate = air_deflate,
};

static bool
air_begin(bool scrub)
{
	const struct pv_balloon_params params = {
		.pbp_batch = AIR_BATCH,
		.pbp_scrub = scrub,
	};

	bzero(&air, sizeof(air));
	if (!KT_EQ(pv_balloon_init(&air.a_balloon,
	    devclass_get_device(devclass_find("nexus"), 0), &air_ops, &params),
	    0))
		return (false);
	pv_dev_start(&air.a_balloon.pb_pvdev, true);
	return (true);
}

static void
air_end(void)
{

	KT_EQ(pv_balloon_empty(&air.a_balloon), 0);
	KT_EQ(air.a_taken, 0);
	pv_dev_leave(&air.a_balloon.pb_pvdev);
	pv_balloon_fini(&air.a_balloon, false);
}

/* Leave something in many free pages. */
static void
air_soil(void)
{
	void *pages[AIR_PAGES];
	u_int i;

	for (i = 0; i < nitems(pages); i++) {
		pages[i] = contigmalloc(PAGE_SIZE, M_KTEST, M_WAITOK, 0,
		    ~(vm_paddr_t)0, PAGE_SIZE, 0);
		memset(pages[i], 0xa5, PAGE_SIZE);
	}
	for (i = 0; i < nitems(pages); i++)
		contigfree(pages[i], PAGE_SIZE, M_KTEST);
}

/* Without scrubbing some page shows what was in it: the test can see that. */
static void
pages_are_zeroed(void)
{

	air_soil();
	if (!air_begin(false))
		return;
	pv_balloon_set_target(&air.a_balloon, AIR_PAGES);
	KT_WAIT(air.a_taken == AIR_PAGES);
	KT_TRUE(air.a_dirty > 0);
	air_end();
	air_soil();
	if (!air_begin(true))
		return;
	pv_balloon_set_target(&air.a_balloon, AIR_PAGES);
	KT_WAIT(air.a_taken == AIR_PAGES);
	KT_EQ(air.a_dirty, 0);
	air_end();
}

/* What the host refuses is the system's again, however often. */
static void
refused_pages_are_free(void)
{
	u_int before, i, lost;

	if (!air_begin(false))
		return;
	before = vm_free_count();
	air.a_refuse = AIR_BATCH;
	for (i = 0; i < AIR_ROUNDS; i++) {
		pv_balloon_set_target(&air.a_balloon, AIR_BATCH + i % 2);
		KT_WAIT(air.a_offered >= (i + 1) * AIR_BATCH);
	}
	/* Nothing of the kernel's own takes that many pages meanwhile. */
	lost = before - MIN(vm_free_count(), before);
	KT_LESS(lost, AIR_ROUNDS * AIR_BATCH / 4);
	KT_TRUE(air.a_balloon.pb_stats.pbs_refused >= AIR_ROUNDS * AIR_BATCH);
	KT_EQ(air.a_balloon.pb_npages, 0);
	pv_balloon_set_target(&air.a_balloon, 0);
	air_end();
}

static const struct ktest_case air_cases[] = {
	{ "balloon.pages_are_zeroed", pages_are_zeroed },
	{ "balloon.refused_pages_are_free", refused_pages_are_free },
	{ NULL, NULL }
};

static const struct ktest_case *const air_tables[] = { air_cases };

static int
air_modevent(module_t mod __unused, int what, void *arg __unused)
{

	switch (what) {
	case MOD_LOAD:
		return (ktest_run_tables(air_tables, nitems(air_tables),
		    "all"));
	case MOD_UNLOAD:
		return (0);
	default:
		return (EOPNOTSUPP);
	}
}

static moduledata_t air_module = { "air", air_modevent, NULL };
DECLARE_MODULE(air, air_module, SI_SUB_DRIVERS, SI_ORDER_ANY);
MODULE_VERSION(air, 1);
MODULE_DEPEND(air, ktest, 1, 1, 1);
MODULE_DEPEND(air, pv, 1, 1, 1);
MODULE_DEPEND(air, pv_balloon, 1, 1, 1);
