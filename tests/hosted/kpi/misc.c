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

#include "../host/host.h"
#include "kpi.h"

int bootverbose;
int kpi_mallocs;
int kpi_sysctls;
int kpi_lines;
bool kpi_quiet;
int kpi_fail_after;

static char kpi_a_device;

device_t
kpi_device(void)
{

	return ((device_t)&kpi_a_device);
}

bool
kpi_fail_now(void)
{

	return (kpi_fail_after > 0 && --kpi_fail_after == 0);
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

	kpi_lines++;
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

/* Nodes are counted, and not kept. */
struct sysctl_oid *
sysctl_add_oid(struct sysctl_ctx_list *ctx __unused, struct sysctl_oid_list *parent __unused,
    int nbr __unused, const char *name, int kind __unused, void *arg1, intmax_t arg2 __unused,
    int (*handler)(SYSCTL_HANDLER_ARGS), const char *fmt __unused, const char *descr,
    const char *label __unused)
{

	CHECK(name[0] != '\0' && descr != NULL && descr[0] != '\0' && arg1 != NULL &&
	    handler != NULL, "%s", name);
	kpi_sysctls++;
	return (NULL);
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
sysctl_handle_int(SYSCTL_HANDLER_ARGS)
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
	return (0);
}
