/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * malloc(9) statistics for vmstat -m.
 */

#ifndef _KERN_MALLOC_STAT_H_
#define	_KERN_MALLOC_STAT_H_

#include <sys/malloc.h>

/* What the type counted on all CPUs.  Bit n of mts_size: sizes of 2^(n + 4) bytes were allocated. */
void	malloc_type_sum(struct malloc_type *type, struct malloc_type_stats *sum);

#endif /* !_KERN_MALLOC_STAT_H_ */
