/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: sending: the ring and the buffers of a transmit queue, notification
 * of the device, and completion.
 *
 *	             lock free,
 *	            nothing waits                     notification
 *	if_transmit -------------> chain ---> ring ~~~~~~~~~~~~~~~~> device
 *	     |                       ^                                  |
 *	     | lock taken, or        | run                              v
 *	     | packets wait          |                              completed
 *	     +-> buf_ring, or list ->+---- collects <-------------- chains
 *	                             |
 *	          +------------+-----+---------+----------------+
 *	          |            |               |                |
 *	     if_transmit     task     transmit interrupt   start (ALTQ)
 *	                       ^
 *	                       +-- lock was taken, notification left over,
 *	                           timer
 *
 * The ring:
 *
 *	pv_net_tx_add        packet -> tag, offload -> segments -> next chain
 *	                                    |                      of the batch
 *	                                    +-> segmented here: its segments
 *	                                        become the queue's list
 *	pv_net_tx_commit     batch -> ring: the device sees it, and is not
 *	                     notified yet
 *	pv_net_tx_fast       both, of one packet, as most are
 *	pv_net_tx_reclaim    ring -> completed chains: their packets are freed
 *	pv_net_tx_take_back  the same for what a stopped device had
 *
 * A buffer is what a chain in flight has: the packet, its DMA map and segments,
 * and memory for a header that can't stand before the frame in its own mbuf.
 * There is one for each slot of the ring.  Free ones are a stack, so that the
 * one that was used last, and is in the cache, is next.
 *
 * All but the short way of a packet is done by one function, pv_net_tx_run():
 * it collects completions, fills the ring with what waits, arms the timer, and
 * checks whether the queue is broken.  Those in the picture call it, and notify
 * afterwards:
 *
 *	runs the queue        because                           notifies
 *	-------------------   -------------------------------   ---------------
 *	if_transmit           packets wait, the packet was      see below
 *	                      split, or ptq_threshold says to
 *	                      collect
 *	start                 ALTQ releases packets             see below
 *	task                  the lock was taken; the timer     at once; also
 *	                      expired; a notification was       for each batch
 *	                      left                              of PV_NET_BATCH
 *	transmit interrupt    the ring was full                 the same
 *	                      (pv_net_tx_wait)
 *	pv_net_tx_retired()   the pair of queues is given up    the same
 *
 * Notification.  It may trap to the host, so it is sent when the thread that
 * queues packets has finished with them.  Of a sender this is known by its
 * priority:
 *
 *	any thread but those below               before if_transmit returns
 *	receiving on the same pair of queues     at the end of its pass
 *						 (pv_net_rx_pass_end)
 *	another interrupt thread                 by the task
 *
 * An interrupt thread, for example another card's that forwards what it
 * receives, sends one packet after another and does not mark the last one.  So
 * the task's thread has the lowest priority that interrupt threads may have: it
 * does not run before they sleep, and nothing else keeps it from running then.
 * A pass without end does not delay packets without end: after pn_tx_kick of
 * them, or PV_NET_KICK_BYTES, the sender notifies.
 *
 *	notified:   ptq_unkicked == 0
 *	left over:  ptq_unkicked != 0 while no thread has the lock.  The task
 *	            is queued (ptq_deferred), or the pair's receive pass has
 *	            not finished (prq_busy).
 *
 * Completions are collected by the dozen, without interrupts: by the sender,
 * when a quarter of the buffers, or of those that were free the last time, is
 * in flight (ptq_threshold).
 *
 * A command (pv_net_command()) takes a buffer, as a packet does, which is what
 * its completion is known by: one without segments.
 *
 * The timer.  What is in flight would be collected by the next sender, and
 * there may be none.  So while anything is in flight or waits, a callout is
 * pending that queues the task after PV_NET_TX_TIMER.  It bounds the time that
 * an mbuf stays with the driver, and it tries again when memory is short.  No
 * packet waits for it otherwise.
 *
 * The interrupt is enabled only when the ring is full and packets wait, and
 * comes when three quarters of what is in flight have completed
 * (pv_net_tx_wait).
 *
 *	room:       ptq_full is false
 *	full:       ptq_full is true from a packet that found no room until a
 *	            completion is collected
 *
 * Locking.  ptq_mtx covers everything of the queue, both directions of the pvq
 * included.  The buf_ring takes packets without it, and allocation and freeing
 * are attach's and detach's.  Of the stack, only m_freem() and bpf(4) are
 * called with it held.
 */

#include "opt_rss.h"

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
#include <net/if_private.h>	/* if_softc, without a call; if_snd: nothing
				 * else puts into it */
#include <machine/bus.h>
#ifdef RSS
#include <net/rss_config.h>
#endif

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

#define	PV_NET_TX_RING_MIN	1024	/* packets that wait for the queue */
#define	PV_NET_KICK_BYTES	131072		/* bytes after
						 * which a notification
						 * is not left over */
#define	PV_NET_TX_TIMER		(10 * SBT_1MS)	/* longest that a
						 * completion waits */

int
pv_net_tell_made(const struct pv_net *pn, const char *queue, u_int made,
    u_int size)
{
	if (made != 0 && made != size)
		device_printf(pn->pn_dev,
		    "only %u of %u buffers for %s: no memory for more\n", made,
		    size, queue);
	return (made == 0 ? ENOMEM : 0);
}

/*
 * Memory for the headers that can't stand before their frame, one piece for all
 * buffers, or for half of them, a quarter ...  Returns for how many.
 */
static u_int
pv_net_tx_alloc_hdrs(struct pv_net_txq *txq, u_int size)
{
	struct pv_net *pn = txq->ptq_pn;
	const bus_size_t stride = roundup2(pn->pn_params.pnp_hdrlen, 8);
	u_int i;

	if (stride == 0)
		return (size);
	size = pv_dma_alloc_some(&txq->ptq_hdrs, bus_get_dma_tag(pn->pn_dev),
	    stride, size, 1, 8);
	for (i = 0; i < size; i++) {
		txq->ptq_bufs[i].ptb_hdr = (char *)txq->ptq_hdrs.pdm_mem +
		    i * stride;
		txq->ptq_bufs[i].ptb_hdr_addr = txq->ptq_hdrs.pdm_addr +
		    i * stride;
	}
	return (size);
}

static int
pv_net_tx_create_tag(struct pv_net_txq *txq)
{
	const struct pv_net_params *params = &txq->ptq_pn->pn_params;

	return (bus_dma_tag_create(bus_get_dma_tag(txq->ptq_pn->pn_dev), 1,
	    params->pnp_boundary, BUS_SPACE_MAXADDR, BUS_SPACE_MAXADDR, NULL,
	    NULL, PV_NET_MAX_FRAME + params->pnp_hdrlen, params->pnp_tx_segs,
	    params->pnp_seg_max, 0, NULL, NULL, &txq->ptq_tag));
}

int
pv_net_tx_alloc(struct pv_net_txq *txq)
{
	const struct pv_net_params *params = &txq->ptq_pn->pn_params;
	u_int i, n, size = txq->ptq_pvq->q_size;
	int error;

	txq->ptq_ring = buf_ring_alloc(MAX(1 << flsl(size - 1),
	    PV_NET_TX_RING_MIN), M_PVNET, M_WAITOK, &txq->ptq_mtx);
	error = pv_net_needs_dma(txq->ptq_pn) ? pv_net_tx_create_tag(txq) : 0;
	if (error != 0)
		return (error);
	txq->ptq_bufs = malloc(size * sizeof(txq->ptq_bufs[0]), M_PVNET,
	    M_WAITOK | M_ZERO);
	txq->ptq_free = malloc(size * sizeof(txq->ptq_free[0]), M_PVNET,
	    M_WAITOK | M_ZERO);
	/* One more than the tag may give, for the header. */
	txq->ptq_segs = malloc((size_t)size * (params->pnp_tx_segs + 1) *
	    sizeof(txq->ptq_segs[0]), M_PVNET, M_WAITOK | M_ZERO);
	n = pv_net_tx_alloc_hdrs(txq, size);
	for (i = 0; i < n; i++) {
		txq->ptq_bufs[i].ptb_segs =
		    &txq->ptq_segs[i * (params->pnp_tx_segs + 1)];
		if (txq->ptq_tag != NULL)
			error = bus_dmamap_create(txq->ptq_tag, 0,
			    &txq->ptq_bufs[i].ptb_map);
		if (error != 0)
			break;
		txq->ptq_free[i] = &txq->ptq_bufs[i];
		txq->ptq_max_bufs = txq->ptq_nbufs = txq->ptq_nfree = i + 1;
	}
	return (pv_net_tell_made(txq->ptq_pn, txq->ptq_name, txq->ptq_max_bufs,
	    size));
}

/* Undo pv_net_tx_alloc(), however far it came. */
void
pv_net_tx_free(struct pv_net_txq *txq)
{
	u_int i;

	/* Packets that a dead device still may read are not given back. */
	if (txq->ptq_nfree != txq->ptq_nbufs)
		return;
	pv_dma_free(&txq->ptq_hdrs);
	for (i = 0; i < txq->ptq_max_bufs && txq->ptq_tag != NULL; i++)
		bus_dmamap_destroy(txq->ptq_tag, txq->ptq_bufs[i].ptb_map);
	if (txq->ptq_tag != NULL)
		bus_dma_tag_destroy(txq->ptq_tag);
	if (txq->ptq_ring != NULL)
		drbr_free(txq->ptq_ring, M_PVNET);
	free(txq->ptq_segs, M_PVNET);
	free(txq->ptq_free, M_PVNET);
	free(txq->ptq_bufs, M_PVNET);
	txq->ptq_tag = NULL;
	txq->ptq_ring = NULL;
	txq->ptq_segs = NULL;
	txq->ptq_free = NULL;
	txq->ptq_bufs = NULL;
	txq->ptq_max_bufs = txq->ptq_nbufs = txq->ptq_nfree = 0;
}

/* Sync a packet's memory, if it was loaded by bus_dma(9). */
static inline void
pv_net_tx_sync(const struct pv_net_txq *txq, const struct pv_net_txbuf *buf,
    bus_dmasync_op_t op)
{
	if (txq->ptq_tag != NULL)
		bus_dmamap_sync(txq->ptq_tag, buf->ptb_map, op);
}

/* Unload a packet's memory, if it was loaded by bus_dma(9). */
static inline void
pv_net_tx_unmap(const struct pv_net_txq *txq, const struct pv_net_txbuf *buf)
{
	if (txq->ptq_tag != NULL)
		bus_dmamap_unload(txq->ptq_tag, buf->ptb_map);
}

/*
 * Is the protocol's header apart from the frame?  It stands before it, in its
 * own mbuf, if there is room that is not shared, and the device takes header
 * and data from one segment; else in the memory set aside for it.
 */
static bool
pv_net_tx_hdr_apart(const struct pv_net_params *params, struct mbuf *m)
{
	return (params->pnp_hdrlen != 0 &&
	    (params->pnp_hdr_apart || M_LEADINGSPACE(m) < params->pnp_hdrlen));
}

/*
 * Add the segments of an mbuf that has pages, and no address (M_EXTPG,
 * mbuf(9)): sendfile(2)'s, or a record of TLS, with a header before the pages
 * and a trailer behind them.  As pvq_phys_add().
 */
static __noinline int
pv_net_tx_add_unmapped(struct pv_net_txq *txq, const struct mbuf *m,
    bus_dma_segment_t *segs, int n, int max)
{
	bus_size_t seg_max = txq->ptq_pn->pn_params.pnp_seg_max;
	u_int at = mtod(m, vm_offset_t), left = m->m_len,
	    first = m->m_epg_1st_off, i, len;

	txq->ptq_stats.unmapped++;
	if (at < m->m_epg_hdrlen) {
		len = MIN(m->m_epg_hdrlen - at, left);
		n = pvq_phys_add(segs, n, max, seg_max, m->m_epg_hdr + at, len);
		left -= len;
		at = 0;
	} else
		at -= m->m_epg_hdrlen;
	for (i = 0; i < m->m_epg_npgs && left > 0 && n >= 0; i++, first = 0) {
		len = m_epg_pagelen(m, i, first);
		if (at >= len) {
			at -= len;
			continue;
		}
		len = MIN(len - at, left);
		n = pvq_phys_add_run(segs, n, max, seg_max,
		    m->m_epg_pa[i] + first + at, len);
		left -= len;
		at = 0;
	}
	if (left > 0 && n >= 0)
		n = pvq_phys_add(segs, n, max, seg_max, m->m_epg_trail + at,
		    left);
	return (n);
}

/*
 * The segments of a packet, up to max of them: how many, or -EFBIG or another
 * error below zero.
 */
static __noinline int
pv_net_tx_segs(struct pv_net_txq *txq, struct pv_net_txbuf *buf, struct mbuf *m,
    bus_dma_segment_t *segs, int max)
{
	bus_size_t seg_max = txq->ptq_pn->pn_params.pnp_seg_max;
	int error, n = 0;

	if (txq->ptq_tag == NULL) {
		for (; m != NULL && n >= 0; m = m->m_next) {
			if (__predict_false((m->m_flags & M_EXTPG) != 0))
				n = pv_net_tx_add_unmapped(txq, m, segs, n,
				    max);
			else
				n = pvq_phys_add(segs, n, max, seg_max,
				    mtod(m, const void *), m->m_len);
		}
		return (n < 0 ? -EFBIG : n);
	}
	error = bus_dmamap_load_mbuf_sg(txq->ptq_tag, buf->ptb_map, m, segs, &n,
	    BUS_DMA_NOWAIT);
	if (error == 0 && n > max) {
		pv_net_tx_unmap(txq, buf);
		error = EFBIG;
	}
	return (error != 0 ? -error : n);
}

/*
 * A packet that has too many pieces, with fewer.  NULL: no memory, and it still
 * is there.
 */
static __noinline struct mbuf *
pv_net_tx_simplify(struct pv_net_txq *txq, struct mbuf *m, int max)
{
	struct mbuf *simple;

	/*
	 * A piece may cross a page boundary: leave each of them two segments.
	 */
	simple = m_collapse(m, M_NOWAIT, MAX(max / 2, 1));
	if (simple != NULL)
		txq->ptq_stats.collapsed++;
	else {
		simple = m_defrag(m, M_NOWAIT);
		txq->ptq_stats.defragged += simple != NULL;
	}
	return (simple);
}

/*
 * Load a packet for DMA, making it simpler when it has too many pieces.  On
 * failure *mp may be a new chain, and is the caller's to free.
 */
static inline int
pv_net_tx_load(struct pv_net_txq *txq, struct pv_net_txbuf *buf,
    struct mbuf **mp, bool apart)
{
	bus_dma_segment_t *segs = buf->ptb_segs + apart;
	struct mbuf *m = *mp;
	int max, n;

	max = txq->ptq_pn->pn_params.pnp_tx_segs - apart;
	n = pv_net_tx_segs(txq, buf, m, segs, max);
	if (__predict_false(n == -EFBIG)) {
		m = pv_net_tx_simplify(txq, m, max);
		if (m == NULL)
			return (ENOBUFS);
		*mp = m;
		n = pv_net_tx_segs(txq, buf, m, segs, max);
	}
	if (n < 0)
		return (-n);
	buf->ptb_nsegs = n + apart;
	return (0);
}

/* A packet that was loaded does not become a chain. */
static __noinline void
pv_net_tx_undo(struct pv_net_txq *txq, struct pv_net_txbuf *buf, struct mbuf *m,
    bool apart)
{
	if (txq->ptq_pn->pn_staged)
		pv_net_stage_sent(txq, buf);
	else
		pv_net_tx_unmap(txq, buf);
	buf->ptb_nsegs = 0;
	if (!apart)
		m_adj(m, txq->ptq_pn->pn_params.pnp_hdrlen);
}

/*
 * Make a packet, whose offload is in the batch's next header, the next chain of
 * it.  Returns 0; ENOSPC if the queue has no room, with the packet untouched;
 * another error if it can't be sent at all, and is the caller's to free.
 */
static __always_inline int
pv_net_tx_encap(struct pv_net_txq *txq, struct mbuf **mp)
{
	const struct pv_net *pn = txq->ptq_pn;
	const struct pv_net_params *params = &pn->pn_params;
	struct pv_net_txhdr *hdr = &txq->ptq_txhdrs[txq->ptq_n];
	struct pvq_chain *pc = &txq->ptq_chains[txq->ptq_n];
	struct pv_net_txbuf *buf;
	bool apart;
	int error, slots;

	if (txq->ptq_nfree == 0)
		return (ENOSPC);
	buf = txq->ptq_free[txq->ptq_nfree - 1];
	if ((*mp)->m_pkthdr.len > PV_NET_MAX_FRAME ||
	    (params->pnp_max_frame != 0 &&
	    (*mp)->m_pkthdr.len > params->pnp_max_frame)) {
		txq->ptq_stats.too_long++;
		return (EMSGSIZE);
	}
	apart = pv_net_tx_hdr_apart(params, *mp);
	if (!apart) {
		(*mp)->m_data -= params->pnp_hdrlen;
		(*mp)->m_len += params->pnp_hdrlen;
		(*mp)->m_pkthdr.len += params->pnp_hdrlen;
	}
	error = pn->pn_staged ? pv_net_stage_send(txq, buf, *mp,
	    &hdr->pth_offload) : pv_net_tx_load(txq, buf, mp, apart);
	if (error != 0) {
		txq->ptq_stats.nomem += error != ENOSPC;
		return (error);
	}
	hdr->pth_hdr = apart ? buf->ptb_hdr : mtod(*mp, void *);
	if (apart) {
		buf->ptb_segs[0].ds_addr = buf->ptb_hdr_addr;
		buf->ptb_segs[0].ds_len = params->pnp_hdrlen;
	}
	*pc = (struct pvq_chain){ .pc_segs = buf->ptb_segs,
	    .pc_nread = buf->ptb_nsegs, .pc_cookie = buf };
	hdr->pth_chain = pc;
	if (pn->pn_ops->pno_message != NULL)
		pn->pn_ops->pno_message->pmo_prepare(pn->pn_softc, txq->ptq_id,
		    txq->ptq_n, hdr);
	slots = pvq_prepare(txq->ptq_pvq, pc);
	error = slots == 0 ? EFBIG :
	    pvq_reserve(txq->ptq_pvq, txq->ptq_slots + slots);
	if (__predict_false(error != 0)) {
		pv_net_tx_undo(txq, buf, *mp, apart);
		txq->ptq_stats.nomem += error != ENOSPC;
		return (error);
	}
	txq->ptq_slots += slots;
	txq->ptq_n++;
	txq->ptq_nfree--;
	buf->ptb_mbuf = *mp;
	return (0);
}

int
pv_net_tx_add_plain(struct pv_net_txq *txq, struct mbuf **mp)
{
	memset(&txq->ptq_txhdrs[txq->ptq_n].pth_offload, 0,
	    sizeof(struct pv_net_offload));
	return (pv_net_tx_encap(txq, mp));
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
	stats->tso += o->po_gso_type != PV_NET_GSO_NONE;
}

/* Put the tag into the frame: no device of ours does. */
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
 * Listeners of bpf(4) see the frame, not the header of `hdrlen' bytes that may
 * stand before it, with the checksum that it will have.  The header is cut off:
 * the device has its address, and the mbuf is only to be freed.
 */
static __noinline void
pv_net_tx_tap(if_t ifp, struct mbuf *m, u_int hdrlen,
    const struct pv_net_offload *o)
{
	u_int done = o->po_csum_start + o->po_csum_offset + sizeof(uint16_t);
	struct mbuf *copy;

	m->m_data += hdrlen;
	m->m_len -= hdrlen;
	m->m_pkthdr.len -= hdrlen;
	if ((o->po_flags & (PV_NET_NEEDS_CSUM | PV_NET_FINISH_CSUM)) != 0) {
		copy = pv_net_copy_front(m, done);
		if (copy != NULL) {
			/*
			 * Nothing is left to do: a listener need not, and can
			 * not, finish it again.
			 */
			copy->m_pkthdr.csum_flags = 0;
			pv_net_store_sum(copy, o->po_csum_start,
			    o->po_csum_offset, pv_net_sum_end(copy,
			    o->po_csum_start + o->po_csum_offset));
			ETHER_BPF_MTAP(ifp, copy);
		}
		m_freem(copy);
	} else
		ETHER_BPF_MTAP(ifp, m);
}

/*
 * Do in software what of a packet's offload the device does not do.  NULL:
 * there is no packet any more, or it is a list of them, waiting.
 */
static __noinline struct mbuf *
pv_net_tx_software(struct pv_net_txq *txq, struct mbuf *m,
    struct pv_net_offload *o)
{
	bool split = (o->po_flags & PV_NET_SPLIT) != 0;

	m = pv_net_tx_soften(m, o);
	txq->ptq_stats.nomem += m == NULL;
	if (!split) {
		txq->ptq_stats.soft_csum += m != NULL;
		return (m);
	}
	txq->ptq_stats.soft_tso += m != NULL;
	/*
	 * Segments are not split again, and what else is split was alone: the
	 * list is empty.
	 */
	txq->ptq_list = m;
	return (NULL);
}

/*
 * The packet m, with its tag in the frame, and with what is to be done about it
 * in *o; NULL if nothing is left of it.
 */
static inline struct mbuf *
pv_net_tx_prepare(struct pv_net_txq *txq, struct mbuf *m,
    struct pv_net_offload *o)
{
	struct pv_net *pn = txq->ptq_pn;
	enum pv_net_bad bad;
	u_int soft = PV_NET_SOFT;

	if (__predict_false((m->m_flags & M_VLANTAG) != 0) &&
	    (m = pv_net_tx_untag(m)) == NULL) {
		txq->ptq_stats.nomem++;
		return (NULL);
	}
	bad = pv_net_tx_offload(pn, m, o);
	if (__predict_false(bad != PV_NET_FINE)) {
		txq->ptq_stats.bad_offload++;
		txq->ptq_stats.bad[bad]++;
		m_freem(m);
		return (NULL);
	}
	/* What is copied is finished in the copy. */
	if (pn->pn_staged)
		soft &= ~PV_NET_FINISH_CSUM;
	return (__predict_true((o->po_flags & soft) == 0) ? m :
	    pv_net_tx_software(txq, m, o));
}

/*
 * Make a packet the next chain of the batch.
 *
 * Returns true if the packet was consumed: it is in the batch, was dropped, or
 * was split and its segments are the queue's list.  Returns false if the queue
 * has no room; *mp is still the caller's, and may be another mbuf now.
 */
static bool
pv_net_tx_add(struct pv_net_txq *txq, struct mbuf **mp)
{
	struct pv_net_offload *offload =
	    &txq->ptq_txhdrs[txq->ptq_n].pth_offload;
	if_t ifp = txq->ptq_pn->pn_ifp;
	struct pv_net_txbuf *buf;
	struct mbuf *m;
	u_int len;
	int error;

	m = pv_net_tx_prepare(txq, *mp, offload);
	if (m == NULL)
		return (true);
	len = m->m_pkthdr.len;
	error = pv_net_tx_encap(txq, &m);
	if (__predict_false(error != 0)) {
		if (error == ENOSPC) {
			*mp = m;
			return (false);
		}
		m_freem(m);
		return (true);
	}
	pv_net_tx_count(txq, m, len, offload);
	if (bpf_peers_present(if_getbpf(ifp)))
		pv_net_tx_tap(ifp, m, m->m_pkthdr.len - len, offload);
	if (txq->ptq_pn->pn_staged) {
		buf = txq->ptq_chains[txq->ptq_n - 1].pc_cookie;
		buf->ptb_mbuf = NULL;
		m_freem(m);
	}
	return (true);
}

void
pv_net_tx_commit(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;
	u_int i;

	if (txq->ptq_n == 0)
		return;
	pn->pn_ops->pno_encap(pn->pn_softc, txq->ptq_id, txq->ptq_txhdrs,
	    txq->ptq_n);
	for (i = 0; i < txq->ptq_n && txq->ptq_tag != NULL; i++)
		pv_net_tx_sync(txq, txq->ptq_chains[i].pc_cookie,
		    BUS_DMASYNC_PREWRITE);
	pv_dma_sync(&txq->ptq_hdrs, BUS_DMASYNC_PREWRITE);
	pvq_post(txq->ptq_pvq, txq->ptq_chains, txq->ptq_n);
	txq->ptq_unkicked += txq->ptq_n;
	txq->ptq_n = 0;
	txq->ptq_slots = 0;
}

/*
 * The only segment of an mbuf that has an address: false if it has another
 * number of them.
 */
static __always_inline bool
pv_net_tx_fast_seg(const struct mbuf *m, bus_dma_segment_t *seg)
{
	vm_offset_t at = mtod(m, vm_offset_t);

	if ((u_int)m->m_len - 1 >= PAGE_SIZE - (at & PAGE_MASK))
		return (false);
	seg->ds_addr = vtophys(at);
	seg->ds_len = m->m_len;
	return (true);
}

/*
 * The segments of a packet, one for each mbuf: how many, or 0 if that is not
 * so, or there are more than max, or it is too long.
 */
static __noinline int
pv_net_tx_fast_segs(const struct mbuf *m, bus_dma_segment_t *segs, int max)
{
	int n;

	if (m->m_pkthdr.len > PV_NET_MAX_FRAME)
		return (0);
	for (n = 0; m != NULL; m = m->m_next, n++) {
		if (n == max || (m->m_flags & M_EXTPG) != 0 ||
		    !pv_net_tx_fast_seg(m, &segs[n]))
			return (0);
	}
	return (n);
}

/*
 * The fast path.  Which packets take it is said here alone:
 *
 *	the card       pv_net_tx_has_fast()
 *	the queue      there is room
 *	listeners      bpf(4) has none
 *	the packet     no tag, nothing to be done but a checksum that
 *		       pv_net_tx_plain_l4() knows
 *	its memory     each mbuf is a segment, and with the header they are few
 *		       enough for one place
 */
static inline bool
pv_net_tx_fast(struct pv_net_txq *txq, struct mbuf *m)
{
	struct pv_net_txstats *stats = &txq->ptq_stats;
	const struct pv_net *pn = txq->ptq_pn;
	u_int hdrlen = pn->pn_params.pnp_hdrlen, len = m->m_pkthdr.len,
	    start = 0;
	struct pvq *q = txq->ptq_pvq;
	struct pv_net_txbuf *buf;
	struct pvq_chain pc;
	bool apart;
	int n;

	KASSERT(txq->ptq_n == 0,
	    ("%s: %u packets not committed", __func__, txq->ptq_n));
	if (!txq->ptq_fast || !pv_net_fast_path || txq->ptq_nfree == 0 ||
	    pvq_broken(q) || pvq_room(q) == 0 || (m->m_flags & (M_VLANTAG |
	    M_EXTPG)) != 0 || bpf_peers_present(pn->pn_stack.pns_bpf))
		return (false);
	if ((m->m_pkthdr.csum_flags & PV_NET_WORK) != 0) {
		start = pv_net_tx_plain_l4(pn, m);
		if (start == 0)
			return (false);
	}
	apart = M_LEADINGSPACE(m) < (int)hdrlen;
	if (!apart) {
		m->m_data -= hdrlen;
		m->m_len += hdrlen;
	}
	buf = txq->ptq_free[txq->ptq_nfree - 1];
	/* One segment is worth a way without a loop. */
	if (m->m_next == NULL && !apart)
		n = pv_net_tx_fast_seg(m, buf->ptb_segs);
	else
		n = pv_net_tx_fast_segs(m, buf->ptb_segs + apart,
		    txq->ptq_fast_segs - apart);
	if (n == 0) {
		if (!apart) {
			m->m_data += hdrlen;
			m->m_len -= hdrlen;
		}
		return (false);
	}
	if (apart) {
		n++;
		buf->ptb_segs[0].ds_addr = buf->ptb_hdr_addr;
		buf->ptb_segs[0].ds_len = hdrlen;
	} else
		m->m_pkthdr.len = len + hdrlen;
	pn->pn_ops->pno_encap_plain(pn->pn_softc, apart ? buf->ptb_hdr :
	    mtod(m, void *), start, m->m_pkthdr.csum_data);
	if (apart)
		pv_dma_sync(&txq->ptq_hdrs, BUS_DMASYNC_PREWRITE);
	pc = (struct pvq_chain){ .pc_segs = buf->ptb_segs, .pc_nread = n,
	    .pc_cookie = buf };
	pvq_post(q, &pc, 1);
	buf->ptb_mbuf = m;
	buf->ptb_nsegs = n;
	txq->ptq_nfree--;
	txq->ptq_unkicked++;
	stats->packets++;
	stats->bytes += len;
	stats->mcasts += (m->m_flags & (M_MCAST | M_BCAST)) != 0;
	stats->csum += start != 0;
	return (true);
}

/* Free a buffer whose packet was sent or never will be. */
static inline void
pv_net_tx_release(struct pv_net_txq *txq, struct pv_net_txbuf *buf)
{
	if (txq->ptq_pn->pn_staged)
		pv_net_stage_sent(txq, buf);
	else
		pv_net_tx_unmap(txq, buf);
	buf->ptb_nsegs = 0;
	m_freem(buf->ptb_mbuf);
	buf->ptb_mbuf = NULL;
	txq->ptq_free[txq->ptq_nfree++] = buf;
}

void
pv_net_tx_reclaim(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;
	struct pvq_done *done = txq->ptq_done;
	struct pv_net_txbuf *buf;
	int i, n;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	do {
		n = pvq_get(txq->ptq_pvq, done, PV_NET_BATCH);
		if (n == 0)
			return;
		if (pn->pn_ops->pno_message != NULL)
			pn->pn_ops->pno_message->pmo_sent(pn->pn_softc,
			    txq->ptq_id, done, n);
		for (i = 0; i < n; i++) {
			buf = done[i].pd_cookie;
			pv_net_tx_sync(txq, buf, BUS_DMASYNC_POSTWRITE);
			pv_net_tx_release(txq, buf);
		}
		txq->ptq_full = false;
	} while (n == PV_NET_BATCH);
}

/* Free the packets that a stopped device had. */
static void
pv_net_tx_take_back(struct pv_net_txq *txq)
{
	struct pv_net_txbuf *buf;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	while ((buf = pvq_drain(txq->ptq_pvq)) != NULL)
		pv_net_tx_release(txq, buf);
	KASSERT(txq->ptq_nfree == txq->ptq_nbufs,
	    ("%s: %u of %u buffers came back", __func__, txq->ptq_nfree,
	    txq->ptq_nbufs));
}

/* The ring, which is empty, may have another size than before. */
static void
pv_net_tx_fit(struct pv_net_txq *txq)
{
	u_int i, n = MIN(txq->ptq_pvq->q_size, txq->ptq_max_bufs);

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	if (txq->ptq_nbufs == n || txq->ptq_pn->pn_staged)
		return;
	for (i = 0; i < n; i++)
		txq->ptq_free[i] = &txq->ptq_bufs[i];
	txq->ptq_nbufs = txq->ptq_nfree = n;
}

/*
 * Leave the notification to the end of the pass that this thread makes, or may
 * be making.  False if it makes none, or if enough is left over already.
 */
static bool
pv_net_tx_hold(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;

	if (txq->ptq_unkicked == 0 ||
	    curthread->td_base_pri > PV_NET_TASK_PRI ||
	    txq->ptq_unkicked >= (u_int)pn->pn_tx_kick ||
	    txq->ptq_stats.bytes - txq->ptq_kicked_bytes >= PV_NET_KICK_BYTES)
		return (false);
	txq->ptq_stats.held_kicks++;
	if (pn->pn_rxqs[txq->ptq_id].prq_busy != curthread &&
	    !txq->ptq_deferred) {
		txq->ptq_deferred = true;
		taskqueue_enqueue(txq->ptq_tq, &txq->ptq_task);
	}
	return (true);
}

/* The sender has finished with its packets, for now. */
static inline void
pv_net_tx_notify(struct pv_net_txq *txq)
{
	if (!pv_net_tx_hold(txq))
		pv_net_tx_kick(txq);
}

/*
 * The next packet to be sent: the first of the list, which it leaves, or what
 * the buf_ring has, where it stays until pv_net_tx_advance().  For the first
 * queue, packets dequeued from ALTQ are as on the list.  (Given an interface,
 * as drbr_enqueue() always is, the drbr_ functions would use ALTQ's queue in
 * the place of the buf_ring, by each of our queues.)
 */
static struct mbuf *
pv_net_tx_peek(struct pv_net_txq *txq, bool *listed)
{
	if_t ifp = txq->ptq_pn->pn_ifp;
	struct mbuf *m = txq->ptq_list;

	*listed = m != NULL;
	if (m == NULL) {
		m = drbr_peek(NULL, txq->ptq_ring);
		if (m == NULL && txq->ptq_id == 0 && txq->ptq_pn->pn_shaped) {
			m = if_dequeue(ifp);
			*listed = true;
		}
		return (m);
	}
	txq->ptq_list = m->m_nextpkt;
	m->m_nextpkt = NULL;
	return (m);
}

/* The packet of pv_net_tx_peek() was put into the batch. */
static void
pv_net_tx_advance(struct pv_net_txq *txq, bool listed)
{
	if (!listed)
		drbr_advance(NULL, txq->ptq_ring);
}

/* The packet of pv_net_tx_peek() found no room; it may be another mbuf now. */
static void
pv_net_tx_putback(struct pv_net_txq *txq, bool listed, struct mbuf *m)
{
	if (listed) {
		m->m_nextpkt = txq->ptq_list;
		txq->ptq_list = m;
	} else
		drbr_putback(NULL, txq->ptq_ring, m);
}

/*
 * One packet off the list or the buf_ring, into the batch: false if there is
 * none or no room for it.
 */
static bool
pv_net_tx_next(struct pv_net_txq *txq)
{
	struct mbuf *m;
	bool listed;

	m = pv_net_tx_peek(txq, &listed);
	if (m == NULL)
		return (false);
	if (!pv_net_tx_add(txq, &m)) {
		pv_net_tx_putback(txq, listed, m);
		txq->ptq_full = true;
		return (false);
	}
	pv_net_tx_advance(txq, listed);
	return (true);
}

/*
 * The ring is full and packets wait: request an interrupt when three quarters
 * of what is in flight have completed.  Returns true if so many have already.
 */
static bool
pv_net_tx_wait(struct pv_net_txq *txq)
{
	int inflight = pvq_inflight(txq->ptq_pvq);

	pv_net_tx_kick(txq);
	/*
	 * Without a completion to wait for it is memory that is short: the
	 * callout tries again.
	 */
	if (inflight == 0)
		return (false);
	txq->ptq_stats.waits++;
	return (pvq_intr_enable(txq->ptq_pvq, MAX(inflight * 3 / 4, 1)));
}

/* Is there a packet that is not in the queue yet? */
static inline bool
pv_net_tx_waiting(const struct pv_net_txq *txq)
{
	return (txq->ptq_list != NULL || !buf_ring_empty(txq->ptq_ring));
}

static void
pv_net_tx_timer(void *arg)
{
	struct pv_net_txq *txq = arg;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	if (txq->ptq_stopped)
		return;
	txq->ptq_stats.timer_reclaims++;
	taskqueue_enqueue(txq->ptq_tq, &txq->ptq_task);
}

static void
pv_net_tx_arm(struct pv_net_txq *txq)
{
	if (!callout_pending(&txq->ptq_timer) &&
	    (pvq_inflight(txq->ptq_pvq) > 0 || pv_net_tx_waiting(txq)))
		callout_reset_sbt(&txq->ptq_timer, PV_NET_TX_TIMER,
		    PV_NET_TX_TIMER / 4, pv_net_tx_timer, txq, 0);
}

/* A packet has to wait: it is freed if the buf_ring is full. */
static int
pv_net_tx_enqueue(struct pv_net_txq *txq, struct mbuf *m)
{
	int error;

	error = buf_ring_enqueue(txq->ptq_ring, m);
	if (error != 0) {
		atomic_add_64(&txq->ptq_stats.queue_drops, 1);
		m_freem(m);
	}
	return (error);
}

/*
 * Packets that wait for a queue which is not in use any more go to one that is.
 */
static void
pv_net_tx_move(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;
	struct pv_net_txq *to = &pn->pn_txqs[txq->ptq_id % pn->pn_pairs];
	struct mbuf *m;
	bool listed;

	while ((m = pv_net_tx_peek(txq, &listed)) != NULL) {
		pv_net_tx_advance(txq, listed);
		(void)pv_net_tx_enqueue(to, m);
		txq->ptq_stats.moved++;
	}
	taskqueue_enqueue(to->ptq_tq, &to->ptq_task);
}

/*
 * Fill the ring, from the list and the buf_ring, for as long as there is room.
 */
static void
pv_net_tx_fill(struct pv_net_txq *txq)
{
	do {
		txq->ptq_full = false;
		while (pv_net_tx_next(txq)) {
			if (txq->ptq_n == PV_NET_BATCH) {
				pv_net_tx_commit(txq);
				pv_net_tx_kick(txq);
			}
		}
		pv_net_tx_commit(txq);
		if (!txq->ptq_full || !pv_net_tx_wait(txq))
			return;
		pv_net_tx_reclaim(txq);
	} while (!txq->ptq_full);
}

/* Collect completions and queue what waits.  The caller notifies. */
static void
pv_net_tx_run(struct pv_net_txq *txq)
{
	struct pvq *q = txq->ptq_pvq;

	mtx_assert(&txq->ptq_mtx, MA_OWNED);
	if (txq->ptq_stopped && !txq->ptq_parked)
		return;
	if (__predict_false((u_int)txq->ptq_id >= txq->ptq_pn->pn_pairs))
		pv_net_tx_move(txq);
	if (txq->ptq_stopped)
		return;
	pv_net_tx_reclaim(txq);
	/* While it is full, an interrupt will come when it is not. */
	if (!txq->ptq_full || pvq_inflight(q) == 0 || pvq_broken(q))
		pv_net_tx_fill(txq);
	pv_net_tx_arm(txq);
	/* If few completed, not each packet looks for more. */
	txq->ptq_threshold = txq->ptq_nfree - txq->ptq_nfree / 4;
}

static void
pv_net_tx_task(void *arg, int pending __unused)
{
	struct pv_net_txq *txq = arg;

	mtx_lock(&txq->ptq_mtx);
	txq->ptq_deferred = false;
	pv_net_tx_run(txq);
	pv_net_tx_kick(txq);
	mtx_unlock(&txq->ptq_mtx);
}

void
pv_net_tx_intr(void *arg)
{
	struct pv_net_txq *txq = arg;
	bool stopped;

	mtx_lock(&txq->ptq_mtx);
	stopped = txq->ptq_stopped;
	if (!stopped) {
		pvq_intr_disable(txq->ptq_pvq);
		pv_net_tx_run(txq);
		pv_net_tx_kick(txq);
	}
	mtx_unlock(&txq->ptq_mtx);
	if (stopped)
		pv_net_netmap_tx_intr(txq);
}

bool
pv_net_tx_retired(struct pv_net_txq *txq)
{
	bool retired;

	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_run(txq);
	pv_net_tx_kick(txq);
	retired = txq->ptq_stopped || pvq_inflight(txq->ptq_pvq) == 0;
	mtx_unlock(&txq->ptq_mtx);
	return (retired);
}

/*
 * The flow of a packet with a hash, by which its pair is found: with options
 * RSS, the kernel's bucket.
 */
static inline u_int
pv_net_tx_flow(const struct mbuf *m)
{
#ifdef RSS
	uint32_t bucket;

	if (rss_hash2bucket(m->m_pkthdr.flowid, M_HASHTYPE_GET(m),
	    &bucket) == 0)
		return (bucket);
#endif
	return (m->m_pkthdr.flowid % PV_NET_FLOWS);
}

static struct pv_net_txq *
pv_net_tx_select(struct pv_net *pn, const struct mbuf *m)
{
	u_int n = pn->pn_pairs;

	if (n == 1)
		return (&pn->pn_txqs[0]);
	if (M_HASHTYPE_GET(m) != M_HASHTYPE_NONE)
		return (&pn->pn_txqs[pv_net_tx_flow(m) % n]);
	return (&pn->pn_txqs[curcpu % n]);
}

/*
 * Send a packet that does not take the fast path; direct: nothing is before it.
 */
static int
pv_net_tx_send_any(struct pv_net_txq *txq, struct mbuf *m, bool direct)
{
	int error = 0;

	if (direct && pv_net_tx_add(txq, &m)) {
		pv_net_tx_commit(txq);
		pv_net_tx_arm(txq);
		/* It may have been split, and its segments wait now. */
		if (__predict_true(txq->ptq_list == NULL))
			return (0);
	} else if (pv_net_tx_waiting(txq))
		error = pv_net_tx_enqueue(txq, m);
	else
		txq->ptq_list = m;
	pv_net_tx_run(txq);
	return (error);
}

/*
 * Send a packet of the thread that has the lock: straight into the ring, unless
 * another waits, or the ring has no room for it or is not in use.
 */
static inline int
pv_net_tx_send(struct pv_net_txq *txq, struct mbuf *m)
{
	bool direct = !pv_net_tx_waiting(txq) && !txq->ptq_stopped &&
	    (u_int)txq->ptq_id < txq->ptq_pn->pn_pairs;

	if (__predict_false(!direct || !pv_net_tx_fast(txq, m)))
		return (pv_net_tx_send_any(txq, m, direct));
	pv_net_tx_arm(txq);
	return (0);
}

void
pv_net_start(if_t ifp)
{
	struct pv_net *pn = if_getsoftc(ifp);
	struct pv_net_txq *txq = &pn->pn_txqs[0];

	if (!pv_dev_is_live(&pn->pn_pvdev))
		return;
	if (mtx_trylock(&txq->ptq_mtx)) {
		pv_net_tx_run(txq);
		pv_net_tx_notify(txq);
		mtx_unlock(&txq->ptq_mtx);
	} else
		taskqueue_enqueue(txq->ptq_tq, &txq->ptq_task);
}

/*
 * ALTQ decides which packet is next, and when: altq(4).  It frees what it has
 * no room for.
 */
static __noinline int
pv_net_tx_shape(if_t ifp, struct mbuf *m)
{
	struct pv_net *pn = if_getsoftc(ifp);
	int error;

	/*
	 * For good: if it has just been disabled, the packet waits in a queue
	 * without it.
	 */
	pn->pn_shaped = true;
	IFQ_ENQUEUE(&ifp->if_snd, m, error);
	pv_net_start(ifp);
	return (error);
}

int
pv_net_transmit(if_t ifp, struct mbuf *m)
{
	struct pv_net *pn = ifp->if_softc;
	struct pv_net_txq *txq;
	int error;

	if (!pv_dev_is_live(&pn->pn_pvdev)) {
		m_freem(m);
		return (ENETDOWN);
	}
	if (__predict_false(if_altq_is_enabled(ifp)))
		return (pv_net_tx_shape(ifp, m));
	txq = pv_net_tx_select(pn, m);
	if (mtx_trylock(&txq->ptq_mtx)) {
		error = pv_net_tx_send(txq, m);
		pv_net_tx_notify(txq);
		/*
		 * Last, as the device works meanwhile.  If a packet waits, the
		 * queue was run.
		 */
		if (txq->ptq_nfree <= txq->ptq_threshold &&
		    !pv_net_tx_waiting(txq))
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
	/* A pair that never had queues has no ring either. */
	while (txq->ptq_ring != NULL &&
	    (m = buf_ring_dequeue_sc(txq->ptq_ring)) != NULL)
		m_freem(m);
}

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

	for (i = 0; i < pn->pn_max_pairs; i++)
		pv_net_tx_flush(&pn->pn_txqs[i]);
	if_qflush(ifp);
}

bool
pv_net_tx_watch(struct pv_net_txq *txq)
{
	struct pv_net *pn = txq->ptq_pn;
	uint64_t done;
	bool stuck = false;

	if (pn->pn_params.pnp_may_rest)
		return (false);
	mtx_lock(&txq->ptq_mtx);
	done = txq->ptq_pvq->q_stats.qs_done;
	if ((txq->ptq_stopped && !pv_net_netmap_stands(txq)) ||
	    pvq_inflight(txq->ptq_pvq) == 0 || done != txq->ptq_wd_done)
		txq->ptq_wd_ticks = 0;
	else
		stuck = ++txq->ptq_wd_ticks >= PV_NET_WATCHDOG;
	txq->ptq_wd_done = done;
	/* With the lock: it is not reset meanwhile. */
	if (stuck)
		pv_dev_need_reset(&pn->pn_pvdev,
		    pv_net_number(txq->ptq_id, true), ETIMEDOUT);
	mtx_unlock(&txq->ptq_mtx);
	return (stuck);
}

/* Is there a fast path for such a card? */
static bool
pv_net_tx_has_fast(const struct pv_net_txq *txq)
{
	const struct pv_net *pn = txq->ptq_pn;

	return (pn->pn_ops->pno_encap_plain != NULL &&
	    pn->pn_ops->pno_message == NULL && !pn->pn_staged &&
	    txq->ptq_tag == NULL && pn->pn_params.pnp_hdrlen != 0 &&
	    !pn->pn_params.pnp_hdr_apart && pn->pn_params.pnp_max_frame == 0 &&
	    pn->pn_params.pnp_seg_max >= PAGE_SIZE);
}

static void
pv_net_tx_start(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	txq->ptq_fast = pv_net_tx_has_fast(txq);
	txq->ptq_fast_segs = MIN(txq->ptq_pvq->q_flat_segs,
	    txq->ptq_pn->pn_params.pnp_tx_segs);
	txq->ptq_stopped = false;
	txq->ptq_full = false;
	txq->ptq_unkicked = 0;
	txq->ptq_deferred = false;
	txq->ptq_wd_ticks = 0;
	pv_net_tx_fit(txq);
	pvq_intr_disable(txq->ptq_pvq);
	mtx_unlock(&txq->ptq_mtx);
}

void
pv_net_tx_resume(struct pv_net_txq *txq)
{
	pv_net_tx_start(txq);
	taskqueue_enqueue(txq->ptq_tq, &txq->ptq_task);
}

bool
pv_net_tx_is_idle(struct pv_net_txq *txq)
{
	bool idle;

	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_reclaim(txq);
	idle = pvq_inflight(txq->ptq_pvq) == 0;
	mtx_unlock(&txq->ptq_mtx);
	return (idle);
}

void
pv_net_tx_drain_sent(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_take_back(txq);
	mtx_unlock(&txq->ptq_mtx);
}

void
pv_net_tx_stop(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	/*
	 * What stays in flight while the interface is down (pv_net_stage.c) has
	 * to be notified of.
	 */
	pv_net_tx_kick(txq);
	txq->ptq_stopped = true;
	mtx_unlock(&txq->ptq_mtx);
	callout_drain(&txq->ptq_timer);
	pv_net_task_stop(txq->ptq_tq, &txq->ptq_task);
}

void
pv_net_tx_drain(struct pv_net_txq *txq)
{
	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_take_back(txq);
	pv_net_tx_flush_ring(txq);
	mtx_unlock(&txq->ptq_mtx);
}

void
pv_net_tx_init(struct pv_net_txq *txq)
{
	NET_TASK_INIT(&txq->ptq_task, 0, pv_net_tx_task, txq);
	callout_init_mtx(&txq->ptq_timer, &txq->ptq_mtx, 0);
}

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
