#-
# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
#

# What a front end of xenbus implements besides device_if(9); the theory is in
# dev/xen/xenbus.h.  Methods of one device are called one at a time, in a thread
# that may sleep.

#include <sys/bus.h>

INTERFACE xenfront;

HEADER {
	#include <dev/xen/xen_var.h>
	#include <xen/io/xenbus.h>
};

CODE {
	static void
	xenbus_ignore_change(device_t dev __unused, const char *node __unused)
	{

	}

	static int
	xenbus_stop_nothing(device_t dev __unused, bool gone __unused)
	{

		return (0);
	}

	static void
	xenbus_release_nothing(device_t dev __unused)
	{

	}

	static void
	xenbus_lose_nothing(device_t dev __unused)
	{

	}
};

# The back end is in InitWait: read what it offers, allocate rings and event
# channels, publish them.  *next is the state that the front end goes to
# afterwards: set to Initialised before the call, and to be changed to Connected
# where the protocol has it so (vif).  Returns 0, or an error after undoing
# everything.  After ENOMEM, ENOSPC, EAGAIN, EBUSY and ETIMEDOUT, and if
# xenstore did not answer for a value, it is called again, with a growing delay;
# after another error the front end is closed.
METHOD int setup {
	device_t	dev;
	enum xenbus_state *next;
};

# The back end is Connected: read its values now, and admit users.  xenbus then
# goes to Connected.  Returns 0, or an error: stop and release are called; then
# it is as after setup.
METHOD int live {
	device_t	dev;
};

# Stop using the back end: put nothing more, let no event begin more work.  What
# users see stays, for the back end may return; what is in flight waits for
# that.
#
# gone  false: the back end requests to close.  What is in flight may be waited
#       for.  EBUSY, where there are users that can't be ended, leaves
#       everything as it is until xenbus_recheck(), or some seconds have passed.
#       true: the back end was removed; the result is ignored.
METHOD int stop {
	device_t	dev;
	bool		gone;
} DEFAULT xenbus_stop_nothing;

# After stop: the back end has unmapped the rings, or was given enough time to.
# Undo what setup did: drain the queues, end grants, free rings and channels.
# setup may be called again after that.
METHOD void release {
	device_t	dev;
} DEFAULT xenbus_release_nothing;

# No back end is expected any more (none came for a long time after a
# suspension, the toolstack has detached the device, or the new one is no good):
# what waits for one has to fail.  The front end is stopped, if it was set up.
# A later live ends this.
METHOD void lost {
	device_t	dev;
} DEFAULT xenbus_lose_nothing;

# Something below the back end's path changed, while the device is live; node is
# its name, relative to the path ("sectors"), or "": anything may have changed.
# The back end's own state is not reported here. If xenstore does not answer for
# a value, this is called again with "": what is known has to stay.
METHOD void otherend_changed {
	device_t	dev;
	const char	*node;
} DEFAULT xenbus_ignore_change;
