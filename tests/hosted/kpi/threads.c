/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Threads, sleep(9), and what else the tree kernel's newbus and taskqueue(9) need in a process.
 *
 * Each is a thread of the process, and one of them runs: when it sleeps it hands over to the next that
 * can go on, in the order of their numbers.  If none can, time passes by ticks until one can; that no
 * time would help is an error.  So a test has the same order each time.
 *
 * Giant, which is the topology lock, is given back while its owner sleeps, as in FreeBSD.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/cpuset.h>
#include <sys/epoch.h>
#include <sys/interrupt.h>
#include <sys/kthread.h>
#include <sys/linker_set.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/sx.h>
#include <sys/sysctl.h>
#include <sys/unistd.h>

#include <machine/bus.h>
#include <machine/stdarg.h>

#include <kern/bus_tree.h>

#include "../host/host.h"
#include "kpi.h"
#include "sched.h"
#include "threads.h"

#define	KPI_THREADS	12

struct kpi_thread {
	struct thread	 kt_td;		/* curthread: first */
	struct host_bell kt_bell;
	void		(*kt_fn)(void *);	/* NULL: there is none */
	void		*kt_arg;
	bool		 kt_ready;
	bool		 kt_last;	/* before time passes, and behind all others */
	bool		 kt_timed, kt_late;
	bool		 kt_own;	/* the test's */
	int		 kt_due;
	const void	*kt_chan;
	const char	*kt_wmesg;
	void		*kt_env[5];
};

int kpi_thread_fails;

static struct kpi_thread kpi_table[KPI_THREADS];
static struct kpi_thread *volatile kpi_running;
static volatile bool kpi_over;
static volatile u_int kpi_started;
static void (*kpi_body)(const void *);
static const void *kpi_body_arg;

MALLOC_DEFINE(M_TEMP, "temp", "temporary");
struct mtx Giant;
struct sx modules_sx;

SET_DECLARE(sysinit_set, struct sysinit);
/* No linker set of a process may be empty. */
static char kpi_pcpu __section("set_pcpu") __used;

static struct kpi_thread *
kpi_self(void)
{

	return ((struct kpi_thread *)curthread);
}

static void
kpi_wait_turn(struct kpi_thread *me)
{

	while (kpi_running != me && !kpi_over)
		(void)host_bell_wait(&me->kt_bell);
	if (kpi_over)
		__builtin_longjmp(me->kt_env, 1);
}

/* Who has slept for long enough. */
static void
kpi_tick(void)
{
	struct kpi_thread *kt;

	kpi_pass(tick_sbt);
	for (kt = kpi_table; kt < kpi_table + KPI_THREADS; kt++) {
		if (kt->kt_fn == NULL || kt->kt_ready || !kt->kt_timed || kt->kt_due - ticks > 0)
			continue;
		kt->kt_ready = kt->kt_late = true;
	}
}

/* Would time help anybody? */
static bool
kpi_is_timed(void)
{
	struct kpi_thread *kt;

	for (kt = kpi_table; kt < kpi_table + KPI_THREADS; kt++)
		if (kt->kt_fn != NULL && kt->kt_timed)
			return (true);
	return (kpi_callouts > 0);
}

static struct kpi_thread *
kpi_next(struct kpi_thread *me)
{
	struct kpi_thread *kt, *last;
	int i;

	for (;; kpi_tick()) {
		last = NULL;
		for (i = 1; i <= KPI_THREADS; i++) {
			kt = &kpi_table[(me - kpi_table + i) % KPI_THREADS];
			if (kt->kt_fn == NULL || !kt->kt_ready)
				continue;
			if (!kt->kt_last)
				return (kt);
			last = kt;
		}
		if (last != NULL)
			return (last);
		for (kt = kpi_table; !kpi_is_timed() && kt->kt_wmesg == NULL; kt++)
			continue;
		CHECK(kpi_is_timed(), "all are asleep, in %s", kt->kt_wmesg);
	}
}

static void
kpi_hand_over(struct kpi_thread *me, struct kpi_thread *next)
{

	if (next == me)
		return;
	kpi_running = next;
	host_bell_ring(&next->kt_bell);
}

static void
kpi_switch(void)
{
	struct kpi_thread *me = kpi_self();

	kpi_hand_over(me, kpi_next(me));
	kpi_wait_turn(me);
	me->kt_wmesg = NULL;
	me->kt_last = me->kt_timed = false;
}

void
kpi_settle(void)
{

	kpi_self()->kt_last = true;
	kpi_switch();
}

int
_sleep(const void *chan, struct lock_object *lock, int pri, const char *wmesg, sbintime_t sbt,
    sbintime_t pr __unused, int flags __unused)
{
	struct mtx *mtx = lock == NULL ? NULL : __containerof(lock, struct mtx, lock_object);
	struct kpi_thread *me = kpi_self();
	int giant = 0;

	if (mtx != NULL)
		mtx_unlock(mtx);
	while (kpi_mutex_is_mine(&Giant)) {
		mtx_unlock(&Giant);
		giant++;
	}
	CHECK(kpi_mutexes == 0, "%s: a mutex is held", wmesg);
	me->kt_chan = chan;
	me->kt_wmesg = wmesg;
	me->kt_ready = me->kt_late = false;
	me->kt_timed = sbt > 0;
	me->kt_due = ticks + howmany(sbt, tick_sbt);
	kpi_switch();
	me->kt_chan = NULL;
	while (giant-- > 0)
		mtx_lock(&Giant);
	if (mtx != NULL && (pri & PDROP) == 0)
		mtx_lock(mtx);
	return (me->kt_late ? EWOULDBLOCK : 0);
}

int
pause_sbt(const char *wmesg, sbintime_t sbt, sbintime_t pr __unused, int flags __unused)
{

	CHECK(sbt > 0, "%s: for no time", wmesg);
	return (_sleep(kpi_self(), NULL, 0, wmesg, sbt, 0, 0));
}

void
kpi_sleep(int n)
{

	(void)pause("test", n);
	kpi_settle();
}

void
wakeup(const void *chan)
{
	struct kpi_thread *kt;

	for (kt = kpi_table; kt < kpi_table + KPI_THREADS; kt++)
		if (kt->kt_fn != NULL && !kt->kt_ready && kt->kt_chan == chan)
			kt->kt_ready = true;
}

void
wakeup_any(const void *chan)
{

	wakeup(chan);
}

/* Another thread sleeps with Giant, or a lock that is kept then. */
static void
kpi_wait_lock(void)
{
	struct kpi_thread *me = kpi_self();

	me->kt_wmesg = "lock";
	me->kt_ready = false;
	me->kt_timed = true;
	me->kt_due = ticks + 1;
	kpi_switch();
}

/* Threads of the kernel. */

static struct kpi_thread *
kpi_thread_new(void (*fn)(void *), void *arg)
{
	struct kpi_thread *kt = kpi_table + 1;

	while (kt < kpi_table + KPI_THREADS && kt->kt_fn != NULL)
		kt++;
	CHECK(kt < kpi_table + KPI_THREADS, "too many threads");
	kt->kt_fn = fn;
	kt->kt_arg = arg;
	kt->kt_ready = kt->kt_own = false;
	kt->kt_chan = NULL;
	return (kt);
}

void
kpi_thread_start(void (*fn)(void *), void *arg)
{
	struct kpi_thread *kt = kpi_thread_new(fn, arg);

	kt->kt_own = kt->kt_ready = true;
}

/* How many there are besides the first one, of the test or of the kernel. */
static int
kpi_count(bool own)
{
	int i, n = 0;

	for (i = 1; i < KPI_THREADS; i++)
		n += kpi_table[i].kt_fn != NULL && kpi_table[i].kt_own == own;
	return (n);
}

int
kpi_threads_left(void)
{

	return (kpi_count(true));
}

int
kpi_kthreads_left(void)
{

	return (kpi_count(false));
}

int
kthread_add(void (*fn)(void *), void *arg, struct proc *p __unused, struct thread **tdp, int flags,
    int pages __unused, const char *fmt __unused, ...)
{

	CHECK((flags & RFSTOPPED) != 0, "flags 0x%x", flags);
	if (kpi_no_threads || (kpi_thread_fails > 0 && --kpi_thread_fails == 0))
		return (ENOMEM);
	*tdp = &kpi_thread_new(fn, arg)->kt_td;
	return (0);
}

void
sched_add(struct thread *td, int flags __unused)
{

	((struct kpi_thread *)td)->kt_ready = true;
}

void
sched_prio(struct thread *td __unused, u_char prio __unused)
{
}

void
kthread_exit(void)
{

	__builtin_longjmp(kpi_self()->kt_env, 1);
}

static void
kpi_thread_main(void *arg __unused)
{
	struct kpi_thread *me = &kpi_table[atomic_fetchadd_int(&kpi_started, 1)];

	PCPU_SET(curthread, &me->kt_td);
	if (me == kpi_table) {
		kpi_body(kpi_body_arg);
		kpi_over = true;
		for (me++; me < kpi_table + KPI_THREADS; me++)
			host_bell_ring(&me->kt_bell);
		return;
	}
	while (!kpi_over) {
		if (__builtin_setjmp(kpi_self()->kt_env) == 0) {
			kpi_wait_turn(kpi_self());
			kpi_self()->kt_fn(kpi_self()->kt_arg);
		}
		if (kpi_over)
			break;
		kpi_self()->kt_fn = NULL;
		kpi_hand_over(kpi_self(), kpi_next(kpi_self()));
	}
}

void
kpi_threads(void (*body)(const void *), const void *arg)
{
	void (*bodies[KPI_THREADS])(void *);
	int i;

	for (i = 0; i < KPI_THREADS; i++)
		bodies[i] = kpi_thread_main;
	mtx_init(&Giant, "Giant", NULL, MTX_DEF | MTX_RECURSE);
	sx_init(&modules_sx, "modules");
	kpi_contended = kpi_wait_lock;
	kpi_body = body;
	kpi_body_arg = arg;
	kpi_table[0].kt_fn = kpi_thread_main;
	kpi_table[0].kt_ready = true;
	kpi_running = kpi_table;
	host_run(bodies, KPI_THREADS, NULL);
}

/* Modules. */

void
kpi_sysinits(void)
{
	struct sysinit **si;

	SET_FOREACH(si, sysinit_set) {
		if ((*si)->func != mtx_sysinit && (*si)->func != sx_sysinit &&
		    (*si)->func != module_register_init && (*si)->func != (sysinit_cfunc_t)malloc_init)
			((sysinit_nfunc_t)(*si)->func)(__DECONST(void *, (*si)->udata));
	}
}

int
kpi_set_driver(device_t dev, const char *driver)
{
	int error;

	bus_topo_lock();
	error = device_detach(dev);
	if (error == 0) {
		(void)device_set_devclass(dev, NULL);
		error = device_set_devclass_fixed(dev, driver);
	}
	if (error == 0)
		error = device_probe_and_attach(dev);
	bus_topo_unlock();
	return (error);
}

int
kpi_module_event(const char *name, int what)
{
	const moduledata_t *data;
	struct sysinit **si;

	SET_FOREACH(si, sysinit_set) {
		data = (*si)->udata;
		if ((*si)->func == module_register_init && strcmp(data->name, name) == 0)
			return (data->evhand(NULL, what, data->priv));
	}
	CHECK(false, "%s: no such module", name);
	return (ENOENT);
}

/* What nothing here needs but to be linked. */

int
msleep_spin_sbt(const void *chan __unused, struct mtx *mtx __unused, const char *wmesg,
    sbintime_t sbt __unused, sbintime_t pr __unused, int flags __unused)
{

	panic("%s: with a spin mutex", wmesg);
}

void
__mtx_lock_spin_flags(volatile uintptr_t *c, int opts, const char *file, int line)
{

	__mtx_lock_flags(c, opts, file, line);
}

void
__mtx_unlock_spin_flags(volatile uintptr_t *c, int opts, const char *file, int line)
{

	__mtx_unlock_flags(c, opts, file, line);
}

void
thread_lock_flags_(struct thread *td __unused, int opts __unused, const char *file __unused,
    int line __unused)
{
}

int
cpuset_setthread(lwpid_t id __unused, cpuset_t *mask __unused)
{

	return (0);
}

int
swi_add(struct intr_event **eventp __unused, const char *name __unused, driver_intr_t handler __unused,
    void *arg __unused, int pri __unused, enum intr_type flags __unused, void **cookiep __unused)
{

	return (0);
}

void
swi_sched(void *cookie __unused, int flags __unused)
{
}

void
_epoch_enter_preempt(epoch_t epoch __unused, epoch_tracker_t et __unused EPOCH_FILE_LINE)
{
}

void
_epoch_exit_preempt(epoch_t epoch __unused, epoch_tracker_t et __unused EPOCH_FILE_LINE)
{
}

int
witness_warn(int flags __unused, struct lock_object *lock __unused, const char *fmt, ...)
{

	CHECK(kpi_mutexes == 0, "%s", fmt);
	return (0);
}

/* A device has those of its driver. */

static struct sysctl_oid kpi_device_tree;

void
device_sysctl_init(device_t dev)
{

	if (dev->sysctl_tree == NULL)
		(void)sysctl_ctx_init(&dev->sysctl_ctx);
	dev->sysctl_tree = &kpi_device_tree;
}

void
devclass_sysctl_init(devclass_t dc __unused)
{
}

void
device_sysctl_fini(device_t dev)
{

	if (dev->sysctl_tree != NULL)
		(void)sysctl_ctx_free(&dev->sysctl_ctx);
	dev->sysctl_tree = NULL;
}

int
resource_disabled(const char *name __unused, int unit __unused)
{

	return (0);
}
