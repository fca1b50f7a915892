/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * hvc0: the console that Xen gives each domain, a page with two rings shared with dom0's
 * xenconsoled (xen/io/console.h).
 *
 *		    we write	     xenconsoled writes
 *	out[2048]   out_prod	     out_cons
 *	in[1024]    in_cons	     in_prod
 *
 * Telling.  xenconsoled looks at the rings when it is sent an event, and puts a domain off that
 * sends more than 30 in 200 ms.  So a character of output does not send one: they are collected
 * until half the ring is full or TELL_DELAY has passed.  As long as there are no callouts, and in a
 * panic, each line sends one.
 *
 * Input.  xenconsoled sends an event for what it wrote, but a module that takes over the delivery of
 * events (xen_kernel_tree.h) hears of its own channels only: so the ring is looked at from time to
 * time, too.  In the lab each look takes a millisecond of its CPU, so it is rarer where nothing came.
 *
 * Without a ring (a Xen that was built without consoles) output goes to port 0xe9, which Xen copies
 * to its own console.
 *
 * Locking.  input_mtx (spin) protects in_cons.  Output is serialised by cnputs_mtx, which is held;
 * the callout's lock is taken below it.
 *
 * Trust.  The indices that xenconsoled writes are read once and checked: it can lose or repeat
 * our characters, but not make us read or write outside the page.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/cons.h>
#include <sys/eventhandler.h>
#include <sys/interrupt.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/vmparam.h>

#include <kern/cons_input_tree.h>
#include <x86/xen/xen_kernel_tree.h>
#include <xen/hvm/params.h>
#include <xen/io/console.h>

#define	OUT_SIZE	sizeof(((struct xencons_interface *)NULL)->out)
#define	IN_SIZE		sizeof(((struct xencons_interface *)NULL)->in)
#define	TELL_DELAY	(8 * SBT_1MS)
#define	INPUT_PERIOD	(25 * SBT_1MS)
#define	INPUT_IDLE	20		/* after so many polls in vain the next ones are rarer */
#define	INPUT_IDLE_PERIOD (200 * SBT_1MS)
#define	DEBUG_PORT	0xe9

/*
 * How long to wait for xenconsoled: 10 ms a step, of which the longest time that it may put us off
 * is a part only.
 */
#define	WAIT_STEP	10000000		/* nanoseconds */
#define	FULL_PATIENCE	6000			/* steps that a full ring is waited for: a minute */
#define	DRAIN_PATIENCE	50			/* steps at the end of the domain */

static struct xencons_interface *ring;
static evtchn_port_t ring_port;
static evtchn_port_t bound_port;	/* that we hear of */
static bool out_stuck;			/* timed out, until the ring is seen to have room */

static struct callout tell_callout;
static volatile u_int tell_armed;
static struct callout input_callout;
static bool tell_ready;			/* tell_callout can be used */

static struct mtx input_mtx;
MTX_SYSINIT(xen_console, &input_mtx, "hvc0", MTX_SPIN | MTX_NOWITNESS);
static void *input_swi;

static void
tell(void)
{
	struct evtchn_send send = { .port = ring_port };

	/* The indices are written before Xen is called, which orders them. */
	(void)xen_kernel_call(__HYPERVISOR_event_channel_op, EVTCHNOP_send, (u_long)&send, 0);
}

static void
tell_timeout(void *arg __unused)
{
	/*
	 * Before telling: who writes a character after it sees tell_armed set, and does not set off
	 * the callout, is told of.
	 */
	atomic_store_int(&tell_armed, 0);
	tell();
}

static void
tell_soon(void)
{
	if (atomic_cmpset_int(&tell_armed, 0, 1))
		callout_reset_sbt(&tell_callout, TELL_DELAY, 0, tell_timeout, NULL, C_DIRECT_EXEC);
}

/* Characters that xenconsoled has not read. */
static u_int
out_used(void)
{
	return (ring->out_prod - atomic_load_acq_int(&ring->out_cons));
}

/* Wait for room in the ring; false: there is none, drop the character. */
static bool
out_wait(void)
{
	u_int i;

	for (i = 0; out_used() >= OUT_SIZE; i++) {
		if (out_stuck || i == FULL_PATIENCE) {
			out_stuck = true;
			return (false);
		}
		tell();
		xen_sleep_ns(WAIT_STEP);
	}
	out_stuck = false;
	return (true);
}

static void
hvc_cnputc(struct consdev *cp __unused, int c)
{
	u_int used;

	if (ring == NULL) {
		outb(DEBUG_PORT, c);
		return;
	}
	if (out_used() >= OUT_SIZE && !out_wait())
		return;
	ring->out[MASK_XENCONS_IDX(ring->out_prod, ring->out)] = c;
	atomic_store_rel_int(&ring->out_prod, ring->out_prod + 1);
	used = out_used();
	if (used == OUT_SIZE / 2)
		tell();
	else if (tell_ready && !KERNEL_PANICKED())
		tell_soon();
	else if (c == '\n')
		tell();
}

static int
hvc_cngetc(struct consdev *cp __unused)
{
	bool lock = mtx_initialized(&input_mtx) && !KERNEL_PANICKED();
	u_int cons, prod;
	int c = -1;

	if (ring == NULL)
		return (-1);
	if (lock)
		mtx_lock_spin(&input_mtx);
	cons = ring->in_cons;
	if (atomic_load_acq_int(&ring->in_prod) != cons) {
		c = (u_char)ring->in[MASK_XENCONS_IDX(cons, ring->in)];
		atomic_store_rel_int(&ring->in_cons, cons + 1);
		/* Who found the ring full waits: the store must be seen before this load. */
		atomic_thread_fence_seq_cst();
		prod = atomic_load_int(&ring->in_prod);
		if (prod - cons >= IN_SIZE)
			tell();
	}
	if (lock)
		mtx_unlock_spin(&input_mtx);
	return (c);
}

static void
hvc_cnprobe(struct consdev *cp)
{
	uint64_t pfn;

	strlcpy(cp->cn_name, "hvc0", sizeof(cp->cn_name));
	cp->cn_pri = xen_guest() ? CN_REMOTE : CN_DEAD;
	if (!xen_guest())
		return;
	pfn = xen_kernel_param(HVM_PARAM_CONSOLE_PFN);
	ring_port = xen_kernel_param(HVM_PARAM_CONSOLE_EVTCHN);
	/* Mapped already: below 4 GB, as all of Xen's special pages. */
	if (pfn != 0 && ring_port != 0 && pfn < atop(1UL << 32))
		ring = (struct xencons_interface *)PHYS_TO_DMAP(ptoa(pfn));
}

static void
hvc_cninit(struct consdev *cp __unused)
{
}

static void
hvc_cnterm(struct consdev *cp __unused)
{
}

static void
hvc_cngrab(struct consdev *cp __unused)
{
}

static void
hvc_cnungrab(struct consdev *cp __unused)
{
}

CONSOLE_DRIVER(hvc);

void
xen_console_drain(void)
{
	u_int i;

	if (ring == NULL)
		return;
	for (i = 0; out_used() != 0 && i < DRAIN_PATIENCE; i++) {
		tell();
		xen_sleep_ns(WAIT_STEP);
	}
}

static void
hvc_event(void *arg __unused)
{
	swi_sched(input_swi, 0);
}

static void
hvc_input(void *arg __unused)
{
	cons_input_ready();
}

static void
hvc_poll(void *arg __unused)
{
	static u_int vain;

	if (atomic_load_int(&ring->in_prod) != ring->in_cons) {
		vain = 0;
		swi_sched(input_swi, 0);
	} else if (vain < INPUT_IDLE)
		vain++;
	callout_reset_sbt(&input_callout, vain < INPUT_IDLE ? INPUT_PERIOD : INPUT_IDLE_PERIOD, 0,
	    hvc_poll, NULL, C_DIRECT_EXEC);
}

void
xen_console_resume(void)
{
	if (ring != NULL)
		ring_port = xen_kernel_param(HVM_PARAM_CONSOLE_EVTCHN);
}

/* The domain was suspended, and may have a new channel. */
static void
hvc_resume(void *arg __unused)
{
	/* If it is the same, it is bound already, and a module may have taken it over. */
	if (bound_port != ring_port) {
		xen_intr_unbind_kernel(bound_port);
		bound_port = ring_port;
		xen_intr_bind_kernel(bound_port, hvc_event, NULL);
	}
	tell();
}

static void
hvc_attach(void *dummy __unused)
{
	int error;

	if (ring == NULL)
		return;
	callout_init(&tell_callout, 1);
	tell_ready = true;
	error = swi_add(NULL, "hvc0", hvc_input, NULL, SWI_TTY, INTR_MPSAFE, &input_swi);
	if (error != 0) {
		printf("hvc0: no interrupt thread (error %d): no console input\n", error);
		return;
	}
	bound_port = ring_port;
	xen_intr_bind_kernel(bound_port, hvc_event, NULL);
	callout_init(&input_callout, 1);
	hvc_poll(NULL);
	EVENTHANDLER_REGISTER(power_resume, hvc_resume, NULL, EVENTHANDLER_PRI_FIRST);
}
SYSINIT(hvc_attach, SI_SUB_CONFIGURE, SI_ORDER_SECOND, hvc_attach, NULL);
