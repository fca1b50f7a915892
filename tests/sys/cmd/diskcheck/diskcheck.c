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
 * A crash loses the record of what was written.  So with -p each write follows from the seed
 * and its generation alone: the first ones fill the disk, the others go anywhere; with -t some are
 * deletes.  Every few writes there is a flush, beside writes in flight, and when it has ended
 *
 *	diskcheck: flushed 1234
 *
 * says that every write up to that generation had completed before the flush was submitted.  With -w
 * there is no flush: what has completed is held to be on the disk, as it is with a write-through
 * cache.  After the crash, with -t if it was given before,
 *
 *	diskcheck -c -f 1234 -m 1m /dev/vtbd0
 *
 * works out the same writes.  A block must be whole, and of the last write to it up to 1234 or of one
 * of the FLUSH_WINDOW writes that may have come after it.
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
#define	FLUSH_EVERY	16	/* writes of -p between two flushes */
#define	FLUSH_WINDOW	256	/* and those that may be ahead of what was flushed */
#define	DELETE_ONE_OF	16	/* writes of -p -t is a delete */

/* The words of a stamp; filler between them, and the sum last. */
enum { W_MAGIC, W_PLACE, W_GENERATION, W_SEED, W_FILLER, W_SUM = WORDS - 1 };

struct request {
	STAILQ_ENTRY(request) r_link;
	struct check	*r_check;
	struct bio	*r_bio;
	uint64_t	*r_buf;
	uint64_t	r_generation;	/* of a write or delete in flight, else 0 */
	uint64_t	r_covers;	/* a flush: the generations that it flushes */
};

/* A write or delete of -p. */
struct op {
	int		op_cmd;
	uint64_t	op_first, op_n;	/* blocks */
};

struct block {
	uint32_t	bl_generation;	/* that is on the disk */
	uint32_t	bl_other;	/* or this one, if a write failed */
	bool		bl_busy;	/* a request is in flight */
	bool		bl_deleted;	/* later than bl_generation: may read as zeros */
};

struct check {
	/* What was asked for. */
	const char	*c_path;
	uint64_t	c_depth, c_max, c_area, c_seed, c_requests;
	bool		c_only, c_replay, c_deletes, c_through, c_crashed;
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
	uint64_t	c_flushed;	/* generations that a flush has covered */
	bool		c_flush_due;
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

static bool
block_is_zero(const uint64_t *w)
{
	u_int i;

	for (i = 0; i < WORDS && w[i] == 0; i++)
		;
	return (i == WORDS);
}

/* Steele, Lea and Flood's splitmix64: the number that follows from another one. */
static uint64_t
replay_random(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (x ^ x >> 31);
}

/* What -p does as its write of this generation. */
static struct op
replay_op(const struct check *c, uint64_t generation)
{
	uint64_t sizes = c->c_max / BLOCK, r = replay_random(c->c_seed << 32 ^ generation);
	struct op op = { .op_cmd = BIO_WRITE };

	op.op_first = (generation - 1) * sizes;
	if (op.op_first < c->c_nblocks) {
		op.op_n = MIN(sizes, c->c_nblocks - op.op_first);
		return (op);
	}
	if (c->c_deletes && r % DELETE_ONE_OF == 0)
		op.op_cmd = BIO_DELETE;
	op.op_n = 1 + (r >> 32) % (1 + (r >> 8) % sizes);
	op.op_first = replay_random(r) % (c->c_nblocks - op.op_n + 1);
	return (op);
}

/* After a crash: what each block was when c_flushed was, and may have become. */
static void
replay_all(struct check *c)
{
	struct block *bl;
	struct op op;
	uint64_t g, i;

	for (g = 1; g <= c->c_flushed + FLUSH_WINDOW; g++) {
		op = replay_op(c, g);
		for (i = 0; i < op.op_n; i++) {
			bl = &c->c_blocks[op.op_first + i];
			if (op.op_cmd == BIO_DELETE)
				bl->bl_deleted = true;
			else if (g <= c->c_flushed) {
				bl->bl_generation = g;
				bl->bl_deleted = false;
			}
		}
	}
}

/* What is wrong with a block after a crash, or NULL. */
static const char *
crash_judge(const struct check *c, const uint64_t *w, uint64_t place)
{
	const struct block *bl = &c->c_blocks[place];
	struct op op;

	if (block_is_zero(w))
		return (bl->bl_generation == 0 || bl->bl_deleted ? NULL : "lost");
	if (!stamp_is_whole(w))
		return ("torn");
	if (w[W_PLACE] != place)
		return ("elsewhere");
	if (w[W_SEED] != c->c_seed)
		return (bl->bl_generation == 0 ? NULL : "of another seed");
	if (w[W_GENERATION] < bl->bl_generation)
		return ("stale");
	if (w[W_GENERATION] > c->c_flushed + FLUSH_WINDOW)
		return ("ahead");
	op = replay_op(c, w[W_GENERATION]);
	if (op.op_cmd != BIO_WRITE || place - op.op_first >= op.op_n)
		return ("of another write");
	return (NULL);
}

/* What is wrong with a block, or NULL. */
static const char *
stamp_judge(const struct check *c, const uint64_t *w, uint64_t place)
{
	const struct block *bl = &c->c_blocks[place];

	if (c->c_crashed)
		return (crash_judge(c, w, place));
	if (bl->bl_deleted && block_is_zero(w))
		return (NULL);
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
	bp->bio_data = cmd == BIO_FLUSH || cmd == BIO_DELETE ? NULL : (caddr_t)r->r_buf;
	bp->bio_done = request_done;
	bp->bio_caller1 = r;
	for (i = 0; i < n; i++) {
		c->c_blocks[first + i].bl_busy = true;
		if (cmd == BIO_WRITE)
			stamp_write(&r->r_buf[i * WORDS], first + i, c->c_generation, c->c_seed);
	}
	r->r_generation = 0;
	if (cmd == BIO_WRITE || cmd == BIO_DELETE)
		r->r_generation = c->c_generation++;
	c->c_flying++;
	devfs_strategy(c->c_fp, bp);
}

/* All writes up to this generation have completed. */
static uint64_t
replay_completed(const struct check *c)
{
	uint64_t all = c->c_generation - 1, i;

	for (i = 0; i < c->c_depth; i++) {
		if (c->c_reqs[i].r_generation != 0)
			all = MIN(all, c->c_reqs[i].r_generation - 1);
	}
	return (all);
}

/* Printed first: no write that the window has yet to let through is on its way then. */
static void
replay_flushed(struct check *c, uint64_t generation)
{

	if (generation <= c->c_flushed)
		return;
	printf("diskcheck: flushed %ju\n", (uintmax_t)generation);
	c->c_flushed = generation;
}

/* Submits a flush that is due; false if there is nothing to submit. */
static bool
replay_flush(struct check *c, struct request *r)
{

	c->c_flush_due = false;
	if (c->c_through) {
		replay_flushed(c, replay_completed(c));
		return (false);
	}
	r->r_covers = replay_completed(c);
	request_submit(r, BIO_FLUSH, 0, 0);
	return (true);
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
		else {
			bl->bl_generation = bl->bl_other = r->r_buf[i * WORDS + W_GENERATION];
			bl->bl_deleted = false;
		}
	}
}

static void
request_deleted(struct request *r)
{
	uint64_t i;

	for (i = 0; i < r->r_bio->bio_bcount / BLOCK; i++)
		r->r_check->c_blocks[r->r_bio->bio_offset / BLOCK + i].bl_deleted = true;
}

static void
request_result(struct request *r)
{
	struct check *c = r->r_check;
	struct bio *bp = r->r_bio;
	bool failed = (bp->bio_flags & BIO_ERROR) != 0 || bp->bio_resid != 0;
	uint64_t i;

	c->c_flying--;
	r->r_generation = 0;
	if (failed && !((bp->bio_cmd == BIO_FLUSH || bp->bio_cmd == BIO_DELETE) &&
	    bp->bio_error == EOPNOTSUPP)) {
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
	case BIO_DELETE:
		c->c_writes++;
		request_deleted(r);
		break;
	default:
		c->c_flushes++;
		if (c->c_replay && !failed)
			replay_flushed(c, r->r_covers);
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

/* Submits the next write of -p, or a flush; false if it has to wait, or none comes. */
static bool
replay_request(struct check *c, struct request *r)
{
	struct op op;

	if (c->c_generation > c->c_flushed + FLUSH_WINDOW) {
		if (c->c_flying != 0 && !c->c_through)
			return (false);
		c->c_flush_due = true;
	}
	if (c->c_flush_due && replay_flush(c, r))
		return (true);
	op = replay_op(c, c->c_generation);
	if (c->c_generation > c->c_flushed + FLUSH_WINDOW || !check_is_free(c, op.op_first, op.op_n))
		return (false);
	c->c_flush_due = c->c_generation % FLUSH_EVERY == 0;
	request_submit(r, op.op_cmd, op.op_first, op.op_n);
	return (true);
}

enum check_phase { PHASE_FILL, PHASE_RANDOM, PHASE_REPLAY, PHASE_FLUSH, PHASE_READ };

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
	case PHASE_FLUSH:
		return (c->c_flush_due && replay_flush(c, r));
	case PHASE_REPLAY:
	case PHASE_RANDOM:
		break;
	}
	if (c->c_reads + c->c_writes >= c->c_requests || cmd_interrupted())
		return (false);
	if (phase == PHASE_REPLAY)
		return (c->c_errors == 0 && replay_request(c, r));
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

	while (status == 0 && (ch = cmd_getopt(&g, argc, argv, "b:cd:f:m:n:ps:tw")) != -1) {
		if (ch == 'b')
			status = check_number(g.optarg, BLOCK, CHECK_SIZE_MAX, &c->c_max);
		else if (ch == 'c')
			c->c_only = true;
		else if (ch == 'd')
			status = check_number(g.optarg, 1, CHECK_DEPTH_MAX, &c->c_depth);
		else if (ch == 'f') {
			status = check_number(g.optarg, 1, UINT32_MAX, &c->c_flushed);
			c->c_crashed = true;
		} else if (ch == 'm')
			status = check_number(g.optarg, BLOCK, CHECK_AREA_MAX, &c->c_area);
		else if (ch == 'n')
			status = check_number(g.optarg, 1, UINT64_MAX, &c->c_requests);
		else if (ch == 'p')
			c->c_replay = true;
		else if (ch == 's')
			status = check_number(g.optarg, 0, UINT32_MAX, &c->c_seed);
		else if (ch == 't')
			c->c_deletes = true;
		else if (ch == 'w')
			c->c_through = true;
		else
			status = cmd_usage("diskcheck");
	}
	if (status == 0 && (g.optind != argc - 1 || c->c_max % BLOCK != 0 ||
	    (c->c_crashed && !c->c_only) || (c->c_replay && c->c_only)))
		status = cmd_usage("diskcheck");
	c->c_path = argv[g.optind];
	return (status);
}

static void
check_run(struct check *c)
{

	if (c->c_crashed)
		replay_all(c);
	else if (c->c_replay) {
		check_phase(c, PHASE_REPLAY);
		c->c_flush_due = c->c_errors == 0;
		check_phase(c, PHASE_FLUSH);
	} else if (!c->c_only) {
		check_phase(c, PHASE_FILL);
		check_phase(c, PHASE_RANDOM);
	}
	check_phase(c, PHASE_READ);
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
		check_run(&c);
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
    "diskcheck [-c [-f generation] | -p [-w]] [-t] [-b size] [-d depth] [-m area] [-n requests] "
    "[-s seed] disk");
