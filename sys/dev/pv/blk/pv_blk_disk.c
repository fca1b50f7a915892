/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The disk of pv_blk: disk(9), sysctls, attach and detach, and bios of the
 * driver's own (theory statement, locking: pv_blk.h).
 *
 * These, the last flush and a query, go the way of all others.  Both are part
 * of struct pv_blk, so that they need no memory, and there is one of each at a
 * time.  When the disk is detached they end with what is queued or in flight,
 * before pv_blk_detach() returns.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/limits.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/smp.h>
#include <sys/sysctl.h>

#include <geom/geom_disk.h>

#include <dev/pv/pv_cpu.h>
#include <dev/pv/pv_log.h>
#include <dev/pv/blk/pv_blk_var.h>

MODULE_VERSION(pv_blk, 1);
MODULE_DEPEND(pv_blk, pv, 1, 1, 1);

PV_TUNABLES(pv_blk_tunables, hw, "pv_blk", pv_blk_tunables,
    "Paravirtual disks");

static const struct {
	size_t		offset;
	const char	*name;
	const char	*descr;
} pv_blk_stat_table[] = {
#define	STAT(name, descr)						\
	{ offsetof(struct pv_blk_stats, bs_ ## name), #name, descr }
	STAT(bios, "Bios received"),
	STAT(requests, "Requests submitted to the device"),
	STAT(fast, "Requests that took the fast path"),
	STAT(splits, "Requests that were a further piece of a bio"),
	STAT(bounced, "Requests that went through the bounce buffer"),
	STAT(merged_deletes, "Deletes that shared the request of another one"),
	STAT(deferred_kicks, "Notifications delayed for a batch"),
	STAT(yields, "Times that a queue with more to do yielded the thread"),
	STAT(max_in_flight,
	    "Most requests that were in flight at once in one queue"),
	STAT(io_errors, "Requests that the device failed"),
	STAT(unsupported, "Requests that the device does not support"),
	STAT(protocol_errors, "Completions that violated the protocol"),
	STAT(dma_errors,
	    "Bios whose memory could not be mapped, or did not fit into the queue"),
	STAT(nomem,
	    "Times that there was no memory for a request, which was retried"),
	STAT(timeouts, "Requests reported for taking longer than the time-out"),
	STAT(timeout_resets,
	    "Resets for a request that took longer than timeout_reset"),
	STAT(requeued, "Requests put again after a reset"),
	STAT(resizes, "Times that the disk changed its size"),
#undef STAT
};

static int
pv_blk_sysctl_batch(SYSCTL_HANDLER_ARGS)
{
	struct pv_blk *blk = arg1;
	int batch = blk->blk_batch, error;

	error = pv_sysctl_int(oidp, req, &batch, 1, PV_BLK_BATCH_MAX);
	if (error == 0)
		blk->blk_batch = batch;
	return (error);
}

static int
pv_blk_sysctl_reset(SYSCTL_HANDLER_ARGS)
{
	struct pv_blk *blk = arg1;
	int error, value = 0;

	error = pv_sysctl_int(oidp, req, &value, 0, 1);
	if (error == 0 && value != 0)
		pv_dev_need_reset(&blk->blk_pvdev, PV_DEV_ALL, ETIMEDOUT);
	return (error);
}

static int
pv_blk_sysctl_histogram(SYSCTL_HANDLER_ARGS)
{
	struct pv_blk *blk = arg1;
	int error, value = (blk->blk_flags & PVB_HISTOGRAM) != 0;

	error = pv_sysctl_int(oidp, req, &value, 0, 1);
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (value == 1)
		pv_blk_hist_begin(blk);
	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, value == 1 ? PVB_HISTOGRAM : 0,
	    value == 1 ? 0 : PVB_HISTOGRAM);
	PV_BLK_UNLOCK(blk);
	return (0);
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
		v = arg2 == offsetof(struct pv_blk_stats, bs_max_in_flight) ?
		    MAX(v, n) : v + n;
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

/* What is counted in the queues is removed with them. */
static void
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
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO, "kicks", CTLTYPE_U64 | CTLFLAG_RD |
	    CTLFLAG_MPSAFE, blk, offsetof(struct pvq_stats, qs_kicks),
	    pv_blk_sysctl_pvq, "QU", "Notifications sent to the device");
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO,
	    "interrupts", CTLTYPE_U64 | CTLFLAG_RD | CTLFLAG_MPSAFE,
	    blk, offsetof(struct pvq_stats, qs_intrs), pv_blk_sysctl_pvq, "QU",
	    "Interrupts taken for the queues");
	SYSCTL_ADD_UINT(ctx, top, OID_AUTO, "queues", CTLFLAG_RD,
	    &blk->blk_nactive, 0, "Queues in use");
	PV_BLK_FOREACH(blk, bq) {
		if (bq->bq_pvq == NULL)
			break;
		node = SYSCTL_ADD_NODE(ctx, top, OID_AUTO, bq->bq_pvq->q_name,
		    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
		    "Statistics of the queue");
		pvq_sysctl(bq->bq_pvq, ctx, SYSCTL_CHILDREN(node));
		pv_blk_hist_sysctl(bq, ctx, SYSCTL_CHILDREN(node));
	}
}

/* In a context of our own, so that they are removed before what they read. */
static void
pv_blk_sysctl_attach(struct pv_blk *blk)
{
	const struct pv_tunable *tunables = blk->blk_params.bp_tunables;
	struct sysctl_ctx_list *ctx = &blk->blk_sysctl;
	struct sysctl_oid_list *top;
	u_int i;

	sysctl_ctx_init(ctx);
	top = SYSCTL_CHILDREN(device_get_sysctl_tree(blk->blk_dev));
	for (i = 0; i < nitems(pv_blk_stat_table); i++)
		SYSCTL_ADD_PROC(ctx, top, OID_AUTO, pv_blk_stat_table[i].name,
		    CTLTYPE_U64 | CTLFLAG_RD | CTLFLAG_MPSAFE, blk,
		    (intmax_t)pv_blk_stat_table[i].offset, pv_blk_sysctl_stat,
		    "QU", pv_blk_stat_table[i].descr);
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO,
	    "in_flight", CTLTYPE_UINT | CTLFLAG_RD | CTLFLAG_MPSAFE, blk, 0,
	    pv_blk_sysctl_in_flight, "IU", "Requests in flight");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "delete_size", CTLFLAG_RD, &blk->blk_params.bp_delete_size, 0,
	    "Bytes that are deleted by a request at most; 0: none");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "delete_align", CTLFLAG_RD, &blk->blk_params.bp_delete_align, 0,
	    "Bytes that are freed only as a whole");
	pv_dev_sysctl(&blk->blk_pvdev, ctx, top);
	pv_tunable_add(ctx, top, NULL, &tunables[PV_BLK_TIMEOUT],
	    &blk->blk_timeout);
	pv_tunable_add(ctx, top, NULL, &tunables[PV_BLK_TIMEOUT_RESET],
	    &blk->blk_timeout_reset);
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO, "histogram", CTLTYPE_INT |
	    CTLFLAG_RW | CTLFLAG_MPSAFE, blk, 0, pv_blk_sysctl_histogram, "I",
	    "Count depths and latencies of each queue; from 0 on when it is set to 1");
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO, "batch", CTLTYPE_UINT | CTLFLAG_RW |
	    CTLFLAG_MPSAFE, blk, 0, pv_blk_sysctl_batch, "IU",
	    "Most requests per notification; 1: no coalescing");
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO, "reset", CTLTYPE_INT | CTLFLAG_RW |
	    CTLFLAG_MPSAFE, blk, 0, pv_blk_sysctl_reset, "I",
	    "Write 1 to reset the device and put its requests again");
}

u_int
pv_blk_nqueues(u_int offered, int wanted)
{
	u_int n = pv_queue_count(offered, MIN(wanted, mp_ncpus));

	return (MIN(n, PV_BLK_QUEUES_MAX));
}

void
pv_blk_set_stripe(struct pv_blk_params *params, uint64_t size, uint64_t first)
{
	if (params->bp_stripesize != 0 || size <= params->bp_sectorsize ||
	    size > UINT_MAX || size % params->bp_sectorsize != 0)
		return;
	params->bp_stripesize = size;
	/* GEOM takes the offset of the disk within a stripe. */
	params->bp_stripeoffset = (size - first % size) % size;
}

/* What is no number of sectors is not used. */
static void
pv_blk_check_delete(struct pv_blk_params *bp)
{
	bp->bp_delete_size = rounddown2(bp->bp_delete_size, bp->bp_sectorsize);
	if (bp->bp_delete_align == 0 ||
	    bp->bp_delete_align % bp->bp_sectorsize != 0 ||
	    bp->bp_delete_first % bp->bp_sectorsize != 0) {
		bp->bp_delete_align = bp->bp_sectorsize;
		bp->bp_delete_first = 0;
	}
	bp->bp_delete_first %= bp->bp_delete_align;
}

/*
 * A sector must fit into one request, and the segments of the largest bio into
 * our arrays.
 */
static int
pv_blk_check(struct pv_blk *blk)
{
	struct pv_blk_params *bp = &blk->blk_params;
	uint64_t fits;

	bp->bp_max_segs = MIN(bp->bp_max_segs, maxphys / PAGE_SIZE + 1);
	bp->bp_seg_size = MIN(bp->bp_seg_size, maxphys);
	fits = (uint64_t)bp->bp_max_segs * bp->bp_seg_size;
	if (bp->bp_max_size == 0 || bp->bp_max_size > fits)
		bp->bp_max_size = fits;
	bp->bp_max_size = rounddown2(MIN(bp->bp_max_size, maxphys),
	    bp->bp_sectorsize);
	if (bp->bp_max_size == 0) {
		device_printf(blk->blk_dev,
		    "a sector of %u bytes does not fit into %u segments of "
		    "%ju bytes: the device can't be used\n", bp->bp_sectorsize,
		    bp->bp_max_segs, (uintmax_t)bp->bp_seg_size);
		return (EINVAL);
	}
	blk->blk_alloc_size = bp->bp_max_size;
	/*
	 * Nothing is written, so that nothing is to be flushed, which some
	 * devices refuse here.
	 */
	if ((bp->bp_flags & PV_BLK_READONLY) != 0)
		bp->bp_flags &= ~PV_BLK_CACHED;
	pv_blk_check_delete(bp);
	KASSERT(bp->bp_nqueues >= 1 && bp->bp_nqueues <= PV_BLK_QUEUES_MAX,
	    ("%s: %u queues", __func__, bp->bp_nqueues));
	return (0);
}

void
pv_blk_fini(struct pv_blk *blk)
{
	KASSERT(blk->blk_disk == NULL, ("%s: still a disk", __func__));
	pv_dev_fini(&blk->blk_pvdev);
	pv_blk_req_fini(blk);
	pv_blk_queues_fini(blk);
	pv_blk_hist_fini(blk);
	mtx_destroy(&blk->blk_mtx);
}

int
pv_blk_init(struct pv_blk *blk, device_t dev, const struct pv_blk_ops *ops,
    const struct pv_blk_params *params)
{
	int error;

	bzero(blk, sizeof(*blk));
	blk->blk_dev = dev;
	blk->blk_ops = ops;
	blk->blk_params = *params;
	blk->blk_batch = params->bp_batch != 0 ? params->bp_batch :
	    PV_BLK_BATCH;
	blk->blk_timeout = pv_tunable_get(&params->bp_tunables[PV_BLK_TIMEOUT],
	    dev);
	blk->blk_timeout_reset =
	    pv_tunable_get(&params->bp_tunables[PV_BLK_TIMEOUT_RESET], dev);
	error = pv_blk_check(blk);
	if (error != 0)
		return (error);
	error = pv_blk_recover_init(blk);
	if (error != 0)
		return (error);
	mtx_init(&blk->blk_mtx, device_get_nameunit(dev), "pv_blk", MTX_DEF);
	TAILQ_INIT(&blk->blk_waiting);
	blk->blk_flags = PVB_STOPPED;
	pv_blk_queues_init(blk, pv_blk_intr);
	error = pv_blk_req_init(blk);
	if (error != 0) {
		device_printf(dev, "no memory for requests, error %d\n", error);
		pv_blk_fini(blk);
	}
	return (error);
}

/* disk(9) will not call us any more. */
static void
pv_blk_gone(struct disk *dp)
{
	struct pv_blk *blk = dp->d_drv1;

	PV_BLK_LOCK(blk);
	blk->blk_flags |= PVB_GONE;
	wakeup(&blk->blk_disk);
	PV_BLK_UNLOCK(blk);
}

static int
pv_blk_open(struct disk *dp)
{
	struct pv_blk *blk = dp->d_drv1;

	PV_BLK_LOCK(blk);
	blk->blk_open = true;
	PV_BLK_UNLOCK(blk);
	return (0);
}

static int
pv_blk_close(struct disk *dp)
{
	struct pv_blk *blk = dp->d_drv1;

	PV_BLK_LOCK(blk);
	blk->blk_open = false;
	PV_BLK_UNLOCK(blk);
	if (blk->blk_ops->bo_closed != NULL)
		blk->blk_ops->bo_closed(blk);
	return (0);
}

/*
 * Tells GEOM whether the disk deletes: bios of any length, which are cut here.
 */
static void
pv_blk_offer_delete(const struct pv_blk_params *bp, struct disk *dp)
{
	if (bp->bp_delete_size == 0 || (bp->bp_flags & PV_BLK_READONLY) != 0) {
		dp->d_flags &= ~DISKFLAG_CANDELETE;
		return;
	}
	dp->d_delmaxsize = rounddown2(LONG_MAX, bp->bp_sectorsize);
	dp->d_flags |= DISKFLAG_CANDELETE;
}

static struct disk *
pv_blk_make_disk(struct pv_blk *blk)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	struct disk *dp;

	dp = disk_alloc();
	dp->d_drv1 = blk;
	dp->d_name = bp->bp_diskname;
	dp->d_unit = device_get_unit(blk->blk_dev);
	dp->d_open = pv_blk_open;
	dp->d_close = pv_blk_close;
	dp->d_strategy = pv_blk_strategy;
	if ((bp->bp_flags & PV_BLK_READONLY) == 0)
		dp->d_dump = pv_blk_dump;
	dp->d_gone = pv_blk_gone;
	dp->d_flags = DISKFLAG_UNMAPPED_BIO | DISKFLAG_DIRECT_COMPLETION;
	if ((bp->bp_flags & PV_BLK_READONLY) != 0)
		dp->d_flags |= DISKFLAG_WRITE_PROTECT;
	if ((bp->bp_flags & PV_BLK_CACHED) != 0)
		dp->d_flags |= DISKFLAG_CANFLUSHCACHE;
	pv_blk_offer_delete(bp, dp);
	dp->d_sectorsize = bp->bp_sectorsize;
	dp->d_mediasize = bp->bp_mediasize;
	/*
	 * Larger than one request may be: bios are split where their memory
	 * makes it necessary.
	 */
	dp->d_maxsize = maxphys;
	dp->d_stripesize = bp->bp_stripesize;
	dp->d_stripeoffset = bp->bp_stripeoffset;
	dp->d_fwheads = bp->bp_fwheads;
	dp->d_fwsectors = bp->bp_fwsectors;
	dp->d_rotation_rate = DISK_RR_UNKNOWN;
	strlcpy(dp->d_descr, bp->bp_descr, sizeof(dp->d_descr));
	strlcpy(dp->d_attachment,
	    device_get_nameunit(device_get_parent(blk->blk_dev)),
	    sizeof(dp->d_attachment));
	return (dp);
}

void
pv_blk_set_queues(struct pv_blk *blk, struct pvq *const *qs, u_int n)
{
	u_int i;

	sysctl_ctx_free(&blk->blk_queue_sysctl);
	pv_blk_queues_use(blk, qs, n);
	for (i = 0; i < blk->blk_params.bp_nqueues; i++)
		pv_dev_adopt(&blk->blk_pvdev, i, i < n ? qs[i] : NULL);
	pv_blk_sysctl_queues(blk);
}

int
pv_blk_attach(struct pv_blk *blk, struct pvq *const *qs, u_int n)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	char ident[DISK_IDENT_SIZE] = "";
	int error;

	sysctl_ctx_init(&blk->blk_queue_sysctl);
	pv_blk_set_queues(blk, qs, n);
	pv_blk_go_live(blk);
	error = pv_blk_ident(blk, ident, sizeof(ident));
	if (error == ETIMEDOUT) {
		device_printf(blk->blk_dev,
		    "the device does not answer requests\n");
		/* It is not given PV_BLK_IDLE_SECS once more. */
		PV_BLK_LOCK(blk);
		pv_blk_set_flags(blk, PVB_DEAD, 0);
		PV_BLK_UNLOCK(blk);
		pv_blk_shut(blk);
		/* Not before, as a start may set more queues. */
		sysctl_ctx_free(&blk->blk_queue_sysctl);
		pv_blk_quiet(blk);
		return (error);
	}
	pv_blk_sysctl_attach(blk);
	blk->blk_disk = pv_blk_make_disk(blk);
	strlcpy(blk->blk_disk->d_ident, ident, sizeof(blk->blk_disk->d_ident));
	device_printf(blk->blk_dev, "%ju MB (%ju sectors of %u bytes)%s\n",
	    (uintmax_t)(bp->bp_mediasize >> 20),
	    (uintmax_t)(bp->bp_mediasize / bp->bp_sectorsize),
	    bp->bp_sectorsize,
	    (bp->bp_flags & PV_BLK_READONLY) != 0 ? ", read-only" : "");
	disk_create(blk->blk_disk, DISK_VERSION);
	return (0);
}

void
pv_blk_detach(struct pv_blk *blk)
{
	struct disk *dp = blk->blk_disk;
	int i;

	disk_gone(dp);
	pv_blk_shut(blk);
	PV_BLK_LOCK(blk);
	for (i = 1; (blk->blk_flags & PVB_GONE) == 0; i++) {
		msleep(&blk->blk_disk, &blk->blk_mtx, PRIBIO, "pvblkg", hz);
		if (i % 30 == 0)
			device_printf(blk->blk_dev,
			    "waiting for users of the disk\n");
	}
	PV_BLK_UNLOCK(blk);
	disk_destroy(dp);
	blk->blk_disk = NULL;
	sysctl_ctx_free(&blk->blk_queue_sysctl);
	sysctl_ctx_free(&blk->blk_sysctl);
	pv_blk_quiet(blk);
}

int
pv_blk_quiesce(struct pv_blk *blk)
{
	return (blk->blk_open ? EBUSY : 0);
}

void
pv_blk_resize(struct pv_blk *blk, uint64_t mediasize)
{
	struct disk *dp;
	uint64_t old;

	PV_BLK_LOCK(blk);
	dp = blk->blk_disk;
	old = blk->blk_params.bp_mediasize;
	if (dp != NULL && mediasize != old &&
	    (blk->blk_flags & (PVB_DETACHING | PVB_DUMPING)) == 0) {
		blk->blk_params.bp_mediasize = mediasize;
		dp->d_mediasize = mediasize;
		/*
		 * Does not sleep, and the lock keeps the disk from being
		 * destroyed.
		 */
		if (disk_resize(dp, M_NOWAIT) != 0)
			blk->blk_params.bp_mediasize = dp->d_mediasize = old;
		else if (PV_LOGS(++blk->blk_stats.bs_resizes))
			device_printf(blk->blk_dev,
			    "the disk is now %ju MB, was %ju MB\n",
			    (uintmax_t)(mediasize >> 20),
			    (uintmax_t)(old >> 20));
	}
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_set_delete(struct pv_blk *blk, const struct pv_blk_params *params)
{
	struct pv_blk_params *bp = &blk->blk_params;

	PV_BLK_LOCK(blk);
	KASSERT((blk->blk_flags & PVB_FROZEN) != 0,
	    ("%s: not frozen", __func__));
	bp->bp_delete_size = params->bp_delete_size;
	bp->bp_delete_align = params->bp_delete_align;
	bp->bp_delete_first = params->bp_delete_first;
	pv_blk_check_delete(bp);
	if (blk->blk_disk != NULL)
		pv_blk_offer_delete(bp, blk->blk_disk);
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_set_max_size(struct pv_blk *blk, size_t size)
{
	struct pv_blk_params *bp = &blk->blk_params;

	PV_BLK_LOCK(blk);
	KASSERT((blk->blk_flags & PVB_STOPPED) != 0,
	    ("%s: the device is live", __func__));
	KASSERT(size >= bp->bp_sectorsize, ("%s: %zu bytes", __func__, size));
	bp->bp_max_size = rounddown2(MIN(size, blk->blk_alloc_size),
	    bp->bp_sectorsize);
	PV_BLK_UNLOCK(blk);
}

static void
pv_blk_own_submit(struct pv_blk *blk, struct bio *bp, int cmd, int flags,
    void *data, size_t size, void (*done)(struct bio *))
{
	bzero(bp, sizeof(*bp));
	bp->bio_cmd = cmd;
	bp->bio_flags = flags;
	bp->bio_data = data;
	bp->bio_length = bp->bio_bcount = size;
	bp->bio_done = done;
	bp->bio_caller1 = blk;
	pv_blk_bio_init(bp);
	pv_blk_submit(blk, bp);
}

/*
 * The last flush is done: what the device had cached is durable, unless it
 * failed, or the device was set to write back and through once more meanwhile.
 */
static void
pv_blk_emptied(struct bio *bp)
{
	struct pv_blk *blk = bp->bio_caller1;
	bool again;

	PV_BLK_LOCK(blk);
	again = blk->blk_through && blk->blk_empty_again;
	blk->blk_empty_again = false;
	blk->blk_emptying = again;
	if (blk->blk_through && !again && (bp->bio_flags & BIO_ERROR) == 0)
		pv_blk_set_flags(blk, PVB_WRITETHROUGH, 0);
	PV_BLK_UNLOCK(blk);
	if (again)
		pv_blk_own_submit(blk, bp, BIO_FLUSH, BIO_ORDERED, NULL, 0,
		    pv_blk_emptied);
}

void
pv_blk_set_writethrough(struct pv_blk *blk, bool on)
{
	PV_BLK_LOCK(blk);
	blk->blk_through = on;
	blk->blk_empty_again = false;
	pv_blk_set_flags(blk, on ? PVB_WRITETHROUGH : 0,
	    on ? 0 : PVB_WRITETHROUGH);
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_end_caching(struct pv_blk *blk)
{
	bool start;

	PV_BLK_LOCK(blk);
	if ((blk->blk_flags & PVB_WRITETHROUGH) != 0 || blk->blk_disk == NULL ||
	    (blk->blk_params.bp_flags & PV_BLK_CACHED) == 0) {
		PV_BLK_UNLOCK(blk);
		pv_blk_set_writethrough(blk, true);
		return;
	}
	blk->blk_through = true;
	start = !blk->blk_emptying;
	blk->blk_emptying = true;
	blk->blk_empty_again = !start;
	PV_BLK_UNLOCK(blk);
	/*
	 * A barrier: what was in flight when the device changed its mode may be
	 * in its cache too.
	 */
	if (start)
		pv_blk_own_submit(blk, &blk->blk_last_flush, BIO_FLUSH,
		    BIO_ORDERED, NULL, 0, pv_blk_emptied);
}

static void
pv_blk_answered(struct bio *bp)
{
	struct pv_blk *blk = bp->bio_caller1;

	PV_BLK_LOCK(blk);
	blk->blk_querying = blk->blk_query_late = false;
	wakeup(&blk->blk_query);
	PV_BLK_UNLOCK(blk);
}

int
pv_blk_query(struct pv_blk *blk, void *buf, size_t size, u_int secs)
{
	struct bio *bp = &blk->blk_query;
	int error = 0;

	KASSERT(size != 0 && size <= sizeof(blk->blk_answer),
	    ("%s: %zu bytes", __func__, size));
	PV_BLK_LOCK(blk);
	while (blk->blk_querying && !blk->blk_query_late && error == 0)
		error = msleep(bp, &blk->blk_mtx, PRIBIO, "pvblkq", secs * hz);
	if (blk->blk_querying) {
		PV_BLK_UNLOCK(blk);
		return (EBUSY);
	}
	blk->blk_querying = true;
	PV_BLK_UNLOCK(blk);
	pv_blk_own_submit(blk, bp, PV_BLK_BIO_QUERY, 0, blk->blk_answer, size,
	    pv_blk_answered);
	PV_BLK_LOCK(blk);
	for (error = 0; blk->blk_querying && error == 0;)
		error = msleep(bp, &blk->blk_mtx, PRIBIO, "pvblkq", secs * hz);
	if (blk->blk_querying)
		blk->blk_query_late = true;
	else if ((bp->bio_flags & BIO_ERROR) != 0)
		error = bp->bio_error;
	else {
		memcpy(buf, blk->blk_answer, size);
		error = 0;
	}
	PV_BLK_UNLOCK(blk);
	return (error);
}
