/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Exceptions and the way of an interrupt to its handler.
 *
 * exception.S calls intr_dispatch() with every vector.  From 32 on they are interrupts, which
 * local_apic.c handles.  Exceptions are a bug in the kernel or a module, as there is no user
 * mode: all but the breakpoint end in a panic that shows the registers and where it was.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kdb.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/frame.h>
#include <machine/intr_machdep.h>
#include <machine/md_var.h>
#include <machine/smp.h>
#include <machine/trap.h>

#include <x86/apicvar.h>

#include <kern/panic_exit_tree.h>

void	intr_dispatch(struct trapframe *frame, u_int vector);

static const struct {
	const char	*name;
	int		trapno;
} exceptions[NRSVIDT] = {
	[IDT_DE] = { "integer divide fault", T_DIVIDE },
	[IDT_DB] = { "debug exception", T_TRCTRAP },
	[IDT_NMI] = { "non-maskable interrupt trap", T_NMI },
	[IDT_BP] = { "breakpoint instruction fault", T_BPTFLT },
	[IDT_OF] = { "overflow trap", T_OFLOW },
	[IDT_BR] = { "bound instruction fault", T_BOUND },
	[IDT_UD] = { "invalid opcode fault", T_PRIVINFLT },
	[IDT_NM] = { "device not available fault", T_DNA },
	[IDT_DF] = { "double fault", T_DOUBLEFLT },
	[IDT_FPUGP] = { "coprocessor segment overrun", T_FPOPFLT },
	[IDT_TS] = { "invalid TSS fault", T_TSSFLT },
	[IDT_NP] = { "segment not present fault", T_SEGNPFLT },
	[IDT_SS] = { "stack fault", T_STKFLT },
	[IDT_GP] = { "general protection fault", T_PROTFLT },
	[IDT_PF] = { "page fault", T_PAGEFLT },
	[IDT_MF] = { "floating-point exception", T_ARITHTRAP },
	[IDT_AC] = { "alignment fault", T_ALIGNFLT },
	[IDT_MC] = { "machine check trap", T_MCHK },
	[IDT_XF] = { "SIMD floating-point exception", T_XMMFLT },
};

static void
print_page_fault(const struct trapframe *f)
{
	printf("fault virtual address\t= 0x%lx\n", f->tf_addr);
	printf("fault code\t\t= supervisor %s, %s%s\n",
	    f->tf_err & PGEX_I ? "instruction fetch" :
	    f->tf_err & PGEX_W ? "write data" : "read data",
	    f->tf_err & PGEX_P ? "protection violation" : "page not present",
	    f->tf_err & PGEX_RSV ? ", reserved bits in PTE" : "");
}

static void
print_registers(const struct trapframe *f)
{
	printf("rip = 0x%016lx  rsp = 0x%016lx  rbp = 0x%016lx\n", f->tf_rip, f->tf_rsp, f->tf_rbp);
	printf("rax = 0x%016lx  rbx = 0x%016lx  rcx = 0x%016lx\n", f->tf_rax, f->tf_rbx, f->tf_rcx);
	printf("rdx = 0x%016lx  rsi = 0x%016lx  rdi = 0x%016lx\n", f->tf_rdx, f->tf_rsi, f->tf_rdi);
	printf(" r8 = 0x%016lx   r9 = 0x%016lx  r10 = 0x%016lx\n", f->tf_r8, f->tf_r9, f->tf_r10);
	printf("r11 = 0x%016lx  r12 = 0x%016lx  r13 = 0x%016lx\n", f->tf_r11, f->tf_r12, f->tf_r13);
	printf("r14 = 0x%016lx  r15 = 0x%016lx  err = 0x%lx  rflags = 0x%lx\n", f->tf_r14,
	    f->tf_r15, f->tf_err, f->tf_rflags);
}

static void __dead2
trap_fatal(const struct trapframe *frame, u_int vector)
{
	const char *name = exceptions[vector].name;
	struct thread *td = curthread;

	if (name == NULL)
		name = "unknown/reserved trap";
	panic_begin();
	printf("\n\nFatal trap %u: %s while in kernel mode\n", frame->tf_trapno, name);
	printf("cpuid = %d; apic id = %02x\n", PCPU_GET(cpuid), PCPU_GET(apic_id));
	if (vector == IDT_PF)
		print_page_fault(frame);
	print_registers(frame);
	printf("current thread\t\t= %s (tid %d)\n", td->td_name, td->td_tid);
	panic("%s", name);
}

/*
 * An NMI: another processor requests this one to stop, or the machine reports an error.  Or the
 * host sends it to a guest that hangs, to learn what its threads wait for.
 */
static void
trap_nmi(struct trapframe *frame)
{
	if (ipi_nmi_handler() == 0)
		return;
	panic_backtrace_all = true;
	trap_fatal(frame, IDT_NMI);
}

static void
trap(struct trapframe *frame, u_int vector)
{
	frame->tf_trapno = exceptions[vector].trapno != 0 ? exceptions[vector].trapno : T_RESERVED;
	if (vector == IDT_PF)
		frame->tf_addr = rcr2();
	switch (vector) {
	case IDT_NMI:
		trap_nmi(frame);
		return;
	case IDT_BP:
		printf("breakpoint at 0x%lx in thread %s\n", frame->tf_rip, curthread->td_name);
		kdb_backtrace();
		return;
	default:
		trap_fatal(frame, vector);
	}
}

/* Called by exception.S with interrupts off. */
void
intr_dispatch(struct trapframe *frame, u_int vector)
{
	if (vector < NRSVIDT)
		trap(frame, vector);
	else
		lapic_handle_intr(vector, frame);
}
