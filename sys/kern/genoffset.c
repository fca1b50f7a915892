/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The members of struct thread that inlines of <sys/systm.h> and <sys/kpilite.h> use before the
 * structure is declared.  Compiled, never linked: tools/genoffset reads the arrays' sizes.
 */

#include <sys/param.h>
#include <sys/proc.h>

#define	MEMBER(structure, member, type, size)				\
	_Static_assert(sizeof(((struct structure *)0)->member) == (size), #member);	\
	char member##__##structure##__##type##__##size[__offsetof(struct structure, member) + 1]

MEMBER(thread, td_owepreempt, u_char, 1);
MEMBER(thread, td_pinned, int, 4);
MEMBER(thread, td_critnest, u_int, 4);
