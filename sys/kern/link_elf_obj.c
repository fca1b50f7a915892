/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Loading relocatable ELF files, amd64 (System V ABI, AMD64 supplement; ELF gABI chapter 4).
 *
 * A .ko is what `ld -r` makes: sections that have no addresses yet.
 *
 *	check	header, section table, symbol and string tables: every offset and size is within
 *		the file, every string table ends in NUL.  Nothing later has to check again.
 *	place	each allocated section gets its aligned place in one piece of memory in the top
 *		2 GB, where -mcmodel=kernel code belongs.  Sections of one linker set are
 *		contiguous.
 *	relocate (link_elf_reloc.c), first against the file itself: now its metadata can be
 *		read, and kern_linker.c loads what it depends on.
 *	resolve	relocate against everything else, and forget the image.  The symbol table stays,
 *		for modules that need this one, and for backtraces.
 *
 * Trust.  A file may be truncated or invalid: each error is reported in one line on the console,
 * and as ENOEXEC.  A module that passes is trusted like the kernel.
 *
 * Gaps.  Per-CPU and per-VNET variables, constructors and ifuncs are refused.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/malloc.h>

#include <vm/vm.h>
#include <vm/vm_tree.h>

#include <kern/ksyms_tree.h>
#include <kern/link_elf_obj_tree.h>

MALLOC_DEFINE(M_LINKER, "linker", "Kernel linker");

/* More than any module needs: a size beyond it is a damaged file. */
#define	ELF_OBJ_MAXSIZE		(64UL << 20)
#define	ELF_OBJ_MAXSYMS		(1U << 20)
#define	ELF_OBJ_MAXSECTIONS	4096

const char *
elf_obj_section_name(const struct elf_obj *eo, u_int i)
{
	if (eo->shstrtab == NULL || eo->shdr[i].sh_name >= eo->shstrsize)
		return ("?");
	return (eo->shstrtab + eo->shdr[i].sh_name);
}

const char *
elf_obj_symbol_name(const struct elf_obj *eo, u_int i)
{
	const Elf64_Sym *sym = &eo->symtab[i];

	if (ELF64_ST_TYPE(sym->st_info) == STT_SECTION && sym->st_shndx < eo->nsections &&
	    eo->image != NULL)
		return (elf_obj_section_name(eo, sym->st_shndx));
	return (eo->strtab + sym->st_name);
}

static int
elf_obj_check_header(const struct elf_obj *eo)
{
	const Elf64_Ehdr *eh = (const Elf64_Ehdr *)eo->image;
	const char *name = eo->lf.filename;

	if (eo->image_size < sizeof(*eh) || !IS_ELF(*eh)) {
		printf("kldload: %s: not an ELF file\n", name);
		return (ENOEXEC);
	}
	if (eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_ident[EI_DATA] != ELFDATA2LSB ||
	    eh->e_machine != EM_X86_64) {
		printf("kldload: %s: built for another architecture "
		    "(ELF class %d, data %d, machine %d), not amd64\n", name,
		    eh->e_ident[EI_CLASS], eh->e_ident[EI_DATA], eh->e_machine);
		return (ENOEXEC);
	}
	if (eh->e_ident[EI_VERSION] != EV_CURRENT || eh->e_version != EV_CURRENT) {
		printf("kldload: %s: unknown ELF version\n", name);
		return (ENOEXEC);
	}
	if (eh->e_ident[EI_OSABI] != ELFOSABI_FREEBSD && eh->e_ident[EI_OSABI] != ELFOSABI_NONE) {
		printf("kldload: %s: built for another system (ELF OS ABI %d)\n", name,
		    eh->e_ident[EI_OSABI]);
		return (ENOEXEC);
	}
	if (eh->e_type != ET_REL) {
		printf("kldload: %s: ELF type %d is not a relocatable object (%d)\n", name,
		    eh->e_type, ET_REL);
		return (ENOEXEC);
	}
	return (0);
}

/* Does [offset, offset + size) lie in the file? */
static bool
elf_obj_in_image(const struct elf_obj *eo, uint64_t offset, uint64_t size)
{
	return (offset <= eo->image_size && size <= eo->image_size - offset);
}

static int
elf_obj_check_section(const struct elf_obj *eo, u_int i)
{
	const Elf64_Shdr *sh = &eo->shdr[i];

	if (sh->sh_type == SHT_NULL)
		return (0);
	if (sh->sh_type != SHT_NOBITS && !elf_obj_in_image(eo, sh->sh_offset, sh->sh_size)) {
		printf("kldload: %s: truncated: section %u ends at byte %ju of %zu\n",
		    eo->lf.filename, i, (uintmax_t)(sh->sh_offset + sh->sh_size), eo->image_size);
		return (ENOEXEC);
	}
	if ((sh->sh_addralign & (sh->sh_addralign - 1)) != 0 ||
	    ((sh->sh_flags & SHF_ALLOC) != 0 &&
	    (sh->sh_addralign > PAGE_SIZE || sh->sh_size > ELF_OBJ_MAXSIZE))) {
		printf("kldload: %s: section %u has impossible alignment %ju or size %ju\n",
		    eo->lf.filename, i, (uintmax_t)sh->sh_addralign, (uintmax_t)sh->sh_size);
		return (ENOEXEC);
	}
	return (0);
}

/* The types that an object for the kernel has sections of. */
static bool
elf_obj_knows_type(uint32_t type)
{
	switch (type) {
	case SHT_NULL:
	case SHT_PROGBITS:
	case SHT_SYMTAB:
	case SHT_STRTAB:
	case SHT_RELA:
	case SHT_NOTE:
	case SHT_NOBITS:
	case SHT_INIT_ARRAY:
	case SHT_FINI_ARRAY:
	case SHT_GROUP:
	case SHT_AMD64_UNWIND:
		return (true);
	default:
		/*
		 * What other systems and tools add for themselves, address significance and the
		 * like.
		 */
		return (type >= SHT_LOOS && type <= SHT_HIOS);
	}
}

/* No two sections share bytes: where one does, a size or an offset is wrong. */
static bool
elf_obj_overlaps(const struct elf_obj *eo, u_int i)
{
	const Elf64_Shdr *a = &eo->shdr[i], *b;

	if (a->sh_type == SHT_NOBITS || a->sh_type == SHT_NULL || a->sh_size == 0)
		return (false);
	for (u_int j = 1; j < i; j++) {
		b = &eo->shdr[j];
		if (b->sh_type != SHT_NOBITS && b->sh_type != SHT_NULL &&
		    a->sh_offset < b->sh_offset + b->sh_size &&
		    b->sh_offset < a->sh_offset + a->sh_size)
			return (true);
	}
	return (false);
}

/* A table of relocations identifies its section three times: by its type, its name and its link. */
static bool
elf_obj_is_rela(const struct elf_obj *eo, u_int i)
{
	const Elf64_Shdr *sh = &eo->shdr[i];

	return (sh->sh_type == SHT_RELA && sh->sh_entsize == sizeof(Elf64_Rela) &&
	    sh->sh_offset % sizeof(uint64_t) == 0 && sh->sh_size % sizeof(Elf64_Rela) == 0 &&
	    sh->sh_link < eo->nsections && eo->shdr[sh->sh_link].sh_type == SHT_SYMTAB &&
	    sh->sh_info > 0 && sh->sh_info < eo->nsections &&
	    strcmp(elf_obj_section_name(eo, i) + strlen(".rela"),
	    elf_obj_section_name(eo, sh->sh_info)) == 0);
}

/*
 * The section table must be consistent: a damaged file has to be detected before its code runs.
 */
static int
elf_obj_check_consistent(const struct elf_obj *eo)
{
	const Elf64_Shdr *sh;
	const char *name;

	for (u_int i = 1; i < eo->nsections; i++) {
		sh = &eo->shdr[i];
		name = elf_obj_section_name(eo, i);
		if (!elf_obj_knows_type(sh->sh_type) || sh->sh_addr != 0 ||
		    (sh->sh_type == SHT_NULL && (sh->sh_size != 0 || sh->sh_flags != 0)) ||
		    ((sh->sh_flags & SHF_ALLOC) != 0 && sh->sh_type != SHT_NOBITS &&
		    sh->sh_addralign > 1 && sh->sh_offset % sh->sh_addralign != 0) ||
		    elf_obj_overlaps(eo, i) ||
		    ((sh->sh_type == SHT_RELA || strncmp(name, ".rela", 5) == 0) &&
		    !elf_obj_is_rela(eo, i))) {
			printf("kldload: %s: section %u (%s) is damaged\n", eo->lf.filename, i,
			    name);
			return (ENOEXEC);
		}
	}
	return (0);
}

static int
elf_obj_check_sections(struct elf_obj *eo)
{
	const Elf64_Ehdr *eh = (const Elf64_Ehdr *)eo->image;
	const Elf64_Shdr *str;
	int error;

	if (eh->e_shnum == 0 || eh->e_shnum > ELF_OBJ_MAXSECTIONS ||
	    eh->e_shentsize != sizeof(Elf64_Shdr) ||
	    eh->e_shoff % sizeof(uint64_t) != 0 || eh->e_shstrndx >= eh->e_shnum) {
		printf("kldload: %s: no usable section table\n", eo->lf.filename);
		return (ENOEXEC);
	}
	if (!elf_obj_in_image(eo, eh->e_shoff, (uint64_t)eh->e_shnum * sizeof(Elf64_Shdr))) {
		printf("kldload: %s: truncated: its section table is at byte %ju of %zu\n",
		    eo->lf.filename, (uintmax_t)eh->e_shoff, eo->image_size);
		return (ENOEXEC);
	}
	eo->nsections = eh->e_shnum;
	eo->shdr = (const Elf64_Shdr *)(eo->image + eh->e_shoff);
	for (u_int i = 0; i < eo->nsections; i++) {
		error = elf_obj_check_section(eo, i);
		if (error != 0)
			return (error);
	}
	str = &eo->shdr[eh->e_shstrndx];
	if (str->sh_type != SHT_STRTAB || str->sh_size == 0 ||
	    eo->image[str->sh_offset + str->sh_size - 1] != '\0') {
		printf("kldload: %s: bad table of section names\n", eo->lf.filename);
		return (ENOEXEC);
	}
	eo->shstrtab = (const char *)eo->image + str->sh_offset;
	eo->shstrsize = str->sh_size;
	return (0);
}

/* Sections of unknown types must not be ignored. */
static int
elf_obj_check_contents(const struct elf_obj *eo)
{
	const Elf64_Shdr *sh;
	const char *name;

	for (u_int i = 1; i < eo->nsections; i++) {
		sh = &eo->shdr[i];
		name = elf_obj_section_name(eo, i);
		if (sh->sh_type == SHT_REL) {
			printf("kldload: %s: section %s: SHT_REL relocations are not of amd64\n",
			    eo->lf.filename, name);
			return (ENOEXEC);
		}
		if ((sh->sh_flags & SHF_ALLOC) == 0 || sh->sh_size == 0)
			continue;
		if (strcmp(name, "set_pcpu") == 0 || strcmp(name, "set_vnet") == 0) {
			printf("kldload: %s: has per-%s variables (section %s), which this "
			    "kernel's linker can't place\n", eo->lf.filename,
			    strcmp(name, "set_pcpu") == 0 ? "CPU" : "VNET", name);
			return (ENOEXEC);
		}
		if (sh->sh_type == SHT_INIT_ARRAY || sh->sh_type == SHT_FINI_ARRAY ||
		    strcmp(name, ".ctors") == 0 || strcmp(name, ".dtors") == 0) {
			printf("kldload: %s: has constructors (section %s), which this kernel's "
			    "linker doesn't run\n", eo->lf.filename, name);
			return (ENOEXEC);
		}
		if ((sh->sh_flags & SHF_TLS) != 0) {
			printf("kldload: %s: has thread-local variables (section %s)\n",
			    eo->lf.filename, name);
			return (ENOEXEC);
		}
	}
	return (0);
}

/* Find and copy the symbol table and its strings. */
static int
elf_obj_copy_symbols(struct elf_obj *eo)
{
	const Elf64_Shdr *sh = NULL, *str;
	u_int i;

	for (i = 1; i < eo->nsections; i++) {
		if (eo->shdr[i].sh_type != SHT_SYMTAB)
			continue;
		if (sh != NULL)
			break;
		sh = &eo->shdr[i];
	}
	if (sh == NULL || i < eo->nsections || sh->sh_entsize != sizeof(Elf64_Sym) ||
	    sh->sh_size % sizeof(Elf64_Sym) != 0 || sh->sh_size == 0 ||
	    sh->sh_size / sizeof(Elf64_Sym) > ELF_OBJ_MAXSYMS || sh->sh_link >= eo->nsections) {
		printf("kldload: %s: no usable symbol table (was it stripped?)\n",
		    eo->lf.filename);
		return (ENOEXEC);
	}
	str = &eo->shdr[sh->sh_link];
	if (str->sh_type != SHT_STRTAB || str->sh_size == 0 ||
	    eo->image[str->sh_offset + str->sh_size - 1] != '\0') {
		printf("kldload: %s: bad table of symbol names\n", eo->lf.filename);
		return (ENOEXEC);
	}
	eo->nsyms = sh->sh_size / sizeof(Elf64_Sym);
	eo->symtab = malloc(sh->sh_size, M_LINKER, M_WAITOK);
	memcpy(eo->symtab, eo->image + sh->sh_offset, sh->sh_size);
	eo->strsize = str->sh_size;
	eo->strtab = malloc(str->sh_size, M_LINKER, M_WAITOK);
	memcpy(eo->strtab, eo->image + str->sh_offset, str->sh_size);
	return (0);
}

static bool
elf_obj_is_placed(const struct elf_obj *eo, u_int i)
{
	return ((eo->shdr[i].sh_flags & SHF_ALLOC) != 0 && eo->shdr[i].sh_type != SHT_NULL &&
	    eo->shdr[i].sh_size != 0);
}

/*
 * Lay the sections out from offset 0, leaving offset + 1 in secaddr[] for now; returns the size
 * of all. All sections of one name are placed together: the pieces of a linker set must be one
 * array.
 */
static uint64_t
elf_obj_lay_out(struct elf_obj *eo)
{
	const Elf64_Shdr *sh;
	uint64_t end = 0;

	for (u_int i = 1; i < eo->nsections; i++) {
		if (!elf_obj_is_placed(eo, i) || eo->secaddr[i] != 0)
			continue;
		for (u_int j = i; j < eo->nsections; j++) {
			sh = &eo->shdr[j];
			if (!elf_obj_is_placed(eo, j) || eo->secaddr[j] != 0 || (j != i &&
			    strcmp(elf_obj_section_name(eo, i), elf_obj_section_name(eo, j)) != 0))
				continue;
			end = roundup2(end, sh->sh_addralign != 0 ? sh->sh_addralign : 1);
			eo->secaddr[j] = end + 1;
			end += sh->sh_size;
			if (end > ELF_OBJ_MAXSIZE)
				return (end);
		}
	}
	return (end);
}

static int
elf_obj_place(struct elf_obj *eo)
{
	const Elf64_Shdr *sh;
	uint64_t size;
	uintptr_t base;

	eo->secaddr = malloc(eo->nsections * sizeof(*eo->secaddr), M_LINKER, M_WAITOK | M_ZERO);
	size = elf_obj_lay_out(eo);
	if (size == 0 || size > ELF_OBJ_MAXSIZE) {
		printf("kldload: %s: nothing to load, or too much: %ju bytes\n", eo->lf.filename,
		    (uintmax_t)size);
		return (ENOEXEC);
	}
	eo->lf.size = round_page(size);
	eo->lf.address = kmem_text_alloc(eo->lf.size);
	if (eo->lf.address == NULL) {
		printf("kldload: %s: no memory for %zu bytes\n", eo->lf.filename, eo->lf.size);
		return (ENOMEM);
	}
	base = (uintptr_t)eo->lf.address;
	for (u_int i = 1; i < eo->nsections; i++) {
		if (eo->secaddr[i] == 0)
			continue;
		eo->secaddr[i] += base - 1;
		sh = &eo->shdr[i];
		if (sh->sh_type == SHT_NOBITS)
			memset((void *)eo->secaddr[i], 0, sh->sh_size);
		else
			memcpy((void *)eo->secaddr[i], eo->image + sh->sh_offset, sh->sh_size);
	}
	return (0);
}

static struct elf_set *
elf_obj_find_set(const struct elf_obj *eo, const char *name)
{
	for (u_int i = 0; i < eo->nsets; i++)
		if (strcmp(eo->sets[i].name, name) == 0)
			return (&eo->sets[i]);
	return (NULL);
}

/* Note the bounds of each section set_*. */
static int
elf_obj_note_sets(struct elf_obj *eo)
{
	const char *name;
	struct elf_set *set;

	eo->sets = malloc(eo->nsections * sizeof(*eo->sets), M_LINKER, M_WAITOK | M_ZERO);
	for (u_int i = 1; i < eo->nsections; i++) {
		name = elf_obj_section_name(eo, i);
		if (eo->secaddr[i] == 0 || strncmp(name, "set_", 4) != 0)
			continue;
		if (eo->shdr[i].sh_size % sizeof(void *) != 0 ||
		    eo->secaddr[i] % sizeof(void *) != 0) {
			printf("kldload: %s: linker set %s is not an array of pointers\n",
			    eo->lf.filename, name);
			return (ENOEXEC);
		}
		set = elf_obj_find_set(eo, name + 4);
		if (set == NULL) {
			set = &eo->sets[eo->nsets++];
			set->name = strdup(name + 4, M_LINKER);
			set->start = eo->secaddr[i];
		}
		set->stop = eo->secaddr[i] + eo->shdr[i].sh_size;
	}
	return (0);
}

/* Turn offsets in sections into addresses. */
static int
elf_obj_place_symbols(struct elf_obj *eo)
{
	Elf64_Sym *sym;

	for (u_int i = 1; i < eo->nsyms; i++) {
		sym = &eo->symtab[i];
		if (sym->st_name >= eo->strsize) {
			printf("kldload: %s: symbol %u has no valid name\n", eo->lf.filename, i);
			return (ENOEXEC);
		}
		if (ELF64_ST_TYPE(sym->st_info) == STT_GNU_IFUNC ||
		    ELF64_ST_TYPE(sym->st_info) == STT_TLS || sym->st_shndx == SHN_COMMON) {
			printf("kldload: %s: symbol %s is of a kind that this linker doesn't "
			    "know\n", eo->lf.filename, elf_obj_symbol_name(eo, i));
			return (ENOEXEC);
		}
		if (sym->st_shndx == SHN_UNDEF || sym->st_shndx == SHN_ABS)
			continue;
		if (sym->st_shndx >= eo->nsections ||
		    (eo->secaddr[sym->st_shndx] != 0 &&
		    sym->st_value > eo->shdr[sym->st_shndx].sh_size)) {
			printf("kldload: %s: symbol %s lies outside of its section\n",
			    eo->lf.filename, eo->strtab + sym->st_name);
			return (ENOEXEC);
		}
		/* An empty section has no place; references to it get any address in the file. */
		if (eo->secaddr[sym->st_shndx] != 0)
			sym->st_value += eo->secaddr[sym->st_shndx];
		else if ((eo->shdr[sym->st_shndx].sh_flags & SHF_ALLOC) != 0)
			sym->st_value = (uintptr_t)eo->lf.address;
	}
	return (0);
}

static uint32_t
elf_obj_hash(const char *name)
{
	uint32_t h = 5381;

	while (*name != '\0')
		h = h * 33 + (unsigned char)*name++;
	return (h);
}

static bool
elf_obj_is_exported(const struct elf_obj *eo, u_int i)
{
	const Elf64_Sym *sym = &eo->symtab[i];

	return (sym->st_shndx != SHN_UNDEF && ELF64_ST_BIND(sym->st_info) != STB_LOCAL &&
	    ELF64_ST_VISIBILITY(sym->st_other) != STV_HIDDEN &&
	    ELF64_ST_VISIBILITY(sym->st_other) != STV_INTERNAL);
}

static void
elf_obj_hash_symbols(struct elf_obj *eo)
{
	uint32_t *head, *next;

	eo->hash = malloc(2 * eo->nsyms * sizeof(*eo->hash), M_LINKER, M_WAITOK | M_ZERO);
	next = eo->hash + eo->nsyms;
	for (u_int i = 1; i < eo->nsyms; i++) {
		if (!elf_obj_is_exported(eo, i))
			continue;
		head = &eo->hash[elf_obj_hash(eo->strtab + eo->symtab[i].st_name) % eo->nsyms];
		next[i] = *head;
		*head = i;
	}
}

static int
elf_obj_link_self(struct elf_obj *eo)
{
	int error;

	error = elf_obj_check_header(eo);
	if (error == 0)
		error = elf_obj_check_sections(eo);
	if (error == 0)
		error = elf_obj_check_consistent(eo);
	if (error == 0)
		error = elf_obj_check_contents(eo);
	if (error == 0)
		error = elf_obj_copy_symbols(eo);
	if (error == 0)
		error = elf_obj_place(eo);
	if (error == 0)
		error = elf_obj_note_sets(eo);
	if (error == 0)
		error = elf_obj_place_symbols(eo);
	if (error != 0)
		return (error);
	elf_obj_hash_symbols(eo);
	return (elf_obj_relocate(eo, true));
}

int
link_elf_obj_load(const char *name, const char *path, void *image, size_t size,
    linker_file_t *lfp)
{
	struct elf_obj *eo;
	int error;

	eo = malloc(sizeof(*eo), M_LINKER, M_WAITOK | M_ZERO);
	eo->image = image;
	eo->image_size = size;
	eo->lf.filename = strdup(name, M_LINKER);
	eo->lf.pathname = strdup(path, M_LINKER);
	TAILQ_INIT(&eo->lf.modules);
	STAILQ_INIT(&eo->lf.common);
	error = elf_obj_link_self(eo);
	if (error != 0) {
		link_elf_obj_free(&eo->lf);
		return (error);
	}
	*lfp = &eo->lf;
	return (0);
}

int
link_elf_obj_resolve(linker_file_t lf)
{
	struct elf_obj *eo = (struct elf_obj *)lf;
	int error;

	error = elf_obj_resolve_symbols(eo);
	if (error == 0)
		error = elf_obj_relocate(eo, false);
	free(eo->image, M_LINKER);
	eo->image = NULL;
	eo->shdr = NULL;
	eo->shstrtab = NULL;
	return (error);
}

void
link_elf_obj_free(linker_file_t lf)
{
	struct elf_obj *eo = (struct elf_obj *)lf;

	if (lf->address != NULL)
		kmem_text_free(lf->address, lf->size);
	for (u_int i = 0; i < eo->nsets; i++)
		free(eo->sets[i].name, M_LINKER);
	free(eo->sets, M_LINKER);
	free(eo->hash, M_LINKER);
	free(eo->secaddr, M_LINKER);
	free(eo->strtab, M_LINKER);
	free(eo->symtab, M_LINKER);
	free(eo->image, M_LINKER);
	free(lf->deps, M_LINKER);
	free(lf->filename, M_LINKER);
	free(lf->pathname, M_LINKER);
	free(eo, M_LINKER);
}

int
link_elf_obj_lookup_symbol(linker_file_t lf, const char *name, uintptr_t *value)
{
	struct elf_obj *eo = (struct elf_obj *)lf;
	const Elf64_Sym *sym;
	uint32_t i;

	i = eo->hash[elf_obj_hash(name) % eo->nsyms];
	for (; i != 0; i = eo->hash[eo->nsyms + i]) {
		sym = &eo->symtab[i];
		if (strcmp(eo->strtab + sym->st_name, name) == 0) {
			*value = sym->st_value;
			return (0);
		}
	}
	return (ENOENT);
}

bool
link_elf_obj_lookup_set(linker_file_t lf, const char *name, void ***start, void ***stop)
{
	struct elf_obj *eo = (struct elf_obj *)lf;
	struct elf_set *set = elf_obj_find_set(eo, name);

	if (set == NULL)
		return (false);
	*start = (void **)set->start;
	*stop = (void **)set->stop;
	return (true);
}

bool
link_elf_obj_contains(linker_file_t lf, const void *addr, size_t size)
{
	uintptr_t offset = (uintptr_t)addr - (uintptr_t)lf->address;

	return (offset < lf->size && size <= lf->size - offset);
}

bool
link_elf_obj_search_symbol(linker_file_t lf, uintptr_t addr, const char **name, ptrdiff_t *off)
{
	struct elf_obj *eo = (struct elf_obj *)lf;
	const Elf64_Sym *best = NULL, *sym;
	int type;

	for (u_int i = 1; i < eo->nsyms; i++) {
		sym = &eo->symtab[i];
		type = ELF64_ST_TYPE(sym->st_info);
		if (sym->st_shndx == SHN_UNDEF || sym->st_shndx >= eo->nsections ||
		    eo->secaddr[sym->st_shndx] == 0 || type == STT_SECTION || type == STT_FILE ||
		    sym->st_value > addr || eo->strtab[sym->st_name] == '\0')
			continue;
		if (best == NULL || sym->st_value > best->st_value)
			best = sym;
	}
	if (best == NULL)
		return (false);
	*name = eo->strtab + best->st_name;
	*off = addr - best->st_value;
	return (true);
}
