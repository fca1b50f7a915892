/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The pages of xbd that a back end may see (theory statement: blkfront.c).
 *
 * A request's stage gets its pages when the request is first as long as that,
 * four at a time, and keeps them as long as the back end is connected.  So a
 * disk holds what it has used at one time, and one that is not used nearly
 * nothing.
 *
 * Two stages are there from the beginning: the one of the polled request, so
 * that a dump needs no memory, and a spare one, which a request takes that
 * gets no page of its own, as memory or grant references are used up.  With
 * some pages instead of all, a request is shorter; what is left is cut off by
 * pv_blk.
 *
 * What the back end has not unmapped when it is gone is freed by the grant
 * table when it does.
 *
 * Locking.  A stage is its request's, so that the queue's lock is held.
 * xbd_spare_used is taken by the queues from each other.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>

#include <machine/atomic.h>

#include <dev/xen/blkfront/blkfront_var.h>

static MALLOC_DEFINE(M_XBD, "xbd", "Xen block front ends");

/* Pages of the polled request. */
#define	XBD_POLLED_PAGES	(XBD_POLLED_SIZE / PAGE_SIZE)

void
xbd_stages_alloc(struct xbd_softc *sc)
{
	u_int i;

	sc->xbd_stages = mallocarray(sc->xbd_nstages, sizeof(sc->xbd_stages[0]),
	    M_XBD, M_WAITOK | M_ZERO);
	for (i = 0; i < sc->xbd_nstages; i++)
		sc->xbd_stages[i].xst_chunks = mallocarray(
		    howmany(sc->xbd_segs, XBD_CHUNK_PAGES),
		    sizeof(struct xen_gnttab_pages *), M_XBD,
		    M_WAITOK | M_ZERO);
}

void
xbd_stages_free(struct xbd_softc *sc)
{
	u_int i;

	for (i = 0; sc->xbd_stages != NULL && i < sc->xbd_nstages; i++) {
		KASSERT(sc->xbd_stages[i].xst_npages == 0,
		    ("%s: still granted", __func__));
		free(sc->xbd_stages[i].xst_chunks, M_XBD);
	}
	free(sc->xbd_stages, M_XBD);
	sc->xbd_stages = NULL;
}

/*
 * All is granted for writing even when it is only to be read, as the pages
 * are used again for another request while they stay mapped (blkif.h, note
 * 8).  That goes for the list of segments as well: Linux's back end maps
 * whatever it keeps for writing.
 *
 * Pages beyond the first ones are taken only while there are plenty: other
 * disks and cards may have none yet.
 */
static int
xbd_grant(struct xbd_softc *sc, u_int n, int how, bool needed,
    struct xen_gnttab_pages **gpp)
{

	if (!needed && !xen_gnttab_is_ample(n))
		return (ENOSPC);
	return (xen_gnttab_pages_alloc(sc->xbd_granted_to, n, how, gpp));
}

/* Gives a stage n pages, or as many of them as there are. */
static int
xbd_stage_grow(struct xbd_softc *sc, struct xbd_stage *st, u_int n, int how,
    bool needed)
{
	u_int some;
	int error = 0;

	n = MIN(n, sc->xbd_segs);
	while (st->xst_npages < n && error == 0) {
		some = MIN(XBD_CHUNK_PAGES, sc->xbd_segs - st->xst_npages);
		error = xbd_grant(sc, some, how, needed,
		    &st->xst_chunks[st->xst_npages / XBD_CHUNK_PAGES]);
		if (error == 0)
			st->xst_npages += some;
	}
	return (error);
}

int
xbd_stages_grant(struct xbd_softc *sc)
{
	struct xbd_stage *polled = &sc->xbd_stages[sc->xbd_nstages - 1];
	int error;

	sc->xbd_granted_to = xenbus_get_otherend_id(sc->xbd_dev);
	error = xbd_stage_grow(sc, polled, XBD_POLLED_PAGES, M_WAITOK, true);
	if (error == 0)
		error = xbd_grant(sc, MIN(XBD_CHUNK_PAGES, sc->xbd_segs),
		    M_WAITOK, true, &sc->xbd_spare);
	if (error != 0)
		xenbus_warn(sc->xbd_dev, error, "no grant references for a "
		    "request, error %d", error);
	return (error);
}

void
xbd_stages_end(struct xbd_softc *sc)
{
	struct xbd_stage *st;
	u_int i, j;

	for (i = 0; sc->xbd_stages != NULL && i < sc->xbd_nstages; i++) {
		st = &sc->xbd_stages[i];
		for (j = 0; j < st->xst_npages; j += XBD_CHUNK_PAGES) {
			xen_gnttab_pages_free(
			    st->xst_chunks[j / XBD_CHUNK_PAGES]);
			st->xst_chunks[j / XBD_CHUNK_PAGES] = NULL;
		}
		st->xst_npages = 0;
		xen_gnttab_pages_free(st->xst_list);
		st->xst_list = NULL;
		KASSERT(!st->xst_spare, ("%s: in use", __func__));
	}
	xen_gnttab_pages_free(sc->xbd_spare);
	sc->xbd_spare = NULL;
}

/* The chunk with page i of a request. */
static struct xen_gnttab_pages *
xbd_chunk(const struct xbd_softc *sc, const struct xbd_stage *st, u_int i)
{

	return (st->xst_spare ? sc->xbd_spare :
	    st->xst_chunks[i / XBD_CHUNK_PAGES]);
}

grant_ref_t
xbd_stage_ref(const struct xbd_softc *sc, const struct xbd_stage *st, u_int i)
{

	return (xbd_chunk(sc, st, i)->gp_refs[i % XBD_CHUNK_PAGES]);
}

/* Copies the data of a request to its pages, or from them. */
static void
xbd_stage_copy(const struct xbd_softc *sc, const struct xbd_stage *st,
    const struct pv_blk_req *rq, bool to_bio)
{
	size_t off, n;

	for (off = 0; off < rq->rq_length; off += n) {
		n = MIN(rq->rq_length - off, ptoa(XBD_CHUNK_PAGES));
		pv_blk_copy(&rq->rq_window, off, n,
		    xbd_chunk(sc, st, off / PAGE_SIZE)->gp_va, to_bio);
	}
}

/* How many pages of data may a request of n have, for which st has room? */
static u_int
xbd_stage_fit(struct xbd_softc *sc, struct xbd_stage *st, u_int n)
{

	if (xbd_stage_grow(sc, st, n, M_NOWAIT, false) != 0 &&
	    st->xst_npages == 0) {
		if (atomic_cmpset_acq_int(&sc->xbd_spare_used, 0, 1) == 0)
			return (0);
		st->xst_spare = true;
		n = MIN(n, XBD_CHUNK_PAGES);
	} else
		n = MIN(n, st->xst_npages);
	if (n > BLKIF_MAX_SEGMENTS_PER_REQUEST && st->xst_list == NULL &&
	    xbd_grant(sc, 1, M_NOWAIT, false, &st->xst_list) != 0)
		n = BLKIF_MAX_SEGMENTS_PER_REQUEST;
	return (n);
}

int
xbd_stage_load(struct pv_blk *blk, struct pv_blk_req *rq)
{
	struct xbd_softc *sc = __containerof(blk, struct xbd_softc, xbd_blk);
	struct xbd_stage *st = &sc->xbd_stages[rq - blk->blk_reqs];
	u_int fit, n = howmany(rq->rq_length, PAGE_SIZE);

	fit = xbd_stage_fit(sc, st, n);
	if (fit < n)
		atomic_add_64(&sc->xbd_shortened, 1);
	if (fit == 0)
		return (ENOMEM);
	rq->rq_length = MIN(rq->rq_length, ptoa(fit));
	if (rq->rq_cmd == PV_BLK_WRITE)
		xbd_stage_copy(sc, st, rq, false);
	return (0);
}

void
xbd_stage_unload(struct pv_blk *blk, struct pv_blk_req *rq)
{
	struct xbd_softc *sc = __containerof(blk, struct xbd_softc, xbd_blk);

	xbd_stage_copy(sc, &sc->xbd_stages[rq - blk->blk_reqs], rq, true);
}

void
xbd_stage_release(struct pv_blk *blk, struct pv_blk_req *rq)
{
	struct xbd_softc *sc = __containerof(blk, struct xbd_softc, xbd_blk);
	struct xbd_stage *st = &sc->xbd_stages[rq - blk->blk_reqs];

	if (!st->xst_spare)
		return;
	st->xst_spare = false;
	atomic_store_rel_int(&sc->xbd_spare_used, 0);
}
