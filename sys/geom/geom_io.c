/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Allocation of bios and the consumer's part of g_bio(9).
 *
 * There is no GEOM here, no classes and no providers other than disks: a bio goes from its consumer
 * through geom_disk.c to the driver.  What remains of GEOM's interface is what drivers and consumers of
 * disks call: bios that are allocated, cloned and given back, and the answers to BIO_GETATTR.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/malloc.h>

#include <vm/uma.h>

#include <geom/geom.h>

static uma_zone_t bio_zone;

static void
g_io_init(void *arg __unused)
{
	bio_zone = uma_zcreate("g_bio", sizeof(struct bio), NULL, NULL, NULL, NULL, 0, 0);
}
SYSINIT(g_io, SI_SUB_DRIVERS, SI_ORDER_FIRST, g_io_init, NULL);

/* Does not sleep; NULL when memory is short. */
struct bio *
g_new_bio(void)
{
	return (uma_zalloc(bio_zone, M_NOWAIT | M_ZERO));
}

struct bio *
g_alloc_bio(void)
{
	return (uma_zalloc(bio_zone, M_WAITOK | M_ZERO));
}

void
g_destroy_bio(struct bio *bp)
{
	uma_zfree(bio_zone, bp);
}

void
g_reset_bio(struct bio *bp)
{
	bzero(bp, sizeof(*bp));
}

/*
 * The flags that a child inherits.  BIO_ORDERED must reach the driver, and the flags that give the
 * type of bio_data belong with it.
 */
static void
g_inherit_bio(struct bio *child, const struct bio *parent)
{
	child->bio_cmd = parent->bio_cmd;
	child->bio_flags = parent->bio_flags & (BIO_ORDERED | BIO_UNMAPPED | BIO_VLIST | BIO_SWAP);
	child->bio_offset = parent->bio_offset;
	child->bio_length = parent->bio_length;
	child->bio_bcount = parent->bio_bcount;
	child->bio_data = parent->bio_data;
	child->bio_ma = parent->bio_ma;
	child->bio_ma_n = parent->bio_ma_n;
	child->bio_ma_offset = parent->bio_ma_offset;
	child->bio_attribute = parent->bio_attribute;
	child->bio_zone = parent->bio_zone;
}

struct bio *
g_clone_bio(struct bio *parent)
{
	struct bio *bp;

	bp = g_new_bio();
	if (bp == NULL)
		return (NULL);
	g_inherit_bio(bp, parent);
	bp->bio_parent = parent;
	parent->bio_children++;
	return (bp);
}

/* As g_clone_bio(), but sleeps for memory. */
struct bio *
g_duplicate_bio(struct bio *parent)
{
	struct bio *bp;

	bp = g_alloc_bio();
	g_inherit_bio(bp, parent);
	bp->bio_parent = parent;
	parent->bio_children++;
	return (bp);
}

/* Ends a consumer's bio; bio_completed is what was moved. */
void
g_io_deliver(struct bio *bp, int error)
{
	bp->bio_error = error;
	if (error != 0)
		bp->bio_flags |= BIO_ERROR;
	bp->bio_bcount = bp->bio_length;
	bp->bio_resid = bp->bio_bcount - bp->bio_completed;
	biodone(bp);
}

int
g_handleattr(struct bio *bp, const char *attribute, const void *val, int len)
{
	if (strcmp(bp->bio_attribute, attribute) != 0)
		return (0);
	if (len == 0) {
		/* A string: as much as fits, always terminated. */
		bzero(bp->bio_data, bp->bio_length);
		if (strlcpy(bp->bio_data, val, bp->bio_length) >= (size_t)bp->bio_length) {
			g_io_deliver(bp, EFAULT);
			return (1);
		}
		bp->bio_completed = bp->bio_length;
	} else if (bp->bio_length == len) {
		bcopy(val, bp->bio_data, len);
		bp->bio_completed = len;
	} else {
		g_io_deliver(bp, EFAULT);
		return (1);
	}
	g_io_deliver(bp, 0);
	return (1);
}

int
g_handleattr_str(struct bio *bp, const char *attribute, const char *str)
{
	return (g_handleattr(bp, attribute, str, 0));
}

int
g_handleattr_int(struct bio *bp, const char *attribute, int val)
{
	return (g_handleattr(bp, attribute, &val, sizeof(val)));
}

int
g_handleattr_uint16_t(struct bio *bp, const char *attribute, uint16_t val)
{
	return (g_handleattr(bp, attribute, &val, sizeof(val)));
}

int
g_handleattr_off_t(struct bio *bp, const char *attribute, off_t val)
{
	return (g_handleattr(bp, attribute, &val, sizeof(val)));
}
