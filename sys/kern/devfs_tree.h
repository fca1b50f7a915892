/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Open files on character devices, for the console's commands.
 *
 * There is no user space and so no file descriptor: a command opens "/dev/NAME" here and calls the
 * device's cdevsw through the handle.  Every call holds the device with dev_refthread(), so a
 * destroy_dev() waits for it; after the destruction each call returns ENXIO.
 *
 * Not FreeBSD's: a program opens a device there, by devfs(4) and a file descriptor.
 */

#ifndef _KERN_DEVFS_TREE_H_
#define	_KERN_DEVFS_TREE_H_

#include <sys/types.h>

struct bio;
struct cdev;
struct devfs_file;

/*
 * Finds the device named by path ("/dev/vtbd0"; an alias gives the device it stands for).  Returns
 * it referenced (give it back with dev_rel()), or NULL when there is none.
 */
struct cdev *devfs_lookup(const char *path);

/* Calls cb for each device name in order of creation; stops at the first that returns non-zero. */
int	devfs_foreach(int (*cb)(const char *name, struct cdev *dev, void *arg), void *arg);

/*
 * Opens path with fflag of FREAD and FWRITE.  May sleep.  ENOENT: no such device; otherwise the
 * error of the device's d_open (EROFS for a write-protected disk).
 */
int	devfs_open(const char *path, int fflag, struct devfs_file **fpp);
void	devfs_close(struct devfs_file *fp);

/* The device behind a handle; it stays valid, though perhaps destroyed, until devfs_close(). */
struct cdev *devfs_cdev(struct devfs_file *fp);

/*
 * Reads or writes *lenp bytes at offset off (bytes) through d_read/d_write; *lenp is set to the
 * bytes transferred, fewer than requested at the end of the device.  May sleep.
 */
int	devfs_pread(struct devfs_file *fp, void *buf, size_t *lenp, off_t off);
int	devfs_pwrite(struct devfs_file *fp, const void *buf, size_t *lenp, off_t off);

/* ioctl(2) on the handle. */
int	devfs_ioctl(struct devfs_file *fp, u_long cmd, void *data);

/*
 * Passes bp to d_strategy; bio_done is called once, perhaps before this returns, also when the
 * device was destroyed (ENXIO).
 */
void	devfs_strategy(struct devfs_file *fp, struct bio *bp);

/* Copies the name of the dump device (kern_dump.c); false when there is none. */
bool	dumpdev_name(char *buf, size_t len);

#endif /* !_KERN_DEVFS_TREE_H_ */
