/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Our virtio headers say what Linux's say, who wrote them from the same specification.
 *
 * Prints each pair that differs; with -l, the names of ours that are compared.
 */

#include <stdio.h>
#include <string.h>

#include "headers.h"

int
main(int argc, char **argv)
{
	const struct header_value *o, *t;
	int wrong = 0;

	for (o = headers_ours, t = headers_linux; o->hv_expr != NULL; o++, t++) {
		if (argc > 1 && strcmp(argv[1], "-l") == 0)
			printf("%s\n", o->hv_expr);
		if (o->hv_value != t->hv_value) {
			fprintf(stderr, "%s is 0x%llx, but %s is 0x%llx\n", o->hv_expr,
			    o->hv_value, t->hv_expr, t->hv_value);
			wrong = 1;
		}
	}
	return (wrong);
}
