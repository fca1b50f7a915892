/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The part of kdb(9) that a kernel without a debugger has: backtraces, and the sysctls that crash
 * the kernel on purpose, so that the handling of a crash can be tested.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kdb.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/stack.h>
#include <sys/sysctl.h>

#include <kern/panic_exit_tree.h>

u_char kdb_active;

void
kdb_backtrace(void)
{
	struct stack st;

	printf("KDB: stack backtrace:\n");
	stack_save(&st);
	stack_print_ddb(&st);
}

void
kdb_backtrace_thread(struct thread *td)
{
	struct stack st;
	int error;

	printf("KDB: stack backtrace of thread %d:\n", td->td_tid);
	thread_lock(td);
	error = stack_save_td(&st, td);
	thread_unlock(td);
	if (error == 0)
		stack_print_ddb(&st);
	else
		printf("it is running\n");
}

/* One thread: number, name, state, and its stack in a line. */
static void
kdb_trace_short(struct thread *td)
{
	struct stack st;

	printf("%6d %s ", td->td_tid, td->td_name);
	if (TD_IS_RUNNING(td))
		printf("[CPU %d] ", td->td_oncpu);
	else if (TD_ON_LOCK(td))
		printf("[*%s] ", td->td_lockname != NULL ? td->td_lockname : "?");
	else if (TD_ON_SLEEPQ(td))
		printf("[%s] ", td->td_wmesg != NULL ? td->td_wmesg : "?");
	else
		printf("[%s] ", TD_ON_RUNQ(td) ? "runnable" : "waiting for work");
	if (stack_save_td(&st, td) == 0)
		stack_print_short_ddb(&st);
	else
		printf("\n");
}

void
kdb_backtrace_all(void)
{
	struct proc *p;
	struct thread *td;

	MPASS(SCHEDULER_STOPPED());
	FOREACH_PROC_IN_SYSTEM(p)
		FOREACH_THREAD_IN_PROC(p, td)
			if (!TD_IS_IDLETHREAD(td) || TD_IS_RUNNING(td))
				kdb_trace_short(td);
}

/* There is no debugger to enter: print why it was requested, and where. */
void
kdb_enter(const char *why, const char *msg)
{
	printf("KDB: enter: %s (%s)\n", msg, why);
	kdb_backtrace();
}

static SYSCTL_NODE(_debug, OID_AUTO, kdb, CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, "Crashing on purpose");

/* Writing anything but 0 causes the crash. */
static int
kdb_sysctl_requested(SYSCTL_HANDLER_ARGS)
{
	int error, i = 0;

	error = sysctl_handle_int(oidp, &i, 0, req);
	return (error == 0 && req->newptr != NULL && i != 0 ? -1 : error);
}

static int
kdb_sysctl_panic(SYSCTL_HANDLER_ARGS)
{
	int error = kdb_sysctl_requested(oidp, arg1, arg2, req);

	if (error == -1)
		panic("%s", __func__);
	return (error);
}
SYSCTL_PROC(_debug_kdb, OID_AUTO, panic, CTLTYPE_INT | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    kdb_sysctl_panic, "I", "Set to panic the kernel");

static int
kdb_sysctl_trap(SYSCTL_HANDLER_ARGS)
{
	int error = kdb_sysctl_requested(oidp, arg1, arg2, req);

	if (error == -1)
		return (*(volatile int *)0x10);
	return (error);
}
SYSCTL_PROC(_debug_kdb, OID_AUTO, trap, CTLTYPE_INT | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    kdb_sysctl_trap, "I", "Set to cause a page fault");
