/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The hosted KPI's own interface, for tests: what it counts, and where it can be hooked.
 *
 * Everything else it offers is FreeBSD's, under FreeBSD's names and behind FreeBSD's headers, as far
 * as the drivers under test use it.  Addresses for devices are virtual addresses.
 */

#ifndef _KPI_H_
#define	_KPI_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <machine/bus.h>

/* The tag at the root, as bus_get_dma_tag(9) would return it. */
extern bus_dma_tag_t kpi_dma_tag;

/*
 * Called before each load and store of the drivers, which are compiled to tell (-fsanitize-coverage=
 * trace-loads,trace-stores); NULL: not.  That is where a test puts what another CPU does.
 */
extern void (*kpi_access_hook)(void);

/* Things that exist now: a test that ends with other numbers than it began with leaks. */
extern int kpi_mallocs;
extern int kpi_dma_tags;
extern int kpi_dma_maps;
extern int kpi_sysctls;

/* Lines that device_printf(9) and printf(9) wrote, or would have, were it not quiet. */
extern int kpi_lines;
extern bool kpi_quiet;

/* The nth malloc(9) or bus_dmamem_alloc(9) from now fails, if it may; 0: none does. */
extern int kpi_fail_after;

/* Should this allocation fail? */
bool	kpi_fail_now(void);

/* A device for messages. */
device_t kpi_device(void);

#endif /* !_KPI_H_ */
