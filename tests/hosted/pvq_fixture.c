/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the tests of pvq(9) share; see pvq_fixture.h.  And the list of them all.
 */

#include "pvq_fixture.h"

static bus_addr_t
fix_addr(uintptr_t n, int i)
{

	return (((uint64_t)n << 20) + i * 0x1000 + 0x123);
}

static uint32_t
fix_len(uintptr_t n, int i)
{

	return ((n * 7 + i * 13) % 4000 + 1);
}

uint32_t
fix_room(uintptr_t n, int nwrite)
{
	uint32_t room;
	int i;

	/* Only for chains without readable segments. */
	for (room = 0, i = 0; i < nwrite; i++)
		room += fix_len(n, i);
	return (room);
}

void
fix_open(struct fix *f, const struct impl *im, uint16_t size, uint16_t max_segs)
{
	int error;

	f->im = im;
	error = im->im_create(im, size, max_segs, &f->pe);
	CHECK(error == 0, "error %d", error);
	f->po = f->pe->pe_ops;
	f->q = f->pe->pe_pvq;
}

void
fix_close(struct fix *f)
{

	kpi_access_hook = NULL;
	while (pvq_drain(f->q) != NULL)
		continue;
	CHECK(pvq_inflight(f->q) == 0, "%d in flight", pvq_inflight(f->q));
	CHECK(pvq_room(f->q) == f->q->q_size, "%d free", pvq_room(f->q));
	f->im->im_destroy(f->pe);
	CHECK(kpi_mallocs == 0 && kpi_dma_tags == 0 && kpi_dma_maps == 0, "left: %d, %d, %d",
	    kpi_mallocs, kpi_dma_tags, kpi_dma_maps);
}

int
fix_put(struct fix *f, uintptr_t n, int nread, int nwrite)
{
	bus_dma_segment_t segs[PEER_MAX_SEGS];
	struct pvq_chain pc = {
		.pc_segs = segs,
		.pc_nread = nread,
		.pc_nwrite = nwrite,
		.pc_cookie = (void *)n,
	};
	int error, i, slots;

	for (i = 0; i < nread + nwrite; i++) {
		segs[i].ds_addr = fix_addr(n, i);
		segs[i].ds_len = fix_len(n, i);
	}
	slots = pvq_prepare(f->q, &pc);
	CHECK(slots > 0 && slots <= f->q->q_size, "%d slots", slots);
	error = pvq_reserve(f->q, slots);
	if (error == 0)
		error = pvq_share(f->q, &pc);
	if (error == 0)
		pvq_put(f->q, &pc, 1);
	/* The queue must have made its own record of it. */
	memset(segs, 0xa5, sizeof(segs));
	return (error);
}

void
fix_post(struct fix *f, uintptr_t n, int nread, int nwrite)
{
	int error;

	error = fix_put(f, n, nread, nwrite);
	CHECK(error == 0, "chain %lu: error %d", n, error);
	pvq_commit(f->q);
}

void
fix_fetch(struct fix *f, struct peer_chain *pr, uintptr_t n, int nread, int nwrite)
{
	int i;

	CHECK(f->po->po_fetch(f->pe, pr), "chain %lu did not arrive", n);
	CHECK(pr->pr_nread == nread && pr->pr_nwrite == nwrite, "chain %lu: %d + %d segments", n,
	    pr->pr_nread, pr->pr_nwrite);
	for (i = 0; i < nread + nwrite; i++)
		CHECK(pr->pr_segs[i].addr == fix_addr(n, i) && pr->pr_segs[i].len == fix_len(n, i),
		    "chain %lu, segment %d: 0x%lx, %u bytes", n, i, pr->pr_segs[i].addr,
		    pr->pr_segs[i].len);
}

void
fix_complete(struct fix *f, const struct peer_chain *pr, uint32_t len)
{

	f->po->po_complete(f->pe, pr->pr_id, len);
	f->po->po_publish(f->pe);
}

void
fix_get(struct fix *f, uintptr_t n, uint32_t len)
{
	struct pvq_done done;
	int got;

	got = pvq_get(f->q, &done, 1);
	CHECK(got == 1, "got %d, fault %u", got, f->q->q_fault);
	CHECK((uintptr_t)done.pd_cookie == n, "cookie %p for chain %lu", done.pd_cookie, n);
	CHECK(done.pd_len == len, "length %u", done.pd_len);
}

void
fix_turn(struct fix *f, uintptr_t n)
{
	struct peer_chain pr;

	fix_post(f, n, 0, 1);
	fix_fetch(f, &pr, n, 0, 1);
	fix_complete(f, &pr, 1);
	fix_get(f, n, 1);
}

/* A test of a list, for one implementation. */
struct fix_case {
	const struct impl *fc_impl;
	const struct pvq_test *fc_test;
	char		 fc_name[96];
};

static const struct pvq_test *const fix_lists[] = {
	pvq_basic_tests,
	pvq_event_tests,
	pvq_hostile_tests,
	pvq_random_tests,
};

#define	FIX_MAX_CASES	400

static struct fix_case fix_cases[FIX_MAX_CASES];
static struct hosted_test fix_table[FIX_MAX_CASES + 1];

static void
fix_run(const void *arg)
{
	const struct fix_case *fc = arg;

	fc->fc_test->body(fc->fc_impl);
}

static void
fix_add_case(int n, const struct impl *im, const struct pvq_test *pt)
{
	struct fix_case *fc = &fix_cases[n];

	CHECK(n < FIX_MAX_CASES, "too many tests");
	fc->fc_impl = im;
	fc->fc_test = pt;
	snprintf(fc->fc_name, sizeof(fc->fc_name), "%s__%s", im->im_name, pt->name);
	fix_table[n] = (struct hosted_test){ fc->fc_name, pt->descr, fix_run, fc };
}

/* Every test of every list, for every implementation. */
const struct hosted_test *
hosted_tests(void)
{
	const struct impl *im;
	const struct pvq_test *pt;
	u_int i;
	int n;

	if (fix_table[0].ht_name != NULL)
		return (fix_table);
	n = 0;
	for (im = pvq_impls; im->im_name != NULL; im++) {
		for (i = 0; i < nitems(fix_lists); i++) {
			for (pt = fix_lists[i]; pt->name != NULL; pt++)
				fix_add_case(n++, im, pt);
		}
	}
	return (fix_table);
}
