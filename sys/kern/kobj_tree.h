/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Functions of kobj(9) for newbus and the module linker only.
 *
 * Not FreeBSD's: newbus and the linker need nothing of kobj(9) beyond <sys/kobj.h> there.
 */

#ifndef _KERN_KOBJ_TREE_H_
#define	_KERN_KOBJ_TREE_H_

#include <sys/kobj.h>

/*
 * Keep the class compiled while it has no object, and release it.  A driver stays compiled while
 * it is registered with a bus.  Neither may be called with a spin lock held; the first may sleep
 * for memory.
 */
void	kobj_class_hold(kobj_class_t cls);
void	kobj_class_drop(kobj_class_t cls);

/*
 * The memory [start, end) is about to be freed: no method cache may point into it any more.
 */
void	kobj_forget(uintptr_t start, uintptr_t end);

#endif /* !_KERN_KOBJ_TREE_H_ */
