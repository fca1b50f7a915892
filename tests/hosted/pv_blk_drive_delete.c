/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Bios that delete: units, and several of them in one request.
 */

#include "pv_blk_drive.h"

/* Where a request has ranges, deletes share one; units are not cut; one that fails is tried alone. */
void
deletes_and_units(const void *arg __unused)
{
	struct bio *bios[6];
	struct drive_req dq;
	struct pv_blk_req *rq;
	u_int i;

	drive_new(1);
	drive.dr_params.bp_delete_ranges = 4;
	drive.dr_params.bp_delete_align = 8 * DRIVE_SECTOR;
	drive.dr_params.bp_delete_first = 2 * DRIVE_SECTOR;
	CHECK(drive_attach() == 0, "it does not attach");
	kpi_quiet = true;
	memset(drive.dr_bytes, 0xff, sizeof(drive.dr_bytes));
	bios[0] = drive_io(BIO_DELETE, 0, 512);
	for (i = 1; i < 6; i++)
		bios[i] = drive_io(BIO_DELETE, 10 * i, 1024);
	drive_expect(0, &dq, PV_BLK_DELETE, 0, 512);
	CHECK(dq.dq_msg.dm_nranges == 1, "%u ranges", dq.dq_msg.dm_nranges);
	{
		struct drive_req none;

		CHECK(!drive_takes(0, &none), "two at a time");
	}
	drive_complete(&dq, 0);
	drive_expect(0, &dq, PV_BLK_DELETE, 10, 1024);
	CHECK(dq.dq_msg.dm_nranges == 4 && dq.dq_msg.dm_ranges[3].offset == 40 * DRIVE_SECTOR,
	    "%u ranges", dq.dq_msg.dm_nranges);
	/* The device fails them: each is tried alone. */
	drive_answer(&dq, EIO);
	CHECK(drive_intr(0) && drive.dr_ndone == 1, "ended");
	for (i = 1; i < 5; i++) {
		drive_expect(0, &dq, PV_BLK_DELETE, 10 * i, 1024);
		CHECK(dq.dq_msg.dm_nranges == 1, "%u ranges", dq.dq_msg.dm_nranges);
		drive_answer(&dq, i == 2 ? EIO : 0);
		CHECK(drive_intr(0), "no interrupt");
	}
	drive_settle();
	CHECK(DRIVE_STATS(0)->bs_merged_deletes == 3, "%ju",
	    (uintmax_t)DRIVE_STATS(0)->bs_merged_deletes);
	for (i = 0; i < 6; i++)
		drive_ended(bios[i], i == 2 ? EIO : 0);
	CHECK(drive.dr_bytes[0] == 0 && drive.dr_bytes[512] == 0xff &&
	    drive.dr_bytes[11 * DRIVE_SECTOR] == 0 && drive.dr_bytes[20 * DRIVE_SECTOR] == 0xff,
	    "deleted");
	/* Of 100 sectors from 5 on, requests end where a unit does, and are of 64 sectors at most. */
	bios[0] = drive_io(BIO_DELETE, 5, 100 * DRIVE_SECTOR);
	drive_expect(0, &dq, PV_BLK_DELETE, 5, 61 * DRIVE_SECTOR);
	drive_complete(&dq, 0);
	drive_expect(0, &dq, PV_BLK_DELETE, 66, 39 * DRIVE_SECTOR);
	drive_complete(&dq, 0);
	drive_ended(bios[0], 0);
	/* Only the request with the end of a bio deletes what comes after that. */
	bios[0] = drive_io(BIO_DELETE, 5, 512);
	bios[1] = drive_io(BIO_DELETE, 5, 70 * DRIVE_SECTOR);
	bios[2] = drive_io(BIO_DELETE, 200, 512);
	drive_expect(0, &dq, PV_BLK_DELETE, 5, 512);
	drive_complete(&dq, 0);
	drive_expect(0, &dq, PV_BLK_DELETE, 5, 61 * DRIVE_SECTOR);
	CHECK(dq.dq_msg.dm_nranges == 1, "%u ranges", dq.dq_msg.dm_nranges);
	drive_complete(&dq, 0);
	CHECK(drive_takes(0, &dq), "no rest");
	drive_complete(&dq, 0);
	drive_settle();
	for (i = 0; i < 3; i++)
		drive_ended(bios[i], 0);
	i = 0;
	SLIST_FOREACH(rq, &DRIVE_BQ(0)->bq_free, rq_next)
		i++;
	CHECK(i == DRIVE_REQS, "%u requests", i);
	drive_end();
}

/* Requests of 8 sectors at most, of units of 24 that begin with sector 2; a part of one first. */
void
deletes_of_large_units(const void *arg __unused)
{
	static const u_int lens[] = { 2, 8, 8, 8, 4 };
	struct drive_req dq;
	struct bio *bp;
	u_int i, sector = 0;

	drive_new(1);
	drive.dr_params.bp_delete_ranges = 1;
	drive.dr_params.bp_delete_size = 8 * DRIVE_SECTOR;
	drive.dr_params.bp_delete_align = 24 * DRIVE_SECTOR;
	drive.dr_params.bp_delete_first = 26 * DRIVE_SECTOR;
	CHECK(drive_attach() == 0, "it does not attach");
	CHECK(drive.dr_blk.blk_params.bp_delete_first == 2 * DRIVE_SECTOR, "the first unit");
	bp = drive_io(BIO_DELETE, 0, 30 * DRIVE_SECTOR);
	for (i = 0; i < nitems(lens); sector += lens[i++]) {
		drive_expect(0, &dq, PV_BLK_DELETE, sector, lens[i] * DRIVE_SECTOR);
		drive_answer(&dq, 0);
	}
	CHECK(drive_intr(0) && DRIVE_STATS(0)->bs_splits == 4, "%ju pieces",
	    (uintmax_t)DRIVE_STATS(0)->bs_splits);
	drive_ended(bp, 0);
	/* As much as is deleted at most is one. */
	bp = drive_io(BIO_DELETE, 5, 8 * DRIVE_SECTOR);
	drive_expect(0, &dq, PV_BLK_DELETE, 5, 8 * DRIVE_SECTOR);
	drive_complete(&dq, 0);
	drive_ended(bp, 0);
	drive_end();
}

/* Deletes share a request as far as it has ranges, and bytes; what is none ends that. */
void
deletes_are_gathered(const void *arg __unused)
{
	struct bio *bios[7];
	struct drive_req dq;
	u_int i;

	drive_new(1);
	drive.dr_params.bp_delete_ranges = 3;
	drive.dr_params.bp_delete_size = 64 * DRIVE_SECTOR;
	CHECK(drive_attach() == 0, "it does not attach");
	/* The first is a request, until whose end the others are held back. */
	bios[0] = drive_io(BIO_DELETE, 0, 512);
	bios[1] = drive_io(BIO_DELETE, 10, 30 * DRIVE_SECTOR);
	bios[2] = drive_io(BIO_DELETE, 50, 34 * DRIVE_SECTOR);
	bios[3] = drive_io(BIO_DELETE, 100, 40 * DRIVE_SECTOR);
	bios[4] = drive_io(BIO_DELETE, 200, 25 * DRIVE_SECTOR);
	bios[5] = drive_io(BIO_DELETE, 300, 24 * DRIVE_SECTOR);
	bios[6] = drive_io(BIO_WRITE, 400, 512);
	drive_expect(0, &dq, PV_BLK_DELETE, 0, 512);
	drive_answer(&dq, 0);
	drive_expect(0, &dq, PV_BLK_WRITE, 400, 512);
	drive_complete(&dq, 0);
	/* 64 sectors together, and then no more; 65 are too many. */
	drive_expect(0, &dq, PV_BLK_DELETE, 10, 30 * DRIVE_SECTOR);
	CHECK(dq.dq_msg.dm_nranges == 2 && dq.dq_msg.dm_ranges[1].offset == 50 * DRIVE_SECTOR,
	    "%u ranges", dq.dq_msg.dm_nranges);
	drive_complete(&dq, 0);
	drive_expect(0, &dq, PV_BLK_DELETE, 100, 40 * DRIVE_SECTOR);
	CHECK(dq.dq_msg.dm_nranges == 1, "%u ranges", dq.dq_msg.dm_nranges);
	drive_complete(&dq, 0);
	drive_expect(0, &dq, PV_BLK_DELETE, 200, 25 * DRIVE_SECTOR);
	CHECK(dq.dq_msg.dm_nranges == 2, "%u ranges", dq.dq_msg.dm_nranges);
	drive_complete(&dq, 0);
	CHECK(DRIVE_STATS(0)->bs_merged_deletes == 2 && DRIVE_STATS(0)->bs_requests == 5, "counters");
	for (i = 0; i < 7; i++)
		drive_ended(bios[i], 0);
	/* All of a request that fails, and the device has gone before they could be tried alone. */
	bios[0] = drive_io(BIO_DELETE, 0, 512);
	for (i = 1; i < 4; i++)
		bios[i] = drive_io(BIO_DELETE, 10 * i, 512);
	drive_expect(0, &dq, PV_BLK_DELETE, 0, 512);
	drive_complete(&dq, 0);
	drive_expect(0, &dq, PV_BLK_DELETE, 10, 512);
	CHECK(pv_dev_freeze(&drive.dr_blk.blk_pvdev) == 0, "not suspended");
	drive.dr_restart_error = ENODEV;
	CHECK(pv_dev_thaw(&drive.dr_blk.blk_pvdev) == ENODEV, "resumed");
	drive_ended(bios[0], 0);
	for (i = 1; i < 4; i++)
		drive_ended(bios[i], ENXIO);
	drive_end();
	/* Two ranges are enough to be held back for. */
	drive_new(1);
	drive.dr_params.bp_delete_ranges = 2;
	CHECK(drive_attach() == 0, "it does not attach");
	for (i = 0; i < 3; i++)
		bios[i] = drive_io(BIO_DELETE, 10 * i, 512);
	for (i = 0; i < 2; i++) {
		drive_expect(0, &dq, PV_BLK_DELETE, 10 * i, 512);
		CHECK(dq.dq_msg.dm_nranges == i + 1, "%u ranges", dq.dq_msg.dm_nranges);
		drive_complete(&dq, 0);
	}
	for (i = 0; i < 3; i++)
		drive_ended(bios[i], 0);
	drive_end();
}

/* One of nothing ends without the device, and is no range. */
void
deletes_of_nothing(const void *arg __unused)
{
	struct bio *bios[4];
	struct drive_req dq;
	u_int i;

	drive_new(1);
	drive.dr_params.bp_delete_ranges = 3;
	drive.dr_params.bp_nreqs = 1;
	CHECK(drive_attach() == 0, "it does not attach");
	bios[0] = drive_io(BIO_WRITE, 0, 512);
	for (i = 1; i < 4; i++)
		bios[i] = drive_io(BIO_DELETE, 10 * i, i == 2 ? 0 : 512);
	drive_expect(0, &dq, PV_BLK_WRITE, 0, 512);
	drive_answer(&dq, 0);
	for (i = 1; i < 4; i += 2) {
		CHECK(drive_intr(0), "no interrupt");
		drive_expect(0, &dq, PV_BLK_DELETE, 10 * i, 512);
		CHECK(dq.dq_msg.dm_nranges == 1, "%u ranges", dq.dq_msg.dm_nranges);
		drive_answer(&dq, 0);
	}
	drive_settle();
	for (i = 0; i < 4; i++)
		drive_ended(bios[i], 0);
	drive_end();
}
