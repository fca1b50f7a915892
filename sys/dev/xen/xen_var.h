/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen's public headers, as every file of the suite includes them, and what the
 * parts of the module xen share.  Drivers use xenbus.h, xenstore.h,
 * xen_evtchn.h, xen_gnttab.h and grant_ring.h instead.
 *
 * Structures follow the generation of Xen 4.13; an older or newer Xen
 * understands them.
 *
 * The files form a stack, which sys/modules/xen/Makefile lists lowest first.
 * What is above calls what is below; in the other direction there are callbacks
 * that were handed down (struct xen_evtchn_sink, struct xenstore_watcher), and
 * interrupts, watches and tasks.
 *
 *	xen.c			attach, parts, module events
 *	xen_control.c		shutdown, suspension and sysrq by the toolstack
 *	xen_suspend.c		the end of a domain, and its new life
 *	xenbus.c		front ends; xenbus_state.c, xenbus_read.c below
 *				it
 *	platform/xen_platform.c	unplugs an HVM domain's emulated devices
 *	xenstore_watch.c	watches; xenstore.c (requests), xenstore_ring.c,
 *				xenstore_doubt.c below it
 *	grant_ring.c		pvq(9) over shared rings
 *	xen_gnttab_end.c	ends grants; xen_gnttab.c (the table) below it
 *	xen_timer.c		an event timer
 *	xen_upcall.c		an interrupt vector on each CPU
 *	xen_evtchn.c		event channels; xen_evtchn_fifo.c,
 *				xen_evtchn_2l.c below it
 *	xen_clock.c		system time, time of day
 *	xen_cpu.c		the shared info page; each CPU's number and
 *				memory with Xen
 *	xen_memory.c		pages and address space that are shared with Xen
 *	xen_hypercall.c		finding Xen, and calling it
 *
 * xen.c begins the parts in the order of xen_parts[], and ends them in reverse.
 */

#ifndef _DEV_XEN_XEN_VAR_H_
#define	_DEV_XEN_XEN_VAR_H_

#include <sys/param.h>
#include <sys/malloc.h>

#ifndef __XEN_INTERFACE_VERSION__
#define	__XEN_INTERFACE_VERSION__	0x00040d00
#endif
#include <xen/xen.h>

struct resource;
struct sysctl_ctx_list;
struct sysctl_oid;
struct sysctl_oid_list;
struct timespec;
struct trapframe;

MALLOC_DECLARE(M_XEN);

/*
 * How often the domain began a new life by a suspension: what was shared before
 * is shared no more.
 */
extern volatile u_int xen_life;

/* Xen was given memory permanently: the module has to stay. */
extern bool xen_pinned;

/*
 * A zeroed page of memory that Xen or another domain may use.  May sleep.
 * NULL: there is none.
 */
void	*xen_page_alloc(void);
void	xen_page_free(void *page);

/*
 * Guest-physical addresses without memory, which Xen is to put its own pages
 * at.
 */
struct xen_space {
	struct resource	*xs_res;
	int		 xs_rid;
	vm_paddr_t	 xs_paddr;
	char		*xs_vaddr;
	size_t		 xs_size;
};

/*
 * Reserve size bytes of address space below dev, a child of nexus, and map them
 * cacheable; accesses fault until Xen's pages are there.
 *
 * rid  a number that is dev's own
 *
 * Returns 0 or ENOMEM.  May sleep.
 */
int	xen_space_alloc(device_t dev, int rid, size_t size,
    struct xen_space *space);
void	xen_space_free(device_t dev, struct xen_space *space);

/* A CPU and Xen. */
struct xen_cpu {
	u_int		 xc_vcpu;	/* Xen's number of it */
	struct vcpu_info *xc_info;
	int		 xc_error;	/* why there is none */
	int		 xc_irq;	/* 0: none */
	uint8_t		 xc_vector;	/* of that interrupt, on this CPU */
	struct resource	*xc_res;
	void		*xc_cookie;
	bool		 xc_no_queues;	/* Xen gave it no event queues */
	uint64_t	 xc_upcalls;
};

extern struct xen_cpu xen_cpus[MAXCPU];	/* by CPU, not by vCPU */
extern struct shared_info *xen_shared;

/*
 * Each part: begin, with messages for dev, the root device, which is a child of
 * nexus; and end, also what began in part only.  May sleep.
 */
int	xen_cpu_init(device_t dev);
void	xen_cpu_fini(device_t dev);
int	xen_upcall_init(device_t dev);
void	xen_upcall_fini(device_t dev);
int	xen_evtchn_init(device_t dev);
void	xen_evtchn_fini(device_t dev);
int	xen_gnttab_init(device_t dev);
void	xen_gnttab_fini(device_t dev);
int	xen_gnttab_end_init(device_t dev);
void	xen_gnttab_end_fini(device_t dev);
int	xenstore_init(device_t dev);
void	xenstore_fini(device_t dev);
int	xenstore_watch_init(device_t dev);
void	xenstore_watch_fini(device_t dev);
int	xen_suspend_init(device_t dev);
void	xen_suspend_fini(device_t dev);
int	xen_control_init(device_t dev);
void	xen_control_fini(device_t dev);
int	xen_clock_init(device_t dev);
void	xen_clock_fini(device_t dev);
int	xen_timer_init(device_t dev);
void	xen_timer_fini(device_t dev);

/*
 * After a suspension, while one CPU runs with interrupts off, which is that of
 * vCPU 0: each part requests from Xen what it had before.  All return 0 or an
 * errno value.
 */
int	xen_cpu_resume(void);
int	xen_gnttab_resume(void);
/*
 * And, in a thread: references that the new grant table has no place for are
 * not free any more.
 */
void	xen_gnttab_prune(void);
int	xen_evtchn_resume(void);

/*
 * And on each CPU, that one first, in this order.  No channel is unmasked
 * before xen_evtchn_resume_self(), which does it for this CPU's VIRQs.
 */
int	xen_cpu_resume_self(bool first);
int	xen_upcall_resume(void);
void	xen_evtchn_resume_self(void);
void	xen_timer_resume_self(void);

/* No channel is made or closed from the one to the other.  May sleep. */
void	xen_evtchn_suspend(void);
void	xen_evtchn_go_on(void);

/*
 * Who wants the domain suspended; both are called in a thread, and may sleep.
 *
 * xso_is_wanted  does it still want that?  Front ends are held only for one who
 *                does.
 * xso_take       take the request, once all are held; false: it was withdrawn
 *                meanwhile
 * xso_done       the domain runs again
 */
struct xen_suspend_ops {
	bool	(*xso_is_wanted)(void);
	bool	(*xso_take)(void);
	void	(*xso_done)(bool cancelled);
};

/* Suspend the domain soon.  Does not sleep. */
void	xen_suspend_soon(const struct xen_suspend_ops *ops);

/* What can be suspended has attached: until now, requests waited. */
void	xen_suspend_allow(void);

/*
 * Has the kernel drivers of its own for Xen (options XENHVM)?  They have the
 * hypercall page, the upcall and xenstore before a module can: nothing is done
 * here then.
 */
bool	xen_is_taken(void);

/*
 * After a suspension, while one CPU runs with interrupts off: unplug what was
 * unplugged.
 */
void	xen_platform_resume(void);

/*
 * The kernel moves an upcall's interrupt: bus_remap_intr(9) of the root device.
 */
int	xen_upcall_remap(device_t dev, device_t child, u_int irq);

/*
 * Xen's system time in nanoseconds, which hypercalls take and give.  Any
 * context, once xen_cpu_init() has been called.
 */
uint64_t xen_clock_system(void);

/* The root device's methods as a time-of-day clock (clock_if.m). */
int	xen_clock_gettime(device_t dev, struct timespec *ts);
int	xen_clock_settime(device_t dev, struct timespec *ts);

/* After a suspension: set the time of day.  May sleep. */
void	xen_clock_resume(bool cancelled);

/* A CPU got an upcall. */
void	xen_evtchn_upcall(u_int cpu, struct trapframe *frame);

/* Numbers, below the root device's. */
void	xen_evtchn_sysctl(struct sysctl_ctx_list *ctx,
    struct sysctl_oid *parent);
void	xen_clock_sysctl(struct sysctl_ctx_list *ctx,
    struct sysctl_oid *parent);
struct sysctl_oid_list *xen_gnttab_sysctl(struct sysctl_ctx_list *ctx,
    struct sysctl_oid *parent);
void	xen_gnttab_table_sysctl(struct sysctl_ctx_list *ctx,
    struct sysctl_oid_list *list);
void	xenstore_watch_sysctl(struct sysctl_ctx_list *ctx,
    struct sysctl_oid *parent);
void	xenstore_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent);
void	xen_suspend_sysctl(struct sysctl_ctx_list *ctx,
    struct sysctl_oid *parent);
void	xen_timer_sysctl(struct sysctl_ctx_list *ctx,
    struct sysctl_oid *parent);

#endif /* !_DEV_XEN_XEN_VAR_H_ */
