/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Where commands read and write bytes: a path under /dev is a device (kern/devfs_tree.h), any other
 * a file in memory (fs/memfs_tree.h).
 */

#ifndef _CMD_BYTES_H_
#define	_CMD_BYTES_H_

#include <kern/devfs_tree.h>

struct memfs_file;

/* A file or a device that is open. */
struct cmd_bytes {
	struct memfs_file *b_file;
	struct devfs_file *b_dev;
};

/*
 * Open a path for FREAD or FWRITE.  A file that is to be written is created if it does not exist, and
 * emptied if truncate is set.  Returns 0, or an error of memfs_open(), memfs_create(), devfs_open().
 */
int	cmd_bytes_open(struct cmd_bytes *b, const char *path, int fflag, bool truncate);

/* Close it; harmless after an open that failed. */
void	cmd_bytes_close(struct cmd_bytes *b);

/* Read or write at most *lenp bytes at an offset; *lenp becomes how many there were. */
int	cmd_bytes_read(struct cmd_bytes *b, off_t off, void *buf, size_t *lenp);
int	cmd_bytes_write(struct cmd_bytes *b, off_t off, const void *buf, size_t *lenp);

/* Open a disk for reading by its path or its plain name.  Returns 0 or an error of devfs_open(). */
int	cmd_disk_open(const char *name, struct devfs_file **fpp);

#endif /* !_CMD_BYTES_H_ */
