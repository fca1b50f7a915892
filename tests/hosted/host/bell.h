/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What host_run() tells bell.c: how many threads begin, which one this is, and that it has ended.
 */

#ifndef _BELL_H_
#define	_BELL_H_

#define	BELL_THREADS	12

void	bell_begin(int threads);
void	bell_thread(int self);
void	bell_end(void);

#endif /* !_BELL_H_ */
