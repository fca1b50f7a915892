/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * mbufs for hosted tests, with the tree kernel's own functions.
 */

#ifndef _KPI_MBUF_H_
#define	_KPI_MBUF_H_

/* Items of zones that exist now: mbufs and clusters. */
extern int kpi_items;

/* The limit of each zone; 0: none. */
extern int kpi_zone_max;

/* Before the first mbuf. */
void	kpi_mbuf_init(void);

/*
 * A packet with a copy of `len' bytes, in pieces of the given lengths (a list that ends with 0, or
 * NULL), the last of which takes what is left.  Each lies in memory that ends where it does.
 */
struct mbuf *kpi_mbuf_chain(const void *data, size_t len, const size_t *pieces);

#endif /* !_KPI_MBUF_H_ */
