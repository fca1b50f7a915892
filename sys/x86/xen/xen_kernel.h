/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The kernel's own Xen support, and how it shares the machine with a module that knows more.
 *
 * The kernel sets up by itself, on each processor and before any module: the hypercall page, the
 * shared info page, vcpu_info (each can be registered once only), and the upcall vector
 * IDT_EVTCHN.  It serves 2-level event channels, of which it uses one, the console's.
 *
 *	before xen_upcall_take()	IDT_EVTCHN -> the kernel's scan of the pending bits -> kernel ports
 *	after it			IDT_EVTCHN -> ops->upcall() of the module
 *						every port that is not the module's -> xen_kernel_event()
 *
 * So the module owns the delivery from then on, 2-level or FIFO: it reads and clears the pending
 * state of every port, the kernel's too, and never binds, closes or moves a port of
 * xen_kernel_ports().  It may as well have a vector of its own (lapic_ipi_alloc(),
 * HVMOP_set_evtchn_upcall_vector on each processor): the kernel does not touch that setting again
 * but in xen_cpu_init().  A module that switched to FIFO can't give the upcall back, as Xen has no
 * way back but EVTCHNOP_reset, which closes the kernel's ports.
 *
 * Everything here is for a guest of Xen (xen_domain()); elsewhere the pointers are NULL.
 */
#ifndef _X86_XEN_KERNEL_H_
#define	_X86_XEN_KERNEL_H_

#include <sys/types.h>
#include <sys/pcpu.h>

/* Which generation of the public interface the structures are to follow: Xen 4.13's or newer. */
#ifndef __XEN_INTERFACE_VERSION__
#define	__XEN_INTERFACE_VERSION__	0x00040d00
#endif
#include <xen/xen.h>
#include <xen/event_channel.h>

struct trapframe;

/* Entry of a hypercall: hypercall_page + 32 * number; filled by Xen, executable. */
extern char hypercall_page[];

/* The domain's shared info page; NULL without Xen. */
extern struct shared_info *HYPERVISOR_shared_info;

/* This processor's vcpu_info, registered with VCPUOP_register_vcpu_info. */
DPCPU_DECLARE(struct vcpu_info *, vcpu_info);

/* Is this a guest of Xen, with the hypercall page filled?  True from cninit() on. */
bool	xen_domain(void);

/* Xen's number of a processor. */
u_int	xen_vcpu_id(u_int cpu);

/*
 * Call Xen.  nr: __HYPERVISOR_*; unused arguments are 0, pointers are virtual addresses.  Returns
 * what Xen returns: errors are negative and in Xen's own numbering (xen/errno.h).  Any context.
 */
long	xen_hypercall(u_int nr, u_long a1, u_long a2, u_long a3, u_long a4, u_long a5);

/* A parameter of the domain (HVM_PARAM_*); 0 or an errno value. */
int	xen_get_param(uint32_t index, uint64_t *valuep);

/* Xen's error number, as a hypercall returns it (0 or negative), as one of sys/errno.h. */
int	xen_errno(long xen_error);

/* In interrupt context, on the processor that the port is bound to. */
typedef void xen_kernel_handler_t(void *arg);

/*
 * Serve a port (bound already, by Xen or the caller) in the kernel: handler runs after its pending
 * bit was cleared.  The port is unmasked.  EEXIST: has a handler; ENOSPC: no room.
 */
int	xen_intr_bind_kernel(evtchn_port_t port, xen_kernel_handler_t *handler, void *arg);
void	xen_intr_unbind_kernel(evtchn_port_t port);

/* The kernel's ports: at most max into ports; returns how many there are. */
u_int	xen_kernel_ports(evtchn_port_t *ports, u_int max);

/* Run the handler of one of the kernel's ports; false: it is none.  Interrupt context. */
bool	xen_kernel_event(evtchn_port_t port);

struct xen_upcall_ops {
	/* An upcall has come: in interrupt context with interrupts off, the vector acknowledged. */
	void	(*upcall)(struct trapframe *frame);
	/* Unmask a port: one that the kernel binds later.  Any context. */
	void	(*unmask)(evtchn_port_t port);
};

/*
 * Take over the delivery of events; may sleep.  On return no processor runs the kernel's scan any
 * more, and the kernel's ports are unmasked in the 2-level bitmap.  EBUSY: somebody has it.
 */
int	xen_upcall_take(const struct xen_upcall_ops *ops);

/* Return it; the module's ports are closed, events are 2-level.  May sleep until ops are unused. */
void	xen_upcall_give_back(void);

/*
 * (Re-)register this processor with Xen: vcpu_info and the upcall vector.  The kernel does it at
 * boot; a module that resumes the domain (SCHEDOP_shutdown, SHUTDOWN_suspend) does it again on
 * each processor, after xen_kernel_resume() on the first: that maps the shared info page, and
 * masks all event channels.  The console finds its new channel by the event power_resume.
 */
void	xen_cpu_init(void);
void	xen_kernel_resume(void);

#endif /* !_X86_XEN_KERNEL_H_ */
