/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * dd(1), on devices and files in memory.
 *
 * Gaps: one block size (no ibs=, obs= or cbs=), and conv= limited to those of dd_convs.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/disk.h>
#include <sys/fcntl.h>
#include <sys/malloc.h>
#include <sys/time.h>

#include <cmd/cmd_bytes.h>
#include <kern/console_tree.h>

#define	DD_BS_MAX	(16 * 1024 * 1024)

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
	struct cmd_bytes	d_in, d_out;
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
	error = cmd_bytes_open(&d->d_in, d->d_if, FREAD, false);
	if (error != 0)
		return (cmd_err("dd", error, "%s", d->d_if));
	error = cmd_bytes_open(&d->d_out, d->d_of, FWRITE,
	    (d->d_conv & DD_NOTRUNC) == 0 && d->d_seek == 0);
	if (error != 0)
		return (cmd_err("dd", error, "%s", d->d_of));
	d->d_buf = malloc(d->d_bs, M_TEMP, M_NOWAIT);
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

	error = cmd_bytes_write(&d->d_out, off, d->d_buf, &done);
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
		error = cmd_bytes_read(&d->d_in, in, d->d_buf, &len);
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

	d = malloc(sizeof(*d), M_TEMP, M_WAITOK | M_ZERO);
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
	cmd_bytes_close(&d->d_in);
	cmd_bytes_close(&d->d_out);
	free(d->d_buf, M_TEMP);
	free(d, M_TEMP);
	return (status);
}
CONSOLE_CMD(dd, cmd_dd, "copy a file or device",
    "dd if=file of=file [bs=n] [count=n] [skip=n] [seek=n] "
    "[conv=value[,value ...]] [status=none|noxfer]");
