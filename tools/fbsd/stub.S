/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */
/*
 * The last step of loader(8): enter a FreeBSD/amd64 kernel.
 *
 * boot.py has laid out everything in memory beforehand: kernel, symbols, root image, environment and
 * metadata.  This adds the memory map, which is known only at run time.  QEMU passes it in Xen's PVH
 * format (xen/hvm/start_info.h), GRUB in that of Multiboot2, whose entries are the same; it is copied
 * to the end of the metadata in the BIOS's format (MODINFOMD_SMAP).
 *
 * This page, the page tables and the hand-off block are in the second megabyte, below the kernel:
 * FreeBSD uses them as free memory once it has its own page tables.
 */

/* The hand-off block that boot.py writes. */
#define	HANDOFF		0x1ff000
#define	HO_MODULEP	4		/* btext's first argument, 32 bits */
#define	HO_KERNEND	8		/* its second */
#define	HO_SMAP		12		/* where the size of the memory map belongs */
#define	HO_ENTRY	16		/* btext, 64 bits */

/* struct hvm_start_info, hvm_memmap_table_entry and bios_smap */
#define	SI_MEMMAP	40
#define	SI_ENTRIES	48
#define	SMAP_SIZE	20

/* Multiboot2: header, magic number, and the tags with the memory map. */
#define	MB2_HEADER	0xe85250d6
#define	MB2_MAGIC	0x36d76289
#define	MB2_TAGS	8		/* from the beginning */
#define	MB2_MMAP	6		/* type of a tag */
#define	MB2_MMAP_HEAD	16		/* of it, before the entries */
#define	MMAP_ENTRY	24		/* in both forms */

#define	PG_V_RW		0x003
#define	PG_V_RW_PS	0x083
#define	CR4_PAE		0x20
#define	CR0_PG_PE	0x80000001
#define	MSR_EFER	0xc0000080
#define	EFER_LME	0x100

	.text
	.code32
	.globl	_start
_start:
	cli
	cld
	movl	HANDOFF + HO_SMAP, %edi
	cmpl	$MB2_MAGIC, %eax
	je	multiboot2
	movl	SI_MEMMAP(%ebx), %esi
	movl	SI_ENTRIES(%ebx), %edx
map:	imull	$SMAP_SIZE, %edx, %eax
	stosl
1:	movl	$(SMAP_SIZE / 4), %ecx
	rep movsl
	addl	$4, %esi		/* PVH's entries end in a reserved word */
	decl	%edx
	jnz	1b

	movl	%cr4, %eax
	orl	$CR4_PAE, %eax
	movl	%eax, %cr4
	movl	$pml4, %eax
	movl	%eax, %cr3
	movl	$MSR_EFER, %ecx
	rdmsr
	orl	$EFER_LME, %eax
	wrmsr
	movl	%cr0, %eax
	orl	$CR0_PG_PE, %eax
	movl	%eax, %cr0
	lgdt	gdt_pointer
	ljmp	$8, $long_mode

	/* GRUB always gives a memory map. */
multiboot2:
	leal	MB2_TAGS(%ebx), %esi
2:	cmpl	$MB2_MMAP, (%esi)
	je	3f
	movl	4(%esi), %eax
	leal	7(%esi, %eax), %esi
	andl	$~7, %esi
	jmp	2b
3:	movl	4(%esi), %eax
	subl	$MB2_MMAP_HEAD, %eax
	xorl	%edx, %edx
	movl	$MMAP_ENTRY, %ecx
	divl	%ecx
	movl	%eax, %edx
	addl	$MB2_MMAP_HEAD, %esi
	jmp	map

	.balign	8
header:
	.long	MB2_HEADER, 0, header_end - header, -(MB2_HEADER + header_end - header)
	.short	0, 0			/* no more tags */
	.long	8
header_end:

	.code64
long_mode:
	movl	$16, %eax
	movl	%eax, %ds
	movl	%eax, %es
	movl	%eax, %ss
	xorl	%eax, %eax
	movl	%eax, %fs
	movl	%eax, %gs
	/* btext finds its arguments above the word that a call would have pushed. */
	movl	$HANDOFF, %esp
	movq	HANDOFF + HO_ENTRY, %rax
	jmp	*%rax

	.data
	.balign	8
gdt:
	.quad	0
	.quad	0x00af9a000000ffff	/* 64-bit code */
	.quad	0x00cf92000000ffff	/* data */
gdt_pointer:
	.word	. - gdt - 1
	.long	gdt

/* The first GB, seen at every GB: at KERNBASE, and where this code runs. */
	.balign	4096
pml4:
	.rept	512
	.quad	pdpt + PG_V_RW
	.endr
pdpt:
	.rept	512
	.quad	pd + PG_V_RW
	.endr
pd:
	.set	address, 0
	.rept	512
	.quad	address + PG_V_RW_PS
	.set	address, address + 0x200000
	.endr
