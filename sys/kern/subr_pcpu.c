/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Per-processor data: struct pcpu of each processor, and dynamic per-CPU variables (DPCPU_DEFINE).
 *
 * The linker collects the variables of DPCPU_DEFINE in the section set_pcpu, which is the pattern:
 * each processor has a copy of it, and dpcpu_off[] is the distance of the copy from the pattern.
 * The pattern has room at modspace for the variables of modules (dpcpu_alloc()).
 *
 * Locking.  The lists change while only the first processor runs; the room for modules has vmem's
 * lock.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>
#include <sys/vmem.h>

uintptr_t dpcpu_off[MAXCPU];
struct pcpu *cpuid_to_pcpu[MAXCPU];
struct cpuhead cpuhead = STAILQ_HEAD_INITIALIZER(cpuhead);

DPCPU_DEFINE_STATIC(char, modspace[DPCPU_MODMIN] __aligned(__alignof(void *)));
static vmem_t *modspace_arena;

/* Make a processor known by its struct pcpu; its dynamic variables come with dpcpu_init(). */
void
pcpu_init(struct pcpu *pcpu, int cpuid, size_t size)
{
	KASSERT(cpuid >= 0 && cpuid < MAXCPU, ("pcpu_init: no such cpu %d", cpuid));
	bzero(pcpu, size);
	pcpu->pc_cpuid = cpuid;
	cpuid_to_pcpu[cpuid] = pcpu;
	STAILQ_INSERT_TAIL(&cpuhead, pcpu, pc_allcpu);
	cpu_pcpu_init(pcpu, cpuid, size);
	pcpu->pc_rm_queue.rmq_next = &pcpu->pc_rm_queue;
	pcpu->pc_rm_queue.rmq_prev = &pcpu->pc_rm_queue;
	pcpu->pc_zpcpu_offset = zpcpu_offset_cpu(cpuid);
}

/* Give a processor its copy of the dynamic variables; dpcpu has room for DPCPU_SIZE bytes. */
void
dpcpu_init(void *dpcpu, int cpuid)
{
	dpcpu_off[cpuid] = (uintptr_t)dpcpu - DPCPU_START;
	cpuid_to_pcpu[cpuid]->pc_dynamic = dpcpu_off[cpuid];
	memcpy(dpcpu, (void *)DPCPU_START, DPCPU_BYTES);
}

static void
dpcpu_startup(void *dummy __unused)
{
	modspace_arena = vmem_create("dpcpu modules", (vmem_addr_t)&DPCPU_NAME(modspace),
	    DPCPU_MODMIN, sizeof(void *), 0, M_WAITOK);
}
SYSINIT(dpcpu, SI_SUB_KLD, SI_ORDER_FIRST, dpcpu_startup, NULL);

/*
 * Room in the pattern for size bytes of a module's variables; NULL when there is none left.
 */
void *
dpcpu_alloc(int size)
{
	vmem_addr_t addr;

	if (vmem_alloc(modspace_arena, roundup2(size, sizeof(void *)), M_BESTFIT | M_NOWAIT,
	    &addr) != 0)
		return (NULL);
	return ((void *)addr);
}

void
dpcpu_free(void *s, int size)
{
	vmem_free(modspace_arena, (vmem_addr_t)s, roundup2(size, sizeof(void *)));
}

/* Copy size bytes of the pattern at s to every processor. */
void
dpcpu_copy(void *s, int size)
{
	int i;

	CPU_FOREACH(i)
		memcpy((char *)dpcpu_off[i] + (uintptr_t)s, s, size);
}

void
pcpu_destroy(struct pcpu *pcpu)
{
	STAILQ_REMOVE(&cpuhead, pcpu, pcpu, pc_allcpu);
	cpuid_to_pcpu[pcpu->pc_cpuid] = NULL;
	dpcpu_off[pcpu->pc_cpuid] = 0;
}

struct pcpu *
pcpu_find(u_int cpuid)
{
	return (cpuid < MAXCPU ? cpuid_to_pcpu[cpuid] : NULL);
}
