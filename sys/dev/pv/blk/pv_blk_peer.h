/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_blk: reconnecting and copying, a capability for a transport whose peer is a domain of its own.
 *
 * Such a peer takes part in a reset: it is requested to close, may take long, restart, or never
 * answer, and the one that connects next may offer less.  And it must not see more memory than the data
 * of its requests, so that these are copied to and from pages that are shared with it.
 *
 *	a need of a reset (pv_dev.c)    -->  bpo_reconnect()      requested
 *	                                     pv_dev_hold()        the protocol's thread, from here on
 *	                                     pv_blk_requeue()
 *	                                     pv_blk_set_queues()  none; the peer closes and connects
 *	the next peer's limits          -->  pv_blk_set_delete(), pv_blk_set_max_size()
 *	                                     pv_blk_set_queues()  the new ones
 *	                                     pv_dev_thaw(), or pv_dev_lose()
 */

#ifndef _DEV_PV_PV_BLK_PEER_H_
#define	_DEV_PV_PV_BLK_PEER_H_

#include <dev/pv/blk/pv_blk.h>

/* bo_peer of struct pv_blk_ops, which has neither bo_stop nor bo_restart then.  None may sleep. */
struct pv_blk_peer_ops {
	/*
	 * Request a new connection, and return.  The queues are frozen.  The device is stopped by the
	 * protocol before pv_blk_detach().
	 */
	void	(*bpo_reconnect)(struct pv_blk *blk);
	/*
	 * Make rq_length bytes ready for the peer, for a write those of rq_window; and, after a read
	 * without an error, copy them to rq_window.  bp_phys is false, and rq_nsegs stays 0.
	 *
	 * Returns 0, with rq_length less if there is no room for all: whole sectors; or ENOMEM: none
	 * now.  There is always room for the polled request.
	 */
	int	(*bpo_load)(struct pv_blk *blk, struct pv_blk_req *rq);
	void	(*bpo_unload)(struct pv_blk *blk, struct pv_blk_req *rq);
	/* What was loaded is not needed any more, or is loaded again. */
	void	(*bpo_release)(struct pv_blk *blk, struct pv_blk_req *rq);
	/* Bytes of the polled request at most. */
	size_t	bpo_polled_size;
};

/*
 * Copies length bytes of a mapped or unmapped bio, from off on, to buf, or buf to them.  For
 * bpo_load and bpo_unload, with a request's rq_window.  Does not sleep.
 */
void	pv_blk_copy(const struct bio *bp, size_t off, size_t length, char *buf, bool to_bio);

/*
 * pv_dev_hold(), and from now on don't collect completions either: what a queue holds then may not be
 * true of the requests in flight.  What was completed before has been copied when this returns.
 * pv_dev_thaw() goes on, or pv_dev_hold() and what follows it.
 */
void	pv_blk_hold(struct pv_blk *blk);

/*
 * The next peer deletes more or less at once than the one before, or nothing any more, or other units:
 * bp_delete_* of params.  Frozen.
 */
void	pv_blk_set_delete(struct pv_blk *blk, const struct pv_blk_params *params);

/*
 * The next peer takes other requests.  What was requeued and is longer is sent in pieces, one after
 * the other.  Between pv_blk_requeue() and pv_dev_thaw().
 *
 * size  bytes of data in a request, at least a sector; more than bp_max_size was are not used
 */
void	pv_blk_set_max_size(struct pv_blk *blk, size_t size);

/*
 * Has a request in flight been without an answer for longer than the time-out?  Takes a
 * queue's lock.
 */
bool	pv_blk_is_late(struct pv_blk *blk);

#endif /* !_DEV_PV_PV_BLK_PEER_H_ */
