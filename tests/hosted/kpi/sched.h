/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * callout(9) and epoch(9) for hosted tests: time passes when a test says so.
 */

#ifndef _KPI_SCHED_H_
#define	_KPI_SCHED_H_

/* Callouts that are pending now. */
extern int kpi_callouts;

/* Each is as late as whoever sets it permits. */
extern bool kpi_late;

/* Let so much time pass, and run what is due meanwhile, in order. */
void	kpi_pass(sbintime_t time);

/* Calls of wakeup(9). */
extern u_int kpi_wakeups;

/* Is called when the test's thread waits for the sections of an epoch. */
extern void (*kpi_epoch_waits)(void);

#endif /* !_KPI_SCHED_H_ */
