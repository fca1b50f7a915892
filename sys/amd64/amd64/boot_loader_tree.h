/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The data from a boot loader, in one format for all kinds of loaders.
 *
 * Not FreeBSD's: FreeBSD is booted by its own loader; this kernel by Multiboot, PVH and QEMU.
 */

#ifndef _AMD64_BOOT_LOADER_TREE_H_
#define	_AMD64_BOOT_LOADER_TREE_H_

#define	BOOT_MAX_MODULES	4
#define	BOOT_MAX_MEMMAP		64
#define	BOOT_MAX_CMDLINE	8192

#define	BOOT_MEMMAP_RAM		1

struct boot_module {
	uint64_t	paddr;
	uint64_t	size;
};

/* An entry of the memory map, as it is in both hvm_start_info's list and Multiboot2's tag. */
struct boot_memmap {
	uint64_t	addr;
	uint64_t	size;
	uint32_t	type;		/* ACPI's: BOOT_MEMMAP_RAM */
	uint32_t	reserved;
};

struct boot_loader {
	bool		bl_valid;
	uint32_t	bl_magic;	/* that the loader showed */
	u_int		bl_nmodules;
	struct boot_module bl_modules[BOOT_MAX_MODULES];
	u_int		bl_nmemmap;
	struct boot_memmap bl_memmap[BOOT_MAX_MEMMAP];
	char		bl_cmdline[BOOT_MAX_CMDLINE];
};

/* Copy the boot information of Multiboot2; magic is the loader's value of %eax. */
void	multiboot2_save(const void *info, uint32_t magic, struct boot_loader *bl);

#endif /* !_AMD64_BOOT_LOADER_TREE_H_ */
