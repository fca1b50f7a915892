/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Names that FreeBSD 15 has and an older supported one has not, so that the
 * suite builds for all of them from one source.
 */

#ifndef _DEV_PV_PV_COMPAT_H_
#define	_DEV_PV_PV_COMPAT_H_

#include <sys/param.h>
#include <sys/bus.h>

/* Not in 14.2's <sys/bus.h>. */
#ifndef DEVICE_UNIT_ANY
#define	DEVICE_UNIT_ANY	(-1)
#endif

#endif /* !_DEV_PV_PV_COMPAT_H_ */
