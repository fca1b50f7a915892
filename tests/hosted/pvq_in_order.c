/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Conformance of a virtqueue with IN_ORDER: one used element for a batch, and devices that are not in
 * order.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include <dev/virtio/virtqueue.h>

#include "pvq_fixture.h"

#define	BATCH	6

/* Chains 1 to BATCH, of different lengths, are with the peer. */
static void
post_batch(struct fix *f, struct peer_chain *pr)
{
	int i;

	for (i = 0; i < BATCH; i++) {
		fix_post(f, i + 1, i % 2, 1 + i % 2);
		fix_fetch(f, &pr[i], i + 1, i % 2, 1 + i % 2);
	}
}

/* The peer makes one element of what was used completely; each comes out, with its own length. */
static void
batch_is_taken_apart(const struct impl *im)
{
	struct peer_chain pr[BATCH];
	struct pvq_done done[BATCH];
	struct fix f;
	uint32_t len;
	int i, max, got, round;

	fix_open(&f, im, 17 - (im_can(im, IM_PACKED) ? 0 : 1), FIX_MAX_SEGS);
	for (round = 0; round < 200; round++) {
		post_batch(&f, pr);
		/* The last of a batch may be short; here that is one in the middle, or none. */
		for (i = 0; i < BATCH; i++)
			f.po->po_complete(f.pe, pr[i].pr_id,
			    i == round % (BATCH + 2) ? 0 : pr[i].pr_wlen);
		f.po->po_publish(f.pe);
		max = 1 + round % BATCH;
		for (i = 0; i < BATCH; i += got) {
			CHECK(pvq_intr_enable(f.q, 1), "%d do not wait", BATCH - i);
			got = fix_collect(&f, done, MIN(max, BATCH - i));
			CHECK(got == MIN(max, BATCH - i), "%d of %d, fault %u", got, max, f.q->q_fault);
			for (int k = 0; k < got; k++) {
				len = i + k == round % (BATCH + 2) ? 0 : pr[i + k].pr_wlen;
				CHECK((uintptr_t)done[k].pd_cookie == (uintptr_t)(i + k + 1) &&
				    im->im_reported(&done[k]) == len, "%p, %u bytes", done[k].pd_cookie,
				    im->im_reported(&done[k]));
			}
		}
		CHECK(fix_collect(&f, done, 1) == 0, "one too many");
	}
	fix_close(&f);
}

/* A batch that was begun is not lost when the rest is drained. */
static void
drained_in_the_middle(const struct impl *im)
{
	struct peer_chain pr[BATCH];
	struct fix f;
	int i, round;

	fix_open(&f, im, 16, FIX_MAX_SEGS);
	for (round = 0; round < 3; round++) {
		post_batch(&f, pr);
		for (i = 0; i < BATCH; i++)
			f.po->po_complete(f.pe, pr[i].pr_id, pr[i].pr_wlen);
		f.po->po_publish(f.pe);
		fix_get(&f, 1, pr[0].pr_wlen);
		for (i = 1; i < BATCH; i++)
			CHECK((uintptr_t)fix_drain(&f) == (uintptr_t)i + 1, "not %d", i + 1);
		CHECK(fix_drain(&f) == NULL && pvq_reinit(f.q) == 0, "reinit");
		im->im_reset(f.pe);
	}
	fix_close(&f);
}

/*
 * The third before the second.  A split ring's index tells at once: one chain is ready, and that is not
 * the oldest.  In a packed one this is a batch, and the second is a chain that is not in flight.
 */
static void
out_of_order(const struct impl *im)
{
	struct peer_chain pr[BATCH];
	struct pvq_done done[BATCH];
	struct fix f;
	int got;

	fix_open(&f, im, 16, FIX_MAX_SEGS);
	post_batch(&f, pr);
	fix_complete(&f, &pr[0], 0);
	fix_get(&f, 1, 0);
	fix_complete(&f, &pr[2], 0);
	got = fix_collect(&f, done, BATCH);
	if (im_can(im, IM_PACKED)) {
		CHECK(got == 2 && !pvq_broken(f.q), "%d", got);
		/* Where the next one is looked for. */
		fix_complete(&f, &pr[1], 0);
		while (!pvq_broken(f.q) && f.po->po_violate(f.pe, VIOLATION_ID_TWICE, &pr[1]) &&
		    got++ < 40)
			CHECK(fix_collect(&f, done, BATCH) == 0, "an old chain");
		CHECK(f.q->q_fault == PVQ_FAULT_ID, "fault %u", f.q->q_fault);
	} else
		CHECK(got == 0 && f.q->q_fault == VIRTQUEUE_FAULT_ORDER, "%d, fault %u", got,
		    f.q->q_fault);
	fix_close(&f);
}

/* Ids that are not in flight, which have no place in any order. */
static void
not_in_flight(const struct impl *im)
{
	static const enum peer_violation violations[] = {
		VIOLATION_ID_RANGE, VIOLATION_ID_HUGE, VIOLATION_ID_IDLE
	};
	struct peer_chain pr[BATCH];
	struct pvq_done done[BATCH];
	struct fix f;
	u_int i;

	for (i = 0; i < nitems(violations); i++) {
		fix_open(&f, im, 16, FIX_MAX_SEGS);
		fix_post(&f, 1, 0, 2);
		fix_fetch(&f, &pr[0], 1, 0, 2);
		CHECK(f.po->po_violate(f.pe, violations[i], &pr[0]), "violation");
		CHECK(fix_collect(&f, done, BATCH) == 0 && f.q->q_fault == PVQ_FAULT_ID,
		    "fault %u", f.q->q_fault);
		fix_close(&f);
	}
}

const struct pvq_test pvq_in_order_tests[] = {
	{ "batch_is_taken_apart", "One element for many chains", batch_is_taken_apart, IM_IN_ORDER },
	{ "drained_in_the_middle", "Of a batch", drained_in_the_middle, IM_IN_ORDER },
	{ "hostile_out_of_order", "IN_ORDER that is not", out_of_order, IM_IN_ORDER },
	{ "hostile_not_in_flight", "An id that is in no batch", not_in_flight, IM_IN_ORDER },
	{ .name = NULL }
};
