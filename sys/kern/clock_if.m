/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The methods of a time-of-day clock (sys/clock.h).
 */

#include <sys/types.h>
#include <sys/bus.h>
#include <sys/time.h>

INTERFACE clock;

/* What time is it?  EINVAL: the clock is not set. */
METHOD int gettime {
	device_t	dev;
	struct timespec	*ts;
};

/* Set the clock. */
METHOD int settime {
	device_t	dev;
	struct timespec	*ts;
};
