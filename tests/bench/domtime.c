/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * How long the processors of a domain have run, in nanoseconds: for dom0, where xl tells it in tenths
 * of a second only.
 *
 *	domtime DOMID
 *
 * It is Xen's own account (XEN_DOMCTL_getdomaininfo), which has what Xen did for the domain in it.
 */

#define	__XEN_TOOLS__	1

#include <sys/ioctl.h>
#include <sys/mman.h>

#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xen/xen.h>
#include <xen/domctl.h>

/* What Linux's /dev/xen/privcmd takes. */
struct privcmd_hypercall {
	uint64_t	op;
	uint64_t	arg[5];
};
#define	IOCTL_PRIVCMD_HYPERCALL	_IOC(_IOC_NONE, 'P', 0, sizeof(struct privcmd_hypercall))

int
main(int argc, char **argv)
{
	struct xen_domctl *op;
	struct privcmd_hypercall call = { .op = __HYPERVISOR_domctl };
	int fd;

	if (argc != 2)
		errx(2, "usage: domtime DOMID");
	fd = open("/dev/xen/privcmd", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		err(1, "/dev/xen/privcmd");
	/* Xen writes to it, so that it has to stay where it is. */
	op = mmap(NULL, sizeof(*op), PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED | MAP_POPULATE, -1, 0);
	if (op == MAP_FAILED)
		err(1, "mmap");
	op->cmd = XEN_DOMCTL_getdomaininfo;
	op->interface_version = XEN_DOMCTL_INTERFACE_VERSION;
	op->domain = atoi(argv[1]);
	call.arg[0] = (uintptr_t)op;
	if (ioctl(fd, IOCTL_PRIVCMD_HYPERCALL, &call) != 0)
		err(1, "XEN_DOMCTL_getdomaininfo");
	/* It answers for the next domain where there is none of that number. */
	if (op->u.getdomaininfo.domain != (domid_t)atoi(argv[1]))
		errx(1, "%s: no such domain", argv[1]);
	printf("%" PRIu64 "\n", (uint64_t)op->u.getdomaininfo.cpu_time);
	return (0);
}
