/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A front end as its driver has it of xenbus: its bus and what is read of that, and what a driver says
 * of itself.  The test calls the driver's methods, and has those of xenbus.h that do more.
 */

#ifndef _FRONT_END_H_
#define	_FRONT_END_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/xen/xenbus_var.h>

extern struct front_end {
	struct xenbus_child xb;
	struct xenbus_child other;	/* one more of the bus, which kpi_device() is */
	device_t	bus, dev;
	const char	*type, *node;
	domid_t		back;
	char		desc[64];	/* what the driver is called */
	u_int		resets;		/* it asked for */
} front;

/* A device of a driver and its softc, and where the back end is. */
void	front_begin(kobj_class_t driver, void *softc, const char *name, const char *type,
	    const char *node, domid_t back, const char *back_path);
void	front_end(void);

#endif /* !_FRONT_END_H_ */
