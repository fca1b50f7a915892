/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of the kernel's test module share: the table of cases, checks, and threads.
 */

#ifndef _KTEST_H_
#define	_KTEST_H_

#include <sys/types.h>
#include <sys/malloc.h>
#include <sys/time.h>

/* A case: "subject.what_it_shows"; a table of them ends with a NULL name. */
struct ktest_case {
	const char	*kc_name;
	void		(*kc_func)(void);
};

extern const struct ktest_case ktest_callout_cases[];
extern const struct ktest_case ktest_dma_cases[];
extern const struct ktest_case ktest_epoch_cases[];
extern const struct ktest_case ktest_lib_cases[];
extern const struct ktest_case ktest_lock_cases[];
extern const struct ktest_case ktest_mbuf_cases[];
extern const struct ktest_case ktest_mem_cases[];
extern const struct ktest_case ktest_random_cases[];
extern const struct ktest_case ktest_resource_cases[];
extern const struct ktest_case ktest_sched_cases[];
extern const struct ktest_case ktest_sleep_cases[];
extern const struct ktest_case ktest_taskqueue_cases[];

/*
 * Run the cases of n tables that what asks for: "all", a subject, or one.  For modules with cases of
 * their own, which depend on this one.
 *
 * Returns 0; EIO, if one failed; ENOENT, if there is none of that name.
 */
int	ktest_run_tables(const struct ktest_case *const *tables, u_int n, const char *what);

MALLOC_DECLARE(M_KTEST);

/* Multiplies the rounds of the cases that race: sysctl debug.ktest.rounds, 1 by default. */
extern int ktest_rounds;

/* The same for those that take long: half as many by default, and all where rounds are multiplied. */
#define	KT_ROUNDS(n)	((n) * (ktest_rounds > 1 ? 2 * ktest_rounds : 1))

/*
 * Checks.  One that fails is printed with its place and its values and makes the case fail; the
 * case goes on.  They return whether all was well.  Any thread may use them, in any context.
 */
#define	KT_TRUE(cond)		ktest_true((cond), __func__, __LINE__, #cond)
#define	KT_EQ(got, want)						\
	ktest_eq((intmax_t)(got), (intmax_t)(want), __func__, __LINE__, #got)
#define	KT_LESS(got, limit)						\
	ktest_less((intmax_t)(got), (intmax_t)(limit), __func__, __LINE__, #got)
#define	KT_STREQ(got, want)	ktest_streq((got), (want), __func__, __LINE__)

bool	ktest_true(bool ok, const char *func, int line, const char *what);
bool	ktest_eq(intmax_t got, intmax_t want, const char *func, int line, const char *what);
bool	ktest_less(intmax_t got, intmax_t limit, const char *func, int line, const char *what);
bool	ktest_streq(const char *got, const char *want, const char *func, int line);

/*
 * Sleeps until cond holds.  Gives up after a time that only a hang needs, and fails then.
 */
#define	KT_WAIT(cond) ({						\
	sbintime_t kt_end_ = sbinuptime() + 30 * SBT_1S;		\
	bool kt_ok_;							\
									\
	while (!(kt_ok_ = (cond)) && sbinuptime() < kt_end_)		\
		pause_sbt("ktwait", 500 * SBT_1US, 0, 0);		\
	ktest_true(kt_ok_ || (cond), __func__, __LINE__, "in time: " #cond); \
})

/* The same without sleeping, for threads that have to keep their CPU busy. */
#define	KT_SPIN(cond) ({						\
	sbintime_t kt_end_ = sbinuptime() + 30 * SBT_1S;		\
	bool kt_ok_;							\
									\
	while (!(kt_ok_ = (cond)) && sbinuptime() < kt_end_)		\
		cpu_spinwait();						\
	ktest_true(kt_ok_ || (cond), __func__, __LINE__, "in time: " #cond); \
})

/*
 * Threads.  func(arg, me) runs in each; me counts from 0.
 *
 * ktest_spawn() starts one: on CPU cpu only, or anywhere (KT_ANYCPU), with the priority pri (0: an
 * ordinary one).  ktest_join() waits until it has ended.  ktest_run() starts n at the same moment,
 * spread over the CPUs in turn when spread is set, and waits for all.
 */
#define	KT_ANYCPU	(-1)
#define	KT_MAXTHREADS	16

typedef void ktest_func_t(void *arg, int me);
struct ktest_thread;

struct ktest_thread *ktest_spawn(ktest_func_t *func, void *arg, int me, int cpu, int pri);
void	ktest_join(struct ktest_thread *kt);
void	ktest_run(int n, bool spread, ktest_func_t *func, void *arg);

/* The calling thread stays on a CPU from now on, or no longer (KT_ANYCPU). */
void	ktest_stay(int cpu);

/* The last CPU: another than CPU 0 if there is another. */
int	ktest_last_cpu(void);

/* Reproducible numbers: from state, which starts with any number but 0. */
uint32_t ktest_random(uint32_t *state);

/* Fill memory with what depends on seed and position; see whether it still is so. */
void	ktest_fill(void *buf, size_t len, uint32_t seed);
bool	ktest_filled(const void *buf, size_t len, uint32_t seed);

#endif /* !_KTEST_H_ */
