/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The way of a bio through pv_blk, from d_strategy to the ring and from the interrupt to biodone(9).
 * The life of a disk is in pv_blk_drive_life.c.
 */

#include "pv_blk_drive.h"

#include <sys/pcpu.h>

#include <vm/vm.h>
#include <vm/vm_page.h>

#include <dev/pv/blk/pv_blk_var.h>

#define	KB	1024

/* How the device gets to data: addresses as they are, or bus_dma(9). */
static const bool by_dma = true;

static void
io_begin(const void *arg, u_int segs, u_int size)
{

	drive_new(1);
	drive.dr_params.bp_phys = arg == NULL;
	drive.dr_params.bp_max_segs = segs;
	drive.dr_params.bp_seg_size = size;
	CHECK(drive_attach() == 0, "it does not attach");
}

/* Bios of each length and kind arrive whole, however many requests they need. */
static void
io_of_each_length(const void *arg)
{
	static const size_t lens[] = { 512, 4 * KB, 4 * KB + 512, 64 * KB, 65 * KB, 200 * KB };
	struct bio *bp;
	u_int i, kind;

	io_begin(arg, 8, 8 * KB);
	for (i = 0; i < nitems(lens); i++) {
		for (kind = 0; kind < 4; kind++) {
			bp = drive_submit(drive_bio(kind % 2 == 0 ? BIO_WRITE : BIO_READ, 5 + i,
			    lens[i], kind >= 2));
			drive_settle();
			drive_ended(bp, 0);
		}
	}
	CHECK(DRIVE_STATS(0)->bs_bios == 4 * nitems(lens), "bios");
	/* Each has segments of its own, whatever the request had before. */
	for (i = 1; i <= 4; i++) {
		bp = drive_submit(drive_bio(BIO_WRITE, 5, i * 512, i % 2 == 0));
		drive_settle();
		drive_ended(bp, 0);
	}
	CHECK(DRIVE_STATS(0)->bs_requests == DRIVE_STATS(0)->bs_bios + DRIVE_STATS(0)->bs_splits &&
	    DRIVE_STATS(0)->bs_splits >= 2 * 3 + 2 * 6, "%ju pieces",
	    (uintmax_t)DRIVE_STATS(0)->bs_splits);
	CHECK(DRIVE_STATS(0)->bs_bounced == 0 && DRIVE_STATS(0)->bs_nomem == 0, "copied");
	drive_end();
}

/* Pieces are put in ascending order, each as long as a request may be. */
static void
io_pieces_ascend(const void *arg)
{
	struct drive_req dq;
	struct bio *bp;
	u_int i;

	io_begin(arg, 4, 4 * KB);
	bp = drive_io(BIO_WRITE, 8, 40 * KB);
	for (i = 0; i < 2; i++) {
		drive_expect(0, &dq, PV_BLK_WRITE, 8 + 32 * i, 16 * KB);
		drive_answer(&dq, 0);
	}
	drive_expect(0, &dq, PV_BLK_WRITE, 8 + 64, 8 * KB);
	CHECK(drive_intr(0) && !drive_is_done(bp), "it has ended");
	drive_complete(&dq, 0);
	drive_ended(bp, 0);
	CHECK(DRIVE_STATS(0)->bs_splits == 2 && DRIVE_STATS(0)->bs_max_in_flight == 3, "counters");
	drive_end();
}

/* One piece fails: so does the bio, when all of them have ended. */
static void
io_errors(const void *arg)
{
	static const struct {
		int	status, error;
	} table[] = { { EIO, EIO }, { EOPNOTSUPP, EOPNOTSUPP }, { ENOSPC, ENOSPC } };
	struct drive_req dq[3];
	struct bio *bp, *next;
	u_int i, n, bad;
	int lines;

	io_begin(arg, 4, 4 * KB);
	kpi_quiet = true;
	lines = kpi_lines;
	for (n = 0; n < nitems(table); n++) {
		for (bad = 0; bad < 3; bad++) {
			bp = drive_io(BIO_READ, 8, 48 * KB);
			for (i = 0; i < 3; i++)
				drive_expect(0, &dq[i], PV_BLK_READ, 8 + 32 * i, 16 * KB);
			for (i = 0; i < 3; i++)
				drive_answer(&dq[i], i == bad ? table[n].status : 0);
			CHECK(drive_intr(0), "no interrupt");
			drive_ended(bp, table[n].error);
		}
	}
	CHECK(DRIVE_STATS(0)->bs_unsupported == 3 && DRIVE_STATS(0)->bs_io_errors == 6, "counters");
	/* A message each. */
	CHECK(strstr(kpi_line, "sector 72, 16384 bytes") != NULL, "%s", kpi_line);
	CHECK(kpi_lines == lines + 9, "%d lines", kpi_lines - lines);
	/* Of several errors the first one is the bio's. */
	bp = drive_io(BIO_READ, 8, 48 * KB);
	for (i = 0; i < 3; i++)
		drive_expect(0, &dq[i], PV_BLK_READ, 8 + 32 * i, 16 * KB);
	for (i = 0; i < 3; i++)
		drive_answer(&dq[i], table[(i + 2) % 3].status);
	CHECK(drive_intr(0), "no interrupt");
	drive_ended(bp, ENOSPC);
	CHECK(DRIVE_STATS(0)->bs_unsupported == 4 && DRIVE_STATS(0)->bs_io_errors == 8, "counters");
	next = drive_io(BIO_READ, 8, 4 * KB);
	drive_settle();
	drive_ended(next, 0);
	drive_end();
}

/* What a disk does not have ends at once; so does a bio without bytes. */
static void
io_what_a_disk_does_not_have(const void *arg __unused)
{
	drive_new(1);
	drive.dr_params.bp_flags = PV_BLK_READONLY | PV_BLK_CACHED;
	CHECK(drive_attach() == 0, "it does not attach");
	CHECK((kpi_disk->d_flags & (DISKFLAG_WRITE_PROTECT | DISKFLAG_CANFLUSHCACHE |
	    DISKFLAG_CANDELETE)) == DISKFLAG_WRITE_PROTECT && kpi_disk->d_dump == NULL, "read-only");
	drive_ended(drive_io(BIO_WRITE, 1, 512), EROFS);
	drive_ended(drive_io(BIO_DELETE, 1, 512), EROFS);
	drive_ended(drive_io(BIO_FLUSH, 0, 0), EOPNOTSUPP);
	drive_ended(drive_io(BIO_ZONE, 0, 0), EOPNOTSUPP);
	drive_ended(drive_io(BIO_READ, 1, 0), 0);
	CHECK(drive_work(0) == 0, "a request");
	drive_end();
	drive_new(1);
	drive.dr_params.bp_delete_size = 0;
	CHECK(drive_attach() == 0, "it does not attach");
	CHECK((kpi_disk->d_flags & (DISKFLAG_WRITE_PROTECT | DISKFLAG_CANFLUSHCACHE |
	    DISKFLAG_CANDELETE)) == DISKFLAG_CANFLUSHCACHE && kpi_disk->d_dump != NULL, "flags");
	drive_ended(drive_io(BIO_DELETE, 1, 512), EOPNOTSUPP);
	drive_end();
}

/* More than the ring, or the requests, have room for: all is done, in the order it came. */
static void
io_full(const void *arg)
{
	const u_int reqs = arg != NULL ? *(const u_int *)arg : DRIVE_REQS;
	struct bio *bios[150];
	struct drive_req dq;
	u_int i, n = 0;

	drive_new(1);
	drive.dr_params.bp_nreqs = reqs;
	drive.dr_impl = &split_impls[3];	/* without indirect tables: three places each */
	CHECK(drive_attach() == 0, "it does not attach");
	for (i = 0; i < nitems(bios); i++)
		bios[i] = drive_io(BIO_WRITE, i, 512);
	CHECK(DRIVE_STATS(0)->bs_max_in_flight == MIN(reqs, DRIVE_SIZE / 3), "%ju in flight",
	    (uintmax_t)DRIVE_STATS(0)->bs_max_in_flight);
	for (i = 0; i < nitems(bios); i++) {
		if (!drive_takes(0, &dq)) {
			CHECK(drive_intr(0), "no interrupt after %u", i);
			CHECK(drive_takes(0, &dq), "%u is not there", i);
		}
		CHECK(dq.dq_msg.dm_ranges[0].offset == i * DRIVE_SECTOR, "%u is another", i);
		drive_answer(&dq, 0);
	}
	(void)drive_intr(0);
	for (; n < nitems(bios); n++) {
		CHECK(drive.dr_done[0] == bios[n], "%u ended in another order", n);
		drive_ended(bios[n], 0);
	}
	CHECK(!drive_takes(0, &dq), "once more");
	CHECK(kpi_callouts == 1, "%d callouts", kpi_callouts);
	drive_end();
}

/* Each kind of ring: what crosses crosses there, also after a reset. */
static void
io_of_each_ring(const void *arg)
{
	const struct impl *im;
	struct bio *bios[100];
	u_int i, round;

	for (im = arg; im->im_name != NULL; im++) {
		drive_new(1);
		drive.dr_impl = im;
		drive.dr_size = 16;
		drive.dr_params.bp_max_segs = 4;
		CHECK(drive_attach() == 0, "it does not attach");
		for (round = 0; round < 2; round++) {
			for (i = 0; i < nitems(bios); i++)
				bios[i] = drive_io((i + round) % 2 == 0 ? BIO_WRITE : BIO_READ, 8 * i,
				    512 + i % 8 * 512);
			drive_settle();
			for (i = 0; i < nitems(bios); i++)
				drive_ended(bios[i], 0);
			pv_dev_need_reset(&drive.dr_blk.blk_pvdev, PV_DEV_ALL, ETIMEDOUT);
			drive_settle();
			drive_seconds(20);
		}
		drive_end();
	}
}

/* A request for which the ring has no room tries again by itself if nothing is in flight. */
static void
io_what_never_fits(const void *arg __unused)
{
	struct bio *bp;

	drive_new(1);
	drive.dr_impl = &split_impls[3];
	drive.dr_size = 4;
	drive.dr_params.bp_max_segs = 2;
	CHECK(drive_attach() == 0, "it does not attach");
	bp = drive_io(BIO_WRITE, 1, 4 * KB);
	drive_settle();
	drive_ended(bp, 0);
	drive_end();
}

/*
 * What is longer than a queue's tables has one of a few long ones; with these in use it takes places
 * of the ring, but never so many that it has them all.
 */
static void
io_longer_than_a_table(const void *arg)
{
	static const struct impl *const rings[] = { &split_impls[9], &packed_impls[8] };
	struct drive_req dq[DRIVE_SIZE / 8 + 2];
	struct bio *bios[nitems(dq)];
	u_int i, longs, ring;

	for (ring = 0; ring < nitems(rings); ring++) {
		CHECK(im_can(rings[ring], IM_SHORT), "%s", rings[ring]->im_name);
		drive_new(1);
		drive.dr_impl = rings[ring];
		drive.dr_params.bp_phys = arg == NULL;
		drive.dr_params.bp_max_segs = 60;
		CHECK(drive_attach() == 0, "it does not attach");
		/* Of 40 pages, none of which are neighbours. */
		for (i = 0; i < nitems(bios); i++)
			bios[i] = drive_submit(drive_bio(i % 2 == 0 ? BIO_WRITE : BIO_READ, 320 * i,
			    160 * KB, true));
		for (i = longs = 0; i < nitems(dq); i++) {
			CHECK(drive_takes(0, &dq[i]), "the first %u have the whole ring", i);
			longs += dq[i].dq_msg.dm_ranges[0].length == 160 * KB;
		}
		CHECK(longs == DRIVE_SIZE / 8, "%u have a long table", longs);
		CHECK(dq[longs].dq_msg.dm_ranges[0].length >= 20 * 4 * KB, "%ju bytes without one",
		    (uintmax_t)dq[longs].dq_msg.dm_ranges[0].length);
		for (i = 0; i < nitems(dq); i++)
			drive_answer(&dq[i], 0);
		drive_settle();
		for (i = 0; i < nitems(bios); i++)
			drive_ended(bios[i], 0);
		/* An empty ring has all places again. */
		CHECK(pvq_room(drive.dr_pvqs[0]) == DRIVE_SIZE, "%d", pvq_room(drive.dr_pvqs[0]));
		drive_end();
	}
}

/* A disk with a ring of 16 places, both of whose long tables are in use: 7 of the others are fair. */
static void
fair_begin(const void *arg, bus_size_t seg_size, struct bio *bios[2], struct drive_req dq[2])
{
	int i;

	drive_new(1);
	drive.dr_impl = &split_impls[9];
	drive.dr_size = 16;
	drive.dr_params.bp_phys = arg == NULL;
	drive.dr_params.bp_max_segs = 12;
	drive.dr_params.bp_seg_size = seg_size;
	CHECK(drive_attach() == 0, "it does not attach");
	for (i = 0; i < 2; i++) {
		bios[i] = drive_io(BIO_WRITE, 100 + 100 * i, seg_size < 512 ? 512 :
		    (arg == NULL ? 12 : 6) * seg_size);
		CHECK(drive_takes(0, &dq[i]) && dq[i].dq_chain.pr_nread > IM_SHORT_SEGS, "%d segments",
		    dq[i].dq_chain.pr_nread);
	}
}

static void
fair_end(struct bio *bios[3], struct drive_req dq[3])
{
	int i;

	for (i = 0; i < 3; i++)
		drive_answer(&dq[i], 0);
	drive_settle();
	for (i = 0; i < 3; i++)
		drive_ended(bios[i], 0);
	drive_end();
}

/* A request has as many whole sectors as its segments are, and no more segments than is fair. */
static void
io_of_fair_segments(const void *arg)
{
	struct drive_req dq[3];
	struct bio *bios[3];

	fair_begin(arg, 512, bios, dq);
	bios[2] = drive_io(BIO_WRITE, 1, 12 * 512);
	/* By bus_dma(9) each address may begin a segment, and what is tried next is half as long. */
	CHECK(drive_takes(0, &dq[2]), "no request");
	CHECK(arg != NULL || dq[2].dq_msg.dm_ranges[0].length == 5 * 512, "%ju bytes",
	    (uintmax_t)dq[2].dq_msg.dm_ranges[0].length);
	CHECK(dq[2].dq_chain.pr_nread <= 1 + 5, "%d segments", dq[2].dq_chain.pr_nread);
	fair_end(bios, dq);
	/* A sector may have more than is fair, if a request can: it is not copied. */
	fair_begin(arg, 64, bios, dq);
	bios[2] = drive_io(BIO_WRITE, 1, 512);
	CHECK(drive_takes(0, &dq[2]) && dq[2].dq_chain.pr_nread >= 1 + 512 / 64, "%d segments",
	    dq[2].dq_chain.pr_nread);
	CHECK(DRIVE_STATS(0)->bs_bounced == 0, "copied");
	fair_end(bios, dq);
}

/* Five full segments are as long as what is tried, and it has more of them: half of it is next. */
static void
io_of_segments_less_than_a_page(const void *arg)
{
	struct drive_req dq;
	struct bio *bp;

	io_begin(arg, 6, 3 * KB);
	bp = drive_submit(drive_bio(BIO_WRITE, 1, 15 * KB, true));
	drive_expect(0, &dq, PV_BLK_WRITE, 1, 15 * KB / 2);
	drive_answer(&dq, 0);
	drive_settle();
	drive_ended(bp, 0);
	drive_end();
}

/* Memory is short: the request is tried again half a millisecond later, and whenever one ends. */
static void
io_without_memory(const void *arg __unused)
{
	struct drive_req dq;
	struct bio *one, *two;

	io_begin(&by_dma, 8, 8 * KB);
	kpi_no_memory = true;
	one = drive_io(BIO_WRITE, 1, 4 * KB);
	CHECK(!drive_takes(0, &dq) && DRIVE_STATS(0)->bs_nomem == 1, "without memory");
	kpi_pass(SBT_1MS / 4);
	CHECK(DRIVE_STATS(0)->bs_nomem == 1, "too early");
	kpi_pass(SBT_1MS / 2);
	CHECK(DRIVE_STATS(0)->bs_nomem == 2, "not tried again");
	kpi_no_memory = false;
	kpi_pass(SBT_1MS);
	drive_expect(0, &dq, PV_BLK_WRITE, 1, 4 * KB);
	kpi_no_memory = true;
	two = drive_io(BIO_READ, 1, 512);
	kpi_no_memory = false;
	drive_complete(&dq, 0);
	drive_ended(one, 0);
	drive_settle();
	drive_ended(two, 0);
	kpi_pass(SBT_1MS);
	CHECK(kpi_callouts == 1, "it goes on trying");
	drive_end();
}

/* A sector of more segments than a request may have is copied; there is one buffer for that. */
static void
io_bounced(const void *arg)
{
	struct bio *one, *two, *three;
	struct drive_req dq;

	io_begin(arg, 1, 4 * KB);
	/* Its sector begins 64 bytes before a page ends. */
	one = drive_bio(BIO_WRITE, 3, 512, true);
	one->bio_ma_offset = PAGE_SIZE - 64;
	memcpy((char *)(uintptr_t)VM_PAGE_TO_PHYS(one->bio_ma[0]) + PAGE_SIZE - 64, "begin", 5);
	memcpy((char *)(uintptr_t)VM_PAGE_TO_PHYS(one->bio_ma[1]), "end", 3);
	two = drive_bio(BIO_READ, 3, 512, true);
	two->bio_ma_offset = PAGE_SIZE - 64;
	three = drive_bio(BIO_READ, 9, 512, false);
	(void)drive_submit(one);
	(void)drive_submit(two);
	(void)drive_submit(three);
	CHECK(DRIVE_STATS(0)->bs_bounced == 1 && DRIVE_STATS(0)->bs_nomem >= 1, "not copied");
	drive_expect(0, &dq, PV_BLK_WRITE, 3, 512);
	CHECK(dq.dq_chain.pr_nread == 2, "%d segments", dq.dq_chain.pr_nread);
	drive_answer(&dq, 0);
	CHECK(memcmp(drive.dr_bytes + 3 * DRIVE_SECTOR, "begin", 5) == 0 &&
	    memcmp(drive.dr_bytes + 3 * DRIVE_SECTOR + 64, "end", 3) == 0, "another sector");
	/* It was in the bounce buffer: what is read next is not. */
	memcpy(drive.dr_bytes + 3 * DRIVE_SECTOR + 64, "END", 3);
	memcpy((char *)(uintptr_t)VM_PAGE_TO_PHYS(one->bio_ma[1]), "END", 3);
	CHECK(drive_intr(0), "no interrupt");
	drive_settle();
	CHECK(DRIVE_STATS(0)->bs_bounced == 2 && drive_is_done(three), "the next waits");
	CHECK(memcmp((char *)(uintptr_t)VM_PAGE_TO_PHYS(two->bio_ma[1]), "END", 3) == 0, "not read");
	drive_ended(two, 0);
	drive_ended(three, 0);
	/* Its own data was replaced above. */
	one->bio_cmd = BIO_READ;
	drive_ended(one, 0);
	drive_end();
}

/* The copy has several segments where a sector does not fit into one. */
static void
io_bounced_in_segments(const void *arg)
{
	struct drive_req dq;
	struct bio *bp;
	u_int i;

	io_begin(arg, 2, 256);
	for (i = 0; i < 2; i++) {
		bp = drive_bio(i == 0 ? BIO_WRITE : BIO_READ, 3, 512, true);
		bp->bio_ma_offset = PAGE_SIZE - 64;
		if (i == 0) {
			memset((char *)(uintptr_t)VM_PAGE_TO_PHYS(bp->bio_ma[0]) + PAGE_SIZE - 64, 'b',
			    64);
			memset((char *)(uintptr_t)VM_PAGE_TO_PHYS(bp->bio_ma[1]), 'e', 512 - 64);
		}
		(void)drive_submit(bp);
		drive_expect(0, &dq, i == 0 ? PV_BLK_WRITE : PV_BLK_READ, 3, 512);
		CHECK(dq.dq_chain.pr_nread + dq.dq_chain.pr_nwrite == 4, "segments");
		drive_answer(&dq, 0);
		CHECK(drive_intr(0) && DRIVE_STATS(0)->bs_bounced == i + 1, "not copied");
		CHECK(drive.dr_bytes[3 * DRIVE_SECTOR] == 'b' &&
		    drive.dr_bytes[3 * DRIVE_SECTOR + 64] == 'e' &&
		    drive.dr_bytes[4 * DRIVE_SECTOR - 1] == 'e', "another sector");
		/* Its own data was replaced above. */
		bp->bio_cmd = BIO_READ;
		drive_ended(bp, 0);
	}
	drive_end();
}

/* What completed is collected, in one interrupt; the next is for the next completion. */
static void
io_interrupts(const void *arg __unused)
{
	struct drive_req dq[5];
	struct bio *bios[5];
	u_int i;

	drive_begin(1);
	for (i = 0; i < 5; i++)
		bios[i] = drive_io(BIO_WRITE, i, 512);
	for (i = 0; i < 5; i++)
		CHECK(drive_takes(0, &dq[i]), "%u", i);
	drive_answer(&dq[1], 0);
	drive_answer(&dq[0], 0);
	drive_answer(&dq[3], 0);
	CHECK(drive_intr(0) && drive.dr_ndone == 3, "%u", drive.dr_ndone);
	CHECK(!drive_intr(0), "an interrupt for nothing");
	drive_answer(&dq[4], 0);
	CHECK(drive_intr(0) && drive.dr_ndone == 4, "%u", drive.dr_ndone);
	drive_answer(&dq[2], 0);
	CHECK(drive_intr(0) && drive.dr_ndone == 5, "%u", drive.dr_ndone);
	for (i = 0; i < 5; i++)
		drive_ended(bios[i], 0);
	drive_end();
}

static void
io_all_ended(void)
{

	while (drive.dr_ndone > 0)
		drive_ended(drive.dr_done[0], 0);
}

static u_int again;

static void
io_another(struct bio *bp __unused)
{

	if (again > 0) {
		again--;
		(void)drive_io(BIO_READ, again % 4, 512);
	}
}

/* A device that has the next ones ready each time does not keep the thread. */
static void
io_yields(const void *arg __unused)
{
	drive_begin(1);
	drive.dr_answers = true;
	drive.dr_ended = io_another;
	again = 200;
	(void)drive_io(BIO_READ, 0, 512);
	while (drive_intr(0))
		continue;
	CHECK(DRIVE_STATS(0)->bs_yields >= 1 || again == 0, "it does not go on");
	while (again > 0 || DRIVE_STATS(0)->bs_requests < 201) {
		kpi_pass(SBT_1MS / 10);
		(void)drive_intr(0);
	}
	CHECK(DRIVE_STATS(0)->bs_bios == 201, "%ju", (uintmax_t)DRIVE_STATS(0)->bs_bios);
	kpi_pass(SBT_1MS);
	(void)drive_intr(0);
	CHECK(drive.dr_ndone == 201, "%u", drive.dr_ndone);
	io_all_ended();
	drive_end();
}

static void
io_four_more(struct bio *bp __unused)
{

	if (again == 4)
		CHECK(drive_kicks(0) == 0, "notified before");
	while (again > 0)
		io_another(NULL);
	CHECK(drive.dr_peers[0]->pe_kicks == 0, "started from within biodone(9)");
}

static struct drive_req meanwhile[2];

/* While a bio is delivered the next request completes, for which no interrupt is needed. */
static void
io_completes(struct bio *bp __unused)
{
	struct peer *pe = drive.dr_peers[0];
	u_int i;

	drive.dr_ended = NULL;
	for (i = 0; i < 2; i++) {
		drive_answer(&meanwhile[i], 0);
		CHECK(!pe->pe_ops->po_interrupts(pe), "an interrupt while it is looked for more");
	}
}

static void
io_completes_meanwhile(const void *arg __unused)
{
	struct drive_req dq;
	struct bio *bios[4];
	u_int i, ring;

	for (ring = 0; ring < 2; ring++) {
		drive_new(1);
		drive.dr_impl = &split_impls[ring == 0 ? 2 : 4];
		CHECK(drive_attach() == 0, "it does not attach");
		for (i = 0; i < 4; i++)
			bios[i] = drive_io(BIO_READ, i, 512);
		CHECK(drive_takes(0, &dq) && drive_takes(0, &meanwhile[0]) &&
		    drive_takes(0, &meanwhile[1]), "no requests");
		drive.dr_ended = io_completes;
		drive_answer(&dq, 0);
		CHECK(drive_intr(0) && drive.dr_ndone == 3, "%u ended", drive.dr_ndone);
		drive_settle();
		for (i = 0; i < 4; i++)
			drive_ended(bios[i], 0);
		drive_end();
	}
}

/* What users submit from within biodone(9) is started when all of them were called, as one batch. */
static void
io_from_within(const void *arg __unused)
{
	struct drive_req dq[2];
	struct bio *one, *two;

	drive_begin(1);
	one = drive_io(BIO_READ, 0, 512);
	two = drive_io(BIO_READ, 1, 512);
	CHECK(drive_takes(0, &dq[0]) && drive_takes(0, &dq[1]), "no requests");
	(void)drive_kicks(0);
	drive_answer(&dq[0], 0);
	drive_answer(&dq[1], 0);
	again = 4;
	drive.dr_ended = io_four_more;
	CHECK(drive_intr(0), "no interrupt");
	CHECK(drive.dr_peers[0]->pe_kicks == 1, "%u notifications", drive.dr_peers[0]->pe_kicks);
	drive.dr_ended = NULL;
	CHECK(drive_work(0) == 4 && drive_intr(0), "four requests");
	drive_ended(one, 0);
	drive_ended(two, 0);
	io_all_ended();
	drive_end();
}

/* The device is to be told each time, as it has no event index. */
static void
pace_begin(void)
{

	drive_new(1);
	drive.dr_impl = &split_impls[2];
	CHECK(drive_attach() == 0, "it does not attach");
}

/* A bio is notified of at once; so is a flush. */
static void
io_notified(const void *arg __unused)
{
	u_int i;

	pace_begin();
	for (i = 0; i < 10; i++) {
		(void)drive_io(BIO_READ, i, 512);
		CHECK(drive_kicks(0) == 1, "bio %u", i);
		CHECK(DRIVE_BQ(0)->bq_pace.pp_expected == 0, "nothing has completed");
	}
	(void)drive_io(BIO_FLUSH, 0, 0);
	CHECK(drive_kicks(0) == 1, "a flush");
	CHECK(drive_work(0) == 11 && drive_intr(0), "requests");
	io_all_ended();
	/* What is there by then needs no interrupt; one alone has it, as its user sleeps. */
	(void)drive_io(BIO_READ, 1, 512);
	drive.dr_answers = true;
	(void)drive_io(BIO_READ, 2, 512);
	CHECK(drive.dr_ndone == 2, "%u ended", drive.dr_ndone);
	io_all_ended();
	(void)drive_io(BIO_READ, 1, 512);
	CHECK(drive.dr_ndone == 0 && drive_intr(0) && drive.dr_ndone == 1, "%u ended", drive.dr_ndone);
	io_all_ended();
	drive_end();
}

/* Keep 40 bios in flight, of which the device answers four at a time; time passes with each. */
static void
pace_run(u_int n, uint64_t slow, uint64_t quick)
{
	struct drive_req dq;
	u_int i;

	for (; n > 0; n -= 4) {
		while (drive.dr_nbios < 40)
			(void)drive_io(BIO_READ, drive.dr_nbios, 512);
		for (i = 0; i < 4 && drive_takes(0, &dq); i++)
			drive_answer(&dq, 0);
		/* While notifications wait, the device is slower, or faster. */
		kpi_cputicks += 4 * (DRIVE_BQ(0)->bq_pace.pp_waits ? slow : quick);
		(void)drive_intr(0);
		io_all_ended();
	}
}

/* Where notifications that wait make a device faster, they do; where not, it is seldom tried. */
static void
pace_is_tried(const void *arg)
{
	const bool pays = arg == NULL;
	uint64_t before;
	u_int kicks, n;

	pace_begin();
	pace_run(4000, pays ? 50 : 200, 100);
	before = DRIVE_STATS(0)->bs_deferred_kicks;
	CHECK(before > 0, "it was not tried");
	drive.dr_peers[0]->pe_kicks = 0;
	pace_run(2000, pays ? 50 : 200, 100);
	kicks = drive.dr_peers[0]->pe_kicks;
	CHECK(DRIVE_BQ(0)->bq_pace.pp_waits == pays, "the other mode");
	if (pays)
		CHECK(kicks < 700 && DRIVE_STATS(0)->bs_deferred_kicks - before > 1200,
		    "%u notifications, %ju deferred", kicks,
		    (uintmax_t)(DRIVE_STATS(0)->bs_deferred_kicks - before));
	else {
		CHECK(DRIVE_STATS(0)->bs_deferred_kicks - before < 400, "tried too often: %ju",
		    (uintmax_t)(DRIVE_STATS(0)->bs_deferred_kicks - before));
		/* After a trial there is none for 4 times as many windows, and 1, and 85 at most. */
		for (n = 20; n < 80; n += 40) {
			DRIVE_BQ(0)->bq_pace.pp_rest = n;
			DRIVE_BQ(0)->bq_pace.pp_windows = 0;
			pace_run(256 * 3, 200, 100);
			CHECK(DRIVE_BQ(0)->bq_pace.pp_rest == MIN(4 * n + 1, 85) &&
			    DRIVE_BQ(0)->bq_pace.pp_windows + 3 >= DRIVE_BQ(0)->bq_pace.pp_rest,
			    "%u of %u windows", DRIVE_BQ(0)->bq_pace.pp_windows,
			    DRIVE_BQ(0)->bq_pace.pp_rest);
		}
	}
	drive_settle();
	drive_seconds(1);
	drive_settle();
	io_all_ended();
	CHECK(drive.dr_nbios == 0, "%u did not end", drive.dr_nbios);
	drive_end();
}

/* A bio with nothing else in flight. */
static void
pace_one(void)
{
	(void)drive_io(BIO_READ, 1, 512);
	kpi_cputicks += 100;
	CHECK(drive_work(0) == 1 && drive_intr(0), "no request");
	io_all_ended();
}

/* Where none could wait, there is nothing to be tried. */
static void
pace_of_one_at_a_time(const void *arg __unused)
{
	const struct pv_blk_pace *pp;
	u_int i, windows;

	pace_begin();
	pp = &DRIVE_BQ(0)->bq_pace;
	for (i = 0; i < 1500; i++) {
		pace_one();
		CHECK(!pp->pp_trial && !pp->pp_waits, "a trial after %u", i);
	}
	/* Nor where some could have waited before that. */
	pace_run(3000, 200, 100);
	drive_settle();
	io_all_ended();
	for (i = 0; i < 1500; i++)
		pace_one();
	windows = pp->pp_windows;
	CHECK(!pp->pp_trial && windows > 0, "%u windows to the next trial", windows);
	for (i = 0; i < 1500; i++)
		pace_one();
	CHECK(pp->pp_windows == windows, "%u windows to the next trial", pp->pp_windows);
	drive_end();
}

/* However seldom another mode was tried: once it was taken, it is soon tried whether that was right. */
static void
pace_follows_the_device(const void *arg __unused)
{
	const struct pv_blk_pace *pp;
	u_int n;

	pace_begin();
	pp = &DRIVE_BQ(0)->bq_pace;
	pace_run(3000, 200, 100);
	CHECK(!pp->pp_waits && pp->pp_rest > 4, "%u windows between trials", pp->pp_rest);
	for (n = 0; (pp->pp_trial || !pp->pp_waits) && n < 50000; n += 4)
		pace_run(4, 50, 100);
	CHECK(pp->pp_waits, "it does not pay");
	pace_run(1500, 200, 100);
	CHECK(!pp->pp_waits, "it pays no more: %u windows to the next trial", pp->pp_windows);
	drive_settle();
	io_all_ended();
	drive_end();
}

/* What waits for more is notified of after a second, if the device answers nothing. */
static void
pace_ends_after_a_second(const void *arg __unused)
{
	struct bio *barrier;
	struct drive_req dq;
	u_int i;

	pace_begin();
	pace_run(4000, 50, 100);
	CHECK(DRIVE_BQ(0)->bq_pace.pp_waits, "nothing waits");
	/* Four have ended, one of which comes again. */
	for (i = 0; i < 4 && drive_takes(0, &dq); i++)
		drive_answer(&dq, 0);
	(void)drive_intr(0);
	io_all_ended();
	(void)drive_kicks(0);
	(void)drive_io(BIO_READ, 1, 512);
	CHECK(drive_kicks(0) == 0 && DRIVE_BQ(0)->bq_pace.pp_unkicked == 1, "it does not wait");
	/* What ends meanwhile is no reason, nor is the next bio of the same thread. */
	CHECK(drive_takes(0, &dq), "no request");
	drive_answer(&dq, 0);
	(void)drive_intr(0);
	io_all_ended();
	(void)drive_io(BIO_READ, 1, 512);
	CHECK(drive_kicks(0) == 0 && DRIVE_BQ(0)->bq_pace.pp_unkicked == 2, "it does not wait");
	drive_seconds(1);
	CHECK(drive_kicks(0) == 1 && DRIVE_BQ(0)->bq_pace.pp_unkicked == 0, "it waits on");
	/* A flush does not wait, nor does what another thread submits. */
	pace_run(8, 50, 100);
	for (i = 0; i < 4 && drive_takes(0, &dq); i++)
		drive_answer(&dq, 0);
	(void)drive_intr(0);
	io_all_ended();
	(void)drive_kicks(0);
	(void)drive_io(BIO_FLUSH, 0, 0);
	CHECK(drive_kicks(0) == 1, "a flush waits");
	/* Nor does what a barrier waits for. */
	pace_run(8, 50, 100);
	for (i = 0; i < 4 && drive_takes(0, &dq); i++)
		drive_answer(&dq, 0);
	(void)drive_intr(0);
	io_all_ended();
	(void)drive_kicks(0);
	(void)drive_io(BIO_READ, 1, 512);
	CHECK(drive_kicks(0) == 0, "it does not wait");
	barrier = drive_bio(BIO_READ, 2, 512, false);
	barrier->bio_flags |= BIO_ORDERED;
	(void)drive_submit(barrier);
	CHECK(drive_kicks(0) == 1, "a barrier waits for what waits");
	drive_settle();
	io_all_ended();
	/* Of one request a batch, none waits. */
	drive.dr_blk.blk_batch = 1;
	pace_run(600, 50, 100);
	drive.dr_peers[0]->pe_kicks = 0;
	pace_run(100, 50, 100);
	CHECK(drive.dr_peers[0]->pe_kicks >= 100, "%u", drive.dr_peers[0]->pe_kicks);
	drive_settle();
	io_all_ended();
	drive_end();
}

/* A barrier waits for all that came before it, in each queue; what comes after it, for the barrier. */
static void
order_of_barriers(const void *arg __unused)
{
	struct drive_req dq[4];
	struct bio *bios[4];

	drive_begin(2);
	bios[0] = drive_io(BIO_WRITE, 0, 512);
	PCPU_SET(cpuid, 1);
	bios[1] = drive_io(BIO_WRITE, 1, 512);
	bios[2] = drive_bio(BIO_WRITE, 2, 512, false);
	bios[2]->bio_flags |= BIO_ORDERED;
	(void)drive_submit(bios[2]);
	bios[3] = drive_io(BIO_WRITE, 3, 512);
	drive_expect(0, &dq[0], PV_BLK_WRITE, 0, 512);
	drive_expect(1, &dq[1], PV_BLK_WRITE, 1, 512);
	CHECK(!drive_takes(0, &dq[2]) && !drive_takes(1, &dq[2]), "the barrier does not wait");
	drive_answer(&dq[0], 0);
	CHECK(drive_intr(0), "no interrupt");
	CHECK(!drive_takes(0, &dq[2]), "it does not wait for the other queue");
	drive_answer(&dq[1], 0);
	CHECK(drive_intr(1), "no interrupt");
	drive_expect(0, &dq[2], PV_BLK_WRITE, 2, 512);
	CHECK(!drive_takes(0, &dq[3]) && !drive_takes(1, &dq[3]), "what follows does not wait");
	drive_answer(&dq[2], 0);
	CHECK(drive_intr(0), "no interrupt");
	CHECK(drive_takes(0, &dq[3]) || drive_takes(1, &dq[3]), "it waits on");
	drive_answer(&dq[3], 0);
	CHECK(drive_intr(dq[3].dq_queue), "no interrupt");
	CHECK((drive.dr_blk.blk_flags & PVB_GATED) == 0, "the gate is closed");
	for (u_int i = 0; i < 4; i++)
		drive_ended(bios[i], 0);
	/* What it waits for completes while it is looked whether it has to wait. */
	PCPU_SET(cpuid, 0);
	bios[0] = drive_io(BIO_WRITE, 0, 512);
	drive_expect(0, &dq[0], PV_BLK_WRITE, 0, 512);
	drive_answer(&dq[0], 0);
	bios[1] = drive_bio(BIO_WRITE, 2, 512, false);
	bios[1]->bio_flags |= BIO_ORDERED;
	(void)drive_submit(bios[1]);
	drive_ended(bios[0], 0);
	drive_expect(0, &dq[1], PV_BLK_WRITE, 2, 512);
	drive_answer(&dq[1], 0);
	CHECK(drive_intr(0), "no interrupt");
	drive_ended(bios[1], 0);
	drive_end();
}

/* A peer that sees copies only, of which there may be room for a part. */
static void
io_by_copies(const void *arg __unused)
{
	struct drive_req dq;
	struct bio *bp;
	u_int kind;

	drive_new(1);
	drive.dr_ops.bo_peer = &drive_peer_ops;
	drive.dr_ops.bo_stop = drive.dr_ops.bo_restart = NULL;
	drive.dr_params.bp_phys = false;
	drive.dr_room = 6 * KB;
	CHECK(drive_attach() == 0, "it does not attach");
	for (kind = 0; kind < 4; kind++) {
		bp = drive_submit(drive_bio(kind % 2 == 0 ? BIO_WRITE : BIO_READ, 9, 20 * KB,
		    kind >= 2));
		drive_expect(0, &dq, kind % 2 == 0 ? PV_BLK_WRITE : PV_BLK_READ, 9, 6 * KB);
		CHECK(dq.dq_chain.pr_nread + dq.dq_chain.pr_nwrite == 2, "segments");
		drive_complete(&dq, 0);
		drive_settle();
		drive_ended(bp, 0);
	}
	/* What failed is not copied back. */
	kpi_quiet = true;
	bp = drive_io(BIO_READ, 9, 512);
	CHECK(drive_takes(0, &dq), "no request");
	memset((void *)(uintptr_t)dq.dq_msg.dm_data, 0x99, 512);
	drive_complete(&dq, EIO);
	CHECK((u_char)bp->bio_data[0] == 0xa5, "copied");
	drive_ended(bp, EIO);
	/* No room: a little later. */
	drive.dr_room = 0;
	bp = drive_io(BIO_WRITE, 9, 512);
	CHECK(!drive_takes(0, &dq) && DRIVE_STATS(0)->bs_nomem == 1, "without room");
	drive.dr_room = 6 * KB;
	kpi_pass(SBT_1MS);
	drive_settle();
	drive_ended(bp, 0);
	CHECK(DRIVE_STATS(0)->bs_dma_errors == 0, "%ju", (uintmax_t)DRIVE_STATS(0)->bs_dma_errors);
	/* What can't be copied at all ends at once, and what comes after it does not. */
	drive.dr_load_error = EINVAL;
	bp = drive_io(BIO_WRITE, 9, 512);
	drive_ended(bp, EINVAL);
	drive.dr_load_error = 0;
	CHECK(DRIVE_STATS(0)->bs_dma_errors == 1 && DRIVE_STATS(0)->bs_nomem == 1, "counters");
	bp = drive_io(BIO_WRITE, 9, 512);
	drive_settle();
	drive_ended(bp, 0);
	drive_end();
	for (kind = 0; kind < nitems(drive.dr_copies); kind++)
		CHECK(drive.dr_copies[kind] == NULL, "a copy is left");
}

/* What is loaded under the lock of one queue is no other queue's. */
static void
queues_have_segments_of_their_own(const void *arg __unused)
{
	struct pv_blk_req *first[DRIVE_QUEUES], *rq;
	u_int i, k;

	drive_begin(DRIVE_QUEUES);
	for (i = 0; i < DRIVE_QUEUES; i++) {
		first[i] = SLIST_FIRST(&DRIVE_BQ(i)->bq_free);
		SLIST_FOREACH(rq, &DRIVE_BQ(i)->bq_free, rq_next)
			CHECK(rq->rq_segs == first[i]->rq_segs, "queue %u has several", i);
		for (k = 0; k < i; k++)
			CHECK(first[i]->rq_segs != first[k]->rq_segs, "queues %u and %u", i, k);
	}
	drive_end();
}

/* Only when something waits for a queue to be idle is anybody told that it is. */
static void
queues_are_idle_by_themselves(const void *arg __unused)
{
	struct bio *bios[3];
	u_int i, wakeups;

	drive_begin(2);
	wakeups = kpi_wakeups;
	for (i = 0; i < 3; i++)
		bios[i] = drive_io(BIO_READ, i, 512);
	CHECK(drive_work(0) == 3 && drive_intr(0), "no requests");
	for (i = 0; i < 3; i++)
		drive_ended(bios[i], 0);
	CHECK(kpi_wakeups == wakeups, "%u for nobody", kpi_wakeups - wakeups);
	pv_blk_run(&drive.dr_blk);
	CHECK(kpi_wakeups == wakeups, "%u for nobody", kpi_wakeups - wakeups);
	/* A barrier waits for one that is in flight, and its queue is not idle. */
	bios[0] = drive_io(BIO_READ, 0, 512);
	bios[1] = drive_io(BIO_READ, 1, 512);
	bios[2] = drive_bio(BIO_WRITE, 2, 512, false);
	bios[2]->bio_flags |= BIO_ORDERED;
	(void)drive_submit(bios[2]);
	wakeups = kpi_wakeups;
	for (i = 0; i < 2; i++) {
		struct drive_req dq;

		CHECK(drive_takes(0, &dq), "no request");
		drive_complete(&dq, 0);
		CHECK((kpi_wakeups != wakeups) == (i == 1), "%u after %u", kpi_wakeups - wakeups, i);
	}
	drive_settle();
	for (i = 0; i < 3; i++)
		drive_ended(bios[i], 0);
	drive_end();
}

/* Each CPU has its queue. */
static void
queues_of_cpus(const void *arg __unused)
{
	struct drive_req dq;
	struct bio *bp;
	u_int i;

	drive_begin(3);
	for (i = 0; i < 6; i++) {
		PCPU_SET(cpuid, i);
		bp = drive_io(BIO_WRITE, i, 512);
		drive_expect(i % 3, &dq, PV_BLK_WRITE, i, 512);
		drive_answer(&dq, 0);
		CHECK(drive_intr(i % 3), "no interrupt");
		drive_ended(bp, 0);
	}
	PCPU_SET(cpuid, 0);
	drive_end();
}

/* The first ten failures of each command are logged, and requests that are late, and sizes. */
static void
messages(const void *arg __unused)
{
	static const struct {
		int	cmd;
		const char *text;
	} table[] = {
		{ BIO_READ, "read failed, error 5: sector 7, 512 bytes" },
		{ BIO_WRITE, "write failed, error 5: sector 7, 512 bytes" },
		{ BIO_DELETE, "delete failed, error 5: sector 7, 512 bytes" },
		{ BIO_FLUSH, "flush failed, error 5: writes since the last flush may be lost" },
	};
	struct bio *bios[12];
	int lines;
	u_int i;

	drive_begin(1);
	kpi_quiet = true;
	drive.dr_answers = true;
	drive.dr_status = EIO;
	lines = kpi_lines;
	for (i = 0; i < 12 * nitems(table); i++) {
		(void)drive_io(table[i % 4].cmd, i % 4 == 3 ? 0 : 7, i % 4 == 3 ? 0 : 512);
		(void)drive_intr(0);
		CHECK(strstr(kpi_line, table[MIN(i, 39) % 4].text) != NULL, "%u: %s", i, kpi_line);
		drive_ended(drive.dr_done[0], EIO);
		CHECK(kpi_lines == lines + (int)MIN(i + 1, 40), "%u: %d lines", i, kpi_lines - lines);
	}
	CHECK(kpi_sysctl_value("io_errors") == 12 * nitems(table), "counter");
	drive.dr_answers = false;
	drive.dr_status = 0;
	for (i = 0; i < nitems(bios); i++)
		bios[i] = drive_io(BIO_READ, 8 * i, 512);
	lines = kpi_lines;
	drive_seconds(31);
	CHECK(kpi_lines == lines + 10 && kpi_sysctl_value("timeouts") == 12, "%d late",
	    kpi_lines - lines);
	drive_settle();
	for (i = 0; i < nitems(bios); i++)
		drive_ended(bios[i], 0);
	lines = kpi_lines;
	kpi_disk_resizes = true;
	for (i = 1; i <= 12; i++)
		pv_blk_resize(&drive.dr_blk, (uint64_t)i << 20);
	kpi_disk_resizes = false;
	CHECK(kpi_lines == lines + 10 && kpi_sysctl_value("resizes") == 12, "%d sizes",
	    kpi_lines - lines);
	drive_end();
}

/* A histogram is as text. */
static void
hist_is(const char *path, const char *text)
{
	char seen[200] = "";
	size_t len = sizeof(seen);
	int error = kpi_sysctl(path, seen, &len, NULL, 0);

	CHECK(error == 0 && strcmp(seen, text) == 0, "%s: %s, error %d", path, seen, error);
}

/* One bio that takes so long. */
static void
hist_io(int cmd, sbintime_t time)
{
	struct bio *bp;

	bp = drive_io(cmd, cmd != BIO_FLUSH, cmd == BIO_FLUSH ? 0 : 512);
	kpi_pass(time);
	drive_settle();
	drive_ended(bp, 0);
}

/* Depths and latencies by powers of two, from when it is set on. */
static void
histograms(const void *arg __unused)
{
	struct bio *bios[5];
	u_int i;

	drive_begin(2);
	kpi_quiet = true;
	kpi_pass(SBT_1S);
	hist_is("q0.histogram.depth", "");
	hist_io(BIO_READ, 0);
	CHECK(kpi_sysctl_value("histogram") == 0 && kpi_sysctl_set("histogram", 2) == EINVAL, "off");
	/* What is in flight when it is set is not counted. */
	bios[0] = drive_io(BIO_READ, 1, 512);
	CHECK(kpi_sysctl_set("histogram", 1) == 0 && kpi_sysctl_value("histogram") == 1, "not set");
	drive_settle();
	drive_ended(bios[0], 0);
	hist_is("q0.histogram.depth", "");
	hist_is("q0.histogram.read", "");
	for (i = 0; i < 5; i++)
		bios[i] = drive_io(BIO_READ, i, 512);
	hist_is("q0.histogram.depth", "1:1 2:2 4:2");
	drive_settle();
	for (i = 0; i < 5; i++)
		drive_ended(bios[i], 0);
	hist_is("q0.histogram.depth", "1:1 2:2 4:2");
	hist_is("q0.histogram.read", "0:5");
	hist_io(BIO_READ, 2 * SBT_1US);
	hist_io(BIO_READ, 100 * SBT_1US);
	hist_is("q0.histogram.read", "0:6 64:1");
	hist_io(BIO_WRITE, 5 * SBT_1MS);
	hist_io(BIO_FLUSH, 9 * SBT_1US);
	hist_io(BIO_DELETE, 5000 * (sbintime_t)SBT_1S);
	hist_is("q0.histogram.write", "4096:1");
	hist_is("q0.histogram.flush", "8:1");
	hist_is("q0.histogram.delete", "2147483648:1");
	PCPU_SET(cpuid, 1);
	hist_io(BIO_WRITE, 0);
	PCPU_SET(cpuid, 0);
	hist_is("q1.histogram.depth", "1:1");
	hist_is("q1.histogram.write", "0:1");
	/* Set again, it goes on; off, it stands; on again, it begins anew. */
	CHECK(kpi_sysctl_set("histogram", 1) == 0, "set again");
	hist_is("q0.histogram.write", "4096:1");
	bios[0] = drive_io(BIO_WRITE, 1, 512);
	CHECK(kpi_sysctl_set("histogram", 0) == 0 && kpi_sysctl_value("histogram") == 0, "on");
	hist_io(BIO_FLUSH, 0);
	hist_is("q0.histogram.flush", "8:1");
	drive_ended(bios[0], 0);
	CHECK(kpi_sysctl_set("histogram", 1) == 0, "not set");
	hist_is("q0.histogram.write", "");
	hist_is("q1.histogram.depth", "");
	drive_end();
}

/* What sysctl(8) shows is what happened, and what it sets is checked. */
static void
sysctls(const void *arg __unused)
{
	static const char *const zero[] = { "fast", "bounced", "merged_deletes", "deferred_kicks",
	    "yields", "io_errors", "unsupported", "protocol_errors", "dma_errors", "nomem",
	    "timeouts", "timeout_resets", "requeued", "resizes", "in_flight" };
	struct bio *bios[5];
	u_int i;

	drive_new(2);
	drive.dr_params.bp_max_segs = 4;
	drive.dr_params.bp_seg_size = 4 * KB;
	drive.dr_params.bp_delete_align = 8 * DRIVE_SECTOR;
	CHECK(drive_attach() == 0, "it does not attach");
	kpi_quiet = true;
	for (i = 0; i < 5; i++) {
		PCPU_SET(cpuid, i < 3 ? 0 : 1);
		bios[i] = drive_io(BIO_WRITE, 100 * i, 20 * KB);
	}
	PCPU_SET(cpuid, 0);
	CHECK(kpi_sysctl_value("in_flight") == 10 && kpi_sysctl_value("max_in_flight") == 6 &&
	    kpi_sysctl_value("queues") == 2, "in flight");
	drive_settle();
	for (i = 0; i < 5; i++)
		drive_ended(bios[i], 0);
	CHECK(kpi_sysctl_value("bios") == 5 && kpi_sysctl_value("requests") == 10 &&
	    kpi_sysctl_value("splits") == 5, "requests");
	CHECK(kpi_sysctl_value("kicks") == DRIVE_BQ(0)->bq_pvq->q_stats.qs_kicks +
	    DRIVE_BQ(1)->bq_pvq->q_stats.qs_kicks && kpi_sysctl_value("kicks") >= 2, "kicks");
	CHECK(kpi_sysctl_value("interrupts") == 2 && kpi_sysctl_value("q1.intrs") == 1, "%ju",
	    (uintmax_t)kpi_sysctl_value("interrupts"));
	CHECK(kpi_sysctl_value("delete_size") == 64 * DRIVE_SECTOR &&
	    kpi_sysctl_value("delete_align") == 8 * DRIVE_SECTOR, "deletes");
	for (i = 0; i < nitems(zero); i++)
		CHECK(kpi_sysctl_value(zero[i]) == 0, "%s", zero[i]);
	CHECK(kpi_sysctl_value("batch") == 32 && kpi_sysctl_set("batch", 0) == EINVAL &&
	    kpi_sysctl_set("batch", 65) == EINVAL && kpi_sysctl_value("batch") == 32 &&
	    kpi_sysctl_set("batch", 64) == 0 && kpi_sysctl_set("batch", 1) == 0 &&
	    drive.dr_blk.blk_batch == 1, "batch");
	CHECK(kpi_sysctl_value("timeout") == 30 && kpi_sysctl_set("timeout", 5) == 0 &&
	    drive.dr_blk.blk_timeout == 5 && kpi_sysctl_value("timeout_reset") == 0 &&
	    kpi_sysctl_set("timeout_reset", 50) == 0 && drive.dr_blk.blk_timeout_reset == 50,
	    "time-outs");
	drive_quiet();
	CHECK(kpi_sysctl_value("reset") == 0 && kpi_sysctl_set("reset", 0) == 0 &&
	    kpi_run_tasks() == 0 && kpi_sysctl_set("reset", 2) == EINVAL, "a reset");
	CHECK(kpi_sysctl_set("reset", 1) == 0, "no reset");
	(void)kpi_run_tasks();
	CHECK(strcmp(drive.dr_log, "stop start set ") == 0, "%s", drive.dr_log);
	drive_end();
	CHECK(kpi_sysctl_set("batch", 1) == ENOENT, "the disk is gone");
}

/* A ring without room tries again by itself, as nothing in flight would end that. */
static void
io_no_room(const void *arg __unused)
{
	struct drive_req dq;
	struct bio *bp;
	struct pvq *q;
	u_int room;
	int flat, segs;

	drive_begin(1);
	q = drive.dr_pvqs[0];
	room = pvq_room(q);
	q->q_taken += room;
	bp = drive_io(BIO_WRITE, 1, 512);
	CHECK(!drive_takes(0, &dq) && kpi_callouts == 2, "without room");
	q->q_taken -= room;
	kpi_pass(SBT_1MS);
	drive_settle();
	drive_ended(bp, 0);
	kpi_quiet = true;
	/* What will never have room ends, and what comes after it does not. */
	segs = q->q_max_segs;
	flat = q->q_flat_segs;
	q->q_max_segs = q->q_flat_segs = 2;
	bp = drive_io(BIO_WRITE, 1, 512);
	CHECK(drive_is_done(bp) && !drive_takes(0, &dq) && kpi_callouts == 1, "it is kept");
	CHECK(strstr(kpi_line, "write failed, error 27: sector 1, 512 bytes") != NULL, "%s", kpi_line);
	drive_ended(bp, EIO);
	bp = drive_io(BIO_FLUSH, 0, 0);
	q->q_max_segs = segs;
	q->q_flat_segs = flat;
	drive_expect(0, &dq, PV_BLK_FLUSH, 0, 0);
	drive_complete(&dq, 0);
	drive_ended(bp, 0);
	CHECK(DRIVE_STATS(0)->bs_dma_errors == 1 && DRIVE_STATS(0)->bs_requests == 2, "counters");
	/* So does one that is broken, before its reset. */
	pvq_break(q, PVQ_FAULT_OWNER, 0);
	bp = drive_io(BIO_WRITE, 1, 512);
	CHECK(kpi_callouts == 2, "it is not looked for again");
	drive_settle();
	drive_ended(bp, 0);
	drive_end();
}

static const u_int few = 2;

static const struct hosted_test tests[] = {
	{ "io_of_each_length", "and kind of memory", io_of_each_length, NULL },
	{ "io_of_each_length_by_bus_dma", "the same", io_of_each_length, &by_dma },
	{ "io_pieces_ascend", "and are as long as they may be", io_pieces_ascend, NULL },
	{ "io_pieces_ascend_by_bus_dma", "the same", io_pieces_ascend, &by_dma },
	{ "io_errors", "of a piece are the bio's", io_errors, NULL },
	{ "io_errors_by_bus_dma", "the same", io_errors, &by_dma },
	{ "io_what_a_disk_does_not_have", "ends at once", io_what_a_disk_does_not_have, NULL },
	{ "io_full_ring", "nothing is lost, and order is kept", io_full, NULL },
	{ "io_few_requests", "the same", io_full, &few },
	{ "io_small_ring", "one request at a time", io_what_never_fits, NULL },
	{ "io_longer_than_a_table", "and there is room for others", io_longer_than_a_table, NULL },
	{ "io_longer_than_a_table_by_bus_dma", "the same", io_longer_than_a_table, &by_dma },
	{ "io_of_each_split_ring", "and after a reset", io_of_each_ring, split_impls },
	{ "io_of_each_packed_ring", "the same", io_of_each_ring, packed_impls },
	{ "io_of_fair_segments", "and whole sectors", io_of_fair_segments, NULL },
	{ "io_of_fair_segments_by_bus_dma", "the same", io_of_fair_segments, &by_dma },
	{ "io_of_segments_less_than_a_page", "by halves", io_of_segments_less_than_a_page, NULL },
	{ "io_of_segments_less_than_a_page_by_bus_dma", "the same",
	    io_of_segments_less_than_a_page, &by_dma },
	{ "io_without_memory", "is tried again", io_without_memory, NULL },
	{ "io_bounced", "sectors in too many pieces", io_bounced, NULL },
	{ "io_bounced_by_bus_dma", "the same", io_bounced, &by_dma },
	{ "io_bounced_in_segments", "the same", io_bounced_in_segments, NULL },
	{ "io_bounced_in_segments_by_bus_dma", "the same", io_bounced_in_segments, &by_dma },
	{ "io_interrupts", "for the next completion", io_interrupts, NULL },
	{ "io_yields", "the thread", io_yields, NULL },
	{ "io_completes_meanwhile", "and there is no interrupt", io_completes_meanwhile, NULL },
	{ "io_from_within", "biodone(9)", io_from_within, NULL },
	{ "io_no_room", "is tried again", io_no_room, NULL },
	{ "messages", "are limited", messages, NULL },
	{ "histograms", "of depths and latencies", histograms, NULL },
	{ "sysctls", "have what happened", sysctls, NULL },
	{ "io_notified", "at once", io_notified, NULL },
	{ "pace_is_tried_and_kept", "notifications wait", pace_is_tried, NULL },
	{ "pace_is_tried_and_given_up", "they do not", pace_is_tried, &few },
	{ "pace_of_one_at_a_time", "is not tried", pace_of_one_at_a_time, NULL },
	{ "pace_follows_the_device", "when it is slower", pace_follows_the_device, NULL },
	{ "pace_ends_after_a_second", "for a silent device", pace_ends_after_a_second, NULL },
	{ "order_of_barriers", "over all queues", order_of_barriers, NULL },
	{ "deletes", "ranges, units, errors", deletes_and_units, NULL },
	{ "deletes_of_large_units", "in pieces", deletes_of_large_units, NULL },
	{ "deletes_are_gathered", "up to the limits", deletes_are_gathered, NULL },
	{ "deletes_of_nothing", "are no ranges", deletes_of_nothing, NULL },
	{ "io_by_copies", "of a peer", io_by_copies, NULL },
	{ "life_reconnected", "with another peer", life_reconnected, NULL },
	{ "life_reconnected_for_more_requests", "the same", life_reconnected, &few },
	{ "life_held", "until what is in flight has ended", life_held, NULL },
	{ "life_ends_with_its_peer", "and at once", life_ends_with_its_peer, NULL },
	{ "life_no_dump_while_frozen", "through a peer", life_no_dump_while_frozen, NULL },
	{ "queues_have_segments_of_their_own", "as they have locks",
	    queues_have_segments_of_their_own, NULL },
	{ "queues_are_idle_by_themselves", "and nobody is told", queues_are_idle_by_themselves,
	    NULL },
	{ "queues_of_cpus", "one each", queues_of_cpus, NULL },
	{ "life_attach_without_memory", "leaves nothing", life_attach_without_memory, NULL },
	{ "life_attach_with_few_messages", "and get more", life_attach_with_few_messages, NULL },
	{ "life_attach_with_few_maps", "and get more", life_attach_with_few_maps, NULL },
	{ "life_attach_with_a_small_bounce_buffer", "and dump",
	    life_attach_with_a_small_bounce_buffer, NULL },
	{ "life_dump_while_it_gets_more", "requests", life_dump_while_it_gets_more, NULL },
	{ "life_ident", "with what is not printable", life_ident, NULL },
	{ "life_no_answer_at_attach", "and nothing is left", life_no_answer_at_attach, NULL },
	{ "life_reset_with_requests_in_flight", "which are put again",
	    life_reset_with_requests_in_flight, NULL },
	{ "life_reset_of_a_queue", "while the others run", life_reset_of_a_queue, NULL },
	{ "life_reset_again_and_again", "for one request", life_reset_again_and_again, NULL },
	{ "life_violation_resets_the_queue", "and nothing else",
	    life_violation_resets_the_queue, NULL },
	{ "life_violation_resets_the_device", "and costs no other queue's requests",
	    life_violation_resets_the_queue, &few },
	{ "life_suspended_and_resumed", "with what was in flight", life_suspended_and_resumed, NULL },
	{ "life_suspended_with_a_broken_queue", "does not wait", life_suspended_with_a_broken_queue,
	    NULL },
	{ "life_lost_and_found", "by a device that does not start", life_lost_and_found, NULL },
	{ "life_leaked", "by a device that does not stop", life_leaked, NULL },
	{ "life_detached_under_load", "all ends", life_detached_under_load, NULL },
	{ "life_detached_with_its_bus", "and others", life_detached_with_its_bus, NULL },
	{ "life_detached_in_order", "until nobody is in it", life_detached_in_order, NULL },
	{ "life_late_requests", "are reported, and end in a reset", life_late_requests, NULL },
	{ "life_dump", "while requests are in flight", life_dump, NULL },
	{ "life_dump_and_flush", "if it caches", life_dump_and_flush, NULL },
	{ "life_dump_of_a_device_that_fails", "ends", life_dump_of_a_device_that_fails, NULL },
	{ "life_dump_through_a_peer", "when it has no more to answer", life_dump_through_a_peer, NULL },
	{ "life_other_queues", "after a stop", life_other_queues, NULL },
	{ "life_resized", "if GEOM can", life_resized, NULL },
	{ "life_query", "in time, and too late", life_query, NULL },
	{ "life_write_through", "needs one more flush", life_write_through, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	kpi_bounced = true;
	return (tests);
}
