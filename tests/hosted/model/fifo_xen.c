/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen's half of FIFO event channels: fifo_xen.h.
 *
 * What Xen does by the interface's rules, no more: it makes a CPU's queue ready, and calls it up, only
 * when it wrote the head of a queue that was empty, and only if the CPU is not called up already.  So
 * whatever the driver loses is lost.
 *
 * The heads are plain memory: the driver reads one after it took the queue's bit of the ready word, and
 * Xen writes the next one after it saw its tail unlinked.  ThreadSanitizer checks both orders.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/smp.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_hypercall.h>

#include "fifo_xen.h"
#include "host/host.h"
#include "kpi/intr.h"
#include "kpi/kpi.h"
#include "peer.h"

#define	FIFO_BIT(name)	(1U << EVTCHN_FIFO_##name)
#define	FIFO_PER_PAGE	(PAGE_SIZE / sizeof(event_word_t))
#define	FIFO_DAWDLE	32

MALLOC_DEFINE(M_XEN, "xen", "");

struct xen_cpu xen_cpus[MAXCPU];
struct shared_info *xen_shared;
volatile u_int xen_life;
bool xen_pinned;

static struct vcpu_info fifo_info;
static void (*fifo_upcall)(void);
static uint32_t fifo_seed = 1;		/* of what is done now one way, now another */
static int fifo_lock;
static struct evtchn_fifo_control_block *fifo_block;
static u_int fifo_block_vcpu, fifo_nblocks;
static struct vcpu_info fifo_second;
static bool fifo_refused;
static event_word_t *fifo_pages[4];
static u_int fifo_npages, fifo_taken;
static evtchn_port_t fifo_last;
bool fifo_xen_no_pages, fifo_xen_no_words;
int fifo_xen_ports, fifo_xen_bound, fifo_xen_sent;
u_int fifo_xen_vcpu;
static evtchn_port_t fifo_tail[EVTCHN_FIFO_MAX_QUEUES];

static void
fifo_enter(void)
{

	while (__atomic_exchange_n(&fifo_lock, 1, __ATOMIC_ACQUIRE) != 0)
		host_yield();
}

static void
fifo_exit(void)
{

	__atomic_store_n(&fifo_lock, 0, __ATOMIC_RELEASE);
}

static uint32_t *
fifo_word(evtchn_port_t port)
{

	CHECK(port / FIFO_PER_PAGE < fifo_npages, "port %u has no word", port);
	return (&fifo_pages[port / FIFO_PER_PAGE][port % FIFO_PER_PAGE]);
}

/* Three priorities, so that there are as many queues, one of which is long, and one the first. */
static u_int
fifo_queue_of(evtchn_port_t port)
{

	if (port % 8 == 7)
		return (EVTCHN_FIFO_PRIORITY_MAX);
	return (EVTCHN_FIFO_PRIORITY_DEFAULT + (port % 4 == 0));
}

void
fifo_xen_dawdle(uint32_t *seed)
{
	volatile u_int n;

	/* Mostly short: a store is on its way for some fifty nanoseconds. */
	n = FIFO_DAWDLE << peer_random(seed) % 4;
	for (n = peer_random(seed) % n; n > 0; n--)
		continue;
}

/* While Xen is busy with a word, the domain does not unmask it. */
static void
fifo_busy(uint32_t *word)
{
	uint32_t before, after;

	before = __atomic_fetch_or(word, FIFO_BIT(BUSY), __ATOMIC_SEQ_CST);
	fifo_xen_dawdle(&fifo_seed);
	after = __atomic_load_n(word, __ATOMIC_SEQ_CST);
	CHECK((before & ~after & FIFO_BIT(MASKED)) == 0, "unmasked while busy: 0x%x, 0x%x", before,
	    after);
}

/* Link a port behind the last one of a queue, which may be leaving it.  False: it has left. */
static bool
fifo_link(uint32_t *tail, evtchn_port_t port)
{
	uint32_t w;

	if (peer_random(&fifo_seed) % 2 != 0)
		fifo_busy(tail);
	w = __atomic_load_n(tail, __ATOMIC_ACQUIRE);
	while ((w & FIFO_BIT(LINKED)) != 0) {
		CHECK((w & EVTCHN_FIFO_LINK_MASK) == 0, "the last one has a link: 0x%x", w);
		if (__atomic_compare_exchange_n(tail, &w, (w & ~FIFO_BIT(BUSY)) | port, 0,
		    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return (true);
	}
	(void)__atomic_fetch_and(tail, ~FIFO_BIT(BUSY), __ATOMIC_SEQ_CST);
	return (false);
}

/* Queue a port that is pending, unless it is masked, or is in its queue. */
static void
fifo_queue(evtchn_port_t port)
{
	u_int queue = fifo_queue_of(port);
	evtchn_port_t tail = fifo_tail[queue];
	uint32_t *word = fifo_word(port);
	uint32_t bit = 1U << queue;

	if ((__atomic_load_n(word, __ATOMIC_SEQ_CST) & FIFO_BIT(MASKED)) != 0 ||
	    (__atomic_fetch_or(word, FIFO_BIT(LINKED), __ATOMIC_SEQ_CST) & FIFO_BIT(LINKED)) != 0)
		return;
	fifo_tail[queue] = port;
	/* If it was the last one itself, it has left. */
	if (tail != 0 && tail != port && fifo_link(fifo_word(tail), port))
		return;
	fifo_block->head[queue] = port;
	if ((__atomic_fetch_or(&fifo_block->ready, bit, __ATOMIC_SEQ_CST) & bit) == 0 &&
	    __atomic_exchange_n(&fifo_info.evtchn_upcall_pending, 1, __ATOMIC_SEQ_CST) == 0)
		fifo_upcall();
}

void
fifo_xen_next(evtchn_port_t port)
{

	fifo_last = port - 1;
}

void
fifo_xen_claim(u_int queue, evtchn_port_t port)
{

	if (port / FIFO_PER_PAGE < fifo_npages)
		*fifo_word(port) |= FIFO_BIT(PENDING);
	((volatile uint32_t *)fifo_block->head)[queue] = port;
	fifo_block->ready |= 1U << queue;
	fifo_info.evtchn_upcall_pending = 1;
}

void
fifo_xen_send(evtchn_port_t port)
{

	fifo_enter();
	if ((__atomic_fetch_or(fifo_word(port), FIFO_BIT(PENDING), __ATOMIC_SEQ_CST) &
	    FIFO_BIT(PENDING)) == 0)
		fifo_queue(port);
	fifo_exit();
}

void
fifo_xen_unmask(evtchn_port_t port)
{

	fifo_enter();
	if ((__atomic_fetch_and(fifo_word(port), ~FIFO_BIT(MASKED), __ATOMIC_SEQ_CST) &
	    FIFO_BIT(PENDING)) != 0)
		fifo_queue(port);
	fifo_exit();
}

/* The control block of a CPU, all of it zero: of the one with events, and once. */
static int
fifo_init_control(const struct evtchn_init_control *ic)
{
	void *block = (void *)(ic->control_gfn << PAGE_SHIFT);
	static const char zeros[PAGE_SIZE];

	CHECK(ic->offset == 0 && memcmp(block, zeros, sizeof(zeros)) == 0, "not a page of zeros");
	if (ic->vcpu != fifo_block_vcpu) {
		if (fifo_refused)
			return (EINVAL);
		CHECK(fifo_nblocks < 2, "vCPU %u", ic->vcpu);
		fifo_nblocks++;
		return (0);
	}
	CHECK(fifo_block == NULL, "vCPU %u has one", ic->vcpu);
	fifo_nblocks++;
	fifo_block = block;
	return (0);
}

int
xen_event_channel_op(u_int cmd, void *arg)
{
	event_word_t *page;
	evtchn_port_t port;

	switch (cmd) {
	case EVTCHNOP_init_control:
		return (fifo_init_control(arg));
	case EVTCHNOP_expand_array:
		if (fifo_xen_no_words)
			return (ENOMEM);
		CHECK(fifo_npages < nitems(fifo_pages), "%u pages", fifo_npages);
		page = (void *)(((struct evtchn_expand_array *)arg)->array_gfn << PAGE_SHIFT);
		for (port = 0; port < FIFO_PER_PAGE; port++)
			CHECK(page[port] == FIFO_BIT(MASKED), "word %u is 0x%x", port, page[port]);
		fifo_pages[fifo_npages++] = page;
		return (0);
	case EVTCHNOP_alloc_unbound:
		CHECK(((struct evtchn_alloc_unbound *)arg)->dom == DOMID_SELF &&
		    ((struct evtchn_alloc_unbound *)arg)->remote_dom == FIFO_XEN_REMOTE,
		    "between %u and %u",
		    ((struct evtchn_alloc_unbound *)arg)->dom,
		    ((struct evtchn_alloc_unbound *)arg)->remote_dom);
		((struct evtchn_alloc_unbound *)arg)->port = ++fifo_last;
		fifo_xen_ports++;
		return (0);
	case EVTCHNOP_send:
		port = ((struct evtchn_send *)arg)->port;
		CHECK(port != 0 && port <= fifo_last, "port %u", port);
		fifo_xen_sent++;
		return (0);
	case EVTCHNOP_unmask:
		/* Whoever frees the channel waits for CPUs to enable interrupts. */
		CHECK(kpi_intr_off, "unmasked while it may be freed");
		port = ((struct evtchn_unmask *)arg)->port;
		/* It stays so, as it is masked: otherwise no call is needed. */
		CHECK((__atomic_load_n(fifo_word(port), __ATOMIC_SEQ_CST) & FIFO_BIT(PENDING)) != 0,
		    "port %u has no event", port);
		fifo_xen_unmask(port);
		return (0);
	case EVTCHNOP_bind_vcpu:
		port = ((struct evtchn_bind_vcpu *)arg)->port;
		CHECK((*fifo_word(port) & FIFO_BIT(MASKED)) != 0, "port %u is moved, not masked", port);
		fifo_xen_vcpu = ((struct evtchn_bind_vcpu *)arg)->vcpu;
		fifo_xen_bound++;
		return (0);
	case EVTCHNOP_close:
		port = ((struct evtchn_close *)arg)->port;
		CHECK(port / FIFO_PER_PAGE >= fifo_npages ||
		    (*fifo_word(port) & FIFO_BIT(MASKED)) != 0, "port %u is closed, not masked", port);
		fifo_xen_ports--;
		return (0);
	default:
		CHECK(false, "EVTCHNOP %u", cmd);
		return (ENOSYS);
	}
}

void *
xen_page_alloc(void)
{
	void *page;

	if (fifo_xen_no_pages)
		return (NULL);
	page = host_alloc(PAGE_SIZE, PAGE_SIZE);
	memset(page, 0, PAGE_SIZE);
	fifo_taken++;
	return (page);
}

void
xen_page_free(void *page)
{

	fifo_taken--;
	host_free(page);
}

void
fifo_xen_open(void (*upcall)(void))
{

	fifo_upcall = upcall;
	xen_cpus[0].xc_info = &fifo_info;
	/* It has called up already, when there was nobody to look. */
	fifo_info.evtchn_upcall_pending = 1;
}

void
fifo_xen_close(void)
{

	CHECK(fifo_xen_ports == 0, "%d ports are open", fifo_xen_ports);
	CHECK(kpi_mallocs == 0, "%d pieces of memory are left", kpi_mallocs);
	CHECK(fifo_block->ready == 0, "queues 0x%x are left", fifo_block->ready);
	CHECK(fifo_taken == fifo_npages + fifo_nblocks, "%u pages for %u of words and %u blocks",
	    fifo_taken, fifo_npages, fifo_nblocks);
}

void
fifo_xen_second_cpu(u_int vcpu, bool refused)
{

	fifo_refused = refused;
	mp_maxid = 1;
	CPU_SET(1, &all_cpus);
	xen_cpus[1].xc_info = &fifo_second;
	xen_cpus[1].xc_vcpu = vcpu;
	/* The first one's is another. */
	xen_cpus[0].xc_vcpu = fifo_block_vcpu = vcpu == 0 ? 1 : 0;
}

bool
fifo_xen_calls(void)
{

	return (__atomic_load_n(&fifo_info.evtchn_upcall_pending, __ATOMIC_SEQ_CST) != 0);
}

void
fifo_xen_where(char *buf, size_t size)
{
	evtchn_port_t port;
	int n;

	n = snprintf(buf, size, "upcall pending %u, ready 0x%x", fifo_info.evtchn_upcall_pending,
	    fifo_block->ready);
	for (port = 1; port <= fifo_last; port++)
		n += snprintf(buf + n, size - n, ", port %u 0x%x", port, *fifo_word(port));
}
