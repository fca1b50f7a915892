/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The compiler's reports of loads and stores, made a hook (kpi.h).  A report comes before the access.
 */

#include "kpi.h"

void (*kpi_access_hook)(void);
void (*kpi_access_at)(uintptr_t addr, int size, bool store);
void (*kpi_fence_hook)(void);

void	kpi_fence(void);

void
kpi_fence(void)
{

	if (__predict_false(kpi_fence_hook != NULL))
		kpi_fence_hook();
}

static inline void
kpi_access(const void *addr, int size, bool store)
{

	if (__predict_false(kpi_access_hook != NULL))
		kpi_access_hook();
	if (__predict_false(kpi_access_at != NULL))
		kpi_access_at((uintptr_t)addr, size, store);
}

#define	KPI_ACCESS(name, size, store)					\
	void __sanitizer_cov_##name(void *);				\
	void								\
	__sanitizer_cov_##name(void *addr)				\
	{								\
									\
		kpi_access(addr, size, store);				\
	}

KPI_ACCESS(load1, 1, false)
KPI_ACCESS(load2, 2, false)
KPI_ACCESS(load4, 4, false)
KPI_ACCESS(load8, 8, false)
KPI_ACCESS(load16, 16, false)
KPI_ACCESS(store1, 1, true)
KPI_ACCESS(store2, 2, true)
KPI_ACCESS(store4, 4, true)
KPI_ACCESS(store8, 8, true)
KPI_ACCESS(store16, 16, true)
