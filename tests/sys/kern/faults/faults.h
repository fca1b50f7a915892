/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Functions that fail when a test says so (faults.c), for modules that have others.
 */

#ifndef _FAULTS_H_
#define	_FAULTS_H_

#include <sys/types.h>

/* Does this call fail, which comes from a place? */
bool	fault_from(const char *name, const void *place);

#define	fault_now(name)	fault_from(name, __builtin_return_address(0))

/* A function with its type, parameters and arguments; when it may fail, and what it returns then. */
#define	FAULT(type, name, parameters, arguments, may, failure)		\
	type	fault_##name parameters;				\
	type								\
	fault_##name parameters						\
	{								\
									\
		return ((may) && fault_now(#name) ? (failure) :		\
		    name arguments);					\
	}

#endif /* !_FAULTS_H_ */
