/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: receiving.
 *
 * The ring is kept full of buffers, each an mbuf with a cluster.  The device
 * fills them; a frame is in one buffer, or continues in the next if the
 * protocol can merge buffers.
 *
 *	free stack --fill--> posted --interrupt--> taken ---> checked by
 *	     ^                                       |       the protocol
 *	     |                                       |            |
 *	     +-------- buffer without mbuf <---------+            |
 *	     |                                                    v
 *	     +-------- the same mbuf again, the <-------------- frame
 *	               frame copied or dropped                    |
 *	                                                          v
 *	                                             tcp_lro(9) -> if_input
 *
 * Fast path.  Most frames are in one buffer, without GSO.  pv_net_rx_fast()
 * takes such a frame from its buffer to the stack in one pass, with its
 * checksum, and makes the chain that posts the buffer again; what it posts is
 * shown to the device once a batch.  All other buffers take the general way,
 * which ends each frame as the fast path would (hw.pv_net.fast_path=0 has all
 * take it).
 *
 * Size.  A frame of 64 KB costs by the buffer.  A frame longer than the cluster
 * that the MTU requires (pn_rx_cluster) makes the buffers that are allocated
 * from then on large, until as many frames as the ring has slots, one after
 * another, were shorter (prq_large counts them down).  A large one is of 16 KB;
 * when there are none of those it is of a page, and when there are none of
 * these either, of the usual size: a shortage of large ones costs no frame.
 * What is posted already is used as it is, so that the ring changes over as
 * frames use it up, in both directions.  Frames that are copied leave their
 * buffers where they are, whatever the size.  Nothing of this happens where
 * frames may not span buffers (pnp_merge), nor where buffers are staged
 * (pv_net_stage.c).
 *
 * GSO packets that may not span buffers need buffers of 64 KB (VirtIO 1.3,
 * 5.1.6.3.1).  Such a buffer is a chain of mbufs with a page each.  A frame
 * takes the first ones, as many as it has data for; the rest waits for as many
 * new ones in front.  A queue has few of these buffers, not more than
 * PV_NET_RX_WHOLE, nor more than its part of a quarter of the kernel's pages.
 *
 * Memory shortage.  When no cluster can be had the ring runs with fewer
 * buffers, and a callout tries again.  Below a floor, a quarter of the ring,
 * completed buffers are posted again and their frames dropped: the ring is
 * never empty, so that there is always a next interrupt.
 *
 * Budget.  The interrupt handler takes a bounded number of buffers; a task
 * takes what is left, and between two passes other threads get the CPU.
 *
 * Notification.  A device that has most of the ring's buffers, more than the
 * longest frame takes, waits for no more of them: whether it asks for a
 * notification is looked at when prq_kick were posted again, or when the ring
 * was not full.
 *
 * Watchdog.  A queue that rests is watched: completions may lie there for which
 * no interrupt has come, or for which none can, as the device has skipped a
 * place of the ring.
 *
 * Locking.  prq_mtx covers everything of the queue, both sides of the pvq
 * included.  It is released while frames go up the stack; prq_busy keeps a
 * second thread out meanwhile, so that order is kept.
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
#include <sys/proc.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <vm/uma.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

/*
 * Before a frame that is copied: room for what is put there when it is sent on.
 */
#define	PV_NET_COPY_LEAD	32

/* Buffers of 64 KB that a queue has at most, and at least. */
#define	PV_NET_RX_WHOLE		64
#define	PV_NET_RX_WHOLE_FEW	4

/* Tries to allocate buffers after a shortage, in a second. */
#define	PV_NET_REFILL_HZ	10

/*
 * Seconds: until an interrupt counts as lost, and until a place counts as
 * skipped.
 */
#define	PV_NET_LOST_INTR	2
#define	PV_NET_SKIPPED		5

/* Sync a buffer's memory, if it was loaded by bus_dma(9). */
static inline void
pv_net_rx_sync(const struct pv_net_rxq *rxq, const struct pv_net_rxbuf *buf,
    bus_dmasync_op_t op)
{
	if (rxq->prq_tag != NULL)
		bus_dmamap_sync(rxq->prq_tag, buf->prb_map, op);
}

/* Unload a buffer's memory, if it was loaded by bus_dma(9). */
static inline void
pv_net_rx_unmap(const struct pv_net_rxq *rxq, const struct pv_net_rxbuf *buf)
{
	if (rxq->prq_tag != NULL)
		bus_dmamap_unload(rxq->prq_tag, buf->prb_map);
}

/* What a buffer consists of, which does not change. */
void
pv_net_rx_init(struct pv_net *pn)
{
	bool whole = !pn->pn_params.pnp_merge &&
	    (pn->pn_params.pnp_offloads & PV_NET_RX_GSO) != 0;

	pn->pn_rx_mbufs = whole ? PV_NET_RX_WHOLE_MBUFS : 1;
	pn->pn_rx_segs = whole ? PV_NET_RX_WHOLE_SEGS - 1 : PV_NET_RX_SEGS;
}

/*
 * When frames may span buffers these are of 2 KB, unless a page saves merging;
 * else one buffer holds the longest frame.  The padding aligns the header
 * behind Ethernet's to 4 bytes.
 */
void
pv_net_rx_layout(struct pv_net *pn)
{
	static const u_int clusters[] = { MCLBYTES, MJUMPAGESIZE, MJUM9BYTES,
	    MJUM16BYTES };
	u_int frame, need, max, i;

	pn->pn_rx_pad = -(pn->pn_params.pnp_hdrlen + ETHER_HDR_LEN) & 3;
	frame = if_getmtu(pn->pn_ifp) + ETHER_HDR_LEN + ETHER_VLAN_ENCAP_LEN;
	need = pn->pn_rx_pad + pn->pn_params.pnp_hdrlen + frame;
	max = pn->pn_params.pnp_merge ? 2 : nitems(clusters);
	for (i = 0; i < max - 1 && clusters[i] < need; i++)
		;
	pn->pn_rx_cluster = pn->pn_rx_mbufs > 1 ? MJUMPAGESIZE : clusters[i];
}

/* Buffers that stay posted, even if frames are dropped for it. */
static u_int
pv_net_rx_floor(const struct pv_net_rxq *rxq)
{
	return (MAX(rxq->prq_nbufs / 4, 1));
}

/*
 * Load a buffer's mbuf for DMA, and give the header a segment of its own if the
 * device requires that.
 */
static int
pv_net_rx_load(struct pv_net_rxq *rxq, struct pv_net_rxbuf *buf)
{
	const struct pv_net_params *params = &rxq->prq_pn->pn_params;
	struct mbuf *m;
	int error = 0, i, nsegs = 0;

	if (rxq->prq_tag == NULL) {
		for (m = buf->prb_mbuf; m != NULL; m = m->m_next) {
			nsegs = pvq_phys_add(buf->prb_segs, nsegs,
			    rxq->prq_pn->pn_rx_segs, params->pnp_seg_max,
			    mtod(m, const void *), m->m_len);
			KASSERT(nsegs > 0,
			    ("%s: %d segments", __func__, nsegs));
		}
	} else
		error = bus_dmamap_load_mbuf_sg(rxq->prq_tag, buf->prb_map,
		    buf->prb_mbuf, buf->prb_segs, &nsegs, BUS_DMA_NOWAIT);
	if (error != 0)
		return (error);
	if (params->pnp_hdr_apart &&
	    buf->prb_segs[0].ds_len > params->pnp_hdrlen) {
		for (i = nsegs; i > 0; i--)
			buf->prb_segs[i] = buf->prb_segs[i - 1];
		buf->prb_segs[0].ds_len = params->pnp_hdrlen;
		buf->prb_segs[1].ds_addr += params->pnp_hdrlen;
		buf->prb_segs[1].ds_len -= params->pnp_hdrlen;
		nsegs++;
	}
	buf->prb_nsegs = nsegs;
	return (0);
}

static void
pv_net_rx_unload(struct pv_net_rxq *rxq, struct pv_net_rxbuf *buf)
{
	pv_net_rx_unmap(rxq, buf);
	buf->prb_nsegs = 0;
}

/*
 * An mbuf with a cluster, of the layout's size or, while large frames are
 * received, a larger one.
 */
static struct mbuf *
pv_net_rx_getcl(struct pv_net_rxq *rxq, u_int *size)
{
	struct pv_net_rxstats *stats = &rxq->prq_stats;
	const struct {
		u_int		size;
		uint64_t	*count;
	} large[] = { { MJUM16BYTES, &stats->bufs_16k },
	    { MJUMPAGESIZE, &stats->bufs_page } };
	u_int cluster = rxq->prq_pn->pn_rx_cluster, i;
	struct mbuf *m;

	for (i = 0; rxq->prq_large > 0 && i < nitems(large) &&
	    large[i].size > cluster; i++) {
		m = m_getjcl(M_NOWAIT, MT_DATA, M_PKTHDR, large[i].size);
		if (m != NULL) {
			*size = large[i].size;
			(*large[i].count)++;
			return (m);
		}
	}
	m = m_getjcl(M_NOWAIT, MT_DATA, M_PKTHDR, cluster);
	*size = cluster;
	stats->bufs += m != NULL;
	return (m);
}

/*
 * Put new mbufs in front of those that the last frame left of a chain.  Returns
 * ENOBUFS if there are not enough: those that there are wait for others.
 */
static int
pv_net_rx_newchain(struct pv_net_rxq *rxq, struct pv_net_rxbuf *buf)
{
	u_int pad = rxq->prq_pn->pn_rx_pad, left = rxq->prq_pn->pn_rx_mbufs,
	    len;
	struct mbuf *m;

	len = pad + rxq->prq_pn->pn_params.pnp_hdrlen + PV_NET_MAX_FRAME;
	for (m = buf->prb_mbuf; m != NULL; m = m->m_next)
		left--;
	while (left > 0) {
		m = m_getjcl(M_NOWAIT, MT_DATA, left == 1 ? M_PKTHDR : 0,
		    MJUMPAGESIZE);
		if (m == NULL)
			return (ENOBUFS);
		left--;
		m->m_len = MIN(len - MJUMPAGESIZE * left, MJUMPAGESIZE);
		m->m_next = buf->prb_mbuf;
		buf->prb_mbuf = m;
	}
	m->m_data += pad;
	m->m_len -= pad;
	m->m_pkthdr.len = len - pad;
	rxq->prq_stats.bufs++;
	return (0);
}

static int
pv_net_rx_newcluster(struct pv_net_rxq *rxq, struct pv_net_rxbuf *buf)
{
	u_int pad = rxq->prq_pn->pn_rx_pad, size;
	struct mbuf *m;

	m = pv_net_rx_getcl(rxq, &size);
	if (m == NULL)
		return (ENOBUFS);
	m->m_data += pad;
	m->m_len = m->m_pkthdr.len = size - pad;
	buf->prb_mbuf = m;
	return (0);
}

static int
pv_net_rx_newmbuf(struct pv_net_rxq *rxq, struct pv_net_rxbuf *buf)
{
	int error;

	error = rxq->prq_pn->pn_rx_mbufs > 1 ? pv_net_rx_newchain(rxq, buf) :
	    pv_net_rx_newcluster(rxq, buf);
	if (error != 0)
		return (error);
	error = pv_net_rx_load(rxq, buf);
	if (error != 0) {
		m_freem(buf->prb_mbuf);
		buf->prb_mbuf = NULL;
	}
	return (error);
}

/*
 * The ring is too short for the segments of this buffer: it is not posted.
 * Others may have fewer, in any case when buffers are of the usual size again.
 */
static void
pv_net_rx_unfit(struct pv_net_rxq *rxq, struct pv_net_rxbuf *buf)
{
	if (rxq->prq_stats.unfit++ == 0)
		device_printf(rxq->prq_pn->pn_dev,
		    "%s: a buffer of %d bytes has %u segments, the "
		    "ring takes %u: nothing is received until the MTU is smaller\n",
		    rxq->prq_name, buf->prb_mbuf->m_pkthdr.len, buf->prb_nsegs,
		    rxq->prq_pvq->q_max_segs);
	pv_net_rx_unmap(rxq, buf);
	buf->prb_nsegs = 0;
	m_freem(buf->prb_mbuf);
	buf->prb_mbuf = NULL;
	rxq->prq_large = 0;
}

/*
 * Put one batch of buffers: how many, or -1 when there was no memory for more.
 */
static int
pv_net_rx_fill_batch(struct pv_net_rxq *rxq)
{
	struct pvq_chain *chains = rxq->prq_chains, *pc;
	struct pv_net_rxbuf *buf;
	bool starved = false;
	int n, need, slots = 0;

	for (n = 0; n < PV_NET_BATCH && rxq->prq_nfree > 0; n++) {
		buf = rxq->prq_free[rxq->prq_nfree - 1];
		if (buf->prb_nsegs == 0 && pv_net_rx_newmbuf(rxq, buf) != 0) {
			rxq->prq_stats.nombuf++;
			starved = true;
			break;
		}
		pc = &chains[n];
		*pc = (struct pvq_chain){ .pc_segs = buf->prb_segs,
		    .pc_nwrite = buf->prb_nsegs, .pc_cookie = buf };
		if (buf->prb_page != NULL)
			pc->pc_arg = buf->prb_page->npg_arg;
		need = pvq_prepare(rxq->prq_pvq, pc);
		if (__predict_false(need == 0)) {
			pv_net_rx_unfit(rxq, buf);
			starved = true;
			break;
		}
		slots += need;
		if (pvq_reserve(rxq->prq_pvq, slots) != 0)
			break;
		if (buf->prb_page == NULL)
			pv_net_rx_sync(rxq, buf, BUS_DMASYNC_PREREAD);
		rxq->prq_nfree--;
	}
	if (n > 0)
		pvq_post(rxq->prq_pvq, chains, n);
	rxq->prq_starved = starved;
	return (starved ? -1 : n);
}

static void
pv_net_rx_refill_later(void *arg)
{
	struct pv_net_rxq *rxq = arg;

	mtx_assert(&rxq->prq_mtx, MA_OWNED);
	/*
	 * The task fills the ring, and takes what completed while this queue
	 * had no interrupt.
	 */
	if (!rxq->prq_stopped)
		taskqueue_enqueue(rxq->prq_tq, &rxq->prq_task);
}

/* Notify the device of the buffers that were posted. */
static inline void
pv_net_rx_kick(struct pv_net_rxq *rxq)
{
	pvq_kick(rxq->prq_pvq);
	rxq->prq_unkicked = 0;
}

/* Fill the ring as far as memory goes, and notify the device once. */
static void
pv_net_rx_fill(struct pv_net_rxq *rxq)
{
	mtx_assert(&rxq->prq_mtx, MA_OWNED);
	while (pv_net_rx_fill_batch(rxq) == PV_NET_BATCH)
		;
	pv_net_rx_kick(rxq);
	if (rxq->prq_starved && !callout_pending(&rxq->prq_refill))
		callout_reset(&rxq->prq_refill, hz / PV_NET_REFILL_HZ,
		    pv_net_rx_refill_later, rxq);
}

static void
pv_net_rx_forget(struct pv_net_rxq *rxq)
{
	m_freem(rxq->prq_head);
	rxq->prq_head = rxq->prq_tail = NULL;
}

/*
 * Drop the frame that this buffer belongs to; the buffer itself is posted
 * again.
 */
static void
pv_net_rx_drop(struct pv_net_rxq *rxq, const struct pv_net_rxhdr *hdr)
{
	pv_net_rx_forget(rxq);
	rxq->prq_discard = hdr->prh_more;
}

/*
 * A frame that fits into a plain mbuf: copying it is cheaper than a new
 * cluster.
 */
static inline struct mbuf *
pv_net_rx_copy(const struct pv_net_rxbuf *buf, u_int skip, u_int len)
{
	struct mbuf *m;

	m = m_gethdr(M_NOWAIT, MT_DATA);
	if (m == NULL)
		return (NULL);
	m->m_data += ETHER_ALIGN;
	if (len <= MHLEN - ETHER_ALIGN - PV_NET_COPY_LEAD)
		m->m_data += PV_NET_COPY_LEAD;
	memcpy(mtod(m, void *), mtod(buf->prb_mbuf, const char *) + skip, len);
	m->m_len = m->m_pkthdr.len = len;
	return (m);
}

/*
 * Take the data out of the buffer's mbufs, which are not loaded any more.
 * Those that have none of it stay with the buffer.
 */
static struct mbuf *
pv_net_rx_cut(struct pv_net_rxbuf *buf, const struct pv_net_rxhdr *hdr)
{
	struct mbuf *m = buf->prb_mbuf, *last;
	u_int len = hdr->prh_len;

	m->m_data += hdr->prh_skip;
	m->m_len -= hdr->prh_skip;
	m->m_pkthdr.len = len;
	for (last = m; len > (u_int)last->m_len; last = last->m_next)
		len -= last->m_len;
	last->m_len = len;
	buf->prb_mbuf = last->m_next;
	last->m_next = NULL;
	return (m);
}

/*
 * Take the data out of a completed buffer: an mbuf, or a chain, or NULL if it
 * has to be dropped.  The buffer is left ready for posting, with its mbuf or
 * without.
 */
static struct mbuf *
pv_net_rx_take(struct pv_net_rxq *rxq, struct pv_net_rxbuf *buf,
    const struct pv_net_rxhdr *hdr)
{
	struct mbuf *m;

	if (buf->prb_page != NULL) {
		m = pv_net_stage_receive(buf->prb_page, hdr);
		rxq->prq_stats.nombuf += m == NULL;
		return (m);
	}
	if (rxq->prq_head == NULL && !hdr->prh_more &&
	    hdr->prh_len <= MHLEN - ETHER_ALIGN) {
		m = pv_net_rx_copy(buf, hdr->prh_skip, hdr->prh_len);
		if (m != NULL) {
			rxq->prq_stats.copied++;
			return (m);
		}
	}
	if (rxq->prq_starved &&
	    (u_int)pvq_inflight(rxq->prq_pvq) < pv_net_rx_floor(rxq)) {
		rxq->prq_stats.recycled++;
		return (NULL);
	}
	pv_net_rx_unload(rxq, buf);
	return (pv_net_rx_cut(buf, hdr));
}

/*
 * Count a frame, or one of those that it was split into.  NULL: there was no
 * memory.
 */
static struct mbuf *
pv_net_rx_ready(struct pv_net_rxq *rxq, struct mbuf *m)
{
	struct pv_net_rxstats *stats = &rxq->prq_stats;

	stats->packets++;
	stats->bytes += m->m_pkthdr.len;
	/* For our own TCP it is lro_nsegs, the same field. */
	stats->lro += m->m_pkthdr.tso_segsz != 0;
	/* A frame in two mbufs may have its header cut by the boundary. */
	if (m->m_len < ETHER_HDR_LEN) {
		m = m_pullup(m, ETHER_HDR_LEN);
		if (m == NULL)
			stats->nombuf++;
	}
	if (m != NULL && ETHER_IS_MULTICAST(mtod(m, const uint8_t *)))
		stats->mcasts++;
	return (m);
}

/*
 * Give a frame its flow.  Without the hash of its own it is that of the pair of
 * queues, so that answers are sent by the same.
 */
static void
pv_net_rx_flow(struct pv_net_rxq *rxq, struct mbuf *m,
    const struct pv_net_rxhdr *hdr)
{
	if (hdr->prh_hash_type != 0) {
		m->m_pkthdr.flowid = hdr->prh_hash;
		M_HASHTYPE_SET(m, hdr->prh_hash_type);
		rxq->prq_stats.hashed++;
	} else if (rxq->prq_pn->pn_params.pnp_npairs > 1) {
		m->m_pkthdr.flowid = rxq->prq_id;
		M_HASHTYPE_SET(m, M_HASHTYPE_OPAQUE);
	}
}

/*
 * The frame in prq_head is whole, and hdr is its last buffer's: append it, or
 * those that it was split into, to *tailp.
 */
static void
pv_net_rx_finish(struct pv_net_rxq *rxq, const struct pv_net_rxhdr *hdr,
    struct mbuf ***tailp)
{
	struct pv_net_rxstats *stats = &rxq->prq_stats;
	struct mbuf *m = rxq->prq_head, *next;
	struct pv_net *pn = rxq->prq_pn;
	enum pv_net_bad bad;

	if (m->m_pkthdr.len < ETHER_HDR_LEN) {
		stats->runts++;
		pv_net_rx_forget(rxq);
		return;
	}
	if (m->m_pkthdr.len > pn->pn_rx_cluster)
		rxq->prq_large = pn->pn_rx_mbufs > 1 ? 0 : rxq->prq_nbufs;
	else if (rxq->prq_large > 0)
		rxq->prq_large--;
	m->m_pkthdr.rcvif = pn->pn_ifp;
	pv_net_rx_flow(rxq, m, hdr);
	bad = pv_net_rx_offload(rxq, &rxq->prq_head, &hdr->prh_offload);
	if (bad == PV_NET_NO_MEMORY)
		stats->nombuf++;
	else if (bad != PV_NET_FINE) {
		stats->bad_offload++;
		stats->bad[bad]++;
		pv_net_rx_forget(rxq);
	}
	m = rxq->prq_head;
	rxq->prq_head = rxq->prq_tail = NULL;
	if (m != NULL) {
		stats->split += m->m_nextpkt != NULL;
		stats->gso_unasked += (m->m_nextpkt != NULL ||
		    hdr->prh_offload.po_gso_type == PV_NET_GSO_FRAGMENTS) &&
		    pv_net_rx_gso_unasked(pn, m, &hdr->prh_offload);
		if ((hdr->prh_offload.po_flags & PV_NET_NEEDS_CSUM) != 0) {
			stats->csum_partial++;
			stats->csum_unasked += pv_net_rx_unasked(pn,
			    hdr->prh_offload.po_flags);
		} else if ((m->m_pkthdr.csum_flags & CSUM_DATA_VALID) != 0)
			stats->csum_valid++;
	}
	for (; m != NULL; m = next) {
		next = m->m_nextpkt;
		m->m_nextpkt = NULL;
		m = pv_net_rx_ready(rxq, m);
		if (m != NULL) {
			**tailp = m;
			*tailp = &m->m_nextpkt;
		}
	}
}

/* The next part of a frame, or the first of a new one. */
static inline void
pv_net_rx_append(struct pv_net_rxq *rxq, struct mbuf *m)
{
	if (rxq->prq_head == NULL)
		rxq->prq_head = m;
	else {
		rxq->prq_head->m_pkthdr.len += m->m_len;
		m_demote_pkthdr(m);
		rxq->prq_tail->m_next = m;
	}
	rxq->prq_tail = m;
}

/*
 * One buffer.  If it makes a frame whole, that is appended to *tailp.
 */
static void
pv_net_rx_buffer(struct pv_net_rxq *rxq, struct pv_net_rxbuf *buf,
    const struct pv_net_rxhdr *hdr, struct mbuf ***tailp)
{
	struct pv_net_rxstats *stats = &rxq->prq_stats;
	struct mbuf *m;

	if (hdr->prh_error != PV_NET_RX_OK) {
		if (hdr->prh_error == PV_NET_RX_SHORT)
			stats->short_buf++;
		else
			stats->bad_header++;
		pv_net_rx_drop(rxq, hdr);
		return;
	}
	if (rxq->prq_discard) {
		pv_net_rx_drop(rxq, hdr);
		return;
	}
	if (rxq->prq_head != NULL &&
	    rxq->prq_head->m_pkthdr.len + hdr->prh_len > PV_NET_MAX_FRAME) {
		stats->too_long++;
		pv_net_rx_drop(rxq, hdr);
		return;
	}
	/* A buffer may have metadata of a frame without a part of it. */
	if (rxq->prq_head == NULL || hdr->prh_len > 0) {
		m = pv_net_rx_take(rxq, buf, hdr);
		if (m == NULL) {
			pv_net_rx_drop(rxq, hdr);
			return;
		}
		pv_net_rx_append(rxq, m);
		stats->merged += rxq->prq_head == m && hdr->prh_more;
	}
	if (!hdr->prh_more)
		pv_net_rx_finish(rxq, hdr, tailp);
}

/*
 * The marks of a frame that takes the fast path, by the device's: false if they
 * are not among most.
 */
static inline bool
pv_net_rx_fast_marks(struct pv_net_rxq *rxq, struct mbuf *m,
    const struct pv_net_plain *in)
{
	struct pv_net_rxstats *stats = &rxq->prq_stats;

	if ((in->ppl_flags & PV_NET_NEEDS_CSUM) != 0) {
		if (pv_net_rx_unasked(rxq->prq_pn, PV_NET_NEEDS_CSUM) ||
		    !pv_net_rx_fast_sum(rxq, m, in->ppl_csum_start,
		    in->ppl_csum_offset))
			return (false);
		stats->csum_partial++;
		rxq->prq_merges |= in->ppl_csum_offset != PV_NET_SUM_UDP;
		return (true);
	}
	rxq->prq_merges = true;
	if ((in->ppl_flags & PV_NET_DATA_VALID) != 0) {
		if ((rxq->prq_pn->pn_params.pnp_offloads &
		    PV_NET_RXCSUM) == 0 ||
		    (rxq->prq_flags & PV_NET_RXF_TRUST) != PV_NET_RXF_TRUST)
			return (false);
		pv_net_mark_valid(m);
		stats->csum_valid++;
	}
	return (true);
}

/*
 * The fast path.  Which frames take it is said here alone:
 *
 *	the card       pv_net_rx_has_fast()
 *	the queue      no frame is under way, and there is memory
 *	the buffer     one segment, as most clusters are; while large frames
 *		       come, it is copied
 *	its header     pno_decap_plain: a whole frame, without GSO
 *	the frame      not longer than what is allocated in its place
 *
 * A checksum that pv_net_rx_fast_sum() does not know is left to
 * pv_net_rx_finish().  False: it is something else, and nothing was done.  pc
 * becomes the chain that posts the buffer again.
 */
static inline bool
pv_net_rx_fast(struct pv_net_rxq *rxq, const struct pvq_done *done,
    struct pvq_chain *pc, struct mbuf ***tailp)
{
	struct pv_net_rxstats *stats = &rxq->prq_stats;
	struct pv_net_rxbuf *buf = done->pd_cookie;
	struct pv_net *pn = rxq->prq_pn;
	const u_int skip = pn->pn_params.pnp_hdrlen;
	struct mbuf *m = buf->prb_mbuf, *fresh;
	struct pv_net_plain in;

	in = pn->pn_ops->pno_decap_plain(pn->pn_softc, rxq->prq_id, done,
	    mtod(m, const void *));
	if (in.ppl_len < ETHER_HDR_LEN || in.ppl_len > pn->pn_rx_cluster ||
	    buf->prb_nsegs != 1 || skip + in.ppl_len > (u_int)m->m_len)
		return (false);
	if (in.ppl_len <= MHLEN - ETHER_ALIGN) {
		m = pv_net_rx_copy(buf, skip, in.ppl_len);
		if (m == NULL)
			return (false);
		stats->copied++;
		if (rxq->prq_large > 0)
			rxq->prq_large--;
	} else {
		if (rxq->prq_large > 0)
			return (false);
		fresh = m_getjcl(M_NOWAIT, MT_DATA, M_PKTHDR,
		    pn->pn_rx_cluster);
		if (fresh == NULL)
			return (false);
		stats->bufs++;
		fresh->m_data += pn->pn_rx_pad;
		fresh->m_len = fresh->m_pkthdr.len = pn->pn_rx_cluster -
		    pn->pn_rx_pad;
		buf->prb_mbuf = fresh;
		/*
		 * A cluster that is no longer than a page does not cross one.
		 */
		buf->prb_segs[0].ds_addr = vtophys(mtod(fresh, vm_offset_t));
		buf->prb_segs[0].ds_len = fresh->m_len;
		m->m_data += skip;
		m->m_len = m->m_pkthdr.len = in.ppl_len;
	}
	*pc = (struct pvq_chain){ .pc_segs = buf->prb_segs, .pc_nwrite = 1,
	    .pc_cookie = buf };
	if (!pv_net_rx_fast_marks(rxq, m, &in)) {
		rxq->prq_head = m;
		pv_net_rx_finish(rxq,
		    &(struct pv_net_rxhdr){ .prh_offload = { .po_flags =
		    in.ppl_flags, .po_csum_start = in.ppl_csum_start,
		    .po_csum_offset = in.ppl_csum_offset } }, tailp);
		return (true);
	}
	m->m_pkthdr.rcvif = pn->pn_ifp;
	if (pn->pn_params.pnp_npairs > 1) {
		m->m_pkthdr.flowid = rxq->prq_id;
		M_HASHTYPE_SET(m, M_HASHTYPE_OPAQUE);
	}
	stats->packets++;
	stats->bytes += in.ppl_len;
	stats->mcasts += ETHER_IS_MULTICAST(mtod(m, const uint8_t *)) != 0;
	**tailp = m;
	*tailp = &m->m_nextpkt;
	return (true);
}

/*
 * n completed buffers that do not take the fast path; but for pages, they are
 * free then.
 */
static __noinline void
pv_net_rx_slow(struct pv_net_rxq *rxq, const struct pvq_done *done, int n,
    struct mbuf ***tailp)
{
	struct pv_net *pn = rxq->prq_pn;
	struct pv_net_rxhdr *hdrs = rxq->prq_hdrs;
	struct pv_net_rxbuf *buf;
	int i;

	for (i = 0; i < n; i++) {
		buf = done[i].pd_cookie;
		memset(&hdrs[i], 0, sizeof(hdrs[i]));
		if (buf->prb_page != NULL) {
			hdrs[i].prh_hdr = buf->prb_page->npg_mem;
			hdrs[i].prh_room = PAGE_SIZE;
			continue;
		}
		pv_net_rx_sync(rxq, buf, BUS_DMASYNC_POSTREAD);
		hdrs[i].prh_hdr = mtod(buf->prb_mbuf, const void *);
		hdrs[i].prh_room = buf->prb_mbuf->m_pkthdr.len;
	}
	pn->pn_ops->pno_decap(pn->pn_softc, rxq->prq_id, done, hdrs, n);
	rxq->prq_merges = true;
	for (i = 0; i < n; i++) {
		buf = done[i].pd_cookie;
		KASSERT(hdrs[i].prh_error != PV_NET_RX_OK ||
		    hdrs[i].prh_skip + hdrs[i].prh_len <= hdrs[i].prh_room,
		    ("%s: %u + %u bytes in a buffer of %u", __func__,
		    hdrs[i].prh_skip, hdrs[i].prh_len, hdrs[i].prh_room));
		pv_net_rx_buffer(rxq, buf, &hdrs[i], tailp);
		if (buf->prb_page == NULL)
			rxq->prq_free[rxq->prq_nfree++] = buf;
	}
}

/*
 * Make chains again of n pages, whose data was copied: nothing has to be
 * allocated for them.
 */
static int
pv_net_rx_pages(struct pv_net_rxq *rxq, const struct pvq_done *done, int n)
{
	struct pv_net_rxbuf *buf;
	int i;

	for (i = 0; i < n; i++) {
		buf = done[i].pd_cookie;
		rxq->prq_chains[i] = (struct pvq_chain){ .pc_segs =
		    buf->prb_segs, .pc_nwrite = 1,
		    .pc_arg = buf->prb_page->npg_arg, .pc_cookie = buf };
	}
	return (n);
}

/* Is there a fast path for such a card, and such buffers? */
static bool
pv_net_rx_has_fast(const struct pv_net_rxq *rxq)
{
	const struct pv_net *pn = rxq->prq_pn;

	return (pn->pn_ops->pno_decap_plain != NULL && !pn->pn_staged &&
	    rxq->prq_tag == NULL && !pn->pn_params.pnp_hdr_apart &&
	    pn->pn_rx_mbufs == 1 && pn->pn_rx_cluster <= PAGE_SIZE);
}

/*
 * Post n buffers again, for which there is the room that they had; the rest is
 * for pv_net_rx_fill().
 */
static inline void
pv_net_rx_repost(struct pv_net_rxq *rxq, int n)
{
	int i;

	if (pvq_reserve(rxq->prq_pvq, n) == 0)
		pvq_post(rxq->prq_pvq, rxq->prq_chains, n);
	else {
		for (i = 0; i < n; i++)
			rxq->prq_free[rxq->prq_nfree++] =
			    rxq->prq_chains[i].pc_cookie;
	}
}

/* Is no frame under way, and is there memory? */
static inline bool
pv_net_rx_is_idle(const struct pv_net_rxq *rxq)
{
	return (rxq->prq_head == NULL && !rxq->prq_discard &&
	    !rxq->prq_starved);
}

/*
 * What takes the fast path does.  Returns how many buffers are to be posted
 * again.
 */
static inline int
pv_net_rx_each(struct pv_net_rxq *rxq, const struct pvq_done *done, int n,
    struct mbuf ***tailp)
{
	struct pvq_chain *pc = rxq->prq_chains;
	bool fast = pv_net_rx_is_idle(rxq);

	for (; n > 0; n--, done++) {
		if (fast && pv_net_rx_fast(rxq, done, pc, tailp))
			pc++;
		else {
			pv_net_rx_slow(rxq, done, 1, tailp);
			fast = pv_net_rx_is_idle(rxq);
		}
	}
	return (pc - rxq->prq_chains);
}

/*
 * Take up to `max' buffers off the ring, of which there may be PV_NET_BATCH.
 * Whole frames are appended to *tailp; returns how many buffers there were.
 */
static int
pv_net_rx_batch(struct pv_net_rxq *rxq, int max, struct mbuf ***tailp)
{
	struct pvq_done *done = rxq->prq_done;
	int n, reposted = 0;

	mtx_assert(&rxq->prq_mtx, MA_OWNED);
	n = pvq_get(rxq->prq_pvq, done, max);
	if (n == 0)
		return (0);
	pv_net_rx_set_flags(rxq);
	rxq->prq_merges = false;
	if (rxq->prq_fast && pv_net_fast_path)
		reposted = pv_net_rx_each(rxq, done, n, tailp);
	else {
		pv_net_rx_slow(rxq, done, n, tailp);
		if (rxq->prq_pn->pn_staged)
			reposted = pv_net_rx_pages(rxq, done, n);
	}
	if (reposted > 0)
		pv_net_rx_repost(rxq, reposted);
	if (rxq->prq_nfree > 0 || rxq->prq_starved)
		pv_net_rx_fill(rxq);
	else {
		rxq->prq_unkicked += reposted;
		if (rxq->prq_unkicked > rxq->prq_kick)
			pv_net_rx_kick(rxq);
	}
	return (n);
}

/* The queue is empty or the budget used up: hand up what was merged. */
static void
pv_net_rx_flush(struct pv_net_rxq *rxq)
{
	mtx_assert(&rxq->prq_mtx, MA_OWNED);
	if (rxq->prq_held == 0)
		return;
	mtx_unlock(&rxq->prq_mtx);
	pv_net_lro_flush(rxq);
	mtx_lock(&rxq->prq_mtx);
}

/*
 * Take what is there, up to the budget.  Returns true if the queue has to be
 * looked at again though no interrupt will come for it.
 */
static bool
pv_net_rx_work(struct pv_net_rxq *rxq)
{
	int budget = rxq->prq_pn->pn_rx_budget;
	struct mbuf *list, **tail;
	int most, n;
	bool empty;

	mtx_assert(&rxq->prq_mtx, MA_OWNED);
	pvq_intr_taken(rxq->prq_pvq);
	while (budget > 0) {
		list = NULL;
		tail = &list;
		most = MIN(budget, PV_NET_BATCH);
		n = pv_net_rx_batch(rxq, most, &tail);
		if (list != NULL) {
			mtx_unlock(&rxq->prq_mtx);
			pv_net_rx_input(rxq, list);
			mtx_lock(&rxq->prq_mtx);
		}
		/*
		 * What came meanwhile is worth a look where it may be merged;
		 * else arming has one.
		 */
		empty = n == 0 || (n < most && rxq->prq_held == 0);
		if (empty || rxq->prq_stopped)
			pv_net_rx_flush(rxq);
		if (rxq->prq_stopped)
			return (false);
		if (empty && !pvq_intr_enable(rxq->prq_pvq, 1))
			return (false);
		/*
		 * A device that announces work and has none uses up the same
		 * budget.
		 */
		budget -= MAX(n, 1);
	}
	pv_net_rx_flush(rxq);
	return (!rxq->prq_stopped);
}

/*
 * A pass has ended: notify the device of what this thread has sent meanwhile
 * (pv_net_tx.c).
 */
static void
pv_net_rx_pass_end(struct pv_net_txq *txq)
{
	/* What this thread queued it sees without the lock. */
	if (txq->ptq_unkicked == 0)
		return;
	mtx_lock(&txq->ptq_mtx);
	pv_net_tx_kick(txq);
	mtx_unlock(&txq->ptq_mtx);
}

/* Returns true if there is more to do, which the task will. */
static bool
pv_net_rx_poll(struct pv_net_rxq *rxq)
{
	bool more, stopped;

	mtx_lock(&rxq->prq_mtx);
	stopped = rxq->prq_stopped;
	if (stopped || rxq->prq_busy != NULL) {
		mtx_unlock(&rxq->prq_mtx);
		if (stopped)
			pv_net_netmap_rx_intr(rxq);
		return (false);
	}
	rxq->prq_busy = curthread;
	if (rxq->prq_starved)
		pv_net_rx_fill(rxq);
	more = pv_net_rx_work(rxq);
	if (more) {
		rxq->prq_stats.deferred++;
		taskqueue_enqueue(rxq->prq_tq, &rxq->prq_task);
	}
	rxq->prq_busy = NULL;
	if (rxq->prq_stopped)
		wakeup(rxq);
	mtx_unlock(&rxq->prq_mtx);
	pv_net_rx_pass_end(&rxq->prq_pn->pn_txqs[rxq->prq_id]);
	return (more);
}

void
pv_net_rx_intr(void *arg)
{
	(void)pv_net_rx_poll(arg);
}

/*
 * Between two passes threads of the same priority run, other cards' among them.
 */
static void
pv_net_rx_task(void *arg, int pending __unused)
{
	if (pv_net_rx_poll(arg))
		kern_yield(PRI_UNCHANGED);
}

/*
 * Drop what came while the interface was down, which is copied: without a fast
 * path.
 */
static void
pv_net_rx_skip(struct pv_net_rxq *rxq)
{
	struct mbuf *list, *m, **tail;
	u_int left = rxq->prq_nbufs;
	int n;

	while (left > 0 && (n = pvq_get(rxq->prq_pvq, rxq->prq_done,
	    MIN(left, PV_NET_BATCH))) > 0) {
		list = NULL;
		tail = &list;
		pv_net_rx_slow(rxq, rxq->prq_done, n, &tail);
		pv_net_rx_repost(rxq, pv_net_rx_pages(rxq, rxq->prq_done, n));
		left -= n;
		while ((m = list) != NULL) {
			list = m->m_nextpkt;
			m->m_nextpkt = NULL;
			m_freem(m);
		}
	}
}

/* The ring, which is empty, may have another size than before. */
static void
pv_net_rx_fit(struct pv_net_rxq *rxq)
{
	u_int i, n = MIN(rxq->prq_pvq->q_size, rxq->prq_max_bufs);

	if (rxq->prq_nbufs == n || rxq->prq_pn->pn_staged)
		return;
	for (i = 0; i < n; i++)
		rxq->prq_free[i] = pv_net_rx_buf(rxq, i);
	rxq->prq_nbufs = rxq->prq_nfree = n;
}

/*
 * How many buffers may be posted again before the device is notified: see
 * above.
 */
static u_int
pv_net_rx_kick_after(const struct pv_net_rxq *rxq)
{
	const struct pv_net *pn = rxq->prq_pn;
	u_int few = rxq->prq_nbufs / 4;
	size_t room = (size_t)(rxq->prq_nbufs - few) * (pn->pn_rx_cluster -
	    pn->pn_rx_pad);

	return (room >= PV_NET_MAX_FRAME + pn->pn_params.pnp_hdrlen ? few : 0);
}

/*
 * Post the first buffers and take interrupts.  If there is no memory now, the
 * callout tries again.
 */
void
pv_net_rx_start(struct pv_net_rxq *rxq)
{
	mtx_lock(&rxq->prq_mtx);
	rxq->prq_stopped = false;
	rxq->prq_fast = pv_net_rx_has_fast(rxq);
	pv_net_rx_fit(rxq);
	rxq->prq_kick = pv_net_rx_kick_after(rxq);
	if (rxq->prq_pn->pn_staged)
		pv_net_rx_skip(rxq);
	pv_net_rx_fill(rxq);
	if (pvq_intr_enable(rxq->prq_pvq, 1))
		taskqueue_enqueue(rxq->prq_tq, &rxq->prq_task);
	mtx_unlock(&rxq->prq_mtx);
}

/* When this returns no thread uses the queue, and none will. */
void
pv_net_rx_stop(struct pv_net_rxq *rxq)
{
	mtx_lock(&rxq->prq_mtx);
	rxq->prq_stopped = true;
	if (!pvq_broken(rxq->prq_pvq))
		pvq_intr_disable(rxq->prq_pvq);
	while (rxq->prq_busy != NULL)
		msleep(rxq, &rxq->prq_mtx, 0, "pvrxst", 0);
	mtx_unlock(&rxq->prq_mtx);
	callout_drain(&rxq->prq_refill);
	pv_net_task_stop(rxq->prq_tq, &rxq->prq_task);
}

void
pv_net_rx_watch(struct pv_net_rxq *rxq)
{
	struct pvq *q = rxq->prq_pvq;
	enum pvq_peek peeked = PVQ_QUIET;
	uint64_t done;

	mtx_lock(&rxq->prq_mtx);
	done = q->q_stats.qs_done;
	if (!rxq->prq_stopped && rxq->prq_busy == NULL && !pvq_broken(q) &&
	    done == rxq->prq_wd_done)
		peeked = pvq_peek(q);
	rxq->prq_wd_done = done;
	rxq->prq_wd_ticks = peeked == PVQ_QUIET ? 0 : rxq->prq_wd_ticks + 1;
	if (peeked == PVQ_WAITS && rxq->prq_wd_ticks >= PV_NET_LOST_INTR) {
		rxq->prq_stats.lost_intrs++;
		rxq->prq_wd_ticks = 0;
		taskqueue_enqueue(rxq->prq_tq, &rxq->prq_task);
	} else if (peeked == PVQ_SKIPPED && rxq->prq_wd_ticks >= PV_NET_SKIPPED)
		pvq_break(q, PVQ_FAULT_SKIP, done);
	mtx_unlock(&rxq->prq_mtx);
}

/* Take back the buffers of a stopped device. */
void
pv_net_rx_drain(struct pv_net_rxq *rxq)
{
	struct pv_net_rxbuf *buf;
	u_int i;

	mtx_lock(&rxq->prq_mtx);
	while ((buf = pvq_drain(rxq->prq_pvq)) != NULL)
		rxq->prq_free[rxq->prq_nfree++] = buf;
	KASSERT(rxq->prq_nfree == rxq->prq_nbufs,
	    ("%s: %u of %u buffers came back", __func__, rxq->prq_nfree,
	    rxq->prq_nbufs));
	for (i = 0; i < rxq->prq_nfree; i++) {
		buf = rxq->prq_free[i];
		if (buf->prb_page != NULL)
			continue;
		if (buf->prb_nsegs != 0)
			pv_net_rx_unload(rxq, buf);
		m_freem(buf->prb_mbuf);
		buf->prb_mbuf = NULL;
	}
	pv_net_rx_forget(rxq);
	rxq->prq_discard = false;
	rxq->prq_starved = false;
	mtx_unlock(&rxq->prq_mtx);
}

/*
 * The tag has one segment less than a buffer, which may get one for its header.
 */
static int
pv_net_rx_create_tag(struct pv_net_rxq *rxq)
{
	const struct pv_net_params *params = &rxq->prq_pn->pn_params;

	return (bus_dma_tag_create(bus_get_dma_tag(rxq->prq_pn->pn_dev), 1,
	    params->pnp_boundary, BUS_SPACE_MAXADDR, BUS_SPACE_MAXADDR,
	    NULL, NULL, rxq->prq_pn->pn_rx_mbufs > 1 ? MJUMPAGESIZE *
	    PV_NET_RX_WHOLE_MBUFS : MJUM16BYTES, rxq->prq_pn->pn_rx_segs,
	    params->pnp_seg_max, 0, NULL, NULL, &rxq->prq_tag));
}

/* How many buffers. */
static u_int
pv_net_rx_count(const struct pv_net_rxq *rxq)
{
	const struct pv_net *pn = rxq->prq_pn;
	u_int pages, size = rxq->prq_pvq->q_size;

	if (pn->pn_rx_mbufs == 1)
		return (size);
	/* 0: no limit. */
	pages = uma_zone_get_max(zone_jumbop) / 4;
	size = MIN(size, PV_NET_RX_WHOLE);
	if (pages == 0)
		return (size);
	return (MIN(size, MAX(pages / (pn->pn_rx_mbufs * pn->pn_max_pairs),
	    PV_NET_RX_WHOLE_FEW)));
}

int
pv_net_rx_alloc(struct pv_net_rxq *rxq)
{
	u_int i, size = pv_net_rx_count(rxq);
	struct pv_net_rxbuf *buf;
	int error;

	NET_TASK_INIT(&rxq->prq_task, 0, pv_net_rx_task, rxq);
	callout_init_mtx(&rxq->prq_refill, &rxq->prq_mtx, 0);
	error = pv_net_needs_dma(rxq->prq_pn) ? pv_net_rx_create_tag(rxq) : 0;
	if (error != 0)
		return (error);
	rxq->prq_bufs = malloc(pv_net_rx_bufs_size(rxq, size), M_PVNET,
	    M_WAITOK | M_ZERO);
	rxq->prq_free = malloc(size * sizeof(rxq->prq_free[0]), M_PVNET,
	    M_WAITOK | M_ZERO);
	for (i = 0; i < size; i++) {
		buf = pv_net_rx_buf(rxq, i);
		if (rxq->prq_tag != NULL)
			error = bus_dmamap_create(rxq->prq_tag, 0,
			    &buf->prb_map);
		if (error != 0)
			break;
		rxq->prq_free[i] = buf;
		rxq->prq_max_bufs = rxq->prq_nbufs = rxq->prq_nfree = i + 1;
	}
	return (pv_net_tell_made(rxq->prq_pn, rxq->prq_name, rxq->prq_max_bufs,
	    size));
}

/* Undo pv_net_rx_alloc(), however far it came. */
void
pv_net_rx_free(struct pv_net_rxq *rxq)
{
	u_int i;

	pv_net_lro_free(rxq);
	/* Buffers that a dead device still may write to are not given back. */
	if (rxq->prq_nfree != rxq->prq_nbufs)
		return;
	for (i = 0; i < rxq->prq_max_bufs && rxq->prq_tag != NULL; i++)
		bus_dmamap_destroy(rxq->prq_tag,
		    pv_net_rx_buf(rxq, i)->prb_map);
	if (rxq->prq_tag != NULL)
		bus_dma_tag_destroy(rxq->prq_tag);
	free(rxq->prq_free, M_PVNET);
	free(rxq->prq_bufs, M_PVNET);
	rxq->prq_tag = NULL;
	rxq->prq_free = NULL;
	rxq->prq_bufs = NULL;
	rxq->prq_max_bufs = rxq->prq_nbufs = rxq->prq_nfree = 0;
}
