/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Searching the kernel's own symbol table.
 *
 * tools/ksyms makes the table; the format is its and ours alone.  Numbers have 32 bits,
 * little-endian:
 *
 *	header		magic, number of symbols, number of globals, size of the strings
 *	symbols		address - KERNBASE, offset of the name; ascending by address
 *	globals		indices of the global symbols, ascending by name (as strcmp(3) has it)
 *	strings		names, each ended by NUL
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/errno.h>

#include <machine/cpu.h>
#include <machine/vmparam.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <kern/ksyms_tree.h>

#define	KSYMS_MAGIC	0x4d59534b	/* "KSYM" */

struct ksym {
	uint32_t	addr;
	uint32_t	name;
};

struct ksyms_table {
	uint32_t	magic;
	uint32_t	nsyms;
	uint32_t	nglobals;
	uint32_t	strsize;
	struct ksym	syms[];
};

/* The section must exist in the first link too, with the same flags: sys/conf/ldscript.amd64. */
__asm(".section .ksyms, \"ax\", @progbits; .previous");

extern const char ksyms_start[], ksyms_end[];

/* The table, or NULL in the first link, which has none. */
static const struct ksyms_table *
table(void)
{
	const struct ksyms_table *t = (const struct ksyms_table *)ksyms_start;

	if (ksyms_end - ksyms_start < (ptrdiff_t)sizeof(*t) || t->magic != KSYMS_MAGIC)
		return (NULL);
	return (t);
}

static const uint32_t *
globals(const struct ksyms_table *t)
{
	return ((const uint32_t *)&t->syms[t->nsyms]);
}

static const char *
name_of(const struct ksyms_table *t, const struct ksym *s)
{
	return ((const char *)&globals(t)[t->nglobals] + s->name);
}

int
ksyms_lookup(const char *name, uintptr_t *value)
{
	const struct ksyms_table *t = table();
	const struct ksym *s;
	u_int lo = 0, hi, mid;
	int cmp;

	if (t == NULL)
		return (ENOENT);
	for (hi = t->nglobals; lo < hi;) {
		mid = lo + (hi - lo) / 2;
		s = &t->syms[globals(t)[mid]];
		cmp = strcmp(name, name_of(t, s));
		if (cmp == 0) {
			*value = KERNBASE + s->addr;
			return (0);
		}
		if (cmp < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return (ENOENT);
}

int
ksyms_search(uintptr_t addr, const char **name, ptrdiff_t *off)
{
	const struct ksyms_table *t = table();
	u_int lo = 0, hi, mid;
	uint32_t rel;

	if (t == NULL || addr < (uintptr_t)btext || addr >= (uintptr_t)_end)
		return (ENOENT);
	rel = addr - KERNBASE;
	for (hi = t->nsyms; lo < hi;) {
		mid = lo + (hi - lo) / 2;
		if (t->syms[mid].addr <= rel)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == 0)
		return (ENOENT);
	*name = name_of(t, &t->syms[lo - 1]);
	*off = rel - t->syms[lo - 1].addr;
	return (0);
}
