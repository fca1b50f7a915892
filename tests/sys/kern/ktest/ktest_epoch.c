/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * epoch(9): nothing that a reader sees goes away before it leaves.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/epoch.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sched.h>
#include <sys/smp.h>

#include <machine/cpu.h>

#include "ktest.h"

#define	ALIVE	0x600dcafe
#define	DEAD	0xdeadbeef

struct object {
	struct epoch_context	ctx;
	volatile uint32_t	state;
	volatile u_int		*freed;
};

struct room {
	epoch_t			epoch;
	bool			preempt;
	struct object *volatile	current;
	volatile u_int		inside;
	volatile u_int		freed;
	volatile u_int		replaced;
	volatile bool		leave;
	volatile bool		waited;
	volatile bool		stop;
	struct mtx		mtx;
};

static void
room_init(struct room *r, bool preempt)
{
	memset(r, 0, sizeof(*r));
	r->preempt = preempt;
	r->epoch = epoch_alloc("ktest", preempt ? EPOCH_PREEMPT : 0);
	mtx_init(&r->mtx, "ktest room", NULL, MTX_DEF);
}

static void
room_destroy(struct room *r)
{
	epoch_free(r->epoch);
	mtx_destroy(&r->mtx);
}

static void
room_enter(struct room *r, struct epoch_tracker *et)
{
	if (r->preempt)
		epoch_enter_preempt(r->epoch, et);
	else
		epoch_enter(r->epoch);
}

static void
room_exit(struct room *r, struct epoch_tracker *et)
{
	if (r->preempt)
		epoch_exit_preempt(r->epoch, et);
	else
		epoch_exit(r->epoch);
}

static void
room_wait(struct room *r)
{
	if (r->preempt)
		epoch_wait_preempt(r->epoch);
	else
		epoch_wait(r->epoch);
}

static struct object *
object_make(struct room *r)
{
	struct object *o = malloc(sizeof(*o), M_KTEST, M_WAITOK | M_ZERO);

	o->state = ALIVE;
	o->freed = &r->freed;
	return (o);
}

static void
object_free(struct object *o)
{
	KT_EQ(o->state, ALIVE);
	o->state = DEAD;
	atomic_add_int(o->freed, 1);
	free(o, M_KTEST);
}

static void
object_callback(epoch_context_t ctx)
{
	object_free(__containerof(ctx, struct object, ctx));
}

static void
staying_reader(void *arg, int me)
{
	struct epoch_tracker et;
	struct room *r = arg;

	room_enter(r, &et);
	KT_TRUE(in_epoch(r->epoch));
	atomic_add_int(&r->inside, 1);
	KT_SPIN(r->leave);
	KT_TRUE(!r->waited);
	room_exit(r, &et);
	KT_TRUE(!in_epoch(r->epoch));
}

static void
epoch_waiter(void *arg, int me)
{
	struct room *r = arg;

	room_wait(r);
	KT_TRUE(r->leave);
	r->waited = true;
}

static void
epoch_wait_case(bool preempt)
{
	struct ktest_thread *reader, *waiter;
	struct epoch_tracker et, inner;
	struct room r;

	room_init(&r, preempt);
	room_wait(&r);
	/* A reader that is not preemptible keeps its CPU, and there is only one. */
	if (!preempt && mp_ncpus == 1) {
		room_destroy(&r);
		return;
	}
	reader = ktest_spawn(staying_reader, &r, 0, ktest_last_cpu(), 0);
	KT_WAIT(r.inside == 1);
	waiter = ktest_spawn(epoch_waiter, &r, 1, 0, 0);
	pause("ktest", hz / 20);
	KT_TRUE(!r.waited);
	/* Those who come later do not keep the waiter, and may nest. */
	room_enter(&r, &et);
	room_enter(&r, &inner);
	room_exit(&r, &inner);
	KT_TRUE(in_epoch(r.epoch));
	room_exit(&r, &et);
	KT_TRUE(!r.waited);
	r.leave = true;
	ktest_join(reader);
	ktest_join(waiter);
	KT_TRUE(r.waited);
	room_destroy(&r);
}

static void epoch_waits_for_readers(void) { epoch_wait_case(false); }
static void epoch_waits_for_preemptible_readers(void) { epoch_wait_case(true); }

static void
object_reader(void *arg, int me)
{
	struct epoch_tracker et;
	struct room *r = arg;
	struct object *o;
	u_int i = 0;

	while (!r->stop) {
		room_enter(r, &et);
		o = r->current;
		KT_EQ(o->state, ALIVE);
		if (i % 16 == 0)
			DELAY(30);
		else if (i % 16 == 1 && r->preempt)
			kern_yield(PRI_UNCHANGED);
		KT_EQ(o->state, ALIVE);
		room_exit(r, &et);
		if (i++ % 64 == me)
			kern_yield(PRI_UNCHANGED);
	}
}

/* Replaces the object, and frees the old one in one way or the other. */
static void
object_writer(void *arg, int me)
{
	struct room *r = arg;
	struct object *o;
	u_int i;

	for (i = 0; i < 8u * ktest_rounds; i++) {
		o = object_make(r);
		mtx_lock(&r->mtx);
		o = (struct object *)atomic_swap_ptr((volatile uintptr_t *)&r->current,
		    (uintptr_t)o);
		mtx_unlock(&r->mtx);
		if (me == 0) {
			room_wait(r);
			object_free(o);
		} else
			epoch_call(r->epoch, object_callback, &o->ctx);
		if (i % 8 == 0)
			pause("ktest", 1);
	}
	atomic_add_int(&r->replaced, i);
}

static void
epoch_protects(bool preempt)
{
	struct ktest_thread *reader[4], *writer[2];
	struct room r;
	int i;

	room_init(&r, preempt);
	r.current = object_make(&r);
	for (i = 0; i < 4; i++)
		reader[i] = ktest_spawn(object_reader, &r, i, KT_ANYCPU, 0);
	for (i = 0; i < 2; i++)
		writer[i] = ktest_spawn(object_writer, &r, i, KT_ANYCPU, 0);
	for (i = 0; i < 2; i++)
		ktest_join(writer[i]);
	epoch_drain_callbacks(r.epoch);
	KT_EQ(r.replaced, 2 * 8 * ktest_rounds);
	KT_EQ(r.freed, r.replaced);
	r.stop = true;
	for (i = 0; i < 4; i++)
		ktest_join(reader[i]);
	object_free(r.current);
	room_destroy(&r);
}

static void epoch_protects_objects(void) { epoch_protects(false); }
static void epoch_protects_objects_of_preemptible_readers(void) { epoch_protects(true); }

static void
epoch_caller(void *arg, int me)
{
	struct epoch_tracker et;
	struct room *r = arg;
	struct object *o;
	u_int i;

	for (i = 0; i < 500u * ktest_rounds; i++) {
		o = object_make(r);
		room_enter(r, &et);
		epoch_call(r->epoch, object_callback, &o->ctx);
		/* The callback can not have come while we are in here. */
		KT_EQ(o->state, ALIVE);
		if (i % 64 == 0)
			DELAY(100);
		KT_EQ(o->state, ALIVE);
		room_exit(r, &et);
	}
}

/* epoch_call(9) is for readers too, those in a critical section included. */
static void
epoch_call_within(bool preempt)
{
	struct room r;

	room_init(&r, preempt);
	ktest_run(4, true, epoch_caller, &r);
	epoch_drain_callbacks(r.epoch);
	KT_EQ(r.freed, 4 * 500 * ktest_rounds);
	room_destroy(&r);
}

static void epoch_call_from_readers(void) { epoch_call_within(false); }
static void epoch_call_from_preemptible_readers(void) { epoch_call_within(true); }

const struct ktest_case ktest_epoch_cases[] = {
	{ "epoch.waits_for_readers", epoch_waits_for_readers },
	{ "epoch.waits_for_preemptible_readers", epoch_waits_for_preemptible_readers },
	{ "epoch.protects_objects", epoch_protects_objects },
	{ "epoch.protects_objects_of_preemptible_readers",
	    epoch_protects_objects_of_preemptible_readers },
	{ "epoch.call_from_readers", epoch_call_from_readers },
	{ "epoch.call_from_preemptible_readers", epoch_call_from_preemptible_readers },
	{ NULL, NULL }
};
