/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A suspension of the domain is invisible to a thread.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>

#include <dev/xen/xen_var.h>

#include "xtest.h"

#define	LIFE_PATIENCE	300	/* seconds until dom0 has suspended us */

/* Keeps its CPU busy, so that the suspension interrupts this thread. */
static void
bound_thread(void *arg, int cpu)
{
	u_int life = *(u_int *)arg;
	sbintime_t end = sbinuptime() + LIFE_PATIENCE * SBT_1S;

	while (xen_life == life && sbinuptime() < end)
		kern_yield(PUSER);
	KT_TRUE(xen_life != life);
	KT_EQ(curcpu, cpu);
	KT_EQ(sched_is_bound(curthread), 1);
}

static void
bound_threads_stay(void)
{
	struct ktest_thread *kt[MAXCPU];
	u_int life = xen_life;
	int cpu;

	CPU_FOREACH(cpu)
		kt[cpu] = ktest_spawn(bound_thread, &life, cpu, cpu, 0);
	CPU_FOREACH(cpu)
		ktest_join(kt[cpu]);
}

const struct ktest_case xtest_life_cases[] = {
	{ "life.bound_threads_stay", bound_threads_stay },
	{ NULL, NULL }
};
