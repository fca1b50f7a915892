/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The life of a disk: it comes, is reset, suspended, lost, dumped to, and goes.
 */

#include "pv_blk_drive.h"

#include <sys/pcpu.h>

#include <dev/pv/blk/pv_blk_var.h>

#define	PVD	(&drive.dr_blk.blk_pvdev)

/* So many requests of a queue are there: more bios than that are submitted. */
static void
life_has_reqs(u_int queue, u_int expected)
{
	struct bio *bios[20];
	struct drive_req dq;
	u_int i, n;

	PCPU_SET(cpuid, queue);
	for (i = 0; i < nitems(bios); i++)
		bios[i] = drive_io(BIO_WRITE, 32 * queue + i, 512);
	for (n = 0; drive_takes(queue, &dq); n++)
		drive_answer(&dq, 0);
	CHECK(n == expected, "%u requests in flight in queue %u", n, queue);
	while (drive_intr(queue))
		(void)drive_work(queue);
	PCPU_SET(cpuid, 0);
	for (i = 0; i < nitems(bios); i++)
		drive_ended(bios[i], 0);
}

static void
life_new_with_reqs(bool phys)
{

	drive_new(2);
	drive.dr_params.bp_phys = phys;
	drive.dr_params.bp_nreqs = 16;
	kpi_quiet = true;
}

/*
 * The nth allocation fails, and so many that follow it: less of what was to be allocated is enough,
 * down to one request of each queue.  When there is memory the disk gets the rest, and loses no bio.
 */
static bool
life_attaches_with_less(bool phys, u_int nth, u_int more, u_int made)
{
	struct pv_blk *blk = &drive.dr_blk;
	struct bio *bios[20];
	const void *messages;
	u_int have, i;

	life_new_with_reqs(phys);
	drive.dr_fail_after = nth;
	kpi_fail_more = more;
	if (drive_attach() != 0) {
		drive_forget();
		return (false);
	}
	drive_quiet();
	CHECK(made == 0 || blk->blk_nmade == made, "%u requests were made", blk->blk_nmade);
	have = blk->blk_nmade - 1;
	life_has_reqs(0, have - have / 2);
	life_has_reqs(1, have / 2);
	/* While memory is short nothing changes. */
	kpi_no_memory = true;
	CHECK(kpi_run_tasks() == (have < 32) && drive.dr_log[0] == '\0', "%s", drive.dr_log);
	kpi_no_memory = false;
	/* Nor with memory for something else than what is missing. */
	messages = blk->blk_nmade < blk->blk_nmsgs ? blk->blk_msg_dma.pdm_mem : NULL;
	if (messages != NULL && have < 32) {
		kpi_fail_after = 1;
		CHECK(kpi_run_tasks() == 1 && drive.dr_log[0] == '\0', "%s", drive.dr_log);
		CHECK(kpi_fail_after == 0, "nothing was tried");
	}
	for (i = 0; i < nitems(bios); i++)
		bios[i] = drive_io(BIO_WRITE, 100 + i, 512);
	if (have < 32)
		CHECK(kpi_run_tasks() == 1 && strcmp(drive.dr_log, "stop start set ") == 0, "%s",
		    drive.dr_log);
	CHECK(messages == NULL || messages == blk->blk_msg_dma.pdm_mem, "messages that were there");
	drive_settle();
	for (i = 0; i < nitems(bios); i++)
		drive_ended(bios[i], 0);
	life_has_reqs(0, 16);
	life_has_reqs(1, 16);
	CHECK(kpi_run_tasks() == 0, "it asks for more than all");
	drive_end();
	return (true);
}

/* Whichever allocation fails: if the disk does not attach, nothing is left. */
void
life_attach_without_memory(const void *arg __unused)
{
	u_int i, failed = 0;

	for (i = 1; i <= 2 + 1 + 2 * 16 + 1; i++)
		failed += !life_attaches_with_less(false, i, 0, 0);
	/* One request of each queue, and one for polling: what these need. */
	CHECK(failed == 3, "%u failed", failed);
	kpi_no_memory = true;
	life_new_with_reqs(true);
	CHECK(drive_attach() == ENOMEM, "it attached");
	kpi_no_memory = false;
	drive_forget();
	/* Nor without a page for the bounce buffer, or a thread, and with all the rest. */
	life_new_with_reqs(true);
	drive.dr_fail_after = 1;
	kpi_fail_more = 4;
	CHECK(drive_attach() == ENOMEM, "it attached");
	CHECK(strstr(kpi_line, "no memory for requests, error 12") != NULL, "%s", kpi_line);
	drive_forget();
	life_new_with_reqs(true);
	kpi_no_threads = true;
	CHECK(drive_attach() != 0, "it attached");
	kpi_no_threads = false;
	drive_forget();
}

void
life_attach_with_few_messages(const void *arg __unused)
{
	static const u_int made[] = { 16, 8, 4, 3 };
	u_int i;

	for (i = 0; i < nitems(made); i++) {
		/* The first allocation is the bounce buffer's. */
		CHECK(life_attaches_with_less(true, 2, i, made[i]), "%u: it does not attach", i);
		CHECK(life_attaches_with_less(false, 2, i, made[i]), "%u: it does not attach", i);
	}
	CHECK(!life_attaches_with_less(true, 2, i, 0), "it attached");
	CHECK(PVD->pvd_have[PV_DEV_REQUESTS] == 0 && PVD->pvd_could[PV_DEV_REQUESTS] == 2 * 16,
	    "%u of %u requests", PVD->pvd_have[PV_DEV_REQUESTS], PVD->pvd_could[PV_DEV_REQUESTS]);
}

void
life_attach_with_few_maps(const void *arg __unused)
{
	u_int i;

	for (i = 3; i <= 32; i++)
		CHECK(life_attaches_with_less(false, 3 + i, 100, i), "%u: it does not attach", i);
}

static int (*starts)(struct pv_blk *blk);

/* The machine panics while the disk is being started. */
static int
life_start_of_a_panic(struct pv_blk *blk)
{
	static char memory[512] = "dumped";

	drive.dr_ops.bo_restart = starts;
	drive.dr_answers = true;
	CHECK(blk->blk_nmade == 33, "%u requests", blk->blk_nmade);
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 512 * DRIVE_SECTOR, sizeof(memory)) == 0, "failed");
	CHECK(memcmp(drive.dr_bytes + 512 * DRIVE_SECTOR, memory, sizeof(memory)) == 0, "another");
	return (0);
}

/* The polled request, which a dump has, is among those that have other memory then. */
void
life_dump_while_it_gets_more(const void *arg __unused)
{

	life_new_with_reqs(true);
	starts = drive.dr_ops.bo_restart;
	drive.dr_ops.bo_restart = life_start_of_a_panic;
	drive.dr_fail_after = 2;
	CHECK(drive_attach() == 0 && drive.dr_blk.blk_nmade == 16, "it does not attach");
	(void)kpi_run_tasks();
	CHECK(drive.dr_ops.bo_restart == starts, "it is not started again");
}

/* A dump goes through what there is of the bounce buffer. */
void
life_attach_with_a_small_bounce_buffer(const void *arg __unused)
{
	static char memory[3 * 65536 + 512];
	u_int i;

	for (i = 0; i < sizeof(memory); i++)
		memory[i] = i * 7 + i / 512;
	life_new_with_reqs(true);
	drive.dr_fail_after = 1;
	kpi_fail_more = 3;
	CHECK(drive_attach() == 0 && drive.dr_blk.blk_bounce_size == 4096, "%zu bytes",
	    drive.dr_blk.blk_bounce_size);
	drive.dr_answers = true;
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 512 * DRIVE_SECTOR, sizeof(memory)) == 0, "failed");
	CHECK(memcmp(drive.dr_bytes + 512 * DRIVE_SECTOR, memory, sizeof(memory)) == 0, "another");
}

/* The identification, of which each byte counts. */
void
life_ident(const void *arg __unused)
{
	char ident[16];
	u_int i;

	drive_new(1);
	drive.dr_params.bp_ident_size = 8;
	drive.dr_answers = true;
	kpi_delayed = 0;
	CHECK(drive_attach() == 0, "it does not attach");
	CHECK(drive.dr_waited == 0 && kpi_paused == 0, "notified after %ju us",
	    (uintmax_t)drive.dr_waited);
	CHECK(strcmp(kpi_disk->d_ident, "a%25%01b") == 0, "%s", kpi_disk->d_ident);
	CHECK(strcmp(kpi_disk->d_attachment, "bus0") == 0 && kpi_disk->d_unit == 3 &&
	    kpi_disk->d_mediasize == DRIVE_SECTORS * DRIVE_SECTOR &&
	    kpi_disk->d_sectorsize == DRIVE_SECTOR, "disk");
	/* It ends where its place does, or before: what is behind it in memory is no part of it. */
	memset(drive.dr_blk.blk_bounce, 'x', 16);
	CHECK(pv_blk_ident(&drive.dr_blk, ident, sizeof(ident)) == 0 &&
	    strcmp(ident, "a%25%01b") == 0, "%s", ident);
	memset(drive.dr_blk.blk_bounce, 'x', 16);
	drive.dr_ident = "8 letter";
	CHECK(pv_blk_ident(&drive.dr_blk, ident, sizeof(ident)) == 0 &&
	    strcmp(ident, "8 letter") == 0, "%s", ident);
	/* Of a device that writes none there is none. */
	memset(drive.dr_blk.blk_bounce, 'x', 16);
	drive.dr_ident = "";
	CHECK(pv_blk_ident(&drive.dr_blk, ident, sizeof(ident)) == 0 && ident[0] == '\0', "%s", ident);
	/* A byte that needs more room than there is ends it. */
	drive.dr_ident = NULL;
	for (i = 1; i < sizeof(ident); i++) {
		memset(ident, '!', sizeof(ident));
		CHECK(pv_blk_ident(&drive.dr_blk, ident, i) == 0 && ident[i] == '!' &&
		    strncmp(ident, "a%25%01b", strlen(ident)) == 0 && strlen(ident) ==
		    (i < 4 ? 0 : i < 5 ? 1 : i < 8 ? 4 : i < 11 ? 7 : 8), "%u bytes: %s", i, ident);
	}
	drive_end();
	/* A device that has none fails the request, and is a disk without. */
	kpi_quiet = true;
	drive_new(1);
	drive.dr_params.bp_ident_size = 8;
	drive.dr_answers = true;
	drive.dr_status = EOPNOTSUPP;
	CHECK(drive_attach() == 0 && kpi_disk->d_ident[0] == '\0', "it does not attach");
	drive_end();
}

static u_int sleeps;

static void
life_slept(void)
{

	sleeps++;
}

void
life_no_answer_at_attach(const void *arg __unused)
{

	kpi_quiet = true;
	kpi_pause = life_slept;
	drive_new(2);
	drive.dr_params.bp_ident_size = 8;
	CHECK(drive_attach() == ETIMEDOUT, "it attached");
	kpi_pause = NULL;
	CHECK(sleeps == 5000 && kpi_disk == NULL, "%u sleeps", sleeps);
	CHECK(kpi_delayed == 500 * 20, "%ju microseconds", (uintmax_t)kpi_delayed);
	CHECK(strcmp(drive.dr_log, "set stop ") == 0, "%s", drive.dr_log);
	pv_blk_fini(&drive.dr_blk);
	drive_forget();
}

/* Four writes in flight, and one that waits for a request. */
static void
life_load(struct bio *bios[5])
{
	u_int i;

	for (i = 0; i < 5; i++)
		bios[i] = drive_io(BIO_WRITE, 10 * i, 4096);
}

static void
life_ended(struct bio *bios[5], int error)
{
	u_int i;

	for (i = 0; i < 5; i++)
		drive_ended(bios[i], error);
}

static void
life_begin(u_int queues)
{

	kpi_quiet = true;
	drive_new(queues);
	drive.dr_params.bp_nreqs = 4;
	CHECK(drive_attach() == 0, "it does not attach");
	drive_quiet();
}

void
life_reset_with_requests_in_flight(const void *arg __unused)
{
	sbintime_t before = kpi_uptime;
	struct drive_req dq;
	struct bio *bios[5];
	u_int i;

	life_begin(1);
	life_load(bios);
	for (i = 0; i < 2; i++)
		drive_expect(0, &dq, PV_BLK_WRITE, 10 * i, 4096);
	/* The device has done the first one, which nobody knows. */
	drive_answer(&dq, 0);
	pv_dev_need_reset(PVD, PV_DEV_ALL, ETIMEDOUT);
	(void)kpi_run_tasks();
	CHECK(kpi_uptime == before, "it waits for a device that is to be reset");
	CHECK(strcmp(drive.dr_log, "stop start set ") == 0, "%s", drive.dr_log);
	CHECK(DRIVE_STATS(0)->bs_requeued >= 3, "%ju", (uintmax_t)DRIVE_STATS(0)->bs_requeued);
	for (i = 0; i < 5 && drive_takes(0, &dq); i++) {
		CHECK(i > 0 || dq.dq_msg.dm_ranges[0].offset == 0, "another order");
		drive_answer(&dq, 0);
		if (i >= 2)
			(void)drive_intr(0);
	}
	drive_settle();
	life_ended(bios, 0);
	drive_end();
}

static int (*stops)(struct pv_blk *blk, u_int index);

/* While one queue is stopped alone, something else changes: it stays so. */
static int
life_stop_queue(struct pv_blk *blk, u_int index)
{

	CHECK(kpi_sysctl_set("histogram", 1) == 0 && kpi_sysctl_set("histogram", 0) == 0, "not set");
	CHECK((DRIVE_BQ(0)->bq_flags & PVB_STOPPED) != 0 &&
	    (DRIVE_BQ(1)->bq_flags & PVB_STOPPED) == 0, "flags 0x%x, 0x%x", DRIVE_BQ(0)->bq_flags,
	    DRIVE_BQ(1)->bq_flags);
	return (stops(blk, index));
}

void
life_reset_of_a_queue(const void *arg __unused)
{
	struct drive_req dq;
	struct bio *one, *two;

	life_begin(2);
	stops = drive.dr_ops.bo_stop_queue;
	drive.dr_ops.bo_stop_queue = life_stop_queue;
	one = drive_io(BIO_WRITE, 0, 512);
	PCPU_SET(cpuid, 1);
	two = drive_io(BIO_WRITE, 1, 512);
	drive_expect(1, &dq, PV_BLK_WRITE, 1, 512);
	PCPU_SET(cpuid, 0);
	pv_dev_need_reset(PVD, 0, ETIMEDOUT);
	(void)kpi_run_tasks();
	CHECK(strcmp(drive.dr_log, "stop0 start0 ") == 0, "%s", drive.dr_log);
	drive_answer(&dq, 0);
	CHECK(drive_intr(1), "no interrupt");
	drive_ended(two, 0);
	CHECK(!drive_is_done(one), "it has ended");
	drive_settle();
	drive_ended(one, 0);
	/* One that can't be stopped alone: the device is reset, and it is not tried again. */
	drive_quiet();
	drive.dr_stop_queue_error = EIO;
	one = drive_io(BIO_WRITE, 0, 512);
	pv_dev_need_reset(PVD, 0, ETIMEDOUT);
	while (kpi_run_tasks() > 0)
		continue;
	drive_seconds(1);
	CHECK(strcmp(drive.dr_log, "stop0 stop start set ") == 0, "%s", drive.dr_log);
	CHECK((drive.dr_blk.blk_params.bp_flags & PV_BLK_QUEUE_RESET) == 0, "it would be tried");
	drive_settle();
	drive_ended(one, 0);
	drive_end();
	/* Nor is that of a device that can't. */
	drive_new(1);
	drive.dr_params.bp_flags &= ~PV_BLK_QUEUE_RESET;
	drive.dr_ops.bo_stop_queue = NULL;
	CHECK(drive_attach() == 0, "it does not attach");
	drive_quiet();
	one = drive_io(BIO_WRITE, 0, 512);
	pv_dev_need_reset(PVD, 0, ETIMEDOUT);
	while (kpi_run_tasks() > 0)
		continue;
	drive_seconds(1);
	CHECK(strcmp(drive.dr_log, "stop start set ") == 0, "%s", drive.dr_log);
	drive_settle();
	drive_ended(one, 0);
	drive_end();
}

/* A request that is there at each reset is what breaks the device. */
void
life_reset_again_and_again(const void *arg __unused)
{
	struct bio *bp;
	u_int i, round;

	life_begin(1);
	for (round = 0; round < 2; round++) {
		bp = drive_io(BIO_WRITE, 0, 512);
		for (i = 0; !drive_is_done(bp) && i < 10; i++) {
			pv_dev_need_reset(PVD, PV_DEV_ALL, ETIMEDOUT);
			while (kpi_run_tasks() > 0)
				continue;
			drive_seconds(20);
		}
		CHECK(i == 4, "%u resets", i);
		drive_ended(bp, EIO);
	}
	bp = drive_io(BIO_WRITE, 0, 512);
	drive_settle();
	drive_ended(bp, 0);
	drive_end();
}

/*
 * What a queue that broke the rules had in flight ends with EIO; what waits for it does not, nor what
 * others have, also where the device has to be reset as a whole.
 */
void
life_violation_resets_the_queue(const void *arg)
{
	struct drive_req dq;
	struct bio *bios[5], *other;

	kpi_quiet = true;
	drive_new(2);
	drive.dr_params.bp_nreqs = 4;
	if (arg != NULL)
		drive.dr_params.bp_flags &= ~PV_BLK_QUEUE_RESET;
	CHECK(drive_attach() == 0, "it does not attach");
	drive_quiet();
	life_load(bios);
	PCPU_SET(cpuid, 1);
	other = drive_io(BIO_READ, 100, 512);
	PCPU_SET(cpuid, 0);
	drive_expect(0, &dq, PV_BLK_WRITE, 0, 4096);
	drive_complete(&dq, DRIVE_VIOLATION);
	drive_ended(bios[0], EIO);
	CHECK(DRIVE_STATS(0)->bs_protocol_errors == 1, "counter");
	(void)kpi_run_tasks();
	CHECK(strcmp(drive.dr_log, arg != NULL ? "stop start set " : "stop0 start0 ") == 0, "%s",
	    drive.dr_log);
	drive_ended(bios[1], EIO);
	drive_ended(bios[2], EIO);
	drive_ended(bios[3], EIO);
	CHECK(!drive_is_done(bios[4]) && !drive_is_done(other), "all ended");
	drive_settle();
	drive_ended(bios[4], 0);
	drive_ended(other, 0);
	drive_end();
}

void
life_suspended_and_resumed(const void *arg __unused)
{
	struct bio *bios[5], *later;
	struct drive_req dq;

	life_begin(1);
	life_load(bios);
	CHECK(pv_dev_freeze(&drive.dr_blk.blk_pvdev) == 0, "not suspended");
	CHECK(strcmp(drive.dr_log, "stop ") == 0, "%s", drive.dr_log);
	later = drive_io(BIO_WRITE, 70, 512);
	CHECK(drive.dr_ndone == 0, "%u ended", drive.dr_ndone);
	CHECK(pv_dev_thaw(&drive.dr_blk.blk_pvdev) == 0, "not resumed");
	drive_expect(0, &dq, PV_BLK_WRITE, 0, 4096);
	drive_complete(&dq, 0);
	drive_settle();
	life_ended(bios, 0);
	drive_ended(later, 0);
	/* What has time to end, does. */
	life_load(bios);
	kpi_pause = drive_settle;
	drive.dr_blk.blk_params.bp_idle_secs = 5;
	CHECK(pv_dev_freeze(&drive.dr_blk.blk_pvdev) == 0, "not suspended");
	kpi_pause = NULL;
	CHECK(drive.dr_ndone >= 4 && DRIVE_BQ(0)->bq_ninflight == 0, "%u ended", drive.dr_ndone);
	CHECK(DRIVE_STATS(0)->bs_requeued == 4, "%ju", (uintmax_t)DRIVE_STATS(0)->bs_requeued);
	CHECK(pv_dev_thaw(&drive.dr_blk.blk_pvdev) == 0, "not resumed");
	drive_settle();
	life_ended(bios, 0);
	drive_end();
}

/* A queue that is broken answers nothing that it would be waited for. */
void
life_suspended_with_a_broken_queue(const void *arg __unused)
{
	struct bio *bios[5];
	sbintime_t before;
	u_int i;

	life_begin(2);
	life_load(bios);
	drive.dr_blk.blk_params.bp_idle_secs = 5;
	before = kpi_uptime;
	CHECK(pv_dev_freeze(PVD) == 0 && kpi_uptime - before > 4 * SBT_1S && kpi_uptime - before <
	    6 * SBT_1S, "%jd s", (intmax_t)((kpi_uptime - before) / SBT_1S));
	CHECK(pv_dev_thaw(PVD) == 0, "not resumed");
	before = kpi_uptime;
	pvq_break(drive.dr_pvqs[0], PVQ_FAULT_OWNER, 0);
	CHECK(pv_dev_freeze(PVD) == 0 && kpi_uptime == before, "%jd s",
	    (intmax_t)((kpi_uptime - before) / SBT_1S));
	CHECK(pv_dev_thaw(PVD) == 0, "not resumed");
	drive_settle();
	for (i = 0; i < 5; i++)
		drive_ended(bios[i], i < 4 ? EIO : 0);
	drive_end();
}

/* A device that does not start is lost, and its I/O ends; another resume brings it back. */
void
life_lost_and_found(const void *arg __unused)
{
	struct bio *bios[5], *barrier, *waits;

	life_begin(1);
	life_load(bios);
	barrier = drive_bio(BIO_WRITE, 70, 512, false);
	barrier->bio_flags |= BIO_ORDERED;
	(void)drive_submit(barrier);
	waits = drive_io(BIO_READ, 71, 512);
	CHECK(pv_dev_freeze(&drive.dr_blk.blk_pvdev) == 0, "not suspended");
	drive.dr_restart_error = ENODEV;
	CHECK(pv_dev_thaw(&drive.dr_blk.blk_pvdev) == ENODEV, "resumed");
	life_ended(bios, ENXIO);
	drive_ended(barrier, ENXIO);
	drive_ended(waits, ENXIO);
	drive_ended(drive_io(BIO_READ, 1, 512), ENXIO);
	drive.dr_restart_error = 0;
	CHECK(pv_dev_freeze(&drive.dr_blk.blk_pvdev) == 0 && pv_dev_thaw(&drive.dr_blk.blk_pvdev) == 0,
	    "not resumed");
	/* No barrier is left that it would wait for. */
	bios[0] = drive_io(BIO_READ, 1, 512);
	drive_settle();
	drive_ended(bios[0], 0);
	drive_end();
}

/* A device that does not stop may still use the memory, which is leaked. */
void
life_leaked(const void *arg __unused)
{
	struct bio *bios[5];
	u_int i;

	life_begin(1);
	life_load(bios);
	drive.dr_stop_error = EIO;
	pv_dev_need_reset(PVD, PV_DEV_ALL, ETIMEDOUT);
	while (kpi_run_tasks() > 0)
		continue;
	life_ended(bios, ENXIO);
	drive_ended(drive_io(BIO_READ, 1, 512), ENXIO);
	pv_blk_detach(&drive.dr_blk);
	CHECK((drive.dr_blk.blk_flags & PVB_LEAK) != 0, "not leaked");
	i = kpi_dma_maps;
	pv_blk_fini(&drive.dr_blk);
	CHECK(kpi_dma_maps == (int)i, "freed while the device may use it");
	/* It did, after all. */
	pv_dma_free(&drive.dr_blk.blk_bounce_dma);
	pv_dma_free(&drive.dr_blk.blk_msg_dma);
	drive_forget();
}

void
life_detached_under_load(const void *arg)
{
	struct bio *bios[5];
	sbintime_t before = kpi_uptime;

	/* No answer: after ten seconds they end. */
	life_begin(1);
	life_load(bios);
	pv_blk_detach(&drive.dr_blk);
	CHECK(strcmp(drive.dr_log, "stop ") == 0, "%s", drive.dr_log);
	CHECK(kpi_uptime - before > 9 * SBT_1S && kpi_uptime - before < 12 * SBT_1S, "%jd s",
	    (intmax_t)((kpi_uptime - before) / SBT_1S));
	life_ended(bios, ENXIO);
	pv_blk_fini(&drive.dr_blk);
	drive_forget();
	/* Answers that come are waited for; what was not put ends at once. */
	life_begin(1);
	life_load(bios);
	kpi_pause = drive_settle;
	pv_blk_detach(&drive.dr_blk);
	kpi_pause = NULL;
	drive_ended(bios[4], ENXIO);
	drive_ended(bios[0], 0);
	drive_ended(bios[1], 0);
	drive_ended(bios[2], 0);
	drive_ended(bios[3], 0);
	pv_blk_fini(&drive.dr_blk);
	drive_forget();
}

/* How long does a disk wait that is detached and gets no answer, after so many seconds? */
static sbintime_t
life_wait(u_int secs, enum evhdev_detach when, bool own)
{
	struct bio *bios[5];
	sbintime_t before;

	life_begin(1);
	life_load(bios);
	if (when != EVHDEV_DETACH_COMPLETE)
		kpi_detaches(own ? drive.dr_dev : drive.dr_parent, EVHDEV_DETACH_BEGIN);
	if (when == EVHDEV_DETACH_FAILED)
		kpi_detaches(own ? drive.dr_dev : drive.dr_parent, when);
	drive_seconds(secs);
	before = kpi_uptime;
	pv_blk_detach(&drive.dr_blk);
	life_ended(bios, ENXIO);
	pv_blk_fini(&drive.dr_blk);
	drive_forget();
	return ((kpi_uptime - before + SBT_1S / 2) / SBT_1S);
}

/* Those that go with their bus, such as the functions of a slot, wait for their host together. */
void
life_detached_with_its_bus(const void *arg __unused)
{
	u_int i;

	for (i = 0; i < 2; i++) {
		CHECK(life_wait(0, EVHDEV_DETACH_COMPLETE, false) == 10, "alone");
		CHECK(life_wait(0, EVHDEV_DETACH_BEGIN, false) == 10, "the first of a bus");
		CHECK(life_wait(7, EVHDEV_DETACH_BEGIN, false) == 3, "the next of a bus");
		CHECK(life_wait(40, EVHDEV_DETACH_BEGIN, false) == 1, "the last of a bus");
		CHECK(life_wait(40, EVHDEV_DETACH_FAILED, false) == 10, "a bus that is kept");
		CHECK(life_wait(40, EVHDEV_DETACH_BEGIN, true) == 10, "its own");
	}
}

/* A detachment, of which each step is seen from where its thread sleeps. */
static struct {
	char		 steps[64];
	u_int		 users;		/* sleeps until nobody uses the disk */
	u_int		 deliveries;	/* sleeps while another thread delivers bios ... */
	u_int		 followers;	/* and is still in what it was called by */
	struct pv_blk_delivery delivery;
	struct bio	*late;
	int		 lines;
} leaving;

static void
life_leaves(const char *what)
{
	/* GEOM is told before requests are refused. */
	CHECK(leaving.steps[0] != '\0' || (drive.dr_log[0] == '\0' &&
	    (drive.dr_blk.blk_flags & PVB_DETACHING) == 0), "%s", drive.dr_log);
	strlcat(leaving.steps, what, sizeof(leaving.steps));
}

/* The disk has no users any more, but a thread that delivers the last bio of one. */
static void
life_left(void)
{
	struct pv_blk_queue *bq = DRIVE_BQ(1);

	mtx_lock(&bq->bq_mtx);
	SLIST_INSERT_HEAD(&bq->bq_deliveries, &leaving.delivery, pbd_link);
	mtx_unlock(&bq->bq_mtx);
	kpi_disk->d_gone(kpi_disk);
}

/* It may queue, submit and schedule as long as it is there. */
static void
life_delivered(void)
{
	struct pv_blk_queue *bq = DRIVE_BQ(1);

	mtx_lock(&bq->bq_mtx);
	SLIST_REMOVE(&bq->bq_deliveries, &leaving.delivery, pv_blk_delivery, pbd_link);
	(void)callout_reset_sbt(&bq->bq_retry, SBT_1MS, 0, bq->bq_retry_func, bq, 0);
	atomic_add_int(&drive.dr_blk.blk_following, 1);
	mtx_unlock(&bq->bq_mtx);
}

static void
life_sleeps_in_order(void)
{
	if (leaving.late == NULL) {
		/* Requests are in flight: no more are taken, and the device goes on. */
		CHECK(strcmp(leaving.steps, "gone ") == 0 && drive.dr_log[0] == '\0', "%s, %s",
		    leaving.steps, drive.dr_log);
		leaving.late = drive_io(BIO_READ, 1, 512);
		CHECK(drive_is_done(leaving.late), "a bio of a disk that leaves is taken");
		drive_settle();
		leaving.lines = kpi_lines;
	} else if (leaving.users > 0) {
		CHECK(strcmp(leaving.steps, "gone ") == 0 && strcmp(drive.dr_log, "stop ") == 0,
		    "%s, %s", leaving.steps, drive.dr_log);
		CHECK(kpi_lines - leaving.lines == (int)(65 - leaving.users) / 30, "%d lines after "
		    "%u seconds", kpi_lines - leaving.lines, 65 - leaving.users);
		CHECK(kpi_sysctl_value("in_flight") == 0, "requests are in flight");
		if (--leaving.users == 0)
			life_left();
	} else {
		CHECK(strcmp(leaving.steps, "gone destroyed ") == 0, "%s", leaving.steps);
		CHECK(kpi_sysctl_set("batch", 1) == ENOENT, "a setting of a disk that is gone");
		if (leaving.deliveries > 0 && --leaving.deliveries == 0)
			life_delivered();
		else if (leaving.deliveries == 0 && --leaving.followers == 0)
			atomic_subtract_int(&drive.dr_blk.blk_following, 1);
	}
}

/* GEOM, requests, the device, users, the disk, sysctls, and who is still in the driver. */
void
life_detached_in_order(const void *arg __unused)
{
	struct bio *bios[5];

	life_begin(2);
	life_load(bios);
	leaving.users = 65;
	leaving.deliveries = leaving.followers = 3;
	kpi_disk_leaves = life_leaves;
	kpi_pause = life_sleeps_in_order;
	kpi_paused = 0;
	pv_blk_detach(&drive.dr_blk);
	kpi_pause = NULL;
	CHECK(kpi_paused == (3 + 3) * tick_sbt, "%jd us", (intmax_t)(kpi_paused / SBT_1US));
	CHECK(strcmp(leaving.steps, "gone destroyed ") == 0 && leaving.followers == 0, "%s, %u sleeps",
	    leaving.steps, leaving.followers);
	CHECK(kpi_lines == leaving.lines + 2 && drive.dr_blk.blk_disk == NULL, "%s", kpi_line);
	drive_ended(leaving.late, ENXIO);
	drive_ended(bios[4], ENXIO);
	for (u_int i = 0; i < 4; i++)
		drive_ended(bios[i], 0);
	pv_blk_fini(&drive.dr_blk);
	drive_forget();
}

void
life_late_requests(const void *arg __unused)
{
	struct bio *one, *two;
	struct drive_req dq;
	int lines;
	u_int i;

	life_begin(1);
	one = drive_io(BIO_WRITE, 7, 512);
	drive_seconds(2);
	two = drive_io(BIO_WRITE, 9, 512);
	drive_seconds(27);
	CHECK(DRIVE_STATS(0)->bs_timeouts == 0 && !pv_blk_is_late(&drive.dr_blk), "too early");
	lines = kpi_lines;
	drive_seconds(1);
	CHECK(DRIVE_STATS(0)->bs_timeouts == 1 && kpi_lines == lines + 1 &&
	    pv_blk_is_late(&drive.dr_blk), "not reported");
	CHECK(strstr(kpi_line, "write of sector 7, 512 bytes") != NULL &&
	    strstr(kpi_line, "30 seconds, still waiting") != NULL, "%s", kpi_line);
	drive_seconds(1);
	CHECK(DRIVE_STATS(0)->bs_timeouts == 1, "the other one too early");
	drive_seconds(19);
	CHECK(DRIVE_STATS(0)->bs_timeouts == 2 && kpi_lines == lines + 2, "reported again");
	CHECK(drive.dr_log[0] == '\0', "%s", drive.dr_log);
	/* The queue is reset for one that takes longer, once. */
	drive.dr_blk.blk_timeout_reset = 60;
	drive_seconds(9);
	CHECK(drive.dr_log[0] == '\0', "%s", drive.dr_log);
	drive_seconds(1);
	CHECK(strcmp(drive.dr_log, "stop0 start0 ") == 0, "%s", drive.dr_log);
	CHECK(drive.dr_blk.blk_stats.bs_timeout_resets == 1, "counter");
	drive_expect(0, &dq, PV_BLK_WRITE, 7, 512);
	drive_complete(&dq, 0);
	drive_settle();
	drive_ended(one, 0);
	drive_ended(two, 0);
	/* Ten of the late ones, two of which were before, and ten of resets. */
	for (i = 2; i <= 12; i++) {
		lines = kpi_lines;
		one = drive_io(BIO_WRITE, 7, 512);
		drive_seconds(61);
		CHECK(kpi_lines == lines + (i < 10 ? 2 : i == 10), "%u: %d lines", i,
		    kpi_lines - lines);
		drive_settle();
		drive_ended(one, 0);
	}
	CHECK(drive.dr_blk.blk_stats.bs_timeout_resets == 12, "counter");
	drive_end();
}

/* A dump takes a device in whatever state it is, and its last call makes it durable. */
void
life_dump(const void *arg __unused)
{
	static char memory[3 * 65536 + 512];
	struct bio *bios[5];
	uint64_t requests;
	u_int i;

	life_begin(2);
	life_load(bios);
	for (i = 0; i < sizeof(memory); i++)
		memory[i] = i * 7 + i / 512;
	drive.dr_answers = true;
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 512 * DRIVE_SECTOR, sizeof(memory)) == 0, "failed");
	CHECK(strcmp(drive.dr_log, "stop start set ") == 0, "%s", drive.dr_log);
	CHECK(!drive.dr_peers[0]->pe_ops->po_interrupts(drive.dr_peers[0]), "with an interrupt");
	CHECK(memcmp(drive.dr_bytes + 512 * DRIVE_SECTOR, memory, sizeof(memory)) == 0, "another");
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == 0 &&
	    memcmp(drive.dr_bytes, memory, 512) == 0, "the second");
	requests = drive.dr_peers[0]->pe_pvq->q_stats.qs_kicks;
	CHECK(kpi_disk->d_dump(kpi_disk, NULL, 0, 0) == 0, "the end");
	CHECK(drive.dr_peers[0]->pe_pvq->q_stats.qs_kicks == requests + 1, "no flush");
	CHECK(strcmp(drive.dr_log, "stop start set ") == 0, "%s", drive.dr_log);
	/* Nothing comes after it: what is here is for the next test's sake. */
	CHECK(drive.dr_ndone == 0, "a bio ended");
}

static void
life_peer_begin(u_int failures)
{

	kpi_quiet = true;
	drive_new(1);
	drive.dr_ops.bo_peer = &drive_peer_ops;
	drive.dr_ops.bo_stop = drive.dr_ops.bo_restart = NULL;
	drive.dr_params.bp_phys = false;
	drive.dr_params.bp_nreqs = 4;
	drive.dr_room = 8192;
	drive.dr_fail_after = failures == 0 ? 0 : 2;
	kpi_fail_more = failures - 1;
	CHECK(drive_attach() == 0, "it does not attach");
	drive_quiet();
}

/* The end of a dump is a flush where there is a cache, and what is not there is not dumped to. */
void
life_dump_and_flush(const void *arg __unused)
{
	static const struct {
		u_int	flags;
		bool	through, flushes;
	} table[] = {
		{ PV_BLK_CACHED, false, true }, { PV_BLK_CACHED, true, false }, { 0, false, false },
	};
	static char memory[1024];
	u_int before, i;

	kpi_quiet = true;
	for (i = 0; i < nitems(table); i++) {
		kpi_disk = NULL;
		drive_new(1);
		drive.dr_params.bp_flags = table[i].flags;
		drive.dr_params.bp_max_size = 512;
		CHECK(drive_attach() == 0, "it does not attach");
		pv_blk_set_writethrough(&drive.dr_blk, table[i].through);
		drive.dr_answers = true;
		/* As long as a request may be. */
		CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, sizeof(memory)) == 0 &&
		    drive.dr_ntaken == 2, "%u: %u requests", i, drive.dr_ntaken);
		before = drive.dr_ntaken;
		CHECK(kpi_disk->d_dump(kpi_disk, NULL, 0, 0) == 0, "%u: the end", i);
		CHECK(drive.dr_ntaken - before == table[i].flushes, "%u: %u requests", i,
		    drive.dr_ntaken - before);
		/* An answer that the device never had to give breaks the queue. */
		drive.dr_bad_id = true;
		kpi_delayed = 0;
		CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == EIO && kpi_delayed < 100,
		    "%u: another id", i);
	}
	for (i = 0; i < 3; i++) {
		kpi_disk = NULL;
		drive_new(1);
		CHECK(drive_attach() == 0, "it does not attach");
		drive_quiet();
		if (i == 0)
			drive.dr_blk.blk_flags |= PVB_DEAD;
		else if (i == 1)
			drive.dr_blk.blk_flags |= PVB_DETACHING;
		else
			drive.dr_blk.blk_queues[0].bq_pvq = NULL;
		CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == ENXIO && drive.dr_log[0] == '\0',
		    "%u: %s", i, drive.dr_log);
	}
}

static u_int polls;

void
life_dump_of_a_device_that_fails(const void *arg __unused)
{
	static char memory[512];

	life_begin(1);
	drive.dr_stop_error = EBUSY;
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == EBUSY, "not stopped");
	drive_new(1);
	kpi_disk = NULL;
	CHECK(drive_attach() == 0, "it does not attach");
	drive.dr_restart_error = EIO;
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == EIO, "not started");
	drive_new(1);
	kpi_disk = NULL;
	polls = 0;
	CHECK(drive_attach() == 0, "it does not attach");
	drive.dr_answers = true;
	drive.dr_status = EIO;
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == EIO, "an error");
	drive.dr_status = DRIVE_VIOLATION;
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == EIO, "a violation");
	drive.dr_status = 0;
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == 0, "and then no more");
	drive.dr_answers = false;
	kpi_delayed = 0;
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == ETIMEDOUT, "without an answer");
	CHECK(kpi_delayed == 30 * 1000000, "after %ju microseconds", (uintmax_t)kpi_delayed);
}

static struct pvq_ops slow_ops;
static int (*quick_forget)(struct pvq *);
static u_int forgets;

/* What is in flight ends when it was looked for so many times. */
static int
life_slow_forget(struct pvq *q)
{

	return (forgets-- > 0 ? 1 : quick_forget(q));
}

/* A device that can't be reset without its peer: what it has in flight ends before, or in vain. */
void
life_dump_through_a_peer(const void *arg __unused)
{
	static char memory[3 * 4096 + 512];
	u_int i;

	for (i = 0; i < sizeof(memory); i++)
		memory[i] = i * 5 + i / 512;
	life_peer_begin(0);
	slow_ops = *drive.dr_pvqs[0]->q_ops;
	quick_forget = slow_ops.qo_forget;
	slow_ops.qo_forget = life_slow_forget;
	drive.dr_pvqs[0]->q_ops = &slow_ops;
	drive.dr_answers = true;
	kpi_delayed = 0;
	forgets = 3;
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 512 * DRIVE_SECTOR, sizeof(memory)) == 0, "failed");
	CHECK(kpi_delayed == 3 * 20 && drive.dr_log[0] == '\0', "%ju, %s", (uintmax_t)kpi_delayed,
	    drive.dr_log);
	CHECK(memcmp(drive.dr_bytes + 512 * DRIVE_SECTOR, memory, sizeof(memory)) == 0, "another");
	/* The bounce buffer is as long as the peer takes without a request of its own. */
	CHECK(drive.dr_pvqs[0]->q_stats.qs_kicks == 4, "%ju requests",
	    (uintmax_t)drive.dr_pvqs[0]->q_stats.qs_kicks);
	CHECK(kpi_disk->d_dump(kpi_disk, NULL, 0, 0) == 0 &&
	    drive.dr_pvqs[0]->q_stats.qs_kicks == 5, "no flush");
	kpi_disk = NULL;
	life_peer_begin(0);
	drive.dr_pvqs[0]->q_ops = &slow_ops;
	forgets = 2000000;
	kpi_delayed = 0;
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == ETIMEDOUT, "not ended");
	CHECK(kpi_delayed == 30 * 1000000, "after %ju microseconds", (uintmax_t)kpi_delayed);
}

/* After a stop there may be fewer queues, or more: all goes on, and in order. */
void
life_other_queues(const void *arg __unused)
{
	struct bio *bios[9];
	u_int i;

	drive_new(3);
	drive.dr_params.bp_nreqs = 2;
	drive.dr_params.bp_max_segs = 2;
	drive.dr_params.bp_seg_size = 4096;
	kpi_quiet = true;
	CHECK(drive_attach() == 0, "it does not attach");
	for (i = 0; i < 9; i++) {
		PCPU_SET(cpuid, i % 3);
		bios[i] = drive_io(BIO_WRITE, 64 * i, 30 * DRIVE_SECTOR);
	}
	PCPU_SET(cpuid, 0);
	CHECK(pv_dev_freeze(&drive.dr_blk.blk_pvdev) == 0, "not suspended");
	drive.dr_nqueues = 1;
	pv_blk_set_queues(&drive.dr_blk, NULL, 0);
	pv_blk_set_queues(&drive.dr_blk, drive.dr_pvqs, 1);
	CHECK(pv_dev_thaw(&drive.dr_blk.blk_pvdev) == 0, "not resumed");
	CHECK(kpi_sysctl_value("kicks") == drive.dr_pvqs[0]->q_stats.qs_kicks, "of one queue: %ju",
	    (uintmax_t)kpi_sysctl_value("kicks"));
	drive_settle();
	for (i = 0; i < 9; i++)
		drive_ended(bios[i], 0);
	CHECK(pv_dev_freeze(&drive.dr_blk.blk_pvdev) == 0, "not suspended");
	drive.dr_nqueues = 3;
	pv_blk_set_queues(&drive.dr_blk, drive.dr_pvqs, 3);
	CHECK(pv_dev_thaw(&drive.dr_blk.blk_pvdev) == 0, "not resumed");
	for (i = 0; i < 9; i++) {
		PCPU_SET(cpuid, i % 3);
		bios[i] = drive_io(BIO_READ, 64 * i, 30 * DRIVE_SECTOR);
	}
	PCPU_SET(cpuid, 0);
	for (i = 0; i < 3; i++)
		CHECK(DRIVE_BQ(i)->bq_ninflight == 2, "queue %u: %u", i, DRIVE_BQ(i)->bq_ninflight);
	drive_settle();
	for (i = 0; i < 9; i++)
		drive_ended(bios[i], 0);
	drive_end();
}

void
life_resized(const void *arg __unused)
{

	drive_begin(1);
	kpi_disk_resizes = true;
	pv_blk_resize(&drive.dr_blk, 1 << 20);
	CHECK(kpi_disk->d_mediasize == 1 << 20 && kpi_resizes == 1, "not resized");
	pv_blk_resize(&drive.dr_blk, 1 << 20);
	CHECK(kpi_resizes == 1 && drive.dr_blk.blk_stats.bs_resizes == 1, "resized again");
	kpi_disk_resizes = false;
	pv_blk_resize(&drive.dr_blk, 1 << 19);
	CHECK(kpi_disk->d_mediasize == 1 << 20 && drive.dr_blk.blk_params.bp_mediasize == 1 << 20 &&
	    drive.dr_blk.blk_stats.bs_resizes == 1, "resized without GEOM");
	drive_end();
}

static u_char other_answer[4];
static int other_error = -1;

/* While one query sleeps for its answer, another thread has one, too. */
static void
life_another_query(void)
{

	kpi_pause = drive_settle;
	other_error = pv_blk_query(&drive.dr_blk, other_answer, 4, 2);
}

void
life_query(const void *arg __unused)
{
	u_char buf[PV_BLK_ANSWER_MAX] = { 0 };
	sbintime_t before;
	struct drive_req dq;

	life_begin(1);
	kpi_pause = drive_settle;
	CHECK(pv_blk_query(&drive.dr_blk, buf, 4, 2) == 0 && buf[3] == 0x77 && buf[4] == 0, "answer");
	drive.dr_status = EIO;
	CHECK(pv_blk_query(&drive.dr_blk, buf, 4, 2) == EIO, "error");
	drive.dr_status = 0;
	kpi_pause = NULL;
	CHECK(pv_blk_query(&drive.dr_blk, buf, 4, 2) == EWOULDBLOCK, "in time");
	before = kpi_uptime;
	CHECK(pv_blk_query(&drive.dr_blk, buf, 4, 2) == EBUSY && kpi_uptime == before,
	    "a late one is waited for");
	CHECK(drive_takes(0, &dq), "no request");
	drive_complete(&dq, 0);
	kpi_pause = drive_settle;
	CHECK(pv_blk_query(&drive.dr_blk, buf, 8, 2) == 0 && buf[7] == 0x77, "answer");
	kpi_pause = life_another_query;
	CHECK(pv_blk_query(&drive.dr_blk, buf, 4, 2) == 0 && other_error == 0 &&
	    other_answer[3] == 0x77, "the other one: error %d", other_error);
	kpi_pause = NULL;
	drive_end();
}

/* What the device may have cached is flushed once more before flushes are left out. */
void
life_write_through(const void *arg __unused)
{
	struct drive_req dq;
	struct bio *bp;

	life_begin(1);
	pv_blk_end_caching(&drive.dr_blk);
	drive_expect(0, &dq, PV_BLK_FLUSH, 0, 0);
	drive_complete(&dq, EIO);
	/* It failed: flushes go on. */
	bp = drive_io(BIO_FLUSH, 0, 0);
	CHECK(drive_work(0) == 1 && drive_intr(0), "no flush");
	drive_ended(bp, 0);
	pv_blk_end_caching(&drive.dr_blk);
	drive_expect(0, &dq, PV_BLK_FLUSH, 0, 0);
	/* Back and through again, while that is under way: once more. */
	pv_blk_set_writethrough(&drive.dr_blk, false);
	pv_blk_end_caching(&drive.dr_blk);
	drive_complete(&dq, 0);
	drive_expect(0, &dq, PV_BLK_FLUSH, 0, 0);
	drive_complete(&dq, 0);
	drive_ended(drive_io(BIO_FLUSH, 0, 0), 0);
	CHECK(!drive_takes(0, &dq), "a flush of nothing");
	pv_blk_set_writethrough(&drive.dr_blk, false);
	bp = drive_io(BIO_FLUSH, 0, 0);
	CHECK(drive_work(0) == 1 && drive_intr(0), "no flush");
	drive_ended(bp, 0);
	drive_end();
}

/* Another peer takes less at a time: what was in flight is cut again. */
void
life_reconnected(const void *arg)
{
	struct bio *bios[5], *gone, *waits;
	struct drive_req dq;
	u_int i;

	life_peer_begin(arg != NULL);
	gone = drive_io(BIO_DELETE, 1000, 512);
	for (i = 0; i < 5; i++)
		bios[i] = drive_io(i % 2 == 0 ? BIO_WRITE : BIO_READ, 32 * i, 8192);
	waits = drive_io(BIO_DELETE, 1000, 512);
	CHECK(drive.dr_blk.blk_nmade == (arg != NULL ? 2 : 5), "%u requests", drive.dr_blk.blk_nmade);
	/* That there is memory for more requests is a reason, too. */
	if (arg == NULL)
		pv_dev_need_reset(PVD, PV_DEV_ALL, ETIMEDOUT);
	while (kpi_run_tasks() > 0)
		continue;
	CHECK(drive.dr_reconnects == 1, "%u requests to reconnect", drive.dr_reconnects);
	pv_dev_quiesce(&drive.dr_blk.blk_pvdev);
	pv_blk_requeue(&drive.dr_blk);
	pv_blk_set_queues(&drive.dr_blk, NULL, 0);
	for (i = 0; i < nitems(drive.dr_copies); i++)
		CHECK(drive.dr_copies[i] == NULL, "the peer still sees request %u", i);
	drive.dr_params.bp_delete_size = 0;
	CHECK((kpi_disk->d_flags & DISKFLAG_CANDELETE) != 0, "it deletes nothing");
	pv_blk_set_delete(&drive.dr_blk, &drive.dr_params);
	CHECK((kpi_disk->d_flags & DISKFLAG_CANDELETE) == 0, "it deletes");
	pv_blk_set_max_size(&drive.dr_blk, 3072 + 100);
	drive.dr_runs[0] = false;
	kpi_dma_arrives();
	drive_start_queue(0);
	pv_blk_set_queues(&drive.dr_blk, drive.dr_pvqs, 1);
	CHECK(pv_dev_thaw(&drive.dr_blk.blk_pvdev) == 0, "not resumed");
	CHECK(drive.dr_blk.blk_nmade == 5, "%u requests", drive.dr_blk.blk_nmade);
	drive_expect(0, &dq, PV_BLK_WRITE, 0, 3072);
	/* The next one takes still less, of what is there of the bio and its rest. */
	pv_dev_quiesce(PVD);
	pv_blk_requeue(&drive.dr_blk);
	pv_blk_set_queues(&drive.dr_blk, NULL, 0);
	pv_blk_set_max_size(&drive.dr_blk, 2048);
	drive.dr_runs[0] = false;
	kpi_dma_arrives();
	drive_start_queue(0);
	pv_blk_set_queues(&drive.dr_blk, drive.dr_pvqs, 1);
	CHECK(pv_dev_thaw(PVD) == 0, "not resumed");
	drive_expect(0, &dq, PV_BLK_WRITE, 0, 2048);
	drive_complete(&dq, 0);
	drive_settle();
	for (i = 0; i < 5; i++)
		drive_ended(bios[i], 0);
	drive_ended(gone, EOPNOTSUPP);
	drive_ended(waits, EOPNOTSUPP);
	drive_end();
	for (i = 0; i < nitems(drive.dr_copies); i++)
		CHECK(drive.dr_copies[i] == NULL, "a copy is left");
}

/* Who holds a disk waits for what is in flight; who only waits is told that it is. */
void
life_held(const void *arg __unused)
{
	struct bio *bp;

	drive_new(1);
	drive.dr_params.bp_idle_secs = 5;
	CHECK(drive_attach() == 0, "it does not attach");
	CHECK(pv_blk_wait_idle(&drive.dr_blk, 0) == 0, "in use");
	bp = drive_io(BIO_WRITE, 1, 512);
	CHECK(pv_blk_wait_idle(&drive.dr_blk, 0) == EBUSY, "not in use");
	kpi_pause = drive_settle;
	pv_blk_hold(&drive.dr_blk);
	kpi_pause = NULL;
	drive_ended(bp, 0);
	CHECK((drive.dr_blk.blk_flags & PVB_STOPPED) != 0, "the device is live");
	CHECK(pv_blk_wait_idle(&drive.dr_blk, 0) == 0, "in use");
	pv_dev_quiesce(PVD);
	CHECK(pv_dev_thaw(PVD) == 0, "not resumed");
	drive_end();
}

/* What ends as its peer goes ends then, and not when there is another one. */
void
life_ends_with_its_peer(const void *arg __unused)
{
	struct bio *bp;

	life_peer_begin(0);
	bp = drive_io(BIO_WRITE, 1, 512);
	pv_dev_quiesce(PVD);
	pv_dev_need_reset(PVD, PV_DEV_ALL, EIO);
	pv_blk_requeue(&drive.dr_blk);
	drive_ended(bp, EIO);
	pv_blk_set_queues(&drive.dr_blk, NULL, 0);
	drive.dr_runs[0] = false;
	kpi_dma_arrives();
	drive_start_queue(0);
	pv_blk_set_queues(&drive.dr_blk, drive.dr_pvqs, 1);
	CHECK(pv_dev_thaw(PVD) == 0, "not resumed");
	drive_settle();
	drive_end();
}

/* A disk that is frozen may have no peer, which a dump would need. */
void
life_no_dump_while_frozen(const void *arg __unused)
{
	static char memory[512];

	life_peer_begin(0);
	pv_dev_quiesce(&drive.dr_blk.blk_pvdev);
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == ENXIO, "frozen");
	CHECK(pv_dev_thaw(&drive.dr_blk.blk_pvdev) == 0, "not resumed");
	pv_blk_hold(&drive.dr_blk);
	CHECK((drive.dr_blk.blk_flags & PVB_STOPPED) != 0, "the device is live");
	CHECK(kpi_disk->d_dump(kpi_disk, memory, 0, 512) == ENXIO, "stopped");
	pv_dev_quiesce(&drive.dr_blk.blk_pvdev);
	CHECK(pv_dev_thaw(&drive.dr_blk.blk_pvdev) == 0, "not resumed");
	drive_end();
}
