/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The first instructions.  Two kinds of loaders come here, both in 32-bit protected mode with paging
 * off, flat segments, interrupts off, and the physical address of what they have to say in %ebx:
 *
 *	xen_start32		PVH (Xen docs/misc/pvh.pandoc; QEMU's -kernel follows it too):
 *				struct hvm_start_info
 *	multiboot2_start32	Multiboot2 (GRUB): its boot information, with a magic number in %eax
 *
 * A header of the older Multiboot would keep QEMU from the PVH entry; it does not know Multiboot2.
 *
 * We build page tables for the first 4 GB, switch to long mode and jump to the kernel's linked
 * address:
 *
 *	PML4[0]    -> first 4 GB at 0            only until pmap_bootstrap() builds the real tables
 *	PML4[496]  -> first 4 GB at the DMAP     so that PHYS_TO_DMAP() works from hammer_time() on
 *	PML4[511]  -> first 2 GB at KERNBASE     the kernel
 *
 * Nothing outside the kernel is written: what the loader has to say may lie there.
 */
#include <machine/asmacros.h>
#include <machine/specialreg.h>
#include <machine/pte.h>
#include <machine/param.h>

#include <amd64/amd64/asm_offsets_tree.h>

/* Types of Xen's ELF notes (xen/elfnote.h) */
#define	XEN_ELFNOTE_ENTRY		1
#define	XEN_ELFNOTE_VIRT_BASE		3
#define	XEN_ELFNOTE_PADDR_OFFSET	4
#define	XEN_ELFNOTE_XEN_VERSION		5
#define	XEN_ELFNOTE_GUEST_OS		6
#define	XEN_ELFNOTE_GUEST_VERSION	7
#define	XEN_ELFNOTE_LOADER		8
#define	XEN_ELFNOTE_PAE_MODE		9
#define	XEN_ELFNOTE_BSD_SYMTAB		11
#define	XEN_ELFNOTE_PHYS32_ENTRY	18

#define	PHYS(sym)	((sym) - KERNBASE_ADDR)

	/*
	 * XEN_ELFNOTE_PHYS32_ENTRY makes this a PVH image; the others let xl name the guest.  The
	 * entry is 8 bytes wide, because QEMU reads it as a native word of a 64-bit image.
	 */
	ELFNOTE(Xen, XEN_ELFNOTE_GUEST_OS, .asciz, "pv-kmod")
	ELFNOTE(Xen, XEN_ELFNOTE_GUEST_VERSION, .asciz, "15.0")
	ELFNOTE(Xen, XEN_ELFNOTE_XEN_VERSION, .asciz, "xen-3.0")
	ELFNOTE(Xen, XEN_ELFNOTE_VIRT_BASE, .quad, KERNBASE_ADDR)
	ELFNOTE(Xen, XEN_ELFNOTE_PADDR_OFFSET, .quad, KERNBASE_ADDR)
	ELFNOTE(Xen, XEN_ELFNOTE_ENTRY, .quad, xen_start32)
	ELFNOTE(Xen, XEN_ELFNOTE_LOADER, .asciz, "generic")
	ELFNOTE(Xen, XEN_ELFNOTE_PAE_MODE, .asciz, "yes")
	ELFNOTE(Xen, XEN_ELFNOTE_BSD_SYMTAB, .asciz, "no")
	ELFNOTE(Xen, XEN_ELFNOTE_PHYS32_ENTRY, .quad, PHYS(xen_start32))

/* Multiboot2, 3.1: the header, 8-byte aligned in the first 32 KB of the file (ldscript.amd64) */
#define	MULTIBOOT2_MAGIC	0xe85250d6
#define	MULTIBOOT2_I386		0
#define	MULTIBOOT2_TAG_END	0
#define	MULTIBOOT2_TAG_ENTRY	3
#define	MULTIBOOT2_TAG_ALIGN	6	/* modules begin on a page */

	.section .multiboot2, "a"
	.p2align 3
multiboot2:
	.long	MULTIBOOT2_MAGIC
	.long	MULTIBOOT2_I386
	.long	multiboot2_end - multiboot2
	.long	-(MULTIBOOT2_MAGIC + MULTIBOOT2_I386 + (multiboot2_end - multiboot2))
	.short	MULTIBOOT2_TAG_ENTRY, 0
	.long	12
	.long	PHYS(multiboot2_start32)
	.p2align 3
	.short	MULTIBOOT2_TAG_ALIGN, 0
	.long	8
	.short	MULTIBOOT2_TAG_END, 0
	.long	8
multiboot2_end:

	.section .bss
	.p2align 12
boot_pml4:
	.space	PAGE_SIZE
boot_pdpt_low:
	.space	PAGE_SIZE
boot_pdpt_high:
	.space	PAGE_SIZE
boot_pd:
	.space	4 * PAGE_SIZE
	.globl	boot_stack_top
boot_stack:
	.space	4 * PAGE_SIZE
boot_stack_top:

	.section .rodata
	.p2align 4
boot_gdt:
	.quad	0
	.quad	0
	.quad	0
	.quad	0
	.quad	0x00209a0000000000	/* KCODE_SEL: 64-bit code */
	.quad	0x00cf92000000ffff	/* KDATA_SEL */
boot_gdt_end:
boot_gdt_ptr:
	.word	boot_gdt_end - boot_gdt - 1
	.long	PHYS(boot_gdt)

	.text
	.code32
	.globl	multiboot2_start32
	.type	multiboot2_start32,@function
multiboot2_start32:
	movl	%eax, %esi
	jmp	start32

	.globl	xen_start32
	.type	xen_start32,@function
xen_start32:
	xorl	%esi, %esi

start32:
	cli
	cld
	movl	%ebx, %ebp

	/* The page directories: 2048 entries of 2 MB. */
	movl	$PHYS(boot_pd), %edi
	movl	$(X86_PG_V | X86_PG_RW | X86_PG_PS), %eax
	movl	$2048, %ecx
1:	movl	%eax, (%edi)
	addl	$NBPDR, %eax
	addl	$8, %edi
	loop	1b

	/* Four directories for the low and direct maps; the first two again at KERNBASE. */
	movl	$PHYS(boot_pdpt_low), %edi
	movl	$(PHYS(boot_pd) + X86_PG_V + X86_PG_RW), %eax
	movl	$4, %ecx
2:	movl	%eax, (%edi)
	addl	$PAGE_SIZE, %eax
	addl	$8, %edi
	loop	2b
	movl	$(PHYS(boot_pd) + X86_PG_V + X86_PG_RW), %eax
	movl	%eax, PHYS(boot_pdpt_high) + 8 * SLOT_KERNBASE
	addl	$PAGE_SIZE, %eax
	movl	%eax, PHYS(boot_pdpt_high) + 8 * SLOT_KERNBASE + 8

	movl	$(PHYS(boot_pdpt_low) + X86_PG_V + X86_PG_RW), %eax
	movl	%eax, PHYS(boot_pml4)
	movl	%eax, PHYS(boot_pml4) + 8 * SLOT_DMAP
	movl	$(PHYS(boot_pdpt_high) + X86_PG_V + X86_PG_RW), %eax
	movl	%eax, PHYS(boot_pml4) + 8 * SLOT_KERN

	movl	%cr4, %eax
	orl	$CR4_PAE, %eax
	movl	%eax, %cr4
	movl	$PHYS(boot_pml4), %eax
	movl	%eax, %cr3
	movl	$MSR_EFER, %ecx
	rdmsr
	orl	$(EFER_LME | EFER_NXE), %eax
	wrmsr
	movl	%cr0, %eax
	orl	$(CR0_PG | CR0_PE | CR0_WP), %eax
	movl	%eax, %cr0

	lgdt	PHYS(boot_gdt_ptr)
	ljmpl	$KCODE_SEL, $PHYS(long_mode)

	.code64
long_mode:
	movabsq	$1f, %rax
	jmp	*%rax
1:
	movl	$KDATA_SEL, %eax
	movl	%eax, %ds
	movl	%eax, %es
	movl	%eax, %ss
	xorl	%eax, %eax
	movl	%eax, %fs
	movl	%eax, %gs
	movq	$boot_stack_top, %rsp
	movl	%ebp, %edi		/* the loader's data; both zero-extended */
	movl	%esi, %esi		/* Multiboot2's magic number, or 0 */
	xorl	%ebp, %ebp		/* ends every backtrace */
	call	hammer_time		/* returns the top of thread0's stack */
	movq	%rax, %rsp
	xorl	%ebp, %ebp
	call	mi_startup
	ud2				/* mi_startup() does not return */
