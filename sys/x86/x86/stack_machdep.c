/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Walking a stack along its frame pointers.
 *
 * The kernel is compiled with frame pointers.  A walk stops at a frame that is not on the
 * thread's stack or does not lie above the one before it, so that a damaged stack ends the walk
 * and nothing else. exception.S leaves %rbp at the trapframe when it calls intr_dispatch(); there
 * the walk goes on with what was interrupted, which may be on another stack (NMI, double fault).
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/errno.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>
#include <sys/stack.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/cpu.h>
#include <machine/pcb.h>
#include <machine/stack.h>
#include <machine/vmparam.h>

/* Return addresses of the call in alltraps lie between the two: exception.S. */
extern char alltraps[], doreti[];

/* Is [va, va + len) mapped kernel memory?  Frames may be on boot and exception stacks too. */
static bool
readable(vm_offset_t va, size_t len)
{
	return (va % sizeof(register_t) == 0 && INKERNEL(va) && INKERNEL(va + len) &&
	    pmap_kextract(va) != 0 && pmap_kextract(va + len - 1) != 0);
}

static bool
is_text(vm_offset_t pc)
{
	return (pc >= KERNBASE);
}

static void
stack_walk(struct stack *st, vm_offset_t pc, vm_offset_t fp)
{
	const struct amd64_frame *frame;
	const struct trapframe *tf;
	vm_offset_t next;

	while (is_text(pc) && stack_put(st, pc) == 0) {
		if (!readable(fp, sizeof(*frame)))
			break;
		frame = (const struct amd64_frame *)fp;
		next = (vm_offset_t)frame->f_frame;
		pc = frame->f_retaddr;
		if (pc > (vm_offset_t)alltraps && pc <= (vm_offset_t)doreti &&
		    readable(next, sizeof(*tf))) {
			if (stack_put(st, pc) != 0)
				break;
			tf = (const struct trapframe *)next;
			pc = tf->tf_rip;
			fp = tf->tf_rbp;
			continue;
		}
		if (next <= fp)
			fp = 0;
		else
			fp = next;
	}
}

void
stack_save(struct stack *st)
{
	const struct amd64_frame *frame = __builtin_frame_address(0);

	stack_zero(st);
	stack_walk(st, frame->f_retaddr, (vm_offset_t)frame->f_frame);
}

/* EOPNOTSUPP: it runs on another processor, which has not stopped. */
int
stack_save_td(struct stack *st, struct thread *td)
{
	const struct pcb *pcb = td->td_pcb;

	if (!SCHEDULER_STOPPED())
		THREAD_LOCK_ASSERT(td, MA_OWNED);
	if (td == curthread) {
		stack_save(st);
		return (0);
	}
	if (TD_IS_RUNNING(td)) {
		if (stoppcbs == NULL || !CPU_ISSET(td->td_oncpu, &stopped_cpus))
			return (EOPNOTSUPP);
		pcb = &stoppcbs[td->td_oncpu];
	}
	stack_zero(st);
	stack_walk(st, pcb->pcb_rip, pcb->pcb_rbp);
	return (0);
}
