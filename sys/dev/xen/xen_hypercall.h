/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Hypercalls: requests to Xen.  Any context, unless noted; what an argument
 * points to must be memory of the kernel.  All return 0 or an errno value.
 */

#ifndef _DEV_XEN_XEN_HYPERCALL_H_
#define	_DEV_XEN_XEN_HYPERCALL_H_

#include <sys/param.h>
#include <sys/bus.h>

#include <dev/xen/xen_var.h>

/* The CPUID leaf that Xen's begin at, or 0: this is no guest of Xen. */
uint32_t xen_cpuid_base(void);

/*
 * Find Xen and have it fill our hypercall page; nothing else works before.  May
 * sleep.
 *
 * Returns 0; ENXIO if there is no Xen; ENOEXEC if the module was loaded to
 * where the page can't be.
 */
int	xen_hypercall_init(device_t dev);
void	xen_hypercall_fini(device_t dev);

/* cmd is one of EVTCHNOP_*, GNTTABOP_*, XENMEM_*, HVMOP_*, VCPUOP_*. */
int	xen_event_channel_op(u_int cmd, void *arg);
int	xen_grant_table_op(u_int cmd, void *args, u_int count);
int	xen_memory_op(u_int cmd, void *arg);
int	xen_hvm_op(u_int cmd, void *arg);
int	xen_vcpu_op(u_int cmd, u_int vcpu, void *arg);

/*
 * Give pages to Xen, or have memory put behind guest-physical addresses.
 *
 * cmd     XENMEM_decrease_reservation or XENMEM_populate_physmap
 * order   an extent is 2^order pages; Xen may stop within one that is given,
 *         without reporting it
 * frames  page numbers of the beginnings of n extents; Xen may write to the
 *         array
 * done    set to how many extents Xen did, from the front
 *
 * Returns 0 if it did all; ENOMEM if it did a part, or nothing without an
 * error.
 */
int	xen_memory_reservation(u_int cmd, u_int order, xen_pfn_t *frames,
    u_int n, u_int *done);

/* A parameter of the domain, HVM_PARAM_*. */
int	xen_get_param(uint32_t index, uint64_t *value);
int	xen_set_param(uint32_t index, uint64_t value);

/*
 * Stop here, and let the toolstack save the domain.  This returns in a new
 * domain that was made of it (*cancelled is false): no other hypercall is to be
 * made before xen_cpu_resume(); or in the same one.  For one CPU while the
 * others wait, with interrupts off.
 */
int	xen_suspend(bool *cancelled);

/* Xen's version, as in "4.17": major and minor. */
void	xen_version(u_int *major, u_int *minor);

/* Hypercalls so far, below parent. */
void	xen_hypercall_sysctl(struct sysctl_ctx_list *ctx,
    struct sysctl_oid *parent);

#endif /* !_DEV_XEN_XEN_HYPERCALL_H_ */
