/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * dumpon(8): the disk on which a panic writes the kernel's memory.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/conf.h>
#include <sys/disk.h>

#include <cmd/cmd_bytes.h>
#include <kern/console_tree.h>

static int
dumpon_set(const char *name, uint8_t index)
{
	struct diocskerneldump_arg kda = { .kda_index = index };
	struct devfs_file *fp;
	int error;

	error = cmd_disk_open(name, &fp);
	if (error != 0)
		return (cmd_err("dumpon", error, "%s", name));
	error = devfs_ioctl(fp, DIOCSKERNELDUMP, &kda);
	devfs_close(fp);
	return (error == 0 ? 0 : cmd_err("dumpon", error, "ioctl(DIOCSKERNELDUMP) on %s", name));
}

static int
cmd_dumpon(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	char name[SPECNAMELEN + 1];
	bool list = false, set, verbose = false;
	int c, status;

	while ((c = cmd_getopt(&g, argc, argv, "lv")) != -1) {
		if (c == 'l')
			list = true;
		else if (c == 'v')
			verbose = true;
		else
			return (cmd_usage("dumpon"));
	}
	set = dumpdev_name(name, sizeof(name));
	if (list && g.optind == argc) {
		printf("%s\n", set ? name : "/dev/null");
		return (0);
	}
	if (list || g.optind != argc - 1)
		return (cmd_usage("dumpon"));
	if (strcmp(argv[g.optind], "off") == 0)
		return (set ? dumpon_set(name, KDA_REMOVE_ALL) : 0);
	status = dumpon_set(argv[g.optind], 0);
	if (status == 0 && verbose && dumpdev_name(name, sizeof(name)))
		printf("kernel dumps on %s\n", name);
	return (status);
}
CONSOLE_CMD(dumpon, cmd_dumpon, "choose the disk for crash dumps",
    "dumpon [-l] | [-v] disk | off");
