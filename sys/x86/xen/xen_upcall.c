/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Event channels for the kernel's own use: 2-level (xen/event_channel.h), few, until a module takes
 * over (xen_kernel_tree.h).
 *
 * Xen sets a bit of evtchn_pending[] for the channel, one of the processor's evtchn_pending_sel for
 * the word that it is in, and evtchn_upcall_pending; then it raises IDT_EVTCHN.  We clear them in
 * the reverse order before the handler runs, so that an event that comes meanwhile raises it again.
 *
 * Locking.  ports_mtx (spin) serialises who adds and removes ports; events look without it, and
 * take a port for bound when its number is there.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>

#include <machine/cpu.h>
#include <machine/frame.h>
#include <machine/intr_machdep.h>

#include <x86/apicvar.h>
#include <x86/xen/xen_kernel_tree.h>

#define	MAX_PORTS	4
#define	WORD_BITS	(sizeof(xen_ulong_t) * NBBY)

static struct kernel_port {
	volatile evtchn_port_t	kp_port;	/* 0, which is never a port: free */
	xen_kernel_handler_t	*kp_handler;
	void			*kp_arg;
} ports[MAX_PORTS];

static struct mtx ports_mtx;
MTX_SYSINIT(xen_ports, &ports_mtx, "Xen kernel ports", MTX_SPIN | MTX_NOWITNESS);

static u_long *upcall_count[MAXCPU];

/* The kernel handles upcalls, as far as it knows: a module that takes them over does not notify it. */
bool xen_kernel_listens;

static struct kernel_port *
find_port(evtchn_port_t port)
{
	u_int i;

	for (i = 0; i < MAX_PORTS; i++) {
		if (atomic_load_acq_int(&ports[i].kp_port) == port)
			return (&ports[i]);
	}
	return (NULL);
}

bool
xen_kernel_event(evtchn_port_t port)
{
	struct kernel_port *kp = find_port(port);

	if (port == 0 || kp == NULL)
		return (false);
	kp->kp_handler(kp->kp_arg);
	return (true);
}

u_int
xen_kernel_ports(evtchn_port_t *list, u_int max)
{
	u_int i, n = 0;

	for (i = 0; i < MAX_PORTS; i++) {
		if (ports[i].kp_port == 0)
			continue;
		if (n < max)
			list[n] = ports[i].kp_port;
		n++;
	}
	return (n);
}

void
xen_intr_bind_kernel(evtchn_port_t port, xen_kernel_handler_t *handler, void *arg)
{
	struct evtchn_unmask unmask = { .port = port };
	struct kernel_port *kp;

	mtx_lock_spin(&ports_mtx);
	kp = find_port(0);
	KASSERT(kp != NULL, ("no room for event channel %u", port));
	kp->kp_handler = handler;
	kp->kp_arg = arg;
	atomic_store_rel_int(&kp->kp_port, port);
	mtx_unlock_spin(&ports_mtx);
	if (!xen_kernel_listens)
		return;
	/* An event that came earlier is sent now. */
	(void)xen_kernel_call(__HYPERVISOR_event_channel_op, EVTCHNOP_unmask, (u_long)&unmask, 0);
}

void
xen_intr_unbind_kernel(evtchn_port_t port)
{
	struct kernel_port *kp;

	mtx_lock_spin(&ports_mtx);
	kp = find_port(port);
	if (kp != NULL)
		atomic_store_rel_int(&kp->kp_port, 0);
	mtx_unlock_spin(&ports_mtx);
}

/* The channels of one word that are pending and not masked. */
static void
scan_word(u_int word)
{
	xen_ulong_t *pending = &HYPERVISOR_shared_info->evtchn_pending[word];
	xen_ulong_t *mask = &HYPERVISOR_shared_info->evtchn_mask[word];
	u_long bits, bit;
	u_int n;

	bits = atomic_load_long(pending) & ~atomic_load_long(mask);
	while (bits != 0) {
		n = ffsl(bits) - 1;
		bit = 1UL << n;
		bits &= ~bit;
		atomic_clear_long(pending, bit);
		/* Unused: the one of a module that was unloaded. */
		if (!xen_kernel_event(word * WORD_BITS + n))
			atomic_set_long(mask, bit);
	}
}

static void
scan(struct vcpu_info *vi)
{
	u_long words;
	u_int word;

	do {
		vi->evtchn_upcall_pending = 0;
		/* An exchange, so that the next look at the words is not before the store above. */
		words = atomic_swap_long(&vi->evtchn_pending_sel, 0);
		while (words != 0) {
			word = ffsl(words) - 1;
			words &= ~(1UL << word);
			scan_word(word);
		}
	} while (atomic_load_8(&vi->evtchn_upcall_pending) != 0);
}

void
xen_handle_upcall(struct trapframe *frame)
{
	struct thread *td = curthread;
	struct trapframe *oldframe;

	lapic_eoi();
	if (upcall_count[PCPU_GET(cpuid)] != NULL)
		(*upcall_count[PCPU_GET(cpuid)])++;
	critical_enter();
	td->td_intr_nesting_level++;
	oldframe = td->td_intr_frame;
	td->td_intr_frame = frame;
	scan(DPCPU_GET(vcpu_info));
	td->td_intr_frame = oldframe;
	td->td_intr_nesting_level--;
	critical_exit();
}

static void
xen_upcall_counters(void *dummy __unused)
{
	char name[16];
	u_int cpu;

	if (!xen_guest())
		return;
	CPU_FOREACH(cpu) {
		snprintf(name, sizeof(name), "cpu%u:xen", cpu);
		intrcnt_add(name, &upcall_count[cpu]);
	}
}
SYSINIT(xen_upcall, SI_SUB_INTR, SI_ORDER_ANY, xen_upcall_counters, NULL);
