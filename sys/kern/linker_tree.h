/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Between the module linker's files: kern_linker.c (files, dependencies, life cycle),
 * link_elf_obj.c (the object format), kern_module.c (event handlers) and the commands.
 *
 * Not FreeBSD's: FreeBSD has a kobj interface, linker_if.m, between its linker and its object
 * formats; here is one format.
 */

#ifndef _KERN_LINKER_TREE_H_
#define	_KERN_LINKER_TREE_H_

#include <sys/stddef.h>
#include <sys/malloc.h>
#include <sys/linker.h>
#include <sys/module.h>
#include <sys/sx.h>

MALLOC_DECLARE(M_LINKER);

#define	LINKER_DIR	"/boot/kernel"

/* Held exclusively while files are loaded and unloaded, shared to read the list. */
extern struct sx kld_sx;
extern linker_file_list_t linker_files;

/*
 * Check and place `image`, the `size` bytes of an ET_REL file, and resolve what refers to itself.
 * On success *lfp is a file that is on no list yet.  Every fault is reported on the console, with
 * `name`.  Returns 0, ENOEXEC for a bad file, ENOMEM.  `image` (type M_LINKER) is taken over in all
 * cases.  May sleep.
 */
int	link_elf_obj_load(const char *name, const char *path, void *image, size_t size,
	    linker_file_t *lfp);

/* Resolve all other symbols, against the kernel and the loaded files.  Returns 0 or ENOEXEC. */
int	link_elf_obj_resolve(linker_file_t lf);

/* Free the file's memory and symbols.  It is on no list, and nothing refers to it. */
void	link_elf_obj_free(linker_file_t lf);

/* A global symbol that the file defines.  Returns 0 or ENOENT. */
int	link_elf_obj_lookup_symbol(linker_file_t lf, const char *name, uintptr_t *value);

/* The section set_NAME.  Returns false if the file has none. */
bool	link_elf_obj_lookup_set(linker_file_t lf, const char *name, void ***start, void ***stop);

/* Do `size` bytes from `addr` on lie in the file's memory? */
bool	link_elf_obj_contains(linker_file_t lf, const void *addr, size_t size);

/* The function or variable that has `addr` in it, or ends before it. */
bool	link_elf_obj_search_symbol(linker_file_t lf, uintptr_t addr, const char **name,
	    ptrdiff_t *off);

/* A global symbol of the kernel or of any loaded file but `self`.  Returns 0 or ENOENT. */
int	linker_lookup_global(linker_file_t self, const char *name, uintptr_t *value);

/*
 * kldload(2) and kldunload(2).  `name` is a module's name, or a path if it has a slash.  On success
 * *idp is the file's number.  Returns 0, EEXIST, ENOENT, ENOEXEC or what a handler answered.
 */
int	linker_kldload(const char *name, int *idp);

/* SYSINITs of what is loaded are left to mi_startup(). */
int	linker_kldunload(int fileid, int flags);

/* SYSINITs of what is loaded now are left to mi_startup(). */
extern bool linker_preloading;

/* The files that are there have all been loaded by the loader: none is a dependency only. */
void	linker_preloaded(void);

/* kld_sx must be held for both. */
linker_file_t linker_find_file_by_name(const char *name);
linker_file_t linker_find_file_by_id(int id);

/* Unload every module of the file, or none of them.  Returns 0 or the first refusal. */
int	module_unload_file(linker_file_t lf);
int	module_quiesce_file(linker_file_t lf, bool tell);
int	module_getrefs(module_t mod);
void	module_getspecific(module_t mod, modspecific_t *data);
module_t module_first(linker_file_t lf);

#endif /* !_KERN_LINKER_TREE_H_ */
