/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The peer of a queue, for tests of pvq(9).
 *
 * A test of the conformance suite sees a queue and its peer; which ring is between them is the
 * implementation's (struct impl).  The peer is strict: a chain that breaks the ring's rules fails the
 * test.  It can also be made to break the rules.
 */

#ifndef _PEER_H_
#define	_PEER_H_

#include <dev/pv/queue/pvq.h>

#define	PEER_MAX_SEGS	128

/* A chain as the peer sees it. */
struct peer_chain {
	uint32_t	pr_id;
	int		pr_nread;
	int		pr_nwrite;
	uint64_t	pr_wlen;	/* bytes that may be written */
	struct {
		uint64_t addr;
		uint32_t len;
	} pr_segs[PEER_MAX_SEGS];	/* pr_nread, then pr_nwrite */
};

enum peer_violation {
	VIOLATION_ID_RANGE,		/* an id that no queue of this size has */
	VIOLATION_ID_HUGE,		/* the largest there is */
	VIOLATION_ID_IDLE,		/* an id that is not in flight */
	VIOLATION_ID_TWICE,		/* an id that was completed just before */
	VIOLATION_ID_NOT_HEAD,	/* the second descriptor of a chain */
	VIOLATION_LEN,		/* one byte more than there is room for */
	VIOLATION_LEN_HUGE,		/* 2^32 - 1 bytes */
	VIOLATION_INDEX_AHEAD,	/* one more completion than there are chains */
	VIOLATION_INDEX_FAR,		/* half a turn more */
	VIOLATION_INDEX_BACK,		/* an index that goes back by one */
	VIOLATION_TURN,		/* wrong wrap counter: used */
	VIOLATION_TURN_HALF,		/* the same, but one of the flags */
	VIOLATION_PLACE,		/* an answer one place further than it belongs */
	NVIOLATIONS
};

struct peer;

struct peer_ops {
	/* Take the next chain that the driver committed; false: there is none. */
	bool	(*po_fetch)(struct peer *, struct peer_chain *);
	/* Complete a chain; the driver sees it after po_publish. */
	void	(*po_complete)(struct peer *, uint32_t id, uint32_t len);
	void	(*po_publish)(struct peer *);
	/* Is an interrupt due for what was published since this was last called? */
	bool	(*po_interrupts)(struct peer *);
	/* Ask for a notification of the next chain; true: one is there already. */
	bool	(*po_listen)(struct peer *);
	/* Ask for none. */
	void	(*po_ignore)(struct peer *);
	/* Commit a violation.  False: this ring can not have it, which a test has to expect. */
	bool	(*po_violate)(struct peer *, enum peer_violation, const struct peer_chain *);
	/* Where the indices and events stand, in words. */
	void	(*po_where)(struct peer *, char *, size_t);
	/* Overwrite all shared memory that the driver might foolishly read. */
	void	(*po_scribble)(struct peer *, uint32_t seed);
};

struct peer {
	const struct peer_ops *pe_ops;
	struct pvq	*pe_pvq;
	unsigned int	 pe_kicks;	/* notifications that arrived */
	void		(*pe_kick)(struct peer *);	/* called in place of that, if not NULL */
	void		*pe_kick_arg;
	uintptr_t	 pe_mem;	/* what both sides see, and its size in bytes */
	size_t		 pe_size;
};

/*
 * An implementation of pvq, with the options that it is tested with.  The flags say what the ring can
 * do, where pvq.h leaves that to the ring; a test that needs something of it is not run without.
 */
struct impl {
	const char	*im_name;
	uint32_t	 im_flags;	/* IM_* */
	/* Sizes to try: the extreme ones that must work, and some that must be refused; 0 ends. */
	const uint16_t	*im_sizes;
	const uint16_t	*im_no_sizes;	/* besides 0 */
	/* The implementation's own: what its im_create makes of the rest. */
	const void	*im_arg;
	/* Create a queue and its peer; returns what the constructor said. */
	int		(*im_create)(const struct impl *, uint16_t size, uint16_t max_segs,
			    struct peer **);
	/*
	 * Give a chain of nread and nwrite segments its messages, which im_share() fills in;
	 * host_free(pc_arg) after the put.  NULL: there are no messages in this ring.
	 */
	void		(*im_chain)(struct peer *, struct pvq_chain *);
	/*
	 * Make a chain's memory visible to the peer, as a driver of such a ring does before it puts the
	 * chain, and end that: how many segments the peer still holds.  NULL: it sees all memory.
	 */
	void		(*im_share)(struct peer *, struct pvq_chain *);
	int		(*im_unshare)(struct peer *, const bus_dma_segment_t *, int nsegs);
	/* The length that the peer reported of a completed chain, as po_complete was given it. */
	uint32_t	(*im_reported)(const struct pvq_done *);
	/* The peer lets go of everything: what is in flight may be drained. */
	void		(*im_quiesce)(struct peer *);
	/* A queue was reinitialised: its peer begins anew, too. */
	void		(*im_reset)(struct peer *);
	/* Free both. */
	void		(*im_destroy)(struct peer *);
};

static inline void
im_share(const struct impl *im, struct peer *pe, struct pvq_chain *pc)
{

	if (im->im_share != NULL)
		im->im_share(pe, pc);
}

static inline int
im_unshare(const struct impl *im, struct peer *pe, const bus_dma_segment_t *segs, int nsegs)
{

	return (im->im_unshare == NULL ? 0 : im->im_unshare(pe, segs, nsegs));
}

#define	IM_EVENT	0x01	/* notifications and interrupts by index */
#define	IM_INDIRECT	0x02	/* a chain of several segments takes an indirect table */
#define	IM_MODERN	0x04	/* VERSION_1 */
#define	IM_LENGTHS	0x08	/* the ring itself carries lengths */
#define	IM_ANY_ORDER	0x10	/* completions come in any order */
#define	IM_EXACT	0x20	/* an interrupt comes at the completion that was asked for */
#define	IM_SEG_SLOTS	0x40	/* no chain has more segments than the ring has slots */
#define	IM_MSGS		0x80	/* a message for each segment, the second of them without an id */
#define	IM_STRICT	0x100	/* VIRTQUEUE_STRICT_LENGTHS, which breaks a modern queue */
#define	IM_PACKED	0x200	/* a packed virtqueue */
#define	IM_IN_ORDER	0x400	/* IN_ORDER: the peer answers in batches */
#define	IM_SHORT	0x800	/* an indirect table has room for IM_SHORT_SEGS segments */
#define	IM_SHORT_SEGS	4

/* All of them, by the kind of ring; each list ends with a NULL name. */
extern const struct impl split_impls[];
extern const struct impl packed_impls[];
extern const struct impl grant_impls[];

/* The device's side of a split virtqueue that a driver has created; it is freed by host_free(). */
struct peer *split_peer(const struct impl *im, struct pvq *q);

/* Can it do all of these? */
static inline bool
im_can(const struct impl *im, uint32_t flags)
{

	return ((im->im_flags & flags) == flags);
}

/* A multiplicative generator: the same numbers everywhere, for ever. */
static inline uint32_t
peer_random(uint32_t *state)
{

	*state = *state * 1664525u + 1013904223u;
	return (*state >> 8);
}

#endif /* !_PEER_H_ */
