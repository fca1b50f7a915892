/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Suspension: the toolstack saves the domain (xl save, migrate), and makes a
 * new one of it later, here or on another host; or it goes on with this one (xl
 * save -c).
 *
 * What survives is memory and the state of the processors.  Everything that Xen
 * and other domains had of the old domain is lost: the place of the shared info
 * page, the CPUs' vectors, the grant table, event channels, xenstore's ring
 * with watches and transactions, and the back ends.
 *
 *	held			xenbus: no front end is in a method or between
 *				  two messages, and none with pages that a back
 *				  end keeps mapped reads them
 *				xenstore: no request is under way
 *				event channels: none is being made or closed
 *				the rest of the kernel: power_suspend, whatever
 *				  follows
 *	all CPUs parked		by a rendezvous, with interrupts off
 *	vCPU 0			requests the suspension: the hypercall that
 *				returns in the new domain gets back pages, event
 *				queues, grant table
 *	each CPU		gets back its own memory, its vector, its timer
 *	CPUs run		time of day, what else resumes (power_resume),
 *				xenstore and its watches
 *	front ends		lose their back ends and find the new ones
 *				(xenbus_begin_again())
 *
 * The old back ends continue to run while the domain is saved, so that the
 * memory which is saved was not all read at one time: it may contain a
 * response, and not the data that belong to it.  And what they write to pages
 * that they keep mapped is no change that a live migration sees.  So responses
 * in rings of the old domain are not read (xen_life), and DEVICE_SUSPEND is
 * called before, for front ends whose pages stay mapped: they copy the data of
 * the responses that they have read.
 *
 * Besides that, front ends are not notified.  What their queues put between the
 * resumption and their turn reaches no back end: the grants are not in the new
 * table, and the channels are dead.  Then each is stopped as if its back end
 * had been removed, and what was in flight is sent again to the next.  If the
 * suspension is cancelled, they are not affected.
 *
 * The toolstack gives up after a minute (libxl), so what holds a suspension up
 * is bounded: requests to xenstore, a step of a front end, which waits for its
 * back end five seconds at most.  What gives up withdraws its request, unless
 * that was acknowledged.  So the request is taken, which acknowledges it, when
 * all front ends are held, and nothing is left to wait for; without one nothing
 * is suspended.
 *
 * A request that comes while xen0 and xenbus0 attach waits for
 * xen_suspend_allow().
 *
 * Locking.  The order is that of the list above.
 *
 * Gaps.  Devices that are not Xen's (passed through) are not suspended.  CPUs
 * have to be the same.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/priority.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <machine/atomic.h>
#include <machine/cpufunc.h>

#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenbus_var.h>
#include <dev/xen/xenstore.h>

static device_t suspend_dev;
static struct taskqueue *suspend_queue;
static struct task suspend_task;
static const struct xen_suspend_ops *suspend_ops;
static volatile u_int suspend_allowed;
static uint64_t suspend_count, suspend_cancelled;

/* What the parked CPUs share. */
static struct {
	u_int		 sp_cpu;	/* which one is vCPU 0 */
	volatile u_int	 sp_over;	/* the others may go on */
	bool		 sp_cancelled;
	int		 sp_error;	/* of the hypercall */
	const char	*sp_lost;	/* what could not be had again */
	int		 sp_lost_error;
} suspend;

static void
suspend_lose(const char *what, int error)
{

	if (error == 0 || suspend.sp_lost != NULL)
		return;
	suspend.sp_lost = what;
	suspend.sp_lost_error = error;
}

/* The processor that suspends, and continues in the new domain. */
static void
suspend_now(void)
{

	suspend.sp_error = xen_suspend(&suspend.sp_cancelled);
	if (suspend.sp_error != 0)
		suspend.sp_cancelled = true;
	if (suspend.sp_cancelled)
		return;
	atomic_add_int(&xen_life, 1);
	xen_platform_resume();
	suspend_lose("the shared info page", xen_cpu_resume());
	suspend_lose("event channels", xen_evtchn_resume());
	suspend_lose("the grant table", xen_gnttab_resume());
}

/* Each processor, with interrupts off; all are here. */
static void
suspend_parked(void *arg __unused)
{
	bool first = curcpu == suspend.sp_cpu;
	int error;

	if (first) {
		suspend_now();
		atomic_store_rel_int(&suspend.sp_over, 1);
	} else {
		while (atomic_load_acq_int(&suspend.sp_over) == 0)
			cpu_spinwait();
	}
	if (suspend.sp_cancelled)
		return;
	error = xen_cpu_resume_self(first);
	if (error == 0)
		error = xen_upcall_resume();
	if (error != 0)
		panic(
		    "xen: no upcalls for CPU %u after the suspension (error %d)",
		    curcpu, error);
	xen_evtchn_resume_self();
	xen_timer_resume_self();
}

/* No CPU goes on before all have arrived. */
static void
suspend_arrive(void *arg __unused)
{

}

static void
suspend_park(void)
{
	u_int cpu;

	suspend.sp_over = 0;
	suspend.sp_lost = NULL;
	suspend.sp_cancelled = false;
	suspend.sp_cpu = CPU_FIRST();
	CPU_FOREACH(cpu) {
		if (xen_cpus[cpu].xc_vcpu == 0)
			suspend.sp_cpu = cpu;
	}
	smp_rendezvous(suspend_arrive, suspend_parked, NULL, NULL);
}

/* After the CPUs run again: what needs threads. */
static void
suspend_revive(device_t bus)
{
	bool cancelled = suspend.sp_cancelled;
	int error;

	if (suspend.sp_lost != NULL)
		panic(
		    "xen: failed to restore %s after the suspension (error %d)",
		    suspend.sp_lost, suspend.sp_lost_error);
	if (!cancelled)
		xen_gnttab_prune();
	xen_clock_resume(cancelled);
	EVENTHANDLER_INVOKE(power_resume);
	error = xenstore_resume(cancelled);
	if (error != 0)
		device_printf(suspend_dev,
		    "xenstore does not answer after the suspension (error "
		    "%d): devices stay without back ends\n", error);
	if (bus != NULL)
		xenbus_resume(bus, cancelled);
	if (bus != NULL && !cancelled) {
		xenbus_wait_connect(bus);
		xenbus_report_missing(bus);
	}
	suspend_ops->xso_done(cancelled);
}

static void
suspend_run(void *arg __unused, int pending __unused)
{
	device_t bus = device_find_child(suspend_dev, "xenbus", 0);

	/* Both who asks and who allows it come here. */
	if (suspend_allowed == 0 || suspend_ops == NULL ||
	    !suspend_ops->xso_is_wanted())
		return;
	/* One that failed to attach has no front ends. */
	if (bus != NULL && !device_is_attached(bus))
		bus = NULL;
	if (bus != NULL)
		xenbus_suspend(bus);
	if (!suspend_ops->xso_take()) {
		device_printf(suspend_dev,
		    "the request to suspend was withdrawn\n");
		if (bus != NULL)
			xenbus_resume(bus, true);
		return;
	}
	EVENTHANDLER_INVOKE(power_suspend_early);
	EVENTHANDLER_INVOKE(power_suspend);
	xenstore_suspend();
	xen_evtchn_suspend();
	suspend_park();
	xen_evtchn_go_on();
	suspend_count++;
	if (suspend.sp_cancelled)
		suspend_cancelled++;
	if (suspend.sp_error != 0)
		device_printf(suspend_dev,
		    "Xen does not suspend the domain (error %d)\n",
		    suspend.sp_error);
	suspend_revive(bus);
	device_printf(suspend_dev,
	    "%s\n", suspend.sp_cancelled ? "the suspension was cancelled"
	    : "the domain has been suspended, and goes on");
}

void
xen_suspend_soon(const struct xen_suspend_ops *ops)
{

	suspend_ops = ops;
	taskqueue_enqueue(suspend_queue, &suspend_task);
}

void
xen_suspend_allow(void)
{

	suspend_allowed = 1;
	taskqueue_enqueue(suspend_queue, &suspend_task);
}

int
xen_suspend_init(device_t dev)
{
	int error;

	suspend_dev = dev;
	TASK_INIT(&suspend_task, 0, suspend_run, NULL);
	suspend_queue = taskqueue_create("xen suspend", M_WAITOK,
	    taskqueue_thread_enqueue, &suspend_queue);
	error = taskqueue_start_threads(&suspend_queue, 1, PWAIT,
	    "xen suspend");
	if (error != 0) {
		taskqueue_free(suspend_queue);
		suspend_queue = NULL;
	}
	return (error);
}

void
xen_suspend_fini(device_t dev __unused)
{

	if (suspend_queue == NULL)
		return;
	taskqueue_drain(suspend_queue, &suspend_task);
	taskqueue_free(suspend_queue);
	suspend_queue = NULL;
	suspend_ops = NULL;
	suspend_allowed = 0;
}

void
xen_suspend_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{
	struct sysctl_oid *node;

	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(parent), OID_AUTO,
	    "suspend", CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
	    "Suspensions by the toolstack");
	SYSCTL_ADD_U64(ctx, SYSCTL_CHILDREN(node), OID_AUTO,
	    "count", CTLFLAG_RD, &suspend_count, 0,
	    "Times that the domain was suspended to be saved");
	SYSCTL_ADD_U64(ctx, SYSCTL_CHILDREN(node), OID_AUTO,
	    "cancelled", CTLFLAG_RD, &suspend_cancelled, 0,
	    "Suspensions after which the same domain continued");
}
