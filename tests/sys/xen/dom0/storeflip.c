/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A node of xenstore that changes as fast as xenstored takes it: run in dom0.
 *
 *	storeflip PATH TIMES VALUE ...		writes the values in turn, so many times
 *
 * It speaks to xenstored's socket itself (xen/io/xs_wire.h), one request at a time and without a
 * transaction, so that each write is a change that watches fire for.
 *
 * Statically linked, as dom0 has no usable C library.
 */

#include <sys/socket.h>
#include <sys/un.h>
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define	SOCKET		"/var/run/xenstored/socket"
#define	TYPE_WRITE	11
#define	TYPE_ERROR	16
#define	PAYLOAD_MAX	4096

struct head {
	uint32_t	type, req_id, tx_id, len;
};

static void
read_all(int fd, void *to, size_t len)
{
	ssize_t n;

	for (; len > 0; to = (char *)to + n, len -= n) {
		n = read(fd, to, len);
		if (n <= 0)
			errx(1, "xenstored is gone");
	}
}

static void
write_node(int fd, const char *path, const char *value)
{
	struct head head = { .type = TYPE_WRITE };
	char message[sizeof(head) + PAYLOAD_MAX], answer[PAYLOAD_MAX + 1];

	head.len = strlen(path) + 1 + strlen(value);
	if (head.len > PAYLOAD_MAX)
		errx(1, "too long");
	memcpy(message, &head, sizeof(head));
	memcpy(message + sizeof(head), path, strlen(path) + 1);
	memcpy(message + sizeof(head) + strlen(path) + 1, value, strlen(value));
	if (write(fd, message, sizeof(head) + head.len) != (ssize_t)(sizeof(head) + head.len))
		err(1, "write");
	read_all(fd, &head, sizeof(head));
	if (head.len > PAYLOAD_MAX)
		errx(1, "an answer of %u bytes", head.len);
	read_all(fd, answer, head.len);
	answer[head.len] = '\0';
	if (head.type == TYPE_ERROR)
		errx(1, "%s: %s", path, answer);
}

int
main(int argc, char **argv)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = SOCKET };
	int fd, i, times;

	if (argc < 4)
		errx(2, "usage: storeflip PATH TIMES VALUE ...");
	times = atoi(argv[2]);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		err(1, SOCKET);
	for (i = 0; i < times; i++)
		write_node(fd, argv[1], argv[3 + i % (argc - 3)]);
	printf("flipped %d times\n", times);
	return (0);
}
