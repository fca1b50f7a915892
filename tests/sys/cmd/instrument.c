/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * diskbench, diskcheck, memhog, pktgen: this program, under each of these names, has the module
 * `instruments' run the command of its name, and exits with its status.
 */

#include <sys/ioctl.h>
#include <sys/linker.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "instruments/instruments.h"

static int
complain(const char *what)
{
	write(STDERR_FILENO, what, strlen(what));
	return (1);
}

int
main(int argc, char **argv)
{
	char words[INSTRUMENTS_MAX], *name = argv[0], *p;
	struct instruments_run run = { .ir_words = words };
	int fd, i;

	for (p = argv[0]; *p != '\0'; p++) {
		if (*p == '/')
			name = p + 1;
	}
	argv[0] = name;
	for (i = 0; i < argc; i++) {
		if (run.ir_len + strlen(argv[i]) + 1 > sizeof(words))
			return (complain("instrument: too many words\n"));
		memcpy(words + run.ir_len, argv[i], strlen(argv[i]) + 1);
		run.ir_len += strlen(argv[i]) + 1;
	}
	fd = open("/dev/" INSTRUMENTS_DEVICE, O_RDWR);
	if (fd < 0) {
		/* Or another process is loading it at this moment. */
		(void)kldload("instruments");
		fd = open("/dev/" INSTRUMENTS_DEVICE, O_RDWR);
	}
	if (fd < 0)
		return (complain("instrument: no /dev/" INSTRUMENTS_DEVICE "\n"));
	if (ioctl(fd, INSTRUMENTS_RUN, &run) != 0)
		return (complain("instrument: no such command, or too many words\n"));
	return (run.ir_status);
}
