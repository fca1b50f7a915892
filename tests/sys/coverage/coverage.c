/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * In each module that is built for tools/coverage: tells the host what was executed.
 *
 * The compiler counts in one section of the module.  This file is its first object and, with
 * COVERAGE_END, its last one, so that they bound the section.  All counters that are not zero are
 * written to a port before the module is unloaded and at the end of the system, of which QEMU makes
 * a file, and Xen its console: lines of
 *
 *	pvcov MODULE SIZE OFFSET:COUNT ...
 *
 * in hexadecimal, of less than 80 characters, which is what Xen has room for.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/libkern.h>
#include <sys/reboot.h>

#include <machine/cpufunc.h>

#define	COVERAGE_SECTION	__attribute__((section("__llvm_prf_cnts"), used, aligned(8)))

#ifdef COVERAGE_END
uint64_t pv_coverage_end[1] COVERAGE_SECTION = { 0 };
#else

#define	COVERAGE_PORT	0xe9
#define	COVERAGE_WIDTH	78

extern uint64_t pv_coverage_end[];
static uint64_t coverage_begin[1] COVERAGE_SECTION = { 0 };
static eventhandler_tag coverage_tag;

/* The compiler refers to it, so that a linker would add a library. */
int __llvm_profile_runtime;

static void
coverage_write(const char *text)
{
	for (; *text != '\0'; text++)
		outb(COVERAGE_PORT, *text);
}

static void
coverage_tell(void *arg __unused, int howto __unused)
{
	char line[128], word[40];
	size_t size = (char *)pv_coverage_end - (char *)coverage_begin, used = 0;
	uint64_t *counter;

	for (counter = coverage_begin; counter < pv_coverage_end; counter++) {
		if (*counter == 0)
			continue;
		snprintf(word, sizeof(word), " %zx:%jx",
		    (size_t)((char *)counter - (char *)coverage_begin), (uintmax_t)*counter);
		if (used + strlen(word) > COVERAGE_WIDTH) {
			coverage_write(line);
			coverage_write("\n");
			used = 0;
		}
		if (used == 0)
			used = snprintf(line, sizeof(line), "pvcov %s %zx", COVERAGE_MODULE, size);
		strlcpy(line + used, word, sizeof(line) - used);
		used += strlen(word);
	}
	if (used != 0) {
		coverage_write(line);
		coverage_write("\n");
	}
}

static void
coverage_begins(void *arg __unused)
{
	coverage_tag = EVENTHANDLER_REGISTER(shutdown_final, coverage_tell, NULL,
	    SHUTDOWN_PRI_LAST - 10);
}
SYSINIT(pv_coverage, SI_SUB_TUNABLES, SI_ORDER_FIRST, coverage_begins, NULL);

static void
coverage_ends(void *arg __unused)
{
	EVENTHANDLER_DEREGISTER(shutdown_final, coverage_tag);
	coverage_tell(NULL, 0);
}
SYSUNINIT(pv_coverage, SI_SUB_TUNABLES, SI_ORDER_FIRST, coverage_ends, NULL);
#endif
