/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Character devices (make_dev(9)) and the names under /dev.
 *
 * A struct cdev is part of a devnode.  It is named from make_dev*() on, until destroy_dev() removes
 * the name and clears si_devsw, which is what "destroyed" means here: dev_refthread() fails from
 * then on.  destroy_dev() then calls d_purge and sleeps until the threads inside the methods have
 * left (si_threadcount), and only then drops the name's reference.  The memory is freed with the
 * last reference (si_refcount: the name, each open handle, dev_ref()).
 *
 * An alias is a devnode of its own that points to its parent and is destroyed with it, as is every
 * child made by dev_depends().
 *
 * Locking: devmtx (dev_lock()) protects the lists, the counts and si_devsw.  It is a leaf: nothing is
 * called with it held.
 *
 * Gaps: no cloning (dev_clone), no per-open data (devfs_set_cdevpriv), no permissions: the only user
 * is the console.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/conf.h>
#include <sys/fcntl.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/stat.h>
#include <sys/taskqueue.h>
#include <sys/uio.h>

#include <machine/stdarg.h>

#include <kern/devfs_tree.h>

static MALLOC_DEFINE(M_DEVT, "cdev", "cdev storage");

struct devnode {
	struct cdev	dn_dev;		/* first: a cdev is its devnode */
	TAILQ_ENTRY(devnode) dn_link;	/* devnodes, while named */
	struct task	dn_task;	/* destroy_dev_sched_cb() */
	void		(*dn_cb)(void *);
	void		*dn_arg;
};

struct devfs_file {
	struct cdev	*df_dev;
	int		df_fflag;
};

static TAILQ_HEAD(, devnode) devnodes = TAILQ_HEAD_INITIALIZER(devnodes);
static struct mtx devmtx;
MTX_SYSINIT(devmtx, &devmtx, "cdev", MTX_DEF);

void
dev_lock(void)
{
	mtx_lock(&devmtx);
}

void
dev_unlock(void)
{
	mtx_unlock(&devmtx);
}

const char *
devtoname(struct cdev *dev)
{
	return (dev->si_name);
}

void
dev_refl(struct cdev *dev)
{
	mtx_assert(&devmtx, MA_OWNED);
	dev->si_refcount++;
}

void
dev_ref(struct cdev *dev)
{
	dev_lock();
	dev_refl(dev);
	dev_unlock();
}

void
dev_rel(struct cdev *dev)
{
	bool last;

	dev_lock();
	KASSERT(dev->si_refcount > 0, ("%s: %s has no reference", __func__, dev->si_name));
	last = --dev->si_refcount == 0;
	dev_unlock();
	if (last)
		free(__containerof(dev, struct devnode, dn_dev), M_DEVT);
}

/* Enters the device's methods: NULL when it is destroyed.  Pairs with dev_relthread(). */
struct cdevsw *
dev_refthread(struct cdev *dev, int *ref)
{
	struct cdevsw *csw;

	if ((dev->si_flags & SI_ETERNAL) != 0) {
		*ref = 0;
		return (dev->si_devsw);
	}
	dev_lock();
	csw = dev->si_devsw;
	if (csw != NULL)
		dev->si_threadcount++;
	dev_unlock();
	*ref = csw != NULL;
	return (csw);
}

void
dev_relthread(struct cdev *dev, int ref)
{
	if (ref == 0)
		return;
	dev_lock();
	KASSERT(dev->si_threadcount > 0, ("%s: %s has no thread", __func__, dev->si_name));
	if (--dev->si_threadcount == 0)
		wakeup(&dev->si_threadcount);
	dev_unlock();
}

static int
null_open(struct cdev *dev __unused, int oflags __unused, int devtype __unused,
    struct thread *td __unused)
{
	return (0);
}

static int
no_rdwr(struct cdev *dev __unused, struct uio *uio __unused, int ioflag __unused)
{
	return (ENODEV);
}

static int
no_ioctl(struct cdev *dev __unused, u_long cmd __unused, caddr_t data __unused,
    int fflag __unused, struct thread *td __unused)
{
	return (ENODEV);
}

static void
no_strategy(struct bio *bp)
{
	biofinish(bp, NULL, ENODEV);
}

/* Fills in the methods that the driver left out, once for each cdevsw. */
static void
prep_cdevsw(struct cdevsw *csw)
{
	mtx_assert(&devmtx, MA_OWNED);
	if ((csw->d_flags & D_INIT) != 0)
		return;
	LIST_INIT(&csw->d_devs);
	if (csw->d_open == NULL)
		csw->d_open = null_open;
	if (csw->d_close == NULL)
		csw->d_close = null_open;
	if (csw->d_read == NULL)
		csw->d_read = no_rdwr;
	if (csw->d_write == NULL)
		csw->d_write = no_rdwr;
	if (csw->d_ioctl == NULL)
		csw->d_ioctl = no_ioctl;
	if (csw->d_strategy == NULL)
		csw->d_strategy = no_strategy;
	csw->d_flags |= D_INIT;
}

static struct devnode *
devnode_find(const char *name)
{
	struct devnode *dn;

	mtx_assert(&devmtx, MA_OWNED);
	TAILQ_FOREACH(dn, &devnodes, dn_link) {
		if (strcmp(dn->dn_dev.si_name, name) == 0)
			return (dn);
	}
	return (NULL);
}

/* make_dev(9), ERRORS: no empty name, no "." or ".." component, no trailing slash. */
static int
devname_check(const char *name)
{
	const char *p, *end;
	size_t len;

	if (*name == '\0')
		return (EINVAL);
	for (p = name;; p = end + 1) {
		end = strchr(p, '/');
		len = end != NULL ? (size_t)(end - p) : strlen(p);
		if (len == 0 || (len == 1 && p[0] == '.') ||
		    (len == 2 && p[0] == '.' && p[1] == '.'))
			return (EINVAL);
		if (end == NULL)
			return (0);
	}
}

static int
devnode_alloc(int flags, struct devnode **dnp, const char *fmt, va_list ap)
{
	struct devnode *dn;
	int error, len;

	dn = malloc(sizeof(*dn), M_DEVT, M_ZERO |
	    ((flags & MAKEDEV_NOWAIT) != 0 ? M_NOWAIT : M_WAITOK));
	if (dn == NULL)
		return (ENOMEM);
	len = vsnprintf(dn->dn_dev.si_name, sizeof(dn->dn_dev.si_name), fmt, ap);
	error = len >= (int)sizeof(dn->dn_dev.si_name) ? ENAMETOOLONG :
	    devname_check(dn->dn_dev.si_name);
	if (error != 0) {
		if ((flags & MAKEDEV_CHECKNAME) == 0)
			panic("make_dev: bad name \"%s\"", dn->dn_dev.si_name);
		free(dn, M_DEVT);
		return (error);
	}
	LIST_INIT(&dn->dn_dev.si_children);
	*dnp = dn;
	return (0);
}

/* Enters the name; on EEXIST the node is freed. */
static int
devnode_name(struct devnode *dn, int flags)
{
	struct cdev *dev = &dn->dn_dev;

	mtx_assert(&devmtx, MA_OWNED);
	if (devnode_find(dev->si_name) != NULL) {
		dev_unlock();
		if ((flags & MAKEDEV_CHECKNAME) == 0)
			panic("make_dev: %s exists", dev->si_name);
		free(dn, M_DEVT);
		dev_lock();
		return (EEXIST);
	}
	dev->si_flags |= SI_NAMED;
	dev->si_refcount = 1 + ((flags & MAKEDEV_REF) != 0);
	TAILQ_INSERT_TAIL(&devnodes, dn, dn_link);
	return (0);
}

void
make_dev_args_init_impl(struct make_dev_args *args, size_t sz)
{
	bzero(args, sz);
	args->mda_size = sz;
}

static int
make_dev_sv(const struct make_dev_args *args, struct cdev **devp, const char *fmt, va_list ap)
{
	struct devnode *dn;
	struct cdev *dev;
	int error;

	error = devnode_alloc(args->mda_flags, &dn, fmt, ap);
	if (error != 0)
		return (error);
	dev = &dn->dn_dev;
	dev->si_devsw = args->mda_devsw;
	dev->si_drv0 = args->mda_unit;
	dev->si_drv1 = args->mda_si_drv1;
	dev->si_drv2 = args->mda_si_drv2;
	dev->si_uid = args->mda_uid;
	dev->si_gid = args->mda_gid;
	dev->si_mode = args->mda_mode;
	dev->si_cred = args->mda_cr;
	dev->si_iosize_max = DFLTPHYS;
	if ((args->mda_flags & MAKEDEV_ETERNAL) != 0)
		dev->si_flags |= SI_ETERNAL;
	dev_lock();
	prep_cdevsw(args->mda_devsw);
	error = devnode_name(dn, args->mda_flags);
	if (error == 0) {
		LIST_INSERT_HEAD(&args->mda_devsw->d_devs, dev, si_list);
		*devp = dev;
	}
	dev_unlock();
	return (error);
}

int
make_dev_s(struct make_dev_args *args, struct cdev **devp, const char *fmt, ...)
{
	va_list ap;
	int error;

	va_start(ap, fmt);
	error = make_dev_sv(args, devp, fmt, ap);
	va_end(ap);
	return (error);
}

static int
make_dev_pv(int flags, struct cdev **devp, struct cdevsw *csw, int unit, struct ucred *cr,
    uid_t uid, gid_t gid, int mode, const char *fmt, va_list ap)
{
	struct make_dev_args args;

	make_dev_args_init(&args);
	args.mda_flags = flags;
	args.mda_devsw = csw;
	args.mda_cr = cr;
	args.mda_uid = uid;
	args.mda_gid = gid;
	args.mda_mode = mode;
	args.mda_unit = unit;
	return (make_dev_sv(&args, devp, fmt, ap));
}

int
make_dev_p(int flags, struct cdev **devp, struct cdevsw *csw, struct ucred *cr, uid_t uid,
    gid_t gid, int mode, const char *fmt, ...)
{
	va_list ap;
	int error;

	va_start(ap, fmt);
	error = make_dev_pv(flags, devp, csw, 0, cr, uid, gid, mode, fmt, ap);
	va_end(ap);
	return (error);
}

struct cdev *
make_dev_credf(int flags, struct cdevsw *csw, int unit, struct ucred *cr, uid_t uid, gid_t gid,
    int mode, const char *fmt, ...)
{
	struct cdev *dev = NULL;
	va_list ap;
	int error;

	va_start(ap, fmt);
	error = make_dev_pv(flags, &dev, csw, unit, cr, uid, gid, mode, fmt, ap);
	va_end(ap);
	KASSERT(error == 0 || (flags & (MAKEDEV_NOWAIT | MAKEDEV_CHECKNAME)) != 0,
	    ("%s: error %d", __func__, error));
	return (error == 0 ? dev : NULL);
}

struct cdev *
make_dev(struct cdevsw *csw, int unit, uid_t uid, gid_t gid, int mode, const char *fmt, ...)
{
	struct cdev *dev = NULL;
	va_list ap;

	va_start(ap, fmt);
	(void)make_dev_pv(0, &dev, csw, unit, NULL, uid, gid, mode, fmt, ap);
	va_end(ap);
	return (dev);
}

static void
dev_dependsl(struct cdev *parent, struct cdev *child)
{
	mtx_assert(&devmtx, MA_OWNED);
	child->si_parent = parent;
	child->si_flags |= SI_CHILD;
	LIST_INSERT_HEAD(&parent->si_children, child, si_siblings);
}

void
dev_depends(struct cdev *parent, struct cdev *child)
{
	dev_lock();
	dev_dependsl(parent, child);
	dev_unlock();
}

static int
make_dev_alias_v(int flags, struct cdev **devp, struct cdev *parent, const char *fmt, va_list ap)
{
	struct devnode *dn;
	int error;

	error = devnode_alloc(flags, &dn, fmt, ap);
	if (error != 0)
		return (error);
	dn->dn_dev.si_flags = SI_ALIAS;
	dev_lock();
	error = devnode_name(dn, flags);
	if (error == 0) {
		dev_dependsl(parent, &dn->dn_dev);
		*devp = &dn->dn_dev;
	}
	dev_unlock();
	return (error);
}

int
make_dev_alias_p(int flags, struct cdev **devp, struct cdev *parent, const char *fmt, ...)
{
	va_list ap;
	int error;

	va_start(ap, fmt);
	error = make_dev_alias_v(flags, devp, parent, fmt, ap);
	va_end(ap);
	return (error);
}

struct cdev *
make_dev_alias(struct cdev *parent, const char *fmt, ...)
{
	struct cdev *dev = NULL;
	va_list ap;

	va_start(ap, fmt);
	(void)make_dev_alias_v(MAKEDEV_WAITOK, &dev, parent, fmt, ap);
	va_end(ap);
	return (dev);
}

/* Removes the name; open handles stay usable. */
static void
delist_devl(struct cdev *dev)
{
	mtx_assert(&devmtx, MA_OWNED);
	if ((dev->si_flags & SI_NAMED) == 0)
		return;
	dev->si_flags &= ~SI_NAMED;
	TAILQ_REMOVE(&devnodes, __containerof(dev, struct devnode, dn_dev), dn_link);
}

void
delist_dev(struct cdev *dev)
{
	dev_lock();
	delist_devl(dev);
	dev_unlock();
}

void
destroy_dev(struct cdev *dev)
{
	struct cdevsw *csw;
	struct cdev *child;

	KASSERT((dev->si_flags & SI_ETERNAL) == 0, ("%s: %s is eternal", __func__, dev->si_name));
	dev_lock();
	delist_devl(dev);
	while ((child = LIST_FIRST(&dev->si_children)) != NULL) {
		dev_unlock();
		destroy_dev(child);
		dev_lock();
	}
	if ((dev->si_flags & SI_CHILD) != 0) {
		LIST_REMOVE(dev, si_siblings);
		dev->si_flags &= ~SI_CHILD;
	}
	csw = dev->si_devsw;
	dev->si_devsw = NULL;
	while (csw != NULL && dev->si_threadcount != 0) {
		if (csw->d_purge != NULL) {
			dev_unlock();
			csw->d_purge(dev);
			dev_lock();
		}
		/* d_purge has to be called again: another thread may have gone to sleep since. */
		if (dev->si_threadcount != 0)
			msleep(&dev->si_threadcount, &devmtx, 0, "devprg", hz / 10);
	}
	if (csw != NULL) {
		LIST_REMOVE(dev, si_list);
		wakeup(&csw->d_devs);
	}
	dev_unlock();
	dev_rel(dev);
}

static void
destroy_dev_task(void *arg, int pending __unused)
{
	struct devnode *dn = arg;
	void (*cb)(void *) = dn->dn_cb;
	void *cb_arg = dn->dn_arg;

	destroy_dev(&dn->dn_dev);
	if (cb != NULL)
		cb(cb_arg);
	dev_rel(&dn->dn_dev);
}

/* Returns 1 when the destruction was scheduled, 0 when it already was. */
int
destroy_dev_sched_cb(struct cdev *dev, void (*cb)(void *), void *arg)
{
	struct devnode *dn = __containerof(dev, struct devnode, dn_dev);

	dev_lock();
	if (dn->dn_task.ta_func != NULL) {
		dev_unlock();
		return (0);
	}
	dev_refl(dev);
	dn->dn_cb = cb;
	dn->dn_arg = arg;
	TASK_INIT(&dn->dn_task, 0, destroy_dev_task, dn);
	dev_unlock();
	taskqueue_enqueue(taskqueue_thread, &dn->dn_task);
	return (1);
}

int
destroy_dev_sched(struct cdev *dev)
{
	return (destroy_dev_sched_cb(dev, NULL, NULL));
}

void
destroy_dev_drain(struct cdevsw *csw)
{
	dev_lock();
	while (!LIST_EMPTY(&csw->d_devs))
		msleep(&csw->d_devs, &devmtx, 0, "devscd", hz / 10);
	dev_unlock();
}

struct cdev *
devfs_lookup(const char *path)
{
	struct devnode *dn;
	struct cdev *dev;

	if (strncmp(path, "/dev/", 5) != 0)
		return (NULL);
	dev_lock();
	dn = devnode_find(path + 5);
	dev = dn != NULL ? &dn->dn_dev : NULL;
	if (dev != NULL && (dev->si_flags & SI_ALIAS) != 0)
		dev = dev->si_parent;
	if (dev != NULL)
		dev_refl(dev);
	dev_unlock();
	return (dev);
}

int
devfs_foreach(int (*cb)(const char *name, struct cdev *dev, void *arg), void *arg)
{
	struct devnode *dn;
	struct cdev *dev;
	int error, i, n;

	/* cb may sleep, so the list is walked by position: a name may be seen twice or missed
	 * when another is removed meanwhile, as with readdir(3). */
	for (n = 0;; n++) {
		dev_lock();
		i = 0;
		TAILQ_FOREACH(dn, &devnodes, dn_link) {
			if (i++ == n)
				break;
		}
		if (dn == NULL) {
			dev_unlock();
			return (0);
		}
		dev = &dn->dn_dev;
		dev_refl(dev);
		dev_unlock();
		error = cb(dev->si_name, dev, arg);
		dev_rel(dev);
		if (error != 0)
			return (error);
	}
}

int
devfs_open(const char *path, int fflag, struct devfs_file **fpp)
{
	struct devfs_file *fp;
	struct cdevsw *csw;
	struct cdev *dev;
	int error, ref;

	dev = devfs_lookup(path);
	if (dev == NULL)
		return (ENOENT);
	csw = dev_refthread(dev, &ref);
	if (csw == NULL) {
		dev_rel(dev);
		return (ENXIO);
	}
	error = csw->d_open(dev, fflag, S_IFCHR, curthread);
	if (error == 0) {
		dev_lock();
		dev->si_usecount++;
		dev_unlock();
	}
	dev_relthread(dev, ref);
	if (error != 0) {
		dev_rel(dev);
		return (error);
	}
	fp = malloc(sizeof(*fp), M_DEVT, M_WAITOK);
	fp->df_dev = dev;
	fp->df_fflag = fflag;
	*fpp = fp;
	return (0);
}

void
devfs_close(struct devfs_file *fp)
{
	struct cdev *dev = fp->df_dev;
	struct cdevsw *csw;
	bool last;
	int ref;

	csw = dev_refthread(dev, &ref);
	dev_lock();
	last = --dev->si_usecount == 0;
	dev_unlock();
	if (csw != NULL) {
		if (last || (csw->d_flags & D_TRACKCLOSE) != 0)
			csw->d_close(dev, fp->df_fflag, S_IFCHR, curthread);
		dev_relthread(dev, ref);
	}
	dev_rel(dev);
	free(fp, M_DEVT);
}

struct cdev *
devfs_cdev(struct devfs_file *fp)
{
	return (fp->df_dev);
}

static int
devfs_rdwr(struct devfs_file *fp, enum uio_rw rw, void *buf, size_t *lenp, off_t off)
{
	struct iovec iov = { .iov_base = buf, .iov_len = *lenp };
	struct uio uio = {
		.uio_iov = &iov, .uio_iovcnt = 1, .uio_offset = off, .uio_resid = *lenp,
		.uio_segflg = UIO_SYSSPACE, .uio_rw = rw, .uio_td = curthread,
	};
	struct cdevsw *csw;
	int error, ref;

	if ((fp->df_fflag & (rw == UIO_READ ? FREAD : FWRITE)) == 0)
		return (EBADF);
	csw = dev_refthread(fp->df_dev, &ref);
	if (csw == NULL)
		return (ENXIO);
	error = (rw == UIO_READ ? csw->d_read : csw->d_write)(fp->df_dev, &uio, 0);
	dev_relthread(fp->df_dev, ref);
	*lenp -= uio.uio_resid;
	return (error);
}

int
devfs_pread(struct devfs_file *fp, void *buf, size_t *lenp, off_t off)
{
	return (devfs_rdwr(fp, UIO_READ, buf, lenp, off));
}

int
devfs_pwrite(struct devfs_file *fp, const void *buf, size_t *lenp, off_t off)
{
	return (devfs_rdwr(fp, UIO_WRITE, __DECONST(void *, buf), lenp, off));
}

int
devfs_ioctl(struct devfs_file *fp, u_long cmd, void *data)
{
	struct cdevsw *csw;
	int error, ref;

	csw = dev_refthread(fp->df_dev, &ref);
	if (csw == NULL)
		return (ENXIO);
	error = csw->d_ioctl(fp->df_dev, cmd, data, fp->df_fflag, curthread);
	dev_relthread(fp->df_dev, ref);
	return (error);
}

void
devfs_strategy(struct devfs_file *fp, struct bio *bp)
{
	struct cdevsw *csw;
	int ref;

	bp->bio_dev = fp->df_dev;
	csw = dev_refthread(fp->df_dev, &ref);
	if (csw == NULL) {
		biofinish(bp, NULL, ENXIO);
		return;
	}
	csw->d_strategy(bp);
	dev_relthread(fp->df_dev, ref);
}
