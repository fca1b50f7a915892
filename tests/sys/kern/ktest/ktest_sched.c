/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * kthread(9), scheduling, critical sections, rendezvous of CPUs, software interrupts.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/interrupt.h>
#include <sys/kernel.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/unistd.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_extern.h>
#include <vm/vm_param.h>
#include <vm/vm_kern.h>
#include <vm/uma.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/frame.h>
#include <machine/segments.h>

#include "ktest.h"

struct stage {
	struct mtx	mtx;
	volatile u_int	count;
	volatile u_int	step;
	volatile bool	stop;
	volatile bool	asleep;
	volatile u_int	laps[KT_MAXTHREADS];
	volatile u_int	seen[3][MAXCPU];
	u_int		id;
	char		chan;
};

static void
short_life(void *arg)
{
	struct stage *s = arg;

	atomic_add_int(&s->count, 1);
	if (s->count % 3 == 0)
		pause_sbt("ktest", SBT_1US, 0, 0);
	kthread_exit();
}

static void
short_lives(struct stage *s, u_int n)
{
	u_int i, before = s->count, started = 0;
	int threads = proc0.p_numthreads;

	for (i = 0; i < n; i++) {
		if (KT_EQ(kthread_add(short_life, s, NULL, NULL, 0, 0, "ktest life %u", i), 0))
			started++;
		if (i % 32 == 31)
			KT_WAIT(s->count == before + started);
	}
	KT_WAIT(s->count == before + started);
	/* A thread that has counted itself has not ended yet. */
	KT_WAIT(proc0.p_numthreads <= threads);
	pause("ktest", hz / 20);
}

/* 2,000 threads with a stack each; what they leave behind is less than 100 of them would. */
static void
kthread_memory_returns(void)
{
	struct stage s = { .count = 0 };
	int before, threads;

	short_lives(&s, 200);
	uma_reclaim(UMA_RECLAIM_DRAIN_CPU);
	before = vm_free_count();
	threads = proc0.p_numthreads;
	short_lives(&s, 2000 * ktest_rounds);
	KT_TRUE(proc0.p_numthreads <= threads);
	uma_reclaim(UMA_RECLAIM_DRAIN_CPU);
	KT_LESS(before - (int)vm_free_count(), 400);
}

static void
suspended_life(void *arg)
{
	struct stage *s = arg;

	while (!s->stop) {
		kthread_suspend_check();
		s->count++;
		pause("ktest", 1);
	}
	s->asleep = true;
	kthread_exit();
}

static void
kthread_suspends(void)
{
	struct stage s = { .count = 0 };
	struct thread *td;
	u_int count;

	KT_EQ(kthread_add(suspended_life, &s, NULL, &td, RFSTOPPED, 0, "ktest susp"), 0);
	pause("ktest", 2);
	KT_EQ(s.count, 0);
	KT_STREQ(td->td_name, "ktest susp");
	thread_lock(td);
	sched_add(td, SRQ_BORING);
	KT_WAIT(s.count > 1);
	KT_EQ(kthread_suspend(td, 30 * hz), 0);
	count = s.count;
	pause("ktest", hz / 20);
	KT_EQ(s.count, count);
	KT_EQ(kthread_resume(td), 0);
	KT_WAIT(s.count > count);
	s.stop = true;
	KT_WAIT(s.asleep);
	pause("ktest", 2);
}

static void
kproc_member(void *arg)
{
	struct stage *s = arg;

	KT_TRUE(curproc != &proc0);
	atomic_add_int(&s->count, 1);
	KT_WAIT(s->stop);
	kproc_exit(0);
}

static void
kproc_has_threads(void)
{
	struct stage s = { .count = 0 };
	struct proc *p = NULL;
	struct thread *td[2];

	KT_EQ(kproc_kthread_add(kproc_member, &s, &p, &td[0], 0, 0, "ktproc", "ktproc 0"), 0);
	KT_EQ(kproc_kthread_add(kproc_member, &s, &p, &td[1], 0, 0, "ktproc", "ktproc 1"), 0);
	KT_TRUE(p != NULL && td[0]->td_proc == p && td[1]->td_proc == p);
	KT_WAIT(s.count == 2);
	KT_EQ(p->p_numthreads, 2);
	KT_STREQ(p->p_comm, "ktproc");
	/* The end of the last thread wakes who sleeps on the process. */
	PROC_LOCK(p);
	s.stop = true;
	KT_EQ(mtx_sleep(p, &p->p_mtx, PDROP, "ktproc", 30 * hz), 0);
	pause("ktest", 2);
}

/* Sleeps until it is woken, and says so at once. */
static void
important(void *arg, int me)
{
	struct stage *s = arg;

	mtx_lock_spin(&s->mtx);
	while (!s->stop) {
		s->asleep = true;
		msleep_spin(&s->chan, &s->mtx, "ktimp", 0);
		s->count++;
	}
	mtx_unlock_spin(&s->mtx);
}

/* On the same CPU, of lower priority: each wake-up has to cost it the CPU, there and then. */
static void
unimportant(void *arg, int me)
{
	struct stage *s = arg;
	u_int i;

	for (i = 0; i < 500u * ktest_rounds; i++) {
		KT_WAIT(s->asleep);
		s->asleep = false;
		wakeup(&s->chan);
		KT_EQ(s->count, 2 * i + 1);
		KT_WAIT(s->asleep);
		s->asleep = false;
		critical_enter();
		wakeup(&s->chan);
		KT_EQ(s->count, 2 * i + 1);
		critical_enter();
		critical_exit();
		KT_EQ(s->count, 2 * i + 1);
		critical_exit();
		KT_EQ(s->count, 2 * i + 2);
	}
	s->stop = true;
	KT_WAIT(s->asleep);
	wakeup(&s->chan);
}

static void
sched_preempts_at_once(void)
{
	struct ktest_thread *high, *low;
	struct stage s = { .count = 0 };

	mtx_init(&s.mtx, "ktest stage", NULL, MTX_SPIN);
	high = ktest_spawn(important, &s, 0, ktest_last_cpu(), PI_SOFT);
	KT_WAIT(s.asleep);
	low = ktest_spawn(unimportant, &s, 1, ktest_last_cpu(), PRI_MIN_TIMESHARE + 10);
	ktest_join(low);
	ktest_join(high);
	mtx_destroy(&s.mtx);
}

/* A timer interrupt, too, must bring the important thread to its CPU. */
static void
busy(void *arg, int me)
{
	struct stage *s = arg;

	while (!s->stop) {
		s->laps[me]++;
		cpu_spinwait();
	}
}

static void
sched_sleeper_preempts_busy_thread(void)
{
	struct ktest_thread *kt[2];
	struct stage s = { .count = 0 };
	struct thread *td = curthread;
	int i;

	for (i = 0; i < 2; i++)
		kt[i] = ktest_spawn(busy, &s, i, 0, 0);
	thread_lock(td);
	sched_bind(td, 0);
	thread_unlock(td);
	/* Of equals, each has the CPU for its time slice. */
	for (i = 0; i < 2; i++)
		pause("ktest", 1);
	KT_WAIT(s.laps[0] > 0 && s.laps[1] > 0);
	thread_lock(td);
	sched_unbind(td);
	thread_unlock(td);
	s.stop = true;
	for (i = 0; i < 2; i++)
		ktest_join(kt[i]);
}

/* Yields all the time, on its CPU; gives up the priority of a new thread first. */
static void
bound_yielder(void *arg, int me)
{
	struct stage *s = arg;
	sbintime_t end = sbinuptime() + 20 * SBT_1S;

	kern_yield(PUSER);
	while (!s->stop && sbinuptime() < end)
		kern_yield(PRI_UNCHANGED);
	KT_TRUE(s->stop);
}

static void
late_stopper(void *arg, int me)
{
	struct stage *s = arg;

	kern_yield(PUSER);
	s->stop = true;
}

/* Of equals, those that may run on any CPU have their turn as well as those bound to each. */
static void
sched_bound_threads_do_not_starve_equals(void)
{
	struct ktest_thread *kt[MAXCPU], *stopper;
	struct stage s = { .count = 0 };
	int i;

	for (i = 0; i < mp_ncpus; i++)
		kt[i] = ktest_spawn(bound_yielder, &s, i, i, 0);
	stopper = ktest_spawn(late_stopper, &s, i, KT_ANYCPU, 0);
	for (i = 0; i < mp_ncpus; i++)
		ktest_join(kt[i]);
	ktest_join(stopper);
}

static void
binder(void *arg, int me)
{
	struct thread *td = curthread;
	u_int i;
	int cpu;

	for (i = 0; i < 150u * ktest_rounds; i++) {
		cpu = (i + me) % mp_ncpus;
		thread_lock(td);
		sched_bind(td, cpu);
		thread_unlock(td);
		KT_EQ(curcpu, cpu);
		KT_EQ(sched_is_bound(td), 1);
		if (i % 8 == 0)
			pause_sbt("ktest", SBT_1US, 0, 0);
		else
			kern_yield(PRI_UNCHANGED);
		KT_EQ(curcpu, cpu);
		thread_lock(td);
		sched_unbind(td);
		thread_unlock(td);
		KT_EQ(sched_is_bound(td), 0);
	}
}

static void
sched_bind_moves(void)
{
	ktest_run(4, false, binder, NULL);
}

static void
pinner(void *arg, int me)
{
	uint32_t seed = 31 + me;
	u_int i;
	int cpu;

	for (i = 0; i < 300u * ktest_rounds; i++) {
		sched_pin();
		cpu = curcpu;
		sched_pin();
		if (ktest_random(&seed) % 4 == 0)
			pause_sbt("ktest", SBT_1US * 20, 0, 0);
		else
			kern_yield(PRI_UNCHANGED);
		sched_unpin();
		KT_EQ(curcpu, cpu);
		kern_yield(PRI_UNCHANGED);
		KT_EQ(curcpu, cpu);
		sched_unpin();
		kern_yield(PRI_UNCHANGED);
	}
}

static void
sched_pin_stays(void)
{
	ktest_run(6, false, pinner, NULL);
}

/* Each per-CPU counter is touched by one thread at a time, if critical sections are ones. */
static void
critical_counter(void *arg, int me)
{
	struct stage *s = arg;
	u_int i, v;
	int cpu;

	for (i = 0; i < 5000u * ktest_rounds; i++) {
		critical_enter();
		cpu = curcpu;
		v = s->seen[0][cpu];
		if (i % 100 == 0)
			DELAY(50);
		KT_EQ(curcpu, cpu);
		s->seen[0][cpu] = v + 1;
		critical_exit();
	}
}

static void
sched_critical_section_is_not_preempted(void)
{
	struct stage *s;
	u_int total = 0;
	int cpu;

	s = malloc(sizeof(*s), M_KTEST, M_WAITOK | M_ZERO);
	ktest_run(6, false, critical_counter, s);
	CPU_FOREACH(cpu)
		total += s->seen[0][cpu];
	KT_EQ(total, 6 * 5000 * ktest_rounds);
	free(s, M_KTEST);
}

/* Rendezvous: each function once a CPU, none before the one ahead ended everywhere. */
static void
meet(struct stage *s, int phase)
{
	int cpu;

	KT_TRUE(curthread->td_critnest > 0);
	s->seen[phase][curcpu]++;
	if (phase > 0)
		CPU_FOREACH(cpu)
			KT_EQ(s->seen[phase - 1][cpu], s->id);
	atomic_add_int(&s->count, 1);
}

static void meet_setup(void *arg) { meet(arg, 0); }
static void meet_action(void *arg) { meet(arg, 1); }
static void meet_teardown(void *arg) { meet(arg, 2); }

static void
meet_one(void *arg)
{
	struct stage *s = arg;

	atomic_add_int(&s->seen[0][curcpu], 1);
}

static void
meet_caller(void *arg, int me)
{
	struct stage *s = ((struct stage **)arg)[me];
	cpuset_t set;
	void *mem;
	u_int i;

	for (i = 1; i <= 8u * ktest_rounds; i++) {
		s->id = i;
		smp_rendezvous(meet_setup, meet_action, meet_teardown, s);
		KT_EQ(s->count, i * 3 * mp_ncpus);
		/* Unmapping makes the CPUs meet as well, in its own way. */
		mem = (void *)kmem_malloc(3 * PAGE_SIZE, M_WAITOK);
		ktest_fill(mem, 3 * PAGE_SIZE, i);
		kmem_free(mem, 3 * PAGE_SIZE);
	}
	memset(__DEVOLATILE(void *, s->seen), 0, sizeof(s->seen));
	CPU_SETOF(ktest_last_cpu(), &set);
	smp_rendezvous_cpus(set, smp_no_rendezvous_barrier, meet_one, smp_no_rendezvous_barrier, s);
	KT_EQ(s->seen[0][ktest_last_cpu()], 1);
	if (mp_ncpus > 1)
		KT_EQ(s->seen[0][0], 0);
}

static void
smp_rendezvous_meets(void)
{
	struct stage *s[3];
	int i;

	for (i = 0; i < 3; i++)
		s[i] = malloc(sizeof(*s[i]), M_KTEST, M_WAITOK | M_ZERO);
	ktest_run(1, false, meet_caller, s);
	for (i = 0; i < 3; i++)
		memset(s[i], 0, sizeof(*s[i]));
	ktest_run(3, true, meet_caller, s);
	for (i = 0; i < 3; i++)
		free(s[i], M_KTEST);
}

extern const char cpu_idle_hlt[];	/* where an idle CPU halts */

/*
 * An interrupt that comes before the halt, though sti puts it off until then, returns behind it.  If it
 * did not, nothing would end that halt, as interrupts are off in this frame.
 */
static void
idle_is_interrupted_early(void)
{
	struct trapframe frame = { .tf_rip = (register_t)cpu_idle_hlt };
	struct trapframe *to = &frame;
	register_t intr;
	uint16_t cs, ss;

	__asm("movw %%cs, %0; movw %%ss, %1" : "=r" (cs), "=r" (ss));
	frame.tf_cs = cs;
	frame.tf_ss = ss;
	intr = intr_disable();
	frame.tf_rflags = read_rflags();
	__asm __volatile(
	    "pushq %%rbp\n\t"
	    "leaq 1f(%%rip), %%rax\n\t"
	    "pushq %%rax\n\t"
	    "movq %%rsp, %c1(%0)\n\t"
	    "movq %0, %%rsp\n\t"
	    "jmp doreti\n"
	    "1:\n\t"
	    "popq %%rbp"
	    : "+D" (to)
	    : "i" (offsetof(struct trapframe, tf_rsp))
	    : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
	    "r15", "cc", "memory");
	intr_restore(intr);
	KT_TRUE(to == NULL);
}

static void
soft_interrupt(void *arg)
{
	struct stage *s = arg;

	KT_TRUE(curthread->td_pflags & TDP_ITHREAD);
	s->count++;
}

static void
swi_filter(void *arg)
{
	struct stage *s = arg;

	KT_TRUE(curthread->td_intr_nesting_level > 0);
	s->step++;
}

static void
swi_runs(void)
{
	struct intr_event *ie = NULL;
	struct stage s = { .count = 0 };
	struct callout c;
	void *cookie;
	u_int i, count;

	KT_EQ(swi_add(&ie, "ktest", soft_interrupt, &s, SWI_NET, INTR_MPSAFE, &cookie), 0);
	for (i = 0; i < 200; i++) {
		count = s.count;
		swi_sched(cookie, 0);
		KT_WAIT(s.count > count);
	}
	count = s.count;
	callout_init(&c, 1);
	callout_reset_sbt(&c, SBT_1MS, 0, swi_filter, &s, C_DIRECT_EXEC);
	KT_WAIT(s.step == 1);
	callout_drain(&c);
	KT_EQ(s.count, count);
	KT_EQ(swi_remove(cookie), 0);
	pause("ktest", 2);
	KT_EQ(s.count, count);
	KT_EQ(intr_event_destroy(ie), 0);
}

static int
never_called(void *arg __unused)
{

	KT_TRUE(false);
	return (FILTER_STRAY);
}

/* The names of threads and in vmstat -i, of MAXCOMLEN letters. */
static void
names_of_interrupts(void)
{
	static const char *const more[] = { "irq7: a:rx0 b0", "irq7: a:rx0 b0 b1", "irq7: a:rx0 b0 b1+",
	    "irq7: a:rx0 b0 b1++", "irq7: a:rx0 b0 b1+*" };
	struct intr_event *ie;
	void *cookies[nitems(more) + 1];
	char name[8];
	size_t i;

	KT_EQ(intr_event_create(&ie, NULL, 0, 0, NULL, NULL, NULL, NULL, "irq264:"), 0);
	KT_EQ(intr_event_add_handler(ie, "vtpci0", never_called, NULL, NULL, 0, INTR_TYPE_MISC,
	    cookies), 0);
	KT_STREQ(ie->ie_fullname, "irq264: vtpci0");
	KT_EQ(intr_event_describe_handler(ie, cookies[0], "rx0"), 0);
	KT_STREQ(ie->ie_fullname, "irq264: vtpci0:rx0");
	/* Of a name that does not fit, the end. */
	KT_EQ(intr_event_describe_handler(ie, cookies[0], "inflate"), 0);
	KT_STREQ(ie->ie_fullname, "irq264:-ci0:inflate");
	/* The handler's name has MAXCOMLEN letters, too. */
	KT_EQ(intr_event_describe_handler(ie, cookies[0], "123456789012"), 0);
	KT_EQ(intr_event_describe_handler(ie, cookies[0], "1234567890123"), ENOSPC);
	KT_STREQ(ie->ie_fullname, "irq264:-23456789012");
	KT_EQ(intr_event_remove_handler(cookies[0]), 0);
	KT_STREQ(ie->ie_fullname, "irq264:");
	KT_EQ(intr_event_destroy(ie), 0);

	/* A sign for each name that has no room beside others. */
	KT_EQ(intr_event_create(&ie, NULL, 0, 0, NULL, NULL, NULL, NULL, "irq7:"), 0);
	KT_EQ(intr_event_add_handler(ie, "a", never_called, NULL, NULL, 0, INTR_TYPE_MISC,
	    cookies), 0);
	KT_EQ(intr_event_describe_handler(ie, cookies[0], "rx0"), 0);
	for (i = 0; i < nitems(more); i++) {
		snprintf(name, sizeof(name), "b%zu", i);
		KT_EQ(intr_event_add_handler(ie, name, never_called, NULL, NULL, 0,
		    INTR_TYPE_MISC, &cookies[i + 1]), 0);
		KT_STREQ(ie->ie_fullname, more[i]);
	}
	for (i = 0; i < nitems(cookies); i++)
		KT_EQ(intr_event_remove_handler(cookies[i]), 0);
	KT_EQ(intr_event_destroy(ie), 0);
}

const struct ktest_case ktest_sched_cases[] = {
	{ "intr.names_of_interrupts", names_of_interrupts },
	{ "kthread.memory_returns", kthread_memory_returns },
	{ "kthread.suspends", kthread_suspends },
	{ "kthread.kproc_has_threads", kproc_has_threads },
	{ "sched.preempts_at_once", sched_preempts_at_once },
	{ "sched.sleeper_preempts_busy_thread", sched_sleeper_preempts_busy_thread },
	{ "sched.bound_threads_do_not_starve_equals", sched_bound_threads_do_not_starve_equals },
	{ "sched.bind_moves", sched_bind_moves },
	{ "sched.pin_stays", sched_pin_stays },
	{ "sched.critical_section_is_not_preempted", sched_critical_section_is_not_preempted },
	{ "sched.idle_is_interrupted_early", idle_is_interrupted_early },
	{ "smp.rendezvous_meets", smp_rendezvous_meets },
	{ "swi.runs", swi_runs },
	{ NULL, NULL }
};
