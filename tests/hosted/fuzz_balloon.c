/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A fuzz target: a balloon, whose host sets any target at any time, takes and returns as many pages of
 * a batch as it likes, and whose guest runs out of memory meanwhile.
 *
 * Its device may give no answer, not start again, be suspended, or need a reset at any time.  Every
 * page is either the system's or in the balloon, once, or with a device that gave no answer, until that
 * has stopped; the balloon never has more than the target requests nor takes what the guest is to keep;
 * what was reported is what it has; and in the end all pages are the system's again.
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

#include "fuzz_input.h"
#include "host/host.h"
#include "kpi/kpi.h"

#define	FUZZ_PAGES	(PV_BALLOON_BLOCK + 250)
#define	FUZZ_STEPS	24
#define	FUZZ_FLOOR	(100 + 50)	/* v_free_target and vm.balloon.reserve */

volatile int ticks;
int hz = 100;
struct vmmeter vm_cnt = { .v_free_target = 100 };

static struct fuzz_input in;
static struct pv_balloon pb;
static struct pvq queues[2];
static struct vm_page pages[FUZZ_PAGES];
static u_char state[FUZZ_PAGES];
#define	FREE	0	/* in place of the system */
#define	TAKEN	1	/* from it */
#define	HOST	2	/* and given to the host */
#define	LENT	3	/* the same, without an answer */
static u_int nfree, next, guest, reported;
static u_int no_answer;	/* to so many requests */
static u_int refuse_at;	/* with so many pages, there is none to be had */
static bool due, reset_due, started;
static int restart_error;
static task_fn_t *work;
static void (*lowmem)(void *, int);

u_int
vm_free_count(void)
{

	return (nfree - MIN(nfree, guest));
}

static vm_page_t
fuzz_take(u_int i)
{

	CHECK(state[i] == FREE, "page %u twice", i);
	state[i] = TAKEN;
	nfree--;
	return (&pages[i]);
}

vm_page_t
vm_page_alloc_noobj(int req __unused)
{
	u_int i;

	if (nfree == 0 || nfree == refuse_at)
		return (NULL);
	for (i = 0; i < FUZZ_PAGES; i++, next++) {
		next %= FUZZ_PAGES;
		if (state[next] == FREE)
			return (fuzz_take(next));
	}
	return (NULL);
}

vm_page_t
vm_page_alloc_noobj_contig(int req __unused, u_long n, vm_paddr_t low __unused,
    vm_paddr_t high __unused, u_long align __unused, vm_paddr_t boundary __unused,
    vm_memattr_t attr __unused)
{
	u_int b, i;

	for (b = 0; b + n <= FUZZ_PAGES; b += n) {
		for (i = 0; i < n && state[b + i] == FREE; i++)
			continue;
		if (i == n) {
			for (i = 0; i < n; i++)
				(void)fuzz_take(b + i);
			return (&pages[b]);
		}
	}
	return (NULL);
}

bool
vm_page_unwire_noq(vm_page_t m __unused)
{

	return (true);
}

void
vm_page_free(vm_page_t m)
{
	u_int i = m - pages;

	CHECK(i < FUZZ_PAGES && state[i] == TAKEN, "page %u is freed: state %u", i, state[i]);
	state[i] = FREE;
	nfree++;
}

void
pmap_zero_page(vm_page_t m)
{

	CHECK(state[m - pages] == TAKEN, "another's page is zeroed");
}

const char *
device_get_nameunit(device_t dev __unused)
{

	return ("balloon0");
}

struct sysctl_oid *
device_get_sysctl_tree(device_t dev __unused)
{
	static struct sysctl_oid tree;

	return (&tree);
}

int
sysctl_handle_long(SYSCTL_HANDLER_ARGS)
{

	return (ENOTSUP);
}

/* pv_dev's tasks. */
int
pv_tasks_init(struct pv_tasks *pt __unused)
{

	return (0);
}

void
pv_tasks_free(struct pv_tasks *pt __unused)
{
}

struct taskqueue *
taskqueue_create(const char *name __unused, int flags __unused,
    taskqueue_enqueue_fn enqueue __unused, void *context __unused)
{

	return ((struct taskqueue *)&pb);
}

int
taskqueue_start_threads(struct taskqueue **tq __unused, int n __unused, int pri __unused,
    const char *name __unused, ...)
{

	return (0);
}

void
taskqueue_free(struct taskqueue *tq __unused)
{
}

void
taskqueue_thread_enqueue(void *context __unused)
{
}

int
taskqueue_enqueue(struct taskqueue *tq __unused, struct task *task)
{

	work = task->ta_func;
	due = true;
	return (0);
}

void
_timeout_task_init(struct taskqueue *tq __unused, struct timeout_task *task __unused, int pri __unused,
    task_fn_t func __unused, void *context __unused)
{
}

/* pv_dev's. */
int
taskqueue_enqueue_timeout_sbt(struct taskqueue *tq __unused, struct timeout_task *task __unused,
    sbintime_t sbt __unused, sbintime_t pr __unused, int flags __unused)
{

	reset_due = true;
	return (0);
}

void
taskqueue_drain_timeout(struct taskqueue *tq __unused, struct timeout_task *task __unused)
{
}

int
taskqueue_enqueue_timeout(struct taskqueue *tq __unused, struct timeout_task *task __unused, int delay)
{

	CHECK(delay > 0 && delay <= 3600 * hz, "in %d ticks", delay);
	due = true;
	return (0);
}

int
taskqueue_cancel_timeout(struct taskqueue *tq __unused, struct timeout_task *task __unused,
    u_int *pending __unused)
{

	return (0);
}

void
taskqueue_drain(struct taskqueue *tq __unused, struct task *task __unused)
{

	due = false;
}

static int
fuzz_stop(struct pv_balloon *b __unused)
{
	u_int i;

	CHECK(started && !pb.pb_running, "it is stopped while it is used, or twice");
	started = false;
	for (i = 0; i < FUZZ_PAGES; i++) {
		if (state[i] == LENT)
			state[i] = TAKEN;
	}
	return (0);
}

/* Some starts can't succeed now. */
static int
fuzz_restart(struct pv_balloon *b __unused)
{

	CHECK(!started, "it is started twice");
	started = restart_error == 0;
	return (restart_error);
}

eventhandler_tag
eventhandler_register(struct eventhandler_list *list __unused, const char *name __unused, void *func,
    void *arg __unused, int pri __unused)
{

	lowmem = (void (*)(void *, int))func;
	return (NULL);
}

struct eventhandler_list *
eventhandler_find_list(const char *name __unused)
{

	return (NULL);
}

/* The host takes some pages from the front, or returns some. */
static int
fuzz_change(vm_page_t *batch, u_int n, u_int *done, u_char from, u_char to)
{
	uint8_t part = fuzz_byte(&in);
	u_int i;

	CHECK(n > 0 && n <= pb.pb_params.pbp_batch, "%u pages", n);
	for (i = 0; i < n; i++)
		CHECK(state[batch[i] - pages] == from, "page %td: state %u",
		    batch[i] - pages, state[batch[i] - pages]);
	*done = part < 0xc0 ? n : part % n;
	for (i = 0; i < *done; i++)
		state[batch[i] - pages] = to;
	return (*done == n ? 0 : part % 2 == 0 ? EIO : ENOMEM);
}

static int
fuzz_inflate(struct pv_balloon *b __unused, vm_page_t *batch, u_int n, u_int *done)
{
	u_int i;

	CHECK(vm_free_count() + n >= FUZZ_FLOOR, "%u pages of %u", n, vm_free_count());
	CHECK(vm_free_count() >= FUZZ_FLOOR, "%u pages are left", vm_free_count());
	CHECK(pb.pb_npages + n <= pb.pb_target, "%lu and %u pages for %lu", pb.pb_npages, n,
	    pb.pb_target);
	CHECK(started, "it is not started");
	if (no_answer != 0) {
		no_answer--;
		for (i = 0; i < n; i++)
			state[batch[i] - pages] = LENT;
		*done = 0;
		pv_dev_need_reset(&pb.pb_pvdev, PV_DEV_ALL, ETIMEDOUT);
		return (EINPROGRESS);
	}
	return (fuzz_change(batch, n, done, TAKEN, HOST));
}

static int
fuzz_deflate(struct pv_balloon *b __unused, vm_page_t *batch, u_int n, u_int *done)
{

	return (fuzz_change(batch, n, done, HOST, TAKEN));
}

static void
fuzz_report(struct pv_balloon *b __unused, u_long n)
{

	reported = n;
}

static const struct pv_balloon_ops ops = {
	.pbo_inflate = fuzz_inflate,
	.pbo_deflate = fuzz_deflate,
	.pbo_report = fuzz_report,
	.pbo_stop = fuzz_stop,
	.pbo_restart = fuzz_restart,
};

static void
fuzz_check(void)
{
	u_int held = 0, i, lent = 0;

	for (i = 0; i < FUZZ_PAGES; i++) {
		CHECK(state[i] != TAKEN, "page %u is lost", i);
		held += state[i] == HOST;
		lent += state[i] == LENT;
	}
	CHECK(lent == pb.pb_kept, "%u pages without an answer, %u kept", lent, pb.pb_kept);
	CHECK(held == pb.pb_npages && held == reported, "%u pages, %lu on the list, %u reported", held,
	    pb.pb_npages, reported);
	CHECK(held + lent + nfree == FUZZ_PAGES, "%u, %u and %u", held, lent, nfree);
}

/* What happens to its device. */
static void
fuzz_life(u_int what, u_long how)
{

	switch (what % 4) {
	case 0:
		(void)pv_dev_freeze(&pb.pb_pvdev);
		(void)pv_dev_thaw(&pb.pb_pvdev);
		break;
	case 1:
		no_answer = how % 4;
		break;
	case 2:
		restart_error = how % 2 == 0 ? 0 : ENOMEM;
		break;
	case 3:
		pv_dev_need_reset(&pb.pb_pvdev, how % 2 == 0 ? 0 : PV_DEV_ALL, EIO);
		break;
	}
}

static void
fuzz_step(void)
{
	uint8_t what = fuzz_byte(&in);
	u_long target = fuzz_word(&in);

	switch (what % 8) {
	case 0:
	case 1:
		pv_balloon_set_target(&pb, target % (FUZZ_PAGES + 100));
		break;
	case 2:
		pv_balloon_set_target(&pb, what < 0x80 ? ~0UL - target : target << 16);
		break;
	case 3:
		guest = target % FUZZ_PAGES;
		refuse_at = what * 4;
		break;
	case 4:
		lowmem(&pb, 0);
		break;
	case 5:
		ticks += target;
		break;
	case 6:
		fuzz_life(what >> 3, target);
		break;
	case 7:
		pv_balloon_wake(&pb);
		break;
	}
	if (reset_due && (target & 1) == 0) {
		reset_due = false;
		pv_dev_task(&pb.pb_pvdev, 1);
		fuzz_check();
	}
	if (due) {
		due = false;
		work(&pb, 1);
		fuzz_check();
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const u_int batches[] = { 1, 16, 256, PV_BALLOON_BLOCK, 2 * PV_BALLOON_BLOCK };
	struct pv_balloon_params params = { 0 };
	uint8_t options;
	u_int i;

	in = (struct fuzz_input){ data, size };
	options = fuzz_byte(&in);
	kpi_quiet = true;
	balloon_tunables[BALLOON_TUN_GUARD].pt_value = 0;
	balloon_tunables[BALLOON_TUN_RESERVE].pt_value = 50;
	memset(state, 0, sizeof(state));
	for (i = 0; i < FUZZ_PAGES; i++)
		pages[i].phys_addr = ptoa(PV_BALLOON_BLOCK + i);
	nfree = FUZZ_PAGES;
	next = guest = reported = refuse_at = ticks = 0;
	due = reset_due = false;
	started = true;
	no_answer = restart_error = 0;
	params.pbp_nqueues = nitems(queues);
	params.pbp_batch = batches[options % nitems(batches)];
	params.pbp_scrub = (options & 0x20) != 0;
	params.pbp_blocks = (options & 0x40) != 0;
	params.pbp_oom = (options & 0x80) != 0;
	CHECK(pv_balloon_init(&pb, kpi_device(), &ops, &params) == 0, "init");
	for (i = 0; i < nitems(queues); i++)
		pv_dev_adopt(&pb.pb_pvdev, i, &queues[i]);
	pv_dev_start(&pb.pb_pvdev, true);
	for (i = 0; i < FUZZ_STEPS && in.fi_left > 0; i++)
		fuzz_step();
	in.fi_left = 0;
	restart_error = no_answer = 0;
	/* Whatever is due, or waits for its next attempt. */
	pv_dev_task(&pb.pb_pvdev, 1);
	pv_dev_task(&pb.pb_pvdev, 1);
	CHECK(pv_dev_is_live(&pb.pb_pvdev) && pb.pb_kept == 0, "state %u, %u pages are kept",
	    pv_dev_state(&pb.pb_pvdev), pb.pb_kept);
	CHECK(pv_balloon_empty(&pb) == 0 && pb.pb_npages == 0, "empty");
	fuzz_check();
	pv_dev_leave(&pb.pb_pvdev);
	pv_balloon_fini(&pb, true);
	CHECK(nfree == FUZZ_PAGES && kpi_mallocs == 0, "%u pages, %d pieces of memory", nfree,
	    kpi_mallocs);
	return (0);
}
