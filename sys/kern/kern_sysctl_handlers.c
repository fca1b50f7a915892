/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The handlers of sysctl(9) for values of the usual types, and the top of the tree.
 *
 * A handler copies the value out, and, when the request has a new one, in.  With arg1 NULL an
 * integer's value is arg2 and can not be changed.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/counter.h>
#include <sys/limits.h>
#include <sys/malloc.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <sys/time.h>

#include <vm/uma.h>

#include <kern/sysctl_tree.h>

#define	SYSCTL_TOP(name, number, descr)					\
	SYSCTL_ROOT_NODE(number, name, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, descr)

SYSCTL_TOP(sysctl, CTL_SYSCTL, "Sysctl internal magic");
SYSCTL_TOP(kern, CTL_KERN, "High kernel, proc, limits &c");
SYSCTL_TOP(vm, CTL_VM, "Virtual memory");
SYSCTL_TOP(vfs, CTL_VFS, "File system");
SYSCTL_TOP(net, CTL_NET, "Network");
SYSCTL_TOP(debug, CTL_DEBUG, "Debugging");
SYSCTL_TOP(hw, CTL_HW, "Hardware");
SYSCTL_TOP(machdep, CTL_MACHDEP, "Machine dependent");
SYSCTL_TOP(user, CTL_USER, "User-level");
SYSCTL_TOP(security, OID_AUTO, "Security");
SYSCTL_NODE(_kern, OID_AUTO, features, CTLFLAG_RD | CTLFLAG_MPSAFE, 0, "Kernel Features");
SYSCTL_NODE(_kern, KERN_IPC, ipc, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "IPC");
SYSCTL_NODE(_kern, OID_AUTO, sched, CTLFLAG_RD | CTLFLAG_MPSAFE, 0, "Scheduler");
SYSCTL_NODE(_hw, OID_AUTO, bus, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "Buses");

SYSCTL_STRING(_kern, KERN_OSTYPE, ostype, CTLFLAG_RD, __DECONST(char *, ostype), 0,
    "Operating system type");
SYSCTL_STRING(_kern, KERN_OSRELEASE, osrelease, CTLFLAG_RD, __DECONST(char *, osrelease), 0,
    "Operating system release");
SYSCTL_STRING(_kern, KERN_VERSION, version, CTLFLAG_RD, __DECONST(char *, version), 0,
    "Kernel version");
SYSCTL_STRING(_kern, OID_AUTO, ident, CTLFLAG_RD, __DECONST(char *, kern_ident), 0,
    "Kernel identifier");
SYSCTL_INT(_kern, KERN_OSRELDATE, osreldate, CTLFLAG_RD, SYSCTL_NULL_INT_PTR,
    __FreeBSD_version, "Kernel release date");

/* An integer of size bytes at arg1, or arg2 itself. */
static int
sysctl_integer(SYSCTL_HANDLER_ARGS, size_t size)
{
	int64_t value = arg2;
	int error;

	if (arg1 != NULL)
		memcpy(&value, arg1, size);
	error = SYSCTL_OUT(req, &value, size);
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (arg1 == NULL)
		return (EPERM);
	error = SYSCTL_IN(req, &value, size);
	if (error == 0)
		memcpy(arg1, &value, size);
	return (error);
}

int
sysctl_handle_8(SYSCTL_HANDLER_ARGS)
{
	return (sysctl_integer(oidp, arg1, arg2, req, sizeof(uint8_t)));
}

int
sysctl_handle_16(SYSCTL_HANDLER_ARGS)
{
	return (sysctl_integer(oidp, arg1, arg2, req, sizeof(uint16_t)));
}

int
sysctl_handle_32(SYSCTL_HANDLER_ARGS)
{
	return (sysctl_integer(oidp, arg1, arg2, req, sizeof(uint32_t)));
}

int
sysctl_handle_64(SYSCTL_HANDLER_ARGS)
{
	return (sysctl_integer(oidp, arg1, arg2, req, sizeof(uint64_t)));
}

int
sysctl_handle_int(SYSCTL_HANDLER_ARGS)
{
	return (sysctl_integer(oidp, arg1, arg2, req, sizeof(int)));
}

int
sysctl_handle_long(SYSCTL_HANDLER_ARGS)
{
	return (sysctl_integer(oidp, arg1, arg2, req, sizeof(long)));
}

int
sysctl_handle_bool(SYSCTL_HANDLER_ARGS)
{
	uint8_t value = arg1 != NULL ? *(bool *)arg1 : arg2 != 0;
	int error;

	error = SYSCTL_OUT(req, &value, sizeof(value));
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (arg1 == NULL)
		return (EPERM);
	error = SYSCTL_IN(req, &value, sizeof(value));
	if (error == 0)
		*(bool *)arg1 = value != 0;
	return (error);
}

/*
 * A string at arg1, in arg2 bytes; arg2 0 is one that can not be changed.
 */
int
sysctl_handle_string(SYSCTL_HANDLER_ARGS)
{
	size_t len;
	int error;

	if (arg1 == NULL)
		return (SYSCTL_OUT(req, "", 1));
	len = arg2 == 0 ? strlen(arg1) : strnlen(arg1, arg2 - 1);
	error = SYSCTL_OUT(req, arg1, len);
	if (error == 0)
		error = SYSCTL_OUT(req, "", 1);
	if (error != 0 || req->newptr == NULL)
		return (error);
	len = req->newlen - req->newidx;
	if (arg2 == 0 || len >= (size_t)arg2)
		return (EINVAL);
	error = SYSCTL_IN(req, arg1, len);
	((char *)arg1)[len] = '\0';
	return (error);
}

int
sysctl_handle_opaque(SYSCTL_HANDLER_ARGS)
{
	int error;

	error = SYSCTL_OUT(req, arg1, arg2);
	if (error != 0 || req->newptr == NULL)
		return (error);
	return (SYSCTL_IN(req, arg1, arg2));
}

/* Writing anything sets the counter to zero. */
int
sysctl_handle_counter_u64(SYSCTL_HANDLER_ARGS)
{
	counter_u64_t c = *(counter_u64_t *)arg1;
	uint64_t value = counter_u64_fetch(c);
	int error;

	error = SYSCTL_OUT(req, &value, sizeof(value));
	if (error != 0 || req->newptr == NULL)
		return (error);
	counter_u64_zero(c);
	return (0);
}

/* arg2 counters. */
int
sysctl_handle_counter_u64_array(SYSCTL_HANDLER_ARGS)
{
	counter_u64_t *c = arg1;
	uint64_t value;
	int error = 0;
	intmax_t i;

	for (i = 0; i < arg2 && error == 0; i++) {
		value = counter_u64_fetch(c[i]);
		error = SYSCTL_OUT(req, &value, sizeof(value));
	}
	if (error != 0 || req->newptr == NULL)
		return (error);
	for (i = 0; i < arg2; i++)
		counter_u64_zero(c[i]);
	return (0);
}

int
sysctl_handle_uma_zone_max(SYSCTL_HANDLER_ARGS)
{
	uma_zone_t zone = *(uma_zone_t *)arg1;
	int error, max;

	max = uma_zone_get_max(zone);
	error = sysctl_handle_int(oidp, &max, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	uma_zone_set_max(zone, max);
	return (0);
}

int
sysctl_handle_uma_zone_cur(SYSCTL_HANDLER_ARGS)
{
	int cur = uma_zone_get_cur(*(uma_zone_t *)arg1);

	return (sysctl_handle_int(oidp, &cur, 0, req));
}

/* The value at arg1 is in ticks, and is read and written in milliseconds. */
int
sysctl_msec_to_ticks(SYSCTL_HANDLER_ARGS)
{
	int error, ms, tt = *(int *)arg1;

	ms = (int)((int64_t)tt * 1000 / hz);
	error = sysctl_handle_int(oidp, &ms, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (ms < 0 || (int64_t)ms * hz / 1000 > INT_MAX)
		return (EINVAL);
	*(int *)arg1 = (int)((int64_t)ms * hz / 1000);
	return (0);
}

/* A time at arg1, to the reader a count of 1/per_sec seconds. */
static int
sysctl_sbintime(SYSCTL_HANDLER_ARGS, int per_sec)
{
	sbintime_t sbt = *(sbintime_t *)arg1;
	int64_t n;
	int error;

	n = per_sec == 1000 ? sbttoms(sbt) : sbttous(sbt);
	error = sysctl_handle_64(oidp, &n, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (n < 0)
		return (EINVAL);
	*(sbintime_t *)arg1 = per_sec == 1000 ? mstosbt(n) : ustosbt(n);
	return (0);
}

int
sysctl_msec_to_sbintime(SYSCTL_HANDLER_ARGS)
{
	return (sysctl_sbintime(oidp, arg1, arg2, req, 1000));
}

int
sysctl_usec_to_sbintime(SYSCTL_HANDLER_ARGS)
{
	return (sysctl_sbintime(oidp, arg1, arg2, req, 1000000));
}

int
sysctl_sec_to_timeval(SYSCTL_HANDLER_ARGS)
{
	struct timeval *tv = arg1;
	int error, secs = tv->tv_sec;

	error = sysctl_handle_int(oidp, &secs, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	tv->tv_sec = secs;
	return (0);
}

const struct sysctl_number sysctl_numbers[CTLTYPE + 1] = {
	[CTLTYPE_INT] = { sizeof(int), true },
	[CTLTYPE_UINT] = { sizeof(int), false },
	[CTLTYPE_LONG] = { sizeof(long), true },
	[CTLTYPE_ULONG] = { sizeof(long), false },
	[CTLTYPE_S64] = { 8, true },
	[CTLTYPE_U64] = { 8, false },
	[CTLTYPE_S32] = { 4, true },
	[CTLTYPE_U32] = { 4, false },
	[CTLTYPE_S16] = { 2, true },
	[CTLTYPE_U16] = { 2, false },
	[CTLTYPE_S8] = { 1, true },
	[CTLTYPE_U8] = { 1, false },
};

int
sysctl_parse(struct sysctl_oid *oidp, const char *value, void *raw, size_t *len)
{
	int type = oidp->oid_kind & CTLTYPE;
	bool is_signed = sysctl_numbers[type].is_signed;
	int bits = sysctl_numbers[type].size * NBBY;
	bool negative = *value == '-';
	uint64_t n;
	char *end;

	if (bits == 0)
		return (EINVAL);
	n = negative ? (uint64_t)strtoq(value, &end, 0) : strtouq(value, &end, 0);
	if (end == value || *end != '\0')
		return (EINVAL);
	if (bits < 64) {
		if (is_signed && ((int64_t)n < -((int64_t)1 << (bits - 1)) ||
		    (int64_t)n > ((int64_t)1 << (bits - 1)) - 1))
			return (ERANGE);
		if (!is_signed && (negative || n >> bits != 0))
			return (ERANGE);
	}
	memcpy(raw, &n, sysctl_numbers[type].size);
	*len = sysctl_numbers[type].size;
	return (0);
}
