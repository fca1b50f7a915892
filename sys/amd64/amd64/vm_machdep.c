/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Threads: their machine-dependent part.  Kernel threads only.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/pcb.h>
#include <machine/psl.h>

CTASSERT(sizeof(struct trapframe) % 16 == 0);	/* the ABI's stack alignment */

void
set_top_of_stack_td(struct thread *td)
{
	td->td_md.md_stack_base = td->td_kstack + td->td_kstack_pages * PAGE_SIZE;
}

struct pcb *
get_pcb_td(struct thread *td)
{
	return (&td->td_md.md_pcb);
}

/* A thread has got its stack: place pcb and trapframe. */
void
cpu_thread_alloc(struct thread *td)
{
	set_top_of_stack_td(td);
	td->td_pcb = get_pcb_td(td);
	td->td_frame = (struct trapframe *)td->td_md.md_stack_base - 1;
}

void
cpu_thread_free(struct thread *td __unused)
{
}

void
cpu_thread_clean(struct thread *td __unused)
{
}

void
cpu_thread_exit(struct thread *td __unused)
{
}

void
cpu_exit(struct thread *td __unused)
{
}

/*
 * Make td ready to run for the first time, in fork_trampoline.  As it comes out of the scheduler,
 * it begins in the state of a thread that holds one spin lock, with interrupts on beneath it.
 */
void
cpu_copy_thread(struct thread *td, struct thread *td0 __unused)
{
	struct pcb *pcb = td->td_pcb;

	memset(pcb, 0, sizeof(*pcb));
	memset(td->td_frame, 0, sizeof(*td->td_frame));
	pcb->pcb_rip = (register_t)fork_trampoline;
	pcb->pcb_rsp = (register_t)td->td_frame - sizeof(register_t);
	pcb->pcb_cr3 = KPML4phys;
	td->td_md.md_spinlock_count = 1;
	td->td_md.md_saved_flags = PSL_KERNEL | PSL_I;
}

/* Have td call func(arg) when it first runs. */
void
cpu_fork_kthread_handler(struct thread *td, void (*func)(void *), void *arg)
{
	td->td_pcb->pcb_r12 = (register_t)func;
	td->td_pcb->pcb_rbx = (register_t)arg;
}

/* A new kernel process's first thread is set up like any other. */
void
cpu_fork(struct thread *td1, struct proc *p2 __unused, struct thread *td2, int flags __unused)
{
	cpu_copy_thread(td2, td1);
}

void
cpu_update_pcb(struct thread *td __unused)
{
}

/*
 * Interrupts off, counted; the first keeps the state to which the last goes back.
 */
void
spinlock_enter(void)
{
	struct thread *td = curthread;
	register_t flags;

	if (td->td_md.md_spinlock_count == 0) {
		flags = intr_disable();
		td->td_md.md_spinlock_count = 1;
		td->td_md.md_saved_flags = flags;
		critical_enter();
	} else
		td->td_md.md_spinlock_count++;
}

void
spinlock_exit(void)
{
	struct thread *td = curthread;
	register_t flags = td->td_md.md_saved_flags;

	td->td_md.md_spinlock_count--;
	if (td->td_md.md_spinlock_count == 0) {
		critical_exit();
		intr_restore(flags);
	}
}
