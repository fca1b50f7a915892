/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Invalidation of translations on all processors ("TLB shootdown").
 *
 * Each processor has one request of its own and a generation number for it.  It writes the
 * request, raises the generation, interrupts the others (IPI_INVLOP), does the work for itself, and
 * waits until each of them has copied the generation into its cell of the score board:
 *
 *	initiator i			target t, for each i whose generation is new
 *	request[i] = range		gen = request[i].gen	(acquire: pairs with the release)
 *	request[i].gen++  (release)	invalidate the range
 *	wait for done[i][t] == gen	done[i][t] = gen	(release)
 *
 * While it waits, an initiator serves the requests of others, so that processors which shoot at
 * each other with interrupts off don't wait for ever.
 *
 * Locking.  None.  The caller must hold no spin lock that another processor may be waiting for with
 * its interrupts off, as that one would not answer.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/smp.h>

/* From this many pages on it is cheaper to flush the TLB completely. */
#define	RANGE_MAX	32

struct tlb_request {
	vm_offset_t	start;
	vm_offset_t	end;
	u_int		gen;
} __aligned(CACHE_LINE_SIZE);

static struct tlb_request request[MAXCPU];
static u_int done[MAXCPU][MAXCPU];

static void
invalidate_local(vm_offset_t start, vm_offset_t end)
{
	if (end - start > RANGE_MAX * PAGE_SIZE) {
		invltlb();
		return;
	}
	for (; start < end; start += PAGE_SIZE)
		invlpg(start);
}

/* Handle the requests of other processors.  Called by the IPI, and by initiators that wait. */
void
invlop_handler(void)
{
	u_int gen, i, me = PCPU_GET(cpuid);

	for (i = 0; i <= mp_maxid; i++) {
		gen = atomic_load_acq_int(&request[i].gen);
		if (gen == done[i][me])
			continue;
		invalidate_local(request[i].start, request[i].end);
		atomic_store_rel_int(&done[i][me], gen);
	}
}

/* Wait until every running processor has served our request; a panic stops them for good. */
static void
wait_others(u_int me, u_int gen)
{
	u_int i;

	CPU_FOREACH(i) {
		if (i == me)
			continue;
		while (atomic_load_acq_int(&done[me][i]) != gen && !SCHEDULER_STOPPED()) {
			invlop_handler();
			cpu_spinwait();
		}
	}
}

void
pmap_invalidate_range(pmap_t pmap __unused, vm_offset_t sva, vm_offset_t eva)
{
	struct tlb_request *r;
	register_t saved;
	u_int gen, me;

	if (!smp_started || SCHEDULER_STOPPED()) {
		invalidate_local(sva, eva);
		return;
	}
	/* Interrupts off: a handler on this processor must not reuse the request meanwhile. */
	saved = intr_disable();
	me = PCPU_GET(cpuid);
	r = &request[me];
	r->start = sva;
	r->end = eva;
	gen = r->gen + 1;
	done[me][me] = gen;
	atomic_store_rel_int(&r->gen, gen);
	ipi_all_but_self(IPI_INVLOP);
	invalidate_local(sva, eva);
	wait_others(me, gen);
	intr_restore(saved);
}

void
pmap_invalidate_page(pmap_t pmap, vm_offset_t va)
{
	pmap_invalidate_range(pmap, va, va + PAGE_SIZE);
}

void
pmap_invalidate_all(pmap_t pmap)
{
	pmap_invalidate_range(pmap, 0, ~0UL);
}
