/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * In place of virtio_driver.c, which is about other drivers, of which there are
 * none here: each device is taken.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/virtio/virtio_bus.h>

#include "kpi/kpi.h"

int
virtio_bus_probe(struct virtio_transport *vt __unused, device_t dev __unused,
    uint32_t type)
{

	return (type == 0 ? ENXIO : BUS_PROBE_VENDOR);
}

void
virtio_bus_refused(struct virtio_bus *vb __unused, int error __unused)
{
}

void
virtio_bus_accepted(struct virtio_bus *vb __unused)
{
}

void
virtio_refuse(device_t dev, const char *fmt, ...)
{

	device_printf(dev, "%s\n", fmt);
}

void
virtio_driver_init(void)
{
}

void
virtio_driver_fini(void)
{
}

/* In the methods of drivers, of which tests call those that they are about. */
int
virtio_probe(device_t dev __unused)
{

	return (BUS_PROBE_VENDOR);
}

int
virtio_driver_modevent(module_t mod __unused, int what __unused,
    void *arg __unused)
{

	return (0);
}

int
virtio_transport_modevent(module_t mod __unused, int what __unused,
    void *arg __unused)
{

	return (0);
}
