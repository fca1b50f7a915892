/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * How tests/sys/cmd/instrument.c, a program, has the module of this name run one of its commands.
 */
#ifndef _INSTRUMENTS_H_
#define	_INSTRUMENTS_H_

#include <sys/ioccom.h>
#include <sys/types.h>

#define	INSTRUMENTS_DEVICE	"instruments"
#define	INSTRUMENTS_MAX		1024	/* bytes of all words */

/*
 * ioctl(2) on the device: run the command with these words, its name first, each ended by a NUL.
 * Returns when the command has ended, with its exit status.  What it prints goes to the console.
 * ENOENT: there is no such command.  EINVAL: no words, or too many.
 */
struct instruments_run {
	const char	*ir_words;
	size_t		 ir_len;	/* bytes */
	int		 ir_status;
};

#define	INSTRUMENTS_RUN	_IOWR('I', 1, struct instruments_run)

#endif /* !_INSTRUMENTS_H_ */
