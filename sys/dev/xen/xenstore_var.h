/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of xenstore share, lowest first: xenstore_doubt.c (requests
 * whose result is unknown); xenstore_ring.c (bytes and messages), or
 * core/core_store.c in its place; xenstore.c (requests); xenstore_watch.c
 * (watches).
 */

#ifndef _DEV_XEN_XENSTORE_VAR_H_
#define	_DEV_XEN_XENSTORE_VAR_H_

#include <sys/param.h>
#include <sys/bus.h>

#include <dev/xen/xenstore.h>
#include <xen/io/xs_wire.h>

/* A piece of a request's payload. */
struct xenstore_piece {
	const void	*xsp_data;
	size_t		 xsp_len;
};

/*
 * A watch fired.  Called in the interrupt thread of the ring; both strings are
 * terminated.
 */
typedef void xenstore_event_t(const char *path, const char *token);

/* No doubt, and no transactions: xenstore, or the domain, is a new one. */
void	xenstore_doubt_init(void);

/*
 * The result of a request is unknown, as is that of one that xenstore failed,
 * which is logged if xenstore_fail() returns true.
 */
void	xenstore_raise_doubt(void);
bool	xenstore_fail(void);

/*
 * Has a request timed out, or failed, since the last call?  Then it is not
 * known which requests xenstore has got, nor whether it was restarted and has
 * lost our watches.
 */
bool	xenstore_doubt(void);

/*
 * Transactions without an owner, to be ended: add one; take one, 0: there is
 * none.
 */
void	xenstore_abandon(uint32_t id);
uint32_t xenstore_orphan(void);

/*
 * An answer to a request that nobody waits for any more; its body is
 * terminated.
 */
void	xenstore_late_answer(uint32_t type, const char *body);

/* An error's number, of its name. */
int	xenstore_errno(const char *name);

/* Map the ring that the toolstack gave, and bind its event channel. */
int	xenstore_ring_init(device_t dev, xenstore_event_t *event);
void	xenstore_ring_fini(void);

/*
 * Send a request, and wait for what is answered.  One at a time: the caller
 * serialises.
 *
 * reply  set to memory of the ring, NUL behind it, valid until the next request
 *
 * Returns 0, xenstore's error, ETIMEDOUT (it may handle the request later), EIO
 * or E2BIG.
 */
int	xenstore_ring_talk(uint32_t type, uint32_t tx,
    const struct xenstore_piece *pieces, u_int n,
	    const char **reply, size_t *len);

/*
 * The same, serialised; the reply is memory for xenstore_free(), NULL: not
 * wanted.
 */
int	xenstore_talk(struct xenstore_tx *tx, uint32_t type,
    const struct xenstore_piece *pieces,
	    u_int n, char **reply, size_t *len);

/*
 * What requests call of watches, from the time that xenstore_watch_init() has
 * handed it down.
 */
struct xenstore_watcher {
	xenstore_event_t *xsw_event;
	/*
	 * Set every watch once more, by xenstore_ring_talk():
	 * requests are serialised.
	 */
	void		(*xsw_again)(void);
};
void	xenstore_set_watcher(const struct xenstore_watcher *watcher);

/* dir and name as one path, in memory for xenstore_free(); NULL: too long. */
char	*xenstore_join(const char *dir, const char *name);

/* Of xenstore_doubt.c. */
extern uint64_t xenstore_requests, xenstore_events, xenstore_late,
    xenstore_failed;

#endif /* !_DEV_XEN_XENSTORE_VAR_H_ */
