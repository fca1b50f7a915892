/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Interrupts of a virtio device, whatever its transport.
 *
 * There are four ways, tried in this order until one works (VirtIO 1.3,
 * 4.1.5.1):
 *
 *	per queue  message 0: configuration; one message for each queue that has
 *		   a handler
 *	shared     message 0: configuration; message 1: all queues
 *	single     message 0: everything
 *	wired      one line, whose cause is read from the ISR register in a
 *		   filter
 *
 * A mode may fail late: the device refuses a vector when it is set, so each is
 * set up in full, and taken back in full.
 *
 * A line that its device never lowers would keep the CPU in its interrupt
 * thread.  Where no other device has the line, the transport reports that
 * (VIRTIO_ISR_DEAD), and a thread that such an interrupt thread can't starve
 * removes the handler.
 *
 * Handlers run in interrupt threads.  None runs the driver's code while the
 * device is stopped (vb_awake).  A handler that is running when the device is
 * stopped goes on; virtio_intr_free() waits for it.
 *
 * Locking.  None: vb_slots and vb_irqs do not change while handlers are set up,
 * and vb_isr and vi_cookie are changed by atomic operations: the thread that
 * takes a cookie removes the handler.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/priority.h>
#include <sys/rman.h>
#include <sys/taskqueue.h>

#include <machine/atomic.h>

#include <dev/virtio/virtio_bus.h>

/*
 * Until the configuration is looked at, where an interrupt does not say that it
 * changed.
 */
#define	VIRTIO_SINGLE_DELAY	(SBT_1S / 20)

static MALLOC_DEFINE(M_VIRTIO_INTR, "virtio_intr", "virtio interrupts");

enum virtio_intr_mode {
	VIRTIO_PER_QUEUE,
	VIRTIO_SHARED,
	VIRTIO_SINGLE,
	VIRTIO_WIRED,
	VIRTIO_NMODES
};

static const char *const virtio_intr_mode_names[VIRTIO_NMODES] = {
	[VIRTIO_PER_QUEUE] = "a message interrupt for each queue",
	[VIRTIO_SHARED] = "a message interrupt shared by all queues",
	[VIRTIO_SINGLE] = "one message interrupt",
	[VIRTIO_WIRED] = "a wired interrupt",
};

static void
virtio_slot_intr(void *arg)
{
	struct virtio_slot *vs = arg;

	if (!vs->vs_bus->vb_awake)
		return;
	vs->vs_pvq->q_stats.qs_intrs++;
	vs->vs_spec.pqs_intr(vs->vs_spec.pqs_arg);
}

static void
virtio_slots_intr(void *arg)
{
	struct virtio_bus *vb = arg;
	int i;

	for (i = 0; i < vb->vb_nslots; i++) {
		if (vb->vb_slots[i].vs_spec.pqs_intr != NULL)
			virtio_slot_intr(&vb->vb_slots[i]);
	}
}

static void
virtio_config_intr(void *arg)
{
	struct virtio_bus *vb = arg;

	if (vb->vb_awake)
		taskqueue_enqueue_timeout_sbt(vb->vb_config_tasks.pt_tq,
		    &vb->vb_config_task, 0, 0, 0);
}

/*
 * One message for everything does not show its cause, and there is no register
 * that does: look at the queues, and let the driver look at the configuration,
 * soon and once for all interrupts until then, nearly all of which are for
 * queues.  The generation is no substitute: it has to change only once the
 * driver has read a new value (4.1.4.3.1).
 */
static void
virtio_single_intr(void *arg)
{
	struct virtio_bus *vb = arg;

	virtio_slots_intr(vb);
	/* Negative: one that is armed stays as it is. */
	if (vb->vb_awake)
		taskqueue_enqueue_timeout_sbt(vb->vb_config_tasks.pt_tq,
		    &vb->vb_config_task, -VIRTIO_SINGLE_DELAY, 0, 0);
}

static int
virtio_wired_filter(void *arg)
{
	struct virtio_bus *vb = arg;
	uint8_t isr;

	isr = VIRTIO_BUS_ISR(vb->vb_dev);
	/* All ones: the device was removed, and another one interrupted. */
	if (isr == 0xff)
		return (FILTER_STRAY);
	/* A line with a stray interrupt is masked for good. */
	if ((isr & (VIRTIO_ISR_QUEUE | VIRTIO_ISR_CONFIG |
	    VIRTIO_ISR_DEAD)) == 0)
		return (vb->vb_own_line ||
		    atomic_readandclear_int(&vb->vb_recalled) != 0 ?
		    FILTER_HANDLED : FILTER_STRAY);
	atomic_set_int(&vb->vb_isr, isr);
	return (FILTER_SCHEDULE_THREAD);
}

static void
virtio_wired_intr(void *arg)
{
	struct virtio_bus *vb = arg;
	u_int isr;

	isr = atomic_readandclear_int(&vb->vb_isr);
	if ((isr & VIRTIO_ISR_DEAD) != 0)
		taskqueue_enqueue(vb->vb_line_tq, &vb->vb_line_task);
	if ((isr & VIRTIO_ISR_QUEUE) != 0)
		virtio_slots_intr(vb);
	if ((isr & VIRTIO_ISR_CONFIG) != 0)
		virtio_config_intr(vb);
}

static void
virtio_remove_handler(struct virtio_bus *vb, struct virtio_irq *vi)
{
	void *cookie = (void *)atomic_swap_ptr(&vi->vi_cookie, 0);

	if (cookie != NULL)
		(void)bus_teardown_intr(vb->vb_dev, vi->vi_res, cookie);
}

static void
virtio_line_task(void *arg, int pending __unused)
{
	struct virtio_bus *vb = arg;

	virtio_remove_handler(vb, &vb->vb_irqs[0]);
}

/* The thread that removes a line's handler. */
static int
virtio_line_alloc(struct virtio_bus *vb)
{
	if (!vb->vb_own_line)
		return (0);
	TASK_INIT(&vb->vb_line_task, 0, virtio_line_task, vb);
	vb->vb_line_tq = taskqueue_create("virtio_line", M_WAITOK,
	    taskqueue_thread_enqueue, &vb->vb_line_tq);
	return (taskqueue_start_threads(&vb->vb_line_tq, 1, PRI_MIN_ITHD,
	    "%s line", device_get_nameunit(vb->vb_dev)));
}

/* The handler is removed, or is being removed by the thread. */
static void
virtio_line_free(struct virtio_bus *vb)
{
	if (vb->vb_line_tq == NULL)
		return;
	taskqueue_drain(vb->vb_line_tq, &vb->vb_line_task);
	taskqueue_free(vb->vb_line_tq);
	vb->vb_line_tq = NULL;
}

/*
 * Returns how many interrupts this mode needs, and assigns each queue its
 * vector.
 */
static int
virtio_intr_count(struct virtio_bus *vb, enum virtio_intr_mode mode)
{
	struct virtio_slot *vs;
	int i, n, queues;

	queues = 0;
	for (i = 0; i < vb->vb_nslots; i++) {
		vs = &vb->vb_slots[i];
		vs->vs_vector = -1;
		if (vs->vs_spec.pqs_intr == NULL)
			continue;
		queues++;
		if (mode == VIRTIO_PER_QUEUE)
			vs->vs_vector = queues;
		else if (mode == VIRTIO_SHARED)
			vs->vs_vector = 1;
		else if (mode == VIRTIO_SINGLE)
			vs->vs_vector = 0;
	}
	n = 1;
	if (mode == VIRTIO_PER_QUEUE)
		n += queues;
	else if (mode == VIRTIO_SHARED)
		n += queues > 0 ? 1 : 0;
	return (n);
}

/*
 * descr  what the interrupt is for: "irq264: vtpci0:rx0" in vmstat -i, where a
 *        name has MAXCOMLEN letters, and lacks the first ones of what is
 *        longer; NULL: it is the only one
 */
static int
virtio_setup_one(struct virtio_bus *vb, int n, int type,
    driver_filter_t *filter, driver_intr_t *handler, void *arg,
    const char *descr)
{
	struct virtio_irq *vi = &vb->vb_irqs[n];
	void *cookie;
	int error;

	error = bus_setup_intr(vb->vb_dev, vi->vi_res, type | INTR_MPSAFE,
	    filter, handler, arg, &cookie);
	if (error != 0)
		return (error);
	vi->vi_cookie = (uintptr_t)cookie;
	/* Without a description it works, too. */
	if (descr != NULL)
		(void)bus_describe_intr(vb->vb_dev, vi->vi_res, cookie,
		    "%s", descr);
	return (0);
}

static int
virtio_setup_queues(struct virtio_bus *vb, int type)
{
	struct virtio_slot *vs;
	int error, i;

	for (i = 0; i < vb->vb_nslots; i++) {
		vs = &vb->vb_slots[i];
		if (vs->vs_vector < 0)
			continue;
		error = virtio_setup_one(vb, vs->vs_vector, type, NULL,
		    virtio_slot_intr, vs, vs->vs_spec.pqs_descr);
		if (error != 0)
			return (error);
		/* Another CPU than the one requested is slower, but works. */
		if (vs->vs_spec.pqs_cpu >= 0)
			(void)bus_bind_intr(vb->vb_dev,
			    vb->vb_irqs[vs->vs_vector].vi_res,
			    vs->vs_spec.pqs_cpu);
	}
	return (0);
}

static int
virtio_setup_handlers(struct virtio_bus *vb, enum virtio_intr_mode mode,
    int type)
{
	int error;

	if (mode == VIRTIO_WIRED) {
		error = virtio_line_alloc(vb);
		return (error != 0 ? error : virtio_setup_one(vb, 0, type,
		    virtio_wired_filter, virtio_wired_intr, vb, NULL));
	}
	if (mode == VIRTIO_SINGLE)
		return (virtio_setup_one(vb, 0, type, NULL, virtio_single_intr,
		    vb, NULL));
	error = virtio_setup_one(vb, 0, type, NULL, virtio_config_intr, vb,
	    "conf");
	if (error == 0 && mode == VIRTIO_PER_QUEUE)
		error = virtio_setup_queues(vb, type);
	else if (error == 0 && vb->vb_nirqs > 1)
		error = virtio_setup_one(vb, 1, type, NULL, virtio_slots_intr,
		    vb, "all");
	return (error);
}

static int
virtio_alloc_irqs(struct virtio_bus *vb, enum virtio_intr_mode mode, int n)
{
	struct resource **irqs;
	int error, i;

	irqs = malloc(n * sizeof(*irqs), M_VIRTIO_INTR, M_WAITOK | M_ZERO);
	if (mode == VIRTIO_WIRED)
		error = VIRTIO_BUS_ALLOC_WIRED(vb->vb_dev, irqs);
	else
		error = VIRTIO_BUS_ALLOC_VECTORS(vb->vb_dev, n, irqs);
	if (error == 0) {
		vb->vb_irqs = malloc(n * sizeof(*vb->vb_irqs), M_VIRTIO_INTR,
		    M_WAITOK | M_ZERO);
		for (i = 0; i < n; i++)
			vb->vb_irqs[i].vi_res = irqs[i];
		vb->vb_nirqs = n;
		vb->vb_wired = mode == VIRTIO_WIRED;
	}
	free(irqs, M_VIRTIO_INTR);
	return (error);
}

int
virtio_intr_rebind(struct virtio_bus *vb)
{
	int error, i;

	if (vb->vb_wired)
		return (0);
	error = VIRTIO_BUS_SET_VECTOR(vb->vb_dev, VIRTIO_BUS_CONFIG, 0);
	for (i = 0; i < vb->vb_nslots && error == 0; i++) {
		if (vb->vb_slots[i].vs_pvq != NULL)
			error = VIRTIO_BUS_SET_VECTOR(vb->vb_dev, i,
			    vb->vb_slots[i].vs_vector);
	}
	return (error);
}

void
virtio_intr_free(struct virtio_bus *vb)
{
	struct resource **irqs;
	struct virtio_irq *vi;
	int i;

	if (vb->vb_nirqs == 0)
		return;
	irqs = malloc(vb->vb_nirqs * sizeof(*irqs), M_VIRTIO_INTR,
	    M_WAITOK | M_ZERO);
	for (i = 0; i < vb->vb_nirqs; i++) {
		vi = &vb->vb_irqs[i];
		irqs[i] = vi->vi_res;
		virtio_remove_handler(vb, vi);
	}
	virtio_line_free(vb);
	VIRTIO_BUS_FREE_VECTORS(vb->vb_dev, vb->vb_nirqs, irqs);
	free(irqs, M_VIRTIO_INTR);
	free(vb->vb_irqs, M_VIRTIO_INTR);
	vb->vb_irqs = NULL;
	vb->vb_nirqs = 0;
}

static int
virtio_try_intr_mode(struct virtio_bus *vb, enum virtio_intr_mode mode,
    int type)
{
	int error;

	error = virtio_alloc_irqs(vb, mode, virtio_intr_count(vb, mode));
	if (error != 0)
		return (error);
	error = virtio_setup_handlers(vb, mode, type);
	if (error == 0)
		error = virtio_intr_rebind(vb);
	if (error != 0)
		virtio_intr_free(vb);
	return (error);
}

int
virtio_intr_alloc(struct virtio_bus *vb, int type)
{
	enum virtio_intr_mode mode;
	int error;

	error = ENXIO;
	for (mode = VIRTIO_PER_QUEUE; mode < VIRTIO_NMODES && error != 0;
	    mode++) {
		error = virtio_try_intr_mode(vb, mode, type);
		if (bootverbose && error == 0)
			device_printf(vb->vb_dev,
			    "using %s\n", virtio_intr_mode_names[mode]);
	}
	if (error != 0)
		device_printf(vb->vb_dev,
		    "no interrupt can be allocated (error %d)\n", error);
	return (error);
}
