/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The driver of grant rings, and a way to let a new ring's indices begin elsewhere than at 0: they have
 * 32 bits, and no test lives to see 2^32 requests.
 */

#include <dev/xen/grant_ring.c>

#include "../host/host.h"
#include "grant_peer.h"

void
grant_ring_wind(struct pvq *q, uint32_t start)
{
	struct grant_ring *gr = GR(q);

	CHECK(start % q->q_size == 0 && pvq_inflight(q) == 0 && q->q_taken == 0, "not a new ring");
	q->q_taken = gr->gr_base = gr->gr_rsp_cons = gr->gr_done_slots = start;
	q->q_given = start + q->q_size;
	q->q_committed = q->q_completed = start;
	gr->gr_ids_taken = gr->gr_ids_base = gr->gr_ids_given = start;
	gr->gr_noids = gr->gr_nulls = start;
	gr->gr_header->gh_req_prod = gr->gr_header->gh_rsp_prod = start;
	gr->gr_header->gh_req_event = gr->gr_header->gh_rsp_event = start + 1;
}
