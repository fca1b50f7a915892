/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The Linux side of `tools/bench net': in the Linux guest that ours is compared with, and on the host
 * that both talk to; and the host of `tools/bench freebsd'.
 *
 *	netbench frames INTERFACE SIZE COUNT [N]
 *						send frames of an unknown type, fast; N times,
 *						with a pause after each
 *	netbench udp HOST PORT SIZE BURST N	send N bursts of datagrams, with a pause after each
 *	netbench echo PORT			take a connection and send back what comes
 *	netbench send HOST PORT BYTES		connect (again and again, for a minute) and send
 *	netbench take PORT BYTES		take a connection and so many bytes of it
 *	netbench read PORT BYTES		the same, but for what take leaves out
 *	netbench sink PORT N			take N connections, and read them to their ends
 *
 * take has Linux throw the bytes away where they are (MSG_TRUNC), as our iperf command has it done:
 * they are not copied.
 */

#define	_GNU_SOURCE
#include <sys/socket.h>

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define	EXPERIMENT	0x88b5		/* IEEE 802, Local Experimental Ethertype 1 */
#define	BATCH		64
#define	CHUNK		(128 * 1024)	/* as our iperf command has it */

#define	PAUSE_US	20000
#define	STREAMS		16

static char buffer[CHUNK];

static void
frames(const char *interface, size_t size, long count)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_halen = 6 };
	struct ether_header *eh = (struct ether_header *)buffer;
	struct iovec iov = { buffer, size };
	struct mmsghdr msgs[BATCH];
	int fd, i, n, one = 1;

	fd = socket(AF_PACKET, SOCK_RAW, 0);
	to.sll_ifindex = if_nametoindex(interface);
	if (fd == -1 || to.sll_ifindex == 0 || size > sizeof(buffer) ||
	    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one)) == -1)
		err(1, "%s", interface);
	memset(eh->ether_dhost, 0xff, sizeof(eh->ether_dhost));
	memcpy(eh->ether_shost, "\2\0\0\0\0\1", sizeof(eh->ether_shost));
	eh->ether_type = htons(EXPERIMENT);
	for (i = 0; i < BATCH; i++)
		msgs[i] = (struct mmsghdr){ .msg_hdr = { .msg_name = &to,
		    .msg_namelen = sizeof(to), .msg_iov = &iov, .msg_iovlen = 1 } };
	while (count > 0) {
		n = sendmmsg(fd, msgs, count < BATCH ? (unsigned)count : BATCH, 0);
		if (n > 0)
			count -= n;
		else if (errno == ENOBUFS)
			usleep(200);
		else
			err(1, "sendmmsg");
	}
}

static struct sockaddr_in
address(const char *host, const char *port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	if (host != NULL && inet_pton(AF_INET, host, &sin.sin_addr) != 1)
		errx(2, "%s: not an address", host);
	return (sin);
}

static void
udp(const char *host, const char *port, size_t size, long burst, long n)
{
	struct sockaddr_in sin = address(host, port);
	struct iovec iov = { buffer, size };
	struct mmsghdr msgs[BATCH];
	int fd = socket(AF_INET, SOCK_DGRAM, 0), i, sent;
	long left;

	for (i = 0; i < BATCH; i++)
		msgs[i] = (struct mmsghdr){ .msg_hdr = { .msg_name = &sin,
		    .msg_namelen = sizeof(sin), .msg_iov = &iov, .msg_iovlen = 1 } };
	for (; n > 0; n--) {
		for (left = burst; left > 0; left -= sent) {
			sent = sendmmsg(fd, msgs, left < BATCH ? (unsigned)left : BATCH, 0);
			if (sent <= 0)
				err(1, "sendmmsg");
		}
		usleep(PAUSE_US);
	}
}

static int
listening(const char *port)
{
	struct sockaddr_in sin = address(NULL, port);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	(void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&sin, sizeof(sin)) == -1 ||
	    listen(listener, STREAMS) == -1)
		err(1, "port %s", port);
	return (listener);
}

static int
accepted(const char *port)
{
	return (accept(listening(port), NULL, NULL));
}

static void
echo(const char *port)
{
	int fd = accepted(port), one = 1;
	ssize_t n;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0)
		if (send(fd, buffer, n, 0) != n)
			err(1, "send");
}

static void
send_bytes(const char *host, const char *port, uint64_t bytes)
{
	struct sockaddr_in sin = address(host, port);
	int fd = -1, i;
	ssize_t n;

	for (i = 0; i < 600; i++) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0)
			break;
		close(fd);
		fd = -1;
		usleep(100000);
	}
	if (fd == -1)
		err(1, "%s", host);
	while (bytes > 0) {
		n = send(fd, buffer, bytes < CHUNK ? bytes : CHUNK, 0);
		if (n <= 0)
			err(1, "send");
		bytes -= n;
	}
	shutdown(fd, SHUT_WR);
	while (recv(fd, buffer, sizeof(buffer), 0) > 0)
		;
}

static void
take_bytes(const char *port, uint64_t bytes, int flags)
{
	int fd = accepted(port);
	uint64_t got = 0;
	ssize_t n;

	while ((n = recv(fd, buffer, sizeof(buffer), flags)) > 0)
		got += n;
	if (got != bytes)
		errx(1, "%ju of %ju bytes came", (uintmax_t)got, (uintmax_t)bytes);
}

/* Debian's iperf -s (2.1.8) frees something twice when streams end at the same time. */
static void
sink(const char *port, long count)
{
	struct pollfd streams[STREAMS];
	int listener = listening(port);
	long i, left;

	if (count < 1 || count > STREAMS)
		errx(2, "sink takes 1 to %d connections", STREAMS);
	for (i = 0; i < count; i++) {
		streams[i].fd = accept(listener, NULL, NULL);
		streams[i].events = POLLIN;
	}
	for (left = count; left > 0;) {
		if (poll(streams, count, -1) == -1)
			err(1, "poll");
		for (i = 0; i < count; i++)
			if (streams[i].revents != 0 &&
			    recv(streams[i].fd, buffer, sizeof(buffer), 0) <= 0) {
				close(streams[i].fd);
				streams[i].fd = -1;	/* poll(2) passes over it */
				left--;
			}
	}
}

int
main(int argc, char **argv)
{
	long n;

	if ((argc == 5 || argc == 6) && strcmp(argv[1], "frames") == 0) {
		for (n = argc == 6 ? strtol(argv[5], NULL, 10) : 1; n > 0; n--) {
			frames(argv[2], strtoul(argv[3], NULL, 10), strtol(argv[4], NULL, 10));
			if (argc == 6)
				usleep(PAUSE_US);
		}
	} else if (argc == 7 && strcmp(argv[1], "udp") == 0)
		udp(argv[2], argv[3], strtoul(argv[4], NULL, 10), strtol(argv[5], NULL, 10),
		    strtol(argv[6], NULL, 10));
	else if (argc == 3 && strcmp(argv[1], "echo") == 0)
		echo(argv[2]);
	else if (argc == 5 && strcmp(argv[1], "send") == 0)
		send_bytes(argv[2], argv[3], strtoull(argv[4], NULL, 10));
	else if (argc == 4 && strcmp(argv[1], "take") == 0)
		take_bytes(argv[2], strtoull(argv[3], NULL, 10), MSG_TRUNC);
	else if (argc == 4 && strcmp(argv[1], "read") == 0)
		take_bytes(argv[2], strtoull(argv[3], NULL, 10), 0);
	else if (argc == 4 && strcmp(argv[1], "sink") == 0)
		sink(argv[2], strtol(argv[3], NULL, 10));
	else
		errx(2, "usage: netbench frames interface size count [n] | "
		    "udp host port size burst n | echo port | send host port bytes | "
		    "take|read port bytes | sink port n");
	return (0);
}
