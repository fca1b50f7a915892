/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Numbers in text: the strtol(3) family, and tables for hexadecimal and decimal digits.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/ctype.h>
#include <sys/libkern.h>
#include <sys/limits.h>

char const hex2ascii_data[] = "0123456789abcdefghijklmnopqrstuvwxyz";

static int
digit(char c)
{

	if (isdigit((u_char)c))
		return (c - '0');
	if (isalpha((u_char)c))
		return (tolower((u_char)c) - 'a' + 10);
	return (INT_MAX);
}

/*
 * Sign, base prefix and digits.  The magnitude saturates at UINT64_MAX.  *end is the first character
 * that is not of the number, or s if there is none.
 */
static uint64_t
number(const char *s, const char **end, int base, bool *negative)
{
	const char *p = s;
	uint64_t value = 0;
	bool any = false;
	int d;

	while (isspace((u_char)*p))
		p++;
	*negative = *p == '-';
	if (*p == '-' || *p == '+')
		p++;
	if ((base == 0 || base == 16) && p[0] == '0' && (p[1] == 'x' || p[1] == 'X') &&
	    digit(p[2]) < 16) {
		p += 2;
		base = 16;
	} else if (base == 0)
		base = *p == '0' ? 8 : 10;
	for (; (d = digit(*p)) < base; p++) {
		if (value > (UINT64_MAX - d) / base)
			value = UINT64_MAX;
		else
			value = value * base + d;
		any = true;
	}
	*end = any ? p : s;
	return (value);
}

static uint64_t
number_unsigned(const char *s, char **end, int base)
{
	const char *stop;
	uint64_t value;
	bool negative;

	value = number(s, &stop, base, &negative);
	if (end != NULL)
		*end = __DECONST(char *, stop);
	return (negative && value != UINT64_MAX ? -value : value);
}

static int64_t
number_signed(const char *s, char **end, int base)
{
	const char *stop;
	uint64_t value;
	bool negative;

	value = number(s, &stop, base, &negative);
	if (end != NULL)
		*end = __DECONST(char *, stop);
	if (negative)
		return (value > (uint64_t)INT64_MAX ? INT64_MIN : -(int64_t)value);
	return (MIN(value, (uint64_t)INT64_MAX));
}

long
strtol(const char *s, char **end, int base)
{

	return (number_signed(s, end, base));
}

u_long
strtoul(const char *s, char **end, int base)
{

	return (number_unsigned(s, end, base));
}

quad_t
strtoq(const char *s, char **end, int base)
{

	return (number_signed(s, end, base));
}

u_quad_t
strtouq(const char *s, char **end, int base)
{

	return (number_unsigned(s, end, base));
}
