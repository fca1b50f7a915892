/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The other end of `tools/bench xn' in dom0, and iperf for the Linux guest that ours is compared with.
 *
 *	xnbench frames INTERFACE SIZE COUNT	send frames until the interface sent COUNT of them
 *	xnbench watch INTERFACE COUNT		wait until the interface received COUNT frames
 *	xnbench sink PORT			read a connection to its end
 *	xnbench send HOST PORT BYTES [BUFFER]	send, in pieces of 64 KiB, and wait until all is read;
 *						BUFFER bounds what is not acknowledged yet, in bytes
 *
 * Each says at its end how many frames or bytes in how many seconds: "1000 in 0.123456 secs".  What
 * waits says "ready" before.
 *
 * Frames go straight to the interface (PACKET_QDISC_BYPASS).  A back end's interface drops what it has
 * no room for, so that what it sent is read from its statistics.
 */

#define	_GNU_SOURCE
#include <sys/socket.h>
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define	BATCH		32
#define	PIECE		65536
#define	MAX_FRAME	65536
#define	EXPERIMENT	0x88b5	/* IEEE 802, Local Experimental Ethertype 1 */

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (ts.tv_sec + ts.tv_nsec / 1e9);
}

static void
say(uint64_t n, double since)
{
	printf("%llu in %.6f secs\n", (unsigned long long)n, now() - since);
}

static void
ready(void)
{
	printf("ready\n");
	fflush(stdout);
}

static void
rest(long microseconds)
{
	nanosleep(&(struct timespec){ .tv_nsec = microseconds * 1000 }, NULL);
}

/* Statistics of an interface: a file that is read again and again. */
static int
open_count(const char *interface, const char *what)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/class/net/%s/statistics/%s", interface, what);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		err(1, "%s", path);
	return (fd);
}

static uint64_t
read_count(int fd)
{
	char text[32];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		err(1, "statistics");
	text[n] = '\0';
	return (strtoull(text, NULL, 10));
}

static int
frames(char *interface, uint64_t size, uint64_t count)
{
	static unsigned char frame[MAX_FRAME] = { 2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1,
	    EXPERIMENT >> 8, EXPERIMENT & 0xff };
	struct iovec iov = { .iov_base = frame, .iov_len = size };
	struct mmsghdr msgs[BATCH];
	struct sockaddr_ll sll = { .sll_family = AF_PACKET };
	int fd = open_count(interface, "tx_packets"), on = 1, s;
	uint64_t before = read_count(fd), sent;
	double start;

	if (size > sizeof(frame))
		errx(2, "frames of %llu bytes", (unsigned long long)size);
	memset(msgs, 0, sizeof(msgs));
	for (int i = 0; i < BATCH; i++) {
		msgs[i].msg_hdr.msg_iov = &iov;
		msgs[i].msg_hdr.msg_iovlen = 1;
	}
	s = socket(AF_PACKET, SOCK_RAW, 0);
	if (s < 0 || setsockopt(s, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) != 0)
		err(1, "socket");
	sll.sll_ifindex = if_nametoindex(interface);
	if (sll.sll_ifindex == 0 || bind(s, (struct sockaddr *)&sll, sizeof(sll)) != 0)
		err(1, "%s", interface);
	start = now();
	while ((sent = read_count(fd) - before) < count) {
		if (sendmmsg(s, msgs, BATCH, 0) == BATCH)
			continue;
		if (errno != ENOBUFS && errno != EAGAIN && errno != 0)
			err(1, "sendmmsg");
		rest(200);
	}
	say(sent, start);
	return (0);
}

static int
watch(const char *interface, uint64_t count)
{
	int fd = open_count(interface, "rx_packets");
	uint64_t first = read_count(fd), goal = first + count, last = first, n;
	double start = 0, moved = now();

	ready();
	while ((n = read_count(fd)) < goal && now() - moved < 10) {
		if (start == 0 && n != first) {
			start = now();
			first = n;
		}
		if (n != last)
			moved = now();
		last = n;
		rest(1000);
	}
	say(n - first, start);
	return (n < goal);
}

static int
sink(const char *port)
{
	static char piece[PIECE];
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int s = socket(AF_INET, SOCK_STREAM, 0), c, on = 1;
	uint64_t total = 0;
	double start;
	ssize_t n;

	(void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(s, (struct sockaddr *)&sin, sizeof(sin)) != 0 || listen(s, 1) != 0)
		err(1, "port %s", port);
	ready();
	c = accept(s, NULL, NULL);
	start = now();
	while ((n = read(c, piece, sizeof(piece))) > 0)
		total += n;
	say(total, start);
	return (n != 0);
}

static int
send_to(const char *host, const char *port, uint64_t count, int buffer)
{
	static char piece[PIECE];
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int s = socket(AF_INET, SOCK_STREAM, 0);
	uint64_t total;
	double start;
	ssize_t n;

	/* Linux counts twice what it is given. */
	buffer /= 2;
	if (buffer != 0 && setsockopt(s, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer)) != 0)
		err(1, "send buffer");
	if (inet_pton(AF_INET, host, &sin.sin_addr) != 1 ||
	    connect(s, (struct sockaddr *)&sin, sizeof(sin)) != 0)
		err(1, "%s port %s", host, port);
	start = now();
	for (total = 0; total < count; total += n) {
		n = write(s, piece, count - total < PIECE ? count - total : PIECE);
		if (n < 0)
			err(1, "write");
	}
	shutdown(s, SHUT_WR);
	/* The other end closes once it has read all. */
	while (read(s, piece, sizeof(piece)) > 0)
		;
	say(total, start);
	return (0);
}

int
main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "frames") == 0)
		return (frames(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10)));
	if (argc == 4 && strcmp(argv[1], "watch") == 0)
		return (watch(argv[2], strtoull(argv[3], NULL, 10)));
	if (argc == 3 && strcmp(argv[1], "sink") == 0)
		return (sink(argv[2]));
	if ((argc == 5 || argc == 6) && strcmp(argv[1], "send") == 0)
		return (send_to(argv[2], argv[3], strtoull(argv[4], NULL, 10),
		    argc == 6 ? atoi(argv[5]) : 0));
	fprintf(stderr, "usage: xnbench frames|watch|sink|send ...\n");
	return (2);
}
