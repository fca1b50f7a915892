/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The methods that every driver offers to newbus (device(9)).
 */

#include <sys/types.h>
#include <sys/systm.h>
#include <sys/bus.h>

INTERFACE device;

CODE {
/* A driver without a method for an event does not need to handle it. */
static int
device_default_nothing(device_t dev)
{
	return (0);
}

/* A device with nothing to finish may always be quiesced. */
static int
device_default_quiesce(device_t dev)
{
	return (0);
}

static void *
device_default_register(device_t dev)
{
	return (NULL);
}
};

/* DEVICE_PROBE(9): is this device ours, and how well do we drive it? */
METHOD int probe {
	device_t dev;
};

/* DEVICE_IDENTIFY(9): add the children that the bus can't enumerate. */
STATICMETHOD void identify {
	driver_t *driver;
	device_t parent;
};

/* DEVICE_ATTACH(9). */
METHOD int attach {
	device_t dev;
};

/* DEVICE_DETACH(9). */
METHOD int detach {
	device_t dev;
};

/* DEVICE_SHUTDOWN(9): the system is shutting down. */
METHOD int shutdown {
	device_t dev;
} DEFAULT device_default_nothing;

/* Save the state that a suspended device loses, and stop it. */
METHOD int suspend {
	device_t dev;
} DEFAULT device_default_nothing;

/* Undo suspend. */
METHOD int resume {
	device_t dev;
} DEFAULT device_default_nothing;

/* Called before a detach that may be refused, to find out whether the device is idle. */
METHOD int quiesce {
	device_t dev;
} DEFAULT device_default_quiesce;

/* Called on a device that was registered with a parent by other means. */
METHOD void * register {
	device_t dev;
} DEFAULT device_default_register;
