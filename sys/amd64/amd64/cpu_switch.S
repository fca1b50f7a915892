/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Switching between threads: cpu_switch(), cpu_throw(), fork_trampoline(), savectx(), resumectx().
 *
 * Kernel threads only: there is one address space, no floating point and no user segment state,
 * so a context is the callee-saved registers, the stack pointer and the place to resume.
 */
#include <machine/asmacros.h>

#include <amd64/amd64/asm_offsets_tree.h>

	.text

	/* Load the context of the thread in %r12 and run it.  %rdx is clobbered. */
	.macro	RESUME_THREAD
	movq	TD_PCB(%r12), %rdx
	movq	%r12, %gs:PC_CURTHREAD
	movq	%rdx, %gs:PC_CURPCB
	movq	PCB_RIP(%rdx), %rax
	movq	PCB_R15(%rdx), %r15
	movq	PCB_R14(%rdx), %r14
	movq	PCB_R13(%rdx), %r13
	movq	PCB_R12(%rdx), %r12
	movq	PCB_RBX(%rdx), %rbx
	movq	PCB_RBP(%rdx), %rbp
	movq	PCB_RSP(%rdx), %rsp
	movq	%rax, (%rsp)
	ret
	.endm

	/* Wait until another processor has finished switching away from the thread in %r12. */
	.macro	WAIT_UNBLOCKED
	movq	$blocked_lock, %rcx
1:	cmpq	%rcx, TD_LOCK(%r12)
	jne	2f
	pause
	jmp	1b
2:
	.endm

/*
 * cpu_throw(struct thread *old, struct thread *new): run new; the current context is lost.
 */
ENTRY(cpu_throw)
	movq	%rsi, %r12
	WAIT_UNBLOCKED
	RESUME_THREAD
END(cpu_throw)

/*
 * cpu_switch(struct thread *old, struct thread *new, struct mtx *mtx): save old, publish it by
 * storing mtx in its td_lock, run new.
 *
 * The store of td_lock must come after old's registers are in its pcb, as from then on any
 * processor may resume old; x86 keeps stores in order, and xchg is a full barrier besides.  We
 * still stand on old's stack then, so nothing may touch the stack between the xchg and the load
 * of new's.
 */
ENTRY(cpu_switch)
	movq	TD_PCB(%rdi), %r8
	movq	(%rsp), %rax
	movq	%r15, PCB_R15(%r8)
	movq	%r14, PCB_R14(%r8)
	movq	%r13, PCB_R13(%r8)
	movq	%r12, PCB_R12(%r8)
	movq	%rbp, PCB_RBP(%r8)
	movq	%rsp, PCB_RSP(%r8)
	movq	%rbx, PCB_RBX(%r8)
	movq	%rax, PCB_RIP(%r8)
	movq	%rsi, %r12
	xchgq	%rdx, TD_LOCK(%rdi)
	WAIT_UNBLOCKED
	RESUME_THREAD
END(cpu_switch)

/*
 * A new thread starts here: fork_exit(callout = %r12, argument = %rbx, frame).
 */
ENTRY(fork_trampoline)
	xorl	%ebp, %ebp
	movq	%r12, %rdi
	movq	%rbx, %rsi
	movq	%rsp, %rdx
	call	fork_exit
	ud2				/* kernel threads end in kthread_exit() */
END(fork_trampoline)

/*
 * savectx(struct pcb *pcb): record the caller's context, as seen after the return.  Returns 0.
 */
ENTRY(savectx)
	movq	(%rsp), %rax
	movq	%r15, PCB_R15(%rdi)
	movq	%r14, PCB_R14(%rdi)
	movq	%r13, PCB_R13(%rdi)
	movq	%r12, PCB_R12(%rdi)
	movq	%rbp, PCB_RBP(%rdi)
	movq	%rsp, PCB_RSP(%rdi)
	movq	%rbx, PCB_RBX(%rdi)
	movq	%rax, PCB_RIP(%rdi)
	xorl	%eax, %eax
	ret
END(savectx)

/*
 * resumectx(struct pcb *pcb): return from savectx() once more, with 1.  Its caller must not have
 * returned.
 */
ENTRY(resumectx)
	movq	PCB_R15(%rdi), %r15
	movq	PCB_R14(%rdi), %r14
	movq	PCB_R13(%rdi), %r13
	movq	PCB_R12(%rdi), %r12
	movq	PCB_RBX(%rdi), %rbx
	movq	PCB_RBP(%rdi), %rbp
	movq	PCB_RSP(%rdi), %rsp
	movq	PCB_RIP(%rdi), %rax
	movq	%rax, (%rsp)
	movl	$1, %eax
	ret
END(resumectx)
