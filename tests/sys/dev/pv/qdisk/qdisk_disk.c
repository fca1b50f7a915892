/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the disk of pv_blk offers, its errors, flushes and dumps, seen from the device (see qdisk.c).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>

#include "qdisk.h"

/* It has no dump device, no cache to flush, and nothing is written to it or deleted. */
static void
qd_read_only_disk_is_only_read(struct qd_softc *sc)
{
	sc->qd_flags = PV_BLK_READONLY;
	qd_begin(sc, 1, 8, 8);
	sc->qd_flags = 0;
	QD_TRUE(sc, sc->qd_blk.blk_disk->d_dump == NULL);
	QD_EQ(sc, sc->qd_blk.blk_disk->d_flags & (DISKFLAG_CANFLUSHCACHE | DISKFLAG_CANDELETE), 0);
	W(sc, 0, 0);
	DEL(sc, 1, 8);
	PLAIN_FLUSH(sc, 2, 0);
	FLUSH(sc, 3, 0);
	QD_EQ(sc, sc->qd_ends[0], EROFS);
	QD_EQ(sc, sc->qd_ends[1], EROFS);
	QD_EQ(sc, sc->qd_ends[2], EOPNOTSUPP);
	QD_EQ(sc, sc->qd_ends[3], EOPNOTSUPP);
	/* Nor has the driver a flush of its own. */
	pv_blk_end_caching(&sc->qd_blk);
	QD_EQ(sc, sc->qd_nlog, 0);
	qd_submit(sc, 4, 0, BIO_READ, 0, 1, 0);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[4], 0);
	qd_end(sc);
}

/* Whatever bytes it has, an identification is a string that only this one has. */
static void
qd_identifications_stay_distinct(struct qd_softc *sc)
{
	static const struct {
		const char	*raw;	/* QD_IDENT bytes */
		const char	*shown;
	} idents[] = {
		{ "plain\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "plain" },
		{ "plain\0ignored\0\0\0\0\0\0\0", "plain" },
		{ "all 20 bytes of them", "all 20 bytes of them" },
		{ "disk\xc3\xa4" "1\0\0\0\0\0\0\0\0\0\0\0\0\0", "disk%C3%A41" },
		{ "disk\xc3\xa4" "2\0\0\0\0\0\0\0\0\0\0\0\0\0", "disk%C3%A42" },
		{ "\1\2\x7f\xff%\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "%01%02%7F%FF%25" },
		{ "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		    "%FF%FF%FF%FF%FF%FF%FF%FF%FF%FF%FF%FF%FF%FF%FF%FF%FF%FF%FF%FF" },
		{ "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "" },
	};
	u_int i;

	for (i = 0; i < nitems(idents); i++) {
		sc->qd_ident = idents[i].raw;
		qd_begin(sc, 1, 8, 8);
		sc->qd_ident = NULL;
		if (strcmp(sc->qd_blk.blk_disk->d_ident, idents[i].shown) != 0)
			printf("qdisk: %s\n", sc->qd_blk.blk_disk->d_ident);
		QD_EQ(sc, strcmp(sc->qd_blk.blk_disk->d_ident, idents[i].shown), 0);
		qd_end(sc);
	}
}

/* A queue that breaks as soon as the disk attaches is reset first, alone or with the device. */
static void
qd_identification_waits_for_a_reset(struct qd_softc *sc)
{
	int i;

	for (i = 0; i < 2; i++) {
		sc->qd_ident = "all 20 bytes of them";
		sc->qd_break = true;
		sc->qd_no_queue_reset = i == 1;
		qd_begin(sc, 1, 8, 8);
		sc->qd_ident = NULL;
		sc->qd_break = sc->qd_no_queue_reset = false;
		QD_EQ(sc, strcmp(sc->qd_blk.blk_disk->d_ident, "all 20 bytes of them"), 0);
		QD_EQ(sc, i == 0 ? sc->qd_queue_stops : sc->qd_stops, 1);
		qd_end(sc);
	}
}

/* Of a bio that failed nothing counts as moved, whichever of its pieces it was. */
static void
qd_failed_bio_has_moved_nothing(struct qd_softc *sc)
{
	qd_begin(sc, 1, 8, 8);
	qd_submit(sc, 0, 0, BIO_WRITE, 0, 16, 0);
	QD_EQ(sc, sc->qd_queues[0].qq_nheld, 2);
	qd_answer(sc, 0);
	sc->qd_fail = PV_BLK_WRITE;
	qd_answer(sc, 0);
	QD_EQ(sc, sc->qd_ends[0], EIO);
	QD_EQ(sc, sc->qd_bios[0].bio_resid, 16 * QD_SECTOR);
	qd_end(sc);
}

/* The device may still have something cached: the flushes of users go on. */
static void
qd_failed_last_flush_is_not_the_last(struct qd_softc *sc)
{
	qd_begin(sc, 1, 8, 8);
	sc->qd_fail = PV_BLK_FLUSH;
	pv_blk_end_caching(&sc->qd_blk);
	QD_EQ(sc, qd_held(sc), 1);
	qd_answer_all(sc);
	sc->qd_fail = -1;
	PLAIN_FLUSH(sc, 0, 0);
	QD_EQ(sc, sc->qd_ends[0], -1);
	QD_EQ(sc, qd_held(sc), 1);
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[0], 0);
	qd_end(sc);
}

/* A dump takes the queues as they are, and its end is durable. */
static void
qd_dump_ends_with_a_flush(struct qd_softc *sc)
{
	static char data[3 * QD_SECTOR];
	struct disk *dp;

	qd_begin(sc, 1, 8, 8);
	dp = sc->qd_blk.blk_disk;
	sc->qd_queues[0].qq_eager = true;
	QD_EQ(sc, dp->d_dump(dp, data, 5 * QD_SECTOR, sizeof(data)), 0);
	QD_EQ(sc, sc->qd_stops, 1);
	QD_EQ(sc, sc->qd_nlog, 1);
	qd_logged(sc, 0, 0, PV_BLK_WRITE, 5);
	/* GEOM, which is stopped, hears nothing of a new size. */
	pv_blk_resize(&sc->qd_blk, 512 * QD_SECTOR);
	QD_EQ(sc, dp->d_mediasize, 1024 * QD_SECTOR);
	QD_EQ(sc, dp->d_dump(dp, NULL, 0, 0), 0);
	QD_EQ(sc, sc->qd_nlog, 2);
	qd_logged(sc, 1, 0, PV_BLK_FLUSH, 0);
	QD_EQ(sc, sc->qd_stops, 1);
	qd_end(sc);
}

/*
 * The whole of a delete comes to the driver, and is cut where the units of the device end, so that each
 * unit that can be freed is; one that is larger than a request can't.
 */
static void
qd_deletes_are_cut_between_units(struct qd_softc *sc)
{
	static const struct {
		u_int	align, first, begin, n;
		u_int	cuts[8];	/* where pieces end; 0: no more */
	} cases[] = {
		{ 0, 0, 3, 20, { 11, 19, 23 } },
		{ 4, 0, 3, 20, { 8, 16, 23 } },
		{ 4, 1, 3, 20, { 9, 17, 23 } },
		{ 4, 0, 4, 16, { 12, 20 } },
		{ 4, 0, 3, 8, { 11 } },
		{ 3, 0, 1, 17, { 9, 15, 18 } },
		{ 8, 2, 3, 24, { 10, 18, 26, 27 } },
		{ 8, 10, 3, 24, { 10, 18, 26, 27 } },
		{ 16, 0, 3, 36, { 11, 16, 24, 32, 39 } },
	};
	struct disk *dp;
	u_int end, i, j, ranges;

	for (ranges = 1; ranges <= 4; ranges += 3) {
		for (i = 0; i < nitems(cases); i++) {
			sc->qd_delete_ranges = ranges;
			sc->qd_delete_align = cases[i].align;
			sc->qd_delete_first = cases[i].first;
			qd_begin(sc, 1, 8, 8);
			dp = sc->qd_blk.blk_disk;
			QD_TRUE(sc, dp->d_delmaxsize >= dp->d_mediasize &&
			    dp->d_delmaxsize % dp->d_sectorsize == 0);
			DEL(sc, cases[i].begin, cases[i].n);
			qd_answer_all(sc);
			QD_EQ(sc, sc->qd_ends[cases[i].begin], 0);
			QD_EQ(sc, sc->qd_bios[cases[i].begin].bio_resid, 0);
			end = cases[i].begin;
			for (j = 0; cases[i].cuts[j] != 0; j++) {
				qd_logged(sc, j, 0, PV_BLK_DELETE, end);
				QD_EQ(sc, sc->qd_log[j].qe_sectors, cases[i].cuts[j] - end);
				end = cases[i].cuts[j];
			}
			QD_EQ(sc, sc->qd_nlog, j);
			qd_end(sc);
		}
	}
	sc->qd_delete_ranges = sc->qd_delete_align = sc->qd_delete_first = 0;
}

/*
 * The rest of a long delete is held back like another one where one request at a time deletes: others
 * pass it, barriers do not, and it survives a suspend that leaves fewer queues, and a detachment.
 */
static void
qd_long_delete_is_passed(struct qd_softc *sc)
{
	u_int last = qd_cpu(1);

	qd_begin(sc, 2, 8, 8);
	qd_submit(sc, 0, last, BIO_DELETE, 0, 20, 0);
	W(sc, 1, last);
	QD_EQ(sc, sc->qd_nlog, 2);
	qd_logged(sc, 1, last, PV_BLK_WRITE, 1);
	FLUSH(sc, 2, 0);
	qd_answer(sc, last);
	QD_EQ(sc, sc->qd_nlog, 3);
	qd_logged(sc, 2, last, PV_BLK_DELETE, 8);
	qd_freeze_and_requeue(sc);
	qd_thaw(sc, 1);
	qd_answer_all(sc);
	qd_all_ended(sc, 3, 0);
	QD_EQ(sc, sc->qd_bios[0].bio_resid, 0);
	QD_EQ(sc, sc->qd_log[sc->qd_nlog - 1].qe_cmd, PV_BLK_FLUSH);
	qd_logged(sc, sc->qd_nlog - 2, 0, PV_BLK_DELETE, 16);
	/* One that fails in the middle fails as a whole. */
	DEL(sc, 3, 20);
	qd_answer(sc, 0);
	sc->qd_fail = PV_BLK_DELETE;
	qd_answer_all(sc);
	QD_EQ(sc, sc->qd_ends[3], EIO);
	sc->qd_fail = -1;
	DEL(sc, 4, 20);
	qd_end(sc);
	QD_EQ(sc, sc->qd_ends[4], ENXIO);
}

const struct qd_case qd_disk_cases[] = {
	{ "deletes_are_cut_between_units", qd_deletes_are_cut_between_units },
	{ "long_delete_is_passed", qd_long_delete_is_passed },
	{ "read_only_disk_is_only_read", qd_read_only_disk_is_only_read },
	{ "identifications_stay_distinct", qd_identifications_stay_distinct },
	{ "identification_waits_for_a_reset", qd_identification_waits_for_a_reset },
	{ "failed_bio_has_moved_nothing", qd_failed_bio_has_moved_nothing },
	{ "failed_last_flush_is_not_the_last", qd_failed_last_flush_is_not_the_last },
	{ "dump_ends_with_a_flush", qd_dump_ends_with_a_flush },
	{ NULL, NULL }
};
