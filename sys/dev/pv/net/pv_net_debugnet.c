/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: debugnet(4): packets of a kernel that has panicked, or is in its
 * debugger.  netdump(4) sends a crash dump by it, and gdb(4) is served.
 *
 * One CPU runs, with interrupts disabled; no thread, task or callout runs again
 * after a panic.  So a packet is sent, and its completion collected, by
 * polling, in the queues as they were left:
 *
 *	not held     no thread held the lock: the queue is used as it is
 *	held         a thread was stopped inside the lock.  After a panic what
 *		     it had staged is taken back, and the batch that it was
 *		     building is lost; in the debugger, from which that thread
 *		     may go on, the queue is not used
 *
 * What is sent goes by the first queue in use that is not held, and the device
 * has sent it when transmit returns: its data is a buffer of debugnet(4), which
 * fills it anew when 31 packets of a burst were acknowledged, while it may have
 * more of them.  The device may answer to any queue, so all are polled.
 *
 * Memory.  debugnet(4) has set aside mbufs and clusters of one size, and the
 * zones of all sizes give these meanwhile.  So no receive buffer is exchanged:
 * each frame is copied, and its buffer posted again.  And what was in flight at
 * a panic is not freed: it would be taken for one of those that were set aside.
 *
 * A frame that spans buffers, as none does that debugnet(4) expects, is
 * dropped.
 *
 * Gaps.  Queues whose packets are copied (pv_net_stage.c) have none of this.
 *
 * Locking.  None is taken: those that hold one do not run, and in the debugger
 * and after a panic lock(9) does nothing.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <net/debugnet.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

#ifdef DEBUGNET

/*
 * How long the device may take to send a packet: tries, and microseconds
 * between them.  Five seconds, as debugnet(4) gives the server for an answer: a
 * host may be busy, and a packet that is given up is lost.
 */
#define	PV_NET_DEBUG_TRIES	1000000
#define	PV_NET_DEBUG_WAIT	5

DEBUGNET_DEFINE(pv_net);

/* Was a thread inside the lock of this queue? */
static bool
pv_net_debug_held(const struct mtx *mtx)
{
	return (mtx_owner(mtx) != NULL);
}

/*
 * May a queue be used, although its owner may have been stopped inside the
 * lock?
 */
static bool
pv_net_debug_usable(const struct mtx *mtx, const struct pvq *q)
{
	return ((panicstr != NULL || !pv_net_debug_held(mtx)) &&
	    !pvq_broken(q));
}

static void
pv_net_debug_take_tx(struct pv_net_txq *txq)
{
	u_int i;

	if (pv_net_debug_held(&txq->ptq_mtx) && !pvq_broken(txq->ptq_pvq))
		pvq_abort(txq->ptq_pvq);
	txq->ptq_n = txq->ptq_slots = 0;
	for (i = 0; i < txq->ptq_nbufs; i++)
		txq->ptq_bufs[i].ptb_mbuf = NULL;
}

static void
pv_net_debug_take_rx(struct pv_net_rxq *rxq)
{
	if (pv_net_debug_held(&rxq->prq_mtx) && !pvq_broken(rxq->prq_pvq))
		pvq_abort(rxq->prq_pvq);
}

/* The queue that packets are sent by. */
static struct pv_net_txq *
pv_net_debug_txq(struct pv_net *pn)
{
	u_int i;

	for (i = 0; i < pn->pn_pairs; i++) {
		if (!pv_net_debug_held(&pn->pn_txqs[i].ptq_mtx))
			return (&pn->pn_txqs[i]);
	}
	return (&pn->pn_txqs[0]);
}

/*
 * Give the completed buffers of a batch to the device again: those that there
 * is room for.
 */
static void
pv_net_debug_repost(struct pv_net_rxq *rxq, int n)
{
	struct pvq_chain *chains = rxq->prq_chains, *pc;
	struct pv_net_rxbuf *buf;
	int i, need, posted = 0, slots = 0;

	for (i = 0; i < n; i++) {
		buf = rxq->prq_done[i].pd_cookie;
		pc = &chains[posted];
		*pc = (struct pvq_chain){ .pc_segs = buf->prb_segs,
		    .pc_nwrite = buf->prb_nsegs, .pc_cookie = buf };
		need = pvq_prepare(rxq->prq_pvq, pc);
		slots += need;
		if (need == 0 || pvq_reserve(rxq->prq_pvq, slots) != 0)
			break;
		if (rxq->prq_tag != NULL)
			bus_dmamap_sync(rxq->prq_tag, buf->prb_map,
			    BUS_DMASYNC_PREREAD);
		posted++;
	}
	if (posted == 0)
		return;
	pvq_put(rxq->prq_pvq, chains, posted);
	pvq_commit(rxq->prq_pvq);
	(void)pvq_kick(rxq->prq_pvq);
}

/*
 * A copy of the frame in a buffer; NULL if it has none, or only a part of one.
 */
static struct mbuf *
pv_net_debug_copy(struct pv_net_rxq *rxq, const struct pv_net_rxhdr *hdr)
{
	struct pv_net *pn = rxq->prq_pn;
	bool whole = rxq->prq_head == NULL && !rxq->prq_discard &&
	    !hdr->prh_more;
	struct mbuf *m;

	/*
	 * The first part of a frame that was being received is not freed,
	 * either.
	 */
	rxq->prq_head = rxq->prq_tail = NULL;
	rxq->prq_discard = hdr->prh_more;
	if (!whole || hdr->prh_error != PV_NET_RX_OK ||
	    hdr->prh_len < ETHER_HDR_LEN || hdr->prh_len > pn->pn_rx_cluster ||
	    hdr->prh_skip + hdr->prh_len > hdr->prh_room)
		return (NULL);
	if (hdr->prh_len <= MHLEN)
		m = m_gethdr(M_NOWAIT, MT_DATA);
	else
		m = m_getjcl(M_NOWAIT, MT_DATA, M_PKTHDR, pn->pn_rx_cluster);
	if (m == NULL)
		return (NULL);
	memcpy(mtod(m, void *), (const char *)hdr->prh_hdr + hdr->prh_skip,
	    hdr->prh_len);
	m->m_len = m->m_pkthdr.len = hdr->prh_len;
	m->m_pkthdr.rcvif = pn->pn_ifp;
	return (m);
}

/*
 * Take up to a batch of frames off a queue, which are appended to *tailp; how
 * many buffers.
 */
static int
pv_net_debug_receive(struct pv_net_rxq *rxq, int max, struct mbuf ***tailp)
{
	struct pv_net_rxhdr *hdrs = rxq->prq_hdrs;
	struct pvq_done *done = rxq->prq_done;
	struct pv_net *pn = rxq->prq_pn;
	struct pv_net_rxbuf *buf;
	struct mbuf *m;
	int i, n;

	n = pvq_get(rxq->prq_pvq, done, MIN(max, PV_NET_BATCH));
	if (n == 0)
		return (0);
	for (i = 0; i < n; i++) {
		buf = done[i].pd_cookie;
		memset(&hdrs[i], 0, sizeof(hdrs[i]));
		if (rxq->prq_tag != NULL)
			bus_dmamap_sync(rxq->prq_tag, buf->prb_map,
			    BUS_DMASYNC_POSTREAD);
		hdrs[i].prh_hdr = mtod(buf->prb_mbuf, const void *);
		hdrs[i].prh_room = buf->prb_mbuf->m_len;
	}
	pn->pn_ops->pno_decap(pn->pn_softc, rxq->prq_id, done, hdrs, n);
	for (i = 0; i < n; i++) {
		m = pv_net_debug_copy(rxq, &hdrs[i]);
		if (m != NULL) {
			**tailp = m;
			*tailp = &m->m_nextpkt;
		}
	}
	pv_net_debug_repost(rxq, n);
	return (n);
}

/*
 * What the interface needs: mbufs of how many queues, how many clusters for
 * each, and their size.
 */
static void
pv_net_debugnet_init(struct ifnet *ifp, int *nrxr, int *ncl, int *clsize)
{
	struct pv_net *pn = if_getsoftc(ifp);

	/* All queues receive into what there is for one. */
	*nrxr = 1;
	*ncl = DEBUGNET_MAX_IN_FLIGHT;
	*clsize = pn->pn_rx_cluster;
}

static void
pv_net_debugnet_event(struct ifnet *ifp, enum debugnet_ev event)
{
	struct pv_net *pn = if_getsoftc(ifp);
	struct pv_net_rxq *rxq;
	int i;

	for (i = 0; i < pn->pn_params.pnp_npairs &&
	    pv_dev_is_live(&pn->pn_pvdev); i++) {
		rxq = &pn->pn_rxqs[i];
		if (event == DEBUGNET_START && panicstr != NULL) {
			pv_net_debug_take_tx(&pn->pn_txqs[i]);
			pv_net_debug_take_rx(rxq);
		}
		/*
		 * The debugger may let the kernel go on: what is next has to
		 * interrupt.
		 */
		if (event == DEBUGNET_END &&
		    pv_net_debug_usable(&rxq->prq_mtx, rxq->prq_pvq))
			(void)pvq_intr_enable(rxq->prq_pvq, 1);
	}
}

/*
 * Wait until the device has sent all that it was given; an error if it has not.
 */
static int
pv_net_debug_finish(struct pv_net_txq *txq)
{
	int tries;

	for (tries = 0; tries < PV_NET_DEBUG_TRIES; tries++) {
		pv_net_tx_reclaim(txq);
		if (pvq_broken(txq->ptq_pvq))
			return (EIO);
		if (pvq_inflight(txq->ptq_pvq) == 0)
			return (0);
		DELAY(PV_NET_DEBUG_WAIT);
	}
	return (ETIMEDOUT);
}

/*
 * Frees the packet.  It was sent when this returns 0; netdump(4) gives the dump
 * up if it was not.
 */
static int
pv_net_debugnet_transmit(struct ifnet *ifp, struct mbuf *m)
{
	struct pv_net *pn = if_getsoftc(ifp);
	struct pv_net_txq *txq = pv_net_debug_txq(pn);
	int error;

	if (!pv_dev_is_live(&pn->pn_pvdev) ||
	    !pv_net_debug_usable(&txq->ptq_mtx, txq->ptq_pvq)) {
		m_freem(m);
		return (pv_dev_is_live(&pn->pn_pvdev) ? EBUSY : ENETDOWN);
	}
	pv_net_tx_reclaim(txq);
	error = pv_net_tx_add_plain(txq, &m);
	if (error == ENOSPC) {
		/* What the kernel had not notified the device of yet. */
		pv_net_tx_kick(txq);
		error = pv_net_debug_finish(txq);
		if (error == 0)
			error = pv_net_tx_add_plain(txq, &m);
	}
	if (error != 0) {
		m_freem(m);
		return (error);
	}
	pv_net_tx_commit(txq);
	pv_net_tx_kick(txq);
	return (pv_net_debug_finish(txq));
}

static int
pv_net_debugnet_poll(struct ifnet *ifp, int count)
{
	struct pv_net *pn = if_getsoftc(ifp);
	struct pv_net_txq *txq = pv_net_debug_txq(pn);
	struct mbuf *list = NULL, **tail = &list;
	struct pv_net_rxq *rxq;
	int i, n;

	if (!pv_dev_is_live(&pn->pn_pvdev))
		return (ENETDOWN);
	if (pv_net_debug_usable(&txq->ptq_mtx, txq->ptq_pvq))
		pv_net_tx_reclaim(txq);
	for (i = 0; i < pn->pn_params.pnp_npairs && count > 0; i++) {
		rxq = &pn->pn_rxqs[i];
		if (!pv_net_debug_usable(&rxq->prq_mtx, rxq->prq_pvq))
			continue;
		for (n = 1; n > 0 && count > 0; count -= n)
			n = pv_net_debug_receive(rxq, count, &tail);
	}
	if (list != NULL)
		if_input(ifp, list);
	return (0);
}

void
pv_net_debugnet_attach(struct pv_net *pn)
{
	if (!pn->pn_staged)
		DEBUGNET_SET(pn->pn_ifp, pv_net);
}

void
pv_net_debugnet_mtu(struct pv_net *pn)
{
	DEBUGNET_NOTIFY_MTU(pn->pn_ifp);
}

#else /* !DEBUGNET */

/* A kernel without it. */
void
pv_net_debugnet_attach(struct pv_net *pn __unused)
{
}

void
pv_net_debugnet_mtu(struct pv_net *pn __unused)
{
}

#endif /* !DEBUGNET */
