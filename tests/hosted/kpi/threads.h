/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A kernel's threads for a hosted test, of which one runs at a time, until it sleeps: kpi/threads.c.
 */

#ifndef _KPI_THREADS_H_
#define	_KPI_THREADS_H_

/* Run a test's body as a thread of which there can be others, and end those with it. */
void	kpi_threads(void (*body)(const void *), const void *arg);

/* Another one, which begins when this one sleeps, and ends by itself. */
void	kpi_thread_start(void (*fn)(void *), void *arg);

/* Threads that were started by that, and have not ended. */
int	kpi_threads_left(void);

/* Likewise, of those of the kernel, that is of kthread_add(9). */
int	kpi_kthreads_left(void);

/* The nth kthread_add(9) from now fails; 0: none does. */
extern int kpi_thread_fails;

/* Let the others run until all sleep; no time passes. */
void	kpi_settle(void);

/* And let so many ticks pass. */
void	kpi_sleep(int n);

/* What the kernel's SYSINITs would have begun, but for its modules. */
void	kpi_sysinits(void);

/* As devctl(8) gives a device to a driver. */
int	kpi_set_driver(device_t dev, const char *driver);

/* Load or unload a module of this program, "bus/driver". */
int	kpi_module_event(const char *name, int what);

#endif /* !_KPI_THREADS_H_ */
