/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * diskbench: keeps a number of requests in flight on a disk, counts them, and checks their data.
 *
 *	diskbench -o write -b 4k -d 32 -n 10000 -v /dev/vtbd0
 *	diskbench -o read -r -b 4k -d 32 -n 10000 -v /dev/vtbd0
 *
 * The requests go over the first n * b bytes of the disk (all of it, if it is smaller), in
 * ascending order or, with -r, at random.  With -v each block of 512 bytes that is written carries
 * a stamp that depends on its place and on the seed alone, and each that is read must carry it: so
 * reads find what an earlier write of the same seed left, and requests that overlap do no harm.
 *
 * With -l the times that requests took are kept, and the median and the longest are printed.  With -t
 * there are as many threads as requests in flight, each of which waits for its own.
 *
 * A request goes straight to the device's strategy routine, not through physio(9), so that the depth
 * is the driver's.  Completion only queues the slot; the command's thread submits it again.
 *
 * Locking: b_lock protects the list of slots that are done.  A slot's other fields are the command
 * thread's, but between its submission and its return to the list.  With -t it protects all of struct
 * bench, and a slot is its thread's.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/buf.h>
#include <sys/conf.h>
#include <sys/disk.h>
#include <sys/fcntl.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/time.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

#include <machine/vmparam.h>

#include <geom/geom.h>
#include <kern/console_tree.h>
#include <kern/devfs_tree.h>

static MALLOC_DEFINE(M_DISKBENCH, "diskbench", "load generator for disks");

#define	BENCH_DEPTH_MAX	1024
#define	BENCH_SIZE_MAX	(4 * 1024 * 1024)
#define	STAMP_SIZE	512
/* Unmapped data starts inside its first page, as a file's data may. */
#define	UNMAPPED_OFFSET	512

enum bench_op { BENCH_READ, BENCH_WRITE, BENCH_MIXED, BENCH_DELETE };

struct slot {
	STAILQ_ENTRY(slot) s_link;
	struct bench	*s_bench;
	struct bio	*s_bio;
	char		*s_buf;		/* mapped */
	vm_page_t	*s_pages;	/* unmapped */
	int		s_npages;
	sbintime_t	s_start;
	bool		s_ended;	/* -t */
};

struct bench {
	/* What was asked for. */
	enum bench_op	b_op;
	uint64_t	b_size, b_depth, b_requests, b_seed;
	bool		b_latency, b_random, b_threads, b_unmapped, b_verify;
	const char	*b_path;
	/* The device and where its requests go. */
	struct devfs_file *b_fp;
	uint64_t	b_blocks;
	uint64_t	b_rng;
	struct slot	*b_slots;
	struct mtx	b_lock;
	STAILQ_HEAD(, slot) b_done;
	/* Results. */
	uint64_t	b_started, b_ended, b_bytes, b_errors, b_mismatches;
	int		b_first_error;
	uint32_t	*b_times;	/* of each request, in nanoseconds; -l */
	uint64_t	b_running;	/* threads; -t */
	bool		b_stop;		/* ^C, which the command's thread sees; -t */
};

/* Marsaglia's xorshift64. */
static uint64_t
bench_random(struct bench *b)
{
	b->b_rng ^= b->b_rng << 13;
	b->b_rng ^= b->b_rng >> 7;
	b->b_rng ^= b->b_rng << 17;
	return (b->b_rng);
}

static uint64_t *
slot_block(struct slot *s, uint64_t off)
{
	vm_page_t m;

	if (s->s_buf != NULL)
		return ((uint64_t *)(s->s_buf + off));
	off += UNMAPPED_OFFSET;
	m = s->s_pages[off / PAGE_SIZE];
	return ((uint64_t *)(PHYS_TO_DMAP(VM_PAGE_TO_PHYS(m)) + off % PAGE_SIZE));
}

static uint64_t
stamp_word(const struct bench *b, uint64_t place, u_int i)
{
	return ((place + b->b_seed * 0x9e3779b97f4a7c15 + i) * 0xd1342543de82ef95);
}

static void
slot_stamp(struct slot *s)
{
	const struct bench *b = s->s_bench;
	uint64_t *w, off;
	u_int i;

	for (off = 0; off < b->b_size; off += STAMP_SIZE) {
		w = slot_block(s, off);
		for (i = 0; i < STAMP_SIZE / sizeof(*w); i++)
			w[i] = stamp_word(b, s->s_bio->bio_offset + off, i);
	}
}

/* Counts the blocks that don't carry their stamp and names the first. */
static void
slot_verify(struct slot *s)
{
	struct bench *b = s->s_bench;
	uint64_t *w, off, place;
	u_int i;

	for (off = 0; off < b->b_size; off += STAMP_SIZE) {
		w = slot_block(s, off);
		place = s->s_bio->bio_offset + off;
		for (i = 0; i < STAMP_SIZE / sizeof(*w) && w[i] == stamp_word(b, place, i); i++)
			;
		if (i == STAMP_SIZE / sizeof(*w))
			continue;
		if (b->b_mismatches++ == 0)
			printf("diskbench: offset %ju: %#jx, not %#jx\n",
			    (uintmax_t)(place + i * sizeof(*w)), (uintmax_t)w[i],
			    (uintmax_t)stamp_word(b, place, i));
	}
}

static void
slot_done(struct bio *bp)
{
	struct slot *s = bp->bio_caller1;
	struct bench *b = s->s_bench;

	mtx_lock(&b->b_lock);
	if (b->b_threads) {
		s->s_ended = true;
		wakeup_one(s);
	} else {
		STAILQ_INSERT_TAIL(&b->b_done, s, s_link);
		wakeup_one(&b->b_done);
	}
	mtx_unlock(&b->b_lock);
}

/* Makes the next request; with -t the lock is held. */
static void
slot_prepare(struct slot *s)
{
	struct bench *b = s->s_bench;
	struct bio *bp = s->s_bio;
	uint64_t block;

	block = (b->b_random ? bench_random(b) : b->b_started) % b->b_blocks;
	b->b_started++;
	g_reset_bio(bp);
	bp->bio_cmd = b->b_op == BENCH_WRITE ||
	    (b->b_op == BENCH_MIXED && (bench_random(b) >> 32 & 1) != 0) ? BIO_WRITE : BIO_READ;
	bp->bio_offset = block * b->b_size;
	bp->bio_length = bp->bio_bcount = b->b_size;
	bp->bio_done = slot_done;
	bp->bio_caller1 = s;
	if (b->b_op == BENCH_DELETE)
		bp->bio_cmd = BIO_DELETE;
	else if (s->s_buf != NULL)
		bp->bio_data = s->s_buf;
	else {
		bp->bio_data = unmapped_buf;
		bp->bio_flags = BIO_UNMAPPED;
		bp->bio_ma = s->s_pages;
		bp->bio_ma_n = s->s_npages;
		bp->bio_ma_offset = UNMAPPED_OFFSET;
	}
	if (b->b_verify && bp->bio_cmd == BIO_WRITE)
		slot_stamp(s);
	if (b->b_latency)
		s->s_start = sbinuptime();
}

static void
slot_submit(struct slot *s)
{
	slot_prepare(s);
	devfs_strategy(s->s_bench->b_fp, s->s_bio);
}

static void
slot_result(struct slot *s)
{
	struct bench *b = s->s_bench;
	struct bio *bp = s->s_bio;

	if (b->b_latency)
		b->b_times[b->b_ended] = MIN(UINT32_MAX,
		    (uint64_t)sbttons(sbinuptime() - s->s_start));
	b->b_ended++;
	b->b_bytes += bp->bio_bcount - bp->bio_resid;
	if ((bp->bio_flags & BIO_ERROR) != 0) {
		if (b->b_errors++ == 0)
			b->b_first_error = bp->bio_error;
	} else if (b->b_verify && bp->bio_cmd == BIO_READ)
		slot_verify(s);
}

/* Takes the slots that are done; sleeps for the first when none is and some are in flight. */
static struct slot *
bench_wait(struct bench *b)
{
	struct slot *s;

	mtx_lock(&b->b_lock);
	while ((s = STAILQ_FIRST(&b->b_done)) == NULL)
		msleep(&b->b_done, &b->b_lock, PRIBIO, "dbench", 0);
	STAILQ_REMOVE_HEAD(&b->b_done, s_link);
	mtx_unlock(&b->b_lock);
	return (s);
}

/* The removal of the device, or ^C, ends the load early. */
static bool
bench_more(const struct bench *b)
{
	return (b->b_started < b->b_requests && b->b_first_error != ENXIO && !b->b_stop &&
	    (b->b_threads || !cmd_interrupted()));
}

static void
bench_thread(void *arg)
{
	struct slot *s = arg;
	struct bench *b = s->s_bench;

	mtx_lock(&b->b_lock);
	while (bench_more(b)) {
		slot_prepare(s);
		s->s_ended = false;
		mtx_unlock(&b->b_lock);
		devfs_strategy(b->b_fp, s->s_bio);
		mtx_lock(&b->b_lock);
		while (!s->s_ended)
			msleep(s, &b->b_lock, PRIBIO, "dbench", 0);
		slot_result(s);
	}
	if (--b->b_running == 0)
		wakeup(&b->b_running);
	mtx_unlock(&b->b_lock);
	kthread_exit();
}

/* -t: returns an error if not all threads could be made. */
static int
bench_run_threads(struct bench *b)
{
	uint64_t i;
	int error = 0;

	mtx_lock(&b->b_lock);
	for (i = 0; i < b->b_depth && error == 0; i++) {
		b->b_running++;
		mtx_unlock(&b->b_lock);
		error = kthread_add(bench_thread, &b->b_slots[i], NULL, NULL, 0, 0, "diskbench");
		mtx_lock(&b->b_lock);
		if (error != 0)
			b->b_running--;
	}
	while (b->b_running > 0) {
		msleep(&b->b_running, &b->b_lock, PRIBIO, "dbench", hz);
		b->b_stop = cmd_interrupted();
	}
	mtx_unlock(&b->b_lock);
	return (error == 0 ? 0 : cmd_err("diskbench", error, "threads"));
}

static void
bench_run(struct bench *b)
{
	struct slot *s;
	uint64_t i;

	for (i = 0; i < b->b_depth && bench_more(b); i++)
		slot_submit(&b->b_slots[i]);
	while (b->b_ended < b->b_started) {
		s = bench_wait(b);
		slot_result(s);
		if (bench_more(b))
			slot_submit(s);
	}
}

static int
slot_alloc(struct slot *s, struct bench *b)
{
	int n;

	s->s_bench = b;
	s->s_bio = g_alloc_bio();
	if (!b->b_unmapped) {
		s->s_buf = malloc(b->b_size, M_DISKBENCH, M_NOWAIT | M_ZERO);
		return (s->s_buf != NULL ? 0 : ENOMEM);
	}
	n = howmany(UNMAPPED_OFFSET + b->b_size, PAGE_SIZE);
	s->s_pages = malloc(n * sizeof(*s->s_pages), M_DISKBENCH, M_WAITOK | M_ZERO);
	for (; s->s_npages < n; s->s_npages++) {
		s->s_pages[s->s_npages] = vm_page_alloc_noobj(VM_ALLOC_WIRED | VM_ALLOC_ZERO);
		if (s->s_pages[s->s_npages] == NULL)
			return (ENOMEM);
	}
	return (0);
}

static void
slot_free(struct slot *s)
{
	while (s->s_npages > 0) {
		vm_page_unwire_noq(s->s_pages[--s->s_npages]);
		vm_page_free(s->s_pages[s->s_npages]);
	}
	free(s->s_pages, M_DISKBENCH);
	free(s->s_buf, M_DISKBENCH);
	if (s->s_bio != NULL)
		g_destroy_bio(s->s_bio);
}

static int
bench_open(struct bench *b)
{
	u_int sectorsize;
	off_t mediasize;
	uint64_t i;
	int error;

	error = devfs_open(b->b_path, b->b_op == BENCH_READ ? FREAD : FREAD | FWRITE, &b->b_fp);
	if (error == 0)
		error = devfs_ioctl(b->b_fp, DIOCGSECTORSIZE, &sectorsize);
	if (error == 0)
		error = devfs_ioctl(b->b_fp, DIOCGMEDIASIZE, &mediasize);
	if (error != 0)
		return (cmd_err("diskbench", error, "%s", b->b_path));
	if (b->b_size % sectorsize != 0 || (uint64_t)mediasize < b->b_size)
		return (cmd_err("diskbench", 0, "%s: %ju bytes are no request for sectors of %u "
		    "bytes on %jd bytes", b->b_path, (uintmax_t)b->b_size, sectorsize,
		    (intmax_t)mediasize));
	if (b->b_unmapped && (devfs_cdev(b->b_fp)->si_flags & SI_UNMAPPED) == 0)
		return (cmd_err("diskbench", EOPNOTSUPP, "%s: unmapped I/O", b->b_path));
	b->b_blocks = MIN(mediasize / b->b_size, b->b_requests);
	b->b_slots = malloc(b->b_depth * sizeof(*b->b_slots), M_DISKBENCH, M_WAITOK | M_ZERO);
	for (i = 0; error == 0 && i < b->b_depth; i++)
		error = slot_alloc(&b->b_slots[i], b);
	if (error == 0 && b->b_latency) {
		b->b_times = malloc(b->b_requests * sizeof(*b->b_times), M_DISKBENCH, M_NOWAIT);
		error = b->b_times != NULL ? 0 : ENOMEM;
	}
	return (error == 0 ? 0 : cmd_err("diskbench", error, "buffers"));
}

static void
bench_close(struct bench *b)
{
	uint64_t i;

	for (i = 0; b->b_slots != NULL && i < b->b_depth; i++)
		slot_free(&b->b_slots[i]);
	free(b->b_slots, M_DISKBENCH);
	free(b->b_times, M_DISKBENCH);
	if (b->b_fp != NULL)
		devfs_close(b->b_fp);
}

static int
bench_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x < y ? -1 : x > y);
}

static void
bench_report_latency(struct bench *b)
{
	if (!b->b_latency || b->b_ended == 0)
		return;
	qsort(b->b_times, b->b_ended, sizeof(*b->b_times), bench_compare);
	printf("%s: latency: median %u ns, longest %u ns\n", b->b_path,
	    b->b_times[b->b_ended / 2], b->b_times[b->b_ended - 1]);
}

static void
bench_report(const struct bench *b, sbintime_t elapsed)
{
	uint64_t us = MAX(1, elapsed / SBT_1US);

	printf("%s: %ju requests, %ju bytes, %ju errors, %ju mismatches, %ju.%06ju secs, "
	    "%ju requests/sec\n", b->b_path, (uintmax_t)b->b_ended, (uintmax_t)b->b_bytes,
	    (uintmax_t)b->b_errors, (uintmax_t)b->b_mismatches, (uintmax_t)(us / 1000000),
	    (uintmax_t)(us % 1000000), (uintmax_t)(b->b_ended * 1000000 / us));
	if (b->b_errors != 0)
		(void)cmd_err("diskbench", b->b_first_error, "%s", b->b_path);
}

static int
bench_number(const char *word, uint64_t max, uint64_t *value)
{
	if (cmd_expand_number(word, value) != 0 || *value > max)
		return (cmd_err("diskbench", 0, "%s: not a number up to %ju", word,
		    (uintmax_t)max));
	return (0);
}

static int
bench_set_op(struct bench *b, const char *word)
{
	static const char *const names[] = { "read", "write", "mixed", "delete" };
	u_int i;

	for (i = 0; i < nitems(names); i++) {
		if (strcmp(word, names[i]) == 0) {
			b->b_op = i;
			return (0);
		}
	}
	return (cmd_err("diskbench", 0, "%s: not read, write, mixed or delete", word));
}

static int
bench_options(struct bench *b, int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	int c, status = 0;

	while (status == 0 && (c = cmd_getopt(&g, argc, argv, "o:b:d:n:s:lrtuv")) != -1) {
		if (c == 'o')
			status = bench_set_op(b, g.optarg);
		else if (c == 'b')
			status = bench_number(g.optarg, BENCH_SIZE_MAX, &b->b_size);
		else if (c == 'd')
			status = bench_number(g.optarg, BENCH_DEPTH_MAX, &b->b_depth);
		else if (c == 'n')
			status = bench_number(g.optarg, UINT32_MAX, &b->b_requests);
		else if (c == 's')
			status = bench_number(g.optarg, UINT32_MAX, &b->b_seed);
		else if (c == 'l')
			b->b_latency = true;
		else if (c == 'r')
			b->b_random = true;
		else if (c == 't')
			b->b_threads = true;
		else if (c == 'u')
			b->b_unmapped = true;
		else if (c == 'v')
			b->b_verify = true;
		else
			status = cmd_usage("diskbench");
	}
	if (status != 0)
		return (status);
	if (g.optind != argc - 1 || b->b_size == 0 || b->b_size % STAMP_SIZE != 0 ||
	    b->b_depth == 0 || b->b_requests == 0)
		return (cmd_usage("diskbench"));
	b->b_path = argv[g.optind];
	return (0);
}

static int
cmd_diskbench(int argc, char **argv)
{
	struct bench b = {
		.b_op = BENCH_READ, .b_size = 4096, .b_depth = 1, .b_requests = 1000, .b_seed = 1,
	};
	sbintime_t start;
	int status;

	status = bench_options(&b, argc, argv);
	if (status != 0)
		return (status);
	mtx_init(&b.b_lock, "diskbench", NULL, MTX_DEF);
	STAILQ_INIT(&b.b_done);
	/* An xorshift generator must not start at 0. */
	b.b_rng = (b.b_seed + 1) * 0x9e3779b97f4a7c15;
	status = bench_open(&b);
	if (status == 0) {
		start = sbinuptime();
		if (b.b_threads)
			status = bench_run_threads(&b);
		else
			bench_run(&b);
		bench_report(&b, sbinuptime() - start);
		bench_report_latency(&b);
		status |= b.b_errors != 0 || b.b_mismatches != 0;
	}
	bench_close(&b);
	mtx_destroy(&b.b_lock);
	return (cmd_interrupted() ? 130 : status);
}
CONSOLE_CMD(diskbench, cmd_diskbench, "measure requests to a disk",
    "diskbench [-lrtuv] [-o read|write|mixed|delete] [-b size] [-d depth] "
    "[-n requests] [-s seed] disk");
