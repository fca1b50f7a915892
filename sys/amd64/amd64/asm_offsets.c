/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Proof that asm_offsets_tree.h agrees with the structures that it describes.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/proc.h>
#include <sys/pcpu.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/frame.h>
#include <machine/pcb.h>
#include <machine/segments.h>
#include <machine/vmparam.h>

#include <amd64/amd64/asm_offsets_tree.h>

#define	SAME(name, type, field)	CTASSERT(name == offsetof(type, field))

SAME(TD_LOCK, struct thread, td_lock);
SAME(TD_PCB, struct thread, td_pcb);
SAME(PC_CURTHREAD, struct pcpu, pc_curthread);
SAME(PC_CURPCB, struct pcpu, pc_curpcb);
SAME(PCB_R15, struct pcb, pcb_r15);
SAME(PCB_R14, struct pcb, pcb_r14);
SAME(PCB_R13, struct pcb, pcb_r13);
SAME(PCB_R12, struct pcb, pcb_r12);
SAME(PCB_RBP, struct pcb, pcb_rbp);
SAME(PCB_RSP, struct pcb, pcb_rsp);
SAME(PCB_RBX, struct pcb, pcb_rbx);
SAME(PCB_RIP, struct pcb, pcb_rip);
SAME(TF_RDI, struct trapframe, tf_rdi);
SAME(TF_RSI, struct trapframe, tf_rsi);
SAME(TF_RDX, struct trapframe, tf_rdx);
SAME(TF_RCX, struct trapframe, tf_rcx);
SAME(TF_R8, struct trapframe, tf_r8);
SAME(TF_R9, struct trapframe, tf_r9);
SAME(TF_RAX, struct trapframe, tf_rax);
SAME(TF_RBX, struct trapframe, tf_rbx);
SAME(TF_RBP, struct trapframe, tf_rbp);
SAME(TF_R10, struct trapframe, tf_r10);
SAME(TF_R11, struct trapframe, tf_r11);
SAME(TF_R12, struct trapframe, tf_r12);
SAME(TF_R13, struct trapframe, tf_r13);
SAME(TF_R14, struct trapframe, tf_r14);
SAME(TF_R15, struct trapframe, tf_r15);
SAME(TF_TRAPNO, struct trapframe, tf_trapno);
SAME(TF_ADDR, struct trapframe, tf_addr);
SAME(TF_FLAGS, struct trapframe, tf_flags);
SAME(TF_ERR, struct trapframe, tf_err);
SAME(TF_RIP, struct trapframe, tf_rip);
SAME(TF_RSP, struct trapframe, tf_rsp);
CTASSERT(KCODE_SEL == GSEL(GCODE_SEL, SEL_KPL));
CTASSERT(KDATA_SEL == GSEL(GDATA_SEL, SEL_KPL));
CTASSERT(SLOT_DMAP == DMPML4I);
CTASSERT(SLOT_KERN == KPML4I);
CTASSERT(SLOT_KERNBASE == KPDPI);
CTASSERT(KERNBASE_ADDR == KERNBASE);
