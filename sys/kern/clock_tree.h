/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Declarations shared by the clock, the callouts and the time counters.
 *
 * Not FreeBSD's: its callouts and time counters notify the clock, by cpu_new_callout(); here the
 * clock calls them.
 */

#ifndef _KERN_CLOCK_TREE_H_
#define	_KERN_CLOCK_TREE_H_

#include <sys/types.h>

/* When a CPU has to process its callouts next; SBT_MAX when it has none (kern_timeout.c). */
sbintime_t	callout_first(int cpu);

/* The longest time between two readings of the time counter before it wraps (kern_tc.c). */
sbintime_t	tc_max_idle(void);

#endif /* !_KERN_CLOCK_TREE_H_ */
