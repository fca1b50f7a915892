/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Commands of the console (kern/console.c).
 *
 * Not FreeBSD's: commands are programs there.
 */

#ifndef _KERN_CONSOLE_TREE_H_
#define	_KERN_CONSOLE_TREE_H_

#include <sys/types.h>
#include <sys/linker_set.h>

/*
 * A command: runs in a thread of its own, may sleep, returns its exit status (0 to 255, as the
 * FreeBSD command of that name would).
 */
struct console_cmd {
	const char	*cc_name;
	int		(*cc_func)(int argc, char **argv);
	const char	*cc_descr;	/* what it does: up to 79 characters */
	const char	*cc_usage;	/* name, options, operands: one line */
	bool		cc_vnet;
};

#define	CONSOLE_CMD_VNET(name, func, descr, usage, vnet)		\
	static const struct console_cmd console_cmd_##name =		\
	    { #name, func, descr, usage, vnet };			\
	DATA_SET(console_cmd_set, console_cmd_##name)
#define	CONSOLE_CMD(name, func, descr, usage)				\
	CONSOLE_CMD_VNET(name, func, descr, usage, false)
/* Its system calls would set curvnet: those on sockets, sysctl(2), kldload(2), kldunload(2). */
#define	CONSOLE_NET_CMD(name, func, descr, usage)			\
	CONSOLE_CMD_VNET(name, func, descr, usage, true)

#define	EX_USAGE	64

/*
 * State of cmd_getopt(), which is getopt(3) without globals.  Start with { .optind = 1 }.
 */
struct cmd_getopt {
	int	 optind;	/* next word */
	int	 optopt;	/* the option looked at */
	char	*optarg;	/* its argument */
	char	*place;		/* private: within a cluster of options */
};

/*
 * The next option of argv, '?' (with a message) for one that opts does not have or whose argument
 * is missing, -1 at the end of the options.
 */
int	cmd_getopt(struct cmd_getopt *g, int argc, char **argv, const char *opts);

/* Print the usage line of a command; returns EX_USAGE. */
int	cmd_usage(const char *name);

/*
 * Print "name: message: error in words" as err(3) does, without the last part if error is 0.
 * Returns 1.
 */
int	cmd_err(const char *name, int error, const char *fmt, ...) __printflike(3, 4);

/* An errno value in words, as strerror(3). */
const char *cmd_strerror(int error);

/* Did the user type ^C at this command? */
bool	cmd_interrupted(void);

/* Sleep this long, in steps so that ^C ends it; returns false when it did. */
bool	cmd_pause(sbintime_t sbt);

/*
 * A number with an optional suffix b (512) k, m, g, t (powers of 1024), as dd(1) reads them.
 * Returns 0, or EINVAL if there is anything else in the word, ERANGE if it does not fit.
 */
int	cmd_expand_number(const char *word, uint64_t *value);

#endif /* !_KERN_CONSOLE_TREE_H_ */
