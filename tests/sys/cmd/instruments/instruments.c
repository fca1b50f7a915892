/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The tree kernel's instruments in FreeBSD: diskbench, diskcheck, memhog, pktgen (sys/kern and sys/net,
 * cmd_*.c).  They are commands of the tree's console, and run in the kernel; here a program of the same
 * name (tests/sys/cmd/instrument.c) has them run on its behalf by a device, in its own thread.
 *
 * What the commands need of the tree kernel beside FreeBSD's KPI is below: <kern/console.h>,
 * <kern/devfs.h>.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bio.h>
#include <sys/conf.h>
#include <sys/fcntl.h>
#include <sys/jail.h>
#include <sys/linker_set.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/namei.h>
#include <sys/proc.h>
#include <sys/signalvar.h>
#include <sys/ucred.h>
#include <sys/vnode.h>

#include <net/vnet.h>

#include <kern/console.h>
#include <kern/devfs.h>

#include "instruments.h"

#define	INSTRUMENTS_WORDS	32

static MALLOC_DEFINE(M_INSTRUMENTS, "instruments", "commands of the tree kernel");

SET_DECLARE(console_cmd_set, const struct console_cmd);

static struct cdev *instruments_dev;

/* ---- <kern/devfs.h> ------------------------------------------------------------------------ */

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

/* ---- <kern/console.h> ---------------------------------------------------------------------- */

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

/* A signal that would end the program. */
bool
cmd_interrupted(void)
{
	return (SIGPENDING(curthread));
}

/* ---- The device ---------------------------------------------------------------------------- */

static int
instruments_call(char *words, size_t len, int *status)
{
	char *argv[INSTRUMENTS_WORDS], *word;
	const struct console_cmd *cc;
	int argc = 0;

	for (word = words; word < words + len; word += strlen(word) + 1) {
		if (argc == nitems(argv))
			return (EINVAL);
		argv[argc++] = word;
	}
	cc = instruments_find(argv[0]);
	if (cc == NULL)
		return (ENOENT);
	if (!cc->cc_vnet) {
		*status = cc->cc_func(argc, argv);
		return (0);
	}
	CURVNET_SET(TD_TO_VNET(curthread));
	*status = cc->cc_func(argc, argv);
	CURVNET_RESTORE();
	return (0);
}

static int
instruments_ioctl(struct cdev *dev __unused, u_long cmd, caddr_t data, int fflag __unused,
    struct thread *td __unused)
{
	struct instruments_run *run = (struct instruments_run *)data;
	char *words;
	int error;

	if (cmd != INSTRUMENTS_RUN)
		return (ENOTTY);
	if (run->ir_len == 0 || run->ir_len > INSTRUMENTS_MAX)
		return (EINVAL);
	words = malloc(run->ir_len + 1, M_INSTRUMENTS, M_WAITOK);
	error = copyin(run->ir_words, words, run->ir_len);
	words[run->ir_len] = '\0';
	if (error == 0)
		error = instruments_call(words, run->ir_len, &run->ir_status);
	free(words, M_INSTRUMENTS);
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
		return (0);
	default:
		return (EOPNOTSUPP);
	}
}

static moduledata_t instruments_mod = { "instruments", instruments_modevent, NULL };

DECLARE_MODULE(instruments, instruments_mod, SI_SUB_DRIVERS, SI_ORDER_MIDDLE);
MODULE_VERSION(instruments, 1);
