/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * sleep(1).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/ctype.h>
#include <sys/time.h>

#include <kern/console_tree.h>

/* A number of seconds with decimals and, as sleep(1) takes it, one of the units s, m, h, d. */
static bool
sleep_parse(const char *s, sbintime_t *sbtp)
{
	sbintime_t sbt, fraction = SBT_1S;
	char *end;

	sbt = (sbintime_t)strtoq(s, &end, 10) * SBT_1S;
	if (end == s && *s != '.')
		return (false);
	if (*end == '.')
		for (end++; isdigit(*end); end++) {
			fraction /= 10;
			sbt += (*end - '0') * fraction;
		}
	switch (*end) {
	case 'd':
		sbt *= 24;
		/* FALLTHROUGH */
	case 'h':
		sbt *= 60;
		/* FALLTHROUGH */
	case 'm':
		sbt *= 60;
		/* FALLTHROUGH */
	case 's':
		end++;
		break;
	}
	*sbtp = sbt;
	return (*end == '\0');
}

static int
cmd_sleep(int argc, char **argv)
{
	sbintime_t sbt, total = 0;
	int i;

	if (argc < 2)
		return (cmd_usage("sleep"));
	for (i = 1; i < argc; i++) {
		if (!sleep_parse(argv[i], &sbt))
			return (cmd_err("sleep", 0, "invalid time interval: %s", argv[i]));
		total += MAX(sbt, 0);
	}
	return (cmd_pause(total) ? 0 : 130);
}
CONSOLE_CMD(sleep, cmd_sleep, "wait for a time",
    "sleep number[unit] ...");
