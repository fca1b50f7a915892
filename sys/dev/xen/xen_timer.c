/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen's timer, as the event timer of each CPU (eventtimers(9)).
 *
 * A vCPU passes a time to Xen (VCPUOP_set_singleshot_timer, vcpu.h), and gets
 * VIRQ_TIMER then.  That is one hypercall, where an emulated local APIC takes a
 * trap for each register that is written.
 *
 * The time is Xen's system time (xen_clock.c).
 *
 * Late.  Between our reading of the clock and Xen's, other domains may have
 * run.  Xen is called so that it refuses a time that has passed, which is
 * counted, and then once more without that: the event is sent at once.
 *
 * Suspension.  A new domain has no timers set.  Its VIRQs are bound again
 * (xen_evtchn_resume()), and a CPU that waited for a time has the event sent at
 * once: the kernel looks at what is due, and sets the timer again.
 *
 * Which timer a kernel takes is decided when its clocks start, by quality.  In
 * one that had no Xen module by then, the sysctl kern.eventtimer.timer is for
 * the user to set.
 *
 * Locking.  None: what is a CPU's is written by it, with interrupts off.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/counter.h>
#include <sys/kernel.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <sys/time.h>
#include <sys/timeet.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xen_var.h>
#include <xen/vcpu.h>

#define	TIMER_FREQ	1000000000	/* nanoseconds */
#define	TIMER_QUALITY	950		/* the local APIC's is 600 at most */

static struct timer_cpu {
	struct xen_evtchn *tc_event;
	bool		 tc_armed;	/* waits for a time */
} timer_cpus[MAXCPU];

static struct eventtimer timer_et;
static counter_u64_t timer_late;

static int
timer_set(const struct xen_cpu *xc, uint64_t ns)
{
	struct vcpu_set_singleshot_timer arg = {
		.timeout_abs_ns = ns,
		.flags = VCPU_SSHOTTMR_future,
	};
	int error;

	error = xen_vcpu_op(VCPUOP_set_singleshot_timer, xc->xc_vcpu, &arg);
	if (error != ETIMEDOUT)
		return (error);
	counter_u64_add(timer_late, 1);
	arg.flags = 0;
	return (xen_vcpu_op(VCPUOP_set_singleshot_timer, xc->xc_vcpu, &arg));
}

static int
timer_start(struct eventtimer *et __unused, sbintime_t first,
    sbintime_t period __unused)
{
	const struct xen_cpu *xc = &xen_cpus[curcpu];

	timer_cpus[curcpu].tc_armed = true;
	return (timer_set(xc, xen_clock_system() + sbttons(first)));
}

static int
timer_stop(struct eventtimer *et __unused)
{

	timer_cpus[curcpu].tc_armed = false;
	return (xen_vcpu_op(VCPUOP_stop_singleshot_timer,
	    xen_cpus[curcpu].xc_vcpu, NULL));
}

static int
timer_filter(void *arg)
{
	struct timer_cpu *tc = arg;

	/* An event that was sent before the timer was stopped is dropped. */
	if (!tc->tc_armed)
		return (FILTER_HANDLED);
	tc->tc_armed = false;
	if (timer_et.et_active)
		timer_et.et_event_cb(&timer_et, timer_et.et_arg);
	return (FILTER_HANDLED);
}

void
xen_timer_resume_self(void)
{
	const struct xen_cpu *xc = &xen_cpus[curcpu];

	if (timer_cpus[curcpu].tc_armed)
		(void)timer_set(xc, xen_clock_system());
}

static int
timer_bind(u_int cpu)
{
	char name[16];
	struct xen_evtchn_params params = {
		.xep_name = name,
		.xep_type = INTR_TYPE_CLK,
		.xep_cpu = cpu,
		.xep_filter = timer_filter,
		.xep_arg = &timer_cpus[cpu],
	};

	snprintf(name, sizeof(name), "cpu%u:timer", cpu);
	return (xen_evtchn_bind_virq(VIRQ_TIMER, &params,
	    &timer_cpus[cpu].tc_event));
}

static void
timer_unbind(void)
{
	u_int cpu;

	CPU_FOREACH(cpu) {
		xen_evtchn_free(timer_cpus[cpu].tc_event);
		timer_cpus[cpu].tc_event = NULL;
	}
	if (timer_late != NULL)
		counter_u64_free(timer_late);
	timer_late = NULL;
}

static void
timer_register(void)
{

	timer_et.et_name = "XENTIMER";
	timer_et.et_flags = ET_FLAGS_ONESHOT | ET_FLAGS_PERCPU;
	timer_et.et_quality = TIMER_QUALITY;
	timer_et.et_frequency = TIMER_FREQ;
	timer_et.et_min_period = SBT_1US;
	timer_et.et_max_period = 3600 * SBT_1S;
	timer_et.et_start = timer_start;
	timer_et.et_stop = timer_stop;
	(void)et_register(&timer_et);
}

/* A domain without this timer has another: it is no reason to fail. */
int
xen_timer_init(device_t dev)
{
	u_int cpu;
	int error = 0;

	if (xen_tunable(XEN_TIMER) == 0)
		return (0);
	timer_late = counter_u64_alloc(M_WAITOK);
	CPU_FOREACH(cpu) {
		error = timer_bind(cpu);
		if (error != 0)
			break;
	}
	if (error != 0) {
		device_printf(dev, "no timer of Xen for CPU %u (error %d)\n",
		    cpu, error);
		timer_unbind();
		return (0);
	}
	timer_register();
	return (0);
}

/* Nothing fails after it was begun, so it is not in use. */
void
xen_timer_fini(device_t dev __unused)
{

	if (timer_late == NULL)
		return;
	(void)et_deregister(&timer_et);
	timer_unbind();
}

void
xen_timer_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{
	struct sysctl_oid *node;

	if (timer_late == NULL)
		return;
	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(parent), OID_AUTO, "timer",
	    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "Xen's timer");
	SYSCTL_ADD_COUNTER_U64(ctx, SYSCTL_CHILDREN(node), OID_AUTO,
	    "late", CTLFLAG_RD, &timer_late,
	    "Timer settings that had passed when Xen received them");
}
