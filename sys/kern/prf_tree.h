/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What commands of the console print.
 *
 * Not FreeBSD's: commands are programs there, and the C library collects their lines.
 */

#ifndef _KERN_PRF_TREE_H_
#define	_KERN_PRF_TREE_H_

/*
 * From here on, what this thread prints goes out when a line has ended, so that no message comes
 * between its parts.  May sleep.
 */
void	prf_lines_begin(void);

/* Print what is left of a line, and collect no more.  May not be called without prf_lines_begin(). */
void	prf_lines_end(void);

#endif /* !_KERN_PRF_TREE_H_ */
