/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What a fuzz target does when a check fails: die, so that libFuzzer keeps the input.
 */

#include <stdio.h>
#include <stdlib.h>

#include "host.h"

extern void host_give_up(const char *message);

void
host_give_up(const char *message)
{

	fprintf(stderr, "%s\n", message);
	abort();
}
