/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * counter(9): counters that each CPU adds to without a lock, and that are summed when read.
 *
 * Each is an element of a per-CPU zone of 8 bytes.  A counter that is defined statically counts into
 * a dummy of the CPU's until its SYSINIT has run.
 */

#define	IN_SUBR_COUNTER_C

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/malloc.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/counter.h>
#include <vm/uma.h>

counter_u64_t
counter_u64_alloc(int flags)
{

	return (uma_zalloc_pcpu(pcpu_zone_8, flags | M_ZERO));
}

void
counter_u64_free(counter_u64_t c)
{

	uma_zfree_pcpu(pcpu_zone_8, c);
}

void
counter_u64_zero(counter_u64_t c)
{

	counter_u64_zero_inline(c);
}

uint64_t
counter_u64_fetch(counter_u64_t c)
{

	return (counter_u64_fetch_inline(c));
}

void
counter_u64_sysinit(void *arg)
{
	counter_u64_t *cp = arg;

	*cp = counter_u64_alloc(M_WAITOK);
}

void
counter_u64_sysuninit(void *arg)
{
	counter_u64_t *cp = arg;

	counter_u64_free(*cp);
}
