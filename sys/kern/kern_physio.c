/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * physio(9): read and write of a disk-like device through its strategy routine.
 *
 * The transfer is split into pieces of si_iosize_max bytes, one at a time, directly to or from the
 * caller's buffer, which is kernel memory: there is no user space.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>
#include <sys/conf.h>
#include <sys/malloc.h>
#include <sys/uio.h>

#include <geom/geom.h>

/* Ends at the first error, or at the first piece that came back short: the end of the device. */
int
physio(struct cdev *dev, struct uio *uio, int ioflag __unused)
{
	struct cdevsw *csw;
	struct iovec *iov;
	struct bio *bp;
	size_t done, len;
	int error = 0, ref;

	KASSERT(uio->uio_segflg == UIO_SYSSPACE, ("%s: no user space", __func__));
	csw = dev_refthread(dev, &ref);
	if (csw == NULL)
		return (ENXIO);
	bp = g_alloc_bio();
	while (error == 0 && uio->uio_resid > 0) {
		iov = uio->uio_iov;
		if (iov->iov_len == 0) {
			uio->uio_iov++;
			uio->uio_iovcnt--;
			continue;
		}
		len = MIN(iov->iov_len, (size_t)dev->si_iosize_max);
		g_reset_bio(bp);
		bp->bio_cmd = uio->uio_rw == UIO_READ ? BIO_READ : BIO_WRITE;
		bp->bio_offset = uio->uio_offset;
		bp->bio_length = bp->bio_bcount = len;
		bp->bio_data = iov->iov_base;
		bp->bio_dev = dev;
		csw->d_strategy(bp);
		error = biowait(bp, uio->uio_rw == UIO_READ ? "physrd" : "physwr");
		done = len - bp->bio_resid;
		iov->iov_base = (char *)iov->iov_base + done;
		iov->iov_len -= done;
		uio->uio_offset += done;
		uio->uio_resid -= done;
		if (done < len)
			break;
	}
	g_destroy_bio(bp);
	dev_relthread(dev, ref);
	return (error);
}
