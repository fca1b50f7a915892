/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: the interface as a port of netmap(4), and queues that a program has
 * by it.
 *
 * A program opens all pairs of queues, or one.  The device is reset when rings
 * come and go, because that is the only way to get buffers back, and started
 * again with the queues as they are then: each is netmap's, or packets'.  An
 * interface that is down stays so; its rings are idle until it is up.
 *
 * While a ring is netmap's, the device is requested not to offload what is
 * received.
 *
 * While the device is suspended or goes, no ring can come, but rings go:
 * netmap(4) frees them whatever is returned to it, so that the queues have to
 * be packets' when they are started again.
 *
 * Such a queue moves no mbufs.  Its chains are slots of a netmap ring: a header
 * of its own and the slot's buffer.  The queue is stopped for packets
 * (ptq_stopped, prq_stopped), and what it has in flight belongs to one of two
 * sets of chains only, packets' or slots', because the device is reset between
 * them.
 *
 *	slots of the ring, receiving:
 *
 *	nr_hwcur .. nr_hwtail    the program's
 *	nr_hwtail .. nr_hwcur-1  the device's
 *	nr_hwcur-1               unused
 *
 *	slots of the ring, sending:
 *
 *	nr_hwcur .. rhead        to be sent
 *	nq_tail .. nr_hwcur      the device's
 *	rest but one             the program's
 *
 * A device may complete chains in any order, a ring gives slots in order.  What
 * was sent is waited for in order.  A received frame that is not that of slot
 * nr_hwtail exchanges its buffer with that slot's: nq_of is the entry of a
 * slot, ne_slot the slot of an entry.
 *
 * A frame is passed on without its offload metadata: a partial checksum is
 * finished here, and GSO packets and frames that span buffers are dropped.  The
 * device is requested to send neither while a queue is netmap's
 * (pv_net_rx_wanted()).
 *
 * Interrupts.  Each wakes the program up, which calls sync; that requests the
 * next one.  A handler is in the network epoch from its look at nq_active until
 * it has called netmap(4), and whoever clears that waits for the epoch
 * (pv_net_stop_pairs).
 *
 * Watchdog.  A program may sleep while what it sent has completed: only a
 * device that has completed nothing is stuck.
 *
 * Locking.  The queue's lock, in all but allocation; netmap(4) is called
 * without it.  netmap(4)'s lock of all ports is held when pv_dev's is taken; it
 * is never taken with that held.
 *
 * Gaps.  Memory that bus_dma(9) would have to load, pages of a back end, and
 * rings of less than two slots: there is no netmap port then but netmap's
 * emulated one.  A device that does not stop may still write to netmap's
 * buffers; the headers that it has are leaked, as its rings are.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/epoch.h>
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
#include <dev/pv/net/pv_net_var.h>

#ifdef DEV_NETMAP

#include <net/netmap.h>
#include <sys/selinfo.h>
#include <dev/netmap/netmap_kern.h>

#define	PV_NET_NETMAP_HDR	32	/* bytes for a header */

/* What a slot's chain is made of. */
struct pv_net_entry {
	u_int			 ne_slot;
	bool			 ne_busy;	/* the device has it */
	void			*ne_hdr;
	bus_dma_segment_t	 ne_segs[2];
};

struct pv_net_netmap {
	bool			 nq_active;	/* sync may use the queue */
	bool			 nq_used;	/* what is in flight
						 * are slots */
	u_int			 nq_nslots;
	u_int			 nq_tail;	/* oldest slot
						 * that the device may have */
	bool			 nq_discard;	/* the rest of the frame
						 * is dropped */
	uint8_t			*nq_hdrs;
	struct pv_net_entry	*nq_entries;
	struct pv_net_entry	**nq_of;	/* of each slot */
};

/* Slots of a ring: its chains have two segments. */
static u_int
pv_net_netmap_slots(const struct pvq *q)
{
	return (q->q_flat_segs >= 2 ? q->q_size : q->q_size / 2);
}

/* A ring of so many slots, each with its own entry. */
static void
pv_net_netmap_assign(struct pv_net_netmap *nq, u_int n)
{
	u_int i;

	nq->nq_nslots = n;
	nq->nq_tail = 0;
	for (i = 0; i < n; i++) {
		nq->nq_of[i] = &nq->nq_entries[i];
		nq->nq_of[i]->ne_slot = i;
	}
}

static bool
pv_net_netmap_fit_queue(struct pv_net_netmap *nq, const struct pvq *q,
    u_int slots)
{
	u_int n = pv_net_netmap_slots(q);

	if (n == slots)
		pv_net_netmap_assign(nq, n);
	return (n == slots);
}

/*
 * Follow the sizes of the rings, while no program has any.  False: they are not
 * those given.
 */
static bool
pv_net_netmap_fit(struct pv_net *pn, u_int rx_slots, u_int tx_slots)
{
	bool fits = true;
	int i;

	for (i = 0; i < pn->pn_params.pnp_npairs && fits; i++)
		fits = pv_net_netmap_fit_queue(pn->pn_rxqs[i].prq_netmap,
		    pn->pn_rxqs[i].prq_pvq, rx_slots) &&
		    pv_net_netmap_fit_queue(pn->pn_txqs[i].ptq_netmap,
		    pn->pn_txqs[i].ptq_pvq, tx_slots);
	return (fits);
}

static struct pv_net_netmap *
pv_net_netmap_alloc(const struct pv_net *pn, const struct pvq *q)
{
	u_int i, n = pv_net_netmap_slots(q);
	struct pv_net_netmap *nq;

	nq = malloc(sizeof(*nq), M_PVNET, M_WAITOK | M_ZERO);
	nq->nq_hdrs = malloc(n * PV_NET_NETMAP_HDR, M_PVNET, M_WAITOK | M_ZERO);
	nq->nq_entries = malloc(n * sizeof(nq->nq_entries[0]), M_PVNET,
	    M_WAITOK | M_ZERO);
	nq->nq_of = malloc(n * sizeof(nq->nq_of[0]), M_PVNET,
	    M_WAITOK | M_ZERO);
	pv_net_netmap_assign(nq, n);
	for (i = 0; i < n; i++) {
		nq->nq_of[i]->ne_hdr = nq->nq_hdrs + i * PV_NET_NETMAP_HDR;
		nq->nq_of[i]->ne_segs[0].ds_addr =
		    vtophys(nq->nq_of[i]->ne_hdr);
		nq->nq_of[i]->ne_segs[0].ds_len = pn->pn_params.pnp_hdrlen;
	}
	return (nq);
}

/* dead: the device may still use the headers. */
static void
pv_net_netmap_free_queue(struct pv_net_netmap *nq, bool dead)
{
	if (nq == NULL)
		return;
	free(nq->nq_of, M_PVNET);
	free(nq->nq_entries, M_PVNET);
	if (!dead || !nq->nq_used)
		free(nq->nq_hdrs, M_PVNET);
	free(nq, M_PVNET);
}

/* Do slots fit: chains of two segments, and one slot that is not used? */
static bool
pv_net_netmap_fits(const struct pvq *q)
{
	return (q->q_max_segs >= 2 && pv_net_netmap_slots(q) >= 2);
}

static bool
pv_net_netmap_pair_fits(const struct pv_net *pn, int pair)
{
	return (pv_net_netmap_fits(pn->pn_rxqs[pair].prq_pvq) &&
	    pv_net_netmap_fits(pn->pn_txqs[pair].ptq_pvq));
}

static void
pv_net_netmap_alloc_pair(struct pv_net *pn, int pair)
{
	struct pv_net_rxq *rxq = &pn->pn_rxqs[pair];
	struct pv_net_txq *txq = &pn->pn_txqs[pair];

	rxq->prq_netmap = pv_net_netmap_alloc(pn, rxq->prq_pvq);
	txq->ptq_netmap = pv_net_netmap_alloc(pn, txq->ptq_pvq);
}

/*
 * Allocate what slots are sent and received with.  False: the device can't have
 * a native port.
 */
static bool
pv_net_netmap_alloc_queues(struct pv_net *pn)
{
	int i;

	if (!pn->pn_params.pnp_phys || pn->pn_staged ||
	    pn->pn_params.pnp_hdrlen == 0 ||
	    pn->pn_params.pnp_hdrlen > PV_NET_NETMAP_HDR)
		return (false);
	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		if (!pv_net_netmap_pair_fits(pn, i))
			return (false);
	}
	for (i = 0; i < pn->pn_params.pnp_npairs; i++)
		pv_net_netmap_alloc_pair(pn, i);
	return (true);
}

int
pv_net_netmap_add_pair(struct pv_net *pn, int pair)
{
	/* None has, if the card is no port, or there is no interface yet. */
	if (pn->pn_rxqs[0].prq_netmap == NULL)
		return (0);
	if (!pv_net_netmap_pair_fits(pn, pair))
		return (ENXIO);
	pv_net_netmap_alloc_pair(pn, pair);
	return (0);
}

static void
pv_net_netmap_free_queues(struct pv_net *pn)
{
	struct pv_net_netmap *rx, *tx;
	struct pv_net_rxq *rxq;
	struct pv_net_txq *txq;
	int i;

	/* An interrupt may still come, and looks. */
	for (i = 0; i < pn->pn_max_pairs; i++) {
		rxq = &pn->pn_rxqs[i];
		txq = &pn->pn_txqs[i];
		mtx_lock(&rxq->prq_mtx);
		rx = rxq->prq_netmap;
		rxq->prq_netmap = NULL;
		mtx_unlock(&rxq->prq_mtx);
		mtx_lock(&txq->ptq_mtx);
		tx = txq->ptq_netmap;
		txq->ptq_netmap = NULL;
		mtx_unlock(&txq->ptq_mtx);
		pv_net_netmap_free_queue(rx, pn->pn_pvdev.pvd_leaked);
		pv_net_netmap_free_queue(tx, pn->pn_pvdev.pvd_leaked);
	}
}

/*
 * The segment of a slot's buffer, of len bytes: false if the program gave an
 * invalid one.
 */
static bool
pv_net_netmap_segment(struct netmap_adapter *na, struct netmap_slot *slot,
    u_int len, bus_dma_segment_t *seg)
{
	uint64_t paddr;
	void *addr;

	addr = PNMB(na, slot, &paddr);
	if (addr == NETMAP_BUF_BASE(na) || len == 0 ||
	    len > NETMAP_BUF_SIZE(na))
		return (false);
	slot->flags &= ~(NS_REPORT | NS_BUF_CHANGED);
	seg->ds_addr = paddr;
	seg->ds_len = len;
	return (true);
}

/*
 * ---- Sending --------------------------------------------------------------
 */

/* The device has done with these slots. */
static void
pv_net_netmap_reclaim(struct pv_net_txq *txq, struct netmap_kring *kring)
{
	struct pv_net_netmap *nq = txq->ptq_netmap;
	struct pvq_done *done = txq->ptq_done;
	struct pv_net_entry *ne;
	int i, n;

	do {
		n = pvq_get(txq->ptq_pvq, done, PV_NET_BATCH);
		for (i = 0; i < n; i++) {
			ne = done[i].pd_cookie;
			ne->ne_busy = false;
		}
	} while (n == PV_NET_BATCH);
	while (nq->nq_tail != kring->nr_hwcur &&
	    !nq->nq_of[nq->nq_tail]->ne_busy)
		nq->nq_tail = nm_next(nq->nq_tail, nq->nq_nslots - 1);
	kring->nr_hwtail = nm_prev(nq->nq_tail, nq->nq_nslots - 1);
}

/*
 * Put up to a batch of slots from nr_hwcur on into the ring, and notify the
 * device.  How many; -1: the program gave an invalid one.
 */
static int
pv_net_netmap_send(struct pv_net_txq *txq, struct netmap_kring *kring)
{
	struct pvq_chain *chains = txq->ptq_chains;
	struct pv_net_netmap *nq = txq->ptq_netmap;
	u_int at = kring->nr_hwcur;
	struct netmap_slot *slot;
	struct pv_net_entry *ne;
	int i, n, slots = 0;

	for (n = 0; n < PV_NET_BATCH && at != kring->rhead; n++) {
		slot = &kring->ring->slot[at];
		ne = nq->nq_of[at];
		if (!pv_net_netmap_segment(kring->na, slot, slot->len,
		    &ne->ne_segs[1]))
			return (-1);
		chains[n] = (struct pvq_chain){ .pc_segs = ne->ne_segs,
		    .pc_nread = 2, .pc_cookie = ne };
		slots += pvq_prepare(txq->ptq_pvq, &chains[n]);
		if (pvq_reserve(txq->ptq_pvq, slots) != 0)
			break;
		at = nm_next(at, nq->nq_nslots - 1);
	}
	if (n == 0)
		return (0);
	for (i = 0; i < n; i++) {
		ne = chains[i].pc_cookie;
		ne->ne_busy = true;
		txq->ptq_stats.packets++;
		txq->ptq_stats.bytes += ne->ne_segs[1].ds_len;
	}
	pvq_put(txq->ptq_pvq, chains, n);
	pvq_commit(txq->ptq_pvq);
	(void)pvq_kick(txq->ptq_pvq);
	kring->nr_hwcur = at;
	return (n);
}

/*
 * netmap(4)'s operations on a ring, here and below; ioctl(2) and poll(2) call
 * them.
 */
static int
pv_net_netmap_txsync(struct netmap_kring *kring, int flags __unused)
{
	struct pv_net *pn = if_getsoftc(kring->na->ifp);
	struct pv_net_txq *txq = &pn->pn_txqs[kring->ring_id];
	struct pv_net_netmap *nq = txq->ptq_netmap;
	int inflight, left = nq->nq_nslots, n = 0;

	mtx_lock(&txq->ptq_mtx);
	if (nq->nq_active) {
		while ((n = pv_net_netmap_send(txq, kring)) > 0)
			;
		/*
		 * A device that announces completions and has none is not
		 * waited for.
		 */
		do {
			pv_net_netmap_reclaim(txq, kring);
			inflight = pvq_inflight(txq->ptq_pvq);
		} while (inflight > 0 && left-- > 0 &&
		    pvq_intr_enable(txq->ptq_pvq, howmany(inflight, 2)));
	}
	mtx_unlock(&txq->ptq_mtx);
	return (n < 0 ? netmap_ring_reinit(kring) : 0);
}

void
pv_net_netmap_tx_intr(struct pv_net_txq *txq)
{
	struct epoch_tracker et;
	struct pv_net_netmap *nq;
	bool active;

	NET_EPOCH_ENTER(et);
	mtx_lock(&txq->ptq_mtx);
	nq = txq->ptq_netmap;
	active = nq != NULL && nq->nq_active;
	if (active)
		pvq_intr_disable(txq->ptq_pvq);
	mtx_unlock(&txq->ptq_mtx);
	if (active)
		(void)netmap_tx_irq(txq->ptq_pn->pn_ifp, txq->ptq_id);
	NET_EPOCH_EXIT(et);
}

bool
pv_net_netmap_stands(struct pv_net_txq *txq)
{
	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	return (txq->ptq_netmap != NULL && txq->ptq_netmap->nq_active &&
	    pvq_peek(txq->ptq_pvq) != PVQ_WAITS);
}

/*
 * ---- Receiving ------------------------------------------------------------
 */

/* Show the device a batch of buffers. */
static void
pv_net_netmap_show(struct pv_net_rxq *rxq, int n)
{
	pvq_put(rxq->prq_pvq, rxq->prq_chains, n);
	pvq_commit(rxq->prq_pvq);
	(void)pvq_kick(rxq->prq_pvq);
}

/*
 * Give slots to the device, from one to before another.  Returns the first that
 * it did not get: `to', or one for which the program gave an invalid buffer.
 */
static u_int
pv_net_netmap_post(struct pv_net_rxq *rxq, struct netmap_kring *kring,
    u_int from, u_int to)
{
	struct pv_net_netmap *nq = rxq->prq_netmap;
	struct netmap_adapter *na = kring->na;
	struct pv_net_entry *ne;
	struct pvq_chain *pc;
	int n = 0, slots = 0;

	for (; from != to; from = nm_next(from, nq->nq_nslots - 1)) {
		ne = nq->nq_of[from];
		if (!pv_net_netmap_segment(na, &kring->ring->slot[from],
		    NETMAP_BUF_SIZE(na), &ne->ne_segs[1]))
			break;
		pc = &rxq->prq_chains[n];
		*pc = (struct pvq_chain){ .pc_segs = ne->ne_segs,
		    .pc_nwrite = 2, .pc_cookie = ne };
		slots += pvq_prepare(rxq->prq_pvq, pc);
		if (pvq_reserve(rxq->prq_pvq, slots) != 0)
			break;
		if (++n == PV_NET_BATCH) {
			pv_net_netmap_show(rxq, n);
			n = slots = 0;
		}
	}
	if (n > 0)
		pv_net_netmap_show(rxq, n);
	return (from);
}

/*
 * Slot `next' is to have the frame of another slot's buffer: they exchange
 * theirs.
 */
static void
pv_net_netmap_exchange(struct pv_net_netmap *nq, struct netmap_ring *ring,
    struct pv_net_entry *ne, u_int next)
{
	struct pv_net_entry *other = nq->nq_of[next];
	u_int slot = ne->ne_slot;
	uint32_t buf;

	buf = ring->slot[slot].buf_idx;
	ring->slot[slot].buf_idx = ring->slot[next].buf_idx;
	ring->slot[next].buf_idx = buf;
	nq->nq_of[next] = ne;
	nq->nq_of[slot] = other;
	ne->ne_slot = next;
	other->ne_slot = slot;
}

/* Is there a frame in this buffer for the program? */
static bool
pv_net_netmap_frame(struct pv_net_rxq *rxq, struct netmap_adapter *na,
    struct netmap_slot *slot, const struct pv_net_rxhdr *hdr)
{
	struct pv_net_rxstats *stats = &rxq->prq_stats;
	bool rest = rxq->prq_netmap->nq_discard;

	rxq->prq_netmap->nq_discard = hdr->prh_more;
	if (rest)
		return (false);
	if (hdr->prh_error == PV_NET_RX_SHORT)
		stats->short_buf++;
	else if (hdr->prh_error != PV_NET_RX_OK)
		stats->bad_header++;
	else if (hdr->prh_more || hdr->prh_len > NETMAP_BUF_SIZE(na) ||
	    hdr->prh_offload.po_gso_type != PV_NET_GSO_NONE)
		stats->too_long++;
	else if (hdr->prh_len < ETHER_HDR_LEN)
		stats->runts++;
	else if (!pv_net_finish_frame(NMB(na, slot), hdr->prh_len,
	    &hdr->prh_offload))
		stats->bad_offload++;
	else {
		stats->packets++;
		stats->bytes += hdr->prh_len;
		stats->csum_partial +=
		    (hdr->prh_offload.po_flags & PV_NET_NEEDS_CSUM) != 0;
		return (true);
	}
	return (false);
}

/* Take up to a batch of frames: how many buffers. */
static int
pv_net_netmap_receive(struct pv_net_rxq *rxq, struct netmap_kring *kring)
{
	struct pv_net_netmap *nq = rxq->prq_netmap;
	struct pv_net_rxhdr *hdrs = rxq->prq_hdrs;
	struct pvq_done *done = rxq->prq_done;
	struct pv_net *pn = rxq->prq_pn;
	struct netmap_ring *ring = kring->ring;
	struct pv_net_entry *ne;
	int i, n;

	n = pvq_get(rxq->prq_pvq, done, PV_NET_BATCH);
	if (n == 0)
		return (0);
	for (i = 0; i < n; i++) {
		ne = done[i].pd_cookie;
		memset(&hdrs[i], 0, sizeof(hdrs[i]));
		hdrs[i].prh_hdr = ne->ne_hdr;
		hdrs[i].prh_room = ne->ne_segs[0].ds_len +
		    ne->ne_segs[1].ds_len;
	}
	pn->pn_ops->pno_decap(pn->pn_softc, rxq->prq_id, done, hdrs, n);
	for (i = 0; i < n; i++) {
		ne = done[i].pd_cookie;
		if (!pv_net_netmap_frame(rxq, kring->na,
		    &ring->slot[ne->ne_slot], &hdrs[i])) {
			(void)pv_net_netmap_post(rxq, kring, ne->ne_slot,
			    nm_next(ne->ne_slot, nq->nq_nslots - 1));
			continue;
		}
		if (ne->ne_slot != kring->nr_hwtail)
			pv_net_netmap_exchange(nq, ring, ne, kring->nr_hwtail);
		ring->slot[kring->nr_hwtail].len = hdrs[i].prh_len;
		ring->slot[kring->nr_hwtail].flags = 0;
		kring->nr_hwtail = nm_next(kring->nr_hwtail, nq->nq_nslots - 1);
	}
	return (n);
}

static int
pv_net_netmap_rxsync(struct netmap_kring *kring, int flags __unused)
{
	struct pv_net *pn = if_getsoftc(kring->na->ifp);
	struct pv_net_rxq *rxq = &pn->pn_rxqs[kring->ring_id];
	struct pv_net_netmap *nq = rxq->prq_netmap;
	u_int last = nq->nq_nslots - 1;
	bool fine = true;
	int left = last;
	u_int posted;

	if (kring->rhead > last)
		return (netmap_ring_reinit(kring));
	mtx_lock(&rxq->prq_mtx);
	if (nq->nq_active) {
		/*
		 * What the program released, less the slot that stays unused.
		 */
		if (kring->nr_hwcur != kring->rhead) {
			posted = pv_net_netmap_post(rxq, kring,
			    nm_prev(kring->nr_hwcur, last),
			    nm_prev(kring->rhead, last));
			kring->nr_hwcur = nm_next(posted, last);
			fine = kring->nr_hwcur == kring->rhead;
		}
		kring->nr_kflags &= ~NKR_PENDINTR;
		/*
		 * A device that announces work and has none is not waited for.
		 */
		do {
			left--;
			while (left > 0 &&
			    pv_net_netmap_receive(rxq, kring) > 0)
				left--;
		} while (left > 0 && pvq_intr_enable(rxq->prq_pvq, 1));
	}
	mtx_unlock(&rxq->prq_mtx);
	return (fine ? 0 : netmap_ring_reinit(kring));
}

void
pv_net_netmap_rx_intr(struct pv_net_rxq *rxq)
{
	struct epoch_tracker et;
	struct pv_net_netmap *nq;
	bool active;
	u_int work;

	NET_EPOCH_ENTER(et);
	mtx_lock(&rxq->prq_mtx);
	nq = rxq->prq_netmap;
	active = nq != NULL && nq->nq_active;
	if (active)
		pvq_intr_disable(rxq->prq_pvq);
	mtx_unlock(&rxq->prq_mtx);
	if (active)
		(void)netmap_rx_irq(rxq->prq_pn->pn_ifp, rxq->prq_id, &work);
	NET_EPOCH_EXIT(et);
}

/*
 * ---- Starting and stopping ------------------------------------------------
 */

/* The ring of a queue that is netmap's; NULL: it is not. */
static struct netmap_kring *
pv_net_netmap_kring(const struct pv_net *pn, int pair, enum txrx t)
{
	if (pn->pn_rxqs[pair].prq_netmap == NULL || pn->pn_ifp == NULL)
		return (NULL);
	return (netmap_kring_on(NA(pn->pn_ifp), pair, t));
}

bool
pv_net_netmap_tx_start(struct pv_net_txq *txq)
{
	struct netmap_kring *kring = pv_net_netmap_kring(txq->ptq_pn,
	    txq->ptq_id, NR_TX);
	struct pv_net_netmap *nq = txq->ptq_netmap;

	if (kring == NULL)
		return (false);
	mtx_lock(&txq->ptq_mtx);
	nq->nq_active = nq->nq_used = true;
	pv_net_netmap_reclaim(txq, kring);
	mtx_unlock(&txq->ptq_mtx);
	/* There may be room now. */
	(void)netmap_tx_irq(txq->ptq_pn->pn_ifp, txq->ptq_id);
	return (true);
}

bool
pv_net_netmap_rx_start(struct pv_net_rxq *rxq)
{
	struct netmap_kring *kring = pv_net_netmap_kring(rxq->prq_pn,
	    rxq->prq_id, NR_RX);
	struct pv_net_netmap *nq = rxq->prq_netmap;
	bool more;

	if (kring == NULL)
		return (false);
	mtx_lock(&rxq->prq_mtx);
	nq->nq_active = nq->nq_used = true;
	nq->nq_discard = false;
	(void)pv_net_netmap_post(rxq, kring, kring->nr_hwtail,
	    nm_prev(kring->nr_hwcur, nq->nq_nslots - 1));
	more = pvq_intr_enable(rxq->prq_pvq, 1);
	mtx_unlock(&rxq->prq_mtx);
	if (more)
		pv_net_netmap_rx_intr(rxq);
	return (true);
}

bool
pv_net_netmap_stop(struct pv_net_rxq *rxq, struct pv_net_txq *txq)
{
	bool was;

	if (rxq->prq_netmap == NULL)
		return (false);
	mtx_lock(&rxq->prq_mtx);
	was = rxq->prq_netmap->nq_active;
	rxq->prq_netmap->nq_active = false;
	mtx_unlock(&rxq->prq_mtx);
	mtx_lock(&txq->ptq_mtx);
	was |= txq->ptq_netmap->nq_active;
	txq->ptq_netmap->nq_active = false;
	mtx_unlock(&txq->ptq_mtx);
	return (was);
}

/*
 * Take back the slots that a stopped device had, if those were what it had.
 * Those to be sent are not sent again.
 */
static void
pv_net_netmap_take_back(struct pv_net_netmap *nq, struct pvq *q)
{
	struct pv_net_entry *ne;

	if (nq == NULL || !nq->nq_used)
		return;
	nq->nq_used = false;
	while ((ne = pvq_drain(q)) != NULL)
		ne->ne_busy = false;
}

void
pv_net_netmap_drain(struct pv_net_rxq *rxq, struct pv_net_txq *txq)
{
	mtx_lock(&rxq->prq_mtx);
	pv_net_netmap_take_back(rxq->prq_netmap, rxq->prq_pvq);
	mtx_unlock(&rxq->prq_mtx);
	mtx_lock(&txq->ptq_mtx);
	pv_net_netmap_take_back(txq->ptq_netmap, txq->ptq_pvq);
	mtx_unlock(&txq->ptq_mtx);
}

/* Rings come, or go: those that netmap(4) has marked. */
static int
pv_net_netmap_register(struct netmap_adapter *na, int on)
{
	struct pv_net *pn = if_getsoftc(na->ifp);
	bool up;
	int error = 0;

	pv_dev_lock(&pn->pn_pvdev);
	if (on && !pv_dev_is_started(&pn->pn_pvdev)) {
		pv_dev_unlock(&pn->pn_pvdev);
		return (ENXIO);
	}
	/* netmap(4) keeps the sizes that rings had when it was attached. */
	if (on && !pn->pn_netmap &&
	    !pv_net_netmap_fit(pn, na->num_rx_desc, na->num_tx_desc)) {
		pv_dev_unlock(&pn->pn_pvdev);
		return (EBUSY);
	}
	/* Of a device that is suspended, too: it is live when it is resumed. */
	up = pn->pn_pvdev.pvd_up;
	pv_dev_down(&pn->pn_pvdev);
	if (on)
		nm_set_native_flags(na);
	netmap_krings_mode_commit(na, on);
	if (!on)
		nm_clear_native_flags(na);
	pn->pn_netmap = nm_native_on(na);
	if (up)
		error = pv_dev_up(&pn->pn_pvdev);
	pv_dev_unlock(&pn->pn_pvdev);
	return (error);
}

static int
pv_net_netmap_config(struct netmap_adapter *na, struct nm_config_info *info)
{
	struct pv_net *pn = if_getsoftc(na->ifp);

	info->num_tx_rings = info->num_rx_rings = pn->pn_pairs;
	info->num_tx_descs = pv_net_netmap_slots(pn->pn_txqs[0].ptq_pvq);
	info->num_rx_descs = pv_net_netmap_slots(pn->pn_rxqs[0].prq_pvq);
	info->rx_buf_maxsize = PV_NET_MAX_FRAME;
	return (0);
}

void
pv_net_netmap_attach(struct pv_net *pn)
{
	struct netmap_adapter na;

	if (!pv_net_netmap_alloc_queues(pn))
		return;
	memset(&na, 0, sizeof(na));
	na.ifp = pn->pn_ifp;
	na.na_flags = NAF_BDG_MAYSLEEP;
	na.num_tx_rings = na.num_rx_rings = pn->pn_params.pnp_npairs;
	na.num_tx_desc = pv_net_netmap_slots(pn->pn_txqs[0].ptq_pvq);
	na.num_rx_desc = pv_net_netmap_slots(pn->pn_rxqs[0].prq_pvq);
	na.rx_buf_maxsize = PV_NET_MAX_FRAME;
	na.nm_register = pv_net_netmap_register;
	na.nm_txsync = pv_net_netmap_txsync;
	na.nm_rxsync = pv_net_netmap_rxsync;
	na.nm_config = pv_net_netmap_config;
	if (netmap_attach(&na) != 0)
		pv_net_netmap_free_queues(pn);
}

void
pv_net_netmap_detach(struct pv_net *pn)
{
	netmap_detach(pn->pn_ifp);
	pv_net_netmap_free_queues(pn);
}

#else /* !DEV_NETMAP */

/* A kernel without it. */
bool
pv_net_netmap_rx_start(struct pv_net_rxq *rxq __unused)
{
	return (false);
}

bool
pv_net_netmap_tx_start(struct pv_net_txq *txq __unused)
{
	return (false);
}

void
pv_net_netmap_rx_intr(struct pv_net_rxq *rxq __unused)
{
}

void
pv_net_netmap_tx_intr(struct pv_net_txq *txq __unused)
{
}

bool
pv_net_netmap_stands(struct pv_net_txq *txq __unused)
{
	return (false);
}

bool
pv_net_netmap_stop(struct pv_net_rxq *rxq __unused,
    struct pv_net_txq *txq __unused)
{
	return (false);
}

void
pv_net_netmap_drain(struct pv_net_rxq *rxq __unused,
    struct pv_net_txq *txq __unused)
{
}

int
pv_net_netmap_add_pair(struct pv_net *pn __unused, int pair __unused)
{
	return (0);
}

void
pv_net_netmap_attach(struct pv_net *pn __unused)
{
}

void
pv_net_netmap_detach(struct pv_net *pn __unused)
{
}

#endif /* !DEV_NETMAP */
