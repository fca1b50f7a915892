/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Numbers that assembly needs from C structures.
 *
 * They are written down here rather than generated, so that the build needs no extra step;
 * asm_offsets.c proves each of them against the structures at compile time.
 *
 * Not FreeBSD's: FreeBSD generates assym.inc instead.
 */

#ifndef _AMD64_ASM_OFFSETS_TREE_H_
#define	_AMD64_ASM_OFFSETS_TREE_H_

/* struct thread */
#define	TD_LOCK		0
#define	TD_PCB		1152

/* struct pcpu, reached through %gs */
#define	PC_CURTHREAD	0
#define	PC_CURPCB	32

/* struct pcb: the registers that cpu_switch() keeps */
#define	PCB_R15		0
#define	PCB_R14		8
#define	PCB_R13		16
#define	PCB_R12		24
#define	PCB_RBP		32
#define	PCB_RSP		40
#define	PCB_RBX		48
#define	PCB_RIP		56

/* struct trapframe; the part from TF_ERR up is pushed by the processor */
#define	TF_RDI		0
#define	TF_RSI		8
#define	TF_RDX		16
#define	TF_RCX		24
#define	TF_R8		32
#define	TF_R9		40
#define	TF_RAX		48
#define	TF_RBX		56
#define	TF_RBP		64
#define	TF_R10		72
#define	TF_R11		80
#define	TF_R12		88
#define	TF_R13		96
#define	TF_R14		104
#define	TF_R15		112
#define	TF_TRAPNO	120
#define	TF_ADDR		128
#define	TF_FLAGS	136
#define	TF_ERR		144
#define	TF_RIP		152
#define	TF_RSP		176

/* Selectors of the kernel's segments: GSEL(GCODE_SEL, SEL_KPL), GSEL(GDATA_SEL, SEL_KPL) */
#define	KCODE_SEL	0x20
#define	KDATA_SEL	0x28

/* The page-table slots of the layout in machine/pmap.h */
#define	SLOT_DMAP	496		/* DMPML4I */
#define	SLOT_KERN	511		/* KPML4I */
#define	SLOT_KERNBASE	510		/* KPDPI */
#define	KERNBASE_ADDR	0xffffffff80000000

#endif /* !_AMD64_ASM_OFFSETS_TREE_H_ */
