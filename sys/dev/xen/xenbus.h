/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenbus: the bus that front ends sit on.
 *
 * A front end and its back end in another domain each have a directory in
 * xenstore, which names the other's, and a state there (xen/io/xenbus.h).  They
 * meet by going through states:
 *
 *	front end                          back end
 *	---------                          --------
 *	Initialising                       Initialising, InitWait: here is what
 *	                                   I offer
 *	  setup(): rings, event channels
 *	Initialised (or Connected)         connects to the rings; Connected
 *	  live()
 *	Connected                          ... work ...
 *	                                   Closing: requests an end ("online"
 *	                                   is 0)
 *	  stop(dev, false)
 *	Closing, Closed                    unmaps the rings; Closed
 *	  release()
 *	                                   InitWait again, or the directory is
 *	                                   removed
 *
 * xenbus_state.c goes through these states for all drivers.  A driver provides
 * the methods of xenfront_if.m, which are the indented lines.  It attaches
 * (DEVICE_ATTACH) before any of them is called, and without contacting the back
 * end: attach allocates the softc's locks and returns.
 *
 *	device_probe      xenbus_get_type(dev) is "vif"?
 *	device_attach     what does not depend on the back end; returns at once
 *	xenfront_setup    negotiate, allocate, publish       \  again each time
 *	xenfront_live     make the disk or interface appear   } that the back
 *	xenfront_stop     use the back end no more           |  end is replaced
 *	xenfront_release  free what setup allocated          /
 *	device_detach     xenbus_leave(), then free everything
 *
 * A back end that never leaves a state is waited for; one in a state out of
 * sequence, one that is Closing though nobody wants the device away ("online"
 * is 1), or whose directory disappears, is treated as removed: stop(dev, true),
 * release(dev).  While xenstore does not answer, nothing is known of a back
 * end: everything stays as it is until it does.  The bus itself can wait:
 * kldload(8) of a driver returns when its devices are Connected, or after
 * hw.xen.connect_wait seconds.
 *
 * Every string that another domain wrote is parsed here: xenbus_read_*() check
 * it, and report an invalid one.  The back end is never trusted to name a path:
 * xenbus checks that the back end's directory is of the right kind, and reads
 * it by the domain number written there by the toolstack.
 */

#ifndef _DEV_XEN_XENBUS_H_
#define	_DEV_XEN_XENBUS_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/module.h>

#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore.h>
#include <xen/io/xenbus.h>

#include "xenfront_if.h"

/*
 * Instance variables of a front end.  Strings belong to xenbus; the back end's
 * may change between release() and setup(), and never while a method runs.
 */
enum xenbus_ivars {
	XENBUS_IVAR_TYPE = 1,		/* const char *: "vif", "vbd" */
	XENBUS_IVAR_NODE,		/* const char *: "device/vif/0" */
	XENBUS_IVAR_OTHEREND_ID,	/* the back end's domain */
	XENBUS_IVAR_OTHEREND_PATH,	/* const char *:
					 * "/local/domain/0/backend/vif/3/0" */
	XENBUS_IVAR_STATE,	/* enum xenbus_state: what we last wrote */
};

#define	XENBUS_READ_IVAR(name, ivar, type)				\
static inline type							\
xenbus_get_##name(device_t dev)						\
{									\
	uintptr_t value = 0;						\
									\
	(void)BUS_READ_IVAR(device_get_parent(dev), dev, ivar, &value);	\
	return ((type)value);						\
}

XENBUS_READ_IVAR(type, XENBUS_IVAR_TYPE, const char *)
XENBUS_READ_IVAR(node, XENBUS_IVAR_NODE, const char *)
XENBUS_READ_IVAR(otherend_id, XENBUS_IVAR_OTHEREND_ID, domid_t)
XENBUS_READ_IVAR(otherend_path, XENBUS_IVAR_OTHEREND_PATH, const char *)
XENBUS_READ_IVAR(state, XENBUS_IVAR_STATE, enum xenbus_state)

#undef XENBUS_READ_IVAR

/* Whose directory? */
enum xenbus_side {
	XENBUS_FRONT,
	XENBUS_BACK,
};

/*
 * Read a number, decimal, of a directory.  May sleep, as everything below.
 *
 * name   relative: "sectors", "queue-0/tx-ring-ref"
 * min    the least and the greatest valid value
 * max
 * value  set if 0 is returned
 *
 * Returns 0; ENOENT if there is none; EINVAL, logged, if it is not a number,
 * has a sign, does not fit, or is out of range; the error of xenstore_read().
 */
int	xenbus_read_number(device_t dev, enum xenbus_side side,
    const char *name, uint64_t min,
	    uint64_t max, uint64_t *value);

/*
 * The same for what may be missing and may change later: what is missing or
 * invalid (logged) is `otherwise'.
 *
 * Returns 0; or the error of xenstore_read(), if it is not known what there is:
 * *value is unchanged.
 */
int	xenbus_read_setting(device_t dev, enum xenbus_side side,
    const char *name, uint64_t min,
	    uint64_t max, uint64_t otherwise, uint64_t *value);

/*
 * The same for something optional: what is missing or invalid (logged) is
 * `otherwise', what is over max is max (back ends of the future may offer more
 * than we know).
 */
uint64_t xenbus_read_option(device_t dev, enum xenbus_side side,
    const char *name, uint64_t max,
	    uint64_t otherwise);

/*
 * How many of so many queues the front end may publish, at least one.  Each
 * further one takes nodes of xenstore, of which a domain has 1000 by default,
 * and other front ends do not work without any: all together have 60 further
 * ones.  For setup(); those of an earlier one have been given back.
 */
u_int	xenbus_queues(device_t dev, u_int wanted);

/* Are there further ones that no front end has? */
bool	xenbus_has_queues(void);

/*
 * Does the back end offer a feature ("feature-sg" is "1")?  Missing or invalid:
 * no.
 */
bool	xenbus_feature(device_t dev, const char *name);

/*
 * Read a string.
 *
 * buf   size bytes; always terminated
 *
 * Returns 0; ENOENT; EMSGSIZE, logged, if it is longer, or holds a NUL; the
 * error of xenstore_read().
 */
int	xenbus_read_string(device_t dev, enum xenbus_side side,
    const char *name, char *buf,
	    size_t size);

/*
 * Publish what setup() allocated: fn writes below the front end's directory
 * with xenbus_write_number() and _string(), in a transaction, and is called
 * again if that has to be.
 *
 * fn  returns 0, or an error that ends it all
 *
 * Returns 0, or the error of fn or xenstore_transaction().
 */
int	xenbus_publish(device_t dev,
    int (*fn)(device_t dev, struct xenstore_tx *tx, void *arg),
	    void *arg);

/* Write below the front end's directory.  tx: of xenbus_publish(), or NULL. */
int	xenbus_write_number(device_t dev, struct xenstore_tx *tx,
    const char *name, uint64_t value);
int	xenbus_write_string(device_t dev, struct xenstore_tx *tx,
    const char *name,
	    const char *value);
int	xenbus_remove(device_t dev, struct xenstore_tx *tx, const char *name);

/*
 * Begin again: stop(dev, true), close, release(dev), and setup() when the back
 * end is ready for it.  For a ring that was found broken.  Any context but
 * interrupt filters; returns at once.
 */
void	xenbus_reset(device_t dev);

/*
 * Report why setup() or live() fails.  An error that may pass is reported for
 * the first of the attempts only that follow it.
 */
void	xenbus_warn(device_t dev, int error, const char *fmt,
    ...) __printflike(3, 4);

/*
 * Call otherend_changed() with "" as soon as the device is live: something else
 * changed that it reads.  Any context but interrupt filters.
 */
void	xenbus_change(device_t dev);

/*
 * Call a stop() again that returned EBUSY.  Any context but interrupt filters.
 */
void	xenbus_recheck(device_t dev);

/*
 * First thing of a driver's detach: no method is called any more when this
 * returns, and the back end was requested to disconnect, and given some seconds
 * for it.  stop() and release() were called if the device was set up.  Hold no
 * lock that a method takes.
 */
void	xenbus_leave(device_t dev);

/* The name of a state, for messages. */
const char *xenbus_state_name(enum xenbus_state state);

/*
 * Register a driver for front ends.
 */
#define	XENBUS_DRIVER_MODULE(name, driver, evh, arg)			\
	DRIVER_MODULE(name, xenbus, driver, evh, arg)

/*
 * Tell devmatch(8) the type of device ("vbd") that a driver is for, so that
 * devd(8) loads its module.
 */
struct xenbus_pnp {
	const char	*type;
};
#define	XENBUS_PNP_INFO(name, type)					\
	static const struct xenbus_pnp name ## _pnp[] = { { type } };	\
	MODULE_PNP_INFO("Z:type;", xenbus, name, name ## _pnp, 1)

#endif /* !_DEV_XEN_XENBUS_H_ */
