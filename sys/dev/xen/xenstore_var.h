/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What xenstore.c (requests), xenstore_watch.c (watches) and xenstore_ring.c (bytes and messages)
 * have between them.
 */

#ifndef _DEV_XEN_XENSTORE_VAR_H_
#define	_DEV_XEN_XENSTORE_VAR_H_

#include <sys/param.h>
#include <sys/bus.h>

#include <dev/xen/xenstore.h>
#include <xen/io/xs_wire.h>

/* A piece of a request's payload. */
struct xenstore_piece {
	const void	*xp_data;
	size_t		 xp_len;
};

#define	XENSTORE_PIECES	4

/* Map the ring that the toolstack gave, and bind its event channel. */
int	xenstore_ring_init(device_t dev);
void	xenstore_ring_fini(void);

/*
 * Send a request, and wait for what is answered.  One at a time: the caller serialises.
 *
 * reply  set to memory of the ring, NUL behind it, valid until the next request
 *
 * Returns 0, what xenstore says, ETIMEDOUT (it may come to the request later), EIO or E2BIG.
 */
int	xenstore_ring_talk(uint32_t type, uint32_t tx, const struct xenstore_piece *pieces, u_int n,
	    const char **reply, size_t *len);

/*
 * Was a request given up since this was last asked?  Then it is not known what xenstore has heard, nor
 * whether it is the one that had our watches.
 */
bool	xenstore_ring_doubt(void);

/* Transactions that nobody has any more, to be ended: add one; take one, 0: there is none. */
void	xenstore_ring_abandon(uint32_t id);
uint32_t xenstore_ring_orphan(void);

/* The same for anybody, serialised; the reply is memory for xenstore_free(), NULL: not wanted. */
int	xenstore_talk(struct xenstore_tx *tx, uint32_t type, const struct xenstore_piece *pieces,
	    u_int n, char **reply, size_t *len);

/* A watch fired; called by the ring in its interrupt thread: path and token are terminated. */
void	xenstore_watch_event(const char *path, const char *token);

void	xenstore_watch_init(void);
void	xenstore_watch_fini(void);
/* Set every watch once more, by the unserialised xenstore_ring_talk(). */
void	xenstore_watch_again(void);

/* dir and name as one path, in memory for xenstore_free(); NULL: too long. */
char	*xenstore_join(const char *dir, const char *name);

extern uint64_t xenstore_requests, xenstore_events, xenstore_late, xenstore_conflicts;
extern uint64_t xenstore_failed;
extern uint64_t xenstore_timeouts;
extern u_int xenstore_timeout;

#endif /* !_DEV_XEN_XENSTORE_VAR_H_ */
