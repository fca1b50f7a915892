/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Memory that is added while the system runs: how a driver asks the kernel to manage it.
 *
 * It is an event (EVENTHANDLER(9)), as there is no KPI for it: a kernel need not support it, and
 * without a handler pm_error stays what the driver wrote.
 */

#ifndef _DEV_PV_PV_MEMORY_H_
#define	_DEV_PV_PV_MEMORY_H_

#include <sys/param.h>
#include <sys/eventhandler.h>

#include <vm/vm.h>

struct pv_memory {
	/* The driver's: the range, whole pages, beyond all memory that there was. */
	vm_paddr_t	 pm_start;
	vm_paddr_t	 pm_end;
	/*
	 * The kernel's.  0: the pages are allocated to the driver, and wired; they and their
	 * addresses' mapping are there from now on, what is behind them is the driver's responsibility.
	 * ENOMEM: there is no memory for it now.  Anything else: never.
	 */
	int		 pm_error;
	vm_page_t	 pm_first;	/* the others follow it */
};

typedef void (*pv_memory_fn)(void *arg, struct pv_memory *pm);
EVENTHANDLER_DECLARE(pv_memory_add, pv_memory_fn);

#endif /* !_DEV_PV_PV_MEMORY_H_ */
