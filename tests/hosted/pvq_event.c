/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Conformance of a pvq(9): notifications and interrupts, of which there may be too many, but never one
 * too few.
 *
 * The tests of lost wake-ups put the peer's steps wherever it can act, at every position of the
 * 16-bit index: before a call, before each of the call's loads and stores (the driver is compiled to
 * tell of them), and after it.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include "pvq_fixture.h"

#define	INDEX_TURN	65536
/*
 * Positions of the index, in turns of it: each meets one of a call's moments, or a few.  Where another
 * machine is emulated, what is of interest is its code, which is the same at each position.
 */
#ifdef __amd64__
#define	POSITIONS	(kpi_bounced ? 500 : (host_soaking() ? 3 : 1) * INDEX_TURN)
#else
#define	POSITIONS	2000
#endif

static void
kick_only_when_asked(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;
	uintptr_t n;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	CHECK(!pvq_kick(f.q) && f.pe->pe_kicks == 0, "kick without work");
	CHECK(!f.po->po_listen(f.pe), "work in a new queue");
	fix_post(&f, 1, 1, 0);
	CHECK(pvq_kick(f.q) && f.pe->pe_kicks == 1, "no kick");
	CHECK(!pvq_kick(f.q) && f.pe->pe_kicks == 1, "kick twice for one chain");
	fix_fetch(&f, &pr, 1, 1, 0);
	f.po->po_ignore(f.pe);
	for (n = 2; n < 8; n++) {
		fix_post(&f, n, 1, 0);
		CHECK(!pvq_kick(f.q), "kick for one who does not listen");
	}
	CHECK(f.pe->pe_kicks == 1, "%u kicks", f.pe->pe_kicks);
	CHECK(f.q->q_stats.qs_kicks == 1 && f.q->q_stats.qs_nokicks == 6, "statistics");
	fix_close(&f);
}

static void
one_kick_for_a_batch(const struct impl *im)
{
	struct fix f;
	uintptr_t batch, n;

	for (batch = 1; batch <= 10; batch++) {
		fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
		(void)f.po->po_listen(f.pe);
		for (n = 1; n <= batch; n++)
			fix_post(&f, n, 1, 0);
		CHECK(pvq_kick(f.q) && f.pe->pe_kicks == 1, "%u kicks", f.pe->pe_kicks);
		/* The event index was passed and not moved: no notifications from here on. */
		for (; im_can(im, IM_EVENT) && n <= batch + 3; n++) {
			fix_post(&f, n, 1, 0);
			CHECK(!pvq_kick(f.q), "kick past the event index, after %lu", batch);
		}
		fix_close(&f);
	}
}

static void
kick_after_turns_without(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;
	uintptr_t n;
	int around = host_soaking() ? 2 : 1, more;

	/* Around a whole turn, old and new index are next to each other, or the same. */
	for (more = -around; more <= around; more++) {
		fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
		f.po->po_ignore(f.pe);
		for (n = 1; n < (uintptr_t)(INDEX_TURN + more); n++)
			fix_turn(&f, n);
		CHECK(!f.po->po_listen(f.pe), "work left");
		fix_post(&f, n, 0, 1);
		CHECK(pvq_kick(f.q), "no kick after %lu chains without", n);
		fix_fetch(&f, &pr, n, 0, 1);
		fix_close(&f);
	}
}

static void
new_queue_interrupts(const struct impl *im)
{
	struct peer_chain more, pr;
	struct pvq_done done[2];
	struct fix f;
	int i;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (i = 0; i < 2; i++) {
		fix_post(&f, 1, 1, 1);
		fix_fetch(&f, &pr, 1, 1, 1);
		fix_post(&f, 2, 1, 1);
		fix_fetch(&f, &more, 2, 1, 1);
		CHECK(!f.po->po_interrupts(f.pe), "before anything completed");
		fix_complete(&f, &pr, 0);
		CHECK(f.po->po_interrupts(f.pe), "no interrupt");
		/* That was it, where an interrupt is at an index. */
		fix_complete(&f, &more, 0);
		CHECK(f.po->po_interrupts(f.pe) == !im_can(im, IM_EVENT), "the second completion");
		CHECK(fix_collect(&f, done, 2) == 2, "get");
		/* So it is with one that begins anew. */
		CHECK(pvq_reinit(f.q) == 0, "reinit");
		im->im_reset(f.pe);
	}
	fix_close(&f);
}

static void
disabled_queue_is_silent(const struct impl *im)
{
	struct peer_chain pr;
	struct fix f;
	uintptr_t n;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (n = 1; n < 3000; n++) {
		pvq_intr_disable(f.q);
		fix_post(&f, n, 1, 1);
		fix_fetch(&f, &pr, n, 1, 1);
		fix_complete(&f, &pr, 0);
		/* Before and after it was collected: the peer may look late. */
		if (n % 2 == 0)
			CHECK(!f.po->po_interrupts(f.pe), "interrupt %lu", n);
		fix_get(&f, n, 0);
		pvq_intr_disable(f.q);
		CHECK(!f.po->po_interrupts(f.pe), "late interrupt %lu", n);
	}
	fix_close(&f);
}

/* Complete what is there, one at a time; at which of them does the interrupt come (0: at none)? */
static int
interrupt_comes_at(struct fix *f, struct peer_chain *pr, int n)
{
	int at, i;

	at = 0;
	for (i = 0; i < n; i++) {
		fix_complete(f, &pr[i], 0);
		if (f->po->po_interrupts(f->pe) && at == 0)
			at = i + 1;
	}
	return (at);
}

static void
interrupt_comes_when_asked_for(const struct impl *im)
{
	struct pvq_done done[8];
	struct peer_chain pr[8];
	struct fix f;
	u_int after;
	int at, i, want;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	for (after = 0; after <= 12; after++) {
		pvq_intr_disable(f.q);
		for (i = 0; i < 8; i++) {
			fix_post(&f, i + 1, 1, 1);
			fix_fetch(&f, &pr[i], i + 1, 1, 1);
		}
		CHECK(!pvq_intr_enable(f.q, after), "nothing waits");
		/* No more than is in flight; 0 is 1; without event indices, the next one. */
		want = im_can(im, IM_EVENT) ? MAX(MIN((int)after, 8), 1) : 1;
		at = interrupt_comes_at(&f, pr, 8);
		CHECK(at == want, "after %u: at %d, not %d", after, at, want);
		CHECK(fix_collect(&f, done, 8) == 8, "get");
	}
	fix_close(&f);
}

static void
enable_sees_what_waits(const struct impl *im)
{
	struct peer_chain pr[4];
	struct pvq_done done[4];
	struct fix f;
	int i, more;

	fix_open(&f, im, FIX_SIZE, FIX_MAX_SEGS);
	CHECK(!pvq_intr_enable(f.q, 1), "work in a new queue");
	for (i = 0; i < 4; i++) {
		/* Long ones are one place each as well, while there are tables for them. */
		more = im_can(im, IM_SHORT) && i < 2 ? IM_SHORT_SEGS : 1;
		fix_post(&f, i + 1, 1, more);
		fix_fetch(&f, &pr[i], i + 1, 1, more);
	}
	fix_complete(&f, &pr[0], 0);
	fix_complete(&f, &pr[1], 0);
	CHECK(pvq_intr_enable(f.q, 1), "one waits");
	CHECK(pvq_intr_enable(f.q, 2), "two wait");
	CHECK(pvq_intr_enable(f.q, 3) == !im_can(im, IM_EVENT), "three do not");
	CHECK(fix_collect(&f, done, 4) == 2, "get");
	CHECK(!pvq_intr_enable(f.q, 1), "nothing waits");
	fix_close(&f);
}

/*
 * What the peer does in the middle of a driver's call.  With `buffers' it does not see what the driver
 * has stored since its last fence: a CPU may have that in its store buffer still, and has loaded
 * what comes behind it already.
 */
static struct step {
	struct fix	*f;
	int		 at;		/* before which access of the call, from 1; 0: before all */
	int		 seen;		/* so far */
	bool		 buffers;
	void		(*act)(void);
	int		 nstores;
	struct step_store {
		void		*addr;
		int		 size;
		char		 old[8], new[8];
	} stores[64];
} step;

static void
step_act(void)
{
	struct step_store *ss;
	int i;

	for (i = step.nstores; i > 0; i--) {
		ss = &step.stores[i - 1];
		memcpy(ss->new, ss->addr, ss->size);
		memcpy(ss->addr, ss->old, ss->size);
	}
	step.act();
	for (i = 0; i < step.nstores; i++) {
		ss = &step.stores[i];
		memcpy(ss->addr, ss->new, ss->size);
	}
}

static void
step_access(uintptr_t addr, int size, bool store)
{
	const struct peer *pe = step.f->pe;
	struct step_store *ss;

	if (++step.seen == step.at)
		step_act();
	if (!store || !step.buffers || addr - pe->pe_mem >= pe->pe_size)
		return;
	CHECK(step.nstores < (int)nitems(step.stores) && size <= (int)sizeof(ss->old),
	    "%d stores, %d bytes", step.nstores, size);
	ss = &step.stores[step.nstores++];
	*ss = (struct step_store){ .addr = (void *)addr, .size = size };
	memcpy(ss->old, ss->addr, size);
}

static void
step_fence(void)
{

	step.nstores = 0;
}

static void
step_begin(struct fix *f, int at, void (*act)(void))
{
	static bool buffers;

	/* In every second pass over the moments. */
	if (at == 0)
		buffers = !buffers;
	step = (struct step){ .f = f, .at = at, .act = act, .buffers = buffers };
	if (at == 0)
		act();
	kpi_access_at = step_access;
	kpi_fence_hook = step_fence;
}

/* If the moment has not come, it is now.  Returns how many loads and stores there were. */
static int
step_end(void)
{

	kpi_access_at = NULL;
	kpi_fence_hook = NULL;
	if (step.at > step.seen)
		step_act();
	return (step.seen);
}

static struct {
	struct peer_chain chains[2];
	int		 n;
	bool		 interrupt;
} wake;

static void
wake_act(void)
{
	int i;

	for (i = 0; i < wake.n; i++) {
		fix_complete(step.f, &wake.chains[i], 0);
		wake.interrupt |= step.f->po->po_interrupts(step.f->pe);
	}
}

/*
 * One case: n chains complete at a moment of pvq_intr_enable(after).  Returns how many moments there
 * are.
 */
static int
wake_case(struct fix *f, uintptr_t pos, int n, u_int after, int at)
{
	struct pvq_done done[2];
	bool waits;
	int i, seen;

	pvq_intr_disable(f->q);
	wake.n = n;
	wake.interrupt = false;
	for (i = 0; i < n; i++) {
		fix_post(f, i + 1, 0, 1);
		CHECK(f->po->po_fetch(f->pe, &wake.chains[i]), "fetch");
	}
	/* What interrupted before the driver began to wait does not count. */
	step_begin(f, at, wake_act);
	if (at == 0)
		wake.interrupt = false;
	waits = pvq_intr_enable(f->q, after);
	seen = step_end();
	CHECK(waits || wake.interrupt, "lost: position %lu, %d chains, after %u, access %d", pos,
	    n, after, at);
	CHECK(fix_collect(f, done, 2) == n, "get");
	return (seen + 2);
}

static void
no_wakeup_is_lost(const struct impl *im)
{
	struct fix f;
	uintptr_t pos;
	int at, end = POSITIONS, moments, n, turn;
	u_int after;

	fix_open(&f, im, 4, 1);
	pos = 0;
	for (after = 1; after <= 2; after++) {
		for (n = after; n <= 2; n++) {
			moments = 1;
			for (turn = at = 0; turn < end; turn += n) {
				moments = wake_case(&f, pos, n, after, at);
				CHECK(moments > 5, "the driver tells of no accesses");
				pos += n;
				at = (at + 1) % moments;
			}
			/* Two at a time reach every second position only: change over. */
			fix_turn(&f, 1);
			pos++;
		}
	}
	fix_close(&f);
}

static bool wake_listened;

static void
listen_act(void)
{

	wake_listened = step.f->po->po_listen(step.f->pe);
}

/*
 * One case: the peer begins to listen at a moment of n commits and a kick.  Returns how many moments
 * there are.
 */
static int
kick_case(struct fix *f, uintptr_t pos, int n, int at)
{
	struct peer_chain pr;
	u_int kicks = f->pe->pe_kicks;
	int i, seen;

	f->po->po_ignore(f->pe);
	wake_listened = false;
	step_begin(f, at, listen_act);
	for (i = 0; i < n; i++)
		fix_post(f, i + 1, 0, 1);
	(void)pvq_kick(f->q);
	seen = step_end();
	CHECK(wake_listened || f->pe->pe_kicks != kicks, "lost: position %lu, %d chains, access %d",
	    pos, n, at);
	for (i = 0; i < n; i++) {
		CHECK(f->po->po_fetch(f->pe, &pr), "fetch");
		fix_complete(f, &pr, 0);
		fix_get(f, i + 1, 0);
	}
	return (seen + 2);
}

static void
no_kick_is_lost(const struct impl *im)
{
	struct fix f;
	uintptr_t pos;
	int at, end = POSITIONS, moments, n, turn;

	fix_open(&f, im, 4, 1);
	pos = 0;
	for (n = 1; n <= 2; n++) {
		for (turn = at = 0; turn < end; turn += n) {
			moments = kick_case(&f, pos, n, at);
			CHECK(moments > 5, "the driver tells of no accesses");
			pos += n;
			at = (at + 1) % moments;
		}
	}
	fix_close(&f);
}

const struct pvq_test pvq_event_tests[] = {
	{ "kick_only_when_asked", "The peer says whether it requests a kick",
	    kick_only_when_asked },
	{ "one_kick_for_a_batch", "However many commits there were", one_kick_for_a_batch },
	{ "kick_after_turns_without", "More commits than the index has values",
	    kick_after_turns_without, 0, 0, true },
	{ "new_queue_interrupts", "At the first completion", new_queue_interrupts },
	{ "disabled_queue_is_silent", "Also for a peer that looks late", disabled_queue_is_silent },
	{ "interrupt_comes_when_asked_for", "At the completion that was named",
	    interrupt_comes_when_asked_for },
	{ "enable_sees_what_waits", "And says so", enable_sees_what_waits },
	{ "no_wakeup_is_lost", "Completion at any moment of intr_enable, at any index",
	    no_wakeup_is_lost },
	{ "no_kick_is_lost", "Peer listens at any moment of commit and kick, at any index",
	    no_kick_is_lost },
	{ .name = NULL }
};
