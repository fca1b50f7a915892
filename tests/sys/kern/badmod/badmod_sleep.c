/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Sleeping, or waiting for a lock, where that is prohibited.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/epoch.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/socket.h>
#include <sys/sx.h>

#include <net/if.h>
#include <net/if_var.h>

#include "badmod.h"

static struct mtx bad_mtx;
MTX_SYSINIT(badmod, &bad_mtx, "bad mutex", MTX_DEF);
static struct mtx bad_spin;
MTX_SYSINIT(badmod_spin, &bad_spin, "bad spin", MTX_SPIN);
static struct sx bad_sx;
SX_SYSINIT(badmod_sx, &bad_sx, "bad sx");

static void
bad_pause(void)
{
	pause("bad", 1);
}

static void
bad_waitok(void)
{
	free(malloc(100, M_BADMOD, M_WAITOK), M_BADMOD);
}

static void
bad_mtx_lock(void)
{
	mtx_lock(&bad_mtx);
	mtx_unlock(&bad_mtx);
}

static void
bad_sx_xlock(void)
{
	sx_xlock(&bad_sx);
	sx_xunlock(&bad_sx);
}

static void
bad_ithread_sleep(void)
{
	bad_in_ithread(bad_pause);
}

static void
bad_ithread_waitok(void)
{
	bad_in_ithread(bad_waitok);
}

static void
bad_ithread_sx(void)
{
	bad_in_ithread(bad_sx_xlock);
}

static void
bad_callout_sleep(void)
{
	bad_in_callout(bad_pause);
}

static void
bad_callout_waitok(void)
{
	bad_in_callout(bad_waitok);
}

static void
bad_callout_sx(void)
{
	bad_in_callout(bad_sx_xlock);
}

static void
bad_epoch(bad_func_t *func)
{
	struct epoch_tracker et;

	NET_EPOCH_ENTER(et);
	func();
	NET_EPOCH_EXIT(et);
}

static void
bad_epoch_sleep(void)
{
	bad_epoch(bad_pause);
}

static void
bad_epoch_waitok(void)
{
	bad_epoch(bad_waitok);
}

static void
bad_epoch_sx(void)
{
	bad_epoch(bad_sx_xlock);
}

static void
bad_spin_mtx(void)
{
	mtx_lock_spin(&bad_spin);
	bad_mtx_lock();
	mtx_unlock_spin(&bad_spin);
}

static void
bad_spin_malloc(void)
{
	mtx_lock_spin(&bad_spin);
	free(malloc(100, M_BADMOD, M_NOWAIT), M_BADMOD);
	mtx_unlock_spin(&bad_spin);
}

static void
bad_spin_sleep(void)
{
	mtx_lock_spin(&bad_spin);
	bad_pause();
	mtx_unlock_spin(&bad_spin);
}

static void
bad_filter_mtx(void)
{
	bad_in_filter(bad_mtx_lock);
}

static void
bad_rendezvous_mtx(void)
{
	bad_in_rendezvous(bad_mtx_lock);
}

static void
bad_critical_mtx(void)
{
	critical_enter();
	bad_mtx_lock();
	critical_exit();
}

const struct bad_case bad_sleep_cases[] = {
	{ "ithread_sleep", bad_ithread_sleep },
	{ "ithread_waitok", bad_ithread_waitok },
	{ "ithread_sx", bad_ithread_sx },
	{ "callout_sleep", bad_callout_sleep },
	{ "callout_waitok", bad_callout_waitok },
	{ "callout_sx", bad_callout_sx },
	{ "epoch_sleep", bad_epoch_sleep },
	{ "epoch_waitok", bad_epoch_waitok },
	{ "epoch_sx", bad_epoch_sx },
	{ "spin_mtx", bad_spin_mtx },
	{ "spin_malloc", bad_spin_malloc },
	{ "spin_sleep", bad_spin_sleep },
	{ "filter_mtx", bad_filter_mtx },
	{ "rendezvous_mtx", bad_rendezvous_mtx },
	{ "critical_mtx", bad_critical_mtx },
	{ NULL, NULL }
};
