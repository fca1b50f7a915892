/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Event channels, the FIFO interface (event_channel.h).
 *
 * Each port has a word in an array of pages, and each CPU a control block with
 * 16 queues, by priority.  A queue is a list of ports, linked by the low bits
 * of their words: the block has the head, Xen knows the tail.
 *
 *	PENDING	 an event came		Xen sets, we clear
 *	MASKED	 it is not to be queued	we set and clear
 *	LINKED	 it is in a queue	Xen sets, we clear when we take it
 *					from the queue
 *	BUSY	 Xen is about to link it, and reads MASKED no more
 *
 * Taking a port from a queue.  We follow our own copy of the head, and read
 * Xen's only when the queue was empty: Xen writes it only then.  Clearing
 * LINKED and reading the link is one atomic operation, as Xen appends to a port
 * by writing its link as long as that port is LINKED.
 *
 * Unmasking.  A hypercall is made when PENDING is set, because a masked port
 * was not queued.  While BUSY is set, the mask stays: Xen is deciding by the
 * value that it has read.
 *
 * Control blocks and pages of the array belong to Xen for as long as the domain
 * lives.
 *
 * Locking.  The array grows under the lock of xen_evtchn.c.  Queues are their
 * CPU's, in the upcall.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/proc.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <machine/atomic.h>
#include <machine/cpufunc.h>

#include <dev/xen/xen_evtchn_var.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>

#define	FIFO_PENDING	(1U << EVTCHN_FIFO_PENDING)
#define	FIFO_MASKED	(1U << EVTCHN_FIFO_MASKED)
#define	FIFO_LINKED	(1U << EVTCHN_FIFO_LINKED)
#define	FIFO_BUSY	(1U << EVTCHN_FIFO_BUSY)

#define	FIFO_PER_PAGE	(PAGE_SIZE / sizeof(event_word_t))
#define	FIFO_PAGES	(EVTCHN_FIFO_NR_CHANNELS / FIFO_PER_PAGE)

static event_word_t *fifo_array[FIFO_PAGES];
static u_int fifo_npages;

/* A CPU's queues. */
static struct fifo_cpu {
	volatile struct evtchn_fifo_control_block *fc_block;
	uint32_t	 fc_head[EVTCHN_FIFO_MAX_QUEUES];
} fifo_cpus[MAXCPU];

static inline volatile uint32_t *
fifo_word(evtchn_port_t port)
{

	return (&fifo_array[port / FIFO_PER_PAGE][port % FIFO_PER_PAGE]);
}

static void
evtchn_fifo_mask(evtchn_port_t port)
{

	atomic_set_32(fifo_word(port), FIFO_MASKED);
}

static void
evtchn_fifo_unmask(evtchn_port_t port)
{
	volatile uint32_t *word = fifo_word(port);
	struct evtchn_unmask arg = { .port = port };
	uint32_t w;

	for (;;) {
		w = atomic_load_32(word);
		if ((w & FIFO_MASKED) == 0)
			return;
		if ((w & FIFO_PENDING) != 0)
			break;
		w &= ~FIFO_BUSY;
		if (atomic_cmpset_32(word, w, w & ~FIFO_MASKED))
			return;
		cpu_spinwait();
	}
	(void)xen_event_channel_op(EVTCHNOP_unmask, &arg);
}

/* Give Xen the next page of the array, with all its ports masked. */
static int
fifo_place_page(event_word_t *page)
{
	struct evtchn_expand_array arg;
	u_int i;

	for (i = 0; i < FIFO_PER_PAGE; i++)
		page[i] = FIFO_MASKED;
	arg.array_gfn = atop(vtophys(page));
	return (xen_event_channel_op(EVTCHNOP_expand_array, &arg));
}

/* Add pages to the array until it reaches a port. */
static int
evtchn_fifo_reach(evtchn_port_t port)
{
	event_word_t *page;
	int error;

	if (port >= EVTCHN_FIFO_NR_CHANNELS)
		return (ENOSPC);
	while (port / FIFO_PER_PAGE >= fifo_npages) {
		page = xen_page_alloc();
		if (page == NULL)
			return (ENOMEM);
		/* Xen may queue the page's ports as soon as it has it. */
		fifo_array[fifo_npages] = page;
		error = fifo_place_page(page);
		if (error != 0) {
			fifo_array[fifo_npages] = NULL;
			xen_page_free(page);
			return (error);
		}
		fifo_npages++;
	}
	return (0);
}

/* Give Xen a CPU's control block. */
static int
fifo_place_block(u_int cpu, void *block)
{
	struct evtchn_init_control arg;

	memset(&arg, 0, sizeof(arg));
	arg.control_gfn = atop(vtophys(block));
	arg.vcpu = xen_cpus[cpu].xc_vcpu;
	return (xen_event_channel_op(EVTCHNOP_init_control, &arg));
}

static int
fifo_init_cpu(u_int cpu)
{
	void *block;
	int error;

	if (fifo_cpus[cpu].fc_block != NULL)
		return (0);
	block = xen_page_alloc();
	if (block == NULL)
		return (ENOMEM);
	fifo_cpus[cpu].fc_block = block;
	error = fifo_place_block(cpu, block);
	if (error != 0) {
		fifo_cpus[cpu].fc_block = NULL;
		xen_page_free(block);
		return (error);
	}
	xen_pinned = true;
	return (0);
}

/*
 * The first CPU decides: with its control block the domain leaves the 2-level
 * interface permanently.
 */
static int
evtchn_fifo_init(void)
{
	u_int cpu;
	int error;
	bool first;

	first = true;
	CPU_FOREACH(cpu) {
		error = fifo_init_cpu(cpu);
		if (error != 0 && first)
			return (error);
		xen_cpus[cpu].xc_no_queues = error != 0;
		if (error != 0)
			printf(
			    "xen: no event queues for CPU %u (error %d): others handle its events\n",
			    cpu, error);
		first = false;
	}
	return (0);
}

/* Give the pages to a domain that has not had any. */
static int
evtchn_fifo_resume(void)
{
	struct fifo_cpu *fc;
	u_int cpu, i;
	int error = 0;

	CPU_FOREACH(cpu) {
		fc = &fifo_cpus[cpu];
		if (fc->fc_block == NULL)
			continue;
		memset(fc->fc_head, 0, sizeof(fc->fc_head));
		memset(__DEVOLATILE(void *, fc->fc_block), 0, PAGE_SIZE);
		if (error == 0)
			error = fifo_place_block(cpu,
			    __DEVOLATILE(void *, fc->fc_block));
	}
	for (i = 0; i < fifo_npages && error == 0; i++)
		error = fifo_place_page(fifo_array[i]);
	return (error);
}

/* Take a port from its queue.  Returns the next one, or 0. */
static evtchn_port_t
fifo_unlink(volatile uint32_t *word)
{
	uint32_t w;

	w = atomic_load_32(word);
	/*
	 * Release: what was read of the head, before Xen sees an empty queue
	 * and writes a new one.
	 */
	while (atomic_fcmpset_rel_32(word, &w,
	    w & ~(FIFO_LINKED | EVTCHN_FIFO_LINK_MASK)) == 0)
		continue;
	return (w & EVTCHN_FIFO_LINK_MASK);
}

/* Take the first port of a queue.  Returns false when it is empty. */
static bool
fifo_consume(struct fifo_cpu *fc, u_int queue, struct trapframe *frame,
    const struct xen_evtchn_sink *sink)
{
	volatile uint32_t *word;
	evtchn_port_t port;

	port = fc->fc_head[queue];
	if (port == 0) {
		/*
		 * Pairs with Xen's store to the ready word, which comes after
		 * that to the head.
		 */
		atomic_thread_fence_acq();
		port = atomic_load_32(&fc->fc_block->head[queue]);
	}
	if (port == 0 || port / FIFO_PER_PAGE >= fifo_npages)
		return (false);
	word = fifo_word(port);
	fc->fc_head[queue] = fifo_unlink(word);
	/* A masked event stays pending: unmasking finds it. */
	if ((atomic_load_32(word) &
	    (FIFO_PENDING | FIFO_MASKED)) == FIFO_PENDING) {
		/* Acquire: what the sender wrote before it sent. */
		atomic_clear_acq_32(word, FIFO_PENDING);
		sink->es_deliver(port, frame);
	}
	return (fc->fc_head[queue] != 0);
}

static void
evtchn_fifo_scan(u_int cpu, struct trapframe *frame,
    const struct xen_evtchn_sink *sink)
{
	struct fifo_cpu *fc = &fifo_cpus[cpu];
	uint32_t ready;
	u_int queue;

	if (fc->fc_block == NULL)
		return;
	ready = atomic_swap_32(&fc->fc_block->ready, 0);
	/*
	 * The lowest number is the highest priority; one port of it, and look
	 * again.
	 */
	while (ready != 0) {
		queue = ffs(ready) - 1;
		if (queue >= EVTCHN_FIFO_MAX_QUEUES)
			break;
		if (!fifo_consume(fc, queue, frame, sink))
			ready &= ~(1U << queue);
		ready |= atomic_swap_32(&fc->fc_block->ready, 0);
	}
}

const struct xen_evtchn_abi xen_evtchn_fifo = {
	.ea_name = "FIFO",
	.ea_nports = EVTCHN_FIFO_NR_CHANNELS,
	.ea_init = evtchn_fifo_init,
	.ea_resume = evtchn_fifo_resume,
	.ea_reach = evtchn_fifo_reach,
	.ea_mask = evtchn_fifo_mask,
	.ea_unmask = evtchn_fifo_unmask,
	.ea_scan = evtchn_fifo_scan,
};
