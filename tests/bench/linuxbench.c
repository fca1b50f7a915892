/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * diskbench for a Linux guest, to compare with: the same options, the same requests in the same order,
 * the same line of results (tests/sys/cmd/diskbench).
 *
 *	linuxbench -o write -r -b 4k -d 32 -n 10000 /dev/xvda
 *
 * It is given the cheapest way that Linux has: io_uring with O_DIRECT, buffers and file registered, and
 * all requests that have ended are answered by new ones in a single system call.  With -1 each is by a
 * system call of its own, as diskbench's requests reach the disk one by one.
 */

#define	_GNU_SOURCE
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <linux/fs.h>
#include <linux/io_uring.h>

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct bench {
	const char	*path;
	bool		 write;
	bool		 random;
	bool		 alone;	/* a system call for each request */
	uint64_t	 size, depth, requests, seed;
	uint64_t	 blocks, rng;
	uint64_t	 started, ended, bytes, errors;
	int		 fd;
	char		*buffers;
};

struct uring {
	int		 fd;
	unsigned	*sq_tail, *sq_mask, *sq_array;
	unsigned	*cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	unsigned	 staged;
};

static uint64_t
number(const char *word)
{
	char *end;
	uint64_t value = strtoull(word, &end, 10);

	if (*end == 'k')
		return (value << 10);
	if (*end == 'm')
		return (value << 20);
	if (*end != '\0')
		errx(2, "%s: not a number", word);
	return (value);
}

/* As diskbench's. */
static uint64_t
next_random(struct bench *b)
{
	b->rng ^= b->rng << 13;
	b->rng ^= b->rng >> 7;
	b->rng ^= b->rng << 17;
	return (b->rng);
}

static void *
map(int fd, size_t size, off_t what)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);

	if (p == MAP_FAILED)
		err(1, "mmap of the ring");
	return (p);
}

static void
uring_open(struct uring *u, struct bench *b)
{
	struct io_uring_params p = { .flags = 0 };
	struct iovec *iov;
	char *cq, *sq;
	uint64_t i;

	u->fd = syscall(SYS_io_uring_setup, (unsigned)b->depth, &p);
	if (u->fd == -1)
		err(1, "io_uring_setup");
	sq = map(u->fd, p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
	cq = map(u->fd, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
	    IORING_OFF_CQ_RING);
	u->sqes = map(u->fd, p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
	u->sq_tail = (unsigned *)(sq + p.sq_off.tail);
	u->sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
	u->sq_array = (unsigned *)(sq + p.sq_off.array);
	u->cq_head = (unsigned *)(cq + p.cq_off.head);
	u->cq_tail = (unsigned *)(cq + p.cq_off.tail);
	u->cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
	u->cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);

	iov = calloc(b->depth, sizeof(*iov));
	for (i = 0; i < b->depth; i++)
		iov[i] = (struct iovec){ b->buffers + i * b->size, b->size };
	if (syscall(SYS_io_uring_register, u->fd, IORING_REGISTER_BUFFERS, iov,
	    (unsigned)b->depth) == -1)
		err(1, "registering buffers");
	if (syscall(SYS_io_uring_register, u->fd, IORING_REGISTER_FILES, &b->fd, 1) == -1)
		err(1, "registering the disk");
	free(iov);
}

static void
stage(struct uring *u, struct bench *b, unsigned slot)
{
	unsigned tail = *u->sq_tail, i = tail & *u->sq_mask;
	uint64_t block = (b->random ? next_random(b) : b->started) % b->blocks;

	b->started++;
	u->sqes[i] = (struct io_uring_sqe){
		.opcode = b->write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED,
		.flags = IOSQE_FIXED_FILE,
		.fd = 0,
		.off = block * b->size,
		.addr = (uintptr_t)(b->buffers + slot * b->size),
		.len = b->size,
		.buf_index = slot,
		.user_data = slot,
	};
	u->sq_array[i] = i;
	__atomic_store_n(u->sq_tail, tail + 1, __ATOMIC_RELEASE);
	u->staged++;
}

/* Submit what is staged, and wait until so many have ended. */
static void
enter(struct uring *u, unsigned ended)
{
	long n;

	n = syscall(SYS_io_uring_enter, u->fd, u->staged, ended,
	    ended > 0 ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
	if (n == -1 && errno != EINTR)
		err(1, "io_uring_enter");
	if (n > 0)
		u->staged -= n;
}

/* Submit what is staged and wait for one; then answer each that has ended. */
static void
turn(struct uring *u, struct bench *b)
{
	struct io_uring_cqe *cqe;
	unsigned head, tail;

	enter(u, 1);
	head = *u->cq_head;
	tail = __atomic_load_n(u->cq_tail, __ATOMIC_ACQUIRE);
	for (; head != tail; head++) {
		cqe = &u->cqes[head & *u->cq_mask];
		b->ended++;
		if (cqe->res != (int)b->size)
			b->errors++;
		else
			b->bytes += b->size;
		if (b->started < b->requests) {
			stage(u, b, cqe->user_data);
			if (b->alone)
				enter(u, 0);
		}
	}
	__atomic_store_n(u->cq_head, head, __ATOMIC_RELEASE);
}

static void
disk_open(struct bench *b)
{
	uint64_t bytes;

	b->fd = open(b->path, (b->write ? O_RDWR : O_RDONLY) | O_DIRECT);
	if (b->fd == -1 || ioctl(b->fd, BLKGETSIZE64, &bytes) == -1)
		err(1, "%s", b->path);
	if (bytes < b->size)
		errx(1, "%s: smaller than a request", b->path);
	b->blocks = bytes / b->size < b->requests ? bytes / b->size : b->requests;
	if (posix_memalign((void **)&b->buffers, 4096, b->depth * b->size) != 0)
		errx(1, "no memory");
	memset(b->buffers, 0, b->depth * b->size);
}

static void
options(struct bench *b, int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "o:b:d:n:s:r1")) != -1) {
		switch (c) {
		case 'o':
			b->write = strcmp(optarg, "write") == 0;
			break;
		case 'b':
			b->size = number(optarg);
			break;
		case 'd':
			b->depth = number(optarg);
			break;
		case 'n':
			b->requests = number(optarg);
			break;
		case 's':
			b->seed = number(optarg);
			break;
		case 'r':
			b->random = true;
			break;
		case '1':
			b->alone = true;
			break;
		default:
			exit(2);
		}
	}
	if (optind != argc - 1 || b->size == 0 || b->depth == 0 || b->requests == 0)
		errx(2, "usage: linuxbench [-1r] [-o read|write] [-b size] [-d depth] [-n requests] "
		    "[-s seed] disk");
	b->path = argv[optind];
}

int
main(int argc, char **argv)
{
	struct bench b = { .size = 4096, .depth = 1, .requests = 1000, .seed = 1 };
	struct timespec begin, end;
	struct uring u = { .staged = 0 };
	uint64_t i, us;

	options(&b, argc, argv);
	b.rng = (b.seed + 1) * 0x9e3779b97f4a7c15;
	disk_open(&b);
	uring_open(&u, &b);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (i = 0; i < b.depth && b.started < b.requests; i++) {
		stage(&u, &b, i);
		if (b.alone)
			enter(&u, 0);
	}
	while (b.ended < b.started)
		turn(&u, &b);
	clock_gettime(CLOCK_MONOTONIC, &end);
	us = (end.tv_sec - begin.tv_sec) * 1000000 + (end.tv_nsec - begin.tv_nsec) / 1000;
	if (us == 0)
		us = 1;
	printf("%s: %ju requests, %ju bytes, %ju errors, 0 mismatches, %ju.%06ju secs, "
	    "%ju requests/sec\n", b.path, (uintmax_t)b.ended, (uintmax_t)b.bytes,
	    (uintmax_t)b.errors, (uintmax_t)(us / 1000000), (uintmax_t)(us % 1000000),
	    (uintmax_t)(b.ended * 1000000 / us));
	return (b.errors != 0);
}
