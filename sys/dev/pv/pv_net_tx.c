/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: sending.
 *
 *	if_transmit -> buf_ring -> batch of chains -> pvq ... -> completed: mbufs are freed
 *
 * Who comes to if_transmit and finds nobody else at it gives his packet, and what is in the ring, to
 * the queue; if somebody is at it, the packet goes into the buf_ring, and a task drains that after him.
 *
 * Notifications.  The first packet after a pause is told at once.  Within PV_NET_KICK_QUIET
 * of the last kick, packets are part of a burst: one kick for pnp_tx_kick of them or for
 * PV_NET_KICK_BYTES, or as soon as the CPU has nothing better to do (a task of idle priority), or
 * when the timer fires, whichever is first.
 *
 * Completions are collected when packets are sent, and by a timer, so that no mbuf waits for
 * ever.  An interrupt is asked for only when the ring is full, and then far ahead: when three
 * quarters of what is in flight are done.
 *
 * Locking.  ptq_mtx covers everything of the queue, both sides of the pvq included.  The
 * buf_ring takes packets without it.  Nothing of the stack but m_freem() is called with it
 * held.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/epoch.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <sys/time.h>
#include <net/bpf.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <machine/bus.h>

#include <dev/pv/pvq.h>
#include <dev/pv/pv_net.h>
#include <dev/pv/pv_net_var.h>

#define	PV_NET_KICK_QUIET	(200 * SBT_1US)	/* a pause longer than this ends a burst */
#define	PV_NET_KICK_BYTES	131072		/* so much is not held back, in however few packets */
#define	PV_NET_LOOK		4	/* packets of a burst from one look at the clock to the next */
#define	PV_NET_TX_TIMER		(10 * SBT_1MS)	/* longest that a kick or a completion waits */

/* Seconds without a completion after which the device is reset. */
#define	PV_NET_WATCHDOG		5

/* Collect completions: how many. */
static u_int
pv_net_tx_reclaim(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;
	struct pvq_done *done = txq->ptq_done;
	struct pv_net_txbuf *buf;
	u_int total = 0;
	int i, n;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	do {
		n = pvq_get(txq->ptq_pvq, done, PV_NET_BATCH);
		if (pn->pn_ops->pno_sent != NULL && n > 0)
			pn->pn_ops->pno_sent(pn->pn_softc, txq->ptq_id, done, n);
		for (i = 0; i < n; i++) {
			buf = done[i].pd_cookie;
			if (txq->ptq_pages == NULL)
				bus_dmamap_sync(txq->ptq_tag, buf->ptb_map,
				    BUS_DMASYNC_POSTWRITE);
			pv_net_tx_unload(txq, buf);
			m_freem(buf->ptb_mbuf);
			buf->ptb_mbuf = NULL;
			txq->ptq_free[txq->ptq_nfree++] = buf;
		}
		total += n;
	} while (n == PV_NET_BATCH);
	return (total);
}

/*
 * Where the protocol's header goes: before the frame in its own mbuf if there is room that
 * nobody else sees, and the device takes header and data from one segment; else to the memory
 * set aside for it.
 */
static bool
pv_net_tx_hdr_apart(const struct pv_net_params *params, struct mbuf *m)
{
	return (params->pnp_hdrlen != 0 &&
	    (params->pnp_hdr_apart || M_LEADINGSPACE(m) < params->pnp_hdrlen));
}

/*
 * Make a packet, whose offload is in the batch's next header, the next chain of it.  Returns 0;
 * ENOSPC if the queue has no room, with the packet untouched; another error if it can't be sent at
 * all, and is the caller's to free.
 */
static int
pv_net_tx_encap(struct pv_net_txq *txq, struct mbuf **mp)
{
	const struct pv_net_params *params = &txq->ptq_pn->pn_params;
	struct pv_net_txhdr *hdr = &txq->ptq_txhdrs[txq->ptq_n];
	struct pvq_chain *pc = &txq->ptq_chains[txq->ptq_n];
	struct pv_net_txbuf *buf;
	bool apart;
	int error, slots;

	if (txq->ptq_nfree == 0)
		return (ENOSPC);
	buf = txq->ptq_free[txq->ptq_nfree - 1];
	if ((*mp)->m_pkthdr.len > PV_NET_MAX_FRAME ||
	    (params->pnp_max_frame != 0 && (*mp)->m_pkthdr.len > params->pnp_max_frame)) {
		txq->ptq_stats.too_long++;
		return (EMSGSIZE);
	}
	apart = pv_net_tx_hdr_apart(params, *mp);
	if (!apart) {
		(*mp)->m_data -= params->pnp_hdrlen;
		(*mp)->m_len += params->pnp_hdrlen;
		(*mp)->m_pkthdr.len += params->pnp_hdrlen;
	}
	error = params->pnp_staged ? pv_net_stage_tx(txq, buf, *mp, &hdr->pth_offload) :
	    pv_net_tx_load(txq, buf, mp, apart);
	if (error != 0) {
		txq->ptq_stats.nomem += error != ENOSPC;
		return (error);
	}
	hdr->pth_hdr = apart ? buf->ptb_hdr : mtod(*mp, void *);
	if (apart) {
		buf->ptb_segs[0].ds_addr = buf->ptb_hdr_addr;
		buf->ptb_segs[0].ds_len = params->pnp_hdrlen;
	}
	memset(pc, 0, sizeof(*pc));
	pc->pc_segs = buf->ptb_segs;
	pc->pc_nread = buf->ptb_nsegs;
	pc->pc_cookie = buf;
	if (params->pnp_msg_size != 0) {
		pc->pc_nmsgs = buf->ptb_nsegs +
		    (hdr->pth_offload.po_gso_type != PV_NET_GSO_NONE);
		pc->pc_msgs = txq->ptq_msgs +
		    txq->ptq_n * (params->pnp_tx_segs + 1) * params->pnp_msg_size;
	}
	hdr->pth_chain = pc;
	slots = pvq_prepare(txq->ptq_pvq, pc);
	error = slots == 0 ? EFBIG : pvq_reserve(txq->ptq_pvq, txq->ptq_slots + slots);
	if (error == 0 && !params->pnp_staged && pvq_share(txq->ptq_pvq, pc) != 0)
		error = ENOSPC;
	if (error != 0) {
		if (params->pnp_staged)
			pv_net_unstage_tx(txq, buf);
		else
			bus_dmamap_unload(txq->ptq_tag, buf->ptb_map);
		buf->ptb_nsegs = 0;
		if (!apart)
			m_adj(*mp, params->pnp_hdrlen);
		txq->ptq_stats.nomem += error != ENOSPC;
		return (error);
	}
	txq->ptq_slots += slots;
	txq->ptq_n++;
	txq->ptq_nfree--;
	buf->ptb_mbuf = *mp;
	return (0);
}

/* Hand the batch to the other side, without telling it yet. */
static void
pv_net_tx_commit(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;
	struct pv_net_txbuf *buf;
	u_int i;

	if (txq->ptq_n == 0)
		return;
	pn->pn_ops->pno_encap(pn->pn_softc, txq->ptq_id, txq->ptq_txhdrs, txq->ptq_n);
	for (i = 0; i < txq->ptq_n && txq->ptq_pages == NULL; i++) {
		buf = txq->ptq_chains[i].pc_cookie;
		bus_dmamap_sync(txq->ptq_tag, buf->ptb_map, BUS_DMASYNC_PREWRITE);
	}
	if (txq->ptq_hdr_map != NULL)
		bus_dmamap_sync(txq->ptq_hdr_tag, txq->ptq_hdr_map, BUS_DMASYNC_PREWRITE);
	pvq_put(txq->ptq_pvq, txq->ptq_chains, txq->ptq_n);
	pvq_commit(txq->ptq_pvq);
	txq->ptq_unkicked += txq->ptq_n;
	txq->ptq_n = 0;
	txq->ptq_slots = 0;
}

static void
pv_net_tx_kick(struct pv_net_txq *txq, sbintime_t now)
{
	pvq_kick(txq->ptq_pvq);
	txq->ptq_unkicked = 0;
	txq->ptq_held_bytes = txq->ptq_stats.bytes;
	txq->ptq_kicked = now;
}

/* Tell the other side now, or arrange that it is told soon. */
static void
pv_net_tx_notify(struct pv_net_txq *txq)
{
	sbintime_t now;
	bool enough;

	if (txq->ptq_unkicked == 0)
		return;
	enough = txq->ptq_unkicked >= txq->ptq_pn->pn_params.pnp_tx_kick ||
	    txq->ptq_stats.bytes - txq->ptq_held_bytes >= PV_NET_KICK_BYTES;
	/* The time is looked at now and then: a burst is soon over, and the clock is dear. */
	if (!enough && txq->ptq_flushing && txq->ptq_unkicked % PV_NET_LOOK != 0) {
		txq->ptq_stats.held_kicks++;
		return;
	}
	now = sbinuptime();
	if (enough || now - txq->ptq_kicked > PV_NET_KICK_QUIET) {
		pv_net_tx_kick(txq, now);
		return;
	}
	txq->ptq_stats.held_kicks++;
	if (!txq->ptq_flushing) {
		txq->ptq_flushing = true;
		taskqueue_enqueue(txq->ptq_idle_tq, &txq->ptq_flush);
	}
}

static void
pv_net_tx_count(struct pv_net_txq *txq, const struct mbuf *m, u_int len,
    const struct pv_net_offload *o)
{
	struct pv_net_txstats *stats = &txq->ptq_stats;

	stats->packets++;
	stats->bytes += len;
	stats->mcasts += (m->m_flags & (M_MCAST | M_BCAST)) != 0;
	stats->csum += (o->po_flags & PV_NET_NEEDS_CSUM) != 0;
	if (o->po_gso_type == PV_NET_GSO_UDP)
		stats->uso++;
	else
		stats->tso += o->po_gso_type != PV_NET_GSO_NONE;
}

/* A tag that nothing below puts on the wire for us. */
static struct mbuf *
pv_net_tx_untag(struct mbuf *m)
{
	struct mbuf *tagged;

	tagged = ether_vlanencap(m, m->m_pkthdr.ether_vtag);
	if (tagged != NULL)
		tagged->m_flags &= ~M_VLANTAG;
	return (tagged);
}

/*
 * Listeners see the frame, not the header of `hdrlen' bytes that may stand before it, with the
 * checksum that it will have.
 */
static void
pv_net_tx_tap(if_t ifp, struct mbuf *m, u_int hdrlen, const struct pv_net_offload *o)
{
	u_int done = o->po_csum_start + o->po_csum_offset + sizeof(uint16_t);
	struct mbuf *copy = NULL, *rest = NULL;

	m->m_data += hdrlen;
	m->m_len -= hdrlen;
	m->m_pkthdr.len -= hdrlen;
	if ((o->po_flags & (PV_NET_NEEDS_CSUM | PV_NET_FINISH_CSUM)) != 0) {
		copy = pv_net_copy_headers(m, done);
		if (m->m_pkthdr.len > done)
			rest = m_copym(m, done, M_COPYALL, M_NOWAIT);
		if (copy != NULL && (rest != NULL || m->m_pkthdr.len == done)) {
			copy->m_next = rest;
			/* Nothing is left to do: a listener need not, and can not, finish it again. */
			copy->m_pkthdr.csum_flags = 0;
			pv_net_store_sum(copy, o->po_csum_start, o->po_csum_offset);
			ETHER_BPF_MTAP(ifp, copy);
		} else
			m_freem(rest);
		m_freem(copy);
	} else
		ETHER_BPF_MTAP(ifp, m);
	m->m_data -= hdrlen;
	m->m_len += hdrlen;
	m->m_pkthdr.len += hdrlen;
}

/*
 * The next packet to be sent: the first of the list, which it leaves, or what the buf_ring has, where
 * it stays until pv_net_tx_advance().
 */
static struct mbuf *
pv_net_tx_peek(struct pv_net_txq *txq, bool *listed)
{
	struct mbuf *m = txq->ptq_list;

	*listed = m != NULL;
	if (m == NULL)
		return (drbr_peek(txq->ptq_pn->pn_ifp, txq->ptq_ring));
	txq->ptq_list = m->m_nextpkt;
	m->m_nextpkt = NULL;
	return (m);
}

/* It was taken. */
static void
pv_net_tx_advance(struct pv_net_txq *txq, bool listed)
{
	if (!listed)
		drbr_advance(txq->ptq_pn->pn_ifp, txq->ptq_ring);
}

/* It was not, and may be another mbuf now. */
static void
pv_net_tx_putback(struct pv_net_txq *txq, bool listed, struct mbuf *m)
{
	if (listed) {
		m->m_nextpkt = txq->ptq_list;
		txq->ptq_list = m;
	} else
		drbr_putback(txq->ptq_pn->pn_ifp, txq->ptq_ring, m);
}

/*
 * See to what of a packet's offload the other side does not do.  NULL: there is no packet any more, or
 * it is a list of them, waiting.
 */
static struct mbuf *
pv_net_tx_software(struct pv_net_txq *txq, struct mbuf *m, struct pv_net_offload *o)
{
	bool split = (o->po_flags & PV_NET_SPLIT) != 0;
	bool tso = (m->m_pkthdr.csum_flags & CSUM_TSO) != 0;

	m = pv_net_tx_soften(m, o);
	txq->ptq_stats.nomem += m == NULL;
	if (!split) {
		txq->ptq_stats.soft_csum += m != NULL;
		return (m);
	}
	if (m != NULL && tso)
		txq->ptq_stats.soft_tso++;
	else
		txq->ptq_stats.soft_uso += m != NULL;
	/* Segments are not split again, and what else is split was alone: the list is empty. */
	txq->ptq_list = m;
	return (NULL);
}

/*
 * The packet m, tagged as the wire wants it, with what is to be done about it in *o; NULL if nothing
 * is left of it.
 */
static struct mbuf *
pv_net_tx_prepare(struct pv_net_txq *txq, struct mbuf *m, struct pv_net_offload *o)
{
	struct pv_net *pn = txq->ptq_pn;
	enum pv_net_bad bad;
	u_int soft = PV_NET_SOFT;

	if ((m->m_flags & M_VLANTAG) != 0 && (m = pv_net_tx_untag(m)) == NULL) {
		txq->ptq_stats.nomem++;
		return (NULL);
	}
	bad = pv_net_tx_offload(pn, m, o);
	if (bad != PV_NET_FINE) {
		txq->ptq_stats.bad_offload++;
		txq->ptq_stats.bad[bad]++;
		m_freem(m);
		return (NULL);
	}
	/* What is copied is finished in the copy. */
	if (pn->pn_params.pnp_staged)
		soft &= ~PV_NET_FINISH_CSUM;
	return ((o->po_flags & soft) == 0 ? m : pv_net_tx_software(txq, m, o));
}

/*
 * One packet off the list or the buf_ring: false if there is none or no room for it.
 */
static bool
pv_net_tx_next(struct pv_net_txq *txq)
{
	struct pv_net_txhdr *hdr = &txq->ptq_txhdrs[txq->ptq_n];
	if_t ifp = txq->ptq_pn->pn_ifp;
	struct pv_net_txbuf *buf;
	struct mbuf *m;
	bool listed;
	u_int len;
	int error;

	m = pv_net_tx_peek(txq, &listed);
	if (m == NULL)
		return (false);
	m = pv_net_tx_prepare(txq, m, &hdr->pth_offload);
	if (m == NULL) {
		pv_net_tx_advance(txq, listed);
		return (true);
	}
	len = m->m_pkthdr.len;
	error = pv_net_tx_encap(txq, &m);
	if (error == ENOSPC) {
		pv_net_tx_putback(txq, listed, m);
		txq->ptq_full = true;
		return (false);
	}
	pv_net_tx_advance(txq, listed);
	if (error != 0) {
		m_freem(m);
		return (true);
	}
	pv_net_tx_count(txq, m, len, &hdr->pth_offload);
	if (bpf_peers_present(if_getbpf(ifp)))
		pv_net_tx_tap(ifp, m, m->m_pkthdr.len - len, &hdr->pth_offload);
	if (txq->ptq_pages != NULL) {
		buf = txq->ptq_chains[txq->ptq_n - 1].pc_cookie;
		buf->ptb_mbuf = NULL;
		m_freem(m);
	}
	return (true);
}

/*
 * The ring is full and packets wait: ask for an interrupt when three quarters of what is in
 * flight are done.  Returns true if so many are done already.
 */
static bool
pv_net_tx_wait(struct pv_net_txq *txq)
{
	u_int after;

	after = MAX(pvq_inflight(txq->ptq_pvq) * 3 / 4, 1);
	txq->ptq_stats.waits++;
	return (pvq_intr_enable(txq->ptq_pvq, after));
}

/* Is there a packet that is not in the queue yet? */
static bool
pv_net_tx_waiting(const struct pv_net_txq *txq)
{
	return (txq->ptq_list != NULL || !buf_ring_empty(txq->ptq_ring));
}

static void pv_net_tx_timer(void *arg);

static void
pv_net_tx_arm(struct pv_net_txq *txq)
{
	if (!callout_pending(&txq->ptq_timer) &&
	    (pvq_inflight(txq->ptq_pvq) > 0 || pv_net_tx_waiting(txq)))
		callout_reset_sbt(&txq->ptq_timer, PV_NET_TX_TIMER, PV_NET_TX_TIMER / 4,
		    pv_net_tx_timer, txq, 0);
}

/* Packets that wait for a queue which is not in use any more go to one that is. */
static void
pv_net_tx_move(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;
	struct pv_net_txq *to = &pn->pn_txqs[txq->ptq_id % pn->pn_pairs];
	struct mbuf *m;
	bool listed;

	while ((m = pv_net_tx_peek(txq, &listed)) != NULL) {
		pv_net_tx_advance(txq, listed);
		if (drbr_enqueue(pn->pn_ifp, to->ptq_ring, m) != 0)
			atomic_add_64(&txq->ptq_stats.queue_drops, 1);
		txq->ptq_stats.moved++;
	}
	taskqueue_enqueue(to->ptq_tq, &to->ptq_task);
}

/* Move packets from the buf_ring to the queue as long as there is room. */
static void
pv_net_tx_run(struct pv_net_txq *txq)
{
	bool again;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	if (txq->ptq_stopped)
		return;
	if (__predict_false((u_int)txq->ptq_id >= txq->ptq_pn->pn_pairs))
		pv_net_tx_move(txq);
	/* Full as before, and the interrupt that says otherwise is still to come. */
	if (pv_net_tx_reclaim(txq) == 0 && txq->ptq_full && pvq_inflight(txq->ptq_pvq) > 0 &&
	    !pvq_broken(txq->ptq_pvq))
		return;
	do {
		again = false;
		txq->ptq_full = false;
		while (pv_net_tx_next(txq)) {
			if (txq->ptq_n == PV_NET_BATCH)
				pv_net_tx_commit(txq);
		}
		pv_net_tx_commit(txq);
		if (txq->ptq_full) {
			if (txq->ptq_unkicked != 0)
				pv_net_tx_kick(txq, sbinuptime());
			/*
			 * With nothing in flight there is no completion to wait for: memory
			 * is what is short.
			 */
			if (pvq_inflight(txq->ptq_pvq) > 0 && pv_net_tx_wait(txq))
				again = pv_net_tx_reclaim(txq) > 0;
		}
	} while (again);
	pv_net_tx_notify(txq);
	pv_net_tx_arm(txq);
	if (pvq_broken(txq->ptq_pvq))
		pv_net_request_reset(txq->ptq_pn);
}

/* Nothing is left in a queue that is not in use any more. */
bool
pv_net_tx_retired(struct pv_net_txq *txq)
{
	bool retired;

	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_run(txq);
	if (!txq->ptq_stopped && txq->ptq_unkicked != 0)
		pv_net_tx_kick(txq, sbinuptime());
	retired = txq->ptq_stopped || pvq_inflight(txq->ptq_pvq) == 0;
	mtx_unlock(&txq->ptq_mtx);
	return (retired);
}

static void
pv_net_tx_timer(void *arg)
{
	struct pv_net_txq *txq = arg;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	if (txq->ptq_stopped)
		return;
	if (txq->ptq_unkicked != 0)
		pv_net_tx_kick(txq, sbinuptime());
	txq->ptq_stats.timer_reclaims++;
	pv_net_tx_run(txq);
}

void
pv_net_tx_intr(void *arg)
{
	struct pv_net_txq *txq = arg;

	mtx_lock(&txq->ptq_mtx);
	if (!txq->ptq_stopped) {
		pvq_intr_disable(txq->ptq_pvq);
		pv_net_tx_run(txq);
	}
	mtx_unlock(&txq->ptq_mtx);
}

static void
pv_net_tx_task(void *arg, int pending __unused)
{
	struct pv_net_txq *txq = arg;

	mtx_lock(&txq->ptq_mtx);
	if (pv_net_tx_waiting(txq))
		pv_net_tx_run(txq);
	mtx_unlock(&txq->ptq_mtx);
}

/* The CPU has nothing better to do: the burst is over. */
static void
pv_net_tx_flush_task(void *arg, int pending __unused)
{
	struct pv_net_txq *txq = arg;

	mtx_lock(&txq->ptq_mtx);
	txq->ptq_flushing = false;
	if (!txq->ptq_stopped && txq->ptq_unkicked != 0)
		pv_net_tx_kick(txq, sbinuptime());
	mtx_unlock(&txq->ptq_mtx);
}

int
pv_net_command(struct pv_net *pn, int pair, void *msgs, u_int n, uint32_t noid)
{
	struct pv_net_txq *txq = &pn->pn_txqs[pair];
	struct pvq_chain chain = { .pc_msgs = msgs, .pc_nmsgs = n, .pc_noid = noid };
	struct pv_net_txbuf *buf;
	int error = ENOSPC;

	mtx_lock(&txq->ptq_mtx);
	(void)pv_net_tx_reclaim(txq);
	if (txq->ptq_nfree > 0 &&
	    pvq_reserve(txq->ptq_pvq, pvq_prepare(txq->ptq_pvq, &chain)) == 0) {
		buf = txq->ptq_free[--txq->ptq_nfree];
		buf->ptb_command = true;
		chain.pc_cookie = buf;
		pvq_put(txq->ptq_pvq, &chain, 1);
		pvq_commit(txq->ptq_pvq);
		pv_net_tx_kick(txq, sbinuptime());
		error = 0;
	}
	mtx_unlock(&txq->ptq_mtx);
	return (error);
}

bool
pv_net_is_command(const struct pvq_done *done)
{
	const struct pv_net_txbuf *buf = done->pd_cookie;

	return (buf->ptb_command);
}

static struct pv_net_txq *
pv_net_tx_select(struct pv_net *pn, const struct mbuf *m)
{
	u_int n = pn->pn_pairs;

	if (n == 1)
		return (&pn->pn_txqs[0]);
	if (M_HASHTYPE_GET(m) != M_HASHTYPE_NONE)
		return (&pn->pn_txqs[m->m_pkthdr.flowid % PV_NET_FLOWS % n]);
	return (&pn->pn_txqs[curcpu % n]);
}

static int
pv_net_tx_enqueue(struct pv_net_txq *txq, struct mbuf *m)
{
	int error;

	error = drbr_enqueue(txq->ptq_pn->pn_ifp, txq->ptq_ring, m);
	if (error != 0)
		atomic_add_64(&txq->ptq_stats.queue_drops, 1);
	return (error);
}

/* With nobody before it, a packet need not take the way by the ring. */
static int
pv_net_tx_enqueue_locked(struct pv_net_txq *txq, struct mbuf *m)
{
	if (pv_net_tx_waiting(txq))
		return (pv_net_tx_enqueue(txq, m));
	txq->ptq_list = m;
	return (0);
}

int
pv_net_transmit(if_t ifp, struct mbuf *m)
{
	struct pv_net *pn = if_getsoftc(ifp);
	struct pv_net_txq *txq;
	int error;

	if (!pn->pn_running) {
		m_freem(m);
		return (ENETDOWN);
	}
	txq = pv_net_tx_select(pn, m);
	if (mtx_trylock(&txq->ptq_mtx)) {
		error = pv_net_tx_enqueue_locked(txq, m);
		pv_net_tx_run(txq);
		mtx_unlock(&txq->ptq_mtx);
	} else {
		error = pv_net_tx_enqueue(txq, m);
		taskqueue_enqueue(txq->ptq_tq, &txq->ptq_task);
	}
	return (error);
}

static void
pv_net_tx_flush_ring(struct pv_net_txq *txq)
{
	struct mbuf *m;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	while ((m = txq->ptq_list) != NULL) {
		txq->ptq_list = m->m_nextpkt;
		m_freem(m);
	}
	while ((m = buf_ring_dequeue_sc(txq->ptq_ring)) != NULL)
		m_freem(m);
}

/* Drop the packets that are not in the queue yet. */
void
pv_net_tx_flush(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_flush_ring(txq);
	mtx_unlock(&txq->ptq_mtx);
}

void
pv_net_qflush(if_t ifp)
{
	struct pv_net *pn = if_getsoftc(ifp);
	int i;

	for (i = 0; i < pn->pn_made; i++)
		pv_net_tx_flush(&pn->pn_txqs[i]);
	if_qflush(ifp);
}

/*
 * Called once a second: true if packets are in flight and for too long none has come back.
 */
bool
pv_net_tx_stuck(struct pv_net_txq *txq)
{
	uint64_t done;
	bool stuck = false;

	mtx_lock(&txq->ptq_mtx);
	if (!txq->ptq_stopped)
		pv_net_tx_run(txq);
	done = txq->ptq_pvq->q_stats.qs_done;
	if (txq->ptq_stopped || pvq_inflight(txq->ptq_pvq) == 0 || done != txq->ptq_wd_done)
		txq->ptq_wd_ticks = 0;
	else
		stuck = ++txq->ptq_wd_ticks >= PV_NET_WATCHDOG;
	txq->ptq_wd_done = done;
	mtx_unlock(&txq->ptq_mtx);
	return (stuck);
}

void
pv_net_tx_start(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	txq->ptq_stopped = false;
	txq->ptq_full = false;
	txq->ptq_unkicked = 0;
	txq->ptq_kicked = 0;
	txq->ptq_wd_ticks = 0;
	pvq_intr_disable(txq->ptq_pvq);
	mtx_unlock(&txq->ptq_mtx);
}

/* No thread is at the queue, and none will be, when this returns. */
void
pv_net_tx_stop(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	txq->ptq_stopped = true;
	mtx_unlock(&txq->ptq_mtx);
	callout_drain(&txq->ptq_timer);
	taskqueue_drain(txq->ptq_tq, &txq->ptq_task);
	taskqueue_drain(txq->ptq_idle_tq, &txq->ptq_flush);
}

/* Free the packets of a stopped device, those that wait included. */
void
pv_net_tx_drain(struct pv_net_txq *txq)
{
	struct pv_net_txbuf *buf;

	mtx_lock(&txq->ptq_mtx);
	while ((buf = pvq_drain(txq->ptq_pvq)) != NULL) {
		pv_net_tx_unload(txq, buf);
		m_freem(buf->ptb_mbuf);
		buf->ptb_mbuf = NULL;
		txq->ptq_free[txq->ptq_nfree++] = buf;
	}
	KASSERT(txq->ptq_nfree == txq->ptq_nbufs, ("%s: %u of %u buffers came back", __func__,
	    txq->ptq_nfree, txq->ptq_nbufs));
	pv_net_tx_flush_ring(txq);
	mtx_unlock(&txq->ptq_mtx);
}

/* Before anything else is done with the queue. */
void
pv_net_tx_init(struct pv_net_txq *txq)
{
	NET_TASK_INIT(&txq->ptq_task, 0, pv_net_tx_task, txq);
	TASK_INIT(&txq->ptq_flush, 0, pv_net_tx_flush_task, txq);
	callout_init_mtx(&txq->ptq_timer, &txq->ptq_mtx, 0);
}
