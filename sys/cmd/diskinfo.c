/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * diskinfo(8): sizes, identifiers and attributes of disks.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/disk.h>
#include <sys/malloc.h>

#include <cmd/cmd_bytes.h>
#include <kern/console_tree.h>

struct diskinfo {
	u_int	sectorsize, fwsectors, fwheads;
	off_t	mediasize, stripesize, stripeoffset;
};

static int
diskinfo_get(struct devfs_file *fp, struct diskinfo *di)
{
	const struct {
		u_long	cmd;
		void	*data;
	} asks[] = {
		{ DIOCGMEDIASIZE, &di->mediasize }, { DIOCGSECTORSIZE, &di->sectorsize },
		{ DIOCGFWSECTORS, &di->fwsectors }, { DIOCGFWHEADS, &di->fwheads },
		{ DIOCGSTRIPESIZE, &di->stripesize }, { DIOCGSTRIPEOFFSET, &di->stripeoffset },
	};
	int error = 0;
	u_int i;

	for (i = 0; error == 0 && i < nitems(asks); i++)
		error = devfs_ioctl(fp, asks[i].cmd, asks[i].data);
	return (error);
}

/* The size in the largest unit that leaves at least one digit, as humanize_number(3) with autoscale. */
static void
diskinfo_human(off_t size, char *buf, size_t len)
{
	static const char units[] = "BKMGTPE";
	int unit = 0;
	off_t n = size;

	while (n >= 1000 && units[unit + 1] != '\0') {
		n = (n + 512) / 1024;
		unit++;
	}
	snprintf(buf, len, "%jd%c", (intmax_t)n, units[unit]);
}

static void
diskinfo_attr(struct devfs_file *fp, const char *attr, const char *what)
{
	struct diocgattr_arg *arg;

	arg = malloc(sizeof(*arg), M_TEMP, M_WAITOK | M_ZERO);
	strlcpy(arg->name, attr, sizeof(arg->name));
	arg->len = sizeof(arg->value.str);
	if (devfs_ioctl(fp, DIOCGATTR, arg) == 0)
		printf("\t%-12s\t# %s\n", arg->value.str, what);
	free(arg, M_TEMP);
}

static void
diskinfo_verbose(struct devfs_file *fp, const char *name, const struct diskinfo *di)
{
	struct diocgattr_arg *arg;
	char human[16];

	diskinfo_human(di->mediasize, human, sizeof(human));
	printf("%s\n\t%-12u\t# sectorsize\n\t%-12jd\t# mediasize in bytes (%s)\n"
	    "\t%-12jd\t# mediasize in sectors\n\t%-12jd\t# stripesize\n"
	    "\t%-12jd\t# stripeoffset\n", name, di->sectorsize, (intmax_t)di->mediasize, human,
	    (intmax_t)(di->mediasize / di->sectorsize), (intmax_t)di->stripesize,
	    (intmax_t)di->stripeoffset);
	if (di->fwsectors != 0 && di->fwheads != 0)
		printf("\t%-12jd\t# Cylinders according to firmware.\n"
		    "\t%-12u\t# Heads according to firmware.\n"
		    "\t%-12u\t# Sectors according to firmware.\n",
		    (intmax_t)(di->mediasize / di->sectorsize / di->fwheads / di->fwsectors),
		    di->fwheads, di->fwsectors);
	diskinfo_attr(fp, "GEOM::descr", "Disk descr.");
	diskinfo_attr(fp, "GEOM::ident", "Disk ident.");
	diskinfo_attr(fp, "GEOM::attachment", "Attachment");
	diskinfo_attr(fp, "GEOM::physpath", "Physical path");
	arg = malloc(sizeof(*arg), M_TEMP, M_WAITOK | M_ZERO);
	strlcpy(arg->name, "GEOM::candelete", sizeof(arg->name));
	arg->len = sizeof(arg->value.i);
	if (devfs_ioctl(fp, DIOCGATTR, arg) == 0)
		printf("\t%-12s\t# TRIM/UNMAP support\n", arg->value.i != 0 ? "Yes" : "No");
	free(arg, M_TEMP);
}

static int
diskinfo_one(const char *name, bool verbose, bool ident)
{
	struct devfs_file *fp;
	struct diskinfo di;
	char *serial;
	int error;

	error = cmd_disk_open(name, &fp);
	if (error != 0)
		return (cmd_err("diskinfo", error, "%s", name));
	if (ident) {
		serial = malloc(DISK_IDENT_SIZE, M_TEMP, M_WAITOK | M_ZERO);
		error = devfs_ioctl(fp, DIOCGIDENT, serial);
		if (error == 0)
			printf("%s\n", serial);
		free(serial, M_TEMP);
	} else if ((error = diskinfo_get(fp, &di)) == 0) {
		if (verbose)
			diskinfo_verbose(fp, name, &di);
		else
			printf("%s\t%u\t%jd\t%jd\t%jd\t%jd\n", name, di.sectorsize,
			    (intmax_t)di.mediasize, (intmax_t)(di.mediasize / di.sectorsize),
			    (intmax_t)di.stripesize, (intmax_t)di.stripeoffset);
	}
	devfs_close(fp);
	return (error == 0 ? 0 : cmd_err("diskinfo", error, "%s", name));
}

static int
cmd_diskinfo(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	bool verbose = false, ident = false;
	int c, i, status = 0;

	while ((c = cmd_getopt(&g, argc, argv, "sv")) != -1) {
		if (c == 's')
			ident = true;
		else if (c == 'v')
			verbose = true;
		else
			return (cmd_usage("diskinfo"));
	}
	if (g.optind == argc)
		return (cmd_usage("diskinfo"));
	for (i = g.optind; i < argc; i++)
		status |= diskinfo_one(argv[i], verbose, ident);
	return (status);
}
CONSOLE_CMD(diskinfo, cmd_diskinfo, "show what a disk is",
    "diskinfo [-sv] disk ...");
