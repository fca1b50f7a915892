/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * virtio_blk on the model of a transport: what it makes of a device's features and configuration, its
 * requests on the wire, and what it makes of the answers.  The disk above it is pv_blk's own.
 *
 * Nothing runs by itself: the test is the device, GEOM, the taskqueue and the clock.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>
#include <sys/pcpu.h>
#include <sys/proc.h>

#include <geom/geom_disk.h>

#include <dev/pv/blk/pv_blk_var.h>
#include <dev/virtio/block/virtio_blk.c>

#include "host/host.h"
#include "kpi/disk.h"
#include "kpi/kpi.h"
#include "kpi/sched.h"
#include "model/disk_user.h"
#include "model/peer.h"
#include "model/transport.h"

#define	KB		1024
#define	MODERN_RING	(VIRTIO_F_INDIRECT_DESC | VIRTIO_F_EVENT_IDX)
#define	DELETES		(VIRTIO_BLK_F_DISCARD | VIRTIO_BLK_F_WRITE_ZEROES | VIRTIO_BLK_F_SECURE_ERASE)

/* More than a ring has. */
#define	DV_SEEN		128

/* A request as the device sees it. */
struct wire {
	uint32_t	type;
	uint32_t	reserved;
	uint64_t	sector;
	size_t		len;	/* of data, either way */
	struct peer_chain chain;
};

static struct device {
	struct transport tr;
	struct vtblk_softc sc;
	struct virtio_blk_config *config;
	/* How it answers: a status, none, or a used length that is so many bytes short. */
	uint8_t		 status;
	bool		 answers, writes_no_status, writes_no_life;
	uint32_t	 short_by;
	uint8_t		 writeback;	/* of its own: what a reset sets it to */
	bool		 keeps_mode;	/* and it takes no other */
	struct virtio_blk_lifetime life;
	struct wire	 last;
	struct wire	 seen[TR_QUEUES][DV_SEEN];	/* before it was notified */
	u_int		 nseen[TR_QUEUES];
	struct virtio_blk_discard_write_zeroes ranges[VTBLK_RANGES_MAX];
	u_int		 nranges, nserved;
} dv;

static struct thread thread;

static void
dv_find(struct transport *tr __unused, u_int queue, struct pvq *q)
{
	uint64_t got = dv.tr.tr_accepted;
	u_int i = (got & VIRTIO_F_EVENT_IDX) != 0 ? 4 : (got & VIRTIO_F_INDIRECT_DESC) != 0 ? 2 : 0;

	if (!dv.tr.tr_bus.vb_modern)
		i = i == 0 ? 7 : 8;
	transport_set_peer(&dv.tr, queue, split_peer(&split_impls[i], q));
	dv.nseen[queue] = 0;
	if (queue == 0)
		dv.config->writeback = dv.writeback;
}

static void
dv_written(struct transport *tr __unused, u_int off)
{

	CHECK(off == offsetof(struct virtio_blk_config, writeback), "offset %u is written", off);
	if (dv.keeps_mode)
		dv.config->writeback = dv.writeback;
}

/* Move the data of a request. */
static void
dv_move(struct wire *w, u_char *at, bool in)
{
	struct peer_chain *pr = &w->chain;
	int i, first = in ? pr->pr_nread : 1;
	int end = in ? pr->pr_nread + pr->pr_nwrite - 1 : pr->pr_nread;

	for (i = first; i < end; at += pr->pr_segs[i++].len) {
		void *data = (void *)(uintptr_t)pr->pr_segs[i].addr;

		w->len += pr->pr_segs[i].len;
		if (in)
			memcpy(data, at, pr->pr_segs[i].len);
		else
			memcpy(at, data, pr->pr_segs[i].len);
	}
}

static void
dv_do(struct wire *w)
{
	static u_char ident[VIRTIO_BLK_ID_BYTES] = "serial 12%";
	u_int i;

	CHECK(w->reserved == 0 && w->chain.pr_segs[0].len == sizeof(struct virtio_blk_outhdr),
	    "header");
	CHECK(w->type == VIRTIO_BLK_T_IN || w->type == VIRTIO_BLK_T_OUT || w->sector == 0,
	    "type %u has a sector (5.2.6.1)", w->type);
	switch (w->type) {
	case VIRTIO_BLK_T_IN:
	case VIRTIO_BLK_T_OUT:
		dv_move(w, disk_bytes + w->sector * SECTOR, w->type == VIRTIO_BLK_T_IN);
		break;
	case VIRTIO_BLK_T_GET_ID:
		dv_move(w, ident, true);
		CHECK(w->len == VIRTIO_BLK_ID_BYTES, "%zu bytes", w->len);
		break;
	case VIRTIO_BLK_T_GET_LIFETIME:
		if (dv.writes_no_life)
			break;
		dv_move(w, (u_char *)&dv.life, true);
		CHECK(w->len == sizeof(dv.life), "%zu bytes", w->len);
		break;
	case VIRTIO_BLK_T_DISCARD:
	case VIRTIO_BLK_T_WRITE_ZEROES:
	case VIRTIO_BLK_T_SECURE_ERASE:
		dv_move(w, (u_char *)dv.ranges, false);
		dv.nranges = w->len / sizeof(dv.ranges[0]);
		CHECK(dv.nranges > 0 && w->len % sizeof(dv.ranges[0]) == 0, "%zu bytes", w->len);
		for (i = 0; i < dv.nranges; i++)
			memset(disk_bytes + dv.ranges[i].sector * SECTOR, 0,
			    dv.ranges[i].num_sectors * SECTOR);
		break;
	default:
		CHECK(w->type == VIRTIO_BLK_T_FLUSH && w->chain.pr_nread == 1, "type %u", w->type);
		break;
	}
}

static bool
dv_fetches(u_int queue, struct wire *w)
{
	struct peer *pe = dv.tr.tr_peers[queue];
	const u_char *hdr;

	if (pe == NULL || !dv.tr.tr_enabled[queue] || !pe->pe_ops->po_fetch(pe, &w->chain))
		return (false);
	hdr = (const void *)(uintptr_t)w->chain.pr_segs[0].addr;
	memcpy(&w->type, hdr, 4);
	memcpy(&w->reserved, hdr + 4, 4);
	memcpy(&w->sector, hdr + 8, 8);
	w->len = 0;
	CHECK(w->chain.pr_nwrite >= 1, "no place for a status");
	return (true);
}

/* A device may look at any time, and see a request as soon as its ring shows it. */
static void
dv_looks(void)
{
	u_int i;

	for (i = 0; i < TR_QUEUES; i++) {
		while (dv.nseen[i] < DV_SEEN && dv_fetches(i, &dv.seen[i][dv.nseen[i]]))
			dv.nseen[i]++;
	}
}

/* The next request of a queue; false: there is none. */
static bool
dv_takes(u_int queue, struct wire *w)
{

	if (dv.nseen[queue] == 0 || !dv.tr.tr_enabled[queue])
		return (dv_fetches(queue, w));
	*w = dv.seen[queue][0];
	memmove(&dv.seen[queue][0], &dv.seen[queue][1], --dv.nseen[queue] * sizeof(*w));
	return (true);
}

static void
dv_answers(u_int queue, struct wire *w, uint8_t status)
{
	struct peer *pe = dv.tr.tr_peers[queue];
	struct peer_chain *pr = &w->chain;
	int last = pr->pr_nread + pr->pr_nwrite - 1;

	if (status == VIRTIO_BLK_S_OK)
		dv_do(w);
	CHECK(pr->pr_segs[last].len == 1, "the status has %u bytes", pr->pr_segs[last].len);
	if (!dv.writes_no_status)
		*(uint8_t *)(uintptr_t)pr->pr_segs[last].addr = status;
	pe->pe_ops->po_complete(pe, pr->pr_id, (status == VIRTIO_BLK_S_OK ? pr->pr_wlen : 1) -
	    dv.short_by);
	pe->pe_ops->po_publish(pe);
	dv.nserved++;
}

/* All that there is in a queue. */
static u_int
dv_works(u_int queue)
{
	u_int n;

	for (n = 0; dv_takes(queue, &dv.last); n++)
		dv_answers(queue, &dv.last, dv.status);
	return (n);
}

static void
dv_notified(struct transport *tr __unused, u_int queue)
{

	if (dv.answers)
		(void)dv_works(queue);
	(void)dv.tr.tr_peers[queue]->pe_ops->po_listen(dv.tr.tr_peers[queue]);
}

/* The interrupt of a queue, if it is due. */
static bool
dv_interrupts(u_int queue)
{
	struct peer *pe = dv.tr.tr_peers[queue];

	if (pe == NULL || !dv.tr.tr_enabled[queue] || !pe->pe_ops->po_interrupts(pe))
		return (false);
	CHECK(dv.tr.tr_queue_vector[queue] >= 0, "queue %u has no vector", queue);
	return (kpi_interrupt(&dv.tr.tr_irqs[dv.tr.tr_queue_vector[queue]]));
}

static void
settle(void)
{
	bool more;
	u_int i;

	do {
		more = kpi_run_tasks() > 0;
		for (i = 0; i < TR_QUEUES; i++)
			more = (dv.answers && dv_works(i) > 0) || dv_interrupts(i) || more;
	} while (more);
}

/* A device that has not been attached, of these features besides the ring's. */
static void
device_new(bool modern, uint64_t features)
{
	static struct virtio_blk_config config = {
		.capacity = SECTORS,
		.size_max = 64 * KB,
		.seg_max = 14,
		.geometry = { 2, 3, 4 },
		.blk_size = SECTOR,
		.writeback = 1,
		.num_queues = 3,
		.max_discard_sectors = 64, .max_discard_seg = 4, .discard_sector_alignment = 8,
		.max_write_zeroes_sectors = 128, .max_write_zeroes_seg = 1,
		.write_zeroes_may_unmap = 1,
		.max_secure_erase_sectors = 32, .max_secure_erase_seg = 2,
		.secure_erase_sector_alignment = 4,
	};
	u_int i;

	memset(&dv, 0, sizeof(dv));
	disk_new(settle);
	PCPU_SET(curthread, &thread);
	PCPU_SET(cpuid, 0);
	mp_ncpus = 3;
	/* Without ACCESS_PLATFORM, too: what bus_dma(9) allocated is seen by the device once synced. */
	kpi_bounced = true;
	kpi_dma_crossed = dv_looks;
	dv.answers = true;
	dv.writeback = 1;
	transport_open_for(&dv.tr, modern, (kobj_class_t)&vtblk_driver, &dv.sc);
	dv.config = (void *)dv.tr.tr_config;
	dv.tr.tr_config_size = TR_CONFIG_MAX;
	memset(dv.tr.tr_config, 0, TR_CONFIG_MAX);
	*dv.config = config;
	dv.tr.tr_offered |= features;
	for (i = 0; i < TR_QUEUES; i++)
		dv.tr.tr_sizes[i] = 16;
	dv.tr.tr_at_setup = dv_find;
	dv.tr.tr_at_notify = dv_notified;
	dv.tr.tr_at_write = dv_written;
}

static void
device_attach_ok(void)
{
	int error;

	CHECK(vtblk_quiesce(dv.tr.tr_child) == 0, "in use before it is attached");
	error = vtblk_attach(dv.tr.tr_child);
	CHECK(error == 0, "it does not attach: error %d", error);
	settle();
}

static void
device_begin(uint64_t features)
{

	device_new(true, features);
	device_attach_ok();
}

static void
device_close(void)
{

	CHECK(kpi_callouts == 0 && kpi_run_tasks() == 0, "%d callouts", kpi_callouts);
	transport_close(&dv.tr);
	CHECK(kpi_locks == 0 && kpi_disk == NULL, "%d locks", kpi_locks);
}

static void
device_end(void)
{

	CHECK(vtblk_detach(dv.tr.tr_child) == 0, "it does not detach");
	device_close();
}

/* What is read of a device without features, and with all. */
static void
configuration(const void *arg __unused)
{
	const struct pv_blk_params *bp = &dv.sc.vtb_blk.blk_params;

	device_begin(0);
	CHECK(kpi_disk->d_mediasize == SECTORS * SECTOR && kpi_disk->d_sectorsize == SECTOR &&
	    strcmp(kpi_disk->d_name, "vtbd") == 0 &&
	    strcmp(kpi_disk->d_descr, "VirtIO block device") == 0, "the disk");
	CHECK((kpi_disk->d_flags & (DISKFLAG_CANFLUSHCACHE | DISKFLAG_CANDELETE |
	    DISKFLAG_WRITE_PROTECT)) == 0, "flags 0x%x", kpi_disk->d_flags);
	CHECK((kpi_disk->d_flags & (DISKFLAG_UNMAPPED_BIO | DISKFLAG_DIRECT_COMPLETION)) ==
	    (DISKFLAG_UNMAPPED_BIO | DISKFLAG_DIRECT_COMPLETION) && kpi_disk->d_maxsize == maxphys &&
	    kpi_disk->d_rotation_rate == DISK_RR_UNKNOWN && kpi_disk->d_delmaxsize == 0,
	    "flags 0x%x", kpi_disk->d_flags);
	CHECK(strcmp(kpi_disk->d_ident, "serial 12%25") == 0, "%s", kpi_disk->d_ident);
	CHECK(bp->bp_max_segs == 1 && bp->bp_nqueues == 1 && bp->bp_delete_size == 0 && bp->bp_phys &&
	    bp->bp_nreqs == 16 && bp->bp_seg_size == maxphys && bp->bp_idle_secs == 1, "params");
	CHECK(kpi_disk->d_stripesize == 0 && kpi_disk->d_fwheads == 0, "topology");
	CHECK(kpi_sysctl_value("queues") == 1 && kpi_sysctl_value("writecache_mode") == 0 &&
	    kpi_sysctl_value("min_io_size") == 0, "sysctls");
	io(BIO_WRITE, 5, 4 * KB, 0);
	io(BIO_READ, 5, 4 * KB, 0);
	device_end();
	CHECK(kpi_sysctl_set("writecache_mode", 1) == ENOENT, "the disk is gone");
	device_new(true, VIRTIO_BLK_F_SIZE_MAX | VIRTIO_BLK_F_SEG_MAX | VIRTIO_BLK_F_GEOMETRY |
	    VIRTIO_BLK_F_BLK_SIZE | VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_TOPOLOGY | VIRTIO_BLK_F_MQ |
	    VIRTIO_BLK_F_DISCARD | VIRTIO_BLK_F_BARRIER | VIRTIO_BLK_F_SCSI);
	dv.config->blk_size = 2 * KB;
	dv.config->capacity = SECTORS - 1;
	dv.config->topology.physical_block_exp = 2;
	dv.config->topology.alignment_offset = 1;
	dv.config->topology.min_io_size = 16;
	dv.config->topology.opt_io_size = 32;
	device_attach_ok();
	CHECK((dv.tr.tr_accepted & (VIRTIO_BLK_F_BARRIER | VIRTIO_BLK_F_SCSI)) == 0, "0x%jx",
	    (uintmax_t)dv.tr.tr_accepted);
	/* What is no whole sector is left out. */
	CHECK(kpi_disk->d_sectorsize == 2 * KB && kpi_disk->d_mediasize == (SECTORS - 4) * SECTOR,
	    "the disk");
	CHECK((kpi_disk->d_flags & (DISKFLAG_CANFLUSHCACHE | DISKFLAG_CANDELETE |
	    DISKFLAG_WRITE_PROTECT)) == (DISKFLAG_CANFLUSHCACHE | DISKFLAG_CANDELETE), "flags 0x%x",
	    kpi_disk->d_flags);
	CHECK(bp->bp_max_segs == 14 && bp->bp_seg_size == 64 * KB && bp->bp_nqueues == 3 &&
	    bp->bp_nreqs == 16, "params");
	CHECK(kpi_disk->d_delmaxsize == rounddown2(LONG_MAX, 2 * KB), "%jd",
	    (intmax_t)kpi_disk->d_delmaxsize);
	CHECK(kpi_disk->d_stripesize == 8 * KB && kpi_disk->d_stripeoffset == 6 * KB, "%u, %u",
	    (u_int)kpi_disk->d_stripesize, (u_int)kpi_disk->d_stripeoffset);
	CHECK(kpi_disk->d_fwheads == 3 && kpi_disk->d_fwsectors == 4, "geometry");
	CHECK(kpi_sysctl_value("min_io_size") == 32 * KB && kpi_sysctl_value("opt_io_size") ==
	    64 * KB && kpi_sysctl_value("writecache_mode") == 1 &&
	    kpi_sysctl_value("delete_size") == 32 * KB && kpi_sysctl_value("delete_align") == 4 * KB,
	    "sysctls");
	CHECK(bp->bp_delete_ranges == 4, "%u ranges", bp->bp_delete_ranges);
	io(BIO_WRITE, 8, 64 * KB, 0);
	io(BIO_READ, 0, 128 * KB, 0);
	device_end();
	/* Each value only with its feature. */
	device_new(true, VIRTIO_BLK_F_GEOMETRY);
	dv.config->blk_size = 2 * KB;
	dv.config->topology.min_io_size = 16;
	device_attach_ok();
	CHECK(kpi_disk->d_fwheads == 3 && kpi_disk->d_sectorsize == SECTOR &&
	    kpi_disk->d_stripesize == 0 && kpi_sysctl_value("min_io_size") == 0, "without features");
	device_end();
	device_new(true, VIRTIO_BLK_F_TOPOLOGY);
	dv.config->topology.opt_io_size = 16;
	device_attach_ok();
	CHECK(kpi_disk->d_fwheads == 0 && kpi_disk->d_stripesize == 8 * KB, "topology");
	device_end();
}

/* A value that can't be one has a message, and the default, or the disk is not used. */
static void
invalid_values(const void *arg __unused)
{
	static const struct {
		uint64_t features;
		u_int	offset, size;
		uint64_t value;
		const char *says;
		bool	used;
	} table[] = {
#define	FIELD(field)	offsetof(struct virtio_blk_config, field),		\
	sizeof(((struct virtio_blk_config *)NULL)->field)
		{ 0, FIELD(capacity), 0, "invalid capacity, 0 sectors", false },
		{ 0, FIELD(capacity), OFF_MAX / SECTOR + 1, "invalid capacity", false },
		{ VIRTIO_BLK_F_BLK_SIZE, FIELD(blk_size), 0, "blk_size 0", true },
		{ VIRTIO_BLK_F_BLK_SIZE, FIELD(blk_size), 256, "blk_size 256", true },
		{ VIRTIO_BLK_F_BLK_SIZE, FIELD(blk_size), 1000, "blk_size 1000", true },
		{ VIRTIO_BLK_F_BLK_SIZE, FIELD(blk_size), 2048 * KB, "blk_size 2097152", true },
		{ VIRTIO_BLK_F_SEG_MAX, FIELD(seg_max), 0, "seg_max 0", true },
		{ VIRTIO_BLK_F_SEG_MAX, FIELD(seg_max), 3, NULL, true },
		{ VIRTIO_BLK_F_SIZE_MAX, FIELD(size_max), 0, "size_max 0", true },
		{ VIRTIO_BLK_F_SIZE_MAX, FIELD(size_max), 4096, NULL, true },
		{ VIRTIO_BLK_F_MQ, FIELD(num_queues), 0, "num_queues 0", true },
		{ VIRTIO_BLK_F_ZONED, FIELD(zoned.model), VIRTIO_BLK_Z_HM, "host-managed", false },
		{ VIRTIO_BLK_F_ZONED, FIELD(zoned.model), 3, "invalid zone model 3", false },
		{ VIRTIO_BLK_F_ZONED, FIELD(zoned.model), VIRTIO_BLK_Z_HA, NULL, true },
		{ VIRTIO_BLK_F_ZONED, FIELD(zoned.model), VIRTIO_BLK_Z_NONE, NULL, true },
		{ VIRTIO_BLK_F_DISCARD, FIELD(max_discard_seg), 0, NULL, true },
	};
	int error, lines;
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		device_new(true, table[i].features);
		memcpy(dv.tr.tr_config + table[i].offset, &table[i].value, table[i].size);
		lines = kpi_lines;
		kpi_line[0] = '\0';
		error = vtblk_attach(dv.tr.tr_child);
		CHECK((error == 0) == table[i].used, "%zu: error %d", i, error);
		/* A disk that attaches says its size last. */
		CHECK(kpi_lines - lines == (table[i].says != NULL) + table[i].used ||
		    !table[i].used, "%zu: %d lines", i, kpi_lines - lines);
		if (table[i].used) {
			CHECK(kpi_disk->d_sectorsize == SECTOR && kpi_sysctl_value("queues") == 1 &&
			    kpi_sysctl_value("delete_size") == 0, "%zu: other values", i);
			io(BIO_READ, 1, 2 * KB, 0);
			device_end();
		} else {
			CHECK(error == ENXIO && strstr(kpi_line, table[i].says) != NULL,
			    "%zu: error %d, %s", i, error, kpi_line);
			device_close();
		}
	}
	/* The configuration ends within the capacity. */
	device_new(true, 0);
	dv.tr.tr_config_size = 4;
	error = vtblk_attach(dv.tr.tr_child);
	CHECK(error == ENXIO && strstr(kpi_line, "can't read the capacity") != NULL, "error %d, %s",
	    error, kpi_line);
	device_close();
}

/* Each limit at its edge; a sector is as long as a request may be at most. */
static void
limits(const void *arg __unused)
{
	const struct pv_blk_params *bp = &dv.sc.vtb_blk.blk_params;
	static const struct {
		uint64_t capacity;
		uint32_t blk_size, seg_max, size_max, discards;
		bool	used;
		u_int	sector, segs;
		size_t	seg_size;
		u_int	ranges;
	} table[] = {
		{ SECTORS, 512, 1, 1, 1, false, 0, 0, 0, 0 },
		{ SECTORS, 512, 2, 256, 1, true, 512, 2, 256, 1 },
		{ SECTORS, 512, 2, 255, 1, false, 0, 0, 0, 0 },
		{ SECTORS, 1024 * KB, 1000, 2048 * KB, 16, true, 1024 * KB, 257, 1024 * KB, 16 },
		{ 2048, 1024 * KB, 256, 4096, 17, true, 1024 * KB, 256, 4096, 16 },
		{ 2047, 1024 * KB, 256, 4096, 15, false, 0, 0, 0, 0 },
		{ 3, 2 * KB, 256, 4096, 15, false, 0, 0, 0, 0 },
		{ 4, 2 * KB, 255, 4096, 15, true, 2 * KB, 255, 4096, 15 },
		{ OFF_MAX / SECTOR, 512, 4, 512, 2, true, 512, 4, 512, 2 },
	};
	size_t i;
	int error;

	kpi_quiet = true;
	for (i = 0; i < nitems(table); i++) {
		device_new(true, VIRTIO_BLK_F_BLK_SIZE | VIRTIO_BLK_F_SEG_MAX | VIRTIO_BLK_F_SIZE_MAX |
		    VIRTIO_BLK_F_DISCARD);
		dv.config->capacity = table[i].capacity;
		dv.config->blk_size = table[i].blk_size;
		dv.config->seg_max = table[i].seg_max;
		dv.config->size_max = table[i].size_max;
		dv.config->max_discard_seg = table[i].discards;
		/* Requests in tables are not limited by the ring. */
		dv.tr.tr_sizes[0] = 512;
		error = vtblk_attach(dv.tr.tr_child);
		CHECK((error == 0) == table[i].used, "%zu: error %d", i, error);
		if (error != 0) {
			device_close();
			continue;
		}
		CHECK(kpi_disk->d_sectorsize == table[i].sector && kpi_disk->d_mediasize ==
		    (off_t)rounddown(table[i].capacity * SECTOR, table[i].sector), "%zu: %jd bytes", i,
		    (intmax_t)kpi_disk->d_mediasize);
		CHECK(bp->bp_max_segs == table[i].segs && bp->bp_seg_size == table[i].seg_size &&
		    bp->bp_delete_ranges == table[i].ranges && bp->bp_max_size ==
		    rounddown(MIN(maxphys, table[i].segs * table[i].seg_size), table[i].sector),
		    "%zu: %u segments of %ju, %u ranges", i, bp->bp_max_segs,
		    (uintmax_t)bp->bp_seg_size, bp->bp_delete_ranges);
		/* Messages have room for all ranges, and the next one is aligned. */
		CHECK(bp->bp_msgsize >= offsetof(struct vtblk_msg, ranges) + table[i].ranges *
		    sizeof(struct virtio_blk_discard_write_zeroes) &&
		    bp->bp_msgsize % __alignof(struct vtblk_msg) == 0, "%zu: %zu bytes", i,
		    (size_t)bp->bp_msgsize);
		device_end();
	}
}

/* What the storage is made of comes first, then units of deletes, the best access, and the least. */
static void
topologies(const void *arg __unused)
{
	static const struct {
		uint8_t	exp, align;
		u_int	delete;
		uint16_t min_io;
		uint32_t opt_io;
		u_int	size, offset;
	} table[] = {
		{ 15, 1, 8, 16, 32, 16384 * KB, 16384 * KB - 512 },
		{ 16, 0, 8, 16, 32, 4096, 0 }, { 0, 3, 8, 16, 32, 4096, 0 },
		{ 0, 3, 0, 16, 32, 16 * KB, 16 * KB - 3 * 512 },
		{ 0, 3, 0, 16, 0, 8 * KB, 8 * KB - 3 * 512 }, { 0, 17, 0, 16, 1, 8 * KB, 8 * KB - 512 },
		{ 0, 16, 0, 16, 1, 8 * KB, 0 }, { 0, 1, 0, 1, 0, 0, 0 }, { 1, 0, 0, 0, 0, KB, 0 },
	};
	size_t i;

	kpi_quiet = true;
	for (i = 0; i < nitems(table); i++) {
		device_new(true, VIRTIO_BLK_F_TOPOLOGY |
		    (table[i].delete != 0 ? VIRTIO_BLK_F_DISCARD : 0));
		dv.config->topology.physical_block_exp = table[i].exp;
		dv.config->topology.alignment_offset = table[i].align;
		dv.config->topology.min_io_size = table[i].min_io;
		dv.config->topology.opt_io_size = table[i].opt_io;
		dv.config->discard_sector_alignment = table[i].delete;
		device_attach_ok();
		CHECK(kpi_disk->d_stripesize == table[i].size && kpi_disk->d_stripeoffset ==
		    table[i].offset, "%zu: %ju, %ju", i, (uintmax_t)kpi_disk->d_stripesize,
		    (uintmax_t)kpi_disk->d_stripeoffset);
		CHECK(kpi_sysctl_value("min_io_size") == table[i].min_io * SECTOR &&
		    kpi_sysctl_value("opt_io_size") == table[i].opt_io * SECTOR, "%zu: sysctls", i);
		device_end();
	}
}

/* Requests as they are on the wire, by each way that the driver has. */
static void
requests(const void *arg __unused)
{
	static const struct {
		bool	 modern;
		uint64_t ring, access;
		bool	 fast;
	} table[] = {
		{ true, MODERN_RING, 0, true }, { true, VIRTIO_F_INDIRECT_DESC, 0, true },
		{ true, MODERN_RING, VIRTIO_F_ACCESS_PLATFORM, false },
		{ true, VIRTIO_F_EVENT_IDX, 0, false }, { true, 0, 0, false },
		{ false, MODERN_RING, 0, true }, { false, 0, 0, false },
	};
	struct bio *bp, *next;
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		device_new(table[i].modern, VIRTIO_BLK_F_SEG_MAX | VIRTIO_BLK_F_FLUSH |
		    table[i].access);
		dv.tr.tr_offered &= ~MODERN_RING;
		dv.tr.tr_offered |= table[i].ring;
		device_attach_ok();
		io(BIO_WRITE, 7, 3 * KB, 0);
		CHECK(dv.last.type == VIRTIO_BLK_T_OUT && dv.last.sector == 7 &&
		    dv.last.len == 3 * KB, "%zu: a write", i);
		io(BIO_READ, 8, 2 * KB, 0);
		CHECK(dv.last.type == VIRTIO_BLK_T_IN && dv.last.sector == 8 &&
		    dv.last.len == 2 * KB, "%zu: a read", i);
		/* Another number of segments, and back. */
		io(BIO_READ, 7, 64 * KB, 0);
		io(BIO_WRITE, 900, SECTOR, 0);
		CHECK(dv.last.type == VIRTIO_BLK_T_OUT && dv.last.sector == 900, "%zu: a write", i);
		io(BIO_FLUSH, 0, 0, 0);
		CHECK(dv.last.type == VIRTIO_BLK_T_FLUSH && dv.last.len == 0, "%zu: a flush", i);
		CHECK((kpi_sysctl_value("fast") == 4) == table[i].fast && kpi_sysctl_value("fast") ==
		    (table[i].fast ? 4u : 0u), "%zu: %ju fast", i,
		    (uintmax_t)kpi_sysctl_value("fast"));
		CHECK(kpi_sysctl_value("short_lengths") == 0, "%zu: lengths", i);
		/* Neither way puts anything while the disk is suspended. */
		CHECK(pv_dev_freeze(&dv.sc.vtb_blk.blk_pvdev) == 0, "not suspended");
		bp = submit(BIO_READ, 8, 2 * KB);
		CHECK(kpi_sysctl_value("in_flight") == 0, "%zu: put", i);
		CHECK(pv_dev_thaw(&dv.sc.vtb_blk.blk_pvdev) == 0, "not resumed");
		settle();
		ended(bp, 0);
		/* Two at a time are two. */
		dv.answers = false;
		bp = submit(BIO_READ, 8, 2 * KB);
		next = submit(BIO_READ, 16, 2 * KB);
		CHECK(kpi_sysctl_value("max_in_flight") == 2, "%zu: %ju in flight", i,
		    (uintmax_t)kpi_sysctl_value("max_in_flight"));
		dv.answers = true;
		settle();
		ended(bp, 0);
		ended(next, 0);
		/* There is a way to have all take the general one. */
		pv_blk_fast_path = 0;
		io(BIO_READ, 8, 2 * KB, 0);
		pv_blk_fast_path = 1;
		CHECK(kpi_sysctl_value("fast") == (table[i].fast ? 6u : 0u), "%zu: fast", i);
		device_end();
	}
}

/* Each status, by the fast path and by the general one; and one that is none. */
static void
statuses(const void *arg __unused)
{
	static const struct {
		uint8_t	status;
		int	error;
		bool	violation;
	} table[] = {
		{ VIRTIO_BLK_S_OK, 0, false }, { VIRTIO_BLK_S_IOERR, EIO, false },
		{ VIRTIO_BLK_S_UNSUPP, EOPNOTSUPP, false }, { 3, EIO, true }, { 0xff, EIO, true },
	};
	uint64_t before;
	size_t i;
	u_int fast;

	kpi_quiet = true;
	for (fast = 0; fast < 2; fast++) {
		device_new(true, VIRTIO_BLK_F_SEG_MAX | VIRTIO_BLK_F_FLUSH);
		if (!fast)
			dv.tr.tr_offered &= ~VIRTIO_F_INDIRECT_DESC;
		device_attach_ok();
		for (i = 0; i < nitems(table); i++) {
			before = kpi_sysctl_value("protocol_errors");
			dv.status = table[i].status;
			io(BIO_READ, 3, SECTOR, table[i].error);
			CHECK((kpi_sysctl_value("protocol_errors") > before) == table[i].violation,
			    "status %u", table[i].status);
			/* It is used again after a reset. */
			dv.status = VIRTIO_BLK_S_OK;
			seconds(2);
			io(BIO_WRITE, 3, SECTOR, 0);
		}
		/* A status that was not written is none. */
		dv.writes_no_status = true;
		io(BIO_WRITE, 3, SECTOR, EIO);
		dv.writes_no_status = false;
		seconds(20);
		io(BIO_READ, 3, SECTOR, 0);
		CHECK(kpi_sysctl_value("unsupported") == 1 && kpi_sysctl_value("io_errors") == 1 &&
		    kpi_sysctl_value("protocol_errors") == 3, "counters");
		device_end();
	}
}

/* A used length that is too short is counted, and a violation if it is said to be one. */
static void
used_lengths(const void *arg __unused)
{
	u_int strict;

	kpi_quiet = true;
	for (strict = 0; strict < 2; strict++) {
		virtio_tunables[VIRTIO_STRICT_LENGTHS].pt_value = strict;
		device_begin(VIRTIO_BLK_F_SEG_MAX | VIRTIO_BLK_F_FLUSH);
		dv.short_by = 1;
		io(BIO_READ, 3, 2 * KB, strict ? EIO : 0);
		seconds(2);
		CHECK(kpi_sysctl_value("short_lengths") == !strict, "%ju",
		    (uintmax_t)kpi_sysctl_value("short_lengths"));
		CHECK(kpi_sysctl_value("protocol_errors") == strict, "%ju",
		    (uintmax_t)kpi_sysctl_value("protocol_errors"));
		io(BIO_WRITE, 3, 2 * KB, strict ? EIO : 0);
		CHECK(kpi_sysctl_value("short_lengths") == 2 * !strict, "%ju",
		    (uintmax_t)kpi_sysctl_value("short_lengths"));
		dv.short_by = 0;
		seconds(20);
		/* A read that failed writes its status only. */
		dv.status = VIRTIO_BLK_S_IOERR;
		io(BIO_READ, 3, 2 * KB, EIO);
		dv.status = VIRTIO_BLK_S_OK;
		io(BIO_READ, 3, 2 * KB, 0);
		CHECK(kpi_sysctl_value("short_lengths") == 2 * !strict, "counted");
		device_end();
	}
	virtio_tunables[VIRTIO_STRICT_LENGTHS].pt_value = 0;
	/* A legacy device's are not looked at. */
	device_new(false, VIRTIO_BLK_F_SEG_MAX);
	device_attach_ok();
	dv.short_by = 1;
	io(BIO_READ, 3, 2 * KB, 0);
	CHECK(kpi_sysctl_value("short_lengths") == 0, "counted");
	device_end();
}

/* The best way to delete, its limits, and what it looks like. */
static void
deletes(const void *arg __unused)
{
	static const struct {
		uint64_t offered, accepted;
		bool	secure, unmap;
		uint32_t type, flags, sectors, ranges, align;
	} table[] = {
		{ DELETES, VIRTIO_BLK_F_DISCARD, false, true, VIRTIO_BLK_T_DISCARD, 0, 64, 4, 8 },
		{ DELETES, VIRTIO_BLK_F_SECURE_ERASE, true, true, VIRTIO_BLK_T_SECURE_ERASE, 0, 32, 2,
		    4 },
		{ VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_F_WRITE_ZEROES, false, true,
		    VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP, 128, 1, 1 },
		{ VIRTIO_BLK_F_WRITE_ZEROES, 0, false, false, 0, 0, 0, 0, 1 },
		{ VIRTIO_BLK_F_SECURE_ERASE, 0, false, true, 0, 0, 0, 0, 1 },
	};
	struct bio *bios[4];
	size_t i;
	u_int n;

	for (i = 0; i < nitems(table); i++) {
		device_new(true, table[i].offered);
		dv.config->write_zeroes_may_unmap = table[i].unmap;
		vtblk_tunables[VTBLK_SECURE_DELETE].pt_value = table[i].secure;
		device_attach_ok();
		vtblk_tunables[VTBLK_SECURE_DELETE].pt_value = 0;
		CHECK((dv.tr.tr_accepted & DELETES) == table[i].accepted, "%zu: 0x%jx", i,
		    (uintmax_t)dv.tr.tr_accepted);
		CHECK(kpi_sysctl_value("delete_size") == table[i].sectors * SECTOR &&
		    kpi_sysctl_value("delete_align") == table[i].align * SECTOR, "%zu: limits", i);
		CHECK(((kpi_disk->d_flags & DISKFLAG_CANDELETE) != 0) == (table[i].sectors != 0),
		    "%zu: flags", i);
		if (table[i].sectors == 0) {
			io(BIO_DELETE, 40, 512, EOPNOTSUPP);
			device_end();
			continue;
		}
		memset(disk_bytes, 0xff, sizeof(disk_bytes));
		io(BIO_DELETE, 40, 8 * SECTOR, 0);
		CHECK(dv.last.type == table[i].type && dv.nranges == 1 && dv.ranges[0].sector == 40 &&
		    dv.ranges[0].num_sectors == 8 && dv.ranges[0].flags == table[i].flags,
		    "%zu: type %u, flags 0x%x", i, dv.last.type, dv.ranges[0].flags);
		/* Several are one request. */
		dv.answers = false;
		for (n = 0; n < 4; n++)
			bios[n] = submit(BIO_DELETE, 100 + 10 * n, 4 * SECTOR);
		dv.answers = true;
		settle();
		for (n = 0; n < 4; n++)
			ended(bios[n], 0);
		CHECK(dv.nranges == (table[i].ranges == 4 ? 3 : 1), "%zu: %u ranges", i, dv.nranges);
		CHECK(dv.ranges[dv.nranges - 1].sector == 130 &&
		    dv.ranges[dv.nranges - 1].num_sectors == 4 &&
		    dv.ranges[dv.nranges - 1].flags == table[i].flags, "%zu: the last", i);
		CHECK(disk_bytes[130 * SECTOR] == 0 && disk_bytes[134 * SECTOR] == 0xff, "deleted");
		device_end();
	}
}

/* The cache mode: what the device has, what a user sets, and what a reset takes away. */
static void
write_cache(const void *arg __unused)
{
	int i, lines;
	u_int served;

	kpi_quiet = true;
	device_begin(VIRTIO_BLK_F_CONFIG_WCE);
	CHECK((kpi_disk->d_flags & DISKFLAG_CANFLUSHCACHE) != 0, "5.2.5.2");
	CHECK(kpi_sysctl_value("writecache_mode") == 1, "write-through");
	CHECK(kpi_sysctl_set("writecache_mode", 2) == EINVAL, "mode 2");
	served = dv.nserved;
	CHECK(kpi_sysctl_set("writecache_mode", 0) == 0 && dv.config->writeback == 0, "not set");
	settle();
	CHECK(dv.nserved == served + 1 && dv.last.type == VIRTIO_BLK_T_FLUSH, "no last flush");
	io(BIO_FLUSH, 0, 0, 0);
	CHECK(dv.nserved == served + 1, "a flush of nothing");
	/* A reset sets the device's own mode, and the one that was set is set again. */
	CHECK(kpi_sysctl_set("reset", 1) == 0, "no reset");
	seconds(1);
	CHECK(dv.config->writeback == 0 && kpi_sysctl_value("writecache_mode") == 0, "not set again");
	/* A device that does not take it then caches, and is flushed. */
	dv.keeps_mode = true;
	CHECK(kpi_sysctl_set("reset", 1) == 0, "no reset");
	seconds(20);
	CHECK(dv.config->writeback == 1 && kpi_sysctl_value("refused_modes") == 1, "%ju",
	    (uintmax_t)kpi_sysctl_value("refused_modes"));
	served = dv.nserved;
	io(BIO_FLUSH, 0, 0, 0);
	CHECK(dv.nserved == served + 1, "no flush");
	CHECK(kpi_sysctl_set("writecache_mode", 0) == EOPNOTSUPP, "set");
	CHECK(strstr(kpi_line, "to write-through, error 45") != NULL, "%s", kpi_line);
	io(BIO_FLUSH, 0, 0, 0);
	CHECK(dv.nserved == served + 2, "no flush");
	/* However often, it is said ten times, two of which were before. */
	lines = kpi_lines;
	for (i = 1; i <= 12; i++)
		CHECK(kpi_sysctl_set("writecache_mode", 0) == EOPNOTSUPP && kpi_lines - lines ==
		    MIN(i, 8), "%d: %d lines", i, kpi_lines - lines);
	CHECK(kpi_sysctl_value("refused_modes") == 14, "counted");
	dv.keeps_mode = false;
	CHECK(kpi_sysctl_set("writecache_mode", 0) == 0, "not set");
	settle();
	CHECK(kpi_sysctl_set("writecache_mode", 1) == 0 && dv.config->writeback == 1, "not set");
	served = dv.nserved;
	io(BIO_FLUSH, 0, 0, 0);
	CHECK(dv.nserved == served + 1, "no flush");
	device_end();
	/* A tunable sets it when the disk comes. */
	vtblk_tunables[VTBLK_WRITECACHE_MODE].pt_value = 0;
	device_begin(VIRTIO_BLK_F_CONFIG_WCE | VIRTIO_BLK_F_FLUSH);
	vtblk_tunables[VTBLK_WRITECACHE_MODE].pt_value = -1;
	CHECK(dv.config->writeback == 0 && kpi_sysctl_value("writecache_mode") == 0, "not set");
	served = dv.nserved;
	io(BIO_FLUSH, 0, 0, 0);
	CHECK(dv.nserved == served, "a flush of nothing");
	device_end();
	/* Without a choice there is none. */
	device_begin(VIRTIO_BLK_F_FLUSH);
	CHECK(kpi_sysctl_value("writecache_mode") == 1 &&
	    kpi_sysctl_set("writecache_mode", 0) == EOPNOTSUPP, "a choice");
	served = dv.nserved;
	io(BIO_FLUSH, 0, 0, 0);
	CHECK(dv.nserved == served + 1, "no flush");
	device_end();
}

/* The device answers while a thread sleeps for it. */
static void
answer_meanwhile(void)
{

	settle();
}

static void
lifetime(const void *arg __unused)
{
	static const struct {
		struct virtio_blk_lifetime life;
		u_int	pre_eol, slc, mlc, invalid;
	} table[] = {
		{ { 0, 0, 0 }, 0, 0, 0, 0 }, { { 1, 1, 2 }, 1, 10, 20, 0 },
		{ { 3, 11, 10 }, 3, 110, 100, 0 }, { { 4, 1, 1 }, 0, 10, 10, 1 },
		{ { 1, 12, 12 }, 1, 0, 0, 3 },
	};
	sbintime_t before;
	uint32_t value;
	size_t i, len = sizeof(value);
	int lines;

	device_begin(0);
	CHECK(kpi_sysctl("lifetime.pre_eol", &value, &len, NULL, 0) == ENOENT, "not negotiated");
	device_end();
	kpi_quiet = true;
	kpi_pause = answer_meanwhile;
	device_begin(VIRTIO_BLK_F_LIFETIME);
	for (i = 0; i < nitems(table); i++) {
		dv.life = table[i].life;
		lines = kpi_lines;
		CHECK(kpi_sysctl_value("lifetime.pre_eol") == table[i].pre_eol &&
		    kpi_sysctl_value("lifetime.slc_used") == table[i].slc &&
		    kpi_sysctl_value("lifetime.mlc_used") == table[i].mlc, "%zu", i);
		CHECK(kpi_sysctl_value("lifetime.invalid") == table[i].invalid, "%zu: %ju", i,
		    (uintmax_t)kpi_sysctl_value("lifetime.invalid"));
		/* The first one is told of. */
		CHECK(kpi_lines - lines == (table[i].invalid == 1), "%zu: %d lines", i,
		    kpi_lines - lines);
	}
	/* The length is known without the device; an error is the sysctl's. */
	i = dv.nserved;
	len = 0;
	CHECK(kpi_sysctl("lifetime.pre_eol", NULL, &len, NULL, 0) == 0 && len == sizeof(value) &&
	    dv.nserved == i, "the length");
	dv.status = VIRTIO_BLK_S_IOERR;
	len = sizeof(value);
	CHECK(kpi_sysctl("lifetime.pre_eol", &value, &len, NULL, 0) == EIO, "an error");
	dv.status = VIRTIO_BLK_S_OK;
	/* An answer that was not written is not known, whatever the last one was. */
	dv.life = (struct virtio_blk_lifetime){ 2, 3, 4 };
	CHECK(kpi_sysctl_value("lifetime.slc_used") == 30, "%ju",
	    (uintmax_t)kpi_sysctl_value("lifetime.slc_used"));
	dv.writes_no_life = true;
	CHECK(kpi_sysctl_value("lifetime.pre_eol") == 0 &&
	    kpi_sysctl_value("lifetime.slc_used") == 0 &&
	    kpi_sysctl_value("lifetime.mlc_used") == 0, "what was not written");
	/* Nor is that of a device that does not answer in time. */
	kpi_pause = NULL;
	dv.answers = false;
	len = sizeof(value);
	before = kpi_uptime;
	CHECK(kpi_sysctl("lifetime.pre_eol", &value, &len, NULL, 0) == EWOULDBLOCK, "an answer");
	CHECK(kpi_uptime - before <= SBT_1S && kpi_uptime - before > SBT_1S / 2, "%jd ms",
	    (intmax_t)((kpi_uptime - before) / SBT_1MS));
	dv.answers = true;
	settle();
	device_end();
}

static void
config_changes(void)
{

	CHECK(vtblk_config_change(dv.tr.tr_child) == 0, "error");
	settle();
}

/* Another size, one that is invalid, and a device that requests a reset. */
static void
changes(const void *arg __unused)
{
	int i, lines, resets;

	kpi_quiet = true;
	kpi_disk_resizes = true;
	device_begin(0);
	dv.config->capacity = SECTORS / 2;
	config_changes();
	CHECK(kpi_disk->d_mediasize == SECTORS / 2 * SECTOR && kpi_sysctl_value("resizes") == 1,
	    "not resized");
	config_changes();
	CHECK(kpi_sysctl_value("resizes") == 1 && kpi_sysctl_value("config_changes") == 2, "again");
	dv.config->capacity = 0;
	config_changes();
	CHECK(kpi_disk->d_mediasize == SECTORS / 2 * SECTOR && kpi_sysctl_value("bad_configs") == 1,
	    "resized to nothing");
	/* However often, it is said ten times of each. */
	lines = kpi_lines;
	for (i = 0; i < 15; i++)
		config_changes();
	CHECK(kpi_lines - lines == 9 && kpi_sysctl_value("bad_configs") == 16, "%d lines",
	    kpi_lines - lines);
	dv.tr.tr_config_size = 4;
	config_changes();
	CHECK(kpi_lines - lines == 9 && kpi_sysctl_value("bad_configs") == 17 &&
	    kpi_disk->d_mediasize == SECTORS / 2 * SECTOR, "what can't be read");
	dv.tr.tr_config_size = TR_CONFIG_MAX;
	dv.config->capacity = SECTORS;
	/* It was stopped when that changed. */
	CHECK(vtblk_suspend(dv.tr.tr_child) == 0, "not suspended");
	CHECK(vtblk_resume(dv.tr.tr_child) == 0, "not resumed");
	settle();
	CHECK(kpi_disk->d_mediasize == SECTORS * SECTOR, "not resized");
	io(BIO_WRITE, 1, SECTOR, 0);
	resets = dv.tr.tr_resets;
	dv.tr.tr_status |= VIRTIO_STATUS_NEEDS_RESET;
	config_changes();
	seconds(1);
	CHECK(dv.tr.tr_resets > resets && (dv.tr.tr_status & VIRTIO_STATUS_DRIVER_OK) != 0,
	    "no reset");
	io(BIO_READ, 1, SECTOR, 0);
	CHECK(vtblk_quiesce(dv.tr.tr_child) == 0 && kpi_disk->d_open(kpi_disk) == 0 &&
	    vtblk_quiesce(dv.tr.tr_child) == EBUSY && kpi_disk->d_close(kpi_disk) == 0 &&
	    vtblk_quiesce(dv.tr.tr_child) == 0, "open");
	device_end();
	kpi_disk_resizes = false;
}

/* One queue for each CPU, or as many as there are, are wanted, or there is memory for. */
static void
queues(const void *arg __unused)
{
	static const struct {
		uint64_t feature;
		uint16_t has;
		int	 cpus, wanted;
		u_int	 used;
	} table[] = {
		{ VIRTIO_BLK_F_MQ, 3, 3, 0, 3 }, { VIRTIO_BLK_F_MQ, 3, 2, 0, 2 },
		{ VIRTIO_BLK_F_MQ, 2, 3, 0, 2 }, { VIRTIO_BLK_F_MQ, 3, 3, 2, 2 },
		{ VIRTIO_BLK_F_MQ, 3, 3, 1, 1 }, { VIRTIO_BLK_F_MQ, 3, 1, 3, 1 }, { 0, 3, 3, 0, 1 },
	};
	const char *descr;
	char name[8];
	struct bio *bp;
	size_t i;
	u_int n;

	for (i = 0; i < nitems(table); i++) {
		device_new(true, table[i].feature | VIRTIO_BLK_F_SEG_MAX);
		dv.config->num_queues = table[i].has;
		mp_ncpus = table[i].cpus;
		vtblk_tunables[VTBLK_NUM_QUEUES].pt_value = table[i].wanted;
		device_attach_ok();
		vtblk_tunables[VTBLK_NUM_QUEUES].pt_value = 0;
		CHECK(kpi_sysctl_value("queues") == table[i].used, "%zu: %ju", i,
		    (uintmax_t)kpi_sysctl_value("queues"));
		for (n = 0; n < table[i].used; n++) {
			PCPU_SET(cpuid, n);
			dv.answers = false;
			bp = submit(BIO_WRITE, n, SECTOR);
			CHECK(dv_takes(n, &dv.last), "%zu: queue %u", i, n);
			dv_answers(n, &dv.last, VIRTIO_BLK_S_OK);
			settle();
			ended(bp, 0);
		}
		PCPU_SET(cpuid, 0);
		for (n = 0; n < table[i].used; n++) {
			snprintf(name, sizeof(name), "req%u", n);
			descr = kpi_described(&dv.tr.tr_irqs[dv.tr.tr_queue_vector[n]]);
			CHECK(strcmp(descr, name) == 0, "%zu: queue %u: %s", i, n, descr);
		}
		CHECK(strcmp(dv.sc.vtb_queues[0]->q_name, table[i].used == 1 ? "requestq" :
		    "requestq0") == 0, "%s", dv.sc.vtb_queues[0]->q_name);
		device_end();
	}
}

/* A queue of too few places for a request: the disk is not used. */
static void
small_queue(const void *arg __unused)
{
	u_int size;

	kpi_quiet = true;
	for (size = 1; size <= 8; size *= 2) {
		device_new(true, VIRTIO_BLK_F_SEG_MAX);
		dv.tr.tr_sizes[0] = size;
		dv.tr.tr_offered &= ~VIRTIO_F_INDIRECT_DESC;
		if (size < 3) {
			CHECK(vtblk_attach(dv.tr.tr_child) == ENXIO, "%u places", size);
			CHECK(strstr(kpi_line, "a request needs 3") != NULL, "%s", kpi_line);
			device_close();
			continue;
		}
		device_attach_ok();
		CHECK(dv.sc.vtb_blk.blk_params.bp_max_segs == size - 2 &&
		    dv.sc.vtb_blk.blk_params.bp_nreqs == size, "%u places", size);
		io(BIO_WRITE, 3, 16 * KB, 0);
		device_end();
	}
}

/* Whatever fails while it attaches, nothing is left of it; and then it attaches. */
static void
attach_fails(const void *arg __unused)
{
	int error, fewer = 0, n = 0;

	kpi_quiet = true;
	do {
		device_new(true, VIRTIO_BLK_F_SEG_MAX | VIRTIO_BLK_F_MQ | VIRTIO_F_ACCESS_PLATFORM);
		kpi_fail_after = ++n;
		error = vtblk_attach(dv.tr.tr_child);
		if (error == 0 && kpi_fail_after != 0)
			n = 0;
		kpi_fail_after = 0;
		if (error != 0) {
			device_close();
			continue;
		}
		fewer += kpi_sysctl_value("queues") < 3;
		settle();
		io(BIO_WRITE, 3, 16 * KB, 0);
		/* Fewer queues, and all of them when there is memory. */
		seconds(3);
		CHECK(kpi_sysctl_value("queues") == 3, "%ju queues",
		    (uintmax_t)kpi_sysctl_value("queues"));
		io(BIO_READ, 3, 16 * KB, 0);
		device_end();
	} while (n > 0);
	CHECK(fewer > 0, "never with fewer queues");
	/* A device that does not answer its identification. */
	device_new(true, 0);
	dv.answers = false;
	CHECK(vtblk_attach(dv.tr.tr_child) == ETIMEDOUT, "it attached");
	device_close();
	/* It need not, if the user says so. */
	device_new(true, 0);
	vtblk_tunables[VTBLK_NO_IDENT].pt_value = 1;
	dv.answers = false;
	CHECK(vtblk_attach(dv.tr.tr_child) == 0 && kpi_disk->d_ident[0] == '\0', "no attach");
	vtblk_tunables[VTBLK_NO_IDENT].pt_value = 0;
	device_end();
}

/* One queue is reset alone where the device can, and where it can be relied on. */
static void
queue_resets(const void *arg __unused)
{
	static const struct {
		bool	offered, qemu;
		int	tunable;
		bool	used;
	} table[] = {
		{ true, false, -1, true }, { true, true, -1, false }, { true, true, 1, true },
		{ true, false, 0, false }, { false, false, 1, false },
	};
	struct bio *bp;
	int resets;
	size_t i;

	kpi_quiet = true;
	for (i = 0; i < nitems(table); i++) {
		device_new(true, VIRTIO_BLK_F_SEG_MAX | (table[i].offered ? VIRTIO_F_RING_RESET : 0));
		dv.tr.tr_bus.vb_qemu = table[i].qemu;
		vtblk_tunables[VTBLK_QUEUE_RESET].pt_value = table[i].tunable;
		device_attach_ok();
		vtblk_tunables[VTBLK_QUEUE_RESET].pt_value = -1;
		CHECK(((dv.tr.tr_accepted & VIRTIO_F_RING_RESET) != 0) == table[i].used &&
		    ((dv.sc.vtb_blk.blk_params.bp_flags & PV_BLK_QUEUE_RESET) != 0) == table[i].used,
		    "%zu", i);
		resets = dv.tr.tr_resets;
		dv.answers = false;
		bp = submit(BIO_WRITE, 5, SECTOR);
		pv_dev_need_reset(&dv.sc.vtb_blk.blk_pvdev, 0, ETIMEDOUT);
		dv.answers = true;
		settle();
		CHECK((dv.tr.tr_resets == resets) == table[i].used, "%zu: %d resets", i,
		    dv.tr.tr_resets - resets);
		ended(bp, 0);
		device_end();
	}
}

static const struct hosted_test tests[] = {
	{ "configuration", "becomes a disk", configuration, NULL },
	{ "invalid_values", "have the default, or no disk", invalid_values, NULL },
	{ "limits", "at their edges", limits, NULL },
	{ "topologies", "are stripes", topologies, NULL },
	{ "requests", "on the wire", requests, NULL },
	{ "statuses", "are errors", statuses, NULL },
	{ "used_lengths", "that are too short", used_lengths, NULL },
	{ "deletes", "by the best way", deletes, NULL },
	{ "write_cache", "and its modes", write_cache, NULL },
	{ "lifetime", "that is left", lifetime, NULL },
	{ "changes", "of the configuration", changes, NULL },
	{ "queues", "one for each CPU", queues, NULL },
	{ "small_queue", "of too few places", small_queue, NULL },
	{ "attach_fails", "and leaves nothing", attach_fails, NULL },
	{ "queue_resets", "where they can be relied on", queue_resets, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
