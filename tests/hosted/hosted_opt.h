/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Options of the kernel that the hosted build can't have.  Read behind opt_global.h, before anything
 * else.  The current network stack is a field of struct thread, and a process has no curthread.
 */

#undef VIMAGE
