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
int kpi_sysctls;
int kpi_lines;
bool kpi_quiet;
int kpi_fail_after;
bool kpi_no_threads;
bool kpi_no_memory;
void (*kpi_pause)(void);
char kpi_line[256];
const char *kpi_tunable;
const char *kpi_tunable_value;

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

	return (kpi_no_memory || (kpi_fail_after > 0 && --kpi_fail_after == 0));
}

void *
malloc_aligned(size_t size, size_t align, struct malloc_type *type __unused, int flags)
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
free(void *p, struct malloc_type *type __unused)
{

	if (p != NULL)
		kpi_mallocs--;
	host_free(p);
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
	va_copy(copy, ap);
	vsnprintf(kpi_line, sizeof(kpi_line), fmt, copy);
	va_end(copy);
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

int
device_printf(device_t dev, const char *fmt, ...)
{
	va_list ap;

	CHECK(dev != NULL, "a message of no device");
	va_start(ap, fmt);
	kpi_say(fmt, ap);
	va_end(ap);
	return (0);
}

void
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

/* Each device is foo3. */
const char *
device_get_name(device_t dev __unused)
{

	return ("foo");
}

int
device_get_unit(device_t dev __unused)
{

	return (3);
}

char *
kern_getenv(const char *name)
{

	return (kpi_tunable != NULL && strcmp(name, kpi_tunable) == 0 ?
	    __DECONST(char *, kpi_tunable_value) : NULL);
}

void
freeenv(char *env __unused)
{
}

int
getenv_string(const char *name __unused, char *data __unused, int size __unused)
{

	return (0);
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

size_t
strlcat(char *dst, const char *src, size_t size)
{
	size_t n = strlen(dst);

	CHECK(n < size, "no string");
	return (n + strlcpy(dst + n, src, size - n));
}

/* All are counted, and one stands for each. */
struct sysctl_oid *
sysctl_add_oid(struct sysctl_ctx_list *ctx __unused, struct sysctl_oid_list *parent __unused,
    int nbr __unused, const char *name, int kind, void *arg1, intmax_t arg2 __unused,
    int (*handler)(SYSCTL_HANDLER_ARGS), const char *fmt __unused, const char *descr,
    const char *label __unused)
{
	static struct sysctl_oid oid;
	bool node = (kind & CTLTYPE) == CTLTYPE_NODE;

	CHECK(name[0] != '\0' && descr != NULL && descr[0] != '\0' && (node || (arg1 != NULL &&
	    handler != NULL)), "%s", name);
	CHECK((kind & CTLFLAG_RD) != 0 && (node || (kind & CTLTYPE) != 0) && (node ||
	    handler == sysctl_handle_int || handler == sysctl_handle_string ||
	    (kind & CTLFLAG_MPSAFE) != 0), "%s: kind 0x%x", name, kind);
	kpi_sysctls++;
	return (&oid);
}

int
sysctl_ctx_init(struct sysctl_ctx_list *ctx __unused)
{

	return (0);
}

int
sysctl_ctx_free(struct sysctl_ctx_list *ctx __unused)
{

	return (0);
}

int
sysctl_ctx_entry_del(struct sysctl_ctx_list *ctx __unused, struct sysctl_oid *oidp __unused)
{

	return (0);
}

int
kernel_sysctlbyname(struct thread *td __unused, char *name __unused, void *old __unused,
    size_t *oldlenp __unused, void *new __unused, size_t newlen __unused, size_t *retval __unused,
    int flags __unused)
{

	return (ENOENT);
}

/* Only what is written is of interest. */
int
sysctl_handle_int(SYSCTL_HANDLER_ARGS)
{

	if (req->newptr == NULL)
		return (0);
	if (req->newlen != sizeof(int))
		return (EINVAL);
	memcpy(arg1, req->newptr, sizeof(int));
	return (0);
}

int
sysctl_handle_string(SYSCTL_HANDLER_ARGS)
{

	return (ENOTSUP);
}

int
sysctl_handle_16(SYSCTL_HANDLER_ARGS)
{

	return (ENOTSUP);
}

int
sysctl_handle_64(SYSCTL_HANDLER_ARGS)
{

	return (ENOTSUP);
}

/* Time passes, and no sleep is left out for it. */
void
DELAY(int us __unused)
{
}

int
pause_sbt(const char *wmesg __unused, sbintime_t sbt __unused, sbintime_t pr __unused,
    int flags __unused)
{

	if (kpi_pause != NULL)
		kpi_pause();
	return (0);
}
