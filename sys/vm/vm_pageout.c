/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The page daemon, which handles a shortage of free memory.
 *
 * There are no pages to page out here; what can be given back is what caches hold.  The
 * allocator wakes the daemon when free memory falls below v_free_min, and whenever a request
 * had to fail or wait.  It calls the vm_lowmem event handlers (at most once every
 * vm.lowmem_period seconds) and drains UMA's caches, the per-CPU ones only if that was not
 * enough.  Then it looks again every second for as long as memory stays low.
 *
 * Threads that may sleep for memory do so in vm_wait().  It returns after a second at the
 * latest: a caller may lack contiguity rather than pages, and no free page would wake it then.
 *
 * Locking.  vm_page_free_mtx for vm_pages_needed; vm_pageout_mtx for vm_pageout_wanted.
 * vm_pageout_mtx may be taken with any sleepable mutex but vm_page_free_mtx held.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sysctl.h>
#include <sys/time.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_page.h>
#include <vm/vm_pageout.h>
#include <vm/uma.h>
#include <vm/vm_tree.h>

struct proc *pageproc;
bool vm_pages_needed;

static struct mtx vm_pageout_mtx;
MTX_SYSINIT(vm_pageout, &vm_pageout_mtx, "vm pageout", MTX_DEF);
static bool vm_pageout_running;
static bool vm_pageout_wanted;
static time_t vm_lowmem_last;

static int vm_lowmem_period = 10;
SYSCTL_INT(_vm, OID_AUTO, lowmem_period, CTLFLAG_RWTUN, &vm_lowmem_period, 0,
    "Least number of seconds between two vm_lowmem events");

void
vm_pageout_wakeup(void)
{
	if (!vm_pageout_running)
		return;
	mtx_lock(&vm_pageout_mtx);
	vm_pageout_wanted = true;
	wakeup(&vm_pageout_wanted);
	mtx_unlock(&vm_pageout_mtx);
}

void
vm_pageout_pages_freed(void)
{
	mtx_assert(&vm_page_free_mtx, MA_OWNED);
	if (vm_page_free_count > vm_cnt.v_free_reserved) {
		vm_pages_needed = false;
		wakeup(&vm_pages_needed);
	}
}

/*
 * Sleep until pages were freed, or for a second.
 */
void
vm_wait(vm_object_t obj)
{
	if (!vm_pageout_running)
		panic("out of memory: %u of %u pages free", vm_page_free_count,
		    vm_cnt.v_page_count);
	KASSERT(curproc != pageproc, ("the page daemon waits for itself"));
	vm_pageout_wakeup();
	mtx_lock(&vm_page_free_mtx);
	vm_pages_needed = true;
	msleep(&vm_pages_needed, &vm_page_free_mtx, PVM | PDROP, "vmwait", hz);
}

void
vm_wait_domain(int domain)
{
	vm_wait(NULL);
}

/*
 * Have the caches give back what they can.
 */
static void
vm_pageout_reclaim(void)
{
	if (vm_lowmem_last == 0 || time_uptime - vm_lowmem_last >= vm_lowmem_period) {
		vm_lowmem_last = time_uptime;
		EVENTHANDLER_INVOKE(vm_lowmem, VM_LOW_PAGES);
	}
	uma_reclaim(UMA_RECLAIM_DRAIN);
	if (vm_page_free_count < vm_cnt.v_free_min)
		uma_reclaim(UMA_RECLAIM_DRAIN_CPU);
}

static void
vm_pageout(void)
{
	vm_pageout_running = true;
	for (;;) {
		mtx_lock(&vm_pageout_mtx);
		if (!vm_pageout_wanted)
			msleep(&vm_pageout_wanted, &vm_pageout_mtx, PVM, "psleep",
			    vm_page_free_count < vm_cnt.v_free_min ? hz : 0);
		vm_pageout_wanted = false;
		mtx_unlock(&vm_pageout_mtx);
		VM_CNT_INC(v_pdwakeups);
		vm_pageout_reclaim();
		/* A storm of failing requests must not keep this thread busy all the time. */
		pause("pdwait", MAX(hz / 10, 1));
	}
}

static struct kproc_desc page_kp = {
	"pagedaemon",
	vm_pageout,
	&pageproc
};
SYSINIT(pagedaemon, SI_SUB_KTHREAD_PAGE, SI_ORDER_FIRST, kproc_start, &page_kp);
