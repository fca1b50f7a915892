/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Several CPUs: starting them, stopping them, and running a function on all of them.
 *
 * A rendezvous has three functions: setup, action, teardown.  Every CPU runs each, and waits for
 * the others between two, unless the function in that place is smp_no_rendezvous_barrier.  The
 * arguments are global, the CPUs count themselves into rv_waiters, one count a stage.  They wait
 * with interrupts off, and so handle TLB shootdowns explicitly: the CPU that waits for one may be
 * the CPU that has not arrived yet.
 *
 * A stopped CPU spins in its IPI's handler until it finds itself in started_cpus; both sets are
 * written by the CPUs concerned (machine dependent, ipi_stop).
 *
 * Locking.  smp_ipi_mtx, a spin lock, makes rendezvous one at a time.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <machine/cpu.h>
#include <machine/smp.h>

/* Where a rendezvous stands: CPUs that have come to each stage. */
enum { RV_ENTERED, RV_SET_UP, RV_ACTED, RV_DONE, RV_STAGES };

static volatile u_int rv_waiters[RV_STAGES];
static u_int rv_ncpus;
static void (*rv_setup)(void *);
static void (*rv_action)(void *);
static void (*rv_teardown)(void *);
static void *rv_arg;

struct mtx smp_ipi_mtx;
MTX_SYSINIT(smp_ipi, &smp_ipi_mtx, "smp rendezvous", MTX_SPIN);

volatile cpuset_t stopped_cpus;
volatile cpuset_t started_cpus;
volatile cpuset_t suspended_cpus;
void (*cpustop_restartfunc)(void);
struct pcb *stoppcbs;

u_int mp_maxid;
cpuset_t all_cpus;
int mp_ncpus = 1;
int mp_maxcpus = MAXCPU;
int mp_ncores = 1;
int smp_cpus = 1;
volatile int smp_started;
int smp_threads_per_core = 1;

static SYSCTL_NODE(_kern, OID_AUTO, smp, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "several CPUs");
SYSCTL_UINT(_kern_smp, OID_AUTO, maxid, CTLFLAG_RD, &mp_maxid, 0, "highest id of a CPU");
SYSCTL_INT(_kern_smp, OID_AUTO, cpus, CTLFLAG_RD, &smp_cpus, 0, "CPUs that run");

/* Before memory is set up: how many CPUs may there be? */
static void
mp_setmaxid(void *arg __unused)
{

	cpu_mp_setmaxid();
	KASSERT(mp_ncpus >= 1, ("no CPU"));
	CPU_SETOF(0, &all_cpus);
}
SYSINIT(cpu_mp_setmaxid, SI_SUB_TUNABLES, SI_ORDER_FIRST, mp_setmaxid, NULL);

static void
mp_start(void *arg __unused)
{

	if (mp_ncpus > 1 && cpu_mp_probe() != 0)
		cpu_mp_start();
	else {
		mp_ncpus = 1;
		CPU_SETOF(PCPU_GET(cpuid), &all_cpus);
	}
	mp_ncores = mp_ncpus;
	if (mp_ncpus > 1) {
		stoppcbs = mallocarray(mp_ncpus, sizeof(*stoppcbs), M_TEMP, M_WAITOK | M_ZERO);
		printf("%d CPUs\n", mp_ncpus);
		cpu_mp_announce();
	}
}
SYSINIT(cpu_mp, SI_SUB_CPU, SI_ORDER_THIRD, mp_start, NULL);

void
smp_no_rendezvous_barrier(void *arg __unused)
{
}

/* Count this CPU into a stage, and wait there for the others. */
static void
rendezvous_wait(int stage)
{

	atomic_add_acq_int(&rv_waiters[stage], 1);
	while (atomic_load_acq_int(&rv_waiters[stage]) < rv_ncpus) {
		invlop_handler();
		cpu_spinwait();
	}
}

void
smp_rendezvous_action(void)
{
	void (*action)(void *), (*setup)(void *), (*teardown)(void *);
	void *arg;

	/* The arguments are copied first: after the last stage the next rendezvous may change them. */
	rendezvous_wait(RV_ENTERED);
	setup = rv_setup;
	action = rv_action;
	teardown = rv_teardown;
	arg = rv_arg;

	/* This must not be preempted, as the other CPUs would spin meanwhile. */
	critical_enter();
	if (setup != smp_no_rendezvous_barrier) {
		if (setup != NULL)
			setup(arg);
		rendezvous_wait(RV_SET_UP);
	}
	if (action != NULL)
		action(arg);
	if (teardown != smp_no_rendezvous_barrier) {
		rendezvous_wait(RV_ACTED);
		if (teardown != NULL)
			teardown(arg);
	}
	/* The initiator waits for this, so that the functions have returned on every CPU. */
	atomic_add_rel_int(&rv_waiters[RV_DONE], 1);
	critical_exit();
}

void
smp_rendezvous_cpus(cpuset_t map, void (*setup)(void *), void (*action)(void *),
    void (*teardown)(void *), void *arg)
{
	bool self;

	if (!smp_started) {
		spinlock_enter();
		if (setup != NULL)
			setup(arg);
		if (action != NULL)
			action(arg);
		if (teardown != NULL)
			teardown(arg);
		spinlock_exit();
		return;
	}
	CPU_AND(&map, &map, &all_cpus);
	if (CPU_EMPTY(&map))
		panic("smp_rendezvous: no CPU");
	/* Interrupts stay on while waiting: the owner waits for this CPU to answer its IPI. */
	while (mtx_trylock_spin(&smp_ipi_mtx) == 0)
		cpu_spinwait();
	rv_ncpus = CPU_COUNT(&map);
	rv_setup = setup;
	rv_action = action;
	rv_teardown = teardown;
	rv_arg = arg;
	for (int stage = 0; stage < RV_STAGES; stage++)
		atomic_store_rel_int(&rv_waiters[stage], 0);
	self = CPU_ISSET(curcpu, &map);
	CPU_CLR(curcpu, &map);
	if (!CPU_EMPTY(&map))
		ipi_selected(map, IPI_RENDEZVOUS);
	if (self)
		smp_rendezvous_action();
	while (atomic_load_acq_int(&rv_waiters[RV_DONE]) < rv_ncpus) {
		invlop_handler();
		cpu_spinwait();
	}
	mtx_unlock_spin(&smp_ipi_mtx);
}

void
smp_rendezvous(void (*setup)(void *), void (*action)(void *), void (*teardown)(void *), void *arg)
{

	smp_rendezvous_cpus(all_cpus, setup, action, teardown, arg);
}

static int
stop_cpus_by(cpuset_t map, u_int ipi)
{
	u_int cpu;

	if (!smp_started)
		return (0);
	CPU_CLR(curcpu, &map);
	ipi_selected(map, ipi);
	/* A CPU that does not answer is ignored: this runs when the kernel panics. */
	for (int i = 0; i < 100000; i++) {
		CPU_FOREACH(cpu) {
			if (CPU_ISSET(cpu, &map) && CPU_ISSET(cpu, &stopped_cpus))
				CPU_CLR(cpu, &map);
		}
		if (CPU_EMPTY(&map))
			return (1);
		cpu_spinwait();
	}
	return (0);
}

int
stop_cpus(cpuset_t map)
{

	return (stop_cpus_by(map, IPI_STOP));
}

int
stop_cpus_hard(cpuset_t map)
{

	return (stop_cpus_by(map, IPI_STOP_HARD));
}

int
restart_cpus(cpuset_t map)
{
	u_int cpu;

	if (!smp_started)
		return (0);
	CPU_FOREACH(cpu) {
		if (CPU_ISSET(cpu, &map))
			CPU_SET_ATOMIC(cpu, &started_cpus);
	}
	CPU_FOREACH(cpu) {
		while (CPU_ISSET(cpu, &map) && CPU_ISSET(cpu, &stopped_cpus))
			cpu_spinwait();
	}
	return (1);
}

static void
fence(void *arg __unused)
{

	atomic_thread_fence_seq_cst();
}

void
cpus_fence_seq_cst(void)
{

	smp_rendezvous(smp_no_rendezvous_barrier, fence, smp_no_rendezvous_barrier, NULL);
}
