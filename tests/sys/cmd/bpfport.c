/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A program that reads and writes frames by bpf(4), as a bridge or a relay in user space does.
 *
 *	bpfport forward IFNAME OTHER       all frames that come, to the other interface, until a signal
 *
 * Exit status 1 after a line that says what failed.
 */

#include <sys/types.h>
#include <sys/ioctl.h>
#include <net/bpf.h>
#include <net/if.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define	BPFPORT_SIZE	(512 * 1024)

static int
complain(const char *what)
{
	write(STDERR_FILENO, what, strlen(what));
	return (1);
}

/*
 * Returns a descriptor: of the frames that come, all of them and at once, or to write some that have
 * their own source; -1: there is none.
 */
static int
bpfport_open(const char *name, bool reads)
{
	u_int size = BPFPORT_SIZE, one = 1, direction = BPF_D_IN;
	struct ifreq ifr;
	int fd;

	memset(&ifr, 0, sizeof(ifr));
	memcpy(ifr.ifr_name, name, strlen(name) < IFNAMSIZ ? strlen(name) : IFNAMSIZ - 1);
	fd = open("/dev/bpf", O_RDWR);
	if (fd < 0 || ioctl(fd, BIOCSBLEN, &size) != 0 || ioctl(fd, BIOCSETIF, &ifr) != 0)
		return (-1);
	if (!reads)
		return (ioctl(fd, BIOCSHDRCMPLT, &one) == 0 ? fd : -1);
	if (ioctl(fd, BIOCIMMEDIATE, &one) != 0 || ioctl(fd, BIOCPROMISC, NULL) != 0 ||
	    ioctl(fd, BIOCSDIRECTION, &direction) != 0)
		return (-1);
	return (fd);
}

/* ENOBUFS: the interface's queue is full, and empties. */
static bool
bpfport_write(int fd, const char *frame, size_t len)
{

	while (write(fd, frame, len) != (ssize_t)len) {
		if (errno != ENOBUFS)
			return (false);
	}
	return (true);
}

static int
bpfport_forward(int from, int to)
{
	static char buf[BPFPORT_SIZE];
	struct bpf_hdr hdr;
	ssize_t n, at;

	complain("bpfport: ready\n");
	while ((n = read(from, buf, sizeof(buf))) > 0) {
		for (at = 0; at < n; at += BPF_WORDALIGN(hdr.bh_hdrlen + hdr.bh_caplen)) {
			memcpy(&hdr, buf + at, sizeof(hdr));
			if (!bpfport_write(to, buf + at + hdr.bh_hdrlen, hdr.bh_caplen))
				return (complain("bpfport: a frame can't be sent\n"));
		}
	}
	return (complain("bpfport: nothing can be read\n"));
}

int
main(int argc, char **argv)
{
	int from, to;

	if (argc != 4 || strcmp(argv[1], "forward") != 0)
		return (complain("usage: bpfport forward IFNAME OTHER\n"));
	from = bpfport_open(argv[2], true);
	to = bpfport_open(argv[3], false);
	if (from < 0 || to < 0)
		return (complain("bpfport: an interface can't be opened\n"));
	return (bpfport_forward(from, to));
}
