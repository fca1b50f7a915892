/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A suspension of the domain is invisible to a thread, and comes at any moment.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>
#include <xen/event_channel.h>

#include "xtest.h"

#define	LIFE_PATIENCE	300	/* seconds until dom0 has suspended us */

/* Keeps its CPU busy, so that the suspension interrupts this thread. */
static void
bound_thread(void *arg, int cpu)
{
	u_int life = *(u_int *)arg;
	sbintime_t end = sbinuptime() + LIFE_PATIENCE * SBT_1S;

	while (xen_life == life && sbinuptime() < end)
		kern_yield(PUSER);
	KT_TRUE(xen_life != life);
	KT_EQ(curcpu, cpu);
	KT_EQ(sched_is_bound(curthread), 1);
}

/* A channel whose handler still runs when it is freed, in the old domain and the new one. */
static struct {
	evtchn_port_t	 port;
	u_int		 life;
	volatile u_int	 running;
	evtchn_port_t	 others[64];
	u_int		 nothers;
} late;

/* Have the new domain use the port of that number, too. */
static void
late_take_port(void)
{
	struct evtchn_alloc_unbound arg;

	while (late.nothers < nitems(late.others)) {
		arg = (struct evtchn_alloc_unbound){ .dom = DOMID_SELF, .remote_dom = DOMID_SELF };
		if (!KT_EQ(xen_event_channel_op(EVTCHNOP_alloc_unbound, &arg), 0))
			return;
		late.others[late.nothers++] = arg.port;
		if (arg.port >= late.port)
			return;
	}
}

static void
late_handler(void *arg __unused)
{
	sbintime_t end = sbinuptime() + LIFE_PATIENCE * SBT_1S;

	atomic_store_rel_int(&late.running, 1);
	while (xen_life == late.life && sbinuptime() < end)
		kern_yield(PUSER);
	late_take_port();
}

static void
channel_is_freed_meanwhile(void *arg __unused, int cpu __unused)
{
	struct xen_evtchn_params params = {
		.xep_name = "late",
		.xep_type = INTR_TYPE_MISC,
		.xep_cpu = -1,
		.xep_handler = late_handler,
	};
	struct evtchn_bind_interdomain bind = { .remote_dom = DOMID_SELF };
	struct evtchn_send send;
	struct evtchn_status status = { .dom = DOMID_SELF };
	struct evtchn_close close;
	struct xen_evtchn *channel;

	memset(&late, 0, sizeof(late));
	late.life = xen_life;
	if (!KT_EQ(xen_evtchn_alloc(DOMID_SELF, &params, &channel), 0))
		return;
	late.port = bind.remote_port = xen_evtchn_port(channel);
	KT_EQ(xen_event_channel_op(EVTCHNOP_bind_interdomain, &bind), 0);
	send.port = bind.local_port;
	KT_EQ(xen_event_channel_op(EVTCHNOP_send, &send), 0);
	KT_WAIT(late.running != 0);
	/* Waits for the handler, which waits for the new domain. */
	xen_evtchn_free(channel);
	KT_TRUE(xen_life != late.life);
	status.port = late.port;
	KT_EQ(xen_event_channel_op(EVTCHNOP_status, &status), 0);
	KT_TRUE(status.status != EVTCHNSTAT_closed);
	while (late.nothers > 0) {
		close.port = late.others[--late.nothers];
		KT_EQ(xen_event_channel_op(EVTCHNOP_close, &close), 0);
	}
}

/* Who hears of the resumption has heard of the suspension. */
static volatile u_int power_suspends, power_resumes, power_lonely;

static void
power_suspends_now(void *arg __unused)
{

	atomic_add_int(&power_suspends, 1);
}

static void
power_resumes_now(void *arg __unused)
{

	if (++power_resumes != power_suspends)
		power_lonely++;
}

static void
power_events_are_pairs(void *arg __unused, int cpu __unused)
{
	sbintime_t end = sbinuptime() + LIFE_PATIENCE * SBT_1S;
	eventhandler_tag suspend, resume;

	power_suspends = power_resumes = power_lonely = 0;
	suspend = EVENTHANDLER_REGISTER(power_suspend, power_suspends_now, NULL,
	    EVENTHANDLER_PRI_ANY);
	resume = EVENTHANDLER_REGISTER(power_resume, power_resumes_now, NULL,
	    EVENTHANDLER_PRI_ANY);
	while (power_resumes == 0 && sbinuptime() < end)
		pause("xtpowr", 1);
	KT_EQ(power_suspends, 1);
	KT_EQ(power_resumes, 1);
	KT_EQ(power_lonely, 0);
	EVENTHANDLER_DEREGISTER(power_suspend, suspend);
	EVENTHANDLER_DEREGISTER(power_resume, resume);
}

/* One suspension is enough for all of these. */
static void
life_goes_on(void)
{
	struct ktest_thread *bound[MAXCPU], *channel, *power;
	u_int life = xen_life;
	int cpu;

	channel = ktest_spawn(channel_is_freed_meanwhile, NULL, 0, -1, 0);
	power = ktest_spawn(power_events_are_pairs, NULL, 0, -1, 0);
	CPU_FOREACH(cpu)
		bound[cpu] = ktest_spawn(bound_thread, &life, cpu, cpu, 0);
	CPU_FOREACH(cpu)
		ktest_join(bound[cpu]);
	ktest_join(channel);
	ktest_join(power);
}

const struct ktest_case xtest_life_cases[] = {
	{ "life.goes_on", life_goes_on },
	{ NULL, NULL }
};
