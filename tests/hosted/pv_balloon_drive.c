/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_balloon, step by step: the test is the system's pages, the host, the worker's thread and the
 * clock.  fuzz_balloon.c does the same in any order.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <sys/malloc.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_page.h>

#include <dev/pv/balloon/pv_balloon.c>
#include <dev/pv/dev/pv_dev.c>

#include "host/host.h"
#include "kpi/kpi.h"

#define	BLOCK		PV_BALLOON_BLOCK
#define	NPAGES		(16 * BLOCK)
#define	FLOOR		(100 + 50)	/* v_free_target and vm.balloon.reserve */
#define	BATCH		64

volatile int ticks;
int hz = 100;
/* A direct map in which each page is at its physical address. */
vm_paddr_t dmaplimit = ~(vm_paddr_t)0;
struct kva_layout_s kva_layout;
struct sysctl_oid sysctl___vm;
struct vmmeter vm_cnt = { .v_free_target = 100 };

/* Whose a page is. */
enum owner { SYSTEM, DRIVER, HOST };

static struct vm_page pages[NPAGES];
static struct {
	enum owner	owner;
	bool		zeroed, hidden;
	u_int		poison;		/* it was written to, so often */
} state[NPAGES];
static u_int nfree, next_page;
static u_int lists;		/* calls of pmap_change_prot(9) */
static bool no_blocks, no_protection;
static u_char memory[PAGE_SIZE];

/* The host. */
static struct {
	struct pv_balloon pb;
	u_int	takes, returns;	/* of a batch, at most */
	int	error;		/* with that */
	bool	answers, stopped;
	int	stop_error, poll_error, idle;
	u_int	ninflates, ndeflates, nreports, napplied, nstops, nstarts;
	u_int	last;		/* pages of the last batch */
	u_long	reported;
} host;

static task_fn_t *worker;
static bool due, reset_due;
static int retry;		/* ticks until the worker tries again; 0: it does not */
static void (*lowmem)(void *, int);

u_int
vm_free_count(void)
{

	return (nfree);
}

static vm_page_t
take(u_int i)
{

	CHECK(state[i].owner == SYSTEM && !state[i].hidden, "page %u is not free", i);
	state[i].owner = DRIVER;
	state[i].zeroed = false;
	nfree--;
	return (&pages[i]);
}

/* Every other page, so that none are neighbours, and what is left after that. */
vm_page_t
vm_page_alloc_noobj(int req)
{
	u_int i, at;

	CHECK((req & VM_ALLOC_WIRED) != 0 && (req & VM_ALLOC_NOWAIT) != 0, "0x%x", req);
	for (i = 0; nfree > 0 && i < 2 * NPAGES; i++) {
		at = (next_page += 2) % (NPAGES + 1);
		if (at < NPAGES && state[at].owner == SYSTEM)
			return (take(at));
	}
	return (NULL);
}

vm_page_t
vm_page_alloc_noobj_contig(int req, u_long n, vm_paddr_t low, vm_paddr_t high, u_long align,
    vm_paddr_t boundary __unused, vm_memattr_t attr __unused)
{
	u_int b, i;

	CHECK((req & VM_ALLOC_NORECLAIM) != 0 && n == BLOCK && align == ptoa(BLOCK), "0x%x", req);
	for (b = 0; !no_blocks && b + n <= NPAGES; b += n) {
		for (i = 0; i < n && state[b + i].owner == SYSTEM; i++)
			continue;
		if (i < n || pages[b].phys_addr < low || pages[b + n - 1].phys_addr >= high)
			continue;
		for (i = 0; i < n; i++)
			(void)take(b + i);
		return (&pages[b]);
	}
	return (NULL);
}

bool
vm_page_unwire_noq(vm_page_t m)
{

	CHECK(state[m - pages].owner == DRIVER, "unwired");
	return (true);
}

void
vm_page_free(vm_page_t m)
{
	u_int i = m - pages;

	CHECK(i < NPAGES && state[i].owner == DRIVER && !state[i].hidden, "page %u is freed", i);
	state[i].owner = SYSTEM;
	nfree++;
}

void
pmap_zero_page(vm_page_t m)
{

	CHECK(state[m - pages].owner == DRIVER, "another's page is zeroed");
	state[m - pages].zeroed = true;
}

int
pmap_change_prot(vm_offset_t va, vm_size_t len, vm_prot_t prot)
{
	u_int i = atop(va) - BLOCK, n = atop(len);

	lists++;
	if (no_protection)
		return (EINVAL);
	CHECK(i + n <= NPAGES, "%u and %u pages", i, n);
	for (; n > 0; n--, i++) {
		CHECK(state[i].hidden == (prot != VM_PROT_NONE), "page %u", i);
		state[i].hidden = prot == VM_PROT_NONE;
	}
	return (0);
}

vm_offset_t
pmap_quick_enter_page(vm_page_t m)
{

	state[m - pages].poison++;
	memset(memory, 0, sizeof(memory));
	return ((vm_offset_t)memory);
}

void
pmap_quick_remove_page(vm_offset_t va)
{
	uint32_t *word = (uint32_t *)va;
	u_int i;

	for (i = 0; i < PAGE_SIZE / sizeof(*word); i++)
		CHECK(word[i] == 0xdeadbeef, "word %u", i);
}

int
sysctl_handle_long(SYSCTL_HANDLER_ARGS)
{

	return (sysctl_handle_64(oidp, arg1, arg2, req));
}

const char *
device_get_nameunit(device_t dev __unused)
{

	return ("balloon0");
}

device_t
device_get_parent(device_t dev __unused)
{

	return (NULL);
}

struct sysctl_oid *
device_get_sysctl_tree(device_t dev __unused)
{
	static struct sysctl_oid tree;

	return (&tree);
}

eventhandler_tag
eventhandler_register(struct eventhandler_list *list __unused, const char *name, void *func,
    void *arg __unused, int pri __unused)
{

	/* pv_dev(9)'s, which has nothing to do here. */
	if (strcmp(name, "device_detach") == 0)
		return (NULL);
	CHECK(strcmp(name, "vm_lowmem") == 0 && lowmem == NULL, "%s", name);
	lowmem = (void (*)(void *, int))func;
	return ((eventhandler_tag)&lowmem);
}

struct eventhandler_list *
eventhandler_find_list(const char *name __unused)
{

	return ((struct eventhandler_list *)&lowmem);
}

void
eventhandler_deregister(struct eventhandler_list *list __unused, eventhandler_tag tag)
{

	if (tag == NULL)
		return;
	CHECK(tag == (eventhandler_tag)&lowmem, "another handler");
	lowmem = NULL;
}

static bool no_worker;		/* of both, there is pv_dev's only */

/* The worker's thread and pv_dev's. */
int
pv_tasks_init(struct pv_tasks *pt __unused)
{

	return (kpi_no_threads ? ENOMEM : 0);
}

void
pv_tasks_free(struct pv_tasks *pt __unused)
{
}

struct taskqueue *
taskqueue_create(const char *name __unused, int flags __unused,
    taskqueue_enqueue_fn enqueue __unused, void *context __unused)
{

	return ((struct taskqueue *)&worker);
}

int
taskqueue_start_threads(struct taskqueue **tq, int n __unused, int pri __unused,
    const char *name __unused, ...)
{

	CHECK(*tq != NULL, "no queue");
	return (kpi_no_threads || no_worker ? ENOMEM : 0);
}

void
taskqueue_free(struct taskqueue *tq __unused)
{

	CHECK(!due && retry == 0, "the worker was not stopped");
}

void
taskqueue_thread_enqueue(void *context __unused)
{
}

int
taskqueue_enqueue(struct taskqueue *tq __unused, struct task *task)
{

	worker = task->ta_func;
	due = true;
	return (0);
}

void
_timeout_task_init(struct taskqueue *tq, struct timeout_task *task, int pri, task_fn_t func,
    void *context)
{

	TASK_INIT(&task->t, pri, func, context);
	task->q = tq;
}

int
taskqueue_enqueue_timeout(struct taskqueue *tq, struct timeout_task *task, int delay)
{

	CHECK(delay > 0, "in %d ticks", delay);
	CHECK(task->q == tq && task->t.ta_func == worker && task->t.ta_context != NULL,
	    "not the worker's, or not initialised");
	retry = delay;
	return (0);
}

int
taskqueue_enqueue_timeout_sbt(struct taskqueue *tq __unused, struct timeout_task *task __unused,
    sbintime_t sbt __unused, sbintime_t pr __unused, int flags __unused)
{

	reset_due = true;
	return (0);
}

int
taskqueue_cancel_timeout(struct taskqueue *tq __unused, struct timeout_task *task __unused,
    u_int *pending __unused)
{

	retry = 0;
	return (0);
}

void
taskqueue_drain_timeout(struct taskqueue *tq __unused, struct timeout_task *task __unused)
{
}

void
taskqueue_drain(struct taskqueue *tq __unused, struct task *task __unused)
{

	due = false;
}

/* The worker runs if it is to; returns after how many ticks it wants to again. */
static int
work(void)
{

	while (due) {
		due = false;
		retry = 0;
		worker(&host.pb, 1);
	}
	return (retry);
}

/* Time passes until it does. */
static int
later(void)
{

	CHECK(retry > 0, "it does not try again");
	ticks += retry;
	retry = 0;
	worker(&host.pb, 1);
	return (work());
}

static int
host_change(vm_page_t *batch, u_int n, u_int most, u_int *done, enum owner from, enum owner to)
{
	u_int i;

	CHECK(n > 0 && n <= host.pb.pb_params.pbp_batch && !host.stopped, "%u pages", n);
	host.last = n;
	most = MIN(n, most);
	/* Who fails at once need not say that it has done nothing. */
	if (most > 0 || host.error == 0)
		*done = most;
	for (i = 0; i < n; i++) {
		CHECK(state[batch[i] - pages].owner == from, "page %td", batch[i] - pages);
		CHECK(to != HOST || !host.pb.pb_params.pbp_scrub || state[batch[i] - pages].zeroed,
		    "page %td is given away with what was in it", batch[i] - pages);
		CHECK(state[batch[i] - pages].hidden == balloon_guards() || no_protection,
		    "page %td is mapped", batch[i] - pages);
		if (i < most)
			state[batch[i] - pages].owner = to;
	}
	return (most < n ? host.error : 0);
}

static int
host_inflate(struct pv_balloon *pb, vm_page_t *batch, u_int n, u_int *done)
{

	host.ninflates++;
	if (!host.answers) {
		pv_dev_need_reset(&pb->pb_pvdev, PV_DEV_ALL, ETIMEDOUT);
		return (EINPROGRESS);
	}
	return (host_change(batch, n, host.takes, done, DRIVER, HOST));
}

static int
host_deflate(struct pv_balloon *pb __unused, vm_page_t *batch, u_int n, u_int *done)
{

	host.ndeflates++;
	return (host_change(batch, n, host.returns, done, HOST, DRIVER));
}

static void
host_report(struct pv_balloon *pb __unused, u_long n)
{

	host.nreports++;
	host.reported = n;
}

static int
host_poll(struct pv_balloon *pb __unused)
{

	return (host.poll_error);
}

static int
host_idle(struct pv_balloon *pb __unused)
{

	return (host.idle);
}

static int
host_stop(struct pv_balloon *pb __unused)
{

	CHECK(!host.stopped, "stopped twice");
	host.nstops++;
	host.stopped = host.stop_error == 0;
	return (host.stop_error);
}

static int
host_restart(struct pv_balloon *pb __unused)
{

	CHECK(host.stopped, "started twice");
	host.nstarts++;
	host.stopped = false;
	return (0);
}

static void
host_apply(struct pv_balloon *pb __unused)
{

	host.napplied++;
}

static const struct pv_balloon_ops ops = {
	.pbo_inflate = host_inflate,
	.pbo_deflate = host_deflate,
	.pbo_report = host_report,
	.pbo_poll = host_poll,
	.pbo_idle = host_idle,
	.pbo_stop = host_stop,
	.pbo_restart = host_restart,
	.pbo_apply = host_apply,
};

/* A balloon of these parameters, which are changed by who calls this before. */
static struct pv_balloon_params params;

static void
balloon_new(void)
{
	u_int i;

	memset(&host, 0, sizeof(host));
	memset(state, 0, sizeof(state));
	memset(&params, 0, sizeof(params));
	balloon_tunables[BALLOON_TUN_GUARD].pt_value = 0;
	balloon_tunables[BALLOON_TUN_RESERVE].pt_value = 50;
	balloon_tunables[BALLOON_TUN_RETRY_MAX].pt_value = 10;
	for (i = 0; i < NPAGES; i++)
		pages[i].phys_addr = ptoa(BLOCK + i);
	nfree = NPAGES;
	next_page = lists = 0;
	no_protection = false;
	no_blocks = true;
	params.pbp_batch = BATCH;
	params.pbp_nqueues = 1;
	host.takes = host.returns = NPAGES;
	host.answers = true;
}

static void
balloon_up(void)
{

	CHECK(pv_balloon_init(&host.pb, kpi_device(), &ops, &params) == 0, "no balloon");
	pv_dev_start(&host.pb.pb_pvdev, true);
	(void)work();
	CHECK(host.napplied == 1, "not applied");
}

static void
balloon_down(void)
{

	CHECK(pv_balloon_empty(&host.pb) == 0 && host.pb.pb_npages == 0, "not empty");
	pv_dev_leave(&host.pb.pb_pvdev);
	pv_balloon_fini(&host.pb, true);
	CHECK(nfree == NPAGES && kpi_mallocs == 0 && kpi_locks == 0 && lowmem == NULL,
	    "%u pages, %d pieces of memory, %d locks", nfree, kpi_mallocs, kpi_locks);
	CHECK(balloon_pages == 0 && balloon_hidden == 0, "%lu and %lu", balloon_pages, balloon_hidden);
}

static void
target(u_long n)
{

	pv_balloon_set_target(&host.pb, n);
	(void)work();
}

/* So many pages are the host's, and the balloon knows. */
static void
host_has(u_int n)
{
	u_int has = 0, i;

	for (i = 0; i < NPAGES; i++) {
		CHECK(state[i].owner != DRIVER, "page %u is lost", i);
		has += state[i].owner == HOST;
	}
	CHECK(has == n && host.pb.pb_npages == n && kpi_sysctl_value("pages") == n &&
	    balloon_pages == n && nfree == NPAGES - n, "%u, %lu, %u free", has, host.pb.pb_npages,
	    nfree);
	CHECK(host.reported == n, "%lu were reported", host.reported);
}

static void
inflated_and_deflated(const void *arg __unused)
{

	balloon_new();
	params.pbp_scrub = true;
	balloon_up();
	target(1000);
	host_has(1000);
	CHECK(host.ninflates == 16 && host.last == 1000 % BATCH && retry == 0, "%u batches",
	    host.ninflates);
	target(1000);
	CHECK(host.ninflates == 16 && kpi_sysctl_value("targets") == 1, "once more");
	target(100);
	host_has(100);
	CHECK(host.ndeflates == 15 && host.last == 900 % BATCH, "%u batches", host.ndeflates);
	CHECK(kpi_sysctl_value("inflated") == 1000 && kpi_sysctl_value("deflated") == 900 &&
	    kpi_sysctl_value("batches") == 31 && kpi_sysctl_value("target") == 100 &&
	    kpi_sysctl_value("refused") == 0 && kpi_sysctl_value("errors") == 0 &&
	    kpi_sysctl_value("short") == 0 && kpi_sysctl_value("batch") == BATCH &&
	    kpi_sysctl_value("targets") == 2 && kpi_sysctl_value("pressure") == 0, "counters");
	balloon_down();
	/* Reports come now and then in a long change. */
	balloon_new();
	params.pbp_batch = 4;
	balloon_up();
	target(4 * 16 * 3 + 2);
	CHECK(host.nreports == 4, "%u reports", host.nreports);
	host_has(4 * 16 * 3 + 2);
	balloon_down();
}

/* What the host does not take is memory again, and is tried later and later. */
static void
refused(const void *arg __unused)
{
	static const int delays[] = { 10, 20, 40, 80, 160, 300, 300 };
	int lines;
	size_t i;

	kpi_quiet = true;
	balloon_new();
	balloon_up();
	balloon_tunables[BALLOON_TUN_RETRY_MAX].pt_value = 3;
	host.takes = 10;
	host.error = EIO;
	target(200);
	for (i = 0; i < nitems(delays); i++) {
		host_has(10 * (i + 1));
		CHECK(retry == delays[i], "%zu: %d ticks", i, retry);
		CHECK(kpi_sysctl_value("refused") == (BATCH - 10) * (i + 1) &&
		    kpi_sysctl_value("errors") == i + 1, "counters");
		(void)later();
	}
	host.takes = NPAGES;
	CHECK(later() == 0, "it goes on trying");
	host_has(200);
	CHECK(host.pb.pb_delay == 0, "later again");
	/* So is what it does not return; a lack of memory is no error, and is said once a target. */
	lines = kpi_lines;
	host.returns = 5;
	host.error = ENOMEM;
	target(0);
	host_has(195);
	CHECK(retry == 10 && kpi_lines == lines + 1 && strstr(kpi_line,
	    "the host has no memory for a balloon of 0 pages") != NULL, "%d, %s", retry, kpi_line);
	(void)later();
	host_has(190);
	CHECK(kpi_lines == lines + 1 && kpi_sysctl_value("errors") == nitems(delays) + 1, "%d lines",
	    kpi_lines - lines);
	host.returns = NPAGES;
	(void)later();
	host_has(0);
	balloon_down();
}

/* The guest keeps what it needs. */
static void
floor_is_kept(const void *arg __unused)
{
	int lines;

	kpi_quiet = true;
	balloon_new();
	balloon_up();
	lines = kpi_lines;
	target(~0UL);
	host_has(NPAGES - FLOOR);
	CHECK(kpi_sysctl_value("short") == 1 && kpi_sysctl_value("errors") == 0 && retry == 10 &&
	    kpi_lines == lines + 1 && strstr(kpi_line, "no memory for a balloon") != NULL, "%s",
	    kpi_line);
	balloon_tunables[BALLOON_TUN_RESERVE].pt_value = 20;
	CHECK(later() == 10, "%d ticks", retry);
	host_has(NPAGES - FLOOR + 30);
	CHECK(kpi_sysctl_value("short") == 2 && kpi_lines == lines + 1, "said again");
	target(10);
	CHECK(retry == 0, "it goes on");
	host_has(10);
	balloon_down();
	/* A system that has no page at once has some later. */
	balloon_new();
	balloon_up();
	nfree = 0;
	target(10);
	CHECK(host.ninflates == 0 && retry == 10, "%u", host.ninflates);
	nfree = NPAGES;
	(void)later();
	host_has(10);
	balloon_down();
}

/* Memory is short: pages come back, more each time, and it is not inflated for half a minute. */
static void
pressure(const void *arg __unused)
{

	kpi_quiet = true;
	balloon_new();
	params.pbp_oom = true;
	balloon_up();
	target(5000);
	nfree = 90;
	CHECK(pv_balloon_is_short(), "not short");
	nfree = 100;
	CHECK(!pv_balloon_is_short(), "short");
	nfree = 90;
	lowmem(&host.pb, 0);
	CHECK(work() == 1, "%d ticks", retry);
	CHECK(kpi_sysctl_value("pressure") == 1 && kpi_sysctl_value("lowmem") == 1 &&
	    host.pb.pb_npages == 5000 - 10 - 1024 && kpi_sysctl_value("oom") == 10 + 1024, "%lu pages",
	    host.pb.pb_npages);
	CHECK(!pv_balloon_is_short(), "short");
	/* That did not last: twice as much. */
	nfree -= 1040;
	(void)later();
	CHECK(host.pb.pb_npages == 3966 - 16 - 2048, "%lu pages", host.pb.pb_npages);
	/* Half a minute without, and it is inflated again. */
	ticks += 30 * hz - 10;
	(void)later();
	CHECK(kpi_sysctl_value("pressure") == 1 && host.pb.pb_npages == 1902, "%lu pages",
	    host.pb.pb_npages);
	nfree = NPAGES - 1902;
	ticks += 10;
	CHECK(later() == 0, "%d ticks", retry);
	CHECK(kpi_sysctl_value("pressure") == 0, "pressure");
	host_has(5000);
	/* The host may set less meanwhile. */
	lowmem(&host.pb, 0);
	(void)work();
	target(100);
	CHECK(host.pb.pb_npages == 100, "%lu pages", host.pb.pb_npages);
	ticks += 31 * hz;
	(void)later();
	host_has(100);
	balloon_down();
	/* Where the host does not let us, nothing comes back. */
	balloon_new();
	balloon_up();
	target(5000);
	nfree = 90;
	lowmem(&host.pb, 0);
	CHECK(work() == 0 && host.pb.pb_npages == 5000 && kpi_sysctl_value("lowmem") == 1 &&
	    kpi_sysctl_value("pressure") == 0, "%lu pages", host.pb.pb_npages);
	nfree = NPAGES - 5000;
	balloon_down();
}

/* Memory stays short: twice as much each time, up to a limit, and never more than there is. */
static void
pressure_that_lasts(const void *arg __unused)
{
	static const struct {
		u_int	nfree, pages, step;
	} table[] = {
		{ 99, 7500 - 1 - 1024, 2048 }, { 100, 6475, 2048 }, { 90, 6475 - 10 - 2048, 4096 },
		{ 99, 4417 - 1 - 4096, 8192 }, { 1000, 320, 8192 }, { 99, 0, 8192 }, { 50, 0, 8192 },
	};
	size_t i;

	kpi_quiet = true;
	balloon_new();
	params.pbp_oom = true;
	balloon_up();
	target(7500);
	for (i = 0; i < nitems(table); i++) {
		nfree = table[i].nfree;
		/* Who is told again is not at the beginning again. */
		lowmem(&host.pb, 0);
		CHECK(work() == 1 && kpi_sysctl_value("lowmem") == i + 1, "%zu: %d ticks", i, retry);
		CHECK(host.pb.pb_npages == table[i].pages && host.pb.pb_pressure_step == table[i].step,
		    "%zu: %lu pages, %lu", i, host.pb.pb_npages, (u_long)host.pb.pb_pressure_step);
		CHECK(kpi_sysctl_value("oom") == 7500 - table[i].pages, "%zu: %ju came back", i,
		    (uintmax_t)kpi_sysctl_value("oom"));
	}
	/* Half a minute, to the tick. */
	nfree = NPAGES;
	CHECK(host.pb.pb_pressure_end - ticks == 30 * hz, "%d ticks", host.pb.pb_pressure_end - ticks);
	ticks += 30 * hz - 2;
	CHECK(later() == 1 && kpi_sysctl_value("pressure") == 1 && host.pb.pb_npages == 0, "too early");
	CHECK(later() == 0 && kpi_sysctl_value("pressure") == 0, "too late");
	host_has(7500);
	balloon_down();
}

/* What the host has is unmapped, neighbours at once. */
static void
guard(const void *arg __unused)
{

	balloon_new();
	params.pbp_batch = BLOCK;
	balloon_tunables[BALLOON_TUN_GUARD].pt_value = 1;
	no_blocks = false;
	balloon_up();
	target(2 * BLOCK);
	host_has(2 * BLOCK);
	CHECK(balloon_hidden == 2 * BLOCK && lists == 2, "%lu are hidden, in %u pieces", balloon_hidden,
	    lists);
	host.takes = 10;
	host.error = EIO;
	no_blocks = true;
	target(2 * BLOCK + 20);
	CHECK(balloon_hidden == 2 * BLOCK + 10, "%lu are hidden", balloon_hidden);
	host_has(2 * BLOCK + 10);
	target(0);
	host_has(0);
	CHECK(balloon_hidden == 0, "%lu are hidden", balloon_hidden);
	/* A system that can't do that has them mapped. */
	no_protection = true;
	host.takes = NPAGES;
	target(10);
	CHECK(balloon_hidden == 0, "%lu are hidden", balloon_hidden);
	target(0);
	/* A system that has no more blocks has pages. */
	host_has(0);
	target(2 * BLOCK);
	host_has(2 * BLOCK);
	target(0);
	host_has(0);
	/* A host that takes none at all has none. */
	host.takes = 0;
	target(10);
	host_has(0);
	host.takes = NPAGES;
	target(0);
	balloon_down();
}

/* Blocks of 2 MB as long as there are any, which come back as blocks. */
static void
blocks(const void *arg __unused)
{
	vm_page_t m;

	balloon_new();
	params.pbp_batch = 2 * BLOCK;
	params.pbp_blocks = true;
	no_blocks = false;
	balloon_up();
	target(BLOCK + 10);
	host_has(BLOCK + 10);
	/* The ten first, then the block as a whole. */
	host.ndeflates = 0;
	target(0);
	host_has(0);
	CHECK(host.ndeflates == 2 && host.last == BLOCK, "%u, the last of %u", host.ndeflates,
	    host.last);
	target(2 * BLOCK - 1);
	host_has(2 * BLOCK - 1);
	target(0);
	/* One that is lent for a while. */
	balloon_tunables[BALLOON_TUN_GUARD].pt_value = 1;
	m = pv_balloon_block(0, ~(vm_paddr_t)0);
	CHECK(m != NULL && balloon_hidden == BLOCK, "%lu hidden", balloon_hidden);
	pv_balloon_block_free(m);
	CHECK(balloon_hidden == 0 && nfree == NPAGES, "not free");
	CHECK(pv_balloon_block(0, ptoa(BLOCK)) == NULL && balloon_hidden == 0, "below all memory");
	nfree = FLOOR + 2 * BLOCK;
	CHECK(pv_balloon_block(0, ~(vm_paddr_t)0) == NULL, "the guest needs it");
	nfree++;
	m = pv_balloon_block(0, ~(vm_paddr_t)0);
	CHECK(m != NULL, "the guest does not need it");
	pv_balloon_block_free(m);
	nfree = NPAGES;
	balloon_down();
}

static void
reset(void)
{

	CHECK(reset_due, "no reset is due");
	reset_due = false;
	pv_dev_task(&host.pb.pb_pvdev, 1);
	(void)work();
}

/* Pages for which there is no answer are nobody's until the device has stopped. */
static void
no_answer(const void *arg __unused)
{
	static struct pvq queue;
	u_int i, kept = 0;

	kpi_quiet = true;
	balloon_new();
	balloon_up();
	target(100);
	host.answers = false;
	target(130);
	for (i = 0; i < NPAGES; i++)
		kept += state[i].owner == DRIVER;
	CHECK(kept == 30 && host.pb.pb_kept == 30 && host.ninflates == 3, "%u are kept", kept);
	/* Until then nothing more is asked. */
	target(140);
	CHECK(host.ninflates == 3, "asked again");
	host.answers = true;
	retry = 0;
	reset();
	CHECK(host.nstops == 1 && host.nstarts == 1 && host.napplied == 2 && host.pb.pb_kept == 0 &&
	    kpi_sysctl_value("refused") == 30, "%u stops", host.nstops);
	if (retry != 0)
		(void)later();
	host_has(140);
	balloon_down();
	/* A queue alone is not reset: the device is, and the worker stops meanwhile. */
	balloon_new();
	balloon_up();
	target(10);
	pv_dev_adopt(&host.pb.pb_pvdev, 0, &queue);
	pv_dev_need_reset(&host.pb.pb_pvdev, 0, EIO);
	target(20);
	CHECK(host.pb.pb_npages == 10, "%lu pages", host.pb.pb_npages);
	reset();
	CHECK(host.nstops == 1 && host.nstarts == 1 && host.napplied == 2, "%u stops", host.nstops);
	host_has(20);
	balloon_down();
	/* After a failure it is not tried at once, whoever starts it. */
	balloon_new();
	balloon_up();
	host.takes = 5;
	host.error = EIO;
	target(20);
	CHECK(retry == 10 && host.ninflates == 1, "%d ticks", retry);
	CHECK(pv_dev_freeze(&host.pb.pb_pvdev) == 0 && retry == 0, "it tries again");
	host.takes = NPAGES;
	CHECK(pv_dev_thaw(&host.pb.pb_pvdev) == 0 && !due && retry == 10, "%d ticks", retry);
	(void)later();
	host_has(20);
	balloon_down();
	/* One that does not stop has them for ever. */
	balloon_new();
	balloon_up();
	host.answers = false;
	target(20);
	host.stop_error = ETIMEDOUT;
	retry = 0;
	reset();
	CHECK(host.pb.pb_npages == 20 && host.pb.pb_kept == 0, "%lu pages", host.pb.pb_npages);
	pv_dev_leave(&host.pb.pb_pvdev);
	pv_balloon_fini(&host.pb, false);
	CHECK(strstr(kpi_line, "20 pages are left with the host") != NULL, "%s", kpi_line);
	CHECK(nfree == NPAGES - 20 && kpi_mallocs == 0, "%u pages", nfree);
	balloon_pages = 0;
}

/* Suspended it does nothing; resumed it goes on. */
static void
suspended(const void *arg __unused)
{
	struct pv_balloon_ops few = ops;

	balloon_new();
	balloon_up();
	target(100);
	CHECK(pv_dev_freeze(&host.pb.pb_pvdev) == 0 && host.stopped, "not suspended");
	pv_balloon_set_target(&host.pb, 200);
	pv_balloon_wake(&host.pb);
	lowmem(&host.pb, 0);
	CHECK(!due && host.pb.pb_npages == 100, "it works");
	CHECK(pv_dev_thaw(&host.pb.pb_pvdev) == 0 && host.napplied == 2, "not resumed");
	(void)work();
	host_has(200);
	/* What the host does not return stays, and who empties the balloon learns that. */
	host.returns = 5;
	host.error = EIO;
	CHECK(pv_balloon_empty(&host.pb) == EIO && !host.stopped, "emptied");
	host_has(195);
	host.returns = NPAGES;
	host.error = 0;
	/* Emptied while the device can be used, and then it goes on. */
	CHECK(pv_balloon_empty(&host.pb) == 0, "not emptied");
	host_has(0);
	CHECK(!host.stopped, "stopped");
	CHECK(pv_dev_thaw(&host.pb.pb_pvdev) == 0, "not resumed");
	(void)work();
	host_has(200);
	balloon_down();
	/* A host that needs neither to be stopped nor to be started. */
	balloon_new();
	balloon_up();
	few.pbo_stop = NULL;
	few.pbo_restart = NULL;
	few.pbo_poll = NULL;
	few.pbo_idle = NULL;
	few.pbo_apply = NULL;
	host.pb.pb_ops = &few;
	target(20);
	CHECK(pv_dev_freeze(&host.pb.pb_pvdev) == 0 && pv_dev_thaw(&host.pb.pb_pvdev) == 0,
	    "not resumed");
	target(10);
	host_has(10);
	host.pb.pb_ops = &ops;
	balloon_down();
	/* The host is gone, and its pages are memory again. */
	balloon_new();
	balloon_up();
	target(33);
	CHECK(pv_dev_freeze(&host.pb.pb_pvdev) == 0 && pv_balloon_empty(&host.pb) == 0 &&
	    host.pb.pb_npages == 33, "it was used");
	pv_dev_leave(&host.pb.pb_pvdev);
	for (u_int i = 0; i < NPAGES; i++)
		state[i].owner = state[i].owner == HOST ? DRIVER : state[i].owner;
	pv_balloon_fini(&host.pb, true);
	CHECK(nfree == NPAGES && kpi_mallocs == 0, "%u pages", nfree);
}

/* The protocol's own chores, and pages that are to have a certain contents. */
static void
chores(const void *arg __unused)
{

	kpi_quiet = true;
	balloon_new();
	params.pbp_poison = 0xdeadbeef;
	host.idle = 70;
	balloon_up();
	CHECK(retry == 70, "%d ticks", retry);
	host.poll_error = EIO;
	target(10);
	CHECK(retry == 10 && host.ninflates == 0 && kpi_sysctl_value("errors") == 1, "%d ticks", retry);
	(void)later();
	(void)later();
	(void)later();
	CHECK(retry == 70, "%d ticks", retry);
	host.poll_error = 0;
	host.idle = 0;
	pv_balloon_wake(&host.pb);
	CHECK(work() == 0, "%d ticks", retry);
	host_has(10);
	target(0);
	host_has(0);
	CHECK(state[2].poison == 1 && state[22].poison == 0, "poison");
	balloon_down();
	/* Without a thread there is none. */
	balloon_new();
	kpi_no_threads = true;
	CHECK(pv_balloon_init(&host.pb, kpi_device(), &ops, &params) == ENOMEM && kpi_mallocs == 0 &&
	    kpi_locks == 0, "%d, %d", kpi_mallocs, kpi_locks);
	kpi_no_threads = false;
	no_worker = true;
	CHECK(pv_balloon_init(&host.pb, kpi_device(), &ops, &params) == ENOMEM && kpi_mallocs == 0 &&
	    kpi_locks == 0, "%d, %d", kpi_mallocs, kpi_locks);
	no_worker = false;
	/* A single page is given back as well. */
	balloon_up();
	target(1);
	host_has(1);
	balloon_down();
}

static const struct hosted_test tests[] = {
	{ "inflated_and_deflated", "in batches", inflated_and_deflated, NULL },
	{ "refused", "pages are memory again", refused, NULL },
	{ "floor_is_kept", "for the guest", floor_is_kept, NULL },
	{ "pressure", "takes pages back", pressure, NULL },
	{ "pressure_that_lasts", "takes more", pressure_that_lasts, NULL },
	{ "guard", "unmaps what the host has", guard, NULL },
	{ "blocks", "of 2 MB", blocks, NULL },
	{ "no_answer", "until the device has stopped", no_answer, NULL },
	{ "suspended", "and resumed", suspended, NULL },
	{ "chores", "of the protocol", chores, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
