/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_blk's disk: memory, disk(9), attach and detach (theory statement, locking: pv_blk.h).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/smp.h>

#include <geom/geom_disk.h>

#include <dev/pv/pv_blk_var.h>

MODULE_VERSION(pv_blk, 1);
MODULE_DEPEND(pv_blk, pv, 1, 1, 1);

static MALLOC_DEFINE(M_PVBLK, "pv_blk", "paravirtual disks");

u_int
pv_blk_nqueues(u_int offered, int wanted)
{
	u_int n = wanted > 0 ? wanted : mp_ncpus;

	return (MIN(MIN(n, (u_int)mp_ncpus), MIN(MAX(offered, 1), PV_BLK_QUEUES_MAX)));
}

int
pv_blk_queue_cpu(u_int i, u_int n)
{
	u_int cpu;

	if (n == 1)
		return (-1);
	/* As pv_blk_select() chooses. */
	CPU_FOREACH(cpu) {
		if (cpu % n == i)
			return (cpu);
	}
	return (-1);
}

void
pv_blk_set_flags(struct pv_blk *blk, u_int set, u_int clear)
{
	struct pv_blk_queue *bq;

	PV_BLK_ASSERT(blk);
	blk->blk_flags = (blk->blk_flags | set) & ~clear;
	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		bq->bq_flags = blk->blk_flags;
		mtx_unlock(&bq->bq_mtx);
	}
}

/* Requests of all queues; there is one more, for polling. */
static u_int
pv_blk_nreqs(const struct pv_blk *blk)
{
	return (blk->blk_params.bp_nqueues * blk->blk_params.bp_nreqs);
}

/* A sector must fit into one request, and the segments of the largest bio into our arrays. */
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
	bp->bp_max_size = rounddown2(MIN(bp->bp_max_size, maxphys), bp->bp_sectorsize);
	if (bp->bp_max_size == 0) {
		device_printf(blk->blk_dev, "a sector of %u bytes does not fit into %u segments of "
		    "%ju bytes: the device can't be used\n", bp->bp_sectorsize, bp->bp_max_segs,
		    (uintmax_t)bp->bp_seg_size);
		return (EINVAL);
	}
	blk->blk_made_size = bp->bp_max_size;
	bp->bp_delete_size = rounddown2(bp->bp_delete_size, bp->bp_sectorsize);
	KASSERT(bp->bp_nqueues >= 1 && bp->bp_nqueues <= PV_BLK_QUEUES_MAX,
	    ("%s: %u queues", __func__, bp->bp_nqueues));
	return (0);
}

static void
pv_blk_addr_cb(void *arg, bus_dma_segment_t *segs, int nsegs __unused, int error)
{
	if (error == 0)
		*(bus_addr_t *)arg = segs[0].ds_addr;
}

/* DMA memory in one piece; coherent, zeroed. */
static int
pv_blk_dmamem(struct pv_blk *blk, bus_size_t size, bus_dma_tag_t *tagp, bus_dmamap_t *mapp,
    void *vaddrp, bus_addr_t *paddrp)
{
	void **vp = vaddrp;
	int error;

	error = bus_dma_tag_create(bus_get_dma_tag(blk->blk_dev), PAGE_SIZE, 0, BUS_SPACE_MAXADDR,
	    BUS_SPACE_MAXADDR, NULL, NULL, size, 1, size, 0, NULL, NULL, tagp);
	if (error != 0)
		return (error);
	error = bus_dmamem_alloc(*tagp, vp, BUS_DMA_WAITOK | BUS_DMA_ZERO | BUS_DMA_COHERENT, mapp);
	if (error != 0) {
		*vp = NULL;
		return (error);
	}
	*paddrp = 0;
	error = bus_dmamap_load(*tagp, *mapp, *vp, size, pv_blk_addr_cb, paddrp, BUS_DMA_NOWAIT);
	return (error != 0 || *paddrp != 0 ? error : ENOMEM);
}

static void
pv_blk_dmamem_free(bus_dma_tag_t tag, bus_dmamap_t map, void *vaddr, bus_addr_t paddr)
{
	if (paddr != 0)
		bus_dmamap_unload(tag, map);
	if (vaddr != NULL)
		bus_dmamem_free(tag, vaddr, map);
	if (tag != NULL)
		bus_dma_tag_destroy(tag);
}

static int
pv_blk_alloc_tags(struct pv_blk *blk)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	struct pv_blk_queue *bq;
	int error = 0;

	PV_BLK_FOREACH(blk, bq) {
		if (error == 0 && !bp->bp_phys)
			error = bus_dma_tag_create(bus_get_dma_tag(blk->blk_dev), 1, 0,
			    BUS_SPACE_MAXADDR, BUS_SPACE_MAXADDR, NULL, NULL, bp->bp_max_size,
			    (int)bp->bp_max_segs, bp->bp_seg_size, BUS_DMA_ALLOCNOW, NULL, NULL,
			    &bq->bq_dtag);
	}
	return (error);
}

static int
pv_blk_alloc_dma(struct pv_blk *blk)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	int error;

	error = pv_blk_alloc_tags(blk);
	if (error == 0)
		error = pv_blk_dmamem(blk, (pv_blk_nreqs(blk) + 1) * bp->bp_msgsize, &blk->blk_mtag,
		    &blk->blk_mmap, &blk->blk_msgs, &blk->blk_msgs_paddr);
	if (bp->bp_stages != NULL) {
		/* The polled request has its own. */
		blk->blk_bounce = bp->bp_stages[pv_blk_nreqs(blk)];
		blk->blk_bounce_size = bp->bp_max_size;
		return (error);
	}
	blk->blk_bounce_size = MIN(bp->bp_max_size,
	    MAX(PV_BLK_BOUNCE_MAX, bp->bp_sectorsize));
	if (error == 0)
		error = pv_blk_dmamem(blk, blk->blk_bounce_size, &blk->blk_btag, &blk->blk_bmap,
		    &blk->blk_bounce, &blk->blk_bounce_paddr);
	return (error);
}

static int
pv_blk_alloc_reqs(struct pv_blk *blk)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	struct pv_blk_req *rq;
	u_int i, nreqs = pv_blk_nreqs(blk), nsegs = bp->bp_max_segs + 2;
	int error = 0;

	blk->blk_reqs = mallocarray(nreqs + 1, sizeof(*rq), M_PVBLK, M_WAITOK | M_ZERO);
	blk->blk_segs = mallocarray(nreqs + 1, nsegs * sizeof(*blk->blk_segs), M_PVBLK,
	    M_WAITOK | M_ZERO);
	for (i = 0; i <= nreqs; i++) {
		rq = &blk->blk_reqs[i];
		rq->rq_home = i < nreqs ? i / bp->bp_nreqs : 0;
		if (!bp->bp_phys)
			error = bus_dmamap_create(pv_blk_dtag(blk, rq), 0, &rq->rq_map);
		if (error != 0) {
			rq->rq_map = NULL;
			rq->rq_segs = NULL;
			return (error);
		}
		rq->rq_segs = blk->blk_segs + i * nsegs;
		rq->rq_stage = bp->bp_stages != NULL ? bp->bp_stages[i] : NULL;
		rq->rq_msg = blk->blk_msgs + i * bp->bp_msgsize;
		rq->rq_msg_paddr = blk->blk_msgs_paddr + i * bp->bp_msgsize;
		/* pv_blk_set_queues() deals them. */
		if (i < nreqs)
			TAILQ_INSERT_TAIL(&blk->blk_queues[0].bq_free, rq, rq_link);
	}
	return (0);
}

/* Frees what is there, from any stage of pv_blk_init(). */
static void
pv_blk_free_all(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;
	u_int i;

	for (i = 0; blk->blk_reqs != NULL && i <= pv_blk_nreqs(blk); i++) {
		/* rq_segs is set after the map was made, which may be NULL. */
		if (blk->blk_reqs[i].rq_segs != NULL && !blk->blk_params.bp_phys)
			bus_dmamap_destroy(pv_blk_dtag(blk, &blk->blk_reqs[i]),
			    blk->blk_reqs[i].rq_map);
	}
	free(blk->blk_segs, M_PVBLK);
	free(blk->blk_reqs, M_PVBLK);
	if (blk->blk_params.bp_stages != NULL)
		blk->blk_bounce = NULL;
	if ((blk->blk_flags & PVB_LEAK) != 0)
		device_printf(blk->blk_dev, "the device did not let go of its memory: leaking it\n");
	else {
		pv_blk_dmamem_free(blk->blk_btag, blk->blk_bmap, blk->blk_bounce,
		    blk->blk_bounce_paddr);
		pv_blk_dmamem_free(blk->blk_mtag, blk->blk_mmap, blk->blk_msgs,
		    blk->blk_msgs_paddr);
	}
	PV_BLK_FOREACH(blk, bq) {
		if (bq->bq_dtag != NULL)
			bus_dma_tag_destroy(bq->bq_dtag);
		mtx_destroy(&bq->bq_mtx);
	}
	mtx_destroy(&blk->blk_log_mtx);
	mtx_destroy(&blk->blk_mtx);
}

static void
pv_blk_init_queue(struct pv_blk *blk, struct pv_blk_queue *bq)
{
	bq->bq_blk = blk;
	bq->bq_index = bq - blk->blk_queues;
	bq->bq_flags = blk->blk_flags;
	snprintf(bq->bq_name, sizeof(bq->bq_name), "%s.%u", device_get_nameunit(blk->blk_dev),
	    bq->bq_index);
	/* pv_blk_set_queues() locks all of them. */
	mtx_init(&bq->bq_mtx, bq->bq_name, "pv_blk queue", MTX_DEF | MTX_DUPOK);
	TAILQ_INIT(&bq->bq_bios);
	TAILQ_INIT(&bq->bq_finished);
	TAILQ_INIT(&bq->bq_free);
	TAILQ_INIT(&bq->bq_ready);
	TAILQ_INIT(&bq->bq_inflight);
	callout_init(&bq->bq_tick, 1);
}

int
pv_blk_init(struct pv_blk *blk, device_t dev, const struct pv_blk_ops *ops,
    const struct pv_blk_params *params)
{
	struct pv_blk_queue *bq;
	int error;

	bzero(blk, sizeof(*blk));
	blk->blk_dev = dev;
	blk->blk_ops = ops;
	blk->blk_params = *params;
	blk->blk_batch = params->bp_batch != 0 ? params->bp_batch : PV_BLK_BATCH;
	blk->blk_timeout = PV_BLK_TIMEOUT;
	error = pv_blk_check(blk);
	if (error != 0)
		return (error);
	mtx_init(&blk->blk_mtx, device_get_nameunit(dev), "pv_blk", MTX_DEF);
	mtx_init(&blk->blk_log_mtx, device_get_nameunit(dev), "pv_blk log", MTX_DEF);
	TAILQ_INIT(&blk->blk_waiting);
	blk->blk_flags = PVB_STOPPED;
	blk->blk_nactive = 1;
	PV_BLK_FOREACH(blk, bq)
		pv_blk_init_queue(blk, bq);
	callout_init(&blk->blk_watchdog, 1);
	TIMEOUT_TASK_INIT(taskqueue_thread, &blk->blk_reset_task, 0, pv_blk_reset_task, blk);
	error = pv_blk_alloc_dma(blk);
	if (error == 0)
		error = pv_blk_alloc_reqs(blk);
	if (error != 0) {
		device_printf(dev, "no memory for requests, error %d\n", error);
		pv_blk_free_all(blk);
	}
	return (error);
}

void
pv_blk_fini(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;

	KASSERT(blk->blk_disk == NULL, ("%s: still a disk", __func__));
	PV_BLK_FOREACH(blk, bq)
		KASSERT(bq->bq_ninflight == 0 && TAILQ_EMPTY(&bq->bq_ready),
		    ("%s: %u requests left", __func__, bq->bq_ninflight));
	pv_blk_free_all(blk);
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
	dp->d_dump = pv_blk_dump;
	dp->d_gone = pv_blk_gone;
	dp->d_flags = DISKFLAG_UNMAPPED_BIO | DISKFLAG_DIRECT_COMPLETION;
	if ((bp->bp_flags & PV_BLK_READONLY) != 0)
		dp->d_flags |= DISKFLAG_WRITE_PROTECT;
	if ((bp->bp_flags & PV_BLK_CACHED) != 0)
		dp->d_flags |= DISKFLAG_CANFLUSHCACHE;
	if (bp->bp_delete_size != 0) {
		dp->d_flags |= DISKFLAG_CANDELETE;
		dp->d_delmaxsize = bp->bp_delete_size;
	}
	dp->d_sectorsize = bp->bp_sectorsize;
	dp->d_mediasize = bp->bp_mediasize;
	/* Larger than one request may be: we split where the memory makes it necessary. */
	dp->d_maxsize = maxphys;
	dp->d_stripesize = bp->bp_stripesize;
	dp->d_stripeoffset = bp->bp_stripeoffset;
	dp->d_fwheads = bp->bp_fwheads;
	dp->d_fwsectors = bp->bp_fwsectors;
	dp->d_rotation_rate = DISK_RR_UNKNOWN;
	strlcpy(dp->d_descr, bp->bp_descr, sizeof(dp->d_descr));
	strlcpy(dp->d_attachment, device_get_nameunit(device_get_parent(blk->blk_dev)),
	    sizeof(dp->d_attachment));
	return (dp);
}

int
pv_blk_quiesce(struct pv_blk *blk)
{
	return (blk->blk_open ? EBUSY : 0);
}

/* How much is in flight; *hope: may it end by itself? */
static u_int
pv_blk_in_flight(struct pv_blk *blk, bool *hope)
{
	struct pv_blk_queue *bq;
	u_int n = 0;

	*hope = (blk->blk_flags & (PVB_STOPPED | PVB_DEAD)) == 0;
	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		n += bq->bq_ninflight;
		if (bq->bq_pvq != NULL && pvq_broken(bq->bq_pvq))
			*hope = false;
		mtx_unlock(&bq->bq_mtx);
	}
	return (n);
}

u_int
pv_blk_wait_idle(struct pv_blk *blk, u_int secs)
{
	bool hope;
	u_int n;

	PV_BLK_ASSERT(blk);
	while ((n = pv_blk_in_flight(blk, &hope)) != 0 && hope && secs-- > 0)
		msleep(&blk->blk_queues, &blk->blk_mtx, PRIBIO, "pvblki", hz);
	return (n);
}

/* After this nothing is queued, nothing is in flight, and nothing is accepted. */
static void
pv_blk_shut(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;
	u_int left;
	int error;

	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, PVB_DETACHING, 0);
	while ((blk->blk_flags & PVB_RESETTING) != 0)
		msleep(&blk->blk_flags, &blk->blk_mtx, PRIBIO, "pvblkr", hz);
	pv_blk_fail_waiting(blk, ENXIO);
	PV_BLK_UNLOCK(blk);
	/* Completions must not wait for a batch that will not come. */
	pv_blk_run(blk);
	PV_BLK_LOCK(blk);
	left = pv_blk_wait_idle(blk, PV_BLK_DRAIN_SECS);
	if (left != 0)
		device_printf(blk->blk_dev, "%u requests without an answer end with ENXIO\n", left);
	pv_blk_set_flags(blk, PVB_STOPPED, 0);
	PV_BLK_UNLOCK(blk);
	error = blk->blk_ops->bo_stop(blk);
	PV_BLK_LOCK(blk);
	if (error != 0)
		blk->blk_flags |= PVB_LEAK;
	PV_BLK_FOREACH(blk, bq) {
		PV_BLK_QUEUE_LOCK(bq);
		pv_blk_drain(bq, ENXIO, false);
		mtx_unlock(&bq->bq_mtx);
	}
	pv_blk_fail_waiting(blk, ENXIO);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
}

static void
pv_blk_quiet(struct pv_blk *blk)
{
	struct pv_blk_queue *bq;

	PV_BLK_FOREACH(blk, bq)
		callout_drain(&bq->bq_tick);
	callout_drain(&blk->blk_watchdog);
	/* Cancelled first, as a queue keeps count of a callout that was only drained. */
	while (taskqueue_cancel_timeout(taskqueue_thread, &blk->blk_reset_task, NULL) != 0)
		taskqueue_drain_timeout(taskqueue_thread, &blk->blk_reset_task);
}

int
pv_blk_attach(struct pv_blk *blk, struct pvq *const *qs, u_int n)
{
	const struct pv_blk_params *bp = &blk->blk_params;
	char ident[DISK_IDENT_SIZE] = "";
	int error;

	sysctl_ctx_init(&blk->blk_queue_sysctl);
	pv_blk_set_queues(blk, qs, n);
	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, 0, PVB_STOPPED);
	pv_blk_arm_watchdog(blk);
	PV_BLK_UNLOCK(blk);
	pv_blk_run(blk);
	error = pv_blk_ident(blk, ident, sizeof(ident));
	if (error == ETIMEDOUT) {
		device_printf(blk->blk_dev, "the device does not answer requests\n");
		/* It had its time. */
		PV_BLK_LOCK(blk);
		pv_blk_set_flags(blk, PVB_DEAD, 0);
		PV_BLK_UNLOCK(blk);
		sysctl_ctx_free(&blk->blk_queue_sysctl);
		pv_blk_shut(blk);
		pv_blk_quiet(blk);
		return (error);
	}
	pv_blk_sysctl_attach(blk);
	blk->blk_disk = pv_blk_make_disk(blk);
	strlcpy(blk->blk_disk->d_ident, ident, sizeof(blk->blk_disk->d_ident));
	device_printf(blk->blk_dev, "%ju MB (%ju sectors of %u bytes)%s\n",
	    (uintmax_t)(bp->bp_mediasize >> 20), (uintmax_t)(bp->bp_mediasize / bp->bp_sectorsize),
	    bp->bp_sectorsize, (bp->bp_flags & PV_BLK_READONLY) != 0 ? ", read-only" : "");
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
			device_printf(blk->blk_dev, "waiting for users of the disk\n");
	}
	PV_BLK_UNLOCK(blk);
	disk_destroy(dp);
	blk->blk_disk = NULL;
	sysctl_ctx_free(&blk->blk_queue_sysctl);
	sysctl_ctx_free(&blk->blk_sysctl);
	pv_blk_quiet(blk);
}

void
pv_blk_resize(struct pv_blk *blk, uint64_t mediasize)
{
	struct disk *dp;
	uint64_t old;

	PV_BLK_LOCK(blk);
	dp = blk->blk_disk;
	old = blk->blk_params.bp_mediasize;
	if (dp != NULL && mediasize != old && (blk->blk_flags & PVB_DETACHING) == 0) {
		blk->blk_params.bp_mediasize = mediasize;
		dp->d_mediasize = mediasize;
		/* Does not sleep, and the lock keeps the disk from being destroyed. */
		if (disk_resize(dp, M_NOWAIT) != 0)
			blk->blk_params.bp_mediasize = old;
		else if (blk->blk_stats.bs_resizes++, pv_blk_may_log(blk))
			device_printf(blk->blk_dev, "the disk is now %ju MB, was %ju MB\n",
			    (uintmax_t)(mediasize >> 20), (uintmax_t)(old >> 20));
	}
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_set_delete_size(struct pv_blk *blk, uint64_t size)
{
	PV_BLK_LOCK(blk);
	KASSERT((blk->blk_flags & PVB_FROZEN) != 0, ("%s: not frozen", __func__));
	blk->blk_params.bp_delete_size = rounddown2(size, blk->blk_params.bp_sectorsize);
	if (blk->blk_disk != NULL && blk->blk_params.bp_delete_size != 0) {
		blk->blk_disk->d_delmaxsize = blk->blk_params.bp_delete_size;
		blk->blk_disk->d_flags |= DISKFLAG_CANDELETE;
	} else if (blk->blk_disk != NULL)
		blk->blk_disk->d_flags &= ~DISKFLAG_CANDELETE;
	PV_BLK_UNLOCK(blk);
}

void
pv_blk_set_writethrough(struct pv_blk *blk, bool on)
{
	PV_BLK_LOCK(blk);
	pv_blk_set_flags(blk, on ? PVB_WRITETHROUGH : 0, on ? 0 : PVB_WRITETHROUGH);
	PV_BLK_UNLOCK(blk);
}
