/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The rest of libkern: decimal tables, random(9), and searches that few need.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/ctype.h>
#include <sys/libkern.h>

/* Two decimal digits a byte; 0 where the byte is no such number. */
#define	BCD_ROW(t)	t * 10, t * 10 + 1, t * 10 + 2, t * 10 + 3, t * 10 + 4,		\
			t * 10 + 5, t * 10 + 6, t * 10 + 7, t * 10 + 8, t * 10 + 9
#define	NO_BCD		0, 0, 0, 0, 0, 0

u_char const bcd2bin_data[LIBKERN_LEN_BCD2BIN] = {
	BCD_ROW(0), NO_BCD, BCD_ROW(1), NO_BCD, BCD_ROW(2), NO_BCD, BCD_ROW(3), NO_BCD,
	BCD_ROW(4), NO_BCD, BCD_ROW(5), NO_BCD, BCD_ROW(6), NO_BCD, BCD_ROW(7), NO_BCD,
	BCD_ROW(8), NO_BCD, BCD_ROW(9),
};

#define	BIN_ROW(t)	t * 16, t * 16 + 1, t * 16 + 2, t * 16 + 3, t * 16 + 4,		\
			t * 16 + 5, t * 16 + 6, t * 16 + 7, t * 16 + 8, t * 16 + 9

u_char const bin2bcd_data[LIBKERN_LEN_BIN2BCD] = {
	BIN_ROW(0), BIN_ROW(1), BIN_ROW(2), BIN_ROW(3), BIN_ROW(4), BIN_ROW(5), BIN_ROW(6),
	BIN_ROW(7), BIN_ROW(8), BIN_ROW(9),
};

/* 31 random bits. */
u_long
random(void)
{
	return (arc4random() & 0x7fffffff);
}

/* Compares in a time that does not depend on where the difference is. */
int
timingsafe_bcmp(const void *b1, const void *b2, size_t n)
{
	const u_char *p = b1, *q = b2;
	u_char diff = 0;

	while (n-- > 0)
		diff |= *p++ ^ *q++;
	return (diff != 0);
}

/* The first byte that is not c. */
void *
memcchr(const void *s, int c, size_t n)
{
	const u_char *p = s;

	for (; n > 0; n--, p++)
		if (*p != (u_char)c)
			return (__DECONST(u_char *, p));
	return (NULL);
}

void *
memmem(const void *l, size_t l_len, const void *s, size_t s_len)
{
	const char *p = l;

	for (; l_len >= s_len; l_len--, p++)
		if (memcmp(p, s, s_len) == 0)
			return (__DECONST(char *, p));
	return (NULL);
}

/* strstr(3) in no more than n characters of s. */
char *
strnstr(const char *s, const char *find, size_t n)
{
	size_t len = strlen(find);

	for (; n >= len; n--, s++) {
		if (strncmp(s, find, len) == 0)
			return (__DECONST(char *, s));
		if (*s == '\0')
			break;
	}
	return (NULL);
}

char *
strcasestr(const char *s, const char *find)
{
	size_t len = strlen(find);

	for (;; s++) {
		if (strncasecmp(s, find, len) == 0)
			return (__DECONST(char *, s));
		if (*s == '\0')
			return (NULL);
	}
}

char *
strncat(char *dst, const char *src, size_t n)
{
	char *d = dst + strlen(dst);

	while (n-- > 0 && *src != '\0')
		*d++ = *src++;
	*d = '\0';
	return (dst);
}

/* Whether buf holds a string: characters and an end within len bytes. */
int
strvalid(const char *buf, size_t len)
{
	return (strnlen(buf, len) < len);
}
