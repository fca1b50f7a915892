/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Exceptions and interrupts, from the descriptor table to C and back.
 *
 * Every vector has a stub of 16 bytes that makes the stack look alike, whether the processor
 * pushed an error code or not, leaves its number in the slot of tf_flags and joins alltraps,
 * which completes a struct trapframe and calls intr_dispatch(frame, vector).  There is no user
 * mode, so %gs is the kernel's on every entry, NMI and double fault included.
 *
 * doreti, with %rsp at a trapframe, returns to what was interrupted (but see cpu_idle_wait); a
 * handler with its own IDT entry (lapic_ipi_alloc()) builds its frame with INTR_HANDLER and jumps
 * there.
 */
#include <machine/asmacros.h>
#include <machine/psl.h>

#include <amd64/amd64/asm_offsets_tree.h>

	.text

	.globl	idt_stubs
	.p2align 4, 0x90
	.type	idt_stubs,@function
idt_stubs:
	.set	.Lvec, 0
	.rept	256
	.p2align 4, 0x90
	/* The vectors that push an error code themselves (SDM 3A, table 6-1). */
	.if	(.Lvec == 8) || (.Lvec >= 10 && .Lvec <= 14) || (.Lvec == 17) || (.Lvec == 21)
	.else
	pushq	$0
	.endif
	pushq	$.Lvec
	jmp	alltraps
	.set	.Lvec, .Lvec + 1
	.endr
	.size	idt_stubs, . - idt_stubs

	.p2align 4, 0x90
	.globl	alltraps
	.type	alltraps,@function
alltraps:
	subq	$TF_FLAGS, %rsp
	movq	%rdi, TF_RDI(%rsp)
	movq	%rsi, TF_RSI(%rsp)
	movq	%rdx, TF_RDX(%rsp)
	movq	%rcx, TF_RCX(%rsp)
	movq	%r8, TF_R8(%rsp)
	movq	%r9, TF_R9(%rsp)
	movq	%rax, TF_RAX(%rsp)
	movq	%rbx, TF_RBX(%rsp)
	movq	%rbp, TF_RBP(%rsp)
	movq	%r10, TF_R10(%rsp)
	movq	%r11, TF_R11(%rsp)
	movq	%r12, TF_R12(%rsp)
	movq	%r13, TF_R13(%rsp)
	movq	%r14, TF_R14(%rsp)
	movq	%r15, TF_R15(%rsp)
	movl	TF_FLAGS(%rsp), %esi	/* the vector */
	movq	$0, TF_FLAGS(%rsp)
	movq	$0, TF_TRAPNO(%rsp)
	movq	$0, TF_ADDR(%rsp)
	cld
	movq	%rsp, %rdi
	movq	%rsp, %rbp		/* how stack_machdep.c finds the frame */
	call	intr_dispatch
	.size	alltraps, . - alltraps
	/* FALLTHROUGH */

	.globl	doreti
	.type	doreti,@function
doreti:
	cmpq	$cpu_idle_hlt, TF_RIP(%rsp)
	jne	1f
	incq	TF_RIP(%rsp)		/* over the hlt */
1:	movq	TF_RDI(%rsp), %rdi
	movq	TF_RSI(%rsp), %rsi
	movq	TF_RDX(%rsp), %rdx
	movq	TF_RCX(%rsp), %rcx
	movq	TF_R8(%rsp), %r8
	movq	TF_R9(%rsp), %r9
	movq	TF_RAX(%rsp), %rax
	movq	TF_RBX(%rsp), %rbx
	movq	TF_RBP(%rsp), %rbp
	movq	TF_R10(%rsp), %r10
	movq	TF_R11(%rsp), %r11
	movq	TF_R12(%rsp), %r12
	movq	TF_R13(%rsp), %r13
	movq	TF_R14(%rsp), %r14
	movq	TF_R15(%rsp), %r15
	addq	$TF_RIP, %rsp
	.globl	doreti_iret
doreti_iret:
	iretq
	.size	doreti, . - doreti

/*
 * void cpu_idle_wait(void): sleep until the next interrupt.  Called with interrupts off, returns with
 * interrupts on.
 *
 * sti takes effect only after the hlt behind it has begun (SDM 2B, STI), so that an interrupt ends the
 * sleep whenever it comes.  If the guest exits to its hypervisor between the two, it may still come
 * before the hlt, if the hypervisor's own processor is emulated and loses the interrupt shadow:
 * doreti detects that it returns to the hlt and skips it.
 */
ENTRY(cpu_idle_wait)
	sti
	.globl	cpu_idle_hlt
cpu_idle_hlt:
	hlt
	ret
END(cpu_idle_wait)

/*
 * INTR_HANDLER of machine/asmacros.h calls this when it interrupted user mode, which there is not;
 * the name must exist for the modules that use the macro.
 */
ENTRY(handle_ibrs_entry)
	ret
END(handle_ibrs_entry)
