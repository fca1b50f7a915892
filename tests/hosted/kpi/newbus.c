/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * As much of kobj(9), device(9), interrupts and taskqueue(9) as lets a driver run under a test: one
 * thread, devices that the test makes, interrupts that the test raises, and tasks that run when the
 * test says so, or when they are drained.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/kobj.h>
#include <sys/bus.h>
#include <sys/cpuset.h>
#include <sys/eventhandler.h>
#include <sys/malloc.h>
#include <sys/rman.h>
#include <sys/sbuf.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <machine/resource.h>
#include <machine/stdarg.h>

#include <dev/pv/dev/pv_tasks.h>

#include "../host/host.h"
#include "kpi.h"

#define	KPI_MAX_INTRS	16
#define	KPI_MAX_TASKS	4

/* What device_t points to: an object, and what a driver may ask of it. */
struct _device {
	KOBJ_FIELDS;
	device_t	 parent;
	device_t	 child;
	void		*softc;
	const char	*nameunit;
	device_state_t	 state;
	int		 busy;
	bool		 suspended;
};

struct kpi_intr {
	struct resource	*res;		/* NULL: free */
	driver_filter_t	*filter;
	driver_intr_t	*handler;
	void		*arg;
	int		 cpu;		/* bound to; -1: any */
	char		 descr[MAXCOMLEN + 1];
};

int kpi_devices;
int kpi_intrs;
int kpi_suspend_error;
int kpi_taskqueues;
int kpi_setup_fails;
kobj_class_t kpi_child_class;
void *kpi_child_softc;

/* Handlers: of dev_lookup one, of device_detach a device's each. */
static struct {
	struct eventhandler_entry entry;
	void	*func;
	bool	 detach;
} kpi_handlers[8];

eventhandler_tag
eventhandler_register(struct eventhandler_list *list __unused, const char *name, void *func,
    void *arg, int priority __unused)
{
	bool detach = strcmp(name, "device_detach") == 0;
	size_t i;

	for (i = 0; i < nitems(kpi_handlers) && kpi_handlers[i].func != NULL; i++)
		CHECK(detach || kpi_handlers[i].detach, "handler of %s", name);
	CHECK(i < nitems(kpi_handlers) && (detach || strcmp(name, "dev_lookup") == 0),
	    "handler of %s", name);
	kpi_handlers[i].func = func;
	kpi_handlers[i].detach = detach;
	kpi_handlers[i].entry.ee_arg = arg;
	return (&kpi_handlers[i].entry);
}

void
kpi_detaches(device_t dev, enum evhdev_detach when)
{
	size_t i;

	for (i = 0; i < nitems(kpi_handlers); i++)
		if (kpi_handlers[i].func != NULL && kpi_handlers[i].detach)
			((device_detach_fn)kpi_handlers[i].func)(kpi_handlers[i].entry.ee_arg, dev,
			    when);
}

struct eventhandler_list *
eventhandler_find_list(const char *name __unused)
{
	static struct eventhandler_list list;

	return (&list);
}

void
eventhandler_deregister(struct eventhandler_list *list __unused, eventhandler_tag tag)
{

	size_t i;

	for (i = 0; i < nitems(kpi_handlers) && tag != &kpi_handlers[i].entry; i++)
		continue;
	CHECK(i < nitems(kpi_handlers) && kpi_handlers[i].func != NULL, "deregistered twice");
	kpi_handlers[i].func = NULL;
}

device_t
kpi_lookup(const char *name)
{
	device_t dev = NULL;
	size_t i;

	for (i = 0; i < nitems(kpi_handlers); i++)
		if (kpi_handlers[i].func != NULL && !kpi_handlers[i].detach)
			((dev_lookup_fn)kpi_handlers[i].func)(kpi_handlers[i].entry.ee_arg, name,
			    &dev);
	return (dev);
}

static struct kpi_intr kpi_intr_table[KPI_MAX_INTRS];
/* A queue has one thread, on one CPU or on any (-1). */
struct taskqueue {
	int		 tq_threads;
	int		 tq_cpu;
};

static struct task *kpi_tasks[KPI_MAX_TASKS];
static struct taskqueue *kpi_task_queues[KPI_MAX_TASKS];
static struct taskqueue kpi_thread = { 1, -1 };
struct taskqueue *taskqueue_thread = &kpi_thread;

static kobj_method_t kpi_no_method;

int
kobj_error_method(void)
{

	return (ENXIO);
}

/* No cache: each call looks. */
kobj_method_t *
kobj_lookup_method(kobj_class_t cls, kobj_method_t **cep __unused, kobjop_desc_t desc)
{
	kobj_method_t *m;

	for (m = cls->methods; m->desc != NULL; m++) {
		if (m->desc == desc)
			return (m);
	}
	return (&desc->deflt);
}

device_t
kpi_device_create(device_t parent, kobj_class_t cls, void *softc, const char *nameunit)
{
	device_t dev = host_alloc(sizeof(*dev), sizeof(void *));
	u_int i;

	memset(dev, 0, sizeof(*dev));
	dev->ops = host_alloc(sizeof(struct kobj_ops), sizeof(void *));
	dev->ops->cls = cls;
	for (i = 0; i < nitems(dev->ops->cache); i++)
		dev->ops->cache[i] = &kpi_no_method;
	dev->parent = parent;
	dev->softc = softc;
	dev->nameunit = nameunit;
	kpi_devices++;
	return (dev);
}

void
kpi_device_destroy(device_t dev)
{

	host_free(dev->ops);
	host_free(dev);
	kpi_devices--;
}

device_t
device_get_parent(device_t dev)
{

	return (dev->parent);
}

const char *
device_get_nameunit(device_t dev)
{

	return (dev->nameunit);
}

/* No test asks for a location. */
struct kobjop_desc bus_child_location_desc;

void *
device_get_softc(device_t dev)
{

	return (dev->softc);
}

device_t
device_add_child(device_t dev, const char *name __unused, int unit __unused)
{

	CHECK(dev->child == NULL, "two children");
	dev->child = kpi_device_create(dev, kpi_child_class, kpi_child_softc, "child0");
	return (dev->child);
}

int
device_probe_and_attach(device_t dev)
{

	CHECK(dev->parent->child == dev, "not a child");
	dev->state = DS_ATTACHED;
	return (0);
}

void
kpi_device_state(device_t dev, device_state_t state)
{

	dev->state = state;
}

device_state_t
device_get_state(device_t dev)
{

	return (dev->state);
}

int
device_is_attached(device_t dev)
{

	return (dev->state >= DS_ATTACHED);
}

int
device_is_suspended(device_t dev)
{

	return (dev->suspended);
}

void
device_busy(device_t dev)
{

	dev->busy++;
}

void
device_unbusy(device_t dev)
{

	CHECK(dev->busy-- > 0, "was not busy");
}

int
bus_generic_suspend_child(device_t dev __unused, device_t child)
{

	CHECK(child->busy == 1, "could be detached");
	if (kpi_suspend_error == 0)
		child->suspended = true;
	return (kpi_suspend_error);
}

int
bus_generic_resume_child(device_t dev __unused, device_t child)
{

	CHECK(child->busy == 1, "could be detached");
	child->suspended = false;
	return (0);
}

int
device_delete_children(device_t dev)
{

	if (dev->child != NULL)
		kpi_device_destroy(dev->child);
	dev->child = NULL;
	return (0);
}

struct sysctl_ctx_list *
device_get_sysctl_ctx(device_t dev __unused)
{

	return (NULL);
}

struct sysctl_oid *
device_get_sysctl_tree(device_t dev __unused)
{
	static struct sysctl_oid tree;

	return (&tree);
}

int
bus_setup_intr(device_t dev, struct resource *r, int flags, driver_filter_t filter,
    driver_intr_t handler, void *arg, void **cookiep)
{
	struct kpi_intr *in;

	CHECK((flags & INTR_MPSAFE) != 0 && r != NULL, "flags 0x%x", flags);
	CHECK(filter != NULL || handler != NULL, "no handler");
	if (kpi_setup_fails > 0 && --kpi_setup_fails == 0)
		return (EINVAL);
	for (in = kpi_intr_table; in->res != NULL; in++)
		CHECK(in < kpi_intr_table + KPI_MAX_INTRS - 1 && in->res != r,
		    "too many, or twice");
	*in = (struct kpi_intr){ r, filter, handler, arg, -1, "" };
	kpi_intrs++;
	*cookiep = in;
	return (0);
}

int
bus_teardown_intr(device_t dev __unused, struct resource *r, void *cookie)
{
	struct kpi_intr *in = cookie;

	CHECK(in->res == r, "not the interrupt that was set up");
	in->res = NULL;
	kpi_intrs--;
	return (0);
}

/* The interrupt that was set up for a resource. */
static struct kpi_intr *
kpi_intr_of(struct resource *r)
{
	struct kpi_intr *in;

	for (in = kpi_intr_table; in < kpi_intr_table + KPI_MAX_INTRS; in++) {
		if (in->res == r)
			return (in);
	}
	CHECK(false, "no such interrupt");
	return (NULL);
}

int
bus_bind_intr(device_t dev __unused, struct resource *r, int cpu)
{

	kpi_intr_of(r)->cpu = cpu;
	return (0);
}

int
bus_describe_intr(device_t dev __unused, struct resource *r, void *cookie, const char *fmt, ...)
{
	struct kpi_intr *in = kpi_intr_of(r);
	va_list ap;

	CHECK(in == cookie, "not the interrupt that was set up");
	va_start(ap, fmt);
	vsnprintf(in->descr, sizeof(in->descr), fmt, ap);
	va_end(ap);
	return (0);
}

const char *
kpi_described(struct resource *r)
{

	return (kpi_intr_of(r)->descr);
}

int
kpi_bound_to(struct resource *r)
{

	return (kpi_intr_of(r)->cpu);
}

bool
kpi_interrupt(struct resource *r)
{
	struct kpi_intr *in;
	int said;

	for (in = kpi_intr_table; in < kpi_intr_table + KPI_MAX_INTRS; in++) {
		if (in->res != r || r == NULL)
			continue;
		said = in->filter != NULL ? in->filter(in->arg) : FILTER_SCHEDULE_THREAD;
		if ((said & FILTER_SCHEDULE_THREAD) != 0)
			in->handler(in->arg);
		return (said != FILTER_STRAY);
	}
	return (false);
}

/* A test runs the tasks of all queues (kpi_run_tasks()). */
struct taskqueue *
taskqueue_create(const char *name __unused, int mflags, taskqueue_enqueue_fn enqueue, void *context)
{
	struct taskqueue *queue = host_alloc(sizeof(*queue), sizeof(void *));

	CHECK(mflags == M_WAITOK && enqueue == taskqueue_thread_enqueue && context != NULL, "no queue");
	*queue = (struct taskqueue){ 0, -1 };
	kpi_taskqueues++;
	return (queue);
}

void
taskqueue_thread_enqueue(void *context __unused)
{
}

int
taskqueue_start_threads(struct taskqueue **queuep, int count, int pri __unused,
    const char *name __unused, ...)
{

	if (kpi_no_threads)
		return (ENOMEM);
	(*queuep)->tq_threads += count;
	return (0);
}

int
taskqueue_start_threads_cpuset(struct taskqueue **queuep, int count, int pri __unused, cpuset_t *mask,
    const char *name __unused, ...)
{

	if (kpi_no_threads)
		return (ENOMEM);
	(*queuep)->tq_threads += count;
	(*queuep)->tq_cpu = CPU_FFS(mask) - 1;
	return (0);
}

int
kpi_taskqueue_cpu(const struct taskqueue *queue)
{

	CHECK(queue->tq_threads == 1, "%d threads", queue->tq_threads);
	return (queue->tq_cpu);
}

/* A device's queue of tasks, as if it had a thread of its own. */
int
pv_tasks_init(struct pv_tasks *pt)
{

	if (kpi_no_threads)
		return (ENOMEM);
	pt->pt_tq = taskqueue_create("pv_dev", M_WAITOK, taskqueue_thread_enqueue, pt);
	return (taskqueue_start_threads(&pt->pt_tq, 1, 0, "pv tasks"));
}

void
pv_tasks_free(struct pv_tasks *pt)
{

	taskqueue_free(pt->pt_tq);
}

void
taskqueue_free(struct taskqueue *queue)
{
	int i;

	CHECK(queue != NULL, "no queue");
	kpi_taskqueues--;
	for (i = 0; i < KPI_MAX_TASKS; i++)
		CHECK(kpi_tasks[i] == NULL || kpi_task_queues[i] != queue, "a task is queued");
	host_free(queue);
}

int
taskqueue_enqueue(struct taskqueue *queue, struct task *task)
{
	struct task **free = NULL;
	int i;

	CHECK(queue->tq_threads == 1, "%d threads", queue->tq_threads);
	for (i = 0; i < KPI_MAX_TASKS; i++) {
		if (kpi_tasks[i] == task)
			return (0);
		if (kpi_tasks[i] == NULL && free == NULL)
			free = &kpi_tasks[i];
	}
	CHECK(free != NULL, "too many tasks");
	kpi_task_queues[free - kpi_tasks] = queue;
	*free = task;
	return (0);
}

bool
kpi_task_is_queued(const struct task *task)
{
	int i;

	for (i = 0; i < KPI_MAX_TASKS && kpi_tasks[i] != task; i++)
		continue;
	return (i < KPI_MAX_TASKS);
}

int
kpi_run_tasks(void)
{
	struct task *task;
	int i, n;

	for (i = n = 0; i < KPI_MAX_TASKS; i++) {
		/* A thread may queue one now. */
		task = (struct task *)atomic_swap_ptr((volatile uintptr_t *)&kpi_tasks[i], 0);
		if (task == NULL)
			continue;
		task->ta_func(task->ta_context, 1);
		n++;
	}
	return (n);
}

void
taskqueue_drain(struct taskqueue *queue, struct task *task __unused)
{

	CHECK(queue != NULL, "no queue");
	(void)kpi_run_tasks();
}

int
taskqueue_cancel(struct taskqueue *queue __unused, struct task *task, u_int *pendp __unused)
{
	int i;

	for (i = 0; i < KPI_MAX_TASKS; i++) {
		if (kpi_tasks[i] == task)
			kpi_tasks[i] = NULL;
	}
	return (0);
}

/* No time passes: a delayed task is a task. */
sbintime_t kpi_delay;

void
_timeout_task_init(struct taskqueue *queue __unused, struct timeout_task *tt, int priority,
    task_fn_t func, void *context)
{

	TASK_INIT(&tt->t, priority, func, context);
}

int
taskqueue_enqueue_timeout_sbt(struct taskqueue *queue, struct timeout_task *tt,
    sbintime_t sbt, sbintime_t pr __unused, int flags __unused)
{

	kpi_delay = sbt;
	return (taskqueue_enqueue(queue, &tt->t));
}

int
taskqueue_cancel_timeout(struct taskqueue *queue __unused, struct timeout_task *tt __unused,
    u_int *pendp __unused)
{

	(void)kpi_run_tasks();
	return (0);
}

void
taskqueue_drain_timeout(struct taskqueue *queue, struct timeout_task *tt)
{

	taskqueue_drain(queue, &tt->t);
}

/* Unless a program has sbuf(9) itself. */
__attribute__((__weak__)) int
sbuf_printf(struct sbuf *s __unused, const char *fmt __unused, ...)
{

	return (0);
}

/* Referenced by classes of drivers, and not called here but for bus_read_ivar. */
struct kobjop_desc device_probe_desc, device_attach_desc, device_detach_desc, device_quiesce_desc,
    device_shutdown_desc, device_suspend_desc, device_resume_desc, bus_read_ivar_desc,
    bus_driver_added_desc,
    bus_child_detached_desc, bus_child_pnpinfo_desc, bus_suspend_child_desc, bus_resume_child_desc;

int
bus_generic_suspend(device_t dev __unused)
{

	return (0);
}

int
bus_generic_resume(device_t dev __unused)
{

	return (0);
}

void
bus_generic_driver_added(device_t dev __unused, driver_t *driver __unused)
{
}
