/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Histograms of pv_blk: how deep a queue is when a request is put, and how long
 * the device takes for it (theory statement, locking: pv_blk.h).
 *
 * Off, which they are at first, they cost a look at a flag; on, a reading of
 * the clock for each put and each completion.  Bucket i counts what is 2^i or
 * more, and less than 2^(i + 1).
 *
 * A request that was put while they were off has an rq_put_at of 0 and is not
 * counted.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/libkern.h>
#include <sys/malloc.h>
#include <sys/sbuf.h>
#include <sys/time.h>

#include <machine/atomic.h>

#include <dev/pv/blk/pv_blk_var.h>

#define	PV_BLK_BUCKETS		32

struct pv_blk_hist {
	uint64_t	bh_depth[PV_BLK_BUCKETS];		/* requests */
	/* Microseconds. */
	uint64_t	bh_latency[PV_BLK_NCMDS][PV_BLK_BUCKETS];
};

/* What has a sysctl; a latency's is its command's. */
static const struct {
	int		cmd;
	const char	*name;
	const char	*descr;
} pv_blk_hist_table[] = {
	{ -1, "depth",
	    "Requests in flight when one was put, with it; each FROM:COUNT" },
	{ PV_BLK_READ, "read", "Microseconds that reads took; each FROM:COUNT"
	    },
	{ PV_BLK_WRITE, "write",
	    "Microseconds that writes took; each FROM:COUNT" },
	{ PV_BLK_FLUSH, "flush",
	    "Microseconds that flushes took; each FROM:COUNT" },
	{ PV_BLK_DELETE, "delete",
	    "Microseconds that deletes took; each FROM:COUNT" },
};

static void
pv_blk_hist_count(uint64_t *buckets, uint64_t value)
{
	u_int i = value == 0 ? 0 : flsll((long long)value) - 1;

	buckets[MIN(i, PV_BLK_BUCKETS - 1)]++;
}

void
pv_blk_hist_put(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	PV_BLK_QUEUE_ASSERT(bq);
	rq->rq_put_at = sbinuptime();
	pv_blk_hist_count(bq->bq_hist->bh_depth, bq->bq_ninflight + 1);
}

void
pv_blk_hist_got(struct pv_blk_queue *bq, struct pv_blk_req *rq)
{
	PV_BLK_QUEUE_ASSERT(bq);
	if (rq->rq_put_at == 0)
		return;
	pv_blk_hist_count(bq->bq_hist->bh_latency[rq->rq_cmd],
	    (uint64_t)sbttous(sbinuptime() - rq->rq_put_at));
	rq->rq_put_at = 0;
}

void
pv_blk_hist_begin(struct pv_blk *blk)
{
	struct pv_blk_hist *hists;
	struct pv_blk_queue *bq;
	u_int i;

	hists = mallocarray(blk->blk_params.bp_nqueues, sizeof(*hists), M_PVBLK,
	    M_WAITOK | M_ZERO);
	PV_BLK_LOCK(blk);
	if ((blk->blk_flags & PVB_HISTOGRAM) == 0) {
		for (i = 0; i < pv_blk_nreqs(blk); i++)
			blk->blk_reqs[i].rq_put_at = 0;
		if (blk->blk_hists == NULL) {
			PV_BLK_FOREACH(blk, bq)
				bq->bq_hist = &hists[bq->bq_index];
			blk->blk_hists = hists;
			hists = NULL;
		} else
			bzero(blk->blk_hists,
			    blk->blk_params.bp_nqueues * sizeof(*hists));
	}
	PV_BLK_UNLOCK(blk);
	free(hists, M_PVBLK);
}

void
pv_blk_hist_fini(struct pv_blk *blk)
{
	free(blk->blk_hists, M_PVBLK);
}

static int
pv_blk_sysctl_hist(SYSCTL_HANDLER_ARGS)
{
	struct pv_blk_queue *bq = arg1;
	const struct pv_blk_hist *bh = bq->bq_hist;
	const uint64_t *buckets;
	struct sbuf *sb;
	int error, i;

	sb = sbuf_new_auto();
	for (i = 0; bh != NULL && i < PV_BLK_BUCKETS; i++) {
		buckets = arg2 < 0 ? bh->bh_depth : bh->bh_latency[arg2];
		if (buckets[i] != 0)
			sbuf_printf(sb, "%s%ju:%ju",
			    sbuf_len(sb) == 0 ? "" : " ", (uintmax_t)(i == 0 &&
			    arg2 >= 0 ? 0 : 1ULL << i), (uintmax_t)buckets[i]);
	}
	error = sbuf_finish(sb);
	if (error == 0)
		error = sysctl_handle_string(oidp, sbuf_data(sb),
		    sbuf_len(sb) + 1, req);
	sbuf_delete(sb);
	return (error);
}

void
pv_blk_hist_sysctl(struct pv_blk_queue *bq, struct sysctl_ctx_list *ctx,
    struct sysctl_oid_list *parent)
{
	struct sysctl_oid *node;
	u_int i;

	node = SYSCTL_ADD_NODE(ctx, parent, OID_AUTO,
	    "histogram", CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
	    "Depth and latencies, in powers of two; see the disk's histogram");
	for (i = 0; i < nitems(pv_blk_hist_table); i++)
		SYSCTL_ADD_PROC(ctx, SYSCTL_CHILDREN(node), OID_AUTO,
		    pv_blk_hist_table[i].name, CTLTYPE_STRING |
		    CTLFLAG_RD | CTLFLAG_MPSAFE, bq, pv_blk_hist_table[i].cmd,
		    pv_blk_sysctl_hist, "A", pv_blk_hist_table[i].descr);
}
