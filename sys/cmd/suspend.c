/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * suspend: the machine sleeps, with its memory kept, until it is woken.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include <kern/console_tree.h>
#include <x86/x86/acpi_tables_tree.h>

static int
cmd_suspend(int argc, char **argv)
{
	int error;

	if (argc != 1)
		return (cmd_usage(argv[0]));
	error = acpi_suspend();
	return (error != 0 ? cmd_err(argv[0], error, "S3") : 0);
}
CONSOLE_CMD(suspend, cmd_suspend, "suspend the machine to memory (ACPI S3)",
    "suspend");
