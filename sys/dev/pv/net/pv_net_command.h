/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: commands in the ring, a capability for protocols that have no queue of their own for them.
 *
 * A command is a chain of the transmit queue that is no packet and has no segments, only what the
 * transport itself carries (pc_arg).
 */

#ifndef _DEV_PV_PV_NET_COMMAND_H_
#define	_DEV_PV_PV_NET_COMMAND_H_

struct pv_net;
struct pvq_done;

/*
 * Put a command into the transmit queue of a pair, and notify the back end.
 *
 * arg  its pc_arg; read during the call only
 *
 * Returns 0; ENOSPC if there is no room now; EINVAL if the ring has no form for it.  The completion
 * goes to pno_sent.
 */
int	pv_net_command(struct pv_net *pn, int pair, void *arg);

/* Is it a command that completed?  In pno_sent. */
bool	pv_net_is_command(const struct pvq_done *done);

#endif /* !_DEV_PV_PV_NET_COMMAND_H_ */
