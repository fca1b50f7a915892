/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The life of xbd with one back end after another, without one, and with too little of what it needs.
 */

#include "xbd.h"

#include "device_if.h"

/* Another size while the disk is used. */
void
life_changes(const void *arg __unused)
{

	kpi_quiet = true;
	kpi_disk_resizes = true;
	device_new();
	/* Before there is a disk. */
	XENFRONT_OTHEREND_CHANGED(front.dev, "sectors");
	connect_ok();
	offer("sectors", 1000);
	XENFRONT_OTHEREND_CHANGED(front.dev, "sector-size");
	CHECK(kpi_disk->d_mediasize == SECTORS * SECTOR, "by another node");
	XENFRONT_OTHEREND_CHANGED(front.dev, "sectors");
	CHECK(kpi_disk->d_mediasize == 1000 * SECTOR && kpi_sysctl_value("resizes") == 1, "no resize");
	offer("sectors", 1001);
	XENFRONT_OTHEREND_CHANGED(front.dev, "");
	CHECK(kpi_disk->d_mediasize == 1001 * SECTOR && kpi_sysctl_value("resizes") == 2, "no resize");
	/* No size is no size of nothing. */
	offer("sectors", 0);
	XENFRONT_OTHEREND_CHANGED(front.dev, "sectors");
	xsn_clear(BACK, "sectors");
	XENFRONT_OTHEREND_CHANGED(front.dev, "sectors");
	offer("sectors", 5);
	xsn_no_answer = ETIMEDOUT;
	XENFRONT_OTHEREND_CHANGED(front.dev, "sectors");
	xsn_no_answer = 0;
	CHECK(kpi_disk->d_mediasize == 1001 * SECTOR && kpi_sysctl_value("resizes") == 2, "resized");
	/* With larger sectors a size is in whole ones. */
	device_end();
	device_new();
	offer("sector-size", 2048);
	connect_ok();
	offer("sectors", 1003);
	XENFRONT_OTHEREND_CHANGED(front.dev, "sectors");
	CHECK(kpi_disk->d_mediasize == 1000 * SECTOR, "%jd", (intmax_t)kpi_disk->d_mediasize);
	/* The next back end has another size. */
	offer("sectors", 2000);
	reconnect();
	CHECK(kpi_disk->d_mediasize == 2000 * SECTOR, "%jd", (intmax_t)kpi_disk->d_mediasize);
	device_end();
	kpi_disk_resizes = false;
}

/* The next back end has less of everything, and the one after it more than the first one had. */
void
life_another_back_end(const void *arg __unused)
{
	static const u_int sectors[] = { 900, 20, 500, 3 };
	struct bio *bios[nitems(sectors) + 1], *longer;
	u_int i;

	kpi_quiet = true;
	device_new();
	offer("max-ring-page-order", 1);
	offer("multi-queue-max-queues", 2);
	offer("feature-max-indirect-segments", 20);
	tune_ring_order(4);
	connect_ok();
	CHECK(be.nrings == 2 && be.npages == 2, "%u rings", be.nrings);
	io(BIO_WRITE, 0, 20 * PAGE_SIZE, 0);
	be.answers = false;
	for (i = 0; i < nitems(sectors); i++)
		bios[i] = submit(BIO_WRITE, sectors[i], SECTOR);
	longer = submit(BIO_WRITE, 1000, 20 * PAGE_SIZE);
	for (i = 0; i < nitems(sectors); i++)
		CHECK(be_takes(0, &be.last) && be_sector(&be.last) == sectors[i], "request %u", i);
	CHECK(be_takes(0, &be.last) && be.last.nsegs == 20, "%u segments", be.last.nsegs);
	disconnect();
	bios[i] = submit(BIO_WRITE, 700, SECTOR);
	xsn_clear(BACK, "max-ring-page-order");
	xsn_clear(BACK, "multi-queue-max-queues");
	xsn_clear(BACK, "feature-max-indirect-segments");
	kpi_line[0] = '\0';
	connect_ok();
	CHECK(strcmp(kpi_line, "the back end is back\n") == 0, "%s", kpi_line);
	CHECK(be.nrings == 1 && be.npages == 1 && kpi_sysctl_value("queues") == 1 &&
	    kpi_sysctl_value("ring_order") == 0 && kpi_sysctl_value("max_segs") == 11, "%u rings",
	    be.nrings);
	/* What was in flight goes first, in its order; what is too long now, in pieces. */
	for (i = 0; i < nitems(sectors); i++)
		CHECK(be_takes(0, &be.last) && be_sector(&be.last) == sectors[i], "again %u", i);
	CHECK(be_takes(0, &be.last) && be_sector(&be.last) == 1000 && be.last.nsegs == 11 &&
	    be.last.op == BLKIF_OP_WRITE, "%u segments", be.last.nsegs);
	be_responds(0, be.last.req.id, BLKIF_OP_WRITE, BLKIF_RSP_ERROR);
	settle();
	disconnect();
	be.answers = true;
	offer("max-ring-page-order", 3);
	offer("multi-queue-max-queues", 3);
	offer("feature-max-indirect-segments", 32);
	connect_ok();
	seconds(1);
	CHECK(be.nrings == 2 && be.npages == 8 && kpi_sysctl_value("max_segs") == 20, "%u rings",
	    be.nrings);
	for (i = 0; i <= nitems(sectors); i++)
		ended(bios[i], 0);
	CHECK(has_ended(longer) && longer->bio_error == EIO, "error %d", longer->bio_error);
	host_free(longer->bio_data);
	host_free(longer);
	be.longest = 0;
	io(BIO_READ, 0, 40 * PAGE_SIZE, 0);
	CHECK(be.longest == 20, "%u segments", be.longest);
	tunables_as_before();
	device_end();
}

/* A back end that returns with a disk that users can't take for the same one is refused. */
void
life_another_disk(const void *arg __unused)
{
	static const struct {
		u_int	info, size, next_info, next_size;
		const char *says;
	} table[] = {
		{ 0, 512, VDISK_READONLY, 512, "sectors of 512 bytes, read-only)" },
		{ VDISK_READONLY, 512, 0, 512, "sectors of 512 bytes)" },
		{ 0, 512, 0, 4096, "sectors of 4096 bytes)" },
		{ VDISK_READONLY, 4096, VDISK_READONLY, 512, "sectors of 512 bytes, read-only)" },
	};
	struct bio *bp;
	size_t i;

	kpi_quiet = true;
	for (i = 0; i < nitems(table); i++) {
		device_new();
		offer("info", table[i].info);
		offer("sector-size", table[i].size);
		connect_ok();
		disconnect();
		bp = submit(BIO_READ, 8, 4096);
		offer("info", table[i].next_info);
		offer("sector-size", table[i].next_size);
		CHECK(fr_connect() == ENODEV && strstr(kpi_line, table[i].says) != NULL, "%zu: %s", i,
		    kpi_line);
		CHECK(!has_ended(bp) && kpi_disk != NULL, "%zu: ended", i);
		offer("info", table[i].info);
		offer("sector-size", table[i].size);
		connect_ok();
		settle();
		ended(bp, 0);
		/* Whether it is a removable one does not matter. */
		offer("info", table[i].info | VDISK_REMOVABLE);
		reconnect();
		io(BIO_READ, 8, 4096, 0);
		device_end();
	}
}

/* A back end that asks to close: not while the disk is used, unless it does not answer any more. */
void
life_closing(const void *arg __unused)
{
	struct bio *bp, *late;

	kpi_quiet = true;
	device_new();
	CHECK(XENFRONT_STOP(front.dev, false) == 0 && DEVICE_QUIESCE(front.dev) == 0, "without a disk");
	connect_ok();
	CHECK(kpi_disk->d_open(kpi_disk) == 0 && XENFRONT_STOP(front.dev, false) == EBUSY &&
	    DEVICE_QUIESCE(front.dev) == EBUSY, "in use");
	io(BIO_READ, 1, SECTOR, 0);
	CHECK(fr.rechecks == 0 && kpi_disk->d_close(kpi_disk) == 0 && fr.rechecks == 1, "%u rechecks",
	    fr.rechecks);
	CHECK(DEVICE_QUIESCE(front.dev) == 0 && XENFRONT_STOP(front.dev, false) == 0, "not in use");
	/* Nothing is put from now on. */
	bp = submit(BIO_READ, 1, SECTOR);
	CHECK(!be_takes(0, &be.last), "put");
	released();
	connect_ok();
	settle();
	ended(bp, 0);
	CHECK(kpi_disk->d_open(kpi_disk) == 0, "not open");
	be.answers = false;
	late = submit(BIO_READ, 2, SECTOR);
	seconds(29);
	CHECK(XENFRONT_STOP(front.dev, false) == EBUSY, "too early");
	seconds(2);
	kpi_line[0] = '\0';
	CHECK(XENFRONT_STOP(front.dev, false) == 0 &&
	    strstr(kpi_line, "does not answer any more") != NULL, "%s", kpi_line);
	released();
	be.answers = true;
	connect_ok();
	settle();
	ended(late, 0);
	/* Gone, it is not asked. */
	kpi_line[0] = '\0';
	disconnect();
	CHECK(kpi_line[0] == '\0', "%s", kpi_line);
	connect_ok();
	CHECK(kpi_disk->d_close(kpi_disk) == 0, "close");
	device_end();
}

/* No back end is expected: users get errors, until there is one. */
void
life_lost(const void *arg __unused)
{
	struct bio *bp;

	kpi_quiet = true;
	device_new();
	XENFRONT_LOST(front.dev);
	connect_ok();
	disconnect();
	bp = submit(BIO_WRITE, 1, SECTOR);
	settle();
	CHECK(!has_ended(bp), "ended");
	XENFRONT_LOST(front.dev);
	ended(bp, ENXIO);
	io(BIO_WRITE, 1, SECTOR, ENXIO);
	connect_ok();
	io(BIO_WRITE, 1, SECTOR, 0);
	disconnect();
	/* One that goes before it was connected, and one that does not answer what its disk is. */
	bp = submit(BIO_WRITE, 2, SECTOR);
	CHECK(set_up() == 0, "not set up");
	be_connects();
	disconnect();
	CHECK(set_up() == 0, "not set up");
	be_connects();
	xsn_no_answer = ETIMEDOUT;
	CHECK(XENFRONT_LIVE(front.dev) == ETIMEDOUT && !has_ended(bp), "live");
	xsn_no_answer = 0;
	disconnect();
	CHECK(!has_ended(bp), "ended");
	/* The disk goes without a back end. */
	device_end();
	ended(bp, ENXIO);
}

/* A suspension of the domain: nothing is put or collected until it goes on. */
void
life_suspended(const void *arg __unused)
{
	struct bio *flying, *bp;

	kpi_quiet = true;
	device_new();
	CHECK(DEVICE_SUSPEND(front.dev) == 0 && DEVICE_RESUME(front.dev) == 0, "without a disk");
	connect_ok();
	be.answers = false;
	flying = submit(BIO_WRITE, 1, SECTOR);
	CHECK(DEVICE_SUSPEND(front.dev) == 0, "not suspended");
	be.answers = true;
	settle();
	CHECK(be.nserved == 1 && !has_ended(flying), "%u served", be.nserved);
	bp = submit(BIO_READ, 1, SECTOR);
	settle();
	CHECK(be.nserved == 1, "put");
	/* It failed: the back end is the same. */
	CHECK(DEVICE_RESUME(front.dev) == 0, "not resumed");
	settle();
	ended(flying, 0);
	ended(bp, 0);
	/* It has another one. */
	be.answers = false;
	flying = submit(BIO_WRITE, 1, SECTOR);
	CHECK(DEVICE_SUSPEND(front.dev) == 0, "not suspended");
	disconnect();
	CHECK(DEVICE_RESUME(front.dev) == 0, "not resumed");
	bp = submit(BIO_READ, 1, SECTOR);
	settle();
	CHECK(!has_ended(flying) && !has_ended(bp), "ended without a back end");
	be.answers = true;
	connect_ok();
	settle();
	ended(flying, 0);
	ended(bp, 0);
	/* It has none when it is suspended, and it is resumed with one. */
	disconnect();
	CHECK(DEVICE_SUSPEND(front.dev) == 0, "not suspended");
	bp = submit(BIO_READ, 1, SECTOR);
	CHECK(DEVICE_RESUME(front.dev) == 0 && !has_ended(bp), "ended");
	connect_ok();
	settle();
	ended(bp, 0);
	/* A resume that nothing was suspended for. */
	XENFRONT_STOP(front.dev, true);
	CHECK(DEVICE_RESUME(front.dev) == 0, "not resumed");
	bp = submit(BIO_READ, 1, SECTOR);
	settle();
	CHECK(!has_ended(bp), "put");
	released();
	connect_ok();
	settle();
	ended(bp, 0);
	device_end();
}

/* Events that come before there is a disk, and when it is gone. */
void
life_early_events(const void *arg __unused)
{

	device_new();
	CHECK(set_up() == 0, "not set up");
	be_connects();
	be.rings[0].event = true;
	CHECK(be_event(0) && fr.sc.xbd_queues[0]->q_stats.qs_intrs == 0, "counted");
	CHECK(XENFRONT_LIVE(front.dev) == 0, "not live");
	be.rings[0].event = true;
	CHECK(be_event(0) && fr.sc.xbd_queues[0]->q_stats.qs_intrs == 1, "not counted");
	device_end();
}

static void
answer_meanwhile(void)
{

	be.answers = true;
	settle();
}

/* A detachment gives what is in flight ten seconds, and no longer. */
void
life_detach_waits(const void *arg __unused)
{
	sbintime_t began;
	struct bio *bp;

	kpi_quiet = true;
	device_begin();
	be.answers = false;
	bp = submit(BIO_WRITE, 1, SECTOR);
	kpi_pause = answer_meanwhile;
	device_end();
	kpi_pause = NULL;
	ended(bp, 0);
	device_begin();
	be.answers = false;
	bp = submit(BIO_WRITE, 1, SECTOR);
	began = kpi_uptime;
	device_end();
	CHECK(kpi_uptime - began > 9 * SBT_1S && kpi_uptime - began < 12 * SBT_1S, "%jd ms",
	    (intmax_t)((kpi_uptime - began) / SBT_1MS));
	ended(bp, ENXIO);
	/* Before it was ever live. */
	device_new();
	CHECK(set_up() == 0, "not set up");
	device_end();
}

/* What may fail while it is set up, for the nth time. */
static const struct {
	int	*nth, error;
	const char *says[3];	/* the first, or that of as many pages; NULL: others say it */
} failures[] = {
	{ &kpi_fail_after, ENOMEM, { "error 12", "error 12", "error 12" } },
	{ &gnt_fail_after, ENOSPC, { "no grant references for a request, error 28",
	    "no ring of 1 pages, error 28", "no ring of 2 pages, error 28" } },
	{ &xsn_fail_after, ENOSPC, { NULL, NULL, NULL } },
	{ &channels_fail_after, EINVAL, { "no event channel, error 22", "no event channel, error 22",
	    "no event channel, error 22" } },
};

/* One attempt in which this fails for the nth time.  False: there are not so many. */
static bool
fails(u_int what, int n, bool big)
{
	const char *const *says = failures[what].says;
	int error, left;

	device_new();
	if (big) {
		offer("max-ring-page-order", 1);
		offer("multi-queue-max-queues", 3);
		tune_ring_order(1);
	}
	kpi_line[0] = '\0';
	channels_error = EINVAL;
	*failures[what].nth = n;
	error = fr_connect();
	left = *failures[what].nth;
	*failures[what].nth = 0;
	channels_error = ENOSPC;
	CHECK(error == 0 || error == failures[what].error, "%u, %u: error %d", what, n, error);
	CHECK(error == 0 || says[0] == NULL || strstr(kpi_line, says[0]) != NULL || strstr(kpi_line,
	    says[1 + big]) != NULL, "%u, %u: %s", what, n, kpi_line);
	/* The next attempt does not fail, and queues that are missing come. */
	if (error != 0)
		connect_ok();
	seconds(1);
	if (front.resets > 0)
		reconnect();
	CHECK(be.nrings == (big ? 3 : 1), "%u, %u: %u rings", what, n, be.nrings);
	io(BIO_WRITE, 1, 4 * KB, 0);
	io(BIO_READ, 1, 4 * KB, 0);
	tunables_as_before();
	device_end();
	return (error != 0 || left == 0);
}

/* A set-up that fails, wherever it does, leaves nothing, and the next one does not. */
void
life_set_up_fails(const void *arg __unused)
{
	u_int n, what;

	kpi_quiet = true;
	for (what = 0; what < 2 * nitems(failures); what++) {
		for (n = 1; fails(what / 2, n, what % 2); n++)
			continue;
		CHECK(n > 1, "%u: never failed", what);
	}
}

/* What is published once more, as another domain came between, is the same. */
void
life_published_twice(const void *arg __unused)
{

	device_new();
	offer("multi-queue-max-queues", 3);
	xsn_conflicts = true;
	connect_ok();
	io(BIO_WRITE, 1, 4 * KB, 0);
	device_end();
}

/* With fewer channels, grants or nodes there are fewer queues, and more as soon as there can be. */
void
life_fewer_queues(const void *arg __unused)
{
	u_int resets;

	kpi_quiet = true;
	device_new();
	offer("multi-queue-max-queues", 3);
	channels_most = 2;
	connect_ok();
	CHECK(be.nrings == 2 && kpi_sysctl_value("queues") == 2 && channels_open() == 2, "%u rings",
	    be.nrings);
	io(BIO_WRITE, 1, 4 * KB, 0);
	seconds(3);
	CHECK(front.resets == 0 && channels_open() == 2, "%u resets", front.resets);
	channels_most = 3;
	/* Nodes are another front end's. */
	CHECK(xenbus_queues(kpi_device(), 59) == 59, "nodes");
	seconds(3);
	CHECK(front.resets == 0, "%u resets", front.resets);
	xenbus_return_queues(&front.other);
	gnt_limit = gnt_in_use() + 1;
	seconds(3);
	CHECK(front.resets == 0, "%u resets", front.resets);
	gnt_limit = 1000;
	settle();
	CHECK(front.resets == 1 && channels_open() == 2, "%u resets", front.resets);
	reconnect();
	CHECK(be.nrings == 3 && kpi_sysctl_value("queues") == 3, "%u rings", be.nrings);
	resets = front.resets;
	seconds(5);
	CHECK(front.resets == resets, "%u resets", front.resets);
	/* One alone has the old nodes. */
	disconnect();
	channels_most = 1;
	connect_ok();
	CHECK(be.nrings == 1 && published("multi-queue-num-queues") == NULL, "%u rings", be.nrings);
	disconnect();
	channels_most = 0;
	CHECK(set_up() == ENOSPC && strstr(kpi_line, "no event channel") != NULL, "%s", kpi_line);
	channels_most = MOST_CHANNELS;
	/* The last references are for what does not work without them. */
	gnt_limit = FIRST_REFS + 1;
	connect_ok();
	CHECK(be.nrings == 1, "%u rings", be.nrings);
	disconnect();
	/* One more leaves an eighth of them, and the third would not. */
	gnt_limit = FIRST_REFS + 3;
	resets = front.resets;
	connect_ok();
	seconds(3);
	CHECK(be.nrings == 2 && front.resets == resets, "%u rings", be.nrings);
	gnt_limit = FIRST_REFS + 4;
	settle();
	CHECK(front.resets == resets + 1, "%u resets", front.resets);
	disconnect();
	gnt_limit = 1000;
	CHECK(xenbus_queues(kpi_device(), 60) == 60, "nodes");
	connect_ok();
	CHECK(be.nrings == 2, "%u rings", be.nrings);
	settle();
	device_end();
	gnt_limit = 8000;
}

/* With fewer grants, requests are shorter, and one of four pages is always there. */
void
life_short_of_grants(const void *arg __unused)
{
	struct bio *bios[3];
	struct wire w[3];
	u_int i;

	kpi_quiet = true;
	device_new();
	offer("feature-max-indirect-segments", 32);
	connect_ok();
	CHECK(gnt_in_use() == FIRST_REFS + 1, "%u references", gnt_in_use());
	/* For 13 times four pages, and a list. */
	gnt_limit = 80;
	be.answers = false;
	for (i = 0; i < 2; i++)
		bios[i] = submit(BIO_WRITE, 300 * i, 32 * PAGE_SIZE);
	for (i = 0; i < 3; i++)
		CHECK(be_takes(0, &w[i]), "request %u", i);
	CHECK(!be_takes(0, &be.last), "a request without a page");
	CHECK(w[0].nsegs == 32 && w[1].nsegs == 11 && w[2].nsegs == 4, "%u, %u, %u segments",
	    w[0].nsegs, w[1].nsegs, w[2].nsegs);
	CHECK(kpi_sysctl_value("shortened") >= 2, "%ju", (uintmax_t)kpi_sysctl_value("shortened"));
	for (i = 0; i < 3; i++)
		be_answers(0, &w[i], BLKIF_RSP_OKAY);
	be.answers = true;
	settle();
	seconds(2);
	ended(bios[0], 0);
	ended(bios[1], 0);
	gnt_limit = 1000;
	be.longest = 0;
	io(BIO_READ, 0, 32 * PAGE_SIZE, 0);
	io(BIO_READ, 300, 32 * PAGE_SIZE, 0);
	CHECK(be.longest == 32, "%u segments", be.longest);
	device_end();
	/* Without memory, one after the other has the spare pages. */
	device_begin();
	gnt_limit = gnt_in_use();
	be.answers = false;
	for (i = 0; i < 3; i++)
		bios[i] = submit(BIO_WRITE, 100 * i, 6 * PAGE_SIZE);
	CHECK(be_takes(0, &w[0]) && w[0].nsegs == 4 && !be_takes(0, &w[1]), "%u segments", w[0].nsegs);
	be_answers(0, &w[0], BLKIF_RSP_OKAY);
	be.answers = true;
	settle();
	seconds(5);
	for (i = 0; i < 3; i++)
		ended(bios[i], 0);
	gnt_limit = 8000;
	device_end();
	/* So has one of which only the first four pages could be had the rest of its request. */
	device_begin();
	gnt_limit = (gnt_in_use() + 4) * 8 / 7 + 1;
	be.answers = false;
	bios[0] = submit(BIO_WRITE, 0, 8 * PAGE_SIZE);
	CHECK(be_takes(0, &w[0]) && be_takes(0, &w[1]), "no requests");
	CHECK(w[0].nsegs == 4 && w[1].nsegs == 4 && kpi_sysctl_value("shortened") == 1,
	    "%u and %u segments", w[0].nsegs, w[1].nsegs);
	for (i = 0; i < 2; i++)
		be_answers(0, &w[i], BLKIF_RSP_OKAY);
	be.answers = true;
	settle();
	ended(bios[0], 0);
	gnt_limit = 8000;
	device_end();
}

/* A dump needs no memory: its pages are there, and no indirect ones are needed. */
void
life_dump(const void *arg __unused)
{
	static u_char memory[64 * KB] __aligned(PAGE_SIZE);
	u_int i;

	kpi_quiet = true;
	for (i = 0; i < sizeof(memory); i++)
		memory[i] = i * 5 + i / 512;
	device_new();
	offer("feature-max-indirect-segments", 32);
	offer("feature-flush-cache", 1);
	connect_ok();
	kpi_no_memory = true;
	be.longest = 0;
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 100 * SECTOR, sizeof(memory)) == 0, "failed");
	CHECK(memcmp(disk_bytes + 100 * SECTOR, memory, sizeof(memory)) == 0, "other data");
	CHECK(be.longest == 11 && be.nserved == 2, "%u segments", be.longest);
	CHECK(kpi_disk->d_dump(kpi_disk, NULL, 0, 0) == 0 && be.last.op == BLKIF_OP_FLUSH_DISKCACHE,
	    "no flush");
	kpi_no_memory = false;
	device_end();
}
