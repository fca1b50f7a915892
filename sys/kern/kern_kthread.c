/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * kthread(9) and kproc(9): threads of the kernel and processes made of them; the idle threads.
 *
 * A thread's function may return, which is the same as kthread_exit(9).  To wait for the end of a
 * thread is to sleep on the thread with its process's p_mtx as the interlock, as the manual says;
 * the end of a process's last thread wakes sleepers on the process.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sx.h>
#include <sys/unistd.h>

#include <machine/stdarg.h>

#include <kern/sched_tree.h>

/*
 * A thread's first function, called from fork_trampoline with sched_lock held.
 */
void
fork_exit(void (*callout)(void *, struct trapframe *), void *arg, struct trapframe *frame)
{
	struct thread *td = curthread;

	sched_fork_exit(td);
	if (PCPU_GET(deadthread) != NULL)
		thread_stash(PCPU_GET(deadthread));
	mtx_unlock_spin(&sched_lock);
	callout(arg, frame);
	kthread_exit();
}

/* Creates a stopped thread in p, ready for sched_add(); NULL: no memory for its stack. */
static struct thread *
kthread_make(void (*func)(void *), void *arg, struct proc *p, int pages, const char *fmt,
    va_list ap)
{
	struct thread *td;

	thread_reap();
	td = thread_alloc(pages);
	if (td == NULL)
		return (NULL);
	vsnprintf(td->td_name, sizeof(td->td_name), fmt, ap);
	td->td_pflags = TDP_KTHREAD;
	td->td_critnest = 1;
	cpu_copy_thread(td, curthread);
	cpu_fork_kthread_handler(td, func, arg);
	PROC_LOCK(p);
	thread_link(td, p);
	PROC_UNLOCK(p);
	thread_lock(td);
	sched_fork_thread(&thread0, td);
	td->td_pri_class = PRI_TIMESHARE;
	td->td_base_pri = td->td_priority = PVM;
	TD_SET_CAN_RUN(td);
	thread_unlock(td);
	return (td);
}

int
kthread_add(void (*func)(void *), void *arg, struct proc *p, struct thread **tdp, int flags,
    int pages, const char *fmt, ...)
{
	struct thread *td;
	va_list ap;

	va_start(ap, fmt);
	td = kthread_make(func, arg, p != NULL ? p : &proc0, pages, fmt, ap);
	va_end(ap);
	if (td == NULL)
		return (ENOMEM);
	if (tdp != NULL)
		*tdp = td;
	if ((flags & RFSTOPPED) == 0) {
		thread_lock(td);
		sched_add(td, SRQ_BORING);
	}
	return (0);
}

void
kthread_exit(void)
{
	struct thread *td = curthread;
	struct proc *p = td->td_proc;

#ifdef WITNESS
	witness_thread_exit(td);
#endif
	PROC_LOCK(p);
	wakeup(td);
	thread_unlink(td);
	p->p_exitthreads++;
	if (p->p_numthreads == 0)
		wakeup(p);
	PROC_UNLOCK(p);
	thread_exit();
}

int
kproc_create(void (*func)(void *), void *arg, struct proc **newpp, int flags, int pages,
    const char *fmt, ...)
{
	struct thread *td;
	struct proc *p;
	char name[MAXCOMLEN + 1];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	p = kproc_alloc(name);
	va_start(ap, fmt);
	td = kthread_make(func, arg, p, pages, fmt, ap);
	va_end(ap);
	if (td == NULL) {
		kproc_dealloc(p);
		return (ENOMEM);
	}
	if (newpp != NULL)
		*newpp = p;
	if ((flags & RFSTOPPED) == 0) {
		thread_lock(td);
		sched_add(td, SRQ_BORING);
	}
	return (0);
}

/* The exit status has no reader. */
void
kproc_exit(int ecode __unused)
{
	kthread_exit();
}

/* Creates a thread in *procp, which is created first when it is NULL. */
int
kproc_kthread_add(void (*func)(void *), void *arg, struct proc **procp, struct thread **tdp,
    int flags, int pages, const char *procname, const char *fmt, ...)
{
	struct thread *td;
	struct proc *p = *procp;
	va_list ap;

	if (p == NULL)
		p = kproc_alloc(procname);
	va_start(ap, fmt);
	td = kthread_make(func, arg, p, pages, fmt, ap);
	va_end(ap);
	if (td == NULL) {
		if (*procp == NULL)
			kproc_dealloc(p);
		return (ENOMEM);
	}
	*procp = p;
	if (tdp != NULL)
		*tdp = td;
	if ((flags & RFSTOPPED) == 0) {
		thread_lock(td);
		sched_add(td, SRQ_BORING);
	}
	return (0);
}

/* Adapts the void function of a description to a thread's function. */
static void
kproc_call(void *arg)
{
	void (*func)(void) = (void (*)(void))arg;

	func();
}

void
kproc_start(const void *udata)
{
	const struct kproc_desc *kp = udata;

	if (kproc_create(kproc_call, (void *)kp->func, kp->global_procpp, 0, 0, "%s",
	    kp->arg0) != 0)
		panic("%s: no memory for %s", __func__, kp->arg0);
}

void
kthread_start(const void *udata)
{
	const struct kthread_desc *kt = udata;

	if (kthread_add(kproc_call, (void *)kt->func, NULL, kt->global_threadpp, 0, 0, "%s",
	    kt->arg0) != 0)
		panic("%s: no memory for %s", __func__, kt->arg0);
}

/*
 * Suspension.  TDF_KTH_SUSP requests it; the thread stops in kthread_suspend_check() while it is
 * set.
 */
int
kthread_suspend(struct thread *td, int timo)
{
	struct proc *p = td->td_proc;
	int error;

	PROC_LOCK(p);
	thread_lock(td);
	td->td_flags |= TDF_KTH_SUSP;
	thread_unlock(td);
	wakeup(&td->td_flags);
	error = msleep(&td->td_kstack, &p->p_mtx, PPAUSE | PDROP, "suspkt", timo);
	return (error);
}

int
kthread_resume(struct thread *td)
{
	struct proc *p = td->td_proc;

	PROC_LOCK(p);
	thread_lock(td);
	td->td_flags &= ~TDF_KTH_SUSP;
	thread_unlock(td);
	wakeup(&td->td_kstack_pages);
	PROC_UNLOCK(p);
	return (0);
}

void
kthread_suspend_check(void)
{
	struct thread *td = curthread;
	struct proc *p = td->td_proc;

	PROC_LOCK(p);
	while ((td->td_flags & TDF_KTH_SUSP) != 0) {
		wakeup(&td->td_kstack);
		msleep(&td->td_kstack_pages, &p->p_mtx, PPAUSE, "ktsusp", 0);
	}
	PROC_UNLOCK(p);
}

/* One idle thread a CPU; they are never queued, the scheduler falls back on them. */
static void
idle_setup(void *dummy __unused)
{
	struct proc *p = NULL;
	struct thread *td;
	int cpu;

	CPU_FOREACH(cpu) {
		if (kproc_kthread_add(sched_idletd, NULL, &p, &td, RFSTOPPED, 0, "idle",
		    "idle: cpu%d", cpu) != 0)
			panic("no idle thread for CPU %d", cpu);
		pcpu_find(cpu)->pc_idlethread = td;
		thread_lock(td);
		td->td_flags |= TDF_IDLETD | TDF_NOLOAD;
		td_get_sched(td)->ts_cpu = cpu;
		td->td_lastcpu = cpu;
		sched_class(td, PRI_IDLE);
		sched_prio(td, PRI_MAX_IDLE);
		thread_unlock(td);
	}
}
SYSINIT(idle_setup, SI_SUB_SCHED_IDLE, SI_ORDER_FIRST, idle_setup, NULL);
