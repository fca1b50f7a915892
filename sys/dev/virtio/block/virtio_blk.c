/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * virtio_blk: the block device of VirtIO 1.3, 5.2.
 *
 * The protocol half of a disk; everything that faces the operating system is in
 * pv_blk.  A request is
 *
 *	device reads     header: type, first sector           struct vtblk_msg
 *	device reads     data to write, or a discard's range
 *	device writes    data to read
 *	device writes    status, one byte                     struct vtblk_msg
 *
 * always in descriptors of their own, which every device accepts, legacy ones
 * without ANY_LAYOUT included (2.7.4.3).  Numbers are little-endian, but in the
 * guest's order on a legacy device (5.2.6.3).
 *
 * Trust.  The configuration is checked before use: invalid values are replaced
 * by the default, or the driver does not attach; a message names it.  The
 * status byte is set to a value that no device may answer before each request,
 * so that a device which did not write it is noticed; it decides.  Used lengths
 * are wrong on legacy devices (2.7.8.1) and on modern ones: Firecracker until
 * 2020 and Cloud Hypervisor until 2026 left out the status byte.  A used length
 * of a modern device that is less than what it has to write is counted, and
 * only with hw.virtio.strict_lengths is it a protocol violation.
 *
 * Locking: pv_blk's.  vtb_cache_lock makes a change of the cache mode and of
 * pv_blk's flag atomic; it may be held for a sleep, and comes before pv_blk's.
 * vtb_attached is written by attach and detach, which the bus serialises
 * against the configuration task by virtio_free_queues().
 *
 * Queues.  With MQ there is a queue for each CPU, as far as the device has as
 * many; without, one (5.2.2).  One that is broken or stuck is reset alone by
 * RING_RESET, if the user says that the device may be relied on there: QEMU 7.2
 * goes on with the requests of a queue that was reset, and answers them in the
 * new ring, where 2.6.1 has it forget them.  Their memory may be in use for
 * something else by then.
 *
 * Deleting.  BIO_DELETE is one command, the first of these that there is:
 * SECURE_ERASE if the user requires it, DISCARD, WRITE_ZEROES where it may
 * unmap.  The features of the other two are not negotiated, so that a device
 * need not prepare for them.  Each has limits of its own for a range and for
 * how many there may be in a request (5.2.6), of which no more than
 * VTBLK_RANGES_MAX are used.
 *
 * Gaps: no zone commands, see vtblk_check_zones().
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/limits.h>
#include <sys/module.h>
#include <sys/sysctl.h>

#include <dev/pv/pv_cpu.h>
#include <dev/pv/pv_log.h>
#include <dev/virtio/virtqueue.h>
#include <dev/virtio/block/virtio_blk_var.h>

#define	VTBLK_REQS_MAX		128	/* of the only queue */
#define	VTBLK_REQS_MQ		64	/* of each of several */
#define	VTBLK_RANGES_MAX	16	/* of a request that deletes */
#define	VTBLK_SIZE_TRIES	10
#define	VTBLK_IDLE_SECS	1	/* a suspend waits for what is in flight */

enum {
	VTBLK_NO_IDENT = PV_BLK_NTUNABLES,
	VTBLK_WRITECACHE_MODE,
	VTBLK_NUM_QUEUES,
	VTBLK_SECURE_DELETE,
	VTBLK_QUEUE_RESET,
};

static struct pv_tunable vtblk_tunables[] = {
	PV_BLK_TUNABLES,
	[VTBLK_NO_IDENT] = PV_TUNABLE("no_ident", 0, 0, 1, PVT_DEVICE,
	    "Do not read the identification of disks"),
	[VTBLK_WRITECACHE_MODE] = PV_TUNABLE("writecache_mode", -1, -1, 1,
	    PVT_DEVICE,
	    "Write cache mode of disks that have a choice: 0 write-through, 1 write-back, "
	    "-1 unchanged"),
	[VTBLK_NUM_QUEUES] = PV_TUNABLE("num_queues", 0, 0, PV_BLK_QUEUES_MAX,
	    PVT_DEVICE, "Maximum number of queues of a disk; 0: one per CPU"),
	[VTBLK_SECURE_DELETE] = PV_TUNABLE("secure_delete", 0, 0, 1, PVT_DEVICE,
	    "Have deleted blocks made unreadable by devices that can"),
	[VTBLK_QUEUE_RESET] = PV_TUNABLE("queue_reset", -1, -1, 1, PVT_DEVICE,
	    "Reset a broken queue alone; -1: not in QEMU, which goes on with its requests"),
};
PV_TUNABLES(vtblk_tunables, hw, "vtblk", vtblk_tunables,
    "VirtIO block devices");

static int
vtblk_tunable(const struct vtblk_softc *sc, u_int which)
{
	return (pv_tunable_get(&vtblk_tunables[which], sc->vtb_dev));
}

/*
 * A disk whose zones the host has to write in order is of no use to FreeBSD: no
 * file system or class of GEOM does so.  Reading it as any other disk would be
 * right, writing it would not.  One that is host-aware, or that manages its
 * zones itself, takes writes in any order (5.2.4), without ZONED.
 */
static int
vtblk_check_zones(device_t dev)
{
	struct vtblk_softc *sc = device_get_softc(dev);
	uint32_t sectors = 0;
	uint8_t model;

	if (VTBLK_CONFIG(sc, zoned.model, &model) != 0 ||
	    model == VIRTIO_BLK_Z_NONE || model == VIRTIO_BLK_Z_HA)
		return (0);
	(void)VTBLK_CONFIG(sc, zoned.zone_sectors, &sectors);
	if (model == VIRTIO_BLK_Z_HM)
		device_printf(dev,
		    "host-managed zones (of %u sectors) are not supported: give the "
		    "guest a disk that is conventional or host-aware\n",
		    sectors);
	else
		device_printf(dev,
		    "invalid zone model %u: the disk can't be used\n", model);
	return (ENXIO);
}

static const struct virtio_feature vtblk_features[] = {
	/*
	 * It orders and does not flush, and only SHOULD do the former
	 * (5.2.6.3): pv_blk does it.
	 */
	{ VIRTIO_BLK_F_BARRIER,		"BARRIER",	VIRTIO_FEATURE_OFF },
	{ VIRTIO_BLK_F_SCSI,		"SCSI",		VIRTIO_FEATURE_OFF },
	{ VIRTIO_BLK_F_SIZE_MAX,	"SIZE_MAX",	0 },
	{ VIRTIO_BLK_F_SEG_MAX,		"SEG_MAX",	0 },
	{ VIRTIO_BLK_F_GEOMETRY,	"GEOMETRY",	0 },
	{ VIRTIO_BLK_F_RO,		"RO",		0 },
	{ VIRTIO_BLK_F_BLK_SIZE,	"BLK_SIZE",	0 },
	{ VIRTIO_BLK_F_FLUSH,		"FLUSH",	0 },
	{ VIRTIO_BLK_F_TOPOLOGY,	"TOPOLOGY",	0 },
	{ VIRTIO_BLK_F_CONFIG_WCE,	"CONFIG_WCE",	0 },
	{ VIRTIO_BLK_F_MQ,		"MQ",		0 },
	{ VIRTIO_BLK_F_DISCARD,		"DISCARD",	0 },
	{ VIRTIO_BLK_F_WRITE_ZEROES,	"WRITE_ZEROES",	0 },
	{ VIRTIO_BLK_F_LIFETIME,	"LIFETIME",	0 },
	{ VIRTIO_BLK_F_SECURE_ERASE,	"SECURE_ERASE",	0 },
	{ VIRTIO_F_RING_RESET,		"RING_RESET",	0 },
	{ VIRTIO_BLK_F_ZONED,		"ZONED",	VIRTIO_FEATURE_OFF,
	    vtblk_check_zones },
	{ 0, NULL, 0 }
};

/* Reads the capacity in bytes.  ENXIO, with a message, if it can't be one. */
static int
vtblk_capacity(struct vtblk_softc *sc, uint64_t *bytes)
{
	uint64_t sectors;
	int error;

	error = VTBLK_CONFIG(sc, capacity, &sectors);
	if (error != 0) {
		/* A device can have us read as often as it likes. */
		if (PV_LOGS(++sc->vtb_bad_configs))
			device_printf(sc->vtb_dev,
			    "can't read the capacity, error %d\n", error);
		return (error);
	}
	if (sectors > OFF_MAX / VIRTIO_BLK_SECTOR_SIZE ||
	    sectors * VIRTIO_BLK_SECTOR_SIZE < sc->vtb_params.bp_sectorsize) {
		if (PV_LOGS(++sc->vtb_bad_configs))
			device_printf(sc->vtb_dev,
			    "invalid capacity, %ju sectors: the disk "
			    "can't be used\n", (uintmax_t)sectors);
		return (ENXIO);
	}
	*bytes = rounddown2(sectors * VIRTIO_BLK_SECTOR_SIZE,
	    sc->vtb_params.bp_sectorsize);
	return (0);
}

/*
 * 5.2.4: blk_size is a hint for the best block size; sectors stay units of 512
 * bytes.
 */
static void
vtblk_read_blk_size(struct vtblk_softc *sc)
{
	uint32_t size;

	sc->vtb_params.bp_sectorsize = VIRTIO_BLK_SECTOR_SIZE;
	if ((sc->vtb_features & VIRTIO_BLK_F_BLK_SIZE) == 0 ||
	    VTBLK_CONFIG(sc, blk_size, &size) != 0)
		return;
	if (!powerof2(size) || size < VIRTIO_BLK_SECTOR_SIZE ||
	    size > maxphys) {
		device_printf(sc->vtb_dev,
		    "invalid block size (blk_size %u): using %u\n", size,
		    VIRTIO_BLK_SECTOR_SIZE);
		return;
	}
	sc->vtb_params.bp_sectorsize = size;
}

/*
 * Without SEG_MAX a device promises one data segment, without SIZE_MAX one of
 * any size.
 */
static void
vtblk_read_limits(struct vtblk_softc *sc)
{
	struct pv_blk_params *bp = &sc->vtb_params;
	uint32_t segs, size;

	bp->bp_max_segs = 1;
	if ((sc->vtb_features & VIRTIO_BLK_F_SEG_MAX) != 0 &&
	    VTBLK_CONFIG(sc, seg_max, &segs) == 0) {
		if (segs == 0)
			device_printf(sc->vtb_dev,
			    "invalid number of segments (seg_max 0): "
			    "using 1\n");
		bp->bp_max_segs = MAX(segs, 1);
	}
	bp->bp_max_segs = MIN(bp->bp_max_segs, maxphys / PAGE_SIZE + 1);
	bp->bp_seg_size = maxphys;
	bp->bp_phys = !virtio_has(sc->vtb_dev, VIRTIO_F_ACCESS_PLATFORM);
	if ((sc->vtb_features & VIRTIO_BLK_F_SIZE_MAX) != 0 &&
	    VTBLK_CONFIG(sc, size_max, &size) == 0) {
		if (size == 0)
			device_printf(sc->vtb_dev,
			    "invalid size of a segment (size_max 0): "
			    "using %u\n", bp->bp_sectorsize);
		bp->bp_seg_size = MIN(bp->bp_seg_size,
		    size == 0 ? bp->bp_sectorsize : size);
	}
}

/* Ways to delete, the best first. */
static const struct vtblk_delete {
	uint64_t	feature;
	uint32_t	type;
	uint32_t	flags;
	uint16_t	max_sectors;	/* where these are in
					 * the configuration */
	uint16_t	max_seg;
	uint16_t	alignment;	/* 0: there is none */
} vtblk_deletes[] = {
	{ VIRTIO_BLK_F_SECURE_ERASE, VIRTIO_BLK_T_SECURE_ERASE, 0,
	    offsetof(struct virtio_blk_config, max_secure_erase_sectors),
	    offsetof(struct virtio_blk_config, max_secure_erase_seg),
	    offsetof(struct virtio_blk_config, secure_erase_sector_alignment) },
	{ VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_T_DISCARD, 0,
	    offsetof(struct virtio_blk_config, max_discard_sectors),
	    offsetof(struct virtio_blk_config, max_discard_seg),
	    offsetof(struct virtio_blk_config, discard_sector_alignment) },
	{ VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_T_WRITE_ZEROES,
	    VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
	    offsetof(struct virtio_blk_config, max_write_zeroes_sectors),
	    offsetof(struct virtio_blk_config, max_write_zeroes_seg), 0 },
};

/* Is this way of any use? */
static bool
vtblk_can_delete(struct vtblk_softc *sc, const struct vtblk_delete *vd)
{
	uint8_t unmap = 1;

	if ((sc->vtb_features & vd->feature) == 0)
		return (false);
	/*
	 * Writing zeroes to blocks that are not needed any more is of no use.
	 */
	return (vd->type != VIRTIO_BLK_T_WRITE_ZEROES ||
	    (VTBLK_CONFIG(sc, write_zeroes_may_unmap, &unmap) == 0 &&
	    unmap != 0));
}

/*
 * Negotiates, and once more without the ways to delete that turn out not to be
 * needed.
 */
static int
vtblk_negotiate(struct vtblk_softc *sc)
{
	struct virtio_feature table[nitems(vtblk_features)];
	uint64_t surplus = 0, wanted = 0;
	u_int i;
	int error;

	memcpy(table, vtblk_features, sizeof(table));
	if (vtblk_tunable(sc, VTBLK_SECURE_DELETE) == 0)
		surplus = VIRTIO_BLK_F_SECURE_ERASE;
	if (!virtio_resets_busy_queues(sc->vtb_dev,
	    vtblk_tunable(sc, VTBLK_QUEUE_RESET)))
		surplus |= VIRTIO_F_RING_RESET;
	for (;;) {
		for (i = 0; i < nitems(table); i++)
			if ((table[i].vf_mask & surplus) != 0)
				table[i].vf_flags = VIRTIO_FEATURE_OFF;
		error = virtio_negotiate(sc->vtb_dev, table, &sc->vtb_features);
		if (error != 0)
			return (error);
		for (i = 0; i < nitems(vtblk_deletes); i++) {
			if (wanted == 0 &&
			    vtblk_can_delete(sc, &vtblk_deletes[i]))
				wanted = vtblk_deletes[i].feature;
			if (vtblk_deletes[i].feature != wanted)
				surplus |= vtblk_deletes[i].feature;
		}
		if ((sc->vtb_features & surplus) == 0)
			return (0);
	}
}

static void
vtblk_read_delete(struct vtblk_softc *sc)
{
	struct pv_blk_params *bp = &sc->vtb_params;
	uint32_t align = 1, ranges, sectors;
	const struct vtblk_delete *vd;
	u_int i;

	for (i = 0; i < nitems(vtblk_deletes); i++) {
		vd = &vtblk_deletes[i];
		if ((sc->vtb_features & vd->feature) == 0 ||
		    virtio_read_config(sc->vtb_dev, vd->max_sectors, &sectors,
		    4) != 0 || virtio_read_config(sc->vtb_dev, vd->max_seg,
		    &ranges, 4) != 0 || ranges == 0)
			continue;
		if (vd->alignment != 0)
			(void)virtio_read_config(sc->vtb_dev, vd->alignment,
			    &align, 4);
		sc->vtb_delete_type = vd->type;
		sc->vtb_delete_flags = vd->flags;
		bp->bp_delete_size = (uint64_t)sectors * VIRTIO_BLK_SECTOR_SIZE;
		bp->bp_delete_align = (uint64_t)align * VIRTIO_BLK_SECTOR_SIZE;
		bp->bp_delete_ranges = MIN(ranges, VTBLK_RANGES_MAX);
		return;
	}
}

/*
 * The best boundaries of requests, what is told of the storage before what is
 * told of its use.
 */
static void
vtblk_read_topology(struct vtblk_softc *sc)
{
	struct pv_blk_params *bp = &sc->vtb_params;
	uint8_t align = 0, exp = 0, heads, sectors;
	uint32_t opt_io = 0;
	uint16_t min_io = 0;

	if ((sc->vtb_features & VIRTIO_BLK_F_TOPOLOGY) != 0 &&
	    (VTBLK_CONFIG(sc, topology.physical_block_exp, &exp) != 0 ||
	    VTBLK_CONFIG(sc, topology.alignment_offset, &align) != 0 ||
	    VTBLK_CONFIG(sc, topology.min_io_size, &min_io) != 0 ||
	    VTBLK_CONFIG(sc, topology.opt_io_size, &opt_io) != 0))
		align = exp = min_io = opt_io = 0;
	sc->vtb_min_io_size = (uint64_t)min_io * bp->bp_sectorsize;
	sc->vtb_opt_io_size = (uint64_t)opt_io * bp->bp_sectorsize;
	if (exp < 16)
		pv_blk_set_stripe(bp, (uint64_t)bp->bp_sectorsize << exp,
		    (uint64_t)align * bp->bp_sectorsize);
	if (bp->bp_delete_size != 0)
		pv_blk_set_stripe(bp, bp->bp_delete_align, bp->bp_delete_first);
	pv_blk_set_stripe(bp, sc->vtb_opt_io_size,
	    (uint64_t)align * bp->bp_sectorsize);
	pv_blk_set_stripe(bp, sc->vtb_min_io_size,
	    (uint64_t)align * bp->bp_sectorsize);
	if ((sc->vtb_features & VIRTIO_BLK_F_GEOMETRY) != 0 &&
	    VTBLK_CONFIG(sc, geometry.heads, &heads) == 0 &&
	    VTBLK_CONFIG(sc, geometry.sectors, &sectors) == 0) {
		bp->bp_fwheads = heads;
		bp->bp_fwsectors = sectors;
	}
}

static int
vtblk_read_config(struct vtblk_softc *sc)
{
	struct pv_blk_params *bp = &sc->vtb_params;

	bp->bp_diskname = "vtbd";
	bp->bp_descr = "VirtIO block device";
	bp->bp_tunables = vtblk_tunables;
	bp->bp_idle_secs = VTBLK_IDLE_SECS;
	if (vtblk_tunable(sc, VTBLK_NO_IDENT) == 0)
		bp->bp_ident_size = VIRTIO_BLK_ID_BYTES;
	if ((sc->vtb_features & VIRTIO_BLK_F_RO) != 0)
		bp->bp_flags |= PV_BLK_READONLY;
	/*
	 * 5.2.5.2: a choice of cache modes implies the command, on legacy
	 * devices too.
	 */
	if ((sc->vtb_features & (VIRTIO_BLK_F_FLUSH |
	    VIRTIO_BLK_F_CONFIG_WCE)) != 0)
		bp->bp_flags |= PV_BLK_CACHED;
	if ((sc->vtb_features & VIRTIO_F_RING_RESET) != 0)
		bp->bp_flags |= PV_BLK_QUEUE_RESET;
	vtblk_read_blk_size(sc);
	vtblk_read_limits(sc);
	vtblk_read_delete(sc);
	vtblk_read_topology(sc);
	bp->bp_msgsize = roundup2(offsetof(struct vtblk_msg,
	    ranges) + bp->bp_delete_ranges *
	    sizeof(struct virtio_blk_discard_write_zeroes),
	    __alignof(struct vtblk_msg));
	return (vtblk_capacity(sc, &bp->bp_mediasize));
}

/* How many queues does the device have? */
static u_int
vtblk_read_num_queues(struct vtblk_softc *sc)
{
	uint16_t n;

	if ((sc->vtb_features & VIRTIO_BLK_F_MQ) == 0 ||
	    VTBLK_CONFIG(sc, num_queues, &n) != 0)
		return (1);
	if (n == 0)
		device_printf(sc->vtb_dev,
		    "invalid number of queues (num_queues 0): using 1\n");
	return (MAX(n, 1));
}

/* Requests are made for the smallest queue. */
static int
vtblk_check_queues(struct vtblk_softc *sc)
{
	struct pv_blk_params *bp = &sc->vtb_params;
	const struct pvq *q;
	u_int i;

	sc->vtb_strict = virtqueue_strict_lengths(sc->vtb_queues[0]);
	bp->bp_nreqs = bp->bp_nqueues == 1 ? VTBLK_REQS_MAX : VTBLK_REQS_MQ;
	for (i = 0; i < sc->vtb_nqueues; i++) {
		q = sc->vtb_queues[i];
		/* The header and the status take a segment each. */
		if (q->q_max_segs < 3) {
			device_printf(sc->vtb_dev,
			    "queue %u holds %u segments, a request needs 3\n",
			    i, q->q_max_segs);
			return (ENXIO);
		}
		bp->bp_max_segs = MIN(bp->bp_max_segs, q->q_max_segs - 2u);
		bp->bp_nreqs = MIN(bp->bp_nreqs, q->q_size);
	}
	bp->bp_fast_segs = MIN(bp->bp_max_segs, VTBLK_FAST_SEGS);
	if (!bp->bp_phys ||
	    !virtqueue_takes_tables(sc->vtb_queues[0], bp->bp_fast_segs + 2))
		bp->bp_fast_segs = 0;
	return (0);
}

static void
vtblk_spec_queues(struct vtblk_softc *sc, struct virtio_queue_spec *specs)
{
	const struct pv_blk_params *bp = &sc->vtb_params;
	const u_int n = bp->bp_nqueues;
	struct pvq_spec *pqs;
	u_int i;

	bzero(specs, n * sizeof(*specs));
	for (i = 0; i < n; i++) {
		pqs = &specs[i].vqs_spec;
		strlcpy(pqs->pqs_name, "requestq", sizeof(pqs->pqs_name));
		if (n > 1)
			snprintf(pqs->pqs_name, sizeof(pqs->pqs_name),
			    "requestq%u", i);
		snprintf(pqs->pqs_descr, sizeof(pqs->pqs_descr), "req%u", i);
		pqs->pqs_max_segs = bp->bp_max_segs + 2;
		/* Tables for the longest would be 1 MB. */
		specs[i].vqs_table_segs = VTBLK_FAST_SEGS + 2;
		pqs->pqs_cpu = pv_queue_cpu(i, n);
		pqs->pqs_intr = pv_blk_intr;
		pqs->pqs_arg = &sc->vtb_blk.blk_queues[i];
		pqs->pqs_pvq = &sc->vtb_queues[i];
	}
}

/* All queues, or as many as there is memory for. */
static int
vtblk_alloc_queues(struct vtblk_softc *sc)
{
	struct virtio_queue_spec specs[PV_BLK_QUEUES_MAX];
	u_int i, n;
	int error;

	n = pv_blk_nqueues(vtblk_read_num_queues(sc),
	    vtblk_tunable(sc, VTBLK_NUM_QUEUES));
	sc->vtb_params.bp_nqueues = sc->vtb_nqueues = n;
	vtblk_spec_queues(sc, specs);
	for (;;) {
		error = virtio_alloc_queues(sc->vtb_dev, specs, n,
		    INTR_TYPE_BIO);
		if (error != ENOMEM || sc->vtb_nqueues == 1)
			break;
		sc->vtb_nqueues /= 2;
		for (i = sc->vtb_nqueues; i < n; i++)
			specs[i].vqs_spec.pqs_pvq = NULL;
	}
	return (error != 0 ? error : vtblk_check_queues(sc));
}

/*
 * Is there a volatile cache in use?  5.2.5.1: without a choice, FLUSH implies
 * it.
 */
static int
vtblk_get_writecache(struct vtblk_softc *sc)
{
	uint8_t on;

	if ((sc->vtb_features & VIRTIO_BLK_F_CONFIG_WCE) != 0 &&
	    VTBLK_CONFIG(sc, writeback, &on) == 0)
		return (on != 0);
	return ((sc->vtb_features & VIRTIO_BLK_F_FLUSH) != 0);
}

/* Is the cache mode what was written?  EOPNOTSUPP, with a message, if not. */
static int
vtblk_write_writecache(struct vtblk_softc *sc, uint8_t on)
{
	int error;

	error = virtio_write_config(sc->vtb_dev,
	    offsetof(struct virtio_blk_config, writeback), &on, sizeof(on));
	if (error == 0 && vtblk_get_writecache(sc) != on)
		error = EOPNOTSUPP;
	/*
	 * A device can have us reset it, and write the mode, as often as it
	 * likes.
	 */
	if (error != 0 && PV_LOGS(++sc->vtb_refused_modes))
		device_printf(sc->vtb_dev,
		    "can't set the write cache mode to %s, error %d\n",
		    on ? "write-back" : "write-through", error);
	return (error);
}

/* A reset sets the cache mode back to the device's own (5.2.5). */
static void
vtblk_apply_writecache(void *arg)
{
	struct pv_blk *blk = arg;
	struct vtblk_softc *sc = __containerof(blk, struct vtblk_softc,
	    vtb_blk);
	int on;

	if ((sc->vtb_features & VIRTIO_BLK_F_CONFIG_WCE) == 0)
		return;
	sx_xlock(&sc->vtb_cache_lock);
	on = !blk->blk_through;
	if (vtblk_get_writecache(sc) != on &&
	    vtblk_write_writecache(sc, on) != 0 &&
	    vtblk_get_writecache(sc) != 0)
		pv_blk_set_writethrough(blk, false);
	sx_xunlock(&sc->vtb_cache_lock);
}

/*
 * Sets the cache mode of a disk in use.  Flushes reach the device whenever it
 * may cache: before it is set to write back, and until it was flushed after
 * that (5.2.6.1: writing 0 commits nothing).
 */
static int
vtblk_set_writecache(struct vtblk_softc *sc, bool on)
{
	int error;

	if ((sc->vtb_features & VIRTIO_BLK_F_CONFIG_WCE) == 0)
		return (EOPNOTSUPP);
	sx_xlock(&sc->vtb_cache_lock);
	if (on)
		pv_blk_set_writethrough(&sc->vtb_blk, false);
	error = vtblk_write_writecache(sc, on);
	if (vtblk_get_writecache(sc) == 0)
		pv_blk_end_caching(&sc->vtb_blk);
	sx_xunlock(&sc->vtb_cache_lock);
	return (error);
}

static int
vtblk_sysctl_writecache(SYSCTL_HANDLER_ARGS)
{
	struct vtblk_softc *sc = arg1;
	int error, mode;

	mode = vtblk_get_writecache(sc);
	error = pv_sysctl_int(oidp, req, &mode, 0, 1);
	if (error != 0 || req->newptr == NULL)
		return (error);
	return (vtblk_set_writecache(sc, mode != 0));
}

/*
 * In a context of our own, so that it is removed before what its handlers use.
 */
static void
vtblk_sysctl(struct vtblk_softc *sc)
{
	struct sysctl_ctx_list *ctx = &sc->vtb_sysctl;
	struct sysctl_oid_list *top =
	    SYSCTL_CHILDREN(device_get_sysctl_tree(sc->vtb_dev));

	sysctl_ctx_init(ctx);
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO, "writecache_mode", CTLTYPE_INT |
	    CTLFLAG_RW | CTLFLAG_MPSAFE, sc, 0, vtblk_sysctl_writecache, "I",
	    "Write cache mode: 0 write-through, 1 write-back");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "config_changes", CTLFLAG_RD, &sc->vtb_config_changes, 0,
	    "Times that the configuration was looked at for a change");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "bad_configs", CTLFLAG_RD, &sc->vtb_bad_configs, 0,
	    "Capacities that were invalid, or could not be read");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "refused_modes", CTLFLAG_RD, &sc->vtb_refused_modes, 0,
	    "Times that the device refused a write cache mode");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "min_io_size", CTLFLAG_RD, &sc->vtb_min_io_size, 0,
	    "Bytes of an access at least, as the device suggests; 0: it does not");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "opt_io_size", CTLFLAG_RD, &sc->vtb_opt_io_size, 0,
	    "Bytes of the best access, as the device suggests; 0: it does not");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "short_lengths", CTLFLAG_RD, &sc->vtb_short_lengths, 0,
	    "Completions whose used length is less than what the device has to write");
	vtblk_sysctl_lifetime(sc);
}

static int
vtblk_stop(struct pv_blk *blk)
{
	return (virtio_quiesce(blk->blk_dev));
}

static int
vtblk_stop_queue(struct pv_blk *blk, u_int index)
{
	return (virtio_stop_queue(blk->blk_dev, index));
}

static int
vtblk_restart_queue(struct pv_blk *blk, u_int index)
{
	return (virtio_restart_queue(blk->blk_dev, index));
}

/*
 * Read the size.  Attach, a restart and the configuration task may do this at
 * the same time: whichever is the last to change the disk reads here once more
 * that the size is still the same.
 */
static void
vtblk_update_size(struct vtblk_softc *sc)
{
	uint64_t bytes, last = 0;
	u_int tries;

	for (tries = 0; tries < VTBLK_SIZE_TRIES; tries++) {
		if (vtblk_capacity(sc, &bytes) != 0 || bytes == last)
			return;
		pv_blk_resize(&sc->vtb_blk, bytes);
		last = bytes;
	}
}

/* A change is not notified while the device is stopped. */
static void
vtblk_apply_size(void *arg)
{
	struct pv_blk *blk = arg;

	vtblk_update_size(__containerof(blk, struct vtblk_softc, vtb_blk));
}

static void (*const vtblk_settings[])(void *) = {
	vtblk_apply_writecache,
	vtblk_apply_size,
	NULL
};

/*
 * Is there memory for all queues now?  They are there then, for the next
 * restart.
 */
static bool
vtblk_has_more(struct pv_blk *blk)
{
	struct vtblk_softc *sc = __containerof(blk, struct vtblk_softc,
	    vtb_blk);
	struct virtio_queue_spec specs[PV_BLK_QUEUES_MAX];
	int error;

	vtblk_spec_queues(sc, specs);
	error = virtio_spare_queues(sc->vtb_dev, specs,
	    sc->vtb_params.bp_nqueues);
	/* The device has no such queues. */
	if (error == ENXIO)
		pv_dev_set_short(&blk->blk_pvdev, PV_DEV_QUEUES,
		    sc->vtb_nqueues, sc->vtb_nqueues);
	return (error == 0);
}

/*
 * Use all queues that there are now, as far as they take the requests of the
 * first ones.
 */
static void
vtblk_use_more(struct vtblk_softc *sc)
{
	struct pv_blk *blk = &sc->vtb_blk;
	const struct pv_blk_params *bp = &blk->blk_params;
	const struct pvq *q;
	u_int n;

	if (!pv_dev_is_short(&blk->blk_pvdev, PV_DEV_QUEUES) ||
	    (blk->blk_flags & PVB_DUMPING) != 0 ||
	    sc->vtb_queues[bp->bp_nqueues - 1] == NULL)
		return;
	for (n = sc->vtb_nqueues; n < bp->bp_nqueues; n++) {
		q = sc->vtb_queues[n];
		if (q->q_max_segs < bp->bp_max_segs + 2 ||
		    (bp->bp_fast_segs != 0 &&
		    !virtqueue_takes_tables(q, bp->bp_fast_segs + 2)))
			break;
	}
	sc->vtb_nqueues = n;
	pv_blk_set_queues(blk, sc->vtb_queues, n);
	/* The others, if there are any, are too small for good. */
	pv_dev_set_short(&blk->blk_pvdev, PV_DEV_QUEUES, n, n);
}

static int
vtblk_restart(struct pv_blk *blk)
{
	int error;

	error = virtio_restart(blk->blk_dev);
	if (error != 0)
		return (error);
	vtblk_use_more(__containerof(blk, struct vtblk_softc, vtb_blk));
	virtio_start(blk->blk_dev);
	return (0);
}

static const struct pv_blk_ops vtblk_ops = {
	.bo_encode = vtblk_encode,
	.bo_post = vtblk_post,
	.bo_status = vtblk_status,
	.bo_stop = vtblk_stop,
	.bo_restart = vtblk_restart,
	.bo_stop_queue = vtblk_stop_queue,
	.bo_restart_queue = vtblk_restart_queue,
	.bo_settings = vtblk_settings,
	.bo_has_more = vtblk_has_more,
};

/* Undoes attach from wherever it got to. */
static void
vtblk_teardown(struct vtblk_softc *sc)
{
	if (sc->vtb_attached) {
		sc->vtb_attached = false;
		sysctl_ctx_free(&sc->vtb_sysctl);
		pv_blk_detach(&sc->vtb_blk);
	}
	(void)virtio_quiesce(sc->vtb_dev);
	virtio_free_queues(sc->vtb_dev);
	if (sc->vtb_initialised) {
		sc->vtb_initialised = false;
		pv_blk_fini(&sc->vtb_blk);
		sx_destroy(&sc->vtb_cache_lock);
	}
}

static int
vtblk_init(struct vtblk_softc *sc)
{
	int error, mode;

	sx_init(&sc->vtb_cache_lock, device_get_nameunit(sc->vtb_dev));
	error = pv_blk_init(&sc->vtb_blk, sc->vtb_dev, &vtblk_ops,
	    &sc->vtb_params);
	if (error != 0) {
		sx_destroy(&sc->vtb_cache_lock);
		return (error);
	}
	sc->vtb_initialised = true;
	pv_dev_set_short(&sc->vtb_blk.blk_pvdev, PV_DEV_QUEUES, sc->vtb_nqueues,
	    sc->vtb_params.bp_nqueues);
	mode = vtblk_tunable(sc, VTBLK_WRITECACHE_MODE);
	if ((sc->vtb_features & VIRTIO_BLK_F_CONFIG_WCE) != 0 &&
	    (mode == 0 || mode == 1))
		(void)vtblk_write_writecache(sc, mode);
	pv_blk_set_writethrough(&sc->vtb_blk, vtblk_get_writecache(sc) == 0);
	return (0);
}

/* The device has a new size, or requests a reset. */
static void
vtblk_check_config(struct vtblk_softc *sc)
{
	if (virtio_needs_reset(sc->vtb_dev))
		pv_dev_need_reset(&sc->vtb_blk.blk_pvdev, PV_DEV_ALL,
		    ETIMEDOUT);
	else
		vtblk_update_size(sc);
}

static int
vtblk_attach(device_t dev)
{
	struct vtblk_softc *sc = device_get_softc(dev);
	int error;

	sc->vtb_dev = dev;
	sc->vtb_modern = virtio_get_modern(dev) != 0;
	error = vtblk_negotiate(sc);
	if (error == 0)
		error = vtblk_read_config(sc);
	if (error == 0)
		error = vtblk_alloc_queues(sc);
	if (error == 0)
		error = vtblk_init(sc);
	if (error == 0) {
		virtio_start(dev);
		error = pv_blk_attach(&sc->vtb_blk, sc->vtb_queues,
		    sc->vtb_nqueues);
	}
	if (error != 0) {
		vtblk_teardown(sc);
		return (error);
	}
	vtblk_sysctl(sc);
	sc->vtb_attached = true;
	/*
	 * The size was read before the device was live, and notifications were
	 * ignored until now.  The fence keeps the configuration from being read
	 * before the task can see the above.
	 */
	atomic_thread_fence_seq_cst();
	vtblk_check_config(sc);
	return (0);
}

static int
vtblk_detach(device_t dev)
{
	int error;

	error = virtio_leave(dev);
	if (error != 0)
		return (error);
	vtblk_teardown(device_get_softc(dev));
	return (0);
}

/*
 * kldunload and devctl detach without force call this first: not while the disk
 * is open.
 */
static int
vtblk_quiesce(device_t dev)
{
	struct vtblk_softc *sc = device_get_softc(dev);

	return (sc->vtb_attached ? pv_blk_quiesce(&sc->vtb_blk) : 0);
}

static int
vtblk_suspend(device_t dev)
{
	struct vtblk_softc *sc = device_get_softc(dev);

	return (pv_dev_freeze(&sc->vtb_blk.blk_pvdev));
}

static int
vtblk_resume(device_t dev)
{
	struct vtblk_softc *sc = device_get_softc(dev);

	return (pv_dev_thaw(&sc->vtb_blk.blk_pvdev));
}

static int
vtblk_config_change(device_t dev)
{
	struct vtblk_softc *sc = device_get_softc(dev);

	if (!sc->vtb_attached)
		return (0);
	sc->vtb_config_changes++;
	vtblk_check_config(sc);
	return (0);
}

static device_method_t vtblk_methods[] = {
	DEVMETHOD(device_probe,		virtio_probe),
	DEVMETHOD(device_attach,	vtblk_attach),
	DEVMETHOD(device_detach,	vtblk_detach),
	DEVMETHOD(device_quiesce,	vtblk_quiesce),
	DEVMETHOD(device_suspend,	vtblk_suspend),
	DEVMETHOD(device_resume,	vtblk_resume),

	DEVMETHOD(virtio_config_changed,	vtblk_config_change),

	DEVMETHOD_END
};

static driver_t vtblk_driver = {
	"vtblk",
	vtblk_methods,
	sizeof(struct vtblk_softc)
};

VIRTIO_DRIVER_MODULE(virtio_blk, vtblk_driver, VIRTIO_ID_BLOCK,
    "VirtIO block device");
VIRTIO_DRIVER_DEPENDS(virtio_blk);
MODULE_DEPEND(pv_virtio_blk, pv_blk, 1, 1, 1);
