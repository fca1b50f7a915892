/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Console input for the command interpreter.
 *
 * Not FreeBSD's: input goes to a tty there.
 */

#ifndef _KERN_CONS_INPUT_TREE_H_
#define	_KERN_CONS_INPUT_TREE_H_

/* Sleep until a character arrives at the console, and return it (0 to 255). */
int	cons_getc_wait(void);

/*
 * For the driver: characters are in the device or its queue; wakes cons_getc_wait().  May not
 * sleep.
 */
void	cons_input_ready(void);

#endif /* !_KERN_CONS_INPUT_TREE_H_ */
