/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * stack(9): captured stacks and printing them with symbols.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/linker.h>
#include <sys/malloc.h>
#include <sys/sbuf.h>
#include <sys/stack.h>

#include <machine/vmparam.h>

#include <kern/ksyms_tree.h>

MALLOC_DEFINE(M_STACK, "stack", "Stack Traces");

struct stack *
stack_create(int flags)
{
	return (malloc(sizeof(struct stack), M_STACK, flags | M_ZERO));
}

void
stack_destroy(struct stack *st)
{
	free(st, M_STACK);
}

int
stack_put(struct stack *st, vm_offset_t pc)
{
	if (st->depth >= STACK_MAX)
		return (-1);
	st->pcs[st->depth++] = pc;
	return (0);
}

void
stack_copy(const struct stack *src, struct stack *dst)
{
	*dst = *src;
}

void
stack_zero(struct stack *st)
{
	memset(st, 0, sizeof(*st));
}

/*
 * Name the function that pc is in.  A return address is looked up one byte back, as a call may be
 * the last instruction of its function.  The kernel's own table needs no lock and is searched
 * first; for modules the linker's lock is tried, and not needed when the scheduler has stopped.
 */
static bool
stack_symbol(vm_offset_t pc, char *name, size_t len, long *offset)
{
	const char *kname;
	ptrdiff_t koff;
	int error;

	if (ksyms_search(pc - 1, &kname, &koff) == 0) {
		strlcpy(name, kname, len);
		*offset = koff + 1;
		return (true);
	}
	if (SCHEDULER_STOPPED())
		error = linker_ddb_search_symbol_name((caddr_t)pc - 1, name, len, offset);
	else
		error = linker_search_symbol_name_flags((caddr_t)pc - 1, name, len, offset,
		    M_NOWAIT);
	*offset += 1;
	return (error == 0);
}

static void
stack_print_lines(const struct stack *st)
{
	char name[64];
	long offset = 0;
	int i;

	for (i = 0; i < st->depth; i++) {
		if (stack_symbol(st->pcs[i], name, sizeof(name), &offset))
			printf("#%d %#lx at %s+%#lx\n", i, (long)st->pcs[i], name, offset);
		else
			printf("#%d %#lx at ??\n", i, (long)st->pcs[i]);
	}
}

void
stack_print(const struct stack *st)
{
	stack_print_lines(st);
}

void
stack_print_ddb(const struct stack *st)
{
	stack_print_lines(st);
}

void
stack_print_short(const struct stack *st)
{
	char name[64];
	long offset = 0;
	int i;

	for (i = 0; i < st->depth; i++) {
		if (i > 0)
			printf(" ");
		if (stack_symbol(st->pcs[i], name, sizeof(name), &offset))
			printf("%s+%#lx", name, offset);
		else
			printf("%#lx", (long)st->pcs[i]);
	}
	printf("\n");
}

void
stack_print_short_ddb(const struct stack *st)
{
	stack_print_short(st);
}
