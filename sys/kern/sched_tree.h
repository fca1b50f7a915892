/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Declarations that the scheduler, the sleep queues and the locks share, and drivers do not use.
 *
 * One spin lock, sched_lock, is the td_lock of every thread and guards the run queues, the sleep
 * queues and the lists of threads that wait for a lock.  A thread therefore goes to sleep in one
 * step: it queues itself and switches away under the same lock that a waker needs, so that no
 * wake-up can fall in between.
 *
 * Lock order: any sleepable lock, any driver's spin mutex, sched_lock, the callout lock, the
 * event timer's lock.
 *
 * Not FreeBSD's: FreeBSD's schedulers, sleep queues and turnstiles have locks of their own; here
 * is one for all.
 */

#ifndef _KERN_SCHED_TREE_H_
#define	_KERN_SCHED_TREE_H_

#include <sys/cpuset.h>
#include <sys/proc.h>

struct runq;

/* The scheduler's part of a thread, right behind struct thread (td_get_sched()). */
struct td_sched {
	struct runq	*ts_runq;	/* Queue it waits on while TDS_RUNQ. */
	cpuset_t	ts_mask;	/* CPUs it may run on, if TSF_AFFINITY. */
	int		ts_cpu;		/* CPU it is bound to, or NOCPU. */
	int		ts_slice;	/* Ticks left before its equals have their turn. */
	u_int		ts_flags;
	u_int		ts_turn;	/* Older than its equals' if it has waited longer. */
};

#define	TSF_AFFINITY	0x0001		/* ts_mask leaves CPUs out. */

_Static_assert(sizeof(struct td_sched) <=
    sizeof(((struct thread0_storage *)0)->t0st_sched), "thread0 has no room for td_sched");

/* td_flags: the slice is used up, go behind the equals. */
#define	TDF_SLICEEND	TDF_SCHED0

extern struct mtx sched_lock;

#ifdef WITNESS
/* A thread's list of held locks (subr_witness.c). */
void	witness_thread0(void);
void	witness_thread_alloc(struct thread *td);
void	witness_thread_free(struct thread *td);
#endif

#ifdef INVARIANTS
/* A lock that may block is not allowed in critical sections: not in filters or a rendezvous. */
#define	LOCK_MAY_BLOCK(lo, file, line)						\
	KASSERT(curthread->td_critnest == 0 || SCHEDULER_STOPPED(),		\
	    ("acquiring blockable sleep lock with spinlock or critical section "	\
	    "held (%s) %s @ %s:%d", LOCK_CLASS(lo)->lc_name, (lo)->lo_name, file, line))
/* A lock that may sleep is not allowed in threads that must not sleep. */
#define	LOCK_MAY_SLEEP(lo, file, line) do {					\
	LOCK_MAY_BLOCK(lo, file, line);						\
	KASSERT(THREAD_CAN_SLEEP() || SCHEDULER_STOPPED(),			\
	    ("acquiring (%s) %s with sleeping prohibited @ %s:%d",		\
	    LOCK_CLASS(lo)->lc_name, (lo)->lo_name, file, line));		\
} while (0)
/* debug.preempt_seed (kern_switch.c). */
extern u_int preempt_seed;
void	preempt_at_random(void);
#define	PREEMPT_AT_RANDOM() do {						\
	if (__predict_false(preempt_seed != 0))					\
		preempt_at_random();						\
} while (0)
/* Around code that must not sleep, where it is checked. */
#define	NO_SLEEPING_BEGIN()	THREAD_NO_SLEEPING()
#define	NO_SLEEPING_END()	THREAD_SLEEPING_OK()
#else
#define	LOCK_MAY_BLOCK(lo, file, line)	((void)0)
#define	LOCK_MAY_SLEEP(lo, file, line)	((void)0)
#define	PREEMPT_AT_RANDOM()		((void)0)
#define	NO_SLEEPING_BEGIN()		((void)0)
#define	NO_SLEEPING_END()		((void)0)
#endif

/*
 * Threads that wait for a mutex or a reader/writer lock (subr_lockq.c).  Every function is called
 * with sched_lock held.
 */
void	lockq_wait(struct lock_object *lo, struct thread *owner);
void	lockq_wakeup(struct lock_object *lo);

/* The locks behind rwlock(9), sx(9) and rmlock(9) (subr_rwengine.c). */
void	rwe_rlock(struct lock_object *lo, volatile uintptr_t *word);
bool	rwe_try_rlock(volatile uintptr_t *word);
void	rwe_runlock(struct lock_object *lo, volatile uintptr_t *word);
void	rwe_wlock(struct lock_object *lo, volatile uintptr_t *word, uintptr_t tid);
bool	rwe_try_wlock(struct lock_object *lo, volatile uintptr_t *word, uintptr_t tid);
void	rwe_wunlock(struct lock_object *lo, volatile uintptr_t *word, uintptr_t tid);
bool	rwe_try_upgrade(struct lock_object *lo, volatile uintptr_t *word);
void	rwe_downgrade(struct lock_object *lo, volatile uintptr_t *word);
bool	rwe_wowned(const volatile uintptr_t *word);
int	rwe_owner(const volatile uintptr_t *word, struct thread **owner);
void	rwe_assert(const struct lock_object *lo, const volatile uintptr_t *word, int what,
	    const char *file, int line);

/*
 * A thread that waits for work from an interrupt (kern_intr.c, kern_timeout.c) sleeps in
 * TDI_IWAIT: no channel, no queue, and one call wakes it.
 */
void	sched_iwait(struct thread *td);
bool	sched_iwakeup(struct thread *td);

/* Whether this CPU, which runs its idle thread with interrupts off, may wait for one. */
bool	sched_may_halt(void);
/* Waits for one, and returns with interrupts on. */
void	cpu_idle_wait(void);

void	thread_reap(void);

/* A process without threads, on allproc (kern_thread.c); its last thread's end frees it. */
struct proc *kproc_alloc(const char *name);
void	kproc_dealloc(struct proc *p);

#endif /* !_KERN_SCHED_TREE_H_ */
