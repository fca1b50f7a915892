/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Drivers of the suite's bus for two types that the suite has none for.  That
 * for entropy devices needs a feature which no device offers, and says how often
 * its attach was called; that for consoles attaches.  The module does not load a
 * bus, so that one can be unloaded under it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/module.h>

#include <dev/virtio/virtio.h>

static const struct virtio_feature refuse_features[] = {
	{ 1ULL << 23, "MIRACLES", VIRTIO_FEATURE_REQUIRED, NULL },
	{ 0, NULL, 0, NULL }
};

static int
refuse_attach(device_t dev)
{
	static int times;
	uint64_t features;

	device_printf(dev, "attach %d\n", ++times);
	return (virtio_negotiate(dev, refuse_features, &features));
}

static device_method_t refuse_methods[] = {
	DEVMETHOD(device_probe,		virtio_probe),
	DEVMETHOD(device_attach,	refuse_attach),

	DEVMETHOD_END
};

static driver_t refuse_driver = { "vtrefuse", refuse_methods, 1 };

VIRTIO_DRIVER_MODULE(refuse, refuse_driver, VIRTIO_ID_ENTROPY,
    "refused device");

static int
accept_attach(device_t dev)
{
	static const struct virtio_feature none[] = { { 0, NULL, 0, NULL } };
	uint64_t features;

	return (virtio_negotiate(dev, none, &features));
}

static int
accept_detach(device_t dev)
{

	return (virtio_leave(dev));
}

static device_method_t accept_methods[] = {
	DEVMETHOD(device_probe,		virtio_probe),
	DEVMETHOD(device_attach,	accept_attach),
	DEVMETHOD(device_detach,	accept_detach),

	DEVMETHOD_END
};

static driver_t accept_driver = { "vtaccept", accept_methods, 1 };

VIRTIO_DRIVER_MODULE(accept, accept_driver, VIRTIO_ID_CONSOLE,
    "accepted device");
MODULE_VERSION(refuse, 1);
MODULE_DEPEND(refuse, pv_virtio, 1, 1, 1);
