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

static inline void
kpi_access(void)
{

	if (__predict_false(kpi_access_hook != NULL))
		kpi_access_hook();
}

#define	KPI_ACCESS(name)						\
	void __sanitizer_cov_##name(void *);				\
	void								\
	__sanitizer_cov_##name(void *addr __unused)			\
	{								\
									\
		kpi_access();						\
	}

KPI_ACCESS(load1)
KPI_ACCESS(load2)
KPI_ACCESS(load4)
KPI_ACCESS(load8)
KPI_ACCESS(load16)
KPI_ACCESS(store1)
KPI_ACCESS(store2)
KPI_ACCESS(store4)
KPI_ACCESS(store8)
KPI_ACCESS(store16)
