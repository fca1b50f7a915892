/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * For the console, which starts when root would be mounted (vfs_mountroot.c).
 *
 * Not FreeBSD's: this wait is within vfs_mountroot.c there.
 */

#ifndef _KERN_MOUNTROOT_TREE_H_
#define	_KERN_MOUNTROOT_TREE_H_

/* Sleep until nothing holds the mounting of the root file system any more (root_mount_hold()). */
void	root_mount_wait(void);

#endif /* !_KERN_MOUNTROOT_TREE_H_ */
