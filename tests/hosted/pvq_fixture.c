/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the tests of pvq(9) share; see pvq_fixture.h.  And the program's test cases.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/virtqueue.h>

#include "pvq_fixture.h"

static bus_addr_t
fix_addr(uintptr_t n, int i)
{

	return (((uint64_t)n << 20) + i * 0x1000 + 0x123);
}

static uint32_t
fix_len(uintptr_t n, int i)
{

	/* With the offset above, within a page. */
	return ((n * 7 + i * 13) % 3800 + 1);
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

	memset(f, 0, sizeof(*f));
	f->im = im;
	error = im->im_create(im, size, max_segs, &f->pe);
	CHECK(error == 0, "error %d", error);
	f->po = f->pe->pe_ops;
	f->q = f->pe->pe_pvq;
}

/* Put chain n down as shared. */
static void
fix_share(struct fix *f, uintptr_t n, const struct pvq_chain *pc)
{
	int nsegs = pc->pc_nread + pc->pc_nwrite;
	struct fix_shared *fs = host_alloc(sizeof(*fs) + nsegs * sizeof(fs->segs[0]),
	    sizeof(void *));

	fs->n = n;
	fs->nsegs = nsegs;
	fs->table = NULL;
	memcpy(fs->segs, pc->pc_segs, nsegs * sizeof(fs->segs[0]));
	CHECK(f->shared[n % FIX_MAX_SHARED] == NULL, "chain %lu twice", n);
	f->shared[n % FIX_MAX_SHARED] = fs;
}

static void
fix_unshare(struct fix *f, uintptr_t n)
{
	struct fix_shared *fs = f->shared[n % FIX_MAX_SHARED];
	int held;

	CHECK(fs != NULL && fs->n == n, "chain %lu is not out", n);
	f->shared[n % FIX_MAX_SHARED] = NULL;
	held = im_unshare(f->im, f->pe, fs->segs, fs->nsegs);
	CHECK(held == 0, "%d of chain %lu are held", held, n);
	host_free(fs->table);
	host_free(fs);
}

/* A chain is committed. */
static void
fix_count(struct fix *f, int nsegs)
{

	f->chains++;
	f->segs += nsegs;
}

/* What is committed may complete at once, and be unshared by another thread. */
void
fix_commit(struct fix *f)
{

	while (f->nstaged > 0)
		fix_count(f, f->shared[f->staged[--f->nstaged] % FIX_MAX_SHARED]->nsegs);
	pvq_commit(f->q);
}

void
fix_abort(struct fix *f)
{

	pvq_abort(f->q);
	while (f->nstaged > 0)
		fix_unshare(f, f->staged[--f->nstaged]);
}

int
fix_collect(struct fix *f, struct pvq_done *done, int max)
{
	int got, i;

	got = pvq_get(f->q, done, max);
	f->done += got;
	for (i = 0; i < got; i++)
		fix_unshare(f, (uintptr_t)done[i].pd_cookie);
	return (got);
}

void *
fix_drain(struct fix *f)
{
	void *cookie;

	f->im->im_quiesce(f->pe);
	cookie = pvq_drain(f->q);
	if (cookie != NULL)
		fix_unshare(f, (uintptr_t)cookie);
	return (cookie);
}

void
fix_close(struct fix *f)
{
	const struct pvq_stats *qs = &f->q->q_stats;
	int i;

	kpi_access_hook = NULL;
	fix_abort(f);
	while (fix_drain(f) != NULL)
		continue;
	for (i = 0; i < FIX_MAX_SHARED; i++)
		CHECK(f->shared[i] == NULL, "chain %lu is lost", f->shared[i]->n);
	CHECK(pvq_inflight(f->q) == 0, "%d in flight", pvq_inflight(f->q));
	CHECK(pvq_room(f->q) == f->q->q_size, "%d free", pvq_room(f->q));
	CHECK(f->uncounted || (qs->qs_chains == f->chains && qs->qs_segs == f->segs &&
	    qs->qs_done == f->done && qs->qs_kicks == f->pe->pe_kicks),
	    "%ju chains of %ju, %ju segments of %ju, %ju done of %ju, %ju kicks of %u",
	    (uintmax_t)qs->qs_chains, (uintmax_t)f->chains, (uintmax_t)qs->qs_segs,
	    (uintmax_t)f->segs, (uintmax_t)qs->qs_done, (uintmax_t)f->done,
	    (uintmax_t)qs->qs_kicks, f->pe->pe_kicks);
	f->im->im_destroy(f->pe);
	CHECK(kpi_mallocs == 0 && kpi_dma_tags == 0 && kpi_dma_maps == 0, "left: %d, %d, %d",
	    kpi_mallocs, kpi_dma_tags, kpi_dma_maps);
}

/* A chain, with its segments. */
struct fix_chain {
	bus_dma_segment_t segs[PEER_MAX_SEGS];
	struct pvq_chain pc;
};

static void
fix_make(struct fix *f, struct fix_chain *fc, uintptr_t n, int nread, int nwrite)
{
	int i;

	fc->pc = (struct pvq_chain){
		.pc_segs = fc->segs,
		.pc_nread = nread,
		.pc_nwrite = nwrite,
		.pc_cookie = (void *)n,
	};
	for (i = 0; i < nread + nwrite; i++) {
		fc->segs[i].ds_addr = fix_addr(n, i);
		fc->segs[i].ds_len = fix_len(n, i);
	}
	if (f->im->im_chain != NULL)
		f->im->im_chain(f->pe, &fc->pc);
}

/* The queue must have made its own record of it. */
static void
fix_spoil(struct fix_chain *fc)
{

	memset(fc->segs, 0xa5, sizeof(fc->segs));
	host_free(fc->pc.pc_arg);
}

/* Put and commit a chain, which was shared, in a table of the driver's own. */
static void
fix_post_table(struct fix *f, uintptr_t n, const struct pvq_chain *pc)
{
	const u_int entries = pc->pc_nread + pc->pc_nwrite;
	struct virtqueue_entry *table = host_alloc(entries * sizeof(*table), VRING_DESC_ALIGN);
	uint32_t wlen = 0;
	u_int i;

	memset(table, 0xa5, entries * sizeof(*table));
	virtqueue_form(f->q, table, pc->pc_nread, pc->pc_nwrite);
	for (i = 0; i < entries; i++) {
		table[i].vqe_addr = pc->pc_segs[i].ds_addr;
		table[i].vqe_len = pc->pc_segs[i].ds_len;
		wlen += i < pc->pc_nread ? 0 : pc->pc_segs[i].ds_len;
	}
	f->shared[n % FIX_MAX_SHARED]->table = table;
	virtqueue_post_table(f->q, (bus_addr_t)(uintptr_t)table, entries, wlen, pc->pc_cookie);
}

int
fix_put_one(struct fix *f, uintptr_t n, int nread, int nwrite, bool post)
{
	struct fix_chain fc;
	int error, slots;

	fix_make(f, &fc, n, nread, nwrite);
	slots = pvq_prepare(f->q, &fc.pc);
	CHECK(slots > 0 && slots <= f->q->q_size, "%d slots", slots);
	error = pvq_reserve(f->q, slots);
	if (error == 0) {
		im_share(f->im, f->pe, &fc.pc);
		fix_share(f, n, &fc.pc);
		if (post && n % 4 == 0 && nread + nwrite > 1 && im_can(f->im, IM_INDIRECT) &&
		    virtqueue_takes_tables(f->q, nread + nwrite))
			fix_post_table(f, n, &fc.pc);
		else if (post)
			pvq_post(f->q, &fc.pc, 1);
		else {
			pvq_put(f->q, &fc.pc, 1);
			f->staged[f->nstaged++] = n;
		}
		if (post)
			fix_count(f, nread + nwrite);
	}
	fix_spoil(&fc);
	return (error);
}

int
fix_submit_fails(struct fix *f, uintptr_t n, int nread, int nwrite)
{
	struct fix_chain fc;
	int error;

	fix_make(f, &fc, n, nread, nwrite);
	error = pvq_submit(f->q, &fc.pc);
	fix_spoil(&fc);
	return (error);
}

int
fix_put(struct fix *f, uintptr_t n, int nread, int nwrite)
{

	return (fix_put_one(f, n, nread, nwrite, false));
}

void
fix_post_all(struct fix *f, uintptr_t n, int count)
{
	struct fix_chain fc[FIX_POSTED];
	struct pvq_chain pcs[FIX_POSTED];
	int error, i, slots = 0;

	for (i = 0; i < count; i++) {
		fix_make(f, &fc[i], n + i, i % 3, 1);
		slots += pvq_prepare(f->q, &fc[i].pc);
	}
	error = pvq_reserve(f->q, slots);
	CHECK(error == 0, "%d slots: error %d", slots, error);
	for (i = 0; i < count; i++) {
		im_share(f->im, f->pe, &fc[i].pc);
		fix_share(f, n + i, &fc[i].pc);
		pcs[i] = fc[i].pc;
	}
	pvq_post(f->q, pcs, count);
	for (i = 0; i < count; i++) {
		fix_count(f, i % 3 + 1);
		fix_spoil(&fc[i]);
	}
}

void
fix_post(struct fix *f, uintptr_t n, int nread, int nwrite)
{
	const bool one = n % 2 == 0 && f->nstaged == 0;
	int error;

	error = fix_put_one(f, n, nread, nwrite, one);
	CHECK(error == 0, "chain %lu: error %d", n, error);
	if (!one)
		fix_commit(f);
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

	got = fix_collect(f, &done, 1);
	CHECK(got == 1, "got %d, fault %u", got, f->q->q_fault);
	CHECK((uintptr_t)done.pd_cookie == n, "cookie %p for chain %lu", done.pd_cookie, n);
	CHECK(f->im->im_reported(&done) == len, "length %u", f->im->im_reported(&done));
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

/* A test of a list, for all implementations of a kind. */
struct fix_case {
	const struct impl *fc_impls;
	const struct pvq_test *fc_test;
	bool		 fc_bounced;
	char		 fc_name[96];
};

#define	FIX_MAX_CASES	400

static struct fix_case fix_cases[FIX_MAX_CASES];
static struct hosted_test fix_table[FIX_MAX_CASES + 1];

static bool
fix_fits(const struct impl *im, const struct pvq_test *pt)
{
	return (im_can(im, pt->needs) && (im->im_flags & pt->lacks) == 0);
}

/* Those that can do what the test needs, and which they are, for whom it fails. */
static void
fix_run(const void *arg)
{
	const struct fix_case *fc = arg;
	const struct impl *im;

	kpi_bounced = fc->fc_bounced;
	for (im = fc->fc_impls; im->im_name != NULL; im++)
		if (fix_fits(im, fc->fc_test)) {
			printf("%s\n", im->im_name);
			fc->fc_test->body(im);
		}
}

static void
fix_add_case(int n, const struct pvq_list *pl, const struct pvq_test *pt)
{
	struct fix_case *fc = &fix_cases[n];

	CHECK(n < FIX_MAX_CASES, "too many tests");
	fc->fc_impls = pl->impls;
	fc->fc_test = pt;
	fc->fc_bounced = pl->bounced;
	snprintf(fc->fc_name, sizeof(fc->fc_name), "%s__%s", pl->kind, pt->name);
	fix_table[n] = (struct hosted_test){ fc->fc_name, pt->descr, fix_run, fc };
}

/* Every test of every list. */
const struct hosted_test *
hosted_tests(void)
{
	const struct pvq_list *pl;
	const struct impl *im;
	const struct pvq_test *pt;
	int n;

	if (fix_table[0].ht_name != NULL)
		return (fix_table);
	n = 0;
	for (pl = pvq_lists; pl->kind != NULL; pl++) {
		for (pt = pl->tests; pt->name != NULL; pt++) {
			for (im = pl->impls; im->im_name != NULL && !fix_fits(im, pt); im++)
				;
			if (im->im_name != NULL && !(pl->bounced && pt->is_long))
				fix_add_case(n++, pl, pt);
		}
	}
	return (fix_table);
}
