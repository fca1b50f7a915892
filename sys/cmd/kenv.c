/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * kenv(1): the kernel environment at the console.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include <kern/console_tree.h>
#include <kern/kenv_tree.h>

/* All entries, sorted, as kenv(1) without operands prints them. */
static int
kenv_print_all(void)
{
	char entry[KENV_MAXENTRY] = "";
	char *value;

	while (kenv_next(entry, entry)) {
		value = strchr(entry, '=');
		printf("%.*s=\"%s\"\n", (int)(value - entry), entry, value + 1);
	}
	return (0);
}

static int
cmd_kenv(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	bool quiet = false, unset = false;
	char *name, *value;
	int c, error;

	while ((c = cmd_getopt(&g, argc, argv, "qu")) != -1) {
		if (c == 'q')
			quiet = true;
		else if (c == 'u')
			unset = true;
		else
			return (cmd_usage("kenv"));
	}
	if (g.optind == argc)
		return (unset ? cmd_usage("kenv") : kenv_print_all());
	if (argc - g.optind != 1)
		return (cmd_usage("kenv"));
	name = argv[g.optind];
	value = strchr(name, '=');
	if (unset) {
		error = kern_unsetenv(name);
		return (error != 0 && !quiet ? cmd_err("kenv", 0, "unable to unset %s", name) :
		    error != 0);
	}
	if (value != NULL) {
		*value++ = '\0';
		error = kern_setenv(name, value);
		if (error != 0)
			return (quiet ? 1 : cmd_err("kenv", 0, "unable to set %s to %s", name,
			    value));
		printf("%s=\"%s\"\n", name, value);
		return (0);
	}
	value = kern_getenv(name);
	if (value == NULL)
		return (quiet ? 1 : cmd_err("kenv", 0, "unable to get %s", name));
	printf("%s\n", value);
	freeenv(value);
	return (0);
}
CONSOLE_CMD(kenv, cmd_kenv, "show or change the kernel environment",
    "kenv [-q] [-u] [variable[=value]]");
