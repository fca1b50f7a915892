/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The kernel's own Xen support, and how a module that knows more shares the domain with it.
 *
 * The kernel sets up, before any module is loaded: a hypercall page of its own, the shared info
 * page and each processor's vcpu_info (these two can be had once only, so a module uses them, by
 * FreeBSD's names HYPERVISOR_shared_info and vcpu_info), and the upcall vector IDT_EVTCHN.  It
 * serves 2-level event channels, of which it uses one, the console's.
 *
 * A module takes the delivery of events over by giving each processor another upcall vector
 * (HVMOP_set_evtchn_upcall_vector), 2-level or FIFO as it likes.  From then on the kernel hears of
 * no event, and needs none: the console's ring is polled, and time is the local APIC's.  A module
 * that knows this header may do better:
 *
 *	- keep the ports of xen_kernel_ports() unmasked, and never close or move them;
 *	- call xen_kernel_event() for a pending port that is not its own;
 *	- and give the delivery back, if at all, in 2-level mode, by calling xen_kernel_upcall() on each
 *	  processor.
 *
 * All of this is for a guest of Xen; elsewhere the pointers are NULL and there are no ports.
 *
 * The hypercall page and the scan of 2-level channels are in the module as well (sys/dev/xen), and
 * have to be: this is a stand-in for what a host kernel has, and host kernels differ.  FreeBSD with
 * XENHVM has both, this kernel has them for its console before any module is loaded, and FreeBSD
 * without XENHVM has neither, so that the module can use none of the kernel's.
 *
 * Not FreeBSD's: its option XENHVM brings the drivers, too.
 */

#ifndef _X86_XEN_KERNEL_TREE_H_
#define	_X86_XEN_KERNEL_TREE_H_

#include <sys/types.h>
#include <sys/pcpu.h>

/* Structures follow the generation of Xen 4.13; older and newer ones understand them. */
#ifndef __XEN_INTERFACE_VERSION__
#define	__XEN_INTERFACE_VERSION__	0x00040d00
#endif
#include <xen/xen.h>
#include <xen/event_channel.h>

struct trapframe;

/* The domain's shared info page; NULL without Xen. */
extern struct shared_info *HYPERVISOR_shared_info;

/* The struct vcpu_info of a processor, registered with Xen; NULL without Xen. */
DPCPU_DECLARE(struct vcpu_info *, vcpu_info);

/*
 * For the module.
 */

/* The ports that the kernel uses: at most max of them into ports; returns how many there are. */
u_int	xen_kernel_ports(evtchn_port_t *ports, u_int max);

/*
 * The event of a port, whose pending state is cleared; in interrupt context.  False: not the
 * kernel's.
 */
bool	xen_kernel_event(evtchn_port_t port);

/* Have this processor's upcalls go to the kernel's vector. */
void	xen_kernel_upcall(void);

/*
 * The domain goes on after a suspension (SHUTDOWN_suspend): the module calls cpu_ops.cpu_resume on
 * processor 0, before the others run, then on each of those.  All event channels are masked then,
 * and no processor has a vector for upcalls.  The console takes its new channel at the event
 * power_resume, but leaves it masked: events are the module's to hear of from the first on.
 */

/*
 * For the kernel.
 */

/* On each processor, once its local APIC is ready. */
void	xen_kernel_cpu_init(void);

/* In hammer_time(): find Xen.  After that xen_guest() is true in a domain. */
void	xen_kernel_init(void);
bool	xen_guest(void);

/*
 * Call Xen: nr is one of __HYPERVISOR_*, arguments that a call has not are 0, pointers are virtual
 * addresses.  Returns what Xen does: an error is negative, and numbered by xen/errno.h.  Any
 * context.
 */
long	xen_kernel_call(u_int nr, u_long a1, u_long a2, u_long a3);

/* A parameter of the domain, HVM_PARAM_*; 0 if it has not been set. */
uint64_t xen_kernel_param(uint32_t index);

/*
 * Serve a port, which is bound already: handler is called in interrupt context.  The port is unmasked
 * if it is the kernel that is called up.
 */
typedef void xen_kernel_handler_t(void *arg);
extern bool xen_kernel_listens;
void	xen_intr_bind_kernel(evtchn_port_t port, xen_kernel_handler_t *handler, void *arg);
void	xen_intr_unbind_kernel(evtchn_port_t port);

/* IDT_EVTCHN has come; interrupts are off. */
void	xen_handle_upcall(struct trapframe *frame);

/*
 * Time in nanoseconds; any context.  xen_clock_ns() goes on steadily over suspensions, which
 * xen_system_ns() does not: that is the time that hypercalls take and give.
 */
uint64_t xen_clock_ns(void);
uint64_t xen_system_ns(void);

/* After a suspension, while one processor runs: xen_clock_ns() goes on. */
void	xen_clock_resume(void);

/*
 * Start another processor: it calls entry(arg) in long mode, with interrupts off, on the kernel's page
 * tables and no descriptor tables.
 *
 * apic_id  of its local APIC
 * stack    the end of a stack for it
 */
void	xen_start_cpu(u_int apic_id, char *stack, void *entry, void *arg);

/* Does Xen vouch for the time-stamp counter: at one rate, and the same on all processors? */
bool	xen_tsc_reliable(void);

/* Leave the processor to other domains for about this long. */
void	xen_sleep_ns(uint64_t ns);

/* End the domain for a reason, SHUTDOWN_*, when the console has been read.  Returns if Xen refuses. */
void	xen_shutdown(u_int reason);

/* After a suspension, while one processor runs: output goes to the new channel. */
void	xen_console_resume(void);

/* Wait, for a while, until dom0 has read what was written to the console. */
void	xen_console_drain(void);

#endif /* !_X86_XEN_KERNEL_TREE_H_ */
