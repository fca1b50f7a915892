/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of the test module xtest share.
 */

#ifndef _XTEST_H_
#define	_XTEST_H_

#include "ktest.h"

extern const struct ktest_case xtest_evtchn_cases[];
extern const struct ktest_case xtest_gnttab_cases[];
extern const struct ktest_case xtest_store_cases[];
extern const struct ktest_case xtest_dom0_cases[];	/* after dom0 did something */
extern const struct ktest_case xtest_life_cases[];	/* while dom0 saves the domain */

/* The device xen0. */
device_t xtest_root(void);

/* The value of a sysctl of xen0, of 32 or 64 bits: xtest_number("evtchn.in_use"). */
uint64_t xtest_number(const char *name);

/* Wait until there is a pass, and take it; one thread waits. */
void	gate_wait(volatile u_int *passes);

#endif /* !_XTEST_H_ */
