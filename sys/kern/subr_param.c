/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Parameters of the kernel that determine the sizes of other parts, and their tunables.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/_maxphys.h>
#include <sys/bio.h>
#include <sys/buf.h>
#include <sys/limits.h>
#include <sys/proc.h>
#include <sys/sysctl.h>
#include <sys/time.h>

#define	HZ_DEFAULT	1000
#define	HZ_VM		100	/* each of them costs an exit to the hypervisor */

char kernelname[MAXPATHLEN] = "/boot/kernel/kernel";
const char machine[] = MACHINE;

int hz;				/* hardclock()s a second */
int tick;			/* microseconds between them */
struct bintime tick_bt;
sbintime_t tick_sbt;
time_t tick_seconds_max;	/* most seconds that fit an int of ticks */

u_long maxphys;
int unmapped_buf_allowed = 1;
caddr_t unmapped_buf = (caddr_t)1;	/* bio_data of an unmapped bio: not mapped */
int ngroups_max = 16;
int maxusers = 64;
int suspend_blocked;
int rebooting;

SYSCTL_INT(_kern, OID_AUTO, hz, CTLFLAG_RDTUN | CTLFLAG_NOFETCH, &hz, 0,
    "Number of clock ticks per second");
SYSCTL_ULONG(_kern, KERN_MAXPHYS, maxphys, CTLFLAG_RDTUN | CTLFLAG_NOFETCH, &maxphys, 0,
    "Maximum block I/O access size");
SYSCTL_INT(_vfs, OID_AUTO, unmapped_buf_allowed, CTLFLAG_RDTUN, &unmapped_buf_allowed, 0,
    "Permit the use of the unmapped i/o");

/* Called as soon as the kernel environment can be read. */
void
init_param1(void)
{
	TUNABLE_INT_FETCH("kern.hz", &hz);
	if (hz < HZ_MINIMUM || hz > HZ_MAXIMUM)
		hz = vm_guest != VM_GUEST_NO ? HZ_VM : HZ_DEFAULT;
	tick = 1000000 / hz;
	tick_sbt = SBT_1S / hz;
	tick_bt = sbttobt(tick_sbt);
	tick_seconds_max = INT_MAX / hz;
	hogticks = 2 * hz / 10;
	maxphys = MAXPHYS;
	TUNABLE_ULONG_FETCH("kern.maxphys", &maxphys);
	if (maxphys < PAGE_SIZE || maxphys > 16 * 1024 * 1024)
		maxphys = MAXPHYS;
	maxphys = rounddown(maxphys, PAGE_SIZE);
}

/* Called when it is known how much memory there is. */
void
init_param2(long physpages __unused)
{
	TUNABLE_INT_FETCH("kern.maxusers", &maxusers);
}
