/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * FreeBSD's own Xen core (options XENHVM): what its modules share.  This kernel has none; modules for
 * tests stand in for it.
 */

#ifndef _XEN_XEN_OS_H_
#define	_XEN_XEN_OS_H_

#include <sys/types.h>

#ifndef __XEN_INTERFACE_VERSION__
#define	__XEN_INTERFACE_VERSION__	0x00040d00
#endif
#include <xen/xen.h>
#include <xen/event_channel.h>

#define	GRANT_REF_INVALID	0xffffffff

extern shared_info_t *HYPERVISOR_shared_info;

/* Has the last suspension ended in the same domain? */
extern bool xen_suspend_cancelled;

enum xen_domain_type {
	XEN_NATIVE,
	XEN_PV_DOMAIN,
	XEN_HVM_DOMAIN,
};
extern enum xen_domain_type xen_domain_type;

/* The tunables hw.xen.disable_pv_disks and hw.xen.disable_pv_nics. */
extern int xen_disable_pv_disks, xen_disable_pv_nics;

static inline int
xen_hvm_domain(void)
{

	return (xen_domain_type == XEN_HVM_DOMAIN);
}

static inline bool
xen_pv_disks_disabled(void)
{

	return (xen_hvm_domain() && xen_disable_pv_disks != 0);
}

static inline bool
xen_pv_nics_disabled(void)
{

	return (xen_hvm_domain() && xen_disable_pv_nics != 0);
}

#endif /* !_XEN_XEN_OS_H_ */
