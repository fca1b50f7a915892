/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * devstat(9): statistics of devices that do transactions.
 *
 * Locking: the list is under devstat_mutex.  The counters of one entry are its owner's to serialise
 * (geom_disk.c does so under the disk's lock); sequence0 and sequence1 let a reader without that lock
 * see a torn entry.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/devicestat.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/sysctl.h>

#include <machine/atomic.h>

static MALLOC_DEFINE(M_DEVSTAT, "devstat", "device statistics");

static struct devstatlist device_statq = STAILQ_HEAD_INITIALIZER(device_statq);
static struct mtx devstat_mutex;
static int devstat_num_devs;
static long devstat_generation = 1;
static int devstat_version = DEVSTAT_VERSION;
static int devstat_current_devnumber;

MTX_SYSINIT(devstat, &devstat_mutex, "devstat", MTX_DEF);

static SYSCTL_NODE(_kern, OID_AUTO, devstat, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
    "Device statistics");
SYSCTL_INT(_kern_devstat, OID_AUTO, numdevs, CTLFLAG_RD, &devstat_num_devs, 0,
    "Devices in the statistics list");
SYSCTL_LONG(_kern_devstat, OID_AUTO, generation, CTLFLAG_RD, &devstat_generation, 0,
    "Changes of the statistics list");
SYSCTL_INT(_kern_devstat, OID_AUTO, version, CTLFLAG_RD, &devstat_version, 0,
    "Version of the statistics structure");

/* The list is by descending priority, then by time of registration. */
static void
devstat_insert(struct devstat *ds)
{
	struct devstat *cur, *prev = NULL;

	mtx_assert(&devstat_mutex, MA_OWNED);
	STAILQ_FOREACH(cur, &device_statq, dev_links) {
		if (cur->priority < ds->priority)
			break;
		prev = cur;
	}
	if (prev == NULL)
		STAILQ_INSERT_HEAD(&device_statq, ds, dev_links);
	else
		STAILQ_INSERT_AFTER(&device_statq, prev, ds, dev_links);
}

struct devstat *
devstat_new_entry(const void *dev_name, int unit_number, uint32_t block_size,
    devstat_support_flags flags, devstat_type_flags device_type, devstat_priority priority)
{
	struct devstat *ds;

	ds = malloc(sizeof(*ds), M_DEVSTAT, M_WAITOK | M_ZERO);
	strlcpy(ds->device_name, dev_name, sizeof(ds->device_name));
	ds->unit_number = unit_number;
	ds->block_size = block_size;
	ds->flags = flags;
	ds->device_type = device_type;
	ds->priority = priority;
	ds->allocated = 1;
	binuptime(&ds->creation_time);
	mtx_lock(&devstat_mutex);
	ds->device_number = devstat_current_devnumber++;
	devstat_insert(ds);
	devstat_num_devs++;
	devstat_generation++;
	mtx_unlock(&devstat_mutex);
	return (ds);
}

void
devstat_remove_entry(struct devstat *ds)
{
	if (ds == NULL)
		return;
	mtx_lock(&devstat_mutex);
	STAILQ_REMOVE(&device_statq, ds, devstat, dev_links);
	devstat_num_devs--;
	devstat_generation++;
	mtx_unlock(&devstat_mutex);
	free(ds, M_DEVSTAT);
}

void
devstat_start_transaction(struct devstat *ds, const struct bintime *now)
{
	if (ds == NULL)
		return;
	atomic_add_acq_int(&ds->sequence1, 1);
	if (ds->start_count == ds->end_count) {
		if (now != NULL)
			ds->busy_from = *now;
		else
			binuptime(&ds->busy_from);
	}
	ds->start_count++;
	atomic_add_rel_int(&ds->sequence0, 1);
}

void
devstat_start_transaction_bio_t0(struct devstat *ds, struct bio *bp)
{
	devstat_start_transaction(ds, &bp->bio_t0);
}

void
devstat_start_transaction_bio(struct devstat *ds, struct bio *bp)
{
	if (ds == NULL)
		return;
	binuptime(&bp->bio_t0);
	devstat_start_transaction_bio_t0(ds, bp);
}

void
devstat_end_transaction(struct devstat *ds, uint32_t bytes, devstat_tag_type tag_type,
    devstat_trans_flags flags, const struct bintime *now, const struct bintime *then)
{
	struct bintime elapsed, here;

	if (ds == NULL)
		return;
	if (now == NULL) {
		binuptime(&here);
		now = &here;
	}
	atomic_add_acq_int(&ds->sequence1, 1);
	ds->bytes[flags] += bytes;
	ds->operations[flags]++;
	if (tag_type < nitems(ds->tag_types))
		ds->tag_types[tag_type]++;
	if (then != NULL) {
		elapsed = *now;
		bintime_sub(&elapsed, then);
		bintime_add(&ds->duration[flags], &elapsed);
	}
	elapsed = *now;
	bintime_sub(&elapsed, &ds->busy_from);
	bintime_add(&ds->busy_time, &elapsed);
	ds->busy_from = *now;
	ds->end_count++;
	atomic_add_rel_int(&ds->sequence0, 1);
}

void
devstat_end_transaction_bio_bt(struct devstat *ds, const struct bio *bp, const struct bintime *now)
{
	devstat_trans_flags flags;

	if (ds == NULL)
		return;
	switch (bp->bio_cmd) {
	case BIO_READ:
		flags = DEVSTAT_READ;
		break;
	case BIO_WRITE:
		flags = DEVSTAT_WRITE;
		break;
	case BIO_DELETE:
		flags = DEVSTAT_FREE;
		break;
	default:
		flags = DEVSTAT_NO_DATA;
		break;
	}
	devstat_end_transaction(ds, (uint32_t)(bp->bio_bcount - bp->bio_resid), DEVSTAT_TAG_SIMPLE,
	    flags, now, &bp->bio_t0);
}

void
devstat_end_transaction_bio(struct devstat *ds, const struct bio *bp)
{
	devstat_end_transaction_bio_bt(ds, bp, NULL);
}
