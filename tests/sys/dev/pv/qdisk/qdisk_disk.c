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

const struct qd_case qd_disk_cases[] = {
	{ "read_only_disk_is_only_read", qd_read_only_disk_is_only_read },
	{ "identifications_stay_distinct", qd_identifications_stay_distinct },
	{ "failed_bio_has_moved_nothing", qd_failed_bio_has_moved_nothing },
	{ "failed_last_flush_is_not_the_last", qd_failed_last_flush_is_not_the_last },
	{ "dump_ends_with_a_flush", qd_dump_ends_with_a_flush },
	{ NULL, NULL }
};
