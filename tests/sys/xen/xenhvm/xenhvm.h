/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of xenhvm share.
 */

#ifndef _TESTS_SYS_XEN_XENHVM_H_
#define	_TESTS_SYS_XEN_XENHVM_H_

#include <sys/param.h>
#include <sys/bus.h>
#include <sys/sysctl.h>

SYSCTL_DECL(_hw_xenhvm);

/* Parts; each returns 0 or an error. */
int	hvm_gnttab_init(device_t dev);
int	hvm_store_init(device_t dev);

/* The device of the bus of front ends looks at what the toolstack lists, now and when it changes. */
/* While hw.xenhvm.hold has this value. */
void	hvm_store_hold(u_int what);

int	hvm_store_list(const char *path, char ***names, u_int *n);
int	hvm_store_write(const char *dir, const char *name, const char *value);

#endif /* !_TESTS_SYS_XEN_XENHVM_H_ */
