/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Files and devices that commands read and write (cmd/cmd_bytes.h).
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/fcntl.h>

#include <cmd/cmd_bytes.h>
#include <fs/memfs_tree.h>

int
cmd_bytes_open(struct cmd_bytes *b, const char *path, int fflag, bool truncate)
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

void
cmd_bytes_close(struct cmd_bytes *b)
{
	if (b->b_dev != NULL)
		devfs_close(b->b_dev);
	if (b->b_file != NULL)
		memfs_close(b->b_file);
	bzero(b, sizeof(*b));
}

int
cmd_bytes_read(struct cmd_bytes *b, off_t off, void *buf, size_t *lenp)
{
	if (b->b_dev != NULL)
		return (devfs_pread(b->b_dev, buf, lenp, off));
	return (memfs_read(b->b_file, off, buf, lenp));
}

int
cmd_bytes_write(struct cmd_bytes *b, off_t off, const void *buf, size_t *lenp)
{
	int error;

	if (b->b_dev != NULL)
		return (devfs_pwrite(b->b_dev, buf, lenp, off));
	error = memfs_write(b->b_file, off, buf, *lenp);
	if (error != 0)
		*lenp = 0;
	return (error);
}

int
cmd_disk_open(const char *name, struct devfs_file **fpp)
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
