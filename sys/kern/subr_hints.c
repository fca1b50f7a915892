/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Hints: hint.NAME.UNIT.RESOURCE in the kernel environment.
 *
 * Gaps.  String values and the search for matching hints are missing: no device here is described
 * only by a hint.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <machine/bus.h>

int
resource_long_value(const char *name, int unit, const char *resname, long *result)
{
	char variable[128];

	snprintf(variable, sizeof(variable), "hint.%s.%d.%s", name, unit, resname);
	return (getenv_long(variable, result) ? 0 : ENOENT);
}

int
resource_int_value(const char *name, int unit, const char *resname, int *result)
{
	long value;
	int error;

	error = resource_long_value(name, unit, resname, &value);
	if (error == 0)
		*result = value;
	return (error);
}

int
resource_disabled(const char *name, int unit)
{
	int value;

	return (resource_int_value(name, unit, "disabled", &value) == 0 && value != 0);
}
