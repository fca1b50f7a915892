#-
# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
#

# FreeBSD's own Xen core: what its bus of front ends tells their drivers.

#include <sys/bus.h>

INTERFACE xenbus;

HEADER {
	#include <xen/io/xenbus.h>
};

CODE {
	static void
	xenbus_ignore_localend(device_t dev __unused, const char *path __unused)
	{

	}
};

# The back end has another state, or a driver was attached.
METHOD void otherend_changed {
	device_t	dev;
	enum xenbus_state state;
};

# Something below the front end's node changed: path, or "": all of it was removed.
METHOD void localend_changed {
	device_t	dev;
	const char	*path;
} DEFAULT xenbus_ignore_localend;
