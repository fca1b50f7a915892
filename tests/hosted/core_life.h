/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the two halves of core_life_test share: core_life.c, and core_requests.c (xenstore).
 */

#ifndef _CORE_LIFE_H_
#define	_CORE_LIFE_H_

#include <sys/param.h>
#include <sys/bus.h>

/* xen0, which begin() has attached. */
extern device_t core_dev;

/* Run a case, a void function without arguments, in a kernel's threads; then the module goes. */
void	core_run(const void *arg);

/* Load the module on the kernel's core. */
void	core_begin(void);

/* The last line that was logged, or the one before it, is this. */
#define	SAID(text) do {							\
	CHECK(strcmp(kpi_line, (text)) == 0 || strcmp(kpi_line_before, (text)) == 0, \
	    "said: %s%s", kpi_line_before, kpi_line);			\
	kpi_line[0] = kpi_line_before[0] = '\0';			\
} while (0)

/* What xenstore was asked for since the last time. */
#define	ASKED(text) do {						\
	CHECK(strcmp(hc_log, (text)) == 0, "asked: %s", hc_log);	\
	hc_log[0] = '\0';						\
} while (0)

#define	CORE_TEST(name, descr)	{ #name, descr, core_run, (const void *)name }

/* Of xenstore. */
extern const struct hosted_test core_request_tests[];
extern const u_int core_nrequest_tests;

#endif /* !_CORE_LIFE_H_ */
