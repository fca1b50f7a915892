/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * fileio: the pattern of sysbench's test of files, over 128 parts of a disk (`tools/bench field').
 *
 *	fileio seqwr|seqrd|rndwr|rndrd|bonnie DISK 0 BYTES SIZE N
 *
 * The same as the program of tests/sys/cmd/fileio.c does where DISK stands for its files, with the
 * same arguments and the same random numbers: N transfers of SIZE bytes, one at a time, in ascending
 * order or at random in parts of BYTES bytes; the disk's cache is flushed after each 100 that were
 * written, and at the end.  Prints the time that they took, in microseconds.
 *
 * bonnie is N of them three times, with a line for each: written, read and written back, and read, as
 * bonnie++ has it, which flushes at the end alone.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/disk.h>
#include <sys/fcntl.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/time.h>

#include <kern/console_tree.h>
#include <kern/devfs_tree.h>

#define	PARTS		128
#define	MAX_SIZE	(256 * 1024)
#define	SYNC_EVERY	100

struct fileio {
	struct devfs_file *f_disk;
	char		*f_buf;
	uint64_t	f_bytes, f_size, f_count;
	bool		f_read, f_write, f_random, f_bonnie;
};

/* Marsaglia's xorshift64. */
static uint64_t
next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state);
}

static int
flush(struct fileio *f)
{
	int error = devfs_ioctl(f->f_disk, DIOCGFLUSH, NULL);

	/* A disk without a cache has nothing to flush. */
	return (error == EOPNOTSUPP || error == ENODEV ? 0 : error);
}

static int
transfer(struct fileio *f, uint64_t block)
{
	uint64_t each = f->f_bytes / f->f_size;
	off_t at = block / each * f->f_bytes + block % each * f->f_size;
	size_t len = f->f_size;
	int error = 0;

	if (f->f_read)
		error = devfs_pread(f->f_disk, f->f_buf, &len, at);
	if (error == 0 && f->f_write && len == f->f_size)
		error = devfs_pwrite(f->f_disk, f->f_buf, &len, at);
	return (error == 0 && len != f->f_size ? EIO : error);
}

static int
transfers(struct fileio *f)
{
	uint64_t i, state = 88172645463325252u, blocks = f->f_bytes / f->f_size * PARTS;
	int error = 0;

	for (i = 0; error == 0 && i < f->f_count; i++) {
		if (cmd_interrupted())
			return (EINTR);
		error = transfer(f, (f->f_random ? next_random(&state) : i) % blocks);
		if (error == 0 && f->f_write && !f->f_bonnie &&
		    i % SYNC_EVERY == SYNC_EVERY - 1)
			error = flush(f);
	}
	return (error == 0 && f->f_write ? flush(f) : error);
}

static int
timed(struct fileio *f)
{
	sbintime_t start = sbinuptime();
	int error = transfers(f);

	if (error == 0)
		printf("%ju\n", (uintmax_t)sbttous(sbinuptime() - start));
	return (error);
}

static int
bonnie(struct fileio *f)
{
	int error, phase;

	for (phase = error = 0; error == 0 && phase < 3; phase++) {
		f->f_read = phase != 0;
		f->f_write = phase != 2;
		error = timed(f);
	}
	return (error);
}

static bool
parse(struct fileio *f, int argc, char **argv)
{
	static const char *const operations[] = { "seqrd", "seqwr", "rndrd", "rndwr", "bonnie" };
	u_int i;

	if (argc != 7 || strcmp(argv[3], "0") != 0)
		return (false);
	for (i = 0; i < nitems(operations) && strcmp(argv[1], operations[i]) != 0; i++)
		;
	f->f_bonnie = i == 4;
	f->f_write = i % 2 == 1 || f->f_bonnie;
	f->f_read = !f->f_write;
	f->f_random = i == 2 || i == 3;
	return (i < nitems(operations) && cmd_expand_number(argv[4], &f->f_bytes) == 0 &&
	    cmd_expand_number(argv[5], &f->f_size) == 0 &&
	    cmd_expand_number(argv[6], &f->f_count) == 0);
}

static int
cmd_fileio(int argc, char **argv)
{
	struct fileio f = { .f_disk = NULL };
	int error;

	if (!parse(&f, argc, argv))
		return (cmd_usage("fileio"));
	if (f.f_size == 0 || f.f_size > MAX_SIZE || f.f_bytes < f.f_size ||
	    f.f_bytes > INT64_MAX / PARTS)
		return (cmd_err("fileio", EINVAL, "size"));
	error = devfs_open(argv[2], f.f_bonnie ? FREAD | FWRITE : f.f_write ? FWRITE : FREAD,
	    &f.f_disk);
	if (error != 0)
		return (cmd_err("fileio", error, "%s", argv[2]));
	f.f_buf = malloc(f.f_size, M_TEMP, M_WAITOK | M_ZERO);
	error = f.f_bonnie ? bonnie(&f) : timed(&f);
	free(f.f_buf, M_TEMP);
	devfs_close(f.f_disk);
	return (error == 0 ? 0 : cmd_err("fileio", error, "transfer"));
}
CONSOLE_CMD(fileio, cmd_fileio, "transfers in 128 parts of a disk, and their time",
    "fileio seqwr|seqrd|rndwr|rndrd|bonnie disk 0 bytes size n");
