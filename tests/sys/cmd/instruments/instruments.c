/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The tree kernel's instruments in FreeBSD: diskbench, diskcheck, memhog, pktgen (the folders beside
 * this one).  They are commands of the tree's console, and run in the kernel; here a program of the
 * same name (tests/sys/cmd/instrument.c) has them run on its behalf by a device.  Each runs in a thread
 * of the kernel's: a program's has to leave the kernel before the machine is suspended.
 *
 * What the commands need of the tree kernel beside FreeBSD's KPI is below: <kern/console_tree.h>,
 * <kern/devfs_tree.h>.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/conf.h>
#include <sys/fcntl.h>
#include <sys/filedesc.h>
#include <sys/kthread.h>
#include <sys/linker_set.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/namei.h>
#include <sys/proc.h>
#include <sys/queue.h>
#include <sys/vnode.h>

#include <net/vnet.h>

#include <kern/console_tree.h>
#include <kern/devfs_tree.h>

#include "instruments.h"

#define	INSTRUMENTS_WORDS	32

static MALLOC_DEFINE(M_INSTRUMENTS, "instruments", "commands of the tree kernel");

SET_DECLARE(console_cmd_set, const struct console_cmd);

/*
 * A command that runs: the state of an open device.  Its program's wait is begun anew after a
 * suspension; when the device is closed, as by a signal that ends the program, it is interrupted.
 */
struct run {
	LIST_ENTRY(run)	 r_link;
	char		 r_words[INSTRUMENTS_MAX + 1];
	struct thread	*r_td;
	const struct console_cmd *r_cmd;
	char		*r_argv[INSTRUMENTS_WORDS];
	int		 r_argc;
	int		 r_status;
	bool		 r_interrupted;
	bool		 r_done;
};

static struct cdev *instruments_dev;
static LIST_HEAD(, run) instruments_runs = LIST_HEAD_INITIALIZER(instruments_runs);
static struct mtx instruments_lock;
MTX_SYSINIT(instruments, &instruments_lock, "instruments", MTX_DEF);

/* ---- <kern/devfs_tree.h> ------------------------------------------------------------------------ */

struct devfs_file {
	struct vnode	*df_vp;
	struct cdev	*df_dev;	/* referenced */
	int		 df_fflag;
};

int
devfs_open(const char *path, int fflag, struct devfs_file **fpp)
{
	struct devfs_file *fp;
	struct nameidata nd;
	int error, flags = fflag;

	NDINIT(&nd, LOOKUP, FOLLOW, UIO_SYSSPACE, path);
	error = vn_open(&nd, &flags, 0, NULL);
	if (error != 0)
		return (error);
	NDFREE_PNBUF(&nd);
	if (nd.ni_vp->v_type != VCHR || nd.ni_vp->v_rdev == NULL) {
		VOP_UNLOCK(nd.ni_vp);
		(void)vn_close(nd.ni_vp, flags, curthread->td_ucred, curthread);
		return (ENODEV);
	}
	fp = malloc(sizeof(*fp), M_INSTRUMENTS, M_WAITOK);
	fp->df_vp = nd.ni_vp;
	fp->df_dev = nd.ni_vp->v_rdev;
	fp->df_fflag = flags;
	dev_ref(fp->df_dev);
	VOP_UNLOCK(nd.ni_vp);
	*fpp = fp;
	return (0);
}

void
devfs_close(struct devfs_file *fp)
{
	(void)vn_close(fp->df_vp, fp->df_fflag, curthread->td_ucred, curthread);
	dev_rel(fp->df_dev);
	free(fp, M_INSTRUMENTS);
}

struct cdev *
devfs_cdev(struct devfs_file *fp)
{
	return (fp->df_dev);
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
		bp->bio_resid = bp->bio_bcount;
		biofinish(bp, NULL, ENXIO);
		return;
	}
	csw->d_strategy(bp);
	dev_relthread(fp->df_dev, ref);
}

/* ---- <kern/console_tree.h> ---------------------------------------------------------------------- */

static const struct console_cmd *
instruments_find(const char *name)
{
	const struct console_cmd **cc;

	SET_FOREACH(cc, console_cmd_set) {
		if (strcmp((*cc)->cc_name, name) == 0)
			return (*cc);
	}
	return (NULL);
}

int
cmd_usage(const char *name)
{
	const struct console_cmd *cc = instruments_find(name);

	printf("usage: %s\n", cc == NULL ? name : cc->cc_usage);
	return (EX_USAGE);
}

bool
cmd_interrupted(void)
{
	bool interrupted = false;
	struct run *r;

	mtx_lock(&instruments_lock);
	LIST_FOREACH(r, &instruments_runs, r_link) {
		if (r->r_td == curthread)
			interrupted = r->r_interrupted;
	}
	mtx_unlock(&instruments_lock);
	return (interrupted);
}

/* ---- The device ---------------------------------------------------------------------------- */

/* A command's thread. */
static void
instruments_thread(void *arg)
{
	struct run *r = arg;

	mtx_lock(&instruments_lock);
	r->r_td = curthread;
	LIST_INSERT_HEAD(&instruments_runs, r, r_link);
	mtx_unlock(&instruments_lock);
	pwd_ensure_dirs();
	if (r->r_cmd->cc_vnet) {
		CURVNET_SET(vnet0);
		r->r_status = r->r_cmd->cc_func(r->r_argc, r->r_argv);
		CURVNET_RESTORE();
	} else
		r->r_status = r->r_cmd->cc_func(r->r_argc, r->r_argv);
	mtx_lock(&instruments_lock);
	LIST_REMOVE(r, r_link);
	r->r_done = true;
	wakeup(r);
	mtx_unlock(&instruments_lock);
	kthread_exit();
}

/* The device is closed, or its command has ended. */
static void
instruments_end(void *arg)
{
	struct run *r = arg;

	mtx_lock(&instruments_lock);
	r->r_interrupted = true;
	while (!r->r_done)
		msleep(r, &instruments_lock, PWAIT, "instrument", 0);
	mtx_unlock(&instruments_lock);
	free(r, M_INSTRUMENTS);
}

static int
instruments_begin(const struct instruments_run *ir, struct run **rp)
{
	struct run *r;
	char *word;
	int error;

	if (ir->ir_len == 0 || ir->ir_len > INSTRUMENTS_MAX)
		return (EINVAL);
	r = malloc(sizeof(*r), M_INSTRUMENTS, M_WAITOK | M_ZERO);
	error = copyin(ir->ir_words, r->r_words, ir->ir_len);
	for (word = r->r_words; error == 0 && word < r->r_words + ir->ir_len;
	    word += strlen(word) + 1) {
		if (r->r_argc == nitems(r->r_argv))
			error = EINVAL;
		else
			r->r_argv[r->r_argc++] = word;
	}
	if (error == 0) {
		r->r_cmd = instruments_find(r->r_words);
		error = r->r_cmd == NULL ? ENOENT : devfs_set_cdevpriv(r, instruments_end);
	}
	if (error != 0) {
		free(r, M_INSTRUMENTS);
		return (error);
	}
	error = kthread_add(instruments_thread, r, NULL, NULL, 0, 0, "%s", r->r_words);
	if (error != 0) {
		r->r_done = true;
		devfs_clear_cdevpriv();
	}
	*rp = r;
	return (error);
}

static int
instruments_ioctl(struct cdev *dev __unused, u_long cmd, caddr_t data, int fflag __unused,
    struct thread *td __unused)
{
	struct instruments_run *ir = (struct instruments_run *)data;
	struct run *r;
	int error = 0;

	if (cmd != INSTRUMENTS_RUN)
		return (ENOTTY);
	if (devfs_get_cdevpriv((void **)&r) != 0)
		error = instruments_begin(ir, &r);
	if (error != 0)
		return (error);
	mtx_lock(&instruments_lock);
	while (error == 0 && !r->r_done)
		error = msleep(r, &instruments_lock, PWAIT | PCATCH, "instrument", 0);
	mtx_unlock(&instruments_lock);
	if (error == 0) {
		ir->ir_status = r->r_status;
		devfs_clear_cdevpriv();
	}
	return (error);
}

static struct cdevsw instruments_cdevsw = {
	.d_version = D_VERSION,
	.d_ioctl = instruments_ioctl,
	.d_name = "instruments",
};

static int
instruments_modevent(module_t mod __unused, int what, void *arg __unused)
{
	switch (what) {
	case MOD_LOAD:
		instruments_dev = make_dev(&instruments_cdevsw, 0, UID_ROOT, GID_WHEEL, 0600,
		    INSTRUMENTS_DEVICE);
		return (0);
	case MOD_UNLOAD:
		destroy_dev(instruments_dev);
		/* A thread that has just ended may still be on its way out. */
		pause("instrument", hz / 10);
		return (0);
	default:
		return (EOPNOTSUPP);
	}
}

static moduledata_t instruments_mod = { "instruments", instruments_modevent, NULL };

DECLARE_MODULE(instruments, instruments_mod, SI_SUB_DRIVERS, SI_ORDER_MIDDLE);
MODULE_VERSION(instruments, 1);
