/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/* echo(1). */

#include <sys/param.h>
#include <sys/systm.h>

#include <kern/console_tree.h>

static int
cmd_echo(int argc, char **argv)
{

	for (int i = 1; i < argc; i++)
		printf("%s%s", argv[i], i + 1 < argc ? " " : "");
	printf("\n");
	return (0);
}
CONSOLE_CMD(echo, cmd_echo, "print words",
    "echo [word ...]");
