/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Event channels, the 2-level interface (xen.h, struct shared_info).
 *
 * The shared info page has a pending bit and a mask bit for each of 4,096
 * ports.  64 ports are a word; a CPU's evtchn_pending_sel has a bit for each
 * word that may hold a pending port of this CPU.  Xen, when it sends an event
 * to a port that is neither pending nor masked:
 *
 *	set the port's pending bit, then its word's bit in the CPU's selector,
 *	then upcall_pending
 *
 * and we go the other way round: take the selector, look at its words, clear
 * pending bits, deliver.  All ports of a word are seen by any CPU that looks at
 * the word, so each CPU picks its own.
 *
 * Unmasking.  Clear the mask, then look at the pending bit: an event that came
 * while masked set that bit and nothing more.  Then Xen has to do the rest, and
 * it does only for a port whose mask it clears itself: so it is set again
 * before the hypercall.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/proc.h>

#include <machine/atomic.h>
#include <machine/cpufunc.h>

#include <dev/xen/xen_evtchn_var.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>

#define	EVTCHN_2L_BITS	(sizeof(xen_ulong_t) * NBBY)

static inline volatile u_long *
evtchn_2l_word(xen_ulong_t *bitmap, evtchn_port_t port)
{

	return ((volatile u_long *)&bitmap[port / EVTCHN_2L_BITS]);
}

static void
evtchn_2l_mask(evtchn_port_t port)
{

	atomic_set_long(evtchn_2l_word(xen_shared->evtchn_mask, port),
	    1UL << port % EVTCHN_2L_BITS);
}

static void
evtchn_2l_unmask(evtchn_port_t port)
{
	u_long bit = 1UL << port % EVTCHN_2L_BITS;
	struct evtchn_unmask arg = { .port = port };

	atomic_clear_long(evtchn_2l_word(xen_shared->evtchn_mask, port), bit);
	atomic_thread_fence_seq_cst();
	if ((*evtchn_2l_word(xen_shared->evtchn_pending, port) & bit) == 0)
		return;
	evtchn_2l_mask(port);
	(void)xen_event_channel_op(EVTCHNOP_unmask, &arg);
}

static int
evtchn_2l_init(void)
{
	evtchn_port_t port;

	/*
	 * A port that is bound already stays bound, and is masked until
	 * adopted.
	 */
	for (port = 0; port < EVTCHN_2L_NR_CHANNELS; port++)
		evtchn_2l_mask(port);
	return (0);
}

static int
evtchn_2l_reach(evtchn_port_t port)
{

	return (port < EVTCHN_2L_NR_CHANNELS ? 0 : ENOSPC);
}

static void
evtchn_2l_scan_word(u_int cpu, u_int word, struct trapframe *frame,
    const struct xen_evtchn_sink *sink)
{
	volatile u_long *pending =
	    (volatile u_long *)&xen_shared->evtchn_pending[word];
	volatile u_long *mask =
	    (volatile u_long *)&xen_shared->evtchn_mask[word];
	evtchn_port_t port;
	u_long bits;
	u_int bit;

	for (bits = *pending & ~*mask; bits != 0; bits &= bits - 1) {
		bit = ffsl(bits) - 1;
		port = word * EVTCHN_2L_BITS + bit;
		if (!sink->es_here(port, cpu))
			continue;
		/*
		 * Cleared before the handler looks for work: what comes later
		 * is a new event.
		 */
		if (atomic_testandclear_long(pending, bit))
			sink->es_deliver(port, frame);
	}
}

static void
evtchn_2l_scan(u_int cpu, struct trapframe *frame,
    const struct xen_evtchn_sink *sink)
{
	u_long words;

	words = atomic_swap_long(
	    (volatile u_long *)&xen_cpus[cpu].xc_info->evtchn_pending_sel, 0);
	for (; words != 0; words &= words - 1)
		evtchn_2l_scan_word(cpu, ffsl(words) - 1, frame, sink);
}

const struct xen_evtchn_abi xen_evtchn_2l = {
	.ea_name = "2-level",
	.ea_nports = EVTCHN_2L_NR_CHANNELS,
	.ea_init = evtchn_2l_init,
	.ea_resume = evtchn_2l_init,
	.ea_reach = evtchn_2l_reach,
	.ea_mask = evtchn_2l_mask,
	.ea_unmask = evtchn_2l_unmask,
	.ea_scan = evtchn_2l_scan,
};
