/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The kernel environment: kern_getenv(9), the loader's tunables.
 *
 * It begins as one block of strings "name=value" that the start-up code makes from the kernel's
 * command line (init_static_kenv()).  Once memory can be allocated the strings are copied to
 * separate allocations in an array, which can change.  When a name occurs more than once the last
 * one counts.
 *
 * Locking.  kenv_lock guards the array from SI_SUB_KMEM on; before that there is one thread.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/eventhandler.h>
#include <sys/kenv.h>
#include <sys/limits.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>

#include <kern/kenv_tree.h>

static MALLOC_DEFINE(M_KENV, "kenv", "kernel environment");

#define	KENV_MAX	512		/* entries */

bool dynamic_kenv;
struct mtx kenv_lock;
char *kern_envp;		/* The block, its end marked by an empty string. */
char *md_envp;
char **kenvp;

void
init_static_kenv(char *buf, size_t len __unused)
{
	kern_envp = buf;
	md_envp = buf;
}

/* The value in "name=value", if that is the name. */
static char *
kenv_match(char *entry, const char *name, size_t len)
{
	if (strncmp(entry, name, len) != 0 || entry[len] != '=')
		return (NULL);
	return (entry + len + 1);
}

static char *
kenv_find_static(const char *name)
{
	size_t len = strlen(name);
	char *s, *value = NULL;

	if (kern_envp == NULL)
		return (NULL);
	for (s = kern_envp; *s != '\0' && value == NULL; s += strlen(s) + 1)
		value = kenv_match(s, name, len);
	return (value);
}

/* The value in the array, and in *slot its place; with kenv_lock held. */
static char *
kenv_find(const char *name, int *slot)
{
	size_t len = strlen(name);
	char *value;
	int i;

	mtx_assert(&kenv_lock, MA_OWNED);
	for (i = 0; i < KENV_MAX && kenvp[i] != NULL; i++) {
		value = kenv_match(kenvp[i], name, len);
		if (value == NULL)
			continue;
		if (slot != NULL)
			*slot = i;
		return (value);
	}
	return (NULL);
}

/* Copies the value to buf, cut to size.  False when there is none of that name. */
static bool
kenv_copy(const char *name, char *buf, int size)
{
	char *value;

	if (!dynamic_kenv) {
		value = kenv_find_static(name);
		if (value != NULL)
			strlcpy(buf, value, size);
		return (value != NULL);
	}
	mtx_lock(&kenv_lock);
	value = kenv_find(name, NULL);
	if (value != NULL)
		strlcpy(buf, value, size);
	mtx_unlock(&kenv_lock);
	return (value != NULL);
}

/* The value, to be freed with freeenv(9); or NULL. */
char *
kern_getenv(const char *name)
{
	char *value, *copy = NULL;
	size_t len = 0, need;

	if (!dynamic_kenv)
		return (kenv_find_static(name));
	/* It may grow while memory for the copy is allocated. */
	for (;;) {
		mtx_lock(&kenv_lock);
		value = kenv_find(name, NULL);
		need = value != NULL ? strlen(value) + 1 : 0;
		if (value != NULL && need <= len)
			memcpy(copy, value, need);
		mtx_unlock(&kenv_lock);
		if (value != NULL && need <= len)
			return (copy);
		free(copy, M_KENV);
		if (value == NULL)
			return (NULL);
		len = need;
		copy = malloc(len, M_KENV, M_WAITOK);
	}
}

void
freeenv(char *env)
{
	if (dynamic_kenv && env != NULL)
		free(env, M_KENV);
}

int
testenv(const char *name)
{
	char c;

	return (kenv_copy(name, &c, 1));
}

/* As documented in the manual, these two return -1 when they fail. */
int
kern_setenv(const char *name, const char *value)
{
	char *entry, *old = NULL;
	int i, size;

	size = strlen(name) + 1 + strlen(value) + 1;
	if (strlen(name) >= KENV_MNAMELEN || strlen(value) >= KENV_MAXVALUE || *name == '\0' ||
	    strchr(name, '=') != NULL)
		return (-1);
	KASSERT(dynamic_kenv, ("%s before memory can be allocated", __func__));
	entry = malloc(size, M_KENV, M_WAITOK);
	snprintf(entry, size, "%s=%s", name, value);
	mtx_lock(&kenv_lock);
	if (kenv_find(name, &i) != NULL)
		old = kenvp[i];
	else
		for (i = 0; i < KENV_MAX && kenvp[i] != NULL; i++)
			continue;
	if (i < KENV_MAX)
		kenvp[i] = entry;
	mtx_unlock(&kenv_lock);
	free(old, M_KENV);
	if (i == KENV_MAX) {
		free(entry, M_KENV);
		return (-1);
	}
	EVENTHANDLER_INVOKE(setenv, name);
	return (0);
}

int
kern_unsetenv(const char *name)
{
	char *old = NULL;
	int i;

	mtx_lock(&kenv_lock);
	if (kenv_find(name, &i) != NULL) {
		old = kenvp[i];
		for (; i < KENV_MAX - 1 && kenvp[i + 1] != NULL; i++)
			kenvp[i] = kenvp[i + 1];
		kenvp[i] = NULL;
	}
	mtx_unlock(&kenv_lock);
	if (old == NULL)
		return (-1);
	free(old, M_KENV);
	EVENTHANDLER_INVOKE(unsetenv, name);
	return (0);
}

/*
 * A string of the array for name=value.  A name that exists already gets a suffix, _1 or the next
 * free one: a loader may pass several devices by one name.
 */
static char *
kenv_entry(const char *name, size_t len, const char *value)
{
	size_t size = len + sizeof("_999=") + strlen(value);
	char *entry = malloc(size, M_KENV, M_WAITOK);
	int i;

	snprintf(entry, size, "%.*s", (int)len, name);
	mtx_lock(&kenv_lock);
	for (i = 1; kenv_find(entry, NULL) != NULL && i <= KENV_MAX; i++)
		snprintf(entry, size, "%.*s_%d", (int)len, name, i);
	mtx_unlock(&kenv_lock);
	strlcat(entry, "=", size);
	strlcat(entry, value, size);
	return (entry);
}

static void
kenv_make_dynamic(void *data __unused)
{
	char *s, *eq;
	int n = 0;

	mtx_init(&kenv_lock, "kernel environment", NULL, MTX_DEF);
	kenvp = malloc(KENV_MAX * sizeof(*kenvp), M_KENV, M_WAITOK | M_ZERO);
	for (s = kern_envp; s != NULL && *s != '\0'; s += strlen(s) + 1) {
		eq = strchr(s, '=');
		if (eq == NULL || eq == s || n == KENV_MAX - 1)
			continue;
		kenvp[n] = kenv_entry(s, eq - s, eq + 1);
		n++;
	}
	dynamic_kenv = true;
}
SYSINIT(kenv_dynamic, SI_SUB_KMEM + 1, SI_ORDER_FIRST, kenv_make_dynamic, NULL);

int
getenv_string(const char *name, char *data, int size)
{
	return (kenv_copy(name, data, size));
}

/* s as a number with an optional suffix k, m, g or t; true when all of it is one. */
static bool
kenv_number(const char *s, uint64_t *np, const char **endp)
{
	static const char suffixes[] = "kmgt";
	const char *p;
	char *end;
	uint64_t n;

	n = (*s == '-') ? (uint64_t)strtoq(s, &end, 0) : strtouq(s, &end, 0);
	if (end == s)
		return (false);
	if (*end != '\0') {
		p = strchr(suffixes, *end | 0x20);
		if (p != NULL && *p != '\0') {
			n <<= 10 * (p - suffixes + 1);
			end++;
		}
	}
	*np = n;
	*endp = end;
	return (true);
}

static bool
kenv_getnumber(const char *name, uint64_t *np)
{
	char buf[KENV_MVALLEN + 1];
	const char *end;

	return (kenv_copy(name, buf, sizeof(buf)) && kenv_number(buf, np, &end) &&
	    *end == '\0');
}

/*
 * Numbers separated by commas into an array of elements of type_size bytes; *psize is set to the
 * bytes that were filled.
 */
int
getenv_array(const char *name, void *data, int size, int *psize, int type_size,
    bool allow_signed)
{
	char buf[KENV_MVALLEN + 1];
	const char *s = buf;
	uint64_t n;
	int done = 0;

	if (!kenv_copy(name, buf, sizeof(buf)))
		return (0);
	while (*s != '\0') {
		while (*s == ' ' || *s == ',')
			s++;
		if (*s == '\0')
			break;
		if ((*s == '-' && !allow_signed) || done + type_size > size ||
		    !kenv_number(s, &n, &s))
			return (0);
		/* Little endian: the low bytes come first. */
		memcpy((char *)data + done, &n, type_size);
		done += type_size;
	}
	*psize = done;
	return (done != 0);
}

/* getenv_int() and its like: the value of the variable, when it is set and a number. */
#define	GETENV_NUMBER(func, type)					\
int									\
func(const char *name, type *data)					\
{									\
	uint64_t n;							\
									\
	if (!kenv_getnumber(name, &n))					\
		return (0);						\
	*data = (type)n;						\
	return (1);							\
}

GETENV_NUMBER(getenv_int, int)
GETENV_NUMBER(getenv_uint, unsigned int)
GETENV_NUMBER(getenv_long, long)
GETENV_NUMBER(getenv_ulong, unsigned long)
GETENV_NUMBER(getenv_int64, int64_t)
GETENV_NUMBER(getenv_uint64, uint64_t)
GETENV_NUMBER(getenv_quad, quad_t)

int
getenv_bool(const char *name, bool *data)
{
	char buf[8];

	if (!kenv_copy(name, buf, sizeof(buf)))
		return (0);
	if (strcmp(buf, "1") == 0 || strcasecmp(buf, "true") == 0)
		*data = true;
	else if (strcmp(buf, "0") == 0 || strcasecmp(buf, "false") == 0)
		*data = false;
	else {
		printf("%s: invalid value for boolean: %s\n", name, buf);
		return (0);
	}
	return (1);
}

bool
getenv_is_true(const char *name)
{
	bool val;

	return (getenv_bool(name, &val) != 0 && val);
}

bool
getenv_is_false(const char *name)
{
	bool val;

	return (getenv_bool(name, &val) != 0 && !val);
}

/* What TUNABLE_INT(9) and its like run at boot and when a module is loaded. */
#define	TUNABLE_INIT(kind)						\
void									\
tunable_##kind##_init(const void *data)					\
{									\
	const struct tunable_##kind *d = data;				\
									\
	getenv_##kind(d->path, d->var);					\
}

TUNABLE_INIT(int)
TUNABLE_INIT(long)
TUNABLE_INIT(ulong)
TUNABLE_INIT(int64)
TUNABLE_INIT(uint64)
TUNABLE_INIT(quad)
TUNABLE_INIT(bool)

void
tunable_str_init(const void *data)
{
	const struct tunable_str *d = data;

	getenv_string(d->path, d->var, d->size);
}

bool
kenv_next(const char *after, char entry[KENV_MAXENTRY])
{
	const char *best = NULL;
	int i;

	mtx_lock(&kenv_lock);
	for (i = 0; i < KENV_MAX && kenvp[i] != NULL; i++) {
		if (strcmp(kenvp[i], after) > 0 && (best == NULL || strcmp(kenvp[i], best) < 0))
			best = kenvp[i];
	}
	if (best != NULL)
		strlcpy(entry, best, KENV_MAXENTRY);
	mtx_unlock(&kenv_lock);
	return (best != NULL);
}
