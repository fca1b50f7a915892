/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The kernel environment as kenv(1) lists it (kern_environment.c).
 *
 * Not FreeBSD's: kenv(1) reads it there by kenv(2).
 */
#ifndef _KERN_KENV_TREE_H_
#define	_KERN_KENV_TREE_H_

#include <sys/types.h>
#include <sys/kenv.h>

#define	KENV_MAXVALUE	1024		/* a script may be a value, so more than KENV_MVALLEN */
#define	KENV_MAXENTRY	(KENV_MNAMELEN + 1 + KENV_MAXVALUE + 1)	/* NAME=value, with its NUL */

/*
 * The entry that follows `after' in alphabetical order ("": the first), copied to entry, which may
 * be the same memory.  Returns false at the end.
 */
bool	kenv_next(const char *after, char entry[KENV_MAXENTRY]);

#endif /* !_KERN_KENV_TREE_H_ */
