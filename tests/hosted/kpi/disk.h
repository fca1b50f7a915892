/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * disk(9) for hosted tests.
 */

#ifndef _KPI_DISK_H_
#define	_KPI_DISK_H_

struct disk;

/* The one that there is, or NULL. */
extern struct disk *kpi_disk;

/* Does disk_resize(9) work, and how often was it called? */
extern bool kpi_disk_resizes;
extern int kpi_resizes;

/*
 * Called by disk_gone(9), with "gone ", and the test calls d_gone when nobody uses the disk any more;
 * and by disk_destroy(9), with "destroyed ".  NULL: nobody uses it.
 */
extern void (*kpi_disk_leaves)(const char *what);

/* What cpu_ticks() returns. */
extern uint64_t kpi_cputicks;

#endif /* !_KPI_DISK_H_ */
