/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The parts of a panic outside of sys/kern/kern_shutdown.c: its machine-dependent end, and, for a
 * kernel that hangs, a list of what its threads wait for.
 *
 * Not FreeBSD's: a panic reboots there, or stops in a debugger; here QEMU ends with a status.
 */

#ifndef _KERN_PANIC_EXIT_TREE_H_
#define	_KERN_PANIC_EXIT_TREE_H_

/* Report the panic to the host, which ends the guest; halt if the host does not listen. */
void	cpu_panic_exit(void) __dead2;

/*
 * Before a fault's report: only one processor makes one, and then panics.  Others do not return, as
 * panic(9) would stop them between what they write to the message buffer and to the console.
 * Interrupts are off afterwards.
 */
void	panic_begin(void);

/* Print where each thread of a kernel that has stopped waits, or what it was doing. */
void	kdb_backtrace_all(void);

/* Set before panic(9): the panic calls kdb_backtrace_all(). */
extern bool panic_backtrace_all;

#endif /* !_KERN_PANIC_EXIT_TREE_H_ */
