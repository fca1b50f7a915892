/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Memory primitives that the compiler and the kernel call by name.
 *
 * String instructions: on every processor of the last decade, and under emulation, rep movs and
 * rep stos beat a loop in C, and this kernel has no vector registers to do better with.
 */
#include <machine/asmacros.h>
#include <machine/param.h>

	.text

/* void *memcpy(void *to, const void *from, size_t len) */
ENTRY(memcpy)
	movq	%rdi, %rax
	movq	%rdx, %rcx
	shrq	$3, %rcx
	rep
	movsq
	movl	%edx, %ecx
	andl	$7, %ecx
	rep
	movsb
	ret
END(memcpy)

/* void *memmove(void *to, const void *from, size_t len) */
ENTRY(memmove)
	movq	%rdi, %rax
	movq	%rdi, %rcx
	subq	%rsi, %rcx
	cmpq	%rdx, %rcx		/* unsigned: only from <= to < from + len overlaps badly */
	jb	1f
	movq	%rdx, %rcx
	shrq	$3, %rcx
	rep
	movsq
	movl	%edx, %ecx
	andl	$7, %ecx
	rep
	movsb
	ret
1:	std				/* from the end: the odd bytes, then whole words */
	leaq	-1(%rdi,%rdx), %rdi
	leaq	-1(%rsi,%rdx), %rsi
	movl	%edx, %ecx
	andl	$7, %ecx
	rep
	movsb
	movq	%rdx, %rcx
	shrq	$3, %rcx
	subq	$7, %rdi
	subq	$7, %rsi
	rep
	movsq
	cld
	ret
END(memmove)

/* void *memset(void *to, int c, size_t len) */
ENTRY(memset)
	movq	%rdi, %r8
	movzbl	%sil, %eax
	movabsq	$0x0101010101010101, %r9
	imulq	%r9, %rax
	movq	%rdx, %rcx
	shrq	$3, %rcx
	rep
	stosq
	movl	%edx, %ecx
	andl	$7, %ecx
	rep
	stosb
	movq	%r8, %rax
	ret
END(memset)

/* int memcmp(const void *a, const void *b, size_t len) */
ENTRY(memcmp)
	xorl	%eax, %eax
	movq	%rdx, %rcx
	testq	%rcx, %rcx
	jz	1f
	repe
	cmpsb
	movzbl	-1(%rdi), %eax
	movzbl	-1(%rsi), %edx
	subl	%edx, %eax
1:	ret
END(memcmp)

/* The names before the optimised versions are chosen: here the same functions. */
	.globl	memcpy_early, memmove_early, memset_early, memcpy_std, memmove_std, memset_std
	.set	memcpy_early, memcpy
	.set	memmove_early, memmove
	.set	memset_early, memset
	.set	memcpy_std, memcpy
	.set	memmove_std, memmove
	.set	memset_std, memset

/* The functions of these names, for callers that take their address; systm.h has them as macros. */
ENTRY(bcopy)
	xchgq	%rsi, %rdi
	jmp	memmove
END(bcopy)

ENTRY(bzero)
	movq	%rsi, %rdx
	xorl	%esi, %esi
	jmp	memset
END(bzero)

	.globl	bcmp
	.set	bcmp, memcmp

/* void pagezero(void *page) */
ENTRY(pagezero)
	movl	$PAGE_SIZE / 8, %ecx
	xorl	%eax, %eax
	rep
	stosq
	ret
END(pagezero)

/* void pagecopy(void *from, void *to) */
ENTRY(pagecopy)
	xchgq	%rsi, %rdi
	movl	$PAGE_SIZE / 8, %ecx
	rep
	movsq
	ret
END(pagecopy)

/* uint64_t rdtsc_ordered(void): not before earlier loads are done (SDM 3A, 18.17). */
ENTRY(rdtsc_ordered)
	lfence
	rdtsc
	shlq	$32, %rdx
	orq	%rdx, %rax
	ret
END(rdtsc_ordered)

/* void lgdt(struct region_descriptor *rdp): load it and the kernel's segments. */
ENTRY(lgdt)
	lgdt	(%rdi)
	movl	$0x28, %eax
	movl	%eax, %ds
	movl	%eax, %es
	movl	%eax, %ss
	xorl	%eax, %eax
	movl	%eax, %fs
	movl	%eax, %gs
	popq	%rax			/* far return to the caller in the new code segment */
	pushq	$0x20
	pushq	%rax
	lretq
END(lgdt)
