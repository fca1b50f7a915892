/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Functions that can fail, in place of the kernel's of the same name without
 * "fault_", and that do when a test says so.  Modules of the suite get them when
 * their symbols are renamed (faulty_modules of faults.subr); nothing of the suite
 * is compiled for it.
 *
 *	debug.faults.nth=N	the Nth call from now fails; 0: none does
 *	debug.faults.every=N	and each Nth call; 0: none does
 *	debug.faults.of=NAME	of this function only, and of its calls in a loop all
 *	debug.faults.failed	how many failed since nth or every was set
 *	debug.faults.where	the function that failed last
 *
 * Only calls that are allowed to fail are counted: an allocation that may sleep
 * does not fail in FreeBSD either.  contigmalloc(9) does.  Of calls in a loop, which
 * come from one place or from two in turn, nth counts the first two of each.
 *
 * Memory for DMA comes through a pointer of the tag, so that each tag which is
 * created gets one of ours.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/counter.h>
#include <sys/interrupt.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/module.h>
#include <sys/rman.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <machine/bus.h>
#include <machine/stdarg.h>
#include <machine/atomic.h>
#include <net/if.h>
#include <net/if_var.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/tcp_lro.h>
#include <vm/vm.h>
#include <vm/uma.h>
#include <vm/vm_page.h>
#include <x86/busdma_impl.h>

#include "pci_if.h"
#include "faults.h"

static SYSCTL_NODE(_debug, OID_AUTO, faults, CTLFLAG_RW, NULL, "Calls that fail");

static u_int fault_nth, fault_every, fault_failed, fault_calls;
/* The two places that calls came from last, and how often. */
static struct {
	const void	*place;
	u_int		 times;
} fault_places[2];
static char fault_where[32], fault_of[32];

#define	FAULT_REPEATED	2

/* How often calls came from this place lately. */
static u_int
fault_times(const void *place)
{
	u_int i;

	for (i = 0; i < nitems(fault_places); i++) {
		if (fault_places[i].place == place)
			return (++fault_places[i].times);
	}
	fault_places[1] = fault_places[0];
	fault_places[0].place = place;
	fault_places[0].times = 1;
	return (1);
}

bool
fault_from(const char *name, const void *place)
{
	u_int every = fault_every, call;

	if (fault_nth == 0 && every == 0)
		return (false);
	if (fault_of[0] != '\0' && strcmp(fault_of, name) != 0)
		return (false);
	if (fault_nth != 0 && fault_of[0] == '\0' && fault_times(place) > FAULT_REPEATED)
		return (false);
	call = atomic_fetchadd_int(&fault_calls, 1) + 1;
	if (call != fault_nth && (every == 0 || call % every != 0))
		return (false);
	atomic_add_int(&fault_failed, 1);
	strlcpy(fault_where, name, sizeof(fault_where));
	return (true);
}

static int
fault_sysctl(SYSCTL_HANDLER_ARGS)
{
	u_int *number = arg1, value = *number;
	int error;

	error = sysctl_handle_int(oidp, &value, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	fault_nth = fault_every = 0;
	fault_calls = fault_failed = 0;
	memset(fault_places, 0, sizeof(fault_places));
	fault_where[0] = '\0';
	*number = value;
	return (0);
}
SYSCTL_PROC(_debug_faults, OID_AUTO, nth, CTLTYPE_UINT | CTLFLAG_RW | CTLFLAG_MPSAFE, &fault_nth, 0,
    fault_sysctl, "IU", "The call that fails");
SYSCTL_PROC(_debug_faults, OID_AUTO, every, CTLTYPE_UINT | CTLFLAG_RW | CTLFLAG_MPSAFE, &fault_every,
    0, fault_sysctl, "IU", "Each so manieth call fails");
SYSCTL_UINT(_debug_faults, OID_AUTO, failed, CTLFLAG_RD, &fault_failed, 0, "Calls that failed");
SYSCTL_STRING(_debug_faults, OID_AUTO, of, CTLFLAG_RW, fault_of, sizeof(fault_of),
    "The function whose calls fail");
SYSCTL_STRING(_debug_faults, OID_AUTO, where, CTLFLAG_RD, fault_where, 0, "The last of them");

#define	NOWAIT(flags)	(((flags) & M_WAITOK) == 0)

FAULT(void *, malloc, (size_t size, struct malloc_type *type, int flags), (size, type, flags),
    NOWAIT(flags), NULL)
FAULT(void *, mallocarray, (size_t n, size_t size, struct malloc_type *type, int flags),
    (n, size, type, flags), NOWAIT(flags), NULL)
FAULT(void *, malloc_aligned, (size_t size, size_t align, struct malloc_type *type, int flags),
    (size, align, type, flags), NOWAIT(flags), NULL)
FAULT(void *, contigmalloc, (unsigned long size, struct malloc_type *type, int flags, vm_paddr_t low,
    vm_paddr_t high, unsigned long alignment, vm_paddr_t boundary),
    (size, type, flags, low, high, alignment, boundary), true, NULL)
FAULT(void *, uma_zalloc_arg, (uma_zone_t zone, void *arg, int flags), (zone, arg, flags),
    NOWAIT(flags), NULL)
FAULT(struct mbuf *, m_getjcl, (int how, short type, int flags, int size), (how, type, flags, size),
    NOWAIT(how), NULL)
FAULT(struct mbuf *, m_defrag, (struct mbuf *m, int how), (m, how), NOWAIT(how), NULL)
FAULT(struct mbuf *, m_collapse, (struct mbuf *m, int how, int pieces), (m, how, pieces), NOWAIT(how),
    NULL)
FAULT(struct mbuf *, m_copym, (struct mbuf *m, int off, int len, int how), (m, off, len, how),
    NOWAIT(how), NULL)
FAULT(int, m_dup_pkthdr, (struct mbuf *to, const struct mbuf *from, int how), (to, from, how),
    NOWAIT(how), 0)
FAULT(int, bus_dmamap_load, (bus_dma_tag_t tag, bus_dmamap_t map, void *buf, bus_size_t size,
    bus_dmamap_callback_t *callback, void *arg, int flags),
    (tag, map, buf, size, callback, arg, flags), true, ENOMEM)
FAULT(int, bus_dmamap_load_bio, (bus_dma_tag_t tag, bus_dmamap_t map, struct bio *bp,
    bus_dmamap_callback_t *callback, void *arg, int flags), (tag, map, bp, callback, arg, flags),
    true, ENOMEM)
FAULT(int, bus_dmamap_load_mbuf_sg, (bus_dma_tag_t tag, bus_dmamap_t map, struct mbuf *m,
    bus_dma_segment_t *segs, int *n, int flags), (tag, map, m, segs, n, flags), true, ENOMEM)
FAULT(struct resource *, bus_alloc_resource, (device_t dev, int type, int *rid, rman_res_t start,
    rman_res_t end, rman_res_t count, u_int flags), (dev, type, rid, start, end, count, flags), true,
    NULL)
FAULT(int, bus_setup_intr, (device_t dev, struct resource *r, int flags, driver_filter_t filter,
    driver_intr_t handler, void *arg, void **cookie), (dev, r, flags, filter, handler, arg, cookie),
    true, ENOMEM)
FAULT(int, taskqueue_start_threads_cpuset, (struct taskqueue **tqp, int count, int pri,
    cpuset_t *mask, const char *name, ...), (tqp, count, pri, mask, "%s", name), true, ENOMEM)
FAULT(device_t, device_add_child, (device_t dev, const char *name, int unit), (dev, name, unit), true,
    NULL)
FAULT(int, intr_event_create, (struct intr_event **event, void *source, int flags, u_int irq,
    void (*pre)(void *), void (*post)(void *), void (*eoi)(void *),
    int (*assign)(void *, int), const char *fmt, ...),
    (event, source, flags, irq, pre, post, eoi, assign, "%s", fmt), true, ENOMEM)
FAULT(int, intr_event_add_handler, (struct intr_event *ie, const char *name, driver_filter_t filter,
    driver_intr_t handler, void *arg, u_char pri, enum intr_type flags, void **cookie),
    (ie, name, filter, handler, arg, pri, flags, cookie), true, ENOMEM)
FAULT(vm_page_t, vm_page_alloc_noobj, (int flags), (flags), (flags & VM_ALLOC_WAITOK) == 0, NULL)
FAULT(vm_page_t, vm_page_alloc_noobj_contig, (int flags, u_long n, vm_paddr_t low, vm_paddr_t high,
    u_long alignment, vm_paddr_t boundary, vm_memattr_t attr),
    (flags, n, low, high, alignment, boundary, attr), true, NULL)
FAULT(int, tcp_lro_init_args, (struct lro_ctrl *lc, struct ifnet *ifp, unsigned entries,
    unsigned mbufs), (lc, ifp, entries, mbufs), true, ENOMEM)
FAULT(counter_u64_t, counter_u64_alloc, (int flags), (flags), NOWAIT(flags), NULL)
FAULT(struct buf_ring *, buf_ring_alloc, (int count, struct malloc_type *type, int flags,
    struct mtx *lock), (count, type, flags, lock), NOWAIT(flags), NULL)

/* It frees what it was given when it fails. */
struct mbuf *fault_m_pullup(struct mbuf *m, int len);
struct mbuf *
fault_m_pullup(struct mbuf *m, int len)
{
	if (!fault_now("m_pullup"))
		return (m_pullup(m, len));
	m_freem(m);
	return (NULL);
}

int	fault_taskqueue_start_threads(struct taskqueue **tqp, int count, int pri, const char *fmt, ...);
int
fault_taskqueue_start_threads(struct taskqueue **tqp, int count, int pri, const char *fmt, ...)
{
	char name[MAXCOMLEN + 1];
	va_list ap;

	if (fault_now("taskqueue_start_threads"))
		return (ENOMEM);
	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	return (taskqueue_start_threads(tqp, count, pri, "%s", name));
}

static struct bus_dma_impl fault_dma_impl, *fault_dma_real;

static int
fault_mem_alloc(bus_dma_tag_t tag, void **vaddr, int flags, bus_dmamap_t *mapp)
{
	return (fault_now("bus_dmamem_alloc") ? ENOMEM :
	    fault_dma_real->mem_alloc(tag, vaddr, flags, mapp));
}

static int
fault_map_create(bus_dma_tag_t tag, int flags, bus_dmamap_t *mapp)
{
	return (fault_now("bus_dmamap_create") ? ENOMEM :
	    fault_dma_real->map_create(tag, flags, mapp));
}

int	fault_bus_dma_tag_create(bus_dma_tag_t parent, bus_size_t alignment, bus_addr_t boundary,
	    bus_addr_t low, bus_addr_t high, bus_dma_filter_t *filter, void *filterarg,
	    bus_size_t maxsize, int nsegments, bus_size_t maxsegsz, int flags, bus_dma_lock_t *lock,
	    void *lockarg, bus_dma_tag_t *tagp);
int
fault_bus_dma_tag_create(bus_dma_tag_t parent, bus_size_t alignment, bus_addr_t boundary,
    bus_addr_t low, bus_addr_t high, bus_dma_filter_t *filter, void *filterarg, bus_size_t maxsize,
    int nsegments, bus_size_t maxsegsz, int flags, bus_dma_lock_t *lock, void *lockarg,
    bus_dma_tag_t *tagp)
{
	struct bus_dma_tag_common *common;
	int error;

	if (fault_now("bus_dma_tag_create"))
		return (ENOMEM);
	error = bus_dma_tag_create(parent, alignment, boundary, low, high, filter, filterarg, maxsize,
	    nsegments, maxsegsz, flags, lock, lockarg, tagp);
	if (error != 0)
		return (error);
	common = (struct bus_dma_tag_common *)*tagp;
	if (common->impl == &fault_dma_impl)
		return (0);
	KASSERT(fault_dma_real == NULL || fault_dma_real == common->impl, ("two kinds of tags"));
	fault_dma_impl = *common->impl;
	fault_dma_impl.mem_alloc = fault_mem_alloc;
	fault_dma_impl.map_create = fault_map_create;
	fault_dma_real = common->impl;
	common->impl = &fault_dma_impl;
	return (0);
}

/* The method of no class: its default is called. */
static int
fault_alloc_msix(device_t bus, device_t dev, int *count)
{
	return (fault_now("pci_alloc_msix") ? ENOMEM : PCI_ALLOC_MSIX(bus, dev, count));
}

extern struct kobjop_desc fault_pci_alloc_msix_desc;
struct kobjop_desc fault_pci_alloc_msix_desc = {
	0, { &fault_pci_alloc_msix_desc, (kobjop_t)fault_alloc_msix }
};

static moduledata_t fault_module = { "faults", NULL, NULL };
DECLARE_MODULE(faults, fault_module, SI_SUB_DRIVERS, SI_ORDER_ANY);
MODULE_VERSION(faults, 1);
