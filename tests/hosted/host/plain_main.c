/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * main() of a hosted test program where there is no ATF: it runs all tests, or those that are named,
 * one after the other, each in a process of its own.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

extern void host_give_up(const char *message);
extern void __sanitizer_cov_trace_pc_guard(uint32_t *guard);
extern void __sanitizer_cov_trace_pc_guard_init(uint32_t *start, uint32_t *stop);

static const char *host_test;

void
host_give_up(const char *message)
{

	printf("%s: failed: %s\n", host_test, message);
	exit(1);
}

/* The compiler's, besides those of loads and stores, for which no sanitizer is there. */
void
__sanitizer_cov_trace_pc_guard(uint32_t *guard __attribute__((__unused__)))
{
}

void
__sanitizer_cov_trace_pc_guard_init(uint32_t *start __attribute__((__unused__)),
    uint32_t *stop __attribute__((__unused__)))
{
}

static _Bool
host_wanted(const char *name, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc && strcmp(argv[i], name) != 0; i++)
		continue;
	return (argc == 1 || i < argc);
}

static _Bool
host_passes(const struct hosted_test *ht)
{
	int status;
	pid_t pid;

	host_test = ht->ht_name;
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		ht->ht_body(ht->ht_arg);
		exit(0);
	}
	return (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

int
main(int argc, char **argv)
{
	const struct hosted_test *ht;
	int failed = 0, passed = 0;

	for (ht = hosted_tests(); ht->ht_name != NULL; ht++) {
		if (!host_wanted(ht->ht_name, argc, argv))
			continue;
		if (host_passes(ht))
			passed++;
		else {
			printf("failed: %s\n", ht->ht_name);
			failed++;
		}
	}
	printf("%d passed, %d failed\n", passed, failed);
	return (failed != 0 || passed == 0);
}
