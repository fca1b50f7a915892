/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * How many queues, and the CPU of each.  Users of a device with n queues take
 * that of their CPU's number modulo n, and a queue's interrupt goes to the
 * first of its CPUs.
 */

#ifndef _DEV_PV_PV_CPU_H_
#define	_DEV_PV_PV_CPU_H_

#include <sys/param.h>
#include <sys/smp.h>

/*
 * How many of those offered, but at least one: as many as are wanted, or with 0
 * one for each CPU.
 */
static inline u_int
pv_queue_count(u_int offered, int wanted)
{
	u_int n = wanted > 0 ? wanted : mp_ncpus;

	return (MIN(n, MAX(offered, 1)));
}

/* The CPU of queue i of n; -1: any. */
static inline int
pv_queue_cpu(u_int i, u_int n)
{
	u_int cpu;

	if (n == 1)
		return (-1);
	/* A CPU's number need not be less than how many there are. */
	CPU_FOREACH(cpu) {
		if (cpu % n == i)
			return (cpu);
	}
	return (-1);
}

#endif /* !_DEV_PV_PV_CPU_H_ */
