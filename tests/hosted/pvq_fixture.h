/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the tests of pvq(9) share: a queue, its peer, and chains that can be told apart.
 *
 * Chain number n (1 and up) has n as its cookie, and segments whose addresses and lengths follow from
 * n, so that what arrives at the peer, or comes back, says which it is.
 */

#ifndef _PVQ_FIXTURE_H_
#define	_PVQ_FIXTURE_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/pv/queue/pvq.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "model/peer.h"

#define	FIX_SIZE	16
#define	FIX_MAX_SEGS	6

/* What was shared for a chain, until it comes back. */
struct fix_shared {
	uintptr_t	 n;
	int		 nsegs;
	void		*table;		/* of its own, or NULL */
	bus_dma_segment_t segs[];
};

#define	FIX_MAX_SHARED	4096	/* chains in flight have numbers that differ modulo this */

struct fix {
	const struct impl *im;
	struct peer	*pe;
	const struct peer_ops *po;
	struct pvq	*q;
	struct fix_shared *shared[FIX_MAX_SHARED];
	uintptr_t	 staged[FIX_MAX_SHARED];
	int		 nstaged;
	/* What the statistics are to be, of all that was done by fix_*(). */
	uint64_t	 chains, segs, done;
	bool		 uncounted;	/* not all was done so */
};

/* Create a queue; fails the test if that fails. */
void	fix_open(struct fix *f, const struct impl *im, uint16_t size, uint16_t max_segs);

/* Drain and free it, and check that nothing is left of it. */
void	fix_close(struct fix *f);

/* Put chain n, of so many segments; not committed.  Returns what pvq_reserve() said. */
int	fix_put(struct fix *f, uintptr_t n, int nread, int nwrite);

/* fix_put(), or put and commit in one.  Returns 0 or pvq_reserve()'s error. */
int	fix_put_one(struct fix *f, uintptr_t n, int nread, int nwrite, bool post);

/* pvq_submit() of a chain that can't be put: the error. */
int	fix_submit_fails(struct fix *f, uintptr_t n, int nread, int nwrite);

/* What is staged is committed, or taken back, and not shared any more. */
void	fix_commit(struct fix *f);
void	fix_abort(struct fix *f);

/* pvq_get(): what it gives is not shared any more, and the peer has let go of it. */
int	fix_collect(struct fix *f, struct pvq_done *done, int max);

/* pvq_drain(), after the peer has let go of everything. */
void	*fix_drain(struct fix *f);

/*
 * Put and commit chain n, and it must work: in one step or in two, and with a table of its own, by
 * turns, as far as the ring can.
 */
void	fix_post(struct fix *f, uintptr_t n, int nread, int nwrite);

/* Post count chains from number n on at once: number n + i has i % 3 segments to be read, and one. */
#define	FIX_POSTED	8
void	fix_post_all(struct fix *f, uintptr_t n, int count);

/* The peer fetches a chain, which must be number n. */
void	fix_fetch(struct fix *f, struct peer_chain *pr, uintptr_t n, int nread, int nwrite);

/* The peer completes it, and publishes that. */
void	fix_complete(struct fix *f, const struct peer_chain *pr, uint32_t len);

/* One completion must wait, and be of number n. */
void	fix_get(struct fix *f, uintptr_t n, uint32_t len);

/* Post chain n, fetch, complete and get it. */
void	fix_turn(struct fix *f, uintptr_t n);

/* A chain's bytes that may be written. */
uint32_t fix_room(uintptr_t n, int nwrite);

/* A test of the suite. */
struct pvq_test {
	const char	*name;
	const char	*descr;
	void		(*body)(const struct impl *);
	uint32_t	 needs;		/* IM_*: not run for a ring that can't */
	uint32_t	 lacks;		/* IM_*: nor for one that can do one of these */
	bool		 is_long;	/* not with kpi_bounced: a sync looks at all of a ring */
};

extern const struct pvq_test pvq_basic_tests[];
extern const struct pvq_test pvq_event_tests[];
extern const struct pvq_test pvq_hostile_tests[];
extern const struct pvq_test pvq_random_tests[];
extern const struct pvq_test pvq_stop_tests[];

extern const struct pvq_test pvq_race_tests[];

/* Of virtqueues with IN_ORDER only. */
extern const struct pvq_test pvq_in_order_tests[];

/* Of packed virtqueues only. */
extern const struct pvq_test packed_tests[];

/* Of grant rings only. */
extern const struct pvq_test grant_tests[];

/* The program's: which tests run over which rings; kind NULL ends it. */
struct pvq_list {
	const char	*kind;
	const struct impl *impls;
	const struct pvq_test *tests;
	bool		 bounced;	/* with kpi_bounced */
};

extern const struct pvq_list pvq_lists[];

#endif /* !_PVQ_FIXTURE_H_ */
