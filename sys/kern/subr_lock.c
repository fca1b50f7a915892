/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Code common to all locks: the table of lock classes, by which a sleep queue or a callout releases
 * and takes again a lock of any class, and the initialisation of a lock's header.
 *
 * Gaps.  No lock profiling, no adaptive back-off: lock_delay() is one pause.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/lock_profile.h>
#include <sys/mutex.h>
#include <sys/proc.h>

#include <machine/cpu.h>

/* The index in this table is kept in lo_flags; sched_lock's initialiser relies on spin being 0. */
struct lock_class *lock_classes[LOCK_CLASS_MAX + 1] = {
	&lock_class_mtx_spin,
	&lock_class_mtx_sleep,
	&lock_class_sx,
	&lock_class_rm,
	&lock_class_rm_sleepable,
	&lock_class_rw,
};

struct lock_delay_config locks_delay = { .base = 1, .max = 1 };
u_short locks_delay_retries = 10;
u_short locks_delay_loops = 1;

void
lock_init(struct lock_object *lock, struct lock_class *class, const char *name,
    const char *type __diagused, int flags)
{
	u_int i;

	for (i = 0; i < nitems(lock_classes) && lock_classes[i] != NULL; i++)
		if (lock_classes[i] == class)
			break;
	KASSERT(i < nitems(lock_classes) && lock_classes[i] == class,
	    ("%s: unknown class of lock %s", __func__, name));
	KASSERT((flags & LO_NEW) != 0 || !lock_initialized(lock),
	    ("lock \"%s\" %p already initialized", name, lock));
	lock->lo_name = name;
	lock->lo_flags = flags | (i << LO_CLASSSHIFT) | LO_INITIALIZED;
	lock->lo_data = 0;
	lock->lo_witness = NULL;
	WITNESS_INIT(lock, type);
}

void
lock_destroy(struct lock_object *lock)
{
	KASSERT(lock_initialized(lock), ("lock %p destroyed twice", lock));
	WITNESS_DESTROY(lock);
	lock->lo_flags &= ~LO_INITIALIZED;
}

void
lock_delay(struct lock_delay_arg *la)
{
	la->spin_cnt++;
	cpu_spinwait();
}

void
lock_delay_default_init(struct lock_delay_config *lc)
{
	*lc = locks_delay;
}
