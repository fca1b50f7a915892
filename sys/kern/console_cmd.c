/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Lookup of the console's commands.
 *
 * A command is a member of the linker set console_cmd_set: the kernel's own (sys/cmd), or that of a
 * loaded module.  If neither has the name, it is looked for in a separate folder of the boot
 * archive: a file NAME.ko there is an instrument (tests/sys/cmd), a module that has the command
 * NAME.  It is loaded and stays loaded, as by kldload(8).  Modules elsewhere in the archive are
 * never loaded when a command of their name is called.
 *
 * The module of a command in use has a reference, so that kldunload(8) finds it busy.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/linker.h>

#include <net/vnet.h>

#include <fs/memfs_tree.h>
#include <kern/console_cmd_tree.h>
#include <kern/linker_tree.h>

SET_DECLARE(console_cmd_set, const struct console_cmd);

static const struct console_cmd *
console_find_named(const struct console_cmd **cc, const struct console_cmd **end, const char *name)
{
	for (; cc < end; cc++) {
		if (strcmp((*cc)->cc_name, name) == 0)
			return (*cc);
	}
	return (NULL);
}

/* The commands of a loaded module; false: it has none. */
static bool
console_module_set(linker_file_t lf, const struct console_cmd ***start,
    const struct console_cmd ***stop)
{
	return (lf != linker_kernel_file &&
	    link_elf_obj_lookup_set(lf, "console_cmd_set", (void ***)start, (void ***)stop));
}

struct console_find {
	const char		*name;
	struct console_ref	*ref;
};

/* For linker_file_foreach(): find a command in a module, and reference that. */
static int
console_find_in(linker_file_t lf, void *arg)
{
	const struct console_cmd **start, **stop, *cc;
	struct console_find *cf = arg;

	if (!console_module_set(lf, &start, &stop))
		return (0);
	cc = console_find_named(start, stop, cf->name);
	if (cc == NULL)
		return (0);
	lf->refs++;
	cf->ref->cr_file = lf;
	cf->ref->cr_cmd = cc;
	return (1);
}

/* Load an instrument from the boot archive, as kldload(2) loads a module. */
static int
console_load(const char *name)
{
	char path[sizeof(CONSOLE_INSTRUMENTS "/.ko") + MAXMODNAME];
	int error, id;

	if (strlen(name) >= MAXMODNAME)
		return (ENOENT);
	snprintf(path, sizeof(path), CONSOLE_INSTRUMENTS "/%s.ko", name);
	CURVNET_SET(vnet0);
	error = linker_kldload(path, &id);
	CURVNET_RESTORE();
	/* Another thread may have loaded it in the meantime. */
	if (error == EEXIST)
		return (0);
	if (error != 0 && error != ENOENT)
		printf("%s: can't load %s: error %d\n", name, path, error);
	return (error);
}

int
console_cmd_get(const char *name, struct console_ref *cr)
{
	struct console_find cf = { name, cr };
	int error;

	/* Without the linker's lock: a module may be loading for a long time. */
	cr->cr_file = NULL;
	cr->cr_cmd = console_find_named(SET_BEGIN(console_cmd_set), SET_LIMIT(console_cmd_set), name);
	if (cr->cr_cmd != NULL || linker_file_foreach(console_find_in, &cf) != 0)
		return (0);
	error = console_load(name);
	if (error == 0 && linker_file_foreach(console_find_in, &cf) == 0)
		error = ENOENT;
	return (error);
}

void
console_cmd_put(struct console_ref *cr)
{
	if (cr->cr_file != NULL)
		(void)linker_release_module(NULL, NULL, cr->cr_file);
	cr->cr_file = NULL;
	cr->cr_cmd = NULL;
}

int
cmd_usage(const char *name)
{
	struct console_ref cr;

	if (console_cmd_get(name, &cr) != 0) {
		printf("usage: %s\n", name);
		return (EX_USAGE);
	}
	printf("usage: %s\n", cr.cr_cmd->cc_usage);
	console_cmd_put(&cr);
	return (EX_USAGE);
}

struct console_next {
	const char		*after;
	struct console_help	*help;
	bool			found;
};

/* Keep this command, if it is the first so far after the one asked for. */
static void
console_next_consider(struct console_next *cn, const char *name, const char *descr)
{
	if (strcmp(name, cn->after) <= 0 ||
	    (cn->found && strcmp(name, cn->help->ch_name) >= 0))
		return;
	strlcpy(cn->help->ch_name, name, sizeof(cn->help->ch_name));
	strlcpy(cn->help->ch_descr, descr, sizeof(cn->help->ch_descr));
	cn->found = true;
}

static void
console_next_of(struct console_next *cn, const struct console_cmd **cc, const struct console_cmd **end)
{
	for (; cc < end; cc++)
		console_next_consider(cn, (*cc)->cc_name, (*cc)->cc_descr);
}

static int
console_next_in(linker_file_t lf, void *arg)
{
	const struct console_cmd **start, **stop;

	if (console_module_set(lf, &start, &stop))
		console_next_of(arg, start, stop);
	return (0);
}

/* The instruments in the boot archive that are not loaded. */
static void
console_next_archived(struct console_next *cn)
{
	const size_t folder = strlen(CONSOLE_INSTRUMENTS "/"), suffix = strlen(".ko");
	char path[128];
	const char *after = NULL;
	size_t len, size;

	for (; memfs_next(after, path, sizeof(path), &size); after = path) {
		len = strlen(path);
		if (len <= folder + suffix || strcmp(path + len - suffix, ".ko") != 0 ||
		    strncmp(path, CONSOLE_INSTRUMENTS "/", folder) != 0)
			continue;
		path[len - suffix] = '\0';
		console_next_consider(cn, path + folder, "(loaded from the boot archive when called)");
		path[len - suffix] = '.';
	}
}

bool
console_cmd_next(const char *after, struct console_help *ch)
{
	struct console_next cn = { .help = ch };
	char name[sizeof(ch->ch_name)];

	/* It is overwritten. */
	strlcpy(name, after, sizeof(name));
	cn.after = name;
	console_next_of(&cn, SET_BEGIN(console_cmd_set), SET_LIMIT(console_cmd_set));
	(void)linker_file_foreach(console_next_in, &cn);
	console_next_archived(&cn);
	return (cn.found);
}
