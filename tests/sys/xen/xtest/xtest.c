/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The test module of the Xen core: it tests event channels, grant table and xenstore against their
 * headers.  Both ends of a channel or a grant are this domain.
 *
 *	sysctl debug.xtest.run=evtchn	runs the cases of a subject, one, or all
 *
 * Checks and threads are ktest's.  xtest_front.c is a driver for front ends of the type "xtest", whose
 * back end is a directory that a test writes to.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/module.h>
#include <sys/proc.h>
#include <sys/sysctl.h>

#include "xtest.h"

static const struct ktest_case *const xtest_tables[] = {
	xtest_evtchn_cases,
	xtest_gnttab_cases,
	xtest_store_cases,
	xtest_dom0_cases,
	xtest_life_cases,
};

SYSCTL_NODE(_debug, OID_AUTO, xtest, CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, "tests of Xen's side");

device_t
xtest_root(void)
{

	return (devclass_get_device(devclass_find("xen"), 0));
}

uint64_t
xtest_number(const char *name)
{
	char full[64];
	size_t len = sizeof(uint64_t);
	uint64_t value = 0;	/* which narrower ones leave the upper half of */

	snprintf(full, sizeof(full), "dev.xen.0.%s", name);
	KT_EQ(kernel_sysctlbyname(curthread, full, &value, &len, NULL, 0, NULL, 0), 0);
	return (value);
}

void
gate_wait(volatile u_int *passes)
{

	while (atomic_load_acq_int(passes) == 0)
		pause("xtgate", 1);
	atomic_subtract_int(passes, 1);
}

static int
xtest_sysctl_run(SYSCTL_HANDLER_ARGS)
{
	char what[64] = "";
	int error;

	error = sysctl_handle_string(oidp, what, sizeof(what), req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (xtest_root() == NULL)
		return (ENXIO);
	return (ktest_run_tables(xtest_tables, nitems(xtest_tables), what));
}
SYSCTL_PROC(_debug_xtest, OID_AUTO, run, CTLTYPE_STRING | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    xtest_sysctl_run, "A", "Run a case, a subject, or all");

static int
xtest_modevent(module_t mod __unused, int what, void *arg __unused)
{

	return (what == MOD_LOAD || what == MOD_UNLOAD ? 0 : EOPNOTSUPP);
}

static moduledata_t xtest_mod = { "xtest", xtest_modevent, NULL };
DECLARE_MODULE(xtest, xtest_mod, SI_SUB_DRIVERS, SI_ORDER_ANY);
MODULE_VERSION(xtest, 1);
MODULE_DEPEND(xtest, xen, 1, 1, 1);
MODULE_DEPEND(xtest, ktest, 1, 1, 1);
