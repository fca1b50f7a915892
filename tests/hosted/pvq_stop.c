/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A queue whose CPU is stopped for good, as by a panic, at each load and store of each function: what
 * pvq_forget() leaves works.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include "pvq_fixture.h"

/* The compiler has no jumps of its own for other machines. */
#ifdef __amd64__

#define	STOP_OLD	3	/* chains that the peer has, 1 to so many */
#define	STOP_NEW	3	/* that it has not */
#define	STOP_AGAIN	(3 * FIX_SIZE)

void	__asan_handle_no_return(void);

static struct {
	struct peer_chain old[STOP_OLD];
	void		*context[5];
	void		*msgs;		/* of the chain that is being put */
	int		 at;
	int		 seen;
} stop;

static void
stop_access(void)
{

	if (stop.seen++ != stop.at)
		return;
	kpi_access_hook = NULL;
	__asan_handle_no_return();
	__builtin_longjmp(stop.context, 1);
}

/* Its back end can't be reset: it answers, and the ring goes on. */
static bool
stop_is_grants(const struct fix *f)
{
	return (strcmp(f->q->q_ops->qo_name, "grant") == 0);
}

/* Chain 20 is staged, and the peer has answered some of the others. */
static void
stop_prepare(struct fix *f)
{
	struct peer_chain pr;
	uintptr_t n;

	/* The ring has turned once and a half. */
	for (n = 1; n <= FIX_SIZE * 3 / 2; n++)
		fix_turn(f, 1000 + n);
	for (n = 1; n <= STOP_OLD; n++) {
		fix_post(f, n, 1, 0);
		fix_fetch(f, &pr, n, 1, 0);
		stop.old[n - 1] = pr;
	}
	for (n = 1; n <= STOP_NEW; n++)
		fix_post(f, STOP_OLD + n, 1, 0);
	CHECK(fix_put(f, 20, 1, 0) == 0, "no room");
	f->po->po_complete(f->pe, stop.old[0].pr_id, 0);
	f->po->po_complete(f->pe, stop.old[1].pr_id, 0);
	f->po->po_publish(f->pe);
}

static void
stop_put(struct fix *f)
{
	bus_dma_segment_t seg = { .ds_addr = 0x5123, .ds_len = 100 };
	struct pvq_chain pc = {
		.pc_segs = &seg, .pc_nread = 1, .pc_cookie = (void *)21,
	};

	if (f->im->im_chain != NULL)
		f->im->im_chain(f->pe, &pc);
	stop.msgs = pc.pc_arg;
	if (pvq_reserve(f->q, pvq_prepare(f->q, &pc)) == 0)
		pvq_put(f->q, &pc, 1);
}

static void
stop_abort(struct fix *f)
{
	pvq_abort(f->q);
}

static void
stop_commit(struct fix *f)
{
	pvq_commit(f->q);
	(void)pvq_kick(f->q);
}

static void
stop_get(struct fix *f)
{
	struct pvq_done done[4];

	(void)pvq_get(f->q, done, 4);
}

static void
stop_enable(struct fix *f)
{
	(void)pvq_intr_enable(f->q, 2);
	pvq_intr_disable(f->q);
	(void)pvq_peek(f->q);
}

/* A reset, which a back end has only without a connection, and so without a dump. */
static void
stop_drain(struct fix *f)
{
	if (stop_is_grants(f))
		return;
	while (pvq_drain(f->q) != NULL)
		;
	(void)pvq_reinit(f->q);
}

static void
stop_break(struct fix *f)
{
	pvq_break(f->q, PVQ_FAULT_OWNER, 0);
}

static void (*const stop_functions[])(struct fix *) = {
	stop_put, stop_abort, stop_commit, stop_get, stop_enable, stop_drain, stop_break,
};

/* The peer answers all that it was given. */
static void
stop_answer_all(struct fix *f)
{
	struct peer_chain pr;

	f->po->po_complete(f->pe, stop.old[STOP_OLD - 1].pr_id, 0);
	while (f->po->po_fetch(f->pe, &pr))
		f->po->po_complete(f->pe, pr.pr_id, 0);
	f->po->po_publish(f->pe);
}

/* Nothing of the chains is shared any more. */
static void
stop_unshare(struct fix *f)
{
	struct fix_shared *fs;
	u_int i;

	for (i = 0; i < FIX_MAX_SHARED; i++) {
		if ((fs = f->shared[i]) == NULL)
			continue;
		f->shared[i] = NULL;
		CHECK(im_unshare(f->im, f->pe, fs->segs, fs->nsegs) == 0,
		    "chain %lu is held", fs->n);
		host_free(fs);
	}
	f->nstaged = 0;
}

/* Returns true if the function was stopped. */
static bool
stop_run(const struct impl *im, void (*function)(struct fix *), int at)
{
	volatile bool stopped = false;
	static struct fix f;
	uintptr_t n;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	f.uncounted = true;
	stop_prepare(&f);
	stop.at = at;
	stop.seen = 0;
	if (__builtin_setjmp(stop.context) == 0) {
		kpi_access_hook = stop_access;
		function(&f);
	} else
		stopped = true;
	kpi_access_hook = NULL;
	host_free(stop.msgs);
	stop.msgs = NULL;
	if (stop_is_grants(&f)) {
		/* There may have been no notification. */
		n = f.pe->pe_kicks;
		CHECK(pvq_forget(f.q) == EBUSY, "chains are out");
		CHECK(f.pe->pe_kicks == n + 1, "not notified");
		stop_answer_all(&f);
	}
	CHECK(pvq_forget(f.q) == 0 && pvq_inflight(f.q) == 0 && !pvq_broken(f.q) &&
	    pvq_room(f.q) == f.q->q_size, "%d in flight, room for %d", pvq_inflight(f.q),
	    pvq_room(f.q));
	stop_unshare(&f);
	if (!stop_is_grants(&f)) {
		/* The device was reset. */
		CHECK(pvq_reinit(f.q) == 0, "reinit");
		im->im_reset(f.pe);
	}
	for (n = 1; n <= STOP_AGAIN; n++)
		fix_turn(&f, 2000 + n);
	fix_close(&f);
	return (stopped);
}

static void
stopped_anywhere_and_forgotten(const struct impl *im)
{
	u_int i;
	int at;

	for (i = 0; i < nitems(stop_functions); i++) {
		for (at = 0; stop_run(im, stop_functions[i], at); at++)
			;
		printf("%s: function %u: %d places\n", im->im_name, i, at);
	}
}
#endif

const struct pvq_test pvq_stop_tests[] = {
#ifdef __amd64__
	{ "stopped_anywhere_and_forgotten", "A panic at each load and store, and a dump",
	    stopped_anywhere_and_forgotten, 0, 0 },
#endif
	{ NULL, NULL, NULL, 0, 0 }
};
