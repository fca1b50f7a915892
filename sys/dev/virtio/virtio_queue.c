/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * One queue of a live device is reset and started again while the others run
 * (RING_RESET, VirtIO 1.3, 2.6.1):
 *
 *	the driver stops using the queue
 *	virtio_stop_queue()     the device forgets the queue, and uses none of
 *				its memory any more
 *	the driver drains it
 *	virtio_restart_queue()  the ring is new, and the device's again; maybe
 *				of another size
 *
 * A device that does not finish the reset of a queue has to be reset as a
 * whole, and is not asked for that again: each attempt takes as long as the
 * wait for a reset.
 *
 * Locking.  None, as in virtio.c, whose functions the driver does not call at
 * the same time.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>

#include <dev/virtio/virtio_bus.h>

/* Waiting for a reset: briefly without sleeping, then for a second at most. */
#define	VIRTIO_RESET_SPINS	100
#define	VIRTIO_RESET_SPIN_US	10
#define	VIRTIO_RESET_SLEEPS	1000	/* of a millisecond */

int
virtio_bus_wait(device_t dev, int (*poll)(device_t dev, u_int arg), u_int arg)
{
	int error, i;

	for (i = 0; i < VIRTIO_RESET_SPINS + VIRTIO_RESET_SLEEPS; i++) {
		error = poll(dev, arg);
		if (error != EAGAIN)
			return (error);
		if (i < VIRTIO_RESET_SPINS)
			DELAY(VIRTIO_RESET_SPIN_US);
		else
			pause_sbt("vtreset", SBT_1MS, 0, 0);
	}
	return (ETIMEDOUT);
}

/* The queue's slot. */
static struct virtio_slot *
virtio_slot_of(struct virtio_bus *vb, u_int index)
{
	KASSERT(index < (u_int)vb->vb_nslots &&
	    vb->vb_slots[index].vs_pvq != NULL,
	    ("%s: no queue %u", __func__, index));
	return (&vb->vb_slots[index]);
}

int
virtio_slot_reinit(struct virtio_slot *vs)
{
	int error;

	if (vs->vs_size != 0 && vs->vs_size != vs->vs_pvq->q_size)
		error = virtqueue_resize(vs->vs_pvq, vs->vs_size);
	else
		error = pvq_reinit(vs->vs_pvq);
	if (error == 0 && vs->vs_spec.pqs_intr == NULL)
		pvq_intr_disable(vs->vs_pvq);
	return (error);
}

int
virtio_set_queue_size(device_t dev, u_int index, u_int size)
{
	struct virtio_bus *vb = device_get_softc(device_get_parent(dev));
	struct virtio_slot *vs = virtio_slot_of(vb, index);
	int error;

	if (vb->vb_fixed_size)
		return (EOPNOTSUPP);
	error = virtqueue_check_size(vs->vs_pvq, size);
	if (error == 0)
		vs->vs_size = size;
	return (error);
}

bool
virtio_resets_busy_queues(device_t dev, int wanted)
{
	struct virtio_bus *vb = device_get_softc(device_get_parent(dev));

	return (wanted < 0 ? !vb->vb_qemu : wanted != 0);
}

int
virtio_stop_queue(device_t dev, u_int index)
{
	struct virtio_bus *vb = device_get_softc(device_get_parent(dev));
	struct virtio_slot *vs = virtio_slot_of(vb, index);
	int error;

	if ((vb->vb_features & VIRTIO_F_RING_RESET) == 0 ||
	    vb->vb_no_queue_reset)
		return (EOPNOTSUPP);
	error = VIRTIO_BUS_QUEUE_RESET(vb->vb_dev, index);
	if (error == ETIMEDOUT) {
		vb->vb_no_queue_reset = true;
		device_printf(vb->vb_dev,
		    "device does not finish the reset of queue %u (%s): it is "
		    "reset as a whole, now and from now on\n", index,
		    vs->vs_pvq->q_name);
	}
	return (error);
}

int
virtio_restart_queue(device_t dev, u_int index)
{
	struct virtio_bus *vb = device_get_softc(device_get_parent(dev));
	struct virtio_slot *vs = virtio_slot_of(vb, index);
	int error;

	error = virtio_slot_reinit(vs);
	/* The reset took the vector away as well. */
	if (error == 0 && !vb->vb_wired)
		error = VIRTIO_BUS_SET_VECTOR(vb->vb_dev, index, vs->vs_vector);
	if (error == 0)
		error = VIRTIO_BUS_QUEUE_SETUP(vb->vb_dev, index, vs->vs_pvq);
	if (error != 0)
		device_printf(vb->vb_dev,
		    "device did not accept queue %u (%s) after its reset, "
		    "error %d\n", index, vs->vs_pvq->q_name, error);
	return (error);
}
