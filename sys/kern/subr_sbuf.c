/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * sbuf(9): strings that are put together piece by piece.
 *
 * s_buf has room for s_size - 1 characters and the end.  When they are used up the buffer is
 * drained (if it has a drain), extended (SBUF_AUTOEXTEND), or the error is ENOMEM from then on.
 * sbuf_printf() is in subr_prf.c, next to the formats.
 *
 * Gaps.  No sections (sbuf_start_section()) and no user memory.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/ctype.h>
#include <sys/malloc.h>
#include <sys/sbuf.h>

#include <machine/stdarg.h>

static MALLOC_DEFINE(M_SBUF, "sbuf", "string buffers");

#define	SBUF_MINSIZE	128

static int
sbuf_mflags(const struct sbuf *s)
{
	return ((s->s_flags & SBUF_NOWAIT) != 0 ? M_NOWAIT : M_WAITOK);
}

struct sbuf *
sbuf_new(struct sbuf *s, char *buf, int length, int flags)
{
	int mflags = (flags & SBUF_NOWAIT) != 0 ? M_NOWAIT : M_WAITOK;
	bool dynamic = s == NULL;

	KASSERT(length >= 0, ("%s: negative length", __func__));
	KASSERT((flags & ~SBUF_USRFLAGMSK) == 0, ("%s: flags %#x", __func__, flags));
	if (dynamic) {
		s = malloc(sizeof(*s), M_SBUF, mflags);
		if (s == NULL)
			return (NULL);
	}
	memset(s, 0, sizeof(*s));
	s->s_flags = flags | (dynamic ? SBUF_DYNSTRUCT : 0);
	s->s_buf = buf;
	s->s_size = length;
	s->s_rec_off = -1;
	if (buf != NULL)
		return (s);
	if (length == 0 || (flags & SBUF_AUTOEXTEND) != 0)
		s->s_size = MAX(length + 1, SBUF_MINSIZE);
	s->s_buf = malloc(s->s_size, M_SBUF, mflags);
	if (s->s_buf == NULL) {
		if (dynamic)
			free(s, M_SBUF);
		return (NULL);
	}
	s->s_flags |= SBUF_DYNAMIC;
	return (s);
}

int
sbuf_get_flags(struct sbuf *s)
{
	return (s->s_flags & SBUF_USRFLAGMSK);
}

void
sbuf_clear_flags(struct sbuf *s, int flags)
{
	s->s_flags &= ~(flags & SBUF_USRFLAGMSK);
}

void
sbuf_set_flags(struct sbuf *s, int flags)
{
	s->s_flags |= flags & SBUF_USRFLAGMSK;
}

void
sbuf_clear(struct sbuf *s)
{
	s->s_flags &= ~SBUF_FINISHED;
	s->s_error = 0;
	s->s_len = 0;
}

/* Cuts the string to pos characters. */
int
sbuf_setpos(struct sbuf *s, ssize_t pos)
{
	KASSERT(pos >= 0 && pos < s->s_size, ("%s: position %zd of %zd", __func__, pos,
	    s->s_size));
	if (pos < 0 || pos > s->s_len)
		return (-1);
	s->s_len = pos;
	return (0);
}

void
sbuf_set_drain(struct sbuf *s, sbuf_drain_func *func, void *ctx)
{
	KASSERT(func == s->s_drain_func || s->s_len == 0, ("%s: not empty", __func__));
	s->s_drain_func = func;
	s->s_drain_arg = ctx;
}

/* Drains what there is, as often as it takes; an error sticks. */
int
sbuf_drain(struct sbuf *s)
{
	int n;

	while (s->s_len > 0 && s->s_error == 0) {
		n = s->s_drain_func(s->s_drain_arg, s->s_buf, s->s_len);
		if (n <= 0) {
			s->s_error = n == 0 ? EDEADLK : -n;
			break;
		}
		s->s_len -= n;
		memmove(s->s_buf, s->s_buf + n, s->s_len);
	}
	return (s->s_error);
}

/* Makes room for at least one more character. */
static void
sbuf_more(struct sbuf *s)
{
	size_t size;
	char *buf;

	if (s->s_drain_func != NULL) {
		sbuf_drain(s);
		return;
	}
	if ((s->s_flags & SBUF_AUTOEXTEND) == 0) {
		s->s_error = ENOMEM;
		return;
	}
	size = MAX(s->s_size * 2, SBUF_MINSIZE);
	buf = malloc(size, M_SBUF, sbuf_mflags(s));
	if (buf == NULL) {
		s->s_error = ENOMEM;
		return;
	}
	memcpy(buf, s->s_buf, s->s_len);
	if ((s->s_flags & SBUF_DYNAMIC) != 0)
		free(s->s_buf, M_SBUF);
	s->s_buf = buf;
	s->s_size = size;
	s->s_flags |= SBUF_DYNAMIC;
}

static void
sbuf_append(struct sbuf *s, const char *str, size_t len)
{
	size_t n;

	KASSERT((s->s_flags & SBUF_FINISHED) == 0, ("sbuf %p is finished", s));
	while (len > 0 && s->s_error == 0) {
		if (s->s_len >= s->s_size - 1) {
			sbuf_more(s);
			continue;
		}
		n = MIN(len, (size_t)(s->s_size - 1 - s->s_len));
		memcpy(s->s_buf + s->s_len, str, n);
		s->s_len += n;
		str += n;
		len -= n;
	}
}

int
sbuf_bcat(struct sbuf *s, const void *buf, size_t len)
{
	sbuf_append(s, buf, len);
	return (s->s_error != 0 ? -1 : 0);
}

int
sbuf_bcpy(struct sbuf *s, const void *buf, size_t len)
{
	sbuf_clear(s);
	return (sbuf_bcat(s, buf, len));
}

int
sbuf_cat(struct sbuf *s, const char *str)
{
	return (sbuf_bcat(s, str, strlen(str)));
}

int
sbuf_cpy(struct sbuf *s, const char *str)
{
	sbuf_clear(s);
	return (sbuf_cat(s, str));
}

int
sbuf_putc(struct sbuf *s, int c)
{
	char ch = c;

	sbuf_append(s, &ch, 1);
	return (s->s_error != 0 ? -1 : 0);
}

int
sbuf_printf(struct sbuf *s, const char *fmt, ...)
{
	va_list ap;
	int error;

	va_start(ap, fmt);
	error = sbuf_vprintf(s, fmt, ap);
	va_end(ap);
	return (error);
}

/* Ends the string with a newline unless it does already or is empty. */
int
sbuf_nl_terminate(struct sbuf *s)
{
	if (s->s_len > 0 && s->s_buf[s->s_len - 1] != '\n')
		return (sbuf_putc(s, '\n'));
	return (s->s_error != 0 ? -1 : 0);
}

int
sbuf_trim(struct sbuf *s)
{
	KASSERT(s->s_drain_func == NULL, ("%s: has a drain", __func__));
	if (s->s_error != 0)
		return (-1);
	while (s->s_len > 0 && isspace(s->s_buf[s->s_len - 1]))
		s->s_len--;
	return (0);
}

int
sbuf_error(const struct sbuf *s)
{
	return (s->s_error);
}

int
sbuf_finish(struct sbuf *s)
{
	s->s_buf[s->s_len] = '\0';
	if ((s->s_flags & SBUF_INCLUDENUL) != 0)
		s->s_len++;
	if (s->s_drain_func != NULL)
		sbuf_drain(s);
	s->s_flags |= SBUF_FINISHED;
	return (s->s_error);
}

char *
sbuf_data(struct sbuf *s)
{
	KASSERT((s->s_flags & SBUF_FINISHED) != 0, ("sbuf %p is not finished", s));
	return (s->s_buf);
}

ssize_t
sbuf_len(struct sbuf *s)
{
	if (s->s_error != 0)
		return (-1);
	if ((s->s_flags & SBUF_FINISHED) != 0 && (s->s_flags & SBUF_INCLUDENUL) != 0)
		return (s->s_len - 1);
	return (s->s_len);
}

int
sbuf_done(const struct sbuf *s)
{
	return ((s->s_flags & SBUF_FINISHED) != 0);
}

void
sbuf_delete(struct sbuf *s)
{
	bool dynamic = (s->s_flags & SBUF_DYNSTRUCT) != 0;

	if ((s->s_flags & SBUF_DYNAMIC) != 0)
		free(s->s_buf, M_SBUF);
	memset(s, 0, sizeof(*s));
	if (dynamic)
		free(s, M_SBUF);
}

int
sbuf_count_drain(void *arg, const char *data __unused, int len)
{
	size_t *total = arg;

	*total += len;
	return (len);
}

/* The layout of hexdump(9): offset, bytes in hexadecimal, and as characters. */
void
sbuf_hexdump(struct sbuf *sb, const void *ptr, int length, const char *hdr, int flags)
{
	const u_char *p = ptr;
	int cols, delim, i, j;

	delim = (flags & HD_DELIM_MASK) >> 8;
	if (delim == 0)
		delim = ' ';
	cols = flags & HD_COLUMN_MASK;
	if (cols == 0)
		cols = 16;
	for (i = 0; i < length; i += cols) {
		if (hdr != NULL)
			sbuf_cat(sb, hdr);
		if ((flags & HD_OMIT_COUNT) == 0)
			sbuf_printf(sb, "%04x  ", i);
		for (j = 0; j < cols && (flags & HD_OMIT_HEX) == 0; j++) {
			if (i + j < length)
				sbuf_printf(sb, "%c%02x", delim, p[i + j]);
			else
				sbuf_cat(sb, "   ");
		}
		if ((flags & HD_OMIT_CHARS) == 0) {
			sbuf_cat(sb, "  |");
			for (j = 0; j < cols; j++)
				sbuf_putc(sb, i + j >= length ? ' ' :
				    p[i + j] >= ' ' && p[i + j] <= '~' ? p[i + j] : '.');
			sbuf_putc(sb, '|');
		}
		sbuf_putc(sb, '\n');
	}
}

void
hexdump(const void *ptr, int length, const char *hdr, int flags)
{
	struct sbuf sb;
	char line[128];

	sbuf_new(&sb, line, sizeof(line), SBUF_FIXEDLEN);
	sbuf_set_drain(&sb, sbuf_printf_drain, NULL);
	sbuf_hexdump(&sb, ptr, length, hdr, flags);
	sbuf_finish(&sb);
	sbuf_delete(&sb);
}
