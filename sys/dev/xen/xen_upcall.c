/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Upcalls: how Xen interrupts a CPU when an event is pending for it.
 *
 * Xen raises a vector of the CPU's own choice in its local APIC
 * (HVMOP_set_evtchn_upcall_vector), as a message-signalled interrupt would.  So
 * the vector is allocated as one: a message without a sender (newbus requires a
 * device: the front ends' bus), one for each CPU and bound to it.  The kernel's
 * interrupt code enters, counts (vmstat -i: xen0) and acknowledges it as any
 * other, and nothing here is written in assembler.
 *
 * A message interrupt can be moved to another CPU, by a change of its address
 * and data.  Here there is neither, and the vector is a vCPU's, so
 * xen_upcall_remap() allows it only until it is in use: from then on the vector
 * does not change.
 *
 * Locking.  None: everything is set up at attach.
 *
 * Gaps.  Xen before 4.6 can't set a vector for each vCPU.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/rman.h>
#include <sys/sched.h>
#include <sys/smp.h>

#include <machine/bus.h>
#include <machine/intr_machdep.h>
#include <machine/resource.h>

#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>
#include <xen/hvm/hvm_op.h>
#include <xen/hvm/params.h>

#define	XEN_UPCALL_RID(cpu)	((cpu) + 1)
#define	XEN_UPCALL_VECTOR(data)	((data) & 0xff)

/*
 * A way to be called up by a line, which vectors take precedence over.  What
 * counts is that it is set at all: the toolstack takes a domain without one for
 * one without Xen support, and suspends it without a request.
 */
#define	XEN_UPCALL_LINE		1

static bool xen_upcall_live;

static int
xen_upcall_filter(void *arg)
{
	struct xen_cpu *xc = arg;

	xc->xc_upcalls++;
	xen_evtchn_upcall(xc - xen_cpus, curthread->td_intr_frame);
	return (FILTER_HANDLED);
}

/* An interrupt for a CPU, bound to it. */
static int
xen_upcall_alloc(device_t dev, device_t child, u_int cpu)
{
	struct xen_cpu *xc = &xen_cpus[cpu];
	uint64_t addr;
	uint32_t data = 0;
	int error, rid = XEN_UPCALL_RID(cpu);

	error = msix_alloc(child, &xc->xc_irq);
	if (error != 0) {
		xc->xc_irq = 0;
		return (error);
	}
	error = bus_set_resource(dev, SYS_RES_IRQ, rid, xc->xc_irq, 1);
	if (error != 0)
		return (error);
	xc->xc_res = bus_alloc_resource_any(dev, SYS_RES_IRQ, &rid, RF_ACTIVE);
	if (xc->xc_res == NULL)
		return (ENXIO);
	error = bus_setup_intr(dev, xc->xc_res, INTR_TYPE_MISC | INTR_MPSAFE,
	    xen_upcall_filter, NULL, xc, &xc->xc_cookie);
	/*
	 * With one CPU there is nothing to choose, and bus_bind_intr() fails.
	 */
	if (error == 0 && mp_ncpus > 1)
		error = bus_bind_intr(dev, xc->xc_res, cpu);
	if (error != 0)
		return (error);
	/*
	 * Read here, once: msi_map() takes a mutex, and a resume has interrupts
	 * off.
	 */
	error = msi_map(xc->xc_irq, &addr, &data);
	xc->xc_vector = XEN_UPCALL_VECTOR(data);
	return (error);
}

/* Run on a CPU, as long as there are several. */
static void
xen_upcall_visit(u_int cpu)
{

	if (!smp_started)
		return;
	thread_lock(curthread);
	sched_bind(curthread, cpu);
	thread_unlock(curthread);
}

static void
xen_upcall_leave(void)
{

	if (!smp_started)
		return;
	thread_lock(curthread);
	sched_unbind(curthread);
	thread_unlock(curthread);
}

/*
 * Set the vector of a CPU, on that CPU: an upcall by a vector that the kernel
 * had set for itself has finished when this returns, and can't take later
 * events.
 */
static int
xen_upcall_tell(u_int cpu)
{
	struct xen_hvm_evtchn_upcall_vector arg;

	memset(&arg, 0, sizeof(arg));
	arg.vcpu = xen_cpus[cpu].xc_vcpu;
	arg.vector = xen_cpus[cpu].xc_vector;
	return (xen_hvm_op(HVMOP_set_evtchn_upcall_vector, &arg));
}

int
xen_upcall_init(device_t dev)
{
	device_t child = device_find_child(dev, "xenbus", 0);
	u_int cpu;
	int error;

	CPU_FOREACH(cpu) {
		error = xen_upcall_alloc(dev, child, cpu);
		if (error != 0) {
			device_printf(dev,
			    "no interrupt for CPU %u (error %d)\n", cpu, error);
			return (error);
		}
	}
	xen_upcall_live = true;
	CPU_FOREACH(cpu) {
		xen_upcall_visit(cpu);
		error = xen_upcall_tell(cpu);
		xen_upcall_leave();
		if (error != 0) {
			device_printf(dev,
			    "Xen rejected the upcall vector of CPU %u (error %d); it "
			    "has to be 4.6 or newer\n", cpu, error);
			return (error);
		}
	}
	return (xen_set_param(HVM_PARAM_CALLBACK_IRQ, XEN_UPCALL_LINE));
}

int
xen_upcall_resume(void)
{
	int error;

	error = xen_upcall_tell(curcpu);
	if (error == 0 && xen_cpus[curcpu].xc_vcpu == 0)
		error = xen_set_param(HVM_PARAM_CALLBACK_IRQ, XEN_UPCALL_LINE);
	return (error);
}

/*
 * Xen has no way to take a vector back.  This is called before any channel was
 * unmasked, or after all were closed: Xen has no reason to use it.
 */
void
xen_upcall_fini(device_t dev)
{
	struct xen_cpu *xc;
	u_int cpu;

	xen_upcall_live = false;
	CPU_FOREACH(cpu) {
		xc = &xen_cpus[cpu];
		if (xc->xc_cookie != NULL)
			(void)bus_teardown_intr(dev, xc->xc_res, xc->xc_cookie);
		if (xc->xc_res != NULL)
			(void)bus_release_resource(dev, SYS_RES_IRQ,
			    XEN_UPCALL_RID(cpu), xc->xc_res);
		bus_delete_resource(dev, SYS_RES_IRQ, XEN_UPCALL_RID(cpu));
		if (xc->xc_irq != 0)
			(void)msix_release(xc->xc_irq);
		xc->xc_cookie = NULL;
		xc->xc_res = NULL;
		xc->xc_irq = 0;
	}
}

/*
 * The kernel moves an interrupt, and requests that the device uses its new
 * message.
 */
int
xen_upcall_remap(device_t dev __unused, device_t child __unused,
    u_int irq __unused)
{

	return (xen_upcall_live ? EBUSY : 0);
}
