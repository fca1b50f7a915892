/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * GEOM, for tests of a disk's driver.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>

#include <geom/geom_disk.h>

#include "../host/host.h"
#include "../kpi/disk.h"
#include "../kpi/kpi.h"
#include "../kpi/sched.h"
#include "disk_user.h"

u_char disk_bytes[SECTORS * SECTOR];
void (*disk_settles)(void);

void
disk_new(void (*settles)(void))
{

	memset(disk_bytes, 0, sizeof(disk_bytes));
	disk_settles = settles;
}

static void
bio_ended(struct bio *bp)
{

	CHECK(bp->bio_caller2 == NULL, "it ended twice");
	bp->bio_caller2 = bp;
}

struct bio *
submit(int cmd, u_int sector, size_t len)
{
	struct bio *bp = host_alloc(sizeof(*bp), sizeof(void *));
	size_t i;

	memset(bp, 0, sizeof(*bp));
	bp->bio_cmd = cmd;
	bp->bio_offset = (off_t)sector * SECTOR;
	bp->bio_length = bp->bio_bcount = len;
	bp->bio_done = bio_ended;
	bp->bio_disk = kpi_disk;
	if (cmd == BIO_READ || cmd == BIO_WRITE)
		bp->bio_data = host_alloc(len, 1);
	for (i = 0; i < len && bp->bio_data != NULL; i++)
		bp->bio_data[i] = cmd == BIO_READ ? 0x5a : sector * 3 + i * 7 + i / SECTOR;
	kpi_disk->d_strategy(bp);
	return (bp);
}

bool
has_ended(const struct bio *bp)
{

	return (bp->bio_caller2 != NULL);
}

void
ended(struct bio *bp, int error)
{

	CHECK(has_ended(bp), "it has not ended");
	CHECK(bp->bio_error == error && ((bp->bio_flags & BIO_ERROR) != 0) == (error != 0), "error %d",
	    bp->bio_error);
	CHECK(bp->bio_resid == (error != 0 ? bp->bio_bcount : 0), "%ld are left", bp->bio_resid);
	if (error == 0 && bp->bio_data != NULL)
		CHECK(memcmp(disk_bytes + bp->bio_offset, bp->bio_data, bp->bio_bcount) == 0,
		    "other data");
	host_free(bp->bio_data);
	host_free(bp);
}

void
io(int cmd, u_int sector, size_t len, int error)
{
	const uint64_t before = kpi_sysctl_value("bios");
	struct bio *bp = submit(cmd, sector, len);

	disk_settles();
	ended(bp, error);
	/* Deletes may be gathered first. */
	CHECK(error != 0 || cmd == BIO_DELETE || kpi_sysctl_value("bios") == before + 1,
	    "%ju bios counted", (uintmax_t)(kpi_sysctl_value("bios") - before));
}

void
seconds(u_int n)
{

	while (n-- > 0) {
		kpi_pass(SBT_1S);
		disk_settles();
	}
}
