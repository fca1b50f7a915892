/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Files in memory (fs/memfs.c): those of the boot archive, and those that commands create.
 *
 * Not FreeBSD's: FreeBSD has file systems below its VFS.
 */

#ifndef _FS_MEMFS_TREE_H_
#define	_FS_MEMFS_TREE_H_

#include <sys/types.h>

struct memfs_file;

/*
 * Open a file by its path ("/boot/kernel/pv.ko").  Returns 0 or ENOENT.  Close it again.
 */
int	memfs_open(const char *path, struct memfs_file **fp);

/*
 * Create an empty file and open it; one of that name is emptied.  Returns 0; EROFS if the name is
 * of the boot archive; EINVAL if it is no absolute path or too long.
 */
int	memfs_create(const char *path, struct memfs_file **fp);

void	memfs_close(struct memfs_file *f);

/* Remove a name; the file goes with its last user.  Returns 0, ENOENT, EROFS. */
int	memfs_unlink(const char *path);

/* Size in bytes. */
size_t	memfs_size(struct memfs_file *f);

/*
 * Read at most *lenp bytes from offset off; *lenp is set to how many there were (0 at the end).
 * Returns 0, or EINVAL for a negative offset.
 */
int	memfs_read(struct memfs_file *f, off_t off, void *buf, size_t *lenp);

/*
 * Write len bytes at offset off; the file grows, a gap reads as zeros.  Returns 0, EROFS, EINVAL,
 * EFBIG (files are at most MEMFS_MAXSIZE), ENOMEM.
 */
int	memfs_write(struct memfs_file *f, off_t off, const void *buf, size_t len);

#define	MEMFS_MAXSIZE	(256UL << 20)

/* The whole file; valid until the next write or close. */
const void *memfs_data(struct memfs_file *f);

/*
 * The next name in the order of creation, starting after `after` (NULL: the first), copied to
 * name[len] with its size.  Returns false at the end.
 */
bool	memfs_next(const char *after, char *name, size_t len, size_t *sizep);

#endif /* !_FS_MEMFS_TREE_H_ */
