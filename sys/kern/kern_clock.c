/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The work of each clock tick.
 *
 * Every busy CPU has its own hardclock().  The first one to reach a tick advances ticks(9) for all
 * CPUs and winds up the time; a CPU that slept accounts for all the ticks that it missed at once.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/resource.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <sys/time.h>
#include <sys/timetc.h>

/* ticks is the low half of ticksl: one counter in two widths (sys/kernel.h). */
volatile long ticksl;
__asm(".globl ticks\n.set ticks, ticksl");

int stathz = 127;
int profhz = 8128;
int psratio = 64;
int profprocs;

DPCPU_DEFINE_STATIC(long, pcputicks);

static void
clock_account(struct thread *td, int cnt)
{
	int state = CP_SYS;

	if (TD_IS_IDLETHREAD(td))
		state = CP_IDLE;
	else if ((td->td_pflags & TDP_ITHREAD) != 0)
		state = CP_INTR;
	cpuid_to_pcpu[curcpu]->pc_cp_time[state] += cnt;
}

/* cnt ticks have passed on this CPU; called in the timer interrupt. */
void
hardclock(int cnt, int usermode __unused)
{
	struct thread *td = curthread;
	long *mine = DPCPU_PTR(pcputicks);
	long global, new;

	new = *mine += cnt;
	clock_account(td, cnt);
	sched_clock(td, cnt);
	global = ticksl;
	while (global < new) {
		if (atomic_fcmpset_long((volatile u_long *)&ticksl, (u_long *)&global, new)) {
			tc_ticktock(new - global);
			return;
		}
	}
}

/* A CPU has started: its ticks begin at the current one. */
void
hardclock_sync(int cpu)
{
	*DPCPU_ID_PTR(cpu, pcputicks) = ticksl;
}

void
read_cpu_time(long *cp_time)
{
	struct pcpu *pc;
	int cpu, i;

	memset(cp_time, 0, sizeof(long) * CPUSTATES);
	CPU_FOREACH(cpu) {
		pc = pcpu_find(cpu);
		for (i = 0; i < CPUSTATES; i++)
			cp_time[i] += pc->pc_cp_time[i];
	}
}

static int
sysctl_kern_cp_time(SYSCTL_HANDLER_ARGS)
{
	long cp_time[CPUSTATES];

	read_cpu_time(cp_time);
	return (SYSCTL_OUT(req, cp_time, sizeof(cp_time)));
}
SYSCTL_PROC(_kern, OID_AUTO, cp_time, CTLTYPE_LONG | CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, 0,
    sysctl_kern_cp_time, "L", "CPU time statistics: user, nice, system, interrupt, idle");

static void
initclocks(void *dummy __unused)
{
	cpu_initclocks();
}
SYSINIT(clocks, SI_SUB_CLOCKS, SI_ORDER_FIRST, initclocks, NULL);
