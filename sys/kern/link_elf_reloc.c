/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Relocation of amd64 objects (System V ABI, AMD64 supplement, 4.4.1), for link_elf_obj.c.
 *
 * S is the symbol's value, A the addend, P the place.  Kernel code is compiled with
 * -mcmodel=kernel and not position independent, so only a handful of types turn up; any other is
 * refused by its number.
 *
 * There is no global offset table.  Code that loads an address from it (`mov x@GOTPCREL(%rip),
 * %reg`) is turned into `lea x(%rip), %reg`, as the supplement allows (B.2).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/endian.h>
#include <sys/errno.h>

#include <kern/link_elf_obj_tree.h>

/* One relocation, and where it works. */
struct elf_place {
	struct elf_obj	*eo;
	u_int		section;	/* that it changes */
	const Elf64_Rela *rela;
	uint8_t		*where;		/* P */
};

static int
elf_reloc_overflow(const struct elf_place *pl)
{
	printf("kldload: %s: relocation of type %ju at %s+%#jx: %s is out of reach\n",
	    pl->eo->lf.filename, (uintmax_t)ELF64_R_TYPE(pl->rela->r_info),
	    elf_obj_section_name(pl->eo, pl->section), (uintmax_t)pl->rela->r_offset,
	    elf_obj_symbol_name(pl->eo, ELF64_R_SYM(pl->rela->r_info)));
	return (ENOEXEC);
}

/* Is this section's place real, `width` bytes wide? */
static int
elf_reloc_check_place(const struct elf_place *pl, u_int width)
{
	uint64_t size = pl->eo->shdr[pl->section].sh_size;

	if (pl->rela->r_offset <= size && width <= size - pl->rela->r_offset)
		return (0);
	printf("kldload: %s: a relocation at %s+%#jx lies outside of the section\n",
	    pl->eo->lf.filename, elf_obj_section_name(pl->eo, pl->section),
	    (uintmax_t)pl->rela->r_offset);
	return (ENOEXEC);
}

/* `mov x@GOTPCREL(%rip), %reg` becomes `lea x(%rip), %reg`: opcode 8b becomes 8d. */
static int
elf_reloc_relax(const struct elf_place *pl)
{
	if (pl->rela->r_offset < 2 || pl->where[-2] != 0x8b || (pl->where[-1] & 0xc7) != 0x05) {
		printf("kldload: %s: %s+%#jx needs a global offset table (was it compiled with "
		    "-fpic?)\n", pl->eo->lf.filename, elf_obj_section_name(pl->eo, pl->section),
		    (uintmax_t)pl->rela->r_offset);
		return (ENOEXEC);
	}
	pl->where[-2] = 0x8d;
	return (0);
}

static int
elf_reloc_apply(const struct elf_place *pl, uint64_t symvalue)
{
	uint64_t value = symvalue + pl->rela->r_addend;
	int error;

	switch (ELF64_R_TYPE(pl->rela->r_info)) {
	case R_X86_64_NONE:
		return (0);
	case R_X86_64_PC64:
		value -= (uintptr_t)pl->where;
		/* FALLTHROUGH */
	case R_X86_64_64:
		error = elf_reloc_check_place(pl, 8);
		if (error == 0)
			le64enc(pl->where, value);
		return (error);
	case R_X86_64_32:
		error = elf_reloc_check_place(pl, 4);
		if (error == 0 && value != (uint32_t)value)
			error = elf_reloc_overflow(pl);
		break;
	case R_X86_64_32S:
		error = elf_reloc_check_place(pl, 4);
		if (error == 0 && value != (uint64_t)(int32_t)value)
			error = elf_reloc_overflow(pl);
		break;
	case R_X86_64_GOTPCREL:
	case R_X86_64_GOTPCRELX:
	case R_X86_64_REX_GOTPCRELX:
		error = elf_reloc_check_place(pl, 4);
		if (error == 0)
			error = elf_reloc_relax(pl);
		if (error != 0)
			return (error);
		/* FALLTHROUGH */
	case R_X86_64_PC32:
	case R_X86_64_PLT32:
		value -= (uintptr_t)pl->where;
		error = elf_reloc_check_place(pl, 4);
		if (error == 0 && value != (uint64_t)(int32_t)value)
			error = elf_reloc_overflow(pl);
		break;
	default:
		printf("kldload: %s: relocation type %ju at %s+%#jx is not supported\n",
		    pl->eo->lf.filename, (uintmax_t)ELF64_R_TYPE(pl->rela->r_info),
		    elf_obj_section_name(pl->eo, pl->section), (uintmax_t)pl->rela->r_offset);
		return (ENOEXEC);
	}
	if (error == 0)
		le32enc(pl->where, value);
	return (error);
}

/* Symbols that the linker itself makes: the bounds of the file's own sets, and the file. */
static bool
elf_reloc_special(struct elf_obj *eo, const char *name, uint64_t *value)
{
	void **start, **stop;

	if (strncmp(name, "__start_set_", 12) == 0) {
		/* A set that the file has no member of is empty here, whatever other files have. */
		*value = link_elf_obj_lookup_set(&eo->lf, name + 12, &start, &stop) ?
		    (uintptr_t)start : 0;
		return (true);
	}
	if (strncmp(name, "__stop_set_", 11) == 0) {
		*value = link_elf_obj_lookup_set(&eo->lf, name + 11, &start, &stop) ?
		    (uintptr_t)stop : 0;
		return (true);
	}
	if (strcmp(name, "__this_linker_file") == 0) {
		*value = (uintptr_t)&eo->lf;
		return (true);
	}
	return (false);
}

int
elf_obj_resolve_symbols(struct elf_obj *eo)
{
	Elf64_Sym *sym;
	uintptr_t address;
	const char *name;
	int result = 0;

	for (u_int i = 1; i < eo->nsyms; i++) {
		sym = &eo->symtab[i];
		name = eo->strtab + sym->st_name;
		if (sym->st_shndx != SHN_UNDEF || elf_reloc_special(eo, name, &sym->st_value))
			continue;
		if (linker_lookup_global(&eo->lf, name, &address) == 0)
			sym->st_value = address;
		else if (ELF64_ST_BIND(sym->st_info) == STB_WEAK)
			sym->st_value = 0;
		else {
			/* Go on, to name them all. */
			printf("kldload: %s: symbol %s undefined\n", eo->lf.filename, name);
			result = ENOEXEC;
		}
	}
	return (result);
}

static int
elf_reloc_one(struct elf_place *pl, bool own)
{
	struct elf_obj *eo = pl->eo;
	u_int symidx = ELF64_R_SYM(pl->rela->r_info);
	const Elf64_Sym *sym;

	if (symidx >= eo->nsyms) {
		printf("kldload: %s: a relocation in %s names symbol %u of %u\n", eo->lf.filename,
		    elf_obj_section_name(eo, pl->section), symidx, eo->nsyms);
		return (ENOEXEC);
	}
	pl->where = (uint8_t *)eo->secaddr[pl->section] + pl->rela->r_offset;
	/* Symbol 0 is none at all: the value is the addend. */
	if (symidx == 0)
		return (own ? elf_reloc_apply(pl, 0) : 0);
	sym = &eo->symtab[symidx];
	if (own != (sym->st_shndx != SHN_UNDEF))
		return (0);
	if (sym->st_shndx < eo->nsections && sym->st_shndx != SHN_UNDEF &&
	    (eo->shdr[sym->st_shndx].sh_flags & SHF_ALLOC) == 0) {
		printf("kldload: %s: %s refers to %s, which is not loaded\n", eo->lf.filename,
		    elf_obj_section_name(eo, pl->section), elf_obj_symbol_name(eo, symidx));
		return (ENOEXEC);
	}
	return (elf_reloc_apply(pl, sym->st_value));
}

static int
elf_reloc_section(struct elf_obj *eo, u_int relsec, bool own)
{
	const Elf64_Shdr *sh = &eo->shdr[relsec];
	struct elf_place pl = { .eo = eo, .section = sh->sh_info };
	const Elf64_Rela *rela;
	int error;

	rela = (const Elf64_Rela *)(eo->image + sh->sh_offset);
	for (uint64_t i = 0; i < sh->sh_size / sizeof(*rela); i++) {
		pl.rela = &rela[i];
		error = elf_reloc_one(&pl, own);
		if (error != 0)
			return (error);
	}
	return (0);
}

int
elf_obj_relocate(struct elf_obj *eo, bool own)
{
	int error;

	for (u_int i = 1; i < eo->nsections; i++) {
		if (eo->shdr[i].sh_type != SHT_RELA)
			continue;
		/* Debugging information isn't loaded, so it isn't relocated. */
		if (eo->secaddr[eo->shdr[i].sh_info] == 0)
			continue;
		error = elf_reloc_section(eo, i, own);
		if (error != 0)
			return (error);
	}
	return (0);
}
