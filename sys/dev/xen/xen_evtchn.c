/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Event channels: the interrupts between domains (event_channel.h).
 *
 * A channel has a port number at either side.  Xen marks a port pending and
 * calls a CPU up (xen_upcall.c); which ports are pending is shown by one of two
 * interfaces (xen_evtchn_2l.c, xen_evtchn_fifo.c), of which FIFO is used where
 * Xen has it and hw.xen.evtchn_fifo is not 0.
 *
 * A channel is an interrupt event, intr_event(9), with a thread of its own, as
 * a vector of a PCI device is:
 *
 *	upcall		clear the pending state; call the filter, or mask the
 *			port and wake the thread
 *	thread		the handler looks for work until there is none
 *	after it	unmask; Xen sends again what arrived meanwhile
 *
 * Cleared before, unmasked after: so an event is never lost, and however many
 * come while the handler runs, they cost one more upcall.  In the other
 * direction, events are not sent unless the peer requested them (pvq_kick(9)):
 * back ends count those that find no work, and serve a domain that sends many
 * of them late (Xen's advisory XSA-332).
 *
 * A storm.  A back end can send events without end, each of which costs an
 * upcall and a wake-up of a thread that takes precedence over most (Xen's
 * advisory XSA-391).  So a driver whose handler knows whether there was work
 * reports it (xen_evtchn_worked()), and after EVTCHN_IDLE_MAX rounds in a row
 * without, the channel stays masked for a tick after each, until there is work
 * again.
 *
 * A port that is pending and has no channel here is masked, and counted
 * ("strays"): it may be bound by a kernel that polls it.
 *
 * Closing.  The channel leaves the table, so that no upcall begins with it;
 * every CPU is visited, so that none is still delivering to it; the thread
 * ends; and only then the port is closed, since Xen may give the number to the
 * next request.
 *
 * Suspension.  A domain that was saved continues as a new one without channels,
 * and the old numbers are soon reused.  So all channels leave the table; what
 * their owners have is dead: it sends nothing, and is freed without closing
 * anything.  Only the VIRQs of each CPU involve no other domain, and are bound
 * again under another number, so that the CPUs are never without a timer.
 *
 * Locking.  evtchn_lock (sx): making and closing of channels, the list, growth
 * of the table.  The upcall reads the table without a lock.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/interrupt.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/proc.h>
#include <sys/queue.h>
#include <sys/sbuf.h>
#include <sys/smp.h>
#include <sys/sx.h>
#include <sys/sysctl.h>

#include <machine/atomic.h>
#include <machine/intr_machdep.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_evtchn_var.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xen_var.h>

#define	EVTCHN_PER_CHUNK	512
#define	EVTCHN_CHUNKS		(EVTCHN_FIFO_NR_CHANNELS / EVTCHN_PER_CHUNK)
#define	EVTCHN_NAMELEN		20
#define	EVTCHN_COUNTERS_LEFT	64	/* counters of the kernel's that are
					 * left to other interrupts */
#define	EVTCHN_IDLE_MAX		32	/* rounds without work that may follow
					 * each other at once */

enum evtchn_kind {
	EVTCHN_UNBOUND,
	EVTCHN_VIRQ,		/* per CPU or global */
	EVTCHN_ADOPTED,
};

static const char *const evtchn_kind_names[] = {
	[EVTCHN_UNBOUND] = "alloc",
	[EVTCHN_VIRQ] = "virq",
	[EVTCHN_ADOPTED] = "adopt",
};

struct xen_evtchn {
	TAILQ_ENTRY(xen_evtchn) ec_link;
	evtchn_port_t	 ec_port;
	enum evtchn_kind ec_kind;
	u_int		 ec_life;	/* xen_life,
					 * in which the port is ours */
	u_int		 ec_virq;	/* EVTCHN_VIRQ */
	bool		 ec_fixed;	/* bound to its CPU permanently */
	volatile bool	 ec_dead;	/* is being closed:
					 * not to be unmasked */
	int		 ec_cpu;
	bool		 ec_brake;	/* its handler reports
					 * when there was work */
	volatile bool	 ec_worked;	/* there was,
					 * since its thread's last round */
	u_int		 ec_idle;	/* rounds without, in a row */
	int		 ec_idle_ticks;	/* at the last of them */
	struct callout	 ec_later;	/* unmasks it, after such a round */
	struct intr_event *ec_event;
	void		*ec_cookie;
	u_long		*ec_count;	/* in vmstat -i: events of all channels
					 * of this name */
	u_long		 ec_no_count;	/* in its place, where there is no room
					 * for the name */
	uint64_t	 ec_received;
	volatile uint64_t ec_sent;
	char		 ec_name[EVTCHN_NAMELEN];
};

static struct sx evtchn_lock;
SX_SYSINIT(xen_evtchn, &evtchn_lock, "xen evtchn");

static const struct xen_evtchn_abi *evtchn_abi;
static struct xen_evtchn **evtchn_table[EVTCHN_CHUNKS];
static TAILQ_HEAD(,
    xen_evtchn) evtchn_list = TAILQ_HEAD_INITIALIZER(evtchn_list);
static u_int evtchn_count;
static uint64_t evtchn_strays;
static uint64_t evtchn_braked;

static inline struct xen_evtchn *
evtchn_lookup(evtchn_port_t port)
{
	struct xen_evtchn **chunk;

	if (port >= EVTCHN_FIFO_NR_CHANNELS)
		return (NULL);
	chunk = evtchn_table[port / EVTCHN_PER_CHUNK];
	if (chunk == NULL)
		return (NULL);
	return (atomic_load_ptr(&chunk[port % EVTCHN_PER_CHUNK]));
}

static bool
evtchn_here(evtchn_port_t port, u_int cpu)
{
	struct xen_evtchn *ec = evtchn_lookup(port);

	return (ec == NULL || ec->ec_cpu == (int)cpu);
}

static void
evtchn_deliver(evtchn_port_t port, struct trapframe *frame)
{
	struct xen_evtchn *ec;

	ec = evtchn_lookup(port);
	if (ec == NULL) {
		evtchn_strays++;
		evtchn_abi->ea_mask(port);
		return;
	}
	ec->ec_received++;
	(*ec->ec_count)++;
	(void)intr_event_handle(ec->ec_event, frame);
}

static const struct xen_evtchn_sink evtchn_sink = {
	.es_here = evtchn_here,
	.es_deliver = evtchn_deliver,
};

/*
 * The upcall of a CPU.  upcall_pending is cleared before the look, and seen set
 * after it if anything came that the look may have missed; Xen calls up only
 * when it sets it.
 */
void
xen_evtchn_upcall(u_int cpu, struct trapframe *frame)
{
	volatile struct vcpu_info *info = xen_cpus[cpu].xc_info;

	if (evtchn_abi == NULL)
		return;
	do {
		info->evtchn_upcall_pending = 0;
		atomic_thread_fence_seq_cst();
		evtchn_abi->ea_scan(cpu, frame, &evtchn_sink);
		atomic_thread_fence_seq_cst();
	} while (info->evtchn_upcall_pending != 0);
}

static void
evtchn_pre_ithread(void *arg)
{
	struct xen_evtchn *ec = arg;

	evtchn_abi->ea_mask(ec->ec_port);
}

/*
 * With interrupts disabled, so that evtchn_leave() waits for it: the number of
 * a port that was closed meanwhile may be in use again, and its first event
 * would come before its channel is in the table.
 */
static void
evtchn_unmask(struct xen_evtchn *ec)
{
	register_t saved;

	saved = intr_disable();
	if (!ec->ec_dead)
		evtchn_abi->ea_unmask(ec->ec_port);
	intr_restore(saved);
}

static void
evtchn_unmask_later(void *arg)
{

	evtchn_unmask(arg);
}

/*
 * Has its thread had so many rounds without work that the next has to wait?  A
 * few occur with any protocol, and rare ones cost nothing.
 */
static bool
evtchn_storms(struct xen_evtchn *ec)
{

	if (!ec->ec_brake)
		return (false);
	if (ec->ec_worked || ticks - ec->ec_idle_ticks > MAX(hz / 10, 2))
		ec->ec_idle = 0;
	ec->ec_worked = false;
	ec->ec_idle_ticks = ticks;
	return (++ec->ec_idle > EVTCHN_IDLE_MAX);
}

static void
evtchn_post_ithread(void *arg)
{
	struct xen_evtchn *ec = arg;

	if (!ec->ec_dead && evtchn_storms(ec)) {
		atomic_add_64(&evtchn_braked, 1);
		callout_reset(&ec->ec_later, 1, evtchn_unmask_later, ec);
	} else
		evtchn_unmask(ec);
}

static int
evtchn_close(evtchn_port_t port)
{
	struct evtchn_close arg = { .port = port };

	return (xen_event_channel_op(EVTCHNOP_close, &arg));
}

/* The CPU that is Xen's vCPU 0, where channels begin. */
static int
evtchn_first_cpu(void)
{
	u_int cpu;

	CPU_FOREACH(cpu) {
		if (xen_cpus[cpu].xc_vcpu == 0)
			return (cpu);
	}
	return (CPU_FIRST());
}

/* A CPU that has event queues, in the place of one that has none. */
static int
evtchn_cpu_with_queues(int wanted)
{
	u_int cpu;

	if (!xen_cpus[wanted].xc_no_queues)
		return (wanted);
	CPU_FOREACH(cpu) {
		if (!xen_cpus[cpu].xc_no_queues)
			return (cpu);
	}
	return (wanted);
}

/* Let events of a masked port go to a CPU. */
static int
evtchn_move(struct xen_evtchn *ec, int cpu)
{
	struct evtchn_bind_vcpu arg = {
		.port = ec->ec_port,
		.vcpu = xen_cpus[cpu].xc_vcpu,
	};
	int error;

	error = xen_event_channel_op(EVTCHNOP_bind_vcpu, &arg);
	if (error == 0)
		ec->ec_cpu = cpu;
	return (error);
}

/*
 * The counter that vmstat -i shows as "xen: xn0:rx0".  The kernel never frees
 * one, so that a name keeps its own for the next channel of that name, and for
 * the next time that this module is loaded.
 */
static void
evtchn_set_counter(struct xen_evtchn *ec)
{
	char name[MAXCOMLEN + 1], padded[MAXCOMLEN + 1];
	size_t i, left, n, width;

	snprintf(name, sizeof(name), "xen: %s", ec->ec_name);
	snprintf(padded, sizeof(padded), "%-*s", MAXCOMLEN, name);
	ec->ec_count = &ec->ec_no_count;
	n = sintrcnt / sizeof(*intrcnt);
	width = n > 0 ? sintrnames / n : 0;
	for (i = left = 0; i < n; i++) {
		if (strncmp(intrnames + i * width, padded, width) == 0) {
			ec->ec_count = &intrcnt[i];
			return;
		}
		if (intrnames[i * width] == '\0')
			left++;
	}
	if (left > EVTCHN_COUNTERS_LEFT)
		intrcnt_add(name, &ec->ec_count);
}

/* Set up the handler; the port is masked. */
static int
evtchn_set_handler(struct xen_evtchn *ec,
    const struct xen_evtchn_params *params)
{
	int error;

	error = intr_event_create(&ec->ec_event, ec, 0, ec->ec_port,
	    evtchn_pre_ithread, evtchn_post_ithread, NULL, NULL,
	    "evtchn%u:", ec->ec_port);
	if (error != 0)
		return (error);
	error = intr_event_add_handler(ec->ec_event, ec->ec_name,
	    params->xep_filter, params->xep_handler, params->xep_arg,
	    intr_priority(params->xep_type), params->xep_type | INTR_MPSAFE,
	    &ec->ec_cookie);
	if (error == 0 && params->xep_cpu >= 0 && params->xep_handler != NULL)
		(void)intr_event_bind_ithread(ec->ec_event, params->xep_cpu);
	return (error);
}

/* Put a channel into the table, which has a place for it. */
static void
evtchn_enter(struct xen_evtchn *ec)
{
	struct xen_evtchn **chunk =
	    evtchn_table[ec->ec_port / EVTCHN_PER_CHUNK];

	atomic_store_rel_ptr((volatile uintptr_t *)&chunk[ec->ec_port %
	    EVTCHN_PER_CHUNK], (uintptr_t)ec);
	TAILQ_INSERT_TAIL(&evtchn_list, ec, ec_link);
	evtchn_count++;
}

static int
evtchn_grow_and_enter(struct xen_evtchn *ec)
{
	struct xen_evtchn ***chunk =
	    &evtchn_table[ec->ec_port / EVTCHN_PER_CHUNK];

	if (*chunk == NULL)
		*chunk = malloc(EVTCHN_PER_CHUNK * sizeof(**chunk), M_XEN,
		    M_WAITOK | M_ZERO);
	if (evtchn_lookup(ec->ec_port) != NULL)
		return (EBUSY);
	evtchn_enter(ec);
	return (0);
}

static void
evtchn_nothing(void *arg __unused)
{

}

/*
 * Take a channel out of the table, and wait until neither an upcall nor its
 * thread unmasks it.
 */
static void
evtchn_leave(struct xen_evtchn *ec)
{

	ec->ec_dead = true;
	evtchn_table[ec->ec_port / EVTCHN_PER_CHUNK][ec->ec_port %
	    EVTCHN_PER_CHUNK] = NULL;
	TAILQ_REMOVE(&evtchn_list, ec, ec_link);
	evtchn_count--;
	evtchn_abi->ea_mask(ec->ec_port);
	/*
	 * A CPU answers with interrupts enabled, that is, outside of its
	 * upcall.
	 */
	smp_rendezvous(smp_no_rendezvous_barrier, evtchn_nothing,
	    smp_no_rendezvous_barrier, NULL);
	/* Its thread may have been about to unmask it. */
	evtchn_abi->ea_mask(ec->ec_port);
}

/* Wait for the handler of a channel, and for all else that looks at it. */
static void
evtchn_quiesce(struct xen_evtchn *ec)
{

	if (ec->ec_cookie != NULL)
		(void)intr_event_remove_handler(ec->ec_cookie);
	/*
	 * Waits for the thread, which is still in evtchn_post_ithread() when
	 * its handler is removed.
	 */
	if (ec->ec_event != NULL)
		(void)intr_event_destroy(ec->ec_event);
	(void)callout_drain(&ec->ec_later);
}

/* Close its port, unless that is another's in a new domain, and free it. */
static void
evtchn_end(struct xen_evtchn *ec)
{

	sx_assert(&evtchn_lock, SA_XLOCKED);
	if (ec->ec_kind != EVTCHN_ADOPTED &&
	    ec->ec_life == atomic_load_int(&xen_life))
		(void)evtchn_close(ec->ec_port);
	free(ec, M_XEN);
}

/*
 * Make a channel of a port that is bound, and unmask it.  Closes the port if
 * that fails.
 */
static int
evtchn_create(enum evtchn_kind kind, evtchn_port_t port, bool fixed, int cpu,
    const struct xen_evtchn_params *params, struct xen_evtchn **ecp)
{
	struct xen_evtchn *ec;
	int error, to;

	sx_assert(&evtchn_lock, SA_XLOCKED);
	ec = malloc(sizeof(*ec), M_XEN, M_WAITOK | M_ZERO);
	ec->ec_port = port;
	ec->ec_kind = kind;
	ec->ec_life = atomic_load_int(&xen_life);
	ec->ec_fixed = fixed;
	ec->ec_cpu = cpu;
	ec->ec_brake = params->xep_brake;
	callout_init(&ec->ec_later, 1);
	strlcpy(ec->ec_name, params->xep_name, sizeof(ec->ec_name));
	evtchn_set_counter(ec);
	error = evtchn_abi->ea_reach(port);
	if (error == 0)
		evtchn_abi->ea_mask(port);
	if (error == 0 && fixed && xen_cpus[cpu].xc_no_queues)
		error = ENXIO;
	to = evtchn_cpu_with_queues(params->xep_cpu >= 0 ? params->xep_cpu :
	    cpu);
	if (error == 0 && !fixed && (params->xep_cpu >= 0 || to != cpu))
		error = evtchn_move(ec, to);
	if (error == 0)
		error = evtchn_set_handler(ec, params);
	if (error == 0)
		error = evtchn_grow_and_enter(ec);
	if (error != 0) {
		evtchn_quiesce(ec);
		evtchn_end(ec);
		return (error);
	}
	/*
	 * The caller's pointer before the first event: a handler may look at
	 * it.
	 */
	*ecp = ec;
	evtchn_abi->ea_unmask(port);
	return (0);
}

static bool
evtchn_bad_cpu(const struct xen_evtchn_params *params)
{

	return (params->xep_cpu >= 0 &&
	    (params->xep_cpu > mp_maxid || CPU_ABSENT(params->xep_cpu)));
}

int
xen_evtchn_alloc(domid_t remote, const struct xen_evtchn_params *params,
    struct xen_evtchn **ecp)
{
	struct evtchn_alloc_unbound arg = {
		.dom = DOMID_SELF,
		.remote_dom = remote,
	};
	int error;

	if (evtchn_abi == NULL)
		return (ENXIO);
	if (evtchn_bad_cpu(params))
		return (EINVAL);
	sx_xlock(&evtchn_lock);
	error = xen_event_channel_op(EVTCHNOP_alloc_unbound, &arg);
	if (error == 0)
		error = evtchn_create(EVTCHN_UNBOUND, arg.port, false,
		    evtchn_first_cpu(), params, ecp);
	sx_xunlock(&evtchn_lock);
	return (error);
}

/*
 * Virtual interrupts that each CPU has one of (xen.h); the others are the
 * domain's.
 */
static bool
evtchn_virq_is_per_cpu(u_int virq)
{

	return (virq == VIRQ_TIMER || virq == VIRQ_DEBUG ||
	    virq == VIRQ_XENOPROF || virq == VIRQ_XENPMU);
}

int
xen_evtchn_bind_virq(u_int virq, const struct xen_evtchn_params *params,
    struct xen_evtchn **ecp)
{
	struct evtchn_bind_virq arg = { .virq = virq };
	bool fixed = evtchn_virq_is_per_cpu(virq);
	int cpu, error;

	if (evtchn_abi == NULL)
		return (ENXIO);
	if (evtchn_bad_cpu(params))
		return (EINVAL);
	cpu = evtchn_first_cpu();
	if (fixed && params->xep_cpu >= 0)
		cpu = params->xep_cpu;
	arg.vcpu = xen_cpus[cpu].xc_vcpu;
	sx_xlock(&evtchn_lock);
	error = xen_event_channel_op(EVTCHNOP_bind_virq, &arg);
	if (error == 0)
		error = evtchn_create(EVTCHN_VIRQ, arg.port, fixed, cpu, params,
		    ecp);
	if (error == 0)
		(*ecp)->ec_virq = virq;
	sx_xunlock(&evtchn_lock);
	return (error);
}

int
xen_evtchn_adopt(evtchn_port_t port, const struct xen_evtchn_params *params,
    struct xen_evtchn **ecp)
{
	int error;

	if (evtchn_abi == NULL || port == 0 || port >= evtchn_abi->ea_nports)
		return (ENXIO);
	if (evtchn_bad_cpu(params))
		return (EINVAL);
	sx_xlock(&evtchn_lock);
	if (evtchn_lookup(port) != NULL)
		error = EBUSY;
	else
		error = evtchn_create(EVTCHN_ADOPTED, port, false,
		    evtchn_first_cpu(), params, ecp);
	sx_xunlock(&evtchn_lock);
	return (error);
}

void
xen_evtchn_free(struct xen_evtchn *ec)
{

	if (ec == NULL)
		return;
	sx_xlock(&evtchn_lock);
	if (!ec->ec_dead)
		evtchn_leave(ec);
	sx_xunlock(&evtchn_lock);
	/* Waits for the handler, which may be using channels of its own. */
	evtchn_quiesce(ec);
	/* A suspension may have taken place meanwhile. */
	sx_xlock(&evtchn_lock);
	evtchn_end(ec);
	sx_xunlock(&evtchn_lock);
}

evtchn_port_t
xen_evtchn_port(const struct xen_evtchn *ec)
{

	return (ec->ec_port);
}

void
xen_evtchn_notify(struct xen_evtchn *ec)
{
	struct evtchn_send arg = { .port = ec->ec_port };

	if (ec->ec_dead)
		return;
	atomic_add_64(&ec->ec_sent, 1);
	/*
	 * A channel that is not connected any more takes no events: they are
	 * not needed.
	 */
	(void)xen_event_channel_op(EVTCHNOP_send, &arg);
}

void
xen_evtchn_worked(struct xen_evtchn *ec)
{

	ec->ec_worked = true;
}

/*
 * On each CPU, with its interrupts disabled: an upcall can't come in between.
 */
static void
evtchn_look(void *arg __unused)
{

	xen_evtchn_upcall(curcpu, NULL);
}

/*
 * Vectors are set already (xen_upcall.c), and an upcall that came before there
 * was an interface to look at has left upcall_pending set: as long as it is,
 * Xen does not call that CPU up.  So each looks once; no channel is in use here
 * yet, and the ports that it finds are masked.
 */
int
xen_evtchn_init(device_t dev)
{
	const struct xen_evtchn_abi *abi = &xen_evtchn_2l;

	if (xen_tunable(XEN_EVTCHN_FIFO) != 0 && xen_evtchn_fifo.ea_init() == 0)
		abi = &xen_evtchn_fifo;
	else
		(void)xen_evtchn_2l.ea_init();
	atomic_store_rel_ptr((volatile uintptr_t *)&evtchn_abi, (uintptr_t)abi);
	smp_rendezvous(NULL, evtchn_look, NULL, NULL);
	if (bootverbose)
		device_printf(dev, "%s event channels, %u\n", abi->ea_name,
		    abi->ea_nports);
	return (0);
}

void
xen_evtchn_fini(device_t dev __unused)
{
	u_int i;

	KASSERT(evtchn_count == 0,
	    ("%s: %u channels are left", __func__, evtchn_count));
	evtchn_abi = NULL;
	for (i = 0; i < EVTCHN_CHUNKS; i++) {
		free(evtchn_table[i], M_XEN);
		evtchn_table[i] = NULL;
	}
}

void
xen_evtchn_suspend(void)
{

	sx_xlock(&evtchn_lock);
}

/*
 * Bind a CPU's VIRQ again.  The first numbers are given out first, so that
 * there is a place for it in the table, which can't grow here.
 */
static int
evtchn_bind_again(struct xen_evtchn *ec)
{
	struct evtchn_bind_virq arg = {
		.virq = ec->ec_virq,
		.vcpu = xen_cpus[ec->ec_cpu].xc_vcpu,
	};
	int error;

	error = xen_event_channel_op(EVTCHNOP_bind_virq, &arg);
	if (error != 0)
		return (error);
	if (evtchn_table[arg.port / EVTCHN_PER_CHUNK] == NULL)
		return (ENOSPC);
	ec->ec_port = arg.port;
	ec->ec_life = atomic_load_int(&xen_life);
	evtchn_enter(ec);
	return (0);
}

int
xen_evtchn_resume(void)
{
	TAILQ_HEAD(, xen_evtchn) again = TAILQ_HEAD_INITIALIZER(again);
	struct xen_evtchn *ec;
	int error;

	while ((ec = TAILQ_FIRST(&evtchn_list)) != NULL) {
		TAILQ_REMOVE(&evtchn_list, ec, ec_link);
		evtchn_table[ec->ec_port / EVTCHN_PER_CHUNK][ec->ec_port %
		    EVTCHN_PER_CHUNK] = NULL;
		evtchn_count--;
		if (ec->ec_fixed) {
			TAILQ_INSERT_TAIL(&again, ec, ec_link);
			continue;
		}
		ec->ec_dead = true;
		/* The number is not ours any more: it must not be closed. */
		ec->ec_kind = EVTCHN_ADOPTED;
	}
	error = evtchn_abi->ea_resume();
	while (error == 0 && (ec = TAILQ_FIRST(&again)) != NULL) {
		TAILQ_REMOVE(&again, ec, ec_link);
		error = evtchn_bind_again(ec);
	}
	return (error);
}

void
xen_evtchn_resume_self(void)
{
	struct xen_evtchn *ec;

	/* The list is locked by xen_evtchn_suspend(). */
	TAILQ_FOREACH(ec, &evtchn_list, ec_link) {
		if (ec->ec_fixed && ec->ec_cpu == curcpu)
			evtchn_abi->ea_unmask(ec->ec_port);
	}
}

void
xen_evtchn_go_on(void)
{

	sx_xunlock(&evtchn_lock);
}

static int
evtchn_sysctl_channels(SYSCTL_HANDLER_ARGS)
{
	struct xen_evtchn *ec;
	struct sbuf *sb;
	int error;

	error = sysctl_wire_old_buffer(req, 0);
	if (error != 0)
		return (error);
	sb = sbuf_new_for_sysctl(NULL, NULL, 256, req);
	if (sb == NULL)
		return (ENOMEM);
	sx_slock(&evtchn_lock);
	TAILQ_FOREACH(ec, &evtchn_list, ec_link)
		sbuf_printf(sb, "\nport %u %s cpu %d received %ju sent %ju %s",
		    ec->ec_port, evtchn_kind_names[ec->ec_kind], ec->ec_cpu,
		    (uintmax_t)ec->ec_received, (uintmax_t)ec->ec_sent,
		    ec->ec_name);
	sx_sunlock(&evtchn_lock);
	error = sbuf_finish(sb);
	sbuf_delete(sb);
	return (error);
}

static void
evtchn_sysctl_upcalls(struct sysctl_ctx_list *ctx, struct sysctl_oid_list *list)
{
	struct sysctl_oid *node;
	char name[12];
	u_int cpu;

	node = SYSCTL_ADD_NODE(ctx, list, OID_AUTO, "upcalls", CTLFLAG_RD |
	    CTLFLAG_MPSAFE, NULL, "Interrupts by Xen, of each CPU");
	CPU_FOREACH(cpu) {
		snprintf(name, sizeof(name), "%u", cpu);
		SYSCTL_ADD_U64(ctx, SYSCTL_CHILDREN(node), OID_AUTO, name,
		    CTLFLAG_RD, &xen_cpus[cpu].xc_upcalls, 0,
		    "Interrupts by Xen");
	}
}

void
xen_evtchn_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{
	struct sysctl_oid *node;
	struct sysctl_oid_list *list;

	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(parent), OID_AUTO, "evtchn",
	    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "Event channels");
	list = SYSCTL_CHILDREN(node);
	SYSCTL_ADD_STRING(ctx, list, OID_AUTO,
	    "interface", CTLFLAG_RD, __DECONST(char *, evtchn_abi->ea_name), 0,
	    "Interface of pending events");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO, "in_use", CTLFLAG_RD,
	    &evtchn_count, 0, "Channels in use");
	SYSCTL_ADD_U64(ctx, list, OID_AUTO, "strays", CTLFLAG_RD,
	    &evtchn_strays, 0, "Events of channels that are not in use here");
	SYSCTL_ADD_U64(ctx, list, OID_AUTO,
	    "braked", CTLFLAG_RD, &evtchn_braked, 0,
	    "Times that a channel stayed masked for a tick, as its events came without work");
	SYSCTL_ADD_PROC(ctx, list, OID_AUTO,
	    "channels", CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, 0,
	    evtchn_sysctl_channels, "A", "Each channel in use");
	evtchn_sysctl_upcalls(ctx, list);
}
