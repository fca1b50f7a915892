/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The kernel's test module: does the kernel do what section 9 of the manual says?
 *
 *	sysctl debug.ktest.list			names of the cases
 *	sysctl debug.ktest.run=mtx		runs the cases of a subject, or one (mtx.recursion)
 *	sysctl debug.ktest.rounds=10		the cases that race take ten times as many rounds
 *
 * A line is printed for each case.  The write fails with EIO when a case did, after the places and
 * values of its first failed checks were printed, and with ENOENT when there is no such case.
 *
 * A case checks order, counts and contents, never how long something takes; it may check that
 * something takes at least as long as it should.  What would hang is given up after 30 seconds.
 * The module uses only what FreeBSD's headers offer to modules.
 *
 * Locking.  ktest_sx: one run at a time.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sbuf.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sx.h>
#include <sys/sysctl.h>
#include <sys/unistd.h>

#include <machine/cpu.h>

#include "ktest.h"

#define	KTEST_MAXPRINT	8		/* failed checks that a case prints */

struct ktest_thread {
	ktest_func_t	*kt_func;
	void		*kt_arg;
	volatile u_int	*kt_barrier;
	u_int		kt_start;	/* how many have to come to the barrier */
	int		kt_me;
	int		kt_cpu;
	int		kt_pri;
	lwpid_t		kt_tid;
};

MALLOC_DEFINE(M_KTEST, "ktest", "kernel tests");

static struct sx ktest_sx;
SX_SYSINIT(ktest, &ktest_sx, "ktest run");
static u_int ktest_failures;
int ktest_rounds = 1;

static const struct ktest_case *const ktest_tables[] = {
	ktest_lock_cases,
	ktest_sleep_cases,
	ktest_callout_cases,
	ktest_taskqueue_cases,
	ktest_sched_cases,
	ktest_epoch_cases,
	ktest_mem_cases,
	ktest_mbuf_cases,
	ktest_dma_cases,
	ktest_random_cases,
	ktest_resource_cases,
	ktest_lib_cases,
};

SYSCTL_NODE(_debug, OID_AUTO, ktest, CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, "kernel tests");
SYSCTL_INT(_debug_ktest, OID_AUTO, rounds, CTLFLAG_RW, &ktest_rounds, 0,
    "Multiplies the rounds of cases that race");

static bool
ktest_failed(void)
{
	return (atomic_fetchadd_int(&ktest_failures, 1) < KTEST_MAXPRINT);
}

bool
ktest_true(bool ok, const char *func, int line, const char *what)
{
	if (!ok && ktest_failed())
		printf("ktest: %s:%d: not so: %s\n", func, line, what);
	return (ok);
}

bool
ktest_eq(intmax_t got, intmax_t want, const char *func, int line, const char *what)
{
	if (got != want && ktest_failed())
		printf("ktest: %s:%d: %s is %jd (%#jx), not %jd (%#jx)\n", func, line, what, got,
		    (uintmax_t)got, want, (uintmax_t)want);
	return (got == want);
}

bool
ktest_less(intmax_t got, intmax_t limit, const char *func, int line, const char *what)
{
	if (got >= limit && ktest_failed())
		printf("ktest: %s:%d: %s is %jd, not less than %jd\n", func, line, what, got,
		    limit);
	return (got < limit);
}

bool
ktest_streq(const char *got, const char *want, const char *func, int line)
{
	bool ok = strcmp(got, want) == 0;

	if (!ok && ktest_failed())
		printf("ktest: %s:%d: \"%s\", not \"%s\"\n", func, line, got, want);
	return (ok);
}

int
ktest_last_cpu(void)
{
	return (mp_maxid);
}

uint32_t
ktest_random(uint32_t *state)
{
	uint32_t x = *state;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return (*state = x);
}

static uint8_t
ktest_byte(uint32_t seed, size_t i)
{
	return ((seed * 31 + i * 7 + (i >> 8) * 13) & 0xff);
}

void
ktest_fill(void *buf, size_t len, uint32_t seed)
{
	uint8_t *p = buf;
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = ktest_byte(seed, i);
}

bool
ktest_filled(const void *buf, size_t len, uint32_t seed)
{
	const uint8_t *p = buf;
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != ktest_byte(seed, i))
			return (false);
	return (true);
}

static void
ktest_thread_main(void *arg)
{
	struct ktest_thread *kt = arg;
	struct thread *td = curthread;

	thread_lock(td);
	if (kt->kt_cpu != KT_ANYCPU)
		sched_bind(td, kt->kt_cpu);
	if (kt->kt_pri != 0)
		sched_prio(td, kt->kt_pri);
	thread_unlock(td);
	if (kt->kt_barrier != NULL) {
		atomic_add_int(kt->kt_barrier, 1);
		while (*kt->kt_barrier < kt->kt_start)
			kern_yield(PRI_UNCHANGED);
	}
	kt->kt_func(kt->kt_arg, kt->kt_me);
	kthread_exit();
}

static void
ktest_start(struct ktest_thread *kt)
{
	struct thread *td;
	int error;

	error = kthread_add(ktest_thread_main, kt, NULL, &td, RFSTOPPED, 0, "ktest %d", kt->kt_me);
	if (error != 0)
		panic("ktest: no thread: error %d", error);
	kt->kt_tid = td->td_tid;
	thread_lock(td);
	sched_add(td, SRQ_BORING);
}

void
ktest_stay(int cpu)
{
	struct thread *td = curthread;

	thread_lock(td);
	if (cpu != KT_ANYCPU)
		sched_bind(td, cpu);
	else
		sched_unbind(td);
	thread_unlock(td);
}

struct ktest_thread *
ktest_spawn(ktest_func_t *func, void *arg, int me, int cpu, int pri)
{
	struct ktest_thread *kt;

	kt = malloc(sizeof(*kt), M_KTEST, M_WAITOK | M_ZERO);
	kt->kt_func = func;
	kt->kt_arg = arg;
	kt->kt_me = me;
	kt->kt_cpu = cpu;
	kt->kt_pri = pri;
	ktest_start(kt);
	return (kt);
}

/* kthread(9): who exits wakes sleepers on the thread, under the lock of the process. */
void
ktest_join(struct ktest_thread *kt)
{
	struct proc *p = &proc0;
	struct thread *td;

	PROC_LOCK(p);
	for (;;) {
		FOREACH_THREAD_IN_PROC(p, td)
			if (td->td_tid == kt->kt_tid)
				break;
		if (td == NULL)
			break;
		mtx_sleep(td, &p->p_mtx, 0, "ktjoin", 0);
	}
	PROC_UNLOCK(p);
	free(kt, M_KTEST);
}

void
ktest_run(int n, bool spread, ktest_func_t *func, void *arg)
{
	struct ktest_thread *kt[KT_MAXTHREADS];
	volatile u_int barrier = 0;
	int i;

	MPASS(n <= KT_MAXTHREADS);
	for (i = 0; i < n; i++) {
		kt[i] = malloc(sizeof(*kt[i]), M_KTEST, M_WAITOK | M_ZERO);
		kt[i]->kt_func = func;
		kt[i]->kt_arg = arg;
		kt[i]->kt_barrier = &barrier;
		kt[i]->kt_start = n;
		kt[i]->kt_me = i;
		kt[i]->kt_cpu = spread ? i % (mp_maxid + 1) : KT_ANYCPU;
	}
	for (i = 0; i < n; i++)
		ktest_start(kt[i]);
	for (i = 0; i < n; i++)
		ktest_join(kt[i]);
}

/* Is it what the user asked for: all, a subject, or a case? */
static bool
ktest_wanted(const struct ktest_case *kc, const char *what)
{
	size_t len = strlen(what);

	return (strcmp(what, "all") == 0 || (strncmp(kc->kc_name, what, len) == 0 &&
	    (kc->kc_name[len] == '\0' || kc->kc_name[len] == '.')));
}

int
ktest_run_tables(const struct ktest_case *const *tables, u_int n, const char *what)
{
	const struct ktest_case *kc;
	bool found = false;
	u_int i;
	int error = 0;

	sx_xlock(&ktest_sx);
	for (i = 0; i < n; i++) {
		for (kc = tables[i]; kc->kc_name != NULL; kc++) {
			if (!ktest_wanted(kc, what))
				continue;
			found = true;
			ktest_failures = 0;
			kc->kc_func();
			if (ktest_failures != 0)
				error = EIO;
			printf("ktest: %s: %s\n", kc->kc_name,
			    ktest_failures != 0 ? "FAILED" : "ok");
		}
	}
	sx_xunlock(&ktest_sx);
	return (found ? error : ENOENT);
}

static int
ktest_sysctl_run(SYSCTL_HANDLER_ARGS)
{
	char what[64] = "";
	int error;

	error = sysctl_handle_string(oidp, what, sizeof(what), req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	return (ktest_run_tables(ktest_tables, nitems(ktest_tables), what));
}
SYSCTL_PROC(_debug_ktest, OID_AUTO, run, CTLTYPE_STRING | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    ktest_sysctl_run, "A", "Run a case, a subject, or all");

static int
ktest_sysctl_list(SYSCTL_HANDLER_ARGS)
{
	const struct ktest_case *kc;
	struct sbuf sb;
	u_int i;
	int error;

	sbuf_new_for_sysctl(&sb, NULL, 128, req);
	for (i = 0; i < nitems(ktest_tables); i++)
		for (kc = ktest_tables[i]; kc->kc_name != NULL; kc++)
			sbuf_printf(&sb, "\n%s", kc->kc_name);
	error = sbuf_finish(&sb);
	sbuf_delete(&sb);
	return (error);
}
SYSCTL_PROC(_debug_ktest, OID_AUTO, list, CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, 0,
    ktest_sysctl_list, "A", "Names of the cases");

static int
ktest_modevent(module_t mod, int what, void *arg)
{
	return (what == MOD_LOAD || what == MOD_UNLOAD ? 0 : EOPNOTSUPP);
}

static moduledata_t ktest_mod = { "ktest", ktest_modevent, NULL };
DECLARE_MODULE(ktest, ktest_mod, SI_SUB_DRIVERS, SI_ORDER_ANY);
MODULE_VERSION(ktest, 1);
