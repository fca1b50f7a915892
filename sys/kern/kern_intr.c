/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Interrupt events: the handlers of an interrupt, and the threads that run them (ithread(9),
 * swi(9)).
 *
 * An event is a source of interrupts with a list of handlers, in order of priority.  A handler has
 * a filter, called in the interrupt, or a function, called in the event's thread, or both: the
 * filter then returns whether the thread is needed.  The machine's interrupt code calls
 * intr_event_handle(); ie_pre_ithread masks the source while the thread is to run,
 * ie_post_ithread unmasks it, ie_post_filter ends an interrupt that filters handled.
 *
 * The thread is created with the first handler that needs it and ends with the last handler.
 * it_need is set before the thread is woken, and is checked again under sched_lock before it
 * sleeps, so that no interrupt is lost.
 *
 * Removal.  A handler is unlinked under ie_lock.  Then intr_event_barrier() waits for interrupts
 * that may still walk the list, and for the thread to begin a new round, after which it has seen
 * the new list.  The barrier counts those in intr_event_handle() under one of two phases.
 *
 * Locking.  ie_lock of an event: its list of handlers and its thread.  event_lock: the list of
 * events.  The list of handlers is read without a lock.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/cpuset.h>
#include <sys/epoch.h>
#include <sys/interrupt.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <sys/unistd.h>
#include <sys/vmmeter.h>

#include <machine/cpu.h>
#include <machine/stdarg.h>

#include <kern/sched_tree.h>

struct intr_thread {
	struct thread	*it_thread;
	struct intr_event *it_event;
	volatile int	it_need;	/* an interrupt has come since it last began */
	int		it_flags;	/* under ie_lock */
	u_int		it_round;	/* rounds begun, under ie_lock */
	int		it_cpu;		/* bound to, or NOCPU */
};
#define	IT_DEAD		0x01		/* end, when no round is wanted */
#define	IT_WAITED	0x02		/* a thread waits for a round */

static MALLOC_DEFINE(M_ITHREAD, "ithread", "Interrupt Threads");

static struct proc *intrproc;
static TAILQ_HEAD(, intr_event) event_list = TAILQ_HEAD_INITIALIZER(event_list);
static struct mtx event_lock;
MTX_SYSINIT(intr_event_list, &event_lock, "intr event list", MTX_DEF);

static int intr_storm_threshold;
SYSCTL_INT(_hw, OID_AUTO, intr_storm_threshold, CTLFLAG_RWTUN, &intr_storm_threshold, 0,
    "Number of consecutive interrupts before storm protection is enabled (0: never)");

u_char
intr_priority(enum intr_type flags)
{
	switch (flags & (INTR_TYPE_TTY | INTR_TYPE_BIO | INTR_TYPE_NET | INTR_TYPE_CAM |
	    INTR_TYPE_MISC | INTR_TYPE_CLK | INTR_TYPE_AV)) {
	case INTR_TYPE_TTY:
		return (PI_TTY);
	case INTR_TYPE_BIO:
	case INTR_TYPE_CAM:
		return (PI_DISK);
	case INTR_TYPE_NET:
		return (PI_NET);
	case INTR_TYPE_AV:
		return (PI_AV);
	case INTR_TYPE_CLK:
		return (PI_REALTIME);
	case INTR_TYPE_MISC:
		return (PI_DULL);
	default:
		panic("%s: no interrupt type in flags %#x", __func__, flags);
	}
}

/* Mark a handler whose name did not fit by "+", or the last one by "*".  False: no more fit. */
static bool
intr_event_mark(char *full, bool first)
{
	size_t len = strlen(full);

	if (len < MAXCOMLEN) {
		strlcat(full, first ? " +" : "+", MAXCOMLEN + 1);
		return (true);
	}
	full[len - 1] = full[len - 1] == '+' ? '*' : '+';
	return (full[len - 1] == '+');
}

/*
 * The event's full name, which vmstat -i prints: its own and its handlers', as far as they fit.  Of a
 * single handler whose name is too long there is the end, after "-".  ie_lock is held.
 */
static void
intr_event_rename(struct intr_event *ie)
{
	struct intr_handler *ih;
	char *full = ie->ie_fullname;
	u_char prio = PRI_MAX;
	size_t len;
	int fit = 0, missed = 0;

	CTASSERT(sizeof(ie->ie_fullname) == MAXCOMLEN + 1);
	mtx_assert(&ie->ie_lock, MA_OWNED);
	strlcpy(full, ie->ie_name, MAXCOMLEN + 1);
	CK_SLIST_FOREACH(ih, &ie->ie_handlers, ih_next) {
		prio = MIN(prio, ih->ih_pri);
		len = strlen(full);
		if (len + 1 + strlen(ih->ih_name) <= MAXCOMLEN) {
			snprintf(full + len, MAXCOMLEN + 1 - len, " %s", ih->ih_name);
			fit++;
		} else
			missed++;
	}
	ih = CK_SLIST_FIRST(&ie->ie_handlers);
	len = strlen(full);
	if (missed == 1 && fit == 0) {
		snprintf(full + len, MAXCOMLEN + 1 - len, "-%s",
		    ih->ih_name + len + 1 + strlen(ih->ih_name) - MAXCOMLEN);
		missed = 0;
	}
	while (missed > 0 && intr_event_mark(full, fit == 0)) {
		fit = 1;
		missed--;
	}
	if (ie->ie_thread == NULL)
		return;
	strlcpy(ie->ie_thread->it_thread->td_name, ie->ie_fullname,
	    sizeof(ie->ie_thread->it_thread->td_name));
	if (prio == PRI_MAX)
		return;
	thread_lock(ie->ie_thread->it_thread);
	sched_ithread_prio(ie->ie_thread->it_thread, prio);
	thread_unlock(ie->ie_thread->it_thread);
}

int
intr_event_create(struct intr_event **event, void *source, int flags, u_int irq,
    void (*pre_ithread)(void *), void (*post_ithread)(void *), void (*post_filter)(void *),
    int (*assign_cpu)(void *, int), const char *fmt, ...)
{
	struct intr_event *ie;
	va_list ap;

	if ((flags & ~IE_SOFT) != 0)
		return (EINVAL);
	ie = malloc(sizeof(*ie), M_ITHREAD, M_WAITOK | M_ZERO);
	ie->ie_source = source;
	ie->ie_pre_ithread = pre_ithread;
	ie->ie_post_ithread = post_ithread;
	ie->ie_post_filter = post_filter;
	ie->ie_assign_cpu = assign_cpu;
	ie->ie_flags = flags;
	ie->ie_irq = irq;
	ie->ie_cpu = NOCPU;
	CK_SLIST_INIT(&ie->ie_handlers);
	mtx_init(&ie->ie_lock, "intr event", NULL, MTX_DEF);
	va_start(ap, fmt);
	vsnprintf(ie->ie_name, sizeof(ie->ie_name), fmt, ap);
	va_end(ap);
	strlcpy(ie->ie_fullname, ie->ie_name, sizeof(ie->ie_fullname));
	mtx_lock(&event_lock);
	TAILQ_INSERT_TAIL(&event_list, ie, ie_list);
	mtx_unlock(&event_lock);
	if (event != NULL)
		*event = ie;
	return (0);
}

int
intr_event_destroy(struct intr_event *ie)
{
	struct intr_thread *it = ie->ie_thread;

	mtx_lock(&event_lock);
	mtx_lock(&ie->ie_lock);
	if (!CK_SLIST_EMPTY(&ie->ie_handlers)) {
		mtx_unlock(&ie->ie_lock);
		mtx_unlock(&event_lock);
		return (EBUSY);
	}
	TAILQ_REMOVE(&event_list, ie, ie_list);
	mtx_unlock(&event_lock);
	if (it != NULL) {
		it->it_flags |= IT_DEAD;
		sched_iwakeup(it->it_thread);
	}
	while (ie->ie_thread != NULL)
		msleep(it, &ie->ie_lock, 0, "ithd_dth", 0);
	mtx_unlock(&ie->ie_lock);
	mtx_destroy(&ie->ie_lock);
	free(ie, M_ITHREAD);
	return (0);
}

/* Waits until all CPUs that may have seen a handler that was unlinked before have left. */
static void
intr_event_barrier(struct intr_event *ie)
{
	int phase = ie->ie_phase;

	mtx_assert(&ie->ie_lock, MA_OWNED);
	KASSERT(ie->ie_active[!phase] == 0, ("%s: stale interrupt in %s", __func__, ie->ie_name));
	atomic_store_rel_int(&ie->ie_phase, !phase);
	/* Pairs with the atomic addition in intr_event_handle(). */
	atomic_thread_fence_seq_cst();
	while (ie->ie_active[phase] != 0)
		cpu_spinwait();
	atomic_thread_fence_acq();
}

static void
ithread_wake(struct intr_thread *it)
{
	atomic_store_int(&it->it_need, 1);
	sched_iwakeup(it->it_thread);
}

/*
 * Takes ih off the list, and wakes the thread that removes it: as in FreeBSD, this does not wait
 * for the rest of the round, of which post_ithread is a part.
 */
static void
ithread_unlink(struct intr_event *ie, struct intr_handler *ih)
{
	mtx_lock(&ie->ie_lock);
	CK_SLIST_REMOVE(&ie->ie_handlers, ih, intr_handler, ih_next);
	intr_event_barrier(ie);
	ih->ih_flags &= ~IH_DEAD;
	wakeup(ih);
	mtx_unlock(&ie->ie_lock);
}

/* The handlers of a round; returns whether one was removed. */
static bool
ithread_handlers(struct intr_event *ie)
{
	struct intr_handler *ih, *next;
	struct epoch_tracker et;
	bool net, removed = false;

	CK_SLIST_FOREACH_SAFE(ih, &ie->ie_handlers, ih_next, next) {
		if ((ih->ih_flags & IH_DEAD) != 0) {
			ithread_unlink(ie, ih);
			removed = true;
			continue;
		}
		if (ih->ih_handler == NULL || (ih->ih_flags & IH_SUSP) != 0)
			continue;
		if ((ie->ie_flags & IE_SOFT) != 0 || ih->ih_filter != NULL) {
			if (atomic_load_int(&ih->ih_need) == 0)
				continue;
			atomic_store_int(&ih->ih_need, 0);
			atomic_thread_fence_seq_cst();
		}
		net = (ih->ih_flags & IH_NET) != 0;
		if (net)
			NET_EPOCH_ENTER(et);
		if ((ih->ih_flags & IH_MPSAFE) == 0)
			mtx_lock(&Giant);
		ih->ih_handler(ih->ih_argument);
		if ((ih->ih_flags & IH_MPSAFE) == 0)
			mtx_unlock(&Giant);
		if (net)
			NET_EPOCH_EXIT(et);
		WITNESS_WARN(WARN_PANIC, NULL, "interrupt handler %s returns", ih->ih_name);
	}
	return (removed);
}

/* One round: every handler that has to run, or all without a filter of a hardware event. */
static void
ithread_round(struct intr_event *ie)
{
	bool removed __diagused;

	if ((ie->ie_flags & IE_SOFT) == 0)
		NO_SLEEPING_BEGIN();
	removed = ithread_handlers(ie);
	/* A software interrupt may sleep, a device's may not. */
	if ((ie->ie_flags & IE_SOFT) == 0)
		NO_SLEEPING_END();
	if ((ie->ie_flags & IE_SOFT) == 0) {
		if (intr_storm_threshold != 0 && ++ie->ie_count >= intr_storm_threshold) {
			if (ie->ie_warncnt++ == 0)
				printf("interrupt storm detected on \"%s\"; throttling "
				    "interrupt source\n", ie->ie_name);
			pause("istorm", 1);
		}
#ifdef INVARIANTS
		/* The thread that removed a handler gets time to free what post_ithread needs. */
		if (removed && ie->ie_post_ithread != NULL)
			pause("ithrm", 1);
#endif
		if (ie->ie_post_ithread != NULL)
			ie->ie_post_ithread(ie->ie_source);
	}
}

static void
ithread_loop(void *arg)
{
	struct intr_thread *it = arg;
	struct intr_event *ie = it->it_event;

	for (;;) {
		while (atomic_load_acq_int(&it->it_need) != 0) {
			/* An interrupt from here on needs another round. */
			atomic_store_int(&it->it_need, 0);
			atomic_thread_fence_seq_cst();
			if (__predict_false((it->it_flags & IT_WAITED) != 0)) {
				mtx_lock(&ie->ie_lock);
				it->it_round++;
				it->it_flags &= ~IT_WAITED;
				wakeup(it);
				mtx_unlock(&ie->ie_lock);
			}
			ithread_round(ie);
		}
		if ((it->it_flags & IT_DEAD) != 0) {
			mtx_lock(&ie->ie_lock);
			ie->ie_thread = NULL;
			wakeup(it);
			mtx_unlock(&ie->ie_lock);
			free(it, M_ITHREAD);
			kthread_exit();
		}
		mtx_lock_spin(&sched_lock);
		if (atomic_load_acq_int(&it->it_need) == 0 && (it->it_flags & IT_DEAD) == 0) {
			ie->ie_count = 0;
			sched_iwait(curthread);
		} else
			mtx_unlock_spin(&sched_lock);
	}
}

/* Binds the event's thread to its CPU, if it has a thread. */
static void
ithread_bind(struct intr_thread *it, int cpu)
{
	struct td_sched *ts = td_get_sched(it->it_thread);

	it->it_cpu = cpu;
	thread_lock(it->it_thread);
	if (cpu == NOCPU)
		ts->ts_flags &= ~TSF_AFFINITY;
	else {
		CPU_SETOF(cpu, &ts->ts_mask);
		ts->ts_flags |= TSF_AFFINITY;
	}
	sched_affinity(it->it_thread);
	thread_unlock(it->it_thread);
}

static int
ithread_create(struct intr_event *ie)
{
	struct intr_thread *it;
	struct thread *td;
	int error;

	it = malloc(sizeof(*it), M_ITHREAD, M_WAITOK | M_ZERO);
	it->it_event = ie;
	it->it_cpu = NOCPU;
	error = kproc_kthread_add(ithread_loop, it, &intrproc, &td, RFSTOPPED, 0, "intr", "%s",
	    ie->ie_name);
	if (error != 0) {
		free(it, M_ITHREAD);
		return (error);
	}
	it->it_thread = td;
	thread_lock(td);
	td->td_pflags |= TDP_ITHREAD;
	sched_class(td, PRI_ITHD);
	TD_SET_IWAIT(td);
	thread_unlock(td);
	ie->ie_thread = it;
	if (ie->ie_cpu != NOCPU)
		ithread_bind(it, ie->ie_cpu);
	return (0);
}

/* Inserts ih by priority, behind its equals. */
static void
intr_handler_insert(struct intr_event *ie, struct intr_handler *ih)
{
	struct intr_handler *prev = NULL, *i;

	CK_SLIST_FOREACH(i, &ie->ie_handlers, ih_next) {
		if (i->ih_pri > ih->ih_pri)
			break;
		prev = i;
	}
	if (prev == NULL)
		CK_SLIST_INSERT_HEAD(&ie->ie_handlers, ih, ih_next);
	else
		CK_SLIST_INSERT_AFTER(prev, ih, ih_next);
}

int
intr_event_add_handler(struct intr_event *ie, const char *name, driver_filter_t filter,
    driver_intr_t handler, void *arg, u_char pri, enum intr_type flags, void **cookiep)
{
	struct intr_handler *ih, *other;
	int error = 0;

	if (ie == NULL || name == NULL || (handler == NULL && filter == NULL))
		return (EINVAL);
	ih = malloc(sizeof(*ih), M_ITHREAD, M_WAITOK | M_ZERO);
	ih->ih_filter = filter;
	ih->ih_handler = handler;
	ih->ih_argument = arg;
	strlcpy(ih->ih_name, name, sizeof(ih->ih_name));
	ih->ih_event = ie;
	ih->ih_pri = pri;
	if ((flags & INTR_EXCL) != 0)
		ih->ih_flags |= IH_EXCLUSIVE;
	if ((flags & INTR_MPSAFE) != 0)
		ih->ih_flags |= IH_MPSAFE;
	if ((flags & INTR_TYPE_NET) != 0)
		ih->ih_flags |= IH_NET;
	mtx_lock(&ie->ie_lock);
	other = CK_SLIST_FIRST(&ie->ie_handlers);
	if (other != NULL && ((ih->ih_flags | other->ih_flags) & IH_EXCLUSIVE) != 0)
		error = EINVAL;
	/* One caller at a time creates the thread, without the lock as it may sleep for memory. */
	while (error == 0 && handler != NULL && ie->ie_thread == NULL) {
		if ((ie->ie_flags & IE_ADDING_THREAD) != 0) {
			msleep(ie, &ie->ie_lock, 0, "ithread", 0);
			continue;
		}
		ie->ie_flags |= IE_ADDING_THREAD;
		mtx_unlock(&ie->ie_lock);
		error = ithread_create(ie);
		mtx_lock(&ie->ie_lock);
		ie->ie_flags &= ~IE_ADDING_THREAD;
		wakeup(ie);
	}
	if (error != 0) {
		mtx_unlock(&ie->ie_lock);
		free(ih, M_ITHREAD);
		return (error);
	}
	intr_handler_insert(ie, ih);
	intr_event_rename(ie);
	mtx_unlock(&ie->ie_lock);
	if (cookiep != NULL)
		*cookiep = ih;
	return (0);
}

/* The handler's name becomes "name:descr", as far as it fits. */
int
intr_event_describe_handler(struct intr_event *ie, void *cookie, const char *descr)
{
	struct intr_handler *ih;
	size_t len;
	char *colon;

	mtx_lock(&ie->ie_lock);
	CK_SLIST_FOREACH(ih, &ie->ie_handlers, ih_next)
		if (ih == cookie)
			break;
	if (ih == NULL) {
		mtx_unlock(&ie->ie_lock);
		return (ENOENT);
	}
	colon = strchr(ih->ih_name, ':');
	len = colon != NULL ? (size_t)(colon - ih->ih_name) : strlen(ih->ih_name);
	if (len + 1 + strlen(descr) + 1 > sizeof(ih->ih_name)) {
		mtx_unlock(&ie->ie_lock);
		return (ENOSPC);
	}
	snprintf(ih->ih_name + len, sizeof(ih->ih_name) - len, ":%s", descr);
	intr_event_rename(ie);
	mtx_unlock(&ie->ie_lock);
	return (0);
}

void *
intr_handler_source(void *cookie)
{
	struct intr_handler *ih = cookie;

	return (ih != NULL ? ih->ih_event->ie_source : NULL);
}

/* Waits until the thread begins a new round; ie_lock is held. */
static void
ithread_drain(struct intr_event *ie)
{
	struct intr_thread *it = ie->ie_thread;
	u_int round;

	KASSERT(it->it_thread != curthread, ("%s removes a handler from itself", ie->ie_name));
	round = it->it_round;
	while (ie->ie_thread == it && it->it_round == round) {
		it->it_flags |= IT_WAITED;
		ithread_wake(it);
		msleep(it, &ie->ie_lock, 0, "ithdrn", 0);
	}
}

int
intr_event_remove_handler(void *cookie)
{
	struct intr_handler *ih = cookie;
	struct intr_event *ie;

	if (ih == NULL)
		return (EINVAL);
	ie = ih->ih_event;
	mtx_lock(&ie->ie_lock);
	if (ie->ie_thread == NULL) {
		CK_SLIST_REMOVE(&ie->ie_handlers, ih, intr_handler, ih_next);
		intr_event_barrier(ie);
	} else {
		KASSERT(ie->ie_thread->it_thread != curthread, ("%s removes a handler from itself",
		    ie->ie_name));
		KASSERT((ih->ih_flags & IH_DEAD) == 0, ("%s: removed twice", ih->ih_name));
		ih->ih_flags |= IH_DEAD;
		ithread_wake(ie->ie_thread);
		while ((ih->ih_flags & IH_DEAD) != 0)
			msleep(ih, &ie->ie_lock, 0, "iev_rmh", 0);
	}
	intr_event_rename(ie);
	mtx_unlock(&ie->ie_lock);
	free(ih, M_ITHREAD);
	return (0);
}

int
intr_event_suspend_handler(void *cookie)
{
	struct intr_handler *ih = cookie;
	struct intr_event *ie;

	if (ih == NULL)
		return (EINVAL);
	ie = ih->ih_event;
	mtx_lock(&ie->ie_lock);
	ih->ih_flags |= IH_SUSP;
	intr_event_barrier(ie);
	if (ie->ie_thread != NULL)
		ithread_drain(ie);
	mtx_unlock(&ie->ie_lock);
	return (0);
}

int
intr_event_resume_handler(void *cookie)
{
	struct intr_handler *ih = cookie;
	struct intr_event *ie;

	if (ih == NULL)
		return (EINVAL);
	ie = ih->ih_event;
	mtx_lock(&ie->ie_lock);
	ih->ih_flags &= ~IH_SUSP;
	mtx_unlock(&ie->ie_lock);
	return (0);
}

/*
 * An interrupt from ie's source.  EINVAL when there is no handler: the caller counts it as stray.
 */
int
intr_event_handle(struct intr_event *ie, struct trapframe *frame)
{
	struct thread *td = curthread;
	struct trapframe *oldframe = td->td_intr_frame;
	struct intr_handler *ih;
	bool filtered = false, thread = false;
	int phase, ret;

	if (__predict_false(ie == NULL || CK_SLIST_EMPTY(&ie->ie_handlers)))
		return (EINVAL);
	td->td_intr_nesting_level++;
	critical_enter();
	td->td_intr_frame = frame;
	phase = ie->ie_phase;
	atomic_add_int(&ie->ie_active[phase], 1);
	CK_SLIST_FOREACH(ih, &ie->ie_handlers, ih_next) {
		if ((ih->ih_flags & IH_SUSP) != 0)
			continue;
		if (ih->ih_filter == NULL) {
			thread = true;
			continue;
		}
		ret = ih->ih_filter(ih->ih_argument == NULL ? (void *)frame : ih->ih_argument);
		KASSERT(ret == FILTER_STRAY || (ret & ~(FILTER_SCHEDULE_THREAD |
		    FILTER_HANDLED)) == 0, ("%s: filter returned %#x", ih->ih_name, ret));
		filtered = filtered || ret == FILTER_HANDLED;
		if ((ret & FILTER_SCHEDULE_THREAD) != 0 && ih->ih_handler != NULL) {
			atomic_store_int(&ih->ih_need, 1);
			thread = true;
		}
	}
	if (thread) {
		if (ie->ie_pre_ithread != NULL)
			ie->ie_pre_ithread(ie->ie_source);
		ithread_wake(ie->ie_thread);
	} else if (ie->ie_post_filter != NULL)
		ie->ie_post_filter(ie->ie_source);
	/* Only now: the barrier also keeps the thread from ending. */
	atomic_add_int(&ie->ie_active[phase], -1);
	td->td_intr_frame = oldframe;
	td->td_intr_nesting_level--;
	critical_exit();
	return (filtered || thread ? 0 : EINVAL);
}

static int
intr_event_set_cpu(struct intr_event *ie, int cpu, bool irq, bool ithread)
{
	int error = 0;

	if (cpu != NOCPU && CPU_ABSENT(cpu))
		return (EINVAL);
	if (irq && ie->ie_assign_cpu == NULL)
		return (EOPNOTSUPP);
	if (irq)
		error = ie->ie_assign_cpu(ie->ie_source, cpu);
	if (error != 0)
		return (error);
	mtx_lock(&ie->ie_lock);
	if (irq)
		ie->ie_cpu = cpu;
	if (ithread && ie->ie_thread != NULL)
		ithread_bind(ie->ie_thread, cpu);
	mtx_unlock(&ie->ie_lock);
	return (0);
}

int
intr_event_bind(struct intr_event *ie, int cpu)
{
	return (intr_event_set_cpu(ie, cpu, true, true));
}

int
intr_event_bind_irqonly(struct intr_event *ie, int cpu)
{
	return (intr_event_set_cpu(ie, cpu, true, false));
}

int
intr_event_bind_ithread(struct intr_event *ie, int cpu)
{
	return (intr_event_set_cpu(ie, cpu, false, true));
}

/*
 * Software interrupts.
 */
int
swi_add(struct intr_event **eventp, const char *name, driver_intr_t handler, void *arg, int pri,
    enum intr_type flags, void **cookiep)
{
	struct intr_event *ie = eventp != NULL ? *eventp : NULL;
	int error;

	if ((flags & INTR_ENTROPY) != 0)
		return (EINVAL);
	if (ie == NULL) {
		error = intr_event_create(&ie, NULL, IE_SOFT, 0, NULL, NULL, NULL, NULL, "swi%d:",
		    pri);
		if (error != 0)
			return (error);
		if (eventp != NULL)
			*eventp = ie;
	} else if ((ie->ie_flags & IE_SOFT) == 0)
		return (EINVAL);
	return (intr_event_add_handler(ie, name, NULL, handler, arg, PI_SWI(pri), flags, cookiep));
}

void
swi_sched(void *cookie, int flags)
{
	struct intr_handler *ih = cookie;

	VM_CNT_INC(v_soft);
	atomic_store_int(&ih->ih_need, 1);
	if ((flags & SWI_DELAY) == 0)
		ithread_wake(ih->ih_event->ie_thread);
}

/* The event stays, for the next swi_add() of the same one. */
int
swi_remove(void *cookie)
{
	return (intr_event_remove_handler(cookie));
}
