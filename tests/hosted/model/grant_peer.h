/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The back end's side of a grant ring, for the tests that know that it is one.  All others see
 * model/peer.h.
 */

#ifndef _GRANT_PEER_H_
#define	_GRANT_PEER_H_

#include <dev/pv/queue/pvq.h>

#include "peer.h"

#define	GRANT_DOMID	7	/* the back end's domain */

/*
 * Let the indices of a new ring begin at start, a multiple of its size.
 */
void	grant_ring_wind(struct pvq *q, uint32_t start);

/* The ids of a chain that was fetched, and how many of its messages have one. */
int	grant_peer_ids(struct peer *pe, uint32_t id, uint32_t *ids);

/* Write one response, whatever it says; not published. */
void	grant_peer_respond(struct peer *pe, uint64_t id, uint32_t len);

/* Write one that says that it answers nothing. */
void	grant_peer_respond_null(struct peer *pe);

/* Where the last response has its id, and where one that was copied has it. */
uint8_t	*grant_peer_last_id(struct peer *pe);
const uint8_t *grant_peer_id_of(struct peer *pe, const void *response);

/* Forget a chain without letting go of its memory.  Fills refs; returns how many. */
int	grant_peer_hold(struct peer *pe, uint32_t id, uint32_t *refs);

#endif /* !_GRANT_PEER_H_ */
