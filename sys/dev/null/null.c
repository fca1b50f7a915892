/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The devices without hardware: /dev/null, /dev/zero and /dev/random (null(4),
 * zero(4), random(4)).
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/conf.h>
#include <sys/libkern.h>
#include <sys/uio.h>

static int
null_read(struct cdev *dev __unused, struct uio *uio __unused,
    int ioflag __unused)
{
	return (0);
}

static int
null_write(struct cdev *dev __unused, struct uio *uio, int ioflag __unused)
{
	uio->uio_resid = 0;
	return (0);
}

static int
zero_read(struct cdev *dev __unused, struct uio *uio, int ioflag __unused)
{
	static const char zeroes[PAGE_SIZE];
	int error = 0;

	while (error == 0 && uio->uio_resid > 0)
		error = uiomove(__DECONST(void *, zeroes),
		    (int)MIN(uio->uio_resid, PAGE_SIZE), uio);
	return (error);
}

static int
random_read(struct cdev *dev __unused, struct uio *uio, int ioflag __unused)
{
	uint8_t buf[256];
	size_t n;
	int error = 0;

	while (error == 0 && uio->uio_resid > 0) {
		n = MIN(uio->uio_resid, sizeof(buf));
		arc4random_buf(buf, n);
		error = uiomove(buf, (int)n, uio);
	}
	explicit_bzero(buf, sizeof(buf));
	return (error);
}

static struct cdevsw null_devsw[] = {
	{ .d_version = D_VERSION, .d_name = "null", .d_read = null_read,
	    .d_write = null_write },
	{ .d_version = D_VERSION, .d_name = "zero", .d_read = zero_read,
	    .d_write = null_write },
	{ .d_version = D_VERSION, .d_name = "random", .d_read = random_read,
	    .d_write = null_write },
};

static void
null_init(void *arg __unused)
{
	u_int i;

	for (i = 0; i < nitems(null_devsw); i++)
		(void)make_dev_credf(MAKEDEV_ETERNAL, &null_devsw[i], 0, NULL,
		    UID_ROOT, GID_WHEEL, 0666, "%s", null_devsw[i].d_name);
}
SYSINIT(null, SI_SUB_DRIVERS, SI_ORDER_MIDDLE, null_init, NULL);
