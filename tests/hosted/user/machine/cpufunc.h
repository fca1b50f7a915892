/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The machine's instructions, without those that a process may not execute: its interrupts are its
 * threads, which nothing disables.
 */

#define	intr_disable	cpu_intr_disable
#define	intr_restore	cpu_intr_restore
#include_next <machine/cpufunc.h>
#undef intr_disable
#undef intr_restore

#ifndef _USER_CPUFUNC_H_
#define	_USER_CPUFUNC_H_

static inline register_t
intr_disable(void)
{

	return (0);
}

static inline void
intr_restore(register_t saved __unused)
{
}

#endif /* !_USER_CPUFUNC_H_ */
