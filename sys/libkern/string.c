/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Strings: the functions of string(3) that the kernel has.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/ctype.h>
#include <sys/libkern.h>
#include <sys/malloc.h>

size_t
(strlen)(const char *s)
{
	const char *p = s;

	while (*p != '\0')
		p++;
	return (p - s);
}

size_t
strnlen(const char *s, size_t max)
{
	size_t n = 0;

	while (n < max && s[n] != '\0')
		n++;
	return (n);
}

int
(strcmp)(const char *a, const char *b)
{

	while (*a != '\0' && *a == *b) {
		a++;
		b++;
	}
	return ((u_char)*a - (u_char)*b);
}

int
strncmp(const char *a, const char *b, size_t n)
{

	for (; n > 0; n--, a++, b++) {
		if (*a != *b || *a == '\0')
			return ((u_char)*a - (u_char)*b);
	}
	return (0);
}

int
strcasecmp(const char *a, const char *b)
{

	while (*a != '\0' && tolower((u_char)*a) == tolower((u_char)*b)) {
		a++;
		b++;
	}
	return (tolower((u_char)*a) - tolower((u_char)*b));
}

int
strncasecmp(const char *a, const char *b, size_t n)
{

	for (; n > 0; n--, a++, b++) {
		if (tolower((u_char)*a) != tolower((u_char)*b) || *a == '\0')
			return (tolower((u_char)*a) - tolower((u_char)*b));
	}
	return (0);
}

char *
(strcpy)(char * __restrict to, const char * __restrict from)
{
	char *p = to;

	while ((*p++ = *from++) != '\0')
		;
	return (to);
}

char *
strncpy(char * __restrict to, const char * __restrict from, size_t n)
{
	size_t i;

	for (i = 0; i < n && from[i] != '\0'; i++)
		to[i] = from[i];
	for (; i < n; i++)
		to[i] = '\0';
	return (to);
}

size_t
strlcpy(char * __restrict to, const char * __restrict from, size_t size)
{
	size_t len = strlen(from);
	size_t n;

	if (size > 0) {
		n = MIN(len, size - 1);
		memcpy(to, from, n);
		to[n] = '\0';
	}
	return (len);
}

size_t
strlcat(char * __restrict to, const char * __restrict from, size_t size)
{
	size_t used = strnlen(to, size);

	if (used == size)
		return (used + strlen(from));
	return (used + strlcpy(to + used, from, size - used));
}

char *
strcat(char * __restrict to, const char * __restrict from)
{

	strcpy(to + strlen(to), from);
	return (to);
}

char *
strchrnul(const char *s, int c)
{

	while (*s != '\0' && *s != (char)c)
		s++;
	return (__DECONST(char *, s));
}

char *
strchr(const char *s, int c)
{
	char *p = strchrnul(s, c);

	return (*p == (char)c ? p : NULL);
}

char *
strrchr(const char *s, int c)
{
	const char *last = NULL;

	for (;; s++) {
		if (*s == (char)c)
			last = s;
		if (*s == '\0')
			return (__DECONST(char *, last));
	}
}

size_t
strspn(const char *s, const char *set)
{
	size_t n = 0;

	while (s[n] != '\0' && strchr(set, s[n]) != NULL)
		n++;
	return (n);
}

size_t
strcspn(const char *s, const char *set)
{
	size_t n = 0;

	while (s[n] != '\0' && strchr(set, s[n]) == NULL)
		n++;
	return (n);
}

char *
strstr(const char *s, const char *find)
{
	size_t n = strlen(find);

	for (; strncmp(s, find, n) != 0; s++) {
		if (*s == '\0')
			return (NULL);
	}
	return (__DECONST(char *, s));
}

char *
strsep(char **sp, const char *set)
{
	char *start = *sp;
	size_t n;

	if (start == NULL)
		return (NULL);
	n = strcspn(start, set);
	if (start[n] == '\0')
		*sp = NULL;
	else {
		start[n] = '\0';
		*sp = start + n + 1;
	}
	return (start);
}

char *
strdup_flags(const char *s, struct malloc_type *type, int flags)
{
	size_t size = strlen(s) + 1;
	char *copy = malloc(size, type, flags);

	if (copy != NULL)
		memcpy(copy, s, size);
	return (copy);
}

char *
(strdup)(const char *s, struct malloc_type *type)
{

	return (strdup_flags(s, type, M_WAITOK));
}

char *
strndup(const char *s, size_t max, struct malloc_type *type)
{
	size_t n = strnlen(s, max);
	char *copy = malloc(n + 1, type, M_WAITOK);

	memcpy(copy, s, n);
	copy[n] = '\0';
	return (copy);
}

void *
memchr(const void *b, int c, size_t len)
{
	const u_char *p = b;

	for (; len > 0; len--, p++) {
		if (*p == (u_char)c)
			return (__DECONST(void *, p));
	}
	return (NULL);
}

void
explicit_bzero(void *b, size_t len)
{

	memset(b, 0, len);
	/* The memory is used afterwards, for all that the compiler knows. */
	__asm __volatile("" : : "r" (b) : "memory");
}
