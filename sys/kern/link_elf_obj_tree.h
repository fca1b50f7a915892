/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A relocatable ELF file that is being linked, or was: link_elf_obj.c and link_elf_reloc.c.
 *
 * Not FreeBSD's: FreeBSD has this structure within link_elf_obj.c, which is two files here.
 */

#ifndef _KERN_LINK_ELF_OBJ_TREE_H_
#define	_KERN_LINK_ELF_OBJ_TREE_H_

#include <kern/linker_tree.h>

struct elf_obj {
	struct linker_file	lf;		/* first: a linker_file_t is cast to this */

	/* The file as read; freed by link_elf_obj_resolve(). */
	uint8_t			*image;
	size_t			image_size;
	const Elf64_Shdr	*shdr;		/* within image */
	const char		*shstrtab;	/* within image, ends in NUL */
	size_t			shstrsize;

	/* By section number.  The address is 0 for a section that takes no memory. */
	u_int			nsections;
	uintptr_t		*secaddr;

	/* Copies that stay.  The value of a symbol in a placed section is its address. */
	Elf64_Sym		*symtab;
	u_int			nsyms;
	char			*strtab;	/* ends in NUL */
	size_t			strsize;
	uint32_t		*hash;		/* nsyms heads, then nsyms links; 0 ends a chain */

	/* Sections set_*, their name without "set_". */
	struct elf_set {
		char		*name;
		uintptr_t	start;
		uintptr_t	stop;
	}			*sets;
	u_int			nsets;
};

/* The name of section `i`; never NULL. */
const char *elf_obj_section_name(const struct elf_obj *eo, u_int i);

/* The name of symbol `i`, for a message; never NULL. */
const char *elf_obj_symbol_name(const struct elf_obj *eo, u_int i);

/*
 * Give every undefined symbol its value, from the kernel and the loaded files.  Returns 0, or
 * ENOEXEC after a message for each that is not defined.
 */
int	elf_obj_resolve_symbols(struct elf_obj *eo);

/*
 * Apply all relocations whose symbol the file defines itself (`own`), or all others.  Returns 0
 * or ENOEXEC after a message.
 */
int	elf_obj_relocate(struct elf_obj *eo, bool own);

#endif /* !_KERN_LINK_ELF_OBJ_TREE_H_ */
