/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A virtio transport for tests; see transport.h.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/rman.h>

#include <dev/virtio/virtio_bus.h>
#include <dev/virtio/virtio_ring.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "model/transport.h"

#define	NO_VECTOR	(-1)

static struct transport *
tr_of(device_t dev)
{

	return (device_get_softc(dev));
}

static int
tr_reset(device_t dev)
{
	struct transport *tr = tr_of(dev);
	int i;

	tr->tr_resets++;
	if (tr->tr_reset_error != 0)
		return (tr->tr_reset_error);
	tr->tr_status = tr->tr_status_seen = 0;
	tr->tr_accepted = 0;
	tr->tr_isr = 0;
	tr->tr_config_vector = NO_VECTOR;
	for (i = 0; i < TR_QUEUES; i++) {
		tr->tr_enabled[i] = tr->tr_queue_was_reset[i] = false;
		tr->tr_queue_vector[i] = NO_VECTOR;
	}
	return (0);
}

static uint8_t
tr_get_status(device_t dev)
{

	return (tr_of(dev)->tr_status);
}

static void
tr_set_status(device_t dev, uint8_t status)
{
	struct transport *tr = tr_of(dev);
	uint8_t added = status & ~tr->tr_status;

	CHECK((status & VIRTIO_STATUS_NEEDS_RESET) == 0, "NEEDS_RESET is the device's (2.1)");
	status |= tr->tr_status & VIRTIO_STATUS_NEEDS_RESET;
	CHECK((tr->tr_status & ~status) == 0, "bits 0x%x taken back (2.1.1)",
	    tr->tr_status & ~status);
	if ((added & VIRTIO_STATUS_DRIVER) != 0)
		CHECK((tr->tr_status & VIRTIO_STATUS_ACK) != 0, "DRIVER before ACKNOWLEDGE");
	if ((added & VIRTIO_STATUS_FEATURES_OK) != 0) {
		CHECK(tr->tr_bus.vb_modern, "FEATURES_OK for a legacy device");
		CHECK((tr->tr_status & VIRTIO_STATUS_DRIVER) != 0, "FEATURES_OK before DRIVER");
		if (tr->tr_refuse_features)
			status &= ~VIRTIO_STATUS_FEATURES_OK;
	}
	tr->tr_status_seen |= added;
	tr->tr_status = status;
	if ((added & VIRTIO_STATUS_DRIVER_OK) != 0) {
		CHECK(!tr->tr_bus.vb_modern || (status & VIRTIO_STATUS_FEATURES_OK) != 0,
		    "DRIVER_OK before FEATURES_OK");
		if (tr->tr_at_driver_ok != NULL)
			tr->tr_at_driver_ok(tr);
	}
}

static uint64_t
tr_get_features(device_t dev)
{

	return (tr_of(dev)->tr_offered);
}

static void
tr_set_features(device_t dev, uint64_t features)
{
	struct transport *tr = tr_of(dev);

	CHECK((tr->tr_status & VIRTIO_STATUS_DRIVER) != 0, "features before DRIVER");
	CHECK((tr->tr_status & (VIRTIO_STATUS_FEATURES_OK | VIRTIO_STATUS_DRIVER_OK)) == 0,
	    "features too late");
	CHECK((features & ~tr->tr_offered) == 0, "features 0x%lx are not offered",
	    features & ~tr->tr_offered);
	CHECK(tr->tr_bus.vb_modern || features <= UINT32_MAX, "33 bits for a legacy device");
	tr->tr_accepted = features;
}

static bus_size_t
tr_config_size(device_t dev)
{

	return (tr_of(dev)->tr_config_size);
}

static uint32_t
tr_config_generation(device_t dev)
{

	return (tr_of(dev)->tr_bus.vb_modern ? tr_of(dev)->tr_generation : 0);
}

static uint32_t
tr_read_config(device_t dev, bus_size_t off, int width)
{
	struct transport *tr = tr_of(dev);
	uint32_t v = 0;

	CHECK(off + width <= tr->tr_config_size && off % width == 0, "%d bytes at %lu", width, off);
	memcpy(&v, tr->tr_config + off, width);
	tr->tr_config_reads++;
	if (tr->tr_restless > 0) {
		/* Every byte changes after each access, and the generation with them. */
		tr->tr_restless--;
		tr->tr_generation++;
		memset(tr->tr_config, tr->tr_generation, TR_CONFIG);
	}
	return (v);
}

static void
tr_write_config(device_t dev, bus_size_t off, uint32_t value, int width)
{
	struct transport *tr = tr_of(dev);

	CHECK(off + width <= tr->tr_config_size && off % width == 0, "%d bytes at %lu", width, off);
	CHECK(width == 4 || value >> 8 * width == 0, "0x%x in %d bytes", value, width);
	memcpy(tr->tr_config + off, &value, width);
	if (tr->tr_at_write != NULL)
		tr->tr_at_write(tr, off);
}

static uint16_t
tr_queue_size(device_t dev, uint16_t index)
{

	return (index < TR_QUEUES ? tr_of(dev)->tr_sizes[index] : 0);
}

static int
tr_queue_setup(device_t dev, uint16_t index, struct pvq *q)
{
	struct transport *tr = tr_of(dev);

	CHECK(!tr->tr_bus.vb_modern || (tr->tr_status & VIRTIO_STATUS_FEATURES_OK) != 0,
	    "queue before features");
	CHECK((tr->tr_status & VIRTIO_STATUS_DRIVER_OK) == 0 || tr->tr_queue_was_reset[index],
	    "queue after DRIVER_OK");
	CHECK(!tr->tr_enabled[index], "queue %u enabled twice", index);
	CHECK(q->q_size <= tr->tr_sizes[index], "queue %u of %u", index, q->q_size);
	CHECK(!tr->tr_bus.vb_fixed_size || q->q_size == tr->tr_sizes[index],
	    "size changed to %u", q->q_size);
	if (tr->tr_refuse_queue)
		return (ENXIO);
	tr->tr_enabled[index] = true;
	tr->tr_queue_was_reset[index] = false;
	if (tr->tr_at_setup != NULL)
		tr->tr_at_setup(tr, index, q);
	return (0);
}

static int
tr_queue_reset(device_t dev, uint16_t index)
{
	struct transport *tr = tr_of(dev);

	CHECK((tr->tr_accepted & VIRTIO_F_RING_RESET) != 0, "not negotiated (2.6.1)");
	CHECK(tr->tr_enabled[index], "queue %u is not enabled", index);
	if (tr->tr_queue_reset_error != 0)
		return (tr->tr_queue_reset_error);
	tr->tr_enabled[index] = false;
	tr->tr_queue_was_reset[index] = true;
	return (0);
}

static int
tr_alloc_vectors(device_t dev, int n, struct resource **irqs)
{
	struct transport *tr = tr_of(dev);
	int i;

	CHECK(tr->tr_irqs_out == 0 && n > 0, "%d more vectors", n);
	if (n > tr->tr_nvectors)
		return (ENXIO);
	for (i = 0; i < n; i++)
		irqs[i] = &tr->tr_irqs[i];
	tr->tr_irqs_out = n;
	return (0);
}

static int
tr_alloc_wired(device_t dev, struct resource **irq)
{
	struct transport *tr = tr_of(dev);

	if (tr->tr_no_wired)
		return (ENXIO);
	*irq = &tr->tr_irqs[TR_VECTORS];
	tr->tr_irqs_out = 1;
	return (0);
}

static void
tr_free_vectors(device_t dev, int n, struct resource **irqs)
{
	struct transport *tr = tr_of(dev);

	CHECK(tr->tr_irqs_out == n && irqs[0] != NULL, "%d vectors of %d", n, tr->tr_irqs_out);
	CHECK(kpi_intrs == 0, "%d handlers", kpi_intrs);
	tr->tr_irqs_out = 0;
}

static int
tr_set_vector(device_t dev, int index, int vector)
{
	struct transport *tr = tr_of(dev);

	CHECK(vector >= -1 && vector < tr->tr_irqs_out, "vector %d", vector);
	if (vector == tr->tr_refuse_vector)
		return (ENXIO);
	if (index == VIRTIO_BUS_CONFIG)
		tr->tr_config_vector = vector;
	else
		tr->tr_queue_vector[index] = vector;
	return (0);
}

static uint8_t
tr_isr(device_t dev)
{
	uint8_t isr = tr_of(dev)->tr_isr;

	if (isr != 0xff)
		tr_of(dev)->tr_isr = 0;
	return (isr);
}

static void
tr_notify(void *arg, uint16_t index, uint16_t next __unused)
{
	struct transport *tr = arg;

	if (!tr->tr_bus.vb_live)
		return;
	CHECK((tr->tr_status & VIRTIO_STATUS_DRIVER_OK) != 0, "notified before DRIVER_OK (3.1.1)");
	CHECK(tr->tr_enabled[index], "queue %u is not enabled", index);
	tr->tr_notified[index]++;
	if (tr->tr_at_notify != NULL)
		tr->tr_at_notify(tr, index);
}

static int
tr_config_change(device_t dev)
{

	tr_of(device_get_parent(dev))->tr_changes++;
	return (0);
}

static device_method_t tr_methods[] = {
	DEVMETHOD(bus_read_ivar,	virtio_bus_read_ivar),

	DEVMETHOD(virtio_bus_reset,	tr_reset),
	DEVMETHOD(virtio_bus_get_status, tr_get_status),
	DEVMETHOD(virtio_bus_set_status, tr_set_status),
	DEVMETHOD(virtio_bus_get_features, tr_get_features),
	DEVMETHOD(virtio_bus_set_features, tr_set_features),
	DEVMETHOD(virtio_bus_config_size, tr_config_size),
	DEVMETHOD(virtio_bus_config_gen, tr_config_generation),
	DEVMETHOD(virtio_bus_read_config, tr_read_config),
	DEVMETHOD(virtio_bus_write_config, tr_write_config),
	DEVMETHOD(virtio_bus_queue_size, tr_queue_size),
	DEVMETHOD(virtio_bus_queue_setup, tr_queue_setup),
	DEVMETHOD(virtio_bus_queue_reset, tr_queue_reset),
	DEVMETHOD(virtio_bus_alloc_vectors, tr_alloc_vectors),
	DEVMETHOD(virtio_bus_alloc_wired, tr_alloc_wired),
	DEVMETHOD(virtio_bus_free_vectors, tr_free_vectors),
	DEVMETHOD(virtio_bus_set_vector, tr_set_vector),
	DEVMETHOD(virtio_bus_isr,	tr_isr),
	DEVMETHOD_END
};

static struct kobj_class tr_class = {
	.name = "transport",
	.methods = tr_methods,
};

static device_method_t tr_child_methods[] = {
	DEVMETHOD(virtio_config_changed,	tr_config_change),
	DEVMETHOD_END
};

static struct kobj_class tr_child_class = {
	.name = "child",
	.methods = tr_child_methods,
};

void
transport_open(struct transport *tr, bool modern)
{

	transport_open_for(tr, modern, &tr_child_class, NULL);
}

void
transport_open_for(struct transport *tr, bool modern, kobj_class_t driver, void *softc)
{
	struct virtio_bus *vb = &tr->tr_bus;
	int i;

	memset(tr, 0, sizeof(*tr));
	tr->tr_offered = VIRTIO_F_INDIRECT_DESC | VIRTIO_F_EVENT_IDX |
	    (modern ? VIRTIO_F_VERSION_1 : 0);
	tr->tr_sizes[0] = tr->tr_sizes[1] = 8;
	tr->tr_config_size = TR_CONFIG;
	for (i = 0; i < TR_CONFIG; i++)
		tr->tr_config[i] = i + 1;
	tr->tr_nvectors = TR_VECTORS;
	tr->tr_refuse_vector = -2;
	tr->tr_dev = kpi_device_create(NULL, &tr_class, tr, "transport0");
	kpi_child_class = driver;
	kpi_child_softc = softc;
	vb->vb_dev = tr->tr_dev;
	vb->vb_type = VIRTIO_ID_BLOCK;
	vb->vb_modern = modern;
	vb->vb_fixed_size = !modern;
	vb->vb_ring_align = modern ? VRING_USED_ALIGN : VRING_LEGACY_ALIGN;
	vb->vb_dmat = kpi_dma_tag;
	vb->vb_notify = tr_notify;
	vb->vb_notify_arg = tr;
	CHECK(virtio_bus_attach(vb) == 0, "attach");
	tr->tr_child = vb->vb_child;
}

void
transport_set_peer(struct transport *tr, u_int queue, struct peer *pe)
{

	host_free(tr->tr_peers[queue]);
	tr->tr_peers[queue] = pe;
}

void
transport_close(struct transport *tr)
{
	u_int i;

	for (i = 0; i < TR_QUEUES; i++)
		transport_set_peer(tr, i, NULL);
	virtio_bus_child_detached(tr->tr_dev, tr->tr_child);
	CHECK(tr->tr_reset_error != 0 || tr->tr_status == VIRTIO_STATUS_ACK, "left with status 0x%x",
	    tr->tr_status);
	CHECK(virtio_bus_detach(&tr->tr_bus) == 0, "detach");
	CHECK(virtio_bus_detach(&tr->tr_bus) == EBUSY, "detach beside a detachment");
	kpi_device_destroy(tr->tr_dev);
	CHECK(kpi_taskqueues == 0, "%d queues of tasks are left", kpi_taskqueues);
	CHECK(tr->tr_irqs_out == 0 && kpi_intrs == 0, "%d vectors, %d handlers", tr->tr_irqs_out,
	    kpi_intrs);
	CHECK(kpi_devices == 0 && kpi_mallocs == 0 && kpi_dma_maps == 0 && kpi_dma_tags == 0,
	    "left: %d devices, %d, %d, %d", kpi_devices, kpi_mallocs, kpi_dma_maps, kpi_dma_tags);
}
