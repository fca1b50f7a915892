/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: staging: packets are copied to pages that the peer sees all the time
 * (pv_net.h).
 *
 *	sending    pages of the buffer <- free stack, filled; back when the
 *		   packet completed
 *	receiving  page i always belongs to buffer i
 *
 * A packet of n bytes takes as few pages as hold it, so that no chain of mbufs
 * is too long.
 *
 * Locking.  All of it belongs to the queue, under its lock, or to attach while
 * it is not in use.
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
#include <dev/pv/net/pv_net_var.h>

/* The pages of a transmit queue. */
struct pv_net_stage_tx {
	u_int			  st_nfree;
	const struct pv_net_page **st_free;	/* stack */
	const struct pv_net_page **st_bufs;	/* pnp_tx_segs
						 * for each buffer */
};

/* The pages of a buffer, one for each of its segments. */
static const struct pv_net_page **
pv_net_stage_pages(const struct pv_net_txq *txq, const struct pv_net_txbuf *buf)
{
	return (&txq->ptq_stage->st_bufs[(size_t)(buf - txq->ptq_bufs) *
	    txq->ptq_pn->pn_params.pnp_tx_segs]);
}

/*
 * Store a checksum that the device does not: its field is in the first page,
 * where the headers are.
 */
static int
pv_net_stage_csum(const struct pv_net_txbuf *buf,
    const struct pv_net_page *page, const struct mbuf *m,
    const struct pv_net_offload *o)
{
	u_int at = o->po_csum_start + o->po_csum_offset;
	uint16_t sum;

	if (at + sizeof(sum) > buf->ptb_segs[0].ds_len)
		return (EINVAL);
	sum = pv_net_finished_sum(__DECONST(struct mbuf *, m), o->po_csum_start,
	    o->po_csum_offset, pv_net_sum_end(m, at));
	memcpy((char *)page->npg_mem + at, &sum, sizeof(sum));
	return (0);
}

void
pv_net_stage_sent(struct pv_net_txq *txq, struct pv_net_txbuf *buf)
{
	const struct pv_net_page **pages = pv_net_stage_pages(txq, buf);
	struct pv_net_stage_tx *st = txq->ptq_stage;
	u_int i;

	for (i = 0; i < buf->ptb_nsegs; i++)
		st->st_free[st->st_nfree++] = pages[i];
}

int
pv_net_stage_send(struct pv_net_txq *txq, struct pv_net_txbuf *buf,
    const struct mbuf *m, struct pv_net_offload *offload)
{
	u_int chunk, i, left = m->m_pkthdr.len, n = howmany(left, PAGE_SIZE),
	    off = 0;
	const struct pv_net_page **pages = pv_net_stage_pages(txq, buf);
	struct pv_net_stage_tx *st = txq->ptq_stage;
	const struct mbuf *at = m;
	int error = 0;

	if (n == 0 || n > txq->ptq_pn->pn_params.pnp_tx_segs)
		return (EFBIG);
	if (n > st->st_nfree)
		return (ENOSPC);
	for (i = 0; i < n; i++) {
		chunk = MIN(left, PAGE_SIZE);
		pages[i] = st->st_free[--st->st_nfree];
		buf->ptb_segs[i].ds_addr = pages[i]->npg_addr;
		buf->ptb_segs[i].ds_len = chunk;
		m_copydata(at, off, chunk, pages[i]->npg_mem);
		left -= chunk;
		/* On to where the next page begins. */
		off += chunk;
		while (left > 0 && off >= at->m_len) {
			off -= at->m_len;
			at = at->m_next;
		}
	}
	buf->ptb_nsegs = n;
	if ((offload->po_flags & PV_NET_FINISH_CSUM) != 0)
		error = pv_net_stage_csum(buf, pages[0], m, offload);
	if (error != 0) {
		pv_net_stage_sent(txq, buf);
		buf->ptb_nsegs = 0;
	}
	return (error);
}

struct mbuf *
pv_net_stage_receive(const struct pv_net_page *page,
    const struct pv_net_rxhdr *hdr)
{
	u_int pad = hdr->prh_len + ETHER_ALIGN <= PAGE_SIZE ? ETHER_ALIGN : 0;
	u_int room = hdr->prh_len + pad;
	struct mbuf *m;

	if (room <= MHLEN)
		m = m_gethdr(M_NOWAIT, MT_DATA);
	else
		m = m_getjcl(M_NOWAIT, MT_DATA, M_PKTHDR,
		    room <= MCLBYTES ? MCLBYTES : MJUMPAGESIZE);
	if (m == NULL)
		return (NULL);
	/* What IP reads is aligned if that costs nothing. */
	m->m_data += pad;
	memcpy(mtod(m, void *), (const char *)page->npg_mem + hdr->prh_skip,
	    hdr->prh_len);
	m->m_len = m->m_pkthdr.len = hdr->prh_len;
	return (m);
}

static struct pv_net_stage_tx *
pv_net_stage_alloc_tx(const struct pv_net_txq *txq)
{
	size_t segs = txq->ptq_pn->pn_params.pnp_tx_segs,
	    size = txq->ptq_pvq->q_size;
	struct pv_net_stage_tx *st;

	st = malloc(sizeof(*st), M_PVNET, M_WAITOK | M_ZERO);
	st->st_free = malloc(size * sizeof(st->st_free[0]), M_PVNET, M_WAITOK);
	st->st_bufs = malloc(size * segs * sizeof(st->st_bufs[0]), M_PVNET,
	    M_WAITOK);
	return (st);
}

void
pv_net_stage_queue(struct pv_net *pn, int pair, bool tx,
    const struct pv_net_page *pages)
{
	struct pv_net_txq *txq = &pn->pn_txqs[pair];

	KASSERT(pn->pn_params.pnp_hdrlen == 0 &&
	    pn->pn_params.pnp_seg_max == PAGE_SIZE,
	    ("%s: a header of %u bytes, segments of %ju", __func__,
	    pn->pn_params.pnp_hdrlen, (uintmax_t)pn->pn_params.pnp_seg_max));
	pn->pn_staged = true;
	if (!tx) {
		pn->pn_rxqs[pair].prq_pages = pages;
		return;
	}
	txq->ptq_pages = pages;
	if (txq->ptq_stage == NULL)
		txq->ptq_stage = pv_net_stage_alloc_tx(txq);
}

void
pv_net_stage_free(struct pv_net *pn)
{
	struct pv_net_stage_tx *st;
	int i;

	for (i = 0; i < pn->pn_max_pairs; i++) {
		st = pn->pn_txqs[i].ptq_stage;
		if (st == NULL)
			continue;
		free(st->st_bufs, M_PVNET);
		free(st->st_free, M_PVNET);
		free(st, M_PVNET);
	}
}

static void
pv_net_stage_start_rx(struct pv_net_rxq *rxq)
{
	struct pv_net_rxbuf *buf;
	u_int i;

	for (i = 0; i < rxq->prq_nbufs; i++) {
		buf = pv_net_rx_buf(rxq, i);
		buf->prb_page = &rxq->prq_pages[i];
		buf->prb_segs[0].ds_addr = buf->prb_page->npg_addr;
		buf->prb_segs[0].ds_len = PAGE_SIZE;
		buf->prb_nsegs = 1;
	}
}

static void
pv_net_stage_start_tx(struct pv_net_txq *txq)
{
	struct pv_net_stage_tx *st = txq->ptq_stage;
	u_int i;

	for (i = 0; i < txq->ptq_nbufs; i++)
		st->st_free[i] = &txq->ptq_pages[i];
	st->st_nfree = txq->ptq_nbufs;
}

void
pv_net_stage_start(struct pv_net *pn)
{
	int i;

	if (!pn->pn_staged)
		return;
	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		pv_net_stage_start_rx(&pn->pn_rxqs[i]);
		pv_net_stage_start_tx(&pn->pn_txqs[i]);
	}
}
