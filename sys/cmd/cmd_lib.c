/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * What commands and instruments share: options, numbers, messages.  Instruments that run in FreeBSD,
 * too, have this file with them (tests/sys/cmd/instruments).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/ctype.h>
#include <sys/time.h>

#include <machine/stdarg.h>

#include <kern/console_tree.h>

int
cmd_getopt(struct cmd_getopt *g, int argc, char **argv, const char *opts)
{
	const char *o;

	if (g->place == NULL || *g->place == '\0') {
		if (g->optind >= argc || argv[g->optind][0] != '-' ||
		    argv[g->optind][1] == '\0')
			return (-1);
		g->place = argv[g->optind++] + 1;
		if (strcmp(g->place, "-") == 0) {
			g->place = NULL;
			return (-1);
		}
	}
	g->optopt = *g->place++;
	o = g->optopt == ':' ? NULL : strchr(opts, g->optopt);
	if (o == NULL) {
		printf("%s: illegal option -- %c\n", argv[0], g->optopt);
		return ('?');
	}
	if (o[1] != ':')
		return (g->optopt);
	if (*g->place != '\0')
		g->optarg = g->place;
	else if (g->optind < argc)
		g->optarg = argv[g->optind++];
	else {
		printf("%s: option requires an argument -- %c\n", argv[0], g->optopt);
		return ('?');
	}
	g->place = NULL;
	return (g->optopt);
}

/* Every errno value that the kernel or a driver returns to a command. */
static const struct {
	int		 number;
	const char	*text;
} cmd_errors[] = {
	{ EPERM,	"Operation not permitted" },
	{ ENOENT,	"No such file or directory" },
	{ EINTR,	"Interrupted system call" },
	{ EIO,		"Input/output error" },
	{ ENXIO,	"Device not configured" },
	{ E2BIG,	"Argument list too long" },
	{ ENOEXEC,	"Exec format error" },
	{ EBADF,	"Bad file descriptor" },
	{ EDEADLK,	"Resource deadlock avoided" },
	{ ENOMEM,	"Cannot allocate memory" },
	{ EACCES,	"Permission denied" },
	{ EFAULT,	"Bad address" },
	{ EBUSY,	"Device busy" },
	{ EEXIST,	"File exists" },
	{ ENODEV,	"Operation not supported by device" },
	{ ENOTDIR,	"Not a directory" },
	{ EISDIR,	"Is a directory" },
	{ EINVAL,	"Invalid argument" },
	{ EFBIG,	"File too large" },
	{ ENOSPC,	"No space left on device" },
	{ EROFS,	"Read-only file system" },
	{ EDOM,		"Numerical argument out of domain" },
	{ ERANGE,	"Result too large" },
	{ EAGAIN,	"Resource temporarily unavailable" },
	{ EINPROGRESS,	"Operation now in progress" },
	{ EMSGSIZE,	"Message too long" },
	{ EOPNOTSUPP,	"Operation not supported" },
	{ EPROTONOSUPPORT, "Protocol not supported" },
	{ EAFNOSUPPORT,	"Address family not supported by protocol family" },
	{ EADDRINUSE,	"Address already in use" },
	{ EADDRNOTAVAIL, "Can't assign requested address" },
	{ ENETDOWN,	"Network is down" },
	{ ENETUNREACH,	"Network is unreachable" },
	{ ECONNABORTED,	"Software caused connection abort" },
	{ ECONNRESET,	"Connection reset by peer" },
	{ ENOBUFS,	"No buffer space available" },
	{ EISCONN,	"Socket is already connected" },
	{ ENOTCONN,	"Socket is not connected" },
	{ ETIMEDOUT,	"Operation timed out" },
	{ ECONNREFUSED,	"Connection refused" },
	{ ENAMETOOLONG,	"File name too long" },
	{ EHOSTDOWN,	"Host is down" },
	{ EHOSTUNREACH,	"No route to host" },
	{ ENOTSUP,	"Operation not supported" },
	{ EILSEQ,	"Illegal byte sequence" },
	{ EOVERFLOW,	"Value too large to be stored in data type" },
	{ ECANCELED,	"Operation canceled" },
	{ EPROTO,	"Protocol error" },
	{ EBADMSG,	"Bad message" },
	{ EDOOFUS,	"Programming error" },
};

const char *
cmd_strerror(int error)
{

	for (u_int i = 0; i < nitems(cmd_errors); i++) {
		if (cmd_errors[i].number == error)
			return (cmd_errors[i].text);
	}
	return ("Unknown error");
}

int
cmd_err(const char *name, int error, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (error == 0)
		printf("%s: %s\n", name, text);
	else
		printf("%s: %s: %s\n", name, text, cmd_strerror(error));
	return (1);
}

bool
cmd_pause(sbintime_t sbt)
{
	sbintime_t now, end = sbinuptime() + sbt;

	while ((now = sbinuptime()) < end) {
		if (cmd_interrupted())
			return (false);
		pause_sbt("nanslp", MIN(end - now, SBT_1S / 10), 0, C_PREL(8));
	}
	return (true);
}

int
cmd_expand_number(const char *word, uint64_t *value)
{
	static const struct {
		char	suffix;
		int	shift;
	} units[] = { { 'b', 9 }, { 'k', 10 }, { 'm', 20 }, { 'g', 30 }, { 't', 40 } };
	char *end;
	u_quad_t n;

	if (!isdigit((u_char)word[0]))
		return (EINVAL);
	n = strtouq(word, &end, 0);
	for (u_int i = 0; i < nitems(units) && *end != '\0'; i++) {
		if (tolower((u_char)*end) != units[i].suffix)
			continue;
		if (n > UINT64_MAX >> units[i].shift)
			return (ERANGE);
		n <<= units[i].shift;
		end++;
		break;
	}
	if (*end != '\0')
		return (EINVAL);
	*value = n;
	return (0);
}
