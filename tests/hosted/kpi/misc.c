/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * malloc(9), printf(9), panic(9), sysctl(9) and what else a driver touches in passing.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/sysctl.h>

#include <machine/stdarg.h>

#include <dev/pv/dev/pv_dev.h>

#include "../host/host.h"
#include "kpi.h"

int bootverbose;
const char *panicstr;
int kpi_mallocs;
struct malloc_type *kpi_type;
int kpi_mallocs_of_type;
int kpi_sysctls;
int kpi_lines;
bool kpi_quiet;
int kpi_fail_after;
int kpi_fail_more;
bool kpi_no_threads;
bool kpi_no_memory;
void (*kpi_pause)(void);
char kpi_line[256];
char kpi_line_before[256];
void (*kpi_said)(const char *line);
const char *kpi_tunable;
const char *kpi_tunable_value;
const char *kpi_static_node;
const char *kpi_sysctl_of_others;
uint64_t kpi_delayed;
sbintime_t kpi_paused;

/* Programs with newbus or threads have their own. */
#define	KPI_OTHERWISE	__attribute__((__weak__))

#define	KPI_MAX_OIDS	1024

/* Those that exist: in the order they were added, which a name's parent is before. */
static struct kpi_oid {
	struct sysctl_oid ko_oid;
	struct sysctl_ctx_list *ko_ctx;	/* NULL: it was removed */
	bool		 ko_is_static;	/* what a context has of it is not to be removed */
	char		 ko_name[48];
} kpi_oids[KPI_MAX_OIDS];
static u_int kpi_noids;

struct sysctl_oid sysctl___hw;

#ifdef __aarch64__
/* Of machine/atomic.h: instructions that every processor has. */
bool lse_supported;
#endif

static char kpi_a_device;

device_t
kpi_device(void)
{

	return ((device_t)&kpi_a_device);
}

/* What breaks a ring whose owner no test has. */
__attribute__((__weak__)) void
pv_dev_need_reset(struct pv_dev *pvd __unused, u_int queue __unused, int error __unused)
{
}

bool
kpi_fail_now(void)
{

	if (kpi_no_memory)
		return (true);
	if (kpi_fail_after == 0 || --kpi_fail_after > 0)
		return (false);
	if (kpi_fail_more > 0) {
		kpi_fail_more--;
		kpi_fail_after = 1;
	}
	return (true);
}

void *
malloc_aligned(size_t size, size_t align, struct malloc_type *type, int flags)
{
	void *p;

	CHECK((flags & (M_WAITOK | M_NOWAIT)) != 0 &&
	    (flags & (M_WAITOK | M_NOWAIT)) != (M_WAITOK | M_NOWAIT), "flags 0x%x", flags);
	if ((flags & M_NOWAIT) != 0 && kpi_fail_now())
		return (NULL);
	p = host_alloc(size, align);
	/* What was not asked to be zero is made to be anything but. */
	memset(p, (flags & M_ZERO) != 0 ? 0 : 0xa5, size);
	kpi_mallocs++;
	kpi_mallocs_of_type += type == kpi_type;
	return (p);
}

#undef malloc
void *
malloc(size_t size, struct malloc_type *type, int flags)
{

	return (malloc_aligned(size, sizeof(void *), type, flags));
}

void *
mallocarray(size_t nmemb, size_t size, struct malloc_type *type, int flags)
{

	CHECK(nmemb <= SIZE_MAX / size, "%zu of %zu bytes", nmemb, size);
	return (malloc_aligned(nmemb * size, sizeof(void *), type, flags));
}

void
free(void *p, struct malloc_type *type)
{

	if (p != NULL) {
		kpi_mallocs--;
		kpi_mallocs_of_type -= type == kpi_type;
	}
	host_free(p);
}

/* Physical addresses are any, and in one piece. */
void *
contigmalloc(unsigned long size, struct malloc_type *type, int flags, vm_paddr_t low, vm_paddr_t high,
    unsigned long align, vm_paddr_t boundary)
{

	CHECK(low == 0 && high == ~(vm_paddr_t)0 && boundary == 0, "limits");
	CHECK(align == PAGE_SIZE && size % PAGE_SIZE == 0, "%lu bytes, aligned to %lu", size, align);
	return (malloc_aligned(size, align, type, flags));
}

void
contigfree(void *p, unsigned long size, struct malloc_type *type)
{

	CHECK(p != NULL && size % PAGE_SIZE == 0, "%lu bytes", size);
	free(p, type);
}

void
malloc_init(void *type __unused)
{
}

void
malloc_uninit(void *type __unused)
{
}

static void
kpi_say(const char *fmt, va_list ap)
{

	va_list copy;

	kpi_lines++;
	memcpy(kpi_line_before, kpi_line, sizeof(kpi_line));
	va_copy(copy, ap);
	vsnprintf(kpi_line, sizeof(kpi_line), fmt, copy);
	va_end(copy);
	if (kpi_said != NULL)
		kpi_said(kpi_line);
	if (!kpi_quiet)
		host_log(fmt, ap);
}

int
printf(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	kpi_say(fmt, ap);
	va_end(ap);
	return (0);
}

KPI_OTHERWISE int
device_printf(device_t dev, const char *fmt, ...)
{
	va_list ap;

	CHECK(dev != NULL, "a message of no device");
	va_start(ap, fmt);
	kpi_say(fmt, ap);
	va_end(ap);
	return (0);
}

KPI_OTHERWISE void
panic(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	host_log(fmt, ap);
	va_end(ap);
	host_fail(__FILE__, __LINE__, "panic", "see above");
}

void
module_register_init(const void *arg __unused)
{
}

/* Each device is foo3, unless a test has another number. */
int kpi_unit = 3;

KPI_OTHERWISE const char *
device_get_name(device_t dev __unused)
{

	return ("foo");
}

KPI_OTHERWISE int
device_get_unit(device_t dev __unused)
{

	return (kpi_unit);
}

/* The caller's copy, which counts as memory of malloc(9), and never fails. */
char *
kern_getenv(const char *name)
{
	char *copy;
	size_t n;

	if (kpi_tunable == NULL || strcmp(name, kpi_tunable) != 0)
		return (NULL);
	n = strlen(kpi_tunable_value) + 1;
	copy = host_alloc(n, 1);
	memcpy(copy, kpi_tunable_value, n);
	kpi_mallocs++;
	return (copy);
}

void
freeenv(char *env)
{

	if (env == NULL)
		return;
	host_free(env);
	kpi_mallocs--;
}

/* The build machine's C library may have none. */
size_t
strlcpy(char *dst, const char *src, size_t size)
{
	size_t i;

	for (i = 0; src[i] != '\0'; i++) {
		if (i + 1 < size)
			dst[i] = src[i];
	}
	if (size > 0)
		dst[MIN(i, size - 1)] = '\0';
	return (i);
}

int
getenv_string(const char *name, char *data, int size)
{

	if (kpi_tunable == NULL || strcmp(name, kpi_tunable) != 0)
		return (0);
	strlcpy(data, kpi_tunable_value, size);
	return (1);
}

size_t
strlcat(char *dst, const char *src, size_t size)
{
	size_t n = strlen(dst);

	CHECK(n < size, "no string");
	return (n + strlcpy(dst + n, src, size - n));
}

char *
strdup(const char *s, struct malloc_type *type)
{
	char *copy = malloc(strlen(s) + 1, type, M_WAITOK);

	memcpy(copy, s, strlen(s) + 1);
	return (copy);
}

int
vasprintf(char **textp, struct malloc_type *type, const char *fmt, va_list ap)
{
	char line[256];
	int n = vsnprintf(line, sizeof(line), fmt, ap);

	*textp = strdup(line, type);
	return (n);
}

/* All are counted; those for which there is room can be read, by kpi_sysctl(). */
struct sysctl_oid *
sysctl_add_oid(struct sysctl_ctx_list *ctx, struct sysctl_oid_list *parent, int nbr __unused,
    const char *name, int kind, void *arg1, intmax_t arg2, int (*handler)(SYSCTL_HANDLER_ARGS),
    const char *fmt, const char *descr, const char *label __unused)
{
	static struct kpi_oid other;
	bool node = (kind & CTLTYPE) == CTLTYPE_NODE;
	struct kpi_oid *ko;

	CHECK(name[0] != '\0' && descr != NULL && descr[0] != '\0' && (node || (handler != NULL &&
	    (arg1 != NULL || ((kind & CTLTYPE) == CTLTYPE_STRING && handler != sysctl_handle_string)))),
	    "%s", name);
	CHECK(ctx == NULL || ctx->tqh_last == &ctx->tqh_first, "%s: a context that is none", name);
	CHECK((kind & CTLFLAG_RD) != 0 && (node || (kind & CTLTYPE) != 0) && (node ||
	    handler == sysctl_handle_int || handler == sysctl_handle_string ||
	    (kind & CTLFLAG_MPSAFE) != 0), "%s: kind 0x%x", name, kind);
	/* Of a variable the second argument is not looked at. */
	CHECK(arg1 == NULL || arg2 == 0 || (handler != sysctl_handle_int &&
	    handler != sysctl_handle_16 && handler != sysctl_handle_64 &&
	    handler != sysctl_handle_bool), "%s: another value", name);
	kpi_sysctls++;
	while (kpi_noids > 0 && kpi_oids[kpi_noids - 1].ko_ctx == NULL)
		kpi_noids--;
	ko = kpi_noids < KPI_MAX_OIDS ? &kpi_oids[kpi_noids++] : &other;
	ko->ko_is_static = node && kpi_static_node != NULL && strcmp(name, kpi_static_node) == 0;
	ko->ko_ctx = ctx;
	strlcpy(ko->ko_name, name, sizeof(ko->ko_name));
	ko->ko_oid = (struct sysctl_oid){ .oid_parent = parent,
	    .oid_kind = kind | (ko->ko_is_static ? 0 : CTLFLAG_DYN), .oid_arg1 = arg1,
	    .oid_arg2 = arg2, .oid_name = ko->ko_name, .oid_handler = handler, .oid_fmt = fmt };
	return (&ko->ko_oid);
}

/* What SYSCTL_OUT() does. */
static int
kpi_sysctl_out(struct sysctl_req *req, const void *value, size_t len)
{
	size_t n = req->oldptr == NULL ? 0 : MIN(len, req->oldlen - req->oldidx);

	if (n > 0)
		memcpy((char *)req->oldptr + req->oldidx, value, n);
	req->oldidx += len;
	return (req->oldptr != NULL && n < len ? ENOMEM : 0);
}

/* Is this the sysctl of a path, "node.name", below a device's or a set's own node? */
static bool
kpi_oid_is(const struct sysctl_oid *oid, const char *path, size_t len)
{
	size_t n = strlen(oid->oid_name);
	const struct sysctl_oid *node;
	bool top;

	node = __containerof(oid->oid_parent, const struct sysctl_oid, oid_children);
	top = (const void *)node < (const void *)kpi_oids ||
	    (const void *)node >= (const void *)&kpi_oids[KPI_MAX_OIDS];
	if (n > len || strncmp(path + len - n, oid->oid_name, n) != 0)
		return (false);
	if (n == len || top)
		return (n == len && top);
	return (path[len - n - 1] == '.' && kpi_oid_is(node, path, len - n - 1));
}

int
kpi_sysctl(const char *path, void *old, size_t *len, void *new, size_t newlen)
{
	struct sysctl_req req = { .oldptr = old, .oldlen = len == NULL ? 0 : *len, .newptr = new,
	    .newlen = newlen, .oldfunc = kpi_sysctl_out };
	struct sysctl_oid *oid;
	u_int i;
	int error;

	for (i = kpi_noids; i-- > 0;) {
		oid = &kpi_oids[i].ko_oid;
		if (kpi_oids[i].ko_ctx == NULL || oid->oid_handler == NULL ||
		    !kpi_oid_is(oid, path, strlen(path)))
			continue;
		if (new != NULL && (oid->oid_kind & CTLFLAG_WR) == 0)
			return (EPERM);
		error = oid->oid_handler(oid, oid->oid_arg1, oid->oid_arg2, &req);
		if (len != NULL)
			*len = req.oldidx;
		return (error);
	}
	return (ENOENT);
}

uint64_t
kpi_sysctl_value(const char *path)
{
	uint64_t value = 0;
	size_t len = sizeof(value);
	int error = kpi_sysctl(path, &value, &len, NULL, 0);

	CHECK(error == 0 && len > 0, "%s: error %d", path, error);
	return (value);
}

int
kpi_sysctl_set(const char *path, int value)
{

	return (kpi_sysctl(path, NULL, NULL, &value, sizeof(value)));
}

int
sysctl_ctx_init(struct sysctl_ctx_list *ctx)
{

	TAILQ_INIT(ctx);

	return (0);
}

int
sysctl_ctx_free(struct sysctl_ctx_list *ctx)
{
	u_int i;

	CHECK(ctx->tqh_last == &ctx->tqh_first, "a context that is none");
	for (i = 0; i < kpi_noids; i++) {
		if (kpi_oids[i].ko_ctx != ctx)
			continue;
		CHECK(!kpi_oids[i].ko_is_static, "%s is removed", kpi_oids[i].ko_name);
		kpi_oids[i].ko_ctx = NULL;
		kpi_sysctls--;
	}
	return (0);
}

/* It stays, and the context forgets it. */
int
sysctl_ctx_entry_del(struct sysctl_ctx_list *ctx, struct sysctl_oid *oidp)
{
	static struct sysctl_ctx_list none;
	struct kpi_oid *ko = __containerof(oidp, struct kpi_oid, ko_oid);

	CHECK(ko->ko_ctx == ctx, "%s is of another context", ko->ko_name);
	ko->ko_ctx = &none;
	return (0);
}

int
kernel_sysctlbyname(struct thread *td __unused, char *name, void *old __unused,
    size_t *oldlenp __unused, void *new __unused, size_t newlen __unused, size_t *retval __unused,
    int flags __unused)
{

	return (kpi_sysctl_of_others != NULL && strcmp(name, kpi_sysctl_of_others) == 0 ? 0 : ENOENT);
}

int
sysctl_handle_int(SYSCTL_HANDLER_ARGS)
{
	const int constant = arg2;
	int error;

	error = kpi_sysctl_out(req, arg1 != NULL ? arg1 : &constant, sizeof(int));
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (arg1 == NULL)
		return (EPERM);
	if (req->newlen != sizeof(int))
		return (EINVAL);
	memcpy(arg1, req->newptr, sizeof(int));
	return (0);
}

int
sysctl_handle_string(SYSCTL_HANDLER_ARGS)
{

	return (req->newptr != NULL ? ENOTSUP : kpi_sysctl_out(req, arg1, strlen(arg1) + 1));
}

int
sysctl_handle_16(SYSCTL_HANDLER_ARGS)
{

	return (req->newptr != NULL ? ENOTSUP : kpi_sysctl_out(req, arg1, sizeof(uint16_t)));
}

int
sysctl_handle_64(SYSCTL_HANDLER_ARGS)
{

	return (req->newptr != NULL ? ENOTSUP : kpi_sysctl_out(req, arg1, sizeof(uint64_t)));
}

int
sysctl_handle_bool(SYSCTL_HANDLER_ARGS)
{
	const uint8_t value = *(const bool *)arg1;

	return (req->newptr != NULL ? ENOTSUP : kpi_sysctl_out(req, &value, sizeof(value)));
}

/* Time passes, and no sleep is left out for it. */
void
DELAY(int us)
{

	kpi_delayed += us;
}

KPI_OTHERWISE int
pause_sbt(const char *wmesg __unused, sbintime_t sbt, sbintime_t pr __unused, int flags __unused)
{

	kpi_paused += sbt;
	if (kpi_pause != NULL)
		kpi_pause();
	return (0);
}
