/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The data from the boot loader, and the memory layout that follows from them.
 *
 * Not FreeBSD's: FreeBSD's loader leaves metadata, <sys/linker.h>'s MODINFO, of which there is
 * none here.
 */

#ifndef _AMD64_BOOT_TREE_H_
#define	_AMD64_BOOT_TREE_H_

/*
 * The boot archive: the first module that the loader passed (QEMU -initrd, xl ramdisk=, GRUB
 * module2), readable
 * at *data for *size bytes for as long as the kernel runs.  Without a module *data is NULL and
 * *size 0.
 */
void	boot_archive(const void **data, size_t *size);

/* Address space in the top 2 GB above the kernel, for module code (-mcmodel=kernel). */
extern vm_offset_t ktext_avail, ktext_end;

/* Physical address of the ACPI RSDP from the loader, or 0. */
extern vm_paddr_t boot_rsdp;

/* The steps of hammer_time() that bootinfo.c does; see there. */
void	bootinfo_save(vm_paddr_t loader_data, u_int loader_magic);
void	bootinfo_kenv(void);
void	bootinfo_memory(void);

/* Take n pages off phys_avail[] for good, before there is a page allocator; zeroed, below 4 GB. */
vm_paddr_t bootinfo_steal(u_int n);

/* Load the calling processor's GDT, TSS, IDT and %gs; pc must be initialised. */
void	cpu_load_tables(struct pcpu *pc, char *ist_stacks);

/* The same on a processor that had them before it lost its registers. */
void	cpu_reload_tables(struct pcpu *pc);
#define	IST_STACK_SIZE	8192
#define	IST_STACKS	3

#endif /* !_AMD64_BOOT_TREE_H_ */
