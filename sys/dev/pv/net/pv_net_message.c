/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: commands among the packets (pv_net_message.h).
 *
 * A command takes a buffer, as a packet does, which is what its completion is known by: one without
 * segments.
 *
 * Locking.  The lock of the transmit queue, taken here.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_message.h>
#include <dev/pv/net/pv_net_var.h>

int
pv_net_command(struct pv_net *pn, int pair, void *arg)
{
	struct pv_net_txq *txq = &pn->pn_txqs[pair];
	struct pvq_chain chain = { .pc_arg = arg };
	int error = ENOSPC, slots;

	slots = pvq_prepare(txq->ptq_pvq, &chain);
	if (slots == 0)
		return (EINVAL);
	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_reclaim(txq);
	if (txq->ptq_nfree > 0 && pvq_reserve(txq->ptq_pvq, slots) == 0) {
		chain.pc_cookie = txq->ptq_free[--txq->ptq_nfree];
		pvq_put(txq->ptq_pvq, &chain, 1);
		pvq_commit(txq->ptq_pvq);
		txq->ptq_unkicked++;
		pv_net_tx_kick(txq);
		error = 0;
	}
	mtx_unlock(&txq->ptq_mtx);
	return (error);
}

bool
pv_net_is_command(const struct pvq_done *done)
{
	const struct pv_net_txbuf *buf = done->pd_cookie;

	return (buf->ptb_nsegs == 0);
}
