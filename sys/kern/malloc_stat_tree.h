/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * malloc(9) statistics for vmstat -m.
 *
 * Not FreeBSD's: vmstat(8) reads the sysctl kern.malloc_stats there, in a format for other
 * versions of itself.
 */

#ifndef _KERN_MALLOC_STAT_TREE_H_
#define	_KERN_MALLOC_STAT_TREE_H_

#include <sys/malloc.h>

/* What the type counted on all CPUs.  Bit n of mts_size: sizes of 2^(n + 4) bytes were allocated. */
void	malloc_type_sum(struct malloc_type *type, struct malloc_type_stats *sum);

#endif /* !_KERN_MALLOC_STAT_TREE_H_ */
