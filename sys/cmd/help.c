/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * help: every command in one line, or how one is called.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include <kern/console_cmd_tree.h>

static int
cmd_help(int argc, char **argv)
{
	struct console_help ch = { 0 };
	struct console_ref cr;

	if (argc > 2)
		return (cmd_usage("help"));
	if (argc == 1) {
		while (console_cmd_next(ch.ch_name, &ch))
			printf("%-10s %s\n", ch.ch_name, ch.ch_descr);
		return (0);
	}
	if (console_cmd_get(argv[1], &cr) != 0)
		return (cmd_err("help", 0, "no command %s", argv[1]));
	printf("%s - %s\nusage: %s\n", cr.cr_cmd->cc_name, cr.cr_cmd->cc_descr,
	    cr.cr_cmd->cc_usage);
	console_cmd_put(&cr);
	return (0);
}
CONSOLE_CMD(help, cmd_help, "list the commands, or show how one is called", "help [command]");
