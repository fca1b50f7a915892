/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen's shared rings (xen/io/ring.h), an implementation of pvq(9).
 *
 * A ring is a header and slots, a power of two of them, in one to sixteen pages
 * that are granted to the back end.  We write requests and it writes responses,
 * into the same slots: a response takes the place of a request that was read.
 *
 *	req_prod	requests that we made
 *	req_event	notify the back end when req_prod gets to it
 *	rsp_prod	responses that the back end made
 *	rsp_event	notify us when rsp_prod gets to it
 *
 * All four run freely.  The back end writes rsp_prod and req_event, we the
 * other two.
 *
 * Chains.  A chain is one or more requests, each with an id of ours, and
 * perhaps some without (netif's extra info).  A response names the id of the
 * request that it answers; the chain is done when all its ids were.  For a ring
 * in which responses come in the order of requests (GRANT_RING_F_INORDER) the
 * number of the slot is the id, and what is in a response is the protocol's
 * alone.
 *
 * Private state.  gr_shadow, by id: the chain that it belongs to, the next id
 * of the chain, and, of the first, the cookie and how many answers are missing.
 * Free ids are kept in a circular array as virtqueue_split.c keeps its
 * descriptors: taken by the put side, returned by the get side, with no lock
 * between them.
 *
 * Room.  A slot is free for a new request when its response was read
 * (rsp_cons), and when the chain that it belongs to is done, so that there is
 * an id for each slot.  Responses come in any order, so neither follows from
 * the other: q_given is the lesser of the two counts.
 *
 * Barriers.
 *
 *	commit       slots      release   req_prod
 *	             pairs with the back end's acquire after it read req_prod
 *	get          rsp_prod   acquire   slots, buffers
 *	             pairs with the back end's release before it wrote rsp_prod
 *	kick         req_prod   full      req_event
 *	             pairs with the back end's full barrier between its write of
 *	             req_event and its last look at req_prod: one of the two
 *	             sees the other's write
 *	intr_enable  rsp_event  full      rsp_prod
 *	             the mirror image
 *
 * Trust.  rsp_prod may not be ahead of what was committed.  A response is
 * copied out, and the copy is what is checked and handed to the owner; its id
 * must be in flight, and one for a request without an id needs one that was not
 * answered.  req_event can be anything.  Slots that hold requests are never
 * read back.
 *
 * Locking.  None here: see pvq.h.  The put side and the get side may run at the
 * same time, always; gs_state is what hands an id from one to the other.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>

#include <machine/atomic.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/xen/grant_ring.h>
#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xen_var.h>

static MALLOC_DEFINE(M_GRANT_RING, "grant_ring", "Xen shared rings");

#define	GRANT_RING_HEADER	64	/* bytes before the slots */
#define	GRANT_RING_MAX_MSGS	32	/* bits of gm_noid */
#define	GRANT_RING_NEVER	(1U << 31)	/* half a turn ahead */

/*
 * xen/io/ring.h makes this for each protocol; the part before the slots is the
 * same for all.
 */
struct gr_header {
	volatile uint32_t gh_req_prod;
	volatile uint32_t gh_req_event;
	volatile uint32_t gh_rsp_prod;
	volatile uint32_t gh_rsp_event;
	uint8_t		 gh_pad[GRANT_RING_HEADER - 4 * sizeof(uint32_t)];
};
_Static_assert(sizeof(struct gr_header) == GRANT_RING_HEADER,
    "header of a shared ring");

enum gr_state {
	GR_IDLE = 0,		/* not in flight */
	GR_POSTED,		/* committed: the back end may answer it */
};

struct gr_shadow {
	volatile uint32_t gs_state;	/* enum gr_state */
	uint16_t	 gs_first;	/* first id of the chain */
	uint16_t	 gs_next;	/* next one */
	/* Of the first id. */
	uint16_t	 gs_nids;
	uint16_t	 gs_nslots;
	uint16_t	 gs_missing;	/* answers */
	uint32_t	 gs_seq;	/* q_committed at the time of the put */
	void		*gs_cookie;
};

struct grant_ring {
	struct pvq	 gr_pvq;	/* first */
	/* Constant. */
	struct grant_ring_params gr_params;
	u_int		 gr_life;	/* xen_life at its creation */
	struct gr_header *gr_header;
	char		*gr_slots;
	size_t		 gr_slot_size;
	uint32_t	 gr_mask;	/* q_size - 1 */
	struct xen_gnttab_pages *gr_pages;
	uint16_t	*gr_ids;	/* circular array of free ids */
	struct gr_shadow *gr_shadow;
	char		*gr_rsps;	/* copies of responses, q_size */
	/* Put side; q_taken is req_prod, counted on for what is staged. */
	volatile uint32_t gr_base	/* q_taken at the last commit */
	    __aligned(CACHE_LINE_SIZE);
	uint32_t	 gr_ids_taken;
	uint32_t	 gr_ids_base;	/* at the last commit */
	uint32_t	 gr_staged;	/* chains */
	uint32_t	 gr_staged_segs;
	uint32_t	 gr_staged_noids;
	uint32_t	 gr_unkicked;	/* slots committed
					 * since the last kick */
	volatile uint32_t gr_noids;	/* requests without an id, committed */
	/* Get side. */
	uint32_t	 gr_rsp_cons
	    __aligned(CACHE_LINE_SIZE);
	uint32_t	 gr_ids_given;
	uint32_t	 gr_done_slots;	/* of chains that are done */
	uint32_t	 gr_nulls;	/* answers to requests without an id */
};

#define	GR(q)	__containerof((q), struct grant_ring, gr_pvq)

/*
 * The domain was suspended since.  The ring is as the toolstack found it while
 * the back end was still running: a response may be incomplete.
 */
static inline bool
gr_past(const struct grant_ring *gr)
{

	return (gr->gr_life != atomic_load_int(&xen_life));
}

static inline bool
gr_inorder(const struct grant_ring *gr)
{

	return ((gr->gr_params.grp_flags & GRANT_RING_F_INORDER) != 0);
}

static inline char *
gr_slot(const struct grant_ring *gr, uint32_t index)
{

	return (gr->gr_slots + (index & gr->gr_mask) * gr->gr_slot_size);
}

static int
gr_prepare(const struct pvq *q, const struct pvq_chain *pc)
{
	const struct grant_ring *gr = __containerof(q, const struct grant_ring,
	    gr_pvq);
	const struct grant_msgs *gm = pc->pc_arg;

	if (gm == NULL || gm->gm_n == 0 ||
	    gm->gm_n > MIN(gr->gr_params.grp_max_msgs, q->q_size) ||
	    pc->pc_nread + pc->pc_nwrite > q->q_max_segs)
		return (0);
	return (gm->gm_n);
}

static inline void
gr_write_id(const struct grant_ring *gr, char *slot, uint32_t id)
{
	uint16_t v16 = id;
	uint64_t v64 = id;

	switch (gr->gr_params.grp_id_size) {
	case 2:
		memcpy(slot + gr->gr_params.grp_req_id, &v16, sizeof(v16));
		break;
	case 4:
		memcpy(slot + gr->gr_params.grp_req_id, &id, sizeof(id));
		break;
	case 8:
		memcpy(slot + gr->gr_params.grp_req_id, &v64, sizeof(v64));
		break;
	default:
		break;
	}
}

static inline uint64_t
gr_read_id(const struct grant_ring *gr, const char *rsp)
{
	uint16_t v16;
	uint32_t v32;
	uint64_t v64;

	switch (gr->gr_params.grp_id_size) {
	case 2:
		memcpy(&v16, rsp + gr->gr_params.grp_rsp_id, sizeof(v16));
		return (v16);
	case 4:
		memcpy(&v32, rsp + gr->gr_params.grp_rsp_id, sizeof(v32));
		return (v32);
	default:
		memcpy(&v64, rsp + gr->gr_params.grp_rsp_id, sizeof(v64));
		return (v64);
	}
}

/* An id for the request that goes to slot `index'. */
static inline uint16_t
gr_take_id(struct grant_ring *gr, uint32_t index)
{

	if (gr_inorder(gr))
		return (index & gr->gr_mask);
	return (gr->gr_ids[gr->gr_ids_taken++ & gr->gr_mask]);
}

/*
 * Copy a request to its slot: of the sizes that there are each has code of its
 * own.
 */
static inline void
gr_copy_req(char *slot, const char *msg, size_t size)
{
	if (size == 12)
		memcpy(slot, msg, 12);
	else if (size == 8)
		memcpy(slot, msg, 8);
	else
		memcpy(slot, msg, size);
}

static void
gr_put_any(struct grant_ring *gr, const struct pvq_chain *pc)
{
	const struct grant_msgs *gm = pc->pc_arg;
	struct gr_shadow *first = NULL, *gs, *last = NULL;
	uint16_t id;
	char *slot;
	u_int i;

	KASSERT(gr_prepare(&gr->gr_pvq, pc) > 0 &&
	    pvq_room(&gr->gr_pvq) >= gr_prepare(&gr->gr_pvq, pc),
	    ("%s: no room", __func__));
	KASSERT(pc->pc_cookie != NULL, ("%s: no cookie", __func__));
	KASSERT(gr_inorder(gr) || (gm->gm_noid & 1) == 0,
	    ("%s: the first has no id", __func__));
	for (i = 0; i < gm->gm_n; i++, gr->gr_pvq.q_taken++) {
		slot = gr_slot(gr, gr->gr_pvq.q_taken);
		gr_copy_req(slot, (const char *)gm->gm_msgs +
		    i * gr->gr_params.grp_req_size, gr->gr_params.grp_req_size);
		if (!gr_inorder(gr) && (gm->gm_noid & (1U << i)) != 0) {
			gr->gr_staged_noids++;
			continue;
		}
		id = gr_take_id(gr, gr->gr_pvq.q_taken);
		if ((gm->gm_noid & (1U << i)) == 0)
			gr_write_id(gr, slot, id);
		gs = &gr->gr_shadow[id];
		KASSERT(gs->gs_state == GR_IDLE,
		    ("%s: id %u in flight", __func__, id));
		if (first == NULL) {
			first = gs;
			first->gs_nids = 0;
		} else
			last->gs_next = id;
		gs->gs_first = first - gr->gr_shadow;
		first->gs_nids++;
		last = gs;
	}
	first->gs_cookie = pc->pc_cookie;
	first->gs_missing = first->gs_nids;
	first->gs_nslots = gm->gm_n;
	first->gs_seq = gr->gr_pvq.q_committed + gr->gr_staged;
	gr->gr_staged++;
	gr->gr_staged_segs += pc->pc_nread + pc->pc_nwrite;
}

static void
gr_put(struct pvq *q, const struct pvq_chain *pc, int n)
{
	for (; n > 0; n--, pc++)
		gr_put_any(GR(q), pc);
}

static void
gr_abort(struct pvq *q)
{
	struct grant_ring *gr = GR(q);

	q->q_taken = gr->gr_base;
	gr->gr_ids_taken = gr->gr_ids_base;
	gr->gr_staged = gr->gr_staged_segs = gr->gr_staged_noids = 0;
}

/*
 * The first chains, as long as each is one message with an id, for the back end
 * and for the get side at once.  Returns how many there were.
 */
static inline int
gr_post_plain(struct grant_ring *gr, const struct pvq_chain *pc, int n)
{
	/*
	 * Copies: what is stored below might be any of these, as far as a
	 * compiler can tell.
	 */
	const size_t size = gr->gr_params.grp_req_size,
	    slot_size = gr->gr_slot_size;
	const uint32_t mask = gr->gr_mask, at = gr->gr_pvq.q_taken,
	    seq = gr->gr_pvq.q_committed;
	const uint32_t taken = gr->gr_ids_taken;
	struct gr_shadow *const shadow = gr->gr_shadow, *gs;
	const uint16_t *const ids = gr->gr_ids;
	char *const slots = gr->gr_slots, *slot;
	const bool inorder = gr_inorder(gr);
	const struct grant_msgs *gm;
	uint32_t segs = 0;
	uint16_t id;
	int i;

	for (i = 0; i < n; i++, pc++) {
		gm = pc->pc_arg;
		if (gm->gm_n != 1 || gm->gm_noid != 0)
			break;
		KASSERT(pvq_room(&gr->gr_pvq) > i, ("%s: no room", __func__));
		KASSERT(pc->pc_cookie != NULL, ("%s: no cookie", __func__));
		id = inorder ? (at + i) & mask : ids[(taken + i) & mask];
		slot = slots + ((at + i) & mask) * slot_size;
		gs = &shadow[id];
		KASSERT(gs->gs_state == GR_IDLE,
		    ("%s: id %u in flight", __func__, id));
		gr_copy_req(slot, gm->gm_msgs, size);
		gr_write_id(gr, slot, id);
		gs->gs_first = id;
		gs->gs_nids = gs->gs_nslots = gs->gs_missing = 1;
		gs->gs_seq = seq + i;
		gs->gs_cookie = pc->pc_cookie;
		segs += pc->pc_nread + pc->pc_nwrite;
		atomic_store_rel_32(&gs->gs_state, GR_POSTED);
	}
	gr->gr_pvq.q_taken = at + i;
	if (!inorder)
		gr->gr_ids_taken = taken + i;
	gr->gr_staged = i;
	gr->gr_staged_segs = segs;
	return (i);
}

/*
 * Hand the staged ids, from these places on, to the get side, which looks at
 * them whenever the back end names one.
 */
static void
gr_post_ids(struct grant_ring *gr, uint32_t slot, uint32_t place)
{
	uint32_t i;

	if (gr_inorder(gr)) {
		for (i = slot; i != gr->gr_pvq.q_taken; i++)
			atomic_store_rel_32(&gr->gr_shadow[i &
			    gr->gr_mask].gs_state, GR_POSTED);
		return;
	}
	for (i = place; i != gr->gr_ids_taken; i++)
		atomic_store_rel_32(&gr->gr_shadow[gr->gr_ids[i &
		    gr->gr_mask]].gs_state, GR_POSTED);
}

/* Show what is staged, whose ids the get side has, to the back end. */
static inline void
gr_show(struct grant_ring *gr)
{
	struct pvq *q = &gr->gr_pvq;

	gr->gr_noids += gr->gr_staged_noids;
	gr->gr_unkicked += q->q_taken - gr->gr_base;
	gr->gr_base = q->q_taken;
	gr->gr_ids_base = gr->gr_ids_taken;
	q->q_committed += gr->gr_staged;
	q->q_stats.qs_chains += gr->gr_staged;
	q->q_stats.qs_segs += gr->gr_staged_segs;
	gr->gr_staged = gr->gr_staged_segs = gr->gr_staged_noids = 0;
	atomic_store_rel_32(&gr->gr_header->gh_req_prod, q->q_taken);
}

static void
gr_commit(struct pvq *q)
{
	struct grant_ring *gr = GR(q);

	if (gr->gr_staged == 0)
		return;
	gr_post_ids(gr, gr->gr_base, gr->gr_ids_base);
	gr_show(gr);
}

/*
 * Without a second pass: what can't be aborted may be the get side's before it
 * is the back end's, whose answers are not looked at before gr_base has counted
 * it.
 */
static void
gr_post(struct pvq *q, const struct pvq_chain *pc, int n)
{
	struct grant_ring *gr = GR(q);
	uint32_t place, slot;
	int done;

	KASSERT(gr->gr_staged == 0,
	    ("%s: %u chains not committed", __func__, gr->gr_staged));
	done = gr_post_plain(gr, pc, n);
	if (done < n) {
		slot = q->q_taken;
		place = gr->gr_ids_taken;
		gr_put(q, pc + done, n - done);
		gr_post_ids(gr, slot, place);
	}
	gr_show(gr);
}

/*
 * An event that the back end did not request finds no work there, and is
 * counted against us (Xen's advisory XSA-332).
 */
static bool
gr_kick(struct pvq *q)
{
	struct grant_ring *gr = GR(q);
	uint32_t event, slots = gr->gr_unkicked;

	KASSERT(gr->gr_staged == 0,
	    ("%s: %u chains not committed", __func__, gr->gr_staged));
	if (slots == 0 || pvq_broken(q))
		return (false);
	atomic_thread_fence_seq_cst();
	event = atomic_load_32(&gr->gr_header->gh_req_event);
	gr->gr_unkicked = 0;
	/* Is it one of the indices that req_prod has reached? */
	if (gr->gr_base - event >= slots) {
		q->q_stats.qs_nokicks++;
		return (false);
	}
	q->q_stats.qs_kicks++;
	gr->gr_params.grp_notify(gr->gr_params.grp_notify_arg);
	return (true);
}

/* Copy a response out of the ring, each byte once. */
static inline void
gr_copy_rsp(const volatile char *slot, char *to, size_t size)
{
	size_t i = 0;

	/* netif's, without a loop. */
	if (size == 4 || size == 8) {
		*(uint32_t *)to = *(const volatile uint32_t *)slot;
		if (size == 8)
			*(uint32_t *)(to + 4) =
			    *(const volatile uint32_t *)(slot + 4);
		return;
	}
	for (; i + sizeof(uint32_t) <= size; i += sizeof(uint32_t))
		*(uint32_t *)(to + i) = *(const volatile uint32_t *)(slot + i);
	for (; i < size; i++)
		to[i] = slot[i];
}

/* Is a response (in the ring, or a copy) for a request without an id? */
static bool
gr_is_null(const struct grant_ring *gr, const volatile char *rsp)
{

	return (gr->gr_params.grp_null && *(const volatile uint16_t *)
	    (rsp + gr->gr_params.grp_null_off) == gr->gr_params.grp_null_value);
}

/*
 * Pass one that does.  Without a request that it could be for, the queue is
 * broken.
 */
static void
gr_pass_null(struct grant_ring *gr)
{

	if (gr->gr_nulls == gr->gr_noids) {
		pvq_break(&gr->gr_pvq, PVQ_FAULT_ID,
		    gr->gr_params.grp_null_value);
		return;
	}
	gr->gr_nulls++;
	gr->gr_rsp_cons++;
}

/*
 * Which request does a response answer?  NULL, and the queue is broken, if none
 * in flight.
 */
static inline struct gr_shadow *
gr_check(struct grant_ring *gr, const char *rsp)
{
	struct gr_shadow *gs;
	uint64_t id;

	id = gr_inorder(gr) ? gr->gr_rsp_cons & gr->gr_mask :
	    gr_read_id(gr, rsp);
	if (id < gr->gr_pvq.q_size) {
		gs = &gr->gr_shadow[id];
		if (atomic_load_acq_32(&gs->gs_state) == GR_POSTED)
			return (gs);
	}
	pvq_break(&gr->gr_pvq, PVQ_FAULT_ID, id);
	return (NULL);
}

/* Give a chain's ids back.  Its slots are given by gr_publish(). */
static void
gr_release(struct grant_ring *gr, struct gr_shadow *first)
{
	struct gr_shadow *gs = first;
	uint16_t id, n;

	gr->gr_done_slots += first->gs_nslots;
	if (gr_inorder(gr))
		return;
	id = first->gs_first;
	for (n = first->gs_nids; n > 0; n--, id = gs->gs_next) {
		gr->gr_ids[gr->gr_ids_given++ & gr->gr_mask] = id;
		gs = &gr->gr_shadow[id];
	}
}

/*
 * Publish the free slots.  Pairs with the acquire in pvq_room(): ids are in
 * gr_ids before they count.
 */
static void
gr_publish(struct grant_ring *gr)
{
	uint32_t given;

	given = gr->gr_done_slots;
	if ((int32_t)(gr->gr_rsp_cons - given) < 0)
		given = gr->gr_rsp_cons;
	atomic_store_rel_32(&gr->gr_pvq.q_given, given + gr->gr_pvq.q_size);
}

/*
 * Look at one response.  Returns how many chains it completes, one or none; -1
 * if it can't be passed.
 *
 * What was copied before the life is looked at was there in this life; a
 * suspension may come between any two responses.
 */
static inline int
gr_get_one(struct grant_ring *gr, struct pvq_done *done, char *rsp)
{
	struct gr_shadow *first, *gs;

	gr_copy_rsp(gr_slot(gr, gr->gr_rsp_cons), rsp,
	    gr->gr_params.grp_rsp_size);
	if (gr_past(gr))
		return (-1);
	if (!gr_inorder(gr) && gr_is_null(gr, rsp)) {
		gr_pass_null(gr);
		return (pvq_broken(&gr->gr_pvq) ? -1 : 0);
	}
	gs = gr_check(gr, rsp);
	if (gs == NULL)
		return (-1);
	gr->gr_rsp_cons++;
	gs->gs_state = GR_IDLE;
	first = &gr->gr_shadow[gs->gs_first];
	if (--first->gs_missing > 0)
		return (0);
	done->pd_cookie = first->gs_cookie;
	done->pd_result = (uintptr_t)rsp;
	gr_release(gr, first);
	return (1);
}

/*
 * The first responses, up to prod, as long as each completes a chain that has
 * one id.  Returns how many there were; the next one is for gr_get_one().
 */
static inline int
gr_get_plain(struct grant_ring *gr, struct pvq_done *done, int max,
    uint32_t prod)
{
	/* Copies, as in gr_post_plain(). */
	const size_t size = gr->gr_params.grp_rsp_size,
	    slot_size = gr->gr_slot_size;
	const uint32_t mask = gr->gr_mask, given = gr->gr_ids_given;
	const bool inorder = gr_inorder(gr);
	struct gr_shadow *const shadow = gr->gr_shadow, *gs;
	char *const slots = gr->gr_slots, *rsp = gr->gr_rsps;
	uint16_t *const ids = gr->gr_ids;
	uint32_t cons = gr->gr_rsp_cons, nslots = 0;
	uint64_t id;
	int n;

	/* There are as many copies of responses as slots. */
	max = MIN(max, gr->gr_pvq.q_size);
	for (n = 0; n < max && cons != prod; n++, cons++, rsp += size) {
		gr_copy_rsp(slots + (cons & mask) * slot_size, rsp, size);
		if (gr_past(gr) || (!inorder && gr_is_null(gr, rsp)))
			break;
		id = inorder ? cons & mask : gr_read_id(gr, rsp);
		if (id > mask)
			break;
		gs = &shadow[id];
		if (atomic_load_acq_32(&gs->gs_state) != GR_POSTED ||
		    gs->gs_nids != 1 || gs->gs_first != id)
			break;
		gs->gs_state = GR_IDLE;
		gs->gs_missing = 0;
		nslots += gs->gs_nslots;
		done[n].pd_cookie = gs->gs_cookie;
		done[n].pd_result = (uintptr_t)rsp;
		if (!inorder)
			ids[(given + n) & mask] = id;
	}
	gr->gr_rsp_cons = cons;
	gr->gr_done_slots += nslots;
	if (!inorder)
		gr->gr_ids_given = given + n;
	return (n);
}

static int
gr_get(struct pvq *q, struct pvq_done *done, int max)
{
	struct grant_ring *gr = GR(q);
	uint32_t prod;
	int got, n;

	if (pvq_broken(q))
		return (0);
	prod = atomic_load_acq_32(&gr->gr_header->gh_rsp_prod);
	/*
	 * Looked at after prod: what was read in this life is valid, with all
	 * that is before it.
	 */
	if (prod == gr->gr_rsp_cons || gr_past(gr))
		return (0);
	/* What is in flight, from a count that the put side only adds to. */
	if (prod - gr->gr_rsp_cons > gr->gr_base - gr->gr_rsp_cons) {
		pvq_break(q, PVQ_FAULT_INDEX, prod);
		return (0);
	}
	n = gr_get_plain(gr, done, max, prod);
	for (got = 0; n < max && gr->gr_rsp_cons != prod && got >= 0;
	    n += MAX(got, 0))
		got = gr_get_one(gr, &done[n], gr->gr_rsps + (n & gr->gr_mask) *
		    gr->gr_params.grp_rsp_size);
	/* Those for requests without an id complete nothing. */
	while (gr->gr_rsp_cons != prod && !pvq_broken(q) && !gr_past(gr) &&
	    !gr_inorder(gr) && gr_is_null(gr, gr_slot(gr, gr->gr_rsp_cons)))
		gr_pass_null(gr);
	q->q_completed += n;
	q->q_stats.qs_done += n;
	gr_publish(gr);
	if (gr->gr_params.grp_worked != NULL)
		gr->gr_params.grp_worked(gr->gr_params.grp_notify_arg);
	return (n);
}

/*
 * How many responses make up `after' chains?  In proportion, as it is not known
 * which come first; but the next chain can be done with the next response.
 */
static uint32_t
gr_responses_of(struct grant_ring *gr, unsigned int after)
{
	uint32_t chains, slots;

	if (after <= 1)
		return (1);
	/*
	 * Slots first: what the put side adds meanwhile makes it early rather
	 * than late.
	 */
	slots = atomic_load_acq_32(&gr->gr_base) - gr->gr_rsp_cons;
	chains = gr->gr_pvq.q_committed - gr->gr_pvq.q_completed;
	if (chains == 0 || slots == 0)
		return (1);
	if (after >= chains)
		return (slots);
	return (MAX((uint64_t)slots * after / chains, 1));
}

static bool
gr_intr_enable(struct pvq *q, unsigned int after)
{
	struct grant_ring *gr = GR(q);
	uint32_t n;

	if (pvq_broken(q) || gr_past(gr))
		return (false);
	n = gr_responses_of(gr, after);
	atomic_store_32(&gr->gr_header->gh_rsp_event, gr->gr_rsp_cons + n);
	atomic_thread_fence_seq_cst();
	return (atomic_load_32(&gr->gr_header->gh_rsp_prod) -
	    gr->gr_rsp_cons >= n);
}

/* There is no "off", only an index as far away as can be: half a turn. */
static void
gr_intr_disable(struct pvq *q)
{
	struct grant_ring *gr = GR(q);

	atomic_store_32(&gr->gr_header->gh_rsp_event,
	    gr->gr_rsp_cons + GRANT_RING_NEVER);
}

/* Give up a chain that will not be answered any more. */
static void *
gr_give_up(struct grant_ring *gr, struct gr_shadow *first)
{
	struct gr_shadow *gs = first;
	u_int id, n;

	for (n = first->gs_nids, id = first->gs_first; n > 0; n--) {
		gs = &gr->gr_shadow[id];
		gs->gs_state = GR_IDLE;
		id = gr_inorder(gr) ? (id + 1) & gr->gr_mask : gs->gs_next;
	}
	gr_release(gr, first);
	gr->gr_pvq.q_completed++;
	return (first->gs_cookie);
}

/* The oldest chain in flight: one of which an answer is missing. */
static void *
gr_drain(struct pvq *q)
{
	struct grant_ring *gr = GR(q);
	struct gr_shadow *first, *oldest = NULL;
	uint32_t age, oldest_age = 0;
	u_int i;

	gr_abort(q);
	for (i = 0; i < q->q_size; i++) {
		if (gr->gr_shadow[i].gs_state != GR_POSTED)
			continue;
		first = &gr->gr_shadow[gr->gr_shadow[i].gs_first];
		age = q->q_committed - first->gs_seq;
		if (oldest == NULL || age > oldest_age) {
			oldest = first;
			oldest_age = age;
		}
	}
	if (oldest != NULL)
		return (gr_give_up(gr, oldest));
	/* The rest gets no response either. */
	gr->gr_rsp_cons = gr->gr_done_slots = gr->gr_base;
	gr->gr_nulls = gr->gr_noids;
	gr_publish(gr);
	return (NULL);
}

/* Nothing is staged or in flight, from the place `at' of the ring on. */
static void
gr_begin_at(struct grant_ring *gr, uint32_t at)
{
	struct pvq *q = &gr->gr_pvq;
	u_int i;

	for (i = 0; i < q->q_size; i++) {
		gr->gr_ids[i] = i;
		gr->gr_shadow[i].gs_state = GR_IDLE;
	}
	q->q_committed = q->q_completed = 0;
	q->q_taken = gr->gr_base = gr->gr_rsp_cons = gr->gr_done_slots = at;
	q->q_given = at + q->q_size;
	gr->gr_ids_taken = gr->gr_ids_base = gr->gr_ids_given = 0;
	gr->gr_staged = gr->gr_staged_segs = gr->gr_staged_noids = 0;
	gr->gr_unkicked = gr->gr_noids = gr->gr_nulls = 0;
	q->q_fault = PVQ_OK;
}

/*
 * The ring goes on where the back end is, which has seen req_prod, and may not
 * be notified of it.
 */
static int
gr_forget(struct pvq *q)
{
	struct grant_ring *gr = GR(q);
	const uint32_t prod = atomic_load_32(&gr->gr_header->gh_req_prod);

	if (atomic_load_acq_32(&gr->gr_header->gh_rsp_prod) != prod) {
		gr->gr_params.grp_notify(gr->gr_params.grp_notify_arg);
		return (EBUSY);
	}
	gr_begin_at(gr, prod);
	return (0);
}

/* Everything as it was when the queue was created, but for the statistics. */
static int
gr_reinit(struct pvq *q)
{
	struct grant_ring *gr = GR(q);

	gr_abort(q);
	if (q->q_committed != q->q_completed)
		return (EBUSY);
	gr->gr_life = atomic_load_int(&xen_life);
	gr_begin_at(gr, 0);
	memset(gr->gr_header, 0, ptoa(1 << gr->gr_params.grp_order));
	gr->gr_header->gh_req_event = gr->gr_header->gh_rsp_event = 1;
	return (0);
}

static void
gr_free(struct pvq *q)
{
	struct grant_ring *gr = GR(q);

	KASSERT(q->q_committed == q->q_completed, ("%s: %u chains in flight",
	    q->q_name, q->q_committed - q->q_completed));
	xen_gnttab_pages_free(gr->gr_pages);
	free(gr->gr_rsps, M_GRANT_RING);
	free(gr->gr_shadow, M_GRANT_RING);
	free(gr->gr_ids, M_GRANT_RING);
	free(gr, M_GRANT_RING);
}

static const struct pvq_ops gr_ops = {
	.qo_name = "grant",
	.qo_prepare = gr_prepare,
	.qo_put = gr_put,
	.qo_abort = gr_abort,
	.qo_commit = gr_commit,
	.qo_post = gr_post,
	.qo_kick = gr_kick,
	.qo_get = gr_get,
	.qo_intr_enable = gr_intr_enable,
	.qo_intr_disable = gr_intr_disable,
	.qo_drain = gr_drain,
	.qo_forget = gr_forget,
	.qo_reinit = gr_reinit,
	.qo_free = gr_free,
};

uint16_t
grant_ring_size(u_int order, size_t slot)
{
	size_t n = (ptoa(1 << order) - GRANT_RING_HEADER) / slot;

	return (n == 0 ? 0 : 1 << (flsl(n) - 1));
}

static bool
gr_bad_id(const struct grant_ring_params *p)
{

	if ((p->grp_flags & GRANT_RING_F_INORDER) != 0 && p->grp_id_size == 0)
		return (false);
	if (p->grp_id_size != 2 && p->grp_id_size != 4 && p->grp_id_size != 8)
		return (true);
	return (p->grp_req_id + p->grp_id_size > p->grp_req_size ||
	    ((p->grp_flags & GRANT_RING_F_INORDER) == 0 &&
	    p->grp_rsp_id + p->grp_id_size > p->grp_rsp_size));
}

static bool
gr_bad_params(const struct grant_ring_params *p)
{

	return (p->grp_order > GRANT_RING_MAX_ORDER || p->grp_max_segs == 0 ||
	    p->grp_req_size == 0 ||
	    p->grp_rsp_size == 0 || p->grp_req_size > PAGE_SIZE / 2 ||
	    p->grp_rsp_size > PAGE_SIZE / 2 ||
	    p->grp_max_msgs > GRANT_RING_MAX_MSGS || (p->grp_null &&
	    p->grp_null_off + sizeof(uint16_t) > p->grp_rsp_size) ||
	    gr_bad_id(p));
}

static void
gr_init_common(struct grant_ring *gr, const struct grant_ring_params *params)
{
	struct pvq *q = &gr->gr_pvq;

	gr->gr_params = *params;
	if (gr->gr_params.grp_max_msgs == 0)
		gr->gr_params.grp_max_msgs = 1;
	gr->gr_slot_size = MAX(params->grp_req_size, params->grp_rsp_size);
	q->q_ops = &gr_ops;
	q->q_dev = params->grp_dev;
	q->q_size = grant_ring_size(params->grp_order, gr->gr_slot_size);
	q->q_max_segs = params->grp_max_segs;
	/* A chain of one message is a slot, whatever its segments. */
	q->q_flat_segs = gr->gr_params.grp_max_msgs == 1 ? q->q_max_segs : 0;
	strlcpy(q->q_name, params->grp_name, sizeof(q->q_name));
	gr->gr_mask = q->q_size - 1;
}

int
grant_ring_create(const struct grant_ring_params *params, struct pvq **qp)
{
	struct grant_ring *gr;
	u_int size;
	int error;

	if (gr_bad_params(params))
		return (EINVAL);
	gr = malloc_aligned(sizeof(*gr), CACHE_LINE_SIZE, M_GRANT_RING,
	    M_WAITOK | M_ZERO);
	gr_init_common(gr, params);
	size = gr->gr_pvq.q_size;
	gr->gr_ids = malloc(size * sizeof(*gr->gr_ids), M_GRANT_RING,
	    M_WAITOK | M_ZERO);
	gr->gr_shadow = malloc(size * sizeof(*gr->gr_shadow), M_GRANT_RING,
	    M_WAITOK | M_ZERO);
	gr->gr_rsps = malloc(size * params->grp_rsp_size, M_GRANT_RING,
	    M_WAITOK | M_ZERO);
	error = xen_gnttab_pages_alloc(params->grp_otherend,
	    1 << params->grp_order, M_WAITOK, &gr->gr_pages);
	if (error == 0) {
		gr->gr_header = gr->gr_pages->gp_va;
		gr->gr_slots = (char *)gr->gr_pages->gp_va + GRANT_RING_HEADER;
		error = gr_reinit(&gr->gr_pvq);
	}
	if (error != 0) {
		gr_free(&gr->gr_pvq);
		return (error);
	}
	*qp = &gr->gr_pvq;
	return (0);
}

int
grant_ring_refs(const struct pvq *q, grant_ref_t *refs)
{
	const struct grant_ring *gr = __containerof(q, const struct grant_ring,
	    gr_pvq);
	int n = 1 << gr->gr_params.grp_order;

	memcpy(refs, gr->gr_pages->gp_refs, n * sizeof(*refs));
	return (n);
}
