/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A disk of pv_blk whose device is a test (pv_blk_drive.h).
 */

#include "pv_blk_drive.h"

#include <sys/pcpu.h>
#include <sys/proc.h>

#include <vm/vm.h>
#include <vm/vm_page.h>

struct drive drive;
static struct thread drive_thread;

/* The device. */

static void
drive_said(const char *fmt, u_int n)
{
	size_t at = strlen(drive.dr_log);

	snprintf(drive.dr_log + at, sizeof(drive.dr_log) - at, fmt, n);
}

void
drive_quiet(void)
{

	drive.dr_log[0] = '\0';
}

u_int
drive_kicks(u_int queue)
{
	u_int n = drive.dr_peers[queue]->pe_kicks;

	drive.dr_peers[queue]->pe_kicks = 0;
	(void)drive.dr_peers[queue]->pe_ops->po_listen(drive.dr_peers[queue]);
	return (n);
}

bool
drive_takes(u_int queue, struct drive_req *dq)
{
	struct peer *pe = drive.dr_peers[queue];
	struct peer_chain *pr = &dq->dq_chain;

	CHECK(drive.dr_runs[queue], "queue %u is not in use", queue);
	dq->dq_queue = queue;
	if (!pe->pe_ops->po_fetch(pe, pr))
		return (false);
	if (drive.dr_ntaken++ == 0)
		drive.dr_waited = kpi_delayed;
	CHECK(pr->pr_nread >= 1 && pr->pr_nwrite >= 1, "%d, %d segments", pr->pr_nread,
	    pr->pr_nwrite);
	CHECK(pr->pr_segs[0].len == offsetof(struct drive_msg, dm_status), "the header");
	memcpy(&dq->dq_msg, (const void *)(uintptr_t)pr->pr_segs[0].addr, pr->pr_segs[0].len);
	return (true);
}

void
drive_expect(u_int queue, struct drive_req *dq, enum pv_blk_cmd cmd, u_int sector, size_t len)
{

	CHECK(drive_takes(queue, dq), "no request for sector %u", sector);
	CHECK(dq->dq_msg.dm_cmd == cmd && dq->dq_msg.dm_ranges[0].offset == sector * DRIVE_SECTOR &&
	    dq->dq_msg.dm_ranges[0].length == len, "command %u of sector %ju, %ju bytes",
	    dq->dq_msg.dm_cmd, (uintmax_t)dq->dq_msg.dm_ranges[0].offset / DRIVE_SECTOR,
	    (uintmax_t)dq->dq_msg.dm_ranges[0].length);
}

/* The data of a request, to or from the disk. */
static void
drive_move(const struct drive_req *dq, bool write)
{
	const struct peer_chain *pr = &dq->dq_chain;
	u_char *disk = drive.dr_bytes + dq->dq_msg.dm_ranges[0].offset;
	int i, first = write ? 1 : pr->pr_nread, end = write ? pr->pr_nread :
	    pr->pr_nread + pr->pr_nwrite - 1;
	size_t len = 0;
	void *copy = (void *)(uintptr_t)dq->dq_msg.dm_data;

	if (copy != NULL) {
		len = dq->dq_msg.dm_ranges[0].length;
		memcpy(write ? disk : copy, write ? copy : disk, len);
		first = end;
	}
	for (i = first; i < end; len += pr->pr_segs[i++].len) {
		void *data = (void *)(uintptr_t)pr->pr_segs[i].addr;

		CHECK(pr->pr_segs[i].len <= drive.dr_params.bp_seg_size, "a segment");
		if (write)
			memcpy(disk + len, data, pr->pr_segs[i].len);
		else
			memcpy(data, disk + len, pr->pr_segs[i].len);
	}
	CHECK(len == dq->dq_msg.dm_ranges[0].length, "%zu bytes of data", len);
}

static void
drive_do(const struct drive_req *dq)
{
	static const u_char ident[8] = "a%\1b";
	const struct drive_msg *dm = &dq->dq_msg;
	u_int i;

	switch (dm->dm_cmd) {
	case PV_BLK_READ:
	case PV_BLK_WRITE:
		drive_move(dq, dm->dm_cmd == PV_BLK_WRITE);
		break;
	case PV_BLK_DELETE:
		for (i = 0; i < dm->dm_nranges; i++)
			memset(drive.dr_bytes + dm->dm_ranges[i].offset, 0, dm->dm_ranges[i].length);
		break;
	case PV_BLK_IDENT:
		CHECK(dm->dm_ranges[0].offset == 0, "the identification is all of it");
		if (drive.dr_ident != NULL && drive.dr_ident[0] == '\0')
			break;
		memcpy((void *)(uintptr_t)dq->dq_chain.pr_segs[dq->dq_chain.pr_nread].addr,
		    drive.dr_ident != NULL ? (const u_char *)drive.dr_ident : ident, sizeof(ident));
		break;
	default:
		CHECK(dm->dm_ranges[0].offset == 0 && (dm->dm_cmd != PV_BLK_FLUSH ||
		    dm->dm_ranges[0].length == 0), "a flush of something");
		break;
	}
	CHECK(dm->dm_cmd == PV_BLK_READ || dm->dm_cmd == PV_BLK_WRITE || dm->dm_cmd ==
	    PV_BLK_IDENT || dq->dq_chain.pr_nread + dq->dq_chain.pr_nwrite == 2, "data");
}

void
drive_answer(struct drive_req *dq, uint8_t status)
{
	struct peer *pe = drive.dr_peers[dq->dq_queue];
	const struct peer_chain *pr = &dq->dq_chain;

	CHECK(drive.dr_runs[dq->dq_queue], "queue %u is not in use", dq->dq_queue);
	if (status == 0)
		drive_do(dq);
	*(uint8_t *)(uintptr_t)pr->pr_segs[pr->pr_nread + pr->pr_nwrite - 1].addr = status;
	pe->pe_ops->po_complete(pe, drive.dr_bad_id ? 9999 : pr->pr_id, pr->pr_wlen);
	pe->pe_ops->po_publish(pe);
}

void
drive_complete(struct drive_req *dq, uint8_t status)
{

	drive_answer(dq, status);
	CHECK(drive_intr(dq->dq_queue), "no interrupt");
}

u_int
drive_work(u_int queue)
{
	struct drive_req dq;
	u_int n;

	for (n = 0; drive_takes(queue, &dq); n++)
		drive_answer(&dq, drive.dr_status);
	return (n);
}

static void
drive_kicked(struct peer *pe)
{
	u_int i;

	CHECK(kpi_mutexes <= 1, "notified with more than the queue's lock");
	pe->pe_kicks++;
	for (i = 0; drive.dr_answers && i < DRIVE_QUEUES; i++)
		if (drive.dr_peers[i] == pe) {
			(void)drive_work(i);
			(void)pe->pe_ops->po_listen(pe);
		}
}

/* What the next requests and the bounce buffer had before means nothing, as they are free. */
static void
drive_spoil_free(void)
{
	struct pv_blk *blk = &drive.dr_blk;
	struct pv_blk_queue *bq;
	struct pv_blk_req *rq;
	u_int n;

	for (bq = blk->blk_queues; bq < blk->blk_queues + blk->blk_params.bp_nqueues; bq++) {
		n = 0;
		SLIST_FOREACH(rq, &bq->bq_free, rq_next) {
			if (n++ == 3)
				break;
			rq->rq_cmd = 99;
			rq->rq_nsegs = 77;
			rq->rq_error = EDOOFUS;
			rq->rq_offset = rq->rq_length = 12345;
			memset(&rq->rq_window, 0x5a, sizeof(rq->rq_window));
			memset(&rq->rq_more, 0x5a, sizeof(rq->rq_more));
		}
	}
	if (!blk->blk_bounce_busy)
		memset(blk->blk_bounce, 0x66, blk->blk_bounce_size);
}

bool
drive_intr(u_int queue)
{
	struct peer *pe = drive.dr_peers[queue];

	if (!pe->pe_ops->po_interrupts(pe))
		return (false);
	drive.dr_pvqs[queue]->q_stats.qs_intrs++;	/* as a transport does */
	pv_blk_intr(DRIVE_BQ(queue));
	drive_spoil_free();
	return (true);
}

void
drive_settle(void)
{
	bool more;
	u_int i;

	do {
		more = kpi_run_tasks() > 0;
		for (i = 0; i < DRIVE_QUEUES; i++)
			more = more || (drive.dr_runs[i] && (drive_work(i) > 0 || drive_intr(i)));
	} while (more);
}

void
drive_seconds(u_int n)
{

	while (n-- > 0) {
		kpi_pass(SBT_1S);
		while (kpi_run_tasks() > 0)
			continue;
	}
}

/* The protocol. */

static void
drive_encode(struct pv_blk *blk, struct pv_blk_req *rq, struct pvq_chain *pc)
{
	struct drive_msg *dm = rq->rq_msg;
	struct bio *bp;
	bool write = rq->rq_cmd == PV_BLK_WRITE;

	CHECK(blk == &drive.dr_blk, "another disk");
	memset(dm, 0, sizeof(*dm));
	dm->dm_cmd = rq->rq_cmd;
	dm->dm_nranges = 1;
	dm->dm_ranges[0].offset = rq->rq_offset;
	dm->dm_ranges[0].length = rq->rq_length;
	if (rq->rq_cmd == PV_BLK_DELETE) {
		TAILQ_FOREACH(bp, &rq->rq_more, bio_queue) {
			dm->dm_ranges[dm->dm_nranges].offset = bp->bio_offset;
			dm->dm_ranges[dm->dm_nranges++].length = bp->bio_bcount;
		}
	}
	if (rq->rq_copied && !rq->rq_bounced)
		dm->dm_data = (uintptr_t)drive.dr_copies[rq - blk->blk_reqs];
	dm->dm_status = 0xff;
	rq->rq_segs[0].ds_addr = rq->rq_msg_paddr;
	rq->rq_segs[0].ds_len = offsetof(struct drive_msg, dm_status);
	rq->rq_segs[rq->rq_nsegs + 1].ds_addr = rq->rq_msg_paddr + offsetof(struct drive_msg,
	    dm_status);
	rq->rq_segs[rq->rq_nsegs + 1].ds_len = 1;
	pc->pc_segs = rq->rq_segs;
	pc->pc_nread = 1 + (write ? rq->rq_nsegs : 0);
	pc->pc_nwrite = 1 + (write ? 0 : rq->rq_nsegs);
}

static int
drive_status(struct pv_blk *blk __unused, const struct pv_blk_req *rq, const struct pvq_done *pd,
    uintmax_t *seen)
{
	const struct drive_msg *dm = rq->rq_msg;

	CHECK(pd->pd_cookie == rq && dm->dm_cmd == rq->rq_cmd, "another request");
	CHECK(dm->dm_status != 0xff, "the status did not cross");
	if (dm->dm_status == DRIVE_VIOLATION) {
		*seen = dm->dm_status;
		return (-1);
	}
	if (rq->rq_cmd == PV_BLK_QUERY && dm->dm_status == 0)
		memset(rq->rq_bio->bio_data, 0x77, rq->rq_length);
	return (dm->dm_status);
}

static int
drive_stop(struct pv_blk *blk __unused)
{

	drive_said("stop ", 0);
	if (drive.dr_stop_error != 0)
		return (drive.dr_stop_error);
	kpi_dma_arrives();
	drive.dr_started = false;
	memset(drive.dr_runs, 0, sizeof(drive.dr_runs));
	return (0);
}

void
drive_start_queue(u_int i)
{

	CHECK(!drive.dr_runs[i], "queue %u is started twice", i);
	drive.dr_nstarts++;
	CHECK(pvq_reinit(drive.dr_pvqs[i]) == 0, "queue %u is not empty", i);
	drive.dr_impl->im_reset(drive.dr_peers[i]);
	drive.dr_runs[i] = true;
}

static int
drive_restart(struct pv_blk *blk __unused)
{
	u_int i;

	CHECK(!drive.dr_started, "started twice");
	drive_said("start ", 0);
	if (drive.dr_restart_error != 0)
		return (drive.dr_restart_error);
	for (i = 0; i < drive.dr_nqueues; i++)
		drive_start_queue(i);
	drive.dr_started = true;
	return (0);
}

static int
drive_stop_queue(struct pv_blk *blk __unused, u_int index)
{

	drive_said("stop%u ", index);
	CHECK(drive.dr_started && drive.dr_runs[index], "queue %u is stopped twice", index);
	kpi_dma_arrives();
	if (drive.dr_stop_queue_error == 0)
		drive.dr_runs[index] = false;
	return (drive.dr_stop_queue_error);
}

static int
drive_restart_queue(struct pv_blk *blk __unused, u_int index)
{

	drive_said("start%u ", index);
	if (drive.dr_restart_queue_error == 0)
		drive_start_queue(index);
	return (drive.dr_restart_queue_error);
}

static void
drive_set(void *arg)
{

	CHECK(arg == &drive.dr_blk, "another disk");
	drive_said("set ", 0);
}

static void (*const drive_settings[])(void *) = { drive_set, NULL };

static const struct pv_blk_ops drive_ops = {
	.bo_encode = drive_encode,
	.bo_status = drive_status,
	.bo_stop = drive_stop,
	.bo_restart = drive_restart,
	.bo_stop_queue = drive_stop_queue,
	.bo_restart_queue = drive_restart_queue,
	.bo_settings = drive_settings,
};

/* Another domain: it sees copies, and takes part in a reset. */

static void
drive_reconnect(struct pv_blk *blk __unused)
{

	drive.dr_reconnects++;
}

static int
drive_load(struct pv_blk *blk, struct pv_blk_req *rq)
{
	const u_int i = rq - blk->blk_reqs;
	const bool polled = i == blk->blk_params.bp_nqueues * blk->blk_params.bp_nreqs;
	char **copy = &drive.dr_copies[i];

	/* The polled request is never released. */
	if (polled) {
		host_free(*copy);
		*copy = NULL;
	}
	CHECK(*copy == NULL && rq->rq_nsegs == 0, "loaded twice");
	CHECK(rq->rq_length > 0, "of nothing");
	if (!polled && (drive.dr_load_error != 0 || drive.dr_room < DRIVE_SECTOR))
		return (drive.dr_load_error != 0 ? drive.dr_load_error : ENOMEM);
	if (!polled)
		rq->rq_length = MIN(rq->rq_length, drive.dr_room);
	*copy = host_alloc(rq->rq_length, 1);
	if (rq->rq_cmd == PV_BLK_WRITE)
		pv_blk_copy(&rq->rq_window, 0, rq->rq_length, *copy, false);
	return (0);
}

static void
drive_unload(struct pv_blk *blk, struct pv_blk_req *rq)
{

	pv_blk_copy(&rq->rq_window, 0, rq->rq_length, drive.dr_copies[rq - blk->blk_reqs], true);
}

static void
drive_release(struct pv_blk *blk, struct pv_blk_req *rq)
{
	char **copy = &drive.dr_copies[rq - blk->blk_reqs];

	CHECK(*copy != NULL, "released twice");
	host_free(*copy);
	*copy = NULL;
}

const struct pv_blk_peer_ops drive_peer_ops = {
	.bpo_reconnect = drive_reconnect,
	.bpo_load = drive_load,
	.bpo_unload = drive_unload,
	.bpo_release = drive_release,
	.bpo_polled_size = 4096,
};

static struct pv_tunable drive_tunables[] = { PV_BLK_TUNABLES };

void
drive_new(u_int queues)
{

	memset(&drive, 0, sizeof(drive));
	PCPU_SET(curthread, &drive_thread);
	PCPU_SET(cpuid, 0);
	drive.dr_ops = drive_ops;
	drive.dr_impl = &split_impls[4];	/* with indirect tables and event indices */
	drive.dr_size = DRIVE_SIZE;
	drive.dr_nqueues = queues;
	drive.dr_params = (struct pv_blk_params){
		.bp_diskname = "vtbd",
		.bp_descr = "drive",
		.bp_mediasize = DRIVE_SECTORS * DRIVE_SECTOR,
		.bp_sectorsize = DRIVE_SECTOR,
		.bp_nqueues = queues,
		.bp_nreqs = DRIVE_REQS,
		.bp_max_segs = 16,
		.bp_seg_size = 65536,
		.bp_phys = true,
		.bp_delete_size = 64 * DRIVE_SECTOR,
		.bp_msgsize = sizeof(struct drive_msg),
		.bp_tunables = drive_tunables,
		.bp_flags = PV_BLK_CACHED | PV_BLK_QUEUE_RESET,
	};
}

int
drive_attach(void)
{
	struct pv_blk_params *bp = &drive.dr_params;
	u_int i;
	int error;

	drive.dr_parent = kpi_device_create(NULL, NULL, NULL, "bus0");
	drive.dr_dev = kpi_device_create(drive.dr_parent, NULL, NULL, "drive0");
	kpi_fail_after = drive.dr_fail_after;
	error = pv_blk_init(&drive.dr_blk, drive.dr_dev, &drive.dr_ops, bp);
	kpi_fail_after = kpi_fail_more = 0;
	if (error != 0)
		return (error);
	for (i = 0; i < bp->bp_nqueues; i++) {
		error = drive.dr_impl->im_create(drive.dr_impl, drive.dr_size, bp->bp_max_segs + 2,
		    &drive.dr_peers[i]);
		CHECK(error == 0, "queue %u: error %d", i, error);
		drive.dr_peers[i]->pe_kick = drive_kicked;
		drive.dr_pvqs[i] = drive.dr_peers[i]->pe_pvq;
		snprintf(drive.dr_pvqs[i]->q_name, PVQ_NAMELEN, "q%u", i);
		drive.dr_runs[i] = i < drive.dr_nqueues;
	}
	drive.dr_started = true;
	error = pv_blk_attach(&drive.dr_blk, drive.dr_pvqs, drive.dr_nqueues);
	if (error == 0)
		drive_spoil_free();
	return (error);
}

void
drive_begin(u_int queues)
{

	drive_new(queues);
	CHECK(drive_attach() == 0, "it does not attach");
	drive_quiet();
}

void
drive_forget(void)
{
	u_int i;

	CHECK(kpi_callouts == 0, "%d callouts are pending", kpi_callouts);
	CHECK(kpi_run_tasks() == 0 && kpi_mutexes == 0, "a task or a lock is left");
	for (i = 0; i < DRIVE_QUEUES && drive.dr_peers[i] != NULL; i++)
		drive.dr_impl->im_destroy(drive.dr_peers[i]);
	kpi_device_destroy(drive.dr_dev);
	kpi_device_destroy(drive.dr_parent);
	CHECK(drive.dr_nbios == 0, "%u bios are left", drive.dr_nbios);
	CHECK(kpi_mallocs == 0 && kpi_dma_tags == 0 && kpi_dma_maps == 0 && kpi_locks == 0,
	    "left: %d, %d, %d, %d", kpi_mallocs, kpi_dma_tags, kpi_dma_maps, kpi_locks);
}

/*
 * Nothing is under way: all requests that were made are free, as if none had ever been used, and
 * without a restart the device has seen each that was counted.
 */
static void
drive_is_idle(void)
{
	struct pv_blk *blk = &drive.dr_blk;
	const struct pv_blk_queue *bq;
	const struct pv_blk_req *rq;
	uint64_t requests = 0;
	u_int n = 0;

	for (bq = blk->blk_queues; bq < blk->blk_queues + blk->blk_params.bp_nqueues; bq++) {
		CHECK(bq->bq_ninflight == 0 && bq->bq_ndeletes == 0 && bq->bq_singly == 0 &&
		    bq->bq_cur == NULL && !bq->bq_stuck && !bq->bq_short, "%s is in use", bq->bq_name);
		CHECK(TAILQ_EMPTY(&bq->bq_bios) && TAILQ_EMPTY(&bq->bq_finished) &&
		    TAILQ_EMPTY(&bq->bq_deletes) && TAILQ_EMPTY(&bq->bq_ready) &&
		    TAILQ_EMPTY(&bq->bq_inflight) && SLIST_EMPTY(&bq->bq_deliveries),
		    "%s has something", bq->bq_name);
		SLIST_FOREACH(rq, &bq->bq_free, rq_next) {
			CHECK(rq->rq_bio == NULL && rq->rq_rest == 0 && !rq->rq_loaded &&
			    !rq->rq_copied && !rq->rq_bounced && !rq->rq_unready &&
			    !rq->rq_reported && !rq->rq_fast && rq->rq_requeues == 0 &&
			    rq->rq_nmore == 0,
			    "a request of %s", bq->bq_name);
			n++;
		}
		requests += bq->bq_stats.bs_requests;
	}
	CHECK(n == blk->blk_nmade - 1, "%u requests are free, %u were made", n, blk->blk_nmade);
	CHECK((blk->blk_nspare != 0) == (blk->blk_spare_dma.pdm_mem != NULL), "%u spare messages",
	    blk->blk_nspare);
	CHECK(blk->blk_bounce_busy == 0 && blk->blk_barrier == NULL &&
	    TAILQ_EMPTY(&blk->blk_waiting) && !blk->blk_pumping && blk->blk_following == 0,
	    "the disk waits");
	CHECK(drive.dr_nstarts > 0 || requests == drive.dr_ntaken, "%ju requests, %u were taken",
	    (uintmax_t)requests, drive.dr_ntaken);
}

void
drive_end(void)
{

	drive_is_idle();
	pv_blk_detach(&drive.dr_blk);
	pv_blk_fini(&drive.dr_blk);
	drive_forget();
}

/* Bios. */

/* A bio's memory is of pages: mapped, these are neighbours; else every other one is. */
struct drive_mem {
	u_char		*mem;
	u_char		*copy;	/* what was to be written */
	struct vm_page	*pages;
	vm_page_t	*ma;
};

static void
drive_bio_done(struct bio *bp)
{

	CHECK(!drive_is_done(bp), "it ended twice");
	CHECK(drive.dr_ndone < nitems(drive.dr_done), "too many bios");
	drive.dr_done[drive.dr_ndone++] = bp;
	if (drive.dr_ended != NULL)
		drive.dr_ended(bp);
}

/* Where byte i of a bio's data is. */
static u_char *
drive_at(const struct bio *bp, size_t i)
{
	const struct drive_mem *dm = bp->bio_caller1;

	if ((bp->bio_flags & BIO_UNMAPPED) == 0)
		return (dm->mem + i);
	i += bp->bio_ma_offset;
	return ((u_char *)(uintptr_t)VM_PAGE_TO_PHYS(bp->bio_ma[i / PAGE_SIZE]) + i % PAGE_SIZE);
}

struct bio *
drive_bio(int cmd, u_int sector, size_t len, bool pages)
{
	static u_int mark;
	struct bio *bp = host_alloc(sizeof(*bp), sizeof(void *));
	struct drive_mem *dm = host_alloc(sizeof(*dm), sizeof(void *));
	size_t i, n = howmany(len, PAGE_SIZE) + 1;

	memset(bp, 0, sizeof(*bp));
	memset(dm, 0, sizeof(*dm));
	bp->bio_cmd = cmd;
	bp->bio_offset = (off_t)sector * DRIVE_SECTOR;
	bp->bio_length = bp->bio_bcount = len;
	bp->bio_done = drive_bio_done;
	bp->bio_caller1 = dm;
	drive.dr_nbios++;
	if (cmd != BIO_READ && cmd != BIO_WRITE)
		return (bp);
	dm->mem = host_alloc(pages ? 2 * n * PAGE_SIZE : len, pages ? PAGE_SIZE : 1);
	if (pages) {
		dm->pages = host_alloc(n * sizeof(*dm->pages), sizeof(void *));
		dm->ma = host_alloc(n * sizeof(*dm->ma), sizeof(void *));
		for (i = 0; i < n; i++) {
			dm->pages[i].phys_addr = (vm_paddr_t)(uintptr_t)dm->mem + 2 * i * PAGE_SIZE;
			dm->ma[i] = &dm->pages[i];
		}
		bp->bio_flags |= BIO_UNMAPPED;
		bp->bio_ma = dm->ma;
		bp->bio_ma_n = n;
		bp->bio_ma_offset = 3 * DRIVE_SECTOR + 64;
	} else
		bp->bio_data = (char *)dm->mem;
	dm->copy = host_alloc(len, 1);
	mark++;
	for (i = 0; i < len; i++) {
		dm->copy[i] = mark * 7 + i / DRIVE_SECTOR * 13 + i * 31;
		*drive_at(bp, i) = cmd == BIO_WRITE ? dm->copy[i] : 0xa5;
	}
	return (bp);
}

struct bio *
drive_submit(struct bio *bp)
{

	drive_spoil_free();
	bp->bio_disk = kpi_disk;
	kpi_disk->d_strategy(bp);
	return (bp);
}

struct bio *
drive_io(int cmd, u_int sector, size_t len)
{

	return (drive_submit(drive_bio(cmd, sector, len, false)));
}

bool
drive_is_done(const struct bio *bp)
{
	u_int i;

	for (i = 0; i < drive.dr_ndone; i++)
		if (drive.dr_done[i] == bp)
			return (true);
	return (false);
}

void
drive_ended(struct bio *bp, int error)
{
	struct drive_mem *dm = bp->bio_caller1;
	u_char *disk = drive.dr_bytes + bp->bio_offset;
	size_t i;

	CHECK(drive_is_done(bp), "sector %jd: it has not ended",
	    (intmax_t)bp->bio_offset / DRIVE_SECTOR);
	CHECK(((bp->bio_flags & BIO_ERROR) != 0) == (error != 0) && bp->bio_error == error,
	    "sector %jd: error %d", (intmax_t)bp->bio_offset / DRIVE_SECTOR, bp->bio_error);
	CHECK(bp->bio_resid == (error != 0 ? bp->bio_bcount : 0), "%ld are left", bp->bio_resid);
	for (i = 0; error == 0 && dm->mem != NULL && i < (size_t)bp->bio_bcount; i++)
		CHECK(disk[i] == (bp->bio_cmd == BIO_WRITE ? dm->copy[i] : *drive_at(bp, i)),
		    "sector %jd: byte %zu", (intmax_t)bp->bio_offset / DRIVE_SECTOR, i);
	for (i = 0; drive.dr_done[i] != bp; i++)
		continue;
	memmove(&drive.dr_done[i], &drive.dr_done[i + 1],
	    (--drive.dr_ndone - i) * sizeof(drive.dr_done[0]));
	drive.dr_nbios--;
	host_free(dm->mem);
	host_free(dm->copy);
	host_free(dm->pages);
	host_free(dm->ma);
	host_free(dm);
	host_free(bp);
}
