/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * diskcheck: does a disk keep what it acknowledged?
 *
 *	diskcheck -d 16 -m 1m /dev/vtbd0 &
 *	... suspend, migrate, pull the disk ...
 *	pkill diskcheck; wait
 *	diskcheck -c -m 1m /dev/vtbd0
 *
 * The disk's first bytes are a row of blocks of 512.  Each write of a block carries a stamp: where the
 * block belongs, how often it was written (its generation), the seed, filler that follows from
 * these, and a checksum.  The generation that a finished write left is remembered, so that a read
 * tells apart
 *
 *	stale		an older generation: a write was acknowledged and is not there
 *	ahead		a generation that was not written yet
 *	elsewhere	a block of another place
 *	torn		no stamp, or parts of two
 *
 * Reads and writes of all sizes, up to -b bytes, at random places, -d at a time.  No two overlap that
 * are in flight, so each block has one right generation; after a write that failed it may be either
 * of two.  It begins by writing all blocks, and ends by reading them all: after -n requests, or when it
 * is interrupted.  From time to time it asks for a flush.
 *
 * -c only reads: all blocks must be whole and of one seed.  Of generations nothing is known then.
 *
 * Locking.  c_lock protects the list of requests that are done; all else is the command's thread's.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/disk.h>
#include <sys/fcntl.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>

#include <geom/geom.h>
#include <kern/console_tree.h>
#include <kern/devfs_tree.h>

static MALLOC_DEFINE(M_DISKCHECK, "diskcheck", "integrity checker for disks");

#define	BLOCK		512
#define	WORDS		(BLOCK / sizeof(uint64_t))
#define	STAMP_MAGIC	0x706d617473766b70	/* "pkvstamp" */
#define	CHECK_DEPTH_MAX	256
#define	CHECK_SIZE_MAX	(1024 * 1024)
#define	CHECK_AREA_MAX	(256 * 1024 * 1024)
#define	CHECK_TRIES	16	/* to find a place where nothing is in flight */
#define	CHECK_FLUSH	256	/* requests between two flushes */
#define	CHECK_REPORTS	8	/* bad blocks that are described */

/* The words of a stamp; filler between them, and the sum last. */
enum { W_MAGIC, W_PLACE, W_GENERATION, W_SEED, W_FILLER, W_SUM = WORDS - 1 };

struct request {
	STAILQ_ENTRY(request) r_link;
	struct check	*r_check;
	struct bio	*r_bio;
	uint64_t	*r_buf;
};

struct block {
	uint32_t	bl_generation;	/* that is on the disk */
	uint32_t	bl_other;	/* or this one, if a write failed */
	bool		bl_busy;	/* a request is in flight */
};

struct check {
	/* What was asked for. */
	const char	*c_path;
	uint64_t	c_depth, c_max, c_area, c_seed, c_requests;
	bool		c_only;
	/* The disk, and what is known of it. */
	struct devfs_file *c_fp;
	uint64_t	c_nblocks;
	struct block	*c_blocks;
	uint64_t	c_rng;
	uint32_t	c_generation;	/* of the write that comes next */
	struct request	*c_reqs;
	struct mtx	c_lock;
	STAILQ_HEAD(, request) c_done;
	uint64_t	c_flying, c_sweep;
	/* Results. */
	uint64_t	c_reads, c_writes, c_flushes, c_errors, c_bad;
	int		c_first_error;
};

/* Marsaglia's xorshift64. */
static uint64_t
check_random(struct check *c)
{
	c->c_rng ^= c->c_rng << 13;
	c->c_rng ^= c->c_rng >> 7;
	c->c_rng ^= c->c_rng << 17;
	return (c->c_rng);
}

static void
stamp_write(uint64_t *w, uint64_t place, uint64_t generation, uint64_t seed)
{
	uint64_t sum;
	u_int i;

	w[W_MAGIC] = STAMP_MAGIC;
	w[W_PLACE] = place;
	w[W_GENERATION] = generation;
	w[W_SEED] = seed;
	for (i = W_FILLER; i < W_SUM; i++)
		w[i] = (place * 0x9e3779b97f4a7c15 + generation + i) * 0xd1342543de82ef95;
	for (sum = 0, i = 0; i < W_SUM; i++)
		sum = (sum ^ w[i]) * 0x9fb21c651e98df25 + i;
	w[W_SUM] = sum;
}

/* Is it, word for word, what stamp_write() makes of its first words? */
static bool
stamp_is_whole(const uint64_t *w)
{
	uint64_t expected[WORDS];

	stamp_write(expected, w[W_PLACE], w[W_GENERATION], w[W_SEED]);
	return (memcmp(w, expected, BLOCK) == 0);
}

/* What is wrong with a block, or NULL. */
static const char *
stamp_judge(const struct check *c, const uint64_t *w, uint64_t place)
{
	const struct block *bl = &c->c_blocks[place];

	if (!stamp_is_whole(w))
		return ("torn");
	if (w[W_PLACE] != place)
		return ("elsewhere");
	if (w[W_SEED] != c->c_seed)
		return ("of another seed");
	if (c->c_only || w[W_GENERATION] == bl->bl_generation || w[W_GENERATION] == bl->bl_other)
		return (NULL);
	return (w[W_GENERATION] < bl->bl_generation ? "stale" : "ahead");
}

static void
request_verify(struct request *r)
{
	struct check *c = r->r_check;
	uint64_t first = r->r_bio->bio_offset / BLOCK, i, n = r->r_bio->bio_bcount / BLOCK;
	const uint64_t *w;
	const char *what;

	for (i = 0; i < n; i++) {
		w = &r->r_buf[i * WORDS];
		what = stamp_judge(c, w, first + i);
		if (what == NULL || c->c_bad++ >= CHECK_REPORTS)
			continue;
		printf("diskcheck: %s: block %ju is %s: place %ju, generation %ju, not %u\n",
		    c->c_path, (uintmax_t)(first + i), what, (uintmax_t)w[W_PLACE],
		    (uintmax_t)w[W_GENERATION], c->c_blocks[first + i].bl_generation);
	}
}

static void
request_done(struct bio *bp)
{
	struct request *r = bp->bio_caller1;
	struct check *c = r->r_check;

	mtx_lock(&c->c_lock);
	STAILQ_INSERT_TAIL(&c->c_done, r, r_link);
	wakeup_one(&c->c_done);
	mtx_unlock(&c->c_lock);
}

static void
request_submit(struct request *r, int cmd, uint64_t first, uint64_t n)
{
	struct check *c = r->r_check;
	struct bio *bp = r->r_bio;
	uint64_t i;

	g_reset_bio(bp);
	bp->bio_cmd = cmd;
	bp->bio_offset = first * BLOCK;
	bp->bio_length = bp->bio_bcount = n * BLOCK;
	bp->bio_data = cmd == BIO_FLUSH ? NULL : (caddr_t)r->r_buf;
	bp->bio_done = request_done;
	bp->bio_caller1 = r;
	for (i = 0; i < n; i++) {
		c->c_blocks[first + i].bl_busy = true;
		if (cmd == BIO_WRITE)
			stamp_write(&r->r_buf[i * WORDS], first + i, c->c_generation, c->c_seed);
	}
	if (cmd == BIO_WRITE)
		c->c_generation++;
	c->c_flying++;
	devfs_strategy(c->c_fp, bp);
}

/* A write that ended: what the blocks hold now. */
static void
request_written(struct request *r, bool failed)
{
	struct check *c = r->r_check;
	struct block *bl;
	uint64_t i, n = r->r_bio->bio_bcount / BLOCK;

	for (i = 0; i < n; i++) {
		bl = &c->c_blocks[r->r_bio->bio_offset / BLOCK + i];
		if (failed)
			bl->bl_other = r->r_buf[i * WORDS + W_GENERATION];
		else
			bl->bl_generation = bl->bl_other = r->r_buf[i * WORDS + W_GENERATION];
	}
}

static void
request_result(struct request *r)
{
	struct check *c = r->r_check;
	struct bio *bp = r->r_bio;
	bool failed = (bp->bio_flags & BIO_ERROR) != 0 || bp->bio_resid != 0;
	uint64_t i;

	c->c_flying--;
	if (failed && !(bp->bio_cmd == BIO_FLUSH && bp->bio_error == EOPNOTSUPP)) {
		if (c->c_errors++ == 0)
			c->c_first_error = bp->bio_error != 0 ? bp->bio_error : EIO;
	}
	switch (bp->bio_cmd) {
	case BIO_WRITE:
		c->c_writes++;
		request_written(r, failed);
		break;
	case BIO_READ:
		c->c_reads++;
		if (!failed)
			request_verify(r);
		break;
	default:
		c->c_flushes++;
		break;
	}
	for (i = 0; i < bp->bio_bcount / BLOCK; i++)
		c->c_blocks[bp->bio_offset / BLOCK + i].bl_busy = false;
}

/* Is nothing in flight there? */
static bool
check_is_free(const struct check *c, uint64_t first, uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n && !c->c_blocks[first + i].bl_busy; i++)
		;
	return (i == n);
}

/* Submits something at random; false if no place was found. */
static bool
check_random_request(struct check *c, struct request *r)
{
	uint64_t first, n, sizes = c->c_max / BLOCK;
	u_int try;

	if (check_random(c) % CHECK_FLUSH == 0) {
		request_submit(r, BIO_FLUSH, 0, 0);
		return (true);
	}
	for (try = 0; try < CHECK_TRIES; try++) {
		/* As many small ones as large ones. */
		n = 1 + check_random(c) % (1 + check_random(c) % sizes);
		first = check_random(c) % (c->c_nblocks - n + 1);
		if (check_is_free(c, first, n)) {
			request_submit(r, (check_random(c) >> 32 & 1) != 0 ? BIO_WRITE : BIO_READ,
			    first, n);
			return (true);
		}
	}
	return (false);
}

/* Submits the next piece of a sweep over all blocks; false at its end. */
static bool
check_sweep_request(struct check *c, struct request *r, int cmd)
{
	uint64_t n = MIN(c->c_max / BLOCK, c->c_nblocks - c->c_sweep);

	if (n == 0)
		return (false);
	request_submit(r, cmd, c->c_sweep, n);
	c->c_sweep += n;
	return (true);
}

enum check_phase { PHASE_FILL, PHASE_RANDOM, PHASE_READ };

/* Submits what comes next in this phase; false if nothing does. */
static bool
check_next(struct check *c, struct request *r, enum check_phase phase)
{

	if (c->c_first_error == ENXIO)
		return (false);
	switch (phase) {
	case PHASE_FILL:
		return (check_sweep_request(c, r, BIO_WRITE));
	case PHASE_READ:
		return (check_sweep_request(c, r, BIO_READ));
	case PHASE_RANDOM:
		break;
	}
	if (c->c_reads + c->c_writes >= c->c_requests || cmd_interrupted())
		return (false);
	return (check_random_request(c, r));
}

static struct request *
check_wait(struct check *c)
{
	struct request *r;

	mtx_lock(&c->c_lock);
	while ((r = STAILQ_FIRST(&c->c_done)) == NULL)
		msleep(&c->c_done, &c->c_lock, PRIBIO, "dcheck", 0);
	STAILQ_REMOVE_HEAD(&c->c_done, r_link);
	mtx_unlock(&c->c_lock);
	return (r);
}

/* A request that found no place waits, idle, for another to end. */
static void
check_phase(struct check *c, enum check_phase phase)
{
	STAILQ_HEAD(, request) idle = STAILQ_HEAD_INITIALIZER(idle);
	struct request *r;
	uint64_t i;

	c->c_sweep = 0;
	for (i = 0; i < c->c_depth; i++)
		STAILQ_INSERT_TAIL(&idle, &c->c_reqs[i], r_link);
	for (;;) {
		while ((r = STAILQ_FIRST(&idle)) != NULL) {
			STAILQ_REMOVE_HEAD(&idle, r_link);
			if (check_next(c, r, phase))
				continue;
			STAILQ_INSERT_HEAD(&idle, r, r_link);
			break;
		}
		if (c->c_flying == 0)
			return;
		r = check_wait(c);
		request_result(r);
		STAILQ_INSERT_TAIL(&idle, r, r_link);
	}
}

static int
check_open(struct check *c)
{
	u_int sectorsize;
	off_t mediasize;
	uint64_t i;
	int error;

	error = devfs_open(c->c_path, c->c_only ? FREAD : FREAD | FWRITE, &c->c_fp);
	if (error == 0)
		error = devfs_ioctl(c->c_fp, DIOCGSECTORSIZE, &sectorsize);
	if (error == 0)
		error = devfs_ioctl(c->c_fp, DIOCGMEDIASIZE, &mediasize);
	if (error != 0)
		return (cmd_err("diskcheck", error, "%s", c->c_path));
	if (sectorsize != BLOCK)
		return (cmd_err("diskcheck", 0, "%s: sectors of %u bytes", c->c_path, sectorsize));
	c->c_nblocks = MIN((uint64_t)mediasize, c->c_area) / BLOCK;
	if (c->c_nblocks * BLOCK < c->c_max)
		return (cmd_err("diskcheck", 0, "%s: smaller than a request", c->c_path));
	c->c_blocks = mallocarray(c->c_nblocks, sizeof(*c->c_blocks), M_DISKCHECK,
	    M_WAITOK | M_ZERO);
	c->c_reqs = mallocarray(c->c_depth, sizeof(*c->c_reqs), M_DISKCHECK, M_WAITOK | M_ZERO);
	for (i = 0; i < c->c_depth; i++) {
		c->c_reqs[i].r_check = c;
		c->c_reqs[i].r_bio = g_alloc_bio();
		c->c_reqs[i].r_buf = malloc(c->c_max, M_DISKCHECK, M_NOWAIT);
		if (c->c_reqs[i].r_buf == NULL)
			return (cmd_err("diskcheck", ENOMEM, "buffers"));
	}
	return (0);
}

static void
check_close(struct check *c)
{
	uint64_t i;

	for (i = 0; c->c_reqs != NULL && i < c->c_depth; i++) {
		free(c->c_reqs[i].r_buf, M_DISKCHECK);
		if (c->c_reqs[i].r_bio != NULL)
			g_destroy_bio(c->c_reqs[i].r_bio);
	}
	free(c->c_reqs, M_DISKCHECK);
	free(c->c_blocks, M_DISKCHECK);
	if (c->c_fp != NULL)
		devfs_close(c->c_fp);
}

static int
check_number(const char *word, uint64_t min, uint64_t max, uint64_t *value)
{

	if (cmd_expand_number(word, value) != 0 || *value < min || *value > max)
		return (cmd_err("diskcheck", 0, "%s: not a number from %ju to %ju", word,
		    (uintmax_t)min, (uintmax_t)max));
	return (0);
}

static int
check_options(struct check *c, int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	int ch, status = 0;

	while (status == 0 && (ch = cmd_getopt(&g, argc, argv, "b:cd:m:n:s:")) != -1) {
		if (ch == 'b')
			status = check_number(g.optarg, BLOCK, CHECK_SIZE_MAX, &c->c_max);
		else if (ch == 'c')
			c->c_only = true;
		else if (ch == 'd')
			status = check_number(g.optarg, 1, CHECK_DEPTH_MAX, &c->c_depth);
		else if (ch == 'm')
			status = check_number(g.optarg, BLOCK, CHECK_AREA_MAX, &c->c_area);
		else if (ch == 'n')
			status = check_number(g.optarg, 1, UINT64_MAX, &c->c_requests);
		else if (ch == 's')
			status = check_number(g.optarg, 0, UINT32_MAX, &c->c_seed);
		else
			status = cmd_usage("diskcheck");
	}
	if (status == 0 && (g.optind != argc - 1 || c->c_max % BLOCK != 0))
		status = cmd_usage("diskcheck");
	c->c_path = argv[g.optind];
	return (status);
}

static int
cmd_diskcheck(int argc, char **argv)
{
	struct check c = {
		.c_depth = 8, .c_max = 64 * 1024, .c_area = 16 * 1024 * 1024, .c_seed = 1,
		.c_requests = UINT64_MAX, .c_generation = 1,
	};
	int status;

	status = check_options(&c, argc, argv);
	if (status != 0)
		return (status);
	/* An xorshift generator must not start at 0. */
	c.c_rng = (c.c_seed + 1) * 0x9e3779b97f4a7c15;
	mtx_init(&c.c_lock, "diskcheck", NULL, MTX_DEF);
	STAILQ_INIT(&c.c_done);
	status = check_open(&c);
	if (status == 0) {
		if (!c.c_only) {
			check_phase(&c, PHASE_FILL);
			check_phase(&c, PHASE_RANDOM);
		}
		check_phase(&c, PHASE_READ);
		printf("%s: %ju reads, %ju writes, %ju flushes, %ju errors, %ju bad blocks\n",
		    c.c_path, (uintmax_t)c.c_reads, (uintmax_t)c.c_writes,
		    (uintmax_t)c.c_flushes, (uintmax_t)c.c_errors, (uintmax_t)c.c_bad);
		if (c.c_errors != 0)
			(void)cmd_err("diskcheck", c.c_first_error, "%s", c.c_path);
		status = c.c_errors != 0 || c.c_bad != 0;
	}
	check_close(&c);
	mtx_destroy(&c.c_lock);
	return (status);
}
CONSOLE_CMD(diskcheck, cmd_diskcheck, "check that a disk keeps what it acknowledged",
    "diskcheck [-c] [-b size] [-d depth] [-m area] [-n requests] "
    "[-s seed] disk");
