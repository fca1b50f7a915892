/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * disk(9): disks, between their /dev entry and their driver.
 *
 * A consumer's bio enters through the cdev's strategy routine.  It is checked against the media
 * (size, alignment, write protection, features of the driver), split into children of at most
 * d_maxsize bytes, and the children go to d_strategy.  All children are allocated before the first
 * one is started, so a shortage of memory fails a bio as a whole.  The consumer's bio ends with the
 * last child: with the error of the first that failed, and with the bytes of all that worked.
 *
 * Life.  disk_create() makes the cdev; there is no tasting.  disk_gone() refuses new bios with
 * ENXIO at once and leaves the rest to the g_event task, which may sleep: destroy_dev() (waits for
 * threads in the cdev's methods), d_close if it was open, wait for the driver to end the bios it
 * holds, d_gone. disk_destroy() does all of it and waits, so that nothing of the driver is called
 * after it returns. The driver must end the bios it holds before, or while another thread waits
 * here.
 *
 * Locking: gd_lock of each disk protects the counts, the flags, the media's size and the statistics.
 * It is a leaf; no method of the driver is called with it held.
 *
 * Gaps: one consumer class, the cdev.  A disk that can't take unmapped bios refuses them (SI_UNMAPPED
 * tells a consumer) instead of having them mapped.  Zone commands are refused.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/conf.h>
#include <sys/devicestat.h>
#include <sys/disk.h>
#include <sys/fcntl.h>
#include <sys/limits.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/stat.h>
#include <sys/taskqueue.h>

#include <geom/geom.h>
#include <geom/geom_disk.h>

static MALLOC_DEFINE(M_DISK, "disk", "disk(9) data");

struct gdisk {
	struct disk	gd_disk;
	struct mtx	gd_lock;
	struct cdev	*gd_dev;
	off_t		gd_mediasize;	/* what consumers may use now */
	u_int		gd_opens;
	u_int		gd_writers;
	u_int		gd_inflight;	/* children with the driver */
	bool		gd_ended;	/* nothing more will be called */
	struct thread	*gd_gone_td;	/* in d_gone */
	struct task	gd_gone_task;
};

static struct taskqueue *g_event_tq;

static void
g_disk_init(void *arg __unused)
{
	g_event_tq = taskqueue_create("g_event", M_WAITOK, taskqueue_thread_enqueue, &g_event_tq);
	taskqueue_start_threads(&g_event_tq, 1, PRIBIO, "g_event");
}
SYSINIT(g_disk, SI_SUB_DRIVERS, SI_ORDER_SECOND, g_disk_init, NULL);

static struct gdisk *
gdisk_of(struct disk *dp)
{
	return (__containerof(dp, struct gdisk, gd_disk));
}

static bool
gdisk_cmd_is_data(int cmd)
{
	return (cmd == BIO_READ || cmd == BIO_WRITE || cmd == BIO_DELETE);
}

/*
 * What geom(4) checks before a driver sees a bio.  A transfer that passes the end of the media is
 * cut there: reading at the end gives 0 bytes, not an error.
 */
static int
gdisk_check(struct gdisk *gd, struct bio *bp)
{
	struct disk *dp = &gd->gd_disk;

	switch (bp->bio_cmd) {
	case BIO_WRITE:
		if ((dp->d_flags & DISKFLAG_WRITE_PROTECT) != 0)
			return (EPERM);
		break;
	case BIO_DELETE:
		if ((dp->d_flags & DISKFLAG_CANDELETE) == 0)
			return (EOPNOTSUPP);
		if ((dp->d_flags & DISKFLAG_WRITE_PROTECT) != 0)
			return (EPERM);
		break;
	case BIO_FLUSH:
		return ((dp->d_flags & DISKFLAG_CANFLUSHCACHE) != 0 ? 0 : EOPNOTSUPP);
	case BIO_READ:
	case BIO_GETATTR:
		break;
	default:
		return (EOPNOTSUPP);
	}
	if (!gdisk_cmd_is_data(bp->bio_cmd))
		return (0);
	if ((bp->bio_flags & BIO_UNMAPPED) != 0 && (dp->d_flags & DISKFLAG_UNMAPPED_BIO) == 0)
		return (EOPNOTSUPP);
	if (gd->gd_mediasize == 0)
		return (ENXIO);
	if (bp->bio_offset % dp->d_sectorsize != 0 || bp->bio_length % dp->d_sectorsize != 0)
		return (EINVAL);
	if (bp->bio_offset < 0 || bp->bio_length < 0 || bp->bio_offset > gd->gd_mediasize)
		return (EIO);
	bp->bio_length = MIN(bp->bio_length, gd->gd_mediasize - bp->bio_offset);
	return (0);
}

/* Records a child's end; ends the consumer's bio after its last one. */
static void
gdisk_done(struct bio *bp)
{
	struct bio *parent = bp->bio_parent;
	struct disk *dp = bp->bio_disk;
	struct gdisk *gd = gdisk_of(dp);
	struct bintime now;
	int error;
	bool last;

	binuptime(&now);
	mtx_lock(&gd->gd_lock);
	bp->bio_completed = bp->bio_length - bp->bio_resid;
	if ((bp->bio_flags & BIO_ERROR) != 0 && parent->bio_error == 0)
		parent->bio_error = bp->bio_error != 0 ? bp->bio_error : EIO;
	parent->bio_completed += bp->bio_completed;
	if (dp->d_devstat != NULL)
		devstat_end_transaction_bio_bt(dp->d_devstat, bp, &now);
	last = ++parent->bio_inbed == parent->bio_children;
	error = parent->bio_error;
	mtx_unlock(&gd->gd_lock);
	g_destroy_bio(bp);
	if (last)
		g_io_deliver(parent, error);
	/* Only now: the disk may be freed as soon as nothing is in flight. */
	mtx_lock(&gd->gd_lock);
	if (--gd->gd_inflight == 0 && dp->d_goneflag)
		wakeup(&gd->gd_inflight);
	mtx_unlock(&gd->gd_lock);
}

/* Makes the child of bp that covers the bytes from off on, at most max of them. */
static struct bio *
gdisk_child(struct gdisk *gd, struct bio *bp, off_t off, off_t max)
{
	struct bio *child;
	u_int first;

	child = g_clone_bio(bp);
	if (child == NULL)
		return (NULL);
	child->bio_done = gdisk_done;
	child->bio_disk = &gd->gd_disk;
	child->bio_dev = bp->bio_dev;
	child->bio_offset = bp->bio_offset + off;
	child->bio_length = child->bio_bcount = MIN(bp->bio_length - off, max);
	child->bio_pblkno = child->bio_offset / gd->gd_disk.d_sectorsize;
	if (bp->bio_cmd != BIO_READ && bp->bio_cmd != BIO_WRITE)
		return (child);
	if ((bp->bio_flags & BIO_UNMAPPED) != 0) {
		first = bp->bio_ma_offset + off;
		child->bio_ma = bp->bio_ma + first / PAGE_SIZE;
		child->bio_ma_offset = first % PAGE_SIZE;
		child->bio_ma_n = howmany(child->bio_ma_offset + child->bio_length, PAGE_SIZE);
	} else
		child->bio_data = bp->bio_data + off;
	return (child);
}

/* Makes all children of bp: 0 or ENOMEM. */
static int
gdisk_split(struct gdisk *gd, struct bio *bp, struct bio_queue_head *children)
{
	struct bio *child;
	off_t max, off = 0;

	if (bp->bio_cmd == BIO_DELETE)
		max = gd->gd_disk.d_delmaxsize;
	else if (bp->bio_cmd == BIO_FLUSH)
		max = OFF_MAX;
	else
		max = gd->gd_disk.d_maxsize;
	do {
		child = gdisk_child(gd, bp, off, max);
		if (child == NULL)
			return (ENOMEM);
		bioq_insert_tail(children, child);
		off += child->bio_length;
	} while (off < bp->bio_length);
	return (0);
}

static int
gdisk_attr_copy(struct bio *bp, const void *val, int len)
{
	if (bp->bio_length < len)
		return (EFAULT);
	bcopy(val, bp->bio_data, len);
	bp->bio_completed = len;
	return (0);
}

static int
gdisk_attr_str(struct bio *bp, const char *s)
{
	if (*s == '\0')
		return (EOPNOTSUPP);
	return (gdisk_attr_copy(bp, s, (int)strlen(s) + 1));
}

static int
gdisk_attr_dumper(struct gdisk *gd, struct bio *bp)
{
	struct disk *dp = &gd->gd_disk;
	struct dumperinfo di;

	if (dp->d_dump == NULL)
		return (ENODEV);
	bzero(&di, sizeof(di));
	di.dumper = dp->d_dump;
	di.priv = dp;
	di.blocksize = dp->d_sectorsize;
	di.maxiosize = dp->d_maxsize;
	di.mediasize = gd->gd_mediasize;
	return (gdisk_attr_copy(bp, &di, sizeof(di)));
}

/* The attributes that a disk has when its driver has no better answer. */
static int
gdisk_attr(struct gdisk *gd, struct bio *bp)
{
	struct disk *dp = &gd->gd_disk;
	const char *name = bp->bio_attribute;
	int val, error;

	if (dp->d_getattr != NULL) {
		bp->bio_disk = dp;
		error = dp->d_getattr(bp);
		if (error != -1)
			return (error);
	}
	if (strcmp(name, "GEOM::ident") == 0)
		return (gdisk_attr_str(bp, dp->d_ident));
	if (strcmp(name, "GEOM::descr") == 0)
		return (gdisk_attr_str(bp, dp->d_descr));
	if (strcmp(name, "GEOM::attachment") == 0)
		return (gdisk_attr_str(bp, dp->d_attachment));
	if (strcmp(name, "GEOM::rotation_rate") == 0)
		return (gdisk_attr_copy(bp, &dp->d_rotation_rate, sizeof(dp->d_rotation_rate)));
	if (strcmp(name, "GEOM::kerneldump") == 0)
		return (gdisk_attr_dumper(gd, bp));
	if (strcmp(name, "GEOM::candelete") == 0)
		val = (dp->d_flags & DISKFLAG_CANDELETE) != 0;
	else if (strcmp(name, "GEOM::fwsectors") == 0)
		val = dp->d_fwsectors;
	else if (strcmp(name, "GEOM::fwheads") == 0)
		val = dp->d_fwheads;
	else
		return (ENOIOCTL);
	return (gdisk_attr_copy(bp, &val, sizeof(val)));
}

static void
gdisk_strategy(struct bio *bp)
{
	struct gdisk *gd = bp->bio_dev->si_drv1;
	struct disk *dp = &gd->gd_disk;
	struct bio_queue_head children;
	struct bio *child;
	int error;

	KASSERT(bp->bio_data != NULL || (bp->bio_cmd != BIO_READ && bp->bio_cmd != BIO_WRITE &&
	    bp->bio_cmd != BIO_GETATTR), ("NULL bp->data in %s(cmd=%hu)", __func__, bp->bio_cmd));
	KASSERT(bp->bio_data == NULL || (bp->bio_cmd != BIO_DELETE && bp->bio_cmd != BIO_FLUSH),
	    ("non-NULL bp->data in %s(cmd=%hu)", __func__, bp->bio_cmd));
	bp->bio_completed = 0;
	bp->bio_children = bp->bio_inbed = 0;
	bp->bio_error = 0;
	bp->bio_bcount = bp->bio_length;
	error = dp->d_goneflag ? ENXIO : gdisk_check(gd, bp);
	if (error == 0 && bp->bio_cmd == BIO_GETATTR)
		error = gdisk_attr(gd, bp);
	if (error != 0 || bp->bio_cmd == BIO_GETATTR ||
	    (gdisk_cmd_is_data(bp->bio_cmd) && bp->bio_length == 0)) {
		bp->bio_resid = bp->bio_bcount - bp->bio_completed;
		biofinish(bp, NULL, error);
		return;
	}
	bioq_init(&children);
	error = gdisk_split(gd, bp, &children);
	mtx_lock(&gd->gd_lock);
	if (error == 0 && dp->d_goneflag)
		error = ENXIO;
	if (error == 0) {
		gd->gd_inflight += bp->bio_children;
		TAILQ_FOREACH(child, &children.queue, bio_queue)
			devstat_start_transaction_bio(dp->d_devstat, child);
	}
	mtx_unlock(&gd->gd_lock);
	while ((child = bioq_takefirst(&children)) != NULL) {
		if (error == 0)
			dp->d_strategy(child);
		else
			g_destroy_bio(child);
	}
	if (error != 0)
		biofinish(bp, NULL, error);
}

/* Counts an open for reading or writing; the driver is notified of the first. */
static int
gdisk_open(struct cdev *dev, int oflags, int devtype __unused, struct thread *td __unused)
{
	struct gdisk *gd = dev->si_drv1;
	struct disk *dp = &gd->gd_disk;
	int error = 0;
	bool first;

	if ((oflags & FWRITE) != 0 && (dp->d_flags & DISKFLAG_WRITE_PROTECT) != 0)
		return (EROFS);
	mtx_lock(&gd->gd_lock);
	if (dp->d_goneflag) {
		mtx_unlock(&gd->gd_lock);
		return (ENXIO);
	}
	first = gd->gd_opens++ == 0;
	dp->d_flags |= DISKFLAG_OPEN;
	mtx_unlock(&gd->gd_lock);
	if (!first || dp->d_open == NULL)
		return (0);
	error = dp->d_open(dp);
	mtx_lock(&gd->gd_lock);
	if (error == 0)
		gd->gd_mediasize = dp->d_mediasize;
	else if (--gd->gd_opens == 0)
		dp->d_flags &= ~DISKFLAG_OPEN;
	mtx_unlock(&gd->gd_lock);
	return (error);
}

static int
gdisk_close(struct cdev *dev, int fflag __unused, int devtype __unused, struct thread *td __unused)
{
	struct gdisk *gd = dev->si_drv1;
	struct disk *dp = &gd->gd_disk;
	bool last;

	mtx_lock(&gd->gd_lock);
	last = --gd->gd_opens == 0;
	if (last)
		dp->d_flags &= ~DISKFLAG_OPEN;
	mtx_unlock(&gd->gd_lock);
	return (last && dp->d_close != NULL ? dp->d_close(dp) : 0);
}

/* Runs a bio without data through the strategy routine and waits. */
static int
gdisk_bio_wait(struct cdev *dev, int cmd, int flags, off_t offset, off_t length)
{
	struct bio *bp;
	int error;

	bp = g_alloc_bio();
	bp->bio_cmd = cmd;
	bp->bio_flags |= flags;
	bp->bio_dev = dev;
	bp->bio_offset = offset;
	bp->bio_length = length;
	gdisk_strategy(bp);
	error = biowait(bp, "gdisk");
	g_destroy_bio(bp);
	return (error);
}

static int
gdisk_getattr(struct cdev *dev, const char *name, void *buf, int *lenp)
{
	struct bio *bp;
	int error;

	bp = g_alloc_bio();
	bp->bio_cmd = BIO_GETATTR;
	bp->bio_dev = dev;
	bp->bio_attribute = name;
	bp->bio_data = buf;
	bp->bio_length = *lenp;
	gdisk_strategy(bp);
	error = biowait(bp, "ggetattr");
	*lenp = (int)bp->bio_completed;
	g_destroy_bio(bp);
	return (error);
}

static int
gdisk_delete(struct cdev *dev, const off_t *range)
{
	struct gdisk *gd = dev->si_drv1;

	if (range[0] < 0 || range[1] <= 0 || range[0] % gd->gd_disk.d_sectorsize != 0 ||
	    range[1] % gd->gd_disk.d_sectorsize != 0 || range[0] > gd->gd_mediasize ||
	    range[1] > gd->gd_mediasize - range[0])
		return (EINVAL);
	return (gdisk_bio_wait(dev, BIO_DELETE, 0, range[0], range[1]));
}

static int
gdisk_set_dump(struct cdev *dev, const struct diocskerneldump_arg *kda)
{
	struct dumperinfo di;
	int error, len = sizeof(di);

	if (kda->kda_index >= KDA_REMOVE_DEV)
		return (dumper_remove(devtoname(dev), kda));
	error = gdisk_getattr(dev, "GEOM::kerneldump", &di, &len);
	return (error != 0 ? error : dumper_insert(&di, devtoname(dev), kda));
}

static int
gdisk_ioctl(struct cdev *dev, u_long cmd, caddr_t data, int fflag, struct thread *td)
{
	struct gdisk *gd = dev->si_drv1;
	struct disk *dp = &gd->gd_disk;
	struct diocgattr_arg *arg;
	int error, len;

	switch (cmd) {
	case DIOCGSECTORSIZE:
		*(u_int *)data = dp->d_sectorsize;
		return (0);
	case DIOCGMEDIASIZE:
		*(off_t *)data = gd->gd_mediasize;
		return (0);
	case DIOCGFWSECTORS:
		*(u_int *)data = dp->d_fwsectors;
		return (0);
	case DIOCGFWHEADS:
		*(u_int *)data = dp->d_fwheads;
		return (0);
	case DIOCGSTRIPESIZE:
		*(off_t *)data = dp->d_stripesize;
		return (0);
	case DIOCGSTRIPEOFFSET:
		*(off_t *)data = dp->d_stripeoffset;
		return (0);
	case DIOCGFLUSH:
		return (gdisk_bio_wait(dev, BIO_FLUSH, BIO_ORDERED, gd->gd_mediasize, 0));
	case DIOCGDELETE:
		return ((fflag & FWRITE) != 0 ? gdisk_delete(dev, (const off_t *)data) : EBADF);
	case DIOCGPROVIDERNAME:
		strlcpy(data, devtoname(dev), MAXPATHLEN);
		return (0);
	case DIOCGIDENT:
		len = DISK_IDENT_SIZE;
		bzero(data, len);
		return (gdisk_getattr(dev, "GEOM::ident", data, &len));
	case DIOCGPHYSPATH:
		len = MAXPATHLEN;
		error = gdisk_getattr(dev, "GEOM::physpath", data, &len);
		return (error == 0 && *data == '\0' ? ENOENT : error);
	case DIOCGATTR:
		arg = (struct diocgattr_arg *)data;
		if (arg->len < 0 || arg->len > (int)sizeof(arg->value))
			return (EINVAL);
		arg->name[sizeof(arg->name) - 1] = '\0';
		return (gdisk_getattr(dev, arg->name, &arg->value, &arg->len));
	case DIOCSKERNELDUMP:
		return (gdisk_set_dump(dev, (const struct diocskerneldump_arg *)data));
	default:
		return (dp->d_ioctl != NULL ? dp->d_ioctl(dp, cmd, data, fflag, td) : ENOIOCTL);
	}
}

static struct cdevsw gdisk_cdevsw = {
	.d_version = D_VERSION,
	.d_flags = D_DISK | D_TRACKCLOSE,
	.d_name = "g_dev",
	.d_open = gdisk_open,
	.d_close = gdisk_close,
	.d_read = physread,
	.d_write = physwrite,
	.d_ioctl = gdisk_ioctl,
	.d_strategy = gdisk_strategy,
};

/* The part of disk_gone() that needs a thread that may sleep. */
static void
gdisk_gone_task(void *arg, int pending __unused)
{
	struct gdisk *gd = arg;
	struct disk *dp = &gd->gd_disk;
	struct diocskerneldump_arg kda = { .kda_index = KDA_REMOVE_ALL };

	(void)dumper_remove(devtoname(gd->gd_dev), &kda);
	destroy_dev(gd->gd_dev);
	if (gd->gd_opens != 0 && dp->d_close != NULL)
		(void)dp->d_close(dp);
	dp->d_flags &= ~DISKFLAG_OPEN;
	mtx_lock(&gd->gd_lock);
	while (gd->gd_inflight != 0)
		msleep(&gd->gd_inflight, &gd->gd_lock, PRIBIO, "gdgone", 0);
	gd->gd_gone_td = curthread;
	mtx_unlock(&gd->gd_lock);
	if (dp->d_gone != NULL)
		dp->d_gone(dp);
	mtx_lock(&gd->gd_lock);
	gd->gd_gone_td = NULL;
	gd->gd_ended = true;
	wakeup(&gd->gd_ended);
	mtx_unlock(&gd->gd_lock);
}

struct disk *
disk_alloc(void)
{
	struct gdisk *gd;

	gd = malloc(sizeof(*gd), M_DISK, M_WAITOK | M_ZERO);
	mtx_init(&gd->gd_lock, "disk", NULL, MTX_DEF);
	TASK_INIT(&gd->gd_gone_task, 0, gdisk_gone_task, gd);
	LIST_INIT(&gd->gd_disk.d_aliases);
	return (&gd->gd_disk);
}

void
disk_add_alias(struct disk *dp, const char *name)
{
	struct disk_alias *da;

	KASSERT(dp->d_init_level == DISK_INIT_NONE, ("%s: after disk_create", __func__));
	da = malloc(sizeof(*da) + strlen(name) + 1, M_DISK, M_WAITOK);
	da->da_alias = strcpy((char *)(da + 1), name);
	LIST_INSERT_HEAD(&dp->d_aliases, da, da_next);
}

void
disk_create(struct disk *dp, int version)
{
	struct gdisk *gd = gdisk_of(dp);
	struct make_dev_args args;
	struct disk_alias *da;
	struct cdev *alias;
	int error;

	if (version != DISK_VERSION) {
		printf("WARNING: Attempt to add disk %s%u: incompatible disk version %#x\n",
		    dp->d_name, dp->d_unit, version);
		return;
	}
	KASSERT(dp->d_strategy != NULL, ("%s: no strategy", __func__));
	KASSERT(dp->d_sectorsize > 0, ("%s: no sector size", __func__));
	if (dp->d_maxsize == 0)
		dp->d_maxsize = DFLTPHYS;
	dp->d_maxsize = MAX(rounddown(dp->d_maxsize, dp->d_sectorsize), dp->d_sectorsize);
	if (dp->d_delmaxsize == 0)
		dp->d_delmaxsize = dp->d_maxsize;
	gd->gd_mediasize = dp->d_mediasize;
	dp->d_devstat = devstat_new_entry(dp->d_name, dp->d_unit, dp->d_sectorsize,
	    DEVSTAT_ALL_SUPPORTED, DEVSTAT_TYPE_DIRECT, DEVSTAT_PRIORITY_MAX);
	make_dev_args_init(&args);
	args.mda_flags = MAKEDEV_CHECKNAME | MAKEDEV_WAITOK;
	args.mda_devsw = &gdisk_cdevsw;
	args.mda_uid = UID_ROOT;
	args.mda_gid = GID_OPERATOR;
	args.mda_mode = 0640;
	args.mda_si_drv1 = gd;
	error = make_dev_s(&args, &gd->gd_dev, "%s%u", dp->d_name, dp->d_unit);
	if (error != 0) {
		printf("%s%u: no device node, error %d\n", dp->d_name, dp->d_unit, error);
		return;
	}
	gd->gd_dev->si_iosize_max = (int)maxphys;
	if ((dp->d_flags & DISKFLAG_UNMAPPED_BIO) != 0)
		gd->gd_dev->si_flags |= SI_UNMAPPED;
	LIST_FOREACH(da, &dp->d_aliases, da_next)
		(void)make_dev_alias_p(MAKEDEV_CHECKNAME | MAKEDEV_WAITOK, &alias, gd->gd_dev,
		    "%s%u", da->da_alias, dp->d_unit);
	dp->d_init_level = DISK_INIT_DONE;
}

/* May be called with the driver's mutex held: does not sleep. */
void
disk_gone(struct disk *dp)
{
	struct gdisk *gd = gdisk_of(dp);
	bool first;

	mtx_lock(&gd->gd_lock);
	first = !dp->d_goneflag;
	dp->d_goneflag = 1;
	mtx_unlock(&gd->gd_lock);
	if (!first)
		return;
	if (dp->d_init_level == DISK_INIT_DONE) {
		delist_dev(gd->gd_dev);
		taskqueue_enqueue(g_event_tq, &gd->gd_gone_task);
	} else
		gd->gd_ended = true;
}

static void
gdisk_free(struct gdisk *gd)
{
	struct disk_alias *da;

	while ((da = LIST_FIRST(&gd->gd_disk.d_aliases)) != NULL) {
		LIST_REMOVE(da, da_next);
		free(da, M_DISK);
	}
	devstat_remove_entry(gd->gd_disk.d_devstat);
	mtx_destroy(&gd->gd_lock);
	free(gd, M_DISK);
}

void
disk_destroy(struct disk *dp)
{
	struct gdisk *gd = gdisk_of(dp);

	disk_gone(dp);
	dp->d_destroyed = 1;
	KASSERT(gd->gd_gone_td != curthread, ("%s: called by d_gone", __func__));
	mtx_lock(&gd->gd_lock);
	while (!gd->gd_ended)
		msleep(&gd->gd_ended, &gd->gd_lock, PRIBIO, "gddest", 0);
	mtx_unlock(&gd->gd_lock);
	if (dp->d_init_level == DISK_INIT_DONE)
		taskqueue_drain(g_event_tq, &gd->gd_gone_task);
	gdisk_free(gd);
}

static void
gdisk_set_mediasize(struct disk *dp, off_t size)
{
	struct gdisk *gd = gdisk_of(dp);

	mtx_lock(&gd->gd_lock);
	gd->gd_mediasize = size;
	mtx_unlock(&gd->gd_lock);
}

int
disk_resize(struct disk *dp, int flag __unused)
{
	if (dp->d_destroyed || dp->d_goneflag)
		return (0);
	gdisk_set_mediasize(dp, dp->d_mediasize);
	return (0);
}

void
disk_media_changed(struct disk *dp, int flag __unused)
{
	gdisk_set_mediasize(dp, dp->d_mediasize);
}

/* Without media every transfer fails with ENXIO, until disk_media_changed(). */
void
disk_media_gone(struct disk *dp, int flag __unused)
{
	gdisk_set_mediasize(dp, 0);
}

/* Attributes are not cached here: they are read again each time. */
void
disk_attr_changed(struct disk *dp, const char *attr, int flag __unused)
{
	if (bootverbose)
		printf("%s%u: attribute %s changed\n", dp->d_name, dp->d_unit, attr);
}
