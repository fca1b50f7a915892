/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The balloon's worker, and its pages (theory statement: pv_balloon.h).
 *
 * Locking.  pb_mtx protects the target and the flags.  pages and what
 * pv_balloon.h calls the worker's have no lock: the worker is one thread, and
 * others come while it is stopped (balloon_quiesce()), with pv_dev's lock,
 * which comes before pb_mtx.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/limits.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/proc.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

#include <machine/atomic.h>
#include <machine/vmparam.h>

#include <dev/pv/pv_tunable.h>
#include <dev/pv/balloon/pv_balloon.h>

#define	PRESSURE_SECONDS	30
#define	PRESSURE_MIN		1024	/* pages given back beyond
					 * v_free_target: at first, */
#define	PRESSURE_MAX		8192	/* and when that never lasts */
#define	PAGE_REQ		(VM_ALLOC_NORMAL | VM_ALLOC_NOWAIT |	\
				VM_ALLOC_NODUMP | VM_ALLOC_WIRED)
/* A block is taken where there is one; memory is not moved to make one. */
#define	BLOCK_REQ		(PAGE_REQ | VM_ALLOC_NORECLAIM)

MODULE_VERSION(pv_balloon, 1);
MODULE_DEPEND(pv_balloon, pv, 1, 1, 1);

static MALLOC_DEFINE(M_PVBALLOON, "pv_balloon", "memory balloon");

static SYSCTL_NODE(_vm, OID_AUTO, balloon, CTLFLAG_RW | CTLFLAG_MPSAFE, NULL,
    "Memory balloons");

static u_long balloon_pages;
SYSCTL_ULONG(_vm_balloon, OID_AUTO, pages, CTLFLAG_RD, &balloon_pages, 0,
    "Pages in all balloons");

static u_long balloon_hidden;
SYSCTL_ULONG(_vm_balloon, OID_AUTO, hidden, CTLFLAG_RD, &balloon_hidden, 0,
    "Pages that are unmapped while the host has them");

#ifdef INVARIANTS
#define	BALLOON_GUARD	1
#else
#define	BALLOON_GUARD	0
#endif

enum { BALLOON_TUN_GUARD, BALLOON_TUN_RESERVE, BALLOON_TUN_RETRY_MAX };

static struct pv_tunable balloon_tunables[] = {
	[BALLOON_TUN_GUARD] = PV_TUNABLE("guard", BALLOON_GUARD, 0, 1, 0,
	    "Unmap pages while the host has them, so that an access to one panics"),
	[BALLOON_TUN_RESERVE] = PV_TUNABLE("reserve", 2048, 0, INT_MAX, PVT_RW,
	    "Free pages above v_free_target that inflating leaves to the guest"),
	[BALLOON_TUN_RETRY_MAX] = PV_TUNABLE("retry_max", 10, 1, 3600, PVT_RW,
	    "Longest time between two tries to reach the target, in seconds"),
};
PV_TUNABLES(pv_balloon_tunables, vm, "balloon", balloon_tunables,
    "Memory balloons");

static bool
balloon_guards(void)
{
	return (balloon_tunables[BALLOON_TUN_GUARD].pt_value != 0);
}

static const struct pv_balloon_stat {
	size_t		 offset;
	const char	*name;
	const char	*descr;
} pv_balloon_stat_table[] = {
#define	BALLOON_STAT(name, descr)					\
	{ offsetof(struct pv_balloon_stats, pbs_ ## name), #name, descr }
	BALLOON_STAT(inflated, "Pages given to the host"),
	BALLOON_STAT(deflated, "Pages taken back from the host"),
	BALLOON_STAT(batches, "Requests to the host to take or return pages"),
	BALLOON_STAT(targets, "Changes of the target"),
	BALLOON_STAT(short, "Times that the guest had no memory to give"),
	BALLOON_STAT(refused,
	    "Pages that the host did not accept, or did not return"),
	BALLOON_STAT(errors, "Times that giving or taking pages failed"),
	BALLOON_STAT(lowmem, "Times that the guest was short of memory"),
	BALLOON_STAT(oom,
	    "Pages taken back because the guest was short of memory"),
#undef BALLOON_STAT
};

/*
 * Change the protection of n pages from pa on in the direct map.  Returns how
 * many were changed.
 */
static u_int
balloon_protect_run(vm_paddr_t pa, u_int n, vm_prot_t prot)
{

	return (pmap_change_prot(PHYS_TO_DMAP(pa), ptoa(n), prot) == 0 ? n : 0);
}

/* Change the protection of any pages, each run of neighbours at once. */
static u_int
balloon_protect(vm_page_t *pages, u_int n, vm_prot_t prot)
{
	vm_paddr_t pa;
	u_int i, run, changed = 0;

	for (i = 0; i < n; i += run) {
		pa = VM_PAGE_TO_PHYS(pages[i]);
		for (run = 1; i + run < n &&
		    VM_PAGE_TO_PHYS(pages[i + run]) == pa + ptoa(run); run++)
			;
		changed += balloon_protect_run(pa, run, prot);
	}
	return (changed);
}

/*
 * A system may be unable to unmap a page (FreeBSD does not change its direct
 * map): it stays mapped then, which is harmless.  Making it usable again can't
 * fail where unmapping it did not.
 */
static void
balloon_hide(vm_page_t *pages, u_int n)
{

	if (balloon_guards())
		atomic_add_long(&balloon_hidden,
		    balloon_protect(pages, n, VM_PROT_NONE));
}

static void
balloon_show(vm_page_t *pages, u_int n)
{

	if (balloon_guards())
		atomic_subtract_long(&balloon_hidden,
		    balloon_protect(pages, n, VM_PROT_READ | VM_PROT_WRITE));
}

static void
balloon_release(vm_page_t *pages, u_int n)
{
	u_int i;

	for (i = 0; i < n; i++) {
		vm_page_unwire_noq(pages[i]);
		vm_page_free(pages[i]);
	}
}

static void
balloon_hold(struct pv_balloon *pb, vm_page_t *pages, u_int n)
{
	u_int i;

	for (i = 0; i < n; i++)
		TAILQ_INSERT_HEAD(&pb->pb_pages, pages[i], plinks.q);
	pb->pb_npages += n;
	atomic_add_long(&balloon_pages, n);
}

/* The n pages that were put in last, in the order in which they were. */
static void
balloon_unhold(struct pv_balloon *pb, vm_page_t *pages, u_int n)
{
	u_int i;

	for (i = n; i-- > 0;) {
		pages[i] = TAILQ_FIRST(&pb->pb_pages);
		TAILQ_REMOVE(&pb->pb_pages, pages[i], plinks.q);
	}
	pb->pb_npages -= n;
	atomic_subtract_long(&balloon_pages, n);
}

/*
 * How many of the next n pages to be returned go together: a whole block, or
 * what comes before one.  A page that ends a block is nearly always the last of
 * one that went as a whole.
 */
static u_int
balloon_together(struct pv_balloon *pb, u_int n)
{
	vm_page_t m;
	u_int k = 0;

	TAILQ_FOREACH(m, &pb->pb_pages, plinks.q) {
		if (k == n || (k != 0 && atop(VM_PAGE_TO_PHYS(m)) %
		    PV_BALLOON_BLOCK == PV_BALLOON_BLOCK - 1))
			break;
		k++;
	}
	return (k);
}

/* Pages that the guest can do without now. */
static u_long
balloon_spare(void)
{
	u_long floor = (u_long)vm_cnt.v_free_target +
	    balloon_tunables[BALLOON_TUN_RESERVE].pt_value;
	u_long avail = vm_free_count();

	return (avail > floor ? avail - floor : 0);
}

/*
 * Take up to n pages from the system, in blocks as long as there are any.
 * Returns how many.
 */
static u_int
balloon_take(vm_page_t *pages, u_int n)
{
	vm_page_t m;
	u_int i, k = 0;
	bool blocks = true;

	while (k < n) {
		if (blocks && n - k >= PV_BALLOON_BLOCK) {
			m = vm_page_alloc_noobj_contig(BLOCK_REQ,
			    PV_BALLOON_BLOCK, 0, ~(vm_paddr_t)0,
			    ptoa(PV_BALLOON_BLOCK), 0, VM_MEMATTR_DEFAULT);
			blocks = m != NULL;
			for (i = 0; blocks && i < PV_BALLOON_BLOCK; i++)
				pages[k++] = m + i;
			continue;
		}
		m = vm_page_alloc_noobj(PAGE_REQ);
		if (m == NULL)
			break;
		pages[k++] = m;
	}
	return (k);
}

vm_page_t
pv_balloon_block(vm_paddr_t low, vm_paddr_t high)
{
	vm_page_t m = NULL;

	if (balloon_spare() > 2 * PV_BALLOON_BLOCK)
		m = vm_page_alloc_noobj_contig(BLOCK_REQ, PV_BALLOON_BLOCK, low,
		    high, ptoa(PV_BALLOON_BLOCK), 0, VM_MEMATTR_DEFAULT);
	if (m != NULL && balloon_guards())
		atomic_add_long(&balloon_hidden,
		    balloon_protect_run(VM_PAGE_TO_PHYS(m), PV_BALLOON_BLOCK,
		    VM_PROT_NONE));
	return (m);
}

void
pv_balloon_block_free(vm_page_t m)
{
	u_int i;

	if (balloon_guards())
		atomic_subtract_long(&balloon_hidden,
		    balloon_protect_run(VM_PAGE_TO_PHYS(m), PV_BALLOON_BLOCK,
		    VM_PROT_READ | VM_PROT_WRITE));
	for (i = 0; i < PV_BALLOON_BLOCK; i++) {
		vm_page_unwire_noq(m + i);
		vm_page_free(m + i);
	}
}

bool
pv_balloon_is_short(void)
{

	return (vm_free_count() < vm_cnt.v_free_target);
}

/* Up to n more pages.  ENOMEM: the guest has no more to give now. */
static int
balloon_inflate(struct pv_balloon *pb, u_long n)
{
	vm_page_t *pages = pb->pb_batch;
	u_int done = 0, i, k;
	int error;

	n = MIN(n, pb->pb_params.pbp_batch);
	k = balloon_take(pages, ulmin(n, balloon_spare()));
	if (k == 0) {
		pb->pb_stats.pbs_short++;
		return (ENOMEM);
	}
	if (pb->pb_params.pbp_scrub) {
		for (i = 0; i < k; i++)
			pmap_zero_page(pages[i]);
	}
	balloon_hide(pages, k);
	error = pb->pb_ops->pbo_inflate(pb, pages, k, &done);
	if (error == EINPROGRESS) {
		pb->pb_kept = k;
		return (error);
	}
	balloon_hold(pb, pages, done);
	balloon_show(pages + done, k - done);
	balloon_release(pages + done, k - done);
	pb->pb_stats.pbs_batches++;
	pb->pb_stats.pbs_inflated += done;
	pb->pb_stats.pbs_refused += k - done;
	return (error);
}

static void
balloon_poison(vm_page_t *pages, u_int n, uint32_t value)
{
	uint32_t *word;
	u_int i, j;

	for (i = 0; i < n; i++) {
		word = (uint32_t *)pmap_quick_enter_page(pages[i]);
		for (j = 0; j < PAGE_SIZE / sizeof(value); j++)
			word[j] = value;
		pmap_quick_remove_page((vm_offset_t)word);
	}
}

/* Up to n pages less. */
static int
balloon_deflate(struct pv_balloon *pb, u_long n)
{
	vm_page_t *pages = pb->pb_batch;
	u_int done = 0, k;
	int error;

	k = MIN(n, pb->pb_params.pbp_batch);
	if (pb->pb_params.pbp_blocks)
		k = balloon_together(pb, k);
	balloon_unhold(pb, pages, k);
	error = pb->pb_ops->pbo_deflate(pb, pages, k, &done);
	balloon_show(pages, done);
	if (pb->pb_params.pbp_poison != 0)
		balloon_poison(pages, done, pb->pb_params.pbp_poison);
	balloon_release(pages, done);
	balloon_hold(pb, pages + done, k - done);
	pb->pb_stats.pbs_batches++;
	pb->pb_stats.pbs_deflated += done;
	pb->pb_stats.pbs_refused += k - done;
	return (error);
}

/*
 * How many pages the balloon is to have now: the target, or less while the
 * guest needs them.
 */
static u_long
balloon_goal(struct pv_balloon *pb)
{
	u_long avail, goal, want;

	mtx_assert(&pb->pb_mtx, MA_OWNED);
	if (!pb->pb_pressure)
		return (pb->pb_target);
	goal = MIN(pb->pb_target, pb->pb_pressure_goal);
	avail = vm_free_count();
	if (avail < vm_cnt.v_free_target) {
		pb->pb_pressure_end = ticks + PRESSURE_SECONDS * hz;
		want = vm_cnt.v_free_target - avail + pb->pb_pressure_step;
		want = MIN(want, pb->pb_npages);
		if (pb->pb_npages - want < goal) {
			goal = pb->pb_npages - want;
			pb->pb_stats.pbs_oom += want;
			pb->pb_pressure_step = MIN(2 * pb->pb_pressure_step,
			    PRESSURE_MAX);
		}
	} else if (goal == pb->pb_npages && pb->pb_pressure_end - ticks <= 0) {
		pb->pb_pressure = false;
		goal = pb->pb_target;
	}
	pb->pb_pressure_goal = goal;
	return (goal);
}

/*
 * Report to the host, at the end of a change and periodically during a long
 * one.
 */
static void
balloon_report(struct pv_balloon *pb, bool now)
{
	u_long held = pb->pb_npages, old = pb->pb_reported;
	u_long change = held > old ? held - old : old - held;

	if (change == 0 || (!now && change < 16UL * pb->pb_params.pbp_batch))
		return;
	pb->pb_reported = held;
	if (pb->pb_ops->pbo_report != NULL)
		pb->pb_ops->pbo_report(pb, held);
}

/*
 * One step.  Returns 0 if there may be another, EALREADY at rest, or why there
 * can't be.
 */
static int
balloon_step(struct pv_balloon *pb)
{
	u_long goal, held;
	int error = 0;
	bool running;

	if (pb->pb_ops->pbo_poll != NULL)
		error = pb->pb_ops->pbo_poll(pb);
	if (error != 0)
		return (error);
	mtx_lock(&pb->pb_mtx);
	held = pb->pb_npages;
	running = pb->pb_running;
	goal = balloon_goal(pb);
	mtx_unlock(&pb->pb_mtx);
	if (!running || goal == held)
		return (EALREADY);
	error = goal > held ? balloon_inflate(pb, goal - held) :
	    balloon_deflate(pb, held - goal);
	if (error == 0)
		balloon_report(pb, false);
	return (error);
}

/* The ticks to wait after a failure, each time more. */
static int
balloon_backoff(struct pv_balloon *pb, int error)
{
	int max = balloon_tunables[BALLOON_TUN_RETRY_MAX].pt_value * hz;

	pb->pb_delay = MIN(MAX(2 * pb->pb_delay, hz / 10), max);
	if (error != ENOMEM)
		pb->pb_stats.pbs_errors++;
	if (!pb->pb_complained && error == ENOMEM) {
		pb->pb_complained = true;
		device_printf(pb->pb_dev,
		    "%s memory for a balloon of %lu pages now, it has %lu; "
		    "trying again from time to time\n",
		    pb->pb_target > pb->pb_npages ? "no" : "the host has no",
		    pb->pb_target, pb->pb_npages);
	}
	return (pb->pb_delay);
}

static void
balloon_run(void *arg, int pending __unused)
{
	struct pv_balloon *pb = arg;
	int delay = 0, error, idle = 0;

	/* It is stopped soon, and then started again. */
	if (!pb->pb_running || pv_dev_is_needed(&pb->pb_pvdev))
		return;
	while ((error = balloon_step(pb)) == 0)
		pb->pb_delay = 0;
	if (error == EALREADY)
		pb->pb_delay = 0;
	else
		delay = balloon_backoff(pb, error);
	balloon_report(pb, true);
	if (pb->pb_ops->pbo_idle != NULL)
		idle = pb->pb_ops->pbo_idle(pb);
	if (idle != 0 && (delay == 0 || idle < delay))
		delay = idle;
	mtx_lock(&pb->pb_mtx);
	if (pb->pb_pressure)
		delay = MAX(hz / 100, 1);
	if (pb->pb_running && delay != 0)
		taskqueue_enqueue_timeout(pb->pb_tq, &pb->pb_retry, delay);
	mtx_unlock(&pb->pb_mtx);
}

void
pv_balloon_wake(struct pv_balloon *pb)
{

	mtx_lock(&pb->pb_mtx);
	if (pb->pb_running)
		taskqueue_enqueue(pb->pb_tq, &pb->pb_work);
	mtx_unlock(&pb->pb_mtx);
}

void
pv_balloon_set_target(struct pv_balloon *pb, u_long pages)
{

	mtx_lock(&pb->pb_mtx);
	if (pages != pb->pb_target) {
		pb->pb_target = pages;
		pb->pb_stats.pbs_targets++;
		pb->pb_complained = false;
	}
	if (pb->pb_running)
		taskqueue_enqueue(pb->pb_tq, &pb->pb_work);
	mtx_unlock(&pb->pb_mtx);
}

/* The page daemon waits for this, so the worker does the work. */
static void
balloon_lowmem(void *arg, int flags __unused)
{
	struct pv_balloon *pb = arg;

	mtx_lock(&pb->pb_mtx);
	pb->pb_stats.pbs_lowmem++;
	if (pb->pb_running)
		taskqueue_enqueue(pb->pb_tq, &pb->pb_work);
	if (pb->pb_params.pbp_oom && pb->pb_running) {
		if (!pb->pb_pressure) {
			pb->pb_pressure_step = PRESSURE_MIN;
			pb->pb_pressure_goal = pb->pb_npages;
		}
		pb->pb_pressure = true;
		pb->pb_pressure_end = ticks + PRESSURE_SECONDS * hz;
	}
	mtx_unlock(&pb->pb_mtx);
}

/*
 * What pv_dev(9) calls.  The worker's run ends by itself: whoever waits for the
 * device ends that.
 */
static void
balloon_quiesce(void *arg, u_int queue, int error __unused)
{
	struct pv_balloon *pb = arg;

	if (queue != PV_DEV_ALL)
		return;
	mtx_lock(&pb->pb_mtx);
	pb->pb_running = false;
	mtx_unlock(&pb->pb_mtx);
	/*
	 * Cancelled first: taskqueue_free(9) waits forever for a callout that
	 * was only drained.
	 */
	while (taskqueue_cancel_timeout(pb->pb_tq, &pb->pb_retry, NULL) != 0)
		taskqueue_drain_timeout(pb->pb_tq, &pb->pb_retry);
	taskqueue_drain(pb->pb_tq, &pb->pb_work);
}

/* Pages that the device may have taken are used again when it has stopped. */
static int
balloon_stop(void *arg, u_int queue)
{
	struct pv_balloon *pb = arg;
	int error = 0;

	if (queue != PV_DEV_ALL)
		return (EOPNOTSUPP);
	if (pb->pb_ops->pbo_stop != NULL)
		error = pb->pb_ops->pbo_stop(pb);
	if (error != 0)
		return (error);
	balloon_show(pb->pb_batch, pb->pb_kept);
	balloon_release(pb->pb_batch, pb->pb_kept);
	pb->pb_stats.pbs_refused += pb->pb_kept;
	pb->pb_kept = 0;
	return (0);
}

/* pbo_stop has. */
static void
balloon_reclaim(void *arg __unused, u_int queue __unused, int error __unused)
{
}

static int
balloon_restart(void *arg, u_int queue __unused)
{
	struct pv_balloon *pb = arg;

	return (pb->pb_ops->pbo_restart == NULL ? 0 :
	    pb->pb_ops->pbo_restart(pb));
}

static void
balloon_apply(void *arg)
{
	struct pv_balloon *pb = arg;

	if (pb->pb_ops->pbo_apply != NULL)
		pb->pb_ops->pbo_apply(pb);
}

/* After a failure not at once. */
static void
balloon_resume(void *arg, u_int queue __unused)
{
	struct pv_balloon *pb = arg;

	mtx_lock(&pb->pb_mtx);
	pb->pb_running = true;
	if (pb->pb_delay == 0)
		taskqueue_enqueue(pb->pb_tq, &pb->pb_work);
	else
		taskqueue_enqueue_timeout(pb->pb_tq, &pb->pb_retry,
		    pb->pb_delay);
	mtx_unlock(&pb->pb_mtx);
}

static void
balloon_lost(void *arg, bool leaked)
{
	struct pv_balloon *pb = arg;

	if (!leaked)
		return;
	balloon_hold(pb, pb->pb_batch, pb->pb_kept);
	pb->pb_kept = 0;
}

static void (*const balloon_settings[])(void *) = { balloon_apply, NULL };

static const struct pv_dev_ops balloon_dev_ops = {
	.pdo_quiesce = balloon_quiesce,
	.pdo_stop = balloon_stop,
	.pdo_reclaim = balloon_reclaim,
	.pdo_restart = balloon_restart,
	.pdo_resume = balloon_resume,
	.pdo_lost = balloon_lost,
	.pdo_settings = balloon_settings,
};

/* In a context of our own, so that they go before what they read. */
static void
balloon_sysctl(struct pv_balloon *pb)
{
	struct sysctl_ctx_list *ctx = &pb->pb_sysctl;
	struct sysctl_oid_list *top =
	    SYSCTL_CHILDREN(device_get_sysctl_tree(pb->pb_dev));
	const struct pv_balloon_stat *st;

	sysctl_ctx_init(ctx);
	SYSCTL_ADD_ULONG(ctx, top, OID_AUTO,
	    "target", CTLFLAG_RD, &pb->pb_target,
	    "Pages that the host requests to be in the balloon");
	SYSCTL_ADD_ULONG(ctx, top, OID_AUTO, "pages", CTLFLAG_RD,
	    &pb->pb_npages, "Pages in the balloon");
	SYSCTL_ADD_BOOL(ctx, top, OID_AUTO,
	    "pressure", CTLFLAG_RD, &pb->pb_pressure, 0,
	    "The guest needs its memory: the balloon is not inflated");
	SYSCTL_ADD_UINT(ctx, top, OID_AUTO,
	    "batch", CTLFLAG_RD, &pb->pb_params.pbp_batch, 0,
	    "Pages in one request to the host, at most");
	for (st = pv_balloon_stat_table; st < pv_balloon_stat_table +
	    nitems(pv_balloon_stat_table); st++)
		SYSCTL_ADD_U64(ctx, top, OID_AUTO, st->name, CTLFLAG_RD,
		    (uint64_t *)((char *)&pb->pb_stats + st->offset), 0,
		    st->descr);
}

int
pv_balloon_init(struct pv_balloon *pb, device_t dev,
    const struct pv_balloon_ops *ops, const struct pv_balloon_params *params)
{
	int error;

	KASSERT(params->pbp_batch > 0, ("%s: no batch", __func__));
	bzero(pb, sizeof(*pb));
	pb->pb_dev = dev;
	pb->pb_ops = ops;
	pb->pb_params = *params;
	/*
	 * Not "pv_balloon": the taskqueue's own mutex, taken inside this one,
	 * is of that type.
	 */
	mtx_init(&pb->pb_mtx, device_get_nameunit(dev), "pv_balloon state",
	    MTX_DEF);
	TAILQ_INIT(&pb->pb_pages);
	pb->pb_batch = mallocarray(params->pbp_batch, sizeof(*pb->pb_batch),
	    M_PVBALLOON, M_WAITOK);
	pb->pb_tq = taskqueue_create("pv_balloon", M_WAITOK,
	    taskqueue_thread_enqueue, &pb->pb_tq);
	TASK_INIT(&pb->pb_work, 0, balloon_run, pb);
	TIMEOUT_TASK_INIT(pb->pb_tq, &pb->pb_retry, 0, balloon_run, pb);
	error = taskqueue_start_threads(&pb->pb_tq, 1, PVM,
	    "%s", device_get_nameunit(dev));
	if (error == 0)
		error = pv_dev_init(&pb->pb_pvdev, dev, &balloon_dev_ops, pb,
		    params->pbp_nqueues);
	if (error != 0) {
		taskqueue_free(pb->pb_tq);
		free(pb->pb_batch, M_PVBALLOON);
		mtx_destroy(&pb->pb_mtx);
		return (error);
	}
	pb->pb_lowmem_tag = EVENTHANDLER_REGISTER(vm_lowmem, balloon_lowmem, pb,
	    EVENTHANDLER_PRI_FIRST);
	balloon_sysctl(pb);
	return (0);
}

int
pv_balloon_empty(struct pv_balloon *pb)
{
	int error = 0;

	pv_dev_quiesce(&pb->pb_pvdev);
	pv_dev_lock(&pb->pb_pvdev);
	/* Frozen, but not stopped: the device can be used. */
	if (pv_dev_state(&pb->pb_pvdev) == PV_DEV_FROZEN &&
	    !pb->pb_pvdev.pvd_stopped) {
		while (error == 0 && pb->pb_npages > 0 &&
		    !pv_dev_is_needed(&pb->pb_pvdev))
			error = balloon_deflate(pb, pb->pb_npages);
		balloon_report(pb, true);
	}
	pv_dev_unlock(&pb->pb_pvdev);
	return (error);
}

void
pv_balloon_fini(struct pv_balloon *pb, bool reclaim)
{
	vm_page_t m;

	KASSERT(!pb->pb_running, ("%s: the worker runs", __func__));
	sysctl_ctx_free(&pb->pb_sysctl);
	EVENTHANDLER_DEREGISTER(vm_lowmem, pb->pb_lowmem_tag);
	pv_dev_fini(&pb->pb_pvdev);
	taskqueue_free(pb->pb_tq);
	if (!reclaim && pb->pb_npages > 0)
		device_printf(pb->pb_dev, "%lu pages are left with the host\n",
		    pb->pb_npages);
	while (reclaim && pb->pb_npages > 0) {
		balloon_unhold(pb, &m, 1);
		balloon_show(&m, 1);
		balloon_release(&m, 1);
	}
	free(pb->pb_batch, M_PVBALLOON);
	mtx_destroy(&pb->pb_mtx);
}
