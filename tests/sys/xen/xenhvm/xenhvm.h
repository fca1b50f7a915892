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
int	hvm_suspend_init(device_t dev);

/* Have Xen put the grant table where it is expected, empty. */
int	hvm_gnttab_map(void);

/* No request is made from the one to the other, after which the ring and all watches are new. */
void	hvm_store_suspend(void);
void	hvm_store_resume(bool cancelled);

/* Wait while hw.xenhvm.hold has this value. */
void	hvm_store_hold(u_int what);

/* Does hw.xenhvm.fail have this bit? */
#define	HVM_FAIL_REQUEST	1
#define	HVM_FAIL_TYPE		2
#define	HVM_FAIL_WATCH		4
#define	HVM_FAIL_EVTCHN		8
#define	HVM_FAIL_GRANT		16
bool	hvm_fails(u_int what);

int	hvm_store_list(const char *path, char ***names, u_int *n);
int	hvm_store_write(const char *dir, const char *name, const char *value);

#endif /* !_TESTS_SYS_XEN_XENHVM_H_ */
