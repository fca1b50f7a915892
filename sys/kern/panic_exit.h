/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The machine-dependent end of a panic.
 */
#ifndef _KERN_PANIC_EXIT_H_
#define	_KERN_PANIC_EXIT_H_

/* Tell the host that the guest panicked, so that it ends it; halt if nobody listens. */
void	cpu_panic_exit(void) __dead2;

#endif /* !_KERN_PANIC_EXIT_H_ */
