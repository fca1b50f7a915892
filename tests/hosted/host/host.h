/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Where the two halves of a hosted test meet.
 *
 * One half is compiled with FreeBSD's kernel headers: the drivers, the KPI below them (kpi/), the
 * model devices and the tests.  The other half is compiled with the build machine's: host.c and the
 * program's main().  They can't include each other's headers; both include this one, which needs
 * nothing but the compiler.
 */

#ifndef _HOST_H_
#define	_HOST_H_

/* Memory that ASan watches; aligned to `align`, a power of two.  Never NULL. */
void	*host_alloc(unsigned long size, unsigned long align);
void	host_free(void *p);

/* One line to standard error, for whoever reads a failed test's output. */
void	host_log(const char *fmt, __builtin_va_list ap);

/* The test has failed: says where and why, and does not return. */
void	host_fail(const char *file, int line, const char *cond, const char *fmt, ...)
	    __attribute__((__noreturn__, __format__(__printf__, 4, 5)));

/* Run functions in a thread each, and wait for all of them. */
void	host_run(void (*const *bodies)(void *), int n, void *arg);

/* The same with a CPU for each, as far as they go. */
void	host_run_apart(void (*const *bodies)(void *), int n, void *arg);

/* Which a thread of host_run() sleeps for. */
struct host_bell {
	unsigned int	hb_rung;
	unsigned int	hb_sleeps;
};

/* Wake the thread that sleeps for it, or the next one that will. */
void	host_bell_ring(struct host_bell *bell);

/*
 * Sleep until it is rung, or has been since the last time.
 *
 * Returns false to one of the threads if all are asleep, or have ended, and no bell is rung, so
 * that none will be.  The others are still then.
 */
_Bool	host_bell_wait(struct host_bell *bell);

/* Under ThreadSanitizer: what this thread does from here on orders nothing, and is not checked. */
void	host_race_ignore(_Bool ignore);

/* Which thread this is: another value for each. */
void	*host_self(void);

/* Let another thread run. */
void	host_yield(void);

/* Whether what takes long may, as in `make soak': no number of rounds was set (PVKMOD_ROUNDS). */
_Bool	host_soaking(void);

/* A test, as the kernel half lists it; the list ends with a NULL name. */
struct hosted_test {
	const char	*ht_name;
	const char	*ht_descr;
	void		(*ht_body)(const void *arg);
	const void	*ht_arg;
};

/* The program's tests; called once, before any of them runs. */
const struct hosted_test *hosted_tests(void);

#define	CHECK(cond, ...) do {						\
	if (!(cond))							\
		host_fail(__FILE__, __LINE__, #cond, __VA_ARGS__);	\
} while (0)

#endif /* !_HOST_H_ */
