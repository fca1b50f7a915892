/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Event channels: no event is lost, none is spurious, and each is delivered to the right CPU.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>
#include <sys/sx.h>

#include <machine/atomic.h>
#include <machine/cpu.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_hypercall.h>
#include <xen/hvm/params.h>
#include <xen/vcpu.h>

#include "xtest.h"

#define	EVENTS	200
#define	YIELDS	200	/* while events are sent */
#define	CLOSES	40
#define	STORM	5000	/* events without work */
#define	BURST	50	/* of those, between pauses in which the handler gets its CPU */
#define	CALM	64	/* rounds that are never braked, and some */
#define	STORMS	30	/* where a busy machine makes pauses, rounds are not "at once" */
#define	MANY	1100	/* ports: more than a page of the FIFO array has */

/*
 * Two channels that are connected.  The far end receives, as a driver's: a channel that a domain may
 * bind to.  The near end sends: a port that is bound to it here, as a back end does, and adopted.
 */
struct wire {
	struct xen_evtchn *near;
	struct xen_evtchn *far;
	volatile u_int	handled;
	volatile u_int	filtered;
	volatile int	cpu;		/* that got the last event */
	volatile u_int	elsewhere;	/* events on another CPU than want_cpu */
	int		want_cpu;
	bool		brake;		/* xep_brake of the far end */
	volatile bool	works;		/* the handler finds work */
	bool		gate;		/* the handler waits for a pass, counted in waiting */
	volatile u_int	waiting;
	volatile u_int	passes;		/* of the gate */
	volatile u_int	sent;		/* pieces of work, for tests that count them */
	volatile u_int	taken;
	volatile bool	stop;
	struct sx	sx;		/* near may be used */
};

static void
wire_handler(void *arg)
{
	struct wire *w = arg;

	if (w->gate) {
		atomic_add_int(&w->waiting, 1);
		/* No driver may: here the thread that opens the gate can need this CPU. */
		THREAD_SLEEPING_OK();
		gate_wait(&w->passes);
		THREAD_NO_SLEEPING();
	}
	if (w->works)
		xen_evtchn_worked(w->far);
	w->cpu = curcpu;
	w->taken = atomic_load_acq_int(&w->sent);
	atomic_add_int(&w->handled, 1);
}

static int
wire_filter(void *arg)
{
	struct wire *w = arg;

	w->cpu = curcpu;
	if (w->want_cpu >= 0 && w->cpu != w->want_cpu)
		atomic_add_int(&w->elsewhere, 1);
	atomic_add_int(&w->filtered, 1);
	return (FILTER_HANDLED);
}

static int
wire_filter_wake(void *arg)
{

	(void)wire_filter(arg);
	return (FILTER_SCHEDULE_THREAD);
}

static struct wire nobody = { .want_cpu = -1 };

/*
 * Connect.  Xen raises an event for the end that binds, as one may have been sent before: it is not
 * counted, and the counts of the far end begin at 0.
 */
static bool
wire_open(struct wire *w, driver_filter_t *filter, driver_intr_t *handler, int cpu)
{
	struct evtchn_bind_interdomain bind = { .remote_dom = DOMID_SELF };
	struct xen_evtchn_params far = {
		.xep_name = "far",
		.xep_type = INTR_TYPE_MISC,
		.xep_cpu = cpu,
		.xep_filter = filter,
		.xep_handler = handler,
		.xep_arg = w,
		.xep_brake = w->brake,
	};
	struct xen_evtchn_params near = {
		.xep_name = "near",
		.xep_type = INTR_TYPE_MISC,
		.xep_cpu = -1,
		.xep_filter = wire_filter,
		.xep_arg = &nobody,
	};

	w->near = NULL;
	w->handled = w->filtered = 0;
	if (!KT_EQ(xen_evtchn_alloc(DOMID_SELF, &far, &w->far), 0))
		return (false);
	bind.remote_port = xen_evtchn_port(w->far);
	if (KT_EQ(xen_event_channel_op(EVTCHNOP_bind_interdomain, &bind), 0) &&
	    KT_EQ(xen_evtchn_adopt(bind.local_port, &near, &w->near), 0))
		return (true);
	xen_evtchn_free(w->far);
	return (false);
}

/* A channel that was adopted is not closed when it is freed. */
static void
wire_close_near(struct wire *w)
{
	struct evtchn_close close = { .port = xen_evtchn_port(w->near) };

	xen_evtchn_free(w->near);
	w->near = NULL;
	KT_EQ(xen_event_channel_op(EVTCHNOP_close, &close), 0);
}

static void
wire_close(struct wire *w)
{

	xen_evtchn_free(w->far);
	w->far = NULL;
	wire_close_near(w);
}

/* Wait for events that may still be in flight. */
static void
settle(void)
{

	pause("xtestl", hz / 10);
}

static void
each_comes_once(void)
{
	struct wire w = { .want_cpu = -1 };
	u_int i, strays = xtest_number("evtchn.strays");

	if (!wire_open(&w, NULL, wire_handler, -1))
		return;
	for (i = 1; i <= EVENTS; i++) {
		xen_evtchn_notify(w.near);
		if (!KT_WAIT(w.handled == i))
			break;
	}
	settle();
	KT_EQ(w.handled, EVENTS);
	KT_EQ(xtest_number("evtchn.strays"), strays);
	wire_close(&w);
}

static void
masked_while_handled(void)
{
	struct wire w = { .want_cpu = -1 };
	u_int i;

	if (!wire_open(&w, wire_filter_wake, wire_handler, -1))
		return;
	w.gate = true;
	xen_evtchn_notify(w.near);
	if (KT_WAIT(w.waiting == 1)) {
		for (i = 0; i < 10; i++)
			xen_evtchn_notify(w.near);
		settle();
		/* The ten are pending and masked. */
		KT_EQ(w.filtered, 1);
		KT_EQ(w.handled, 0);
	}
	atomic_add_rel_int(&w.passes, 1);
	KT_WAIT(w.waiting == 2);
	atomic_add_rel_int(&w.passes, 1);
	KT_WAIT(w.handled == 2);
	settle();
	KT_EQ(w.waiting, 2);
	KT_EQ(w.filtered, 2);
	wire_close(&w);
}

static void
filter_wakes_the_thread(void)
{
	struct wire w = { .want_cpu = -1 };
	u_int i;

	if (!wire_open(&w, wire_filter_wake, wire_handler, -1))
		return;
	for (i = 1; i <= EVENTS; i++) {
		xen_evtchn_notify(w.near);
		if (!KT_WAIT(w.handled == i))
			break;
	}
	KT_EQ(w.filtered, EVENTS);
	wire_close(&w);
}

static void
comes_to_its_cpu(void)
{
	struct wire w;
	int cpu;
	u_int i;

	CPU_FOREACH(cpu) {
		w = (struct wire){ .want_cpu = cpu };
		if (!wire_open(&w, wire_filter, NULL, cpu))
			return;
		for (i = 1; i <= EVENTS / 4; i++) {
			xen_evtchn_notify(w.near);
			if (!KT_WAIT(w.filtered == i))
				break;
		}
		KT_EQ(w.elsewhere, 0);
		settle();
		wire_close(&w);
	}
}

static void
sender(void *arg, int me __unused)
{
	struct wire *w = arg;

	while (!w->stop) {
		sx_slock(&w->sx);
		atomic_add_int(&w->sent, 1);
		if (w->near != NULL)
			xen_evtchn_notify(w->near);
		sx_sunlock(&w->sx);
		kern_yield(PRI_UNCHANGED);
	}
}

static void
none_is_lost_under_load(void)
{
	struct wire w = { .want_cpu = -1 };
	struct ktest_thread *kt;
	u_int i;

	sx_init(&w.sx, "xtest");
	if (!wire_open(&w, NULL, wire_handler, -1)) {
		sx_destroy(&w.sx);
		return;
	}
	kt = ktest_spawn(sender, &w, 0, ktest_last_cpu(), 0);
	for (i = 0; i < YIELDS; i++)
		kern_yield(PRI_UNCHANGED);
	w.stop = true;
	ktest_join(kt);
	/* The handler looks at all that was sent: one event after the last is enough. */
	KT_WAIT(w.taken == w.sent);
	wire_close(&w);
	sx_destroy(&w.sx);
}

static void
closed_under_fire(void)
{
	struct wire w = { .want_cpu = -1 };
	struct ktest_thread *kt;
	u_int before, handled, i, strays;

	before = xtest_number("evtchn.in_use");
	sx_init(&w.sx, "xtest");
	kt = ktest_spawn(sender, &w, 0, ktest_last_cpu(), 0);
	for (i = 0; i < CLOSES; i++) {
		sx_xlock(&w.sx);
		if (!wire_open(&w, NULL, wire_handler, i % (mp_maxid + 1))) {
			w.near = NULL;
			sx_xunlock(&w.sx);
			break;
		}
		sx_xunlock(&w.sx);
		KT_WAIT(w.handled > 2);
		xen_evtchn_free(w.far);
		handled = w.handled;
		kern_yield(PRI_UNCHANGED);
		KT_EQ(w.handled, handled);
		sx_xlock(&w.sx);
		wire_close_near(&w);
		sx_xunlock(&w.sx);
	}
	w.stop = true;
	ktest_join(kt);
	KT_EQ(xtest_number("evtchn.in_use"), before);
	strays = xtest_number("evtchn.strays");
	settle();
	KT_EQ(xtest_number("evtchn.strays"), strays);
	sx_destroy(&w.sx);
}

static void
more_than_a_page_of_them(void)
{
	/* CPUs that take turns on one of the host's meet slowly, and to close a port they have to. */
	u_int before, i, n, many = mp_ncpus == 1 ? MANY : MIN(MANY, MANY / 5 * ktest_rounds);
	struct wire *wires;

	before = xtest_number("evtchn.in_use");
	wires = malloc(many / 2 * sizeof(*wires), M_KTEST, M_WAITOK | M_ZERO);
	for (n = 0; n < many / 2; n++) {
		wires[n].want_cpu = -1;
		if (!wire_open(&wires[n], wire_filter, NULL, n % (mp_maxid + 1)))
			break;
	}
	KT_EQ(xtest_number("evtchn.in_use"), before + 2 * n);
	for (i = 0; i < n; i++)
		xen_evtchn_notify(wires[i].near);
	for (i = 0; i < n; i++) {
		if (!KT_WAIT(wires[i].filtered == 1))
			break;
	}
	settle();
	for (i = 0; i < n; i++) {
		KT_EQ(wires[i].filtered, 1);
		wire_close(&wires[i]);
	}
	KT_EQ(xtest_number("evtchn.in_use"), before);
	free(wires, M_KTEST);
}

/* A vCPU sets its own timer, to a time that has passed. */
static void
set_timer(void *arg __unused, int me __unused)
{
	struct vcpu_set_singleshot_timer timer = { .timeout_abs_ns = 1 };

	KT_EQ(xen_vcpu_op(VCPUOP_set_singleshot_timer, xen_cpus[curcpu].xc_vcpu, &timer), 0);
}

static void
virq_stays_on_its_cpu(void)
{
	struct wire w;
	struct xen_evtchn_params params = {
		.xep_name = "timer",
		.xep_type = INTR_TYPE_CLK,
		.xep_filter = wire_filter,
		.xep_arg = &w,
	};
	int cpu;

	CPU_FOREACH(cpu) {
		w = (struct wire){ .want_cpu = cpu };
		params.xep_cpu = cpu;
		if (!KT_EQ(xen_evtchn_bind_virq(VIRQ_TIMER, &params, &w.far), 0))
			return;
		ktest_join(ktest_spawn(set_timer, NULL, 0, cpu, 0));
		KT_WAIT(w.filtered >= 1);
		settle();
		KT_EQ(w.filtered, 1);
		KT_EQ(w.elsewhere, 0);
		xen_evtchn_free(w.far);
	}
}

/*
 * Send bursts of events.  A burst is one event to a handler that can't run while the sender does, as
 * where Xen has only one CPU.  Returns by how much the runs of the handler exceed the ticks.
 */
static int
storm(struct wire *w)
{
	int begin = ticks;
	u_int before = w->handled, i;

	for (i = 0; i < STORM; i++) {
		xen_evtchn_notify(w->near);
		if (i % BURST == 0)
			pause("xtests", 1);
	}
	settle();
	return ((int)(w->handled - before) - (ticks - begin));
}

/* Events without work are limited to one a tick; those with work are delivered at once. */
static void
storm_is_braked(void)
{
	struct wire w = { .want_cpu = -1, .brake = true };
	uint64_t braked = xtest_number("evtchn.braked");
	u_int handled, i;

	if (!wire_open(&w, NULL, wire_handler, -1))
		return;
	for (i = 0; i < STORMS && xtest_number("evtchn.braked") == braked; i++)
		KT_TRUE(storm(&w) <= CALM);
	KT_TRUE(xtest_number("evtchn.braked") > braked);
	w.works = true;
	xen_evtchn_notify(w.near);
	settle();
	braked = xtest_number("evtchn.braked");
	handled = w.handled;
	for (i = 1; i <= EVENTS; i++) {
		xen_evtchn_notify(w.near);
		if (!KT_WAIT(w.handled == handled + i))
			break;
	}
	KT_EQ(xtest_number("evtchn.braked"), braked);
	/* Closed while it waits to be unmasked. */
	w.works = false;
	for (i = 0; i < STORM; i++)
		xen_evtchn_notify(w.near);
	wire_close(&w);
}

static void
nonsense_is_refused(void)
{
	struct xen_evtchn_params params = {
		.xep_name = "nobody",
		.xep_type = INTR_TYPE_MISC,
		.xep_cpu = -1,
		.xep_filter = wire_filter,
	};
	struct xen_evtchn *ec = NULL;
	uint64_t port = 0;
	u_int before;

	before = xtest_number("evtchn.in_use");
	KT_EQ(xen_get_param(HVM_PARAM_STORE_EVTCHN, &port), 0);
	KT_EQ(xen_evtchn_adopt(port, &params, &ec), EBUSY);
	KT_EQ(xen_evtchn_adopt(0, &params, &ec), ENXIO);
	KT_EQ(xen_evtchn_adopt(EVTCHN_FIFO_NR_CHANNELS, &params, &ec), ENXIO);
	KT_TRUE(xen_evtchn_bind_virq(NR_VIRQS, &params, &ec) != 0);
	params.xep_cpu = mp_maxid + 1;
	KT_EQ(xen_evtchn_alloc(DOMID_SELF, &params, &ec), EINVAL);
	KT_TRUE(ec == NULL);
	KT_EQ(xtest_number("evtchn.in_use"), before);
	xen_evtchn_free(NULL);
}

const struct ktest_case xtest_evtchn_cases[] = {
	{ "evtchn.each_comes_once", each_comes_once },
	{ "evtchn.masked_while_handled", masked_while_handled },
	{ "evtchn.filter_wakes_the_thread", filter_wakes_the_thread },
	{ "evtchn.comes_to_its_cpu", comes_to_its_cpu },
	{ "evtchn.none_is_lost_under_load", none_is_lost_under_load },
	{ "evtchn.closed_under_fire", closed_under_fire },
	{ "evtchn.more_than_a_page_of_them", more_than_a_page_of_them },
	{ "evtchn.virq_stays_on_its_cpu", virq_stays_on_its_cpu },
	{ "evtchn.storm_is_braked", storm_is_braked },
	{ "evtchn.nonsense_is_refused", nonsense_is_refused },
	{ NULL, NULL }
};
