/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Deliberate bugs, each of which a kernel with INVARIANTS, WITNESS and VIMAGE has to notice.
 *
 *	sysctl debug.badmod.list		names of the bugs
 *	sysctl debug.badmod.run=ithread_sleep	makes one
 *
 * The kernel panics.  If it does not, "not noticed" is printed and the write fails with EIO.  The
 * module uses only what FreeBSD's headers offer to modules.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/interrupt.h>
#include <sys/kernel.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sbuf.h>
#include <sys/smp.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include "badmod.h"

MALLOC_DEFINE(M_BADMOD, "badmod", "deliberate bugs");

static const struct bad_case *const bad_tables[] = {
	bad_sleep_cases,
	bad_lock_cases,
	bad_mem_cases,
	bad_net_cases,
};

static volatile u_int bad_done;

static void
bad_wait(void)
{
	while (atomic_load_acq_int(&bad_done) == 0)
		pause("badmod", 1);
}

static void
bad_call(void *arg)
{
	bad_func_t *func = arg;

	func();
	atomic_store_rel_int(&bad_done, 1);
}

void
bad_in_thread(bad_func_t *func)
{
	bad_done = 0;
	if (kthread_add(bad_call, (void *)func, NULL, NULL, 0, 0, "badmod") == 0)
		bad_wait();
}

void
bad_in_callout(bad_func_t *func)
{
	static struct callout c;

	bad_done = 0;
	callout_init(&c, 1);
	callout_reset(&c, 1, bad_call, (void *)func);
	bad_wait();
	callout_drain(&c);
}

static bad_func_t *bad_filter_func;

static int
bad_filter(void *arg)
{
	bad_filter_func();
	return (FILTER_HANDLED);
}

/* An interrupt that no device raises: func is its filter or its thread's handler. */
static void
bad_interrupt(driver_filter_t *filter, driver_intr_t *handler, void *arg)
{
	struct intr_event *ie;
	void *cookie;

	if (intr_event_create(&ie, NULL, 0, 0, NULL, NULL, NULL, NULL, "badmod:") != 0)
		return;
	if (intr_event_add_handler(ie, "badmod", filter, handler, arg,
	    intr_priority(INTR_TYPE_MISC), INTR_TYPE_MISC | INTR_MPSAFE, &cookie) == 0) {
		intr_event_handle(ie, NULL);
		if (handler != NULL)
			bad_wait();
		intr_event_remove_handler(cookie);
	}
	intr_event_destroy(ie);
}

void
bad_in_filter(bad_func_t *func)
{
	bad_filter_func = func;
	bad_interrupt(bad_filter, NULL, &bad_filter_func);
}

void
bad_in_ithread(bad_func_t *func)
{
	bad_done = 0;
	bad_interrupt(NULL, bad_call, (void *)func);
}

void
bad_in_rendezvous(bad_func_t *func)
{
	smp_rendezvous(smp_no_rendezvous_barrier, bad_call, smp_no_rendezvous_barrier,
	    (void *)func);
}

static void
bad_task(void *arg, int pending)
{
	bad_call(arg);
}

void
bad_in_task(bad_func_t *func)
{
	static struct task task;

	bad_done = 0;
	TASK_INIT(&task, 0, bad_task, (void *)func);
	taskqueue_enqueue(taskqueue_thread, &task);
	bad_wait();
	taskqueue_drain(taskqueue_thread, &task);
}

static int
bad_sysctl_run(SYSCTL_HANDLER_ARGS)
{
	const struct bad_case *bc;
	char name[64] = "";
	u_int i;
	int error;

	error = sysctl_handle_string(oidp, name, sizeof(name), req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	for (i = 0; i < nitems(bad_tables); i++)
		for (bc = bad_tables[i]; bc->bc_name != NULL; bc++)
			if (strcmp(bc->bc_name, name) == 0) {
				bc->bc_func();
				printf("badmod: %s: not noticed\n", name);
				return (EIO);
			}
	return (ENOENT);
}

static int
bad_sysctl_list(SYSCTL_HANDLER_ARGS)
{
	const struct bad_case *bc;
	struct sbuf sb;
	u_int i;
	int error;

	sbuf_new_for_sysctl(&sb, NULL, 128, req);
	for (i = 0; i < nitems(bad_tables); i++)
		for (bc = bad_tables[i]; bc->bc_name != NULL; bc++)
			sbuf_printf(&sb, "\n%s", bc->bc_name);
	error = sbuf_finish(&sb);
	sbuf_delete(&sb);
	return (error);
}

SYSCTL_NODE(_debug, OID_AUTO, badmod, CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, "deliberate bugs");
SYSCTL_PROC(_debug_badmod, OID_AUTO, run, CTLTYPE_STRING | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    bad_sysctl_run, "A", "Make a bug");
SYSCTL_PROC(_debug_badmod, OID_AUTO, list, CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, 0,
    bad_sysctl_list, "A", "Names of the bugs");

static int
bad_modevent(module_t mod, int what, void *arg)
{
	return (what == MOD_LOAD || what == MOD_UNLOAD ? 0 : EOPNOTSUPP);
}

static moduledata_t bad_mod = { "badmod", bad_modevent, NULL };
DECLARE_MODULE(badmod, bad_mod, SI_SUB_DRIVERS, SI_ORDER_ANY);
MODULE_VERSION(badmod, 1);
