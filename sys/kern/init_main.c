/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The first process, and the order in which the kernel is initialised.
 *
 * The machine's start-up code calls mi_startup() once there is a stack, a current thread (thread0)
 * and memory.  Everything else is a SYSINIT(9): mi_startup() runs them in the order of their
 * subsystem, then of their order within it, then as linked.  When all have run, thread0 sleeps for
 * ever.
 *
 * The tunable debug.verbose_sysinit=1 prints each function before it runs.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/queue.h>
#include <sys/queue_mergesort.h>
#include <sys/reboot.h>
#include <sys/sched.h>
#include <sys/sleepqueue.h>
#include <sys/sysctl.h>

#include <kern/sched_tree.h>

void	mi_startup(void);				/* Called by locore.S. */

struct proc proc0 = {
	.p_flag = P_SYSTEM | P_INMEM | P_KPROC,
	.p_state = PRS_NORMAL,
	.p_comm = "kernel",
};

/* Mutex owners are distinguished from flags by their low five bits, hence the alignment. */
struct thread0_storage thread0_st __aligned(32) = {
	.t0st_thread = {
		.td_lock = &sched_lock,
		.td_proc = &proc0,
		.td_tid = THREAD0_TID,
		.td_name = "swapper",
		.td_state = TDS_RUNNING,
		.td_flags = TDF_INMEM,
		.td_pflags = TDP_KTHREAD,
		.td_pri_class = PRI_TIMESHARE,
		.td_base_pri = PVM,
		.td_priority = PVM,
		.td_user_pri = PUSER,
		.td_base_user_pri = PUSER,
	},
};

int boothowto;
int bootverbose;
SYSCTL_INT(_debug, OID_AUTO, bootverbose, CTLFLAG_RW, &bootverbose, 0,
    "Control the output of verbose kernel messages");

SET_DECLARE(sysinit_set, struct sysinit);

static STAILQ_HEAD(, sysinit) sysinits = STAILQ_HEAD_INITIALIZER(sysinits);

static int
sysinit_compare(const struct sysinit *a, const struct sysinit *b, void *thunk __unused)
{
	if (a->subsystem != b->subsystem)
		return (a->subsystem < b->subsystem ? -1 : 1);
	if (a->order != b->order)
		return (a->order < b->order ? -1 : 1);
	return (0);
}

/* Adds a set to those that mi_startup() has still to run. */
void
sysinit_add(struct sysinit **set, struct sysinit **set_end)
{
	STAILQ_HEAD(, sysinit) more = STAILQ_HEAD_INITIALIZER(more);
	struct sysinit **sip;

	for (sip = set; sip < set_end; sip++)
		STAILQ_INSERT_TAIL(&more, *sip, next);
	STAILQ_MERGESORT(&more, NULL, sysinit_compare, sysinit, next);
	STAILQ_MERGE(&sysinits, &more, NULL, sysinit_compare, sysinit, next);
}

static void
proc0_init(void)
{
	if (TAILQ_FIRST(&proc0.p_threads) == NULL)
		proc_linkup0(&proc0, &thread0);
	mutex_init();
	schedinit();
	init_sleepqueues();
	callout_init(&thread0.td_slpcallout, 1);
	LIST_INSERT_HEAD(&allproc, &proc0, p_list);
	PCPU_SET(switchtime, cpu_ticks());
}

void
mi_startup(void)
{
	struct sysinit *si;
	bool tunables = false;
	int verbose = 0;

	proc0_init();
	sysinit_add(SET_BEGIN(sysinit_set), SET_LIMIT(sysinit_set));
	while ((si = STAILQ_FIRST(&sysinits)) != NULL) {
		STAILQ_REMOVE_HEAD(&sysinits, next);
		if (si->subsystem == SI_SUB_DUMMY)
			continue;
		if (!tunables) {
			getenv_int("debug.verbose_sysinit", &verbose);
			tunables = true;
		}
		if (verbose != 0)
			printf("sysinit %#x/%#x %p(%p)\n", si->subsystem, si->order,
			    (const void *)si->func, si->udata);
		si->func(si->udata);
	}
	for (;;)
		tsleep(&proc0, PVM | PNOLOCK, "swapin", 0);
}

static void
print_version(const void *data __unused)
{
	printf("%s", version);
	if (bootverbose)
		printf("%s\n", compiler_version);
}
C_SYSINIT(version, SI_SUB_COPYRIGHT, SI_ORDER_SECOND, print_version, NULL);

static void
proc0_threads(void *arg __unused)
{
	threadinit();
}
SYSINIT(threadinit, SI_SUB_INTRINSIC, SI_ORDER_FIRST, proc0_threads, NULL);

/* Devices are configured: from here on sleeping and preemption are allowed as usual. */
static void
cold_end(void *arg __unused)
{
	cold = 0;
}
SYSINIT(cold_end, SI_SUB_CLOCKS, SI_ORDER_ANY, cold_end, NULL);
