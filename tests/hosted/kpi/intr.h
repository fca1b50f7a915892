/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * intr_event(9) for hosted tests: what an upcall delivers, the interrupt thread, and its clock.
 */

#ifndef _KPI_INTR_H_
#define	_KPI_INTR_H_

/* Called when the thread has something to do. */
extern void (*kpi_intr_wake)(void);

/* Has this thread disabled interrupts (user/machine/cpufunc.h)? */
extern _Thread_local register_t kpi_intr_off;

/* How many threads of interrupts were bound to a CPU, and the last one's. */
extern int kpi_intr_bound, kpi_intr_cpu;

/* intr_event_create(9) fails (1), or intr_event_add_handler(9) (2). */
extern int kpi_intr_fails;

/* The name of the counter that may be added for vmstat(8), and that counter. */
extern const char *kpi_intr_counted;
extern u_long kpi_intr_count;

/* A tick passes; what callout(9) was to do then is done. */
void	kpi_intr_tick(void);

/* The interrupt thread: run the handlers that are due.  Returns how many there were. */
int	kpi_intr_run(void);

#endif /* !_KPI_INTR_H_ */
