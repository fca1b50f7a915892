/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: messages in the ring, a capability for protocols whose transport carries them (pc_arg).
 *
 * What describes a packet to be sent is then in messages beside its segments, not in a header before
 * the frame.  A command is a chain of the transmit queue that is no packet, and has messages but no
 * segments: the way for a protocol that has no queue of its own for commands.
 */

#ifndef _DEV_PV_PV_NET_MESSAGE_H_
#define	_DEV_PV_PV_NET_MESSAGE_H_

#include <sys/types.h>

struct pv_net;
struct pv_net_txhdr;
struct pvq_done;

/* pno_message of struct pv_net_ops; called with the transmit queue's lock held. */
struct pv_net_message_ops {
	/*
	 * Packet n of a batch (n is less than PV_NET_BATCH) has its segments, and its offload is
	 * known: set its chain's pc_arg to room for its messages, which pno_encap fills in.  It is
	 * valid until the chains of this batch were put.  Can't fail.
	 */
	void	(*pmo_prepare)(void *softc, int pair, u_int n, struct pv_net_txhdr *hdr);
	/* n packets, or commands, have completed. */
	void	(*pmo_sent)(void *softc, int pair, const struct pvq_done *done, int n);
};

/*
 * Put a command into the transmit queue of a pair, and notify the back end.
 *
 * arg  its pc_arg; read during the call only
 *
 * Returns 0; ENOSPC if there is no room now; EINVAL if the ring has no form for it.  The completion
 * goes to pmo_sent.
 */
int	pv_net_command(struct pv_net *pn, int pair, void *arg);

/* Is it a command that completed?  In pmo_sent. */
bool	pv_net_is_command(const struct pvq_done *done);

#endif /* !_DEV_PV_PV_NET_MESSAGE_H_ */
