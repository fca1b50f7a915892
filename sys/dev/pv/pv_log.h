/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Messages about what a device or a back end can repeat as often as it likes.
 * Each is counted where a sysctl shows it, and the first ones are logged.
 * ppsratecheck(9) is not enough of a limit: a device that fails ten times a
 * second would write some hundred thousand lines a day.
 */

#ifndef _DEV_PV_PV_LOG_H_
#define	_DEV_PV_PV_LOG_H_

#define	PV_LOG_FIRST	10

/* Is what has happened so many times, this one included, logged? */
#define	PV_LOGS(count)	((count) <= PV_LOG_FIRST)

#endif /* !_DEV_PV_PV_LOG_H_ */
