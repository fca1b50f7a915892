/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The machine's atomic(9), whose fence between stores and later loads is told to a test, as each load
 * and store is (kpi/access.c).
 */

#include_next <machine/atomic.h>

#ifndef _FENCE_ATOMIC_H_
#define	_FENCE_ATOMIC_H_

void	kpi_fence(void);

static inline void
kpi_fence_seq_cst(void)
{

	kpi_fence();
	atomic_thread_fence_seq_cst();
}

#define	atomic_thread_fence_seq_cst	kpi_fence_seq_cst

#endif /* !_FENCE_ATOMIC_H_ */
