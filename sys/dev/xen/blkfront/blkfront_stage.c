/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The pages of xbd that a back end may see (theory statement: blkfront.c).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>

#include <vm/vm.h>
#include <vm/pmap.h>

#include <dev/xen/blkfront/blkfront_var.h>

static MALLOC_DEFINE(M_XBD, "xbd", "Xen block front ends");

void
xbd_stages_alloc(struct xbd_softc *sc)
{
	struct xbd_stage *st;
	u_int i, n = sc->xbd_nstages;

	sc->xbd_stages = mallocarray(n, sizeof(*st), M_XBD, M_WAITOK | M_ZERO);
	for (i = 0; i < n; i++) {
		st = &sc->xbd_stages[i];
		st->xs_data = malloc_aligned(roundup_pow_of_two(sc->xbd_segs * PAGE_SIZE),
		    PAGE_SIZE, M_XBD, M_WAITOK | M_ZERO);
		st->xs_list = malloc_aligned(PAGE_SIZE, PAGE_SIZE, M_XBD, M_WAITOK | M_ZERO);
		st->xs_refs = mallocarray(sc->xbd_segs + 1, sizeof(*st->xs_refs), M_XBD,
		    M_WAITOK | M_ZERO);
	}
}

void
xbd_stages_free(struct xbd_softc *sc)
{
	struct xbd_stage *st;
	u_int i, leaked = 0;

	if (sc->xbd_stages == NULL)
		return;
	for (i = 0; i < sc->xbd_nstages; i++) {
		st = &sc->xbd_stages[i];
		KASSERT(!st->xs_granted, ("%s: still granted", __func__));
		free(st->xs_refs, M_XBD);
		if (st->xs_held) {
			leaked++;
			continue;
		}
		free(st->xs_data, M_XBD);
		free(st->xs_list, M_XBD);
	}
	if (leaked != 0)
		device_printf(sc->xbd_dev, "back ends still map the pages of %u requests: leaking "
		    "them\n", leaked);
	free(sc->xbd_stages, M_XBD);
	sc->xbd_stages = NULL;
}

/*
 * All is granted for writing even when it is only to be read, as the pages are used again for another
 * request while they stay mapped (blkif.h, note 8).  That goes for the list of segments as well:
 * Linux's back end maps whatever it keeps for writing.
 */
static int
xbd_stage_grant(struct xbd_softc *sc, struct xbd_stage *st)
{
	u_int i;
	int error;

	error = xen_gnttab_alloc(st->xs_refs, sc->xbd_segs + 1);
	if (error != 0)
		return (error);
	for (i = 0; i < sc->xbd_segs; i++)
		xen_gnttab_grant(st->xs_refs[i], sc->xbd_granted_to,
		    pmap_kextract((vm_offset_t)st->xs_data + i * PAGE_SIZE), false);
	xen_gnttab_grant(st->xs_refs[i], sc->xbd_granted_to,
	    pmap_kextract((vm_offset_t)st->xs_list), false);
	st->xs_granted = true;
	return (0);
}

int
xbd_stages_grant(struct xbd_softc *sc)
{
	domid_t domid = xenbus_get_otherend_id(sc->xbd_dev);
	u_int i;
	int error;

	if (sc->xbd_held != 0 && domid != sc->xbd_granted_to) {
		xenbus_warn(sc->xbd_dev, EBUSY, "domain %u still holds memory of this disk, which "
		    "domain %u must not see: detach and attach the disk", sc->xbd_granted_to,
		    domid);
		return (EBUSY);
	}
	sc->xbd_granted_to = domid;
	for (i = 0; i < sc->xbd_nstages; i++) {
		error = xbd_stage_grant(sc, &sc->xbd_stages[i]);
		if (error != 0) {
			xenbus_warn(sc->xbd_dev, error, "no grant references for %u requests of %u "
			    "pages, error %d: lower hw.xbd.max_segs", sc->xbd_nstages,
			    sc->xbd_segs + 1, error);
			return (error);
		}
	}
	return (0);
}

void
xbd_stages_end(struct xbd_softc *sc)
{
	struct xbd_stage *st;
	u_int held, i;

	for (i = 0; sc->xbd_stages != NULL && i < sc->xbd_nstages; i++) {
		st = &sc->xbd_stages[i];
		if (!st->xs_granted)
			continue;
		st->xs_granted = false;
		held = xen_gnttab_end(st->xs_refs, sc->xbd_segs + 1);
		if (held != 0)
			st->xs_held = true;
		sc->xbd_held += held;
	}
}

void
xbd_stage_load(struct pv_blk *blk, struct pv_blk_req *rq)
{
	struct xbd_softc *sc = __containerof(blk, struct xbd_softc, xbd_blk);

	if (rq->rq_cmd == PV_BLK_WRITE)
		pv_blk_copy(&rq->rq_window, sc->xbd_stages[rq - blk->blk_reqs].xs_data, false);
}

void
xbd_stage_unload(struct pv_blk *blk, struct pv_blk_req *rq)
{
	struct xbd_softc *sc = __containerof(blk, struct xbd_softc, xbd_blk);

	pv_blk_copy(&rq->rq_window, sc->xbd_stages[rq - blk->blk_reqs].xs_data, true);
}
