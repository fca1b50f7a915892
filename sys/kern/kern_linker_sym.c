/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Symbols of the kernel and of loaded files: for linking, and for backtraces.
 *
 * Locking.  kld_sx, but for linker_ddb_search_symbol_name(), which a panic calls: it takes no
 * lock, as the list of files changes only by single stores.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/errno.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/sx.h>

#include <kern/ksyms_tree.h>
#include <kern/linker_tree.h>

int
linker_lookup_global(linker_file_t self, const char *name, uintptr_t *value)
{
	linker_file_t lf;

	if (ksyms_lookup(name, value) == 0)
		return (0);
	TAILQ_FOREACH(lf, &linker_files, link)
		if (lf != self && lf != linker_kernel_file &&
		    link_elf_obj_lookup_symbol(lf, name, value) == 0)
			return (0);
	return (ENOENT);
}

int
linker_file_foreach(linker_predicate_t *predicate, void *context)
{
	linker_file_t lf;
	int result = 0;

	sx_xlock(&kld_sx);
	TAILQ_FOREACH(lf, &linker_files, link) {
		result = predicate(lf, context);
		if (result != 0)
			break;
	}
	sx_xunlock(&kld_sx);
	return (result);
}

caddr_t
linker_file_lookup_symbol(linker_file_t lf, const char *name, int deps)
{
	uintptr_t value;
	int error;

	if (lf == linker_kernel_file)
		error = ksyms_lookup(name, &value);
	else
		error = link_elf_obj_lookup_symbol(lf, name, &value);
	if (error != 0 && deps)
		error = linker_lookup_global(lf, name, &value);
	return (error == 0 ? (caddr_t)value : NULL);
}

/*
 * The name of the function or variable at `value`, without a lock and without memory: for a panic.
 */
int
linker_ddb_search_symbol_name(caddr_t value, char *buf, u_int buflen, long *offset)
{
	uintptr_t addr = (uintptr_t)value;
	linker_file_t lf;
	const char *name = NULL;
	ptrdiff_t off = 0;

	if (ksyms_search(addr, &name, &off) != 0) {
		TAILQ_FOREACH(lf, &linker_files, link) {
			if (lf == linker_kernel_file || addr < (uintptr_t)lf->address ||
			    addr - (uintptr_t)lf->address >= lf->size)
				continue;
			(void)link_elf_obj_search_symbol(lf, addr, &name, &off);
			break;
		}
	}
	if (name == NULL) {
		if (buflen > 0)
			*buf = '\0';
		*offset = 0;
		return (ENOENT);
	}
	*offset = off;
	strlcpy(buf, name, buflen);
	return (0);
}

int
linker_search_symbol_name_flags(caddr_t value, char *buf, u_int buflen, long *offset, int flags)
{
	int error;

	if ((flags & M_NOWAIT) != 0) {
		if (!sx_try_slock(&kld_sx))
			return (EWOULDBLOCK);
	} else
		sx_slock(&kld_sx);
	error = linker_ddb_search_symbol_name(value, buf, buflen, offset);
	sx_sunlock(&kld_sx);
	return (error);
}

int
linker_search_symbol_name(caddr_t value, char *buf, u_int buflen, long *offset)
{
	return (linker_search_symbol_name_flags(value, buf, buflen, offset, M_WAITOK));
}
