/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * top(1) in batch mode: the threads that use the processors most.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/resource.h>
#include <sys/sched.h>
#include <sys/smp.h>
#include <sys/sx.h>
#include <sys/time.h>

#include <kern/console_tree.h>

static MALLOC_DEFINE(M_TOP, "top", "top command");

#define	TOP_MAX		512

struct top_thread {
	lwpid_t		tt_tid;
	pid_t		tt_pid;
	int		tt_pri;
	int		tt_cpu;
	char		tt_state[8];
	char		tt_name[MAXCOMLEN + 1];
	char		tt_proc[MAXCOMLEN + 1];
	uint64_t	tt_runtime;	/* cpu_ticks() in all */
	uint64_t	tt_used;	/* of them since the sample before */
};

struct top_sample {
	int		ts_count;
	uint64_t	ts_when;
	long		ts_cp_time[CPUSTATES];
	struct top_thread ts_threads[TOP_MAX];
};

static void
top_state(struct thread *td, char *buf, size_t size)
{
	if (TD_IS_RUNNING(td))
		snprintf(buf, size, "CPU%d", td->td_oncpu);
	else if (TD_ON_RUNQ(td))
		strlcpy(buf, "RUN", size);
	else if (TD_IS_IDLETHREAD(td))
		strlcpy(buf, "idle", size);
	else if (TD_AWAITING_INTR(td))
		strlcpy(buf, "WAIT", size);
	else if (TD_ON_LOCK(td))
		snprintf(buf, size, "*%s", td->td_lockname != NULL ? td->td_lockname : "?");
	else
		strlcpy(buf, td->td_wmesg != NULL ? td->td_wmesg : "?", size);
}

static void
top_read(struct thread *td, struct top_thread *tt)
{
	tt->tt_tid = td->td_tid;
	tt->tt_pid = td->td_proc->p_pid;
	strlcpy(tt->tt_name, td->td_name, sizeof(tt->tt_name));
	strlcpy(tt->tt_proc, td->td_proc->p_comm, sizeof(tt->tt_proc));
	thread_lock(td);
	tt->tt_pri = td->td_priority;
	tt->tt_cpu = td->td_lastcpu;
	tt->tt_runtime = td->td_runtime;
	/* What it has run since it was switched to is not in there yet. */
	if (TD_IS_RUNNING(td))
		tt->tt_runtime += cpu_ticks() - pcpu_find(td->td_oncpu)->pc_switchtime;
	top_state(td, tt->tt_state, sizeof(tt->tt_state));
	thread_unlock(td);
}

static void
top_take(struct top_sample *s)
{
	struct thread *td;
	struct proc *p;

	s->ts_count = 0;
	read_cpu_time(s->ts_cp_time);
	sx_slock(&allproc_lock);
	s->ts_when = cpu_ticks();
	FOREACH_PROC_IN_SYSTEM(p) {
		PROC_LOCK(p);
		FOREACH_THREAD_IN_PROC(p, td)
			if (s->ts_count < TOP_MAX)
				top_read(td, &s->ts_threads[s->ts_count++]);
		PROC_UNLOCK(p);
	}
	sx_sunlock(&allproc_lock);
}

static int
top_compare(const void *a, const void *b)
{
	const struct top_thread *ta = a, *tb = b;

	if (ta->tt_used != tb->tt_used)
		return (ta->tt_used < tb->tt_used ? 1 : -1);
	if (ta->tt_runtime != tb->tt_runtime)
		return (ta->tt_runtime < tb->tt_runtime ? 1 : -1);
	return (ta->tt_tid < tb->tt_tid ? -1 : 1);
}

/* Sets tt_used of each thread of now, and sorts by it. */
static void
top_compare_samples(const struct top_sample *before, struct top_sample *now)
{
	struct top_thread *tt;
	int i, j;

	for (i = 0; i < now->ts_count; i++) {
		tt = &now->ts_threads[i];
		tt->tt_used = tt->tt_runtime;
		for (j = 0; j < before->ts_count; j++)
			if (before->ts_threads[j].tt_tid == tt->tt_tid)
				tt->tt_used -= before->ts_threads[j].tt_runtime;
	}
	qsort(now->ts_threads, now->ts_count, sizeof(now->ts_threads[0]), top_compare);
}

static void
top_print_cpu(const struct top_sample *before, const struct top_sample *now)
{
	static const char *const names[CPUSTATES] = { "user", "nice", "system", "interrupt",
	    "idle" };
	long diff[CPUSTATES], total = 0;
	int i;

	for (i = 0; i < CPUSTATES; i++) {
		diff[i] = now->ts_cp_time[i] - before->ts_cp_time[i];
		total += diff[i];
	}
	printf("CPU:");
	for (i = 0; i < CPUSTATES; i++) {
		long permille = total != 0 ? diff[i] * 1000 / total : 0;

		printf("%s%3ld.%ld%% %s", i != 0 ? ", " : " ", permille / 10, permille % 10,
		    names[i]);
	}
	printf("\n");
}

static void
top_print(const struct top_sample *before, const struct top_sample *now, int lines)
{
	uint64_t elapsed = MAX(now->ts_when - before->ts_when, 1), us, permille;
	const struct top_thread *tt;
	int i, running = 0;

	for (i = 0; i < now->ts_count; i++)
		running += strncmp(now->ts_threads[i].tt_state, "CPU", 3) == 0 ||
		    strcmp(now->ts_threads[i].tt_state, "RUN") == 0;
	printf("%d threads: %d running, %d sleeping; up %jd seconds\n", now->ts_count, running,
	    now->ts_count - running, (intmax_t)time_uptime);
	top_print_cpu(before, now);
	printf("\n%5s %6s %4s %-7s %2s %7s %7s %s\n", "PID", "TID", "PRI", "STATE", "C", "TIME",
	    "CPU", "COMMAND");
	for (i = 0; i < now->ts_count && i < lines; i++) {
		tt = &now->ts_threads[i];
		us = cputick2usec(tt->tt_runtime);
		permille = tt->tt_used * 1000 / elapsed;
		printf("%5d %6d %4d %-7s %2d %3ju:%02ju.%1ju %3ju.%1ju%% [%s{%s}]\n", tt->tt_pid,
		    tt->tt_tid, tt->tt_pri - PZERO, tt->tt_state, tt->tt_cpu,
		    (uintmax_t)(us / 60000000), (uintmax_t)(us / 1000000 % 60),
		    (uintmax_t)(us / 100000 % 10), (uintmax_t)(permille / 10),
		    (uintmax_t)(permille % 10), tt->tt_proc, tt->tt_name);
	}
}

static int
cmd_top(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct top_sample *samples;
	long displays = 1, interval = 1, lines = 30;
	int c, i, now;

	while ((c = cmd_getopt(&g, argc, argv, "bd:Hs:S")) != -1) {
		if (c == 'd')
			displays = strtol(g.optarg, NULL, 10);
		else if (c == 's')
			interval = strtol(g.optarg, NULL, 10);
		else if (c == '?')
			return (cmd_usage("top"));
	}
	if (g.optind < argc)
		lines = strtol(argv[g.optind], NULL, 10);
	if (displays < 1 || interval < 1 || lines < 1 || argc - g.optind > 1)
		return (cmd_usage("top"));
	samples = malloc(2 * sizeof(*samples), M_TOP, M_WAITOK);
	top_take(&samples[0]);
	for (i = 0; i < displays && cmd_pause(interval * SBT_1S); i++) {
		now = (i + 1) % 2;
		top_take(&samples[now]);
		top_compare_samples(&samples[!now], &samples[now]);
		if (i != 0)
			printf("\n");
		top_print(&samples[!now], &samples[now], lines);
	}
	free(samples, M_TOP);
	return (0);
}
CONSOLE_CMD(top, cmd_top, "show the threads that use the processors most",
    "top [-bHS] [-d displays] [-s seconds] [number]");
