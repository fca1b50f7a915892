/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * trim(8): delete unused contents of a disk.
 *
 * Gaps: no -N and -r; -f is needed, as there is nothing else to do.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/disk.h>
#include <sys/fcntl.h>

#include <kern/console_tree.h>
#include <kern/devfs_tree.h>

/* Asks for the deletion of length bytes from offset on; length 0 is the rest of the disk. */
static int
trim_one(const char *name, uint64_t offset, uint64_t length)
{
	struct devfs_file *fp;
	off_t arg[2], size;
	char path[64];
	int error;

	snprintf(path, sizeof(path), "%s%s", *name == '/' ? "" : "/dev/", name);
	error = devfs_open(path, FREAD | FWRITE, &fp);
	if (error != 0)
		return (cmd_err("trim", error, "%s", name));
	error = devfs_ioctl(fp, DIOCGMEDIASIZE, &size);
	if (error == 0) {
		arg[0] = offset;
		arg[1] = length == 0 ? size - (off_t)offset : (off_t)length;
		error = devfs_ioctl(fp, DIOCGDELETE, arg);
	}
	devfs_close(fp);
	return (error == 0 ? 0 : cmd_err("trim", error, "%s", name));
}

static int
cmd_trim(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	uint64_t length = 0, offset = 0;
	bool force = false;
	int c, i, status = 0;

	while ((c = cmd_getopt(&g, argc, argv, "fl:o:")) != -1) {
		if (c == 'f')
			force = true;
		else if (c == '?' || cmd_expand_number(g.optarg, c == 'l' ? &length : &offset) != 0)
			return (cmd_usage("trim"));
	}
	if (g.optind == argc || !force)
		return (cmd_usage("trim"));
	for (i = g.optind; i < argc; i++)
		status |= trim_one(argv[i], offset, length);
	return (status);
}
CONSOLE_CMD(trim, cmd_trim, "delete blocks of a disk",
    "trim -f [-l length] [-o offset] disk ...");
