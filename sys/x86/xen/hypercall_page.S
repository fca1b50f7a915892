/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The page that Xen fills with its entries: the instructions that call it, 32 bytes a hypercall.
 */
#include <machine/asmacros.h>

	.text
	.p2align 12, 0x90
	.globl	xen_hypercall_entries
	.type	xen_hypercall_entries,@function
xen_hypercall_entries:
	.space	4096, 0xcc
	.size	xen_hypercall_entries, 4096
