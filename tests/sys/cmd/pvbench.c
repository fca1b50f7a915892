/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The program in FreeBSD of `tools/bench freebsd': operations, repeated so often that the instructions
 * of one can be determined.
 *
 *	pvbench udp HOST PORT SIZE BURST N	N bursts of datagrams, with a pause after each
 *	pvbench sink PORT N			take N datagrams, or what comes until none does for a
 *						second; prints how many
 *	pvbench send HOST PORT BYTES		connect, and send
 *	pvbench file HOST PORT FILE N		connect, and send a file N times by sendfile(2)
 *	pvbench take PORT BYTES			take a connection and so many bytes of it
 *	pvbench turns HOST PORT N		N round trips of a byte
 *	pvbench read FILE SIZE DEPTH N seq|random
 *	pvbench write FILE SIZE DEPTH N seq|random
 *		N transfers of SIZE bytes, DEPTH at a time, in the first 64 MB of a disk or file
 *	pvbench -t ...				any of these, and print how many microseconds it took,
 *						from the connection or the first datagram that came
 *
 * Only numeric addresses.  Exit status: 0, or 1 with the error's number.
 */

#include <sys/param.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define	CHUNK		(128 * 1024)
#define	AREA		(64ul << 20)
#define	MAX_DEPTH	64
#define	PAUSE_NS	20000000

static char buffer[CHUNK] __aligned(PAGE_SIZE);
static uint64_t began;	/* microseconds */

static void
say(const char *text)
{
	(void)write(STDERR_FILENO, text, strlen(text));
}

static void __dead2
fail(const char *what)
{
	char digits[] = ": error 000\n";
	int error = errno;

	digits[8] += error / 100;
	digits[9] += error / 10 % 10;
	digits[10] += error % 10;
	say(what);
	say(digits);
	_exit(1);
}

static unsigned long
number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (end == text || *end != '\0') {
		errno = EINVAL;
		fail(text);
	}
	return (value);
}

static void
print(uint64_t value)
{
	char digits[] = "                    \n";
	size_t at = sizeof(digits) - 2;

	do {
		digits[--at] = '0' + value % 10;
		value /= 10;
	} while (value > 0);
	(void)write(STDOUT_FILENO, digits + at, strlen(digits + at));
}

static uint64_t
microseconds(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_MONOTONIC, &now) == -1)
		fail("clock_gettime");
	return ((uint64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
}

static struct sockaddr_in
address(const char *host, const char *port)
{
	struct sockaddr_in sin = { .sin_len = sizeof(sin), .sin_family = AF_INET,
	    .sin_port = htons(number(port)) };
	char *end;
	uint32_t ip = 0;
	int i;

	for (i = 0; host != NULL && i < 4; i++) {
		ip = ip << 8 | strtoul(host, &end, 10);
		host = end + (*end == '.');
	}
	sin.sin_addr.s_addr = htonl(ip);
	return (sin);
}

static int
connected(const char *host, const char *port)
{
	struct sockaddr_in sin = address(host, port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd == -1 || connect(fd, (struct sockaddr *)&sin, sizeof(sin)) == -1)
		fail("connect");
	began = microseconds();
	return (fd);
}

static int
bound(int type, const char *port)
{
	struct sockaddr_in sin = address(NULL, port);
	int fd = socket(AF_INET, type, 0), one = 1;

	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == -1)
		fail("bind");
	return (fd);
}

static void
udp(const char *host, const char *port, size_t size, unsigned long burst, unsigned long n)
{
	struct sockaddr_in sin = address(host, port);
	struct timespec pause = { .tv_nsec = PAUSE_NS };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	unsigned long i;

	for (; n > 0; n--) {
		for (i = 0; i < burst; i++)
			if (sendto(fd, buffer, size, 0, (struct sockaddr *)&sin, sizeof(sin)) == -1)
				fail("sendto");
		(void)nanosleep(&pause, NULL);
	}
}

static void
sink(const char *port, unsigned long n)
{
	struct timeval second = { .tv_sec = 1 };
	int fd = bound(SOCK_DGRAM, port), size = 1 << 20;
	unsigned long i;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) == -1)
		fail("SO_RCVBUF");
	for (i = 0; i < n && recvfrom(fd, buffer, sizeof(buffer), 0, NULL, NULL) != -1; i++)
		if (i == 0) {
			began = microseconds();
			(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
		}
	if (i < n && errno != EAGAIN)
		fail("recvfrom");
	print(i);
}

/* No more is sent: wait until the other end has closed, too. */
static void
finish(int fd)
{
	(void)shutdown(fd, SHUT_WR);
	while (recvfrom(fd, buffer, sizeof(buffer), 0, NULL, NULL) > 0)
		;
}

/* A suspend interrupts what waits, as a signal does. */
static void
send_whole(int from, int fd)
{
	off_t at, sent;

	for (at = 0; sendfile(from, fd, at, 0, NULL, &sent, 0) == -1; at += sent) {
		if (errno != EINTR)
			fail("sendfile");
	}
}

static void
send_file(const char *host, const char *port, const char *file, unsigned long n)
{
	int from = open(file, O_RDONLY), fd = connected(host, port);

	if (from == -1)
		fail(file);
	for (; n > 0; n--)
		send_whole(from, fd);
	finish(fd);
}

static void
send_bytes(const char *host, const char *port, unsigned long bytes)
{
	int fd = connected(host, port);
	ssize_t n;

	while (bytes > 0) {
		n = sendto(fd, buffer, MIN(bytes, CHUNK), 0, NULL, 0);
		if (n <= 0)
			fail("send");
		bytes -= n;
	}
	finish(fd);
}

static void
take_bytes(const char *port, unsigned long bytes)
{
	int listener = bound(SOCK_STREAM, port), fd;
	ssize_t n;

	if (listen(listener, 1) == -1 || (fd = accept(listener, NULL, NULL)) == -1)
		fail("accept");
	began = microseconds();
	while ((n = recvfrom(fd, buffer, sizeof(buffer), 0, NULL, NULL)) > 0)
		bytes -= n;
	if (bytes != 0) {
		errno = EPIPE;
		fail("recv");
	}
}

static void
turns(const char *host, const char *port, unsigned long n)
{
	int fd = connected(host, port), one = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (; n > 0; n--)
		if (sendto(fd, buffer, 1, 0, NULL, 0) != 1 ||
		    recvfrom(fd, buffer, 1, 0, NULL, NULL) != 1)
			fail("turn");
}

/* Where transfer i begins: each place once before one comes again, as AREA / size is a power of 2. */
static off_t
place(unsigned long i, size_t size, bool random)
{
	unsigned long places = AREA / size;

	return ((random ? i * 40503 % places : i % places) * size);
}

static void
transfer(bool writing, const char *file, size_t size, unsigned int depth, unsigned long n, bool random)
{
	static struct aiocb cbs[MAX_DEPTH];
	/* Large pages, filled in order: as much in one piece for one driver as for another. */
	static char buffers[MAX_DEPTH][64 * 1024] __aligned(2 << 20);
	struct aiocb *cb;
	unsigned long i, done;
	off_t at;
	int fd = open(file, O_RDWR);

	if (fd == -1)
		fail(file);
	if (size > sizeof(buffers[0]) || depth > MAX_DEPTH || size == 0 || depth == 0) {
		errno = EINVAL;
		fail("size or depth");
	}
	memset(buffers, 'v', sizeof(buffers));
	for (i = 0; depth == 1 && i < n; i++) {
		at = place(i, size, random);
		if ((writing ? pwrite(fd, buffers[0], size, at) : pread(fd, buffers[0], size, at)) !=
		    (ssize_t)size)
			fail("transfer");
	}
	for (i = done = 0; depth > 1 && done < n; ) {
		if (i < n && i - done < depth) {
			/* After the first ones it is the one that is done. */
			if (i < depth)
				cb = &cbs[i];
			cb->aio_fildes = fd;
			cb->aio_offset = place(i, size, random);
			cb->aio_buf = buffers[cb - cbs];
			cb->aio_nbytes = size;
			if ((writing ? aio_write(cb) : aio_read(cb)) == -1)
				fail("aio");
			i++;
			continue;
		}
		if (aio_waitcomplete(&cb, NULL) != (ssize_t)size)
			fail("aio_waitcomplete");
		done++;
	}
	if (fsync(fd) == -1)
		fail("fsync");
	(void)close(fd);
}

int
main(int argc, char **argv)
{
	bool timed = argc > 1 && strcmp(argv[1], "-t") == 0;
	const char *word;

	argc -= timed;
	argv += timed;
	word = argc > 1 ? argv[1] : "";
	began = microseconds();
	if (argc == 7 && strcmp(word, "udp") == 0)
		udp(argv[2], argv[3], number(argv[4]), number(argv[5]), number(argv[6]));
	else if (argc == 4 && strcmp(word, "sink") == 0)
		sink(argv[2], number(argv[3]));
	else if (argc == 5 && strcmp(word, "send") == 0)
		send_bytes(argv[2], argv[3], number(argv[4]));
	else if (argc == 6 && strcmp(word, "file") == 0)
		send_file(argv[2], argv[3], argv[4], number(argv[5]));
	else if (argc == 4 && strcmp(word, "take") == 0)
		take_bytes(argv[2], number(argv[3]));
	else if (argc == 5 && strcmp(word, "turns") == 0)
		turns(argv[2], argv[3], number(argv[4]));
	else if (argc == 7 && (strcmp(word, "read") == 0 || strcmp(word, "write") == 0))
		transfer(strcmp(word, "write") == 0, argv[2], number(argv[3]), number(argv[4]),
		    number(argv[5]), strcmp(argv[6], "random") == 0);
	else {
		say("usage: pvbench [-t] udp host port size burst n | sink port n |\n"
		    "    send host port bytes | file host port file n | take port bytes |\n"
		    "    turns host port n | read|write file size depth n seq|random\n");
		return (2);
	}
	if (timed)
		print(microseconds() - began);
	return (0);
}
