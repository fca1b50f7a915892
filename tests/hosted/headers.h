/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * headers_ours.c and headers_linux.c, side by side; see headers.def.
 */

#ifndef _HEADERS_H_
#define	_HEADERS_H_

struct header_value {
	const char	*hv_expr;	/* a null pointer ends the list */
	unsigned long long hv_value;
};

extern const struct header_value headers_ours[];
extern const struct header_value headers_linux[];

#endif /* !_HEADERS_H_ */
