/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The numbers of pv_blk, under dev.NAME.N.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/sysctl.h>

#include <dev/pv/pv_blk_var.h>

static const struct {
	size_t		offset;
	const char	*name;
	const char	*descr;
} pv_blk_stat_table[] = {
#define	STAT(name, descr)	{ offsetof(struct pv_blk_stats, bs_ ## name), #name, descr }
	STAT(bios, "Bios received"),
	STAT(requests, "Requests given to the device"),
	STAT(splits, "Requests that were a further piece of a bio"),
	STAT(bounced, "Requests that went through the bounce buffer"),
	STAT(deferred_kicks, "Notifications put off for a batch"),
	STAT(max_in_flight, "Requests in flight at most, in one queue"),
	STAT(io_errors, "Requests that the device failed"),
	STAT(unsupported, "Requests that the device does not support"),
	STAT(protocol_errors, "Answers that broke the protocol"),
	STAT(dma_errors, "Bios whose memory could not be mapped for the device"),
	STAT(nomem, "Times that memory for a request was short, tried again"),
	STAT(timeouts, "Requests reported for taking longer than the time-out"),
	STAT(requeued, "Requests put again after a reset"),
	STAT(resets, "Times that the device was reset"),
	STAT(resizes, "Times that the disk changed its size"),
	STAT(unlogged, "Messages left out, so that a bad disk does not fill the log"),
#undef STAT
};

static int
pv_blk_sysctl_batch(SYSCTL_HANDLER_ARGS)
{
	struct pv_blk *blk = arg1;
	u_int batch = blk->blk_batch;
	int error;

	error = sysctl_handle_int(oidp, &batch, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (batch < 1 || batch > PV_BLK_BATCH_MAX)
		return (EINVAL);
	blk->blk_batch = batch;
	return (0);
}

static int
pv_blk_sysctl_reset(SYSCTL_HANDLER_ARGS)
{
	struct pv_blk *blk = arg1;
	int error, value = 0;

	error = sysctl_handle_int(oidp, &value, 0, req);
	if (error == 0 && req->newptr != NULL && value != 0)
		pv_blk_reset(blk, 0);
	return (error);
}

/* The sum over the disk and its queues; of max_in_flight the greatest. */
static int
pv_blk_sysctl_stat(SYSCTL_HANDLER_ARGS)
{
	struct pv_blk *blk = arg1;
	struct pv_blk_queue *bq;
	uint64_t n, v;

	v = *(const uint64_t *)((const char *)&blk->blk_stats + arg2);
	PV_BLK_FOREACH(blk, bq) {
		n = *(const uint64_t *)((const char *)&bq->bq_stats + arg2);
		v = arg2 == offsetof(struct pv_blk_stats, bs_max_in_flight) ? MAX(v, n) : v + n;
	}
	return (sysctl_handle_64(oidp, &v, 0, req));
}

/* The sum over the queues of one of pvq's own counters. */
static int
pv_blk_sysctl_pvq(SYSCTL_HANDLER_ARGS)
{
	struct pv_blk *blk = arg1;
	struct pv_blk_queue *bq;
	uint64_t v = 0;

	PV_BLK_FOREACH(blk, bq) {
		if (bq->bq_pvq != NULL)
			v += *(uint64_t *)((char *)&bq->bq_pvq->q_stats + arg2);
	}
	return (sysctl_handle_64(oidp, &v, 0, req));
}

static int
pv_blk_sysctl_in_flight(SYSCTL_HANDLER_ARGS)
{
	struct pv_blk *blk = arg1;
	struct pv_blk_queue *bq;
	u_int n = 0;

	PV_BLK_FOREACH(blk, bq)
		n += bq->bq_ninflight;
	return (sysctl_handle_int(oidp, &n, 0, req));
}

/* What is counted in the queues goes with them. */
void
pv_blk_sysctl_queues(struct pv_blk *blk)
{
	struct sysctl_ctx_list *ctx = &blk->blk_queue_sysctl;
	struct pv_blk_queue *bq;
	struct sysctl_oid_list *top;
	struct sysctl_oid *node;

	sysctl_ctx_init(ctx);
	if (blk->blk_queues[0].bq_pvq == NULL)
		return;
	top = SYSCTL_CHILDREN(device_get_sysctl_tree(blk->blk_dev));
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO, "kicks", CTLTYPE_U64 | CTLFLAG_RD | CTLFLAG_MPSAFE, blk,
	    offsetof(struct pvq_stats, qs_kicks), pv_blk_sysctl_pvq, "QU",
	    "Notifications sent to the device");
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO, "interrupts",
	    CTLTYPE_U64 | CTLFLAG_RD | CTLFLAG_MPSAFE, blk, offsetof(struct pvq_stats, qs_intrs),
	    pv_blk_sysctl_pvq, "QU", "Interrupts taken for the queues");
	SYSCTL_ADD_UINT(ctx, top, OID_AUTO, "queues", CTLFLAG_RD, &blk->blk_nactive, 0,
	    "Queues in use");
	PV_BLK_FOREACH(blk, bq) {
		if (bq->bq_pvq == NULL)
			break;
		node = SYSCTL_ADD_NODE(ctx, top, OID_AUTO, bq->bq_pvq->q_name,
		    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "Statistics of the queue");
		pvq_sysctl(bq->bq_pvq, ctx, SYSCTL_CHILDREN(node));
	}
}

/* In a context of our own, so that they go before what they read. */
void
pv_blk_sysctl_attach(struct pv_blk *blk)
{
	struct sysctl_ctx_list *ctx = &blk->blk_sysctl;
	struct sysctl_oid_list *top;
	u_int i;

	sysctl_ctx_init(ctx);
	top = SYSCTL_CHILDREN(device_get_sysctl_tree(blk->blk_dev));
	for (i = 0; i < nitems(pv_blk_stat_table); i++)
		SYSCTL_ADD_PROC(ctx, top, OID_AUTO, pv_blk_stat_table[i].name,
		    CTLTYPE_U64 | CTLFLAG_RD | CTLFLAG_MPSAFE, blk,
		    (intmax_t)pv_blk_stat_table[i].offset, pv_blk_sysctl_stat, "QU",
		    pv_blk_stat_table[i].descr);
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO, "in_flight",
	    CTLTYPE_UINT | CTLFLAG_RD | CTLFLAG_MPSAFE, blk, 0, pv_blk_sysctl_in_flight, "IU",
	    "Requests in flight");
	SYSCTL_ADD_UINT(ctx, top, OID_AUTO, "timeout", CTLFLAG_RW, &blk->blk_timeout, 0,
	    "Seconds until a request without an answer is reported, 0: never");
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO, "batch", CTLTYPE_UINT | CTLFLAG_RW | CTLFLAG_MPSAFE, blk,
	    0, pv_blk_sysctl_batch, "IU",
	    "Requests a notification, and completions an interrupt, in a deep queue; 1: no batching");
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO, "reset", CTLTYPE_INT | CTLFLAG_RW | CTLFLAG_MPSAFE, blk,
	    0, pv_blk_sysctl_reset, "I", "Write 1 to reset the device and put its requests again");
}
