/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * epoch(9): readers that never wait, and writers that wait until the readers of before are gone.
 *
 * An epoch has two generations of readers, and for each a count per CPU.  A reader adds itself to
 * the generation that is current when it enters, and stays on its CPU until it leaves.  A writer makes the other generation current, and waits until the sum of the old one is
 * zero.  It does so twice: a reader may have read the current generation just before the first
 * change and be counted only after it, and that one is caught by the second.
 *
 * The counts are changed by locked instructions, which on amd64 are full barriers: what a reader
 * loads inside of its section is loaded after it is counted, and before it is not any more.
 *
 * epoch_call() queues; a thread waits for the epoch once for all that is queued, then calls.
 *
 * Locking.  ep_sx serialises writers of one epoch.  epoch_mtx protects the queues of callbacks.
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

struct epoch_cpu {
	u_int	ec_readers[2];
	u_int	ec_nest;	/* sections without a tracker, and their generation */
	u_int	ec_generation;
	TAILQ_HEAD(, epoch_tracker) ec_trackers;
} __aligned(CACHE_LINE_SIZE);

struct epoch {
	struct epoch_cpu ep_cpu[MAXCPU];
	volatile u_int	 ep_current;	/* 0 or 1: where new readers count */
	int		 ep_flags;
	struct sx	 ep_sx;
};

/* A callback as it waits in epoch_context's two words and the queue. */
struct epoch_deferred {
	STAILQ_ENTRY(epoch_deferred) ed_link;
	epoch_t			 ed_epoch;
	epoch_callback_t	*ed_func;
	epoch_context_t		 ed_ctx;
};
STAILQ_HEAD(epoch_queue, epoch_deferred);

static MALLOC_DEFINE(M_EPOCH, "epoch", "epochs and their callbacks");

static struct mtx epoch_mtx;
MTX_SYSINIT(epoch, &epoch_mtx, "epoch callbacks", MTX_DEF);
static struct epoch_queue epoch_queue = STAILQ_HEAD_INITIALIZER(epoch_queue);

epoch_t global_epoch;
epoch_t global_epoch_preempt;

epoch_t
epoch_alloc(const char *name, int flags)
{
	epoch_t epoch;

	epoch = malloc_aligned(sizeof(*epoch), CACHE_LINE_SIZE, M_EPOCH, M_WAITOK | M_ZERO);
	epoch->ep_flags = flags;
	sx_init(&epoch->ep_sx, name);
	for (int cpu = 0; cpu < MAXCPU; cpu++)
		TAILQ_INIT(&epoch->ep_cpu[cpu].ec_trackers);
	return (epoch);
}

void
epoch_free(epoch_t epoch)
{

	epoch_drain_callbacks(epoch);
	sx_destroy(&epoch->ep_sx);
	free(epoch, M_EPOCH);
}

/* Count a reader in on this CPU; the section is critical.  Returns the generation. */
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
}

/*
 * A reader of an epoch that is not preemptible has no tracker.  Its section is critical, so nobody
 * else is in it on this CPU; sections nest, and the outermost one chooses the generation.
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

/*
 * The context has two words of room, too few for a queue; they hold a pointer to what is queued.
 * There is no way to report a shortage of memory, so the element sleeps for it where it may, and
 * where it may not the reserve of M_USE_RESERVE serves.
 */
void
epoch_call(epoch_t epoch, epoch_callback_t *func, epoch_context_t ctx)
{
	struct epoch_deferred *ed;

	ed = malloc(sizeof(*ed), M_EPOCH, M_NOWAIT | M_USE_RESERVE);
	if (ed == NULL)
		panic("epoch_call: no memory for a callback");
	ed->ed_epoch = epoch;
	ed->ed_func = func;
	ed->ed_ctx = ctx;
	mtx_lock(&epoch_mtx);
	STAILQ_INSERT_TAIL(&epoch_queue, ed, ed_link);
	wakeup(&epoch_queue);
	mtx_unlock(&epoch_mtx);
}

/* Run the callbacks: take all that is queued, wait for each epoch in it once, call in order. */
static void
epoch_thread(void *arg __unused)
{
	struct epoch_queue batch = STAILQ_HEAD_INITIALIZER(batch);
	struct epoch_deferred *ed;
	epoch_t waited;

	for (;;) {
		mtx_lock(&epoch_mtx);
		while (STAILQ_EMPTY(&epoch_queue))
			mtx_sleep(&epoch_queue, &epoch_mtx, 0, "epochcb", 0);
		STAILQ_CONCAT(&batch, &epoch_queue);
		mtx_unlock(&epoch_mtx);
		waited = NULL;
		while ((ed = STAILQ_FIRST(&batch)) != NULL) {
			STAILQ_REMOVE_HEAD(&batch, ed_link);
			if (ed->ed_epoch != waited) {
				epoch_wait_common(ed->ed_epoch);
				waited = ed->ed_epoch;
			}
			ed->ed_func(ed->ed_ctx);
			free(ed, M_EPOCH);
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

	mtx_lock(&epoch_mtx);
	d->d_done = true;
	wakeup(d);
	mtx_unlock(&epoch_mtx);
}

/* Callbacks run in the order of their calls, so the one queued here is the last of interest. */
void
epoch_drain_callbacks(epoch_t epoch)
{
	struct epoch_drain d = { .d_done = false };

	epoch_call(epoch, epoch_drained, &d.d_ctx);
	mtx_lock(&epoch_mtx);
	while (!d.d_done)
		mtx_sleep(&d, &epoch_mtx, 0, "epochdrn", 0);
	mtx_unlock(&epoch_mtx);
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
