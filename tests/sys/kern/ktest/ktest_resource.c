/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * rman(9), sglist(9), unr(9): ranges, lists of ranges, numbers.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/rman.h>
#include <sys/sglist.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>

#include "ktest.h"

static void
rman_reserves(void)
{
	rman_res_t start, end;
	struct resource *a, *b, *c, *d;
	struct rman rm = { .rm_type = RMAN_ARRAY, .rm_descr = "ktest", .rm_start = 0,
	    .rm_end = ~0 };

	KT_EQ(rman_init(&rm), 0);
	KT_EQ(rman_manage_region(&rm, 0x1000, 0x1fff), 0);
	KT_EQ(rman_manage_region(&rm, 0x4000, 0x4fff), 0);
	KT_EQ(rman_manage_region(&rm, 0x1800, 0x2800), EBUSY);
	KT_EQ(rman_first_free_region(&rm, &start, &end), 0);
	KT_EQ(start, 0x1000);
	KT_EQ(end, 0x1fff);
	a = rman_reserve_resource(&rm, 0, ~0, 0x10, 0, NULL);
	if (!KT_TRUE(a != NULL))
		return;
	KT_EQ(rman_get_start(a), 0x1000);
	KT_EQ(rman_get_size(a), 0x10);
	KT_EQ(rman_activate_resource(a), 0);
	KT_TRUE(rman_get_flags(a) & RF_ACTIVE);
	KT_EQ(rman_deactivate_resource(a), 0);
	KT_TRUE((rman_get_flags(a) & RF_ACTIVE) == 0);
	b = rman_reserve_resource(&rm, 0, ~0, 0x100, RF_ALIGNMENT_LOG2(8), NULL);
	KT_TRUE(b != NULL && rman_get_start(b) % 0x100 == 0 && rman_get_end(b) ==
	    rman_get_start(b) + 0xff);
	KT_TRUE(rman_is_region_manager(b, &rm));
	/* Taken. */
	KT_TRUE(rman_reserve_resource(&rm, 0x1000, 0x100f, 0x10, 0, NULL) == NULL);
	KT_TRUE(rman_reserve_resource(&rm, 0x1008, 0x1017, 0x10, 0, NULL) == NULL);
	/* Not managed, or too large. */
	KT_TRUE(rman_reserve_resource(&rm, 0x2000, 0x3fff, 1, 0, NULL) == NULL);
	KT_TRUE(rman_reserve_resource(&rm, 0, ~0, 0x1001, 0, NULL) == NULL);
	c = rman_reserve_resource(&rm, 0, ~0, 0x1000, 0, NULL);
	if (!KT_TRUE(c != NULL))
		return;
	KT_EQ(rman_get_start(c), 0x4000);
	KT_EQ(rman_adjust_resource(c, 0x4000, 0x40ff), 0);
	KT_EQ(rman_get_end(c), 0x40ff);
	KT_EQ(rman_adjust_resource(c, 0x4000, 0x5000), EBUSY);
	KT_EQ(rman_adjust_resource(c, 0x4800, 0x4900), EINVAL);
	KT_EQ(rman_adjust_resource(a, 0x1000, 0x1fff), EBUSY);
	KT_EQ(rman_adjust_resource(c, 0x4000, 0x4fff), 0);
	/* Shared by those who all want to. */
	KT_EQ(rman_release_resource(c), 0);
	c = rman_reserve_resource(&rm, 0x4000, 0x40ff, 0x100, RF_SHAREABLE, NULL);
	d = rman_reserve_resource(&rm, 0x4000, 0x40ff, 0x100, RF_SHAREABLE, NULL);
	KT_TRUE(c != NULL && d != NULL && c != d);
	KT_TRUE(rman_reserve_resource(&rm, 0x4000, 0x40ff, 0x100, 0, NULL) == NULL);
	KT_EQ(rman_fini(&rm), EBUSY);
	rman_release_resource(d);
	rman_release_resource(c);
	rman_release_resource(b);
	rman_release_resource(a);
	/* All merged again. */
	a = rman_reserve_resource(&rm, 0x1000, 0x1fff, 0x1000, 0, NULL);
	KT_TRUE(a != NULL);
	rman_release_resource(a);
	KT_EQ(rman_last_free_region(&rm, &start, &end), 0);
	KT_EQ(start, 0x4000);
	KT_EQ(end, 0x4fff);
	KT_EQ(rman_fini(&rm), 0);
}

/* The bytes of a list are those of the buffer. */
static bool
sglist_is(struct sglist *sg, const char *buf, size_t len)
{
	size_t at = 0;
	int i;

	for (i = 0; i < sg->sg_nseg; i++) {
		if (at + sg->sg_segs[i].ss_len > len || memcmp(buf + at,
		    (void *)PHYS_TO_DMAP(sg->sg_segs[i].ss_paddr), sg->sg_segs[i].ss_len) != 0)
			return (false);
		at += sg->sg_segs[i].ss_len;
	}
	return (at == len);
}

static void
sglist_builds(void)
{
	struct sglist *sg, *part = NULL, *clone;
	uint32_t seed = 6;
	struct mbuf *m;
	size_t len, off;
	char *buf;
	int i, count;

	buf = malloc(20 * PAGE_SIZE, M_KTEST, M_WAITOK);
	ktest_fill(buf, 20 * PAGE_SIZE, 1);
	for (i = 0; i < 200; i++) {
		off = ktest_random(&seed) % (4 * PAGE_SIZE);
		len = 1 + ktest_random(&seed) % (15 * PAGE_SIZE);
		count = sglist_count(buf + off, len);
		sg = sglist_build(buf + off, len, M_WAITOK);
		KT_EQ(sg->sg_nseg, count);
		KT_EQ(sglist_length(sg), len);
		KT_TRUE(sglist_is(sg, buf + off, len));
		clone = sglist_clone(sg, M_WAITOK);
		KT_TRUE(sglist_is(clone, buf + off, len));
		sglist_free(clone);
		if (len > 100) {
			KT_EQ(sglist_slice(sg, &part, 50, len - 99, M_WAITOK), 0);
			KT_TRUE(sglist_is(part, buf + off + 50, len - 99));
			sglist_free(part);
			part = NULL;
		}
		sglist_free(sg);
	}
	/* Too small: EFBIG, and as it was. */
	sg = sglist_alloc(2, M_WAITOK);
	KT_EQ(sglist_append(sg, buf, 10), 0);
	KT_EQ(sglist_append(sg, buf + 10, 10), 0);
	KT_EQ(sg->sg_nseg, 1);
	KT_EQ(sglist_append_phys(sg, vtophys(buf) + 100 * PAGE_SIZE, 5), 0);
	KT_EQ(sglist_append(sg, buf + 40, 10), EFBIG);
	KT_EQ(sglist_length(sg), 25);
	sglist_reset(sg);
	KT_EQ(sglist_length(sg), 0);
	sglist_free(sg);
	sg = sglist_alloc(8, M_WAITOK);
	m = m_getm2(NULL, 5000, M_WAITOK, MT_DATA, M_PKTHDR);
	m_copyback(m, 0, 5000, buf);
	KT_EQ(sglist_append_mbuf(sg, m), 0);
	KT_TRUE(sglist_is(sg, buf, 5000));
	m_freem(m);
	sglist_free(sg);
	free(buf, M_KTEST);
}

#define	UNITS	200

/* Random taking and giving back; always the lowest one that is free. */
static void
unr_lowest_first(void)
{
	bool taken[UNITS] = { false };
	struct unrhdr *uh;
	uint32_t seed = 12;
	int i, n, want;

	uh = new_unrhdr(10, 10 + UNITS - 1, NULL);
	for (i = 0; i < 3000; i++) {
		if (ktest_random(&seed) % 5 < 3) {
			for (want = 0; want < UNITS && taken[want]; want++)
				;
			n = alloc_unr(uh);
			if (!KT_EQ(n, want == UNITS ? -1 : want + 10))
				break;
			if (n != -1)
				taken[want] = true;
			continue;
		}
		n = ktest_random(&seed) % UNITS;
		if (taken[n]) {
			free_unr(uh, 10 + n);
			taken[n] = false;
		} else if (ktest_random(&seed) % 4 == 0) {
			KT_EQ(alloc_unr_specific(uh, 10 + n), 10 + n);
			KT_EQ(alloc_unr_specific(uh, 10 + n), -1);
			taken[n] = true;
		}
	}
	for (n = 0; n < UNITS; n++)
		if (taken[n])
			free_unr(uh, 10 + n);
	KT_EQ(alloc_unr(uh), 10);
	free_unr(uh, 10);
	delete_unrhdr(uh);
}

const struct ktest_case ktest_resource_cases[] = {
	{ "rman.reserves", rman_reserves },
	{ "sglist.builds", sglist_builds },
	{ "unr.lowest_first", unr_lowest_first },
	{ NULL, NULL }
};
