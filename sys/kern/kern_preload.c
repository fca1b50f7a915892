/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Modules that are loaded at boot, as by a loader: NAME_load="YES" in the kernel environment has
 * NAME loaded before devices are probed.  Its SYSINITs are run with the kernel's own, in order;
 * those that are overdue run at once.  What a module needs is loaded by the loader as well, and stays
 * until it is unloaded by name.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kenv.h>
#include <sys/kernel.h>
#include <sys/linker.h>
#include <sys/malloc.h>

#include <kern/linker_tree.h>

#define	SUFFIX		"_load"
#define	SUFFIX_LEN	(sizeof(SUFFIX) - 1)

bool linker_preloading;

/* The module that an entry of the environment, NAME=value, requests; false: none. */
static bool
preload_wanted(const char *entry, char *name, size_t size)
{
	const char *equals = strchr(entry, '=');
	size_t len;

	if (equals == NULL || (size_t)(equals - entry) <= SUFFIX_LEN)
		return (false);
	len = equals - entry - SUFFIX_LEN;
	if (len >= size || strncmp(entry + len, SUFFIX "=", SUFFIX_LEN + 1) != 0)
		return (false);
	memcpy(name, entry, len);
	name[len] = '\0';
	return (strcasecmp(equals + 1, "yes") == 0);
}

static void
preload(void *arg __unused)
{
	char name[MAXMODNAME];
	int error, i, id;

	linker_preloading = true;
	for (i = 0; kenvp[i] != NULL; i++) {
		if (!preload_wanted(kenvp[i], name, sizeof(name)))
			continue;
		error = linker_kldload(name, &id);
		if (error != 0 && error != EEXIST)
			printf("%s" SUFFIX ": the module can't be loaded (error %d)\n", name, error);
	}
	linker_preloading = false;
	linker_preloaded();
}
SYSINIT(preload, SI_SUB_KLD, SI_ORDER_ANY, preload, NULL);
