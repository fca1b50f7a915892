/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * fetch: get a file by HTTP/1.1 (RFC 9112), with FreeBSD's options and messages.
 *
 * The body ends as its framing says: Content-Length, chunked, or the end of the connection.  It
 * goes to a file in memory, to the console (-o -), or nowhere (-o /dev/null).  A status of 400
 * and more, a body that is cut short, and anything that can't be parsed are errors: exit status
 * 1.
 *
 * Gaps: no TLS, no proxies, no resuming.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/tcp_conn_tree.h>
#include <fs/memfs_tree.h>
#include <cmd/resolver.h>
#include <kern/console_tree.h>

#define	FETCH_BUF	(64 * 1024)
#define	FETCH_LINE	2048
#define	FETCH_HEADERS	256
#define	FETCH_REDIRECTS	5
#define	FETCH_TIMEOUT	(60 * SBT_1S)	/* without a byte */
#define	FETCH_PATHMAX	128

struct fetch_url {
	char		u_host[256];
	char		u_path[1024];
	uint16_t	u_port;
};

struct fetch {
	const char	*f_name;	/* the URL, for messages */
	struct fetch_url f_url;
	struct tcp_conn	*f_conn;
	uint8_t		*f_buf;
	size_t		f_pos;		/* next unread byte of f_buf */
	size_t		f_end;
	/* Of the response. */
	int		f_status;
	int64_t		f_length;	/* -1: not said */
	bool		f_chunked;
	char		f_location[1024];
	/* Where it goes. */
	bool		f_console;
	bool		f_null;
	struct memfs_file *f_file;
	uint64_t	f_got;
};

/* http://host[:port]/path, host perhaps [an IPv6 address].  EINVAL. */
static int
fetch_parse_url(const char *url, struct fetch_url *u)
{
	const char *host, *end;
	char *stop;
	size_t len;

	if (strncmp(url, "http://", 7) != 0)
		return (EINVAL);
	host = url + 7;
	if (*host == '[') {
		end = strchr(++host, ']');
		if (end == NULL)
			return (EINVAL);
		len = end++ - host;
	} else {
		for (end = host; *end != '\0' && *end != ':' && *end != '/'; end++)
			continue;
		len = end - host;
	}
	if (len == 0 || len >= sizeof(u->u_host))
		return (EINVAL);
	strlcpy(u->u_host, host, len + 1);
	u->u_port = 80;
	if (*end == ':') {
		u->u_port = strtoul(end + 1, &stop, 10);
		end = stop;
	}
	if ((*end != '/' && *end != '\0') || u->u_port == 0)
		return (EINVAL);
	return (strlcpy(u->u_path, *end == '\0' ? "/" : end, sizeof(u->u_path)) >=
	    sizeof(u->u_path) ? EINVAL : 0);
}

/* Have at least one byte in the buffer.  EIO at the end of the connection. */
static int
fetch_fill(struct fetch *f)
{
	size_t len = FETCH_BUF;
	int error;

	if (f->f_pos < f->f_end)
		return (0);
	error = tcpc_recv(f->f_conn, f->f_buf, &len, FETCH_TIMEOUT);
	f->f_pos = 0;
	f->f_end = error == 0 ? len : 0;
	return (error != 0 ? error : len == 0 ? EIO : 0);
}

/* A line without its end.  EMSGSIZE if it is too long. */
static int
fetch_line(struct fetch *f, char *line)
{
	size_t n = 0;
	int error;
	char c;

	for (;;) {
		error = fetch_fill(f);
		if (error != 0)
			return (error);
		c = f->f_buf[f->f_pos++];
		if (c == '\n')
			break;
		if (n == FETCH_LINE - 1)
			return (EMSGSIZE);
		line[n++] = c;
	}
	if (n > 0 && line[n - 1] == '\r')
		n--;
	line[n] = '\0';
	return (0);
}

static int
fetch_request(struct fetch *f)
{
	static const char fmt[] = "GET %s HTTP/1.1\r\nHost: %s%s%s:%u\r\nAccept: */*\r\n"
	    "User-Agent: fetch libfetch/2.0\r\nConnection: close\r\n\r\n";
	bool v6 = strchr(f->f_url.u_host, ':') != NULL;
	char *req;
	int error, len;

	req = malloc(FETCH_LINE, M_INET, M_WAITOK);
	len = snprintf(req, FETCH_LINE, fmt, f->f_url.u_path, v6 ? "[" : "", f->f_url.u_host,
	    v6 ? "]" : "", f->f_url.u_port);
	error = len < FETCH_LINE ? tcpc_send(f->f_conn, req, len, FETCH_TIMEOUT) : EMSGSIZE;
	free(req, M_INET);
	return (error);
}

/* If line is the header `name', its value, else NULL. */
static const char *
fetch_header(const char *line, const char *name)
{
	size_t len = strlen(name);

	if (strncasecmp(line, name, len) != 0 || line[len] != ':')
		return (NULL);
	for (line += len + 1; *line == ' ' || *line == '\t'; line++)
		continue;
	return (line);
}

/* The status line and the headers.  EBADMSG. */
static int
fetch_response(struct fetch *f)
{
	const char *v;
	char *line, *end;
	int error, i;

	line = malloc(FETCH_LINE, M_INET, M_WAITOK);
	f->f_length = -1;
	f->f_chunked = false;
	f->f_location[0] = '\0';
	error = fetch_line(f, line);
	if (error == 0 && (strncmp(line, "HTTP/1.", 7) != 0 || strlen(line) < 12))
		error = EBADMSG;
	if (error == 0)
		f->f_status = strtoul(line + 9, NULL, 10);
	for (i = 0; error == 0 && (error = fetch_line(f, line)) == 0 && line[0] != '\0'; i++) {
		if (i == FETCH_HEADERS)
			error = EBADMSG;
		if ((v = fetch_header(line, "Content-Length")) != NULL) {
			f->f_length = strtoq(v, &end, 10);
			if (end == v || f->f_length < 0)
				error = EBADMSG;
		} else if ((v = fetch_header(line, "Transfer-Encoding")) != NULL)
			f->f_chunked = strcasecmp(v, "chunked") == 0;
		else if ((v = fetch_header(line, "Location")) != NULL)
			strlcpy(f->f_location, v, sizeof(f->f_location));
	}
	free(line, M_INET);
	return (error);
}

static int
fetch_store(struct fetch *f, const uint8_t *data, size_t len)
{
	int error = 0;
	size_t i;

	if (f->f_file != NULL)
		error = memfs_write(f->f_file, f->f_got, data, len);
	for (i = 0; f->f_console && i < len; i++)
		printf("%c", data[i]);
	f->f_got += len;
	return (error);
}

/* `left' bytes of body, or with -1 until the end of the connection.  EIO if it is cut short. */
static int
fetch_bytes(struct fetch *f, int64_t left)
{
	size_t n;
	int error;

	while (left != 0) {
		error = fetch_fill(f);
		if (error != 0)
			return (left < 0 && error == EIO ? 0 : error);
		n = f->f_end - f->f_pos;
		if (left > 0)
			n = MIN((int64_t)n, left);
		error = fetch_store(f, f->f_buf + f->f_pos, n);
		if (error != 0)
			return (error);
		f->f_pos += n;
		if (left > 0)
			left -= n;
	}
	return (0);
}

/* RFC 9112, 7.1. */
static int
fetch_chunks(struct fetch *f)
{
	char *line, *end;
	u_long size = 0;
	int error;

	line = malloc(FETCH_LINE, M_INET, M_WAITOK);
	while ((error = fetch_line(f, line)) == 0) {
		size = strtoul(line, &end, 16);
		if (end == line || size > (1UL << 40)) {
			error = EBADMSG;
			break;
		}
		if (size == 0)
			break;
		error = fetch_bytes(f, size);
		if (error == 0)
			error = fetch_line(f, line);
		if (error == 0 && line[0] != '\0')
			error = EBADMSG;
		if (error != 0)
			break;
	}
	free(line, M_INET);
	return (error);
}

static int
fetch_connect(struct fetch *f)
{
	struct in6_addr a;
	u_int scope;
	int error;

	error = inet_resolve(f->f_url.u_host, AF_UNSPEC, &a, &scope);
	if (error == 0)
		error = tcpc_connect(&a, scope, f->f_url.u_port, FETCH_TIMEOUT, &f->f_conn);
	f->f_pos = f->f_end = 0;
	return (error);
}

/* Up to the body, following redirects. */
static int
fetch_open(struct fetch *f)
{
	int error, i;

	for (i = 0; i <= FETCH_REDIRECTS; i++) {
		error = fetch_connect(f);
		if (error != 0)
			return (error);
		error = fetch_request(f);
		if (error == 0)
			error = fetch_response(f);
		if (error != 0 || f->f_status / 100 != 3 || f->f_location[0] == '\0')
			return (error);
		tcpc_close(f->f_conn);
		f->f_conn = NULL;
		if (f->f_location[0] == '/')
			strlcpy(f->f_url.u_path, f->f_location, sizeof(f->f_url.u_path));
		else if (fetch_parse_url(f->f_location, &f->f_url) != 0)
			return (EPROTONOSUPPORT);
	}
	return (ELOOP);
}

static const char *
fetch_status_text(int status)
{
	switch (status) {
	case 400:
		return ("Bad Request");
	case 401:
		return ("Authentication required");
	case 403:
		return ("Forbidden");
	case 404:
		return ("Not Found");
	case 500:
		return ("Internal Server Error");
	case 503:
		return ("Service Unavailable");
	default:
		return ("Protocol error");
	}
}

/* "12 kB", "3456 MB": at most four digits. */
static void
fetch_amount(char *buf, size_t len, uint64_t n)
{
	static const char units[] = " kMGT";
	u_int i = 0;

	for (; n > 9999 && i < sizeof(units) - 2; i++)
		n = (n + 512) / 1024;
	snprintf(buf, len, "%ju %cB", (uintmax_t)n, units[i]);
}

static void
fetch_report(const struct fetch *f, const char *out, sbintime_t took)
{
	char size[24], rate[24];
	uint64_t us = MAX(sbttous(took), 1);

	fetch_amount(size, sizeof(size), f->f_got);
	fetch_amount(rate, sizeof(rate), f->f_got * 1000000 / us);
	printf("%-46.46s %10s %10sps    %02jus\n", out, size, rate, (uintmax_t)us / 1000000);
}

/* Transfer the body; the exit status. */
static int
fetch_body(struct fetch *f, const char *out, bool quiet)
{
	sbintime_t start = sbinuptime();
	int error;

	if (f->f_status / 100 != 2)
		return (cmd_err("fetch", 0, "%s: %s", f->f_name, fetch_status_text(f->f_status)));
	if (!f->f_console && !f->f_null) {
		error = memfs_create(out, &f->f_file);
		if (error != 0)
			return (cmd_err("fetch", error, "%s", out));
	}
	error = f->f_chunked ? fetch_chunks(f) : fetch_bytes(f, f->f_length);
	if (f->f_file != NULL)
		memfs_close(f->f_file);
	if (error == EIO && f->f_length >= 0)
		return (cmd_err("fetch", 0, "%s appears to be truncated: %ju/%jd bytes", out,
		    (uintmax_t)f->f_got, (intmax_t)f->f_length));
	if (error != 0)
		return (cmd_err("fetch", error, "%s", f->f_name));
	if (!quiet && !f->f_console)
		fetch_report(f, out, sbinuptime() - start);
	return (0);
}

/* The file that a URL goes to without -o: the last part of its path. */
static const char *
fetch_basename(const char *url)
{
	const char *p = url + 7, *last = NULL;

	for (; *p != '\0'; p++) {
		if (*p == '/')
			last = p + 1;
	}
	return (last == NULL || *last == '\0' ? "fetch.out" : last);
}

static int
fetch_run(struct fetch *f, const char *out, bool quiet)
{
	char path[FETCH_PATHMAX];
	int error, status;

	if (fetch_parse_url(f->f_name, &f->f_url) != 0)
		return (cmd_err("fetch", 0, "%s: invalid URL (http only)", f->f_name));
	if (out == NULL)
		out = fetch_basename(f->f_name);
	f->f_console = strcmp(out, "-") == 0;
	f->f_null = strcmp(out, "/dev/null") == 0;
	/* There is one directory: files in memory have absolute names. */
	snprintf(path, sizeof(path), "%s%s", out[0] == '/' ? "" : "/", out);
	f->f_buf = malloc(FETCH_BUF, M_INET, M_WAITOK);
	error = fetch_open(f);
	if (error != 0)
		status = cmd_err("fetch", error, "%s", f->f_name);
	else
		status = fetch_body(f, path, quiet);
	if (f->f_conn != NULL)
		tcpc_close(f->f_conn);
	free(f->f_buf, M_INET);
	return (status);
}

static int
cmd_fetch(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	const char *out = NULL;
	struct fetch *f;
	bool quiet = false;
	int ch, status;

	while ((ch = cmd_getopt(&g, argc, argv, "o:q")) != -1) {
		if (ch == 'o')
			out = g.optarg;
		else if (ch == 'q')
			quiet = true;
		else
			return (cmd_usage("fetch"));
	}
	if (argc - g.optind != 1)
		return (cmd_usage("fetch"));
	f = malloc(sizeof(*f), M_INET, M_WAITOK | M_ZERO);
	f->f_name = argv[g.optind];
	status = fetch_run(f, out, quiet);
	free(f, M_INET);
	return (status);
}
CONSOLE_NET_CMD(fetch, cmd_fetch, "get a file by HTTP",
    "fetch [-q] [-o file | -] URL");
