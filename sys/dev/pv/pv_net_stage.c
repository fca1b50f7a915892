/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: staging, for protocols that share memory by the page.
 *
 * Where the other side is shown whole pages, an mbuf can't be shared: its page holds other mbufs,
 * and bytes of whoever had it before.  So each slot of a queue has a page of its own, shared as
 * long as the queue exists, and frames are copied.  That costs a copy, but no change of what is
 * shared for each packet, and what the other side can see is at any time what it was sent, or
 * wrote itself.  A page that it keeps, or writes to when it should not, is no danger either: a
 * received frame is judged and used in the copy.
 *
 *	sending    pages of the buffer <- free stack, filled; back when the packet completed
 *	receiving  page i belongs to buffer i for good
 *
 * A packet of n bytes takes as few pages as hold it, so that no chain of mbufs is too long.
 *
 * Locking.  All of it belongs to the queue, under its lock, but for allocation.
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

#include <dev/pv/pvq.h>
#include <dev/pv/pv_net.h>
#include <dev/pv/pv_net_var.h>

/* Memory for what a queue that is made of messages and pages has beside other queues. */
static int
pv_net_stage_alloc_tx(struct pv_net_txq *txq)
{
	const struct pv_net_params *params = &txq->ptq_pn->pn_params;
	u_int i, segs = params->pnp_tx_segs, size = txq->ptq_pvq->q_size;

	if (txq->ptq_pages == NULL)
		return (EINVAL);
	txq->ptq_free_pages = malloc(size * sizeof(txq->ptq_free_pages[0]), M_PVNET, M_WAITOK);
	txq->ptq_buf_pages = malloc((size_t)size * segs * sizeof(txq->ptq_buf_pages[0]), M_PVNET,
	    M_WAITOK);
	for (i = 0; i < size; i++)
		txq->ptq_bufs[i].ptb_pages = &txq->ptq_buf_pages[i * segs];
	txq->ptq_msgs = malloc((size_t)PV_NET_BATCH * (segs + 1) * params->pnp_msg_size, M_PVNET,
	    M_WAITOK | M_ZERO);
	return (0);
}

int
pv_net_stage_alloc(struct pv_net *pn)
{
	int error = 0, i;

	if (!pn->pn_params.pnp_staged)
		return (0);
	for (i = 0; i < pn->pn_params.pnp_npairs && error == 0; i++)
		error = pv_net_stage_alloc_tx(&pn->pn_txqs[i]);
	return (error);
}

void
pv_net_stage_free(struct pv_net *pn)
{
	struct pv_net_txq *txq;
	int i;

	for (i = 0; i < pn->pn_made; i++) {
		txq = &pn->pn_txqs[i];
		free(txq->ptq_free_pages, M_PVNET);
		free(txq->ptq_buf_pages, M_PVNET);
		free(txq->ptq_msgs, M_PVNET);
		txq->ptq_free_pages = NULL;
		txq->ptq_buf_pages = NULL;
		txq->ptq_msgs = NULL;
	}
}

static void
pv_net_stage_start_rx(struct pv_net_rxq *rxq)
{
	struct pv_net_rxbuf *buf;
	u_int i;

	for (i = 0; i < rxq->prq_nbufs; i++) {
		buf = &rxq->prq_bufs[i];
		buf->prb_page = &rxq->prq_pages[i];
		buf->prb_segs[0].ds_addr = buf->prb_page->pp_addr;
		buf->prb_segs[0].ds_len = PAGE_SIZE;
		buf->prb_nsegs = 1;
	}
}

static void
pv_net_stage_start_tx(struct pv_net_txq *txq)
{
	u_int i;

	for (i = 0; i < txq->ptq_nbufs; i++)
		txq->ptq_free_pages[i] = &txq->ptq_pages[i];
	txq->ptq_nfree_pages = txq->ptq_nbufs;
}

/* Take the pages that pv_net_set_pages() told of into use.  The queues are empty. */
void
pv_net_stage_start(struct pv_net *pn)
{
	int i;

	if (!pn->pn_params.pnp_staged)
		return;
	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		pv_net_stage_start_rx(&pn->pn_rxqs[i]);
		pv_net_stage_start_tx(&pn->pn_txqs[i]);
	}
}

/*
 * Store a checksum that the other side will not: its field lies in the first page, where the
 * headers are.
 */
static int
pv_net_stage_csum(const struct pv_net_txbuf *buf, const struct mbuf *m,
    const struct pv_net_offload *o)
{
	u_int at = o->po_csum_start + o->po_csum_offset;
	uint16_t sum;

	if (at + sizeof(sum) > buf->ptb_segs[0].ds_len)
		return (EINVAL);
	sum = pv_net_finished_sum(__DECONST(struct mbuf *, m), o->po_csum_start, o->po_csum_offset);
	memcpy((char *)buf->ptb_pages[0]->pp_mem + at, &sum, sizeof(sum));
	return (0);
}

/*
 * Copy a packet to pages, and make them the segments of its buffer.  Returns 0; ENOSPC if there
 * are not enough pages now; EFBIG if there never are; EINVAL if its checksum is not where it
 * should be.
 */
int
pv_net_stage_tx(struct pv_net_txq *txq, struct pv_net_txbuf *buf, const struct mbuf *m,
    struct pv_net_offload *offload)
{
	u_int chunk, i, left = m->m_pkthdr.len, n = howmany(left, PAGE_SIZE), off = 0;
	const struct mbuf *at = m;
	int error = 0;

	if (n == 0 || n > txq->ptq_pn->pn_params.pnp_tx_segs)
		return (EFBIG);
	if (n > txq->ptq_nfree_pages)
		return (ENOSPC);
	for (i = 0; i < n; i++) {
		chunk = MIN(left, PAGE_SIZE);
		buf->ptb_pages[i] = txq->ptq_free_pages[--txq->ptq_nfree_pages];
		buf->ptb_segs[i].ds_addr = buf->ptb_pages[i]->pp_addr;
		buf->ptb_segs[i].ds_len = chunk;
		m_copydata(at, off, chunk, buf->ptb_pages[i]->pp_mem);
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
		error = pv_net_stage_csum(buf, m, offload);
	if (error != 0) {
		pv_net_unstage_tx(txq, buf);
		buf->ptb_nsegs = 0;
	}
	return (error);
}

/* Take the pages of a packet back. */
void
pv_net_unstage_tx(struct pv_net_txq *txq, struct pv_net_txbuf *buf)
{
	u_int i;

	for (i = 0; i < buf->ptb_nsegs; i++)
		txq->ptq_free_pages[txq->ptq_nfree_pages++] = buf->ptb_pages[i];
}

/* Copy what was received into a page to an mbuf: NULL if there is no memory for it. */
struct mbuf *
pv_net_unstage_rx(const struct pv_net_page *page, const struct pv_net_rxhdr *hdr)
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
	memcpy(mtod(m, void *), (const char *)page->pp_mem + hdr->prh_skip, hdr->prh_len);
	m->m_len = m->m_pkthdr.len = hdr->prh_len;
	return (m);
}
