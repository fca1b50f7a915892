/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A fuzz target: xbd(4)'s messages, both ways.
 *
 * A request that pv_blk may make is encoded: its pages are those of its stage, as many as it has bytes
 * for.  What answers it is anything: only an answer to this operation counts, and each other status
 * than the three of the protocol is reported as it was seen.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/blk/pv_blk.h>
#include <dev/xen/blkfront/blkfront_var.h>

#include "fuzz_input.h"
#include "host/host.h"
#include "kpi/kpi.h"

#define	FUZZ_SEGS	32	/* of an indirect request */
#define	FUZZ_REF(i)	(100 + (i))

static struct xbd_softc sc;
static struct xbd_stage stages[1];
static struct pv_blk_req reqs[1];

grant_ref_t
xbd_stage_ref(const struct xbd_softc *s __unused, const struct xbd_stage *st __unused, u_int i)
{

	CHECK(i < FUZZ_SEGS, "page %u", i);
	return (FUZZ_REF(i));
}

static void
fuzz_check_segments(const struct blkif_request_segment *seg, u_int n, size_t length)
{
	size_t sum = 0;
	u_int i;

	for (i = 0; i < n; i++) {
		CHECK(seg[i].gref == FUZZ_REF(i) && seg[i].first_sect == 0 &&
		    seg[i].last_sect < PAGE_SIZE / XBD_SECTOR_SIZE, "segment %u: %u to %u", i,
		    seg[i].first_sect, seg[i].last_sect);
		sum += (seg[i].last_sect + 1) * XBD_SECTOR_SIZE;
	}
	CHECK(sum == length, "%zu bytes of %zu", sum, length);
}

static void
fuzz_encode(const struct pv_blk_req *rq, struct xen_gnttab_pages *list)
{
	const struct blkif_request_indirect *ind = rq->rq_msg;
	const struct blkif_request *req = rq->rq_msg;
	struct pvq_chain pc;

	xbd_encode(&sc.xbd_blk, reqs, &pc);
	if (rq->rq_cmd == PV_BLK_DELETE || rq->rq_cmd == PV_BLK_FLUSH)
		return;
	if (req->operation == BLKIF_OP_INDIRECT) {
		CHECK(ind->nr_segments > BLKIF_MAX_SEGMENTS_PER_REQUEST &&
		    ind->indirect_grefs[0] == list->gp_refs[0], "%u segments", ind->nr_segments);
		fuzz_check_segments(list->gp_va, ind->nr_segments, rq->rq_length);
	} else
		fuzz_check_segments(req->seg, req->nr_segments, rq->rq_length);
}

static void
fuzz_answer(struct fuzz_input *in, const struct pv_blk_req *rq)
{
	const struct blkif_request *req = rq->rq_msg;
	struct blkif_response *rsp = host_alloc(sizeof(*rsp), 8);
	struct pvq_done done = { .pd_result = (uintptr_t)rsp };
	uintmax_t seen = UINTMAX_MAX;
	int status;

	fuzz_fill(in, rsp, sizeof(*rsp));
	/* An operation and a status that there are, more often. */
	if (rsp->id % 4 != 0)
		rsp->operation %= 8;
	if (rsp->id % 3 != 0)
		rsp->status = (int)(rsp->id % 4) - 2;
	status = xbd_status(&sc.xbd_blk, rq, &done, &seen);
	CHECK((status == -1) == (seen != UINTMAX_MAX), "status %d, seen %ju", status, seen);
	CHECK(status != 0 || (rsp->status == BLKIF_RSP_OKAY && (rsp->operation == req->operation ||
	    (req->operation == BLKIF_OP_INDIRECT && rsp->operation ==
	    ((const struct blkif_request_indirect *)req)->indirect_op))), "operation %u to %u",
	    rsp->operation, req->operation);
	host_free(rsp);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int cmds[] = { PV_BLK_READ, PV_BLK_WRITE, PV_BLK_FLUSH, PV_BLK_DELETE };
	struct fuzz_input in = { data, size };
	struct xen_gnttab_pages *list = host_alloc(sizeof(*list) + sizeof(list->gp_refs[0]), 8);
	struct pv_blk_req *rq = reqs;

	memset(&sc, 0, sizeof(sc));
	/* What the indirect pages hold, to the byte. */
	list->gp_va = host_alloc(FUZZ_SEGS * sizeof(struct blkif_request_segment), 8);
	list->gp_refs[0] = 77;
	stages[0].xst_list = list;
	sc.xbd_stages = stages;
	sc.xbd_blk.blk_reqs = reqs;
	sc.xbd_max_segs = FUZZ_SEGS;
	rq->rq_msg = host_alloc(sizeof(struct blkif_request), 8);
	while (in.fi_left > 0) {
		sc.xbd_flush_op = fuzz_byte(&in) % 2 == 0 ? BLKIF_OP_FLUSH_DISKCACHE :
		    BLKIF_OP_WRITE_BARRIER;
		rq->rq_cmd = cmds[fuzz_byte(&in) % nitems(cmds)];
		rq->rq_offset = (off_t)fuzz_word(&in) * XBD_SECTOR_SIZE;
		rq->rq_length = (1 + fuzz_word(&in) % (FUZZ_SEGS * PAGE_SIZE / XBD_SECTOR_SIZE)) *
		    XBD_SECTOR_SIZE;
		fuzz_encode(rq, list);
		fuzz_answer(&in, rq);
	}
	host_free(rq->rq_msg);
	host_free(list->gp_va);
	host_free(list);
	return (0);
}
