/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A listener that reads a card's sysctls at the moment when its interface appears, which is when
 * programs may begin to use it, and what tcp(4) reads of it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/eventhandler.h>
#include <sys/module.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#include <net/if.h>
#include <net/if_var.h>

static eventhandler_tag arrival_tag;

static void
arrival_seen(void *arg __unused, if_t ifp)
{
	static char names[][32] = { "dev.vtnet.0.ctrl_commands", "dev.vtnet.0.needs_resets",
	    "dev.vtnet.0.coal.rx_usecs", "dev.vtnet.0.resets" };
	char value[64];
	size_t i, len;
	int error;

	for (i = 0; i < nitems(names); i++) {
		len = sizeof(value);
		error = kernel_sysctlbyname(curthread, names[i], value, &len, NULL, 0, NULL, 0);
		printf("%s arrives: %s: %s\n", if_name(ifp), names[i],
		    error == 0 ? "there" : "missing");
	}
	printf("%s arrives: TSO of up to %u segments\n", if_name(ifp),
	    if_gethwtsomaxsegcount(ifp));
}

static int
arrival_modevent(module_t mod __unused, int what, void *arg __unused)
{
	switch (what) {
	case MOD_LOAD:
		arrival_tag = EVENTHANDLER_REGISTER(ifnet_arrival_event, arrival_seen, NULL,
		    EVENTHANDLER_PRI_ANY);
		return (0);
	case MOD_UNLOAD:
		EVENTHANDLER_DEREGISTER(ifnet_arrival_event, arrival_tag);
		return (0);
	default:
		return (EOPNOTSUPP);
	}
}

static moduledata_t arrival_module = { "arrival", arrival_modevent, NULL };
DECLARE_MODULE(arrival, arrival_module, SI_SUB_DRIVERS, SI_ORDER_FIRST);
MODULE_VERSION(arrival, 1);
