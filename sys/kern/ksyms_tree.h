/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The kernel's own symbol table, which the build appends to the kernel (tools/ksyms).
 *
 * No lock is needed and none is taken: the table is read-only memory.  Usable from the first
 * instruction on, in any context.
 *
 * Not FreeBSD's: FreeBSD's loader brings the kernel's symbol table.
 */

#ifndef _KERN_KSYMS_TREE_H_
#define	_KERN_KSYMS_TREE_H_

#include <sys/types.h>
#include <sys/stddef.h>

/*
 * Find the global symbol of this name and store its address in *value.
 * ENOENT: the kernel has no such global symbol.
 */
int	ksyms_lookup(const char *name, uintptr_t *value);

/*
 * Find the symbol, global or local, that addr is in or behind: its name, valid for ever, and the
 * distance. ENOENT: addr is not in the kernel image, or the image has no table.
 */
int	ksyms_search(uintptr_t addr, const char **name, ptrdiff_t *off);

#endif /* !_KERN_KSYMS_TREE_H_ */
