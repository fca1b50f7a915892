/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Reading what Xen writes about time (xen/xen.h), for whoever has it mapped.
 *
 * A vCPU's struct vcpu_time_info has the system time (nanoseconds since the
 * host was booted) of a moment, the time-stamp counter of that moment, and how
 * to scale what was counted since.  The shared info page has the time of day
 * when the system time began.  Both are versioned: the version is odd while Xen
 * writes, and another one afterwards, so that what was read between two equal
 * even versions belongs together.
 */

#ifndef _DEV_XEN_XEN_CLOCK_READ_H_
#define	_DEV_XEN_XEN_CLOCK_READ_H_

#include <sys/types.h>

#include <machine/atomic.h>
#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/pvclock.h>

#include <xen/xen.h>

#define	XEN_CLOCK_SECOND	1000000000u	/* nanoseconds */

/* The system time.  The caller stays on the vCPU whose information this is. */
static inline uint64_t
xen_clock_read_system(volatile struct vcpu_time_info *ti)
{
	uint32_t version;
	uint64_t ns;

	do {
		version = ti->version;
		atomic_thread_fence_acq();
		ns = ti->system_time + pvclock_scale_delta(rdtsc_ordered() -
		    ti->tsc_timestamp, ti->tsc_to_system_mul, ti->tsc_shift);
		atomic_thread_fence_acq();
	} while ((version & 1) != 0 || ti->version != version);
	return (ns);
}

/* The time of day when the system time began, in nanoseconds. */
static inline uint64_t
xen_clock_read_begin(volatile struct shared_info *si)
{
	uint32_t version;
	uint64_t ns;

	do {
		version = si->wc_version;
		atomic_thread_fence_acq();
		ns = ((uint64_t)si->wc_sec_hi << 32 |
		    si->wc_sec) * XEN_CLOCK_SECOND + si->wc_nsec;
		atomic_thread_fence_acq();
	} while ((version & 1) != 0 || si->wc_version != version);
	return (ns);
}

#endif /* !_DEV_XEN_XEN_CLOCK_READ_H_ */
