/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Threads and processes: allocation, lists, and the disposal of ended threads.
 *
 * There is no user space.  A process is a name under which kernel threads are listed; proc0 has
 * those that were created without a process.
 *
 * End of a thread.  It can not free the stack it runs on.  thread_exit() records it as its CPU's
 * dead thread; the next thread on that CPU, still under sched_lock, moves it to the list of
 * zombies and wakes the reaper, which frees the stack, the thread, and the process after its last
 * thread.  Threads are type-stable (UMA_ZONE_NOFREE): a thread that spins on a mutex may read an
 * owner that has just ended.
 *
 * Locking.  allproc_lock: the list of processes.  A process's p_mtx: its list of threads.
 * sched_lock: the zombies.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/cpuset.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/sleepqueue.h>
#include <sys/smp.h>
#include <sys/sx.h>

#include <vm/vm.h>
#include <vm/vm_extern.h>
#include <vm/uma.h>

#include <kern/sched_tree.h>

static MALLOC_DEFINE(M_PROC, "proc", "process structures");

struct proclist allproc = LIST_HEAD_INITIALIZER(allproc);
struct sx allproc_lock;
SX_SYSINIT(allproc, &allproc_lock, "allproc");
int nprocs = 1;

static uma_zone_t thread_zone;
static volatile u_int next_tid = THREAD0_TID + 1;
static struct thread *zombies;
static struct thread *reaper;

void
threadinit(void)
{
	thread_zone = uma_zcreate("THREAD", sched_sizeof_thread(), NULL, NULL, NULL, NULL, 32 - 1,
	    UMA_ZONE_NOFREE);
}

void
proc_linkup(struct proc *p, struct thread *td)
{
	TAILQ_INIT(&p->p_threads);
	p->p_numthreads = 0;
	thread_link(td, p);
}

void
proc_linkup0(struct proc *p, struct thread *td)
{
	proc_linkup(p, td);
}

/* p's lock is held, or p is not yet known to others. */
void
thread_link(struct thread *td, struct proc *p)
{
	td->td_proc = p;
	TAILQ_INSERT_TAIL(&p->p_threads, td, td_plist);
	p->p_numthreads++;
}

void
thread_unlink(struct thread *td)
{
	struct proc *p = td->td_proc;

	PROC_LOCK_ASSERT(p, MA_OWNED);
	TAILQ_REMOVE(&p->p_threads, td, td_plist);
	p->p_numthreads--;
}

/* A thread with a kernel stack of so many pages (0: the usual), or NULL. */
struct thread *
thread_alloc(int pages)
{
	struct thread *td;

	td = uma_zalloc(thread_zone, M_WAITOK);
	memset(td, 0, sched_sizeof_thread());
	if (vm_thread_new(td, pages) == 0) {
		uma_zfree(thread_zone, td);
		return (NULL);
	}
#ifdef WITNESS
	witness_thread_alloc(td);
#endif
	td->td_tid = atomic_fetchadd_int(&next_tid, 1);
	td->td_lock = &sched_lock;
	td->td_oncpu = NOCPU;
	td->td_state = TDS_INACTIVE;
	callout_init(&td->td_slpcallout, 1);
	cpu_thread_alloc(td);
	return (td);
}

void
thread_free(struct thread *td)
{
	callout_drain(&td->td_slpcallout);
	cpu_thread_free(td);
#ifdef WITNESS
	witness_thread_free(td);
#endif
	vm_thread_dispose(td);
	uma_zfree(thread_zone, td);
}

/* Makes the dead thread of this CPU a zombie; sched_lock is held. */
void
thread_stash(struct thread *td)
{
	mtx_assert(&sched_lock, MA_OWNED);
	PCPU_SET(deadthread, NULL);
	td->td_zombie = zombies;
	zombies = td;
	if (reaper != NULL && TD_AWAITING_INTR(reaper)) {
		TD_CLR_IWAIT(reaper);
		sched_wakeup(reaper, SRQ_HOLDTD);
	}
}

void
kproc_dealloc(struct proc *p)
{
	sx_xlock(&allproc_lock);
	LIST_REMOVE(p, p_list);
	nprocs--;
	sx_xunlock(&allproc_lock);
	mtx_destroy(&p->p_mtx);
	free(p, M_PROC);
}

static void
thread_bury(struct thread *td)
{
	struct proc *p = td->td_proc;
	bool last;

	thread_free(td);
	PROC_LOCK(p);
	last = p->p_exitthreads == 1 && p->p_numthreads == 0 && p != &proc0;
	p->p_exitthreads--;
	PROC_UNLOCK(p);
	if (last)
		kproc_dealloc(p);
}

/* Frees the threads that have ended so far. */
void
thread_reap(void)
{
	struct thread *td;

	for (;;) {
		mtx_lock_spin(&sched_lock);
		td = zombies;
		if (td != NULL)
			zombies = td->td_zombie;
		mtx_unlock_spin(&sched_lock);
		if (td == NULL)
			return;
		thread_bury(td);
	}
}

static void
thread_reaper(void *arg __unused)
{
	for (;;) {
		thread_reap();
		mtx_lock_spin(&sched_lock);
		if (zombies == NULL)
			sched_iwait(curthread);
		else
			mtx_unlock_spin(&sched_lock);
	}
}

static void
thread_reaper_start(void *arg __unused)
{
	if (kthread_add(thread_reaper, NULL, NULL, &reaper, 0, 0, "reaper") != 0)
		panic("no reaper thread");
}
SYSINIT(reaper, SI_SUB_KTHREAD_INIT, SI_ORDER_FIRST, thread_reaper_start, NULL);

/* Waits until the stacks of the threads that have ended are free. */
void
thread_reap_barrier(void)
{
	thread_reap();
}

/* Ends the current thread, which was removed from its process's list; see kthread_exit(9). */
void
thread_exit(void)
{
	struct thread *td = curthread;
	uint64_t now;

	KASSERT(td->td_locks == 0, ("%s ends with %d locks held", td->td_name, td->td_locks));
	cpu_thread_exit(td);
	mtx_lock_spin(&sched_lock);
	now = cpu_ticks();
	td->td_runtime += now - PCPU_GET(switchtime);
	PCPU_SET(switchtime, now);
	TD_SET_STATE(td, TDS_INACTIVE);
	PCPU_SET(deadthread, td);
	sched_throw(td);
	__unreachable();
}

static pid_t
proc_newpid(void)
{
	static volatile u_int lastpid_used;

	return (atomic_fetchadd_int(&lastpid_used, 1) + 1);
}

/* A new process without threads, on the list. */
struct proc *
kproc_alloc(const char *name)
{
	struct proc *p;

	p = malloc(sizeof(*p), M_PROC, M_WAITOK | M_ZERO);
	mtx_init(&p->p_mtx, "process lock", NULL, MTX_DEF | MTX_DUPOK | MTX_NEW);
	TAILQ_INIT(&p->p_threads);
	p->p_pid = proc_newpid();
	p->p_flag = P_SYSTEM | P_KPROC | P_INMEM;
	p->p_state = PRS_NORMAL;
	strlcpy(p->p_comm, name, sizeof(p->p_comm));
	sx_xlock(&allproc_lock);
	LIST_INSERT_HEAD(&allproc, p, p_list);
	nprocs++;
	sx_xunlock(&allproc_lock);
	return (p);
}

/* The thread of that number, its process locked; or NULL. */
struct thread *
tdfind(lwpid_t tid, pid_t pid)
{
	struct proc *p;
	struct thread *td;

	sx_slock(&allproc_lock);
	FOREACH_PROC_IN_SYSTEM(p) {
		if (pid != -1 && p->p_pid != pid)
			continue;
		PROC_LOCK(p);
		FOREACH_THREAD_IN_PROC(p, td)
			if (td->td_tid == tid) {
				sx_sunlock(&allproc_lock);
				return (td);
			}
		PROC_UNLOCK(p);
	}
	sx_sunlock(&allproc_lock);
	return (NULL);
}

/* Lets the thread of that number run on the CPUs of mask only. */
int
cpuset_setthread(lwpid_t id, cpuset_t *mask)
{
	struct td_sched *ts;
	struct thread *td;
	cpuset_t set;

	CPU_AND(&set, mask, &all_cpus);
	if (CPU_EMPTY(&set))
		return (EINVAL);
	td = id == -1 || id == curthread->td_tid ? curthread : tdfind(id, -1);
	if (td == NULL)
		return (ESRCH);
	thread_lock(td);
	ts = td_get_sched(td);
	ts->ts_mask = set;
	if (CPU_CMP(&set, &all_cpus) == 0)
		ts->ts_flags &= ~TSF_AFFINITY;
	else
		ts->ts_flags |= TSF_AFFINITY;
	sched_affinity(td);
	thread_unlock(td);
	if (td != curthread)
		PROC_UNLOCK(td->td_proc);
	return (0);
}

/* The same for one CPU, or for all with NOCPU. */
int
cpuset_setithread(lwpid_t id, int cpu)
{
	cpuset_t mask;

	if (cpu == NOCPU)
		CPU_COPY(&all_cpus, &mask);
	else
		CPU_SETOF(cpu, &mask);
	return (cpuset_setthread(id, &mask));
}
