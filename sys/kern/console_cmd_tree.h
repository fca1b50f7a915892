/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Where the console finds its commands (console_cmd.c).
 *
 * Not FreeBSD's, which has no commands in the kernel.
 */

#ifndef _KERN_CONSOLE_CMD_TREE_H_
#define	_KERN_CONSOLE_CMD_TREE_H_

#include <sys/linker.h>

#include <kern/console_tree.h>

/* The folder of the boot archive with instruments: modules of one command each, named as it is. */
#define	CONSOLE_INSTRUMENTS	"/boot/instruments"

/* A command in use: the file that it is part of can't be unloaded. */
struct console_ref {
	const struct console_cmd *cr_cmd;
	linker_file_t	cr_file;	/* NULL: the kernel */
};

/*
 * Find a command in the kernel, in loaded modules, or else in the boot archive, from which its module
 * is then loaded.  May sleep.  Returns 0; ENOENT; or, with a message on the console, why the module
 * can't be loaded.
 */
int	console_cmd_get(const char *name, struct console_ref *cr);

/* The command has returned.  May sleep. */
void	console_cmd_put(struct console_ref *cr);

struct console_help {
	char	ch_name[32];
	char	ch_descr[80];
};

/*
 * The command that follows `after' in alphabetical order ("": the first), which may be the name in ch.
 * Those in the boot archive are included.  May sleep.  Returns false at the end.
 */
bool	console_cmd_next(const char *after, struct console_help *ch);

#endif /* !_KERN_CONSOLE_CMD_TREE_H_ */
