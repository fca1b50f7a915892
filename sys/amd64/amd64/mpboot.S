/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The start of an application processor, and of any when the machine wakes up: copied to a page
 * below 1 MB, entered in real mode at CS:IP = page:0, it climbs to long mode and jumps to
 * init_secondary_entry().
 *
 * mp_machdep.c fills in the words at mptramp_pagetables, mptramp_stack and mptramp_arg in the copy,
 * and those of mptramp_restore: bytes, where to, where from; they are copied on the way.  The page
 * tables at mptramp_pagetables map this page at its physical address.
 */
#include <machine/asmacros.h>
#include <machine/specialreg.h>

#include <amd64/amd64/asm_offsets_tree.h>

#define	OFF(sym)	((sym) - mptramp_start)

	.section .rodata
	.p2align 4
	.globl	mptramp_start, mptramp_end, mptramp_pagetables, mptramp_stack, mptramp_arg
	.globl	mptramp_restore
	.code16
mptramp_start:
	cli
	cld
	movw	%cs, %ax
	movw	%ax, %ds
	movzwl	%ax, %ebx
	shll	$4, %ebx		/* %ebx: physical address of this page */

	leal	OFF(ap_gdt)(%ebx), %eax
	movl	%eax, OFF(ap_gdt_ptr) + 2
	leal	OFF(ap_protected)(%ebx), %eax
	movl	%eax, OFF(ap_jump32)
	leal	OFF(ap_long)(%ebx), %eax
	movl	%eax, OFF(ap_jump64)
	lgdtl	OFF(ap_gdt_ptr)
	movl	%cr0, %eax
	orl	$CR0_PE, %eax
	movl	%eax, %cr0
	ljmpl	*OFF(ap_jump32)

	.code32
ap_protected:
	movl	$0x18, %eax
	movl	%eax, %ds
	movl	%eax, %es
	movl	%eax, %ss
	movl	%cr4, %eax
	orl	$CR4_PAE, %eax
	movl	%eax, %cr4
	movl	OFF(mptramp_pagetables)(%ebx), %eax
	movl	%eax, %cr3
	movl	$MSR_EFER, %ecx
	rdmsr
	orl	$(EFER_LME | EFER_NXE), %eax
	wrmsr
	movl	%cr0, %eax
	orl	$(CR0_PG | CR0_WP), %eax
	movl	%eax, %cr0
	ljmpl	*OFF(ap_jump64)(%ebx)

	.code64
ap_long:
	movl	$0x18, %eax
	movl	%eax, %ss
	movq	OFF(mptramp_stack)(%rbx), %rsp
	movq	OFF(mptramp_restore)(%rbx), %rcx
	movq	OFF(mptramp_restore) + 8(%rbx), %rdi
	movq	OFF(mptramp_restore) + 16(%rbx), %rsi
	rep movsb
	movq	OFF(mptramp_arg)(%rbx), %rdi
	xorl	%ebp, %ebp
	movabsq	$init_secondary_entry, %rax
	pushq	$0
	jmp	*%rax

	.p2align 3
ap_gdt:
	.quad	0
	.quad	0x00cf9a000000ffff	/* 0x08: 32-bit code */
	.quad	0x00209a0000000000	/* 0x10: 64-bit code */
	.quad	0x00cf92000000ffff	/* 0x18: data */
ap_gdt_end:
ap_gdt_ptr:
	.word	ap_gdt_end - ap_gdt - 1
	.long	0
	.p2align 2
ap_jump32:
	.long	0
	.word	0x08
	.p2align 2
ap_jump64:
	.long	0
	.word	0x10
	.p2align 3
mptramp_pagetables:
	.quad	0
mptramp_stack:
	.quad	0
mptramp_arg:
	.quad	0
mptramp_restore:
	.quad	0, 0, 0
mptramp_end:
