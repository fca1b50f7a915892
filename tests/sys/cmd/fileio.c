/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The pattern of sysbench's test of files, for FreeBSD and Linux alike (`tools/bench field'):
 *
 *	fileio prepare DIR FILES BYTES		write so many files, of so many bytes each
 *	fileio seqwr|seqrd|rndwr|rndrd DIR FILES BYTES SIZE N
 *		N transfers of SIZE bytes in these files: file by file in ascending order, or each at
 *		random in a file at random; with writes, all files are written to the disk (fsync(2))
 *		after each 100 of them, and at the end; prints the time that they took, in microseconds
 *	fileio bonnie DIR FILES BYTES SIZE N
 *		N transfers three times, with a line for each: written, read and written back, and read,
 *		in ascending order, as bonnie++ has it; to the disk at the end alone
 *
 * A file may be a disk: with FILES 0, DIR is one, and its 128 parts of BYTES bytes are the files.
 * There is no cache in between then, in Linux by O_DIRECT.
 *
 * Exit status: 0, or 1 with the error's number.
 */

#define	_GNU_SOURCE
#include <sys/types.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define	MAX_FILES	256
#define	MAX_SIZE	(256 * 1024)
#define	SYNC_EVERY	100

static char buffer[MAX_SIZE] __attribute__((aligned(4096)));
static int files[MAX_FILES];

static void
say(int fd, const char *text)
{
	(void)!write(fd, text, strlen(text));
}

static const char *
decimal(uint64_t value)
{
	static char text[24];
	char *at = text + sizeof(text) - 1;

	do {
		*--at = '0' + value % 10;
		value /= 10;
	} while (value != 0);
	return (at);
}

static void
fail(const char *what)
{
	int error = errno;

	say(STDERR_FILENO, what);
	say(STDERR_FILENO, ": error ");
	say(STDERR_FILENO, decimal(error));
	say(STDERR_FILENO, "\n");
	_exit(1);
}

static uint64_t
number(const char *text)
{
	char *end;
	uint64_t value = strtoul(text, &end, 10);

	if (end == text || *end != '\0') {
		errno = EINVAL;
		fail(text);
	}
	return (value);
}

/* DIR/NNN, created if flags say so. */
static int
opened(const char *dir, unsigned int n, int flags)
{
	static char path[256];
	size_t len = strlen(dir);
	int fd;

	if (len > sizeof(path) - 5) {
		errno = ENAMETOOLONG;
		fail(dir);
	}
	memcpy(path, dir, len);
	path[len] = '/';
	path[len + 1] = '0' + n / 100;
	path[len + 2] = '0' + n / 10 % 10;
	path[len + 3] = '0' + n % 10;
	path[len + 4] = '\0';
	fd = open(path, flags, 0600);
	if (fd == -1)
		fail(path);
	return (fd);
}

static void
prepare(const char *dir, unsigned int n, uint64_t bytes)
{
	unsigned int i;
	uint64_t at;
	size_t chunk;
	int fd;

	memset(buffer, 'f', sizeof(buffer));
	for (i = 0; i < n; i++) {
		fd = opened(dir, i, O_RDWR | O_CREAT);
		for (at = 0; at < bytes; at += chunk) {
			chunk = bytes - at < sizeof(buffer) ? bytes - at : sizeof(buffer);
			if (pwrite(fd, buffer, chunk, at) != (ssize_t)chunk)
				fail("prepare");
		}
		if (fsync(fd) == -1)
			fail("fsync");
		(void)close(fd);
	}
}

static void
sync_all(unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (fsync(files[i]) == -1)
			fail("fsync");
}

/* As good as it needs to be, and the same everywhere. */
static uint64_t
next_random(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state);
}

static uint64_t
microseconds(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_MONOTONIC, &now) == -1)
		fail("clock_gettime");
	return (now.tv_sec * UINT64_C(1000000) + now.tv_nsec / 1000);
}

struct work {
	bool		 reading, writing, random, disk, bonnie;
	unsigned int	 n;	/* files */
	uint64_t	 bytes, count;
	size_t		 size;
};

static void
transfer(const struct work *w, uint64_t block)
{
	uint64_t each = w->bytes / w->size, at = block % each * w->size;
	unsigned int file = block / each;
	int fd;

	if (w->disk)
		at += file * w->bytes;
	fd = files[w->disk ? 0 : file];
	if ((w->reading && pread(fd, buffer, w->size, at) != (ssize_t)w->size) ||
	    (w->writing && pwrite(fd, buffer, w->size, at) != (ssize_t)w->size))
		fail("transfer");
}

static void
transfers(const struct work *w)
{
	uint64_t i, start;
	unsigned int synced = w->disk ? 1 : w->n;

	if (w->size == 0 || w->size > sizeof(buffer) || w->bytes < w->size) {
		errno = EINVAL;
		fail("size");
	}
	start = microseconds();
	for (i = 0; i < w->count; i++) {
		transfer(w, (w->random ? next_random() : i) % (w->bytes / w->size * w->n));
		if (w->writing && !w->bonnie && i % SYNC_EVERY == SYNC_EVERY - 1)
			sync_all(synced);
	}
	if (w->writing)
		sync_all(synced);
	say(STDOUT_FILENO, decimal(microseconds() - start));
	say(STDOUT_FILENO, "\n");
}

static void
bonnie(struct work *w)
{
	int phase;

	for (phase = 0; phase < 3; phase++) {
		w->reading = phase != 0;
		w->writing = phase != 2;
		transfers(w);
	}
}

static bool
is_known(const char *word)
{
	static const char *const words[] = { "seqwr", "seqrd", "rndwr", "rndrd", "bonnie" };
	unsigned int i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(word, words[i]) == 0)
			return (true);
	return (false);
}

/* Of the arguments behind the name. */
static void
work(char **argv, unsigned int n)
{
	struct work w = { .disk = n == 0, .bonnie = argv[0][0] == 'b', .n = n == 0 ? 128 : n,
	    .bytes = number(argv[3]), .size = number(argv[4]), .count = number(argv[5]),
	    .random = argv[0][0] == 'r', .writing = argv[0][3] == 'w', .reading = argv[0][3] == 'r' };
	unsigned int i;

	if (w.disk && (files[0] = open(argv[1], O_RDWR | O_DIRECT)) == -1)
		fail(argv[1]);
	for (i = 0; i < n; i++)
		files[i] = opened(argv[1], i, O_RDWR);
	if (w.bonnie)
		bonnie(&w);
	else
		transfers(&w);
}

int
main(int argc, char **argv)
{
	unsigned int n = argc > 3 ? number(argv[3]) : 0;

	if (n > MAX_FILES) {
		errno = EINVAL;
		fail("files");
	}
	if (argc == 5 && strcmp(argv[1], "prepare") == 0)
		prepare(argv[2], n, number(argv[4]));
	else if (argc == 7 && is_known(argv[1]))
		work(argv + 1, n);
	else {
		say(STDERR_FILENO, "usage: fileio prepare dir files bytes |\n"
		    "    seqwr|seqrd|rndwr|rndrd|bonnie dir files bytes size n\n");
		return (2);
	}
	return (0);
}
