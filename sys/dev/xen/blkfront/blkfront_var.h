/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of xbd share (theory statement and locking: blkfront.c).
 */

#ifndef _DEV_XEN_BLKFRONT_VAR_H_
#define	_DEV_XEN_BLKFRONT_VAR_H_

#include <sys/sysctl.h>

#include <dev/pv/blk/pv_blk.h>
#include <dev/xen/grant_ring.h>
#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xenbus.h>
#include <xen/io/blkif.h>
#include <xen/io/protocols.h>

/* The unit of every number of sectors on the wire, whatever the sector size. */
#define	XBD_SECTOR_SIZE		512

/* Pages that are granted at a time. */
#define	XBD_CHUNK_PAGES		4

/* Of the polled request, which must not need indirect segments. */
#define	XBD_POLLED_SIZE		(BLKIF_MAX_SEGMENTS_PER_REQUEST * PAGE_SIZE)

/*
 * One request's pages that the back end may see: its data, and, for a request
 * with more segments than a slot holds, a page that lists them.
 */
struct xbd_stage {
	struct xen_gnttab_pages **xst_chunks; /* of its data */
	u_int		 xst_npages;	/* in them */
	bool		 xst_spare;	/* it uses xbd_spare instead */
	struct xen_gnttab_pages *xst_list;
	struct grant_msgs xst_msgs;	/* the request in the ring */
};

struct xbd_ring {
	struct xbd_softc *xbr_sc;
	u_int		 xbr_index;
	struct xen_evtchn *xbr_channel;
};

struct xbd_softc {
	device_t	 xbd_dev;
	struct sysctl_ctx_list xbd_sysctl;
	uint16_t	 xbd_handle;

	/* Negotiated in setup(). */
	u_int		 xbd_order;	/* log2 of the ring's pages */
	u_int		 xbd_segs;	/* pages of data that a request has */
	u_int		 xbd_max_segs;	/* those of them
					 * that this back end takes */
	u_int		 xbd_nqueues;	/* rings */
	u_int		 xbd_wanted;	/* that both ends could have */
	struct xbd_ring	 xbd_rings[PV_BLK_QUEUES_MAX];
	struct pvq	*xbd_queues[PV_BLK_QUEUES_MAX];

	/* Negotiated in live(). */
	u_int		 xbd_persistent; /* the back end may keep
					  * our pages mapped */
	uint8_t		 xbd_flush_op;
	uint8_t		 xbd_discard_flag;

	/* Made for the first back end, kept for those after it. */
	u_int		 xbd_max_queues;
	u_int		 xbd_nreqs;	/* of each of xbd_max_queues */
	u_int		 xbd_nstages;	/* one for each request,
					 * and one for polling */
	struct xbd_stage *xbd_stages;
	domid_t		 xbd_granted_to;
	struct xen_gnttab_pages *xbd_spare;
	volatile u_int	 xbd_spare_used;
	uint64_t	 xbd_shortened;	/* atomic */

	struct pv_blk	 xbd_blk;
	volatile u_int	 xbd_ready;	/* xbd_blk may be called for events */
	bool		 xbd_attached;	/* there is a disk */
	bool		 xbd_asleep;	/* pv_blk_hold() */
};

#define	XBD_NO_FLUSH	0xff	/* xbd_flush_op: the back end has none */

/* blkfront_stage.c */

/* Makes room for the pages of all requests, xbd_segs for each.  May sleep. */
void	xbd_stages_alloc(struct xbd_softc *sc);
void	xbd_stages_free(struct xbd_softc *sc);
/*
 * Makes the pages that have to be there, and permits others for the back end's
 * domain, until xbd_stages_end(), when no request needs its pages any more.
 *
 * Returns 0; ENOMEM or ENOSPC, with a message.
 */
int	xbd_stages_grant(struct xbd_softc *sc);
void	xbd_stages_end(struct xbd_softc *sc);
/* The reference of a request's i-th page of data. */
grant_ref_t xbd_stage_ref(const struct xbd_softc *sc,
	    const struct xbd_stage *st, u_int i);
/* bpo_load, bpo_unload and bpo_release. */
int	xbd_stage_load(struct pv_blk *blk, struct pv_blk_req *rq);
void	xbd_stage_unload(struct pv_blk *blk, struct pv_blk_req *rq);
void	xbd_stage_release(struct pv_blk *blk, struct pv_blk_req *rq);

/* blkfront_ring.c */

/*
 * Makes xbd_nqueues event channels and rings, or, with less, fewer: xbd_nqueues
 * then.  Returns 0, or an error with a message.
 */
int	xbd_rings_create(struct xbd_softc *sc);
/* Nothing of the rings' handlers runs any more when this returns. */
void	xbd_channels_free(struct xbd_softc *sc);
void	xbd_rings_free(struct xbd_softc *sc);
/* bo_has_more. */
bool	xbd_has_more(struct pv_blk *blk);
void	xbd_encode(struct pv_blk *blk, struct pv_blk_req *rq,
    struct pvq_chain *pc);
int	xbd_status(struct pv_blk *blk, const struct pv_blk_req *rq,
    const struct pvq_done *pd,
	    uintmax_t *seen);

#endif /* !_DEV_XEN_BLKFRONT_VAR_H_ */
