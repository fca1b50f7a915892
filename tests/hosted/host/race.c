/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What a program under ThreadSanitizer needs besides host.c: fences, and volatile accesses, as
 * c11/machine/atomic.h has them.  This file is not instrumented itself.
 */

#include <stddef.h>

#include "host.h"

/* ThreadSanitizer's own: what an acquire or a release of this address orders. */
extern void __tsan_acquire(void *);
extern void __tsan_release(void *);
extern void AnnotateIgnoreReadsBegin(const char *, int);
extern void AnnotateIgnoreReadsEnd(const char *, int);
extern void AnnotateIgnoreWritesBegin(const char *, int);
extern void AnnotateIgnoreWritesEnd(const char *, int);
extern void AnnotateIgnoreSyncBegin(const char *, int);
extern void AnnotateIgnoreSyncEnd(const char *, int);
extern const char *__tsan_default_options(void);

extern void host_race_load(const volatile void *);
extern _Bool host_race_armed(void);
extern void host_race_acquire(void);
extern void host_race_release(void);

/*
 * ThreadSanitizer orders by the exact address, while the two sides of a packed ring access its
 * flags as part of words of different lengths: so the word of 64 bits counts as well.
 */
#define	RACE_WORD(p)	((void *)((unsigned long)(p) & ~7UL))

/* Loads since the last acquire fence, the latest ones. */
#define	RACE_LOADS	4

static __thread const volatile void *race_loads[RACE_LOADS];
static __thread unsigned int race_nloads;
static __thread _Bool race_armed;

/* A report is a failure, at once: what comes after it is about the same. */
const char *
__tsan_default_options(void)
{

	return ("halt_on_error=1:report_thread_leaks=0:report_destroy_locked=0");
}

/* A load that has no order of its own: an acquire fence may follow. */
void
host_race_load(const volatile void *p)
{

	race_loads[race_nloads++ % RACE_LOADS] = p;
}

/* Is a store to be a release?  Once for each release fence. */
_Bool
host_race_armed(void)
{
	_Bool armed = race_armed;

	race_armed = 0;
	return (armed);
}

void
host_race_acquire(void)
{
	unsigned int i;

	for (i = 0; i < race_nloads && i < RACE_LOADS; i++) {
		__tsan_acquire((void *)race_loads[i]);
		if (RACE_WORD(race_loads[i]) != race_loads[i])
			__tsan_acquire(RACE_WORD(race_loads[i]));
	}
	race_nloads = 0;
}

void
host_race_release(void)
{

	race_armed = 1;
}

static void
race_written(void *p)
{

	if (!host_race_armed())
		return;
	__tsan_release(p);
	if (RACE_WORD(p) != p)
		__tsan_release(RACE_WORD(p));
}

void
host_race_ignore(_Bool ignore)
{

	if (ignore) {
		AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
		AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
		AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
	} else {
		AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
		AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
		AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
	}
}

/* Calls of the compiler's: before a volatile access. */
#define	RACE_VOLATILE(n)						\
extern void __tsan_volatile_read##n(void *);				\
extern void __tsan_volatile_write##n(void *);				\
void									\
__tsan_volatile_read##n(void *p)					\
{									\
									\
	host_race_load(p);						\
}									\
void									\
__tsan_volatile_write##n(void *p)					\
{									\
									\
	race_written(p);						\
}

RACE_VOLATILE(1)
RACE_VOLATILE(2)
RACE_VOLATILE(4)
RACE_VOLATILE(8)
RACE_VOLATILE(16)
