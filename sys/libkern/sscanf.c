/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * sscanf(3): numbers, strings, characters and sets, with widths, suppression and the usual length
 * modifiers; no floating point.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/ctype.h>
#include <sys/libkern.h>

#include <machine/stdarg.h>

struct scan {
	const char	*sc_in;
	const char	*sc_start;
	int		sc_count;	/* conversions that were stored */
};

struct scan_spec {
	bool	suppress;
	int	width;		/* 0: none given */
	int	size;		/* bytes of an integer */
};

static const char *
scan_spec(const char *fmt, struct scan_spec *sp)
{
	sp->suppress = *fmt == '*';
	if (sp->suppress)
		fmt++;
	for (sp->width = 0; isdigit(*fmt); fmt++)
		sp->width = sp->width * 10 + (*fmt - '0');
	for (sp->size = sizeof(int);; fmt++) {
		if (*fmt == 'h')
			sp->size /= 2;
		else if (*fmt == 'l' || *fmt == 'j' || *fmt == 'q' || *fmt == 't' || *fmt == 'z')
			sp->size = sizeof(intmax_t);
		else
			return (fmt);
	}
}

static void
scan_store(void *to, uint64_t n, int size)
{
	/* Little endian: the low bytes come first. */
	memcpy(to, &n, size);
}

/* An integer in base (0: as its prefix says); false when there is none. */
static bool
scan_number(struct scan *sc, const struct scan_spec *sp, int base, void *to)
{
	char buf[72], *end;
	size_t n = 0, max = sizeof(buf) - 1;
	uint64_t value;

	if (sp->width != 0)
		max = MIN(max, (size_t)sp->width);
	while (n < max && (isalpha(sc->sc_in[n]) || isdigit(sc->sc_in[n]) || (n == 0 &&
	    (sc->sc_in[0] == '-' || sc->sc_in[0] == '+')))) {
		buf[n] = sc->sc_in[n];
		n++;
	}
	buf[n] = '\0';
	value = buf[0] == '-' ? (uint64_t)strtoq(buf, &end, base) : strtouq(buf, &end, base);
	if (end == buf)
		return (false);
	sc->sc_in += end - buf;
	if (to != NULL)
		scan_store(to, value, sp->size);
	return (true);
}

/* %s: what is not space; %[set]: what is in the set (or not, with ^). */
static bool
scan_string(struct scan *sc, const struct scan_spec *sp, const char *set, size_t setlen,
    bool negate, char *to)
{
	int n, max = sp->width != 0 ? sp->width : INT32_MAX;

	for (n = 0; n < max && sc->sc_in[n] != '\0'; n++) {
		if (set == NULL ? isspace(sc->sc_in[n]) :
		    (memchr(set, sc->sc_in[n], setlen) != NULL) == negate)
			break;
		if (to != NULL)
			to[n] = sc->sc_in[n];
	}
	if (n == 0)
		return (false);
	if (to != NULL)
		to[n] = '\0';
	sc->sc_in += n;
	return (true);
}

static bool
scan_chars(struct scan *sc, const struct scan_spec *sp, char *to)
{
	size_t n = MAX(sp->width, 1);

	if (strnlen(sc->sc_in, n) < n)
		return (false);
	if (to != NULL)
		memcpy(to, sc->sc_in, n);
	sc->sc_in += n;
	return (true);
}

static int
scan_base(int conv)
{
	switch (conv) {
	case 'd':
	case 'u':
		return (10);
	case 'i':
		return (0);
	case 'o':
		return (8);
	case 'x':
	case 'X':
	case 'p':
		return (16);
	default:
		return (-1);
	}
}

/* The conversion at *fmtp, which is moved behind it; false ends the scan. */
static bool
scan_convert(struct scan *sc, const char **fmtp, struct scan_spec *sp, void *to)
{
	const char *fmt = *fmtp, *set;
	int conv = *fmt++, base = scan_base(conv);
	bool negate, ok;

	if (conv != 'c' && conv != '[')
		while (isspace(*sc->sc_in))
			sc->sc_in++;
	if (base >= 0) {
		if (conv == 'p')
			sp->size = sizeof(void *);
		ok = scan_number(sc, sp, base, to);
	} else if (conv == 's')
		ok = scan_string(sc, sp, NULL, 0, false, to);
	else if (conv == 'c')
		ok = scan_chars(sc, sp, to);
	else if (conv == '[') {
		negate = *fmt == '^';
		if (negate)
			fmt++;
		/* A bracket that comes first is one of the set. */
		for (set = fmt++; *fmt != '\0' && *fmt != ']'; fmt++)
			continue;
		ok = *fmt == ']' && scan_string(sc, sp, set, fmt - set, negate, to);
		fmt++;
	} else
		ok = false;
	*fmtp = fmt;
	return (ok);
}

int
vsscanf(const char *str, char const *fmt, va_list ap)
{
	struct scan sc = { .sc_in = str, .sc_start = str };
	struct scan_spec sp;
	void *to;

	while (*fmt != '\0') {
		if (isspace(*fmt)) {
			while (isspace(*sc.sc_in))
				sc.sc_in++;
			fmt++;
			continue;
		}
		if (*fmt != '%' || fmt[1] == '%') {
			fmt += *fmt == '%';
			if (*sc.sc_in != *fmt)
				break;
			sc.sc_in++;
			fmt++;
			continue;
		}
		fmt = scan_spec(fmt + 1, &sp);
		to = sp.suppress ? NULL : va_arg(ap, void *);
		if (*fmt == 'n') {
			if (to != NULL)
				scan_store(to, sc.sc_in - sc.sc_start, sp.size);
			fmt++;
			continue;
		}
		if (*sc.sc_in == '\0' && sc.sc_count == 0)
			return (-1);
		if (!scan_convert(&sc, &fmt, &sp, to))
			break;
		sc.sc_count += to != NULL;
	}
	return (sc.sc_count);
}

int
sscanf(const char *str, char const *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsscanf(str, fmt, ap);
	va_end(ap);
	return (n);
}
