/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The machine's instructions, without those that a process may not execute: its interrupts are its
 * threads, which nothing disables.  Whether this thread should have them disabled is in kpi_intr_off.
 */

#define	intr_disable	cpu_intr_disable
#define	intr_restore	cpu_intr_restore
#include_next <machine/cpufunc.h>
#undef intr_disable
#undef intr_restore

#ifndef _USER_CPUFUNC_H_
#define	_USER_CPUFUNC_H_

extern _Thread_local register_t kpi_intr_off;

static inline register_t
intr_disable(void)
{
	register_t saved = kpi_intr_off;

	kpi_intr_off = 1;
	return (saved);
}

static inline void
intr_restore(register_t saved)
{

	kpi_intr_off = saved;
}

#endif /* !_USER_CPUFUNC_H_ */
