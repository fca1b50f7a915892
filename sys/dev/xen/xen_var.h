/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen's public headers, as every file of the suite includes them, and what the parts of the module
 * xen share.  Drivers use xenbus.h, xenstore.h, xen_evtchn.h, xen_gnttab.h and grant_ring.h instead.
 *
 * Structures follow the generation of Xen 4.13; an older or newer Xen understands them.
 *
 * The parts, in the order in which xen.c begins them; each is undone in reverse:
 *
 *	xen_hypercall.c		calling Xen
 *	xen_cpu.c		the shared info page; each CPU's number and memory with Xen
 *	xen_upcall.c		an interrupt vector on each CPU
 *	xen_evtchn.c		event channels, by the FIFO or the 2-level interface
 *	xen_gnttab.c		grant table
 *	xenstore.c		xenstore, and xenstore_ring.c below it
 *	xen_suspend.c		the end of a domain, and its new life
 *	xen_control.c		what the administrator wants: shutdown, suspension, sysrq
 *	xen_clock.c		time of day
 *	xen_timer.c		an event timer
 *	xenbus.c		front ends
 *
 * and beside them
 *
 *	platform/xen_platform.c	an HVM domain's emulated devices, which have to go
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
struct timespec;
struct trapframe;

MALLOC_DECLARE(M_XEN);

/* How often the domain began a new life: what was shared before that is shared no more. */
extern volatile u_int xen_life;

/* Xen was given memory for good: the module has to stay. */
extern bool xen_pinned;

/* A zeroed page of memory that Xen or another domain may use.  May sleep.  NULL: there is none. */
void	*xen_page_alloc(void);
void	xen_page_free(void *page);

/*
 * Guest-physical addresses without memory, which Xen is to put its own pages at.
 */
struct xen_space {
	struct resource	*xs_res;
	int		 xs_rid;
	vm_paddr_t	 xs_paddr;
	char		*xs_vaddr;
	size_t		 xs_size;
};

/*
 * Reserve size bytes of address space below dev, a child of nexus, and map them cacheable; accesses
 * fault until Xen's pages are there.
 *
 * rid  a number that is dev's own
 *
 * Returns 0 or ENOMEM.  May sleep.
 */
int	xen_space_alloc(device_t dev, int rid, size_t size, struct xen_space *space);
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
	bool		 xc_deaf;	/* no event comes to it */
	uint64_t	 xc_upcalls;
};

extern struct xen_cpu xen_cpus[MAXCPU];	/* by CPU, not by vCPU */
extern struct shared_info *xen_shared;

/*
 * Each part: begin, with messages for dev, the root device, which is a child of nexus; and end,
 * also what began in part only.  May sleep.
 */
int	xen_cpu_init(device_t dev);
void	xen_cpu_fini(device_t dev);
int	xen_upcall_init(device_t dev);
void	xen_upcall_fini(device_t dev);
int	xen_evtchn_init(device_t dev);
void	xen_evtchn_fini(device_t dev);
int	xen_gnttab_init(device_t dev);
void	xen_gnttab_fini(device_t dev);
int	xenstore_init(device_t dev);
void	xenstore_fini(device_t dev);
int	xen_suspend_init(device_t dev);
void	xen_suspend_fini(device_t dev);
int	xen_control_init(device_t dev);
void	xen_control_fini(device_t dev);
int	xen_clock_init(device_t dev);
void	xen_clock_fini(device_t dev);
int	xen_timer_init(device_t dev);
void	xen_timer_fini(device_t dev);

/*
 * After a suspension, while one CPU runs with interrupts off, which is that of vCPU 0: each part asks
 * Xen again for what it had.  All return 0 or an errno value.
 */
int	xen_cpu_resume(void);
int	xen_gnttab_resume(void);
int	xen_evtchn_resume(void);

/*
 * And on each CPU, that one first, in this order.  No channel is unmasked before
 * xen_evtchn_resume_self(), which does it for this CPU's VIRQs.
 */
int	xen_cpu_resume_self(bool first);
int	xen_upcall_resume(void);
void	xen_evtchn_resume_self(void);
void	xen_timer_resume_self(void);

/* No channel is made or closed from the one to the other.  May sleep. */
void	xen_evtchn_suspend(void);
void	xen_evtchn_go_on(void);

/* Suspend the domain soon; done() is called when it runs again, in a thread.  Any context. */
void	xen_suspend_soon(void (*done)(bool cancelled));

/*
 * Has the kernel drivers of its own for Xen (options XENHVM)?  They have the hypercall page, the upcall
 * and xenstore before a module can: nothing is done here then.
 */
bool	xen_is_taken(void);

/*
 * The device model emulates devices of that type of a front end ("vbd"), and is to go on with it: they
 * are not for us.
 */
bool	xen_platform_emulates(const char *type);

/* After a suspension, while one CPU runs with interrupts off: unplug what was unplugged. */
void	xen_platform_resume(void);

/* The kernel moves an upcall's interrupt: bus_remap_intr(9) of the root device. */
int	xen_upcall_remap(device_t dev, device_t child, u_int irq);

/*
 * Xen's system time in nanoseconds, which hypercalls take and give.  Any context, once xen_cpu_init()
 * has been called.
 */
uint64_t xen_clock_system(void);

/* The root device's methods as a time-of-day clock (clock_if.m). */
int	xen_clock_gettime(device_t dev, struct timespec *ts);
int	xen_clock_settime(device_t dev, struct timespec *ts);

/* After a suspension: set the time of day.  May sleep. */
void	xen_clock_resume(void);

/* An upcall has come to a CPU. */
void	xen_evtchn_upcall(u_int cpu, struct trapframe *frame);

/* Numbers, below the root device's. */
void	xen_evtchn_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent);
void	xen_gnttab_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent);
void	xenstore_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent);
void	xen_suspend_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent);
void	xen_timer_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent);

#endif /* !_DEV_XEN_XEN_VAR_H_ */
