/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The command that ends the system: shutdown(8).
 *
 * Gaps: at once only, as there are no users to warn; no single-user mode.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/reboot.h>

#include <kern/console_tree.h>

static int
cmd_shutdown(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	int howto = -1, c;

	while ((c = cmd_getopt(&g, argc, argv, "hpr")) != -1) {
		switch (c) {
		case 'h':
			howto = RB_HALT;
			break;
		case 'p':
			howto = RB_POWEROFF;
			break;
		case 'r':
			howto = RB_AUTOBOOT;
			break;
		default:
			return (cmd_usage(argv[0]));
		}
	}
	if (howto == -1 || argc - g.optind < 1 ||
	    (strcmp(argv[g.optind], "now") != 0 && strcmp(argv[g.optind], "+0") != 0))
		return (cmd_usage(argv[0]));
	printf("Shutdown NOW!\n");
	kern_reboot(howto);
}
CONSOLE_CMD(shutdown, cmd_shutdown, "halt, power off or reboot",
    "shutdown -h | -p | -r now");
