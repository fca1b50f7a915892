/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * disk(9), what ends a bio, and pages that are not mapped.  A disk is what its driver made of it; the
 * test is GEOM.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>
#include <sys/malloc.h>
#include <sys/sbuf.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

#include <machine/stdarg.h>

#include <geom/geom_disk.h>

#include "../host/host.h"
#include "disk.h"
#include "kpi.h"

struct disk *kpi_disk;
bool kpi_disk_resizes;
int kpi_resizes;
void (*kpi_disk_leaves)(const char *what);
uint64_t kpi_cputicks;
int mp_ncpus = 1;
u_long maxphys = 1024 * 1024;

static uint64_t
kpi_cpu_ticks(void)
{

	return (kpi_cputicks);
}

cpu_tick_f *cpu_ticks = kpi_cpu_ticks;

struct disk *
disk_alloc(void)
{
	struct disk *dp = host_alloc(sizeof(*dp), sizeof(void *));

	memset(dp, 0, sizeof(*dp));
	return (dp);
}

void
disk_create(struct disk *dp, int version)
{

	CHECK(kpi_disk == NULL && version == DISK_VERSION && dp->d_strategy != NULL, "no disk");
	CHECK(kpi_mutexes == 0, "a lock is held");
	kpi_disk = dp;
}

/* Nobody uses it any more. */
void
disk_gone(struct disk *dp)
{

	CHECK(kpi_mutexes == 0, "a lock is held");
	if (kpi_disk_leaves != NULL)
		kpi_disk_leaves("gone ");
	else
		dp->d_gone(dp);
}

void
disk_destroy(struct disk *dp)
{

	CHECK(dp == kpi_disk && kpi_mutexes == 0, "another disk, or a lock");
	if (kpi_disk_leaves != NULL)
		kpi_disk_leaves("destroyed ");
	host_free(dp);
	kpi_disk = NULL;
}

int
disk_resize(struct disk *dp, int flag)
{

	CHECK(dp == kpi_disk && (flag == M_NOWAIT || kpi_mutexes == 0), "it would sleep");
	kpi_resizes++;
	return (kpi_disk_resizes ? 0 : ENOMEM);
}

void
biodone(struct bio *bp)
{

	CHECK(kpi_mutexes == 0, "a lock is held upwards");
	CHECK(bp->bio_done != NULL, "nobody waits for it");
	bp->bio_done(bp);
}

void
biofinish(struct bio *bp, struct devstat *stat __unused, int error)
{

	bp->bio_error = error;
	bp->bio_flags |= BIO_ERROR;
	bp->bio_resid = bp->bio_bcount;
	biodone(bp);
}

static vm_page_t kpi_entered;

vm_offset_t
pmap_quick_enter_page(vm_page_t m)
{

	CHECK(kpi_entered == NULL, "two pages at once");
	kpi_entered = m;
	return (VM_PAGE_TO_PHYS(m));
}

void
pmap_quick_remove_page(vm_offset_t va)
{

	CHECK(kpi_entered != NULL && va == VM_PAGE_TO_PHYS(kpi_entered), "another page");
	kpi_entered = NULL;
}

/* For sys/kern/subr_sbuf.c. */
int
sbuf_vprintf(struct sbuf *s, const char *fmt, va_list ap)
{
	char line[128];

	vsnprintf(line, sizeof(line), fmt, ap);
	return (sbuf_cat(s, line));
}

int
sbuf_printf_drain(void *arg __unused, const char *data __unused, int len __unused)
{

	return (ENOTSUP);
}
