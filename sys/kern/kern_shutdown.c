/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The end of the system: kern_reboot(9), shutdown_nice(9), panic(9).
 *
 * An orderly end runs the event handlers shutdown_pre_sync, shutdown_post_sync and
 * shutdown_final; the last of them, of machine-dependent code and of this file, turn the machine
 * off, reset or halt it.
 *
 * A panic stops the other processors and the scheduler, prints the message and a backtrace, and
 * ends the guest at once by cpu_panic_exit(): nothing is written to disks after a panic.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/conf.h>
#include <sys/cons.h>
#include <sys/eventhandler.h>
#include <sys/kdb.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/reboot.h>
#include <sys/sched.h>
#include <sys/smp.h>

#include <machine/cpu.h>
#include <machine/pcb.h>
#include <machine/smp.h>

#include <kern/panic_exit_tree.h>

const char *panicstr;
bool	scheduler_stopped;
bool	panic_backtrace_all;

/* No processor has panicked yet. */
#define	NO_CPU	0xffffffffu
static volatile u_int panic_cpu = NO_CPU;

/* Requested by a power button or the hypervisor: the same as a command, but from any thread. */
void
shutdown_nice(int howto)
{
	kern_reboot(howto);
}

/*
 * End the system as howto says (RB_AUTOBOOT, RB_HALT, RB_POWEROFF).  Runs on the first processor,
 * which firmware expects.
 */
void
kern_reboot(int howto)
{
	rebooting = 1;
	if (!SCHEDULER_STOPPED() && !cold) {
		thread_lock(curthread);
		sched_bind(curthread, CPU_FIRST());
		thread_unlock(curthread);
	}
	EVENTHANDLER_INVOKE(shutdown_pre_sync, howto);
	EVENTHANDLER_INVOKE(shutdown_post_sync, howto);
	EVENTHANDLER_INVOKE(shutdown_final, howto);
	for (;;)
		cpu_halt();
}

static void
shutdown_halt(void *junk __unused, int howto)
{
	if (howto & RB_HALT) {
		printf("The operating system has halted.\n");
		for (;;)
			cpu_halt();
	}
}

/*
 * Power-off handlers of the platform come first; this is reached when there is none or it failed.
 */
static void
shutdown_reset(void *junk __unused, int howto)
{
	if (howto & RB_POWEROFF)
		printf("This machine can't be turned off; resetting.\n");
	else
		printf("Rebooting...\n");
	spinlock_enter();
	cpu_reset();
}

static void
shutdown_conf(void *unused __unused)
{
	EVENTHANDLER_REGISTER(shutdown_final, shutdown_halt, NULL, SHUTDOWN_PRI_LAST + 100);
	EVENTHANDLER_REGISTER(shutdown_final, shutdown_reset, NULL, SHUTDOWN_PRI_LAST + 200);
}
SYSINIT(shutdown_conf, SI_SUB_INTRINSIC, SI_ORDER_ANY, shutdown_conf, NULL);

static void
panic_stop_others(void)
{
	cpuset_t others;

	if (smp_started) {
		others = all_cpus;
		CPU_CLR(PCPU_GET(cpuid), &others);
		CPU_ANDNOT(&others, &others, __DEVOLATILE(cpuset_t *, &stopped_cpus));
		stop_cpus_hard(others);
	}
	scheduler_stopped = true;
}

/*
 * Only one processor panics: others stop here, to be halted by it.  It takes no locks from here on,
 * as those that it has stopped may own them.
 */
void
panic_begin(void)
{
	u_int me;

	spinlock_enter();
	me = PCPU_GET(cpuid);
	if (panic_cpu == me)
		return;
	if (atomic_cmpset_int(&panic_cpu, NO_CPU, me)) {
		panic_stop_others();
		return;
	}
	for (;;)
		cpustop_handler();
}

void
vpanic(const char *fmt, __va_list ap)
{
	static char buf[256];
	static bool begun;

	panic_begin();
	if (begun) {
		/* A fault while panicking: report it by the simplest means, and exit. */
		cnputs("panic while panicking: ");
		cnputs(fmt);
		cnputs("\n");
		cpu_panic_exit();
	}
	begun = true;
	vsnprintf(buf, sizeof(buf), fmt, ap);
	panicstr = buf;
	cn_mute = 0;
	printf("panic: %s\n", buf);
	printf("cpuid = %d\n", PCPU_GET(cpuid));
	printf("time = %jd\n", (intmax_t)time_second);
	kdb_backtrace();
	if (panic_backtrace_all)
		kdb_backtrace_all();
	(void)doadump(FALSE);
	cpu_panic_exit();
}

void
panic(const char *fmt, ...)
{
	__va_list ap;

	__builtin_va_start(ap, fmt);
	vpanic(fmt, ap);
}
