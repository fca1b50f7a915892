/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * uio(9) between buffers of the kernel: there is no user space.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/uio.h>

/* Moves up to n bytes between cp and what uio describes, and advances uio by as much. */
int
uiomove(void *cp, int n, struct uio *uio)
{
	struct iovec *iov;
	char *p = cp;
	size_t len;

	KASSERT(uio->uio_segflg == UIO_SYSSPACE, ("%s: no user space", __func__));
	while (n > 0 && uio->uio_resid > 0) {
		iov = uio->uio_iov;
		len = MIN(iov->iov_len, (size_t)n);
		if (len == 0) {
			uio->uio_iov++;
			uio->uio_iovcnt--;
			continue;
		}
		if (uio->uio_rw == UIO_READ)
			bcopy(p, iov->iov_base, len);
		else
			bcopy(iov->iov_base, p, len);
		iov->iov_base = (char *)iov->iov_base + len;
		iov->iov_len -= len;
		uio->uio_resid -= len;
		uio->uio_offset += len;
		p += len;
		n -= (int)len;
	}
	return (0);
}

/* As uiomove() from a buffer that is read as a file: uio_offset says where to begin. */
int
uiomove_frombuf(void *buf, int buflen, struct uio *uio)
{
	if (uio->uio_offset < 0 || uio->uio_resid < 0)
		return (EINVAL);
	if (buflen <= 0 || uio->uio_offset >= buflen)
		return (0);
	return (uiomove((char *)buf + uio->uio_offset, buflen - (int)uio->uio_offset, uio));
}
