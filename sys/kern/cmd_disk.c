/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Console commands that move and look at bytes: dd(1), sha256(1), diskinfo(8), dumpon(8).
 *
 * A path under /dev is a device (kern/devfs.h), any other a file in memory (fs/memfs.h); struct
 * bytes hides the difference.
 *
 * Gaps of dd: one block size (no ibs=, obs= or cbs=) and conv= limited to those of dd_convs.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/conf.h>
#include <sys/disk.h>
#include <sys/fcntl.h>
#include <sys/malloc.h>
#include <sys/time.h>

#include <crypto/sha2/sha256.h>
#include <fs/memfs.h>
#include <kern/console.h>
#include <kern/devfs.h>

static MALLOC_DEFINE(M_CMDDISK, "cmd_disk", "buffers of disk commands");

#define	CMD_BUFSIZE	(128 * 1024)
#define	DD_BS_MAX	(16 * 1024 * 1024)

/* A file or a device that is open. */
struct bytes {
	struct memfs_file *b_file;
	struct devfs_file *b_dev;
};

static int
bytes_open(struct bytes *b, const char *path, int fflag, bool truncate)
{
	int error;

	bzero(b, sizeof(*b));
	if (strncmp(path, "/dev/", 5) == 0)
		return (devfs_open(path, fflag, &b->b_dev));
	if ((fflag & FWRITE) == 0)
		return (memfs_open(path, &b->b_file));
	if (truncate)
		return (memfs_create(path, &b->b_file));
	error = memfs_open(path, &b->b_file);
	return (error == ENOENT ? memfs_create(path, &b->b_file) : error);
}

static void
bytes_close(struct bytes *b)
{
	if (b->b_dev != NULL)
		devfs_close(b->b_dev);
	if (b->b_file != NULL)
		memfs_close(b->b_file);
	bzero(b, sizeof(*b));
}

static int
bytes_read(struct bytes *b, off_t off, void *buf, size_t *lenp)
{
	if (b->b_dev != NULL)
		return (devfs_pread(b->b_dev, buf, lenp, off));
	return (memfs_read(b->b_file, off, buf, lenp));
}

static int
bytes_write(struct bytes *b, off_t off, const void *buf, size_t *lenp)
{
	int error;

	if (b->b_dev != NULL)
		return (devfs_pwrite(b->b_dev, buf, lenp, off));
	error = memfs_write(b->b_file, off, buf, *lenp);
	if (error != 0)
		*lenp = 0;
	return (error);
}

/* dd(1) */

#define	DD_NOTRUNC	0x01
#define	DD_SYNC		0x02
#define	DD_NOERROR	0x04
#define	DD_FSYNC	0x08

static const struct {
	const char	*name;
	int		flag;
} dd_convs[] = {
	{ "notrunc", DD_NOTRUNC }, { "sync", DD_SYNC }, { "noerror", DD_NOERROR },
	{ "fsync", DD_FSYNC }, { "fdatasync", DD_FSYNC },
};

enum dd_status { DD_STATUS_FULL, DD_STATUS_NOXFER, DD_STATUS_NONE };

struct dd {
	const char	*d_if, *d_of;
	uint64_t	d_bs, d_count, d_skip, d_seek;
	bool		d_counted;	/* count= was given */
	int		d_conv;
	enum dd_status	d_status;
	struct bytes	d_in, d_out;
	char		*d_buf;
	uint64_t	d_in_full, d_in_part, d_out_full, d_out_part, d_bytes;
	sbintime_t	d_start;
};

static int
dd_conv(struct dd *d, char *list)
{
	char *word;
	u_int i;

	while ((word = strsep(&list, ",")) != NULL) {
		for (i = 0; i < nitems(dd_convs) && strcmp(word, dd_convs[i].name) != 0; i++)
			;
		if (i == nitems(dd_convs))
			return (cmd_err("dd", 0, "unknown conversion %s", word));
		d->d_conv |= dd_convs[i].flag;
	}
	return (0);
}

static int
dd_set_status(struct dd *d, const char *word)
{
	if (strcmp(word, "none") == 0)
		d->d_status = DD_STATUS_NONE;
	else if (strcmp(word, "noxfer") == 0)
		d->d_status = DD_STATUS_NOXFER;
	else
		return (cmd_err("dd", 0, "unknown status %s", word));
	return (0);
}

/* A number of dd(1): factors with suffixes, joined by x. */
static int
dd_number(const char *name, char *word, uint64_t *value)
{
	uint64_t n, product = 1;
	char *factor;

	while ((factor = strsep(&word, "x")) != NULL) {
		if (cmd_expand_number(factor, &n) != 0)
			return (cmd_err("dd", 0, "%s: illegal numeric value", name));
		if (n != 0 && product > INT64_MAX / n)
			return (cmd_err("dd", 0, "%s: number too large", name));
		product *= n;
	}
	*value = product;
	return (0);
}

static int
dd_operand(struct dd *d, char *arg)
{
	const struct {
		const char	*name;
		uint64_t	*value;
	} numbers[] = {
		{ "bs", &d->d_bs }, { "count", &d->d_count }, { "skip", &d->d_skip },
		{ "iseek", &d->d_skip }, { "seek", &d->d_seek }, { "oseek", &d->d_seek },
	};
	char *val = arg, *name;
	u_int i;

	name = strsep(&val, "=");
	if (val == NULL || *val == '\0')
		return (cmd_err("dd", 0, val == NULL ? "unknown operand %s" :
		    "no value specified for %s", name));
	if (strcmp(name, "if") == 0)
		d->d_if = val;
	else if (strcmp(name, "of") == 0)
		d->d_of = val;
	else if (strcmp(name, "conv") == 0)
		return (dd_conv(d, val));
	else if (strcmp(name, "status") == 0)
		return (dd_set_status(d, val));
	else {
		for (i = 0; i < nitems(numbers) && strcmp(name, numbers[i].name) != 0; i++)
			;
		if (i == nitems(numbers))
			return (cmd_err("dd", 0, "unknown operand %s", name));
		d->d_counted |= strcmp(name, "count") == 0;
		return (dd_number(name, val, numbers[i].value));
	}
	return (0);
}

static int
dd_open(struct dd *d)
{
	int error;

	if (d->d_if == NULL || d->d_of == NULL)
		return (cmd_err("dd", 0, "if= and of= are needed: the console has no standard "
		    "input or output"));
	if (d->d_bs == 0 || d->d_bs > DD_BS_MAX)
		return (cmd_err("dd", 0, "bs must be between 1 and %d", DD_BS_MAX));
	if (d->d_skip > INT64_MAX / d->d_bs || d->d_seek > INT64_MAX / d->d_bs)
		return (cmd_err("dd", 0, "seek offset too large"));
	error = bytes_open(&d->d_in, d->d_if, FREAD, false);
	if (error != 0)
		return (cmd_err("dd", error, "%s", d->d_if));
	error = bytes_open(&d->d_out, d->d_of, FWRITE,
	    (d->d_conv & DD_NOTRUNC) == 0 && d->d_seek == 0);
	if (error != 0)
		return (cmd_err("dd", error, "%s", d->d_of));
	d->d_buf = malloc(d->d_bs, M_CMDDISK, M_NOWAIT);
	if (d->d_buf == NULL)
		return (cmd_err("dd", ENOMEM, "input buffer"));
	return (0);
}

static void
dd_summary(const struct dd *d)
{
	sbintime_t elapsed;
	uint64_t us;

	if (d->d_status == DD_STATUS_NONE)
		return;
	elapsed = sbinuptime() - d->d_start;
	us = MAX(1, elapsed / SBT_1US);
	printf("%ju+%ju records in\n%ju+%ju records out\n", (uintmax_t)d->d_in_full,
	    (uintmax_t)d->d_in_part, (uintmax_t)d->d_out_full, (uintmax_t)d->d_out_part);
	if (d->d_status == DD_STATUS_NOXFER)
		return;
	printf("%ju bytes transferred in %ju.%06ju secs (%ju bytes/sec)\n", (uintmax_t)d->d_bytes,
	    (uintmax_t)(us / 1000000), (uintmax_t)(us % 1000000),
	    (uintmax_t)(d->d_bytes < UINT64_MAX / 1000000 ? d->d_bytes * 1000000 / us :
	    d->d_bytes / us * 1000000));
}

static int
dd_write_block(struct dd *d, off_t off, size_t len)
{
	size_t done = len;
	int error;

	error = bytes_write(&d->d_out, off, d->d_buf, &done);
	d->d_bytes += done;
	if (done == d->d_bs)
		d->d_out_full++;
	else if (done != 0)
		d->d_out_part++;
	if (error != 0)
		return (cmd_err("dd", error, "%s", d->d_of));
	if (done < len)
		return (cmd_err("dd", 0, "%s: end of device", d->d_of));
	return (0);
}

/* Copies block by block; a block that can't be read counts as one of zeros under noerror,sync. */
static int
dd_copy(struct dd *d)
{
	off_t in, out;
	uint64_t n;
	size_t len;
	int error, status = 0;

	in = d->d_skip * d->d_bs;
	out = d->d_seek * d->d_bs;
	for (n = 0; (!d->d_counted || n < d->d_count) && !cmd_interrupted(); n++) {
		if ((d->d_conv & DD_SYNC) != 0)
			bzero(d->d_buf, d->d_bs);
		len = d->d_bs;
		error = bytes_read(&d->d_in, in, d->d_buf, &len);
		if (error != 0) {
			status = cmd_err("dd", error, "%s", d->d_if);
			if ((d->d_conv & DD_NOERROR) == 0)
				return (status);
			dd_summary(d);
			in += d->d_bs;
			if ((d->d_conv & DD_SYNC) == 0)
				continue;
			len = 0;
		} else if (len == 0)
			return (status);
		else if (len == d->d_bs)
			d->d_in_full++;
		else
			d->d_in_part++;
		if (error == 0)
			in += len;
		if ((d->d_conv & DD_SYNC) != 0)
			len = d->d_bs;
		if (dd_write_block(d, out, len) != 0)
			return (1);
		out += len;
	}
	return (cmd_interrupted() ? 130 : status);
}

static int
dd_flush(struct dd *d)
{
	int error = 0;

	if ((d->d_conv & DD_FSYNC) != 0 && d->d_out.b_dev != NULL)
		error = devfs_ioctl(d->d_out.b_dev, DIOCGFLUSH, NULL);
	/* A device without a write cache, or that is no disk, has nothing to flush. */
	if (error == 0 || error == EOPNOTSUPP || error == ENODEV)
		return (0);
	return (cmd_err("dd", error, "fsync %s", d->d_of));
}

static int
cmd_dd(int argc, char **argv)
{
	struct dd *d;
	int i, status = 0;

	d = malloc(sizeof(*d), M_CMDDISK, M_WAITOK | M_ZERO);
	d->d_bs = 512;
	for (i = 1; status == 0 && i < argc; i++)
		status = dd_operand(d, argv[i]);
	if (status == 0)
		status = dd_open(d);
	if (status == 0) {
		d->d_start = sbinuptime();
		status = dd_copy(d);
		if (status == 0)
			status = dd_flush(d);
		dd_summary(d);
	}
	bytes_close(&d->d_in);
	bytes_close(&d->d_out);
	free(d->d_buf, M_CMDDISK);
	free(d, M_CMDDISK);
	return (status);
}
CONSOLE_CMD(dd, cmd_dd, "dd if=file of=file [bs=n] [count=n] [skip=n] [seek=n] "
    "[conv=value[,value ...]] [status=none|noxfer]");

/* sha256(1) */

static int
sha256_path(const char *path, char hex[2 * SHA256_DIGEST_LENGTH + 1])
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	struct bytes b;
	SHA256_CTX ctx;
	size_t len;
	off_t off = 0;
	char *buf;
	int error, i;

	error = bytes_open(&b, path, FREAD, false);
	if (error != 0)
		return (error);
	buf = malloc(CMD_BUFSIZE, M_CMDDISK, M_WAITOK);
	SHA256_Init(&ctx);
	do {
		len = CMD_BUFSIZE;
		error = bytes_read(&b, off, buf, &len);
		SHA256_Update(&ctx, buf, len);
		off += len;
		if (cmd_interrupted())
			error = EINTR;
	} while (error == 0 && len > 0);
	SHA256_Final(digest, &ctx);
	free(buf, M_CMDDISK);
	bytes_close(&b);
	for (i = 0; i < SHA256_DIGEST_LENGTH; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	return (error);
}

/* As sha256(1) prints it; check is a digest that it has to be, or NULL.  False if it is not. */
static bool
sha256_print(const char *path, const char *hex, const char *check, bool quiet, bool reverse)
{
	bool same = check == NULL || strcasecmp(hex, check) == 0;

	if (quiet)
		printf("%s", hex);
	else if (reverse)
		printf("%s %s", hex, path);
	else
		printf("SHA256 (%s) = %s", path, hex);
	printf("%s\n", same ? "" : " [ Failed ]");
	return (same);
}

static int
cmd_sha256(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	char hex[2 * SHA256_DIGEST_LENGTH + 1];
	const char *check = NULL;
	bool quiet = false, reverse = false;
	int c, error, i, status = 0;

	while ((c = cmd_getopt(&g, argc, argv, "c:qr")) != -1) {
		if (c == 'c')
			check = g.optarg;
		else if (c == 'q')
			quiet = true;
		else if (c == 'r')
			reverse = true;
		else
			return (cmd_usage("sha256"));
	}
	if (g.optind == argc)
		return (cmd_usage("sha256"));
	for (i = g.optind; i < argc; i++) {
		error = sha256_path(argv[i], hex);
		if (error != 0)
			status = cmd_err("sha256", error, "%s", argv[i]);
		else if (!sha256_print(argv[i], hex, check, quiet, reverse))
			status = 2;
	}
	return (status);
}
CONSOLE_CMD(sha256, cmd_sha256, "sha256 [-qr] [-c digest] file ...");

/* diskinfo(8) */

/* Opens a disk by its path or by its plain name. */
static int
disk_open(const char *name, struct devfs_file **fpp)
{
	char path[64];
	int error;

	error = devfs_open(name, FREAD, fpp);
	if (error == ENOENT && *name != '/') {
		snprintf(path, sizeof(path), "/dev/%s", name);
		error = devfs_open(path, FREAD, fpp);
	}
	return (error);
}

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

	arg = malloc(sizeof(*arg), M_CMDDISK, M_WAITOK | M_ZERO);
	strlcpy(arg->name, attr, sizeof(arg->name));
	arg->len = sizeof(arg->value.str);
	if (devfs_ioctl(fp, DIOCGATTR, arg) == 0)
		printf("\t%-12s\t# %s\n", arg->value.str, what);
	free(arg, M_CMDDISK);
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
	arg = malloc(sizeof(*arg), M_CMDDISK, M_WAITOK | M_ZERO);
	strlcpy(arg->name, "GEOM::candelete", sizeof(arg->name));
	arg->len = sizeof(arg->value.i);
	if (devfs_ioctl(fp, DIOCGATTR, arg) == 0)
		printf("\t%-12s\t# TRIM/UNMAP support\n", arg->value.i != 0 ? "Yes" : "No");
	free(arg, M_CMDDISK);
}

static int
diskinfo_one(const char *name, bool verbose, bool ident)
{
	struct devfs_file *fp;
	struct diskinfo di;
	char *serial;
	int error;

	error = disk_open(name, &fp);
	if (error != 0)
		return (cmd_err("diskinfo", error, "%s", name));
	if (ident) {
		serial = malloc(DISK_IDENT_SIZE, M_CMDDISK, M_WAITOK | M_ZERO);
		error = devfs_ioctl(fp, DIOCGIDENT, serial);
		if (error == 0)
			printf("%s\n", serial);
		free(serial, M_CMDDISK);
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
CONSOLE_CMD(diskinfo, cmd_diskinfo, "diskinfo [-sv] disk ...");

/* dumpon(8) */

static int
dumpon_set(const char *name, uint8_t index)
{
	struct diocskerneldump_arg kda = { .kda_index = index };
	struct devfs_file *fp;
	int error;

	error = disk_open(name, &fp);
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
CONSOLE_CMD(dumpon, cmd_dumpon, "dumpon [-l] | [-v] disk | off");
