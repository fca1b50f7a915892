/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Small commands of the console, most of them on files.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include <fs/memfs.h>
#include <kern/console.h>

static int
cmd_echo(int argc, char **argv)
{

	for (int i = 1; i < argc; i++)
		printf("%s%s", argv[i], i + 1 < argc ? " " : "");
	printf("\n");
	return (0);
}
CONSOLE_CMD(echo, cmd_echo, "echo [word ...]");

static int
cmd_date(int argc, char **argv)
{
	struct timeval now;

	if (argc != 2 || strcmp(argv[1], "+%s") != 0)
		return (cmd_usage(argv[0]));
	microtime(&now);
	printf("%jd\n", (intmax_t)now.tv_sec);
	return (0);
}
CONSOLE_CMD(date, cmd_date, "date +%s");

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
CONSOLE_CMD(ls, cmd_ls, "ls");

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
CONSOLE_CMD(cat, cmd_cat, "cat file ...");

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
CONSOLE_CMD(rm, cmd_rm, "rm file ...");
