/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * epoch(9): readers that never wait, and writers that wait until all earlier readers have left.
 *
 * An epoch has two generations of readers, and for each a count per CPU.  A reader adds itself to
 * the generation that is current when it enters, and stays on its CPU until it leaves.  A writer
 * makes the other generation current, and waits until the sum of the old one is zero.  It does so
 * twice: a reader may have read the current generation just before the first change and be counted
 * only after it, and that one is caught by the second.
 *
 * The counts are changed by locked instructions, which on amd64 are full barriers: what a reader
 * loads inside its section is loaded after it is counted, and before it no longer is.
 *
 * epoch_call() queues; a thread waits for the epoch once for all that is queued, then calls.
 *
 * Locking.  ep_sx serialises writers of one epoch.  epoch_mtx protects the queues of callbacks; it
 * spins, as epoch_call() is for critical sections, too.
 *
 * Gaps.  A reader that was preempted is not lent the priority of the writer that waits for it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/epoch.h>
#include <sys/kernel.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sx.h>

#include <kern/sched_tree.h>

struct epoch_cpu {
	u_int	ec_readers[2];
	u_int	ec_nest;	/* sections without a tracker, and their generation */
	u_int	ec_generation;
	TAILQ_HEAD(, epoch_tracker) ec_trackers;
} __aligned(CACHE_LINE_SIZE);

/* epoch_call()'s use of the two words of a context: a queue without an allocation. */
struct epoch_deferred {
	struct epoch_deferred	*ed_next;
	epoch_callback_t	*ed_func;
};
CTASSERT(sizeof(struct epoch_deferred) <= sizeof(struct epoch_context));

struct epoch {
	struct epoch_cpu ep_cpu[MAXCPU];
	volatile u_int	 ep_current;	/* 0 or 1: where new readers count */
	int		 ep_flags;
	struct sx	 ep_sx;
	struct epoch_deferred *ep_first;	/* callbacks that wait, in order */
	struct epoch_deferred **ep_last;
	TAILQ_ENTRY(epoch) ep_link;
};

static MALLOC_DEFINE(M_EPOCH, "epoch", "epochs and their callbacks");

static struct mtx epoch_mtx;
MTX_SYSINIT(epoch, &epoch_mtx, "epoch callbacks", MTX_SPIN);
static TAILQ_HEAD(epoch_list, epoch) epoch_list = TAILQ_HEAD_INITIALIZER(epoch_list);

epoch_t global_epoch;
epoch_t global_epoch_preempt;

epoch_t
epoch_alloc(const char *name __unused, int flags)
{
	epoch_t epoch;

	epoch = malloc_aligned(sizeof(*epoch), CACHE_LINE_SIZE, M_EPOCH, M_WAITOK | M_ZERO);
	epoch->ep_flags = flags;
	sx_init(&epoch->ep_sx, "epoch");
	epoch->ep_last = &epoch->ep_first;
	for (int cpu = 0; cpu < MAXCPU; cpu++)
		TAILQ_INIT(&epoch->ep_cpu[cpu].ec_trackers);
	mtx_lock_spin(&epoch_mtx);
	TAILQ_INSERT_TAIL(&epoch_list, epoch, ep_link);
	mtx_unlock_spin(&epoch_mtx);
	return (epoch);
}

void
epoch_free(epoch_t epoch)
{

	epoch_drain_callbacks(epoch);
	mtx_lock_spin(&epoch_mtx);
	TAILQ_REMOVE(&epoch_list, epoch, ep_link);
	mtx_unlock_spin(&epoch_mtx);
	sx_destroy(&epoch->ep_sx);
	free(epoch, M_EPOCH);
}

/* Count an entering reader on this CPU; the section is critical.  Returns the generation. */
static inline u_int
epoch_count_in(epoch_t epoch, struct epoch_cpu *ec)
{
	u_int generation = epoch->ep_current;

	atomic_add_int(&ec->ec_readers[generation], 1);
	return (generation);
}

void
_epoch_enter_preempt(epoch_t epoch, epoch_tracker_t et)
{
	struct epoch_cpu *ec;

	KASSERT((epoch->ep_flags & EPOCH_PREEMPT) != 0, ("epoch is not preemptible"));
	NO_SLEEPING_BEGIN();
	critical_enter();
	sched_pin();
	ec = &epoch->ep_cpu[curcpu];
	et->et_td = curthread;
	et->et_old_priority = epoch_count_in(epoch, ec);
	TAILQ_INSERT_HEAD(&ec->ec_trackers, et, et_link);
	critical_exit();
}

void
_epoch_exit_preempt(epoch_t epoch, epoch_tracker_t et)
{
	struct epoch_cpu *ec;

	KASSERT(et->et_td == curthread, ("epoch_exit: tracker of another thread"));
	critical_enter();
	ec = &epoch->ep_cpu[curcpu];
	TAILQ_REMOVE(&ec->ec_trackers, et, et_link);
	atomic_subtract_int(&ec->ec_readers[et->et_old_priority], 1);
	sched_unpin();
	critical_exit();
	NO_SLEEPING_END();
}

/*
 * A reader of an epoch that is not preemptible has no tracker.  Its section is critical, so no other
 * thread is in one on this CPU; sections nest, and the outermost one chooses the generation.
 */
void
epoch_enter(epoch_t epoch)
{
	struct epoch_cpu *ec;

	critical_enter();
	ec = &epoch->ep_cpu[curcpu];
	if (ec->ec_nest++ == 0)
		ec->ec_generation = epoch_count_in(epoch, ec);
}

void
epoch_exit(epoch_t epoch)
{
	struct epoch_cpu *ec = &epoch->ep_cpu[curcpu];

	KASSERT(ec->ec_nest > 0, ("epoch_exit: the thread is not in the epoch"));
	if (--ec->ec_nest == 0)
		atomic_subtract_int(&ec->ec_readers[ec->ec_generation], 1);
	critical_exit();
}

static u_int
epoch_readers(epoch_t epoch, u_int generation)
{
	u_int cpu, sum = 0;

	CPU_FOREACH(cpu)
		sum += atomic_load_int(&epoch->ep_cpu[cpu].ec_readers[generation]);
	return (sum);
}

int
in_epoch_verbose(epoch_t epoch, int dump_onfail __unused)
{
	struct epoch_cpu *ec;
	struct epoch_tracker *et;
	bool found;

	if (SCHEDULER_STOPPED())
		return (1);
	critical_enter();
	ec = &epoch->ep_cpu[curcpu];
	found = ec->ec_nest > 0;
	TAILQ_FOREACH(et, &ec->ec_trackers, et_link)
		found |= et->et_td == curthread;
	critical_exit();
	return (found);
}

int
in_epoch(epoch_t epoch)
{

	return (in_epoch_verbose(epoch, 0));
}

static void
epoch_wait_common(epoch_t epoch)
{
	u_int old;

	WITNESS_WARN(WARN_GIANTOK | WARN_SLEEPOK, NULL, "calling epoch_wait()");
	KASSERT(!in_epoch(epoch), ("epoch_wait in the epoch would wait for ever"));
	sx_xlock(&epoch->ep_sx);
	for (int round = 0; round < 2; round++) {
		old = epoch->ep_current;
		epoch->ep_current = !old;
		/* Pairs with the locked add of a reader: it counts, or it sees the new generation. */
		atomic_thread_fence_seq_cst();
		while (epoch_readers(epoch, old) != 0)
			pause("epoch", 1);
	}
	sx_xunlock(&epoch->ep_sx);
}

void
epoch_wait(epoch_t epoch)
{

	epoch_wait_common(epoch);
}

void
epoch_wait_preempt(epoch_t epoch)
{

	epoch_wait_common(epoch);
}

void
epoch_call(epoch_t epoch, epoch_callback_t *func, epoch_context_t ctx)
{
	struct epoch_deferred *ed = (void *)ctx;

	ed->ed_next = NULL;
	ed->ed_func = func;
	mtx_lock_spin(&epoch_mtx);
	*epoch->ep_last = ed;
	epoch->ep_last = &ed->ed_next;
	wakeup(&epoch_list);
	mtx_unlock_spin(&epoch_mtx);
}

/* The first epoch that has callbacks waiting; NULL if none has. */
static epoch_t
epoch_with_work(void)
{
	epoch_t epoch;

	mtx_assert(&epoch_mtx, MA_OWNED);
	TAILQ_FOREACH(epoch, &epoch_list, ep_link) {
		if (epoch->ep_first != NULL)
			break;
	}
	return (epoch);
}

/* Run the callbacks: take all that an epoch has, wait for it once, call in order. */
static void
epoch_thread(void *arg __unused)
{
	struct epoch_deferred *ed, *next;
	epoch_t epoch;

	for (;;) {
		mtx_lock_spin(&epoch_mtx);
		while ((epoch = epoch_with_work()) == NULL)
			msleep_spin(&epoch_list, &epoch_mtx, "epochcb", 0);
		ed = epoch->ep_first;
		epoch->ep_first = NULL;
		epoch->ep_last = &epoch->ep_first;
		mtx_unlock_spin(&epoch_mtx);
		epoch_wait_common(epoch);
		for (; ed != NULL; ed = next) {
			/* The callback may free the memory that the link is in. */
			next = ed->ed_next;
			ed->ed_func((epoch_context_t)ed);
		}
	}
}

struct epoch_drain {
	struct epoch_context	d_ctx;
	bool			d_done;
};

static void
epoch_drained(epoch_context_t ctx)
{
	struct epoch_drain *d = __containerof(ctx, struct epoch_drain, d_ctx);

	mtx_lock_spin(&epoch_mtx);
	d->d_done = true;
	wakeup(d);
	mtx_unlock_spin(&epoch_mtx);
}

/* Callbacks run in the order of their calls, so the one queued here is the last of interest. */
void
epoch_drain_callbacks(epoch_t epoch)
{
	struct epoch_drain d = { .d_done = false };

	WITNESS_WARN(WARN_GIANTOK | WARN_SLEEPOK, NULL, "calling epoch_drain_callbacks()");
	epoch_call(epoch, epoch_drained, &d.d_ctx);
	mtx_lock_spin(&epoch_mtx);
	while (!d.d_done)
		msleep_spin(&d, &epoch_mtx, "epochdrn", 0);
	mtx_unlock_spin(&epoch_mtx);
}

static void
epoch_init(void *arg __unused)
{

	global_epoch = epoch_alloc("Global", 0);
	global_epoch_preempt = epoch_alloc("Global preemptible", EPOCH_PREEMPT);
}
SYSINIT(epoch, SI_SUB_EPOCH, SI_ORDER_FIRST, epoch_init, NULL);

static void
epoch_start(void *arg __unused)
{

	if (kthread_add(epoch_thread, NULL, NULL, NULL, 0, 0, "epoch callbacks") != 0)
		panic("epoch: can't start the callback thread");
}
SYSINIT(epoch_thread, SI_SUB_KTHREAD_IDLE, SI_ORDER_ANY, epoch_start, NULL);
