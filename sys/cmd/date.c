/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * date(1).
 *
 * Gaps: the seconds since 1970 only; nanoseconds (%N) are whole microseconds.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/time.h>

#include <kern/console_tree.h>

static int
cmd_date(int argc, char **argv)
{
	struct timeval now;
	bool fraction;

	fraction = argc == 2 && strcmp(argv[1], "+%s.%N") == 0;
	if (!fraction && (argc != 2 || strcmp(argv[1], "+%s") != 0))
		return (cmd_usage(argv[0]));
	microtime(&now);
	if (fraction)
		printf("%jd.%06ld000\n", (intmax_t)now.tv_sec, (long)now.tv_usec);
	else
		printf("%jd\n", (intmax_t)now.tv_sec);
	return (0);
}
CONSOLE_CMD(date, cmd_date, "print the time",
    "date +%s[.%N]");
