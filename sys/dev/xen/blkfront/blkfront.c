/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xbd: the block front end of Xen (xen/io/blkif.h).
 *
 * The protocol half of a disk; everything that faces the operating system is in
 * pv_blk.  This file is the negotiation with the back end, and the life with
 * one back end after another; blkfront_ring.c has requests and responses,
 * blkfront_stage.c the pages that a back end sees.
 *
 *	xenbus       xbd                               pv_blk
 *	------       ---                               ------
 *	setup   ->   reads limits; pages, grants, rings, channels
 *	live    ->   reads what the disk is            init, attach; or
 *	                                               set_queues, thaw
 *	             ... requests ...
 *	stop    ->   nothing new                       freeze
 *	release ->   frees channels, rings and grants  requeue, set_queues(none)
 *	lost    ->   no back end is expected           give_up
 *	setup   ->   and so on, with the next one
 *	detach  ->                                     detach, fini
 *
 * The disk appears with the first back end and stays until detach.  While there
 * is no back end bios are queued, until xenbus calls xbd_lost(): then they
 * fail, until there is one.  Requests that were in flight in the former back
 * end go to the next one first, in their order.  A disk of another sector size
 * and a read-only one are refused, as users' data is at stake.  Requests that
 * are too long for the next back end are split again.
 *
 * Pages.  Data is copied to and from pages of our own that are granted once for
 * each back end, when they are first needed, whether it offers
 * feature-persistent or not.  So the back end sees whole pages without seeing
 * anything that is not the disk's, few requests cost a change of the grant
 * table, and a back end that keeps pages mapped saves its own work.  If there
 * are no more, requests are shorter or wait; if there are not enough for all
 * queues, there are fewer.
 *
 * Units.  The protocol counts in 512 bytes everywhere, also where sector-size
 * is more: so do Linux's back end and every front end in use, and
 * feature-large-sector-size is not claimed.
 *
 * Notifications.  They are not coalesced: a busy back end requests none, by
 * req_event, and the callout that would bound the delay costs more than the
 * event.  A queue of 8 requests of 4 KB was 1.6 times slower with batches of 4,
 * and had as many events (tests/bench/BASELINE.md).
 *
 * Trust.  Numbers are read by xenbus_read_number() within bounds; an invalid
 * disk is refused with a message.  Ids of responses are checked by the ring,
 * their operation and status by xbd_status().
 *
 * Locking: pv_blk's.  xenbus calls its methods one at a time; what they write
 * here is read by the data path only between thaw and freeze, when it does not
 * change.
 *
 * Queues.  One for each CPU, as far as the back end has as many, each a ring
 * and an event channel (blkif.h, note 12).  The next back end may have more or
 * fewer; more than the first one had are not used, as pages were made for so
 * many.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/limits.h>
#include <sys/module.h>
#include <sys/sysctl.h>

#include <dev/pv/pv_tunable.h>
#include <dev/xen/blkfront/blkfront_var.h>

#define	XBD_REQS_MAX		128
#define	XBD_SEGS_DEFAULT	32	/* with 32 slots, what Linux's
					 * back end keeps mapped */
#define	XBD_IDLE_SECS		10	/* a detach waits
					 * for what is in flight */
#define	XBD_DISCARD_MAX		(1ULL << 30)	/* bytes */

enum {
	XBD_RING_ORDER = PV_BLK_NTUNABLES,
	XBD_NUM_QUEUES,
	XBD_MAX_SEGS,
	XBD_PERSISTENT,
	XBD_SECURE_DELETE,
};

static struct pv_tunable xbd_tunables[] = {
	PV_BLK_TUNABLES,
	[XBD_RING_ORDER] = PV_TUNABLE("ring_order", 0, 0, GRANT_RING_MAX_ORDER,
	    0, "Pages of a ring at most, as a power of two: 0 to 4"),
	[XBD_NUM_QUEUES] = PV_TUNABLE("num_queues", 0, 0, PV_BLK_QUEUES_MAX, 0,
	    "Maximum number of queues of a disk; 0: one per CPU"),
	[XBD_MAX_SEGS] = PV_TUNABLE("max_segs", XBD_SEGS_DEFAULT, 1, 256, 0,
	    "Pages of data in a request at most; more than 11 need a back end with indirect segments"),
	[XBD_PERSISTENT] = PV_TUNABLE("persistent", 1, 0, 1, 0,
	    "Let back ends keep our pages mapped"),
	[XBD_SECURE_DELETE] = PV_TUNABLE("secure_delete", 0, 0, 1, 0,
	    "Have deleted blocks made unreadable by back ends that offer it"),
};
PV_TUNABLES(xbd_tunables, hw, "xbd", xbd_tunables, "Xen disks");

static int
xbd_tunable(u_int which)
{
	return (xbd_tunables[which].pt_value);
}

/* The last part of "device/vbd/51712", which back ends require in requests. */
static uint16_t
xbd_node_number(const char *node)
{
	const char *p = strrchr(node, '/');

	return (p == NULL ? 0 : (uint16_t)strtoul(p + 1, NULL, 10));
}

/* ENODEV, with a message, for what is no disk. */
static int
xbd_check_type(struct xbd_softc *sc)
{
	char type[16];
	int error;

	error = xenbus_read_string(sc->xbd_dev, XENBUS_FRONT,
	    "device-type", type, sizeof(type));
	if (error == ENOENT)
		return (0);
	if (error == 0 && strcmp(type, "cdrom") == 0) {
		device_printf(sc->xbd_dev,
		    "a CD-ROM drive is left to emulation: xbd serves disks "
		    "only\n");
		return (ENODEV);
	}
	return (error);
}

/* What the back end offers before it is connected. */
static int
xbd_negotiate(struct xbd_softc *sc)
{
	device_t dev = sc->xbd_dev;
	u_int most = xbd_tunable(XBD_MAX_SEGS), segs;

	sc->xbd_order = xenbus_read_option(dev, XENBUS_BACK,
	    "max-ring-page-order", xbd_tunable(XBD_RING_ORDER), 0);
	segs = xenbus_read_option(dev, XENBUS_BACK,
	    "feature-max-indirect-segments", MIN(most, maxphys / PAGE_SIZE), 0);
	if (segs <= BLKIF_MAX_SEGMENTS_PER_REQUEST)
		segs = MIN(most, BLKIF_MAX_SEGMENTS_PER_REQUEST);
	sc->xbd_nqueues = pv_blk_nqueues(xenbus_read_option(dev, XENBUS_BACK,
	    "multi-queue-max-queues", PV_BLK_QUEUES_MAX, 1),
	    xbd_tunable(XBD_NUM_QUEUES));
	if (sc->xbd_stages == NULL) {
		sc->xbd_segs = sc->xbd_max_segs = segs;
		sc->xbd_max_queues = sc->xbd_nqueues;
		sc->xbd_nreqs = min(XBD_REQS_MAX, grant_ring_size(sc->xbd_order,
		    sizeof(union blkif_sring_entry)));
		sc->xbd_nstages = sc->xbd_max_queues * sc->xbd_nreqs + 1;
		xbd_stages_alloc(sc);
	}
	sc->xbd_wanted = MIN(sc->xbd_nqueues, sc->xbd_max_queues);
	sc->xbd_nqueues = xenbus_queues(dev, sc->xbd_wanted);
	sc->xbd_max_segs = MIN(segs, sc->xbd_segs);
	return (0);
}

/* The references and the channel of ring i below where: "" or "queue-1/". */
static int
xbd_publish_ring(struct xbd_softc *sc, struct xenstore_tx *tx, u_int i,
    const char *where)
{
	grant_ref_t refs[1 << GRANT_RING_MAX_ORDER];
	device_t dev = sc->xbd_dev;
	char name[32];
	int error, j, n;

	n = grant_ring_refs(sc->xbd_queues[i], refs);
	/* blkif.h, note 6: the name of one page's reference has no number. */
	snprintf(name, sizeof(name), "%sring-ref", where);
	error = n == 1 ? xenbus_write_number(dev, tx, name, refs[0]) :
	    xenbus_remove(dev, tx, name);
	for (j = 0; error == 0 && n > 1 && j < n; j++) {
		snprintf(name, sizeof(name), "%sring-ref%d", where, j);
		error = xenbus_write_number(dev, tx, name, refs[j]);
	}
	snprintf(name, sizeof(name), "%sevent-channel", where);
	if (error == 0)
		error = xenbus_write_number(dev, tx, name,
		    xen_evtchn_port(sc->xbd_rings[i].xbr_channel));
	return (error);
}

static int
xbd_publish_rings(struct xbd_softc *sc, struct xenstore_tx *tx)
{
	device_t dev = sc->xbd_dev;
	char where[16] = "";
	u_int i;
	int error = 0;

	if (sc->xbd_nqueues > 1)
		error = xenbus_write_number(dev, tx, "multi-queue-num-queues",
		    sc->xbd_nqueues);
	for (i = 0; error == 0 && i < sc->xbd_nqueues; i++) {
		if (sc->xbd_nqueues > 1)
			snprintf(where, sizeof(where), "queue-%u/", i);
		error = xbd_publish_ring(sc, tx, i, where);
	}
	return (error);
}

/*
 * What an earlier connection may have published and this one may not have: of
 * several queues, for example, "ring-ref" and "event-channel".
 */
static const char *const xbd_optional[] = {
	"ring-page-order", "num-ring-pages", "multi-queue-num-queues",
	"ring-ref", "event-channel"
};

static int
xbd_publish(device_t dev, struct xenstore_tx *tx, void *arg)
{
	struct xbd_softc *sc = arg;
	int error = 0;
	u_int i;

	for (i = 0; error == 0 && i < nitems(xbd_optional); i++)
		error = xenbus_remove(dev, tx, xbd_optional[i]);
	/*
	 * Note 3: some back ends take the ring's size as a power of two, others
	 * in pages.
	 */
	if (error == 0 && sc->xbd_order > 0)
		error = xenbus_write_number(dev, tx, "ring-page-order",
		    sc->xbd_order);
	if (error == 0 && sc->xbd_order > 0)
		error = xenbus_write_number(dev, tx, "num-ring-pages",
		    1 << sc->xbd_order);
	if (error == 0)
		error = xbd_publish_rings(sc, tx);
	if (error == 0)
		error = xenbus_write_string(dev, tx,
		    "protocol", XEN_IO_PROTO_ABI_NATIVE);
	if (error == 0)
		error = xenbus_write_number(dev, tx, "feature-persistent",
		    xbd_tunable(XBD_PERSISTENT));
	return (error);
}

/* Undoes setup, from wherever it got to. */
static void
xbd_disconnect(struct xbd_softc *sc)
{
	struct pv_blk *blk = &sc->xbd_blk;

	sc->xbd_asleep = false;
	xbd_channels_free(sc);
	if (sc->xbd_attached && blk->blk_queues[0].bq_pvq != NULL) {
		pv_blk_requeue(blk);
		pv_blk_set_queues(blk, NULL, 0);
	}
	xbd_rings_free(sc);
	xbd_stages_end(sc);
}

static int
xbd_setup(device_t dev, enum xenbus_state *next __unused)
{
	struct xbd_softc *sc = device_get_softc(dev);
	int error;

	error = xbd_check_type(sc);
	if (error == 0)
		error = xbd_negotiate(sc);
	if (error == 0)
		error = xbd_stages_grant(sc);
	if (error == 0)
		error = xbd_rings_create(sc);
	if (error == 0)
		error = xenbus_publish(dev, xbd_publish, sc);
	if (error != 0)
		xbd_disconnect(sc);
	return (error);
}

/* Reads the size of the disk in bytes. */
static int
xbd_read_size(struct xbd_softc *sc, u_int sectorsize, uint64_t *bytes)
{
	uint64_t sectors;
	int error;

	error = xenbus_read_number(sc->xbd_dev, XENBUS_BACK, "sectors",
	    sectorsize / XBD_SECTOR_SIZE, OFF_MAX / XBD_SECTOR_SIZE, &sectors);
	if (error == ENOENT)
		device_printf(sc->xbd_dev,
		    "the back end does not offer the size of the disk "
		    "(sectors)\n");
	if (error == 0)
		*bytes = rounddown2(sectors * XBD_SECTOR_SIZE, sectorsize);
	return (error);
}

static void
xbd_read_discard(struct xbd_softc *sc, struct pv_blk_params *bp)
{
	sc->xbd_discard_flag = 0;
	if (!xenbus_feature(sc->xbd_dev, "feature-discard"))
		return;
	if (xbd_tunable(XBD_SECURE_DELETE) != 0 &&
	    xenbus_feature(sc->xbd_dev, "discard-secure"))
		sc->xbd_discard_flag = BLKIF_DISCARD_SECURE;
	bp->bp_delete_size = XBD_DISCARD_MAX;
	bp->bp_delete_align = xenbus_read_option(sc->xbd_dev, XENBUS_BACK,
	    "discard-granularity", UINT32_MAX, bp->bp_sectorsize);
	bp->bp_delete_first = xenbus_read_option(sc->xbd_dev, XENBUS_BACK,
	    "discard-alignment", UINT32_MAX, 0);
	pv_blk_set_stripe(bp, bp->bp_delete_align, bp->bp_delete_first);
}

/* What the back end offers of the disk once it is connected. */
static int
xbd_read_disk(struct xbd_softc *sc, struct pv_blk_params *bp)
{
	device_t dev = sc->xbd_dev;
	uint64_t info, physical, size;
	int error;

	error = xenbus_read_number(dev, XENBUS_BACK,
	    "sector-size", XBD_SECTOR_SIZE, PAGE_SIZE, &size);
	if (error == 0 && !powerof2(size))
		error = EINVAL;
	if (error != 0) {
		device_printf(dev, "invalid sector-size of the back end\n");
		return (error);
	}
	bp->bp_sectorsize = size;
	error = xbd_read_size(sc, bp->bp_sectorsize, &bp->bp_mediasize);
	if (error != 0)
		return (error);
	/* Linux's back end offers it when it is connected, and not before. */
	sc->xbd_persistent = xbd_tunable(XBD_PERSISTENT) != 0 &&
	    xenbus_feature(dev, "feature-persistent");
	info = xenbus_read_option(dev, XENBUS_BACK, "info", UINT32_MAX, 0);
	if ((info & VDISK_CDROM) != 0) {
		device_printf(dev,
		    "a CD-ROM drive is left to emulation: xbd serves disks only\n");
		return (ENODEV);
	}
	if ((info & VDISK_READONLY) != 0)
		bp->bp_flags |= PV_BLK_READONLY;
	physical = xenbus_read_option(dev, XENBUS_BACK, "physical-sector-size",
	    UINT32_MAX, 0);
	pv_blk_set_stripe(bp, physical, 0);
	sc->xbd_flush_op = XBD_NO_FLUSH;
	if (xenbus_feature(dev, "feature-flush-cache"))
		sc->xbd_flush_op = BLKIF_OP_FLUSH_DISKCACHE;
	else if (xenbus_feature(dev, "feature-barrier"))
		sc->xbd_flush_op = BLKIF_OP_WRITE_BARRIER;
	/*
	 * The next back end may have a flush even if this one has none to do.
	 */
	bp->bp_flags |= PV_BLK_CACHED;
	xbd_read_discard(sc, bp);
	return (0);
}

static void
xbd_reconnect(struct pv_blk *blk)
{
	xenbus_reset(blk->blk_dev);
}

static void
xbd_closed(struct pv_blk *blk)
{
	xenbus_recheck(blk->blk_dev);
}

static const struct pv_blk_peer_ops xbd_peer_ops = {
	.bpo_reconnect = xbd_reconnect,
	.bpo_load = xbd_stage_load,
	.bpo_unload = xbd_stage_unload,
	.bpo_release = xbd_stage_release,
	.bpo_polled_size = XBD_POLLED_SIZE,
};

static const struct pv_blk_ops xbd_ops = {
	.bo_encode = xbd_encode,
	.bo_status = xbd_status,
	.bo_closed = xbd_closed,
	.bo_has_more = xbd_has_more,
	.bo_peer = &xbd_peer_ops,
};

static void
xbd_sysctl(struct xbd_softc *sc)
{
	struct sysctl_ctx_list *ctx = &sc->xbd_sysctl;
	struct sysctl_oid_list *top =
	    SYSCTL_CHILDREN(device_get_sysctl_tree(sc->xbd_dev));

	sysctl_ctx_init(ctx);
	SYSCTL_ADD_UINT(ctx, top, OID_AUTO, "ring_order", CTLFLAG_RD,
	    &sc->xbd_order, 0, "Pages of the ring, as a power of two");
	SYSCTL_ADD_UINT(ctx, top, OID_AUTO, "max_segs", CTLFLAG_RD,
	    &sc->xbd_max_segs, 0, "Pages of data in a request at most");
	SYSCTL_ADD_UINT(ctx, top, OID_AUTO, "persistent", CTLFLAG_RD,
	    &sc->xbd_persistent, 0, "The back end may keep our pages mapped");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "shortened", CTLFLAG_RD, &sc->xbd_shortened, 0,
	    "Requests that had to be shorter, or to wait, without more grants or memory");
}

/* The first back end: the disk appears. */
static int
xbd_begin(struct xbd_softc *sc, const struct pv_blk_params *bp)
{
	int error;

	error = pv_blk_init(&sc->xbd_blk, sc->xbd_dev, &xbd_ops, bp);
	if (error != 0)
		return (error);
	pv_blk_set_writethrough(&sc->xbd_blk, sc->xbd_flush_op == XBD_NO_FLUSH);
	pv_dev_set_short(&sc->xbd_blk.blk_pvdev, PV_DEV_QUEUES, sc->xbd_nqueues,
	    sc->xbd_wanted);
	atomic_store_rel_int(&sc->xbd_ready, 1);
	error = pv_blk_attach(&sc->xbd_blk, sc->xbd_queues, sc->xbd_nqueues);
	if (error != 0) {
		atomic_store_rel_int(&sc->xbd_ready, 0);
		xbd_channels_free(sc);
		pv_blk_fini(&sc->xbd_blk);
		return (error);
	}
	sc->xbd_attached = true;
	return (0);
}

/* Another back end: is it of the same disk?  ENODEV, with a message, if not. */
static int
xbd_resume(struct xbd_softc *sc, const struct pv_blk_params *bp)
{
	const struct pv_blk_params *old = &sc->xbd_blk.blk_params;

	if (bp->bp_sectorsize != old->bp_sectorsize ||
	    ((bp->bp_flags ^ old->bp_flags) & PV_BLK_READONLY) != 0) {
		device_printf(sc->xbd_dev,
		    "the back end returned with another disk (sectors of %u "
		    "bytes%s): detach and attach it\n", bp->bp_sectorsize,
		    (bp->bp_flags & PV_BLK_READONLY) != 0 ? ", read-only" : "");
		return (ENODEV);
	}
	pv_blk_set_writethrough(&sc->xbd_blk, sc->xbd_flush_op == XBD_NO_FLUSH);
	pv_blk_set_delete(&sc->xbd_blk, bp);
	pv_blk_set_max_size(&sc->xbd_blk, bp->bp_max_size);
	pv_blk_resize(&sc->xbd_blk, bp->bp_mediasize);
	pv_blk_set_queues(&sc->xbd_blk, sc->xbd_queues, sc->xbd_nqueues);
	pv_dev_set_short(&sc->xbd_blk.blk_pvdev, PV_DEV_QUEUES, sc->xbd_nqueues,
	    sc->xbd_wanted);
	device_printf(sc->xbd_dev, "the back end is back\n");
	return (pv_dev_thaw(&sc->xbd_blk.blk_pvdev));
}

static int
xbd_live(device_t dev)
{
	struct xbd_softc *sc = device_get_softc(dev);
	struct pv_blk_params params = {
		.bp_diskname = device_get_name(dev),
		.bp_descr = "Xen block device",
		.bp_tunables = xbd_tunables,
		.bp_nqueues = sc->xbd_max_queues,
		.bp_nreqs = sc->xbd_nreqs,
		.bp_max_segs = sc->xbd_segs,
		.bp_seg_size = PAGE_SIZE,
		.bp_max_size = sc->xbd_max_segs * PAGE_SIZE,
		.bp_batch = 1,
		.bp_msgsize = sizeof(struct blkif_request),
	};
	int error;

	error = xbd_read_disk(sc, &params);
	if (error != 0)
		return (error);
	return (sc->xbd_attached ? xbd_resume(sc, &params) :
	    xbd_begin(sc, &params));
}

static int
xbd_stop(device_t dev, bool gone)
{
	struct xbd_softc *sc = device_get_softc(dev);

	if (!sc->xbd_attached)
		return (0);
	if (!gone && pv_blk_quiesce(&sc->xbd_blk) != 0) {
		if (!pv_blk_is_late(&sc->xbd_blk))
			return (EBUSY);
		device_printf(dev,
		    "the back end requests to close, and does not answer any more: "
		    "disconnecting\n");
	}
	pv_dev_quiesce(&sc->xbd_blk.blk_pvdev);
	return (0);
}

static void
xbd_lost(device_t dev)
{
	struct xbd_softc *sc = device_get_softc(dev);

	if (sc->xbd_attached)
		pv_dev_lose(&sc->xbd_blk.blk_pvdev);
}

/*
 * The domain is going to be saved, while the back end goes on writing to our
 * pages.
 */
static int
xbd_device_suspend(device_t dev)
{
	struct xbd_softc *sc = device_get_softc(dev);

	if (sc->xbd_attached && sc->xbd_blk.blk_queues[0].bq_pvq != NULL) {
		sc->xbd_asleep = true;
		pv_blk_hold(&sc->xbd_blk);
	}
	return (0);
}

/* It was not, and the back end is the same. */
static int
xbd_device_resume(device_t dev)
{
	struct xbd_softc *sc = device_get_softc(dev);

	if (sc->xbd_asleep)
		(void)pv_dev_thaw(&sc->xbd_blk.blk_pvdev);
	sc->xbd_asleep = false;
	return (0);
}

static void
xbd_release(device_t dev)
{
	xbd_disconnect(device_get_softc(dev));
}

static void
xbd_otherend_changed(device_t dev, const char *node)
{
	struct xbd_softc *sc = device_get_softc(dev);
	uint64_t bytes;

	if (sc->xbd_attached && (node[0] == '\0' ||
	    strcmp(node, "sectors") == 0) && xbd_read_size(sc,
	    sc->xbd_blk.blk_params.bp_sectorsize, &bytes) == 0)
		pv_blk_resize(&sc->xbd_blk, bytes);
}

static int
xbd_probe(device_t dev)
{
	if (strcmp(xenbus_get_type(dev), "vbd") != 0)
		return (ENXIO);
	device_set_desc(dev, "Xen block front end");
	return (BUS_PROBE_DEFAULT);
}

static int
xbd_attach(device_t dev)
{
	struct xbd_softc *sc = device_get_softc(dev);

	sc->xbd_dev = dev;
	sc->xbd_handle = xbd_node_number(xenbus_get_node(dev));
	xbd_sysctl(sc);
	return (0);
}

static int
xbd_detach(device_t dev)
{
	struct xbd_softc *sc = device_get_softc(dev);

	/* A device's own context goes after its softc. */
	(void)sysctl_ctx_free(&sc->xbd_sysctl);
	if (sc->xbd_attached) {
		/*
		 * Linux's back end never releases a ring that is left with
		 * requests in flight.
		 */
		pv_dev_quiesce(&sc->xbd_blk.blk_pvdev);
		(void)pv_blk_wait_idle(&sc->xbd_blk, XBD_IDLE_SECS);
	}
	xenbus_leave(dev);
	if (sc->xbd_attached) {
		sc->xbd_attached = false;
		pv_blk_detach(&sc->xbd_blk);
		pv_blk_fini(&sc->xbd_blk);
	}
	xbd_stages_free(sc);
	return (0);
}

/*
 * kldunload and devctl detach without force call this first: not while the disk
 * is open.
 */
static int
xbd_quiesce(device_t dev)
{
	struct xbd_softc *sc = device_get_softc(dev);

	return (sc->xbd_attached ? pv_blk_quiesce(&sc->xbd_blk) : 0);
}

static device_method_t xbd_methods[] = {
	DEVMETHOD(device_probe,		xbd_probe),
	DEVMETHOD(device_attach,	xbd_attach),
	DEVMETHOD(device_detach,	xbd_detach),
	DEVMETHOD(device_quiesce,	xbd_quiesce),
	DEVMETHOD(device_suspend,	xbd_device_suspend),
	DEVMETHOD(device_resume,	xbd_device_resume),

	DEVMETHOD(xenfront_setup,		xbd_setup),
	DEVMETHOD(xenfront_live,		xbd_live),
	DEVMETHOD(xenfront_stop,		xbd_stop),
	DEVMETHOD(xenfront_release,	xbd_release),
	DEVMETHOD(xenfront_lost,		xbd_lost),
	DEVMETHOD(xenfront_otherend_changed, xbd_otherend_changed),

	DEVMETHOD_END
};

static driver_t xbd_driver = {
	"xbd",
	xbd_methods,
	sizeof(struct xbd_softc)
};

XENBUS_DRIVER_MODULE(xbd, xbd_driver, NULL, NULL);
XENBUS_PNP_INFO(xbd, "vbd");
MODULE_VERSION(xbd, 1);
MODULE_DEPEND(xbd, xen, 1, 1, 1);
MODULE_DEPEND(xbd, pv, 1, 1, 1);
MODULE_DEPEND(xbd, pv_blk, 1, 1, 1);
