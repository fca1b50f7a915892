/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * ls(1), cat(1), rm(1) on files in memory.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include <fs/memfs_tree.h>
#include <kern/console_tree.h>

static int
cmd_ls(int argc, char **argv)
{
	char name[128];
	const char *after = NULL;
	size_t size;

	if (argc > 1)
		return (cmd_usage(argv[0]));
	while (memfs_next(after, name, sizeof(name), &size)) {
		printf("%10zu %s\n", size, name);
		after = name;
	}
	return (0);
}
CONSOLE_CMD(ls, cmd_ls, "list files in memory",
    "ls");

static int
cmd_cat_file(const char *path)
{
	struct memfs_file *f;
	char buf[256];
	size_t len;
	off_t off = 0;
	int error;

	error = memfs_open(path, &f);
	if (error != 0)
		return (cmd_err("cat", error, "%s", path));
	do {
		len = sizeof(buf) - 1;
		error = memfs_read(f, off, buf, &len);
		if (error != 0)
			break;
		buf[len] = '\0';
		off += len;
		printf("%s", buf);
	} while (len > 0 && !cmd_interrupted());
	memfs_close(f);
	return (error == 0 ? 0 : cmd_err("cat", error, "%s", path));
}

static int
cmd_cat(int argc, char **argv)
{
	int status = 0;

	if (argc < 2)
		return (cmd_usage(argv[0]));
	for (int i = 1; i < argc; i++)
		status |= cmd_cat_file(argv[i]);
	return (status);
}
CONSOLE_CMD(cat, cmd_cat, "print files in memory",
    "cat file ...");

static int
cmd_rm(int argc, char **argv)
{
	int error, status = 0;

	if (argc < 2)
		return (cmd_usage(argv[0]));
	for (int i = 1; i < argc; i++) {
		error = memfs_unlink(argv[i]);
		if (error != 0)
			status = cmd_err("rm", error, "%s", argv[i]);
	}
	return (status);
}
CONSOLE_CMD(rm, cmd_rm, "remove files in memory",
    "rm file ...");
