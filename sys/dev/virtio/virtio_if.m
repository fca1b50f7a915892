#-
# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
#

# What a driver of the virtio bus implements besides device_if(9).

#include <sys/bus.h>

INTERFACE virtio;

CODE {
	static int
	virtio_no_config_change(device_t dev __unused)
	{

		return (0);
	}
};

# The device changed its configuration, or requires a reset.  Called in a thread
# that may sleep.
METHOD int config_changed {
	device_t	dev;
} DEFAULT virtio_no_config_change;
