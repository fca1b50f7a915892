/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Functions of the Xen core for its front ends, which fail as debug.faults (faults.c)
 * says: requests of xenstore, grants, event channels, rings.  Their errors are those
 * that pass.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/module.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/grant_ring.h>
#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xenstore.h>
#include <dev/xen/xenbus.h>

#include "faults.h"

FAULT(int, xenbus_read_number, (device_t dev, enum xenbus_side side, const char *name, uint64_t min,
    uint64_t max, uint64_t *value), (dev, side, name, min, max, value), true, ETIMEDOUT)
FAULT(int, xenbus_read_setting, (device_t dev, enum xenbus_side side, const char *name, uint64_t min,
    uint64_t max, uint64_t otherwise, uint64_t *value), (dev, side, name, min, max, otherwise, value),
    true, ETIMEDOUT)
FAULT(int, xenbus_read_string, (device_t dev, enum xenbus_side side, const char *name, char *buf,
    size_t size), (dev, side, name, buf, size), true, ETIMEDOUT)
FAULT(int, xenbus_publish, (device_t dev,
    int (*fn)(device_t dev, struct xenstore_tx *tx, void *arg), void *arg), (dev, fn, arg), true,
    EAGAIN)
FAULT(int, xenbus_write_number, (device_t dev, struct xenstore_tx *tx, const char *name,
    uint64_t value), (dev, tx, name, value), true, ENOSPC)
FAULT(int, xenbus_write_string, (device_t dev, struct xenstore_tx *tx, const char *name,
    const char *value), (dev, tx, name, value), true, ENOSPC)
FAULT(int, xen_gnttab_pages_alloc, (domid_t domid, u_int n, int how, struct xen_gnttab_pages **gpp),
    (domid, n, how, gpp), true, ENOSPC)
FAULT(int, xen_evtchn_alloc, (domid_t remote, const struct xen_evtchn_params *params,
    struct xen_evtchn **ecp), (remote, params, ecp), true, ENOSPC)
FAULT(int, grant_ring_create, (const struct grant_ring_params *params, struct pvq **qp), (params, qp),
    true, ENOMEM)
FAULT(int, xenstore_watch_add, (struct xenstore_watch *w, const char *dir, const char *name),
    (w, dir, name), true, ENOSPC)
FAULT(int, xenstore_read, (struct xenstore_tx *tx, const char *dir, const char *name, char **value,
    size_t *len), (tx, dir, name, value, len), true, ETIMEDOUT)
FAULT(int, xenstore_write, (struct xenstore_tx *tx, const char *dir, const char *name,
    const char *value), (tx, dir, name, value), true, ENOSPC)

static moduledata_t xfaults_module = { "xfaults", NULL, NULL };
DECLARE_MODULE(xfaults, xfaults_module, SI_SUB_DRIVERS, SI_ORDER_ANY);
MODULE_VERSION(xfaults, 1);
MODULE_DEPEND(xfaults, faults, 1, 1, 1);
MODULE_DEPEND(xfaults, xen, 1, 1, 1);
MODULE_DEPEND(xfaults, pv, 1, 1, 1);
