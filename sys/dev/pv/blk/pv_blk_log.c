/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What pv_blk prints of requests, at a bounded rate (theory statement, locking: pv_blk.h).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>

#include <dev/pv/blk/pv_blk_var.h>

/* Messages in each so many seconds; the rest is counted. */
#define	PV_BLK_LOG_MAX		10
#define	PV_BLK_LOG_SECS		10

static const char *const pv_blk_cmd_names[PV_BLK_NCMDS] = {
	[PV_BLK_READ] = "read",
	[PV_BLK_WRITE] = "write",
	[PV_BLK_FLUSH] = "flush",
	[PV_BLK_DELETE] = "delete",
	[PV_BLK_IDENT] = "ident",
	[PV_BLK_QUERY] = "query",
};

bool
pv_blk_may_log(struct pv_blk *blk)
{
	bool may;

	mtx_lock(&blk->blk_log_mtx);
	if (ticks - blk->blk_log_start >= PV_BLK_LOG_SECS * hz) {
		blk->blk_log_start = ticks;
		blk->blk_log_count = 0;
	}
	may = blk->blk_log_count++ < PV_BLK_LOG_MAX;
	if (!may)
		blk->blk_stats.bs_unlogged++;
	mtx_unlock(&blk->blk_log_mtx);
	return (may);
}

void
pv_blk_log_error(struct pv_blk *blk, const struct pv_blk_req *rq, int error)
{
	if (!pv_blk_may_log(blk))
		return;
	if (rq->rq_cmd == PV_BLK_FLUSH)
		device_printf(blk->blk_dev, "flush failed, error %d: writes since the last flush may "
		    "be lost\n", error);
	else
		device_printf(blk->blk_dev, "%s failed, error %d: sector %jd, %zu bytes\n",
		    pv_blk_cmd_names[rq->rq_cmd], error, (intmax_t)(rq->rq_offset / DEV_BSIZE),
		    rq->rq_length);
}

/* rq is in flight for age seconds; next says what follows. */
static void
pv_blk_log_age(struct pv_blk_queue *bq, const struct pv_blk_req *rq, u_int age, const char *next)
{
	struct pv_blk *blk = bq->bq_blk;

	if (!pv_blk_may_log(blk))
		return;
	device_printf(blk->blk_dev, "%s of sector %jd, %zu bytes, in %s: no answer for %u seconds, "
	    "%s\n", pv_blk_cmd_names[rq->rq_cmd], (intmax_t)(rq->rq_offset / DEV_BSIZE),
	    rq->rq_length, bq->bq_pvq->q_name, age, next);
}

bool
pv_blk_log_late(struct pv_blk_queue *bq)
{
	struct pv_blk *blk = bq->bq_blk;
	u_int age, late = blk->blk_timeout, stuck = blk->blk_timeout_reset;
	struct pv_blk_req *rq;

	PV_BLK_QUEUE_ASSERT(bq);
	TAILQ_FOREACH(rq, &bq->bq_inflight, rq_link) {
		age = pv_blk_req_age(rq);
		if (stuck != 0 && age >= stuck) {
			pv_blk_log_age(bq, rq, age,
			    (blk->blk_params.bp_flags & PV_BLK_QUEUE_RESET) != 0 ?
			    "resetting the queue" : "resetting the device");
			return (true);
		}
		/* The others were put later. */
		if (late == 0 || age < late)
			break;
		if (rq->rq_reported)
			continue;
		rq->rq_reported = true;
		rq->rq_fast = false;
		bq->bq_stats.bs_timeouts++;
		pv_blk_log_age(bq, rq, age, "still waiting");
	}
	return (false);
}
