/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the cases of core_front_test share.
 */

#ifndef _CORE_FRONT_H_
#define	_CORE_FRONT_H_

#include <sys/param.h>
#include <sys/bus.h>

/* After a case the module goes, and has to leave nothing; bus: NULL if there is none. */
void	core_front_end(device_t bus);

/* While the core has a request it is not closed, which is known after five seconds. */
void	core_store_stays_open(void);

#endif /* !_CORE_FRONT_H_ */
